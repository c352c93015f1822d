"""The theorems as numbers: explicit regret bounds, to draw beside measured regret.

    γ   `gain`: an upper bound on the maximum information gain γ_T; a number, or what `information_gain` returns
    C   2/ln(1 + 1/λ) ≤ 1 + 2λ: a sum of T posterior variances is at most C·γ_T
    M   number of bases of regret bound balancing, ε̂_i their candidates, N_i how often each played

Every bound is for regret against max f* ("true") or against max f̃ ("in_class"); they differ by 2εT. `horizon` may be an
array: with an InformationGain each of its entries t then uses γ_t. All hold with probability 1 − δ, and never exceed
the 2(B + ε) per round that the class itself allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from misspec.errors import MOST, MOST_ROUNDS, Array, InvalidInput, array, flag, number, one_of, shown, vector, whole
from misspec.information import InformationGain
from misspec.model import Model, a_model

REGRETS = ("true", "in_class")
ALLOWANCE = 1.0 / 60.0  # of the range, times `tests_allowed`: what tests of `InsuredUCB` may lose at least
Rounds = NDArray[Any] | Sequence[int]
Gain = float | InformationGain  # γ_T, or what `information_gain` returns


# -- the theorems ------------------------------------------------------------------------------------------------------


@overload
def ec_gp_ucb_bound(
    model: Model,
    horizon: float,
    gain: Gain,
    epsilon: float = ...,
    *,
    regret: str = ...,
    grounded_points: int | None = ...,
) -> float: ...
@overload
def ec_gp_ucb_bound(
    model: Model,
    horizon: Rounds,
    gain: Gain,
    epsilon: float = ...,
    *,
    regret: str = ...,
    grounded_points: int | None = ...,
) -> Array: ...


def ec_gp_ucb_bound(
    model: Model,
    horizon: float | Rounds,
    gain: Gain,
    epsilon: float = 0.0,
    *,
    regret: str = "true",
    grounded_points: int | None = None,
) -> float | Array:
    """Theorem 1: R ≤ 2(σ/√λ·√(2 ln(1/δ) + 2γ) + B)√(CγT) + 2εT√(Cγ/λ); true regret adds 2εT. ε = 0: GP-UCB.

    grounded_points: N, the number of candidates, for the grounded policy. Its true regret is at most the smaller of
    this bound at δ/2 and a model-free one, 2(B + ε)N + 4σ√(2NT ln(2π²T²N(N+1)/(3δ))).
    """
    T, gamma, eps = _read(model, horizon, gain, epsilon, regret)
    delta = model.delta if grounded_points is None else model.delta / 2.0
    bound = 2.0 * _multiplier(model, gamma, 1.0 / delta) * np.sqrt(_C(model) * gamma * T)
    bound = bound + 2.0 * eps * T * np.sqrt(_C(model) * gamma / model.regularization)
    bound = bound + (2.0 * eps * T if regret == "true" else 0.0)
    if grounded_points is not None:
        if regret != "true":
            raise InvalidInput('the grounded bound is about true regret; leave out regret="in_class"')
        N = whole("grounded_points", grounded_points, at_least=1)
        union = np.log(2.0 * np.pi**2 * T**2 * N * (N + 1) / (3.0 * model.delta))
        alone = 2.0 * (model.norm_bound + eps) * N + 4.0 * model.noise * np.sqrt(2.0 * N * T * union)
        bound = np.minimum(bound, alone)
    return _answer(bound, T, model, eps, regret)


@overload
def phased_bound(
    model: Model,
    horizon: float,
    gain: Gain,
    epsilon: float = ...,
    *,
    width: str = ...,
    points: int | None = ...,
    constants: str = ...,
    regret: str = ...,
    schedule: Schedule = ...,
) -> float: ...
@overload
def phased_bound(
    model: Model,
    horizon: Rounds,
    gain: Gain,
    epsilon: float = ...,
    *,
    width: str = ...,
    points: int | None = ...,
    constants: str = ...,
    regret: str = ...,
    schedule: Schedule = ...,
) -> Array: ...


def phased_bound(
    model: Model,
    horizon: float | Rounds,
    gain: Gain,
    epsilon: float = 0.0,
    *,
    width: str = "lemma1",
    points: int | None = None,
    constants: str = "tight",
    regret: str = "true",
    schedule: Schedule = "doubling",
) -> float | Array:
    """Theorem 2, for the ungrounded policy: R ≤ 2B + 2εT(1 + log₂T)√(Cγ/λ) + 14·multiplier·√(CTγ); true: + 2εT.

    multiplier   (σ/√λ)√(2 ln(E/δ) + 2γ) + B, E the number of complete episodes; for width="nonadaptive", which needs
                 the number of candidates N as `points`, (σ/√λ)√(2 ln(2NE/δ)) + B
    constants    "paper": 2B + 6εT(1 + ln T)√((2 + 1/λ)γ) + 32·multiplier·√((1 + 2λ)Tγ), as printed; valid but loose
    schedule     of `episode_lengths`, for the largest horizon; for all but "doubling" the proof's sum as it stands:

        R ≤ Σ_e m_e·min{2B, 4·multiplier_{e−1}·√(Cγ_{e−1}/m_{e−1}) + 2eε√(Cγ_{e−1}/λ)},   2B for e = 1,

    over the rounds played, γ_e that of m_e rounds. In D_e nothing is worse than its best by more than what four widths
    (at most √(Cγ/m) times the multiplier) and the misfit at two points (each at most ε√(Cγ/λ)) of the episode before
    hide, and each of the e − 1 eliminations took at most 2ε√(Cγ/λ) from the best. m_e ≤ √(T·m_{e−1}) + 1 makes that,
    for "few" and without misfit, at most 2B⌈√T⌉ + 4·multiplier·(√T + 1)√(Cγ) per further episode: √(Tγ)·log log T.
    """
    T, gamma, eps = _read(model, horizon, gain, epsilon, regret)
    one_of("width (numbers guarantee nothing)", width, ("lemma1", "mixture", "nonadaptive"))
    one_of("constants", constants, ("tight", "paper"))
    if check_schedule(schedule, int(T.max())) != "doubling":
        if constants != "tight":
            raise InvalidInput('constants="paper" are for schedule="doubling", the paper\'s; leave them out')
        bound = _planned_bound(model, T, gain, eps, width, points, schedule)
        return _answer(bound + (2.0 * eps * T if regret == "true" else 0.0), T, model, eps, regret)
    E = max(1.0, math.floor(math.log2(float(T.max()) + 1.0)))  # of the whole run: its policy splits δ over all of them
    multiplier = _phased_multiplier(model, gamma, E, width, points)
    ridge = model.regularization
    if constants == "tight":
        bound = 2.0 * eps * T * (1.0 + np.log2(T)) * np.sqrt(_C(model) * gamma / ridge)
        bound = bound + 14.0 * multiplier * np.sqrt(_C(model) * T * gamma)
    else:
        bound = 6.0 * eps * T * (1.0 + np.log(T)) * np.sqrt((2.0 + 1.0 / ridge) * gamma)
        bound = bound + 32.0 * multiplier * np.sqrt((1.0 + 2.0 * ridge) * T * gamma)
    bound = 2.0 * model.norm_bound + bound + (2.0 * eps * T if regret == "true" else 0.0)
    return _answer(bound, T, model, eps, regret)


def _phased_multiplier(model: Model, gamma: Any, episodes: float, width: str, points: int | None) -> Any:
    """At least w(x)/σ(x) of an episode with information gain γ."""
    if width == "nonadaptive":
        if points is None:
            raise InvalidInput('width="nonadaptive" needs the number of candidates: points=len(domain)')
        log = 2.0 * np.log(2.0 * whole("points", points, at_least=1) * episodes / model.delta)
        return model.noise / math.sqrt(model.regularization) * np.sqrt(log) + model.norm_bound
    return _multiplier(model, gamma, episodes / model.delta)


def _planned_bound(
    model: Model, T: Array, gain: Gain, epsilon: float, width: str, points: int | None, schedule: Schedule
) -> Array:
    """The sum over the episodes in `phased_bound`, in-class regret, after each of these rounds of one run."""
    last = int(T.max())
    lengths = episode_lengths(last, schedule)
    E = complete_episodes(last, lengths)
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    m = np.array(lengths[:-1], dtype=np.float64)  # m_{e−1} for e = 2, 3, …
    gamma = gain.up_to(m.astype(np.intp)) if isinstance(gain, InformationGain) else np.full(len(m), float(gain))
    gamma = np.maximum.accumulate(gamma)  # rounding may make an episode the shorter one
    slack = np.sqrt(_C(model) * gamma)
    e = np.arange(2, len(lengths) + 1)
    lost = 4.0 * _phased_multiplier(model, gamma, E, width, points) * slack / np.sqrt(m)
    lost = lost + 2.0 * e * epsilon * slack / math.sqrt(model.regularization)
    most = 2.0 * model.norm_bound
    per_round = np.concatenate([[most], np.minimum(most, lost)])
    played = np.clip(T[..., None] - begins, 0, np.array(lengths, dtype=np.float64))
    return np.asarray(played @ per_round)


def balancing_bound(
    model: Model,
    horizon: int,
    gain: Gain,
    epsilon: float = 0.0,
    *,
    reward_range: float | None = None,
    varying: bool = False,
) -> float:
    """Proposition 1 with its constants, for true regret: what `RegretBalancing.as_in_paper` pays at most.

    Let j be the base with the smallest ε̂_j ≥ ε: its bound R_j holds, so it is never dropped. When base i plays for the
    last time it has played n rounds and j has played m; it has passed the test against j, and its bound was the
    smallest, R_i(n) ≤ R_j(m). Averages stray by at most h, so its regret is at most

        R_i(n) + 2n·h(n) + n(R_j(m)/m + 2h(m)) + one round,

    and for bases at least as cautious as j, whose own bounds hold, R_j(T) + one round. The sum over the bases of the
    largest such values over m is computed as it stands. varying: action sets differ from round to round.
    """
    T = whole("horizon", horizon, at_least=1, at_most=MOST_ROUNDS)
    reward_range = None if reward_range is None else number("reward_range", reward_range, above=0)
    gamma = float(_read(model, T, gain, epsilon, "true")[1])
    eps = number("epsilon", epsilon, at_least=0)
    most = 2.0 * (model.norm_bound + eps)  # per round
    candidates = paper_candidates(T, gamma)
    M, delta = len(candidates), model.delta / 2.0  # half for the widths, half for the test
    ranges = [reward_range or 2.0 * (model.norm_bound + e) for e in candidates]
    s = elimination_spread(model.noise, ranges, varying=flag("varying", varying))
    n = np.arange(T + 1, dtype=np.float64)
    R = [candidate_bound(model, n, gamma, e, delta / M, c) for e, c in zip(candidates, ranges, strict=True)]
    h = np.concatenate([[0.0], elimination_radius(n[1:], M, delta, s, "paper")])
    # a base whose bound is its range all the way is valid whatever ε is
    sure = [i for i, e in enumerate(candidates) if e >= eps or (R[i] >= most * n).all()]
    if not sure:
        return most * T
    j = max(sure)
    total = float(R[j][T])
    played = n[1:]
    for i in range(M):
        if i == j:
            continue
        if i in sure:
            total += float(R[j][T]) + most
            continue
        count = np.minimum(np.searchsorted(R[i], R[j][1:], side="right") - 1, T - played).astype(np.intp)
        worst = R[i][count] + 2.0 * count * h[count] + count * (R[j][1:] / played + 2.0 * h[1:])
        total += float(worst.max()) + most
    return min(total, most * T)


def tests_allowed(t: float) -> float:
    """s(t) = min{√t, t/5}: rounds among the first t that may be tests of `InsuredUCB`."""
    t = number("t", t, at_least=0)
    return min(math.sqrt(t), t / 5.0)


def insured_bound(model: Model, horizon: int, points: int, epsilon: float = 0.0, *, premium: float = 1.0) -> float:
    """What `InsuredUCB` loses at most on N points, for true regret, whatever the truth: O(T^{3/4}√(N ln T/premium)).

    For rounds that offer all N points, each result told before the next query, no data from elsewhere, no failures.
    While all own bands hold, ȳ ± r, an eager round at x loses at most 2r(x) + 2r(x*): scores are within the bands, and
    that of the best point x* no larger. x* is never dismissed. A test is refused where one more would lose too much, or
    make more than s(t) of them. Each pays at most 1, so that up to round t, with p = min{1, premium/60}, at least
    p·s(t) − 2 rounds were tests, or would have been but for the eager choice being the point to test; and of these half
    went to a point tried least: x* has been tried k(t) = ⌊(p·s(t) − 3)/(2N)⌋ times at least. With Δ = 2(B + ε) and the
    sums as they stand, from round 25 on, where s(t) = √t,

        R ≤ Δ(√T + 25 + N) + Σ_t min{Δ, 2r_{k(t)}} + 2N Σ_{n ≤ T/N} r_n.

    Tests t^a in number would give T^{max(a, 1 − a/2)}. It says nothing before millions of rounds, unless the premium is
    large.
    """
    T, N = whole("horizon", horizon, at_least=1, at_most=MOST_ROUNDS**2), whole("points", points, at_least=1)
    if T > MOST_ROUNDS * N:
        raise InvalidInput(f"horizon must be at most {MOST_ROUNDS:,} per point, got {T:,} for {N:,}; take fewer rounds")
    most = 2.0 * (a_model(model).norm_bound + number("epsilon", epsilon, at_least=0))
    paid = min(1.0, number("premium", premium, at_least=0) * ALLOWANCE)

    def radius(n: Array) -> Array:
        union = np.log(2.0 * np.pi**2 * n**2 * N * (N + 1) / (3.0 * model.delta))  # δ/2 for own bands
        return np.asarray(model.noise * np.sqrt(2.0 * union / n))

    tries = np.arange(0, int(max(paid * math.sqrt(T) - 3.0, 0.0) / (2 * N)) + 2, dtype=np.float64)  # k
    begins = np.full(len(tries), T + 1.0)  # the round from which on x* was tried so often
    if paid:
        roots = np.maximum((2.0 * N * tries + 3.0) / paid, 5.0)
        begins = np.minimum(np.ceil(roots**2), T + 1.0)
    begins[0] = 1.0
    rounds = np.append(begins[1:], T + 1.0) - begins
    best = np.append(most, np.minimum(most, 2.0 * radius(tries[1:])))
    alone = float(radius(np.arange(1.0, math.ceil(T / N) + 1.0)).sum())
    bound = most * (math.sqrt(T) + 25.0 + N) + float(best @ rounds) + 2.0 * N * alone
    return min(bound, most * T)


@overload
def needle_lower_bound(horizon: float, points: int, height: float) -> float: ...
@overload
def needle_lower_bound(horizon: Rounds, points: int, height: float) -> Array: ...


def needle_lower_bound(horizon: float | Rounds, points: int, height: float) -> float | Array:
    """Appendix C on N points: with the needle drawn at random, any policy's expected regret is at least
    h·Σ_{t ≤ min(T,N)} (1 − t/N). On a continuum it is hT."""
    T = _rounds(horizon)
    N, h = whole("points", points, at_least=1), number("height", height, at_least=0)
    m = np.minimum(T, N)
    bound = h * (m - m * (m + 1.0) / (2.0 * N))
    return float(bound) if np.ndim(horizon) == 0 else np.asarray(bound)


# -- comparators: elimination in phases --------------------------------------------------------------------------------


def core_set(dimension: int) -> int:
    """4d ln ln d + 16: arms that a design with g(ρ) ≤ 2d needs at most, and the first m of phased elimination."""
    d = whole("dimension", dimension, at_least=1)
    return math.ceil(4.0 * d * max(0.0, math.log(max(1.0, math.log(d))))) + 16


def phased_elimination_alpha(model: Model, horizon: int, dimension: int, points: int) -> float:
    """α = δ/(2kE): k arms, two sides, and the E complete phases that T rounds have at most, of 2^{e−1}m rounds each."""
    T, k = whole("horizon", horizon, at_least=1), whole("points", points, at_least=1)
    E = max(1, math.floor(math.log2(T / core_set(dimension) + 1.0)))
    return a_model(model).delta / (2.0 * k * E)


def phased_elimination_bound(
    model: Model,
    horizon: int,
    dimension: int,
    points: int,
    epsilon: float = 0.0,
    *,
    alpha: float | None = None,
    regret: str = "true",
) -> float:
    """The bound of Lattimore, Szepesvári & Weisz (2020) with constants, for `PhasedElimination` on k points.

    In a phase with m_e, ⟨θ̂ − θ, a⟩ is at most w_e + 2ε√d, w_e = σ√((4d/m_e) ln(1/α)), while all bounds hold. So an
    elimination costs the best active arm at most 4ε√d, and what stays is at most 4w_e + 4ε√d below it:

        R ≤ Σ_e u_e·min{2B, 4w_{e−1} + 4ε√d(e − 1)} = O(σ√(dT ln(1/α)) + ε√d T ln T),   m_e ≤ u_e ≤ m_e + m_1.

    α: as the policy's; the bound holds with probability 1 − 2kEα, which is 1 − δ by default.
    """
    T, k = whole("horizon", horizon, at_least=1), whole("points", points, at_least=1)
    d = whole("dimension", dimension, at_least=1)
    eps = _read(model, T, 1.0, epsilon, regret)[2]
    fails = phased_elimination_alpha(model, T, d, k) if alpha is None else number("alpha", alpha, above=0, below=1)
    log = math.log(1.0 / fails)
    m, most = core_set(d), 2.0 * model.norm_bound
    phases = math.floor(math.log2((T - 1) / m + 1.0)) + 1  # that begin, if each is as short as can be
    lengths = [m * 2**e + min(k, m) for e in range(phases)]
    widths = [4.0 * model.noise * math.sqrt(4.0 * d / (m * 2**e) * log) for e in range(phases)]
    bias = 4.0 * eps * math.sqrt(d) * (phases - 1)
    return _phases(T, lengths, [most, *widths], bias, most, regret, eps)


RIPS_SLACK = 1.1  # how near to the effective dimension the value of its designs comes


def rips_log(model: Model, points: int, phase: int) -> float:
    """ln(1/p_ℓ), p_ℓ = δ/(2kℓ(ℓ+1)): two sides, k arms, all phases."""
    k, e = whole("points", points, at_least=1), whole("phase", phase, at_least=1)
    return math.log(2.0 * k * e * (e + 1) / a_model(model).delta)


def rips_length(model: Model, value: float, accuracy: float, log: float, reward_bound: float) -> int:
    """τ_ℓ: the least τ with (b² + σ²)f·2 ln(1/p)/(τ − 2 ln(1/p)) ≤ ε_ℓ², b the bound on rewards."""
    b, noise = number("reward_bound", reward_bound, at_least=0), a_model(model).noise
    f, accurate = number("value", value, at_least=0), number("accuracy", accuracy, above=0)
    ratio = (b**2 + noise**2) / accurate**2 * f
    return math.ceil(min(2.0 * number("log", log, at_least=0) * (1.0 + ratio), MOST))  # which is for ever


def rips_bound(
    model: Model,
    horizon: int,
    dimension: float,
    points: int,
    epsilon: float = 0.0,
    *,
    accuracy: float | None = None,
    reward_bound: float | None = None,
    regret: str = "true",
) -> float:
    """The bound of Camilleri, Katz-Samuels & Jamieson (2021) with constants, for `RIPS` on k points with k(x,x) = 1.

    dimension: D, the number of features, or the largest tr((Σλφφᵀ + γI)⁻¹Σλφφᵀ) of any design λ, γ = 1/T. Designs have
    values f ≤ 1.1D. In phase ℓ, W errs by at most ε_ℓ + (B√γ + ε)√f. So an elimination costs the best active arm at
    most 2ε√f, and what stays is at most 4(ε_ℓ + B√(γf)) + 2ε√f below it:

        R ≤ Σ_ℓ τ_ℓ·min{2B, 4(ε_{ℓ−1} + B√(γf)) + 2ε√f(ℓ − 1)} = O(√((b² + σ²)DT ln(k ln T/δ)) + ε√D T ln T).

    b: `reward_bound`, which must hold for f*; B by default.
    """
    T, k = whole("horizon", horizon, at_least=1), whole("points", points, at_least=1)
    eps = _read(model, T, 1.0, epsilon, regret)[2]
    B, f = model.norm_bound, RIPS_SLACK * number("dimension", dimension, above=0)
    b = B if reward_bound is None else number("reward_bound", reward_bound, above=0)
    first = b / 2.0 if accuracy is None else number("accuracy", accuracy, above=0)
    lengths: list[int] = []
    gaps, begun, phases = [2.0 * B], 0, 0
    while begun < T:  # phases, if each is as short as can be: f ≥ 1/(1 + γ)
        halved, log = first * 2.0**-phases, rips_log(model, k, phases + 1)
        lengths.append(rips_length(model, f, halved, log, b))
        gaps.append(4.0 * (halved + B * math.sqrt(f / T)))
        begun += rips_length(model, 1.0 / (1.0 + 1.0 / T), halved, log, b)
        phases += 1
    return _phases(T, lengths, gaps, 2.0 * eps * math.sqrt(f) * (phases - 1), 2.0 * B, regret, eps)


def _phases(T: int, lengths: list[int], gaps: list[float], bias: float, most: float, regret: str, eps: float) -> float:
    """Σ of rounds times what each may lose, which falls from phase to phase: the worst is that phases are long.

    bias: what misfit adds, that of the last phase for all, since phases that are short begin more often."""
    total, left = 0.0, T
    for length, gap in zip(lengths, gaps, strict=False):
        played = min(left, length)
        total += played * min(most, gap + bias)
        left -= played
    return total + (2.0 * eps * T if regret == "true" else 0.0)


@overload
def igp_ucb_bound(model: Model, horizon: float, gain: Gain) -> float: ...
@overload
def igp_ucb_bound(model: Model, horizon: Rounds, gain: Gain) -> Array: ...


def igp_ucb_bound(model: Model, horizon: float | Rounds, gain: Gain) -> float | Array:
    """Chowdhury & Gopalan (2017), Theorem 3, for ε = 0: R ≤ 2(B + (σ/√min(λ,1))√(2(γ + 1 + ln(1/δ))))√(CγT).

    Printed for λ = 1 + 2/T, with 4(T + 2) in the place of CT.
    """
    T, gamma, _ = _read(model, horizon, gain, 0.0, "true")
    bound = 2.0 * _improved(model, gamma, model.delta) * np.sqrt(_C(model) * gamma * T)
    return _answer(bound, T, model, 0.0, "true")


@overload
def gp_ts_bound(model: Model, horizon: float, gain: Gain, points: int) -> float: ...
@overload
def gp_ts_bound(model: Model, horizon: Rounds, gain: Gain, points: int) -> Array: ...


def gp_ts_bound(model: Model, horizon: float | Rounds, gain: Gain, points: int) -> float | Array:
    """Chowdhury & Gopalan (2017), Theorem 4, on N `points` and for ε = 0:

        R ≤ 8B + π²B/3 + (11c/p)√(CγT) + ((4B + 11)c/p)√(2T ln(2/δ)),   p = 1/(4e√π)

    with c = v_T(1 + √(2 ln(N·T²))), v_T the factor on the samples. 8B pays for the four rounds in which their
    1/(p − 1/t²) ≤ 5/p does not hold. Below 2BT only from hundreds of thousands of rounds on.
    """
    T, gamma, _ = _read(model, horizon, gain, 0.0, "true")
    p, B = 1.0 / (4.0 * math.e * math.sqrt(math.pi)), model.norm_bound
    v = _improved(model, gamma, model.delta / 2.0)
    c = np.maximum(v * (1.0 + np.sqrt(2.0 * np.log(whole("points", points, at_least=1) * T**2))), 1.0)
    bound = 8.0 * B + math.pi**2 * B / 3.0 + 11.0 * c / p * np.sqrt(_C(model) * gamma * T)
    bound = bound + (4.0 * B + 11.0) * c / p * np.sqrt(2.0 * T * math.log(2.0 / model.delta))
    return _answer(bound, T, model, 0.0, "true")


# -- episodes, shared with the phased policy ---------------------------------------------------------------------------

Schedule = str | int  # "doubling", "few", or a number of episodes


def check_schedule(schedule: Any, horizon: int | None) -> Schedule:
    """A schedule that this horizon can have, or InvalidInput."""
    found: Schedule
    if isinstance(schedule, str):
        found = one_of("schedule (if not a number of episodes)", schedule, ("doubling", "few"))
    else:
        found = whole("schedule (if not doubling or few)", schedule, at_least=1, at_most=MOST_ROUNDS)
    if horizon is None and found != "doubling":
        raise InvalidInput(
            f"schedule={shown(found)} plans all evaluations ahead, got no horizon; say how many: horizon=T"
        )
    if horizon is not None and isinstance(found, int) and found > horizon:
        raise InvalidInput(f"schedule must be at most the horizon, {horizon} evaluations, got {found} episodes")
    return found


def episode_lengths(horizon: int, schedule: Schedule = "doubling") -> list[int]:
    """m_1, m_2, … as planned for T evaluations; T may cut the last one short.

    doubling   1, 2, 4, …: ⌊log₂T⌋ + 1 episodes (Algorithm 2)
    few        m_e = ⌈√(T·m_{e−1})⌉, m_0 = 1: at most ⌈log₂log₂T⌉ + 1 episodes for T ≥ 3
    a number   E of them, m_e in proportion to T^{(1 − 2^{−e})/(1 − 2^{−E})}, which add up to T: none is cut short

    The last two: Li & Scarlett, Gaussian process bandit optimization with few batches (2022). Theirs of a given number
    are not in proportion but as long as these powers, cut at T: for small T fewer than E of them would remain.
    """
    T = whole("horizon", horizon, at_least=1)
    schedule = check_schedule(schedule, T)
    if isinstance(schedule, int):
        E = schedule
        e = np.arange(1, E + 1)
        power = T ** ((1.0 - 0.5**e) / (1.0 - 0.5**E))
        ends = np.ceil(T * np.cumsum(power) / power.sum() - 1e-9).astype(np.intp)  # after each episode
        spare = np.maximum.accumulate(ends - e).clip(0, T - E)  # beyond one evaluation in each
        return [int(m) for m in np.diff(spare + e, prepend=0)]
    lengths = [1 if schedule == "doubling" else _root(T)]
    while sum(lengths) < T:
        lengths.append(2 * lengths[-1] if schedule == "doubling" else _root(T * lengths[-1]))
    return lengths


def complete_episodes(horizon: int, lengths: Sequence[int]) -> int:
    """E: how many of them end within the horizon, and eliminate."""
    return int((np.cumsum(vector("lengths", lengths)) <= whole("horizon", horizon)).sum())


def _root(n: int) -> int:
    """⌈√n⌉, exactly."""
    return math.isqrt(n - 1) + 1


# -- parts of regret bound balancing, shared with the policy -----------------------------------------------------------


def paper_candidates(horizon: int, gain: float) -> list[float]:
    """ε̂_i = 2^{1−i}/√γ for i = 1 … M, M = max(1, ⌈1 + ½ log₂(T/γ²)⌉)."""
    T, gamma = whole("horizon", horizon, at_least=1), number("gain (γ_T)", gain, above=0)
    M = max(1, math.ceil(1 + 0.5 * (math.log2(T) - 2.0 * math.log2(gamma))))
    return [2.0 ** (1 - i) / math.sqrt(gamma) for i in range(1, M + 1)]


def halving_candidates(horizon: int, largest: float) -> list[float]:
    """ε̂_i = ε_max·2^{1−i} for i = 1 … 1 + ⌈½ log₂T⌉, and 0."""
    T, largest = whole("horizon", horizon, at_least=1), number("largest", largest, at_least=0)
    return [*(largest * 2.0**-i for i in range(1 + math.ceil(0.5 * math.log2(T)))), 0.0]


@overload
def candidate_bound(
    model: Model, n: float, gain: float, epsilon: float, delta: float, reward_range: float
) -> float: ...
@overload
def candidate_bound(
    model: Model, n: Array, gain: float, epsilon: float, delta: float, reward_range: float
) -> Array: ...


def candidate_bound(
    model: Model, n: float | Array, gain: float, epsilon: float, delta: float, reward_range: float
) -> float | Array:
    """R_i(n) = min{c₁(B√γ + γ)√n + c₂ε̂√γ·n, range·n}, δ the base's part."""
    ridge = model.regularization
    spread = model.noise / math.sqrt(ridge) * math.sqrt(2.0 + 2.0 * math.log(1.0 / delta) / gain)
    c1 = 2.0 * math.sqrt(2.0 * ridge + 1.0) * max(1.0, spread)
    c2 = 2.0 * math.sqrt(2.0 + 1.0 / ridge) + 2.0 / math.sqrt(gain)
    grows = c1 * (model.norm_bound * math.sqrt(gain) + gain) * n**0.5 + c2 * epsilon * math.sqrt(gain) * n
    bound = np.minimum(grows, reward_range * n)
    return float(bound) if np.ndim(bound) == 0 else np.asarray(bound)


