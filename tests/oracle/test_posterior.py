"""The posterior against dense solves, scikit-learn and extended precision."""

import mpmath
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

import misspec as ms
from reference import KERNELS, Dense, design
from verbs import expect, fulfil, release


def check_against_dense(kernel, N, T, regularization, weights, seed):
    X, index, y = design(np.random.default_rng(seed), N, T)
    model = ms.Model(kernel, norm_bound=2.0, noise=0.1, regularization=regularization)
    posterior = ms.posterior.Tracked(model, ms.Finite(X), weights=weights)
    for i, value in zip(index, y, strict=True):
        posterior.observe_index(int(i), float(value))
    dense = Dense(kernel, regularization, X[index], y)
    scale, mean, variance = np.abs(y).max(), dense.mean(X), dense.variance(X)
    dictionary = 2e-9 / regularization
    assert np.abs(posterior.mean - mean).max() <= (1e-7 if weights else dictionary) * scale
    law = 1e-7 if weights else dictionary
    assert np.abs(posterior.variance - variance).max() <= max(law, 1e-8)
    assert posterior.log_det == pytest.approx(dense.log_det(), rel=1e-6)
    anywhere = np.random.default_rng(seed + 1).random((50, 2))
    at_mean, at_std = posterior.at(anywhere)
    assert np.abs(at_mean - dense.mean(anywhere)).max() <= dictionary * scale
    assert np.abs(at_std**2 - dense.variance(anywhere)).max() <= max(dictionary, 1e-8)
    assert np.abs(posterior.weights_norm2() - dense.norm2(X)).max() <= 1e-5
    if weights:
        assert np.abs(posterior.weights_norm1() - dense.norm1(X)).max() <= 1e-7
    return posterior


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("regularization", [1e-3, 0.02, 10.0])
@pytest.mark.parametrize("name", KERNELS)
def test_small(name, regularization, weights):
    check_against_dense(KERNELS[name], 120, 300, regularization, weights, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("regularization", [1e-3, 0.02, 0.3, 10.0])
@pytest.mark.parametrize("name", ["rbf", "linear"])
def test_full_size(name, regularization):
    posterior = check_against_dense(KERNELS[name], 2500, 5000, regularization, False, seed=2)
    assert posterior.rank <= 300  # the cost has stopped growing although the distinct points have not
    assert posterior.distinct > 1500


@pytest.mark.slow
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("regularization", [1e-3, 0.02, 0.3, 10.0])
@pytest.mark.parametrize("name", [n for n in KERNELS if n not in ("rbf", "linear")])
def test_other_kernels(name, regularization, weights):
    check_against_dense(KERNELS[name], 600, 1500, regularization, weights, seed=3)


@pytest.mark.parametrize("width", ["mixture", 2.0, 0.5])
@pytest.mark.parametrize("regularization", [1e-3, 0.02, 1.0])
@pytest.mark.parametrize("dimension", [1, 2])
def test_designs_of_an_upper_confidence_bound(dimension, regularization, width):
    """Clustered observations, whose covariances with far candidates only the shadows carry: the same law holds."""
    rng = np.random.default_rng(7)
    X = ms.Box([(0, 1)] * dimension).grid(200 if dimension == 1 else 25).points
    truth = np.sin(5 * X[:, 0]) * np.cos(4 * X[:, -1])
    model = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1, regularization=regularization)
    posterior = ms.posterior.Tracked(model, ms.Finite(X))
    index, y = [], []
    for _ in range(1200):
        multiplier = ms.theory.widths.multiplier(width, model, posterior.log_det, model.delta)
        index.append(int((posterior.mean + multiplier * posterior.std).argmax()))
        y.append(float(truth[index[-1]] + 0.1 * rng.standard_normal()))
        posterior.observe_index(index[-1], y[-1])
    dense = Dense(RBF(0.2), regularization, X[index], np.array(y))
    law = 2e-9 / regularization * np.abs(y).max()
    assert np.abs(posterior.mean - dense.mean(X)).max() <= law
    assert np.abs(posterior.variance - dense.variance(X)).max() <= 1e-8
    anywhere = rng.random((50, dimension))
    assert np.abs(posterior.at(anywhere)[0] - dense.mean(anywhere)).max() <= law
    # the weights of nearly equal points are determined up to n·tolerance/λ
    assert np.abs(posterior.weights_norm1() - dense.norm1(X)).max() <= 1e-5 + 1e-7 / regularization
    # and without candidates
    free = ms.posterior.Posterior(model, ms.Finite(X))
    free.observe(X[index], y)
    assert np.abs(free.at(X)[0] - dense.mean(X)).max() <= law
    assert np.abs(free.at(X)[1] ** 2 - dense.variance(X)).max() <= 1e-8


