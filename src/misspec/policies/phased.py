"""Phased GP Uncertainty Sampling: misspecification unknown, whole episodes in parallel (the paper's Algorithm 2)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec import theory
from misspec.domains import Domain
from misspec.errors import Array, AwaitingResults, HorizonReached, InvalidInput, flag, whole
from misspec.model import Model
from misspec.policies.core.active import Active, Spending
from misspec.policies.core.answers import Band, Decision
from misspec.policies.core.field import RESOLUTION
from misspec.policies.core.hooks import Abilities
from misspec.policies.core.log import Asked
from misspec.policies.core.points import Actions, Context
from misspec.policies.core.policy import Policy
from misspec.posterior import Posterior
from misspec.theory.widths import Width


@dataclasses.dataclass(frozen=True, eq=False)
class Episode:
    """What a finished episode did: its points in the order asked, what was active before and after, and the widths.

    On a Finite domain: indices, the active indices, and widths over `active_before`. On a box: (m, d) points in user
    units, the *estimated* shares of the box that were active, and widths at those points.
    """

    length: int
    points: NDArray[Any]
    active_before: NDArray[np.intp] | float
    active_after: NDArray[np.intp] | float
    widths: Array


class PhasedUncertaintySampling(Policy):
    """Episodes of 1, 2, 4, … evaluations that explore what is still active, then eliminate what appears suboptimal.

    horizon: T, evaluations in all; None for no end, with δ split as 6δ/(π²e²) over the episodes.
    schedule: "doubling", the paper's; where rounds of parallel work are dear, "few" for log₂log₂T of them, or their
    number (`theory.episode_lengths`, after Li & Scarlett, 2022). The latter two need a horizon.
    width: "nonadaptive" (the points of an episode do not depend on its noise; the default, on a Finite domain only),
    "mixture" (the default on a box), "lemma1", or a number.
    grounded: clip the bands to the own bands, which use all observations of all episodes.
    intersect: on a Finite domain, bands of the complete episodes before count too: what they have in common with the
    newest, where they meet. Each holds f̃ up to the ε√(Cγ/λ) of Theorem 2, so does what they have in common, and it is
    never wider than the newest: the same bound. Measured with doubling episodes: less regret where there is a misfit,
    the same without; with few episodes hardly any difference.
    resolution: on a box, queries this near to an active point asked before go to that point if its variance is about
    as large; own bands and a small dictionary rely on it. The kernel's metric, as for GPUCB; None or 0 turns it off.

    Its bands are for the model as if it were right (ε is unknown): `band` holds f* only up to the misspecification.
    `ask(n)` hands out at most the rest of the episode: 1 query, then 2, then 4, … if these double. It takes no data
    from elsewhere.

    To read: `episode`, `active` (indices still alive; on a box a sample of points that are, in user units), `volume`
    (share that is still active), `remaining` (queries that this episode can still hand out), `history` (per episode:
    length, points, active before and after, widths).
    """

    abilities = Abilities(  # it eliminates from a fixed set, and forgets all data
        takes_actions=False, takes_points=False, takes_data=False, waits=True, keeps_rounds=True, draws=False
    )

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        horizon: int | None = None,
        schedule: theory.Schedule = "doubling",
        width: Width | None = None,
        grounded: bool = True,
        intersect: bool = False,
        resolution: float | None = RESOLUTION,
        seed: int = 0,
    ) -> None:
        super().__init__(
            domain,
            model,
            seed=seed,
            grounded=grounded,
            parts=2 if flag("grounded", grounded) else 1,
            resolution=resolution,
        )
        self.horizon = self.limit = None if horizon is None else whole("horizon", horizon, at_least=1)
        self.schedule = theory.check_schedule(schedule, self.horizon)
        self.lengths = [] if self.horizon is None else theory.episode_lengths(self.horizon, self.schedule)
        self.active_set: Active = self.field.active(model, seed)  # D_e
        self.width = self.active_set.width if width is None else self.active_set.check_width(width)
        self.intersect = self.active_set.check_intersect(intersect)
        self.theorem = "" if self.grounded else "Theorem 2"
        self._promise(self.width, model)
        first = self.width * model.scale if isinstance(self.width, int | float) else model.norm_bound
        self._bands = self.active_set.prior(first, self._own)  # of the last complete episode
        self.history: list[Episode] = []
        self.episode = 0
        self._start()

    @classmethod
    def as_in_paper(
        cls, domain: Domain, model: Model, *, horizon: int | None = None, seed: int = 0
    ) -> PhasedUncertaintySampling:
        """Algorithm 2 to the letter: Lemma 1's multiplier (δ split over the episodes), ungrounded, no resolution."""
        return cls(domain, model, horizon=horizon, width="lemma1", grounded=False, resolution=None, seed=seed)

    # -- Algorithm 2 -----------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self.episode == len(self.lengths) and self.horizon is not None:
            return
        self.episode += 1  # 2, 10   e = 1, m_e = 1, D_e = D; then m_{e+1} = 2m_e, until T evaluations
        full = self.planned(self.episode)
        self._length = full if self.horizon is None else min(full, self.horizon - sum(self.lengths[: self.episode - 1]))
        self._complete = self._length == full  # a truncated last episode eliminates nothing
        self._design = self.active_set.design()  # 3   μ_0 = 0, σ_0² = k(x,x): all data are forgotten
        self._slots: list[Asked] = []  # queries of this episode, in the order asked
        self._again: list[int] = []  # slots whose evaluation failed and that are to be asked again
        self._results: dict[int, float] = {}

    def choose(self, actions: Actions | None) -> Decision:  # noqa: ARG002  # refused by `ask`
        slot = self._again[0] if self._again else len(self._slots)
        # 5   x_t ∈ argmax over D_e of σ²_{t−1}(x); ties go to the lowest index
        place = self._slots[slot].place if self._again else self.active_set.most_uncertain(self._design, slot)
        mean = float(self.field.look(self.posterior, None, self.field.only(place), pending=False).mean[0])
        details = {"episode": self.episode, "slot": slot}
        return Decision(
            place, None, {"mean": mean, "std": self.active_set.std(self._design, place), "details": details}
        )

    def check_details(self, details: Mapping[str, Any]) -> None:
        slot = whole("slot of a stored query", details.get("slot"))
        if slot not in self._again and (slot != len(self._slots) or slot >= self._length):
            raise InvalidInput(f"slot {slot} of an episode was not to be asked")

    def on_ask(self, asked: Asked) -> None:
        slot = asked.details["slot"]
        if slot < len(self._slots):
            self._again.remove(slot)
            self._slots[slot] = asked
            return
        self.active_set.take(self._design, asked.place)  # 6   update σ_t, no observation needed
        self._slots.append(asked)

    def on_tell(self, asked: Asked, y: float) -> None:
        self._results[asked.details["slot"]] = y
        if len(self._results) == self._length:
            self._finish()

    def _finish(self) -> None:
        """All results are in. They are used in the order asked, so that the order told does not matter."""
        y = np.array([self._results[slot] for slot in range(self._length)])  # 8   receive y_1, …, y_{m_e}
        places = [asked.place for asked in self._slots]
        for asked, value in zip(self._slots, y.tolist(), strict=True):
            self._evidence.learn(asked.query.id, asked.place, value)
        D, own = self.active_set, self._own
        active, before = D.members, D.extent
        if self._complete:
            intersect = self.intersect and bool(self.history)
            self._bands = D.conclude(  # 8   compute μ*
                self._design, places, y, self._spending(), own, self._bands, intersect=intersect
            )
            D.eliminate(self._bands)  # 9   D_{e+1} = {x ∈ D_e : upper ≥ max over D_e of lower}
        points = D.points(places)
        self.history.append(Episode(self._length, points, before, D.extent, self._bands.widths(active, points)))
        self._start()

    def _spending(self) -> Spending:
        """δ is split over the E episodes that there will be."""
        if self.horizon is None:
            return Spending(self.width, 1, 6.0 * self._delta / (math.pi * self.episode) ** 2)
        return Spending(self.width, theory.complete_episodes(self.horizon, self.lengths), self._delta)

    # -- what a user sees ------------------------------------------------------------------------------------

    def on_drop(self, asked: Asked) -> None:
        super().on_drop(asked)
        self._again = sorted([*self._again, asked.details["slot"]])

    @property
    def active(self) -> NDArray[Any]:
        """D_e: indices still alive; on a box a sample of points that are, in user units."""
        return self.active_set.members

    def planned(self, episode: int) -> int:
        """m_e, the length of an episode that nothing cuts short; 0 after the last."""
        if self.horizon is None:
            return 1 << (episode - 1)
        return self.lengths[episode - 1] if episode <= len(self.lengths) else 0

    @property
    def remaining(self) -> int:
        """Queries that this episode can still hand out."""
        return self._length - len(self._slots) + len(self._again)

    def available(self) -> int | None:
        if self.remaining:
            return self.remaining
        waiting = self._length - len(self._results)
        if waiting:
            raise AwaitingResults(
                f"episode {self.episode} is handed out; tell or drop its {waiting} pending queries first"
            )
        raise HorizonReached(f"all {self.horizon} evaluations of the horizon are done; see recommend()")

    @property
    def volume(self) -> float:
        """The share of the domain that is still active; on a box an estimate, from a sample (`level_sets.py`)."""
        return self.active_set.volume

    @property
    def posterior(self) -> Posterior:
        """Of the last complete episode; the prior before the first."""
        return self._bands.posterior

    def band_at(self, actions: Actions) -> Band:
        """μ ± w of the last complete episode (of candidates that were eliminated: of their last one, if the width holds
        on active points only), clipped to the own bands; as if the model were right."""
        return self._bands.band(actions, reported=True)

    def contenders(self, within: Context | None = None) -> Actions:  # noqa: ARG002  # it takes none
        return self.active_set.contenders(self._bands)

    @property
    def facts(self) -> dict[str, Any]:
        return {"history": list(self.history)}

    @property
    def alive(self) -> NDArray[np.intp] | None:
        return self.active_set.members if self.field.size else None
