"""Rules between parameters: what texts mean, what is refused, and that every way to a query keeps them."""

import ast
import copy
import json
import math
import operator
import pickle

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec import search
from misspec.domains.rules import Rules
from misspec.errors import InvalidInput, StorageError

PARAMETERS = {
    "T": ms.Float(20, 150),
    "flow (ml/h)": ms.Float(0, 10),
    "n": ms.Int(1, 9),
    "solvent": ms.Choice(["water", "toluene", None]),
    "stirred": ms.Choice([True, False]),
    "size": ms.Choice([1, 2, 4]),
}
MODEL = ms.Model(RBF(0.5), norm_bound=1.5, noise=0.1)


def held(text, rows, there=None):
    X = np.array(rows, dtype=float)
    rules = Rules(text, PARAMETERS)
    return rules.held(X, np.ones(X.shape, dtype=bool) if there is None else there)[0].tolist()


# -- an oracle: the tree of a text, walked in plain Python for one point at a time -------------------------------------

COMPARE = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
COMBINE = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def said(node, point):
    if isinstance(node, ast.BoolOp):
        parts = [said(each, point) for each in node.values]
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not said(node.operand, point)
    if isinstance(node, ast.UnaryOp):
        return -said(node.operand, point)
    if isinstance(node, ast.Compare):
        values = [said(each, point) for each in (node.left, *node.comparators)]
        return all(COMPARE[type(op)](a, b) for a, op, b in zip(values, node.ops, values[1:], strict=False))
    if isinstance(node, ast.BinOp):
        return COMBINE[type(node.op)](said(node.left, point), said(node.right, point))
    if isinstance(node, ast.Call):
        return {"min": min, "max": max, "abs": abs}[node.func.id](*(said(each, point) for each in node.args))
    return node.value if isinstance(node, ast.Constant) else point[node.id]


def some_number(rng, depth):
    kind = rng.integers(6 if depth else 2)
    if kind == 0:
        return str(rng.integers(-5, 60))
    if kind == 1:
        return str(rng.choice(["T", "n", "size"]))
    a, b = some_number(rng, depth - 1), some_number(rng, depth - 1)
    return [f"({a} {rng.choice(['+', '-', '*'])} {b})", f"min({a}, {b}, 7)", f"abs({a})", f"-({a})"][kind - 2]


def some_rule(rng, depth=2):
    kind = rng.integers(3, 5) if depth == 3 else rng.integers(5 if depth else 2)
    signs = ["<", "<=", ">", ">=", "==", "!="]
    if kind == 0:
        return f"T {rng.choice(['+', '-'])} n * {some_number(rng, 1)} {rng.choice(signs)} {some_number(rng, 2)}"
    if kind == 1:
        return rng.choice(["solvent == 'water'", "stirred", "solvent != None", "2 <= n < 7", "stirred == False"])
    a, b = some_rule(rng, depth - 1), some_rule(rng, depth - 1)
    return [f"({a}) and ({b})", f"({a}) or ({b})", f"not ({a})"][kind - 2]


def test_random_rules_say_what_plain_python_says():
    rng = np.random.default_rng(0)
    space = ms.Space(PARAMETERS)
    X = np.concatenate([space.draw(rng) for _ in range(60)])
    X[:, 0] = np.round(X[:, 0])
    points = [space.params(x) for x in X]
    different = set()
    for _ in range(400):
        text = some_rule(rng, 3)
        expected = [bool(said(ast.parse(text, mode="eval").body, point)) for point in points]
        assert held(text, X) == expected, text
        different.add(tuple(expected))
    assert len(different) > 100  # rules that say something


def test_margins_say_how_far_a_point_is_from_the_border():
    rules = Rules(["T + 2 * n < 100", "T > 30 or n >= 5", "not (T > 50 and n > 3)"], PARAMETERS)
    X = np.array([[40.0, 0, 8, 0, 0, 0], [20.0, 0, 1, 0, 0, 0]])
    _, margins = rules.held(X, np.ones(X.shape, dtype=bool))
    np.testing.assert_allclose(margins, [[44, 10, 10], [78, -4, 30]])


def test_what_cannot_be_computed_does_not_hold_and_what_does_not_exist_does():
    rows = [[20, 0, 1, 0, 0, 0], [30, 1, 1, 0, 0, 0]]
    assert held("log(T - 25) < 100", rows) == [False, True]
    assert held("not (log(T - 25) < 100)", rows) == [False, False]
    assert held("1 / (T - 20) < 1", rows) == [False, True]
    assert held("T ** 9 ** 9 ** 9 > 3", rows) == [True, True]  # infinity, and no time lost
    there = np.ones((2, 6), dtype=bool)
    there[0, 0] = False
    assert held("T > 25", rows, there) == [True, True]
    assert held("not T > 25", rows, there) == [True, False]
    assert held("T > 25 and n > 3", rows, there) == [False, False]


