"""What someone who runs experiments by hand can try, the rows of a table or the points of a space, and which of them a
line of a results file is about."""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from misspec.domains import Choice, Float, Space, Table
from misspec.domains.table import SAME
from misspec.errors import Array, InvalidInput, nearest, shown
from misspec.files import frames
from misspec.integrations import space_file
from misspec.integrations.suggest import sheets
from misspec.policies.core.answers import Query
from misspec.policies.core.fields import WHOLE

FAILED = "failed"
DIGITS = 4  # of a suggested number, as a share of its range: what people can set
FINER = 4  # more digits at a time, up to MOST_DIGITS, where all that people can set is taken
MOST_DIGITS = 16
DRAWN = 100  # points of a space at a time
LISTED = 8  # options that an error lists

Key = int | tuple[float, ...]  # an experiment: a row of the table, or the coordinates in a space


class Entry(NamedTuple):
    """A line of results: y is None while it is being run, and where it failed."""

    key: Key
    y: float | None
    failed: bool


class Line(NamedTuple):
    """A line of a file, for errors, and what separates its cells."""

    path: Path
    number: int
    separator: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.number}"

    def at(self, column: str) -> str:
        return f"{self}, column {shown(column)}"

    def pointed(self, cell: str) -> str:
        """A number with a decimal point; a comma in a cell may mean thousands where commas separate."""
        return cell if self.separator == "," else frames.pointed(cell)


class Menu(Protocol):
    """What there is to try."""

    path: Path
    domain: Any
    label: str | None  # the column that names experiments
    parameters: Mapping[str, Any]
    entries: list[Entry]  # results that the file of candidates holds
    style: sheets.Style  # of a new file of results

    @property
    def known(self) -> list[str]:
        """The columns that it has."""

    @property
    def size(self) -> int | None:
        """Candidates; None in a space."""

    def find(self, cells: Mapping[str, str], line: Line) -> Key:
        """The experiment that a line of results is about; InvalidInput names the cell that is wrong."""

    def key(self, query: Query) -> Key:
        """The experiment that a policy asks for."""

    def actions(self, keys: Sequence[Key]) -> Any:
        """Experiments as policies take them."""

    def point(self, key: Key) -> Array:
        """Coordinates, as policies see them."""

    def others(self, keys: Iterable[Key]) -> list[Key] | None:
        """All experiments but these; None where they are too many to list."""

    def drawn(self, free: Callable[[Key], bool], rng: np.random.Generator) -> list[Key]:
        """Experiments that are free: all of them, or some by chance where they are too many to list."""

    def called(self, key: Key) -> str:
        """What people call it; "" where its values say all."""

    def values(self, key: Key) -> dict[str, Any]:
        """Its cells by column."""

    def outside(self, key: Key) -> list[str]:
        """Parameters that lie beyond their bounds."""


