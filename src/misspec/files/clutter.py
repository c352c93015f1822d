"""What files have beside data: columns that describe nothing, and rows that are there twice."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from misspec.errors import Array
from misspec.files import frames

DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}( .*)?")
FINE = 0.8  # of the results of other rows that differ, from which equal rows are one row twice
LEAST_ROWS = 8  # from which it is seen that a column differs from row to row
NUMBERS = "numbers of rows"


def untelling(columns: Mapping[str, Sequence[Any] | Array], *, candidates: bool = False) -> dict[str, str]:
    """Columns that describe nothing, and what they have instead: dates, texts that differ from row to row, or from
    setting to setting, numbers of rows. None where no other column would be left. candidates: rows are different
    things, so that numbers of rows that tell them apart describe them."""
    found = {name: what for name, cells in columns.items() if (what := _instead(cells))}
    if candidates and NUMBERS in found.values():
        rest = [cells for name, cells in columns.items() if name not in found]
        if len(set(zip(*rest, strict=True))) < len(set(zip(*columns.values(), strict=True))):
            found = {name: what for name, what in found.items() if what != NUMBERS}  # 1, 2, 3 … may be a setting
    left = {name: cells for name, cells in columns.items() if name not in found}
    labels = [name for name in left if _labels(left[name], [left[other] for other in left if other != name])]
    found |= dict.fromkeys(labels if len(labels) < len(left) else [], "names of the settings beside it")
    return found if len(found) < len(columns) else {}


def _labels(cells: Sequence[Any] | Array, rest: Sequence[Sequence[Any] | Array]) -> bool:
    """Test whether a column of text names the settings in the rest: one text for each, though rows are repeats."""
    texts = isinstance(cells, list) and all(isinstance(cell, str) for cell in cells)
    if not texts or not LEAST_ROWS <= len(set(cells)) < len(cells):
        return False
    settings = list(zip(*rest, strict=True))
    return len(set(settings)) == len(set(zip(cells, settings, strict=True))) == len(set(cells))


def _instead(cells: Sequence[Any] | Array) -> str:
    """What a column has that describes nothing; "" for others."""
    if isinstance(cells, np.ndarray) or all(frames.kind_of(cell) == "number" for cell in cells):
        counts = len(cells) >= LEAST_ROWS and cells[0] in (0, 1) and cells[1] == cells[0] + 1  # most columns end here
        return NUMBERS if counts and np.array_equal(cells, cells[0] + np.arange(len(cells))) else ""
    given = [cell for cell in cells if cell is not None]
    if given and all(hasattr(cell, "isoformat") for cell in given):
        return "dates"
    if len(given) < LEAST_ROWS or not all(isinstance(cell, str) for cell in given):
        return ""
    texts = [cell.strip() for cell in given]
    if all(DATE.fullmatch(text) for text in texts):
        return "dates"
    return "texts that differ from row to row" if len(set(texts)) >= 0.9 * len(texts) else ""


def note_left_out(where: str, found: Mapping[str, str], also: str = "") -> list[str]:
    """The note that says so; also: another remedy."""
    said = ", ".join(f"{name} ({what})" for name, what in found.items())
    return [f"Columns of {where} that are left out: {said}; --columns takes them in{also}."] if found else []


def copies(
    where: object, rows: Sequence[Any], results: Sequence[Any], *, repeats: bool, lines: Sequence[int] | None = None
) -> tuple[set[int], list[str]]:
    """Rows that do not count because they equal an earlier one in every cell, and what to say of equal rows.

    Where results are so fine that no chance makes two equal, such rows are one row twice. Where they are coarse, to
    drop equal ones would be a choice by results. repeats: equal rows are repeats, whatever the results; lines: where
    rows stand in the file, the first in the second line by default.
    """
    first: dict[Any, int] = {}
    pairs = {i: first[row] for i, row in enumerate(rows) if first.setdefault(row, i) != i}
    if not pairs or repeats:
        return set(), []
    others = [result for i, result in enumerate(results) if i not in pairs]
    fine = len(set(others)) > FINE * len(others)
    numbers = range(2, len(rows) + 2) if lines is None else lines
    some = [f"{numbers[i]} is {numbers[j]} again" for i, j in list(pairs.items())[:3]]
    more = f" and {len(pairs) - 3} more" if len(pairs) > 3 else ""
    then = (
        "each counts once. If they are repeats with equal results, say --repeats."
        if fine
        else "they count as repeats, since other lines share results too. Delete what is there by mistake."
    )
    note = f"Equal lines of {where}: {', '.join(some)}{more}, in every cell; {then}"
    return set(pairs) if fine else set(), [note]