def test_names_that_are_no_plain_words_stand_in_backticks():
    assert held("`flow (ml/h)` * 2 <= n", [[20, 1, 1, 0, 0, 0], [20, 0.5, 1, 0, 0, 0]]) == [False, True]
    assert held("solvent in ['water', None] and size in (1, 4)", [[20, 1, 1, 2, 0, 2], [20, 1, 1, 2, 0, 1]]) == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("temp < 3", r"'temp' is not a parameter \(known: T, "),
        ("solvnt == 'water'", "did you mean 'solvent'"),
        ("T", "neither true nor false"),
        ("T = 3", "write == for equal"),
        ("T & 3", "neither true nor false"),
        ("solvent < 3", "compares what has no order"),
        ("solvent == 'wine'", "one of 'water', 'toluene', None, never 'wine'"),
        ("n == 'x'", "never 'x'"),
        ("solvent + 1 < 3", "is not a number"),
        ("sqrt(T) < 1", "rules know min, max, abs, log and exp"),
        ("T.real < 3", "in backticks"),
        ("__import__('os').system('true')", "neither true nor false"),
        ("(lambda: 3)() < T", "is not known"),
        ("[T for T in [1]] < 3", "is not known"),
        ("max() < T", "wrong number of arguments"),
        ("abs(T, n) < 4", "wrong number of arguments"),
        ("T is 3", "rules know <, <="),
        ("T < 1e999", "at most"),
        ("T < 3j", "not a value of a parameter"),
        ("3 < 4", "about no parameter"),
        ("solvent in 'water'", "must be a list of values"),
        ("flow rate < 3", "backticks"),
        ("", "cannot be read"),
        ("\0", "cannot be read"),
        ("(" * 400 + "T < 3" + ")" * 400, "cannot be read"),
        ("T < 3 and " * 300 + "T < 3", "at most 2000"),
    ],
)
def test_bad_rules(text, message):
    with pytest.raises(InvalidInput, match=message):
        ms.Space(PARAMETERS, where=text)


def test_where_takes_texts_and_functions_only():
    for wrong in (3, [3], {"T": 1}, [["T < 3"]]):
        with pytest.raises(InvalidInput, match="where must be"):
            ms.Space(PARAMETERS, where=wrong)
    assert ms.Space(PARAMETERS, where=[]).rules is None


def test_options_that_are_numbers_among_others_and_decimals_are_compared_as_people_do():
    mixed = {"c": ms.Choice([1, "auto", 1.5, True]), "d": ms.Choice(["x", 1.0])}
    rows = [[i, j] for i in range(4) for j in range(2)]
    X = np.array(rows, dtype=float)

    def holds(text):
        return Rules(text, mixed).held(X, np.ones(X.shape, dtype=bool))[0].tolist()

    assert holds("c == 1") == [True, True] + [False] * 6  # True is not 1
    assert holds("c in [1, 1.5]") == [True, True, False, False, True, True, False, False]
    assert holds("c == d") == [False, True] + [False] * 6
    grid = {"x": ms.Float(0, 1, step=0.1), "y": ms.Float(0, 1, step=0.1)}
    for text, count in [
        ("x + y == 0.3", 4),
        ("x + y <= 0.3", 10),
        ("x + y < 0.3", 6),
        ("x + y != 0.3", 117),
        ("x + y > 0.3", 111),
    ]:
        assert ms.Space(grid, where=text).size == count


def test_names_beside_backticks_and_texts_with_them():
    space = ms.Space({"_name0_": ms.Float(0, 10), "flow (x)": ms.Float(0, 10)}, where="_name0_ + `flow (x)` < 3")
    assert space.contains([[9, 1], [1, 1]]).tolist() == [False, True]
    space = ms.Space({"c": ms.Choice(["a`b`c", "d"])}, where="c == 'a`b`c'")
    assert space.size == 1
    assert ms.Space(PARAMETERS, where="T < 100\n  and n < 5").rules is not None


# -- rules that leave nothing, or little -------------------------------------------------------------------------------


