import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import misspec as ms
from misspec.errors import InvalidInput


def test_finite_keeps_order_and_names():
    domain = ms.Finite([[0, 1], [2, 3]], names=["a", "b"])
    assert len(domain) == 2
    assert domain.dimension == 2
    assert domain.names == ["a", "b"]
    assert domain.indices([[2, 3], [0, 0], [0.0, 1.0]]).tolist() == [1, -1, 0]
    assert domain.contains([[2, 3], [0, 0]]).tolist() == [True, False]
    assert "2 points" in repr(domain)
    with pytest.raises(ValueError, match="read-only"):
        domain.points[0, 0] = 5.0


def test_frames_are_points():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"x": [0.0, 1.0], "y": [2.0, 3.0]})
    np.testing.assert_array_equal(ms.Finite(frame).points, [[0, 2], [1, 3]])


def test_minus_zero_is_zero():
    assert ms.Finite([[-0.0]]).indices([[0.0]]).tolist() == [0]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "shape"),
        (np.zeros((0, 2)), "at least 1"),
        (np.zeros((3, 0)), "at least 1"),
        ([1.0, 2.0], r"reshape\(-1, 1\)"),
        (np.zeros((2, 2, 2)), "one row per point"),
        ([[1.0, np.nan]], r"finite, got nan at position \(0, 1\)"),
        ([[np.inf]], "finite, got inf"),
        ([["a"]], "numbers"),
        ([[1.0], [1.0, 2.0]], "numbers"),
    ],
)
def test_bad_points(points, message):
    with pytest.raises(InvalidInput, match=message):
        ms.Finite(points)


@pytest.mark.parametrize("names", [["a"], ["a", "a"]])
def test_bad_names(names):
    with pytest.raises(InvalidInput, match="names must"):
        ms.Finite([[0.0], [1.0]], names=names)


@pytest.mark.parametrize("indices", [-1, 2, [0, 5], 0.5, "a", [[0]]])
def test_bad_indices(indices):
    with pytest.raises(InvalidInput, match="indices must"):
        ms.Finite([[0.0], [1.0]]).validate_indices(indices)


@pytest.mark.parametrize(
    "bounds", [[(0, 0)], [(1, 0)], [(0, np.inf)], [(0, np.nan)], [(0, 1, 2)], [], [0, 1], [(-1e308, 1e308)]]
)
def test_bad_boxes(bounds):
    with pytest.raises(InvalidInput, match="bounds of a Box"):
        ms.Box(bounds)


SIDES = st.tuples(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3)).map(lambda side: (side[0], side[0] + side[1]))
UNIT = st.floats(0, 1)


@given(st.lists(st.tuples(SIDES, UNIT, UNIT), min_size=1, max_size=5))
def test_box_round_trip(sides):
    box = ms.Box([side for side, _, _ in sides])
    drawn = np.array([[a, b] for _, a, b in sides]).T
    unit = np.concatenate([drawn, np.zeros((1, len(sides))), np.ones((1, len(sides)))])
    inside = box.decode(unit)
    assert box.contains(inside).all()
    np.testing.assert_allclose(box.encode(inside), unit, atol=1e-9)
    assert not box.contains(inside + (box.high - box.low) * 1.01).any()


def test_grid_carries_the_encoding():
    grid = ms.Box([(0, 1), (-5, 5)]).grid(3)
    assert len(grid) == 9
    np.testing.assert_array_equal(grid.points[:3], [[0, -5], [0, 0], [0, 5]])
    np.testing.assert_array_equal(grid.encoded[:3], [[0, 0], [0, 0.5], [0, 1]])
    assert len(ms.Box([(0, 1), (-5, 5)]).grid([2, 4])) == 8
    for wrong in ([2], 1, 2.5):
        with pytest.raises(InvalidInput):
            ms.Box([(0, 1), (-5, 5)]).grid(wrong)


def test_a_cover_is_spread_and_inside():
    box = ms.Box([(0.1, 0.30000000000000004), (-5, 5)])
    cover = box.cover(100)
    assert len(cover) == 128
    assert box.contains(cover.points).all()
    np.testing.assert_array_equal(cover.points, box.cover(128).points)
    assert not np.array_equal(cover.points, box.cover(128, seed=1).points)
    halves = (cover.encoded > 0.5).sum(axis=0)
    np.testing.assert_array_equal(halves, 64)  # as a Sobol' sequence has it
    assert len(ms.Box([(0, 1)] * 10).cover(1)) == 1
    with pytest.raises(InvalidInput):
        box.cover(0)
