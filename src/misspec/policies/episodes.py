"""Policies that hand out whole episodes: the points of an episode do not depend on its results."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec.domains import Domain
from misspec.errors import Array, AwaitingResults, HorizonReached, InvalidInput, whole
from misspec.model import Model
from misspec.policies.core.answers import Decision
from misspec.policies.core.hooks import Abilities
from misspec.policies.core.log import Asked
from misspec.policies.core.points import Actions, Place
from misspec.policies.core.policy import Policy


@dataclasses.dataclass(frozen=True, eq=False)
class Episode:
    """A finished episode: its points in the order asked, what was active before and after, and the widths.

    On a Finite domain: indices, the active indices, and widths over `active_before`. On a box: (m, d) points in user
    units, the *estimated* shares of the box that were active, and widths at those points.
    """

    length: int
    points: NDArray[Any]
    active_before: NDArray[np.intp] | float
    active_after: NDArray[np.intp] | float
    widths: Array


class Episodic(Policy):
    """An episode is planned, asked slot by slot (in one batch, if wanted), told in any order, and then concluded.

    A slot whose evaluation failed is asked again, the lowest first. The horizon may cut the last episode short.
    """

    abilities = Abilities(takes_actions=False, takes_points=False, takes_data=False, waits=True, keeps_rounds=True)
    unit = "episode"  # its name in messages

    def __init__(self, domain: Domain, model: Model, *, horizon: int | None, **options: Any) -> None:
        super().__init__(domain, model, **options)
        self.horizon = self.limit = None if horizon is None else whole("horizon", horizon, at_least=1)
        self.history: list[Episode] = []
        self.episode = 0

    # -- what an algorithm implements ------------------------------------------------------------------------

    @abc.abstractmethod
    def _plan(self) -> int:
        """Plan the next episode; return its length if no horizon cuts it short."""

    @abc.abstractmethod
    def _pick(self, slot: int) -> Place:
        """The point of the next slot."""

    @abc.abstractmethod
    def _conclude(self, places: Sequence[Place], y: Array) -> Episode:
        """Use the results of an episode, in the order asked; one that is cut short (`_complete`) eliminates nothing."""

    def _reasons(self, place: Place) -> dict[str, Any]:
        """Fields of Query that say why this point was chosen."""
        return {"mean": self.mean_at(place)}

    # -- episodes --------------------------------------------------------------------------------------------

    def _start(self) -> None:
        spent = sum(episode.length for episode in self.history)
        if spent == self.horizon:
            return
        self.episode += 1
        full = self._plan()
        self._length = full if self.horizon is None else min(full, self.horizon - spent)
        self._complete = self._length == full
        self._slots: list[Asked] = []  # queries of this episode, in the order asked
        self._again: list[int] = []  # slots whose evaluation failed and that are to be asked again
        self._results: dict[int, float] = {}

    def choose(self, actions: Actions | None) -> Decision:  # noqa: ARG002  # refused by `ask`
        slot = self._again[0] if self._again else len(self._slots)
        place = self._slots[slot].place if self._again else self._pick(slot)
        return Decision(place, None, {**self._reasons(place), "details": {"episode": self.episode, "slot": slot}})

    def check_details(self, details: Mapping[str, Any]) -> None:
        slot = whole("slot of a stored query", details.get("slot"))
        if slot not in self._again and (slot != len(self._slots) or slot >= self._length):
            raise InvalidInput(f"slot {slot} of {self.unit} {self.episode} was not to be asked")

    def on_ask(self, asked: Asked) -> None:
        slot = asked.details["slot"]
        if slot in self._again:
            self._again.remove(slot)
        self._slots[slot : slot + 1] = [asked]

    def on_tell(self, asked: Asked, y: float, noise: float | None = None) -> None:  # noqa: ARG002  # none
        self._results[asked.details["slot"]] = y
        if len(self._results) == self._length:  # used in the order asked: the order told does not matter
            results = np.array([self._results[slot] for slot in range(self._length)])
            self.history.append(self._conclude([asked.place for asked in self._slots], results))
            before, after = (np.size(each) for each in (self.history[-1].active_before, self.history[-1].active_after))
            self._say("%s %d of %d results eliminates %d", self.unit, self.episode, self._length, before - after)
            self._start()

    def on_drop(self, asked: Asked) -> None:
        super().on_drop(asked)
        self._again = sorted([*self._again, asked.details["slot"]])

    def available(self) -> int | None:
        if self.remaining:
            return self.remaining
        left = self._length - len(self._results)
        if left:
            raise AwaitingResults(f"{self.unit} {self.episode} is handed out: tell or drop its {left} pending queries")
        raise HorizonReached(f"all {self.horizon} evaluations of the horizon are done; see recommend()")

    @property
    def remaining(self) -> int:
        """Queries that this episode can still hand out."""
        return self._length - len(self._slots) + len(self._again)

    @property
    def facts(self) -> dict[str, Any]:
        return {"history": list(self.history)}
