"""A study of Optuna's as a policy sees it: parameters as a Space, trials as points with results, and attributes.

A point x of the space has Optuna's internal numbers as its coordinates: a category's is its position.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import optuna
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
from misspec.errors import LARGEST, Array, InvalidInput, instance, shown
from misspec.policies import Auto

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
            return self.of_stored({name: d.to_internal_repr(params[name]) for name, d in self.distributions.items()})
        except (KeyError, TypeError, ValueError):
            return None

    def params(self, x: Array) -> dict[str, Any]:
        pairs = zip(self.distributions.items(), x.tolist(), strict=True)
        return {name: distribution.to_external_repr(number) for (name, distribution), number in pairs}

    def of_stored(self, stored: Any) -> Array | None:
        """x of Optuna's internal numbers, by name; None for anything else."""
        if not isinstance(stored, dict):
            return None
        numbers: list[Any] = [stored.get(name) for name in self.distributions]
        if not all(type(number) in (int, float) and abs(number) <= LARGEST for number in numbers):
            return None
        x = np.array(numbers, dtype=np.float64)
        if any(parameter.wrong(x[[i]]).any() for i, parameter in enumerate(self._parameters)):
            return None
        return np.asarray(self.space.validate(x[None, :])[0])

    def fixed(self, params: Mapping[str, Any]) -> dict[int, float]:
        """Coordinates that are given, by position."""
        coordinates = {}
        for i, (name, distribution) in enumerate(self.distributions.items()):
            with contextlib.suppress(KeyError, TypeError, ValueError):
                number = float(distribution.to_internal_repr(params[name]))
                if self._parameters[i].inside(np.array([number])).all():
                    coordinates[i] = number
        return coordinates


class KnownTrial(NamedTuple):
    """A trial as a policy sees it. y: its result, None where it runs (pending) or failed; noise: its own, or None;
    limits: the values of its constraints."""

    number: int
    x: Array
    y: float | None
    failed: bool
    noise: float | None = None
    limits: Mapping[str, float] = MappingProxyType({})


class History:
    """All trials but the one in question that lie in a space, and how many others, `unseen`, are chosen right now.
    limits: what the constraints of all trials are to a policy."""

    def __init__(self, study: Study, axes: Axes, number: int | None = None) -> None:
        """number: of the trial in question."""
        every = study.get_trials(deepcopy=False)
        minimize = study.direction == StudyDirection.MINIMIZE
        results = {t.number: t.value for t in every if t.state == TrialState.COMPLETE and t.value is not None}
        finite = [value for value in results.values() if abs(value) <= LARGEST] or [0.0]
        least, most = min(finite), max(finite)
        self.trials: list[KnownTrial] = []
        self.unseen = 0
        constraints = Constraints(every)
        self.limits = constraints.limits
        so_far: list[float] = []  # results of trials before
        for trial in every:
            running, attributes = trial.state == TrialState.RUNNING, trial.system_attrs
            y = results.get(trial.number)
            if y is not None and abs(y) <= LARGEST:
                bisect.insort(so_far, y)
            again = trial.state == TrialState.FAIL and AGAIN in attributes
            if trial.number == number or trial.state == TrialState.WAITING or again:
                continue
            x = axes.read(trial)
            if x is None:
                if running and number is not None and ASKED not in attributes and not trial.params:
                    self.unseen += 0 < number - trial.number <= UNSEEN
                continue
            if y is not None:
                y = min(max(y, least), most)  # infinities, or what stands for them, teach nothing
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
            limits = constraints.values(trial)
            self.trials.append(KnownTrial(trial.number, x, y, not running and y is None, own, limits))


class Constraints:
    """The constraints of trials, which are kept by values of 0 and below, as limits of a policy."""

    def __init__(self, trials: Sequence[FrozenTrial]) -> None:
        known = [(key, value) for trial in trials for key, value in trial.constraints.items()]
        self._names = {key: _name_of(key, i) for i, key in enumerate(sorted({key for key, _ in known}))}
        self.limits = [f"{name} <= 0" for name in self._names.values()]
        finite = {key: [v for each, v in known if each == key and abs(v) <= LARGEST] or [0.0] for key in self._names}
        self._ends = {key: (min(values), max(values)) for key, values in finite.items()}

    def values(self, trial: FrozenTrial) -> dict[str, float]:
        """Those of a trial; infinities, or what stands for them, teach nothing but the side."""
        clipped = {key: min(max(v, self._ends[key][0]), self._ends[key][1]) for key, v in trial.constraints.items()}
        return {self._names[key]: float(value) for key, value in clipped.items()}


def _name_of(key: str, position: int) -> str:
    """The name of a constraint's limit."""
    plain = key.isprintable() and key == key.strip() and not set(key) & set("<>=")
    return f"constraint {key}" if plain and key else f"constraint number {position}"


def policy_of(study: Study, space: Space | None = None) -> Auto:
    """An Auto that knows all completed and failed trials, for `summary()`, `recommend()`, `conflicts()` and reports.

    space: where it is known; by default what all completed trials have in common. Nothing else is in the model, and
    its summary says what that is.
    """
    if len(instance("study", study, Study).directions) != 1:
        raise InvalidInput(f"misspec optimises one objective, and this study has {len(study.directions)}")
    common = optuna.search_space.intersection_search_space(study.get_trials(deepcopy=False))
    distributions = distributions_of(space) if space is not None else common
    if not distributions:
        raise InvalidInput("this study has no completed trial yet, or its trials have no parameter in common")
    axes = Axes(distributions)
    history, minimize = History(study, axes), study.direction == StudyDirection.MINIMIZE
    policy = Auto(axes.space if space is None else space, minimize=minimize, limits=history.limits or None)
    done = {t.number: t for t in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))}
    names = [name for trial in done.values() for name in trial.params]
    policy.not_modelled = tuple(dict.fromkeys(name for name in names if name not in distributions))
    for each in history.trials:
        if each.failed or each.number in done:
            (query,) = policy.mark_pending(each.x[None, :])
            policy.drop(query) if each.y is None else policy.tell(query, each.y, noise=each.noise, limits=each.limits)
    policy.refresh()
    return policy


def space_of(distributions: Mapping[str, BaseDistribution]) -> Space:
    """An `ms.Space` of Optuna's distributions; InvalidInput names one that cannot be a parameter."""
    given = instance("distributions", distributions, Mapping, "as a trial has them by name")
    parameters = {name: parameter for name, each in given.items() if (parameter := parameter_of(each)) is not None}
    for name in given:
        if name not in parameters:
            raise InvalidInput(f"parameter {shown(name)} cannot be one of a Space: {shown(given[name])}")
    return Space(parameters)


def distributions_of(space: Space) -> dict[str, BaseDistribution]:
    """Optuna's distributions of an `ms.Space`."""
    distributions: dict[str, BaseDistribution] = {}
    for name, each in instance("space", space, Space).parameters.items():
        if isinstance(each, Choice):
            distributions[name] = CategoricalDistribution(each.options)
        else:
            kind: Any = FloatDistribution if isinstance(each, Float) else IntDistribution
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
