"""A study of Optuna's as a policy sees it: parameters as a Space, trials as points with results, and attributes.

A point x of the space has Optuna's internal numbers as its coordinates: a category's is its position.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from misspec.domains import Space
from misspec.errors import LARGEST, Array, InvalidInput, instance, real, shown
from misspec.integrations.optuna.shapes import Shape, Shapes, distributions_of, space_of
from misspec.policies import Auto

NOISE = "result_noise"  # the user attribute of a trial that has the standard deviation of its result
ASKED = "misspec:asked"  # attribute of a trial: the point that was chosen for it
AGAIN = "misspec:again"  # of a trial that failed for no fault of its point, which is evaluated again (`shared_study`)
UNSEEN = 8  # trials that others are choosing right now, at most, for which as many queries are skipped


class Axes:
    """The parameters of a search space as an `ms.Space`.

    space: where it is known, or what the trials' shape makes of it; hidden: groups of parameters that its choices of
    these names stand for (`shapes.py`).
    """

    def __init__(
        self,
        distributions: Mapping[str, BaseDistribution],
        space: Space | None = None,
        hidden: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.distributions = dict(distributions)
        self.space = space_of(distributions) if space is None else space
        self.hidden = dict(hidden or {})
        kept: list[Any] = [[name, distribution_to_json(each)] for name, each in self.distributions.items()]
        if self.space.rules is not None or self.space.conditions.conditional or space is not None:
            kept.append(self.space.settings())
        self.digest = hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:16]
        self._numbered = [(name, i, p) for i, (name, p) in enumerate(self.space.parameters.items())]
        self._finished: dict[int, Array | None] = {}  # points of finished trials, by id

    @classmethod
    def of_shape(cls, shape: Shape) -> Axes:
        """Of a study's trials."""
        hidden = {name: each.group for name, each in shape.hidden.items()}
        plain = not shape.when and not hidden
        return cls(shape.distributions, None if plain else shape.space(), hidden)

    def read(self, trial: FrozenTrial) -> Array | None:
        """The point of a trial; None where it does not lie in this space."""
        if trial._trial_id in self._finished:
            return self._finished[trial._trial_id]
        running = trial.state == TrialState.RUNNING
        x = self._chosen(trial) if running else None  # and not yet suggested in whole
        if x is None:
            x = self.point(trial.params)
        if not running and trial.state.is_finished():
            self._finished[trial._trial_id] = x
        return x

    def _chosen(self, trial: FrozenTrial) -> Array | None:
        """The point that was chosen for a trial, if it has no other values."""
        asked = trial.system_attrs.get(ASKED)
        if not isinstance(asked, dict):
            return None
        given = self._internal(trial.params)
        return self.of_stored(asked) if given is not None and given.items() <= asked.items() else None

    def _internal(self, params: Mapping[str, Any]) -> dict[str, float] | None:
        """Values in Optuna's internal numbers, without those of other parameters; None for what cannot be one."""
        try:
            return {n: d.to_internal_repr(params[n]) for n, d in self.distributions.items() if n in params}
        except (TypeError, ValueError):
            return None

    def point(self, params: Mapping[str, Any]) -> Array | None:
        """x, or None for what lies in no such space: parameters that are missing, or forced to be something else."""
        return self.of_stored(self._internal(params))

    def params(self, x: Array) -> dict[str, Any]:
        """The values of the parameters that exist at a point."""
        return {name: self.distributions[name].to_external_repr(number) for name, number in self.stored(x).items()}

    def stored(self, x: Array) -> dict[str, float]:
        """The same in Optuna's internal numbers, which JSON knows."""
        there = self.space.there(x[None, :])[0].tolist()
        pairs = {name: (number, i) for (name, i, _), number in zip(self._numbered, x.tolist(), strict=True)}
        return {name: pairs[name][0] for name in self.distributions if there[pairs[name][1]]}

    def of_stored(self, stored: Any) -> Array | None:
        """x of Optuna's internal numbers, by name; None for anything else."""
        if not isinstance(stored, dict):
            return None
        hidden = {name: any(each in stored for each in group) for name, group in self.hidden.items()}
        x = np.array([[real(hidden.get(name, stored.get(name)), truth=name in hidden) for name in self.space.names]])
        with contextlib.suppress(InvalidInput):
            return np.asarray(self.space.validate(self.space.completed(x, "the trial"))[0])
        return None

    def exists(self, name: str, params: Mapping[str, Any]) -> bool:
        """Whether a parameter exists where others have these values; those that it depends on are among them, if they
        exist."""
        for parent, some in self.space.parameters[name].when:
            p = self.space.parameters[parent]
            if parent not in params or p.number(params[parent], "") not in [p.number(each, "") for each in some]:
                return False
        return True

    def fixed(self, params: Mapping[str, Any]) -> dict[int, float]:
        """Coordinates that are given, by position."""
        coordinates = {}
        for name, i, p in self._numbered:
            with contextlib.suppress(KeyError, TypeError, ValueError):
                number = float(self.distributions[name].to_internal_repr(params[name]))
                if p.inside(np.array([number])).all():
                    coordinates[i] = number
        return coordinates


