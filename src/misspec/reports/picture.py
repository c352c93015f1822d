"""Figures as data: marks on panels. `matplotlib_backend` prints them, `plotly_backend` puts them on a page.

Lengths are in points of print; the page scales them. An array with one dimension more than its mark needs has one row
per look at a run: print shows the last, and the page's slider moves through all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec.errors import Array


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Mark:
    """A part of a panel.

    label    its entry in the legend
    group    marks that a click in the page's legend hides together; by default those with its label
    hover    what the page says under the pointer, a template of Plotly's; text: one string per point to put there
    on       "print" or "page" where only one of them has it
    hidden   whether the page shows it on request only
    """

    colour: str = "#111111"
    alpha: float = 1.0
    label: str = ""
    group: str = ""
    hover: str = ""
    text: Sequence[str] = ()
    on: str = ""
    hidden: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Line(Mark):
    """NaN interrupts it. step: constant up to the next point; marked: with a dot at each point."""

    x: Any
    y: Any
    dash: str = "solid"
    width: float = 1.4
    step: bool = False
    marked: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Ribbon(Mark):
    """The area between two curves, shaded."""

    x: Any
    low: Any
    high: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Points(Mark):
    """symbol: circle, x, diamond, square, star, tick, dash, ring, or triangle-up, -down, -left or -right; stroke: width
    of thin ones. opacity: of each. low, high: the ends of their whiskers, if they have any."""

    x: Any
    y: Any
    symbol: str = "circle"
    size: Any = 4.0
    opacity: Array | None = None
    stroke: float = 1.2
    low: Any = None
    high: Any = None


@dataclasses.dataclass(frozen=True, eq=False)
class Bars(Mark):
    """Bars from low to high at x, or, if they are flat, at a height of x; written: one string beside each."""

    x: Any
    low: Any
    high: Any
    thick: float
    flat: bool = False
    written: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Counts(Mark):
    """Counts at x, as bars below the panel on a square root scale."""

    x: Any
    counts: Array


@dataclasses.dataclass(frozen=True, eq=False)
class Heat(Mark):
    """Values at points of the plane: cells if the points are a grid, else dots. faded: where they are pale."""

    points: Array
    values: Array
    colours: str
    limits: tuple[float, float]
    faded: NDArray[np.bool_] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Rule(Mark):
    """A line across the panel."""

    at: float
    vertical: bool = True
    dash: str = "dash"
    width: float = 1.0


@dataclasses.dataclass(frozen=True, eq=False)
class Note(Mark):
    """Text at a point. shift: in points. align: the side of the text, or its middle, that is there. framed: on white,
    so that lines behind it do not disturb."""

    x: float
    y: float
    written: str
    shift: tuple[float, float] = (4.0, 0.0)
    align: str = "left"
    size: float = 9.0
    bold: bool = False
    framed: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Axis:
    """zero: it starts there. ticks with labels: instead of round numbers; turned: labels stand aslant, being too long
    for their room. whole: ticks are integers. bare: neither ticks nor a line."""

    title: str = ""
    log: bool = False
    range: tuple[float | None, float] | None = None
    zero: bool = False
    ticks: Sequence[float] | None = None
    labels: Sequence[str] = ()
    turned: bool = False
    whole: bool = False
    grid: bool = True
    bare: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """together: the page tells the values of all marks at the pointer's x."""

    marks: Sequence[Mark]
    x: Axis = Axis()
    y: Axis = Axis()
    title: str = ""
    together: bool = False


def last(values: Any) -> Any:
    """The values at the last look."""
    return values[-1] if np.ndim(values) == 2 else values


def as_grid(points: Array) -> tuple[Array, Array, Any] | None:
    """Both axes, and the order in which the points fill rows of equal y; None if they are not a grid."""
    xs, ys = (np.unique(points[:, i]) for i in (0, 1))
    return (xs, ys, np.lexsort((points[:, 0], points[:, 1]))) if len(xs) * len(ys) == len(points) else None
