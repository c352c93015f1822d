"""What every domain has, and what domains share."""

from __future__ import annotations

from collections.abc import Container, Mapping
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


def numbers_of(parameters: Mapping[str, Parameter], frame: frames.Frame, optional: Container[int] = ()) -> Array:
    """The coordinates of all rows, shape (n, d); NaN for those that are missing. optional: which may be."""
    X = np.empty((len(frame), len(parameters)))
    for i, (name, p) in enumerate(parameters.items()):
        if name not in frame.columns:
            if i not in optional:
                got = ", ".join(frame.names)
                raise InvalidInput(f"{frame.where} must have a value of {shown(name)}, got {got} only")
            X[:, i] = np.nan
            continue
        for row, cell in enumerate(frame.columns[name]):
            value = as_written(p, cell) if frame.text else cell
            missing = (
                i in optional and frames.kind_of(value) == "nothing" and not (isinstance(p, Choice) and p.has(value))
            )
            X[row, i] = np.nan if missing else p.number(value, frame.at(name, row))
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


def a_domain(domain: Any) -> Any:
    """A domain of this library or a foreign one, or InvalidInput."""
    if isinstance(domain, type) or not all(hasattr(domain, name) for name in ("dimension", "encode", "probes")):
        raise InvalidInput(
            f"domain must be a Finite or a Box, or a Space, got {type(domain).__name__}: ms.Finite(points), "
            "ms.Box(bounds) or ms.Space(parameters) makes one"
        )
    return domain
