"""The posterior from features of points and the regression on them: its formulas, and what is read of it.

    φ(x)       features; residual(x) = k(x,x) − ‖φ(x)‖² is the variance that they do not see  (r,)
    C, w       posterior covariance and mean of the linear model y = φ(x)·w + noise λ         (r, r), (r,)
    F, n, ȳ    features, counts and averages of the u distinct observed points                (u, r), (u,), (u,)
    e(x)       covariances with the shadows that the features do not see                      (s,)

An observation is a rank-one update of C and w. With the shadows, k_U(x) = Fφ(x) + e(x):

    G = Fᵀ(n∘e)/λ,  b = C(φ − G),  mean = offset + φ·w + e·α,  α = n∘(ȳ − Fw)/λ
    var = residual + (φ − G)·b − Σ n e²/λ,  W = n∘(Fb + e)/λ,  λ‖ζ‖₂² = bᵀSb + 2G·b + Σ n e²/λ,  S = Fᵀ(n∘F)/λ

Where the features explain all points of interest there are no shadows, and the cost is that of r features alone.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from misspec import kernels
from misspec.errors import Array, NumericalError
from misspec.model import Model
from misspec.posterior.regression import Missed, Regression
from misspec.posterior.shadows import Shadows
from misspec.posterior.table import FeatureTable, Table

if TYPE_CHECKING:
    from misspec.posterior.view import View

REFRESH = 1024  # steps between recomputations, or four times the rank where that is more
REMOVED = 256  # pending observations removed one by one before all are recomputed, against rounding
SUSPICIOUS = 1e-3  # a variance this far below zero is not rounding
TINY = 1e-150  # a norm: 0/0 is 0

Bias = Callable[[float, bool], Array]  # of ε, and whether exactly


class Glance(NamedTuple):
    """Mean and variance at some points, and, for as long as nothing is told, ‖ζ‖₁ and ‖ζ‖₂ there.

    residual   what a budgeted dictionary misses of the variance, and bias(ε, exactly) what that and a misfit of ε can
               do to the mean, `fixed.py`; None without a budget, where nothing is missed
    """

    mean: Array
    variance: Array
    norm1: Callable[[], Array]
    norm2: Callable[[], Array]
    residual: Array | None = None
    bias: Bias | None = None


class Local(NamedTuple):
    """What the posterior is at some points, and how it changes there: shapes (n,) and (n, d).

    norm       ‖ζ‖₁ or ‖ζ‖₂; with a budget, the bias for a given ε
    residual   what the dictionary misses of the variance
    """

    mean: Array
    variance: Array
    norm: Array
    dmean: Array
    dvariance: Array
    dnorm: Array
    residual: Array
    dresidual: Array

    def end(self, factor: float) -> tuple[Array, Array]:
        """μ + factor·σ and its gradient."""
        return _end(self.mean, self.dmean, factor, self.variance, self.dvariance)

    def end_within(self, factor: float, missed: float) -> tuple[Array, Array]:
        """μ + factor·σ_Z + missed·√res and its gradient, σ_Z² the variance that the dictionary sees."""
        seen = _end(self.mean, self.dmean, factor, self.variance - self.residual, self.dvariance - self.dresidual)
        return _end(*seen, missed, self.residual, self.dresidual)


def _end(mean: Array, dmean: Array, factor: float, variance: Array, dvariance: Array) -> tuple[Array, Array]:
    std = np.sqrt(np.maximum(variance, 1e-24))
    return mean + factor * std, dmean + (0.5 * factor / std)[:, None] * dvariance


def nonnegative(values: Array) -> Array:
    """Variances with rounding below zero clipped; NumericalError for more than rounding."""
    smallest = float(values.min(initial=0.0))
    if smallest < -SUSPICIOUS:
        raise NumericalError(f"a variance came out as {smallest:.3g}: the kernel is not positive semidefinite")
    return np.maximum(values, 0.0) if smallest < 0.0 else values


class Solved(NamedTuple):
    """G, φ − G, b and Σ n e²/λ at some points; without shadows G and the sum are 0."""

    G: Array | float
    v: Array
    b: Array
    squares: Array | float

    def seen(self) -> Array:
        """The variance less the residual."""
        return np.asarray(np.einsum("nr,nr->n", self.v, self.b) - self.squares)


class Formulas(ABC):
    """The posterior at points as the kernel sees them; subclasses say what the features are."""

    budget: int | None = None  # features at most
    generation = 0  # number of times the features were chosen again: earlier ones are void then

    def __init__(self, model: Model, table: Table, view: View, rank: int = 0) -> None:
        self.model, self.table, self.view = model, table, view
        self.kernel, self.ridge = model.kernel, model.regularization
        self._most = kernels.rank(model.kernel, table.points.shape[1])  # features of a linear kernel
        self._F = FeatureTable(rank)
        self.told = Regression(self.ridge, rank)
        self.with_pending: Regression | None = None  # told and pending; None while nothing is pending
        self.shadows = Shadows()
        self.missed = Missed(rank)  # by a budget
        self._removed = 0  # pending observations, since all were recomputed
        self._since_refresh = 0

    @abstractmethod
    def features(self, encoded: Array) -> Array:
        """φ(x) for each row, shape (n, r)."""

    @abstractmethod
    def features_with_slopes(self, encoded: Array) -> tuple[Array, Array]:
        """φ(x) for each row and its gradient, shapes (n, r) and (r, n, d)."""

    @property
    def rank(self) -> int:
        return self._F.rank

    @property
    def complete(self) -> bool:
        """Whether the features explain every point there is: no residuals, no shadows."""
        return self._most is not None and self.rank >= self._most

    def row(self, row: int) -> Array:
        return self._F.row(row)

    def rows(self, rows: list[int]) -> Array:
        return self._F.rows(rows)

    @property
    def all_rows(self) -> Array:
        """φ of all distinct points, shape (u, r)."""
        return self._F.all

    # the formulas at the top of this file, for rows of φ (n, r) and e (n, s)

    def regression(self, pending: bool) -> Regression:
        return self.with_pending if pending and self.with_pending is not None else self.told

    def unseen(self, encoded: Array, phi: Array) -> Array:
        """e(x) for each row, shape (n, s)."""
        S = self.shadows.rows
        if not S or len(encoded) == 0:
            return np.zeros((len(encoded), len(S)))
        return kernels.cross(self.kernel, encoded, self.table.points[S]) - phi @ self.rows(S).T

    def shadow_ratio(self, pending: bool) -> Array:
        """n/λ."""
        S = self.shadows.rows
        counts = self.table.counts[S]
        if pending:
            counts = counts + np.array([self.table.pending.get(row, 0) for row in S], dtype=np.float64)
        return np.asarray(counts / self.ridge)

    def alpha(self) -> Array:
        S = self.shadows.rows
        return self.shadow_ratio(False) * (self.table.targets[S] - self.rows(S) @ self.told.w)

    def solve(self, phi: Array, e: Array, *, pending: bool = False) -> Solved:
        if not self.shadows:
            return Solved(0.0, phi, self.regression(pending).times(phi), 0.0)
        scaled = e * self.shadow_ratio(pending)
        G = scaled @ self.rows(self.shadows.rows)
        v = phi - G
        return Solved(G, v, self.regression(pending).times(v), np.einsum("ns,ns->n", scaled, e))

    def means(self, phi: Array, e: Array) -> Array:
        mean = phi @ self.told.w + self.model.offset
        return mean + e @ self.alpha() if self.shadows else mean

    def weights(self, phi: Array, e: Array, told: Solved | None = None) -> Array:
        """W(x), shape (n, u); told: as `solve` says, if that is known."""
        weights = (told or self.solve(phi, e)).b @ self.all_rows.T
        if self.shadows:
            weights[:, self.shadows.rows] += e
        return np.asarray(weights * (self.table.counts / self.ridge))

    def norms2(self, told: Solved) -> Array:
        """‖ζ(x)‖₂."""
        G, _, b, squares = told
        total = np.einsum("nr,nr->n", b, self.told.gram_times(b) + 2.0 * G) + squares
        return np.asarray(np.sqrt(np.maximum(total, 0.0) / self.ridge))

    def residual(self, encoded: Array, phi: Array) -> Array:
        """The variance that the features do not see."""
        return np.asarray(kernels.diagonal(self.kernel, encoded) - np.einsum("nr,nr->n", phi, phi))

    def look(self, encoded: Array, *, pending: bool) -> Glance:
        phi = self.features(encoded)
        e = self.unseen(encoded, phi)
        solved = self.solve(phi, e, pending=pending)
        told = None if pending and self.with_pending is not None else solved

        seen = Glance(
            mean=self.means(phi, e),
            variance=solved.seen(),
            norm1=lambda: np.asarray(np.abs(self.weights(phi, e, told)).sum(axis=1)),
            norm2=lambda: self.norms2(told or self.solve(phi, e)),
        )
        if self.budget is not None:
            residual = nonnegative(self.residual(encoded, phi))
            variance = np.maximum(seen.variance, 0.0) + residual
            return seen._replace(variance=variance, residual=residual, bias=self.bias_at(phi, residual, told))
        variance = seen.variance if self.complete else seen.variance + self.residual(encoded, phi)
        return seen._replace(variance=nonnegative(variance))

    def local(self, encoded: Array, *, pending: bool, norm: int = 0, epsilon: float | None = None) -> Local:
        """See `Posterior.local`."""
        kernel, ridge, S = self.kernel, self.ridge, self.shadows.rows
        (n, d), r = encoded.shape, self.rank
        phi, dphi = self.features_with_slopes(encoded)  # (n, r), (r, n, d)
        v, dv = phi, dphi
        mean = phi @ self.told.w + self.model.offset
        dmean = (self.told.w @ dphi.reshape(r, n * d)).reshape(n, d)
        residual = self.residual(encoded, phi)
        dresidual = kernels.diagonal_gradient(kernel, encoded) - 2.0 * np.einsum("nr,rnd->nd", phi, dphi)
        e, de = np.zeros((n, 0)), np.zeros((n, 0, d))
        # all of the shadows that does not depend on where one looks
        F, alpha, ratio = self.rows(S), self.alpha(), self.shadow_ratio(pending)
        if S:
            values, slopes = kernels.cross_with_gradient(kernel, encoded, self.table.points[S])
            e = values - phi @ F.T
            de = slopes - np.einsum("sr,rnd->nsd", F, dphi)
            mean = mean + e @ alpha
            dmean = dmean + np.einsum("s,nsd->nd", alpha, de)
            v = phi - (e * ratio) @ F
            dv = dphi - np.einsum("sr,s,nsd->rnd", F, ratio, de)
        b = self.regression(pending).times(v)
        variance = nonnegative(residual + np.einsum("nr,nr->n", v, b) - (e * e) @ ratio)
        dvariance = dresidual + 2.0 * np.einsum("nr,rnd->nd", b, dv)
        if S:
            dvariance -= 2.0 * np.einsum("ns,nsd->nd", e * ratio, de)
        norms, dnorms = np.zeros(n), np.zeros((n, d))
        if norm:
            told_ratio = self.shadow_ratio(False)
            told_dv = dphi - np.einsum("sr,s,nsd->rnd", F, told_ratio, de) if S else dphi
        if norm == 2:
            told = self.solve(phi, e)
            # half of the gradient of λ‖ζ‖₂² = bᵀSb + 2G·b + Σ n e²/λ, where db = C·d(φ − G)
            back = self.told.times(self.told.gram_times(told.b) + told.G)
            half = np.einsum("nr,rnd->nd", back, told_dv) + np.einsum("nr,rnd->nd", told.b, dphi - told_dv)
            half += np.einsum("ns,nsd->nd", e * told_ratio, de)
            norms = self.norms2(told)
            dnorms = half / (ridge * np.maximum(norms, TINY))[:, None]
            if epsilon is not None:
                norms, dnorms = self._bias_slopes(epsilon, told.b, dphi, norms, dnorms)
        elif norm == 1:
            weights = self.weights(phi, e)
            each = 1.0 if epsilon is None else epsilon + self.model.norm_bound * self.missed_rows()
            signs = np.sign(weights) * (self.table.counts / ridge) * each
            back = self.told.times(signs @ self.all_rows)  # Σ_j ± n_j/λ · F_j C
            dnorms = np.einsum("nr,rnd->nd", back, told_dv) + np.einsum("ns,nsd->nd", signs[:, S], de)
            norms = (np.abs(weights) * each).sum(axis=1)
        return Local(mean, variance, norms, dmean, dvariance, dnorms, nonnegative(residual), dresidual)

    def sample(self, encoded: Array, rng: np.random.Generator, *, pending: bool) -> Array:
        """A sample of f − μ, jointly."""
        phi = self.features(encoded)
        if self.complete and not self.shadows and self.rank <= len(encoded):
            return np.asarray(phi @ self.regression(pending).root_times(rng.standard_normal(self.rank)))
        e = self.unseen(encoded, phi)
        solved = self.solve(phi, e, pending=pending)
        rest = kernels.cross(self.kernel, encoded, encoded) - phi @ phi.T
        covariance = rest + solved.v @ solved.b.T - (e * self.shadow_ratio(pending)) @ e.T
        values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
        return np.asarray(vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(len(values))))

    # what a budget misses, `fixed.py`

    def missed_rows(self) -> Array:
        """√res of the distinct points when they arrived."""
        return np.zeros(len(self.table))

    def misfit_total(self, epsilon: float) -> float:
        """Σ_s b_s = εt + Bρ, t the told observations and the next, each as often as it counts."""
        return epsilon * (self.table.mass + 1) + self.model.norm_bound * self.missed.total

    def bias_at(self, phi: Array, residual: Array, told: Solved | None = None) -> Bias:
        B = self.model.norm_bound

        def bias(epsilon: float, exactly: bool) -> Array:
            here = B * np.sqrt(residual)
            if exactly:
                each = epsilon + B * self.missed_rows()
                return np.asarray(here + np.abs(self.weights(phi, phi[:, :0], told)) @ each)
            solved = told or self.solve(phi, phi[:, :0])
            squares = B * self._strain(solved.b, self.missed.times(solved.b))
            if epsilon > 0:
                squares = squares + epsilon * self.norms2(solved) ** 2
            return np.asarray(here + math.sqrt(self.misfit_total(epsilon)) * np.sqrt(squares))

        return bias

    def _bias_slopes(self, epsilon: float, b: Array, dphi: Array, norms: Array, dnorms: Array) -> tuple[Array, Array]:
        """√(εt + Bρ)·√(ε‖ζ‖₂² + B·bᵀHb/λ²) and its gradient, from ‖ζ‖₂ and its."""
        strained, B = self.missed.times(b), self.model.norm_bound
        squares = epsilon * norms**2 + B * self._strain(b, strained)
        half = epsilon * norms[:, None] * dnorms
        half += B / self.ridge**2 * np.einsum("nr,rnd->nd", self.told.times(strained), dphi)
        total, roots = math.sqrt(self.misfit_total(epsilon)), np.sqrt(squares)
        return total * roots, total * half / np.maximum(roots, TINY)[:, None]

    def _strain(self, b: Array, strained: Array) -> Array:
        """bᵀHb/λ² from b and Hb."""
        return np.asarray(np.maximum(np.einsum("nr,nr->n", b, strained), 0.0) / self.ridge**2)


class FeatureBase(Formulas):
    """How the posterior learns. Values are y − offset; a row is that of a point in the table of distinct points."""

    @abstractmethod
    def enter(self, keys: list[bytes], new: Array) -> None:
        """Enter new points in the table. All kernel values are computed first: a kernel that fails leaves no trace."""

    @abstractmethod
    def _renew(self) -> None:
        """Recompute the regressions from sufficient statistics."""

    def _was_told(self, row: int, value: float, surprise: float, precision: float) -> None:  # optional
        """One observation was added."""

    def forget(self) -> bool:
        """Forget the points whose results are summed up; False where all are needed."""
        return self.view.listed  # where there are no more of them than candidates

    def settle(self, row: int) -> None:  # optional
        """The point was told or given up: its features will hardly be asked for again."""

    def add(self, row: int, value: float, precision: float = 1.0) -> None:
        """One told observation at a distinct point."""
        surprise = self.view.add(self, row, value, precision)
        self.table.add(row, value, precision)
        self._was_told(row, value, surprise, precision)
        self._since_refresh += 1
        negative = self.view.listed and self.view.variance.min() < 0.0  # by rounding
        if self._since_refresh >= max(REFRESH, 4 * self.rank) or negative:
            self.refresh()

    def step(self, row: int, value: float, precision: float) -> tuple[Array, float, float]:
        """The regression's part of it; what `Regression.add` returns."""
        return self.told.add(self.row(row), value + self.table.corrections[row], precision)

    def add_all(self, rows: list[int], values: Array, precision: Array | None) -> None:
        self.table.add_all(rows, values, precision)

    def anticipate(self, row: int, precision: float = 1.0) -> None:
        """Count a distinct point as observed in the variance for choosing, if anything is pending."""
        if self.with_pending is not None:
            h, factor = self.with_pending.expect(self.row(row), precision)
            self.view.expect(h, factor, self.shadow_factors(row, h, pending=True))

    def expect(self, row: int) -> None:
        """An observation is pending at a distinct point."""
        if self.with_pending is None:
            self.with_pending = copy.deepcopy(self.told)
        self.anticipate(row)
        self.table.expect(row)

    def release(self, row: int) -> None:
        """An observation is no longer pending, and was not told: one step of the same cost as `expect`."""
        self._removed += 1
        if self.with_pending is None or self._removed >= REMOVED or self.table.pending == {row: 1}:
            self.table.release(row)
            self.recount_pending()
        else:
            step = self.with_pending.remove(self.row(row))
            if step is not None:
                unseen = self.shadow_factors(row, step[0], pending=True)  # what is taken back still counts here
                self.view.release(*step, unseen)
            self.table.release(row)
            if step is None:
                self.view.refresh_pending(self)
        if row not in self.table.pending:
            self.settle(row)

    def recount_pending(self) -> None:
        """Count all pending observations again, from the told ones."""
        pending, self.table.pending = self.table.pending, {}
        self.with_pending, self._removed = None, 0
        self.view.with_pending = None
        for row, count in pending.items():
            for _ in range(count):
                self.expect(row)

    def shadow_factors(self, row: int, h: Array, *, pending: bool) -> Array | None:
        """The shadows' factors in the covariances of a distinct point with the candidates."""
        if not (self.shadows and self.view.listed):
            return None
        S = self.shadows.rows
        unseen = (self.rows(S) @ h) * -self.shadow_ratio(pending)
        if row in S:
            unseen[S.index(row)] += 1.0
        return unseen

    def retell(self, averages: Array) -> None:
        self.table.replace(averages)
        self.told.refresh(self.all_rows, self.table.counts, averages)
        self.refresh()

    def refresh(self) -> None:
        """Recompute everything from sufficient statistics: what bounds drift."""
        self._since_refresh = 0
        self._renew()
        self.view.refresh(self)
