"""How Auto chooses: each rule has its share of the rounds, its score and its reason.

    n    evaluations so far: told, failed and pending. A budget b allows round n + 1 where ⌊b(n + 1)⌋ > ⌊b(n)⌋
    u    share of the results' variance that the model misses beyond noise, at most 1 (leave-one-out, at its renewal)

| rule            | rounds                                          | score                                            |
|-----------------|-------------------------------------------------|--------------------------------------------------|
| first           | until there are five results, or `first`        | distance from all others, of 16 random points    |
| confirm         | while a doubted result would be the best, or    | that point                                       |
|                 | the model's best is there; if it is the only    |                                                  |
|                 | result at its point                             |                                                  |
| limits          | while no known point is likely to keep them     | the probability that they hold                   |
| untried         | every third, while an option of a choice was    | mean + standard deviation, among what has such   |
|                 | never tried, or a number never varied           | an option or another such number                 |

For the best in the end (aim="best"), where rounds do not bring actions of their own:

| improvement     | all others                                      | expected improvement, in turn over the best mean |
|                 |                                                 | and over the best result; the latter alone where |
|                 |                                                 | nothing is noisy, the former in the horizon's    |
|                 |                                                 | last tenth                                       |
| caution         | where nothing is noisy, and improvement is next | mean + 10 standard deviations                    |
|                 | to sure to find nothing                         |                                                  |

To earn on the way (aim="earn"), and where rounds bring actions of their own:

| improvement     | 2u·n, at most n/2; of a batch all but the first | expected improvement over the best mean          |
| mean and spread | all others                                      | mean + standard deviation                        |
| caution         | 15u·√n, at most 6√n, where the choice by the    | expected improvement over the best result        |
|                 | two rules above would teach little              |                                                  |

The best result is luckier than the best mean, so that improving on it looks farther from what is known. To earn, the
worse the model predicts results that it was not told, the more rounds go to improvement, and to caution. Budgets are
functions of n and of the data alone: an Auto that was told everything by `observe` chooses as one that asked. What is
believed of pending points counts among results and means.

No point is asked while it is pending, nor one next to it or so much like it, as the model has learnt, that both would
answer one question; nor where a doubted result is the only one. A point whose value is known to 0.3 of a result's noise
is *spent*: it is not asked again while there are rivals, whose mean + 2 standard deviations lies above it. Where none
is left it is asked again, rather than ever worse points, but for √n rounds of caution. Without noise every result is
spent at once, and a choice that is next to sure not to improve on the best result leaves its round to caution.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec.errors import Array
from misspec.policies.auto.average import Beliefs, ModelAverage, Score, Scored, improvement, upper
from misspec.policies.auto.feasible import ANYWHERE, EDGE, Outcomes, allows
from misspec.policies.auto.limits import Quantities
from misspec.policies.core.field import Field, Search
from misspec.policies.core.log import Asked
from misspec.policies.core.points import Actions, Context, Round, first_alike
from misspec.search import distinct
from misspec.theory.own_bands import OwnBands
from misspec.threads import once

TRIED = 16  # random points of which the farthest from all others is the next of the first ones: a rough maximin design
GIVEN_UP = 3  # failures of an option without a result after which it is not tested any more
UNTRIED = 1 / 3  # share of the rounds that test what was never tried, while there is any: at 1/2 the rest starves
VARIED = 0.1  # range of a number's values, in units of its reach, up to which it was never varied
FAR = 1 / 2  # share of the rounds for the best in the end that look far: with all of them the best came later
ENDING = 0.1  # share of the horizon, at its end, in which none does
EAGER = 1.0  # standard deviations of "mean and spread": more would explore what a model that is right knows to be bad
IMPROVEMENT, MOST_IMPROVEMENT = 2.0, 0.5  # share of the rounds, times u, and at most: half stay with the model's best
CAUTION, MOST_CAUTION = 15.0, 6.0  # cautious rounds in units of √n, times u, and at most
LEAST_CAUTION = 1.0  # the same where the choice is a spent point, whatever u: the model may be wrong all the same
WIDE = 10.0  # standard deviations where the model expects nothing more: so many that only they count
TAUGHT, EXHAUSTED = 0.7, 0.3  # std/noise below which a result teaches little (after two results), and nothing (ten)
RIVAL = 2.0  # standard deviations within which a value may be better than one that is known
ROUNDING = 1e-9  # difference of two results, in their spread, that is one of floating point
NEGLIGIBLE = 0.01  # noise, in spreads of the results, that is too small to matter; so is an improvement by less
NEXT = 0.05  # distance to a pending point, in units of the domain: its result will tell enough of what is so near
LATEST = 32  # pending points that others may not be alike: with thousands, as many kernels per candidate would be felt
RISKED = 0.25  # least probability of keeping limits where all that is safe is known to be worse: repeats teach nothing
ALIKE = 0.97  # correlation with a pending point, as learnt: two points of a batch should not differ in trifles alone


Wanted = Callable[[Array], NDArray[np.bool_]]  # of encoded points


def _any(U: Array) -> NDArray[np.bool_]:
    return np.ones(len(U), dtype=bool)


class Found(NamedTuple):
    """The best by a rule: the offer, its row there, and the beliefs about the offer; how likely limits hold there."""

    offer: Actions
    row: int
    beliefs: Beliefs
    probability: Array | None = None

    def here(self) -> tuple[Array, Array]:
        """M and S of the row alone."""
        return self.beliefs.M[:, [self.row]], self.beliefs.S[:, [self.row]]


def choose(turn: Turn) -> tuple[str, Found]:
    """The name of the rule, and what it found."""
    if turn.quantities.limits and not turn.held(turn.known).any():
        return "limits", turn.best(constant)
    doubted = turn.to_confirm()
    if doubted is not None:
        return "confirm", doubted
    untried = turn.to_try()
    if untried is not None:
        return "untried", untried
    if turn.earns:
        return _to_earn(turn)
    found = turn.best(improvement(turn.goal))
    if turn.is_idle(found) and not turn.ending:
        return "caution", turn.best(upper(WIDE), stay=False)
    return "improvement", found


def _to_earn(turn: Turn) -> tuple[str, Found]:
    """Where every evaluation counts."""
    name, score = "mean and spread", upper(EAGER)
    if turn.least == ANYWHERE:
        name, score = "improvement", improvement(turn.best_result)
    elif turn.pending or turn.allows(lambda n: min(MOST_IMPROVEMENT, IMPROVEMENT * turn.unexplained) * n):
        name, score = "improvement", improvement(turn.best_means)
    found = turn.best(score)
    if turn.is_idle(found) or (turn.knows(found, TAUGHT) and turn.allows(turn.caution(found))):
        return "caution", turn.best(improvement(turn.best_result), stay=False)
    return name, found


def constant(M: Array, S: Array) -> Scored:
    """No preference: what is added to it decides."""
    return Scored(np.zeros(M.shape[1]), np.zeros_like(M), np.zeros_like(S))


def is_quiet(mixture: ModelAverage) -> bool:
    """Whether results have no noise to speak of."""
    return float(mixture.noises.mean()) < NEGLIGIBLE


def is_coarse(outcomes: Outcomes) -> bool:
    """Whether noise that matters may hide behind rounding: different points have equal results, and no two results
    differ by little. Two points of a symmetric function are equal too, but then others are near each other."""
    pairs = {(place.key, y) for place, y in zip(outcomes.told, outcomes.y, strict=True)}
    values = np.unique([y for _, y in pairs])
    if len(values) == len(pairs):
        return False
    gaps, spread = np.diff(values), float(np.std(outcomes.y))
    return bool(gaps[gaps > ROUNDING * spread].min(initial=np.inf) >= NEGLIGIBLE * spread)


@dataclasses.dataclass(eq=False)
class Turn:
    """One choice: what is on offer, what is believed of it, and how the evaluations before have ended."""

    field: Field
    mixture: ModelAverage
    own: OwnBands | None
    outcomes: Outcomes
    quantities: Quantities
    doubted: Sequence[int]  # results that are not believed
    actions: Round
    n: int
    unexplained: float  # u
    pending: Sequence[Asked]
    batch: int  # id of the first query of this call of `ask`
    parse: Callable[[Array], Actions]  # points in user units as actions
    aim: str
    repeats: bool  # whether a point may be asked twice
    left: NDArray[np.intp] | None  # the candidates without an evaluation, where a second one would teach nothing
    ending: bool  # whether the horizon is near

    @property
    def earns(self) -> bool:
        """Whether every evaluation counts; so they do where rounds bring actions of their own."""
        return self.aim == "earn" or self.actions is not None

    def allows(self, budget: Callable[[float], float]) -> bool:
        """Whether a budget has a round left."""
        return allows(budget, self.n)

    def caution(self, found: Found) -> Callable[[float], float]:
        """The budget of cautious rounds."""
        again = self.knows(found, EXHAUSTED) and self.outcomes.is_told(found.offer.encoded[[found.row]])
        factor = max(min(MOST_CAUTION, CAUTION * self.unexplained), LEAST_CAUTION if again else 0.0)
        return lambda n: factor * math.sqrt(n)

    # -- what there is to improve on -----------------------------------------------------------------------------

    @property
    def goal(self) -> Array | float:
        """What the best in the end improves on."""
        far = self.quiet or self.allows(lambda n: FAR * n)  # without noise more of the best is no news
        return self.best_result if far and not self.ending else self.best_means

    @once
    def known(self) -> Actions:
        """Where results are or will be; or what is on offer, a cover of it where it is to be searched."""
        if self.actions is None:
            believed = [place.x for row, place in enumerate(self.outcomes.told) if row not in self.doubted]
            believed += [asked.place.x for asked in self.pending]
            return self.parse(distinct(np.array(believed)).points)
        return self.field.spread(self.actions) if isinstance(self.actions, Context) else self.actions

    def held(self, actions: Actions) -> NDArray[np.bool_]:
        """Where the limits are likely to hold."""
        p = self.quantities.probability(actions)
        return np.ones(len(actions.points), dtype=bool) if p is None else p >= EDGE

    def counted(self, actions: Actions) -> NDArray[np.bool_]:
        """What there is to improve on: where the limits are likely to hold and, if that is anywhere, no rule is broken:
        the best of what cannot be asked is no standard for what can."""
        held = self.held(actions)
        if self.actions is not None or getattr(self.field.domain, "rules", None) is None:
            return held
        legal = held & self.field.domain.contains(actions.points)
        return legal if legal.any() else held

    @once
    def best_means(self) -> Array:
        """For each sample of the model, the largest of their means, of those that count."""
        M = self.mixture.look(self.field, self.own, self.known, pending=False).M
        return np.asarray(M[:, self.counted(self.known)].max(axis=1))

    @once
    def best_result(self) -> Array | float:
        """The best result, or what is expected of a pending point; among what is on offer, a mean that is as lucky as
        one result can be. Without noise, what is better by too little to matter is no better."""
        if self.actions is None:
            results = self.mixture.scaling.to(np.delete(self.outcomes.y, self.doubted))
            if self.quantities.limits or getattr(self.field.domain, "rules", None) is not None:
                places = self.parse(np.delete([place.x for place in self.outcomes.told], self.doubted, axis=0))
                results = results[self.counted(places)]
            if self.pending:
                waiting = self.parse(np.array([asked.place.x for asked in self.pending]))
                means = self.mixture.look(self.field, self.own, waiting, pending=False).M.mean(axis=0)
                results = np.append(results, means[self.held(waiting)])
            return float(results.max()) + (NEGLIGIBLE if self.quiet else 0.0)
        return np.asarray(self.best_means + np.maximum(self.mixture.noises, NEGLIGIBLE))

    @once
    def quiet(self) -> bool:
        """Whether results have no noise to speak of, so that one that is known already is of no use. For the best in
        the end, a list whose results may be coarse is asked as if they had."""
        return is_quiet(self.mixture) and (self.earns or not self.field.size or self.left is not None)

    # -- what is known -------------------------------------------------------------------------------------------

    def knows(self, found: Found, share: float) -> bool:
        """Whether the value is known to this share of one result's noise."""
        return bool(self._known(found.here()[1], share)[0])

    def _known(self, S: Array, share: float) -> NDArray[np.bool_]:
        matters = np.maximum(self.mixture.noises, NEGLIGIBLE)[:, None]
        return np.asarray((S / matters).mean(axis=0) < share)

    def is_idle(self, found: Found) -> bool:
        """Whether a choice is next to sure not to improve on the best result, which without noise is of no use."""
        if not self.quiet:
            return False
        return float(upper(RIVAL)(*found.here()).values[0]) < float(np.mean(self.best_result))

    def _spent(self, beliefs: Beliefs, held: NDArray[np.bool_], stay: bool) -> NDArray[np.bool_]:
        """Spent points, and what is sure to be worse than them; none where no rival is left, if it may stay. held:
        where the limits are likely to hold: what breaks them is no rival, and has none."""
        M, S, seen = beliefs
        if self.quiet or not self.repeats:
            return seen
        spent = seen & self._known(S, EXHAUSTED)
        if not spent.any() or not stay:
            return spent
        if not (spent & held).any():
            return spent
        rivals = ~spent & held & (upper(RIVAL)(M, S).values > M.mean(axis=0)[spent & held].max())
        return ~rivals if rivals.any() else np.zeros(len(spent), dtype=bool)

    def to_confirm(self) -> Found | None:
        """A doubted result, the only one at its point, that would be the best; or at whose point the model believes in
        the best. None where there is none that can be asked."""
        if self.actions is not None or not self.doubted:
            return None
        told, best = self.outcomes.told, float(np.mean(self.best_means))
        keys = [place.key for place in told] + [asked.place.key for asked in self.pending]
        failed = {place.key for place in self.outcomes.dropped}
        z = self.mixture.scaling.to(self.outcomes.y)
        hopes: dict[float, Found] = {}
        for row in self.doubted:
            place = told[row]
            listed = isinstance(place.key, int) or not self.field.size
            if keys.count(place.key) == 1 and place.key not in failed and listed:
                offer = place.only()
                found = Found(offer, 0, self.mixture.look(self.field, self.own, offer, pending=True))
                hope = max(float(z[row]), float(found.beliefs.M.mean()))
                if hope > best and bool(self.held(offer)[0] and self.field.domain.contains(place.x[None, :])[0]):
                    hopes[hope] = found
        return hopes[max(hopes)] if hopes else None

    def to_try(self) -> Found | None:
        """The best point with something that was never tried, in the rounds for that; None where there is none."""
        if self.actions is not None or not self.allows(lambda n: UNTRIED * n):
            return None
        options, fixed, values = self._untried
        if not len(options) and not len(fixed):
            return None

        def has_new(U: Array) -> NDArray[np.bool_]:
            other = np.abs(U[:, fixed] / self.outcomes.units[fixed] - values) > VARIED
            return np.asarray((U[:, options] > 0).any(axis=1) | other.any(axis=1))

        found = self.best(upper(EAGER), stay=False, wanted=has_new)
        return found if has_new(found.offer.encoded[[found.row]])[0] else None

    @once
    def _untried(self) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
        """Columns of the encoding of options that no result has, and few failures; those of numbers that hardly varied,
        and where these were."""
        tried = self.outcomes.tried([asked.place.x for asked in self.pending])
        failed = len(self.outcomes.dropped)
        options, numbers = self.outcomes.kinds
        had = tried[:, options] > 0
        failures = had[len(self.pending) : len(self.pending) + failed].sum(axis=0)
        new = options[(had.sum(axis=0) == failures) & (failures < GIVEN_UP)]
        fixed = numbers[np.ptp(tried[:, numbers], axis=0) <= VARIED]
        return new, fixed, np.asarray(np.median(tried[:, fixed], axis=0))

    @once
    def _unsure(self) -> list[Array]:
        """Points whose only results are doubted, and that are not to be confirmed: a cliff looks like an error, and
        asking there again is likely to cost a round."""
        if not self.doubted:
            return []
        told, doubted = self.outcomes.told, set(self.doubted)
        believed = {place.key for row, place in enumerate(told) if row not in doubted}
        return [told[row].x for row in self.doubted if told[row].key not in believed]

    # -- the best by a score -------------------------------------------------------------------------------------

    @once
    def least(self) -> float:
        """Least r (`feasible.py`) of what is asked."""
        return self.outcomes.least(self.n)

    def best(self, score: Score, *, stay: bool = True, wanted: Wanted = _any) -> Found:
        """The best on offer, without what is pending, spent or likely to fail, as long as anything is left.
        stay: whether a spent point may be asked again where it has no rival; wanted: points that come before others."""
        success, waiting = self.outcomes.likely(max(self.least, EDGE)), self._waiting(0)
        limits = self.quantities.kept(self.quantities.least(self.n))

        def fails(U: Array) -> NDArray[np.bool_]:
            return self.outcomes.fails(U, self.least, len(self.pending))

        def search() -> Search:
            barred = lambda U: waiting(U) | fails(U) | ~wanted(U) | self._alike(U)  # noqa: E731
            return self.mixture.search(score, self.own, self.n, barred=barred, weights=(success, limits))

        offer = self.field.offer(search, self.actions)
        beliefs = self.mixture.look(self.field, self.own, offer, pending=True)
        values = score(beliefs.M, beliefs.S).values
        if success is not None:
            values = values + success(offer.encoded)
        works, p, held = ~fails(offer.encoded), None, _any(offer.encoded)
        if limits is not None:
            log_p = limits.holding.at(self.field, offer)
            p = np.exp(log_p)
            held = p >= EDGE
            new = works & ~waiting(offer.encoded) & ~self._itself(beliefs, held)
            risked = self._risked(beliefs, p, limits.least, new)
            kept = new & (p >= limits.least) if risked is None else risked
            values, works = values + (limits.of(log_p) if risked is None else log_p), kept if kept.any() else works
        if self.actions is None:
            teaches, new = works & ~self._spent(beliefs, held, stay), ~waiting(offer.encoded)
            teaches &= ~self._itself(beliefs, held)
        else:  # what the next rounds offer is unknown: the best is asked as often as it is, but once in a batch
            teaches, new = works, ~self._waiting(self.batch)(offer.encoded)
        best = teaches & new & wanted(offer.encoded)
        order = [best & ~self._alike(offer.encoded), best, teaches & new, works & new, works, _any(offer.encoded)]
        if self.left is not None and self.actions is None:  # what failed once, before what is known
            order.insert(3, np.isin(np.arange(len(values)), self.left))
        left = next(some for some in order if some.any())
        return Found(offer, first_alike(offer, int(np.where(left, values, -np.inf).argmax())), beliefs, p)

    def _itself(self, beliefs: Beliefs, held: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The best known point, where only the best in the end counts: another result there is no improvement on it."""
        known = beliefs.seen & held
        if self.earns or not known.any():
            return np.zeros(len(known), dtype=bool)
        means = beliefs.M.mean(axis=0)
        return np.asarray(beliefs.seen & (means == means[known].max()))

    def _risked(self, beliefs: Beliefs, p: Array, least: float, new: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """Where none of the new points that keep the limits with a probability of `least` may be better than the best
        known one: those that may be, and keep them with a probability of RISKED; None if there is no need, or none."""
        if not self.held(self.known).any():
            return None
        gains = upper(RIVAL)(beliefs.M, beliefs.S).values - float(np.mean(self.best_means))
        risked = new & (p >= RISKED) & (gains > NEGLIGIBLE)
        return risked if risked.any() and not (new & (p >= least) & (gains > 0)).any() else None

    def _alike(self, U: Array) -> NDArray[np.bool_]:
        """Which points are so much like a pending one, as the model has learnt, that they would answer one question."""
        if self.actions is not None or not self.pending:
            return np.zeros(len(U), dtype=bool)
        codes = np.concatenate([asked.place.code for asked in self.pending[-LATEST:]])
        alike = np.mean([each.model.kernel(U, codes) for each in self.mixture.posteriors], axis=0)
        return np.asarray(alike.max(axis=1) > ALIKE)

    def _waiting(self, since: int) -> Callable[[Array], NDArray[np.bool_]]:
        """Which points are unsure, or pending since some query; where points differ by degrees, or next to one."""
        pending = self.outcomes.codes([asked.place.x for asked in self.pending if asked.query.id >= since])
        unsure = self.outcomes.codes(self._unsure if self.actions is None else [])
        near = 0.0 if self.field.size else NEXT
        return lambda U: (self.outcomes.distance(U, pending) <= near) | (self.outcomes.distance(U, unsure) == 0.0)
