"""A policy as JSON, and back: settings, events and random state. Nothing is imported or evaluated on the way."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import math
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from misspec import kernels
from misspec.domains import Domain
from misspec.encoding import Given, decode_model, decode_value, encode_model, encode_value, kernel_key
from misspec.errors import MOST, Array, InvalidInput, MisspecError, StorageError, short, shown, whole
from misspec.files import storage
from misspec.model import Model
from misspec.policies.core import registry, undo
from misspec.policies.core.answers import NUMBERS, Query
from misspec.policies.core.fields import stored_domain
from misspec.policies.core.registry import REGISTRY, signature_of

if TYPE_CHECKING:
    from misspec.policies.core.policy import Policy
DEEP = 40  # lists and dicts inside each other, at most
EVENTS: dict[str, list[list[type]]] = {  # what can follow their names
    "ask": [[dict]],
    "tell": [[int, float], [int, int]],
    "drop": [[int]],
    "observe": [[list, list], [list, list, list]],
}
STORED = {"id", "position", "details", *NUMBERS}  # of a query, besides where it is
NOT_STORED = ("x", "name", "params", "row")  # of a query: its place says them
VERSION = 2  # version 1 wrote unset numbers as 0


def name_of(cls: type) -> str:
    """The name that states have for a class: its own for those of misspec, module:Class for others."""
    ours = cls.__module__.startswith(("misspec.policies.", "misspec.comparators."))
    return cls.__name__ if ours else f"{cls.__module__}:{cls.__qualname__}"


def encode(policy: Policy, arrays: dict[str, Any]) -> dict[str, Any]:
    """The state of a policy; arrays are those of its domain."""
    return {**encode_made(policy, arrays), "events": [encode_event(event) for event in policy.log.events]}


def encode_made(policy: Policy, arrays: dict[str, Any]) -> dict[str, Any]:
    """The state without events: what the policy was made with, and its random state."""
    settings = {name: encode_value(f"setting {name}", value) for name, value in policy._settings.items()}
    kernels = {kernel_key(model.kernel) for model in [policy.model, *_models(list(policy._settings.values()))]}
    if sum(key.startswith("custom") for key in kernels) > 1:
        raise InvalidInput("bases with several custom kernels cannot be stored; use kernels of scikit-learn")
    return {
        "format": VERSION,
        "policy": name_of(type(policy)),
        "domain": {**policy.field.state(), **arrays},
        "model": encode_model(policy.model_as_given) if "model" in signature_of(type(policy)).parameters else None,
        "settings": settings,
        "random": policy._rng.bit_generator.state,
    }


def _models(value: Any) -> list[Model]:
    """The models among settings."""
    if isinstance(value, list | tuple):
        return [model for each in value for model in _models(each)]
    return [value] if isinstance(value, Model) else []


def write(path: str | os.PathLike[str], document: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Save a state with the arrays of its domain beside it."""
    try:
        storage.write(path, "policy", VERSION, document, arrays)
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, MisspecError):
            raise
        raise StorageError(
            f"this policy cannot be saved: {error}; details of queries and events of a policy's own are finite "
            "numbers, text, lists and dicts"
        ) from error


def restore(state: dict[str, Any], *, kernel: Any = None, domain: Domain | None = None, width: Any = None) -> Policy:
    """A policy from its state(). What is not in it is handed in again: a custom kernel, a domain above 10 MB, a width
    that is a function; what is in it may be handed in too, if it is the same. The class of your own policy must have
    been imported."""
    if not isinstance(state, dict):
        raise StorageError(f"expected the dictionary that state() returns, got {type(state).__name__}")
    policy = made(state, kernel=kernel, domain=domain, width=width)
    events = _part(state, "events", list)
    replay(policy, (decode_event(event, policy) for event in events))
    draw_on(policy, state.get("random"))
    return policy


