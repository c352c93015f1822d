"""The theorem that speaks about a run, where one does."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec import theory
from misspec.errors import Array
from misspec.experiments import spec
from misspec.experiments.play import gain_of
from misspec.experiments.store import Finished, Results
from misspec.information import InformationGain
from misspec.model import Model


class _Case(NamedTuple):
    policy: dict[str, Any]  # its settings
    model: Model
    t: NDArray[np.intp]  # rounds, the horizon last
    gain: InformationGain
    epsilon: float  # the problem's
    told: float  # what the policy knows of it
    points: int  # N
    grounded: bool
    varying: bool  # whether action sets change from round to round


class Bound(NamedTuple):
    """A bound on the cumulative true regret at some rounds, and how it is called."""

    name: str
    x: Array
    y: Array


Allowed = dict[tuple[str, float, str], list[Bound]]  # by problem, ε and policy


def all_bounds(results: Results) -> Allowed:
    """What is allowed, only where a theorem speaks."""
    found = {
        (problem, epsilon, policy): bounds(runs)
        for (problem, epsilon), group in results.groups().items()
        for policy, runs in group.items()
    }
    return {key: each for key, each in found.items() if each}


def bounds(runs: list[Finished], most: int = 60) -> list[Bound]:
    """What theorems of `misspec.theory` say about a policy's runs on a problem; the weakest where ε differs by seed.

    GP-UCB: Theorem 1 with ε = 0, so only where the model is right. EC-GP-UCB: where it is told an ε that is large
    enough. Phased: Theorem 2, ungrounded, with tight constants and with those of the paper. Balancing: Proposition 1,
    as in the paper, at the horizon alone.
    """
    finished = max(runs, key=lambda each: each.epsilon)
    settings = finished.run.settings
    policy, problem, T = settings["policy"], settings["problem"], settings["horizon"]
    told = policy.get("epsilon", spec.KNOWN) if policy["kind"] == "ECGPUCB" else 0.0
    told = finished.epsilon if told == spec.KNOWN else told
    varying = problem.get("actions") is not None or problem["kind"] in spec.CONTEXTUAL
    grounded = not policy["as_in_paper"] and policy.get("grounded", policy["kind"] != "GPUCB")
    theorem = _THEOREMS.get(policy["kind"])
    if theorem is None or isinstance(policy.get("width"), int | float):
        return []  # numbers guarantee nothing
    if theorem is _theorem1 and (told < finished.epsilon or (grounded and varying)):
        return []  # ε too small; the model-free part is about one action set
    if (theorem is _theorem2 and grounded) or (theorem is _proposition1 and not policy["as_in_paper"]):
        return []
    domain, model = spec.make_world(settings)
    t = np.unique(np.geomspace(1, T, most).round().astype(np.intp))
    gain = gain_of(domain, model, T)
    return theorem(_Case(policy, model, t, gain, finished.epsilon, told, len(domain), grounded, varying))


def _theorem1(case: _Case) -> list[Bound]:
    points = case.points if case.grounded else None
    found = theory.ec_gp_ucb_bound(case.model, case.t, case.gain, case.told, grounded_points=points)
    return [Bound("Theorem 1", case.t.astype(np.float64), found)]


def _theorem2(case: _Case) -> list[Bound]:
    width = "lemma1" if case.policy["as_in_paper"] else case.policy.get("width") or "nonadaptive"
    options: dict[str, Any] = {"width": width, "points": case.points}
    return [
        Bound(name, case.t.astype(np.float64), found)
        for name, constants in (("Theorem 2", "tight"), ("Theorem 2, constants of the paper", "paper"))
        for found in [theory.phased_bound(case.model, case.t, case.gain, case.epsilon, constants=constants, **options)]
    ]


def _proposition1(case: _Case) -> list[Bound]:
    gain, reward_range = case.policy.get("gain", case.gain), case.policy.get("reward_range")
    if isinstance(gain, int | float) and gain < case.gain.upper:
        return []  # the policy was told less than what γ_T is known to be at most
    T, varying = int(case.t[-1]), case.varying
    found = theory.balancing_bound(case.model, T, gain, case.epsilon, reward_range=reward_range, varying=varying)
    return [Bound("Proposition 1", np.array([float(T)]), np.array([found]))]


_THEOREMS = {
    "GPUCB": _theorem1,
    "ECGPUCB": _theorem1,
    "PhasedUncertaintySampling": _theorem2,
    "RegretBalancing": _proposition1,
}