def elimination_spread(noise: float, ranges: list[float], *, varying: bool) -> float:
    """s of the elimination test: σ, or √(σ² + range²/4) where the action sets vary and their maximum with them."""
    return math.sqrt(noise**2 + max(ranges) ** 2 / 4.0) if varying else noise


@overload
def elimination_radius(n: float, bases: int, delta: float, spread: float, kind: str) -> float: ...
@overload
def elimination_radius(n: Array, bases: int, delta: float, spread: float, kind: str) -> Array: ...


def elimination_radius(n: float | Array, bases: int, delta: float, spread: float, kind: str) -> float | Array:
    """h: how far an average of n rewards may stray, for all n and all bases at once."""
    if kind == "paper":
        radius = 2.2 * spread * np.sqrt(np.log(bases * np.maximum(1.0, np.log(n)) / delta) / n)
    else:
        radius = spread * np.sqrt((n + 1.0) * (np.log(n + 1.0) + 2.0 * math.log(bases / delta))) / n
    return float(radius) if np.ndim(radius) == 0 else np.asarray(radius)


# -- small parts -------------------------------------------------------------------------------------------------------


def _C(model: Model) -> float:  # noqa: N802  # the paper's name
    return 2.0 / math.log1p(1.0 / model.regularization)


def _multiplier(model: Model, gamma: Any, inverse_delta: Any) -> Any:
    """(σ/√λ)√(2 ln(1/δ) + 2γ) + B."""
    spread = model.noise / math.sqrt(model.regularization)
    return spread * np.sqrt(2.0 * np.log(inverse_delta) + 2.0 * gamma) + model.norm_bound