def made(state: dict[str, Any], *, kernel: Any, domain: Domain | None, width: Any) -> Policy:
    """The policy of a state before all its events."""
    if _part(state, "format", int) > VERSION:
        raise StorageError(f"this state has format {shown(state['format'])}, newer than {VERSION}; update misspec")
    name, stored = _part(state, "policy", str), _part(state, "settings", dict)
    cls = _class_of(name, REGISTRY)
    for part in ("domain", "model", "settings"):
        check_plain(part, state.get(part), arrays=part == "domain")
    given = Given(kernel, width=width)
    with _unexpected("be made"):
        settings = {key: decode_value(key, value, given) for key, value in stored.items()}
    if type(width) in (str, int, float) and settings.get("width") == width:
        given.fits.add("width")
    known = signature_of(cls).parameters
    anything = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values())
    unknown = sorted((set(settings) - set(known)) | (set(settings) & {"domain", "model"}))
    if unknown and not anything:
        raise StorageError(f"{name} has no setting {shown(unknown[0])}; was this written by a newer misspec?")
    if ("model" in known) != (state.get("model") is not None):
        raise StorageError(
            f"the state of a policy {name} {'lacks' if 'model' in known else 'has no use for'} its model"
        )
    with _unexpected("be made"):
        model = None if state.get("model") is None else decode_model(state["model"], given)
    given.check()
    with _unexpected("be made"):
        policy: Policy = registry.made(cls, stored_domain(state.get("domain"), domain), model, settings)
        return policy


def _part(state: dict[str, Any], name: str, kind: type) -> Any:
    """A part that a state must have."""
    if name not in state:
        raise StorageError(f"not a policy's state: {name} is missing")
    if type(state.get(name)) is not kind:
        raise StorageError(
            f"not a policy's state: {name} must be of type {kind.__name__}, got {shown(state.get(name))}"
        )
    return state[name]


def check_plain(what: str, value: Any, depth: int = DEEP, *, arrays: bool = False) -> None:
    """StorageError unless this is what JSON has, or, with arrays, an array of numbers, and not nested deeply."""
    if isinstance(value, list | tuple):
        if not set(map(type, value)) <= {float, int} and depth > 0:
            for each in value:
                check_plain(what, each, depth - 1, arrays=arrays)
    elif isinstance(value, dict):
        if not set(map(type, value)) <= {str}:
            raise StorageError(f"{what} of a policy's state has names that are no text: {shown(list(value))}")
        check_plain(what, list(value.values()), depth, arrays=arrays)
    elif not (
        value is None
        or isinstance(value, bool | int | float | str)
        or (arrays and isinstance(value, np.ndarray) and value.dtype.kind in "biuf")
    ):
        raise StorageError(f"{what} of a policy's state must be JSON, got something of type {type(value).__name__}")
    if depth <= 0:
        raise StorageError(f"{what} of a policy's state is nested more than {DEEP} deep")


@contextlib.contextmanager
def _unexpected(done: str) -> Iterator[None]:
    """StorageError for whatever else a state that was edited leads to: it may fail anywhere in a policy, and so may
    a kernel or a policy of the user's, which is then the cause."""
    try:
        yield
    except (StorageError, MemoryError):
        raise
    except Exception as error:
        kind = "" if isinstance(error, MisspecError) else f"{type(error).__name__}: "
        raise StorageError(f"a policy's state that cannot {done}: {kind}{short(error)}") from error


def replay(policy: Policy, events: Iterable[tuple[Any, ...]]) -> None:
    """Let a policy live through events; StorageError where it cannot."""
    with _unexpected("be replayed"):
        undo.replay(policy, events)
        _check_points(policy)


def draw_on(policy: Policy, random: Any) -> None:
    """Let a policy draw on from a random state; StorageError where that is none."""
    check_plain("random", random)
    generator = policy._rng.bit_generator
    try:
        generator.state = random
        right = generator.state == random
    except (TypeError, ValueError, KeyError, OverflowError):
        right = False
    if not right:
        raise StorageError(f"not a policy's state: this is no random state: {shown(random)}")


def _check_points(policy: Policy) -> None:
    """InvalidInput where queries were asked at points, beyond those of the domain, that no round could have brought."""
    asked = [event[1] for event in policy.log.events if event[0] == "ask"]
    points = [policy.field.point(query) for query in asked if query.index is None or query.context is not None]
    if points:
        domain = policy.domain
        found = domain.validate(np.array(points))
        beyond = found[~domain.contains(found)]
        if len(beyond):
            kernels.check_bounded(policy.model.kernel, domain.encode(beyond), "the points of stored queries")


def load_saved(
    path: str | os.PathLike[str], *, kernel: Any = None, domain: Domain | None = None, width: Any = None
) -> Policy:
    """A policy from a file written by save(); what it does not hold is handed in again, as for restore()."""
    state, _, arrays = storage.read(path, "policy", VERSION)
    place = state.get("domain") if isinstance(state, dict) else None
    if not isinstance(place, dict) or any(place.get(name) is not None for name in arrays):
        raise StorageError(f"{path} holds no policy's state, or a damaged one; restore it from a copy")
    place.update(arrays)
    return restore(state, kernel=kernel, domain=domain, width=width)


