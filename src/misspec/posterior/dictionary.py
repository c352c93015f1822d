"""The dictionary: observed points whose features are independent.

    Z          the dictionary's points, r of them                                          (r, d)
    φ(x)       L_Z⁻¹ k_Z(x), with L_Z the Cholesky factor of K_Z                           (r,)
    residual   k(x,x) − ‖φ(x)‖², the variance that the dictionary cannot see
    F          features of the u distinct observed points                                  (u, r)

A pivot of 1e-10 that was computed with an error of 1e-16 spoils the feature that is divided by it, and what is spoiled
spoils later pivots: err(z) = 1e-16 + Σ_k φ_k(z)² err(z_k)/pivot_k². In the order of arrival that can grow without bound
(a cluster first, then points far from it). When it reaches the residual that it is an error of, the dictionary is
rebuilt from its points, the shadows and the newcomer, largest residual first, which keeps it small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.linalg import blas, lapack

from misspec import kernels
from misspec.errors import Array

TOLERANCE = 1e-10  # at 1e-12 the pivots are rounding noise
ROUNDING = 2e-16  # error of a kernel value


class Explained(NamedTuple):
    """What the dictionary says of a new point: φ, the residual, the residual's error."""

    phi: Array
    residual: float
    error: float


class Dictionary:
    """Z, L_Z and the features of all distinct points.

    Law: a point joins only if its residual exceeds the tolerance; φ(z_k) is row k of L_Z, zero after column k.
    """

    def __init__(self, kernel: Any, dimension: int) -> None:
        self.kernel = kernel
        self.members: list[int] = []  # places of the dictionary's points
        self._Z: Array = np.zeros((0, dimension))
        self._L: Array = np.zeros((0, 0))
        self._pivot_error: Array = np.zeros(0)  # err(z_k)/pivot_k² of each feature
        self._F: Array = np.zeros((0, 0))
        self._size = 0  # u

    @property
    def rank(self) -> int:
        return len(self._Z)

    @property
    def table(self) -> Array:
        """F, shape (u, r)."""
        return self._F[: self._size, : len(self._Z)]

    def row(self, place: int) -> Array:
        """φ of a distinct point."""
        return self._F[place, : len(self._Z)]

    def rows(self, places: Sequence[int]) -> Array:
        """φ of some distinct points, shape (n, r)."""
        return self._F[places, : len(self._Z)]

    def features(self, encoded: Array) -> Array:
        """φ(x) for each row, shape (n, r)."""
        if self.rank == 0 or len(encoded) == 0:
            return np.zeros((len(encoded), self.rank))
        return self.forward(kernels.cross(self.kernel, self._Z, encoded).T)

    @property
    def members_at(self) -> Array:
        """Z."""
        return self._Z

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
        values, slopes = kernels.cross_with_gradient(self.kernel, encoded, self._Z)
        stacked = np.concatenate([values[:, :, None], slopes], axis=2).transpose(1, 0, 2).reshape(r, n * (d + 1))
        solved = blas.dtrsm(1.0, self._L, stacked, lower=1).reshape(r, n, d + 1)
        return np.ascontiguousarray(solved[:, :, 0].T), np.ascontiguousarray(solved[:, :, 1:])

    def explain(self, z: Array) -> Explained:
        """What is known of a new point, z of shape (1, d)."""
        phi = self.features(z)[0]
        residual = float(kernels.diagonal(self.kernel, z)[0] - phi @ phi)
        return Explained(phi, residual, self.error_of(phi))

    def error_of(self, phi: Array) -> float:
        """What rounding may have done to the residual of a point with these features."""
        return ROUNDING + float(phi * phi @ self._pivot_error)

    def enter(self, place: int, phi: Array) -> None:
        """A new distinct point, whose features are φ so far."""
        self._reserve(place + 1, self.rank + 1)
        self._F[place, : self.rank] = phi
        self._F[place, self.rank :] = 0.0
        self._size = place + 1

    def grow(self, x: Array, new: Explained, at_points: Array) -> Array:
        """The last distinct point joins, given k(x, x_j) at those before. Components along the new feature, (u,)."""
        r, place, pivot = self.rank, self._size - 1, float(np.sqrt(new.residual))
        e = (at_points - self._F[:place, :r] @ new.phi) / pivot
        e[self.members] = 0.0  # the dictionary's own points have no component along later features
        L = np.zeros((r + 1, r + 1), order="F")
        L[:r, :r], L[r, :r], L[r, r] = self._L, new.phi, pivot
        self._L, self._Z = L, np.concatenate([self._Z, x[None, :]])
        self._pivot_error = np.append(self._pivot_error, new.error / new.residual)
        self._F[:place, r], self._F[place, r] = e, pivot
        self.members.append(place)
        return np.append(e, 0.0)  # the new point itself is not observed yet

    def choose_anew(self, points: Array, among: list[int], K: Array | None = None) -> list[int]:
        """Choose among distinct points by a Cholesky factorisation with complete pivoting; returns those left out.

        K: the kernel among them, if it is known.
        """
        chosen = np.array(among)
        if K is None:
            K = kernels.cross(self.kernel, points[chosen], points[chosen])
        factor, pivots, r, _ = lapack.dpstrf(K, lower=1, tol=TOLERANCE)
        order = chosen[pivots - 1]
        self.members = order[:r].tolist()
        self._Z, self._L = points[self.members], np.asfortranarray(np.tril(factor[:r, :r]))
        self._reserve(self._size, r)
        self._F[:] = 0.0
        others = np.setdiff1d(np.arange(self._size), self.members)
        self._F[others, :r] = self.features(points[others])
        self._F[self.members, :r] = self._L
        self._pivot_error = np.zeros(0)
        for k in range(r):
            error = ROUNDING + float(self._L[k, :k] ** 2 @ self._pivot_error)
            self._pivot_error = np.append(self._pivot_error, error / self._L[k, k] ** 2)
        return cast("list[int]", order[r:].tolist())

    def _reserve(self, rows: int, columns: int) -> None:
        if rows > self._F.shape[0] or columns > self._F.shape[1]:
            height = self._F.shape[0] if rows <= self._F.shape[0] else max(16, 2 * self._F.shape[0])
            width = self._F.shape[1] if columns <= self._F.shape[1] else max(16, columns, 2 * self._F.shape[1])
            larger = np.zeros((height, width))
            larger[: self._F.shape[0], : self._F.shape[1]] = self._F
            self._F = larger
