"""ms.Auto beside random search, Optuna's samplers and BoTorch, on tables, boxes and mixed spaces, without a constant.

    MISSPEC_DATA=… python benchmarks/practical.py [--quick] [--seeds 3] [--part PART] [--only NAME …]
    python benchmarks/practical.py --peers [--names "Optuna TPE" …]     # compute what is missing of the peers' runs
    python benchmarks/practical.py --settings '{"aim": "earn"}' --batch 5 --beside '{}'
    python benchmarks/practical.py --long                # seconds per round over 1,000 rounds on 2,000 candidates

Figures of whole suites go into `results/practical.json`. Same seeds and noise for all; T = 30 and 60 are the first
rounds of the T = 100 runs, Ax plays 30 on six problems. Peers' runs are kept in `practical_peers.json` beside this file
(regret curves, with versions and, since Ax, dates), Auto's in `.cache` under a digest of the code: a run that was
stopped continues. Regret is (max f* − f*(x_t))/range, cumulative over the rounds; best missed is that of the best point
evaluated. Ratios and differences are over the seeds that both have; intervals of ratios are 95 % of 2,000 bootstrap
samples over seeds, ± is one standard error over seeds. Where a problem has one seed only, both are over problems.

Constants of Auto were chosen on the part "choosing"; "checking" was looked at between choices, "once" at the end.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is imported

import argparse
import datetime
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import peers
import record
import spaces
import tables
import tasks
from peers import AX_ROUNDS, AX_SEEDS, PEERS, QUICK, REPORTED, ROUNDS, Run, Task
from record import Figure, Record

KEPT = Path(__file__).with_name("practical_peers.json")
SEEDS = 3
QUICKLY = (tasks.branin, tasks.ripple, spaces.learner), 1, 30  # problems, seeds and rounds that show that it runs
STUCK = 0.03  # a run that ends so much of the range behind the mean of the problem's best tool
PARTS: dict[str, list[Any]] = {
    "choosing": [
        tasks.reactions, tasks.svm_digits, tasks.forest, tasks.branin, tasks.hartmann, tasks.ackley, tasks.gallagher,
        tasks.cosines, tasks.levy_twelve, tables.agnp, tables.llvm, tables.perovskite, spaces.solvents, spaces.learner,
    ],
    "checking": [
        tasks.needle, tasks.ripple, tasks.levy, tasks.griewank, tasks.regression, tasks.neighbours, tasks.network,
        tables.crossed_barrel, tables.p3ht, tables.storm,
    ],
    "once": [
        tasks.logistic, tasks.tree, tasks.boosting, tasks.rosenbrock, tasks.steps, tasks.ridge, tasks.ellipsoid,
        tables.convolution, tables.apache, spaces.pipeline,
    ],
}  # fmt: skip


class Store:
    """Runs by task, player and seed, in a file that is replaced whole after each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, task: Task, player: str, seed: int) -> Run | None:
        found = self.runs.get(f"{task.name} | {player} | {seed}")
        if found is None or found["digest"] != task.digest():
            return None
        return Run(found["regrets"], found["recommended"], [found["seconds_per_ask"]])

    def put(self, task: Task, player: str, seed: int, run: Run, **more: Any) -> None:
        late = float(np.mean(run.seconds[-20:]))
        kept = {"digest": task.digest(), "regrets": [round(float(r), 5) for r in run.regrets]}
        kept |= {"recommended": run.recommended, "seconds_per_ask": round(late, 5), **more}
        self.runs[f"{task.name} | {player} | {seed}"] = kept
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(self.runs.items()))
        part = self.path.with_suffix(".part")
        part.write_text("{\n" + lines + "\n}\n")
        part.replace(self.path)


def made(only: list[str] | None, part: str, makers: Sequence[Any] = ()) -> list[Task]:
    found: list[Task] = []
    for make in makers or [make for name in PARTS if part in ("all", name) for make in PARTS[name]]:
        task = make()
        if task is None:
            print(f"{make.__name__} left out: set MISSPEC_DATA to the folder that has its table")
        elif not only or task.name in only:
            found.append(task)
            MAKERS[task.name] = make
    return found


