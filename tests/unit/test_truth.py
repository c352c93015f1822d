import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

import misspec as ms
from misspec.theory import own_bands
from misspec.truth import certificates, energy

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
    precise = ms.Model(RBF(0.2), norm_bound=2.0, noise=1e-3)
    found = ms.diagnose(wide.points, values, precise, domain=wide)
    np.testing.assert_allclose(found.points, wide.points)
    assert found.epsilon_lower > 0.05
    assert found.epsilon_lower == pytest.approx(ms.diagnose(DOMAIN.points, values, precise).epsilon_lower, abs=1e-7)


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
    y = 5.0 + 3.0 * np.sin(15 * x[:, 0])
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
    assert "noise is at most 0.05" in found.sentence
    assert "1200 observations at 40 distinct points, 40 of them repeated" in found.sentence
    assert "chosen by looking at results" in found.sentence
    worst = int(np.flatnonzero((found.points == found.worst_point).all(axis=1))[0])
    assert (np.abs(found.residuals) - found.radii).argmax() == worst
    assert found.epsilon_lower <= (np.abs(found.residuals) - found.radii).max() + 1e-9
    assert ("above the nearest" in found.sentence) == (found.residuals[worst] > 0)
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
    expected = [own_bands.own_radius(0.1, n, 3, 0.1 / 3) for n in (3, 1, 1)]  # rows in any order: all pay for the last
    np.testing.assert_allclose(found.radii, expected)
    ordered = ms.diagnose(points, [1.0, 0.0, 2.0, 3.0, 0.0], MODEL, time_order=True)
    expected = [own_bands.own_radius(0.1, n, j, 0.1 / 3) for n, j in [(3, 1), (1, 2), (1, 3)]]
    np.testing.assert_allclose(ordered.radii, expected)
    fixed = ms.diagnose(points, [1.0, 0.0, 2.0, 3.0, 0.0], MODEL, fixed_design=True)
    np.testing.assert_allclose(fixed.radii, 0.1 * np.sqrt(2 * np.log(2 * 3 / (0.1 / 3)) / np.array([3, 1, 1])))
    assert found.adaptive
    assert not fixed.adaptive


@given(seed=st.integers(0, 1000), noise=st.sampled_from([0.0, 0.01]))
def test_certificates_are_below_the_truth(seed, noise):
    """Exact observations: a certificate can never exceed the misspecification, and without noise it reaches it."""
    rng = np.random.default_rng(seed)
    model = ms.Model(RBF(0.2), norm_bound=2.0, noise=noise)
    problem = ms.problems.misspecified(DOMAIN, model, 0.3, "random", seed)
    seen = rng.integers(0, 100, 150)
    found = ms.diagnose(DOMAIN.points[seen], problem.values[seen], model)
    assert found.epsilon_lower <= problem.solved().epsilon
    known = ms.best_in_class(ms.Finite(found.points), model, found.averages)
    assert 0.1 < found.epsilon_lower <= known.epsilon
    if noise == 0.0:
        assert found.epsilon_lower == pytest.approx(known.epsilon, abs=1e-5)


@pytest.mark.parametrize("points", [4, 7, 10, 13])
def test_rounding_proves_nothing(points):
    """Members of the class with norms up to 1e8, exact observations, noise 0: nothing to certify, and nothing is.

    vᵀKv is known to 1e-16 only, and B times its root is what a certificate subtracts; norms from 60 digits.
    """
    import mpmath

    mpmath.mp.dps = 60
    rng = np.random.default_rng(points)
    checked = 0
    for _ in range(12):
        x, length = np.sort(rng.random(points)), float(rng.choice([0.2, 0.3, 0.5, 1.0]))
        y = rng.standard_normal(points)
        K = mpmath.matrix(points, points)
        for i in range(points):
            for j in range(points):
                K[i, j] = mpmath.exp(-((mpmath.mpf(x[i]) - mpmath.mpf(x[j])) ** 2) / (2 * mpmath.mpf(length) ** 2))
        target = mpmath.matrix([mpmath.mpf(v) for v in y])
        norm = float(mpmath.sqrt((target.T * mpmath.lu_solve(K, target))[0]))
        if norm < 1e8:
            found = ms.diagnose(x[:, None], y, ms.Model(RBF(length), norm_bound=1.001 * norm, noise=0.0))
            assert found.epsilon_lower == 0.0
            checked += 1
    assert checked >= 1


