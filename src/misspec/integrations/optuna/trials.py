"""A study of Optuna's as a policy sees it: parameters as a Space, trials as points with results, and attributes.

A point x of the space has Optuna's internal numbers as its coordinates: a category's is its position.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from misspec.domains import Choice, Float, Int, Space
from misspec.domains.parameters import Parameter
from misspec.errors import LARGEST, MOST, Array, InvalidInput, instance, shown

NOISE = "result_noise"  # the user attribute of a trial that has the standard deviation of its result
ASKED = "misspec:asked"  # attribute of a trial: the point that was chosen for it
AGAIN = "misspec:again"  # of a trial that failed for no fault of its point, which is evaluated again (`shared_study`)
UNSEEN = 8  # trials that others are choosing right now, at most, for which as many queries are skipped


class Axes:
    """The parameters of a search space as an `ms.Space`."""

    def __init__(self, distributions: Mapping[str, BaseDistribution]) -> None:
        self.distributions = dict(distributions)
        self.space = space_of(distributions)
        text = json.dumps([[name, distribution_to_json(each)] for name, each in self.distributions.items()])
        self.digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._parameters = list(self.space.parameters.values())
        self._finished: dict[int, Array | None] = {}  # points of finished trials, by id

    def read(self, trial: FrozenTrial) -> Array | None:
        """The point of a trial; None where it does not lie in this space."""
        if trial._trial_id in self._finished:
            return self._finished[trial._trial_id]
        x = self.point(trial.params)
        if x is None and trial.state == TrialState.RUNNING:
            x = self.of_stored(trial.system_attrs.get(ASKED))  # chosen, and not yet suggested in whole
        if trial.state.is_finished():
            self._finished[trial._trial_id] = x
        return x

    def point(self, params: Mapping[str, Any]) -> Array | None:
        """x, or None for what lies in no such space: parameters that are missing, or forced to be something else."""
        try:
            numbers = {name: each.to_internal_repr(params[name]) for name, each in self.distributions.items()}
        except (KeyError, TypeError, ValueError):
            return None
        return self.of_stored(numbers)

    def params(self, x: Array) -> dict[str, Any]:
        pairs = zip(self.distributions.items(), x.tolist(), strict=True)
        return {name: distribution.to_external_repr(number) for (name, distribution), number in pairs}

    def stored(self, x: Array) -> dict[str, float]:
        """By name, in Optuna's internal numbers, which JSON knows."""
        return dict(zip(self.distributions, x.tolist(), strict=True))

    def of_stored(self, stored: Any) -> Array | None:
        """x of what `stored` gives; None for anything else."""
        if not isinstance(stored, dict) or not all(_is_number(stored.get(name)) for name in self.distributions):
            return None
        x = np.array([stored[name] for name in self.distributions], dtype=np.float64)
        if any(parameter.wrong(x[[i]]).any() for i, parameter in enumerate(self._parameters)):
            return None
        return np.asarray(self.space.validate(x[None, :])[0])

    def fixed(self, params: Mapping[str, Any]) -> dict[int, float]:
        """Coordinates that are given, by position."""
        found = {}
        for i, (name, distribution) in enumerate(self.distributions.items()):
            if name in params:
                with contextlib.suppress(TypeError, ValueError):
                    number = float(distribution.to_internal_repr(params[name]))
                    if self._parameters[i].inside(np.array([number])).all():
                        found[i] = number
        return found


class Known(NamedTuple):
    """A trial as a policy sees it. y: its result, None where it runs (pending) or failed; noise: its own, or None."""

    number: int
    x: Array
    y: float | None
    failed: bool
    noise: float | None = None


