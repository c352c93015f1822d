"""The posterior whose cost stops growing (spec, section 2).

    Z          dictionary: observed points whose features are independent, r of them      (r, d)
    φ(x)       L_Z⁻¹ k_Z(x), with L_Z the Cholesky factor of K_Z                           (r,)
    residual   k(x,x) − ‖φ(x)‖², the variance that the dictionary cannot see
    C, w       posterior covariance and mean of the linear model y = φ(x)·w + noise λ      (r, r), (r,)
    F          features of the u distinct observed points, with counts n and averages ȳ    (u, r)
    Φ          features of the N candidates, stored transposed: one matrix–vector product
               over contiguous rows is the whole cost of a step                           (r, N)

    mean(x) = offset + φ(x)·w        var(x) = residual(x) + φ(x)ᵀ C φ(x)

An observation at a point that the dictionary explains (residual ≤ tolerance) is a rank-one update of C and w. At any
other point the dictionary first grows by one feature, at no higher cost (`regression.py`). Every few hundred steps all
is recomputed from the sufficient statistics of the distinct points, which bounds drift.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas, solve_triangular

from misspec import kernels
from misspec.domains import Domain, Finite
from misspec.errors import Array, InvalidInput, NumericalError, vector
from misspec.model import Model
from misspec.regression import Regression
from misspec.weights import Weights

TOLERANCE = 1e-10  # at 1e-12 the pivots are rounding noise (spec, section 2)
REFRESH = 512  # steps between recomputations, or four times the rank where that is more
SUSPICIOUS = 1e-6  # a variance this far below zero is not rounding
BLOCK = 4096  # columns of Φ handled at a time where a temporary of Φ's size would be wasteful


class Posterior:
    """The posterior at arbitrary points of a domain, given observations at arbitrary points.

    model: kernel, λ and offset. domain: its encoding; x is in user units throughout.
    """

    def __init__(self, model: Model, domain: Domain, *, tolerance: float = TOLERANCE, check: bool = True) -> None:
        if check:
            model.check(domain)
        self.model = model
        self.domain = domain
        self.tolerance = tolerance
        self.t = 0  # told observations
        self._told = Regression(model.regularization)
        self._hoped: Regression | None = None  # told and pending; None while nothing is hallucinated
        self._pending: list[int] = []  # hallucinated observations, as places in the table of distinct points
        self._since_refresh = 0
        # the dictionary
        self._Z: Array = np.zeros((0, domain.dimension))
        self._L: Array = np.zeros((0, 0))
        # the distinct points, told or pending
        self._place: dict[bytes, int] = {}
        self._U: Array = np.zeros((0, domain.dimension))
        self._F: Array = np.zeros((0, 0))
        self._members: list[int] = []  # places of the dictionary's points
        self._counts: Array = np.zeros(0)
        self._sums: Array = np.zeros(0)

    # -- reading ------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"{type(self).__name__}(t={self.t}, distinct={self.distinct}, rank={self.rank}, {self.domain!r})"

    @property
    def rank(self) -> int:
        """r, the size of the dictionary: what a step costs."""
        return len(self._Z)

    @property
    def distinct(self) -> int:
        """u, the number of distinct points observed."""
        return int(np.count_nonzero(self.counts))

    @property
    def counts(self) -> Array:
        """How often each distinct point was observed, in the order of first visits (0: only hallucinated so far)."""
        return self._counts[: len(self._place)]

    @property
    def averages(self) -> Array:
        """The average observation of each distinct point, in units of y."""
        counts = self.counts
        return self._sums[: len(counts)] / np.maximum(counts, 1.0) + self.model.offset

    @property
    def points(self) -> Array:
        """The distinct points as the kernel sees them."""
        return self._U[: len(self._place)]

    @property
    def log_det(self) -> float:
        """L = log det(I + K_t/λ) of the told observations."""
        return self._told.log_det

    @property
    def information(self) -> float:
        """Realised information, L/2."""
        return 0.5 * self._told.log_det

    @property
    def pending(self) -> int:
        """Number of hallucinated observations."""
        return len(self._pending)

    @property
    def pending_information(self) -> float:
        """½ Σ over pending points of ln(1 + σ²_{s−1}(x_s)/λ); its exponential restores a multiplier's validity."""
        return 0.0 if self._hoped is None else 0.5 * (self._hoped.log_det - self._told.log_det)

    def at(self, X: ArrayLike, *, pending: bool = False) -> tuple[Array, Array]:
        """Mean and standard deviation at the rows of X (user units); `pending` counts hallucinations."""
        mean, variance = self._at(self.domain.encode(X), pending)
        return mean, np.sqrt(variance)

    def weights_at(self, X: ArrayLike) -> Array:
        """W(x) at the rows of X, shape (n, u): the mean is offset + W·(ȳ − offset). O(u·r) a point.

        ‖ζ(x)‖₁ = Σ_j |W_j(x)|, ‖ζ(x)‖₂² = Σ_j W_j(x)²/n_j. As exact as the dictionary: 2e-9/λ.
        """
        phi = self._features(self.domain.encode(X))
        weights = (phi @ self._told.covariance) @ self._table_features().T
        return np.asarray(weights * (self.counts / self.model.regularization))

    def weights_norm2_at(self, X: ArrayLike) -> Array:
        """‖ζ(x)‖₂ at the rows of X without the weights themselves: λ‖ζ‖₂² = φᵀCφ − φᵀC²φ."""
        phi = self._features(self.domain.encode(X))
        return self._norm2(phi, phi @ self._told.covariance)

    def _norm2(self, phi: Array, phi_C: Array) -> Array:
        squares = np.einsum("nr,nr->n", phi_C, phi - phi_C)
        return np.asarray(np.sqrt(np.maximum(squares, 0.0) / self.model.regularization))

    def _at(self, encoded: Array, pending: bool = False) -> tuple[Array, Array]:
        phi = self._features(encoded)
        regression = self._hoped if pending and self._hoped is not None else self._told
        residual = kernels.diagonal(self.model.kernel, encoded) - np.einsum("nr,nr->n", phi, phi)
        variance = _nonnegative(residual) + np.einsum("nr,nr->n", phi @ regression.covariance, phi)
        return phi @ self._told.w + self.model.offset, np.maximum(variance, 0.0)

    def _features(self, encoded: Array) -> Array:
        """φ(x) for each row, shape (n, r)."""
        if self.rank == 0 or len(encoded) == 0:
            return np.zeros((len(encoded), self.rank))
        K = kernels.cross(self.model.kernel, self._Z, encoded)
        return cast(Array, solve_triangular(self._L, K, lower=True, check_finite=False).T)

    def _table_features(self) -> Array:
        return self._F[: len(self._place), : self.rank]

    # -- writing ------------------------------------------------------------------------------------------------

    def observe(self, X: ArrayLike, y: ArrayLike) -> None:
        """Tell observations y at the rows of X. A failed call changes nothing."""
        encoded = self.domain.encode(X)
        self._observe(encoded, vector("observations", y, length=len(encoded)))

    def hallucinate(self, X: ArrayLike) -> None:
        """Count the rows of X as observed in the variance for choosing (pending queries); the mean stays."""
        self._hallucinate(self.domain.encode(X))

    def fulfil(self, x: ArrayLike, y: float) -> None:
        """Tell the result of a hallucinated point: the variance for choosing stays as it is."""
        encoded = self.domain.encode(x)
        self._fulfil(encoded, vector("observation", y, length=1))

    def release(self, x: ArrayLike | None = None) -> None:
        """Take back one hallucination at x, or all of them."""
        if x is None:
            self._pending.clear()
        else:
            self._pending.pop(self._pending_position(self.domain.encode(x)))
        self._rebuild_pending()

    def refresh(self) -> None:
        """Recompute everything from the sufficient statistics of the distinct points: what bounds drift."""
        self._since_refresh = 0
        self._told.refresh(self._table_features(), self.counts, self._centred())
        if self._hoped is not None:
            self._hoped.refresh(self._table_features(), self._hoped_counts(), self._centred())

    def _centred(self) -> Array:
        counts = self.counts
        return self._sums[: len(counts)] / np.maximum(counts, 1.0)

    def _hoped_counts(self) -> Array:
        counts = self.counts.copy()
        np.add.at(counts, self._pending, 1.0)
        return counts

    def _observe(self, encoded: Array, y: Array) -> None:
        places = self._enter(encoded)
        for place, value in zip(places, y - self.model.offset, strict=True):
            self._step(place, float(value))
            if self._hoped is not None:
                self._hope(place)

    def _hallucinate(self, encoded: Array) -> None:
        for place in self._enter(encoded):
            if self._hoped is None:
                self._start_pending()
            self._hope(place)
            self._pending.append(place)

    def _fulfil(self, encoded: Array, y: Array) -> None:
        position = self._pending_position(encoded)
        self._step(self._pending.pop(position), float(y[0]) - self.model.offset)
        if not self._pending:
            self._rebuild_pending()

    def _pending_position(self, encoded: Array) -> int:
        place = self._place.get(encoded[0].tobytes(), -1) if len(encoded) == 1 else -1
        if place not in self._pending:
            raise InvalidInput("only a point that is hallucinated can be told or released; this one is not")
        return self._pending.index(place)

    def _step(self, place: int, value: float) -> None:
        """One told observation (value is y − offset) at a distinct point already in the table."""
        self._update(place, value)
        self._counts[place] += 1.0
        self._sums[place] += value
        self.t += 1
        self._since_refresh += 1
        if self._since_refresh >= max(REFRESH, 4 * self.rank) or self._suspicious():
            self.refresh()

    def _update(self, place: int, value: float) -> None:
        self._told.add(self._table_features()[place], value)

    def _suspicious(self) -> bool:
        """Whether rounding has pushed a variance below zero, so that all must be recomputed now."""
        return False

    def _hope(self, place: int) -> None:
        cast(Regression, self._hoped).add(self._table_features()[place], 0.0)

    def _start_pending(self) -> None:
        self._hoped = self._told.copy()

    def _rebuild_pending(self) -> None:
        self._hoped = None
        if self._pending:
            self._start_pending()
            for place in self._pending:
                self._hope(place)

    # -- the table of distinct points and the dictionary ----------------------------------------------------------

    def _enter(self, encoded: Array) -> list[int]:
        """Places of the rows in the table of distinct points; new ones are entered and the dictionary grown.

        All kernel values that entering needs are tried first, so that a kernel that fails leaves no trace.
        """
        keys = [row.tobytes() for row in encoded]
        fresh = {key: row for key, row in zip(keys, encoded, strict=True) if key not in self._place}
        if fresh:
            new = np.array(list(fresh.values()))
            kernels.check_bounded(self.model.kernel, new, "the points observed")
            if len(fresh) > 1:
                kernels.cross(self.model.kernel, np.concatenate([self._Z, new]), new)
                self._try_columns(new)
            for key, x in fresh.items():
                self._place_new(key, x)
        return [self._place[key] for key in keys]

    def _try_columns(self, new: Array) -> None:
        """Raise if kernel columns that growth at these points would need cannot be computed."""
        kernels.cross(self.model.kernel, self.points, new)

    def _place_new(self, key: bytes, x: Array) -> None:
        z = x[None, :]
        phi = self._features(z)[0]
        residual = float(kernels.diagonal(self.model.kernel, z)[0] - phi @ phi)
        if residual < -SUSPICIOUS:
            raise NumericalError(_NOT_PSD.format(residual))
        columns = self._columns(z, residual > self.tolerance)  # nothing is changed before this line
        place = len(self._place)
        self._reserve(place + 1, self.rank + 1)
        self._U[place] = x
        self._F[place, : self.rank] = phi
        self._counts[place] = self._sums[place] = 0.0
        self._place[key] = place
        self._placed(place, columns)
        if residual > self.tolerance:
            self._grow(place, phi, math.sqrt(residual), columns)

    def _columns(self, z: Array, grows: bool) -> tuple[Array, Array]:
        """Kernel values that entering z needs: at the distinct points so far, and at the candidates."""
        nothing = np.zeros(0)
        return (kernels.cross(self.model.kernel, z, self.points)[0] if grows else nothing, nothing)

    def _placed(self, place: int, columns: tuple[Array, Array]) -> None:
        """Hook: a distinct point was entered."""

    def _grow(self, place: int, phi: Array, pivot: float, columns: tuple[Array, Array]) -> None:
        """Append the point at this place of the table to the dictionary; `pivot` is the root of its residual."""
        r = self.rank
        e = (columns[0] - self._F[:place, :r] @ phi) / pivot
        e[self._members] = 0.0  # the dictionary's own points have no component along later features
        L = np.zeros((r + 1, r + 1))
        L[:r, :r], L[r, :r], L[r, r] = self._L, phi, pivot
        self._L, self._Z = L, np.concatenate([self._Z, self._U[place][None, :]])
        self._F[:place, r], self._F[place, r] = e, pivot
        self._members.append(place)
        e = np.append(e, 0.0)  # the new point itself is not observed yet
        F, averages = self._table_features(), self._centred()
        self._grown(self._told.grow(F, self.counts, averages, e * (self.counts > 0)), False)
        if self._hoped is not None:
            self._grown(self._hoped.grow(F, self._hoped_counts(), averages, e), True)

    def _grown(self, correction: tuple[Array, float, float] | None, pending: bool) -> None:
        """Hook for quantities kept over candidates."""

    def _reserve(self, rows: int, columns: int) -> None:
        if rows > len(self._U):
            more = max(16, len(self._U))
            self._U = np.concatenate([self._U, np.zeros((more, self._U.shape[1]))])
            self._counts, self._sums = (np.append(a, np.zeros(more)) for a in (self._counts, self._sums))
        if rows > self._F.shape[0] or columns > self._F.shape[1]:
            height = self._F.shape[0] if rows <= self._F.shape[0] else len(self._U)
            width = self._F.shape[1] if columns <= self._F.shape[1] else max(16, 2 * self._F.shape[1])
            larger = np.zeros((height, width))
            larger[: self._F.shape[0], : self._F.shape[1]] = self._F
            self._F = larger


