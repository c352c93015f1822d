import math

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec.errors import InvalidInput
from misspec.theory import own_bands, widths

MODEL = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.3, regularization=0.5, scale=7.0)


def test_formulas():
    L, delta = 3.0, 0.05
    expected = 0.3 / math.sqrt(0.5) * math.sqrt(2 * math.log(20) + 3) + 2
    assert widths.multiplier("lemma1", MODEL, L, delta) == pytest.approx(expected)
    expected = math.sqrt(0.09 / 0.5 * (2 * math.log(20) + 3) + 4)
    assert widths.multiplier("mixture", MODEL, L, delta) == pytest.approx(expected)
    assert widths.multiplier(2.0, MODEL, L, delta) == 14.0
    width = widths.nonadaptive(MODEL, np.array([0.5]), np.array([0.2]), points=10, episodes=4, delta=delta)
    expected = 2 * math.sqrt(0.5 - 0.5 * 0.04) + 0.3 * 0.2 * math.sqrt(2 * math.log(2 * 10 * 4 / 0.05))
    assert width[0] == pytest.approx(expected)
    assert widths.paper_slope(0.1, 9, MODEL) == pytest.approx(0.3 / math.sqrt(0.5))
    assert widths.enlargement_exact(0.1, np.array([3.0]))[0] == pytest.approx(0.3)
    radius = 0.3 * math.sqrt(2 * math.log(math.pi**2 * 16 * 3 * 4 / (3 * 0.05)) / 4)
    assert own_bands.own_radius(0.3, 4, 3, 0.05) == pytest.approx(radius)


def test_widths_by_name():
    assert widths.check_width("mixture") == "mixture"
    assert widths.check_width("nonadaptive", also=["nonadaptive"]) == "nonadaptive"
    assert widths.check_width(2) == 2.0
    for wrong in ("beta", "nonadaptive", 0, -1.0, math.nan, None):
        with pytest.raises(InvalidInput, match="width"):
            widths.check_width(wrong)


def test_own_bands_by_index_and_by_coordinates():
    bands = own_bands.OwnBands(noise=0.2, delta=0.1, size=3)
    for key, y in [(2, 1.0), (2, 2.0), (b"somewhere", 5.0), (0, -1.0)]:
        bands.observe([key], [y])
    assert len(bands) == 3
    radii = [own_bands.own_radius(0.2, n, j, 0.1) for n, j in ((1, 3), (2, 3), (1, 2))]  # on the list: rank N
    np.testing.assert_allclose(bands.upper, [-1 + radii[0], np.inf, 1.5 + radii[1]])
    np.testing.assert_allclose(bands.lower, [-1 - radii[0], -np.inf, 1.5 - radii[1]])
    lower, upper = bands.at([b"somewhere", b"nowhere", 2])
    np.testing.assert_allclose(upper, [5 + radii[2], np.inf, 1.5 + radii[1]])
    np.testing.assert_allclose(lower, [5 - radii[2], -np.inf, 1.5 - radii[1]])
    assert bands.at([])[0].shape == (0,)
    for noise, delta in ((-1, 0.1), (0.1, 0), (0.1, 1)):
        with pytest.raises(InvalidInput):
            own_bands.OwnBands(noise, delta)


def test_bands_that_do_not_meet():
    lower, upper = np.array([0.0, 0.0]), np.array([1.0, 1.0])
    band = own_bands.ground(lower, upper, np.array([0.5, 2.0]), np.array([3.0, 3.0]))
    np.testing.assert_array_equal(band, [[0.5, 2.0], [1.0, 3.0]])
    low, high = own_bands.clip(lower, upper, np.array([0.5, 2.0]), np.array([3.0, 3.0]))
    np.testing.assert_array_equal(low, [0.5, 2.0])
    np.testing.assert_array_equal(high, [1.0, 2.0])


def test_the_upper_end_of_bands_that_do_not_meet():
    """Of the own band alone, wherever the model's lies; where the model's end is a bound, as the least of it says."""
    own_lower, own_upper = np.full(3, 0.5), np.full(3, 0.7)
    upper = np.array([0.4, 0.6, 0.9])
    np.testing.assert_array_equal(own_bands.grounded_upper(upper, own_lower, own_upper), [0.7, 0.6, 0.7])
    least = np.array([0.3, 0.4, 0.6])
    np.testing.assert_array_equal(own_bands.grounded_upper(upper, own_lower, own_upper, least=least), [0.7, 0.7, 0.7])
