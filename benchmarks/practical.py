"""ms.Auto beside random search, Optuna's samplers and BoTorch, on tables, boxes and mixed spaces, without a constant.

    MISSPEC_DATA=… python benchmarks/practical.py [--seeds 5] [--part choosing | checking | once] [--only NAME …]
    python benchmarks/practical.py --peers [--names "Optuna TPE" …]     # compute what is missing of the peers' runs
    python benchmarks/practical.py --settings '{"aim": "earn"}' --batch 5 --beside '{}'
    python benchmarks/practical.py --long                # seconds per round over 1,000 rounds on 2,000 candidates

Same seeds and noise for all; T = 30 and 60 are the first rounds of the T = 100 runs. Peers' runs are kept in
`practical_peers.json` beside this file (regret curves only), Auto's in `.cache` under a digest of the code: a run that
was stopped continues. Regret is (max f* − f*(x_t))/range, cumulative over the rounds; best missed is that of the best
point evaluated. Ratios and differences are over the seeds that both have; intervals of ratios are 95 % of 2,000
bootstrap samples over seeds, ± is one standard error over problems and seeds.

Constants of Auto were chosen on the part "choosing"; "checking" was looked at between choices, "once" at the end.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is imported

import argparse
import hashlib
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import peers
import spaces
import tables
import tasks
from peers import PEERS, QUICK, REPORTED, Run, Task

ROUNDS = 100
KEPT = Path(__file__).with_name("practical_peers.json")
SEEDS, SLOW_SEEDS = 5, 3
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


def made(only: list[str] | None, part: str) -> list[Task]:
    found: list[Task] = []
    for make in (make for name, makers in PARTS.items() if part in ("all", name) for make in makers):
        task = make()
        if task is None:
            print(f"{make.__name__} left out: set MISSPEC_DATA to the folder that has its table")
        elif not only or task.name in only:
            found.append(task)
    return found


def play_peers(chosen: list[Task], seeds: int, slow: int, *, again: bool, names: list[str] | None) -> Store:
    """What is missing, the quick ones first."""
    store = Store(KEPT)
    order = sorted(
        (seed, name not in QUICK, task_place, name)
        for name in names or PEERS
        for seed in range(seeds if name in QUICK else slow)
        for task_place in range(len(chosen))
    )
    order.sort(key=lambda job: (job[1], job[0]))
    for done, (seed, _, place, name) in enumerate(order):
        task = chosen[place]
        if not peers.plays(name, task) or (not again and store.get(task, name, seed) is not None):
            continue
        start = time.perf_counter()
        run = PEERS[name](task, seed, ROUNDS)
        store.put(task, name, seed, run, versions=peers.versions())
        took = time.perf_counter() - start
        print(
            f"{done + 1}/{len(order)} {name} on {task.name}, seed {seed}: {sum(run.regrets):.2f} ({took:.0f} s)",
            flush=True,
        )
    return store


def code_digest() -> str:
    """Of the package's source: what Auto's runs depend on."""
    import misspec as ms

    found = hashlib.sha256()
    for path in sorted(Path(ms.__file__).parent.rglob("*.py")):
        if not {"reports", "experiments", "integrations"} & set(path.parts):
            found.update(path.read_bytes())
    return found.hexdigest()[:12]


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


def play_all(chosen: list[Task], seeds: int, workers: int, settings: dict[str, Any], batch: int) -> Store:
    from joblib import Parallel, delayed

    tasks.CACHE.mkdir(exist_ok=True)
    name, store = called(settings, batch), Store(tasks.CACHE / f"auto-{code_digest()}.json")
    jobs = [(task.name, seed) for seed in range(seeds) for task in chosen if store.get(task, name, seed) is None]
    start = time.perf_counter()
    played = Parallel(n_jobs=workers, return_as="generator_unordered")(
        delayed(_played)(*job, settings, batch) for job in jobs
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


def _played(name: str, seed: int, settings: dict[str, Any], batch: int) -> tuple[str, int, Run]:
    """In a worker: tasks hold functions that cannot be sent, so they are made there."""
    if name not in _MADE:
        _MADE.update({task.name: task for task in made([name], "all")})
    return name, seed, play_auto(_MADE[name], seed, settings, batch)


_MADE: dict[str, tasks.Task] = {}


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


def pairs(everything: dict[str, Curves], us: str, peer: str, T: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By problem, our regrets and the peer's over the seeds that both have, one row each."""
    found = {}
    for name, curves in everything.items():
        common = sorted(set(curves.get(us, {})) & set(curves.get(peer, {})))
        if common:
            ours, theirs = (np.array([curves[who][seed].regrets[:T] for seed in common]) for who in (us, peer))
            found[name] = (ours, theirs)
    return found


