"""Points as policies handle them: a place, what a round offers, and what is known of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec import kernels
from misspec.errors import Array
from misspec.model import Model
from misspec.posterior import Bias, Weights

Rows = NDArray[np.intp] | slice


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Place:
    """A point: in user units, with the index and name of the candidate that it is, if any.

    key: what own bands are kept under: the candidate's row in the list where there is one that holds the point to the
    bit, else its coordinates. Members of a space have a row, but no index that users would know.
    """

    x: Array
    index: int | None
    name: str | None
    key: int | bytes
    code: Array  # as the kernel sees it, shape (1, E)
    inner: Place | None = None  # of a point [x, c], x alone

    def only(self) -> Actions:
        rows = np.array([self.key]) if isinstance(self.key, int) else None
        return Actions(self.x[None, :], self.code, rows, inner=None if self.inner is None else self.inner.only())


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Context:
    """The context of a round: the whole domain is on offer, to be listed or searched."""

    c: Array  # user units, shape (1, d_c)
    code: Array  # as the kernel sees it


def beside(X: Array, c: Array) -> Array:
    """Rows [x, c], for one c each or one for all."""
    return np.concatenate([X, np.broadcast_to(c, (len(X), c.shape[1]))], axis=1)


@dataclasses.dataclass(frozen=True, eq=False)
class Actions:
    """Points on offer in a round."""

    points: Array  # user units
    encoded: Array
    rows: Rows | None  # the candidates that they are; None: they may never have been seen before
    flat: bool = False  # whether the enlargement that costs the same however much was observed is wanted, by default
    given: bool = True  # whether they were handed in one by one, so that a row among them means something
    inner: Actions | None = None  # of points [x, c], the x alone as their own field knows them

    def offered(self) -> Actions:
        """These actions, marked as brought by a round."""
        return self if self.rows is not None else dataclasses.replace(self, flat=True)

    def part(self, chosen: NDArray[np.intp]) -> Actions:
        rows = self.rows if self.rows is None else chosen if isinstance(self.rows, slice) else self.rows[chosen]
        inner = None if self.inner is None else self.inner.part(chosen)
        return Actions(self.points[chosen], self.encoded[chosen], rows, self.flat, self.given, inner)

    def __add__(self, other: Actions) -> Actions:
        points, encoded = ((self.points, other.points), (self.encoded, other.encoded))
        inner = None if self.inner is None or other.inner is None else self.inner + other.inner
        return Actions(np.concatenate(points), np.concatenate(encoded), None, inner=inner)

    def are_all(self, size: int) -> bool:
        """Whether these are all candidates of a list of this size."""
        return isinstance(self.rows, slice) or (self.rows is not None and len(np.unique(self.rows)) == size)

    def stored(self, *, indexed: bool) -> list[Any]:
        """Indices, where users know these, or points, from which `Field.parse` makes these actions again; for points
        [x, c], those of x, and c."""
        if self.inner is not None:
            return [*self.inner.stored(indexed=indexed), self.points[:, self.inner.points.shape[1] :]]
        return [self.points if self.rows is None or not indexed else self.rows]


Round = Actions | Context | None  # what there is to choose from; None: the whole domain


def position_in(offered: Round, row: int) -> int | None:
    """The row of the actions that were handed in, if any were."""
    return row if isinstance(offered, Actions) and offered.given else None


def first_alike(offer: Actions, row: int) -> int:
    """Of points that were handed in and are the same to the bit the first, whatever rounding has made of them."""
    if offer.rows is not None or not offer.given:
        return row
    return int((offer.encoded == offer.encoded[row]).all(axis=1).argmax())


@dataclasses.dataclass(frozen=True, eq=False)
class Candidates:
    """Mean, variance, own bands and norms of weights at actions."""

    mean: Array
    variance: Array  # told and pending where they are to be chosen from, told alone for bands
    norm1: Callable[[], Array]  # ‖ζ(x)‖₁
    norm2: Callable[[], Array]  # ‖ζ(x)‖₂
    residual: Array | None  # what a budget misses; all up to here as in Glance
    bias: Bias | None
    own: tuple[Array, Array] | None  # ends of their own bands, where these ground the model's
    prior: Callable[[], Array]  # k(x,x)
    rows: Rows | None = None  # of the domain's candidates; of equal ones the first
    kept: Weights | None = None  # W over all candidates of the domain, of which these are `rows`
    flat: bool = False  # as in Actions

    def part(self, chosen: NDArray[np.intp]) -> Candidates:
        """Some of them, without their weights."""
        own = None if self.own is None else (self.own[0][chosen], self.own[1][chosen])
        mean, variance = self.mean[chosen], self.variance[chosen]
        return dataclasses.replace(self, mean=mean, variance=variance, own=own, rows=None, kept=None)

    def row(self, i: NDArray[np.intp] | int) -> NDArray[np.intp]:
        """Rows of the domain's candidates."""
        return np.asarray(i if self.rows is None or isinstance(self.rows, slice) else self.rows[i])


def nearest_point(
    model: Model, U: Array, known: Array, apart: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.intp], Array]:
    """For each row of U the nearest known point in the kernel's metric, and its distance.

    apart: pairs that are different however near they are, shape (n, m); no known point is nearest to such a row.
    """
    if not len(U):
        return np.zeros(0, dtype=np.intp), np.zeros(0)
    K = kernels.cross(model.kernel, U, known)
    squares = kernels.diagonal(model.kernel, U)[:, None] + kernels.diagonal(model.kernel, known)[None, :] - 2.0 * K
    if apart is not None:
        squares[apart] = np.inf
    place = squares.argmin(axis=1)
    return place, np.sqrt(np.maximum(squares[np.arange(len(U)), place], 0.0))
