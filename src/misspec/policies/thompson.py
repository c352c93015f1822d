"""Thompson sampling: play the maximiser of a sample of the posterior (a comparator, not of the paper)."""

from __future__ import annotations

import dataclasses
import math
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky, solve_triangular

from misspec import confidence, kernels, search
from misspec.domains import Box, Domain
from misspec.errors import Array, InvalidInput
from misspec.model import Model
from misspec.policies.base import Actions, Band, Conflict, Query
from misspec.policies.boxed import BoxSearch
from misspec.policies.learner import Candidates, Learner
from misspec.policies.upper import Feeding, make_posterior
from misspec.posterior import Posterior

FEATURES = 400  # at most, on a box
COVER = 2048  # points of the box that they are chosen from
CHECK = 2048  # others, at which it is measured what they miss


class ThompsonSampling(Feeding):
    """x_t maximises μ + multiplier·(g − μ), g a sample of the posterior on the candidates, scale included.

    width: 1.0 for plain posterior samples; "mixture" or "lemma1" widen them as Chowdhury & Gopalan (2017) do.

    Samples come from Bayesian linear regression on features of the whole domain, f = Ψw with ΨΨᵀ = K: exact up to
    1e-10, O(R³ + N·R) a step for R features. Pending queries count as observed in the sample's covariance.

    On a Box the features are those of at most 400 well-spread points Z, ψ(x) = L_Z⁻¹k_Z(x), and a sample is a function
    on the whole of it; μ is the posterior's own. The part of f that Z does not determine is left out of the sample,
    which varies too little there, by up to √missed: next to nothing for smooth kernels in few dimensions, nearly all
    for short length scales in many, where samples explore little beyond Z.

    missed   the largest k(x,x) − ‖ψ(x)‖² found (of at most 1)
    """

    def __init__(self, domain: Domain, model: Model, *, width: str | float = 1.0, seed: int = 0) -> None:
        width = confidence.check_width(width)
        super().__init__(domain, model, seed, own_delta=None, width=width)
        self.guaranteed = isinstance(width, str) and not model.fitted
        self._feeds = [make_posterior(model, domain, weights=False)]
        self._learner = Learner(
            model, self._feeds[0], None, epsilon=0.0, width=width, enlargement="exact", delta=model.delta
        )
        if isinstance(domain, Box):
            self._spread = _Spread(domain, model)
            self.missed = self._spread.missed
        else:
            self._Psi, residual = kernels.features(model.kernel, domain.encoded)
            self.missed = float(residual.max())

    @property
    def posterior(self) -> Posterior:
        return self._learner.posterior

    @property
    def _reported(self) -> Learner:
        return self._learner

    def _available(self, actions: Actions | None) -> int | None:
        if self._box is None and actions is not None and actions.indices is None:
            raise InvalidInput("ThompsonSampling samples on its candidates: actions must be domain indices")
        return super()._available(actions)

    def _observed(self, points: Array, indices: NDArray[np.intp] | None, y: Array) -> None:
        if self._box is None and indices is None and not self._needs_finite("ThompsonSampling").contains(points).all():
            raise InvalidInput("ThompsonSampling samples on its candidates: it takes no data at other points")
        super()._observed(points, indices, y)

    def _choose(self, actions: Actions | None) -> Query:
        if self._box is not None:
            return self._choose_in_box(self._box, actions)
        c = self._learner.candidates(actions, pending=True)
        sample = self._sample()
        score = sample if actions is None else sample[actions.indices]
        row = int(score.argmax())
        story = self._story(c, row, float(score[row]))
        return self._finished(story, row, actions)

    def _story(self, c: Candidates, row: int, value: float) -> Query:
        std = math.sqrt(c.variance[row])
        return Query(
            -1, np.empty(0), mean=float(c.mean[row]), std=std, multiplier=self._learner.multiplier, upper=value
        )

    def _sample(self) -> Array:
        """μ + multiplier·Ψ(L⁻ᵀz), with LLᵀ = I + Σψψᵀ/λ over the told and pending points."""
        p = self._learner.posterior
        told = {x.tobytes(): n for x, n in zip(p.points, p.counts.tolist(), strict=True)}
        pending = [q.index for q in self._queries.values() if q.index is not None]
        n = np.array([told.get(x.tobytes(), 0.0) for x in self._finite_points()])
        first: dict[bytes, int] = {}
        for i, x in enumerate(self._finite_points()):  # equal points share their count: it goes to the first of them
            if first.setdefault(x.tobytes(), i) != i:
                n[i] = 0.0
        np.add.at(n, pending, 1.0)
        seen = np.flatnonzero(n)
        rows = self._Psi[seen] * np.sqrt(n[seen] / self.model.regularization)[:, None]
        L = cholesky(np.eye(self._Psi.shape[1]) + rows.T @ rows, lower=True)
        z = self._rng.standard_normal(self._Psi.shape[1])
        deviation = self._Psi @ solve_triangular(L, z, lower=True, trans="T")
        mean = self._learner.candidates(None, pending=False).mean
        return np.asarray(mean + self._learner.multiplier * deviation)

    def _choose_in_box(self, box: BoxSearch, actions: Actions | None) -> Query:
        """The maximiser of one sample over the actions or, as far as the search finds it, over the box."""
        p, multiplier, a = self._learner.posterior, self._learner.multiplier, self._draw()

        def score(U: Array) -> Array:
            return np.asarray(p.at(box.box.decode(U))[0] + multiplier * self._spread.values(U, a))

        def slope(U: Array) -> tuple[Array, Array]:
            here, (values, slopes) = p.local(U), self._spread.values_with_slopes(U, a)
            return here.mean + multiplier * values, here.dmean + multiplier * slopes

        offer = actions
        if offer is None:
            points = box.box.decode(search.polish(score, slope, box.candidates(p, self._next_id)))
            offer = Actions(points, box.box.encode(points), None)
        c = self._learner.candidates(offer, pending=True)
        values = c.mean + multiplier * self._spread.values(offer.encoded, a)
        _, first, where = np.unique(offer.encoded, axis=0, return_index=True, return_inverse=True)
        values = values[first[where.ravel()]]  # equal points have equal values, whatever the rounding
        row = int(values.argmax())
        query = self._finished(self._story(c, row, float(values[row])), row, offer)
        return query if actions is not None else dataclasses.replace(query, position=None)

    def _draw(self) -> Array:
        """A sample of g − μ over the box, as weights a of k_Z(x)·a = ψ(x)·(L⁻ᵀz), with L as in `_sample`."""
        p = self._learner.posterior
        pending = [q.x for q in self._queries.values()]
        points, n = p.points[p.counts > 0], p.counts[p.counts > 0]
        if pending:
            points, n = np.concatenate([points, self.domain.encode(pending)]), np.append(n, np.ones(len(pending)))
        rows = self._spread.features(points) * np.sqrt(n / self.model.regularization)[:, None]
        L = cholesky(np.eye(rows.shape[1]) + rows.T @ rows, lower=True)
        w = solve_triangular(L, self._rng.standard_normal(rows.shape[1]), lower=True, trans="T")
        return cast(Array, solve_triangular(self._spread.L, w, lower=True, trans="T"))

    def _finite_points(self) -> Array:
        return self._needs_finite("ThompsonSampling").encoded

    def band(self, X: ArrayLike | None = None) -> Band:
        """Of the width given, without misspecification."""
        if X is None:
            self._needs_finite("band() without points")
        actions = None if X is None else self._parse_actions(X)
        band = self._learner.band(self._learner.candidates(actions, pending=False))
        return Band(band.lower, band.upper)

    @property
    def conflicts(self) -> list[Conflict]:
        return self._conflicts_of(self._learner)


