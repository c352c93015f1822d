"""ms.Auto beside random search, Optuna's TPESampler and GPSampler, and BoTorch's UCB and LogEI, without a constant.

    MISSPEC_DATA=… python benchmarks/practical.py [--seeds 10] [--only NAME …] [--which chosen-by | seen | left-out]
    python benchmarks/practical.py --long                # seconds per round over 1,000 rounds on 2,000 candidates
    python benchmarks/practical.py --peers [--again]     # compute what is missing of the peers' runs, and stop

Same seeds and noise for all; T = 60 is the first 60 rounds of the T = 100 runs. Peers' runs are kept in
`practical_peers.json` beside this file (regret curves only), Auto's in `.cache` under a digest of the code: a run that
was stopped continues. Regret is (max f* − f*(x_t))/range, cumulative over the rounds; best missed is that of the best
point evaluated. Ratios are over the seeds that both have; intervals are 95 % of 2,000 bootstrap samples over seeds.
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
import tasks
from peers import PEERS, QUICK, REPORTED, Run

ROUNDS = 100
KEPT = Path(__file__).with_name("practical_peers.json")
SEEDS, SLOW_SEEDS = 10, 3


class Store:
    """Runs by task, player and seed, in a file that is replaced whole after each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, task: tasks.Task, player: str, seed: int) -> Run | None:
        found = self.runs.get(f"{task.name} | {player} | {seed}")
        if found is None or found["digest"] != task.digest():
            return None
        return Run(found["regrets"], found["recommended"], [found["seconds_per_ask"]])

    def put(self, task: tasks.Task, player: str, seed: int, run: Run, **more: Any) -> None:
        late = float(np.mean(run.seconds[-20:]))
        kept = {"digest": task.digest(), "regrets": [round(float(r), 5) for r in run.regrets]}
        kept |= {"recommended": run.recommended, "seconds_per_ask": round(late, 5), **more}
        self.runs[f"{task.name} | {player} | {seed}"] = kept
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(self.runs.items()))
        part = self.path.with_suffix(".part")
        part.write_text("{\n" + lines + "\n}\n")
        part.replace(self.path)


def made(only: list[str] | None, which: str) -> list[tasks.Task]:
    kinds = {"chosen-by": tasks.CHOSEN_BY, "seen": tasks.SEEN, "left-out": tasks.LEFT_OUT}
    makers = [make for kind, some in kinds.items() if which in ("all", kind) for make in some]
    found: list[tasks.Task] = []
    for make in makers:
        task: tasks.Task | None = make()
        if task is None:
            print(
                f"{make.__name__} left out: set MISSPEC_DATA to a folder with {tasks.REACTIONS} (Shields et al. 2021)"
            )
        elif not only or task.name in only:
            found.append(task)
    return found


def play_peers(chosen: list[tasks.Task], seeds: int, slow: int, *, again: bool, names: list[str] | None) -> Store:
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
        if not again and store.get(task, name, seed) is not None:
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


def play_auto(task: tasks.Task, seed: int, rounds: int = ROUNDS) -> Run:
    import misspec as ms

    domain = ms.Box(task.bounds) if task.bounds else ms.Finite.from_table(task.rows)
    policy = ms.Auto(domain, seed=seed)
    regrets, seconds, recommended = [], [], {}
    for t, draw in enumerate(task.draws(seed, rounds)):
        start = time.perf_counter()
        query = policy.ask()
        took = time.perf_counter() - start
        x: Any = query.x if query.index is None else query.index
        y = task.observed(x, draw)
        start = time.perf_counter()
        policy.tell(query, y)
        seconds.append(took + time.perf_counter() - start)  # learning is part of what a round costs
        regrets.append(task.regret(x))
        if t + 1 in REPORTED:
            best = policy.recommend()
            recommended[str(t + 1)] = task.regret(best.x if best.index is None else best.index)
    return Run(regrets, recommended, seconds)


def play_all(chosen: list[tasks.Task], seeds: int, workers: int) -> Store:
    from joblib import Parallel, delayed

    tasks.CACHE.mkdir(exist_ok=True)
    store = Store(tasks.CACHE / f"auto-{code_digest()}.json")
    jobs = [(place, seed) for seed in range(seeds) for place, task in enumerate(chosen)]
    jobs = [(place, seed) for place, seed in jobs if store.get(chosen[place], "Auto", seed) is None]
    start = time.perf_counter()
    played = Parallel(n_jobs=workers, return_as="generator_unordered")(
        delayed(_played)(place, seed, chosen[place].name) for place, seed in jobs
    )
    for done, (place, seed, run) in enumerate(played):
        task = chosen[place]
        store.put(task, "Auto", seed, run)
        left = (time.perf_counter() - start) / (done + 1) * (len(jobs) - done - 1)
        print(
            f"{done + 1}/{len(jobs)} Auto on {task.name}, seed {seed}: {sum(run.regrets):.2f} ({left:.0f} s left)",
            flush=True,
        )
    return store


def _played(place: int, seed: int, name: str) -> tuple[int, int, Run]:
    """In a worker: tasks hold functions that cannot be sent, so they are made there."""
    if name not in _MADE:
        _MADE.update({task.name: task for task in made([name], "all")})
    return place, seed, play_auto(_MADE[name], seed)


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


