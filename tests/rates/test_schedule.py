"""Schedules of the phased policy other than doubling: as few episodes as promised, bands that hold, regret below its
bound. Seeds are fixed."""

import math

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct

import misspec as ms
from misspec.theory import episode_lengths
from worlds import play

# -- how many episodes -------------------------------------------------------------------------------------------------


def test_few_are_log_log_t():
    """Up to a million evaluations; one more than ⌈log₂log₂T⌉ suffices."""
    rng = np.random.default_rng(0)
    edges = [2**k + d for k in range(2, 20) for d in (-1, 0, 1)]
    for T in [*range(3, 3000), *edges, *rng.integers(3000, 10**6, 3000).tolist(), 10**6]:
        lengths = episode_lengths(T, "few")
        assert len(lengths) <= math.ceil(math.log2(math.log2(T))) + 1
        assert sum(lengths[:-1]) < T <= sum(lengths)
        assert all(m**2 >= T * before > (m - 1) ** 2 for before, m in zip([1, *lengths], lengths, strict=False))


def test_a_given_number_is_kept():
    for T in [*range(1, 60), 1000, 10**6]:
        for number in {1, 2, 3, 4, 6, 20, T - 1, T}:
            if 1 <= number <= min(T, 2000):
                lengths = episode_lengths(T, number)
                assert (len(lengths), sum(lengths)) == (number, T)
                assert min(lengths) >= 1
    # where T is large beside their number, the powers of the source
    powers = [(10**9) ** ((1 - 0.5**e) / (1 - 0.5**3)) for e in (1, 2, 3)]
    np.testing.assert_allclose(episode_lengths(10**9, 3), powers, rtol=0.06)


# -- bands -------------------------------------------------------------------------------------------------------------

RUNS, ROUNDS, DELTA = 500, 100, 0.1
LINE = ms.Finite(np.linspace(0, 1, 40)[:, None])
K = RBF(0.15)(LINE.points, LINE.points.copy())
WELL = ms.Model(RBF(0.15), norm_bound=4.0, noise=0.3, delta=DELTA)


def member(rng, run):
    """A function of norm exactly B: a bump, which touches the prior band, or a random combination of kernels."""
    coefficients = rng.standard_normal(len(LINE)) * (rng.random(len(LINE)) < 0.2)
    if run % 2 == 0:
        coefficients = np.eye(len(LINE))[rng.integers(len(LINE))] * rng.choice([-1.0, 1.0])
    coefficients[0] += 1e-3
    values = K @ coefficients
    return values * WELL.norm_bound / np.sqrt(coefficients @ values)


@pytest.mark.slow
@pytest.mark.parametrize(("schedule", "width", "narrow"), [("few", "nonadaptive", 1 / 2), (4, "mixture", 1 / 3)])
def test_bands_hold_in_all_episodes(schedule, width, narrow):
    """The policy's own episodes, on what was active in them: the truth leaves a band in at most δ = 0.1 of 500 runs,
    and in more if bands are half or a third as wide. Were the true rate 0.05, a sound width would be called broken with
    probability 3e-6."""
    missed = {1.0: 0, narrow: 0}
    for run in range(RUNS):
        rng = np.random.default_rng([11, run])
        f = member(rng, run)
        policy = ms.PhasedUncertaintySampling(
            LINE, WELL, horizon=ROUNDS, schedule=schedule, width=width, grounded=False
        )
        farthest = 0.0  # in units of the width
        while policy.t < ROUNDS:
            batch = policy.ask(ROUNDS)
            policy.tell(batch, [float(f[q.index] + WELL.noise * rng.standard_normal()) for q in batch])
            episode = policy.history[-1]
            if len(policy.history) <= (3 if schedule == "few" else 4):  # the last of the few is cut short: no bands
                active = episode.active_before
                ratio = np.abs(f[active] - policy.posterior.mean[active]) / episode.widths
                farthest = max(farthest, float(ratio.max()))
        for factor in missed:
            missed[factor] += farthest > factor
    assert missed[1.0] <= DELTA * RUNS
    assert missed[narrow] > DELTA * RUNS


# -- the bound ---------------------------------------------------------------------------------------------------------

T = 2000
X = np.random.default_rng(0).standard_normal((20, 2))
CIRCLE = ms.Finite(X / np.linalg.norm(X, axis=1, keepdims=True))
LARGE = ms.Model(DotProduct(0.0), norm_bound=100.0, noise=0.1, regularization=1.0)  # for which no bound is trivial
MISFITS = {0.0: "none", 0.05: "spikes", 0.3: "random"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "width"), [("few", "nonadaptive"), ("few", "lemma1"), (3, "lemma1"), (6, "mixture")]
)
def test_regret_stays_below_the_bound(schedule, width):
    """30 runs each, with and without misfit, at every round. A bound may fail in a fraction δ of runs; none does."""
    gain = ms.information_gain(CIRCLE, LARGE, T)
    rounds = np.arange(1, T + 1)
    options = {"width": width, "points": 20, "schedule": schedule}
    bounds = {e: ms.theory.phased_bound(LARGE, rounds, gain, e, **options) for e in MISFITS}
    for run in range(30):
        epsilon = list(MISFITS)[run % 3]
        problem = ms.problems.misspecified(CIRCLE, LARGE, epsilon, MISFITS[epsilon], seed=run)
        policy = ms.PhasedUncertaintySampling(
            CIRCLE, LARGE, horizon=T, schedule=schedule, width=width, grounded=False, intersect=schedule == 6
        )
        trace = play(policy, problem, T, run, batch=T)
        assert (trace.cumulative_regret <= bounds[epsilon] + 1e-9).all()
    for epsilon, bound in bounds.items():  # it says more than that regret is at most 2(B + ε) per round
        assert bound[-1] < 0.8 * 2 * (LARGE.norm_bound + epsilon) * T


def test_the_bound_of_few_grows_like_the_root_of_t():
    """Without misfit, up to the number of episodes: over three factors of a hundred, the slope is at most 0.55."""
    horizons = 100 ** np.arange(3, 7)
    values = [
        ms.theory.phased_bound(LARGE, int(t), 5.0, schedule="few", width="nonadaptive", points=20) for t in horizons
    ]
    slope = np.polyfit(np.log(horizons), np.log(values), 1)[0]
    assert 0.5 <= slope <= 0.55
