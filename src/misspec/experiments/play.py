"""One run: make the problem and the policy, play, look at the bands on the way. A function of its settings alone."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from misspec.experiments import construct
from misspec.policies import Policy
from misspec.problems import Problem
from misspec.simulation import Trace, simulate
from misspec.threads import one_thread

BANDS = ("band_lower", "band_upper", "band_mean")
LOOKS = 24  # rounds at which bands are looked at
SOME = 500  # vectors at which bands are looked at, where rounds bring vectors
MOST_PICTURED = 2500  # candidates: no bands are kept of larger domains


@dataclasses.dataclass(frozen=True, eq=False)
class Played:
    """A finished run.

    looks   after some rounds: the share of the candidates whose f* the band holds; of a run that is pictured also the
            band and, of a policy that eliminates, what is active
    """

    trace: Trace
    looks: list[dict[str, Any]]
    problem: Problem
    claims: bool  # whether the policy's bands are meant to hold
    seconds: float


def play(settings: dict[str, Any], progress: Callable[[int], None] | None = None) -> Played:
    """Play a run. progress: called with the rounds done since the last call."""
    start = time.perf_counter()
    with one_thread():
        problem = construct.problem_of(settings)
        horizon = settings["horizon"]
        policy = construct.make_policy(
            settings["policy"], problem.arena, problem.model, problem.epsilon, horizon, settings["seed"],
            minimize=problem.minimize,
        )  # fmt: skip
        keep = settings["pictured"] and len(problem.domain) <= MOST_PICTURED and not problem.fresh
        rounds = set(np.geomspace(1, horizon, LOOKS).round().astype(int).tolist())  # evenly spaced in log t
        looks, last = [], 0

        def after(done: int, of: int) -> None:
            nonlocal last
            if done in rounds:
                looks.append(_look(policy, problem, done, keep))
            if progress is not None and (done - last >= 100 or done == of):
                progress(done - last)
                last = done

        trace = simulate(policy, problem, horizon, settings["seed"], progress=after)
    return Played(trace, looks, problem, policy.claims, time.perf_counter() - start)


def _look(policy: Policy, problem: Problem, t: int, keep: bool) -> dict[str, Any]:
    f = problem.values
    if problem.fresh:  # the vectors of some rounds stand for all
        some = np.unique(np.linspace(0, len(f) - 1, SOME).astype(np.intp))
        band, f = policy.band(problem.domain.points[some]), f[some]
    else:
        band = policy.band()
    look = {"round": t, "covered": float(((band.lower <= f) & (f <= band.upper)).mean())}
    if not keep:
        return look
    mean, alive = policy.posterior.at(problem.domain.points)[0], policy.alive
    bands = dict(zip(BANDS, (band.lower.tolist(), band.upper.tolist(), mean.tolist()), strict=True))
    return look | bands | {"active": None if alive is None else alive.tolist()}
