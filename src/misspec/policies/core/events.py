"""Events as JSON, in states and in files alike.

["ask", {…}]          a query: id, index, position, NUMBERS and asked_at, those that are set; x, where there is no
                      index, and the context as base64 of float64, little-endian; details, where there are any
["tell", id, y, noise]      a result; noise: its own, where it has one
["drop", id]          a failure
["observe", points, values, contexts, noises]      arrays (`encoding.encode_array`), the last two where there are any
[kind, …]             any other event: of the policy's own, or a snapshot (`snapshot.py`)

Coordinates in decimal digits would take three times as long and twice the bytes.
"""

from __future__ import annotations

import json
import sys
from binascii import a2b_base64, b2a_base64
from json.encoder import encode_basestring_ascii as quoted
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
LITTLE = sys.byteorder == "little"
STORED = {"id", "position", "details", "asked_at", *NUMBERS}  # of a query, besides where it is
ENCODE = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode


def line(event: tuple[Any, ...]) -> bytes:
    """An event as one line of JSON; TypeError, ValueError or RecursionError for details that are none."""
    kind = event[0]
    if kind == "tell":
        return f'["tell",{",".join(map(repr, event[1:]))}]'.encode()
    if kind == "ask":
        return f'["ask",{_query(event[1])}]'.encode()
    if kind == "observe":
        arrays = (None if each is None else encode_array(np.asarray(each)) for each in event[1:])
        return ENCODE([kind, *arrays]).encode()
    return ENCODE(event).encode()


def encoded(event: tuple[Any, ...]) -> Any:
    """An event as JSON."""
    return storage.parsed(line(event))


def _query(q: Query) -> str:
    """A query as the encoder writes it, in a third of the time."""
    text = f'{{"id":{q.id}'
    if q.index is not None:
        text += f',"index":{q.index}'
    if q.position is not None:
        text += f',"position":{q.position}'
    total = q.mean + q.std + q.multiplier + q.enlargement + q.upper
    if type(total) is float and isfinite(total):
        text += (
            f',"mean":{q.mean!r},"std":{q.std!r},"multiplier":{q.multiplier!r},"enlargement":{q.enlargement!r},'
            f'"upper":{q.upper!r}'
        )
    else:
        for name in NUMBERS:
            value = float(getattr(q, name))
            if not isnan(value):  # a number that is not set
                text += f',"{name}":{value!r}' if isfinite(value) else f',"{name}":"{value}"'
    if q.index is None:
        text += f',"x":"{_doubles(q.x)}"'
    if q.asked_at is not None:
        text += f',"asked_at":{q.asked_at!r}'
    if q.context is not None:
        text += f',"context":"{_doubles(q.context)}"'
    return f'{text},"details":{_details(q.details)}}}' if q.details else text + "}"


def _details(details: Any) -> str:
    """As the encoder writes them, in half the time for a few numbers and words."""
    parts = []
    for name, value in details.items():
        kind = type(value)
        if kind is int or (kind is float and isfinite(value)):
            parts.append(f"{quoted(name)}:{value!r}")
        elif kind is str:
            parts.append(f"{quoted(name)}:{quoted(value)}")
        else:
            return ENCODE(dict(details))
    return f"{{{','.join(parts)}}}"


def _doubles(x: Array) -> str:
    return b2a_base64((x if LITTLE else x.byteswap()).tobytes(), newline=False).decode()


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
    for name in (*NUMBERS, "asked_at"):
        if name in fields:
            fields[name] = _float(name, fields[name])
    for each in (index, fields.get("position")):
        if each is not None and (type(each) is not int or not 0 <= each <= MOST):
            raise StorageError(f"index and position of a stored query must be whole numbers, got {shown(each)}")
    whole("id of a stored query", fields.get("id"))
    details = fields.get("details")
    if details is not None:
        check_plain("details of a stored query", details)
        if type(details) is not dict:
            raise StorageError(f"details of a stored query must be a dict, got {shown(details)}")
    x, context = (None if each is None else point(each) for each in (x, context))
    place = field.stored_place(index, x, context)
    named = {"x": place.x, **field.describe(place)}
    return Query(**fields, index=place.index, name=place.name, **named)


def point(stored: Any) -> Array:
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
