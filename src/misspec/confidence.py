"""Confidence widths: each with a name, a formula, a reference and a coverage test.

    σ, B, λ, δ   model.noise, model.norm_bound, model.regularization, the part of delta that this width may spend
    L            log det(I + K_{t−1}/λ) of the told observations
    ζ(x)         weights of the posterior mean at x
    t            told observations + 1

A *multiplier* is a factor on the posterior standard deviation. A model's band is about the best member f̃ of the
class; an *enlargement* makes it hold although the observations are those of f*; adding ε turns it into a band for f*.
*Own bands* are about f* itself, whatever the model: a point that was observed n times has an average.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from misspec.errors import Array, InvalidInput, number, short, shown, whole
from misspec.model import Model

# -- adaptive designs: multipliers, uniform over t and x ---------------------------------------------------------------


def lemma1(model: Model, log_det: float, delta: float) -> float:
    """(σ/√λ)·√(2 ln(1/δ) + L) + B.

    Lemma 1 of Bogunovic & Krause (2021), after Chowdhury & Gopalan (2017) and Durand et al. (2018).
    """
    spread = model.noise / math.sqrt(model.regularization)
    return spread * math.sqrt(2.0 * math.log(1.0 / delta) + log_det) + model.norm_bound


def mixture(model: Model, log_det: float, delta: float) -> float:
    """√((σ²/λ)(2 ln(1/δ) + L) + B²), never above `lemma1`.

    Flynn & Reeb, Tighter confidence bounds for sequential kernel regression.
    """
    spread = model.noise**2 / model.regularization
    return math.sqrt(spread * (2.0 * math.log(1.0 / delta) + log_det) + model.norm_bound**2)


def improved(model: Model, log_det: float, delta: float) -> float:
    """B + (σ/√min(λ, 1))·√(2(L/2 + 1 + ln(1/δ))), L/2 the realised information or any bound on it; above `lemma1`.

    Chowdhury & Gopalan (2017), Theorem 2, which has λ = 1 + 2/T and γ_{t−1} for L/2. A ridge below 1 is theirs for k/λ.
    """
    spread = model.noise / math.sqrt(min(model.regularization, 1.0))
    return spread * math.sqrt(log_det + 2.0 + 2.0 * math.log(1.0 / delta)) + model.norm_bound


MULTIPLIERS = {"lemma1": lemma1, "mixture": mixture, "improved": improved}


Width = str | float | Callable[[Model, float, float], float]  # a name, a number, or multiplier(model, L, δ)


def check_width(width: Width, also: Sequence[str] = ()) -> Width:
    """A known name, a positive number (a multiplier in units of `model.scale`, without guarantee), or a function."""
    if callable(width):
        return width
    if isinstance(width, str):
        names = [*MULTIPLIERS, *also]
        if width not in names:
            raise InvalidInput(
                f"width must be one of {', '.join(names)}, a positive number, or a function of model, log_det and "
                f"delta; got {shown(width)}"
            )
        return width
    return number("width", width, above=0)


def multiplier(width: Width, model: Model, log_det: float, delta: float) -> float:
    """The factor on σ_{t−1}(x) of the named width; a number c is c·model.scale and comes without a guarantee."""
    if isinstance(width, str):
        return MULTIPLIERS[width](model, log_det, delta)
    if callable(width):
        try:
            found = width(model, log_det, delta)
        except Exception as error:
            raise InvalidInput(f"the width function failed: {type(error).__name__}: {short(error)}") from error
        return number("what the width function returns", found, at_least=0)
    return width * model.scale


# -- fixed designs: per point ------------------------------------------------------------------------------------------


def nonadaptive(
    model: Model, variance: Array, weights_norm2: Array, *, points: int, episodes: int, delta: float
) -> Array:
    """B·√(σ²(x) − λ‖ζ(x)‖₂²) + σ‖ζ(x)‖₂·√(2 ln(2|D_e|E/δ)), for |D_e| points and E episodes at once.

    Only for points chosen without looking at the same batch's noise. After Vakili et al. (2021), Theorem 1.
    """
    bias = np.sqrt(np.maximum(variance - model.regularization * weights_norm2**2, 0.0))
    union = math.sqrt(2.0 * math.log(2.0 * points * episodes / delta))
    return model.norm_bound * bias + model.noise * union * weights_norm2


# -- misspecification: enlargements, added to any of them --------------------------------------------------------------


def paper_slope(epsilon: float, t: int, model: Model) -> float:
    """ε√t/√λ, the paper's enlargement as a factor on σ_{t−1}(x); t = told observations + 1.

    Algorithm 1, line 4; Lemma 2 needs only √(t−1).
    """
    return epsilon * math.sqrt(t / model.regularization)


def enlargement_exact(epsilon: float, weights_norm1: Array) -> Array:
    """ε‖ζ(x)‖₁: the largest bias at x that any misfit within ±ε can cause. Never above the paper's."""
    return epsilon * weights_norm1


def enlargement_norm2(epsilon: float, t: int, weights_norm2: Array) -> Array:
    """ε√t‖ζ(x)‖₂, t = told observations + 1: between the exact one and the paper's, by Cauchy and Schwarz and since
    λ‖ζ‖₂² ≤ σ². Its cost does not depend on t."""
    return epsilon * math.sqrt(t) * weights_norm2


ENLARGEMENTS = ("exact", "norm2", "paper")


# -- grounding ---------------------------------------------------------------------------------------------------------


def own_radius(noise: float, n: int, place: int, delta: float) -> float:
    """σ√(2 ln(π²n²·j(j+1)/(3δ))/n) for the j-th point asked, observed n times; holds for all n and j at once."""
    return noise * math.sqrt(2.0 * math.log(math.pi**2 * n**2 * place * (place + 1) / (3.0 * delta)) / n)


Key = int | bytes  # of a point: a candidate's index, or coordinates to the bit


@dataclasses.dataclass(slots=True)
class _Own:
    """What is known of one point by itself."""

    place: int
    x: Array | None
    n: int = 0
    total: float = 0.0
    lower: float = -math.inf
    upper: float = math.inf
    waiting: dict[int, float | None] = dataclasses.field(default_factory=dict)  # query → its result, as asked


class OwnBands:
    """ȳ ± radius for every point that was observed, from its observations in the order asked.

    A key says which observations share a band. A point's place j is fixed when it is first asked, and its average is
    that of the longest prefix of its queries that is told: so the bands hold whatever order results are told in, and
    whatever is withheld. A dropped query leaves the sequence; the place that it was given stays spent. All points that
    are new in one call of `observe` are charged the place of the last of them, which holds for any order of its rows.

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

    def ask(self, key: Key, query: int, x: Array | None = None) -> None:
        """A query at this point (x: its coordinates) was handed out."""
        own = self._known.get(key)
        if own is None:
            own = self._known[key] = _Own(len(self._known) + 1, x)
        own.waiting[query] = None

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
            self._elsewhere -= 1  # a query that nobody asked
            self._known[key].waiting[self._elsewhere] = value
        for key in dict.fromkeys(keys):
            self._advance(key, self._known[key])

    def _enter(self, keys: Sequence[Key], points: Sequence[Array | None]) -> None:
        """The place of points never asked before: that of the last of them."""
        new = {key: x for key, x in zip(keys, points, strict=True) if key not in self._known}
        last = len(self._known) + len(new)
        for key, x in new.items():
            self._known[key] = _Own(last, x)

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
            radius = own_radius(self.noise, own.n, own.place, self.delta)
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
