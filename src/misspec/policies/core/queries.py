"""Which pending queries a call means: by the query itself, its id, a dict, a row or a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from misspec.errors import InvalidInput, shown
from misspec.files import frames
from misspec.policies.core.answers import Query
from misspec.policies.core.field import Field
from misspec.policies.core.log import Asked, Log


def meant(batch: list[Any], log: Log, field: Field, done: str) -> list[Asked]:
    """The pending queries that a call means; done: what it does to them. InvalidInput where one is meant twice."""
    if len(batch) == 1:
        return [_meant(batch[0], log, field, ())]
    known: list[Asked] = []
    for query in batch:
        known.append(_meant(query, log, field, known))
    if len({asked.query.id for asked in known}) != len(known):
        raise InvalidInput(f"a query was {done} twice in one call; name each once")
    return known


def _meant(query: Any, log: Log, field: Field, taken: Sequence[Asked]) -> Asked:
    """taken: not these, where several are alike."""
    if isinstance(query, str | Mapping):
        return _named(query, log.pending, field, taken)
    key = query.id if isinstance(query, Query) else query
    if not isinstance(key, int | np.integer) or isinstance(key, bool | np.timedelta64):
        raise InvalidInput(f"expected a Query that this policy asked, or its id, got {type(query).__name__}")
    if int(key) not in log.pending:
        raise InvalidInput(f"query {shown(key)} is not pending: {_why_not(int(key), log)}")
    asked = log.pending[int(key)]
    if isinstance(query, Query) and query is not asked.query and not alike(query, asked.query):
        raise InvalidInput(f"query {key} comes from another policy: its point differs from the one asked here")
    return asked


def _why_not(key: int, log: Log) -> str:
    """Why a query is not pending, and what to do."""
    if not 0 <= key < log.next_id:
        return "this policy never asked it; see policy.pending"
    if any(event[0] == "drop" and event[1] == key for event in log.events):
        return "it was dropped; a result that came late counts by policy.observe(points, y)"
    return "it was told before; one more result of the same point counts by policy.observe(points, y)"


def _named(named: Any, pending: Mapping[int, Asked], field: Field, taken: Sequence[Asked]) -> Asked:
    waiting = [asked for asked in pending.values() if all(asked is not other for other in taken)]
    rows = field.find(named, [asked.place for asked in waiting])
    if not rows:
        raise InvalidInput(
            f"no pending query is {shown(named)}; see policy.pending, or observe() results from elsewhere"
        )
    return waiting[rows[0]]


def alike(one: Query, other: Query) -> bool:
    """Whether two queries are of one point, context included."""
    return np.array_equal(one.x, other.x) and (
        one.context is other.context
        or (one.context is not None and other.context is not None and np.array_equal(one.context, other.context))
    )


def list_of(queries: Any) -> list[Any]:
    """Several queries, or one."""
    columns = isinstance(queries, Mapping) and any(isinstance(each, list | tuple) for each in queries.values())
    if columns or frames.is_frame(queries):
        return list(frames.read(queries, "the rows").rows())
    if isinstance(queries, np.ndarray):
        return list(np.atleast_1d(queries))
    return list(queries) if isinstance(queries, list | tuple) else [queries]
