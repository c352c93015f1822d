"""Maximum information gain γ_T = max over multisets of T points of ½ log det(I + K/λ)."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from misspec import kernels, search
from misspec.domains import Box, Domain, Finite, Joint, Open, Space
from misspec.encoding import kernel_key
from misspec.errors import Array, InvalidInput, array, shown, whole
from misspec.model import Model, a_model
from misspec.posterior import Tracked

DESIGN_STEPS = 300  # multiplicative steps of the design dual, at most
DESIGN_WORK = 3e10  # and at most this many floating-point operations: a few seconds
DESIGN_GAP = 1e-3  # and its relative gap to the greedy value at which it stops
GREEDY_FACTOR = 1.0 - 1.0 / math.e
COVER = 1024  # Sobol' points that stand for a box
CHECK = 2048  # others, to measure how well they do
POLISHED = 100  # steps of the greedy design that are polished in the box, and
STARTS = 4  # from this many of the cover's best points
CLIMB = 30  # by at most this many steps of L-BFGS-B
MOST_STEPS = 1_000_000  # of a greedy design, one per round: half a minute
MOST_KEPT = 4  # results that are kept for calls with the same arguments


@dataclasses.dataclass(frozen=True)
class InformationGain:
    """greedy ≤ γ_T ≤ upper.

    greedy       value of the greedy design
    upper        the smallest of `bounds`
    path         the greedy design in order: indices, shape (T,); on a Box its points in user units, shape (T, d)
    values       g_0, …, g_T: its information after k points
    bounds       the four upper bounds by name
    rate         how γ_T grows for this kernel, as the literature has it; a rate, not a number
    approximate  on a Box, one sentence on what `upper` leaves to chance; empty on a Finite domain, where it is a bound
    missed       on a Box, what `bounds` contain for the part of it that those points cannot see; 0 on a Finite domain
    """

    greedy: float
    upper: float
    path: NDArray[Any]
    values: Array
    bounds: dict[str, float]
    rate: str
    approximate: str = ""
    missed: float = 0.0

    @overload
    def up_to(self, t: int) -> float: ...
    @overload
    def up_to(self, t: NDArray[Any]) -> Array: ...

    def up_to(self, t: int | NDArray[Any]) -> float | Array:
        """An upper bound on γ_t for any t ≤ T: the smaller of `upper` and g_t/(1 − 1/e). t: a number or an array."""
        rounds = array("t must be a number of rounds, or an array of them", t)
        if rounds.dtype.kind not in "iu" or not rounds.size or rounds.min() < 0 or rounds.max() > len(self.path):
            raise InvalidInput(
                f"t must be whole numbers of rounds, up to {len(self.path)} for which this gain was computed, got "
                f"{shown(t)}"
            )
        missed = self.missed * rounds / len(self.path)
        bound = np.minimum(self.upper, self.values[rounds] / GREEDY_FACTOR + missed)
        return float(bound) if bound.ndim == 0 else np.asarray(bound)

    def at(self, t: int) -> float:
        """An upper bound on γ_t for any t: information adds up at most, so that beyond T it is ⌈t/T⌉·γ_T."""
        T, t = len(self.path), whole("t", t)
        return self.up_to(t) if t <= T else math.ceil(t / T) * self.upper

    def __repr__(self) -> str:
        below = "≲" if self.approximate else "≤"
        return f"InformationGain({self.greedy:.4g} ≤ γ_{len(self.path)} {below} {self.upper:.4g}, rate {self.rate})"


def information_gain(domain: Domain, model: Model, horizon: int) -> InformationGain:
    """Bounds on γ_T, T = horizon.

    greedy     g/(1 − 1/e), by submodularity
    variance   min over k of g_k + (T/2) ln(1 + max_x σ_k²(x)/λ)
    spectral   water-filling over the eigenvalues of the Gram matrix
    design     the dual of the relaxed design problem, after multiplicative steps

    Costs O(T·N·r) for the greedy path and a few seconds for the design, r the rank of the domain (N for Matérn).

    A Box or a Space is replaced by Sobol' points and by maximisers of the variance along a greedy design. `greedy` is
    the value of a design in it, and so a lower bound on its γ_T. The bounds are those of the points, plus
    `missed` = (T/2) ln(1 + ρ/λ), with ρ the largest variance that is left in the box when f is known at all of them:
    next to nothing for smooth kernels in few dimensions, and a large part of `upper` for rough ones or in many.
    """
    T = whole("horizon", horizon, at_least=1, at_most=MOST_STEPS)
    a_model(model)
    if isinstance(domain, Space) and domain.size is not None and domain.size <= COVER:
        return information_gain(domain.members(), model, horizon)
    if isinstance(domain, Box | Space):
        stand_in, polished = _stand_in(domain, model)
        gain = _gain(stand_in, model, T, _unseen(stand_in, model))
        return dataclasses.replace(
            gain,
            path=stand_in.points[gain.path],
            approximate=f"maxima over the box were taken over {len(stand_in) - polished} Sobol' points and {polished} "
            "points polished in it, so that `upper` may fall short by a little",
        )
    if not isinstance(domain, Finite):
        brought = isinstance(domain, Open | Joint)
        raise InvalidInput(
            f"domain must be a Finite or a Box, or a Space, got {type(domain).__name__}"
            + ("; where rounds bring the points, make a Finite of some, or hand a policy its gain=" if brought else "")
        )
    key = (kernel_key(model.kernel), model.regularization, hashlib.sha256(domain.encoded.tobytes()).digest(), T)
    if key not in _KEPT or "custom" in key[0]:
        while len(_KEPT) >= MOST_KEPT:
            _KEPT.pop(next(iter(_KEPT)), None)
        _KEPT[key] = _gain(domain, model, T, 0.0)
    return _KEPT[key]


_KEPT: dict[tuple[str, float, bytes, int], InformationGain] = {}  # what a few calls found: runs of many seeds share it


def _gain(domain: Finite, model: Model, T: int, unseen: float) -> InformationGain:
    """unseen: ρ, where the domain stands for a box; else 0."""
    path, values, largest = _greedy(domain, model, T)
    Phi, residual = kernels.features(model.kernel, domain.encoded)
    # f is what the points see of it plus a rest of variance ≤ ρ: the information is at most that of both observed apart
    outside = 0.5 * T * math.log1p(unseen / model.regularization)
    if unseen:
        largest = np.minimum(largest + unseen, largest[0])
    # K = ΦΦᵀ + E with E ⪰ 0 and diagonal `residual`: log det grows by at most tr(E's part in the design)/λ
    missed = 0.5 * T * float(residual.max()) / model.regularization
    bounds = {
        "greedy": float(values[-1]) / GREEDY_FACTOR + outside,
        "variance": float((values + 0.5 * T * np.log1p(largest / model.regularization)).min()),
        "spectral": _spectral(Phi, T, model.regularization) + missed + outside,
        "design": _design(Phi, residual, T, model.regularization, path, float(values[-1])) + missed + outside,
    }
    return InformationGain(
        float(values[-1]),
        max(float(values[-1]), min(bounds.values())),
        path,
        values,
        bounds,
        rate(model.kernel, domain),
        missed=outside,
    )


def rate(kernel: Any, domain: Domain) -> str:
    """The order of γ_T in T for the common kernels (Srinivas et al. 2010; Vakili et al. 2021 for Matérn)."""
    name, d = type(kernel).__name__, domain.dimension
    if name == "RBF":
        return f"O((log T)^{d + 1})"
    if name == "DotProduct":
        return "O(log T)" if d == 1 else f"O({d} log T)"
    if name == "Matern" and math.isfinite(kernel.nu):
        nu = float(kernel.nu)
        return f"O(T^{d / (2 * nu + d):.3g} (log T)^{2 * nu / (2 * nu + d):.3g})"
    return "unknown"


def _stand_in(box: Box | Space, model: Model) -> tuple[Finite, int]:
    """The cover of a box and, after it, the polished points; and how many of these there are.

    They come from a greedy design whose steps climb from the cover's points of largest variance to maxima in the box.
    The horizon plays no part, so that designs for a shorter one are the beginnings of those for a longer one.
    """
    spread = Finite(search.distinct(box.decode(box.spread(COVER, [0]))).points, box=box)
    posterior = Tracked(model, spread)

    def variance(U: Array) -> tuple[Array, Array]:
        here = posterior.local(U)
        return here.variance, here.dvariance

    polished = np.empty((POLISHED, box.dimension))
    for k in range(POLISHED):
        best = search.spread_out(spread.encoded, posterior.variance, STARTS)
        found = search.climb(variance, spread.encoded[best], CLIMB, precision=1e6, free=box.free)
        options = box.decode(np.concatenate([found, spread.encoded[best]]))
        polished[k] = options[int(posterior.at(options)[1].argmax())]
        posterior.observe(polished[k : k + 1], [model.offset])
    fresh = search.distinct(polished[~spread.contains(polished)]).points
    return Finite(np.concatenate([spread.points, fresh]), box=box), len(fresh)


def _unseen(domain: Finite, model: Model) -> float:
    """ρ: the largest variance at other points of the box if f is known at all of the domain's."""
    X, kernel = domain.encoded, model.kernel
    Phi, pivots = kernels.pivoted(kernel, X, 1e-10)
    assert domain.box is not None  # it stands for one
    others = domain.box.uniform(CHECK, [1])
    psi = solve_triangular(Phi[pivots], kernels.cross(kernel, X[pivots], others), lower=True)
    return max(0.0, float((kernels.diagonal(kernel, others) - np.einsum("rn,rn->n", psi, psi)).max()))


