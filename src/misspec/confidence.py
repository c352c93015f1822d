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
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from misspec.errors import Array, InvalidInput, number, whole
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


MULTIPLIERS = {"lemma1": lemma1, "mixture": mixture}


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
                f"delta; got {width!r}"
            )
        return width
    return number("width", width, above=0)


def multiplier(width: Width, model: Model, log_det: float, delta: float) -> float:
    """The factor on σ_{t−1}(x) of the named width; a number c is c·model.scale and comes without a guarantee."""
    if isinstance(width, str):
        return MULTIPLIERS[width](model, log_det, delta)
    if callable(width):
        return number("what the width function returns", width(model, log_det, delta), at_least=0)
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


ENLARGEMENTS = ("exact", "paper")


# -- grounding ---------------------------------------------------------------------------------------------------------


def own_radius(noise: float, n: int, place: int, delta: float) -> float:
    """σ√(2 ln(π²n²·j(j+1)/(3δ))/n) for the j-th point visited, observed n times; holds for all n and j at once."""
    return noise * math.sqrt(2.0 * math.log(math.pi**2 * n**2 * place * (place + 1) / (3.0 * delta)) / n)


class OwnBands:
    """ȳ ± radius for every point that was observed, from all its observations.

    A key says which observations share a band: a candidate's index, or a point's coordinates to the bit. `lower` and
    `upper` run over the `size` candidates of a Finite domain, ∓∞ where nothing was observed.
    """

    def __init__(self, noise: float, delta: float, size: int = 0) -> None:
        self.noise = number("noise", noise, at_least=0)
        self.delta = number("delta", delta, above=0, below=1)
        self.lower: Array = np.full(whole("size", size), -np.inf)
        self.upper: Array = np.full(size, np.inf)
        self._seen: dict[int | bytes, tuple[int, float, int, float, float]] = {}  # n, sum, place, lower, upper
        self._points: dict[int | bytes, Array] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def __repr__(self) -> str:
        return f"OwnBands({len(self)} points observed)"

    def keys(self) -> list[int | bytes]:
        """The points observed, in the order of first visits."""
        return list(self._seen)

    def copy(self) -> OwnBands:
        """As they are now."""
        twin = copy.copy(self)
        twin.lower, twin.upper = self.lower.copy(), self.upper.copy()
        twin._seen, twin._points = dict(self._seen), dict(self._points)
        return twin

    def points(self) -> Array:
        """Their coordinates in user units, as far as they were told."""
        return np.array(list(self._points.values()))

    def table(self) -> tuple[Array, Array, NDArray[np.intp], Array]:
        """Points, averages, counts and radii, in the order of first visits."""
        seen = self._seen.values()
        counts = np.array([each[0] for each in seen], dtype=np.intp)
        averages = np.array([each[1] / each[0] for each in seen])
        return self.points(), averages, counts, np.array([0.5 * (each[4] - each[3]) for each in seen])

    def tell(self, key: int | bytes, y: float, x: Array | None = None) -> None:
        """Count one observation; x is the point's coordinates."""
        if x is not None and key not in self._points:
            self._points[key] = x
        n, total, place, _, _ = self._seen.get(key, (0, 0.0, len(self._seen) + 1, 0.0, 0.0))
        n, total = n + 1, total + y
        radius = own_radius(self.noise, n, place, self.delta)
        low, high = total / n - radius, total / n + radius
        self._seen[key] = (n, total, place, low, high)
        if isinstance(key, int):
            self.lower[key], self.upper[key] = low, high

    def at(self, keys: Sequence[int | bytes]) -> tuple[Array, Array]:
        """Lower and upper ends for these keys."""
        none = (0, 0.0, 0, -np.inf, np.inf)
        ends = np.array([self._seen.get(key, none)[3:] for key in keys]).reshape(len(keys), 2)
        return ends[:, 0], ends[:, 1]


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