class Relative(dict[str, BaseDistribution]):
    """A search space of Optuna's, and what else is known of it."""

    def __init__(self, axes: Axes) -> None:
        super().__init__(axes.distributions)
        self.axes = axes


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
        known = [(key, value) for trial in trials for key, value in constraints_of(trial).items()]
        self._names = {key: _name_of(key, i) for i, key in enumerate(sorted({key for key, _ in known}))}
        self.limits = [f"{name} <= 0" for name in self._names.values()]
        finite = {key: [v for each, v in known if each == key and abs(v) <= LARGEST] or [0.0] for key in self._names}
        self._ends = {key: (min(values), max(values)) for key, values in finite.items()}

    def values(self, trial: FrozenTrial) -> dict[str, float]:
        """Those of a trial; infinities, or what stands for them, teach nothing but the side."""
        given = constraints_of(trial).items()
        return {self._names[key]: float(min(max(v, self._ends[key][0]), self._ends[key][1])) for key, v in given}


def constraints_of(trial: FrozenTrial) -> dict[str, float]:
    """The values of a trial's constraints, which Optuna 4 keeps as a list without names."""
    if hasattr(trial, "constraints"):
        return dict(trial.constraints)
    return {str(i): value for i, value in enumerate(trial.system_attrs.get("constraints") or ())}


def _name_of(key: str, position: int) -> str:
    """The name of a constraint's limit."""
    plain = key.isprintable() and key == key.strip() and not set(key) & set("<>=")
    return f"constraint {key}" if plain and key else f"constraint number {position}"


def policy_of(study: Study, space: Space | None = None) -> Auto:
    """An Auto that knows all completed and failed trials, for `summary()`, `recommend()`, `conflicts()` and reports.

    space: where it is known; by default what completed trials show (`shapes.py`). Nothing else is in the model, and its
    summary says what that is.
    """
    if len(instance("study", study, Study).directions) != 1:
        raise InvalidInput(f"misspec optimises one objective, and this study has {len(study.directions)}")
    shape = Shapes().of(study.get_trials(deepcopy=False))
    if space is None and not shape.distributions:
        raise InvalidInput("this study has no completed trial yet, or its trials have no parameter in common")
    axes = Axes.of_shape(shape) if space is None else Axes(distributions_of(space), space)
    history, minimize = History(study, axes), study.direction == StudyDirection.MINIMIZE
    policy = Auto(axes.space, minimize=minimize, limits=history.limits or None)
    done = {t.number: t for t in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))}
    names = [name for trial in done.values() for name in trial.params]
    policy.not_modelled = tuple(dict.fromkeys(name for name in names if name not in axes.distributions))
    for each in history.trials:
        if each.failed or each.number in done:
            (query,) = policy.mark_pending(each.x[None, :])
            policy.drop(query) if each.y is None else policy.tell(query, each.y, noise=each.noise, limits=each.limits)
    policy.refresh()
    return policy
