"""Limits on quantities beside the objective: what they are, where their values go, what is asked and recommended."""

import math

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec.errors import InvalidInput, StorageError
from misspec.limits import Limit, read_limits
from misspec.policies.auto.limits import KEPT, Quantities
from misspec.reports import optimisation

BOX = ms.Box([(0, 1)] * 2)
LIST = ms.Finite(np.random.default_rng(7).random((60, 2)), names=[f"p{i}" for i in range(60)])
SPACE = ms.Space({"k": ms.Choice(("a", "b")), "x": ms.Float(0, 1)})


def value(x):
    return -float((x[0] - 0.8) ** 2 + (x[1] - 0.8) ** 2)


def played(policy, rounds=16, batch=1):
    """An objective, and a quantity c = x0 + x1 that every fourth result has no value of."""
    while policy.t < rounds:
        queries = policy.ask(batch)
        x = np.array([query.x for query in queries])
        known = [None if (policy.t + i) % 4 == 3 else float(each.sum()) for i, each in enumerate(x)]
        policy.tell(queries, [value(each) for each in x], limits={"c": known})
    return policy


# -- what a limit is ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "sign", "bound"),
    [
        ("impurity < 2", "impurity", "<", 2.0),
        ("impurity<=2", "impurity", "<=", 2.0),
        (" purity (%)  >  -1.5e1 ", "purity (%)", ">", -15.0),
        ("Rückstand >= .5", "Rückstand", ">=", 0.5),
        ("2 < 3.", "2", "<", 3.0),
    ],
)
def test_a_limit_is_read(text, name, sign, bound):
    assert read_limits(text) == read_limits([text]) == (Limit(name, sign, bound),)
    (limit,) = read_limits(text)
    assert read_limits(str(limit)) == (limit,)
    with pytest.raises(AttributeError):
        limit.bound = 1.0


def test_which_values_keep_a_limit():
    for sign, wanted in {"<": "100", "<=": "110", ">": "001", ">=": "011"}.items():
        assert "".join(str(int(each)) for each in Limit("c", sign, 2.0).holds([1.0, 2.0, 3.0])) == wanted
        assert Limit("c", sign, 2.0).holds(math.nan)  # unknown
    assert [Limit("c", sign, 2.0).side for sign in ("<", "<=", ">", ">=")] == [1.0, 1.0, -1.0, -1.0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("impurity", "as in \"impurity < 2\", got 'impurity'"),
        ("", "a limit must be text of a name"),
        ("< 2", "a limit must be text of a name"),
        ("1 < c < 2", "a limit must be text of a name"),
        ("c < d", "a limit must be text of a name"),
        ("c == 2", "a limit must be text of a name"),
        ("c < 2; import os", "a limit must be text of a name"),
        ("c < nan", "a limit must be text of a name"),
        ("c < 1_0", "a limit must be text of a name"),
        ("c\n < 1", "a limit must be text of a name"),
        ("c < 1e999", "the bound of limit 'c < 1e999' must be a finite number, got inf"),
        (["c < 1", 2], "a limit must be text of a name.* got 2"),
        (3, "limits must be a list, got 3"),
        ({"c": 2}, "limits must be a list"),
        (["c < 1", "c <= 2"], "several limits bound 'c' on the same side"),
        (["c < 1", "c > 2"], "no range is left between 'c > 2' and 'c < 1'"),
    ],
)
def test_what_is_no_limit(given, said):
    with pytest.raises(InvalidInput, match=said):
        ms.Auto(BOX, limits=given)


# -- where values go ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", [BOX, LIST, SPACE])
@pytest.mark.parametrize("batch", [1, 3])
def test_states_files_and_journals_hold_them_to_the_bit(domain, batch, tmp_path):
    make = lambda: ms.Auto(domain, limits=["c < 1.2", "c > 0.2"], seed=3)  # noqa: E731
    policy, journal = make(), tmp_path / "j.misspec"
    policy.journal(journal)
    policy.observe([0, 1] if domain is LIST else [[0.0, 0.5], [1.0, 0.9]], [1.0, 2.0], limits={"c": [1.0, None]})
    policy.observe([2] if domain is LIST else [[0.0, 0.5]], [1.0], noise=0.5, limits={"c": 0.5})
    played(policy, 10, batch)
    policy.tell(policy.ask(), 0.5, noise=0.25, limits={"c": 1.0})
    policy.drop(policy.ask())
    policy.ask()
    policy.save(tmp_path / "saved.misspec")
    for twin in (ms.restore(policy.state()), ms.load(tmp_path / "saved.misspec"), ms.load(journal)):
        assert twin.state() == policy.state()
        np.testing.assert_array_equal(twin.observations.limits["c"], policy.observations.limits["c"])
        assert twin.quantities.broken == policy.quantities.broken
        points = policy.observations.x
        np.testing.assert_array_equal(twin.probability(points), policy.probability(points))
    one, other = twin.ask(), policy.ask()
    assert one.x.tobytes() == other.x.tobytes()
    assert one.details == other.details


