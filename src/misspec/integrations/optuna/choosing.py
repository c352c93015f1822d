"""What a sampler's policies know of a study, and the point that they choose for a trial."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from misspec.domains import Space
from misspec.errors import Array, AwaitingResults, HorizonReached, InvalidInput, StorageError, instance
from misspec.hyperparameters import Scaling
from misspec.integrations.optuna.trials import (
    AGAIN,
    Axes,
    History,
    Known,
    attributes_of,
    data,
    distributions_of,
    get,
    is_count,
    put,
)
from misspec.model import Model
from misspec.policies import Auto, Policy, Query, restore
from misspec.policies.auto.feasible import Feasible
from misspec.policies.auto.model import checked_samples, models_of
from misspec.policies.core.events import encoded
from misspec.search import distinct

LOG = logging.getLogger("misspec")
BELIEVED, LEARNT = "misspec:{}", "misspec:learnt"
FIXED = 512  # points among which the best is taken where some parameters are fixed
DIGITS = 6  # of what is shown to people
TRIED = 8  # values for a parameter outside the model, half of them by TPE: the first that is likely to work is taken


class Kept(NamedTuple):
    """Of the study and the space in use: the points of its trials, and an Auto that has learnt them."""

    storage: Any
    study: int
    axes: Axes
    mirror: Mirror | None


class Chosen(NamedTuple):
    """A point, the query that asked it as an event of a policy's state, and what was believed of it."""

    x: Array
    event: list[Any] | None
    believed: dict[str, Any]

    @classmethod
    def first(cls, axes: Axes, rng: np.random.Generator, fixed: Mapping[int, float]) -> Chosen:
        x = axes.space.draw(rng)[0]
        x[list(fixed)] = list(fixed.values())
        return cls(x, None, {"rule": "first"})


class Mirror:
    """An Auto that knows what the trials of a study say; what is new since the last look is all that it learns then."""

    def __init__(self, policy: Auto) -> None:
        self.policy = policy
        self._done: dict[int, float | None] = {}  # results that were told, by trial; None for a failed one
        self._pending: dict[int, Query] = {}
        self.news: dict[str, Any] | None = None  # samples that were renewed at the last choice
        self.conflicts: int | None = None  # points that contradict the model, when it was renewed

    def follows(self, history: History) -> bool:
        """Whether all that it knows still stands: a trial may have been deleted, or be another point than was asked."""
        trials = {each.number: each for each in history.trials}
        for number, y in self._done.items():
            if number not in trials or trials[number].y != y:
                return False
        for number, query in self._pending.items():
            if number not in trials or not np.array_equal(trials[number].x, query.x):
                return False
        return True

    def learn(self, history: History, learnt: dict[str, Any] | None) -> None:
        """What has finished and what has begun since; learnt: samples of the model that are stored in the study."""
        policy, self.news = self.policy, None
        new = [each for each in history.trials if each.number not in self._done]
        told = [each for each in new if each.y is not None and each.number not in self._pending]
        if told:
            policy._learn_from(*data(told), None)  # enqueued trials may lie outside
        for each in new:
            query = self._pending.get(each.number)
            if query is None and each.y is None:
                (query,) = policy.mark_pending(each.x[None, :])
                self._pending[each.number] = query
            if query is not None and (each.y is not None or each.failed):
                del self._pending[each.number]
                policy.drop(query) if each.y is None else policy.tell(query, each.y)
            if each.y is not None or each.failed:
                self._done[each.number] = each.y
        latest = policy.samples
        newer = learnt is not None and (latest is None or learnt["results"] > latest["results"])
        if learnt is not None and newer and learnt["results"] <= policy.t:
            with contextlib.suppress(InvalidInput):  # written by another program: learn again
                policy.adopt(learnt)
                self.conflicts = learnt.get("conflicts")

    def renew(self) -> None:
        """The model, if it is due."""
        before = None if self.policy.samples is None else self.policy.samples["results"]
        self.policy.refresh()
        latest = self.policy.samples
        if latest is not None and latest["results"] != before:
            self.conflicts = len(self.policy.conflicts())
            self.news = {**latest, "conflicts": self.conflicts}

    def choose(self, trial: FrozenTrial, history: History, fixed: Mapping[int, float], seed: int) -> Chosen:
        policy = self.policy
        policy._rng = np.random.default_rng([seed, trial.number])
        self.renew()
        x, query = asked_of(policy, fixed, history.unseen)
        assert query is not None  # Auto awaits nothing
        self._pending[trial.number] = query
        return Chosen(x, None, believed(policy, query, None, policy.noise_level, self.conflicts))


