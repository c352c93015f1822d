"""A model that is learnt: samples of its hyperparameters given the data, to be averaged over, rather than one best fit.

    y = m + s·(f(x) + √λ·noise),   f ~ GP(0, k),   k a ProductMatern (`product.py`)
    θ = (ln ℓ_1 … ln ℓ_d, ln λ, logit a)     what is sampled: length scales, noise, additive share
    m, s                                     integrated out: m ~ N(0, s²), s² ~ inverse gamma, in units of the data

Repeats enter by their averages ȳ, counts n and the scatter W around the averages: with A = K + λ·diag(1/n) + 11ᵀ and
Q = ȳᵀA⁻¹ȳ + W/λ the marginal likelihood of N results at u points is

    ln p(y | θ) = −½ ln det A − ½(N − u) ln λ − (α + N/2)·ln(β + Q/2) + constant

and with a known noise σ, where s = σ/√λ, −½ ln det A − ½(N − u) ln λ − (α + N/2)·ln s² − (β + Q/2)/s². There λ says
what s is, and its prior is that of s around 1; in A it is at least the least regularization, however small σ is.

A result with a noise of its own, g, has it beside the one that is learnt: λ + g²/s² stands for λ in its row. There s is
that of the states before, or exactly σ/√λ where σ is known. Results of one point are averaged where their g are equal.

Samples are states of as many slice samplers (Neal, 2003), one coordinate at a time, each started where it was left at
the renewal before: no gradients, no step sizes.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lapack

from misspec.errors import Array
from misspec.model import LEAST_REGULARIZATION, Model
from misspec.product import ProductMatern, distance, profile
from misspec.search import distinct
from misspec.threads import once

LOG = logging.getLogger("misspec.hyperparameters")
# Priors are wide, and scale with the dimension: distances in the unit cube grow as √d, and so do length scales.
SCALE, OPTIONS, SCALE_SPREAD = 0.5, 1.0, 1.0  # ℓ/√d: median of a number, of a choice, standard deviation of ln ℓ
NOISE, NOISE_SPREAD = 0.01, 1.5  # λ, the noise variance in units of the signal's: the same
SHARE, SHARE_SPREAD = -1.0, 1.5  # logit of the additive share: mean (a = 0.27) and standard deviation
GAMMA = 1.0  # α = β of s²: as much as two observations, of variance 1
MEDIAN = 0.4549  # of a squared standard normal variable
JITTER = 1e-8
AHEAD, FIRST = 2, 4  # samplers that the others begin from, and their sweeps until then: as far as 6 would lead each
AGAIN, EASY = 2, 75  # sweeps of a renewal with up to EASY distinct points; from twice as many on half of them
WIDTH = 6.0  # of the interval that a slice is sought in, in spreads of the prior: at 2, states mix half as fast
MOVES = 24  # of a sweep at most: of more coordinates, several move at once
MOST, PART = 300, 200  # distinct points that are all learnt from; of more ever fewer, down to PART
SILENT = 2.0  # seconds of sampling after which it is said how far it is
REACH = 5.0  # widths beyond which results count logarithmically
OUTLIER = 10.0  # times the spread of the others: a result this far out does not set the scale
LEAST_WIDTH = 1e-305  # of results that differ: beyond this lie the floats without all their digits
LARGEST_FLOAT, EPSILON = float(np.finfo(np.float64).max), float(np.finfo(np.float64).eps)


class Scaling(NamedTuple):
    """Results as the model sees them: z = (y − centre)/width; beyond REACH widths logarithmically.

    Width and centre are those of the data without outliers, so that one result of 10¹² hides no other.
    """

    centre: float = 0.0
    width: float = 1.0

    @classmethod
    def of(cls, y: Array, noise: float | None = None) -> Scaling:
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
                return cls(centre, width)
        return cls(centre, max(1.0, abs(centre)))

    def to(self, y: ArrayLike) -> Array:
        # halves, since y − centre may be too large for a float; so may u, whose logarithm is not
        half = 0.5 * np.asarray(y, dtype=np.float64) - 0.5 * self.centre
        with np.errstate(over="ignore"):
            u = half / (0.5 * self.width)
        size = np.abs(u)
        fits = np.isfinite(size)
        near = np.log1p(np.maximum(np.where(fits, size, 0.0) - REACH, 0.0))
        far = np.log(np.where(fits, 1.0, np.abs(half))) - math.log(0.5 * self.width)
        beyond = np.where(fits, near, far)
        return np.where(size > REACH, np.sign(u) * (REACH + beyond), u)

    def back(self, z: ArrayLike) -> Array:
        """y of z; the largest float where it is beyond all of them."""
        z = np.asarray(z, dtype=np.float64)
        beyond = np.maximum(np.abs(z) - REACH, 0.0)
        with np.errstate(over="ignore"):
            near = 0.5 * self.width * np.where(beyond > 0, REACH + np.expm1(np.minimum(beyond, 600.0)), np.abs(z))
            half = np.where(beyond > 600.0, np.exp(beyond + math.log(0.5 * self.width)), near)
            y = 0.5 * self.centre + np.sign(z) * half
        return np.asarray(2.0 * np.clip(y, -0.5 * LARGEST_FLOAT, 0.5 * LARGEST_FLOAT))


def _rms(values: Array) -> float:
    largest = float(np.abs(values).max(initial=0.0))
    return largest * math.sqrt(float(np.mean((values / largest) ** 2))) if largest > 0 else 0.0


class Data(NamedTuple):
    """Distinct points as the kernel sees them, averages and counts, the scatter around them, and N; own noises g² and
    the scatter of each row, where results have noises of their own."""

    points: Array
    averages: Array
    counts: Array
    scatter: float
    total: int
    own: Array | None = None
    scatters: Array | None = None

    @classmethod
    def of(cls, points: Array, y: Array, noise: Array | None = None) -> Data:
        """noise: g of each result, NaN for none; None where none has one."""
        own = None if noise is None else np.nan_to_num(noise)
        unique, _, place = distinct(points if own is None else np.column_stack([points, own]))
        counts = np.bincount(place).astype(np.float64)
        averages = np.bincount(place, y) / counts
        squares = (y - averages[place]) ** 2
        if own is None:
            return cls(unique, averages, counts, float(squares.sum()), len(y))
        scatters = np.asarray(np.bincount(place, squares), dtype=np.float64)
        return cls(unique[:, :-1], averages, counts, float(squares.sum()), len(y), unique[:, -1] ** 2, scatters)

    def part(self, rng: np.random.Generator) -> Data:
        """For the hyperparameters: all points up to MOST; of more, MOST²/u but at least PART, the best among them."""
        if len(self.averages) <= MOST:
            return self
        best, count = np.argsort(-self.averages, kind="stable"), max(PART, MOST**2 // len(self.averages))
        rows = np.sort(np.append(best[: count // 4], rng.choice(best[count // 4 :], count - count // 4, replace=False)))
        share = len(rows) / len(self.averages)
        total = round(self.counts[rows].sum())
        own, scatters = (None if each is None else each[rows] for each in (self.own, self.scatters))
        scatter = self.scatter * share
        return Data(self.points[rows], self.averages[rows], self.counts[rows], scatter, total, own, scatters)


class Fitted(NamedTuple):
    """At one θ: what is integrated out, and the norm of the mean function."""

    offset: float
    scale: float
    norm: float


@dataclasses.dataclass(frozen=True, eq=False)
class Hyperposterior:
    """ln p(θ | data) up to a constant. reach: the widest distance of each parameter, which length scales are relative
    to; noise: σ where it is known.

    Symmetric matrices are lower triangles in LAPACK's rectangular packed format: half of the numbers, and as fast.
    """

    data: Data
    columns: Sequence[tuple[int, int]]
    reach: Array
    noise: float | None
    size: float = 1.0  # s², by which own noises are taken where the noise is not known

    @once
    def kernel(self) -> Covariances:
        points, u = self.data.points, len(self.data.averages)
        packed = np.empty((len(self.columns), u * (u + 1) // 2))
        for j, at in enumerate(self.columns):
            packed[j] = _packed(distance(points, points, at) / self.reach[j])
        return Covariances(packed)

    @once
    def diagonal(self) -> Any:
        """Where packed matrices have theirs, in the order of the points."""
        u = len(self.data.averages)
        return np.argsort(_packed(np.diag(np.arange(1.0, u + 1.0))), kind="stable")[-u:]

    @once
    def centre(self) -> Array:
        d = len(self.columns)
        noise = math.log(NOISE) if self.noise is None else 2.0 * math.log(self.noise)
        scales = [OPTIONS if stop - start > 1 else SCALE for start, stop in self.columns]
        return np.append(np.log(scales) + 0.5 * math.log(d), [noise, SHARE])

    @once
    def spread(self) -> Array:
        return np.append(np.full(len(self.columns), SCALE_SPREAD), [NOISE_SPREAD, SHARE_SPREAD])

    def __call__(self, theta: Array) -> float:
        z = (theta - self.centre) / self.spread
        if np.abs(z).max() > 12:  # beyond that exponentials overflow
            return -math.inf
        solved = self._solved(theta)
        if solved is None:
            return -math.inf
        N, u = self.data.total, len(self.data.averages)
        value = -0.5 * float(z @ z) - 0.5 * solved.log_det
        if self.data.own is None:
            value -= 0.5 * (N - u) * math.log(solved.lam)
        else:
            value -= 0.5 * float((self.data.counts - 1.0) @ np.log(solved.noise))
        weight, excess = GAMMA + N / 2, GAMMA + solved.quadratic / 2
        if self.noise is None:
            return value - weight * math.log(excess)
        log_square = self._log_square(theta)
        return value - weight * log_square - excess * math.exp(-log_square)

    def _log_square(self, theta: Array) -> float:
        """ln s², where the noise is known."""
        return 2.0 * math.log(self.noise or 1.0) - float(theta[len(self.columns)])

    def _solved(self, theta: Array) -> _Solved | None:
        """None where K + λ/n is not definite to rounding."""
        d, u = len(self.columns), len(self.data.averages)
        lam = max(math.exp(theta[d]), LEAST_REGULARIZATION)
        A = self.kernel(np.exp(theta[:d]).tolist(), additive_share(theta))
        noise: Any = lam
        if self.data.own is not None:
            noise = lam + self.data.own / (self.size if self.noise is None else self.noise**2 / lam)
        A[self.diagonal] += noise / self.data.counts + JITTER
        L, failed = lapack.dpftrf(u, A, uplo="L", overwrite_a=1)
        if failed:
            return None
        sides = np.ones((u, 2), order="F")
        sides[:, 0] = self.data.averages
        sides = lapack.dtfsm(1.0, L, sides, uplo="L", overwrite_b=1)
        (yy, y1), (_, ones) = (sides.T @ sides).tolist()
        m = y1 / (1.0 + ones)
        log_det = 2.0 * float(np.log(L[self.diagonal]).sum()) + math.log1p(ones)
        scatter = self.data.scatter / lam if self.data.own is None else float((self.data.scatters / noise).sum())
        return _Solved(log_det, yy - y1 * m + scatter, m, lam, noise, L, sides)

    def unexplained(self, theta: Array) -> float:
        """The share of the averages' variance that the model fails to predict from the others, beyond noise.

        By leave-one-out residuals r_i = (A⁻¹ȳ)_i/(A⁻¹)_ii; their median, so that a cliff or an outlier does not count
        as a model that is wrong everywhere.
        """
        solved, total = self._solved(theta), float(np.var(self.data.averages))
        if solved is None or not total > 0:
            return 0.0
        u, scale = len(self.data.averages), self.fitted(theta, solved).scale
        ones = lapack.dtfsm(1.0, solved.L, solved.sides, uplo="L", trans="T")  # (K + λ/n)⁻¹ of ȳ and of 1
        packed, _ = lapack.dpftri(u, solved.L, uplo="L", overwrite_a=1)
        share = ones[:, 1] / (1.0 + ones[:, 1].sum())  # of A, whose mean is not known either
        residuals = (ones[:, 0] - share * ones[:, 0].sum()) / (packed[self.diagonal] - share * ones[:, 1])
        noise = scale**2 * float(np.mean(solved.noise / self.data.counts))
        return max(0.0, float(np.median(residuals**2)) / MEDIAN - noise) / total

    def fitted(self, theta: Array, solved: _Solved | None = None) -> Fitted:
        """m, s and the norm of the mean at θ."""
        solved = solved or self._solved(theta)
        if solved is None:
            raise ArithmeticError("a sampled covariance is not definite")
        _, quadratic, m, _, noise, L, sides = solved
        if self.noise is None:
            scale = math.sqrt((GAMMA + quadratic / 2) / (GAMMA + self.data.total / 2))
        else:
            scale = math.exp(0.5 * self._log_square(theta))
        weights = lapack.dtfsm(1.0, L, (sides[:, 0] - m * sides[:, 1])[:, None], uplo="L", trans="T")[:, 0]
        values = (self.data.averages - m) - (noise / self.data.counts + JITTER) * weights
        return Fitted(m, scale, math.sqrt(max(0.0, float(weights @ values))))


class _Solved(NamedTuple):
    """At one θ: ln det A, Q, m and λ, by itself and of each row; L of K + λ/n, packed, L⁻¹ȳ and L⁻¹1."""

    log_det: float
    quadratic: float
    m: float
    lam: float
    noise: Any
    L: Array
    sides: Array


class Covariances:
    """k from distances of each parameter, (d, pairs), for one θ after another that differ in few length scales.

    κ of all parameters is kept, with the product and the sum over those that did not move last time: while only one
    moves, an evaluation costs one exponential per pair, however many parameters there are.
    """

    def __init__(self, distances: Array) -> None:
        self.distances, self.profiles = distances, np.zeros_like(distances)
        self._scales = [math.nan] * len(distances)
        self._moving: list[int] = []
        self._product, self._sum, self._total, self._work = (np.zeros(distances.shape[1]) for _ in range(4))

    def __call__(self, scales: list[float], additive: float) -> Array:
        """k, in an array of its own."""
        moved = [j for j, (new, old) in enumerate(zip(scales, self._scales, strict=True)) if new != old]
        if moved and moved != self._moving:
            self._hold(moved)
        for j in moved:
            profile(self.distances[j], scales[j], out=self.profiles[j], work=self._work)
        self._scales = scales
        np.copyto(self._total, self._sum)
        values = self._product.copy()
        for j in self._moving:
            values *= self.profiles[j]
            self._total += self.profiles[j]
        values *= 1.0 - additive
        values += np.multiply(self._total, additive / len(scales), out=self._work)
        return values

    def _hold(self, moving: list[int]) -> None:
        """Product and sum over the parameters that stay."""
        self._moving = moving
        self._product.fill(1.0)
        for j in set(range(len(self.profiles))) - set(moving):
            self._product *= self.profiles[j]
        if len(moving) == len(self.profiles):
            self._sum.fill(0.0)
        else:  # the rounding of these differences lasts until all move
            np.copyto(self._sum, self._total)
            for j in moving:
                self._sum -= self.profiles[j]


def _packed(A: Array) -> Array:
    """The lower triangle of a symmetric matrix."""
    return np.asarray(lapack.dtrttf(A, uplo="L")[0])


def additive_share(theta: Array) -> float:
    """The additive share of a θ."""
    return 1.0 / (1.0 + math.exp(-float(theta[-1])))


def start(target: Hyperposterior, count: int, rng: np.random.Generator) -> Array:
    """Where samplers begin: where FIRST sweeps lead a few of them from around the prior's centre.

    A known noise binds the amplitude, which then follows the length scales only slowly: with it they begin where some
    sweeps lead in which both are free.
    """
    if target.noise is None:
        states = target.centre + 0.5 * target.spread * rng.standard_normal((min(count, AHEAD), len(target.centre)))
        return np.resize(renewed(target, states, FIRST, rng), (count, len(target.centre)))
    free = dataclasses.replace(target, noise=None)
    states = renewed(free, start(free, count, rng), sweeps(free), rng)
    scales = np.array([free.fitted(theta).scale for theta in states])
    states[:, len(target.columns)] = 2.0 * (math.log(target.noise) - np.log(scales))
    return states


def sweeps(target: Hyperposterior) -> float:
    """How many a renewal takes: with many points a sweep costs more, and one is enough to follow a seventh more."""
    return AGAIN * min(1.0, max(0.5, EASY / len(target.data.averages)))


def renewed(target: Hyperposterior, states: Array, sweeps: float, rng: np.random.Generator) -> Array:
    """The samplers' states some sweeps later; where that is not a whole number, some have one more than others."""
    after: list[Array] = []
    began, first = time.monotonic(), float(rng.random())  # first: which of them
    for i, theta in enumerate(states):
        value = target(theta)
        if not math.isfinite(value):  # a state of less data that has become impossible
            theta = target.centre
            value = target(theta)
        for _ in range(math.floor(first + sweeps * (i + 1)) - math.floor(first + sweeps * i)):
            theta, value = _sweep(target, theta, value, rng)
        after.append(theta)
        if time.monotonic() - began > SILENT and len(after) < len(states):
            LOG.info("learning the model: %d of %d samples, %.0f s", i + 1, len(states), time.monotonic() - began)
    return np.array(after)


