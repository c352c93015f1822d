"""Experiments that can be tried by hand, the rows of a table or the points of a space, and the one that a line of a
results file is about."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from misspec.domains import Choice, Float, Int, Space, Table
from misspec.domains.base import as_written
from misspec.domains.conditions import condition_of
from misspec.domains.rounding import DIGITS, MOST_DIGITS, settable_point
from misspec.domains.table import FAILED
from misspec.errors import Array, InvalidInput, alike, shown
from misspec.files import clutter, frames
from misspec.integrations import space_file
from misspec.integrations.suggest import sheets
from misspec.integrations.suggest.sheets import FileLine
from misspec.policies.core.answers import Query
from misspec.policies.core.fields import WHOLE

FINER = 4  # more digits at a time, up to MOST_DIGITS, where all that people can set is taken
DRAWN = 100  # points of a space at a time
LISTED = 8  # options that an error lists

Key = int | tuple[float, ...]  # an experiment: a row of the table, or the coordinates in a space


class Entry(NamedTuple):
    """A line of results: y is None while it is being run, and where it failed. limits: values of limited quantities."""

    key: Key
    line: str  # the file and the number, for people
    y: float | None
    failed: bool
    noise: float = math.nan  # of its own
    limits: Mapping[str, float] = MappingProxyType({})


class _Experiments:
    """The experiments to choose from: those of a table, or of a space.

    known     its columns
    label     the column that names experiments
    size      candidates; None in a space
    every     all experiments; None where they are too many to list
    entries   results that the file of candidates holds
    style     of a new file of results
    strict    whether experiments that are not among these are refused
    notes     what was noticed
    rules     that rows of a table must keep
    asked     experiments of equal lines, which are not suggested before it is said whether these are repeats
    """

    domain: Any
    parameters: Mapping[str, Any]
    known: Sequence[str]
    label: str | None = None
    size: int | None = None
    every: Sequence[Key] | None
    rules: Any = None
    style = frames.Style()

    def __init__(self, path: Path, *, strict: bool = False) -> None:
        self.path, self.strict = path, strict
        self.entries: list[Entry] = []
        self.notes: list[str] = []
        self.asked: set[Key] = set()

    def called(self, key: Key) -> str:  # noqa: ARG002  # points of a space have no names
        """Its name, for people; "" where its values say all."""
        return ""

    def point(self, key: Key) -> Array:
        """Coordinates, as policies see them."""
        return np.array(key if isinstance(key, tuple) else self.domain.points[key], dtype=np.float64)

    def others(self, keys: Iterable[Key]) -> list[Key] | None:
        """All experiments but these; None where they are too many to list."""
        gone = set(keys)
        return None if self.every is None else [key for key in self.every if key not in gone]

    def outside(self, key: Key) -> list[tuple[str, str]]:
        """Why it is none of the experiments, in words, and the parameter that this is about, "" if several are; of a
        table `find` says so."""
        x = self.point(key)[None, :]
        if self.rules is None or self.rules.held(x, np.ones(x.shape, dtype=bool))[0][0]:
            return []
        return [(f"breaks the rule {self.rules.said()}, which holds for {self.path}", "")]

    def coordinates(self, cells: Mapping[str, str], line: FileLine) -> Array:
        """The point that a line of results is about; what has only one value may be left out."""
        given = {name: cells.get(name, "") for name in self.parameters}
        alone = {name: float(p.every()[0]) for name, p in self.parameters.items() if p.count == 1 and not given[name]}
        alone |= {name: math.nan for name, p in self.parameters.items() if p.when and not given[name]}
        return np.array([alone[n] if n in alone else self.coordinate(n, given[n], line) for n in given]) + 0.0

    def coordinate(self, name: str, cell: str, line: FileLine) -> float:
        """A cell as a number."""
        p, number = self.parameters[name], line.pointed(cell)
        got = f"got {shown(cell)}" if cell else "the cell is empty"
        if isinstance(p, Choice):
            meant = p.written(cell) or p.written(number)
            if len(meant) == 1:
                return float(meant[0])
            between = p.between(frames.number_of(number)) if frames.is_number(number) and not self.strict else None
            if between is not None:
                return between
            options = [str(option) for option in p.options]
            listed = f" ({', '.join(options)})" if len(options) <= LISTED else ""
            expected = f"one of the {len(options)} values in {self.path}{listed}"
            raise InvalidInput(f"{line.at(name)}: expected {expected}, {got}{alike(cell, options)}")
        try:
            found = float(p.number(as_written(p, number), ""))
        except InvalidInput:
            found = math.nan
        if math.isnan(found) or (self.strict and _beside(p, found) == BETWEEN):
            raise InvalidInput(f"{line.at(name)}: expected {p.expects}, {got}")
        return found


class OfTable(_Experiments):
    """The rows of a CSV file. target: its column of results, if it has one; label: the column that names the rows.

    Rows that nothing tells apart, neither a name nor a value, are one candidate. where: rules that candidates keep; the
    rows that break one have results all the same.
    """

    def __init__(
        self, file: sheets.File, target: str, label: str | None, ignore: Sequence[str], columns: Sequence[str] = (),
        *, where: Sequence[str] = (), strict: bool = False, repeats: bool = False, limited: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """limited: columns of quantities that limits are on, if the file has them."""
        super().__init__(file.path, strict=strict)
        self.label, sheet = label, file.sheet
        self.known = sheet.header
        _check_columns(file, target, label, ignore, columns, limited)
        limited = [name for name in limited if name in sheet.header]
        ignore = [*ignore, *limited]
        frame = frames.of_sheet(sheet, str(self.path))
        described = [name for name in sheet.header if name not in (target, label, *ignore)]
        odd = {} if columns else clutter.untelling({name: frame.columns[name] for name in described}, candidates=True)
        self.notes += clutter.note_left_out(str(self.path), odd, "" if label else ", --names takes one for names")
        ignore = [*ignore, *odd, *([name for name in described if name not in columns] if columns else [])]
        told = {name: cells for name, cells in frame.columns.items() if name != target}
        self.names = None
        self._all = self._table(told, ignore)
        first = self._all.indices(self._all.points) if label is None else _first_of_name(file, label, self._all)
        self._rows, places = np.unique(first, return_inverse=True)  # of the file, and the place among them of each
        self.names = None if label is None else [sheet.cells(label)[row] for row in self._rows]
        if len(self._rows) < len(first) or label is not None:
            told = {name: [cells[i] for i in self._rows] for name, cells in told.items()}
            self._all = self._table(told, ignore)
        self.domain = self._table(told, ignore, where) if where else self._all  # those of them that keep the rules
        self.rules = self.domain.rules
        self.size, self.parameters = len(self.domain), self.domain.parameters
        if self.size < len(self._all):
            left = f"{len(self._all) - self.size} of {len(self._all)} candidates"
            self.notes.append(f"Not suggested, as they break {self.rules.said()}: {left} of {self.path}.")
        self.every = range(self.size)
        self._candidate = {place: i for i, place in enumerate(self.domain.source_rows.tolist())}
        self._cells: list[dict[str, Any]] = self._all.rows
        if self.names is not None:  # as they are written: 007 stays text
            self._cells = [{**row, str(label): name} for row, name in zip(self._cells, self.names, strict=True)]
        self._index = {name: i for i, name in enumerate(self.names or [])}
        floats = [name for name, p in self.parameters.items() if isinstance(p, Float)]
        commas = any(frames.COMMA.fullmatch(cell) for name in floats for cell in sheet.cells(name))
        self.style = sheet.style._replace(decimal="," if commas else ".")
        again, equal = copies_of(file, target, repeats=repeats)
        self.notes += equal
        for row, cell in enumerate(sheet.cells(target) if target in sheet.header else []):
            if row in again:
                self.asked.add(self._key(int(places[row])))
            elif cell:  # an empty one is a candidate that waits for its turn
                line = file.line(row)
                beside = values_beside(file, row, limited)
                key = self._key(int(places[row]))
                self.entries.append(Entry(key, str(line), *outcome(cell, line, target), limits=beside))

    def _table(self, columns: dict[str, list[Any]], ignore: Sequence[str], where: Sequence[str] = ()) -> Table:
        left_out = [*ignore, *([] if self.label is None else [self.label])]
        frame = frames.Frame(columns, str(self.path), text=True, command=True)
        return Table(frame, ignore=left_out, names=self.names, where=list(where))

    def _key(self, place: int) -> Key:
        """The candidate of a row, or the point of one that breaks a rule."""
        return self._candidate[place] if place in self._candidate else tuple(self._all.points[place].tolist())

    def find(self, cells: Mapping[str, str], line: FileLine) -> Key:
        """The experiment that a line of results is about; InvalidInput names the cell that is wrong."""
        name = "" if self.label is None else cells.get(self.label, "")
        if name:
            if name not in self._index:
                hint = alike(name, self._index)
                raise InvalidInput(f"{line.at(str(self.label))}: {self.path} has no candidate {shown(name)}{hint}")
            return self._as_run(self._index[name], cells, line)
        if not any(cells.get(column, "") for column in self.parameters):
            column = next(each for each in (self.label, *self.parameters) if each in cells)
            raise InvalidInput(f"{line.at(str(column))}: expected what says which candidate it is, the cell is empty")
        x = self.coordinates(cells, line)
        place = int(self._all.indices(x[None, :])[0])
        if place >= 0:
            return self._key(place)
        if self.strict:
            raise InvalidInput(f"{line}: {self.path} has no candidate like this; {self._closest(x)}")
        self.notes.append(f"{line} is no candidate of {self.path}, and is learnt from as it is: {self._closest(x)}.")
        return tuple(x.tolist())

    def _as_run(self, place: int, cells: Mapping[str, str], line: FileLine) -> Key:
        """The candidate of that name, or what was run in its place; InvalidInput for that if it is refused."""
        run = self._all.points[place].copy()
        for i, (name, rounding) in enumerate(zip(self.parameters, self._all.rounding, strict=True)):
            x = self.coordinate(name, cells[name], line) if cells.get(name, "") else run[i]
            if abs(x - run[i]) <= rounding:
                continue
            has = f"{self._called(place)} of {self.path} has {shown(self._cells[place][name])}"
            if self.strict or isinstance(self.parameters[name], Choice):
                said = f"{line.at(name)}: got {shown(cells[name])}, but {has}"
                raise InvalidInput(f"{said}; correct one of them, or empty the cell")
            self.notes.append(f"{line.at(name)}: learnt from as {cells[name]}, though {has}.")
            run[i] = x
        same = np.array_equal(run, self._all.points[place])
        return self._key(place) if same else tuple(run.tolist())

    def _closest(self, x: Array) -> str:
        """The row that is most like a point, and where it differs."""
        place = int(np.abs(self._all.encoded - self._all.encode(x[None, :])).sum(axis=1).argmin())
        here = self._all.points[place]
        where = [
            f"{name} is {sheets.cell_of(p.value(here[i]))}, not {sheets.cell_of(p.value(x[i]))}"
            for i, (name, p) in enumerate(self.parameters.items())
            if abs(here[i] - x[i]) > self._all.rounding[i]
        ]
        return f"the nearest is {self._called(place)}, where {' and '.join(where)}"

    def _called(self, place: int) -> str:
        return f"data row {self._rows[place] + 1}" if self.names is None else self.names[place]

    def key(self, query: Query) -> Key:
        """The experiment that a policy asks for."""
        assert query.index is not None
        return query.index

    def called(self, key: Key) -> str:
        return "" if isinstance(key, tuple) else self._called(int(self.domain.source_rows[key]))

    def values(self, key: Key) -> dict[str, Any]:
        """Its cells by column."""
        assert isinstance(key, int)
        return self._cells[int(self.domain.source_rows[key])]


BETWEEN, BEYOND = "lies between the values that {} has", "lies outside {}"


def _beside(p: Any, x: float) -> str:
    """Why a number is none of a parameter's, in words; "" for one that is."""
    if p.inside(np.array([x]))[0]:
        return ""
    return BETWEEN if isinstance(p, Choice) or p.low <= x <= p.high else BEYOND


