import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec import theory

MODEL = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1, regularization=0.5, delta=0.1)
LARGE = ms.Model(RBF(0.2), norm_bound=1e6, noise=0.1, regularization=0.5, delta=0.1)  # no cap in sight


def test_theorem_1_to_the_letter():
    T, g, e = 10_000, 7.0, 0.01
    C = 2 / math.log(1 + 1 / 0.5)
    expected = 2 * (0.1 / math.sqrt(0.5) * math.sqrt(2 * math.log(10) + 2 * g) + 2) * math.sqrt(C * g * T)
    expected += 2 * e * T * math.sqrt(C * g / 0.5)
    assert theory.ec_gp_ucb_bound(MODEL, T, g, e, regret="in_class") == pytest.approx(expected)
    assert theory.ec_gp_ucb_bound(MODEL, T, g, e) == pytest.approx(expected + 2 * e * T)


def test_the_grounded_bound_to_the_letter():
    T, g, e, N = 10_000, 7.0, 0.3, 5
    alone = 2 * 2.3 * N + 4 * 0.1 * math.sqrt(2 * N * T * math.log(2 * math.pi**2 * T**2 * N * (N + 1) / 0.3))
    assert theory.ec_gp_ucb_bound(MODEL, T, g, e, grounded_points=N) == pytest.approx(alone)
    half = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1, regularization=0.5, delta=0.05)
    assert theory.ec_gp_ucb_bound(MODEL, 100, g, 0.0, grounded_points=1000) == pytest.approx(
        theory.ec_gp_ucb_bound(half, 100, g, 0.0)
    )


def test_theorem_2_to_the_letter():
    T, g, e = 1 << 20, 7.0, 1e-4
    C, E = 2 / math.log(3), 20
    multiplier = 0.1 / math.sqrt(0.5) * math.sqrt(2 * math.log(E / 0.1) + 2 * g) + 2
    expected = 4 + 2 * e * T * 21 * math.sqrt(C * g / 0.5) + 14 * multiplier * math.sqrt(C * T * g)
    assert theory.phased_bound(MODEL, T, g, e, regret="in_class") == pytest.approx(expected)
    multiplier = 0.1 / math.sqrt(0.5) * math.sqrt(2 * math.log(2 * 50 * E / 0.1)) + 2
    expected = 4 + 2 * e * T * (1 + 21 * math.sqrt(C * g / 0.5)) + 14 * multiplier * math.sqrt(C * T * g)
    assert theory.phased_bound(MODEL, T, g, e, width="nonadaptive", points=50) == pytest.approx(expected)


def test_the_bounds_of_chowdhury_and_gopalan_to_the_letter():
    T, g, N = 10_000, 7.0, 50
    model = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1, regularization=1 + 2 / T, delta=0.1)
    C = 2 / math.log(1 + 1 / (1 + 2 / T))
    expected = 2 * (2 + 0.1 * math.sqrt(2 * (g + 1 + math.log(10)))) * math.sqrt(C * g * T)
    assert theory.igp_ucb_bound(model, T, g) == pytest.approx(expected)
    assert expected < 2 * (2 + 0.1 * math.sqrt(2 * (g + 1 + math.log(10)))) * math.sqrt(4 * (T + 2) * g)  # as printed
    T = 10**9
    c = (2 + 0.1 * math.sqrt(2 * (g + 1 + math.log(20)))) * (1 + math.sqrt(2 * math.log(N * T**2)))
    p = 1 / (4 * math.e * math.sqrt(math.pi))
    expected = (
        16 + math.pi**2 * 2 / 3 + 11 * c / p * math.sqrt(C * g * T) + 19 * c / p * math.sqrt(2 * T * math.log(20))
    )
    assert theory.gp_ts_bound(model, T, g, N) == pytest.approx(expected)
    assert theory.gp_ts_bound(model, 1000, g, N) == 4.0 * 1000  # the trivial bound


