"""States that were edited, and files of them that were damaged: read whole and right, or refused with an error of the
project's; and what is restored, answers."""

import copy
import functools
import json
import random
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

import misspec as ms
from damage import HOW, damaged
from hostile import OBJECTS, attempt, fuzz, hostile_numbers

MODEL = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1, offset=0.2)
LINEAR = ms.Model(ConstantKernel(0.5) * DotProduct(0.0), norm_bound=1.5, noise=0.1)
OTHER = ms.Model(ConstantKernel(0.5) * Matern([0.1, 0.3], nu=1.5), norm_bound=2.0, noise=0.1, offset=0.2)
POINTS = np.random.default_rng(0).random((8, 2))
LIST = ms.Finite(POINTS, names=[f"arm {i}" for i in range(8)])
BOX = ms.Box([(-1.0, 2.0)])
SPACE = ms.Space({"rate": ms.Float(1e-4, 1.0, log=True), "depth": ms.Int(1, 6), "kind": ms.Choice(["a", "b"])})
MEMBERS = ms.Space({"depth": ms.Int(1, 4), "kind": ms.Choice(["a", "b"])})
ROWS = {"heat": [20.0, 40.0, 60.0] * 2, "base": ["x", "y"] * 3, "yield": [0.1, None, 0.4, None, None, None]}
TABLE = ms.Finite.from_table(ROWS, target="yield")
RULED = ms.Finite.from_table(ROWS, target="yield", where="heat < 60 or base == 'y'")

MAKE = {
    "gp-ucb": lambda: ms.GPUCB(LIST, MODEL),
    "ec": lambda: ms.ECGPUCB(LIST, MODEL, epsilon=0.1),
    "phased": lambda: ms.PhasedUncertaintySampling(LIST, MODEL, horizon=60),
    "phased without end": lambda: ms.PhasedUncertaintySampling(LIST, MODEL),
    "balancing": lambda: ms.RegretBalancing(LIST, MODEL, horizon=100),
    "balancing kernels": lambda: ms.RegretBalancing(LIST, MODEL, horizon=100, bases=[(OTHER, 0.1), (MODEL, 0.0)]),
    "insured": lambda: ms.InsuredUCB(LIST, MODEL, premium=0.5),
    "thompson": lambda: ms.ThompsonSampling(LIST, MODEL),
    "uniform": lambda: ms.UniformSampling(LIST, MODEL),
    "corruption": lambda: ms.comparators.CorruptionTolerantGPUCB(LIST, MODEL, corruption=1.0),
    "phased elimination": lambda: ms.comparators.PhasedElimination(LIST, LINEAR, horizon=200),
    "rips": lambda: ms.comparators.RIPS(LIST, LINEAR, horizon=200, accuracy=1.0, reward_bound=0.8),
    "lb-gp-ucb": lambda: ms.comparators.LBGPUCB(LIST, MODEL, horizon=100, initial=2),
    "splitting": lambda: ms.comparators.DomainSplitting(LIST, MODEL, epsilon=0.1),
    "prior elimination": lambda: ms.comparators.PriorElimination(LIST, [MODEL, MODEL]),
    "corral": lambda: ms.comparators.Corral(LIST, MODEL, horizon=100, epsilons=[0.5, 0.1, 0.0]),
    "grid": lambda: ms.GPUCB(ms.Box([(0, 1)]).grid(7), MODEL, width=2.0),
    "members": lambda: ms.GPUCB(MEMBERS, MODEL),
    "table": lambda: ms.ECGPUCB(TABLE, MODEL, epsilon=0.1),
    "table with rules": lambda: ms.ECGPUCB(RULED, MODEL, epsilon=0.1),
    "box": lambda: ms.UniformSampling(BOX, MODEL),
    "space": lambda: ms.UniformSampling(SPACE, MODEL),
    "open": lambda: ms.RegretBalancing(ms.Open(3), LINEAR, horizon=100),
    "linear": lambda: ms.comparators.LinUCB(ms.Open(3, radius=1.0), LINEAR),
    "joint": lambda: ms.GPUCB(ms.Joint(LIST, ms.Box([(0, 1)])), MODEL),
    "compacted": lambda: ms.comparators.LinUCB(ms.Open(3), LINEAR),
    "compacted insured": lambda: ms.InsuredUCB(ms.Open(3), LINEAR),
    "compacted list": lambda: ms.GPUCB(LIST, MODEL),
}
SLOW = {
    "auto": lambda: ms.Auto(TABLE),
    "searched": lambda: ms.GPUCB(BOX, MODEL),
    "phased on a box": lambda: ms.PhasedUncertaintySampling(BOX, MODEL, horizon=60),
    "joint box": lambda: ms.GPUCB(ms.Joint(BOX, ms.Box([(0, 1)])), MODEL),
}
ROUND = {
    "open": {"actions": np.eye(3)},
    "linear": {"actions": np.eye(3)},
    "compacted": {"actions": np.eye(3)},
    "compacted insured": {"actions": np.eye(3)},
    "joint": {"context": [0.3]},
    "joint box": {"context": [0.3]},
}


