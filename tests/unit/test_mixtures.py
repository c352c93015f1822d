"""Shares that sum to a total."""

import json
import math

import numpy as np
import pytest

import misspec as ms
from misspec import search
from misspec.errors import InvalidInput

MIXTURE = ms.Mixture(["a", "b", "c", "d"], total=100, at_most=3)
SPACE = ms.Space({"blend": MIXTURE, "T": ms.Float(20, 80)})
THREE = ms.Space({"alloy": ms.Mixture(["x", "y", "z"])})


def test_each_share_is_a_parameter():
    assert SPACE.names == ["a", "b", "c", "d", "T"]
    x = SPACE.draw(np.random.default_rng(0))[0]
    assert SPACE.params(x).keys() == {"a", "b", "c", "d", "T"}
    assert repr(SPACE) == (
        "Space({'blend': Mixture(parts=('a', 'b', 'c', 'd'), total=100.0, at_most=3), "
        "'T': Float(low=20.0, high=80.0, log=False, step=None)})"
    )


def test_what_is_a_blend():
    blends = [
        [50, 50, 0, 0, 20],
        [33.3, 33.3, 33.3, 0, 20],
        [25, 25, 25, 25, 20],
        [50, 40, 0, 0, 20],
        [-1, 101, 0, 0, 20],
    ]
    assert SPACE.contains(np.array(blends)[:4]).tolist() == [True, True, False, False]
    assert not MIXTURE.contains(np.array([blends[4][:4]]))[0]
    with pytest.raises(InvalidInput, match="'a' must be a share, 0 to 100, got -1 in row 0"):
        SPACE.validate([blends[4]])


def test_every_point_of_a_search_is_a_blend():
    rng = np.random.default_rng(0)
    for make in (
        lambda: SPACE.spread(500, [0]), lambda: SPACE.uniform(500, [1]),
        lambda: SPACE.around(SPACE.uniform(50, [2]), rng, 9), lambda: SPACE.neighbours(SPACE.uniform(9, [2]))[0],
    ):  # fmt: skip
        X = SPACE.decode(make())
        assert SPACE.contains(X).all()
        np.testing.assert_allclose(X[:, :4].sum(axis=1), 100, rtol=1e-12)
    U = SPACE.uniform(300, [3])
    V, inside = SPACE.moved(U, 0.1 * rng.standard_normal(U.shape), rng)
    assert 0.2 < inside.mean() < 0.95
    assert SPACE.contains(SPACE.decode(V[inside])).all()


def test_blends_are_uniform_and_their_faces_are_reached():
    """Of three shares that are uniform on the triangle each is Beta(1, 2): P(share < 1/2) = 3/4."""
    X = THREE.decode(THREE.uniform(4096, [0]))
    np.testing.assert_allclose((X < 0.5).mean(axis=0), 0.75, atol=0.02)
    np.testing.assert_allclose(X.mean(axis=0), 1 / 3, atol=0.01)
    cover = THREE.decode(THREE.spread(512, [0]))
    assert {tuple(x) for x in np.eye(3)} <= {tuple(x) for x in cover}
    assert ((cover == 0).sum(axis=1) == 1).mean() > 0.05  # of two parts


def test_with_at_most_k_parts_every_set_of_k_comes_as_often():
    X = SPACE.decode(SPACE.uniform(8192, [0]))[:, :4]
    parts, counts = np.unique(X > 0, axis=0, return_counts=True)
    assert (parts.sum(axis=1) == 3).all()
    assert len(parts) == 4
    np.testing.assert_allclose(counts / counts.sum(), 0.25, atol=0.03)
    there = X[X > 0].reshape(-1, 3)  # uniform on their triangle, whichever they are
    np.testing.assert_allclose((there < 50).mean(axis=0), 0.75, atol=0.03)
    np.testing.assert_allclose((there < 5).mean(axis=0), 1 - 0.95**2, atol=0.01)


def test_pure_parts_are_at_distance_one_of_each_share():
    codes = THREE.encode(np.array([[1, 0, 0], [0.25, 0.75, 0]]))
    np.testing.assert_allclose(codes, [[1, 0, 0], [0.5, math.sqrt(0.75), 0]])
    np.testing.assert_allclose((codes**2).sum(axis=1), 1.0)


