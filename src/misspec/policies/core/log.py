"""The events of a policy, in order, and what can be read from them alone.

("ask", query)                       a query was handed out, or others have begun it (OTHERS in its details)
("tell", id, y)                      its result
("drop", id)                         its evaluation failed
("observe", points, values[, c])     data from elsewhere, with their contexts if there are any
(kind, …)                            what a policy records for itself (`Policy._relive`)
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from misspec.errors import Array
from misspec.model import Model
from misspec.policies.core.answers import Observations, Query, copied
from misspec.policies.core.field import Field
from misspec.policies.core.points import Actions, Place
from misspec.search import distinct
from misspec.theory.own_bands import OwnBands

OTHERS = "others"  # in the details of a query that others asked: the id of the last query of their call
CERTIFIED = 1000  # points among which conflicts are looked for, at most: the convex program takes seconds then
OFTEN = 2000  # results up to which conflicts are looked for at every reading, which takes longer than the rounds beyond
GROWTH = 1.1  # beyond OFTEN they are looked for again whenever the results have grown by this factor

Event = tuple[Any, ...]


class Asked(NamedTuple):
    """What a policy keeps of a query: nothing is read back from the query itself."""

    query: Query
    place: Place
    details: dict[str, Any]  # of the query
    turn: int  # when it was asked, in events

    @property
    def of_others(self) -> bool:
        """Whether others asked it: evidence, but not a round of this policy."""
        return OTHERS in self.details


def pending(events: Sequence[Event], field: Field) -> OrderedDict[int, Asked]:
    """Queries that are asked, and neither told nor dropped."""
    asked: OrderedDict[int, Asked] = OrderedDict()
    for turn, (kind, *rest) in enumerate(events):
        if kind == "ask":
            query = rest[0]
            place = field.stored_place(query.index, query.x, query.context)
            asked[query.id] = Asked(query, place, copied(query.details), turn)
        elif kind in ("tell", "drop"):
            del asked[rest[0]]
    return asked


def observed(field: Field, model: Model, points: Any, _: Any, *contexts: Any) -> Actions:
    """The points of an event "observe"."""
    return field.pair(points, contexts[0], model) if contexts else field.parse(points, model)


def observations(events: Sequence[Event], field: Field, model: Model) -> Observations:
    """All results in the order told."""
    x: list[Array] = []
    y: list[float] = []
    ids: list[int] = []
    asked: dict[int, Query] = {}
    for kind, *rest in events:
        if kind == "ask":
            asked[rest[0].id] = rest[0]
        elif kind == "tell":
            x.append(field.point(asked[rest[0]]))
            y.append(rest[1])
            ids.append(rest[0])
        elif kind == "observe":
            x.extend(observed(field, model, *rest).points)
            y.extend(rest[1])
            ids.extend([-1] * len(rest[1]))
    points = np.array(x).reshape(len(y), field.domain.dimension)
    return Observations(points, np.array(y), np.array(ids, dtype=np.intp))


def milestone(events: Sequence[Event], t: int) -> int:
    """Number of events that `conflicts` considers: all up to OFTEN results, then those at the last growth by GROWTH."""
    if t <= OFTEN:
        return len(events)
    results = OFTEN * GROWTH ** math.floor(math.log(t / OFTEN, GROWTH) + 1e-9)
    told = 0
    for turn, (kind, *rest) in enumerate(events, start=1):
        told += 1 if kind == "tell" else len(rest[1]) if kind == "observe" else 0
        if told >= results:
            return turn
    return len(events)


def own_bands(events: Sequence[Event], field: Field, model: Model, now: OwnBands) -> OwnBands:
    """The own bands after some of the events; now: those after all of them."""
    own, asked = OwnBands(now.noise, now.delta, field.size), {}
    for kind, *rest in events:
        if kind == "ask":
            query = rest[0]
            place = asked[query.id] = field.stored_place(query.index, query.x, query.context)
            last = query.details.get(OTHERS)
            own.ask(place.key, query.id, place.x, others=None if last is None else last - query.id)
        elif kind == "tell":
            own.tell(asked[rest[0]].key, rest[1], rest[0])
        elif kind == "drop":
            own.drop(asked[rest[0]].key, rest[0])
        elif kind == "observe":
            parsed = observed(field, model, *rest)
            places = [field.place(parsed, row) for row in range(len(rest[1]))]
            own.observe([place.key for place in places], rest[1], [place.x for place in places])
    return own


def told_prefix(events: Sequence[Event], field: Field, model: Model, *, one_call: bool) -> tuple[Array, Array]:
    """Points, as the kernel sees them, and results up to the first pending query, in the order asked.

    one_call: and up to the second call that brings points from elsewhere, since these may be chosen by their values.
    """
    results = {event[1]: event[2] for event in events if event[0] == "tell"}
    dropped = {event[1] for event in events if event[0] == "drop"}
    points: list[Array] = []
    y: list[float] = []
    calls: set[Any] = set()
    for turn, (kind, *rest) in enumerate(events):
        if kind == "observe" or (kind == "ask" and OTHERS in rest[0].details):
            calls.add(("observe", turn) if kind == "observe" else rest[0].details[OTHERS])
        if len(calls) > 1 and one_call:
            break
        if kind == "ask" and rest[0].id not in results and rest[0].id not in dropped:
            break
        if kind == "ask" and rest[0].id in results:
            points.append(field.point(rest[0]))
            y.append(results[rest[0].id])
        elif kind == "observe":
            points.extend(observed(field, model, *rest).points)
            y.extend(rest[1])
    encoded = field.domain.encode(np.reshape(points, (len(y), field.domain.dimension)))
    if len(y) > CERTIFIED:  # the model's bands hold at all times, so at one that does not depend on the results
        first_seen = distinct(encoded).first
        if len(first_seen) > CERTIFIED:
            end = int(np.sort(first_seen)[CERTIFIED])
            return encoded[:end], np.array(y[:end])
    return encoded, np.array(y)
