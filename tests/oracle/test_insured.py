"""The layered posterior against a dense one, and InsuredUCB, decision by decision, against a plain transcription."""

import math

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

import misspec as ms
from misspec.posterior import Posterior, Tracked
from misspec.posterior.layered import Layered

B, NOISE, OFFSET, DELTA = 2.0, 0.1, 0.3, 0.1
RNG = np.random.default_rng(11)
X = RNG.random((40, 2))


def dense(P, kernel, rows, y, misfit, noise, at):
    """Mean and variance of f* at rows `at`: a GP whose kernel is s²k plus τ² where two rows are the same one."""
    s2 = (B / 2) ** 2
    K = s2 * kernel(P[rows], P[rows].copy()) + misfit**2 * (rows[:, None] == rows[None, :])
    k = s2 * kernel(P[at], P[rows].copy()) + misfit**2 * (at[:, None] == rows[None, :])
    solved = np.linalg.solve(K + noise**2 * np.eye(len(rows)), np.column_stack([y - OFFSET, k.T]))
    prior = s2 * kernel.diag(P[at]) + misfit**2
    return OFFSET + k @ solved[:, 0], prior - np.einsum("nu,un->n", k, solved[:, 1:])


def evidence(P, kernel, rows, y, misfit, noise):
    s2 = (B / 2) ** 2
    K = s2 * kernel(P[rows], P[rows].copy()) + misfit**2 * (rows[:, None] == rows[None, :])
    K += noise**2 * np.eye(len(rows))
    r = y - OFFSET
    return -0.5 * r @ np.linalg.solve(K, r) - 0.5 * np.linalg.slogdet(K)[1]


def pooled(rows, y):
    squares = sum(((y[rows == j] - y[rows == j].mean()) ** 2).sum() for j in np.unique(rows))
    return math.sqrt((10 * NOISE**2 + squares) / (10 + len(rows) - len(np.unique(rows))))


def sizes(P, kernel, rows, y):
    """τ and σ as they were learnt last: after 4 results, then whenever there are 15 % more."""
    t, last = 4, 0
    while t <= len(rows):
        last, t = t, max(t + 1, math.ceil(1.15 * t))
    if not last:
        return 0.0, NOISE
    rows, y = rows[:last], y[:last]
    noise = pooled(rows, y)
    grid = [0.0, *(B * 0.5**k for k in range(7, -1, -1))]
    found = [evidence(P, kernel, rows, y, size, noise) for size in grid]
    shows = int(np.argmax(found)) > 0
    return max(size for size, e in zip(grid, found, strict=True) if e >= max(found) - 1) if shows else 0.0, noise


KERNELS = {"rbf": RBF(0.3), "matern": Matern(0.3, nu=1.5), "linear": DotProduct(sigma_0=0)}


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("name", KERNELS)
def test_the_layered_posterior(name, tracked):
    kernel, rng, everything = KERNELS[name], np.random.default_rng(2), np.arange(len(X))
    model = ms.Model(kernel, norm_bound=B, noise=NOISE, offset=OFFSET)
    domain = ms.Finite(X * 0.7 if name == "linear" else X)
    points = domain.encoded
    p = (Tracked if tracked else Posterior)(model, domain)
    layered = Layered(p)
    rows, y = [], []
    learnt = set()
    for t in range(90):
        rows.append(int(rng.integers(40) if t % 3 else rng.integers(5)))
        y.append(float(OFFSET + np.sin(5 * X[rows[-1], 0]) + 0.3 * (-1) ** rows[-1] + NOISE * rng.standard_normal()))
        p.observe(points[[rows[-1]]], [y[-1]])
        layered.learn(rows[-1], points[[rows[-1]]], y[-1])
        learnt.add(layered.misfit_size)
        if t % 7:
            continue
        told, seen = np.array(rows), np.array(y)
        here = layered.over(slice(None)) if tracked else layered.at(points, everything.tolist())
        mean, variance = dense(points, kernel, told, seen, layered.misfit_size, layered.noise, everything)
        np.testing.assert_allclose(here.mean, mean, atol=1e-6)
        np.testing.assert_allclose(here.variance, variance, atol=1e-6)
        tau, noise = sizes(points, kernel, told, seen)
        assert (layered.misfit_size, pytest.approx(layered.noise, rel=1e-9)) == (tau, noise)
        for k in (3, 3, 39):
            p.expect(points[[k]])
            layered.expect(k, points[[k]])
        some = np.array([3, 7, 39])
        pending = layered.over(some) if tracked else layered.at(points[some], some.tolist())
        more = np.concatenate([told, [3, 3, 39]])
        _, shrunk = dense(points, kernel, more, np.zeros(len(more)), tau, noise, some)
        np.testing.assert_allclose(pending.variance, shrunk, atol=1e-6)
        np.testing.assert_allclose(pending.mean, mean[some], atol=1e-6)
        for k in (39, 3, 3):
            p.release(points[[k]])
            layered.release(k)
    assert len(learnt) > 1  # the misfit of 0.3 was noticed


