"""Insured UCB: optimism that learns how wrong its model is, and spends a little on what the model has written off.

*Eager rounds* maximise mean + 2 standard deviations of f* = f̃ + m, in which the size of the misfit m is learnt
(`posterior/layered.py`), within the own bands of what was observed. That is cheap and quick, and can be fooled: a point
that the model undervalues, and that is never tried, gives no sign. So up to s(t) = min{T^{2/3}, t/3} rounds are
*tests*, T the horizon, or t where none is known: what is found early pays for longer.

1. a point whose own results leave hope: their average plus two standard errors lies above all means. The one with the
   most hope for what it is expected to lose (every third test at most);
2. else, of the points tried least, the one that the model likes best: the one for which the model would have to be
   wrong by the least. Points whose own band lies below that of another are out.

A test is made only if what it and all tests before it were expected to lose, each in units of the range of means on
offer at its time, is at most s(t) times a two-hundredth and 0.13 of the misfit that shows: insurance is cheap where
nothing is wrong, and is raised where something is. A point that the model undervalues is found the sooner the less
wrong the model has to be about it; own evidence does the rest. Ranges count as B/4 at least: differences between the
means of points that are all alike are noise.

The shares were chosen on the part of `benchmarks/regret.py` that was for choosing.

What is proved (`theory.insured_bound`, which says why): on N candidates, whatever the truth, regret is at most of order
T^{2/3}√(N ln T). What makes the policy quick is not proved.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from misspec.domains import Domain
from misspec.errors import Array, flag, number, whole
from misspec.model import Model
from misspec.policies.core.answers import Decision
from misspec.policies.core.field import SAME, Search
from misspec.policies.core.log import Asked
from misspec.policies.core.points import Actions, Round, first_alike, nearest_point
from misspec.policies.core.registry import Choosing
from misspec.policies.ec_gp_ucb import UpperConfidence, decision
from misspec.posterior.layered import Known, Layered
from misspec.theory.bounds import ALLOWANCE, tests_allowed
from misspec.theory.own_bands import Key

EAGER = 2.0  # standard deviations
SEEN = 0.13  # of the misfit that shows, times s(t): what tests may lose beside a share of the range
NOISY = 1.5  # times the model's noise: more than that is worth a caveat
HOPEFUL = 3  # one of so many tests may be for a point's own results
CELLS = 256  # into which tests divide a domain that is searched
CHEAP = 0.02  # of the range: what a test loses counts for that more where hope is weighed against it


class InsuredUCB(UpperConfidence):
    """x_t maximises mean + 2 standard deviations of f*, the misfit learnt; some rounds test what the model wrote off.

    The policy to use where kernel, B and σ are known roughly, and ε is not: it has no ε.

    horizon: T, results in all, if that is known: tests are then made early. More rounds can be asked for.
    premium: a factor on what tests may lose; 0 for no insurance. Where points are searched for, tests are of the best
    point of the cells that were tried least; at a context all rounds are eager. Results far from the model's offset
    (many B) mislead it, as they do every policy: set the offset. width: of the bands that `band` and `recommend`
    report, which are grounded and hold for ε = 0. budget, resolution, delays: as for GPUCB.

    To read: `misfit_size` (0 where no misfit shows) and `learnt_noise`; `tests` (rounds that were tests) and `paid`
    (what these were expected to lose, in units of the range).
    """

    counters = ("tests", "paid", "_again", "_failed")

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        horizon: int | None = None,
        premium: float = 1.0,
        **settings: Unpack[Choosing],
    ) -> None:
        super().__init__(domain, model, grounded=True, **settings)
        self.theorem = ""
        self.horizon = None if horizon is None else whole("horizon", horizon, at_least=1)
        self.premium = number("premium", premium, at_least=0)
        self.layered = Layered(self.posterior_in_use)
        self._evidence.layers.append(self.layered)
        self.tests = 0
        self.paid = 0.0
        self._again = 0  # tests of hopeful points
        self._failed: dict[Key, int] = {}  # tests that were dropped, by their points; the first is forgiven

    def choose(self, actions: Round) -> Decision:
        offer = self.field.offer(self._search, actions)
        found, budget = len(offer.points), tests_allowed(self.t + 1, self.horizon)
        searched = self.field.searched and actions is None
        testing = self.premium and (searched or self.field.size or isinstance(actions, Actions))
        testing = testing and self.tests + 1 <= budget
        if testing and searched:
            offer = self._covered(offer)
        known, lower, upper = self._look(offer)
        std = np.sqrt(known.variance)
        score = np.clip(known.mean + EAGER * std, lower, upper)
        row, details = int(score[:found].argmax()), {}
        if testing:
            best, extent = self._scale(known)
            test, again = self._test(known, row, lower, upper, offer, searched)
            loss = (best - float(known.mean[test])) / extent
            allowance = self.premium * budget * (ALLOWANCE + SEEN * self.misfit_size / extent)
            if test != row and self.paid + loss <= allowance:  # in units of the range of means on offer
                row, details = test, {"test": loss, "again": again}
        row = first_alike(offer, row)
        reasons = {"mean": float(known.mean[row]), "std": float(std[row]), "upper": float(score[row])}
        return decision(self.field, actions, offer, row, **reasons, multiplier=EAGER, details=details)

    def _scale(self, known: Known) -> tuple[float, float]:
        """The best mean, and the range of means on offer."""
        best = float(known.mean.max())
        return best, max(best - float(known.mean.min()), 0.25 * self.model.norm_bound)

    def _covered(self, offer: Actions) -> Actions:
        """The offer, and points all over the domain at which nothing was observed."""
        cover, seen, box = self.field.spread(), self.layered.tried[0], self.field.domain
        if len(seen):
            near = nearest_point(self.model, cover.encoded, seen, box.apart(cover.encoded, seen))[1]
            cover = cover.part(np.flatnonzero(near > max(self.field.resolution, SAME)))
        encoded = np.concatenate([offer.encoded, cover.encoded])
        return Actions(np.concatenate([offer.points, cover.points]), encoded, None)

    def _tries(self, offer: Actions) -> Array:
        """How often the cells of these points were tried: the nearest to each of some points all over the domain."""
        cells, (seen, counts) = self.field.domain.spread(CELLS, [0]), self.layered.tried
        count = np.bincount(nearest_point(self.model, seen, cells)[0], counts, minlength=len(cells))
        return np.asarray(count[nearest_point(self.model, offer.encoded, cells)[0]], dtype=np.float64)

    def _test(
        self, known: Known, eager: int, lower: Array, upper: Array, offer: Actions, searched: bool
    ) -> tuple[int, bool]:
        """The row to test, and whether for its own results. It may be the eager choice, and then costs nothing."""
        possible = upper >= lower.max()  # own bands do not say that another is better
        if HOPEFUL * self._again < self.tests:
            best, extent = self._scale(known)
            hope = known.average + EAGER * self.layered.noise / np.sqrt(np.maximum(known.counts, 1.0)) - best
            hopeful = possible & (known.counts > 0) & (known.hoped == known.counts) & (hope > 0.0)
            hopeful[eager] = False
            if hopeful.any():
                return int(np.where(hopeful, hope / ((best - known.mean) / extent + CHEAP), -np.inf).argmax()), True
        tries = self._tries(offer) if searched else known.hoped
        if self._failed:
            tries = tries + np.array([max(self._failed.get(key, 0) - 1, 0) for key in self.field.keys(offer)])
        least = possible & (tries == tries[possible].min())
        return int(np.where(least, known.mean, -np.inf).argmax()), False

    # -- its parts -------------------------------------------------------------------------------------------

    def _look(self, actions: Actions) -> tuple[Known, Array, Array]:
        """What is known of the actions, and the ends of their own bands."""
        own, rows = self._evidence.own, actions.rows
        if rows is not None and self.field.size:
            return self.layered.over(rows), own.lower[rows], own.upper[rows]
        keys = self.field.keys(actions)
        return (self.layered.at(actions.encoded, keys), *own.at(keys))

    def _search(self) -> Search:
        """The largest upper end over a domain without a list."""

        def score(U: Array, points: Array) -> Array:
            here = self.layered.at(U, [x.tobytes() for x in points])
            return np.asarray(here.mean + EAGER * np.sqrt(here.variance))

        slope = functools.partial(self.layered.slopes, factor=EAGER)
        return Search(self.posterior_in_use, self._own, score, slope, self.log.next_id)

    def check_details(self, details: Mapping[str, Any]) -> None:
        if "test" in details:
            number("test of a stored query", details["test"])
            flag("again of a stored query", details.get("again"))

    def on_ask(self, asked: Asked) -> None:
        self._pay(asked, 1)

    def _pay(self, asked: Asked, sign: int) -> None:
        if "test" in asked.details:
            self.tests += sign
            self._again += sign * bool(asked.details["again"])
            self.paid += sign * float(asked.details["test"])

    def on_drop(self, asked: Asked) -> None:
        """The first failure of a test is refunded, later ones are not: a point that fails is not tested for ever."""
        super().on_drop(asked)
        if "test" in asked.details:
            failures = self._failed.get(asked.place.key, 0)
            self._failed[asked.place.key] = failures + 1
            if not failures:
                self._pay(asked, -1)

    # -- what a user sees ------------------------------------------------------------------------------------

    @property
    def caveats(self) -> list[str]:
        """Why its bands may not hold the truth; none where they do for ε = 0."""
        caveats = list(super().caveats)
        if self.misfit_size:
            caveats.append(f"a misfit of about {self.misfit_size:.2g} shows, and the bands are for a model without any")
        if self.learnt_noise > NOISY * self.model.noise:
            caveats.append(f"repeats scatter by {self.learnt_noise:.2g}, more than the model's noise")
        return caveats

    @property
    def misfit_size(self) -> float:
        """τ, the standard deviation of the misfit as learnt, B halved some times; 0 where none shows."""
        return self.layered.misfit_size

    @property
    def learnt_noise(self) -> float:
        """σ as learnt: the model's, corrected by repeated results; never below B/2000."""
        return self.layered.noise

    @property
    def facts(self) -> dict[str, Any]:
        learnt = {"misfit_size": self.misfit_size, "learnt_noise": self.learnt_noise}
        return {**learnt, "tests": self.tests, "paid": self.paid}
