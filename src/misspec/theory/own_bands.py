"""*Own bands*: intervals for f* at observed points, from each point's own average and independent of the model.

Their radii and ranks, and how they are intersected with the model's band.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec.encoding import kept, resume
from misspec.errors import Array, number, whole
from misspec.model import Model


def own_radius(noise: float, n: int, rank: int, delta: float) -> float:
    """σ√(2 ln(π²n²·j(j+1)/(3δ))/n) for the j-th point asked, observed n times; valid for all n and j at once."""
    return noise * math.sqrt(2.0 * math.log(math.pi**2 * n**2 * rank * (rank + 1) / (3.0 * delta)) / n)


def weighted_radius(noise: float, mass: float, rank: int, delta: float) -> float:
    """σ√((n + 1)(2 ln(j(j+1)/δ) + ln(1 + n)))/n, n = Σ_s σ²/σ_s²: of an average weighted by these, where each noise σ_s
    was known before its result; by a normal mixture, valid for all n and j at once."""
    log = 2.0 * math.log(rank * (rank + 1) / delta) + math.log1p(mass)
    return noise * math.sqrt((mass + 1.0) * log) / mass


Key = int | bytes  # identifies a point: a candidate's index, or its coordinates to the bit


@dataclasses.dataclass(slots=True)
class _Own:
    """One point's own observations."""

    rank: int  # j
    x: Array | None
    n: int = 0
    mass: float = 0.0  # Σ of precisions: n, unless results have noises of their own
    total: float = 0.0  # Σ of results, each times its precision
    weighted: bool = False  # whether the first result has a noise of its own
    left_out: int = 0  # results that are not in the average
    lower: float = -math.inf
    upper: float = math.inf
    # query → result, with its precision if it has a noise of its own; None: pending. In the order asked
    uncounted: dict[int, tuple[float, float | None] | None] = dataclasses.field(default_factory=dict)

    def radius(self, noise: float, delta: float) -> float:
        by = (self.mass, self.rank, delta)
        return weighted_radius(noise, *by) if self.weighted else own_radius(noise, self.n, self.rank, delta)