class OfSpace(_Experiments):
    """The points of a space; numbers that vary by degrees are suggested as people can set them."""

    def __init__(self, path: Path, *, strict: bool = False) -> None:
        super().__init__(path, strict=strict)
        self.domain: Space = space_file.read(path)
        self.known, self.parameters = self.domain.names, self.domain.parameters
        self.notes += [
            f"{name} of {path} is {p.low} or {p.high}, as both are whole numbers; kind = 'float' is all between."
            for name, p in self.parameters.items()
            if isinstance(p, Int) and p.count == 2
        ]
        few = self.domain.size is not None and self.domain.size <= WHOLE
        self.every = [tuple(x) for x in self.domain.members().points.tolist()] if few else None

    def find(self, cells: Mapping[str, str], line: FileLine) -> Key:
        return tuple(self.coordinates(cells, line).tolist())

    def key(self, query: Query) -> Key:
        return settable_point(self.domain, query.x)

    def values(self, key: Key) -> dict[str, Any]:
        return self.domain.params(self.point(key))

    def coordinates(self, cells: Mapping[str, str], line: FileLine) -> Array:
        """Cells of parameters that do not exist there may be empty, and do not count."""
        x, conditions = super().coordinates(cells, line), self.domain.conditions
        known = np.where(np.isnan(x), conditions.first, x)
        there = conditions.there(known[None, :])[0]
        for i, name in enumerate(self.parameters):
            if there[i] and np.isnan(x[i]):
                known[i] = self.coordinate(name, "", line)  # says that it is missing
            elif not there[i] and cells.get(name, ""):
                self.notes.append(
                    f"{line.at(name)}: does not count, {name} exists only where {condition_of(self.parameters[name])}."
                )
        return np.asarray(conditions.settled(known[None, :])[0])

    def outside(self, key: Key) -> list[tuple[str, str]]:
        x, space = self.point(key), self.domain
        numbers, there = zip(self.parameters.items(), x.tolist(), strict=True), space.there(x[None, :])[0]
        found = [(_beside(p, number), name) for (name, p), number in numbers]
        said = [
            (why.format(self.path), name) for (why, name), exists in zip(found, there, strict=True) if why and exists
        ]
        for mixture, at in space.groups:
            if not mixture.contains(x[None, at])[0]:
                most = "" if mixture.at_most is None else f", at most {mixture.at_most} of them not zero"
                said.append((f"is no mixture as {self.path} has it (shares sum to {mixture.total:g}{most})", ""))
        if space.rules is not None and not space.legal(x[None, :])[0]:
            said.append((f"breaks the rule {space.rules.said()} of {self.path}", ""))
        return said

    def drawn(self, free: Callable[[Key], bool], rng: np.random.Generator) -> list[Key]:
        """Points by chance that are free; more digits where all that people can set is taken."""
        for digits in range(DIGITS, MOST_DIGITS + 1, FINER):
            keys: list[Key] = [settable_point(self.domain, self.domain.draw(rng)[0], digits) for _ in range(DRAWN)]
            some = [key for key in dict.fromkeys(keys) if free(key)]
            if some:
                return some
        return []


