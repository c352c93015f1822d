"""A sampler for Optuna: policies of misspec as `study.optimize` uses them.

Everything that it knows is in the study's storage, so that any number of processes and machines can share a study:

    a trial's system attribute   misspec:asked   its point, before its parameters are suggested one by one
    its user attributes          misspec:mean …  what was believed when it was chosen, for people and dashboards
    the study's system attribute misspec:learnt  the samples of Auto's model, for all that come later (`Auto.samples`)
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.samplers._base import _process_constraints_after_trial
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from misspec.domains import Float, Space
from misspec.errors import MOST, Array, AwaitingResults, HorizonReached, InvalidInput, callback, instance, seeded, shown
from misspec.integrations.optuna.shapes import Shape, Shapes, distributions_of, parameter_of
from misspec.integrations.optuna.trials import AGAIN, ASKED, Axes, History, Relative
from misspec.policies import Auto, Policy, Query
from misspec.policies.auto.feasible import LIKELY, Feasible
from misspec.policies.auto.model import checked_samples, due
from misspec.search import distinct
from misspec.threads import lock_after_fork, one_thread, tell_of_forks

BELIEVED, LEARNT = "misspec:{}", "misspec:learnt"
FIXED = 512  # points among which the best is taken where some parameters are fixed
DIGITS = 6  # of what is shown to people
LONGEST = 60_000  # characters of samples that are stored: MySQL has room for 65,535 bytes
TRIED = 8  # values for a parameter outside the model, half of them by TPE: the first that is likely to work is taken


class MisspecSampler(BaseSampler):
    """A policy of misspec for Optuna's studies, one objective, maximised or minimised.

    policy     "auto", which needs no constants, or a function that makes a policy on a Space, such as
               lambda space: ms.ECGPUCB(space, model, epsilon=0.1); the space is what completed trials show, and the
               policy's `minimize` must be the study's direction
    space      the space of the trials, where it is known before there are any: with rules, which Optuna does not have,
               conditions and mixtures
    seed       of all chance: two samplers of one seed that see the same trials suggest the same; None: any
    options    of ms.Auto, such as noise=

    The policy learns finished trials as its own queries, if this sampler asked them, and otherwise by `observe`;
    running trials are pending. Failed ones teach Auto where trials fail, pruned ones count with their last value, but
    as no better than the median. Parameters that only some trials have are read as conditional ones (`shapes.py`); new
    ones, and those whose distribution changes, are sampled one by one by Optuna's TPESampler. Policies that take no
    data from elsewhere are refused.

    Constraints of trials, `trial.set_constraint(key, value)` or constraints_func= as Optuna's samplers take it (values
    of 0 and below keep them), are limits of Auto: trials are likely to keep them.
    """

    def __init__(
        self,
        policy: str | Callable[[Space], Policy] = "auto",
        *,
        seed: int | None = 0,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
        space: Space | None = None,
        **options: Any,
    ) -> None:
        if not callable(policy) and not (isinstance(policy, str) and policy == "auto"):
            raise InvalidInput(
                'policy must be "auto" or a function that makes a policy on a Space, such as '
                f"lambda space: ms.GPUCB(space, model), got {shown(policy)}"
            )
        if "where" in options:
            raise InvalidInput(
                "Optuna has no rules: hand in a space that has them, MisspecSampler(space=ms.Space(…, where=…)), or "
                "raise optuna.TrialPruned where one is broken"
            )
        for name in options:
            if name in ("minimize", "horizon"):
                raise InvalidInput(f"{name} is the study's; leave it out")
            if name == "limits":
                raise InvalidInput("limits are the study's: trial.set_constraint(key, value), or constraints_func=")
            if callable(policy):
                raise InvalidInput(f"{name} is an option of the policy: set it in the function policy=")
        self._policy, self._options = policy, options
        self._constraints_func = callback("constraints_func", constraints_func)
        self.space = None if space is None else instance("space", space, Space)
        self._seed = secrets.randbits(32) if seed is None else seeded(seed)
        self._lock = threading.RLock()
        self._mirror: Mirror | None = None  # what is in the storage too, read and learnt before
        self._shapes: tuple[Any, Shapes] | None = None  # of the study that was asked for last
        self._axes: tuple[Shape, Axes] | None = None  # of the last shape
        self.ended = False  # whether nothing is left to try
        tell_of_forks(self)
        if not callable(policy):  # better said now than in the first trial
            self._made(Space({"x": Float(0.0, 1.0)}) if space is None else space, minimize=False)

    def reseed_rng(self) -> None:
        self._seed = secrets.randbits(32)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:  # noqa: ARG002
        """Store what constraints_func says of a trial, where Optuna's own samplers do."""
        if self._constraints_func is not None:
            _process_constraints_after_trial(self._constraints_func, study, trial, state)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        """The parameters that completed trials have, and the conditions under which they do, except those of one value
        only and those that no Space can have."""
        with self._lock:
            axes = self._read(study)
            return {} if axes is None else Relative(axes)

    def _read(self, study: Study) -> Axes | None:
        if self.space is not None:
            shape = Shape(distributions_of(self.space), {}, {})
        else:
            of = study._storage, study._study_id
            if self._shapes is None or self._shapes[0] != of:
                self._shapes = of, Shapes()
            shape = self._shapes[1].of(study._get_trials(deepcopy=False, use_cache=True))
        if not shape.distributions:
            return None
        if self._axes is None or self._axes[0] != shape:
            self._axes = shape, Axes.of_shape(shape) if self.space is None else Axes(shape.distributions, self.space)
        return self._axes[1]

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        self._raise_error_if_multi_objective(study)
        # chance is a function of the seed, the trial and the parameter, whichever process samples it
        seeds = np.random.SeedSequence([self._seed, trial.number, zlib.crc32(param_name.encode())])
        given = {**trial.distributions, param_name: param_distribution}
        known = {name: each for name, each in given.items() if parameter_of(each) is not None}
        axes = Axes(known) if known else None
        success = None if axes is None else _success_of(study, axes)
        drawn = []
        for i, seed in enumerate(seeds.generate_state(1 if success is None else TRIED).tolist()):
            sampler = (TPESampler if i < TRIED // 2 else RandomSampler)(seed=seed)
            drawn.append(sampler.sample_independent(study, trial, param_name, param_distribution))
        if success is None or axes is None:
            return drawn[0]
        points = [axes.point({**trial.params, param_name: each}) for each in drawn]
        rates = [1.0 if x is None else float(success.rate(axes.space.encode(x[None, :]))[0]) for x in points]
        return next((each for each, rate in zip(drawn, rates, strict=True) if rate >= LIKELY), drawn[np.argmax(rates)])

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        self._raise_error_if_multi_objective(study)
        if not search_space:
            return {}
        with self._lock, one_thread():
            axes = self._axes_of(search_space)
            if axes is None:
                return {}
            x, believed = self._chosen(study, axes, trial)
            study._storage.set_trial_system_attr(trial._trial_id, ASKED, axes.stored(x))
            for what, value in believed.items():
                study._storage.set_trial_user_attr(trial._trial_id, BELIEVED.format(what), value)
            return axes.params(x)

    def _axes_of(self, search_space: dict[str, BaseDistribution]) -> Axes | None:
        """The axes of a search space, as it is or with parameters taken out, as PartialFixedSampler does."""
        if not isinstance(search_space, Relative):
            return Axes(search_space)
        if len(search_space) == len(search_space.axes.distributions):
            return search_space.axes
        if self.space is not None:
            raise InvalidInput("parameters of a given space= cannot be fixed beside it: give them one value in it")
        parameters = search_space.axes.space.parameters
        always = {name: each for name, each in search_space.items() if not parameters[name].when}
        return Axes(always) if always else None

    def policy_for(self, study: Study) -> Policy | None:
        """The policy, with all trials of a study learnt, to be read; None while these have no parameters in common."""
        study._thread_local.cached_all_trials = None  # read again: a trial has finished since
        with self._lock, one_thread():
            axes = self._read(study)
            if axes is None:
                return None
            mirror, _ = self._current(study, axes, None)
            if isinstance(mirror.policy, Auto) and mirror.policy.samples is None:  # as the next choice would
                mirror.policy.refresh()
            self._mirror = mirror
            return mirror.policy

    def _current(self, study: Study, axes: Axes, number: int | None) -> tuple[Mirror, History]:
        """The mirror that has learnt the trials before, as long as these say the same; else a new one. The caller
        keeps it: if anything fails, it is rebuilt."""
        mirror, self._mirror = self._mirror, None
        of = study._storage, study._study_id, axes.digest
        if mirror is not None and mirror.of == of:
            axes = mirror.axes  # which has read most trials
        history = History(study, axes, number)
        if mirror is None or mirror.of != of or not mirror.follows(history):
            minimize = study.direction == StudyDirection.MINIMIZE
            mirror = Mirror(self._made(axes.space, minimize=minimize, limits=history.limits), of, axes)
        mirror.learn(history, _learnt_by(study, axes, len(history.trials)))
        return mirror, history

    def _chosen(self, study: Study, axes: Axes, trial: FrozenTrial) -> tuple[Array, dict[str, Any]]:
        """Choose by the policy that has learnt the trials before."""
        mirror, history = self._current(study, axes, trial.number)
        axes = mirror.axes
        chosen = mirror.choose(trial, history, axes.fixed(trial.system_attrs.get("fixed_params", {})), self._seed)
        self.ended = mirror.ended
        if mirror.ended and self._options.get("repeats") is False:
            with contextlib.suppress(RuntimeError):  # outside of study.optimize
                study.stop()
        if mirror.news is not None:
            _teach(study, axes, len(history.trials), mirror.news)
        if not history.unseen or mirror.policy.abilities.keeps_rounds:
            self._mirror = mirror  # one that has asked what others ask is of no further use
        return chosen

    def _made(self, space: Space, *, minimize: bool, limits: Sequence[str] = ()) -> Policy:
        """Make a policy that has learnt nothing yet."""
        if not callable(self._policy):
            try:
                return Auto(space, minimize=minimize, seed=self._seed, limits=limits or None, **self._options)
            except TypeError as error:
                raise InvalidInput(f"ms.Auto does not take these options: {error}") from None
        policy: Policy = instance("what policy= makes", self._policy(space), Policy)
        name, abilities = type(policy).__name__, policy.abilities
        if getattr(policy.domain, "parameters", None) != space.parameters:
            raise InvalidInput(f"policy= must make a policy on the given space, got one on {shown(policy.domain)}")
        if not (abilities.takes_data and abilities.takes_actions):
            raise InvalidInput(
                f"{name} learns from its own queries only, and a study has other trials too; take another policy, or "
                "ms.optimize without Optuna"
            )
        missing = sorted(set(limits) - set(map(str, policy.limits)))
        if missing:  # ignoring them would look like respecting them
            raise InvalidInput(
                f'trials have constraints, and {name} has no such limits: take policy="auto", or make an Auto with '
                f"limits={missing}"
            )
        if policy.minimize != minimize:
            directions = ("minimizes", "maximizes") if minimize else ("maximizes", "minimizes")
            raise InvalidInput(
                f"the study {directions[0]} and {name} {directions[1]}: make it with minimize={minimize}, or create "
                "the study with the other direction"
            )
        return policy

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lock": None, "_mirror": None, "_shapes": None, "_axes": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())
        tell_of_forks(self)

    def forked(self) -> None:
        """After a fork, read again from the storage what another thread was about to keep."""
        lock, self._lock = self._lock, lock_after_fork(self._lock)
        if self._lock is not lock:
            self._mirror = None


class Mirror:
    """A policy that knows the trials of a study; it learns what is new since the last look.

    of: the storage, the study and the digest of the search space, whose points axes has read
    """

    def __init__(self, policy: Policy, of: tuple[Any, int, str], axes: Axes) -> None:
        self.policy, self.of, self.axes = policy, of, axes
        self._done: dict[int, float | None] = {}  # results that were told, by trial; None for a failed one
        self._pending: dict[int, Query] = {}
        self._looked = 0  # results when conflicts were last looked for
        self._conflicts: int | None = None  # points that contradicted the model then
        self.news: dict[str, Any] | None = None  # samples that were renewed at the last choice
        self.ended = False  # whether nothing is left to try

    def follows(self, history: History) -> bool:
        """Test whether all that it knows still stands: a trial may be gone, or be another point than was asked."""
        trials = {each.number: each for each in history.trials}
        if not trials.keys() >= self._done.keys() | self._pending.keys():
            return False
        told = all(trials[number].y == y for number, y in self._done.items())
        told = told and {*history.limits} <= {*map(str, self.policy.limits)}
        return told and all(np.array_equal(trials[number].x, query.x) for number, query in self._pending.items())

    def learn(self, history: History, learnt: dict[str, Any] | None) -> None:
        """Learn what has finished and what has begun; learnt: samples of Auto's model that are stored in the study."""
        policy, self.news = self.policy, None
        new = [each for each in history.trials if each.number not in self._done]
        told = [each for each in new if each.y is not None and each.number not in self._pending]
        if told:  # `observe` without its warning: enqueued trials may lie outside
            x, y = np.array([each.x for each in told]), np.array([each.y for each in told], dtype=np.float64)
            limits = {each.name: [one.limits.get(each.name) for one in told] for each in policy.limits}
            policy._learn_from(x, y, None, [each.noise for each in told], limits)
        for each in new:
            if each.y is None and each.number not in self._pending:
                (self._pending[each.number],) = policy.mark_pending(each.x[None, :])
            if each.y is not None or each.failed:
                self._done[each.number] = each.y
                query = self._pending.pop(each.number, None)
                if query is not None:
                    if each.y is None:
                        policy.drop(query)
                    else:
                        policy.tell(query, each.y, noise=each.noise, limits=each.limits)
        if isinstance(policy, Auto) and learnt is not None:
            latest = policy.samples
            if (latest is None or learnt["results"] > latest["results"]) and learnt["results"] <= policy.t:
                with contextlib.suppress(InvalidInput):  # written by another program: learn again
                    policy.adopt(learnt)
                    self._looked, self._conflicts = learnt["results"], learnt["conflicts"]

    def choose(
        self, trial: FrozenTrial, history: History, fixed: Mapping[int, float], seed: int
    ) -> tuple[Array, dict[str, Any]]:
        """A point for a trial, and what is believed of it; history.unseen others choose from the same trials at this
        moment, and take what comes before."""
        policy = self.policy
        policy._rng = np.random.default_rng([seed, trial.number])
        if due(policy.t, self._looked) or getattr(policy, "surprised", False):
            self._renew()
        if fixed:
            space: Any = policy.domain
            offer = space.decode(space.spread(FIXED, 0))
            offer[:, list(fixed)] = list(fixed.values())
            there = space.there(offer)[:, list(fixed)].all(axis=1)  # else what is fixed would not be asked for
            offer = offer[there] if there.any() else offer
            legal = space.contains(offer)
            offer = offer[legal] if legal.any() else offer
            query = policy.ask(actions=distinct(space.conditions.settled(offer)).points)
        else:
            try:
                query = policy.ask(1 if policy.abilities.keeps_rounds else history.unseen + 1)[-1]
            except (AwaitingResults, HorizonReached):  # every point was tried: Optuna wants one all the same, the last
                query, self.ended = policy.ask(actions=policy.recommend().x[None, :]), True
        self._pending[trial.number] = query
        return query.x, self._believed(query)

    def _renew(self) -> None:
        """Renew Auto's model, and look for conflicts."""
        policy = self.policy
        if isinstance(policy, Auto):
            policy.refresh()
        self._looked, self._conflicts = policy.t, len(policy.conflicts())
        if isinstance(policy, Auto) and policy.samples is not None:
            self.news = {**policy.samples, "conflicts": self._conflicts}

    def _believed(self, query: Query) -> dict[str, Any]:
        """For people: what is believed of a point that was chosen."""
        said = ("rule", "base", "epsilon", "probability")
        facts = {name: query.details[name] for name in said if name in query.details}
        if math.isfinite(query.mean):
            band = self.policy.band(query.x[None, :])
            noise = getattr(self.policy, "noise_level", self.policy.model.noise)
            numbers = (float(f"{number:.{DIGITS}g}") for number in (query.mean, band.lower[0], band.upper[0], noise))
            mean, lower, upper, noise = numbers
            facts |= {"mean": mean, "band": [lower, upper], "noise": noise}
            if self._conflicts is not None:
                facts["conflicts"] = self._conflicts
        return facts


def _success_of(study: Study, axes: Axes) -> Feasible | None:
    """Model of where trials with all of these parameters succeed; None while none of them has failed, or all."""
    trials = [each for each in study._get_trials(deepcopy=False, use_cache=True) if each.state.is_finished()]
    if all(each.state != TrialState.FAIL for each in trials):
        return None
    known = [(axes.point(t.params), t.state != TrialState.FAIL) for t in trials if AGAIN not in t.system_attrs]
    points, succeeded = [x for x, _ in known if x is not None], [works for x, works in known if x is not None]
    if len(set(succeeded)) < 2:
        return None
    columns = [(each.start, each.stop) for each in axes.space.columns]
    return Feasible(axes.space.encode(points), np.array(succeeded), columns, np.ones(len(columns)))


def _learnt_by(study: Study, axes: Axes, most: int) -> dict[str, Any] | None:
    """The samples of the model that are in the study, if they can be of at most so many trials."""
    stored = study._storage.get_study_system_attrs(study._study_id).get(f"{LEARNT}:{axes.digest}")
    try:
        samples = checked_samples(stored, axes.space)
    except InvalidInput:  # there are none, or something else wrote them
        return None
    sign = -1.0 if study.direction == StudyDirection.MINIMIZE else 1.0
    if samples["scaling"][0] != sign or samples["results"] > most:
        return None
    count = samples.get("conflicts")
    return samples | {"conflicts": count if type(count) is int and 0 <= count <= MOST else None}


def _teach(study: Study, axes: Axes, most: int, samples: dict[str, Any]) -> None:
    """Store samples for others, unless they have newer ones."""
    there = _learnt_by(study, axes, most)
    if (there is None or there["results"] < samples["results"]) and len(json.dumps(samples)) <= LONGEST:
        study._storage.set_study_system_attr(study._study_id, f"{LEARNT}:{axes.digest}", samples)
