"""Learning the model: scaling of results, the marginal likelihood, the sampler, and the models of samples."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, multivariate_normal, multivariate_t

import misspec as ms
from misspec import hyperparameters
from misspec.hyperparameters import Data, Fitted, Hyperposterior, Scaling
from misspec.model import LEAST_REGULARIZATION
from misspec.posterior import Posterior
from misspec.product import ProductMatern

SPACE = ms.Space({"rate": ms.Float(0, 1), "depth": ms.Int(1, 4), "kind": ms.Choice(["a", "b"])})
COLUMNS = [(0, 1), (1, 2), (2, 4)]
LARGEST = np.finfo(np.float64).max

finite = st.floats(allow_nan=False, allow_infinity=False)
unit = st.floats(-1, 1).map(lambda v: v if abs(v) > 1e-9 else 0.0)


@st.composite
def results(draw):
    """Results as they may come: of any size, with or without an offset, all equal, or with one outlier."""
    size = 10.0 ** draw(st.sampled_from([0, 12, -12, 100, 300, -100, -300]))
    y = size * np.array(draw(st.lists(unit, min_size=1, max_size=30)))
    y = y + draw(st.sampled_from([0.0, 0.0, size, 1e3 * size]))
    if draw(st.booleans()):
        y[draw(st.integers(0, len(y) - 1))] = draw(st.sampled_from([1e12, -1e12, 1e308, -LARGEST, LARGEST])) * 1.0
    return np.full_like(y, y[0]) if draw(st.booleans()) and draw(st.booleans()) else y


# -- scaling -------------------------------------------------------------------------------------------------


@given(results(), st.sampled_from([None, 0.1, 1e-9]))
def test_scaling_is_finite_monotone_and_invertible(y, noise):
    scaling = Scaling.of(y, noise)
    assert np.isfinite(scaling).all()
    assert scaling.width > 0
    z = scaling.to(y)
    assert np.isfinite(z).all()
    back = scaling.back(z)
    # beyond the reach an error in z is one relative to the result
    far = np.abs(0.5 * y - 0.5 * scaling.centre)
    allowed = 1e-12 * scaling.width + 1e-12 * far + 1e-15 * np.abs(scaling.centre) + 1e-15 * np.abs(y)
    assert (np.abs(0.5 * back - 0.5 * y) <= allowed).all()
    order = np.argsort(y)
    assert (np.diff(z[order]) >= 0).all()
    assert (np.diff(scaling.back(np.sort(np.concatenate([z, z + 1.0, z - 1.0])))) >= 0).all()


@given(results(), st.lists(st.floats(-2000, 2000), min_size=2, max_size=20))
def test_whatever_is_believed_is_a_finite_result(y, z):
    scaling = Scaling.of(y)
    back = scaling.back(np.sort(z))
    assert np.isfinite(back).all()
    assert (back[1:] >= back[:-1]).all()


@given(results(), st.sampled_from([None, 0.1]))
def test_the_sign_mirrors_to_the_bit(y, noise):
    one, other = Scaling.of(y, noise), Scaling.of(-y, noise)
    np.testing.assert_array_equal(one.to(y), -other.to(-y))
    z = np.linspace(-9, 9, 7)
    np.testing.assert_array_equal(one.back(z), -other.back(-z))


@given(st.lists(st.floats(-1, 1), min_size=5, max_size=30), st.integers(-900, 900), st.floats(0.5, 2))
def test_units_do_not_matter(v, power, factor):
    """The model sees the same whatever the unit; to rounding, and for powers of two to the bit."""
    y = np.round(np.array(v), 9)
    if not np.ptp(y):
        return
    z = Scaling.of(y).to(y)
    np.testing.assert_array_equal(Scaling.of(np.ldexp(y, power)).to(np.ldexp(y, power)), z)
    np.testing.assert_allclose(Scaling.of(factor * y).to(factor * y), z, atol=1e-9)


def test_without_outliers_results_have_mean_0_and_variance_1():
    y = 1e5 + 3e3 * np.random.default_rng(0).standard_normal(50)
    z = Scaling.of(y).to(y)
    assert np.mean(z) == pytest.approx(0, abs=1e-10)
    assert np.std(z) == pytest.approx(1)


@pytest.mark.parametrize("outlier", [1e12, -1e12, 1e300, -LARGEST])
@pytest.mark.parametrize("n", [5, 8, 40])
def test_one_outlier_hides_no_other_result(n, outlier):
    y = np.append(np.random.default_rng(n).standard_normal(n), outlier)
    z = Scaling.of(y).to(y)
    assert 0.5 < z[:-1].std() < 2
    assert (z[-1] > z[:-1].max()) == (outlier > 0)
    assert abs(z[-1]) < 1000


def test_a_known_noise_is_the_least_width():
    y = np.array([1.0, 1.001, 0.999, 1.0, 1.0005])
    assert Scaling.of(y).width == pytest.approx(y.std())
    assert Scaling.of(y, noise=0.1).width == 0.1
    assert Scaling.of(y, noise=1e-5).width == pytest.approx(y.std())
    assert Scaling.of(np.full(5, 3.0), noise=0.1) == (3.0, 0.1)
    assert Scaling.of(np.full(5, 3.0)) == (3.0, 3.0)


def test_where_all_but_outliers_are_equal_these_set_the_scale():
    for y in (np.array([1e3, 1e3, np.nextafter(1e3, 0), 1e3, 1010.0]), np.array([0, 0, 0, 0, 0, 1e-4])):
        assert np.ptp(Scaling.of(y).to(y)) > 1


# -- data ----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.floats(-5, 5)), min_size=1, max_size=30))
def test_repeats_become_averages_counts_and_scatter(rows):
    points, y = np.array([row[:2] for row in rows], dtype=float), np.array([row[2] for row in rows])
    data = Data.of(points, y)
    groups = {}
    for *x, value in rows:
        groups.setdefault(tuple(x), []).append(value)
    assert data.total == len(rows)
    assert [tuple(x) for x in data.points] == sorted(groups)
    for x, average, count in zip(data.points, data.averages, data.counts, strict=True):
        assert count == len(groups[tuple(x)])
        assert average == pytest.approx(sum(groups[tuple(x)]) / count, abs=1e-12)
    scatter = sum((v - sum(g) / len(g)) ** 2 for g in groups.values() for v in g)
    assert data.scatter == pytest.approx(scatter, abs=1e-10)


def test_of_many_points_a_part_with_the_best():
    rng = np.random.default_rng(0)
    points = np.repeat(rng.random((hyperparameters.MOST + 200, 2)), 2, axis=0)
    whole = Data.of(points, rng.standard_normal(len(points)))
    part = whole.part(np.random.default_rng(1))
    assert len(part.averages) == hyperparameters.PART
    assert part.total == part.counts.sum() == 2 * hyperparameters.PART
    assert set(np.sort(whole.averages)[-hyperparameters.PART // 4 :]) <= set(part.averages)
    assert part.scatter == pytest.approx(whole.scatter * hyperparameters.PART / len(whole.averages))
    places = [np.flatnonzero((whole.points == x).all(axis=1))[0] for x in part.points]
    np.testing.assert_array_equal(whole.averages[places], part.averages)
    few = Data.of(points[:50], rng.standard_normal(50))
    assert few.part(rng) is few


# -- the marginal likelihood -----------------------------------------------------------------------------------


def told(seed=0, n=12, repeats=5):
    """Points of the space as the kernel sees them, some of them twice or more, and results."""
    rng = np.random.default_rng(seed)
    X = SPACE.encode(np.concatenate([SPACE.draw(rng) for _ in range(n)]))
    X = np.concatenate([X, X[rng.integers(n, size=repeats)]])
    return X, rng.standard_normal(len(X)) + 2 * X[:, 0]


def thetas(target, count=8, seed=3):
    rng = np.random.default_rng(seed)
    found = target.centre + 0.7 * target.spread * rng.standard_normal((count, len(target.centre)))
    found[:, -2] = np.maximum(found[:, -2], math.log(1e-4))  # where the jitter does not count
    return found


def covariance(theta, X, reach):
    """K + λI + 11ᵀ over all results, repeats included, in units of s²."""
    kernel = ProductMatern(reach * np.exp(theta[:3]), COLUMNS, 1 / (1 + math.exp(-theta[4])))
    return kernel(X, X) + math.exp(theta[3]) * np.eye(len(X)) + 1.0


def log_prior(target, theta):
    return -0.5 * float((((theta - target.centre) / target.spread) ** 2).sum())


@pytest.mark.parametrize("reach", [np.ones(3), np.array([2.0, 0.5, 1.0])])
def test_the_hyperposterior_is_a_multivariate_t_of_all_results(reach):
    """s² ~ inverse gamma(1, 1) makes y ~ t with 2 degrees of freedom and shape K + λI + 11ᵀ, m integrated out too."""
    X, y = told()
    target = Hyperposterior(Data.of(X, y), COLUMNS, reach, None)
    found, expected = [], []
    for theta in thetas(target):
        found.append(target(theta))
        shape = covariance(theta, X, reach)
        expected.append(multivariate_t(shape=shape, df=2).logpdf(y) + log_prior(target, theta))
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("noise", [0.05, 0.5])
def test_with_a_known_noise_the_amplitude_is_not_free(noise):
    """s² = σ²/λ: y is Gaussian, and the prior of s² is that of ln s², since θ is logarithmic."""
    X, y = told()
    target = Hyperposterior(Data.of(X, y), COLUMNS, np.ones(3), noise)
    found, expected = [], []
    for theta in thetas(target):
        theta[3] = max(theta[3], math.log(1e-3))
        square = noise**2 / math.exp(theta[3])
        likelihood = multivariate_normal(cov=square * covariance(theta, X, 1.0)).logpdf(y)
        found.append(target(theta))
        expected.append(likelihood - math.log(square) - 1 / square + log_prior(target, theta))
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-4, atol=1e-2)


def test_what_is_integrated_out_is_reported_at_its_mean():
    """m and s² of a θ against the dense conjugate regression; the norm against the mean function's own."""
    X, y = told()
    target = Hyperposterior(Data.of(X, y), COLUMNS, np.ones(3), None)
    for theta in thetas(target):
        fitted = target.fitted(theta)
        A = covariance(theta, X, 1.0)
        solved = np.linalg.solve(A, y)
        assert fitted.offset == pytest.approx(solved.sum(), rel=1e-4, abs=1e-5)
        assert fitted.scale**2 == pytest.approx((1 + y @ solved / 2) / (1 + len(y) / 2), rel=1e-4)
        K = A - 1.0 - math.exp(theta[3]) * np.eye(len(y))
        weights = np.linalg.solve(A - 1.0, y - fitted.offset)
        assert fitted.norm == pytest.approx(math.sqrt(weights @ K @ weights), rel=1e-3)
    known = Hyperposterior(Data.of(X, y), COLUMNS, np.ones(3), 0.3)
    assert known.fitted(theta).scale == pytest.approx(0.3 / math.exp(theta[3] / 2))


