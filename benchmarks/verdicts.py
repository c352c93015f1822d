"""Whether "worth going on" holds: chances that ms.Auto gives, in bins, against what happened.

    MISSPEC_DATA=… python benchmarks/verdicts.py [--seeds 4] [--part fitted | unseen | fresh] [--picture FILE.png]
    python benchmarks/verdicts.py --fit          # the constants of `gain.calibrated`, from the fitted problems

Auto plays 40 evaluations. After 8, 12, … 30 of them it says how likely it is that what is recommended becomes better by
at least x within ten more, for x of ½, 1, 2 and 4 times the least gain that is worth it. Ten evaluations later the
truth says whether it did: f at the point that is recommended then against f at the one before, noise left out. The
problems of `FITTED` chose the constants, by what is said of each where the others choose (`--fit`); those of `UNSEEN`
chose none, but were looked at more than once; those of `FRESH` were looked at once, when everything was chosen. Runs
are kept in `.cache` under a digest of the code that chances rest on.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is imported

import argparse
import concurrent.futures
import csv
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import record
import tasks
from record import Figure, Record

import misspec as ms
from misspec.policies.auto import gain, learnt

CHECKS, AHEAD = (8, 10, 12, 15, 18, 21, 25, 30), 10
MULTIPLES = (0.5, 1.0, 2.0, 4.0)
LEVELS = np.linspace(0.0, 1.0, 401)  # of the quantiles that are kept of a check's gains
BINS = np.linspace(0.0, 1.0, 11)
ENOUGH = 40  # chances in a bin from which it is judged
TARGET = 0.15


class Problem:
    """Results and truth at points or candidates; everything as the user has it."""

    def __init__(self, name: str, domain: Any, values: Any, noise: Any, *, minimize: bool = False) -> None:
        self.name, self.domain, self.values, self.noise, self.minimize = name, domain, values, noise, minimize

    def truth(self, at: Any) -> float:
        found = float(self.values[at.index] if at.index is not None else self.values(at.x[None, :])[0])
        return -found if self.minimize else found

    def result(self, query: Any, rng: np.random.Generator) -> float:
        if isinstance(self.noise, list):  # recorded replicates
            return float(rng.choice(self.noise[query.index]))
        f = float(self.values[query.index] if query.index is not None else self.values(query.x[None, :])[0])
        return f + self.noise * rng.standard_normal()


def _task(task: tasks.Task) -> Problem:
    if task.columns is None:
        return Problem(task.name, task.domain, task.values, float(task.noise))
    values = task.values(np.arange(len(task.rows)))
    return Problem(task.name, task.domain, values, list(values[:, None] + task.noise))  # recorded replicates


def _skewed(name: str, d: int, power: float, noise: float) -> Problem:
    """A loss with a long tail: most of the box is orders of magnitude worse than its best part."""

    def f(X: np.ndarray) -> np.ndarray:
        return np.expm1(power * ((X - 0.35) ** 2 * np.linspace(2.0, 0.5, X.shape[1])).sum(axis=1))

    return Problem(name, ms.Box([(0.0, 1.0)] * d), f, noise, minimize=True)


def _rosenbrock() -> Problem:
    def f(X: np.ndarray) -> np.ndarray:
        return (100 * (X[:, 1:] - X[:, :-1] ** 2) ** 2 + (1 - X[:, :-1]) ** 2).sum(axis=1)

    return Problem("Rosenbrock 3, as it is", ms.Box([(-2.0, 2.0)] * 3), f, 2.0, minimize=True)


def _table(file: str, target: str, *, minimize: bool, noise: float | None = None) -> Problem | None:
    """noise: a share of the range, where the table has no replicates."""
    path = Path(os.environ.get("MISSPEC_DATA", "/nowhere")) / file
    if not path.exists():
        return None
    with path.open(newline="", encoding="utf-8-sig") as lines:
        rows = list(csv.DictReader(lines))
    names = [name for name in rows[0] if name != target]
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(float(row[target]))

    def cell(text: str) -> Any:
        try:
            return float(text)
        except ValueError:
            return text

    columns = {name: [cell(key[i]) for key in groups] for i, name in enumerate(names)}
    columns = {name: column for name, column in columns.items() if len(set(column)) > 1}
    values = np.array([np.mean(each) for each in groups.values()])
    drawn: Any = list(groups.values()) if noise is None else noise * float(np.ptp(values))
    return Problem(path.stem, ms.Finite.from_table(columns), values, drawn, minimize=minimize)


FITTED = {
    "Branin": lambda: _task(tasks.branin()),
    "Hartmann 6": lambda: _task(tasks.hartmann()),
    "Ackley 5": lambda: _task(tasks.ackley()),
    "needle": lambda: _task(tasks.needle()),
    "ripple": lambda: _task(tasks.ripple()),
    "skewed 2": lambda: _skewed("skewed 2", 2, 6.0, 0.05),
    "skewed 5": lambda: _skewed("skewed 5", 5, 3.0, 0.2),
    "direct_arylation": lambda: _table("direct_arylation.csv", "yield", minimize=False, noise=0.05),
    "crossed_barrel": lambda: _table("crossed_barrel.csv", "toughness", minimize=False),
    "agnp": lambda: _table("agnp.csv", "loss", minimize=True),
    "llvm": lambda: _table("llvm.csv", "PERF-", minimize=True, noise=0.02),
    "storm": lambda: _table("storm.csv", "Throughput-", minimize=True, noise=0.02),
    "SVM on digits": lambda: _task(tasks.svm_digits()),
    "forest": lambda: _task(tasks.forest()),
    "network": lambda: _task(tasks.network()),
    "regression": lambda: _task(tasks.regression()),
    "forty peaks": lambda: _task(tasks.gallagher()),
    "cosine mixture 8": lambda: _task(tasks.cosines()),
}
UNSEEN = {
    "Levy 4": lambda: _task(tasks.levy()),
    "Rosenbrock 3, as it is": _rosenbrock,
    "skewed 3": lambda: _skewed("skewed 3", 3, 8.0, 0.1),
    "p3ht": lambda: _table("p3ht.csv", "Conductivity (measured) (S/cm)", minimize=False),
    "perovskite": lambda: _table("perovskite.csv", "Instability index", minimize=True),
    "apache": lambda: _table("apache.csv", "Performance-", minimize=True, noise=0.02),
}
FRESH = {
    "logistic": lambda: _task(tasks.logistic()),
    "tree": lambda: _task(tasks.tree()),
    "neighbours": lambda: _task(tasks.neighbours()),
    "steps 3": lambda: _task(tasks.steps()),
    "ridge 4": lambda: _task(tasks.ridge()),
    "Griewank 3": lambda: _task(tasks.griewank()),
}


def play(name: str, seed: int) -> list[dict[str, Any]] | None:
    """One run: what is said at each check, and what became of it."""
    problem = {**FITTED, **UNSEEN, **FRESH}[name]()
    if problem is None:
        return None
    policy, rng = ms.Auto(problem.domain, minimize=problem.minimize, seed=seed), np.random.default_rng([seed, 5])
    truths: dict[int, float] = {}
    checks: list[dict[str, Any]] = []
    for t in range(1, max(CHECKS) + AHEAD + 1):
        query = policy.ask()
        policy.tell(query, problem.result(query, rng))
        if t in CHECKS or t - AHEAD in CHECKS:
            policy.refresh()
            truths[t] = problem.truth(policy.recommend())
        if t in CHECKS:
            y = policy.observations.y
            spread = learnt.spread_of(y)
            other = learnt.settled(policy)
            checks.append({
                "problem": name, "seed": seed, "t": t, "spread": spread,
                "unit": learnt.worth(other.noise_level, spread), "skew": learnt.skew_of(policy),
                "gains": np.quantile(learnt.gains(policy, AHEAD), LEVELS).tolist(),
            })  # fmt: skip
    for each in checks:
        each["gained"] = truths[each["t"] + AHEAD] - truths[each["t"]]
    return checks


def digest() -> str:
    folder = Path(ms.__file__).parent
    return record.digest([*(folder / "policies" / "auto").glob("*.py"), folder / "hyperparameters.py", Path(__file__)])


def played(names: list[str], seeds: int, workers: int, kept: str | None) -> list[dict[str, Any]]:
    """All checks; runs that are kept are not played again. kept: the digest of others, to read what they kept."""
    tasks.CACHE.mkdir(exist_ok=True)
    (tasks.CACHE / ".gitignore").write_text("*\n")
    folder = tasks.CACHE / f"verdicts-{kept or digest()}"
    folder.mkdir(exist_ok=True)
    every = [(name, seed) for seed in range(seeds) for name in names]
    missing = [each for each in every if not _path(folder, *each).exists()]
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        waiting = {pool.submit(play, *each): each for each in missing}
        for i, done in enumerate(concurrent.futures.as_completed(waiting), 1):
            _path(folder, *waiting[done]).write_text(json.dumps(done.result()))
            print(f"{i} of {len(missing)}: {waiting[done]}", flush=True)
    found = [json.loads(_path(folder, *each).read_text()) for each in every if _path(folder, *each).exists()]
    return [check for run in found if run for check in run]


def _path(folder: Path, name: str, seed: int) -> Path:
    return folder / f"{name.replace(' ', '_')}-{seed}.json"


def raw(check: dict[str, Any], x: float) -> float:
    """P(gain ≥ x) by the model, from its quantiles."""
    return float(1.0 - np.searchsorted(check["gains"], x) / len(LEVELS))


def alone(p: float, skew: float) -> float:  # noqa: ARG001  # as `gain.calibrated` is called
    """The model's chance as it is."""
    return p


