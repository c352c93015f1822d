"""A domain as policies use it: what most kinds share, and lists, boxes and spaces (`contextual.py` has the others).

A policy parses, offers and looks at points through its field. A new kind of domain brings a class that derives from
`Field`, returned by `domain.field(seed, resolution)`. `fields.field_of` alone asks which kind a domain is.

*Boxes.* A policy chooses from a finite offer that holds the maximiser: Sobol' candidates and points around the best
observed ones, the best of which are polished with L-BFGS-B, and all points that have own bands. Two points within the
*resolution* of each other are the same to a grounded policy: a point a hair's breadth from an observed one has no own
band, and would escape what was learnt there. Queries that come that near to an observed point go to the point itself.
Nearness is in the kernel's metric,

    √(k(x,x) + k(z,z) − 2k(x,z)) ≤ resolution,

about |x − z|/length scale for smooth kernels; a function of norm B differs there by at most B·resolution. On a space,
points are legal only, and two that differ in an integer or a choice are never the same, however near they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import kernels, search
from misspec.domains import Finite, Space
from misspec.errors import Array, InvalidInput, StorageError, array, shown
from misspec.files import frames
from misspec.model import Model
from misspec.policies.core.answers import frozen
from misspec.policies.core.points import Actions, Candidates, Place, Round, beside, nearest_point
from misspec.posterior import Posterior
from misspec.theory.own_bands import OwnBands

RESOLUTION = 0.05
ROUNDING = 1e-9  # distance at which a point read back from a file is the one that was written, in each code
LEADERS = 8  # observed points that candidates are drawn around
ABOUT = 16  # candidates around each
RIM = 48  # and around an observed point at which a climb ended
SAME = 1e-7  # distance at which two points are one to rounding
NOTHING = "there is nothing to choose from or to learn: no indices or points were handed in"


class Search(NamedTuple):
    """A score to maximise where an offer has to be searched for."""

    posterior: Posterior
    own: OwnBands | None  # points that have own bands are offered too
    score: Callable[[Array, Array], Array]  # of points as the kernel sees them, and as users do
    slope: Callable[[Array], tuple[Array, Array]]  # the same with gradients, of points as the kernel sees them
    turn: int  # another turn, another cover
    snap: bool = True  # whether points within the resolution of an observed one are left out
    effort: search.Effort = search.FULL


class Field:
    """A domain as policies use it: by default, points that may never have been seen before.

    size       candidates; 0 where there is no list of them
    indexed    whether users know the candidates by an index
    fixed      whether what can be asked is the same in every round, unless actions are handed in
    searched   whether an offer has to be searched for
    """

    domain: Any
    listed: Finite | None = None  # the candidates
    size = 0
    indexed = False
    fixed = True
    searched = True  # with the whole of a domain that is neither a list nor brought by the rounds
    resolution = 0.0  # distance up to which two points of a searched domain are the same

    # -- points ------------------------------------------------------------------------------------------------

    def parse(self, given: ArrayLike, model: Model | None, contexts: Any = None) -> Actions:
        """Read what a user handed in: indices or names of candidates, or points, by name or not. contexts: one for
        each point, or one for all. model: whose kernel must be at most 1 there, if that is to be checked."""
        if contexts is not None:
            raise no_contexts(self.domain, contexts)
        if frames.is_named(given):
            return self._points(given, model)
        raw = array("expected domain indices or points, one per row", given)
        if raw.ndim == 1 and raw.size and raw.dtype.kind in "iu":
            return self._rows(raw)
        if raw.size == 0:
            raise InvalidInput(NOTHING)
        if raw.dtype == bool:
            raise InvalidInput("expected indices or points, got True and False; np.flatnonzero(mask) gives indices")
        if raw.ndim != 2:
            raise InvalidInput(
                "expected domain indices (1-d integers) or points (2-d, one per row, as in [[0.1, 0.2]]), "
                f"got {raw.dtype} of shape {raw.shape}"
            )
        return self._points(raw, model)

    def _points(self, given: Any, model: Model | None) -> Actions:
        points = self.domain.validate(given)
        if not len(points):
            raise InvalidInput(NOTHING)
        encoded = self.domain.encode(points)
        if model is not None:
            kernels.check_bounded(model.kernel, encoded, "the points handed in")
        return Actions(points, encoded, None)

    def _rows(self, indices: Any) -> Actions:  # noqa: ARG002  # none here
        raise InvalidInput(f"indices need a Finite domain, not {shown(self.domain)}; hand in points, one per row")

    def within(self, context: Any, given: Any, model: Model) -> Round:  # noqa: ARG002
        """A round with a context; given: the actions on offer, None for all of the domain."""
        raise no_contexts(self.domain, context)

    def place(self, actions: Actions, row: int) -> Place:
        """One of the actions."""
        key = actions.points[row].tobytes()  # copies: a query must not keep a whole action set alive
        x = np.frombuffer(key)[:]
        return Place(x, None, None, key, self._code(x[None, :]))  # alone, as a restored query is encoded

    def stored_place(self, index: int | None, x: Any, context: Any = None) -> Place:
        """The place of a query that was saved."""
        point = frozen(np.asarray(x, dtype=np.float64))
        if index is not None or context is not None or point.shape != (self.domain.dimension,):
            raise StorageError(
                f"a stored query on {self.domain!r} must have {self.domain.dimension} coordinate(s), and no more; got "
                f"index {shown(index)}, x {shown(x)}, context {shown(context)}"
            )
        return Place(point, None, None, point.tobytes(), self._code(point[None, :]))

    def _code(self, point: Array) -> Array:
        return np.asarray(self.domain.encode(point))

    def keys(self, actions: Actions) -> Sequence[int | bytes]:
        """Keys of own bands."""
        return [x.tobytes() for x in actions.points]

    def find(self, named: Any, among: Sequence[Place]) -> list[int]:
        """Positions in `among` that a dict or a candidate's name refers to."""
        if isinstance(named, str):
            raise InvalidInput(f"expected a Query that this policy asked, or its id, got {shown(named)}")
        U = self.domain.encode(named)
        if not among:
            return []
        known = np.concatenate([place.code for place in among])
        apart = self.domain.apart(U, known) if hasattr(self.domain, "apart") else None  # however near they are
        distance = np.where(False if apart is None else apart[0], np.inf, np.abs(known - U).max(axis=1))
        near = np.flatnonzero(distance <= ROUNDING)
        return [int(i) for i in near if distance[i] == distance[near].min()]  # those to the bit, if there are any

    def describe(self, place: Place) -> dict[str, Any]:  # noqa: ARG002  # coordinates have no names
        """Fields of an answer that name a place: `params` on a space, `row` on a table."""
        return {}

    # -- what is known of them ---------------------------------------------------------------------------------

    def look(self, posterior: Posterior, own: OwnBands | None, actions: Actions, *, pending: bool) -> Candidates:
        """Mean, variance and own bands of the actions; pending: with the variance for choosing."""
        return Candidates(
            *posterior.look(actions.encoded, pending=pending),
            own=None if own is None else own.at(self.keys(actions)),
            prior=lambda: kernels.diagonal(posterior.model.kernel, actions.encoded),
            flat=actions.flat,
        )

    # -- choosing ----------------------------------------------------------------------------------------------

    def whole(self, what: str) -> Actions:
        """All candidates; InvalidInput where there is no list of them. what: needs them, for the message."""
        raise NotImplementedError

    def offer(self, search_for: Callable[[], Search], offered: Round = None) -> Actions:  # noqa: ARG002  # all are scored
        """The offer to choose from: the actions offered, or, holding the maximiser, points of the whole domain."""
        return offered if isinstance(offered, Actions) else self.whole("")

    def spread(self, offered: Round = None) -> Actions:  # noqa: ARG002
        """Points all over the domain: the candidates, or a cover; none where points come with the rounds."""
        return self.whole("")

    def draw(self, rng: np.random.Generator, offered: Round = None) -> Actions:  # noqa: ARG002  # a uniform row of all
        """Actions of which a uniform row is a uniform point of what is on offer."""
        return offered if isinstance(offered, Actions) else self.whole("")