@functools.cache
def played(name):
    """The state of a policy with everything in it: results, failures, data from elsewhere, and queries that pend."""
    policy, rng = {**MAKE, **SLOW}[name](), np.random.default_rng(1)
    for t in range(4):
        for query in policy.ask(2, **ROUND.get(name, {})):
            policy.drop(query) if t == 1 else policy.tell(query, float(rng.normal()))
        if t == 2 and name.startswith("compacted"):
            policy.compact(max_history=100)
    if policy.abilities.takes_data and policy.field.fixed:
        policy.observe(policy.field.draw(rng).points[:2], rng.normal(size=min(2, len(policy.field.draw(rng).points))))
    policy.ask(2, **ROUND.get(name, {}))
    return json.dumps(policy.state())


# -- edits -------------------------------------------------------------------------------------------------------------


def leaves(tree):
    """All containers in a tree with keys of what holds nothing more."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    for key in keys:
        if isinstance(tree[key], dict | list) and tree[key]:
            yield from leaves(tree[key])
        else:
            yield tree, key


def spot(tree, chance, stop):
    """A random container in a tree and a key of it; stop: the chance to go no deeper at every level, None for leaves
    alone, each as likely as any other."""
    if stop is None:
        return chance.choice(list(leaves(tree)))
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        key = chance.choice(keys)
        inside = tree[key]
        if not isinstance(inside, dict | list) or not inside or chance.random() < stop:
            return tree, key
        tree = inside


def deep(levels, wrap):
    found = 1.0
    for _ in range(levels):
        found = wrap(found)
    return found


def retyped(value, chance):
    """Nearly the same, of another type."""
    ways = [str, lambda v: [v], lambda v: {"x": v}, lambda v: (v,), bool, lambda v: [v, v], lambda v: None]
    if isinstance(value, int | float):
        ways += [np.float64, np.array, lambda v: v * 10**400, complex]
    if isinstance(value, list | str):
        ways += [lambda v: v[::-1], lambda v: v[:-1], lambda v: v + v[:1], tuple]
    if isinstance(value, dict):
        ways += [lambda v: list(v.items()), lambda v: {**v, "odd": 1.0}, lambda v: {1: v}]
    try:
        return chance.choice(ways)(value)
    except OverflowError:
        return value


def nudged(value, chance):
    """Of the same type, and perhaps legal."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice([0, -1, value + 1, value - 1, value + 7, 2 * value, 10**6, 10**15, -value])
    if isinstance(value, float):
        return chance.choice([0.0, -value, value + 0.1, value * 1e-9, value * 1e9, 1e149, 1e-149, 1.0, float("nan")])
    if isinstance(value, str):
        return chance.choice(["", "exact", "norm2", "paper", "own", "realised", "all", "other", value + "x"])
    if isinstance(value, list) and len(value) > 1:
        i, j = sorted(chance.sample(range(len(value)), 2))
        swapped = [*value[:i], value[j], *value[i + 1 : j], value[i], *value[j + 1 :]]
        return chance.choice([swapped, swapped, [*value[:i], *value[i + 1 :]], [*value[:i], value[j], *value[i:]]])
    if isinstance(value, dict) and value:
        return {name: each for name, each in value.items() if name != chance.choice(list(value))}
    return chance.choice([0, 1, 0.5, "all", [], True])  # of nothing


