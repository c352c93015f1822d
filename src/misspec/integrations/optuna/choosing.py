"""The policy that mirrors a study's trials, and the point that it chooses for the next one."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from misspec.domains import Space
from misspec.errors import Array, InvalidInput, instance
from misspec.integrations.optuna.trials import (
    AGAIN,
    Axes,
    History,
    data,
    distributions_of,
    is_count,
)
from misspec.policies import Auto, Policy, Query
from misspec.policies.auto.feasible import Feasible
from misspec.policies.auto.model import checked_samples, due
from misspec.search import distinct

BELIEVED, LEARNT = "misspec:{}", "misspec:learnt"
FIXED = 512  # points among which the best is taken where some parameters are fixed
DIGITS = 6  # of what is shown to people
LONGEST = 60_000  # characters of samples that are stored: MySQL has room for 65,535 bytes
TRIED = 8  # values for a parameter outside the model, half of them by TPE: the first that is likely to work is taken


class Kept(NamedTuple):
    """Cache of a sampler for one study and space: the points of its trials, and a policy that learnt them."""

    storage: Any
    study: int
    axes: Axes
    mirror: Mirror | None


class Mirror:
    """A policy that knows the trials of a study; it learns what is new since the last look."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._done: dict[int, float | None] = {}  # results that were told, by trial; None for a failed one
        self._pending: dict[int, Query] = {}
        self._looked = 0  # results when conflicts were last looked for
        self.news: dict[str, Any] | None = None  # samples that were renewed at the last choice
        self.conflicts: int | None = None  # points that contradict the model, when they were last looked for

    def follows(self, history: History) -> bool:
        """Test whether all that it knows still stands: a trial may be gone, or be another point than was asked."""
        trials = {each.number: each for each in history.trials}
        for number, y in self._done.items():
            if number not in trials or trials[number].y != y:
                return False
        for number, query in self._pending.items():
            if number not in trials or not np.array_equal(trials[number].x, query.x):
                return False
        return True

    def learn(self, history: History, learnt: dict[str, Any] | None) -> None:
        """Learn what has finished and what has begun; learnt: samples of Auto's model that are stored in the study."""
        policy, self.news = self.policy, None
        new = [each for each in history.trials if each.number not in self._done]
        told = [each for each in new if each.y is not None and each.number not in self._pending]
        if told:
            policy._learn_from(*data(told))  # `observe` without its warning: enqueued trials may lie outside
        for each in new:
            query = self._pending.get(each.number)
            if query is None and each.y is None:
                (query,) = policy.mark_pending(each.x[None, :])
                self._pending[each.number] = query
            if query is not None and (each.y is not None or each.failed):
                del self._pending[each.number]
                policy.drop(query) if each.y is None else policy.tell(query, each.y, noise=each.noise)
            if each.y is not None or each.failed:
                self._done[each.number] = each.y
        if isinstance(policy, Auto) and learnt is not None:
            latest = policy.samples
            if (latest is None or learnt["results"] > latest["results"]) and learnt["results"] <= policy.t:
                with contextlib.suppress(InvalidInput):  # written by another program: learn again
                    policy.adopt(learnt)
                    self._looked, self.conflicts = learnt["results"], learnt.get("conflicts")

    def renew(self) -> None:
        """Renew Auto's model, and look for conflicts, if they are due: when the results have grown by a seventh."""
        policy = self.policy
        if not due(policy.t, self._looked) and not getattr(policy, "surprised", False):
            return
        if isinstance(policy, Auto):
            policy.refresh()
        self._looked, self.conflicts = policy.t, len(policy.conflicts())
        if isinstance(policy, Auto) and policy.samples is not None:
            self.news = {**policy.samples, "conflicts": self.conflicts}

    def choose(
        self, trial: FrozenTrial, history: History, fixed: Mapping[int, float], seed: int
    ) -> tuple[Array, dict[str, Any]]:
        """A point for a trial, and what is believed of it; history.unseen others choose from the same trials at this
        moment, and take what comes before."""
        policy = self.policy
        policy._rng = np.random.default_rng([seed, trial.number])
        self.renew()
        if fixed:
            space: Any = policy.domain
            offer = space.decode(space.spread(FIXED, 0))
            offer[:, list(fixed)] = list(fixed.values())
            query = policy.ask(actions=distinct(offer).points)
        else:
            query = policy.ask(1 if policy.abilities.keeps_rounds else history.unseen + 1)[-1]
        self._pending[trial.number] = query
        return query.x, self._believed(query)

    def _believed(self, query: Query) -> dict[str, Any]:
        """For people: what is believed of a point that was chosen."""
        rule = query.details.get("rule") or query.details.get("base")
        facts: dict[str, Any] = {} if rule is None else {"rule" if isinstance(rule, str) else "base": rule}
        if "epsilon" in query.details:
            facts["epsilon"] = query.details["epsilon"]
        if math.isfinite(query.mean):
            band = self.policy.band(query.x[None, :])
            noise = getattr(self.policy, "noise_level", self.policy.model.noise)
            numbers = (float(f"{number:.{DIGITS}g}") for number in (query.mean, band.lower[0], band.upper[0], noise))
            mean, lower, upper, noise = numbers
            facts |= {"mean": mean, "band": [lower, upper], "noise": noise}
            if self.conflicts is not None:
                facts["conflicts"] = int(self.conflicts)
        return facts


