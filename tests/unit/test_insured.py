"""InsuredUCB: what tests may cost, what they find, and what is learnt on the way."""

import copy
import math

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct

import misspec as ms

DOMAIN = ms.Box([(0, 1)]).grid(60)
MODEL = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)


PLANE = ms.Finite(np.random.default_rng(502).random((60, 2)))
SMOOTH = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1)


def written_off():
    """A member that all points lie 0.2 below, except one, which lies 0.2 above it and is the best by 0.37."""
    problem = ms.problems.misspecified(PLANE, SMOOTH, 0.2, "random", seed=702)
    misfit = np.full(60, -0.2)
    misfit[43] = 0.2
    return problem.with_misfit(misfit)


def play(policy, problem, rounds, seed=0):
    rng = np.random.default_rng(seed)
    regret = []
    for _ in range(rounds):
        query = policy.ask()
        policy.tell(query, problem.values[query.index] + problem.model.noise * rng.standard_normal())
        regret.append(problem.values.max() - problem.values[query.index])
    return np.array(regret)


def test_tests_find_what_the_model_has_written_off():
    """Eight worlds, all of which lose 0.36 per round while the best point is not tried."""
    problem = written_off()
    plain = [play(ms.InsuredUCB(PLANE, SMOOTH, premium=0.0), problem, 800, seed) for seed in range(8)]
    insured = [play(ms.InsuredUCB(PLANE, SMOOTH), problem, 800, seed) for seed in range(8)]
    assert sum(run[-200:].mean() > 0.3 for run in plain) >= 4
    assert max(run[-200:].mean() for run in insured) < 0.02
    assert np.mean(insured) < 0.1


@pytest.mark.parametrize("horizon", [None, 200, 1000])
def test_what_tests_may_cost(horizon):
    policy, problem = ms.InsuredUCB(PLANE, SMOOTH, premium=2.0, horizon=horizon), written_off()
    rng = np.random.default_rng(1)
    paid = 0.0
    for t in range(1, 400):
        query = policy.ask()
        if "test" in query.details:
            loss = query.details["test"]
            assert 0 <= loss <= 1
            spread = max(np.ptp(policy.layered.over(slice(None)).mean), 0.5)
            share = 1 / 200 + 0.13 * policy.misfit_size / spread
            assert paid + loss <= 2.0 * min(max(t, horizon or 0) ** (2 / 3), t / 3) * share + 1e-9
            paid += loss
        policy.tell(query, problem.values[query.index] + 0.1 * rng.standard_normal())
        assert policy.tests <= min(max(t, horizon or 0) ** (2 / 3), t / 3)
        assert policy.paid == pytest.approx(paid)
    assert policy.tests > 5


def test_with_a_horizon_tests_are_made_early():
    """Up to T^{2/3}, as many as one in three rounds, where the premium is no limit."""
    made = {}
    for horizon in (None, 216):
        policy = ms.InsuredUCB(PLANE, SMOOTH, premium=1e6, horizon=horizon)
        rng, problem = np.random.default_rng(3), written_off()
        made[horizon] = []
        for _ in range(216):
            query = policy.ask()
            policy.tell(query, problem.values[query.index] + 0.1 * rng.standard_normal())
            made[horizon].append(policy.tests)
    assert made[216][-1] <= 36
    assert made[216][110] >= 30
    assert made[None][110] <= 111 ** (2 / 3)


@pytest.mark.parametrize("dimension", [1, 2])
def test_on_a_box_tests_are_of_cells_that_were_tried_least(dimension):
    """Each, in batches too, far from all that was tried, and no two in one cell before all were tried."""
    box, tried, tests = ms.Box([(0, 1)] * dimension), [], []
    policy, rng = ms.InsuredUCB(box, SMOOTH, premium=1e6, horizon=80), np.random.default_rng(1)
    cells = box.spread(256, [0])
    for _ in range(20):
        for query in policy.ask(3):
            code = box.encode(query.x[None, :])
            if "test" in query.details and not query.details["again"]:
                assert all(1.0 - SMOOTH.kernel(code, each)[0, 0] > 0.5 * 0.05**2 for each in tried)
                tests.append(int(np.linalg.norm(cells - code, axis=1).argmin()))
            tried.append(code)
            policy.tell(query, float(np.sin(3 * query.x[0])) + 0.1 * rng.standard_normal())
    assert len(tests) > 8
    assert len(set(tests)) == len(tests)


