"""The loop, the store and the tables that `constrained.py` and `conditional.py` have in common.

A tool has `ask() → point` and `tell(point, y)`, where y is NaN if the evaluation failed, and may have `recommended()`;
otherwise it recommends its best result. Its `refused` counts points that broke a rule and were asked for anew.

Regret is (best − f(x_t))/range, 1 for what fails; best missed is that of the best point evaluated, by its noise-free
value, as in `practical.py`. Seconds are of CPU, on one thread: of asking and telling, so that what else a machine does
leaves them as they are.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from peers import Run
from practical import Store, code_digest
from tasks import CACHE

Task = Any  # a Problem of constrained_problems.py, or a Table of tables.py
Tool = Any
SEEDS = 10
OURS = "misspec Auto"


def play(task: Task, seed: int, rounds: int, tool: Tool) -> tuple[Run, int]:
    """A run, and how many of its evaluations failed."""
    points, y, seconds = [], [], []
    for draw in task.draws(seed, rounds):
        start = time.process_time()
        x = tool.ask()
        took = time.process_time() - start
        points.append(x)
        y.append(task.observed(x, draw))
        start = time.process_time()
        tool.tell(x, y[-1])
        seconds.append(took + time.process_time() - start)
    luckiest = points[int(np.where(np.isfinite(y), y, -np.inf).argmax())]
    chosen = tool.recommended() if hasattr(tool, "recommended") else luckiest
    run = Run([task.regret(x) for x in points], {str(rounds): task.regret(chosen)}, seconds)
    return run, int(np.sum(~np.isfinite(y)))


class Random:
    """Legal points uniformly; rows without replacement."""

    def __init__(self, task: Task, seed: int, rounds: int) -> None:
        rng = np.random.default_rng([seed, 7])
        self.points = task.first(seed, rounds) if task.listed else [task.drawn(rng) for _ in range(rounds)]
        self.points.reverse()

    def ask(self) -> Any:
        return self.points.pop()

    def tell(self, x: Any, y: float) -> None:
        pass


# -- our own side --------------------------------------------------------------------------------------------


def domain_of(task: Task) -> Any:
    """A problem as `ms.Space` says it."""
    import misspec as ms

    if task.listed:
        return task.domain
    made: dict[str, Any] = {}
    if task.mixture is not None:
        made["blend"] = ms.Mixture(list(task.mixture.names), total=task.mixture.total, at_most=task.mixture.at_most)
    for name, (kind, *rest) in task.params.items():
        more = {"when": task.when[name]} if name in task.when else {}
        if kind == "float":
            made[name] = ms.Float(rest[0], rest[1], log=rest[2], **more)
        else:
            made[name] = ms.Int(*rest, **more) if kind == "int" else ms.Choice(list(rest[0]), **more)
    return ms.Space(made, where=list(task.rules)) if task.rules else ms.Space(made)


class Ours:
    def __init__(self, task: Task, seed: int, rounds: int) -> None:
        import misspec as ms

        self.listed = task.listed
        self.policy = ms.Auto(domain_of(task), horizon=rounds, seed=seed)  # everything here is maximised

    def _point(self, answer: Any) -> Any:
        return answer.index if self.listed else dict(answer.params)

    def ask(self) -> Any:
        self.query = self.policy.ask()
        return self._point(self.query)

    def tell(self, x: Any, y: float) -> None:  # noqa: ARG002
        if math.isfinite(y):
            self.policy.tell(self.query, y)
        else:
            self.policy.drop(self.query)

    def recommended(self) -> Any:
        return self._point(self.policy.recommend())


def play_misspec(task: Task, seed: int, rounds: int) -> tuple[Run, int]:
    return play(task, seed, rounds, Ours(task, seed, rounds))


# -- runs and tables -----------------------------------------------------------------------------------------

ROUNDS_OF_TABLES = 40


def rounds_of(task: Task) -> int:
    return getattr(task, "rounds", ROUNDS_OF_TABLES)


def play_missing(
    jobs: list[tuple[Task, str, int]], tools: dict[str, Callable[..., Tool]], store: Store, versions: dict[str, str]
) -> None:
    """One run after the other, each kept when it ends."""
    for done, (task, name, seed) in enumerate(jobs):
        if store.get(task, name, seed) is not None:
            continue
        start, rounds = time.process_time(), rounds_of(task)
        tool = tools[name](task, seed, rounds)
        run, failed = play(task, seed, rounds, tool)
        mean = round(float(np.mean(run.seconds)), 4)
        more = {"failed": failed, "refused": getattr(tool, "refused", 0), "seconds_per_round": mean}
        store.put(task, name, seed, run, **more, versions=versions)
        print(
            f"{done + 1}/{len(jobs)} {name}, seed {seed}, on {task.name}: "
            f"missed {min(run.regrets):.4f}, {failed} failed, "
            f"{mean:.3f} s of CPU per round, {time.process_time() - start:.0f} s in all",
            flush=True,
        )


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


Missed = dict[str, dict[int, float]]  # by tool and seed


def table_of(task: Task, stores: dict[str, Store], seeds: int) -> Missed:
    """Prints what each tool missed on a problem, ± one standard error."""
    print(f"\n{task.name}, T = {rounds_of(task)}")
    print(f"  {'':30}{'seeds':>6}{'missed':>17}{'recommended':>20}{'failed':>8}{'regret':>8}{'s/round':>9}")
    found: Missed = {}
    for name, store in stores.items():
        kept = {seed: store.runs[f"{task.name} | {name} | {seed}"] for seed in range(seeds)
                if store.get(task, name, seed) is not None}  # fmt: skip
        if not kept:
            continue
        found[name] = {seed: min(run["regrets"]) for seed, run in kept.items()}
        missed = np.array(list(found[name].values()))
        chosen = np.array([list(run["recommended"].values())[-1] for run in kept.values()])
        failed, regret = (
            np.mean(each) for each in zip(*((r["failed"], sum(r["regrets"])) for r in kept.values()), strict=True)
        )
        seconds = np.mean([run["seconds_per_round"] for run in kept.values()])
        print(f"  {name:30}{len(kept):>6}{missed.mean():>9.4f} ±{_error(missed):.4f}{chosen.mean():>12.4f} "
              f"±{_error(chosen):.4f}{failed:>7.1f}{regret:>8.2f}{seconds:>9.3f}")  # fmt: skip
    return found


def compare(everything: dict[str, Missed], us: str, peers: list[str]) -> None:
    """Paired differences over the seeds that both have, and their mean over problems."""
    for peer in peers:
        gaps, errors = [], []
        print(f"\n{us} less {peer}: best missed ± one standard error of the differences")
        for name, missed in everything.items():
            common = sorted(set(missed.get(us, {})) & set(missed.get(peer, {})))
            if not common:
                continue
            apart = np.array([missed[us][seed] - missed[peer][seed] for seed in common])
            gaps.append(apart.mean())
            errors.append(_error(apart))
            behind = "  behind" if apart.mean() > errors[-1] else ""
            print(f"  {name:30}{apart.mean():+.4f} ±{errors[-1]:.4f}  ({len(common)} seeds){behind}")
        if gaps:
            print(f"  {'mean':30}{np.mean(gaps):+.4f} ±{math.sqrt(np.sum(np.square(errors))) / len(gaps):.4f}")


def main(
    about: str | None,
    kept: Path,
    makers: list[Callable[[], Task | None]],
    tools: dict[str, Callable[..., Tool]],
    plays: Callable[[str, Task], bool],
    seeds_of: Callable[[str, Task], int],
    versions: Callable[[], dict[str, str]],
) -> None:
    """The command line of both files; what they differ in is handed in."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", nargs="*", help="names of problems")
    parser.add_argument("--names", nargs="*", help="names of peers")
    parser.add_argument("--peers", action="store_true", help="compute the peers' runs that are missing, and stop")
    parser.add_argument("--table", action="store_true", help="print what is kept, and compute nothing")
    given = parser.parse_args()
    made = [(make.__name__, make()) for make in makers]
    for name in (name for name, task in made if task is None):
        print(f"{name} left out: set MISSPEC_DATA to the folder that has its table")
    tasks = [task for _, task in made if task is not None and (not given.only or task.name in given.only)]
    theirs = Store(kept)
    if given.peers:
        jobs = [
            (task, name, seed)
            for name in given.names or tools
            for seed in range(given.seeds)
            for task in tasks
            if plays(name, task) and seed < seeds_of(name, task)
        ]
        play_missing(jobs, tools, theirs, versions())
        return
    stores, us = dict.fromkeys(tools, theirs), given.names[0] if given.names else ""
    if not given.table:
        CACHE.mkdir(exist_ok=True)
        ours, us = Store(CACHE / f"constrained-{code_digest()}.json"), OURS
        jobs = [(task, us, seed) for seed in range(given.seeds) for task in tasks]
        play_missing(jobs, {us: Ours}, ours, {})
        stores = {us: ours} | stores
    everything = {task.name: table_of(task, stores, given.seeds) for task in tasks}
    if us:
        compare(everything, us, [name for name in stores if name != us])
