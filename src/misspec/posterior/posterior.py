"""The posterior at arbitrary points, given observations at arbitrary points.

    C, w       posterior covariance and mean of the linear model y = φ(x)·w + noise λ      (r, r), (r,)
    F, n, ȳ    features, counts and averages of the u distinct observed points             (u, r), (u,), (u,)
    e(x)       covariances with the shadows that the dictionary cannot see                 (s,)

An observation at a point that the dictionary explains (residual ≤ tolerance) is a rank-one update of C and w; at any
other point the dictionary first grows by one feature. With the shadows, k_U(x) = Fφ(x) + e(x):

    G = Fᵀ(n∘e)/λ,  b = C(φ − G),  mean = offset + φ·w + e·α,  α = n∘(ȳ − Fw)/λ
    var = residual + (φ − G)·b − Σ n e²/λ,  W = n∘(Fb + e)/λ,  λ‖ζ‖₂² = bᵀSb + 2G·b + Σ n e²/λ,  S = Fᵀ(n∘F)/λ

Where the dictionary explains all points of interest there are no shadows, and the cost is that of r features alone.

Linear kernels have all their features from the start, and with a *budget* the dictionary stops growing (`frozen.py`):
features are fixed when a point arrives, steps need no table of them, and what a budget misses is charged to the bands.
"""

from __future__ import annotations

import copy
import logging
import math

import numpy as np
from numpy.typing import ArrayLike

from misspec import kernels
from misspec.domains import Domain, width_of
from misspec.errors import Array, InvalidInput, flag, vector, whole
from misspec.model import Model, a_model
from misspec.posterior.dictionary import TOLERANCE, Explained
from misspec.posterior.frozen import Budgeted, Frozen, Linear, Missed, dictionary_of
from misspec.posterior.look import Bias, Glance, Local, nonnegative
from misspec.posterior.regression import Regression
from misspec.posterior.shadows import MOST_SHADOWS, Shadows
from misspec.posterior.table import Table
from misspec.posterior.view import NEGLIGIBLE, View
from misspec.posterior.weights import Weights

REFRESH = 1024  # steps between recomputations, or four times the rank where that is more
MANY, BLOCK = 32, 1024  # new points in one call from which on they enter together, and how many at a time
BULK = 256  # observations in one call from which on they are counted together, rather than step by step
DENSE = 2000  # distinct points up to which weights are recomputed by a dense solve
REMOVED = 256  # hallucinations removed one by one before all are recomputed, against rounding
GROWN = 2000  # features from which on a budget is advised
LOG = logging.getLogger("misspec")
TINY = 1e-150  # a norm: 0/0 is 0
DRIFT = 5e-11  # of the largest result: how much of what shadows have in common may wait for a correction
LEAST_RESIDUAL = 1e-15  # what rounding leaves of one


