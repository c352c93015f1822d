"""A policy that needs no constants: it learns its model, averages over what it is not sure of, and hedges.

No theorem stands behind it. What it takes from those that have one: evidence of a point's own that no model talks away,
and a budget of rounds for caution, of order √t, that is spent whatever the model believes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import hyperparameters
from misspec.domains import Domain, a_domain, coordinates
from misspec.errors import Array, HorizonReached, InvalidInput, flag, number, shown, whole
from misspec.hyperparameters import LARGEST_FLOAT, Data, Fitted, Hyperposterior, Scaling
from misspec.model import Model
from misspec.policies.auto import learnt
from misspec.policies.auto.feasible import Feasible, Likely
from misspec.policies.auto.mixture import Mixture, Rule, improvement, moments, upper
from misspec.policies.core.answers import Band, Conflict, Decision, Recommendation, copied
from misspec.policies.core.evidence import Evidence
from misspec.policies.core.field import Search
from misspec.policies.core.hooks import Abilities
from misspec.policies.core.log import Asked
from misspec.policies.core.points import Actions, Context, Place, Round, first_alike, position_in
from misspec.policies.core.policy import Policy
from misspec.product import ProductMatern
from misspec.search import distinct

SAMPLES, LEAST_SAMPLES = 8, 2  # of the hyperparameters: all up to EXACT results, then SAMPLES·EXACT/t, but at least 2
FIRST = 5  # evaluations before there is a model
TRIED = 16  # random points of which the farthest from all others is the next of the first ones
EXACT, FEATURES = 300, 300  # results up to which posteriors are exact; beyond, 2·EXACT²/t features, but at least 300
LISTED = 5000  # candidates of a list up to which they are always exact
FIRST_FED = 4  # of so many results one, the best, is among the first that such posteriors are fed
GROWTH = 1 / 7  # by which the data grow before the model is renewed
STALE = 2  # times the results at its last renewal: what is read then rests on a newer model
EAGER = 1.0  # multiplier
TAUGHT, EXHAUSTED = 0.7, 0.3  # std/noise below which a result teaches little (two results), and nothing (ten)
RIVAL = 2.0  # multiplier: where a value may be better than one that is known
NEGLIGIBLE = 0.01  # noise that is too small to matter, in units of the results' spread
IMPROVEMENT, MOST_IMPROVEMENT = 2.0, 0.5  # share of rounds by expected improvement, times what is unexplained
CAUTION, MOST_CAUTION = 15.0, 6.0  # times what is unexplained, times √t: rounds that may be cautious
LEAST_CAUTION = 1.0  # times √t, where it would ask again what it knows well enough
NEXT = 0.05  # distance to a point that pends, in units of the domain: nothing is asked so near
LIKELY, SURE = 0.85, 0.95  # r of `feasible.py` at least: of what is asked; of what is recommended, or where many failed
EDGE, ANYWHERE = 0.5, -math.inf  # the same, to learn where the edge is: half-way between success and failure; no matter
RECENT, DARING = 20, 1.0  # the edge is tested while fewer than DARING/√t of the RECENT last ones failed: 10 % at 60
TESTS = 1.5  # times √t: rounds that may ask what is not likely to work at all, for what it is worth if it does
WORKING = 0.7  # times ln P: what it is worth, in a score, that an evaluation works
BAND = 2.0  # multiplier of reported bands
DELTA = 0.1  # of own bands
LARGEST_STATE = 700.0  # logarithm of the largest float, about
UNKNOWN = 4.0  # spreads of the results within which one lies of which nothing is known
KNOWN, PROMISING = 30, 100  # points among which further results are imagined
MOST_IMAGINED = 1000  # of them at once


class Found(NamedTuple):
    """What a rule found best: the offer, its row there, and what is believed of the offer (M and S of `mixture.py`)."""

    offer: Actions
    row: int
    beliefs: tuple[Array, Array]


class Auto(Policy):
    """ask, tell and recommend without a constant.

    horizon: queries after which `ask` ends, if that is known; data from elsewhere do not count. noise: σ in units of y,
    if that is known; repeated points teach it otherwise. minimize: smaller is better; means, bands and reports are in
    your sign.
    A table with a target (`Finite.from_table(…, target=…)`) starts it with the results that it holds.
    """

    abilities = Abilities(heeds_failures=True)

    def __init__(
        self,
        domain: Domain,
        horizon: int | None = None,
        noise: float | None = None,
        *,
        minimize: bool = False,
        seed: int = 0,
    ) -> None:
        self.columns = _columns(domain)
        super().__init__(domain, _before_data(self.columns), seed=seed, grounded=True)
        if isinstance(horizon, Model):
            raise InvalidInput("ms.Auto learns its model and takes none; ms.Auto(domain) is all")
        self.horizon = self.limit = None if horizon is None else whole("horizon", horizon, at_least=1)
        self.noise = None if noise is None else number("noise", noise, above=0)
        self.minimize = flag("minimize", minimize)
        self.seed = seed
        self._reach = _reach(domain, self.columns)
        self._without.append("its model is learnt from the data: nothing is guaranteed")
        self._states: Array | None = None  # of the samplers
        self._renewed = 0  # results at the last renewal
        self._unexplained = 1.0  # share of the results' variance that the model does not predict
        self._dropped: list[Array] = []  # points where an evaluation failed
        self._failed: list[bool] = []  # of each evaluation that has ended
        self._learnt_success: tuple[tuple[int, int], Feasible] | None = None  # after so many results and failures
        self._told: list[Place] = []  # where results were told, in that order
        self._renewal: tuple[int, dict[str, Any]] | None = None  # the next one, made by a reader, and after which event
        self._twin: tuple[int, Auto] | None = None  # with a newer model, for readers, and after which event
        self._scaling = Scaling(-1.0 if minimize else 1.0)
        # which stands for a model before there is one, however many results come at once
        self._mixture = Mixture([self._evidence.posterior(self.model, budget=FEATURES)], self._scaling)
        given = getattr(domain, "observations", None)
        if self._fresh and given is not None and len(given.y):
            self.observe(given.indices, given.y)

    # -- the model -------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Renew the model when the data have grown by a seventh: an event that holds the samples."""
        if self.t >= max(FIRST, math.ceil(self._renewed * (1.0 + GROWTH))):
            renewal = self._sampled()
            self._adopt(renewal)
            self.log.add("renew", renewal)

    @property
    def stale(self) -> bool:
        """Whether what is reported needs a newer model than the one that choices were made by."""
        return self.t >= max(FIRST, STALE * self._renewed)

    def _sampled(self) -> dict[str, Any]:
        """The renewal that is due now; kept, so that a reader and the next query share one."""
        if self._renewal is None or self._renewal[0] != len(self.log.events):
            self._renewal = len(self.log.events), self._samples()
        return copied(self._renewal[1])

    def _samples(self) -> dict[str, Any]:
        """Samples of the hyperparameters given all results, and how results are scaled."""
        told = self.observations
        scaling = Scaling.of(told.y, self._scaling.sign, self.noise)
        rng = np.random.default_rng([self.seed, self.t, 1])
        data = Data.of(self.domain.encode(told.x), scaling.to(told.y)).part(rng)
        noise = None if self.noise is None else max(self.noise / scaling.width, hyperparameters.LEAST_WIDTH)
        target = Hyperposterior(data, self.columns, self._reach, noise)
        count = min(SAMPLES, max(LEAST_SAMPLES, round(SAMPLES * EXACT / self.t)))
        states = hyperparameters.start(target, count, rng) if self._states is None else self._states[:count]
        states = hyperparameters.renewed(target, states, hyperparameters.sweeps(target), rng)
        return {
            "states": states.tolist(),
            "fitted": [list(target.fitted(theta)) for theta in states],
            "scaling": list(scaling),
            "unexplained": float(np.mean([target.unexplained(theta) for theta in states])),
            "results": self.t,
        }

    def _adopt(self, renewal: dict[str, Any]) -> None:
        """Posteriors of these samples, with all results so far."""
        self._states = np.array(renewal["states"])
        self._scaling = Scaling(*renewal["scaling"])
        self._unexplained = float(renewal["unexplained"])
        models = models_of(renewal, self.domain)
        self.model = max(models, key=lambda model: model.noise)  # own bands rest on the largest noise that is likely
        self._evidence = Evidence(self.field, self.model, DELTA)
        exact = self.t <= EXACT or 0 < self.field.size <= LISTED
        budget = None if exact else max(FEATURES, 2 * EXACT**2 // self.t)
        self._mixture = Mixture([self._evidence.posterior(model, budget=budget) for model in models], self._scaling)
        self._feed(exact=budget is None)
        for asked in self.log.pending.values():
            self._evidence.ask(asked.query.id, asked.place)
        self._own = self._evidence.own
        self._renewed = int(renewal.get("results", self.t))

    def renew(self) -> None:
        """Renew the model now if it is due, as the next `ask` would."""
        with self._lock:
            self._repair()
            self._changed(self.prepare)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            twin, self._twin = self._twin, None  # a copy makes its own
            try:
                return super().__getstate__()
            finally:
                self._twin = twin

    @property
    def samples(self) -> dict[str, Any] | None:
        """The samples of its model as JSON, which an Auto on the same domain can `adopt`; None before the first."""
        with self._lock:
            found = next((event[1] for event in reversed(self.log.events) if event[0] == "renew"), None)
            return None if found is None else copied(found)

    def adopt(self, samples: dict[str, Any]) -> None:
        """Go on with the samples of another Auto on the same domain, learnt from results that are told here too.

        They are renewed when there are more by a seventh than they were learnt from.
        """
        with self._lock:
            self._repair()
            checked = self._check_samples(samples)
            self._changed(lambda: self.on_event("renew", checked))

    def _check_samples(self, samples: Any) -> dict[str, Any]:
        """A copy of samples that can be adopted now; InvalidInput for others."""
        checked = checked_samples(samples, self.domain)
        if checked["scaling"][0] != self._scaling.sign or checked["results"] > self.t:
            raise InvalidInput(
                f"these samples were learnt from {checked['results']} results, of which {self.t} are told here, or "
                "for the other direction (minimize=…); observe the results first"
            )
        return checked

    def _feed(self, *, exact: bool) -> None:
        """All results so far to new posteriors; where these have room for some, the best ones come first."""
        told = self.observations
        z, order = self._scaling.to(told.y), np.arange(len(told.y))
        if not exact:
            best = np.sort(np.argsort(-z, kind="stable")[: len(z) // FIRST_FED])
            order = np.concatenate([best, np.setdiff1d(order, best)])
        self._evidence.observe(told.x[order], [self._told[i] for i in order.tolist()], z[order].tolist())

    def on_event(self, kind: str, *rest: Any) -> None:
        if kind != "renew":
            super().on_event(kind, *rest)
        (renewal,) = rest
        if isinstance(renewal, dict):
            self._check_samples({"results": self.t, **renewal})  # which older states do not say
        self._adopt(renewal)
        self.log.add("renew", renewal)

    def on_tell(self, asked: Asked, y: float) -> None:
        super().on_tell(asked, float(self._scaling.to(y)))
        self._told.append(asked.place)
        self._failed.append(False)

    def on_observe(self, actions: Actions, places: list[Place], y: list[float]) -> None:
        super().on_observe(actions, places, self._scaling.to(y).tolist())
        self._told += places
        self._failed += [False] * len(places)

    # -- choosing --------------------------------------------------------------------------------------------

    def available(self) -> int | None:
        if self.horizon is None:
            return None
        left = self.horizon - self.asked
        if left <= 0:
            raise HorizonReached(f"all {self.horizon} evaluations of the horizon are asked; see recommend()")
        return left

    def choose(self, actions: Round) -> Decision:
        """Degrees of caution: the worse the model predicts what it was not told, the more rounds go to the others.

        The budgets are functions of the round and of the data alone, not of who asked for them.
        """
        if self._states is None:
            return self._first(actions)
        n, doubt = self._tried, min(1.0, self._unexplained)
        kind, rule = "mean and spread", upper(EAGER)
        # of a batch, the first is by mean and spread, and the others, of which no one is the next to be used, find more
        least = self._least(n)
        share = min(MOST_IMPROVEMENT, IMPROVEMENT * doubt)
        if least == ANYWHERE:
            kind, rule = "improvement", improvement(self._best_result(actions))
        elif self.log.pending or _due(share * np.array([n, n + 1.0])):
            kind, rule = "improvement", improvement(self._best_means(actions))
        found = self._best(rule, actions, least)
        known = [self._known(found.beliefs[1][:, [found.row]], share)[0] for share in (TAUGHT, EXHAUSTED)]
        again = known[1] and self._distance(found.offer.encoded[[found.row]], self._told_points)[0] == 0.0
        budget = max(min(MOST_CAUTION, CAUTION * doubt), LEAST_CAUTION if again else 0.0)
        if self._idle(found, actions) or (known[0] and _due(budget * np.sqrt([n, n + 1.0]))):
            # the best result is luckier than the best mean: what improves on it lies where little is known
            kind, found = "caution", self._best(improvement(self._best_result(actions)), actions, least, stay=False)
        offer, row, (M, S) = found
        mean, std = self._mixture.reported(M[:, [row]], S[:, [row]])
        reasons = {"mean": float(mean[0]), "std": float(std[0]), "details": {"rule": kind}}
        return Decision(self.field.place(offer, row), position_in(actions, row), reasons)

    def _best_means(self, actions: Round) -> Array:
        """For each sample of the model, the largest mean at a point that was evaluated, or among those on offer."""
        seen = self._parse(distinct(self.observations.x).points) if actions is None else self._listed(actions)
        return np.asarray(self._mixture.look(self.field, self._own, seen, pending=False)[0].max(axis=1))

    def _listed(self, actions: Actions | Context) -> Actions:
        """What a round offers; where that is to be searched, a cover of it."""
        return actions if isinstance(actions, Actions) else self.field.spread(actions)

    def _best_result(self, actions: Round) -> Array | float:
        """The best result; among what is on offer, a mean that is as lucky as one result can be. Without noise, what is
        better by too little to matter is no better."""
        if actions is None:
            return float(self._scaling.to(self.observations.y).max()) + (NEGLIGIBLE if self._quiet else 0.0)
        return self._best_means(actions) + np.maximum(self._noises, NEGLIGIBLE)

    @property
    def _noises(self) -> Array:
        return np.array([each.model.noise for each in self._mixture.posteriors])

    @property
    def _quiet(self) -> bool:
        """Whether results have no noise to speak of, so that one that is known already is of no use."""
        return float(self._noises.mean()) < NEGLIGIBLE

    def _idle(self, found: Found, actions: Round) -> bool:
        """Whether what was found is next to sure not to improve on the best result, which without noise need not be
        asked for again."""
        if not self._quiet:
            return False
        M, S = (each[:, [found.row]] for each in found.beliefs)
        return float(upper(RIVAL)(M, S).values[0]) < float(np.mean(self._best_result(actions)))

    def _best(self, rule: Rule, actions: Round, least: float, *, stay: bool = True) -> Found:
        """The best of what is on offer by a rule, without points that are known well enough, or likely to fail: whose r
        is below `least`."""
        turn, success = self._tried, self._likely(max(least, EDGE))

        def barred(U: Array) -> NDArray[np.bool_]:
            return self._waiting(U, 0) | self._fails(U, least)

        def search() -> Search:
            return self._mixture.search(rule, self._own, turn, barred=barred, success=success)

        offer = self.field.offer(search, actions)
        M, S = self._mixture.look(self.field, self._own, offer, pending=True)
        values = rule(M, S).values
        if success is not None:
            values = values + success(offer.encoded)
        works = ~self._fails(offer.encoded, least)
        # what others may be on offer next is not known: there the best is asked as often as it is the best, but for
        # once in a batch
        teaches = works & ~self._exhausted(offer, M, S, stay) if actions is None else works
        new = ~self._waiting(offer.encoded, 0 if actions is None else self._batch)
        order = (teaches & new, works & new, works, np.ones(len(values), dtype=bool))
        left = next(some for some in order if some.any())
        return Found(offer, first_alike(offer, int(np.where(left, values, -np.inf).argmax())), (M, S))

    def _waiting(self, encoded: Array, since: int) -> NDArray[np.bool_]:
        """Which points pend since some query, or, where points differ by degrees, lie next to one that does."""
        pending = [asked.place.x for asked in self.log.pending.values() if asked.query.id >= since]
        near = 0.0 if self.field.size else NEXT
        return self._distance(encoded, pending) <= near

    def _exhausted(self, offer: Actions, M: Array, S: Array, stay: bool) -> NDArray[np.bool_]:
        """Points with results of their own that another one teaches nothing, and what is sure to be worse than them.

        Where no rival is left, nothing is, if it may stay: rather the best one again than others that are known to be
        worse.
        """
        own = self.field.look(self._mixture.posteriors[0], self._own, offer, pending=False).own_upper
        assert own is not None  # Auto is grounded
        if self._quiet:  # the same result again is of no use to anyone
            return np.isfinite(own)
        spent = np.isfinite(own) & self._known(S, EXHAUSTED)
        if not spent.any() or not stay:
            return spent
        rivals = ~spent & (upper(RIVAL)(M, S).values > M.mean(axis=0)[spent].max())
        return ~rivals if rivals.any() else np.zeros(len(spent), dtype=bool)

    def on_drop(self, asked: Asked) -> None:
        """A query that is dropped teaches where evaluations fail, and no value."""
        super().on_drop(asked)
        self._dropped.append(asked.place.x)
        self._failed.append(True)

    @property
    def _tried(self) -> int:
        """Evaluations so far: told, failed and pending."""
        return self.t + len(self._dropped) + len(self.log.pending)

    def _least(self, n: int) -> float:
        """r at least of what the n-th query asks: one minus the failures that it may add to the latest ones. If that is
        a whole one, √t queries may be anywhere; not all, since each is chosen to find more, and is rarely the best."""
        if self._success is None or not self._success.explains:  # failures by chance keep little away
            return EDGE
        ages = np.arange(len(self._failed))[::-1]
        latest = float((1.0 - 1.0 / RECENT) ** ages @ self._failed)
        left = min(n + 1, RECENT) / math.sqrt(n + 1) - latest
        if left >= 1.0 and _due(np.sqrt([n, n + 1.0])):
            return ANYWHERE
        return min(max(1.0 - left, EDGE), SURE)

    @property
    def _success(self) -> Feasible | None:
        """Where evaluations succeed; None while none has failed, or all."""
        if not self._dropped or not self._told:
            return None
        now = (self.t, len(self._dropped))
        if self._learnt_success is None or self._learnt_success[0] != now:
            points = self.domain.encode([*self._told_points, *self._dropped])
            succeeded = np.arange(len(points)) < len(self._told)
            self._learnt_success = now, Feasible(points, succeeded, self.columns, self._reach)
        return self._learnt_success[1]

    def _likely(self, least: float) -> Likely | None:
        """What scores add where r is to be above `least`; None while there is no r."""
        return None if self._success is None else Likely(self._success, least)

    def _fails(self, encoded: Array, least: float) -> NDArray[np.bool_]:
        """Where evaluations may fail, unless as many have succeeded right there as failed."""
        success = self._success
        if success is None:
            return np.zeros(len(encoded), dtype=bool)
        fails = success.rate(encoded) < least
        ended = len(self._failed) + len(self.log.pending) - FIRST  # what failed since then is not among the next FIRST
        if latest := self._dropped[len(self._dropped) - sum(self._failed[max(ended, 0) :]) :]:
            fails |= self._distance(encoded, latest) == 0.0
        told, failed = (
            (self._apart(encoded[fails], points) == 0.0).sum(axis=1) for points in (self._told_points, self._dropped)
        )
        fails[fails] = (told == 0) | (failed > told)
        return fails

    @property
    def _told_points(self) -> list[Array]:
        return [place.x for place in self._told]

    def _distance(self, encoded: Array, points: Sequence[Array]) -> Array:
        """To the nearest of some points, ∞ where there are none."""
        return np.asarray(self._apart(encoded, points).min(axis=1) if points else np.full(len(encoded), np.inf))

    def _apart(self, encoded: Array, points: Any) -> Array:
        """Distances, in units of the reach of each parameter."""
        from scipy.spatial.distance import cdist  # not while misspec is imported

        widths = np.repeat(self._reach, [stop - start for start, stop in self.columns])
        return np.asarray(cdist(encoded / widths, self.domain.encode(points) / widths))

    def _known(self, S: Array, share: float) -> NDArray[np.bool_]:
        """Where the value is known to this share of one result's noise, or of the least that matters."""
        matters = np.maximum(self._noises, NEGLIGIBLE)[:, None]
        return np.asarray((S / matters).mean(axis=0) < share)

    def _first(self, actions: Round) -> Decision:
        """Before there is a model: of some random points the farthest from all others, on the side of successes."""
        offers = [self.field.draw(self._rng, actions) for _ in range(TRIED)]
        rows = [int(self._rng.integers(len(each.points))) for each in offers]
        places = [self.field.place(offer, row) for offer, row in zip(offers, rows, strict=True)]
        seen = (
            [asked.place.x for asked in self.log.pending.values()] + self._dropped + [place.x for place in self._told]
        )
        best = 0
        if seen:
            encoded = self.domain.encode([place.x for place in places])
            apart = self._distance(encoded, seen)
            if self._told and self._dropped:  # where the nearest evaluation has succeeded, if any is there
                nearer = self._distance(encoded, self._told_points) < self._distance(encoded, self._dropped)
                apart = np.where(nearer, 1.0, 0.0 if nearer.any() else 1.0) * apart
            best = int(apart.argmax())
        return Decision(places[best], position_in(actions, rows[best]), {"details": {"rule": "first"}})

    # -- what a user sees ------------------------------------------------------------------------------------

    @property
    def posterior(self) -> Any:
        """What is believed, in your units; `posteriors` and `model` are in the model's own."""
        with self._lock:
            return learnt.informed(self)._mixture

    @property
    def caveats(self) -> list[str]:
        few = f"there is no model yet: it takes {FIRST} results, and there are {self.t}"
        return super().caveats if self._states is not None else [few, *super().caveats]

    def band(self, X: ArrayLike | None = None, *, context: Any = None) -> Band:
        """Mean ± 2 standard deviations, at no stated level; over a list of candidates, or at the rows of X."""
        with self._lock:
            self._repair()
            informed = learnt.informed(self)
            return super().band(X, context=context) if informed is self else informed.band(X, context=context)

    def recommend(self, *, actions: ArrayLike | None = None, context: Any = None) -> Recommendation:
        """What to use: the best value that is likely, mean − 2 standard deviations (+, where smaller is better)."""
        with self._lock:
            self._repair()
            informed = learnt.informed(self)
            if informed is self:
                return super().recommend(actions=actions, context=context)
            told: Recommendation = informed.recommend(actions=actions, context=context)
            return told

    def band_at(self, actions: Actions) -> Band:
        if self._states is None and self.t:
            return self._before_model(actions)
        M, S = self._mixture.look(self.field, self._own, actions, pending=False)
        mean, std = moments(M, S)
        ends = [self._mixture.back(mean + sign * BAND * std) for sign in (-1.0, 1.0)]
        return Band(np.minimum(*ends), np.maximum(*ends))

    def _before_model(self, actions: Actions) -> Band:
        """Before there is a model: a few results say something of their own points, and nothing of others."""
        y = self.observations.y
        size = float(np.abs(y).max()) or 1.0  # whose sums may be no float
        results: dict[Any, list[float]] = {}
        for place, each in zip(self._told, (y / size).tolist(), strict=True):
            results.setdefault(place.key, []).append(each)
        spread = float(np.ptp(y / size)) or 0.5
        known = [results.get(key) for key in self.field.keys(actions)]
        middle = np.array([float(np.mean(y / size if each is None else each)) for each in known])
        reach = np.array([UNKNOWN * spread if each is None else spread for each in known])
        return Band(
            *(
                np.clip(middle + sign * reach, -LARGEST_FLOAT / size, LARGEST_FLOAT / size) * size
                for sign in (-1.0, 1.0)
            )
        )

    def mean_at(self, place: Place) -> float:
        if self._states is None and self.t:
            low, high = self._before_model(self.field.only(place))
            return float(0.5 * low[0] + 0.5 * high[0])
        return float(self._mixture.at(place.x[None, :])[0][0])

    def contenders(self, within: Context | None = None) -> Actions:
        if self._states is None and self.t and within is None and not self.field.size:
            return self._parse(distinct(self.observations.x).points)
        if self.field.size:
            return self.field.spread()
        mixture, own, turn = self._mixture, self._own, self.log.next_id
        likely = self._likely(SURE)
        ends = [
            self.field.offer(
                lambda c=c: mixture.search(upper(c), own, turn, pending=False, success=likely),  # type: ignore[misc]
                within,
            )
            for c in (-BAND, BAND)
        ]
        return ends[0] + ends[1]

    def usable(self, actions: Actions) -> NDArray[np.bool_]:
        """Those whose evaluation is not known to fail, or all if there are none."""
        fails = self._fails(actions.encoded, SURE)
        return np.ones(len(fails), dtype=bool) if fails.all() else ~fails

    @property
    def conflicts(self) -> list[Conflict]:
        """Points whose own results and the model exclude each other."""
        with self._lock:
            self._repair()
            informed = learnt.informed(self)
            return super().conflicts if informed is self else list(informed.conflicts)

    # -- what was learnt -------------------------------------------------------------------------------------

    def summary(self) -> str:
        """What was learnt, in sentences: what to use, the noise, what matters, contradictions, whether to go on."""
        with self._lock:
            self._repair()
            self._whole("a summary")
            informed = learnt.informed(self)
            if not learnt.modelled(informed):
                return f"There is no model yet: it takes {FIRST} results, and there are {self.t}."
            return "\n".join(learnt.sentences(learnt.facts(informed)))

    def importance(self) -> dict[str, float]:
        """How much each parameter matters, by name: shares that add up to 1 (`learnt.py` says of what)."""
        with self._lock:
            self._repair()
            return learnt.importance(self._informed("importance")._mixture, self.field)

    def expected_gain(self, n: int = 10) -> float:
        """By how much n further evaluations are expected to improve the best value, in your units; never below 0.

        If the model is right: where results are skewed, as losses with a long tail are, several times too much was
        promised.
        """
        whole("n", n, at_least=1, at_most=MOST_IMAGINED)
        with self._lock:
            self._repair()
            return self._informed("an expected gain")._gain(n)

    def _whole(self, what: str) -> None:
        """InvalidInput where there is no domain that is the same in all rounds."""
        if not self.field.fixed:
            raise InvalidInput(
                f"{what} is about a whole domain, and on {shown(self.domain)} it depends on the round; recommend(…) "
                "and band(…) answer for one"
            )

    def _informed(self, what: str) -> Auto:
        self._whole(what)
        informed: Auto = learnt.informed(self)
        if not learnt.modelled(informed):
            raise InvalidInput(f"{what} needs a model, and so at least {FIRST} results; {self.t} are told")
        return informed

    @property
    def noise_level(self) -> float:
        """The standard deviation of a result, in the user's units: as given, or the average over the samples."""
        if self.noise is not None:
            return self.noise
        squares = [each.model.noise**2 for each in self._mixture.posteriors]
        return self._scaling.width * math.sqrt(float(np.mean(squares)))

    def _gain(self, n: int) -> float:
        """`learnt.gain` among the points of the largest expected improvement and the best known ones."""
        mixture, known = self._mixture, self._parse(self._evidence.own.points())
        means = mixture.look(self.field, None, known, pending=False)[0].mean(axis=0)
        rule = improvement(float(means.max()))
        offer = self.field.spread()
        if not self.field.size:
            offer = offer + self.field.offer(lambda: mixture.search(rule, None, self.log.next_id, pending=False))
        offer = offer.part(np.flatnonzero(self.usable(offer)))
        scores = rule(*mixture.look(self.field, None, offer, pending=False)).values
        points = np.concatenate([
            known.points[np.argsort(-means, kind="stable")[:KNOWN]],
            offer.points[np.argsort(-scores, kind="stable")[:PROMISING]],
        ])  # fmt: skip
        points = distinct(points).points
        keys = {x.tobytes() for x in known.points}
        seen = np.array([x.tobytes() in keys for x in points])
        encoded = self.domain.encode(points)
        beliefs = [learnt.belief(each, points, encoded) for each in mixture.posteriors]
        best = float(np.mean([each.mean for each in beliefs], axis=0)[seen].max())
        gain = learnt.gain(beliefs, seen, n)
        now, then = (float(self._mixture.back(z)) for z in (best, best + gain))
        return abs(then - now)

    def find_conflicts(self, events: Sequence[tuple[Any, ...]]) -> list[Conflict]:  # noqa: ARG002  # of all of them
        """Points whose own band does not meet the model's. The learnt norm bound is no claim, and proves nothing."""
        if self._states is None:
            return []
        points, averages, _, radii = self._evidence.own.table()
        M, S = self._mixture.look(self.field, None, self._parse(points), pending=False)
        mean, std = moments(M, S)
        below, above = averages + radii - (mean - BAND * std), averages - radii - (mean + BAND * std)
        found = []
        for i, key in enumerate(self._evidence.own.keys()):
            if below[i] < 0 or above[i] > 0:
                sign = -1.0 if below[i] < 0 else 1.0
                ends = (averages[i] - sign * radii[i], mean[i] + sign * BAND * std[i])
                gap = abs(float(self._mixture.back(ends[0])) - float(self._mixture.back(ends[1])))
                index = key if isinstance(key, int) and self.field.indexed else None
                found.append(Conflict(points[i], index, gap, gap))
        return found


def checked_samples(samples: Any, domain: Domain) -> dict[str, Any]:
    """A copy of what `Auto.samples` has on this domain; InvalidInput for anything else."""
    try:
        given = [np.array(samples[name]) for name in ("states", "fitted", "scaling", "unexplained")]
        states, fitted, scaling, _ = (each.astype(np.float64) for each in given)
        numbers = [float(samples["unexplained"]), samples["results"]]
        right = all(each.dtype.kind in "if" for each in given) and type(numbers[1]) is int
        right = right and states.ndim == 2 and states.shape[1] == len(_columns(domain)) + 2
        right = right and fitted.shape == (len(states), 3) and len(states) > 0
        right = right and scaling.shape == (3,) and abs(scaling[0]) == 1.0 and numbers[1] >= 0
        right = right and bool(scaling[2] > 0 and (fitted[:, 1] > 0).all() and (states < LARGEST_STATE).all())
        right = right and all(np.isfinite(each).all() for each in (states, fitted, scaling, numbers))
        right = right and len(models_of(samples, domain)) > 0  # with constants that a Model takes
    except Exception:  # a foreign object may raise anything
        right = False
    if not right:
        raise InvalidInput(f"expected what `samples` of an Auto on the same domain has, got {shown(samples)}")
    return copied(samples)


def models_of(samples: dict[str, Any], domain: Domain) -> list[Model]:
    """The models that samples of hyperparameters stand for, in the units of their scaling."""
    columns = _columns(domain)
    reach = _reach(domain, columns)
    pairs = zip(np.array(samples["states"]), samples["fitted"], strict=True)
    return [hyperparameters.model_of(theta, Fitted(*each), columns, reach) for theta, each in pairs]


def _columns(domain: Any) -> list[tuple[int, int]]:
    """Which columns of the encoding belong to which parameter."""
    columns = getattr(a_domain(domain), "columns", None) or coordinates(domain.dimension)
    return [(each.start, each.stop) for each in columns]


def _due(budget: Array) -> bool:
    """Whether a budget, before and after a round, allows one more."""
    return math.floor(float(budget[1])) > math.floor(float(budget[0]))


def _before_data(columns: Sequence[tuple[int, int]]) -> Model:
    """What stands in for a model before there is one."""
    return Model(ProductMatern(np.ones(len(columns)), columns), norm_bound=1.0, noise=1.0, fitted=True)


def _reach(domain: Domain, columns: Sequence[tuple[int, int]]) -> Array:
    """The widest distance of each parameter, as the kernel sees it: 1, except in lists of points of any scale."""
    probes = domain.probes()
    wide = np.array([float(np.ptp(probes[:, start:stop], axis=0).max()) for start, stop in columns])
    one_hot = np.array([stop - start > 1 for start, stop in columns])
    return np.where(one_hot | (wide <= 0), 1.0, wide)
