"""Parts of regret bound balancing: candidates ε̂_i, their bounds R_i, and the radius of the elimination test."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from misspec.errors import number, whole
from misspec.model import Model
from misspec.theory.information import Rounds

# d_min of learnt coefficients, in units of the noise: what a good base loses per √n before anything is proved of it
LEAST = 0.1


def paper_candidates(horizon: int, gain: float) -> list[float]:
    """ε̂_i = 2^{1−i}/√γ for i = 1 … M, M = max(1, ⌈1 + ½ log₂(T/γ²)⌉)."""
    T, gamma = whole("horizon", horizon, at_least=1), number("gain (γ_T)", gain, above=0)
    M = max(1, math.ceil(1 + 0.5 * (math.log2(T) - 2.0 * math.log2(gamma))))
    return [2.0 ** (1 - i) / math.sqrt(gamma) for i in range(1, M + 1)]


def halving_candidates(horizon: int, largest: float) -> list[float]:
    """ε̂_i = ε_max·2^{1−i} for i = 1 … 1 + ⌈½ log₂T⌉, and 0."""
    T, largest = whole("horizon", horizon, at_least=1), number("largest", largest, at_least=0)
    return [*(largest * 2.0**-i for i in range(1 + math.ceil(0.5 * math.log2(T)))), 0.0]


def candidate_bound(model: Model, n: Rounds, gain: float, epsilon: float, delta: float, reward_range: float) -> Rounds:
    """R_i(n) = min{c₁(B√γ + γ)√n + c₂ε̂√γ·n, range·n}, where delta is the base's share of δ."""
    ridge = model.regularization
    spread = model.noise / math.sqrt(ridge) * math.sqrt(2.0 + 2.0 * math.log(1.0 / delta) / gain)
    c1 = 2.0 * math.sqrt(2.0 * ridge + 1.0) * max(1.0, spread)
    c2 = 2.0 * math.sqrt(2.0 + 1.0 / ridge) + 2.0 / math.sqrt(gain)
    grows = c1 * (model.norm_bound * math.sqrt(gain) + gain) * n**0.5 + c2 * epsilon * math.sqrt(gain) * n
    bound: Rounds = np.minimum(grows, reward_range * n)
    return bound


def elimination_spread(noise: float, ranges: list[float], *, varying: bool) -> float:
    """s of the elimination test: σ, or √(σ² + range²/4) where action sets vary, since the best of them does too."""
    return math.sqrt(noise**2 + max(ranges) ** 2 / 4.0) if varying else noise


def elimination_radius(n: Rounds, bases: int, delta: float, spread: float, kind: str) -> Rounds:
    """h(n): bound on how far an average of n rewards strays from its mean, for all n and all bases at once."""
    if kind == "paper":
        return cast(Rounds, 2.2 * spread * np.sqrt(np.log(bases * np.maximum(1.0, np.log(n)) / delta) / n))
    return cast(Rounds, spread * np.sqrt((n + 1.0) * (np.log(n + 1.0) + 2.0 * math.log(bases / delta))) / n)
