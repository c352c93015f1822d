"""Maximise a score over a region: score many Sobol' candidates at once, then polish the best few.

    score(U)    values at the rows of U, shape (n,)
    slope(U)    values and gradients, shapes (n,) and (n, d)

L-BFGS-B climbs in the columns of floats. Where others stand for integers or choices, it takes turns with steps to the
best neighbour in those. Rules do not stop it: a climb that leaves them ends where it crossed their border, and goes on
along the border, by SLSQP, or in random steps where a rule does not say by how much it holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec.errors import Array

Score = Callable[[Array], Array]
Slope = Callable[[Array], tuple[Array, Array]]


CANDIDATES = 1024  # points of the cover, scored in one batch
SPREAD = 0.15  # starts nearer than this in every coordinate, of the unit cube, would climb the same hill
MARGIN = 0.05  # a cover is stretched by this much beyond the cube and clipped, so that faces get points
MOST_CORNERS = 8  # dimensions up to which a cover includes all corners: 256 points
FINEST = 3.0  # points drawn around another are as near as 10^−3 of the cube's side
HALVINGS = 40  # to the border of rules: to the last digits of its distance
TINY = 1e-7  # step by which slopes of margins are measured, and margin that SLSQP keeps: it ends on its constraints
CREEPS, AROUND = 12, 16  # rounds of random steps, and steps of each point in a round: about as many as SLSQP takes
TURNS = 4  # most turns between climbing floats and stepping in integers and choices


def sobol(dimension: int, count: int, seed: Any) -> Array:
    """Scrambled Sobol' points in the unit cube, reproducible by seed; count is rounded up to a power of two."""
    from scipy.stats import qmc

    powers = max(0, (count - 1).bit_length())
    # seed: the name of rng before SciPy 1.15, which still works
    return np.asarray(qmc.Sobol(dimension, seed=np.random.default_rng(seed)).random_base2(powers))


def cover_with_faces(dimension: int, count: int, seed: Any) -> Array:
    """About `count` points spread over the unit cube, its faces and, in few dimensions, its corners.

    Sobol' points, stretched by MARGIN and clipped: maxima often lie on faces, where few Sobol' points do.
    """
    spread = np.clip((1.0 + 2.0 * MARGIN) * sobol(dimension, count, seed) - MARGIN, 0.0, 1.0)
    if dimension > MOST_CORNERS:
        return spread
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=dimension)))
    return distinct(np.concatenate([spread, corners])).points


class Distinct(NamedTuple):
    """Distinct points in lexicographic order, the first row of each, and for every row the position of its point."""

    points: Array
    first: NDArray[np.intp]
    position: NDArray[np.intp]


