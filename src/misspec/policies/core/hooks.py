"""Methods that a policy implements or may override: docs/write-a-policy.md has a picture of when each is called."""

from __future__ import annotations

import abc
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec.domains import Domain
from misspec.errors import StorageError
from misspec.limits import Limit
from misspec.model import Model
from misspec.policies.core import log
from misspec.policies.core.answers import Band, Conflict, Decision, Observations
from misspec.policies.core.evidence import Evidence
from misspec.policies.core.field import Field
from misspec.policies.core.log import Asked, Event, Log
from misspec.policies.core.points import Actions, Context, Place
from misspec.policies.core.suspicion import Prediction, missed_predictions
from misspec.posterior import Posterior
from misspec.theory.widths import Width
from misspec.truth import certificates

LOG = logging.getLogger("misspec.policies")


@dataclasses.dataclass(frozen=True)
class Abilities:
    """Facts about a policy that its callers have to know.

    takes_actions    ask(actions=…) works; takes_points: these may be points never seen before
    takes_data       it takes data from elsewhere
    waits            results of an episode are used only when all of them are told
    takes_noise      results may have noises of their own: tell(…, noise=…)
    keeps_rounds     told queries carry bookkeeping (rounds, episodes) that `observe` cannot supply
    draws            choosing may draw from self._rng
    heeds_failures   a dropped query teaches it where evaluations fail; otherwise it is as if never asked
    """

    takes_actions: bool = True
    takes_points: bool = True
    takes_data: bool = True
    takes_noise: bool = False
    waits: bool = False
    keeps_rounds: bool = False
    draws: bool = True
    heeds_failures: bool = False


