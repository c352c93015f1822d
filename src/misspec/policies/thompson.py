"""Thompson sampling: play the maximiser of a sample of the posterior (a comparator, not of the paper)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky, solve_triangular

from misspec import confidence, kernels
from misspec.domains import Domain
from misspec.errors import Array, InvalidInput
from misspec.model import Model
from misspec.policies.base import Actions, Band, Conflict, Query
from misspec.policies.learner import Candidates, Learner
from misspec.policies.upper import Feeding, make_posterior
from misspec.posterior import Posterior


class ThompsonSampling(Feeding):
    """x_t maximises μ + multiplier·(g − μ), g a sample of the posterior on the candidates, scale included.

    width: 1.0 for plain posterior samples; "mixture" or "lemma1" widen them as Chowdhury & Gopalan (2017) do.

    Samples come from Bayesian linear regression on features of the whole domain, f = Ψw with ΨΨᵀ = K: exact up to
    1e-10, O(R³ + N·R) a step for R features. Pending queries count as observed in the sample's covariance.
    """

    def __init__(self, domain: Domain, model: Model, *, width: str | float = 1.0, seed: int = 0) -> None:
        width = confidence.check_width(width)
        super().__init__(domain, model, seed, own_delta=None, width=width)
        finite = self._needs_finite("ThompsonSampling")
        self.guaranteed = isinstance(width, str) and not model.fitted
        self._feeds = [make_posterior(model, domain, weights=False)]
        self._learner = Learner(
            model, self._feeds[0], None, epsilon=0.0, width=width, enlargement="exact", delta=model.delta
        )
        self._Psi, _ = kernels.features(model.kernel, finite.encoded)

    @property
    def posterior(self) -> Posterior:
        return self._learner.posterior

    def _available(self, actions: Actions | None) -> int | None:
        if actions is not None and actions.indices is None:
            raise InvalidInput("ThompsonSampling samples on its candidates: actions must be domain indices")
        return super()._available(actions)

    def _observed(self, points: Array, indices: NDArray[np.intp] | None, y: Array) -> None:
        if indices is None and not self._needs_finite("ThompsonSampling").contains(points).all():
            raise InvalidInput("ThompsonSampling samples on its candidates: it takes no data at other points")
        super()._observed(points, indices, y)

    def _choose(self, actions: Actions | None) -> Query:
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

    def _finite_points(self) -> Array:
        return self._needs_finite("ThompsonSampling").encoded

    def band(self, X: ArrayLike | None = None) -> Band:
        """Of the width given, without misspecification."""
        actions = None if X is None else self._parse_actions(X)
        band = self._learner.band(self._learner.candidates(actions, pending=False))
        return Band(band.lower, band.upper)

    @property
    def conflicts(self) -> list[Conflict]:
        return self._conflicts_of(self._learner)