def test_what_nothing_satisfies_is_said_with_the_nearest_point():
    with pytest.raises(InvalidInput, match=r"no point .* 'T \+ n < 15' holds; nearest is .*'n': 1.* fails by 6;") as e:
        ms.Space({"T": ms.Float(20, 150), "n": ms.Int(1, 9)}, where="T + n < 15")
    assert "'T': 20.0" in str(e.value)
    with pytest.raises(InvalidInput, match=r"no point .* nearest is \{'n': 1\}, where 'n > 9' fails by 8"):
        ms.Space({"n": ms.Int(1, 1)}, where="n > 9")
    with pytest.raises(InvalidInput, match=r"held at 2 of .* take ms\.Mixture"):
        ms.Space({"a": ms.Float(0, 1), "b": ms.Float(0, 1)}, where="a + b == 1")
    with pytest.raises(InvalidInput, match="no point was found at which the function holds"):
        ms.Box([(0, 1)], where=lambda x: False)
    with pytest.raises(InvalidInput, match="no point of a grid of 2 per dimension keeps the rules"):
        ms.Box([(0, 1), (0, 1)], where="abs(x0 - 0.5) < 0.1").grid(2)


def test_a_region_too_small_to_be_hit_by_chance_is_found():
    where = " and ".join(f"abs(x{i} - {c}) < 0.002" for i, c in enumerate((0.31, 0.52, 0.77, 0.13)))
    box = ms.Box([(0, 1)] * 4, where=where)  # 2.6e-10 of the box
    assert box.share == 0.0
    policy = ms.Auto(box, seed=0)
    for _ in range(8):
        query = policy.ask()
        assert box.contains(query.x[None, :])[0]
        policy.tell(query, float(query.x.sum()))
    found = box.decode(box.uniform(200, [3]))
    assert box.contains(found).all()
    assert (np.ptp(found, axis=0) > 0.003).all()  # all over it


def test_spaces_that_can_be_listed_are_known_exactly():
    parameters = {f"p{i}": ms.Int(0, 12) for i in range(4)}
    for where in ("p0 + p1 + p2 + p3 == 24", "p0 > 10", "p2 == p3 and p1 < 4 or p0 > 11"):
        space = ms.Space(parameters, where=where)
        every = np.stack(np.meshgrid(*[np.arange(13.0)] * 4, indexing="ij"), axis=-1).reshape(-1, 4)
        members = every[space.contains(every)]
        assert space.size == len(members)
        assert space.share == len(members) / 13**4
        drawn = space.decode(space.uniform(1024, [0]))
        assert space.contains(drawn).all()
        np.testing.assert_allclose(drawn.mean(axis=0), members.mean(axis=0), atol=0.8)
        np.testing.assert_allclose(space.known.mean(axis=0), members.mean(axis=0), atol=0.6)


def test_functions_are_not_called_for_every_member_of_a_large_space():
    calls = []

    def rule(point):
        calls.append(1)
        return point["p0"] + point["p1"] > 61

    space = ms.Space({f"p{i}": ms.Int(0, 31) for i in range(4)}, where=rule)
    assert len(calls) <= 3 * 4096
    before = len(calls)
    assert space.size == 32**4  # an upper bound
    assert len(calls) == before


def test_thin_regions_are_walked_along():
    for where in ("abs(x0 - x1) < 1e-5 and abs(x1 - x2) < 1e-5", lambda x: abs(x[0] - x[1]) < 1e-3):
        box = ms.Box([(0, 1)] * (2 if callable(where) else 3), where=where)
        X = box.decode(box.uniform(512, [0]))
        assert box.contains(X).all()
        assert (np.histogram(X[:, 0], 10, (0, 1))[0] > 0).all()


def test_an_equality_of_options_is_no_reason_to_stop_searching():
    space = ms.Space(
        {"c": ms.Choice(["a", "b"]), "x": ms.Float(0, 1), "y": ms.Float(0, 1)}, where="c == 'a' and x + y < 0.0005"
    )
    assert space.contains(space.draw(np.random.default_rng(0)))[0]
    blends = ms.Space({"m": ms.Mixture(["a", "b", "c"])}, where="a == 0 or c == 0")
    assert blends.contains(blends.decode(blends.uniform(64, [0]))).all()
    with pytest.raises(InvalidInput, match="no point was found"):
        ms.Space({"T": ms.Float(20, 150)}, where="T == 3")
    with pytest.raises(InvalidInput, match="put options in quotes"):
        ms.Space(PARAMETERS, where="solvent == water")


def test_small_regions_are_covered_evenly():
    box = ms.Box([(0, 1), (0, 1)], where="x0 ** 2 + x1 ** 2 < 0.01")  # 0.8 %: covers come from a walk
    X = box.decode(box.uniform(4000, [1]))
    assert box.contains(X).all()
    inner = (X**2).sum(axis=1) < 0.005  # half of its area
    assert abs(inner.mean() - 0.5) < 0.06
    assert abs((X[:, 0] > X[:, 1]).mean() - 0.5) < 0.06