def play_peers(chosen: list[Task], seeds: int, *, again: bool, names: list[str] | None) -> Store:
    """What is missing, the quick ones first."""
    store = Store(KEPT)
    order = sorted(
        (seed, name not in QUICK, task_place, name)
        for name in names or PEERS
        for seed in range(AX_SEEDS if name == "Ax" else seeds)
        for task_place in range(len(chosen))
    )
    order.sort(key=lambda job: (job[1], job[0]))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for done, (seed, _, place, name) in enumerate(order):
        task = chosen[place]
        if not peers.plays(name, task) or (not again and store.get(task, name, seed) is not None):
            continue
        start = time.perf_counter()
        run = PEERS[name](task, seed, AX_ROUNDS if name == "Ax" else ROUNDS)
        store.put(task, name, seed, run, versions=peers.versions(*["ax-platform"] * (name == "Ax")), date=today)
        took = time.perf_counter() - start
        print(
            f"{done + 1}/{len(order)} {name} on {task.name}, seed {seed}: {sum(run.regrets):.2f} ({took:.0f} s)",
            flush=True,
        )
    return store


def code_digest() -> str:
    """Of the code that Auto's runs depend on."""
    return record.digest(record.package(without=("reports", "experiments", "integrations", "cli")))


def play_auto(task: Task, seed: int, settings: dict[str, Any], batch: int = 1, rounds: int = ROUNDS) -> Run:
    import misspec as ms

    policy = ms.Auto(task.domain, seed=seed, **settings)
    regrets, seconds, recommended = [], [], {}
    draws = task.draws(seed, rounds)

    def point(answer: Any) -> Any:
        return answer.index if task.listed else answer.x if task.bounds else answer.params

    while len(regrets) < rounds:
        start = time.perf_counter()
        queries = policy.ask(min(batch, rounds - len(regrets)))
        took = time.perf_counter() - start
        for query in queries:
            x, y = point(query), task.observed(point(query), draws[len(regrets)])
            start = time.perf_counter()
            if math.isfinite(y):
                policy.tell(query, y)
            else:
                policy.drop(query)
            seconds.append(took / len(queries) + time.perf_counter() - start)  # learning is part of what a round costs
            regrets.append(task.regret(x))
        if len(regrets) in REPORTED:
            recommended[str(len(regrets))] = task.regret(point(policy.recommend()))
    return Run(regrets, recommended, seconds)


def called(settings: dict[str, Any], batch: int) -> str:
    """Auto as it is set up here."""
    parts = [f"{name}={value}" for name, value in settings.items()] + ([f"in {batch}s"] if batch > 1 else [])
    return f"Auto {', '.join(parts)}".strip()


def play_all(
    chosen: list[Task], seeds: int, workers: int, settings: dict[str, Any], batch: int, rounds: int = ROUNDS
) -> Store:
    from joblib import Parallel, delayed

    folder = tasks.CACHE if rounds == ROUNDS else record.QUICK
    folder.mkdir(exist_ok=True, parents=True)
    name, store = called(settings, batch), Store(folder / f"auto-{code_digest()}.json")
    jobs = [(task.name, seed) for seed in range(seeds) for task in chosen if store.get(task, name, seed) is None]
    start = time.perf_counter()
    played = Parallel(n_jobs=workers, return_as="generator_unordered")(
        delayed(_played)(MAKERS[name], name, seed, settings, batch, rounds) for name, seed in jobs
    )
    by_name = {task.name: task for task in chosen}
    for done, (task_name, seed, run) in enumerate(played):
        store.put(by_name[task_name], name, seed, run)
        left = (time.perf_counter() - start) / (done + 1) * (len(jobs) - done - 1)
        print(
            f"{done + 1}/{len(jobs)} {name} on {task_name}, seed {seed}: missed {min(run.regrets):.4f}, regret "
            f"{sum(run.regrets):.2f}, {np.mean(run.seconds):.3f} s ({left:.0f} s left)",
            flush=True,
        )
    return store


def _played(make: Any, name: str, seed: int, settings: dict[str, Any], batch: int, rounds: int) -> tuple[str, int, Run]:
    """In a worker: tasks hold functions that cannot be sent, so they are made there."""
    if name not in _MADE:
        _MADE[name] = make()
    return name, seed, play_auto(_MADE[name], seed, settings, batch, rounds)


_MADE: dict[str, Task] = {}
MAKERS: dict[str, Any] = {}


