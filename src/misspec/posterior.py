"""The posterior whose cost stops growing.

    Z          dictionary: observed points whose features are independent, r of them      (r, d)
    φ(x)       L_Z⁻¹ k_Z(x), with L_Z the Cholesky factor of K_Z                           (r,)
    residual   k(x,x) − ‖φ(x)‖², the variance that the dictionary cannot see
    C, w       posterior covariance and mean of the linear model y = φ(x)·w + noise λ      (r, r), (r,)
    F          features of the u distinct observed points, with counts n and averages ȳ    (u, r)
    e(x)       k(x, x_j) − φ(x)·φ(x_j) for the *shadows* j: observed points that are not in
               the dictionary, yet have a covariance with x that it cannot see            (s,)

An observation at a point that the dictionary explains (residual ≤ tolerance) is a rank-one update of C and w; at any
other point the dictionary first grows by one feature. Explained is not the same as equal: a residual of 1e-10 allows
covariances e(x) of 1e-5 with points x far from the data, and many observations close together multiply them by n/λ.
Treated as features of their own such points would be rounding noise; ignored, they move the mean by up to 1e-4. So
their covariances are kept beside the dictionary and enter exactly, with k_U(x) = Fφ(x) + e(x):

    G = Fᵀ(n∘e)/λ,  b = C(φ − G),  mean = offset + φ·w + e·α,  α = n∘(ȳ − Fw)/λ
    var = residual + (φ − G)·b − Σ n e²/λ,  W = n∘(Fb + e)/λ,  λ‖ζ‖₂² = b·(φ + G) − ‖b‖² + Σ n e²/λ

What is left out is only the covariance of two shadows with each other, at most the tolerance. Where the dictionary
explains all points of interest there are no shadows, and the cost is that of r features alone.

A pivot of 1e-10 that was computed with an error of 1e-16 spoils the feature that is divided by it, and what is spoiled
spoils later pivots: err(z) = 1e-16 + Σ_k φ_k(z)² err(z_k)/pivot_k². In the order of arrival that can grow without bound
(a cluster first, then points far from it). When it reaches the residual that it is an error of, the dictionary is
chosen anew among its points, the shadows and the newcomer, largest residual first, which keeps it small.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas, lapack, solve_triangular

from misspec import kernels
from misspec.domains import Domain
from misspec.errors import Array, InvalidInput, NumericalError, vector
from misspec.model import Model
from misspec.regression import Regression

TOLERANCE = 1e-10  # at 1e-12 the pivots are rounding noise
REFRESH = 1024  # steps between recomputations, or four times the rank where that is more
ROUNDING = 2e-16  # error of a kernel value
SUSPICIOUS = 1e-3  # a variance this far below zero is not rounding
SHADOWS = 128  # shadows kept at most, or twice the rank where that is more


class Local(NamedTuple):
    """What the posterior is at some points, and how it changes there: shapes (n,) and (n, d)."""

    mean: Array
    variance: Array
    norm1: Array
    dmean: Array
    dvariance: Array
    dnorm1: Array

    def end(self, factor: float) -> tuple[Array, Array]:
        """μ + factor·σ and its gradient."""
        std = np.sqrt(np.maximum(self.variance, 1e-24))
        return self.mean + factor * std, self.dmean + (0.5 * factor / std)[:, None] * self.dvariance


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
        self._pivot_error: Array = np.zeros(0)  # err(z_k)/pivot_k² of each feature
        # the table of distinct points, told or pending; a place is a row of it
        self._place: dict[bytes, int] = {}
        self._U: Array = np.zeros((0, domain.dimension))
        self._F: Array = np.zeros((0, 0))
        self._counts: Array = np.zeros(0)
        self._sums: Array = np.zeros(0)
        self._members: list[int] = []  # places of the dictionary's points
        self._shadows: list[int] = []  # places of the shadows
        self._weight_of_shadow: Array = np.zeros(0)  # what decides which shadows are worth keeping

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
        return self._centred() + self.model.offset

    @property
    def points(self) -> Array:
        """The distinct points as the kernel sees them."""
        return self._U[: len(self._place)]

    def place_of(self, x: ArrayLike) -> int | None:
        """The column of a point (user units) in the weights, or None if it was neither observed nor hallucinated."""
        return self._place.get(self.domain.encode(np.atleast_2d(x))[0].tobytes())

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
        encoded = self.domain.encode(X)
        phi = self._features(encoded)
        e = self._unseen(encoded, phi)
        residual = kernels.diagonal(self.model.kernel, encoded) - np.einsum("nr,nr->n", phi, phi)
        hoped = self._hoped if pending and self._hoped is not None else None
        return self._means(phi, e), np.sqrt(nonnegative(self._variances(phi, e, hoped) + residual))

    def weights_at(self, X: ArrayLike) -> Array:
        """W(x) at the rows of X, shape (n, u): the mean is offset + W·(ȳ − offset). O(u·r) a point.

        ‖ζ(x)‖₁ = Σ_j |W_j(x)|, ‖ζ(x)‖₂² = Σ_j W_j(x)²/n_j.
        """
        encoded = self.domain.encode(X)
        phi = self._features(encoded)
        return self._weights_of(phi, self._unseen(encoded, phi))

    def weights_norm2_at(self, X: ArrayLike) -> Array:
        """‖ζ(x)‖₂ at the rows of X, without the weights themselves."""
        encoded = self.domain.encode(X)
        phi = self._features(encoded)
        return self._norms2(phi, self._unseen(encoded, phi))

    def local(self, encoded: Array, *, pending: bool = False, norm1: bool = False) -> Local:
        """Mean, variance and, if wanted, ‖ζ‖₁ with their gradients at the rows of X, all as the kernel sees them."""
        kernel, ridge, S = self.model.kernel, self.model.regularization, self._shadows
        (n, d), r = encoded.shape, self.rank
        hoped = self._hoped if pending and self._hoped is not None else None
        phi, dphi = self._features_with_slopes(encoded)  # (n, r), (r, n, d)
        v, dv, told_dv = phi, dphi, dphi
        mean = phi @ self._told.w + self.model.offset
        dmean = (self._told.w @ dphi.reshape(r, n * d)).reshape(n, d)
        variance = kernels.diagonal(kernel, encoded) - np.einsum("nr,nr->n", phi, phi)
        e, de = np.zeros((n, 0)), np.zeros((n, 0, d))
        ratio = np.zeros(0)
        if S:  # points whose covariance the dictionary cannot see: the formulas on top of this page
            F, alpha = self._F[S, :r], self._alpha()
            ratio = (self.counts if hoped is None else self._hoped_counts())[S] / ridge
            values, slopes = kernels.cross_with_gradient(kernel, encoded, self._U[S])
            e = values - phi @ F.T
            de = slopes - np.einsum("sr,rnd->nsd", F, dphi)
            mean = mean + e @ alpha
            dmean = dmean + np.einsum("s,nsd->nd", alpha, de)
            v = phi - (e * ratio) @ F
            dv = dphi - np.einsum("sr,s,nsd->rnd", F, ratio, de)
            told_dv = dphi - np.einsum("sr,s,nsd->rnd", F, self.counts[S] / ridge, de)
        b = v @ (hoped or self._told).covariance
        variance = nonnegative(variance + np.einsum("nr,nr->n", v, b) - (e * e) @ ratio)
        dvariance = 2.0 * (np.einsum("nr,rnd->nd", b, dv) - np.einsum("nr,rnd->nd", phi, dphi))
        dvariance += kernels.diagonal_gradient(kernel, encoded)
        if S:
            dvariance -= 2.0 * np.einsum("ns,nsd->nd", e * ratio, de)
        if not norm1:
            return Local(mean, variance, np.zeros(n), dmean, dvariance, np.zeros((n, d)))
        weights = self._weights_of(phi, e)
        signs = np.sign(weights) * (self.counts / ridge)
        back = (signs @ self._table_features()) @ self._told.covariance  # Σ_j ± n_j/λ · F_j C
        dnorm1 = np.einsum("nr,rnd->nd", back, told_dv) + np.einsum("ns,nsd->nd", signs[:, S], de)
        return Local(mean, variance, np.abs(weights).sum(axis=1), dmean, dvariance, dnorm1)

    def _features_with_slopes(self, encoded: Array) -> tuple[Array, Array]:
        """φ(x) for each row and its gradient, shapes (n, r) and (r, n, d)."""
        (n, d), r = encoded.shape, self.rank
        if r == 0:
            return np.zeros((n, 0)), np.zeros((0, n, d))
        values, slopes = kernels.cross_with_gradient(self.model.kernel, encoded, self._Z)
        stacked = np.concatenate([values[:, :, None], slopes], axis=2).transpose(1, 0, 2).reshape(r, n * (d + 1))
        solved = blas.dtrsm(1.0, self._L, stacked, lower=1).reshape(r, n, d + 1)
        return np.ascontiguousarray(solved[:, :, 0].T), np.ascontiguousarray(solved[:, :, 1:])

    # -- the formulas on top of this page, for rows of φ (n, r) and e (n, s) -----------------------------------------

    def _means(self, phi: Array, e: Array) -> Array:
        mean = phi @ self._told.w + self.model.offset
        return mean + e @ self._alpha() if self._shadows else mean

    def _alpha(self) -> Array:
        """α at the shadows."""
        S = self._shadows
        ratio = self._counts[S] / self.model.regularization
        return ratio * (self._centred()[S] - self._F[S, : self.rank] @ self._told.w)

    def _solved(self, phi: Array, e: Array, hoped: Regression | None = None) -> tuple[Array, Array, Array]:
        """G, b and Σ n e²/λ; without shadows G = 0 and the last is 0."""
        if not self._shadows:
            return np.zeros_like(phi), phi @ (hoped or self._told).covariance, np.zeros(len(phi))
        counts = self._counts if hoped is None else self._hoped_counts()
        scaled = e * (counts[self._shadows] / self.model.regularization)
        G = scaled @ self._F[self._shadows, : self.rank]
        return G, (phi - G) @ (hoped or self._told).covariance, np.einsum("ns,ns->n", scaled, e)

    def _variances(self, phi: Array, e: Array, hoped: Regression | None = None) -> Array:
        """The variance less the residual."""
        G, b, squares = self._solved(phi, e, hoped)
        return np.asarray(np.einsum("nr,nr->n", phi - G, b) - squares)

    def _weights_of(self, phi: Array, e: Array) -> Array:
        _, b, _ = self._solved(phi, e)
        weights = b @ self._table_features().T
        if self._shadows:
            weights[:, self._shadows] += e
        return np.asarray(weights * (self.counts / self.model.regularization))

    def _norms2(self, phi: Array, e: Array) -> Array:
        G, b, squares = self._solved(phi, e)
        total = np.einsum("nr,nr->n", b, phi + G - b) + squares
        return np.asarray(np.sqrt(np.maximum(total, 0.0) / self.model.regularization))

    def _features(self, encoded: Array) -> Array:
        """φ(x) for each row, shape (n, r)."""
        if self.rank == 0 or len(encoded) == 0:
            return np.zeros((len(encoded), self.rank))
        K = kernels.cross(self.model.kernel, self._Z, encoded)
        return cast(Array, solve_triangular(self._L, K, lower=True, check_finite=False).T)

    def _unseen(self, encoded: Array, phi: Array) -> Array:
        """e(x) for each row, shape (n, s)."""
        if not self._shadows or len(encoded) == 0:
            return np.zeros((len(encoded), len(self._shadows)))
        return (
            kernels.cross(self.model.kernel, encoded, self._U[self._shadows])
            - phi @ self._F[self._shadows, : self.rank].T
        )

    def _table_features(self) -> Array:
        return self._F[: len(self._place), : self.rank]

    def _centred(self) -> Array:
        counts = self.counts
        return self._sums[: len(counts)] / np.maximum(counts, 1.0)

    def _hoped_counts(self) -> Array:
        counts = self.counts.copy()
        np.add.at(counts, self._pending, 1.0)
        return counts

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
        self._fulfil(self.domain.encode(x), vector("observation", y, length=1))

    def release(self, x: ArrayLike | None = None) -> None:
        """Take back one hallucination at x, or all of them."""
        if x is None:
            self._pending.clear()
            self._rebuild_pending()
        else:
            self._release(self.domain.encode(x))

    def retell(self, averages: ArrayLike) -> None:
        """Replace what was observed, keeping where and how often: averages per distinct point, in units of y."""
        values = vector("averages", averages, length=len(self._place))
        self._sums[: len(values)] = self.counts * (values - self.model.offset)
        self.refresh()

    def refresh(self) -> None:
        """Recompute everything from the sufficient statistics of the distinct points: what bounds drift."""
        self._since_refresh = 0
        self._told.refresh(self._table_features(), self.counts, self._centred())
        if self._hoped is not None:
            self._hoped.refresh(self._table_features(), self._hoped_counts(), self._centred())

    def _observe(self, encoded: Array, y: Array) -> None:
        places = self._enter(encoded)
        for place, value in zip(places, y - self.model.offset, strict=True):
            if self._hoped is not None:
                self._hope(place)
            self._step(place, float(value))

    def _hallucinate(self, encoded: Array) -> None:
        for place in self._enter(encoded):
            if self._hoped is None:
                self._start_pending()
            self._hope(place)
            self._pending.append(place)

    def _fulfil(self, encoded: Array, y: Array) -> None:
        place = self._pending.pop(self._pending_position(encoded))
        self._step(place, float(y[0]) - self.model.offset)
        if not self._pending:
            self._rebuild_pending()

    def _release(self, encoded: Array) -> None:
        self._pending.pop(self._pending_position(encoded))
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
        self._told.add(self._F[place, : self.rank], value)

    def _hope(self, place: int) -> None:
        cast(Regression, self._hoped).add(self._F[place, : self.rank], 0.0)

    def _suspicious(self) -> bool:
        """Whether rounding has pushed a variance below zero, so that all must be recomputed now."""
        return False

    def _start_pending(self) -> None:
        self._hoped = self._told.copy()

    def _rebuild_pending(self) -> None:
        """Hallucinate from the told observations anew."""
        self._hoped = None
        pending, self._pending = self._pending, []
        for place in pending:
            if self._hoped is None:
                self._start_pending()
            self._hope(place)
            self._pending.append(place)

    # -- the table of distinct points, the dictionary and the shadows -------------------------------------------------

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
                kernels.cross(self.model.kernel, np.concatenate([self.points, new]), new)
                self._try_columns(new)
            for key, x in fresh.items():
                self._place_new(key, x)
        return [self._place[key] for key in keys]

    def _try_columns(self, new: Array) -> None:
        """Hook: raise if kernel values at the candidates cannot be computed."""

    def _place_new(self, key: bytes, x: Array) -> None:
        z = x[None, :]
        phi = self._features(z)[0]
        residual = float(kernels.diagonal(self.model.kernel, z)[0] - phi @ phi)
        error = ROUNDING + float(phi * phi @ self._pivot_error)
        doubtful = self.rank > 0 and error > 0.1 * max(residual, self.tolerance)
        if not doubtful:
            nonnegative(np.array([residual]))
        columns = self._columns(z, math.inf if doubtful else residual)  # nothing is changed before this line
        place = len(self._place)
        self._reserve(place + 1, self.rank + 1)
        self._U[place] = x
        self._F[place, : self.rank] = phi
        self._F[place, self.rank :] = 0.0
        self._counts[place] = self._sums[place] = 0.0
        self._place[key] = place
        self._placed(place, columns)
        if doubtful:
            self._rebuild(place)
        elif residual > self.tolerance:
            self._pivot_error = np.append(self._pivot_error, error / residual)
            self._grow(place, phi, math.sqrt(residual), columns)
        else:
            self._shadow(place, phi, residual, columns)

    def _columns(self, z: Array, residual: float) -> tuple[Array, Array]:
        """Kernel values that entering z needs: at the distinct points so far, and at the candidates."""
        nothing = np.zeros(0)
        grows = residual > self.tolerance
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
        self._told.grow(F, self.counts, averages, e)
        if self._hoped is not None:
            self._hoped.grow(F, self._hoped_counts(), averages, e)

    def _rebuild(self, newcomer: int) -> None:
        """Choose the dictionary anew by a Cholesky factorisation with complete pivoting."""
        chosen = np.array([*self._members, *self._shadows, newcomer])
        K = kernels.cross(self.model.kernel, self._U[chosen], self._U[chosen])
        factor, pivots, r, _ = lapack.dpstrf(K, lower=1, tol=self.tolerance)
        order = chosen[pivots - 1]
        self._members, rest = order[:r].tolist(), order[r:].tolist()
        self._Z, self._L = self._U[self._members], np.tril(factor[:r, :r])
        self._reserve(len(self._place), r)
        self._F[:] = 0.0
        self._F[: len(self._place), :r] = self._features(self.points)
        self._F[self._members, :r] = self._L
        self._pivot_error = np.zeros(0)
        for k in range(r):
            error = ROUNDING + float(self._L[k, :k] ** 2 @ self._pivot_error)
            self._pivot_error = np.append(self._pivot_error, error / self._L[k, k] ** 2)
        self._rebuilt(rest)
        self.refresh()

    def _rebuilt(self, rest: list[int]) -> None:
        """The dictionary is new; `rest` are points that it explains."""
        self._shadows, self._weight_of_shadow = [], np.zeros(0)
        for place in rest:
            phi = self._F[place, : self.rank]
            own = kernels.diagonal(self.model.kernel, self._U[place : place + 1])
            self._shadow(place, phi, float(own[0] - phi @ phi), self._columns(self._U[place : place + 1], math.inf))

    def _shadow(self, place: int, phi: Array, weight: float, columns: tuple[Array, Array]) -> None:  # noqa: ARG002
        """Keep a point that the dictionary explains as a shadow; of too many, the one it explains best goes.

        weight: how much of it is unexplained; here its residual. (phi and columns are for those who know candidates.)
        """
        self._shadows.append(place)
        self._weight_of_shadow = np.append(self._weight_of_shadow, weight)
        self._drop_shadows()

    def _drop_shadows(self, least: float = -math.inf) -> None:
        """Drop shadows whose weight is below `least`, and the lightest of too many."""
        keep = self._weight_of_shadow > least
        excess = int(keep.sum()) - max(SHADOWS, 2 * self.rank)
        if excess > 0:
            keep[np.flatnonzero(keep)[np.argsort(self._weight_of_shadow[keep], kind="stable")[:excess]]] = False
        if not keep.all():
            self._keep_shadows(np.flatnonzero(keep))

    def _keep_shadows(self, kept: NDArray[np.intp]) -> None:
        self._shadows = [self._shadows[k] for k in kept]
        self._weight_of_shadow = self._weight_of_shadow[kept]

    def _reserve(self, rows: int, columns: int) -> None:
        if rows > len(self._U):
            more = max(16, len(self._U))
            self._U = np.concatenate([self._U, np.zeros((more, self._U.shape[1]))])
            self._counts, self._sums = (np.append(a, np.zeros(more)) for a in (self._counts, self._sums))
        if rows > self._F.shape[0] or columns > self._F.shape[1]:
            width = self._F.shape[1] if columns <= self._F.shape[1] else max(16, columns, 2 * self._F.shape[1])
            larger = np.zeros((len(self._U), width))
            larger[: self._F.shape[0], : self._F.shape[1]] = self._F
            self._F = larger


def nonnegative(values: Array) -> Array:
    """Variances with rounding below zero clipped; NumericalError for more than rounding."""
    smallest = float(values.min(initial=0.0))
    if smallest < -SUSPICIOUS:
        raise NumericalError(
            f"a variance came out as {smallest:.3g}: more than rounding, so the kernel is not positive semidefinite; "
            "choose another kernel"
        )
    return np.maximum(values, 0.0) if smallest < 0.0 else values
