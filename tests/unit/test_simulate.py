import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from worlds import play

DOMAIN = ms.Box([(0, 1)]).grid(50)
MODEL = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
PROBLEM = ms.problems.misspecified(DOMAIN, MODEL, 0.2, "random", seed=1)
MAKE = {
    "gp": lambda: ms.GPUCB(DOMAIN, MODEL),
    "ec": lambda: ms.ECGPUCB(DOMAIN, MODEL, epsilon=0.2),
    "phased": lambda: ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=200),
    "balancing": lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=200),
    "thompson": lambda: ms.ThompsonSampling(DOMAIN, MODEL),
    "uniform": lambda: ms.UniformSampling(DOMAIN, MODEL),
}


@pytest.mark.parametrize("name", MAKE)
def test_a_trace_is_the_plain_loop(name):
    """Noise is drawn from the world's generator; the rest is ask, evaluate, tell."""
    trace = play(MAKE[name](), PROBLEM, 100, seed=7)
    policy = MAKE[name]()
    noise = 0.1 * np.random.default_rng([7, 101]).standard_normal(100)
    for t in range(100):
        query = policy.ask()
        assert trace.index[t] == query.index
        y = PROBLEM.values[query.index] + noise[t]
        assert trace.y[t] == y
        assert (trace.mean[t], trace.std[t]) == (query.mean, query.std)
        assert trace.upper[t] == query.upper or name == "phased"
        policy.tell(query, y)
    np.testing.assert_array_equal(trace.x, DOMAIN.points[trace.index])
    np.testing.assert_allclose(trace.regret, PROBLEM.values.max() - PROBLEM.values[trace.index])
    np.testing.assert_allclose(trace.in_class_regret, PROBLEM.in_class.max() - PROBLEM.in_class[trace.index])
    assert trace.recommended_regret == PROBLEM.values.max() - PROBLEM.values[policy.recommend().index]
    np.testing.assert_array_equal(trace.simple_regret, np.minimum.accumulate(trace.regret))
    assert trace.cumulative_regret[-1] == pytest.approx(trace.regret.sum())
    assert len(trace) == 100
    assert "100 rounds" in repr(trace)


@pytest.mark.parametrize("name", [name for name in MAKE if name != "phased"])
def test_contextual_regret_is_against_the_round(name):
    problem = ms.problems.contextual(PROBLEM, 5)
    trace = play(MAKE[name](), problem, 60, seed=3)
    assert trace.offers.shape == (60, 5)
    assert all(i in row for i, row in zip(trace.index.tolist(), trace.offers.tolist(), strict=True))
    expected = [PROBLEM.values[row].max() - PROBLEM.values[i] for i, row in zip(trace.index, trace.offers, strict=True)]
    np.testing.assert_allclose(trace.regret, expected)
    assert trace.regret.min() >= 0
    other = play(MAKE["uniform"](), problem, 60, seed=3)
    np.testing.assert_array_equal(trace.offers, other.offers)  # the world does not depend on the policy


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    epsilon=st.floats(0, 1),
    misfit=st.sampled_from(["random", "ripple", "spikes", "bump"]),
    name=st.sampled_from(sorted(MAKE)),
)
def test_the_two_regrets_differ_by_at_most_two_epsilon_a_round(seed, epsilon, misfit, name):
    problem = ms.problems.misspecified(DOMAIN, MODEL, epsilon, misfit, seed)
    for known in (problem, problem.solved()):
        trace = play(MAKE[name](), known, 40, seed)
        assert abs(trace.regret.sum() - trace.in_class_regret.sum()) <= 2 * known.epsilon * 40 + 1e-9


def test_the_story_is_the_policys_own():
    phased = play(MAKE["phased"](), PROBLEM, 63, batch=64)
    assert [e.length for e in phased.facts["history"]] == [1, 2, 4, 8, 16, 32]
    np.testing.assert_array_equal(phased.episode, np.repeat(np.arange(1, 7), 2 ** np.arange(6)))
    assert phased.base is None
    assert np.isnan(phased.width).all()
    assert phased.std.min() > 0
    balancing = play(MAKE["balancing"](), PROBLEM, 50)
    assert set(balancing.base.tolist()) <= set(range(10))
    assert balancing.facts["eliminated"] == []
    assert len(balancing.facts["epsilons"]) == len(balancing.facts["counts"])
    np.testing.assert_array_equal(
        np.bincount(balancing.base, minlength=len(balancing.facts["counts"])), balancing.facts["counts"]
    )
    assert balancing.episode is None
    ec = play(MAKE["ec"](), PROBLEM, 50)
    np.testing.assert_allclose(ec.width, ec.multiplier * ec.std + ec.enlargement)
    assert ec.width.min() > 0
    assert ec.facts["recommendation"].index is not None


