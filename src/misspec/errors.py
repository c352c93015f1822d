"""Every exception that misspec raises on purpose. A message says what was expected, what came, and what to do."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

LARGEST = 1e150  # largest accepted magnitude: its square must not overflow
SMALLEST = 1e-150  # of one that must be above 0: so is the square of its inverse
MOST = 2**53  # of a whole number: it is a float too, to the last digit
MOST_SEED = 2**256  # more than any source of chance gives
MOST_ROUNDS = 10_000_000  # for which something is computed or kept one by one
MOST_AT_ONCE = 100_000  # of queries, and of whatever else is made one by one in a call
LISTED = 20  # names of which a message says that they are known
SHOWN = 200  # characters of a value that a message quotes
TEXT = (str, bytes, bytearray)
# though float() takes some of them
NO_NUMBERS = (*TEXT, memoryview, bool, np.bool_, np.complexfloating, np.datetime64, np.timedelta64, np.ma.MaskedArray)
KINDS = {"c": "complex numbers", "M": "dates", "m": "durations", "V": "records"}  # of arrays that are no numbers
REPAIR = "repair it, or leave it out"


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


class FileChanged(InvalidInput):
    """A file no longer holds what it held when it was read; nothing was written."""


class StorageError(MisspecError):
    """A file that cannot be read (damaged, of another kind, or written by a newer version), or not written."""


@contextlib.contextmanager
def extra(name: str, user: str) -> Iterator[None]:
    """Imports that an extra brings: where one is missing, the error names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        said = f"{user} needs {str(error.name).partition('.')[0]}: pip install 'misspec[{name}]'"
        raise ModuleNotFoundError(said, name=error.name) from error


def nearest(name: Any, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" where a known name is near, and the list of known ones."""
    names = sorted(known)
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return f"{alike(name, names)} (known: {short(', '.join(names[:LISTED]))}{more})"


def alike(name: Any, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" where a known name is near."""
    lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6) if isinstance(name, str) else []
    return f"; did you mean {shown(lower[close[0]])}?" if close else ""


def shown(value: Any) -> str:
    """A value as messages quote it: its repr, unless that is long or fails."""
    try:
        return short(repr(value))
    except Exception:  # an integer of thousands of digits, or a repr that fails
        return f"something of type {type(value).__name__}"


def short(what: Any, most: int = SHOWN) -> str:
    """A text, or what another error says, cut where it would flood a terminal."""
    text = re.sub(r"\s*\n\s*", " ", str(what))
    return text if len(text) <= most else f"{text[:most]}…"


def number(
    name: str, value: Any, *, above: float | None = None, at_least: float | None = None, below: float | None = None
) -> float:
    """A finite real number in the given range, or InvalidInput that names the argument."""
    result = float("nan") if getattr(value, "ndim", 0) else real(value)
    if not (
        abs(result) <= LARGEST
        and (above is None or result > above)
        and (above != 0 or result >= SMALLEST)
        and (at_least is None or result >= at_least)
        and (below is None or result < below)
    ):
        bounds = ((">", above), ("≥", at_least), ("<", below))
        wanted = " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)
        limit = f", at least {SMALLEST:g}" if above == 0 and 0 < result < SMALLEST else too_large(result)
        raise InvalidInput(f"{name} must be a finite number{' ' + wanted if wanted else ''}{limit}, got {shown(value)}")
    return result


def real(value: Any, *, truth: bool = False) -> float:
    """A number as a float; NaN for text and for all else that is not a number. truth: True and False are 1 and 0."""
    plain = value[()] if type(value) is np.ndarray and not value.ndim else value
    if isinstance(plain, NO_NUMBERS) and not (truth and isinstance(plain, bool | np.bool_)):
        return float("nan")
    try:
        return float(plain)
    except Exception:  # whatever the conversion of a foreign object raises
        return float("nan")


def too_large(value: float) -> str:
    """For messages: the limit on finite numbers, where one is beyond it."""
    return f", at most {LARGEST:g} in size" if LARGEST < abs(value) < float("inf") else ""


def whole(name: str, value: Any, *, at_least: int = 0, at_most: int = MOST) -> int:
    """An integer in the given range, or InvalidInput that names the argument."""
    integer = isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)
    if not integer or not at_least <= value <= at_most:
        limit = f" and ≤ {at_most:,}" if integer and value > at_most else ""
        raise InvalidInput(f"{name} must be a whole number ≥ {at_least}{limit}, got {shown(value)}")
    return int(value)


def seeded(value: Any) -> int:
    """The seed of random choices, or InvalidInput."""
    return whole("seed", value, at_most=MOST_SEED)


def flag(name: str, value: Any) -> bool:
    """True or False, or InvalidInput that names the argument."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidInput(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """One of these words, or InvalidInput that names the argument."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidInput(f"{name} must be one of {', '.join(allowed)}, got {shown(value)}")
    return str(value)


def instance(name: str, value: Any, kinds: Any, hint: str = "") -> Any:
    """A value of one of these classes, or InvalidInput that names the argument; hint: how one is made."""
    if not isinstance(value, kinds):
        wanted = [kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]
        article = "an" if wanted[0][0] in "AEIO" else "a"
        listed = " or ".join([*filter(None, [", ".join(wanted[:-1])]), wanted[-1]])
        raise InvalidInput(f"{name} must be {article} {listed}, got {type(value).__name__}{hint and '; ' + hint}")
    return value


