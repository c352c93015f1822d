"""What Auto has learnt: importance, chances of a gain and sentences, against plain computations."""

import copy
import itertools
import re
import sys

import numpy as np
import pytest

import misspec as ms
from misspec.errors import InvalidInput
from misspec.policies.auto import gain, learnt
from misspec.policies.auto.gain import Belief
from misspec.policies.auto.importance import Importance, importance
from misspec.posterior import Posterior


def told(domain, function, t=16, *, noise=0.1, **options):
    """Auto with results at random points: what it has learnt, whatever it would have asked."""
    policy, rng = ms.Auto(domain, **options), np.random.default_rng(0)
    X = np.concatenate([policy.field.draw(rng).points[:1] for _ in range(t)])
    policy.observe(X, [function(x) + noise * rng.standard_normal() for x in X])
    policy.refresh()
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
    for name, share in (("lr", 30 / 39), ("kind", 9 / 39)):
        assert found[name].share == pytest.approx(share, abs=0.1)
        assert found[name].lower - 0.02 <= share <= found[name].upper + 0.02
        assert found[name].matters
    assert found["dead"].upper < 0.05
    assert found["dead"].matters is False
    assert found["one"] == (0.0, 0.0, 0.0, "one value only")
    assert " one" not in tuned.summary().partition("hardly matters")[2]
    assert sum(each.share for each in found.values()) == pytest.approx(1.0, abs=0.01)
    assert found == tuned.importance()


def by_hand(model, U, y, draws, rng):
    """Shares of functions drawn from the posterior on a grid of 9 × 9 in the unit square, every pair of points on a
    line compared: no estimate."""
    g = np.linspace(0, 1, 9)
    X = np.stack(np.meshgrid(g, g, indexing="ij"), -1).reshape(-1, 2)
    cross = model.kernel(X, U)
    K = model.kernel(U, U) + model.regularization * np.eye(len(U))
    mean = cross @ np.linalg.solve(K, y)
    covariance = model.scale**2 * (model.kernel(X, X) - cross @ np.linalg.solve(K, cross.T))
    f = rng.multivariate_normal(mean, covariance, draws).reshape(draws, 9, 9)
    effects = np.stack([f.var(axis=1).mean(axis=1), f.var(axis=2).mean(axis=1)], axis=1)
    return effects / effects.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("t", [4, 40])
def test_importance_and_its_range_are_those_of_functions_drawn_by_hand(t):
    rng = np.random.default_rng(t)
    grid = ms.Finite(np.stack(np.meshgrid(*[np.linspace(0, 1, 9)] * 2), -1).reshape(-1, 2))
    model = ms.Model(ms.product.ProductMatern([0.5, 1.0]), norm_bound=1.0, noise=0.1)
    policy = ms.UniformSampling(grid, model)
    rows = rng.choice(81, t, replace=False)
    U = grid.points[rows]
    y = np.sin(3 * U[:, 0]) + 0.5 * U[:, 1] + 0.1 * rng.standard_normal(t)
    policy.observe(rows, y)
    found = importance(policy.posterior_in_use, policy.field, U, ["a", "b"])
    plain = by_hand(model, U, y, 4000, rng)
    low, high = np.quantile(plain, [0.05, 0.95], axis=0)
    for j, each in enumerate(found.values()):
        assert each.share == pytest.approx(plain[:, j].mean(), abs=0.08)
        assert each.lower == pytest.approx(low[j], abs=0.12)
        assert each.upper == pytest.approx(high[j], abs=0.12)
    assert (high[0] - low[0] > 0.3) == (t == 4)
    assert isinstance(policy.posterior_in_use, Posterior)


def test_what_was_not_varied_or_hardly_tried_is_not_known():
    rng = np.random.default_rng(0)
    few, still = (ms.Auto(ms.Box([(0, 1)] * 3)) for _ in range(2))
    X = rng.random((8, 3))
    few.observe(X, X[:, 0])
    few.refresh()
    assert {each.unknown for each in few.importance().values()} == {"too few results"}
    assert "Which parameters matter is not known yet: too few results." in few.summary()
    X = rng.random((15, 3)) * [1, 1, 0] + [0, 0, 0.5]
    still.observe(X, 3 * X[:, 0] + 0.01 * rng.standard_normal(15))
    still.refresh()
    found = still.importance()
    assert found["x2"].unknown == "never varied"
    assert found["x0"].matters
    said = still.summary()
    assert "Not known yet: x2 (never varied)" in said
    assert "x2" not in said.partition("hardly matters:")[2].partition(".")[0]


def test_hardly_matters_needs_a_small_upper_end():
    assert Importance(0.02, 0.0, 0.2).matters
    assert Importance(0.02, 0.0, 0.04).matters is False
    assert Importance(0.02, 0.0, 0.04, "never varied").matters is None


