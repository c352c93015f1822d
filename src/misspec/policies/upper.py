"""What GP-UCB, EC-GP-UCB and the corruption-tolerant GP-UCB share: one learner on one posterior."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import confidence
from misspec.confidence import OwnBands
from misspec.domains import Box, Domain, Finite
from misspec.errors import Array, flag, number
from misspec.model import Model
from misspec.policies.base import Actions, Band, Conflict, Policy, Query, Recommendation, check_arguments
from misspec.policies.boxed import BoxSearch
from misspec.policies.learner import Learner, keys
from misspec.posterior import Posterior
from misspec.tracked import Tracked


class Feeding(Policy):
    """A policy whose posteriors learn every result as it is told, and see pending points in their variance.

    Hallucinations are made when the next query is chosen, not when one is asked: asking and telling in turn never
    needs any.
    """

    def __init__(
        self,
        domain: Domain,
        model: Model,
        seed: int,
        *,
        own_delta: float | None,
        resolution: float | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(domain, model, seed, **settings)
        self._box = BoxSearch(domain, seed) if isinstance(domain, Box) else None
        self._resolution = 0.0 if resolution is None else number("resolution", resolution, at_least=0)
        size = len(domain) if isinstance(domain, Finite) else 0
        self._own = None if own_delta is None else OwnBands(model.noise, own_delta, size)
        # policies that do not choose by own bands keep them to find conflicts, with half of δ for these
        self._book = OwnBands(model.noise, model.delta / 2, size) if self._own is None else self._own
        self._feeds: list[Posterior] = []  # posteriors that see every observation
        self._hallucinated: set[int] = set()  # queries that the posteriors count as pending

    def _available(self, actions: Actions | None) -> int | None:  # noqa: ARG002  # any number, whatever is on offer
        return None

    def _offer_of_box(self, learner: Learner, *, sign: float, pending: bool) -> Actions:
        """A finite offer that holds the maximiser of the learner's upper (sign = 1) or lower end over the box."""
        box = cast(BoxSearch, self._box)
        seen = [] if self._own is None else self._own.keys()
        observed = np.array([np.frombuffer(cast(bytes, key)) for key in seen]).reshape(len(seen), self.domain.dimension)
        observed = observed[self.domain.contains(observed)]  # data from elsewhere may lie outside
        # what is next to an observed point is not asked, but it counts in what could be better
        resolution = self._resolution if pending else 0.0
        points = box.offer(learner, observed, self._next_id, sign=sign, pending=pending, resolution=resolution)
        return Actions(points, self.domain.encode(points), None)

    def _choose_by(self, learner: Learner, actions: Actions | None) -> Query:
        """The maximiser of a learner's upper end: over the actions, the candidates, or the box."""
        if actions is None and self._box is not None:
            offer = self._offer_of_box(learner, sign=1.0, pending=True)
            row, query = learner.choose(learner.candidates(offer, pending=True))
            return dataclasses.replace(self._finished(query, row, offer), position=None)
        row, query = learner.choose(learner.candidates(actions, pending=True))
        return self._finished(query, row, actions)

    @property
    def _reported(self) -> Learner:
        """The learner whose bands are reported."""
        raise NotImplementedError

    def recommend(self) -> Recommendation:
        """The maximiser of the lower band for f*; on a box as far as the search finds it, and the gap likewise."""
        if self._box is None:
            return super().recommend()
        learner = self._reported
        lows, highs = (self._offer_of_box(learner, sign=sign, pending=False).points for sign in (-1.0, 1.0))
        points = np.concatenate([lows, highs])
        band = self.band(points)
        best = int(band.lower.argmax())
        x = points[best].copy()
        x.flags.writeable = False
        lower, upper = float(band.lower[best]), float(band.upper[best])
        mean = float(learner.posterior.at(x[None, :])[0][0])
        gap = float(band.upper.max()) - lower
        return Recommendation(x, None, None, mean, lower, upper, gap, self._trusted())

    def _prepare(self) -> None:
        for query in self._queries.values():
            if query.id not in self._hallucinated:
                for posterior in self._feeds_of(query):
                    _hallucinate(posterior, query)
                self._hallucinated.add(query.id)

    def _feeds_of(self, query: Query) -> list[Posterior]:  # noqa: ARG002  # balancing feeds the base that played
        return self._feeds

    def _told(self, query: Query, y: float) -> None:
        hallucinated = query.id in self._hallucinated
        for posterior in self._feeds_of(query):
            if query.index is not None and isinstance(posterior, Tracked):
                (posterior.fulfil_index if hallucinated else posterior.observe_index)(query.index, y)
            else:
                (posterior.fulfil if hallucinated else posterior.observe)(query.x[None, :], y)
        self._hallucinated.discard(query.id)
        self._book.tell(query.index if query.index is not None else keys(self.posterior, query.x[None, :])[0], y)

    def _dropped(self, query: Query) -> None:
        if query.id in self._hallucinated:
            self._hallucinated.discard(query.id)
            for posterior in self._feeds_of(query):
                posterior.release(query.x[None, :])

    def _observed(self, points: Array, indices: NDArray[np.intp] | None, y: Array) -> None:
        for posterior in self._feeds:
            posterior.observe(points, y)
        names = keys(self.posterior, points) if indices is None else [int(i) for i in indices]
        for key, value in zip(names, y.tolist(), strict=True):
            self._book.tell(key, value)

    def _conflicts_of(self, learner: Learner) -> list[Conflict]:
        return learner.conflicts(self._book, learner.delta if self._own is not None else learner.delta / 2)

    def _finished(self, query: Query, row: int, actions: Actions | None) -> Query:
        """The query with its point filled in."""
        if actions is None or actions.indices is not None:
            index = row if actions is None else int(actions.indices[row])  # type: ignore[index]  # checked above
            x, name = self._candidate(index)
            filled: dict[str, Any] = {"x": x, "name": name, "index": index}
        else:
            x = actions.points[row].copy()  # not a view: a query must not keep a whole action set alive
            x.flags.writeable = False
            found = int(self.domain.indices(x[None, :])[0]) if isinstance(self.domain, Finite) else -1
            filled = {"x": x}
            if found >= 0:
                filled = {"index": found, **dict(zip(("x", "name"), self._candidate(found), strict=True))}
        return dataclasses.replace(query, position=None if actions is None else row, **filled)