def no_contexts(domain: Any, given: Any) -> InvalidInput:
    return InvalidInput(f"{shown(domain)} has no contexts, got {shown(given)}; ms.Joint(domain, contexts) has")


class _Listed(Field):
    """All candidates are in a list: Tracked posteriors, own bands by index."""

    listed: Finite
    searched = False

    def __init__(self, domain: Any, candidates: Finite) -> None:
        self.domain = domain
        self.listed = candidates
        self.size = len(candidates)

    def arm(self, index: int) -> Place:
        """The place of a candidate."""
        X = self.listed
        name = None if X.names is None else X.names[index]
        return Place(X.points[index], index if self.indexed else None, name, index, X.encoded[index : index + 1])

    def whole(self, what: str) -> Actions:  # noqa: ARG002  # never refused
        return Actions(self.listed.points, self.listed.encoded, slice(None))

    def place(self, actions: Actions, row: int) -> Place:
        rows = actions.rows
        if rows is None:
            index = int(self.listed.indices(actions.points[row][None, :])[0])
            return self.arm(index) if index >= 0 else super().place(actions, row)
        return self.arm(row if isinstance(rows, slice) else int(rows[row]))

    def keys(self, actions: Actions) -> Sequence[int | bytes]:
        if actions.rows is not None:
            return range(self.size) if isinstance(actions.rows, slice) else actions.rows.tolist()
        indices = self.listed.indices(actions.points).tolist()
        return [x.tobytes() if i < 0 else i for x, i in zip(actions.points, indices, strict=True)]

    def look(self, posterior: Any, own: OwnBands | None, actions: Actions, *, pending: bool) -> Candidates:
        rows = actions.rows
        if rows is None:
            return super().look(posterior, own, actions, pending=pending)
        residual, bias = (None, None) if posterior.budget is None else posterior.missed_over(rows)
        return Candidates(
            mean=posterior.mean[rows],
            variance=(posterior.pending_variance if pending else posterior.variance)[rows],
            own=None if own is None else (own.lower[rows], own.upper[rows]),
            rows=posterior.first(rows),
            norm1=lambda: posterior.weights_norm1(None if isinstance(rows, slice) else rows),
            norm2=lambda: posterior.weights_norm2()[rows],
            prior=lambda: posterior.prior[rows],
            kept=posterior.weights_kept,
            residual=residual,
            bias=bias,
        )


