"""A sampler for Optuna: policies of misspec as `study.optimize` uses them.

Everything that it knows is in the study's storage, so that any number of processes and machines can share a study:

    a trial's system attribute   misspec:asked   the query that it is, before its parameters are suggested one by one
    its user attributes          misspec:mean …  what was believed when it was chosen, for people and dashboards
    the study's system attribute misspec:learnt  the samples of the model, for all that come later (`Auto.samples`)
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from misspec.domains import Space
from misspec.errors import (
    Array,
    AwaitingResults,
    HorizonReached,
    InvalidInput,
    StorageError,
    instance,
    one_of,
    seeded,
    shown,
    whole,
)
from misspec.integrations.optuna_trials import (
    ASKED,
    Axes,
    History,
    Known,
    attributes_of,
    data,
    distributions_of,
    get,
    parameter_of,
    put,
    space_of,
)
from misspec.learning import Scaling
from misspec.model import Model, a_model
from misspec.parameters import Float
from misspec.policies import ECGPUCB, GPUCB, Auto, PhasedUncertaintySampling, Policy, Query, RegretBalancing, restore
from misspec.policies.answers import NUMBERS
from misspec.policies.auto import FIRST, GROWTH, models_of
from misspec.threads import one_thread

__all__ = ["MisspecSampler", "distributions_of", "policy_of", "space_of"]

LOG = logging.getLogger("misspec")
BELIEVED, LEARNT = "misspec:{}", "misspec:learnt"
POLICIES = ("auto", "balancing", "ec", "phased", "gp_ucb")
HORIZON = 1000  # of balancing, where n_trials is not known
WIDTH = 2.0  # of policies with a model that is learnt, whose widths guarantee nothing anyway
EPSILON = 0.1  # of EC-GP-UCB where it is not given: times the norm bound, or the spread of results
FIXED = 512  # points among which the best is taken where some parameters are fixed
DIGITS = 6  # of what is shown to people


class MisspecSampler(BaseSampler):
    """Policies of misspec for Optuna's studies, one objective, maximised or minimised.

    policy     "auto", which needs no constants; "gp_ucb", "ec" (EC-GP-UCB), "phased" or "balancing"
    model      of the policies but "auto": a Model whose kernel sees `space_of(distributions)`, in the sign in which the
               objective is maximised. Without one it is learnt from the trials, and nothing is guaranteed
    n_trials   the horizon, of "phased" and "balancing"
    seed       of all chance; two samplers of one seed that see the same trials suggest the same
    options    of the policy, such as epsilon= for "ec" or noise= for "auto"

    Parameters outside the intersection of all trials' spaces are sampled one by one, by Optuna's TPESampler. Running
    trials pend, failed ones are dropped (a point that fails twice is left alone), pruned ones count with their last
    value, but as no better than the median. Constraints are refused.
    """

    def __init__(
        self,
        policy: str = "auto",
        model: Model | None = None,
        n_trials: int | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        self._policy = one_of("policy", policy, POLICIES)
        if model is not None:
            a_model(model)
        if policy == "auto" and model is not None:
            raise InvalidInput(
                'policy="auto" learns its model and takes none; leave model= out, or take another policy'
            )
        self._model = model
        self._horizon = None if n_trials is None else whole("n_trials", n_trials, at_least=1)
        self._seed = _entropy() if seed is None else seeded(seed)
        refused = sorted({"constraints_func", "minimize", "horizon"} & set(options))
        if refused:
            said = {"constraints_func": "constraints are not supported: give such trials a bad value, or let them fail"}
            raise InvalidInput(said.get(refused[0], f"{refused[0]} is the study's; leave it out"))
        self._options = dict(options)
        self._lock = threading.RLock()
        self._kept: Kept | None = None  # what is in the storage too, read and learnt before
        self._check()

    def _check(self) -> None:
        """Whether the options are the policy's: better said now than in the first trial."""
        space = Space({"x": Float(0.0, 1.0)})
        with contextlib.suppress(ImportError):
            from sklearn.gaussian_process.kernels import RBF

            self._made(space, Model(RBF(1.0), 1.0, 1.0), None, minimize=False)

    # -- Optuna's protocol -----------------------------------------------------------------------------------

    def reseed_rng(self) -> None:
        self._seed = _entropy()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        """What all completed trials have in common, except what has one value only or cannot be a parameter here."""
        common = optuna.search_space.intersection_search_space(study.get_trials(deepcopy=False))
        return {name: each for name, each in common.items() if not each.single() and parameter_of(each) is not None}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        self._raise_error_if_multi_objective(study)
        # whoever samples it: chance is a function of the seed, the trial and the parameter
        seeds = np.random.SeedSequence([self._seed, trial.number, zlib.crc32(param_name.encode())])
        sampler = TPESampler(seed=int(seeds.generate_state(1)[0]))
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        self._raise_error_if_multi_objective(study)
        if not search_space:
            return {}
        with self._lock, one_thread():
            kept = self._read(study, search_space)
            axes = kept.axes
            history = History.of(study, axes, trial.number, self._policy)
            fixed = axes.fixed(trial.system_attrs.get("fixed_params", {}))
            if self._policy == "auto":
                chosen = self._by_auto(study, kept, history, trial, fixed)
            else:
                chosen = self._by_theory(study, axes, history, trial, fixed)
            params = axes.params(chosen.x)
            asked = {"params": axes.stored(chosen.x), "query": chosen.event}
            put(study, trial, ASKED, {**asked, "policy": self._policy, "space": axes.digest})
            for what, found in chosen.believed.items():
                study._storage.set_trial_user_attr(trial._trial_id, BELIEVED.format(what), found)
            return params

    # -- choosing --------------------------------------------------------------------------------------------

    def _read(self, study: Study, search_space: Mapping[str, BaseDistribution]) -> Kept:
        """What was kept, where it is of the same study and space: points of finished trials do not change."""
        axes, kept = Axes(search_space), self._kept
        same = kept is not None and kept.storage is study._storage and kept.study == study._study_id
        if kept is None or not same or kept.axes.digest != axes.digest:
            kept = self._kept = Kept(study._storage, study._study_id, axes, None)
        return kept

    def _by_auto(
        self, study: Study, kept: Kept, history: History, trial: FrozenTrial, fixed: Mapping[int, float]
    ) -> Chosen:
        """By an Auto that has learnt the trials before, as long as these say the same; else by a new one."""
        mirror, axes = kept.mirror, kept.axes
        self._kept = kept._replace(mirror=None)  # whatever fails from here on, it is made anew
        if mirror is None or not mirror.follows(history):
            minimize = study.direction == StudyDirection.MINIMIZE
            mirror = Mirror(Auto(axes.space, minimize=minimize, seed=self._seed, **self._options))
        mirror.learn(history, _learnt(study, axes))
        chosen = mirror.choose(trial, history, fixed, self._seed)
        if mirror.news is not None:
            _teach(study, axes, mirror.news)
        if not history.unseen:  # one that has asked what others ask is of no further use
            self._kept = kept._replace(mirror=mirror)
        return chosen

    def _by_theory(
        self, study: Study, axes: Axes, history: History, trial: FrozenTrial, fixed: Mapping[int, float]
    ) -> Chosen:
        """By a policy with a model: the given one, or one that is learnt; made anew from the trials."""
        rng = np.random.default_rng([self._seed, trial.number])
        minimize = study.direction == StudyDirection.MINIMIZE
        sign = -1.0 if minimize else 1.0
        model, scaling = self._model, Scaling(sign)
        learnt: dict[str, Any] | None = None
        if model is None:
            learnt = self._samples(study, axes, history, minimize)
            if learnt is None:
                return Chosen.first(axes, rng, fixed)
            model, scaling = _model_of(learnt, axes.space)
        policy = self._made(axes.space, model, learnt, minimize=minimize)
        replayed = _replayed(policy, history, scaling)
        replayed._rng = rng
        x, query = _asked(replayed, fixed, 0 if replayed.keeps_rounds else history.unseen)
        if query is None:  # an episode whose results others are waiting for, or the end of the horizon
            return Chosen(x, None, {"rule": "while others are awaited"})
        conflicts = self._conflicts(study, axes, replayed)
        return Chosen(x, _event(query), _believed(replayed, query, scaling, model.noise * scaling.width, conflicts))

    def _samples(self, study: Study, axes: Axes, history: History, minimize: bool) -> dict[str, Any] | None:
        """The model that is learnt for the policies of the theory; the phased one keeps its first."""
        learnt = _learnt(study, axes)
        if learnt is not None and self._policy == "phased":
            return learnt
        mirror = Mirror(Auto(axes.space, minimize=minimize, seed=self._seed))
        mirror.learn(history, learnt)
        mirror.renew()
        if mirror.news is not None:
            _teach(study, axes, mirror.news)
        return mirror.policy.samples

    def _made(self, space: Space, model: Model, learnt: Any, *, minimize: bool) -> Policy:
        """A fresh policy."""
        options: dict[str, Any] = {"seed": self._seed, **self._options}
        if self._policy != "auto" and (model.fitted or learnt is not None):
            options.setdefault("width", WIDTH)
        try:
            if self._policy == "auto":
                return Auto(space, minimize=minimize, **options)
            if self._policy == "gp_ucb":
                return GPUCB(space, model, **options)
            if self._policy == "ec":
                reach = 1.0 if learnt is not None else model.norm_bound
                return ECGPUCB(space, model, **{"epsilon": EPSILON * reach, **options})
            if self._policy == "phased":
                return PhasedUncertaintySampling(space, model, horizon=self._horizon, **options)
            return RegretBalancing(space, model, horizon=self._horizon or HORIZON, **options)
        except TypeError as error:
            raise InvalidInput(f"the policy {shown(self._policy)} does not take these options: {error}") from None

    def _conflicts(self, study: Study, axes: Axes, policy: Policy) -> int:
        """How many points contradict the model; looked for when results have grown by a seventh."""
        found = get(attributes_of(study), f"{LEARNT}:conflicts:{axes.digest}") or {"results": 0, "count": 0}
        if policy.t < max(FIRST, (1.0 + GROWTH) * int(found["results"])):
            return int(found["count"])
        found = {"results": policy.t, "count": len(policy.conflicts)}
        put(study, None, f"{LEARNT}:conflicts:{axes.digest}", found)
        return int(found["count"])

    # -- copies ----------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_kept")}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept, _lock=threading.RLock(), _kept=None)


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
        """What has finished and what has begun since; learnt: samples of the model that somebody has stored."""
        policy, self.news = self.policy, None
        new = [each for each in history.trials if each.number not in self._done]
        told = [each for each in new if each.y is not None and each.number not in self._pending]
        if told:
            policy._learn_from(*data(told), None)  # trials may lie outside: somebody enqueued them
        for each in new:
            query = self._pending.get(each.number)
            if query is None and each.y is None:
                (query,) = policy.expect(each.x[None, :])
                self._pending[each.number] = query
            if query is not None and (each.y is not None or each.failed):
                del self._pending[each.number]
                policy.drop(query) if each.y is None else policy.tell(query, each.y)
            if each.y is not None or each.failed:
                self._done[each.number] = each.y
        latest = policy.samples
        newer = learnt is not None and (latest is None or learnt["results"] > latest["results"])
        if learnt is not None and newer and learnt["results"] <= policy.t:
            with contextlib.suppress(InvalidInput):  # written by something else: it is learnt anew
                policy.adopt(learnt)
                self.conflicts = learnt.get("conflicts")

    def renew(self) -> None:
        """The model, if it is due."""
        before = None if self.policy.samples is None else self.policy.samples["results"]
        self.policy.renew()
        latest = self.policy.samples
        if latest is not None and latest["results"] != before:
            self.conflicts = len(self.policy.conflicts)
            self.news = {**latest, "conflicts": self.conflicts}

    def choose(self, trial: FrozenTrial, history: History, fixed: Mapping[int, float], seed: int) -> Chosen:
        policy = self.policy
        policy._rng = np.random.default_rng([seed, trial.number])
        self.renew()
        x, query = _asked(policy, fixed, history.unseen)
        assert query is not None  # Auto awaits nothing
        self._pending[trial.number] = query
        return Chosen(x, None, _believed(policy, query, None, policy.noise_level, self.conflicts))