def test_theorem_2_for_few_episodes_to_the_letter():
    """16, 64, 128 and 48 of 181: three are complete. γ is that of the episode before, where it is known."""
    T, g, e, C = 256, 0.05, 1e-3, 2 / math.log(3)
    s = math.sqrt(C * g)

    def multiplier(g, width):
        inside = math.log(3 / 0.1) + g if width == "lemma1" else math.log(2 * 50 * 3 / 0.1)
        return 0.1 / math.sqrt(0.5) * math.sqrt(2 * inside) + 2

    def lost(episode, before, g, width):
        s = math.sqrt(C * g)
        return min(4, 4 * multiplier(g, width) * s / math.sqrt(before) + 2 * episode * e * s / math.sqrt(0.5))

    for width in ("lemma1", "nonadaptive"):
        options = {"width": width, "points": 50, "schedule": "few", "regret": "in_class"}
        expected = 16 * 4 + 64 * lost(2, 16, g, width) + 128 * lost(3, 64, g, width) + 48 * lost(4, 128, g, width)
        assert theory.phased_bound(MODEL, T, g, e, **options) == pytest.approx(expected)
        curve = theory.phased_bound(MODEL, [10, 20, T], g, e, **options)
        assert curve.tolist() == pytest.approx([40, 64 + 4 * lost(2, 16, g, width), expected])
        assert expected < 4 * T
    gain = ms.information_gain(ms.Box([(0, 1)]).grid(30), MODEL, T)
    expected = 16 * 4 + sum(
        m * lost(episode, before, gain.up_to(before), "lemma1")
        for episode, before, m in [(2, 16, 64), (3, 64, 128), (4, 128, 48)]
    )
    assert theory.phased_bound(MODEL, T, gain, e, schedule="few") == pytest.approx(expected + 2 * e * T)
    # the closed form of the docstring
    large = theory.phased_bound(MODEL, 10**6, g, width="nonadaptive", points=50, schedule="few")
    factor = 0.1 / math.sqrt(0.5) * math.sqrt(2 * math.log(2 * 50 * 4 / 0.1)) + 2
    assert large <= 2 * 2 * 1000 + 4 * 4 * factor * 1001 * s


@given(
    T=st.integers(1, 10**6), g=st.floats(0.1, 100), e=st.floats(0, 1), ridge=st.floats(1e-3, 10), B=st.floats(0.1, 10)
)
def test_laws_of_the_bounds(T, g, e, ridge, B):
    model = ms.Model(RBF(0.2), norm_bound=B, noise=0.1, regularization=ridge)
    for bound in (theory.ec_gp_ucb_bound, theory.phased_bound):
        value = bound(model, T, g, e)
        assert 0 < value <= 2 * (B + e) * T
        assert bound(model, T, g, e, regret="in_class") <= value
        assert bound(model, T, g, e / 2) <= value
        assert bound(model, T, g / 2, e) <= value
        assert bound(model, T + 1, g, e) >= value
    assert theory.phased_bound(model, T, g, e, constants="paper") >= 0.999 * theory.phased_bound(model, T, g, e)


def test_arrays_of_horizons_use_the_gain_of_each_round():
    domain = ms.Box([(0, 1)]).grid(30)
    gain = ms.information_gain(domain, MODEL, 200)
    rounds = np.array([1, 10, 200])
    for bound in (theory.ec_gp_ucb_bound, theory.phased_bound):
        curve = bound(MODEL, rounds, gain, 0.01)
        assert curve.shape == (3,)
        alone = [bound(MODEL, int(t), gain.up_to(int(t)), 0.01) for t in rounds]
        assert curve[-1] == pytest.approx(alone[-1])
        # a curve is that of one run: a phased policy splits δ over the episodes of all of it
        assert (curve >= np.array(alone) * (1 - 1e-12)).all()
        assert bound is theory.phased_bound or curve.tolist() == pytest.approx(alone)
    assert gain.up_to(200) == pytest.approx(gain.upper)
    assert (gain.up_to(np.arange(201)) >= gain.values - 1e-12).all()
    with pytest.raises(ms.InvalidInput, match="up to 200"):
        gain.up_to(201)


