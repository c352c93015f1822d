"""The posterior over a fixed candidate set, kept up to date: one matrix–vector product per step.

Φ          features of the N candidates, stored transposed, so that a step reads contiguous rows     (r, N)
E          e(x) over the candidates, one row per shadow                                              (s, N)
c(x)       posterior covariance of x with the point observed: Φᵀh + Eᵀ(1_i − n∘(F h)/λ),  h = C φ(x_i)

mean ← mean + c·(y − mean_i)/(λ + σ_i²)        var ← var − c²/(λ + σ_i²)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from misspec import kernels
from misspec.errors import Array
from misspec.posterior.dictionary import TOLERANCE, Explained
from misspec.posterior.lowrank import LowRank
from misspec.posterior.weights import Weights

NEGLIGIBLE = 0.5  # times the tolerance: the root mean square of a row of E that is not worth keeping
BLOCK = 4096  # candidates handled at a time where a temporary of Φ's size would be wasteful


class View:
    """Φ, E, mean and variance over the candidates X; `weights` are kept for those who need ‖ζ‖₁ at every step.

    Law: after every step the mean and variance are those of a dense solve, up to drift that a refresh removes.
    """

    def __init__(self, kernel: Any, X: Array, offset: float) -> None:
        self.kernel, self.X = kernel, X
        self.weights: Weights | None = None
        N = len(X)
        self.place_of = np.full(N, -1, dtype=np.intp)  # candidate → place in the table of distinct points
        self.candidate_of: list[int] = []  # place → candidate, or -1
        self.unseen = LowRank(N, NEGLIGIBLE * TOLERANCE)  # E
        self.prior = kernels.diagonal(kernel, X)
        self.residual = self.prior.copy()
        self.mean: Array = np.full(N, offset)
        self.variance = self.prior.copy()
        self.hoped: Array | None = None  # the variance with hallucinations counted, where there are any
        self._Phi: Array = np.zeros((0, N))
        self._rank = 0
        self._scratch = np.empty((2, N))

    def blocks(self) -> Iterator[tuple[Array, Array]]:
        """φ and e of the candidates, some at a time."""
        for start in range(0, len(self.X), BLOCK):
            yield self.rows(slice(start, start + BLOCK))

    def features(self) -> Iterator[tuple[Array, Array]]:
        """The candidates and their φ, some at a time."""
        for start in range(0, len(self.X), BLOCK):
            yield self.X[start : start + BLOCK], self._Phi[: self._rank, start : start + BLOCK].T

    def rows(self, which: slice | NDArray[np.intp]) -> tuple[Array, Array]:
        """φ and e of some candidates."""
        return self._Phi[: self._rank, which].T, self.unseen.columns(which)

    # -- steps ------------------------------------------------------------------------------------------------

    def update(self, c: Array, factor: float, surprise: float) -> None:
        """One told observation; c is overwritten."""
        scratch = self._scratch[1]
        np.multiply(c, factor * surprise, out=scratch)
        self.mean += scratch
        c *= c
        c *= factor
        self.variance -= c

    def hope(self, c: Array, factor: float) -> None:
        """One hallucinated observation."""
        assert self.hoped is not None
        self.hoped -= factor * c * c
        np.maximum(self.hoped, 0.0, out=self.hoped)

    def covariance(self, h: Array, unseen: Array | None) -> Array:
        """c over the candidates, the one pass over memory that a step costs; `unseen` are the shadows' factors."""
        c: Array = self.product(h)
        if unseen is not None:
            self.unseen.add_product(unseen, c)
        return c

    def product(self, h: Array) -> Array:
        """Φᵀh, in a buffer that the next call overwrites. One BLAS throughout, SciPy's: see `regression.py`."""
        out: Array = self._scratch[0]
        if not len(h):
            out.fill(0.0)
            return out
        return cast(Array, blas.dgemv(1.0, self._Phi[: len(h)].T, h, y=out, overwrite_y=1))

    @property
    def buffer(self) -> Array:
        """Where covariances are written."""
        return np.asarray(self._scratch[0])

    # -- growth -----------------------------------------------------------------------------------------------

    def columns(self, z: Array, residual: float) -> Array:
        """k(z, ·) over the candidates where entering z needs it, else empty.

        |e(x)|² ≤ residual(z)·residual(x): the columns of a point that cannot be a shadow are not needed.
        """
        needed = residual > TOLERANCE or self.weights is not None
        if needed or max(residual, 1e-15) * float(self.residual.max()) > TOLERANCE**2:
            return np.asarray(kernels.cross(self.kernel, z, self.X)[0])
        return np.zeros(0)

    def try_columns(self, new: Array) -> None:
        """Raises if kernel values at the candidates cannot be computed."""
        for start in range(0, len(new), 64):
            kernels.cross(self.kernel, new[start : start + 64], self.X)

    def enter(self, place: int, x: Array, at_candidates: Array) -> None:
        """A new distinct point."""
        equal = np.flatnonzero(np.equal(self.X, x).all(axis=1))
        self.place_of[equal] = place
        self.candidate_of.append(int(equal[0]) if len(equal) else -1)
        if self.weights is not None:
            self.weights.append(float(kernels.diagonal(self.kernel, x[None, :])[0]), at_candidates)

    def grow(self, place: int, new: Explained, at_candidates: Array, members: list[int]) -> Array:
        """The new feature over the candidates; `members` are the places of the dictionary's points so far."""
        r, pivot = self._rank, math.sqrt(new.residual)
        if r == len(self._Phi):
            self._Phi = np.concatenate([self._Phi, np.empty((max(16, r // 2), len(self.X)))])
        feature = (at_candidates - self.product(new.phi)) / pivot
        known = [self.candidate_of[m] for m in members]
        feature[[m for m in known if m >= 0]] = 0.0
        feature[self.place_of == place] = pivot
        self._Phi[r] = feature
        self.residual -= feature * feature  # not clipped: what rounding takes here it gives to the new feature
        self._rank += 1
        return feature

    def rebuild(self, features: Array) -> None:
        """The dictionary is new, and there are no shadows yet; features of the candidates, (N, r)."""
        self._Phi = np.ascontiguousarray(features.T)
        self._rank = len(self._Phi)
        self.residual = self.prior - np.einsum("rn,rn->n", self._Phi, self._Phi)
        self.forget_unseen()

    def forget_unseen(self) -> None:
        """There are no shadows."""
        self.unseen = LowRank(len(self.X), NEGLIGIBLE * TOLERANCE)

    def shadow(self, phi: Array, at_candidates: Array, times: float) -> float:
        """The root mean square of what the dictionary does not see of a point, which counts so many times; kept if not
        negligible, else 0."""
        if not len(at_candidates):
            return 0.0
        unseen = at_candidates - self.product(phi)
        weight = times * math.sqrt(float(unseen @ unseen) / len(unseen))
        if weight <= NEGLIGIBLE * TOLERANCE:
            return 0.0
        self.unseen.append(unseen)
        return weight
