"""A dictionary that grows: what is observed is explained to the tolerance, by features or as a shadow.

An observation at a point that the dictionary explains (residual ≤ tolerance) is a step; at any other point the
dictionary first grows by one feature. What it does not see of points that it explains is left to the shadows.
"""

from __future__ import annotations

import logging
import math

import numpy as np

from misspec import kernels
from misspec.errors import Array
from misspec.model import Model
from misspec.posterior.dictionary import TOLERANCE, Dictionary, Explained
from misspec.posterior.formulas import FeatureBase, Local, nonnegative
from misspec.posterior.shadows import MOST_SHADOWS, Shadows
from misspec.posterior.table import Table
from misspec.posterior.view import NEGLIGIBLE, View

MANY, BLOCK = 32, 1024  # new points in one call from which on they enter together, and how many at a time
GROWN = 2000  # features from which on a budget is advised
LOG = logging.getLogger("misspec.posterior")
DRIFT = 5e-11  # of the largest result: how much of what shadows have in common may wait for a correction
LEAST_RESIDUAL = 1e-15  # what rounding leaves of one


class FromDictionary(FeatureBase):
    """A base whose features are those of a dictionary."""

    def __init__(self, model: Model, table: Table, view: View) -> None:
        super().__init__(model, table, view)
        self.dictionary = Dictionary(model.kernel, table.points.shape[1])

    def features(self, encoded: Array) -> Array:
        return self.dictionary.features(encoded)

    def features_with_slopes(self, encoded: Array) -> tuple[Array, Array]:
        return self.dictionary.features_with_slopes(encoded)

    def local(self, encoded: Array, *, pending: bool, norm: int = 0, epsilon: float | None = None) -> Local:
        """Without norms and shadows no slopes of features are needed: a·dφ = (L⁻ᵀa)·dk for a = w, φ and Cφ."""
        if norm or self.shadows:
            return super().local(encoded, pending=pending, norm=norm, epsilon=epsilon)
        kernel, dictionary, n, w = self.kernel, self.dictionary, len(encoded), self.told.w
        values, slopes = kernels.cross_with_gradient(kernel, encoded, dictionary.Z)
        phi = dictionary.forward(values)
        b = self.regression(pending).times(phi)
        adjoints = dictionary.backward(np.concatenate([phi, b, w[None, :]]))
        residual = self.residual(encoded, phi)
        dresidual, dseen = (np.einsum("nr,nrd->nd", rows, slopes) for rows in (adjoints[:n], adjoints[n : 2 * n]))
        dresidual = kernels.diagonal_gradient(kernel, encoded) - 2.0 * dresidual
        variance = nonnegative(residual + np.einsum("nr,nr->n", phi, b))
        mean, dmean = phi @ w + self.model.offset, np.einsum("r,nrd->nd", adjoints[2 * n], slopes)
        norms, dnorms = np.zeros(n), np.zeros(encoded.shape)
        dvariance = dresidual + 2.0 * dseen
        return Local(mean, variance, norms, dmean, dvariance, dnorms, nonnegative(residual), dresidual)


