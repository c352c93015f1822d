"""MisspecSampler beside Optuna's own samplers, through studies: what is found in 60 and 100 trials, and how long a
suggestion takes.

    MISSPEC_DATA=… python benchmarks/optuna_samplers.py [--seeds 3] [--slow-seeds 3] [--only NAME …]
    python benchmarks/optuna_samplers.py --speed          # seconds per suggestion at 500 and 2,000 trials

The problems are those of `practical.py`, seen as a study sees them, and one space that is defined by run. All see the
same noise. "Missed" is what the best of the points tried lacks of the optimum, noise left out, as a share of the range;
medians over the seeds, with standard errors by 2,000 bootstrap samples. Optuna's runs are kept beside this file (TPE
and GP in `practical_peers.json`, the others in `optuna_peers.json`), ours in `.cache` under a digest of the code: a run
that was stopped continues.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is imported

import argparse
import dataclasses
import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import practical
import record
import tasks
from peers import Run
from record import Figure, Record

ROUNDS, REPORTED = 100, (60, 100)
SEEDS = 3
KEPT = Path(__file__).with_name("optuna_peers.json")
OURS = "MisspecSampler"
BEFORE = {"TPESampler": "Optuna TPE", "GPSampler": "Optuna GP"}  # as practical.py has them
SAMPLERS = (OURS, "TPESampler", "GPSampler", "CmaEsSampler", "RandomSampler")
SLOW = ("GPSampler",)
CONDITIONAL = "define by run"


@dataclasses.dataclass(frozen=True)
class Conditional:
    """A choice of three methods, each with parameters of its own, and one that all share; noise 1 % of the range."""

    name: str = CONDITIONAL
    best: float = 0.95
    span: float = 0.95
    noise: float = 0.0095

    def digest(self) -> str:
        return "1"

    def draws(self, seed: int, rounds: int) -> np.ndarray:
        return self.noise * np.random.default_rng([seed, 11]).standard_normal(rounds)

    def value(self, trial: Any) -> float:
        method = trial.suggest_categorical("method", ["svm", "forest", "neighbours"])
        shared = (trial.suggest_float("scale", 0.0, 1.0) - 0.6) ** 2
        if method == "svm":
            c, gamma = (math.log10(trial.suggest_float(n, 1e-4, 1e4, log=True)) for n in ("C", "gamma"))
            return 0.95 - 0.2 * shared - 0.75 * (1 - math.exp(-((c - 1.5) ** 2) / 4 - (gamma + 2 + 0.3 * c) ** 2 / 2))
        if method == "forest":
            depth, share = trial.suggest_int("depth", 1, 20), trial.suggest_float("features", 0.05, 1.0)
            return 0.92 - 0.2 * shared - 0.25 * math.exp(-depth / 3) - 0.15 * (share - 0.4) ** 2
        near, weights = trial.suggest_int("k", 1, 50, log=True), trial.suggest_categorical("w", ["uniform", "distance"])
        return 0.88 - 0.1 * shared - 0.04 * (math.log(near) - 1.6) ** 2 - 0.02 * (weights == "uniform")


def sampler_of(name: str, seed: int) -> Any:
    import optuna

    if name == OURS:
        from misspec.integrations.optuna import MisspecSampler

        return MisspecSampler(seed=seed)
    options = {"warn_independent_sampling": False} if name in ("CmaEsSampler", "GPSampler") else {}
    return getattr(optuna.samplers, name)(seed=seed, **options)


def play(task: Any, name: str, seed: int, rounds: int = ROUNDS) -> Run:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    study = optuna.create_study(direction="maximize", sampler=sampler_of(name, seed))
    regrets, y, seconds = [], [], []
    for draw in task.draws(seed, rounds):
        start = time.perf_counter()
        trial = study.ask()
        if isinstance(task, Conditional):
            value = task.value(trial)
            seconds.append(time.perf_counter() - start)
            regrets.append((task.best - value) / task.span)
            y.append(value + draw)
        else:
            x = task.suggested(trial)
            seconds.append(time.perf_counter() - start)
            regrets.append(task.regret(x))
            y.append(task.observed(x, draw))
        if math.isfinite(y[-1]):
            study.tell(trial, float(y[-1]))
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
    best = {str(T): regrets[int(np.nan_to_num(y[:T], nan=-np.inf).argmax())] for T in REPORTED if rounds >= T}
    return Run(regrets, best, seconds)


def code_digest() -> str:
    """Of what our runs depend on: the package, with the sampler."""
    return record.digest(record.package(without=("reports", "experiments", "cli")))


class Runs:
    """Of all samplers, wherever they are kept."""

    def __init__(self) -> None:
        tasks.CACHE.mkdir(exist_ok=True)
        (tasks.CACHE / ".gitignore").write_text("*\n")
        self.ours = practical.Store(tasks.CACHE / f"optuna-{code_digest()}.json")
        self.before, self.theirs = practical.Store(practical.KEPT), practical.Store(KEPT)

    def get(self, task: Any, name: str, seed: int) -> Run | None:
        if name == OURS:
            return self.ours.get(task, name, seed)
        found = self.theirs.get(task, name, seed)
        return found if found is not None or name not in BEFORE else self.before.get(task, BEFORE[name], seed)

    def put(self, task: Any, name: str, seed: int, run: Run) -> None:
        (self.ours if name == OURS else self.theirs).put(task, name, seed, run)


def _played(make: Any, task: str, name: str, seed: int) -> tuple[str, str, int, Run]:
    """In a worker: tasks hold functions that cannot be sent, so they are made there."""
    if task not in _MADE:
        _MADE[task] = Conditional() if make is None else make()
    return task, name, seed, play(_MADE[task], name, seed)


_MADE: dict[str, Any] = {}


def play_all(chosen: list[Any], runs: Runs, seeds: int, slow: int, workers: int) -> None:
    from joblib import Parallel, delayed

    by_name = {task.name: task for task in chosen}
    jobs = [
        (task.name, name, seed)
        for seed in range(seeds)
        for task in chosen
        for name in SAMPLERS
        if seed < (slow if name in SLOW else seeds) and runs.get(task, name, seed) is None
    ]
    start = time.perf_counter()
    played = Parallel(n_jobs=workers, return_as="generator_unordered")(
        delayed(_played)(practical.MAKERS.get(job[0]), *job) for job in jobs
    )
    for done, (task, name, seed, run) in enumerate(played):
        runs.put(by_name[task], name, seed, run)
        left = (time.perf_counter() - start) / (done + 1) * (len(jobs) - done - 1)
        print(
            f"{done + 1}/{len(jobs)} {name} on {task}, seed {seed}: {min(run.regrets):.4f} ({left:.0f} s left)",
            flush=True,
        )


def median(values: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """With its standard error."""
    picks = rng.integers(len(values), size=(2000, len(values)))
    return float(np.median(values)), float(np.median(values[picks], axis=1).std())


def report(chosen: list[Any], runs: Runs, seeds: int) -> dict[str, Figure]:
    rng, figures = np.random.default_rng(0), {}
    for T in REPORTED:
        print(f"\nT = {T}: missed of the best, median over the seeds ± standard error; s: seconds per suggestion")
        print(f"  {'':22}" + "".join(f"{name:>21}" for name in SAMPLERS))
        above, below, behind, gaps = {}, {}, {}, {}
        for task in chosen:
            line, found = f"  {task.name:22}", {}
            for name in SAMPLERS:
                some = [run for seed in range(seeds) if (run := runs.get(task, name, seed)) is not None]
                if not some:
                    line += f"{'–':>21}"
                    continue
                found[name] = median(np.array([min(run.regrets[:T]) for run in some]), rng)
                took = np.mean([run.seconds[-1] for run in some])
                line += f"{found[name][0]:>9.4f} ±{found[name][1]:.4f} {took:3.1f}s"
            print(line)
            if {OURS, "TPESampler"} <= set(found):
                (a, da), (b, db) = found[OURS], found["TPESampler"]
                above[task.name], below[task.name] = a < b, a > b + 2 * math.hypot(da, db)
            if {OURS, "GPSampler"} <= set(found):
                (a, da), (b, db) = found[OURS], found["GPSampler"]
                behind[task.name] = a > b + 2 * math.hypot(da, db)
                gaps[task.name] = a - b
        print(
            f"  against TPE: better on {sum(above.values())} of {len(above)}, "
            f"worse beyond two standard errors on {[n for n, w in below.items() if w] or 'none'}"
        )
        print(
            f"  against GPSampler: worse beyond two errors on {[n for n, w in behind.items() if w] or 'none'}; "
            f"mean difference {np.mean(list(gaps.values())):+.4f}"
        )
        apart = 100 * np.array(list(gaps.values()))
        error = float(apart.std(ddof=1) / math.sqrt(len(apart))) if len(apart) > 1 else None
        figures |= {
            f"tpe.{T}.better": Figure(sum(above.values()), of=len(above)),
            f"tpe.{T}.worse": Figure(sum(below.values()), of=len(below)),
            f"gp.{T}.worse": Figure(sum(behind.values()), of=len(behind)),
            f"gp.{T}.apart": Figure(float(apart.mean()), error=error, form="+.1f"),
        }
    return figures


# -- speed -------------------------------------------------------------------------------------------------------------


def speed() -> dict[str, Figure]:
    """A study with so many trials: the first suggestion of a new process, and the next ones."""
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    space = {
        "lr": FloatDistribution(1e-5, 1e-1, log=True), "depth": IntDistribution(1, 12),
        "booster": CategoricalDistribution(["a", "b", "c"]),
        **{name: FloatDistribution(0.0, 1.0) for name in ("u", "v", "w")},
    }  # fmt: skip

    def value(p: dict[str, Any], rng: np.random.Generator) -> float:
        wave = math.sin(5 * p["u"]) * p["v"] - (p["w"] - 0.3) ** 2
        return (
            wave
            - (math.log10(p["lr"]) + 3) ** 2
            - 0.1 * abs(p["depth"] - 6)
            - (p["booster"] == "a")
            + 0.1 * rng.normal()
        )

    figures = {}
    for n in (500, 2000):
        took: dict[str, tuple[float, float]] = {}
        for name in ("GPSampler", OURS):
            rng = np.random.default_rng(0)
            study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
            study.optimize(lambda t, rng=rng: value({k: t._suggest(k, d) for k, d in space.items()}, rng), n_trials=n)
            study.sampler = sampler_of(name, 0)
            seconds = []
            for _ in range(6):
                start = time.process_time()
                trial = study.ask(space)
                seconds.append(time.process_time() - start)
                study.tell(trial, value(trial.params, rng))
            took[name] = seconds[0], float(np.median(seconds[1:]))
            print(
                f"{n} trials, {name}: {took[name][0]:.2f} s for the first suggestion, {took[name][1]:.2f} for the next"
            )
        ratios = [a / b for a, b in zip(took[OURS], took["GPSampler"], strict=True)]
        print(f"{n} trials: ratio {ratios[0]:.2f} for the first, {ratios[1]:.2f} for the next", flush=True)
        figures |= {f"speed.{n}.first": Figure(ratios[0]), f"speed.{n}.next": Figure(ratios[1])}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three problems, one seed, to see that it runs")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--slow-seeds", type=int, default=3, help="of GPSampler")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--only", nargs="*", help="names of problems")
    parser.add_argument("--speed", action="store_true", help="time suggestions, and stop")
    given = parser.parse_args()
    if given.speed:
        speed()
        return
    makers, seeds = (practical.QUICKLY[0], 1) if given.quick else ((), given.seeds)
    chosen: list[Any] = [*practical.made(given.only, "all", makers)]
    if not given.quick and (not given.only or CONDITIONAL in given.only):
        chosen.append(Conditional())
    runs = Runs()

    def measured() -> dict[str, Figure]:
        play_all(chosen, runs, seeds, given.slow_seeds, given.jobs)
        return report(chosen, runs, seeds)

    if given.only:
        measured()  # a part of the suite is no figure of it
        return
    protocol = f"{len(chosen)} problems, {seeds} seeds, {ROUNDS} trials"
    kept = Record("optuna_samplers", protocol=protocol, quick=given.quick, packages=("optuna",))
    kept.measure("samplers", measured)
    if not given.quick:
        kept.measure("speed", speed)


if __name__ == "__main__":
    main()
