"""What policies share that eliminate arms in phases: a phase's arms do not depend on its results.

Law: what is active only shrinks, and is never empty.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec import kernels
from misspec.domains import Domain
from misspec.errors import Array, AwaitingResults, HorizonReached, InvalidInput, shown, whole
from misspec.model import Model
from misspec.policies.core.answers import Band, Decision
from misspec.policies.core.hooks import Abilities
from misspec.policies.core.log import Asked
from misspec.policies.core.points import Actions, Context, Place
from misspec.policies.core.policy import Policy
from misspec.policies.phased import Episode
from misspec.posterior import Posterior
from misspec.theory import own_bands


class Estimates(NamedTuple):
    """What a complete phase says of the arms that were active in it."""

    values: Array
    halves: Array  # of their bands
    slack: float  # an arm this far below the best is eliminated


class ArmElimination(Policy):
    """A list of arms; a phase is planned, asked (in one batch, if wanted), told, and then eliminates.

    Bands are those of the last complete phase in which an arm was active, as if the model were right; `posterior` is
    that of all results, to be looked at: nothing is chosen by it. It takes no data from elsewhere.

    To read: `episode`, `active` (indices), `remaining` (queries that this phase can still hand out), `history`.
    """

    abilities = Abilities(takes_actions=False, takes_points=False, takes_data=False, waits=True, keeps_rounds=True)

    def __init__(self, domain: Domain, model: Model, *, horizon: int, seed: int) -> None:
        super().__init__(domain, model, seed=seed)
        self.horizon = self.limit = whole("horizon", horizon, at_least=1)
        if not self.field.size:
            raise InvalidInput(
                f"{type(self).__name__} eliminates from a list of arms, got {shown(domain)}; ms.Finite(points) is one, "
                "and Box.grid(n) makes one"
            )
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
        self.history: list[Episode] = []
        self.episode = self._spent = 0

    # -- what an algorithm implements --------------------------------------------------------------------------

    @abc.abstractmethod
    def _plan(self) -> int:
        """The design of the next phase on what is active; returns its length."""

    @abc.abstractmethod
    def _arm(self, slot: int) -> int:
        """The arm that a phase asks in this place."""

    @abc.abstractmethod
    def _conclude(self, arms: NDArray[np.intp], y: Array) -> Estimates:
        """From the arms of a complete phase and its results less the offset, in the order asked."""

    # -- phases ------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        left = self.horizon - self._spent
        if left <= 0:
            return
        self.episode += 1
        full = self._plan()
        self._length = min(full, left)
        self._complete = self._length == full  # a truncated last phase eliminates nothing
        self._slots: list[Asked] = []  # queries of this phase, in the order asked
        self._again: list[int] = []  # slots whose evaluation failed and that are to be asked again
        self._results: dict[int, float] = {}

    def choose(self, actions: Actions | None) -> Decision:  # noqa: ARG002  # refused by `ask`
        slot = self._again[0] if self._again else len(self._slots)
        place = self._slots[slot].place if self._again else self.field.place(self._arms, self._arm(slot))
        return Decision(place, None, {"mean": self.mean_at(place), "details": {"episode": self.episode, "slot": slot}})

    def check_details(self, details: Mapping[str, Any]) -> None:
        slot = whole("slot of a stored query", details.get("slot"))
        if slot not in self._again and (slot != len(self._slots) or slot >= self._length):
            raise InvalidInput(f"slot {slot} of a phase was not to be asked")

    def on_ask(self, asked: Asked) -> None:
        slot = asked.details["slot"]
        if slot < len(self._slots):
            self._again.remove(slot)
            self._slots[slot] = asked
        else:
            self._slots.append(asked)

    def on_tell(self, asked: Asked, y: float) -> None:
        super().on_tell(asked, y)
        self._results[asked.details["slot"]] = y
        if len(self._results) == self._length:
            self._finish()

    def on_drop(self, asked: Asked) -> None:
        super().on_drop(asked)
        self._again = sorted([*self._again, asked.details["slot"]])

    def _finish(self) -> None:
        """All results are in. They are used in the order asked, so that the order told does not matter."""
        y = np.array([self._results[slot] for slot in range(self._length)])
        arms, before = np.array([int(asked.place.key) for asked in self._slots]), self.active
        halves = (self._upper - self._lower)[before] / 2.0
        if self._complete:
            values, halves, slack = self._conclude(arms, y - self.model.offset)
            values = values + self.model.offset
            self._values[before] = values
            self._lower[before], self._upper[before], _ = own_bands.within_class(
                values - halves, values + halves, self.model, self._prior[before], 0.0
            )
            self.active = before[values >= values.max() - slack]
        self.history.append(Episode(self._length, arms, before, self.active, halves))
        self._spent += self._length
        self._start()

    # -- what a user sees --------------------------------------------------------------------------------------

    @property
    def remaining(self) -> int:
        """Queries that this phase can still hand out."""
        return self._length - len(self._slots) + len(self._again)

    def available(self) -> int | None:
        if self.remaining:
            return self.remaining
        waiting = self._length - len(self._results)
        if waiting:
            raise AwaitingResults(
                f"phase {self.episode} is handed out; tell or drop its {waiting} pending queries first"
            )
        raise HorizonReached(f"all {self.horizon} evaluations of the horizon are done; see recommend()")

    @property
    def posterior(self) -> Posterior:
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
    def facts(self) -> dict[str, Any]:
        return {"history": list(self.history)}

    @property
    def alive(self) -> NDArray[np.intp] | None:
        return self.active
