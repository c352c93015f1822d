"""Observations in CSV files, columns of numbers and text and a target, and certificates from them."""

from __future__ import annotations

import io
import math
import os
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec.domains import Finite, Float, Space
from misspec.domains.parameters import Parameter
from misspec.errors import LARGEST, Array, InvalidInput, shown
from misspec.files import clutter, frames
from misspec.model import Model
from misspec.truth import Diagnosis, diagnoses, noise_from_repeats
from misspec.truth.certificates import numbered_points

MOST_TEXT = 2**25  # bytes of a file that is read cell by cell, which takes about thirty times as many, and a minute
MOST_COLUMNS = 5000  # of points: each is a parameter, and so many take ten seconds
ODD_COMMA = re.compile(r"(?<!\d),|,(?!\d)")  # where commas do not separate: one that is not a decimal comma
CODES = re.compile(r'(?:^|[,;\t"\s])[+-]?0\d', re.MULTILINE)  # 007 is text, as in `frames`

Column = Array | list[Any]  # an array where all cells are numbers


class Table(NamedTuple):
    """Observations of a target at rows of a table.

    points, parameters   of the columns of the points; those of text are choices
    groups    for each row a number: rows of one group agree in the columns left out as well
    left_out  these columns
    skipped   how many rows were left out
    notes     what was noticed, one sentence each
    noise     the rows' own standard deviations, NaN for those without; None where no column has them
    """

    points: Array
    parameters: Mapping[str, Parameter]
    target: str
    observations: Array
    groups: Array
    left_out: list[str]
    skipped: int
    notes: list[str]
    noise: Array | None = None

    @property
    def names(self) -> list[str]:
        return list(self.parameters)


class Certificates(NamedTuple):
    """By norm bound, what a table proves about a model; and what was taken from the table for it."""

    found: dict[float, Diagnosis]
    noise: float
    offset: float


class _Raw(Space):
    """A space whose numbers kernels see in their own units; choices as ever."""

    def encode(self, points: Any) -> Array:
        found, X = super().encode(points), self.validate(points)
        for i, columns in enumerate(self.columns):
            if not columns.choice:
                found[:, columns.start] = X[:, i]
        return found

    def probes(self) -> Array:
        """The points themselves: the file does not say how far these units reach."""
        return np.empty((0, self.columns[-1].stop))


def certify(
    table: Table,
    kernel: Any,
    *,
    norm_bound: float | None = None,
    noise: float | None = None,
    offset: float | None = None,
    delta: float = 0.1,
    raw: bool = False,
    fixed_design: bool = False,
    show: Callable[[str], None] = lambda _: None,
) -> Certificates:
    """Bound from below how wrong a model is.

    Without a norm bound, several are tried, from half the largest deviation up; without a noise, it is the median of
    the rows' own, or estimated from repeated points; without an offset, it is the average. Kernels see each column
    scaled to its range, unless raw, and choices one-hot. Rows that differ in a column left out are no repeats.
    show: is told what is done.
    """
    X, y = table.points, table.observations
    sigma = _noise(table) if noise is None else noise
    centre = float(y.mean()) if offset is None else offset
    still = np.flatnonzero(np.ptp(X, axis=0) <= 0)
    if still.size and not raw:
        raise InvalidInput(f"column {shown(table.names[still[0]])} never changes; leave it out, or take columns raw")
    spread = float(f"{max(float(np.abs(y - centre).max()), 1e-12):.1g}")
    tried = [spread * 2**k for k in range(-1, 5)] if norm_bound is None else [norm_bound]
    models = [Model(kernel, norm_bound=B, noise=sigma, delta=delta, offset=centre) for B in tried]
    space = (_Raw if raw else Space)(table.parameters)
    made = diagnoses(X, y, models, domain=space, groups=table.groups, fixed_design=fixed_design, noise=table.noise)
    found = {}
    for i, B in enumerate(tried, start=1):
        show(f"certifying {len(y):,} observations: norm bound {B:g}, {i} of {len(tried)}")
        found[B] = next(made)
    return Certificates(found, sigma, centre)


def _noise(table: Table) -> float:
    """The median of the rows' own, or the noise as repeated points show it; messages name the option that sets it."""
    if table.noise is not None:
        given = table.noise[table.noise > 0]
        if not len(given):
            raise InvalidInput("the column of noises has none above 0; say what the noise is instead (--noise)")
        return float(np.median(given))
    try:
        sigma = noise_from_repeats(np.column_stack([table.points, table.groups]), table.observations)
    except InvalidInput as error:
        differ = f"; rows that differ in {', '.join(table.left_out)} are no repeats: leave a column out that has no "
        hint = f"{differ}influence with --ignore" if table.left_out else ""
        raise InvalidInput(f"{error}{hint} (--noise)") from None
    if sigma <= 0:
        raise InvalidInput(
            "repeated points have equal observations, so that the noise would be 0 (rows exported twice?); say what it "
            "is instead (--noise)"
        )
    return sigma