def test_batches_are_told_together():
    whole = play(MAKE["phased"](), PROBLEM, 100, batch=1000)
    single = play(MAKE["phased"](), PROBLEM, 100)
    np.testing.assert_array_equal(whole.index, single.index)  # an episode does not depend on its own results
    np.testing.assert_array_equal(whole.y, single.y)
    batch = play(MAKE["gp"](), PROBLEM, 10, batch=4)
    assert len(batch) == 10


def test_a_run_can_be_continued_and_copied():
    policy = MAKE["ec"]()
    play(policy, PROBLEM, 30, seed=1)
    twin = copy.deepcopy(policy)
    np.testing.assert_array_equal(play(policy, PROBLEM, 30, seed=2).index, play(twin, PROBLEM, 30, seed=2).index)
    assert policy.t == 60


def test_progress_is_reported():
    seen = []
    ms.simulate(MAKE["gp"](), PROBLEM, 5, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


def test_optimize_is_the_loop_for_a_users_function():
    rng = np.random.default_rng(0)
    seen = []
    found = ms.optimize(
        MAKE["ec"](),
        lambda x: -((x[0] - 0.3) ** 2) + 0.1 * rng.standard_normal(),
        60,
        batch=4,
        progress=lambda done, of: seen.append((done, of)),
    )
    assert len(found) == 60
    assert found.x.shape == (60, 1)
    np.testing.assert_array_equal(found.x, DOMAIN.points[found.index])
    assert abs(found.recommendation.x[0] - 0.3) < 0.25
    assert seen[-1] == (60, 60)
    assert "60 results" in repr(found)


@pytest.mark.parametrize("failure", [RuntimeError("broken machine"), KeyboardInterrupt()])
def test_a_failing_function_loses_nothing(failure):
    policy = MAKE["gp"]()
    calls = []

    def function(x):
        calls.append(float(x[0]))
        if len(calls) == 6:
            raise failure
        return float(np.sin(x[0]))

    with pytest.raises(type(failure)):
        ms.optimize(policy, function, 20, batch=4)
    assert policy.t == 5
    assert policy.pending == []
    assert len(ms.optimize(policy, function, 3)) == 3
    assert policy.t == 8


def test_results_that_are_not_numbers_are_refused_and_nothing_is_pending():
    policy = MAKE["gp"]()
    for result in (float("nan"), None, "high", np.array([1.0, 2.0])):
        with pytest.raises(ms.InvalidInput, match=r"finite number, got .* at x ="):
            ms.optimize(policy, lambda x, result=result: result, 3)
    assert policy.pending == []
    assert policy.t == 0


def test_failures_can_be_dropped():
    policy, calls = MAKE["gp"](), []

    def function(x):
        calls.append(float(x[0]))
        if len(calls) % 3 == 0:
            raise RuntimeError("broken machine")
        return float("nan") if len(calls) % 7 == 0 else float(np.sin(x[0]))

    found = ms.optimize(policy, function, 20, batch=4, on_error="drop")
    assert len(found) == policy.t == 20
    assert len(calls) > 25
    assert policy.pending == []
    with pytest.raises(ZeroDivisionError):
        ms.optimize(policy, lambda x: 1 / 0, 5, on_error="drop")  # it always fails: that is no bad luck
    assert policy.pending == []


def used_policy(problem):
    policy = ms.GPUCB(problem.domain, problem.model)
    policy.observe([0], [0.1])
    return policy


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ms.simulate(ms.GPUCB(ms.problems.trap().domain, MODEL), PROBLEM, 5), "make the policy with problem"),
        (lambda: ms.simulate(ms.GPUCB(ms.Box([(0, 1)]), MODEL), PROBLEM, 5), "make the policy with problem"),
        (lambda: ms.simulate("policy", PROBLEM, 5), "a policy and a problem"),
        (lambda: ms.simulate(MAKE["gp"](), PROBLEM, 0), "n must be"),
        (lambda: ms.simulate(MAKE["phased"](), PROBLEM, 201), "made for 200 evaluations"),
        (lambda: ms.optimize(MAKE["phased"](), lambda x: 1 / 0, 201), "made for 200 evaluations"),
        (lambda: ms.optimize(DOMAIN, np.sin, 3), "a policy and a function"),
        (lambda: ms.optimize(MAKE["gp"](), np.sin, 3, on_error="ignore"), "raise, drop"),
        (lambda: ms.simulate(ms.GPUCB(ms.Box([(0, 2)]).grid(50), MODEL), PROBLEM, 5), "their points differ"),
        (
            lambda: ms.simulate(ms.GPUCB(ms.Finite(DOMAIN.points * 1.0, box=ms.Box([(0, 2)])), MODEL), PROBLEM, 5),
            "sees",
        ),
        (lambda: ms.adversary.worst_misfit(MAKE["gp"](), PROBLEM, 5), "lambda p:"),
        (lambda: ms.adversary.worst_misfit(ms.GPUCB, PROBLEM, 5), "lambda p:"),
        (lambda: ms.adversary.worst_misfit(used_policy, PROBLEM, 5), "a used one"),
        (lambda: ms.simulate(MAKE["gp"](), ms.problems.contextual(PROBLEM, 5), 5, batch=2), "round by round"),
        (lambda: ms.simulate(MAKE["phased"](), ms.problems.contextual(PROBLEM, 5), 5), "RegretBalancing"),
    ],
)
def test_errors_say_what_to_do(call, says):
    with pytest.raises(ms.InvalidInput, match=says):
        call()


