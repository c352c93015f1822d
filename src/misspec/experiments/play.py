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

from misspec.domains import Finite
from misspec.errors import Array
from misspec.experiments import spec
from misspec.information import InformationGain, information_gain
from misspec.model import Model
from misspec.policies import PhasedUncertaintySampling, Policy
from misspec.policies.encoding import encode_model
from misspec.problems import Problem
from misspec.simulate import Trace, simulate

LOOKS = 24  # rounds at which bands are looked at
MOST_PICTURED = 2500  # candidates: of larger domains no bands are kept


@dataclasses.dataclass(frozen=True, eq=False)
class Look:
    """The band over the domain after some round, and how much of f* it holds."""

    round: int
    covered: float  # share of the candidates
    lower: Array | None  # kept for runs that are pictured
    upper: Array | None
    mean: Array | None
    active: NDArray[np.intp] | None  # phased


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
    from threadpoolctl import threadpool_limits

    start = time.perf_counter()
    with threadpool_limits(1):  # for the same bits whatever the machine is busy with
        problem = _problem(json.dumps(_of_problem(settings)))
        horizon = settings["horizon"]
        policy = spec.make_policy(_with_gain(settings["policy"], problem, horizon), problem, horizon, settings["seed"])
        keep = settings["pictured"] and len(problem.domain) <= MOST_PICTURED
        rounds, looks, last = set(look_rounds(horizon)), [], 0

        def after(done: int, of: int) -> None:
            nonlocal last
            if done in rounds:
                looks.append(_look(policy, problem, done, keep))
            if progress is not None and (done - last >= 100 or done == of):
                progress(done - last)
                last = done

        trace = simulate(policy, problem, horizon, settings["seed"], progress=after)
    return Played(trace, looks, problem, policy.guaranteed, time.perf_counter() - start)


def look_rounds(horizon: int) -> list[int]:
    """About two dozen rounds from 1 to the horizon, evenly spaced in log t."""
    return [int(t) for t in np.unique(np.geomspace(1, horizon, LOOKS).round())]


def _look(policy: Policy, problem: Problem, t: int, keep: bool) -> Look:
    band, f = policy.band(), problem.values
    covered = float(((band.lower <= f) & (f <= band.upper)).mean())
    if not keep:
        return Look(t, covered, None, None, None, None)
    active = policy.active.copy() if isinstance(policy, PhasedUncertaintySampling) else None
    mean: Any = policy.posterior.mean  # type: ignore[attr-defined]  # the domain is Finite
    return Look(t, covered, band.lower, band.upper, np.array(mean), active)


def _of_problem(settings: dict[str, Any]) -> dict[str, Any]:
    """The part of the settings that the problem depends on."""
    own = {name: settings[name] for name in ("problem", "domain", "model", "epsilon", "seed")}
    return own if spec.takes_seed(settings["problem"]["kind"]) else own | {"seed": 0}


@functools.lru_cache(maxsize=4)  # neighbouring runs share their problem
def _problem(settings: str) -> Problem:
    return spec.make_problem(json.loads(settings))


def _with_gain(policy: dict[str, Any], problem: Problem, horizon: int) -> dict[str, Any]:
    """γ_T, which the paper's balancing needs, computed once for all seeds."""
    by_paper = policy["as_in_paper"] or policy.get("bounds") == "paper"
    if policy["kind"] != "RegretBalancing" or not by_paper or "gain" in policy:
        return policy
    return {**policy, "gain": gain_of(problem.domain, problem.model, horizon).upper}


def gain_of(domain: Finite, model: Model, horizon: int) -> InformationGain:
    """γ_T, kept for the next run on the same domain."""
    key = (domain.encoded.tobytes(), json.dumps(encode_model(model), sort_keys=True), horizon)
    found = _GAINS.get(key)
    if found is None:
        found = information_gain(domain, model, horizon)
        _GAINS.clear()
        _GAINS[key] = found
    return found


_GAINS: dict[tuple[bytes, str, int], InformationGain] = {}