@pytest.mark.parametrize("kernel", [RBF(0.3), Matern(0.3, nu=2.5)])
def test_scikit_learn(kernel):
    rng = np.random.default_rng(4)
    X, observed = rng.random((80, 3)), rng.integers(0, 80, 60)
    y = 5 + rng.standard_normal(60)
    gp = GaussianProcessRegressor(kernel, alpha=0.05, optimizer=None).fit(X[observed], y - 5)
    mean, std = gp.predict(X, return_std=True)
    model = ms.Model(kernel, norm_bound=1.0, noise=0.1, regularization=0.05, offset=5.0)
    tracked, free = ms.posterior.Tracked(model, ms.Finite(X)), ms.posterior.Posterior(model, ms.Finite(X))
    tracked.observe(X[observed], y)
    free.observe(X[observed], y)
    np.testing.assert_allclose(tracked.mean, mean + 5, atol=1e-7)
    np.testing.assert_allclose(tracked.std, std, atol=1e-7)
    np.testing.assert_allclose(free.at(X), [mean + 5, std], atol=1e-7)
    # scikit-learn's log marginal likelihood holds the log determinant of K + λI
    residual = y - 5
    K = kernel(X[observed], X[observed].copy()) + 0.05 * np.eye(60)
    log_det = -2 * gp.log_marginal_likelihood_value_ - residual @ np.linalg.solve(K, residual) - 60 * np.log(2 * np.pi)
    assert tracked.log_det == pytest.approx(log_det - 60 * np.log(0.05), rel=1e-8)


def extended(regularization, X, index, y, length):
    """μ and ‖ζ‖₁ of a squared exponential kernel with 60 digits."""
    with mpmath.workdps(60):
        mpf = mpmath.mpf

        def k(a, b):
            return mpmath.exp(-sum((mpf(p) - mpf(q)) ** 2 for p, q in zip(a, b, strict=True)) / (2 * mpf(length) ** 2))

        points = [[float(v) for v in X[i]] for i in index]
        t = len(points)
        A = mpmath.matrix(t, t)
        for a in range(t):
            for b in range(t):
                A[a, b] = k(points[a], points[b]) + (mpf(regularization) if a == b else 0)
        inverse = A**-1
        mean, norm1 = [], []
        for x in X:
            zeta = [sum(inverse[a, b] * k([float(v) for v in x], points[b]) for b in range(t)) for a in range(t)]
            mean.append(float(sum(z * mpf(float(v)) for z, v in zip(zeta, y, strict=True))))
            norm1.append(float(sum(abs(z) for z in zeta)))
        return np.array(mean), np.array(norm1)


@pytest.mark.parametrize("regularization", [1e-6, 1e-4])
@pytest.mark.parametrize("clustered", [False, True])
def test_weights_in_extended_precision(regularization, clustered):
    rng = np.random.default_rng(5)
    X = rng.random((16, 2)) * (0.2 if clustered else 1.0)
    index = np.concatenate([rng.permutation(16)[:12], rng.integers(0, 16, 12)])
    y = rng.standard_normal(24)
    posterior = ms.posterior.Tracked(
        ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1, regularization=regularization), ms.Finite(X), weights=True
    )
    for i, value in zip(index, y, strict=True):
        posterior.observe_index(int(i), float(value))
    mean, norm1 = extended(regularization, X, index, y, 0.3)
    assert np.abs(posterior.mean - mean).max() <= 1e-7 * np.abs(y).max()
    assert np.abs(posterior.weights_norm1() - norm1).max() <= 1e-7
    assert np.abs(posterior.weights_norm1(np.array([3, 1])) - norm1[[3, 1]]).max() <= 1e-7


