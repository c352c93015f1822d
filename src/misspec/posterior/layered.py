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
model's, corrected by the spread of repeated results as if ten of them had shown the model's. Both are renewed whenever
the observations have grown by 15 %. s = B/2, so that two standard deviations without noise are the class's own bound,
B·σ(x). Nothing here is a guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cho_solve, cholesky, lapack

from misspec import kernels
from misspec.confidence import Key
from misspec.errors import Array
from misspec.posterior.posterior import Posterior
from misspec.posterior.regression import symmetric_times
from misspec.posterior.tracked import Tracked

HALVINGS = 7  # of B, the sizes of misfit that are considered beside none
GROWTH = 1.15  # of the observations, until τ and σ are learnt anew
BELIEVED = 10.0  # repeated results that the model's noise counts for
OPTIMISM = 1.0  # of misfits whose log-likelihood is so little below the largest, the largest is taken
LEAST = 1e-6  # of s²: noise is never taken for less, as the ridge of a model
TINY = 1e-12

Pending = Sequence[tuple[Key, Array]]  # points as the kernel sees them, shape (1, E), under their keys


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
        self.misfit = 0.0  # τ
        self.noise = max(model.noise, math.sqrt(LEAST) * self.scale)  # σ
        self.t = 0
        self._next = 4  # observations at which τ and σ are learnt
        self._squares, self._repeats = 0.0, 0  # of repeated results about their averages
        self._generation = posterior.generation
        self._at: dict[Key, int] = {}  # point → place
        self._where = np.full(len(self._tracked.prior) if self._tracked else 0, -1, dtype=np.intp)  # candidate → place
        self._X: list[Array] = []
        self._n, self._average, self._residual = np.zeros((3, 16))  # ȳ less the offset
        self._F: Array = np.zeros((16, posterior.rank))
        self._C: Array
        self._b: Array
        self._variance: Array | None  # of f̃ over the candidates, where there are any
        self._renew()

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, key: Key, encoded: Array, y: float) -> None:
        """A result that the posterior has been told; encoded: the point as the kernel sees it, shape (1, E)."""
        self._follow()
        place = self._at.get(key)
        if place is None:
            place = self._enter(key, encoded)
        n, before, value = float(self._n[place]), float(self._average[place]), y - self._p.model.offset
        after = before + (value - before) / (n + 1)
        if n:
            self._squares += (value - before) * (value - after)
            self._repeats += 1
        residual = float(self._residual[place])
        old = self._weight(residual, n)
        self._n[place], self._average[place] = n + 1, after
        new = self._weight(residual, n + 1)
        phi = self._F[place]
        self._b += (new * after - old * before) * phi
        self._shrink(self._C, self._variance, phi, new - old)
        self.t += 1
        if self.t >= self._next:
            self._next = max(self.t + 1, math.ceil(GROWTH * self.t))
            self._learn_sizes()
            self._renew()

    def _enter(self, key: Key, encoded: Array) -> int:
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

    def _weight(self, residual: float, n: float) -> float:
        return 1.0 / (self.misfit**2 + self.noise**2 / n + self.scale**2 * residual) if n else 0.0

    def _shrink(self, C: Array, variance: Array | None, phi: Array, weight: float) -> None:
        """A point with these features weighs so much more: C, and the variance over the candidates."""
        if not len(phi):
            return
        h = blas.dsymv(1.0, C, phi)
        factor = weight / (1.0 + weight * float(phi @ h))
        blas.dsyr(-factor, h, a=C, overwrite_a=1)
        if variance is not None and self._tracked is not None:
            c = self._tracked.times(h)
            variance -= factor * c * c

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
            r = len(self._b)
            C = np.zeros((r + more, r + more), order="F")
            C[:r, :r] = self._C
            C[np.arange(r, r + more), np.arange(r, r + more)] = self.scale**2
            self._C, self._b = C, np.append(self._b, np.zeros(more))
            self._F = np.column_stack([self._F, np.zeros((len(self._F), more))])

    # -- the sizes of misfit and noise ---------------------------------------------------------------------------

    def _learn_sizes(self) -> None:
        """σ from repeated results; τ by the marginal likelihood of the averages, N(0, s²FFᵀ + diag(1/w))."""
        model, u = self._p.model, len(self._X)
        pooled = (BELIEVED * model.noise**2 + self._squares) / (BELIEVED + self._repeats)
        self.noise = math.sqrt(max(pooled, LEAST * self.scale**2))
        F, n, y = self.scale * self._F[:u], self._n[:u], self._average[:u]
        known = self.noise**2 / n + self.scale**2 * self._residual[:u]
        sizes = [0.0, *(model.norm_bound * 0.5**k for k in range(HALVINGS, -1, -1))]
        evidence = np.array([_evidence(F, known + size**2, y) for size in sizes])
        best = int(evidence.argmax())  # the smallest of equals
        self.misfit = sizes[int(np.flatnonzero(evidence >= evidence[best] - OPTIMISM).max()) if best else 0]

    def _renew(self) -> None:
        """C, b and the variance over the candidates from the sums."""
        u, r = len(self._X), self._p.rank
        F = self._F[:u, :r]
        weights = 1.0 / (self.misfit**2 + self.noise**2 / self._n[:u] + self.scale**2 * self._residual[:u])
        A = np.eye(r) / self.scale**2 + (F.T * weights) @ F
        factor = cholesky(A, lower=False, check_finite=False) if r else A
        inverse = lapack.dtrtri(factor, lower=0)[0] if r else A
        self._C = np.asfortranarray(inverse @ inverse.T)
        self._b = F.T @ (weights * self._average[:u])
        self._variance = None
        if self._tracked is not None:
            Phi = self._tracked.features_over()
            seen = np.einsum("nr,nr->n", Phi, Phi)
            self._variance = np.einsum("nr,nr->n", Phi @ self._C, Phi)
            self._variance += self.scale**2 * np.maximum(self._tracked.prior - seen, 0.0)

    # -- reading -------------------------------------------------------------------------------------------------

    def over(self, rows: NDArray[np.intp] | slice, pending: Pending = ()) -> Known:
        """f* at candidates; pending: points about to be observed, which count in the variance."""
        _, variance, extra = self._hoped(pending)
        assert self._tracked is not None  # candidates are known to those who track them
        assert variance is not None
        more = None
        if extra:
            more = np.zeros(len(self._where))
            for key, count in extra.items():
                if isinstance(key, int):
                    more[key] = count
            more = more[rows]
        mean = self._tracked.times(self._coefficients)[rows]
        return self._combined(mean, np.maximum(variance[rows], 0.0), self._where[rows], more)

    def at(self, encoded: Array, keys: Sequence[Key], pending: Pending = ()) -> Known:
        """f* at points as the kernel sees them, whose results are known under these keys."""
        C, _, extra = self._hoped(pending)
        phi = self._p.features(encoded)
        missed = kernels.diagonal(self._p.model.kernel, encoded) - np.einsum("nr,nr->n", phi, phi)
        v = np.einsum("nr,nr->n", symmetric_times(C, phi), phi) + self.scale**2 * np.maximum(missed, 0.0)
        places = np.array([self._at.get(key, -1) for key in keys], dtype=np.intp)
        more = np.array([extra.get(key, 0) for key in keys], dtype=np.float64) if extra else None
        return self._combined(phi @ self._coefficients, np.maximum(v, 0.0), places, more)

    def slopes(self, U: Array, factor: float) -> tuple[Array, Array]:
        """Mean + factor standard deviations of f* where nothing was observed, and the gradient."""
        self._follow()
        phi, dphi = self._p.features_with_slopes(U)
        kernel, h = self._p.model.kernel, symmetric_times(self._C, phi)
        missed = kernels.diagonal(kernel, U) - np.einsum("nr,nr->n", phi, phi)
        dmissed = kernels.diagonal_gradient(kernel, U) - 2.0 * np.einsum("nr,rnd->nd", phi, dphi)
        std = np.sqrt(np.einsum("nr,nr->n", h, phi) + self.scale**2 * np.maximum(missed, TINY) + self.misfit**2)
        dvariance = 2.0 * np.einsum("nr,rnd->nd", h, dphi) + self.scale**2 * dmissed
        w = self._coefficients
        values = self._p.model.offset + phi @ w + factor * std
        return values, np.einsum("r,rnd->nd", w, dphi) + 0.5 * factor * dvariance / std[:, None]

    @property
    def _coefficients(self) -> Array:
        return np.asarray(blas.dsymv(1.0, self._C, self._b)) if len(self._b) else self._b

    def _hoped(self, pending: Pending) -> tuple[Array, Array | None, dict[Key, int]]:
        """C and the variance over the candidates with what pends, and how often each point does."""
        self._follow()
        extra: dict[Key, int] = {}
        if not pending:
            return self._C, self._variance, extra
        C, variance = self._C.copy(order="F"), None if self._variance is None else self._variance.copy()
        for key, x in pending:
            place = self._at.get(key)
            n, residual = (0.0, 0.0) if place is None else (float(self._n[place]), float(self._residual[place]))
            n += extra.get(key, 0)
            phi = self._p.features(x)[0] if place is None else self._F[place]
            self._shrink(C, variance, phi, self._weight(residual, n + 1) - self._weight(residual, n))
            extra[key] = extra.get(key, 0) + 1
        return C, variance, extra

    def _combined(self, mean: Array, v: Array, places: NDArray[np.intp], more: Array | None) -> Known:
        """From f̃ to f*: a point's own average takes over as it is known by itself."""
        offset, t2 = self._p.model.offset, self.misfit**2
        seen = np.flatnonzero(places >= 0)
        there = places[seen]
        n, average = np.zeros(len(mean)), mean.copy()
        n[seen], average[seen] = self._n[there], self._average[there]
        own = t2 / (t2 + self.noise**2 / np.maximum(n, 1.0)) * (n > 0) if t2 else np.zeros(len(mean))
        hoped = n if more is None else n + more
        share = own if more is None or not t2 else t2 / (t2 + self.noise**2 / np.maximum(hoped, 1.0)) * (hoped > 0)
        variance = (1.0 - share) ** 2 * v + t2 * (1.0 - share)
        return Known(offset + mean + own * (average - mean), variance, offset + mean, v, offset + average, n, hoped)


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
