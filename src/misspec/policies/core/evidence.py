"""How results reach posteriors and own bands.

Pending queries are counted in the posteriors when the next query is chosen, not when one is asked: asking and telling
in turn never needs that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from misspec.errors import Array
from misspec.model import Model
from misspec.policies.core.field import Field
from misspec.policies.core.log import Asked
from misspec.policies.core.points import Place
from misspec.posterior import Posterior, Tracked
from misspec.posterior.layered import Layered
from misspec.theory.own_bands import OwnBands


def posterior_on(field: Field, model: Model, *, weights: bool, budget: int | None) -> Posterior:
    """A posterior over the candidates, or anywhere; weights: whether ‖ζ‖₁ is needed at every step."""
    if field.listed is not None:
        return Tracked(model, field.listed, weights=weights, budget=budget)
    return Posterior(model, field.domain, weights=weights, budget=budget)


class Evidence:
    """The own bands of a policy, and the posteriors that it feeds.

    Law: told and pending results are in all posteriors that they are meant for, or in none; the own bands have the
    told ones only. A query is meant for all posteriors, unless `restrict` says for which.

    expects: whether posteriors count what is pending. beside: whether results have the model's noise beside their own.
    """

    def __init__(self, field: Field, model: Model, delta: float, *, expects: bool = True, beside: bool = False) -> None:
        self.field, self._model, self._expects, self._beside = field, model, expects, beside
        self.own = OwnBands(model.noise, delta, field.size)
        self.posteriors: list[Posterior] = []
        self.layers: list[Layered] = []  # on these posteriors, and fed after them
        self._asked: dict[int, Place] = {}  # queries that no posterior counts as pending yet
        self._expected: set[int] = set()  # queries that the posteriors count as pending
        self._restricted: dict[int, list[Posterior]] = {}

    def posterior(self, model: Model, *, weights: bool = False, budget: int | None = None) -> Posterior:
        """One more posterior that sees every observation."""
        self.posteriors.append(posterior_on(self.field, model, weights=weights, budget=budget))
        return self.posteriors[-1]

    def ask(self, id_: int, place: Place, others: int | None = None) -> None:
        """A query was handed out, which fixes the rank of its point; others: as for `OwnBands.ask`."""
        self.own.ask(place.key, id_, place.x, others=others)
        self._asked[id_] = place

    def restrict(self, id_: int, posteriors: list[Posterior]) -> None:
        """Feed the result of a query that was just asked to these posteriors only."""
        self._restricted[id_] = posteriors

    def redirect(self, id_: int, place: Place, to: Posterior, instead_of: Posterior | None) -> None:
        """Feed the result of a pending query, restricted before, to this posterior too, or instead of another."""
        self._restricted[id_] = [each for each in self._restricted[id_] if each is not instead_of] + [to]
        if id_ in self._expected:
            to.expect(place.code)

    def feeds(self, id_: int) -> list[Posterior]:
        """The posteriors that a pending query is meant for."""
        return self._restricted.get(id_, self.posteriors)

    def expect(self) -> None:
        """Count all pending queries in the variance for choosing."""
        if not self._asked or not self._expects:
            return
        asked, self._asked = self._asked, {}
        for id_, place in asked.items():
            for posterior in self.feeds(id_):
                posterior.expect(place.code)
            self._expected.add(id_)
        for layer in self.layers:
            for place in asked.values():
                layer.expect(place.key, place.code)

    def learn(self, id_: int, place: Place, y: float, noise: float | None = None) -> None:
        """The result of a query; noise: its own standard deviation."""
        posteriors, expected = self._settled(id_)
        for posterior in posteriors:
            posterior.add(place.code, y, expected=expected, noise=noise)
        self.own.tell(place.key, y, id_, self._precision(noise))
        for layer in self.layers:
            layer.learn(place.key, place.code, y, expected=expected, noise=noise)

    def forget(self, id_: int, place: Place) -> None:
        self.own.drop(place.key, id_)
        posteriors, expected = self._settled(id_)
        if expected:
            for posterior in posteriors:
                posterior.release(place.code)
            for layer in self.layers:
                layer.release(place.key)

    def observe(
        self, points: Array, places: Sequence[Place], y: Sequence[float], noise: Sequence[float] | None = None
    ) -> None:
        """Data from elsewhere, points in user units; noise: their own standard deviations, NaN for none."""
        for posterior in self.posteriors:
            posterior.observe(points, y, noise=noise)
        each = [math.nan] * len(places) if noise is None else noise
        by = None if noise is None else [self._precision(one) for one in noise]
        self.own.observe([place.key for place in places], y, [place.x for place in places], by)
        for layer in self.layers:
            for place, value, one in zip(places, y, each, strict=True):
                layer.learn(place.key, place.code, value, noise=None if one != one else one)

    def _settled(self, id_: int) -> tuple[list[Posterior], bool]:
        """The posteriors of a query that is no longer pending, and whether they have counted it as such."""
        expected = id_ in self._expected
        self._asked.pop(id_, None)
        self._expected.discard(id_)
        return self._restricted.pop(id_, self.posteriors), expected

    def _precision(self, noise: float | None) -> float | None:
        """How often a result counts in its own band; None for once."""
        if noise is None or noise != noise:
            return None
        return float(self._model.precision(math.hypot(noise, self._model.noise) if self._beside else noise)[0])

    def snapshot(self, *, forget: bool) -> dict[str, Any]:
        """All that was learnt, as JSON; forget: without points that are summed up. A part is None where none are."""
        own, waiting = self.own.copy(), [place.key for place in self._asked.values()]
        if forget:
            own.forget()
        return {
            "own": own.snapshot(),
            "posteriors": [posterior.snapshot(forget=forget) for posterior in self.posteriors],
            "layers": [layer.snapshot(waiting if forget else None) for layer in self.layers],
            "expected": sorted(self._expected),
        }

    def resume(self, content: Any, pending: Mapping[int, Asked]) -> None:
        """Go on from a snapshot, with these queries pending."""
        self.own.resume(content["own"])
        for each, stored in zip(self.posteriors, content["posteriors"], strict=True):
            each.resume(stored)
        for layer, stored in zip(self.layers, content["layers"], strict=True):
            layer.resume(stored)
        self._expected = {each for each in content["expected"] if each in pending}
        self._asked = {id_: asked.place for id_, asked in pending.items() if id_ not in self._expected}
        self._restricted = {}