@pytest.mark.parametrize("weights", [False, True])
def test_points_off_the_candidates(weights):
    rng = np.random.default_rng(6)
    X, outside = rng.random((40, 2)), rng.random((25, 2))
    kernel = Matern(0.3, nu=1.5)
    posterior = ms.posterior.Tracked(
        ms.Model(kernel, norm_bound=1.0, noise=0.1, regularization=0.1), ms.Finite(X), weights=weights
    )
    y = rng.standard_normal(30)
    visited = np.concatenate([outside, outside[:5]])
    for x, value in zip(visited, y, strict=True):
        posterior.observe(x[None], value)
    dense = Dense(kernel, 0.1, visited, y)
    np.testing.assert_allclose(posterior.mean, dense.mean(X), atol=1e-10)
    np.testing.assert_allclose(posterior.variance, dense.variance(X), atol=1e-10)
    np.testing.assert_allclose(posterior.weights_norm1(), dense.norm1(X), atol=1e-9)
    np.testing.assert_allclose(np.abs(posterior.weights_at(X)).sum(axis=1), dense.norm1(X), atol=1e-9)
    np.testing.assert_allclose(posterior.weights_norm2(), dense.norm2(X), atol=1e-9)


def averaged(regularization, X, U, averages, n, length):
    """μ of a squared exponential kernel at X, given the averages of n results at each of U, with 40 digits."""
    with mpmath.workdps(40):
        scale = 2 * mpmath.mpf(length) ** 2

        def k(a, b):
            return mpmath.exp(-sum((mpmath.mpf(p) - mpmath.mpf(q)) ** 2 for p, q in zip(a, b, strict=True)) / scale)

        def gram(A, B):
            return mpmath.matrix([[k(a, b) for b in B.tolist()] for a in A.tolist()])

        ridge = mpmath.mpf(regularization) / n * mpmath.eye(len(U))
        alpha = mpmath.cholesky_solve(gram(U, U) + ridge, mpmath.matrix(averages.tolist()))
        return np.array([float(value) for value in gram(X, U) * alpha])


@pytest.mark.parametrize("dimension", [1, 2])
@pytest.mark.parametrize(("length", "regularization", "n"), [(0.3, 1e-2, 500), (1.5, 1e-4, 500), (0.6, 1e-6, 2000)])
def test_many_repeats_keep_the_law(dimension, length, regularization, n):
    """n/λ multiplies what the dictionary cannot see of a point, and what two such points have in common."""
    rng = np.random.default_rng(8)
    X = rng.random((60, dimension))
    U, averages = X[:30], np.sin(5 * X[:30, 0]) + 0.3 * np.sign(rng.standard_normal(30))
    model = ms.Model(RBF(length), norm_bound=2.0, noise=0.1, regularization=regularization)
    mean, law = averaged(regularization, X, U, averages, n, length), 2e-9 / regularization * np.abs(averages).max()
    index = rng.permutation(np.repeat(np.arange(30), n))
    together, steps = ms.posterior.Tracked(model, ms.Finite(X)), ms.posterior.Tracked(model, ms.Finite(X))
    free = ms.posterior.Posterior(model, ms.Finite(X))
    together.observe_index(index, averages[index])
    free.observe(X[index], averages[index])
    for i in index.tolist():
        steps.observe_index(i, float(averages[i]))
    for found in (together.mean, together.at(X)[0], steps.mean, steps.at(X)[0], free.at(X)[0]):
        assert np.abs(found - mean).max() <= law


@pytest.mark.parametrize("regularization", [1e-2, 1e-4])
def test_points_that_the_dictionary_explains_pend_and_are_taken_back(regularization):
    """Points a few millionths from others have covariances that the dictionary cannot see (`shadows.py`): the variance
    for choosing has them while they pend, and loses them when they are taken back, to 1e-9."""
    rng, kernel = np.random.default_rng(9), RBF(0.5)
    X = rng.random((30, 2))
    X[10:15] = X[:5] + 4e-6 * rng.standard_normal((5, 2))
    posterior = ms.posterior.Tracked(
        ms.Model(kernel, norm_bound=1.0, noise=0.1, regularization=regularization), ms.Finite(X)
    )
    told, pending = [0, 1, 2, 3, 4, 20, 10], []
    posterior.observe_index(np.array(told), rng.standard_normal(len(told)))

    def check():
        both = X[[*told, *pending]]
        dense = Dense(kernel, regularization, both, np.zeros(len(both)))
        np.testing.assert_allclose(posterior.pending_variance, dense.variance(X), atol=1e-9)
        np.testing.assert_allclose(posterior.at(X, pending=True)[1] ** 2, dense.variance(X), atol=1e-9)

    for i in (11, 12, 21, 11, 10, 13):
        expect(posterior, X[[i]])
        pending.append(i)
        check()
    for i in (11, 10, 12, 11):
        release(posterior, X[[i]])
        pending.remove(i)
        check()
    fulfil(posterior, X[[13]], 0.3)
    told.append(pending.pop())
    check()


