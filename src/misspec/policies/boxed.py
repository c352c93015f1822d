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
from numpy.typing import NDArray

from misspec import kernels, search
from misspec.domains import Box
from misspec.errors import Array
from misspec.model import Model
from misspec.posterior import Posterior

if TYPE_CHECKING:
    from misspec.policies.learner import Learner

RESOLUTION = 0.05
LEADERS = 8  # observed points that candidates are drawn about
ABOUT = 16  # candidates about each
RIM = 48  # and about an observed point at which a climb ended
SAME = 1e-7  # distance at which two points are one to rounding


class BoxSearch:
    """Offers of a box, the same for the same seed and turn."""

    def __init__(self, box: Box, seed: int) -> None:
        self.box = box
        self.seed = seed

    def candidates(self, posterior: Posterior, turn: int) -> Array:
        """A cover of the unit cube, and points about the best observed ones."""
        rng = np.random.default_rng([self.seed, turn, 1])
        spread = search.cover_with_faces(self.box.dimension, search.CANDIDATES, [self.seed, turn])
        best = np.argsort(-posterior.averages, kind="stable")[:LEADERS]
        leaders = np.clip(posterior.points[best], 0.0, 1.0)  # data from elsewhere may lie outside
        return np.concatenate([spread, leaders, search.around(leaders, rng, ABOUT)]) if len(leaders) else spread

    def offer(
        self, learner: Learner, observed: Array, turn: int, *, sign: float, pending: bool, resolution: float
    ) -> Array:
        """Points in user units among which the best upper (sign = 1) or lower (−1) end lies.

        observed: points of the box that own bands are kept of, in user units; empty for policies without.
        """
        candidates, known = self.candidates(learner.posterior, turn), self.box.encode(observed)
        near = max(resolution, SAME)

        def free(U: Array) -> NDArray[np.bool_]:
            return nearest(learner.model, U, known)[1] > near if len(known) else np.ones(len(U), dtype=bool)

        candidates = candidates[free(candidates)]  # the others are the observed points, which are offered anyway
        found = search.polish(
            lambda U: learner.score(U, sign, pending=pending),
            lambda U: learner.slope(U, sign, pending=pending),
            candidates,
        )
        if not len(known):
            return np.unique(self.box.decode(found), axis=0)
        outside = free(found)
        # a climb that ends at an observed point leaves what is next to it, just outside the resolution
        rng = np.random.default_rng([self.seed, turn, 2])
        ends = np.unique(nearest(learner.model, found, known)[0][~outside])
        rims = search.around(known[ends], rng, RIM)
        offer = np.concatenate([found[outside], rims[free(rims)]])
        return np.unique(np.concatenate([self.box.decode(offer), observed]), axis=0)


def nearest(model: Model, U: Array, known: Array) -> tuple[NDArray[np.intp], Array]:
    """For each row of U the nearest known point in the kernel's metric, and its distance."""
    if not len(U):
        return np.zeros(0, dtype=np.intp), np.zeros(0)
    K = kernels.cross(model.kernel, U, known)
    squares = kernels.diagonal(model.kernel, U)[:, None] + kernels.diagonal(model.kernel, known)[None, :] - 2.0 * K
    place = squares.argmin(axis=1)
    return place, np.sqrt(np.maximum(squares[np.arange(len(U)), place], 0.0))
