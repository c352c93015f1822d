"""CSV files that people edit with spreadsheets: read as they come, and added to without changing a byte of them."""

from __future__ import annotations

import csv
import io
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from misspec import frames, storage
from misspec.errors import InvalidInput, shown

MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
WINDOWS = "cp1252"  # what spreadsheets write where nobody asks for UTF-8


class Style(NamedTuple):
    """How a file is written. mark: bytes that it starts with; decimal: what stands before the decimals."""

    separator: str = ","
    newline: str = os.linesep
    encoding: str = "utf-8"
    mark: bytes = b""
    decimal: str = "."


class File(NamedTuple):
    """A file as it was when it was read; content: None where there is none."""

    path: Path
    content: bytes | None
    sheet: frames.Sheet
    style: Style


def read(path: Path) -> File:
    """A file as it is; one that does not exist has no columns."""
    if not path.exists():
        return File(path, None, frames.parse("", str(path)), Style())
    content = frames.contents(path)
    text, encoding, mark = _decoded(content, path)
    ends = {"\r\n": text.count("\r\n")}
    ends |= {end: text.count(end) - ends["\r\n"] for end in ("\n", "\r")}
    newline = max(ends, key=lambda end: ends[end]) if any(ends.values()) else os.linesep
    sheet = frames.parse(text, str(path))
    return File(path, content, sheet, Style(sheet.separator, newline, encoding, mark))


def write(path: Path, lines: Sequence[Sequence[str]], style: Style) -> None:
    """A new file, whole or not at all."""
    storage.replace(path.resolve(), style.mark + _encoded(_written(lines, style), style, path))


def append(file: File, rows: Sequence[Sequence[str]]) -> None:
    """Add rows, one cell per column, to the end of a file that has not changed since it was read: the bytes that it
    has stay, and it is replaced whole or not at all."""
    check_unchanged(file)
    assert file.content is not None  # it has columns
    path, style, count = file.path.resolve(), file.style, len(file.sheet.header)
    lines = [[""] * file.sheet.width for _ in rows]
    for line, row in zip(lines, rows, strict=True):
        for place, cell in zip(file.sheet.places, row, strict=True):
            line[place] = cell
    before, _, _ = _decoded(file.content, file.path)
    more = ("" if before.endswith(("\n", "\r")) else style.newline) + _written(lines, style)
    after = frames.parse(before + more, str(path)).rows
    added = [[*(cell.strip() for cell in row), *[""] * count][:count] for row in after[-len(rows) :]]
    if after[: -len(rows)] != file.sheet.rows or added != [[cell.strip() for cell in row] for row in rows]:
        raise InvalidInput(
            f"rows cannot be added to {file.path} such that they are read back as they are (does a quote end nowhere, "
            "or do blanks separate?); write them to a file of their own"
        )
    mode = stat.S_IMODE(path.stat().st_mode)
    storage.replace(path, file.content + _encoded(more, style, file.path))
    path.chmod(mode)  # whoever could read and write it still can


def check_unchanged(file: File) -> None:
    """InvalidInput if a file is not as it was when it was read."""
    now = frames.contents(file.path) if file.path.exists() else None
    if now != file.content:
        raise InvalidInput(f"{file.path} has changed meanwhile; run the same command again")


def spelled(value: Any, style: Style) -> str:
    """A cell as it is written; empty for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        number: float = int(value) if value.is_integer() and abs(value) < 1e15 else value
        return repr(number).replace(".", style.decimal)
    return str(value)


def same(one: Path, other: Path) -> bool:
    """Whether two paths are one file."""
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist
        return one.absolute() == other.absolute()


def _decoded(content: bytes, path: Path) -> tuple[str, str, bytes]:
    """The text of a file, its encoding and its mark."""
    mark = next((each for each in MARKS if content.startswith(each)), b"")
    for encoding in [MARKS[mark]] if mark else ["utf-8", WINDOWS]:
        try:
            text = content[len(mark) :].decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text, encoding, mark
    raise InvalidInput(f"{path} is not a CSV file; save the table as CSV (in UTF-8, where you can choose)")


def _written(lines: Sequence[Sequence[str]], style: Style) -> str:
    whole = []
    for line in lines:
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=style.separator, lineterminator="\r\n").writerow(line)  # both are quoted in cells
        whole.append(text.getvalue().removesuffix("\r\n") + style.newline)
    return "".join(whole)


def _encoded(text: str, style: Style, path: Path) -> bytes:
    try:
        return text.encode(style.encoding)
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{path} is in {style.encoding}, which has no {shown(error.object[error.start])}; save it as CSV in UTF-8"
        ) from None
