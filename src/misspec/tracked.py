"""A posterior that keeps its mean and variance over a fixed candidate set: one matrix–vector product a step.

Φ          features of the N candidates, stored transposed, so that a step reads contiguous rows     (r, N)
E          e(x) over the candidates, one row per shadow                                              (s, N)
c(x)       posterior covariance of x with the point observed: Φᵀh + Eᵀ(1_i − n∘(F h)/λ),  h = C φ(x_i)

mean ← mean + c·(y − mean_i)/(λ + σ_i²)        var ← var − c²/(λ + σ_i²)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas

from misspec import kernels
from misspec.domains import Finite
from misspec.errors import Array, InvalidInput, vector
from misspec.lowrank import LowRank
from misspec.model import Model
from misspec.posterior import TOLERANCE, Posterior, nonnegative
from misspec.regression import Regression
from misspec.weights import Weights

NEGLIGIBLE = 0.5  # times the tolerance: the root mean square of a row of E that is not worth keeping
BLOCK = 4096  # candidates handled at a time where a temporary of Φ's size would be wasteful


class Tracked(Posterior):
    """The posterior over a Finite domain, O(N·r) a step.

    weights=True keeps W (`weights.py`) and takes covariances from it, the more stable form for tiny λ. Only those who
    need ‖ζ‖₁ at every step should pay for it.
    """

    domain: Finite

    def __init__(
        self,
        model: Model,
        domain: Finite,
        *,
        weights: bool = False,
        tolerance: float = TOLERANCE,
        check: bool = True,
    ) -> None:
        super().__init__(model, domain, tolerance=tolerance, check=check)
        N = len(domain)
        self._X = domain.encoded
        self._place_of = np.full(N, -1, dtype=np.intp)  # candidate → place in the table of distinct points
        self._candidate_of: list[int] = []  # place → candidate, or -1
        self._Phi: Array = np.zeros((0, N))
        self._E = LowRank(N, NEGLIGIBLE * tolerance)
        self._prior = kernels.diagonal(model.kernel, self._X)
        self._residual = self._prior.copy()
        self._mean: Array = np.full(N, model.offset)
        self._variance = self._prior.copy()
        self._hoped_variance: Array | None = None
        self._scratch = np.empty((2, N))
        self._weights = Weights(model.regularization, self._prior) if weights else None

    # -- reading ------------------------------------------------------------------------------------------------

    @property
    def mean(self) -> Array:
        """μ over the candidates (a read-only view that the next step changes)."""
        return _frozen(self._mean)

    @property
    def variance(self) -> Array:
        """σ² over the candidates, told observations only (a read-only view that the next step changes)."""
        return _frozen(self._variance)

    @property
    def std(self) -> Array:
        """σ over the candidates, told observations only."""
        return np.sqrt(self._variance)

    @property
    def pending_variance(self) -> Array:
        """σ² over the candidates with the hallucinated observations counted."""
        return _frozen(self._variance if self._hoped_variance is None else self._hoped_variance)

    @property
    def weights(self) -> Array:
        """W over the candidates, shape (N, u); needs weights=True."""
        if self._weights is None:
            raise InvalidInput("the weights were not kept; make Tracked(…, weights=True) or call weights_at(X)")
        return _frozen(self._weights.full().T)

    def weights_norm1(self, subset: NDArray[np.intp] | None = None) -> Array:
        """‖ζ(x)‖₁ over the candidates, or over a subset of them."""
        if self._weights is not None:
            return self._weights.norm1(subset)
        rows = slice(None) if subset is None else subset
        phi, e = self._Phi[: self.rank, rows].T, self._E.columns(rows)
        return np.asarray(np.abs(self._weights_of(phi, e)).sum(axis=1))

    @property
    def places(self) -> NDArray[np.intp]:
        """For each candidate its column in the weights, -1 where it was neither observed nor hallucinated."""
        return self._place_of.copy()

    @property
    def weights_kept(self) -> Weights | None:
        """W itself, for those who look at a few candidates only."""
        return self._weights

    def weights_norm2(self) -> Array:
        """‖ζ(x)‖₂ over the candidates; needs no weights."""
        return np.concatenate([self._norms2(phi, e) for phi, e in self._blocks()])

    def _blocks(self) -> Iterator[tuple[Array, Array]]:
        """φ and e of the candidates, some at a time."""
        for start in range(0, len(self.domain), BLOCK):
            block = slice(start, start + BLOCK)
            yield self._Phi[: self.rank, block].T, self._E.columns(block)

    # -- writing: by index as well as by point ---------------------------------------------------------------------

    def observe_index(self, indices: ArrayLike, y: ArrayLike) -> None:
        """Tell observations y at candidates. A failed call changes nothing."""
        if isinstance(indices, int | np.integer) and isinstance(y, float) and self._hoped is None and math.isfinite(y):
            place = int(self._place_of[indices]) if 0 <= indices < len(self._place_of) else -1
            if place >= 0:  # a point seen before, one at a time: the step that repeats, without ceremony
                self._step(place, y - self.model.offset)
                return
        rows = self.domain.validate_indices(indices)
        self._observe(self._X[rows], vector("observations", y, length=len(rows)))

    def hallucinate_index(self, indices: ArrayLike) -> None:
        """Count candidates as observed in the variance for choosing."""
        self._hallucinate(self._X[self.domain.validate_indices(indices)])

    def fulfil_index(self, index: int, y: float) -> None:
        """Tell the result of a hallucinated candidate."""
        self._fulfil(self._X[self.domain.validate_indices(index)], vector("observation", y, length=1))

    def release_index(self, index: int) -> None:
        """Take back one hallucination of a candidate."""
        self._release(self._X[self.domain.validate_indices(index)])

    def refresh(self) -> None:
        super().refresh()
        if self._weights is None:
            self._mean = np.concatenate([self._means(phi, e) for phi, e in self._blocks()])
            self._variance = self._fresh_variance(None)
        else:
            self._weights.refresh(self.counts)
            self._mean = self._centred() @ self._weights.full() + self.model.offset
            self._variance = nonnegative(self._weights.variance())
        if self._hoped is not None:
            self._hoped_variance = self._fresh_variance(self._hoped)

    def _fresh_variance(self, hoped: Regression | None) -> Array:
        seen = np.concatenate([self._variances(phi, e, hoped) for phi, e in self._blocks()])
        return nonnegative(seen + self._residual)

    def _update(self, place: int, value: float) -> None:
        h, factor, surprise = self._told.add(self._F[place, : self.rank], value)
        c, scratch = self._scratch
        if self._weights is None:
            self._covariance(place, h, self._counts, c)
        else:
            candidate = self._candidate_of[place]
            kept = self._weights
            row = kept.at_candidate(candidate) if candidate >= 0 else kept.at_place(place, self.counts)
            surprise = value - float(row @ self._centred())
            factor = kept.step(place, row, c)
        np.multiply(c, factor * surprise, out=scratch)
        self._mean += scratch
        c *= c
        c *= factor
        self._variance -= c

    def _hope(self, place: int) -> None:
        h, factor, _ = cast(Regression, self._hoped).add(self._F[place, : self.rank], 0.0)
        c = self._covariance(place, h, self._hoped_counts(), self._scratch[0])
        variance = cast(Array, self._hoped_variance)
        variance -= factor * c * c
        np.maximum(variance, 0.0, out=variance)

    def _covariance(self, place: int, h: Array, counts: Array, out: Array) -> Array:
        """c over the candidates: the one pass over memory that a step costs."""
        self._product(h, out)
        if self._shadows:
            S = self._shadows
            unseen = (self._F[S, : self.rank] @ h) * (counts[S] / -self.model.regularization)
            if place in S:
                unseen[S.index(place)] += 1.0
            self._E.add_product(unseen, out)
        return out

    def _product(self, h: Array, out: Array) -> Array:
        """Φᵀh. One BLAS throughout, SciPy's: see `regression.py`."""
        if not len(h):
            out.fill(0.0)
            return out
        return np.asarray(blas.dgemv(1.0, self._Phi[: len(h)].T, h, y=out, overwrite_y=1))

    def _suspicious(self) -> bool:
        return bool(self._variance.min() < 0.0)

    def _start_pending(self) -> None:
        super()._start_pending()
        self._hoped_variance = self._variance.copy()

    def _rebuild_pending(self) -> None:
        self._hoped_variance = None
        super()._rebuild_pending()

    # -- growth ---------------------------------------------------------------------------------------------------

    def _try_columns(self, new: Array) -> None:
        for start in range(0, len(new), 64):
            kernels.cross(self.model.kernel, new[start : start + 64], self._X)

    def _columns(self, z: Array, residual: float) -> tuple[Array, Array]:
        if self._weights is not None:
            residual = math.inf  # W wants all kernel values
        at_points, at_candidates = super()._columns(z, residual)
        # |e(x)|² ≤ residual(z)·residual(x): the columns of a point that cannot be a shadow are not needed
        if residual > self.tolerance or max(residual, 1e-15) * float(self._residual.max()) > self.tolerance**2:
            at_candidates = kernels.cross(self.model.kernel, z, self._X)[0]
        return at_points, at_candidates

    def _placed(self, place: int, columns: tuple[Array, Array]) -> None:
        equal = np.flatnonzero(np.equal(self._X, self._U[place]).all(axis=1))
        self._place_of[equal] = place
        self._candidate_of.append(int(equal[0]) if len(equal) else -1)
        if self._weights is not None:
            own = kernels.diagonal(self.model.kernel, self._U[place : place + 1])
            self._weights.append(columns[0], float(own[0]), columns[1])

    def _grow(self, place: int, phi: Array, pivot: float, columns: tuple[Array, Array]) -> None:
        r = self.rank
        if r == len(self._Phi):
            self._Phi = np.concatenate([self._Phi, np.empty((max(16, r // 2), len(self.domain)))])
        feature = (columns[1] - self._product(phi, self._scratch[0])) / pivot
        members = [self._candidate_of[m] for m in self._members]
        feature[[m for m in members if m >= 0]] = 0.0
        feature[self._place_of == place] = pivot
        self._Phi[r] = feature
        self._residual -= feature * feature  # not clipped: what rounding takes here it gives to the new feature
        super()._grow(place, phi, pivot, columns)
        if self._shadows:
            self._E.subtract(self._F[self._shadows, r], feature)
            self._tidy_shadows()

    def _rebuilt(self, rest: list[int]) -> None:
        self._Phi = np.ascontiguousarray(self._features(self._X).T)
        self._residual = self._prior - np.einsum("rn,rn->n", self._Phi, self._Phi)
        self._E = LowRank(len(self.domain), NEGLIGIBLE * self.tolerance)
        super()._rebuilt(rest)

    def _shadow(self, place: int, phi: Array, weight: float, columns: tuple[Array, Array]) -> None:
        if not len(columns[1]):
            return
        unseen = columns[1] - self._product(phi, self._scratch[0])
        weight = math.sqrt(float(unseen @ unseen) / len(unseen))
        if weight > NEGLIGIBLE * self.tolerance:
            self._E.append(unseen)
            super()._shadow(place, phi, weight, columns)
            self._tidy_shadows()

    def _tidy_shadows(self) -> None:
        """From time to time: forget shadows that the dictionary has learned to explain, and shrink the others' rows."""
        if self._E.loose:
            self._weight_of_shadow = self._E.compress()
            self._drop_shadows(NEGLIGIBLE * self.tolerance)

    def _keep_shadows(self, kept: NDArray[np.intp]) -> None:
        self._E.keep(kept)
        super()._keep_shadows(kept)


def _frozen(values: Array) -> Array:
    view = values.view()
    view.flags.writeable = False
    return view