def pairs(checks: list[dict[str, Any]], calibrated: Any) -> list[tuple[float, bool, float, dict[str, Any]]]:
    """Of each check and multiple: the chance that was given, whether it came, the multiple, the check."""
    found = []
    for each in checks:
        for m in MULTIPLES:
            x = m * each["unit"]
            found.append((calibrated(raw(each, x), each["skew"]), each["gained"] >= x, m, each))
    return found


def bins(said: np.ndarray, came: np.ndarray) -> list[tuple[float, float, int]]:
    """Mean chance, share that came, and count, by bin."""
    at = np.clip(np.digitize(said, BINS) - 1, 0, len(BINS) - 2)
    return [(float(said[at == i].mean()), float(came[at == i].mean()), int((at == i).sum())) for i in np.unique(at)]


def figures_of(part: str, rows: list[tuple[float, float, int]], brier: float) -> dict[str, Figure]:
    """How far off the bins are that hold enough: the worst, and how many by more than the target."""
    off = [abs(said - came) for said, came, n in rows if n >= ENOUGH]
    figures = {"bins": Figure(sum(each <= TARGET for each in off), of=len(off)), "brier": Figure(brier, form=".3f")}
    if off:
        figures["worst"] = Figure(max(off))
    return {f"{part}.{key}": figure for key, figure in figures.items()}


