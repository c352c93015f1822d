"""Caution in regret bound balancing: what it costs, what proves it, and what it has to earn."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern

import misspec as ms
from misspec.policies.balancing import Caution

LINEAR = ms.Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1)


def test_a_budget_is_the_root_of_the_rounds():
    problem = ms.problems.fresh_actions(LINEAR, 4, 8, rounds=400)
    policy = ms.RegretBalancing(problem.arena, problem.model, horizon=400, caution="rounds")
    trace = ms.simulate(policy, problem, 400)
    cautious = np.cumsum(np.asarray(policy.epsilons)[trace.base] > 0)
    t = np.arange(1, 401)
    assert (cautious <= np.sqrt(t) + 1).all()
    assert cautious[-1] >= 19


def test_without_misfit_nothing_is_proved():
    """δ is split three ways; with ten runs a false proof would be a surprise (at most 0.033 each, in theory)."""
    for seed in range(10):
        problem = ms.problems.fresh_actions(LINEAR, 4, 8, rounds=300, seed=seed)
        policy = ms.RegretBalancing(problem.arena, problem.model, horizon=300)
        ms.simulate(policy, problem, 300, seed)
        assert not policy.caution.refuted
        assert sum(n for n, e in zip(policy.counts, policy.epsilons, strict=True) if e > 0) <= 27


def test_the_trap_is_proved_and_caution_earns():
    problem = ms.problems.contextual_trap(seed=2)
    policy = ms.RegretBalancing(ms.Open(4), problem.model, horizon=1500)
    trace = ms.simulate(policy, problem, 1500, 2)
    assert policy.caution.refuted
    assert policy.caution.earned > 0
    linear = ms.simulate(ms.comparators.LinUCB(problem.domain, problem.model), problem, 1500, 2)
    assert trace.cumulative_regret[-1] < 0.4 * linear.cumulative_regret[-1]


def test_noise_earns_nothing():
    caution = Caution("proof", 8.0, [0.5, 0.0], noise=0.1, delta=0.05)
    rng = np.random.default_rng(0)
    for y in -0.1 + 0.5 * rng.standard_normal(1000):
        caution.counted(rng.bytes(8), {"expected": 0.0}, float(y))
    assert caution.earned < 0


def test_what_caution_found_earns_whenever_it_is_played():
    caution = Caution("proof", 8.0, [0.5, 0.0], noise=0.1, delta=0.05)
    caution.counted(b"x", {"expected": 0.1}, 0.5)
    caution.counted(b"x", {}, 0.6)
    caution.counted(b"y", {}, 5.0)
    assert caution.earned == pytest.approx(0.4 + 0.5)


def test_a_proof_needs_own_bands_beside_one_posterior():
    for options in ({"evidence": "own"}, {"grounded": False}):
        policy = ms.RegretBalancing(ms.Open(2), LINEAR, horizon=10, **options)
        assert policy.caution.kind == "price"
        with pytest.raises(ms.InvalidInput, match="proof"):
            ms.RegretBalancing(ms.Open(2), LINEAR, horizon=10, caution="proof", **options)
    assert ms.RegretBalancing(ms.Open(2), LINEAR, horizon=10).caution.kind == "proof"
    assert ms.RegretBalancing(ms.Finite(np.eye(2)), LINEAR, horizon=10).caution.kind == "price"
    with pytest.raises(ms.InvalidInput, match="caution must be one of"):
        ms.RegretBalancing(ms.Open(2), LINEAR, horizon=10, caution="much")


def test_theorems_only_where_they_hold():
    paper = ms.RegretBalancing.as_in_paper(ms.Finite(np.eye(2)), LINEAR, horizon=10)
    assert paper.theorem == "Proposition 1"
    changed = ms.RegretBalancing.as_in_paper(ms.Finite(np.eye(2)), LINEAR, horizon=10, caution="rounds")
    assert changed.theorem == ""
    rough = ms.Model(Matern(0.5, nu=2.5), norm_bound=1.0, noise=0.1)
    grid = ms.Box([(0, 1)]).grid(20)
    assert ms.GPUCB(grid, rough).theorem == "Theorem 1"
    assert ms.GPUCB(grid, rough, budget=3).theorem == ""
    assert ms.GPUCB(ms.Open(2), LINEAR, budget=3).theorem == "Theorem 1"  # nothing is missed of a linear kernel


def test_kernels_of_bases_are_checked_too():
    wide = ms.Model(9.0 * DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1)
    small = ms.Finite(0.1 * np.eye(2))
    policy = ms.RegretBalancing(ms.Open(2), LINEAR, horizon=10, bases=[(LINEAR, 0.5), (LINEAR, 0.0), (wide, 0.0)])
    with pytest.raises(ms.InvalidInput, match="kernel of a base"):
        policy.ask(actions=np.eye(2))
    policy.ask(actions=small.points)


def test_conflicts_are_a_function_of_the_events():
    """Also after thousands of them, and whoever has looked before."""
    model = ms.Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=0.01)
    policy = ms.GPUCB(ms.Open(2), model, grounded=True)
    for _ in range(2050):
        policy.tell(policy.ask(actions=[[0.5, 0.0]]), 0.1)
    assert policy.conflicts() == []
    for _ in range(300):
        policy.tell(policy.ask(actions=[[-0.5, 0.0]]), 0.9)
        found = policy.conflicts()
    twin = ms.restore(policy.state())
    assert [(c.gap, c.epsilon) for c in twin.conflicts()] == [(c.gap, c.epsilon) for c in found]
    assert found
    assert not policy.guaranteed


def test_kernels_are_checked_where_both_parts_of_a_point_are_long():
    with pytest.raises(ms.InvalidInput, match="at most 1"):
        box = ms.Box([(0, 1)] * 2)
        ms.GPUCB(ms.Joint(box, box), ms.Model(ConstantKernel(0.3) * DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1))


def test_rows_may_come_in_any_order():
    joint = ms.Joint(ms.Box([(0, 1)]), ms.Open(1))
    for rows in ([[0.9, 0.0], [0.0, 0.9]], [[0.0, 0.9], [0.9, 0.0]]):
        policy = ms.GPUCB(joint, LINEAR)
        policy.observe(rows, [0.1, 0.2])
        np.testing.assert_array_equal(policy.observations.x, rows)


def test_contexts_out_of_range_are_refused():
    joint = ms.Joint(ms.Box([(0, 1)]), ms.Box([(0, 1)]))
    policy = ms.GPUCB(joint, ms.Model(Matern(0.5, nu=2.5), norm_bound=1.0, noise=0.1))
    for call in (policy.ask, policy.recommend):
        with pytest.raises(ms.InvalidInput, match="a context must be one of"):
            call(context=40.0)
    with pytest.raises(ms.InvalidInput, match="ask\\(context=…\\)"):
        policy.ask(0.4)
    named = ms.Joint(ms.Finite([[0.1], [0.2]]), ms.Finite([[0.0], [1.0]], names=["dry", "wet"]))
    policy = ms.GPUCB(named, ms.Model(Matern(0.5, nu=2.5), norm_bound=1.0, noise=0.1))
    policy.observe([0, 1], [0.1, 0.2], context=["dry", "wet"])
    policy.observe([0, 1], [0.1, 0.2], context=[1, 0])
    np.testing.assert_array_equal(policy.observations.x, [[0.1, 0.0], [0.2, 1.0], [0.1, 1.0], [0.2, 0.0]])
    with pytest.raises(ms.InvalidInput, match="a context must be one of"):
        policy.ask(context=[0.5])


def test_uniform_sampling_is_uniform_at_a_context():
    policy = ms.UniformSampling(ms.Joint(ms.Box([(0, 1)]), ms.Box([(0, 1)])), LINEAR_HALF)
    xs = [policy.ask(context=[0.5]).x[0] for _ in range(60)]
    assert len(set(xs)) == 60


LINEAR_HALF = ms.Model(ConstantKernel(0.5) * DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1)


def test_linear_policies_say_what_they_need():
    with pytest.raises(ms.InvalidInput, match="domain must be"):
        ms.comparators.LinUCB(5, LINEAR)
    for policy in (ms.comparators.LinUCB, ms.comparators.LinearThompson):
        with pytest.raises(ms.InvalidInput, match="needs a linear kernel"):
            policy(ms.Open(2), ms.Model(Matern(0.5), norm_bound=1.0, noise=0.1))
