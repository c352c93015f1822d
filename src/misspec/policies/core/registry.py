"""The classes of policies by the name that states have for them, and what their constructors take."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from misspec.domains import Domain
from misspec.model import Model

REGISTRY: dict[str, type[Any]] = {}  # filled by Policy.__init_subclass__


@functools.cache
def signature_of(cls: type) -> inspect.Signature:
    """Of a policy's __init__, without self."""
    init: Callable[..., Any] = cls.__init__  # type: ignore[misc]  # not called
    signature = inspect.signature(init)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def settings_of(cls: type, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any] | None:
    """All arguments of a constructor but domain and model, defaults included; None for arguments that it refuses."""
    with contextlib.suppress(TypeError):
        bound = signature_of(cls).bind(*arguments, **keywords)
        bound.apply_defaults()
        kinds = {each.kind: name for name, each in signature_of(cls).parameters.items()}
        options = kinds.get(inspect.Parameter.VAR_KEYWORD, "")  # the argument that takes all other settings
        given = {**bound.arguments, **bound.arguments.get(options, {})}
        return {name: kept(value) for name, value in given.items() if name not in ("domain", "model", options)}
    return None


def kept(value: Any) -> Any:
    """A copy of a setting, if it is a list, a mapping or an array: changing the argument must not change the policy."""
    if isinstance(value, list | tuple):
        return type(value)(kept(each) for each in value) if type(value) in (list, tuple) else value
    if isinstance(value, dict):
        return {key: kept(each) for key, each in value.items()}
    return value.copy() if isinstance(value, np.ndarray) else value


def made(cls: Any, domain: Domain, model: Model | None, settings: Mapping[str, Any]) -> Any:
    """A policy of this class before all its events; one that learns its model takes none."""
    given = (domain, model) if "model" in signature_of(cls).parameters else (domain,)
    policy: Any = cls.__new__(cls, *given, **settings)
    policy._fresh = False
    policy.__init__(*given, **settings)
    return policy
