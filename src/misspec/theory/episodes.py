"""The lengths of the phased policy's episodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from misspec.errors import MOST_ROUNDS, InvalidInput, one_of, shown, vector, whole

Schedule = str | int  # "doubling", "few", or a number of episodes


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