@pytest.mark.parametrize("noise", [None, 0.3, 1e-3, 1e-9, hyperparameters.LEAST_WIDTH])
def test_a_known_noise_however_small_leaves_the_amplitude_to_the_data(noise):
    X, _ = told(n=15, repeats=0)
    y = np.sin(4 * X[:, 0]) + X[:, 1] * (1 + X[:, 2])
    data = Data.of(X, (y - y.mean()) / y.std())
    target = Hyperposterior(data, COLUMNS, np.ones(3), noise)
    rng = np.random.default_rng(0)
    states = hyperparameters.renewed(target, hyperparameters.start(target, 4, rng), 3, rng)
    scales = [target.fitted(theta).scale for theta in states]
    assert 0.3 < np.median(scales) < 3
    for theta in states:
        model = hyperparameters.sampled_model(theta, target.fitted(theta), COLUMNS, np.ones(3))
        assert model.regularization >= LEAST_REGULARIZATION
        if noise is not None and noise >= 0.3:
            assert model.noise == pytest.approx(noise)


def test_what_cannot_be_is_impossible_and_not_an_error():
    X, y = told()
    target = Hyperposterior(Data.of(X, y), COLUMNS, np.ones(3), None)
    for far in (13.0, 1e3, 1e200):
        for sign in (-1, 1):
            assert target(target.centre + sign * far * target.spread) == -math.inf
    # a state that has become impossible begins again
    states = hyperparameters.renewed(
        target, np.array([target.centre + 50 * target.spread]), 1, np.random.default_rng(0)
    )
    assert math.isfinite(target(states[0]))


