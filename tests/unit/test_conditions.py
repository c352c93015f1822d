"""Parameters that exist only with some options of others."""

import json
import math

import numpy as np
import polars as pl
import pytest

import misspec as ms
from misspec.errors import InvalidInput

PARAMETERS = {
    "model": ms.Choice(["svm", "forest"]),
    "C": ms.Float(1e-3, 1e3, log=True, when={"model": "svm"}),
    "kernel": ms.Choice(["linear", "rbf", "poly"], when={"model": "svm"}),
    "gamma": ms.Float(0, 1, when={"kernel": ["rbf", "poly"]}),
    "degree": ms.Int(2, 5, when={"kernel": "poly"}),
    "depth": ms.Int(1, 20, when={"model": ["forest"]}),
}
SPACE = ms.Space(PARAMETERS)
THERE = {  # written out
    ("svm", "linear"): {"model", "C", "kernel"},
    ("svm", "rbf"): {"model", "C", "kernel", "gamma"},
    ("svm", "poly"): {"model", "C", "kernel", "gamma", "degree"},
    ("forest", None): {"model", "depth"},
}


def value(params):
    if params["model"] == "forest":
        return 0.8 - ((params["depth"] - 10) / 10) ** 2
    if params["kernel"] == "linear":
        return 0.7 - (math.log10(params["C"]) / 3) ** 2
    return 1 - (math.log10(params["C"]) / 3) ** 2 - (params["gamma"] - 0.3) ** 2 - 0.1 * params.get("degree", 0)


def test_params_have_what_exists_and_nothing_else():
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(200):
        params = SPACE.params(SPACE.draw(rng)[0])
        branch = params["model"], params.get("kernel")
        assert params.keys() == THERE[branch]
        seen.add(branch)
    assert seen == set(THERE)


def test_what_does_not_exist_has_its_first_value_in_x_and_makes_no_difference():
    X = SPACE.validate([[1, 7.0, 2, 0.5, 4, 9], [1, 9.0, 1, 0.1, 3, 9]])
    np.testing.assert_array_equal(X, [[1, 1e-3, 0, 0, 2, 9]] * 2)
    np.testing.assert_array_equal(*SPACE.encode([[1, 7.0, 2, 0.5, 4, 9], [1, 9.0, 1, 0.1, 3, 9]]))
    codes = SPACE.encode(X[:1])[0]
    start = {c.name: c.start for c in SPACE.columns}
    assert codes[start["C"]] == codes[start["gamma"]] == codes[start["degree"]] == 0.5  # the middle, as for all others
    assert (codes[start["kernel"] : start["kernel"] + 3] == 0).all()
    np.testing.assert_array_equal(SPACE.decode(codes[None, :]), X[:1])


def test_kernels_compare_a_parameter_only_where_both_points_have_it():
    rows = [{"model": "svm", "kernel": "rbf", "C": 1, "gamma": g} for g in (0.0, 0.5, 1.0)]
    rows += [{"model": "forest", "depth": d} for d in (10, 11)]
    codes = SPACE.encode(rows)
    kernel = ms.product_kernel(SPACE, [1e9, 1e9, 1e9, 0.3, 1e9, 1e9])  # only gamma matters
    K = kernel(codes, codes)
    assert K[3, 4] == pytest.approx(1.0)  # neither has it
    assert K[1, 3] == pytest.approx(1.0)  # the middle of its range stands for all
    assert K[0, 3] == pytest.approx(K[2, 3])
    assert K[0, 2] < K[0, 3] < 1.0


def test_rows_may_leave_out_what_does_not_exist():
    frame = pl.DataFrame({"model": ["svm", "forest"], "C": [1.0, None], "kernel": ["linear", None], "depth": [None, 3]})
    frame = frame.with_columns(gamma=None, degree=None)
    expected = SPACE.points_of([{"model": "svm", "C": 1.0, "kernel": "linear"}, {"model": "forest", "depth": 3}])
    np.testing.assert_array_equal(SPACE.points_of(frame), expected)
    with pytest.raises(InvalidInput, match="must have a value of 'gamma' where kernel is rbf or poly, row 0 has none"):
        SPACE.points_of({"model": "svm", "C": 1.0, "kernel": "rbf"})
    with pytest.raises(InvalidInput, match="must have a value of 'model'"):
        SPACE.points_of({"depth": 3})
    extra = {"model": "forest", "depth": 3, "C": 5.0}  # a cell that was left from before
    with pytest.warns(UserWarning, match="the value of 'C' in row 0 does not count"):
        np.testing.assert_array_equal(SPACE.points_of(extra), expected[1:])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"a": ms.Float(0, 1, when={"b": 1})}, "'b': …} names no parameter"),
        ({"a": ms.Float(0, 1), "b": ms.Float(0, 1, when={"a": 0.5})}, "must name a Choice or an Int"),
        ({"a": ms.Choice(["x", "y"]), "b": ms.Float(0, 1, when={"a": "z"})}, "must be one of 'x', 'y', got 'z'"),
        ({"a": ms.Int(1, 3), "b": ms.Float(0, 1, when={"a": 4})}, "4 is none of its values"),
        (
            {"a": ms.Choice(["x", "y"], when={"b": "x"}), "b": ms.Choice(["x", "y"], when={"a": "x"})},
            "go round in a circle",
        ),
        ({"a": ms.Choice(["x", "y"], when={"a": "x"})}, "go round in a circle"),
    ],
)
def test_bad_conditions(parameters, message):
    with pytest.raises(InvalidInput, match=message):
        ms.Space(parameters)


