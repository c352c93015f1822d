"""Shadows: observed points that are not in the dictionary, yet have covariances that it cannot see.

    e(x)       k(x, x_j) − φ(x)·φ(x_j) for each shadow j                                   (s,)

A residual of 1e-10 allows covariances of 1e-5 with points far from the data, and many observations close together
multiply them by n/λ. Treated as features of their own, such points would be rounding noise; ignored, they move the mean
by up to 1e-4. So their covariances are kept beside the dictionary and enter exactly.

    E          e of the shadows themselves, k(x_i, x_j) − φ(x_i)·φ(x_j)                    (s, s)
    δ          what corrects their averages for it: δ = −Eα,  α = n∘(ȳ + δ − Fw)/λ         (s,)

Two shadows with hundreds of results each have a covariance of at most the tolerance, times n/λ. Regression on features
does not know it; told ȳ + δ in place of ȳ it gives what a dense solve gives. δ is held until what was told since could
make a difference.

Over N candidates, e has s rows that are nearly dependent, since shadows lie close together: a hundred of them have a
rank of twenty. They are kept as a product, so that a step reads b rows instead of s:

    E = M B    B has only as many rows as E has numerical rank                             (s, b), (b, N)
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from misspec.errors import Array
from misspec.posterior.table import larger

MOST_SHADOWS = 128  # shadows kept at most, or twice the rank where that is more
SLACK = 8  # rows that B may have beyond its rank before it is compressed


class Shadows:
    """Rows of the shadows in the table of points, with weights that say which are worth keeping.

    Law: what is left out is only the covariance of points that together with their counts are too light, and that of
    the lightest of too many.
    """

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.weights: Array = np.zeros(0)

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, row: int, weight: float) -> None:
        self.rows.append(row)
        self.weights = np.append(self.weights, weight)

    def prune(self, rank: int, least: float = -math.inf) -> NDArray[np.intp] | None:
        """Forget shadows lighter than `least`, and the lightest of too many; returns which are kept, None for all."""
        keep = self.weights > least
        excess = int(keep.sum()) - max(MOST_SHADOWS, 2 * rank)
        if excess > 0:
            keep[np.flatnonzero(keep)[np.argsort(self.weights[keep], kind="stable")[:excess]]] = False
        if keep.all():
            return None
        kept = np.flatnonzero(keep)
        self.rows, self.weights = [self.rows[k] for k in kept], self.weights[kept]
        return kept


class LowRank:
    """E = M B, with rows appended, updated and forgotten. error: what compression may cost, as a root mean square.

    Entries of E are 1e-5 and less: single precision is exact enough for B, and halves what a step reads.
    """

    def __init__(self, columns: int, error: float) -> None:
        self._error = error
        self._M: Array = np.zeros((0, 0))
        self._B = np.zeros((0, columns), dtype=np.float32)
        self._product = np.zeros(columns, dtype=np.float32)
        self._rows = 0  # b
        self._rank = 0  # b when last compressed

    def append(self, row: Array) -> None:
        """One more row of E."""
        self._extend(row)
        self._M = larger(self._M, len(self._M) + 1, self._rows)
        self._M[-1, -1] = 1.0

    def subtract(self, factors: Array, row: Array) -> None:
        """E ← E − factors ⊗ row."""
        self._extend(row)
        self._M = np.concatenate([self._M, -factors[:, None]], axis=1)

    def keep(self, kept: NDArray[np.intp]) -> None:
        """Forget all other rows of E."""
        self._M = self._M[kept]

    def add_product(self, g: Array, out: Array) -> None:
        """out ← out + Eᵀg."""
        if not self._rows:
            return
        factors = (g @ self._M).astype(np.float32)
        out += blas.sgemv(1.0, self._B[: self._rows].T, factors, y=self._product, overwrite_y=1)

    def columns(self, which: slice | NDArray[np.intp]) -> Array:
        """Some columns of E, transposed: shape (n, s)."""
        return np.asarray(self._B[: self._rows, which].T.astype(np.float64) @ self._M.T)

    @property
    def loose(self) -> bool:
        """Whether B has grown so much that `compress` is worth it."""
        return self._rows > self._rank + SLACK

    def compress(self, times: Array) -> Array:
        """Give B as few rows as the error allows, and return the root mean square of each row of E; for both, a row
        counts so many times as much.

        From the eigenvectors of E's Gram matrix, which are the left singular vectors of E.
        """
        B = self._B[: self._rows].astype(np.float64)  # a Gram matrix squares what rounding does
        M = self._M * times[:, None]
        gram = M @ (B @ B.T) @ M.T
        values, vectors = np.linalg.eigh(gram)
        kept = np.cumsum(np.maximum(values, 0.0)) > B.shape[1] * self._error**2  # eigenvalues ascend: the tail is first
        Q = vectors[:, kept]
        self._rows = self._rank = Q.shape[1]
        self._B[: self._rows] = (Q.T @ M) @ B
        self._M = Q / times[:, None]
        return np.asarray(np.sqrt(np.maximum(np.diag(gram), 0.0) / B.shape[1]))

    def _extend(self, row: Array) -> None:
        if self._rows == len(self._B):
            self._B = np.concatenate([self._B, np.empty((SLACK, self._B.shape[1]), dtype=np.float32)])
        self._B[self._rows] = row
        self._rows += 1
