"""Phased GP Uncertainty Sampling: misspecification unknown, whole episodes in parallel (the paper's Algorithm 2)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from misspec import theory
from misspec.domains import Domain
from misspec.errors import Array, flag
from misspec.model import Model
from misspec.policies.core.active import Spending
from misspec.policies.core.answers import Band
from misspec.policies.core.field import RESOLUTION
from misspec.policies.core.fields import Active, active_of
from misspec.policies.core.log import Asked
from misspec.policies.core.points import Actions, Context, Place
from misspec.policies.core.registry import Common
from misspec.policies.episodes import Episode, Episodic
from misspec.posterior import Posterior
from misspec.theory.widths import Width


class PhasedUncertaintySampling(Episodic):
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

    abilities = dataclasses.replace(Episodic.abilities, draws=False)

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
        **settings: Unpack[Common],
    ) -> None:
        super().__init__(domain, model, horizon=horizon, grounded=grounded, resolution=resolution, **settings)
        self.schedule = theory.check_schedule(schedule, self.horizon)
        self.lengths = [] if self.horizon is None else theory.episode_lengths(self.horizon, self.schedule)
        self.intersect, seed = flag("intersect", intersect), settings.get("seed", 0)
        self.active_set: Active = active_of(  # D_e
            self.field, self.model, self._own, seed=seed, resolution=resolution or 0.0, intersect=self.intersect
        )
        self.width = self.active_set.check_width(width)
        self.theorem = "" if self.grounded else "Theorem 2"
        self._promise(self.width, model)
        first = self.width * model.scale if isinstance(self.width, int | float) else model.norm_bound
        self.active_set.begin(first)
        self._start()

    @classmethod
    def as_in_paper(
        cls, domain: Domain, model: Model, *, horizon: int | None = None, **settings: Unpack[Common]
    ) -> PhasedUncertaintySampling:
        """Algorithm 2 to the letter: Lemma 1's multiplier (δ split over the episodes), ungrounded, no resolution."""
        return cls(domain, model, horizon=horizon, width="lemma1", grounded=False, resolution=None, **settings)

    # -- Algorithm 2 -----------------------------------------------------------------------------------------

    def _plan(self) -> int:
        self._design = self.active_set.design()  # 3   μ_0 = 0, σ_0² = k(x,x): all data are forgotten
        return self.planned(self.episode)  # 2, 10   e = 1, m_e = 1, D_e = D; then m_{e+1} = 2m_e, until T evaluations

    def _pick(self, slot: int) -> Place:
        return self.active_set.most_uncertain(self._design, slot)  # 5   x_t ∈ argmax over D_e of σ²_{t−1}(x)

    def on_ask(self, asked: Asked) -> None:
        if asked.details["slot"] == len(self._slots):
            self.active_set.take(self._design, asked.place)  # 6   update σ_t, no observation needed
        super().on_ask(asked)

    def _conclude(self, places: Sequence[Place], y: Array) -> Episode:
        for asked, value in zip(self._slots, y.tolist(), strict=True):  # 8   receive y_1, …, y_{m_e}
            self._evidence.learn(asked.query.id, asked.place, value)
        D = self.active_set
        active, before = D.members, D.extent
        if self._complete:
            intersect = self.intersect and bool(self.history)
            D.conclude(self._design, places, y, self._spending(), intersect)  # 8   μ* ± w from this episode alone
            D.eliminate()  # 9   D_{e+1} = {x ∈ D_e : μ*(x) + w(x) ≥ max over D_e of μ*(z) − w(z)}
        points = D.points(places)
        return Episode(self._length, points, before, D.extent, D.bands.widths(active, points))

    def _spending(self) -> Spending:
        """δ is split over the E episodes that there will be."""
        if self.horizon is None:
            return Spending(self.width, 1, 6.0 * self._delta / (math.pi * self.episode) ** 2)
        return Spending(self.width, theory.complete_episodes(self.horizon, self.lengths), self._delta)

    # -- what a user sees ------------------------------------------------------------------------------------

    def _reasons(self, place: Place) -> dict[str, Any]:
        design, row = self._design, place.key
        variance = design.variance[row] if isinstance(row, int) else design.look(place.code).variance[0]
        return {"mean": self.mean_at(place), "std": math.sqrt(variance)}

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
    def volume(self) -> float:
        """The share of the domain that is still active; on a box an estimate, from a sample (`core/active.py`)."""
        return self.active_set.volume

    @property
    def posterior_in_use(self) -> Posterior:
        """Of the last complete episode; the prior before the first."""
        return self.active_set.bands.posterior

    def band_at(self, actions: Actions) -> Band:
        """μ ± w of the last complete episode (of candidates that were eliminated: of their last one, if the width holds
        on active points only), clipped to the own bands; as if the model were right."""
        return self.active_set.bands.band(actions, reported=True)

    def contenders(self, within: Context | None = None) -> Actions:  # noqa: ARG002  # it takes none
        return self.active_set.contenders()

    @property
    def alive(self) -> NDArray[np.intp] | None:
        return self.active_set.members if self.field.size else None
