"""The events of a policy, in order, and what can be read from them alone.

("ask", query)                       a query was handed out, or others have begun it (OTHERS in its details)
("tell", id, y[, noise[, limits]])   its result, with its own noise if it has one, and the values of limited quantities
("drop", id)                         its evaluation failed
("observe", points, values[, c[, n[, limits]]])   data from elsewhere, with contexts, noises and values of limited
                                     quantities if there are any. What is left out before others is None
("snapshot", content)                all that was learnt before (`undo.py`): events before it are history
(kind, …)                            what a policy records for itself (`Policy.on_event`)

They are JSON, in states and in files alike, but for

["ask", {…}]          a query: id, index, position and asked_at, those that are set; as base64 of little-endian
                      float64 the context, x without an index, and NUMBERS as `by`, if one is set; details, if any
["observe", points, values, contexts, noises, limits]   arrays (`encoding.encode_array`), the last three where there
                      are any; limits: by name, NaN where a value is unknown

In decimal digits these would take three times as long and twice the bytes.
"""

from __future__ import annotations

import json
import math
import struct
from binascii import a2b_base64, b2a_base64
from collections import OrderedDict
from collections.abc import Sequence
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from misspec.encoding import check_plain, decode_array, encode_array
from misspec.errors import MOST, Array, StorageError, number, shown, whole
from misspec.files import storage
from misspec.model import Model
from misspec.policies.core.answers import NUMBERS, Observations, Query, copied
from misspec.policies.core.field import Field
from misspec.policies.core.points import Actions, Place
from misspec.search import distinct
from misspec.theory.own_bands import OwnBands

OTHERS = "others"  # in the details of a query that others asked: the id of the last query of their call
CERTIFIED = 1000  # points among which conflicts are looked for, at most: the convex program takes seconds then
OFTEN = 2000  # results up to which conflicts are looked for at every reading, which takes longer than the rounds beyond
GROWTH = 1.1  # beyond OFTEN they are looked for again whenever the results have grown by this factor

COUNTS = ("t", "answered", "next_id", "calls", "_latest", "_last_of_others")  # that a snapshot keeps
TYPES: dict[str, list[list[type]]] = {  # what can follow the names of events
    "ask": [[dict]],
    "tell": [[int, y, *more] for y in (int, float) for more in ([], [float], [float, dict], [NoneType, dict])],
    "drop": [[int]],
    "observe": [
        [dict, dict, *more]
        for c in (dict, NoneType)
        for more in ([], [dict], [c, dict], [c, dict, dict], [c, NoneType, dict])
    ],
}
STORED = {"id", "position", "details", "asked_at"}  # of a query, besides where it is and what it was chosen by
ENCODE = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode
DOUBLE = np.dtype("<f8")
_numbers_of, _packed = attrgetter(*NUMBERS), struct.Struct(f"<{len(NUMBERS)}d").pack

Event = tuple[Any, ...]


class Asked(NamedTuple):
    """A query as a policy keeps it: nothing is read back from the query itself."""

    query: Query
    place: Place
    details: dict[str, Any]  # of the query
    turn: int  # when it was asked, in events

    @property
    def of_others(self) -> bool:
        """Whether others asked it: evidence, but not a round of this policy."""
        return OTHERS in self.details


