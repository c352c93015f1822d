"""Phased GP Uncertainty Sampling: misspecification unknown, whole episodes in parallel (the paper's Algorithm 2).

Algorithm 2                                                    here
2   e = 1, m_e = 1, D_e = D                                    __init__, _start
3   μ_0 = 0, σ_0² = k(x,x): all data are forgotten             _start
5   x_t ∈ argmax over D_e of σ²_{t−1}(x)                       _most_uncertain (ties go to the lowest index)
6   update σ_t, no observation needed                          _asked
8   receive y_1, …, y_{m_e}, compute μ*                        _told, _finish
9   D_{e+1} = {x ∈ D_e : upper ≥ max over D_e of lower}        _eliminate
10  m_{e+1} = 2m_e, until T evaluations                        _start

On a Finite domain D_e is a list of candidates. On a box it is an intersection of level sets, in which line 5 and the
maximum of line 9 are searches: `level_sets.py`.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import confidence
from misspec.confidence import OwnBands
from misspec.domains import Box, Domain, Finite
from misspec.errors import Array, AwaitingResults, HorizonReached, InvalidInput, flag, number, whole
from misspec.model import Model
from misspec.policies.base import Actions, Band, Conflict, Policy, Query, Recommendation, check_arguments
from misspec.policies.boxed import RESOLUTION
from misspec.policies.learner import find_conflicts
from misspec.policies.level_sets import Bands, LevelSets
from misspec.posterior import Posterior
from misspec.tracked import Tracked

Place = tuple[Array, int | None, str | None]  # point in user units, index and name on a Finite domain


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
    width: "nonadaptive" (the points of an episode do not depend on its noise; the default, on a Finite domain only),
    "mixture" (the default on a box), "lemma1", or a number.
    grounded: clip the bands to the own bands, which use all observations of all episodes.
    resolution: on a box, queries this near to an active point asked before go to that point if its variance is about
    as large; own bands and a small dictionary live on that. The kernel's metric, as for GPUCB; None or 0 turns it off.

    Its bands are for the model as if it were right (ε is unknown): `band` holds f* only up to the misspecification.
    `ask(n)` hands out at most the rest of the episode: 1 query, then 2, then 4, … It takes no data from elsewhere.

    To read: `episode`, `active` (indices still alive; on a box a sample of points that are, in user units), `volume`
    (share that is still active), `remaining` (queries that this episode can still hand out), `history` (per episode:
    length, points, active before and after, widths).
    """

    active: NDArray[Any]

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        horizon: int | None = None,
        width: str | float | None = None,
        grounded: bool = True,
        resolution: float | None = RESOLUTION,
        seed: int = 0,
    ) -> None:
        check_arguments(domain, model)
        grounded = flag("grounded", grounded)
        width = _check_width(width, domain)
        resolution = None if resolution is None else number("resolution", resolution, at_least=0)
        self.horizon = None if horizon is None else whole("horizon", horizon, at_least=1)
        settings = {"horizon": self.horizon, "width": width, "grounded": grounded, "resolution": resolution}
        super().__init__(domain, model, seed, **settings)
        self.guaranteed = isinstance(width, str) and not model.fitted
        self._width = width
        self._delta = model.delta / (2 if grounded else 1)
        self._book = OwnBands(model.noise, model.delta / 2, len(domain) if isinstance(domain, Finite) else 0)
        self._own = self._book if grounded else None  # the book is of all episodes
        self._multiplier = model.norm_bound if isinstance(width, str) else width * model.scale
        # the posterior of the last complete episode; on a Finite domain also w over it, and on whom w holds together
        self._posterior: Posterior
        self._sets: LevelSets | None = None
        if isinstance(domain, Box):
            self._posterior = Posterior(model, domain)
            self._sets = LevelSets(domain, model, self._settings["seed"], resolution or 0.0)
            self.active = self._sets.members
        else:
            self._posterior = tracked = Tracked(model, domain)
            self.active = np.arange(len(domain))  # D_e
            self._widths = self._multiplier * tracked.std
            self._covered = self.active[:0]
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
        full = 1 << self.episode
        left = full if self.horizon is None else self.horizon - (full - 1)  # full − 1 evaluations went before
        if left <= 0:
            return
        self.episode += 1
        self._length = min(full, left)
        self._complete = self._length == full  # a truncated last episode eliminates nothing
        self._design = self._new_design()  # variances only; the values come at the end
        self._slots: list[Query] = []  # queries of this episode, in the order asked
        self._again: list[int] = []  # slots whose evaluation failed and that are to be asked again
        self._results: dict[int, float] = {}

    def _choose(self, actions: Actions | None) -> Query:  # noqa: ARG002  # refused in _available
        slot = self._again[0] if self._again else len(self._slots)
        x, index, name = self._again_at(slot) if self._again else self._most_uncertain()
        if index is not None:
            mean, std = float(self._tracked.mean[index]), math.sqrt(self._design.variance[index])
        else:
            mean, std = float(self._posterior.at(x[None, :])[0][0]), float(self._design.at(x[None, :])[1][0])
        return Query(-1, x, index, name=name, mean=mean, std=std, details={"episode": self.episode, "slot": slot})

    def _most_uncertain(self) -> Place:
        if self._sets is not None:
            return self._sets.most_uncertain(self._design, len(self._slots)), None, None
        index = int(self.active[self._design.variance[self.active].argmax()])
        x, name = self._candidate(index)
        return x, index, name

    def _again_at(self, slot: int) -> Place:
        query = self._slots[slot]
        return query.x, query.index, query.name

    def _asked(self, query: Query) -> None:
        slot = query.details["slot"]
        if slot < len(self._slots):
            self._again.remove(slot)
            return
        if self._sets is not None:
            self._design.observe(query.x[None, :], self.model.offset)
            self._sets.asked(query.x)
        else:
            self._design.observe_index(cast(int, query.index), self.model.offset)
        self._slots.append(query)

    def _told(self, query: Query, y: float) -> None:
        if len(self._results) + 1 < self._length:
            self._results[query.details["slot"]] = y
            return
        before = dict(self.__dict__)  # should a kernel fail in what follows, nothing has happened
        self._results = {**self._results, query.details["slot"]: y}
        self._book = copy.deepcopy(self._book)
        self._own = None if self._own is None else self._book
        self._sets = None if self._sets is None else self._sets.copy()
        try:
            self._finish()
        except Exception:
            self.__dict__.update(before)
            raise

    def _dropped(self, query: Query) -> None:
        self._again = sorted([*self._again, query.details["slot"]])

    def _finish(self) -> None:
        """All results are in. They are used in the order asked, so that the order told does not matter."""
        y = np.array([self._results[slot] for slot in range(self._length)])
        for query, value in zip(self._slots, y.tolist(), strict=True):
            self._book.tell(query.x.tobytes() if query.index is None else query.index, value)
        points, active, before = self._points(), self.active, self._extent
        if self._complete:
            self._learn(y)
            self._eliminate()
        widths = self._widths[active] if self._sets is None else self._multiplier * self._posterior.at(points)[1]
        self.history = [*self.history, Episode(self._length, points, before, self._extent, widths)]
        self._start()

    def _learn(self, y: Array) -> None:
        """μ and the widths of this episode alone."""
        if self._sets is not None:
            self._posterior = Posterior(self.model, self.domain, check=False)
            self._posterior.observe(self._points(), y)
            self._multiplier = self._new_multiplier(self._posterior)
        else:
            places = self._design.places[self._points()]
            self._design.retell(np.bincount(places, y) / np.bincount(places))
            self._posterior = self._design
            self._widths, self._covered = self._new_widths(self._design), self.active

    def _eliminate(self) -> None:
        if self._sets is not None:
            self._sets.eliminate(self._bands())
            self.active = self._sets.members
        else:
            D = self.active
            lower, upper = (end[D] for end in self.band())
            self.active = D[upper >= lower.max()]

    def _new_widths(self, p: Tracked) -> Array:
        """w over a Finite domain after this episode."""
        if self._width == "nonadaptive":
            E, delta = self._split()
            return confidence.nonadaptive(
                self.model, p.variance, p.weights_norm2(), points=len(self.active), episodes=E, delta=delta
            )
        return self._new_multiplier(p) * p.std

    def _new_multiplier(self, p: Posterior) -> float:
        E, delta = self._split()
        return confidence.multiplier(self._width, self.model, p.log_det, delta / E)

    def _split(self) -> tuple[int, float]:
        """E and δ, which is split over the E episodes that there will be."""
        if self.horizon is None:
            return 1, 6.0 * self._delta / (math.pi * self.episode) ** 2
        return int(math.log2(self.horizon + 1)), self._delta

    # -- what the two kinds of domain hold -------------------------------------------------------------------

    def _new_design(self) -> Tracked:
        """A posterior without data that keeps its variance over all candidates, or over known members of D_e."""
        if self._sets is not None:
            return self._sets.design()
        return Tracked(self.model, cast(Finite, self.domain), check=False)

    @property
    def _tracked(self) -> Tracked:
        return cast(Tracked, self._posterior)

    @property
    def _extent(self) -> NDArray[np.intp] | float:
        """What history keeps of D_e."""
        return self.active if self._sets is None else self._sets.volume

    def _points(self) -> NDArray[Any]:
        """This episode's points: indices, or rows in user units."""
        return np.array([query.x if query.index is None else query.index for query in self._slots])

    def _bands(self) -> Bands:
        """On a box: of the last complete episode."""
        return Bands.now(self._posterior, self._multiplier, self._own)

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
    def volume(self) -> float:
        """The share of the domain that is still active; on a box an estimate, from a sample (`level_sets.py`)."""
        return len(self.active) / len(cast(Finite, self.domain)) if self._sets is None else self._sets.volume

    @property
    def posterior(self) -> Posterior:
        """Of the last complete episode; the prior before the first."""
        return self._posterior

    def band(self, X: ArrayLike | None = None) -> Band:
        """μ ± w of the last complete episode, clipped to the own bands; as if the model were right.

        "nonadaptive" widths hold together on the points that were active in that episode, not on those gone before.
        """
        if self._sets is not None:
            if X is None:
                raise InvalidInput(f"band() without points needs a Finite domain, this is {self.domain!r}; hand in X")
            return self._bands().at(self._parse_actions(X).points)
        lower, upper = self._tracked.mean - self._widths, self._tracked.mean + self._widths
        if self._own is not None:
            lower, upper = confidence.clip(lower, upper, self._own.lower, self._own.upper)
        if X is None:
            return Band(lower, upper)
        given = self._parse_actions(X)
        rows = given.indices if given.indices is not None else cast(Finite, self.domain).indices(given.points)
        if (rows < 0).any():
            raise InvalidInput("the phased policy has bands on its candidates only; hand in indices or candidates")
        return Band(lower[rows], upper[rows])

    def recommend(self) -> Recommendation:
        """The maximiser of the lower end over what is active; on a box as far as the search finds it, the gap too."""
        if self._sets is not None:
            return self._recommend_on_box(self._sets)
        band, D = self.band(), self.active
        best = int(D[band.lower[D].argmax()])
        gap = float(band.upper[D].max() - band.lower[best])
        return self._recommendation(best, float(self._tracked.mean[best]), band, gap)

    def _recommend_on_box(self, sets: LevelSets) -> Recommendation:
        bands = self._bands()
        x, lower = sets.best(bands, -1.0)
        mean, upper = float(self._posterior.at(x[None, :])[0][0]), float(bands.at(x[None, :]).upper[0])
        gap = max(sets.best(bands, 1.0)[1], upper) - lower
        return Recommendation(x, None, None, mean, lower, upper, gap, self._trusted())

    @property
    def conflicts(self) -> list[Conflict]:
        """Among the points that were active in the last complete episode: its widths hold on those together."""
        sets = self._sets
        if sets is not None:
            found = find_conflicts(self._posterior, self._book, self.model, 0.0, lambda _, std: self._multiplier * std)
            then = len(sets.levels) - 1
            return [c for c in found if sets.contains(c.x[None, :], levels=then)[0]]
        active, widths, indices = set(self._covered.tolist()), self._widths, cast(Finite, self.domain).indices
        found = find_conflicts(self._posterior, self._book, self.model, 0.0, lambda X, _: widths[indices(X)])
        return [conflict for conflict in found if conflict.index in active]


def _check_width(width: str | float | None, domain: Domain) -> str | float:
    if width is None:
        return "mixture" if isinstance(domain, Box) else "nonadaptive"
    if width == "nonadaptive" and isinstance(domain, Box):
        raise InvalidInput(
            'width "nonadaptive" is for finitely many points; on a Box take "mixture", or box.cover(n) as the domain'
        )
    return confidence.check_width(width, also=["nonadaptive"])
