"""Stop a study when more trials are hardly worth it: `UntilCallback`."""

from __future__ import annotations

import logging
from typing import Any

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from misspec.errors import InvalidInput, instance
from misspec.evaluation.stopping import EVERY, Until, Watch, until
from misspec.integrations.optuna.sampler import MisspecSampler
from misspec.integrations.optuna.trials import policy_of
from misspec.policies import Policy

LOG = logging.getLogger("misspec.optuna")
STOPPED = "misspec:stopped"  # user attribute of a study: why it was stopped
STOPPED_AT = "misspec:stopped_at"  # and after how many results, by which rule, for other processes


class UntilCallback:
    """`study.optimize(objective, n_trials=200, callbacks=[UntilCallback()])` ends when more is hardly worth it.

    until   the rule, `ms.until(gain=…, within=…, chance=…)`; `ms.until(gap=…)` for a policy whose bands hold

    With a `MisspecSampler` the rule asks its policy, with any other sampler an Auto that learns the trials. It is asked
    after every fifth completed trial. Trials that are running when it is met, as with n_jobs, end and count. The study
    says why in its user attribute misspec:stopped, and so does the log; other processes with this rule on the same
    study stop at their next trial. Started again, the study stops after one trial, unless that changes the verdict.
    """

    def __init__(self, until: Until = until()) -> None:  # noqa: B008  # a frozen value
        self.until: Until = instance("until", until, Until, "ms.until() makes one")
        self._watch: tuple[Any, Watch] | None = None  # of a study

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        if len(study.directions) != 1:
            raise InvalidInput(f"misspec optimises one objective, and this study has {len(study.directions)}")
        if trial.state != TrialState.COMPLETE:
            return
        if self._watch is None or self._watch[0] != (study._storage, study._study_id):
            self._watch = (study._storage, study._study_id), Watch(self.until, lambda: policy_for(study, self.until))
        watch, results = self._watch[1], len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
        if watch.met(results, running=False):
            study.set_user_attr(STOPPED, watch.reason)
            study.set_user_attr(STOPPED_AT, {"results": results, "rule": repr(self.until)})
            LOG.info("study %s: %s", study.study_name, watch.reason)
            study.stop()
        elif watch.looked != results and self._stopped_elsewhere(study, results):
            study.stop()

    def _stopped_elsewhere(self, study: Study, results: int) -> bool:
        """Whether another process has stopped the study by this rule, a few results ago."""
        at = study.user_attrs.get(STOPPED_AT)
        if not isinstance(at, dict) or at.get("rule") != repr(self.until) or type(at.get("results")) is not int:
            return False
        return bool(0 <= results - at["results"] < EVERY)


def policy_for(study: Study, rule: Until) -> Policy | None:
    """A policy that has learnt the trials; None while they have nothing in common. InvalidInput where the rule does
    not fit it."""
    sampler, policy = study.sampler, None
    if isinstance(sampler, MisspecSampler):
        policy = sampler.policy_for(study)
    elif optuna.search_space.intersection_search_space(study.get_trials(deepcopy=False)):
        policy = policy_of(study)
    if policy is not None:
        rule.check(policy)
    return policy
