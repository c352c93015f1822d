import math

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec import confidence
from misspec.errors import InvalidInput

MODEL = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.3, regularization=0.5, scale=7.0)


def test_formulas():
    L, delta = 3.0, 0.05
    expected = 0.3 / math.sqrt(0.5) * math.sqrt(2 * math.log(20) + 3) + 2
    assert confidence.multiplier("lemma1", MODEL, L, delta) == pytest.approx(expected)
    expected = math.sqrt(0.09 / 0.5 * (2 * math.log(20) + 3) + 4)
    assert confidence.multiplier("mixture", MODEL, L, delta) == pytest.approx(expected)
    assert confidence.multiplier(2.0, MODEL, L, delta) == 14.0
    width = confidence.nonadaptive(MODEL, np.array([0.5]), np.array([0.2]), points=10, episodes=4, delta=delta)
    expected = 2 * math.sqrt(0.5 - 0.5 * 0.04) + 0.3 * 0.2 * math.sqrt(2 * math.log(2 * 10 * 4 / 0.05))
    assert width[0] == pytest.approx(expected)
    assert confidence.paper_slope(0.1, 9, MODEL) == pytest.approx(0.3 / math.sqrt(0.5))
    assert confidence.enlargement_exact(0.1, np.array([3.0]))[0] == pytest.approx(0.3)
    radius = 0.3 * math.sqrt(2 * math.log(math.pi**2 * 16 * 3 * 4 / (3 * 0.05)) / 4)
    assert confidence.own_radius(0.3, 4, 3, 0.05) == pytest.approx(radius)


def test_widths_by_name():
    assert confidence.check_width("mixture") == "mixture"
    assert confidence.check_width("nonadaptive", also=["nonadaptive"]) == "nonadaptive"
    assert confidence.check_width(2) == 2.0
    for wrong in ("beta", "nonadaptive", 0, -1.0, math.nan, None):
        with pytest.raises(InvalidInput, match="width"):
            confidence.check_width(wrong)


def test_own_bands_by_index_and_by_coordinates():
    bands = confidence.OwnBands(noise=0.2, delta=0.1, size=3)
    for key, y in [(2, 1.0), (2, 2.0), (b"somewhere", 5.0), (0, -1.0)]:
        bands.observe([key], [y])
    assert len(bands) == 3
    radii = [confidence.own_radius(0.2, n, j, 0.1) for n, j in ((1, 3), (2, 1), (1, 2))]
    np.testing.assert_allclose(bands.upper, [-1 + radii[0], np.inf, 1.5 + radii[1]])
    np.testing.assert_allclose(bands.lower, [-1 - radii[0], -np.inf, 1.5 - radii[1]])
    lower, upper = bands.at([b"somewhere", b"nowhere", 2])
    np.testing.assert_allclose(upper, [5 + radii[2], np.inf, 1.5 + radii[1]])
    np.testing.assert_allclose(lower, [5 - radii[2], -np.inf, 1.5 - radii[1]])
    assert bands.at([])[0].shape == (0,)
    for noise, delta in ((-1, 0.1), (0.1, 0), (0.1, 1)):
        with pytest.raises(InvalidInput):
            confidence.OwnBands(noise, delta)


def test_bands_that_do_not_meet():
    lower, upper = np.array([0.0, 0.0]), np.array([1.0, 1.0])
    band = confidence.ground(lower, upper, np.array([0.5, 2.0]), np.array([3.0, 3.0]))
    np.testing.assert_array_equal(band, [[0.5, 2.0], [1.0, 3.0]])
    low, high = confidence.clip(lower, upper, np.array([0.5, 2.0]), np.array([3.0, 3.0]))
    np.testing.assert_array_equal(low, [0.5, 2.0])
    np.testing.assert_array_equal(high, [1.0, 2.0])
