"""Tables from elsewhere: columns of numbers and text and a target, from a CSV file, and what they say about a model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from misspec import domains, frames
from misspec.domains import Finite, Space
from misspec.errors import Array, InvalidInput, shown
from misspec.integrations.menu import by_options
from misspec.model import Model
from misspec.truth import Diagnosis, diagnose, noise_from_repeats


class Table(NamedTuple):
    """Observations of a target at rows of a table.

    rows      the columns of the points; those of text are choices
    groups    for each row a number: rows of one group agree in the columns left out as well
    left_out  these columns
    skipped   rows that were left out
    notes     what was noticed, one sentence each
    """

    rows: domains.Table
    target: str
    observations: Array
    groups: Array
    left_out: list[str]
    skipped: int
    notes: list[str]

    @property
    def names(self) -> list[str]:
        return list(self.rows.parameters)


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
        """None but the points themselves: nobody says how far these units reach."""
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
) -> Certificates:
    """How wrong a model is at least. Without a norm bound, several are tried, from half the largest deviation up;
    without a noise, it is estimated from repeated points; without an offset, it is the average. Kernels see each column
    scaled to its range, unless raw, and choices one-hot. Rows that differ in a column left out are no repeats."""
    X, y = table.rows.points, table.observations
    trial = Model(kernel, 1.0 if norm_bound is None else norm_bound, 1.0 if noise is None else noise, delta=delta)
    sigma = _noise(table) if noise is None else trial.noise
    centre = float(y.mean()) if offset is None else offset
    if not raw:
        still = np.flatnonzero(np.ptp(X, axis=0) <= 0)
        if still.size:
            raise InvalidInput(
                f"column {shown(table.names[still[0]])} never changes; leave it out, or take columns raw"
            )
    space = (_Raw if raw else Space)(table.rows.parameters)
    spread = float(f"{max(float(np.abs(y - centre).max()), 1e-12):.1g}")
    tried = [spread * 2**k for k in range(-1, 5)] if norm_bound is None else [norm_bound]
    models = {B: Model(kernel, B, sigma, delta=delta, offset=centre) for B in tried}
    options: dict[str, Any] = {"domain": space, "groups": table.groups, "fixed_design": fixed_design}
    return Certificates({B: diagnose(X, y, model, **options) for B, model in models.items()}, sigma, centre)


def _noise(table: Table) -> float:
    try:
        sigma = noise_from_repeats(np.column_stack([table.rows.points, table.groups]), table.observations)
    except InvalidInput as error:
        if not table.left_out:
            raise
        raise InvalidInput(
            f"{error}; rows that differ in {', '.join(table.left_out)} are no repeats: leave a column out that has no "
            "influence with --ignore"
        ) from None
    if sigma <= 0:
        raise InvalidInput(
            "repeated points have equal observations, so that the noise would be 0 (rows exported twice?); say what it "
            "is instead"
        )
    return sigma


def read(
    path: str | os.PathLike[str],
    target: str | None = None,
    columns: Sequence[str] | None = None,
    *,
    ignore: Sequence[str] = (),
    skip: bool = False,
) -> Table:
    """Read a CSV file with a header; commas, semicolons, tabs or blanks separate, and where commas do not, numbers may
    have decimal commas.

    target: the last column by default; columns: all others by default. ignore: columns that have no influence on the
    target, such as notes. skip: leave out rows with a cell that is empty or, in a column of numbers, none, instead of
    refusing the file.
    """
    frame = frames.read(path)
    header = frame.names
    if len(header) < 2:
        raise InvalidInput(f"{path} must have at least two columns, points and a target, got {shown(header[0])}")
    left = [name for name in header if name not in ignore] or header
    goal = left[-1] if target is None else target
    if goal in ignore:
        raise InvalidInput(f"the target {shown(goal)} cannot be ignored; choose another with --target")
    chosen = [name for name in header if name not in (goal, *ignore)] if columns is None else list(columns)
    for name in [goal, *ignore, *chosen]:
        frame.column(name)  # says what is wrong
    if goal in chosen or not chosen:
        raise InvalidInput(f"the target {shown(goal)} cannot be one of the columns of points; choose with --columns")
    if len(set(chosen)) < len(chosen) or set(chosen) & set(ignore):
        raise InvalidInput("--columns and --ignore must name different columns, each of them once")
    cells = {name: frame.columns[name] for name in chosen} | {goal: _numbers(frame.columns[goal])}
    words = [name for name in chosen if _is_text(cells[name])]
    wrong = [i for i in range(len(frame)) if _wrong(cells, words, i) is not None]
    if wrong and not skip:
        name = str(_wrong(cells, words, wrong[0]))
        expected = "text" if name in words else "a finite number"
        cell = frame.columns[name][wrong[0]]
        raise InvalidInput(
            f"{frame.at(name, wrong[0])}: expected {expected}, got {shown('' if cell is None else cell)} ({len(wrong)} "
            "such row(s) in all); repair it, leave such rows out with --skip, or choose other columns with --columns "
            "and --target"
        )
    gone = set(wrong)
    kept = [i for i in range(len(frame)) if i not in gone]
    if not kept:
        raise InvalidInput(f"{path} has no row of numbers in {shown(', '.join([*chosen, goal]))}")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        whole = {name: [cells[name][i] for i in kept] for name in chosen}
        rows = Finite.from_table(frames.Frame(whole, str(path), text=True))
    left_out = [name for name in header if name not in (goal, *ignore, *chosen)]
    codes: dict[Any, int] = {}
    groups = [codes.setdefault(tuple(frame.columns[name][i] for name in left_out), len(codes)) for i in kept]
    notes = [by_options(str(each.message)) for each in said]
    apart = len(np.unique(np.column_stack([rows.points, groups]), axis=0)) - len(np.unique(rows.points, axis=0))
    if apart:
        notes.append(
            f"Rows that agree in {', '.join(chosen)} differ in {', '.join(left_out)}: they are taken for {apart} more "
            f"point{'s' * (apart > 1)}, not for repeats (--ignore for a column that has no influence)."
        )
    results = np.array([float(cells[goal][i]) for i in kept])
    return Table(rows, goal, results, np.array(groups, dtype=np.float64), left_out, len(wrong), notes)


def _numbers(cells: Sequence[Any]) -> list[Any]:
    """A column of results, in which codes such as 007 are numbers too."""
    return [frames.number_of(cell) if isinstance(cell, str) and frames.is_number(cell) else cell for cell in cells]


def _is_text(cells: Sequence[Any]) -> bool:
    return any(isinstance(cell, str) for cell in cells) and not any(isinstance(cell, int | float) for cell in cells)


def _wrong(cells: dict[str, list[Any]], words: Sequence[str], row: int) -> str | None:
    """The first column in which a row holds nothing that can be used."""
    wanted = {name: "text" if name in words else "number" for name in cells}
    return next((name for name in cells if frames.kind_of(cells[name][row]) != wanted[name]), None)