class History(NamedTuple):
    """All trials but the one in question that lie in a space, and how many others are being chosen right now."""

    trials: list[Known]
    unseen: int

    @classmethod
    def of(cls, study: Study, axes: Axes, number: int | None = None) -> History:
        """number: of the trial in question."""
        every = study.get_trials(deepcopy=False)
        refuse_constraints(every)
        minimize = study.direction == StudyDirection.MINIMIZE
        complete = [t.value for t in every if t.state == TrialState.COMPLETE and t.value is not None]
        finite = [value for value in complete if abs(value) <= LARGEST] or [0.0]
        least, most = min(finite), max(finite)
        found, unseen = [], 0
        so_far: list[float] = []  # results of trials before
        for trial in every:
            if trial.state == TrialState.COMPLETE and trial.value is not None and abs(trial.value) <= LARGEST:
                bisect.insort(so_far, trial.value)
            if trial.number == number or trial.state == TrialState.WAITING:
                continue
            if trial.state == TrialState.FAIL and AGAIN in trial.system_attrs:
                continue
            running = trial.state == TrialState.RUNNING
            x = axes.read(trial)
            if x is None:
                choosing = running and ASKED not in trial.system_attrs and not trial.params and number is not None
                unseen += bool(choosing and 0 < number - trial.number <= UNSEEN)  # type: ignore[operator]  # not None
                continue
            y = None
            if trial.state == TrialState.COMPLETE and trial.value is not None:
                y = min(max(trial.value, least), most)  # infinities, or what stands for them, are nothing to learn from
            elif trial.state == TrialState.PRUNED and trial.intermediate_values:
                last = trial.intermediate_values[max(trial.intermediate_values)]
                if abs(last) <= LARGEST:  # no better than the median of those before it, which does not change later
                    middle = so_far[len(so_far) // 2] if so_far else last
                    y = max(last, middle) if minimize else min(last, middle)
            own = trial.user_attrs.get(NOISE)
            if own is not None and (not isinstance(own, int | float) or not 0 <= own <= LARGEST):
                raise InvalidInput(
                    f"user attribute {NOISE!r} of trial {trial.number} must be the standard deviation of its result, "
                    f"got {shown(own)}"
                )
            found.append(Known(trial.number, x, y, not running and y is None, own))
        return cls(found, min(unseen, UNSEEN))


def data(trials: Sequence[Known]) -> tuple[Array, Array, None, list[float | None]]:
    """Points and results of trials that have one; no contexts; own noises."""
    x, y = (np.array([each[i] for each in trials], dtype=np.float64) for i in (1, 2))
    return x, y, None, [each.noise for each in trials]


def refuse_constraints(trials: Sequence[FrozenTrial]) -> None:
    """InvalidInput where trials have constraints: ignoring them would look like respecting them."""
    for trial in trials:
        if any(key == "constraints" or key.startswith("constraints:") for key in trial.system_attrs):
            raise InvalidInput(
                f"trial {trial.number} has constraints, which MisspecSampler does not know; give infeasible trials a "
                "bad value, let them fail, or take Optuna's GPSampler or TPESampler"
            )


def is_count(value: Any) -> TypeGuard[int]:
    """Test whether it is a whole number from 0 up."""
    return type(value) is int and 0 <= value <= MOST


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= LARGEST


# -- spaces ------------------------------------------------------------------------------------------------------------


def space_of(distributions: Mapping[str, BaseDistribution]) -> Space:
    """An `ms.Space` of Optuna's distributions; InvalidInput names one that cannot be a parameter."""
    found: dict[str, Parameter] = {}
    instance("distributions", distributions, Mapping, "as a trial has them by name")
    for name, distribution in distributions.items():
        parameter = parameter_of(distribution)
        if parameter is None:
            raise InvalidInput(f"parameter {shown(name)} cannot be one of a Space: {shown(distribution)}")
        found[name] = parameter
    return Space(found)


def distributions_of(space: Space) -> dict[str, BaseDistribution]:
    """Optuna's distributions of an `ms.Space`."""
    found: dict[str, BaseDistribution] = {}
    for name, each in instance("space", space, Space).parameters.items():
        if isinstance(each, Float):
            found[name] = FloatDistribution(each.low, each.high, log=each.log, step=each.step)
        elif isinstance(each, Int):
            found[name] = IntDistribution(each.low, each.high, log=each.log, step=each.step)
        elif isinstance(each, Choice):
            found[name] = CategoricalDistribution(each.options)
    return found


def parameter_of(distribution: BaseDistribution) -> Parameter | None:
    """None where there is no such parameter: beyond the range of floats, say."""
    try:
        if isinstance(distribution, FloatDistribution):
            return Float(distribution.low, distribution.high, log=distribution.log, step=distribution.step)
        if isinstance(distribution, IntDistribution):
            return Int(distribution.low, distribution.high, log=distribution.log, step=distribution.step)
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