def test_balancing_parts_are_those_of_the_policy():
    policy = ms.RegretBalancing.as_in_paper(ms.Box([(0, 1)]).grid(20), MODEL, horizon=1000, gain=3.0)
    assert policy.epsilons == theory.paper_candidates(1000, 3.0)
    assert len(policy.epsilons) == math.ceil(1 + 0.5 * math.log2(1000 / 9))


def test_the_grid_of_candidates_is_halved_until_the_root_of_the_horizon():
    for T, count in ((1, 1), (2, 2), (4, 2), (5, 3), (64, 4), (65, 5), (1000, 6)):
        assert theory.halving_candidates(T, 0.8) == [*(0.8 / 2**i for i in range(count)), 0.0]


def plain_balancing_bound(model, T, gamma, epsilon):
    """The docstring's sum, term by term, without vectors."""
    bases = max(1, math.ceil(1 + 0.5 * math.log2(T / gamma**2)))
    eps = [2.0 ** (1 - i) / math.sqrt(gamma) for i in range(1, bases + 1)]
    M, most = len(eps), 2 * (model.norm_bound + epsilon)

    def h(n):
        return 2.2 * model.noise * math.sqrt(math.log(M * max(1, math.log(n)) / (model.delta / 2)) / n)

    B, ridge, delta = model.norm_bound, model.regularization, model.delta / 2 / M
    spread = model.noise / math.sqrt(ridge) * math.sqrt(2 + 2 * math.log(1 / delta) / gamma)
    c1 = 2 * math.sqrt(2 * ridge + 1) * max(1, spread)
    c2 = 2 * math.sqrt(2 + 1 / ridge) + 2 / math.sqrt(gamma)

    def R(i, n):  # noqa: N802  # the paper's name, Eq. (21) with the constants of the spec
        bound = c1 * (B * math.sqrt(gamma) + gamma) * math.sqrt(n) + c2 * eps[i] * math.sqrt(gamma) * n
        return min(bound, 2 * (B + eps[i]) * n)

    sure = [i for i in range(M) if eps[i] >= epsilon or all(R(i, n) >= most * n for n in range(T + 1))]
    if not sure:
        return most * T
    j = max(sure)
    total = R(j, T)
    for i in set(range(M)) - {j}:
        if i in sure:
            total += R(j, T) + most
            continue
        worst = 0.0
        for m in range(1, T + 1):
            n = max(k for k in range(T - m + 1) if R(i, k) <= R(j, m))
            if n:
                worst = max(worst, R(i, n) + 2 * n * h(n) + n * (R(j, m) / m + 2 * h(m)))
        total += worst + most
    return min(total, most * T)


@pytest.mark.parametrize(("epsilon", "capped"), [(0.0, False), (0.01, False), (0.05, True)])
def test_the_bound_of_balancing_is_the_sum_it_says(epsilon, capped):
    model = ms.Model(RBF(0.2), norm_bound=1.0, noise=0.001, regularization=1.0)
    found = theory.balancing_bound(model, 40, 0.003, epsilon)
    assert found == pytest.approx(plain_balancing_bound(model, 40, 0.003, epsilon))
    assert (found == pytest.approx(2 * (1 + epsilon) * 40)) == capped


def plain_learnt_bound(model, T, d, M, delta, spread):
    """The docstring's sum, for ε = 0."""
    least, most = 0.1 * model.noise, 2 * model.norm_bound
    d = max(d, least)
    H = max(
        math.sqrt(n) * spread * math.sqrt((n + 1) * (math.log(n + 1) + 2 * math.log(M / delta))) / n
        for n in range(1, T + 1)
    )
    rho, k = math.sqrt(1.5) * d / least, max(0.0, math.log2(d * math.sqrt(T) / least))
    others = (rho * (d + 2 * H) + 2 * H) * math.sqrt((M - 1) * T) + (M - 1) * (3 + k) * most
    return d * M * math.sqrt(T) + others


