"""What policies over several bases share: one of them speaks for all, and rounds count in the order asked."""

from __future__ import annotations

import abc
from collections import OrderedDict

from misspec.model import Model
from misspec.policies.core.answers import Band
from misspec.policies.core.hooks import Abilities
from misspec.policies.core.log import Asked
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
    def posterior(self) -> Posterior:
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


class Rounds:
    """A round counts once it is told and every round before it is told or dropped: results that were chosen by their
    values count no earlier than others."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, tuple[Asked, float | None]] = OrderedDict()

    def ask(self, asked: Asked) -> None:
        """A round was asked."""
        self._open[asked.query.id] = (asked, None)

    def tell(self, asked: Asked, y: float) -> list[tuple[Asked, float]]:
        """Its result; which rounds count from now on."""
        self._open[asked.query.id] = (asked, y)
        return self._counted()

    def drop(self, asked: Asked) -> list[tuple[Asked, float]]:
        """It never was; which rounds count from now on."""
        del self._open[asked.query.id]
        return self._counted()

    def waiting(self) -> list[Asked]:
        """Rounds that do not count yet."""
        return [asked for asked, _ in self._open.values()]

    def _counted(self) -> list[tuple[Asked, float]]:
        found = []
        while self._open:
            id_, (asked, y) = next(iter(self._open.items()))
            if y is None:
                break
            del self._open[id_]
            found.append((asked, y))
        return found
