"""Choosing on a box: a finite offer that holds the maximiser, from which policies choose as from any other actions.

The offer is made of Sobol' candidates and points about the best observed ones, the best of which are polished with
L-BFGS-B, and of all observed points. Two points that lie within the *resolution* of each other are the same to a
grounded policy: a point a hair's breadth from an observed one has no own band, and would escape what was learnt there.
Queries that come that near to an observed point go to the point itself. Near is meant in the kernel's metric

    √(k(x,x) + k(z,z) − 2k(x,z)) ≤ resolution,

about |x − z|/length scale for smooth kernels; a function of norm B differs there by at most B·resolution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from misspec import kernels, search
from misspec.domains import Box
from misspec.errors import Array
from misspec.model import Model

if TYPE_CHECKING:
    from misspec.policies.learner import Learner

RESOLUTION = 0.05
LEADERS = 8  # observed points that candidates are drawn about
ABOUT = 16  # candidates about each


class BoxSearch:
    """Offers of a box, the same for the same seed and turn."""

    def __init__(self, box: Box, seed: int) -> None:
        self.box = box
        self.seed = seed

    def candidates(self, leaders: Array, turn: int) -> Array:
        """A cover of the unit cube and points about the leaders, which may lie outside after data from elsewhere."""
        rng = np.random.default_rng([self.seed, turn, 1])
        spread = search.cover(self.box.dimension, search.CANDIDATES, [self.seed, turn])
        leaders = np.clip(leaders, 0.0, 1.0)
        return np.concatenate([spread, leaders, search.around(leaders, rng, ABOUT)]) if len(leaders) else spread

    def offer(
        self, learner: Learner, observed: Array, turn: int, *, sign: float, pending: bool, resolution: float
    ) -> Array:
        """Points in user units among which the best upper (sign = 1) or lower (−1) end lies.

        observed: points that own bands are kept of, in user units; empty for policies without.
        """
        known = self.box.encode(observed) if len(observed) else np.zeros((0, self.box.dimension))
        posterior = learner.posterior
        leaders = posterior.points[np.argsort(-posterior.averages, kind="stable")[:LEADERS]]
        candidates = self.candidates(leaders, turn)
        apart = nearest(learner.model, candidates, known)[1] > resolution if resolution and len(known) else None

        def score(U: Array) -> Array:
            values = learner.score(U, sign, pending=pending)
            return values if apart is None or len(U) != len(apart) else np.where(apart, values, -np.inf)

        found = search.polish(score, lambda U: learner.slope(U, sign, pending=pending), candidates)
        points = self.box.decode(found)
        if resolution and len(known):
            place, distance = nearest(learner.model, found, known)
            points = np.where((distance <= resolution)[:, None], observed[place], points)
        return np.unique(np.concatenate([points, observed]) if len(observed) else points, axis=0)


def nearest(model: Model, U: Array, known: Array) -> tuple[Array, Array]:
    """For each row of U the nearest known point in the kernel's metric, and its distance."""
    K = kernels.cross(model.kernel, U, known)
    squares = kernels.diagonal(model.kernel, U)[:, None] + kernels.diagonal(model.kernel, known)[None, :] - 2.0 * K
    place = squares.argmin(axis=1)
    return place, np.sqrt(np.maximum(squares[np.arange(len(U)), place], 0.0))