class Log:
    """All events of a policy, and what follows from them alone: what is pending, how much is told, in which order.

    t           told observations
    answered    of these, results of the policy's own queries
    pending     queries that are neither told nor dropped, in the order asked
    next_id     of the next query
    calls       of `observe` and `mark_pending`
    forgotten   events, and results among them, before the first that is there: a snapshot has replaced them
    start       where the events after the last snapshot begin
    independent whether when results are told, and in which calls, does not depend on what they are
    sign        −1 where smaller is better: events hold y as it was told, `own_bands` and `told_prefix` sign·y
    """

    def __init__(self, field: Field, *, independent: bool = False, sign: float = 1.0) -> None:
        self.field = field
        self.independent = independent
        self.sign = sign
        self.events: list[Event] = []
        self.pending: OrderedDict[int, Asked] = OrderedDict()
        self.t = self.answered = self.next_id = self.calls = 0
        self._latest = -1  # the latest turn asked among what is told
        self._of_others = 0  # pending queries that others asked
        self._last_of_others = -1  # OTHERS of the latest such query, which tells their calls apart
        self.forgotten = (0, 0)
        self.start = 0

    def add(self, kind: str, *rest: Any, place: Place | None = None) -> None:
        """Note an event and what follows from it; place: of a query, where it is at hand."""
        if kind == "ask":
            query: Query = rest[0]
            asked = Asked(query, place or place_of(query, self.field), copied(query.details), self.turn)
            self.pending[query.id] = asked
            self.next_id = query.id + 1
            if asked.of_others:
                self._of_others += 1
                self.calls += asked.details[OTHERS] != self._last_of_others
                self._last_of_others = asked.details[OTHERS]
        elif kind in ("tell", "drop"):
            asked = self.pending.pop(rest[0])
            self._of_others -= asked.of_others
            if kind == "tell":
                self.t += 1
                self.answered += not asked.of_others
                self._latest = max(self._latest, asked.turn)
        elif kind == "observe":
            self.t += len(rest[1])
            self.calls += 1
            self._latest = self.turn
        elif kind == "snapshot":
            self._resume(rest[0])
        self.events.append((kind, *rest))

    def after(self, events: Sequence[Event]) -> Log:
        """The log of the same policy after these events."""
        log = Log(self.field, independent=self.independent, sign=self.sign)
        for event in events:
            log.add(*event)
        return log

    def _resume(self, content: Any) -> None:
        stored = content["log"]
        for name in ("turn", *COUNTS):
            whole(f"{name} of a snapshot", stored[name], at_least=-1)
        for name in COUNTS:
            setattr(self, name, stored[name])
        if not self.events:
            self.forgotten = (stored["turn"], stored["t"])
        self.pending = OrderedDict((each.query.id, each) for each in pending_of(content, self.field))
        self._of_others = sum(asked.of_others for asked in self.pending.values())
        self.start = len(self.events) + 1

    def snapshot(self) -> dict[str, Any]:
        """All but the events, as JSON."""
        counts = {name: getattr(self, name) for name in COUNTS}
        pending = [[asked.turn, encoded(("ask", asked.query))[1]] for asked in self.pending.values()]
        return {**counts, "turn": self.turn, "pending": pending}

    @property
    def turn(self) -> int:
        """Events so far, forgotten ones included."""
        return self.forgotten[0] + len(self.events)

    @property
    def asked(self) -> int:
        """Queries that were asked here and not dropped; those of others do not count."""
        return self.answered + len(self.pending) - self._of_others

    @property
    def out_of_order(self) -> bool:
        """Whether results are told that were asked after pending ones, and may have been chosen by their values."""
        if self.independent or not self.pending:
            return False
        return next(iter(self.pending.values())).turn < self._latest  # the first was asked first

    @property
    def in_parts(self) -> bool:
        """Whether more than one call has brought points that others chose."""
        return self.calls > 1 and not self.independent

    @property
    def partial(self) -> bool:
        """Whether what is told may have been chosen by its results, so that bands may be biased."""
        return self.out_of_order or self.in_parts


def place_of(query: Query, field: Field) -> Place:
    return field.stored_place(query.index, query.x, query.context)


def pending_of(content: Any, field: Field) -> list[Asked]:
    pending = [
        (stored_query(stored, field), whole("turn of a snapshot", turn)) for turn, stored in content["log"]["pending"]
    ]
    return [Asked(asked, place_of(asked, field), copied(asked.details), turn) for asked, turn in pending]


def observed(field: Field, model: Model, points: Any, _: Any, contexts: Any = None, *__: Any) -> Actions:
    return field.parse(points, model, contexts)