def test_on_a_box_tests_find_what_the_model_has_written_off():
    """A spot as wide as a fifth of the length scale, which a policy without insurance does not try."""
    box, model = ms.Box([(0, 1)]), ms.Model(RBF(0.4), norm_bound=2.0, noise=0.1)
    found = {}
    for premium in (0.0, 30.0):
        policy, rng = ms.InsuredUCB(box, model, premium=premium, horizon=1000), np.random.default_rng(2)
        values = []
        for _ in range(150):
            query = policy.ask()
            x = float(query.x[0])
            values.append(-0.5 * (x - 0.3) ** 2 + (1.2 if abs(x - 0.86) < 0.04 else 0.0))
            policy.tell(query, values[-1] + 0.1 * rng.standard_normal())
        found[premium] = np.mean(np.array(values[-20:]) > 0.3)
    assert found[0.0] == 0.0
    assert found[30.0] > 0.8


def test_a_candidate_that_always_fails_does_not_stall_it():
    """A test that is dropped has been made."""
    policy, problem = ms.InsuredUCB(PLANE, SMOOTH, premium=3.0), written_off()
    rng, failing, asked = np.random.default_rng(2), None, 0
    for _ in range(600):
        query = policy.ask()
        if failing is None and "test" in query.details:
            failing = query.index
        if query.index == failing and "test" in query.details:
            asked += 1
            policy.drop(query)
            continue
        policy.tell(query, problem.values[query.index] + 0.1 * rng.standard_normal())
    assert failing is not None
    assert asked <= 3
    assert policy.tests <= 600 ** (2 / 3)


def test_the_first_failure_of_a_test_is_refunded_and_no_other():
    """Every test fails: of each candidate the first costs nothing, the others what they were expected to lose."""
    policy, problem = ms.InsuredUCB(PLANE, SMOOTH, premium=30.0), written_off()
    rng, tests, paid, failures = np.random.default_rng(4), 0, 0.0, {}
    for _ in range(150):
        query = policy.ask()
        if "test" not in query.details:
            policy.tell(query, problem.values[query.index] + 0.1 * rng.standard_normal())
            continue
        policy.drop(query)
        if query.index in failures:
            tests, paid = tests + 1, paid + query.details["test"]
        failures[query.index] = failures.get(query.index, 0) + 1
        assert (policy.tests, policy.paid) == (tests, pytest.approx(paid))
    assert tests > 2


@pytest.mark.parametrize(("epsilon", "least", "most"), [(0.0, 0.0, 0.04), (0.3, 0.12, 0.5)])
def test_the_misfit_is_learnt(epsilon, least, most):
    """From 200 results at points drawn at random, for each of five problems."""
    for seed in range(5):
        problem = ms.problems.misspecified(DOMAIN, MODEL, epsilon, "random", seed=seed)
        rng = np.random.default_rng(seed)
        policy, rows = ms.InsuredUCB(DOMAIN, MODEL), rng.integers(60, size=200)
        policy.observe(rows, problem.values[rows] + 0.1 * rng.standard_normal(200))
        assert least <= policy.misfit_size <= most


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_noise_is_corrected_by_repeats(factor):
    rng = np.random.default_rng(3)
    problem = ms.problems.misspecified(DOMAIN, MODEL, 0.0, "none", seed=4)
    policy, rows = ms.InsuredUCB(DOMAIN, MODEL), rng.integers(10, size=300)
    policy.observe(rows, problem.values[rows] + 0.1 * factor * rng.standard_normal(300))
    assert policy.learnt_noise == pytest.approx(0.1 * factor, rel=0.15)


@pytest.mark.parametrize("told", [False, True])
def test_regret_stays_below_its_bound(told):
    """Three arms that the model takes for alike, and a premium at which the bound says something; error at most δ = 0.1
    for each of 2 runs, each of which would have to lose several times what it does."""
    points = np.array([[1.0], [0.9], [0.8]])
    model = ms.Model(DotProduct(sigma_0=0), norm_bound=0.5, noise=0.1)
    problem = ms.problems.Problem("arms", ms.Finite(points), model, np.array([0.1, 0.0, 0.4]), 0.2 * points[:, 0], 0.3)
    T = 4000
    bound = ms.theory.insured_bound(model, T, 3, 0.3, premium=200.0, told=told)
    assert bound < 0.9 * 2 * 0.8 * T
    for seed in range(2):
        policy = ms.InsuredUCB(problem.domain, model, premium=200.0, horizon=T if told else None)
        assert play(policy, problem, T, seed).sum() < bound


