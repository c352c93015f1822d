"""What a policy needs of its domain, behind one protocol: `field_of` is the only place that asks which kind it is.

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

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import frames, kernels, search
from misspec.confidence import OwnBands
from misspec.contexts import Joint, Open
from misspec.domains import Box, Domain, Finite, Space, Table
from misspec.errors import Array, InvalidInput, StorageError, array, matrix, shown
from misspec.model import Model
from misspec.parameters import decode_parameter
from misspec.policies.active import Active, Arms
from misspec.policies.answers import Query, frozen
from misspec.policies.basis import ArmBasis, Basis, BoxBasis
from misspec.policies.level_sets import LevelSets
from misspec.policies.points import Actions, Candidates, Place, Round, nearest
from misspec.posterior import Posterior, Tracked, Weights

RESOLUTION = 0.05
LARGE = 10_000_000  # bytes of points above which a domain is stored as a hash
LEADERS = 8  # observed points that candidates are drawn around
ABOUT = 16  # candidates around each
RIM = 48  # and around an observed point at which a climb ended
WHOLE = 20_000  # members of a space without floats up to which all of them are scored
FEATURED = 4_000  # of them up to which samples are drawn with the features of all
NOTHING = "there is nothing to choose from or to learn: no indices or points were handed in"
ROUNDING = 1e-9  # distance at which a point read back from a file is the one that was written, in each code
SAME = 1e-7  # distance at which two points are one to rounding


DIFFERS = "this state holds its domain, and the one handed in differs from it; leave domain= out"


class Search(NamedTuple):
    """What is maximised where an offer has to be searched for."""

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
        """What a user handed in: indices or names of candidates, or points, by name or not."""

    def find(self, named: Any, among: Sequence[Place]) -> list[int]:
        """Those of the places that somebody means who hands in a dict or the name of a candidate."""

    def describe(self, place: Place) -> dict[str, Any]:
        """What answers say of a place by name: `params` on a space, `row` on a table."""

    def keys(self, actions: Actions) -> Sequence[int | bytes]:
        """What own bands are kept under."""

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

    def learn(self, posterior: Posterior, place: Place, y: float, *, expected: bool) -> None:
        """A result; expected: the place counts as pending."""

    def expect(self, posterior: Posterior, place: Place) -> None:
        """A pending query."""

    def release(self, posterior: Posterior, place: Place) -> None:
        """A pending query that has no result."""

    def look(self, posterior: Posterior, own: OwnBands | None, actions: Actions, *, pending: bool) -> Candidates:
        """What a posterior and own bands say of the actions; pending: with the variance for choosing."""

    def within(self, context: Any, given: Any, model: Model) -> Round:
        """A round with a context; given: the actions on offer, None for all of the domain."""

    def pair(self, given: Any, contexts: Any, model: Model) -> Actions:
        """Points that were handed in with a context each, or one for all."""

    def stored(self, actions: Actions) -> list[Any]:
        """What `parse` makes the same actions of: points or indices; for `pair`, contexts too."""

    def point(self, query: Query) -> Array:
        """The whole point of a query, as `place.x` has it."""

    def offer(self, search_for: Callable[[], Search], offered: Round = None) -> Actions:
        """What there is to choose from: the actions offered, or, holding the maximiser, points of the whole domain."""

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

    def arrays(self) -> dict[str, Array]:
        """The arrays of the domain that are stored, unless they are too large."""


def field_of(domain: Any, seed: int, resolution: float) -> Field:
    """The field of a domain. The only place that asks which kind of domain it is."""
    if isinstance(domain, Finite):
        return FiniteField(domain)
    if isinstance(domain, Box):
        return BoxField(domain, seed, resolution)
    if isinstance(domain, Space):
        few = domain.size is not None and domain.size <= WHOLE
        return MembersField(domain) if few else SpaceField(domain, seed, resolution)
    if isinstance(domain, Open):
        from misspec.policies.open_field import OpenField

        return OpenField(domain)
    if isinstance(domain, Joint):
        from misspec.policies.joint_field import JointField

        return JointField(domain, field_of(domain.domain, seed, resolution))
    if hasattr(domain, "field"):
        own: Field = domain.field(seed, resolution)
        return own
    raise InvalidInput(
        f"domain must be a Finite or a Box, got {type(domain).__name__}; or a Space of named parameters: "
        "ms.Finite(points), ms.Box(bounds) or ms.Space(parameters) makes one; ms.Open and ms.Joint are for contexts"
    )


def stored_domain(stored: Any, given: Domain | None) -> Domain:
    """A domain from its state; one that was not stored is the one handed in."""
    kinds: dict[str, Callable[..., Domain]] = {
        "Finite": FiniteField.restored,
        "Box": BoxField.restored,
        "Space": _OfSpace.restored,
        "Open": _open,
        "Joint": _joint,
    }
    kind = stored.get("kind") if isinstance(stored, dict) else None
    if not isinstance(kind, str):
        raise StorageError(f"a stored domain must say its kind, got {shown(stored)}")
    if given is not None and getattr(given, "kind", None) != kind:
        raise StorageError(f"this policy was made on a {kind} domain, got {shown(given)}; leave domain= out")
    if kind in kinds:
        return kinds[kind](stored, given)
    if given is None:
        raise StorageError(f"a domain of kind {kind!r} is not stored; hand it in again: restore(…, domain=…)")
    return given


class Shared:
    """What all kinds have in common: points that may never have been seen before."""

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
        """What the kernel sees of a place, shape (1, E)."""
        return np.asarray(self.domain.encode(place.x[None, :]))

    def posterior(self, model: Model, *, weights: bool, budget: int | None) -> Posterior:
        return Posterior(model, self.domain, weights=weights, budget=budget)

    def learn(self, posterior: Posterior, place: Place, y: float, *, expected: bool) -> None:
        posterior.take(self.encoded(place), y, expected=expected)

    def expect(self, posterior: Posterior, place: Place) -> None:
        posterior.expect(self.encoded(place))

    def release(self, posterior: Posterior, place: Place) -> None:
        posterior.unexpect(self.encoded(place))

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


class _Listed(Shared):
    """All candidates are in a list: Tracked posteriors, own bands by index."""

    def __init__(self, domain: Any, candidates: Finite) -> None:
        self.domain = domain
        self.list = candidates
        self.size = len(candidates)

    def arm(self, index: int) -> Place:
        """The place of a candidate."""
        raise NotImplementedError

    def whole(self, what: str) -> Actions:  # noqa: ARG002  # never refused
        return Actions(self.list.points, self.list.encoded, slice(None))

    def place(self, actions: Actions, row: int) -> Place:
        rows = actions.rows
        if rows is None:
            found = int(self.list.indices(actions.points[row][None, :])[0])
            return self.arm(found) if found >= 0 else super().place(actions, row)
        return self.arm(row if isinstance(rows, slice) else int(rows[row]))

    def keys(self, actions: Actions) -> Sequence[int | bytes]:
        if actions.rows is not None:
            return range(self.size) if isinstance(actions.rows, slice) else actions.rows.tolist()
        found = self.list.indices(actions.points).tolist()
        return [x.tobytes() if i < 0 else i for x, i in zip(actions.points, found, strict=True)]

    def only(self, place: Place) -> Actions:
        if isinstance(place.key, bytes):
            return super().only(place)
        return Actions(place.x[None, :], self.list.encoded[[place.key]], np.array([place.key]))

    def encoded(self, place: Place) -> Array:
        return self.list.encoded[[place.key]] if isinstance(place.key, int) else super().encoded(place)

    def posterior(self, model: Model, *, weights: bool, budget: int | None) -> Tracked:
        return Tracked(model, self.list, weights=weights, budget=budget)

    def learn(self, posterior: Any, place: Place, y: float, *, expected: bool) -> None:
        if isinstance(place.key, int) and not expected:
            posterior.observe_index(place.key, y)
        else:
            super().learn(posterior, place, y, expected=expected)

    def look(self, posterior: Any, own: OwnBands | None, actions: Actions, *, pending: bool) -> Candidates:
        rows = actions.rows
        if rows is None:
            return super().look(posterior, own, actions, pending=pending)
        variance = posterior.pending_variance if pending else posterior.variance
        low, high = (None, None) if own is None else (own.lower[rows], own.upper[rows])
        kept: Weights | None = posterior.weights_kept

        def norm1() -> Array:
            return np.asarray(posterior.weights_norm1(None if isinstance(rows, slice) else rows))

        def norm2() -> Array:
            return np.asarray(posterior.weights_norm2()[rows])

        def prior() -> Array:
            return np.asarray(posterior.prior[rows])

        alike = posterior.first(rows)
        found = Candidates(posterior.mean[rows], variance[rows], low, high, alike, norm1, norm2, prior, kept)
        if posterior.budget is None:
            return found
        residual, bias = posterior.missed_over(rows)
        return dataclasses.replace(found, residual=residual, bias=bias)

    def offer(self, search_for: Callable[[], Search], offered: Round = None) -> Actions:  # noqa: ARG002  # all are scored
        return offered if isinstance(offered, Actions) else self.whole("")

    def spread(self, offered: Round = None) -> Actions:  # noqa: ARG002
        return self.whole("")

    def draw(self, rng: np.random.Generator, offered: Round = None) -> Actions:  # noqa: ARG002  # a uniform row of all
        return offered if isinstance(offered, Actions) else self.whole("")

    def is_whole(self, actions: Actions | None) -> bool:
        if actions is None or isinstance(actions.rows, slice):
            return True
        return actions.rows is not None and len(np.unique(actions.rows)) == self.size

    def basis(self, model: Model) -> Basis:
        return ArmBasis(self.list, model)

    def active(self, model: Model, seed: int) -> Active:  # noqa: ARG002  # nothing is drawn
        return Arms(self.list, model, self.arm)


class FiniteField(_Listed):
    """A list of candidates that users know by index, and by name or row where they have one."""

    indexed = True

    def __init__(self, domain: Finite) -> None:
        super().__init__(domain, domain)

    def parse(self, given: Any, model: Model) -> Actions:
        if isinstance(given, list | tuple) and given and all(isinstance(each, str) for each in given):
            return self._rows(self.list.named(given))
        return super().parse(given, model)

    def _points(self, given: Any, model: Model) -> Actions:
        points, rows = self.list.match(given)
        if rows is not None and len(rows) and rows.min() >= 0:
            return self._rows(rows)
        return super()._points(points, model)

    def _rows(self, indices: Any) -> Actions:
        rows = self.list.validate_indices(indices)
        return Actions(self.list.points[rows], self.list.encoded[rows], rows)

    def find(self, named: Any, among: Sequence[Place]) -> list[int]:
        wanted = (self.list.named([named]) if isinstance(named, str) else self.list.matches(named)[0]).tolist()
        if not wanted:  # a point that is no candidate
            return super().find(named, among)
        return [i for i, place in enumerate(among) if place.index in wanted]

    def describe(self, place: Place) -> dict[str, Any]:
        return self.list.describe(place.index)

    def arm(self, index: int) -> Place:
        """The place of a candidate."""
        names = self.list.names
        return Place(self.list.points[index], index, None if names is None else names[index], index)

    def stored_place(self, index: int | None, x: Any, context: Any = None) -> Place:
        if index is None:
            return super().stored_place(index, x, context)
        if context is not None or not 0 <= index < self.size:
            raise StorageError(f"a stored query is of candidate {shown(index)}, and there are {self.size}")
        return self.arm(index)

    def state(self) -> dict[str, Any]:
        stored = {"kind": "Finite", "names": self.list.names, "box": None, "sha256": _digest(self.list)}
        return {**stored, **(self.list.settings() if self.arrays() else {})}

    def arrays(self) -> dict[str, Array]:
        return {"points": self.list.points} if self.list.points.nbytes <= LARGE else {}

    @staticmethod
    def restored(stored: dict[str, Any], given: Finite | None) -> Finite:
        points, digest, names = (stored.get(name) for name in ("points", "sha256", "names"))
        if given is None and points is None:
            raise StorageError("the domain was too large to be stored; hand it in again: load(path, domain=…)")
        found = _listed(stored) if given is None else given
        right = points is None or np.array_equal(found.points, matrix("stored points", points))
        if given is not None and (not right or _digest(given) != digest or given.names != names):
            known = (
                "the domain handed in is not the one that this policy was made with: its points differ, or its names "
                "or box do"
            )
            raise StorageError(known if points is None else DIFFERS)
        if not right or _digest(found) != digest:
            raise StorageError(
                "the stored points are not those that the policy was made with: they were edited, or the domain "
                "encodes its points in a way of its own; hand it in again: domain=…"
            )
        return found


class _OfSpace:
    """What fields of a space have in common."""

    domain: Any
    edges = True

    def _apart(self, U: Array, known: Array) -> Any:
        apart = self.domain.apart(U, known)
        return False if apart is None else apart[0]

    def describe(self, place: Place) -> dict[str, Any]:
        return {"params": self.domain.params(place.x)}

    def state(self) -> dict[str, Any]:
        return {"kind": "Space", "parameters": self.domain.settings()}

    def arrays(self) -> dict[str, Array]:
        return {}

    @staticmethod
    def restored(stored: dict[str, Any], given: Any) -> Domain:
        found = _space(stored.get("parameters"))
        if given is not None and given.settings() != found.settings():
            raise StorageError(DIFFERS)
        return found


class MembersField(_OfSpace, _Listed):
    """A space without floats and with few members: a list to policies, a space to users, who see no index."""

    def __init__(self, space: Space) -> None:
        super().__init__(space, space.members())

    def arm(self, index: int) -> Place:
        return Place(self.list.points[index], None, None, index)

    def stored_place(self, index: int | None, x: Any, context: Any = None) -> Place:
        point = self._stored_point(index, x, context)[None, :]
        return self.place(Actions(point, point, None), 0)

    def basis(self, model: Model) -> Basis:
        # the features of all members would be as many as these, for rough kernels
        return super().basis(model) if self.size <= FEATURED else BoxBasis(self.domain, model)

    def draw(self, rng: np.random.Generator, offered: Round = None) -> Actions:
        if isinstance(offered, Actions):
            return offered
        row = rng.integers(self.size, size=1)
        return Actions(self.list.points[row], self.list.encoded[row], row)


@dataclasses.dataclass
class BoxField(Shared):
    """A box: posteriors anywhere, offers by search; the same for the same seed and turn."""

    edges = True
    domain: Any  # a Box, or a Space
    seed: int
    resolution: float
    size: int = 0

    def whole(self, what: str) -> Actions:
        remedy = "hand in points, or make a list of them: box.grid(n), space.cover(n)"
        raise InvalidInput(f"{what} needs a Finite domain, this is {shown(self.domain)}; {remedy}")

    def offer(self, search_for: Callable[[], Search], offered: Round = None) -> Actions:
        """Points among which the maximiser lies: found by search, observed, or just outside the resolution of those."""
        if isinstance(offered, Actions):
            return offered
        wanted = search_for()
        box, model, turn = self.domain, wanted.posterior.model, wanted.turn
        seen = np.zeros(0) if wanted.own is None else wanted.own.points()
        observed = seen.reshape(len(seen), box.dimension)
        observed = observed[box.contains(observed)]  # data from elsewhere may lie outside
        known = box.encode(observed)
        near = max(self.resolution if wanted.snap else 0.0, SAME)

        def free(U: Array) -> NDArray[np.bool_]:
            return nearest_to(U)[1] > near if len(known) else np.ones(len(U), dtype=bool)

        def nearest_to(U: Array) -> tuple[NDArray[np.intp], Array]:
            if not wanted.snap:  # only a point itself is near, in any metric
                return _closest(U, known)
            return nearest(model, U, known, box.apart(U, known) if len(U) else None)

        candidates = self._candidates(wanted.posterior, turn, wanted.effort.cover)
        candidates = candidates[free(candidates)]  # the others are the observed points, which are offered anyway
        found = search.polish(
            lambda U: wanted.score(U, box.decode(U)), wanted.slope, candidates, region=box, effort=wanted.effort
        )
        if not len(known):
            points = np.unique(box.decode(found), axis=0)
            return Actions(points, box.encode(points), None)
        outside = free(found)
        # where a climb ends at an observed point, what is next to it remains, just outside the resolution
        rng = np.random.default_rng([self.seed, turn, 2])
        ends = np.unique(nearest_to(found)[0][~outside])
        rims = box.around(known[ends], rng, RIM)
        offer = np.concatenate([found[outside], rims[free(rims)]])
        points = np.unique(np.concatenate([box.decode(offer), observed]), axis=0)
        return Actions(points, box.encode(points), None)

    def _candidates(self, posterior: Posterior, turn: int, count: int) -> Array:
        """A cover of the domain, and points around the best observed ones."""
        rng = np.random.default_rng([self.seed, turn, 1])
        spread = self.domain.spread(count, [self.seed, turn])
        best = np.argsort(-posterior.averages, kind="stable")[:LEADERS]
        leaders = self._inside(posterior.points[best])
        return np.concatenate([spread, leaders, self.domain.around(leaders, rng, ABOUT)]) if len(leaders) else spread

    def _inside(self, U: Array) -> Array:
        """The nearest points of the domain: data from elsewhere may lie outside."""
        return np.clip(U, 0.0, 1.0)

    def spread(self, offered: Round = None) -> Actions:  # noqa: ARG002
        points = self.domain.decode(self.domain.spread(search.CANDIDATES, [self.seed]))
        return Actions(points, self.domain.encode(points), None)

    def draw(self, rng: np.random.Generator, offered: Round = None) -> Actions:
        if isinstance(offered, Actions):
            return offered
        points = self.domain.draw(rng)
        return Actions(points, self.domain.encode(points), None)

    def is_whole(self, actions: Actions | None) -> bool:
        return actions is None

    def basis(self, model: Model) -> Basis:
        return BoxBasis(self.domain, model)

    def active(self, model: Model, seed: int) -> Active:
        return LevelSets(self.domain, model, seed, self.resolution)

    def state(self) -> dict[str, Any]:
        return {"kind": "Box", "bounds": self.domain.bounds}

    def arrays(self) -> dict[str, Array]:
        return {}

    @staticmethod
    def restored(stored: dict[str, Any], given: Any) -> Domain:
        found = Box(stored.get("bounds", ()))
        if given is not None and given.bounds != found.bounds:
            raise StorageError(DIFFERS)
        return found


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


def _open(stored: dict[str, Any], given: Open | None) -> Open:
    settings = stored.get("open")
    if not isinstance(settings, dict) or set(settings) != {"dimension", "radius", "box"}:
        raise StorageError(f"a stored Open domain must have dimension, radius and box, got {shown(settings)}")
    found = Open(**settings)
    if given is not None and given.settings() != found.settings():
        raise StorageError(DIFFERS)
    return found


def _joint(stored: dict[str, Any], given: Joint | None) -> Joint:
    parts = (None, None) if given is None else (given.domain, given.contexts)
    x, c = (stored_domain(stored.get(name), part) for name, part in zip(("domain", "contexts"), parts, strict=True))
    return Joint(x, c)  # type: ignore[arg-type]  # it says what it does not take


def _space(parameters: Any) -> Space:
    try:
        return Space([(name, decode_parameter(each)) for name, each in parameters])
    except (InvalidInput, TypeError, ValueError, KeyError) as error:
        raise StorageError(f"a stored space cannot be made: {error}") from None


def _listed(stored: dict[str, Any]) -> Finite:
    """A list or a table from its state."""
    names, table, bounds, space = (stored.get(name) for name in ("names", "table", "box", "space"))
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise StorageError(f"stored names must be a list of text, got {shown(names)}")
    if table is not None:
        try:
            return Table(dict(table["columns"]), table["target"], table["ignore"], names)
        except (InvalidInput, TypeError, ValueError, KeyError) as error:
            raise StorageError(f"a stored table cannot be made: {error}") from None
    box = Box(bounds) if bounds is not None else None if space is None else _space(space)
    return Finite(stored["points"], names, box=box)


def _digest(domain: Finite) -> str:
    return hashlib.sha256(domain.points.tobytes() + domain.encoded.tobytes()).hexdigest()
