"""Maximum information gain γ_T = max over multisets of T points of ½ log det(I + K/λ)."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from misspec import kernels, search
from misspec.domains import Box, Domain, Finite, Space
from misspec.encoding import kernel_key
from misspec.errors import Array, InvalidInput, array, instance, shown, whole
from misspec.model import Model, a_model
from misspec.posterior import Tracked

DESIGN_STEPS = 300  # most multiplicative steps of the design bound
DESIGN_WORK = 3e10  # most floating-point operations of the design bound: a few seconds
DESIGN_GAP = 1e-3  # the design bound is good enough within this factor of the greedy value
GREEDY_FACTOR = 1.0 - 1.0 / math.e  # a greedy design reaches this share of γ_T (submodularity)
COVER = 1024  # Sobol' points that stand for a box
CHECK = 2048  # other points of the box, at which the cover's blind spot ρ is measured
POLISHED = 100  # greedy steps that are polished in the box
STARTS = 4  # points of the cover from which a greedy step is polished
CLIMB = 30  # most steps of L-BFGS-B per polish
MOST_STEPS = 1_000_000  # longest greedy design, one step per round: half a minute
MOST_KEPT = 4  # results kept for calls with the same arguments, such as runs of many seeds
_KEPT: dict[tuple[str, float, bytes, int], InformationGain] = {}  # these, by their arguments

Rounds = TypeVar("Rounds", float, NDArray[Any])  # a number of rounds, or an array of them; so is the answer


@dataclasses.dataclass(frozen=True)
class InformationGain:
    """greedy ≤ γ_T ≤ upper.

    greedy        value of the greedy design
    upper         the smallest of `upper_bounds`
    path          the greedy design in order: indices, shape (T,); on a Box its points in user units, shape (T, d)
    values        g_0, …, g_T: its information after k points
    upper_bounds  four upper bounds, by name
    rate          the order of γ_T in T for this kernel, from the literature
    approximate   on a Box, one sentence that says why `upper` is not a proof; empty on a Finite domain, where it is
    missed        on a Box, the part of `upper_bounds` that pays for what lies between the points; 0 on a Finite domain
    """

    greedy: float
    upper: float
    path: NDArray[Any]
    values: Array
    upper_bounds: dict[str, float]
    rate: str
    approximate: str = ""
    missed: float = 0.0

    def up_to(self, t: Rounds) -> Rounds:
        """An upper bound on γ_t for t ≤ T, a number or an array of them: the smaller of `upper` and g_t/(1 − 1/e)."""
        rounds = array("t must be a number of rounds, or an array of them", t)
        if rounds.dtype.kind not in "iu" or not rounds.size or rounds.min() < 0 or rounds.max() > len(self.path):
            raise InvalidInput(f"t must be whole numbers of rounds up to {len(self.path)}, got {shown(t)}")
        missed = self.missed * rounds / len(self.path)
        bound: Rounds = np.minimum(self.upper, self.values[rounds] / GREEDY_FACTOR + missed)
        return bound

    def at(self, t: int) -> float:
        """An upper bound on γ_t for any t; beyond T it is ⌈t/T⌉·γ_T, since information is subadditive."""
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
    the value of a design in it, and so a lower bound on its γ_T. The upper bounds are those of the points, plus
    `missed` = (T/2) ln(1 + ρ/λ), with ρ the largest variance left in the box when f is known at all of them:
    negligible for smooth kernels in few dimensions, and a large part of `upper` for rough ones or in many.
    """
    T = whole("horizon", horizon, at_least=1, at_most=MOST_STEPS)
    a_model(model)
    hint = "where rounds bring the points, make a Finite of some, or hand a policy its gain="
    area: Any = instance("domain", domain, (Finite, Box, Space), hint)
    if not hasattr(area, "points"):
        if (getattr(area, "size", None) or COVER + 1) <= COVER:  # a space of few members
            return information_gain(area.members(), model, horizon)
        stand_in, polished = _stand_in(area, model)
        gain = _gain(stand_in, model, T, _unseen(stand_in, model))
        return dataclasses.replace(
            gain,
            path=stand_in.points[gain.path],
            approximate=f"maxima over the box were taken over {len(stand_in) - polished} Sobol' points and {polished} "
            "points polished in it, so that `upper` may fall short by a little",
        )
    key = (kernel_key(model.kernel), model.regularization, hashlib.sha256(area.encoded.tobytes()).digest(), T)
    if key not in _KEPT or "custom" in key[0]:
        while len(_KEPT) >= MOST_KEPT:
            _KEPT.pop(next(iter(_KEPT)), None)
        _KEPT[key] = _gain(area, model, T, 0.0)
    return _KEPT[key]


def _gain(domain: Finite, model: Model, T: int, unseen: float) -> InformationGain:
    """Bounds on γ_T of a list. unseen: ρ where the list stands for a box, else 0."""
    path, values, largest = _greedy(domain, model, T)
    Phi, residual = kernels.features(model.kernel, domain.encoded)
    # f is its projection on the points plus a rest of variance ≤ ρ; observing both apart is at least as informative
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
    greedy, order = float(values[-1]), rate(model.kernel, domain)
    return InformationGain(greedy, max(greedy, min(bounds.values())), path, values, bounds, order, missed=outside)


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
    """The cover of a box followed by the polished points, and the number of the latter.

    They come from a greedy design whose steps climb from the cover's points of largest variance to maxima in the box.
    They do not depend on the horizon, so that a shorter design is the beginning of a longer one.
    """
    spread = Finite(search.distinct(box.decode(box.spread(COVER, [0]))).points, box=box)
    posterior = Tracked(model, spread)

    def variance(U: Array) -> tuple[Array, Array]:
        here = posterior.local(U)
        return here.variance, here.dvariance

    polished = np.empty((POLISHED, box.dimension))
    for k in range(POLISHED):
        best = search.spread_out(spread.encoded, posterior.variance, STARTS)
        maxima = search.climb(variance, spread.encoded[best], CLIMB, precision=1e6, region=box)
        options = box.decode(np.concatenate([maxima, spread.encoded[best]]))
        polished[k] = options[int(posterior.at(options)[1].argmax())]
        posterior.observe(polished[k : k + 1], [model.offset])
    fresh = search.distinct(polished[~spread.contains(polished)]).points
    return Finite(np.concatenate([spread.points, fresh]), box=box), len(fresh)


def _unseen(domain: Finite, model: Model) -> float:
    """ρ: the largest variance in the box, at points of its own, when f is known on the domain."""
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
    waters = (T + np.cumsum(levels)) / np.arange(1, len(levels) + 1)  # ν if the first i levels are covered
    covered = np.flatnonzero(waters > levels)
    if not len(covered):  # T is lost in rounding beside λ/κ: ln(1 + x) ≤ x
        return float(0.5 * T / levels[0]) if len(levels) else 0.0
    water = waters[covered[-1]]
    return 0.5 * float(np.log(np.maximum(water / levels, 1.0)).sum())


def _design(Phi: Array, residual: Array, T: int, regularization: float, path: NDArray[np.intp], goal: float) -> float:
    """The least F(w) + (T/2λ)(max_x σ_w²(x) − Σ_x w_xσ_w²(x)) over some designs w; each of them is an upper bound."""
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
