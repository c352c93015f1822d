"""The model against the results: each result as the others predict it, with bands, and how often these hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from misspec.errors import Array
from misspec.hyperparameters import Scaling
from misspec.model import Model
from misspec.policies.auto.learnt import settled
from misspec.policies.auto.model import models_of
from misspec.policies.core.suspicion import MOST, leave_one_out

LEVELS = (0.5, 0.8, 0.95)  # of bands
FEWEST = 8  # results from which it is said whether bands are right
RARE = 0.01  # as seldom are right bands called wrong


class LeftOut(NamedTuple):
    """Results that were left out in turn: their rows, what the others predict, and whether that is right.

    rows           among the results: of more than MOST, so many drawn by chance
    mean           of the prediction
    lower, upper   its band of 95 %, in which the result should lie, its noise included
    inside         the share of the results in the band of each of LEVELS
    """

    rows: NDArray[np.intp]
    mean: Array
    lower: Array
    upper: Array
    inside: tuple[float, ...]


def left_out(policy: Any) -> LeftOut:
    """Of a policy with a model. That was learnt from all results but doubted ones: only their values are left out, one
    at a time; a doubted one is predicted by the others, and predicts none."""
    told, sign = policy.observations, policy.log.sign
    rows = np.arange(len(told))
    if len(rows) > MOST:
        rows = np.sort(np.random.default_rng(0).choice(len(rows), MOST, replace=False))
    x, z, own = policy.domain.encode(told.x[rows]), sign * told.y[rows], told.noise[rows]
    back: Callable[[Array], Array] = np.asarray
    if hasattr(policy, "settled"):
        known = settled(policy)
        scaling, doubted = Scaling(*known.samples["scaling"][1:]), np.isin(rows, known.doubted)
        z, back, own = scaling.to(z), scaling.back, own / scaling.width
        models = models_of(known.samples, policy.domain)
        found = np.array([_predicted(model, x, z, np.hypot(model.noise, own), doubted) for model in models])
    else:
        found = np.array([_each(policy.model, x, z, own)])
    mean, std = found[:, 0].mean(axis=0), np.sqrt(found[:, 1].mean(axis=0) + found[:, 0].var(axis=0))
    reaches = norm.ppf(0.5 + 0.5 * np.array(LEVELS))
    inside = tuple(float(np.mean(np.abs(z - mean) <= reach * std)) for reach in reaches)
    ends = [sign * back(mean + side * reaches[-1] * std) for side in (-1.0, 1.0)]
    return LeftOut(rows, sign * back(mean), np.minimum(*ends), np.maximum(*ends), inside)


def _predicted(model: Model, x: Array, z: Array, noise: Array, doubted: NDArray[np.bool_]) -> Array:
    """Mean and variance of each result given all others that are believed."""
    believed = np.flatnonzero(~doubted)
    found = np.zeros((2, len(z)))
    found[:, believed] = _each(model, x[believed], z[believed], noise[believed])
    for last in np.flatnonzero(doubted):
        rows = np.append(believed, last)
        found[:, last] = _each(model, x[rows], z[rows], noise[rows])[:, -1]
    return found


def _each(model: Model, x: Array, z: Array, noise: Array) -> Array:
    """Mean and variance of each result given all others; a model without noise takes no noises."""
    return np.array(leave_one_out(model, x, z, None if np.isnan(noise).all() else noise))


def sentence(found: LeftOut) -> str:
    """How often the bands hold, and whether that is as often as they should."""
    n = len(found.rows)
    half, most, nearly = (f"{100 * share:.0f} %" for share in found.inside)
    said = (
        "Each result was left out in turn and predicted by the others: the bands of 50, 80 and 95 % hold "
        f"{half}, {most} and {nearly} of the {n:,} results"
    )
    counts = np.round(np.array(found.inside) * n)
    if n < FEWEST:
        return f"{said}, too few to tell whether they are right."
    if (binom.cdf(counts, n, LEVELS) < RARE / 2).any():
        return f"{said}. They are too narrow: the model is surer than it should be."
    wide = (binom.sf(counts - 1, n, LEVELS) < RARE / 2).any()
    return f"{said}. They are wider than they need be." if wide else f"{said}, as they should."