def noises_of(kind: str, rest: Sequence[Any]) -> list[float]:
    """The own noises of the results of an event, NaN for those without."""
    if kind == "tell":
        return [math.nan if len(rest) < 3 or rest[2] is None else rest[2]]
    return [math.nan] * len(rest[1]) if len(rest) < 4 or rest[3] is None else list(rest[3])


def limited(kind: str, rest: Sequence[Any]) -> list[dict[str, float]]:
    """The values of limited quantities, by name, of each result of an event."""
    if kind == "tell":
        return [rest[3] if len(rest) > 3 else {}]
    values: dict[str, list[float]] = rest[4] if len(rest) > 4 else {}
    return [{name: column[i] for name, column in values.items()} for i in range(len(rest[1]))]


def results_of(event: Event, query: Query | None, field: Field, model: Model) -> list[tuple[Array, float, float]]:
    """Points, y as told and own noises (NaN for none) of an event; query: the one that was told."""
    kind, *rest = event
    points = [query.whole] if query else observed(field, model, *rest).points
    return list(zip(points, [rest[1]] if query else rest[1], noises_of(kind, rest), strict=True))


def columns(told: Sequence[tuple[Array, float, float]], field: Field) -> tuple[Array, Array, Array]:
    """Points, y and noises of results as arrays."""
    x, y, noise = zip(*told, strict=True) if told else ((), (), ())
    return np.reshape(x, (len(y), field.domain.dimension)), np.array(y), np.array(noise)


def observations(events: Sequence[Event], field: Field, model: Model, forgotten: int = 0) -> Observations:
    """All results in the order told; forgotten: how many came before the first of these events."""
    told, ids = [], []
    beside: list[dict[str, float]] = []
    asked: dict[int, Query] = {}
    for event in events:
        kind, subject = event[:2]
        if kind == "ask":
            asked[subject.id] = subject
        elif kind == "snapshot":
            asked |= {each.query.id: each.query for each in pending_of(subject, field)}
        elif kind in ("tell", "observe"):
            new = results_of(event, asked[subject] if kind == "tell" else None, field, model)
            told += new
            beside += limited(kind, event[1:])
            ids += [subject if kind == "tell" else -1] * len(new)
    x, y, noise = columns(told, field)
    names = dict.fromkeys(name for each in beside for name in each)
    limits = {name: np.array([each.get(name, math.nan) for each in beside]) for name in names}
    return Observations(x, y, np.array(ids, dtype=np.intp), forgotten, noise, limits)


def milestone(events: Sequence[Event], t: int) -> int:
    """Number of events that `conflicts` considers: all up to OFTEN results, then those at the last growth by GROWTH."""
    if t <= OFTEN:
        return len(events)
    results = OFTEN * GROWTH ** math.floor(math.log(t / OFTEN, GROWTH) + 1e-9)
    told = 0
    for turn, (kind, *rest) in enumerate(events, start=1):
        told += 1 if kind == "tell" else len(rest[1]) if kind == "observe" else 0
        if kind == "snapshot":
            told = rest[0]["log"]["t"]
        if told >= results:
            return turn
    return len(events)


def own_bands(events: Sequence[Event], field: Field, model: Model, now: OwnBands, sign: float) -> OwnBands:
    """The own bands of sign·y after some of the events; now: those after all of them."""
    own, asked = OwnBands(now.noise, now.delta, field.size), {}
    for kind, *rest in events:
        if kind == "ask":
            query = rest[0]
            place = asked[query.id] = place_of(query, field)
            last = query.details.get(OTHERS)
            own.ask(place.key, query.id, place.x, others=None if last is None else last - query.id)
        elif kind == "tell":
            own.tell(asked[rest[0]].key, sign * rest[1], rest[0], *precisions(model, kind, rest))
        elif kind == "drop":
            own.drop(asked[rest[0]].key, rest[0])
        elif kind == "snapshot":
            own.resume(rest[0]["own"])
            asked |= {each.query.id: each.place for each in pending_of(rest[0], field)}
        elif kind == "observe":
            parsed = observed(field, model, *rest)
            places = [field.place(parsed, row) for row in range(len(rest[1]))]
            values, by = [sign * y for y in rest[1]], precisions(model, kind, rest)
            own.observe([place.key for place in places], values, [place.x for place in places], by)
    return own


