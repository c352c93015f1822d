"""Numbers of a report: one row per policy on a problem, one row per run, curves over the seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import t as student

from misspec.errors import Array, InvalidInput, alike, shown
from misspec.experiments.store import Finished, Results
from misspec.simulation import late

Group = dict[str, list[Finished]]  # a problem at an ε: the runs of each policy, seeds in order
Groups = dict[float, Group]  # by ε, of one problem
DIFFERENCES = ("difference", "difference_low", "difference_high")
LEVEL = 0.95  # of intervals over the seeds
CENTRAL = (0.1, 0.9)  # quantiles over the seeds that are drawn as the spread


class MeanInterval(NamedTuple):
    """A mean over the seeds and its interval of Student's t; no ends of a single seed."""

    mean: float
    low: float | None
    high: float | None


class Curve(NamedTuple):
    """Mean over the seeds, and the range of the central 80 % of them."""

    x: Array
    mean: Array
    low: Array
    high: Array


def by_problem(results: Results) -> dict[str, Groups]:
    """Groups of runs, problems in order."""
    found: dict[str, Groups] = {}
    for (problem, epsilon), group in results.groups().items():
        found.setdefault(problem, {})[epsilon] = group
    return found


def mean_interval(values: Any) -> MeanInterval:
    """The mean of independent numbers, with the ends of its interval."""
    mean, n = float(np.mean(values)), len(values)
    if n < 2:
        return MeanInterval(mean, None, None)
    half = float(student.ppf(0.5 + 0.5 * LEVEL, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return MeanInterval(mean, mean - half, mean + half)


def paired(runs: list[Finished], others: list[Finished]) -> MeanInterval | None:
    """By how much more regret per round one policy has than another in the same worlds: over the seeds that both have,
    the mean difference and its interval (paired t). None where they share none."""
    by_seed = {each.run.seed: float(each.regret.mean()) for each in others}
    found = [float(each.regret.mean()) - by_seed[each.run.seed] for each in runs if each.run.seed in by_seed]
    return mean_interval(found) if found else None


def reference(group: Group, against: str | None) -> str:
    """The policy that the others of a group are compared with: the one named, or the one with the least regret."""
    means = {policy: float(np.mean([each.regret.mean() for each in runs])) for policy, runs in group.items()}
    return min(means, key=lambda policy: means[policy]) if against is None else against


def summary(results: Results, against: str | None = None) -> pl.DataFrame:
    """By problem, ε and policy: means over the seeds. against: the policy that others are compared with; by default the
    one with the least regret, the best.

    regret             true regret per round
    error              its standard error over the seeds
    late               true regret per round over the last tenth
    recommended_regret regret of what is recommended at the end
    covered            share of the runs whose band held all of f* at every look
    claims             whether they are meant to, where the truth lies within the policy's own ε of the model's class
    proved             the largest ε that a run's conflicts prove
    seconds            of a run
    against            the policy that this one is compared with; null for that one
    difference         how much more regret per round, over the same seeds
    difference_low     the ends of its interval of 95 %, by Student's t for paired differences
    difference_high
    """
    known = [each.name for each in results.experiment.policies]
    if against is not None and against not in known:
        begun = [f"; did you mean {shown(name)}?" for name in known if name.lower().startswith(against.lower())]
        meant = begun[0] if len(begun) == 1 else alike(against, known)
        names = ", ".join(map(shown, known))
        raise InvalidInput(f"the experiment has no policy {shown(against)} to compare with{meant} (known: {names})")
    rows = []
    for (problem, epsilon), group in results.groups().items():
        other = reference(group, against)
        for policy, runs in group.items():
            apart = None if policy == other else paired(runs, group.get(other, []))
            regret = np.array([each.regret.mean() for each in runs])
            rows.append({
                "problem": problem,
                "epsilon": epsilon,
                "policy": policy,
                "seeds": len(runs),
                "regret": float(regret.mean()),
                "error": float(regret.std(ddof=1) / np.sqrt(len(runs))) if len(runs) > 1 else None,
                "late": float(np.mean([late(each.regret) for each in runs])),
                "recommended_regret": float(np.mean([each.facts["recommended_regret"] for each in runs])),
                "covered": float(np.mean([each.looks["covered"].min() == 1.0 for each in runs])),
                "claims": all(each.facts["claims"] for each in runs),
                "proved": max(each.facts["proved_epsilon"] for each in runs),
                "seconds": float(np.mean([each.facts["seconds"] for each in runs])),
                "against": None if apart is None else other,
                "difference": apart and apart.mean,
                "difference_low": apart and apart.low,
                "difference_high": apart and apart.high,
            })  # fmt: skip
    types = {"against": pl.String} | dict.fromkeys(DIFFERENCES, pl.Float64)
    return pl.DataFrame(rows, infer_schema_length=None, schema_overrides=types)


def trusting(runs: Sequence[Finished]) -> str:
    """The names of policies whose bands take the model as right: with a misfit these need not hold f*."""
    wary = {each.run.policy for each in runs if each.facts.get("allows") != 0.0 or not each.facts["claims"]}
    return ", ".join(dict.fromkeys(each.run.policy for each in runs if each.run.policy not in wary))


def difference(row: Mapping[str, Any], digits: int = 4) -> str:
    """The comparison in a row of the summary as text: "–" for what all are compared with."""
    mean, _, high = (row[name] for name in DIFFERENCES)
    if mean is None:
        return "–"
    return f"{mean:+.{digits}f}" + ("" if high is None else f" ± {high - mean:.{digits}f}")


def by_run(results: Results) -> pl.DataFrame:
    """One row per run, with the name of its file."""
    return pl.DataFrame(
        [
            {
                "problem": each.run.problem,
                "epsilon": each.epsilon,
                "policy": each.run.policy,
                "seed": each.run.seed,
                "rounds": len(each.regret),
                "cumulative_regret": float(each.regret.sum()),
                "cumulative_in_class_regret": float(each.in_class_regret.sum()),
                "recommended_regret": each.facts["recommended_regret"],
                "seconds": each.facts["seconds"],
                "file": f"runs/{each.path.name}",
            }
            for each in results.runs
        ],
        infer_schema_length=None,
    )


def best_first(each: Finished) -> NDArray[np.intp]:
    """The candidates of a pictured run, from the best truth to the worst."""
    f = np.array(each.facts["truth"])
    return np.argsort(f if each.minimize else -f, kind="stable")


def shares_active(each: Finished) -> list[float]:
    """Active candidates of a phased policy, before the first episode and after each."""
    return [1.0, *(left / each.facts["candidates"] for _, _, left in each.facts["episodes"])]


def thinned(horizon: int, most: int = 240) -> NDArray[np.intp]:
    """Rounds to draw: dense at the start, where a logarithmic axis shows them, and evenly over the rest."""
    if horizon <= most:
        return np.arange(1, horizon + 1)
    both = [np.geomspace(1, horizon, most // 2), np.linspace(1, horizon, most // 2)]
    return np.unique(np.concatenate(both).round().astype(np.intp))


def regret_curve(runs: list[Finished]) -> Curve:
    """Cumulative true regret by round."""
    x = thinned(min(len(each.regret) for each in runs))
    return over_seeds(x, np.array([np.cumsum(each.regret)[x - 1] for each in runs]))


def share_curve(runs: list[Finished]) -> Curve:
    """Share of the rounds so far in which the best action was played, by round."""
    T = min(len(each.regret) for each in runs)
    x = thinned(T)
    best = np.array([each.regret[:T] <= 0.0 for each in runs])
    return over_seeds(x, np.cumsum(best, axis=1)[:, x - 1] / x)


def coverage_curve(runs: list[Finished]) -> Curve:
    """Share of the candidates whose f* lies in the band, by round."""
    x = runs[0].looks["round"].to_numpy()
    return over_seeds(x, np.array([each.looks["covered"].to_numpy() for each in runs]))


def epsilon_curve(groups: Groups, policy: str) -> Curve | None:
    """True regret per round against ε; None if no run of the policy is finished."""
    parts = [
        over_seeds(np.array([epsilon]), np.array([[each.regret.mean()] for each in group[policy]]))
        for epsilon, group in sorted(groups.items())
        if policy in group
    ]
    return Curve(*map(np.concatenate, zip(*parts, strict=True))) if parts else None


def over_seeds(x: NDArray[Any], values: Array) -> Curve:
    """Curves in the rows of values, one per seed."""
    low, high = np.quantile(values, CENTRAL, axis=0)
    return Curve(np.asarray(x, dtype=np.float64), values.mean(axis=0), low, high)
