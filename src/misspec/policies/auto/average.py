"""Several posteriors of the same data, averaged: what a policy that learns its model believes.

M, S     means and standard deviations, one row per sample of the model, in the model's units      (samples, n)
score    of points, from M and S, with its derivatives by them
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import search
from misspec.errors import Array
from misspec.hyperparameters import REACH, Scaling
from misspec.policies.auto.feasible import Weight
from misspec.policies.core.field import Field, Search
from misspec.policies.core.points import Actions, Candidates
from misspec.posterior import Posterior
from misspec.posterior.formulas import Glance, Local
from misspec.theory.own_bands import OwnBands

EFFORT = search.Effort(starts=4, together=10, alone=20)  # each step asks all samples
EASY, LEAST_COVER = 1500, 128  # what a point of a cover may cost for it to have them all, and how many it has at least
PROFILE = 40  # features per parameter: an exponential costs as much as so many products
FAR = 1e3  # standard deviations
BEYOND = 3.0  # what is believed at most, beyond the farthest result, in the model's units
LEAST = 1e-12  # standard deviation, relative to the prior's


class Scored(NamedTuple):
    """Scores, and their derivatives by the means and the standard deviations."""

    values: Array  # (n,)
    by_mean: Array  # (samples, n)
    by_std: Array


Score = Callable[[Array, Array], Scored]


class Beliefs(NamedTuple):
    """M and S at some points, and which of them have results of their own."""

    M: Array
    S: Array
    seen: NDArray[np.bool_]


def moments(M: Array, S: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of the mixture: its variance is that within samples and that between them."""
    return M.mean(axis=0), np.sqrt((S * S).mean(axis=0) + M.var(axis=0))


def upper(multiplier: float) -> Score:
    """mean + multiplier·std of the mixture."""

    def score(M: Array, S: Array) -> Scored:
        (mean, std), n = moments(M, S), len(M)
        return Scored(mean + multiplier * std, (1.0 + multiplier * (M - mean) / std) / n, multiplier * S / std / n)

    return score


def improvement(best: Array | float) -> Score:
    """ln of the expected improvement over `best` (one for all samples, or one each), averaged over the samples.

    With u = (mean − best)/std it is ln mean_k std·h(u), h(u) = φ(u) + u·Φ(u), by logarithms: points that are far below
    the best differ in it as others do, however small it is.
    """

    def score(M: Array, S: Array) -> Scored:
        u = (M - np.reshape(best, (-1, 1))) / S
        log_h, below, density = _log_improvement(u)
        log_gains = np.log(S) + log_h
        top = log_gains.max(axis=0)
        shares = np.exp(log_gains - top)
        total = shares.sum(axis=0)
        shares /= total
        return Scored(top + np.log(total / len(M)), shares * below / S, shares * density / S)

    return score


def _log_improvement(u: Array) -> tuple[Array, Array, Array]:
    """ln h(u), Φ(u)/h(u) and φ(u)/h(u), h = φ + u·Φ, without underflow."""
    from scipy.special import erfcx, ndtr  # not while misspec is imported

    root = math.sqrt(2.0 * math.pi)
    low = np.minimum(u, 0.0)  # there by h/φ = 1 + u·Φ/φ, and by its expansion where that cancels
    ratio = math.sqrt(math.pi / 2.0) * erfcx(-low / math.sqrt(2.0))
    far = 1.0 / np.minimum(low, -FAR) ** 2
    over = np.where(low < -FAR, far * (1.0 - 3.0 * far), 1.0 + low * ratio)
    high = np.maximum(u, 0.0)
    density, below = np.exp(-0.5 * high * high) / root, ndtr(high)
    h = density + high * below
    log_h = np.where(u > 0, np.log(h), np.log(over) - 0.5 * low * low - math.log(root))
    return log_h, np.where(u > 0, below / h, ratio / over), np.where(u > 0, density / h, 1.0 / over)