def test_observations_have_them():
    policy = ms.Auto(BOX, limits=["c < 1", "d > 0"])
    one, two = policy.ask(2)
    policy.tell(two, 1.0, limits={"d": 3})
    policy.tell(one, 2.0)
    policy.observe([[0.1, 0.2], [0.3, 0.4]], [3.0, 4.0], limits={"c": np.array([0.5, math.nan]), "d": [None, True]})
    policy.observe([[0.5, 0.6]], [5.0], limits={"c": [None]})
    told = policy.observations
    assert told.y.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    np.testing.assert_array_equal(told.limits["c"], [math.nan, math.nan, 0.5, math.nan, math.nan])
    np.testing.assert_array_equal(told.limits["d"], [3.0, math.nan, math.nan, 1.0, math.nan])
    assert [len(event) for event in policy.log.events] == [2, 2, 5, 3, 6, 3]  # nothing where nothing is known
    assert ms.Auto(BOX).observations.limits == {}


def test_retracting_and_dropping():
    policy = played(ms.Auto(BOX, limits="c < 1.2"), 12)
    asked = [event[1].id for event in policy.log.events if event[0] == "ask"]
    before = policy.probability([[0.5, 0.5]])
    policy.retract(asked[4])
    assert len(policy.observations.limits["c"]) == 11
    assert policy.quantities.counts[0][2] == np.isfinite(policy.observations.limits["c"]).sum()
    policy.tell(asked[4], 0.0, limits={"c": 99.0})
    assert policy.observations.limits["c"][-1] == 99.0
    assert policy.quantities.broken[-1]
    assert policy.probability([[0.5, 0.5]]) != before
    assert ms.restore(policy.state()).state() == policy.state()


def test_a_call_that_fails_leaves_no_values(monkeypatch):
    policy = played(ms.Auto(BOX, limits="c < 1.2"), 10)
    query, before = policy.ask(), None
    before, p = policy.state(), policy.probability([[0.5, 0.5]])
    fed = Quantities._feed

    def fails(self, name, rows):
        fed(self, name, rows)
        if len(rows) == 1:
            raise RuntimeError("half-way")

    with monkeypatch.context() as patch:
        patch.setattr(Quantities, "_feed", fails)
        with pytest.raises(RuntimeError):
            policy.tell(query, 1.0, limits={"c": 5.0})
    assert policy.state() == before
    np.testing.assert_array_equal(policy.probability([[0.5, 0.5]]), p)
    policy.tell(query, 1.0, limits={"c": 5.0})
    assert policy.quantities.broken[-1]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"d": 1.0}, r"there is no limit on 'd' \(known: c\)"),
        ({"C": 1.0}, "did you mean 'c'"),
        ({3: 1.0}, "there is no limit on 3"),
        ({"c": math.inf}, "a value of 'c' must be a finite number, or None where it is unknown, got inf"),
        ({"c": 1e200}, "at most 1e\\+150"),
        ({"c": "1.3"}, "a value of 'c' must be a finite number.* got '1.3'"),
        ({"c": 1j}, "a value of 'c' must be a finite number"),
        ({"c": {"v": 1}}, "a value of 'c' must be a finite number"),
        ({"c": [1.0, 2.0]}, "values of 'c' must be one number, got 2"),
        ({"c": []}, "values of 'c' must be one number, got 0"),
        ({"c": [[1.0]]}, "a value of 'c' must be a finite number"),
        ([1.0], "limits must be values by name"),
        (1.0, "limits must be values by name"),
        ("c < 1", "limits must be values by name"),
    ],
)
def test_bad_values_are_refused_and_nothing_is_changed(limits, said):
    policy = ms.Auto(BOX, limits="c < 1")
    query = policy.ask()
    before = policy.state()
    with pytest.raises(InvalidInput, match=said):
        policy.tell(query, 1.0, limits=limits)
    with pytest.raises(InvalidInput):
        policy.observe([[0.5, 0.5]], [1.0], limits=limits)
    assert policy.state() == before


