"""Uniform sampling: the least that any policy has to beat (a comparator, not of the paper)."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from misspec.domains import Box, Domain
from misspec.model import Model
from misspec.policies.base import Actions, Query
from misspec.policies.upper import UpperConfidence


class UniformSampling(UpperConfidence):
    """x_t is drawn uniformly from what is on offer; bands and recommendation are those of GP-UCB's posterior."""

    def __init__(self, domain: Domain, model: Model, *, width: str | float = "mixture", seed: int = 0) -> None:
        super().__init__(
            domain, model, epsilon=0.0, enlargement="exact", width=width, grounded=False, inflate=False, seed=seed
        )
        # of its settings only these are its own: state() hands them to __init__ again
        self._settings = {name: self._settings[name] for name in ("width", "seed")}

    def _choose(self, actions: Actions | None) -> Query:
        offer = actions
        if offer is None and isinstance(self.domain, Box):
            offer = self._parse_actions(self.domain.decode(self._rng.random((1, self.domain.dimension))))
        c = self._learner.candidates(offer, pending=True)
        row = int(self._rng.integers(len(c.mean)))
        mean, std, multiplier = float(c.mean[row]), math.sqrt(c.variance[row]), self._learner.multiplier
        story = Query(-1, np.empty(0), mean=mean, std=std, multiplier=multiplier, upper=mean + multiplier * std)
        query = self._finished(story, row, offer)
        return query if actions is not None else dataclasses.replace(query, position=None)