class _Spread:
    """Features of a box that depend on nothing but the kernel: ψ(x) = L_Z⁻¹k_Z(x), Z the pivots among its cover."""

    def __init__(self, box: Box, model: Model) -> None:
        self._kernel = model.kernel
        X = search.cover_with_faces(box.dimension, COVER, [0])
        Phi, pivots = kernels.pivoted(self._kernel, X, 1e-10, FEATURES)
        self.Z, self.L = X[pivots], np.ascontiguousarray(Phi[pivots])
        others = search.sobol(box.dimension, CHECK, [1])
        self.missed = max(self._missed(X), self._missed(others))

    def _missed(self, U: Array) -> float:
        psi = self.features(U)
        return max(0.0, float((kernels.diagonal(self._kernel, U) - np.einsum("nr,nr->n", psi, psi)).max()))

    def features(self, U: Array) -> Array:
        """ψ at the rows of U, shape (n, r)."""
        if not len(U):
            return np.zeros((0, len(self.Z)))
        return cast(Array, solve_triangular(self.L, kernels.cross(self._kernel, self.Z, U), lower=True).T)

    def values(self, U: Array, a: Array) -> Array:
        """k_Z(x)·a at the rows of U."""
        return np.asarray(kernels.cross(self._kernel, U, self.Z) @ a)

    def values_with_slopes(self, U: Array, a: Array) -> tuple[Array, Array]:
        """The same with gradients, shapes (n,) and (n, d)."""
        values, slopes = kernels.cross_with_gradient(self._kernel, U, self.Z)
        return values @ a, np.einsum("nrd,r->nd", slopes, a)
