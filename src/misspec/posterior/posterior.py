"""The posterior at arbitrary points, or over a fixed candidate set, given observations at arbitrary points.

An observation is one rank-one step of a linear regression on features of the points; `formulas.py` says what is read of
it. Which features there are depends on the kernel and the budget, and is asked once, in `base_of`.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import kernels
from misspec.domains import Domain, Finite, width_of
from misspec.encoding import kept, resume
from misspec.errors import Array, InvalidInput, flag, instance, vector, whole
from misspec.model import Model, a_model
from misspec.posterior.fixed import Budgeted, Linear
from misspec.posterior.formulas import Bias, FeatureBase, Glance, Local
from misspec.posterior.growing import BLOCK, MANY, Growing
from misspec.posterior.regression import Regression
from misspec.posterior.table import Table
from misspec.posterior.view import View, WeightedView, Weights

BULK = 256  # observations in one call from which on they are counted together, rather than step by step
MOST_LINEAR = 1024  # features up to which a linear kernel has all of them from the start
ALL = slice(None)  # candidates


class Posterior:
    """The posterior at arbitrary points of a domain, given observations at arbitrary points.

    model: kernel, λ and offset. domain: its encoding; x is in user units, `encoded` as the kernel sees it.
    budget: features at most; None for as many as there are independent points. weights: whether ‖ζ‖₁ is needed at
    every step: with a budget, features of all points are kept for it.
    """

    def __init__(
        self, model: Model, domain: Domain, *, weights: bool = False, budget: int | None = None, check: bool = True
    ) -> None:
        self.model = a_model(model)
        if flag("check", check):
            model.check(domain)
        self.domain = domain
        budget = None if budget is None else whole("budget", budget, at_least=1)
        # the weights of a budgeted dictionary are not those of the kernel
        view = self._make_view(weighted=flag("weights", weights) and budget is None)
        self._base = base_of(model, Table(width_of(domain)), view, budget, keep=weights)

    def _make_view(self, *, weighted: bool) -> View:  # noqa: ARG002
        """The view over the candidates: there are none here."""
        return View(self.model.kernel, np.zeros((0, width_of(self.domain))), self.model.offset)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(t={self.t}, distinct={self.distinct}, rank={self.rank}, {self.domain!r})"

    @property
    def t(self) -> int:
        """Told observations."""
        return self._base.table.t

    @property
    def mass(self) -> float:
        """Σ_s σ²/σ_s² over the told observations: t, where no noise of their own was given."""
        return self._base.table.mass

    @property
    def budget(self) -> int | None:
        """Features at most; None where nothing is missed."""
        return self._base.budget

    @property
    def rank(self) -> int:
        """r, the number of features: what a step costs."""
        return self._base.rank

    @property
    def generation(self) -> int:
        """Number of times the features were chosen again: earlier ones are void then."""
        return self._base.generation

    @property
    def distinct(self) -> int:
        """u, the number of distinct points observed."""
        return int(np.count_nonzero(self.counts))

    @property
    def counts(self) -> Array:
        """How often each distinct point was observed, in the order of first visits (0: only pending so far); a result
        with a noise of its own counts σ²/σ_s² times."""
        return self._base.table.counts

    @property
    def averages(self) -> Array:
        """The average observation of each distinct point, in units of y."""
        return self._base.table.averages + self.model.offset

    @property
    def points(self) -> Array:
        """The distinct points as the kernel sees them."""
        return self._base.table.points

    @property
    def log_det(self) -> float:
        """L = log det(I + K_t/λ) of the told observations."""
        return self._base.told.log_det

    @property
    def information(self) -> float:
        """Realised information, L/2."""
        return 0.5 * self.log_det

    @property
    def pending(self) -> int:
        """Number of pending observations."""
        return sum(self._base.table.pending.values())

    @property
    def pending_information(self) -> float:
        """½ Σ over pending points of ln(1 + σ²_{s−1}(x_s)/λ); its exponential restores a multiplier's validity."""
        return 0.5 * (self._base.regression(pending=True).log_det - self.log_det)

    @property
    def missed_squares(self) -> float:
        """ρ₂ = Σ_s res_s over the told observations: 0 without a budget."""
        return self._base.missed.squares

    def at(self, X: ArrayLike, *, pending: bool = False) -> tuple[Array, Array]:
        """Mean and standard deviation at the rows of X (user units); `pending` counts pending observations."""
        here = self.look(self.domain.encode(X), pending=pending)
        return here.mean, np.sqrt(here.variance)

    def look(self, encoded: Array, *, pending: bool = False) -> Glance:
        """Mean, variance and norms of the weights at encoded points, shape (n, E)."""
        return self._base.look(encoded, pending=pending)

    def local(self, encoded: Array, *, pending: bool = False, norm: int = 0, epsilon: float | None = None) -> Local:
        """Mean, variance and, for norm = 1 or 2, ‖ζ‖₁ or ‖ζ‖₂ with their gradients at encoded points. epsilon: the norm
        wanted is the bias of a budget for this ε, without what is missed at the point."""
        return self._base.local(encoded, pending=pending, norm=norm, epsilon=epsilon)

    def weights_at(self, X: ArrayLike) -> Array:
        """W(x) at the rows of X, shape (n, u): the mean is offset + W·(ȳ − offset). O(u·r) per point.

        ‖ζ(x)‖₁ = Σ_j |W_j(x)|, ‖ζ(x)‖₂² = Σ_j W_j(x)²/n_j.
        """
        encoded = self.domain.encode(X)
        phi = self._base.features(encoded)
        return self._base.weights(phi, self._base.unseen(encoded, phi))

    def sample_at(self, encoded: Array, rng: np.random.Generator, *, pending: bool = False) -> Array:
        """A sample of f − μ at encoded points, jointly."""
        return self._base.sample(encoded, rng, pending=pending)

    def observe(self, X: ArrayLike, y: ArrayLike, *, noise: ArrayLike | None = None) -> None:
        """Tell observations y at the rows of X. noise: their own standard deviations, one for all or one each.
        Input that is refused changes nothing."""
        self._observe(self.domain.encode(X), y, noise)

    def add(self, encoded: Array, y: float, *, expected: bool = False, noise: float | None = None) -> None:
        """Tell one result at a point that was checked before, shape (1, E). expected: it is pending, and already
        counted in the variance for choosing. noise: its own standard deviation."""
        base, precision = self._base, 1.0 if noise is None else float(self.model.precision(noise)[0])
        if expected and precision != 1.0:  # it was counted as one
            base.release(self._row(encoded, pending=True))
            expected = False
        if expected:
            row = self._row(encoded, pending=True)
            base.table.release(row)
        else:
            row = self._row(encoded)
            base.anticipate(row, precision)
        base.add(row, y - self.model.offset, precision)
        if expected and not base.table.pending:
            base.recount_pending()

    def expect(self, encoded: Array) -> None:
        """Count a pending query in the variance for choosing, at a point that was checked before, shape (1, E)."""
        self._base.expect(self._row(encoded))

    def release(self, encoded: Array) -> None:
        """A query is no longer pending, and was not told: undo `expect`."""
        self._base.release(self._row(encoded, pending=True))

    def retell(self, averages: ArrayLike) -> None:
        """Replace what was observed, keeping where and how often: averages per distinct point, in units of y."""
        self._base.retell(vector("averages", averages, length=len(self.counts)) - self.model.offset)

    def snapshot(self, *, forget: bool) -> Any:
        """All that was learnt, as JSON; None where that is every point. forget: without points that are summed up."""
        base = _copied_base(self) if forget else self._base
        return kept(base) if not forget or base.forget() else None

    def resume(self, snapshot: Any) -> None:
        """Go on from a snapshot of a posterior that was made in the same way."""
        resume(self._base, snapshot, Regression)

    def _observe(self, encoded: Array, y: ArrayLike, noise: ArrayLike | None) -> None:
        """Few results one by one. Of many, enter their points, count, and recompute; whatever fails, nothing is
        changed."""
        precision = None if noise is None else self.model.precision(noise, len(encoded))
        values = vector("observations", y, length=len(encoded)) - self.model.offset
        if len(values) < (BULK if self.t else MANY):
            each = [1.0] * len(values) if precision is None else precision.tolist()
            for row, value, by in zip(self._rows(encoded), values.tolist(), each, strict=True):
                self._base.anticipate(row, by)
                self._base.add(row, value, by)
            return
        before = None
        if len(values) > BLOCK:  # else `_rows` tries all kernel values first
            kernels.check_bounded(self.model.kernel, encoded, "the points observed")
            before = _copied_base(self)
        try:
            for start in range(0, len(values), BLOCK):
                part = slice(start, start + BLOCK)
                by = None if precision is None else precision[part]
                self._base.add_all(self._rows(encoded[part]), values[part], by)
            self._base.refresh()
        except BaseException:
            self._base = self._base if before is None else before
            raise

    def _rows(self, encoded: Array) -> list[int]:
        table = self._base.table
        keys = [x.tobytes() for x in encoded]
        fresh = {key: x for key, x in zip(keys, encoded, strict=True) if key not in table.row_of}
        if fresh:
            new = np.array(list(fresh.values()))
            kernels.check_bounded(self.model.kernel, new, "the points observed")
            self._base.enter(list(fresh), new)
        return [table.row_of[key] for key in keys]

    def _row(self, encoded: Array, *, pending: bool = False) -> int:
        """The row of a point, which is entered if it is new; pending: of one that is pending, and no other."""
        table, key = self._base.table, encoded.tobytes()
        if pending and table.row_of.get(key) not in table.pending:
            raise InvalidInput("only a point that is pending can be released or told as expected; this one is not")
        if key not in table.row_of:
            self._base.enter([key], encoded)
        return table.row_of[key]


