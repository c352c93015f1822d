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

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from misspec import hyperparameters
from misspec.domains import Domain
from misspec.errors import Array
from misspec.hyperparameters import Data, Hyperposterior
from misspec.policies.core.points import Place
from misspec.product import ProductMatern

EDGE, SURE = 0.5, 0.95  # least r of a query: half-way between success and failure, which teaches where the edge is;
# and of what is recommended, or asked where many failed
ANYWHERE = -math.inf  # least r of a query that may fail for what it is worth if it does not
LIKELY = 0.85  # r from which on an evaluation is taken to work, where only some parameters are chosen
RECENT = 20  # evaluations over which failures are counted, and forgotten: 1/√n of them may fail, 10 % at 100
AT_ONCE = 5  # of the next evaluations none is where one has just failed, even if it may have been chance
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
        model = hyperparameters.sampled_model(theta := _likeliest(target), target.fitted(theta), columns, reach)
        assert isinstance(model.kernel, ProductMatern)
        self._points, self._kernel = data.points, model.kernel
        self._offset = model.offset
        K = self._kernel(data.points, data.points)
        K[np.diag_indices_from(K)] += model.regularization / data.counts + hyperparameters.JITTER
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


class Weight(Protocol):
    """What is added to scores of encoded points, and its gradient."""

    def __call__(self, U: Array) -> Array: ...
    def slope(self, U: Array) -> tuple[Array, Array]: ...


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