def test_the_bound_of_learnt_coefficients_is_the_sum_it_says():
    for d in (0.0, 0.3, 2.0):
        found = theory.learnt_bound(MODEL, 500, d, 3, cap=False)
        sigma = MODEL.noise
        assert found == pytest.approx(plain_learnt_bound(MODEL, 500, d, 3, MODEL.delta, sigma))
        spread = math.hypot(sigma, 0.35)
        found = theory.learnt_bound(MODEL, 500, d, 2, delta=0.02, reward_range=0.7, varying=True, cap=False)
        assert found == pytest.approx(plain_learnt_bound(MODEL, 500, d, 2, 0.02, spread))
    assert theory.learnt_bound(MODEL, 500, 2.0, 3) == pytest.approx(2 * MODEL.norm_bound * 500)  # the trivial bound
    assert theory.learnt_bound(MODEL, 500, 2.0, 1) == pytest.approx(2.0 * math.sqrt(500))  # the base's own


def test_varying_action_sets_and_a_known_range_change_the_bound_of_balancing():
    model = ms.Model(RBF(0.2), norm_bound=1.0, noise=0.001, regularization=1.0)
    fixed = theory.balancing_bound(model, 40, 0.003, 0.01)
    assert theory.balancing_bound(model, 40, 0.003, 0.01, varying=True) > fixed
    assert theory.balancing_bound(model, 40, 0.003, 0.01, reward_range=0.05) < fixed


def test_the_bound_of_balancing_is_sublinear_in_the_end():
    short, long = (theory.balancing_bound(MODEL, T, 3.0, 0.0) / T for T in (10**3, 3 * 10**6))
    assert short == pytest.approx(2 * 2.0)  # the trivial bound
    assert long < 0.5 * short


def test_the_needle_bound_is_its_sum():
    for T, N in [(5, 10), (10, 10), (30, 10), (1, 1)]:
        expected = 0.5 * sum(1 - t / N for t in range(1, min(T, N) + 1))
        assert theory.needle_lower_bound(T, N, 0.5) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: theory.ec_gp_ucb_bound(MODEL, 0, 1.0), "number of rounds"),
        (lambda: theory.ec_gp_ucb_bound(MODEL, "ten", 1.0), "number of rounds"),
        (lambda: theory.ec_gp_ucb_bound(RBF(0.2), 10, 1.0), "must be a Model"),
        (lambda: theory.needle_lower_bound(-3, 10, 0.5), "number of rounds"),
        (lambda: theory.balancing_bound(MODEL, 10, 1.0, reward_range=-1.0), "reward_range"),
        (lambda: theory.ec_gp_ucb_bound(MODEL, 10, -1.0), "gain"),
        (lambda: theory.ec_gp_ucb_bound(MODEL, 10, 1.0, -0.1), "epsilon"),
        (lambda: theory.ec_gp_ucb_bound(MODEL, 10, 1.0, regret="all"), "true, in_class"),
        (lambda: theory.ec_gp_ucb_bound(MODEL, 10, 1.0, regret="in_class", grounded_points=5), "true regret"),
        (lambda: theory.phased_bound(MODEL, 10, 1.0, width="nonadaptive"), "points=len"),
        (lambda: theory.phased_bound(MODEL, 10, 1.0, width=2.0), "guarantee nothing"),
        (lambda: theory.phased_bound(MODEL, 10, 1.0, constants="loose"), "tight, paper"),
        (lambda: theory.phased_bound(MODEL, 10, 1.0, constants="paper", schedule="few"), "leave them out"),
        (lambda: theory.phased_bound(MODEL, 10, 1.0, width="nonadaptive", schedule="few"), "points=len"),
        (lambda: theory.phased_bound(MODEL, 10, 1.0, schedule=11), "at most the horizon, 10 evaluations, got 11"),
    ],
)
def test_errors_say_what_to_do(call, says):
    with pytest.raises(ms.InvalidInput, match=says):
        call()