def test_random_values_are_learnt_or_refused():
    rng, policy = np.random.default_rng(0), ms.Auto(BOX, limits=["c < 1", "a b >= 0"])
    cells = [
        1,
        -2.5,
        None,
        math.nan,
        math.inf,
        "x",
        True,
        1j,
        [],
        [1.0],
        {},
        np.float32(2),
        np.nan,
        b"1",
        1e160,
        object(),
    ]
    for _ in range(300):
        names = rng.choice(["c", "a b", "d"], size=rng.integers(3), replace=False)
        count = int(rng.integers(1, 4))
        some = lambda: cells[rng.integers(len(cells))]  # noqa: E731
        given = {str(n): [some() for _ in range(rng.integers(1, 4))] if rng.random() < 0.7 else some() for n in names}
        before = policy.state()["events"]
        try:
            policy.observe(rng.random((count, 2)), np.ones(count), limits=given)
        except InvalidInput:
            assert policy.state()["events"] == before
    assert 30 < len(policy.log.events) < 290
    assert ms.restore(policy.state()).state() == policy.state()


def test_other_policies_take_none():
    model = ms.Model(RBF(0.2), norm_bound=1.0, noise=0.1)
    policies = [ms.GPUCB(BOX, model), ms.InsuredUCB(BOX, model), ms.UniformSampling(BOX, model), ms.Auto(BOX)]
    for policy in policies:
        query = policy.ask()
        before = policy.state()
        with pytest.raises(InvalidInput, match=f"this {type(policy).__name__} has no limits, which only Auto can have"):
            policy.tell(query, 1.0, limits={"c": 1.0})
        with pytest.raises(InvalidInput, match="has no limits"):
            policy.observe([[0.5, 0.5]], [1.0], limits={"c": [1.0]})
        assert policy.state() == before
        policy.tell(query, 1.0, limits={})


@pytest.mark.parametrize(
    "edit",
    [
        lambda events: events[-1].append({"c": 1.0}),  # of an event that has them
        lambda events: events[-1].__setitem__(4, {"d": 1.0}),
        lambda events: events[-1].__setitem__(4, {"c": "x"}),
        lambda events: events[-1].__setitem__(4, {"c": [1.0, 2.0]}),
        lambda events: events[-1].__setitem__(4, [1.0]),
        lambda events: next(e for e in events if e[0] == "renew")[1]["limits"].update(d={}),
        lambda events: next(e for e in events if e[0] == "renew")[1]["limits"]["c"].update(results=99),
        lambda events: next(e for e in events if e[0] == "renew")[1]["limits"]["c"].update(states=[[1.0]]),
        lambda events: next(e for e in events if e[0] == "renew")[1].update(limits=3),
        lambda events: next(e for e in events if e[0] == "observe")[5].update(c={}),
    ],
)
def test_a_state_that_was_edited_is_refused(edit):
    policy = ms.Auto(BOX, limits="c < 1.2")
    policy.observe([[0.5, 0.5]], [1.0], limits={"c": [1.0]})
    played(policy, 8)
    policy.tell(policy.ask(), 1.0, limits={"c": 1.0})
    state = ms.restore(policy.state()).state()
    edit(state["events"])
    with pytest.raises(StorageError):
        ms.restore(state)


def test_samples_are_adopted_with_those_of_the_limits():
    policy = played(ms.Auto(BOX, limits="c < 1.2"), 12)
    told = policy.observations
    other = ms.Auto(BOX, limits="c < 1.2", seed=5)
    other.observe(told.x, told.y, limits=told.limits)
    other.adopt(policy.samples)
    np.testing.assert_allclose(other.probability(told.x), policy.probability(told.x), atol=1e-9)
    for stranger in (ms.Auto(BOX), ms.Auto(BOX, limits="d < 1"), ms.Auto(BOX, limits="c < 1.2")):
        stranger.observe(told.x, told.y)  # without values
        with pytest.raises(InvalidInput, match="values of 'c', which are not told here"):
            stranger.adopt(policy.samples)


