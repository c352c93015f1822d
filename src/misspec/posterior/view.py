"""The posterior over a fixed candidate set, kept up to date: one matrix–vector product per step.

Φ          features of the N candidates, stored transposed, so that a step reads contiguous rows     (r, N)
E          e(x) over the candidates, one row per shadow                                              (s, N)
c(x)       posterior covariance of x with the point observed: Φᵀh + Eᵀ(1_i − n∘(F h)/λ),  h = C φ(x_i)

mean ← mean + c·(y − mean_i)/(λ + σ_i²)        var ← var − c²/(λ + σ_i²)

A posterior without a list of candidates has a view of none: nothing is kept, and a step costs nothing here.

*Weights.* Where they are kept, covariances come from the weights ζ of the posterior mean:

    W          weights summed over repetitions, one row per distinct observed point        (u, N)
               mean = ȳ·W,  ‖ζ(x)‖₁ = Σ_j |W_j(x)|
    c(x)       k(x, x_i) − Σ_j W_j(x) k(x_j, x_i)

When point i is observed, W ← W + (e_i − W[:, i]) ⊗ c/(λ + σ²(x_i)). That writes all of W, so updates are collected,
W = base + Dᵀ·G with D (k, u) and G (k, N), and applied together in one matrix product: an ordinary step only reads.

‖ζ‖₁ at every candidate would cost a pass over W. A bound on it costs one over N: an update adds at most
|c|/(λ + σ²)·‖e_i − W[:, i]‖₁. A search for a maximum evaluates ‖ζ‖₁ only where the bound lets a point win.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cho_solve, cholesky

from misspec import kernels
from misspec.errors import Array
from misspec.posterior.dictionary import TOLERANCE, Dictionary, Explained
from misspec.posterior.formulas import FeatureBase, nonnegative
from misspec.posterior.shadows import LowRank
from misspec.posterior.table import larger

DEFERRED = 16  # updates that are applied together
ROUNDED_UP = 1.0 + 1e-9  # so that rounding cannot make a bound too small


class Weights:
    """W for N candidates and the distinct points appended so far."""

    def __init__(self, regularization: float, prior: Array) -> None:
        self._regularization = regularization
        self._prior = prior  # k(x,x) over the candidates
        self._size = 0  # u
        self._deferred = 0  # k
        self._base: Array = np.zeros((0, len(prior)))
        self._G: Array = np.zeros((DEFERRED, len(prior)))
        self._D: Array = np.zeros((DEFERRED, 0))
        self._K: Array = np.zeros((0, len(prior)))  # k(x_j, x): a repeated point costs no kernel evaluation
        self._own: list[float] = []  # k(x_j, x_j)
        self.bound: Array = np.zeros(len(prior))  # at least ‖ζ‖₁ over the candidates

    def append(self, own: float, at_candidates: Array) -> None:
        """A new distinct point, given its kernel values; its weight is zero until it is observed."""
        u = self._size
        if u == len(self._base):
            height, N = u + max(16, u // 2), len(self._prior)
            self._base, self._K = larger(self._base, height, N), larger(self._K, height, N)
            self._D = larger(self._D, DEFERRED, height)
        self._K[u] = at_candidates
        self._own.append(own)
        self._size += 1

    def at_candidate(self, index: int) -> Array:
        """W at one candidate, shape (u,)."""
        u, k = self._size, self._deferred
        return self._base[:u, index] + self._G[:k, index] @ self._D[:k, :u]

    def kernel_at(self, index: int) -> Array:
        """k(x_j, x) at one candidate, shape (u,)."""
        return np.ascontiguousarray(self._K[: self._size, index])

    def step(self, row: int, own: Array, column: Array, c: Array, precision: float) -> float:
        """Observe a distinct point, whose own weights are `own` and kernel values with the distinct points `column`.
        Writes c, queues the update, returns 1/(λ/precision + σ²)."""
        u, k = self._size, self._deferred
        c[:] = self._K[row]
        blas.dgemv(-1.0, self._base[:u].T, column, beta=1.0, y=c, overwrite_y=1)
        if k:
            blas.dgemv(-1.0, self._G[:k].T, self._D[:k, :u] @ column, beta=1.0, y=c, overwrite_y=1)
        factor = 1.0 / (self._regularization / precision + max(0.0, self._own[row] - float(own @ column)))
        np.multiply(c, factor, out=self._G[k])
        np.negative(own, out=self._D[k, :u])
        self._D[k, u:] = 0.0
        self._D[k, row] += 1.0
        self.bound += np.abs(self._G[k]) * (float(np.abs(self._D[k, :u]).sum()) * ROUNDED_UP)
        self._deferred += 1
        if self._deferred == DEFERRED:
            self._base[:u] += self._D[:, :u].T @ self._G
            self._deferred = 0
        return factor

    def full(self) -> Array:
        """W, shape (u, N). Reading leaves no trace: a saved policy must continue to the bit."""
        u, k = self._size, self._deferred
        return self._base[:u] + self._D[:k, :u].T @ self._G[:k] if k else self._base[:u]

    def norm1(self, subset: NDArray[np.intp] | None = None) -> Array:
        """‖ζ(x)‖₁ over the candidates, or over a subset of them."""
        if subset is None:
            return np.asarray(np.abs(self.full()).sum(axis=0))
        u, k = self._size, self._deferred
        rows = self._base[:u, subset] + self._D[:k, :u].T @ self._G[:k, subset]
        return np.asarray(np.abs(rows).sum(axis=0))

    def norm1_at(self, index: int) -> float:
        """‖ζ‖₁ at one candidate, always by the same operations: what a decision may depend on to the bit."""
        return float(np.abs(self.at_candidate(index)).sum())

    def tighten(self, subset: NDArray[np.intp]) -> Array:
        """Make the bound exact, up to rounding, on a subset; returns it there."""
        self.bound[subset] = self.norm1(subset) * ROUNDED_UP + 1e-12
        return np.asarray(self.bound[subset])

    def variance(self) -> Array:
        """k(x,x) − Σ_j W_j(x) k(x_j, x) over the candidates."""
        return np.asarray(self._prior - np.einsum("un,un->n", self.full(), self._K[: self._size]))

    def refresh(self, told: NDArray[np.intp], K: Array, counts: Array) -> None:
        """Recompute W by a dense solve, (K + λ diag(1/n))⁻¹ k(x), K the Gram matrix of the points observed; weights of
        points that are only pending are zero."""
        W = np.zeros((self._size, len(self._prior)))
        if len(told):
            A = K + np.diag(self._regularization / counts[told])
            factor = cholesky(A, lower=True, check_finite=False)
            W[told] = cho_solve((factor, True), self._K[told], check_finite=False)
        self.replace(W)

    def replace(self, W: Array) -> None:
        """Take W, shape (u, N), for what it is now."""
        self._deferred = 0
        self._base[: self._size] = W
        self.bound = self.norm1() * ROUNDED_UP + 1e-12


NEGLIGIBLE = 0.5 * TOLERANCE  # root mean square of a row of E that is not worth keeping
BLOCK = 4096  # candidates handled at a time where a temporary of Φ's size would be wasteful
DENSE = 2000  # distinct points up to which weights are recomputed by a dense solve


class View:
    """Φ, E, mean and variance over the candidates X.

    Law: after every step the mean and variance are those of a dense solve, up to drift that a refresh removes.
    """

    weights: Weights | None = None  # W, where it is kept

    def __init__(self, kernel: Any, X: Array, offset: float) -> None:
        self.kernel, self.X = kernel, X
        N = len(X)
        self.listed = N > 0  # whether there are candidates
        self.row_of = np.full(N, -1, dtype=np.intp)  # candidate → row of the table of distinct points
        self.candidate_of: list[int] = []  # row → candidate, or -1
        self.prior = kernels.diagonal(kernel, X)
        self.residual = self.prior.copy()
        self.mean: Array = np.full(N, offset)
        self.variance = self.prior.copy()
        self.with_pending: Array | None = None  # the variance with what is pending, where anything is
        self._Phi: Array = np.zeros((0, N))
        self._rank = 0
        self._scratch = np.empty((2, N))
        self.forget_shadows()

    def _parts(self) -> list[slice]:
        return [slice(start, start + BLOCK) for start in range(0, len(self.X), BLOCK)]

    def blocks(self) -> Iterator[tuple[Array, Array]]:
        return map(self.rows, self._parts())

    def rows(self, which: slice | NDArray[np.intp]) -> tuple[Array, Array]:
        """φ and e of some candidates."""
        return self._Phi[: self._rank, which].T, self.unseen.columns(which)

    def add(self, base: FeatureBase, row: int, value: float, precision: float) -> float:
        """One told observation, of the regression too; returns y minus the mean before."""
        h, factor, surprise = base.step(row, value, precision)
        if self.listed:
            self._step(self.covariance(h, base.shadow_factors(row, h, pending=False)), factor, surprise)
        return surprise

    def _step(self, c: Array, factor: float, surprise: float) -> None:
        """Its covariances c, which are overwritten, 1/(λ/precision + σ_i²), and y − mean_i."""
        scratch = self._scratch[1]
        np.multiply(c, factor * surprise, out=scratch)
        self.mean += scratch
        c *= c
        c *= factor
        self.variance -= c

    def expect(self, h: Array, factor: float, unseen: Array | None) -> None:
        """One more observation is pending."""
        if self.with_pending is None:
            self.with_pending = self.variance.copy()
        c = self.covariance(h, unseen)
        self.with_pending -= factor * c * c
        np.maximum(self.with_pending, 0.0, out=self.with_pending)

    def release(self, h: Array, factor: float, unseen: Array | None) -> None:
        assert self.with_pending is not None
        c = self.covariance(h, unseen)
        self.with_pending += factor * c * c

    def covariance(self, h: Array, unseen: Array | None) -> Array:
        """c over the candidates, the one pass over memory that a step costs; `unseen` are the shadows' factors."""
        c: Array = self.product(h)
        if unseen is not None:
            self.unseen.add_product(unseen, c)
        return c

    def product(self, h: Array) -> Array:
        """Φᵀh, in a buffer that the next call overwrites. One BLAS throughout, SciPy's: see `regression.py`."""
        out: Array = self._scratch[0]
        if not len(h) or not self.listed:
            out.fill(0.0)
            return out
        return cast(Array, blas.dgemv(1.0, self._Phi[: len(h)].T, h, y=out, overwrite_y=1))

    def refresh(self, base: FeatureBase) -> None:
        """Mean and variances from the formulas."""
        if not self.listed:
            return
        rows = ((self.X[part], self._Phi[: self._rank, part].T) for part in self._parts())
        self.mean = np.concatenate([base.means(phi, base.unseen(X, phi)) for X, phi in rows])
        self.variance = self._fresh_variance(base, pending=False)
        self.refresh_pending(base)

    def refresh_pending(self, base: FeatureBase) -> None:
        if self.listed and self.with_pending is not None:
            self.with_pending = self._fresh_variance(base, pending=True)

    def _fresh_variance(self, base: FeatureBase, *, pending: bool) -> Array:
        seen = np.concatenate([base.solve(phi, e, pending=pending).seen() for phi, e in self.blocks()])
        return nonnegative(seen + self.residual)

    def shift(self, h: Array, unseen: Array) -> None:
        """The coefficients changed by h, and those of the shadows by `unseen`."""
        self.mean += self.covariance(h, unseen)

    def columns(self, z: Array, residual: float) -> Array:
        """k(z, ·) over the candidates where entering z needs it, else empty.

        |e(x)|² ≤ residual(z)·residual(x): the columns of a point that cannot be a shadow are not needed.
        """
        needed = residual > TOLERANCE or self.weights is not None
        if self.listed and (needed or max(residual, 1e-15) * self.largest_residual > TOLERANCE**2):
            return np.asarray(kernels.cross(self.kernel, z, self.X)[0])
        return np.zeros(0)

    def try_columns(self, new: Array) -> None:
        """Raises if kernel values at the candidates cannot be computed."""
        for start in range(0, len(new) if self.listed else 0, 64):
            kernels.cross(self.kernel, new[start : start + 64], self.X)

    def enter(self, row: int, x: Array, at_candidates: Array) -> None:  # noqa: ARG002
        equal = np.flatnonzero(np.equal(self.X, x).all(axis=1))
        self.row_of[equal] = row
        self.candidate_of.append(int(equal[0]) if len(equal) else -1)

    def grow(self, row: int, new: Explained, at_candidates: Array, members: list[int]) -> None:
        """One more feature, a point of the table; `members` are the rows of the dictionary's points so far."""
        r, pivot = self._rank, math.sqrt(new.residual)
        if r == len(self._Phi):
            self._Phi = larger(self._Phi, r + max(16, r // 2), len(self.X))
        feature = (at_candidates - self.product(new.phi)) / pivot
        known = [self.candidate_of[m] for m in members]
        feature[[m for m in known if m >= 0]] = 0.0
        feature[self.row_of == row] = pivot
        self._Phi[r] = feature
        self.residual -= feature * feature  # not clipped: what rounding takes here it gives to the new feature
        self._rank += 1

    def rebuild(self, dictionary: Dictionary) -> None:
        """The dictionary is another, and there are no shadows yet."""
        self._Phi = np.ascontiguousarray(dictionary.features(self.X).T)
        self._rank = len(self._Phi)
        self.residual = self.prior - np.einsum("rn,rn->n", self._Phi, self._Phi)
        self.forget_shadows()

    @property
    def largest_residual(self) -> float:
        return float(self.residual.max()) if self.listed else 1.0

    def forget_shadows(self) -> None:
        self.unseen = LowRank(len(self.X), NEGLIGIBLE)  # E

    def shadow(self, phi: Array, residual: float, at_candidates: Array, times: float) -> float | None:
        """A point that counts so many times becomes a shadow. Returns its weight, the root mean square of what the
        dictionary does not see of it, times its count; None if that is negligible."""
        if not self.listed:
            return times * residual
        if not len(at_candidates):
            return None
        unseen = at_candidates - self.product(phi)
        weight = times * math.sqrt(float(unseen @ unseen) / len(unseen))
        if weight <= NEGLIGIBLE:
            return None
        self.unseen.append(unseen)
        return weight

    def explain_shadows(self, components: Array) -> None:
        """The newest feature explains a part of the shadows, with these components along it."""
        if self.listed:
            self.unseen.subtract(components, self._Phi[self._rank - 1])


class WeightedView(View):
    """A view that keeps W for callers who need ‖ζ‖₁ at every step, and takes covariances from it."""

    def __init__(self, kernel: Any, X: Array, offset: float, regularization: float) -> None:
        super().__init__(kernel, X, offset)
        self.offset = offset
        self.weights: Weights = Weights(regularization, self.prior)

    def add(self, base: FeatureBase, row: int, value: float, precision: float) -> float:
        c, candidate, points = self._scratch[0], self.candidate_of[row], base.table.points
        if candidate >= 0:
            own, column = self.weights.at_candidate(candidate), self.weights.kernel_at(candidate)
        else:
            phi, x = base.rows([row]), points[[row]]
            own = base.weights(phi, base.unseen(x, phi))[0]
            column = kernels.cross(self.kernel, points, x)[:, 0]
        base.step(row, value, precision)  # after the weights at the point, which it changes
        surprise = value - float(own @ base.table.averages)
        self._step(c, self.weights.step(row, own, column, c, precision), surprise)
        return surprise

    def enter(self, row: int, x: Array, at_candidates: Array) -> None:
        super().enter(row, x, at_candidates)
        self.weights.append(float(kernels.diagonal(self.kernel, x[None, :])[0]), at_candidates)

    def refresh(self, base: FeatureBase) -> None:
        """By a dense solve, the more stable form, or, where that would be large, from the dictionary."""
        table = base.table
        told = np.flatnonzero(table.counts)
        if len(told) <= DENSE:
            U = table.points[told]
            self.weights.refresh(told, kernels.cross(self.kernel, U, U), table.counts)
        else:
            self.weights.replace(np.concatenate([base.weights(phi, e) for phi, e in self.blocks()]).T)
        self.mean = table.averages @ self.weights.full() + self.offset
        self.variance = nonnegative(self.weights.variance())
        self.refresh_pending(base)

    def shift(self, h: Array, unseen: Array) -> None:
        """Weights know what shadows have in common."""
