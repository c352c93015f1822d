"""Tables from elsewhere: columns of numbers and a target, from a CSV file, and what they say about a model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from misspec import frames
from misspec.domains import Box
from misspec.errors import Array, InvalidInput, nearest
from misspec.model import Model
from misspec.truth import Diagnosis, diagnose, noise_from_repeats


class Table(NamedTuple):
    """Points with the names of their columns, and observations with the name of theirs."""

    names: list[str]
    points: Array
    target: str
    observations: Array
    skipped: int = 0


class Certificates(NamedTuple):
    """By norm bound, what a table proves about a model; and what was taken from the table for it."""

    found: dict[float, Diagnosis]
    noise: float
    offset: float


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
    scaled to its range, unless raw."""
    X, y = table.points, table.observations
    trial = Model(kernel, norm_bound or 1.0, 1.0 if noise is None else noise, delta=delta)
    sigma = noise_from_repeats(X, y) if noise is None else trial.noise
    if sigma <= 0 and noise is None:
        raise InvalidInput(
            "repeated points have equal observations, so that the noise would be 0 (rows exported twice?); say what it "
            "is instead"
        )
    centre = float(y.mean()) if offset is None else offset
    cube = None
    if not raw:
        still = np.flatnonzero(np.ptp(X, axis=0) <= 0)
        if still.size:
            raise InvalidInput(f"column {table.names[still[0]]!r} never changes; leave it out, or take columns raw")
        cube = Box(list(zip(X.min(axis=0).tolist(), X.max(axis=0).tolist(), strict=True)))
    spread = float(f"{max(float(np.abs(y - centre).max()), 1e-12):.1g}")
    tried = [spread * 2**k for k in range(-1, 5)] if norm_bound is None else [norm_bound]
    models = {B: Model(kernel, B, sigma, delta=delta, offset=centre) for B in tried}
    found = {B: diagnose(X, y, model, domain=cube, fixed_design=fixed_design) for B, model in models.items()}
    return Certificates(found, sigma, centre)


def read(
    path: str | os.PathLike[str],
    target: str | None = None,
    columns: Sequence[str] | None = None,
    *,
    skip: bool = False,
) -> Table:
    """Read a CSV file with a header; commas, semicolons, tabs or blanks separate.

    target: the last column by default; columns: all others by default. skip: leave out rows with a cell that is not a
    number, instead of refusing the file.
    """
    header, rows = frames.read_csv(path)
    if len(header) < 2:
        raise InvalidInput(f"{path} must have at least two columns, points and a target, got {', '.join(header)}")
    goal = header[-1] if target is None else target
    chosen = [name for name in header if name != goal] if columns is None else list(columns)
    for name in [goal, *chosen]:
        if name not in header:
            raise InvalidInput(f"{path} has no column {name!r}{nearest(name, header)}")
    if goal in chosen or not chosen:
        raise InvalidInput(f"the target {goal!r} cannot be one of the columns of points; choose with --columns")
    places = [header.index(name) for name in [*chosen, goal]]
    cells = [[row[i].strip() if i < len(row) else "" for i in places] for row in rows]
    wrong = [i for i, row in enumerate(cells) if not all(frames.is_number(cell) for cell in row)]
    if wrong and not skip:
        name, cell = next(
            (name, cell)
            for name, cell in zip([*chosen, goal], cells[wrong[0]], strict=True)
            if not frames.is_number(cell)
        )
        raise InvalidInput(
            f"{path}, column {name!r}, data row {wrong[0] + 1}: expected a finite number, got {cell!r} ({len(wrong)} "
            "such row(s) in all); repair it, leave such rows out with --skip, or choose other columns with --columns "
            "and --target"
        )
    gone = set(wrong)
    numbers = np.array([[float(cell) for cell in row] for i, row in enumerate(cells) if i not in gone])
    if not len(numbers):
        raise InvalidInput(f"{path} has no row of numbers in {', '.join([*chosen, goal])}")
    return Table(chosen, numbers[:, :-1], goal, numbers[:, -1], len(wrong))
