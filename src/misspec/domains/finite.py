"""A finite list of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec.domains.base import SEARCHED, coordinates, without_names
from misspec.domains.parameters import Columns
from misspec.errors import Array, InvalidInput, array, listed, matrix, nearest, shown
from misspec.threads import once

if TYPE_CHECKING:
    from misspec.domains.box import Box
    from misspec.domains.space import Space
    from misspec.domains.table import Table


class Finite:
    """A list of N candidates in d dimensions, in the order given; ties go to the lowest index.

    points: (N, d) array, list or data frame. names: one string per point, for people. Two candidates with equal
    coordinates are two arms: the model cannot tell them apart, but what is observed at each (its own band) can.
    """

    kind = "Finite"  # as it is stored
    from_table: ClassVar[type[Table]]  # makes a Finite of a table; set by `table.py`, which builds on this module

    def __init__(
        self, points: ArrayLike, names: Sequence[str] | None = None, *, box: Box | Space | None = None
    ) -> None:
        self.points: Array = matrix("points of a Finite domain", points, rows_at_least=1)
        if box is not None and getattr(box, "kind", None) not in SEARCHED:
            raise InvalidInput(f"box must be a {' or '.join(SEARCHED)}, got {type(box).__name__}")
        self.box: Box | Space | None = box
        plain = box is None and type(self).encode is Finite.encode
        self.encoded: Array = self.points if plain else self.encode(self.points)
        self.points.flags.writeable = self.encoded.flags.writeable = False
        if names is not None:
            names = [str(name) for name in listed("names", names)]
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

    @property
    def columns(self) -> tuple[Columns, ...]:
        """Which columns of the encoding belong to which coordinate."""
        return coordinates(self.encoded.shape[1]) if self.box is None else self.box.columns

    @once
    def first_alike(self) -> NDArray[np.intp] | None:
        """For each candidate the lowest index of those that a kernel sees as the same; None where all differ."""
        rows = np.ascontiguousarray(self.encoded)
        whole_rows = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
        _, first, where = np.unique(whole_rows, return_index=True, return_inverse=True)
        return None if len(first) == len(rows) else np.asarray(first[where])

    def validate(self, points: ArrayLike) -> Array:
        """Points as floats of the right dimension; they need not be candidates."""
        if self.box is not None:
            return self.box.validate(points)
        return matrix("points", without_names(points, self), columns=self.dimension)

    def settings(self) -> dict[str, Any]:
        """What makes it beside its points and names, as JSON."""
        if self.box is None:
            return {}
        return {"box" if self.box.kind == "Box" else "space": self.box.coding}

    def describe(self, index: int | None) -> dict[str, Any]:  # noqa: ARG002  # a name says it all
        """What answers say of a candidate beside its name."""
        return {}

    def matches(self, given: Any) -> list[NDArray[np.intp]]:
        """For each point the candidates that it can be."""
        return [np.array([i] if i >= 0 else [], dtype=np.intp) for i in self.indices(given).tolist()]

    def match(self, given: Any) -> tuple[Array, NDArray[np.intp] | None]:
        """Points that were handed in, and the candidates that they are within rounding (-1: none), if that is known."""
        return self.validate(given), None

    def named(self, names: Sequence[str]) -> NDArray[np.intp]:
        """The indices of candidates by their names."""
        if self.names is None:
            raise InvalidInput(f"this domain has no names, got {shown(names)}; hand in indices or points")
        places = {name: index for index, name in enumerate(self.names)}
        names = listed("names", names)
        for name in names:
            if not isinstance(name, str) or name not in places:
                raise InvalidInput(f"no candidate is called {shown(name)}{nearest(name, self.names[:20])}")
        return np.array([places[name] for name in names], dtype=np.intp)

    def contains(self, points: ArrayLike, slack: float = 0.0) -> NDArray[np.bool_]:  # noqa: ARG002  # none
        """For each point, whether it is a candidate to the bit."""
        return self.indices(points) >= 0

    def indices(self, points: ArrayLike) -> NDArray[np.intp]:
        """For each point the lowest index of the candidate that it equals to the bit, or -1."""
        if self._table is None:
            self._table = {row.tobytes(): i for i, row in reversed(list(enumerate(self.points)))}
        return np.array([self._table.get(row.tobytes(), -1) for row in self.validate(points)], dtype=np.intp)

    def validate_indices(self, indices: ArrayLike) -> NDArray[np.intp]:
        """Indices of candidates as a 1-d integer array."""
        result = np.atleast_1d(array("indices must be whole numbers in a list", indices))
        if result.ndim != 1 or result.dtype.kind not in "iu":
            raise InvalidInput(f"indices must be whole numbers in a list, got {shown(indices)}")
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
