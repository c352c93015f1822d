"""Thompson sampling: play the maximiser of a sample of the posterior (a comparator, not from the paper).

A sample is a function on features of the whole domain:

    ψ(x) = L_Z⁻¹k_Z(x), Z well-spread points of the domain;  f = ψ·w with w ~ N(0, I) has k up to what Z misses
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Unpack, cast

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from misspec import kernels
from misspec.domains import Box, Domain, Finite, Space
from misspec.errors import Array, InvalidInput, shown
from misspec.model import Model
from misspec.policies.core.answers import Decision
from misspec.policies.core.field import Field, Search
from misspec.policies.core.hooks import Abilities
from misspec.policies.core.points import Actions, Round, first_alike
from misspec.policies.core.registry import Common
from misspec.policies.ec_gp_ucb import UpperConfidence, decision
from misspec.search import distinct
from misspec.theory.widths import Width

FEATURED = 4_000  # members of a space up to which samples have the features of all: rough kernels have as many
FEATURES = 400  # at most, on a box
COVER = 2048  # points of the box that they are chosen from
CHECK = 2048  # others, to measure what they miss


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


# -- features ----------------------------------------------------------------------------------------------------------


class ArmBasis:
    """ψ over all candidates, ΨΨᵀ = K up to 1e-10. missed: the largest k(x,x) − ‖ψ(x)‖² found."""

    def __init__(self, domain: Finite, model: Model) -> None:
        self._Psi, residual = kernels.features(model.kernel, domain.encoded)
        self.missed = float(residual.max())
        self._row = {x.tobytes(): i for i, x in reversed(list(enumerate(domain.encoded)))}
        self._first = domain.first_alike

    def features(self, encoded: Array) -> Array:
        """ψ at points as the kernel sees them, shape (n, R)."""
        return self._Psi[[self._row[x.tobytes()] for x in encoded]]

    def sample(self, w: Array) -> ArmSample:
        """ψ·w."""
        values = self._Psi @ w
        return ArmSample(values if self._first is None else values[self._first])  # whatever the rounding


class ArmSample:
    """ψ·w, known at the candidates."""

    def __init__(self, over_all: Array) -> None:
        self._values = over_all

    def at(self, actions: Actions) -> Array:
        """At actions."""
        assert actions.rows is not None  # other points are refused
        return self._values[actions.rows]


class BoxBasis:
    """At most 400 pivots of a cover, all of them legal points."""

    def __init__(self, box: Box | Space, model: Model) -> None:
        self._kernel = model.kernel
        X = box.spread(COVER, [0])
        Phi, pivots = kernels.pivoted(self._kernel, X, 1e-10, FEATURES)
        self.Z, self.L = X[pivots], np.ascontiguousarray(Phi[pivots])
        others = box.uniform(CHECK, [1])
        self.missed = max(self._missed(X), self._missed(others))

    def _missed(self, U: Array) -> float:
        psi = self.features(U)
        return max(0.0, float((kernels.diagonal(self._kernel, U) - np.einsum("nr,nr->n", psi, psi)).max()))

    def features(self, encoded: Array) -> Array:
        if not len(encoded):
            return np.zeros((0, len(self.Z)))
        return cast(Array, solve_triangular(self.L, kernels.cross(self._kernel, self.Z, encoded), lower=True).T)

    def sample(self, w: Array) -> BoxSample:
        return BoxSample(self._kernel, self.Z, solve_triangular(self.L, w, lower=True, trans="T"))


class BoxSample:
    """k_Z(x)·a with a = L_Z⁻ᵀw."""

    def __init__(self, kernel: kernels.Kernel, Z: Array, a: Array) -> None:
        self._kernel, self._Z, self._a = kernel, Z, a

    def at(self, actions: Actions) -> Array:
        values = self.values(actions.encoded)
        found = distinct(actions.encoded)
        return values[found.first[found.position]]  # equal points have equal values, whatever the rounding

    def values(self, U: Array) -> Array:
        """At points as the kernel sees them."""
        return np.asarray(kernels.cross(self._kernel, U, self._Z) @ self._a)

    def slopes(self, U: Array) -> tuple[Array, Array]:
        """The same with gradients, shapes (n,) and (n, d)."""
        values, slopes = kernels.cross_with_gradient(self._kernel, U, self._Z)
        return values @ self._a, np.einsum("nrd,r->nd", slopes, self._a)


Basis = ArmBasis | BoxBasis
Sample = ArmSample | BoxSample


def basis_of(field: Field, model: Model) -> Basis | None:
    """Features of the whole domain, for samples; None where those are only ever looked at at actions."""
    if not field.fixed and field.searched:
        raise InvalidInput(f"samples are drawn at lists, not on {shown(field.domain)}; box.grid(n) makes one")
    if not field.fixed:
        return None
    if field.listed is not None and (field.indexed or field.size <= FEATURED):
        return ArmBasis(field.listed, model)
    return BoxBasis(field.domain, model)