def success_of(study: Study, axes: Axes) -> Feasible | None:
    """Where trials with all of these parameters succeed; None while none of them has failed, or all."""
    trials = [each for each in study.get_trials(deepcopy=False) if each.state.is_finished()]
    if not axes.distributions or all(each.state != TrialState.FAIL for each in trials):
        return None
    known = [(axes.point(t.params), t.state != TrialState.FAIL) for t in trials if AGAIN not in t.system_attrs]
    points, succeeded = [x for x, _ in known if x is not None], [works for x, works in known if x is not None]
    if all(succeeded) or not any(succeeded):
        return None
    columns = [(each.start, each.stop) for each in axes.space.columns]
    return Feasible(axes.space.encode(points), np.array(succeeded), columns, np.ones(len(columns)))


def asked_of(policy: Policy, fixed: Mapping[int, float], unseen: int) -> tuple[Array, Query | None]:
    """The next query; None where the policy has none, with the point to try meanwhile.

    unseen: so many others are choosing at this moment, from the same trials; they take what comes before.
    """
    space: Any = policy.domain
    if fixed and policy.abilities.takes_actions:
        offer = space.decode(space.spread(FIXED, 0))
        offer[:, list(fixed)] = list(fixed.values())
        query = policy.ask(actions=distinct(offer).points)
        return query.x, query
    try:
        query = policy.ask(unseen + 1)[-1]
        return query.x, query
    except AwaitingResults:
        alive = np.asarray(policy.active)  # type: ignore[attr-defined]  # only the phased policy awaits
        points = space.members().points[alive] if alive.ndim == 1 else alive
        return np.array(points[int(policy._rng.integers(len(points)))]), None
    except HorizonReached:
        return np.array(policy.recommend().x), None


# -- policies of the theory, from the trials ---------------------------------------------------------------------------


def replayed(policy: Policy, history: History, scaling: Scaling) -> Policy:
    """A fresh policy after what the trials say. Queries of its own are told as such, others are data from elsewhere."""
    own = [each for each in history.trials if each.event is not None and policy.abilities.keeps_rounds]
    ours = {each.number for each in own}
    others = [each for each in history.trials if each.number not in ours]
    observed_by(policy, others, scaling)
    if own:
        state = policy.state()
        if policy.abilities.waits:
            own = whole_episodes(own, policy.planned)  # type: ignore[attr-defined]  # only the phased policy waits
        for id_, each in enumerate(own):
            assert each.event is not None
            state["events"].append(["ask", {**each.event[1], "id": id_}])
            if each.y is not None:
                state["events"].append(["tell", id_, float(scaling.to(each.y))])
            elif each.failed:
                state["events"].append(["drop", id_])
        try:
            policy = restore(state, kernel=policy.model.kernel)
        except (StorageError, InvalidInput) as error:  # attributes that were edited by hand
            LOG.warning("rounds of this study cannot be replayed, and count as data from elsewhere: %s", error)
            observed_by(policy, own, scaling)
    if policy.abilities.takes_actions:
        for each in others:
            if each.y is None and not each.failed:
                policy.mark_pending(each.x[None, :])
    return policy


def observed_by(policy: Policy, trials: Sequence[Known], scaling: Scaling) -> None:
    """Results as data from elsewhere, if the policy takes any."""
    told = [each for each in trials if each.y is not None]
    if told and policy.abilities.takes_data:
        X, y = data(told)
        policy._learn_from(X, scaling.to(y), None)