def compare(everything: dict[str, Curves], us: str, others: list[str], T: int) -> None:
    """Best missed beside each peer's, and the ratio of cumulative regrets; how many runs are stuck."""
    rng = np.random.default_rng(0)
    print(f"\nT = {T}: {us} less the peer; best missed ± one standard error; problems as good; regret ratio [95 %]")
    for peer in others:
        logs, draws, gaps, errors = [], [], {}, []
        for name, (ours, theirs) in pairs(everything, us, peer, T).items():
            a, b = ours.sum(axis=1), theirs.sum(axis=1)
            logs.append(math.log(a.mean() / b.mean()))
            picks = rng.integers(len(a), size=(2000, len(a)))
            draws.append(np.log(a[picks].mean(axis=1) / b[picks].mean(axis=1)))
            difference = ours.min(axis=1) - theirs.min(axis=1)
            gaps[name] = difference.mean()
            errors.append(_error(difference))
        if not logs:
            continue
        low, high = np.quantile(np.exp(np.mean(draws, axis=0)), [0.025, 0.975])
        error, worst = math.sqrt(np.nansum(np.square(errors))) / len(errors), max(gaps, key=gaps.__getitem__)
        good = sum(gap <= 1e-4 for gap in gaps.values())
        print(
            f"  {peer:26} missed {np.mean(list(gaps.values())):+.4f} ± {error:.4f}, as good on {good} of {len(gaps)}, "
            f"worst {gaps[worst]:+.3f} on {worst}; regret {math.exp(np.mean(logs)):.3f} [{low:.3f}, {high:.3f}]"
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--slow-seeds", type=int, default=SLOW_SEEDS, help="of the peers that take a minute per run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--only", nargs="*", help="names of tasks")
    parser.add_argument("--names", nargs="*", help="names of peers")
    parser.add_argument("--part", choices=["all", *PARTS], default="all")
    parser.add_argument("--settings", type=json.loads, default={}, help="of Auto, as JSON")
    parser.add_argument("--batch", type=int, default=1, help="queries of Auto asked at once")
    parser.add_argument("--beside", help="a file of runs of Auto in .cache, to compare with: DIGEST:NAME")
    parser.add_argument("--peers", action="store_true", help="compute the peers' runs that are missing, and stop")
    parser.add_argument("--again", action="store_true", help="compute peers' runs again")
    parser.add_argument("--long", action="store_true", help="time 1,000 rounds of Auto, and stop")
    given = parser.parse_args()
    if given.long:
        long_run()
        return
    chosen = made(given.only, given.part)
    if given.peers or given.again:
        play_peers(chosen, given.seeds, given.slow_seeds, again=given.again, names=given.names)
        return
    us = called(given.settings, given.batch)
    stores = {us: play_all(chosen, given.seeds, given.jobs, given.settings, given.batch)}
    stores |= dict.fromkeys(PEERS, Store(KEPT))
    others = list(PEERS)
    if given.beside:
        digest, name = given.beside.split(":", 1)
        stores[name] = Store(tasks.CACHE / f"auto-{digest}.json")
        others.append(name)
    everything = {task.name: collected(task, stores, given.seeds) for task in chosen}
    for task in chosen:
        table_of(task, everything[task.name])
    for T in REPORTED:
        compare(everything, us, others, T)


if __name__ == "__main__":
    main()
