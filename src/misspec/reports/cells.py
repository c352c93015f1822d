"""The cells of domain splitting over the rounds: intervals in one dimension, rectangles at the end in two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from misspec.errors import Array
from misspec.reports.picture import Axis, Line, Mark, Panel, Points


class Drawn(NamedTuple):
    """A cell: (low, high) per dimension, and the results of the policy when it was made and split (None: not yet)."""

    bounds: Sequence[Sequence[float]]
    born: int
    split: int | None


def panel(cells: Sequence[Drawn], played: Array, colour: str, *, before: int = 0) -> Panel | None:
    """Cells and the points played, shape (T, d); before: results that the policy had before these. None in more than
    two dimensions."""
    rounds, dimension = played.shape
    if dimension > 2:
        return None
    if dimension == 2:
        boxes = [(*cell.bounds[0], *cell.bounds[1]) for cell in cells if cell.split is None]
        x, y, axes = played[:, 0], played[:, 1], (Axis("x₁", grid=False), Axis("x₂", grid=False))
    else:
        ends = [(cell.born, before + rounds if cell.split is None else cell.split) for cell in cells]
        boxes = [
            (max(a - before, 0), b - before, *cell.bounds[0])
            for cell, (a, b) in zip(cells, ends, strict=True)
            if b > before
        ]
        x, y, axes = np.arange(1, rounds + 1), played[:, 0], (Axis("round", grid=False), Axis("x", grid=False))
    corners = np.array(boxes, dtype=np.float64).reshape(-1, 4)
    gap = np.full(len(corners), np.nan)
    left, right, low, high = corners.T
    around: Any = np.stack([left, right, right, left, left, gap], axis=1).ravel()
    above: Any = np.stack([low, low, high, high, low, gap], axis=1).ravel()
    marks: list[Mark] = [
        Points(x, y, size=2.0, colour=colour, alpha=0.35, label="played"),
        Line(around, above, width=0.8, colour="#333333", label="cells", hover=" "),
    ]
    return Panel(marks, *axes)
