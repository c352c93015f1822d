"""What further results would bring: the chance that what is best becomes better by so much.

Of n further results y at points S, in the model's units: a world is a sample f of the belief and y = f(S) + noise. What
is best is the point with a result, or recommended, of the largest posterior mean, before (a) and after y (b); it gains

    g = f(b) − f(a)

in that world, which luck cannot raise: only what is better is a gain. Beliefs are a mixture of Gaussians, which y
reweights. S is chosen greedily on other samples of f, and all n are asked at once.

The model is stationary, and believes too much where good results crowd below a ceiling (a loss with a long tail) and
too little where they are rare: P(g ≥ x) is corrected by the skewness of the results, by constants that were chosen by
what happened in runs whose truth is known (`benchmarks/verdicts.py`), as `calibrated` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from misspec import kernels
from misspec.errors import Array
from misspec.policies.auto.average import ModelAverage, improvement
from misspec.policies.auto.feasible import Weight
from misspec.policies.core.field import Field
from misspec.policies.core.points import Actions
from misspec.posterior import Posterior
from misspec.search import distinct

WORLDS = 256  # simulated, per belief
LEAST = 0.5 / WORLDS  # chance that they can tell from none
JITTER = 1e-9  # relative to the largest variance
OFFSET, SLOPE, SKEWED = 0.85, 0.39, 2.22  # of `calibrated`, by benchmarks/verdicts.py
HIGHEST = 0.7  # chance that is said: where other problems choose the constants, what was put higher came no more often
MOST_SKEWED = (-2.0, 1.0)  # beyond, it counts no more: one result may be far off
KNOWN, PROMISING = 30, 100  # best known and most promising points among which further results are imagined


class Belief(NamedTuple):
    """f at m points is N(mean, covariance), results have this noise; in the model's units."""

    mean: Array  # (m,)
    covariance: Array  # (m, m)
    noise: float


def gains_of(
    mixture: ModelAverage, field: Field, known: Actions, usable: Callable[[Actions], NDArray[np.bool_]], turn: int,
    n: int,
    limits: Weight | None = None,
) -> Array:  # fmt: skip
    """Gains of n further results in the user's units, one per world, among the points of the largest expected
    improvement and the best known ones. known: points with results, and the one that is recommended; usable: which
    actions may be recommended; turn: of the search; limits: what its score has added."""
    means = mixture.look(field, None, known, pending=False).M.mean(axis=0)
    score = improvement(float(means.max()))
    offer = field.spread()
    if not field.size:
        offer = offer + field.offer(lambda: mixture.search(score, None, turn, pending=False, weights=[limits]))
    offer = offer.part(np.flatnonzero(usable(offer)))
    beliefs = mixture.look(field, None, offer, pending=False)
    scores = score(beliefs.M, beliefs.S).values
    points = np.concatenate([
        known.points[np.argsort(-means, kind="stable")[:KNOWN]],
        offer.points[np.argsort(-scores, kind="stable")[:PROMISING]],
    ])  # fmt: skip
    points = distinct(points).points
    keys = {x.tobytes() for x in known.points}
    seen = np.array([x.tobytes() in keys for x in points])
    encoded = field.domain.encode(points)
    jointly = [belief(posterior, points, encoded) for posterior in mixture.posteriors]
    before, after = worlds(jointly, seen, n)
    return np.asarray(mixture.back(after) - mixture.back(before))


def belief(posterior: Posterior, points: Array, encoded: Array) -> Belief:
    """What a posterior says of points jointly: k(x, z) − W(x)·k(U, z), from told results only."""
    kernel, scale = posterior.model.kernel, posterior.model.scale
    explained = posterior.weights_at(points) @ kernels.cross(kernel, posterior.points, encoded)
    covariance = kernels.cross(kernel, encoded, encoded) - explained
    return Belief(posterior.at(points)[0], scale**2 * 0.5 * (covariance + covariance.T), posterior.model.noise)