class FiniteField(_Listed):
    """A list of candidates that users know by index, and by name or row where they have one."""

    indexed = True

    def __init__(self, domain: Finite) -> None:
        super().__init__(domain, domain)

    def parse(self, given: Any, model: Model | None, contexts: Any = None) -> Actions:
        if contexts is None and isinstance(given, list | tuple) and given and all(isinstance(x, str) for x in given):
            return self._rows(self.listed.named(given))
        return super().parse(given, model, contexts)

    def _points(self, given: Any, model: Model | None) -> Actions:
        points, rows = self.listed.match(given)
        if rows is not None and len(rows) and rows.min() >= 0:
            return self._rows(rows)
        return super()._points(points, model)

    def _rows(self, indices: Any) -> Actions:
        rows = self.listed.validate_indices(indices)
        return Actions(self.listed.points[rows], self.listed.encoded[rows], rows)

    def find(self, named: Any, among: Sequence[Place]) -> list[int]:
        wanted = (self.listed.named([named]) if isinstance(named, str) else self.listed.matches(named)[0]).tolist()
        if not wanted:  # a point that is no candidate
            return super().find(named, among)
        return [i for i, place in enumerate(among) if place.index in wanted]

    def describe(self, place: Place) -> dict[str, Any]:
        return self.listed.describe(place.index)

    def stored_place(self, index: int | None, x: Any, context: Any = None) -> Place:
        if index is None:
            return super().stored_place(index, x, context)
        if context is not None or not 0 <= index < self.size:
            raise StorageError(f"a stored query is of candidate {shown(index)}, and there are {self.size}")
        return self.arm(index)


class _OfSpace:
    """What fields of spaces share."""

    domain: Any

    def describe(self, place: Place) -> dict[str, Any]:
        return {"params": self.domain.params(place.x)}


class MembersField(_OfSpace, _Listed):
    """A space without floats and with few members: a list to policies, a space to users, who see no index."""

    def __init__(self, space: Space) -> None:
        super().__init__(space, space.members())

    def stored_place(self, index: int | None, x: Any, context: Any = None) -> Place:
        return self.place(super().stored_place(index, x, context).only(), 0)

    def draw(self, rng: np.random.Generator, offered: Round = None) -> Actions:
        if isinstance(offered, Actions):
            return offered
        row = rng.integers(self.size, size=1)
        return Actions(self.listed.points[row], self.listed.encoded[row], row)


