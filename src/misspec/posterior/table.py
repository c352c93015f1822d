"""The tables of distinct points: what was observed where, and the features there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from misspec.errors import Array

Key = int | bytes  # of a point: a candidate's index, or its coordinates to the bit


class Table:
    """Distinct points, told or pending, each with its count n and the sum of its observations (minus the offset).

    An observation counts as often as its precision says: the ratio of the model's noise variance to its own.

    corrections   what is added to the average of a point for what it has in common with others that the dictionary
                  cannot see: `shadows.py`
    pending       rows that are expected to be observed, and how often each

    Law: rows stand in the order of first visits and never move, except in `keep`, so that a row names a point for good.
    """

    def __init__(self, dimension: int) -> None:
        self.t = 0  # told observations
        self.mass = 0.0  # Σ of their precisions
        self.pending: dict[int, int] = {}
        self.row_of: dict[Key, int] = {}
        self._U: Array = np.zeros((0, dimension))
        self._n: Array = np.zeros(0)
        self._sums: Array = np.zeros(0)
        self._corrections: Array = np.zeros(0)

    def __len__(self) -> int:
        return len(self.row_of)

    @property
    def points(self) -> Array:
        """As the kernel sees them, shape (u, d)."""
        return self._U[: len(self)]

    @property
    def counts(self) -> Array:
        """n, shape (u,); 0 for points that are only pending so far."""
        return self._n[: len(self)]

    @property
    def averages(self) -> Array:
        """ȳ minus the offset, shape (u,); 0 where there are no observations."""
        counts = self.counts
        return self._sums[: len(counts)] / np.where(counts > 0.0, counts, 1.0)

    def average(self, row: int) -> float:
        """ȳ of one point."""
        return float(self._sums[row] / self._n[row]) if self._n[row] else 0.0

    @property
    def corrections(self) -> Array:
        """Of the averages, shape (u,); 0 for all but shadows."""
        return self._corrections[: len(self)]

    @property
    def targets(self) -> Array:
        """Averages with their corrections, as the regression on features is told them, shape (u,)."""
        return self.averages + self.corrections

    @property
    def counts_with_pending(self) -> Array:
        counts = self.counts.copy()
        counts[list(self.pending)] += np.array(list(self.pending.values()), dtype=np.float64)
        return counts

    def enter(self, key: Key, x: Array) -> int:
        """The row of a new point, not observed yet."""
        row = len(self)
        if row == len(self._U):
            height, columns = row + max(16, row), (self._n, self._sums, self._corrections)
            self._U = larger(self._U, height, self._U.shape[1])
            self._n, self._sums, self._corrections = (larger(column, height) for column in columns)
        self._U[row] = x
        self.row_of[key] = row
        return row

    def add(self, row: int, value: float, precision: float = 1.0) -> None:
        """Count one observation, minus the offset."""
        self._n[row] += precision
        self._sums[row] += precision * value
        self.t += 1
        self.mass += precision

    def add_all(self, rows: Sequence[int], values: Array, precision: Array | None) -> None:
        """Count many observations; precision: of each, None for 1."""
        np.add.at(self._n, rows, 1.0 if precision is None else precision)
        np.add.at(self._sums, rows, values if precision is None else precision * values)
        self.t += len(rows)
        self.mass += len(rows) if precision is None else float(precision.sum())

    def replace(self, averages: Array) -> None:
        """Other averages (minus the offset) at the same points, with the same counts."""
        self._sums[: len(averages)] = self.counts * averages

    def keep(self, rows: list[int]) -> None:
        """Forget all points but these, which get new rows in this order; t stays."""
        keys, number = list(self.row_of), {row: new for new, row in enumerate(rows)}
        self.row_of = {keys[row]: new for row, new in number.items()}
        columns = (self._U, self._n, self._sums, self._corrections)
        self._U, self._n, self._sums, self._corrections = (column[rows] for column in columns)
        self.pending = {number[row]: count for row, count in self.pending.items()}

    def expect(self, row: int) -> None:
        self.pending[row] = self.pending.get(row, 0) + 1

    def release(self, row: int) -> None:
        self.pending[row] -= 1
        if not self.pending[row]:
            del self.pending[row]


class FeatureTable:
    """F, features of points in the order of their arrival; features that come later are 0 in the rows before."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self._size = 0
        self._F: Array = np.zeros((0, rank))

    @property
    def all(self) -> Array:
        """F, shape (u, r)."""
        return self._F[: self._size, : self.rank]

    def row(self, row: int) -> Array:
        return self._F[row, : self.rank]

    def rows(self, rows: Sequence[int]) -> Array:
        return self._F[rows, : self.rank]

    def append(self, phi: Array) -> None:
        height, width = self._F.shape
        if self._size == height:
            self._F = larger(self._F, max(16, 2 * height), width)
        self._F[self._size, : self.rank] = phi
        self._size += 1

    def widen(self, more: int = 1) -> None:
        """Features that are 0 in all rows so far."""
        self.rank += more
        height, width = self._F.shape
        if self.rank > width:
            self._F = larger(self._F, height, max(16, self.rank, 2 * width))

    def replace(self, F: Array) -> None:
        """Other features for all points."""
        self._F, (self._size, self.rank) = np.ascontiguousarray(F), F.shape


def larger(A: Array, *shape: int, order: Literal["C", "F"] = "C") -> Array:
    """Zeros of this shape with A in the first rows and columns."""
    zeros = np.zeros(shape, order=order)
    zeros[tuple(slice(length) for length in A.shape)] = A
    return zeros
