"""Distributions of Optuna as parameters of an `ms.Space`, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from misspec.domains import Choice, Float, Int, Space
from misspec.domains.parameters import Parameter
from misspec.errors import InvalidInput, instance, shown


def space_of(distributions: Mapping[str, BaseDistribution]) -> Space:
    """An `ms.Space` of Optuna's distributions; InvalidInput names one that cannot be a parameter."""
    given = instance("distributions", distributions, Mapping, "as a trial has them by name")
    parameters = {name: parameter for name, each in given.items() if (parameter := parameter_of(each)) is not None}
    for name in given:
        if name not in parameters:
            raise InvalidInput(f"parameter {shown(name)} cannot be one of a Space: {shown(given[name])}")
    return Space(parameters)


def distributions_of(space: Space) -> dict[str, BaseDistribution]:
    """Optuna's distributions of an `ms.Space`, by name; rules and conditions are not in them."""
    distributions: dict[str, BaseDistribution] = {}
    for name, each in instance("space", space, Space).parameters.items():
        if isinstance(each, Choice):
            distributions[name] = CategoricalDistribution(each.options)
        else:
            kind: Any = IntDistribution if isinstance(each, Int) else FloatDistribution  # shares of mixtures are floats
            distributions[name] = kind(each.low, each.high, log=each.log, step=each.step)
    return distributions


def parameter_of(distribution: BaseDistribution) -> Parameter | None:
    """None where there is no such parameter: beyond the range of floats, say."""
    try:
        if isinstance(distribution, FloatDistribution | IntDistribution):
            kind: Callable[..., Parameter] = Float if isinstance(distribution, FloatDistribution) else Int
            return kind(distribution.low, distribution.high, log=distribution.log, step=distribution.step)
        if isinstance(distribution, CategoricalDistribution):
            choices = distribution.choices
            if any(distribution.to_internal_repr(option) != i for i, option in enumerate(choices)):
                return None  # two that Optuna takes for one
            try:
                return Choice(choices)
            except InvalidInput:  # objects: by their positions
                return Choice(tuple(f"{i}: {shown(option)}" for i, option in enumerate(choices)))
    except (InvalidInput, OverflowError):  # the latter is Optuna's, of a whole number beside NaN
        pass
    return None
