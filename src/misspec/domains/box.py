"""A product of intervals, searched by policies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import search
from misspec.domains.base import MOST_CORNERS, MOST_NUMBERS, PROBES, coordinates, without_names
from misspec.domains.finite import Finite
from misspec.domains.parameters import Columns, Float
from misspec.domains.region import Region
from misspec.errors import Array, InvalidInput, array, listed, matrix, shown, whole


class Box(Region):
    """A product of intervals, one (low, high) pair per dimension. Policies search it (`policies/field.py`).

    where: rules (`rules.py`), as in where="x0 + x1 < 1"; a function takes a point's coordinates.
    """

    kind = "Box"  # as it is stored

    def __init__(self, bounds: ArrayLike, *, where: Any = None) -> None:
        wanted = "bounds of a Box must be (low, high) pairs, as in Box([(0, 1), (-5, 5)])"
        pairs = array(wanted, bounds)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise InvalidInput(f"{wanted}; got {shown(bounds)}")
        remedy = "choose the range in which to search, in other units if need be"
        pairs = matrix("bounds of a Box", pairs, columns=2, rows_at_least=1, remedy=remedy)
        if not (pairs[:, 0] < pairs[:, 1]).all():
            bad = int(np.argmin(pairs[:, 0] < pairs[:, 1]))
            raise InvalidInput(
                f"bounds of a Box must have low < high, got {tuple(pairs[bad].tolist())} in dimension {bad}; "
                "swap an inverted pair and drop a dimension that does not vary"
            )
        self.low: Array = pairs[:, 0].copy()
        self.high: Array = pairs[:, 1].copy()
        self.low.flags.writeable = self.high.flags.writeable = False
        self.free = np.ones(len(self.low), dtype=bool)
        self._units = len(self.low)
        self._rule(where, {c.name: Float(a, b) for c, (a, b) in zip(self.columns, self.bounds, strict=True)})

    def __repr__(self) -> str:
        return f"Box({self.bounds}{'' if self.rules is None else f', where={self.rules!r}'})"

    @property
    def dimension(self) -> int:
        return len(self.low)

    @property
    def bounds(self) -> list[tuple[float, float]]:
        return [(float(a), float(b)) for a, b in zip(self.low, self.high, strict=True)]

    def settings(self) -> Any:
        """As JSON; None stands for a rule that is a function."""
        return self.coding if self.rules is None else {"bounds": self.coding, "where": self.rules.settings()}

    @property
    def coding(self) -> list[list[float]]:
        """What makes its encoding, as JSON."""
        return [list(pair) for pair in self.bounds]

    @property
    def columns(self) -> tuple[Columns, ...]:
        """Which columns of the encoding belong to which coordinate."""
        return coordinates(self.dimension)

    def validate(self, points: ArrayLike) -> Array:
        """Points as floats of the right dimension; a Box is open to points around it (contextual actions)."""
        return matrix("points", without_names(points, self), columns=self.dimension)

    def contains(self, points: ArrayLike, slack: float = 0.0) -> NDArray[np.bool_]:
        """For each point, whether it lies in the box, its faces included, and no rule forbids it; slack: beyond the
        faces, in shares of a side."""
        points, beyond = self.validate(points), slack * (self.high - self.low)
        inside = ((points >= self.low - beyond) & (points <= self.high + beyond)).all(axis=1)
        return np.asarray(inside if self.rules is None else inside & self.legal(points))

    def encode(self, points: ArrayLike) -> Array:
        """User units to the unit cube."""
        return np.asarray((self.validate(points) - self.low) / (self.high - self.low))

    def decode(self, unit: ArrayLike) -> Array:
        """The unit cube to user units, inside the box to the bit."""
        inside = self.low + self.validate(unit) * (self.high - self.low)
        return np.asarray(np.clip(inside, self.low, self.high))

    def grid(self, n: int | Sequence[int]) -> Finite:
        """A Finite of n points per dimension (or n[i] in dimension i), ends included, last dimension fastest, without
        those that break rules."""
        given = listed("n", n) if isinstance(n, Sequence) else [n] * self.dimension
        if len(given) != self.dimension:
            raise InvalidInput(f"grid takes one number or {self.dimension}, one per dimension, got {shown(n)}")
        sizes = [whole("points per dimension", m, at_least=2) for m in given]
        if math.prod(sizes) * self.dimension > MOST_NUMBERS:
            raise InvalidInput(
                f"a grid of {shown(n)} points per dimension in {self.dimension} dimensions is too large; take fewer"
            )
        axes = [np.linspace(a, b, m) for (a, b), m in zip(self.bounds, sizes, strict=True)]
        mesh: Any = np.meshgrid(*axes, indexing="ij")
        points = np.stack([axis.ravel() for axis in mesh], axis=1)
        allowed = points[self.legal(points)]
        if not len(allowed):
            raise InvalidInput(
                f"no point of a grid of {shown(n)} per dimension keeps the rules; take more, or cover(n)"
            )
        return Finite(allowed, box=self)

    def cover(self, n: int, seed: int = 0) -> Finite:
        """A Finite of about n Sobol' points (the next power of two), scrambled by the seed: for many dimensions."""
        return Finite(self.covered(n, seed), box=self)

    def probes(self) -> Array:
        """Encoded points on which a kernel is checked: spread inside, and the corners in few dimensions."""
        from scipy.stats import qmc

        inside = qmc.Sobol(self.dimension, scramble=False).random(PROBES)
        if self.dimension > MOST_CORNERS:
            return np.concatenate([inside, np.ones((1, self.dimension))])
        corners = np.array(list(itertools.product((0.0, 1.0), repeat=self.dimension)))
        return np.concatenate([inside, corners])

    # -- what a search needs: points as the kernel sees them ---------------------------------------------------

    def from_unit(self, unit: Array) -> Array:
        return self.decode(unit)

    def _coded(self, unit: Array, *, distinct: bool = False) -> Array:  # noqa: ARG002  # they are
        return unit

    def as_seen(self, x: Array) -> Array:
        return x.copy()

    def _near(self, U: Array, rng: np.random.Generator, count: int, finest: float) -> Array:
        return search.around(U, rng, count, finest=finest)

    def _stepped(self, U: Array, steps: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:  # noqa: ARG002
        V = U + steps
        return V, np.asarray(((V >= 0.0) & (V <= 1.0)).all(axis=1))

    def apart(self, U: Array, known: Array) -> NDArray[np.bool_] | None:  # noqa: ARG002
        """Which pairs are different whatever their distance: None, as in a box all differ by degrees."""
        return None
