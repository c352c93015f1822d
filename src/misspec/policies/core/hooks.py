"""What a policy implements, and what it may override: docs/write-a-policy.md has a picture of when each is called."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec.errors import StorageError
from misspec.model import Model
from misspec.policies.core.answers import Band, Decision
from misspec.policies.core.evidence import Evidence
from misspec.policies.core.field import Field
from misspec.policies.core.log import Asked
from misspec.policies.core.points import Actions, Context, Place
from misspec.posterior import Posterior


class Hooks(abc.ABC):
    """Override points of `Policy`. Defaults feed `_evidence`: own bands, and the posteriors made with it."""

    field: Field
    model: Model
    _evidence: Evidence

    # -- choosing --------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _choose(self, actions: Any) -> Decision:
        """The next query; changes nothing but the random state. actions: what the round offers (`points.Round`); None
        or a Context is the whole domain, from which `field.offer` makes Actions."""

    def _available(self) -> int | None:
        """How many queries can be asked now (None: any number); raises where none can."""
        return None

    def _admit(self, actions: Actions) -> Actions:
        """What was handed in to choose from or to learn; InvalidInput for what this policy cannot use."""
        return actions

    # -- events ----------------------------------------------------------------------------------------------

    def _remember(self, asked: Asked) -> None:  # noqa: B027  # optional
        """A query was handed out."""

    def _learn(self, asked: Asked, y: float) -> None:
        """A query has a result."""
        self._evidence.learn(asked.query.id, asked.place, y)

    def _forget(self, asked: Asked) -> None:
        """A query was dropped."""
        self._evidence.forget(asked.query.id, asked.place)

    def _observe(self, actions: Actions, places: list[Place], y: list[float]) -> None:
        """Data came from elsewhere."""
        self._evidence.observe(actions.points, places, y)

    def _recognise(self, details: Mapping[str, Any]) -> None:  # noqa: B027  # optional
        """InvalidInput where the details of a stored query, which this policy reads back, are not as it writes them."""

    # -- events of its own -----------------------------------------------------------------------------------

    def _prepare(self) -> None:  # noqa: B027  # optional
        """Before a query is chosen: what changes the policy here it records as an event of its own (`log.add`)."""

    def _relive(self, kind: str, *rest: Any) -> None:  # noqa: ARG002  # by default there are none
        """Replay an event of the policy's own."""
        raise StorageError(f"unknown event {kind!r} in a policy's state; was it written by a newer misspec?")

    # -- answers ---------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _band(self, actions: Actions) -> Band:
        """Bands for f* at the actions; every term included, told data only."""

    @property
    @abc.abstractmethod
    def posterior(self) -> Posterior:
        """The posterior in use: .mean and .std over a Finite domain, .at(X) anywhere."""

    @property
    def epsilon(self) -> float:
        """The misspecification that the bands allow for."""
        return 0.0

    @property
    def _reported_model(self) -> Model:
        """The model whose bands are reported."""
        return self.model

    def _contenders(self, within: Context | None = None) -> Actions:
        """Candidates for `recommend`: they include the maximisers of the lower and upper band that a search found.
        within: at this context."""
        return self.field.whole("recommend()") if within is None else self.field.spread(within)

    def _usable(self, actions: Actions) -> NDArray[np.bool_]:
        """Which actions may be recommended; at least one."""
        return np.ones(len(actions.points), dtype=bool)

    def _mean(self, place: Place) -> float:
        """The model's mean at a place."""
        return float(self.field.look(self.posterior, None, self.field.only(place), pending=False).mean[0])

    # -- what there is to read of some policies --------------------------------------------------------------

    @property
    def remaining(self) -> int | None:
        """Queries that can be asked before results are needed, for a policy that hands out episodes; else None."""
        return None

    @property
    def facts(self) -> dict[str, Any]:
        """What is particular to this policy, for traces and pictures."""
        return {}

    @property
    def alive(self) -> NDArray[np.intp] | None:
        """The candidates that are left, for a policy that eliminates; None for others."""
        return None