def _greedy(domain: Finite, model: Model, T: int) -> tuple[NDArray[np.intp], Array, Array]:
    """Algorithm 2, lines 4–6: repeatedly the point of largest variance. Path, g_0 … g_T, max σ_k² for k = 0 … T."""
    posterior = Tracked(model, domain)
    path = np.empty(T, dtype=np.intp)
    values, largest = np.zeros(T + 1), np.empty(T + 1)
    for k in range(T):
        path[k] = int(posterior.variance.argmax())
        largest[k] = posterior.variance[path[k]]
        posterior.observe_index(int(path[k]), model.offset)
        values[k + 1] = posterior.information
    largest[T] = posterior.variance.max()
    return path, np.maximum.accumulate(values), largest


def _spectral(Phi: Array, T: int, regularization: float) -> float:
    """½ Σ_i ln(1 + q_iκ_i/λ) with κ the eigenvalues of the Gram matrix, q_i = max(0, ν − λ/κ_i), Σ q_i = T."""
    spectrum = np.linalg.eigvalsh(Phi.T @ Phi)[::-1]
    levels = regularization / spectrum[spectrum > 1e-14 * max(spectrum.max(initial=0.0), 1e-300)]  # ascending
    if not len(levels):
        return 0.0
    waters = (T + np.cumsum(levels)) / np.arange(1, len(levels) + 1)  # ν if the first i levels are covered
    covered = np.flatnonzero(waters > levels)
    if not len(covered):  # T is lost in rounding beside λ/κ: ln(1 + x) ≤ x
        return float(0.5 * T / levels[0])
    water = waters[covered[-1]]
    return 0.5 * float(np.log(np.maximum(water / levels, 1.0)).sum())


def _design(Phi: Array, residual: Array, T: int, regularization: float, path: NDArray[np.intp], goal: float) -> float:
    """min over the steps taken of F(w) + (T/2λ)(max_x σ_w²(x) − Σ_x w_xσ_w²(x)): valid at every design w."""
    N, r = Phi.shape
    w = 0.9 * np.bincount(path, minlength=N) / T + 0.1 / N
    best = math.inf
    for _ in range(min(DESIGN_STEPS, max(3, int(DESIGN_WORK / (6.0 * N * r**2 + 1.0))))):
        scaled = Phi * np.sqrt(w * (T / regularization))[:, None]
        precision = np.eye(r) + scaled.T @ scaled
        variance = np.einsum("nr,nr->n", Phi @ np.linalg.inv(precision), Phi) + residual
        value = 0.5 * float(np.linalg.slogdet(precision)[1])
        best = min(best, value + 0.5 * T / regularization * float(variance.max() - w @ variance))
        total = float(w @ variance)
        if best - goal <= DESIGN_GAP * goal or total <= 0.0:
            break
        w = w * variance / total
    return best
