"""A domain as policies use it, behind one protocol: `field_of` is the only place that asks which kind it is.

A policy parses, offers and looks at points through its field, and feeds posteriors through it. A new kind of domain is
a class here, or a domain that brings its own (`domain.field(seed, resolution)`).

*Boxes.* A policy chooses from a finite offer that holds the maximiser: Sobol' candidates and points around the best
observed ones, the best of which are polished with L-BFGS-B, and all points that have own bands. Two points within the
*resolution* of each other are the same to a grounded policy: a point a hair's breadth from an observed one has no own
band, and would escape what was learnt there. Queries that come that near to an observed point go to the point itself.
Nearness is in the kernel's metric,

    √(k(x,x) + k(z,z) − 2k(x,z)) ≤ resolution,

about |x − z|/length scale for smooth kernels; a function of norm B differs there by at most B·resolution.

*Spaces.* The same, with legal points only: two points that differ in an integer or a choice are never the same, however
near they are. A space without floats and with at most 20,000 members is searched whole, as a list is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from misspec import kernels, search
from misspec.domains import Domain
from misspec.errors import Array, InvalidInput, StorageError, array, shown
from misspec.files import frames
from misspec.model import Model
from misspec.policies.core.active import Active
from misspec.policies.core.answers import Query, frozen
from misspec.policies.core.basis import Basis
from misspec.policies.core.points import Actions, Candidates, Place, Round
from misspec.posterior import Posterior
from misspec.theory.own_bands import OwnBands

RESOLUTION = 0.05
ROUNDING = 1e-9  # distance at which a point read back from a file is the one that was written, in each code
NOTHING = "there is nothing to choose from or to learn: no indices or points were handed in"


DIFFERS = "this state holds its domain, and the one handed in differs from it; leave domain= out"


class Search(NamedTuple):
    """A score to maximise where an offer has to be searched for."""

    posterior: Posterior
    own: OwnBands | None  # points that have own bands are offered too
    score: Callable[[Array, Array], Array]  # of points as the kernel sees them, and as users do
    slope: Callable[[Array], tuple[Array, Array]]  # the same with gradients, of points as the kernel sees them
    turn: int  # another turn, another cover
    snap: bool = True  # whether points within the resolution of an observed one are left out
    effort: search.Effort = search.FULL


class Field(Protocol):
    """A domain as policies use it."""

    @property
    def domain(self) -> Domain: ...

    @property
    def size(self) -> int:
        """Candidates; 0 where there is no list of them."""

    @property
    def edges(self) -> bool:
        """Whether points that are handed in can lie outside, where nothing is asked."""

    @property
    def indexed(self) -> bool:
        """Whether users know the candidates by an index."""

    @property
    def fixed(self) -> bool:
        """Whether what can be asked is the same in every round, unless actions are handed in."""

    def parse(self, given: ArrayLike, model: Model) -> Actions:
        """Read what a user handed in: indices or names of candidates, or points, by name or not."""

    def find(self, named: Any, among: Sequence[Place]) -> list[int]:
        """Positions in `among` that a dict or a candidate's name refers to."""

    def describe(self, place: Place) -> dict[str, Any]:
        """Fields of an answer that name a place: `params` on a space, `row` on a table."""

    def keys(self, actions: Actions) -> Sequence[int | bytes]:
        """Keys of own bands."""

    def whole(self, what: str) -> Actions:
        """All candidates; InvalidInput where there is no list of them."""

    def place(self, actions: Actions, row: int) -> Place:
        """One of the actions."""

    def only(self, place: Place) -> Actions:
        """One place as actions."""

    def stored_place(self, index: int | None, x: Any, context: Any = None) -> Place:
        """The place of a query that was saved."""

    def posterior(self, model: Model, *, weights: bool, budget: int | None) -> Posterior:
        """A posterior that this field can feed; weights: whether ‖ζ‖₁ is needed at every step."""

    def learn(
        self, posterior: Posterior, place: Place, y: float, *, expected: bool, noise: float | None = None
    ) -> None:
        """A result; expected: the place counts as pending. noise: its own standard deviation."""

    def expect(self, posterior: Posterior, place: Place) -> None:
        """A pending query."""

    def release(self, posterior: Posterior, place: Place) -> None:
        """A pending query that has no result."""

    def look(self, posterior: Posterior, own: OwnBands | None, actions: Actions, *, pending: bool) -> Candidates:
        """Mean, variance and own bands of the actions; pending: with the variance for choosing."""

    def within(self, context: Any, given: Any, model: Model) -> Round:
        """A round with a context; given: the actions on offer, None for all of the domain."""

    def pair(self, given: Any, contexts: Any, model: Model) -> Actions:
        """Points that were handed in with a context each, or one for all."""

    def stored(self, actions: Actions) -> list[Any]:
        """Points or indices from which `parse` makes these actions again; for `pair`, contexts too."""

    def point(self, query: Query) -> Array:
        """The whole point of a query, as `place.x` has it."""

    def offer(self, search_for: Callable[[], Search], offered: Round = None) -> Actions:
        """The offer to choose from: the actions offered, or, holding the maximiser, points of the whole domain."""

    def spread(self, offered: Round = None) -> Actions:
        """Points all over the domain: the candidates, or a cover; none where points come with the rounds."""

    def draw(self, rng: np.random.Generator, offered: Round = None) -> Actions:
        """Actions of which a uniform row is a uniform point of what is on offer."""

    def is_whole(self, actions: Actions | None) -> bool:
        """Whether these are all the candidates."""

    def basis(self, model: Model) -> Basis | None:
        """Features of the whole domain, for samples; None where those are only ever looked at at actions."""

    def active(self, model: Model, seed: int) -> Active:
        """The whole domain as a set from which a phased policy eliminates."""

    def state(self) -> dict[str, Any]:
        """The domain as JSON, except large arrays."""


