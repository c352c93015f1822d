"""The classes of policies by the name that states have for them, and what their constructors take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

REGISTRY: dict[str, type[Any]] = {}  # filled by Policy.__init_subclass__


@functools.cache
def signature_of(cls: type) -> inspect.Signature:
    """Of a policy's __init__, without self."""
    init: Callable[..., Any] = cls.__init__  # type: ignore[misc]  # not called
    signature = inspect.signature(init)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def options_of(cls: type) -> str:
    """The name of the argument that takes all other settings, where there is one."""
    kinds = {each.kind: name for name, each in signature_of(cls).parameters.items()}
    return kinds.get(inspect.Parameter.VAR_KEYWORD, "")