def _asked(policy: Policy, fixed: Mapping[int, float], unseen: int) -> tuple[Array, Query | None]:
    """The next query; None where the policy has none, with the point to try meanwhile.

    unseen: so many others are choosing at this moment, from the same trials; they take what comes before.
    """
    space: Any = policy.domain
    if fixed and policy.takes_actions:
        offer = space.decode(space.spread(FIXED, 0))
        offer[:, list(fixed)] = list(fixed.values())
        query = policy.ask(actions=np.unique(offer, axis=0))
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


def _replayed(policy: Policy, history: History, scaling: Scaling) -> Policy:
    """A fresh policy after what the trials say. Queries of its own are told as such, others are data from elsewhere."""
    own = [each for each in history.trials if each.event is not None and policy.keeps_rounds]
    ours = {each.number for each in own}
    others = [each for each in history.trials if each.number not in ours]
    _observe(policy, others, scaling)
    if own:
        state = policy.state()
        if policy.waits:
            own = _episodes(own, policy.planned)  # type: ignore[attr-defined]  # only the phased policy waits
        for id_, each in enumerate(own):
            assert each.event is not None
            state["events"].append(["ask", {**each.event[1], "id": id_}])
            if each.y is not None:
                state["events"].append(["tell", id_, float(scaling.to(each.y))])
            elif each.failed:
                state["events"].append(["drop", id_])
        try:
            policy = restore(state, kernel=policy.model.kernel)
        except (StorageError, InvalidInput) as error:  # attributes that somebody has edited
            LOG.warning("rounds of this study cannot be replayed, and count as data from elsewhere: %s", error)
            _observe(policy, own, scaling)
    if policy.takes_actions:
        for each in others:
            if each.y is None and not each.failed:
                policy.expect(each.x[None, :])
    return policy


