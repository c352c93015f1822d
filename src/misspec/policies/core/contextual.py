"""Fields of contextual domains: rounds that bring their actions (`Open`), and actions at a context (`Joint`).

Points [x, c] are rows to posteriors and own bands. A round's context turns the whole domain into what is on offer: all
candidates of a list beside c, or, on a box or a space, what a search over x with c fixed finds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from misspec import kernels
from misspec.domains import Joint, Open
from misspec.errors import Array, InvalidInput, StorageError, matrix, shown
from misspec.files import frames
from misspec.model import Model
from misspec.policies.core.answers import frozen
from misspec.policies.core.field import Field, Search
from misspec.policies.core.points import Actions, Context, Place, Round, beside


class OpenField(Field):
    """Points are their own code; what a round does not bring is not there."""

    fixed = False
    searched = False

    def __init__(self, domain: Open) -> None:
        self.domain: Open = domain

    def parse(self, given: Any, model: Model | None, contexts: Any = None) -> Actions:
        plain = contexts is None and type(given) is np.ndarray and given.dtype == np.float64 and given.ndim == 2
        if not plain or given.shape[1] != self.domain.dimension or not len(given):
            return super().parse(given, model, contexts)
        points: Array = np.ascontiguousarray(given) + 0.0  # a copy, in which -0.0 is 0.0
        small = model is None or kernels.within_one(model.kernel, points)
        if small and (not self.domain.bounded or self.domain.inside(points).all()):
            return Actions(points, points, None)
        return super().parse(given, model)  # which says what is wrong

    def _code(self, point: Array) -> Array:
        return point

    def whole(self, what: str) -> Actions:
        named = f"{what}: on " if what else "on "
        raise InvalidInput(
            f"{named}{shown(self.domain)} rounds bring the points to choose from; hand them in, actions=…"
        )

    def spread(self, offered: Round = None) -> Actions:  # noqa: ARG002
        nothing = np.zeros((0, self.domain.dimension))
        return Actions(nothing, nothing, None)


class JointField(Field):
    """x by the field of the actions, c beside it."""

    fixed = False

    def __init__(self, domain: Joint, inner: Field) -> None:
        self.domain: Joint = domain
        self.inner = inner
        self.indexed, self.searched = inner.indexed, inner.searched
        self._d = domain.domain.dimension

    # -- points ------------------------------------------------------------------------------------------------

    def parse(self, given: Any, model: Model | None, contexts: Any = None) -> Actions:
        """Whole points [x, c]; or, with contexts, x as its own field takes them."""
        if contexts is not None:
            x = self.inner.parse(given, None)  # what the kernel makes of them depends on the context
            rows = self.domain.split(contexts, len(x.points))
            c = np.concatenate([self.domain.context(each) for each in rows or [contexts]])
            if rows and len(c) != len(x.points):
                raise InvalidInput(f"contexts must be one for all, or one per point ({len(x.points)}); got {len(c)}")
            return self._checked(self._at(x, c), model)
        if frames.is_named(given):
            raise InvalidInput("whole points [x, c] have no names; hand in x by name, and context=c beside it")
        points = matrix("points [x, c]", given, columns=self.domain.dimension)
        if not len(points):
            raise InvalidInput("there is nothing to choose from or to learn: no points were handed in")
        x = self.inner.parse(points[:, : self._d], None)
        return self._checked(self._at(x, self.domain.contexts.validate(points[:, self._d :])), model)

    def within(self, context: Any, given: Any, model: Model) -> Round:
        c = self.domain.context(context)
        if given is None and self.searched:
            here = Context(c, self.domain.contexts.encode(c))
            self._checked(self.spread(here), model)
            return here
        x = self.inner.whole("") if given is None else self.inner.parse(given, None)
        return self._checked(dataclasses.replace(self._at(x, c), given=given is not None), model)

    def _at(self, x: Actions, c: Array) -> Actions:
        """The actions at one context each, or all at one."""
        code = beside(x.encoded, self.domain.contexts.encode(c))
        return Actions(beside(x.points, c), code, None, inner=x)

    def _checked(self, actions: Actions, model: Model | None) -> Actions:
        """InvalidInput where k(x,x) exceeds 1: points handed in, and all of them if contexts may lie anywhere."""
        if model is not None and (actions.given or not self.domain.bounded):
            kernels.check_bounded(model.kernel, actions.encoded, "the points at this context")
        return actions

    def place(self, actions: Actions, row: int) -> Place:
        assert actions.inner is not None
        c, code = actions.points[row, self._d :], actions.encoded[row : row + 1].copy()
        return _place(self.inner.place(actions.inner, row), c, code)

    def stored_place(self, index: int | None, x: Any, context: Any = None) -> Place:
        inner, c = self.inner.stored_place(index, x), np.asarray(context, dtype=np.float64)
        if c.shape != (self.domain.contexts.dimension,):
            raise StorageError(f"a stored query on {self.domain!r} lacks its context, got {context!r}")
        return _place(inner, c, beside(inner.code, self.domain.contexts.encode(c[None, :])))

    def keys(self, actions: Actions) -> Sequence[int | bytes]:
        assert actions.inner is not None
        contexts = actions.points[:, self._d :]
        return [_key(key, c) for key, c in zip(self.inner.keys(actions.inner), contexts, strict=True)]

    def find(self, named: Any, among: Sequence[Place]) -> list[int]:
        rows = self.inner.find(named, [place.inner for place in among if place.inner is not None])
        if len({among[i].x[self._d :].tobytes() for i in rows}) > 1:
            raise InvalidInput(f"several queries are {shown(named)}, for different contexts; tell the Query, or its id")
        return rows

    def describe(self, place: Place) -> dict[str, Any]:
        assert place.inner is not None
        return {**self.inner.describe(place.inner), "x": place.inner.x, "context": place.x[self._d :]}

    # -- choosing ----------------------------------------------------------------------------------------------

    def whole(self, what: str) -> Actions:
        named = f"{what}: " if what else ""
        raise InvalidInput(f"{named}{shown(self.domain)} has contexts, and one is missing; hand it in, context=…")

    def offer(self, search_for: Callable[[], Search], offered: Round = None) -> Actions:
        if not isinstance(offered, Context):
            return super().offer(search_for, offered)
        return self._at(self.inner.offer(search_for, offered), offered.c)

    def spread(self, offered: Round = None) -> Actions:
        if isinstance(offered, Context):
            return self._at(self.inner.spread(), offered.c)
        if isinstance(offered, Actions):
            return offered
        nothing = np.zeros((0, self.domain.dimension))
        return Actions(nothing, self.domain.encode(nothing), None)

    def draw(self, rng: np.random.Generator, offered: Round = None) -> Actions:
        if isinstance(offered, Context):
            return self._at(self.inner.draw(rng), offered.c)
        return super().draw(rng, offered)


def _place(inner: Place, c: Array, code: Array) -> Place:
    x = frozen(np.concatenate([inner.x, c]))
    return Place(x, inner.index, inner.name, _key(inner.key, c), code, inner)


def _key(key: int | bytes, c: Array) -> bytes:
    """Key of the own band of (x, c)."""
    return (key if isinstance(key, bytes) else int(key).to_bytes(8, "little")) + c.tobytes()
