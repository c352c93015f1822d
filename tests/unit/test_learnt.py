"""What Auto has learnt: importance, expected gain and sentences, against plain computations."""

import copy
import itertools
import re

import numpy as np
import pytest

import misspec as ms
from misspec.errors import InvalidInput
from misspec.policies.auto import learnt
from misspec.policies.auto.learnt import Belief


def told(domain, function, t=16, *, noise=0.1, **options):
    """Auto with results at random points: what it has learnt, whatever it would have asked."""
    policy, rng = ms.Auto(domain, **options), np.random.default_rng(0)
    X = np.concatenate([policy.field.draw(rng).points[:1] for _ in range(t)])
    policy.observe(X, [function(x) + noise * rng.standard_normal() for x in X])
    policy.drop(policy.ask())
    return policy


SPACE = {
    "lr": ms.Float(1e-4, 1e-1, log=True),
    "dead": ms.Float(0, 1),
    "kind": ms.Choice(["a", "b"]),
    "one": ms.Int(3, 3),
}


def loss(x):
    return 100 + 5 * (np.log10(x[0]) + 2) ** 2 + 6 * (x[2] == 0)


@pytest.fixture(scope="module")
def tuned():
    """`dead` is dead, `one` cannot vary, and "b" is better than "a"."""
    return told(ms.Space(SPACE), loss, 40, minimize=True)


# -- importance --------------------------------------------------------------------------------------------------------


def test_importance_finds_what_matters(tuned):
    """Var 5u² = 25·1.2 with u uniform on [−2, 1], and Var 6·[a] = 9: 77 % and 23 %."""
    found = tuned.importance()
    assert list(found) == list(SPACE)
    assert found["lr"] == pytest.approx(30 / 39, abs=0.1)
    assert found["kind"] == pytest.approx(9 / 39, abs=0.1)
    assert found["dead"] < 0.02
    assert found["one"] == 0.0
    assert sum(found.values()) == pytest.approx(1.0)
    assert found == tuned.importance()


def test_importance_is_the_total_index():
    """m = 3a + b + ab on the unit square, by hand."""

    class Mean:
        t = 1

        def at(self, X):
            return 3 * X[:, 0] + X[:, 1] + X[:, 0] * X[:, 1], None

    field = ms.UniformSampling(
        ms.Box([(0, 1), (0, 1)]), ms.Model(ms.product.ProductMatern([1.0, 1.0]), norm_bound=1.0, noise=1.0)
    ).field
    found = learnt.importance(Mean(), field)
    # T_a ∝ E over b of (3 + b)²/12, T_b ∝ E over a of (1 + a)²/12
    a, b = 9 + 3 + 1 / 3, 1 + 1 + 1 / 3
    assert found["x0"] == pytest.approx(a / (a + b), abs=0.05)


def test_importance_of_a_constant_is_zero_for_all():
    policy = ms.Auto(ms.Box([(0, 1), (0, 1)]))
    policy.observe(np.random.default_rng(0).random((6, 2)), np.full(6, 7.0))
    policy.refresh()
    assert max(policy.importance().values()) <= 1.0
    assert "matter" in policy.summary()


# -- expected gain -----------------------------------------------------------------------------------------------------


