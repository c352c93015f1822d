"""Named parameters: numbers, integers and choices, searched by policies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import search
from misspec.domains.base import MOST_NUMBERS, PROBES, numbers_of
from misspec.domains.finite import Finite
from misspec.domains.parameters import Choice, Columns, Float, Int, Parameter, code_columns, encode_parameter
from misspec.errors import Array, InvalidInput, matrix, nearest, seeded, shown, vector, whole
from misspec.files import frames


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
        self.columns: tuple[Columns, ...] = code_columns(self._parameters)
        self._numbered = list(enumerate(self._parameters.values()))
        self._varying = [(i, p) for i, p in self._numbered if p.count != 1]
        self._discrete = [(i, p) for i, p in self._varying if p.count is not None]
        self.free: NDArray[np.bool_] = np.repeat([p.count is None for _, p in pairs], [p.width for _, p in pairs])
        self.free.flags.writeable = False

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
        return numbers_of(self._parameters, frame)

    def params(self, x: ArrayLike) -> dict[str, Any]:
        """The native values of a point by name."""
        numbers = self.validate(vector("x", x, length=self.dimension)[None, :])[0].tolist()
        return {name: p.value(number) for (name, p), number in zip(self._parameters.items(), numbers, strict=True)}

    def contains(self, points: Any, slack: float = 0.0) -> NDArray[np.bool_]:  # noqa: ARG002  # none
        """For each point, whether it is legal and within bounds."""
        named = frames.is_named(points)
        X = self.points_of(points) if named else matrix("points", points, columns=self.dimension)
        return np.asarray(np.all([p.inside(X[:, i]) for i, p in self._numbered], axis=0))

    def encode(self, points: Any) -> Array:
        """What the kernel sees of points in user units, shape (n, E): `columns` says which parameter is where."""
        X = self.validate(points)
        return np.concatenate([p.encode(X[:, i]) for i, p in self._numbered], axis=1)

    def decode(self, encoded: ArrayLike) -> Array:
        """The nearest legal points, within bounds, in user units; ties go to the first."""
        codes = matrix("encoded points", encoded, columns=len(self.free))
        parts = [codes[:, c.start : c.stop] for c in self.columns]
        return np.stack([p.decode(part) for (_, p), part in zip(self._numbered, parts, strict=True)], axis=1) + 0.0

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
        return Finite(search.distinct(self._from_unit(unit)).points, box=self)

    def probes(self) -> Array:
        """Encoded points on which a kernel is checked."""
        return self.spread(PROBES, 0)

    def _from_unit(self, unit: Array) -> Array:
        """Points of the unit cube, one dimension per parameter that varies, to legal points."""
        columns = {i: column for column, (i, _) in zip(unit.T, self._varying, strict=False)}
        return np.stack([p.from_unit(columns.get(i, np.zeros(len(unit)))) for i, p in self._numbered], axis=1)

    # -- what a search needs: points as the kernel sees them ---------------------------------------------------

    def spread(self, count: int, seed: Any) -> Array:
        """About `count` points all over the space and its ends."""
        cover = search.cover_with_faces(max(1, len(self._varying)), count, seed)
        return self.encode(search.distinct(self._from_unit(cover)).points)

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
        steps = [(row, i, z) for row, x in enumerate(X) for i, p in self._discrete for z in p.steps(float(x[i]))]
        rows = np.array([row for row, _, _ in steps], dtype=np.intp)
        points = X[rows]
        for point, (_, i, number) in zip(points, steps, strict=True):
            point[i] = number
        return self._encoded_with(U[rows], points), rows

    def apart(self, U: Array, known: Array) -> NDArray[np.bool_] | None:
        """Which pairs differ in an integer or a choice, and so are different however near they are."""
        if not self._discrete:
            return None
        X, Z = (self.decode(each)[:, [i for i, _ in self._discrete]] for each in (U, known))
        return np.asarray((X[:, None, :] != Z[None, :, :]).any(axis=2))
