"""Results that the others do not predict: typing errors, other units, evaluations that went wrong."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from misspec import kernels
from misspec.errors import Array
from misspec.model import Model

FAR = 5.0  # standard deviations: a right model has one result in two million so far off
MOST = 1000  # results up to which each is left out exactly; beyond, one among them hardly matters


class Prediction(NamedTuple):
    """What the others predict of a result: mean and standard deviation, noise included; and the result."""

    mean: float
    std: float
    y: float

    @property
    def score(self) -> float:
        """How far off it is, in standard deviations."""
        return abs(self.y - self.mean) / self.std


def leave_one_out(model: Model, encoded: Array, y: Array) -> tuple[Array, Array]:
    """Mean and variance of each result given all others: with Q = (K + λI)⁻¹ they predict y − (Q(y − offset))/Q_ss
    with a variance of 1/Q_ss − λ beside the noise, in units of scale² (of B², where that is larger)."""
    K = kernels.cross(model.kernel, encoded, encoded)
    Q = np.linalg.inv(K + model.regularization * np.eye(len(y)))
    unknown = np.maximum(1.0 / np.diag(Q) - model.regularization, 0.0)
    size = model.scale if model.fitted else max(model.scale, model.norm_bound)
    return y - (Q @ (y - model.offset)) / np.diag(Q), size**2 * unknown + model.noise**2


def predictions(model: Model, encoded: Array, y: Array, mean: Array, variance: Array) -> dict[int, Prediction]:
    """Of each result that is far off what the others predict, by its position. mean, variance: of the posterior at the
    results, for those that are too many."""
    if len(y) <= MOST:
        mean, variance = leave_one_out(model, encoded, y)
    else:
        variance = max(model.scale, model.norm_bound) ** 2 * variance + model.noise**2
    found = [Prediction(*each) for each in zip(mean.tolist(), np.sqrt(variance).tolist(), y.tolist(), strict=True)]
    return {i: each for i, each in enumerate(found) if each.score > FAR}