def precisions(model: Model, kind: str, rest: Sequence[Any]) -> list[float | None]:
    """How often each result of an event counts in its own band; None for those without a noise of their own."""
    return [None if one != one else float(model.precision(one)[0]) for one in noises_of(kind, rest)]


def told_prefix(
    events: Sequence[Event], field: Field, model: Model, sign: float, *, one_call: bool
) -> tuple[Array, Array, Array]:
    """Points, sign·y and own noises (NaN for none) up to the first pending query, in the order asked.

    one_call: and up to the second call that brings points from elsewhere, since these may be chosen by their values.
    Nothing where earlier events are forgotten: a band from a part of the data, begun again and again, would not hold.
    """
    if events and events[0][0] == "snapshot":
        return np.zeros((0, field.domain.dimension)), np.zeros(0), np.zeros(0)
    answers = {event[1]: event for event in events if event[0] == "tell"}
    dropped = {event[1] for event in events if event[0] == "drop"}
    told: list[tuple[Array, float, float]] = []
    calls: set[Any] = set()
    whole_calls: list[int] = []  # lengths of the prefixes at which a call begins: one may be ordered by its results
    for turn, (kind, *rest) in enumerate(events):
        others = kind == "ask" and OTHERS in rest[0].details
        if not others or rest[0].details[OTHERS] not in calls:
            whole_calls.append(len(told))
        if kind == "observe" or others:
            calls.add(("observe", turn) if kind == "observe" else rest[0].details[OTHERS])
        if len(calls) > 1 and one_call:
            break
        if kind == "ask" and rest[0].id not in answers and rest[0].id not in dropped:
            break
        if kind == "ask" and rest[0].id in answers:
            told += results_of(answers[rest[0].id], rest[0], field, model)
        elif kind == "observe":
            told += results_of((kind, *rest), None, field, model)
    seen, y, noise = columns(told, field)
    if len(y) > CERTIFIED:  # the model's bands hold at all times, so at one that does not depend on the results
        first_seen = distinct(seen).first
        if len(first_seen) > CERTIFIED:
            most = int(np.sort(first_seen)[CERTIFIED])
            end = max(length for length in whole_calls if length <= most)
            seen, y, noise = seen[:end], y[:end], noise[:end]
    return seen, sign * y, noise


# -- events as JSON ----------------------------------------------------------------------------------------------------


def line(event: tuple[Any, ...]) -> bytes:
    """An event as one line of JSON; TypeError, ValueError or RecursionError for details that are none."""
    kind, *rest = event
    if kind == "tell" and len(rest) < 4:  # this and "ask" in every round: `json` takes several times as long
        return f'["tell",{",".join(map(repr, rest))}]'.encode()
    if kind == "ask":
        return f'["ask",{{{_fields(rest[0])}}}]'.encode()
    if kind == "observe":
        arrays = [None if each is None else encode_array(np.asarray(each)) for each in rest[:4]]
        rest = [*arrays, *({name: encode_array(np.asarray(v)) for name, v in each.items()} for each in rest[4:])]
    return ENCODE([kind, *rest]).encode()


def encoded(event: tuple[Any, ...]) -> Any:
    return storage.parsed(line(event))