class Posterior:
    """The posterior at arbitrary points of a domain, given observations at arbitrary points.

    model: kernel, λ and offset. domain: its encoding; x is in user units throughout.
    budget: features at most; None for as many as there are independent points. weights: whether ‖ζ‖₁ is needed at
    every step: with a budget, features of all points are kept for it.
    """

    _view: View | None = None  # of the candidates; `Tracked` has one
    _listed = False

    def __init__(
        self, model: Model, domain: Domain, *, weights: bool = False, budget: int | None = None, check: bool = True
    ) -> None:
        self.model = a_model(model)
        if flag("check", check):
            model.check(domain)
        self.domain = domain
        self.t = 0  # told observations
        width = width_of(domain)
        self._table = Table(width)
        self.budget = None if budget is None else whole("budget", budget, at_least=1)
        self._dictionary = dictionary_of(
            model.kernel, width, self._table, self.budget, listed=self._listed, keep=flag("weights", weights)
        )
        if isinstance(self._dictionary, Linear):
            self.budget = None  # nothing is missed
        self._most = kernels.rank(model.kernel, width)  # features of a linear kernel
        self._shadows = Shadows()
        self._told = Regression.of_rank(model.regularization, self.rank)
        self._hoped: Regression | None = None  # told and pending; None while nothing is hallucinated
        self._pending: dict[int, int] = {}  # hallucinated observations: places, and how often each
        self._hallucinated = 0  # of them in all
        self._removed = 0  # since they were made
        self._missed = Missed(self.rank)  # by a budgeted dictionary
        self._since_refresh = 0
        self._reach: dict[int, float] = {}  # the largest covariance that a shadow has with one, itself among them
        self._drift = 0.0  # what shadows were told since they were corrected, times that
        self._largest = 0.0  # max |y − offset| so far
        self.generation = 0  # number of times the dictionary was rebuilt: earlier features are void then

    # -- reading ------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"{type(self).__name__}(t={self.t}, distinct={self.distinct}, rank={self.rank}, {self.domain!r})"

    @property
    def rank(self) -> int:
        """r, the size of the dictionary: what a step costs."""
        return self._dictionary.rank

    @property
    def _complete(self) -> bool:
        """Whether the dictionary explains every point there is: no residuals, no shadows."""
        return self._most is not None and self.rank >= self._most

    @property
    def distinct(self) -> int:
        """u, the number of distinct points observed."""
        return int(np.count_nonzero(self.counts))

    @property
    def counts(self) -> Array:
        """How often each distinct point was observed, in the order of first visits (0: only hallucinated so far)."""
        return self._table.counts

    @property
    def averages(self) -> Array:
        """The average observation of each distinct point, in units of y."""
        return self._table.averages + self.model.offset

    @property
    def points(self) -> Array:
        """The distinct points as the kernel sees them."""
        return self._table.points

    def features(self, encoded: Array) -> Array:
        """φ at points as the kernel sees them, shape (n, r); later features are added at the end, see `generation`."""
        return self._dictionary.features(encoded)

    def features_with_slopes(self, encoded: Array) -> tuple[Array, Array]:
        """The same with gradients, shapes (n, r) and (r, n, d)."""
        return self._dictionary.features_with_slopes(encoded)

    def place_of(self, x: ArrayLike) -> int | None:
        """The column of a point (user units) in the weights, or None if it was neither observed nor hallucinated."""
        return self._table.place_of(self.domain.encode(np.atleast_2d(x))[0].tobytes())

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
        return self._hallucinated

    @property
    def pending_information(self) -> float:
        """½ Σ over pending points of ln(1 + σ²_{s−1}(x_s)/λ); its exponential restores a multiplier's validity."""
        return 0.0 if self._hoped is None else 0.5 * (self._hoped.log_det - self._told.log_det)

    def at(self, X: ArrayLike, *, pending: bool = False) -> tuple[Array, Array]:
        """Mean and standard deviation at the rows of X (user units); `pending` counts hallucinations."""
        here = self.look(self.domain.encode(X), pending=pending)
        return here.mean, np.sqrt(here.variance)

    def look(self, encoded: Array, *, pending: bool = False) -> Glance:
        """What there is to know at points as the kernel sees them, shape (n, E)."""
        phi = self._dictionary.features(encoded)
        if isinstance(self._dictionary, Frozen):
            return self._look_frozen(encoded, phi, self._hoped if pending else None)
        e = self._unseen(encoded, phi)
        variance = self._variances(phi, e, self._hoped if pending else None)
        if not self._complete:
            variance += kernels.diagonal(self.model.kernel, encoded) - np.einsum("nr,nr->n", phi, phi)

        def norm1() -> Array:
            return np.asarray(np.abs(self._weights_of(phi, e)).sum(axis=1))

        return Glance(self._means(phi, e), nonnegative(variance), norm1, lambda: self._norms2(phi, e))

    def _look_frozen(self, encoded: Array, phi: Array, hoped: Regression | None) -> Glance:
        """The same where there are no shadows."""
        mean = phi @ self._told.w + self.model.offset
        b = (hoped or self._told).times(phi)
        variance = np.maximum(np.einsum("nr,nr->n", phi, b), 0.0)
        told = None if hoped is not None else b
        norms = (lambda: self._norm1_frozen(phi), lambda: self._norm2_frozen(phi, told))
        if not isinstance(self._dictionary, Budgeted):
            return Glance(mean, variance, *norms)
        prior = kernels.diagonal(self.model.kernel, encoded)
        residual = nonnegative(prior - np.einsum("nr,nr->n", phi, phi))
        return Glance(mean, variance + residual, *norms, residual, self.bias_at(phi, residual, told))

    def _norm1_frozen(self, phi: Array) -> Array:
        return np.asarray(np.abs(self._weights_of(phi, phi[:, :0])).sum(axis=1))

    def _norm2_frozen(self, phi: Array, b: Array | None) -> Array:
        return np.asarray(np.sqrt(self._squares(self._told.times(phi) if b is None else b)))

    def _squares(self, b: Array) -> Array:
        """‖ζ‖₂² from b = Cφ, without shadows."""
        total = np.einsum("nr,nr->n", b, self._told.gram_times(b))
        return np.asarray(np.maximum(total, 0.0) / self.model.regularization)

    def bias_at(self, phi: Array, residual: Array, b: Array | None = None) -> Bias:
        """What a misfit of ε, and what a budget misses, can do at points with these features: `frozen.py`."""
        B, ridge = self.model.norm_bound, self.model.regularization

        def bias(epsilon: float, exactly: bool) -> Array:
            here = B * np.sqrt(residual)
            if exactly:
                each = epsilon + B * self._missed_at()
                return np.asarray(here + np.abs(self._weights_of(phi, phi[:, :0])) @ each)
            c = self._told.times(phi) if b is None else b
            squares = B * np.maximum(np.einsum("nr,nr->n", c, self._missed.times(c)), 0.0) / ridge**2
            if epsilon > 0:
                squares = squares + epsilon * self._squares(c)
            return np.asarray(here + math.sqrt(self.misfit_total(epsilon)) * np.sqrt(squares))

        return bias

    def misfit_total(self, epsilon: float) -> float:
        """Σ_s b_s = ε·t + B·ρ, t the told observations and the next."""
        return epsilon * (self.t + 1) + self.model.norm_bound * self._missed.total

    @property
    def missed_squares(self) -> float:
        """ρ₂ = Σ_s res_s over the told observations: 0 without a budget."""
        return self._missed.squares

    def _missed_at(self) -> Array:
        """√res of the distinct points."""
        dictionary = self._dictionary
        return np.array(dictionary.missed) if isinstance(dictionary, Budgeted) else np.zeros(len(self._table))

    def weights_at(self, X: ArrayLike) -> Array:
        """W(x) at the rows of X, shape (n, u): the mean is offset + W·(ȳ − offset). O(u·r) per point.

        ‖ζ(x)‖₁ = Σ_j |W_j(x)|, ‖ζ(x)‖₂² = Σ_j W_j(x)²/n_j.
        """
        encoded = self.domain.encode(X)
        phi = self._dictionary.features(encoded)
        return self._weights_of(phi, self._unseen(encoded, phi))

    def local(self, encoded: Array, *, pending: bool = False, norm: int = 0, epsilon: float | None = None) -> Local:
        """Mean, variance and, if wanted, ‖ζ‖₁ or ‖ζ‖₂ with their gradients at the rows of X, all as the kernel sees
        them. epsilon: with a budget, the norm wanted is the bias for this ε, without what is missed at the point."""
        kernel, ridge, S = self.model.kernel, self.model.regularization, self._shadows.places
        (n, d), r = encoded.shape, self.rank
        hoped = self._hoped if pending else None
        if not (norm or S or isinstance(self._dictionary, Linear)):
            return self._local_by_adjoints(encoded, hoped or self._told)
        phi, dphi = self._dictionary.features_with_slopes(encoded)  # (n, r), (r, n, d)
        v, dv, told_dv = phi, dphi, dphi
        mean = phi @ self._told.w + self.model.offset
        dmean = (self._told.w @ dphi.reshape(r, n * d)).reshape(n, d)
        residual = kernels.diagonal(kernel, encoded) - np.einsum("nr,nr->n", phi, phi)
        dresidual = kernels.diagonal_gradient(kernel, encoded) - 2.0 * np.einsum("nr,rnd->nd", phi, dphi)
        e, de = np.zeros((n, 0)), np.zeros((n, 0, d))
        ratio = np.zeros(0)
        if S:  # points whose covariance the dictionary cannot see: the formulas at the top of this file
            F, alpha = self._dictionary.rows(S), self._alpha()
            ratio = self._shadow_counts(hoped) / ridge
            values, slopes = kernels.cross_with_gradient(kernel, encoded, self.points[S])
            e = values - phi @ F.T
            de = slopes - np.einsum("sr,rnd->nsd", F, dphi)
            mean = mean + e @ alpha
            dmean = dmean + np.einsum("s,nsd->nd", alpha, de)
            v = phi - (e * ratio) @ F
            dv = dphi - np.einsum("sr,s,nsd->rnd", F, ratio, de)
            told_dv = dphi - np.einsum("sr,s,nsd->rnd", F, self.counts[S] / ridge, de)
        b = (hoped or self._told).times(v)
        variance = nonnegative(residual + np.einsum("nr,nr->n", v, b) - (e * e) @ ratio)
        dvariance = dresidual + 2.0 * np.einsum("nr,rnd->nd", b, dv)
        if S:
            dvariance -= 2.0 * np.einsum("ns,nsd->nd", e * ratio, de)
        norms, dnorms = np.zeros(n), np.zeros((n, d))
        if norm == 2:
            G, b, _ = self._solved(phi, e)
            # half of the gradient of λ‖ζ‖₂² = bᵀSb + 2G·b + Σ n e²/λ, where db = C·d(φ − G)
            back = self._told.times(self._told.gram_times(b) + G)
            half = np.einsum("nr,rnd->nd", back, told_dv) + np.einsum("nr,rnd->nd", b, dphi - told_dv)
            half += np.einsum("ns,nsd->nd", e * (self.counts[S] / ridge), de)
            norms = self._norms2(phi, e)
            dnorms = half / (ridge * np.maximum(norms, TINY))[:, None]
            if epsilon is not None:  # √(εt + Bρ)·√(ε‖ζ‖₂² + B·bᵀHb/λ²)
                strain, share = self._missed.times(b), self.model.norm_bound / ridge**2
                squares = epsilon * norms**2 + share * np.maximum(np.einsum("nr,nr->n", b, strain), 0.0)
                half = epsilon * norms[:, None] * dnorms
                half += share * np.einsum("nr,rnd->nd", self._told.times(strain), dphi)
                total, norms = math.sqrt(self.misfit_total(epsilon)), np.sqrt(squares)
                norms, dnorms = total * norms, total * half / np.maximum(norms, TINY)[:, None]
        elif norm == 1:
            weights = self._weights_of(phi, e)
            each = 1.0 if epsilon is None else epsilon + self.model.norm_bound * self._missed_at()
            signs = np.sign(weights) * (self.counts / ridge) * each
            back = self._told.times(signs @ self._dictionary.table)  # Σ_j ± n_j/λ · F_j C
            dnorms = np.einsum("nr,rnd->nd", back, told_dv) + np.einsum("ns,nsd->nd", signs[:, S], de)
            norms = (np.abs(weights) * each).sum(axis=1)
        return Local(mean, variance, norms, dmean, dvariance, dnorms, nonnegative(residual), dresidual)

    def _local_by_adjoints(self, encoded: Array, regression: Regression) -> Local:
        """The same without norms and shadows: a·dφ = (L⁻ᵀa)·dk for a = w, φ and Cφ, and no slopes of features."""
        kernel, n = self.model.kernel, len(encoded)
        values, slopes = kernels.cross_with_gradient(kernel, encoded, self._dictionary.members_at)
        phi = self._dictionary.forward(values)
        b = regression.times(phi)
        adjoints = self._dictionary.backward(np.concatenate([phi, b, self._told.w[None, :]]))
        residual = kernels.diagonal(kernel, encoded) - np.einsum("nr,nr->n", phi, phi)
        dresidual, dseen = (np.einsum("nr,nrd->nd", rows, slopes) for rows in (adjoints[:n], adjoints[n : 2 * n]))
        dresidual = kernels.diagonal_gradient(kernel, encoded) - 2.0 * dresidual
        variance = nonnegative(residual + np.einsum("nr,nr->n", phi, b))
        mean, dmean = phi @ self._told.w + self.model.offset, np.einsum("r,nrd->nd", adjoints[2 * n], slopes)
        nothing = np.zeros(n), np.zeros(encoded.shape)
        dvariance = dresidual + 2.0 * dseen
        return Local(mean, variance, nothing[0], dmean, dvariance, nothing[1], nonnegative(residual), dresidual)

    def sample_at(self, encoded: Array, rng: np.random.Generator, *, pending: bool = False) -> Array:
        """A sample of f − μ at points as the kernel sees them, jointly."""
        hoped = self._hoped if pending else None
        phi = self._dictionary.features(encoded)
        if self._complete and not self._shadows and self.rank <= len(encoded):
            return np.asarray(phi @ (hoped or self._told).root_times(rng.standard_normal(self.rank)))
        e = self._unseen(encoded, phi)
        G, b, _ = self._solved(phi, e, hoped)
        scaled = e * (self._shadow_counts(hoped) / self.model.regularization)
        rest = kernels.cross(self.model.kernel, encoded, encoded) - phi @ phi.T
        covariance = rest + (phi - G) @ b.T - scaled @ e.T
        values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
        return np.asarray(vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(len(values))))

    # -- the formulas at the top of this file, for rows of φ (n, r) and e (n, s) -------------------------------------

    def _means(self, phi: Array, e: Array) -> Array:
        mean = phi @ self._told.w + self.model.offset
        return mean + e @ self._alpha() if self._shadows else mean

    def _alpha(self) -> Array:
        """α at the shadows."""
        S = self._shadows.places
        ratio = self.counts[S] / self.model.regularization
        return ratio * (self._table.targets[S] - self._dictionary.rows(S) @ self._told.w)

    def _solved(self, phi: Array, e: Array, hoped: Regression | None = None) -> tuple[Array, Array, Array]:
        """G, b and Σ n e²/λ; without shadows G = 0 and the last is 0."""
        if not self._shadows:
            return np.zeros_like(phi), (hoped or self._told).times(phi), np.zeros(len(phi))
        S = self._shadows.places
        scaled = e * (self._shadow_counts(hoped) / self.model.regularization)
        G = scaled @ self._dictionary.rows(S)
        return G, (hoped or self._told).times(phi - G), np.einsum("ns,ns->n", scaled, e)

    def _variances(self, phi: Array, e: Array, hoped: Regression | None = None) -> Array:
        """The variance less the residual."""
        if not self._shadows:
            return np.asarray(np.einsum("nr,nr->n", phi, (hoped or self._told).times(phi)))
        G, b, squares = self._solved(phi, e, hoped)
        return np.asarray(np.einsum("nr,nr->n", phi - G, b) - squares)

    def _weights_of(self, phi: Array, e: Array) -> Array:
        _, b, _ = self._solved(phi, e)
        weights = b @ self._dictionary.table.T
        if self._shadows:
            weights[:, self._shadows.places] += e
        return np.asarray(weights * (self.counts / self.model.regularization))

    def _kernel_column(self, view: View, place: int) -> Array:
        """k(x_j, x) over the distinct points x_j, for the one at this place."""
        candidate = view.candidate_of[place]
        if view.weights is not None and candidate >= 0:
            return view.weights.kernel_at(candidate)
        return kernels.cross(self.model.kernel, self.points, self.points[[place]])[:, 0]

    def _kept_at(self, view: View, place: int) -> Array:
        """W at a distinct point: as kept where that is a candidate, else from the dictionary."""
        if view.weights is not None and view.candidate_of[place] >= 0:
            return view.weights.at_candidate(view.candidate_of[place])
        phi = self._dictionary.rows([place])
        return np.asarray(self._weights_of(phi, self._unseen(self.points[[place]], phi))[0])

    def _norms2(self, phi: Array, e: Array) -> Array:
        G, b, squares = self._solved(phi, e)
        total = np.einsum("nr,nr->n", b, self._told.gram_times(b) + 2.0 * G) + squares
        return np.asarray(np.sqrt(np.maximum(total, 0.0) / self.model.regularization))

    def _unseen(self, encoded: Array, phi: Array) -> Array:
        """e(x) for each row, shape (n, s)."""
        S = self._shadows.places
        if not S or len(encoded) == 0:
            return np.zeros((len(encoded), len(S)))
        return kernels.cross(self.model.kernel, encoded, self.points[S]) - phi @ self._dictionary.rows(S).T

    def _counts(self, hoped: Regression | None) -> Array:
        """n, with the pending points where those count."""
        return self.counts if hoped is None else self._table.counts_with(self._pending)

    def _shadow_counts(self, hoped: Regression | None) -> Array:
        """The same at the shadows."""
        S = self._shadows.places
        pending = 0.0 if hoped is None else np.array([self._pending.get(place, 0) for place in S], dtype=np.float64)
        return np.asarray(self.counts[S] + pending)

    # -- writing ------------------------------------------------------------------------------------------------

    def observe(self, X: ArrayLike, y: ArrayLike) -> None:
        """Tell observations y at the rows of X. Input that is refused changes nothing."""
        encoded = self.domain.encode(X)
        self._observe(encoded, vector("observations", y, length=len(encoded)))

    def hallucinate(self, X: ArrayLike) -> None:
        """Count the rows of X as observed in the variance for choosing (pending queries); the mean stays."""
        self._hallucinate(self.domain.encode(X))

    def fulfil(self, x: ArrayLike, y: float) -> None:
        """Tell the result of a hallucinated point: the variance for choosing stays as it is."""
        self._fulfil(self.domain.encode(x), float(vector("observation", y, length=1)[0]))

    def release(self, x: ArrayLike | None = None) -> None:
        """Take back one hallucination at x, or all of them."""
        if x is None:
            places = list(self._pending)
            self._pending.clear()
            self._rebuild_pending()
            for place in places:
                self._settle(place)
        else:
            self._release(self._taken(self.domain.encode(x)))

    def take(self, encoded: Array, y: float, *, expected: bool) -> None:
        """One result at a point that was checked before, as the kernel sees it, shape (1, E)."""
        if expected:
            self._fulfil(encoded, y)
            return
        place = self._table.place_of(encoded.tobytes())
        if place is None:
            place = self._enter_new(encoded)
        if self._hoped is not None:
            self._hope(place)
        self._step(place, y - self.model.offset)

    def expect(self, encoded: Array) -> None:
        """Hallucinate a point that was checked before, as the kernel sees it, shape (1, E)."""
        place = self._table.place_of(encoded.tobytes())
        self._expect(self._enter_new(encoded) if place is None else place)

    def unexpect(self, encoded: Array) -> None:
        """Take back a hallucination at a point as the kernel sees it, shape (1, E)."""
        self._release(self._taken(encoded))

    def retell(self, averages: ArrayLike) -> None:
        """Replace what was observed, keeping where and how often: averages per distinct point, in units of y."""
        self._table.replace(vector("averages", averages, length=len(self._table)) - self.model.offset)
        self._told.refresh(self._dictionary.table, self.counts, self._table.averages)
        self.refresh()

    def refresh(self) -> None:
        """Recompute everything from sufficient statistics: what bounds drift. Those of fixed features are S and p; else
        they are the distinct points', of which features that came later are known."""
        self._since_refresh = 0
        averages, view = self._table.averages, self._view
        if isinstance(self._dictionary, Frozen):
            self._told.renew()
            if self._hoped is not None:
                self._hoped.renew()
        else:
            self._cast_shadows()
            self._table.corrections[:] = 0.0
            F = self._dictionary.table
            self._told.refresh(F, self.counts, averages)
            self._correct()
            if self._hoped is not None:
                self._hoped.refresh(F, self._counts(self._hoped), averages)
        if view is None:
            return
        if view.weights is None:
            view.mean = np.concatenate([self._means(phi, self._unseen(X, phi)) for X, phi in view.features()])
            view.variance = self._fresh_variance(view, None)
        else:
            self._refresh_weights(view.weights, view)
            view.mean = averages @ view.weights.full() + self.model.offset
            view.variance = nonnegative(view.weights.variance())
        if self._hoped is not None:
            view.hoped = self._fresh_variance(view, self._hoped)

    def _correct(self) -> None:
        """Bring δ up to date, for what shadows have in common (`shadows.py`): where it changes by Δ, α does by MΔ."""
        S, view = self._shadows.places, self._view
        if not S:
            return
        F, ratio = self._dictionary.rows(S), self.counts[S] / self.model.regularization
        M = np.diag(ratio) - ratio[:, None] * (F @ self._told.times(F).T) * ratio
        E, w, alpha = self._unseen(self.points[S], F), self._told.w.copy(), self._alpha()
        change = np.linalg.solve(np.eye(len(S)) + E @ M, -E @ alpha - self._table.corrections[S])
        self._table.corrections[S] += change
        self._reach, self._drift = dict(zip(S, np.abs(E).max(axis=1).tolist(), strict=True)), 0.0
        self._told.shift((ratio * change) @ F)
        if view is not None and view.weights is None:
            view.mean += view.covariance(self._told.w - w, self._alpha() - alpha)

    def _refresh_weights(self, kept: Weights, view: View) -> None:
        """By a dense solve, the more stable form, or, where that would be large, from the dictionary."""
        told = np.flatnonzero(self.counts)
        if len(told) <= DENSE:
            U = self.points[told]
            kept.refresh(told, kernels.cross(self.model.kernel, U, U), self.counts)
        else:
            kept.replace(np.concatenate([self._weights_of(phi, e) for phi, e in view.blocks()]).T)

    def _fresh_variance(self, view: View, hoped: Regression | None) -> Array:
        seen = np.concatenate([self._variances(phi, e, hoped) for phi, e in view.blocks()])
        return nonnegative(seen + view.residual)

    def _observe(self, encoded: Array, y: Array) -> None:
        if len(y) >= (BULK if self.t else MANY):
            self._observe_all(encoded, y - self.model.offset)
            return
        places = self._enter(encoded)
        for place, value in zip(places, y - self.model.offset, strict=True):
            if self._hoped is not None:
                self._hope(place)
            self._step(place, float(value))

    def _observe_all(self, encoded: Array, values: Array) -> None:
        """Many at once: enter their points, count, and recompute. Whatever fails, nothing is changed."""
        if len(values) <= BLOCK:  # `_enter` tries all kernel values first
            self._take_all(encoded, values)
            return
        kernels.check_bounded(self.model.kernel, encoded, "the points observed")
        shared = [self.model, self.model.kernel, self.domain, *([] if self._view is None else [self._view.X])]
        before = copy.deepcopy(self.__dict__, {id(each): each for each in shared})
        try:
            self._take_all(encoded, values)
        except BaseException:
            self.__dict__.update(before)
            raise

    def _take_all(self, encoded: Array, values: Array) -> None:
        for start in range(0, len(values), BLOCK):
            some = values[start : start + BLOCK]
            places = self._enter(encoded[start : start + BLOCK])
            Phi = self._dictionary.rows(places) if isinstance(self._dictionary, Frozen) else None
            self._table.count_all(places, some)
            if isinstance(self._dictionary, Frozen) and Phi is not None:
                self._told.gather(Phi, some)
                if self._hoped is not None:
                    self._hoped.gather(Phi, np.zeros(len(some)))
                if isinstance(self._dictionary, Budgeted):
                    self._missed.add_all(Phi, np.array([self._dictionary.missed[place] for place in places]))
                for place in places:
                    self._dictionary.settled(place)
        self.t += len(values)
        self.refresh()

    def _hallucinate(self, encoded: Array) -> None:
        for place in self._enter(encoded):
            self._expect(place)

    def _expect(self, place: int) -> None:
        self._hope(place)
        self._pending[place] = self._pending.get(place, 0) + 1
        self._hallucinated += 1

    def _fulfil(self, encoded: Array, y: float) -> None:
        place = self._taken(encoded)
        self._step(place, y - self.model.offset)
        if not self._pending:
            self._rebuild_pending()

    def _taken(self, encoded: Array) -> int:
        """The place of a hallucinated point, counted as pending once less."""
        place = self._table.place_of(encoded[0].tobytes()) if len(encoded) == 1 else None
        count = 0 if place is None else self._pending.get(place, 0)
        if place is None or not count:
            raise InvalidInput("only a point that is hallucinated can be told or released; this one is not")
        if count > 1:
            self._pending[place] = count - 1
        else:
            del self._pending[place]
        self._hallucinated -= 1
        return place

    def _release(self, place: int) -> None:
        """Take back a hallucination that is counted no more, one step of the same cost as making it."""
        self._removed += 1
        if not self._pending or self._removed >= REMOVED or self._hoped is None:
            self._rebuild_pending()
            self._settle(place)
            return
        counts = self._shadow_counts(self._hoped)
        if place in self._shadows.places:
            counts[self._shadows.places.index(place)] += 1.0  # what is taken back still counts here
        step, view = self._hoped.remove(self._dictionary.row(place)), self._view
        if view is not None and view.hoped is not None:
            if step is None:
                view.hoped = self._fresh_variance(view, self._hoped)
            else:
                c = self._covariance(view, place, step[0], counts)
                view.hoped += step[1] * c * c
        self._settle(place)

    def _settle(self, place: int) -> None:
        """Features of a point that pends no more are not kept for it."""
        if isinstance(self._dictionary, Frozen) and place not in self._pending:
            self._dictionary.settled(place)

    def _step(self, place: int, value: float) -> None:
        """One told observation (value is y − offset) at a distinct point already in the table."""
        view = self._view
        kept = None if view is None else view.weights
        row = None if view is None or kept is None else self._kept_at(view, place)  # before the step
        h, factor, surprise = self._told.add(self._dictionary.row(place), value + self._table.corrections[place])
        if view is not None:
            if kept is None or row is None:
                c = self._covariance(view, place, h, self._shadow_counts(None))
            else:
                c = view.buffer
                surprise = value - float(row @ self._table.averages)
                factor = kept.step(place, row, self._kernel_column(view, place), c)
            view.update(c, factor, surprise)
        self._table.count(place, value)
        self._largest = max(self._largest, abs(value))
        if self._reach and place in self._reach:
            self._drift += self._reach[place] * abs(surprise)
            if self._drift > DRIFT * self._largest:
                self._correct()
        if isinstance(self._dictionary, Frozen):
            self._count_missed(place)
        self.t += 1
        self._since_refresh += 1
        doubtful = view is not None and bool(view.variance.min() < 0.0)  # rounding has pushed a variance below zero
        if self._since_refresh >= max(REFRESH, 4 * self.rank) or doubtful:
            self.refresh()

    def _hope(self, place: int) -> None:
        """Count a distinct point as observed in the variance for choosing."""
        view = self._view
        if self._hoped is None:
            self._hoped = self._told.copy()
            if view is not None:
                view.hoped = view.variance.copy()
        h, factor = self._hoped.hope(self._dictionary.row(place))
        if view is not None:
            view.hope(self._covariance(view, place, h, self._shadow_counts(self._hoped)), factor)

    def _count_missed(self, place: int) -> None:
        """What a budget misses of an observation."""
        dictionary = self._dictionary
        if isinstance(dictionary, Budgeted):
            missed = dictionary.missed[place]
            if missed:
                self._missed.add(dictionary.row(place), missed)
            dictionary.settled(place)

    def _covariance(self, view: View, place: int, h: Array, counts: Array) -> Array:
        """c over the candidates with the point at this place; counts: of the shadows."""
        if not self._shadows:
            return view.covariance(h, None)
        S = self._shadows.places
        unseen = (self._dictionary.rows(S) @ h) * (counts / -self.model.regularization)
        if place in S:
            unseen[S.index(place)] += 1.0
        return view.covariance(h, unseen)

    def _rebuild_pending(self) -> None:
        """Recompute all hallucinations from the told observations."""
        pending, self._pending, self._hoped = self._pending, {}, None
        self._hallucinated = self._removed = 0
        if self._view is not None:
            self._view.hoped = None
        for place, count in pending.items():
            for _ in range(count):
                self._expect(place)

    # -- points that are new: the dictionary grows, is rebuilt, or gets a shadow -------------------------------------

    def _enter(self, encoded: Array) -> list[int]:
        """Places of the rows in the table of distinct points; new ones are entered.

        All kernel values that entering needs are tried first, so that a kernel that fails leaves no trace.
        """
        table = self._table
        keys = [row.tobytes() for row in encoded]
        fresh = {key: row for key, row in zip(keys, encoded, strict=True) if key not in table}
        if fresh:
            new = np.array(list(fresh.values()))
            kernels.check_bounded(self.model.kernel, new, "the points observed")
            if isinstance(self._dictionary, Frozen):
                self._enter_frozen(list(fresh), new)
                return [table.place(key) for key in keys]
            K = None
            if len(fresh) > 1:
                K = kernels.cross(self.model.kernel, np.concatenate([self.points, new]), new)
                if self._view is not None:
                    self._view.try_columns(new)
            if len(fresh) >= max(MANY, self.rank):
                self._enter_many(list(fresh), new, K if K is not None and len(K) == len(new) <= BLOCK else None)
            else:
                for key, x in fresh.items():
                    self._enter_one(key, x)
        return [table.place(key) for key in keys]

    def _enter_new(self, encoded: Array) -> int:
        """Enter one point that is new, shape (1, E)."""
        if isinstance(self._dictionary, Linear):
            place = self._table.enter(encoded.tobytes(), encoded[0])
            self._dictionary.enter(place, self._dictionary.features(encoded)[0])
            return place
        if isinstance(self._dictionary, Frozen):
            self._enter_frozen([encoded.tobytes()], encoded)
        else:
            self._enter_one(encoded.tobytes(), encoded[0])
        return len(self._table) - 1

    def _enter_frozen(self, keys: list[bytes], new: Array) -> None:
        """In the order of arrival: each is explained by those that joined before, and joins if that is too little."""
        dictionary, view, kernel = self._dictionary, self._view, self.model.kernel
        Phi = dictionary.features(new)
        if isinstance(dictionary, Linear):
            for key, x, phi in zip(keys, new, Phi, strict=True):
                dictionary.enter(self._table.enter(key, x), phi)
            return
        assert isinstance(dictionary, Budgeted)
        residual = kernels.diagonal(kernel, new) - np.einsum("nr,nr->n", Phi, Phi)
        K = kernels.cross(kernel, new, new) if len(new) > 1 else np.zeros((1, 1))
        if view is not None and len(new) > 1:
            view.try_columns(new)
        for i, (key, x) in enumerate(zip(keys, new, strict=True)):
            explained = Explained(Phi[i], float(residual[i]), dictionary.error_of(Phi[i]))
            joins = dictionary.admits(explained)
            at_candidates = view.columns(x[None, :], math.inf) if joins and view is not None else np.zeros(0)
            place = self._table.enter(key, x)  # nothing is changed before this line
            if view is not None:
                view.enter(place, x, at_candidates)
            if not joins:
                dictionary.arrive(place, explained)
                continue
            if view is not None:
                view.grow(place, explained, at_candidates, dictionary.members)
            dictionary.join(place, x, explained)
            for part in (self._told, self._hoped, self._missed):
                if part is not None:
                    part.extend()
            if i + 1 < len(new):  # what of the others lies along the new feature
                e = (K[i, i + 1 :] - Phi[i + 1 :] @ explained.phi) / math.sqrt(explained.residual)
                residual[i + 1 :] -= e * e
                Phi = np.column_stack([Phi, np.append(np.zeros(i + 1), e)])

    def _enter_many(self, keys: list[bytes], new: Array, K: Array | None) -> None:
        """Some at a time: the dictionary is chosen among all points that there are, rather than grown point by point.

        K: the kernel among the new points, where there are no others and they enter at once.
        """
        kept = self._view is not None and self._view.weights is not None
        for start in range(0, len(new), BLOCK):
            places: list[int] = []
            for key, x in zip(keys[start : start + BLOCK], new[start : start + BLOCK], strict=True):
                column = self._view.columns(x[None, :], math.inf) if kept and self._view is not None else np.zeros(0)
                places.append(self._table.enter(key, x))
                self._dictionary.enter(places[-1], np.zeros(self.rank))
                if self._view is not None:
                    self._view.enter(places[-1], x, column)
            self._rebuild(places, K)

    def _enter_one(self, key: bytes, x: Array) -> None:
        z, dictionary = x[None, :], self._dictionary
        new = dictionary.explain(z)
        doubtful = self.rank > 0 and new.error > 0.1 * max(new.residual, TOLERANCE)
        if not doubtful:
            nonnegative(np.array([new.residual]))
        at_points, at_candidates = self._columns(z, math.inf if doubtful else new.residual)
        place = self._table.enter(key, x)  # nothing is changed before this line
        dictionary.enter(place, new.phi)
        if self._view is not None:
            self._view.enter(place, x, at_candidates)
        if doubtful:
            self._rebuild([place])
        elif new.residual > TOLERANCE:
            self._grow(place, x, new, at_points, at_candidates)
            if self.rank == GROWN:
                LOG.warning(
                    "the posterior has %d features, and every round costs their square; budget=… bounds that", GROWN
                )
        elif not self._complete:
            self._shadow(place, new.phi, new.residual, at_candidates)

    def _columns(self, z: Array, residual: float) -> tuple[Array, Array]:
        """Kernel values that entering z needs: at the distinct points so far, and at the candidates."""
        view = self._view
        at_points = kernels.cross(self.model.kernel, z, self.points)[0] if residual > TOLERANCE else np.zeros(0)
        return at_points, np.zeros(0) if view is None else view.columns(z, residual)

    def _grow(self, place: int, x: Array, new: Explained, at_points: Array, at_candidates: Array) -> None:
        """Append the point at this place of the table to the dictionary."""
        r, view, dictionary = self.rank, self._view, self._dictionary
        feature = None if view is None else view.grow(place, new, at_candidates, dictionary.members)
        e = dictionary.grow(x, new, at_points)
        F, targets = dictionary.table, self._table.targets
        self._told.grow(F, self.counts, targets, e)
        if self._hoped is not None:
            self._hoped.grow(F, self._counts(self._hoped), targets, e)
        if self._complete:
            self._shadows = Shadows()
            if view is not None:
                view.forget_unseen()
        elif view is not None and feature is not None and self._shadows:
            view.unseen.subtract(F[self._shadows.places, r], feature)
            self._tidy_shadows(view)
        if self._table.corrections.any():  # the new feature explains a part of what they were for
            self._correct()

    def _rebuild(self, newcomers: list[int], K: Array | None = None) -> None:
        """Rebuild the dictionary from all points."""
        self.generation += 1
        dictionary, view = self._dictionary, self._view
        rest = dictionary.choose_anew(self.points, [*dictionary.members, *self._shadows.places, *newcomers], K)
        self._shadows = Shadows()
        if view is not None:
            view.rebuild(dictionary.features(view.X))
        for place in rest if not self._complete else ():
            phi, z = dictionary.row(place), self.points[place : place + 1]
            residual = float(kernels.diagonal(self.model.kernel, z)[0] - phi @ phi)
            self._shadow(place, phi, residual, self._columns(z, math.inf)[1])
        self.refresh()

    def _shadow(self, place: int, phi: Array, residual: float, at_candidates: Array) -> None:
        """Keep a point that the dictionary explains as a shadow; of too many, the one it explains best goes."""
        view, times = self._view, max(1.0, float(self.counts[place]))
        weight = times * residual if view is None else view.shadow(phi, at_candidates, times)
        if view is not None and weight == 0.0:
            return
        self._shadows.add(place, weight)
        self._reach[place] = math.sqrt(max(residual, LEAST_RESIDUAL) * TOLERANCE)  # a bound, until they are corrected
        self._prune_shadows()
        if view is not None:
            self._tidy_shadows(view)

    def _cast_shadows(self) -> None:
        """Make shadows of points that were too light when they came, and have been observed so often since that they
        are not: |e(x)|² ≤ residual(x_j)·residual(x)."""
        if self._complete or not len(self._table):
            return
        F, view = self._dictionary.table, self._view
        residual = kernels.diagonal(self.model.kernel, self.points) - np.einsum("ur,ur->u", F, F)
        reach = 1.0 if view is None else max(float(view.residual.max()), LEAST_RESIDUAL)
        weight = self.counts**2 * np.maximum(residual, LEAST_RESIDUAL) * reach
        weight[[*self._dictionary.members, *self._shadows.places]] = 0.0
        heavy = np.flatnonzero((weight > TOLERANCE**2) & (self.counts > 1))
        for place in heavy[np.argsort(-weight[heavy], kind="stable")][: max(MOST_SHADOWS, 2 * self.rank)].tolist():
            at_candidates = self._columns(self.points[[place]], math.inf)[1]
            self._shadow(place, self._dictionary.row(place), float(residual[place]), at_candidates)

    def _prune_shadows(self, least: float = -math.inf) -> None:
        kept = self._shadows.prune(self.rank, least)
        if kept is not None and self._view is not None:
            self._view.unseen.keep(kept)

    def _tidy_shadows(self, view: View) -> None:
        """From time to time: forget shadows that the dictionary has learned to explain, and shrink the others' rows."""
        if view.unseen.loose:
            self._shadows.weights = view.unseen.compress(np.maximum(self.counts[self._shadows.places], 1.0))
            self._prune_shadows(NEGLIGIBLE * TOLERANCE)
