"""When to stop: evaluations that `ms.until` saves against the value that it gives up, over the practical suite.

    MISSPEC_DATA=… python benchmarks/stopping.py --play [--seeds 3] [--part choosing | checking | once] [--runs FOLDER]
    python benchmarks/stopping.py [--part …] [--runs FOLDER] [--picture FILE.png]

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
from pathlib import Path
from typing import Any

import numpy as np
import practical
import tasks

import misspec as ms
from misspec.policies.auto import learnt

ROUNDS = 100
EVERY = 5  # evaluations between checks
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


def play(folder: Path, part: str, seeds: int, only: list[str] | None) -> None:
    """The runs that are missing, seed by seed."""
    folder.mkdir(exist_ok=True, parents=True)
    chosen = practical.made(only, part)
    for seed in range(seeds):
        for task in chosen:
            path = folder / f"{task.name.replace(' ', '_')}-{seed}.json"
            if not path.exists():
                start = time.perf_counter()
                run = played(task, seed)
                path.write_text(json.dumps(run))
                cost = np.mean([each["seconds"] for each in run["checks"]])
                print(
                    f"{task.name}, seed {seed}: {time.perf_counter() - start:.0f} s, {cost:.2f} s per check", flush=True
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--play", action="store_true", help="play the runs that are missing, and stop")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--part", choices=["all", *practical.PARTS], default="all")
    parser.add_argument("--only", nargs="*", help="names of tasks")
    parser.add_argument("--runs", type=Path, default=tasks.CACHE / f"stopping-{practical.code_digest()}")
    given = parser.parse_args()
    if given.play:
        play(given.runs, given.part, given.seeds, given.only)


if __name__ == "__main__":
    main()
