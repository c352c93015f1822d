"""best_in_class and diagnose against an independent solver: cvxpy with SCS or OSQP, which share no code with Clarabel,
all constraints at once, and another factorisation of the kernel matrix."""

import cvxpy
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

import misspec as ms


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