@pytest.mark.parametrize("noise", [None, 0.1])
@pytest.mark.parametrize(
    "y", [np.zeros(6), np.full(6, 3.0), np.array([0, 0, 0, 0, 0, 700.0]), 30.0 * np.arange(6)], ids=str
)
def test_odd_results_have_a_hyperposterior_everywhere(y, noise):
    X = np.linspace(0, 1, 6)[:, None]
    for points in (X, np.zeros((6, 1))):
        target = Hyperposterior(Data.of(points, y), [(0, 1)], np.ones(1), noise)
        for theta in target.centre + target.spread * np.random.default_rng(0).uniform(-11, 11, (50, 3)):
            assert math.isfinite(target(theta))
            assert np.isfinite(target.fitted(theta)).all()


def written_out(target, theta):
    """ln p(θ | data) as the top of `hyperparameters.py` has it, densely and without anything kept."""
    data, (d, u) = target.data, (len(target.columns), len(target.data.averages))
    scales, share = np.exp(theta[:d]), 1 / (1 + math.exp(-theta[-1]))
    K = np.zeros((u, u))
    for i, x in enumerate(data.points):
        for j, z in enumerate(data.points):
            pairs = zip(target.columns, target.reach * scales, strict=True)
            s = [math.sqrt(5) * np.linalg.norm(x[a:b] - z[a:b]) / scale for (a, b), scale in pairs]
            kappa = [(1 + each + each**2 / 3) * math.exp(-each) for each in s]
            K[i, j] = (1 - share) * math.prod(kappa) + share * sum(kappa) / d
    lam = max(math.exp(theta[d]), LEAST_REGULARIZATION)
    A = K + np.diag(lam / data.counts + hyperparameters.JITTER) + 1.0
    quadratic = data.averages @ np.linalg.solve(A, data.averages) + data.scatter / lam
    value = -0.5 * np.linalg.slogdet(A)[1] - 0.5 * (data.total - u) * math.log(lam) + log_prior(target, theta)
    weight, excess = 1 + data.total / 2, 1 + quadratic / 2
    if target.noise is None:
        return value - weight * math.log(excess)
    square = target.noise**2 / math.exp(theta[d])
    return value - weight * math.log(square) - excess / square