def test_what_clustered_points_have_in_common():
    """Three clusters of three points, some millionths apart, with 75 results each that differ by far more than a
    function could: corrections of what shadows have in common keep all at once to 1e-8, and single steps to 6e-7 (seen
    are 2e-10 and 2e-7; without the corrections 1.5e-7 and 1.6e-6)."""
    rng, n, regularization = np.random.default_rng(8), 75, 1e-4
    X = rng.random((40, 2))
    X[10:16] = np.tile(X[:3], (2, 1)) + 4e-6 * rng.standard_normal((6, 2))
    U = np.r_[0:3, 10:16, 20:24]
    averages = np.sin(5 * X[U, 0]) + rng.standard_normal(len(U))
    mean = averaged(regularization, X, X[U], averages, n, 0.5)
    model = ms.Model(RBF(0.5), norm_bound=2.0, noise=0.1, regularization=regularization)
    together, steps = ms.posterior.Tracked(model, ms.Finite(X)), ms.posterior.Tracked(model, ms.Finite(X))
    rows = rng.permutation(np.repeat(np.arange(len(U)), n))
    together.observe_index(U[rows], averages[rows])
    for row in rows.tolist():
        steps.observe_index(int(U[row]), float(averages[row]))
    for found in (together.mean, together.at(X)[0]):
        np.testing.assert_allclose(found, mean, atol=1e-8)
    for found in (steps.mean, steps.at(X)[0]):
        np.testing.assert_allclose(found, mean, atol=6e-7)


def test_what_was_observed_before_a_feature_came_counts_along_it():
    """A linear kernel in the plane: (0.7, 0) explains (0.7, 7e-6) until (0, 0.7) comes. Observed a thousand times at a
    small ridge, it has by then told something along the second feature, which must be seen in all that is known."""
    kernel, regularization = DotProduct(sigma_0=0), 1e-6
    X = np.array([[0.7, 0.0], [0.7, 7e-6], [0.0, 0.7], [0.5, 0.5]])
    index = np.array([0, *[1] * 1000, 2])
    y = 0.3 + 0.1 * np.random.default_rng(10).standard_normal(len(index))
    posterior = ms.posterior.Tracked(
        ms.Model(kernel, norm_bound=1.0, noise=0.1, regularization=regularization), ms.Finite(X)
    )
    for i, value in zip(index, y, strict=True):
        posterior.observe_index(int(i), float(value))
    dense = Dense(kernel, regularization, X[index], y)
    assert posterior.rank == 2
    assert posterior.log_det == pytest.approx(dense.log_det(), rel=1e-7)
    np.testing.assert_allclose(posterior.mean, dense.mean(X), atol=1e-4)
    np.testing.assert_allclose(posterior.weights_norm2(), dense.norm2(X), rtol=1e-5)


@pytest.mark.parametrize("regularization", [1e-2, 1e-4])
def test_norms_of_weights_beside_points_that_the_dictionary_explains(regularization):
    """At arbitrary points, with shadows, one of them observed often: to 1e-8 (without their cross term 8e-5)."""
    rng, kernel = np.random.default_rng(9), RBF(0.5)
    X = rng.random((30, 2))
    X[10:15] = X[:5] + 6e-6 * rng.standard_normal((5, 2))
    index = np.r_[0:5, 10:15, 20, np.repeat(12, 30)]
    posterior = ms.posterior.Posterior(
        ms.Model(kernel, norm_bound=1.0, noise=0.1, regularization=regularization), ms.Finite(X)
    )
    posterior.observe(X[index], rng.standard_normal(len(index)))
    dense, here = Dense(kernel, regularization, X[index], np.zeros(len(index))), posterior.look(X)
    np.testing.assert_allclose(here.norm2(), dense.norm2(X), atol=1e-8)
    np.testing.assert_allclose(here.norm1(), dense.norm1(X), atol=1e-8)
