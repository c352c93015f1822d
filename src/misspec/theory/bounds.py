"""The theorems as numbers: explicit regret bounds, to draw beside measured regret.

    γ   `gain`: an upper bound on the maximum information gain γ_T, as a number or an InformationGain
    C   2/ln(1 + 1/λ) ≤ 1 + 2λ: a sum of T posterior variances is at most C·γ_T
    M   number of bases of regret bound balancing, ε̂_i their candidates, N_i how often each played
    d   coefficient of a base: its regret after n rounds of its own, at any time, is at most d√n

Every bound is for regret against max f* ("true") or against max f̃ ("in_class"); they differ by 2εT. Where `horizon` is
an array, so is the bound, and with an InformationGain each entry t uses γ_t. All hold with probability 1 − δ. With
`cap`, the default, none exceeds the 2(B + ε) per round that the class itself allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from misspec.errors import MOST, MOST_ROUNDS, Array, InvalidInput, array, flag, number, one_of, shown, vector, whole
from misspec.model import Model, a_model
from misspec.theory import widths
from misspec.theory.information import InformationGain, Rounds

REGRETS = ("true", "in_class")
# `InsuredUCB` may always lose this share of the range per test that is allowed: where no misfit shows that is a
# thousandth of the range per round after 125 rounds
ALLOWANCE = 1.0 / 200.0
Gain = float | InformationGain  # γ_T
Schedule = str | int  # "doubling", "few", or a number of episodes
# d_min of learnt coefficients, in units of the noise: what a good base loses per √n before anything is proved of it
LEAST = 0.1


def ec_gp_ucb_bound(
    model: Model,
    horizon: Rounds,
    gain: Gain,
    epsilon: float = 0.0,
    *,
    regret: str = "true",
    grounded_points: int | None = None,
    cap: bool = True,
) -> Rounds:
    """Theorem 1: R ≤ 2(σ/√λ·√(2 ln(1/δ) + 2γ) + B)√(CγT) + 2εT√(Cγ/λ); true regret adds 2εT. ε = 0: GP-UCB.

    grounded_points: N, the number of candidates, for the grounded policy. Its true regret is at most the smaller of
    this bound at δ/2 and a model-free one, 2(B + ε)N + 4σ√(2NT ln(2π²T²N(N+1)/(3δ))).
    """
    T, gamma, eps = read_rounds(model, horizon, gain, epsilon, regret)
    delta, slack = model.delta if grounded_points is None else model.delta / 2.0, variance_constant(model) * gamma
    bound = 2.0 * widths.lemma1(model, 2.0 * gamma, delta) * np.sqrt(slack * T)
    bound = bound + 2.0 * eps * T * np.sqrt(slack / model.regularization) + _misfit(T, eps, regret)
    if grounded_points is not None:
        if regret != "true":
            raise InvalidInput('the grounded bound is about true regret; leave out regret="in_class"')
        N = whole("grounded_points", grounded_points, at_least=1)
        union = np.log(2.0 * np.pi**2 * T**2 * N * (N + 1) / (3.0 * model.delta))
        alone = 2.0 * (model.norm_bound + eps) * N + 4.0 * model.noise * np.sqrt(2.0 * N * T * union)
        bound = np.minimum(bound, alone)
    return capped(bound, horizon, model, eps, regret, cap=cap)


def phased_bound(
    model: Model,
    horizon: Rounds,
    gain: Gain,
    epsilon: float = 0.0,
    *,
    width: str = "lemma1",
    points: int | None = None,
    constants: str = "tight",
    regret: str = "true",
    schedule: Schedule = "doubling",
    cap: bool = True,
) -> Rounds:
    """Theorem 2, for the ungrounded policy: R ≤ 2B + 2εT(1 + log₂T)√(Cγ/λ) + 14·multiplier·√(CTγ); true: + 2εT.

    multiplier   (σ/√λ)√(2 ln(E/δ) + 2γ) + B, E the number of complete episodes; for width="nonadaptive", which needs
                 the number of candidates N as `points`, (σ/√λ)√(2 ln(2NE/δ)) + B
    constants    "paper": 2B + 6εT(1 + ln T)√((2 + 1/λ)γ) + 32·multiplier·√((1 + 2λ)Tγ), as printed; valid but loose
    schedule     as for `episode_lengths`, planned for the largest horizon; all but "doubling" use the proof's own sum:

        R ≤ Σ_e m_e·min{2B, 4·multiplier_{e−1}·√(Cγ_{e−1}/m_{e−1}) + 2eε√(Cγ_{e−1}/λ)},   2B for e = 1,

    over the rounds played, where γ_e is that of m_e rounds. A point of D_e is below the best of D_e by at most four
    widths of the episode before (each at most √(Cγ/m) times the multiplier) and the misfit at two points (each at most
    ε√(Cγ/λ)); and each of the e − 1 eliminations costs the best point at most 2ε√(Cγ/λ). For "few" and without misfit,
    m_e ≤ √(T·m_{e−1}) + 1 makes that 2B⌈√T⌉ + 4·multiplier·(√T + 1)√(Cγ) per further episode: √(Tγ)·log log T.
    """
    T, gamma, eps = read_rounds(model, horizon, gain, epsilon, regret)
    one_of("width (numbers guarantee nothing)", width, ("lemma1", "mixture", "nonadaptive"))
    one_of("constants", constants, ("tight", "paper"))
    if check_schedule(schedule, int(T.max())) != "doubling":
        if constants != "tight":
            raise InvalidInput('constants="paper" are for schedule="doubling", the paper\'s; leave them out')
        bound = _planned_bound(model, T, gain, eps, width, points, schedule)
    else:
        E = max(1.0, math.floor(math.log2(float(T.max()) + 1.0)))  # in the whole run: all of them share δ
        ridge, C = model.regularization, variance_constant(model)
        if constants == "tight":
            biased, spread = 2.0 * (1.0 + np.log2(T)) * np.sqrt(C * gamma / ridge), 14.0 * np.sqrt(C * T * gamma)
        else:
            biased = 6.0 * (1.0 + np.log(T)) * np.sqrt((2.0 + 1.0 / ridge) * gamma)
            spread = 32.0 * np.sqrt((1.0 + 2.0 * ridge) * T * gamma)
        multiplier = _phased_multiplier(model, gamma, E, width, points)
        bound = 2.0 * model.norm_bound + eps * T * biased + multiplier * spread
    return capped(bound + _misfit(T, eps, regret), horizon, model, eps, regret, cap=cap)


def _phased_multiplier(model: Model, gamma: Any, episodes: float, width: str, points: int | None) -> Any:
    """An upper bound on w(x)/σ(x) in an episode with information gain γ."""
    if width == "nonadaptive":
        if points is None:
            raise InvalidInput('width="nonadaptive" needs the number of candidates: points=len(domain)')
        log = 2.0 * np.log(2.0 * whole("points", points, at_least=1) * episodes / model.delta)
        return model.noise / math.sqrt(model.regularization) * np.sqrt(log) + model.norm_bound
    return widths.lemma1(model, 2.0 * gamma, model.delta / episodes)


def _planned_bound(
    model: Model, T: Array, gain: Gain, epsilon: float, width: str, points: int | None, schedule: Schedule
) -> Array:
    """The in-class regret of one run after each of the rounds T: the sum over episodes in `phased_bound`."""
    last = int(T.max())
    lengths = episode_lengths(last, schedule)
    E = complete_episodes(last, lengths)
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    m = np.array(lengths[:-1], dtype=np.float64)  # m_{e−1} for e = 2, 3, …
    gamma = gain.up_to(m.astype(np.intp)) if isinstance(gain, InformationGain) else np.full(len(m), float(gain))
    gamma = np.maximum.accumulate(gamma)  # rounding may make an episode shorter than the one before
    slack = np.sqrt(variance_constant(model) * gamma)
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
    cap: bool = True,
) -> float:
    """Proposition 1 with its constants: the most true regret that `RegretBalancing.as_in_paper` can have.

    Let j be the base with the smallest ε̂_j ≥ ε: its bound R_j holds, so it is never dropped. When base i plays for the
    last time it has played n rounds and j has played m; it has passed the test against j, and its bound was the
    smallest, R_i(n) ≤ R_j(m). Averages stray by at most h, so its regret is at most

        R_i(n) + 2n·h(n) + n(R_j(m)/m + 2h(m)) + one round,

    and for bases at least as cautious as j, whose own bounds hold, R_j(T) + one round. The sum over the bases of the
    largest such values over m is computed as it stands. varying: action sets differ from round to round.
    """
    T = whole("horizon", horizon, at_least=1, at_most=MOST_ROUNDS)
    reward_range = None if reward_range is None else number("reward_range", reward_range, above=0)
    gamma = float(read_rounds(model, T, gain, epsilon, "true")[1])
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
    total = float(R[j][T]) + (len(sure) - 1) * (float(R[j][T]) + most)
    played = n[1:]
    for i in set(range(M)).difference(sure):
        count = np.minimum(np.searchsorted(R[i], R[j][1:], side="right") - 1, T - played).astype(np.intp)
        worst = R[i][count] + 2.0 * count * h[count] + count * (R[j][1:] / played + 2.0 * h[1:])
        total += float(worst.max()) + most
    return min(total, most * T) if flag("cap", cap) else total


def learnt_bound(
    model: Model,
    horizon: int,
    coefficient: float,
    bases: int,
    epsilon: float = 0.0,
    *,
    delta: float | None = None,
    reward_range: float | None = None,
    varying: bool = False,
    cap: bool = True,
) -> float:
    """The most true regret with learnt coefficients (`Balanced`, `RegretBalancing(bounds="learnt")`) over M bases, in
    terms of the realised coefficient d of any one of them: its regret after n rounds of its own is at most d√n for all
    n ≤ T. After Dann, Gentile & Pacchiano (2024), with constants: Õ(dM√T + d²√(MT)/d_min), d_min = LEAST·σ, d ≥ d_min.

    For results that are told before the next query. While all averages stray by at most h(n), let H bound √n·h(n):

    1. d̂_i√n is at most the regret of base i, since max_j [û_j/n_j − h_j] is at most the best average. So φ ≤ d√n for
       the good base, max{1, n} its rounds; and φ_i ≥ d_min√n for every base with n ≥ 1 rounds.
    2. When base i plays its n-th round, n ≥ 3, φ_i was the smallest, so d_min√(n − 1) ≤ d√m, m the rounds of the good
       base: n/m ≤ ρ², ρ = √1.5·d/d_min.
    3. If the potential was not cut off at twice the one before, d̂_i√n ≤ φ_i, and as base i was played again later,
       φ_i ≤ d√N, N the rounds of the good base in the end. The definition of d̂_i then says that its regret so far was
       at most d√N + n(d√m/m + 2h(m) + 2h(n)) ≤ d√N + √n·(ρ(d + 2H) + 2H).
    4. Since potentials lie between d_min and d√T, at most k = max{0, log₂(d√T/d_min)} rounds in a row are cut off.
       These, the first two and the last may cost the whole range Δ = 2(B + ε):

        R ≤ dM√T + (ρ(d + 2H) + 2H)√((M − 1)T) + (M − 1)(3 + k)Δ.

    delta: what the comparison has of δ; the model's by default (`Balanced`); `RegretBalancing` has a third, or half
    where it is not grounded. varying: action sets differ from round to round.
    """
    T, M = whole("horizon", horizon, at_least=1, at_most=MOST_ROUNDS), whole("bases", bases, at_least=1)
    share = a_model(model).delta if delta is None else number("delta", delta, above=0, below=1)
    least = LEAST * model.noise
    d = max(number("coefficient (d)", coefficient, at_least=0), least)
    most = 2.0 * (model.norm_bound + number("epsilon", epsilon, at_least=0))
    span = most if reward_range is None else number("reward_range", reward_range, above=0)
    s = elimination_spread(model.noise, [span], varying=flag("varying", varying))
    n = np.arange(1, T + 1, dtype=np.float64)
    H = float((np.sqrt(n) * elimination_radius(n, M, share, s, "anytime")).max())
    rho, k = math.sqrt(1.5) * d / least, max(0.0, math.log2(d * math.sqrt(T) / least))
    total = d * M * math.sqrt(T) + (rho * (d + 2.0 * H) + 2.0 * H) * math.sqrt((M - 1) * T)
    total += (M - 1) * (3.0 + k) * most
    return min(total, most * T) if flag("cap", cap) else total


def tests_allowed(t: float, horizon: int | None = None) -> float:  # noqa: PT028
    """s(t) = min{T^{2/3}, t/3}: the most tests that `InsuredUCB` makes among its first t rounds. T is the horizon, or t
    where none is known, and after its end."""
    t = number("t", t, at_least=0)
    T = t if horizon is None else max(t, whole("horizon", horizon, at_least=1))
    return float(min(T ** (2.0 / 3.0), t / 3.0))


def insured_bound(
    model: Model, horizon: int, points: int, epsilon: float = 0.0, *, premium: float = 1.0, told: bool = False
) -> float:
    """The most true regret of `InsuredUCB` on N points, whatever the truth: O(T^{2/3}√(N ln T/premium)).

    told: whether it was told the horizon. For rounds that offer all N points, each result told before the next query,
    no data from elsewhere, no failures.

    While all own bands ȳ ± r hold, an eager round at x loses at most 2r(x) + 2r(x*): scores lie within the bands, and
    that of the best point x* is no larger. x* is never dismissed. A test is refused where it would lose too much, or
    where s(t) tests were made. Each pays at most 1, so up to round t, with p = min{1, premium/200}, at least p·s(t) − 2
    rounds were tests, or eager rounds at the very point to be tested; two of three went to a point tried least, so x*
    has been tried at least k(t) = ⌊2(p·s(t) − 3)/(3N)⌋ times. With Δ = 2(B + ε),

        R ≤ Δ(s(T) + N) + Σ_t min{Δ, 2r_{k(t)}} + 2N Σ_{n ≤ T/N} r_n.

    s(t) = min{T^{2/3}, t/3} where the horizon was told, else min{t^{2/3}, t/3}. With t^a tests the order would be
    T^{max(a, 1 − a/2)}, of which 2/3 is the least. It exceeds the trivial ΔT before millions of rounds, unless the
    premium is large.
    """
    T, N = whole("horizon", horizon, at_least=1, at_most=MOST_ROUNDS**2), whole("points", points, at_least=1)
    if T > MOST_ROUNDS * N:
        raise InvalidInput(f"horizon must be at most {MOST_ROUNDS:,} per point, got {T:,} for {N:,}; take fewer rounds")
    most = 2.0 * (a_model(model).norm_bound + number("epsilon", epsilon, at_least=0))
    paid, tests = min(1.0, number("premium", premium, at_least=0) * ALLOWANCE), tests_allowed(T, T)

    def radius(n: Array) -> Array:
        union = np.log(2.0 * np.pi**2 * n**2 * N * (N + 1) / (3.0 * model.delta))  # δ/2 for own bands
        return np.asarray(model.noise * np.sqrt(2.0 * union / n))

    tries = np.arange(0, int(max(paid * tests - 3.0, 0.0) / (1.5 * N)) + 1, dtype=np.float64)  # k
    begins = np.ones(len(tries))  # the round from which x* has been tried k times
    if len(tries) > 1:
        needed = (1.5 * N * tries[1:] + 3.0) / paid  # tests
        begins[1:] = np.minimum(np.ceil(np.maximum(3.0 * needed, 0.0 if flag("told", told) else needed**1.5)), T + 1.0)
    rounds = np.append(begins[1:], T + 1.0) - begins
    best = np.append(most, np.minimum(most, 2.0 * radius(tries[1:])))
    alone = float(radius(np.arange(1.0, math.ceil(T / N) + 1.0)).sum())
    bound = most * (tests + N) + float(best @ rounds) + 2.0 * N * alone
    return float(min(bound, most * T))


def needle_lower_bound(horizon: Rounds, points: int, height: float) -> Rounds:
    """Appendix C on N points: with the needle drawn at random, every policy has an expected regret of at least
    h·Σ_{t ≤ min(T,N)} (1 − t/N). On a continuum it is hT."""
    T = _rounds(horizon)
    N, h = whole("points", points, at_least=1), number("height", height, at_least=0)
    m = np.minimum(T, N)
    bound: Rounds = h * (m - m * (m + 1.0) / (2.0 * N))
    return bound


def variance_constant(model: Model) -> float:
    """C."""
    return 2.0 / math.log1p(1.0 / model.regularization)


def _misfit(T: Any, epsilon: float, regret: str) -> Any:
    """True regret beyond that in the class: 2εT."""
    return 2.0 * epsilon * T if regret == "true" else 0.0


def _rounds(horizon: Any) -> Any:
    wanted = "horizon must be a number of rounds, at least 1, or an array of them"
    T = array(wanted, horizon)
    if T.dtype.kind not in "fiu" or T.size == 0 or not ((T >= 1) & (T <= MOST)).all():
        raise InvalidInput(f"{wanted}, got {shown(horizon)}")
    return T.astype(np.float64)  # of one number: an array without dimensions, which NumPy makes a float


def read_rounds(model: Any, horizon: Any, gain: Any, epsilon: float, regret: str) -> tuple[Array, Array, float]:
    """T, γ_T and ε, checked."""
    a_model(model)
    T = _rounds(horizon)
    one_of("regret", regret, REGRETS)
    gamma = gain.up_to(T.astype(np.intp)) if isinstance(gain, InformationGain) else number("gain (γ_T)", gain, above=0)
    return T, np.asarray(gamma), number("epsilon", epsilon, at_least=0)


def capped(bound: Any, horizon: Rounds, model: Model, epsilon: float, regret: str, *, cap: bool = True) -> Rounds:
    """The bound; with cap, no more than the class itself allows."""
    most = 2.0 * (model.norm_bound + (epsilon if regret == "true" else 0.0)) * np.asarray(horizon)
    result: Rounds = np.minimum(bound, most if flag("cap", cap) else np.inf)
    return result


# -- the lengths of the phased policy's episodes -----------------------------------------------------------------------


def check_schedule(schedule: Any, horizon: int | None) -> Schedule:
    """The schedule, or InvalidInput if this horizon cannot have it."""
    checked: Schedule
    if isinstance(schedule, str):
        checked = one_of("schedule (if not a number of episodes)", schedule, ("doubling", "few"))
    else:
        checked = whole("schedule (if not doubling or few)", schedule, at_least=1, at_most=MOST_ROUNDS)
    if horizon is None and checked != "doubling":
        raise InvalidInput(f"schedule={shown(checked)} plans all evaluations ahead; say how many: horizon=T")
    if horizon is not None and isinstance(checked, int) and checked > horizon:
        raise InvalidInput(f"schedule must be at most the horizon, {horizon} evaluations, got {checked} episodes")
    return checked


def episode_lengths(horizon: int, schedule: Schedule = "doubling") -> list[int]:
    """m_1, m_2, … as planned for T evaluations, which may cut the last one short.

    doubling   1, 2, 4, …: ⌊log₂T⌋ + 1 episodes (Algorithm 2)
    few        m_e = ⌈√(T·m_{e−1})⌉, m_0 = 1: at most ⌈log₂log₂T⌉ + 1 episodes for T ≥ 3
    a number   E episodes, m_e in proportion to T^{(1 − 2^{−e})/(1 − 2^{−E})} and adding up to T: none is cut short

    The last two: Li & Scarlett, Gaussian process bandit optimization with few batches (2022), whose E episodes are as
    long as these powers and cut at T, which for small T leaves fewer than E.
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
    lengths = [1 if schedule == "doubling" else _ceil_sqrt(T)]
    while sum(lengths) < T:
        lengths.append(2 * lengths[-1] if schedule == "doubling" else _ceil_sqrt(T * lengths[-1]))
    return lengths