def test_the_bound_grows_with_two_thirds_of_the_exponent():
    for told in (False, True):
        bounds = [ms.theory.insured_bound(MODEL, T, 3, premium=200.0, told=told) for T in (10**6, 10**7)]
        assert 0.62 < math.log10(bounds[1] / bounds[0]) < 0.70
        assert ms.theory.insured_bound(MODEL, 10**6, 3, premium=2e6, told=told) == bounds[0]  # T^{2/3} tests at most


def test_the_bound_is_less_where_the_horizon_was_told():
    for T in (10**3, 10**5, 10**7):
        told, not_told = (ms.theory.insured_bound(MODEL, T, 3, premium=200.0, told=each) for each in (True, False))
        assert told < not_told


def test_contexts():
    """Vectors that no round has seen before, and pairs of x and a context."""
    rng = np.random.default_rng(5)
    linear = ms.Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1)
    policy, w, lost = ms.InsuredUCB(ms.Open(3), linear), np.array([0.5, 0.3, -0.2]), 0.0
    for _ in range(300):
        A = rng.standard_normal((6, 3))
        A /= 1.01 * np.linalg.norm(A, axis=1)[:, None]
        query = policy.ask(actions=A)
        lost += float((A @ w).max() - A[query.position] @ w)
        policy.tell(query, float(A[query.position] @ w) + 0.1 * rng.standard_normal())
    assert lost < 6.0  # at random: 170
    joint = ms.InsuredUCB(ms.Joint(ms.Box([(0, 1)]).grid(20), ms.Box([(0, 1)])), MODEL)
    for _ in range(80):
        c = rng.random(1)
        query = joint.ask(context=c)
        joint.tell(query, float(-((query.x[0] - c[0]) ** 2)) + 0.1 * rng.standard_normal())
    assert abs(joint.recommend(context=[0.5]).x[0] - 0.5) < 0.25


def test_restored_it_goes_on_to_the_bit_where_the_dictionary_was_chosen_anew():
    """Points in a cluster first, then far from it, in batches: features are void then, and all is made anew."""
    rng = np.random.default_rng(7)
    X = np.sort(np.concatenate([0.5 + 0.01 * rng.random(25), rng.random(15)]))[:, None]
    policy = ms.InsuredUCB(ms.Finite(X), ms.Model(RBF(0.5), norm_bound=2.0, noise=0.1), premium=3.0)
    for turn in range(40):
        if turn == 15:
            policy.observe(range(40), np.sin(5 * X[:, 0]))  # so many at once that the dictionary is chosen anew
        for query in policy.ask(3):
            if rng.random() < 0.1:
                policy.drop(query)
            elif rng.random() < 0.8:
                policy.tell(query, float(np.sin(5 * query.x[0]) + 0.1 * rng.standard_normal()))
        again = ms.restore(policy.state())
        live, restored = copy.deepcopy(policy).ask(), again.ask()
        assert (live.index, live.mean, live.std, live.upper) == (
            restored.index, restored.mean, restored.std, restored.upper,
        )  # fmt: skip
    assert policy.posterior.generation > 0
    assert len(policy.pending) > 5


def test_it_says_when_its_bands_may_not_hold():
    problem = ms.problems.misspecified(DOMAIN, MODEL, 0.3, "random", seed=1)
    rng = np.random.default_rng(1)
    policy, rows = ms.InsuredUCB(DOMAIN, MODEL), rng.integers(60, size=200)
    assert policy.recommend().guaranteed
    policy.observe(rows, problem.values[rows] + 0.3 * rng.standard_normal(200))
    found = policy.recommend()
    assert not found.guaranteed
    assert "misfit" in " ".join(found.caveats)
    assert "scatter" in " ".join(found.caveats)


def test_a_first_batch_is_spread_out():
    """Nothing is tested before there are results."""
    batch = ms.InsuredUCB(DOMAIN, MODEL).ask(8)
    assert not any("test" in query.details for query in batch)
    assert np.diff(sorted(query.index for query in batch)).min() > 2
