"""Where actions come from: a finite list of points, a table, a box, or a space of named parameters.

Users see points in their own units. Kernels see `encode(points)`: a Finite domain's points as given, a Box's points in
the unit cube, and each parameter of a Space in its own code (`parameters.py`). `Box.grid(n)` is a Finite whose points
carry the box's encoding; a table is one with the encoding of the space of its columns.

Box and Space are searched. What a search needs of them is in points as the kernel sees them, all of them legal: a cover
(`spread`), uniform points (`uniform`), points nearby (`around`, `neighbours`), and which columns can be climbed
(`free`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import frames, search
from misspec.errors import Array, InvalidInput, array, instance, listed, matrix, nearest, seeded, shown, vector, whole
from misspec.parameters import Choice, Columns, Float, Int, Parameter, columns_of, encode_parameter

PROBES = 256  # points on which a kernel is checked when the domain is a box
MOST_NUMBERS = 200_000_000  # coordinates of a grid, at most
SAME = 1e-9  # rounding within which numbers of a table are the same, in units of their column's range
MANY = 20  # rows that all differ in a column of text: it is no choice
MOST_CORNERS = 12  # dimensions up to which all corners of a box are checked too


class Finite:
    """A list of N candidates in d dimensions, in the order given; ties go to the lowest index.

    points: (N, d) array, list or data frame. names: one string per point, for people. Two candidates with equal
    coordinates are two arms: the model cannot tell them apart, but what is observed at each (its own band) can.
    """

    kind = "Finite"  # as it is stored

    def __init__(
        self, points: ArrayLike, names: Sequence[str] | None = None, *, box: Box | Space | None = None
    ) -> None:
        self.points: Array = matrix("points of a Finite domain", points, rows_at_least=1)
        self.box: Box | Space | None = None if box is None else instance("box", box, (Box, Space))
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

    @staticmethod
    def from_table(
        source: Any,
        target: str | None = None,
        ignore: str | Sequence[str] = (),
        names: str | Sequence[str] | None = None,
    ) -> Table:
        """The rows of a CSV file, a pandas or polars frame, or a dict of columns: see `Table`."""
        return Table(source, target, ignore, names)

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

    @functools.cached_property
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
        return matrix("points", _unnamed(points, self), columns=self.dimension)

    def settings(self) -> dict[str, Any]:
        """What makes it beside its points and names, as JSON."""
        if self.box is None:
            return {}
        return {"box" if self.box.kind == Box.kind else "space": self.box.settings()}

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


class Box:
    """A product of intervals, one (low, high) pair per dimension. Policies search it (`policies/field.py`)."""

    kind = "Box"  # as it is stored

    def __init__(self, bounds: ArrayLike) -> None:
        wanted = "bounds of a Box must be (low, high) pairs, as in Box([(0, 1), (-5, 5)])"
        pairs = array(wanted, bounds)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise InvalidInput(f"{wanted}; got {shown(bounds)}")
        pairs = matrix("bounds of a Box", pairs, columns=2, rows_at_least=1)
        if not (pairs[:, 0] < pairs[:, 1]).all():
            bad = int(np.argmin(pairs[:, 0] < pairs[:, 1]))
            raise InvalidInput(
                f"bounds of a Box must have low < high, got {tuple(pairs[bad].tolist())} in dimension {bad}; "
                "swap an inverted pair and drop a dimension that does not vary"
            )
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

    def settings(self) -> list[tuple[float, float]]:
        """As JSON."""
        return self.bounds

    @property
    def columns(self) -> tuple[Columns, ...]:
        """Which columns of the encoding belong to which coordinate."""
        return coordinates(self.dimension)

    def validate(self, points: ArrayLike) -> Array:
        """Points as floats of the right dimension; a Box is open to points around it (contextual actions)."""
        return matrix("points", _unnamed(points, self), columns=self.dimension)

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
        return Finite(np.stack([axis.ravel() for axis in mesh], axis=1), box=self)

    def cover(self, n: int, seed: int = 0) -> Finite:
        """A Finite of about n Sobol' points (the next power of two), scrambled by the seed: for many dimensions."""
        n = whole("n", n, at_least=1, at_most=MOST_NUMBERS // self.dimension)
        return Finite(self.decode(search.sobol(self.dimension, n, seeded(seed))), box=self)

    def probes(self) -> Array:
        """Encoded points on which a kernel is checked: spread inside, and the corners in few dimensions."""
        from scipy.stats import qmc

        inside = qmc.Sobol(self.dimension, scramble=False).random(PROBES)
        if self.dimension > MOST_CORNERS:
            return np.concatenate([inside, np.ones((1, self.dimension))])
        corners = np.array(list(itertools.product((0.0, 1.0), repeat=self.dimension)))
        return np.concatenate([inside, corners])

    # -- what a search needs: points as the kernel sees them ---------------------------------------------------

    @property
    def free(self) -> NDArray[np.bool_]:
        """The columns that can be climbed: all."""
        return np.ones(self.dimension, dtype=bool)

    def spread(self, count: int, seed: Any) -> Array:
        """About `count` points all over the box, its faces and, in few dimensions, its corners."""
        return search.cover_with_faces(self.dimension, count, seed)

    def uniform(self, count: int, seed: Any) -> Array:
        """Uniform points: Sobol', the next power of two."""
        return search.sobol(self.dimension, count, seed)

    def draw(self, rng: np.random.Generator) -> Array:
        """A uniform point, in user units, shape (1, d)."""
        return self.decode(rng.random((1, self.dimension)))

    def around(self, U: Array, rng: np.random.Generator, count: int, *, finest: float = search.FINEST) -> Array:
        """For each row `count` points around it."""
        return search.around(U, rng, count, finest=finest)

    def moved(self, U: Array, steps: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:  # noqa: ARG002
        """The rows after these steps, and which of them are still inside."""
        V = U + steps
        return V, np.asarray(((V >= 0.0) & (V <= 1.0)).all(axis=1))

    def neighbours(self, U: Array) -> tuple[Array, NDArray[np.intp]]:
        """Points with one parameter changed that cannot be climbed, and the row of each: none in a box."""
        return U[:0], np.zeros(0, dtype=np.intp)

    def apart(self, U: Array, known: Array) -> NDArray[np.bool_] | None:  # noqa: ARG002
        """Which pairs are different whatever their distance: None, as in a box all differ by degrees."""
        return None


class Space:
    """Named parameters, as in Space({"lr": Float(1e-5, 1e-1, log=True), "depth": Int(1, 12), "booster": Choice([…])}).

    x has one number per parameter, in their order and in user units; a choice is its position among the options.
    `params(x)` has the native values by name, and wherever points are handed in, dicts, lists of dicts and data frames
    of them will do. Integers and choices are searched as such: no point between them is ever scored or asked.
    """

    kind = "Space"  # as it is stored

    def __init__(self, parameters: Mapping[str, Parameter] | Sequence[tuple[str, Parameter]]) -> None:
        example = 'as in Space({"lr": Float(1e-5, 1e-1, log=True), "depth": Int(1, 12)})'
        try:
            pairs = list(parameters.items() if isinstance(parameters, Mapping) else parameters)
            self._parameters: dict[str, Parameter] = dict(pairs)
        except (TypeError, ValueError):
            raise InvalidInput(f"a Space takes parameters by name, {example}; got {shown(parameters)}") from None
        if not pairs:
            raise InvalidInput(f"a Space needs at least one parameter, {example}; got none")
        if len(self._parameters) < len(pairs):
            twice = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
            raise InvalidInput(f"parameters of a Space must have different names, got {shown(twice)} twice; rename one")
        for name, parameter in pairs:
            if not isinstance(name, str):
                raise InvalidInput(f"names of parameters must be text, got {shown(name)}")
            if not isinstance(parameter, Float | Int | Choice):
                raise InvalidInput(
                    f"parameter {shown(name)} must be a Float, an Int or a Choice, got {shown(parameter)}"
                )
        self.columns: tuple[Columns, ...] = columns_of(self._parameters)
        self._each = [(i, p, slice(c.start, c.stop)) for (i, p), c in zip(self._numbered(), self.columns, strict=True)]
        self._varying = [(i, p) for i, p in self._numbered() if p.count != 1]
        self._discrete = [(i, p) for i, p in self._varying if p.count is not None]
        free = np.zeros(self.columns[-1].stop, dtype=bool)
        for _, p, columns in self._each:
            free[columns] = p.count is None
        self.free: NDArray[np.bool_] = free
        self.free.flags.writeable = False

    def _numbered(self) -> list[tuple[int, Parameter]]:
        return list(enumerate(self._parameters.values()))

    def __repr__(self) -> str:
        return f"Space({self._parameters!r})"

    @property
    def parameters(self) -> dict[str, Parameter]:
        """By name, in order."""
        return dict(self._parameters)

    def settings(self) -> list[list[Any]]:
        """As JSON; pairs, since the order counts."""
        return [[name, encode_parameter(p)] for name, p in self._parameters.items()]

    @property
    def names(self) -> list[str]:
        return list(self._parameters)

    @property
    def dimension(self) -> int:
        """Parameters."""
        return len(self._parameters)

    @property
    def size(self) -> int | None:
        """Members; None where a float varies."""
        counts = [p.count for p in self._parameters.values()]
        return None if None in counts else math.prod(counts)  # type: ignore[arg-type]  # none of them is None

    # -- points in user units ----------------------------------------------------------------------------------

    def validate(self, points: Any) -> Array:
        """Points as floats, one number per parameter, or by name; legal ones, except that bounds may be exceeded."""
        if frames.is_named(points):
            return self.points_of(points)
        X = matrix("points", points, columns=self.dimension)
        for i, (name, p) in enumerate(self._parameters.items()):
            wrong = p.wrong(X[:, i])
            if wrong.any():
                row = int(wrong.argmax())
                position = f" by its position, 0 … {p.width - 1}" if isinstance(p, Choice) else ""
                raise InvalidInput(
                    f"parameter {name!r} must be {p.expects}{position}, got {X[row, i]:g} in row {row}; "
                    "integers and choices are not rounded"
                )
            X[:, i] = p.settled(X[:, i])
        return X

    def points_of(self, given: Any) -> Array:
        """Points from a dict, a list of dicts, or a data frame, one row per point."""
        frame = frames.read(given, "the points")
        for name in frame.names:
            if name not in self._parameters:
                raise InvalidInput(f"unknown parameter {shown(name)}{nearest(name, self._parameters)}")
        return _numbers(self._parameters, frame)

    def params(self, x: ArrayLike) -> dict[str, Any]:
        """The native values of a point by name."""
        numbers = self.validate(vector("x", x, length=self.dimension)[None, :])[0].tolist()
        return {name: p.value(number) for (name, p), number in zip(self._parameters.items(), numbers, strict=True)}

    def contains(self, points: Any) -> NDArray[np.bool_]:
        """For each point, whether it is legal and within bounds."""
        named = frames.is_named(points)
        X = self.points_of(points) if named else matrix("points", points, columns=self.dimension)
        return np.asarray(np.all([p.inside(X[:, i]) for i, p in self._numbered()], axis=0))

    def encode(self, points: Any) -> Array:
        """What the kernel sees of points in user units, shape (n, E): `columns` says which parameter is where."""
        X = self.validate(points)
        return np.concatenate([p.encode(X[:, i]) for i, p in self._numbered()], axis=1)

    def decode(self, encoded: ArrayLike) -> Array:
        """The nearest legal points, within bounds, in user units; ties go to the first."""
        codes = matrix("encoded points", encoded, columns=len(self.free))
        return np.stack([p.decode(codes[:, columns]) for _, p, columns in self._each], axis=1) + 0.0

    def members(self) -> Finite:
        """All members in order, the last parameter fastest, where no float varies."""
        if self.size is None:
            raise InvalidInput(f"{shown(self)} has a float that varies, and so no list of members; take cover(n)")
        if self.size * self.dimension > MOST_NUMBERS:
            raise InvalidInput(f"{shown(self)} has {self.size:,} members, too many to list; take cover(n)")
        axes = [p.every() for p in self._parameters.values()]
        mesh: Any = np.meshgrid(*axes, indexing="ij")
        return Finite(np.stack([axis.ravel() for axis in mesh], axis=1), box=self)

    def cover(self, n: int, seed: int = 0) -> Finite:
        """A Finite of at most n Sobol' points (the next power of two), scrambled by the seed."""
        n = whole("n", n, at_least=1, at_most=MOST_NUMBERS // self.dimension)
        unit = search.sobol(max(1, len(self._varying)), n, seeded(seed))
        return Finite(np.unique(self._from_unit(unit), axis=0), box=self)

    def probes(self) -> Array:
        """Encoded points on which a kernel is checked."""
        return self.spread(PROBES, 0)

    def _from_unit(self, unit: Array) -> Array:
        """Points of the unit cube, one dimension per parameter that varies, to legal points."""
        X = np.empty((len(unit), self.dimension))
        for i, p in self._numbered():
            X[:, i] = p.from_unit(np.zeros(len(unit)))
        for column, (i, p) in zip(unit.T, self._varying, strict=False):
            X[:, i] = p.from_unit(column)
        return X

    # -- what a search needs: points as the kernel sees them ---------------------------------------------------

    def spread(self, count: int, seed: Any) -> Array:
        """About `count` points all over the space and its ends."""
        cover = search.cover_with_faces(max(1, len(self._varying)), count, seed)
        return self.encode(np.unique(self._from_unit(cover), axis=0))

    def uniform(self, count: int, seed: Any) -> Array:
        """Uniform points, on the scales of the parameters; those without floats may repeat."""
        return self.encode(self._from_unit(search.sobol(max(1, len(self._varying)), count, seed)))

    def draw(self, rng: np.random.Generator) -> Array:
        """A uniform point, in user units, shape (1, d)."""
        return self._from_unit(rng.random((1, len(self._varying))))

    def around(self, U: Array, rng: np.random.Generator, count: int, *, finest: float = search.FINEST) -> Array:
        """For each row `count` points around it: floats nearby, and now and then another integer or choice."""
        V = np.repeat(U, count, axis=0)
        V[:, self.free] = search.around(U[:, self.free], rng, count, finest=finest)
        return self._jumped(V, rng, keep=True)[0]

    def moved(self, U: Array, steps: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        """The rows after these steps of the floats and jumps of the others, and which of them are still inside."""
        V = U + np.where(self.free, steps, 0.0)
        inside = ((V[:, self.free] >= 0.0) & (V[:, self.free] <= 1.0)).all(axis=1)
        V[:, self.free] = np.clip(V[:, self.free], 0.0, 1.0)
        jumped, legal = self._jumped(V, rng, keep=False)
        return jumped, inside & legal

    def _jumped(self, V: Array, rng: np.random.Generator, *, keep: bool) -> tuple[Array, NDArray[np.bool_]]:
        """One integer or choice in a row jumps, on average half of the time; keep: not where it would leave."""
        X, legal = self.decode(V), np.ones(len(V), dtype=bool)
        for i, p in self._discrete:
            jumps = rng.random(len(X)) < 0.5 / len(self._discrete)
            numbers = np.where(jumps, p.jump(X[:, i], rng), X[:, i])
            stays = p.inside(numbers)
            X[:, i] = np.where(stays, numbers, X[:, i])
            legal &= stays | keep
        return self._encoded_with(V, X), legal

    def _encoded_with(self, V: Array, X: Array) -> Array:
        """The integers and choices of X, and the floats of V to the bit."""
        codes = self.encode(X)
        codes[:, self.free] = V[:, self.free]
        return codes

    def neighbours(self, U: Array) -> tuple[Array, NDArray[np.intp]]:
        """Points with one integer or choice changed, and the row of each."""
        X = self.decode(U)
        points: list[Array] = []
        rows: list[int] = []
        for row, x in enumerate(X):
            for i, p in self._discrete:
                for number in p.steps(float(x[i])):
                    other = x.copy()
                    other[i] = number
                    points.append(other)
                    rows.append(row)
        if not points:
            return U[:0], np.zeros(0, dtype=np.intp)
        where = np.array(rows, dtype=np.intp)
        return self._encoded_with(U[where], np.array(points)), where

    def apart(self, U: Array, known: Array) -> NDArray[np.bool_] | None:
        """Which pairs differ in an integer or a choice, and so are different however near they are."""
        if not self._discrete:
            return None
        X, Z = (self.decode(each)[:, [i for i, _ in self._discrete]] for each in (U, known))
        return np.asarray((X[:, None, :] != Z[None, :, :]).any(axis=2))


class Results(NamedTuple):
    """Rows of a table that have a result: what `policy.observe(*domain.observations)` learns."""

    indices: NDArray[np.intp]
    y: Array


class Table(Finite):
    """The rows of a table as candidates, in their order; `Finite.from_table` makes one.

    source    a CSV file by its path, a pandas or polars frame, a dict of columns, a list of dicts
    target    the column of results; rows that have one are `observations`, the others wait for theirs
    ignore    columns to leave out (notes, identifiers); they stay in `rows`
    names     one per row, or the column that holds them, which is then left out

    Columns of numbers are scaled to [0, 1] for the kernel, columns of text (or of True and False) are choices, in the
    order in which they appear. `rows` are dicts as read; rows that are handed in match theirs if text is equal and
    numbers are within rounding, and the lowest of equal rows, unless columns left out tell them apart.
    """

    def __init__(
        self,
        source: Any,
        target: str | None = None,
        ignore: str | Sequence[str] = (),
        names: str | Sequence[str] | None = None,
    ) -> None:
        frame = frames.read(source)
        left_out = [ignore] if isinstance(ignore, str) else listed("ignore", ignore)
        if isinstance(names, str):
            left_out.append(names)
            names = ["" if cell is None else str(cell) for cell in frame.column(names)]
        for name in [*left_out, *([] if target is None else [target])]:
            frame.column(name)  # says what is wrong
        used = [name for name in frame.names if name != target and name not in left_out]
        if not used:
            raise InvalidInput(f"{frame.where} has no column left that describes its rows; leave out fewer")
        if "" in used:
            raise InvalidInput(
                f"{frame.where}: column {frame.names.index('') + 1} has no name; give it one, or leave it out if it is "
                'an index that was written along: ignore=""'
            )
        self.target, self.ignored = target, left_out
        self.parameters: dict[str, Parameter] = {name: _parameter(frame, name) for name in used}
        self.rows: list[dict[str, Any]] = frames.plain(frame, keep=used).rows()
        super().__init__(_numbers(self.parameters, frame), names, box=Space(self.parameters))
        scale = np.ptp(self.points, axis=0)
        self._rounding: Array = SAME * np.where(scale > 0, scale, np.abs(self.points).max(axis=0))
        self.observations = Results(*_results(frame, target))

    def __repr__(self) -> str:
        told = f", {len(self.observations.y)} with a result" if self.target is not None else ""
        return f"Finite.from_table({len(self)} rows of {', '.join(self.parameters)}{told})"

    def settings(self) -> dict[str, Any]:
        columns = [[name, [row[name] for row in self.rows]] for name in self.rows[0]]  # pairs, since the order counts
        return {"table": {"columns": columns, "target": self.target, "ignore": self.ignored}}

    def describe(self, index: int | None) -> dict[str, Any]:
        return {} if index is None else {"row": self.rows[index]}

    def validate(self, points: Any) -> Array:
        """Points as floats, or rows by name; choices that the table does not have are refused."""
        return self.points_of(points) if frames.is_named(points) else super().validate(points)

    def points_of(self, given: Any) -> Array:
        """Points from rows by name; columns that are left out and the target may be there or not."""
        return np.concatenate([_numbers(self.parameters, frame) for frame in self._frames(given)])

    def _frames(self, given: Any) -> list[frames.Frame]:
        """What was handed in; dicts one by one, since each may have other columns beside the parameters."""
        several = isinstance(given, list | tuple)
        parts = [(f"item {i}", each) for i, each in enumerate(given)] if several else [("the rows", given)]
        found = [
            dataclasses.replace(frames.plain(frames.read(each, where), keep=tuple(self.parameters)), text=True)
            for where, each in parts
        ]  # rows of a table may have gone through a file of text
        for name in (name for frame in found for name in frame.names):
            if name not in self.rows[0]:
                raise InvalidInput(f"this table has no column {shown(name)}{nearest(name, self.rows[0])}")
        return found

    def indices(self, points: Any) -> NDArray[np.intp]:
        """For each point the lowest index of the row that it is, choices equal and numbers within rounding, or -1."""
        X = self.validate(points)
        found = super().indices(X)
        for row in np.flatnonzero(found < 0):
            near = self._near(X[row])
            if len(near):
                found[row] = near[np.abs(self.points[near] - X[row]).max(axis=1).argmin()]
        return found

    def _near(self, x: Array) -> NDArray[np.intp]:
        return np.flatnonzero((np.abs(self.points - x) <= self._rounding).all(axis=1))

    def matches(self, given: Any) -> list[NDArray[np.intp]]:
        """For each row by name all candidates that it can be: those that agree in the columns left out too, if any."""
        pairs = [
            (x, row)
            for frame in self._frames(given)
            for x, row in zip(_numbers(self.parameters, frame), frame.rows(), strict=True)
        ]
        found = []
        for x, row in pairs:
            near = self._near(x)
            others = [name for name in row if name not in self.parameters and name != self.target]
            alike = [i for i in near.tolist() if all(self.rows[i][name] == row[name] for name in others)]
            found.append(np.array(alike, dtype=np.intp) if alike else near)
        return found

    def match(self, given: Any) -> tuple[Array, NDArray[np.intp] | None]:
        points = self.validate(given)
        if frames.is_named(given):
            found = np.array([int(each[0]) if len(each) else -1 for each in self.matches(given)], dtype=np.intp)
        else:
            found = self.indices(points)
        points[found >= 0] = self.points[found[found >= 0]]  # to the bit
        return points, found


def coordinates(count: int) -> tuple[Columns, ...]:
    """Columns without names of their own: "x0", "x1", …"""
    return tuple(Columns(f"x{i}", i, i + 1, choice=False) for i in range(count))


def width_of(domain: Any) -> int:
    """Columns of the encoding, also of a domain that does not say which are whose."""
    return int(domain.columns[-1].stop) if hasattr(domain, "columns") else int(domain.dimension)


def _unnamed(points: Any, domain: Any) -> Any:
    """The same; InvalidInput for dicts, where coordinates have no names. Frames are taken column by column."""
    if frames.is_named(points) and not frames.is_frame(points):
        raise InvalidInput(
            f"coordinates have no names in {shown(domain)}; hand in numbers, one row per point, or make a Space or a "
            "table"
        )
    return points


def _numbers(parameters: Mapping[str, Parameter], frame: frames.Frame) -> Array:
    """The coordinates of all rows, shape (n, d)."""
    X = np.empty((len(frame), len(parameters)))
    for i, (name, p) in enumerate(parameters.items()):
        if name not in frame.columns:
            raise InvalidInput(f"{frame.where} must have a value of {shown(name)}, got {', '.join(frame.names)} only")
        for row, cell in enumerate(frame.columns[name]):
            X[row, i] = p.number(_as_written(p, cell) if frame.text else cell, frame.at(name, row))
    return X + 0.0


def _as_written(p: Parameter, cell: Any) -> Any:
    """The value that a cell is written like, where there is one: "20" is 20, and True of a frame "True" of a file."""
    if isinstance(p, Choice):
        return cell if p.has(cell) else p.written(str(cell))
    return frames.number_of(cell.strip()) if isinstance(cell, str) and frames.is_number(cell.strip()) else cell


def _parameter(frame: frames.Frame, name: str) -> Parameter:
    """A column of numbers is a Float over its range, one of text or of True and False a Choice."""
    cells = frame.columns[name]
    kinds = [frames.kind_of(cell) for cell in cells]
    if "nothing" in kinds:
        row = kinds.index("nothing")
        raise InvalidInput(
            f"{frame.at(name, row)}: expected a value, the cell is empty; fill it, leave the row out, or leave the "
            f"column out: ignore=[{shown(name)}]; if it holds results: target={shown(name)}"
        )
    usual = max(("number", "text", "truth"), key=kinds.count)
    odd = [row for row, kind in enumerate(kinds) if kind != usual]
    if odd:
        wanted = {"number": "a finite number", "text": "text", "truth": "True or False"}[usual]
        wanted = f"{wanted}, as elsewhere in this column" if usual in kinds else "a finite number or text"
        raise InvalidInput(
            f"{frame.at(name, odd[0])}: expected {wanted}, got {shown(cells[odd[0]])}; repair it, or leave the column "
            f"out: ignore=[{shown(name)}]"
        )
    if usual == "number":
        return Float(min(cells), max(cells))
    if usual == "text" and not frame.text and all(frames.is_number(cell) for cell in cells):
        warnings.warn(
            f"column {shown(name)} of {frame.where} holds numbers as text, and so choices without an order; "
            "hand in numbers if it has one",
            stacklevel=5,
        )
    options = tuple(dict.fromkeys(cells))
    if len(options) == len(cells) >= MANY and len(frame.names) > 1:
        warnings.warn(
            f"column {shown(name)} of {frame.where} differs in every row, so that nothing can be learnt from it; "
            f"leave it out if it is a note or an identifier: ignore=[{shown(name)}]",
            stacklevel=5,
        )
    return Choice(options)


def _results(frame: frames.Frame, target: str | None) -> tuple[NDArray[np.intp], Array]:
    """The rows with a result, and the results."""
    cells = [] if target is None else frame.columns[target]
    for row, cell in enumerate(cells):
        if frames.kind_of(cell) not in ("number", "nothing"):
            raise InvalidInput(
                f"{frame.at(str(target), row)}: a result must be a finite number, or empty where there is none yet, "
                f"got {shown(cell)}"
            )
    told = [row for row, cell in enumerate(cells) if cell is not None]
    return np.array(told, dtype=np.intp), np.array([float(cells[row]) for row in told], dtype=np.float64)


class Domain(Protocol):
    """What every kind of domain has."""

    kind: str  # as it is stored

    @property
    def dimension(self) -> int:
        """Of a point in user units."""

    def validate(self, points: Any) -> Array:
        """Points as floats of the right dimension."""

    def encode(self, points: Any) -> Array:
        """What the kernel sees of points in user units."""

    def contains(self, points: Any) -> NDArray[np.bool_]:
        """For each point, whether it is one of the domain's."""

    def probes(self) -> Array:
        """Encoded points on which a kernel is checked."""


def a_domain(domain: Any) -> Any:
    """A domain of this library or of somebody else's, or InvalidInput."""
    if isinstance(domain, type) or not all(hasattr(domain, name) for name in ("dimension", "encode", "probes")):
        raise InvalidInput(
            f"domain must be a Finite or a Box, or a Space, got {type(domain).__name__}: ms.Finite(points), "
            "ms.Box(bounds) or ms.Space(parameters) makes one"
        )
    return domain