@pytest.mark.parametrize("noise", [None, 0.2])
@pytest.mark.parametrize("n", [1, 2, 11, 12])  # packed matrices of odd and even size differ
def test_what_is_kept_between_evaluations_changes_nothing(n, noise):
    """Along a path on which one, some, all or no length scales move, as samplers go, there and back."""
    X, y = told(n=n, repeats=n // 2)
    target = Hyperposterior(Data.of(X, y), COLUMNS, np.array([2.0, 0.5, 1.0]), noise)
    rng = np.random.default_rng(n)
    theta = target.centre.copy()
    theta[3] = math.log(0.1)
    for move in [[0], [0], [1], [3], [4], [2, 0], [0, 2], [0, 1, 2], [1], [1], [3, 4], [2], [], [0, 3], [1]]:
        before = theta.copy()
        theta[move] += 0.5 * rng.standard_normal(len(move))
        assert target(theta) == pytest.approx(written_out(target, theta), rel=1e-10, abs=1e-10)
        if rng.random() < 0.3:
            theta = before


def test_what_no_model_predicts_is_that_of_leaving_each_out():
    X, y = told(n=12, repeats=0)
    target = Hyperposterior(Data.of(X, y), COLUMNS, np.ones(3), None)
    data = target.data
    for theta in thetas(target, 4):
        A = covariance(theta, data.points, 1.0) + hyperparameters.JITTER * np.eye(12)
        left_out = []
        for i in range(12):
            rest = np.delete(np.arange(12), i)
            left_out.append(data.averages[i] - A[i, rest] @ np.linalg.solve(A[np.ix_(rest, rest)], data.averages[rest]))
        noise = target.fitted(theta).scale ** 2 * math.exp(theta[3])
        expected = max(0.0, np.median(np.square(left_out)) / hyperparameters.MEDIAN - noise) / np.var(data.averages)
        assert target.unexplained(theta) == pytest.approx(expected, rel=1e-6, abs=1e-9)


# -- sampling ------------------------------------------------------------------------------------------------


class Target:
    """A Gaussian with correlations, and a hard wall: −∞ where the first coordinate is below −1."""

    def __init__(self, spread=1.0):
        A = np.array([[1.0, 0.8, 0.0], [0.0, 0.6, -0.3], [0.0, 0.0, 2.0]])
        self.factor = spread * A.T
        self.precision = np.linalg.inv(self.factor @ self.factor.T)
        self.centre, self.spread = np.zeros(3), np.ones(3)

    def __call__(self, theta):
        return -math.inf if theta[0] < -1 else -0.5 * float(theta @ self.precision @ theta)

    def draw(self, rng, count):
        found = rng.standard_normal((3 * count, 3)) @ self.factor.T
        found = found[found[:, 0] >= -1][:count]
        assert len(found) == count
        return found


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.05, 1.0, 5.0])
def test_the_sampler_leaves_its_target_alone(spread):
    """States drawn from the target are a sample of it after sweeps too; this fails wrongly with probability 0.001."""
    target, rng = Target(spread), np.random.default_rng(5)
    count = 20_000  # a variance of 4% less was once found by this many
    before = target.draw(rng, count)
    after = hyperparameters.renewed(target, before, 2, rng)
    assert after.shape == before.shape
    fresh = target.draw(rng, count)
    projections = [np.eye(3)[0], np.eye(3)[1], np.eye(3)[2], np.ones(3), np.array([1.0, -1.0, 0.5])]
    for direction in projections:
        assert kstest(after @ direction, fresh @ direction).pvalue > 0.001 / (2 * len(projections))
    distance = np.einsum("ni,ij,nj->n", after, target.precision, after)
    assert kstest(distance, np.einsum("ni,ij,nj->n", fresh, target.precision, fresh)).pvalue > 0.001 / 2
    moved = np.abs(after - before).max(axis=1) > 0
    assert moved.all()


