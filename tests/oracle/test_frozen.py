"""Features that are fixed at arrival: linear kernels against dense solves, budgets against the formulas of issue 13."""

import copy
import functools
import itertools

import mpmath
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

import misspec as ms
from misspec import kernels
from misspec.posterior.fixed import LEAST, STEEPNESS
from misspec.posterior.posterior import MOST_LINEAR
from misspec.posterior.regression import Regression
from reference import Dense
from verbs import expect, fulfil

LINEAR = {
    "dot": DotProduct(sigma_0=0),
    "dot with origin": DotProduct(sigma_0=0.5),
    "multiple": ConstantKernel(0.5) * DotProduct(sigma_0=0.3),
    "multiple, other way round": DotProduct(sigma_0=0) * ConstantKernel(0.5),
    "constant": ConstantKernel(0.7),
    "sum": DotProduct(sigma_0=0) + ConstantKernel(0.3),
    "sum of sums": ConstantKernel(0.3) * DotProduct(sigma_0=0.2) + (DotProduct(sigma_0=0) + ConstantKernel(0.1)),
    "multiple of a sum": (DotProduct(sigma_0=0.2) + ConstantKernel(0.3)) * ConstantKernel(0.6),
}
BUDGETED = {
    "matern12": (Matern(0.8, nu=0.5), 2),
    "matern52": (Matern(0.6, nu=2.5), 3),
    "rbf": (RBF(0.5), 3),
    "product": (ConstantKernel(0.8) * RBF(0.7) * Matern(1.0, nu=1.5), 2),
}
WAYS = ("one by one", "in bulk", "in all ways")


def parts(n, way):
    """Where `n` rows are cut into calls of `observe`: of one row, of more than 256, or of few, many and one."""
    if way == "one by one":
        return [(i, i + 1) for i in range(n)]
    if way == "in bulk":
        return [(0, n)]
    ends = [0, 1, 2, 30, 60, n - 3, n - 2, n]  # the one in the middle is of many
    return list(itertools.pairwise(ends))


