"""A posterior that keeps its mean and variance over a fixed candidate set: one matrix–vector product per step."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec.domains import Finite
from misspec.errors import Array, InvalidInput, instance
from misspec.model import Model
from misspec.posterior.formulas import Bias
from misspec.posterior.posterior import Posterior
from misspec.posterior.view import View, WeightedView
from misspec.posterior.weights import Weights

_ALL = slice(None)


class Tracked(Posterior):
    """The posterior over a Finite domain, O(N·r) per step.

    weights=True keeps W (`weights.py`) and takes covariances from it, the more stable form for tiny λ. Only those who
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
            weights = self._base.weights(*self._view.rows(_ALL if subset is None else subset))
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

    def features_over(self, rows: NDArray[np.intp] | slice = _ALL) -> Array:
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