def brute(beliefs, known, asked, rng, worlds=40_000):
    """The gain of results at these points, world by world: Bayes' rule by hand for every belief."""
    m, n = len(known), len(asked)
    means = np.mean([each.mean for each in beliefs], axis=0)
    total = 0.0
    allowed = known | np.isin(np.arange(m), asked)
    for truth in beliefs:
        f = rng.multivariate_normal(truth.mean, truth.covariance, worlds // len(beliefs))
        y = f[:, asked] + truth.noise * rng.standard_normal((len(f), n))
        logs, after = [], []
        for each in beliefs:
            C = each.covariance[np.ix_(asked, asked)] + each.noise**2 * np.eye(n)
            r = y - each.mean[asked]
            logs.append(-0.5 * np.sum(r * np.linalg.solve(C, r.T).T, axis=1) - 0.5 * np.linalg.slogdet(C)[1])
            after.append(each.mean + r @ np.linalg.solve(C, each.covariance[asked]))
        weights = np.exp(logs - np.max(logs, axis=0))
        weights /= weights.sum(axis=0)
        mixed = sum(w[:, None] * each for w, each in zip(weights, after, strict=True))
        total += float(mixed[:, allowed].max(axis=1).mean()) / len(beliefs)
    return total - float(means[known].max())


def some_beliefs(rng, m=5, noises=(0.3, 0.6)):
    found = []
    for noise in noises:
        root = rng.standard_normal((m, m)) / np.sqrt(m)
        found.append(Belief(0.5 * rng.standard_normal(m), root @ root.T, noise))
    return found


@pytest.mark.parametrize("n", [1, 2])
def test_gain_is_that_of_the_best_points_by_brute_force(n):
    rng = np.random.default_rng(1)
    beliefs, known = some_beliefs(rng), np.array([True, True, False, False, False])
    every = [brute(beliefs, known, list(asked), rng, 8_000) for asked in itertools.combinations(range(5), n)]
    found = np.mean([learnt.gain(beliefs, known, n, seed) for seed in range(20)])
    assert 0.75 * max(every) <= found <= 1.1 * max(every)  # greedy on f, so that it may miss the best by a little


def test_gain_agrees_with_brute_force_at_the_same_points(monkeypatch):
    rng = np.random.default_rng(2)
    beliefs, known, asked = some_beliefs(rng), np.array([True, True, False, False, False]), [1, 3, 4, 3]
    monkeypatch.setattr(learnt, "_chosen", lambda *_: np.array(asked))
    found = np.mean([learnt.gain(beliefs, known, 4, seed) for seed in range(60)])
    assert found == pytest.approx(brute(beliefs, known, asked, rng, 100_000), rel=0.05)


def test_gain_of_one_noisy_result_is_the_knowledge_gradient():
    """Two independent points, the known one certain: E max(0, s·Z − d) in closed form."""
    from scipy.stats import norm

    variance, noise, d = 0.8, 0.5, 0.3
    beliefs = [Belief(np.array([d, 0.0]), np.diag([1e-12, variance]), noise)]
    s = variance / np.sqrt(variance + noise**2)
    exact = s * norm.pdf(d / s) - d * norm.cdf(-d / s)
    found = np.mean([learnt.gain(beliefs, np.array([True, False]), 1, seed) for seed in range(200)])
    assert found == pytest.approx(exact, rel=0.03)


def test_beliefs_are_those_of_a_dense_solve():
    rng = np.random.default_rng(3)
    policy = told(ms.Box([(0, 2), (0, 1)]), lambda x: np.sin(x[0]), 12)
    X = rng.random((6, 2)) * [2, 1]
    posterior = policy.posterior.posteriors[0]
    found = learnt.belief(posterior, X, policy.domain.encode(X))
    model, U, E = posterior.model, posterior.points, policy.domain.encode(X)
    K = model.kernel(U, U) + model.regularization * np.diag(1 / posterior.counts)
    cross = model.kernel(E, U)
    covariance = model.scale**2 * (model.kernel(E, E) - cross @ np.linalg.solve(K, cross.T))
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-6 * model.scale**2)
    np.testing.assert_allclose(found.mean, posterior.at(X)[0])
    np.testing.assert_allclose(np.diag(found.covariance), (model.scale * posterior.at(X)[1]) ** 2, atol=1e-6)


def test_more_evaluations_gain_more_and_data_leave_less(tuned):
    one, ten = tuned.expected_gain(1), tuned.expected_gain()
    assert 0 <= one <= ten
    young = told(ms.Space(SPACE), loss, 6, minimize=True)
    assert young.expected_gain() > ten
    with pytest.raises(InvalidInput, match="n must be a whole number ≥ 1"):
        tuned.expected_gain(0)


# -- signs and sentences -----------------------------------------------------------------------------------------------


def test_minimizing_is_maximizing_the_opposite():
    domain, x = ms.Box([(0, 1)]).grid(21), np.linspace(0, 1, 21)[[0, 3, 5, 6, 8, 9, 12, 15, 18, 20], None]
    y = -((x[:, 0] - 0.3) ** 2)
    down, again = ms.Auto(domain, minimize=True), ms.Auto(domain)
    down.observe(x, -y)
    again.observe(x, y)
    down.refresh()
    again.refresh()
    assert down.importance() == pytest.approx(again.importance())
    assert down.expected_gain() == pytest.approx(again.expected_gain(), rel=1e-6)
    said, other = down.summary(), again.summary()
    number = re.compile(r"expected (-?[\d.]+), between (-?[\d.]+) and (-?[\d.]+) ")
    (mean, low, high), (mean2, low2, high2) = ([float(v) for v in number.search(s).groups()] for s in (said, other))
    assert (mean, low, high) == (-mean2, -high2, -low2)
    assert "the smallest result was" in said
    assert "the largest result was" in other


