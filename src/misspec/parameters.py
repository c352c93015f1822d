"""Parameters of a space: small frozen values that check, encode and decode themselves.

    value     what a user hands in and gets back: a float, an int, one of the options of a choice
    number    the same as a coordinate of x, in user units; a choice's is its position among the options
    code      what the kernel sees: [0, 1] for numbers, on a logarithmic scale if log; one column per option for a
              choice, 1/√2 at the one that is taken, so that two options lie at distance 1

All arrays hold one entry per point: numbers (n,), codes (n, width).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from misspec.errors import Array, InvalidInput, flag, nearest, number

HOT = 1.0 / math.sqrt(2.0)
EXACT = 2**53  # integers beyond are not floats


class Columns(NamedTuple):
    """Which columns of the encoding belong to a parameter, start … stop − 1, and whether it is a choice."""

    name: str
    start: int
    stop: int
    choice: bool


class Parameter(Protocol):
    """What a space asks of its parameters."""

    kind: ClassVar[str]  # as it is stored

    @property
    def width(self) -> int:
        """Columns of its code."""

    @property
    def count(self) -> int | None:
        """Values that it can have; None: a continuum."""

    def number(self, value: Any, where: str) -> float:
        """A value as a coordinate; InvalidInput if it cannot be one."""

    def value(self, number: float) -> Any:
        """A coordinate as a native value."""

    def wrong(self, numbers: Array) -> NDArray[np.bool_]:
        """Which coordinates can be none of its values, whatever the bounds."""

    def inside(self, numbers: Array) -> NDArray[np.bool_]:
        """Which coordinates are among its values."""

    def encode(self, numbers: Array) -> Array: ...

    def decode(self, codes: Array) -> Array:
        """The nearest legal numbers, ties to the first."""

    def from_unit(self, unit: Array) -> Array:
        """Uniform numbers in [0, 1] to legal ones, uniform on its scale."""

    def steps(self, at: float) -> Array:
        """Other legal numbers to try from here; none for a continuum, which is climbed."""

    def jump(self, numbers: Array, rng: np.random.Generator) -> Array:
        """Random other numbers, by a symmetric law; some may lie outside. Not for a continuum."""

    @property
    def expects(self) -> str:
        """What a value must be, in words."""


class _Interval:
    """What Float and Int share: a scale on which low … high is 0 … 1."""

    low: float
    high: float
    log: bool
    width = 1

    def _bounds(self, kind: str) -> None:
        if self.low > self.high:
            raise InvalidInput(f"{kind} needs low ≤ high, got {self.low!r} and {self.high!r}; swap them")
        if flag("log", self.log) and self.low <= 0:
            raise InvalidInput(f"{kind} on a logarithmic scale needs low > 0, got {self.low!r}; raise it, or log=False")
        if not math.isfinite(float(self.high) - float(self.low)):
            raise InvalidInput(f"{kind} has bounds so far apart that high - low overflows; rescale it, or log=True")

    def _scaled(self, numbers: Array | float) -> Array:
        return np.log(numbers) if self.log else np.asarray(numbers, dtype=np.float64)

    def encode(self, numbers: Array) -> Array:
        if self.low == self.high:  # one value: the same for all, whatever is handed in from elsewhere
            return np.zeros((len(numbers), 1))
        low, high = self._scaled(self.low), self._scaled(self.high)
        return np.asarray((self._scaled(numbers) - low) / (high - low))[:, None]

    def _unscaled(self, unit: Array) -> Array:
        """Inside the bounds and at the ends to the bit."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        numbers = low + unit * (high - low)
        numbers = np.clip(np.exp(numbers) if self.log else numbers, self.low, self.high)
        return np.where(unit <= 0.0, float(self.low), np.where(unit >= 1.0, float(self.high), numbers))

    def inside(self, numbers: Array) -> NDArray[np.bool_]:
        return np.asarray((numbers >= self.low) & (numbers <= self.high)) & ~self.wrong(numbers)

    def wrong(self, numbers: Array) -> NDArray[np.bool_]:
        return np.asarray(numbers <= 0.0) if self.log else np.zeros(len(numbers), dtype=bool)

    def _finite(self, value: Any, where: str) -> float:
        """A finite number, and above 0 on a logarithmic scale."""
        try:
            found = math.nan if isinstance(value, str | bytes | bool | np.bool_) else float(value)
        except (TypeError, ValueError, OverflowError):
            found = math.nan
        if not math.isfinite(found) or self.wrong(np.array([found])).any():
            raise InvalidInput(f"{where} must be {self.expects}, got {value!r}")
        return found

    @property
    def expects(self) -> str:
        kind = "a whole number" if isinstance(self.low, int) else "a number"
        return f"{kind} above 0 (its scale is logarithmic)" if self.log else kind