def callback(name: str, value: Any) -> Any:
    """A function or None, or InvalidInput that names the argument."""
    if value is not None and not callable(value):
        raise InvalidInput(f"{name} must be a function, or None, got {shown(value)}")
    return value


def listed(name: str, value: Any) -> list[Any]:
    """What a list or anything like it holds, or InvalidInput that names the argument."""
    with contextlib.suppress(Exception):  # whatever a foreign object raises
        if not isinstance(value, str | bytes | Mapping):
            return list(value)
    raise InvalidInput(f"{name} must be a list, got {shown(value)}")


def matrix(
    name: str, value: ArrayLike, *, columns: int | None = None, rows_at_least: int = 0, remedy: str = REPAIR
) -> Array:
    """A finite (n, d) array of floats, or InvalidInput that says which shape or row is wrong, and, for an entry, the
    remedy."""
    result = floats(f"{name} must be an (n, d) array of numbers", value)
    if result.ndim != 2:
        hint = "reshape(-1, 1) makes n points of one dimension" if result.ndim == 1 else "one row per point"
        raise InvalidInput(f"{name} must have shape (n, d), got {result.shape}; {hint}")
    if result.shape[0] < rows_at_least or result.shape[1] == 0:
        raise InvalidInput(f"{name} must hold at least {max(rows_at_least, 1)} point(s), got shape {result.shape}")
    if columns is not None and result.shape[1] != columns:
        raise InvalidInput(f"{name} must have {columns} column(s), one per dimension, got shape {result.shape}")
    finite(name, result, remedy)
    # a copy in C order, in which -0.0 is 0.0: equal points are then equal to the bit, even after a round trip
    return np.ascontiguousarray(result) + 0.0


def vector(name: str, value: ArrayLike, *, length: int | None = None, remedy: str = REPAIR) -> Array:
    """A finite 1-d array of floats (a single number is a vector of length one); True is 1, and False 0."""
    result = np.atleast_1d(floats(f"{name} must be numbers", value))
    if result.ndim != 1 or (length is not None and result.size != length):
        some = "a list of numbers" if length is None else f"{length} numbers in a list"
        hint = "; ravel() makes a column flat" if result.ndim == 2 else ""
        raise InvalidInput(f"{name} must be {'one number' if length == 1 else some}, got shape {result.shape}{hint}")
    finite(name, result, remedy)
    return result.copy()


def array(wanted: str, value: Any) -> NDArray[Any]:
    """An array of numbers or text; InvalidInput for what is masked, complex, or a date. wanted: as messages begin."""
    if type(value) is np.ndarray and value.dtype.kind in "fiu":  # the usual case, by a short cut
        return value
    try:
        plain = value.to_numpy() if hasattr(value, "to_numpy") else value  # a pandas or polars frame
        if isinstance(plain, list | tuple) and any(isinstance(each, np.ma.MaskedArray) for each in plain):
            plain = np.ma.stack(plain)
        found = plain if isinstance(plain, np.ma.MaskedArray) else np.asarray(plain)
        entries = found.flat if found.dtype.kind == "O" else ()
        kind = next((KINDS[k] for k in (found.dtype.kind, *map(_kind, entries)) if k in KINDS), "")
        hidden: Any = np.argwhere(np.ma.getmaskarray(found)) if isinstance(found, np.ma.MaskedArray) else ()
        if len(hidden):
            kind = f"an entry that is masked, at position {_place(hidden[0])}"
    except MemoryError:
        raise
    except Exception as error:  # a foreign array may raise anything
        raise InvalidInput(f"{wanted}, got {shown(value)}: {short(error)}") from None
    if kind:
        raise InvalidInput(f"{wanted}, got {kind}; make numbers of them, or leave them out")
    return np.asarray(found)


def floats(wanted: str, value: Any) -> Array:
    """An array of floats; InvalidInput where that would make numbers of what is none, or of what is masked."""
    if type(value) is np.ndarray and value.dtype == np.float64:  # the usual case, by a short cut
        return value
    found = array(wanted, value)
    entries = [value] if isinstance(value, TEXT) else found.flat if found.dtype.kind in "OSUT" else ()
    text = next((each for each in entries if isinstance(each, TEXT)), None)
    if text is not None:  # [:] makes plain text of NumPy's
        raise InvalidInput(f"{wanted}, got {shown(text[:])}, which is text; make a number of it, as float() does")
    try:
        return np.asarray(found.astype(np.float64, copy=False))
    except MemoryError:
        raise
    except Exception as error:  # a cell of a foreign type
        raise InvalidInput(f"{wanted}, got {shown(value)}: {short(error)}") from None


def _kind(entry: Any) -> str:
    """What kind of array an entry would make."""
    if isinstance(entry, np.ma.MaskedArray):
        return "V"
    return entry.dtype.kind if isinstance(entry, np.generic) else "c" if isinstance(entry, complex) else ""


def _place(position: Any) -> str:
    """How messages name a position in an array."""
    return str(position[0]) if len(position) == 1 else str(tuple(int(i) for i in position))


def finite(name: str, values: Array, remedy: str) -> None:
    """InvalidInput that names the first entry that is NaN, infinite, or so large that its square is."""
    if not (np.abs(values) <= LARGEST).all():
        position = np.argwhere(~(np.abs(values) <= LARGEST))[0]
        found = values[tuple(position)]
        wanted = too_large(found).removeprefix(", ") or "finite"
        raise InvalidInput(f"{name} must be {wanted}, got {found} at position {_place(position)}; {remedy}")
