"""EC-GP-UCB: enlarged confidence bounds for a known misspecification (the paper's Algorithm 1)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from misspec.confidence import Width
from misspec.domains import Domain
from misspec.errors import number
from misspec.model import Model
from misspec.policies.answers import Band, Choice
from misspec.policies.base import Asked, Policy
from misspec.policies.enlarged import Enlarged
from misspec.policies.field import RESOLUTION, Field
from misspec.policies.points import Actions
from misspec.posterior import Posterior


def choose(ends: Enlarged, field: Field, actions: Actions | None, turn: int) -> Choice:
    """Line 4, on whatever posterior the ends are of: also what the bases of balancing play."""
    offer = field.offer(lambda: ends.search(turn)) if actions is None else actions
    c = field.look(ends.posterior, ends.own, offer, pending=True)
    multiplier, slope = ends.inflation * ends.multiplier, ends.inflation * ends.slope
    # 4   x_t ∈ argmax μ*_{t−1}(x) + (β_t + ε√t/√λ)·σ_{t−1}(x); another enlargement than ε√t/√λ·σ is added
    score = c.mean + (multiplier + slope) * np.sqrt(c.variance)
    row, added, upper = ends.maximiser(c, score)
    mean, std = float(c.mean[row]), math.sqrt(c.variance[row])
    enlargement = added + slope * std
    story = {"mean": mean, "std": std, "multiplier": multiplier, "enlargement": enlargement, "upper": upper}
    return Choice(field.place(offer, row), None if actions is None else row, story)


class UpperConfidence(Policy):
    """Algorithm 1 for any ε and enlargement: one posterior, and the maximiser of its upper end."""

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
        resolution: float | None = None,
        delays: str = "any",
        seed: int = 0,
    ) -> None:
        parts = 2 if grounded else 1  # of δ: the model's width, and the own bands
        super().__init__(domain, model, seed=seed, grounded=grounded, parts=parts, resolution=resolution, delays=delays)
        epsilon = number("epsilon", epsilon, at_least=0)
        # 2   μ_0 = 0, σ_0² = k(x,x), plus the model's offset
        self._ends = Enlarged(
            model, self._evidence.posterior(model, weights=enlargement in (None, "exact") and epsilon > 0), self._own,
            epsilon=epsilon, width=width, enlargement=enlargement, delta=self._delta, corruption=corruption,
            inflate=inflate,
        )  # fmt: skip
        self._promise(self._ends.width, model)

    def _choose(self, actions: Actions | None) -> Choice:
        return choose(self._ends, self.field, actions, self._next_id)  # 4

    def _learn(self, asked: Asked, y: float) -> None:
        self._evidence.learn(asked.query.id, asked.place, y)  # 5, 6   observe y*_t; update μ*_t, σ_t and the own band

    # -- what a user sees ------------------------------------------------------------------------------------

    @property
    def posterior(self) -> Posterior:
        return self._ends.posterior

    @property
    def epsilon(self) -> float:
        """The misspecification that the bands allow for."""
        return self._ends.epsilon

    def _band(self, actions: Actions) -> Band:
        return self._ends.band(self.field.look(self.posterior, self._own, actions, pending=False))

    def _contenders(self) -> Actions:
        return self._ends.contenders(self.field, self._next_id)


class ECGPUCB(UpperConfidence):
    """x_t maximises μ_{t−1}(x) + multiplier_t·σ_{t−1}(x) + enlargement_t(x); grounded, the upper end of the band.

    epsilon: ε, the sup-norm distance of the truth from the class; 0 makes it GP-UCB.
    enlargement: "exact" (ε‖ζ(x)‖₁, the largest bias that any misfit within ±ε can cause), "norm2" (ε√t‖ζ(x)‖₂, at most
    √t times wider and of a cost that does not grow with t), or "paper" (ε√t/√λ·σ(x), never narrower). None: exact, but
    norm2 at points that a round has brought, where every observed point would have a weight.
    width, grounded, inflate, resolution, delays: as for GPUCB.
    """

    theorem = "Theorem 1"

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        epsilon: float,
        enlargement: str | None = None,
        width: Width = "mixture",
        grounded: bool = True,
        inflate: bool = False,
        resolution: float | None = RESOLUTION,
        delays: str = "any",
        seed: int = 0,
    ) -> None:
        options: dict[str, Any] = {"inflate": inflate, "resolution": resolution, "delays": delays, "seed": seed}
        super().__init__(
            domain, model, epsilon=epsilon, enlargement=enlargement, width=width, grounded=grounded, **options
        )

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, *, epsilon: float, seed: int = 0) -> ECGPUCB:
        """Algorithm 1 to the letter: Lemma 1's multiplier, the enlargement ε√t/√λ·σ, ungrounded."""
        return cls(domain, model, epsilon=epsilon, enlargement="paper", width="lemma1", grounded=False, seed=seed)
