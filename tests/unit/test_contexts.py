"""Rounds that bring their own actions (`Open`), and the joint setting f(x, c) (`Joint`): every policy, every kind."""

import copy
import dataclasses
import json
import pickle
import threading

import numpy as np
import polars as pl
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

import misspec as ms
from misspec.testing import assert_same

MODEL = ms.Model(RBF(0.7), norm_bound=1.5, noise=0.1, offset=0.2)
LINEAR = ms.Model(DotProduct(sigma_0=0.2), norm_bound=1.5, noise=0.1)
ARMS = np.random.default_rng(0).random((9, 2))

DOMAINS = {
    "finite": ms.Finite(ARMS, names=[f"arm {i}" for i in range(9)]),
    "grid": ms.Box([(0, 4), (2, 3)]).grid(3),
    "box": ms.Box([(-3.0, 0.7), (0.0, 2.0)]),
    "floats": ms.Space({"rate": ms.Float(1e-4, 1.0, log=True), "weight": ms.Float(0.0, 2.0)}),
    "ints": ms.Space({"depth": ms.Int(1, 5), "kind": ms.Choice(["a", "b"])}),
    "table": ms.Finite.from_table(
        {"heat": [1.0, 2.0, 3.0, 1.0], "acid": ["x", "y", "x", "x"], "id": [1, 2, 3, 4]}, ignore="id"
    ),
}  # fmt: skip
CONTEXTS = {
    "box": (ms.Box([(0, 2)]), lambda rng: 2 * rng.random(1)),
    "space": (
        ms.Space({"user": ms.Float(1, 9), "group": ms.Choice(["m", "f", None])}),
        lambda rng: {"user": float(1 + 8 * rng.random()), "group": ["m", "f", None][rng.integers(3)]},
    ),
    "finite": (
        ms.Finite([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]], names=["n", "s", "e"]),
        lambda rng: int(rng.integers(3)),
    ),
    "open": (ms.Open(2), lambda rng: rng.standard_normal(2)),
}  # fmt: skip
LISTED = ("finite", "grid", "ints", "table")


def ball(rng, n, d=2):
    X = rng.standard_normal((n, d))
    return 0.9 * X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))


WORLDS = {
    "open": (ms.Open(2), lambda rng: {"actions": ball(rng, 5)}),
    "ball": (ms.Open(2, radius=1.0), lambda rng: {"actions": ball(rng, 5)}),
    "open box": (ms.Open(2, box=[(-1, 1), (-1, 1)]), lambda rng: {"actions": ball(rng, 3)}),
    **{
        f"{x} × {c}": (ms.Joint(DOMAINS[x], CONTEXTS[c][0]), lambda rng, c=c: {"context": CONTEXTS[c][1](rng)})
        for x in DOMAINS
        for c in CONTEXTS
        if x in LISTED or c in ("box", "space")
    },
}
QUICK = [name for name in WORLDS if not name.startswith(("box", "floats"))]  # those that need no search
FEW = ["open", "ball", "finite × space", "finite × finite", "ints × open", "table × box"]

POLICIES = {
    "gp-ucb": lambda d, **o: ms.GPUCB(d, MODEL, **o),
    "gp-ucb grounded": lambda d, **o: ms.GPUCB(d, MODEL, grounded=True, **o),
    "ec": lambda d, **o: ms.ECGPUCB(d, MODEL, epsilon=0.1, **o),
    "ec exact": lambda d, **o: ms.ECGPUCB(d, MODEL, epsilon=0.1, enlargement="exact", **o),
    "ec norm2": lambda d, **o: ms.ECGPUCB(d, MODEL, epsilon=0.1, enlargement="norm2", inflate=True, **o),
    "ec paper": lambda d, **o: ms.ECGPUCB(d, MODEL, epsilon=0.1, enlargement="paper", **o),
    "balancing": lambda d, **o: ms.RegretBalancing(d, MODEL, horizon=60, **o),
    "balancing own": lambda d, **o: ms.RegretBalancing(d, MODEL, horizon=60, evidence="own", grounded=False, **o),
    "thompson": lambda d, **o: ms.ThompsonSampling(d, MODEL, **o),
    "uniform": lambda d, **o: ms.UniformSampling(d, MODEL, **o),
    "corruption": lambda d, **o: ms.comparators.CorruptionTolerantGPUCB(d, MODEL, corruption=1.0, **o),
    "numeric": lambda d, **o: ms.GPUCB(d, MODEL, width=2.0, **o),
}
BOTH = [(name, {}) for name in POLICIES] + [(name, {"budget": 6}) for name in POLICIES]
IDS = [f"{name}{' with a budget' if o else ''}" for name, o in BOTH]


def value(query):
    """A result that depends on the query alone."""
    x = float(np.sin(2 * query.x).sum()) + (0.0 if query.context is None else float(np.cos(query.context).sum()))
    return 0.3 * x + 0.05 * float(np.random.default_rng([7, query.id]).standard_normal())


def played(policy, world, rounds=6, seed=1):
    """Rounds of one, a batch told in reverse, one that is dropped, and some that stay pending."""
    rng = np.random.default_rng(seed)
    offers = WORLDS[world][1]
    for turn in range(rounds):
        query = policy.ask(**offers(rng))
        policy.tell(query, value(query))
        if turn % 3 == 1:
            batch = policy.ask(3, **offers(rng))
            policy.tell(batch[::-1], [value(q) for q in batch[::-1]])
        if turn % 3 == 2:
            policy.ask(**offers(rng))
            policy.drop(policy.ask(**offers(rng)))
    return policy


def where(policy, rng, n=6):
    """Points of the domain, as `band` takes them."""
    domain = policy.domain
    if isinstance(domain, ms.Open):
        return (ball(rng, n),), {}
    c = CONTEXTS[domain.contexts.kind.lower()][1](rng)
    inner = policy.field.inner
    rows = rng.integers(len(inner.spread().points), size=n)
    return (inner.spread().points[rows],), {"context": c}


def answers(policy, seed=3):
    args, options = where(policy, np.random.default_rng(seed))
    band = policy.band(*args, **options)
    return (
        json.dumps(policy.state(), sort_keys=True),
        band.lower.tolist(),
        band.upper.tolist(),
        policy.t,
        [q.id for q in policy.pending],
    )


# -- Open --------------------------------------------------------------------------------------------------------------


def test_open_says_what_it_is():
    assert repr(ms.Open(3)) == "Open(3)"
    assert repr(ms.Open(2, radius=1)) == "Open(2, radius=1.0)"
    assert repr(ms.Open(1, box=[(0, 2)])) == "Open(1, box=[(0.0, 2.0)])"
    assert ms.Open(2, box=ms.Box([(0, 1), (2, 3)])).box.bounds == [(0.0, 1.0), (2.0, 3.0)]
    assert not ms.Open(3).bounded
    assert ms.Open(3, radius=2).bounded
    assert ms.Open(np.int64(4)).dimension == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"dimension": 0}, "dimension must be a whole number ≥ 1, got 0"),
        ({"dimension": 2.0}, "dimension must be a whole number"),
        ({"dimension": True}, "dimension must be a whole number"),
        ({"dimension": "two"}, "dimension must be a whole number"),
        ({"dimension": 2, "radius": 0}, "radius must be a finite number > 0, got 0"),
        ({"dimension": 2, "radius": np.nan}, "radius must be a finite number > 0, got nan"),
        ({"dimension": 2, "radius": np.inf}, "radius"),
        ({"dimension": 2, "box": [(0, 1)]}, r"box must have 2 \(low, high\) pair\(s\), one per dimension, got 1"),
        ({"dimension": 1, "box": [(1, 0)]}, "low < high"),
        ({"dimension": 1, "box": 3}, "pairs"),
    ],
)
def test_open_refuses(arguments, says):
    with pytest.raises(ms.InvalidInput, match=says):
        ms.Open(**arguments)


