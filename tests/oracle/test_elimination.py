"""Phased elimination and RIPS, decision by decision, against plain transcriptions of their sources."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from sklearn.gaussian_process.kernels import RBF, DotProduct

import misspec as ms

RNG = np.random.default_rng(3)
BALL = RNG.standard_normal((60, 3)) * 0.25  # of different norms, so that no two arms tie
SQUARE = RNG.random((30, 2))
OFFSET, NOISE, DELTA = 0.3, 0.1, 0.1


def model(kernel, B):
    return ms.Model(kernel, norm_bound=B, noise=NOISE, delta=DELTA, offset=OFFSET)


def values(K, rng):
    """A member, and a misfit of 0.02."""
    member = K @ rng.standard_normal(len(K))
    return OFFSET + 0.9 * member / np.abs(member).max() + 0.02 * rng.choice([-1, 1], len(K))


# -- Lattimore, Szepesvári & Weisz (2020), Algorithm 1 -----------------------------------------------------------------


def spanning(K, tolerance):
    """Features of a Gram matrix by Gram–Schmidt, the largest residual first; and which arms were taken."""
    rest, columns, taken = K.copy(), [], []
    while rest.diagonal().max() > tolerance:
        i = int(rest.diagonal().argmax())
        columns.append(rest[:, i] / math.sqrt(rest[i, i]))
        rest = rest - np.outer(columns[-1], columns[-1])
        taken.append(i)
    return np.array(columns).T, taken


def g(rho, A):
    V = sum(share * np.outer(a, a) for share, a in zip(rho, A, strict=True))
    return np.array([a @ np.linalg.inv(V) @ a for a in A])


def phased_elimination(K, alpha, tolerance=1e-8):
    """Yields the arms of each phase, is sent their results; what is active comes with the next arms."""
    active = np.arange(len(K))
    d = spanning(K, tolerance)[0].shape[1]
    m = math.ceil(4 * d * max(0.0, math.log(max(1.0, math.log(d))))) + 16
    while True:
        A, taken = spanning(K[np.ix_(active, active)], tolerance)
        rho = np.zeros(len(A))
        rho[taken] = 1 / len(taken)
        while (norms := g(rho, A)).max() > 2 * len(taken) + 1e-9:
            best, c = norms.argmax(), norms.max() / len(taken)
            step = (c - 1) / (norms.max() - 1)
            rho = (1 - step) * rho
            rho[best] += step
        assert (rho > 0).sum() <= 4 * d * max(0.0, math.log(max(1.0, math.log(d)))) + 16  # as the source has it
        u = [math.ceil(m * share - 1e-9) for share in rho]
        rows = np.repeat(np.arange(len(A)), u)
        y = yield active, active[rows], A
        if y is None:
            return
        theta = np.linalg.lstsq(A[rows], y - OFFSET, rcond=None)[0]
        slack = 2 * NOISE * math.sqrt(4 * d / m * math.log(1 / alpha))
        active = np.array([i for i, a in zip(active, A, strict=True) if (A @ theta - a @ theta).max() <= slack])
        m *= 2


def least_squares(A, rows, y, alpha):
    theta = np.linalg.lstsq(A[rows], y - OFFSET, rcond=None)[0]
    norms = g(np.bincount(rows, minlength=len(A)), A)
    return OFFSET + A @ theta, NOISE * np.sqrt(2 * norms * math.log(1 / alpha))


@pytest.mark.parametrize("batch", [1, 1000])
@pytest.mark.parametrize("paper", [False, True])
@pytest.mark.parametrize(("kernel", "X", "T"), [(DotProduct(0.0), BALL, 1500), (RBF(0.5), SQUARE, 3000)])
def test_phased_elimination(kernel, X, T, paper, batch):
    K, rng, k = kernel(X, X.copy()), np.random.default_rng(1), len(X)
    truth = values(K, rng)
    policy = (ms.comparators.PhasedElimination.as_in_paper if paper else ms.comparators.PhasedElimination)(
        ms.Finite(X), model(kernel, 2.0), horizon=T
    )
    d = spanning(K, 1e-8)[0].shape[1]
    m = math.ceil(4 * d * max(0.0, math.log(math.log(d)))) + 16
    E = max(e for e in range(1, 20) if m * (2**e - 1) <= T)
    source = phased_elimination(K, 1 / (k * T) if paper else DELTA / (2 * k * E))
    active, expected, A = next(source)
    told, phases = 0, 0
    while told < T:
        np.testing.assert_array_equal(policy.active, active)
        assert policy.dimension == d
        y = truth[expected] + NOISE * rng.standard_normal(len(expected))
        play(policy, expected[: T - told], y, batch)
        told += len(expected)
        if told > T:
            break
        phases += 1
        centre, half = least_squares(A, np.searchsorted(active, expected), y, policy.alpha)
        least, before = OFFSET - 2 * np.sqrt(K.diagonal()[active]), active  # the class allows no less
        active, expected, A = source.send(y)
        low = np.where(np.isin(before, active), np.maximum(centre - half, least), -np.inf)
        best = policy.recommend()
        assert best.index == before[low.argmax()]
        assert best.mean == pytest.approx(centre[low.argmax()], abs=1e-8)
        assert best.lower == pytest.approx(low.max(), abs=5e-3 if d > 3 else 1e-6)  # less what the features miss
    assert phases >= 3
    assert len(active) < k
    with pytest.raises(ms.HorizonReached):
        policy.ask()


def play(policy, expected, y, batch):
    """A phase in batches, of which the first query fails once, told back to front."""
    done = 0
    while done < len(expected):
        queries = policy.ask(batch)
        assert [query.index for query in queries] == expected[done : done + len(queries)].tolist()
        if done == 0:
            policy.drop(queries[0])
            again = policy.ask()
            assert again.index == queries[0].index
            queries[0] = again
        for query, value in list(zip(queries, y[done:], strict=False))[::-1]:
            policy.tell(query, float(value))
        done += len(queries)


# -- Camilleri, Katz-Samuels & Jamieson (2021), Algorithms 1 and 2 -----------------------------------------------------


def inner(K, share, gamma):
    """⟨φ(x), (Σ λφφᵀ + γI)⁻¹φ(z)⟩ for all pairs, by kernels alone."""
    root = np.sqrt(share)
    middle = np.linalg.inv(gamma * np.eye(len(K)) + root[:, None] * K * root)
    return (K - K @ (root[:, None] * middle * root) @ K) / gamma


def catoni(values, s, log):
    n = len(values)
    a = math.sqrt(2 * log / (n * s**2 * (1 + 2 * log / (n - 2 * log))))

    def psi(z):
        return np.where(z >= 0, np.log(1 + np.abs(z) + z**2 / 2), -np.log(1 + np.abs(z) + z**2 / 2))

    return brentq(lambda m: psi(a * (values - m)).sum(), values.min(), values.max(), xtol=1e-13)


def rips(K, T, B, b, accuracy, seed):
    """Yields what is active and the arms of each phase, is sent their results."""
    rng, k, gamma = np.random.default_rng(seed), len(K), 1 / T
    active, phase = np.arange(k), 1
    while True:
        K_active = K[np.ix_(active, active)]
        share = np.full(len(active), 1 / len(active))
        while (norms := inner(K_active, share, gamma).diagonal()).max() > 1.1 * (share @ norms):
            share = share * norms / (share @ norms)
        f, epsilon = norms.max(), accuracy / 2 ** (phase - 1)
        log = math.log(2 * k * phase * (phase + 1) / DELTA)
        tau = math.ceil(2 * log * (1 + (b**2 + NOISE**2) * f / epsilon**2))
        draws = np.array([np.flatnonzero(np.cumsum(share) / share.sum() > rng.random())[0] for _ in range(tau)])
        y = yield active, active[draws]
        Z = inner(K_active, share, gamma)[:, draws] * (y - OFFSET)
        W = [catoni(z, math.sqrt((b**2 + NOISE**2) * norm), log) for z, norm in zip(Z, norms, strict=True)]
        slack = 2 * (epsilon + B * math.sqrt(gamma * f))
        active = np.array([i for i, w in zip(active, W, strict=True) if max(W) - w <= slack])
        phase += 1


@pytest.mark.parametrize("batch", [1, 1000])
@pytest.mark.parametrize(("kernel", "X"), [(DotProduct(0.0), BALL), (RBF(0.3), SQUARE)])
def test_rips(kernel, X, batch):
    K, rng, T = kernel(X, X.copy()), np.random.default_rng(2), 6000
    truth = values(K, rng)
    policy = ms.comparators.RIPS(ms.Finite(X), model(kernel, 1.5), horizon=T, accuracy=0.7, reward_bound=0.95, seed=8)
    source = rips(K, T, 1.5, 0.95, 0.7, seed=8)
    active, expected = next(source)
    told, phases = 0, 0
    while told < T:
        np.testing.assert_array_equal(policy.active, active)
        y = truth[expected] + NOISE * rng.standard_normal(len(expected))
        play(policy, expected[: T - told], y, batch)
        told += len(expected)
        phases += told <= T
        if told <= T:
            active, expected = source.send(y)
    assert phases >= 2
    assert len(active) < len(X)


@pytest.mark.parametrize("kind", [ms.comparators.PhasedElimination, ms.comparators.RIPS])
def test_arms_without_features_and_domains_without_arms(kind):
    linear = ms.Model(DotProduct(0.0), norm_bound=1.0, noise=0.01)
    policy = kind(ms.Finite([[-1.0], [0.0], [-1.0]]), linear, horizon=2000)
    for _ in range(2000):
        query = policy.ask()
        policy.tell(query, float(query.x[0]))
    assert policy.active.tolist() == [1]  # the others are equal, and below it
    assert policy.recommend().lower == policy.recommend().upper == 0.0
    for nothing in (ms.Finite([[0.0], [0.0]]), ms.Box([(0, 1)])):
        with pytest.raises(ms.InvalidInput, match="arms"):
            kind(nothing, linear, horizon=100)