def _sweep(target: Hyperposterior, theta: Array, value: float, rng: np.random.Generator) -> tuple[Array, float]:
    """One slice sampling step in each coordinate: an interval about the state, shrunk until it hits the slice (Neal,
    2003, figure 5). Of many coordinates some move together, on an ellipse (Murray, Adams and MacKay, 2010)."""
    theta = theta.copy()
    for group in np.array_split(rng.permutation(len(theta)), min(len(theta), MOVES)):
        here, middle, spread = theta[group], target.centre[group], target.spread[group]
        ellipse = rng.standard_normal(len(group)) * spread if len(group) > 1 else None
        width = WIDTH * float(spread[0]) if ellipse is None else 2.0 * math.pi
        level = value - (0.0 if ellipse is None else _log_prior(here, middle, spread)) + math.log(1.0 - rng.random())
        left = -width * float(rng.random())
        right = left + width
        while True:
            step = left + (right - left) * float(rng.random())
            if ellipse is None:
                theta[group] = here + step
                value, prior = target(theta), 0.0
            else:
                theta[group] = middle + math.cos(step) * (here - middle) + math.sin(step) * ellipse
                value, prior = target(theta), _log_prior(theta[group], middle, spread)
            if value - prior > level:
                break
            left, right = (step, right) if step < 0.0 else (left, step)
            if right - left < 1e-9:  # rounding: stay
                theta[group] = here
                value = target(theta)
                break
    return theta, value


def _log_prior(theta: Array, middle: Array, spread: Array) -> float:
    return -0.5 * float((((theta - middle) / spread) ** 2).sum())


def sampled_model(theta: Array, fitted: Fitted, columns: Sequence[tuple[int, int]], reach: Array) -> Model:
    """The model of a sample: k(x,x) = 1, the amplitude in `scale`; nothing is guaranteed, since it is fitted."""
    d = len(columns)
    lam = max(math.exp(theta[d]), LEAST_REGULARIZATION)
    kernel = ProductMatern(reach * np.exp(theta[:d]), columns, additive_share(theta))
    bound = max(fitted.scale, fitted.norm)
    return Model(
        kernel,
        norm_bound=bound,
        noise=fitted.scale * math.sqrt(lam),
        regularization=lam,
        offset=fitted.offset,
        scale=fitted.scale,
        fitted=True,
    )
