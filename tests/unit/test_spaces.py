"""Spaces of named parameters: what users see, what kernels see, and that only legal points are ever asked."""

import copy
import json
import pickle

import numpy as np
import polars as pl
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

import misspec as ms
from misspec.errors import InvalidInput, StorageError
from misspec.policies.core.field import Search

SPACE = ms.Space(
    {
        "lr": ms.Float(1e-5, 1e-1, log=True),
        "depth": ms.Int(1, 12),
        "booster": ms.Choice(["a", "b", "c"]),
        "fixed": ms.Float(2.5, 2.5),
    }
)
SMALL = ms.Space({"n": ms.Int(1, 64, log=True), "flag": ms.Choice([True, 1, None])})
MODEL = ms.Model(RBF(0.5), norm_bound=2.0, noise=0.1)


def value(params):
    return -((np.log10(params["lr"]) + 3) ** 2) / 4 - (params["depth"] - 6) ** 2 / 36 + (params["booster"] == "b")


def test_the_encoding_is_that_of_each_parameter():
    points = [[1e-3, 1, 1, 2.5], [1e-1, 12, 2, 2.5]]
    half = 1 / np.sqrt(2)
    np.testing.assert_allclose(SPACE.encode(points), [[0.5, 0, 0, half, 0, 0], [1, 1, 0, 0, half, 0]], atol=1e-15)
    assert SPACE.columns == (
        ("lr", 0, 1, False),
        ("depth", 1, 2, False),
        ("booster", 2, 5, True),
        ("fixed", 5, 6, False),
    )
    assert SPACE.dimension == 4
    assert SPACE.names == ["lr", "depth", "booster", "fixed"]
    assert SPACE.size is None
    assert SMALL.size == len(SMALL.members()) == 192
    choices = SPACE.encode([[1e-3, 1, i, 2.5] for i in range(3)])
    apart = np.linalg.norm(choices[:, None] - choices[None], axis=2)
    np.testing.assert_allclose(apart, 1 - np.eye(3), atol=1e-15)


def test_other_domains_say_their_columns_too():
    assert ms.Box([(0, 1), (2, 3)]).columns == (("x0", 0, 1, False), ("x1", 1, 2, False))
    assert ms.Finite([[1.0], [2.0]]).columns == (("x0", 0, 1, False),)
    assert SMALL.members().columns == SMALL.columns


def test_values_are_native_and_come_back_as_they_are():
    assert SPACE.params([1e-3, 3, 1, 2.5]) == {"lr": 1e-3, "depth": 3, "booster": "b", "fixed": 2.5}
    found = [SMALL.params(x) for x in SMALL.members().points[:3]]
    assert [(each["n"], each["flag"]) for each in found] == [(1, True), (1, 1), (1, None)]
    assert [type(each["flag"]) for each in found] == [bool, int, type(None)]
    assert type(found[0]["n"]) is int
    np.testing.assert_array_equal(SMALL.points_of(found), SMALL.members().points[:3])