def _improved(model: Model, gamma: Any, delta: float) -> Any:
    """B + (σ/√min(λ, 1))√(2(γ + 1 + ln(1/δ)))."""
    spread = model.noise / math.sqrt(min(model.regularization, 1.0))
    return spread * np.sqrt(2.0 * (gamma + 1.0 + math.log(1.0 / delta))) + model.norm_bound


def _rounds(horizon: Any) -> Array:
    wanted = "horizon must be rounds from 1 on"
    T = array(wanted, horizon)
    if T.dtype.kind not in "fiu" or T.size == 0 or not ((T >= 1) & (T <= MOST)).all():
        raise InvalidInput(f"{wanted}, got {shown(horizon)}")
    return T.astype(np.float64)


def _read(model: Any, horizon: Any, gain: Any, epsilon: float, regret: str) -> tuple[Array, Array, float]:
    a_model(model)
    T = _rounds(horizon)
    one_of("regret", regret, REGRETS)
    gamma = gain.up_to(T.astype(np.intp)) if isinstance(gain, InformationGain) else number("gain (γ_T)", gain, above=0)
    return T, np.asarray(gamma), number("epsilon", epsilon, at_least=0)


def _answer(bound: Any, T: Array, model: Model, epsilon: float, regret: str) -> float | Array:
    most = 2.0 * (model.norm_bound + (epsilon if regret == "true" else 0.0)) * T
    result = np.minimum(bound, most)
    return float(result) if result.ndim == 0 else np.asarray(result)