class Hooks(abc.ABC):
    """Override points of `Policy`. Defaults feed `_evidence`: own bands, and the posteriors made with it.

    Inside, everything is maximised: where smaller is better, hooks are told −y, `model` is that of −y, and bands and
    means are of −y too. `Policy` turns signs where results enter and answers leave.

    abilities   facts that callers have to know
    counters    attributes of its own that a snapshot keeps, besides those of `_evidence` and `log`
    theorem     what bounds its regret as it is set, as `reports` know it; "" for nothing
    limit       evaluations after which it ends, None for no end
    minimize    whether smaller is better
    limits      on quantities that are measured beside the objective
    """

    abilities: Abilities = Abilities()
    counters: tuple[str, ...] = ()
    theorem: str = ""
    limit: int | None = None
    minimize: bool = False
    limits: tuple[Limit, ...] = ()
    domain: Domain
    model: Model
    field: Field
    log: Log
    grounded: bool
    _delta: float
    _evidence: Evidence
    _without: list[str]
    _replaying: bool = False  # while restoring: what happens happened before

    def _promise(self, width: Width, *models: Model) -> None:
        """Note why bands of this width and these models hold at no stated level, if they do not."""
        if not isinstance(width, str):
            self.theorem = ""
        if callable(width):
            self._without.append("the width is a function that was handed in: what it guarantees is not known here")
        elif not isinstance(width, str):
            self._without.append("the width is a number, which guarantees nothing")
        if any(model.fitted for model in models):
            self._without.append("the model was fitted to data: its constants are not known before them")

    def _say(self, message: str, *values: Any) -> None:
        """Log something that has just happened to the policy."""
        if not self._replaying:
            LOG.info(f"%s: {message}", type(self).__name__, *values)

    # -- choosing --------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def choose(self, actions: Any) -> Decision:
        """The next query; changes nothing but the random state. actions: what the round offers (`points.Round`); None
        or a Context is the whole domain, from which `field.offer` makes Actions."""

    def available(self) -> int | None:
        """How many queries can be asked now (None: any number); raises where none can."""
        return None

    def admit(self, actions: Actions) -> Actions:
        """Check points handed in, to choose from or to learn; InvalidInput for those that this policy cannot use."""
        return actions

    # -- events ----------------------------------------------------------------------------------------------

    def on_ask(self, asked: Asked) -> None:  # noqa: B027  # optional
        """A query was handed out."""

    def on_tell(self, asked: Asked, y: float, noise: float | None = None) -> None:
        """A query has a result; noise: its own standard deviation, where the policy takes that."""
        self._evidence.learn(asked.query.id, asked.place, y, noise)

    def on_drop(self, asked: Asked) -> None:
        """A query was dropped."""
        self._evidence.forget(asked.query.id, asked.place)

    def on_observe(
        self, actions: Actions, places: list[Place], y: list[float], noise: list[float] | None = None
    ) -> None:
        """Data came from elsewhere; noise: as for `on_tell`, NaN for results without."""
        self._evidence.observe(actions.points, places, y, noise)

    def on_limits(self, places: Sequence[Place], values: Mapping[str, Sequence[float]]) -> None:  # noqa: B027  # optional
        """Results that were just learnt have these values of limited quantities, NaN where they are unknown."""

    def check_details(self, details: Mapping[str, Any]) -> None:  # noqa: B027  # optional
        """InvalidInput where the details of a stored query, which this policy reads back, are not as it writes them."""

    # -- events of its own -----------------------------------------------------------------------------------

    def prepare(self) -> None:  # noqa: B027  # optional
        """Before a query is chosen: what changes the policy here it records as an event of its own (`log.add`)."""

    def on_event(self, kind: str, *rest: Any) -> None:  # noqa: ARG002  # by default there are none
        """Replay an event of the policy's own."""
        raise StorageError(f"unknown event {kind!r} in a policy's state; was it written by a newer misspec?")

    def unsummed(self) -> str:
        """Why its events cannot be summed up in a snapshot (`undo.py`); "" where they can."""
        return "it needs all its events"

    def after_retraction(self, event: Event) -> Event | None:
        """An event of the log as it stands once a result before it was taken back; None for one that goes too."""
        return event

    # -- answers ---------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def band_at(self, actions: Actions) -> Band:
        """Bands for f* at the actions; every term included, told data only."""

    @property
    @abc.abstractmethod
    def posterior_in_use(self) -> Posterior:
        """The posterior that `posterior` shows: of −y, where smaller is better."""

    @property
    def epsilon(self) -> float:
        """The misspecification that the bands allow for."""
        return 0.0

    @property
    def reported_model(self) -> Model:
        """The model whose bands are reported."""
        return self.model

    def contenders(self, within: Context | None = None) -> Actions:
        """Candidates for `recommend`: they include the maximisers of the lower and upper band that a search found.
        within: at this context."""
        return self.field.whole("recommend()") if within is None else self.field.spread(within)

    def usable(self, actions: Actions) -> NDArray[np.bool_]:
        """Which actions may be recommended; at least one."""
        return np.ones(len(actions.points), dtype=bool)

    def mean_at(self, place: Place) -> float:
        """The model's mean at a place."""
        return float(self.field.look(self.posterior_in_use, None, place.only(), pending=False).mean[0])

    def find_conflicts(self, events: Sequence[Event]) -> list[Conflict]:
        """The `certified_conflicts` in the observations of some events, each certificate with its share of δ."""
        field, own, delta = self.field, self._evidence.own, self.model.delta / certificates.PARTS
        if len(events) < len(self.log.events):
            own = log.own_bands(events, field, self.model, own, self.log.sign)
        points, averages, _, radii = own.table(delta)
        if not len(points):
            return []
        keys = own.keys()
        if len(points) > log.CERTIFIED:  # own bands hold for all points at once, so for those that are chosen by them
            best = np.sort(np.argsort(radii, kind="stable")[: log.CERTIFIED])
            points, averages, radii, keys = points[best], averages[best], radii[best], [keys[i] for i in best]
        # where the model's band is compared with what its class allows: candidates or a cover, unless too many
        cover = field.spread()
        also = np.arange(len(cover.points) if len(cover.points) * len(points) ** 2 <= certificates.MOST_WORK else 0)
        told, y, noise = log.told_prefix(events, field, self.model, self.log.sign, one_call=self.log.in_parts)
        encoded = field.domain.encode(told)
        by = None if np.isnan(noise).all() else self.model.precision(noise, len(y))
        found = certificates.certified_conflicts(
            self.reported_model,
            certificates.OwnIntervals(self.domain.encode(points), averages, radii),
            certificates.Averages.of(encoded, y, by),
            delta=delta,
            epsilon=self.epsilon,
            also=cover.encoded[also],
        )
        first = certificates.numbered_points(encoded)[1]  # rows of `told`, one per point of its averages
        where = np.concatenate([points, cover.points[also], told[first]])
        keys = [*keys, *(also.tolist() if field.size else [b""] * len(also))]
        keys += field.keys(field.parse(told[first], self.model)) if len(first) else []
        return [
            Conflict(where[i], key if isinstance(key := keys[i], int) and field.indexed else None, gap, implied, kind)
            for i, gap, implied, kind in found
        ]

    def find_suspicious(self, told: Observations) -> dict[int, Prediction]:
        """Predictions of suspicious results by the others, in units of what is maximised; by their rows."""
        y, encoded = self.log.sign * told.y, self.domain.encode(told.x)
        mean = self.posterior_in_use.look(encoded).mean if len(y) else y
        own = None if np.isnan(told.noise).all() else told.noise
        return missed_predictions(self.reported_model, encoded, y, np.abs(y - mean), own)

    # -- what there is to read of some policies --------------------------------------------------------------

    @property
    def posteriors(self) -> list[Posterior]:
        """All posteriors that are fed, the one in use among them."""
        return list(self._evidence.posteriors)

    @property
    def remaining(self) -> int | None:
        """Queries that can be asked before results are needed, for a policy that hands out episodes; else None."""
        return None

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that are particular to this policy, for traces and pictures."""
        return {}

    @property
    def alive(self) -> NDArray[np.intp] | None:
        """The candidates that are left, for a policy that eliminates; None for others."""
        return None
