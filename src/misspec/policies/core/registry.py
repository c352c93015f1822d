"""The classes of policies by the name that states have for them, and what their constructors take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, get_args, get_type_hints

import numpy as np

from misspec.domains import Domain
from misspec.errors import alike
from misspec.model import Model
from misspec.theory.widths import Width

REGISTRY: dict[str, type[Any]] = {}  # filled by Policy.__init_subclass__


class Common(TypedDict, total=False):
    """Settings of every policy.

    minimize   smaller is better: results, means and bands are in your sign
    seed       of random choices
    """

    minimize: bool
    seed: int


class Delayed(Common, total=False):
    """Settings of policies whose results may be told in any order.

    delays   "independent" says that when results are told, and in which calls they are observed, does not depend on
             what they are; without that, bands are guaranteed only while what is told is a prefix of what was asked
    """

    delays: str


class Choosing(Delayed, total=False):
    """Settings of policies that maximise an upper end.

    width        "mixture", "lemma1", a number (a multiplier in units of model.scale, without guarantee), or a function
                 of the model, L = log det(I + K/λ) and δ that returns the multiplier (its guarantee is up to you)
    budget       features of the posterior at most, for kernels that have many (Matérn, or any in many dimensions): what
                 a round costs then stops growing, and the bands pay for what is missed (`posterior/fixed.py`)
    resolution   on a box, queries of a grounded policy that come this near to an observed point, in units of the length
                 scale, go to the point itself; None or 0 turns that off (`policies/core/field.py`)
    """

    width: Width
    budget: int | None
    resolution: float | None


class UCB(Choosing, total=False):
    """Settings of GP-UCB and its kin.

    inflate   choose by upper ends that stay valid while queries are pending (`band` always does: it counts told
              results only)
    """

    inflate: bool


@functools.cache
def signature_of(make: Any) -> inspect.Signature:
    """Of a policy's constructor, or of another way to make one (`as_in_paper`): with the settings that it passes on,
    which stand as they do where they are passed to."""
    if not isinstance(make, type):
        return _expanded(make, lambda: signature_of(make.__self__))
    owner = next(each for each in make.__mro__ if "__init__" in vars(each))
    return _expanded(functools.partial(make.__init__, None), lambda: signature_of(owner.__mro__[1]))  # type: ignore[misc]


def _expanded(function: Callable[..., Any], passed_to: Callable[[], inspect.Signature]) -> inspect.Signature:
    signature = inspect.signature(function)
    own = list(signature.parameters.values())
    if not own or own[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        return signature
    there, explicit = passed_to().parameters, {each.name for each in own}
    hint = get_type_hints(getattr(function, "func", function)).get(own[-1].name, Any)
    names = [*get_type_hints(get_args(hint)[0])] if get_args(hint) else [*there]
    more = [each for name, each in there.items() if name in names and name not in explicit]
    return signature.replace(parameters=[*own[:-1], *more])


def settings_of(cls: type, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a constructor but domain and model, defaults included; TypeError for those that it has not."""
    try:
        bound = signature_of(cls).bind(*arguments, **keywords)
    except TypeError as error:
        takes = signature_of(cls).parameters
        unknown = [name for name in keywords if name not in takes]  # before what is missing: often it is the same one
        wrong = f"has no argument {unknown[0]!r}{alike(unknown[0], takes)}" if unknown else error
        raise TypeError(f"{cls.__name__} {wrong}; it takes {', '.join(takes)}") from None
    bound.apply_defaults()
    return {name: copied_setting(value) for name, value in bound.arguments.items() if name not in ("domain", "model")}


def copied_setting(value: Any) -> Any:
    """A copy of a setting, if it is a list, a mapping or an array: changing the argument must not change the policy."""
    if isinstance(value, list | tuple):
        return type(value)(copied_setting(each) for each in value) if type(value) in (list, tuple) else value
    if isinstance(value, dict):
        return {key: copied_setting(each) for key, each in value.items()}
    return value.copy() if isinstance(value, np.ndarray) else value


def made(cls: Any, domain: Domain, model: Model | None, settings: Mapping[str, Any]) -> Any:
    """A policy of this class before all its events; one that learns its model takes none, and one of other policies
    has their domain."""
    given = [each for name, each in (("domain", domain), ("model", model)) if name in signature_of(cls).parameters]
    policy: Any = cls.__new__(cls, *given, **settings)
    policy._fresh = False
    policy.__init__(*given, **settings)
    return policy
