"""Comparators of the field, decision by decision, against plain transcriptions that share no code with them."""

import math

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct

import misspec as ms

B, NOISE, DELTA, OFFSET = 1.5, 0.2, 0.1, 0.3
MODEL = ms.Model(RBF(0.15), norm_bound=B, noise=NOISE, regularization=0.05, delta=DELTA, offset=OFFSET)
X = np.random.default_rng(0).random((45, 2))
TRUTH = OFFSET + np.sin(5 * X[:, 0]) * X[:, 1] + 0.2 * np.sign(np.sin(40 * X[:, 1]))


def rbf(scale, U, V):
    return np.exp(-0.5 * ((U[:, None, :] - V[None, :, :]) ** 2).sum(axis=2) / scale**2)


def ridge_regression(x, y, scale, ridge):
    """μ and σ on the candidates and L = log det(I + K/λ), from the rows observed, one solve with all of them."""
    if not x:
        return np.full(len(X), OFFSET), np.ones(len(X)), 0.0
    K, k = rbf(scale, X[x], X[x]), rbf(scale, X[x], X)
    weights = np.linalg.solve(K + ridge * np.eye(len(x)), k)
    variance = 1.0 - (weights * k).sum(axis=0)
    log_det = np.linalg.slogdet(np.eye(len(x)) + K / ridge)[1]
    return OFFSET + weights.T @ (np.array(y) - OFFSET), np.sqrt(np.maximum(variance, 0)), log_det


def result(rng, index):
    return float(TRUTH[index] + NOISE * rng.standard_normal())


# -- Chowdhury & Gopalan (2017) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [None, 60])
def test_igp_ucb(horizon):
    """With the realised information and the model's ridge; and as printed, with γ, for 60 rounds and beyond them."""
    domain, ridge = ms.Finite(X), 0.05 if horizon is None else 1 + 2 / horizon
    policy = (
        ms.comparators.IGPUCB(domain, MODEL)
        if horizon is None
        else ms.comparators.IGPUCB.as_in_paper(domain, MODEL, horizon=horizon)
    )
    gain = None if horizon is None else ms.information_gain(domain, policy.model, horizon)
    rng, x, y = np.random.default_rng(1), [], []
    for t in range(80):
        mean, std, log_det = ridge_regression(x, y, 0.15, ridge)
        gamma = log_det / 2
        if gain is not None:
            gamma = gain.up_to(t) if t <= horizon else 2 * gain.upper
            assert gamma >= log_det / 2
        spread = NOISE / math.sqrt(ridge) if horizon is None else NOISE
        upper = mean + (B + spread * math.sqrt(2 * (gamma + 1 + math.log(1 / DELTA)))) * std
        query = policy.ask()
        assert upper[query.index] >= upper.max() - 1e-8
        assert query.upper == pytest.approx(upper[query.index], abs=1e-8)
        x.append(query.index)
        y.append(result(rng, query.index))
        policy.tell(query, y[-1])


def pivoted_features(K):
    """Ψ with ΨΨᵀ = K, by Cholesky's columns, the largest residual first."""
    residual, columns = np.diag(K).copy(), []
    while residual.max() > 1e-10:
        i = int(residual.argmax())
        column = (K[i] - sum(c[i] * c for c in columns)) / math.sqrt(residual[i])
        columns.append(column)
        residual = residual - column**2
    return np.array(columns).T


@pytest.mark.parametrize("horizon", [None, 60])
def test_gp_ts(horizon):
    """The sample from the same normal variables, as f = Ψw with w ~ N(0, I) given the data."""
    domain, ridge = ms.Finite(X), 0.05 if horizon is None else 1 + 2 / horizon
    make = ms.comparators.GPTS if horizon is None else ms.comparators.GPTS.as_in_paper
    policy = make(domain, MODEL, seed=5) if horizon is None else make(domain, MODEL, horizon=horizon, seed=5)
    gain = None if horizon is None else ms.information_gain(domain, policy.model, horizon)
    Psi = pivoted_features(rbf(0.15, X, X))
    rng, draws, x, y = np.random.default_rng(1), np.random.default_rng(5), [], []
    for t in range(60):
        mean, _, log_det = ridge_regression(x, y, 0.15, ridge)
        gamma = log_det / 2 if gain is None else gain.up_to(t)
        spread = NOISE / math.sqrt(ridge) if horizon is None else NOISE
        v = B + spread * math.sqrt(2 * (gamma + 1 + math.log(2 / DELTA)))
        precision = np.eye(Psi.shape[1]) + Psi[x].T @ Psi[x] / ridge
        w = np.linalg.solve(np.linalg.cholesky(precision).T, draws.standard_normal(Psi.shape[1]))
        sample = mean + v * (Psi @ w)
        query = policy.ask()
        assert sample[query.index] >= sample.max() - 1e-6
        x.append(query.index)
        y.append(result(rng, query.index))
        policy.tell(query, y[-1])
    assert len(set(x)) > 5


