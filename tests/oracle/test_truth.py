"""best_in_class and diagnose against an independent solver: cvxpy with SCS or OSQP, which share no code with Clarabel,
all constraints at once, and another factorisation of the kernel matrix."""

import math

import cvxpy
import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

import misspec as ms
from misspec import truth


def square_root(kernel, X):
    values, vectors = np.linalg.eigh(kernel(X))
    kept = values > 1e-13
    return vectors[:, kept] * np.sqrt(values[kept])


def nearest(kernel, X, target, radii, bound):
    """min s with |Ψw − target| ≤ s + radii, ‖w‖ ≤ B."""
    Psi = square_root(kernel, X)
    w, s = cvxpy.Variable(Psi.shape[1]), cvxpy.Variable()
    error = Psi @ w - target
    problem = cvxpy.Problem(cvxpy.Minimize(s), [error <= s + radii, -error <= s + radii, cvxpy.norm(w) <= bound])
    problem.solve(solver=cvxpy.SCS, eps_abs=1e-9, eps_rel=1e-9, max_iters=400_000)
    assert problem.status == "optimal"
    return float(s.value)


def least_norm(kernel, X, target, radii):
    """min ‖w‖ with |Ψw − target| ≤ radii."""
    Psi = square_root(kernel, X)
    w = cvxpy.Variable(Psi.shape[1])
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(w)), [cvxpy.abs(Psi @ w - target) <= radii])
    problem.solve(solver=cvxpy.OSQP, eps_abs=1e-9, eps_rel=1e-9, max_iter=400_000)
    assert problem.status == "optimal"
    return float(np.linalg.norm(w.value))


LINE = ms.Finite(np.linspace(0, 1, 60)[:, None])
PLANE = ms.Finite(np.random.default_rng(1).random((80, 2)))
KERNELS = {"rbf": RBF(0.2), "matern": Matern(0.3, nu=1.5), "kinks": Matern(0.2, nu=0.5), "linear": DotProduct(0.5)}