def _observe(policy: Policy, trials: Sequence[Known], scaling: Scaling) -> None:
    """Results as data from elsewhere, if the policy takes any."""
    told = [each for each in trials if each.y is not None]
    if told and policy.takes_data:
        X, y = data(told)
        policy._learn_from(X, scaling.to(y), None)


def _episodes(own: Sequence[Known], length: Callable[[int], int]) -> list[Known]:
    """The queries of a phased policy in its order, each slot once: two processes may have asked the same one."""
    slots: dict[tuple[int, int], list[Known]] = {}
    for each in own:
        details = dict((each.event or ["", {}])[1].get("details") or {})
        if {"episode", "slot"} <= set(details):
            slots.setdefault((int(details["episode"]), int(details["slot"])), []).append(each)
    found: list[Known] = []
    episode, slot, complete = 1, 0, True
    while (episode, slot) in slots:
        some = slots[episode, slot]
        best = min(some, key=lambda each: (each.y is None, each.failed, each.number))
        found.append(best)
        complete &= best.y is not None
        slot += 1
        if slot == length(episode):
            if not complete:
                break
            episode, slot = episode + 1, 0
    return found


def _event(query: Query) -> list[Any]:
    """A query as it stands among the events of a policy's state."""
    numbers = {name: getattr(query, name) for name in NUMBERS}
    known = {name: value for name, value in numbers.items() if math.isfinite(value)}
    return ["ask", {"x": query.x.tolist(), "details": dict(query.details), **known}]


