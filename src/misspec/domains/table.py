"""A table of candidates: a CSV file, a data frame or a dict of columns."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec.domains.base import numbers_of
from misspec.domains.finite import Finite
from misspec.domains.parameters import Choice, Float, Parameter
from misspec.domains.rules import Rules
from misspec.domains.space import Space
from misspec.errors import Array, InvalidInput, listed, nearest, real, shown, too_large
from misspec.files import frames

SAME = 1e-9  # rounding within which numbers of a table are the same, in units of their column's range
FAILED = "failed"  # in the place of a result, for `misspec suggest`
REMEDY = (
    "; leave it empty, and say that it failed by policy.drop(policy.mark_pending([row])), or read the file with "
    "misspec.integrations.suggest.suggest(…).policy"
)
MANY = 20  # rows that all differ in a column of text: it is a note or an identifier


class Results(NamedTuple):
    """Rows of a table that have a result: what `policy.observe(*domain.observations)` learns."""

    indices: NDArray[np.intp]
    y: Array


class OutsideResults(NamedTuple):
    """Results of rows that are no candidates."""

    points: Array
    y: Array


class Table(Finite):
    """The rows of a table as candidates, in their order; `Finite.from_table` makes one.

    source    a CSV file by its path, a pandas or polars frame, a dict of columns, a list of dicts
    target    the column of results; rows that have one are `observations`, the others wait for theirs
    ignore    columns to leave out (notes, identifiers); they stay in `rows`
    names     one per row, or the column that holds them, which is then left out
    where     rules (`rules.py`), as in where="temperature + pressure < 200"; a function takes a row as a dict. Rows
              that break one are no candidates. Results that they have are `outside_observations`: data all the same

    Columns of numbers are scaled to [0, 1] for the kernel, columns of text (or of True and False) are choices, in the
    order in which they appear. `rows` are dicts as read; rows that are handed in match theirs if text is equal and
    numbers are within rounding, and the lowest of equal rows, unless columns left out tell them apart. `source_rows`
    has the candidates' positions in the source.
    """

    def __init__(
        self,
        source: Any,
        target: str | None = None,
        ignore: str | Sequence[str] = (),
        names: str | Sequence[str] | None = None,
        *,
        where: Any = None,
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
                f"an index that was written along: {frame.without('')}"
            )
        self.target, self.ignored = target, left_out
        self.parameters: dict[str, Parameter] = {name: _parameter(frame, name) for name in used}
        self._given: list[dict[str, Any]] = frames.plain_frame(frame, keep=used).rows()
        X = numbers_of(self.parameters, frame)
        rules = None if where is None else Rules(where, self.parameters)
        self.rules = None if rules is None or not rules.settings() else rules
        keeps = np.ones(len(X), dtype=bool) if self.rules is None else _keeping(self.rules, X, self._given, frame)
        self.source_rows: NDArray[np.intp] = np.flatnonzero(keeps)
        self.rows = self._given if keeps.all() else [self._given[row] for row in self.source_rows]
        self._names = None if names is None else [str(name) for name in listed("names", names)]
        if self._names is not None and len(self._names) == len(X):  # else it is said below
            names = [self._names[row] for row in self.source_rows]
        super().__init__(X[keeps], names, box=Space(self.parameters))
        scale = np.ptp(X, axis=0)
        self.rounding: Array = SAME * np.where(scale > 0, scale, np.abs(X).max(axis=0))
        told, y = _results(frame, target)
        inside = keeps[told]
        self.observations = Results(np.searchsorted(self.source_rows, told[inside]), y[inside])
        self.outside_observations = OutsideResults(X[told[~inside]], y[~inside])

    def __repr__(self) -> str:
        told = f", {len(self.observations.y)} with a result" if self.target is not None else ""
        return f"Finite.from_table({len(self)} rows of {', '.join(self.parameters)}{told})"

    def settings(self) -> dict[str, Any]:
        columns = [[name, [row[name] for row in self._given]] for name in self._given[0]]  # pairs: the order counts
        table = {"columns": columns, "target": self.target, "ignore": self.ignored}
        rules = {} if self.rules is None else {"where": self.rules.settings(), "names": self._names}
        return {"table": table | rules}

    def describe(self, index: int | None) -> dict[str, Any]:
        return {} if index is None else {"row": self.rows[index]}

    def validate(self, points: Any) -> Array:
        """Points as floats, or rows by name, in which columns that are left out and the target may be there or not;
        choices that the table does not have are refused."""
        if not frames.is_named(points):
            return super().validate(points)
        return np.concatenate([numbers_of(self.parameters, frame) for frame in self._frames(points)])

    def _frames(self, given: Any) -> list[frames.Frame]:
        """Rows by name; dicts one by one, since each may have other columns beside the parameters."""
        several = isinstance(given, list | tuple)
        parts = [(f"item {i}", row) for i, row in enumerate(given)] if several else [("the rows", given)]
        found = [
            dataclasses.replace(frames.plain_frame(frames.read(part, where), keep=tuple(self.parameters)), text=True)
            for where, part in parts
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
        return np.flatnonzero((np.abs(self.points - x) <= self.rounding).all(axis=1))

    def matches(self, given: Any) -> list[NDArray[np.intp]]:
        """For each row by name all candidates that it can be: those that agree in the columns left out too, if any."""
        found = []
        rows = [row for frame in self._frames(given) for row in frame.rows()]
        for x, row in zip(self.validate(given), rows, strict=True):
            near = self._near(x)
            others = [name for name in row if name not in self.parameters and name != self.target]
            same = [i for i in near.tolist() if all(self.rows[i][name] == row[name] for name in others)]
            found.append(np.array(same, dtype=np.intp) if same else near)
        return found

    def match(self, given: Any) -> tuple[Array, NDArray[np.intp] | None]:
        points = self.validate(given)
        if frames.is_named(given):
            found = np.array([int(rows[0]) if len(rows) else -1 for rows in self.matches(given)], dtype=np.intp)
        else:
            found = self.indices(points)
        points[found >= 0] = self.points[found[found >= 0]]  # to the bit
        return points, found


def _keeping(rules: Rules, X: Array, rows: list[dict[str, Any]], frame: frames.Frame) -> NDArray[np.bool_]:
    """The rows that keep the rules; InvalidInput if none does."""
    keeps, margins = rules.held(X, np.ones(X.shape, dtype=bool))
    for row in np.flatnonzero(keeps):
        keeps[row] = rules.allow(rows[row])
    if not keeps.any():
        near = "" if not rules.texts else f"; nearest is {shown(rows[int(margins.min(axis=1).argmax())])}"
        raise InvalidInput(f"no row of {frame.where} keeps {rules.said()}{near}; relax the rule")
    return keeps


def _parameter(frame: frames.Frame, name: str) -> Parameter:
    """A column of numbers is a Float over its range, one of text or of True and False a Choice."""
    cells = frame.columns[name]
    kinds = [frames.kind_of(cell) for cell in cells]
    if "nothing" in kinds:
        row = kinds.index("nothing")
        raise InvalidInput(
            f"{frame.at(name, row)}: expected a value, the cell is empty; fill it, leave the row out, or leave the "
            f"column out: {frame.without(name)}; if it holds results: {frame.with_results(name)}"
        )
    usual = max(("number", "text", "truth"), key=kinds.count)
    odd = [row for row, kind in enumerate(kinds) if kind != usual]
    if odd:
        wanted = {"number": "a finite number", "text": "text", "truth": "True or False"}[usual]
        wanted = f"{wanted}, as elsewhere in this column" if usual in kinds else "a finite number or text"
        wanted += too_large(real(cells[odd[0]]))
        raise InvalidInput(
            f"{frame.at(name, odd[0])}: expected {wanted}, got {shown(cells[odd[0]])}; repair it, or leave the column "
            f"out: {frame.without(name)}"
        )
    if usual == "number":
        return Float(min(cells), max(cells))
    if usual == "text" and not frame.text and all(frames.is_number(cell) for cell in cells):
        warnings.warn(
            f"column {shown(name)} of {frame.where} holds numbers as text and is treated as categorical; "
            "convert it to numbers if it is ordered",
            stacklevel=4,
        )
    options = tuple(dict.fromkeys(cells))
    if len(options) == len(cells) >= MANY and len(frame.names) > 1:
        warnings.warn(
            f"column {shown(name)} of {frame.where} differs in every row, so that nothing can be learnt from it; "
            f"leave it out if it is a note or an identifier: {frame.without(name)}",
            stacklevel=4,
        )
    return Choice(options)


def _results(frame: frames.Frame, target: str | None) -> tuple[NDArray[np.intp], Array]:
    """The rows with a result, and the results."""
    cells = [] if target is None else frame.columns[target]
    for row, cell in enumerate(cells):
        if frames.kind_of(cell) not in ("number", "nothing"):
            failed = str(cell).strip().lower() == FAILED
            raise InvalidInput(
                f"{frame.at(str(target), row)}: a result must be a finite number{too_large(real(cell))}, or empty "
                f"where there is none yet, got {shown(cell)}{REMEDY * failed}"
            )
    told = [row for row, cell in enumerate(cells) if cell is not None]
    return np.array(told, dtype=np.intp), np.array([float(cells[row]) for row in told], dtype=np.float64)


Finite.from_table = Table