class BoxField(Field):
    """A box: posteriors anywhere, offers by search; the same for the same seed and turn."""

    def __init__(self, domain: Any, seed: int, resolution: float) -> None:
        self.domain, self.seed, self.resolution = domain, seed, resolution

    def whole(self, what: str) -> Actions:
        remedy = "hand in points, or make a list of them: box.grid(n), space.cover(n)"
        raise InvalidInput(f"{what} needs a Finite domain, this is {shown(self.domain)}; {remedy}")

    def _actions(self, points: Array) -> Actions:
        return Actions(points, self.domain.encode(points), None)

    def offer(self, search_for: Callable[[], Search], offered: Round = None) -> Actions:
        """Points among which the maximiser lies: found by search, observed, or just outside the resolution of those.

        At a context: of all that was observed, what was observed there, and x alone is searched and answered.
        """
        if isinstance(offered, Actions):
            return offered
        wanted, nothing = search_for(), np.zeros((1, 0))
        c, code = (nothing, nothing) if offered is None else (offered.c, offered.code)
        box, model, turn, d = self.domain, wanted.posterior.model, wanted.turn, self.domain.dimension
        seen = (np.zeros(0) if wanted.own is None else wanted.own.points()).reshape(-1, d + c.shape[1])
        observed = seen[(seen[:, d:] == c).all(axis=1), :d]
        observed = observed[box.contains(observed)]  # data from elsewhere may lie outside
        known = box.encode(observed)
        near = max(self.resolution if wanted.snap else 0.0, SAME)

        def free(U: Array) -> NDArray[np.bool_]:
            return nearest_to(U)[1] > near if len(known) else np.ones(len(U), dtype=bool)

        def nearest_to(U: Array) -> tuple[NDArray[np.intp], Array]:
            if not wanted.snap:  # only a point itself is near, in any metric
                return _closest(U, known)
            return nearest_point(model, beside(U, code), beside(known, code), box.apart(U, known) if len(U) else None)

        def score(U: Array) -> Array:
            return wanted.score(beside(U, code), beside(box.decode(U), c))

        def slope(U: Array) -> tuple[Array, Array]:
            values, gradients = wanted.slope(beside(U, code))
            return values, gradients[:, : U.shape[1]]

        candidates = self._candidates(wanted.posterior, turn, wanted.effort.cover)
        candidates = candidates[free(candidates)]  # the others are the observed points, which are offered anyway
        summits = search.polish(score, slope, candidates, region=box, effort=wanted.effort)
        if not len(known):
            return self._actions(search.distinct(box.decode(summits)).points)
        outside = free(summits)
        # where a climb ends at an observed point, what is next to it remains, just outside the resolution
        rng = np.random.default_rng([self.seed, turn, 2])
        ends = np.unique(nearest_to(summits)[0][~outside])
        rims = box.around(known[ends], rng, RIM)
        offer = np.concatenate([summits[outside], rims[free(rims)]])
        return self._actions(search.distinct(np.concatenate([box.decode(offer), observed])).points)

    def _candidates(self, posterior: Posterior, turn: int, count: int) -> Array:
        """A cover of the domain, and points around the best observed ones."""
        rng = np.random.default_rng([self.seed, turn, 1])
        spread = self.domain.spread(count, [self.seed, turn])
        best = np.argsort(-posterior.averages, kind="stable")[:LEADERS]
        leaders = self._inside(posterior.points[best, : spread.shape[1]])
        if self.domain.rules is not None:  # data may break rules
            leaders = leaders[self.domain.legal(self.domain.decode(leaders))]
        return np.concatenate([spread, leaders, self.domain.around(leaders, rng, ABOUT)]) if len(leaders) else spread

    def _inside(self, U: Array) -> Array:
        """The nearest points of the domain: data from elsewhere may lie outside."""
        return np.clip(U, 0.0, 1.0)

    def spread(self, offered: Round = None) -> Actions:  # noqa: ARG002
        return self._actions(self.domain.decode(self.domain.spread(search.CANDIDATES, [self.seed])))

    def draw(self, rng: np.random.Generator, offered: Round = None) -> Actions:
        return offered if isinstance(offered, Actions) else self._actions(self.domain.draw(rng))


class SpaceField(_OfSpace, BoxField):
    """A space that is searched."""

    def _inside(self, U: Array) -> Array:
        return np.asarray(self.domain.encode(self.domain.decode(U)))


def _closest(U: Array, known: Array) -> tuple[NDArray[np.intp], Array]:
    """For each row of U the nearest known point by its code, and the distance."""
    from scipy.spatial.distance import cdist  # not while misspec is imported

    apart = cdist(U, known)
    place = apart.argmin(axis=1)
    return place, apart[np.arange(len(U)), place]
