"""Named parameters: numbers, integers, choices and mixtures, searched by policies."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import search
from misspec.domains.base import MOST_NUMBERS, PROBES, numbers_of
from misspec.domains.conditions import MIDDLE, Conditions, condition_of
from misspec.domains.finite import Finite
from misspec.domains.mixture import Mixture
from misspec.domains.parameters import Choice, Columns, Float, Int, Parameter, code_columns, encode_parameter
from misspec.domains.region import DRAWN_BY_FUNCTIONS, Region
from misspec.errors import Array, InvalidInput, matrix, nearest, shown, vector
from misspec.files import frames
from misspec.threads import once

LISTED = 2**17  # members up to which those that keep the rules are counted


class Space(Region):
    """Named parameters, as in Space({"lr": Float(1e-5, 1e-1, log=True), "depth": Int(1, 12), "booster": Choice([…])}).

    x has one number per parameter, in their order and in user units; a choice is its position among the options.
    `params(x)` has the native values by name, and wherever points are handed in, dicts, lists of dicts and data frames
    of them will do. Integers and choices are searched as such: no point between them is ever asked.

    where: rules (`rules.py`), as in where="depth * lr < 0.5"; a function takes a point's values by name. A parameter
    with when= exists only with some options of others: elsewhere `params` does not have it. A Mixture is a group of
    shares, each of them a parameter. Results may break rules and lie off grids; queries never do.
    """

    kind = "Space"  # as it is stored

    def __init__(
        self, parameters: Mapping[str, Parameter | Mixture] | Sequence[tuple[str, Any]], *, where: Any = None
    ) -> None:
        self._given = _checked(parameters)
        self._parameters: dict[str, Any] = {}
        groups: list[tuple[Mixture, list[int]]] = []
        for name, each in self._given:
            shares = each.shares() if isinstance(each, Mixture) else {name: each}
            twice = next((share for share in shares if share in self._parameters), None)
            if twice is not None:
                raise InvalidInput(
                    f"parameters of a Space must have different names, got {shown(twice)} twice; rename one"
                )
            if isinstance(each, Mixture):
                groups.append((each, [len(self._parameters) + i for i in range(len(shares))]))
            self._parameters |= shares
        self.groups = groups
        self.columns: tuple[Columns, ...] = code_columns(self._parameters)
        self.conditions = Conditions(self._parameters)
        self._numbered = list(enumerate(self._parameters.values()))
        self._varying = [(i, p) for i, p in self._numbered if p.count != 1]
        self._discrete = [(i, p) for i, p in self._varying if p.count is not None]
        self.free = np.repeat([p.count is None for _, p in self._numbered], [p.width for _, p in self._numbered])
        self.free.flags.writeable = False
        self._units = max(1, len(self._varying))
        self._rule(where, self._parameters)

    def __repr__(self) -> str:
        rules = "" if self.rules is None else f", where={self.rules!r}"
        return f"Space({dict(self._given)!r}{rules})"

    @property
    def parameters(self) -> dict[str, Parameter]:
        """By name, in order; those of a mixture are its shares."""
        return dict(self._parameters)

    def settings(self) -> Any:
        """As JSON; None stands for a rule that is a function."""
        return self.coding if self.rules is None else {"parameters": self.coding, "where": self.rules.settings()}

    @property
    def coding(self) -> list[list[Any]]:
        """What makes its encoding, as JSON; pairs, since the order counts."""
        return [[name, encode_parameter(p)] for name, p in self._given]

    @property
    def names(self) -> list[str]:
        return list(self._parameters)

    @property
    def dimension(self) -> int:
        """Parameters."""
        return len(self._parameters)

    @once
    def size(self) -> int | None:
        """Members, or an upper bound where rules or conditions leave too many to count; None where a float varies."""
        counts = [p.count for p in self._parameters.values()]
        if None in counts:
            return None
        product = int(math.prod(counts))
        if product > LISTED or (self.rules is None and not self.conditions.conditional):
            return product
        functions = self.rules is not None and bool(self.rules.functions)
        return product if functions and product > DRAWN_BY_FUNCTIONS else len(self.members())

    # -- points in user units ----------------------------------------------------------------------------------

    def validate(self, points: Any) -> Array:
        """Points as floats, one number per parameter, or by name; they may lie outside bounds, grids and rules."""
        if frames.is_named(points):
            return self.points_of(points)
        X = self._settled(matrix("points", points, columns=self.dimension))
        for i, (name, p) in enumerate(self._parameters.items()):
            wrong = p.wrong(X[:, i])
            if wrong.any():
                row = int(wrong.argmax())
                position = f" by its position, 0 … {p.width - 1}" if isinstance(p, Choice) else ""
                raise InvalidInput(
                    f"parameter {name!r} must be {p.expects}{position}, got {X[row, i]:g} in row {row}; "
                    "integers and choices are not rounded"
                )
        return X

    def _settled(self, X: Array) -> Array:
        """Numbers on their grids to the bit, and then the first value of what does not exist."""
        return self.conditions.settled(np.stack([p.settled(X[:, i]) for i, p in self._numbered], axis=1))

    def points_of(self, given: Any) -> Array:
        """Points from a dict, a list of dicts, or a data frame, one row per point."""
        named = isinstance(given, list | tuple) and all(isinstance(row, Mapping) for row in given)
        if named and self.conditions.conditional:  # rows have what exists there
            missing = dict.fromkeys(self.names[i] for i in sorted(self.conditions.conditional))
            given = [missing | dict(row) for row in given]
        frame = frames.read(given, "the points")
        for name in frame.names:
            if name not in self._parameters:
                raise InvalidInput(f"unknown parameter {shown(name)}{nearest(name, self._parameters)}")
        X = numbers_of(self._parameters, frame, self.conditions.conditional)
        settled = self.completed(X, frame.where)
        idle = np.argwhere(~np.isnan(X) & (settled != X))
        if len(idle):
            row, i = idle[0].tolist()
            more = f", nor do {len(idle) - 1} more such values" if len(idle) > 1 else ""
            only = f"{self.names[i]} exists only where {condition_of(self._parameters[self.names[i]])}"
            said = f"{frame.where}: the value of {shown(self.names[i])} in row {row} does not count{more}: {only}"
            warnings.warn(said, UserWarning, stacklevel=2)
        return settled

    def completed(self, X: Array, where: str) -> Array:
        """Points with NaN for parameters that do not exist there; InvalidInput if one that exists is missing."""
        if not self.conditions.conditional:
            return X
        first = np.where(np.isnan(X), self.conditions.first, X)
        missing = np.argwhere(np.isnan(X) & self.there(first))
        if len(missing):
            row, i = missing[0].tolist()
            name = self.names[i]
            condition = condition_of(self._parameters[name])
            raise InvalidInput(f"{where} must have a value of {shown(name)} where {condition}, row {row} has none")
        return self.conditions.settled(first)

    def params(self, x: ArrayLike) -> dict[str, Any]:
        """The native values of a point by name, of the parameters that exist there."""
        X = self.validate(vector("x", x, length=self.dimension)[None, :])
        numbers, there = X[0].tolist(), self.there(X)[0].tolist()
        pairs = zip(self._parameters.items(), numbers, there, strict=True)
        return {name: p.value(number) for (name, p), number, exists in pairs if exists}

    def there(self, X: Array) -> NDArray[np.bool_]:
        return self.conditions.there(X)

    def contains(self, points: Any, slack: float = 0.0) -> NDArray[np.bool_]:  # noqa: ARG002  # none
        """For each point, whether it is within bounds, on the grids, a blend, and allowed by the rules."""
        named = frames.is_named(points)
        X = self.points_of(points) if named else self._settled(matrix("points", points, columns=self.dimension))
        inside = np.all([p.inside(X[:, i]) for i, p in self._numbered], axis=0)
        for mixture, at in self.groups:
            inside &= mixture.contains(X[:, at])
        if self.rules is not None:
            inside[inside] = self.legal(X[inside])
        return np.asarray(inside)

    def encode(self, points: Any) -> Array:
        """What the kernel sees of points in user units, shape (n, E): `columns` says which parameter is where."""
        X = self.validate(points)
        codes = np.concatenate([p.encode(X[:, i]) for i, p in self._numbered], axis=1)
        for i, missing in self._absent(X):
            codes[missing, self.columns[i].start : self.columns[i].stop] = 0.0 if self.columns[i].choice else MIDDLE
        return codes

    def _absent(self, X: Array) -> list[tuple[int, NDArray[np.intp]]]:
        """For each parameter with conditions the rows where it does not exist."""
        there = self.there(X)
        return [(i, np.flatnonzero(~there[:, i])) for i in self.conditions.conditional]

    def decode(self, encoded: ArrayLike) -> Array:
        """The nearest legal points but for the rules, within bounds, in user units; ties go to the first."""
        codes = matrix("encoded points", encoded, columns=len(self.free))
        parts = [codes[:, c.start : c.stop] for c in self.columns]
        X = np.stack([p.decode(part) for (_, p), part in zip(self._numbered, parts, strict=True)], axis=1) + 0.0
        for mixture, at in self.groups:
            X[:, at] = mixture.nearest(X[:, at])
        return self.conditions.settled(X)

    def members(self) -> Finite:
        """All members in order, the last parameter fastest, where no float varies."""
        X = self._combinations()
        return Finite(X[self.legal(X)], box=self)

    def _combinations(self) -> Array:
        """Members, those that break rules too."""
        counts = [p.count for p in self._parameters.values()]
        if None in counts:
            raise InvalidInput(f"{shown(self)} has a float that varies, and so no list of members; take cover(n)")
        if math.prod(counts) * self.dimension > MOST_NUMBERS:
            raise InvalidInput(f"{shown(self)} has {math.prod(counts):,} members, too many to list; take cover(n)")
        mesh: Any = np.meshgrid(*(p.every() for p in self._parameters.values()), indexing="ij")
        X = np.stack([axis.ravel() for axis in mesh], axis=1)
        if self.conditions.conditional:
            X = X[np.sort(search.distinct(self.conditions.settled(X)).first)]
        return X

    def every(self) -> Array | None:
        counts = [p.count for p in self._parameters.values()]
        few = None not in counts and math.prod(counts) <= min(LISTED, MOST_NUMBERS // self.dimension)
        return self._combinations() if few else None

    def cover(self, n: int, seed: int = 0) -> Finite:
        """A Finite of at most n Sobol' points (the next power of two), scrambled by the seed."""
        return Finite(search.distinct(self.covered(n, seed)).points, box=self)

    def probes(self) -> Array:
        """Encoded points on which a kernel is checked."""
        return self.spread(PROBES, 0)

    # -- what a search needs: points as the kernel sees them ---------------------------------------------------

    def from_unit(self, unit: Array) -> Array:
        X = self.values(unit)
        return self.conditions.settled(X)

    def values(self, unit: Array) -> Array:
        """Values of all parameters, whether they exist together or not."""
        columns = {i: column for column, (i, _) in zip(unit.T, self._varying, strict=False)}
        X = np.stack([p.from_unit(columns.get(i, np.zeros(len(unit)))) for i, p in self._numbered], axis=1)
        for mixture, at in self.groups:
            X[:, at] = mixture.from_unit(np.stack([columns[i] for i in at], axis=1))
        return X

    def _near(self, U: Array, rng: np.random.Generator, count: int, finest: float) -> Array:
        """Floats nearby, and now and then another integer, choice or blend."""
        V = np.repeat(U, count, axis=0)
        V[:, self.free] = search.around(U[:, self.free], rng, count, finest=finest)
        return self._jumped(V, rng, keep=True)[0]

    def _stepped(self, U: Array, steps: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        """Steps of the floats, and jumps of the others; of shares, steps among those that are there."""
        V = U + np.where(self.free, steps, 0.0)
        for at in self._shares:
            V[:, at] = np.where(U[:, at] > 0.0, V[:, at], 0.0)
        inside = ((V[:, self.free] >= 0.0) & (V[:, self.free] <= 1.0)).all(axis=1)
        for at in self._shares:
            inside &= (V[:, at] > 0.0).any(axis=1)
        V[:, self.free] = np.clip(V[:, self.free], 0.0, 1.0)
        jumped, legal = self._jumped(V, rng, keep=False)
        return jumped, inside & legal

    @property
    def _shares(self) -> list[list[int]]:
        """The columns of each mixture."""
        return [[self.columns[i].start for i in at] for _, at in self.groups]

    def _jumped(self, V: Array, rng: np.random.Generator, *, keep: bool) -> tuple[Array, NDArray[np.bool_]]:
        """One integer or choice in a row jumps, on average half of the time; keep: not where it would leave. Two shares
        of a mixture change places a quarter of the time."""
        X, legal = self.decode(V), np.ones(len(V), dtype=bool)
        before = self.there(X)
        for i, p in self._discrete:
            jumps = rng.random(len(X)) < 0.5 / len(self._discrete)
            numbers = np.where(jumps, p.jump(X[:, i], rng), X[:, i])
            stays = p.inside(numbers)
            X[:, i] = np.where(stays, numbers, X[:, i])
            legal &= stays | keep
        for at in self._shares:
            swapped = np.flatnonzero(rng.random(len(V)) < 0.25)
            pairs = np.array(at)[rng.integers(len(at), size=(2, len(swapped)))]
            V[swapped, pairs[0]], V[swapped, pairs[1]] = V[swapped, pairs[1]], V[swapped, pairs[0]]
        if self.conditions.conditional:  # what comes into being has any value
            X = np.where(before, X, self.values(rng.random((len(X), self._units))))
        return self._encoded_with(V, X, before), legal

    def _encoded_with(self, V: Array, X: Array, before: NDArray[np.bool_]) -> Array:
        """The integers and choices of X, and the floats of V to the bit where they existed before and still do."""
        kept = self.free & np.repeat(before & self.there(X), [p.width for _, p in self._numbered], axis=1)
        return self.on(np.where(kept, V, self.encode(X)))

    def _others(self, U: Array) -> tuple[Array, NDArray[np.intp]]:
        """Points with one integer or choice changed, or with a blend next to theirs, and the row of each."""
        X = self.decode(U)
        before = self.there(X)
        choices = [(row, i, p) for row in range(len(X)) for i, p in self._discrete if before[row, i]]
        steps = [(row, i, number) for row, i, p in choices for number in p.steps(float(X[row, i]))]
        rows = np.array([row for row, _, _ in steps], dtype=np.intp)
        points = X[rows]
        for point, (_, i, number) in zip(points, steps, strict=True):
            point[i] = number
        # what comes into being has the middle of its range
        points = np.where(before[rows], points, self.values(np.full((1, self._units), 0.5)))
        V = self._encoded_with(U[rows], points, before[rows])
        for mixture, at in self.groups:
            for row, x in enumerate(X):
                blends = np.repeat(x[None, :], len(others := mixture.others(x[at])), axis=0)
                blends[:, at] = others
                V, rows = np.concatenate([V, self.encode(blends)]), np.append(rows, np.full(len(blends), row))
        return V, rows

    def apart(self, U: Array, known: Array) -> NDArray[np.bool_] | None:
        """Which pairs differ in an integer or a choice, and so are different however near they are."""
        if not self._discrete:
            return None
        X, Z = (self.decode(each)[:, [i for i, _ in self._discrete]] for each in (U, known))
        return np.asarray((X[:, None, :] != Z[None, :, :]).any(axis=2))

    # -- climbs ------------------------------------------------------------------------------------------------

    def reach(self, U: Array) -> tuple[Array, Array]:
        """Floats that do not exist stay where they are, and shares that are zero where no more parts may be had."""
        low, high = (np.full(U.shape, end) for end in (0.0, 1.0))
        for i, missing in self._absent(self.decode(U)):
            start = self.columns[i].start
            low[missing, start] = high[missing, start] = U[missing, start]
        for (mixture, _), at in zip(self.groups, self._shares, strict=True):
            if mixture.most < len(at):
                high[:, at] = np.where(U[:, at] > 0.0, 1.0, 0.0)
        return low[:, self.free], high[:, self.free]

    def on(self, V: Array) -> Array:
        """The codes of shares on their sphere."""
        for (mixture, _), at in zip(self.groups, self._shares, strict=True):
            V, shares = V.copy(), mixture.kept(V[:, at])
            V[:, at] = shares / np.maximum(np.linalg.norm(shares, axis=1, keepdims=True), 1e-9)
        return V

    def pulled(self, V: Array, gradients: Array) -> Array:
        for (mixture, _), at in zip(self.groups, self._shares, strict=True):
            shares, here = mixture.kept(V[:, at]), gradients[:, at]
            size = np.maximum(np.linalg.norm(shares, axis=1, keepdims=True), 1e-9)
            along = shares / size
            gradients = gradients.copy()
            moved = (here - along * (here * along).sum(axis=1, keepdims=True)) / size
            gradients[:, at] = np.where((shares > 0.0) | (V[:, at] <= 0.0), moved, 0.0)
        return gradients


def _checked(given: Any) -> list[tuple[str, Any]]:
    """Names and parameters as pairs, or InvalidInput."""
    example = 'as in Space({"lr": Float(1e-5, 1e-1, log=True), "depth": Int(1, 12)})'
    try:
        pairs = [(name, each) for name, each in (given.items() if isinstance(given, Mapping) else given)]
        dict(pairs)
    except (TypeError, ValueError):
        raise InvalidInput(f"a Space takes parameters by name, {example}; got {shown(given)}") from None
    if not pairs:
        raise InvalidInput(f"a Space needs at least one parameter, {example}; got none")
    for name, parameter in pairs:
        if not isinstance(name, str):
            raise InvalidInput(f"names of parameters must be text, got {shown(name)}")
        if not isinstance(parameter, Float | Int | Choice | Mixture):
            raise InvalidInput(
                f"parameter {shown(name)} must be a Float, an Int, a Choice or a Mixture, got {shown(parameter)}"
            )
    return pairs