Menu = OfTable | OfSpace


def copies_of(file: sheets.File, target: str, *, repeats: bool) -> tuple[set[int], list[str]]:
    """Rows with a result that equal an earlier one and do not count, and what to say of them."""
    sheet = file.sheet
    results = sheet.cells(target) if target in sheet.header else [""] * len(sheet.rows)
    none = [not y or y.lower() == FAILED for y in results]
    rows = [(i,) if no else tuple(cell.strip() for cell in sheet.rows[i]) for i, no in enumerate(none)]
    given = [i if no else results[i] for i, no in enumerate(none)]
    return clutter.copies(file.path, rows, given, repeats=repeats, lines=sheet.lines)


def _check_columns(
    file: sheets.File, target: str, label: str | None, ignore: Sequence[str], columns: Sequence[str],
    limited: Sequence[str] = (),
) -> None:  # fmt: skip
    header = file.sheet.header
    if not file.sheet.rows:
        raise InvalidInput(f"{file.path} must hold a line of column names and a line per candidate, got none")
    named = {"--names": [] if label is None else [label], "--ignore": ignore, "--columns": columns}
    for option, column in ((option, column) for option, some in named.items() for column in some):
        frames.check_column(column, header, file.path, option)
    if target in (label, *ignore, *columns):
        raise InvalidInput(f"{shown(target)} holds the results (--target) and can be no other column")
    wrong = next((name for name in limited if name in (target, label, *columns)), None)
    if wrong is not None:
        raise InvalidInput(f"{shown(wrong)} has a limit (--limit), and can be no other column")
    twice = next((name for name in columns if name in (label, *ignore)), None)
    if twice is not None:
        raise InvalidInput(f"{shown(twice)} is in --columns, and in --names or --ignore too; take one")
    if set(header) <= {target, label, *ignore, *limited}:
        raise InvalidInput(f"{file.path} has no column left that describes its candidates; {', '.join(header)} do not")


