"""The dictionary: observed points whose features are independent.

    Z          the dictionary's points, r of them                                          (r, d)
    φ(x)       L_Z⁻¹ k_Z(x), with L_Z the Cholesky factor of K_Z                           (r,)
    residual   k(x,x) − ‖φ(x)‖², the variance that the dictionary cannot see

A pivot of 1e-10 that was computed with an error of 1e-16 spoils the feature that is divided by it, and what is spoiled
spoils later pivots: err(z) = 1e-16 + Σ_k φ_k(z)² err(z_k)/pivot_k². In the order of arrival that can grow without bound
(a cluster first, then points far from it). When it reaches the residual that it is an error of, the dictionary is
rebuilt from its points, the shadows and the newcomer, largest residual first, which keeps it small.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.linalg import blas, lapack

from misspec import kernels
from misspec.errors import Array
from misspec.posterior.regression import bordered

TOLERANCE = 1e-10  # at 1e-12 the pivots are rounding noise
ROUNDING = 2e-16  # error of a kernel value


class Explained(NamedTuple):
    """How far the dictionary explains a new point: φ, the residual, the residual's error."""

    phi: Array
    residual: float
    error: float


class Dictionary:
    """Z and L_Z, for the features of any point.

    Law: a point joins only if its residual exceeds the tolerance; φ(z_k) is row k of L_Z, zero after column k.
    """

    def __init__(self, kernel: Any, dimension: int) -> None:
        self.kernel = kernel
        self.members: list[int] = []  # rows of the dictionary's points in the table of points
        self.Z: Array = np.zeros((0, dimension))
        self._L: Array = np.zeros((0, 0))
        self._pivot_error: Array = np.zeros(0)  # err(z_k)/pivot_k² of each feature

    @property
    def rank(self) -> int:
        return len(self.Z)

    def features(self, encoded: Array) -> Array:
        """φ(x) for each row, shape (n, r)."""
        if self.rank == 0 or len(encoded) == 0:
            return np.zeros((len(encoded), self.rank))
        return self.forward(kernels.cross(self.kernel, self.Z, encoded).T)

    def forward(self, rows: Array) -> Array:
        """L_Z⁻¹ of each row, shape (n, r)."""
        return cast(Array, blas.dtrsm(1.0, self._L, rows.T, lower=1).T) if rows.size else rows

    def backward(self, rows: Array) -> Array:
        """L_Z⁻ᵀ of each row, shape (n, r)."""
        return cast(Array, blas.dtrsm(1.0, self._L, rows.T, lower=1, trans_a=1).T) if rows.size else rows

    def features_with_slopes(self, encoded: Array) -> tuple[Array, Array]:
        """φ(x) for each row and its gradient, shapes (n, r) and (r, n, d)."""
        (n, d), r = encoded.shape, self.rank
        if r == 0:
            return np.zeros((n, 0)), np.zeros((0, n, d))
        values, slopes = kernels.cross_with_gradient(self.kernel, encoded, self.Z)
        stacked = np.concatenate([values[:, :, None], slopes], axis=2).transpose(1, 0, 2).reshape(r, n * (d + 1))
        solved = blas.dtrsm(1.0, self._L, stacked, lower=1).reshape(r, n, d + 1)
        return np.ascontiguousarray(solved[:, :, 0].T), np.ascontiguousarray(solved[:, :, 1:])

    def explain(self, z: Array) -> Explained:
        """How far the dictionary explains a new point, z of shape (1, d)."""
        phi = self.features(z)[0]
        residual = float(kernels.diagonal(self.kernel, z)[0] - phi @ phi)
        return Explained(phi, residual, self.error_of(phi))

    def error_of(self, phi: Array) -> float:
        """Bound on what rounding has done to the residual of a point with these features."""
        return ROUNDING + float(phi * phi @ self._pivot_error)

    def append(self, row: int, x: Array, new: Explained) -> None:
        """The point in this row of the table joins."""
        r = self.rank
        self._L, self.Z = bordered(self._L, math.sqrt(new.residual)), np.concatenate([self.Z, x[None, :]])
        self._L[r, :r] = new.phi
        self._pivot_error = np.append(self._pivot_error, new.error / new.residual)
        self.members.append(row)

    def choose(self, points: Array, among: list[int]) -> tuple[Array, list[int]]:
        """Choose the members again, among some rows of the table, by a Cholesky factorisation with complete pivoting.

        Returns the features of all points, and the rows that were left out.
        """
        chosen = np.array(among)
        K = kernels.cross(self.kernel, points[chosen], points[chosen])
        factor, pivots, r, _ = lapack.dpstrf(K, lower=1, tol=TOLERANCE)
        order = chosen[pivots - 1]
        self.members = order[:r].tolist()
        self.Z, self._L = points[self.members], np.asfortranarray(np.tril(factor[:r, :r]))
        self._pivot_error = np.zeros(0)
        for k in range(r):
            error = ROUNDING + float(self._L[k, :k] ** 2 @ self._pivot_error)
            self._pivot_error = np.append(self._pivot_error, error / self._L[k, k] ** 2)
        F = np.zeros((len(points), r))
        others = np.setdiff1d(np.arange(len(points)), self.members)
        F[others] = self.features(points[others])
        F[self.members] = self._L
        return F, cast("list[int]", order[r:].tolist())
