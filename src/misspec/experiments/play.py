"""One run: make the problem and the policy, play, look at the bands on the way. A function of its settings alone."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec.errors import Array
from misspec.experiments import construct
from misspec.policies import Policy
from misspec.problems import Problem
from misspec.simulation import Trace, simulate
from misspec.threads import one_thread

LOOKS = 24  # rounds at which bands are looked at
SOME = 500  # vectors at which bands are looked at, where rounds bring vectors
MOST_PICTURED = 2500  # candidates: no bands are kept of larger domains


@dataclasses.dataclass(frozen=True, eq=False)
class Look:
    """The band over the domain after some round, and how much of f* it holds."""

    round: int
    covered: float  # share of the candidates
    lower: Array | None  # kept for runs that are pictured
    upper: Array | None
    mean: Array | None
    active: NDArray[np.intp] | None  # of a policy that eliminates


@dataclasses.dataclass(frozen=True, eq=False)
class Played:
    """A finished run."""

    trace: Trace
    looks: list[Look]
    problem: Problem
    claims: bool  # whether the policy's bands are meant to hold
    seconds: float


def play(settings: dict[str, Any], progress: Callable[[int], None] | None = None) -> Played:
    """Play a run. progress: called with the rounds done since the last call."""
    start = time.perf_counter()
    with one_thread():
        problem = _problem(json.dumps(_of_problem(settings)))
        horizon = settings["horizon"]
        policy = construct.make_policy(
            settings["policy"], problem.arena, problem.model, problem.epsilon, horizon, settings["seed"],
            minimize=problem.minimize,
        )  # fmt: skip
        keep = settings["pictured"] and len(problem.domain) <= MOST_PICTURED and not problem.fresh
        rounds, looks, last = set(look_rounds(horizon)), [], 0

        def after(done: int, of: int) -> None:
            nonlocal last
            if done in rounds:
                looks.append(_look(policy, problem, done, keep))
            if progress is not None and (done - last >= 100 or done == of):
                progress(done - last)
                last = done

        trace = simulate(policy, problem, horizon, settings["seed"], progress=after)
    return Played(trace, looks, problem, policy.claims, time.perf_counter() - start)


def look_rounds(horizon: int) -> list[int]:
    """About two dozen rounds from 1 to the horizon, evenly spaced in log t."""
    return [int(t) for t in np.unique(np.geomspace(1, horizon, LOOKS).round())]


def _look(policy: Policy, problem: Problem, t: int, keep: bool) -> Look:
    f = problem.values
    if problem.fresh:  # the vectors of some rounds stand for all
        some = np.unique(np.linspace(0, len(f) - 1, SOME).astype(np.intp))
        band, f = policy.band(problem.domain.points[some]), f[some]
    else:
        band = policy.band()
    covered = float(((band.lower <= f) & (f <= band.upper)).mean())
    if not keep:
        return Look(t, covered, None, None, None, None)
    alive = policy.alive
    mean = policy.posterior.at(problem.domain.points)[0]
    return Look(t, covered, band.lower, band.upper, mean, None if alive is None else alive.copy())


def _of_problem(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings that the problem depends on; a seed that it does not take makes no difference."""
    own = construct.of_problem(settings)
    return own if "seed" in construct.takes(settings["problem"]["kind"]) else own | {"seed": 0}


@functools.lru_cache(maxsize=4)  # neighbouring runs share their problem
def _problem(settings: str) -> Problem:
    return construct.make_problem(json.loads(settings))
