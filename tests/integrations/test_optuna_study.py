"""The sampler in studies: what reaches the policy, what is stored, and what is refused."""

import copy
import json
import math
import pickle
import threading
import types

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from cover import covering, slowly
from misspec.errors import InvalidInput
from misspec.integrations.optuna import MisspecSampler, distributions_of, policy_of, space_of
from misspec.integrations.optuna import sampler as sampler
from misspec.integrations.optuna import trials as trials
from misspec.policies.auto.model import Learner

optuna.logging.set_verbosity(optuna.logging.ERROR)
MODEL = ms.Model(RBF(0.5), norm_bound=2.0, noise=0.1)
POLICIES = {
    "auto": "auto",
    "gp_ucb": lambda space: ms.GPUCB(space, MODEL),
    "ec": lambda space: ms.ECGPUCB(space, MODEL, epsilon=0.1),
    "insured": lambda space: ms.InsuredUCB(space, MODEL),
    "balancing": lambda space: ms.RegretBalancing(space, MODEL, horizon=50),
    "own auto": lambda space: ms.Auto(space, noise=0.1),
}
# policies that differ in what the sampler does for them; the others do what "ec" and "auto" do
EACH = ["auto", "ec", "balancing", *slowly("gp_ucb", "insured", "own auto")]
SPACE = {
    "lr": FloatDistribution(1e-5, 1e-1, log=True),
    "drop": FloatDistribution(0.0, 0.5, step=0.1),
    "depth": IntDistribution(1, 12),
    "units": IntDistribution(16, 128, step=16),
    "kind": CategoricalDistribution(["; rm -rf x", None, 3, True]),
}


def value(params):
    return (
        -((math.log10(params["lr"]) + 3) ** 2)
        - (params["drop"] - 0.3) ** 2
        - 0.1 * abs(params["depth"] - 6)
        - abs(params["units"] - 64) / 64
        - (params["kind"] is None)
    )


def objective(trial):
    return value({name: trial._suggest(name, distribution) for name, distribution in SPACE.items()})


def played(n, policy="auto", seed=0, direction="maximize", sign=1.0, **options):
    study = optuna.create_study(direction=direction, sampler=MisspecSampler(policy, seed=seed, **options))
    study.optimize(lambda trial: sign * objective(trial), n_trials=n)
    return study


@pytest.mark.slow
def test_it_finds_what_random_search_does_not():
    random = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    random.optimize(objective, n_trials=25)
    assert played(25).best_value > random.best_value


def test_minimising_is_maximising_with_the_other_sign():
    up, down = played(14), played(14, direction="minimize", sign=-1.0)
    for a, b in zip(up.trials, down.trials, strict=True):
        assert a.params == b.params
        assert a.value == -b.value
    (above, below) = (study.trials[-1].user_attrs for study in (up, down))
    assert above["misspec:mean"] == pytest.approx(-below["misspec:mean"])
    assert above["misspec:band"] == pytest.approx([-end for end in reversed(below["misspec:band"])])


@pytest.mark.parametrize("policy", EACH)
def test_what_was_believed_is_in_the_trial(policy):
    study = played(12, POLICIES[policy])
    believed = study.trials[-1].user_attrs
    low, high = believed["misspec:band"]
    assert low <= believed["misspec:mean"] <= high or policy == "balancing"
    assert believed["misspec:noise"] > 0
    assert believed["misspec:conflicts"] >= 0
    assert {"auto": "misspec:rule", "balancing": "misspec:base"}.get(policy, "misspec:mean") in believed
    json.dumps(study.trials[-1].user_attrs)


@pytest.mark.parametrize("policy", ["auto", "ec", *slowly("gp_ucb", "insured")])  # balancing has rounds of its own
def test_a_new_process_goes_on_from_the_storage_alone(policy):
    """A sampler that has seen nothing suggests what the one suggests that was there all the time."""
    study = played(9, POLICIES[policy])
    fresh = copy.deepcopy(study)
    fresh.sampler = MisspecSampler(POLICIES[policy], seed=0)
    one, other = study.ask(SPACE), fresh.ask(SPACE)
    for name in ("lr", "drop"):  # numbers may differ by rounding: results come one by one there, and at once here
        assert math.log(one.params[name] + 1) == pytest.approx(math.log(other.params[name] + 1), abs=1e-3)
    assert [one.params[name] for name in ("depth", "units", "kind")] == [
        other.params[name] for name in ("depth", "units", "kind")
    ]


