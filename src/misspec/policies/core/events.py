"""Events as JSON, in states and in files alike.

["ask", {…}]          a query: id, index, position, NUMBERS and asked_at, those that are set; x, where there is no
                      index, and the context as base64 of float64, little-endian; details, where there are any
["observe", points, values, contexts, noises]      arrays (`encoding.encode_array`), the last two where there are any
[kind, …]             any other event as `log.py` has it

Coordinates in decimal digits would take three times as long and twice the bytes.
"""

from __future__ import annotations

import json
from binascii import a2b_base64, b2a_base64
from math import isfinite, isnan
from typing import Any

import numpy as np

from misspec.encoding import NO_JSON, check_plain, decode_array, encode_array
from misspec.errors import MOST, Array, StorageError, shown, whole
from misspec.files import storage
from misspec.policies.core.answers import NUMBERS, Query
from misspec.policies.core.field import Field

TYPES: dict[str, list[list[type]]] = {  # what can follow the names of events
    "ask": [[dict]],
    "tell": [[int, float], [int, int], [int, float, float], [int, int, float]],
    "drop": [[int]],
    "observe": [[dict, dict], [dict, dict, dict], [dict, dict, dict, dict], [dict, dict, type(None), dict]],
}
STORED = {"id", "position", "details", "asked_at", *NUMBERS}  # of a query, besides where it is
ENCODE = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode


def line(event: tuple[Any, ...]) -> bytes:
    """An event as one line of JSON; TypeError, ValueError or RecursionError for details that are none."""
    kind, *rest = event
    if kind == "ask":
        rest = [_fields(rest[0])]
    elif kind == "observe":
        rest = [None if each is None else encode_array(np.asarray(each)) for each in rest]
    return ENCODE([kind, *rest]).encode()


def encoded(event: tuple[Any, ...]) -> Any:
    """An event as JSON."""
    return storage.parsed(line(event))


def _fields(q: Query) -> dict[str, Any]:
    """Of a query those that are stored."""
    numbers = {name: float(getattr(q, name)) for name in NUMBERS}
    found: dict[str, Any] = {"id": q.id, "index": q.index, "position": q.position}
    found |= {name: value if isfinite(value) else str(value) for name, value in numbers.items() if not isnan(value)}
    found |= {"x": _doubles(q.x) if q.index is None else None, "asked_at": q.asked_at}
    found |= {"context": None if q.context is None else _doubles(q.context), "details": q.details or None}
    return {name: value for name, value in found.items() if value is not None}


def _doubles(x: Array) -> str:
    return b2a_base64(x.astype("<f8").tobytes(), newline=False).decode()


def decoded(event: Any, field: Field) -> tuple[Any, ...]:
    """An event from its JSON; StorageError where it is none that `line` writes."""
    if not isinstance(event, list | tuple) or not event or not isinstance(event[0], str):
        raise StorageError(f"an event must be a list that begins with its kind, got {shown(event)}")
    kind, *rest = event
    if kind in TYPES and [type(each) for each in rest] not in TYPES[kind]:
        raise StorageError(f"a stored {kind} must be as state() has it, got {shown(event)}")
    if kind == "ask":
        return kind, query(rest[0], field)
    if kind == "observe":
        points, values = map(_numbers, rest[:2])
        contexts = [None if each is None else _numbers(each) for each in rest[2:3]]
        noises = [decode_array("stored data", each).tolist() for each in rest[3:]]  # checked where they are learnt
        return kind, points, values.tolist(), *contexts, *noises
    if kind not in TYPES:
        check_plain(f"a {shown(kind)} event", rest)  # of the policy's own: it says what it does not know
    return tuple(event)  # of results: `tell` and `drop` say what they do not take


def _numbers(values: Any) -> Any:
    """An array of at least one finite number."""
    found = decode_array("stored data", values)
    if not found.size or found.dtype.kind not in "iuf" or not np.isfinite(found).all():
        raise StorageError(f"stored data must be finite numbers, got {shown(found)}")
    return found


def query(stored: dict[str, Any], field: Field) -> Query:
    """A query from its JSON."""
    fields = {name: value for name, value in stored.items() if value is not None}
    index, x, context = (fields.pop(name, None) for name in ("index", "x", "context"))
    if not fields.keys() <= STORED:
        raise StorageError(f"a stored query has {', '.join(sorted(STORED))}; got {shown(list(fields))}")
    for name in {*NUMBERS, "asked_at"} & fields.keys():
        fields[name] = _float(name, fields[name])
    for each in (index, fields.get("position")):
        if each is not None and (type(each) is not int or not 0 <= each <= MOST):
            raise StorageError(f"index and position of a stored query must be whole numbers, got {shown(each)}")
    whole("id of a stored query", fields.get("id"))
    details = fields.get("details", {})
    check_plain("details of a stored query", details)
    if type(details) is not dict:
        raise StorageError(f"details of a stored query must be a dict, got {shown(details)}")
    x, context = (None if each is None else _point(each) for each in (x, context))
    place = field.stored_place(index, x, context)
    return Query(**{**fields, "index": place.index, "name": place.name, "x": place.x, **field.describe(place)})


def _point(stored: Any) -> Array:
    """Coordinates from their base64."""
    try:
        return np.frombuffer(a2b_base64(stored, strict_mode=True), "<f8")
    except (TypeError, ValueError):
        raise StorageError(f"the point of a stored query must be base64 of numbers, got {shown(stored)}") from None


def _float(name: str, value: Any) -> float:
    """A number that a choice was made by, however large."""
    if type(value) is float or type(value) is int or (type(value) is str and value in NO_JSON):
        return float(value)
    raise StorageError(f"{name} of a stored query must be a number, got {shown(value)}")