class Tracked(Posterior):
    """The posterior over a Finite domain, O(N·r) per step.

    weights=True keeps W (`view.py`) and takes covariances from it, the more stable form for tiny λ. Only those who
    need ‖ζ‖₁ at every step should pay for it.

    Law: candidates that the kernel sees as the same have the same numbers, to the bit, so that ties go to the lowest.
    A product with a matrix rounds differently from row to row; what is read of each is what the first of them has.
    """

    domain: Finite

    def __init__(
        self, model: Model, domain: Finite, *, weights: bool = False, budget: int | None = None, check: bool = True
    ) -> None:
        instance("domain", domain, Finite, "ms.Finite(points) makes one")
        super().__init__(model, domain, weights=weights, budget=budget, check=check)
        self._first = domain.first_alike

    def _make_view(self, *, weighted: bool) -> View:
        kernel, X, offset = self.model.kernel, self.domain.encoded, self.model.offset
        return WeightedView(kernel, X, offset, self.model.regularization) if weighted else View(kernel, X, offset)

    @property
    def _view(self) -> View:
        return self._base.view

    def evened(self, values: Array) -> Array:
        """Values over the candidates, of equal ones that of the first."""
        return values if self._first is None else values[self._first]

    def first(self, rows: NDArray[np.intp] | slice) -> NDArray[np.intp] | slice:
        """Candidates, of equal ones the first."""
        return rows if self._first is None else self._first[rows]

    @property
    def mean(self) -> Array:
        """μ over the candidates (read only: a view that the next step changes; a copy where candidates repeat)."""
        return _frozen(self.evened(self._view.mean))

    @property
    def variance(self) -> Array:
        """σ² over the candidates, told observations only (a view or a copy, as for `mean`)."""
        return _frozen(self.evened(self._view.variance))

    @property
    def std(self) -> Array:
        """σ over the candidates, told observations only."""
        return np.sqrt(self.evened(self._view.variance))

    @property
    def prior(self) -> Array:
        """k(x,x) over the candidates."""
        return _frozen(self._view.prior)

    @property
    def pending_variance(self) -> Array:
        """σ² over the candidates with the pending observations counted."""
        return _frozen(self.evened(self._view.variance if self._view.with_pending is None else self._view.with_pending))

    @property
    def weights(self) -> Array:
        """W over the candidates, shape (N, u); needs weights=True."""
        if self._view.weights is None:
            raise InvalidInput("the weights were not kept; make Tracked(…, weights=True) or call weights_at(X)")
        return _frozen(self._view.weights.full().T)

    @property
    def weights_kept(self) -> Weights | None:
        """W itself, for those who look at a few candidates only."""
        return self._view.weights

    def weights_norm1(self, subset: NDArray[np.intp] | None = None) -> Array:
        """‖ζ(x)‖₁ over the candidates, or over a subset of them."""
        if self._view.weights is not None:
            found = self._view.weights.norm1(subset)
        else:
            weights = self._base.weights(*self._view.rows(ALL if subset is None else subset))
            found = np.asarray(np.abs(weights).sum(axis=1))
        if subset is None or self._first is None:
            return self.evened(found)
        _, first, where = np.unique(self._first[subset], return_index=True, return_inverse=True)
        return np.asarray(found[first[where]])

    def weights_norm2(self) -> Array:
        """‖ζ(x)‖₂ over the candidates; needs no weights."""
        base = self._base
        return self.evened(np.concatenate([base.norms2(base.solve(phi, e)) for phi, e in self._view.blocks()]))

    def missed_over(self, rows: NDArray[np.intp] | slice) -> tuple[Array, Bias]:
        """What a budget misses of the variance of some candidates, and what it does to their mean."""
        rows = self.first(rows)
        residual = np.maximum(self._view.residual[rows], 0.0)
        return residual, self._base.bias_at(np.ascontiguousarray(self._view.rows(rows)[0]), residual)

    @property
    def rows(self) -> NDArray[np.intp]:
        """For each candidate, its row among the distinct points and column in the weights; -1 where there is none."""
        return self._view.row_of.copy()

    def features_over(self, rows: NDArray[np.intp] | slice = ALL) -> Array:
        """φ of candidates, shape (n, r)."""
        return self._view.rows(self.first(rows))[0]

    def times(self, h: Array) -> Array:
        """Φh over the candidates, in a buffer that the next call overwrites: one pass over memory."""
        return self.evened(self._view.product(h))

    def observe_index(self, indices: ArrayLike, y: ArrayLike, *, noise: ArrayLike | None = None) -> None:
        """Tell observations y at candidates; noise as for `observe`. Input that is refused changes nothing."""
        if isinstance(indices, int | np.integer) and isinstance(y, float) and math.isfinite(y) and noise is None:
            row = int(self._view.row_of[indices]) if 0 <= indices < len(self.domain) else -1
            if row >= 0:  # a point seen before, one at a time: the usual step, by a short cut
                self._base.anticipate(row)
                self._base.add(row, y - self.model.offset)
                return
        self._observe(self._view.X[self.domain.validate_indices(indices)], y, noise)