@pytest.mark.parametrize(
    "given",
    [
        {"lr": 0.01, "depth": 3, "booster": "c", "fixed": 2.5},
        {"fixed": 2.5, "booster": np.str_("c"), "depth": np.int64(3), "lr": np.float32(0.5) / 50},
        [{"lr": 0.01, "depth": 3.0, "booster": "c", "fixed": 2.5}],
        pl.DataFrame({"depth": [3], "lr": [0.01], "booster": ["c"], "fixed": [2.5]}),
        {"lr": [0.01], "depth": [3], "booster": ["c"], "fixed": [2.5]},
    ],
)
def test_points_by_name(given):
    np.testing.assert_allclose(SPACE.points_of(given), [[0.01, 3, 2, 2.5]], rtol=1e-6)
    policy = ms.GPUCB(SPACE, MODEL)
    policy.observe(given, [0.5])
    assert policy.ask(actions=given).params["booster"] == "c"
    assert policy.band(given).lower.shape == (1,)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": 0.01, "dept": 3, "booster": "a", "fixed": 2.5}, r"unknown parameter 'dept'; did you mean 'depth'\?"),
        ({"lr": 0.01, "booster": "a", "fixed": 2.5}, "must have a value of 'depth'"),
        (
            {"lr": 0.01, "depth": 3.5, "booster": "a", "fixed": 2.5},
            "'depth', data row 1 must be a whole number, got 3.5",
        ),
        (
            {"lr": 0.01, "depth": True, "booster": "a", "fixed": 2.5},
            "'depth', data row 1 must be a whole number, got True",
        ),
        ({"lr": float("nan"), "depth": 3, "booster": "a", "fixed": 2.5}, "'lr', data row 1 must be a number above 0"),
        ({"lr": -1.0, "depth": 3, "booster": "a", "fixed": 2.5}, "'lr', data row 1 must be a number above 0"),
        ({"lr": "0.1", "depth": 3, "booster": "a", "fixed": 2.5}, "'lr', data row 1 must be a number above 0"),
        ({"lr": 0.01, "depth": 3, "booster": "d", "fixed": 2.5}, "must be one of 'a', 'b', 'c', got 'd'"),
        ([{"lr": 0.01, "depth": 3, "booster": "a", "fixed": 2.5}, {"lr": 0.1}], "data row 2 lacks 'depth'"),
        ([], "there is nothing to choose from"),
        (np.array([[0.01, 3.5, 0, 2.5]]), "parameter 'depth' must be a whole number, got 3.5 in row 0"),
        (np.array([[0.01, 3, 3, 2.5]]), r"parameter 'booster' must be one of .* by its position, 0 … 2, got 3"),
        (np.array([[0.0, 3, 1, 2.5]]), "parameter 'lr' must be a number above 0"),
        ([3], "indices need a Finite domain"),
        (["a"], "expected domain indices"),
    ],
)
def test_what_is_no_point_is_refused_and_changes_nothing(given, message):
    policy = ms.GPUCB(SPACE, MODEL)
    policy.ask()
    before = json.dumps(policy.state())
    for call in (lambda: policy.observe(given, [0.1]), lambda: policy.ask(actions=given), lambda: policy.band(given)):
        with pytest.raises(InvalidInput, match=message):
            call()
        assert json.dumps(policy.state()) == before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ms.Space({}), "at least one parameter"),
        (lambda: ms.Space([("a", ms.Int(1, 2)), ("a", ms.Int(1, 2))]), "'a' twice"),
        (lambda: ms.Space({"a": (1, 2)}), "parameter 'a' must be a Float, an Int, a Choice or a Mixture"),
        (lambda: ms.Space({1: ms.Int(1, 2)}), "names of parameters must be text"),
        (lambda: ms.Space(3), "takes parameters by name"),
        (lambda: ms.Float(1, 0), "low ≤ high"),
        (lambda: ms.Float(0, 1, log=True), "needs low > 0"),
        (lambda: ms.Float(0, float("inf")), "high of a Float must be a finite number"),
        (lambda: ms.Float(float("nan"), 1), "low of a Float must be a finite number"),
        (lambda: ms.Float(-1e308, 1e308), "at most 1e\\+150 in size"),
        (lambda: ms.Float(0, True), "high of a Float must be a finite number"),
        (lambda: ms.Float(0.1, 1, log="yes"), "log must be True or False"),
        (lambda: ms.Int(1, 2.5), "high of an Int must be a whole number"),
        (lambda: ms.Int(True, 2), "low of an Int must be a whole number"),
        (lambda: ms.Int(3, 1), "low ≤ high"),
        (lambda: ms.Int(0, 5, log=True), "needs low > 0"),
        (lambda: ms.Int(0, 2**60), "at most 2\\^53"),
        (lambda: ms.Float(0, 1, step=0), "step of a Float must be a finite number > 0"),
        (lambda: ms.Float(0.1, 1, log=True, step=0.1), "not both"),
        (lambda: ms.Float(0, 1, step=1e-17), "too small for its size"),
        (lambda: ms.Int(0, 9, step=0), "step of an Int"),
        (lambda: ms.Int(0, 9, step=1.5), "step of an Int"),
        (lambda: ms.Int(1, 9, log=True, step=2), "not both"),
        (lambda: ms.Choice([]), "at least one option"),
        (lambda: ms.Choice("ab"), "must be a list"),
        (lambda: ms.Choice(["a", "b", "a"]), "'a' at positions 0 and 2"),
        (lambda: ms.Choice([1, 1.0]), "positions 0 and 1"),
        (lambda: ms.Choice([float("nan")]), "finite numbers"),
        (lambda: ms.Choice([[1]]), "must be text"),
        (lambda: SPACE.members(), "has a float that varies"),
        (lambda: ms.Space({c: ms.Int(0, 10**6) for c in "ab"}).members(), "too many to list"),
    ],
)
def test_bad_spaces(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_steps_are_a_grid_of_values_as_people_write_them():
    space = ms.Space({"rate": ms.Float(0.1, 0.95, step=0.1), "units": ms.Int(16, 70, step=16)})
    assert space.parameters["rate"].high == 0.9
    assert space.parameters["units"].high == 64
    assert space.size == 9 * 4
    rates = sorted({space.params(x)["rate"] for x in space.members().points})
    assert rates == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    near = space.points_of({"rate": 0.1 + 0.1 + 0.1, "units": 32})  # 0.30000000000000004
    np.testing.assert_array_equal(near, [[0.3, 32]])
    np.testing.assert_array_equal(space.validate([[0.1 + 0.1 + 0.1, 32.0]]), near)
    assert not space.contains([[0.35, 32]])[0]
    np.testing.assert_array_equal(space.points_of({"rate": 0.35, "units": 33}), [[0.35, 33]])  # results may be there
    with pytest.raises(InvalidInput, match=r"a whole number, 16 plus a multiple of 16, got 33\.5 in row 0"):
        space.validate([[0.3, 33.5]])
    policy = ms.Auto(space, seed=1)
    with pytest.warns(UserWarning, match="1 of 1 points observed lie outside"):
        policy.observe([{"rate": 0.35, "units": 33}], [0.35])
    for _ in range(8):
        query = policy.ask()
        assert query.params["rate"] in rates
        policy.tell(query.params, query.params["rate"])
    assert ms.restore(policy.state()).ask().params == policy.ask().params


@pytest.mark.parametrize(
    "parameter", [ms.Float(0, 1e6, step=1e-5), ms.Float(-1e9, 1e9, step=0.01), ms.Float(1e12, 1e12 + 5, step=0.5)]
)
def test_fine_steps_far_from_zero_are_legal(parameter):
    space = ms.Space({"x": parameter})
    points = space.from_unit(np.random.default_rng(0).random((500, 1)))
    assert space.contains(points).all()
    assert space.contains(space.decode(space.encode(points))).all()
    assert ms.Auto(space, seed=0).ask().params["x"] >= parameter.low


def test_contains_and_points_outside():
    points = [[1e-3, 3, 0, 2.5], [0.2, 3, 0, 2.5], [1e-3, 3.5, 0, 2.5], [1e-3, 13, 0, 2.5], [1e-3, 3, 3, 2.5]]
    assert SPACE.contains(points).tolist() == [True, False, False, False, False]
    assert SPACE.encode([[0.2, 13, 0, 2.5]])[0, 1] == 12 / 11  # data from elsewhere may lie outside the bounds
    policy = ms.ECGPUCB(SPACE, MODEL, epsilon=0.1)
    with pytest.warns(UserWarning, match="1 of 2 points observed lie outside .*are they in other units"):
        policy.observe([[1e-3, 3, 0, 2.5], [0.2, 13, 0, 2.5]], [0.0, 3.0])
    assert ms.restore(policy.state()).t == 2  # and nothing is said again
    assert SPACE.contains(policy.ask().x[None, :]).all()
    assert SPACE.contains(policy.recommend().x[None, :]).all()


def test_unicode_names_and_options_survive_a_state():
    space = ms.Space({"температура": ms.Int(1, 3), "π ≈": ms.Choice(["größer", "小", ""]), "": ms.Float(0, 1)})
    policy = ms.GPUCB(space, MODEL)
    policy.tell(policy.ask(), 0.3)
    again = ms.restore(json.loads(json.dumps(policy.state())))
    assert again.domain.names == ["температура", "π ≈", ""]
    assert again.ask().params == policy.ask().params


@pytest.mark.parametrize("space", [SPACE, SMALL], ids=["searched", "whole"])
def test_states_and_files_go_on_to_the_bit(space, tmp_path):
    policy = ms.ECGPUCB(space, MODEL, epsilon=0.1, seed=3)
    policy.observe(space.params(space.draw(np.random.default_rng(0))[0]), [0.4])
    for _ in range(3):
        policy.tell(policy.ask().params, 0.2)
    waiting = policy.ask()
    policy.save(tmp_path / "state")
    twins = [ms.restore(json.loads(json.dumps(policy.state()))), ms.load(tmp_path / "state")]
    twins += [copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))]
    for twin in twins:
        assert twin.pending[0].params == waiting.params
        assert [type(v) for v in twin.pending[0].params.values()] == [type(v) for v in waiting.params.values()]
        assert "params" not in json.dumps(twin.state()["events"])  # it is not stored twice
    queries = [twin.ask() for twin in [policy, *twins]]
    for query in queries[1:]:
        np.testing.assert_array_equal(query.x, queries[0].x)
        assert query.params == queries[0].params
    assert type(ms.restore(policy.state(), domain=space)) is ms.ECGPUCB
    with pytest.raises(StorageError, match="differs from it"):
        ms.restore(policy.state(), domain=ms.Space({"x": ms.Float(0, 1)}))