# -- what is asked and recommended -------------------------------------------------------------------------------------


def test_without_values_it_is_as_without_limits():
    """To the bit: limits of which nothing is known weigh nothing."""
    one, other = ms.Auto(BOX, seed=2), ms.Auto(BOX, limits="c < 1", seed=2)
    for _ in range(12):
        a, b = one.ask(), other.ask()
        assert a.x.tobytes() == b.x.tobytes()
        one.tell(a, value(a.x))
        other.tell(b, value(b.x))
    found = other.recommend()
    assert found.probability == 0.5
    assert any("limits on c are not heeded yet" in each for each in found.caveats)
    assert one.recommend().probability is None
    assert np.array_equal(one.probability([[0.5, 0.5]]), [1.0])


@pytest.mark.parametrize(
    ("domain", "settings"),
    [
        (BOX, {"minimize": True}),
        *((LIST, each) for each in ({}, {"aim": "earn"}, {"repeats": False}, {"minimize": True})),
        *(pytest.param(BOX, each, marks=pytest.mark.slow) for each in ({}, {"aim": "earn"}, {"repeats": False})),
    ],
)
def test_the_best_that_keeps_the_limits_is_found(domain, settings):
    sign = -1.0 if settings.get("minimize") else 1.0
    policy = ms.Auto(domain, limits="c <= 1.2", seed=1, **settings)
    found = ms.optimize(policy, lambda x: (sign * value(x), {"c": x[0] + x[1]}), 22)
    points = domain.points if domain is LIST else np.random.default_rng(0).random((20_000, 2))
    best = max(value(x) for x in points if x.sum() <= 1.2)
    assert best - sign * found.best.mean < 0.03
    assert found.best.keeps
    assert found.best.x.sum() <= 1.2
    assert found.recommendation.x.sum() <= 1.2
    assert found.recommendation.probability >= KEPT
    assert (found.limits["c"][11:] > 1.2).mean() <= 0.25
    np.testing.assert_allclose(found.limits["c"], found.x.sum(axis=1))


def test_where_nothing_keeps_the_limits_the_most_likely_is_tried_and_said():
    policy = ms.Auto(BOX, limits="c < -0.5", seed=0)
    found = ms.optimize(policy, lambda x: (value(x), {"c": x[0] + x[1]}), 12)
    assert {
        policy.log.events[i][1].details["rule"] for i in range(-2, -20, -1) if policy.log.events[i][0] == "ask"
    } == {"limits"}
    assert found.best.keeps is False
    assert found.best.x.sum() < 0.3  # as near as it gets
    use = found.recommendation
    assert use.probability < KEPT
    assert any("no point is known to keep the limits (c < -0.5) with a probability of 0.9" in c for c in use.caveats)
    assert "Nowhere are the limits sure to hold" in policy.summary()


def test_where_all_that_may_keep_the_limits_was_tried_it_ends():
    """Of a list without noise; what is known to break them is not tried for want of others."""
    policy = ms.Auto(LIST, limits="c < 0.6", repeats=False, seed=0)
    found = ms.optimize(policy, lambda x: (value(x), {"c": x[0] + x[1]}), 60)
    keeping = np.flatnonzero(LIST.points.sum(axis=1) < 0.6)
    assert set(keeping) <= set(found.index)
    assert len(found) < 30
    with pytest.raises(ms.HorizonReached, match="every candidate that may keep the limits was tried"):
        policy.ask()
    assert found.best.mean == max(value(x) for x in LIST.points[keeping])


def test_before_there_is_a_model_results_alone_say_what_keeps_them():
    policy = ms.Auto(BOX, limits="c < 1")
    policy.observe([[0.2, 0.2], [0.4, 0.4], [0.9, 0.9]], [1.0, 2.0, 9.0], limits={"c": [0.4, 0.8, 1.8]})
    found = policy.recommend()
    assert found.x.tolist() == [0.4, 0.4]
    assert found.probability == 1.0
    assert policy.probability([[0.9, 0.9], [0.1, 0.1]]).tolist() == [0.0, 0.5]