class ModelAverage:
    """The average of posteriors, in units of the y that it is fed. `at`, `mean` and `std` are those of one posterior.

    It is fed as one posterior is, so that a point is encoded once for all of them.
    """

    def __init__(self, posteriors: Sequence[Posterior], scaling: Scaling) -> None:
        self.posteriors = list(posteriors)
        self.scaling = scaling
        self.noises = np.array([each.model.noise for each in posteriors])
        self._scales = np.array([[each.model.scale] for each in posteriors])

    def __repr__(self) -> str:
        return f"ModelAverage({len(self.posteriors)} samples of the model, t={self.t})"

    @property
    def t(self) -> int:
        return self.posteriors[0].t

    @property
    def information(self) -> float:
        """Of the data, on average."""
        return float(np.mean([each.information for each in self.posteriors]))

    def at(self, X: Any, *, pending: bool = False) -> tuple[Array, Array]:
        """Mean and standard deviation at points in user units."""
        encoded = self.posteriors[0].domain.encode(X)
        here = [each.look(encoded, pending=pending) for each in self.posteriors]
        stds = np.sqrt(np.array([each.variance for each in here]))
        return self.reported(np.array([each.mean for each in here]), self._scales * stds)

    @property
    def mean(self) -> Array:
        """Over the candidates of a list."""
        return self._listed()[0]

    @property
    def std(self) -> Array:
        return self._listed()[1]

    def _listed(self) -> tuple[Array, Array]:
        tracked: Any = self.posteriors
        M, stds = np.array([each.mean for each in tracked]), np.array([each.std for each in tracked])
        return self.reported(M, self._scales * stds)

    def reported(self, M: Array, S: Array) -> tuple[Array, Array]:
        """Mean and standard deviation in the user's units."""
        mean, std = moments(M, S)
        low, high = (self.back(mean + sign * std) for sign in (-1.0, 1.0))
        return self.back(mean), np.abs(0.5 * high - 0.5 * low)

    def back(self, z: ArrayLike) -> Array:
        """Beliefs in the user's units: not much farther out than any result, where the scale is logarithmic and a
        standard deviation more would be orders of magnitude."""
        results = self.posteriors[0].averages
        most = max(REACH, float(np.abs(results).max(initial=0.0))) + BEYOND
        return self.scaling.back(np.clip(z, -most, most))

    # -- feeding, as a field does: points that were checked before, as the kernel sees them ----------------------

    def add(self, encoded: Array, y: float, *, expected: bool = False, noise: float | None = None) -> None:
        """One result; expected: the point counts as pending. noise: its own, beside that of the models."""
        for each in self.posteriors:
            beside = None if noise is None else math.hypot(each.model.noise, noise)
            each.add(encoded, y, expected=expected, noise=beside)

    def expect(self, encoded: Array) -> None:
        """A pending point."""
        for each in self.posteriors:
            each.expect(encoded)

    def release(self, encoded: Array) -> None:
        """A pending point that has no result."""
        for each in self.posteriors:
            each.release(encoded)

    def observe(self, X: ArrayLike, y: ArrayLike, *, noise: ArrayLike | None = None) -> None:
        """Results at the rows of X (user units)."""
        for each in self.posteriors:
            each.observe(X, y, noise=None if noise is None else np.hypot(each.model.noise, noise))

    # -- for choosing: in the model's units ------------------------------------------------------------------

    def look(self, field: Field, own: OwnBands | None, actions: Actions, *, pending: bool) -> Beliefs:
        """M and S at actions, the means within the own bands: own results override the model."""
        first, *others = self.posteriors
        looks = [field.look(first, own, actions, pending=pending)]
        M, S = self._stacked(looks + [field.look(each, None, actions, pending=pending) for each in others])
        low, high = looks[0].own or (None, None)
        if low is None or high is None:
            return Beliefs(M, S, np.zeros(M.shape[1], dtype=bool))
        return Beliefs(np.clip(M, low, high), S, np.isfinite(high))

    def surprise(self, beliefs: Beliefs, z: Array, noise: Array | float) -> Array:
        """Between results, in the model's units, and their predictions, in standard deviations; noise: their own."""
        mean, std = moments(beliefs.M, beliefs.S)
        return np.asarray(np.abs(z - mean) / np.sqrt(std**2 + np.mean(self.noises**2) + noise**2))

    def search(
        self,
        score: Score,
        own: OwnBands | None,
        turn: int,
        *,
        pending: bool = True,
        barred: Callable[[Array], NDArray[np.bool_]] | None = None,
        weights: Sequence[Weight | None] = (),
    ) -> Search:
        """The search for the best score where there is no list of candidates. barred: which points are not wanted;
        weights: what is added to the score."""
        added = [each for each in weights if each is not None]

        def scored(U: Array, _: Array) -> Array:
            values = self.rated(score, U, pending=pending) + sum(each(U) for each in added)
            barring = np.zeros(len(U), dtype=bool) if barred is None else barred(U)
            return values if barring.all() else np.where(barring, -np.inf, values)

        def slope(U: Array) -> tuple[Array, Array]:
            values, gradient = self.slope(score, U, pending=pending)
            more = [each.slope(U) for each in added]
            return values + sum(value for value, _ in more), gradient + sum(by_point for _, by_point in more)

        # looking at a point costs products and exponentials: fewer points where these are many
        rank = max(each.rank for each in self.posteriors)
        cost = rank * (rank / PROFILE + self.posteriors[0].domain.dimension)
        halvings = max(0, math.ceil(math.log2(max(cost, 1.0) / EASY)))  # Sobol' points come in powers of two
        effort = EFFORT._replace(cover=max(LEAST_COVER, EFFORT.cover >> halvings))
        return Search(self.posteriors[0], own, scored, slope, turn, snap=False, effort=effort)

    def rated(self, score: Score, U: Array, *, pending: bool) -> Array:
        """A score of points as the kernel sees them."""
        return score(*self._stacked([each.look(U, pending=pending) for each in self.posteriors])).values

    def slope(self, score: Score, U: Array, *, pending: bool) -> tuple[Array, Array]:
        """The same with its gradient."""
        each = [posterior.local(U, pending=pending) for posterior in self.posteriors]
        here = Local(*(np.array(part) for part in zip(*each, strict=True)))
        stds = np.sqrt(np.maximum(here.variance, LEAST**2))
        values, by_mean, by_std = score(here.mean, self._scales * stds)
        by_variance = by_std * self._scales / (2.0 * stds)
        return values, (by_mean[:, :, None] * here.dmean + by_variance[:, :, None] * here.dvariance).sum(axis=0)

    def _stacked(self, looks: Sequence[Candidates] | Sequence[Glance]) -> tuple[Array, Array]:
        """M and S, of a look of each posterior."""
        variances = np.array([each.variance for each in looks])
        return np.array([each.mean for each in looks]), self._scales * np.sqrt(np.maximum(variances, LEAST**2))