def test_answers_have_params_that_cannot_be_changed():
    policy = ms.GPUCB(SPACE, MODEL)
    query = policy.ask()
    assert isinstance(query.params, dict)
    assert json.loads(json.dumps(query.params)) == query.params
    for change in (
        lambda: query.params.update(lr=1),
        lambda: query.params.pop("lr"),
        lambda: query.params.__setitem__("lr", 1),
    ):
        with pytest.raises(TypeError, match="cannot be changed"):
            change()
    policy.tell(query, 0.1)
    best = policy.recommend()
    assert best.params == SPACE.params(best.x)
    assert best.row is None
    assert pickle.loads(pickle.dumps(best)).params == copy.deepcopy(best).params == best.params
    assert ms.GPUCB(ms.Box([(0, 1)]), MODEL).ask().params is None


def test_telling_by_params_takes_the_one_that_waited_longest():
    policy = ms.GPUCB(SMALL, MODEL)
    params = {"n": 3, "flag": 1}
    first, second = policy.ask(2, actions=params)
    policy.tell([params, params], [0.1, 0.2])
    assert policy.observations.ids.tolist() == [first.id, second.id]
    third = policy.ask(actions=params)
    with pytest.raises(InvalidInput, match="no pending query is"):
        policy.tell({"n": 3, "flag": True}, 0.1)
    with pytest.raises(InvalidInput, match="unknown parameter"):
        policy.tell({"m": 3, "flag": True}, 0.1)
    policy.tell(pl.DataFrame([third.params]), [0.3])
    assert not policy.pending
    searched = ms.GPUCB(SPACE, MODEL)
    batch = searched.ask(3)
    searched.tell({**batch[1].params, "lr": float(f"{batch[1].params['lr']:.12g}")}, 0.2)  # as read back from a file
    assert [query.id for query in searched.pending] == [0, 2]
    with pytest.raises(InvalidInput, match="no pending query is"):
        searched.tell({**batch[0].params, "depth": 13 - batch[0].params["depth"]}, 0.2)
    with pytest.raises(InvalidInput, match="or its id, got 'first'"):
        searched.tell("first", 0.2)
    wide = ms.Space({"n": ms.Int(0, 2**40), "x": ms.Float(0, 1)})
    far = ms.GPUCB(wide, MODEL)
    far.ask(actions={"n": 1000, "x": 0.5})
    with pytest.raises(InvalidInput, match="no pending query is"):
        far.tell({"n": 1001, "x": 0.5}, 0.2)  # an integer is never rounded to another
    with pytest.raises(InvalidInput, match="coordinates have no names"):
        ms.GPUCB(ms.Box([(0, 1)]), MODEL).observe({"x": 0.1}, [1.0])