def long_run(rounds: int = 1000, candidates: int = 2000) -> None:
    """What a round costs as results accumulate: asking, renewals of the model included, and telling."""
    import misspec as ms

    rng = np.random.default_rng(0)
    points = rng.random((candidates, 5))
    values = np.sin(6 * points[:, 0]) * points[:, 1] + np.cos(4 * points[:, 2]) + 0.3 * points[:, 3]
    policy = ms.Auto(ms.Finite(points), seed=0)
    seconds = []
    for t in range(rounds):
        start = time.perf_counter()
        query = policy.ask()
        policy.tell(query, values[query.index] + 0.1 * rng.standard_normal())
        seconds.append(time.perf_counter() - start)
        if t + 1 in (100, 200, 500, 1000):
            distinct = len(np.unique(policy.observations.x, axis=0))
            print(
                f"t = {t + 1}: {np.mean(seconds):.3f} s per round, {np.mean(seconds[-100:]):.3f} in the last 100, "
                f"{max(seconds):.1f} at most; {distinct} distinct points",
                flush=True,
            )


# -- what is printed -----------------------------------------------------------------------------------------

Curves = dict[str, dict[int, Run]]  # by player and seed


def collected(task: Task, stores: dict[str, Store], seeds: int) -> Curves:
    """Runs of each player; the store of each is named."""
    found: Curves = {}
    for name, store in stores.items():
        runs = {seed: run for seed in range(seeds) if (run := store.get(task, name, seed)) is not None}
        if runs:
            found[name] = runs
    return found


def table_of(task: Task, curves: Curves) -> None:
    print(f"\n{task.name}")
    print(f"  {'':26}{'seeds':>6}" + "".join(
        f"{f'regret {T}':>11}{f'missed {T}':>17}{f'recomm. {T}':>13}" for T in REPORTED
    ) + f"{'s/ask':>9}")  # fmt: skip
    for name, runs in curves.items():
        line = f"  {name:26}{len(runs):>6}"
        for T in REPORTED:
            R = np.array([run.regrets[:T] for run in runs.values()])
            missed = R.min(axis=1)
            chosen = np.mean([run.recommended.get(str(T), math.nan) for run in runs.values()])
            line += f"{R.sum(axis=1).mean():>11.2f}{missed.mean():>9.4f} ±{_error(missed):.4f}{chosen:>13.4f}"
        print(line + f"{np.mean([run.seconds[-1] for run in runs.values()]):>9.3f}")


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def known(value: float) -> float | None:
    """None where one problem with one seed has no interval."""
    return float(value) if math.isfinite(value) else None


