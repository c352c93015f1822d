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

from misspec import storage
from misspec.domains import Domain
from misspec.encoding import decode_model, decode_value, encode_model, encode_value, kernel_key
from misspec.errors import Array, AwaitingResults, HorizonReached, InvalidInput, StorageError
from misspec.model import Model
from misspec.policies.answers import Query
from misspec.policies.field import stored_domain

if TYPE_CHECKING:
    from misspec.policies.base import Policy

NOT_STORED = ("x", "name", "params", "row")  # of a query: its place says them
VERSION = 2  # version 1 wrote unset numbers as 0


def name_of(cls: type) -> str:
    """What a class is stored as: its name for those of misspec, module:Class for others, which thus replace none."""
    ours = cls.__module__.startswith("misspec.policies.")
    return cls.__name__ if ours else f"{cls.__module__}:{cls.__qualname__}"


def encode(policy: Policy, arrays: dict[str, Any]) -> dict[str, Any]:
    """The state of a policy; arrays are those of its domain."""
    return {**encode_made(policy, arrays), "events": [encode_event(event) for event in policy._events]}


def encode_made(policy: Policy, arrays: dict[str, Any]) -> dict[str, Any]:
    """The same without its events: what it was made with, and its random state."""
    from misspec.policies.base import signature_of

    settings = {name: encode_value(f"setting {name}", value) for name, value in policy._settings.items()}
    kernels = {kernel_key(model.kernel) for model in [policy.model, *_models(list(policy._settings.values()))]}
    if sum(key.startswith("custom") for key in kernels) > 1:
        raise InvalidInput("bases with several custom kernels cannot be stored; use kernels of scikit-learn")
    return {
        "format": VERSION,
        "policy": name_of(type(policy)),
        "domain": {**policy.field.state(), **arrays},
        "model": encode_model(policy.model) if "model" in signature_of(type(policy)).parameters else None,
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
    storage.write(path, "policy", VERSION, document, arrays)


def restore(state: dict[str, Any], *, kernel: Any = None, domain: Domain | None = None, width: Any = None) -> Policy:
    """A policy from its state(). What is not in it is handed in again: a custom kernel, a domain above 10 MB, a width
    that is a function. The class of your own policy must have been imported."""
    if not isinstance(state, dict):
        raise StorageError(f"expected the dictionary that state() returns, got {type(state).__name__}")
    policy = made(state, kernel=kernel, domain=domain, width=width)
    with _readable():
        events, random = [decode_event(event, policy) for event in state["events"]], state["random"]
    replay(policy, events)
    policy._rng.bit_generator.state = random
    return policy


def made(state: dict[str, Any], *, kernel: Any, domain: Domain | None, width: Any) -> Policy:
    """The policy of a state before all its events."""
    from misspec.policies.base import Policy, signature_of

    with _readable():
        if state["format"] > VERSION:
            raise StorageError(f"this state has format {state['format']}, newer than {VERSION}; update misspec")
        cls = _class_of(state["policy"], Policy.registry)
        given = {"kernel": kernel, "width": width}
        settings = {name: decode_value(name, value, given) for name, value in state["settings"].items()}
        known = signature_of(cls).parameters
        anything = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values())
        unknown = [] if anything else sorted(set(settings) - set(known))
        if unknown:
            raise StorageError(f"{state['policy']} has no setting {unknown[0]!r}; was this written by a newer misspec?")
        model = None if state["model"] is None else decode_model(state["model"], kernel)
        return cls._made(stored_domain(state["domain"], domain), model, settings)


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """StorageError for what is missing in a state, or of another kind than it should be."""
    try:
        yield
    except KeyError as error:
        raise StorageError(f"not a policy's state: {error} is missing") from None
    except (TypeError, IndexError, AttributeError) as error:
        raise StorageError(f"not a policy's state, or of another version of it: {error}") from None


def replay(policy: Policy, events: Iterable[tuple[Any, ...]]) -> None:
    """Let a policy live through events; StorageError where it cannot."""
    try:
        policy._replay(events)
    except (InvalidInput, KeyError, TypeError, ValueError, IndexError, AwaitingResults, HorizonReached) as error:
        raise StorageError(f"a policy's state whose events cannot be replayed: {error}") from error


def load_saved(
    path: str | os.PathLike[str], *, kernel: Any = None, domain: Domain | None = None, width: Any = None
) -> Policy:
    """A policy from a file written by save(); what it does not hold is handed in again, as for restore()."""
    state, _, arrays = storage.read(path, "policy", VERSION)
    state["domain"].update(arrays)
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


def decode_event(event: list[Any], policy: Policy) -> tuple[Any, ...]:
    kind, *rest = event
    if kind == "ask":
        fields = {k: v for k, v in rest[0].items() if v is not None}
        index, x, context = (fields.pop(name, None) for name in ("index", "x", "context"))
        return "ask", decode_query(policy, index, x, context, fields)
    if kind == "observe":
        points, values, *contexts = rest
        return kind, np.asarray(points), values, *(np.asarray(each) for each in contexts)
    return tuple(event)  # of results, or of the policy's own: it says what it does not know


def decode_query(policy: Policy, index: int | None, x: Any, context: Any, fields: dict[str, Any]) -> Query:
    """A query from where it was and its other fields."""
    place = policy.field.stored_place(index, x, context)
    named = {"x": place.x, **policy.field.describe(place)}
    return Query(**fields, index=place.index, name=place.name, **named)
