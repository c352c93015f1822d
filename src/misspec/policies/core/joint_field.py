"""The field of a `Joint` domain: the field of its actions, at a context.

Points are rows [x, c] to posteriors and own bands. A round's context turns the whole domain into what is on offer: all
candidates of a list beside c, or, on a box or a space, what a search over x with c fixed finds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec import kernels
from misspec.domains import Joint
from misspec.errors import Array, InvalidInput, StorageError, matrix, shown
from misspec.files import frames
from misspec.model import Model
from misspec.policies.core.active import Active
from misspec.policies.core.answers import Query, frozen
from misspec.policies.core.basis import Basis
from misspec.policies.core.field import Field, Search, Shared
from misspec.policies.core.points import Actions, Context, Place, Round
from misspec.theory.own_bands import OwnBands


@dataclasses.dataclass(frozen=True, eq=False)
class JointActions(Actions):
    """Rows [x, c]; inner: the x alone, as their own field knows them."""

    inner: Actions = None  # type: ignore[assignment]  # always given

    def part(self, chosen: NDArray[np.intp]) -> JointActions:
        inner = self.inner.part(chosen)
        return JointActions(self.points[chosen], self.encoded[chosen], None, self.flat, self.given, inner)

    def __add__(self, other: Actions) -> JointActions:
        assert isinstance(other, JointActions)
        both = super().__add__(other)
        return JointActions(both.points, both.encoded, None, inner=self.inner + other.inner)


class AtContext:
    """A kernel with the context fixed: k([x, c], [z, c])."""

    def __init__(self, kernel: kernels.Kernel, c: Array) -> None:
        self._kernel, self._c = kernel, c

    def _beside(self, X: Array) -> Array:
        return np.concatenate([X, np.repeat(self._c, len(X), axis=0)], axis=1)

    def __call__(self, X: Array, Z: Array) -> Array:
        return self._kernel(self._beside(X), self._beside(Z))

    def diag(self, X: Array) -> Array:
        return self._kernel.diag(self._beside(X))


class _Unchecked:
    """Stands in for a kernel where points are parsed whose context is not known yet."""

    def __call__(self, X: Array, Z: Array) -> Array:
        return np.zeros((len(X), len(Z)))

    def diag(self, X: Array) -> Array:
        return np.zeros(len(X))


@dataclasses.dataclass(frozen=True, eq=False)
class _Slice:
    """The part that a search needs of a posterior and of own bands, at one context."""

    model: Model
    points: Array
    averages: Array


class _OwnAt:
    """Own bands at one context: the x that were observed with it."""

    def __init__(self, own: OwnBands, c: Array) -> None:
        self._own, self._c = own, c

    def points(self) -> Array:
        seen, d = self._own.points(), self._c.shape[1]
        return seen[(seen[:, -d:] == self._c).all(axis=1), :-d] if len(seen) else seen


class JointField(Shared):
    """x by the field of the actions, c beside it."""

    size = 0
    fixed = False

    def __init__(self, domain: Joint, inner: Field, contexts: Field) -> None:
        self.domain: Joint = domain
        self.inner = inner
        self.contexts = contexts
        self.indexed = inner.indexed

    # -- points ------------------------------------------------------------------------------------------------

    def within(self, context: Any, given: Any, model: Model) -> Round:
        c = self.domain.context(context)
        if given is not None:
            found = self.beside(self._parsed(given, model), c)
        elif self.inner.size:
            found = dataclasses.replace(self.beside(self.inner.whole(""), c), given=False)
        else:
            self._check(self.spread(Context(c)), model)
            return Context(c)
        self._check(found, model)
        return found

    def _parsed(self, given: Any, model: Model) -> Actions:
        """x as its own field takes them; what the kernel makes of them depends on the context."""
        return self.inner.parse(given, dataclasses.replace(model, kernel=_Unchecked()))

    def _check(self, found: Actions, model: Model) -> None:
        """InvalidInput where k(x,x) exceeds 1: points handed in, and all of them if contexts may lie anywhere."""
        if found.given or not self.domain.bounded:
            kernels.check_bounded(model.kernel, found.encoded, "the points at this context")

    def _at(self, model: Model, c: Array) -> Model:
        return dataclasses.replace(model, kernel=AtContext(model.kernel, self.domain.contexts.encode(c)))

    def beside(self, x: Actions, c: Array) -> JointActions:
        """The actions at a context."""
        code = np.repeat(self.domain.contexts.encode(c), len(x.points), axis=0)
        return JointActions(self.domain.together(x.points, c), np.concatenate([x.encoded, code], axis=1), None, inner=x)

    def parse(self, given: Any, model: Model) -> JointActions:
        """Whole points [x, c]."""
        if frames.is_named(given):
            raise InvalidInput("whole points [x, c] have no names; hand in x by name, and context=c beside it")
        points = matrix("points [x, c]", given, columns=self.domain.dimension)
        return self._paired(points[:, : self._d], points[:, self._d :], model)

    def pair(self, given: Any, contexts: Any, model: Model) -> JointActions:
        """x as the field of the actions takes them, with one context each, or one for all."""
        x = self._parsed(given, model)
        rows = self.domain.split(contexts, len(x.points))
        if not rows:
            found = self.within(contexts, given, model)
            assert isinstance(found, JointActions)  # actions are given
            return found
        c = np.concatenate([self.domain.context(each) for each in rows])
        if len(c) != len(x.points):
            raise InvalidInput(f"contexts must be one for all, or one per point, {len(x.points)} of them; got {len(c)}")
        return self._made(x, c, model)

    def _paired(self, x: Array, c: Array, model: Model) -> JointActions:
        if not len(x):
            raise InvalidInput("there is nothing to choose from or to learn: no points were handed in")
        return self._made(self._parsed(x, model), self.domain.contexts.validate(c), model)

    def _made(self, x: Actions, c: Array, model: Model) -> JointActions:
        encoded = np.concatenate([x.encoded, self.domain.contexts.encode(c)], axis=1)
        kernels.check_bounded(model.kernel, encoded, "the points handed in")
        return JointActions(np.concatenate([x.points, c], axis=1), encoded, None, inner=x)

    @property
    def _d(self) -> int:
        return self.domain.domain.dimension

    def place(self, actions: Actions, row: int) -> Place:
        assert isinstance(actions, JointActions)
        x, c = self.inner.place(actions.inner, row), actions.points[row, self._d :]
        return Place(frozen(np.concatenate([x.x, c])), x.index, x.name, _key(x.key, c))

    def only(self, place: Place) -> Actions:
        inner = self.inner.only(self._inner_place(place))
        return self.beside(inner, place.x[None, self._d :])

    def _inner_place(self, place: Place) -> Place:
        return self.inner.stored_place(place.index, place.x[: self._d])

    def stored_place(self, index: int | None, x: Any, context: Any = None) -> Place:
        inner, c = self.inner.stored_place(index, x), np.asarray(context, dtype=np.float64)
        if c.shape != (self.domain.contexts.dimension,):
            raise StorageError(f"a stored query on {self.domain!r} lacks its context, got {context!r}")
        return Place(frozen(np.concatenate([inner.x, c])), inner.index, inner.name, _key(inner.key, c))

    def keys(self, actions: Actions) -> Sequence[int | bytes]:
        assert isinstance(actions, JointActions)
        contexts = actions.points[:, self._d :]
        return [_key(key, c) for key, c in zip(self.inner.keys(actions.inner), contexts, strict=True)]

    def find(self, named: Any, among: Sequence[Place]) -> list[int]:
        found = self.inner.find(named, [self._inner_place(place) for place in among])
        if len({among[i].x[self._d :].tobytes() for i in found}) > 1:
            raise InvalidInput(
                f"several pending queries are {shown(named)}, for different contexts; tell the Query, or its id"
            )
        return found

    def describe(self, place: Place) -> dict[str, Any]:
        x, c = place.x[: self._d], place.x[self._d :]
        return {**self.inner.describe(self._inner_place(place)), "x": x, "context": c}

    def stored(self, actions: Actions) -> list[Any]:
        assert isinstance(actions, JointActions)
        return [*self.inner.stored(actions.inner), actions.points[:, self._d :]]

    def point(self, query: Query) -> Array:
        assert query.context is not None
        return np.concatenate([query.x, query.context])

    def encoded(self, place: Place) -> Array:
        """By the field of the actions, whose lists may encode in a way of their own."""
        return self.only(place).encoded

    # -- choosing ----------------------------------------------------------------------------------------------

    def whole(self, what: str) -> Actions:
        named = f"{what}: " if what else ""
        raise InvalidInput(f"{named}{shown(self.domain)} has contexts, and one is missing; hand it in, context=…")

    def offer(self, search_for: Callable[[], Search], offered: Round = None) -> Actions:
        if isinstance(offered, Actions):
            return offered
        if offered is None:
            return self.whole("")
        c = offered.c
        code, wanted = self.domain.contexts.encode(c), search_for()
        width = wanted.posterior.points.shape[1] - code.shape[1]

        def beside(U: Array) -> Array:
            return np.concatenate([U, np.repeat(code, len(U), axis=0)], axis=1)

        def slope(U: Array) -> tuple[Array, Array]:
            values, gradients = wanted.slope(beside(U))
            return values, gradients[:, :width]

        p = wanted.posterior
        posterior: Any = _Slice(self._at(p.model, c), p.points[:, :width], p.averages)
        own: Any = None if wanted.own is None else _OwnAt(wanted.own, c)
        within = wanted._replace(
            posterior=posterior,
            own=own,
            score=lambda U, X: wanted.score(beside(U), self.domain.together(X, c)),
            slope=slope,
        )
        return self.beside(self.inner.offer(lambda: within), c)

    def spread(self, offered: Round = None) -> Actions:
        if isinstance(offered, Context):
            return self.beside(self.inner.spread(), offered.c)
        if isinstance(offered, Actions):
            return offered
        nothing = np.zeros((0, self.domain.dimension))
        return Actions(nothing, self.domain.encode(nothing), None)

    def draw(self, rng: np.random.Generator, offered: Round = None) -> Actions:
        if isinstance(offered, Context):
            return self.beside(self.inner.draw(rng), offered.c)
        return offered if isinstance(offered, Actions) else self.whole("")

    def is_whole(self, actions: Actions | None) -> bool:  # noqa: ARG002  # contexts vary
        return False

    def basis(self, model: Model) -> Basis | None:  # noqa: ARG002
        if not self.inner.size:
            raise InvalidInput(
                f"samples are drawn at lists of actions, and {shown(self.domain.domain)} is searched; make a list of "
                "it: box.grid(n), space.cover(n)"
            )
        return None

    def active(self, model: Model, seed: int) -> Active:  # noqa: ARG002
        raise InvalidInput(
            f"a policy that eliminates needs a fixed set, and on {shown(self.domain)} contexts vary; use "
            "RegretBalancing"
        )

    # -- state -------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {"kind": "Joint", "domain": self.inner.state(), "contexts": self.contexts.state()}


def _key(key: int | bytes, c: Array) -> bytes:
    """Key of the own band of (x, c)."""
    return (key if isinstance(key, bytes) else int(key).to_bytes(8, "little")) + c.tobytes()
