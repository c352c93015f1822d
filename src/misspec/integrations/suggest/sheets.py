"""CSV files that people edit with spreadsheets: read as they come, and added to without changing a byte of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from misspec.errors import FileChanged, InvalidInput, StorageError, shown
from misspec.files import frames, storage
from misspec.files.frames import Style


class FileLine(NamedTuple):
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


class File:
    """A file as it is when it is read; content: None, and no columns, where there is none."""

    def __init__(self, path: Path) -> None:
        self.path, self.content = path, frames.contents(path) if path.exists() else None
        self.sheet = frames.sheet_of(self.content or b"", str(path))
        self.notes = frames.not_utf8(self.sheet.style.encoding, path)

    def line(self, row: int) -> FileLine:
        return FileLine(self.path, self.sheet.lines[row], self.sheet.style.separator)


def write(file: File, lines: Sequence[Sequence[str]], style: Style) -> None:
    """Replace a file that has not changed since it was read, whole or not at all; it is made where there is none."""
    _replace(file, style.mark + _encoded(_written(lines, style), style, file.path))


def append_rows(file: File, rows: Sequence[Sequence[str]]) -> None:
    """Add rows, one cell per column, to the end of a file that has not changed since it was read: the bytes that it
    has stay, and it is replaced whole or not at all."""
    assert file.content is not None  # it has columns
    style, count = file.sheet.style, len(file.sheet.header)
    placed = [dict(zip(file.sheet.at, row, strict=True)) for row in rows]
    lines = [[cells.get(i, "") for i in range(file.sheet.width)] for cells in placed]
    before, _, _ = frames.decoded_text(file.content, str(file.path))
    more = ("" if before.endswith(("\n", "\r")) else style.newline) + _written(lines, style)
    after = frames.parse_csv(before + more, str(file.path)).rows
    added = [[*(cell.strip() for cell in row), *[""] * count][:count] for row in after[-len(rows) :]]
    if after[: -len(rows)] != file.sheet.rows or added != [[cell.strip() for cell in row] for row in rows]:
        raise InvalidInput(
            f"rows cannot be added to {file.path} such that they are read back as they are (does a quote end nowhere, "
            "or do blanks separate?); write them to a file of their own"
        )
    _replace(file, file.content + _encoded(more, style, file.path))


def _replace(file: File, content: bytes) -> None:
    """Write a file; FileChanged if it is not as it was when it was read."""
    if file.content is not None:
        storage.replace(file.path, content, instead_of=file.content)
        return
    try:
        storage.replace(file.path.resolve(), content, new=True)
    except StorageError:
        if not file.path.exists():
            raise
        raise FileChanged(storage.CHANGED.format(file.path)) from None


def cell_of(value: Any, decimal: str = ".") -> str:
    """A cell as it is written; empty for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        number: float = int(value) if value.is_integer() and abs(value) < 1e15 else value
        return repr(number).replace(".", decimal)
    return str(value)


def same(one: Path, other: Path) -> bool:
    """Test whether two paths are one file."""
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist
        return one.absolute() == other.absolute()


def _written(lines: Sequence[Sequence[str]], style: Style) -> str:
    written: list[str] = []
    for line in lines:
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=style.separator, lineterminator="\r\n").writerow(line)  # both are quoted in cells
        written += [text.getvalue().removesuffix("\r\n"), style.newline]
    return "".join(written)


def _encoded(text: str, style: Style, path: Path) -> bytes:
    try:
        return text.encode(style.encoding)
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{path} is in {style.encoding}, which has no {shown(error.object[error.start])}; save it as CSV in UTF-8"
        ) from None