def test_the_model_is_learnt_once_for_all_and_renewed_by_growth(monkeypatch):
    study = played(8)
    learnt = []
    original = Learner.renewal
    monkeypatch.setattr(
        Learner, "renewal", lambda self, told, *rest: learnt.append(len(told)) or original(self, told, *rest)
    )
    for _ in range(4):  # four processes that know the storage only
        study.sampler = MisspecSampler(seed=1)
        trial = study.ask(SPACE)
        study.tell(trial, value(trial.params))
    assert learnt == [8, 10]  # the last one was of 7: by a seventh more, each time
    assert any(key.startswith("misspec:learnt") for key in study._storage.get_study_system_attrs(study._study_id))


def test_running_trials_pend_before_their_parameters_are_suggested():
    study = played(10)
    study.sampler = MisspecSampler(seed=0)
    first = study.ask()
    chosen = first.relative_params  # chosen, and nothing suggested yet
    study.sampler = MisspecSampler(seed=0)
    second = study.ask(SPACE)
    assert second.params != {name: chosen[name] for name in SPACE}
    known = trials.History(study, trials.Axes(dict(sorted(SPACE.items()))), second.number)
    running = [each for each in known.trials if each.y is None]
    assert [each.number for each in running] == [first.number]


def test_others_who_are_choosing_right_now_get_other_points():
    study = played(10)
    alone = copy.deepcopy(study)
    study._storage.create_new_trial(study._study_id)  # by a process that has not chosen yet
    trial, single = study.ask(SPACE), alone.ask(SPACE)
    assert trial.params != single.params


def test_failed_trials_are_avoided_and_not_lost():
    """Half of the space fails; what is tried there stays little."""
    study = optuna.create_study(direction="maximize", sampler=MisspecSampler(seed=0))

    def partly(trial):
        x = trial.suggest_float("x", 0, 1)
        y = trial.suggest_float("y", 0, 1)
        if x > 0.5:
            raise RuntimeError("does not work here")
        return x - (y - 0.4) ** 2

    study.optimize(partly, n_trials=30, catch=(RuntimeError,))
    failed = [trial for trial in study.trials[10:] if trial.state == TrialState.FAIL]
    assert len(study.trials) == 30
    assert len(failed) <= 12
    assert study.best_value > 0.4


def test_pruned_trials_count_but_as_no_better_than_the_median():
    study = played(7)
    low = sorted(trial.value for trial in study.trials)[3]
    worst = study.trials[0].params
    for last in (10.0, low - 5.0):
        study.add_trial(
            create_trial(
                state=TrialState.PRUNED, params=worst, distributions=SPACE, intermediate_values={0: 0.0, 3: last}
            )
        )
    study.add_trial(create_trial(state=TrialState.PRUNED, params=worst, distributions=SPACE))  # nothing reported
    known = trials.History(study, trials.Axes(SPACE)).trials
    assert [each.y for each in known[7:]] == [low, low - 5.0, None]
    assert known[-1].failed
    study.optimize(objective, n_trials=2)


def test_infinite_results_are_as_bad_as_the_worst():
    study = played(6)
    worst = min(trial.value for trial in study.trials)
    study.add_trial(create_trial(params=study.trials[0].params, distributions=SPACE, value=-math.inf))
    assert trials.History(study, trials.Axes(SPACE)).trials[-1].y == worst
    study.optimize(objective, n_trials=2)
    assert math.isfinite(study.trials[-1].user_attrs["misspec:mean"])


def test_a_study_goes_on_when_every_point_was_tried():
    study = optuna.create_study(direction="maximize", sampler=MisspecSampler(seed=0))
    study.optimize(lambda t: t.suggest_int("k", 0, 2) + 3 * "abc".index(t.suggest_categorical("m", "abc")), n_trials=24)
    assert len({tuple(t.params.values()) for t in study.trials}) == 9
    assert [t.value for t in study.trials[-3:]] == [8.0] * 3  # the best once more
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        study.sampler = optuna.samplers.PartialFixedSampler({"m": "b"}, study.sampler)
    study.optimize(lambda t: t.suggest_int("k", 0, 2) + "abc".index(t.suggest_categorical("m", "abc")), n_trials=2)
    assert [t.params["m"] for t in study.trials[-2:]] == ["b", "b"]