def whole_episodes(own: Sequence[Known], length: Callable[[int], int]) -> list[Known]:
    """The queries of a phased policy in its order, each slot once: two processes may have asked the same one."""
    slots: dict[tuple[int, int], list[Known]] = {}
    for each in own:
        details = each.event[1].get("details") if each.event is not None else None
        if not isinstance(details, dict):
            continue
        episode, slot = details.get("episode"), details.get("slot")
        if is_count(episode) and is_count(slot):
            slots.setdefault((episode, slot), []).append(each)
    found: list[Known] = []
    for episode in itertools.count(1):
        planned = length(episode)
        asked = itertools.takewhile(bool, (slots.get((episode, slot)) for slot in range(planned)))
        best = [min(some, key=lambda each: (each.y is None, each.failed, each.number)) for some in asked if some]
        found += best
        if not best or len(best) < planned or any(each.y is None for each in best):
            break
    return found


def event_of(query: Query) -> Any:
    """A query as it stands among the events of a policy's state."""
    return encoded(("ask", query))


def model_of_learnt(learnt: Mapping[str, Any], space: Space) -> tuple[Model, Scaling]:
    """Of the samples the one with the median noise, and the units that it is in."""
    models = sorted(models_of(dict(learnt), space), key=lambda model: model.noise)
    return models[len(models) // 2], Scaling(*learnt["scaling"])


def believed(
    policy: Policy, query: Query, scaling: Scaling | None, noise: float, conflicts: int | None
) -> dict[str, Any]:
    """For people: what was believed of a point when it was chosen, in the objective's units and sign."""
    rule = query.details.get("rule") or query.details.get("base")
    found: dict[str, Any] = {} if rule is None else {"rule" if isinstance(rule, str) else "base": rule}
    found |= {name: query.details[name] for name in ("epsilon", "episode") if name in query.details}
    if math.isfinite(query.mean):
        band = policy.band(query.x[None, :])
        numbers = np.array([query.mean, band.lower[0], band.upper[0], noise])
        if scaling is not None:
            numbers[:3] = scaling.back(numbers[:3])
        mean, *ends, sigma = (float(f"{number:.{DIGITS}g}") for number in numbers.tolist())
        found |= {"mean": mean, "band": sorted(ends), "noise": sigma}
        if conflicts is not None:
            found["conflicts"] = int(conflicts)
    return found


# -- the storage -------------------------------------------------------------------------------------------------------


def learnt_by(study: Study, axes: Axes) -> dict[str, Any] | None:
    """The samples of the model that are in the study, if they can be of its trials."""
    found = get(attributes_of(study), f"{LEARNT}:{axes.digest}")
    try:
        samples = checked_samples(found, axes.space)
    except InvalidInput:  # there are none, or something else wrote them
        return None
    sign = -1.0 if study.direction == StudyDirection.MINIMIZE else 1.0
    conflicts, most = samples.get("conflicts"), len(study.get_trials(deepcopy=False))
    right = samples["scaling"][0] == sign and samples["results"] <= most
    return samples | {"conflicts": conflicts if is_count(conflicts) else None} if right else None


def teach(study: Study, axes: Axes, samples: dict[str, Any]) -> None:
    """Store samples for others, unless they have newer ones."""
    there = learnt_by(study, axes)
    if there is None or there["results"] < samples["results"]:
        put(study, None, f"{LEARNT}:{axes.digest}", samples)


def policy_of(study: Study, space: Space | None = None) -> Auto:
    """An Auto that knows all completed and failed trials, for `summary()`, `recommend()`, `conflicts` and `ms.report`.

    space: where it is known; by default what all completed trials have in common, and nothing else is in the model.
    """
    if len(instance("study", study, Study).directions) != 1:
        raise InvalidInput(f"misspec optimises one objective, and this study has {len(study.directions)}")
    common = optuna.search_space.intersection_search_space(study.get_trials(deepcopy=False))
    distributions = distributions_of(space) if space is not None else common
    if not distributions:
        raise InvalidInput("this study has no completed trial yet, or its trials have no parameter in common")
    axes = Axes(distributions)
    policy = Auto(axes.space if space is None else space, minimize=study.direction == StudyDirection.MINIMIZE)
    complete = {t.number for t in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))}
    for each in History.of(study, axes).trials:
        if each.failed or each.number in complete:
            (query,) = policy.mark_pending(each.x[None, :])
            policy.drop(query) if each.y is None else policy.tell(query, each.y)
    policy.refresh()
    return policy
