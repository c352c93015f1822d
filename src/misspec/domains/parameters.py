"""Parameters of a space: small frozen values that check, encode and decode themselves.

    value     what a user hands in and gets back: a float, an int, one of the options of a choice
    number    the same as a coordinate of x, in user units; a choice's is its position among the options
    code      what the kernel sees: [0, 1] for numbers, on a logarithmic scale if log; one column per option for a
              choice, 1/√2 at the one that is taken, so that two options lie at distance 1

All arrays hold one entry per point: numbers (n,), codes (n, width). Every parameter has

    kind, width, count     as it is stored; columns of its code; how many values it can have, None for a continuum
    number, value          a value as a coordinate, and back
    wrong, inside          which coordinates nothing measured can have; which are among its values, bounds and grid kept
    settled                coordinates without the rounding that steps allow for: equal values are equal to the bit
    encode, decode         coordinates to codes; codes to the nearest legal coordinates, ties to the first
    from_unit              uniform numbers in [0, 1] to legal coordinates, uniform on its scale
    every, steps, jump     all coordinates, where finitely many; others to try from here; random others, by a symmetric
                           law, of which some may lie outside. Not for a continuum, which is climbed
    expects                what a value must be, in words
    when                   the options of other parameters with which it exists; () where it always does

Results may lie off the grid: 74 with steps of 5, or 85 where a choice has 80 and 100. Their code lies between those of
the neighbours, and queries never do.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec.domains.conditions import When, conditions, native
from misspec.errors import (
    LARGEST,
    MOST,
    NO_NUMBERS,
    Array,
    InvalidInput,
    alike,
    flag,
    listed,
    number,
    real,
    short,
    shown,
    too_large,
)
from misspec.files.frames import is_number

HOT = 1.0 / math.sqrt(2.0)
DIGITS = 12  # after the point, up to which numbers on a grid are rounded to what people write
COARSEST = 0.1  # of a step: rounding beyond which floats cannot hold a grid
ROUNDING = 1e-6  # of a step: numbers this near to the grid are on it


class Columns(NamedTuple):
    """Which columns of the encoding belong to a parameter, start … stop − 1, and whether it is a choice."""

    name: str
    start: int
    stop: int
    choice: bool


class _Parameter:
    """What all parameters share."""

    when: When

    def __repr__(self) -> str:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}  # type: ignore[arg-type]
        fields |= {"when": dict(when)} if (when := fields.pop("when")) else {}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


class Interval(_Parameter):
    """What Float and Int share: a scale on which low … high is 0 … 1, and a grid on it where there are steps."""

    low: float
    high: float
    log: bool
    step: float | None
    width = 1

    def _check(self, kind: str) -> None:
        """Check bounds and steps; the upper bound becomes the last value of the grid."""
        if self.low > self.high:
            raise InvalidInput(f"{kind} needs low ≤ high, got {shown(self.low)} and {shown(self.high)}; swap them")
        if flag("log", self.log) and self.low <= 0:
            raise InvalidInput(
                f"{kind} on a logarithmic scale needs low > 0, got {shown(self.low)}; raise it, or log=False"
            )
        whole = isinstance(self.low, int)
        if self.step is None or (whole and self.step == 1):
            return
        if self.log:
            raise InvalidInput(f"{kind} has steps or a logarithmic scale, not both; leave step= or log= out")
        most = (self.high - self.low) / self.step
        if most >= MOST or self._rounding(0.0) > COARSEST:
            raise InvalidInput(
                f"{kind} has steps of {shown(self.step)}, too small for its size; take larger ones, or leave step= out"
            )
        last = float(self._at(np.floor(np.array([most]) + ROUNDING))[0])
        object.__setattr__(self, "high", int(last) if whole else last)

    def _at(self, places: Array) -> Array:
        """The values at places 0, 1, 2, … of a grid, written as people write them: 0.3, not 0.1 + 0.1 + 0.1."""
        assert self.step is not None
        numbers = self.low + places * self.step
        digits = max(decimals(self.low), decimals(self.step))
        if digits > DIGITS:
            return np.asarray(numbers)
        exact = np.abs(numbers) * 10.0**digits < MOST  # beyond, rounding by decimals is itself rounding
        return np.where(exact, np.round(numbers, digits), numbers)

    def _places(self, numbers: Array) -> Array:
        return np.asarray((numbers - self.low) / (self.step or 1.0))

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
        settled = self.settled(numbers)
        within = (settled >= self.low) & (settled <= self.high)
        return np.asarray(within & ~self.wrong(numbers) & ~self._off(numbers))

    def wrong(self, numbers: Array) -> NDArray[np.bool_]:
        return np.asarray(numbers <= 0.0) if self.log else np.zeros(len(numbers), dtype=bool)

    def _off(self, numbers: Array) -> NDArray[np.bool_]:
        """Which numbers lie between the places of the grid."""
        if self.step is None:
            return np.zeros(len(numbers), dtype=bool)
        places = self._places(numbers)
        return np.asarray(np.abs(places - np.rint(places)) > self._rounding(numbers))

    def _rounding(self, numbers: Array | float) -> Array:
        """Of a step: what floats of this size cannot tell apart is the same."""
        size = np.maximum(np.abs(numbers), max(abs(self.low), abs(self.high)))
        return np.maximum(ROUNDING, 8.0 * np.finfo(np.float64).eps * size / (self.step or 1.0))

    def settled(self, numbers: Array) -> Array:
        if self.step is None:
            return numbers
        return np.where(self._off(numbers), numbers, self._at(np.rint(self._places(numbers))))

    @property
    def count(self) -> int | None:
        if self.low == self.high:
            return 1
        return None if self.step is None else round((self.high - self.low) / self.step) + 1

    def every(self) -> Array:
        return self._at(np.arange(float(self.count or 1))) if self.step is not None else np.array([float(self.low)])

    def decode(self, codes: Array) -> Array:
        near = self._unscaled(codes[:, 0])
        if self.step is None:
            return near
        place = self._places(near)
        below, above = (np.clip(self._at(end), self.low, self.high) for end in (np.floor(place), np.ceil(place)))
        # nearest as the kernel sees it, which on a logarithmic scale is not the nearest number
        further = np.abs(self.encode(above) - codes)[:, 0] < np.abs(self.encode(below) - codes)[:, 0]
        return np.where(further, above, below)

    def from_unit(self, unit: Array) -> Array:
        if self.step is None:
            return self._unscaled(unit)
        low, high = (float(self._scaled(end)) for end in (self.low - 0.5 * self.step, self.high + 0.5 * self.step))
        spread = low + unit * (high - low)
        places = np.floor(self._places(np.exp(spread) if self.log else spread) + 0.5)
        return np.clip(self._at(places), self.low, self.high)

    def steps(self, at: float) -> Array:
        """±1, ±2, ±4, … steps and the ends."""
        last = (self.count or 1) - 1
        sizes = 2.0 ** np.arange(max(1, last.bit_length()))
        here = float(np.rint(self._places(np.array([at])))[0])
        found = np.concatenate([here - sizes, here + sizes, [0.0, float(last)]])
        found = np.unique(found[(found >= 0) & (found <= last) & (found != here)])
        return self._at(found)

    def jump(self, numbers: Array, rng: np.random.Generator) -> Array:
        """By one step up to the whole range, all orders of magnitude alike."""
        sizes = np.floor((self.count or 1.0) ** rng.random(len(numbers)))
        places = np.rint(self._places(numbers))
        return self._at(places + np.where(rng.random(len(numbers)) < 0.5, -sizes, sizes))

    def number(self, value: Any, where: str) -> float:
        """A finite number, above 0 on a logarithmic scale; it may lie off the grid."""
        found = real(value)
        if not abs(found) <= LARGEST or self.wrong(np.array([found])).any():
            raise InvalidInput(f"{where} must be {self.expects}{too_large(found)}, got {shown(value)}")
        return float(self.settled(np.array([found]))[0])

    @property
    def expects(self) -> str:
        kind = "a whole number" if isinstance(self.low, int) else "a number"
        if self.step is not None and self.step != 1:
            return f"{kind}, {self.low!r} plus a multiple of {self.step!r}"
        return f"{kind} above 0 (its scale is logarithmic)" if self.log else kind


@dataclasses.dataclass(frozen=True, repr=False)
class Float(Interval):
    """A number in [low, high]; log: searched on a logarithmic scale; step: low, low + step, … only; when: it exists
    only with these options of other parameters, as in when={"booster": "linear"}. low == high is one value."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    when: When = ()
    kind: ClassVar[str] = "Float"

    def __post_init__(self) -> None:
        for end in ("low", "high"):
            object.__setattr__(self, end, number(f"{end} of a Float", getattr(self, end)) + 0.0)  # -0.0 is 0.0
        if self.step is not None:
            object.__setattr__(self, "step", number("step of a Float", self.step, above=0))
        object.__setattr__(self, "when", conditions(self.when))
        self._check("a Float")

    def value(self, number: float) -> float:
        return float(number)


