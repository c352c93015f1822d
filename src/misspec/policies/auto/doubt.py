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
    renewal = learner.renewal(_part(told, rows), sign, states)
    X, z = learner.domain.encode(told.x[rows]), Scaling(*renewal["scaling"][1:]).to(sign * told.y[rows])
    found = [leave_one_out(model, X, z) for model in models_of(renewal, learner.domain)]
    means, variances = np.array([each[0] for each in found]), np.array([each[1] for each in found])
    return np.asarray(np.abs(z - means.mean(axis=0)) / np.sqrt(variances.mean(axis=0) + means.var(axis=0)))


def _prediction(
    learner: Learner, told: Observations, rows: Any, i: int, sign: float, states: Array | None
) -> Prediction:
    """What the model learnt from some results says of another one."""
    renewal = learner.renewal(_part(told, rows), sign, states)
    scaling = Scaling(*renewal["scaling"][1:])
    X, x = learner.domain.encode(told.x[rows]), learner.domain.encode(told.x[[i]])
    z = scaling.to(sign * told.y[rows])
    means, variances = [], []
    for model in models_of(renewal, learner.domain):
        k = model.kernel(x, X)[0]
        w = np.linalg.solve(model.kernel(X, X.copy()) + model.regularization * np.eye(len(X)), k)
        means.append(model.offset + float(w @ (z - model.offset)))
        variances.append(model.scale**2 * max(1.0 - float(w @ k), 0.0) + model.noise**2)
    mean, std = float(np.mean(means)), float(np.sqrt(np.mean(variances) + np.var(means)))
    # in units of y, not of z, which is logarithmic far out
    return Prediction(scaling.centre + scaling.width * mean, scaling.width * std, float(sign * told.y[i]))
