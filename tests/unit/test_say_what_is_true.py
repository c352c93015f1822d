"""Bands within the class, certificates that agree, and what is guaranteed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

import misspec as ms

DOMAIN = ms.Finite(np.linspace(0, 1, 30)[:, None])
MODEL = ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1)
MAKE = {
    "gp-ucb": lambda d, m: ms.GPUCB(d, m, grounded=True),
    "ec": lambda d, m: ms.ECGPUCB(d, m, epsilon=0.05),
    "ec ungrounded": lambda d, m: ms.ECGPUCB(d, m, epsilon=0.05, grounded=False),
    "balancing": lambda d, m: ms.RegretBalancing(d, m, horizon=60),
    "phased": lambda d, m: ms.PhasedUncertaintySampling(d, m, horizon=60),
}


@pytest.mark.parametrize("domain", [ms.Box([(0, 1)]), ms.Box([(0, 1)]).grid(11)], ids=["box", "arms"])
def test_two_points_that_contradict_the_model(domain):
    """The posterior extrapolates to 4; the class has |f| ≤ 0.5, and says so."""
    model = ms.Model(Matern(9, nu=2.5), norm_bound=0.5, noise=0.001)
    policy = ms.ECGPUCB(domain, model, epsilon=0.01)
    policy.observe([[0.5], [0.6]], [0.4, -0.4])
    best = policy.recommend()
    assert -0.51 <= best.lower <= best.upper <= 0.51
    assert not best.guaranteed
    assert "conflicts" in best.caveats[0]
    assert max(conflict.epsilon for conflict in policy.conflicts()) > 0.3
    everywhere = policy.band(np.linspace(0, 1, 50)[:, None])
    assert (everywhere.lower >= -0.51).all()
    assert (everywhere.upper <= 0.51).all()
    assert best.gap <= 1.02


@pytest.mark.parametrize("name", MAKE)
def test_no_band_leaves_the_class(name):
    rng = np.random.default_rng(0)
    policy = MAKE[name](DOMAIN, MODEL)
    for _ in range(31):
        query = policy.ask()
        policy.tell(query, float(np.sin(9 * query.x[0]) + 0.1 * rng.standard_normal()))
    band = policy.band()
    reach = MODEL.norm_bound + policy.epsilon
    free = band.upper - band.lower  # own bands alone may leave it: they are about what was seen
    ungrounded = np.ones(30, dtype=bool)
    if policy.grounded:
        seen = np.unique(policy.observations.x, axis=0)
        ungrounded = ~np.isin(DOMAIN.points[:, 0], seen[:, 0])
    assert (free >= 0).all()
    assert (band.upper[ungrounded] <= reach + 1e-12).all()
    assert (band.lower[ungrounded] >= -reach - 1e-12).all()


@settings(max_examples=25)
@given(
    misfit=st.floats(0, 0.6),
    epsilon=st.sampled_from([0.0, 0.02, 0.1, 0.3]),
    repeats=st.integers(1, 60),
    rough=st.integers(2, 40),
)
def test_conflicts_are_there_exactly_when_more_than_epsilon_is_certified(misfit, epsilon, repeats, rough):
    rng = np.random.default_rng(repeats)
    policy = ms.ECGPUCB(DOMAIN, MODEL, epsilon=epsilon)
    for i in rng.permutation(30)[:12]:
        query = policy.ask(actions=[int(i)])
        policy.tell(query, misfit * np.sign(np.sin(rough * query.x[0])) + 0.1 * rng.standard_normal())
        again = policy.ask(repeats, actions=[int(i)])
        noise = 0.1 * rng.standard_normal(repeats)
        policy.tell(again, misfit * np.sign(np.sin(rough * query.x[0])) + noise)
    seen = policy.observations
    certified = ms.diagnose(seen.x, seen.y, MODEL, domain=DOMAIN, time_order=True).epsilon_lower
    assert bool(policy.conflicts()) == (certified > epsilon + 1e-7)
    if policy.conflicts():
        assert max(c.epsilon for c in policy.conflicts()) == pytest.approx(certified, rel=1e-4, abs=1e-6)
        assert not policy.recommend().guaranteed
    any_order = ms.diagnose(seen.x, seen.y, MODEL, domain=DOMAIN).epsilon_lower
    assert any_order <= certified + 1e-9


def test_certificates_hold_when_results_are_withheld():
    """No misfit; 200 asked, the best 30 told. The model's band of those is biased, and proves nothing."""
    false = 0
    for run in range(20):
        rng = np.random.default_rng(run)
        policy = ms.GPUCB(DOMAIN, MODEL, grounded=True)
        batch = policy.ask(200)
        noise = 0.1 * rng.standard_normal(200)
        best = np.argsort(-noise)[:30]
        policy.tell([batch[i] for i in best], noise[best])
        false += bool(policy.conflicts())
    assert false <= 6  # δ = 0.1: more has probability 2e-3 if it is spent in full