class Tracked(Posterior):
    """A posterior that also keeps mean and variance over a Finite domain: O(N·r) a step, one matrix–vector product.

    weights=True keeps W too, and takes covariances from it: c(x) = k(x, x_i) − Σ_j W_j(x) k(x_j, x_i), the more
    stable form for tiny λ. Only those who need ‖ζ‖₁ at every step should pay for it.
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
        """σ² over the candidates, told observations only."""
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
        phi = self._Phi[: self.rank, slice(None) if subset is None else subset].T
        weights = (phi @ self._told.covariance) @ (self._table_features().T * (self.counts / self.model.regularization))
        return np.asarray(np.abs(weights).sum(axis=1))

    def weights_norm2(self) -> Array:
        """‖ζ(x)‖₂ over the candidates; needs no weights."""
        return np.concatenate([self._norm2(phi, phi @ self._told.covariance) for phi in self._blocks()])

    def _blocks(self) -> list[Array]:
        Phi = self._Phi[: self.rank]
        return [Phi[:, start : start + BLOCK].T for start in range(0, len(self.domain), BLOCK)]

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
        self._pending.pop(self._pending_position(self._X[self.domain.validate_indices(index)]))
        self._rebuild_pending()

    def refresh(self) -> None:
        self._since_refresh = 0
        F, averages = self._table_features(), self._centred()
        self._variance = self._fresh_variance(self._told.refresh(F, self.counts, averages))
        np.dot(self._told.w, self._Phi[: self.rank], out=self._mean)
        self._mean += self.model.offset
        if self._weights is not None:
            self._weights.refresh(self.counts)
            self._mean = averages @ self._weights.full() + self.model.offset
            self._variance = _nonnegative(self._weights.variance())
        if self._hoped is not None:
            self._hoped_variance = self._fresh_variance(self._hoped.refresh(F, self._hoped_counts(), averages))

    def _fresh_variance(self, R: Array) -> Array:
        return np.concatenate([np.square(phi @ R).sum(axis=1) for phi in self._blocks()]) + self._residual

    def _update(self, place: int, value: float) -> None:
        phi = self._F[place, : self.rank]
        h, factor, surprise = self._told.add(phi, value)
        c, scratch = self._scratch
        if self._weights is None:
            self._product(h, c)
        else:
            candidate = self._candidate_of[place]
            row = (
                self._weights.at_candidate(candidate) if candidate >= 0 else self._weights.at_place(place, self.counts)
            )
            surprise = value - float(row @ self._centred())
            factor = self._weights.step(place, row, c)
        np.multiply(c, factor * surprise, out=scratch)
        self._mean += scratch
        c *= c
        c *= factor
        self._variance -= c

    def _product(self, h: Array, out: Array) -> Array:
        """Φ·h: the one pass over memory that a step costs."""
        if not len(h):
            out.fill(0.0)
            return out
        return np.asarray(blas.dgemv(1.0, self._Phi[: len(h)].T, h, y=out, overwrite_y=1))

    def _suspicious(self) -> bool:
        return bool(self._variance.min() < 0.0)

    def _hope(self, place: int) -> None:
        h, factor, _ = cast(Regression, self._hoped).add(self._F[place, : self.rank], 0.0)
        c = self._product(h, self._scratch[0])
        variance = cast(Array, self._hoped_variance)
        variance -= factor * c * c
        np.maximum(variance, 0.0, out=variance)

    def _start_pending(self) -> None:
        super()._start_pending()
        self._hoped_variance = self._variance.copy()

    def _rebuild_pending(self) -> None:
        self._hoped_variance = None
        super()._rebuild_pending()

    # -- growth ---------------------------------------------------------------------------------------------------

    def _try_columns(self, new: Array) -> None:
        super()._try_columns(new)
        for start in range(0, len(new), 64):
            kernels.cross(self.model.kernel, new[start : start + 64], self._X)

    def _columns(self, z: Array, grows: bool) -> tuple[Array, Array]:
        at_points, nothing = super()._columns(z, grows or self._weights is not None)
        needed = grows or self._weights is not None
        return at_points, kernels.cross(self.model.kernel, z, self._X)[0] if needed else nothing

    def _placed(self, place: int, columns: tuple[Array, Array]) -> None:
        equal = np.flatnonzero(np.equal(self._X, self._U[place]).all(axis=1))
        self._place_of[equal] = place
        self._candidate_of.append(int(equal[0]) if len(equal) else -1)
        if self._weights is not None:
            own = kernels.diagonal(self.model.kernel, self._U[place : place + 1])
            self._weights.append(columns[0], float(own[0]), columns[1])

    def _grow(self, place: int, phi: Array, pivot: float, columns: tuple[Array, Array]) -> None:
        r = len(phi)
        if r == len(self._Phi):
            self._Phi = np.concatenate([self._Phi, np.empty((max(16, r // 2), len(self.domain)))])
        feature = (columns[1] - self._product(phi, self._scratch[0])) / pivot
        members = [self._candidate_of[m] for m in self._members]
        feature[[m for m in members if m >= 0]] = 0.0
        feature[self._place_of == place] = pivot
        self._Phi[r] = feature
        self._residual = _nonnegative(self._residual - feature * feature)
        super()._grow(place, phi, pivot, columns)

    def _grown(self, correction: tuple[Array, float, float] | None, pending: bool) -> None:
        if correction is None or (self._weights is not None and not pending):
            return  # without components of earlier points the new feature changes neither mean nor variance
        q, s, kappa = correction
        r = self.rank - 1
        feature = self._Phi[r]
        along = self._product(q, self._scratch[0]) - feature
        change = along * along / s - feature * feature
        if pending:
            self._hoped_variance = _nonnegative(cast(Array, self._hoped_variance) + change)
        else:
            self._variance = _nonnegative(self._variance + change)
            self._mean += kappa * along


_NOT_PSD = "a variance came out as {:.3g}: more than rounding, so the kernel is not positive semidefinite here"


def _nonnegative(values: Array) -> Array:
    """Clip rounding below zero; NumericalError for more than rounding."""
    if len(values):
        smallest = float(values.min())
        if smallest < -SUSPICIOUS:
            raise NumericalError(_NOT_PSD.format(smallest))
        if smallest < 0.0:
            return cast(Array, np.maximum(values, 0.0))
    return values


def _frozen(values: Array) -> Array:
    view = values.view()
    view.flags.writeable = False
    return view