def test_the_summary_says_what_holds():
    policy = played(ms.Auto(BOX, limits=["c < 1.2", "d > 1"]), 16)
    said = policy.summary()
    broken = int((policy.observations.limits["c"] >= 1.2).sum())
    assert f"c < 1.2, broken by {broken} of 12 results; d > 1, of which no result says" in said
    assert "It keeps the limits with a probability of" in said
    best = float(said.split("of the best of these ")[1].split(" ")[0])
    kept = [value(x) for x in policy.observations.x if x.sum() < 1.2]
    assert best == pytest.approx(max(kept), abs=0.05)
    assert 0.0 <= policy.chance(gain=0.01) <= 1.0
    assert "limits" not in played(ms.Auto(BOX, limits="c < 1.2"), 4).summary()


def test_a_doubted_result_that_breaks_a_limit_is_not_confirmed():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.random((20, 2)), [[0.95, 0.95]]])
    y = np.array([value(x) for x in X])
    y[-1] = 50.0
    for bound, wanted in ((3.0, True), (1.5, False)):
        policy = ms.Auto(BOX, limits=f"c < {bound}", seed=0)
        policy.observe(X, y, limits={"c": X.sum(axis=1)})
        query = policy.ask()
        assert policy.doubted == [20]
        assert (query.details["rule"] == "confirm") == wanted


def test_contexts_have_limits_too():
    joint = ms.Joint(ms.Box([(0, 1)]), ms.Box([(0, 1)]))
    policy, rng = ms.Auto(joint, limits="c < 1", seed=0), np.random.default_rng(0)
    for _ in range(16):
        query = policy.ask(context=rng.random(1))
        policy.tell(query, float(query.x[0]), limits={"c": float(query.whole.sum())})
    for c in (0.2, 0.6):
        found = policy.recommend(context=[c])
        assert found.probability >= KEPT
        assert found.x[0] + c < 1.0
        assert found.x[0] + c > 0.6
    offered = policy.recommend(actions=[[0.1], [0.9]], context=[0.5])
    assert offered.x.tolist() == [0.1]


def test_the_loop_drops_what_is_no_value_and_works_in_processes():
    policy = ms.Auto(BOX, limits="c < 1.2")
    calls = []

    def function(x):
        calls.append(x)
        return value(x), {"c": math.inf if len(calls) == 2 else float(x.sum())}

    found = ms.optimize(policy, function, 6, on_error="drop")
    assert len(found) == 6
    assert len(calls) == 7
    with pytest.raises(InvalidInput, match="there is no limit on 'e'"):
        ms.optimize(policy, lambda x: (value(x), {"e": 1.0}), 1)
    assert policy.pending == []
    assert ms.optimize(policy, lambda x: (value(x), {}), 1).limits["c"].tolist() != []
    threads = ms.optimize(ms.Auto(BOX, limits="c < 1.2"), lambda x: (value(x), {"c": float(x.sum())}), 6, workers=2)
    np.testing.assert_allclose(threads.limits["c"], threads.x.sum(axis=1))


def test_the_page_and_its_csv_have_them():
    policy = played(ms.Auto(BOX, limits="c < 1.2"), 12)
    found = optimisation.Optimisation(policy)
    assert any("keeps the limits" in sentence for sentence in found.sentences)
    lines = optimisation._csv(found).decode().splitlines()
    assert lines[0] == "evaluation,query,x0,x1,result,c"
    told = policy.observations.limits["c"]
    assert [line.rpartition(",")[2] for line in lines[1:]] == ["" if v != v else repr(v) for v in told.tolist()]


def test_the_best_where_a_point_has_no_value():
    """It counts if it is likely to keep the limits."""
    policy, calls = ms.Auto(BOX, limits="c < 1.2", first=30, seed=1), []

    def function(x):
        calls.append(x)
        return float(x.sum()), {} if len(calls) % 3 == 0 else {"c": float(x.sum())}

    found = ms.optimize(policy, function, 12)
    assert found.best.keeps
    p, c = policy.probability(found.x), found.limits["c"]
    assert np.isnan(c).sum() == 4
    kept = [
        y for y, each, likely in zip(found.y, c, p, strict=True) if (each < 1.2 if each == each else likely >= KEPT)
    ]
    assert found.best.mean == max(kept) < found.y.max()
