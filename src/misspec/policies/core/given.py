"""What callers hand in to choose from or to learn: actions, points and contexts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from misspec.errors import InvalidInput
from misspec.policies.core.points import Actions, Round

if TYPE_CHECKING:
    from misspec.policies.core.policy import Policy


def round_of(policy: Policy, actions: Any, context: Any) -> Round:
    """What a round offers."""
    if context is None and actions is None:
        return None
    if not policy.abilities.takes_actions:
        raise InvalidInput(
            f"{type(policy).__name__} eliminates from a fixed set and takes no actions; use RegretBalancing"
        )
    if context is None:
        return policy.admit(policy._parse(actions)).offered()
    offered = policy.field.within(context, actions, policy.model)
    return policy.admit(offered).offered() if isinstance(offered, Actions) else offered


def points_of(policy: Policy, points_or_indices: Any, context: Any) -> Actions:
    """Points to learn or to expect, each with its context."""
    if context is None:
        return policy.admit(policy._parse(points_or_indices))
    return policy.admit(policy.field.pair(points_or_indices, context, policy.model))


def is_empty(given: Any) -> bool:
    """Whether it is a list, an array or a column with nothing in it."""
    if isinstance(given, np.ndarray):
        return given.size == 0
    return not isinstance(given, str | bytes | Mapping) and hasattr(given, "__len__") and len(given) == 0