class Growing(FromDictionary):
    """As many features as there are independent points, and shadows of the others."""

    def __init__(self, model: Model, table: Table, view: View) -> None:
        super().__init__(model, table, view)
        self._reach: dict[int, float] = {}  # the largest covariance that a shadow has with one, itself among them
        self._drift = 0.0  # what shadows were told since they were corrected, times that
        self._largest = 0.0  # max |y − offset| so far

    def _was_told(self, row: int, value: float, surprise: float, precision: float) -> None:
        self._largest = max(self._largest, abs(value))
        if row in self._reach:
            self._drift += self._reach[row] * abs(surprise) * precision
            if self._drift > DRIFT * self._largest:
                self._correct()

    def _renew(self) -> None:
        """From the distinct points, of which features that came later are known."""
        table = self.table
        self._cast_shadows()
        table.corrections[:] = 0.0
        self.told.refresh(self.all_rows, table.counts, table.averages)
        self._correct()
        if self.with_pending is not None:
            self.with_pending.refresh(self.all_rows, table.counts_with_pending, table.averages)

    def _correct(self) -> None:
        """Bring δ up to date, for what shadows have in common (`shadows.py`): where it changes by Δ, α does by MΔ."""
        S = self.shadows.rows
        if not S:
            return
        F, ratio = self.rows(S), self.shadow_ratio(pending=False)
        M = np.diag(ratio) - ratio[:, None] * (F @ self.told.times(F).T) * ratio
        E, w, alpha = self.unseen(self.table.points[S], F), self.told.w.copy(), self.alpha()
        change = np.linalg.solve(np.eye(len(S)) + E @ M, -E @ alpha - self.table.corrections[S])
        self.table.corrections[S] += change
        self._reach, self._drift = dict(zip(S, np.abs(E).max(axis=1).tolist(), strict=True)), 0.0
        self.told.shift((ratio * change) @ F)
        if self.view.listed:
            self.view.shift(self.told.w - w, self.alpha() - alpha)

    def enter(self, keys: list[bytes], new: Array) -> None:
        if len(new) > 1:  # raises if they cannot be computed
            kernels.cross(self.kernel, np.concatenate([self.table.points, new]), new)
            self.view.try_columns(new)
        if len(new) >= max(MANY, self.rank):
            self._enter_many(keys, new)
        else:
            for key, x in zip(keys, new, strict=True):
                self._enter_one(key, x)

    def _enter_many(self, keys: list[bytes], new: Array) -> None:
        """Choose the dictionary among all points that there are, rather than let it grow point by point."""
        kept = self.view.weights is not None
        for start in range(0, len(new), BLOCK):
            rows: list[int] = []
            for key, x in zip(keys[start : start + BLOCK], new[start : start + BLOCK], strict=True):
                at_candidates = self.view.columns(x[None, :], math.inf) if kept else np.zeros(0)
                rows.append(self.table.enter(key, x))
                self._F.append(np.zeros(self.rank))
                self.view.enter(rows[-1], x, at_candidates)
            self._rebuild(rows)

    def _enter_one(self, key: bytes, x: Array) -> None:
        z = x[None, :]
        new = self.dictionary.explain(z)
        doubtful = self.rank > 0 and new.error > 0.1 * max(new.residual, TOLERANCE)
        if not doubtful:
            nonnegative(np.array([new.residual]))
        residual = math.inf if doubtful else new.residual
        at_points = kernels.cross(self.kernel, z, self.table.points)[0] if residual > TOLERANCE else np.zeros(0)
        at_candidates = self.view.columns(z, residual)
        row = self.table.enter(key, x)  # nothing is changed before this line
        self._F.append(new.phi)
        self.view.enter(row, x, at_candidates)
        if doubtful:
            self._rebuild([row])
        elif new.residual > TOLERANCE:
            self._grow(row, x, new, at_points, at_candidates)
            if self.rank == GROWN:
                LOG.warning("the posterior has %d features, and a round costs their square; budget=… bounds it", GROWN)
        elif not self.complete:
            self._shadow(row, new.phi, new.residual, at_candidates)

    def _grow(self, row: int, x: Array, new: Explained, at_points: Array, at_candidates: Array) -> None:
        """The last distinct point joins the dictionary; at_points: k(x, x_j) at those before."""
        r, table, pivot = self.rank, self.table, math.sqrt(new.residual)
        self.view.grow(row, new, at_candidates, self.dictionary.members)
        e = (at_points - self.all_rows[:row] @ new.phi) / pivot
        e[self.dictionary.members] = 0.0  # the dictionary's own points have no component along later features
        self.dictionary.append(row, x, new)
        self._F.widen()
        self.all_rows[:row, r], self.all_rows[row, r] = e, pivot
        e = np.append(e, 0.0)  # the new point itself is not observed yet
        self.told.grow(self.all_rows, table.counts, table.targets, e)
        if self.with_pending is not None:
            self.with_pending.grow(self.all_rows, table.counts_with_pending, table.targets, e)
        if self.complete:
            self.shadows = Shadows()
            self.view.forget_shadows()
        elif self.shadows:
            self.view.explain_shadows(self.all_rows[self.shadows.rows, r])
            self._tidy_shadows()
        if table.corrections.any():  # the new feature explains a part of what they were for
            self._correct()

    def _rebuild(self, newcomers: list[int]) -> None:
        self.generation += 1
        points, dictionary = self.table.points, self.dictionary
        F, rest = dictionary.choose(points, [*dictionary.members, *self.shadows.rows, *newcomers])
        self._F.replace(F)
        self.shadows = Shadows()
        self.view.rebuild(dictionary)
        for row in rest if not self.complete else ():
            phi, z = self.row(row), points[[row]]
            self._shadow(row, phi, float(self.residual(z, phi[None, :])[0]), self.view.columns(z, math.inf))
        self.refresh()

    def _shadow(self, row: int, phi: Array, residual: float, at_candidates: Array) -> None:
        """Keep a point that the dictionary explains as a shadow; of too many, the one it explains best goes."""
        weight = self.view.shadow(phi, residual, at_candidates, max(1.0, float(self.table.counts[row])))
        if weight is None:
            return
        self.shadows.add(row, weight)
        self._reach[row] = math.sqrt(max(residual, LEAST_RESIDUAL) * TOLERANCE)  # a bound, until they are corrected
        self._prune_shadows()
        self._tidy_shadows()

    def _cast_shadows(self) -> None:
        """Make shadows of points that were too light when they came, and have been observed so often since that they
        are not: |e(x)|² ≤ residual(x_j)·residual(x)."""
        if self.complete or not len(self.table):
            return
        points, counts = self.table.points, self.table.counts
        residual = self.residual(points, self.all_rows)
        weight = counts**2 * np.maximum(residual, LEAST_RESIDUAL) * max(self.view.largest_residual, LEAST_RESIDUAL)
        weight[[*self.dictionary.members, *self.shadows.rows]] = 0.0
        heavy = np.flatnonzero((weight > TOLERANCE**2) & (counts > 1.0))
        for row in heavy[np.argsort(-weight[heavy], kind="stable")][: max(MOST_SHADOWS, 2 * self.rank)].tolist():
            self._shadow(row, self.row(row), float(residual[row]), self.view.columns(points[[row]], math.inf))

    def _prune_shadows(self, least: float = -math.inf) -> None:
        kept = self.shadows.prune(self.rank, least)
        if kept is not None and self.view.listed:
            self.view.unseen.keep(kept)

    def _tidy_shadows(self) -> None:
        """From time to time: forget shadows that the dictionary has learned to explain, and shrink the others' rows."""
        if self.view.unseen.loose:
            self.shadows.weights = self.view.unseen.compress(np.maximum(self.table.counts[self.shadows.rows], 1.0))
            self._prune_shadows(NEGLIGIBLE)
