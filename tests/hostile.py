"""What a careless or hostile caller hands in, for fuzzing: every public entry works, or raises an error of the
project's and changes nothing.

A fuzz test is `@fuzz(share)` on a function of drawn values; shares add up to the cases that CI runs (MISSPEC_FUZZ=1).
By default there are a quarter as many; MISSPEC_FUZZ=10 runs ten times as many, with other seeds.
"""

import datetime
import decimal
import fractions
import functools
import math
import os

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from misspec import MisspecError

TIMES = float(os.environ.get("MISSPEC_FUZZ", "0.25"))
REPEATABLE = TIMES <= 1


def cases(share):
    """How many of them there are this time."""
    return max(1, round(share * TIMES))


def fuzz(share, **drawn):
    """Run a test on that many draws of its arguments; it fails, too, if fewer were made."""

    def decorate(test):
        made = 0

        @functools.wraps(test)
        def counted(**values):
            nonlocal made
            made += 1
            test(**values)

        checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
        chosen = settings(
            max_examples=cases(share),
            deadline=None,
            derandomize=REPEATABLE,
            database=None,
            suppress_health_check=checks,
        )
        drawing = chosen(given(**drawn)(counted))

        @functools.wraps(drawing)
        def run(*arguments, **fixtures):
            drawing(*arguments, **fixtures)
            assert made >= cases(share), f"only {made} cases were drawn; widen the strategies or lower the share"

        return run

    return decorate


def attempt(call):
    """What a call gives, or None where it raises an error of the project's; anything else it raises is a defect."""
    try:
        return call()
    except MisspecError as error:
        message = str(error)
        assert message.strip(), "an error without a message"
        assert len(message) < 2000, "an error that floods the terminal"
        return None


class Unfriendly:
    """An object that answers nothing."""

    def __float__(self):
        raise RuntimeError("no number")

    def __array__(self, *_, **__):
        raise RuntimeError("no array")

    def __repr__(self):
        return "unfriendly " * 1000


NUMBERS = (
    0,
    1,
    -1,
    2,
    0.5,
    -0.0,
    1e-300,
    5e-324,
    1e-160,
    1e-9,
    1e9,
    1e160,
    1e200,
    1.7e308,
    -1.7e308,
    math.inf,
    -math.inf,
)
NUMBERS += (
    math.nan,
    10**6,
    10**12,
    10**18,
    10**26,
    10**400,
    -(10**400),
    2**63,
    2**64,
    True,
    False,
    np.float32(0.1),
    np.int8(-1),
    np.uint64(2**63),
)
NUMBERS += (np.float64("nan"), np.bool_(True), decimal.Decimal("0.1"), fractions.Fraction(1, 3), 1j, np.complex128(1))
NUMBERS += (np.datetime64("2020-01-01"), np.timedelta64(1, "s"), np.ma.masked, np.longdouble(1), np.finfo(float).min)
OBJECTS = (
    None,
    "",
    "a",
    "0.1",
    "nan",
    "inf",
    b"1",
    "\0",
    "é" * 300,
    "\x1b[31m",
    [],
    {},
    (),
    set(),
    object(),
    int,
    len,
    Unfriendly(),
)
OBJECTS += (
    datetime.datetime(2020, 1, 1),
    datetime.timedelta(1),
    [None],
    [[]],
    [[[1.0]]],
    {"x": 1.0},
    [{"x": 1.0}],
    iter([1.0]),
)
OBJECTS += (
    np.zeros(0),
    np.zeros((0, 1)),
    np.zeros((1, 0)),
    np.zeros((2, 2, 2)),
    np.array(1.0),
    np.array(["a", "b"]),
    slice(3),
    ...,
)

hostile_numbers = st.one_of(st.sampled_from(NUMBERS), st.floats(), st.integers())
hostile_objects = st.one_of(hostile_numbers, st.sampled_from(OBJECTS))
hostile_words = st.one_of(st.text(max_size=8), hostile_objects)


@st.composite
def hostile_arrays(draw, rows=3, columns=1):
    """Arrays and lists that are nearly what is wanted: of other types, shapes and orders, masked, of odd entries."""
    n, d = draw(st.sampled_from([0, 1, rows])), draw(st.sampled_from([0, 1, columns]))
    shape = draw(st.sampled_from([(n, d), (n,), (d, n), (n, d, 1), ()]))
    base = np.asarray(np.arange(math.prod(shape), dtype=float).reshape(shape) / 7)
    kind = draw(
        st.sampled_from(
            ["float", "list", "masked", "int", "complex", "datetime", "object", "text", "bool", "hole", "frame"]
        )
    )
    if kind == "list":
        return base.tolist()
    if kind == "masked":
        return np.ma.array(base, mask=np.arange(base.size).reshape(shape) % 2)
    if kind == "datetime":
        return base.astype("timedelta64[s]") + np.datetime64("2020-01-01")
    if kind == "text":
        return base.astype(str)
    if kind in ("object", "hole"):
        found = np.array(base, dtype=object)
        if found.size:
            found.flat[draw(st.integers(0, found.size - 1))] = draw(
                hostile_objects if kind == "object" else hostile_numbers
            )
        return found if draw(st.booleans()) else found.tolist()
    if kind == "frame":
        import polars

        return polars.DataFrame({f"x{i}": base.ravel().tolist() for i in range(max(d, 1))})
    return base.astype({"float": float, "int": int, "complex": complex, "bool": bool}[kind])


hostile = st.one_of(hostile_objects, hostile_arrays())


@st.composite
def spoilt(draw, arguments, values=hostile, most=2):
    """Arguments of a call that works, of which one or two are replaced by hostile values."""
    names = draw(st.lists(st.sampled_from(sorted(arguments)), min_size=1, max_size=most, unique=True))
    return {**arguments, **{name: draw(values) for name in names}}


@st.composite
def calls(draw, entries, values=hostile):
    """One of some entries, each a function and arguments with which it works, and what it is called with."""
    name = draw(st.sampled_from(sorted(entries)))
    function, arguments = entries[name]
    return function, draw(spoilt(arguments, values))


def works(entries):
    """Every entry works as it is listed; otherwise fuzzing it would show nothing."""
    for name, (function, arguments) in entries.items():
        assert function(**arguments) is not NotImplemented, name