@pytest.mark.parametrize("when", [3, "model", {"model": []}, {3: "x"}, {"model": [[1]]}, {"model": {}}])
def test_bad_when(when):
    with pytest.raises(InvalidInput, match=r"when must be options of other parameters by name"):
        ms.Float(0, 1, when=when)


def test_conditions_are_asked_of_settled_parents():
    space = ms.Space({"a": ms.Float(0, 1, step=0.1), "b": ms.Float(0, 5, when={"a": 0.3}), "n": ms.Int(0, 100, step=5),
                      "z": ms.Float(0, 1, when={"n": [70, 75]})}, where="b > 1")  # fmt: skip
    np.testing.assert_array_equal(space.validate([[0.1 * 3, 4.0, 74, 0.3]]), [[0.3, 4.0, 74, 0.3]])
    assert space.params([0.1 * 3, 4.0, 74, 0.3]) == {"a": 0.3, "b": 4.0, "n": 74, "z": 0.3}  # 74 is nearest to 75
    assert space.contains([[0.1 * 3, 0.5, 75, 0.3], [0.3, 2.0, 75, 0.3]]).tolist() == [False, True]
    with pytest.raises(InvalidInput, match="expected a CSV file"):
        space.points_of([{"a": 0.3, "b": 2.0, "n": 75, "z": 0.1}, 5])


def test_members_count_once():
    space = ms.Space({
        "a": ms.Choice(["x", "y"]), "n": ms.Int(1, 4, when={"a": "x"}), "m": ms.Int(1, 3, when={"a": "y"}),
    })  # fmt: skip
    assert space.size == 7 == len(space.members())
    policy = ms.Auto(space, repeats=False, seed=0)
    asked = set()
    for _ in range(7):
        query = policy.ask()
        asked.add(tuple(query.params.items()))
        policy.tell(query, float(query.x.sum()))
    assert len(asked) == 7


def test_searches_reach_every_branch_and_find_the_best():
    policy = ms.Auto(SPACE, seed=0)
    rng = np.random.default_rng(0)
    for _ in range(25):
        query = policy.ask()
        assert query.params.keys() == THERE[query.params["model"], query.params.get("kernel")]
        policy.tell(query.params, value(query.params) + 0.01 * rng.standard_normal())
    assert value(policy.recommend().params) > 0.95
    twin = ms.restore(json.loads(json.dumps(policy.state())))
    assert twin.ask().params == policy.ask().params
    assert "what matters" not in policy.summary()
    assert policy.summary()


def test_neighbours_change_the_branch_and_bring_into_being_what_exists_there():
    U = SPACE.encode([{"model": "forest", "depth": 10}])
    V, rows = SPACE.neighbours(U)
    assert (rows == 0).all()
    others = [SPACE.params(x) for x in SPACE.decode(V)]
    assert {"model": "svm", "C": 1.0, "kernel": "rbf", "gamma": 0.5} in [
        {n: round(v, 9) if isinstance(v, float) else v for n, v in each.items()} for each in others
    ]
    assert all(each.keys() == THERE[each["model"], each.get("kernel")] for each in others)


def test_climbs_leave_alone_what_does_not_exist():
    low, high = SPACE.reach(
        SPACE.encode([{"model": "forest", "depth": 10}, {"model": "svm", "C": 1, "kernel": "linear"}])
    )
    np.testing.assert_array_equal(low, [[0.5, 0.5], [0.0, 0.5]])
    np.testing.assert_array_equal(high, [[0.5, 0.5], [1.0, 0.5]])


def test_rules_hold_where_their_parameters_do_not_exist():
    space = ms.Space(PARAMETERS, where=["gamma < 0.1", "depth > 15"])
    rng = np.random.default_rng(0)
    drawn = [space.params(space.draw(rng)[0]) for _ in range(100)]
    assert {each["model"] for each in drawn} == {"svm", "forest"}
    assert all(each.get("gamma", 0) < 0.1 and each.get("depth", 20) > 15 for each in drawn)


def test_when_is_shown_and_kept():
    assert (
        repr(PARAMETERS["gamma"]) == "Float(low=0.0, high=1.0, log=False, step=None, when={'kernel': ('rbf', 'poly')})"
    )
    assert ms.Float(0, 1, when={"a": [True, None, 3]}).when == (("a", (True, None, 3)),)
    assert hash(PARAMETERS["gamma"]) == hash(ms.Float(0, 1, when=[("kernel", ("rbf", "poly"))]))
