"""Every exception that misspec raises on purpose. A message says what was expected, what came, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


class MisspecError(Exception):
    """Base of all errors of this library."""


class InvalidInput(MisspecError, ValueError):
    """An argument that cannot be used; nothing was changed."""


class AwaitingResults(MisspecError):
    """The policy has handed out all that it can until results are told."""


class HorizonReached(MisspecError):
    """The policy was made for a number of evaluations and has used them."""


class NumericalError(MisspecError, ArithmeticError):
    """Rounding has made a quantity meaningless, usually because a kernel is not positive semidefinite."""


class StorageError(MisspecError):
    """A file that cannot be read (damaged, of another kind, or written by a newer version), or not written."""


def nearest(name: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" where a known name is near, and the list of known ones."""
    names = sorted(known)
    lower = {each.lower(): each for each in names}
    close = difflib.get_close_matches(str(name).lower(), lower, n=1, cutoff=0.6)
    hint = f"; did you mean {lower[close[0]]!r}?" if close else ""
    return f"{hint} (known: {', '.join(names)})"


def number(
    name: str, value: Any, *, above: float | None = None, at_least: float | None = None, below: float | None = None
) -> float:
    """A finite real number in the given range, or InvalidInput that names the argument."""
    wanted = " and ".join(
        f"{sign} {bound:g}" for sign, bound in ((">", above), ("≥", at_least), ("<", below)) if bound is not None
    )
    try:
        result = float(value)
    except (TypeError, ValueError):
        result = float("nan")
    if isinstance(value, bool | np.bool_):
        result = float("nan")
    if (
        not np.isfinite(result)
        or (above is not None and result <= above)
        or (at_least is not None and result < at_least)
        or (below is not None and result >= below)
    ):
        raise InvalidInput(f"{name} must be a finite number{' ' + wanted if wanted else ''}, got {value!r}")
    return result


def whole(name: str, value: Any, *, at_least: int = 0) -> int:
    """An integer of at least the given size, or InvalidInput that names the argument."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < at_least:
        raise InvalidInput(f"{name} must be a whole number ≥ {at_least}, got {value!r}")
    return int(value)


def flag(name: str, value: Any) -> bool:
    """True or False, or InvalidInput that names the argument."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidInput(f"{name} must be True or False, got {value!r}")
    return bool(value)


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """One of these words, or InvalidInput that names the argument."""
    if value not in allowed:
        raise InvalidInput(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    return str(value)


def matrix(name: str, value: ArrayLike, *, columns: int | None = None, rows_at_least: int = 0) -> Array:
    """A finite (n, d) array of floats, or InvalidInput that says which shape or row is wrong."""
    if hasattr(value, "to_numpy"):  # a pandas or polars frame
        value = value.to_numpy()
    try:
        result = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must be an (n, d) array of numbers: {error}") from None
    if result.ndim != 2:
        remedy = "reshape(-1, 1) makes n points of one dimension" if result.ndim == 1 else "one row per point"
        raise InvalidInput(f"{name} must have shape (n, d), got {result.shape}; {remedy}")
    if result.shape[0] < rows_at_least or result.shape[1] == 0:
        raise InvalidInput(f"{name} must hold at least {max(rows_at_least, 1)} point(s), got shape {result.shape}")
    if columns is not None and result.shape[1] != columns:
        raise InvalidInput(f"{name} must have {columns} column(s), one per dimension, got shape {result.shape}")
    finite(name, result)
    # a copy in C order, in which -0.0 is 0.0: equal points are then equal to the bit, even after a round trip
    return np.ascontiguousarray(result) + 0.0


def vector(name: str, value: ArrayLike, *, length: int | None = None) -> Array:
    """A finite 1-d array of floats (a single number is a vector of length one)."""
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    try:
        result = np.atleast_1d(np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must be numbers, got {value!r}: {error}") from None
    if result.ndim != 1 or (length is not None and result.size != length):
        wanted = (
            "a list of numbers" if length is None else "one number" if length == 1 else f"{length} numbers in a list"
        )
        hint = "; ravel() makes a column flat" if result.ndim == 2 else ""
        raise InvalidInput(f"{name} must be {wanted}, got shape {result.shape}{hint}")
    finite(name, result)
    return result.copy()


def finite(name: str, values: Array) -> None:
    """InvalidInput that names the first entry that is NaN or infinite."""
    if not np.isfinite(values).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        where = str(place[0]) if len(place) == 1 else str(place)
        raise InvalidInput(
            f"{name} must be finite, got {values[place]} at position {where}; repair it, or leave it out "
            "(policy.drop(query) for an evaluation that failed)"
        )
