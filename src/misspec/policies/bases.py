"""Policies over several bases, one of which speaks for all."""

from __future__ import annotations

import abc

from misspec.model import Model
from misspec.policies.core.answers import Band
from misspec.policies.core.hooks import Abilities
from misspec.policies.core.points import Actions, Context
from misspec.policies.core.policy import Policy
from misspec.policies.enlarged import Enlarged
from misspec.posterior import Posterior


class OverBases(Policy):
    """A policy whose bands and recommendation are those of one of its bases."""

    abilities = Abilities(keeps_rounds=True)

    @property
    @abc.abstractmethod
    def _reported(self) -> Enlarged:
        """The base that speaks for all."""

    @property
    def reported_model(self) -> Model:
        return self._reported.model

    @property
    def posterior_in_use(self) -> Posterior:
        """Of the base whose bands `band` and `recommend` report."""
        return self._reported.posterior

    @property
    def epsilon(self) -> float:
        """The ε̂ of that base: what bands and recommendation allow for."""
        return self._reported.epsilon

    def band_at(self, actions: Actions) -> Band:
        base = self._reported
        return base.band(self.field.look(base.posterior, base.own, actions, pending=False))

    def contenders(self, within: Context | None = None) -> Actions:
        return self._reported.contenders(self.field, self.log.next_id, within)
