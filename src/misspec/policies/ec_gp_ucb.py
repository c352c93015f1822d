"""EC-GP-UCB: enlarged confidence bounds for a known misspecification (the paper's Algorithm 1).

2   μ_0 = 0, σ_0² = k(x,x)
3   for t = 1, 2, …
4       play x_t ∈ argmax μ_{t−1}(x) + (β_t + ε√t/√λ)·σ_{t−1}(x)       `decide`
5       observe y_t                                                     `Policy.tell`
6       update μ_t and σ_t                                              `Evidence.learn`
"""

from __future__ import annotations

from typing import NamedTuple, Unpack

from misspec.domains import Domain
from misspec.errors import flag, number
from misspec.model import Model
from misspec.policies.core.answers import Band, Decision
from misspec.policies.core.field import RESOLUTION, Field
from misspec.policies.core.hooks import Abilities
from misspec.policies.core.points import Actions, Candidates, Context, Round, first_alike, position_in
from misspec.policies.core.policy import Policy
from misspec.policies.core.registry import UCB, Common, Delayed
from misspec.policies.enlarged import Enlarged, keeps_weights
from misspec.posterior import Posterior
from misspec.theory.widths import Width


class Maximiser(NamedTuple):
    """A choice: the offer, what is known of it, the row chosen, and the reasons (fields of Query)."""

    offer: Actions
    known: Candidates
    row: int
    reasons: dict[str, float]


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
    here = float(std[row])
    reasons = {
        "mean": float(c.mean[row]), "std": here, "multiplier": multiplier, "enlargement": added + slope * here,
        "upper": upper,
    }  # fmt: skip
    return Maximiser(offer, c, row, reasons)


class UpperConfidence(Policy):
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
        parts = 2 if flag("grounded", grounded) else 1  # of δ: the model's width, and the own bands
        super().__init__(domain, model, grounded=grounded, parts=parts, resolution=resolution, **settings)
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
        offer, _, row, reasons = decide(self._ends, self.field, actions, self.log.next_id)  # 4
        return Decision(self.field.place(offer, row), position_in(actions, row), reasons)

    def unsummed(self) -> str:
        ours = type(self).__module__.startswith("misspec.") or "unsummed" in vars(type(self))
        if not ours:
            return "it is a policy of its own; override unsummed() and name its counters"
        if self.field.searched:
            return "points are searched for near those that were observed, and none can be forgotten"
        if not self.field.size and self._ends.exact():
            return "its enlargement weighs every point that was observed; enlargement='norm2' does not"
        return ""

    # -- what a user sees ------------------------------------------------------------------------------------

    @property
    def posterior_in_use(self) -> Posterior:
        return self._ends.posterior

    @property
    def epsilon(self) -> float:
        """The misspecification that the bands allow for."""
        return self._ends.epsilon

    def band_at(self, actions: Actions) -> Band:
        return self._ends.band(self.field.look(self.posterior_in_use, self._own, actions, pending=False))

    def contenders(self, within: Context | None = None) -> Actions:
        return self._ends.contenders(self.field, self.log.next_id, within)


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