def test_parameters_that_are_fixed_stay_fixed():
    study = played(8)
    study.enqueue_trial({"depth": 11, "kind": 3})
    trial = study.ask(SPACE)
    assert trial.params["depth"] == 11
    assert trial.params["kind"] == 3
    study.tell(trial, value(trial.params))
    study.enqueue_trial({"depth": 99})  # outside: Optuna warns, and takes it
    with pytest.warns(UserWarning, match="out of range"):
        trial = study.ask(SPACE)
    study.tell(trial, 1e9)
    study.optimize(objective, n_trials=2)
    assert study.trials[-1].params["depth"] <= 12


@pytest.mark.parametrize("policy", EACH)
def test_define_by_run_spaces(policy):
    study = optuna.create_study(direction="maximize", sampler=MisspecSampler(POLICIES[policy], seed=0))

    def branching(trial):
        shared = trial.suggest_float("shared", 0, 1)
        if trial.number < 9:  # later it leaves what all have in common
            trial.suggest_float("early", 0, 1)
        if trial.suggest_categorical("method", ["a", "b"]) == "a":
            return shared - (trial.suggest_float("only a", -1, 1) - 0.5) ** 2
        return shared - trial.suggest_int("only b", 1, 5)

    study.optimize(branching, n_trials=20)
    found = study.sampler.infer_relative_search_space(study, study.trials[-1])
    assert sorted(found) == ["early", "method", "only a", "only b", "shared"]
    parameters = found.axes.space.parameters
    assert {name: dict(parameters[name].when) for name in found} == {
        "early": {"with early": (True,)},
        "method": {},
        "only a": {"method": ("a",)},
        "only b": {"method": ("b",)},
        "shared": {},
    }
    assert found.axes.space.rules.texts == ["`with early` == False"]  # none of the last ten trials has it
    assert study.sampler._mirror.policy.t == 19
    if policy == "auto":
        assert study.best_params["method"] == "a"
        assert study.best_value > 0.7


@pytest.mark.parametrize(("before", "after"), covering(["auto", "balancing"], ["balancing", "ec"]))
def test_a_study_that_changes_its_policy(before, after):
    study = played(9, POLICIES[before])
    study.sampler = MisspecSampler(POLICIES[after], seed=0)
    study.optimize(objective, n_trials=5)
    assert len({json.dumps(trial.params) for trial in study.trials[9:]}) >= 4
    assert study.sampler._mirror.policy.t == 13


@pytest.mark.parametrize("policy", EACH)
def test_trials_of_all_kinds_reach_the_policy(policy):
    """Fixed parameters, failures, values that are not numbers, trials that run, and others that choose right now."""
    study = played(6, POLICIES[policy])
    study.enqueue_trial({"depth": 11})
    study.optimize(objective, n_trials=2)
    assert study.trials[6].params["depth"] == 11
    study.optimize(lambda trial: objective(trial) * math.nan, n_trials=1)
    running = study.ask(SPACE)
    study.optimize(objective, n_trials=1)
    study.tell(running, value(running.params))
    study.optimize(objective, n_trials=1)
    told = study.sampler._mirror.policy.observations
    axes = trials.Axes(dict(sorted(SPACE.items())))
    assert {tuple(x) for x in told.x} <= {tuple(axes.point(trial.params)) for trial in study.trials}
    assert len(told.y) == 10  # all but the failed one and the last
    study._storage.create_new_trial(study._study_id)  # by a process that has not chosen yet
    study.optimize(objective, n_trials=2)


def test_two_samplers_of_one_seed_begin_with_different_points():
    study = optuna.create_study(direction="maximize")
    first = []
    for _ in range(6):
        study.sampler = MisspecSampler(seed=0)  # a process of its own
        first.append(study.ask(SPACE).params["lr"])
    assert len(set(first)) == 6
    again = optuna.create_study(direction="maximize", sampler=MisspecSampler(seed=0))
    assert again.ask(SPACE).params["lr"] == first[0]