def test_the_size_of_the_kernel_does_not_matter():
    """c·k with B/√c is the same class."""
    values = ms.problems.misspecified(DOMAIN, MODEL, 0.2, "ripple").values
    expected = ms.best_in_class(DOMAIN, MODEL, values)
    for c in (1e-4, 1e-8, 1e-12):
        model = ms.Model(ConstantKernel(c) * RBF(0.2), norm_bound=2.0 / math.sqrt(c), noise=0.1)
        found = ms.best_in_class(DOMAIN, model, values)
        assert found.epsilon == pytest.approx(expected.epsilon, rel=1e-5)
        assert found.norm * math.sqrt(c) == pytest.approx(expected.norm, rel=1e-3)


@pytest.mark.parametrize("B", [2.0, 50.0, 1000.0])
@pytest.mark.parametrize("epsilon", [0.2, 0.01])
def test_planted_misfits_are_bounds_for_any_norm(B, epsilon):
    model = ms.Model(RBF(0.2), norm_bound=B, noise=0.1)
    problem = ms.problems.misspecified(DOMAIN, model, epsilon, "random", seed=1)
    best = ms.best_in_class(DOMAIN, model, problem.values)
    assert best.epsilon <= epsilon * (1 + 1e-6) + best.gap
    assert best.gap <= 1e-5 * B


def test_a_forgotten_offset_is_suspected():
    found = ms.diagnose([[0.1], [0.5], [0.9]], [63.0, 64.0, 62.0], MODEL)
    assert "average 63 but the model's offset is 0" in found.sentence
    assert "offset is" not in ms.diagnose([[0.1], [0.5], [0.9]], [1.0, 1.5, 0.5], MODEL).sentence


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
        (lambda: ms.diagnose([[7.0]], [1.0], MODEL, domain=DOMAIN), "must lie in Box"),
        (lambda: ms.diagnose([[7.0]], [1.0], MODEL, domain=np.zeros((2, 1))), "must be a Finite, Box or Space"),
        (lambda: ms.misspecification_profile(DOMAIN, RBF(0.2), np.zeros(100)), "must be a Model"),
        (lambda: ms.misspecification_profile(DOMAIN, MODEL, np.zeros(100), [0.0]), "norm_bound"),
    ],
)
def test_errors_say_what_to_do(call, says):
    with pytest.raises(ms.InvalidInput, match=says):
        call()


def test_noise_from_repeats_is_the_pooled_standard_deviation():
    rng = np.random.default_rng(5)
    X = rng.integers(0, 5, 300)[:, None] / 5
    y = 10 * X[:, 0] + 0.3 * rng.standard_normal(300)
    groups = [y[X[:, 0] == x] for x in np.unique(X)]
    pooled = np.sqrt(sum(((g - g.mean()) ** 2).sum() for g in groups) / (300 - len(groups)))
    assert ms.noise_from_repeats(X, y) == pytest.approx(pooled)
    assert pooled == pytest.approx(0.3, rel=0.15)  # more than three standard errors
    with pytest.raises(ms.InvalidInput, match="at least 5 observations at points that were observed before, got 0"):
        ms.noise_from_repeats([[1.0], [2.0]], [1.0, 2.0])


