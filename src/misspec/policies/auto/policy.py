"""A policy that needs no constants: it learns its model, averages over what it is not sure of, and hedges.

No theorem stands behind it. From policies that have one it takes two things: own observations override the model, and
of order √t rounds are spent on caution, whatever the model believes.

`model.py` says how the model is learnt, and when; `rules.py` what is asked next; `feasible.py` where evaluations fail;
`learnt.py` what was learnt, in sentences. The model is renewed by `ask` and by `refresh()`: reading changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec.domains import Domain
from misspec.errors import Array, AwaitingResults, HorizonReached, InvalidInput, flag, number, one_of, shown, whole
from misspec.hyperparameters import Scaling
from misspec.limits import names_of_limits, read_limits
from misspec.model import Model
from misspec.policies.auto import doubt, learnt, units
from misspec.policies.auto.average import ModelAverage, moments, upper
from misspec.policies.auto.before import adoptable, band_before, first_design, untried, why_none
from misspec.policies.auto.feasible import SURE, Outcomes
from misspec.policies.auto.importance import Importance
from misspec.policies.auto.limits import EXACT_EDGE, KEPT, Quantities
from misspec.policies.auto.model import FEATURES, FIRST, STALE, Learner, budget_of, due, models_of
from misspec.policies.auto.rules import ENDING, TRIED, Turn, choose
from misspec.policies.core.answers import Band, Conflict, Decision, Observations, Recommendation, copied
from misspec.policies.core.evidence import Evidence, posterior_on
from misspec.policies.core.hooks import Abilities
from misspec.policies.core.log import Asked, Event
from misspec.policies.core.points import Actions, Context, Place, Round, position_in
from misspec.policies.core.policy import Policy
from misspec.policies.core.suspicion import FAR, Prediction
from misspec.policies.ec_gp_ucb import decision
from misspec.posterior import Posterior
from misspec.search import distinct

SURPRISING = 5.0  # standard deviations between a result and its prediction after which the model is renewed at once
BAND = 2.0  # standard deviations of reported bands: 95 % if the model is right
DELTA = 0.1  # of own bands, by which means are clipped: at 0.1 they are hardly wider than the bands of the model
FIRST_FED = 4  # the best quarter of the results is fed first to posteriors with a budget: those become features
MOST_IMAGINED = 1000  # evaluations of `chance` at most: beyond, the joint samples take seconds


class Auto(Policy):
    """ask, tell and recommend without a constant.

    aim: "best", the best point in the end, or "earn", where every evaluation counts. minimize: smaller is better.
    noise: σ in units of y, if that is known; repeated points teach it otherwise. repeats: False where a second result
    at a point would equal the first. first: evaluations before the model chooses, results from elsewhere included; by
    default 5, which a model takes at least, or for the best in the end one per parameter, but a quarter of the horizon
    or of a list at most. horizon: queries after which `ask` ends, if that is known; data from elsewhere do not count.
    Without repeats, or noise as it has learnt, it ends when every candidate of a list was tried.
    limits: on quantities that are measured beside the objective, "impurity < 2", one or several; results bring their
    values, tell(query, y, limits={"impurity": 1.3}), and what is asked and recommended is likely to keep the limits.
    A table with a target (`Finite.from_table(…, target=…)`) starts it with the results that it holds.

    `ask` renews the model when the results have grown by a seventh; to read without asking, call `refresh()` first.
    Bands are mean ± 2 standard deviations, at no stated level; recommended is the best value that is likely, mean − 2
    standard deviations (+, where smaller is better). Conflicts are points whose own results and the model exclude each
    other.
    """

    abilities = Abilities(heeds_failures=True, takes_noise=True)
    doubts = True  # False where results are computed, and none can be a slip
    not_modelled: tuple[str, ...] = ()  # parameters of the results that the domain does not have, for sentences

    def __init__(
        self,
        domain: Domain,
        *,
        aim: str = "best",
        minimize: bool = False,
        noise: float | None = None,
        repeats: bool = True,
        first: int | None = None,
        horizon: int | None = None,
        limits: str | Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        self.limits = read_limits(limits)
        for name in names_of_limits(self.limits):
            if name in (getattr(domain, "parameters", None) or ()):
                raise InvalidInput(f"{shown(name)} is a parameter, which rules bound: where=… of the domain")
        known = None if noise is None else number("noise", noise, above=0)
        self._learner = Learner(domain, known, seed, exact=not flag("repeats", repeats))
        super().__init__(domain, self._learner.before_data(), grounded=True, minimize=minimize, seed=seed)
        self.horizon = self.limit = None if horizon is None else whole("horizon", horizon, at_least=1)
        self.noise, self.repeats = known, repeats
        self.aim, self.seed = one_of("aim", aim, ("best", "earn")), seed
        self.columns = self._learner.columns  # of the encoding, which belong to which parameter
        self.first = first_design(self) if first is None else whole("first", first, at_least=1)
        self._without.append("its model is learnt from the data: nothing is guaranteed")
        self._states: Array | None = None  # of the samplers; None before there is a model
        self._renewed = 0  # results at the last renewal
        self.doubted: list[int] = []  # rows of results that are not believed
        self.surprised = False  # by a result since then: the next ask renews the model
        self._unexplained = 1.0  # share of the results' variance that the model does not predict
        self._outcomes = Outcomes(domain, self._learner.columns, self._learner.reach)
        self.quantities = Quantities(self.limits, self.field, self._outcomes.told)
        self.settled: Any = None  # what sentences rest on, kept by `learnt.settled`
        # one posterior stands for a model before there is one, however many results come at once
        self._believe([self.model], Scaling(), FEATURES)
        given = getattr(domain, "observations", None)
        if self._fresh and given is not None and len(given.y):
            self.observe(given.indices, given.y)
        beside = getattr(domain, "outside_observations", None)
        if self._fresh and beside is not None and len(beside.y):
            self.observe(beside.points, beside.y)

    # -- the model -------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Renew the model now if it is missing or due, as the next `ask` would: for readers that do not ask."""
        with self._held():
            self._changed(self.prepare)

    @property
    def stale(self) -> bool:
        """Whether there are enough results for a first model, or twice as many as the model was learnt from: before
        reading, `refresh()`."""
        return self.t >= max(FIRST, STALE * self._renewed)

    @property
    def samples(self) -> dict[str, Any] | None:
        """The samples of its model as JSON, which an Auto on the same domain can `adopt`; None before the first."""
        with self._lock:
            latest = next((event[1] for event in reversed(self.log.events) if event[0] == "renew"), None)
            return None if latest is None else copied(latest)

    def retract(self, query: Any) -> None:
        """As any policy does; and the model is learnt again at once, without the result, if it is due."""
        with self._lock:
            super().retract(query)
            self.refresh()

    def adopt(self, samples: dict[str, Any]) -> None:
        """Go on with the samples of another Auto on the same domain, learnt from results that are told here too.

        They are renewed when there are more by a seventh than they were learnt from.
        """
        with self._held():
            checked = adoptable(self, samples)
            self._changed(lambda: self.on_event("renew", checked))

    def prepare(self) -> None:
        """Renew the model if it is due: an event that holds the samples."""
        if due(self.t, self._renewed) or self.surprised:
            self._adopt(learnt.renewal(self, self._learner, self._states, self.doubted))
            self._say("the model is renewed from %d results", self.t - len(self.doubted))

    def on_event(self, kind: str, *rest: Any) -> None:
        if kind != "renew":
            super().on_event(kind, *rest)
        (renewal,) = rest
        if isinstance(renewal, dict):
            adoptable(self, {"results": self.t, **renewal})  # which older states do not say
        self._adopt(renewal)

    def after_retraction(self, event: Event) -> Event | None:
        """Samples that were learnt from the result go with it."""
        return None if event[0] == "renew" else event

    def _adopt(self, renewal: dict[str, Any]) -> None:
        """Believe in these samples, given all results so far; where posteriors have room for some, the best ones come
        first."""
        told, models, scaling = self.observations, models_of(renewal, self.domain), Scaling(*renewal["scaling"][1:])
        self._states = np.array(renewal["states"])
        self._unexplained = float(renewal["unexplained"])
        self.doubted, self.surprised = doubt.rows_of(renewal.get("doubted", []), told), False
        self.model = max(models, key=lambda model: model.noise)  # own bands rest on the largest noise that is likely
        self._evidence = Evidence(self.field, self.model, DELTA, beside=True)
        self._own = self._evidence.own
        budget = budget_of(self.t, self.field.size)
        self._believe(models, scaling, budget)
        order = np.setdiff1d(np.arange(len(told.y)), self.doubted)
        z = scaling.to(self.log.sign * told.y)
        if budget is not None:
            best = np.sort(order[np.argsort(-z[order], kind="stable")[: len(order) // FIRST_FED]])
            order = np.concatenate([best, np.setdiff1d(order, best)])
        places = [self._outcomes.told[i] for i in order.tolist()]
        own = None if np.isnan(told.noise).all() else (told.noise[order] / scaling.width).tolist()
        self._evidence.observe(told.x[order], places, z[order].tolist(), own)
        for asked in self.log.pending.values():
            self._evidence.ask(asked.query.id, asked.place)
        self.quantities.adopt(renewal.get("limits", {}))
        self._renewed = int(renewal.get("results", self.t))
        self.log.add("renew", renewal)

    def _believe(self, models: Sequence[Model], scaling: Scaling, budget: int | None) -> None:
        """A posterior for each of the models, which the evidence feeds as one."""
        posteriors = [posterior_on(self.field, model, weights=False, budget=budget) for model in models]
        self._mixture = ModelAverage(posteriors, scaling)
        self._evidence.posteriors.append(self._mixture)  # type: ignore[arg-type]  # has the verbs of one

    def _surprise(self, actions: Actions, z: Array, noise: Array | float) -> bool:
        """Whether results, in the model's units, are far from what is believed before they are told; then a renewal is
        due. noise: their own."""
        if self._states is None:
            return False
        beliefs = self._mixture.look(self.field, self._own, actions, pending=False)
        far = bool((self._mixture.surprise(beliefs, z, noise) > SURPRISING).any())
        self.surprised |= far
        return far

    def on_tell(self, asked: Asked, y: float, noise: float | None = None) -> None:
        z, own = self._mixture.scaling.to([y]), None if noise is None else noise / self._mixture.scaling.width
        if self._surprise(asked.place.only(), z, own or 0.0):
            self._evidence.forget(asked.query.id, asked.place)  # not believed before the renewal that comes next
            self.doubted.append(self.t - 1)
        else:
            super().on_tell(asked, float(z[0]), own)
        self._outcomes.tell([asked.place], [y])

    def on_observe(
        self, actions: Actions, places: list[Place], y: list[float], noise: list[float] | None = None
    ) -> None:
        z, own = self._mixture.scaling.to(y), None if noise is None else np.array(noise) / self._mixture.scaling.width
        self._surprise(actions, z, 0.0 if own is None else np.nan_to_num(own))
        super().on_observe(actions, places, z.tolist(), None if own is None else own.tolist())
        self._outcomes.tell(places, y)

    def on_limits(self, places: Sequence[Place], values: Mapping[str, Sequence[float]]) -> None:
        self.quantities.tell(self.t - len(places), values)

    def on_drop(self, asked: Asked) -> None:
        """A query that is dropped teaches where evaluations fail, and no value."""
        super().on_drop(asked)
        self._outcomes.fail(asked.place)

    # -- choosing --------------------------------------------------------------------------------------------

    def available(self) -> int | None:
        left = None if self.horizon is None else self.horizon - self.asked
        if left is not None and left <= 0:
            raise HorizonReached(f"all {self.horizon} evaluations of the horizon are asked; see recommend()")
        if (new := untried(self)) is not None and len(new):
            left = len(new) if left is None else min(left, len(new))
        return left

    def choose(self, actions: Round) -> Decision:
        """By the table of `rules.py`."""
        new = untried(self) if actions is None else None
        if new is not None and not len(new):
            may = " that may keep the limits" if self.limits else ""
            if self.log.pending:  # one that fails may be tried again
                raise AwaitingResults(f"every candidate{may} was tried or is pending: tell or drop the pending ones")
            raise HorizonReached(f"every candidate{may} was tried, and a repeat would teach nothing; see recommend()")
        pending, outcomes = list(self.log.pending.values()), self._outcomes
        n = self.t + len(outcomes.dropped) + len(pending)
        if self._states is None or (n < self.first and actions is None):
            return self._first(actions if new is None else self.field.whole("").part(new), pending, actions)
        rule, found = choose(
            Turn(
                self.field, self._mixture, self._own, outcomes, self.quantities, self.doubted, actions, n,
                min(1.0, self._unexplained), pending, self._batch, self._parse, self.aim, self.repeats, new,
                self.horizon is not None and self.asked >= (1.0 - ENDING) * self.horizon,
            )
        )  # fmt: skip
        mean, std = (float(each[0]) for each in self._mixture.reported(*found.here()))
        details: dict[str, Any] = {"rule": rule}
        if found.probability is not None:
            details["probability"] = float(found.probability[found.row])
        return decision(self.field, actions, found.offer, found.row, mean=mean, std=std, details=details)

    def _first(self, offered: Round, pending: Sequence[Asked], actions: Round) -> Decision:
        """Before there is a model: of some random points the farthest from all others, on the side of successes."""
        offers = [self.field.draw(self._rng, offered) for _ in range(TRIED)]
        rows = [int(self._rng.integers(len(offer.points))) for offer in offers]
        places = [self.field.place(offer, row) for offer, row in zip(offers, rows, strict=True)]
        best = self._outcomes.spread([place.x for place in places], [asked.place.x for asked in pending])
        return Decision(places[best], position_in(actions, rows[best]), {"details": {"rule": "first"}})

    # -- what a user sees ------------------------------------------------------------------------------------

    @property
    def posterior_in_use(self) -> Any:
        """What is believed, in units of y; `posteriors` and `model` are in the model's own."""
        with self._lock:
            return self._mixture

    @property
    def posteriors(self) -> list[Posterior]:
        return list(self._mixture.posteriors)

    @property
    def noise_level(self) -> float:
        """The standard deviation of a result, in the user's units: as given, or the average over the samples; before
        there is a model, that of all results."""
        if self.noise is not None:
            return self.noise
        if self._states is None:
            return float(np.std(self._outcomes.y)) if self.t else 0.0
        return self._mixture.scaling.width * math.sqrt(float(np.mean(self._mixture.noises**2)))

    @property
    def caveats(self) -> list[str]:
        return super().caveats if self._states is not None else [why_none(self), *super().caveats]

    def band_at(self, actions: Actions) -> Band:
        if self._states is None and self.t:
            return band_before(self._outcomes, self.field, actions)
        mean, std = moments(*self._mixture.look(self.field, self._own, actions, pending=False)[:2])
        ends = [self._mixture.back(mean + sign * BAND * std) for sign in (-1.0, 1.0)]
        return Band(np.minimum(*ends), np.maximum(*ends))

    def mean_at(self, place: Place) -> float:
        if self._states is None and self.t:
            low, high = band_before(self._outcomes, self.field, place.only())
            return float(0.5 * low[0] + 0.5 * high[0])
        return float(self._mixture.at(place.x[None, :])[0][0])

    def contenders(self, within: Context | None = None) -> Actions:
        if self._states is None and self.t and within is None and not self.field.size:
            known = distinct(self.observations.x).points
            inside = known[self.domain.contains(known)]  # data from elsewhere may lie outside
            return self._parse(inside) if len(inside) else self.field.spread()
        if self.field.size:
            return self.field.spread()
        weights, turn = (self._outcomes.likely(SURE), self.quantities.kept(KEPT, EXACT_EDGE)), self.log.next_id

        def end(multiplier: float) -> Actions:
            score = upper(multiplier)
            return self.field.offer(
                lambda: self._mixture.search(score, self._own, turn, pending=False, weights=weights), within
            )

        return end(-BAND) + end(BAND)

    def usable(self, actions: Actions) -> NDArray[np.bool_]:
        """Those whose evaluation is not known to fail, or all if there are none; of these, those that are likely to
        keep the limits."""
        fails = self._outcomes.fails(actions.encoded, SURE, len(self.log.pending))
        return self.quantities.usable(actions, np.ones(len(fails), dtype=bool) if fails.all() else ~fails)

    def recommend(self, *, actions: ArrayLike | None = None, context: Any = None) -> Recommendation:
        """As any policy does; where there are limits, what is likely to keep them, and how likely."""
        with self._lock:
            found = super().recommend(actions=actions, context=context)
            if not self.limits:
                return found
            x = found.x if found.context is None else np.concatenate([found.x, found.context])
            return self.quantities.judged(found, self._parse(x[None, :]))

    # -- what was learnt -------------------------------------------------------------------------------------

    def summary(self, *, called: Sequence[str] | None = None) -> str:
        """What was learnt, in sentences: doubtful results, what to use, failures, the noise, what matters,
        contradictions, whether to go on. called: names of the results in the order told, by default their numbers."""
        with self._held():
            self._check("a summary", modelled=False)
            if self._states is None:
                missing = why_none(self)
                return f"{missing[0].upper()}{missing[1:]}."
            return "\n".join(learnt.sentences(learnt.Facts(self, called=called)))

    def probability(self, X: ArrayLike) -> Array:
        """The probability that the limits hold at points, by name or as rows, or at candidates by their indices."""
        with self._held():
            found = self.quantities.probability(actions := self._parse(X))
            return np.ones(len(actions.points)) if found is None else found

    def importance(self) -> dict[str, Importance]:
        """How much each parameter matters, by name: its share, a range of 90 %, and why it is not known yet, if so."""
        with self._held():
            self._check("importance")
            return learnt.importance_of(self)

    def chance(self, gain: float | None = None, within: int = 10) -> float:
        """The probability that what is best becomes better by at least `gain`, in your units, within so many further
        evaluations; by default by what is worth it: the noise, or 2 % of the spread of results if that is more.

        Corrected by what happened in runs whose truth was known (`gain.py`).
        """
        least = None if gain is None else number("gain", gain, above=0)
        whole("within", within, at_least=1, at_most=MOST_IMAGINED)
        with self._held():
            self._check("a chance of a gain")
            return learnt.chance(self, least, within)

    def _check(self, what: str, *, modelled: bool = True) -> None:
        """InvalidInput where no domain is the same in all rounds, or where there is no model."""
        if not self.field.fixed:
            raise InvalidInput(
                f"{what} is about a whole domain, and on {shown(self.domain)} it depends on the round; recommend(…) "
                "and band(…) answer for one"
            )
        if modelled and self._states is None:
            remedy = f"at least {FIRST} results; {self.t} are told" if self.t < FIRST else "refresh(), or ask()"
            raise InvalidInput(f"{what} needs a model, and so {remedy}")

    def find_suspicious(self, told: Observations) -> dict[int, Prediction]:
        """Results that the model is not learnt from (`doubt.py`) and that the others exclude; where it is stale, by the
        next one."""
        if not self.doubts:
            return {}
        doubted, renewal = self.doubted, self.samples
        if block := units.predictions(self._learner, told, self.log.sign, self._states):
            return block
        if self.stale or self.surprised or renewal is None:
            if self.t < FIRST:
                return {}
            renewal, doubted = doubt.learnt(self._learner, told, self.log.sign, self._states, doubted)
        predicted = doubt.Judge(self._learner, told, self.log.sign).predicted(renewal, doubted)
        return {row: each for row, each in predicted.items() if each.score > FAR}

    def find_conflicts(self, events: Sequence[tuple[Any, ...]]) -> list[Conflict]:  # noqa: ARG002  # of all of them
        """Points whose own band does not meet the model's. The learnt norm bound is not a claim, and proves nothing."""
        if self._states is None:
            return []
        own, mixture = self._evidence.own, self._mixture
        points, averages, _, radii = own.table()
        mean, std = moments(*mixture.look(self.field, None, self._parse(points), pending=False)[:2])
        low, high = mean - BAND * std, mean + BAND * std
        side = np.where(averages + radii < low, -1.0, np.where(averages - radii > high, 1.0, 0.0))
        gaps = np.abs(mixture.back(averages - side * radii) - mixture.back(mean + side * BAND * std)).tolist()
        keys = own.keys()
        indices = [key if isinstance(key, int) and self.field.indexed else None for key in keys]
        return [Conflict(points[i], indices[i], gaps[i], gaps[i]) for i in np.flatnonzero(side).tolist()]