def test_a_wide_range_says_nothing_only_if_it_begins_near_nothing(monkeypatch):
    """Shares that are drawn by hand: from 23 % on it matters, whatever the upper end; from 1 % to 57 % it is open."""
    ends = np.array([[0.23, 0.92], [0.01, 0.57], [0.01, 0.29], [0.07, 0.51]])
    shares = ends[:, 0] + (ends[:, 1] - ends[:, 0]) * np.linspace(-1 / 18, 19 / 18, 1001)[:, None]
    module = sys.modules[importance.__module__]
    monkeypatch.setattr(module, "_shares", lambda *_: (shares, np.ones(4, dtype=bool)))
    x = np.random.default_rng(0).random((20, 4))
    found = importance(None, None, x, list("abcd"))
    assert [each[1:3] for each in found.values()] == [pytest.approx(each, abs=0.002) for each in ends.tolist()]
    assert [each.unknown for each in found.values()] == ["", "anything is possible", "", ""]
    assert learnt._parameters(found) == (
        "What matters: a 57 % (23 to 92 %), d 29 % (7 to 51 %), c 15 % (1 to 29 %). "
        "Not known yet: b (anything is possible)."
    )
    del found["a"], found["d"]
    assert learnt._parameters(found) == (
        "Not known yet: b (anything is possible). What matters beside: c 15 % (1 to 29 %)."
    )


def test_the_same_results_give_the_same_importance_whichever_way_they_came():
    """Asked one by one with another seed, or observed at once: the samples that queries rest on differ."""
    asked = ms.Auto(ms.Box([(0, 1)] * 2), seed=3)
    for _ in range(14):
        query = asked.ask()
        asked.tell(query, float(np.sin(4 * query.x[0]) + query.x[1]))
    once = ms.Auto(ms.Box([(0, 1)] * 2), seed=8)
    once.observe(asked.observations.x, asked.observations.y)
    once.refresh()
    assert once.samples["states"] != asked.samples["states"]
    assert asked.importance() == once.importance()
    assert asked.chance() == once.chance()


def test_importance_of_a_constant_is_zero_for_all():
    policy = ms.Auto(ms.Box([(0, 1), (0, 1)]))
    policy.observe(np.random.default_rng(0).random((6, 2)), np.full(6, 7.0))
    policy.refresh()
    assert max(each.share for each in policy.importance().values()) <= 1.0
    assert "matter" in policy.summary()


# -- chances of a gain -------------------------------------------------------------------------------------------------


def brute(beliefs, known, asked, rng, worlds=40_000):
    """Gains of results at these points, world by world: Bayes' rule by hand for every belief."""
    m, n = len(known), len(asked)
    means = np.mean([each.mean for each in beliefs], axis=0)
    before = int(np.where(known, means, -np.inf).argmax())
    gains = []
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
        best = np.where(allowed, mixed, -np.inf).argmax(axis=1)
        gains.append(f[np.arange(len(f)), best] - f[:, before])
    return np.concatenate(gains)


def simulated(beliefs, known, n, seeds):
    return np.concatenate([np.subtract(*gain.worlds(beliefs, known, n, seed)[::-1]) for seed in range(seeds)])


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
    every = [brute(beliefs, known, list(asked), rng, 8_000).mean() for asked in itertools.combinations(range(5), n)]
    found = simulated(beliefs, known, n, 20).mean()
    assert 0.75 * max(every) <= found <= 1.1 * max(every)  # greedy on f, so that it may miss the best by a little


def test_chances_agree_with_brute_force_at_the_same_points(monkeypatch):
    rng = np.random.default_rng(2)
    beliefs, known, asked = some_beliefs(rng), np.array([True, True, False, False, False]), [1, 3, 4, 3]
    monkeypatch.setattr(gain, "_chosen", lambda *_: np.array(asked))
    found, plain = simulated(beliefs, known, 4, 60), brute(beliefs, known, asked, rng, 100_000)
    for x in (-0.5, 0.01, 0.3, 1.0):
        assert (found >= x).mean() == pytest.approx((plain >= x).mean(), abs=0.015)


def test_the_chance_of_one_noisy_result_in_closed_form():
    """Two independent points, the known one certain: the other is taken if y > d(1 + σ²/v), and is then f."""
    from scipy.stats import multivariate_normal, norm

    v, noise, d, x = 0.8, 0.5, 0.3, 0.4
    beliefs = [Belief(np.array([d, 0.0]), np.diag([1e-12, v]), noise)]
    found = (simulated(beliefs, np.array([True, False]), 1, 200) >= x).mean()
    joint = multivariate_normal([0, 0], [[v, v], [v, v + noise**2]])
    f0, y0 = d + x, d * (1 + noise**2 / v)
    both = 1 - norm.cdf(f0 / v**0.5) - norm.cdf(y0 / (v + noise**2) ** 0.5) + joint.cdf([f0, y0])
    assert found == pytest.approx(both, abs=0.01)


