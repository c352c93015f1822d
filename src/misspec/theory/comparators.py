"""Regret bounds of the comparators, as their papers state them; notation as in `bounds.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from misspec.errors import MOST, flag, number, one_of, whole
from misspec.model import Model, a_model
from misspec.theory import widths
from misspec.theory.bounds import Gain, capped, read_rounds, variance_constant
from misspec.theory.information import Rounds


def core_set(dimension: int) -> int:
    """4d ln ln d + 16: the most arms that a design with g(ρ) ≤ 2d needs, and the first m of phased elimination."""
    d = whole("dimension", dimension, at_least=1)
    return math.ceil(4.0 * d * max(0.0, math.log(max(1.0, math.log(d))))) + 16


def phased_elimination_alpha(model: Model, horizon: int, dimension: int, points: int) -> float:
    """α = δ/(2kE): k arms, two sides, and at most E complete phases in T rounds, of 2^{e−1}m rounds each."""
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
    elimination costs the best active arm at most 4ε√d, and the arms that stay are at most 4w_e + 4ε√d below it:

        R ≤ Σ_e u_e·min{2B, 4w_{e−1} + 4ε√d(e − 1)} = O(σ√(dT ln(1/α)) + ε√d T ln T),   m_e ≤ u_e ≤ m_e + m_1.

    α: as the policy's; the bound holds with probability 1 − 2kEα, which is 1 − δ by default.
    """
    T, k = whole("horizon", horizon, at_least=1), whole("points", points, at_least=1)
    d = whole("dimension", dimension, at_least=1)
    eps = read_rounds(model, T, 1.0, epsilon, regret)[2]
    fails = phased_elimination_alpha(model, T, d, k) if alpha is None else number("alpha", alpha, above=0, below=1)
    log = math.log(1.0 / fails)
    m, most = core_set(d), 2.0 * model.norm_bound
    phases = math.floor(math.log2((T - 1) / m + 1.0)) + 1  # that begin, if all are as short as possible
    lengths = [m * 2**e + min(k, m) for e in range(phases)]
    widths = [4.0 * model.noise * math.sqrt(4.0 * d / (m * 2**e) * log) for e in range(phases)]
    bias = 4.0 * eps * math.sqrt(d) * (phases - 1)
    return _phases(T, lengths, [most, *widths], bias, most, regret, eps)


RIPS_SLACK = 1.1  # the designs of `RIPS` are solved until their value is at most this factor above the optimum


def rips_log(model: Model, points: int, phase: int) -> float:
    """ln(1/p_ℓ), p_ℓ = δ/(2kℓ(ℓ+1)): two sides, k arms, all phases."""
    k, e = whole("points", points, at_least=1), whole("phase", phase, at_least=1)
    return math.log(2.0 * k * e * (e + 1) / a_model(model).delta)


