"""The probability that limits hold, and what it adds to scores, against plain transcriptions: dense solves, no shared
code."""

import math

import numpy as np
import pytest
from scipy.stats import norm

import misspec as ms
from misspec.policies.auto.average import Beliefs, upper
from misspec.policies.auto.feasible import EDGE, RECENT, SHARP, SURE, level
from misspec.policies.auto.limits import KEPT, Holding, Kept, Quantities, holding

BOX = ms.Box([(0, 1)] * 2)


def learnt(domain=BOX, n=14, **settings):
    """An Auto whose results have values of two quantities, the second of every third only, with repeats."""
    policy, rng = ms.Auto(domain, limits=["c < 1.2", "d >= -0.5", "c > 0.1"], **settings), np.random.default_rng(0)
    X = rng.random((n, 2)) if domain is BOX else domain.points[rng.integers(len(domain), size=n)]
    X[-1] = X[0]
    c, d = X.sum(axis=1) + 0.05 * rng.standard_normal(n), 40.0 * np.sin(5 * X[:, 0])
    d[1:] = np.where(np.arange(1, n) % 3 == 0, d[1:], np.nan)
    policy.observe(X, X[:, 0] - X[:, 1], limits={"c": c, "d": d})
    policy.refresh()
    return policy, X, {"c": c, "d": d}


def transcribed(policy, X, values, new):
    """∏ mean_k Φ(±(bound − M_k)/S_k), every value a row of its own."""
    renewal, p = policy.samples["limits"], np.ones(len(new))
    reach = np.ptp(policy.domain.points, axis=0) if policy.field.indexed else np.ones(2)
    for name, sign, bound in (("c", 1.0, 1.2), ("d", -1.0, -0.5), ("c", -1.0, 0.1)):
        known = ~np.isnan(values[name])
        U, y = X[known], values[name][known]
        _, centre, width = renewal[name]["scaling"]

        def z(v, centre=centre, width=width):
            far = np.abs(v - centre) / width
            return np.sign(v - centre) * np.where(far > 5, 5 + np.log1p(np.maximum(far - 5, 0)), far)

        shares = []
        for theta, (offset, scale, _) in zip(renewal[name]["states"], renewal[name]["fitted"], strict=True):
            lam, a = max(math.exp(theta[2]), 1e-6), 1.0 / (1.0 + math.exp(-theta[3]))

            def kernel(A, B, theta=theta, a=a):
                scales = reach * np.exp(theta[:2])
                s = [math.sqrt(5) * np.abs(A[:, None, j] - B[None, :, j]) / scales[j] for j in range(2)]
                parts = [(1 + each + each**2 / 3) * np.exp(-each) for each in s]
                return (1 - a) * parts[0] * parts[1] + a * (parts[0] + parts[1]) / 2

            K = kernel(U, U) + lam * np.eye(len(U))
            k = kernel(new, U)
            mean = offset + k @ np.linalg.solve(K, z(y) - offset)
            std = scale * np.sqrt(1.0 - np.einsum("ij,ji->i", k, np.linalg.solve(K, k.T)))
            shares.append(norm.cdf(sign * (z(np.array(bound)) - mean) / std))
        p = p * np.mean(shares, axis=0)
    return p


@pytest.mark.parametrize("listed", [False, True])
def test_the_probability_is_its_transcription(listed):
    domain = ms.Finite(np.random.default_rng(3).random((40, 2)), box=BOX) if listed else BOX
    policy, X, values = learnt(domain)
    new = domain.points if listed else np.random.default_rng(1).random((50, 2))
    wanted = transcribed(policy, X, values, new)
    assert np.ptp(wanted) > 0.5
    np.testing.assert_allclose(policy.probability(new), wanted, atol=2e-6)
    if listed:
        np.testing.assert_allclose(policy.probability(np.arange(40)), wanted, atol=2e-6)
    # results that are told one by one are learnt as those of one call, at once
    query = policy.ask()
    policy.tell(query, 0.0, limits={"c": 0.9})
    more = {"c": np.append(values["c"], 0.9), "d": np.append(values["d"], np.nan)}
    wanted = transcribed(policy, np.concatenate([X, np.atleast_2d(query.x)]), more, new)
    np.testing.assert_allclose(policy.probability(new), wanted, atol=2e-6)


