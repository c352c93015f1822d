"""Points of a space as people can set them: a few digits of their ranges, while rules hold and shares sum up."""

from __future__ import annotations

import itertools
import math
import sys
from decimal import Decimal
from typing import Any

import numpy as np

from misspec.domains.space import Space
from misspec.errors import Array

DIGITS = 4  # of a number, as a share of its range: what people can set
MOST_DIGITS = 16
MOVED = 8  # numbers of a point that are rounded the other way, at most: 2^8 points are compared


def settable(p: Any, x: float, digits: int = DIGITS) -> float:
    """A number as people can set it: rounded to a few digits of its range, within its bounds."""
    if p.count is not None:
        return x
    return float(min(max(round(x, _places(p, x, digits)) + 0.0, p.low), p.high))


def settable_point(space: Space, x: Array, digits: int = DIGITS) -> tuple[float, ...]:
    """The legal point nearest to x that people can set, of its numbers rounded up or down; where no such point is
    legal, with more digits, and in the end x itself."""
    for finer in range(digits, MOST_DIGITS + 1):
        points = _roundings(space, x, finer)
        for some in (points[:1], points[1:]):  # nearly always the first will do
            legal = space.contains(np.array(some)) if some else np.zeros(1, dtype=bool)
            if legal.any():
                return some[int(legal.argmax())]
    return tuple(float(each) for each in x)


def _places(p: Any, x: float, digits: int) -> int:
    """Digits after the point. On a logarithmic scale they count from the first digit of x, with more where its range
    is narrow."""
    if not p.log:
        return int(digits - 1 - math.floor(math.log10(p.high - p.low)))
    narrow = math.floor(math.log10(max(math.log(p.high) - math.log(p.low), sys.float_info.epsilon)))
    return int(digits - min(narrow, 0) - 1 - math.floor(math.log10(x)))


def _roundings(space: Space, x: Array, digits: int) -> list[tuple[float, ...]]:
    """Points with numbers rounded to the nearest, and then some of them to the other side, by their distance from x."""
    parameters, there = list(space.parameters.values()), space.there(x[None, :])[0]
    largest = [at[int(x[at].argmax())] for _, at in space.groups]  # shares that take what is left of the total
    zero = [i for _, at in space.groups for i in at if x[i] <= 0.0]
    nearest = [settable(p, each, digits) for p, each in zip(parameters, x.tolist(), strict=True)]
    other: dict[int, tuple[float, float]] = {}  # the number on the other side, and how much farther it is, in digits
    for i, p in enumerate(parameters):
        if p.count is None and there[i] and i not in largest and i not in zero:
            places = _places(p, float(x[i]), digits)
            unit = Decimal(1).scaleb(-places)
            side = float(Decimal(repr(nearest[i])) + (unit if nearest[i] < x[i] else -unit))
            side = min(max(side, p.low), p.high)
            other[i] = side, (abs(side - x[i]) - abs(nearest[i] - x[i])) * 10.0**places
    moved = sorted(other, key=lambda i: other[i][1])[:MOVED]
    subsets = [some for count in range(len(moved) + 1) for some in itertools.combinations(moved, count)]
    points = []
    for some in sorted(subsets, key=lambda some: sum(other[i][1] for i in some)):
        point = [other[i][0] if i in some else each for i, each in enumerate(nearest)]
        points.append(tuple(_summed(space, point, largest)))
    return points


def _summed(space: Space, point: list[float], largest: list[int]) -> list[float]:
    """The largest share of each mixture takes the rest, exact in decimal digits."""
    for (mixture, at), i in zip(space.groups, largest, strict=True):
        rest = Decimal(repr(mixture.total)) - sum(Decimal(repr(point[j])) for j in at if j != i)
        point[i] = float(rest)
    return point
