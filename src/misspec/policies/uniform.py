"""Uniform sampling: the least that any policy has to beat (a comparator, not of the paper)."""

from __future__ import annotations

import math

import numpy as np

from misspec.domains import Domain
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
        c = self._learner.candidates(actions, pending=True)
        row = int(self._rng.integers(len(c.mean)))
        std = math.sqrt(c.variance[row])
        story = Query(-1, np.empty(0), mean=float(c.mean[row]), std=std, multiplier=self._learner.multiplier)
        return self._finished(story, row, actions)