class OwnBands:
    """ȳ ± radius for every observed point, from its observations in the order asked.

    Observations with the same key share a band. A point's rank j is fixed when it is first asked, and its average is
    that of the longest told prefix of its queries: so the bands hold in whatever order results are told, and whichever
    are withheld. A dropped query leaves the sequence; its rank stays spent.

    Points that others chose (by `observe`, or queries of theirs) may be ordered by their results. On a list of N
    candidates each pays for rank N, which is valid for any order and number of calls: N bands at rank N spend
    N/(N(N + 1)) of δ, which is what the ranks 1 … N leave. Elsewhere all new points of a call pay for the last of
    them, which is valid for one call.

    Where the first result of a point has a noise of its own, the average is weighted (`weighted_radius`). If the first
    has none, later results that have one are left out of the average: a band that changes its formula by what it has
    seen would spend δ twice.

    `lower` and `upper` cover the `size` candidates of a Finite domain, ∓∞ where nothing was observed.
    """

    def __init__(self, noise: float, delta: float, size: int = 0) -> None:
        self.noise = number("noise", noise, at_least=0)
        self.delta = number("delta", delta, above=0, below=1)
        self.lower: Array = np.full(whole("size", size), -np.inf)
        self.upper: Array = np.full(size, np.inf)
        self._known: dict[Key, _Own] = {}
        self._ranks = 0  # that were given
        self._elsewhere = 0

    def __len__(self) -> int:
        return len(self.keys())

    def __repr__(self) -> str:
        return f"OwnBands({len(self)} points observed)"

    def copy(self) -> OwnBands:
        twin = copy.copy(self)
        twin.lower, twin.upper, twin._known = self.lower.copy(), self.upper.copy(), {}
        for key, own in self._known.items():
            twin._known[key] = dataclasses.replace(own, uncounted=dict(own.uncounted))
        return twin

    def forget(self) -> None:
        """Drop the bands of points without a row in a list that were told once and are not pending: one that comes back
        has another rank, and begins again. A band that is dropped is never wrong."""
        self._known = {
            key: own for key, own in self._known.items() if isinstance(key, int) or own.uncounted or own.n > 1
        }

    def snapshot(self) -> Any:
        return kept(self)

    def resume(self, snapshot: Any) -> None:
        resume(self, snapshot, _Own)

    def keys(self) -> list[Key]:
        """Keys of the observed points, in the order of first asking."""
        return [key for key, own in self._known.items() if own.n]

    def points(self) -> Array:
        """Their coordinates in user units, where they were handed in."""
        return np.array([own.x for own in self._known.values() if own.n and own.x is not None])

    def table(self, delta: float | None = None) -> tuple[Array, Array, NDArray[np.intp], Array]:
        """Points, averages, counts and radii; delta: instead of its own."""
        seen = [own for own in self._known.values() if own.n]
        averages = np.array([own.total / own.mass for own in seen])
        radii = np.array([own.radius(self.noise, self.delta if delta is None else delta) for own in seen])
        return self.points(), averages, np.array([own.n for own in seen], dtype=np.intp), radii

    def count(self, key: Key) -> int:
        """Results at a point."""
        own = self._known.get(key)
        return 0 if own is None else own.n + own.left_out + sum(y is not None for y in own.uncounted.values())

    def at(self, keys: Sequence[Key]) -> tuple[Array, Array]:
        """Lower and upper ends for these keys."""
        none = _Own(0, None)
        points = [self._known.get(key, none) for key in keys]
        return np.array([own.lower for own in points]), np.array([own.upper for own in points])

    def ask(self, key: Key, query: int, x: Array | None = None, *, others: int | None = None) -> None:
        """Enter a query at this point (x: its coordinates). others: None for a query of this policy; else the query
        is someone else's, and this many more come with it in one call."""
        if key not in self._known:
            rank = self._ranks + 1 if others is None else self._last(key, 1 + others)
            self._known[key] = _Own(rank, x)
            self._ranks += 1
        self._known[key].uncounted[query] = None

    def tell(self, key: Key, y: float, query: int, precision: float | None = None) -> None:
        """Enter a query's result; precision: σ²/σ_s², where it has a noise of its own."""
        self._known[key].uncounted[query] = y, precision
        self._advance(key, self._known[key])

    def drop(self, key: Key, query: int) -> None:
        """Remove a query that will have no result."""
        del self._known[key].uncounted[query]
        self._advance(key, self._known[key])

    def observe(
        self,
        keys: Sequence[Key],
        y: Sequence[float],
        points: Sequence[Array] | None = None,
        precision: Sequence[float | None] | None = None,
    ) -> None:
        """Enter results from elsewhere, in one call."""
        none = [None] * len(keys)
        new = {
            key: x for key, x in zip(keys, none if points is None else points, strict=True) if key not in self._known
        }
        ranks = [self._last(key, len(new)) for key in new]
        self._known |= {key: _Own(rank, x) for (key, x), rank in zip(new.items(), ranks, strict=True)}
        self._ranks += len(new)
        for key, value, by in zip(keys, y, precision or none, strict=True):
            self._elsewhere -= 1  # negative: not the number of a query of this policy
            self._known[key].uncounted[self._elsewhere] = value, by
        for key in dict.fromkeys(keys):
            self._advance(key, self._known[key])

    def _last(self, key: Key, new: int) -> int:
        """The rank of a point that others chose: N on a list, else that of the last of the call's `new` points."""
        return len(self.lower) if isinstance(key, int) and len(self.lower) else self._ranks + new

    def _advance(self, key: Key, own: _Own) -> None:
        """Count the results told up to the first query that is pending."""
        n, uncounted = own.n, own.uncounted
        while uncounted:
            first = next(iter(uncounted))
            result = uncounted[first]
            if result is None:
                break
            del uncounted[first]
            y, by = result
            if not own.n:
                own.weighted = by is not None
            if by is not None and not own.weighted:
                own.left_out += 1
                continue
            by = 1.0 if by is None else by
            own.total += by * y
            own.mass += by
            own.n += 1
        if own.n > n:
            radius = own.radius(self.noise, self.delta)
            own.lower, own.upper = own.total / own.mass - radius, own.total / own.mass + radius
            if isinstance(key, int):
                self.lower[key], self.upper[key] = own.lower, own.upper


def within_class(lower: Array, upper: Array, model: Model, prior: Array, epsilon: float = 0.0) -> tuple[Array, Array]:
    """A model's band for f* intersected with the class's interval, offset ± (B√k(x,x) + ε), which is the result where
    the two do not meet. prior: k(x,x)."""
    reach = model.norm_bound * np.sqrt(prior) + epsilon
    return ground(lower, upper, model.offset - reach, model.offset + reach)


def grounded_upper(upper: Array, own_lower: Array, own_upper: Array, *, least: Array | None = None) -> Array:
    """The upper end of `ground`. `least`: a lower bound on the upper end, where `upper` is only an upper bound."""
    return np.where((upper if least is None else least) < own_lower, own_upper, np.minimum(upper, own_upper))


def ground(lower: Array, upper: Array, own_lower: Array, own_upper: Array) -> tuple[Array, Array]:
    """Intersect a band for f* (model's ± width ± ε) with the own bands; where they do not meet, the own band alone."""
    low, high = np.maximum(lower, own_lower), np.minimum(upper, own_upper)
    apart = low > high
    if apart.any():
        low, high = np.where(apart, own_lower, low), np.where(apart, own_upper, high)
    return low, high


def clip(lower: Array, upper: Array, own_lower: Array, own_upper: Array) -> tuple[Array, Array]:
    """The phased policy's grounding: clip both ends to the own band; never empty, never wider than before."""
    return np.clip(lower, own_lower, own_upper), np.clip(upper, own_lower, own_upper)
