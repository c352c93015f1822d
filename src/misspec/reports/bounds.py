"""The theorem that speaks about a run, where one does."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec import theory
from misspec.errors import Array
from misspec.experiments import spec
from misspec.experiments.play import gain_of
from misspec.experiments.store import Finished
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
    varying: bool  # whether action sets change from round to round


def bound(runs: list[Finished], most: int = 60) -> tuple[Array, Array] | None:
    """(rounds, bound on the cumulative true regret) of a policy's runs on a problem, the weakest where ε differs from
    seed to seed; None where no theorem of `misspec.theory` covers them.

    GP-UCB: Theorem 1 with ε = 0, so only where the model is right. EC-GP-UCB: where it is told an ε that is large
    enough. Phased: Theorem 2, ungrounded. Balancing: Proposition 1, as in the paper, at the horizon alone.
    """
    finished = max(runs, key=lambda each: each.epsilon)
    settings = finished.run.settings
    policy, problem, T = settings["policy"], settings["problem"], settings["horizon"]
    theorem = _THEOREMS.get(policy["kind"])
    if theorem is None or isinstance(policy.get("width"), int | float):
        return None  # numbers guarantee nothing
    told = policy.get("epsilon", spec.KNOWN) if policy["kind"] == "ECGPUCB" else 0.0
    domain, model = spec.make_world(settings)
    t = np.unique(np.geomspace(1, T, most).round().astype(np.intp))
    values = theorem(
        _Case(
            policy=policy,
            model=model,
            t=t,
            gain=gain_of(domain, model, T),
            epsilon=finished.epsilon,
            told=finished.epsilon if told == spec.KNOWN else told,
            points=len(domain),
            varying=problem.get("actions") is not None or problem["kind"] in spec.CONTEXTUAL,
        )
    )
    return None if values is None else (t[-len(values) :].astype(np.float64), values)


def _theorem1(case: _Case) -> Array | None:
    grounded = not case.policy["as_in_paper"] and case.policy.get("grounded", case.policy["kind"] == "ECGPUCB")
    if case.told < case.epsilon or (grounded and case.varying):  # the model-free part is about one action set
        return None
    points = case.points if grounded else None
    return np.asarray(theory.ec_gp_ucb_bound(case.model, case.t, case.gain, case.told, grounded_points=points))


def _theorem2(case: _Case) -> Array | None:
    if not case.policy["as_in_paper"] and case.policy.get("grounded", True):
        return None
    width = "lemma1" if case.policy["as_in_paper"] else case.policy.get("width") or "nonadaptive"
    found = theory.phased_bound(case.model, case.t, case.gain, case.epsilon, width=width, points=case.points)
    return np.asarray(found)


def _proposition1(case: _Case) -> Array | None:
    if not case.policy["as_in_paper"]:
        return None
    gain, reward_range = case.policy.get("gain", case.gain), case.policy.get("reward_range")
    T, varying = int(case.t[-1]), case.varying
    found = theory.balancing_bound(case.model, T, gain, case.epsilon, reward_range=reward_range, varying=varying)
    return np.array([found])


_THEOREMS = {
    "GPUCB": _theorem1,
    "ECGPUCB": _theorem1,
    "PhasedUncertaintySampling": _theorem2,
    "RegretBalancing": _proposition1,
}
