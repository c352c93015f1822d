"""Results that the others do not predict: each is judged by a model that has not seen it.

A result far off bends the model and its noise, and hides itself. So a renewal leaves it out, and keeps it out for as
long as the model of the others excludes it:

    1   learn from all results but those doubted before; believe those again that this model predicts
    2   of the results that are left, look at the few that the others predict worst
    3   learn from the others without it: where that model excludes one, doubt it, and go on with 2

A result that is doubted teaches nothing, until it is told once more: an optimum looks like an error, so that one which
would be the best is asked again (`rules.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec.errors import Array
from misspec.hyperparameters import Scaling
from misspec.policies.auto.model import CHECKED, Learner, models_of
from misspec.policies.core.answers import Observations
from misspec.policies.core.suspicion import FAR, Prediction, leave_one_out
from misspec.search import distinct

LEAST = 8  # results from which models are learnt without some of them: of fewer, a model says little about the others
FEWEST, BELOW, ABOVE = 5, 5.0, 3.0  # of fewer results than LEAST, one is doubted that lies so many ranges of the others
# away from them: soon if it is better, since asking it again costs little then, and searching around an error much; it
# is named only if it is as far off as one that is worse
LOOKED_AT = 3  # results that fit worst, for each of which the model is learnt again
LOOSE = 4.0  # how far a result is off, in units of what is usual, to be looked at: one in 16,000 if the model is right
USUAL = 0.6745  # median of the absolute value of a standard normal variable
TIGHTEST = 0.1  # of it: where half of the results are predicted to rounding, others are not far off for that
SEEN = 2.5  # times the standard deviation of a result such as there are others: a cliff, or noise that differs between
# points, brings those; on clean tables they were up to 12 off, where slips and typing errors lie beyond all others
MOST_TOLD = 1000  # results up to which others are looked for, which takes seconds then
MOST, PART = 2, 8  # results that are doubted at most, or one in PART: where more are far off, the model is wrong


class Judge(NamedTuple):
    """All results, of which some are judged by models of others; states: θ at the renewal before."""

    learner: Learner
    told: Observations
    sign: float  # −1 where smaller is better
    states: Array | None = None

    def others(self, out: Collection[int]) -> NDArray[np.intp]:
        """The rows that are not left out."""
        return np.setdiff1d(np.arange(len(self.told.y)), list(out))

    def renewal(self, out: Collection[int], states: Array | None = None, **samples: int) -> dict[str, Any]:
        """Learnt from all results but some, which it names; `results` counts all."""
        told, rows = self.told, self.others(out)
        left = [[*told.x[i].tolist(), float(told.y[i])] for i in sorted(out)]
        part = Observations(told.x[rows], told.y[rows], told.ids[rows], noise=told.noise[rows])
        renewal = self.learner.renewal(part, self.sign, self.states if states is None else states, **samples)
        return {**renewal, "results": len(told.y), "doubted": left}

    def left_out(self, renewal: dict[str, Any], rows: Any) -> tuple[Array, Array, Array]:
        """Some results in the units of a renewal's models; mean and standard deviation of each given the others."""
        scaling, domain = Scaling(*renewal["scaling"][1:]), self.learner.domain
        X, z = domain.encode(self.told.x[rows]), scaling.to(self.sign * self.told.y[rows])
        own, models = self.told.noise[rows] / scaling.width, models_of(renewal, domain)
        given = np.array([leave_one_out(model, X, z, np.hypot(model.noise, own)) for model in models])
        return z, given[:, 0].mean(axis=0), np.sqrt(given[:, 1].mean(axis=0) + given[:, 0].var(axis=0))

    def predicted(self, renewal: dict[str, Any], out: Collection[int]) -> dict[int, Prediction]:
        """Of some rows what the others predict, by the models of a renewal, in units of sign·y: a result far out is as
        far off as it is, although the scale is logarithmic there."""
        y = self.sign * self.told.y
        if len(y) < LEAST:
            return {i: each for i, each in _apart(y, BELOW).items() if i in out}  # a good one is no news
        predictions = {}
        scaling, rows = Scaling(*renewal["scaling"][1:]), self.others(out)
        for i in sorted(out):
            mean, std = (each[-1] for each in self.left_out(renewal, [*rows, i])[1:])
            low, middle, high = scaling.back([mean - std, mean, mean + std]).tolist()
            seen = y[rows].min() <= y[i] <= y[rows].max()
            predictions[i] = Prediction(middle, (SEEN if seen else 1.0) * (0.5 * high - 0.5 * low), float(y[i]))
        return predictions

    def farthest(self, renewal: dict[str, Any], out: Collection[int]) -> int | None:
        """The row that the others exclude most, each by a model that is learnt without it; None for none."""
        rows, states = self.others(out), np.array(renewal["states"])
        z, mean, std = self.left_out(renewal, rows)
        scores = np.abs(z - mean) / std
        # a result far off makes the noise large, and all others are nearer than is usual
        scores /= max(float(np.median(scores)) / USUAL, TIGHTEST)
        worst = [int(rows[k]) for k in np.argsort(-scores, kind="stable")[:LOOKED_AT] if scores[k] > LOOSE]
        y = self.told.y[rows]  # a slip by a factor makes the scale logarithmic, in which it may fit
        for size in (y, np.log(y)) if y.min(initial=1.0) > 0 else (y,):
            worst += [int(rows[k]) for k in _apart(size, BELOW) if rows[k] not in worst]
        # repeats that disagree make the noise large, in which they fit
        worst += [int(rows[k]) for k in _disagreeing(self.told.x[rows], y) if rows[k] not in worst]
        found = {}
        for i in worst:
            without = self.renewal({*out, i}, states, samples=CHECKED)
            found[i] = self.predicted(without, {*out, i})[i].score
        far = max(found, key=lambda i: found[i], default=None)
        return far if far is not None and found[far] > FAR else None