def read(
    path: str | os.PathLike[str],
    target: str | None = None,
    columns: Sequence[str] | None = None,
    *,
    ignore: Sequence[str] = (),
    skip: bool = False,
    repeats: bool = False,
    noise: str | None = None,
) -> Table:
    """Read a CSV file with a header; commas, semicolons, tabs or blanks separate, and where commas do not, numbers may
    have decimal commas.

    target: the last column by default; columns: all others by default. ignore: columns that have no influence on the
    target, such as notes: dates, texts that differ from row to row and numbers of rows are ignored too, unless columns
    names them. skip: leave out rows with a cell that is empty or, in a column of numbers, none, instead of refusing the
    file. repeats: rows that are equal in every cell are repeats with equal results, not one row twice. noise: a column
    of the rows' own standard deviations, empty where there is none.
    """
    content, where = frames.contents(path), str(path)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        plain = _plain(content, where)
        if plain is None and len(content) > MOST_TEXT:
            raise InvalidInput(
                f"{path} has {len(content) >> 20} MB; more than {MOST_TEXT >> 20} MB are read if all cells are plain "
                "numbers (no text, no empty cells, no codes such as 007): take columns of text out of the file, or "
                "split it"
            )
        frame = frames.of_content(content, where) if plain is None else plain
        del content
        ignore = [*ignore, *([] if noise is None else [noise])]
        goal, chosen = _roles(frame, target, columns, ignore)
        cells = {name: _typed(column, codes=name in (goal, noise)) for name, column in frame.columns.items()}
        odd = clutter.untelling({name: cells[name] for name in chosen}) if columns is None else {}
        chosen, ignore = [name for name in chosen if name not in odd], [*ignore, *odd]
        left_out = [name for name in frame.names if name not in {goal, *ignore, *chosen}]
        usable = _usable(frame, {name: cells[name] for name in [*chosen, goal]}, goal, skip=skip)
        skipped = int((~usable).sum())
        same = _numbered(cells.values(), len(frame)).tolist()
        again, equal = clutter.copies(where, same, list(cells[goal]), repeats=repeats)
        usable[list(again)] = False
        rows = np.flatnonzero(usable)
        own = None if noise is None else _own(frame, noise, cells[noise], rows)
        for name, column in cells.items():
            cells[name] = column[rows] if isinstance(column, np.ndarray) else _typed([column[i] for i in rows.tolist()])
        whole = {name: cells[name] for name in chosen}
        if all(isinstance(column, np.ndarray) for column in whole.values()):
            points = np.column_stack(list(whole.values()))
            ends = zip(points.min(axis=0).tolist(), points.max(axis=0).tolist(), strict=True)
            parameters: Mapping[str, Parameter] = {name: Float(*pair) for name, pair in zip(chosen, ends, strict=True)}
        else:
            listed = {name: list(column) for name, column in whole.items()}
            domain = Finite.from_table(frames.Frame(listed, where, text=True, command=True))
            points, parameters = domain.points, domain.parameters
    groups = _numbered([cells[name] for name in left_out], len(rows))
    notes = [*(str(warning.message) for warning in said), *clutter.note_left_out(where, odd), *equal]
    apart = len(numbered_points(np.column_stack([points, groups]))[1]) - len(numbered_points(points)[1])
    if apart:
        notes.append(
            f"Rows that agree in {', '.join(chosen)} differ in {', '.join(left_out)}: they are taken for {apart} more "
            f"point{'s' * (apart > 1)}, not for repeats (--ignore for a column that has no influence)."
        )
    if own is not None and not (own >= 0).any():
        raise InvalidInput(f"column {shown(noise)} of {where} has no standard deviation in any row (--noise)")
    return Table(points, parameters, goal, np.asarray(cells[goal]), groups, left_out, skipped, notes, own)


def _plain(content: bytes, where: str) -> frames.Frame | None:
    """A file that has a line of names and then numbers in every cell, ten times as fast; None for any other."""
    text, encoding, _ = frames.decoded_text(content, where)
    first = text.find("\n")
    try:
        sheet = frames.parse_csv(text[: text.find("\n", first + 1)], where)
    except InvalidInput:
        return None
    separator = sheet.style.separator
    if sheet.lines != [2] or sheet.width != len(sheet.header) or separator == " " or CODES.search(text):
        return None
    if separator != "," and ODD_COMMA.search(text):
        return None
    del text
    with io.TextIOWrapper(io.BytesIO(content), encoding=encoding) as lines:
        pointed = lines if separator == "," else (line.replace(",", ".") for line in lines)
        try:
            rows = np.loadtxt(pointed, delimiter=separator, skiprows=1, comments=None, quotechar='"', ndmin=2)
        except ValueError:
            return None
    if rows.shape[1] != len(sheet.header) or not (np.abs(rows) <= LARGEST).all():
        return None
    for note in frames.not_utf8(encoding, where):
        warnings.warn(note, stacklevel=1)
    return frames.Frame(dict(zip(sheet.header, (rows + 0.0).T, strict=True)), where)


