"""Thompson sampling: play the maximiser of a sample of the posterior (a comparator, not from the paper)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Unpack

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from misspec.domains import Domain
from misspec.errors import Array, InvalidInput
from misspec.model import Model
from misspec.policies.core.answers import Decision
from misspec.policies.core.basis import Sample
from misspec.policies.core.field import Search
from misspec.policies.core.fields import basis_of
from misspec.policies.core.hooks import Abilities
from misspec.policies.core.points import Actions, Round, first_alike
from misspec.policies.core.registry import Common
from misspec.policies.ec_gp_ucb import UpperConfidence, decision
from misspec.theory.widths import Width


class ThompsonSampling(UpperConfidence):
    """x_t maximises μ + multiplier·(g − μ), g a sample of the posterior on the candidates, scale included.

    width: 1.0 for plain posterior samples; "mixture" or "lemma1" widen them as Chowdhury & Gopalan (2017) do.

    Samples come from Bayesian linear regression on features of the whole domain, f = Ψw with ΨΨᵀ = K: exact up to
    1e-10, O(R³ + N·R) per step for R features. Pending queries count as observed in the sample's covariance.

    On a Box the features are those of at most 400 well-spread points Z, ψ(x) = L_Z⁻¹k_Z(x), and a sample is a function
    on the whole of it; μ is the posterior's own. The part of f that Z does not determine is left out, and the sample
    varies too little there, by up to √missed: next to nothing for smooth kernels in few dimensions, nearly all for
    short length scales in many.

    Where rounds bring their own actions, or contexts, a sample is drawn at those alone, from the posterior's covariance
    of them: exact, and of a cost that does not grow with t for linear kernels and with a budget (as for GPUCB).

    missed   the largest k(x,x) − ‖ψ(x)‖² found (of at most 1)
    """

    abilities = Abilities(takes_noise=True)

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        width: Width = 1.0,
        budget: int | None = None,
        **settings: Unpack[Common],
    ) -> None:
        super().__init__(domain, model, width=width, budget=budget, **settings)
        self.basis = basis_of(self.field, model)
        self.missed = 0.0 if self.basis is None else self.basis.missed
        # on a list, samples are known only there
        self.abilities = dataclasses.replace(self.abilities, takes_points=not self.field.size)

    def admit(self, actions: Actions) -> Actions:
        if self.abilities.takes_points or actions.rows is not None:
            return actions
        rows = self.field.keys(actions)
        if any(isinstance(key, bytes) for key in rows):
            raise InvalidInput("ThompsonSampling samples on its candidates: it takes those, no other points")
        return Actions(actions.points, actions.encoded, np.array(rows, dtype=np.intp))

    def choose(self, actions: Round) -> Decision:
        p, multiplier = self.posterior_in_use, self._ends.multiplier
        if self.basis is None:
            offer = self.field.offer(lambda: self._search(None), actions)  # which lists them, and searches nothing
            deviations = p.sample_at(offer.encoded, self._rng, pending=True)
        else:
            sample = self.draw()
            offer = self.field.offer(lambda: self._search(sample), actions)
            deviations = sample.at(offer)
        c = self.field.look(p, None, offer, pending=True)
        values = c.mean + multiplier * deviations
        row = first_alike(offer, int(values.argmax()))
        mean, std, upper = float(c.mean[row]), math.sqrt(c.variance[row]), float(values[row])
        return decision(self.field, actions, offer, row, mean=mean, std=std, multiplier=multiplier, upper=upper)

    def _search(self, sample: Any) -> Search:
        """The largest value of a sample over a domain without a list."""
        p, multiplier = self.posterior_in_use, self._ends.multiplier

        def score(U: Array, points: Array) -> Array:
            return np.asarray(p.at(points)[0] + multiplier * sample.values(U))

        def slope(U: Array) -> tuple[Array, Array]:
            here, (values, slopes) = p.local(U), sample.slopes(U)
            return here.mean + multiplier * values, here.dmean + multiplier * slopes

        return Search(p, None, score, slope, self.log.next_id)

    def draw(self, rng: np.random.Generator | None = None) -> Sample:
        """A sample of g − μ: ψ·(L⁻ᵀz), with LLᵀ = I + Σψψᵀ/λ over told and pending points; by default its next one."""
        p = self.posterior_in_use
        if self.basis is None:
            raise InvalidInput("where rounds bring their own actions a sample is drawn at those: posterior.sample_at")
        asked = self.log.pending.values()
        pending = np.concatenate([p.points[:0], *(each.place.code for each in asked)])
        seen = p.counts > 0
        points, n = np.concatenate([p.points[seen], pending]), np.append(p.counts[seen], np.ones(len(pending)))
        rows = self.basis.features(points) * np.sqrt(n / self.model.regularization)[:, None]
        L = cholesky(np.eye(rows.shape[1]) + rows.T @ rows, lower=True)
        return self.basis.sample(solve_triangular(L, (rng or self._rng).standard_normal(len(L)), lower=True, trans="T"))
