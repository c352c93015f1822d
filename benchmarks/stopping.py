"""When to stop: evaluations that `ms.until` saves against the value that it gives up, over the practical suite.

    MISSPEC_DATA=… python benchmarks/stopping.py --play [--seeds 2] [--part choosing | checking | once] [--runs FOLDER]
    python benchmarks/stopping.py [--part …] [--runs FOLDER] [--picture FILE.png]
    MISSPEC_DATA=… python benchmarks/stopping.py --bench [--quick]           # both, and results/stopping.json

Auto plays 100 evaluations of each problem of `practical.py`; after every fifth it is noted how likely the model holds
a gain of several sizes within five, ten and twenty more. So every rule is judged from the same runs: where it stops,
and what it gives up there, which is the regret of the best point evaluated so far less that at the end, a share of the
range. A run that a rule does not stop saves nothing and gives up nothing. Runs are kept in `.cache` under a digest of
the code, or in --runs. The default rule was chosen on the part "choosing".
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is imported

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import practical
import tasks
from record import Figure, Record

import misspec as ms
from misspec.evaluation.stopping import CHANCE, EVERY, FEWEST
from misspec.evaluation.stopping import WITHIN as WITHIN_DEFAULT
from misspec.policies.auto import learnt
from misspec.policies.auto.gain import calibrated

ROUNDS = 100
GIVEN = 0.01  # of the range, that may be given up in the mean
LIMITS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2)
MARKED = (0.01, 0.05, 0.1, 0.2)  # that the picture names
LABELS = {"choosing": "which chose the rule", "checking and once": "looked at once, when it was chosen"}
WITHIN = (5, 10, 20)
WORTH = (0.25, 0.5, 1.0, 2.0, 4.0)  # multiples of the gain that is worth it
SPREADS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # gains as shares of the spread of the results


def played(task: tasks.Task, seed: int) -> dict[str, Any]:
    """One run: the regret of each evaluation, and what could be said at each check."""
    policy, draws = ms.Auto(task.domain, seed=seed), task.draws(seed, ROUNDS)

    def point(answer: Any) -> Any:
        return answer.index if task.listed else answer.x if task.bounds else answer.params

    regrets: list[float] = []
    checks: list[dict[str, Any]] = []
    while len(regrets) < ROUNDS:
        query = policy.ask()
        x = point(query)
        y = task.observed(x, draws[len(regrets)])
        if math.isfinite(y):
            policy.tell(query, y)
        else:
            policy.drop(query)
        regrets.append(task.regret(x))
        if len(regrets) % EVERY == 0 and learnt.modelled(policy):
            start = time.perf_counter()
            spread, other = learnt.spread_of(learnt.believed(policy)), learnt.settled(policy)
            worth = learnt.worth(other.noise_level, spread)
            said: dict[str, Any] = {"n": len(regrets), "spread": spread, "worth": worth, "skew": learnt.skew_of(policy)}
            seconds = time.perf_counter() - start
            for n in WITHIN:
                start = time.perf_counter()
                gains = learnt.gains(policy, n)
                if n == 10:
                    said["seconds"] = round(seconds + time.perf_counter() - start, 3)
                said[f"worth {n}"] = [float(np.mean(gains >= m * worth)) for m in WORTH]
                said[f"spread {n}"] = [float(np.mean(gains >= m * spread)) for m in SPREADS]
            said["recommended"] = task.regret(point(other.recommend()))
            checks.append(said)
    return {"problem": task.name, "seed": seed, "span": task.span, "regrets": regrets, "checks": checks}


def play(folder: Path, part: str, seeds: int, only: list[str] | None, makers: Sequence[Any] = ()) -> None:
    """The runs that are missing, seed by seed."""
    from joblib import Parallel, delayed

    folder.mkdir(exist_ok=True, parents=True)
    chosen = practical.made(only, part, makers)
    jobs = [(task.name, seed) for seed in range(seeds) for task in chosen]
    paths = {(name, seed): folder / f"{name.replace(' ', '_')}-{seed}.json" for name, seed in jobs}
    missing = [key for key, path in paths.items() if not path.exists()]
    runs = Parallel(n_jobs=os.cpu_count(), return_as="generator_unordered")(
        delayed(_played)(practical.MAKERS[name], seed) for name, seed in missing
    )
    for run in runs:
        paths[run["problem"], run["seed"]].write_text(json.dumps(run))
        cost = np.mean([each["seconds"] for each in run["checks"]])
        print(f"{run['problem']}, seed {run['seed']}: {cost:.2f} s per check", flush=True)


def _played(make: Any, seed: int) -> dict[str, Any]:
    """In a worker: tasks hold functions that cannot be sent, so they are made there."""
    return played(make(), seed)


def stopped(run: dict[str, Any], rounds: int, limit: float, *, of: str = "worth", j: int = 2, times: int = 2,
            within: int = WITHIN_DEFAULT) -> int:  # fmt: skip
    """Evaluations after which a rule stops: the chance of the j-th gain is at most `limit` so many times in a row."""
    row = 0
    for check in run["checks"]:
        small = calibrated(check[f"{of} {within}"][j], check["skew"]) <= limit
        row = row + 1 if small else 0
        if row >= times and FEWEST <= check["n"] < rounds:
            return int(check["n"])
    return rounds


def judged(runs: list[dict[str, Any]], rounds: int, limit: float, **rule: Any) -> dict[str, tuple[float, float, int]]:
    """By problem: the share of the evaluations that is saved, the value given up, and the number of runs."""
    found: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        n = stopped(run, rounds, limit, **rule)
        given = min(run["regrets"][:n]) - min(run["regrets"][:rounds])
        found.setdefault(run["problem"], []).append((1.0 - n / rounds, given))
    return {name: (*np.mean(each, axis=0).tolist(), len(each)) for name, each in found.items()}


def means(found: dict[str, tuple[float, float, int]]) -> tuple[float, float, float]:
    """Saved and given up over the problems, and one standard error of what is given up."""
    saved, given, _ = (np.array(each) for each in zip(*found.values(), strict=True))
    return float(saved.mean()), float(given.mean()), float(given.std(ddof=1) / math.sqrt(len(given)))


RULES: dict[str, dict[str, Any]] = {
    "worth it, twice": {},
    "worth it, once": {"times": 1},
    "worth it, three times": {"times": 3},
    "half of it, twice": {"j": 1},
    "twice as much, twice": {"j": 3},
    "worth it within 20, twice": {"within": 20},
    "2 % of the spread, twice": {"of": "spread"},
}


def figures_of(parts: dict[str, list[dict[str, Any]]]) -> dict[str, Figure]:
    """What the default rule saves and gives up, both in % (± one standard error over problems)."""
    figures = {}
    for part, runs in parts.items():
        for rounds in (ROUNDS, 60):
            saved, given, error = means(judged(runs, rounds, CHANCE))
            key = f"{part.split()[0]}.{rounds}"
            figures[f"{key}.saved"] = Figure(100 * saved, form=".0f")
            figures[f"{key}.given"] = Figure(100 * given, error=None if math.isnan(error) else 100 * error, form=".1f")
    return figures


def tables_of(parts: dict[str, list[dict[str, Any]]]) -> None:
    for part, runs in parts.items():
        for rounds in (ROUNDS, 60):
            print(f"\n{part}, {len(runs)} runs, T = {rounds}: saved, given up ± one standard error over problems")
            print(f"{'limit of the chance':28}" + "".join(f"{limit:>22}" for limit in LIMITS))
            for name, rule in RULES.items():
                cells = [means(judged(runs, rounds, limit, **rule)) for limit in LIMITS]
                print(f"{name:28}" + "".join(f"{s:9.2f} {g:.4f} ±{e:.4f}" for s, g, e in cells))
        print(f"\n{part}, T = {ROUNDS}, at {CHANCE}")
        for name, (saved, given, n) in judged(runs, ROUNDS, CHANCE).items():
            print(f"  {name:24} saved {saved:.2f}, given up {given:.4f} ({n} runs)")


def picture(parts: dict[str, list[dict[str, Any]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    for axes, rounds in zip(figure.subplots(1, 2, sharey=True), (ROUNDS, 60), strict=True):
        axes.axhline(GIVEN, color="#555555", linewidth=0.8, linestyle=":", label=f"{GIVEN} of the range")
        for (part, runs), colour, marker in zip(parts.items(), ("#0072b2", "#d55e00", "#009e73"), "os^", strict=False):
            saved, given, errors = zip(*(means(judged(runs, rounds, limit)) for limit in LIMITS), strict=True)
            axes.errorbar(
                saved, given, errors, color=colour, marker=marker, markersize=4, linewidth=1.1, elinewidth=0.6,
                label=f"{len({run['problem'] for run in runs})} problems, {LABELS[part]}",
            )  # fmt: skip
            for limit, x, y in zip(LIMITS, saved, given, strict=True):
                if part == "choosing" and limit in MARKED:
                    axes.annotate(
                        f"{100 * limit:g} %", (x, y), (-4, 5), textcoords="offset points", fontsize=7, ha="right"
                    )
            i = LIMITS.index(CHANCE)
            axes.plot(saved[i], given[i], marker=marker, markersize=10, color=colour, markerfacecolor="none")
        axes.set(xlabel="share of the evaluations that is saved", title=f"of {rounds} evaluations", xlim=(0, 0.8))
        axes.set_ylim(-0.002, 0.048)
    axes = figure.axes[0]
    axes.set_ylabel("value given up, share of the range")
    axes.plot([], [], "o", markersize=10, color="#555555", markerfacecolor="none", label=f"default, {100 * CHANCE:g} %")
    axes.legend(frameon=False, loc="upper left", fontsize=8)
    figure.savefig(path, dpi=150)
    print(f"picture: {path}")


def split_of(folder: Path, only: list[str] | None) -> dict[str, list[dict[str, Any]]]:
    """Runs that are kept, by whether their problem chose the rule."""
    chosen = {task.name for task in practical.made(only, "choosing")}
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    runs = [run for run in runs if only is None or run["problem"] in only]
    split = {
        "choosing": [run for run in runs if run["problem"] in chosen],
        "checking and once": [run for run in runs if run["problem"] not in chosen],
    }
    return {part: some for part, some in split.items() if some}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--play", action="store_true", help="play the runs that are missing, and stop")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--part", choices=["all", *practical.PARTS], default="all")
    parser.add_argument("--only", nargs="*", help="names of tasks")
    parser.add_argument("--runs", type=Path, default=tasks.CACHE / f"stopping-{practical.code_digest()}")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--bench", action="store_true", help="play, report, and keep the figures")
    parser.add_argument("--quick", action="store_true", help="three problems, one seed, to see that it runs")
    given = parser.parse_args()
    if given.bench:
        makers, seeds, _ = practical.QUICKLY if given.quick else ((), given.seeds, ROUNDS)
        protocol = f"{seeds} seeds, {ROUNDS} evaluations"

        def measured() -> dict[str, Figure]:
            play(given.runs, given.part, seeds, given.only, makers)
            parts = split_of(given.runs, given.only)
            tables_of(parts)
            return figures_of(parts)

        Record("stopping", protocol=protocol, quick=given.quick).measure("all", measured)
        return
    if given.play:
        play(given.runs, given.part, given.seeds, given.only)
        return
    parts = split_of(given.runs, given.only)
    parts = {part: some for part, some in parts.items() if (part == "choosing") >= (given.part == "choosing")}
    tables_of(parts)
    if given.picture is not None:
        picture(parts, given.picture)


if __name__ == "__main__":
    main()
