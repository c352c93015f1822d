"""Results that the others do not predict: typing errors, other units, evaluations that went wrong."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from misspec import kernels
from misspec.errors import Array
from misspec.model import Model

FAR = 5.0  # standard deviations: a right model has one result in two million so far off
MOST = 1000  # results from which each is predicted: of more, those nearest to it
LOOKED_AT = 5  # results of more than MOST that are looked at, those that are farthest from the posterior
MOST_NAMED = 5  # results: where more are far off, it is the model that is wrong


class Prediction(NamedTuple):
    """The prediction of a result by the others, mean and standard deviation with its noise; and the result itself."""

    mean: float
    std: float
    y: float
    factor: float = 1.0  # that brings it to the others, where several look like another unit

    @property
    def score(self) -> float:
        """How far off it is, in standard deviations."""
        return abs(self.y - self.mean) / self.std


def leave_one_out(model: Model, encoded: Array, y: Array, noise: Array | None = None) -> tuple[Array, Array]:
    """Mean and variance of each result given all others: with Q = (K + λI)⁻¹ they predict y − (Q(y − offset))/Q_ss
    with a variance of 1/Q_ss − λ beside the noise, in units of scale² (of B², where that is larger). noise: own ones,
    NaN for none; where σ_s stands for σ, λσ_s²/σ² stands for λ."""
    K = kernels.cross(model.kernel, encoded, encoded)
    by = 1.0 if noise is None else model.precision(noise, len(y))
    ridge = model.regularization / by * np.ones(len(y))
    Q = np.linalg.inv(K + np.diag(ridge))
    unknown = np.maximum(1.0 / np.diag(Q) - ridge, 0.0)
    size = model.scale if model.fitted else max(model.scale, model.norm_bound)
    return y - (Q @ (y - model.offset)) / np.diag(Q), size**2 * unknown + model.noise**2 / by


def missed_predictions(
    model: Model, encoded: Array, y: Array, surprise: Array, noise: Array | None = None
) -> dict[int, Prediction]:
    """Of each result that is far off what the others predict, by its position. One that is named is left out while the
    next is looked for. surprise: how far each is from the posterior, to look at the worst of very many."""
    named: dict[int, Prediction] = {}
    while len(named) < MOST_NAMED:
        left = np.setdiff1d(np.arange(len(y)), list(named))
        if len(left) <= MOST:
            parts = [(left, left)] if len(left) > 1 else []
        else:
            worst = left[np.argsort(-surprise[left], kind="stable")[:LOOKED_AT]]
            away = [((encoded[left] - encoded[i]) ** 2).sum(axis=1) for i in worst]
            parts = [(left[np.argsort(far, kind="stable")[:MOST]], worst[[k]]) for k, far in enumerate(away)]
        found: dict[int, Prediction] = {}
        for rows, wanted in parts:
            mean, variance = leave_one_out(model, encoded[rows], y[rows], None if noise is None else noise[rows])
            for k in np.flatnonzero(np.isin(rows, wanted)):
                found[int(rows[k])] = Prediction(float(mean[k]), float(np.sqrt(variance[k])), float(y[rows[k]]))
        farthest = max(found, key=lambda i: found[i].score, default=None)
        if farthest is None or found[farthest].score <= FAR:
            break
        named[farthest] = found[farthest]
    return named
