"""Where actions come from: a finite list of points, or a box.

Users see points in their own units. Kernels see `encode(points)`: a Finite domain's points as given, a Box's points in
the unit cube. `Box.grid(n)` is a Finite whose points carry the box's encoding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import search
from misspec.errors import Array, InvalidInput, matrix, whole

PROBES = 256  # points on which a kernel is checked when the domain is a box
MOST_NUMBERS = 200_000_000  # coordinates of a grid, at most
MOST_CORNERS = 12  # dimensions up to which all corners of a box are checked too


class Finite:
    """A list of N candidates in d dimensions, in the order given; ties go to the lowest index.

    points: (N, d) array, list or data frame. names: one string per point, for people. Two candidates with equal
    coordinates are two arms: the model cannot tell them apart, but what is observed at each (its own band) can.
    """

    kind = "Finite"  # as it is stored

    def __init__(self, points: ArrayLike, names: Sequence[str] | None = None, *, box: Box | None = None) -> None:
        self.points: Array = matrix("points of a Finite domain", points, rows_at_least=1)
        self.box = box
        plain = box is None and type(self).encode is Finite.encode
        self.encoded: Array = self.points if plain else self.encode(self.points)
        self.points.flags.writeable = self.encoded.flags.writeable = False
        if names is not None:
            names = [str(name) for name in names]
            if len(names) != len(self.points):
                raise InvalidInput(f"names must be one per point, {len(self.points)} of them, got {len(names)}")
            if len(set(names)) != len(names):
                raise InvalidInput("names must differ from each other; number the ones that repeat")
        self.names: list[str] | None = names
        self._table: dict[bytes, int] | None = None  # made when first needed

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} points in {self.dimension} dimension{'s' * (self.dimension > 1)})"

    @property
    def dimension(self) -> int:
        return int(self.points.shape[1])

    def validate(self, points: ArrayLike) -> Array:
        """Points as floats of the right dimension; they need not be candidates."""
        return matrix("points", points, columns=self.dimension)

    def contains(self, points: ArrayLike) -> NDArray[np.bool_]:
        """For each point, whether it is a candidate to the bit."""
        return self.indices(points) >= 0

    def indices(self, points: ArrayLike) -> NDArray[np.intp]:
        """For each point the lowest index of the candidate that it equals to the bit, or -1."""
        if self._table is None:
            self._table = {row.tobytes(): i for i, row in reversed(list(enumerate(self.points)))}
        return np.array([self._table.get(row.tobytes(), -1) for row in self.validate(points)], dtype=np.intp)

    def validate_indices(self, indices: ArrayLike) -> NDArray[np.intp]:
        """Indices of candidates as a 1-d integer array."""
        result = np.atleast_1d(np.asarray(indices))
        if result.ndim != 1 or not np.issubdtype(result.dtype, np.integer):
            raise InvalidInput(f"indices must be whole numbers in a list, got {indices!r}")
        if result.size and (result.min() < 0 or result.max() >= len(self)):
            bad = int(np.argmax((result < 0) | (result >= len(self))))
            raise InvalidInput(f"indices must lie in 0 … {len(self) - 1}, got {result[bad]} at position {bad}")
        return result.astype(np.intp)

    def encode(self, points: ArrayLike) -> Array:
        """What the kernel sees of points in user units."""
        return self.validate(points) if self.box is None else self.box.encode(points)

    def probes(self) -> Array:
        """Encoded points on which a kernel is checked: all of them."""
        return self.encoded


class Box:
    """A product of intervals, one (low, high) pair per dimension. Policies search it (`policies/field.py`)."""

    kind = "Box"  # as it is stored

    def __init__(self, bounds: ArrayLike) -> None:
        pairs = np.asarray(bounds, dtype=object)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise InvalidInput(
                f"bounds of a Box must be (low, high) pairs, as in Box([(0, 1), (-5, 5)]); got {bounds!r}"
            )
        pairs = matrix("bounds of a Box", pairs, columns=2, rows_at_least=1)
        if not (pairs[:, 0] < pairs[:, 1]).all():
            bad = int(np.argmin(pairs[:, 0] < pairs[:, 1]))
            raise InvalidInput(
                f"bounds of a Box must have low < high, got {tuple(pairs[bad].tolist())} in dimension {bad}; "
                "swap an inverted pair and drop a dimension that does not vary"
            )
        if (pairs[:, 1] / 2 - pairs[:, 0] / 2 > np.finfo(float).max / 2).any():
            raise InvalidInput("bounds of a Box are so far apart that high - low overflows; rescale that dimension")
        self.low: Array = pairs[:, 0].copy()
        self.high: Array = pairs[:, 1].copy()
        self.low.flags.writeable = self.high.flags.writeable = False

    def __repr__(self) -> str:
        return f"Box({[(float(a), float(b)) for a, b in zip(self.low, self.high, strict=True)]})"

    @property
    def dimension(self) -> int:
        return len(self.low)

    @property
    def bounds(self) -> list[tuple[float, float]]:
        return [(float(a), float(b)) for a, b in zip(self.low, self.high, strict=True)]

    def validate(self, points: ArrayLike) -> Array:
        """Points as floats of the right dimension; a Box is open to points around it (contextual actions)."""
        return matrix("points", points, columns=self.dimension)

    def contains(self, points: ArrayLike) -> NDArray[np.bool_]:
        """For each point, whether it lies in the box, its faces included."""
        points = self.validate(points)
        return np.asarray(((points >= self.low) & (points <= self.high)).all(axis=1))

    def encode(self, points: ArrayLike) -> Array:
        """User units to the unit cube."""
        return np.asarray((self.validate(points) - self.low) / (self.high - self.low))

    def decode(self, unit: ArrayLike) -> Array:
        """The unit cube to user units, inside the box to the bit."""
        inside = self.low + self.validate(unit) * (self.high - self.low)
        return np.asarray(np.clip(inside, self.low, self.high))

    def grid(self, n: int | Sequence[int]) -> Finite:
        """A Finite of n points per dimension (or n[i] in dimension i), ends included, last dimension fastest."""
        sizes = list(n) if isinstance(n, Sequence) else [n] * self.dimension
        if len(sizes) != self.dimension:
            raise InvalidInput(f"grid takes one number or {self.dimension}, one per dimension, got {n!r}")
        axes = [
            np.linspace(a, b, whole("points per dimension", m, at_least=2))
            for (a, b), m in zip(self.bounds, sizes, strict=True)
        ]
        if math.prod(len(axis) for axis in axes) * self.dimension > MOST_NUMBERS:
            raise InvalidInput(
                f"a grid of {n!r} points per dimension in {self.dimension} dimensions is too large; take fewer"
            )
        mesh: Any = np.meshgrid(*axes, indexing="ij")
        return Finite(np.stack([axis.ravel() for axis in mesh], axis=1), box=self)

    def cover(self, n: int, seed: int = 0) -> Finite:
        """A Finite of about n Sobol' points (the next power of two), scrambled by the seed: for many dimensions."""
        unit = search.sobol(self.dimension, whole("n", n, at_least=1), whole("seed", seed))
        return Finite(self.decode(unit), box=self)

    def probes(self) -> Array:
        """Encoded points on which a kernel is checked: spread inside, and the corners in few dimensions."""
        from scipy.stats import qmc

        inside = qmc.Sobol(self.dimension, scramble=False).random(PROBES)
        if self.dimension > MOST_CORNERS:
            return np.concatenate([inside, np.ones((1, self.dimension))])
        corners = np.array(list(itertools.product((0.0, 1.0), repeat=self.dimension)))
        return np.concatenate([inside, corners])


Domain = Finite | Box