# -- the border --------------------------------------------------------------------------------------------------------


def test_climbs_go_on_along_the_border_from_a_face():
    box = ms.Box([(0, 1), (0, 1)], where="x0 + x1 < 1.5")
    towards = np.array([1.0, 2.0])
    end = search.climb(
        lambda U: (U @ towards, np.tile(towards, (len(U), 1))), np.array([[1.0, 0.2]]), 60, 1e6, region=box
    )
    np.testing.assert_allclose(end, [[0.5, 1.0]], atol=1e-4)


@pytest.mark.parametrize(
    ("where", "best"),
    [
        ("x0 + x1 < 1", [0.4, 0.6]),  # the nearest point to (0.7, 0.9) of the half-plane
        ("x0 ** 2 + x1 ** 2 <= 0.5", np.sqrt(0.5) * np.array([0.7, 0.9]) / math.hypot(0.7, 0.9)),
        (["x0 < 0.3", "x0 + x1 <= 0.9"], [0.3, 0.6]),  # a corner
        (lambda x: bool(x[0] + x[1] < 1), [0.4, 0.6]),
    ],
)
def test_climbs_end_at_the_best_point_of_the_border(where, best):
    box = ms.Box([(0, 1), (0, 1)], where=where)
    top = np.array([0.7, 0.9])

    def slope(U):
        return -((U - top) ** 2).sum(axis=1), -2 * (U - top)

    starts = box.uniform(16, [0])
    ends = search.climb(slope, starts, 60, 1e6, region=box)
    assert box.contains(box.decode(ends)).all()
    assert (slope(ends)[0] >= slope(starts)[0]).all()
    reached = ends[slope(ends)[0].argmax()]
    np.testing.assert_allclose(reached, best, atol=0.02 if callable(where) else 1e-4)
    if not callable(where):  # with margins all of them get there
        np.testing.assert_allclose(ends, np.tile(best, (len(ends), 1)), atol=1e-3)


def test_auto_finds_an_optimum_at_the_border_of_a_rule():
    space = ms.Space({"T": ms.Float(20, 150), "p": ms.Float(1, 80), "n": ms.Int(1, 9)}, where="T + 2 * p < 200")
    policy = ms.Auto(space, seed=0)
    rng = np.random.default_rng(0)
    for _ in range(20):
        query = policy.ask()
        T, p, n = query.params.values()
        policy.tell(query, T / 100 + p / 40 - ((n - 6) / 6) ** 2 + 0.01 * rng.standard_normal())
    found = policy.recommend().params
    assert found["T"] / 100 + found["p"] / 40 - ((found["n"] - 6) / 6) ** 2 > 2.38  # the best is 2.4, at T = 40, p = 80


# -- data, states, other domains ---------------------------------------------------------------------------------------


def test_results_that_break_rules_are_data_and_are_never_asked_or_recommended():
    box = ms.Box([(0, 1), (0, 1)], where="x0 + x1 < 1")
    for make in (lambda: ms.ECGPUCB(box, MODEL, epsilon=0.1), lambda: ms.Auto(box, seed=0)):
        policy = make()
        with pytest.warns(UserWarning, match="lie outside"):
            policy.observe(
                np.array([[0.9, 0.9], [0.8, 0.9], [0.9, 0.7], [1.0, 1.0], [0.7, 0.7], [0.2, 0.1]]), [5] * 5 + [0]
            )
        for _ in range(5):
            query = policy.ask()
            assert box.contains(query.x[None, :])[0]
            policy.tell(query, 0.0)
        assert policy.t == 11
        assert box.contains(policy.recommend().x[None, :])[0]


def test_states_hold_texts_and_functions_are_handed_in_again():
    space = ms.Space(PARAMETERS, where=["T + n < 100", "stirred or n < 5"])
    policy = ms.Auto(space, seed=3)
    for _ in range(7):
        query = policy.ask()
        policy.tell(query, float(query.x[0]))
    twin = ms.restore(json.loads(json.dumps(policy.state())))
    assert twin.domain.rules.settings() == ["T + n < 100", "stirred or n < 5"]
    assert [q.params for q in twin.ask(3)] == [q.params for q in policy.ask(3)]

    def rule(point):
        return point["T"] < 100

    for domain in (ms.Box([(0, 1)], where=lambda x: bool(x[0] < 0.5)), ms.Space(PARAMETERS, where=rule)):
        policy = ms.Auto(domain, seed=3)
        state = json.loads(json.dumps(policy.state()))
        np.testing.assert_array_equal(ms.restore(state, domain=domain).ask().x, policy.ask().x)
    space = ms.Space(PARAMETERS, where=["n < 8", rule])
    policy = ms.Auto(space, seed=3)
    policy.tell(policy.ask(), 1.0)
    state = json.loads(json.dumps(policy.state()))
    with pytest.raises(StorageError, match=r"rules that are functions.*domain="):
        ms.restore(state)
    with pytest.raises(StorageError, match="not the one that this policy was made with"):
        ms.restore(state, domain=ms.Space(PARAMETERS, where=["n < 7", rule]))
    assert ms.restore(state, domain=space).ask().params == policy.ask().params


