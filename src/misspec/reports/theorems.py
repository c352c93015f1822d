"""The theorem that covers a run, where one does."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec import kernels, theory
from misspec.domains import Finite, Open
from misspec.errors import Array
from misspec.experiments import construct
from misspec.experiments.store import Finished, Results
from misspec.model import Model
from misspec.policies import Policy
from misspec.theory import InformationGain, information_gain

MOST_WORK = 1e10  # of the information gain of vectors that rounds bring: some seconds


class _Case(NamedTuple):
    """Runs of one policy on one problem."""

    policy: Policy  # a fresh one, to ask what it is set to
    t: NDArray[np.intp]  # rounds, the horizon last
    gain: InformationGain
    epsilon: float  # the problem's
    varying: bool  # whether action sets change from round to round


class Bound(NamedTuple):
    """A bound on the cumulative true regret at some rounds, and its name. most: what the class allows at these rounds,
    2(B + ε) each, which the bound may exceed."""

    name: str
    x: Array
    y: Array
    most: Array


Allowed = dict[tuple[str, float, str], list[Bound]]  # by problem, ε and policy


def all_bounds(results: Results) -> Allowed:
    """Bounds, only where a theorem applies."""
    found = {
        (problem, epsilon, policy): bounds(runs)
        for (problem, epsilon), group in results.groups().items()
        for policy, runs in group.items()
    }
    return {key: each for key, each in found.items() if each}


def bounds(runs: list[Finished], most: int = 60) -> list[Bound]:
    """Bounds of `misspec.theory` on a policy's runs on a problem; the weakest where ε differs by seed.

    GP-UCB: Theorem 1 with ε = 0, so only where the model is right. EC-GP-UCB: where it is told an ε that is large
    enough. Phased: Theorem 2, ungrounded, with tight constants and with those of the paper; for a schedule other than
    the paper's the sum over its episodes. Balancing: Proposition 1,
    as in the paper, at the horizon alone. Where rounds bring vectors γ is that of all of them, for linear kernels; for
    others it would take too long.
    """
    finished = max(runs, key=lambda each: each.epsilon)
    settings = finished.run.settings
    table, T, epsilon = settings["policy"], settings["horizon"], finished.epsilon
    domain, model = construct.make_world(settings)
    policy = construct.make_policy(table, domain, model, epsilon, T, settings["seed"])
    if policy.theorem not in _THEOREMS or not policy.claims:
        return []  # a width without a theory guarantees nothing
    problem = settings["problem"]
    varying = problem.get("actions") is not None or construct.contextual(problem["kind"])
    t = np.unique(np.geomspace(1, T, most).round().astype(np.intp))
    reach = _brought(settings, domain, model, T) if isinstance(domain, Open) else domain
    if reach is None:
        return []
    return _THEOREMS[policy.theorem](_Case(policy, t, information_gain(reach, policy.model, T), epsilon, varying))


def _brought(settings: dict[str, Any], domain: Open, model: Model, T: int) -> Finite | None:
    """All vectors that rounds may bring; None where their information gain would take long."""
    affine = kernels.affine(model.kernel, domain.dimension)
    if affine is None:
        return None
    vectors = construct.problem_of(settings, solve=False).domain
    return vectors if len(vectors) * T * len(affine.m) <= MOST_WORK else None


def _bound(name: str, case: _Case, found: Any) -> Bound:
    t = case.t.astype(np.float64)
    return Bound(name, t, np.asarray(found), 2.0 * (case.policy.model.norm_bound + case.epsilon) * t)


def _theorem1(case: _Case) -> list[Bound]:
    policy = case.policy
    if policy.epsilon < case.epsilon or (policy.grounded and case.varying):
        return []  # ε too small; the model-free part is about one action set
    points = policy.field.size if policy.grounded else None
    found = theory.ec_gp_ucb_bound(policy.model, case.t, case.gain, policy.epsilon, grounded_points=points, cap=False)
    return [_bound("Theorem 1", case, found)]


def _theorem2(case: _Case) -> list[Bound]:
    policy = case.policy
    width, schedule = getattr(policy, "width", "nonadaptive"), getattr(policy, "schedule", "doubling")
    named = [("Theorem 2", "tight"), ("Theorem 2, constants of the paper", "paper")]
    if schedule != "doubling":
        named = [("Theorem 2 for these episodes", "tight")]
    return [
        _bound(name, case, found)
        for name, constants in named
        for found in [
            theory.phased_bound(
                policy.model, case.t, case.gain, case.epsilon,
                constants=constants, width=width, points=policy.field.size, schedule=schedule, cap=False,
            )
        ]
    ]  # fmt: skip


def _proposition1(case: _Case) -> list[Bound]:
    policy, T = case.policy, int(case.t[-1])
    gain = policy.settings["gain"] or case.gain.upper
    if gain < case.gain.upper:
        return []  # the policy was told a γ_T below its known upper bound
    options = {"reward_range": policy.settings["reward_range"], "varying": case.varying}
    found = theory.balancing_bound(policy.model, T, gain, case.epsilon, cap=False, **options)
    return [_bound("Proposition 1", case._replace(t=case.t[-1:]), np.array([found]))]


def _improved(case: _Case) -> list[Bound]:
    if case.epsilon > 0:
        return []
    found = theory.igp_ucb_bound(case.policy.model, case.t, case.gain, cap=False)
    return [_bound("Chowdhury & Gopalan", case, found)]


_THEOREMS = {
    "Theorem 1": _theorem1,
    "Theorem 2": _theorem2,
    "Proposition 1": _proposition1,
    "Chowdhury & Gopalan": _improved,
}
