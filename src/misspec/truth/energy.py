"""The energy certificate: a lower bound on ε from how much of the results no member of the class explains.

It needs no repeats, and holds for points chosen by looking at earlier results. With y_s = f̃(x_s) + m(x_s) + η_s and
|m| ≤ ε, the least residual of the class, q² = min over ‖f − offset‖ ≤ B of Σ_s w_s(y_s − f(x_s))², obeys

    q² ≤ Σ_s w_s(m(x_s) + η_s)² ≤ Wε² + 2σε·c + R²,      W = Σ_s w_s (t, where all weights are 1),

    R² = σ²·min_g [ln(2G/δ) + ½t·ln(1/(1 − 2g))]/g       over a grid of G values of g in (0, ½)
    c = √((W + 1)(2 ln(2/δ) + ln(W + 1)))                m(x_s) is known before η_s: a normal mixture

with probability 1 − δ for all t at once. At one t that was fixed in advance, with x = ln(2/δ),
R² = σ²(t + 2√(tx) + 2x) and c = √(2xW). Hence ε ≥ −b + √(b² + (q² − R²)/W) with b = σc/W.

It proves the root mean square of a misfit, and so sees widespread ones; own bands see spikes at repeated points.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec import kernels
from misspec.errors import Array
from misspec.model import Model

if TYPE_CHECKING:
    from misspec.truth.certificates import Averages

GRID = np.geomspace(1e-3, 0.48, 20)  # of g, whose best value is about √(ln(1/δ)/t): up to a million results
MOST = 2000  # distinct points whose kernel matrix is decomposed, in a second; of more, features or a part are used
FEATURES = 300  # of more points than MOST, if they miss little
MANY = 20_000  # points of which a part is used in any case: features of more take too much memory
ROUNDING = 8.0 * float(np.finfo(np.float64).eps)  # of a kernel value: times n, at most that of an eigenvalue
LOST = 1e-12  # of the results' energy: what rounding may add to a residual
LITTLE = 0.01  # of the noise's energy: what features may miss
RESERVED = 0.05  # share of δ for certificates from a part of the points
STEPS = 60  # of the bisection for ρ, on a logarithmic scale; whatever it finds is valid


class Energy(NamedTuple):
    """A lower bound on ε, and how it comes about.

    epsilon    ε is at least this; 0 where the class explains the results within the noise
    residual   q, the least residual of the class; allowed: R, what noise alone reaches
    used       rows of the points used; fitted: the nearest member of the class there, offset included
    """

    epsilon: float
    residual: float
    allowed: float
    used: NDArray[np.intp]
    fitted: Array


NOTHING = Energy(0.0, 0.0, 0.0, np.zeros(0, dtype=np.intp), np.zeros(0))


def energy(model: Model, told: Averages, *, delta: float, fixed: bool = False) -> Energy:
    """The certificate; fixed: the points, and their number, were fixed before any result was seen."""
    encoded, averages, weights, within, results = told
    n, part = len(encoded), 0
    if not n:
        return NOTHING
    phi, missed = _features(model, encoded)
    if n > MOST and missed * float(weights.max()) * model.norm_bound**2 > LITTLE * model.noise**2 * n:
        part = math.ceil(math.log2(n / MOST))
    used = np.arange(n) if not part else np.flatnonzero(_drawn(encoded) < 2.0**-part)
    if not len(used):
        return NOTHING
    if part:
        phi, missed = _features(model, encoded[used])
        delta *= RESERVED * 6.0 / (math.pi * part) ** 2  # how many there are may depend on the results
    else:
        delta *= 1.0 - RESERVED
    w, z = weights[used], averages[used] - model.offset
    q2, fitted = _least_residual(phi, missed, w, z, model.norm_bound)
    q2 += float(within[used].sum())
    t, W = float(results[used].sum()), float(w.sum())
    R2, c = _noise(t, W, delta, fixed=fixed)
    R2, b = model.noise**2 * R2, model.noise * c / W
    excess = (q2 - R2) / W
    proved = math.sqrt(b * b + excess) - b if excess > 0 else 0.0
    return Energy(proved, math.sqrt(q2), math.sqrt(R2), used, fitted + model.offset)


def _features(model: Model, encoded: Array) -> tuple[Array, float]:
    """Φ with K ⪯ ΦΦᵀ + missed·I, rounding of kernel values included; of very many points none, which miss all."""
    n = len(encoded)
    if n > MANY:
        return np.zeros((n, 0)), float(n)
    phi, _ = kernels.pivoted(model.kernel, encoded, 1e-12, n if n <= 2 * MOST else FEATURES)
    missed = np.maximum(kernels.diagonal(model.kernel, encoded) - np.einsum("nr,nr->n", phi, phi), 0.0)
    return phi, float(missed.sum()) + ROUNDING * n


def _drawn(encoded: Array) -> Array:
    """A number in [0, 1) per point, by its coordinates alone: whether it is used is known before its result."""
    direction = np.random.default_rng(0).standard_normal(encoded.shape[1])
    return np.asarray((encoded @ direction * 1e6) % 1.0)


def _least_residual(phi: Array, missed: float, w: Array, z: Array, bound: float) -> tuple[float, Array]:
    """A lower bound on min Σ w(z − f)² over ‖f‖ ≤ B, and the f that is nearest.

    By duality: with S = N^½KN^½, ρ·zᵀN^½(S + ρ)⁻¹N^½z − ρB² is a lower bound for every ρ ≥ 0, and the minimum for the
    ρ at which the ridge regression has norm B.
    """
    values, vectors = np.linalg.eigh((phi.T * w) @ phi)
    values = np.maximum(values, 0.0)
    inside = vectors.T @ (phi.T @ (w * z))
    known = values > 1e-13 * float(values.max(initial=0.0))
    shares = np.where(known, inside**2, 0.0) / np.where(known, values, 1.0)  # of zᵀNz, by eigenvector of S
    rest = max(float(w @ z**2) - float(shares.sum()), 0.0)
    spectrum, energies = np.append(values, 0.0) + missed * float(w.max()), np.append(shares, rest)

    def norm2(rho: float) -> float:
        return float((spectrum * energies / (spectrum + rho) ** 2).sum())

    scale = float(spectrum.max()) + float(energies.sum()) / bound**2 + 1e-300
    low, high = 1e-14 * scale, 2.0 * scale
    for _ in range(STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if norm2(middle) > bound**2 else (low, middle)
    q2 = high * (float((energies / (spectrum + high)).sum()) - bound**2) - LOST * float(energies.sum())
    return max(q2, 0.0), phi @ (vectors @ (inside / (values + high)))


def _noise(t: float, W: float, delta: float, *, fixed: bool) -> tuple[float, float]:
    """R²/σ² and c."""
    x = math.log(2.0 / delta)
    if fixed:
        return t + 2.0 * math.sqrt(t * x) + 2.0 * x, math.sqrt(2.0 * x * W)
    log = math.log(2.0 * len(GRID) / delta)
    R2 = float(((log - 0.5 * t * np.log1p(-2.0 * GRID)) / GRID).min())
    return R2, math.sqrt((W + 1.0) * (2.0 * x + math.log(W + 1.0)))