def _hallucinate(posterior: Posterior, query: Query) -> None:
    if query.index is not None and isinstance(posterior, Tracked):
        posterior.hallucinate_index(query.index)
    else:
        posterior.hallucinate(query.x[None, :])


def make_posterior(model: Model, domain: Domain, weights: bool) -> Posterior:
    return Tracked(model, domain, weights=weights) if isinstance(domain, Finite) else Posterior(model, domain)


class UpperConfidence(Feeding):
    """Plays the maximiser of one learner's upper end."""

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        epsilon: float,
        enlargement: str,
        width: str | float,
        grounded: bool,
        corruption: float = 0.0,
        inflate: bool,
        resolution: float | None = None,
        seed: int,
        **settings: Any,
    ) -> None:
        check_arguments(domain, model)
        grounded, inflate = flag("grounded", grounded), flag("inflate", inflate)
        delta = model.delta / (2 if grounded else 1)  # split equally over the model's width and the own bands
        width = confidence.check_width(width)
        settings = {"width": width, "grounded": grounded, "inflate": inflate, **settings}
        own_delta = delta if grounded else None
        super().__init__(domain, model, seed, own_delta=own_delta, resolution=resolution, **settings)
        self.guaranteed = isinstance(width, str) and not model.fitted
        epsilon = number("epsilon", epsilon, at_least=0)
        posterior = make_posterior(model, domain, weights=enlargement == "exact" and epsilon > 0)
        self._feeds = [posterior]
        self._learner = Learner(
            model,
            posterior,
            self._own,
            epsilon=epsilon,
            width=width,
            enlargement=enlargement,
            delta=delta,
            corruption=corruption,
            inflate=inflate,
        )

    @property
    def posterior(self) -> Posterior:
        return self._learner.posterior

    @property
    def _reported(self) -> Learner:
        return self._learner

    def _choose(self, actions: Actions | None) -> Query:
        return self._choose_by(self._learner, actions)

    def band(self, X: ArrayLike | None = None) -> Band:
        actions = None
        if X is None:
            self._needs_finite("band() without points")
        else:
            actions = self._parse_actions(X)
        band = self._learner.band(self._learner.candidates(actions, pending=False))
        return Band(band.lower, band.upper)

    @property
    def conflicts(self) -> list[Conflict]:
        return self._conflicts_of(self._learner)