def rips_length(model: Model, value: float, accuracy: float, log: float, reward_bound: float) -> int:
    """τ_ℓ: the least τ with (b² + σ²)f·2 ln(1/p)/(τ − 2 ln(1/p)) ≤ ε_ℓ², b the bound on rewards."""
    b, noise = number("reward_bound", reward_bound, at_least=0), a_model(model).noise
    f, accurate = number("value", value, at_least=0), number("accuracy", accuracy, above=0)
    ratio = (b**2 + noise**2) / accurate**2 * f
    return math.ceil(min(2.0 * number("log", log, at_least=0) * (1.0 + ratio), MOST))  # MOST: longer than any run


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
    most 2ε√f, and the arms that stay are at most 4(ε_ℓ + B√(γf)) + 2ε√f below it:

        R ≤ Σ_ℓ τ_ℓ·min{2B, 4(ε_{ℓ−1} + B√(γf)) + 2ε√f(ℓ − 1)} = O(√((b² + σ²)DT ln(k ln T/δ)) + ε√D T ln T).

    b: `reward_bound`, which must hold for f*; B by default.
    """
    T, k = whole("horizon", horizon, at_least=1), whole("points", points, at_least=1)
    eps = read_rounds(model, T, 1.0, epsilon, regret)[2]
    B, f = model.norm_bound, RIPS_SLACK * number("dimension", dimension, above=0)
    b = B if reward_bound is None else number("reward_bound", reward_bound, above=0)
    first = b / 2.0 if accuracy is None else number("accuracy", accuracy, above=0)
    lengths: list[int] = []
    gaps, begun, phases = [2.0 * B], 0, 0
    while begun < T:  # as many phases as can begin: all are as short as possible, f = 1/(1 + γ)
        halved, log = first * 2.0**-phases, rips_log(model, k, phases + 1)
        lengths.append(rips_length(model, f, halved, log, b))
        gaps.append(4.0 * (halved + B * math.sqrt(f / T)))
        begun += rips_length(model, 1.0 / (1.0 + 1.0 / T), halved, log, b)
        phases += 1
    return _phases(T, lengths, gaps, 2.0 * eps * math.sqrt(f) * (phases - 1), 2.0 * B, regret, eps)


def _phases(T: int, lengths: list[int], gaps: list[float], bias: float, most: float, regret: str, eps: float) -> float:
    """Σ over phases of rounds times the loss per round, which falls from phase to phase: long phases are the worst.

    bias: what misfit adds per round; the last phase's for all of them, since shorter phases are more numerous.
    """
    total, left = 0.0, T
    for length, gap in zip(lengths, gaps, strict=False):
        played = min(left, length)
        total += played * min(most, gap + bias)
        left -= played
    return total + (2.0 * eps * T if regret == "true" else 0.0)


def cell_share(level: int, dimension: int) -> float:
    """6/(π²(h + 1)²)/2^{hd}, a cell's share of δ: those of all cells that `DomainSplitting` can ever make sum to 1."""
    h, d = whole("level", level), whole("dimension", dimension, at_least=1)
    return 6.0 / (math.pi**2 * (h + 1) ** 2) / 2.0 ** (h * d)


def cell_limit(level: int, smoothness: float, dimension: int, rule: str = "information") -> float:
    """Results that a cell of side ρ = 2^{−h} may hold: ρ^{−2ν}; by the rule of π-GP-UCB, "elements",
    ρ^{−(d + 2ν)/(d + 1)} − 1."""
    if rule == "information":
        return math.exp2(2.0 * smoothness * level)
    return math.exp2(level * (dimension + 2.0 * smoothness) / (dimension + 1.0)) - 1.0


class SplittingBound(NamedTuple):
    """A bound on regret: Σ_A of what estimation and the misfit cost, their sum, capped, and what order to expect."""

    estimation: float
    misfit: float
    total: float
    order: float


def splitting_bound(
    model: Model,
    cells: Iterable[Any],
    dimension: int,
    epsilon: float = 0.0,
    *,
    smoothness: float,
    grounded: bool = True,
    width: str = "mixture",
    regret: str = "true",
    cap: bool = True,
) -> SplittingBound:
    """The most regret of `DomainSplitting`, from its cells (`cells` and `splits`), for results told one by one.

    In n_A rounds of a cell, which add γ_A to the information of its posterior and end with N_A results, Σσ² ≤ Cγ_A and
    t ≤ N_A, so that

        R ≤ Σ_A 2β_A√(Cγ_A n_A) + Σ_A 2ε√(N_A/λ)√(Cγ_A n_A),   true regret: + 2εT,   β_A at the cell's share of δ,

    with probability 1 − δ. order: √(T^{d/(d + 2ν)}·T) + εT, what
    is to be expected of Matérn kernels, up to constants and logarithms, since γ_A is then polylogarithmic and there are
    T^{d/(d + 2ν)} cells. grounded: δ is halved. No more than 2(B + ε)T with cap.
    """
    a_model(model)
    d, eps = whole("dimension", dimension, at_least=1), number("epsilon", epsilon, at_least=0)
    one_of("regret", regret, ("true", "in_class"))
    delta, C = model.delta / (1 + flag("grounded", grounded)), variance_constant(model)
    estimation = misfit = T = 0.0
    for cell in cells:
        spread = math.sqrt(C * (cell.information - cell.inherited) * cell.played)
        share = delta * cell_share(cell.level, d)
        estimation += 2.0 * widths.multiplier(width, model, 2.0 * cell.information, share) * spread
        misfit += 2.0 * eps * math.sqrt(cell.count / model.regularization) * spread
        T += cell.played
    beyond = 2.0 * eps * T if regret == "true" else 0.0
    nu = number("smoothness (ν)", smoothness, above=0)
    order = T ** ((d + nu) / (d + 2.0 * nu)) + eps * T
    total = estimation + misfit + beyond
    return SplittingBound(estimation, misfit, float(capped(total, T, model, eps, regret, cap=cap)), order)


