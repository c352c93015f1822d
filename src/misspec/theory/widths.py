"""Confidence widths: each with a name, a formula, a reference and a coverage test.

    σ, B, λ, δ   model.noise, model.norm_bound, model.regularization, this width's share of delta
    L            log det(I + K_{t−1}/λ) of the told observations
    ζ(x)         weights of the posterior mean at x
    t            told observations + 1

A *multiplier* is a factor on the posterior standard deviation. A model's band is about the best member f̃ of the
class; an *enlargement* makes it valid for observations of f* instead; adding ε turns it into a band for f*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from misspec.errors import Array, InvalidInput, number, short, shown
from misspec.model import Model

# -- adaptive designs: multipliers, uniform over t and x ---------------------------------------------------------------


def lemma1(model: Model, log_det: Any, delta: float) -> Any:
    """(σ/√λ)·√(2 ln(1/δ) + L) + B; of an array L, as regret bounds have it (2γ), an array.

    Lemma 1 of Bogunovic & Krause (2021), after Chowdhury & Gopalan (2017) and Durand et al. (2018).
    """
    spread = model.noise / math.sqrt(model.regularization)
    return spread * np.sqrt(2.0 * math.log(1.0 / delta) + log_det) + model.norm_bound


def mixture(model: Model, log_det: float, delta: float) -> float:
    """√((σ²/λ)(2 ln(1/δ) + L) + B²), never above `lemma1`.

    Flynn & Reeb, Tighter confidence bounds for sequential kernel regression.
    """
    spread = model.noise**2 / model.regularization
    return math.sqrt(spread * (2.0 * math.log(1.0 / delta) + log_det) + model.norm_bound**2)


def improved(model: Model, log_det: Any, delta: float) -> Any:
    """B + (σ/√min(λ, 1))·√(2(L/2 + 1 + ln(1/δ))), L/2 the realised information or a bound on it; above `lemma1`.

    Chowdhury & Gopalan (2017), Theorem 2, with λ = 1 + 2/T and γ_{t−1} for L/2; applied to k/λ where the ridge is
    below 1.
    """
    spread = model.noise / math.sqrt(min(model.regularization, 1.0))
    return spread * np.sqrt(log_det + 2.0 + 2.0 * math.log(1.0 / delta)) + model.norm_bound


MULTIPLIERS = {"lemma1": lemma1, "mixture": mixture, "improved": improved}
Width = str | float | Callable[[Model, float, float], float]  # a name, a number, or multiplier(model, L, δ)


def check_width(width: Width, also: Sequence[str] = ()) -> Width:
    """The width if it is a known name, a positive number or a function; InvalidInput otherwise."""
    names = [*MULTIPLIERS, *also]
    if isinstance(width, str) and width not in names:
        raise InvalidInput(
            f"width must be one of {', '.join(names)}, a positive number, or a function of model, log_det and delta; "
            f"got {shown(width)}"
        )
    return width if callable(width) or isinstance(width, str) else number("width", width, above=0)


def multiplier(width: Width, model: Model, log_det: float, delta: float) -> float:
    """The factor on σ_{t−1}(x) of a width; a number c means c·model.scale and guarantees nothing."""
    if isinstance(width, str):
        return float(MULTIPLIERS[width](model, log_det, delta))
    if callable(width):
        try:
            factor = width(model, log_det, delta)
        except Exception as error:
            raise InvalidInput(f"the width function failed: {type(error).__name__}: {short(error)}") from error
        return number("what the width function returns", factor, at_least=0)
    return width * model.scale


# -- fixed designs: per point ------------------------------------------------------------------------------------------


def nonadaptive(
    model: Model, variance: Array, weights_norm2: Array, *, points: int, episodes: int, delta: float
) -> Array:
    """B·√(σ²(x) − λ‖ζ(x)‖₂²) + σ‖ζ(x)‖₂·√(2 ln(2|D_e|E/δ)), for |D_e| points and E episodes at once.

    Only for points chosen before any result of the batch is seen. After Vakili et al. (2021), Theorem 1.
    """
    bias = np.sqrt(np.maximum(variance - model.regularization * weights_norm2**2, 0.0))
    union = math.sqrt(2.0 * math.log(2.0 * points * episodes / delta))
    return model.norm_bound * bias + model.noise * union * weights_norm2


# -- misspecification: enlargements, added to any width ----------------------------------------------------------------


def paper_slope(epsilon: float, t: float, model: Model) -> float:
    """ε√t/√λ, the paper's enlargement as a factor on σ_{t−1}(x); t = told observations + 1.

    Algorithm 1, line 4; Lemma 2 needs only √(t−1).
    """
    return epsilon * math.sqrt(t / model.regularization)


def enlargement_exact(epsilon: float, weights_norm1: Array) -> Array:
    """ε‖ζ(x)‖₁: the largest bias at x that any misfit within ±ε can cause. Never above the paper's."""
    return epsilon * weights_norm1


def enlargement_norm2(epsilon: float, t: float, weights_norm2: Array) -> Array:
    """ε√t‖ζ(x)‖₂, t = told observations + 1: between the exact one and the paper's, by Cauchy–Schwarz and λ‖ζ‖₂² ≤ σ².

    Its cost does not depend on t.
    """
    return epsilon * math.sqrt(t) * weights_norm2


ENLARGEMENTS = ("exact", "norm2", "paper")
