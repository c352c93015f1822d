"""The field of an `Open` domain: rounds bring their actions, and nothing is listed or searched."""

from __future__ import annotations

from typing import Any

import numpy as np

from misspec import kernels
from misspec.domains import Open
from misspec.errors import Array, InvalidInput, shown
from misspec.model import Model
from misspec.policies.core.active import Active
from misspec.policies.core.basis import Basis
from misspec.policies.core.field import Shared
from misspec.policies.core.points import Actions, Place, Round


class OpenField(Shared):
    """Points are their own code; what a round does not bring is not there."""

    size = 0
    fixed = False

    def __init__(self, domain: Open) -> None:
        self.domain: Open = domain

    def parse(self, given: Any, model: Model) -> Actions:
        plain = type(given) is np.ndarray and given.dtype == np.float64 and given.ndim == 2
        if not plain or given.shape[1] != self.domain.dimension or not len(given):
            return super().parse(given, model)
        points: Array = np.ascontiguousarray(given) + 0.0  # a copy, in which -0.0 is 0.0
        if kernels.within_one(model.kernel, points) and (not self.domain.bounded or self.domain.inside(points).all()):
            return Actions(points, points, None)
        return super().parse(given, model)  # which says what is wrong

    def only(self, place: Place) -> Actions:
        x = place.x[None, :]
        return Actions(x, x, None)

    def encoded(self, place: Place) -> Array:
        return place.x[None, :]

    def whole(self, what: str) -> Actions:
        named = f"{what}: on " if what else "on "
        raise InvalidInput(
            f"{named}{shown(self.domain)} rounds bring the points to choose from; hand them in, actions=…"
        )

    def offer(self, search_for: Any, offered: Round = None) -> Actions:  # noqa: ARG002  # there is nothing to search
        return offered if isinstance(offered, Actions) else self.whole("")

    def spread(self, offered: Round = None) -> Actions:  # noqa: ARG002
        nothing = np.zeros((0, self.domain.dimension))
        return Actions(nothing, nothing, None)

    def draw(self, rng: np.random.Generator, offered: Round = None) -> Actions:  # noqa: ARG002
        return offered if isinstance(offered, Actions) else self.whole("")

    def is_whole(self, actions: Actions | None) -> bool:
        return actions is None

    def basis(self, model: Model) -> Basis | None:  # noqa: ARG002  # samples are drawn where they are looked at
        return None

    def active(self, model: Model, seed: int) -> Active:  # noqa: ARG002
        raise InvalidInput(
            f"a policy that eliminates needs a fixed set, and {shown(self.domain)} has none; use RegretBalancing"
        )

    def state(self) -> dict[str, Any]:
        return {"kind": "Open", "open": self.domain.settings()}
