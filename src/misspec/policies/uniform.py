"""Uniform sampling: the least that any policy has to beat (a comparator, not from the paper)."""

from __future__ import annotations

import math
from typing import Unpack

from misspec.domains import Domain
from misspec.model import Model
from misspec.policies.core.answers import Decision
from misspec.policies.core.hooks import Abilities
from misspec.policies.core.points import Round
from misspec.policies.core.registry import Common
from misspec.policies.ec_gp_ucb import UpperConfidence, decision
from misspec.theory.widths import Width


class UniformSampling(UpperConfidence):
    """x_t is drawn uniformly from what is on offer; bands and recommendation are those of GP-UCB's posterior."""

    abilities = Abilities(takes_noise=True)

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        width: Width = "mixture",
        budget: int | None = None,
        **settings: Unpack[Common],
    ) -> None:
        super().__init__(domain, model, width=width, budget=budget, **settings)

    def choose(self, actions: Round) -> Decision:
        offer = self.field.draw(self._rng, actions)
        c = self.field.look(self.posterior_in_use, None, offer, pending=True)
        row = int(self._rng.integers(len(c.mean)))
        mean, std, multiplier = float(c.mean[row]), math.sqrt(c.variance[row]), self._ends.multiplier
        upper = mean + multiplier * std
        return decision(self.field, actions, offer, row, mean=mean, std=std, multiplier=multiplier, upper=upper)