def worlds(beliefs: Sequence[Belief], known: NDArray[np.bool_], n: int, seed: int = 0) -> tuple[Array, Array]:
    """f(a) and f(b) in each world, in the model's units. known: points that can be a."""
    rng = np.random.default_rng([seed, n])
    means = np.mean([each.mean for each in beliefs], axis=0)
    best = int(np.where(known, means, -np.inf).argmax())
    asked = _chosen(beliefs, best, n, rng)
    eligible = np.flatnonzero(known | np.isin(np.arange(len(means)), asked))
    F = np.concatenate([sampled(each, rng, WORLDS) for each in beliefs])
    noises = np.repeat([each.noise for each in beliefs], WORLDS)[:, None]
    after = _means_after(beliefs, asked, eligible, F[:, asked] + noises * rng.standard_normal((len(F), n)))
    return F[:, best], F[np.arange(len(F)), eligible[after.argmax(axis=1)]]


def _chosen(beliefs: Sequence[Belief], best: int, n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """n points, greedily: each adds most to E max f beyond the best one's f; again in this order if there are fewer."""
    F = np.concatenate([sampled(each, rng, WORLDS) for each in beliefs])
    reached, least = F[:, best].copy(), 1e-12 * (1e-300 + float(np.std(F)))
    chosen: list[int] = []
    while len(chosen) < n:
        added = np.maximum(F - reached[:, None], 0.0).mean(axis=0)
        j = int(added.argmax())
        if added[j] <= least:
            break
        chosen.append(j)
        np.maximum(reached, F[:, j], out=reached)
    return np.resize(np.array(chosen or [best], dtype=np.intp), n)


def sampled(each: Belief, rng: np.random.Generator, count: int) -> Array:
    """Joint samples of f, one per row; rounding and equal points allowed for."""
    values, vectors = np.linalg.eigh(each.covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(each.mean + rng.standard_normal((count, len(each.mean))) @ root.T)


def _means_after(
    beliefs: Sequence[Belief], asked: NDArray[np.intp], eligible: NDArray[np.intp], results: Array
) -> Array:
    """The mixture's mean at the eligible points, given results at the asked ones: one row per row of results."""
    means, logs = [], []
    for each in beliefs:
        A = each.covariance[np.ix_(asked, asked)]
        floor = JITTER * float(np.diag(each.covariance).max()) + 1e-300
        L = np.linalg.cholesky(A + (each.noise**2 + floor) * np.eye(len(asked)))
        surprise = (results - each.mean[asked]).T
        whitened = solve_triangular(L, surprise, lower=True, check_finite=False)
        logs.append(-0.5 * np.einsum("sw,sw->w", whitened, whitened) - np.log(np.diag(L)).sum())
        weights = cho_solve((L, True), each.covariance[np.ix_(asked, eligible)], check_finite=False)
        means.append(each.mean[eligible] + surprise.T @ weights)
    shares = np.exp(np.array(logs) - np.max(logs, axis=0))
    shares /= shares.sum(axis=0)
    return np.asarray(np.einsum("kw,kwe->we", shares, np.array(means)))


def skewness(z: Array) -> float:
    """Of results in the model's units, larger is better: negative where the good ones crowd; within MOST_SKEWED."""
    far = z - z.mean()
    variance = float(np.mean(far**2))
    return float(np.clip(np.mean(far**3) / variance**1.5, *MOST_SKEWED)) if variance > 0 else 0.0


def calibrated(p: float, skew: float) -> float:
    """A chance as it is said: h/(1 + exp(−(a + b·ln(p/(1 − p)) + c·skew))); what no world has, has no chance."""
    if p <= 0.0:
        return 0.0
    odds = min(max(p, LEAST), 1.0 - LEAST)
    return HIGHEST / (1.0 + math.exp(-(OFFSET + SLOPE * math.log(odds / (1.0 - odds)) + SKEWED * skew)))
