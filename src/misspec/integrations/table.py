"""Tables from elsewhere: columns of numbers and a target, from a CSV file."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from misspec.errors import Array, InvalidInput, nearest


class Table(NamedTuple):
    """Points with the names of their columns, and observations with the name of theirs."""

    names: list[str]
    points: Array
    target: str
    observations: Array


def read(path: str | os.PathLike[str], target: str | None = None, columns: Sequence[str] | None = None) -> Table:
    """Read a CSV file with a header. target: the last column by default; columns: all others by default."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            sample = file.read(4096)
            file.seek(0)
            try:
                dialect: type[csv.Dialect] | csv.Dialect = csv.Sniffer().sniff(sample, delimiters=",;\t ")
            except csv.Error:
                dialect = csv.excel
            rows = [row for row in csv.reader(file, dialect) if any(cell.strip() for cell in row)]
    except FileNotFoundError:
        raise InvalidInput(f"{path} does not exist") from None
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path} is not a CSV file in UTF-8: {error}") from None
    if len(rows) < 2:
        raise InvalidInput(f"{path} must hold a line of column names and lines of numbers, got {len(rows)} line(s)")
    header = [cell.strip() for cell in rows[0]]
    if all(_is_number(cell) for cell in header):
        raise InvalidInput(f"{path} must start with a line of column names, got {','.join(rows[0])}")
    if len(set(header)) < len(header):
        raise InvalidInput(f"{path} has two columns of the same name; rename one: {', '.join(header)}")
    if len(header) < 2:
        raise InvalidInput(f"{path} must have at least two columns, points and a target, got {', '.join(header)}")
    goal = header[-1] if target is None else target
    chosen = [name for name in header if name != goal] if columns is None else list(columns)
    for name in [goal, *chosen]:
        if name not in header:
            raise InvalidInput(f"{path} has no column {name!r}{nearest(name, header)}")
    if goal in chosen or not chosen:
        raise InvalidInput(f"the target {goal!r} cannot be one of the columns of points; choose with --columns")
    numbers = {name: _column(path, rows, header.index(name), name) for name in [*chosen, goal]}
    return Table(chosen, np.stack([numbers[name] for name in chosen], axis=1), goal, numbers[goal])


def _column(path: str | os.PathLike[str], rows: list[list[str]], place: int, name: str) -> Array:
    values = np.empty(len(rows) - 1)
    for i, row in enumerate(rows[1:]):
        cell = row[place].strip() if place < len(row) else ""
        if not _is_number(cell):
            raise InvalidInput(
                f"{path}, column {name!r}, data row {i + 1}: expected a finite number, got {cell!r}; repair it, leave "
                "the row out, or choose other columns with --columns and --target"
            )
        values[i] = float(cell)
    return values


def _is_number(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False