def test_what_lies_in_an_open_domain():
    ball_, cube = ms.Open(2, radius=1.0), ms.Open(2, box=[(0, 1), (-2, 2)])
    assert ball_.contains([[1.0, 0.0], [0.8, 0.7], [0.0, 0.0]]).tolist() == [True, False, True]
    assert ball_.contains([[1.0 + 1e-12, 0.0], [1.0 + 1e-6, 0.0]]).tolist() == [True, False]  # up to rounding
    assert cube.contains([[0.0, -2.0], [1.0, 2.0], [1.1, 0.0], [0.5, -2.1]]).tolist() == [True, True, False, False]
    both = ms.Open(2, radius=1.0, box=[(0, 1), (0, 1)])
    assert both.contains([[0.6, 0.6], [0.9, 0.9], [-0.5, 0.1]]).tolist() == [True, False, False]
    assert ms.Open(2).contains([[1e9, -1e9]]).all()
    assert ball_.contains(np.zeros((0, 2))).tolist() == []
    for domain in (ball_, cube, both, ms.Open(2), ms.Open(13, box=[(0, 1)] * 13), ms.Open(13, radius=0.3)):
        probes = domain.probes()
        assert probes.shape[1] == domain.dimension
        assert domain.contains(probes).all()
    np.testing.assert_array_equal(ms.Open(2).encode([[1, 2]]), [[1.0, 2.0]])  # kernels see points as they are
    assert [c.name for c in ms.Open(2).columns] == ["x0", "x1"]


def test_a_kernel_is_checked_on_what_is_known_of_an_open_domain():
    long = ms.Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1)
    for domain in (ms.Open(2), ms.Open(2, radius=1.0), ms.Open(2, box=[(0, 0.7), (-0.7, 0)])):
        ms.GPUCB(domain, long)
    for domain in (ms.Open(2, radius=1.1), ms.Open(2, box=[(-0.8, 0), (0, 0.8)]), ms.Open(13, box=[(0, 1)] * 13)):
        with pytest.raises(ms.InvalidInput, match=r"k\(x,x\) must be at most 1 on the domain.*Either scale"):
            ms.GPUCB(domain, long)
    with pytest.raises(ms.InvalidInput, match="length scales"):
        ms.GPUCB(ms.Open(3), ms.Model(RBF([0.1, 0.2]), norm_bound=1.0, noise=0.1))


BAD_ACTIONS = {
    "another dimension": ([[0.1, 0.2, 0.3]], r"2 (column|number)"),
    "one point, flat": ([0.1, 0.2], "2-d, one per row"),
    "indices": ([0, 1], "indices need a Finite domain.*hand in points"),
    "a number": (3, "2-d, one per row"),
    "nothing": (np.zeros((0, 2)), "nothing to choose from"),
    "an empty list": ([], "nothing to choose from"),
    "NaN": ([[0.1, 0.2], [np.nan, 0.1]], r"finite, got nan at position \(1, 0\).*repair"),
    "infinity": (np.array([[0.1, np.inf]]), "finite, got inf"),
    "text": ([["a", "b"]], "numbers"),
    "names": (["a", "b"], "2-d, one per row"),
    "dicts": ([{"x": 1.0}], "no names"),
    "True and False": ([[True, False]], "True and False"),
    "ragged": ([[0.1, 0.2], [0.3]], "one per row"),
    "too deep": (np.zeros((2, 2, 2)), "2-d, one per row"),
}