def _fields(q: Query) -> str:
    """Of a query those that are stored."""
    found = f'"id":{q.id},' + (f'"x":"{_doubles(q.x)}"' if q.index is None else f'"index":{q.index}')
    numbers = _numbers_of(q)
    if q.position is not None:
        found += f',"position":{q.position}'
    if not all(map(math.isnan, numbers)):
        found += f',"by":"{b2a_base64(_packed(*numbers), newline=False).decode()}"'
    if q.asked_at is not None:
        if not math.isfinite(q.asked_at):
            raise ValueError(f"a query cannot be asked at {q.asked_at}")
        found += f',"asked_at":{q.asked_at!r}'
    if q.context is not None:
        found += f',"context":"{_doubles(q.context)}"'
    return f'{found},"details":{ENCODE(q.details)}' if q.details else found


def _doubles(x: Array) -> str:
    return b2a_base64(x.astype(DOUBLE, copy=False).tobytes(), newline=False).decode()


def decoded(event: Any, field: Field) -> tuple[Any, ...]:
    """An event from its JSON; StorageError where it is none that `line` writes."""
    if not isinstance(event, list | tuple) or not event or not isinstance(event[0], str):
        raise StorageError(f"an event must be a list that begins with its kind, got {shown(event)}")
    kind, *rest = event
    if kind in TYPES and [type(each) for each in rest] not in TYPES[kind]:
        raise StorageError(f"a stored {kind} must be as state() has it, got {shown(event)}")
    if kind == "ask":
        return kind, stored_query(rest[0], field)
    if kind == "observe":
        points, values = map(_numbers, rest[:2])
        contexts = [None if each is None else _numbers(each) for each in rest[2:3]]
        noises = [None if each is None else _listed(each) for each in rest[3:4]]  # checked where they are learnt
        limits = [{name: _listed(values) for name, values in each.items()} for each in rest[4:]]  # so are these
        return kind, points, values.tolist(), *contexts, *noises, *limits
    if kind not in TYPES:
        check_plain(f"a {shown(kind)} event", rest)  # of the policy's own: it says what it does not know
    return tuple(event)  # of results: `tell` and `drop` say what they do not take


def _numbers(values: Any) -> Any:
    """An array of at least one finite number."""
    found = decode_array("stored data", values)
    if not found.size or found.dtype.kind not in "iuf" or not np.isfinite(found).all():
        raise StorageError(f"stored data must be finite numbers, got {shown(found)}")
    return found


def _listed(values: Any) -> Any:
    return decode_array("stored data", values).tolist()


def stored_query(stored: dict[str, Any], field: Field) -> Query:
    """A query from its JSON."""
    fields = {name: value for name, value in stored.items() if value is not None}
    index, x, context, by = (fields.pop(name, None) for name in ("index", "x", "context", "by"))
    if not fields.keys() <= STORED:
        raise StorageError(f"a stored query has {', '.join(sorted(STORED))}; got {shown(list(fields))}")
    if "asked_at" in fields:
        number("asked_at of a stored query", fields["asked_at"])
    for each in (index, fields.get("position")):
        if each is not None and (type(each) is not int or not 0 <= each <= MOST):
            raise StorageError(f"index and position of a stored query must be whole numbers, got {shown(each)}")
    whole("id of a stored query", fields.get("id"))
    details = fields.get("details", {})
    check_plain("details of a stored query", details)
    if type(details) is not dict:
        raise StorageError(f"details of a stored query must be a dict, got {shown(details)}")
    x, context, by = (None if each is None else _point(each) for each in (x, context, by))
    if by is not None and len(by) != len(NUMBERS):
        raise StorageError(f"a stored query was chosen by {len(NUMBERS)} numbers, got {len(by)}")
    fields |= zip(NUMBERS, [] if by is None else by.tolist(), strict=False)
    place = field.stored_place(index, x, context)
    return Query(**{**fields, "index": place.index, "name": place.name, "x": place.x, **field.describe(place)})


def _point(stored: Any) -> Array:
    try:
        return np.frombuffer(a2b_base64(stored, strict_mode=True), DOUBLE)
    except (TypeError, ValueError):
        raise StorageError(f"the point of a stored query must be base64 of numbers, got {shown(stored)}") from None
