"""Results that the others do not predict: each is judged by a model that has not seen it.

A result far off bends the model and its noise, and hides itself. So the few that fit worst are left out one by one, the
model is learnt again from the others, and says what it would have expected; one that is confirmed stays out while the
next is looked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from misspec.errors import Array
from misspec.hyperparameters import Scaling
from misspec.policies.auto.model import Learner, models_of
from misspec.policies.core.answers import Observations
from misspec.policies.core.suspicion import FAR, MOST_NAMED, Prediction, leave_one_out

LEAST = 8  # results from which models are learnt without some of them: of fewer, a model says little about the others
FEWEST, APART = 5, 5.0  # of fewer results than LEAST, one this many ranges of the others away from them is doubted
LOOKED_AT = 3  # results that fit worst, for each of which the model is learnt again
MOST_TOLD = 1000  # results up to which the model is learnt again, which takes seconds then


def predictions(learner: Learner, told: Observations, sign: float, states: Array | None) -> dict[int, Prediction]:
    """Of each suspicious result what the others predict, in units of sign·y; by its position."""
    named: dict[int, Prediction] = {}
    if FEWEST <= len(told.y) < LEAST:
        return _apart(sign * told.y)
    if not LEAST <= len(told.y) <= MOST_TOLD:
        return named
    while len(named) < MOST_NAMED:
        left = np.setdiff1d(np.arange(len(told.y)), list(named))
        scores = _scores(learner, told, left, sign, states)
        worst = left[np.argsort(-scores, kind="stable")[:LOOKED_AT]]
        found = {int(i): _prediction(learner, told, left[left != i], int(i), sign, states) for i in worst}
        far = max(found, key=lambda i: found[i].score)
        if found[far].score <= FAR:
            break
        named[far] = found[far]
    return named


def _apart(y: Array) -> dict[int, Prediction]:
    """The one result, if any, that lies far from all others."""
    for i in (int(y.argmin()), int(y.argmax())):
        low, high = float(np.delete(y, i).min()), float(np.delete(y, i).max())
        if max(low - y[i], y[i] - high) > APART * (high - low) > 0:
            return {i: Prediction(0.5 * (low + high), 0.25 * (high - low), float(y[i]))}
    return {}


def _part(told: Observations, rows: Any) -> Observations:
    return Observations(told.x[rows], told.y[rows], told.ids[rows])


def _scores(learner: Learner, told: Observations, rows: Any, sign: float, states: Array | None) -> Array:
    """How far each result is from what the others predict under the samples learnt from all of them."""
    scaling, mean, std = _left_out(learner, told, rows, rows, sign, states)
    return np.asarray(np.abs(scaling.to(sign * told.y[rows]) - mean) / std)


def _prediction(
    learner: Learner, told: Observations, others: Any, i: int, sign: float, states: Array | None
) -> Prediction:
    """The prediction of a result by the model that is learnt from others, in units of y: z is logarithmic far out."""
    scaling, mean, std = _left_out(learner, told, others, np.append(others, i), sign, states)
    centre, width = scaling.centre, scaling.width
    return Prediction(centre + width * float(mean[-1]), width * float(std[-1]), float(sign * told.y[i]))


def _left_out(
    learner: Learner, told: Observations, known: Any, rows: Any, sign: float, states: Array | None
) -> tuple[Scaling, Array, Array]:
    """Mean and standard deviation of each of some rows given the others, under samples learnt from the known ones."""
    renewal = learner.renewal(_part(told, known), sign, states)
    scaling = Scaling(*renewal["scaling"][1:])
    X, z = learner.domain.encode(told.x[rows]), scaling.to(sign * told.y[rows])
    found = np.array([leave_one_out(model, X, z) for model in models_of(renewal, learner.domain)])
    means, variances = found[:, 0], found[:, 1]
    return scaling, means.mean(axis=0), np.sqrt(variances.mean(axis=0) + means.var(axis=0))
