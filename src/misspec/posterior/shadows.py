"""Shadows: observed points that are not in the dictionary, yet have covariances that it cannot see.

    e(x)       k(x, x_j) − φ(x)·φ(x_j) for each shadow j                                   (s,)

A residual of 1e-10 allows covariances of 1e-5 with points far from the data, and many observations close together
multiply them by n/λ. Treated as features of their own, such points would be rounding noise; ignored, they move the mean
by up to 1e-4. So their covariances are kept beside the dictionary and enter exactly.

    E          e of the shadows themselves, k(x_i, x_j) − φ(x_i)·φ(x_j)                    (s, s)
    δ          what corrects their averages for it: δ = −Eα,  α = n∘(ȳ + δ − Fw)/λ         (s,)

Two shadows with hundreds of results each have a covariance of at most the tolerance, times n/λ. Regression on features
does not know it; told ȳ + δ in place of ȳ it gives what a dense solve gives. δ is held until what was told since could
make a difference.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from misspec.errors import Array

MOST_SHADOWS = 128  # shadows kept at most, or twice the rank where that is more


class Shadows:
    """Rows of the shadows in the table of points, with weights that say which are worth keeping.

    Law: what is left out is only the covariance of points that together with their counts are too light, and that of
    the lightest of too many.
    """

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.weights: Array = np.zeros(0)

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, row: int, weight: float) -> None:
        self.rows.append(row)
        self.weights = np.append(self.weights, weight)

    def prune(self, rank: int, least: float = -math.inf) -> NDArray[np.intp] | None:
        """Forget shadows lighter than `least`, and the lightest of too many; returns which are kept, None for all."""
        keep = self.weights > least
        excess = int(keep.sum()) - max(MOST_SHADOWS, 2 * rank)
        if excess > 0:
            keep[np.flatnonzero(keep)[np.argsort(self.weights[keep], kind="stable")[:excess]]] = False
        if keep.all():
            return None
        kept = np.flatnonzero(keep)
        self.rows, self.weights = [self.rows[k] for k in kept], self.weights[kept]
        return kept