@pytest.mark.parametrize("model", [MODEL, LINEAR], ids=["rbf", "linear"])
@pytest.mark.parametrize("name", BAD_ACTIONS)
def test_actions_that_are_refused(name, model):
    actions, says = BAD_ACTIONS[name]
    policy = ms.ECGPUCB(ms.Open(2), model, epsilon=0.1)
    policy.tell(policy.ask(actions=[[0.1, 0.2]]), 0.5)
    policy.ask(actions=[[0.3, 0.2]])
    before = answers(policy)
    for call in (
        lambda: policy.ask(actions=actions),
        lambda: policy.ask(2, actions=actions),
        lambda: policy.recommend(actions=actions),
        lambda: policy.band(actions),
        lambda: policy.observe(actions, [0.1] * max(1, np.size(actions) // 2) if name != "ragged" else [0.1, 0.2]),
    ):
        with pytest.raises(ms.InvalidInput, match=says):
            call()
        assert answers(policy) == before


def test_an_empty_log_is_no_error():
    policy = ms.GPUCB(ms.Open(2), MODEL)
    before = answers(policy)
    policy.observe([], [])
    policy.observe(np.zeros((0, 2)), [])
    assert answers(policy) == before


@pytest.mark.parametrize(
    ("domain", "model", "actions", "says"),
    [
        (ms.Open(2, radius=1.0), MODEL, [[0.1, 0.2], [1.0, 0.2]], r"must lie in Open\(2, radius=1.0\), row 1.*scale"),
        (ms.Open(2, box=[(0, 1)] * 2), MODEL, [[0.1, -0.2]], r"must lie in Open\(2, box=.*row 0"),
        (ms.Open(2), LINEAR, [[0.1, 0.2], [3.0, 4.0]], r"k\(x,x\) must be at most 1.*25.*Either scale"),
        (ms.Open(2), LINEAR, [[1e200, 0.0]], "."),
        (ms.Open(2, radius=1.0), MODEL, [[1e100, 0.0]], "must lie in"),
        (ms.Joint(DOMAINS["finite"], ms.Open(1)), LINEAR, None, r"k\(x,x\) must be at most 1"),
        (ms.Joint(ms.Box([(0, 0.5)]), ms.Open(1)), LINEAR, None, r"k\(x,x\) must be at most 1"),
    ],
    ids=["radius", "box", "kernel", "kernel far away", "far away", "context on a list", "context on a box"],
)
def test_points_too_far_out_are_refused(domain, model, actions, says):
    """Also where a context is too far out: k(x,x) ≤ 1 is checked, never assumed."""
    policy = ms.GPUCB(domain, model)
    calls = [
        lambda: policy.ask(actions=np.array(actions)),
        lambda: policy.ask(actions=actions),
        lambda: policy.recommend(actions=actions),
        lambda: policy.band(actions),
        lambda: policy.observe(actions, np.zeros(len(actions))),
    ]
    if isinstance(domain, ms.Joint):
        x = domain.domain.probes()[:1]
        calls = [
            lambda: policy.ask(context=[50.0]),
            lambda: policy.ask(actions=x, context=[50.0]),
            lambda: policy.recommend(context=[50.0]),
            lambda: policy.band(x, context=[50.0]),
            lambda: policy.observe(x, [0.1], context=[50.0]),
            lambda: policy.observe(np.column_stack([x, [50.0]]), [0.1]),
        ]
    before = json.dumps(policy.state())
    for call in calls:
        with pytest.raises(ms.InvalidInput, match=says):
            call()
        assert json.dumps(policy.state()) == before


@pytest.mark.parametrize("call", ["ask", "ask batch", "recommend", "band", "uniform", "thompson", "auto", "context"])
def test_what_is_missing_is_asked_for(call):
    policy, joint = ms.GPUCB(ms.Open(2), MODEL), ms.GPUCB(ms.Joint(DOMAINS["finite"], CONTEXTS["box"][0]), MODEL)
    box = ms.GPUCB(ms.Joint(DOMAINS["box"], CONTEXTS["box"][0]), MODEL)
    calls = {
        "ask": [policy.ask, joint.ask, box.ask],
        "ask batch": [lambda: policy.ask(3), lambda: joint.ask(3), lambda: box.ask(3)],
        "recommend": [policy.recommend, joint.recommend, box.recommend],
        "band": [policy.band, joint.band, box.band],
        "uniform": [ms.UniformSampling(policy.domain, MODEL).ask, ms.UniformSampling(box.domain, MODEL).ask],
        "thompson": [ms.ThompsonSampling(policy.domain, MODEL).ask, ms.ThompsonSampling(joint.domain, MODEL).ask],
        "auto": [ms.Auto(policy.domain).ask, ms.Auto(joint.domain).ask, ms.Auto(box.domain).ask],
        "context": [lambda: policy.ask(context=[1.0]), lambda: policy.band([[0.1, 0.1]], context=[1.0]),
                    lambda: policy.observe([[0.1, 0.1]], [0.1], context=[1.0]), lambda: policy.recommend(context=0)],
    }  # fmt: skip
    for each in calls[call]:
        with pytest.raises(ms.InvalidInput, match=r"actions=|context=|no contexts.*ms\.Joint|band\(X, context"):
            each()


# -- what is handed in: the same numbers, whatever they come in --------------------------------------------------------


SAME = {
    "a list": lambda A: A.tolist(),
    "tuples": lambda A: tuple(map(tuple, A.tolist())),
    "columns first": np.asfortranarray,
    "every other row": lambda A: np.repeat(A, 2, axis=0)[::2],
    "every other column": lambda A: np.repeat(A, 2, axis=1)[:, ::2],
    "backwards, backwards": lambda A: np.ascontiguousarray(A[::-1, ::-1])[::-1, ::-1],
    "read-only": lambda A: np.frombuffer(A.tobytes()).reshape(A.shape),
    "objects": lambda A: A.astype(object),
    "a frame": lambda A: pl.DataFrame({"a": A[:, 0], "b": A[:, 1]}),
    "minus zero": lambda A: np.where(A == 0.0, -0.0, A),
    "single precision": lambda A: A.astype(np.float32),
    "whole numbers": lambda A: A.astype(np.int64),
}


@pytest.mark.parametrize(
    "model",
    [ms.Model(RBF(2.0), norm_bound=1.5, noise=0.1), ms.Model(DotProduct(0) * (1 / 16), norm_bound=1.5, noise=0.1)],
)
@pytest.mark.parametrize("name", SAME)
def test_numbers_are_the_same_whatever_they_come_in(name, model):
    A = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, -1.0], [0.0, 0.0]])  # exact in any precision
    other = SAME[name]
    policies = [ms.ECGPUCB(ms.Open(2), model, epsilon=0.1) for _ in range(2)]
    for policy, seen in zip(policies, (A, other(A)), strict=True):
        policy.observe(seen, [0.1, 0.2, 0.3, 0.4])
        policy.tell(policy.ask(actions=seen), 0.7)
        policy.ask(2, actions=seen)
    one, two = policies
    for a, b in zip(one.pending, two.pending, strict=True):
        assert_same(a, b)
        assert not np.signbit(b.x[b.x == 0.0]).any()
    assert answers(one) == answers(two)
    for a, b in zip(one.band(A), two.band(other(A)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.recommend(actions=A).position == two.recommend(actions=other(A)).position
    assert len(two._evidence.own) == 4  # one own band per point


def test_arrays_that_are_changed_afterwards_change_nothing():
    rng = np.random.default_rng(0)
    for world in ("open", "ball", "finite × box", "box × box"):
        domain, offers = WORLDS[world]
        policy, offer = ms.GPUCB(domain, MODEL, grounded=True), offers(rng)
        policy.tell(policy.ask(**offer), 0.3)
        query = policy.ask(**offer)
        before, x = answers(policy), query.x.copy()
        for each in offer.values():
            each[:] = 0.123
        assert answers(policy) == before
        np.testing.assert_array_equal(query.x, x)
        policy.tell(query, 0.4)
        policy.ask(**offers(rng))
        assert ms.restore(policy.state()).state() == policy.state()


def test_zero_and_minus_zero_are_one_context():
    joint = ms.Joint(DOMAINS["finite"], ms.Box([(-1, 1)]))
    policy = ms.GPUCB(joint, MODEL, grounded=True)
    policy.observe([2], [0.5], context=[0.0])
    policy.observe([2], [0.6], context=[-0.0])
    policy.observe(np.append(ARMS[2], -0.0)[None], [0.7])
    assert len(policy._evidence.own) == 1
    assert policy.posterior.distinct == 1
    for zero in ([0.0], [-0.0], 0, np.float32(-0.0), np.array([[0]])):
        for a, b in zip(policy.band(context=zero), policy.band(context=[0.0]), strict=True):
            np.testing.assert_array_equal(a, b)


# -- Joint -------------------------------------------------------------------------------------------------------------


def test_joint_refuses_what_it_cannot_join():
    box = ms.Box([(0, 1)])
    for domain in (ms.Open(2), ms.Joint(box, box), [[0, 1]], None):
        with pytest.raises(ms.InvalidInput, match="domain must be a Finite, Box or Space, got"):
            ms.Joint(domain, box)
    for contexts in (ms.Joint(box, box), 3, None, [[0, 1]]):
        with pytest.raises(ms.InvalidInput, match=r"contexts must be a Box, Space, Finite or Open, got.*ms\.Open"):
            ms.Joint(box, contexts)


@pytest.mark.parametrize("c", CONTEXTS)
@pytest.mark.parametrize("x", DOMAINS)
def test_points_of_a_joint_domain(x, c):
    domain, (contexts, draw) = DOMAINS[x], CONTEXTS[c]
    joint = ms.Joint(domain, contexts)
    assert joint.dimension == domain.dimension + contexts.dimension
    assert repr(domain) in repr(joint)
    probes = joint.probes()
    assert probes.shape[1] == domain.probes().shape[1] + contexts.probes().shape[1] == joint.columns[-1].stop
    assert joint.columns[0].start == 0
    assert all(a.stop == b.start for a, b in zip(joint.columns, joint.columns[1:], strict=False))
    rng = np.random.default_rng(4)
    policy = ms.GPUCB(joint, MODEL)
    query = policy.ask(context=draw(rng))
    assert query.x.shape == (domain.dimension,)
    assert query.context.shape == (contexts.dimension,)
    whole = np.concatenate([query.x, query.context])[None]
    assert joint.contains(whole).all()
    np.testing.assert_array_equal(joint.validate(whole), whole)
    code = joint.encode(whole)
    np.testing.assert_array_equal(code[0, : domain.probes().shape[1]], domain.encode(query.x[None])[0])
    np.testing.assert_array_equal(code[0, domain.probes().shape[1] :], contexts.encode(query.context[None])[0])
    assert (query.index is not None) == isinstance(domain, ms.Finite)
    assert (query.params is not None) == isinstance(domain, ms.Space)
    assert (query.row is not None) == (x == "table")
    assert (query.name is not None) == (x == "finite")
    for wrong in (whole[:, :-1], whole[0], np.full_like(whole, np.nan)):
        with pytest.raises(ms.InvalidInput, match=r"\[x, c\]"):
            joint.validate(wrong)
    for write in (lambda: query.context.__setitem__(0, 1.0), lambda: query.x.__setitem__(0, 1.0)):
        with pytest.raises(ValueError, match="read-only"):
            write()


@pytest.mark.parametrize("c", CONTEXTS)
@pytest.mark.parametrize("x", DOMAINS)
def test_a_joint_domain_asks_answers_and_learns(x, c):
    domain, (contexts, draw) = DOMAINS[x], CONTEXTS[c]
    policy, rng = ms.ECGPUCB(ms.Joint(domain, contexts), MODEL, epsilon=0.1), np.random.default_rng(5)
    first, second = draw(rng), draw(rng)
    for context in (first, second, first):
        query = policy.ask(context=context)
        policy.tell(query, value(query))
        assert domain.contains(query.x[None]).all()
    few = policy.field.inner.spread().points[:3]
    policy.observe(few, [0.1, 0.2, 0.3], context=first)  # one context for all
    c1, c2 = (policy.domain.context(each)[0] for each in (first, second))
    policy.observe(few, [0.1, 0.2, 0.3], context=np.array([c1, c2, c1]))  # one each
    policy.observe(np.column_stack([few, np.tile(c2, (3, 1))]), [0.1, 0.2, 0.3])  # whole points
    assert policy.t == policy.posterior.t == 12
    assert policy.observations.x.shape == (12, policy.domain.dimension)
    np.testing.assert_array_equal(policy.observations.x[3:6], np.column_stack([few, np.tile(c1, (3, 1))]))
    # bands: at x with a context, with one each, and at whole points, are the same
    band = policy.band(few, context=first)
    each, whole = (
        policy.band(few, context=np.tile(c1, (3, 1))),
        policy.band(np.column_stack([few, np.tile(c1, (3, 1))])),
    )
    for other in (each, whole):
        np.testing.assert_allclose(other.lower, band.lower, atol=1e-12)
        np.testing.assert_allclose(other.upper, band.upper, atol=1e-12)
    mean, _ = policy.posterior.at(np.column_stack([few, np.tile(c1, (3, 1))]))
    assert ((band.lower - 0.5 <= mean) & (mean <= band.upper + 0.5)).all()
    # a recommendation for a context, and among some of the actions
    best = policy.recommend(context=first)
    np.testing.assert_array_equal(best.context, c1)
    assert domain.contains(best.x[None]).all()
    assert best.position is None
    assert best.gap >= best.upper - best.lower - 1e-12
    some = policy.recommend(actions=few, context=first)
    assert some.position == int(np.argmin([np.abs(x - some.x).max() for x in few]))
    assert some.lower <= best.lower + 1e-9
    assert some.index is None or some.index == policy.field.inner.listed.indices(some.x[None])[0]
    assert not policy.pending
    policy.conflicts(), policy.caveats  # they can be looked at


def test_actions_of_a_joint_domain_in_every_form():
    rng = np.random.default_rng(6)
    finite = ms.GPUCB(ms.Joint(DOMAINS["finite"], CONTEXTS["space"][0]), MODEL)
    c = CONTEXTS["space"][1](rng)
    query = finite.ask(actions=[7, 2, 5], context=c)
    assert query.index == [7, 2, 5][query.position]
    query = finite.ask(actions=["arm 7", "arm 2"], context=c)
    assert query.name == ["arm 7", "arm 2"][query.position]
    query = finite.ask(actions=ARMS[[3, 4]], context=c)
    assert query.index == [3, 4][query.position]
    query = finite.ask(actions=[[0.25, 0.75]], context=c)  # no candidate
    assert (query.index, query.position) == (None, 0)
    ints = ms.GPUCB(ms.Joint(DOMAINS["ints"], CONTEXTS["finite"][0]), MODEL)
    offered = [{"depth": 2, "kind": "b"}, {"depth": 4, "kind": "a"}]
    for context in (1, "s", [1.0, 0.0], np.array([1.0, 0.0]), np.int64(1)):
        query = ints.ask(actions=offered, context=context)
        assert query.params == offered[query.position]
        np.testing.assert_array_equal(query.context, [1.0, 0.0])
    table = ms.GPUCB(ms.Joint(DOMAINS["table"], CONTEXTS["box"][0]), MODEL)
    query = table.ask(actions=[{"heat": 2.0, "acid": "y"}], context=0.5)
    assert (query.index, query.row["heat"]) == (1, 2.0)
    # whole points, each with a context of its own
    whole = np.column_stack([ARMS[:4], np.linspace(1, 9, 4), [0, 1, 2, 0]])
    query = finite.ask(actions=whole)
    np.testing.assert_array_equal(np.append(query.x, query.context), whole[query.position])
    assert query.index == query.position
    best = finite.recommend(actions=whole)
    np.testing.assert_array_equal(np.append(best.x, best.context), whole[best.position])


@pytest.mark.parametrize("x", LISTED)
def test_a_position_is_a_row_of_what_was_handed_in(x):
    """Without actions there is none, as in a recommendation."""
    policy = ms.GPUCB(ms.Joint(DOMAINS[x], CONTEXTS["box"][0]), MODEL)
    assert policy.ask(context=[0.3]).position is None
    assert policy.recommend(context=[0.3]).position is None
    assert ms.GPUCB(DOMAINS[x], MODEL).ask().position is None


BAD_CONTEXTS = {
    "too many numbers": ("box", [0.1, 0.2], "a context must be 1 number"),
    "NaN": ("box", [np.nan], "finite, got nan"),
    "text": ("box", "noon", "1 number"),
    "nothing": ("box", [], "."),
    "names where there are none": ("box", {"hour": 3}, "no names"),
    "an unknown name": ("space", {"user": 2.0, "grp": "m"}, "unknown parameter 'grp'; did you mean 'group'"),
    "an unknown choice": ("space", {"user": 2.0, "group": "x"}, "group"),
    "one parameter only": ("space", {"user": 2.0}, "must have a value of 'group'"),
    "several": ("space", [{"user": 2.0, "group": "m"}, {"user": 3.0, "group": "m"}], "one context is expected"),
    "between choices": ("space", [2.0, 0.5], "not rounded"),
    "no such index": ("finite", 3, r"0 … 2, got 3"),
    "a negative index": ("finite", -1, r"0 … 2, got -1"),
    "no such name": ("finite", "w", "no candidate is called 'w'"),
    "too far out": ("radius", [3.0, 4.0], r"must lie in Open\(2, radius=1.0\)"),
    "another dimension": ("open", [0.1], r"2 (column|number)"),
    "a function": ("open", len, "."),
}


@pytest.mark.parametrize("name", BAD_CONTEXTS)
@pytest.mark.parametrize("x", ["finite", "box"])
def test_contexts_that_are_refused(x, name):
    kind, context, says = BAD_CONTEXTS[name]
    contexts = ms.Open(2, radius=1.0) if kind == "radius" else CONTEXTS[kind][0]
    policy = ms.GPUCB(ms.Joint(DOMAINS[x], contexts), MODEL, grounded=True)
    good = contexts.probes()[:1] if kind != "space" else [[2.0, 1.0]]
    point = policy.field.inner.spread().points[:1]
    policy.observe(point, [0.3], context=np.asarray(good)[0])
    before = json.dumps(policy.state())
    calls = [
        lambda: policy.ask(context=context),
        lambda: policy.ask(2, context=context),
        lambda: policy.ask(actions=point, context=context),
        lambda: policy.recommend(context=context),
        lambda: policy.band(context=context),
    ]
    if name != "several":  # one for each row may be
        calls += [lambda: policy.band(point, context=context), lambda: policy.observe(point, [0.3], context=context)]
    for call in calls:
        with pytest.raises(ms.InvalidInput, match=says):
            call()
        assert json.dumps(policy.state()) == before


def test_as_many_contexts_as_points():
    policy = ms.GPUCB(ms.Joint(DOMAINS["finite"], CONTEXTS["space"][0]), MODEL)
    contexts = [{"user": 2.0, "group": "m"}, {"user": 3.0, "group": None}]
    policy.observe([0, 1], [0.1, 0.2], context=contexts)
    policy.observe([0, 1], [0.1, 0.2], context=pl.DataFrame({"user": [2.0, 3.0], "group": ["m", "f"]}))
    np.testing.assert_array_equal(policy.observations.x[:2, 2:], [[2.0, 0.0], [3.0, 2.0]])
    before = json.dumps(policy.state())
    for wrong in (contexts + contexts, [contexts[0]], [[2.0, 0.0], [3.0]], [[2.0, 0.0]] * 3):
        with pytest.raises(ms.InvalidInput):
            policy.observe([0, 1], [0.1, 0.2], context=wrong)
        with pytest.raises(ms.InvalidInput):
            policy.band([0, 1], context=wrong)
        assert json.dumps(policy.state()) == before


@pytest.mark.parametrize(
    ("contexts", "c"),
    [
        (ms.Open(1, box=[(1, 2)]), [1.5]),
        (ms.Open(1, box=[(-2, -1)]), [-1.5]),
        (ms.Space({"load": ms.Float(1, 10, log=True)}), {"load": 2.0}),
        (ms.Space({"size": ms.Int(1, 64, log=True)}), {"size": 8}),
    ],
    ids=["beside zero", "below zero", "logarithmic", "logarithmic whole"],
)
@pytest.mark.parametrize("x", ["finite", "box", "ints"])
def test_spaces_of_contexts_without_a_zero(x, contexts, c):
    policy = ms.GPUCB(ms.Joint(DOMAINS[x], contexts), MODEL, grounded=True)
    policy.tell(policy.ask(context=c), 0.1)
    few = policy.field.inner.spread().points[:2]
    band = policy.band(few, context=c)
    policy.observe(few, [0.1, 0.2], context=c)
    assert (policy.band(few, context=c).upper <= band.upper + 1e-9).all()
    assert policy.recommend(actions=few, context=c).position in (0, 1)


# -- own bands belong to (x, c) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", DOMAINS)
def test_own_bands_belong_to_a_point_and_its_context(x):
    policy = ms.GPUCB(ms.Joint(DOMAINS[x], CONTEXTS["finite"][0]), MODEL, grounded=True)
    point = policy.field.inner.spread().points[2:3]
    policy.observe(np.repeat(point, 400, axis=0), np.full(400, 5.0), context="n")  # far above what the class allows
    here, there = policy.band(point, context="n"), policy.band(point, context="s")
    assert here.lower[0] > 4.0, "the own band stands where the model's does not meet it"
    assert there.upper[0] < 2.5
    assert len(policy._evidence.own) == 1
    best = policy.recommend(context="n")
    np.testing.assert_array_equal(best.x, point[0])
    assert best.lower > 4.0
    # both orders of asking keep them apart; equal contexts by name, by index and by numbers are one
    policy.observe(point, [5.0], context=0)
    policy.observe(point, [5.0], context=[0.0, 1.0])
    policy.observe(np.column_stack([point, [[0.0, 1.0]]]), [5.0])
    assert len(policy._evidence.own) == 1
    policy.observe(point, [5.0], context=2)
    assert len(policy._evidence.own) == 2
    conflict = policy.conflicts()[0]
    np.testing.assert_array_equal(conflict.x[: point.shape[1]], point[0])
    assert not policy.guaranteed


def test_two_arms_that_look_alike_have_own_bands_of_their_own():
    """As on a Finite domain: the model cannot tell them apart, their results can; also after a restart."""
    joint = ms.Joint(ms.Finite([[0.3], [0.3], [1.0]]), ms.Box([(0, 1)]))
    policy = ms.GPUCB(joint, MODEL, grounded=True)
    policy.observe([1] * 50, np.full(50, 0.9), context=[0.5])
    policy.observe([0] * 50, np.full(50, 0.1), context=[0.5])
    query = policy.ask(actions=[1], context=[0.5])
    policy.tell(query, 0.9)
    policy.ask(actions=[0], context=[0.5])
    band = policy.band(context=[0.5])
    assert band.lower[1] > band.upper[0] + 0.2
    assert policy.recommend(context=[0.5]).index == 1
    for twin in (ms.restore(json.loads(json.dumps(policy.state()))), copy.deepcopy(policy)):
        for a, b in zip(twin.band(context=[0.5]), band, strict=True):
            np.testing.assert_array_equal(a, b)
        assert twin.recommend(context=[0.5]).index == 1


def test_two_rows_of_a_table_that_look_alike_too(tmp_path):
    joint = ms.Joint(DOMAINS["table"], ms.Box([(0, 1)]))  # rows 0 and 3 differ in what was left out
    policy = ms.GPUCB(joint, MODEL, grounded=True)
    policy.observe([3] * 50, np.full(50, 0.9), context=[0.5])
    policy.observe([{"heat": 1.0, "acid": "x", "id": 1}], [0.1], context=[0.5])
    band = policy.band(context=[0.5])
    policy.save(tmp_path / "policy")
    for a, b in zip(ms.load(tmp_path / "policy").band(context=[0.5]), band, strict=True):
        np.testing.assert_array_equal(a, b)
    assert policy.recommend(context=[0.5]).index == 3


# -- every policy ------------------------------------------------------------------------------------------------------


def supported(name, world):
    return not (name == "thompson" and world.startswith(("box", "floats")))


@pytest.mark.parametrize(
    ("world", "name", "options"),
    [*(("open", *each) for each in BOTH), *(("finite × space", *each) for each in BOTH if each[1])],
    ids=[*(f"open-{each}" for each in IDS), *(f"finite × space-{each}" for each in IDS if "budget" in each)],
)
def test_policies_go_on_to_the_bit(world, name, options, tmp_path):
    """Saved with queries pending, after drops and batches told in reverse."""
    policy = played(POLICIES[name](WORLDS[world][0], seed=3, **options), world)
    assert policy.pending
    policy.save(tmp_path / "policy")
    twins = [
        ms.restore(json.loads(json.dumps(policy.state()))),
        ms.load(tmp_path / "policy"),
        copy.deepcopy(policy),
        pickle.loads(pickle.dumps(policy)),
    ]
    before = answers(policy)
    for twin in twins:
        assert answers(twin) == before
    rng = np.random.default_rng(9)
    offers = [WORLDS[world][1](rng) for _ in range(3)]
    for offer in offers:
        query = policy.ask(**offer)
        for twin in twins:
            assert_same(twin.ask(**offer), query)
        first = policy.pending[0]
        for each in (policy, *twins):
            each.tell(first.id, value(first))
    last = policy.ask(2, **offers[0])
    for twin in twins:
        for a, b in zip(twin.ask(2, **offers[0]), last, strict=True):
            assert_same(a, b)
        assert answers(twin) == answers(policy)
    best, same = policy.recommend(**offers[1]), twins[0].recommend(**offers[1])
    assert (best.lower, best.gap, best.position) == (same.lower, same.gap, same.position)
    np.testing.assert_array_equal(best.x, same.x)


@pytest.mark.parametrize("name", ["ec", "balancing", "thompson"])
@pytest.mark.parametrize("world", [world for world in QUICK if world not in ("open", "finite × space")])
def test_on_every_kind_of_domain_they_go_on_to_the_bit(name, world):
    policy = played(POLICIES[name](WORLDS[world][0], seed=3, budget=6), world, rounds=4)
    twin = ms.restore(json.loads(json.dumps(policy.state())))
    assert answers(twin) == answers(policy)
    offer = WORLDS[world][1](np.random.default_rng(9))
    for a, b in zip(policy.ask(2, **offer), twin.ask(2, **offer), strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("budget", [10, 200])
@pytest.mark.parametrize("domain", [ms.Open(3), ms.Joint(ms.Finite(ARMS), ms.Open(1))], ids=["open", "joint"])
def test_exact_weights_with_a_budget_go_on_to_the_bit(domain, budget):
    """Whoever was asked all the time has looked at the weights in other portions than one that was restored."""
    policy = ms.ECGPUCB(
        domain,
        ms.Model(Matern(0.7, nu=2.5), norm_bound=2.0, noise=0.1),
        epsilon=0.1,
        enlargement="exact",
        budget=budget,
    )
    rng = np.random.default_rng(1)

    def offer():
        return {"actions": 0.5 * rng.random((6, 3))} if isinstance(domain, ms.Open) else {"context": rng.random(1)}

    for turn in range(24):
        batch = policy.ask(2, **offer())
        policy.tell(batch[::-1], [value(q) for q in batch[::-1]])
        if turn % 6 == 5:
            twin, latest = ms.restore(json.loads(json.dumps(policy.state()))), offer()
            query = policy.ask(**latest)
            assert_same(twin.ask(**latest), query)
            policy.drop(query)


@pytest.mark.parametrize(
    ("name", "options"),
    [("gp-ucb grounded", {}), ("ec", {"budget": 5}), ("ec exact", {"budget": 5}), ("balancing", {"budget": 5}),
     ("balancing own", {}), ("uniform", {"budget": 5}), ("corruption", {})],
)  # fmt: skip
@pytest.mark.parametrize("world", ["box × space", "floats × box"])
def test_policies_that_search_go_on_to_the_bit(name, options, world):
    policy = played(POLICIES[name](WORLDS[world][0], seed=3, **options), world, rounds=3)
    twin = ms.restore(json.loads(json.dumps(policy.state())))
    assert answers(twin) == answers(policy)
    offer = WORLDS[world][1](np.random.default_rng(9))
    assert_same(twin.ask(**offer), policy.ask(**offer))
    assert policy.domain.contains(np.append(*(getattr(policy.pending[-1], k) for k in ("x", "context")))[None]).all()
    best, same = policy.recommend(**offer), twin.recommend(**offer)
    assert (best.lower, best.gap) == (same.lower, same.gap)
    band = policy.band(best.x[None], **offer)
    assert band.lower[0] == pytest.approx(best.lower, abs=1e-9)
    assert band.upper[0] == pytest.approx(best.upper, abs=1e-9)


@pytest.mark.parametrize("world", ["open", "finite × space", "box × box"])
def test_auto(world, tmp_path):
    rng, offers = np.random.default_rng(2), WORLDS[world][1]
    policy = ms.Auto(WORLDS[world][0], minimize=True, seed=1)
    for _ in range(6):
        query = policy.ask(**offers(rng))
        policy.tell(query, value(query))
    batch = policy.ask(2, **offers(rng))
    policy.tell(batch[1], value(batch[1]))
    policy.save(tmp_path / "auto")
    offer = offers(rng)
    twin = ms.load(tmp_path / "auto")
    assert answers(twin) == answers(policy)
    assert_same(twin.ask(**offer), policy.ask(**offer))
    best = policy.recommend(**offer)
    assert best.gap >= 0
    assert best.lower <= best.mean + 1e-9 <= best.upper + 2e-9
    policy.drop(policy.pending)
    policy.observe(*({"open": (ball(rng, 2), [0.1, 0.2])}.get(world) or (np.zeros((0, 3)), [])))
    policy.ask(**offer)


@pytest.mark.parametrize("world", ["open", "finite × box", "ints × space"])
def test_what_auto_has_learnt_can_be_read(world):
    """Or it says what would help: neither method takes a context or actions."""
    rng, offers = np.random.default_rng(2), WORLDS[world][1]
    policy = ms.Auto(WORLDS[world][0], seed=1)
    for _ in range(7):
        query = policy.ask(**offers(rng))
        policy.tell(query, value(query))
    for read in (policy.summary, policy.importance, policy.chance):
        refusal = _refusal(read)
        assert "hand it in, context=" not in refusal, "there is nowhere to hand it in"
        assert "hand them in, actions=" not in refusal, "there is nowhere to hand them in"


@pytest.mark.parametrize("world", ["open", "finite × box", "box × box"])
def test_a_report_of_a_policy_with_contexts(world, tmp_path):
    """There is one, or a sentence that says why not."""
    policy = played(ms.GPUCB(WORLDS[world][0], MODEL), world, rounds=3)
    if not _refusal(lambda: ms.reports.of_policy(policy, tmp_path)):
        assert list(tmp_path.iterdir())


def _refusal(call):
    try:
        call()
    except ms.InvalidInput as error:
        return str(error)
    return ""


def test_policies_that_eliminate_refuse_clearly():
    for domain in (ms.Open(2), WORLDS["finite × box"][0], WORLDS["box × box"][0]):
        for make in (
            lambda d: ms.PhasedUncertaintySampling(d, MODEL, horizon=20),
            lambda d: ms.PhasedUncertaintySampling.as_in_paper(d, MODEL),
        ):
            with pytest.raises(ms.InvalidInput, match=r"needs a fixed set.*use RegretBalancing"):
                make(domain)
    phased = ms.PhasedUncertaintySampling(DOMAINS["finite"], MODEL, horizon=20)
    before = json.dumps(phased.state())
    for call in (
        lambda: phased.ask(actions=[0, 1]),
        lambda: phased.ask(context=[0.1]),
        lambda: phased.recommend(actions=[0, 1]),
        lambda: phased.recommend(context=[0.1]),
    ):
        with pytest.raises(ms.InvalidInput, match="use RegretBalancing"):
            call()
        assert json.dumps(phased.state()) == before
    with pytest.raises(ms.InvalidInput, match="no contexts"):
        phased.band([[0.1, 0.2]], context=[0.1])
    with pytest.raises(ms.InvalidInput, match=r"samples are drawn at lists.*grid\(n\)"):
        ms.ThompsonSampling(WORLDS["box × box"][0], MODEL)


def test_bounds_of_the_paper_need_a_gain_where_nothing_is_listed():
    for domain in (ms.Open(2), WORLDS["finite × box"][0]):
        with pytest.raises(ms.InvalidInput, match="gain="):
            ms.RegretBalancing.as_in_paper(domain, MODEL, horizon=50)
        policy = ms.RegretBalancing.as_in_paper(domain, MODEL, horizon=50, gain=9.0)
        offer = {"actions": [[0.1, 0.2]]} if isinstance(domain, ms.Open) else {"context": [0.3]}
        policy.tell(policy.ask(**offer), 0.1)


@pytest.mark.parametrize("budget", [0, -1, 2.5, True, "many"])
def test_budgets_that_are_refused(budget):
    for make in (ms.GPUCB, ms.ThompsonSampling, ms.UniformSampling):
        with pytest.raises(ms.InvalidInput, match="budget must be a whole number ≥ 1, got"):
            make(ms.Open(2), MODEL, budget=budget)
    with pytest.raises(ms.InvalidInput, match="budget must be"):
        ms.posterior.Posterior(MODEL, ms.Open(2), budget=budget)


@pytest.mark.parametrize("enlargement", [None, "exact", "norm2", "paper"])
@pytest.mark.parametrize("budget", [None, 4])
@pytest.mark.parametrize(
    "domain", [ms.Open(2), ms.Box([(0, 1)] * 2), ms.Joint(ms.Box([(0, 1)]), ms.Box([(0, 1)])), ms.Finite(ARMS)],
    ids=["open", "box", "joint", "finite"],
)  # fmt: skip
def test_linear_kernels_from_the_first_round_on(domain, budget, enlargement):
    """Before any data there are no weights, and a budget has nothing to miss."""
    model = ms.Model(DotProduct(sigma_0=0.1) * 0.4, norm_bound=1.5, noise=0.1)
    policy = ms.ECGPUCB(domain, model, epsilon=0.2, enlargement=enlargement, budget=budget)
    offer = {"open": {"actions": ARMS[:4]}, "joint": {"context": [0.4]}}.get(
        "open" if isinstance(domain, ms.Open) else "joint" if isinstance(domain, ms.Joint) else "", {}
    )
    for _ in range(3):
        query = policy.ask(**offer)
        assert np.isfinite(query.upper)
        policy.tell(query, value(query))
        policy.ask(**offer)
        policy.recommend(**offer)
    band = policy.band(ARMS[:5])
    assert (band.lower <= band.upper).all()


@pytest.mark.parametrize("x", ["open", "finite", "box"])
def test_without_a_name_rounds_get_the_enlargement_of_flat_cost(x):
    """For actions that are points, for open domains and for contexts: issue 13."""
    domain = ms.Open(2) if x == "open" else ms.Joint(DOMAINS[x], CONTEXTS["box"][0])
    default, named = (ms.ECGPUCB(domain, MODEL, epsilon=0.3, enlargement=each) for each in (None, "norm2"))
    rng = np.random.default_rng(0)
    for _ in range(4):
        offer = {"actions": ball(rng, 4)} if x == "open" else {"context": rng.random(1)}
        queries = [policy.ask(**offer) for policy in (default, named)]
        assert_same(*queries)
        for policy in (default, named):
            policy.tell(queries[0].id, value(queries[0]))
    where_ = ((ball(rng, 4),), {}) if x == "open" else ((DOMAINS[x].probes()[:5],), {"context": rng.random(1)})
    for a, b in zip(*(policy.band(*where_[0], **where_[1]) for policy in (default, named)), strict=True):
        np.testing.assert_array_equal(a, b)


# -- recommend(actions=…) on every kind of domain ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gp-ucb grounded", "ec norm2", "ec", "balancing", "thompson", "uniform"])
@pytest.mark.parametrize("kind", ["finite", "grid", "box", "floats", "ints", "table", "open"])
def test_recommend_among_actions(kind, name):
    rng = np.random.default_rng(3)
    domain = ms.Open(2) if kind == "open" else DOMAINS[kind]
    policy = POLICIES[name](domain)
    points = ball(rng, 8) if kind == "open" else policy.field.spread().points[:8]
    policy.observe(points, 0.3 * rng.standard_normal(len(points)))
    some = points[[5, 1, 6, 2]] if len(points) > 6 else points[[2, 0, 1]]
    before = json.dumps(policy.state())
    best, band = policy.recommend(actions=some), policy.band(some)
    np.testing.assert_array_equal(best.x, some[best.position])
    assert best.lower <= band.lower[best.position] + 1e-12  # what a round brings may be a little wider
    assert best.upper >= band.upper[best.position] - 1e-12
    assert best.gap >= best.upper - best.lower - 1e-12
    assert best.gap <= (band.upper.max() - band.lower.max()) + 2.0
    if name != "ec" and name != "balancing":
        assert best.lower == pytest.approx(band.lower.max(), abs=1e-12)
        assert best.gap == pytest.approx(band.upper.max() - band.lower.max(), abs=1e-12)
    forms = []
    if isinstance(domain, ms.Finite):
        forms.append(domain.indices(some))
        assert best.index == domain.indices(best.x[None])[0]
    if kind == "finite":
        forms.append([domain.names[i] for i in domain.indices(some)])
    if isinstance(domain, ms.Space):
        forms.append([domain.params(x) for x in some])
        assert best.params == domain.params(best.x)
    if kind == "table":
        forms.append([domain.rows[i] for i in domain.indices(some)])
        assert best.row == domain.rows[best.index]
    for form in forms:
        other = policy.recommend(actions=form)
        np.testing.assert_array_equal(other.x, best.x)
    one = policy.recommend(actions=some[:1])
    assert (one.position, one.gap) == (0, pytest.approx(one.upper - one.lower))
    assert json.dumps(policy.state()) == before
    for wrong in (np.zeros((0, 2)), [[0.1] * 5], [[np.nan, 0.1]]):
        with pytest.raises(ms.InvalidInput):
            policy.recommend(actions=wrong)


@pytest.mark.parametrize("name", ["gp-ucb grounded", "ec", "ec exact", "ec paper", "balancing", "uniform"])
@pytest.mark.parametrize("world", ["open", "finite × box", "ints × space", "box × box"])
def test_a_recommendation_and_the_band_are_one(name, world):
    policy = played(POLICIES[name](WORLDS[world][0]), world, rounds=3)
    offer = WORLDS[world][1](np.random.default_rng(8))
    best = policy.recommend(**offer)
    band = policy.band(best.x[None], **{k: v for k, v in offer.items() if k == "context"})
    assert (band.lower[0], band.upper[0]) == (
        pytest.approx(best.lower, abs=1e-9), pytest.approx(best.upper, abs=1e-9)
    )  # fmt: skip


# -- tell and drop -----------------------------------------------------------------------------------------------------


def test_tell_by_name_on_joint_domains():
    space = ms.GPUCB(ms.Joint(DOMAINS["ints"], CONTEXTS["box"][0]), MODEL)
    offered = [{"depth": 3, "kind": "b"}]
    early = space.ask(actions=offered, context=[0.1])
    late = space.ask(actions=offered, context=[0.9])
    other = space.ask(actions=[{"depth": 4, "kind": "b"}], context=[0.1])
    with pytest.raises(ms.InvalidInput, match="for different contexts"):  # results of one must not train the other
        space.tell({"depth": 3, "kind": "b"}, 0.5)
    space.tell(early, 0.5)
    assert [q.id for q in space.pending] == [late.id, other.id]
    np.testing.assert_array_equal(space.observations.x[0], [*early.x, *early.context])
    space.tell([{"depth": 4, "kind": "b"}, {"depth": 3, "kind": "b"}], [0.1, 0.2])
    np.testing.assert_array_equal(space.observations.ids, [early.id, other.id, late.id])
    with pytest.raises(ms.InvalidInput, match="no pending query"):
        space.tell({"depth": 3, "kind": "b"}, 0.5)
    finite = ms.GPUCB(ms.Joint(DOMAINS["finite"], CONTEXTS["space"][0]), MODEL)
    finite.ask(actions=["arm 3", "arm 3"], context={"user": 2.0, "group": "f"})
    finite.tell("arm 3", 0.3)
    table = ms.GPUCB(ms.Joint(DOMAINS["table"], CONTEXTS["box"][0]), MODEL)
    table.ask(actions=[1], context=[0.2])
    table.drop({"heat": 2.0, "acid": "y"})
    floats = ms.GPUCB(ms.Joint(DOMAINS["floats"], CONTEXTS["box"][0]), MODEL)
    query = floats.ask(context=[0.2])
    floats.tell(dict(query.params), 0.3)
    assert not any(policy.pending for policy in (finite, table, floats))
    assert (finite.t, table.t, floats.t) == (1, 0, 1)


@pytest.mark.parametrize("name", ["gp-ucb grounded", "ec", "balancing", "thompson"])
@pytest.mark.parametrize("world", FEW)
def test_refused_calls_change_nothing(name, world):
    policy, rng = played(POLICIES[name](WORLDS[world][0], budget=6), world, rounds=3), np.random.default_rng(4)
    offers = WORLDS[world][1]
    done = policy.ask(**offers(rng))
    policy.tell(done, 0.1)
    query, offer = policy.pending[0], offers(rng)
    before, (args, options) = answers(policy), where(policy, rng, 2)
    stranger = dataclasses.replace(query, x=query.x + 1.0)
    calls = [
        lambda: policy.tell(done, 0.2),
        lambda: policy.tell(10_000, 0.2),
        lambda: policy.tell(None, 0.2),
        lambda: policy.tell(stranger, 0.2),
        lambda: policy.drop(stranger),
        lambda: policy.tell(query, float("nan")),
        lambda: policy.tell(query, "high"),
        lambda: policy.tell([query, query], [0.1, 0.2]),
        lambda: policy.tell([query, 10_000], [0.1, 0.2]),
        lambda: policy.tell([query], [0.1, 0.2]),
        lambda: policy.drop(done),
        lambda: policy.drop([query, 10_000]),
        lambda: policy.ask(0, **offer),
        lambda: policy.ask(1.5, **offer),
        lambda: policy.observe(*args, [0.1, float("nan")], **options),
        lambda: policy.observe(*args, [0.1], **options),
        lambda: policy.observe(*args, [0.1, 0.2, 0.3], **options),
        lambda: policy.observe([], [0.1], **options),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(ms.InvalidInput):
            call()
        assert answers(policy) == before, number


def test_a_query_with_another_context_comes_from_another_policy():
    one, other = (ms.GPUCB(WORLDS["finite × box"][0], MODEL) for _ in range(2))
    asked, stranger = one.ask(context=[0.1]), other.ask(context=[0.9])
    assert (asked.id, asked.index) == (stranger.id, stranger.index)
    for call in (lambda: one.tell(stranger, 0.5), lambda: one.drop(stranger)):
        with pytest.raises(ms.InvalidInput, match="another policy"):
            call()
    assert [q.id for q in one.pending] == [asked.id]


@pytest.mark.parametrize("world", FEW)
def test_what_was_dropped_was_never_asked(world):
    """As far as the model goes: the place among own bands stays spent."""
    policy, twin = (POLICIES["gp-ucb"](WORLDS[world][0]) for _ in range(2))
    rng, offers = np.random.default_rng(2), WORLDS[world][1]
    for _ in range(3):
        offer = offers(rng)
        for each in (policy, twin):
            query = each.ask(**offer)
            each.tell(query, value(query))
    for offer in [offers(rng) for _ in range(2)]:
        for each in (policy, twin):
            each.ask(**offer)
    dropped = [policy.ask(**offers(rng)) for _ in range(3)]
    policy.drop(dropped[1])
    policy.drop([dropped[0].id, dropped[2]])
    offer = offers(rng)
    assert [q.x.tolist() for q in policy.pending] == [q.x.tolist() for q in twin.pending]
    a, b = policy.ask(**offer), twin.ask(**offer)  # of two that are as good, rounding decides
    assert a.upper == pytest.approx(b.upper, rel=1e-7)


# -- state -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS)
def test_domains_are_stored_whole(world):
    domain = WORLDS[world][0]
    policy = ms.UniformSampling(domain, MODEL)
    state = json.loads(json.dumps(policy.state()))
    twin = ms.restore(state)
    assert repr(twin.domain) == repr(domain)
    np.testing.assert_array_equal(twin.domain.probes(), domain.probes())
    assert json.loads(json.dumps(twin.state())) == state
    # the same one may be handed in, another one not
    assert ms.restore(state, domain=domain).state() == twin.state()
    others = [ms.Open(3), ms.Open(2, radius=0.5), ms.Box([(0, 1)] * 2), ms.Joint(ms.Box([(0, 9)]), ms.Box([(0, 9)]))]
    for other in others:
        with pytest.raises(ms.StorageError):
            ms.restore(state, domain=other)


def test_a_large_list_in_a_joint_domain_is_handed_in_again(tmp_path):
    large = ms.Finite(np.random.default_rng(0).random((700_000, 2)))
    joint = ms.Joint(large, ms.Box([(0, 1)]))
    policy = ms.UniformSampling(joint, MODEL)
    policy.ask(actions=[5, 699_999], context=[0.2])
    policy.save(tmp_path / "policy")
    assert (tmp_path / "policy").stat().st_size < 100_000
    with pytest.raises(ms.StorageError, match="hand it in again"):
        ms.load(tmp_path / "policy")
    twin = ms.load(tmp_path / "policy", domain=joint)
    assert_same(twin.pending[0], policy.pending[0])
    other = ms.Joint(ms.Finite(large.points[::-1]), ms.Box([(0, 1)]))
    with pytest.raises(ms.StorageError, match="not the one"):
        ms.load(tmp_path / "policy", domain=other)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["events"][0][1].update(context=None),
        lambda s: s["events"][0][1].update(context=[1.0, 2.0, 3.0]),
        lambda s: s["domain"].pop("contexts"),
        lambda s: s["domain"]["contexts"].update(kind="Ball"),
    ],
    ids=["no context", "another dimension", "no contexts", "an unknown kind"],
)
def test_states_that_make_no_sense_are_storage_errors(change):
    policy = ms.GPUCB(WORLDS["finite × box"][0], MODEL)
    policy.tell(policy.ask(context=[0.3]), 0.1)
    state = json.loads(json.dumps(policy.state()))
    change(state)
    with pytest.raises(ms.StorageError):
        ms.restore(state)


# -- a kernel that fails half-way, and several threads -----------------------------------------------------------------


class Moody:
    """An RBF that fails at its n-th call from now on, once."""

    def __init__(self):
        self.left = None

    def __call__(self, X, Z):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise RuntimeError("not now")
        return RBF(0.4)(X, Z)

    def diag(self, X):
        return np.ones(len(X))

    def __deepcopy__(self, memo):
        return self


@pytest.mark.parametrize("budget", [None, 4])
@pytest.mark.parametrize("world", ["open", "finite × space"])
@pytest.mark.parametrize(
    "make",
    [
        lambda d, m, **o: ms.ECGPUCB(d, m, epsilon=0.1, **o),
        lambda d, m, **o: ms.RegretBalancing(d, m, horizon=60, evidence="own", **o),
        lambda d, m, **o: ms.ThompsonSampling(d, m, **o),
    ],
    ids=["ec", "balancing own", "thompson"],
)
def test_a_kernel_that_fails_half_way(make, world, budget):
    kernel, rng = Moody(), np.random.default_rng(0)
    domain, offers = WORLDS[world]
    policy = played(make(domain, ms.Model(kernel, norm_bound=1.5, noise=0.1), budget=budget), world, rounds=4)
    batch, offer = policy.ask(3, **offers(rng)), offers(rng)
    args, options = where(policy, rng, 3)
    calls = [
        lambda p: p.tell([q.id for q in batch], [0.1, 0.2, 0.3]),
        lambda p: p.ask(2, **offer),
        lambda p: p.drop(batch[1].id),
        lambda p: p.observe(*args, [0.1, 0.2, 0.3], **options),
    ]
    failures = 0
    for call in calls:
        before = answers(policy)
        for n in (0, 1, 2, 3, 5, 9):
            twin = copy.deepcopy(policy)
            kernel.left = n
            try:
                call(twin)
            except ms.InvalidInput:
                failures += 1
                kernel.left = None
                assert answers(twin) == before
                again = copy.deepcopy(policy)
                call(again)
                call(twin)
                assert answers(again) == answers(twin), "a retry is as if nothing had failed"
            kernel.left = None
    assert failures > 3


@pytest.mark.parametrize("name", ["gp-ucb grounded", "balancing", "thompson"])
@pytest.mark.parametrize("world", ["open", "finite × space"])
def test_threads_can_share_a_policy(name, world):
    policy, offers = POLICIES[name](WORLDS[world][0], budget=8), WORLDS[world][1]
    failures, told = [], []

    def work(number):
        rng = np.random.default_rng(number)
        try:
            for turn in range(3):
                offer = offers(rng)
                batch = policy.ask(2, **offer)
                policy.recommend(**offer)
                args, options = where(policy, rng, 2)
                policy.band(*args, **options)
                _ = policy.pending, policy.observations, policy.state(), repr(policy)
                if turn % 3 == 1:
                    policy.drop(batch.pop())
                if turn % 3 == 2:
                    policy.observe(*args, [0.1, 0.2], **options)
                    told.append(2)
                policy.tell(batch[::-1], [value(q) for q in batch[::-1]])
                told.append(len(batch))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert policy.t == sum(told) == len(policy.observations)
    assert not policy.pending
    assert answers(ms.restore(policy.state())) == answers(policy)


# -- what they are worth -----------------------------------------------------------------------------------------------


def test_a_context_is_learnt():
    """f(x, c) = 1 where x is the arm that the context names: after a few rounds each gets its own."""
    joint = ms.Joint(ms.Finite([[0.0], [1.0], [2.0]]), ms.Finite([[0.0], [1.0], [2.0]]))
    rng = np.random.default_rng(0)
    for policy in (
        ms.GPUCB(joint, ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1)),
        ms.RegretBalancing(joint, MODEL, horizon=200),
    ):
        for t in range(60):
            query = policy.ask(context=t % 3)
            policy.tell(query, float(query.index == t % 3) + 0.05 * rng.standard_normal())
        assert [policy.recommend(context=c).index for c in range(3)] == [0, 1, 2]


def test_the_search_over_x_keeps_the_context():
    joint = ms.Joint(ms.Box([(0, 1)]), ms.Box([(0, 1)]))
    policy = ms.GPUCB(joint, ms.Model(RBF(0.4), norm_bound=2.0, noise=0.05))
    grid = np.linspace(0, 1, 9)
    X, C = (each.ravel() for each in np.meshgrid(grid, grid))
    policy.observe(X[:, None], -3 * (X - C) ** 2, context=C[:, None])
    for c in (0.2, 0.5, 0.85):
        best = policy.recommend(context=[c])
        assert best.x[0] == pytest.approx(c, abs=0.15)
        upper = policy.band(np.linspace(0, 1, 400)[:, None], context=[c]).upper.max()
        assert best.gap == pytest.approx(upper - best.lower, abs=1e-4)


def test_a_policy_on_an_open_domain_is_one_that_has_the_points_listed():
    """Whatever the domain, the same rounds give the same choices and bands."""
    rng = np.random.default_rng(0)
    sets = [ball(rng, 5) for _ in range(12)]
    listed = ms.GPUCB(ms.Finite(np.concatenate(sets)), MODEL, grounded=True)
    free = ms.GPUCB(ms.Open(2), MODEL, grounded=True)
    for t, actions in enumerate(sets):
        a, b = listed.ask(actions=np.arange(5 * t, 5 * t + 5)), free.ask(actions=actions)
        assert a.position == b.position
        assert a.upper == pytest.approx(b.upper, abs=1e-9)
        for policy, query in ((listed, a), (free, b)):
            policy.tell(query, value(b))
    for a, b in zip(listed.band(), free.band(np.concatenate(sets)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
