"""A policy as JSON, and back: settings, events and random state. Nothing is imported or evaluated on the way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from misspec import kernels
from misspec.domains import Domain
from misspec.encoding import Given, check_plain, decode_model, decode_value, encode_model, encode_value, kernel_key
from misspec.errors import InvalidInput, MisspecError, StorageError, short, shown
from misspec.model import Model
from misspec.policies.core import registry, undo
from misspec.policies.core.fields import state_of, stored_domain
from misspec.policies.core.log import decoded, encoded
from misspec.policies.core.registry import REGISTRY, signature_of

if TYPE_CHECKING:
    from misspec.policies.core.policy import Policy

VERSION = 5  # of states and files
POLICIES = "policies"  # the key of a setting that is a list of these


def name_of(cls: type) -> str:
    """The name that states have for a class: its own for those of misspec, module:Class for others."""
    ours = cls.__module__.startswith(("misspec.policies.", "misspec.comparators."))
    return cls.__name__ if ours else f"{cls.__module__}:{cls.__qualname__}"


def encode(policy: Policy) -> dict[str, Any]:
    with storable():
        return {**encode_made(policy), "events": [encoded(event) for event in policy.log.events]}


def encode_made(policy: Policy) -> dict[str, Any]:
    """The state without events: settings, model and domain, and the random state."""
    keys = {kernel_key(model.kernel) for model in _models(policy)}
    if sum(key.startswith("custom") for key in keys) > 1:
        raise InvalidInput("bases with several custom kernels cannot be stored; use kernels of scikit-learn")
    random = policy._rng.bit_generator.state
    return {"format": VERSION, **_settings(policy), "domain": state_of(policy.domain), "random": random}


def _settings(policy: Policy) -> dict[str, Any]:
    """What a policy is made of, but for its domain."""
    return {
        "policy": name_of(type(policy)),
        "model": encode_model(policy.model_as_given) if "model" in signature_of(type(policy)).parameters else None,
        "settings": {name: _setting(name, value) for name, value in policy._settings.items()},
    }


def _setting(name: str, value: Any) -> Any:
    """A setting as JSON; policies without their domain, which is that of the policy they are bases of."""
    if _are_policies(value):
        return {POLICIES: [_settings(each) for each in value]}
    return encode_value(f"setting {name}", value)


def _are_policies(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(type(each) in REGISTRY.values() for each in value)


def _models(value: Any) -> list[Model]:
    if isinstance(value, list | tuple):
        return [model for each in value for model in _models(each)]
    if type(value) in REGISTRY.values():
        return [value.model, *_models(list(value._settings.values()))]
    return [value] if isinstance(value, Model) else []


@contextlib.contextmanager
def storable() -> Iterator[None]:
    """StorageError for what JSON cannot hold."""
    try:
        yield
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
    policy = policy_of_state(state, kernel=kernel, domain=domain, width=width)
    replay_stored(policy, (decoded(event, policy.field) for event in _part(state, "events", list)))
    draw_on(policy, state.get("random"))
    return policy


def policy_of_state(state: dict[str, Any], *, kernel: Any, domain: Domain | None, width: Any) -> Policy:
    """The policy of a state before all its events."""
    if _part(state, "format", int) != VERSION:
        raise StorageError(
            f"this has format {shown(state['format'])} and was written by another version of misspec, which alone "
            f"reads it; this one reads format {VERSION}"
        )
    for part in ("domain", "model", "settings"):
        check_plain(f"{part} of a policy's state", state.get(part))
    given = Given(kernel, width=width)
    make = _maker(state, given)
    with _unexpected("be made"):
        given.check()
        return make(stored_domain(state.get("domain"), domain))


def _maker(state: dict[str, Any], given: Given) -> Callable[[Domain], Policy]:
    """What makes the policy of a state on a domain, or one of the policies that it balances."""
    name, stored = _part(state, "policy", str), _part(state, "settings", dict)
    if name not in REGISTRY:
        missing = name.partition(":")[0] if ":" in name else "the module that defines it"
        raise StorageError(f"this state is of the policy {name}, which is not imported; import {missing} first")
    cls: Any = REGISTRY[name]
    known = signature_of(cls).parameters
    with _unexpected("be made"):
        bases = {
            key: _part(each, POLICIES, list)
            for key, each in stored.items()
            if isinstance(each, dict) and POLICIES in each
        }
        makers = {key: [_maker(each, given) for each in several] for key, several in bases.items()}
        settings = {key: decode_value(key, value, given) for key, value in stored.items() if key not in bases}
        if type(given.functions["width"]) in (str, int, float) and settings.get("width") == given.functions["width"]:
            given.fits.add("width")
        unknown = sorted(set(stored) - (set(known) - {"domain", "model"}))
        if unknown:
            raise StorageError(f"{name} has no setting {shown(unknown[0])}; was this written by a newer misspec?")
        model = state.get("model")
        if ("model" in known) != (model is not None):
            wrong = "lacks" if model is None else "has no use for"
            raise StorageError(f"the state of a policy {name} {wrong} its model")
        model = None if model is None else decode_model(model, given)

    def make(domain: Domain) -> Policy:
        inside = {key: [each(domain) for each in several] for key, several in makers.items()}
        policy: Policy = registry.made(cls, domain, model, {**settings, **inside})
        return policy

    return make


def _part(state: dict[str, Any], name: str, kind: type) -> Any:
    """A part that a state must have."""
    if name not in state:
        raise StorageError(f"not a policy's state: {name} is missing")
    if type(state[name]) is not kind:
        raise StorageError(f"not a policy's state: {name} must be of type {kind.__name__}, got {shown(state[name])}")
    return state[name]


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


def replay_stored(policy: Policy, events: Iterable[tuple[Any, ...]]) -> None:
    """Let a policy live through events; StorageError where it cannot."""
    with _unexpected("be replayed"):
        undo.replay(policy, events)
        asked = [event[1] for event in policy.log.events if event[0] == "ask"]
        points = [query.whole for query in asked if query.index is None or query.context is not None]
        if points:
            found = policy.domain.validate(np.array(points))
            beyond = found[~policy.domain.contains(found)]  # as actions of a round may be, within limits
            if len(beyond):
                kernels.check_bounded(policy.model.kernel, policy.domain.encode(beyond), "the points of stored queries")


def draw_on(policy: Policy, random: Any) -> None:
    """Let a policy draw on from a random state; StorageError where that is none."""
    check_plain("random of a policy's state", random)
    generator = policy._rng.bit_generator
    try:
        generator.state = random
        right = generator.state == random
    except (TypeError, ValueError, KeyError, OverflowError):
        right = False
    if not right:
        raise StorageError(f"not a policy's state: this is no random state: {shown(random)}")
