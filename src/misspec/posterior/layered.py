"""A posterior for f* = f̃ + m in which the misfit m has a value of its own at every point, of a size that is learnt.

    f̃ ~ s²·GP(0, k),   m(x) ~ N(0, τ²) at each point by itself,   y = f̃(x) + m(x) + N(0, σ²)

A point that was observed n times tells of f̃ with the noise τ² + σ²/n: further results say more about that point and
ever less about its neighbours, so that what a wrong model says elsewhere is not bent to fit the points played most.

    φ_j, n_j, ȳ_j   features (those of an ordinary posterior's dictionary), count and average of distinct point j
    w_j             1/(τ² + σ²/n_j + s²·res_j), res_j what the dictionary misses of the point
    C, b            (I/s² + Σ w_j φ_j φ_jᵀ)⁻¹ and Σ w_j ȳ_j φ_j: f̃(x) has mean φ·Cb and variance φ·Cφ + s²·res(x)
    f*(x_j)         mean + a_j(ȳ_j − mean), variance (1 − a_j)²v + τ²(1 − a_j), with a_j = τ²/(τ² + σ²/n_j)

τ is 0 if that maximises the marginal likelihood over a grid (0, and B halved up to seven times), else the largest whose
log-likelihood is at most 1 below the maximum: a misfit that shows is taken for no less than it may be. σ² is the
model's, corrected by the spread of repeated results as if ten of them had shown the model's, and at least s/1000. Both
are learnt again whenever the observations have grown by 15 %. s = B/2, so that two standard deviations without noise
are the class's own bound, B·σ(x). Nothing here is a guarantee.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cho_solve, cholesky

from misspec import kernels
from misspec.encoding import kept, resume
from misspec.errors import Array
from misspec.posterior.posterior import Posterior, Tracked
from misspec.posterior.regression import bordered, inverse_of, symmetric_times
from misspec.posterior.table import FeatureTable, Key, Table

HALVINGS = 7  # of B, the sizes of misfit that are considered beside none
GROWTH = 1.15  # growth of the observations after which τ and σ are learnt again
BELIEVED = 10.0  # repeated results that the model's noise counts for
OPTIMISM = 1.0  # of misfits whose log-likelihood is so little below the largest, the largest is taken
LEAST = 1e-6  # of s²: noise is never taken for less, as the ridge of a model
TINY = 1e-12


class Known(NamedTuple):
    mean: Array  # of f*
    variance: Array  # of f*, with what is pending
    model_mean: Array  # of f̃
    model_variance: Array  # of f̃, with what is pending
    average: Array  # of a point's own results; f̃'s mean where there are none
    counts: Array  # of its results
    hoped: Array  # of its results and what is pending


class Layered:
    """The posterior of f*, on the features of an ordinary posterior that sees the same observations before this one."""

    def __init__(self, posterior: Posterior) -> None:
        self._posterior = posterior
        self._tracked = posterior if isinstance(posterior, Tracked) else None
        model = posterior.model
        self.scale = 0.5 * model.norm_bound  # s
        self.misfit_size = 0.0  # τ
        self.noise = max(model.noise, math.sqrt(LEAST) * self.scale)  # σ, as learnt
        self._next = 4  # observations at which τ and σ are learnt
        self._squares, self._repeats = 0.0, 0  # of repeated results about their averages
        self._generation = posterior.generation
        self._table = Table(posterior.points.shape[1])
        self._where = np.full(len(self._tracked.prior) if self._tracked else 0, -1, dtype=np.intp)  # candidate → row
        self._residual: list[float] = []
        self._F = FeatureTable(posterior.rank)
        self._told: Covariance
        self._with_pending: Covariance | None = None  # told and pending; None while nothing is pending
        self._b: Array
        self._summed: dict[float, Summed] = {}  # points told once and forgotten, by what the dictionary misses of them
        self._renew()

    def learn(self, key: Key, encoded: Array, y: float, *, expected: bool = False, noise: float | None = None) -> None:
        """A result that the posterior has been told; encoded: the point as the kernel sees it, shape (1, E). expected:
        it is pending, and is counted already in the variance for choosing. noise: its own standard deviation."""
        precision = 1.0 if noise is None else float(self._posterior.model.precision(noise)[0])
        self._follow()
        row, table = self._enter(key, encoded), self._table
        n, before, value = float(table.counts[row]), table.average(row), y - self._posterior.model.offset
        after = before + precision * (value - before) / (n + precision)
        if n:
            self._squares += precision * (value - before) * (value - after)
            self._repeats += 1
        r = self._residual[row]
        self._b += (self._weight(n + precision, r) * after - self._weight(n, r) * before) * self._F.row(row)
        if expected:
            if precision != 1.0:  # it was counted as one
                self._count(self._choosing, row, n + table.pending[row], precision - 1.0)
            self._settle(row)
        elif self._with_pending is not None:
            self._count(self._with_pending, row, n + table.pending.get(row, 0), precision)
        self._count(self._told, row, n, precision)
        table.add(row, value, precision)
        if table.t >= self._next:
            self._next = max(table.t + 1, math.ceil(GROWTH * table.t))
            self._learn_sizes()
            self._renew()

    def expect(self, key: Key, encoded: Array) -> None:
        """Count a pending query in the variance for choosing."""
        self._follow()
        row, table = self._enter(key, encoded), self._table
        if self._with_pending is None:
            self._with_pending = copy.deepcopy(self._told)
        self._count(self._with_pending, row, float(table.counts[row]) + table.pending.get(row, 0), 1)
        table.expect(row)

    def release(self, key: Key) -> None:
        """A query is no longer pending, and has no result."""
        row, table = self._table.row_of[key], self._table
        assert self._with_pending is not None  # it is pending
        self._count(self._with_pending, row, float(table.counts[row]) + table.pending[row], -1)
        self._settle(row)

    def _settle(self, row: int) -> None:
        self._table.release(row)
        if not self._table.pending:
            self._with_pending = None

    def _count(self, covariance: Covariance, row: int, n: float, change: float) -> None:
        r = self._residual[row]
        covariance.shrink(self._F.row(row), float(self._weight(n + change, r) - self._weight(n, r)), self._tracked)

    def _enter(self, key: Key, encoded: Array) -> int:
        if key in self._table.row_of:
            return self._table.row_of[key]
        phi = self._posterior._base.features(encoded)[0]
        row = self._table.enter(key, encoded[0])
        if self._tracked is not None and isinstance(key, int):
            self._where[key] = row
        self._F.append(phi)
        self._residual.append(max(0.0, float(self._posterior._base.residual(encoded, phi[None, :])[0])))
        return row

    def _weight(self, n: Any, residual: Any) -> Any:
        """w of points that count n times."""
        known = self.noise**2 / np.where(n > 0, n, 1.0) + self.scale**2 * residual
        return np.where(n > 0, 1.0 / (self.misfit_size**2 + known), 0.0)

    def _follow(self) -> None:
        """The dictionary may have grown, by features along which what was observed before has nothing to speak of."""
        if self._generation != self._posterior.generation:
            self._generation = self._posterior.generation
            self._F.replace(self._posterior._base.features(self._table.points))
            self._renew()
        more = self._posterior.rank - self._F.rank
        if more:
            for covariance in (self._told, self._with_pending):
                if covariance is not None:
                    covariance.C = bordered(covariance.C, self.scale**2, more)
            for each in self._summed.values():
                each.gram, each.moment = bordered(each.gram, 0.0, more), np.append(each.moment, np.zeros(more))
            self._b = np.append(self._b, np.zeros(more))
            self._F.widen(more)

    def snapshot(self, keep: Iterable[Key] | None = None) -> Any:
        """All that was learnt, as JSON. keep: points told once, and not pending, are summed up, except for these."""
        layer = self
        if keep is not None:
            layer = copy.copy(self)
            layer._forget(keep)
        return kept(layer)

    def resume(self, snapshot: Any) -> None:
        resume(self, snapshot, Covariance, Summed)

    def _forget(self, keep: Iterable[Key]) -> None:
        """Sum up points, on a copy: weights depend on counts and on what the dictionary misses, which is rounded up."""
        table = self._table
        once = (table.counts == 1.0) & (table.counts_with_pending == 1.0)
        once[[table.row_of[key] for key in keep if key in table.row_of]] = False
        residual = np.array(self._residual)  # rounded up to powers of two: few levels are sums to keep
        levels = np.where(residual > TINY, 2.0 ** np.ceil(np.log2(np.maximum(residual, TINY))), 0.0)
        average, F = table.averages, self._F.all
        self._summed = copy.deepcopy(self._summed)
        for level in np.unique(levels[once]).tolist():
            rows = np.flatnonzero(once & (levels == level))
            each = self._summed.setdefault(level, Summed(self._F.rank))
            each.count += len(rows)
            each.gram = each.gram + F[rows].T @ F[rows]
            each.moment = each.moment + average[rows] @ F[rows]
            each.squares += float(average[rows] @ average[rows])
        rest = np.flatnonzero((table.counts_with_pending > 0.0) & ~once).tolist()
        self._table, self._F = copy.copy(table), FeatureTable()
        self._table.keep(rest)
        self._F.replace(F[rest])
        self._residual = [self._residual[row] for row in rest]

    def _learn_sizes(self) -> None:
        """σ from repeated results; τ by the marginal likelihood of the averages, N(0, s²FFᵀ + diag(1/w))."""
        model, told = self._posterior.model, self._table.counts > 0
        pooled = (BELIEVED * model.noise**2 + self._squares) / (BELIEVED + self._repeats)
        self.noise = math.sqrt(max(pooled, LEAST * self.scale**2))
        F, y = self.scale * self._F.all[told], self._table.averages[told]
        known = self.noise**2 / self._table.counts[told] + self.scale**2 * np.array(self._residual)[told]
        sizes = [0.0, *(model.norm_bound * 0.5**k for k in range(HALVINGS, -1, -1))]
        evidence = np.array([_evidence(F, known + size**2, y, self._sums(size), self.scale) for size in sizes])
        best = int(evidence.argmax())  # the smallest of equals
        self.misfit_size = sizes[int(np.flatnonzero(evidence >= evidence[best] - OPTIMISM).max()) if best else 0]

    def _renew(self) -> None:
        """C, b and the variances over the candidates from the sums."""
        table, residual = self._table, np.array(self._residual)
        weights = self._weight(table.counts, residual)
        hoped = self._weight(table.counts_with_pending, residual)
        self._told, self._with_pending = self._covariance(weights), self._covariance(hoped) if table.pending else None
        self._b = self._F.all.T @ (weights * table.averages)
        for noise, each in self._sums(self.misfit_size):
            self._b += each.moment / noise

    def _sums(self, misfit_size: float) -> list[tuple[float, Summed]]:
        noise = misfit_size**2 + self.noise**2
        return [(noise + self.scale**2 * level, each) for level, each in self._summed.items()]

    def _covariance(self, weights: Array) -> Covariance:
        F, r = self._F.all, self._F.rank
        A = np.eye(r) / self.scale**2 + (F.T * weights) @ F
        for noise, each in self._sums(self.misfit_size):
            A += each.gram / noise
        C = inverse_of(cholesky(A, lower=False, check_finite=False)) if r else A
        if self._tracked is None:
            return Covariance(C, None)
        Phi = self._tracked.features_over()
        missed = np.maximum(self._tracked.prior - np.einsum("nr,nr->n", Phi, Phi), 0.0)
        return Covariance(C, self._tracked.evened(np.einsum("nr,nr->n", Phi @ C, Phi) + self.scale**2 * missed))

    @property
    def _choosing(self) -> Covariance:
        return self._told if self._with_pending is None else self._with_pending

    def over(self, candidates: NDArray[np.intp] | slice) -> Known:
        """f* at candidates, where there are any."""
        variance = self._choosing.variance
        assert self._tracked is not None  # there are candidates
        assert variance is not None
        mean = self._tracked.times(self._coefficients)[candidates]
        return self._combined(mean, np.maximum(variance[candidates], 0.0), self._where[candidates])

    def at(self, encoded: Array, keys: Sequence[Key]) -> Known:
        """f* at points as the kernel sees them, whose results have these keys."""
        phi = self._posterior._base.features(encoded)
        seen = np.einsum("nr,nr->n", symmetric_times(self._choosing.C, phi), phi)
        v = seen + self.scale**2 * np.maximum(self._posterior._base.residual(encoded, phi), 0.0)
        known = np.array([self._table.row_of.get(key, -1) for key in keys], dtype=np.intp)
        return self._combined(phi @ self._coefficients, np.maximum(v, 0.0), known)

    @property
    def tried(self) -> tuple[Array, Array]:
        """Points told or pending, as the kernel sees them, and how often each."""
        return self._table.points, self._table.counts_with_pending

    def slopes(self, U: Array, factor: float) -> tuple[Array, Array]:
        """Mean + factor standard deviations of f* where nothing was observed, and the gradient."""
        phi, dphi = self._posterior._base.features_with_slopes(U)
        kernel, h = self._posterior.model.kernel, symmetric_times(self._choosing.C, phi)
        missed = self._posterior._base.residual(U, phi)
        dmissed = kernels.diagonal_gradient(kernel, U) - 2.0 * np.einsum("nr,rnd->nd", phi, dphi)
        std = np.sqrt(np.einsum("nr,nr->n", h, phi) + self.scale**2 * np.maximum(missed, TINY) + self.misfit_size**2)
        dvariance = 2.0 * np.einsum("nr,rnd->nd", h, dphi) + self.scale**2 * dmissed
        w = self._coefficients
        values = self._posterior.model.offset + phi @ w + factor * std
        return values, np.einsum("r,rnd->nd", w, dphi) + 0.5 * factor * dvariance / std[:, None]

    @property
    def _coefficients(self) -> Array:
        return np.asarray(blas.dsymv(1.0, self._told.C, self._b)) if len(self._b) else self._b

    def _combined(self, mean: Array, v: Array, rows: NDArray[np.intp]) -> Known:
        """From f̃ to f*: a point's own average takes over as it is known by itself."""
        table, offset, t2 = self._table, self._posterior.model.offset, self.misfit_size**2
        seen = np.flatnonzero(rows >= 0)
        there = rows[seen]
        n, average = np.zeros(len(mean)), mean.copy()
        n[seen] = table.counts[there]
        told = n[seen] > 0
        average[seen[told]] = table.averages[there[told]]
        hoped = n.copy()
        if table.pending:
            hoped[seen] += [table.pending.get(row, 0) for row in there.tolist()]
        own, share = self._share(n), self._share(hoped)
        variance = (1.0 - share) ** 2 * v + t2 * (1.0 - share)
        return Known(offset + mean + own * (average - mean), variance, offset + mean, v, offset + average, n, hoped)

    def _share(self, n: Array) -> Array:
        """a = τ²/(τ² + σ²/n), 0 where n is."""
        t2 = self.misfit_size**2
        return t2 / (t2 + self.noise**2 / np.where(n > 0, n, 1.0)) * (n > 0) if t2 else np.zeros(len(n))


