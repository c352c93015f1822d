"""Maximising a score over the unit cube: many Sobol' candidates scored at once, the best few polished.

    score(U)    values at the rows of U, shape (n,)
    slope(U)    values and gradients, shapes (n,) and (n, d)

L-BFGS-B needs gradients; kernels that have none use finite differences, in one batch (`kernels.gradient`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from misspec.errors import Array

Score = Callable[[Array], Array]
Slope = Callable[[Array], tuple[Array, Array]]

CANDIDATES = 1024  # points of the cover
POLISHED = 8  # of the best: starts of L-BFGS-B
SPREAD = 0.15  # distance below which two starts are taken for the same, in units of the cube's side
MARGIN = 0.05  # by which a cover is stretched beyond the cube before it is clipped
MOST_CORNERS = 8  # dimensions up to which it holds all corners
TOGETHER, ALONE = 30, 100  # steps of L-BFGS-B, of all starts at once and then of the best


def sobol(dimension: int, count: int, seed: Any) -> Array:
    """Scrambled Sobol' points in the unit cube, the same for the same seed; count is rounded up to a power of two."""
    from scipy.stats import qmc

    powers = max(0, (count - 1).bit_length())
    return np.asarray(qmc.Sobol(dimension, rng=np.random.default_rng(seed)).random_base2(powers))


def cover_with_faces(dimension: int, count: int, seed: Any) -> Array:
    """About `count` points spread over the unit cube, its faces and, in few dimensions, its corners.

    Sobol' points, stretched by MARGIN and clipped: maxima often lie on faces, where few Sobol' points do.
    """
    spread = np.clip((1.0 + 2.0 * MARGIN) * sobol(dimension, count, seed) - MARGIN, 0.0, 1.0)
    if dimension > MOST_CORNERS:
        return spread
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=dimension)))
    return np.unique(np.concatenate([spread, corners]), axis=0)


def around(centres: Array, rng: np.random.Generator, count: int) -> Array:
    """For each centre `count` points around it in the cube, at distances from a tenth down to a thousandth."""
    n, d = centres.shape
    scales = 10.0 ** -rng.uniform(1.0, 3.0, (n, count, 1))
    return np.clip(centres[:, None, :] + scales * rng.standard_normal((n, count, d)), 0.0, 1.0).reshape(-1, d)


def polish(score: Score, slope: Slope, candidates: Array, *, starts: int = POLISHED) -> Array:
    """Local maxima from the best candidates that are far from each other, and those candidates themselves.

    All starts climb together, one batch per step; then the best of them climbs on alone, to the end.
    """
    chosen = candidates[spread_out(candidates, score(candidates), starts)] if len(candidates) else candidates
    if not len(chosen):  # there are no candidates, or none with a finite score
        return chosen
    together = climb(slope, chosen, TOGETHER, precision=1e6)
    summit = together[[int(score(together).argmax())]]
    return np.concatenate([climb(slope, summit, ALONE, precision=10.0), together, chosen])


def spread_out(points: Array, values: Array, count: int) -> list[int]:
    """The rows of the largest finite values, no two within SPREAD in every coordinate."""
    left = values.copy()
    chosen: list[int] = []
    while len(chosen) < count and np.isfinite(left.max()):
        chosen.append(int(left.argmax()))
        left[np.abs(points - points[chosen[-1]]).max(axis=1) <= SPREAD] = -np.inf
    return chosen


def climb(slope: Slope, starts: Array, steps: int, precision: float) -> Array:
    """Local maxima in the unit cube by L-BFGS-B on the sum of the scores, which is separable in the starts."""
    from scipy.optimize import fmin_l_bfgs_b

    def downhill(flat: Array) -> tuple[float, Array]:
        values, gradients = slope(flat.reshape(starts.shape))
        return -float(values.sum()), -gradients.ravel()

    bounds = [(0.0, 1.0)] * starts.size
    flat, _, _ = fmin_l_bfgs_b(downhill, starts.ravel(), bounds=bounds, maxiter=steps, factr=precision, pgtol=1e-8)
    return np.asarray(np.clip(flat, 0.0, 1.0).reshape(starts.shape))