def complete_episodes(horizon: int, lengths: Sequence[int]) -> int:
    """E: the number of episodes that end within the horizon, and so eliminate."""
    return int((np.cumsum(vector("lengths", lengths)) <= whole("horizon", horizon)).sum())


def _ceil_sqrt(n: int) -> int:
    return math.isqrt(n - 1) + 1


# -- regret bound balancing: candidates ε̂_i, their bounds R_i, and the radius of the elimination test ------------------


def paper_candidates(horizon: int, gain: float) -> list[float]:
    """ε̂_i = 2^{1−i}/√γ for i = 1 … M, M = max(1, ⌈1 + ½ log₂(T/γ²)⌉)."""
    T, gamma = whole("horizon", horizon, at_least=1), number("gain (γ_T)", gain, above=0)
    M = max(1, math.ceil(1 + 0.5 * (math.log2(T) - 2.0 * math.log2(gamma))))
    return [2.0 ** (1 - i) / math.sqrt(gamma) for i in range(1, M + 1)]


def halving_candidates(horizon: int, largest: float) -> list[float]:
    """ε̂_i = ε_max·2^{1−i} for i = 1 … 1 + ⌈½ log₂T⌉, and 0."""
    T, largest = whole("horizon", horizon, at_least=1), number("largest", largest, at_least=0)
    return [*(largest * 2.0**-i for i in range(1 + math.ceil(0.5 * math.log2(T)))), 0.0]