@pytest.mark.parametrize("name", ["gp-ucb", "ec", "balancing"])
def test_a_prefix_is_guaranteed_and_a_part_is_not(name):
    policy = MAKE[name](DOMAIN, MODEL)
    batch = policy.ask(3)
    policy.tell(batch[0], 0.1)
    assert policy.recommend().guaranteed
    policy.tell(batch[2], 0.1)
    assert not policy.guaranteed
    assert policy.claims
    policy.tell(batch[1], 0.1)
    assert policy.guaranteed
    late = policy.ask()
    policy.observe([4], [0.0])
    assert not policy.guaranteed, "data from elsewhere came after a query that pends"
    policy.drop(late)
    assert policy.guaranteed


def test_balancing_counts_rounds_in_the_order_asked():
    policy = MAKE["balancing"](DOMAIN, MODEL)
    batch = policy.ask(4)
    policy.tell(batch[1:], [0.1, 0.2, 0.3])
    assert policy.t == 3
    assert sum(policy.counts) == 0
    policy.tell(batch[0], 0.4)
    assert sum(policy.counts) == 4
    assert sum(policy.rewards) == pytest.approx(1.0)
    batch = policy.ask(2)
    policy.tell(batch[1], 0.1)
    policy.drop(batch[0])
    assert sum(policy.counts) == 5


def test_balancing_charges_the_whole_range_while_results_may_be_chosen():
    """Realised bounds are sums of bands, and bands of a chosen set may be biased."""
    options = {"horizon": 60, "reward_range": 1.5}
    policy = ms.RegretBalancing(DOMAIN, MODEL, **options)
    trusting = ms.RegretBalancing(DOMAIN, MODEL, delays="independent", **options)
    for each, whole in ((policy, True), (trusting, False)):
        for _ in range(20):
            each.tell(each.ask(), 0.1)
        first, second = each.ask(2)
        each.tell(second, 0.1)
        assert (each.ask().details["bound"] == 1.5) == whole
        each.tell(first, 0.1)
        for query in each.pending:
            each.tell(query, 0.1)
        assert each.ask().details["bound"] < 1.5


def test_a_mean_outside_its_band_is_not_reported_without_a_word():
    model = ms.Model(RBF(1.0), norm_bound=2.0, noise=0.01, regularization=50.0)  # a mean that shrinks towards 0
    policy = ms.GPUCB(ms.Finite([[0.0], [0.05]]), model, grounded=True)
    policy.observe([0] * 40 + [1] * 40, [1.0] * 40 + [0.0] * 40)
    best = policy.recommend()
    assert best.index == 0
    assert best.mean < best.lower
    assert "below the band" in best.note
    assert ms.GPUCB(DOMAIN, MODEL).recommend().note == ""


STEEP = np.linspace(0.49, 0.51, 100)[:, None]


@pytest.mark.parametrize("domain", [ms.Box([(0, 1)]), ms.Box([(0, 1)]).grid(101)], ids=["box", "arms"])
@pytest.mark.parametrize("evidence", [None, "shared", "own"])
def test_bands_outside_the_class_are_conflicts_wherever_they_lie(domain, evidence):
    """Data in a corner of the domain whose slope no member has: the model's band leaves the class far from them."""
    model = ms.Model(RBF(0.3), norm_bound=1.0, noise=0.05)
    policy = ms.ECGPUCB(domain, model, epsilon=0.055, grounded=False)
    if evidence is not None:
        options = {"horizon": 50, "epsilon_max": 0.055, "grounded": False}
        policy = ms.RegretBalancing(domain, model, evidence=evidence, **options)
    y = 30 * (STEEP[:, 0] - 0.5) + 0.05 * np.random.default_rng(0).standard_normal(100)
    policy.observe(STEEP, y)
    assert policy.conflicts()
    assert not policy.recommend().guaranteed
    policy.tell(policy.ask(), 0.0)
    assert policy.conflicts()


def test_the_gap_on_a_box_is_that_of_a_fine_grid():
    """A kernel that grows with x, so that the class caps the ends that the search climbs."""
    model = ms.Model(ConstantKernel(0.99) * RBF(0.1) * DotProduct(1e-5), norm_bound=1.0, noise=0.05)
    policy = ms.GPUCB(ms.Box([(0, 1)]), model)
    policy.observe([[1.0]] * 40, [0.5] * 40)
    best, fine = policy.recommend(), policy.band(np.linspace(0, 1, 500)[:, None])
    assert best.lower >= fine.lower.max() - 1e-3
    assert best.lower + best.gap >= fine.upper.max() - 1e-3