@dataclasses.dataclass(frozen=True, repr=False)
class Int(Interval):
    """A whole number, low … high, both included; log: searched on a logarithmic scale; step: low, low + step, … only;
    when: as for a Float. low == high is one value."""

    low: int
    high: int
    log: bool = False
    step: int = 1
    when: When = ()
    kind: ClassVar[str] = "Int"

    def __post_init__(self) -> None:
        for name in ("low", "high", "step"):
            given = getattr(self, name)
            if not isinstance(given, int | np.integer) or isinstance(given, NO_NUMBERS) or abs(int(given)) > MOST:
                raise InvalidInput(f"{name} of an Int must be a whole number, at most 2^53 in size, got {shown(given)}")
            object.__setattr__(self, name, int(given))
        if self.step < 1:
            raise InvalidInput(f"step of an Int must be a whole number ≥ 1, got {self.step}")
        object.__setattr__(self, "when", conditions(self.when))
        self._check("an Int")

    @property
    def count(self) -> int:
        return (self.high - self.low) // self.step + 1

    def _at(self, places: Array) -> Array:
        return np.asarray(self.low + places * self.step)

    def value(self, number: float) -> int:
        return int(number)

    def wrong(self, numbers: Array) -> NDArray[np.bool_]:
        return np.asarray((numbers <= 0.0) & self.log | (numbers != np.floor(numbers)))

    def _off(self, numbers: Array) -> NDArray[np.bool_]:
        return np.asarray(np.mod(numbers - self.low, self.step) != 0)

    def settled(self, numbers: Array) -> Array:
        return numbers


