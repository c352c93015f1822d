"""Tables as people have them, read into named columns of native cells: CSV files, pandas and polars frames, dicts.

Frames are known by what they can do (`columns`, `frame[name]`): neither library is imported. Rows are counted from 1,
the first line of data; errors name row and column.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import math
import os
import re
import stat
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from misspec.errors import LARGEST, InvalidInput, nearest, shown

LONGEST = 500  # characters of a column's name
DIGITS = 400  # of a whole number at most
CODE = re.compile(r"[+-]?0\d")  # a number that people would not write so
COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")  # a number with a decimal comma
HINT = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)  # a first line by which spreadsheets say what separates
# control characters but tabs and ends of lines, breaks of lines, halves of characters, and directions of text
STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]")
MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
WINDOWS = "cp1252"  # what spreadsheets write where UTF-8 is not asked for
EMPTY = ("NAType", "NaTType")  # of pandas, whose comparisons are neither true nor false


@dataclasses.dataclass(frozen=True)
class Frame:
    """Columns of equal length by name; a cell is text, a number, True, False or whatever it was, None where empty.

    where     what errors call it
    text      whether it was read from text, in which numbers and words look alike
    command   whether errors name options of a command, --ignore x, instead of arguments, ignore=['x']
    """

    columns: dict[str, Any]
    where: str
    text: bool = False
    command: bool = False

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    def rows(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, cells, strict=True)) for cells in zip(*self.columns.values(), strict=True)]

    def column(self, name: str) -> list[Any]:
        check_column(name, self.columns, self.where)
        cells: list[Any] = self.columns[name]
        return cells

    def at(self, name: str, row: int) -> str:
        """How errors name a cell; row counts from 0."""
        return f"{self.where}, column {shown(name)}, data row {row + 1}"

    def without(self, name: str) -> str:
        """How people leave a column out, for messages."""
        return f"--ignore {shown(name)}" if self.command else f"ignore=[{shown(name)}]"

    def with_results(self, name: str) -> str:
        """How people say that a column holds results, for messages."""
        return f"--target {shown(name)}" if self.command else f"target={shown(name)}"


def check_column(name: Any, known: Collection[str], where: object, option: str = "") -> None:
    """InvalidInput if there is no such column; option: which one of a command names it."""
    if not isinstance(name, str) or name not in known:
        hint = f" ({option})" if option else ""
        raise InvalidInput(f"{where} has no column {shown(name)}{nearest(name, known)}{hint}")


def is_frame(source: Any) -> bool:
    """Whether it is a data frame of any library."""
    if isinstance(source, Frame) or not hasattr(source, "__getitem__"):
        return False
    return hasattr(source, "collect") or hasattr(source, "columns")  # a lazy one would have to work to say its columns


def is_named(source: Any) -> bool:
    """Whether its values have names: a dict, a list of dicts, or a frame."""
    if isinstance(source, Mapping | Frame) or is_frame(source):
        return True
    return isinstance(source, list | tuple) and len(source) > 0 and isinstance(source[0], Mapping)


def read(source: Any, where: str = "the table") -> Frame:
    """A CSV file by its path, a frame, a list of dicts, or a dict of columns or of one row."""
    if isinstance(source, Frame):
        return source
    if isinstance(source, str | os.PathLike):
        return of_content(contents(source), str(source))
    if is_frame(source):
        if hasattr(source, "collect"):
            raise InvalidInput("expected a data frame, got a LazyFrame; call .collect() first")
        return _frame(list(source.columns), source.__getitem__, where)
    if isinstance(source, Mapping):
        several = any(isinstance(value, list | tuple | np.ndarray) for value in source.values())
        return _frame(list(source), lambda name: source[name] if several else [source[name]], where)
    if isinstance(source, list | tuple) and all(isinstance(row, Mapping) for row in source):
        names = list(source[0]) if source else []
        for number, row in enumerate(source, start=1):
            odd = next((name for name in [*names, *row] if name not in row or name not in names), None)
            if odd is not None:
                does = "lacks" if odd not in row else "has, unlike the first row,"
                raise InvalidInput(f"{where}, data row {number} {does} {shown(odd)}; rows must have the same columns")
        return _frame(names, lambda name: [row[name] for row in source], where)
    raise InvalidInput(
        f"expected a CSV file, a data frame, a dict of columns or a list of dicts, got {type(source).__name__}"
    )


class Style(NamedTuple):
    """How a CSV file is written. mark: bytes that it starts with; decimal: what stands before the decimals."""

    separator: str = ","
    newline: str = os.linesep
    encoding: str = "utf-8"
    mark: bytes = b""
    decimal: str = "."


class Sheet(NamedTuple):
    """A CSV file as text.

    header, rows   the names of its columns and, line by line, its cells; a line can have fewer or more than there are
                   columns
    lines          where each row stands in the file; the names of the columns are usually in line 1
    at, width      where each column stands in a line, and how many cells a whole line has: a separator at the end makes
                   a cell that belongs to no column
    """

    style: Style
    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    at: list[int]
    width: int

    def cells(self, name: str) -> list[str]:
        """A column, without blanks around its cells."""
        return self.column(self.header.index(name))

    def column(self, i: int) -> list[str]:
        return [row[i].strip() if i < len(row) else "" for row in self.rows]

    def check(self, row: int, where: object) -> None:
        """InvalidInput if a row has more cells than there are columns; where: how errors name it."""
        cells, count = self.rows[row], len(self.header)
        if any(cell.strip() for cell in cells[count:]):
            raise InvalidInput(
                f"{where}: {len(cells)} cells for {count} columns; is there a separator in a cell? Put such cells in "
                "quotes, and a point in the place of a decimal comma"
            )


def of_content(content: bytes, where: str) -> Frame:
    """The columns of a CSV file by its content."""
    sheet = sheet_of(content, where)
    for note in not_utf8(sheet.style.encoding, where):
        warnings.warn(note, stacklevel=3)
    if not sheet.rows:
        lines = 1 if sheet.header else 0
        raise InvalidInput(f"{where} must hold a line of column names and lines of numbers, got {lines} line(s)")
    return of_sheet(sheet, where)


def sheet_of(content: bytes, where: str) -> Sheet:
    """The lines of a CSV file by its content."""
    text, encoding, mark = decoded_text(content, where)
    return parse_csv(text, where, encoding, mark)


def not_utf8(encoding: str, where: object) -> list[str]:
    return [f"{where} is not in UTF-8, and is read as Windows-1252."] if encoding == WINDOWS else []


def decoded_text(content: bytes, where: str) -> tuple[str, str, bytes]:
    """The text of a CSV file, its encoding, and the mark that it starts with."""
    mark = next((each for each in MARKS if content.startswith(each)), b"")
    for encoding in [MARKS[mark]] if mark else ["utf-8", WINDOWS]:
        try:
            text = content[len(mark) :].decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text, encoding, mark
    raise InvalidInput(f"{where} is not a CSV file; save the table as CSV (in UTF-8, where you can choose)")


def contents(path: str | os.PathLike[str], missing: str = "") -> bytes:
    """What a file holds, or a pipe that the shell made (/dev/stdin, <(…)). missing: what to do where there is none."""
    try:
        kind = stat.S_IFMT(Path(path).stat().st_mode)
        device = kind in (stat.S_IFCHR, stat.S_IFBLK)  # some never end
        waits = kind == stat.S_IFIFO and Path(path).parts[:2] not in (("/", "dev"), ("/", "proc"))
        content = b"" if device or waits else Path(path).read_bytes()
    except FileNotFoundError:
        raise InvalidInput(f"{path} does not exist{missing}") from None
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError):  # a null character, or no path at all
        raise InvalidInput(f"{shown(path)} cannot be the name of a file") from None
    if device:
        raise InvalidInput(f"{path} is a device; name a file")
    if waits:  # perhaps for ever
        raise InvalidInput(f"{path} is a pipe; name a file, or hand it in as /dev/stdin")
    return content


def printable(text: str) -> str:
    """The text without what would steer a terminal or break a line."""
    return STEERING.sub("\N{REPLACEMENT CHARACTER}", text)


def parse_csv(text: str, where: str, encoding: str = "utf-8", mark: bytes = b"") -> Sheet:
    """The text of a CSV file; without a single line, a sheet without columns."""
    first = next((line for line in io.StringIO(text, newline="") if line.strip()), "")
    hint = HINT.fullmatch(first)
    try:
        separator = hint.group(1) if hint else _separator(first)
        read = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True))
    except (csv.Error, ValueError) as error:  # ValueError: what cannot separate
        raise InvalidInput(f"{where} is not a CSV file in UTF-8: {error}; does a quote end nowhere?") from None
    style = Style(separator, _newline(text), encoding, mark)
    lines = [number for number, row in enumerate(read, start=1) if any(cell.strip() for cell in row)][bool(hint) :]
    rows = [read[number - 1] for number in lines]
    if not rows:
        return Sheet(style, [], [], [], [], 0)
    header, width = [cell.strip() for cell in rows[0]], len(rows[0])
    at = list(range(width))
    if "" in header:  # a separator at the end of each line, say
        filled = {i for row in rows[1:] for i, cell in enumerate(row) if cell.strip()}
        at = [i for i, name in enumerate(header) if name or i in filled]
        header = [header[i] for i in at]
        rows = [[row[i] for i in at if i < len(row)] + row[width:] for row in rows]
    if all(is_number(cell) for cell in header):
        raise InvalidInput(f"{where} must start with a line of column names, got {shown(','.join(rows[0]))}")
    long = next((name for name in header if len(name) > LONGEST), None)
    if long is not None:
        raise InvalidInput(f"{where} has a column with a name of {len(long):,} characters, {shown(long)}; shorten it")
    _check_names(header, where)
    return Sheet(style, header, rows[1:], lines[1:], at, width)


def _newline(text: str) -> str:
    """What most lines of a text end with."""
    both = text.count("\r\n")
    ends = {"\r\n": both, "\n": text.count("\n") - both, "\r": text.count("\r") - both}
    return max(ends, key=lambda end: ends[end]) if any(ends.values()) else os.linesep


def of_sheet(sheet: Sheet, where: str) -> Frame:
    """Columns of native cells; where commas do not separate, numbers may have decimal commas."""
    for row in range(len(sheet.rows)):
        sheet.check(row, f"{where}, data row {row + 1}")
    commas = sheet.style.separator != ","
    columns = {name: _column(sheet.column(i), commas=commas) for i, name in enumerate(sheet.header)}
    return Frame(columns, where, text=True)


def _column(cells: list[str], *, commas: bool) -> list[Any]:
    """A column of a CSV file: numbers, unless most are none, or some are codes (007); None where it is empty.

    commas: numbers may have decimal commas, if most cells are numbers then: one that is none is what is wrong with the
    column, and not the others.
    """
    texts = [None if cell.lower() in ("", "nan") else cell for cell in cells]
    given = [text for text in texts if text is not None]
    if commas and 2 * sum(is_number(pointed(text)) for text in given) > len(given):
        texts = [text and pointed(text) for text in texts]
        given = [pointed(text) for text in given]
    if 2 * sum(map(is_number, given)) < len(given) or any(is_number(text) and CODE.match(text) for text in given):
        return list(texts)
    return [number_of(text) if text and is_number(text) else text for text in texts]


def pointed(cell: str) -> str:
    """A number with a decimal comma with a decimal point; anything else as it is."""
    return cell.replace(",", ".") if COMMA.fullmatch(cell) else cell


def is_number(cell: str) -> bool:
    """Whether a text is a finite number."""
    try:
        return math.isfinite(float(cell)) and "_" not in cell  # Python reads 1_000 as a number, other programs do not
    except ValueError:
        return False


def kind_of(cell: Any) -> str:
    """ "number", "text", "truth" (True and False), "nothing", or "other", which can be no coordinate."""
    if cell is None:
        return "nothing"
    if isinstance(cell, bool):
        return "truth"
    if isinstance(cell, int | float):
        return "number" if abs(cell) <= LARGEST else "other"
    return "text" if isinstance(cell, str) else "other"


def plain_frame(frame: Frame, keep: Sequence[str]) -> Frame:
    """The same with whatever JSON does not know, outside the columns to keep, as text."""
    columns = {
        name: cells if name in keep else [str(cell) if kind_of(cell) == "other" else cell for cell in cells]
        for name, cells in frame.columns.items()
    }
    return dataclasses.replace(frame, columns=columns)


def _separator(header: str) -> str:
    """What gives the most columns; a blank only if nothing else separates, since names may contain some."""
    counts = {",": 1}
    for each in ",;\t" if header else "":
        with contextlib.suppress(csv.Error):  # what does not separate a long line makes one long cell of it
            counts[each] = len(next(csv.reader([header], delimiter=each)))
    best = max(counts, key=lambda each: counts[each])
    return best if counts[best] > 1 or " " not in header.strip() else " "


def number_of(text: str) -> int | float:
    return int(text) if text.lstrip("+-").isdecimal() and len(text) < DIGITS else float(text)


def _frame(names: Sequence[Any], column: Callable[[Any], Any], where: str) -> Frame:
    _check_names([str(name) for name in names], where)  # first: of two columns of one name a frame gives a frame
    columns = {str(name): _list(where, name, column(name)) for name in names}
    lengths = {len(cells) for cells in columns.values()}
    if len(lengths) > 1:
        raise InvalidInput(f"columns of {where} must have equal lengths, got {sorted(lengths)}")
    if lengths <= {0}:
        raise InvalidInput(f"{where} holds no row; it needs at least one, with names of columns")
    return Frame(columns, where)


def _check_names(names: Sequence[str], where: str) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name, often in Counter(names).items() if often > 1)
        raise InvalidInput(f"{where} has two columns of the same name, {shown(twice)}; rename one")


def _list(where: str, name: Any, values: Any) -> list[Any]:
    """A column as a list of native cells."""
    method = next((each for each in ("to_list", "tolist") if hasattr(values, each)), None)
    cells = values if method is None else getattr(values, method)()
    if not isinstance(cells, list | tuple):
        raise InvalidInput(f"column {shown(name)} of {where} must be a list, got {type(cells).__name__}")
    return [_native(cell) for cell in cells]


def _native(cell: Any) -> Any:
    """A number as Python has it; None for NaN and what else frames have where there is nothing."""
    cell = cell.item() if isinstance(cell, np.generic) else float(cell) if isinstance(cell, Decimal) else cell
    return None if type(cell).__name__ in EMPTY or (isinstance(cell, float) and math.isnan(cell)) else cell