class OfTable:
    """The rows of a CSV file. target: its column of results, if it has one; label: the column that names the rows.

    Rows that nothing tells apart, neither a name nor a value, are one candidate.
    """

    def __init__(self, file: sheets.File, target: str, label: str | None, ignore: Sequence[str]) -> None:
        self.path, self.label, sheet = file.path, label, file.sheet
        self.known = sheet.header
        _check_columns(file, target, label, ignore)
        frame = frames.of_sheet(sheet, str(self.path))
        columns = {name: cells for name, cells in frame.columns.items() if name != target}
        self.names = None if label is None else _names(file, label)
        self.domain = self._table(columns, ignore)
        first = self.domain.indices(self.domain.points) if label is None else np.arange(len(self.domain))
        self._rows, place = np.unique(first, return_inverse=True)  # of the file; and for each of those its candidate
        if len(self._rows) < len(first):
            self.domain = self._table({name: [cells[i] for i in self._rows] for name, cells in columns.items()}, ignore)
        self.parameters: Mapping[str, Any] = self.domain.parameters
        named = [{}] * len(self.domain) if self.names is None else [{str(label): name} for name in self.names]
        self._cells = [{**row, **name} for row, name in zip(self.domain.rows, named, strict=True)]  # 007 is no number
        self._index = {name: i for i, name in enumerate(self.names or [])}
        floats = [name for name, p in self.parameters.items() if isinstance(p, Float)]
        commas = any(frames.COMMA.fullmatch(cell) for name in floats for cell in sheet.cells(name))
        self.style = file.style._replace(decimal="," if commas else ".")
        self.entries: list[Entry] = []
        for row, cell in enumerate(sheet.cells(target) if target in sheet.header else []):
            if cell:  # an empty one is a candidate that waits for its turn
                line = Line(self.path, sheet.lines[row], sheet.separator)
                self.entries.append(Entry(int(place[row]), *outcome(cell, line, target)))

    def _table(self, columns: dict[str, list[Any]], ignore: Sequence[str]) -> Table:
        left_out = [*ignore, *([] if self.label is None else [self.label])]
        try:
            return Table(frames.Frame(columns, str(self.path), text=True), ignore=left_out, names=self.names)
        except InvalidInput as error:
            raise InvalidInput(by_options(str(error))) from None

    @property
    def size(self) -> int | None:
        return len(self.domain)

    def find(self, cells: Mapping[str, str], line: Line) -> Key:
        name = "" if self.label is None else cells.get(self.label, "")
        if name:
            if name not in self._index:
                hint = _alike(name, self._index)
                raise InvalidInput(f"{line.at(str(self.label))}: {self.path} has no candidate {shown(name)}{hint}")
            index = self._index[name]
            self._agree(index, cells, line)
            return index
        if not any(cells.get(column, "") for column in self.parameters):
            column = next(each for each in (self.label, *self.parameters) if each in cells)
            raise InvalidInput(f"{line.at(str(column))}: expected what says which candidate it is, the cell is empty")
        x = _numbers(self.parameters, cells, line, self.path)
        index = int(self.domain.indices(x[None, :])[0])
        if index < 0:
            raise InvalidInput(f"{line}: {self.path} has no candidate like this; {self._closest(x)}")
        return index

    def _agree(self, index: int, cells: Mapping[str, str], line: Line) -> None:
        """InvalidInput if a line has the name of one candidate and a value of another."""
        given = {name: p for name, p in self.parameters.items() if cells.get(name, "")}
        for name, p in given.items():
            mine = self.domain.points[index, list(self.parameters).index(name)]
            if _differ(p, _number(p, cells[name], line, name, self.path), mine):
                raise InvalidInput(
                    f"{line.at(name)}: got {shown(cells[name])}, but {self.called(index)} of {self.path} has "
                    f"{shown(self._cells[index][name])}; correct one of them, or empty the cell"
                )

    def _closest(self, x: Array) -> str:
        """The candidate that is most like a point, and where it differs."""
        apart = np.abs(self.domain.encoded - self.domain.encode(x[None, :])).sum(axis=1)
        index, plain = int(apart.argmin()), sheets.Style()
        where = [
            f"{name} is {sheets.spelled(p.value(mine), plain)}, not {sheets.spelled(p.value(theirs), plain)}"
            for (name, p), mine, theirs in zip(self.parameters.items(), self.domain.points[index], x, strict=True)
            if _differ(p, mine, theirs)
        ]
        return f"the nearest is {self.called(index)}, where {' and '.join(where)}"

    def key(self, query: Query) -> Key:
        assert query.index is not None
        return query.index

    def actions(self, keys: Sequence[Key]) -> Any:
        return np.array(keys, dtype=np.intp)

    def point(self, key: Key) -> Array:
        assert isinstance(key, int)
        return np.asarray(self.domain.points[key])

    def others(self, keys: Iterable[Key]) -> list[Key] | None:
        gone = set(keys)
        return [index for index in range(len(self.domain)) if index not in gone]

    def drawn(self, free: Callable[[Key], bool], rng: np.random.Generator) -> list[Key]:  # noqa: ARG002  # all of them
        return [index for index in range(len(self.domain)) if free(index)]

    def called(self, key: Key) -> str:
        assert isinstance(key, int)
        return f"data row {self._rows[key] + 1}" if self.names is None else self.names[key]

    def values(self, key: Key) -> dict[str, Any]:
        assert isinstance(key, int)
        return self._cells[key]

    def outside(self, key: Key) -> list[str]:  # noqa: ARG002  # candidates are what there is
        return []


