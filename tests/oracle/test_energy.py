"""The energy certificate against a dense transcription, its coverage, and the table of what it proves."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

import misspec as ms
from misspec.truth import Averages
from misspec.truth import energy as module
from misspec.truth.energy import energy

DELTA = 0.1


def single(model, X, y, *, fixed=False, delta=DELTA):
    ones = np.ones(len(y))
    return energy(model, Averages(X, y, ones, np.zeros(len(y)), ones), delta=delta, fixed=fixed)


def residual(model, X, y):
    """min ‖y − f‖ over the ball, by a general solver on the coefficients of an orthonormal basis."""
    values, vectors = np.linalg.eigh(model.kernel(X, X.copy()))
    A = vectors * np.sqrt(np.maximum(values, 0.0))
    z = y - model.offset
    ball = {"type": "ineq", "fun": lambda a: model.norm_bound**2 - a @ a, "jac": lambda a: -2.0 * a}
    found = minimize(
        lambda a: float(np.sum((z - A @ a) ** 2)),
        np.zeros(len(X)),
        jac=lambda a: -2.0 * A.T @ (z - A @ a),
        constraints=[ball],
        method="SLSQP",
        options={"maxiter": 2000, "ftol": 1e-14},
    )
    return math.sqrt(found.fun)


def transcribed(q, t, W, noise, delta, *, fixed):
    """Section "Energy certificate" of the documentation, line by line."""
    x = math.log(2 / delta)
    if fixed:
        R2, c = noise**2 * (t + 2 * math.sqrt(t * x) + 2 * x), math.sqrt(2 * x * W)
    else:
        G = len(module.GRID)
        R2 = min(noise**2 * (math.log(2 * G / delta) + 0.5 * t * math.log(1 / (1 - 2 * g))) / g for g in module.GRID)
        c = math.sqrt((W + 1) * (2 * math.log(2 / delta) + math.log(W + 1)))
    b = noise * c / W
    return max(0.0, -b + math.sqrt(max(b * b + (q * q - R2) / W, 0.0)))


@pytest.mark.parametrize("kernel", [RBF(0.3), Matern([0.3, 0.5], nu=1.5), DotProduct(sigma_0=0.0)])
@pytest.mark.parametrize("fixed", [False, True])
def test_against_a_transcription(kernel, fixed):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        model = ms.Model(kernel, norm_bound=0.8, noise=0.1, offset=0.4)
        X = rng.random((25, 2)) / 2
        y = 0.4 + np.sin(9 * X[:, 0]) + 0.1 * rng.standard_normal(25)
        found = single(model, X, y, fixed=fixed)
        q = residual(model, X, y)
        assert found.residual == pytest.approx(q, rel=1e-5)
        expected = transcribed(found.residual, 25, 25, 0.1, DELTA * (1 - module.RESERVED), fixed=fixed)
        assert found.epsilon == pytest.approx(expected, rel=1e-9)
        assert found.epsilon > 0.1
        left = np.linalg.norm(y - found.fitted)
        assert left == pytest.approx(q, rel=1e-4)


def test_repeats_count_as_the_results_that_they_are():
    rng = np.random.default_rng(3)
    model = ms.Model(RBF(0.2), norm_bound=1.0, noise=0.1)
    X = np.repeat(rng.random((12, 1)), 5, axis=0)
    y = np.sign(np.sin(40 * X[:, 0])) + 0.1 * rng.standard_normal(60)
    one = single(model, X, y)
    averages = y.reshape(12, 5).mean(axis=1)
    within = ((y.reshape(12, 5) - averages[:, None]) ** 2).sum(axis=1)
    other = energy(model, Averages(X[::5], averages, np.full(12, 5.0), within, np.full(12, 5.0)), delta=DELTA)
    assert one.epsilon == pytest.approx(other.epsilon, rel=1e-8)
    assert one.residual == pytest.approx(other.residual, rel=1e-9)


def test_a_weight_is_a_noise_of_its_own():
    """Results with σ_s = σ/√w_s: t counts them, W = Σw; q as if each were scaled."""
    rng = np.random.default_rng(4)
    model = ms.Model(RBF(0.2), norm_bound=1.0, noise=0.2)
    X, w = rng.random((40, 1)), rng.choice([0.25, 1.0, 4.0], 40)
    y = 0.5 * np.sign(np.sin(40 * X[:, 0])) + 0.2 / np.sqrt(w) * rng.standard_normal(40)
    found = energy(model, Averages(X, y, w, np.zeros(40), np.ones(40)), delta=DELTA)
    K = model.kernel(X, X.copy())
    for rho in np.geomspace(1e-3, 1e3, 25):  # the Lagrangian bounds from below, the minimum is the largest of these
        c = np.linalg.solve(K + rho * np.diag(1 / w), y)
        assert y @ c * rho - rho * 1.0 <= found.residual**2 * (1 + 1e-9)
    expected = transcribed(found.residual, 40, w.sum(), 0.2, DELTA * (1 - module.RESERVED), fixed=False)
    assert found.epsilon == pytest.approx(expected, rel=1e-9)


TABLE = [  # shape, results, ε, proved at any t, proved at a fixed t; RBF(0.2), B = 2, σ = 0.1, single results
    ("square", 30, 0.2, 0.087, 0.107),
    ("square", 100, 0.2, 0.139, 0.151),
    ("square", 300, 0.2, 0.161, 0.169),
    ("ripple", 100, 0.2, 0.074, 0.089),
    ("square", 300, 0.1, 0.053, 0.065),
]


@pytest.mark.parametrize(("shape", "t", "epsilon", "any_time", "at_once"), TABLE)
def test_what_is_proved(shape, t, epsilon, any_time, at_once):
    model = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
    proved = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, C, a = rng.random((t, 1)), rng.random((10, 1)), rng.standard_normal(10)
        a *= 1.6 / math.sqrt(a @ model.kernel(C, C.copy()) @ a)
        wave = np.sin(2 * np.pi * X[:, 0] / 0.05)
        misfit = epsilon * (np.sign(wave) if shape == "square" else wave)
        y = model.kernel(X, C) @ a + misfit + 0.1 * rng.standard_normal(t)
        proved.append([single(model, X, y, fixed=fixed).epsilon for fixed in (False, True)])
    assert np.max(proved) < epsilon
    np.testing.assert_allclose(np.mean(proved, axis=0), [any_time, at_once], rtol=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [RBF(0.2), Matern(0.2, nu=2.5), DotProduct(sigma_0=0.0)])
@pytest.mark.parametrize("design", ["random", "greedy", "GP-UCB"])
def test_coverage(kernel, design):
    """No misfit, 220 runs each (1,980 in all): false alarms have probability δ = 0.1 at most, and are far rarer."""
    model, false = ms.Model(kernel, norm_bound=1.0, noise=0.1), 0
    grid = np.linspace(0.02, 1.0, 40)[:, None]
    for seed in range(220):
        rng = np.random.default_rng([seed, 7])
        C, a = rng.random((5, 1)), rng.standard_normal(5)
        a /= math.sqrt(a @ kernel(C, C.copy()) @ a)
        f = kernel(grid, C) @ a
        rows = [int(rng.integers(40))]
        policy = ms.GPUCB(ms.Finite(grid), model) if design == "GP-UCB" else None
        y = []
        for _ in range(60):
            if policy is not None:
                query = policy.ask()
                rows.append(int(query.index))
            y.append(f[rows[-1]] + 0.1 * rng.standard_normal())
            if policy is not None:
                policy.tell(query, y[-1])
            elif design == "greedy":  # stay where a result was surprisingly high
                rows.append(rows[-1] if y[-1] > f[rows[-1]] else int(rng.integers(40)))
            else:
                rows.append(int(rng.integers(40)))
        chosen = rows[1 : 1 + len(y)] if policy is not None else rows[: len(y)]
        alarms = [single(model, grid[chosen[:t]], np.array(y[:t])).epsilon > 0 for t in (5, 20, 60)]
        false += any(alarms)
    assert false <= 0.1 * 220


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [RBF(0.2), Matern(0.2, nu=2.5), DotProduct(sigma_0=0.0)])
@pytest.mark.parametrize("kind", ["GPUCB", "InsuredUCB"])
def test_coverage_in_batches_told_in_any_order_with_noises_of_their_own(kernel, kind):
    """No misfit, 100 runs each: what policies report while the best results of a batch are told first; noises are
    known before. With δ = 0.1, more than 20 of 100 have probability 1e-3."""
    model, false = ms.Model(kernel, norm_bound=1.0, noise=0.1), 0
    grid = np.linspace(0.02, 1.0, 40)[:, None]
    for seed in range(100):
        rng = np.random.default_rng([seed, 8])
        C, a = rng.random((5, 1)), rng.standard_normal(5)
        a /= math.sqrt(a @ kernel(C, C.copy()) @ a)
        f = kernel(grid, C) @ a
        policy, alarm = getattr(ms, kind)(ms.Finite(grid), model, seed=seed), False
        for _ in range(8):
            batch = policy.ask(6)
            noise = 0.1 * rng.choice([0.1, 1.0, 10.0], len(batch))
            y = f[[query.index for query in batch]] + noise * rng.standard_normal(len(batch))
            for part in np.array_split(np.argsort(-y), 2):
                policy.tell([batch[i] for i in part], y[part], noise=noise[part])
                alarm = alarm or any(each.kind == "energy" for each in policy.conflicts())
        false += alarm
    assert false <= 20


def test_a_ripple_is_proved_before_points_repeat():
    """The misfit of `misspec demo`: by the energy after tens of rounds, by the other certificates after hundreds."""
    domain, model = ms.Box([(0, 1)]).grid(200), ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
    problem = ms.problems.misspecified(domain, model, epsilon=0.2, misfit="ripple", wavelength=0.02, seed=0)
    trace = ms.simulate(ms.GPUCB(domain, model), problem, 60, seed=0)
    proved = {proof.kind: proof.epsilon for proof in ms.diagnose(trace.x, trace.y, model).certificates}
    assert 0.0 < proved["energy"] < 0.2
    assert proved["class"] == proved["bands"] == 0.0


@pytest.mark.parametrize(("kernel", "used"), [(RBF(0.3), 5000), (Matern(0.1, nu=0.5), 1250)])
def test_many_points(kernel, used):
    rng = np.random.default_rng(0)
    X = rng.random((5000, 2))
    model = ms.Model(kernel, norm_bound=1.0, noise=0.1)
    y = 0.3 * np.sign(np.sin(60 * X[:, 0])) + 0.1 * rng.standard_normal(5000)
    found = single(model, X, y)
    assert len(found.used) == pytest.approx(used, rel=0.1)
    assert 0.1 < found.epsilon < 0.3
    quiet = single(model, X, 0.1 * rng.standard_normal(5000))
    assert quiet.epsilon == 0.0


def test_diagnose_and_policies_report_it():
    """Without repeats, where own bands prove nothing."""
    rng = np.random.default_rng(5)
    model = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
    X = rng.random((100, 1))
    y = 0.2 * np.sign(np.sin(2 * np.pi * X[:, 0] / 0.05)) + 0.1 * rng.standard_normal(100)
    found = ms.diagnose(X, y, model)
    kinds = {proof.kind: proof for proof in found.certificates}
    assert set(kinds) == {"class", "bands", "energy"}
    assert [proof.delta for proof in found.certificates] == [pytest.approx(0.1 / 3)] * 3
    assert found.epsilon_lower == kinds["energy"].epsilon == max(proof.epsilon for proof in found.certificates)
    assert 0.1 < found.epsilon_lower < 0.2
    assert 0.3 < kinds["energy"].share <= 1.0  # a widespread misfit
    assert "leave more of the results unexplained than the noise can" in found.sentence
    assert "shorter length scale" in found.sentence
    sharper = ms.diagnose(X, y, model, fixed_design=True)
    assert sharper.epsilon_lower > found.epsilon_lower
    for policy in (ms.GPUCB(ms.Box([(0, 1)]), model), ms.InsuredUCB(ms.Box([(0, 1)]), model)):
        policy.observe(X, y)
        conflict = max(policy.conflicts(), key=lambda each: each.epsilon)
        assert conflict.kind == "energy"
        assert conflict.epsilon == pytest.approx(found.epsilon_lower, rel=1e-6)
        assert any((conflict.x == x).all() for x in X)
        assert not policy.guaranteed
        assert any("contradict the model" in each for each in policy.caveats)
    balancing = ms.RegretBalancing(ms.Box([(0, 1)]), model, horizon=200, epsilon_max=0.05)
    balancing.observe(X, y)
    assert any(each.kind == "energy" for each in balancing.conflicts())
    listed = ms.GPUCB(ms.Finite(X), model)
    listed.observe(np.arange(100), y)
    (conflict,) = [each for each in listed.conflicts() if each.kind == "energy"]
    assert conflict.index is not None
    assert (X[conflict.index] == conflict.x).all()


def test_results_that_are_held_back_prove_nothing():
    """A policy that is told its best results only, which no function of the class explains: those of a prefix count."""
    model = ms.Model(RBF(0.2), norm_bound=0.1, noise=0.3)
    policy = ms.UniformSampling(ms.Finite(np.linspace(0, 1, 400)[:, None]), model)
    rng, batch = np.random.default_rng(0), policy.ask(800)
    y = 0.3 * rng.standard_normal(800)
    top = np.argsort(-y)[:60]
    assert single(model, np.array([batch[i].x for i in top]), y[top], delta=DELTA / 3).epsilon > 0.1
    policy.tell([batch[i] for i in top], y[top])
    assert not any(each.kind == "energy" for each in policy.conflicts())
