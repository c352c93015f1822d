"""Results in another unit: a block that is ten, a hundred or a thousand times too large or too small.

Sorted by size, such results have a gap; times the factor, they lie among the others. Good and bad settings can look
like that too, but then the parameters say which is which. So a block is named only where a model does not predict,
from the other results, which ones belong to it (their leave-one-out error is at least CHANCE of their variance); and
does predict n results better once the block is rescaled, by the leave-one-out densities of both:

    Σ_i ln p(c_i·y_i | others) + ln c_i  −  Σ_i ln p(y_i | others)  >  max(PROOF, EACH·n),   c the factor in it, else 1

Of such a block each result is named that is likelier rescaled than as it is. Where a point has results on both sides
of the gap, these say the factor; else the medians of both sides do.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec.errors import Array
from misspec.hyperparameters import REACH, Scaling
from misspec.policies.auto.doubt import Judge
from misspec.policies.auto.model import CHECKED, Learner
from misspec.policies.core.answers import Observations
from misspec.policies.core.suspicion import Prediction

LEAST, MOST = 8, 1000  # results from which, and up to which, a block is looked for
GAP = 0.4  # of log₁₀|y| between the blocks, at least
NEAR = 0.3  # of log₁₀|y|: how well the factor fits, and how far the rescaled block may reach beyond the others
POWERS = (1, 2, 3)  # of ten
CHANCE = 0.5  # of the variance of who belongs to the block: a model that predicts it leaves about a third
PROOF, EACH = 10.0, 1.0  # nats, in all and per result: heavy tails that are rescaled gain up to 0.94, units 1.4


class Block(NamedTuple):
    """Rows that look like another unit, and what they are to be multiplied by."""

    rows: NDArray[np.intp]
    factor: float


def block_of(y: Array, x: Array | None = None) -> Block | None:
    """The smaller of two blocks that a gap separates, if a power of ten brings it among the others. x: where they are,
    for repeats."""
    if len(y) < LEAST or not ((y > 0).all() or (y < 0).all()):
        return None
    size = np.log10(np.abs(y))
    order = np.argsort(size, kind="stable")
    gaps = np.diff(size[order])
    at = int(gaps.argmax())
    low, high = np.sort(order[: at + 1]), np.sort(order[at + 1 :])
    if gaps[at] < GAP or min(len(low), len(high)) < 2:
        return None
    apart = float(np.median(size[high]) - np.median(size[low]))
    if x is not None and len(both := [d for i in low for d in size[high][(x[high] == x[i]).all(axis=1)] - size[i]]):
        apart = float(np.median(both))
    power = round(apart)
    if power not in POWERS or abs(apart - power) > NEAR:
        return None
    wrong, right, shift = (low, high, power) if len(low) <= len(high) else (high, low, -power)
    moved = size[wrong] + shift
    if moved.min() < size[right].min() - NEAR or moved.max() > size[right].max() + NEAR:
        return None
    return Block(wrong, 10.0**shift)


def predictions(learner: Learner, told: Observations, sign: float, states: Array | None) -> dict[int, Prediction]:
    """Of each result of a block in another unit what the others predict, the block rescaled; in units of sign·y."""
    block = block_of(told.y, told.x) if len(told.y) <= MOST else None
    if block is None:
        return {}
    belongs = np.isin(np.arange(len(told.y)), block.rows).astype(np.float64)
    labels = dataclasses.replace(told, y=sign * belongs, noise=np.full(len(belongs), np.nan))
    _, guess, _ = _judged(Judge(Learner(learner.domain, None, learner.seed), labels, sign))
    if float(np.mean((guess - belongs) ** 2)) < CHANCE * float(np.var(belongs)):
        return {}
    scale = np.where(belongs > 0, block.factor, 1.0)
    before, _, _ = _judged(Judge(learner, told, sign, states))
    rescaled = dataclasses.replace(told, y=told.y * scale, noise=told.noise * scale)
    after, mean, std = _judged(Judge(learner, rescaled, sign))
    if after + len(block.rows) * np.log(block.factor) - before <= max(PROOF, EACH * len(told.y)):
        return {}
    y = sign * told.y
    asis, moved = (((values - mean) / std) ** 2 for values in (y, scale * y))
    wrong = [i for i in block.rows.tolist() if 0.5 * (asis[i] - moved[i]) + np.log(block.factor) > 0.0]
    return {i: Prediction(float(mean[i]), float(std[i]), float(y[i]), block.factor) for i in wrong}


def _judged(judge: Judge) -> tuple[float, Array, Array]:
    """Σ ln p of the results, each given the others, and mean and standard deviation of each; in units of sign·y."""
    renewal = judge.learner.renewal(judge.told, judge.sign, judge.states, samples=CHECKED)
    scaling, y = Scaling(*renewal["scaling"][1:]), judge.sign * judge.told.y
    z, mean, std = judge.left_out(renewal, np.arange(len(y)))
    far = np.maximum(np.abs(y - scaling.centre) / scaling.width - REACH, 0.0)  # where z is logarithmic
    density = -0.5 * float((((z - mean) / std) ** 2 + 2.0 * np.log(std)).sum())
    density -= float(np.log1p(far).sum()) + len(z) * np.log(scaling.width)
    return density, scaling.centre + scaling.width * mean, scaling.width * std
