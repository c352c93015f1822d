"""The cells of domain splitting: a tree of cubes, each with a posterior from the results that lie in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec.domains import Finite
from misspec.errors import Array, InvalidInput, shown
from misspec.model import Model
from misspec.policies.core.field import Field, Search
from misspec.policies.core.points import Actions, Candidates, Place
from misspec.policies.enlarged import Enlarged, keeps_weights
from misspec.posterior import Posterior, Tracked
from misspec.theory import cell_share, own_bands

MOST_DIMENSIONS = 8  # in which a split makes 256 cells, each with a posterior
Ends = tuple[Array, Array]


@dataclasses.dataclass(frozen=True, eq=False)
class CellRecord:
    """A cell: its bounds, one (low, high) per dimension, in user units (as the kernel sees them where there is no box).

    level         its side is 2^{−level} of the domain's
    count         N_A, the results in it, those of the time before it was made included
    played        rounds of this policy that were told while it was not split
    information   γ_A = ½ log det(I + K_A/λ); inherited: that of the results from before it was made
    born, split   results of the policy when it was made, and when it was split (None: it was not)
    """

    bounds: Array
    level: int
    count: int
    played: int
    information: float
    inherited: float
    born: int
    split: int | None


@dataclasses.dataclass(eq=False)
class Cell:
    """A cube of side 2^{−level} of the unit cube; corner: in units of its side."""

    level: int
    corner: NDArray[np.intp]
    parent: Cell | None
    ends: Enlarged  # with its share of δ
    rows: NDArray[np.intp]  # the candidates in it, of a list
    listed: Actions | None  # these, where there are any
    born: int
    results: list[tuple[Array, float]] = dataclasses.field(default_factory=list)  # until it is split
    children: list[Cell] = dataclasses.field(default_factory=list)
    split: int | None = None
    frozen: bool = False  # it was split and learns no more: queries that were pending then count no longer
    played: int = 0
    inherited: float = 0.0  # information of what it began with
    changes: int = 0  # of its posterior, pending queries included
    # over the candidates in it, with pending queries or not: ends, and the changes up to then
    known: dict[bool, tuple[int, Ends]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.middle = (self.corner + 0.5) / 2.0**self.level

    @property
    def posterior(self) -> Posterior:
        return self.ends.posterior

    def part(self, V: Array) -> NDArray[np.intp]:
        """Which half it is, in every direction, that each point of the unit cube lies in; of points beyond its faces,
        the nearest."""
        return np.asarray((self.middle <= V) @ (1 << np.arange(V.shape[1])))

    def look(self, field: Field, actions: Actions, *, pending: bool) -> Candidates:
        return field.look(self.posterior, None, actions, pending=pending and not self.frozen)

    def ends_at(self, field: Field, actions: Actions, *, pending: bool) -> Ends:
        """Ends for f̃."""
        c = self.look(field, actions, pending=pending)
        half = self.ends.half(c)
        return c.mean - half, c.mean + half

    def ends_listed(self, field: Field, *, pending: bool) -> Ends:
        """The same over the candidates in it, computed when something has changed."""
        assert self.listed is not None
        if self.known.get(pending, (-1,))[0] != self.changes:
            self.known[pending] = self.changes, self.ends_at(field, self.listed, pending=pending)
        return self.known[pending][1]


class Cells:
    """The tree. Ends at a point are those of its cell, within those of the cells that it came from, as far as these
    count (`ancestors` of `DomainSplitting`); where the two do not meet, those of the cell.

    whole: the posterior of all results; delta: of all cells together; options: of `Enlarged`.
    """

    def __init__(
        self, field: Field, model: Model, whole: Posterior, *, ancestors: str, delta: float, **options: Any
    ) -> None:
        self._field, self._model, self._delta, self._options = field, model, delta, options
        self._learning, self._forgotten = ancestors == "learning", ancestors == "forgotten"
        self._codes: Array | None = None if field.listed is None else field.listed.encoded
        self._low, self._extent, self._box = self._frame()
        self.dimension = len(self._low)
        if self.dimension > MOST_DIMENSIONS:
            most = f"at most {MOST_DIMENSIONS} dimensions, since a split makes 2^d cells"
            raise InvalidInput(f"DomainSplitting takes {most}, got {self.dimension}; ECGPUCB takes any number")
        nothing, everything = np.zeros(self.dimension, dtype=np.intp), np.arange(field.size)
        self._root = self._cell(0, nothing, None, everything, 0, whole if self._learning else None)
        self.splits: list[Cell] = []

    def _frame(self) -> tuple[Array, Array, Any]:
        """Low end and extent of the domain as the kernel sees it; and the box, where that is its unit cube."""
        listed, domain = self._field.listed, self._field.domain
        box: Any = domain if listed is None else listed.box
        if hasattr(box, "low") and hasattr(box, "high"):
            return np.zeros(box.dimension), np.ones(box.dimension), box
        if self._codes is None or not self._field.fixed:
            raise InvalidInput(f"DomainSplitting needs a box or a list, got {shown(domain)}; box.grid(n) makes one")
        extent = np.ptp(self._codes, axis=0)
        return self._codes.min(axis=0), np.where(extent > 0, extent, 1.0), None

    def _cell(
        self, level: int, corner: Any, parent: Cell | None, rows: Any, born: int, posterior: Posterior | None = None
    ) -> Cell:
        model, listed = self._model, None
        if self._codes is not None and len(rows):
            codes = self._codes[rows]
            listed = Actions(codes, codes, slice(None))
            if posterior is None:
                weights = keeps_weights(self._options["enlargement"], [self._options["epsilon"]], None)
                posterior = Tracked(model, Finite(codes), weights=weights, check=False)
        posterior = posterior or Posterior(model, self._field.domain, check=False)
        ends = Enlarged(model, posterior, None, delta=self._delta * cell_share(level, self.dimension), **self._options)
        return Cell(level, corner, parent, ends, rows, listed, born)

    def split(self, cell: Cell, now: int) -> None:
        """Halve a cell in every direction, and divide its results."""
        belongs = np.zeros(0) if self._codes is None else cell.part(self._in_cube(self._codes[cell.rows]))
        for i in range(2**self.dimension):
            corner = 2 * cell.corner + (i >> np.arange(self.dimension) & 1)
            cell.children.append(self._cell(cell.level + 1, corner, cell, cell.rows[belongs == i], now))
        cell.split, cell.frozen = now, not self._learning
        cell.known.clear()
        self.splits.append(cell)
        for code, y in cell.results:
            part = self.leaf(code)
            part.posterior.add(code, y)
            part.results.append((code, y))
        for part in cell.children:
            part.inherited = part.posterior.information
        cell.results = []

    # -- which cells ---------------------------------------------------------------------------------------------

    def _in_cube(self, encoded: Array) -> Array:
        return np.asarray((encoded - self._low) / self._extent)

    def leaf(self, code: Array) -> Cell:
        """The cell of a point that is not split."""
        cell, V = self._root, self._in_cube(code)
        while cell.children:
            cell = cell.children[int(cell.part(V)[0])]
        return cell

    def _leaves(self, encoded: Array) -> Iterator[tuple[Cell, NDArray[np.intp]]]:
        """The cells of some points that are not split, and the rows of these."""
        V, todo = self._in_cube(encoded), [(self._root, np.arange(len(encoded)))]
        while todo:
            cell, rows = todo.pop()
            if cell.children:
                belongs = cell.part(V[rows])
                todo += [(cell.children[i], rows[belongs == i]) for i in np.unique(belongs)]
            else:
                yield cell, rows

    def everything(self) -> Iterator[Cell]:
        """All cells, ancestors before their parts."""
        todo = [self._root]
        while todo:
            yield (cell := todo.pop())
            todo += cell.children[::-1]

    def _line(self, cell: Cell) -> list[Cell]:
        """A cell and its ancestors, the largest first."""
        return [cell] if cell.parent is None else [*self._line(cell.parent), cell]

    def _counting(self, cell: Cell) -> list[Cell]:
        """Those whose bands count."""
        return [cell] if self._forgotten else self._line(cell)

    def learners(self, cell: Cell) -> list[Cell]:
        """Those that learn what is observed in the cell."""
        return self._line(cell) if self._learning else [cell]

    # -- their ends ----------------------------------------------------------------------------------------------

    def ends_at(self, actions: Actions, *, pending: bool) -> Ends:
        """Ends for f̃."""
        if actions.rows is not None:
            listed = self._ends_listed(pending=pending)
            return listed[0][actions.rows], listed[1][actions.rows]
        lower, upper = np.full(len(actions.points), -np.inf), np.full(len(actions.points), np.inf)
        for leaf, rows in self._leaves(actions.encoded):
            for cell in self._counting(leaf):
                own = cell.ends_at(self._field, actions.part(rows), pending=pending)
                lower[rows], upper[rows] = own_bands.ground(lower[rows], upper[rows], *own)
        return lower, upper

    def _ends_listed(self, *, pending: bool) -> Ends:
        lower, upper = np.full(self._field.size, -np.inf), np.full(self._field.size, np.inf)
        for cell in self.everything():
            rows = cell.rows
            if len(rows) and not (self._forgotten and cell.children):
                own = cell.ends_listed(self._field, pending=pending)
                lower[rows], upper[rows] = own_bands.ground(lower[rows], upper[rows], *own)
        return lower, upper

    def look(self, place: Place, *, pending: bool) -> tuple[Cell, Candidates]:
        """The cell of a place, and what it knows of it."""
        cell, only = self.leaf(place.code), dataclasses.replace(place.only(), rows=None)
        return cell, cell.look(self._field, only, pending=pending)

    def search(self, whole: Posterior, own: Any, turn: int, sign: float = 1.0, *, pending: bool = True) -> Search:
        """The search for the largest upper (sign = 1) or lower end (−1) over a box."""
        made: dict[int, Search] = {}

        def of(cell: Cell) -> Search:
            if id(cell) not in made:
                made[id(cell)] = cell.ends.search(turn, sign, pending=pending and not cell.frozen)
            return made[id(cell)]

        def least(U: Array, end: Callable[[Search, Any], tuple[Array, Array]]) -> tuple[Array, Array]:
            """The least of a point's cells, and the gradient of that."""
            values, gradients = np.full(len(U), np.inf), np.zeros_like(U)
            for leaf, rows in self._leaves(U):
                for cell in self._counting(leaf):
                    ends, slopes = end(of(cell), rows)
                    less = ends < values[rows]
                    values[rows[less]], gradients[rows[less]] = ends[less], slopes[less]
            return values, gradients

        def score(U: Array, X: Array) -> Array:
            flat = np.zeros_like(U)
            return least(U, lambda each, rows: (each.score(U[rows], X[rows]), flat[rows]))[0]

        def slope(U: Array) -> tuple[Array, Array]:
            return least(U, lambda each, rows: each.slope(U[rows]))

        return Search(whole, own, score, slope, turn, snap=pending)

    def record(self, cell: Cell) -> CellRecord:
        ends = (cell.corner + np.array([[0], [1]])) / 2.0**cell.level
        bounds = self._low + self._extent * ends if self._box is None else self._box.decode(ends)
        t, gain = cell.posterior.t, cell.posterior.information
        return CellRecord(bounds.T, cell.level, t, cell.played, gain, cell.inherited, cell.born, cell.split)