def test_equal_points_of_different_groups_are_no_repeats():
    """What was left out of the points matters: no function of them is nearer than half of what it changes."""
    rng = np.random.default_rng(5)
    groups = np.repeat([0, 1], 200)
    X, y = np.zeros((400, 1)), np.where(groups, 1.0, -1.0) + 0.1 * rng.standard_normal(400)
    model = ms.Model(RBF(0.5), norm_bound=3.0, noise=0.1)
    for fixed in (False, True):
        found = ms.diagnose(X, y, model, fixed_design=fixed, groups=groups)
        assert 0.9 < found.epsilon_lower <= 1.0
        assert found.counts.tolist() == [200, 200]
    assert ms.diagnose(X, y, model, groups=np.zeros(400)).counts.tolist() == [400]
    with pytest.raises(ms.InvalidInput, match="groups must be 400 numbers"):
        ms.diagnose(X, y, model, groups=[1, 2])


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0, -1.0, 1e-300]), st.sampled_from([0.0, 2.0])), max_size=30))
def test_points_are_numbered_in_the_order_of_their_first_visits(rows):
    numbers = {}
    expected = [numbers.setdefault(row, len(numbers)) for row in rows]
    place, first = certificates.numbered_points(np.array(rows).reshape(-1, 2))
    assert place.tolist() == expected
    assert [rows[i] for i in first] == list(numbers)


@pytest.mark.parametrize("options", [{}, {"time_order": True}, {"fixed_design": True}])
def test_of_many_points_the_sharpest_are_used(monkeypatch, options):
    """The same radii as with all points, so that less is proved, and nothing that all would not."""
    rng = np.random.default_rng(5)
    points, counts = rng.random((60, 2)), rng.permutation(60) // 4 + 1
    X = np.repeat(points, counts, axis=0)[rng.permutation(counts.sum())]
    y = 2.0 * (X[:, 0] > 0.5) + 0.1 * rng.normal(size=len(X))
    model = ms.Model(RBF(0.5), norm_bound=2.0, noise=0.1)
    every = ms.diagnose(X, y, model, **options)
    assert "were used" not in every.sentence
    monkeypatch.setattr(certificates, "MOST_DISTINCT", 40)
    monkeypatch.setattr(certificates, "SHARPEST", 20)
    some = ms.diagnose(X, y, model, **options)
    assert "at 60 distinct points" in some.sentence
    assert "; of these points the 20 with the smallest radii were used" in some.sentence
    assert some.radii.max() <= np.sort(every.radii)[19]
    used = [every.points.tolist().index(x) for x in some.points.tolist()]
    assert used == sorted(used)
    for name in ("averages", "counts", "radii"):
        np.testing.assert_array_equal(getattr(some, name), getattr(every, name)[used])
    assert 0.1 < some.epsilon_lower <= every.epsilon_lower
    assert len(some.fitted) == len(some.residuals) == 20


def test_a_part_of_many_points_proves_nothing_of_a_right_model(monkeypatch):
    """The theorem allows each run to fail with probability δ = 0.01; the seeds are fixed."""
    monkeypatch.setattr(certificates, "MOST_DISTINCT", 30)
    monkeypatch.setattr(certificates, "SHARPEST", 15)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.random((300, 2))
        model = ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1, delta=0.01)
        y = model.kernel(X, [[0.3, 0.6]])[:, 0] + 0.1 * rng.normal(size=len(X))
        for options in ({}, {"time_order": True}, {"fixed_design": True}):
            assert ms.diagnose(X, y, model, **options).epsilon_lower == 0.0


@pytest.mark.parametrize("distinct", [40, 100_000])
def test_many_rows_take_memory_like_their_own(monkeypatch, distinct):
    monkeypatch.setattr(certificates, "MOST_DISTINCT", 100)
    monkeypatch.setattr(certificates, "SHARPEST", 50)
    monkeypatch.setattr(energy, "MOST", 100)
    rng = np.random.default_rng(6)
    X = rng.random((distinct, 5))[np.arange(100_000) % distinct]
    y = np.sin(5 * X[:, 0]) + 0.1 * rng.normal(size=len(X))
    tracemalloc.start()
    try:
        assert ms.diagnose(X, y, ms.Model(RBF(0.5), norm_bound=5.0, noise=0.1)).counts.sum() > 0
        assert tracemalloc.get_traced_memory()[1] < 7 * X.nbytes
    finally:
        tracemalloc.stop()