def _class_of(name: str, registry: dict[str, type[Policy]]) -> type[Policy]:
    if name in registry:
        return registry[name]
    alike = [cls for key, cls in registry.items() if key.endswith(f":{name}")]  # version 1 stored the bare name
    if len(alike) == 1:
        return alike[0]
    module = name.partition(":")[0]
    remedy = f"import {module} first" if ":" in name else "import the module that defines it first"
    raise StorageError(f"this state is of the policy {name}, which is not imported; {remedy}")


def encode_event(event: tuple[Any, ...]) -> list[Any]:
    kind, *rest = event
    if kind == "observe":
        points, values, *contexts = rest
        return [kind, points.tolist(), list(values), *(each.tolist() for each in contexts)]
    if kind != "ask":
        return copy.deepcopy(list(event))  # of the policy's own, perhaps, with what it reads back
    query = rest[0]
    fields = {f.name: getattr(query, f.name) for f in dataclasses.fields(query) if f.name not in NOT_STORED}
    fields["details"] = dict(query.details)
    if query.index is None:
        fields["x"] = query.x.tolist()
    if query.context is not None:
        fields["context"] = query.context.tolist()
    return [kind, {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in fields.items()}]


def decode_event(event: Any, policy: Policy) -> tuple[Any, ...]:
    """An event from its JSON; StorageError where it is none that `encode_event` writes."""
    if not isinstance(event, list | tuple) or not event or not isinstance(event[0], str):
        raise StorageError(f"an event must be a list that begins with its kind, got {shown(event)}")
    kind, *rest = event
    types = [type(each) for each in rest]
    if kind in EVENTS and types not in EVENTS[kind]:
        raise StorageError(f"a stored {kind} must be as state() has it, got {shown(event)}")
    if kind == "ask":
        return kind, _decode_query(rest[0], policy)
    if kind == "observe":
        points, values, *contexts = rest
        check_plain("an observe event", rest, depth=4)
        return kind, _numbers(points), _numbers(values).tolist(), *(_numbers(each) for each in contexts)
    if kind not in EVENTS:
        check_plain(f"a {shown(kind)} event", rest)  # of the policy's own: it says what it does not know
    return tuple(event)  # of results: `tell` and `drop` say what they do not take


def _numbers(values: Any) -> Any:
    """An array of at least one number."""
    found = np.asarray(values)
    if not found.size or found.dtype.kind not in "iuf" or not np.isfinite(found).all():
        raise StorageError(f"stored data must be finite numbers, got {shown(values)}")
    return found


def _decode_query(stored: dict[str, Any], policy: Policy) -> Query:
    fields = {name: value for name, value in stored.items() if value is not None}
    index, x, context = (fields.pop(name, None) for name in ("index", "x", "context"))
    if not fields.keys() <= STORED:
        raise StorageError(f"a stored query has {', '.join(sorted(STORED))}; got {shown(list(fields))}")
    for name in NUMBERS:
        if name in fields:
            fields[name] = _float(name, fields[name])
    for each in (index, fields.get("position")):
        if each is not None and (type(each) is not int or not 0 <= each <= MOST):
            raise StorageError(f"index and position of a stored query must be whole numbers, got {shown(each)}")
    for each in (x, context):
        if each is not None and not (isinstance(each, list | tuple) and set(map(type, each)) <= {float, int}):
            raise StorageError(f"the point of a stored query must be numbers in a list, got {shown(each)}")
    return decode_query(policy, index, x, context, fields)


def _float(name: str, value: Any) -> float:
    """A number that a choice was made by, however large."""
    if not isinstance(value, float | int) or isinstance(value, bool) or not math.isfinite(value):
        raise StorageError(f"{name} of a stored query must be a finite number, got {shown(value)}")
    return float(value)


def decode_query(policy: Policy, index: int | None, x: Any, context: Any, fields: dict[str, Any]) -> Query:
    """A query from where it was and its other fields."""
    whole("id of a stored query", fields.get("id"))
    details = fields.get("details")
    if details:
        check_plain("details of a stored query", details)
    if details is not None and type(details) is not dict:
        raise StorageError(f"details of a stored query must be a dict, got {shown(details)}")
    place = policy.field.stored_place(index, x, context)
    named = {"x": place.x, **policy.field.describe(place)}
    return Query(**fields, index=place.index, name=place.name, **named)
