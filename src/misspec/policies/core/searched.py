"""Fields of boxes and spaces: points are searched, and offers are made for each choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec import search
from misspec.domains import Box, Domain, Space
from misspec.domains.parameters import decode_parameter
from misspec.errors import Array, InvalidInput, StorageError, shown
from misspec.model import Model
from misspec.policies.core.active import Active
from misspec.policies.core.basis import Basis, BoxBasis
from misspec.policies.core.field import DIFFERS, Search, Shared
from misspec.policies.core.level_sets import LevelSets
from misspec.policies.core.points import Actions, Place, Round, nearest
from misspec.posterior import Posterior

LEADERS = 8  # observed points that candidates are drawn around
ABOUT = 16  # candidates around each
RIM = 48  # and around an observed point at which a climb ended
SAME = 1e-7  # distance at which two points are one to rounding


class OfSpace:
    """Base of the fields of a space."""

    domain: Any
    edges = True

    def _apart(self, U: Array, known: Array) -> Any:
        apart = self.domain.apart(U, known)
        return False if apart is None else apart[0]

    def describe(self, place: Place) -> dict[str, Any]:
        return {"params": self.domain.params(place.x)}

    def state(self) -> dict[str, Any]:
        return {"kind": "Space", "parameters": self.domain.settings()}

    @staticmethod
    def restored(stored: dict[str, Any], given: Any) -> Domain:
        found = stored_space(stored.get("parameters"))
        if given is not None and given.settings() != found.settings():
            raise StorageError(DIFFERS)
        return found


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
            points = search.distinct(box.decode(found)).points
            return Actions(points, box.encode(points), None)
        outside = free(found)
        # where a climb ends at an observed point, what is next to it remains, just outside the resolution
        rng = np.random.default_rng([self.seed, turn, 2])
        ends = np.unique(nearest_to(found)[0][~outside])
        rims = box.around(known[ends], rng, RIM)
        offer = np.concatenate([found[outside], rims[free(rims)]])
        points = search.distinct(np.concatenate([box.decode(offer), observed])).points
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

    @staticmethod
    def restored(stored: dict[str, Any], given: Any) -> Domain:
        found = Box(stored.get("bounds", ()))
        if given is not None and given.bounds != found.bounds:
            raise StorageError(DIFFERS)
        return found


class SpaceField(OfSpace, BoxField):
    """A space that is searched."""

    def _inside(self, U: Array) -> Array:
        return np.asarray(self.domain.encode(self.domain.decode(U)))


def _closest(U: Array, known: Array) -> tuple[NDArray[np.intp], Array]:
    """For each row of U the nearest known point by its code, and the distance."""
    from scipy.spatial.distance import cdist  # not while misspec is imported

    apart = cdist(U, known)
    place = apart.argmin(axis=1)
    return place, apart[np.arange(len(U)), place]


def stored_space(parameters: Any) -> Space:
    try:
        return Space([(name, decode_parameter(each)) for name, each in parameters])
    except (InvalidInput, TypeError, ValueError, KeyError) as error:
        raise StorageError(f"a stored space cannot be made: {error}") from None
