"""The model against the results: each result as the others predict it, with bands, and how often these hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    from scipy.stats import norm

    told, sign = policy.observations, policy.log.sign
    rows = np.arange(len(told))
    if len(rows) > MOST:
        rows = np.sort(np.random.default_rng(0).choice(len(rows), MOST, replace=False))
    models, z, own, doubted = [policy.model], sign * told.y[rows], told.noise[rows], np.zeros(len(rows), dtype=bool)
    back: Callable[[Array], Array] = np.asarray
    if hasattr(policy, "settled"):
        known = settled(policy)
        samples, doubted = known.samples, np.isin(rows, known.doubted)
        models, scaling = models_of(samples, policy.domain), Scaling(*samples["scaling"][1:])
        z, back, own = scaling.to(z), scaling.back, own / scaling.width
    encoded = policy.domain.encode(told.x[rows])
    noises = [np.hypot(model.noise, own) if hasattr(policy, "settled") else own for model in models]  # beside Auto's
    found = np.array([
        _predicted(model, encoded, z, each, doubted) for model, each in zip(models, noises, strict=True)
    ])  # fmt: skip
    means, variances = found[:, 0], found[:, 1]
    mean, std = means.mean(axis=0), np.sqrt(variances.mean(axis=0) + means.var(axis=0))
    far = np.abs(z - mean) / std
    inside = tuple(float(np.mean(far <= norm.ppf(0.5 + 0.5 * level))) for level in LEVELS)
    reach = norm.ppf(0.5 + 0.5 * LEVELS[-1]) * std
    ends = [sign * back(mean + side * reach) for side in (-1.0, 1.0)]
    return LeftOut(rows, sign * back(mean), np.minimum(*ends), np.maximum(*ends), inside)


def _predicted(model: Model, encoded: Array, z: Array, own: Array, doubted: NDArray[np.bool_]) -> Array:
    """Mean and variance of each result given all others that are believed; own: their noises."""
    noise = None if np.isnan(own).all() else own
    found, believed = np.zeros((2, len(z))), np.flatnonzero(~doubted)
    for last in [None, *np.flatnonzero(doubted)]:
        rows = believed if last is None else np.append(believed, last)
        each = leave_one_out(model, encoded[rows], z[rows], None if noise is None else noise[rows])
        at = slice(None) if last is None else slice(-1, None)
        found[:, rows[at]] = np.array(each)[:, at]
    return found


def sentence(found: LeftOut) -> str:
    """How often the bands hold, and whether that is as often as they should."""
    from scipy.stats import binom

    n = len(found.rows)
    shares = [f"{100 * share:.0f} %" for share in found.inside]
    said = (
        f"Each result was left out in turn and predicted by the others: the bands of 50, 80 and 95 % hold {shares[0]}, "
        f"{shares[1]} and {shares[2]} of the {n:,} results"
    )
    counts = [round(share * n) for share in found.inside]
    narrow = any(binom.cdf(k, n, p) < RARE / 2 for k, p in zip(counts, LEVELS, strict=True))
    wide = any(binom.sf(k - 1, n, p) < RARE / 2 for k, p in zip(counts, LEVELS, strict=True))
    if n < FEWEST:
        return f"{said}, too few to tell whether they are right."
    if narrow:
        return f"{said}. They are too narrow: the model is surer than it should be."
    return f"{said}. They are wider than they need be." if wide else f"{said}, as they should."
