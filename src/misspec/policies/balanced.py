"""Balancing of any policies by learnt coefficients (ED²RB, `bases.Learnt`): each plays rounds of its own.

    ask     the base with the smallest potential φ_i chooses; the others know that the query is pending
    tell    every base learns the result (evidence="shared"), or the one that played (evidence="own"); N_i and J_i,
            then d̂_i and φ_i of the base that played

A base is asked through its hooks, as `Policy` asks itself: `choose` in `ask` alone, all else as events that a state
replays. Queries of other bases are evidence for it, as those of `mark_pending` are; what it records for itself (the
model that `Auto` learns) is an event ("base", i, kind, …) of the balanced policy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec import kernels, theory
from misspec.errors import Array, AwaitingResults, HorizonReached, InvalidInput, number, one_of, shown, whole
from misspec.model import Model
from misspec.policies.auto import Auto
from misspec.policies.bases import ActionSets, Learnt, Ledger, check_base
from misspec.policies.core.answers import Band, Conflict, Decision, Observations, Query
from misspec.policies.core.fields import state_of
from misspec.policies.core.hooks import Abilities
from misspec.policies.core.log import OTHERS, Asked, Event
from misspec.policies.core.points import Actions, Context, Place, Round
from misspec.policies.core.policy import Policy
from misspec.policies.core.registry import made
from misspec.policies.core.suspicion import Prediction
from misspec.posterior import Posterior

UNKNOWN = 1.0  # stands for the noise while it is neither given nor learnt and all results are equal
CHOSEN = "the rewards chose the base whose band this is: 1 − δ is for each base by itself"


class Balanced(Policy):
    """Several policies of one domain by turns: the better one learns to lead, whichever it is.

    policies: at least one, none of which was asked or told anything; they are made again here, and draw from the
    random state of this policy. evidence: "shared" (all bases learn from all rounds) or "own" (each from its own, for
    phased policies too). noise: σ in units of y; by default the largest of those that the bases were given, or where
    all of them learn it (`Auto`), the largest that is learnt, which is renewed with them. reward_range: how far
    expected rewards can lie apart, for rounds that differ in what they offer; by default the largest 2(B + ε) of the
    bases, or the range of the results. delta: of the comparison of rewards.

    A base is judged by the results of its own rounds: N and J, in the order asked, up to the first pending one.
    `theory.learnt_bound` says what regret is, in terms of the best base's. Bands, recommendation, conflicts and
    posterior are those of the base that has played most.

    To read: `counts`, `rewards` (N, J of each base), `coefficients`, `potentials` (d̂ and φ, in units of the noise),
    `policies` (the bases themselves: for reading only), `leader` (the number of the one that has played most).
    """

    def __init__(
        self,
        policies: Sequence[Policy],
        *,
        evidence: str = "shared",
        delta: float = 0.1,
        noise: float | None = None,
        reward_range: float | None = None,
        seed: int = 0,
    ) -> None:
        self._shared = one_of("evidence", evidence, ("shared", "own")) == "shared"
        first = _checked(policies, shared=self._shared)
        self.abilities = _abilities(policies)
        super().__init__(first.domain, first.model_as_given, minimize=first.minimize, seed=seed)
        self._share = number("delta", delta, above=0, below=1)
        remade = [made(type(each), first.domain, each.model_as_given, each.settings) for each in policies]
        self.policies: tuple[Policy, ...] = tuple(remade)  # before all their events
        known = [sigma for each in self.policies if (sigma := _given(each)) is not None]
        self.noise = number("noise", noise, above=0) if noise is not None else max(known, default=None)
        self._range = None if reward_range is None else number("reward_range", reward_range, above=0)
        self.log.independent = all(each.log.independent for each in self.policies)
        limits = [each.limit for each in self.policies]
        self.limit = None if None in limits else sum(filter(None, limits))
        self._without += [CHOSEN] if len(self.policies) > 1 else self.policies[0]._without
        self._ledger = Ledger(len(self.policies))
        self.counts, self.rewards = self._ledger.N, self._ledger.J
        self._learnt = Learnt(len(self.policies))
        self.coefficients, self.potentials = self._learnt.coefficients, self._learnt.potentials
        self._offers = ActionSets(self.field)
        self._ends = (np.inf, -np.inf)  # the smallest and the largest result of any round that counts
        given = getattr(self.domain, "observations", None)
        if self._fresh and given is not None and any(each.t for each in policies):  # a table with results
            self.observe(given.indices, given.y)

    # -- the algorithm ---------------------------------------------------------------------------------------

    def choose(self, actions: Round) -> Decision:
        """The base with the smallest potential, pending rounds included, of those that can be asked now."""
        for base in self.policies:
            base._evidence.expect()
        potentials = [self._learnt.potential(i, self._ledger) for i in range(len(self.policies))]
        ends: list[AwaitingResults | HorizonReached] = []
        for i in np.argsort(potentials, kind="stable").tolist():
            base = self.policies[i]
            try:
                base.available()
                base._rng, base._batch = self._rng, self._batch
                self._renew(i)
                place, position, reasons = base.choose(actions)
            except (AwaitingResults, HorizonReached) as error:
                ends.append(error)
                continue
            details = {"base": i, "offer": self._offers.digest(actions), "own": reasons.get("details", {})}
            return Decision(place, position, {**reasons, "details": details})
        raise ends[0]

    def _count(self, asked: Asked, y: float) -> None:
        """A round counts: N_i, J_i; h; d̂_i and φ_i."""
        i = self._ledger.count(asked, y)
        self._ends = min(self._ends[0], y), max(self._ends[1], y)
        if self.noise is None or self._offers.vary:  # σ or the range has changed
            self._ledger.h.clear()
        self._ledger.fill(self.comparison_radius)
        self._learnt.learn(i, self._ledger, self.noise_level)

    def comparison_radius(self, n: Array) -> Array:
        """h: how far an average of n rewards may stray, and of the maximum where action sets vary."""
        s = theory.elimination_spread(self.noise_level, [self._reach], varying=self._offers.vary)
        return theory.elimination_radius(n, len(self.policies), self._share, s, "anytime")

    @property
    def noise_level(self) -> float:
        """σ in units of y: as given, or as the bases have learnt it."""
        return self.noise or max(each.noise_level for each in self.policies if isinstance(each, Learning)) or UNKNOWN

    @property
    def _reach(self) -> float:
        """How far expected rewards can lie apart."""
        known = [
            2.0 * (each.model.norm_bound + each.epsilon) for each in self.policies if not isinstance(each, Learning)
        ]
        return self._range or max(known, default=max(0.0, self._ends[1] - self._ends[0]))

    # -- events ----------------------------------------------------------------------------------------------

    def available(self) -> int | None:
        counts: list[int | None] = []
        ends: list[AwaitingResults | HorizonReached] = []
        for base in self.policies:
            try:
                counts.append(base.available())
            except (AwaitingResults, HorizonReached) as error:
                ends.append(error)
        if not counts:
            raise next((error for error in ends if isinstance(error, AwaitingResults)), ends[0])
        return None if None in counts else sum(filter(None, counts))

    def admit(self, actions: Actions) -> Actions:
        for base in self.policies:
            kernels.check_bounded(base.model.kernel, actions.encoded, "the points handed in, for the kernel of a base")
            base.admit(actions)
        return actions

    def check_details(self, details: Mapping[str, Any]) -> None:
        base = self.policies[check_base(details, len(self.policies))]
        if not isinstance(details.get("own"), dict):
            raise InvalidInput(f"what a base noted of a stored query must be a dict, got {shown(details.get('own'))}")
        base.check_details(details["own"])

    def on_ask(self, asked: Asked) -> None:
        query, details, others = asked.query, asked.details, asked.of_others
        for i, base in enumerate(self.policies):
            if not others and i == details["base"]:
                base._register(dataclasses.replace(query, details=details["own"]), asked.place)
            elif others or self._shared:
                theirs = {OTHERS: details[OTHERS] if others else query.id}
                base._register(dataclasses.replace(query, details=theirs), asked.place)
            else:
                base._evidence.expect()  # as `choose` does: restored or not, the same steps
            base.log.calls = self.log.calls  # rounds of another base are chosen in turn, and no call of others
        if not others:
            self._offers.see(details["offer"])
            self._ledger.ask(asked)

    def on_tell(self, asked: Asked, y: float, noise: float | None = None) -> None:
        super().on_tell(asked, y, noise)
        for base in self.policies:
            if (pending := base.log.pending.get(asked.query.id)) is not None:
                base._replaying = self._replaying
                base._learn(pending, self.log.sign * y)
        for counted, value in [] if asked.of_others else self._ledger.tell(asked, y):
            self._count(counted, value)

    def on_drop(self, asked: Asked) -> None:
        super().on_drop(asked)
        for base in self.policies:
            if (pending := base.log.pending.get(asked.query.id)) is not None:
                base.log.add("drop", asked.query.id)
                base.on_drop(pending)
        for counted, value in [] if asked.of_others else self._ledger.drop(asked):
            self._count(counted, value)

    def on_observe(
        self, actions: Actions, places: list[Place], y: list[float], noise: list[float] | None = None
    ) -> None:
        super().on_observe(actions, places, y, noise)
        points, *contexts = actions.stored(indexed=self.field.indexed)
        for base in self.policies:
            base._learn_from(points, [self.log.sign * value for value in y], *(contexts or [None]))
            base.log.calls = self.log.calls

    def _renew(self, *bases: int) -> None:
        """Let bases do what they do before a query is chosen; what they record is an event here too."""
        for i in bases:
            base = self.policies[i]
            before = len(base.log.events)
            base.prepare()
            for event in base.log.events[before:]:
                self.log.add("base", i, *event)

    @property
    def stale(self) -> bool:
        """Whether a base that learns its model should do so before reading: `refresh()`."""
        return any(each.stale for each in self.policies if isinstance(each, Learning))

    def refresh(self) -> None:
        """Renew the models that are missing or due, as `ask` does for the base that is asked: for reading."""
        with self._held():
            self._changed(lambda: self._renew(*range(len(self.policies))))

    def retract(self, query: Query | int) -> None:
        """As any policy does; bases that learn their models learn them again at once."""
        with self._held():
            super().retract(query)
            self.refresh()

    def on_event(self, kind: str, *rest: Any) -> None:
        if kind != "base":
            super().on_event(kind, *rest)
        i = whole("base of a stored event", rest[0], at_most=len(self.policies) - 1)
        self.policies[i].on_event(*rest[1:])
        self.log.add("base", *rest)

    def after_retraction(self, event: Event) -> Event | None:
        """Of the base that an event is of."""
        if event[0] == "base":
            left = self.policies[event[1]].after_retraction(event[2:])
            return None if left is None else ("base", event[1], *left)
        own = event[0] == "ask" and OTHERS not in event[1].details
        if own and self.policies[event[1].details["base"]].after_retraction(event) is None:
            return None
        return event

    # -- what a user sees ------------------------------------------------------------------------------------

    @property
    def leader(self) -> int:
        """The base that has played most, of several the first."""
        return int(np.argmax(self.counts))

    @property
    def _speaker(self) -> Policy:
        return self.policies[self.leader]

    def band_at(self, actions: Actions) -> Band:
        return self._speaker.band_at(actions)

    def mean_at(self, place: Place) -> float:
        return self._speaker.mean_at(place)

    def contenders(self, within: Context | None = None) -> Actions:
        return self._speaker.contenders(within)

    def usable(self, actions: Actions) -> NDArray[np.bool_]:
        return self._speaker.usable(actions)

    def find_conflicts(self, events: Sequence[Event]) -> list[Conflict]:  # noqa: ARG002  # those of its own log
        return self._speaker.conflicts()

    def find_suspicious(self, told: Observations) -> dict[int, Prediction]:
        theirs = self._speaker.observations
        rows = np.flatnonzero((told.ids < 0) | np.isin(told.ids, theirs.ids))
        return {int(rows[row]): each for row, each in self._speaker.find_suspicious(theirs).items()}

    @property
    def caveats(self) -> list[str]:
        """Those of the base that speaks, and what else keeps its band from being guaranteed."""
        caveats = super().caveats
        return [*caveats, *(each for each in self._speaker.caveats if each not in caveats)]

    @property
    def posterior_in_use(self) -> Posterior:
        return self._speaker.posterior_in_use

    @property
    def posteriors(self) -> list[Posterior]:
        return self._speaker.posteriors

    @property
    def epsilon(self) -> float:
        return self._speaker.epsilon

    @property
    def reported_model(self) -> Model:
        return self._speaker.reported_model

    @property
    def facts(self) -> dict[str, Any]:
        names = [type(each).__name__ for each in self.policies]
        learnt = {"coefficients": list(self.coefficients), "potentials": list(self.potentials)}
        return {"bases": names, "counts": list(self.counts), **learnt}

    def __repr__(self) -> str:
        names = ", ".join(type(each).__name__ for each in self.policies)
        shares = ", ".join(map(str, self.counts))
        return f"Balanced([{names}] on {self.domain!r}; rounds {shares}, t={self.t}, pending={len(self.log.pending)})"


Learning = Auto | Balanced  # policies that may learn their models, and have no noise of their own to begin with


def _given(base: Policy) -> float | None:
    """σ of a base in units of y; None where it learns that."""
    return base.noise if isinstance(base, Learning) else base.model.noise


def _checked(policies: Any, *, shared: bool) -> Policy:
    """The first of policies that can be balanced."""
    several = isinstance(policies, list | tuple) and len(policies) > 0
    if not several or not all(isinstance(each, Policy) for each in policies):
        raise InvalidInput(f"policies must be a list of at least one policy, got {shown(policies)}")
    first: Policy = policies[0]
    for each in policies:
        name, known = type(each).__name__, state_of(each.domain)
        if each.domain is not first.domain and (len(known) == 1 or known != state_of(first.domain)):
            raise InvalidInput(f"policies must be on one domain, got {shown(first.domain)} and {shown(each.domain)}")
        if each.minimize != first.minimize:
            raise InvalidInput("policies must agree whether smaller is better: make all with the same minimize=")
        held = getattr(each.domain, "observations", None)  # results of a table, which it begins with
        begins = 0 if held is None else len(held.y)
        if any(event[0] != "observe" for event in each.log.events) or each.t > begins:
            raise InvalidInput(f"a {name} that was asked or told something cannot be balanced: hand in a new one")
        if shared and not each.abilities.takes_data:
            raise InvalidInput(f'{name} learns from its own rounds alone: balance it with evidence="own"')
    return first


def _abilities(policies: Sequence[Policy]) -> Abilities:
    each = [policy.abilities for policy in policies]
    return Abilities(
        takes_actions=all(a.takes_actions for a in each),
        takes_points=all(a.takes_points for a in each),
        takes_data=all(a.takes_data for a in each),
        waits=any(a.waits for a in each),
        keeps_rounds=True,
        draws=any(a.draws for a in each),
        heeds_failures=any(a.heeds_failures for a in each),
    )