class Shared:
    """Base of all fields: points that may never have been seen before."""

    domain: Any
    indexed = False
    fixed = True
    edges = False  # whether points that are handed in can lie outside, where nothing is asked

    def parse(self, given: ArrayLike, model: Model) -> Actions:
        if frames.is_named(given):
            return self._points(given, model)
        raw = array("expected domain indices or points, one per row", given)
        if raw.ndim == 1 and raw.size and raw.dtype.kind in "iu":
            return self._rows(raw)
        if raw.size == 0:
            raise InvalidInput(NOTHING)
        if raw.dtype == bool:
            raise InvalidInput(
                "expected domain indices or points, got True and False; np.flatnonzero(mask) gives indices"
            )
        if raw.ndim != 2:
            raise InvalidInput(
                "expected domain indices (1-d integers) or points (2-d, one per row, as in [[0.1, 0.2]]), "
                f"got {raw.dtype} of shape {raw.shape}"
            )
        return self._points(raw, model)

    def _points(self, given: Any, model: Model) -> Actions:
        points = self.domain.validate(given)
        if not len(points):
            raise InvalidInput(NOTHING)
        encoded = self.domain.encode(points)
        kernels.check_bounded(model.kernel, encoded, "the points handed in")
        return Actions(points, encoded, None)

    def _rows(self, indices: Any) -> Actions:
        raise InvalidInput(
            f"indices need a Finite domain, this is {shown(self.domain)}; hand in points, one per row "
            f"({len(indices)} given)"
        )

    def place(self, actions: Actions, row: int) -> Place:
        key = actions.points[row].tobytes()
        return Place(np.frombuffer(key)[:], None, None, key)  # a copy: a query must not keep a whole action set alive

    def only(self, place: Place) -> Actions:
        return Actions(place.x[None, :], self.domain.encode(place.x[None, :]), None)

    def keys(self, actions: Actions) -> Sequence[int | bytes]:
        return [x.tobytes() for x in actions.points]

    def find(self, named: Any, among: Sequence[Place]) -> list[int]:
        if isinstance(named, str):
            raise InvalidInput(f"expected a Query that this policy asked, or its id, got {shown(named)}")
        U = self.domain.encode(named)
        if not among:
            return []
        known = self.domain.encode(np.array([place.x for place in among]))
        distance = np.where(self._apart(U, known), np.inf, np.abs(known - U).max(axis=1))
        near = np.flatnonzero(distance <= ROUNDING)
        return [int(i) for i in near if distance[i] == distance[near].min()]  # those to the bit, if there are any

    def _apart(self, U: Array, known: Array) -> Any:  # noqa: ARG002  # all differ by degrees
        """Which of the known points cannot be this one, however near."""
        return False

    def describe(self, place: Place) -> dict[str, Any]:  # noqa: ARG002  # coordinates have no names
        return {}

    def within(self, context: Any, given: Any, model: Model) -> Round:  # noqa: ARG002
        raise InvalidInput(
            f"{shown(self.domain)} has no contexts, got {shown(context)}; ms.Joint(domain, contexts) has"
        )

    def pair(self, given: Any, contexts: Any, model: Model) -> Actions:  # noqa: ARG002
        raise InvalidInput(
            f"{shown(self.domain)} has no contexts, got {shown(contexts)}; ms.Joint(domain, contexts) has"
        )

    def stored(self, actions: Actions) -> list[Any]:
        # members of a space are rows to the policy only
        return [actions.points if actions.rows is None or not self.indexed else actions.rows]

    def point(self, query: Query) -> Array:
        return query.x

    def stored_place(self, index: int | None, x: Any, context: Any = None) -> Place:
        point = self._stored_point(index, x, context)
        return Place(point, None, None, point.tobytes())

    def _stored_point(self, index: int | None, x: Any, context: Any) -> Array:
        """Of a query that was saved without an index."""
        point = frozen(np.asarray(x, dtype=np.float64))
        if index is not None or context is not None or point.shape != (self.domain.dimension,):
            raise StorageError(
                f"a stored query on {self.domain!r} must have {self.domain.dimension} coordinate(s), and no more; got "
                f"index {shown(index)}, x {shown(x)}, context {shown(context)}"
            )
        return point

    def encoded(self, place: Place) -> Array:
        """A place as the kernel sees it, shape (1, E)."""
        return np.asarray(self.domain.encode(place.x[None, :]))

    def posterior(self, model: Model, *, weights: bool, budget: int | None) -> Posterior:
        return Posterior(model, self.domain, weights=weights, budget=budget)

    def learn(
        self, posterior: Posterior, place: Place, y: float, *, expected: bool, noise: float | None = None
    ) -> None:
        posterior.add(self.encoded(place), y, expected=expected, noise=noise)

    def expect(self, posterior: Posterior, place: Place) -> None:
        posterior.expect(self.encoded(place))

    def release(self, posterior: Posterior, place: Place) -> None:
        posterior.release(self.encoded(place))

    def look(self, posterior: Posterior, own: OwnBands | None, actions: Actions, *, pending: bool) -> Candidates:
        here = posterior.look(actions.encoded, pending=pending)
        low, high = (None, None)
        if own is not None:
            low, high = own.at(self.keys(actions))

        def prior() -> Array:
            return kernels.diagonal(posterior.model.kernel, actions.encoded)

        return Candidates(
            here.mean, here.variance, low, high, None, here.norm1, here.norm2, prior, None, actions.flat, here.residual,
            here.bias,
        )  # fmt: skip