@dataclasses.dataclass(frozen=True)
class Float(_Interval):
    """A number in [low, high]; log: searched on a logarithmic scale. low == high is one value."""

    low: float
    high: float
    log: bool = False
    kind: ClassVar[str] = "Float"

    def __post_init__(self) -> None:
        for end in ("low", "high"):
            object.__setattr__(self, end, number(f"{end} of a Float", getattr(self, end)) + 0.0)  # -0.0 is 0.0
        self._bounds("a Float")

    @property
    def count(self) -> int | None:
        return 1 if self.low == self.high else None

    def number(self, value: Any, where: str) -> float:
        return self._finite(value, where)

    def value(self, number: float) -> float:
        return float(number)

    def decode(self, codes: Array) -> Array:
        return self._unscaled(codes[:, 0])

    def from_unit(self, unit: Array) -> Array:
        return self._unscaled(unit)

    def steps(self, at: float) -> Array:  # noqa: ARG002  # climbed
        return np.zeros(0)

    def jump(self, numbers: Array, rng: np.random.Generator) -> Array:  # noqa: ARG002  # climbed
        return numbers


@dataclasses.dataclass(frozen=True)
class Int(_Interval):
    """A whole number, low … high, both included; log: searched on a logarithmic scale. low == high is one value."""

    low: int
    high: int
    log: bool = False
    kind: ClassVar[str] = "Int"

    def __post_init__(self) -> None:
        for end in ("low", "high"):
            given = getattr(self, end)
            if isinstance(given, bool | np.bool_) or not isinstance(given, int | np.integer) or abs(int(given)) > EXACT:
                raise InvalidInput(f"{end} of an Int must be a whole number, at most 2^53 in size, got {given!r}")
            object.__setattr__(self, end, int(given))
        self._bounds("an Int")

    @property
    def count(self) -> int | None:
        return self.high - self.low + 1

    def number(self, value: Any, where: str) -> float:
        found = self._finite(value, where)
        if found != math.floor(found):
            raise InvalidInput(f"{where} must be {self.expects}, got {value!r}")
        return found

    def value(self, number: float) -> int:
        return int(number)

    def wrong(self, numbers: Array) -> NDArray[np.bool_]:
        return np.asarray(super().wrong(numbers) | (numbers != np.floor(numbers)))

    def decode(self, codes: Array) -> Array:
        near = self._unscaled(codes[:, 0])
        below, above = np.clip(np.floor(near), self.low, self.high), np.clip(np.ceil(near), self.low, self.high)
        # nearest as the kernel sees it, which on a logarithmic scale is not the nearest number
        further = np.abs(self.encode(above) - codes)[:, 0] < np.abs(self.encode(below) - codes)[:, 0]
        return np.where(further, above, below)

    def from_unit(self, unit: Array) -> Array:
        low, high = (float(self._scaled(end)) for end in (self.low - 0.5, self.high + 0.5))
        spread = low + unit * (high - low)
        numbers = np.floor((np.exp(spread) if self.log else spread) + 0.5)
        return np.clip(numbers, self.low, self.high)

    def steps(self, at: float) -> Array:
        """±1, ±2, ±4, … and the ends."""
        sizes = 2.0 ** np.arange(max(1, (self.high - self.low).bit_length()))
        found = np.concatenate([at - sizes, at + sizes, [self.low, self.high]])
        found = np.unique(found[(found >= self.low) & (found <= self.high)])
        return np.asarray(found[found != at])

    def jump(self, numbers: Array, rng: np.random.Generator) -> Array:
        """By 1 up to the whole range, all orders of magnitude alike."""
        sizes = np.floor((self.high - self.low + 1.0) ** rng.random(len(numbers)))
        return np.asarray(numbers + np.where(rng.random(len(numbers)) < 0.5, -sizes, sizes))


