"""*Own bands* are about f* itself, whatever the model: a point that was observed n times has an average.

Here are their radii and ranks, and how they are intersected with the model's band.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from misspec.errors import Array, number, whole
from misspec.model import Model

# -- grounding ---------------------------------------------------------------------------------------------------------


def own_radius(noise: float, n: int, rank: int, delta: float) -> float:
    """σ√(2 ln(π²n²·j(j+1)/(3δ))/n) for the j-th point asked, observed n times; holds for all n and j at once."""
    return noise * math.sqrt(2.0 * math.log(math.pi**2 * n**2 * rank * (rank + 1) / (3.0 * delta)) / n)


Key = int | bytes  # of a point: a candidate's index, or coordinates to the bit


@dataclasses.dataclass(slots=True)
class _Own:
    """What is known of one point by itself."""

    rank: int  # j
    x: Array | None
    n: int = 0
    total: float = 0.0
    lower: float = -math.inf
    upper: float = math.inf
    waiting: dict[int, float | None] = dataclasses.field(default_factory=dict)  # query → its result, as asked


class OwnBands:
    """ȳ ± radius for every point that was observed, from its observations in the order asked.

    A key says which observations share a band. A point's rank j is fixed when it is first asked, and its average is
    that of the longest prefix of its queries that is told: so the bands hold whatever order results are told in, and
    whatever is withheld. A dropped query leaves the sequence; the rank that it was given stays spent.

    Points that others chose (by `observe`, or queries of theirs) may be ordered by their results. On a list of N
    candidates each pays for rank N, which holds for any order of any number of calls: N/(N(N + 1)) is what the ranks
    1 … N leave of δ. Elsewhere all that are new in one call pay for the last of them, which holds for one call.

    `lower` and `upper` run over the `size` candidates of a Finite domain, ∓∞ where nothing was observed.
    """

    def __init__(self, noise: float, delta: float, size: int = 0) -> None:
        self.noise = number("noise", noise, at_least=0)
        self.delta = number("delta", delta, above=0, below=1)
        self.lower: Array = np.full(whole("size", size), -np.inf)
        self.upper: Array = np.full(size, np.inf)
        self._known: dict[Key, _Own] = {}
        self._elsewhere = 0

    def __len__(self) -> int:
        return len(self.keys())

    def __repr__(self) -> str:
        return f"OwnBands({len(self)} points observed)"

    def copy(self) -> OwnBands:
        """A copy of them as they are now."""
        twin = copy.copy(self)
        twin.lower, twin.upper, twin._known = self.lower.copy(), self.upper.copy(), {}
        for key, own in self._known.items():
            twin._known[key] = dataclasses.replace(own, waiting=dict(own.waiting))
        return twin

    # -- reading ---------------------------------------------------------------------------------------------

    def keys(self) -> list[Key]:
        """The points observed, in the order of first asking."""
        return [key for key, own in self._known.items() if own.n]

    def points(self) -> Array:
        """Their coordinates in user units, where they were handed in."""
        return np.array([own.x for own in self._known.values() if own.n and own.x is not None])

    def table(self) -> tuple[Array, Array, NDArray[np.intp], Array]:
        """Points, averages, counts and radii."""
        seen = [own for own in self._known.values() if own.n]
        averages = np.array([own.total / own.n for own in seen])
        radii = np.array([0.5 * (own.upper - own.lower) for own in seen])
        return self.points(), averages, np.array([own.n for own in seen], dtype=np.intp), radii

    def at(self, keys: Sequence[Key]) -> tuple[Array, Array]:
        """Lower and upper ends for these keys."""
        none = _Own(0, None)
        found = [self._known.get(key, none) for key in keys]
        return np.array([own.lower for own in found]), np.array([own.upper for own in found])

    # -- writing ---------------------------------------------------------------------------------------------

    def ask(self, key: Key, query: int, x: Array | None = None, *, others: int | None = None) -> None:
        """A query at this point (x: its coordinates) was handed out. others: it is one of others' queries, and their
        call has this many more."""
        if key not in self._known:
            rank = len(self._known) + 1 if others is None else self._last(key, 1 + others)
            self._known[key] = _Own(rank, x)
        self._known[key].waiting[query] = None

    def tell(self, key: Key, y: float, query: int) -> None:
        """Its result."""
        own = self._known[key]
        own.waiting[query] = y
        self._advance(key, own)

    def drop(self, key: Key, query: int) -> None:
        """The query has no result."""
        own = self._known[key]
        del own.waiting[query]
        self._advance(key, own)

    def observe(self, keys: Sequence[Key], y: Sequence[float], points: Sequence[Array] | None = None) -> None:
        """Results from elsewhere, all at once."""
        self._enter(keys, [None] * len(keys) if points is None else points)
        for key, value in zip(keys, y, strict=True):
            self._elsewhere -= 1  # not a query of this policy
            self._known[key].waiting[self._elsewhere] = value
        for key in dict.fromkeys(keys):
            self._advance(key, self._known[key])

    def _enter(self, keys: Sequence[Key], points: Sequence[Array | None]) -> None:
        """Rank points never asked before."""
        new = {key: x for key, x in zip(keys, points, strict=True) if key not in self._known}
        ranks = [self._last(key, len(new)) for key in new]
        for (key, x), rank in zip(new.items(), ranks, strict=True):
            self._known[key] = _Own(rank, x)

    def _last(self, key: Key, new: int) -> int:
        """The rank of a point that others chose: N on a list, else that of the last of the `new` points of a call."""
        return len(self.lower) if isinstance(key, int) and len(self.lower) else len(self._known) + new

    def _advance(self, key: Key, own: _Own) -> None:
        """Count what is told up to the first query that is not."""
        n, waiting = own.n, own.waiting
        while waiting:
            first = next(iter(waiting))
            y = waiting[first]
            if y is None:
                break
            del waiting[first]
            own.total += y
            own.n += 1
        if own.n > n:
            radius = own_radius(self.noise, own.n, own.rank, self.delta)
            own.lower, own.upper = own.total / own.n - radius, own.total / own.n + radius
            if isinstance(key, int):
                self.lower[key], self.upper[key] = own.lower, own.upper


def within_class(
    lower: Array, upper: Array, model: Model, prior: Array, epsilon: float
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """A model's band for f* intersected with what its class allows at all, offset ± (B√k(x,x) + ε).

    prior: k(x,x). Where the two do not meet, the class's interval stands in for the band; the last array says where.
    """
    reach = model.norm_bound * np.sqrt(prior) + epsilon
    low, high = np.maximum(lower, model.offset - reach), np.minimum(upper, model.offset + reach)
    apart = low > high
    if apart.any():
        low, high = np.where(apart, model.offset - reach, low), np.where(apart, model.offset + reach, high)
    return low, high, apart


def grounded_upper(upper: Array, own_lower: Array, own_upper: Array, *, least: Array | None = None) -> Array:
    """The upper end of `ground`. `least`: where `upper` is only a bound, the least that it stands for."""
    return np.where((upper if least is None else least) < own_lower, own_upper, np.minimum(upper, own_upper))


def ground(lower: Array, upper: Array, own_lower: Array, own_upper: Array) -> tuple[Array, Array]:
    """Intersect a band for f* (model's ± width ± ε) with the own bands; where they do not meet, the own band alone."""
    low, high = np.maximum(lower, own_lower), np.minimum(upper, own_upper)
    apart = low > high
    if apart.any():
        low, high = np.where(apart, own_lower, low), np.where(apart, own_upper, high)
    return low, high


def clip(lower: Array, upper: Array, own_lower: Array, own_upper: Array) -> tuple[Array, Array]:
    """The phased policy's grounding: both ends clipped to the own band; never empty, never wider than before."""
    return np.clip(lower, own_lower, own_upper), np.clip(upper, own_lower, own_upper)
