"""`UntilCallback`: a study that stops when more trials are hardly worth it, and says why."""

import logging

import optuna
import pytest
from optuna.samplers import RandomSampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec.errors import InvalidInput
from misspec.integrations.optuna import MisspecSampler, UntilCallback
from misspec.integrations.optuna import stopping as stopping
from misspec.integrations.optuna.stopping import STOPPED, STOPPED_AT

optuna.logging.set_verbosity(optuna.logging.ERROR)
SOON = ms.until(chance=0.9)  # no chance that is said is larger: after fifteen trials


def objective(trial):
    return -((trial.suggest_int("x", 0, 20) - 6) ** 2) / 100 - (trial.suggest_int("y", 0, 20) - 12) ** 2 / 100


def study_of(sampler=None, **options):
    return optuna.create_study(direction="maximize", sampler=sampler or MisspecSampler(seed=0), **options)


def test_a_study_stops_and_is_the_beginning_of_one_that_does_not(caplog):
    study, through = study_of(), study_of()
    with caplog.at_level(logging.INFO, "misspec.optuna"):
        study.optimize(objective, n_trials=60, callbacks=[UntilCallback()])
    n = len(study.trials)
    assert 15 <= n < 60
    reason = study.user_attrs[STOPPED]
    assert reason.startswith(f"stopped after {n} evaluations: the chance that 10 more improve the best by ")
    assert caplog.messages == [f"study {study.study_name}: {reason}"]
    through.optimize(objective, n_trials=n)
    assert [trial.params for trial in study.trials] == [trial.params for trial in through.trials]


def test_the_policy_of_the_sampler_is_asked_after_every_fifth_trial(monkeypatch):
    looked, sampler = [], MisspecSampler(seed=0, noise=0.2)
    monkeypatch.setattr(ms.evaluation.stopping.Until, "why", lambda _, policy: looked.append((policy.t, policy.noise)))
    study = study_of(sampler)
    study.optimize(objective, n_trials=12, callbacks=[UntilCallback()])
    assert looked == [(1, 0.2), (5, 0.2), (10, 0.2)]


def test_trials_of_before_have_a_model_at_once():
    study = study_of(RandomSampler(seed=0))
    study.optimize(objective, n_trials=20)
    assert SOON.reason(MisspecSampler(seed=0).policy_for(study)).startswith("stopped after 20 evaluations: ")


@pytest.mark.parametrize("jobs", [1, 3])
def test_any_sampler_and_failures_and_threads(jobs):
    def sometimes(trial):
        value = objective(trial)
        if trial.number % 4 == 0:
            raise ValueError
        return value

    study = study_of(RandomSampler(seed=0))
    study.optimize(sometimes, n_trials=60, n_jobs=jobs, catch=(ValueError,), callbacks=[UntilCallback(SOON)])
    done = len(study.get_trials(states=(optuna.trial.TrialState.COMPLETE,)))
    assert 15 <= done < 15 + jobs
    assert study.user_attrs[STOPPED].startswith("stopped after 1")


def test_other_processes_stop_too_and_so_does_a_study_that_is_started_again(tmp_path):
    def joined(seed):
        backend = JournalFileBackend(str(tmp_path / "study.log"))
        return study_of(RandomSampler(seed=seed), storage=JournalStorage(backend), study_name="s", load_if_exists=True)

    first, other = joined(0), joined(1)
    callback = UntilCallback(SOON)
    other.optimize(objective, n_trials=1, callbacks=[callback])
    first.optimize(objective, n_trials=60, callbacks=[UntilCallback(SOON)])
    assert len(first.trials) == 15
    other.optimize(objective, n_trials=60, callbacks=[callback])  # which has looked before, and would not
    assert len(first.trials) == 16
    assert first.user_attrs[STOPPED_AT]["results"] in (15, 16)
    joined(2).optimize(objective, n_trials=60, callbacks=[UntilCallback(SOON)])
    assert len(first.trials) == 17
    rule = ms.until(chance=1e-9)
    other.optimize(objective, n_trials=3, callbacks=[UntilCallback(rule)])  # another rule goes on
    assert len(first.trials) == 20
    for broken in ("yes", {"rule": repr(rule)}, {"rule": repr(rule), "results": "all"}):
        other.set_user_attr(STOPPED_AT, broken)
        other.optimize(objective, n_trials=2, callbacks=[UntilCallback(rule)])
    assert len(first.trials) == 26


def test_a_policy_that_guarantees_a_gap():
    model = ms.Model(RBF(1.0), norm_bound=2.0, noise=0.1)
    study = study_of(MisspecSampler(lambda space: ms.GPUCB(space, model)))
    study.optimize(objective, n_trials=80, callbacks=[UntilCallback(ms.until(gap=3.0))])
    assert len(study.trials) < 80
    assert "what is recommended is at most" in study.user_attrs[STOPPED]


@pytest.mark.parametrize(
    ("make", "rule", "said"),
    [
        (lambda: MisspecSampler(), ms.until(gap=1.0), "the bands of Auto guarantee no gap"),
        (lambda: RandomSampler(), ms.until(gap=1.0), "the bands of Auto guarantee no gap"),
        (lambda: MisspecSampler(lambda s: ms.GPUCB(s, ms.Model(RBF(1.0), norm_bound=1.0, noise=0.1))), ms.until(),
         "GPUCB says no chance of a gain"),
    ],
)  # fmt: skip
def test_rules_that_do_not_fit_are_refused_after_one_trial(make, rule, said):
    study = study_of(make())
    with pytest.raises(InvalidInput, match=said):
        study.optimize(objective, n_trials=20, callbacks=[UntilCallback(rule)])
    assert len(study.trials) == 1


def test_what_is_refused():
    with pytest.raises(InvalidInput, match=r"until must be .* makes one"):
        UntilCallback(0.1)
    study = optuna.create_study(directions=["minimize", "maximize"])
    with pytest.raises(InvalidInput, match="one objective"):
        study.optimize(lambda trial: (trial.number, 1.0), n_trials=1, callbacks=[UntilCallback()])


def test_trials_that_have_nothing_in_common_stop_nothing():
    for sampler in (RandomSampler(seed=0), MisspecSampler(seed=0)):
        study = study_of(sampler)
        study.optimize(lambda t: t.suggest_float(f"x{t.number}", 0, 1), n_trials=16, callbacks=[UntilCallback(SOON)])
        assert len(study.trials) == 16