def test_pending_queries_from_before_are_named():
    policy = MAKE["phased"]()
    policy.ask()
    with pytest.raises(ms.InvalidInput, match="pending"):
        ms.simulate(policy, PROBLEM, 5)


def test_the_adversary_keeps_within_epsilon_and_reports_fresh_worlds():
    seen = []
    attack = ms.adversary.worst_misfit(
        lambda p: ms.GPUCB(p.domain, p.model),
        PROBLEM,
        50,
        tries=12,
        worlds=1,
        progress=lambda done, of: seen.append((done, of)),
    )
    np.testing.assert_allclose(np.abs(attack.problem.misfit), 0.2)
    np.testing.assert_array_equal(attack.problem.in_class, PROBLEM.in_class)
    assert len(attack.path) == 12
    assert (np.diff(attack.path) >= 0).all()
    assert seen[-1] == (12, 12)
    again = ms.adversary.worst_misfit(lambda p: ms.GPUCB(p.domain, p.model), PROBLEM, 50, tries=12, worlds=1)
    np.testing.assert_array_equal(again.problem.values, attack.problem.values)
    assert again.regret == attack.regret
    assert "→" in repr(attack)
    with pytest.raises(ms.InvalidInput, match="epsilon is 0"):
        ms.adversary.worst_misfit(
            lambda p: ms.GPUCB(p.domain, p.model), ms.problems.misspecified(DOMAIN, MODEL, misfit="none"), 50
        )


def test_a_problem_and_its_noise_of_the_same_seed_share_no_chance():
    """The coefficients of the member and the signs of the misfit are not found again in noise and action sets."""
    from numpy.random import default_rng

    from misspec.problems.synthetic import CENTRES
    from misspec.simulation import STREAMS

    for seed in range(4):
        rng = default_rng([seed, 1])
        rng.choice(200, CENTRES, replace=False)
        coefficients = rng.standard_normal(CENTRES)
        problem = ms.problems.misspecified(
            ms.Box([(0, 1)]).grid(200), ms.Model(RBF(0.2), norm_bound=2.0, noise=1.0), 0.1, seed=seed
        )
        noise = problem.sampler.draw(default_rng([seed, STREAMS[0]]), 5000)
        assert not np.isin(coefficients, noise).any()
        assert len(set(STREAMS) | {1, 2, 3, 4, 5, 6}) == 8  # the streams of problems and of the adversary