Option = str | int | float | bool | None


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of a list of options: text, numbers, True, False or None, which come back as they are. True is not 1."""

    options: tuple[Option, ...]
    kind: ClassVar[str] = "Choice"
    _places: Mapping[Any, int] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given: Any = self.options
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise InvalidInput(f"options of a Choice must be a list, as in Choice(['a', 'b']), got {given!r}")
        options = tuple(native(option) for option in given)
        if not options:
            raise InvalidInput("a Choice needs at least one option, got none")
        for option in options:
            known = isinstance(option, str | int) or option is None
            if not known and not (isinstance(option, float) and math.isfinite(option)):
                raise InvalidInput(
                    f"options of a Choice must be text, finite numbers, True, False or None, got {option!r}; "
                    "name it, and look it up by its name"
                )
        places: dict[Any, int] = {}
        for position, option in enumerate(options):
            first = places.setdefault(_key(option), position)
            if first != position:
                raise InvalidInput(
                    f"options of a Choice must differ, got {option!r} at positions {first} and {position}; drop one"
                )
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "_places", places)

    @property
    def width(self) -> int:
        return len(self.options)

    @property
    def count(self) -> int | None:
        return len(self.options)

    def number(self, value: Any, where: str) -> float:
        found = native(value)
        if not self.has(found):
            raise InvalidInput(f"{where} must be {self.expects}, got {value!r}{self._hint(found)}")
        return float(self._places[_key(found)])

    def has(self, value: Any) -> bool:
        """Whether it is one of the options."""
        try:
            return _key(native(value)) in self._places
        except TypeError:  # a list, say
            return False

    def written(self, text: str) -> Option:
        """The option that is written like this, where it is read from a file of text; else the text itself."""
        alike = [option for option in self.options if str(option) == text]
        return alike[0] if len(alike) == 1 else text

    def value(self, number: float) -> Option:
        return self.options[int(number)]

    def wrong(self, numbers: Array) -> NDArray[np.bool_]:
        return np.asarray((numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= len(self.options)))

    def inside(self, numbers: Array) -> NDArray[np.bool_]:
        return ~self.wrong(numbers)

    def encode(self, numbers: Array) -> Array:
        codes = np.zeros((len(numbers), len(self.options)))
        codes[np.arange(len(numbers)), numbers.astype(np.intp)] = HOT
        return codes

    def decode(self, codes: Array) -> Array:
        return np.asarray(codes.argmax(axis=1), dtype=np.float64)

    def from_unit(self, unit: Array) -> Array:
        return np.asarray(np.minimum(np.floor(unit * len(self.options)), len(self.options) - 1.0))

    def steps(self, at: float) -> Array:
        every = np.arange(float(len(self.options)))
        return np.asarray(every[every != at])

    def jump(self, numbers: Array, rng: np.random.Generator) -> Array:
        return self.from_unit(rng.random(len(numbers)))

    @property
    def expects(self) -> str:
        shown = ", ".join(repr(option) for option in self.options[:8])
        return f"one of {shown}{', …' if len(self.options) > 8 else ''}"

    def _hint(self, value: Any) -> str:
        words = [option for option in self.options if isinstance(option, str)]
        if not isinstance(value, str) or not words:
            return ""
        return nearest(value, words).partition(" (known")[0]


KINDS: dict[str, Any] = {cls.kind: cls for cls in (Float, Int, Choice)}


def encode_parameter(parameter: Any) -> dict[str, Any]:
    """As JSON."""
    fields = {f.name: getattr(parameter, f.name) for f in dataclasses.fields(parameter) if f.init}
    return {"kind": parameter.kind, **{name: list(v) if isinstance(v, tuple) else v for name, v in fields.items()}}


def decode_parameter(stored: Mapping[str, Any]) -> Any:
    return KINDS[stored["kind"]](**{name: value for name, value in stored.items() if name != "kind"})


def columns_of(parameters: Mapping[str, Any]) -> tuple[Columns, ...]:
    """Where each parameter's code stands in the encoding."""
    ends = np.cumsum([0, *(parameter.width for parameter in parameters.values())]).tolist()
    pairs: Sequence[tuple[str, Any]] = list(parameters.items())
    return tuple(Columns(name, ends[i], ends[i + 1], p.kind == Choice.kind) for i, (name, p) in enumerate(pairs))


def native(value: Any) -> Any:
    """A scalar of NumPy as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _key(option: Any) -> tuple[bool, Any]:
    """True and 1 are equal to Python, and two options here; 1 and 1.0 are one."""
    return isinstance(option, bool), option