@pytest.mark.slow
def test_many_coordinates_move_together_and_leave_the_target_alone():
    """On ellipses too; this fails wrongly with probability 0.001."""
    d = hyperparameters.MOVES + 6

    class Wide:
        centre, spread = np.full(d, 0.5), np.linspace(0.5, 2.0, d)

        def __call__(self, theta):
            z = (theta - self.centre) / self.spread
            return -0.5 * float(z @ z) - 0.5 * (theta[0] / 0.1) ** 2 - 0.5 * (z[1] + z[2]) ** 2

    target, rng, count = Wide(), np.random.default_rng(3), 1500
    # dense Gaussian: the prior's precision and that of two measurements
    precision = np.diag(target.spread**-2.0)
    precision[0, 0] += 100.0
    pair = np.zeros(d)
    pair[[1, 2]] = 1 / target.spread[[1, 2]]
    precision += np.outer(pair, pair)
    mean = np.linalg.solve(precision, target.centre / target.spread**2 + pair * (pair @ target.centre))
    factor = np.linalg.cholesky(np.linalg.inv(precision))
    before = mean + rng.standard_normal((count, d)) @ factor.T
    after = hyperparameters.renewed(target, before, 2, rng)
    assert (np.abs(after - before).min(axis=1) > 0).all()
    directions = [np.eye(d)[0], np.eye(d)[1], np.eye(d)[9], pair, np.ones(d)]
    for direction in directions:
        size = np.linalg.norm(factor.T @ direction)
        assert kstest((after - mean) @ direction / size, "norm").pvalue > 0.001 / (len(directions) + 1)
    assert kstest(np.einsum("ni,ij,nj->n", after - mean, precision, after - mean), "chi2", (d,)).pvalue > 0.001 / 6


def test_sweeps_that_are_not_whole_are_shared_among_the_samplers():
    class Counted(Target):
        calls = 0

        def __call__(self, theta):
            self.calls += 1
            return super().__call__(theta)

    states = np.zeros((8, 3))
    moved = []
    for seed in range(20):
        target = Counted()
        after = hyperparameters.renewed(target, states, 0.5, np.random.default_rng(seed))
        moved.append((after != 0).any(axis=1))
    assert (np.sum(moved, axis=1) == 4).all()
    share = np.mean(moved, axis=0)
    assert share.min() > 0  # each has its turn
    assert share.max() < 1