@pytest.mark.parametrize("misfit", ["random", "ripple", "spikes", "bump"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("domain", [LINE, PLANE], ids=["line", "plane"])
def test_best_in_class_agrees_with_another_solver(domain, kernel, misfit):
    model = ms.Model(0.4 * KERNELS[kernel], norm_bound=2.0, noise=0.1, offset=0.3)
    problem = ms.problems.misspecified(domain, model, 0.1, misfit, seed=3)
    best = ms.best_in_class(domain, model, problem.values)
    expected = nearest(model.kernel, domain.points, problem.values - 0.3, 0.0, 2.0)
    assert best.epsilon == pytest.approx(expected, abs=1e-6)
    assert best.epsilon <= problem.epsilon + 1e-6
    assert 0.0 <= best.gap <= 1e-6
    assert best.norm <= 2.0
    assert np.abs(best.values - problem.values).max() == pytest.approx(best.epsilon, abs=1e-12)


@pytest.mark.parametrize("kernel", ["rbf", "matern"])
def test_of_several_nearest_members_the_least_is_taken(kernel):
    """A large norm bound leaves room: the least norm among those at the smallest distance is what comes back."""
    model = ms.Model(KERNELS[kernel], norm_bound=50.0, noise=0.1)
    values = np.random.default_rng(5).choice([-0.5, 0.5], 8).repeat(5)  # eight points, five candidates at each
    domain = ms.Finite(np.linspace(0, 1, 8).repeat(5)[:, None])
    values[::5] += 0.2  # candidates that share a point cannot all be explained: ε = 0.1 whatever the norm
    best = ms.best_in_class(domain, model, values)
    assert best.epsilon == pytest.approx(0.1, abs=1e-6)
    expected = least_norm(model.kernel, domain.points[::5], values[1::5] + 0.1, 1e-9)
    assert best.norm == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kernel", ["rbf", "matern", "kinks"])
@pytest.mark.parametrize("fixed", [False, True], ids=["adaptive", "fixed"])
def test_diagnosis_agrees_with_another_solver(kernel, fixed):
    rng = np.random.default_rng(4)
    model = ms.Model(KERNELS[kernel], norm_bound=0.8, noise=0.05, offset=-1.0)
    points = LINE.points[rng.integers(0, 60, 2000)]
    y = -1.0 + np.sin(9 * points[:, 0]) + 0.05 * rng.standard_normal(2000)
    found = ms.diagnose(points, y, model, fixed_design=fixed)
    expected = nearest(model.kernel, found.points, found.averages + 1.0, found.radii, 0.8)
    assert expected > 0.05
    assert found.epsilon_lower == pytest.approx(expected, abs=1e-6)
    assert found.norm_needed == pytest.approx(
        least_norm(model.kernel, found.points, found.averages + 1.0, found.radii), rel=1e-4
    )


def least_misfit(gap, moves, allowed):
    """min ε with |gap + moves·m| ≤ allowed, |m_j| ≤ ε: how large misfits m must be to close a gap, a linear program."""
    u = len(moves)
    sizes = np.vstack([np.eye(u), -np.eye(u)])
    A = np.vstack([np.append(moves, 0.0), np.append(-moves, 0.0), np.column_stack([sizes, -np.ones(2 * u)])])
    b = np.concatenate([[allowed - gap, allowed + gap], np.zeros(2 * u)])
    solved = linprog(np.eye(u + 1)[u], A_ub=A, b_ub=b, bounds=[(None, None)] * (u + 1))
    assert solved.status == 0
    return max(0.0, solved.fun)


@pytest.mark.parametrize("seed", range(4))
def test_the_certificate_of_the_bands_is_the_least_misfit_that_makes_them_meet(seed):
    """y = f̃ + m + noise and f* = f̃ + m. The model's band is that of Σ W_j(y_j − m_j), the results without misfit; it
    must meet the class, and with m at the point itself, which is one of the m_j if it was told, the own band."""
    rng = np.random.default_rng(seed)
    B, noise, ridge, offset, delta = 0.8, 0.05, 0.02, 0.3, 0.04
    model = ms.Model(RBF(0.4), norm_bound=B, noise=noise, regularization=ridge, offset=offset)
    X, also = rng.random((9, 2)), rng.random((5, 2))
    X[8] = X[7]  # two arms at one point
    arms = {0: [0], 1: [1], 2: [2], 3: [3], 4: [4], 7: [5, 6], 8: [5, 6]}  # point → those told there; two are not told
    y, counts = rng.normal(0, 1.0, 7), rng.integers(1, 30, 7)
    own, radii = rng.normal(0, 2.0, 9), rng.uniform(0.01, 0.1, 9)
    bands = truth.OwnIntervals(X, own + offset, radii)
    told = truth.Averages(X[list(arms)], y + offset, counts, np.zeros(7), counts)
    proved, reach = truth.certificate_of_bands(model, bands, told, delta=delta, also=also)
    points = np.concatenate([X, also])
    K, k = model.kernel(told.encoded, told.encoded.copy()), model.kernel(told.encoded, points)
    A = K + np.diag(ridge / counts)
    W = np.linalg.solve(A, k).T
    variance = 1.0 - np.einsum("nu,un->n", W, k)
    log_det = np.linalg.slogdet(np.eye(7) + np.diag(counts) @ K / ridge)[1]
    half = math.sqrt(noise**2 / ridge * (2 * math.log(1 / delta) + log_det) + B**2) * np.sqrt(variance)
    by_own = 0
    for j in range(len(points)):
        mean = float(W[j] @ y)
        right, apart = least_misfit(mean, -W[j], B + half[j]), abs(mean) - B - half[j]
        if j < len(X):
            moves = [np.append(-W[j], 1.0)] if j not in arms else [np.eye(7)[i] - W[j] for i in arms[j]]
            # of two arms it is not known whose the own band is
            against_own = min(least_misfit(mean - own[j], each, radii[j] + half[j]) for each in moves)
            if against_own > right:
                right, apart, by_own = against_own, abs(mean - own[j]) - radii[j] - half[j], by_own + 1
        assert proved[j] == pytest.approx(right, abs=1e-6)
        if right:  # by how much ε moves the bands: what closes them
            assert reach[j] * proved[j] == pytest.approx(apart, abs=1e-6)
    assert by_own > 5