def test_the_summary_holds_the_numbers(tuned):
    said = tuned.summary()
    use = tuned.recommend()
    lines = said.splitlines()
    assert len(lines) == 6
    assert "kind = b" in lines[0]
    assert f"lr = {use.params['lr']:.4g}" in lines[0]
    shown = [float(value) for value in re.search(r"expected (.+), between (.+) and (.+) \(", lines[0]).groups()]
    assert shown == pytest.approx([use.mean, use.lower, use.upper], abs=0.006)
    assert lines[0].endswith("(95 %).")
    assert "40 evaluations" in lines[1]
    assert "the smallest result was" in lines[1]
    assert "learnt" in lines[2]
    assert f"lr ({100 * tuned.importance()['lr']:.0f} %)" in lines[3]
    assert "hardly matters" in lines[3]
    assert "dead" in lines[3].partition("hardly matters")[2]
    assert lines[4] == "Nowhere do the results contradict the model."
    assert f"improve the best by {tuned.expected_gain():.2g} (" in lines[5]
    assert lines[5].endswith("worth it.")


def test_the_noise_is_as_given_or_from_repeats():
    domain = ms.Finite([[0.0], [0.5], [1.0]])
    given = ms.Auto(domain, noise=0.25)
    given.observe([0, 1, 2, 0, 1, 2], [1.0, 2.0, 3.0, 1.1, 2.1, 3.1])
    given.refresh()
    assert "±0.25" in given.summary()
    assert "(as given)" in given.summary()
    free = ms.Auto(domain)
    free.observe([0, 1, 2, 0, 1, 2], [1.0, 2.0, 3.0, 1.1, 2.1, 3.1])
    free.refresh()
    assert "with three repeats to learn it from" in free.summary()


def test_where_nothing_is_left_to_gain_it_says_so():
    policy = ms.Auto(ms.Finite([[0.0], [0.5], [1.0]]), noise=0.01)
    policy.observe([0, 1, 2] * 4, [1.0, 2.0, 3.0] * 4)
    policy.refresh()
    assert policy.summary().endswith("Ten more evaluations are not expected to improve the best: hardly worth it.")


def test_before_there_is_a_model_it_says_so():
    policy = ms.Auto(ms.Box([(0, 1)]))
    policy.tell(policy.ask(), 1.0)
    assert policy.summary() == "There is no model yet: it takes 5 results, and there are 1."
    for call in (policy.importance, policy.expected_gain):
        with pytest.raises(InvalidInput, match="needs a model, and so at least 5 results; 1 are told"):
            call()


def test_reading_changes_nothing(tuned):
    before = copy.deepcopy(tuned.state())
    tuned.summary()
    assert tuned.state() == before
    fresh = ms.Auto(ms.Box([(0, 1)]))
    fresh.observe(np.linspace(0, 1, 8)[:, None], np.linspace(0, 1, 8))  # results, and nothing asked yet
    before = copy.deepcopy(fresh.state())
    assert "no model of the 8 results" in fresh.summary()
    assert fresh.state() == before
    fresh.refresh()
    before = copy.deepcopy(fresh.state())
    assert "8 evaluations" in fresh.summary().replace("eight", "8")
    assert fresh.state() == before


def test_a_point_that_contradicts_the_model_is_a_conflict():
    """One candidate of a smooth function is far off, and its many repeats leave no doubt."""
    x = np.linspace(0, 1, 30)
    domain = ms.Finite(x[:, None], names=[f"c{i}" for i in range(30)])
    policy = ms.Auto(domain, noise=0.05, minimize=True)
    y = 10 + np.sin(3 * x)
    policy.observe(np.arange(30), y)
    policy.ask()
    assert policy.conflicts() == []
    policy.observe(np.full(25, 15), np.full(25, 13.0))  # the length scale was learnt before these came
    (found,) = [each for each in policy.conflicts() if each.index == 15]
    assert 0 < found.gap < 3
    assert found.epsilon == found.gap
    assert f"contradict the model at {learnt.COUNTED[len(policy.conflicts())]} point" in policy.summary()
    assert "contradict the model" in " ".join(policy.recommend().caveats)


@pytest.mark.parametrize("level", [5e6, 5e7, 1e9, 1e12])
def test_small_differences_of_large_results_are_written_out(level):
    assert learnt.rounded(level + 1.25, 0.5) == f"{level + 1.25:.2f}"
    assert learnt.rounded(1e12, 1e10) == "1e+12"
