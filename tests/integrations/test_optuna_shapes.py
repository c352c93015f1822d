"""Studies whose objective decides which parameters there are: the space that their trials show, and what is asked."""

import math
import random
import warnings

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

import misspec as ms
from misspec.integrations.optuna import MisspecSampler, policy_of
from misspec.integrations.optuna.shapes import LATELY, Shapes
from misspec.integrations.optuna.trials import Axes

UNIT = FloatDistribution(0, 1)
ONE = {
    "kind": CategoricalDistribution(["svm", "rf"]),
    "C": FloatDistribution(1e-3, 1e3, log=True),
    "kernel": CategoricalDistribution(["rbf", "poly"]),
    "degree": IntDistribution(2, 5),
    "layers": IntDistribution(1, 5),
    "x": UNIT, "y": UNIT, "a": UNIT, "b": UNIT,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def trial(number, value=0.0, state=TrialState.COMPLETE, **params):
    made = create_trial(
        params=params,
        distributions={name: ONE[name] for name in params},
        value=value if state == TrialState.COMPLETE else None,
        state=state,
    )
    made.number = made._trial_id = number
    return made


def shape_of(*points):
    return Shapes().of([trial(i, **params) for i, params in enumerate(points)])


def when_of(*points):
    return shape_of(*points).when


def test_what_all_have_is_no_condition():
    shape = shape_of({"x": 0.1, "kind": "svm"}, {"x": 0.2, "kind": "rf"})
    assert (sorted(shape.distributions), shape.when, shape.hidden) == (["kind", "x"], {}, {})
    assert Shapes().of([]) == ({}, {}, {})


def test_one_parent_also_nested():
    assert when_of(
        {"kind": "svm", "C": 1.0, "kernel": "poly", "degree": 3},
        {"kind": "svm", "C": 1.0, "kernel": "rbf"},
        {"kind": "rf", "x": 0.5},
    ) == {
        "C": {"kind": ("svm",)},
        "kernel": {"kind": ("svm",)},
        "degree": {"kernel": ("poly",)},
        "x": {"kind": ("rf",)},
    }


def test_points_have_what_exists_there():
    axes = Axes.of_shape(shape_of({"kind": "svm", "C": 1.0}, {"kind": "rf"}))
    assert axes.params(axes.point({"kind": "rf", "C": 2.0})) == {"kind": "rf"}
    assert axes.point({"kind": "svm"}) is None  # as of a trial that died before it had a C
    assert axes.point({"C": 1.0}) is None
    assert axes.point({"kind": "net", "C": 1.0}) is None
    assert [axes.exists("C", params) for params in ({}, {"kind": "rf"}, {"kind": "svm"})] == [False, False, True]


def test_two_parents():
    both = {"kind": "svm", "kernel": "poly", "degree": 3}
    assert when_of(both, {"kind": "svm", "kernel": "rbf"}, {"kind": "rf", "kernel": "poly"}) == {
        "degree": {"kernel": ("poly",), "kind": ("svm",)}
    }


def test_whole_numbers_that_no_trial_has_go_with_the_nearest():
    assert when_of({"layers": 1}, {"layers": 4, "x": 0.1}) == {"x": {"layers": (3, 4, 5)}}


def test_of_several_that_explain_it_the_last_suggested_before_decides():
    assert when_of({"kernel": "rbf", "kind": "svm", "C": 1.0}, {"kernel": "poly", "kind": "rf"}) == {
        "C": {"kind": ("svm",)}
    }


def test_what_nothing_explains_is_a_hidden_choice_that_queries_keep():
    points = [{"kind": "svm", "C": 1.0, **({"x": 0.3} if i % 3 else {})} for i in range(9)] + [{"kind": "rf"}] * 2
    shape = shape_of(*points)
    assert shape.hidden == {"with x": (("x",), True, {"kind": ("svm",)})}
    assert shape.when["x"] == {"with x": (True,)}
    axes = Axes.of_shape(shape)
    assert [axes.params(axes.point(each)) for each in points] == points  # whether it is there or not
    space = axes.space
    drawn = space.decode(space.spread(64, 0))
    assert all(("x" in axes.params(x)) == (axes.params(x)["kind"] == "svm") for x in drawn)
    later = shape_of(*points, *([{"kind": "svm", "C": 1.0}] * LATELY))
    assert not later.hidden["with x"].there  # the objective does not ask for it any more


def test_ranges_that_change_and_what_has_one_value_are_left_out():
    changed = create_trial(
        params={"x": 1.5, "y": 0.5}, distributions={"x": FloatDistribution(0, 2), "y": UNIT}, value=0
    )
    changed.number = changed._trial_id = 7
    shape = Shapes().of([trial(0, x=0.5, y=0.5), changed])
    assert list(shape.distributions) == ["y"]
    alone = create_trial(params={"one": 1}, distributions={"one": CategoricalDistribution([1])}, value=0)
    assert Shapes().of([alone]).distributions == {}


def test_only_completed_trials_say_what_there_is():
    some = [trial(0, kind="svm", C=1.0), trial(1, kind="rf"), trial(2, state=TrialState.FAIL, kind="rf", C=1.0)]
    assert Shapes().of(some).when == {"C": {"kind": ("svm",)}}


PARENTS = {"p": ["a", "b", "c"], "q": [True, False], "r": [1, 2, 3]}


@st.composite
def trees(draw):
    """Conditions of up to six parameters on others before them."""
    when = {}
    names = list(PARENTS)
    for i in range(draw(st.integers(1, 6))):
        parent = draw(st.sampled_from(names))
        options = PARENTS.get(parent, ["u", "v"])
        some = draw(st.lists(st.sampled_from(options), min_size=1, max_size=len(options) - 1, unique=True))
        when[f"z{i}"] = {parent: tuple(some)}
        names.append(f"z{i}")
    return when


@settings(max_examples=60, deadline=None)
@given(when=trees(), seed=st.integers(0, 2**32), n=st.integers(2, 60))
def test_every_completed_trial_lies_in_the_space_and_has_what_exists_there(when, seed, n):
    rng = random.Random(seed)
    trials = []
    for number in range(n):
        params = {name: rng.choice(options) for name, options in PARENTS.items()}
        for name, needs in when.items():
            if all(parent in params and params[parent] in some for parent, some in needs.items()):
                params[name] = rng.choice(["u", "v"])
        made = create_trial(
            params=params,
            distributions={
                each: IntDistribution(1, 3) if each == "r" else CategoricalDistribution(PARENTS.get(each, ["u", "v"]))
                for each in params
            },
            value=0.0,
        )
        made.number = made._trial_id = number
        trials.append(made)
    shape = Shapes().of(trials)
    axes = Axes.of_shape(shape)
    for each in trials:
        x = axes.read(each)
        assert axes.params(x) == {name: v for name, v in each.params.items() if name in shape.distributions}
    if n >= 40:  # enough for each condition to be seen: none is left to chance
        assert not shape.hidden
    left = trials[:]
    rng.shuffle(left)
    step = Shapes()
    for i in range(1, n + 1):  # in another order, in parts
        found = step.of(left[:i])
    assert found == shape
    assert Axes.of_shape(found).digest == axes.digest


# -- studies -----------------------------------------------------------------------------------------------------------


class Counting(MisspecSampler):
    """Note what is sampled one by one."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.alone = []

    def sample_independent(self, study, trial, name, distribution):
        self.alone.append((trial.number, name))
        return super().sample_independent(study, trial, name, distribution)


def pipeline(trial):
    scale = trial.suggest_float("scale", 0, 1)
    if trial.suggest_categorical("kind", ["svm", "rf"]) == "svm":
        value = -((math.log10(trial.suggest_float("C", 1e-3, 1e3, log=True)) - 1) ** 2) / 10
        if trial.suggest_categorical("kernel", ["rbf", "poly"]) == "rbf":
            value -= (math.log10(trial.suggest_float("gamma", 1e-4, 1, log=True)) + 2) ** 2 / 10
        else:
            value -= 0.1 + (trial.suggest_int("degree", 2, 5) - 3) ** 2 / 10
    else:
        value = -0.2 - abs(trial.suggest_int("depth", 1, 20) - 8) / 10
    return value - (scale - 0.3) ** 2


def test_a_pipeline_is_modelled_whole():
    study = optuna.create_study(direction="maximize", sampler=Counting(seed=0))
    study.optimize(pipeline, n_trials=24)
    assert not [each for each in study.sampler.alone if each[0] > 9]  # later all is asked by the model
    policy = policy_of(study)
    assert (policy.t, policy.not_modelled) == (24, ())
    assert set(policy.importance()) == {"scale", "kind", "C", "kernel", "gamma", "degree", "depth"}
    assert study.sampler._mirror.policy.t == 23
    assert study.best_value > -0.1
    best = policy.recommend().params
    assert ("depth" in best) == (best["kind"] == "rf")


def test_two_samplers_that_see_the_same_suggest_the_same():
    study = optuna.create_study(direction="maximize", sampler=MisspecSampler(seed=3))
    study.optimize(pipeline, n_trials=12)
    copies = [optuna.create_study(direction="maximize", sampler=MisspecSampler(seed=3)) for _ in range(2)]
    for copy in copies:
        copy.add_trials(study.trials)
    here, there = (copy.ask() for copy in copies)
    assert pipeline(here) == pipeline(there)
    assert here.params == there.params


def test_trials_that_run_fail_or_are_fixed():
    study = optuna.create_study(direction="maximize", sampler=MisspecSampler(seed=0))
    study.optimize(pipeline, n_trials=9)
    running = study.ask()
    pipeline(running)
    study.enqueue_trial({"kind": "svm", "kernel": "poly", "degree": 2})
    study.optimize(pipeline, n_trials=1)
    assert study.trials[-1].params["degree"] == 2
    study.enqueue_trial({"degree": 4})  # exists only where the kernel is poly: points with it are asked
    study.optimize(pipeline, n_trials=1)
    assert study.trials[-1].params["degree"] == 4
    study.optimize(lambda trial: pipeline(trial) * math.nan, n_trials=1)
    study.tell(running, -1.0)
    study.optimize(pipeline, n_trials=1)
    assert study.sampler._mirror.policy.t == 12


def test_a_group_that_chance_brings_is_modelled_too():
    coin = random.Random(0)

    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        extra = trial.suggest_float("y", 0, 1) if coin.random() < 0.7 else 0.0
        return -((x - 0.3) ** 2) - 0.1 * extra

    study = optuna.create_study(direction="maximize", sampler=MisspecSampler(seed=0))
    study.optimize(objective, n_trials=16)
    policy = policy_of(study)
    assert policy.t == 16
    assert policy.recommend().params["with y"] is True


def test_a_space_handed_in_brings_rules_from_the_first_trial_on():
    space = ms.Space(
        {
            "T": ms.Float(0, 150),
            "p": ms.Float(0, 100),
            "kind": ms.Choice(["a", "b"]),
            "n": ms.Int(1, 9, when={"kind": "a"}),
            "blend": ms.Mixture(["u", "v", "w"], total=100, at_most=2),
        },
        where="T + p < 60",
    )

    def objective(trial):
        T, p = trial.suggest_float("T", 0, 150), trial.suggest_float("p", 0, 100)
        shares = [trial.suggest_float(name, 0, 100) for name in "uvw"]
        n = trial.suggest_int("n", 1, 9) if trial.suggest_categorical("kind", ["a", "b"]) == "a" else 0
        return T + p - shares[0] + n

    sampler = Counting(seed=0, space=space)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, n_trials=14)
    assert sampler.alone == []
    for each in study.trials:
        assert space.contains(each.params).all()
        assert ("n" in each.params) == (each.params["kind"] == "a")
    study.enqueue_trial({"T": 55.0, "kind": "a"})
    study.optimize(objective, n_trials=1)
    assert study.trials[-1].params["T"] == 55
    assert space.contains(study.trials[-1].params).all()
    policy = policy_of(study, space)
    assert policy.t == 15
    assert space.contains(policy.recommend().params).all()
    assert np.isfinite(study.best_value)


def test_what_cannot_be():
    with pytest.raises(ms.InvalidInput, match=r"Optuna has no rules: hand in a space that has them, MisspecSampler\("):
        MisspecSampler(where="x < 1")
    with pytest.raises(ms.InvalidInput, match="space must be a Space"):
        MisspecSampler(space={"x": ms.Float(0, 1)})
    study = optuna.create_study(sampler=MisspecSampler(space=ms.Space({"x": ms.Float(0, 1), "y": ms.Float(0, 1)})))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.sampler = optuna.samplers.PartialFixedSampler({"x": 0.5}, study.sampler)
    with pytest.raises(ms.InvalidInput, match="cannot be fixed beside it"):
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1) + trial.suggest_float("y", 0, 1), n_trials=1)


def test_an_objective_may_suggest_what_a_given_space_does_not_have_there(recwarn):
    space = ms.Space({"kind": ms.Choice(["a", "b"]), "x": ms.Float(0, 1, when={"kind": "a"})})
    study = optuna.create_study(sampler=MisspecSampler(seed=0, space=space))
    kinds = ["a", "b"]
    study.optimize(lambda t: len(t.suggest_categorical("kind", kinds)) + t.suggest_float("x", 0, 1), n_trials=12)
    assert len({trial.params["kind"] for trial in study.trials}) == 2
    assert not [each for each in recwarn if "does not count" in str(each.message)]
