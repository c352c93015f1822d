"""Distributions of Optuna as parameters of an `ms.Space`, and the space of a study whose objective decides as it runs
which parameters there are.

Trials say which parameters appear together. A group that appears exactly where other parameters have certain values,
as "C" does where classifier is "svm", exists `when` they have. Where no values explain it, a hidden choice stands for
whether the group is there, and a rule keeps it at what the latest trials have: nothing can be asked of an objective but
values. Parameters whose distribution differs between trials are left out, and so are those of one value.

All of this is a function of the completed trials, so that processes which see the same ones agree.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from misspec.domains import Choice, Float, Int, Space
from misspec.domains.parameters import Parameter
from misspec.errors import Array, InvalidInput, instance, short, shown

MOST_VALUES = 64  # of a parameter that decides which others exist
MOST_HIDDEN = 8  # groups that nothing explains, those of most trials; the others are not modelled
LATELY = 10  # trials: a hidden group that none of the last ones has is not asked any more


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


# -- the shape of a study ----------------------------------------------------------------------------------------------

When = dict[str, tuple[Any, ...]]


class Hidden(NamedTuple):
    """A group of parameters whose presence nothing explains. there: whether queries have it."""

    group: tuple[str, ...]
    there: bool
    when: When


class Shape(NamedTuple):
    """Distributions and conditions by name, and hidden groups by the name of the choice that stands for them."""

    distributions: dict[str, BaseDistribution]
    when: dict[str, When]
    hidden: dict[str, Hidden]

    def space(self) -> Space:
        parameters: dict[str, Any] = {name: Choice((False, True), when=each.when) for name, each in self.hidden.items()}
        for name, distribution in self.distributions.items():
            parameter: Any = parameter_of(distribution)
            parameters[name] = dataclasses.replace(parameter, when=self.when[name]) if name in self.when else parameter
        return Space(parameters, where=[f"`{name}` == {each.there}" for name, each in self.hidden.items()])


class _Column(NamedTuple):
    """A parameter in all trials. there: whether a trial has it; code: which of its `values` it has there, −1 where it
    is absent, which as an index into a table of these is the entry after them."""

    there: NDArray[np.bool_]
    code: NDArray[np.intp]
    values: Array

    def having(self, some: Array) -> NDArray[np.bool_]:
        """The trials in which it has one of these values."""
        return np.asarray(np.append(np.isin(self.values, some), False)[self.code])


class Shapes:
    """The shape of a study; each trial is read once."""

    def __init__(self) -> None:
        self._read: set[int] = set()  # trials, by id
        self._first: dict[str, BaseDistribution] = {}
        self._changing: set[str] = set()  # parameters with several distributions
        self._numbers: list[int] = []  # of the trials that were read
        self._orders: list[list[str]] = []  # the parameters of each, as they were suggested
        self._stored: dict[str, list[float]] = {}  # their values, as Optuna stores them, NaN where there is none
        self._found: Shape | None = None

    def of(self, trials: Sequence[FrozenTrial]) -> Shape:
        new = [t for t in trials if t.state == TrialState.COMPLETE and t._trial_id not in self._read]
        for trial in new:
            self._add(trial)
        if new or self._found is None:
            self._found = self._inferred()
        return self._found

    def _add(self, trial: FrozenTrial) -> None:
        for name, each in trial.distributions.items():
            if self._first.setdefault(name, each) != each:
                self._changing.add(name)
            self._stored.setdefault(name, [np.nan] * len(self._read))
        for name, values in self._stored.items():
            given = trial.distributions.get(name)
            values.append(np.nan if given is None else float(given.to_internal_repr(trial.params[name])))
        self._read.add(trial._trial_id)
        self._numbers.append(trial.number)
        self._orders.append(list(trial.distributions))

    def _inferred(self) -> Shape:
        usable = {
            name: each
            for name, each in sorted(self._first.items())
            if name not in self._changing and not each.single() and parameter_of(each) is not None
        }
        stored = {name: np.array(self._stored[name]) for name in usable}
        groups: dict[bytes, list[str]] = {}
        for name, values in stored.items():
            groups.setdefault((~np.isnan(values)).tobytes(), []).append(name)
        count = {key: sum(key) for key in groups}
        whole = [name for key, names in groups.items() if count[key] == len(self._read) for name in names]
        shape = Shape({}, {}, {})
        known = {name: _column(stored[name]) for name in whole if self._decides(name)}
        accepted = set(whole)
        for key in sorted(groups, key=lambda key: (-count[key], groups[key])):
            if count[key] == len(self._read):
                continue
            there, names = np.frombuffer(key, dtype=bool), groups[key]
            when = self._explained(there, known, names[0])
            if when is None:
                if count[key] < 2 or len(shape.hidden) == MOST_HIDDEN:
                    continue
                plain = short(f"with {', '.join(names)}").replace("`", "'")  # it stands in a rule, which has its limits
                titles = itertools.chain([plain], (f"{plain} ({i})" for i in itertools.count(2)))
                title = next(each for each in titles if each not in usable and each not in shape.hidden)
                shape.hidden[title] = Hidden(tuple(names), *self._lately(there, known, names[0]))
                when = {title: (True,)}
            shape.when.update(dict.fromkeys(names, when))
            known |= {name: _column(stored[name]) for name in names if self._decides(name)}
            accepted |= set(names)
        shape.distributions.update({name: each for name, each in usable.items() if name in accepted})
        return shape

    def _decides(self, name: str) -> bool:
        """Whether others can depend on its value."""
        count = getattr(parameter_of(self._first[name]), "count", None)
        return count is not None and count <= MOST_VALUES

    def _explained(self, there: NDArray[np.bool_], known: Mapping[str, _Column], name: str) -> When | None:
        """Values of one parameter, or of two, with which a group is there and without which it is not."""
        for size in (1, 2):
            found = [each for each in _candidates(there, known, size) if np.array_equal(each.there, there)]
            if found:
                best = min(found, key=lambda each: sum((self._before(q, name) for q in each.values), ()))
                return {q: self._values(q, best.values, there, known) for q in best.values}
        return None

    def _lately(self, there: NDArray[np.bool_], known: Mapping[str, _Column], name: str) -> tuple[bool, When]:
        """Whether the latest trials have a group, of those that can, and the values of a parameter without which it
        never appears: those that the fewest trials have."""
        found = [each for each in _candidates(there, known, 1) if not each.there.all()]
        when: When = {}
        could = np.ones(len(there), dtype=bool)
        if found:
            best = min(found, key=lambda each: (int(each.there.sum()), *self._before(next(iter(each.values)), name)))
            when = {q: self._values(q, best.values, there, known) for q in best.values}
            could = best.there
        numbers = np.where(could, np.array(self._numbers), -1)
        latest = np.argsort(-numbers)[: min(LATELY, int(could.sum()))]
        return bool(there[latest].any()), when

    def _before(self, parent: str, name: str) -> tuple[int, int, str]:
        """How often it is suggested after the other, how far before it at first, and its name: what decides whether
        others exist is mostly the last that was suggested before them."""
        orders = zip(self._numbers, self._orders, strict=True)
        both = [(number, order) for number, order in orders if name in order and parent in order]
        gaps = [(number, order.index(name) - order.index(parent)) for number, order in both]
        return sum(gap < 0 for _, gap in gaps), min(gaps)[1], parent

    def _values(
        self, parent: str, found: Mapping[str, Array], there: NDArray[np.bool_], known: Mapping[str, _Column]
    ) -> tuple[Any, ...]:
        """The values of a parameter with which a group is there; numbers that no trial has go with the nearest."""
        parameter: Any = parameter_of(self._first[parent])
        column, numbers = known[parent], found[parent]
        if not isinstance(self._first[parent], CategoricalDistribution):
            others = [known[q].having(some) for q, some in found.items() if q != parent]
            free = np.logical_and.reduce([np.ones(len(there), dtype=bool), *others])
            absent = np.unique(column.values[column.code[free & column.there & ~there]])
            every = parameter.every()
            to = [np.abs(every[:, None] - some[None, :]).min(axis=1, initial=np.inf) for some in (numbers, absent)]
            numbers = every[to[0] <= to[1]]
        return tuple(parameter.value(number) for number in numbers.tolist())


class _Explanation(NamedTuple):
    """Where parents, by name, have these values."""

    values: dict[str, Array]
    there: NDArray[np.bool_]


def _candidates(there: NDArray[np.bool_], known: Mapping[str, _Column], size: int) -> Iterator[_Explanation]:
    """The values that parameters have where a group is there, of each few that exist wherever it does."""
    wider = [q for q, each in known.items() if (each.there | ~there).all()]
    for parents in itertools.combinations(wider, size):
        values = {q: known[q].values[np.unique(known[q].code[there])] for q in parents}
        yield _Explanation(values, np.logical_and.reduce([known[q].having(some) for q, some in values.items()]))


def _column(stored: Array) -> _Column:
    there = ~np.isnan(stored)
    values, code = np.unique(stored[there], return_inverse=True)
    codes = np.full(len(stored), -1, dtype=np.intp)
    codes[there] = code
    return _Column(there, codes, values)