def test_a_trial_that_died_before_it_was_chosen_is_forgotten():
    study = played(6)
    for _ in range(3):
        study._storage.create_new_trial(study._study_id)
    axes = trials.Axes(dict(sorted(SPACE.items())))
    assert trials.History(study, axes, 9).unseen == 3
    assert trials.History(study, axes, 9 + trials.UNSEEN).unseen == 0


def test_what_cannot_be_a_parameter_is_sampled_alone():
    study = optuna.create_study(sampler=MisspecSampler(seed=0))
    space = {
        "huge": IntDistribution(0, 2**60),  # beyond what a float tells apart
        "alike": CategoricalDistribution([1, 1.0, True, "a"]),  # of which Optuna takes two or three for one
        "one": IntDistribution(3, 3),
        "x": FloatDistribution(0, 1),
    }
    for _ in range(8):
        trial = study.ask(space)
        study.tell(trial, trial.params["x"])
    assert sorted(study.sampler.infer_relative_search_space(study, study.trials[-1])) == ["x"]


def constrained(trial, stored=True):
    x, y = (trial.suggest_float(name, 0, 1) for name in "xy")
    if stored:
        trial.set_constraint("x + y <= 1.2", x + y - 1.2)  # a key that no name of a limit can be
    return -((x - 0.8) ** 2) - (y - 0.8) ** 2


named = pytest.mark.skipif(not hasattr(optuna.Trial, "set_constraint"), reason="set_constraint came with Optuna 5")


@pytest.mark.parametrize("stored", [pytest.param(True, marks=named), False])
def test_constraints_are_limits(stored, tmp_path):
    """Stored by the objective, or by constraints_func; trials of other samplers count; another process goes on."""
    func = None if stored else (lambda trial: (trial.params["x"] + trial.params["y"] - 1.2,))
    url = f"sqlite:///{tmp_path}/study.db"
    first = optuna.samplers.RandomSampler(seed=0) if stored else MisspecSampler(seed=1, constraints_func=func)
    study = optuna.create_study(direction="maximize", sampler=first, storage=url, study_name="s")
    study.optimize(lambda trial: constrained(trial, stored), n_trials=6)
    again = optuna.load_study(study_name="s", storage=url, sampler=MisspecSampler(seed=1, constraints_func=func))
    again.optimize(lambda trial: constrained(trial, stored), n_trials=12)
    assert again.best_value > -0.1  # Optuna's, of what is feasible: −0.08 at most
    assert sum(max(trials.constraints_of(t).values()) > 0 for t in again.trials[-8:]) <= 2
    assert 0 < again.trials[-1].user_attrs["misspec:probability"] <= 1
    (limit,) = policy_of(again).limits
    assert str(limit) == ("constraint number 0 <= 0" if stored else "constraint 0 <= 0")
    found = policy_of(again).recommend()
    assert found.x.sum() <= 1.2
    assert found.probability >= 0.9
    if not stored:  # as one sampler that has seen all of them
        one = optuna.create_study(direction="maximize", sampler=MisspecSampler(seed=1, constraints_func=func))
        one.optimize(lambda trial: constrained(trial, stored), n_trials=18)
        assert [each.params for each in one.trials] == [each.params for each in again.trials]


def test_constraints_that_optuna_4_stored():
    older = types.SimpleNamespace(system_attrs={"constraints": (1.0, -2.0)})
    assert trials.constraints_of(older) == {"0": 1.0, "1": -2.0}
    for nothing in ({}, {"constraints": None}):
        assert trials.constraints_of(types.SimpleNamespace(system_attrs=nothing)) == {}
    now = create_trial(value=0.0, system_attrs=older.system_attrs)
    assert trials.constraints_of(now) == trials.constraints_of(older)