# -- searching ---------------------------------------------------------------------------------------------------------


def grid(count):
    axes = [np.geomspace(1e-5, 1e-1, count), np.arange(1.0, 13.0), np.arange(3.0), [2.5]]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


@pytest.mark.parametrize("kernel", [RBF(0.4), Matern(0.6, nu=2.5)], ids=["RBF", "Matern"])
@pytest.mark.parametrize("seed", range(4))
def test_the_search_finds_what_a_fine_legal_grid_finds(kernel, seed):
    model = ms.Model(kernel, norm_bound=2.0, noise=0.1)
    policy = ms.GPUCB(SPACE, model, width=2.0, seed=seed)
    rng = np.random.default_rng(seed)
    points = np.concatenate([SPACE.draw(rng) for _ in range(25)])
    policy.observe(points, [value(SPACE.params(x)) for x in points])
    query, fine = policy.ask(), grid(400)
    assert SPACE.contains(query.x[None, :]).all()
    mean, std = policy.posterior.at(fine)
    assert query.upper >= (mean + 2.0 * std).max() - 1e-6
    mean, std = policy.posterior.at(query.x[None, :])
    assert query.upper == pytest.approx(float((mean + 2.0 * std)[0]), abs=1e-9)


def test_integers_with_many_values_are_searched_as_integers():
    space = ms.Space({"n": ms.Int(0, 10**6), "m": ms.Int(1, 10**5, log=True), "kind": ms.Choice(list(range(30)))})
    assert space.size > 20_000
    policy = ms.GPUCB(space, ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1), width=2.0)
    rng = np.random.default_rng(0)
    points = np.concatenate([space.draw(rng) for _ in range(30)])
    policy.observe(points, -((space.encode(points)[:, 0] - 0.3) ** 2))
    query = policy.ask()
    assert space.contains(query.x[None, :]).all()
    mean, std = policy.posterior.at(space.cover(2**14).points)
    assert query.upper >= (mean + 2 * std).max() - 1e-3
    assert type(query.params["n"]) is int