def noise_sum(noise: float, n: int, models: int, delta: float) -> float:
    """√(ξn), ξ = 2σ²·ln(Pn²π²/(3δ)): what the noise of n rounds of one of P models exceeds, for any n and model, with
    probability at most δ: Σ_n 2e^{−ξ/2σ²} = Σ_n 6δ/(Pπ²n²) = δ/P."""
    n, P = whole("n", n), whole("models", models, at_least=1)
    if n == 0:
        return 0.0
    log = math.log(P * n**2 * math.pi**2 / (3.0 * number("delta", delta, above=0, below=1)))
    return number("noise", noise, at_least=0) * math.sqrt(2.0 * n * log)


def prior_elimination_bound(
    models: Sequence[Model], counts: Sequence[int], widths: Sequence[float], dropped: int, *, cap: bool = True
) -> float:
    """The most regret of `PriorElimination` on one of whose models the truth is, from what it realised, for results
    told one by one: with probability 1 − δ

        R ≤ Σ_p 2(√(ξn_p) + Σβ^pσ^p) + 2B·dropped.

    In a round of p the regret is at most βσ + μ − f = βσ − r + noise, and |Σr| passed line 4 in all but the last round
    of those that were dropped. counts, widths: `counts` and `candidate_bounds`. B: the largest of the models, which
    with cap allow 2B per round.
    """
    norms, delta = [a_model(model).norm_bound for model in models], models[0].delta / 2.0
    total = 2.0 * max(norms) * whole("dropped", dropped)
    for model, n, width in zip(models, counts, widths, strict=True):
        total += 2.0 * (noise_sum(model.noise, n, len(norms), delta) + number("width", width, at_least=0))
    return min(total, 2.0 * max(norms) * sum(counts)) if flag("cap", cap) else total


def igp_ucb_bound(model: Model, horizon: Rounds, gain: Gain, *, cap: bool = True) -> Rounds:
    """Chowdhury & Gopalan (2017), Theorem 3, for ε = 0: R ≤ 2(B + (σ/√min(λ,1))√(2(γ + 1 + ln(1/δ))))√(CγT).

    Printed for λ = 1 + 2/T, with 4(T + 2) instead of CT.
    """
    T, gamma, _ = read_rounds(model, horizon, gain, 0.0, "true")
    bound = 2.0 * widths.improved(model, 2.0 * gamma, model.delta) * np.sqrt(variance_constant(model) * gamma * T)
    return capped(bound, horizon, model, 0.0, "true", cap=cap)


def gp_ts_bound(model: Model, horizon: Rounds, gain: Gain, points: int) -> Rounds:
    """Chowdhury & Gopalan (2017), Theorem 4, on N `points` and for ε = 0:

        R ≤ 8B + π²B/3 + (11c/p)√(CγT) + ((4B + 11)c/p)√(2T ln(2/δ)),   p = 1/(4e√π)

    with c = v_T(1 + √(2 ln(N·T²))), v_T the factor on the samples. 8B pays for the four rounds in which their
    1/(p − 1/t²) ≤ 5/p does not hold. Below 2BT only from hundreds of thousands of rounds on.
    """
    T, gamma, _ = read_rounds(model, horizon, gain, 0.0, "true")
    p, B = 1.0 / (4.0 * math.e * math.sqrt(math.pi)), model.norm_bound
    v = widths.improved(model, 2.0 * gamma, model.delta / 2.0)
    c = np.maximum(v * (1.0 + np.sqrt(2.0 * np.log(whole("points", points, at_least=1) * T**2))), 1.0)
    bound = 8.0 * B + math.pi**2 * B / 3.0 + 11.0 * c / p * np.sqrt(variance_constant(model) * gamma * T)
    bound = bound + (4.0 * B + 11.0) * c / p * np.sqrt(2.0 * T * math.log(2.0 / model.delta))
    return capped(bound, horizon, model, 0.0, "true")
