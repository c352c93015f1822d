"""What every domain has, and what domains share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from misspec.domains.parameters import Choice, Columns, Parameter
from misspec.errors import Array, InvalidInput, shown
from misspec.files import frames

PROBES = 256  # points on which a kernel is checked when the domain is a box
SEARCHED = ("Box", "Space")  # kinds of domains that policies search, and that points of a list can be encoded by
MOST_NUMBERS = 200_000_000  # coordinates of a grid, at most
MOST_CORNERS = 12  # dimensions up to which all corners of a box are checked too


def coordinates(count: int) -> tuple[Columns, ...]:
    """Columns without names of their own: "x0", "x1", …"""
    return tuple(Columns(f"x{i}", i, i + 1, choice=False) for i in range(count))


def width_of(domain: Any) -> int:
    """Columns of the encoding, also of a domain that does not say which are whose."""
    return int(domain.columns[-1].stop) if hasattr(domain, "columns") else int(domain.dimension)


def without_names(points: Any, domain: Any) -> Any:
    """The same; InvalidInput for dicts, where coordinates have no names. Frames are taken column by column."""
    if frames.is_named(points) and not frames.is_frame(points):
        raise InvalidInput(
            f"coordinates have no names in {shown(domain)}; hand in numbers, one row per point, or make a Space or a "
            "table"
        )
    return points


def numbers_of(parameters: Mapping[str, Parameter], frame: frames.Frame) -> Array:
    """The coordinates of all rows, shape (n, d)."""
    X = np.empty((len(frame), len(parameters)))
    for i, (name, p) in enumerate(parameters.items()):
        if name not in frame.columns:
            raise InvalidInput(f"{frame.where} must have a value of {shown(name)}, got {', '.join(frame.names)} only")
        for row, cell in enumerate(frame.columns[name]):
            X[row, i] = p.number(as_written(p, cell) if frame.text else cell, frame.at(name, row))
    return X + 0.0


def as_written(p: Parameter, cell: Any) -> Any:
    """The value that a cell is written like, where there is one: "20" is 20, and True of a frame "True" of a file."""
    if isinstance(p, Choice):
        alike = [] if p.has(cell) else p.written(str(cell))
        return p.options[alike[0]] if len(alike) == 1 else cell
    return frames.number_of(cell.strip()) if isinstance(cell, str) and frames.is_number(cell.strip()) else cell


class Domain(Protocol):
    """What every kind of domain has."""

    kind: str  # as it is stored

    @property
    def dimension(self) -> int:
        """Of a point in user units."""

    def validate(self, points: Any) -> Array:
        """Points as floats of the right dimension."""

    def encode(self, points: Any) -> Array:
        """What the kernel sees of points in user units."""

    def contains(self, points: Any) -> NDArray[np.bool_]:
        """For each point, whether it is one of the domain's."""

    def probes(self) -> Array:
        """Encoded points on which a kernel is checked."""


class Searched(Domain, Protocol):
    """What a Box and a Space have, as far as a list of their points needs it."""

    @property
    def columns(self) -> tuple[Columns, ...]:
        """Which columns of the encoding belong to which coordinate."""

    def settings(self) -> Any:
        """As JSON."""

    def uniform(self, count: int, seed: Any) -> Array:
        """Uniform points as the kernel sees them, at least `count`."""


def a_domain(domain: Any) -> Any:
    """A domain of this library or a foreign one, or InvalidInput."""
    if isinstance(domain, type) or not all(hasattr(domain, name) for name in ("dimension", "encode", "probes")):
        raise InvalidInput(
            f"domain must be a Finite or a Box, or a Space, got {type(domain).__name__}: ms.Finite(points), "
            "ms.Box(bounds) or ms.Space(parameters) makes one"
        )
    return domain