def test_a_small_space_is_searched_whole():
    policy = ms.GPUCB(SMALL, MODEL, width=2.0)
    assert policy.field.size == 192
    members = SMALL.members()
    twin = ms.GPUCB(members, MODEL, width=2.0)
    for _ in range(8):
        query, expected = policy.ask(), twin.ask()
        np.testing.assert_array_equal(query.x, expected.x)
        assert query.index is None
        assert query.upper == expected.upper
        y = float(np.sin(query.x[0]) + (query.params["flag"] is True))
        policy.tell(query, y)
        twin.tell(expected, y)
    np.testing.assert_array_equal(policy.band().upper, twin.band().upper)
    assert policy.recommend().index is None
    np.testing.assert_array_equal(policy.recommend().x, twin.recommend().x)


def test_repeats_of_a_member_are_the_same_arm():
    for space in (SMALL, SPACE):
        policy = ms.ECGPUCB(space, MODEL, epsilon=0.1)
        params = space.params(space.draw(np.random.default_rng(2))[0])
        policy.observe(params, [0.5])
        policy.observe([params, params], [0.5, 0.5])
        policy.tell(policy.ask(actions=[params]), 0.5)
        assert len(policy._evidence.own) == 1
        assert policy._evidence.own.table()[2].tolist() == [4]


def test_snapping_never_changes_an_integer_or_a_choice():
    """With a length scale this long all options lie within the resolution of each other."""
    space = ms.Space({"x": ms.Float(0, 1), "n": ms.Int(0, 1000), "c": ms.Choice(["a", "b"])})
    policy = ms.ECGPUCB(space, ms.Model(RBF(40.0), norm_bound=2.0, noise=0.1), epsilon=0.1, resolution=0.5)
    policy.observe([{"x": 0.5, "n": 500, "c": "a"}], [1.0])
    asked = []

    def score(_, points):
        asked.append(points)
        return points[:, 1] / 1000 + (points[:, 2] == 1)

    def slope(U):
        return U[:, 1] + U[:, 3], np.zeros_like(U)

    offer = policy.field.offer(lambda: Search(policy.posterior, policy._evidence.own, score, slope, 0))
    best = offer.points[score(None, offer.points).argmax()]
    assert best[1:].tolist() == [1000, 1]
    same = (offer.points[:, 1:] == [500, 0]).all(axis=1)
    np.testing.assert_array_equal(offer.points[same], [[0.5, 500, 0]])  # there, the resolution holds
    assert all(space.contains(points).all() for points in asked)