def _first_of_name(file: sheets.File, label: str, table: Table) -> list[int]:
    """For each row the first of its name; rows of one name are repeats, and have equal settings."""
    first: dict[str, int] = {}
    for row, name in enumerate(file.sheet.cells(label)):
        at = first.setdefault(name, row)
        apart = np.abs(table.points[row] - table.points[at]) > table.rounding
        if not name or apart.any():
            also = f"{shown(name)} is the name of line {file.line(at).number} too"
            what = (
                f"{also}, with another {list(table.parameters)[int(apart.argmax())]}" if name else "the cell is empty"
            )
            raise InvalidInput(f"{file.line(row).at(label)}: expected a name of its own, {what}")
    return [first[name] for name in file.sheet.cells(label)]


def outcome(cell: str, line: FileLine, column: str) -> tuple[float | None, bool]:
    """A result, and whether there will be none."""
    if cell.lower() in (FAILED, ""):
        return None, bool(cell)
    if not frames.is_number(line.pointed(cell)):
        raise InvalidInput(
            f"{line.at(column)}: expected a number, {FAILED!r} for an experiment that gave no result, or an empty cell "
            f"while it is being run; got {shown(cell)}"
        )
    return float(line.pointed(cell)), False


def values_beside(file: sheets.File, row: int, names: Sequence[str]) -> dict[str, float]:
    """The values of limited quantities in a line, without those of empty cells."""
    found = {}
    for name in names:
        line, cell = file.line(row), file.sheet.cells(name)[row]
        if cell and not frames.is_number(line.pointed(cell)):
            said = f"{line.at(name)}: expected a number, or an empty cell where it is unknown"
            raise InvalidInput(f"{said}; got {shown(cell)} (--limit)")
        if cell:
            found[name] = float(line.pointed(cell))
    return found


def own_noise(cell: str, line: FileLine, column: str) -> float:
    """The standard deviation of a result, NaN where the cell is empty."""
    written = line.pointed(cell or "nan")
    if cell and not (frames.is_number(written) and float(written) >= 0):
        said = f"{line.at(column)}: expected a standard deviation, 0 or above, or an empty cell"
        raise InvalidInput(f"{said}; got {shown(cell)} (--noise)")
    return float(written)
