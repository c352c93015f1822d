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
are renewed whenever the observations have grown by 15 %. s = B/2, so that two standard deviations without noise are the
class's own bound, B·σ(x). Nothing here is a guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cho_solve, cholesky, lapack

from misspec import kernels
from misspec.errors import Array
from misspec.posterior.posterior import Posterior
from misspec.posterior.regression import symmetric_times
from misspec.posterior.tracked import Tracked

HALVINGS = 7  # of B, the sizes of misfit that are considered beside none
GROWTH = 1.15  # growth of the observations after which τ and σ are learnt again
BELIEVED = 10.0  # repeated results that the model's noise counts for
OPTIMISM = 1.0  # of misfits whose log-likelihood is so little below the largest, the largest is taken
LEAST = 1e-6  # of s²: noise is never taken for less, as the ridge of a model
TINY = 1e-12

Key = int | bytes  # of a point, as for own bands: a candidate's index, or coordinates to the bit


class Known(NamedTuple):
    """What is known of some points."""

    mean: Array  # of f*
    variance: Array  # of f*, with what pends
    model_mean: Array  # of f̃
    model_variance: Array  # of f̃, with what pends
    average: Array  # of a point's own results; f̃'s mean where there are none
    counts: Array  # of its results
    hoped: Array  # of its results and what pends