def distinct(points: Array) -> Distinct:
    """As np.unique(points, axis=0), which turns a KeyboardInterrupt during its comparisons into a TypeError."""
    order = np.lexsort(points.T[::-1])
    ordered = points[order]
    new = np.ones(len(points), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    position = np.empty(len(points), dtype=np.intp)
    position[order] = np.cumsum(new) - 1
    return Distinct(ordered[new], order[new], position)


def around(centres: Array, rng: np.random.Generator, count: int, *, finest: float = FINEST) -> Array:
    """For each centre `count` points around it in the cube, at distances from a tenth down to 10^−finest."""
    n, d = centres.shape
    scales = 10.0 ** -rng.uniform(1.0, finest, (n, count, 1))
    return np.clip(centres[:, None, :] + scales * rng.standard_normal((n, count, d)), 0.0, 1.0).reshape(n * count, d)


class Effort(NamedTuple):
    """How hard a search tries."""

    starts: int = 8  # of L-BFGS-B, which climb in one batch
    together: int = 30  # steps of all starts in one batch
    alone: int = 100  # steps of the best alone
    cover: int = CANDIDATES


FULL = Effort()


def polish(score: Score, slope: Slope, candidates: Array, *, region: Any, effort: Effort = FULL) -> Array:
    """Local maxima reached from the best candidates that are far from each other, and those candidates.

    region: a box or a space, which says which columns can be climbed, and has the neighbours in the others.

    All starts climb together, one batch per step; then the best of them goes on alone until it converges.
    """
    chosen = candidates[spread_out(candidates, score(candidates), effort.starts)] if len(candidates) else candidates
    if not len(chosen):  # no candidates, or none with a finite score
        return chosen
    together = climb(slope, chosen, effort.together, precision=1e6, region=region)
    for _ in range(TURNS):
        rows, points = _stepped(score, together, region)
        if not len(rows):
            break
        together[rows] = climb(slope, points, effort.together, precision=1e6, region=region)
    summit = together[[int(score(together).argmax())]]
    return np.concatenate([climb(slope, summit, effort.alone, precision=10.0, region=region), together, chosen])


def _stepped(score: Score, U: Array, region: Any) -> tuple[NDArray[np.intp], Array]:
    """The rows of U that have a better neighbour, and the best neighbour of each."""
    points, owner = region.neighbours(U)
    if not len(points):
        return owner, points
    values = score(points)
    order = np.lexsort((-values, owner))  # the neighbours of each row, the best of them first
    rows, first = np.unique(owner[order], return_index=True)
    best = order[first]
    better = values[best] > score(U)[rows]
    return rows[better], points[best[better]]


def spread_out(points: Array, values: Array, count: int) -> list[int]:
    """The rows of the largest finite values, no two within SPREAD in every coordinate."""
    left = values.copy()
    chosen: list[int] = []
    while len(chosen) < count and np.isfinite(left.max()):
        chosen.append(int(left.argmax()))
        left[np.abs(points - points[chosen[-1]]).max(axis=1) <= SPREAD] = -np.inf
    return chosen


def climb(slope: Slope, starts: Array, steps: int, precision: float, *, region: Any) -> Array:
    """Local maxima in a region by L-BFGS-B on the sum of the scores, which is separable in the starts.

    The starts keep the rules of the region, and so do the ends.
    """
    from scipy.optimize import fmin_l_bfgs_b

    free = region.free
    if not free.any() or not len(starts):
        return starts.copy()
    low, high = region.reach(starts)

    def downhill(flat: Array) -> tuple[float, Array]:
        V = _moved(starts, flat.reshape(len(starts), -1), region)
        values, gradients = slope(region.on(V))
        return -float(values.sum()), -region.pulled(V, gradients)[:, free].ravel()

    bounds = list(zip(low.ravel().tolist(), high.ravel().tolist(), strict=True))
    first = starts[:, free].ravel()
    flat, _, _ = fmin_l_bfgs_b(downhill, first, bounds=bounds, maxiter=steps, factr=precision, pgtol=1e-8)
    U: Array = region.on(_moved(starts, np.clip(flat, low.ravel(), high.ravel()).reshape(len(starts), -1), region))
    if region.rules is None:
        return U
    left = np.flatnonzero(~region.legal(region.decode(U)))
    if len(left):
        border = _border(starts[left], U[left], region)
        along = _along(slope, border, steps, region) if region.rules.texts else _creep(slope, border, region)
        better = slope(along)[0] > slope(border)[0]
        U[left] = np.where(better[:, None], along, border)
    return U


def _moved(U: Array, W: Array, region: Any) -> Array:
    """The rows with other numbers in their free columns."""
    V = U.copy()
    V[:, region.free] = W
    return V


def _border(legal: Array, beyond: Array, region: Any) -> Array:
    """The last legal points on the way from legal ones to others."""
    near, far = legal.copy(), beyond
    for _ in range(HALVINGS):
        middle = region.on(0.5 * (near + far))
        keeps = region.legal(region.decode(middle))[:, None]
        near, far = np.where(keeps, middle, near), np.where(keeps, far, middle)
    return near


def _along(slope: Slope, border: Array, steps: int, region: Any) -> Array:
    """Where SLSQP climbs from each of these legal points within the margins of the rules."""
    from scipy.optimize import minimize

    low, high = region.reach(border)
    ends = border.copy()
    for i, start in enumerate(border):
        here = start[None, :]

        def downhill(w: Array) -> tuple[float, Array]:
            V = _moved(here, w[None, :], region)  # noqa: B023  # called in this turn alone
            value, gradient = slope(region.on(V))
            return -float(value[0]), -region.pulled(V, gradient)[0, region.free]

        def margins(w: Array) -> Array:
            return np.asarray(region.margins(region.on(_moved(here, w[None, :], region)))[0] - TINY)  # noqa: B023

        def slopes(w: Array) -> Array:
            steps = np.where(w > 0.5, -TINY, TINY)  # inwards
            near = np.concatenate([w[None, :], w + np.diag(steps)])
            values = region.margins(region.on(_moved(np.repeat(here, len(near), axis=0), near, region)))  # noqa: B023
            return np.asarray((values[1:] - values[0]).T / steps)

        found = minimize(
            downhill, start[region.free], jac=True, method="SLSQP", bounds=np.stack([low[i], high[i]], axis=1),
            constraints={"type": "ineq", "fun": margins, "jac": slopes}, options={"maxiter": steps, "ftol": 1e-9},
        )  # fmt: skip
        if np.isfinite(found.x).all():
            ends[i] = region.on(_moved(here, np.clip(found.x, low[i], high[i])[None, :], region))[0]
    left = ~region.legal(region.decode(ends))
    ends[left] = _border(border[left], ends[left], region)
    return ends


def _creep(slope: Slope, U: Array, region: Any) -> Array:
    """The best of legal points around each point, again and again."""
    rng = np.random.default_rng(0)
    for _ in range(CREEPS):
        tries = np.concatenate([U, region.around(U, rng, AROUND, finest=5.0)])
        values = slope(tries)[0]
        values = np.concatenate([values[: len(U), None], values[len(U) :].reshape(len(U), AROUND)], axis=1)
        best = values.argmax(axis=1)
        U = np.where((best > 0)[:, None], tries[len(U) + np.arange(len(U)) * AROUND + best - 1], U)
    return U