def design(rng, n, d, reach=0.4):
    """Points that repeat, some of them next to each other, and results."""
    X = reach * (2 * rng.random((n, d)) - 1)
    X[n // 3 : n // 2] = X[rng.integers(0, n // 4, n // 2 - n // 3)]
    X[n - 20 : n - 15] = X[5:10] + 1e-9
    return X, np.sin(5 * X[:, 0]) + X[:, -1] + 0.1 * rng.standard_normal(n)


def matrix_of(times, n):
    """The matrix that a method multiplies rows by."""
    return times(np.eye(n))


# -- linear kernels ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("regularization", [1e-3, 1.0])
@pytest.mark.parametrize("name", LINEAR)
def test_linear_kernels(name, regularization, way):
    rng, kernel = np.random.default_rng(1), LINEAR[name]
    X, y = design(rng, 400, 4)
    posterior = ms.posterior.Posterior(
        ms.Model(kernel, norm_bound=2.0, noise=0.1, regularization=regularization, offset=0.7), ms.Open(4)
    )
    for start, end in parts(len(y), way):
        posterior.observe(X[start:end], y[start:end])
    # a dense solve over 400 points of a kernel of rank ≤ 7 has errors of its own, of order 1e-16·n/λ
    tolerance = 1e-11 + 1e-12 / regularization
    dense, here = Dense(kernel, regularization, X, y, offset=0.7), np.concatenate([X[:9], rng.random((20, 4)) / 3])
    look = posterior.look(here)
    np.testing.assert_allclose(look.mean, dense.mean(here), atol=tolerance)
    np.testing.assert_allclose(look.variance, dense.variance(here), atol=tolerance)
    np.testing.assert_allclose(look.norm1(), dense.norm1(here), atol=1e-8 + 1e-9 / regularization)
    np.testing.assert_allclose(look.norm2(), dense.norm2(here), atol=1e-9 + 1e-10 / regularization)
    mean, std = posterior.at(here)
    np.testing.assert_array_equal(mean, look.mean)
    np.testing.assert_allclose(std**2, look.variance, atol=1e-15)
    weights = posterior.weights_at(here)
    np.testing.assert_allclose(weights @ (posterior.averages - 0.7) + 0.7, mean, atol=1e-9)
    assert posterior.log_det == pytest.approx(dense.log_det(), rel=1e-8, abs=1e-10)
    assert posterior.t == 400
    assert posterior.distinct == len(np.unique(X, axis=0))
    assert posterior.rank == len(kernels.affine(kernel, 4).m) <= 11
    assert look.residual is None  # nothing is missed


def test_linear_kernels_after_many_steps():
    """Drift is bounded by recomputation from S and p, which cost the same whatever t."""
    rng, kernel = np.random.default_rng(2), DotProduct(sigma_0=0.2)
    X = rng.random((2500, 3)) - 0.5
    y = X @ [1.0, -1.0, 0.5] + 0.1 * rng.standard_normal(2500)
    posterior = ms.posterior.Posterior(ms.Model(kernel, norm_bound=2.0, noise=0.1, regularization=1e-4), ms.Open(3))
    for x, value in zip(X, y, strict=True):
        posterior.observe(x[None], value)
    Phi = np.column_stack([X, np.full(2500, 0.2)])
    A, here = Phi.T @ Phi + 1e-4 * np.eye(4), np.column_stack([X[:30], np.full(30, 0.2)])
    mean, std = posterior.at(X[:30])
    np.testing.assert_allclose(mean, here @ np.linalg.solve(A, Phi.T @ y), atol=1e-10)
    np.testing.assert_allclose(std**2, 1e-4 * np.einsum("nr,rn->n", here, np.linalg.solve(A, here.T)), atol=1e-12)


@pytest.mark.parametrize("budget", [None, 3])
@pytest.mark.parametrize("name", LINEAR)
def test_linear_kernels_before_any_data(name, budget):
    kernel = LINEAR[name]
    X = 0.3 * np.random.default_rng(0).random((5, 4))
    posterior = ms.posterior.Posterior(
        ms.Model(kernel, norm_bound=2.0, noise=0.1, offset=-1.5), ms.Open(4), budget=budget
    )
    look = posterior.look(X)
    np.testing.assert_array_equal(look.mean, np.full(5, -1.5))
    np.testing.assert_allclose(look.variance, kernel.diag(X), atol=1e-15)
    np.testing.assert_array_equal(look.norm2(), np.zeros(5))
    np.testing.assert_array_equal(look.norm1(), np.zeros(5))
    assert posterior.weights_at(X).shape == (5, 0)
    assert posterior.log_det == posterior.information == 0.0


@pytest.mark.parametrize("name", LINEAR)
def test_features_of_linear_kernels(name):
    kernel, rng = LINEAR[name], np.random.default_rng(3)
    X, Z = rng.standard_normal((7, 3)), rng.standard_normal((5, 3))
    affine = kernels.affine(kernel, 3)
    np.testing.assert_allclose(affine(X) @ affine(Z).T, kernel(X, Z), atol=1e-12)
    np.testing.assert_allclose((affine(X) ** 2).sum(axis=1), kernel.diag(X), atol=1e-12)
    slopes, step = affine.slopes(7), 1e-6
    assert slopes.shape == (len(affine.m), 7, 3)
    for k in range(3):
        move = step * np.eye(3)[k]
        numeric = (affine(X + move) - affine(X - move)) / (2 * step)
        np.testing.assert_allclose(slopes[:, :, k].T, numeric, atol=1e-9)


def test_which_kernels_are_linear():
    class Warped(DotProduct):
        def __call__(self, X, Y=None, eval_gradient=False):  # noqa: ARG002
            return super().__call__(X, Y) ** 2

    other = [RBF(0.3), Warped(0.2), DotProduct(0.1) * DotProduct(0.1), DotProduct(0.1) + RBF(0.3), DotProduct(0.3) ** 2]
    for kernel in other:
        assert kernels.affine(kernel, 3) is None, kernel


def test_linear_kernels_in_more_dimensions_than_are_kept_from_the_start():
    rng, d = np.random.default_rng(4), MOST_LINEAR + 1
    X = rng.standard_normal((12, d)) / np.sqrt(2 * d)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    y, kernel = rng.standard_normal(12), DotProduct(sigma_0=0)
    posterior = ms.posterior.Posterior(
        ms.Model(kernel, norm_bound=2.0, noise=0.1, regularization=0.1), ms.Open(d, radius=1.0)
    )
    assert posterior.rank == 0
    posterior.observe(X, y)
    assert posterior.rank == 12
    dense = Dense(kernel, 0.1, X, y)
    np.testing.assert_allclose(posterior.at(X)[0], dense.mean(X), atol=1e-9)
    np.testing.assert_allclose(posterior.at(X)[1] ** 2, dense.variance(X), atol=1e-9)


# -- budgets -----------------------------------------------------------------------------------------------------------


class Transcription:
    """Issue 13 with nothing clever: φ_s and res_s of each observation, as they were when its point arrived."""

    def __init__(self, kernel, budget, regularization, B):
        self.kernel, self.budget, self.ridge, self.B = kernel, budget, regularization, B
        self.Z = []
        self.arrived = {}  # point → φ and res
        self.rows, self.y, self.made = [], [], {}

    def features(self, X):
        """φ(x) = L_Z⁻¹ k_Z(x) and k(x,x) − ‖φ(x)‖²."""
        if not self.Z:
            return np.zeros((len(X), 0)), self.kernel.diag(X)
        Z = np.array(self.Z)
        phi = np.linalg.solve(np.linalg.cholesky(self.kernel(Z, Z.copy())), self.kernel(Z, X)).T
        return phi, np.maximum(self.kernel.diag(X) - (phi**2).sum(axis=1), 0.0)

    def arrive(self, x):
        if x.tobytes() in self.arrived:
            return
        phi, residual = (each[0] for each in self.features(x[None]))
        r = len(self.Z)
        if r < self.budget and residual > max(LEAST, (r / self.budget) ** STEEPNESS):
            self.Z.append(x)
            phi, residual = np.append(phi, np.sqrt(residual)), 0.0
        self.arrived[x.tobytes()] = phi, residual

    def observe(self, X, y):
        for x in X:
            self.arrive(x)
        self.rows += [x.tobytes() for x in X]
        self.y += list(y)

    @property
    def rank(self):
        return len(self.Z)

    @property
    def table(self):
        """Φ, one row per observation."""
        key = len(self.rows), self.rank
        if key not in self.made:
            padded = [np.append(phi, np.zeros(self.rank - len(phi))) for phi, _ in map(self.arrived.get, self.rows)]
            self.made[key] = np.array(padded).reshape(key)
        return self.made[key]

    @property
    def residuals(self):
        return np.array([self.arrived[x][1] for x in self.rows])

    @property
    def precision(self):
        return self.table.T @ self.table + self.ridge * np.eye(self.rank)

    def mean(self, X):
        return self.features(X)[0] @ np.linalg.solve(self.precision, self.table.T @ np.array(self.y))

    def seen(self, X):
        """σ_Z²."""
        phi = self.features(X)[0]
        return self.ridge * np.einsum("nr,rn->n", phi, np.linalg.solve(self.precision, phi.T))

    def log_det(self):
        return np.linalg.slogdet(np.eye(self.rank) + self.table.T @ self.table / self.ridge)[1]

    def zeta(self, X):
        return np.linalg.solve(self.precision, self.features(X)[0].T).T @ self.table.T

    def exact(self, X, epsilon):
        b = epsilon + self.B * np.sqrt(self.residuals)
        return self.B * np.sqrt(self.features(X)[1]) + np.abs(self.zeta(X)) @ b

    def flat(self, X, epsilon, more=1):
        """more: of ε in Σ b_s, for the observation to come; 0 for the bound as it stands in the issue."""
        b = epsilon + self.B * np.sqrt(self.residuals)
        G = self.table.T @ (b[:, None] * self.table)
        v = np.linalg.solve(self.precision, self.features(X)[0].T).T
        root = np.sqrt(np.maximum(np.einsum("nr,rq,nq->n", v, G, v), 0.0))
        return self.B * np.sqrt(self.features(X)[1]) + np.sqrt(b.sum() + more * epsilon) * root


def agree(found, expected, X, offset=0.0, tolerance=1e-7):
    """found: mean, variance, residual, norm1, norm2, bias."""
    mean, variance, residual, norm1, norm2, bias = found
    np.testing.assert_allclose(mean, expected.mean(X) + offset, atol=tolerance)
    np.testing.assert_allclose(residual, expected.features(X)[1], atol=tolerance)
    np.testing.assert_allclose(variance - residual, expected.seen(X), atol=tolerance)
    zeta = expected.zeta(X)
    np.testing.assert_allclose(norm1, np.abs(zeta).sum(axis=1), atol=100 * tolerance)
    np.testing.assert_allclose(norm2, np.linalg.norm(zeta, axis=1), atol=tolerance)
    for epsilon in (0.0, 0.1, 2.0):
        np.testing.assert_allclose(bias(epsilon, True), expected.exact(X, epsilon), atol=1e-5, rtol=1e-6)
        np.testing.assert_allclose(bias(epsilon, False), expected.flat(X, epsilon), atol=1e-5, rtol=1e-6)
        assert (bias(epsilon, False) >= expected.flat(X, epsilon, more=0) - 1e-5).all()


def counted(posterior, expected):
    assert posterior.rank == expected.rank <= expected.budget
    assert posterior.log_det == pytest.approx(expected.log_det(), rel=1e-8, abs=1e-10)
    assert posterior.missed_squares == pytest.approx(expected.residuals.sum(), rel=1e-7, abs=1e-8)
    total = 0.3 * (len(expected.y) + 1) + expected.B * np.sqrt(expected.residuals).sum()
    assert posterior._base.misfit_total(0.3) == pytest.approx(total, rel=1e-6)


@functools.cache
def on_an_open_domain(name, budget):
    (kernel, d), rng = BUDGETED[name], np.random.default_rng(5)
    X, y = design(rng, 320, d, reach=0.9)
    expected = Transcription(kernel, budget, 0.05, 1.7)
    expected.observe(X, y - 0.4)
    return X, y, expected, np.concatenate([X[:12], X[150:155], rng.random((15, d))])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("budget", [1, 6, 25])
@pytest.mark.parametrize("name", BUDGETED)
def test_a_budget_on_an_open_domain(name, budget, way):
    kernel, d = BUDGETED[name]
    X, y, expected, here = on_an_open_domain(name, budget)
    posterior = ms.posterior.Posterior(
        ms.Model(kernel, norm_bound=1.7, noise=0.1, regularization=0.05, offset=0.4), ms.Open(d), budget=budget
    )
    for start, end in parts(len(y), way):
        posterior.observe(X[start:end], y[start:end])
    counted(posterior, expected)
    look = posterior.look(here)
    agree((look.mean, look.variance, look.residual, look.norm1(), look.norm2(), look.bias), expected, here, offset=0.4)
    weights = posterior.weights_at(here)
    np.testing.assert_allclose(weights @ (posterior.averages - 0.4) + 0.4, look.mean, atol=1e-8)
    # asked for once more, when all features are known, and after a recomputation
    posterior._base.refresh()
    again = posterior.look(here)
    agree((again.mean, again.variance, again.residual, again.norm1(), again.norm2(), again.bias), expected, here, 0.4)


@functools.cache
def over_candidates(name, budget):
    (kernel, d), rng = BUDGETED[name], np.random.default_rng(6)
    candidates, n = 2 * rng.random((60, d)) - 1, 320
    candidates[7] = candidates[6]  # two arms that the model cannot tell apart
    index = rng.integers(0, 60, n)
    y = np.sin(4 * candidates[index, 0]) + 0.1 * rng.standard_normal(n)
    expected = Transcription(kernel, budget, 0.05, 1.7)
    expected.observe(candidates[index], y - 0.4)
    return candidates, index, y, expected


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("budget", [6, 25])
@pytest.mark.parametrize("name", BUDGETED)
def test_a_budget_over_candidates(name, budget, way):
    kernel, _ = BUDGETED[name]
    candidates, index, y, expected = over_candidates(name, budget)
    posterior = ms.posterior.Tracked(
        ms.Model(kernel, norm_bound=1.7, noise=0.1, regularization=0.05, offset=0.4),
        ms.Finite(candidates),
        budget=budget,
    )
    for start, end in parts(len(y), way):
        posterior.observe_index(index[start:end], y[start:end])
    counted(posterior, expected)
    residual, bias = posterior.missed_over(slice(None))
    norms = posterior.weights_norm1(), posterior.weights_norm2()
    agree((posterior.mean, posterior.variance, residual, *norms, bias), expected, candidates, offset=0.4)
    some = np.array([41, 3, 6, 7, 3])
    residual, bias = posterior.missed_over(some)
    found = (
        posterior.mean[some],
        posterior.variance[some],
        residual,
        posterior.weights_norm1(some),
        norms[1][some],
        bias,
    )
    agree(found, expected, candidates[some], offset=0.4)
    # at points as at candidates
    look = posterior.look(candidates)
    agree((look.mean, look.variance, look.residual, look.norm1(), look.norm2(), look.bias), expected, candidates, 0.4)


@pytest.mark.parametrize("way", ["one by one", "in bulk"])
def test_what_was_missed_before_a_linear_kernel_had_all_its_features_is_paid_for(way):
    """Over candidates features arrive one by one, and points that came before the last of them are known in part."""
    rng, kernel, d = np.random.default_rng(18), DotProduct(sigma_0=0), 5
    X = rng.standard_normal((330, d))
    X /= np.linalg.norm(X, axis=1)[:, None]
    X[:4] = np.eye(d)[:4]
    X[4:60, 4] = 0.2 * rng.random(56)  # too little for the last one
    X /= 1.02
    y = X @ np.ones(d) / np.sqrt(d)
    posterior = ms.posterior.Tracked(
        ms.Model(kernel, norm_bound=1.0, noise=0.1, regularization=0.05), ms.Finite(X[:50]), budget=d
    )
    expected = Transcription(kernel, d, 0.05, 1.0)
    expected.observe(X, y)
    for start, end in parts(len(y), way):
        posterior.observe(X[start:end], y[start:end])
    counted(posterior, expected)
    assert posterior.rank == d
    assert posterior.missed_squares > 0.1
    residual, bias = posterior.missed_over(slice(None))
    norms = posterior.weights_norm1(), posterior.weights_norm2()
    agree((posterior.mean, posterior.variance, residual, *norms, bias), expected, X[:50])
    here = X[45:70]
    look = posterior.look(here)
    assert look.bias is not None, "what is missed is paid for at any point"
    agree((look.mean, look.variance, look.residual, look.norm1(), look.norm2(), look.bias), expected, here)


@pytest.mark.parametrize("listed", [False, True], ids=["open", "listed"])
def test_features_are_those_of_the_arrival(listed):
    """Points arrive when they are hallucinated, and are told in another order: what counts is when they arrived."""
    kernel, rng = Matern(0.6, nu=2.5), np.random.default_rng(7)
    X, y = rng.random((40, 2)), rng.standard_normal(40)
    model = ms.Model(kernel, norm_bound=1.5, noise=0.1, regularization=0.05)
    posterior = (
        ms.posterior.Tracked(model, ms.Finite(X), budget=9)
        if listed
        else ms.posterior.Posterior(model, ms.Open(2), budget=9)
    )
    expected = Transcription(kernel, 9, 0.05, 1.5)
    for x in X[:30]:
        expect(posterior, x[None])
        expected.arrive(x)
    rank = posterior.rank
    for i in rng.permutation(30):
        fulfil(posterior, X[[i]], y[i])
        expected.observe(X[[i]], y[[i]])
    assert posterior.rank == rank
    posterior.observe(X[30:], y[30:])
    expected.observe(X[30:], y[30:])
    counted(posterior, expected)
    look = posterior.look(X)
    agree((look.mean, look.variance, look.residual, look.norm1(), look.norm2(), look.bias), expected, X)


@pytest.mark.parametrize("listed", [False, True], ids=["open", "listed"])
@pytest.mark.parametrize("kernel", [DotProduct(sigma_0=0.4), Matern(0.6, nu=2.5)], ids=["linear", "matern"])
def test_pending_points_count_in_the_variance_alone(kernel, listed):
    rng = np.random.default_rng(8)
    X, y = 0.5 * rng.random((50, 3)), rng.standard_normal(30)
    model = ms.Model(kernel, norm_bound=1.5, noise=0.1, regularization=0.05)
    budget = None if isinstance(kernel, DotProduct) else 8
    make = (lambda: ms.posterior.Tracked(model, ms.Finite(X), budget=budget)) if listed else (
        lambda: ms.posterior.Posterior(model, ms.Open(3), budget=budget)
    )  # fmt: skip
    one, both = make(), make()
    one.observe(X[:30], y)
    mean, std = one.at(X)
    expect(one, X[30:45])
    both.observe(X[:45], np.append(y, np.zeros(15)))
    np.testing.assert_allclose(one.at(X)[0], mean, atol=1e-10)
    np.testing.assert_allclose(one.at(X)[1] ** 2, std**2, atol=1e-10)
    np.testing.assert_allclose(one.at(X, pending=True)[1] ** 2, both.at(X)[1] ** 2, atol=1e-10)
    assert one.pending_information == pytest.approx(both.information - one.information, rel=1e-8)
    if listed:
        np.testing.assert_allclose(one.pending_variance, both.variance, atol=1e-10)
    # more is observed meanwhile, one by one and in bulk
    more, values = 0.5 * rng.random((300, 3)), rng.standard_normal(300)
    for each in (one, both):
        each.observe(more[:1], values[:1])
        each.observe(more[1:], values[1:])
    np.testing.assert_allclose(one.at(X, pending=True)[1] ** 2, both.at(X)[1] ** 2, atol=1e-9)


@pytest.mark.parametrize("listed", [False, True], ids=["open", "listed"])
@pytest.mark.parametrize("kernel", [DotProduct(sigma_0=0.4), Matern(0.6, nu=2.5)], ids=["linear", "matern"])
def test_other_results_at_the_same_points(kernel, listed):
    rng = np.random.default_rng(9)
    X, y = 0.5 * rng.random((30, 3)), rng.standard_normal(30)
    model = ms.Model(kernel, norm_bound=1.5, noise=0.1, regularization=0.05, offset=0.3)
    budget = None if isinstance(kernel, DotProduct) else 8
    make = (lambda: ms.posterior.Tracked(model, ms.Finite(X), budget=budget)) if listed else (
        lambda: ms.posterior.Posterior(model, ms.Open(3), budget=budget)
    )  # fmt: skip
    one, other = make(), make()
    one.observe(X, np.zeros(30))
    one.retell(y)
    other.observe(X, y)
    np.testing.assert_allclose(one.at(X), other.at(X), atol=1e-10)
    np.testing.assert_allclose(one.averages, other.averages)


# -- what a search climbs ----------------------------------------------------------------------------------------------


def differences(function, U, step=1e-6):
    columns = []
    for k in range(U.shape[1]):
        move = step * np.eye(U.shape[1])[k]
        columns.append((function(U + move) - function(U - move)) / (2 * step))
    return np.stack(columns, axis=1)


CLIMBED = {
    "matern": (Matern(0.7, nu=2.5), 8),
    "rbf": (RBF(0.6), 5),
    "sum": (ConstantKernel(0.4) * RBF(0.5) + ConstantKernel(0.25) * DotProduct(sigma_0=0.2), 7),
    "larger than needed": (Matern(0.7, nu=2.5), 500),
    "linear": (ConstantKernel(0.4) * DotProduct(sigma_0=0.3), 7),
    "linear without": (ConstantKernel(0.4) * DotProduct(sigma_0=0.3), None),
}


@pytest.mark.parametrize("pending", [False, True], ids=["told", "pending"])
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("name", CLIMBED)
def test_gradients_with_a_budget(name, norm, epsilon, pending):
    """Also for a linear kernel, where a budget has nothing to miss."""
    (kernel, budget), rng = CLIMBED[name], np.random.default_rng(10)
    posterior = ms.posterior.Posterior(
        ms.Model(kernel, norm_bound=1.5, noise=0.1, regularization=0.05, offset=0.2), ms.Open(2), budget=budget
    )
    X = rng.random((40, 2))
    posterior.observe(X, np.sin(4 * X[:, 0]))
    posterior.observe(X[:5], np.cos(4 * X[:5, 0]))
    expect(posterior, rng.random((6, 2)))
    U = rng.random((6, 2))
    here = posterior.local(U, pending=pending, norm=norm, epsilon=None if budget is None else epsilon)
    look = posterior.look(U, pending=pending)
    np.testing.assert_allclose(here.mean, look.mean, atol=1e-12)
    np.testing.assert_allclose(here.variance, look.variance, atol=1e-9)
    np.testing.assert_allclose(here.residual, 0.0 if look.residual is None else look.residual, atol=1e-12)

    def biased(V):
        look = posterior.look(V, pending=pending)
        if look.bias is None and budget is None:
            return look.norm1() if norm == 1 else look.norm2()
        if look.bias is None:  # nothing is missed: ε‖ζ‖₁, or ε√t‖ζ‖₂
            return epsilon * (look.norm1() if norm == 1 else np.sqrt(posterior.t + 1) * look.norm2())
        return look.bias(epsilon, norm == 1) - 1.5 * np.sqrt(look.residual)

    np.testing.assert_allclose(here.norm, biased(U), atol=1e-9)
    np.testing.assert_allclose(here.dnorm, differences(biased, U), atol=2e-5)
    np.testing.assert_allclose(here.dmean, differences(lambda V: posterior.look(V).mean, U), atol=1e-6)
    variance = differences(lambda V: posterior.look(V, pending=pending).variance, U)
    np.testing.assert_allclose(here.dvariance, variance, atol=1e-6)
    if look.residual is not None:
        residual = differences(lambda V: posterior.look(V, pending=pending).residual, U)
        np.testing.assert_allclose(here.dresidual, residual, atol=1e-6)
        values, slopes = here.end_within(1.3, 0.8)

        def end(V):
            look = posterior.look(V, pending=pending)
            return look.mean + 1.3 * np.sqrt(look.variance - look.residual) + 0.8 * np.sqrt(look.residual)

        np.testing.assert_allclose(values, end(U), atol=1e-9)
        np.testing.assert_allclose(slopes, differences(end, U), atol=1e-4)


@pytest.mark.parametrize("enlargement", [None, "exact", "norm2", "paper"])
@pytest.mark.parametrize("budget", [None, 6])
@pytest.mark.parametrize("kernel", [Matern(0.7, nu=2.5), DotProduct(sigma_0=0.3)], ids=["matern", "linear"])
def test_what_is_searched_for_is_what_is_chosen_by(kernel, budget, enlargement):
    """The score, the score with slopes, and the upper end of the band of what is found are one function."""
    rng, model = np.random.default_rng(11), ms.Model(ConstantKernel(0.4) * kernel, norm_bound=1.5, noise=0.1)
    policy = ms.ECGPUCB(
        ms.Box([(0, 1)] * 2), model, epsilon=0.2, enlargement=enlargement, budget=budget, grounded=False
    )
    policy.observe(rng.random((30, 2)), rng.random(30))
    ends, U = policy._ends, rng.random((9, 2))
    for sign in (1.0, -1.0):
        search = ends.search(0, sign, pending=False)
        known = policy.field.look(policy.posterior, None, policy.field.parse(U, model), pending=False)
        expected = known.mean + sign * ends.half(known)
        np.testing.assert_allclose(search.score(U, U), expected, atol=1e-9)
        np.testing.assert_allclose(search.slope(U)[0], expected, atol=1e-6)
    query = policy.ask()
    assert query.upper == pytest.approx(query.mean + query.multiplier * query.std + query.enlargement)


# -- samples -----------------------------------------------------------------------------------------------------------


class Unit:
    """A generator whose draw is a unit vector: a sample, which is linear in its draw, shows its columns one by one."""

    def __init__(self, k):
        self.k, self.size = k, None

    def standard_normal(self, size):
        self.size = size
        return np.eye(size)[self.k] if self.k < size else np.zeros(size)


def covariance_of(posterior, X, pending=False):
    first, columns = Unit(0), []
    columns.append(posterior.sample_at(X, first, pending=pending))
    columns += [posterior.sample_at(X, Unit(k), pending=pending) for k in range(1, first.size)]
    root = np.array(columns).T
    return root @ root.T


@pytest.mark.parametrize("n", [3, 12], ids=["few", "many"])
@pytest.mark.parametrize("kernel", [DotProduct(sigma_0=0.4), RBF(0.5), Matern(0.4, nu=1.5)], ids=str)
def test_samples_have_the_covariance_of_a_dense_solve(kernel, n):
    rng = np.random.default_rng(12)
    X, y, here = 0.5 * rng.random((25, 2)), rng.standard_normal(25), 0.5 * rng.random((n, 2))
    here[1] = X[0]
    posterior = ms.posterior.Posterior(ms.Model(kernel, norm_bound=1.0, noise=0.1, regularization=0.1), ms.Open(2))
    np.testing.assert_allclose(covariance_of(posterior, here), kernel(here, here.copy()), atol=1e-9)

    def dense(Z):
        return kernel(here, here.copy()) - kernel(here, Z) @ np.linalg.solve(
            kernel(Z, Z.copy()) + 0.1 * np.eye(len(Z)), kernel(Z, here)
        )

    posterior.observe(X[:20], y[:20])
    np.testing.assert_allclose(covariance_of(posterior, here), dense(X[:20]), atol=1e-8)
    expect(posterior, X[20:])
    np.testing.assert_allclose(covariance_of(posterior, here), dense(X[:20]), atol=1e-8)
    np.testing.assert_allclose(covariance_of(posterior, here, pending=True), dense(X), atol=1e-8)
    many = np.array([posterior.sample_at(here, rng) for _ in range(1500)])
    np.testing.assert_allclose(np.cov(many.T), dense(X[:20]), atol=0.15)


@pytest.mark.parametrize("budget", [2, 7])
def test_samples_with_a_budget(budget):
    """What the dictionary misses varies as it did before any data."""
    rng, kernel = np.random.default_rng(13), Matern(0.5, nu=2.5)
    X, here = rng.random((30, 2)), rng.random((6, 2))
    posterior = ms.posterior.Posterior(
        ms.Model(kernel, norm_bound=1.0, noise=0.1, regularization=0.1), ms.Open(2), budget=budget
    )
    expected = Transcription(kernel, budget, 0.1, 1.0)
    posterior.observe(X, np.zeros(30))
    expected.observe(X, np.zeros(30))
    phi = expected.features(here)[0]
    seen = phi @ (0.1 * np.linalg.inv(expected.precision)) @ phi.T
    covariance = covariance_of(posterior, here)
    np.testing.assert_allclose(covariance, kernel(here, here.copy()) - phi @ phi.T + seen, atol=1e-9)
    np.testing.assert_allclose(np.diag(covariance), posterior.at(here)[1] ** 2, atol=1e-9)


# -- taking back -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("regularization", [1e-4, 0.1, 10.0])
@pytest.mark.parametrize("rank", [0, 1, 6])
def test_removing_undoes_adding(rank, regularization):
    rng = np.random.default_rng(14)
    regression = Regression(regularization, rank)
    for _ in range(30):
        regression.add(rng.standard_normal(rank), float(rng.standard_normal()))
    before = copy.deepcopy(regression)
    some = rng.standard_normal((5, rank))
    for phi in some:
        regression.add(phi, 0.0)
    for phi in some[[1, 4, 0, 3, 2]]:  # in another order
        seen = float(phi @ matrix_of(regression.times, rank) @ phi) if rank else 0.0
        step = regression.remove(phi)
        if step is not None:  # where a difference does not cancel
            assert step[1] == pytest.approx(1.0 / (regularization - seen), rel=1e-6)
            assert step[0].shape == (rank,)
    np.testing.assert_allclose(matrix_of(regression.times, rank), matrix_of(before.times, rank), atol=1e-10, rtol=1e-6)
    np.testing.assert_allclose(
        matrix_of(regression.gram_times, rank),
        matrix_of(before.gram_times, rank),
        rtol=1e-9,
        atol=1e-8 / regularization,
    )
    assert regression.log_det == pytest.approx(before.log_det, abs=1e-6)
    regression.renew()
    np.testing.assert_allclose(matrix_of(regression.times, rank), matrix_of(before.times, rank), atol=1e-10, rtol=1e-6)


def test_removing_what_was_all_there_is():
    """One observation of a huge 1/λ, taken back: the prior is left, as far as digits go."""
    regression = Regression(1e-6, 2)
    for phi in (np.array([1.0, 0.0]), np.array([0.6, 0.8])):
        regression.add(phi, 1.0)
        regression.remove(phi)
    C = matrix_of(regression.times, 2)
    assert np.isfinite(C).all()
    np.testing.assert_allclose(C, np.eye(2), atol=1e-6)


def test_what_is_gathered_is_what_is_added():
    rng = np.random.default_rng(15)
    one, many = Regression(0.1, 4), Regression(0.1, 4)
    Phi, y = rng.standard_normal((50, 4)), rng.standard_normal(50)
    for phi, value in zip(Phi, y, strict=True):
        one.add(phi, float(value))
    many.gather(Phi[:20], y[:20], None)
    many.gather(Phi[20:], y[20:], np.ones(len(y) - 20))
    many.renew()
    np.testing.assert_allclose(many.w, one.w, atol=1e-12)
    np.testing.assert_allclose(matrix_of(many.times, 4), matrix_of(one.times, 4), atol=1e-12)
    assert many.log_det == pytest.approx(one.log_det)


# -- all or nothing ----------------------------------------------------------------------------------------------------


class Touchy:
    """A squared exponential kernel that raises at some points, and at others has k(x,x) > 1."""

    def __init__(self):
        self.broken = True

    def __call__(self, X, Z):
        if self.broken and ((X[:, 0] == CURSED).any() or (Z[:, 0] == CURSED).any()):
            raise RuntimeError("not there")
        return RBF(0.6)(X, Z)

    def diag(self, X):
        return np.where(X[:, 0] > 2.0, 4.0, 1.0)


CURSED = 0.987654321


def portrait(posterior, X):
    look, numbers = posterior.look(X), [posterior.t, posterior.rank, posterior.log_det, posterior.pending]
    return [*numbers, *posterior.counts], look.mean, look.variance, posterior.at(X, pending=True)[1]


def begun(kernel, X, listed, budget):
    model = ms.Model(kernel, norm_bound=1.0, noise=0.1, regularization=0.1)
    posterior = ms.posterior.Tracked(model, ms.Finite(X), budget=budget) if listed else ms.posterior.Posterior(
        model, ms.Open(2), budget=budget
    )  # fmt: skip
    posterior.observe(X[:3], [0.1, 0.2, 0.3])
    expect(posterior, X[3:5])
    return posterior


@pytest.mark.parametrize("rows", [1, 7, 300, 2600], ids=lambda n: f"{n} rows")
@pytest.mark.parametrize("budget", [None, 6])
@pytest.mark.parametrize("listed", [False, True], ids=["open", "listed"])
def test_rows_that_are_refused_change_nothing(listed, budget, rows):
    """One row of many has k(x,x) > 1, wherever it stands, or a result is missing."""
    rng = np.random.default_rng(16)
    X, new = rng.random((40, 2)), rng.random((rows, 2))
    posterior = begun(Touchy(), X, listed, budget)
    before, y = portrait(posterior, X), rng.random(rows)
    long = new.copy()
    long[-1, 0] = 3.0
    calls = [
        lambda: posterior.observe(long, y),
        lambda: posterior.observe(new, np.append(y[:-1], np.nan)),
        lambda: posterior.observe(new, y[:-1]),
        lambda: posterior.observe(new[:, :1], y),
    ]
    for call in calls:
        with pytest.raises(ms.InvalidInput):
            call()
        for a, b in zip(portrait(posterior, X), before, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("call", ["observe", "expect", "bulk", "bulk of several blocks"])
@pytest.mark.parametrize("budget", [None, 6])
@pytest.mark.parametrize("listed", [False, True], ids=["open", "listed"])
def test_a_kernel_that_fails_half_way_leaves_no_trace(listed, budget, call):
    rng, kernel = np.random.default_rng(17), Touchy()
    X = rng.random((40, 2))
    new = rng.random(({"bulk": 400, "bulk of several blocks": 1500}.get(call, 6), 2))
    new[-2, 0] = CURSED
    posterior = begun(kernel, X, listed, budget)
    before = portrait(posterior, X)

    def go():
        expect(posterior, new[-2:-1]) if call == "expect" else posterior.observe(new, np.ones(len(new)))

    with pytest.raises(ms.InvalidInput, match="not there"):
        go()
    for a, b in zip(portrait(posterior, X), before, strict=True):
        np.testing.assert_array_equal(a, b)
    kernel.broken = False
    go()
    twin = begun(kernel, X, listed, budget)
    posterior, twin = twin, posterior
    go()
    for a, b in zip(portrait(posterior, X), portrait(twin, X), strict=True):
        np.testing.assert_array_equal(a, b, err_msg="a retry is as if nothing had failed")


def test_what_rounding_hides_of_a_residual_is_missed_too():
    """Points next to members of the dictionary: what a budget misses of them is at least the true residual, which is
    lost in rounding, with 40 digits."""
    rng, length = np.random.default_rng(3), 0.5
    Z = rng.random((6, 2))
    posterior = ms.posterior.Posterior(
        ms.Model(RBF(length), norm_bound=1.0, noise=0.1), ms.Open(2, radius=2.0), budget=6
    )
    near = np.repeat(Z, 8, axis=0) + 3e-9 * rng.standard_normal((48, 2))
    posterior.observe(np.concatenate([Z, near]), np.zeros(54))
    members = posterior._base.dictionary.members
    with mpmath.workdps(40):

        def gram(A, B):
            pairs = [
                [sum((mpmath.mpf(p) - mpmath.mpf(q)) ** 2 for p, q in zip(a, b, strict=True)) for b in B] for a in A
            ]
            return mpmath.matrix([[mpmath.exp(-each / (2 * mpmath.mpf(length) ** 2)) for each in row] for row in pairs])

        K = gram(Z[members].tolist(), Z[members].tolist())
        true = [1 - (k.T * mpmath.lu_solve(K, k))[0] for k in (gram(Z[members].tolist(), [x]) for x in near.tolist())]
        true = np.array([float(mpmath.sqrt(each)) for each in true])
    assert true.min() > 0
    assert (np.array(posterior._base.missed_of[6:]) >= true).all()