def pairs(everything: dict[str, Curves], us: str, peer: str, T: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By problem, our regrets and the peer's over the seeds that both have, one row each."""
    found = {}
    for name, curves in everything.items():
        long = [{seed for seed, run in curves.get(who, {}).items() if len(run.regrets) >= T} for who in (us, peer)]
        common = sorted(long[0] & long[1])
        if common:
            ours, theirs = (np.array([curves[who][seed].regrets[:T] for seed in common]) for who in (us, peer))
            found[name] = (ours, theirs)
    return found


def compare(everything: dict[str, Curves], us: str, others: list[str], T: int) -> dict[str, Figure]:
    """Best missed beside each peer's, and the ratio of cumulative regrets; how many runs are stuck."""
    rng, figures = np.random.default_rng(0), {}
    print(f"\nT = {T}: {us} less the peer; best missed ± one standard error; problems as good; regret ratio [95 %]")
    for peer in others:
        logs, draws, gaps, errors = [], [], {}, []
        for name, (ours, theirs) in pairs(everything, us, peer, T).items():
            a, b = ours.sum(axis=1), theirs.sum(axis=1)
            logs.append(math.log(a.mean() / b.mean()))
            picks = rng.integers(len(a), size=(2000, len(a)))
            resampled = np.log(a[picks].mean(axis=1) / b[picks].mean(axis=1))
            few = math.sqrt(len(a) / max(len(a) - 1, 1))  # resampling few seeds varies by this much too little
            draws.append(logs[-1] + few * (resampled - logs[-1]))
            difference = ours.min(axis=1) - theirs.min(axis=1)
            gaps[name] = difference.mean()
            errors.append(_error(difference))
        if not logs:
            continue
        low, high = np.quantile(np.exp(np.mean(draws, axis=0)), [0.025, 0.975])
        error, worst = math.sqrt(np.nansum(np.square(errors))) / len(errors), max(gaps, key=gaps.__getitem__)
        if np.isnan(errors).any():
            error, spread = _error(np.array(list(gaps.values()))), 1.96 * _error(np.array(logs))
            low, high = np.exp(np.mean(logs) - spread), np.exp(np.mean(logs) + spread)
        good, missed, ratio = sum(gap <= 1e-4 for gap in gaps.values()), np.mean(list(gaps.values())), np.mean(logs)
        key = f"{record.slug(peer)}.{T}"
        figures[f"{key}.missed"] = Figure(100 * float(missed), error=known(100 * error), form="+.1f")
        figures[f"{key}.as_good"] = Figure(good, of=len(gaps))
        figures[f"{key}.regret"] = Figure(math.exp(ratio), low=known(low), high=known(high))
        print(
            f"  {peer:26} missed {missed:+.4f} ± {error:.4f}, as good on {good} of {len(gaps)}, "
            f"worst {gaps[worst]:+.3f} on {worst}; regret {math.exp(ratio):.3f} [{low:.3f}, {high:.3f}]"
        )
    for player in [us, *others]:
        behind = []
        for curves in everything.values():
            missed = {who: np.array([min(r.regrets[:T]) for r in runs.values()]) for who, runs in curves.items()}
            if player in missed:
                best = min(float(missed[who].mean()) for who in missed if who == us or who in PEERS)
                behind += list(missed[player] > best + STUCK)
        if behind:
            print(f"  {player:26} {np.mean(behind):5.0%} of {len(behind)} runs end {STUCK:.0%} behind the best tool")
    return figures


def report(chosen: list[Task], stores: dict[str, Store], us: str, seeds: int, rounds: int) -> dict[str, Figure]:
    """Prints what was played; the figures of the comparisons."""
    everything = {task.name: collected(task, stores, seeds) for task in chosen}
    for task in chosen:
        table_of(task, everything[task.name])
    begins = "" if us == "Auto" else f"{record.slug(us.removeprefix('Auto '))}."
    found = {"problems": Figure(len(chosen), form=".0f"), "seeds": Figure(seeds, form=".0f")}
    others = [name for name in stores if name != us]
    for T in (T for T in REPORTED if rounds >= T):
        found |= compare(everything, us, others, T)
    once = {name: curves for name, curves in everything.items() if MAKERS[name] in PARTS["once"]}
    if once:
        print("\nOn the problems that were looked at once, at the end:", end="")
        found |= {f"once.{key}": figure for key, figure in compare(once, us, others, rounds).items()}
    return {begins + key: figure for key, figure in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three problems and 30 rounds, to see that it runs")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--only", nargs="*", help="names of tasks")
    parser.add_argument("--names", nargs="*", help="names of peers")
    parser.add_argument("--part", choices=["all", *PARTS], default="all")
    parser.add_argument("--settings", type=json.loads, help="of Auto, as JSON; by default its own, and then to earn")
    parser.add_argument("--batch", type=int, default=1, help="queries of Auto asked at once")
    parser.add_argument("--beside", help="a file of runs of Auto in .cache, to compare with: DIGEST:NAME")
    parser.add_argument("--peers", action="store_true", help="compute the peers' runs that are missing, and stop")
    parser.add_argument("--again", action="store_true", help="compute peers' runs again")
    parser.add_argument("--long", action="store_true", help="time 1,000 rounds of Auto, and stop")
    given = parser.parse_args()
    if given.long:
        long_run()
        return
    makers, seeds, rounds = QUICKLY if given.quick else ((), given.seeds, ROUNDS)
    chosen = made(given.only, given.part, makers)
    if given.peers or given.again:
        play_peers(chosen, seeds, again=given.again, names=given.names)
        return

    def measured(settings: dict[str, Any]) -> dict[str, Figure]:
        us = called(settings, given.batch)
        stores = {us: play_all(chosen, seeds, given.jobs, settings, given.batch, rounds)}
        stores |= dict.fromkeys(PEERS, Store(KEPT))
        if given.beside:
            digest, name = given.beside.split(":", 1)
            stores[name] = Store(tasks.CACHE / f"auto-{digest}.json")
        return report(chosen, stores, us, seeds, rounds)

    every = [{}, {"aim": "earn"}] if given.settings is None else [given.settings]
    if (given.only or given.part != "all" or given.beside) and not given.quick:
        measured(every[0])  # a part of the suite is no figure of it
        return
    theirs = {f"{name} {version}" for run in Store(KEPT).runs.values() for name, version in run["versions"].items()}
    protocol = f"{len(chosen)} problems, {seeds} seeds, {rounds} rounds; peers as kept: {', '.join(sorted(theirs))}"
    kept = Record("practical", protocol=protocol, quick=given.quick)
    for settings in every:
        kept.measure(called(settings, given.batch), lambda settings=settings: measured(settings))


if __name__ == "__main__":
    main()