class OfSpace:
    """The points of a space; numbers that vary by degrees are suggested as people can set them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.domain: Space = space_file.read(path)
        self.label: str | None = None
        self.parameters: Mapping[str, Any] = self.domain.parameters
        self.entries: list[Entry] = []
        self.style = sheets.Style()

    @property
    def known(self) -> list[str]:
        return list(self.parameters)

    @property
    def size(self) -> int | None:
        return None

    def find(self, cells: Mapping[str, str], line: Line) -> Key:
        return tuple(_numbers(self.parameters, cells, line, self.path).tolist())

    def key(self, query: Query) -> Key:
        return self._rounded(query.x, DIGITS)

    def _rounded(self, x: Array, digits: int) -> Key:
        return tuple(settable(p, each, digits) for p, each in zip(self.parameters.values(), x.tolist(), strict=True))

    def actions(self, keys: Sequence[Key]) -> Any:
        return np.array(keys, dtype=np.float64)

    def point(self, key: Key) -> Array:
        return np.array(key, dtype=np.float64)

    def others(self, keys: Iterable[Key]) -> list[Key] | None:
        if self.domain.size is None or self.domain.size > WHOLE:
            return None
        gone = set(keys)
        return [x for x in map(tuple, self.domain.members().points.tolist()) if x not in gone]

    def drawn(self, free: Callable[[Key], bool], rng: np.random.Generator) -> list[Key]:
        for digits in range(DIGITS, MOST_DIGITS + 1, FINER):
            keys = [self._rounded(self.domain.draw(rng)[0], digits) for _ in range(DRAWN)]
            found = [key for key in dict.fromkeys(keys) if free(key)]
            if found:
                return found
        return []

    def called(self, key: Key) -> str:  # noqa: ARG002  # points have no names
        return ""

    def values(self, key: Key) -> dict[str, Any]:
        return self.domain.params(self.point(key))

    def outside(self, key: Key) -> list[str]:
        numbers = zip(self.parameters.items(), self.point(key), strict=True)
        return [name for (name, p), x in numbers if not p.inside(np.array([x]))[0]]


def settable(p: Any, x: float, digits: int = DIGITS) -> float:
    """A number as people can set it: rounded to a few digits of its range, within its bounds."""
    if not isinstance(p, Float) or p.step is not None or p.low == p.high:
        return x
    if p.log:  # digits of the number itself, and more where its range is narrow
        narrow = math.floor(math.log10(max(math.log(p.high) - math.log(p.low), sys.float_info.epsilon)))
        found = float(f"{x:.{digits - min(narrow, 0)}g}")
    else:
        found = round(x, digits - 1 - math.floor(math.log10(p.high - p.low))) + 0.0
    return min(max(found, p.low), p.high)


# -- columns and cells -------------------------------------------------------------------------------------------------


def _check_columns(file: sheets.File, target: str, label: str | None, ignore: Sequence[str]) -> None:
    header = file.sheet.header
    if file.content is None:
        raise InvalidInput(f"{file.path} does not exist")
    if not file.sheet.rows:
        raise InvalidInput(f"{file.path} must hold a line of column names and a line per candidate, got none")
    for option, column in [("--names", label), *(("--ignore", each) for each in ignore)]:
        if column is not None and column not in header:
            raise InvalidInput(f"{file.path} has no column {shown(column)}{nearest(column, header)} ({option})")
    if target in (label, *ignore):
        raise InvalidInput(f"{shown(target)} holds the results (--target) and can be neither --names nor --ignore")
    if set(header) <= {target, label, *ignore}:
        raise InvalidInput(f"{file.path} has no column left that describes its candidates; {', '.join(header)} do not")


def _names(file: sheets.File, label: str) -> list[str]:
    """One per candidate, all different."""
    names = file.sheet.cells(label)
    first: dict[str, int] = {}
    for name, number in zip(names, file.sheet.lines, strict=True):
        if not name or name in first:
            what = f"{shown(name)} is the name of line {first[name]} too" if name else "the cell is empty"
            where = Line(file.path, number, file.sheet.separator).at(label)
            raise InvalidInput(f"{where}: expected a name of its own, {what}")
        first[name] = number
    return names


def outcome(cell: str, line: Line, column: str) -> tuple[float | None, bool]:
    """A result, and whether there will be none."""
    if cell.lower() in (FAILED, ""):
        return None, bool(cell)
    written = line.pointed(cell)
    if not frames.is_number(written):
        raise InvalidInput(
            f"{line.at(column)}: expected a number, {FAILED!r} for an experiment that gave no result, or an empty cell "
            f"while it is being run; got {shown(cell)}"
        )
    return float(written), False


def _differ(p: Any, one: float, other: float) -> bool:
    """Whether two coordinates are different values, by the rounding of tables."""
    wide = 0.0 if isinstance(p, Choice) else (p.high - p.low) or abs(p.high)
    return abs(one - other) > SAME * wide


def _numbers(parameters: Mapping[str, Any], cells: Mapping[str, str], line: Line, source: Path) -> Array:
    """The coordinates of a line; what has only one value may be left out."""
    x = np.empty(len(parameters))
    for i, (name, p) in enumerate(parameters.items()):
        cell = cells.get(name, "")
        only = p.count == 1 and not cell
        x[i] = float(p.every()[0]) if only else _number(p, cell, line, name, source)
    return x + 0.0


def _number(p: Any, cell: str, line: Line, column: str, source: Path) -> float:
    """A cell as a coordinate."""
    got = f"got {shown(cell)}" if cell else "the cell is empty"
    if isinstance(p, Choice):
        found = _options(p, cell, line)
        if len(found) == 1:
            return float(found[0])
        options = [str(each) for each in p.options]
        listed = f" ({', '.join(options)})" if len(options) <= LISTED else ""
        expected = f"one of the {len(options)} values in {source}{listed}"
        raise InvalidInput(f"{line.at(column)}: expected {expected}, {got}{_alike(cell, options)}")
    written = line.pointed(cell)
    try:
        return float(p.number(frames.number_of(written) if frames.is_number(written) else written, ""))
    except InvalidInput:
        raise InvalidInput(f"{line.at(column)}: expected {p.expects}, {got}") from None


def _options(p: Choice, cell: str, line: Line) -> list[int]:
    """The options that a cell can mean: as they are written, or as a spreadsheet writes them, 1 for 1.0, TRUE for
    True."""
    texts = [str(option) for option in p.options]
    if cell in texts:
        return [i for i, text in enumerate(texts) if text == cell]
    if cell.lower() in ("true", "false"):
        return [i for i, text in enumerate(texts) if text.lower() == cell.lower()]
    written = line.pointed(cell)
    if not frames.is_number(written):
        return []
    return [i for i, text in enumerate(texts) if frames.is_number(text) and float(text) == float(written)]


def _alike(word: str, known: Iterable[str]) -> str:
    """ "; did you mean …?", without the list of all that are known, which may be thousands."""
    lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return f"; did you mean {shown(lower[close[0]])}?" if close else ""


def by_options(message: str) -> str:
    """An error or a warning of a table in words of the command line."""
    for quote in "'\"":
        message = message.replace(f"ignore=[{quote}", f"--ignore {quote}").replace(f"{quote}]", quote)
    return message.replace("ignore=", "--ignore ").replace("target=", "--target ")
