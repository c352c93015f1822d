"""Policies that eliminate arms in phases: a phase's arms do not depend on its results.

Law: what is active only shrinks, and is never empty.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from misspec import kernels
from misspec.domains import Domain
from misspec.errors import Array, InvalidInput, shown, whole
from misspec.model import Model
from misspec.policies.core.answers import Band
from misspec.policies.core.log import Asked
from misspec.policies.core.points import Actions, Context, Place
from misspec.policies.core.registry import Common
from misspec.policies.episodes import Episode, Episodic
from misspec.posterior import Posterior
from misspec.theory import own_bands


class Estimates(NamedTuple):
    """Estimates, by a complete phase, of the arms that were active in it."""

    values: Array
    halves: Array  # of their bands
    slack: float  # an arm this far below the best is eliminated


class ArmElimination(Episodic):
    """A list of arms; a phase is planned, asked (in one batch, if wanted), told, and then eliminates.

    Bands are those of the last complete phase in which an arm was active, as if the model were right; `posterior` is
    that of all results, to be looked at: nothing is chosen by it. It takes no data from elsewhere.

    To read: `episode`, `active` (indices), `remaining` (queries that this phase can still hand out), `history`.
    """

    unit = "phase"
    horizon: int  # it has an end

    def __init__(self, domain: Domain, model: Model, *, horizon: int, **settings: Unpack[Common]) -> None:
        super().__init__(domain, model, horizon=whole("horizon", horizon, at_least=1), **settings)
        model = self.model
        if not self.field.size:
            name = type(self).__name__
            raise InvalidInput(f"{name} eliminates from a list of arms, got {shown(domain)}; box.grid(n) makes one")
        self._arms = self.field.whole(type(self).__name__)
        self._promise("", model)
        self._posterior = self._evidence.posterior(model)
        self._prior = kernels.diagonal(model.kernel, self._arms.encoded)
        if not self._prior.any():
            raise InvalidInput(f"k(x, x) is 0 at all {self.field.size} arms: there is nothing to learn about them")
        self._values = np.full(self.field.size, model.offset)
        reach = model.norm_bound * np.sqrt(self._prior)
        self._lower, self._upper = model.offset - reach, model.offset + reach
        self.active: NDArray[np.intp] = np.arange(self.field.size)

    # -- what an algorithm implements --------------------------------------------------------------------------

    @abc.abstractmethod
    def _arm(self, slot: int) -> int:
        """The arm that a phase asks in this place."""

    @abc.abstractmethod
    def _estimate(self, arms: NDArray[np.intp], y: Array) -> Estimates:
        """From the arms of a complete phase and its results less the offset, in the order asked."""

    # -- phases ------------------------------------------------------------------------------------------------

    def _pick(self, slot: int) -> Place:
        return self.field.place(self._arms, self._arm(slot))

    def on_tell(self, asked: Asked, y: float, noise: float | None = None) -> None:  # noqa: ARG002  # none
        self._evidence.learn(asked.query.id, asked.place, y)
        super().on_tell(asked, y)

    def _conclude(self, places: Sequence[Place], y: Array) -> Episode:
        arms, before = np.array([int(place.key) for place in places]), self.active
        halves = (self._upper - self._lower)[before] / 2.0
        if self._complete:
            values, halves, slack = self._estimate(arms, y - self.model.offset)
            values = values + self.model.offset
            self._values[before] = values
            self._lower[before], self._upper[before] = own_bands.within_class(
                values - halves, values + halves, self.model, self._prior[before]
            )
            self.active = before[values >= values.max() - slack]
        return Episode(self._length, arms, before, self.active, halves)

    # -- what a user sees --------------------------------------------------------------------------------------

    @property
    def posterior_in_use(self) -> Posterior:
        """Of all results."""
        return self._posterior

    def mean_at(self, place: Place) -> float:
        return float(self._values[int(place.key)])

    def band_at(self, actions: Actions) -> Band:
        rows = self.field.keys(actions)
        if not all(isinstance(row, int) for row in rows):
            raise InvalidInput(f"{type(self).__name__} has bands on its arms only; hand in indices or candidates")
        chosen = np.asarray(rows, dtype=np.intp)
        return Band(self._lower[chosen], self._upper[chosen])

    def contenders(self, within: Context | None = None) -> Actions:  # noqa: ARG002  # it takes none
        return Actions(self._arms.points[self.active], self._arms.encoded[self.active], self.active)

    @property
    def alive(self) -> NDArray[np.intp] | None:
        return self.active
