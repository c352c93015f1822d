"""Phased GP Uncertainty Sampling: misspecification unknown, whole episodes in parallel (the paper's Algorithm 2).

Algorithm 2                                                    here
2   e = 1, m_e = 1, D_e = D                                    __init__, _start
3   μ_0 = 0, σ_0² = k(x,x): all data are forgotten             _start
5   x_t ∈ argmax over D_e of σ²_{t−1}(x)                       _choose (ties go to the lowest index)
6   update σ_t, no observation needed                          _asked
8   receive y_1, …, y_{m_e}, compute μ*                        _told, _finish
9   D_{e+1} = {x ∈ D_e : upper ≥ max over D_e of lower}        _eliminate
10  m_{e+1} = 2m_e, until T evaluations                        _start
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import confidence
from misspec.confidence import OwnBands
from misspec.domains import Domain
from misspec.errors import Array, AwaitingResults, HorizonReached, InvalidInput, flag, whole
from misspec.model import Model
from misspec.policies.base import Actions, Band, Conflict, Policy, Query, Recommendation, check_arguments
from misspec.policies.learner import find_conflicts
from misspec.posterior import Posterior
from misspec.tracked import Tracked


@dataclasses.dataclass(frozen=True, eq=False)
class Episode:
    """What a finished episode did: its points in the order asked, who was active before and after, and the widths."""

    length: int
    points: NDArray[np.intp]
    active_before: NDArray[np.intp]
    active_after: NDArray[np.intp]
    widths: Array  # over active_before


class PhasedUncertaintySampling(Policy):
    """Episodes of 1, 2, 4, … evaluations that explore what is still active, then eliminate what appears suboptimal.

    horizon: T, evaluations in all; None for no end, with δ split as 6δ/(π²e²) over the episodes.
    width: "nonadaptive" (the points of an episode do not depend on its noise), "mixture", "lemma1", or a number.
    grounded: clip the bands to the own bands, which use all observations of all episodes.

    Its bands are for the model as if it were right (ε is unknown): `band` holds f* only up to the misspecification.
    `ask(n)` hands out at most the rest of the episode: 1 query, then 2, then 4, … It takes no data from elsewhere.

    To read: `episode`, `active` (indices still alive), `remaining` (queries that this episode can still hand out),
    `history` (per episode: length, points, active before and after, widths).
    """

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        horizon: int | None = None,
        width: str | float = "nonadaptive",
        grounded: bool = True,
        seed: int = 0,
    ) -> None:
        check_arguments(domain, model)
        grounded = flag("grounded", grounded)
        width = confidence.check_width(width, also=["nonadaptive"])
        self.horizon = None if horizon is None else whole("horizon", horizon, at_least=1)
        super().__init__(domain, model, seed, horizon=self.horizon, width=width, grounded=grounded)
        self.guaranteed = isinstance(width, str) and not model.fitted
        self._finite = self._needs_finite("PhasedUncertaintySampling")
        self._width = width
        self._delta = model.delta / (2 if grounded else 1)
        self._book = OwnBands(model.noise, model.delta / 2, len(self._finite))  # of all episodes
        self._own = self._book if grounded else None
        self._posterior = Tracked(model, self._finite)  # of the last complete episode
        self.active: NDArray[np.intp] = np.arange(len(self._finite))  # D_e
        prior = model.norm_bound if isinstance(width, str) else width * model.scale
        self._widths = prior * self._posterior.std  # w over the domain, of the last complete episode
        self._covered = self.active[:0]  # on which these widths hold together
        self.history: list[Episode] = []
        self.episode = 0
        self._start()

    @classmethod
    def as_in_paper(
        cls, domain: Domain, model: Model, *, horizon: int | None = None, seed: int = 0
    ) -> PhasedUncertaintySampling:
        """Algorithm 2 to the letter: Lemma 1's multiplier (δ split over the episodes), ungrounded."""
        return cls(domain, model, horizon=horizon, width="lemma1", grounded=False, seed=seed)

    # -- Algorithm 2 -----------------------------------------------------------------------------------------

    def _start(self) -> None:
        full = 1 << self.episode
        left = full if self.horizon is None else self.horizon - (full - 1)  # full − 1 evaluations went before
        if left <= 0:
            return
        self.episode += 1
        self._length = min(full, left)
        self._complete = self._length == full  # a truncated last episode eliminates nothing
        self._design = Tracked(self.model, self._finite, check=False)  # variances only; the values come at the end
        self._slots: list[int] = []  # points of this episode, in the order asked
        self._again: list[int] = []  # slots whose evaluation failed and that are to be asked again
        self._results: dict[int, float] = {}

    def _choose(self, actions: Actions | None) -> Query:  # noqa: ARG002  # refused in _available
        slot = self._again[0] if self._again else len(self._slots)
        index = self._slots[slot] if self._again else int(self.active[self._design.variance[self.active].argmax()])
        x, name = self._candidate(index)
        std = math.sqrt(self._design.variance[index])
        details = {"episode": self.episode, "slot": slot}
        return Query(-1, x, index, name=name, mean=float(self._posterior.mean[index]), std=std, details=details)

    def _asked(self, query: Query) -> None:
        slot, index = query.details["slot"], query.index
        assert index is not None
        if slot == len(self._slots):
            self._slots.append(index)
            self._design.observe_index(index, self.model.offset)
        else:
            self._again.remove(slot)

    def _told(self, query: Query, y: float) -> None:
        self._results[query.details["slot"]] = y
        if len(self._results) == self._length:
            self._finish()

    def _dropped(self, query: Query) -> None:
        self._again = sorted([*self._again, query.details["slot"]])

    def _finish(self) -> None:
        """All results are in. They are used in the order asked, so that the order told does not matter."""
        slots = np.array(self._slots)
        y = np.array([self._results[slot] for slot in range(self._length)])
        for index, value in zip(slots.tolist(), y.tolist(), strict=True):
            self._book.tell(index, value)
        before = self.active
        if self._complete:
            places = self._design.places[slots]
            self._design.retell(np.bincount(places, y) / np.bincount(places))
            self._posterior = self._design
            self._widths, self._covered = self._new_widths(), before
            self._eliminate()
        self.history.append(Episode(self._length, slots, before, self.active, self._widths[before]))
        self._start()

    def _eliminate(self) -> None:
        D = self.active
        lower, upper = (end[D] for end in self.band())
        self.active = D[upper >= lower.max()]

    def _new_widths(self) -> Array:
        """w over the domain after this episode; δ is split over the E episodes that there will be."""
        p, E, delta = self._posterior, 1, 6.0 * self._delta / (math.pi * self.episode) ** 2
        if self.horizon is not None:
            E, delta = int(math.log2(self.horizon + 1)), self._delta
        if self._width == "nonadaptive":
            return confidence.nonadaptive(
                self.model, p.variance, p.weights_norm2(), points=len(self.active), episodes=E, delta=delta
            )
        return confidence.multiplier(self._width, self.model, p.log_det, delta / E) * p.std

    # -- what a user sees ------------------------------------------------------------------------------------

    @property
    def remaining(self) -> int:
        """Queries that this episode can still hand out."""
        return self._length - len(self._slots) + len(self._again)

    def _available(self, actions: Actions | None) -> int | None:
        if actions is not None:
            raise InvalidInput(
                "the phased policy eliminates from a fixed set and takes no actions; use RegretBalancing"
            )
        if self.remaining:
            return self.remaining
        waiting = self._length - len(self._results)
        if waiting:
            raise AwaitingResults(
                f"episode {self.episode} is handed out; tell or drop its {waiting} pending queries first"
            )
        raise HorizonReached(f"all {self.horizon} evaluations of the horizon are done; see recommend()")

    def _observed(self, points: Array, indices: NDArray[np.intp] | None, y: Array) -> None:  # noqa: ARG002
        raise InvalidInput("the phased policy forgets all data at each episode and takes none from elsewhere")

    @property
    def posterior(self) -> Posterior:
        """Of the last complete episode; the prior before the first."""
        return self._posterior

    def band(self, X: ArrayLike | None = None) -> Band:
        """μ ± w of the last complete episode, clipped to the own bands; as if the model were right.

        "nonadaptive" widths hold together on the points that were active in that episode, not on those gone before.
        """
        lower, upper = self._posterior.mean - self._widths, self._posterior.mean + self._widths
        if self._own is not None:
            lower, upper = confidence.clip(lower, upper, self._own.lower, self._own.upper)
        if X is None:
            return Band(lower, upper)
        given = self._parse_actions(X)
        rows = given.indices if given.indices is not None else self._finite.indices(given.points)
        if (rows < 0).any():
            raise InvalidInput("the phased policy has bands on its candidates only; hand in indices or candidates")
        return Band(lower[rows], upper[rows])

    def recommend(self) -> Recommendation:
        band, D = self.band(), self.active
        best = int(D[band.lower[D].argmax()])
        gap = float(band.upper[D].max() - band.lower[best])
        return self._recommendation(best, float(self._posterior.mean[best]), band, gap)

    @property
    def conflicts(self) -> list[Conflict]:
        """Among the points that were active in the last complete episode: its widths hold on those together."""
        then = set(self._covered.tolist())
        widths = self._widths
        found = find_conflicts(
            self._posterior, self._book, self.model, 0.0, lambda X, _: widths[self._finite.indices(X)]
        )
        return [conflict for conflict in found if conflict.index in then]