# -- OFUL (Abbasi-Yadkori, Pál & Szepesvári 2011) ----------------------------------------------------------------------


def test_lin_ucb():
    """New vectors in every round: V = λI + Σxxᵀ, θ̂ = V⁻¹Σxy, and the ellipsoid's radius from det V."""
    d, ridge = 4, 0.5
    policy = ms.comparators.LinUCB(
        ms.Open(d), ms.Model(DotProduct(0.0), norm_bound=B, noise=NOISE, regularization=ridge, delta=DELTA)
    )
    rng, theta = np.random.default_rng(2), np.array([0.5, -0.3, 0.2, 0.6])
    V, b = ridge * np.eye(d), np.zeros(d)
    for _ in range(100):
        A = rng.standard_normal((8, d))
        A /= np.linalg.norm(A, axis=1, keepdims=True)
        root = math.sqrt(np.linalg.det(V)) / ridge ** (d / 2)
        radius = NOISE * math.sqrt(2 * math.log(root / DELTA)) + math.sqrt(ridge) * B
        upper = A @ np.linalg.solve(V, b) + radius * np.sqrt(np.einsum("nd,nd->n", A, np.linalg.solve(V, A.T).T))
        query = policy.ask(actions=A)
        assert upper[query.position] >= upper.max() - 1e-9
        assert query.upper == pytest.approx(upper[query.position], abs=1e-8)
        y = float(query.x @ theta + NOISE * rng.standard_normal())
        policy.tell(query, y)
        V, b = V + np.outer(query.x, query.x), b + query.x * y


# -- Ziomek, Adachi & Osborne (2024) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("printed", [False, True])
def test_lb_gp_ucb(printed):
    """A length scale that is too long by far, and little noise, so that candidates are added and rejected."""
    T, scale, noise, norm, d = 150, 1.2, 0.005, 0.2, 2
    model = ms.Model(RBF(scale), norm_bound=norm, noise=noise, regularization=0.01, delta=DELTA, offset=OFFSET)
    ridge = 1 + 2 / T if printed else 0.01
    make = ms.comparators.LBGPUCB.as_in_paper if printed else ms.comparators.LBGPUCB
    policy = make(ms.Finite(X), model, horizon=T)
    rng, x, y = np.random.default_rng(3), [], []
    scales, counts, sums, widths, rejected = [], [], [], [], set()
    for t in range(1, T + 1):
        while len(scales) < 5 or scales[-1] * math.exp(-1 / d) > scale / math.sqrt(t):
            scales.append(scale * math.exp(-len(scales) / d))
            counts, sums, widths = [*counts, 0], [*sums, 0.0], [*widths, 0.0]
        bounds = {}
        for i, theta in enumerate(scales):
            gamma = theta**-d * math.log(counts[i] + 1) ** (d + 1)
            bounds[i] = math.sqrt((counts[i] + 1) * gamma) * (math.sqrt(gamma) + norm)
        i = min(sorted(set(bounds) - rejected), key=bounds.get)
        mean, std, log_det = ridge_regression(x, y, scales[i], ridge)
        b = norm * (math.exp(0.5) if i else 1.0)
        if printed:
            beta = b + noise * math.sqrt(log_det + 2 + 2 * math.log(2 / DELTA))
        else:
            beta = math.sqrt(noise**2 / ridge * (2 * math.log(2 / DELTA) + log_det) + b**2)
        upper = mean + beta * std
        query = policy.ask()
        assert query.details["base"] == i
        assert upper[query.index] >= upper.max() - 1e-7
        x.append(query.index)
        y.append(float(TRUTH[query.index] + noise * rng.standard_normal()))
        policy.tell(query, y[-1])
        counts[i] += 1
        sums[i] += y[-1]
        widths[i] += 2 * beta * std[query.index]
        xi = 2 * noise**2 * math.log(len(scales) * math.pi**2 * t**2 / (3 * DELTA / 2))
        played = [j for j in range(len(scales)) if counts[j] and j not in rejected]
        right = max(sums[j] / counts[j] - math.sqrt(xi / counts[j]) for j in played)
        rejected |= {j for j in played if (sums[j] + widths[j]) / counts[j] + math.sqrt(xi / counts[j]) < right}
        assert {each.base for each in policy.eliminated} == rejected
        np.testing.assert_allclose(policy.candidate_bounds[: len(scales)], widths, atol=1e-6)
    assert len(scales) > 5
    assert len(rejected) >= (0 if printed else 3)