def learnt(
    learner: Learner, told: Observations, sign: float, states: Array | None, doubted: Collection[int] | None
) -> tuple[dict[str, Any], list[int]]:
    """A renewal from the results that are believed, and the rows of the others. doubted: before this renewal; None
    where no result may be doubted."""
    judge, t, out = Judge(learner, told, sign, states), len(told.y), set(doubted or ())
    if doubted is None:
        return judge.renewal(out), []
    if t < LEAST:
        out = set(_apart(sign * told.y, ABOVE)) if t >= FEWEST else set()
    renewal = judge.renewal(out)
    if not LEAST <= t <= MOST_TOLD:
        return renewal, sorted(out)
    again = {i for i, each in judge.predicted(renewal, out).items() if each.score <= FAR}
    if again:
        out -= again
        renewal = judge.renewal(out)
    while len(out) < max(MOST, t // PART):
        far = judge.farthest(renewal, out)
        if far is None:
            break
        without = judge.renewal({*out, far})
        if judge.predicted(without, [*out, far])[far].score <= FAR:
            break
        out.add(far)
        renewal = without
    return renewal, sorted(out)


def _apart(y: Array, above: float) -> dict[int, Prediction]:
    """The one result, if any, that lies far from all others, and their range; above: how far, if it is better."""
    for i in (int(y.argmin()), int(y.argmax())):
        low, high = float(np.delete(y, i).min()), float(np.delete(y, i).max())
        if max((low - y[i]) / BELOW, (y[i] - high) / above) > high - low > 0:
            return {i: Prediction(0.5 * (low + high), 0.25 * (high - low), float(y[i]))}
    return {}


def _disagreeing(x: Array, y: Array) -> list[int]:
    """The least and the largest result of the point whose results differ most; none where no point has several."""
    which = distinct(x).position
    low, high = np.full(which.max() + 1, np.inf), np.full(which.max() + 1, -np.inf)
    np.minimum.at(low, which, y)
    np.maximum.at(high, which, y)
    point = int(np.argmax(high - low))
    ends = {low[point], high[point]}
    return [int(np.flatnonzero((which == point) & (y == end))[0]) for end in ends] if len(ends) > 1 else []


def rows_of(results: Sequence[Sequence[float]], told: Observations) -> list[int]:
    """The first rows that hold these results, [*x, y] each; none for those that are not told here."""
    if not results:
        return []
    table = np.column_stack([told.x, told.y])
    same = [np.flatnonzero((table == np.array(each)).all(axis=1)) for each in results]
    return sorted({int(rows[0]) for rows in same if len(rows)})