def _typed(column: Column, *, codes: bool = False) -> Column:
    """A column as an array, if all of its cells are numbers; codes: such as 007 are numbers too."""
    if isinstance(column, np.ndarray):
        return column
    if codes:
        column = [frames.number_of(c) if isinstance(c, str) and frames.is_number(c) else c for c in column]
    numbers = all(frames.kind_of(cell) == "number" for cell in column)
    return np.array(column, dtype=np.float64) + 0.0 if numbers else column


def _numbered(columns: Collection[Column], n: int) -> Array:
    """A number for each row: rows that agree in all of these columns have the same."""
    coded: list[Array] = [np.zeros(n)]
    for column in columns:
        codes: dict[Any, int] = {}
        if isinstance(column, list):
            column = np.array([codes.setdefault(cell, len(codes)) for cell in column], dtype=np.float64)
        coded.append(column)
    return numbered_points(np.column_stack(coded))[0].astype(np.float64)


def _own(frame: frames.Frame, noise: str, cells: Column, rows: NDArray[np.intp]) -> Array:
    """The standard deviations of some rows, NaN where the cell is empty."""
    numbers = [math.nan if c is None else float(c) if frames.kind_of(c) == "number" else -1.0 for c in cells]
    own = np.array(numbers)[rows]
    if (own < 0).any():
        i = int(rows[own < 0][0])
        got = frame.columns[noise][i]
        raise InvalidInput(
            f"{frame.at(noise, i)}: expected a standard deviation, 0 or above, or an empty cell; got "
            f"{shown(got if isinstance(got, str) else float(got))} (--noise)"
        )
    return own


def _roles(
    frame: frames.Frame, target: str | None, columns: Sequence[str] | None, ignore: Sequence[str]
) -> tuple[str, list[str]]:
    """The target and the columns of the points."""
    header = frame.names
    if len(header) < 2:
        raise InvalidInput(f"{frame.where} must have at least two columns, points and a target, got {shown(header[0])}")
    left = [name for name in header if name not in ignore] or header
    goal = left[-1] if target is None else target
    if goal in ignore:
        raise InvalidInput(f"the target {shown(goal)} cannot be ignored; choose another with --target")
    chosen = [name for name in header if name not in (goal, *ignore)] if columns is None else list(columns)
    if len(chosen) > MOST_COLUMNS:
        raise InvalidInput(
            f"{frame.where} has {len(chosen):,} columns of points, and {MOST_COLUMNS:,} are the most that can be "
            "certified; choose those that matter with --columns"
        )
    for name in [goal, *ignore, *chosen]:
        frame.column(name)  # says what is wrong
    if goal in chosen or not chosen:
        raise InvalidInput(f"the target {shown(goal)} cannot be one of the columns of points; choose with --columns")
    if len(set(chosen)) < len(chosen) or set(chosen) & set(ignore):
        raise InvalidInput("--columns and --ignore must name different columns, each of them once")
    return goal, chosen


def _usable(frame: frames.Frame, cells: dict[str, Column], goal: str, *, skip: bool) -> NDArray[np.bool_]:
    """The rows that can be used: those with text in columns of text, and numbers elsewhere."""
    wrong: dict[int, tuple[str, str]] = {}  # row by row its first column that cannot be used, and what it should be
    for name, column in reversed(cells.items()):
        if isinstance(column, np.ndarray):
            continue
        kinds = [frames.kind_of(cell) for cell in column]
        text = name != goal and {"text"} <= {*kinds} <= {"text", "nothing"}
        wanted, expected = ("text", "text") if text else ("number", "a finite number")
        wrong |= {i: (name, expected) for i, kind in enumerate(kinds) if kind != wanted}
    if wrong and not skip:
        row = min(wrong)
        name, expected = wrong[row]
        cell = frame.columns[name][row]
        raise InvalidInput(
            f"{frame.at(name, row)}: expected {expected}, got {shown('' if cell is None else cell)} ({len(wrong)} "
            "such row(s) in all); repair it, leave such rows out with --skip, or choose other columns with --columns "
            "and --target"
        )
    if len(wrong) == len(frame):
        raise InvalidInput(f"{frame.where} has no row of numbers in {shown(', '.join(cells))}")
    usable = np.ones(len(frame), dtype=bool)
    usable[list(wrong)] = False
    return usable
