import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

import misspec as ms
from misspec import confidence

DOMAIN = ms.Box([(0, 1)]).grid(100)
MODEL = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)


@given(seed=st.integers(0, 10_000), length=st.sampled_from([0.1, 0.2, 0.5]), nu=st.sampled_from([0.5, 1.5, math.inf]))
def test_a_member_of_the_class_is_its_own_best(seed, length, nu):
    model = ms.Model(Matern(length, nu=nu), norm_bound=2.0, noise=0.1, offset=3.0)
    values = ms.problems.random_member(DOMAIN, model, seed)
    best = ms.best_in_class(DOMAIN, model, values)
    assert best.epsilon <= 1e-6
    np.testing.assert_allclose(best.values, values, atol=1e-6)
    assert best.norm == pytest.approx(2.0, abs=1e-4)


@given(seed=st.integers(0, 10_000), misfit=st.sampled_from(["random", "ripple", "spikes", "bump"]))
def test_planted_misfits_are_never_underestimated_by_the_plan(seed, misfit):
    problem = ms.problems.misspecified(DOMAIN, MODEL, 0.2, misfit, seed)
    solved = problem.solved()
    assert solved.epsilon <= 0.2 + 1e-6
    np.testing.assert_allclose(solved.values, problem.values)
    assert np.abs(solved.misfit).max() <= solved.epsilon + 1e-9


def test_a_larger_class_is_never_further_away():
    values = ms.problems.misspecified(DOMAIN, MODEL, 0.2, "ripple").values
    profile = ms.misspecification_profile(DOMAIN, MODEL, values)
    assert list(profile.norm_bounds / 2.0) == [2.0**k for k in range(-4, 5)]
    assert (np.diff(profile.epsilons) <= 1e-7).all()
    assert profile.epsilons[0] > profile.epsilons[-1]
    assert profile.epsilons[4] == pytest.approx(ms.best_in_class(DOMAIN, MODEL, values).epsilon)
    assert "B=2" in repr(profile)


def test_a_box_is_seen_as_its_unit_cube():
    wide = ms.Box([(-50, 50)]).grid(100)
    values = ms.problems.misspecified(DOMAIN, MODEL, 0.1, "ripple").values
    assert ms.best_in_class(wide, MODEL, values).epsilon == pytest.approx(
        ms.best_in_class(DOMAIN, MODEL, values).epsilon
    )
    found = ms.diagnose(wide.points, values, MODEL, domain=wide)
    np.testing.assert_allclose(found.points, wide.points)
    assert found.epsilon_lower == pytest.approx(ms.diagnose(DOMAIN.points, values, MODEL).epsilon_lower, abs=1e-9)


def test_zero_and_constant_truths():
    assert ms.best_in_class(DOMAIN, MODEL, np.zeros(100)).epsilon == 0.0
    assert ms.best_in_class(DOMAIN, MODEL, np.zeros(100)).norm == 0.0
    alone = ms.best_in_class(ms.Finite([[0.5]]), MODEL, [5.0])
    assert alone.epsilon == pytest.approx(3.0, rel=2e-6)  # |f| ≤ B at a single point
    assert alone.values[0] == pytest.approx(2.0, abs=1e-5)


def test_a_linear_model_cannot_explain_a_bend():
    model = ms.Model(DotProduct(0.0), norm_bound=10.0, noise=0.01, delta=0.1)
    x = np.linspace(-1, 1, 21)[:, None]
    best = ms.best_in_class(ms.Finite(x), model, x[:, 0] ** 2)
    assert best.epsilon == pytest.approx(1.0, abs=1e-6)  # x² is even, x odd: both ends pull
    found = ms.diagnose(np.tile(x, (50, 1)), np.tile(x[:, 0] ** 2, 50), model)
    assert 0.9 < found.epsilon_lower <= 1.0
    assert found.norm_needed == math.inf
    assert "no norm bound" in found.sentence
    assert abs(found.worst_point[0]) > 0.5