def collected(task: tasks.Task, ours: Store, theirs: Store, seeds: int) -> Curves:
    found: Curves = {}
    for name, store in [("Auto", ours), *((peer, theirs) for peer in PEERS)]:
        runs = {seed: run for seed in range(seeds) if (run := store.get(task, name, seed)) is not None}
        if runs:
            found[name] = runs
    return found


def table_of(task: tasks.Task, curves: Curves) -> None:
    print(f"\n{task.name}")
    print(f"  {'':14}{'seeds':>6}" + "".join(
        f"{f'regret {T}':>16}{f'missed {T}':>17}{f'recomm. {T}':>13}" for T in REPORTED
    ) + f"{'s/ask':>9}")  # fmt: skip
    for name, runs in curves.items():
        line = f"  {name:14}{len(runs):>6}"
        for T in REPORTED:
            R = np.array([run.regrets[:T] for run in runs.values()])
            cumulative, missed = R.sum(axis=1), R.min(axis=1)
            chosen = np.mean([run.recommended[str(T)] for run in runs.values()])
            line += f"{cumulative.mean():>9.2f} ±{_error(cumulative):>5.2f}"
            line += f"{missed.mean():>9.4f} ±{_error(missed):.4f}{chosen:>13.4f}"
        print(line + f"{np.mean([run.seconds[-1] for run in runs.values()]):>9.3f}")


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def pairs(everything: dict[str, Curves], peer: str, T: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By problem, Auto's regrets and the peer's over the seeds that both have, one row each."""
    found = {}
    for name, curves in everything.items():
        common = sorted(set(curves.get("Auto", {})) & set(curves.get(peer, {})))
        if common:
            ours, theirs = (np.array([curves[who][seed].regrets[:T] for seed in common]) for who in ("Auto", peer))
            found[name] = (ours, theirs)
    return found


def compare(everything: dict[str, Curves], T: int) -> None:
    """Ratios of Auto's cumulative regret to each peer's, and differences of best missed."""
    rng = np.random.default_rng(0)
    print(f"\nT = {T}: Auto's cumulative regret divided by the peer's, geometric mean over the problems [95 %]; worst")
    hardest: dict[str, float] = {}  # by problem, the ratio to its best peer
    for peer in PEERS:
        logs, draws, gaps, errors = {}, [], [], []
        for name, (ours, theirs) in pairs(everything, peer, T).items():
            a, b = ours.sum(axis=1), theirs.sum(axis=1)
            logs[name] = math.log(a.mean() / b.mean())
            hardest[name] = max(hardest.get(name, 0.0), a.mean() / b.mean())
            picks = rng.integers(len(a), size=(2000, len(a)))
            draws.append(np.log(a[picks].mean(axis=1) / b[picks].mean(axis=1)))
            difference = ours.min(axis=1) - theirs.min(axis=1)
            gaps.append(difference.mean())
            errors.append(_error(difference))
        if not logs:
            continue
        low, high = np.quantile(np.exp(np.mean(draws, axis=0)), [0.025, 0.975])
        worst = max(logs, key=logs.__getitem__)
        error = math.sqrt(np.nansum(np.square(errors))) / len(errors)
        print(
            f"  {peer:14} {math.exp(np.mean(list(logs.values()))):.3f} [{low:.3f}, {high:.3f}]; "
            f"worst {math.exp(logs[worst]):.2f} on {worst}; "
            f"best missed {np.mean(gaps):+.4f} ± {error:.4f} ({len(logs)} problems)"
        )
    worst = max(hardest, key=hardest.__getitem__)
    geometric = math.exp(np.mean(np.log(list(hardest.values()))))
    print(f"  best peer of each problem: {geometric:.3f}; worst {hardest[worst]:.2f} on {worst}")
    for name, (ours, theirs) in pairs(everything, "random", T).items():
        stuck, chance = int((ours.min(axis=1) > 0.1).sum()), theirs.min(axis=1).mean()
        if stuck and chance < 0.1:
            print(f"  stuck on {name}: {stuck} of {len(ours)} seeds miss more than 0.1, random {chance:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--slow-seeds", type=int, default=SLOW_SEEDS, help="of the peers that take a minute per run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--only", nargs="*", help="names of tasks")
    parser.add_argument("--names", nargs="*", help="names of peers")
    parser.add_argument("--which", choices=["all", "chosen-by", "seen", "left-out"], default="all")
    parser.add_argument("--peers", action="store_true", help="compute the peers' runs that are missing, and stop")
    parser.add_argument("--again", action="store_true", help="compute peers' runs anew")
    parser.add_argument("--long", action="store_true", help="time 1,000 rounds of Auto, and stop")
    given = parser.parse_args()
    if given.long:
        long_run()
        return
    chosen = made(given.only, given.which)
    if given.peers or given.again:
        play_peers(chosen, given.seeds, given.slow_seeds, again=given.again, names=given.names)
        return
    ours, theirs = play_all(chosen, given.seeds, given.jobs), Store(KEPT)
    everything = {task.name: collected(task, ours, theirs, given.seeds) for task in chosen}
    for task in chosen:
        table_of(task, everything[task.name])
    for T in REPORTED:
        compare(everything, T)


if __name__ == "__main__":
    main()