def test_ruled_spaces_are_pickled_and_copied():
    policy = ms.Auto(ms.Space(PARAMETERS, where=["T + n < 100", "stirred or n < 5"]), seed=3)
    policy.tell(policy.ask(), 1.0)
    for twin in (pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy)):
        assert twin.domain.rules.settings() == policy.domain.rules.settings()
        assert twin.ask().params == copy.deepcopy(policy).ask().params


def test_a_long_sum_is_copied_too():
    names = [f"x{i}" for i in range(280)]
    space = ms.Space(dict.fromkeys(names, ms.Float(0, 1)), where=f"{' + '.join(names)} <= 140")
    for twin in (pickle.loads(pickle.dumps(space)), copy.deepcopy(space)):
        assert twin.rules.settings() == space.rules.settings()


def test_a_rule_that_fails_or_says_neither_true_nor_false_is_an_error():
    with pytest.raises(InvalidInput, match=r"failed at .* KeyError"):
        ms.Space(PARAMETERS, where=lambda point: point["t"] < 3)
    with pytest.raises(InvalidInput, match="must return True or False"):
        ms.Box([(0, 1)], where=lambda x: x[0])


def test_lists_made_of_a_ruled_region_keep_the_rules():
    box = ms.Box([(0, 1), (0, 1)], where="x0 + x1 < 1")
    for points in (
        box.grid(9).points,
        box.cover(100).points,
        ms.Space(PARAMETERS, where="T < 50").cover(64).points[:, :1] / 50,
    ):
        assert (points.sum(axis=1) < 1).all()
    space = ms.Space({"n": ms.Int(1, 9), "m": ms.Int(1, 9)}, where="n * m < 10")
    assert space.size == len(space.members()) == sum(n * m < 10 for n in range(1, 10) for m in range(1, 10))
    listed = ms.GPUCB(box.grid(9), MODEL)
    listed.tell(listed.ask(), 1.0)
    assert ms.restore(listed.state()).ask().index == listed.ask().index


def test_contexts_have_rules_too():
    contexts = ms.Box([(0, 1), (0, 1)], where="x0 < x1")
    policy = ms.GPUCB(ms.Joint(ms.Box([(0, 1)], where="x0 < 0.3"), contexts), MODEL)
    assert policy.ask(context=[0.2, 0.4]).x[0] < 0.3
    with pytest.raises(InvalidInput, match="a context must be one of"):
        policy.ask(context=[0.4, 0.2])


# -- off the grid ------------------------------------------------------------------------------------------------------


def test_results_off_the_grid_are_data_between_their_neighbours():
    space = ms.Space({"T": ms.Int(60, 100, step=20), "c": ms.Choice([1, 2, 4]), "f": ms.Float(0, 1, step=0.25)})
    x = space.points_of({"T": 74, "c": 3, "f": 0.3})
    np.testing.assert_array_equal(x, [[74, 1.5, 0.3]])
    assert space.params(x[0]) == {"T": 74, "c": 3.0, "f": 0.3}
    codes = space.encode(x)[0]
    assert codes[0] == 0.35
    np.testing.assert_allclose(codes[1:4], [0, math.sqrt(0.125), math.sqrt(0.125)])
    assert not space.contains(x)[0]
    for wrong in ({"c": 5}, {"c": 0.5}, {"T": 74.5}):
        with pytest.raises(InvalidInput, match="must be"):
            space.points_of({"T": 80, "c": 1, "f": 0.5} | wrong)
    policy = ms.Auto(space, seed=0)
    with pytest.warns(UserWarning, match="outside"):
        policy.observe([{"T": 74, "c": 3, "f": 0.3}, {"T": 60, "c": 1, "f": 0}], [3.0, 1.0])
    for _ in range(8):
        query = policy.ask()
        assert space.contains(query.x[None, :])[0]
        policy.tell(query, float(query.x[0]))
    assert ms.restore(json.loads(json.dumps(policy.state()))).ask().params == policy.ask().params