@named
def test_constraints_that_come_later_and_infinite_ones():
    study = optuna.create_study(direction="maximize", sampler=MisspecSampler(seed=0))
    study.optimize(lambda trial: constrained(trial, stored=False), n_trials=6)
    study.optimize(constrained, n_trials=3)
    space = {name: FloatDistribution(0, 1) for name in "xy"}
    for value in (math.inf, -math.inf):
        attributes = {"constraints": [value, 3.0]}
        study.add_trial(
            create_trial(params={"x": 0.9, "y": 0.9}, distributions=space, value=0, system_attrs=attributes)
        )
    study.optimize(constrained, n_trials=2)
    policy = policy_of(study)
    assert [str(each) for each in policy.limits] == [
        "constraint 0 <= 0",
        "constraint 1 <= 0",
        "constraint number 2 <= 0",
    ]
    told = policy.observations.limits
    assert np.isfinite(told["constraint number 2"]).sum() == 5
    assert told["constraint 0"][np.isfinite(told["constraint 0"])].tolist() == [0.0, 0.0]  # of nothing finite


@named
def test_constraints_of_trials_are_never_ignored():
    with pytest.raises(InvalidInput, match="limits are the study's"):
        MisspecSampler(limits="c < 1")
    with pytest.raises(InvalidInput, match="constraints_func must be a function"):
        MisspecSampler(constraints_func=1)
    study = optuna.create_study(direction="maximize", sampler=MisspecSampler(POLICIES["ec"]))
    with pytest.raises(InvalidInput, match="trials have constraints, and ECGPUCB has no such limits"):
        study.optimize(constrained, n_trials=3)
    own = MisspecSampler(lambda space: ms.Auto(space, limits="constraint c <= 0", minimize=True))
    study = optuna.create_study(sampler=own)

    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        trial.set_constraint("c", 0.5 - x)
        return x

    study.optimize(objective, n_trials=10)
    assert 0.5 <= study.best_value < 0.6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: MisspecSampler("best"),
            "policy must be \"auto\" or a function that makes a policy on a Space.*'best'",
        ),
        (lambda: MisspecSampler(ms.GPUCB(ms.Box([(0, 1)]), MODEL)), 'policy must be "auto" or a function'),
        (lambda: MisspecSampler(seed=1.5), "seed must be a whole number"),
        (lambda: MisspecSampler(POLICIES["ec"], noise=0.1), "noise is an option of the policy: set it in the function"),
        (lambda: MisspecSampler(nonsense=1), "ms.Auto does not take these options"),
        (lambda: MisspecSampler(noise=-1.0), "noise must be"),
        (lambda: MisspecSampler(minimize=True), "minimize is the study's"),
        (lambda: played(2, lambda space: 3), "what policy= makes must be a Policy, got int"),
        (lambda: played(2, lambda _: ms.Auto(ms.Box([(0, 1)]))), "a policy on the given space, got one on Box"),
        (
            lambda: played(2, lambda space: ms.PhasedUncertaintySampling(space, MODEL)),
            "learns from its own queries only",
        ),
        (
            lambda: played(2, POLICIES["ec"], direction="minimize"),
            "study minimizes and ECGPUCB maximizes.*minimize=True",
        ),
        (lambda: played(2, lambda space: ms.Auto(space, minimize=True)), "study maximizes and Auto minimizes"),
        (lambda: policy_of(optuna.create_study()), "no completed trial yet"),
        (lambda: policy_of(optuna.create_study(directions=["minimize"] * 2)), "one objective"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


@pytest.mark.parametrize("policy", ["ec", "balancing", *slowly("gp_ucb")])
def test_a_policy_of_ones_own(policy):
    study = optuna.create_study(direction="maximize", sampler=MisspecSampler(POLICIES[policy], seed=0))

    def smooth(trial):
        x, y = trial.suggest_float("x", 0, 1), trial.suggest_int("y", 0, 4)
        return math.exp(-8 * (x - 0.3) ** 2) - 0.1 * abs(y - 1)

    study.optimize(smooth, n_trials=31)
    assert study.best_value > 0.8
    assert study.trials[-1].user_attrs["misspec:noise"] == 0.1


def test_an_auto_of_ones_own_minimises():
    study = optuna.create_study(sampler=MisspecSampler(lambda space: ms.Auto(space, minimize=True, noise=0.01), seed=0))
    study.optimize(lambda trial: (trial.suggest_float("x", 0, 1) - 0.3) ** 2, n_trials=15)
    assert study.best_value < 0.01
    assert study.trials[-1].user_attrs["misspec:noise"] == 0.01
    assert any(key.startswith("misspec:learnt") for key in study._storage.get_study_system_attrs(study._study_id))


def test_balancing_is_the_policy_itself_played_in_a_study():
    """Same decisions as RegretBalancing on the same space, fed with the first, random trial."""
    study = optuna.create_study(direction="maximize", sampler=MisspecSampler(POLICIES["balancing"], seed=3))

    def smooth(x):
        return math.sin(6 * x)

    study.optimize(lambda trial: smooth(trial.suggest_float("x", 0, 1)), n_trials=9)
    policy = ms.RegretBalancing(ms.Space({"x": ms.Float(0, 1)}), MODEL, horizon=50)
    policy.observe([[study.trials[0].params["x"]]], [study.trials[0].value])
    for trial in study.trials[1:]:
        query = policy.ask()
        assert query.params["x"] == pytest.approx(trial.params["x"], abs=1e-6)
        assert query.details["base"] == trial.user_attrs["misspec:base"]
        policy.tell(query, smooth(trial.params["x"]))


def test_samplers_can_be_copied_pickled_and_shared_by_threads():
    study = played(6)
    for twin in (copy.deepcopy(study.sampler), pickle.loads(pickle.dumps(study.sampler))):
        other = copy.deepcopy(study)
        other.sampler = twin
        other.optimize(objective, n_trials=1)
    study.optimize(objective, n_trials=8, n_jobs=4)
    assert len({json.dumps(trial.params) for trial in study.trials}) == 14
    assert all(trial.state == TrialState.COMPLETE for trial in study.trials)
    assert threading.active_count() < 20


def test_two_studies_with_one_sampler():
    sampler = MisspecSampler(seed=0)
    one = optuna.create_study(direction="maximize", sampler=sampler)
    other = optuna.create_study(direction="minimize", sampler=sampler)
    for _ in range(8):
        one.optimize(objective, n_trials=1)
        other.optimize(lambda trial: trial.suggest_float("z", -2, 2) ** 2, n_trials=1)
    assert other.best_value < 0.1


def test_attributes_that_somebody_has_edited_are_learnt_anew():
    study = played(9)
    study.sampler = MisspecSampler(seed=0)
    keys = [key for key in study._storage.get_study_system_attrs(study._study_id) if key.startswith("misspec:learnt")]
    for key in keys:
        study._storage.set_study_system_attr(study._study_id, key, {"parts": 1, "digest": "0", "text": "x"})
    study.optimize(objective, n_trials=1)
    axes = trials.Axes(study.sampler.infer_relative_search_space(study, study.trials[-1]))
    wrong = {"results": 10, "states": [["nan"]]}
    study._storage.set_study_system_attr(study._study_id, f"{sampler.LEARNT}:{axes.digest}", wrong)
    study.sampler = MisspecSampler(seed=0)
    study.optimize(objective, n_trials=1)
    assert len(study.trials) == 11


def test_samples_that_no_database_has_room_for_are_not_stored(monkeypatch):
    monkeypatch.setattr(sampler, "LONGEST", 100)
    study = played(8)
    assert not any(key.startswith("misspec:learnt") for key in study._storage.get_study_system_attrs(study._study_id))
    assert study.trials[-1].user_attrs["misspec:rule"] != "first"  # they are learnt all the same


def test_spaces_there_and_back():
    space = space_of(SPACE)
    assert distributions_of(space) == SPACE
    axes = trials.Axes(SPACE)
    params = {"lr": 1e-3, "drop": 0.30000000000000004, "depth": 3, "units": 48, "kind": True}
    x = axes.point(params)
    assert axes.params(x) == {**params, "drop": 0.3}
    assert axes.params(x)["kind"] is True
    assert axes.point({**params, "units": 50})[3] == 50  # between two steps
    assert axes.point({**params, "units": 50.5}) is None
    assert axes.point({"lr": 1e-3}) is None


def test_the_policy_of_a_study():
    study = played(20)
    policy = policy_of(study, space_of(SPACE))
    assert policy.t == 20
    assert "Use" in policy.summary()
    assert set(policy.recommend().params) == set(SPACE)
    study.add_trial(
        create_trial(
            state=TrialState.PRUNED, params=study.best_params, distributions=SPACE, intermediate_values={0: 0.0}
        )
    )
    assert policy_of(study).t == 20  # what was pruned is no evaluation
    assert (policy_of(study).observations.ids >= 0).all()


def test_thousands_of_trials_cost_no_more_than_hundreds():
    """Features, not results, are what a suggestion costs: counted, not timed."""
    rng = np.random.default_rng(0)
    study = optuna.create_study(direction="maximize", sampler=MisspecSampler(seed=0))
    space = {name: FloatDistribution(0, 1) for name in "abcd"}
    for _ in range(1200):
        params = {name: float(rng.random()) for name in space}
        study.add_trial(create_trial(params=params, distributions=space, value=math.sin(3 * params["a"]) + params["b"]))
    trial = study.ask(space)
    study.tell(trial, 0.0)
    mirror = study.sampler._mirror
    assert all(each.rank <= 300 for each in mirror.policy.posterior.posteriors)
    assert len(mirror.policy.posterior.posteriors) == 2
    assert mirror.policy.t == 1200


def test_crashes_teach_parameters_that_not_all_trials_have():
    """Crashes lie where the best values would; of the last ten trials eight crashed while failures taught nothing."""

    def objective(trial):
        kind = trial.suggest_categorical("kind", ["tree", "net"])
        if kind == "tree":
            depth = trial.suggest_int("depth", 1, 20)
            if depth > 8:
                raise RuntimeError("too deep")
            return (depth - 12) ** 2 / 100
        momentum = trial.suggest_float("momentum", 0.0, 1.0)
        if momentum > 0.5:
            raise RuntimeError("diverged")
        return (momentum - 0.8) ** 2 + 0.1

    study = optuna.create_study(sampler=MisspecSampler(seed=1))
    study.optimize(objective, n_trials=30, catch=(RuntimeError,))
    crashed = [trial.state == optuna.trial.TrialState.FAIL for trial in study.trials]
    assert sum(crashed[20:]) <= 3
    assert study.best_value < 0.25


def test_what_only_some_trials_have_is_said_not_called_a_repeat():
    """Defined by run: depth is in every trial, rate in some, momentum with ranges of its own; trials of one depth are
    no repeats."""

    def loss(trial):
        depth = trial.suggest_int("depth", 1, 4)
        extra = trial.suggest_float("momentum", 0, depth) if depth > 2 else trial.suggest_float("rate", 0, 1)
        return (depth - 3) ** 2 + extra

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(loss, n_trials=16)
    policy = policy_of(study)
    assert set(policy.not_modelled) == {"momentum"}
    said = policy.summary()
    assert "which not all results have alike; what differs in it counts as noise." in said
    assert "repeat" not in said
    assert set(policy.importance()) == {"depth", "rate"}
    whole = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    whole.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=6)
    assert "Not modelled" not in policy_of(whole).summary()
    assert policy_of(whole).importance() == policy_of(whole).importance()