# -- CORRAL ------------------------------------------------------------------------------------------------------------


def mirror_descent(p, losses, rates):
    """Algorithm 2 of Agarwal et al.: λ is found as the root of Σ 1/(1/p + η(ℓ − λ)) − 1."""
    from scipy.optimize import brentq

    high = min(losses.max(), (losses + 1 / (rates * p)).min() * (1 - 1e-14))
    root = brentq(lambda shift: (1 / (1 / p + rates * (losses - shift))).sum() - 1, losses.min(), high, xtol=1e-15)
    return 1 / (1 / p + rates * (losses - root))


@pytest.mark.parametrize("stochastic", [True, False])
def test_corral(stochastic):
    """Algorithm 1 of Agarwal et al. over EC-GP-UCB as the paper has it; and with the two steps of Pacchiano et al.,
    in every fifth round on other actions, so that past policies have to be found again."""
    T, epsilons, rate = 100, [0.5, 0.1, 0.0], 0.3
    policy = ms.comparators.Corral.as_in_paper(
        ms.Finite(X), MODEL, horizon=T, epsilons=epsilons, learning_rate=rate, stochastic=stochastic, seed=7
    )
    draws, rng = np.random.default_rng(7), np.random.default_rng(4)
    M, ridge = 3, 0.05
    p, mixed, rates, thresholds = np.full(M, 1 / M), np.full(M, 1 / M), np.full(M, rate), np.full(M, 2.0 * M)
    books, pasts = [([], []) for _ in range(M)], [[] for _ in range(M)]

    def upper(i, known):
        x, y = (each[:known] for each in books[i])
        mean, std, log_det = ridge_regression(x, y, 0.15, ridge)
        multiplier = B + NOISE / math.sqrt(ridge) * math.sqrt(2 * math.log(M / DELTA) + log_det)
        return mean + (multiplier + epsilons[i] * math.sqrt((known + 1) / ridge)) * std

    def step(i, known, number):
        actions = rng.choice(len(X), 12, replace=False) if number % 5 == 4 else None
        query = policy.ask() if actions is None else policy.ask(actions=actions)
        offered = np.arange(len(X)) if actions is None else actions
        ends = upper(i, known)
        assert query.details["base"] == i
        assert query.index in offered
        assert ends[query.index] >= ends[offered].max() - 1e-7
        y = result(rng, query.index)
        policy.tell(query, y)
        return query.index, y

    grew = 0
    for t in range(T):
        i = int(np.flatnonzero(draws.random() < np.cumsum(mixed))[0])
        known = len(books[i][0])
        pasts[i].append(known)
        x, y = step(i, known, t)
        books[i][0].append(x)
        books[i][1].append(y)
        if stochastic:
            _, y = step(i, pasts[i][int(draws.integers(len(pasts[i])))], t)
        losses = np.zeros(M)
        loss = np.clip(0.5 - (y - OFFSET) / (2 * (B + 0.5)), 0, 1)
        losses[i] = (2 if stochastic else 1) * loss / mixed[i]
        p = mirror_descent(p, losses, rates)
        mixed = (1 - 1 / T) * p + 1 / (T * M)
        for j in range(M):
            if 1 / mixed[j] > thresholds[j]:
                thresholds[j], rates[j], grew = 2 / mixed[j], rates[j] * math.exp(1 / math.log(T)), grew + 1
        np.testing.assert_allclose(policy.probabilities, mixed, rtol=1e-8)
        np.testing.assert_allclose(policy.learning_rates, rates, rtol=1e-12)
    assert grew
    assert min(len(each) for each in pasts) > 3


def test_pending_and_dropped_steps_of_corral():
    """Steps are asked in pairs, a batch of them with the probabilities of now; a dropped first step has no second."""
    policy = ms.comparators.Corral(ms.Finite(X), MODEL, horizon=100, seed=1)
    batch = policy.ask(6)
    assert [q.details["step"] for q in batch] == [1, 2] * 3
    assert [q.details["base"] for q in batch[::2]] == [q.details["base"] for q in batch[1::2]]
    before = policy.probabilities
    policy.tell(batch[3], 0.1)  # its round waits for those before
    np.testing.assert_array_equal(policy.probabilities, before)
    policy.tell(batch[0], 0.2)
    policy.drop(batch[1])
    policy.tell(batch[2], 0.2)
    assert not np.array_equal(policy.probabilities, before)
    assert sum(policy.counts) == 3
    first = policy.ask()
    policy.drop(first)
    assert policy.ask().details["step"] == 1
