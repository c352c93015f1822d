"""Policies against problems in a few lines of Python, for what a TOML file cannot say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import polars as pl

from misspec.errors import Array, InvalidInput, whole
from misspec.policies import Policy
from misspec.problems import Problem
from misspec.simulate import simulate


def late(regret: Array) -> float:
    """Regret a round over the last tenth of the rounds."""
    return float(regret[-max(1, len(regret) // 10) :].mean())


def compare(
    policies: Mapping[str, Callable[[Problem], Policy]],
    problems: Problem | Iterable[Problem],
    horizon: int,
    seeds: int | Iterable[int] = 5,
    progress: Callable[[int, int], None] | None = None,
) -> pl.DataFrame:
    """One row per problem, policy and seed, in this process; every policy meets the same noise.

    policies   by name, a function that makes a fresh policy for a problem, as in
               {"EC": lambda p: ECGPUCB(p.domain, p.model, epsilon=p.epsilon)}
    seeds      of the worlds: a number of them, or the seeds themselves
    progress   called as progress(runs done, of) after every run

    Columns: problem, epsilon, policy, seed, regret and in_class_regret (a round), late (regret a round over the last
    tenth), recommended_regret. `compare(…).group_by("policy").agg(pl.col("regret").mean())` is a table of means.
    """
    chosen = [problems] if isinstance(problems, Problem) else list(problems)
    worlds = list(range(whole("seeds", seeds, at_least=1))) if isinstance(seeds, int) else list(seeds)
    if not isinstance(policies, Mapping) or not policies or not all(callable(make) for make in policies.values()):
        raise InvalidInput("policies must be names with functions of a problem, as in {'GP': lambda p: GPUCB(…)}")
    if not chosen or not all(isinstance(problem, Problem) for problem in chosen) or not worlds:
        raise InvalidInput("problems must be Problems, at least one, and so must be the seeds")
    rows = []
    for problem in chosen:
        for name, make in policies.items():
            for seed in worlds:
                try:
                    policy = make(problem)
                except TypeError as error:
                    raise InvalidInput(
                        f"policies[{name!r}] must make a policy from a problem alone: {error}"
                    ) from error
                trace = simulate(policy, problem, horizon, seed)
                rows.append(
                    {
                        "problem": problem.name,
                        "epsilon": problem.epsilon,
                        "policy": name,
                        "seed": seed,
                        "regret": float(trace.regret.mean()),
                        "in_class_regret": float(trace.in_class_regret.mean()),
                        "late": late(trace.regret),
                        "recommended_regret": trace.recommended_regret,
                    }
                )
                if progress is not None:
                    progress(len(rows), len(chosen) * len(policies) * len(worlds))
    return pl.DataFrame(rows)
