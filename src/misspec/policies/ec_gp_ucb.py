"""EC-GP-UCB: enlarged confidence bounds for a known misspecification (the paper's Algorithm 1), and GP-UCB (Srinivas et
al. 2010), the baseline of the field.

2   μ_0 = 0, σ_0² = k(x,x)
3   for t = 1, 2, …
4       play x_t ∈ argmax μ_{t−1}(x) + (β_t + ε√t/√λ)·σ_{t−1}(x)       `decide`
5       observe y_t                                                     `Policy.tell`
6       update μ_t and σ_t                                              `Evidence.learn`
"""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

from misspec.domains import Domain
from misspec.errors import number
from misspec.model import Model
from misspec.policies.core.answers import Decision
from misspec.policies.core.field import RESOLUTION, Field
from misspec.policies.core.hooks import Abilities
from misspec.policies.core.points import Actions, Candidates, Round, first_alike, position_in
from misspec.policies.core.registry import UCB, Common, Delayed
from misspec.policies.enlarged import Banded, Enlarged, keeps_weights
from misspec.theory.widths import Width


class Maximiser(NamedTuple):
    """A choice: the offer, what is known of it, the row chosen, and the reasons (fields of Query)."""

    offer: Actions
    known: Candidates
    row: int
    reasons: dict[str, float]

    def decision(self, field: Field, offered: Round, **details: Any) -> Decision:
        return decision(field, offered, self.offer, self.row, **self.reasons, **details)


def decision(field: Field, offered: Round, offer: Actions, row: int, **reasons: Any) -> Decision:
    """To play a row of an offer; reasons: fields of Query."""
    return Decision(field.place(offer, row), position_in(offered, row), reasons)


def decide(ends: Enlarged, field: Field, offered: Round, turn: int) -> Maximiser:
    """Line 4, on whatever posterior the ends are of: also what the bases of balancing play."""
    offer = field.offer(lambda: ends.search(turn), offered)
    c = field.look(ends.posterior, ends.own, offer, pending=True)
    std = ends.std(c)
    # β_t = B + (σ/√λ)·√(2 ln(1/δ) + log det(I + K_{t−1}/λ)), if width="lemma1"
    multiplier = ends.inflation * ends.multiplier
    # ε√t/√λ, if enlargement="paper"; what is not a multiple of σ is added by `maximiser`
    slope = ends.inflation * ends.slope
    # 4   x_t ∈ argmax μ*_{t−1}(x) + (β_t + ε√t/√λ)·σ_{t−1}(x)
    row, added, upper = ends.maximiser(c, c.mean + (multiplier + slope) * std)
    row = first_alike(offer, row)
    mean, here = float(c.mean[row]), float(std[row])
    reasons = {"mean": mean, "std": here, "multiplier": multiplier, "enlargement": added + slope * here, "upper": upper}
    return Maximiser(offer, c, row, reasons)


class UpperConfidence(Banded):
    """Algorithm 1 for any ε and enlargement: one posterior, and the maximiser of its upper end."""

    abilities = Abilities(draws=False, takes_noise=True)

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        epsilon: float = 0.0,
        enlargement: str | None = None,
        width: Width = "mixture",
        grounded: bool = False,
        corruption: float = 0.0,
        inflate: bool = False,
        budget: int | None = None,
        resolution: float | None = RESOLUTION,
        **settings: Unpack[Delayed],
    ) -> None:
        super().__init__(domain, model, grounded=grounded, resolution=resolution, **settings)
        model = self.model
        epsilon = number("epsilon", epsilon, at_least=0)
        weights = keeps_weights(enlargement, [epsilon], budget)
        # 2   μ_0 = 0, σ_0² = k(x,x), plus the model's offset
        self._ends = Enlarged(
            model, self._evidence.posterior(model, weights=weights, budget=budget), self._own, epsilon=epsilon,
            width=width, enlargement=enlargement, delta=self._delta, corruption=corruption, inflate=inflate,
            flat=not self.field.fixed,
        )  # fmt: skip
        self._promise(self._ends.width, model)
        if self.posterior_in_use.budget is not None:
            self.theorem = ""  # what a budget misses is in the bands, not in the theorem

    def choose(self, actions: Round) -> Decision:
        return decide(self._ends, self.field, actions, self.log.next_id).decision(self.field, actions)  # 4

    def unsummed(self) -> str:
        ours = type(self).__module__.startswith("misspec.") or "unsummed" in vars(type(self))
        if not ours:
            return "it is a policy of its own; override unsummed() and name its counters"
        if self.field.searched:
            return "points are searched for near those that were observed, and none can be forgotten"
        if not self.field.size and self._ends.exact():
            return "its enlargement weighs every point that was observed; enlargement='norm2' does not"
        return ""

    @property
    def _reported(self) -> Enlarged:
        return self._ends


class GPUCB(UpperConfidence):
    """x_t maximises μ_{t−1}(x) + multiplier_t·σ_{t−1}(x).

    grounded: use the intersection with the own bands of observed points. width ("mixture", "lemma1", a number or a
    function), inflate, budget, resolution, delays, minimize, seed: `policies/core/registry.py` says what each does.
    """

    theorem = "Theorem 1"

    def __init__(self, domain: Domain, model: Model, *, grounded: bool = False, **settings: Unpack[UCB]) -> None:
        super().__init__(domain, model, grounded=grounded, **settings)

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, **settings: Unpack[Common]) -> GPUCB:
        """With the multiplier of the paper's Lemma 1, ungrounded."""
        return cls(domain, model, width="lemma1", **settings)


class ECGPUCB(UpperConfidence):
    """x_t maximises μ_{t−1}(x) + multiplier_t·σ_{t−1}(x) + enlargement_t(x); grounded, the upper end of the band.

    epsilon: ε, the sup-norm distance of the truth from the class; 0 makes it GP-UCB.
    enlargement: "exact" (ε‖ζ(x)‖₁, the largest bias that any misfit within ±ε can cause), "norm2" (ε√t‖ζ(x)‖₂, at most
    √t times wider and of a cost that does not grow with t), or "paper" (ε√t/√λ·σ(x), never narrower). None: exact, but
    norm2 at points that a round has brought, where every observed point would have a weight.
    width, grounded, inflate, budget, resolution, delays: as for GPUCB.
    """

    theorem = "Theorem 1"

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        epsilon: float,
        enlargement: str | None = None,
        grounded: bool = True,
        **settings: Unpack[UCB],
    ) -> None:
        super().__init__(domain, model, epsilon=epsilon, enlargement=enlargement, grounded=grounded, **settings)

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, *, epsilon: float, **settings: Unpack[Common]) -> ECGPUCB:
        """Algorithm 1 to the letter: Lemma 1's multiplier, the enlargement ε√t/√λ·σ, ungrounded."""
        return cls(domain, model, epsilon=epsilon, enlargement="paper", width="lemma1", grounded=False, **settings)
