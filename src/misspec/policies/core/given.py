"""Actions, points and contexts that callers hand in, to choose from or to learn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from misspec.errors import LARGEST, InvalidInput, array, shown
from misspec.policies.core.points import Actions, Round

if TYPE_CHECKING:
    from misspec.policies.core.policy import Policy


def round_of(policy: Policy, actions: Any, context: Any) -> Round:
    """The actions or context of a round; None for the whole domain."""
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
    return policy.admit(policy.field.parse(points_or_indices, policy.model, context))


def noises(policy: Policy, noise: Any, count: int) -> list[float] | None:
    """The own noises of results, NaN for those without; None where none has one."""
    if noise is None:
        return None
    single = np.ndim(noise) == 0 and not isinstance(noise, str | bool)
    each = [noise] * count if single else list_of_numbers(noise, count)
    found = [math.nan if one is None else float(one) for one in each]
    if all(math.isnan(one) for one in found):
        return None
    wrong = next((one for one in found if one < 0 or one > LARGEST), None)
    if wrong is not None:
        raise InvalidInput(f"a noise must be a standard deviation, 0 or above and finite, got {shown(wrong)}")
    if not policy.abilities.takes_noise:
        raise InvalidInput(
            f"{type(policy).__name__} takes no noise of single results; Auto, ECGPUCB, GPUCB, InsuredUCB, "
            "ThompsonSampling and UniformSampling do"
        )
    policy.model.precision(found, count)  # raises where the model has none
    return found


def list_of_numbers(given: Any, count: int) -> list[Any]:
    """As many numbers as there are results; None and NaN among them."""
    found = array("noise must be numbers", given)
    if found.dtype.kind not in "iufO":
        raise InvalidInput(f"noise must be numbers, got {shown(given)}")
    if found.shape != (count,):
        raise InvalidInput(f"noise must be one number, or {count} in a list, got shape {found.shape}")
    try:
        return [None if one is None else float(one) for one in found.tolist()]
    except (TypeError, ValueError):
        raise InvalidInput(f"noise must be numbers, got {shown(given)}") from None


def is_empty(given: Any) -> bool:
    """Whether it is a list, an array or a column with nothing in it."""
    if isinstance(given, np.ndarray):
        return given.size == 0
    return not isinstance(given, str | bytes | Mapping) and hasattr(given, "__len__") and len(given) == 0