@pytest.mark.parametrize("space", [SPACE, SMALL], ids=["searched", "whole"])
def test_whatever_is_scored_or_sampled_is_legal(space, monkeypatch):
    seen = []
    encode = ms.Space.encode

    def watched(self, points):
        seen.append(self.validate(points))
        return encode(self, points)

    monkeypatch.setattr(ms.Space, "encode", watched)
    policies = [
        ms.ECGPUCB(space, MODEL, epsilon=0.1),
        ms.PhasedUncertaintySampling(space, MODEL, horizon=63),
        ms.ThompsonSampling(space, MODEL),
    ]
    for policy in policies:
        for _ in range(15):
            query = policy.ask()
            policy.tell(query, float(np.cos(query.x[0])))
        policy.recommend()
    phased = policies[1]
    points = phased.active if space.size is None else space.members().points[phased.active]
    assert space.contains(points).all()
    assert len(seen) > 3
    assert all(space.contains(points).all() for points in seen)


def test_the_phased_policy_eliminates_choices():
    space = ms.Space({"x": ms.Float(0, 1), "c": ms.Choice(["bad", "good"])})
    policy = ms.PhasedUncertaintySampling(space, ms.Model(RBF(1.0), norm_bound=1.0, noise=0.05), horizon=1000)
    for _ in range(255):
        query = policy.ask()
        policy.tell(query, 0.5 * (query.params["c"] == "good"))
    assert policy.volume < 0.8
    assert policy.recommend().params["c"] == "good"
    assert (policy.active[:, 1] == 1).all()


def test_a_space_of_one_point():
    space = ms.Space({"a": ms.Int(3, 3), "b": ms.Choice(["only"]), "c": ms.Float(0.5, 0.5, log=True)})
    assert space.size == 1
    policy = ms.ECGPUCB(space, MODEL, epsilon=0.1)
    query = policy.ask()
    assert query.params == {"a": 3, "b": "only", "c": 0.5}
    policy.tell(query, 0.4)
    assert policy.recommend().params == query.params


def test_fits_diagnoses_and_gains_take_spaces():
    rng = np.random.default_rng(0)
    points = np.concatenate([SPACE.draw(rng) for _ in range(30)])
    y = np.array([value(SPACE.params(x)) for x in points]) + 0.05 * rng.standard_normal(30)
    model = ms.Model.from_data(points, y, domain=SPACE, noise=0.05)
    by_name = ms.Model.from_data([SPACE.params(x) for x in points], y, domain=SPACE, noise=0.05)
    assert model == by_name
    assert ms.diagnose(points, y, model, domain=SPACE).epsilon_lower == 0
    found = ms.information_gain(SPACE, MODEL, 10)
    assert SPACE.contains(found.path).all()
    assert 0 < found.greedy <= found.upper
    assert ms.information_gain(SMALL, MODEL, 10).upper == ms.information_gain(SMALL.members(), MODEL, 10).upper
    box, alike = ms.Box([(0, 1), (2, 5)]), ms.Space({"a": ms.Float(0, 1), "b": ms.Float(2, 5)})
    assert ms.information_gain(alike, MODEL, 10).upper == pytest.approx(
        ms.information_gain(box, MODEL, 10).upper, rel=0.01
    )


def test_a_list_with_the_encoding_of_a_space_can_be_stored():
    cover = SPACE.cover(20)
    policy = ms.GPUCB(cover, MODEL)
    policy.tell(policy.ask(), 0.2)
    again = ms.restore(json.loads(json.dumps(policy.state())))
    np.testing.assert_array_equal(again.domain.encoded, cover.encoded)
    assert again.ask().index == policy.ask().index