def decimals(value: float) -> int:
    """Digits after the point that a number is written with."""
    return max(0, -int(Decimal(repr(float(value))).as_tuple().exponent))  # a finite number's is a number


Option = str | int | float | bool | None


@dataclasses.dataclass(frozen=True, repr=False)
class Choice(_Parameter):
    """One of a list of options: text, numbers, True, False or None, which come back as they are. True is not 1.
    when: as for a Float."""

    options: tuple[Option, ...]
    when: When = ()
    kind: ClassVar[str] = "Choice"
    _places: Mapping[Any, int] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given: Any = self.options
        options = tuple(native(option) for option in listed("options of a Choice, as in Choice(['a', 'b']),", given))
        if not options:
            raise InvalidInput("a Choice needs at least one option, got none")
        for option in options:
            known = isinstance(option, str | int) or option is None
            if not known and not (isinstance(option, float) and math.isfinite(option)):
                raise InvalidInput(
                    f"options of a Choice must be text, finite numbers, True, False or None, got {shown(option)}; "
                    "name it, and look it up by its name"
                )
        places: dict[Any, int] = {}
        for position, option in enumerate(options):
            first = places.setdefault(_key(option), position)
            if first != position:
                raise InvalidInput(
                    f"options of a Choice must differ, got {shown(option)} at positions {first} and {position}; "
                    "drop one"
                )
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "when", conditions(self.when))
        object.__setattr__(self, "_places", places)

    @property
    def count(self) -> int:
        return len(self.options)

    width = count

    def number(self, value: Any, where: str) -> float:
        found = native(value)
        if not self.has(found) and (between := self.between(found)) is not None:
            return between
        if not self.has(found):
            words = [option for option in self.options if isinstance(option, str)]
            raise InvalidInput(f"{where} must be {self.expects}, got {shown(value)}{alike(found, words)}")
        return float(self._places[_key(found)])

    @property
    def numeric(self) -> bool:
        """Whether all options are numbers."""
        return all(isinstance(each, int | float) and not isinstance(each, bool) for each in self.options)

    def between(self, value: Any) -> float | None:
        """The coordinate of a number between two options that follow each other; None for all else."""
        given, options = real(value), [float(str(each)) for each in self.options] if self.numeric else []
        for i, (a, b) in enumerate(itertools.pairwise(options)):
            if min(a, b) < given < max(a, b):
                return i + (given - a) / (b - a)
        return None

    def has(self, value: Any) -> bool:
        """Whether it is one of the options."""
        try:
            return _key(native(value)) in self._places
        except TypeError:  # a list, say
            return False

    def written(self, text: str) -> list[int]:
        """Positions of the options that a text can mean: as they are written, or as a spreadsheet writes them, 1 for
        1.0, TRUE for True."""
        texts = [str(option) for option in self.options]
        if text in texts:
            return [i for i, option in enumerate(texts) if option == text]
        if text.lower() in ("true", "false"):
            return [i for i, option in enumerate(texts) if option.lower() == text.lower()]
        if not is_number(text):
            return []
        return [i for i, option in enumerate(texts) if is_number(option) and float(option) == float(text)]

    def value(self, number: float) -> Option:
        share, place = math.modf(number)
        here = self.options[int(place)]
        if not share:
            return here
        between = here + share * (self.options[int(place) + 1] - here)  # type: ignore[operator]  # numbers
        return float(f"{between:.{DIGITS}g}")

    def wrong(self, numbers: Array) -> NDArray[np.bool_]:
        between = (numbers != np.floor(numbers)) & (not self.numeric)
        return np.asarray(between | (numbers < 0) | (numbers > len(self.options) - 1))

    def inside(self, numbers: Array) -> NDArray[np.bool_]:
        return np.asarray(~self.wrong(numbers) & (numbers == np.floor(numbers)))

    def encode(self, numbers: Array) -> Array:
        codes, rows, place = np.zeros((len(numbers), len(self.options))), np.arange(len(numbers)), np.floor(numbers)
        codes[rows, np.ceil(numbers).astype(np.intp)] = HOT * (numbers - place)
        codes[rows, place.astype(np.intp)] = HOT * (1.0 - (numbers - place))
        return codes

    def decode(self, codes: Array) -> Array:
        return np.asarray(codes.argmax(axis=1), dtype=np.float64)

    def from_unit(self, unit: Array) -> Array:
        return np.asarray(np.minimum(np.floor(unit * len(self.options)), len(self.options) - 1.0))

    def every(self) -> Array:
        return np.arange(float(len(self.options)))

    def settled(self, numbers: Array) -> Array:
        return numbers

    def steps(self, at: float) -> Array:
        return np.delete(self.every(), int(at))

    def jump(self, numbers: Array, rng: np.random.Generator) -> Array:
        return self.from_unit(rng.random(len(numbers)))

    @property
    def expects(self) -> str:
        some = ", ".join(shown(option) for option in self.options[:8])
        return f"one of {short(some)}{', …' if len(self.options) > 8 else ''}"


Parameter = Float | Int | Choice
KINDS: dict[str, Any] = {cls.kind: cls for cls in (Float, Int, Choice)}


def encode_parameter(parameter: Any) -> dict[str, Any]:
    """As JSON."""
    fields = {f.name: getattr(parameter, f.name) for f in dataclasses.fields(parameter) if f.init}
    when = [[name, list(some)] for name, some in fields.pop("when", ())]
    plain = {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items()}
    return {"kind": parameter.kind, **plain, **({"when": when} if when else {})}


def decode_parameter(stored: Mapping[str, Any]) -> Any:
    return KINDS[stored["kind"]](**{name: value for name, value in stored.items() if name != "kind"})


def code_columns(parameters: Mapping[str, Any]) -> tuple[Columns, ...]:
    """Where each parameter's code stands in the encoding."""
    stops = itertools.accumulate(p.width for p in parameters.values())
    pairs = zip(parameters.items(), stops, strict=True)
    return tuple(Columns(name, stop - p.width, stop, p.kind == Choice.kind) for (name, p), stop in pairs)


def _key(option: Any) -> tuple[bool, Any]:
    """True and 1 are equal to Python, and two options here; 1 and 1.0 are one."""
    return isinstance(option, bool), option
