"""Limits on measured quantities: a model of each, learnt as that of the objective is, and how likely all limits hold.

    P(x) = ∏ over limits of  mean_k Φ(±(bound − M_k(x))/S_k(x))     − for > and >=

M_k and S_k are mean and standard deviation of the quantity itself, without noise, by sample k of its model; the bound
is in the units of that model. Scores have ln P(x) added, and −ln(1 + exp((least − P)/0.05)) where P is to be `least`.

A query is to keep the limits with a probability of one minus the share of the latest results that may still break them,
as for failures (`feasible.py`): a search that weighs gains alone ends on the border, where every other result does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec.errors import Array
from misspec.hyperparameters import Scaling
from misspec.limits import Limit, names_of_limits
from misspec.policies.auto.average import ModelAverage, Score, Scored
from misspec.policies.auto.feasible import SHARP, level
from misspec.policies.auto.model import Learner, budget_of, models_of
from misspec.policies.core.answers import Observations, Recommendation
from misspec.policies.core.evidence import posterior_on
from misspec.policies.core.field import Field
from misspec.policies.core.points import Actions, Place

LEAST = 2  # values of a quantity before there is a model of it: one says nothing of how much it varies
KEPT = 0.9  # least probability of what is recommended: of 40 such none broke a limit, for 0.003 of the range at most
EXACT_EDGE = 0.01  # of P, over which searches for what to recommend turn: over 0.05, they stay where P is 0.96
LARGEST_RATIO = 1e6  # standard deviations between a mean and a bound: beyond, logarithms are only larger


def holding(bound: float, side: float) -> Score:
    """ln of the probability that a quantity lies on one side of a bound, averaged over the samples of its model."""

    def score(M: Array, S: Array) -> Scored:
        from scipy.special import log_ndtr  # not while misspec is imported

        u = np.clip(side * (bound - M) / S, -LARGEST_RATIO, LARGEST_RATIO)
        logs = log_ndtr(u)
        top = logs.max(axis=0)
        shares = np.exp(logs - top)
        total = shares.sum(axis=0)
        slope = np.exp(-0.5 * u * u - 0.5 * np.log(2.0 * np.pi) - logs) * shares / total  # d ln mean Φ / du
        return Scored(top + np.log(total / len(M)), -side * slope / S, -u * slope / S)

    return score


class Holding:
    """ln P, as far as there are models. parts: of each limit the posterior of its quantity, and the score."""

    def __init__(self, parts: Sequence[tuple[ModelAverage, Score]]) -> None:
        self.parts = parts

    def at(self, field: Field, actions: Actions) -> Array:
        """At actions."""
        looks = [mixture.look(field, None, actions, pending=False) for mixture, _ in self.parts]
        pairs = zip(self.parts, looks, strict=True)
        return np.asarray(np.sum([score(each.M, each.S).values for (_, score), each in pairs], axis=0))

    def __call__(self, U: Array) -> Array:
        return np.asarray(np.sum([mixture.rated(score, U, pending=False) for mixture, score in self.parts], axis=0))

    def slope(self, U: Array) -> tuple[Array, Array]:
        """ln P and its gradient."""
        slopes = (mixture.slope(score, U, pending=False) for mixture, score in self.parts)
        values, gradients = zip(*slopes, strict=True)
        return np.sum(values, axis=0), np.sum(gradients, axis=0)


class Kept(NamedTuple):
    """What scores add where P is to be `least`."""

    holding: Holding
    least: float
    sharp: float = SHARP  # of P, over which the penalty falls

    def of(self, log_p: Array) -> Array:
        """Given ln P."""
        return np.asarray(log_p - np.logaddexp(0.0, (self.least - np.exp(log_p)) / self.sharp))

    def __call__(self, U: Array) -> Array:
        return self.of(self.holding(U))

    def slope(self, U: Array) -> tuple[Array, Array]:
        """The same and its gradient."""
        log_p, gradient = self.holding.slope(U)
        p = np.exp(log_p)
        short = np.exp(-np.logaddexp(0.0, (p - self.least) / self.sharp))  # the derivative of the penalty, times sharp
        return self.of(log_p), gradient * (1.0 + p * short / self.sharp)[:, None]


class Quantities:
    """The quantities that limits are on: their values, and a posterior of each. told: where the results are, in the
    order told, which is that of the rows."""

    def __init__(self, limits: Sequence[Limit], field: Field, told: Sequence[Place]) -> None:
        self.limits, self.field, self.told = limits, field, told
        self.values: dict[str, dict[int, float]] = {name: {} for name in names_of_limits(limits)}  # by row
        self.mixtures: dict[str, ModelAverage] = {}
        self._states: dict[str, Array] = {}  # of the samplers

    def tell(self, first: int, values: Mapping[str, Sequence[float]]) -> None:
        """Values of results from a row on, NaN where they are unknown."""
        for name, column in values.items():
            new = {first + i: value for i, value in enumerate(column) if value == value}
            self.values[name] |= new
            if name in self.mixtures:
                self._feed(name, list(new))

    def _feed(self, name: str, rows: Sequence[int]) -> None:
        mixture, values = self.mixtures[name], self.values[name]
        if rows:
            x = np.array([self.told[row].x for row in rows])
            mixture.observe(x, mixture.scaling.to([values[row] for row in rows]))

    def learnt(self, of: Learner, *, again: bool) -> dict[str, dict[str, Any]]:
        """Samples of the models of all quantities with values, as in `model.py`. of: the objective; again: from where
        samplers were left."""
        found, learner = {}, Learner(of.domain, None, of.seed, exact=of.exact)
        for name, values in self.values.items():
            if len(values) >= LEAST:
                x, y = np.array([self.told[row].x for row in values]), np.array(list(values.values()))
                told = Observations(x, y, np.full(len(y), -1))
                found[name] = learner.renewal(told, 1.0, self._states.get(name) if again else None)
        return found

    def adopt(self, samples: Mapping[str, Any]) -> None:
        """Believe in these samples, given all values so far."""
        self.mixtures, self._states = {}, {name: np.array(each["states"]) for name, each in samples.items()}
        for name, each in samples.items():
            budget = budget_of(len(self.values[name]), self.field.size)
            models = models_of(each, self.field.domain)
            posteriors = [posterior_on(self.field, model, weights=False, budget=budget) for model in models]
            self.mixtures[name] = ModelAverage(posteriors, Scaling(*each["scaling"][1:]))
            self._feed(name, list(self.values[name]))

    @property
    def holding(self) -> Holding | None:
        """ln P; None while there is no model, or no limit."""
        known = [limit for limit in self.limits if limit.name in self.mixtures]
        mixtures = [self.mixtures[limit.name] for limit in known]
        scores = [
            holding(float(mixture.scaling.to(limit.bound)), limit.side)
            for limit, mixture in zip(known, mixtures, strict=True)
        ]
        return Holding(list(zip(mixtures, scores, strict=True))) if known else None

    def kept(self, least: float, sharp: float = SHARP) -> Kept | None:
        """What scores add where P is to be `least`."""
        found = self.holding
        return None if found is None else Kept(found, least, sharp)

    def probability(self, actions: Actions) -> Array | None:
        """P at actions; before there is a model, the share of the results there that keep the limits, and ½ where none
        has a value. None without limits."""
        if not self.limits:
            return None
        found = self.holding
        if found is not None:
            return np.asarray(np.exp(found.at(self.field, actions)))
        results: dict[Any, list[bool]] = {}
        known, broken = {row for values in self.values.values() for row in values}, self.broken
        for row in known:
            results.setdefault(self.told[row].key, []).append(not broken[row])
        return np.array([float(np.mean(results.get(key, 0.5))) for key in self.field.keys(actions)])

    @property
    def broken(self) -> list[bool]:
        """Of each result, whether a limit is known to be broken."""
        rows = {
            row for limit in self.limits for row, value in self.values[limit.name].items() if not limit.holds(value)
        }
        return [row in rows for row in range(len(self.told))]

    def least(self, n: int) -> float:
        """Least P of the query after n evaluations."""
        return level(self.broken, n)

    def judged(self, found: Recommendation, actions: Actions) -> Recommendation:
        """A recommendation with its probability; with a caveat where that is small. actions: the point alone."""
        probability = self.probability(actions)
        assert probability is not None
        p, caveats = float(probability[0]), list(found.caveats)
        if p < KEPT:
            limits = ", ".join(map(str, self.limits))
            caveats.append(
                f"no point is known to keep the limits ({limits}) with a probability of {KEPT:g}: recommended is the "
                f"most likely one, with {p:.2g}"
            )
        unknown = [name for name, values in self.values.items() if len(values) < LEAST]
        if unknown:
            caveats.append(f"limits on {', '.join(unknown)} are not heeded yet: it takes {LEAST} results with a value")
        return dataclasses.replace(found, probability=p, caveats=tuple(caveats))

    @property
    def counts(self) -> list[tuple[Limit, int, int]]:
        """Each limit, how many results broke it, and how many have a value."""
        known = [(limit, list(self.values[limit.name].values())) for limit in self.limits]
        return [(limit, int((~limit.holds(values)).sum()), len(values)) for limit, values in known]

    def usable(self, actions: Actions, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which of some actions are likely to keep the limits; where none is, the most likely one."""
        p = self.probability(actions)
        if p is None:
            return among
        likely = among & (p >= KEPT)
        return likely if likely.any() else among & (p == p[among].max())