def test_chances_are_corrected_by_the_skewness_of_the_results():
    from scipy.stats import skew

    z = np.random.default_rng(0).beta(1.0, 3.0, size=50)
    assert gain.skewness(-z) == pytest.approx(skew(-z))
    assert gain.skewness(np.append(z, 1e6)) == 1.0  # one far off counts no more
    p = np.linspace(0, 1, 21)
    for s in (-2.0, 0.0, 1.0):
        said = np.array([gain.calibrated(each, s) for each in p])
        plain = 0.7 / (1 + np.exp(-(0.85 + 0.39 * np.log(p[1:-1] / (1 - p[1:-1])) + 2.22 * s)))
        np.testing.assert_allclose(said[1:-1], plain)
        assert (np.diff(said) > 0).all()
        assert said[0] == 0.0
        assert said[-1] < 0.7


def test_a_long_tail_of_losses_is_no_promise():
    """Losses of which the best are 0.1, and others a hundred times that: there is no room below."""
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.random((12, 2)), 0.35 + 0.05 * rng.standard_normal((8, 2))])
    policy = ms.Auto(ms.Box([(0, 1), (0, 1)]), minimize=True)
    policy.observe(X, np.expm1(12 * ((X - 0.35) ** 2).sum(axis=1)) + 0.02 * rng.standard_normal(20))
    policy.refresh()
    assert learnt.skew_of(policy) < -1
    unit = learnt.worth(learnt.settled(policy).noise_level, learnt.spread_of(policy.observations.y))
    assert policy.chance() < min(1 / 3, 0.5 * np.mean(learnt.gains(policy, 10) >= unit))


def test_beliefs_are_those_of_a_dense_solve():
    rng = np.random.default_rng(3)
    policy = told(ms.Box([(0, 2), (0, 1)]), lambda x: np.sin(x[0]), 12)
    X = rng.random((6, 2)) * [2, 1]
    posterior = policy.posterior.posteriors[0]
    found = gain.belief(posterior, X, policy.domain.encode(X))
    model, U, E = posterior.model, posterior.points, policy.domain.encode(X)
    K = model.kernel(U, U) + model.regularization * np.diag(1 / posterior.counts)
    cross = model.kernel(E, U)
    covariance = model.scale**2 * (model.kernel(E, E) - cross @ np.linalg.solve(K, cross.T))
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-6 * model.scale**2)
    np.testing.assert_allclose(found.mean, posterior.at(X)[0])
    np.testing.assert_allclose(np.diag(found.covariance), (model.scale * posterior.at(X)[1]) ** 2, atol=1e-6)


def test_more_evaluations_gain_more_and_data_leave_less(tuned):
    assert 0 <= tuned.chance(within=1) <= tuned.chance() + 0.02
    assert tuned.chance(100.0) < tuned.chance(0.01)
    young = told(ms.Space(SPACE), loss, 6, minimize=True)
    assert young.chance(0.5) > tuned.chance(0.5)
    with pytest.raises(InvalidInput, match="within must be a whole number ≥ 1"):
        tuned.chance(within=0)
    with pytest.raises(InvalidInput, match="gain must be"):
        tuned.chance(-1.0)


# -- signs and sentences -----------------------------------------------------------------------------------------------


def test_minimizing_is_maximizing_the_opposite():
    domain, x = ms.Box([(0, 1)]).grid(21), np.linspace(0, 1, 21)[[0, 3, 5, 6, 8, 9, 12, 15, 18, 20], None]
    y = -((x[:, 0] - 0.3) ** 2)
    down, again = ms.Auto(domain, minimize=True), ms.Auto(domain)
    down.observe(x, -y)
    again.observe(x, y)
    down.refresh()
    again.refresh()
    for name, found in down.importance().items():
        assert found[:3] == pytest.approx(again.importance()[name][:3])
    assert down.chance() == pytest.approx(again.chance(), abs=1e-6)
    said, other = down.summary(), again.summary()
    number = re.compile(r"expected (-?[\d.]+), between (-?[\d.]+) and (-?[\d.]+) ")
    (mean, low, high), (mean2, low2, high2) = ([float(v) for v in number.search(s).groups()] for s in (said, other))
    assert (mean, low, high) == (-mean2, -high2, -low2)
    best = re.compile(r"of the best of these (-?[\d.]+) is expected \(its result was (-?[\d.]+)\)")
    assert [-float(v) for v in best.search(said).groups()] == [float(v) for v in best.search(other).groups()]


