"""Where evaluations succeed: a probability that is learnt from those that did and those that failed.

    label = g(x) + √λ·s·noise,   +1 for a success, −1 for a failure,   g ~ GP(m, s²k),  k a ProductMatern
    r(x)  = (1 + μ(x))/(2c),   μ the posterior mean of g, c such that the successes have r = 1 on average
    P(x)  = 1/(1 + exp((least − r(x))/0.05)),   for searches that climb where r is to be `least`

Between a success and a failure r falls from 1 to 0 as if the edge lay anywhere between them. Failures by chance make λ
large, and r nearly constant.
The kernel has length scales of its own: what makes evaluations fail need not be what moves their values. θ as in
`hyperparameters.py` is the best of a grid, one coordinate at a time, given all labels: r is a function of the
evaluations, in whatever order they came, so that no state has to hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from misspec import hyperparameters
from misspec.errors import Array
from misspec.hyperparameters import Data, Hyperposterior
from misspec.product import ProductMatern

STEPS = (-2.0, -1.0, 0.0, 1.0, 2.0)  # of the grid, in standard deviations of the prior of θ: all that is plausible
NOISES = (-7.0, -4.5, -2.5, -1.0, 0.5, 2.0)  # ln λ: from failures that are all of a region to all by chance
SHARP = 0.05  # of r, over which P falls: climbs turn at the level, and end so near that what is likely to work is found
RAREST = 0.05  # c at least: a regression on labels may round a rare success away
SWEEPS = 2  # over the coordinates: a third changes next to nothing
MOST = 200  # distinct points that r is learnt from: of more, those that cover the others best


class Feasible:
    """r, given encoded points and whether they succeeded. columns, reach: as in `hyperparameters.Hyperposterior`."""

    def __init__(
        self, points: Array, succeeded: NDArray[np.bool_], columns: Sequence[tuple[int, int]], reach: Array
    ) -> None:
        data = _covering(Data.of(points, np.where(succeeded, 1.0, -1.0)))
        target = Hyperposterior(data, columns, reach, None)
        model = hyperparameters.model_of(theta := _likeliest(target), target.fitted(theta), columns, reach)
        assert isinstance(model.kernel, ProductMatern)
        self._points, self._kernel = data.points, model.kernel
        self._offset = model.offset
        K = self._kernel(data.points, data.points) + np.diag(
            model.regularization / data.counts + hyperparameters.JITTER
        )
        self._weights = cho_solve(cho_factor(K, lower=True), data.averages - self._offset)
        successes, self._usual = data.counts * (1.0 + data.averages), 1.0
        rates = self.rate(data.points)
        self._usual = max(float(rates @ successes / successes.sum()), RAREST)
        failures = data.counts * (1.0 - data.averages)
        # whether failures lie where r is small: then they are not by chance
        self.explains = float(rates @ failures / failures.sum()) < 0.5 * self._usual

    def rate(self, U: Array) -> Array:
        """r at encoded points."""
        return np.asarray((1.0 + self._offset + self._kernel(U, self._points) @ self._weights) / (2.0 * self._usual))

    def slope(self, U: Array) -> tuple[Array, Array]:
        """r and its gradient."""
        k, dk = self._kernel.with_gradient(U, self._points)
        rate = (1.0 + self._offset + k @ self._weights) / (2.0 * self._usual)
        return rate, np.einsum("m,nmd->nd", self._weights, dk) / (2.0 * self._usual)


class Likely(NamedTuple):
    """ln P of a level of r, for searches that are to stay above it."""

    success: Feasible
    least: float

    def __call__(self, U: Array) -> Array:
        return -np.logaddexp(0.0, (self.least - self.success.rate(U)) / SHARP)

    def slope(self, U: Array) -> tuple[Array, Array]:
        """ln P and its gradient."""
        rate, gradient = self.success.slope(U)
        below = (self.least - rate) / SHARP
        return -np.logaddexp(0.0, below), gradient / (SHARP * (1.0 + np.exp(-below)))[:, None]


def _likeliest(target: Hyperposterior) -> Array:
    """The best θ of the grid, one coordinate at a time; all λ are as likely before there are data."""
    d, centre, spread = len(target.columns), target.centre, target.spread
    grid = [list(centre[j] + spread[j] * np.array(STEPS)) for j in range(len(centre))]
    grid[d] = list(NOISES)

    def value(theta: Array) -> float:
        return target(theta) + 0.5 * float((theta[d] - centre[d]) / spread[d]) ** 2

    theta = centre
    for _ in range(SWEEPS):
        for j in range(len(theta)):
            tried = [np.concatenate([theta[:j], [each], theta[j + 1 :]]) for each in grid[j]]
            theta = tried[int(np.argmax([value(each) for each in tried]))]
    return theta


def _covering(data: Data) -> Data:
    """All points up to MOST, else so many that lie farthest from each other."""
    if len(data.points) <= MOST:
        return data
    apart, rows = np.full(len(data.points), np.inf), [0]
    while len(rows) < MOST:
        apart = np.minimum(apart, ((data.points - data.points[rows[-1]]) ** 2).sum(axis=1))
        rows.append(int(apart.argmax()))
    rows.sort()
    points, averages, counts = data.points[rows], data.averages[rows], data.counts[rows]
    return Data(points, averages, counts, data.scatter * len(rows) / len(apart), round(counts.sum()))
