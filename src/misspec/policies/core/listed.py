"""Fields of lists: candidates that have an index, and spaces with few members."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from misspec.domains import Box, Finite, Space, Table
from misspec.encoding import decode_array, encode_array
from misspec.errors import Array, InvalidInput, StorageError, shown
from misspec.model import Model
from misspec.policies.core.active import Active, Arms
from misspec.policies.core.basis import ArmBasis, Basis, BoxBasis
from misspec.policies.core.field import DIFFERS, Search, Shared
from misspec.policies.core.points import Actions, Candidates, Place, Round
from misspec.policies.core.searched import OfSpace, stored_space
from misspec.posterior import Tracked, Weights
from misspec.theory.own_bands import OwnBands

LARGE = 10_000_000  # bytes of points above which a domain is stored as a hash
FEATURED = 4_000  # of them up to which samples are drawn with the features of all


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

    def learn(self, posterior: Any, place: Place, y: float, *, expected: bool, noise: float | None = None) -> None:
        if isinstance(place.key, int) and not expected:
            posterior.observe_index(place.key, y, noise=noise)
        else:
            super().learn(posterior, place, y, expected=expected, noise=noise)

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
        if self.list.points.nbytes > LARGE:
            return stored
        return {**stored, **self.list.settings(), "points": encode_array(self.list.points)}

    @staticmethod
    def restored(stored: dict[str, Any], given: Finite | None) -> Finite:
        points, digest, names = (stored.get(name) for name in ("points", "sha256", "names"))
        if given is None and points is None:
            raise StorageError("the domain was too large to be stored; hand it in again: load(path, domain=…)")
        found = _listed(stored) if given is None else given
        right = points is None or np.array_equal(found.points, decode_array("stored points", points))
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


class MembersField(OfSpace, _Listed):
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
    box = Box(bounds) if bounds is not None else None if space is None else stored_space(space)
    return Finite(decode_array("stored points", stored.get("points")), names, box=box)


def _digest(domain: Finite) -> str:
    return hashlib.sha256(domain.points.tobytes() + domain.encoded.tobytes()).hexdigest()
