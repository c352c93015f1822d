"""Rows that are nearly dependent, kept as a product.

    E = M B      s rows over N columns, in which B has only as many rows as E has numerical rank    (s, b), (b, N)

The shadows of the posterior (`shadows.py`) lie close together, and so do their rows: a hundred of them have a rank
of twenty. A product with Eᵀ then reads b rows instead of s. The entries of E are corrections of 1e-5 and less, so that
single precision is exact enough for B and halves again what is read.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from misspec.errors import Array

SLACK = 8  # rows that B may have beyond its rank before it is compressed


class LowRank:
    """E = M B, with rows appended, updated and forgotten. error: what compression may cost, as a root mean square."""

    def __init__(self, columns: int, error: float) -> None:
        self._error = error
        self._M: Array = np.zeros((0, 0))
        self._B = np.zeros((0, columns), dtype=np.float32)
        self._product = np.zeros(columns, dtype=np.float32)
        self._rows = 0  # b
        self._rank = 0  # b when last compressed

    def __len__(self) -> int:
        return len(self._M)

    def append(self, row: Array) -> None:
        """One more row of E."""
        self._extend(row)
        M = np.zeros((len(self._M) + 1, self._rows))
        M[:-1, :-1], M[-1, -1] = self._M, 1.0
        self._M = M

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
