"""A model that is learnt: samples of its hyperparameters given the data, to be averaged over, rather than one best fit.

    y = m + s·(f(x) + √λ·noise),   f ~ GP(0, k),   k a ProductMatern (`product.py`)
    θ = (ln ℓ_1 … ln ℓ_d, ln λ, logit a)     what is sampled: length scales, noise, additive share
    m, s                                     integrated out: m ~ N(0, s²), s² ~ inverse gamma, in units of the data

Repeats enter by their averages ȳ, counts n and the scatter W around the averages: with A = K + λ·diag(1/n) + 11ᵀ and
Q = ȳᵀA⁻¹ȳ + W/λ the marginal likelihood of N results at u points is

    ln p(y | θ) = −½ ln det A − ½(N − u) ln λ − (α + N/2)·ln(β + Q/2) + constant

and with a known noise σ, where s = σ/√λ, −½ ln det A − ½(N − u) ln λ − (α + N/2)·ln s² − (β + Q/2)/s². There λ says
what s is, and its prior is that of s around 1; in A it is at least the least regularization, however small σ is.

Samples are states of as many slice samplers (Neal, 2003), one coordinate at a time, each started where it was left at
the renewal before: no gradients, no step sizes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lapack, solve_triangular

from misspec.errors import Array
from misspec.model import LEAST_REGULARIZATION, Model
from misspec.product import ProductMatern, combined, distances, profile

# Priors are wide, and scale with the dimension: distances in the unit cube grow as √d, and so do length scales.
SCALE, OPTIONS, SCALE_SPREAD = 0.5, 1.0, 1.0  # ℓ/√d: median of a number, of a choice, standard deviation of ln ℓ
NOISE, NOISE_SPREAD = 0.01, 1.5  # λ, the noise variance in units of the signal's: the same
SHARE, SHARE_SPREAD = -1.0, 1.5  # logit of the additive share: mean (a = 0.27) and standard deviation
GAMMA = 1.0  # α = β of s²: as much as two observations, of variance 1
MEDIAN = 0.4549  # of a squared standard normal variable
JITTER = 1e-8
FIRST, AGAIN = 4, 2  # sweeps of each sampler at the first renewal, and at later ones
MOST, PART = 300, 200  # distinct points that hyperparameters are learnt from, and of more than that so many
REACH = 5.0  # widths beyond which results count logarithmically
OUTLIER = 10.0  # times the spread of the others: a result this far out does not set the scale
LEAST_WIDTH = 1e-305  # of results that differ: beyond this lie the floats without all their digits
LARGEST, EPSILON = float(np.finfo(np.float64).max), float(np.finfo(np.float64).eps)


class Scaling(NamedTuple):
    """Results as the model sees them: z = ±(y − centre)/width, larger is better; beyond REACH widths logarithmically.

    Width and centre are those of the data without outliers, so that one result of 10¹² hides no other.
    """

    sign: float = 1.0
    centre: float = 0.0
    width: float = 1.0

    @classmethod
    def of(cls, y: Array, sign: float, noise: float | None = None) -> Scaling:
        """noise: σ where it is known, and then the least width: what varies less than that has not varied."""
        power = math.frexp(float(np.abs(y).max()))[1]
        y = np.ldexp(y, -power)  # exact, and no sum overflows
        centre = float(np.median(y))
        far = np.sort(np.abs(y - centre))
        kept = len(far)
        while kept > 3 and kept > 0.9 * len(far) - 1 and far[kept - 1] > OUTLIER * _rms(far[: kept - 1]) > 0:
            kept -= 1
        inside = y[np.abs(y - centre) <= far[kept - 1]]
        middle = float(inside.mean())
        centre = math.ldexp(middle, power)
        least = max(8.0 * EPSILON * abs(centre), LEAST_WIDTH)  # rounding of the results themselves
        for some in (inside, y):  # where all but outliers are equal, these are what there is
            width = max(math.ldexp(_rms(some - middle), power), 0.0 if noise is None else noise)
            if width > least:
                return cls(sign, centre, width)
        return cls(sign, centre, max(1.0, abs(centre)))

    def to(self, y: ArrayLike) -> Array:
        # halves, since y − centre may be too large for a float; so may u, whose logarithm is not
        half = 0.5 * np.asarray(y, dtype=np.float64) - 0.5 * self.centre
        with np.errstate(over="ignore"):
            u = self.sign * half / (0.5 * self.width)
        size = np.abs(u)
        fits = np.isfinite(size)
        beyond = np.where(
            fits,
            np.log1p(np.maximum(np.where(fits, size, 0.0) - REACH, 0.0)),
            np.log(np.where(fits, 1.0, np.abs(half))) - math.log(0.5 * self.width),
        )
        return np.where(size > REACH, np.sign(u) * (REACH + beyond), u)

    def back(self, z: ArrayLike) -> Array:
        """y of z; the largest float where it is beyond all of them."""
        z = np.asarray(z, dtype=np.float64)
        beyond = np.maximum(np.abs(z) - REACH, 0.0)
        with np.errstate(over="ignore"):
            near = 0.5 * self.width * np.where(beyond > 0, REACH + np.expm1(np.minimum(beyond, 600.0)), np.abs(z))
            half = np.where(beyond > 600.0, np.exp(beyond + math.log(0.5 * self.width)), near)
            y = 0.5 * self.centre + self.sign * np.sign(z) * half
        return np.asarray(2.0 * np.clip(y, -0.5 * LARGEST, 0.5 * LARGEST))


def _rms(values: Array) -> float:
    largest = float(np.abs(values).max(initial=0.0))
    return largest * math.sqrt(float(np.mean((values / largest) ** 2))) if largest > 0 else 0.0


class Data(NamedTuple):
    """Distinct points as the kernel sees them, averages and counts, the scatter around them, and N."""

    points: Array
    averages: Array
    counts: Array
    scatter: float
    total: int

    @classmethod
    def of(cls, points: Array, y: Array) -> Data:
        unique, place = np.unique(points, axis=0, return_inverse=True)
        place = place.ravel()
        counts = np.bincount(place).astype(np.float64)
        averages = np.bincount(place, y) / counts
        return cls(unique, averages, counts, float(((y - averages[place]) ** 2).sum()), len(y))

    def part(self, rng: np.random.Generator) -> Data:
        """All of the points up to MOST, else PART of them, the best among these: for the hyperparameters."""
        if len(self.averages) <= MOST:
            return self
        best = np.argsort(-self.averages, kind="stable")
        rows = np.sort(np.append(best[: PART // 4], rng.choice(best[PART // 4 :], PART - PART // 4, replace=False)))
        share = len(rows) / len(self.averages)
        total = round(self.counts[rows].sum())
        return Data(self.points[rows], self.averages[rows], self.counts[rows], self.scatter * share, total)


class Fitted(NamedTuple):
    """At one θ: what is integrated out, and the norm of the mean function."""

    offset: float
    scale: float
    norm: float


@dataclasses.dataclass(frozen=True, eq=False)
class Hyperposterior:
    """ln p(θ | data) up to a constant. reach: the widest distance of each parameter, which length scales are relative
    to; noise: σ where it is known."""

    data: Data
    columns: Sequence[tuple[int, int]]
    reach: Array
    noise: float | None
    distances: Array = dataclasses.field(init=False)  # ‖x_j − z_j‖, (d, u, u), in units of the reach
    profiles: dict[int, tuple[float, Array]] = dataclasses.field(init=False, default_factory=dict)  # κ at the last ℓ_j

    def __post_init__(self) -> None:
        squares = distances(self.data.points, self.data.points, self.columns)
        squares /= (self.reach**2)[:, None, None]
        object.__setattr__(self, "distances", np.sqrt(squares, out=squares))

    def _profile(self, j: int, scale: float) -> Array:
        """κ of parameter j: slice sampling changes one parameter at a time, and the others stay."""
        if j not in self.profiles or self.profiles[j][0] != scale:
            self.profiles[j] = scale, profile(self.distances[j], scale)
        return self.profiles[j][1]

    @property
    def centre(self) -> Array:
        d = len(self.columns)
        noise = math.log(NOISE) if self.noise is None else 2.0 * math.log(self.noise)
        scales = [OPTIONS if stop - start > 1 else SCALE for start, stop in self.columns]
        return np.append(np.log(scales) + 0.5 * math.log(d), [noise, SHARE])

    @property
    def spread(self) -> Array:
        return np.append(np.full(len(self.columns), SCALE_SPREAD), [NOISE_SPREAD, SHARE_SPREAD])

    def __call__(self, theta: Array) -> float:
        z = (theta - self.centre) / self.spread
        if np.abs(z).max() > 12:  # beyond that exponentials overflow
            return -math.inf
        solved = self._solved(theta)
        if solved is None:
            return -math.inf
        log_det, quadratic, _, lam, _ = solved
        N, u = self.data.total, len(self.data.averages)
        value = -0.5 * float(z @ z) - 0.5 * log_det - 0.5 * (N - u) * math.log(lam)
        weight, excess = GAMMA + N / 2, GAMMA + quadratic / 2
        if self.noise is None:
            return value - weight * math.log(excess)
        log_square = self._log_square(theta)
        return value - weight * log_square - excess * math.exp(-log_square)

    def _log_square(self, theta: Array) -> float:
        """ln s², where the noise is known."""
        return 2.0 * math.log(self.noise or 1.0) - float(theta[len(self.columns)])

    def _solved(self, theta: Array) -> tuple[float, float, float, float, Any] | None:
        """ln det A, Q, m, λ and (L, L⁻¹ȳ, L⁻¹1); None where K + λ/n is not definite to rounding."""
        d, u = len(self.columns), len(self.data.averages)
        lam = max(math.exp(theta[d]), LEAST_REGULARIZATION)
        scales = np.exp(theta[:d]).tolist()
        K = combined((self._profile(j, scale) for j, scale in enumerate(scales)), share(theta))
        K[np.diag_indices(u)] += lam / self.data.counts + JITTER
        L, failed = lapack.dpotrf(K, lower=1, overwrite_a=1)
        if failed:
            return None
        sides = solve_triangular(L, np.stack([self.data.averages, np.ones(u)], axis=1), lower=True, check_finite=False)
        yy, y1, ones = (float(sides[:, i] @ sides[:, j]) for i, j in ((0, 0), (0, 1), (1, 1)))
        m = y1 / (1.0 + ones)
        log_det = 2.0 * float(np.log(np.diag(L)).sum()) + math.log1p(ones)
        return log_det, yy - y1 * m + self.data.scatter / lam, m, lam, (L, sides)

    def unexplained(self, theta: Array) -> float:
        """The share of the averages' variance that the model fails to predict from the others, beyond noise.

        By leave-one-out residuals r_i = (A⁻¹ȳ)_i/(A⁻¹)_ii; their median, so that a cliff or an outlier does not count
        as a model that is wrong everywhere.
        """
        solved, total = self._solved(theta), float(np.var(self.data.averages))
        if solved is None or not total > 0:
            return 0.0
        lam, L = solved[3], solved[4][0]
        half = solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)
        inverse = half.T @ half
        ones = inverse.sum(axis=0)
        inverse -= np.outer(ones, ones) / (1.0 + ones.sum())  # of A, whose mean is not known either
        residuals = (inverse @ self.data.averages) / np.diag(inverse)
        noise = self.fitted(theta).scale ** 2 * lam * float(np.mean(1.0 / self.data.counts))
        return max(0.0, float(np.median(residuals**2)) / MEDIAN - noise) / total

    def fitted(self, theta: Array) -> Fitted:
        """m, s and the norm of the mean at θ."""
        solved = self._solved(theta)
        if solved is None:
            raise ArithmeticError("a sampled covariance is not definite")
        _, quadratic, m, lam, (L, sides) = solved
        if self.noise is None:
            scale = math.sqrt((GAMMA + quadratic / 2) / (GAMMA + self.data.total / 2))
        else:
            scale = math.exp(0.5 * self._log_square(theta))
        weights = solve_triangular(L, sides[:, 0] - m * sides[:, 1], lower=True, trans="T", check_finite=False)
        values = (self.data.averages - m) - (lam / self.data.counts + JITTER) * weights
        return Fitted(m, scale, math.sqrt(max(0.0, float(weights @ values))))


def share(theta: Array) -> float:
    """The additive share of a θ."""
    return 1.0 / (1.0 + math.exp(-float(theta[-1])))


def start(target: Hyperposterior, count: int, rng: np.random.Generator) -> Array:
    """Where samplers begin: around the prior's centre.

    A known noise binds the amplitude, which then follows the length scales only slowly: with it they begin where some
    sweeps lead in which both are free.
    """
    if target.noise is None:
        return np.asarray(target.centre + 0.5 * target.spread * rng.standard_normal((count, len(target.centre))))
    free = dataclasses.replace(target, noise=None)
    states = renewed(free, start(free, count, rng), FIRST, rng)
    scales = np.array([free.fitted(theta).scale for theta in states])
    states[:, len(target.columns)] = 2.0 * (math.log(target.noise) - np.log(scales))
    return states


def renewed(target: Hyperposterior, states: Array, sweeps: int, rng: np.random.Generator) -> Array:
    """The samplers' states some sweeps later."""
    after = []
    for theta in states:
        value = target(theta)
        if not math.isfinite(value):  # a state of less data that has become impossible
            theta = target.centre
            value = target(theta)
        for _ in range(sweeps):
            theta, value = _sweep(target, theta, value, rng)
        after.append(theta)
    return np.array(after)