def test_a_diagnosis_says_what_to_do():
    x = np.linspace(0, 1, 40)[:, None]
    y = 5.0 + 3.0 * np.sin(40 * x[:, 0])
    model = ms.Model(RBF(0.2), norm_bound=1.0, noise=0.05, offset=5.0)
    found = ms.diagnose(np.tile(x, (30, 1)), np.tile(y, 30), model)
    assert found.epsilon_lower > 1.0
    assert found.norm_needed > 1.0
    assert str(found) == found.sentence
    assert f"{found.epsilon_lower:.3g}" in found.sentence
    assert f"{found.norm_needed:.2g}" in found.sentence
    assert "rougher kernel" in found.sentence
    slight = ms.diagnose(np.tile(x, (30, 1)), np.tile(5.0 + np.cos(3 * x[:, 0]), 30), model)
    assert slight.epsilon_lower > 0
    assert f"a norm bound of {slight.norm_needed:.3g} instead of 1" in slight.sentence
    assert "ECGPUCB" in found.sentence
    assert "probability at least 0.9" in found.sentence
    assert "chosen by looking at results" in found.sentence
    worst = int(np.flatnonzero((found.points == found.worst_point).all(axis=1))[0])
    assert (np.abs(found.residuals) - found.radii).argmax() == worst
    assert found.epsilon_lower <= (np.abs(found.residuals) - found.radii).max() + 1e-9
    assert ("above" in found.sentence) == (found.residuals[worst] > 0)
    enough = ms.Model(RBF(0.2), norm_bound=found.norm_needed * 1.001, noise=0.05, offset=5.0)
    calm = ms.diagnose(np.tile(x, (30, 1)), np.tile(y, 30), enough)
    assert calm.epsilon_lower == 0.0
    assert "do not contradict" in calm.sentence


def test_radii_are_those_of_the_own_bands():
    points = np.array([[0.3], [0.1], [0.3], [0.3], [0.2]])
    found = ms.diagnose(points, [1.0, 0.0, 2.0, 3.0, 0.0], MODEL)
    np.testing.assert_array_equal(found.points, [[0.3], [0.1], [0.2]])  # in the order of first visits
    np.testing.assert_array_equal(found.counts, [3, 1, 1])
    np.testing.assert_allclose(found.averages, [2.0, 0.0, 0.0])
    expected = [confidence.own_radius(0.1, n, j, 0.1) for n, j in [(3, 1), (1, 2), (1, 3)]]
    np.testing.assert_allclose(found.radii, expected)
    fixed = ms.diagnose(points, [1.0, 0.0, 2.0, 3.0, 0.0], MODEL, fixed_design=True)
    np.testing.assert_allclose(fixed.radii, 0.1 * np.sqrt(2 * np.log(2 * 3 / 0.1) / np.array([3, 1, 1])))
    assert found.adaptive
    assert not fixed.adaptive


@given(seed=st.integers(0, 1000))
def test_certificates_are_below_the_truth(seed):
    """Without noise a certificate can never exceed the misspecification on the points seen, nor that on all of them."""
    rng = np.random.default_rng(seed)
    problem = ms.problems.misspecified(DOMAIN, MODEL, 0.3, "random", seed)
    seen = rng.integers(0, 100, 150)
    found = ms.diagnose(DOMAIN.points[seen], problem.values[seen], MODEL)
    assert found.epsilon_lower <= 0.3


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ms.best_in_class(ms.Box([(0, 1)]), MODEL, [1.0]), "box.grid"),
        (lambda: ms.best_in_class(DOMAIN, MODEL, [1.0]), "100 numbers"),
        (lambda: ms.best_in_class(DOMAIN, MODEL, np.full(100, np.nan)), "finite"),
        (lambda: ms.best_in_class(DOMAIN, "model", np.zeros(100)), "must be a Model"),
        (lambda: ms.diagnose(np.zeros((0, 1)), [], MODEL), "at least 1"),
        (lambda: ms.diagnose([[0.0], [1.0]], [1.0], MODEL), "2 numbers"),
        (lambda: ms.diagnose([[0.0]], [1.0], MODEL, fixed_design=1), "True or False"),
        (lambda: ms.misspecification_profile(DOMAIN, MODEL, np.zeros(100), [0.0]), "norm_bound"),
    ],
)
def test_errors_say_what_to_do(call, says):
    with pytest.raises(ms.InvalidInput, match=says):
        call()
