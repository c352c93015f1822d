"""A sampler for Optuna: policies of misspec as `study.optimize` uses them.

Everything that it knows is in the study's storage, so that any number of processes and machines can share a study:

    a trial's system attribute   misspec:asked   its point, before its parameters are suggested one by one
    its user attributes          misspec:mean …  what was believed when it was chosen, for people and dashboards
    the study's system attribute misspec:learnt  the samples of Auto's model, for all that come later (`Auto.samples`)
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial

from misspec.domains import Float, Space
from misspec.errors import Array, InvalidInput, instance, seeded, shown
from misspec.integrations.optuna import choosing
from misspec.integrations.optuna.choosing import Kept, Mirror
from misspec.integrations.optuna.trials import ASKED, Axes, History, parameter_of
from misspec.policies import Auto, Policy
from misspec.policies.auto.feasible import LIKELY
from misspec.threads import lock_after_fork, one_thread, tell_of_forks


class MisspecSampler(BaseSampler):
    """A policy of misspec for Optuna's studies, one objective, maximised or minimised.

    policy     "auto", which needs no constants, or a function that makes a policy on a Space, such as
               lambda space: ms.ECGPUCB(space, model, epsilon=0.1); the space is `space_of(distributions)` of the
               parameters that all trials have, and the policy's `minimize` must be the study's direction
    seed       of all chance: two samplers of one seed that see the same trials suggest the same; None: any
    options    of ms.Auto, such as noise=

    The policy learns finished trials as its own queries, if this sampler asked them, and otherwise by `observe`;
    running trials are pending. Failed ones teach Auto where trials fail, pruned ones count with their last value, but
    as no better than the median. Parameters outside the intersection of all trials' spaces are sampled one by one, by
    Optuna's TPESampler. Constraints are refused, and policies that take no data from elsewhere.
    """

    def __init__(
        self, policy: str | Callable[[Space], Policy] = "auto", *, seed: int | None = 0, **options: Any
    ) -> None:
        if not callable(policy) and not (isinstance(policy, str) and policy == "auto"):
            raise InvalidInput(
                'policy must be "auto" or a function that makes a policy on a Space, such as '
                f"lambda space: ms.GPUCB(space, model), got {shown(policy)}"
            )
        self._policy = policy
        self._seed = _entropy() if seed is None else seeded(seed)
        refused = sorted({"constraints_func", "minimize", "horizon"} & set(options))
        if refused:
            said = {"constraints_func": "constraints are not supported: give such trials a bad value, or let them fail"}
            raise InvalidInput(said.get(refused[0], f"{refused[0]} is the study's; leave it out"))
        if options and callable(policy):
            raise InvalidInput(f"{sorted(options)[0]} is an option of the policy: set it in the function policy=")
        self._options = dict(options)
        self._lock = threading.RLock()
        self._kept: Kept | None = None  # what is in the storage too, read and learnt before
        tell_of_forks(self)
        if not callable(policy):  # better said now than in the first trial
            self._made(Space({"x": Float(0.0, 1.0)}), minimize=False)

    # -- Optuna's protocol -----------------------------------------------------------------------------------

    def reseed_rng(self) -> None:
        self._seed = _entropy()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002
        """The parameters of all completed trials, except those of one value only and those that no Space can have."""
        common = optuna.search_space.intersection_search_space(study._get_trials(deepcopy=False, use_cache=True))
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
            x, believed = self._chosen(study, kept, trial)
            study._storage.set_trial_system_attr(trial._trial_id, ASKED, axes.stored(x))
            for what, found in believed.items():
                study._storage.set_trial_user_attr(trial._trial_id, choosing.BELIEVED.format(what), found)
            return axes.params(x)

    # -- choosing --------------------------------------------------------------------------------------------

    def _read(self, study: Study, search_space: Mapping[str, BaseDistribution]) -> Kept:
        """Reuse what was kept if study and space are the same: points of finished trials do not change."""
        axes, kept = Axes(search_space), self._kept
        same = kept is not None and kept.storage is study._storage and kept.study == study._study_id
        if kept is None or not same or kept.axes.digest != axes.digest:
            kept = self._kept = Kept(study._storage, study._study_id, axes, None)
        return kept

    def _chosen(self, study: Study, kept: Kept, trial: FrozenTrial) -> tuple[Array, dict[str, Any]]:
        """Choose by the policy that has learnt the trials before, as long as these say the same; else by a new one."""
        mirror, axes = kept.mirror, kept.axes
        history = History.of(study, axes, trial.number)
        self._kept = kept._replace(mirror=None)  # if anything fails from here on, the mirror is rebuilt
        if mirror is None or not mirror.follows(history):
            mirror = Mirror(self._made(axes.space, minimize=study.direction == StudyDirection.MINIMIZE))
        mirror.learn(history, choosing.learnt_by(study, axes, len(history.trials)))
        chosen = mirror.choose(trial, history, axes.fixed(trial.system_attrs.get("fixed_params", {})), self._seed)
        if mirror.news is not None:
            choosing.teach(study, axes, len(history.trials), mirror.news)
        if not history.unseen or mirror.policy.abilities.keeps_rounds:
            self._kept = kept._replace(mirror=mirror)  # one that has asked what others ask is of no further use
        return chosen

    def _made(self, space: Space, *, minimize: bool) -> Policy:
        """Make a policy that has learnt nothing yet."""
        if not callable(self._policy):
            try:
                return Auto(space, minimize=minimize, seed=self._seed, **self._options)
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
        if policy.minimize != minimize:
            directions = ("minimizes", "maximizes") if minimize else ("maximizes", "minimizes")
            raise InvalidInput(
                f"the study {directions[0]} and {name} {directions[1]}: make it with minimize={minimize}, or create "
                "the study with the other direction"
            )
        return policy

    # -- copies ----------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_kept")}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept, _lock=threading.RLock(), _kept=None)
        tell_of_forks(self)

    def forked(self) -> None:
        """After a fork, read again from the storage what another thread was about to keep."""
        lock, self._lock = self._lock, lock_after_fork(self._lock)
        if self._lock is not lock:
            self._kept = None


def _entropy() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])
