"""A sampler for Optuna: policies of misspec as `study.optimize` uses them.

Everything that it knows is in the study's storage, so that any number of processes and machines can share a study:

    a trial's system attribute   misspec:asked   the query that it is, before its parameters are suggested one by one
    its user attributes          misspec:mean …  what was believed when it was chosen, for people and dashboards
    the study's system attribute misspec:learnt  the samples of the model, for all that come later (`Auto.samples`)
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial

from misspec.domains import Float, Space
from misspec.errors import InvalidInput, one_of, seeded, shown, whole
from misspec.hyperparameters import Scaling
from misspec.integrations.optuna import choosing, trials
from misspec.integrations.optuna.choosing import Chosen, Kept, Mirror
from misspec.integrations.optuna.trials import Axes, History, parameter_of
from misspec.model import Model, a_model
from misspec.policies import ECGPUCB, GPUCB, Auto, PhasedUncertaintySampling, Policy, RegretBalancing
from misspec.policies.auto.feasible import LIKELY
from misspec.policies.auto.model import FIRST, GROWTH
from misspec.threads import lock_after_fork, one_thread, tell_of_forks

POLICIES = ("auto", "balancing", "ec", "phased", "gp_ucb")
HORIZON = 1000  # of balancing, where n_trials is not known
WIDTH = 2.0  # of policies with a model that is learnt, whose widths guarantee nothing anyway
EPSILON = 0.1  # of EC-GP-UCB where it is not given: times the norm bound, or the spread of results


class MisspecSampler(BaseSampler):
    """Policies of misspec for Optuna's studies, one objective, maximised or minimised.

    policy     "auto", which needs no constants; "gp_ucb", "ec" (EC-GP-UCB), "phased" or "balancing"
    model      of the policies but "auto": a Model whose kernel sees `space_of(distributions)`, in the sign in which the
               objective is maximised. Without one it is learnt from the trials, and nothing is guaranteed
    n_trials   the horizon, of "phased" and "balancing"
    seed       of all chance; two samplers of one seed that see the same trials suggest the same
    options    of the policy, such as epsilon= for "ec" or noise= for "auto"

    Parameters outside the intersection of all trials' spaces are sampled one by one, by Optuna's TPESampler. Running
    trials are pending, failed ones teach where trials fail, pruned ones count with their last value, but as no better
    than the median. Constraints are refused.
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
        tell_of_forks(self)
        self._check()

    def _check(self) -> None:
        """Whether the options are the policy's: better said now than in the first trial."""
        space = Space({"x": Float(0.0, 1.0)})
        with contextlib.suppress(ImportError):
            from sklearn.gaussian_process.kernels import RBF

            self._made(space, Model(RBF(1.0), norm_bound=1.0, noise=1.0), None, minimize=False)

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
        # chance is a function of the seed, the trial and the parameter, whichever process samples it
        seeds = np.random.SeedSequence([self._seed, trial.number, zlib.crc32(param_name.encode())])
        given = {**trial.distributions, param_name: param_distribution}
        known = {name: each for name, each in given.items() if parameter_of(each) is not None}
        axes = Axes(known) if known else None
        success = None if axes is None else choosing.success_of(study, axes)
        drawn = []
        for i, seed in enumerate(seeds.generate_state(1 if success is None else choosing.TRIED).tolist()):
            sampler: BaseSampler = TPESampler(seed=seed) if i < choosing.TRIED // 2 else RandomSampler(seed=seed)
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
            trials.put(study, trial, trials.ASKED, {**asked, "policy": self._policy, "space": axes.digest})
            for what, found in chosen.believed.items():
                study._storage.set_trial_user_attr(trial._trial_id, choosing.BELIEVED.format(what), found)
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
        self._kept = kept._replace(mirror=None)  # if anything fails from here on, the mirror is rebuilt
        if mirror is None or not mirror.follows(history):
            minimize = study.direction == StudyDirection.MINIMIZE
            mirror = Mirror(Auto(axes.space, minimize=minimize, seed=self._seed, **self._options))
        mirror.learn(history, choosing.learnt_by(study, axes))
        chosen = mirror.choose(trial, history, fixed, self._seed)
        if mirror.news is not None:
            choosing.teach(study, axes, mirror.news)
        if not history.unseen:  # one that has asked what others ask is of no further use
            self._kept = kept._replace(mirror=mirror)
        return chosen

    def _by_theory(
        self, study: Study, axes: Axes, history: History, trial: FrozenTrial, fixed: Mapping[int, float]
    ) -> Chosen:
        """By a policy with a model: the given one, or one that is learnt; rebuilt from the trials."""
        rng = np.random.default_rng([self._seed, trial.number])
        minimize = study.direction == StudyDirection.MINIMIZE
        sign = -1.0 if minimize else 1.0
        model, scaling = self._model, Scaling(sign)
        learnt: dict[str, Any] | None = None
        if model is None:
            learnt = self._samples(study, axes, history, minimize)
            if learnt is None:
                return Chosen.first(axes, rng, fixed)
            model, scaling = choosing.model_of_learnt(learnt, axes.space)
        policy = choosing.replayed(self._made(axes.space, model, learnt, minimize=minimize), history, scaling)
        policy._rng = rng
        x, query = choosing.asked_of(policy, fixed, 0 if policy.abilities.keeps_rounds else history.unseen)
        if query is None:  # an episode whose results others are waiting for, or the end of the horizon
            return Chosen(x, None, {"rule": "while others are awaited"})
        conflicts = self._conflicts(study, axes, policy)
        said = choosing.believed(policy, query, scaling, model.noise * scaling.width, conflicts)
        return Chosen(x, choosing.event_of(query), said)

    def _samples(self, study: Study, axes: Axes, history: History, minimize: bool) -> dict[str, Any] | None:
        """The model that is learnt for the policies of the theory; the phased one keeps its first."""
        learnt = choosing.learnt_by(study, axes)
        if learnt is not None and self._policy == "phased":
            return learnt
        mirror = Mirror(Auto(axes.space, minimize=minimize, seed=self._seed))
        mirror.learn(history, learnt)
        mirror.renew()
        if mirror.news is not None:
            choosing.teach(study, axes, mirror.news)
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
        key = f"{choosing.LEARNT}:conflicts:{axes.digest}"
        found = trials.get(trials.attributes_of(study), key)
        seen, count = (found.get(name) for name in ("results", "count")) if isinstance(found, dict) else (0, 0)
        if not (trials.is_count(seen) and trials.is_count(count) and seen <= policy.t):
            seen = count = 0
        if policy.t >= max(FIRST, (1.0 + GROWTH) * seen):
            count = len(policy.conflicts())
            trials.put(study, None, key, {"results": policy.t, "count": count})
        return int(count)

    # -- copies ----------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_kept")}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept, _lock=threading.RLock(), _kept=None)
        tell_of_forks(self)

    def forked(self) -> None:
        """In a process that was forked off: what another thread was about to keep is read again from the storage."""
        lock, self._lock = self._lock, lock_after_fork(self._lock)
        if self._lock is not lock:
            self._kept = None


def _entropy() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])
