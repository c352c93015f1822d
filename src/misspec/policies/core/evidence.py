"""How results reach posteriors and own bands.

Pending queries are hallucinated when the next query is chosen, not when one is asked: asking and telling in turn never
needs any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from misspec.model import Model
from misspec.policies.core.field import Field
from misspec.policies.core.points import Place
from misspec.posterior import Posterior
from misspec.theory.own_bands import OwnBands


class Evidence:
    """The own bands of a policy, and the posteriors that it feeds.

    Law: told and pending results are in all posteriors that they are meant for, or in none; the own bands have the
    told ones only. `feeds` are the posteriors that a query is meant for, by default all.
    """

    def __init__(self, field: Field, model: Model, delta: float) -> None:
        self.field = field
        self.own = OwnBands(model.noise, delta, field.size)
        self.posteriors: list[Posterior] = []
        self._expected: set[int] = set()  # queries that the posteriors count as pending

    def posterior(self, model: Model, *, weights: bool = False, budget: int | None = None) -> Posterior:
        """One more posterior that sees every observation."""
        self.posteriors.append(self.field.posterior(model, weights=weights, budget=budget))
        return self.posteriors[-1]

    def ask(self, id: int, place: Place, others: int | None = None) -> None:  # noqa: A002  # of a query, as everywhere
        """A query was handed out, which fixes the rank of its point; others: as for `OwnBands.ask`."""
        self.own.ask(place.key, id, place.x, others=others)

    def expect(self, id: int, place: Place, feeds: Iterable[Posterior] | None = None) -> None:  # noqa: A002
        """Count a pending query in the variance for choosing."""
        for posterior in self.posteriors if feeds is None else feeds:
            self.field.expect(posterior, place)
        self._expected.add(id)

    def learn(self, id: int, place: Place, y: float, feeds: Iterable[Posterior] | None = None) -> None:  # noqa: A002
        """The result of a query."""
        expected = id in self._expected
        for posterior in self.posteriors if feeds is None else feeds:
            self.field.learn(posterior, place, y, expected=expected)
        self._expected.discard(id)
        self.own.tell(place.key, y, id)

    def forget(self, id: int, place: Place, feeds: Iterable[Posterior] | None = None) -> None:  # noqa: A002
        """A query that was dropped."""
        self.own.drop(place.key, id)
        if id in self._expected:
            self._expected.discard(id)
            for posterior in self.posteriors if feeds is None else feeds:
                self.field.release(posterior, place)

    def observe(self, points: object, places: Sequence[Place], y: Sequence[float]) -> None:
        """Data from elsewhere, points in user units."""
        for posterior in self.posteriors:
            posterior.observe(points, y)  # type: ignore[arg-type]  # (n, d)
        self.own.observe([place.key for place in places], y, [place.x for place in places])