def transcription(kernel, premium, horizon, tell, X, known=None):
    """InsuredUCB as its file says it, by dense formulas; known: the horizon that it is told."""
    N, everything = len(X), np.arange(len(X))
    rows, y, first, paid, tests, again = np.zeros(0, dtype=int), np.zeros(0), [], 0.0, 0, 0
    for t in range(1, horizon + 1):
        tau, noise = sizes(X, kernel, rows, y)
        mean, variance = dense(X, kernel, rows, y, tau, noise, everything) if t > 1 else (
            np.full(N, OFFSET), (B / 2) ** 2 * kernel.diag(X)
        )  # fmt: skip
        n = np.bincount(rows, minlength=N)
        average = np.array([y[rows == j].mean() if n[j] else 0.0 for j in range(N)])
        lower, upper = np.full(N, -np.inf), np.full(N, np.inf)
        for place, j in enumerate(first, 1):
            r = NOISE * math.sqrt(2 * math.log(math.pi**2 * n[j] ** 2 * place * (place + 1) / (3 * DELTA / 2)) / n[j])
            lower[j], upper[j] = average[j] - r, average[j] + r
        score = np.clip(mean + 2 * np.sqrt(np.maximum(variance, 0)), lower, upper)
        chosen = eager = int(score.argmax())
        allowed = min((t if known is None else max(t, known)) ** (2 / 3), t / 3)
        if tests + 1 <= allowed:
            possible = upper >= lower.max()
            extent = max(mean.max() - mean.min(), B / 4)
            test, its_own = None, False
            if 3 * again < tests:
                found = {}
                for j in range(N):
                    hope = average[j] + 2 * noise / math.sqrt(max(n[j], 1)) - mean.max()
                    if possible[j] and n[j] and j != eager and hope > 0:
                        found[j] = hope / ((mean.max() - mean[j]) / extent + 0.02)
                if found:
                    test, its_own = max(found, key=found.get), True
            if test is None:
                fewest = min(n[j] for j in range(N) if possible[j])
                test = max((j for j in range(N) if possible[j] and n[j] == fewest), key=lambda j: (mean[j], -j))
            loss = (mean.max() - mean[test]) / extent
            allowance = premium * allowed * (1 / 200 + 0.13 * tau / extent)
            if test != eager and paid + loss <= allowance:
                chosen, tests, again, paid = test, tests + 1, again + its_own, paid + loss
        if chosen not in first:
            first.append(chosen)
        rows, y = np.append(rows, chosen), np.append(y, tell(chosen))
        yield chosen, tests, again, paid, tau


WORLDS = [
    ("rbf", 0, 0.25, 30.0, 40, None),
    ("rbf", 3, 0.1, 30.0, 40, 160),
    ("matern", 0, 0.15, 30.0, 40, None),
    ("rbf", 1, 0.6, 3.0, 40, None),
    ("rbf", 0, 0.6, 1.0, 40, 60),
]


# small premiums make what tests lose count, and few candidates have own bands that exclude others
@pytest.mark.parametrize(("name", "seed", "size", "premium", "N", "known"), [*WORLDS, ("rbf", 0, 0.6, 5.0, 6, 80)])
def test_insured(name, seed, size, premium, N, known):
    kernel, rng, P = KERNELS[name], np.random.default_rng(seed), X[:N]
    truth = OFFSET + np.sin(4 * P[:, 0] + seed) * P[:, 1] + size * rng.choice([-1, 1], N)
    noise = NOISE * rng.standard_normal(400)
    results = iter(noise)
    model = ms.Model(kernel, norm_bound=B, noise=NOISE, offset=OFFSET, delta=DELTA)
    policy = ms.InsuredUCB(ms.Finite(P), model, premium=premium, horizon=known)
    other, taus, rounds = iter(noise), set(), 160 if premium == 30.0 else 80
    expected = transcription(kernel, premium, rounds, lambda j: truth[j] + next(other), P, known)
    for chosen, tests, again, paid, tau in expected:
        query = policy.ask()
        assert query.index == chosen
        policy.tell(query, truth[query.index] + next(results))
        assert (policy.tests, policy._again) == (tests, again)
        assert policy.paid == pytest.approx(paid, abs=1e-6)
        taus.add(tau)
    assert policy.tests >= 2
    assert policy._again > 0 or name == "matern" or N == 6  # tests of both kinds were compared
    assert len(taus) > 1 or N == 6
