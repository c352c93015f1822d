"""The weights ζ of the posterior mean over a fixed candidate set.

    W          weights summed over repetitions, one row per distinct observed point        (u, N)
               mean = ȳ·W,  ‖ζ(x)‖₁ = Σ_j |W_j(x)|
    c(x)       posterior covariance with the point observed: k(x, x_i) − Σ_j W_j(x) k(x_j, x_i)

When point i is observed, W ← W + (e_i − W[:, i]) ⊗ c/(λ + σ²(x_i)). That writes all of W, so updates are collected,
W = base + Dᵀ·G with D (k, u) and G (k, N), and applied together in one matrix product: an ordinary step only reads.

‖ζ‖₁ at every candidate would cost a pass over W. A bound on it costs one over N: an update adds at most
|c|/(λ + σ²)·‖e_i − W[:, i]‖₁. A search for a maximum evaluates ‖ζ‖₁ only where the bound lets a point win.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cho_solve, cholesky

from misspec.errors import Array
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