def _sweep(target: Hyperposterior, theta: Array, value: float, rng: np.random.Generator) -> tuple[Array, float]:
    """One slice sampling step in each coordinate, stepping out and shrinking (Neal, 2003, figures 3 and 5)."""
    theta = theta.copy()
    for j in rng.permutation(len(theta)).tolist():
        level, here = value + math.log(1.0 - rng.random()), float(theta[j])
        left = here - float(rng.random())
        right = left + 1.0

        def at(x: float, j: int = j) -> float:
            theta[j] = x
            return target(theta)

        # to the ends of the slice, which the target's bounds end: a limit on the steps would favour the middle
        while at(left) > level:
            left -= 1.0
        while at(right) > level:
            right += 1.0
        while True:
            x = left + (right - left) * float(rng.random())
            value = at(x)
            if value > level:
                break
            left, right = (x, right) if x < here else (left, x)
            if right - left < 1e-9:  # rounding: stay
                value = at(here)
                break
    return theta, value


def model_of(theta: Array, fitted: Fitted, columns: Sequence[tuple[int, int]], reach: Array) -> Model:
    """The model of a sample: k(x,x) = 1, the amplitude in `scale`; nothing is guaranteed, since it is fitted."""
    d = len(columns)
    lam = max(math.exp(theta[d]), LEAST_REGULARIZATION)
    kernel = ProductMatern(reach * np.exp(theta[:d]), columns, share(theta))
    bound = max(fitted.scale, fitted.norm)
    return Model(
        kernel, bound, fitted.scale * math.sqrt(lam), lam, offset=fitted.offset, scale=fitted.scale, fitted=True
    )
