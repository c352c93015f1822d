"""What a posterior says of some points: at a glance, and with its slopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from misspec.errors import Array, NumericalError

SUSPICIOUS = 1e-3  # a variance this far below zero is not rounding

Bias = Callable[[float, bool], Array]  # of ε, and whether exactly


class Glance(NamedTuple):
    """Mean and variance at some points, and, for as long as nothing is told, ‖ζ‖₁ and ‖ζ‖₂ there.

    residual   what a budgeted dictionary misses of the variance, and bias(ε, exactly) what that and a misfit of ε can
               do to the mean, `fixed.py`; None without a budget, where nothing is missed
    """

    mean: Array
    variance: Array
    norm1: Callable[[], Array]
    norm2: Callable[[], Array]
    residual: Array | None = None
    bias: Bias | None = None


class Local(NamedTuple):
    """What the posterior is at some points, and how it changes there: shapes (n,) and (n, d).

    norm       ‖ζ‖₁ or ‖ζ‖₂; with a budget, the bias for a given ε
    residual   what the dictionary misses of the variance
    """

    mean: Array
    variance: Array
    norm: Array
    dmean: Array
    dvariance: Array
    dnorm: Array
    residual: Array
    dresidual: Array

    def end(self, factor: float) -> tuple[Array, Array]:
        """μ + factor·σ and its gradient."""
        return _end(self.mean, self.dmean, factor, self.variance, self.dvariance)

    def end_within(self, factor: float, missed: float) -> tuple[Array, Array]:
        """μ + factor·σ_Z + missed·√res and its gradient, σ_Z² the variance that the dictionary sees."""
        seen = _end(self.mean, self.dmean, factor, self.variance - self.residual, self.dvariance - self.dresidual)
        return _end(*seen, missed, self.residual, self.dresidual)


def _end(mean: Array, dmean: Array, factor: float, variance: Array, dvariance: Array) -> tuple[Array, Array]:
    std = np.sqrt(np.maximum(variance, 1e-24))
    return mean + factor * std, dmean + (0.5 * factor / std)[:, None] * dvariance


def nonnegative(values: Array) -> Array:
    """Variances with rounding below zero clipped; NumericalError for more than rounding."""
    smallest = float(values.min(initial=0.0))
    if smallest < -SUSPICIOUS:
        raise NumericalError(
            f"a variance came out as {smallest:.3g}: more than rounding, so the kernel is not positive semidefinite; "
            "choose another kernel"
        )
    return np.maximum(values, 0.0) if smallest < 0.0 else values
