"""CORRAL over EC-GP-UCB bases: bases as arms of an adversarial bandit (a comparator, not from the paper).

Agarwal, Luo, Neyshabur & Schapire, Corralling a band of bandit algorithms (COLT 2017); for bases that expect stochastic
rewards, Pacchiano et al., Model selection in contextual stochastic bandit problems (NeurIPS 2020).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np

from misspec import theory
from misspec.domains import Domain
from misspec.errors import Array, InvalidInput, flag, number, one_of, vector, whole
from misspec.model import Model
from misspec.policies.bases import Ledger, OverBases
from misspec.policies.core.answers import Decision
from misspec.policies.core.evidence import posterior_on
from misspec.policies.core.field import RESOLUTION
from misspec.policies.core.log import Asked, Event
from misspec.policies.core.points import Actions, Place, Round
from misspec.policies.core.registry import Delayed
from misspec.policies.ec_gp_ucb import decide
from misspec.policies.enlarged import Enlarged, keeps_weights
from misspec.theory.widths import Width


class Past(NamedTuple):
    """A policy that a base had: the point it chose, of the whole domain or not, and how many results it knew then."""

    id: int
    place: Place
    whole: bool
    known: int


class Corral(OverBases):
    """Draws the base that plays with probabilities that it learns from importance-weighted losses.

    p_{t+1} is a step of online mirror descent with the log-barrier Σ ln(1/p_i)/η_i; η_i grows by e^{1/ln T} whenever
    1/p_i passes its threshold ρ_i. Losses are ½ − (y − offset)/range, clipped to [0, 1].

    horizon: T. stochastic: every round has two steps. In the first the base plays and learns; in the second it plays
    one of the policies that it had so far, drawn uniformly, and the loss of that is the master's. Without, rounds have
    one step, from which both learn. The importance-weighted rewards that the first paper hands to its bases have no
    noise for which any width holds: bases learn results as they are, and only when they play.
    epsilons: ε̂ of the bases; None: those of RegretBalancing, up to B. evidence: "own" (each base learns from its own
    rounds) or "shared" (all learn from all). learning_rate: η; None: √(M/T). reward_range: 2(B + the largest ε̂) by
    default. width, enlargement, grounded, resolution, delays: as for ECGPUCB.

    To read: `epsilons`, `probabilities`, `learning_rates`, `thresholds` (1/p above which a rate grows), `counts`. Bands
    are those of the most cautious base.
    """

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        horizon: int,
        stochastic: bool = True,
        evidence: str = "own",
        epsilons: Sequence[float] | None = None,
        learning_rate: float | None = None,
        reward_range: float | None = None,
        width: Width = "mixture",
        enlargement: str | None = None,
        grounded: bool = True,
        resolution: float | None = RESOLUTION,
        **settings: Unpack[Delayed],
    ) -> None:
        super().__init__(domain, model, grounded=grounded, resolution=resolution, **settings)
        model = self.model
        T = self.horizon = whole("horizon", horizon, at_least=2)
        self._stochastic = flag("stochastic", stochastic)
        self._shared = one_of("evidence", evidence, ("own", "shared")) == "shared"
        given = theory.halving_candidates(T, model.norm_bound) if epsilons is None else vector("epsilons", epsilons)
        self.epsilons = [number("epsilon of a base", e, at_least=0) for e in given]
        M = len(self.epsilons)
        if not M:
            raise InvalidInput("epsilons must hold a candidate for every base, got none; None makes a grid of them")
        self._promise(width, model)
        pairs = [(model, e) for e in self.epsilons]
        self._bases = self._make_bases(pairs, shared=self._shared, enlargement=enlargement, width=width)
        most = 2.0 * (model.norm_bound + max(self.epsilons))
        self._range = most if reward_range is None else number("reward_range", reward_range, above=0)
        rate = math.sqrt(M / T) if learning_rate is None else number("learning_rate (η)", learning_rate, above=0)
        # γ = 1/T, β = e^{1/ln T}, η_i = η, ρ_i = 2M, p_i = p̄_i = 1/M
        self._mixed, self._growth = 1.0 / T, math.exp(1.0 / math.log(T))
        self.learning_rates = np.full(M, rate)
        self.thresholds = np.full(M, 2.0 * M)
        self._p = self.probabilities = np.full(M, 1.0 / M)
        self._ledger = Ledger(M)
        self.counts = self._ledger.N  # told rounds, steps of the second kind included
        self._half: Asked | None = None  # a first step whose second is next
        self._pasts: list[list[Past]] = [[] for _ in range(M)]
        self._known: list[list[tuple[Array, float]]] = [[] for _ in range(M)]  # what each base knows, in order

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, *, horizon: int, **options: Any) -> Corral:
        """Stochastic CORRAL over EC-GP-UCB as in its own paper; options: epsilons, learning_rate, reward_range."""
        chosen: dict[str, Any] = {"width": "lemma1", "enlargement": "paper", "grounded": False, **options}
        return cls(domain, model, horizon=horizon, **chosen)

    # -- the algorithm ---------------------------------------------------------------------------------------

    def choose(self, actions: Round) -> Decision:
        if self._half is not None:  # step 2: one of the base's policies so far
            i, p = self._half.details["base"], self._half.details["probability"]
            return self._replay_one(i, p, self._pasts[i][int(self._rng.integers(len(self._pasts[i])))], actions)
        # i_t ~ p̄_t; step 1, or the only one: its next policy
        i = int(np.searchsorted(np.cumsum(self.probabilities), self._rng.random(), side="right"))
        i = min(i, len(self._bases) - 1)
        details = {"base": i, "probability": float(self.probabilities[i]), "step": 1 if self._stochastic else 0}
        details |= {"whole": self._is_whole(actions), "known": len(self._known[i])}
        decided = decide(self._bases[i], self.field, actions, self.log.next_id)
        return decided.decision(self.field, actions, details=details)

    def _replay_one(self, i: int, p: float, past: Past, actions: Round) -> Decision:
        """The choice of a base with the posterior that it had then, and the own bands of today; where the
        domain is the same, what it has played. Otherwise all of its past is learnt again: O(t) per round."""
        details = {"base": i, "probability": p, "step": 2, "policy": past.id}
        base = self._bases[i]
        if past.whole and self._is_whole(actions):
            c = self.field.look(base.posterior, None, past.place.only(), pending=True)
            mean, std = float(c.mean[0]), math.sqrt(c.variance[0])
            return Decision(past.place, None, {"mean": mean, "std": std, "details": details})
        then = copy.copy(base)
        weights = keeps_weights(base.enlargement, [base.epsilon], None)
        then.posterior = posterior_on(self.field, self.model, weights=weights, budget=None)
        if past.known:
            then.posterior.observe(*map(np.array, zip(*self._known[i][: past.known], strict=True)))
        decided = decide(then, self.field, actions, self.log.next_id)
        return decided.decision(self.field, actions, details=details)

    def _count(self, asked: Asked, y: float) -> None:
        """The master learns the loss of the only step, or of the second for both."""
        i, step = self._ledger.count(asked, y), asked.details["step"]
        if step == 1:
            return
        loss = min(max(0.5 - (y - self.model.offset) / self._range, 0.0), 1.0)
        losses = np.zeros(len(self._p))
        losses[i] = (2.0 if step == 2 else 1.0) * loss / asked.details["probability"]
        self._p = log_barrier_step(self._p, losses, self.learning_rates)
        self.probabilities = (1.0 - self._mixed) * self._p + self._mixed / len(self._p)
        grown = 1.0 / self.probabilities > self.thresholds
        self.thresholds = np.where(grown, 2.0 / self.probabilities, self.thresholds)
        self.learning_rates = np.where(grown, self._growth * self.learning_rates, self.learning_rates)

    # -- its parts -------------------------------------------------------------------------------------------

    def _is_whole(self, actions: Round) -> bool:
        return self.field.fixed and (
            actions is None or (isinstance(actions, Actions) and actions.are_all(self.field.size))
        )

    def after_retraction(self, event: Event) -> Event | None:
        if event[0] == "ask":
            raise InvalidInput("Corral has chosen by this result since then; begin again without it")
        return event

    def check_details(self, details: Mapping[str, Any]) -> None:
        i = whole("base of a stored query", details.get("base"), at_most=len(self._bases) - 1)
        step = whole("step of a stored query", details.get("step"), at_most=2)
        if not 0 < number("probability of a stored query", details.get("probability")) <= 1:
            raise InvalidInput(f"probability of a stored query must lie in (0, 1], got {details['probability']!r}")
        if (step == 2) != (self._half is not None) or (step == 0) == self._stochastic:
            raise InvalidInput(f"step {step} of a stored query was not the next one")
        if step == 1:
            flag("whole of a stored query", details.get("whole"))
            whole("known of a stored query", details.get("known"), at_most=len(self._known[i]))

    def on_ask(self, asked: Asked) -> None:
        super().on_ask(asked)
        details = asked.details
        if asked.of_others:
            return
        if not self._shared:
            feeds = [] if details["step"] == 2 else [self._bases[details["base"]].posterior]
            self._evidence.restrict(asked.query.id, feeds)
        if details["step"] == 1:
            past = Past(asked.query.id, asked.place, details["whole"], details["known"])
            self._pasts[details["base"]].append(past)
        self._half = asked if details["step"] == 1 else None

    def on_tell(self, asked: Asked, y: float, noise: float | None = None) -> None:  # noqa: ARG002  # none
        feeds = self._evidence.feeds(asked.query.id)
        super().on_tell(asked, y)
        for i in range(len(self._bases)):
            if any(self._bases[i].posterior is fed for fed in feeds):
                self._known[i].append((asked.place.x, y))

    def on_observe(self, actions: Actions, places: list[Place], y: list[float], noise: Any = None) -> None:
        super().on_observe(actions, places, y, noise)
        for told in self._known:
            told += [(place.x, value) for place, value in zip(places, y, strict=True)]

    def on_drop(self, asked: Asked) -> None:
        """A base forgets the policy of a first step; a round whose second is dropped teaches the master nothing."""
        super().on_drop(asked)
        if not asked.of_others:
            i = asked.details["base"]
            self._pasts[i] = [past for past in self._pasts[i] if past.id != asked.query.id]
            if self._half is not None and self._half.query.id == asked.query.id:
                self._half = None

    # -- what a user sees ------------------------------------------------------------------------------------

    @property
    def _reported(self) -> Enlarged:
        """The most cautious one."""
        return self._bases[int(np.argmax(self.epsilons))]

    @property
    def facts(self) -> dict[str, Any]:
        return {"epsilons": list(self.epsilons), "counts": list(self.counts)}


def log_barrier_step(p: Array, losses: Array, rates: Array) -> Array:
    """p′ with 1/p′_i = 1/p_i + η_i(ℓ_i − λ), λ between the losses such that Σp′_i = 1: by bisection."""
    low, high = float(losses.min()), float(min(losses.max(), (losses + 1.0 / (rates * p)).min()))
    for _ in range(200):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        inverse = 1.0 / p + rates * (losses - middle)
        if (inverse > 0).all() and float((1.0 / inverse).sum()) <= 1.0:
            low = middle
        else:
            high = middle
    stepped = 1.0 / (1.0 / p + rates * (losses - low))
    return np.asarray(stepped / stepped.sum())