def test_a_result_with_a_noise_of_its_own():
    study = optuna.create_study(sampler=MisspecSampler(seed=0))

    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        if trial.number == 6:
            trial.set_user_attr("result_noise", 5.0)
            return -9.0
        return (x - 0.3) ** 2

    study.optimize(objective, n_trials=9)
    policy = policy_of(study)
    assert policy.observations.noise[6] == 5.0
    assert policy.suspicious() == []
    assert policy.recommend().lower > -5
    study.add_trial(optuna.trial.create_trial(
        params={"x": 0.5}, distributions={"x": optuna.distributions.FloatDistribution(0, 1)}, value=0.1,
        user_attrs={"result_noise": "much"},
    ))  # fmt: skip
    with pytest.raises(ms.InvalidInput, match="'result_noise' of trial 9 must be the standard deviation"):
        policy_of(study)


def test_a_study_ends_where_nothing_is_left_to_try():
    """Six values without noise: every value is tried, and then the best once more; by hand it goes on with that."""
    study = optuna.create_study(sampler=MisspecSampler(seed=1, repeats=False), direction="maximize")
    study.optimize(lambda trial: float(trial.suggest_int("n", 0, 5)), n_trials=12)
    values = [trial.value for trial in study.trials]
    assert set(values[:6]) == {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}
    assert values[6:] == [5.0]
    assert study.ask().suggest_int("n", 0, 5) == 5