def _frozen(values: Array) -> Array:
    view = values.view()
    view.flags.writeable = False
    return view


def _copied_base(posterior: Posterior) -> FeatureBase:
    shared = (posterior.model, posterior.model.kernel, posterior._base.view.X)
    return copy.deepcopy(posterior._base, {id(each): each for each in shared})


class Turned:
    """A posterior of −y, in the sign of y: means are turned, and all else is as it was."""

    def __init__(self, posterior: Any) -> None:
        self.inner = posterior

    def __getattr__(self, name: str) -> Any:
        if "inner" not in self.__dict__:  # a copy that is being made
            raise AttributeError(name)
        value = getattr(self.inner, name)
        return -value if name in ("mean", "averages") else value

    def at(self, X: ArrayLike, *, pending: bool = False) -> tuple[Array, Array]:
        """Mean and standard deviation at the rows of X (user units)."""
        mean, std = self.inner.at(X, pending=pending)
        return -mean, std

    def __repr__(self) -> str:
        return f"{self.inner!r}, of −y"


def base_of(model: Model, table: Table, view: View, budget: int | None, *, keep: bool) -> FeatureBase:
    """The base that suits a kernel; keep: the features of all points are needed. A view over candidates needs features
    that are points."""
    affine = None if view.listed else kernels.affine(model.kernel, table.points.shape[1])
    if affine is not None and len(affine.m) <= MOST_LINEAR:
        return Linear(model, table, view, affine)
    return Growing(model, table, view) if budget is None else Budgeted(model, table, view, budget, keep=keep)