def _model_of(learnt: Mapping[str, Any], space: Space) -> tuple[Model, Scaling]:
    """Of the samples the one with the median noise, and the units that it is in."""
    models = sorted(models_of(dict(learnt), space), key=lambda model: model.noise)
    return models[len(models) // 2], Scaling(*learnt["scaling"])


def _believed(
    policy: Policy, query: Query, scaling: Scaling | None, noise: float, conflicts: int | None
) -> dict[str, Any]:
    """For people: what was believed of a point when it was chosen, in the objective's units and sign."""
    story = query.details.get("rule") or query.details.get("base")
    found: dict[str, Any] = {} if story is None else {"rule" if isinstance(story, str) else "base": story}
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


def _learnt(study: Study, axes: Axes) -> dict[str, Any] | None:
    """The samples of the model that are in the study, if they are."""
    found = get(attributes_of(study), f"{LEARNT}:{axes.digest}")
    return found if isinstance(found, dict) and isinstance(found.get("results"), int) else None


def _teach(study: Study, axes: Axes, samples: dict[str, Any]) -> None:
    """Store samples for others, unless they have newer ones."""
    there = _learnt(study, axes)
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
            (query,) = policy.expect(each.x[None, :])
            policy.drop(query) if each.y is None else policy.tell(query, each.y)
    return policy


def _entropy() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])