def test_the_summary_holds_the_numbers(tuned):
    said = tuned.summary()
    use = tuned.recommend()
    lines = said.splitlines()
    assert len(lines) == 6
    assert "kind = b" in lines[0]
    assert f"lr = {use.params['lr']:.4g}" in lines[0]
    shown = [float(value) for value in re.search(r"expected (.+), between (.+) and (.+) \(", lines[0]).groups()]
    assert shown == pytest.approx([use.mean, use.lower, use.upper], abs=0.006)
    assert lines[0].endswith(("(95 %).", "It was not tried yet: try it before you rely on it."))
    assert "40 evaluations" in lines[1]
    assert f"of the best of these {learnt.best_tried(tuned).mean:.2f} is expected (its result was" in lines[1]
    assert "learnt" in lines[2]
    share, low, high = (round(100 * each) for each in tuned.importance()["lr"][:3])
    assert f"lr {share} % ({low} to {high} %)" in lines[3]
    assert "hardly matters" in lines[3]
    assert "dead" in lines[3].partition("hardly matters")[2]
    assert lines[4] == "Nowhere do the results contradict the model."
    unit = max(float(re.search(r"±([\d.]+)", lines[2])[1]), 0.02 * float(np.std(tuned.observations.y)))
    assert float(re.search(r"by at least ([\d.]+) \(", lines[5])[1]) == pytest.approx(unit, rel=0.1)
    assert f"is {learnt.percent(tuned.chance())}: {learnt.verdict(tuned.chance())}" in lines[5]


def test_failures_are_counted_and_said_to_be_near():
    """The best is at an edge beyond which all fails; far from what fails, no word of being near."""
    line = np.linspace(0, 1, 41)[:, None]
    for slope, near in ((1.0, True), (-1.0, False)):
        policy = ms.Auto(ms.Finite(line, [f"c{i}" for i in range(41)]))
        policy.observe(range(0, 25, 2), slope * line[:25:2, 0])
        policy.refresh()
        assert "failed" not in policy.summary()
        for i in (25, 27, 30, 35, 40):
            policy.drop(policy.mark_pending([i]))
        (said,) = [sentence for sentence in policy.summary().splitlines() if "failed" in sentence]
        assert said.startswith("Five further evaluations failed")
        assert (said == "Five further evaluations failed.") != near
        if near:
            r = policy._outcomes.success.rate(policy.domain.encode(policy.recommend().x[None, :]))[0]
            assert f"a probability of {100 * r:.0f} %. The nearest is c25 (x0 = 0.625)." in said


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
    assert policy.summary().endswith("(2 % of the spread) is less than 5 %: hardly worth it.")


def test_a_gain_below_the_noise_is_not_worth_it():
    """Twenty candidates that differ by a tenth of the noise: there is something to gain, and nobody would notice."""
    rng = np.random.default_rng(4)
    policy = ms.Auto(ms.Finite(np.linspace(0, 1, 20)[:, None]), noise=1.0)
    policy.observe(np.arange(20), 0.1 * rng.standard_normal(20) + rng.standard_normal(20))
    policy.refresh()
    assert "by at least 1 (the noise)" in policy.summary()
    assert "hardly worth it" in policy.summary()
    assert policy.chance(0.02) > policy.chance(1.0)


def test_verdicts_have_a_middle():
    said = [learnt.verdict(p) for p in (0.0, 0.19, 0.2, 0.49, 0.5, 1.0)]
    assert said == ["hardly worth it"] * 2 + ["perhaps worth it"] * 2 + ["worth it"] * 2
    assert [learnt.percent(p) for p in (0.0, 0.02, 0.34, 0.99)] == ["less than 5 %"] * 2 + [
        "about 35 %",
        "more than 95 %",
    ]


def test_the_best_so_far_is_the_best_mean_not_the_luckiest_result():
    """A lucky result at a bad point, where others say that it is bad."""
    policy = ms.Auto(ms.Finite([[0.0], [0.5], [1.0]]), noise=1.0)
    policy.observe([0, 0, 0, 0, 1, 1, 1, 1, 2, 2], [3.9, 0.0, -1.0, 0.5, 2.9, 3.1, 3.0, 3.0, 0.5, 0.2])
    policy.refresh()
    best = learnt.best_tried(policy)
    assert (best.average, best.times) == (pytest.approx(3.0), 4)
    assert best.mean == pytest.approx(policy.posterior.mean.max())
    assert f"of the best of these {best.mean:.1f} is expected (its four results averaged 3.0)" in policy.summary()


def test_before_there_is_a_model_it_says_so():
    policy = ms.Auto(ms.Box([(0, 1)]))
    policy.tell(policy.ask(), 1.0)
    assert policy.summary() == "There is no model yet: it takes 5 results, and there are 1."
    for call in (policy.importance, policy.chance):
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