class Layered:
    """What is known of f*, on the dictionary of a posterior that sees the same observations before this one does."""

    def __init__(self, posterior: Posterior) -> None:
        self._p = posterior
        self._tracked = posterior if isinstance(posterior, Tracked) else None
        model = posterior.model
        self.scale = 0.5 * model.norm_bound  # s
        self.misfit_size = 0.0  # τ
        self.noise = max(model.noise, math.sqrt(LEAST) * self.scale)  # σ, as learnt
        self.t = 0
        self._next = 4  # observations at which τ and σ are learnt
        self._squares, self._repeats = 0.0, 0  # of repeated results about their averages
        self._generation = posterior.generation
        self._at: dict[Key, int] = {}  # point → place
        self._where = np.full(len(self._tracked.prior) if self._tracked else 0, -1, dtype=np.intp)  # candidate → place
        self._X: list[Array] = []
        self._n, self._average, self._residual = np.zeros((3, 16))  # ȳ less the offset
        self._F: Array = np.zeros((16, posterior.rank))
        self._pending: dict[int, int] = {}  # places, and how often each pends
        self._told: Covariance
        self._hoped: Covariance | None = None  # told and pending; None while nothing pends
        self._b: Array
        self._renew()

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, key: Key, encoded: Array, y: float, *, expected: bool = False) -> None:
        """A result that the posterior has been told; encoded: the point as the kernel sees it, shape (1, E). expected:
        it pends, and is counted already in the variance for choosing."""
        self._follow()
        place = self._enter(key, encoded)
        n, before, value = float(self._n[place]), float(self._average[place]), y - self._p.model.offset
        after = before + (value - before) / (n + 1)
        if n:
            self._squares += (value - before) * (value - after)
            self._repeats += 1
        old, new = self._weight(place, n), self._weight(place, n + 1)
        self._b += (new * after - old * before) * self._F[place]
        if expected:
            self._settle(place)
        elif self._hoped is not None:
            self._count(self._hoped, place, n + self._pending.get(place, 0), 1)
        self._count(self._told, place, n, 1)
        self._n[place], self._average[place] = n + 1, after
        self.t += 1
        if self.t >= self._next:
            self._next = max(self.t + 1, math.ceil(GROWTH * self.t))
            self._learn_sizes()
            self._renew()

    def expect(self, key: Key, encoded: Array) -> None:
        """A query that pends: it counts in the variance for choosing."""
        self._follow()
        place = self._enter(key, encoded)
        if self._hoped is None:
            self._hoped = self._told.copy()
        pends = self._pending.get(place, 0)
        self._count(self._hoped, place, float(self._n[place]) + pends, 1)
        self._pending[place] = pends + 1

    def release(self, key: Key) -> None:
        """A query that pended, and has no result."""
        place = self._at[key]
        assert self._hoped is not None  # it pends
        self._count(self._hoped, place, float(self._n[place]) + self._pending[place], -1)
        self._settle(place)

    def _settle(self, place: int) -> None:
        self._pending[place] -= 1
        if not self._pending[place]:
            del self._pending[place]
        if not self._pending:
            self._hoped = None

    def _count(self, covariance: Covariance, place: int, n: float, change: int) -> None:
        """A point that counts n times counts so many times more."""
        weight = self._weight(place, n + change) - self._weight(place, n)
        covariance.shrink(self._F[place], weight, self._tracked)

    def _enter(self, key: Key, encoded: Array) -> int:
        """The place of a point, which may be new."""
        place = self._at.get(key)
        if place is not None:
            return place
        place = self._at[key] = len(self._X)
        if self._tracked is not None and isinstance(key, int):
            self._where[key] = place
        if place == len(self._F):
            self._F = np.concatenate([self._F, np.zeros_like(self._F)])
            self._n, self._average, self._residual = (
                np.append(kept, np.zeros(place)) for kept in (self._n, self._average, self._residual)
            )
        phi = self._p.features(encoded)[0]
        self._F[place] = phi
        self._X.append(encoded[0])
        self._residual[place] = max(0.0, float(kernels.diagonal(self._p.model.kernel, encoded)[0] - phi @ phi))
        return place

    def _weight(self, place: int, n: float) -> float:
        known = self.noise**2 / n + self.scale**2 * float(self._residual[place]) if n else math.inf
        return 1.0 / (self.misfit_size**2 + known)

    def _follow(self) -> None:
        """The dictionary may have grown, by features along which what was observed before has nothing to speak of."""
        if self._generation != self._p.generation:
            self._generation = self._p.generation
            self._F = np.zeros((len(self._F), self._p.rank))
            if self._X:
                self._F[: len(self._X)] = self._p.features(np.array(self._X))
            self._renew()
        more = self._p.rank - len(self._b)
        if more:
            for covariance in (self._told, self._hoped):
                if covariance is not None:
                    covariance.extend(more, self.scale**2)
            self._b = np.append(self._b, np.zeros(more))
            self._F = np.column_stack([self._F, np.zeros((len(self._F), more))])

    # -- the sizes of misfit and noise ---------------------------------------------------------------------------

    def _learn_sizes(self) -> None:
        """σ from repeated results; τ by the marginal likelihood of the averages, N(0, s²FFᵀ + diag(1/w))."""
        model, told = self._p.model, self._n[: len(self._X)] > 0
        pooled = (BELIEVED * model.noise**2 + self._squares) / (BELIEVED + self._repeats)
        self.noise = math.sqrt(max(pooled, LEAST * self.scale**2))
        u = len(self._X)
        F, n, y = self.scale * self._F[:u][told], self._n[:u][told], self._average[:u][told]
        known = self.noise**2 / n + self.scale**2 * self._residual[:u][told]
        sizes = [0.0, *(model.norm_bound * 0.5**k for k in range(HALVINGS, -1, -1))]
        evidence = np.array([_evidence(F, known + size**2, y) for size in sizes])
        best = int(evidence.argmax())  # the smallest of equals
        self.misfit_size = sizes[int(np.flatnonzero(evidence >= evidence[best] - OPTIMISM).max()) if best else 0]

    def _renew(self) -> None:
        """C, b and the variances over the candidates from the sums."""
        u = len(self._X)
        pends = np.zeros(u)
        for place, count in self._pending.items():
            pends[place] = count
        weights = self._weights(self._n[:u])
        self._told = self._covariance(weights)
        self._hoped = self._covariance(self._weights(self._n[:u] + pends)) if self._pending else None
        self._b = self._F[:u].T @ (weights * self._average[:u])

    def _weights(self, n: Array) -> Array:
        known = self.noise**2 / np.maximum(n, 1.0) + self.scale**2 * self._residual[: len(n)]
        return np.where(n > 0, 1.0 / (self.misfit_size**2 + known), 0.0)

    def _covariance(self, weights: Array) -> Covariance:
        F, r = self._F[: len(weights)], self._p.rank
        A = np.eye(r) / self.scale**2 + (F.T * weights) @ F
        inverse = lapack.dtrtri(cholesky(A, lower=False, check_finite=False), lower=0)[0] if r else A
        C = np.asfortranarray(inverse @ inverse.T)
        if self._tracked is None:
            return Covariance(C, None)
        Phi = self._tracked.features_over()
        missed = np.maximum(self._tracked.prior - np.einsum("nr,nr->n", Phi, Phi), 0.0)
        return Covariance(C, self._tracked.evened(np.einsum("nr,nr->n", Phi @ C, Phi) + self.scale**2 * missed))

    # -- reading -------------------------------------------------------------------------------------------------

    def over(self, rows: NDArray[np.intp] | slice) -> Known:
        """f* at candidates."""
        here = self._told if self._hoped is None else self._hoped
        assert self._tracked is not None  # candidates are known to those who track them
        assert here.variance is not None
        mean = self._tracked.times(self._coefficients)[rows]
        return self._combined(mean, np.maximum(here.variance[rows], 0.0), self._where[rows])

    def at(self, encoded: Array, keys: Sequence[Key]) -> Known:
        """f* at points as the kernel sees them, whose results are known under these keys."""
        here, phi = self._told if self._hoped is None else self._hoped, self._p.features(encoded)
        missed = kernels.diagonal(self._p.model.kernel, encoded) - np.einsum("nr,nr->n", phi, phi)
        v = np.einsum("nr,nr->n", symmetric_times(here.C, phi), phi) + self.scale**2 * np.maximum(missed, 0.0)
        places = np.array([self._at.get(key, -1) for key in keys], dtype=np.intp)
        return self._combined(phi @ self._coefficients, np.maximum(v, 0.0), places)

    def slopes(self, U: Array, factor: float) -> tuple[Array, Array]:
        """Mean + factor standard deviations of f* where nothing was observed, and the gradient."""
        phi, dphi = self._p.features_with_slopes(U)
        here = self._told if self._hoped is None else self._hoped
        kernel, h = self._p.model.kernel, symmetric_times(here.C, phi)
        missed = kernels.diagonal(kernel, U) - np.einsum("nr,nr->n", phi, phi)
        dmissed = kernels.diagonal_gradient(kernel, U) - 2.0 * np.einsum("nr,rnd->nd", phi, dphi)
        std = np.sqrt(np.einsum("nr,nr->n", h, phi) + self.scale**2 * np.maximum(missed, TINY) + self.misfit_size**2)
        dvariance = 2.0 * np.einsum("nr,rnd->nd", h, dphi) + self.scale**2 * dmissed
        w = self._coefficients
        values = self._p.model.offset + phi @ w + factor * std
        return values, np.einsum("r,rnd->nd", w, dphi) + 0.5 * factor * dvariance / std[:, None]

    @property
    def _coefficients(self) -> Array:
        return np.asarray(blas.dsymv(1.0, self._told.C, self._b)) if len(self._b) else self._b

    def _combined(self, mean: Array, v: Array, places: NDArray[np.intp]) -> Known:
        """From f̃ to f*: a point's own average takes over as it is known by itself."""
        offset, t2 = self._p.model.offset, self.misfit_size**2
        seen = np.flatnonzero(places >= 0)
        there = places[seen]
        n, average = np.zeros(len(mean)), mean.copy()
        n[seen] = self._n[there]
        told = n[seen] > 0
        average[seen[told]] = self._average[there[told]]
        hoped = n
        if self._pending:
            hoped = n.copy()
            hoped[seen] += [self._pending.get(place, 0) for place in there.tolist()]
        own = self._share(n)
        share = own if hoped is n else self._share(hoped)
        variance = (1.0 - share) ** 2 * v + t2 * (1.0 - share)
        return Known(offset + mean + own * (average - mean), variance, offset + mean, v, offset + average, n, hoped)

    def _share(self, n: Array) -> Array:
        """a = τ²/(τ² + σ²/n), 0 where n is."""
        t2 = self.misfit_size**2
        return t2 / (t2 + self.noise**2 / np.maximum(n, 1.0)) * (n > 0) if t2 else np.zeros(len(n))