def test_gradients_on_the_sphere_are_those_of_differences():
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((5,))
    V = SPACE.encode(SPACE.draw(rng)) * 0.7 + 0.1

    def f(V):
        U = SPACE.on(V)
        return np.sin(U @ weights), np.cos(U @ weights)[:, None] * weights

    gradient = SPACE.pulled(V, f(V)[1])[0]
    for j in np.flatnonzero(SPACE.on(V)[0] > 0):
        step = np.zeros_like(V)
        step[0, j] = 1e-6
        assert gradient[j] == pytest.approx(float(f(V + step)[0][0] - f(V - step)[0][0]) / 2e-6, abs=1e-6)


def test_climbs_find_the_best_blend():
    top = np.array([0.6, 0.3, 0.1, 0.0])  # √: the code of the best blend

    def slope(U):
        beyond = U - np.append(np.sqrt(top), 0.4)
        return -(beyond**2).sum(axis=1), -2 * beyond

    ends = search.polish(lambda U: slope(U)[0], slope, SPACE.spread(256, [0]), region=SPACE)
    best = SPACE.decode(ends[[slope(ends)[0].argmax()]])[0]
    np.testing.assert_allclose(best, [60, 30, 10, 0, 44], atol=0.05)
    assert SPACE.contains(SPACE.decode(ends)).all()


def test_neighbours_of_a_blend_written_out():
    found = {tuple(np.round(x, 9)) for x in ms.Mixture(["a", "b", "c"]).others(np.array([0.75, 0.25, 0.0]))}
    assert found == {
        (0, 1, 0), (1, 0, 0), (0, 0.25, 0.75), (0.75, 0, 0.25), (0.25, 0.75, 0),
        (round(0.75 / 1.1, 9), round(0.25 / 1.1, 9), round(0.1 / 1.1, 9)),
    }  # fmt: skip


def test_auto_finds_a_blend_and_its_state_restores():
    policy = ms.Auto(SPACE, seed=0)
    rng = np.random.default_rng(0)

    def value(p):
        return -(((p["a"] - 60) / 50) ** 2) - ((p["b"] - 30) / 50) ** 2 - ((p["T"] - 44) / 60) ** 2 - 0.2 * (p["c"] > 0)

    for _ in range(25):
        query = policy.ask()
        assert SPACE.contains(query.x[None, :])[0]
        policy.tell(query.params, value(query.params) + 0.01 * rng.standard_normal())
    assert value(policy.recommend().params) > -0.08
    twin = ms.restore(json.loads(json.dumps(policy.state())))
    assert twin.domain.settings() == SPACE.settings()
    assert twin.ask().params == policy.ask().params


def test_one_part_alone_is_the_total_to_the_bit():
    one = ms.Mixture(["a", "b", "c"], at_most=1)
    X = one.nearest(np.random.default_rng(0).random((200, 3)))
    assert set(np.unique(X)) == {0.0, 1.0}


def test_rules_choose_among_blends():
    space = ms.Space({"blend": MIXTURE}, where=["a >= 20", "b == 0 or b >= 5"])
    X = space.decode(space.uniform(300, [0]))
    assert (X[:, 0] >= 20).all()
    assert ((X[:, 1] == 0) | (X[:, 1] >= 5)).all()
    assert (X[:, 1] == 0).any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ms.Mixture(["a"]), "at least two names"),
        (lambda: ms.Mixture(["a", "a"]), "all different"),
        (lambda: ms.Mixture("ab"), "must be a list"),
        (lambda: ms.Mixture([1, 2]), "names of parts"),
        (lambda: ms.Mixture(["a", "b"], total=0), "total of a Mixture must be"),
        (lambda: ms.Mixture(["a", "b"], at_most=3), "at_most of a Mixture must be"),
        (lambda: ms.Mixture(["a", "b"], at_most=0), "at_most of a Mixture must be"),
        (lambda: ms.Space({"m": ms.Mixture(["a", "b"]), "a": ms.Int(1, 2)}), "'a' twice"),
    ],
)
def test_bad_mixtures(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()
