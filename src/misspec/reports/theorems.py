"""The theorem that covers a run, where one does."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from misspec import kernels, theory
from misspec.domains import Finite
from misspec.errors import Array
from misspec.experiments import construct
from misspec.experiments.store import Finished, Results
from misspec.model import Model
from misspec.theory import information_gain

MOST_WORK = 1e10  # of the information gain of vectors that rounds bring: some seconds
KNOWN = ("Theorem 1", "Theorem 2", "Proposition 1", "Chowdhury & Gopalan")


class Bound(NamedTuple):
    """A bound on the cumulative true regret at some rounds, and its name. most: what the class allows at these rounds,
    2(B + ε) each, which the bound may exceed."""

    name: str
    x: Array
    y: Array
    most: Array


Allowed = dict[tuple[str, float], dict[str, list[Bound]]]  # by problem and ε, then by policy


def all_bounds(results: Results) -> Allowed:
    """Bounds, only where a theorem applies."""
    groups = results.groups().items()
    return {key: {policy: bounds(runs) for policy, runs in group.items()} for key, group in groups}


def bounds(runs: list[Finished], most: int = 60) -> list[Bound]:
    """Bounds of `misspec.theory` on a policy's runs on a problem; the weakest where ε differs by seed.

    GP-UCB: Theorem 1 with ε = 0, so only where the model is right. EC-GP-UCB: where it is told an ε that is large
    enough. Phased: Theorem 2, ungrounded, with tight constants and with those of the paper; for a schedule other than
    the paper's the sum over its episodes. Balancing: Proposition 1, as in the paper, at the horizon alone. Where rounds
    bring vectors γ is that of all of them, for linear kernels; for others it would take too long.
    """
    finished = max(runs, key=lambda each: each.epsilon)
    settings, epsilon = finished.run.settings, finished.epsilon
    T, problem = settings["horizon"], settings["problem"]
    domain, model = construct.make_world(settings)
    policy = construct.make_policy(settings["policy"], domain, model, epsilon, T, settings["seed"])
    if policy.theorem not in KNOWN or not policy.claims:
        return []  # a width without a theory guarantees nothing
    varying = problem.get("actions") is not None or construct.brings_actions(problem["kind"])
    reach = domain if policy.field.fixed else _brought(settings, domain.dimension, model, T)
    if reach is None:
        return []
    model, told, t = policy.model, policy.settings, np.unique(np.geomspace(1, T, most).round().astype(np.intp))
    gain = information_gain(reach, model, T)
    found: dict[str, Any] = {}
    match policy.theorem:
        case "Theorem 1" if policy.epsilon >= epsilon and not (policy.grounded and varying):
            # the model-free part is about one action set
            points = policy.field.size if policy.grounded else None
            bound = theory.ec_gp_ucb_bound(model, t, gain, policy.epsilon, grounded_points=points, cap=False)
            found["Theorem 1"] = bound
        case "Theorem 2":
            schedule, width = getattr(policy, "schedule", "doubling"), getattr(policy, "width", "nonadaptive")
            shape: dict[str, Any] = {"width": width, "points": policy.field.size, "schedule": schedule}
            both = {"Theorem 2": "tight", "Theorem 2, constants of the paper": "paper"}
            named = both if schedule == "doubling" else {"Theorem 2 for these episodes": "tight"}
            for name, constants in named.items():
                found[name] = theory.phased_bound(model, t, gain, epsilon, constants=constants, cap=False, **shape)
        case "Proposition 1" if (told["gain"] or gain.upper) >= gain.upper:  # it was told no smaller γ_T than is known
            t, options = t[-1:], {"reward_range": told["reward_range"], "varying": varying}
            allowed = theory.balancing_bound(model, T, told["gain"] or gain.upper, epsilon, cap=False, **options)
            found["Proposition 1"] = np.array([allowed])
        case "Chowdhury & Gopalan" if epsilon == 0.0:
            found["Chowdhury & Gopalan"] = theory.igp_ucb_bound(model, t, gain, cap=False)
    x = t.astype(np.float64)
    return [Bound(name, x, np.asarray(y), 2.0 * (model.norm_bound + epsilon) * x) for name, y in found.items()]


def _brought(settings: dict[str, Any], dimension: int, model: Model, T: int) -> Finite | None:
    """All vectors that rounds may bring; None where their information gain would take long."""
    affine = kernels.affine(model.kernel, dimension)
    if affine is None:
        return None
    vectors = construct.problem_of(settings, solve=False).domain
    return vectors if len(vectors) * T * len(affine.m) <= MOST_WORK else None
