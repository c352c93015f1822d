"""What stands behind a posterior: features of points, the regression on them, and the view that follows it.

`Growing` (`growing.py`)              a dictionary of independent points, with shadows of the others
`Linear`, `Budgeted` (`fixed.py`)     features that are fixed when a point arrives
"""

from __future__ import annotations

import copy
from abc import abstractmethod

from misspec.errors import Array
from misspec.model import Model
from misspec.posterior.formulas import Formulas
from misspec.posterior.table import Table
from misspec.posterior.view import View, WeightedView

REFRESH = 1024  # steps between recomputations, or four times the rank where that is more
REMOVED = 256  # pending observations removed one by one before all are recomputed, against rounding


class FeatureBase(Formulas):
    """A posterior that learns. Values are y − offset; a row is that of a point in the table of distinct points."""

    generation = 0  # number of times the features were chosen again: earlier ones are void then

    def __init__(self, model: Model, table: Table, view: View, rank: int = 0) -> None:
        super().__init__(model, table, rank)
        self.view = view
        self._removed = 0  # pending observations, since all were recomputed
        self._since_refresh = 0

    @abstractmethod
    def enter(self, keys: list[bytes], new: Array) -> None:
        """Enter new points in the table. All kernel values are computed first: a kernel that fails leaves no trace."""

    @abstractmethod
    def _renew(self) -> None:
        """Recompute the regressions from sufficient statistics."""

    def _was_told(self, row: int, value: float, surprise: float, precision: float) -> None:
        """One observation was added."""

    def forget(self) -> bool:
        """Forget the points whose results are summed up; False where all are needed."""
        return self.view.listed  # where there are no more of them than candidates

    def settle(self, row: int) -> None:
        """The point was told or given up: its features will hardly be asked for again."""

    def add(self, row: int, value: float, precision: float = 1.0) -> None:
        """One told observation at a distinct point."""
        view = self.view
        own = view.own_weights(self, row) if isinstance(view, WeightedView) else None  # before the step
        h, factor, surprise = self.told.add(self.row(row), value + self.table.corrections[row], precision)
        if isinstance(view, WeightedView) and own is not None:
            surprise = view.step_with(self, row, value, precision, own)
        elif view.listed:
            view.step(view.covariance(h, self._shadow_factors(row, h, pending=False)), factor, surprise)
        self.table.add(row, value, precision)
        self._was_told(row, value, surprise, precision)
        self._since_refresh += 1
        negative = view.listed and view.variance.min() < 0.0  # by rounding
        if self._since_refresh >= max(REFRESH, 4 * self.rank) or negative:
            self.refresh()

    def add_all(self, rows: list[int], values: Array, precision: Array | None) -> None:
        self.table.add_all(rows, values, precision)

    def anticipate(self, row: int, precision: float = 1.0) -> None:
        """Count a distinct point as observed in the variance for choosing, if anything is pending."""
        if self.with_pending is not None:
            h, factor = self.with_pending.expect(self.row(row), precision)
            self.view.expect(h, factor, self._shadow_factors(row, h, pending=True))

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
                unseen = self._shadow_factors(row, step[0], pending=True)  # what is taken back still counts here
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

    def _shadow_factors(self, row: int, h: Array, *, pending: bool) -> Array | None:
        """The shadows' factors in the covariances of a distinct point with the candidates."""
        if not (self.shadows and self.view.listed):
            return None
        S = self.shadows.rows
        unseen = (self.rows(S) @ h) * -self.shadow_ratio(pending)
        if row in S:
            unseen[S.index(row)] += 1.0
        return unseen

    def retell(self, averages: Array) -> None:
        """Other averages at the same points, observed as often."""
        self.table.replace(averages)
        self.told.refresh(self.all_rows, self.table.counts, averages)
        self.refresh()

    def refresh(self) -> None:
        """Recompute everything from sufficient statistics: what bounds drift."""
        self._since_refresh = 0
        self._renew()
        self.view.refresh(self)
