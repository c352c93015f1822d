"""The rate of success against a plain transcription of its equations: dense matrices, no shared code."""

from __future__ import annotations

import math

import numpy as np
import pytest

from misspec.policies.auto.feasible import NOISES, SHARP, STEPS, SWEEPS, Feasible, Likely

COLUMNS = [(0, 1), (1, 2), (2, 5)]  # two numbers and a choice of three options
OPTIONS = np.eye(3) / math.sqrt(2.0)


def evaluated(n=40, seed=0):
    """Points, some of them twice, and whether they succeeded: a half-space, beside one option that fails."""
    rng = np.random.default_rng(seed)
    U = np.column_stack([rng.random((n, 2)), OPTIONS[rng.integers(3, size=n)]])
    U = np.concatenate([U, U[:5]])
    works = (U[:, 0] + 0.5 * U[:, 1] < 0.8) & (U[:, 4] == 0.0)
    works[-1] = ~works[-1]  # one that went both ways
    return U, works


def kernel(X, Z, theta):
    """(1 − a)·∏κ + (a/d)·Σκ, κ the Matérn profile of smoothness 5/2."""
    a = 1.0 / (1.0 + math.exp(-theta[-1]))
    values = []
    for (start, stop), log_scale in zip(COLUMNS, theta, strict=False):
        apart = np.linalg.norm(X[:, None, start:stop] - Z[None, :, start:stop], axis=2)
        s = math.sqrt(5.0) * apart / math.exp(log_scale)
        values.append((1.0 + s + s * s / 3.0) * np.exp(-s))
    return (1.0 - a) * np.prod(values, axis=0) + a * np.mean(values, axis=0)


def transcribed(U, works, new):
    """r at new points: every result is a row of its own, repeats included."""
    y = np.where(works, 1.0, -1.0)
    n, one = len(y), np.ones(len(y))
    centre = np.append(np.log([0.5, 0.5, 1.0]) + 0.5 * math.log(3), [math.log(0.01), -1.0])
    spread = np.array([1.0, 1.0, 1.0, 1.5, 1.5])

    def log_posterior(theta):
        A = kernel(U, U, theta) + math.exp(theta[3]) * np.eye(n) + np.outer(one, one)
        z = np.delete((theta - centre) / spread, 3)  # the prior of λ is flat
        return (
            -0.5 * z @ z
            - 0.5 * np.linalg.slogdet(A)[1]
            - (1.0 + n / 2) * math.log(1.0 + 0.5 * y @ np.linalg.solve(A, y))
        )

    theta = centre.copy()
    for _ in range(SWEEPS):
        for j in range(5):
            tried = []
            for each in NOISES if j == 3 else centre[j] + spread[j] * np.array(STEPS):
                tried.append(theta.copy())
                tried[-1][j] = each
            theta = max(tried, key=log_posterior)
    K = kernel(U, U, theta) + math.exp(theta[3]) * np.eye(n)
    m = one @ np.linalg.solve(K, y) / (1.0 + one @ np.linalg.solve(K, one))
    weights = np.linalg.solve(K, y - m)
    rate = lambda X: (1.0 + m + kernel(X, U, theta) @ weights) / 2.0  # noqa: E731
    return rate(new) / rate(U[works]).mean()


def test_the_rate_of_success_is_its_transcription():
    U, works = evaluated()
    success = Feasible(U, works, COLUMNS, np.ones(3))
    new, _ = evaluated(12, seed=1)
    wanted = transcribed(U, works, new)
    assert np.ptp(wanted) > 0.5
    np.testing.assert_allclose(success.rate(new), wanted, atol=1e-5)
    likely = np.exp(Likely(success, 0.7)(new))
    np.testing.assert_allclose(likely, 1.0 / (1.0 + np.exp((0.7 - wanted) / SHARP)), atol=1e-4)


def test_its_gradient_is_that_of_differences_and_the_order_does_not_matter():
    U, works = evaluated()
    success = Feasible(U, works, COLUMNS, np.ones(3))
    new, _ = evaluated(9, seed=2)
    likely = Likely(success, 0.7)
    for slope, f in ((success.slope, success.rate), (likely.slope, likely)):
        value, gradient = slope(new)
        np.testing.assert_allclose(value, f(new), rtol=1e-12, atol=1e-12)
        for j in range(5):
            step = 1e-6 * np.eye(5)[j]
            np.testing.assert_allclose(gradient[:, j], (f(new + step) - f(new - step)) / 2e-6, atol=1e-5)
    order = np.random.default_rng(3).permutation(len(U))
    shuffled = Feasible(U[order], works[order], COLUMNS, np.ones(3))
    np.testing.assert_array_equal(shuffled.rate(new), success.rate(new))


@pytest.mark.parametrize(("chance", "share"), [(0.2, 0.9), (0.3, 0.6)])
def test_failures_by_chance_make_no_edge(chance, share):
    """Most points have a rate above 0.8 in each of four fixed worlds."""
    for seed in range(4):
        rng = np.random.default_rng([seed, 5])
        U = rng.random((60, 3))
        success = Feasible(U, rng.random(60) > chance, [(0, 1), (1, 2), (2, 3)], np.ones(3))
        assert (success.rate(rng.random((300, 3))) > 0.8).mean() > share


def test_beyond_many_points_those_that_cover_the_others_are_kept():
    rng = np.random.default_rng(0)
    U = rng.random((600, 2))
    success = Feasible(U, U[:, 0] > 0.3, [(0, 1), (1, 2)], np.ones(2))
    new = rng.random((400, 2))
    clear = np.abs(new[:, 0] - 0.3) > 0.08
    assert ((success.rate(new) > 0.5) == (new[:, 0] > 0.3))[clear].all()
