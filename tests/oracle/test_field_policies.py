"""Comparators of the field, decision by decision, against plain transcriptions that share no code with them."""

import math

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct

import misspec as ms

B, NOISE, DELTA, OFFSET = 1.5, 0.2, 0.1, 0.3
MODEL = ms.Model(RBF(0.15), B, NOISE, 0.05, DELTA, offset=OFFSET)
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
    policy = ms.IGPUCB(domain, MODEL) if horizon is None else ms.IGPUCB.as_in_paper(domain, MODEL, horizon=horizon)
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
    make = ms.GPTS if horizon is None else ms.GPTS.as_in_paper
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
    policy = ms.LinUCB(ms.Open(d), ms.Model(DotProduct(0.0), B, NOISE, ridge, DELTA))
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