def success_of(study: Study, axes: Axes) -> Feasible | None:
    """Model of where trials with all of these parameters succeed; None while none of them has failed, or all."""
    trials = [each for each in study._get_trials(deepcopy=False, use_cache=True) if each.state.is_finished()]
    if not axes.distributions or all(each.state != TrialState.FAIL for each in trials):
        return None
    known = [(axes.point(t.params), t.state != TrialState.FAIL) for t in trials if AGAIN not in t.system_attrs]
    points, succeeded = [x for x, _ in known if x is not None], [works for x, works in known if x is not None]
    if all(succeeded) or not any(succeeded):
        return None
    columns = [(each.start, each.stop) for each in axes.space.columns]
    return Feasible(axes.space.encode(points), np.array(succeeded), columns, np.ones(len(columns)))


# -- the storage -------------------------------------------------------------------------------------------------------


def learnt_by(study: Study, axes: Axes, most: int) -> dict[str, Any] | None:
    """The samples of the model that are in the study, if they can be of at most so many trials."""
    found = study._storage.get_study_system_attrs(study._study_id).get(f"{LEARNT}:{axes.digest}")
    try:
        samples = checked_samples(found, axes.space)
    except InvalidInput:  # there are none, or something else wrote them
        return None
    sign = -1.0 if study.direction == StudyDirection.MINIMIZE else 1.0
    conflicts = samples.get("conflicts")
    right = samples["scaling"][0] == sign and samples["results"] <= most
    return samples | {"conflicts": conflicts if is_count(conflicts) else None} if right else None


def teach(study: Study, axes: Axes, most: int, samples: dict[str, Any]) -> None:
    """Store samples for others, unless they have newer ones."""
    there = learnt_by(study, axes, most)
    if (there is None or there["results"] < samples["results"]) and len(json.dumps(samples)) <= LONGEST:
        study._storage.set_study_system_attr(study._study_id, f"{LEARNT}:{axes.digest}", samples)


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
    policy = Auto(axes.space if space is None else space, minimize=study.direction == StudyDirection.MINIMIZE)
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    complete = {t.number for t in done}
    policy.not_modelled = tuple(dict.fromkeys(name for t in done for name in t.params if name not in distributions))
    for each in History.of(study, axes).trials:
        if each.failed or each.number in complete:
            (query,) = policy.mark_pending(each.x[None, :])
            policy.drop(query) if each.y is None else policy.tell(query, each.y, noise=each.noise)
    policy.refresh()
    return policy
