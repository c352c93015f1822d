"""Maximum information gain γ_T = max over multisets of T points of ½ log det(I + K/λ)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec import kernels
from misspec.domains import Domain, Finite
from misspec.errors import Array, InvalidInput, whole
from misspec.model import Model
from misspec.tracked import Tracked

DESIGN_STEPS = 300  # multiplicative steps of the design dual, at most
DESIGN_WORK = 3e10  # and at most so many floating-point operations: some seconds
DESIGN_GAP = 1e-3  # and its relative gap to the greedy value at which it stops
GREEDY_FACTOR = 1.0 - 1.0 / math.e


@dataclasses.dataclass(frozen=True)
class InformationGain:
    """greedy ≤ γ_T ≤ upper.

    greedy   value of the greedy design
    upper    the smallest of `bounds`
    path     indices of the greedy design, in order
    values   g_0, …, g_T: its information after k points
    bounds   the four upper bounds by name
    rate     how γ_T grows for this kernel, as the literature has it; a rate, not a number
    """

    greedy: float
    upper: float
    path: NDArray[np.intp]
    values: Array
    bounds: dict[str, float]
    rate: str

    def up_to(self, t: Any) -> Any:
        """An upper bound on γ_t for any t ≤ T: the smaller of `upper` and g_t/(1 − 1/e). t: a number or an array."""
        rounds = np.asarray(t)
        if rounds.min() < 0 or rounds.max() > len(self.path):
            raise InvalidInput(f"this information gain was computed for up to {len(self.path)} rounds, got {t!r}")
        bound = np.minimum(self.upper, self.values[rounds] / GREEDY_FACTOR)
        return float(bound) if bound.ndim == 0 else bound

    def __repr__(self) -> str:
        return f"InformationGain({self.greedy:.4g} ≤ γ_{len(self.path)} ≤ {self.upper:.4g}, rate {self.rate})"


def information_gain(domain: Domain, model: Model, horizon: int) -> InformationGain:
    """Bounds on γ_T, T = horizon, on a Finite domain.

    greedy     g/(1 − 1/e), by submodularity
    variance   min over k of g_k + (T/2) ln(1 + max_x σ_k²(x)/λ)
    spectral   water-filling over the eigenvalues of the Gram matrix
    design     the dual of the relaxed design problem, after multiplicative steps

    Costs O(T·N·r) for the greedy path and some seconds for the design, r the rank of the domain (N for Matérn).
    """
    if not isinstance(domain, Finite):
        raise InvalidInput(f"information_gain needs a Finite domain, got {domain!r}; box.grid(n) makes one of a box")
    T = whole("horizon", horizon, at_least=1)
    path, values, largest = _greedy(domain, model, T)
    Phi, residual = kernels.features(model.kernel, domain.encoded)
    # K = ΦΦᵀ + E with E ⪰ 0 and diagonal `residual`: log det grows by at most tr(E's part in the design)/λ
    missed = 0.5 * T * float(residual.max()) / model.regularization
    bounds = {
        "greedy": float(values[-1]) / GREEDY_FACTOR,
        "variance": float((values + 0.5 * T * np.log1p(largest / model.regularization)).min()),
        "spectral": _spectral(Phi, T, model.regularization) + missed,
        "design": _design(Phi, residual, T, model.regularization, path, float(values[-1])) + missed,
    }
    return InformationGain(
        float(values[-1]),
        max(float(values[-1]), min(bounds.values())),
        path,
        values,
        bounds,
        rate(model.kernel, domain),
    )


def rate(kernel: Any, domain: Domain) -> str:
    """The order of γ_T in T for the common kernels (Srinivas et al. 2010; Vakili et al. 2021 for Matérn)."""
    name, d = type(kernel).__name__, domain.dimension
    if name == "RBF":
        return f"O((log T)^{d + 1})"
    if name == "DotProduct":
        return f"O({d} log T)"
    if name == "Matern" and math.isfinite(kernel.nu):
        nu = float(kernel.nu)
        return f"O(T^{d / (2 * nu + d):.3g} (log T)^{2 * nu / (2 * nu + d):.3g})"
    return "unknown"


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
    water = waters[np.flatnonzero(waters > levels)[-1]]
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