class Covariance:
    """C, its upper triangle, and the variance of f̃ over the candidates, where there are any."""

    def __init__(self, C: Array, variance: Array | None) -> None:
        self.C, self.variance = C, variance

    def shrink(self, phi: Array, weight: float, tracked: Tracked | None) -> None:
        """A point with these features weighs so much more."""
        if not len(phi):
            return
        h = blas.dsymv(1.0, self.C, phi)
        factor = weight / (1.0 + weight * float(phi @ h))
        self.C = blas.dsyr(-factor, h, a=self.C, overwrite_a=1)
        if self.variance is not None and tracked is not None:
            c = tracked.times(h)
            self.variance -= factor * c * c


class Summed:
    """Sums over points that were told once: their number, Σφφᵀ, Σyφ and Σy², y less the offset."""

    def __init__(self, rank: int) -> None:
        self.count, self.squares = 0, 0.0
        self.gram: Array = np.zeros((rank, rank))
        self.moment: Array = np.zeros(rank)


def _evidence(F: Array, noise: Array, y: Array, sums: Sequence[tuple[float, Summed]], scale: float) -> float:
    """ln N(y; 0, FFᵀ + diag(noise)), up to a constant; sums: over further points, whose features are times scale."""
    u, r = F.shape
    scaled, z = F / np.sqrt(noise)[:, None], y / np.sqrt(noise)
    if u <= r and not sums:
        L = cholesky(np.eye(u) + scaled @ scaled.T, lower=True, overwrite_a=True, check_finite=False)
        fit = float(z @ cho_solve((L, True), z, check_finite=False))
    else:
        A, q, total = np.eye(r) + scaled.T @ scaled, scaled.T @ z, float(z @ z)
        for each_noise, each in sums:
            A += scale**2 / each_noise * each.gram
            q += scale / each_noise * each.moment
            total += each.squares / each_noise
        L = cholesky(A, lower=True, overwrite_a=True, check_finite=False)
        fit = total - float(q @ cho_solve((L, True), q, check_finite=False))
    logs = float(np.log(noise).sum()) + sum(each.count * math.log(of) for of, each in sums)
    return -0.5 * fit - float(np.log(np.diag(L)).sum()) - 0.5 * logs