def test_gradients_are_those_of_differences():
    policy, *_ = learnt()
    held, rng, step = policy.quantities.holding, np.random.default_rng(2), 1e-6
    U = 0.05 + 0.9 * rng.random((8, 2))
    search = policy._mixture.search(upper(1.0), None, 0, pending=False, weights=(held, None, Kept(held, 0.5)))
    slopes = [(weight, weight.slope) for weight in (held, Kept(held, 0.9), Kept(held, -math.inf))]
    for weight, slope in [*slopes, (lambda U: search.score(U, U), search.slope)]:
        values, gradient = slope(U)
        np.testing.assert_allclose(values, weight(U), rtol=1e-9, atol=1e-9)
        for j in range(2):
            e = step * np.eye(2)[j]
            np.testing.assert_allclose(
                gradient[:, j], (weight(U + e) - weight(U - e)) / (2 * step), rtol=2e-4, atol=1e-4
            )


def test_scores_are_finite_however_far_the_bound_lies():
    M, S = np.array([[0.0, 1e3, -1e3, 1e9]] * 3), np.array([[1.0], [1e-12], [1e-3]]) * np.ones((3, 4))
    for side in (1.0, -1.0):
        found = holding(0.5, side)(M, S)
        assert all(np.isfinite(each).all() for each in found)
        assert (found.values <= 0).all()
    plain = holding(0.5, 1.0)(np.array([[0.0], [1.0]]), np.array([[1.0], [0.5]])).values
    assert plain[0] == pytest.approx(math.log((norm.cdf(0.5) + norm.cdf(-1.0)) / 2))


def test_what_scores_have_added():
    log_p = np.log([0.2, 0.9, 0.999])
    p = np.exp(log_p)
    np.testing.assert_allclose(Kept(Holding([]), 0.9).of(log_p), log_p - np.log(1 + np.exp((0.9 - p) / SHARP)))
    np.testing.assert_array_equal(Kept(Holding([]), -math.inf).of(log_p), log_p)


def test_the_least_probability_is_what_the_latest_results_leave():
    rng = np.random.default_rng(0)
    for n in (1, 3, 10, 30, 61, 200):
        broken = (rng.random(n) < rng.random()).tolist()
        latest = sum((1 - 1 / RECENT) ** age for age, each in enumerate(reversed(broken)) if each)
        left = min(n + 1, RECENT) / math.sqrt(n + 1) - latest
        free = left >= 1 and math.floor(math.sqrt(n + 1)) > math.floor(math.sqrt(n))
        assert level(broken, n) == (-math.inf if free else pytest.approx(min(max(1 - left, EDGE), SURE)))


def test_the_improvement_is_over_what_keeps_the_limits():
    """The goals by hand, at a turn of rules.py."""
    from misspec.policies.auto.rules import Turn, constant

    policy, X, _ = learnt()

    def a_turn():
        return Turn(
            policy.field, policy._mixture, policy._own, policy._outcomes, policy.quantities, [], None, policy.t, 1.0,
            [], 0, policy._parse, "best", True, None, False,
        )  # fmt: skip

    turn = a_turn()
    p = policy.probability(X)
    assert 0 < (p < EDGE).sum() < len(p)
    means = policy._mixture.look(policy.field, policy._own, policy._parse(X), pending=False).M
    np.testing.assert_allclose(turn.best_means, means[:, p >= EDGE].max(axis=1))
    z = policy._mixture.scaling.to(X[:, 0] - X[:, 1])
    assert turn.best_result == pytest.approx(z[p >= EDGE].max() + 0.01 * turn.quiet)
    assert turn.best_result < z.max()
    found = turn.best(constant)
    assert found.probability[found.row] == pytest.approx(policy.probability(found.offer.points).max(), abs=0.02)
    # spent points that break a limit have no rivals, and are none
    beliefs = Beliefs(np.array([[5.0, 1.0, 2.0]]), np.array([[1e-9, 1e-9, 1.0]]), np.array([True, True, False]))
    policy._mixture.noises[:] = 1.0
    turn = a_turn()
    assert turn._spent(beliefs, np.array([False, True, True]), True).tolist() == [True, True, False]
    assert turn._spent(beliefs, np.array([True, True, True]), True).tolist() == [False, False, False]


def test_what_is_recommended_is_likely_to_keep_them():
    policy, *_ = learnt()
    found = policy.recommend()
    grid = np.random.default_rng(5).random((2000, 2))
    p = policy.probability(grid)
    assert found.probability >= KEPT
    assert found.probability == pytest.approx(float(policy.probability(found.x[None, :])[0]))
    assert found.lower >= policy.band(grid[p >= KEPT]).lower.max() - 0.05  # the search turns before the border
    assert policy.band(grid).lower.max() > found.lower  # more is expected where they do not hold
    assert isinstance(policy.quantities, Quantities)