class Outcomes:
    """Where evaluations ended: told places and points that failed, in the order of ending, and what they teach."""

    def __init__(self, domain: Domain, columns: Sequence[tuple[int, int]], reach: Array) -> None:
        self.told: list[Place] = []
        self.y: list[float] = []  # the results there
        self.dropped: list[Place] = []  # where an evaluation failed
        self.failed: list[bool] = []  # of each evaluation that has ended
        self._domain, self._columns, self._reach = domain, columns, reach
        self.units = np.repeat(reach, [stop - start for start, stop in columns])  # of each column of the encoding
        self._codes: tuple[list[Array], list[Array]] = [], []  # of what is told and of what failed, as far as needed
        self._learnt: tuple[tuple[int, int], Feasible] | None = None  # after so many results and failures

    def tell(self, places: Sequence[Place], y: Sequence[float]) -> None:
        """Results at these places."""
        self.told += places
        self.y += y
        self.failed += [False] * len(places)

    def fail(self, place: Place) -> None:
        """An evaluation that failed."""
        self.dropped.append(place)
        self.failed.append(True)

    # -- distances, in units of the reach of each parameter ------------------------------------------------------

    def codes(self, points: Sequence[Array]) -> Array:
        """Points in these units."""
        return np.asarray(self._domain.encode(points) / self.units) if points else np.zeros((0, len(self.units)))

    def _ended(self) -> list[Array]:
        """The codes of what is told, and of what failed; each point is encoded once."""
        for codes, places in zip(self._codes, (self.told, self.dropped), strict=True):
            codes += list(self.codes([place.x for place in places[len(codes) :]]))
        return [np.reshape(codes, (-1, len(self.units))) for codes in self._codes]

    def distance(self, encoded: Array, codes: Array) -> Array:
        """To the nearest of some points, ∞ where there are none."""
        return self._apart(encoded, codes).min(axis=1) if len(codes) else np.full(len(encoded), np.inf)

    def _apart(self, encoded: Array, codes: Array) -> Array:
        from scipy.spatial.distance import cdist  # not while misspec is imported

        return np.asarray(cdist(encoded / self.units, codes))

    def is_told(self, encoded: Array) -> bool:
        """Whether there is a result at this point, shape (1, E)."""
        return bool(self.distance(encoded, self._ended()[0])[0] == 0.0)

    def tried(self, pending: Sequence[Array]) -> Array:
        """The codes of all points that were tried or are pending."""
        return np.concatenate([self.codes(pending), *reversed(self._ended())])

    @property
    def kinds(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The columns of the encoding that stand for options, and those that are numbers."""
        widths = [stop - start for start, stop in self._columns]
        wide = np.repeat(widths, widths) > 1
        return np.flatnonzero(wide), np.flatnonzero(~wide)

    def spread(self, points: Sequence[Array], pending: Sequence[Array]) -> int:
        """Of some points the farthest from all that were tried or are pending, on the side of successes."""
        (told, dropped), tried = self._ended(), self.tried(pending)
        if not len(tried):
            return 0
        encoded = self._domain.encode(points)
        apart = self.distance(encoded, tried)
        if len(told) and len(dropped):  # where the nearest evaluation has succeeded, if any is there
            nearer = self.distance(encoded, told) < self.distance(encoded, dropped)
            apart = np.where(nearer, 1.0, 0.0 if nearer.any() else 1.0) * apart
        return int(apart.argmax())

    # -- where evaluations succeed -------------------------------------------------------------------------------

    @property
    def success(self) -> Feasible | None:
        """r; None while no evaluation has failed, or all."""
        if not self.dropped or not self.told:
            return None
        now = len(self.told), len(self.dropped)
        if self._learnt is None or self._learnt[0] != now:
            points = self._domain.encode([place.x for place in (*self.told, *self.dropped)])
            succeeded = np.arange(len(points)) < len(self.told)
            self._learnt = now, Feasible(points, succeeded, self._columns, self._reach)
        return self._learnt[1]

    def likely(self, least: float) -> Likely | None:
        """What scores add where r is to be above `least`; None while there is no r."""
        return None if self.success is None else Likely(self.success, least)

    def near(self, x: Array) -> tuple[float, Array] | None:
        """r at a point that is not sure to work, and the nearest one that failed; None elsewhere, and by chance."""
        success = self.success
        if success is None or not success.explains:
            return None
        encoded = self._domain.encode(x[None, :])
        rate = float(np.clip(success.rate(encoded)[0], 0.0, 1.0))
        return None if rate >= SURE else (rate, self.dropped[int(self._apart(encoded, self._ended()[1]).argmin())].x)

    def least(self, n: int) -> float:
        """Least r of the query after n evaluations: one minus the failures that it may add to the latest ones. If that
        is a whole one, √n queries may be anywhere; not all, since each is chosen to find more, and is rarely the best.
        """
        if self.success is None or not self.success.explains:  # failures by chance keep little away
            return EDGE
        return level(self.failed, n)

    def fails(self, encoded: Array, least: float, pending: int) -> NDArray[np.bool_]:
        """Where r is below `least`, unless as many evaluations have succeeded right there as failed. pending: how many
        evaluations are."""
        success = self.success
        if success is None:
            return np.zeros(len(encoded), dtype=bool)
        fails = success.rate(encoded) < least
        ended = len(self.failed) + pending - AT_ONCE
        told, dropped = self._ended()
        latest = dropped[len(dropped) - sum(self.failed[max(ended, 0) :]) :]
        if len(latest):
            fails |= self.distance(encoded, latest) == 0.0
        succeeded, failed = ((self._apart(encoded[fails], each) == 0.0).sum(axis=1) for each in (told, dropped))
        fails[fails] = (succeeded == 0) | (failed > succeeded)
        return fails


def level(failed: Sequence[bool], n: int) -> float:
    """Least r of the query after n evaluations, by which of them have failed."""
    ages = np.arange(len(failed))[::-1]
    latest = float((1.0 - 1.0 / RECENT) ** ages @ failed)
    left = min(n + 1, RECENT) / math.sqrt(n + 1) - latest
    if left >= 1.0 and allows(math.sqrt, n):
        return ANYWHERE
    return min(max(1.0 - left, EDGE), SURE)


def allows(budget: Callable[[float], float], n: int) -> bool:
    """Whether a budget of rounds, a function of their number, has room for one more after n."""
    return math.floor(budget(n + 1.0)) > math.floor(budget(float(n)))


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
