"""The table of distinct observed points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from misspec.errors import Array


class Table:
    """Distinct points, told or pending, each with its count n and the sum of its observations (minus the offset).

    corrections   what is added to the average of a point for what it has in common with others that the dictionary
                  cannot see: `shadows.py`

    Law: rows stand in the order of first visits and never move, so that a *place*, a row, names a point for good.
    """

    def __init__(self, dimension: int) -> None:
        self._place: dict[bytes, int] = {}
        self._U: Array = np.zeros((0, dimension))
        self._n: Array = np.zeros(0)
        self._sums: Array = np.zeros(0)
        self._corrections: Array = np.zeros(0)

    def __len__(self) -> int:
        return len(self._place)

    def __contains__(self, key: bytes) -> bool:
        return key in self._place

    @property
    def points(self) -> Array:
        """As the kernel sees them, shape (u, d)."""
        return self._U[: len(self._place)]

    @property
    def counts(self) -> Array:
        """n, shape (u,); 0 for points that are only hallucinated so far."""
        return self._n[: len(self._place)]

    @property
    def averages(self) -> Array:
        """ȳ minus the offset, shape (u,)."""
        counts = self.counts
        return self._sums[: len(counts)] / np.maximum(counts, 1.0)

    @property
    def corrections(self) -> Array:
        """Of the averages, shape (u,); 0 for all but shadows."""
        return self._corrections[: len(self._place)]

    @property
    def targets(self) -> Array:
        """What the regression on features is told: the averages with their corrections, shape (u,)."""
        return self.averages + self.corrections

    def counts_with(self, more: Mapping[int, int]) -> Array:
        """n with so many more at each of these places."""
        counts = self.counts.copy()
        counts[list(more)] += np.array(list(more.values()), dtype=np.float64)
        return counts

    def place_of(self, key: bytes) -> int | None:
        """The place of a point by the bytes of its coordinates."""
        return self._place.get(key)

    def place(self, key: bytes) -> int:
        """The place of a point that is there."""
        return self._place[key]

    def enter(self, key: bytes, x: Array) -> int:
        """A new point, not observed yet."""
        place = len(self._place)
        if place == len(self._U):
            more = max(16, place)
            self._U = np.concatenate([self._U, np.zeros((more, self._U.shape[1]))])
            columns = (self._n, self._sums, self._corrections)
            self._n, self._sums, self._corrections = (np.append(a, np.zeros(more)) for a in columns)
        self._U[place], self._n[place], self._sums[place], self._corrections[place] = x, 0.0, 0.0, 0.0
        self._place[key] = place
        return place

    def count(self, place: int, value: float) -> None:
        """One observation, minus the offset."""
        self._n[place] += 1.0
        self._sums[place] += value

    def count_all(self, places: Sequence[int], values: Array) -> None:
        """Many of them."""
        np.add.at(self._n, places, 1.0)
        np.add.at(self._sums, places, values)

    def replace(self, averages: Array) -> None:
        """Other averages (minus the offset) at the same points, with the same counts."""
        self._sums[: len(averages)] = self.counts * averages
