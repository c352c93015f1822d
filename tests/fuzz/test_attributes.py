"""Attributes of a study in Optuna's storage that another version or a person has written: they are ignored."""

import copy
import functools
import itertools
import math
import random

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState, create_trial
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec.integrations.command import processes
from misspec.integrations.command.shared_study import BEAT, CLAIM, OWNER, PROCESS, RETRY, Shared
from misspec.integrations.optuna import MisspecSampler, policy_of
from misspec.integrations.optuna.sampler import LEARNT
from misspec.integrations.optuna.trials import AGAIN, ASKED

optuna.logging.set_verbosity(optuna.logging.ERROR)
MODEL = ms.Model(RBF(0.5), norm_bound=1.0, noise=0.1)
SAMPLERS = {
    "auto": {"noise": 0.1},
    "gp_ucb": {"policy": lambda space: ms.GPUCB(space, MODEL)},
    "ec": {"policy": lambda space: ms.ECGPUCB(space, MODEL, epsilon=0.1)},
    "balancing": {"policy": lambda space: ms.RegretBalancing(space, MODEL, horizon=30)},
}
SPACE = {"x": FloatDistribution(0, 1), "k": CategoricalDistribution(("a", "b"))}
ODD = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2.5,
    1e308,
    10**400,
    -(10**400),
    math.inf,
    -math.inf,
    math.nan,
    "",
    "x",
    "1",
    [],
    {},
]
ODD += [
    [[]],
    [None],
    {"x": None},
    [math.nan] * 2,
    [1, 2, 3],
    [[[[[[[[0]]]]]]]],
    {"": {"": []}},
    ["ask"],
    ["ask", {}],
    "a" * 5000,
]


def sampler(name):
    return MisspecSampler(seed=0, **SAMPLERS[name])


@functools.cache
def played(name):
    """A study of eight trials: the last one runs."""
    study = optuna.create_study(direction="maximize", sampler=sampler(name))
    for i in range(8):
        trial = study.ask(SPACE)
        if i < 7:
            study.tell(trial, -((trial.params["x"] - 0.3) ** 2) - (trial.params["k"] == "b"))
    return study


def places(tree):
    """All parts of a JSON tree, as the container and the key; the whole is the part of nothing."""
    yield None, None
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else []:
        yield tree, key
        for inner, part in places(tree[key]):
            if inner is not None:
                yield inner, part


def mutated(tree, rng):
    """The same tree with one to three parts replaced, removed, doubled or negated."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.randint(1, 3)):
        inner, key = rng.choice(list(places(tree)))
        odd = copy.deepcopy(rng.choice(ODD))
        how = rng.choice(["replace", "replace", "replace", "remove", "double", "negate"])
        if inner is None:
            tree = odd if how == "replace" and rng.random() < 0.3 else tree
        elif how == "remove":
            del inner[key]
        elif how == "double" and isinstance(inner, list):
            inner.append(copy.deepcopy(inner[key]))
        elif how == "negate" and isinstance(inner[key], int | float):
            inner[key] = -inner[key]
        else:
            inner[key] = odd
    return tree


def spoilt(attributes, key, rng):
    """Attributes of which one says something else."""
    return attributes | {key: mutated(attributes[key], rng)}


def a_copy(name, rng):
    """A study of the same trials with other attributes: the study's, or those of some trials."""
    origin, study = played(name), optuna.create_study(direction="maximize")
    attributes = dict(origin._storage.get_study_system_attrs(origin._study_id))
    kept = [key for key in attributes if key.startswith(LEARNT)]
    of_study = bool(kept) and rng.random() < 0.5
    if of_study:
        attributes = spoilt(attributes, rng.choice(kept), rng)
    for key, value in attributes.items():
        study._storage.set_study_system_attr(study._study_id, key, value)
    for trial in origin.get_trials():
        if ASKED in trial.system_attrs and (trial.number == 7 or not of_study) and rng.random() < 0.7:
            trial.system_attrs = spoilt(trial.system_attrs, ASKED, rng)
        if trial.number == 7 and rng.random() < 0.5:  # its parameters are not suggested yet
            trial.params, trial.distributions = {}, {}
        study.add_trial(trial)
    return study


def failures(count, names=tuple(SAMPLERS)):
    """What the samplers raise, by study."""
    found, rng = {}, random.Random(3)
    for i, name in zip(range(count), itertools.cycle(names), strict=False):
        study = a_copy(name, rng)
        study.sampler = sampler(name)
        try:
            trial = study.ask(SPACE)
            assert 0 <= trial.params["x"] <= 1
            study.tell(trial, 0.5)
            study.ask(SPACE)
            policy_of(study)
        except Exception as error:
            found[i] = f"{name}: {type(error).__name__}: {error}"
    return found


@pytest.mark.parametrize("name", ["auto", "gp_ucb"])
def test_attributes_of_others_are_ignored(name):
    assert failures(5, [name]) == {}


@pytest.mark.slow
def test_attributes_of_others_are_ignored_in_many_studies():
    assert failures(180) == {}


def test_attributes_of_processes_are_ignored(tmp_path):
    """What `misspec optimize` keeps of who evaluates what: no trial stops the others."""
    rng, owner = random.Random(4), {"run": "r", "host": processes.host(), "pid": 2**22, "start": "never"}
    kept = {OWNER: owner, BEAT: 3, PROCESS: {"pid": 2**22, "start": "never"}, RETRY: {"of": 0, "deaths": 1}}
    kept |= {AGAIN: {"deaths": 1}, f"{CLAIM}r": {"trial": 0, "params": 0, **owner}}
    space = ms.Space({"x": ms.Float(0.0, 1.0)})
    shared = Shared(
        f"journal:///{tmp_path / 'j'}", "s", space, minimize=True, n=9, grace=0.0,
        sampler=MisspecSampler(seed=0),
    )  # fmt: skip
    try:
        for _ in range(150):
            attributes = {key: mutated([value], rng) for key, value in kept.items() if rng.random() < 0.7}
            attributes = {
                key: (value or [None])[0] if isinstance(value, list) else value for key, value in attributes.items()
            }
            state = rng.choice([TrialState.RUNNING, TrialState.FAIL])
            shared.study.add_trial(create_trial(state=state, system_attrs=attributes))
        for _ in range(3):
            shared.reap()
            assert shared.claim() is not None
            assert shared.standing().done == 0
    finally:
        shared.close()
