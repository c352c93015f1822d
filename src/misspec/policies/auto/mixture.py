"""Several posteriors of the same data, averaged: what a policy that learns its model believes.

M, S     means and standard deviations, one row per sample of the model, in the model's units      (samples, n)
score    of points, from M and S, with its derivatives by them: a rule to choose by
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
from misspec.policies.auto.feasible import Likely
from misspec.policies.core.field import Field, Search
from misspec.policies.core.points import Actions
from misspec.posterior import Posterior
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


Rule = Callable[[Array, Array], Scored]


def moments(M: Array, S: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of the mixture: its variance is that within samples and that between them."""
    return M.mean(axis=0), np.sqrt((S * S).mean(axis=0) + M.var(axis=0))


def upper(multiplier: float) -> Rule:
    """mean + multiplier·std of the mixture."""

    def rule(M: Array, S: Array) -> Scored:
        (mean, std), n = moments(M, S), len(M)
        return Scored(mean + multiplier * std, (1.0 + multiplier * (M - mean) / std) / n, multiplier * S / std / n)

    return rule


def improvement(best: Array | float) -> Rule:
    """ln of the expected improvement over `best` (one for all samples, or one each), averaged over the samples.

    With u = (mean − best)/std it is ln mean_k std·h(u), h(u) = φ(u) + u·Φ(u), by logarithms: points that are far below
    the best differ in it as others do, however small it is.
    """

    def rule(M: Array, S: Array) -> Scored:
        u = (M - np.reshape(best, (-1, 1))) / S
        log_h, below, density = _log_improvement(u)
        log_gains = np.log(S) + log_h
        top = log_gains.max(axis=0)
        shares = np.exp(log_gains - top)
        total = shares.sum(axis=0)
        shares /= total
        return Scored(top + np.log(total / len(M)), shares * below / S, shares * density / S)

    return rule


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


class Mixture:
    """The average of posteriors, in the user's units and sign. `at`, `mean` and `std` are those of one posterior."""

    def __init__(self, posteriors: Sequence[Posterior], scaling: Scaling) -> None:
        self.posteriors = list(posteriors)
        self.scaling = scaling

    def __repr__(self) -> str:
        return f"Mixture({len(self.posteriors)} samples of the model, t={self.t})"

    @property
    def t(self) -> int:
        return self.posteriors[0].t

    @property
    def information(self) -> float:
        """Of the data, on average."""
        return float(np.mean([each.information for each in self.posteriors]))

    def at(self, X: Any, *, pending: bool = False) -> tuple[Array, Array]:
        """Mean and standard deviation at points in user units."""
        pairs = [each.at(X, pending=pending) for each in self.posteriors]
        M = np.array([mean for mean, _ in pairs])
        S = np.array([each.model.scale * std for each, (_, std) in zip(self.posteriors, pairs, strict=True)])
        return self.reported(M, S)

    @property
    def mean(self) -> Array:
        """Over the candidates of a list."""
        return self._listed()[0]

    @property
    def std(self) -> Array:
        return self._listed()[1]

    def _listed(self) -> tuple[Array, Array]:
        tracked: Any = self.posteriors
        return self.reported(
            np.array([each.mean for each in tracked]), np.array([each.model.scale * each.std for each in tracked])
        )

    def reported(self, M: Array, S: Array) -> tuple[Array, Array]:
        """Mean and standard deviation in the user's units."""
        mean, std = moments(M, S)
        low, high = (self.back(mean + sign * std) for sign in (-1.0, 1.0))
        return self.back(mean), np.abs(0.5 * high - 0.5 * low)

    def back(self, z: ArrayLike) -> Array:
        """What is believed, in the user's units: not much farther out than any result, where the scale is logarithmic
        and a standard deviation more would be orders of magnitude."""
        results = self.posteriors[0].averages
        most = max(REACH, float(np.abs(results).max(initial=0.0))) + BEYOND
        return self.scaling.back(np.clip(z, -most, most))

    # -- for choosing: in the model's units ------------------------------------------------------------------

    def look(self, field: Field, own: OwnBands | None, actions: Actions, *, pending: bool) -> tuple[Array, Array]:
        """M and S at actions, the means within the own bands: what was seen at a point no model talks away."""
        found = [field.look(each, own, actions, pending=pending) for each in self.posteriors]
        M = np.array([each.mean for each in found])
        S = np.array([
            p.model.scale * np.sqrt(np.maximum(each.variance, LEAST**2))
            for p, each in zip(self.posteriors, found, strict=True)
        ])  # fmt: skip
        if own is not None:
            M = np.clip(M, found[0].own_lower, found[0].own_upper)
        return M, S

    def search(
        self,
        rule: Rule,
        own: OwnBands | None,
        turn: int,
        *,
        pending: bool = True,
        barred: Callable[[Array], NDArray[np.bool_]] | None = None,
        success: Likely | None = None,
    ) -> Search:
        """The search for the best score where there is no list of candidates.

        barred: which points are not wanted; success: whose ln P is added to the score.
        """

        def score(U: Array, points: Array) -> Array:
            pairs = [each.at(points, pending=pending) for each in self.posteriors]
            values = rule(*self._stacked(pairs)).values
            if success is not None:
                values = values + success(U)
            barring = np.zeros(len(U), dtype=bool) if barred is None else barred(U)
            return values if barring.all() else np.where(barring, -np.inf, values)

        def slope(U: Array) -> tuple[Array, Array]:
            here = [each.local(U, pending=pending) for each in self.posteriors]
            stds = [np.sqrt(np.maximum(each.variance, LEAST**2)) for each in here]
            M, S = self._stacked([(each.mean, std) for each, std in zip(here, stds, strict=True)])
            scored = rule(M, S)
            gradient = np.zeros_like(U)
            for k, (each, std) in enumerate(zip(here, stds, strict=True)):
                by_variance = scored.by_std[k] * self.posteriors[k].model.scale / (2.0 * std)
                gradient += scored.by_mean[k][:, None] * each.dmean + by_variance[:, None] * each.dvariance
            if success is None:
                return scored.values, gradient
            likely, by_point = success.slope(U)
            return scored.values + likely, gradient + by_point

        # looking at a point costs products and exponentials: fewer points where these are many
        rank = max(each.rank for each in self.posteriors)
        cost = rank * (rank / PROFILE + self.posteriors[0].domain.dimension)
        halvings = max(0, math.ceil(math.log2(max(cost, 1.0) / EASY)))  # Sobol' points come in powers of two
        cover = max(LEAST_COVER, EFFORT.cover >> halvings)
        effort = EFFORT._replace(cover=cover)
        return Search(self.posteriors[0], own, score, slope, turn, snap=False, effort=effort)

    def _stacked(self, pairs: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
        M = np.array([mean for mean, _ in pairs])
        scales = [each.model.scale for each in self.posteriors]
        return M, np.array([s * np.maximum(std, LEAST) for s, (_, std) in zip(scales, pairs, strict=True)])