def test_learning_that_takes_seconds_says_how_far_it_is(monkeypatch, caplog):
    target, states = Target(), np.zeros((3, 3))
    with caplog.at_level("INFO", logger="misspec"):
        hyperparameters.renewed(target, states, 1, np.random.default_rng(0))
        assert not caplog.records
        monkeypatch.setattr(hyperparameters, "SILENT", -1.0)
        hyperparameters.renewed(target, states, 1, np.random.default_rng(0))
    assert [record.getMessage()[:37] for record in caplog.records] == [
        f"learning the model: {i} of 3 samples, 0"[:37] for i in (1, 2)
    ]


def test_savings_set_in_gradually():
    """From 100 to 2,000 points the work of a sampler never falls by a seventh for five points more."""

    def work(u):
        whole = Data(np.zeros((u, 1)), np.arange(u, dtype=float), np.ones(u), 0.0, u)
        part = whole.part(np.random.default_rng(0))
        return hyperparameters.sweeps(SimpleNamespace(data=part)) * len(part.averages) ** 3

    works = np.array([work(u) for u in range(100, 2000, 5)])
    assert (works[1:] > 0.85 * works[:-1]).all()


def test_the_sampler_finds_its_target_and_repeats_itself():
    target = Target(0.3)
    states = np.array([[3.0, -3.0, 3.0], [0.0, 0.0, 0.0]])
    kept = states.copy()
    one = hyperparameters.renewed(target, states, 20, np.random.default_rng(1))
    other = hyperparameters.renewed(target, states, 20, np.random.default_rng(1))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(states, kept)
    assert (np.einsum("ni,ij,nj->n", one, target.precision, one) < 30).all()


# -- models of samples -----------------------------------------------------------------------------------------


def dense(model, X, y, Z):
    """Mean and standard deviation of Gaussian process regression, from its definition."""
    K = model.kernel(X, X) + model.regularization * np.eye(len(X))
    cross = model.kernel(Z, X)
    mean = model.offset + cross @ np.linalg.solve(K, y - model.offset)
    variance = 1.0 - np.einsum("nm,mn->n", cross, np.linalg.solve(K, cross.T))
    return mean, np.sqrt(np.maximum(variance, 0.0))


def test_the_model_of_a_sample_is_gaussian_process_regression():
    """Same mean as the likelihood's own: m is where the offset goes, s where the scale does."""
    rng = np.random.default_rng(2)
    points = np.concatenate([SPACE.draw(rng) for _ in range(10)])
    points = np.concatenate([points, points[:4]])
    y = rng.standard_normal(len(points))
    X = SPACE.encode(points)
    probes = np.concatenate([SPACE.draw(rng) for _ in range(20)])
    reach = np.array([1.0, 1.0, 1.0])
    target = Hyperposterior(Data.of(X, y), COLUMNS, reach, None)
    for theta in thetas(target, 4):
        fitted = target.fitted(theta)
        model = hyperparameters.sampled_model(theta, fitted, COLUMNS, reach)
        assert model.fitted
        assert (model.offset, model.scale) == (fitted.offset, fitted.scale)
        assert model.noise == pytest.approx(fitted.scale * math.exp(theta[3] / 2))
        assert model.regularization == pytest.approx((model.noise / model.scale) ** 2)
        assert model.norm_bound >= max(fitted.norm, fitted.scale) - 1e-12
        posterior = Posterior(model, SPACE)
        posterior.observe(points, y)
        found = posterior.at(probes)
        np.testing.assert_allclose(found, dense(model, X, y, SPACE.encode(probes)), atol=1e-6)
        # the mean with m integrated out is that with m at its own mean
        A = covariance(theta, X, reach)
        cross = model.kernel(SPACE.encode(probes), X) + 1.0
        np.testing.assert_allclose(found[0], cross @ np.linalg.solve(A, y), atol=1e-4)


def test_length_scales_are_relative_to_the_reach():
    theta = np.array([math.log(0.5), math.log(0.25), math.log(0.01), -1.0])
    model = hyperparameters.sampled_model(theta, Fitted(0.0, 1.0, 1.0), [(0, 1), (1, 2)], np.array([100.0, 1.0]))
    np.testing.assert_allclose(model.kernel.length_scale, [50.0, 0.25])
    assert model.kernel.additive == pytest.approx(1 / (1 + math.e))