def edited(state, chance, odd):
    """The state with one to three edits, half of them in its events; odd: a hostile value."""
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        whole = isinstance(state.get("events"), list) and state["events"]
        settings = isinstance(state.get("settings"), dict) and state["settings"]
        part = chance.choice([state, whole or state, whole or state, settings or state])
        tree, key = spot(part, chance, chance.choice([None, None, 0.0, 0.3]))
        what = chance.choice(["nudge"] * 12 + ["order"] * 4 + ["delete", "replace", "retype", "swap", "copy", "deep"])
        if what == "nudge":
            tree[key] = nudged(tree[key], chance)
        elif what == "order" and whole:
            state["events"] = nudged(state["events"], chance)
        elif what == "delete":
            del tree[key]
        elif what == "replace":
            tree[key] = odd
        elif what == "retype":
            tree[key] = retyped(tree[key], chance)
        elif what == "deep":
            tree[key] = deep(chance.choice([3, 50, 10_000]), chance.choice([lambda v: [v], lambda v: {"kernel": v}]))
            break  # no further edits in there
        else:
            source, there = spot(state, chance, stop=0.3)
            one, other = tree[key], source[there]
            tree[key] = copy.copy(other)
            if what == "swap":
                source[there] = copy.copy(one)
            break  # which may have put it inside itself
    return state


def answers(policy, name):
    """Whatever it says, it says as a policy does."""
    options = ROUND.get(name, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numbers that overflow
        query = attempt(lambda: policy.ask(**options))
        if query is not None:
            attempt(lambda: policy.tell(query, 0.3))
        attempt(lambda: policy.recommend(**options))
        json.dumps(attempt(policy.state))


odd_values = st.one_of(st.sampled_from(OBJECTS), hostile_numbers)


def check(name, seed, odd):
    chance = random.Random(seed)
    state = edited(json.loads(played(name)), chance, odd)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        policy = attempt(lambda: ms.restore(state))
    if policy is not None:
        answers(policy, name)
    return policy is not None


@fuzz(2300, name=st.sampled_from(sorted(MAKE)), seed=st.integers(0, 2**40), odd=odd_values)
def test_an_edited_state_is_restored_or_refused(name, seed, odd):
    check(name, seed, odd)


@fuzz(200, name=st.sampled_from(sorted(SLOW)), seed=st.integers(0, 2**40), odd=odd_values)
def test_an_edited_state_of_one_that_searches_or_learns(name, seed, odd):
    check(name, seed, odd)


@pytest.mark.parametrize("name", [*MAKE, *SLOW])
def test_what_is_not_edited_is_restored(name):
    assert json.dumps(ms.restore(json.loads(played(name))).state()) == played(name)


# -- files -------------------------------------------------------------------------------------------------------------

SAVED = ("grid", "table", "box", "joint", "compacted insured", "auto")


@functools.cache
def saved(name):
    """The file of a state."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        ms.restore(json.loads(played(name))).save(path)
        return path.read_bytes()


def loaded(content):
    """The policy of a file, or None where it is refused; the file is left as it is."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        path = Path(folder) / "a"
        path.write_bytes(content)
        policy = attempt(lambda: ms.load(path))
        assert path.read_bytes() == content
        assert [each.name for each in path.parent.iterdir()] == ["a"]
        return policy


@fuzz(700, name=st.sampled_from(SAVED), how=st.sampled_from(["cut", *HOW]), seed=st.integers(0, 2**40))
def test_a_damaged_file_is_refused(name, how, seed):
    chance, whole = random.Random(seed), saved(name)
    policy = loaded(whole[: chance.randrange(len(whole))] if how == "cut" else damaged(whole, how, chance))
    if policy is not None:  # zeros after the end, as a power cut leaves them
        assert json.loads(json.dumps(policy.state())) == json.loads(played(name))


@pytest.mark.parametrize("name", SAVED)
def test_a_file_that_is_not_damaged_is_read(name):
    assert json.loads(json.dumps(loaded(saved(name)).state())) == json.loads(played(name))
