"""Policies against problems in a few lines of Python, for what a TOML file cannot say."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl
from joblib import Parallel, delayed

from misspec.errors import MOST_AT_ONCE, InvalidInput, listed, seeded, shown, whole
from misspec.policies import Policy
from misspec.problems import Problem
from misspec.progress import Progress, reported
from misspec.simulation import late, simulate


def compare(
    policies: Mapping[str, Callable[[Problem], Policy]],
    problems: Problem | Iterable[Problem],
    n: int,
    seeds: int | Iterable[int] = 5,
    progress: Progress | bool | None = None,
    *,
    cores: int | None = None,
) -> pl.DataFrame:
    """One row per problem, policy and seed; every policy meets the same noise.

    policies   by name, a function that makes a fresh policy for a problem, as in
               {"EC": lambda p: ECGPUCB(p.domain, p.model, epsilon=p.epsilon)}
    seeds      of the worlds: a number of them, or the seeds themselves
    progress   as in `ms.optimize`; a function is called as progress(runs done, of) after every run
    cores      processes; all cores by default, 1 for this process alone. The same numbers either way

    Columns: problem (numbered where several have the same name), epsilon, policy, seed, regret and in_class_regret (per
    round), late (regret per round over the last tenth), recommended_regret, and curve, the regret of every round.
    `compare(…).group_by("policy").agg(pl.col("regret").mean())` is a table of means.
    """
    chosen = [problems] if isinstance(problems, Problem) else listed("problems", problems)
    several = not isinstance(seeds, int | np.integer)
    worlds = listed("seeds", seeds) if several else range(whole("seeds", seeds, at_least=1, at_most=MOST_AT_ONCE))
    worlds = [seeded(seed) for seed in worlds]
    named = policies.items() if isinstance(policies, Mapping) else ()
    if not named or not all(isinstance(name, str) and callable(make) for name, make in named):
        raise InvalidInput("policies must be names with functions of a problem, as in {'GP': lambda p: GPUCB(…)}")
    if not chosen or not all(isinstance(problem, Problem) for problem in chosen) or not worlds:
        raise InvalidInput("problems must be Problems, at least one, and there must be at least one seed")
    T = whole("n", n, at_least=1)
    names = [problem.name for problem in chosen]
    labels = [f"{name} #{names[:i].count(name) + 1}" if names.count(name) > 1 else name for i, name in enumerate(names)]
    labelled = zip(labels, chosen, strict=True)
    todo = [(*world, *policy, seed) for world, policy, seed in itertools.product(labelled, named, worlds)]
    for _, problem, name, make, seed in todo:
        if seed == worlds[0]:
            _made(name, make, problem)  # so that errors come before the first run
    jobs = -1 if cores is None else whole("cores", cores, at_least=1)
    tasks = (delayed(_row)(i, T, *run) for i, run in enumerate(todo))  # functions of any kind, even lambdas
    rows: dict[int, dict[str, Any]] = {}
    with reported(progress, "runs") as report:
        for i, row in Parallel(jobs if len(todo) > 1 else 1, return_as="generator_unordered")(tasks):
            rows[i] = row
            if report is not None:
                report(len(rows), len(todo))
    return pl.DataFrame([rows[i] for i in range(len(todo))], schema_overrides={"curve": pl.List(pl.Float64)})


def _row(i: int, T: int, label: str, problem: Problem, name: str, make: Any, seed: int) -> tuple[int, dict[str, Any]]:
    trace = simulate(_made(name, make, problem), problem, T, seed, progress=False)
    return i, {
        "problem": label,
        "epsilon": problem.epsilon,
        "policy": name,
        "seed": seed,
        "regret": float(trace.regret.mean()),
        "in_class_regret": float(trace.in_class_regret.mean()),
        "late": late(trace.regret),
        "recommended_regret": trace.recommended_regret,
        "curve": trace.regret.tolist(),
    }


def _made(name: str, make: Callable[[Problem], Policy], problem: Problem) -> Policy:
    try:
        return make(problem)
    except TypeError as error:
        raise InvalidInput(f"policies[{shown(name)}] must make a policy from a problem alone: {error}") from error