def candidate_bound(model: Model, n: Rounds, gain: float, epsilon: float, delta: float, reward_range: float) -> Rounds:
    """R_i(n) = min{c₁(B√γ + γ)√n + c₂ε̂√γ·n, range·n}, where delta is the base's share of δ."""
    ridge = model.regularization
    spread = model.noise / math.sqrt(ridge) * math.sqrt(2.0 + 2.0 * math.log(1.0 / delta) / gain)
    c1 = 2.0 * math.sqrt(2.0 * ridge + 1.0) * max(1.0, spread)
    c2 = 2.0 * math.sqrt(2.0 + 1.0 / ridge) + 2.0 / math.sqrt(gain)
    grows = c1 * (model.norm_bound * math.sqrt(gain) + gain) * n**0.5 + c2 * epsilon * math.sqrt(gain) * n
    bound: Rounds = np.minimum(grows, reward_range * n)
    return bound


def elimination_spread(noise: float, ranges: list[float], *, varying: bool) -> float:
    """s of the elimination test: σ, or √(σ² + range²/4) where action sets vary, since the best of them does too."""
    return math.sqrt(noise**2 + max(ranges) ** 2 / 4.0) if varying else noise


def elimination_radius(n: Rounds, bases: int, delta: float, spread: float, kind: str) -> Rounds:
    """h(n): bound on how far an average of n rewards strays from its mean, for all n and all bases at once."""
    if kind == "paper":
        return cast(Rounds, 2.2 * spread * np.sqrt(np.log(bases * np.maximum(1.0, np.log(n)) / delta) / n))
    return cast(Rounds, spread * np.sqrt((n + 1.0) * (np.log(n + 1.0) + 2.0 * math.log(bases / delta))) / n)