def table_of(title: str, rows: list[tuple[float, float, int]]) -> None:
    print(f"\n{title}\n{'said':>8}{'came':>8}{'off':>8}{'chances':>9}")
    for said, came, n in rows:
        flag = "  off by more than 0.15" if n >= ENOUGH and abs(said - came) > TARGET else ""
        print(f"{said:8.2f}{came:8.2f}{said - came:+8.2f}{n:9d}{flag}")


def fitted(checks: list[dict[str, Any]]) -> list[float]:
    """OFFSET, SLOPE and SKEWED of `gain.calibrated`, by maximum likelihood given its HIGHEST."""
    from scipy.optimize import minimize
    from scipy.special import expit

    some = [each for each in pairs(checks, alone) if each[0] > 0]
    p = np.clip([each[0] for each in some], gain.LEAST, 1 - gain.LEAST)
    X = np.column_stack([np.ones(len(p)), np.log(p / (1 - p)), [each[3]["skew"] for each in some]])
    came = np.array([each[1] for each in some], dtype=float)

    def loss(w: np.ndarray) -> float:
        found = np.clip(gain.HIGHEST * expit(X @ w), 1e-9, 1 - 1e-9)
        return float(-np.mean(came * np.log(found) + (1 - came) * np.log(1 - found)))

    return list(minimize(loss, [0.0, 1.0, 0.0], method="BFGS").x)


def left_out(checks: list[dict[str, Any]]) -> None:
    """What is said of each fitted problem by the constants that the others choose, which HIGHEST was chosen by."""
    said, came = [], []
    chosen = gain.OFFSET, gain.SLOPE, gain.SKEWED
    for name in FITTED:
        gain.OFFSET, gain.SLOPE, gain.SKEWED = fitted([each for each in checks if each["problem"] != name])
        for each in pairs([each for each in checks if each["problem"] == name], gain.calibrated):
            said.append(each[0])
            came.append(each[1])
    gain.OFFSET, gain.SLOPE, gain.SKEWED = chosen
    p = np.clip(said, 1e-3, 1 - 1e-3)
    loss = -np.mean(np.log(np.where(came, p, 1 - p)))
    table_of(f"each by the constants of the others; logarithmic loss {loss:.4f}", bins(np.array(said), np.array(came)))