class Covariance:
    """C, its upper triangle, and the variance of f̃ over the candidates, where there are any."""

    def __init__(self, C: Array, variance: Array | None) -> None:
        self.C, self.variance = C, variance

    def copy(self) -> Covariance:
        return Covariance(self.C.copy(order="F"), None if self.variance is None else self.variance.copy())

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

    def extend(self, more: int, variance: float) -> None:
        """Features of which nothing is known yet."""
        r = len(self.C)
        C = np.zeros((r + more, r + more), order="F")
        C[:r, :r] = self.C
        C[np.arange(r, r + more), np.arange(r, r + more)] = variance
        self.C = C


def _evidence(F: Array, noise: Array, y: Array) -> float:
    """ln N(y; 0, FFᵀ + diag(noise)), up to a constant."""
    u, r = F.shape
    scaled, z = F / np.sqrt(noise)[:, None], y / np.sqrt(noise)
    if u <= r:
        L = cholesky(np.eye(u) + scaled @ scaled.T, lower=True, overwrite_a=True, check_finite=False)
        fit = float(z @ cho_solve((L, True), z, check_finite=False))
    else:
        L = cholesky(np.eye(r) + scaled.T @ scaled, lower=True, overwrite_a=True, check_finite=False)
        q = scaled.T @ z
        fit = float(z @ z - q @ cho_solve((L, True), q, check_finite=False))
    return -0.5 * fit - float(np.log(np.diag(L)).sum()) - 0.5 * float(np.log(noise).sum())