LABELS = {
    "fitted problems, as said": "18 problems that chose the constants",
    "fresh problems, as said": "6 that were played once, at the end",
    "unseen problems, as said": "6 others that chose none",
    "fresh problems, by the model alone": "the 6 played once, by the model alone",
}


def picture(parts: dict[str, list[tuple[float, float, int]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="#555555", linewidth=0.8, label="as said")
    axes.fill_between(
        [0, 1],
        [-TARGET, 1 - TARGET],
        [TARGET, 1 + TARGET],
        color="#555555",
        alpha=0.08,
        linewidth=0,
        label="off by at most 0.15",
    )
    for (label, rows), colour, marker in zip(
        parts.items(), ("#0072b2", "#009e73", "#d55e00", "#999999"), "oDs^", strict=False
    ):
        some = [each for each in rows if each[2] >= ENOUGH]
        said, came, counts = (np.array(each) for each in zip(*some, strict=True))
        error = np.sqrt(came * (1 - came) / (counts / len(MULTIPLES)))  # chances of one check go together
        axes.errorbar(said, came, error, fmt=marker, color=colour, markersize=5, linewidth=0.9, label=LABELS[label])
    axes.set(xlabel="chance of a gain within ten more, as said", ylabel="share of the cases in which it came",
             xlim=(0, 1), ylim=(0, 1), aspect="equal")  # fmt: skip
    axes.legend(frameon=False, loc="upper left", fontsize=8)
    figure.savefig(path, dpi=150)
    print(f"picture: {path}")


def flips(checks: list[dict[str, Any]], calibrated: Any) -> None:
    """How often the verdict jumps between yes and no from one check to the next, and back."""
    runs: dict[tuple[str, int], list[float]] = {}
    for each in sorted(checks, key=lambda each: each["t"]):
        runs.setdefault((each["problem"], each["seed"]), []).append(calibrated(raw(each, each["unit"]), each["skew"]))
    words = [itertools.pairwise([learnt.verdict(p) for p in run]) for run in runs.values()]
    steps = [pair for run in words for pair in run]
    ends = {learnt.verdict(0.0), learnt.verdict(1.0)}
    changes, jumps = sum(a != b for a, b in steps), sum({a, b} == ends for a, b in steps)
    print(
        f"\nverdicts over {len(steps)} steps between checks: {changes} change, {jumps} jump from one end to the other"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--part", choices=["fitted", "unseen", "fresh", "all"], default="all")
    parser.add_argument("--kept", help="digest of runs that are kept, to read them with other code")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--quick", action="store_true", help="two problems, one seed, to see that it runs")
    options = parser.parse_args()
    parts = {"fitted": FITTED, "unseen": UNSEEN, "fresh": FRESH}
    if options.quick:
        parts, options.seeds = {"fitted": dict(list(FITTED.items())[:2])}, 1
    whole = options.part == "all" and not (options.fit or options.kept or options.quick)
    kept = Record("verdicts", protocol=f"{options.seeds} seeds", quick=not whole)
    drawn = {}
    chosen = ["fitted"] if options.fit else list(parts) if options.part == "all" else [options.part]
    for part in chosen:
        checks = played(list(parts[part]), options.seeds, options.workers, options.kept)
        if options.fit:
            print("OFFSET, SLOPE, SKEWED:", *(f"{each:.3f}" for each in fitted(checks)))
            left_out(checks)
        for how, calibrated in (("by the model alone", alone), ("as said", gain.calibrated)):
            some = pairs(checks, calibrated)
            said, came = (np.array([each[i] for each in some], dtype=float) for i in (0, 1))
            found = bins(said, came)
            table_of(f"{part} problems, {how}; Brier {np.mean((said - came) ** 2):.3f}", found)
            drawn[f"{part} problems, {how}"] = found
            if calibrated is gain.calibrated:
                kept.put(part, figures_of(part, found, float(np.mean((said - came) ** 2))))
        for name in parts[part]:
            here = [each for each in pairs(checks, gain.calibrated) if each[3]["problem"] == name]
            if here:
                said, came = (float(np.mean([each[i] for each in here])) for i in (0, 1))
                before = float(np.mean([raw(each[3], each[2] * each[3]["unit"]) for each in here]))
                print(f"{name:24s} model {before:.2f}  said {said:.2f}  came {came:.2f}  ({len(here)})")
        flips(checks, gain.calibrated)
    if options.picture is not None:
        picture({key: drawn[key] for key in LABELS if key in drawn}, options.picture)


if __name__ == "__main__":
    main()
