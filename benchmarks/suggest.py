"""`misspec suggest` by CSV files alone beside ms.Auto in a loop: ten rounds of five on the reaction table.

    MISSPEC_DATA=… python benchmarks/suggest.py [--quick] [--seeds 8] [--more 8]

By CSV: in a fresh folder, each round is a new process of the command with --append, after which the yields of the table
are filled in; the results file is all that is kept, and the model is learnt anew each time. In a loop: policy.ask(5),
tell, samples of the model going on from those before. --more: seeds on which the same is compared without processes and
files, to tell whether learning anew costs or gains.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is imported

import argparse
import csv
import math
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from record import Figure, Record, around

import misspec as ms

ROUNDS, BATCH, TARGET = 10, 5, "yield"


class Reactions:
    """The table of Shields et al. (Nature 590, 2021)."""

    def __init__(self, path: Path) -> None:
        with path.open(newline="") as file:
            self.header, *self.rows = csv.reader(file)
        self.known = {tuple(row[:-1]): row[-1] for row in self.rows}
        self.y = np.array([float(row[-1]) for row in self.rows])
        self.domain = ms.Finite.from_table(path, ignore=[TARGET])


def in_a_loop(table: Reactions, seed: int, anew: bool = False) -> np.ndarray:
    """The yields in the order found; anew: by a policy that is made in each round and told everything."""
    policy, rows = ms.Auto(table.domain, seed=seed), []
    for _ in range(ROUNDS):
        if anew and rows:
            policy = ms.Auto(table.domain, seed=seed)
            policy.observe(np.array(rows), table.y[rows])
        batch = policy.ask(BATCH)
        if not anew:
            policy.tell(batch, table.y[[query.index for query in batch]])
        rows += [query.index for query in batch]
    return table.y[rows]


def by_csv(table: Reactions, seed: int) -> tuple[np.ndarray, list[float]]:
    """The same by files and processes, and the seconds of one core that each process took."""
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        with (here / "candidates.csv").open("w", newline="") as file:
            csv.writer(file).writerows([table.header[:-1], *(row[:-1] for row in table.rows)])
        command = [sys.executable, "-m", "misspec.cli", "suggest", "candidates.csv", "--results", "results.csv"]
        command += ["--batch", str(BATCH), "--target", TARGET, "--append", "--seed", str(seed)]
        for _ in range(ROUNDS):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, cwd=here, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            with (here / "results.csv").open(newline="") as file:
                rows = list(csv.reader(file))
            for row in rows[1:]:
                row[-1] = row[-1] or table.known[tuple(row[:-1])]
            with (here / "results.csv").open("w", newline="") as file:
                csv.writer(file).writerows(rows)
        return np.array([float(row[-1]) for row in rows[1:]]), seconds


def compare(name: str, ours: list[np.ndarray], theirs: list[np.ndarray]) -> dict[str, Figure]:
    """Differences over the seeds, of the best yield and of the average yield, with standard errors."""
    figures = {}
    for what, measure in (("best yield", np.max), ("average yield", np.mean)):
        pairs: Any = np.array([[measure(a), measure(b)] for a, b in zip(ours, theirs, strict=True)])
        apart = pairs[:, 0] - pairs[:, 1]
        error = float(apart.std(ddof=1)) / math.sqrt(len(apart)) if len(apart) > 1 else math.nan
        print(f"{name}, {what}: {pairs[:, 0].mean():.2f} against {pairs[:, 1].mean():.2f} in a loop, "
              f"difference {apart.mean():+.2f} ± {error:.2f} over {len(apart)} seeds")  # fmt: skip
        key = f"{name}.{what}".lower().replace(" ", "_")
        figures[key] = Figure(float(apart.mean()), error=None if math.isnan(error) else error, form="+.2f")
    return figures


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="one seed, to see that it runs")
    options.add_argument("--seeds", type=int, default=8)
    options.add_argument("--more", type=int, default=8)
    given = options.parse_args()
    seeds, more = (1, 1) if given.quick else (given.seeds, given.more)
    path = Path(os.environ.get("MISSPEC_DATA", "")) / "direct_arylation.csv"
    if not os.environ.get("MISSPEC_DATA") or not path.exists():
        print("left out: set MISSPEC_DATA to a folder with direct_arylation.csv (Shields et al. 2021)")
        return
    table = Reactions(path)
    print(f"{ROUNDS} rounds of {BATCH} of {len(table.y)} reactions, the best of which yields {table.y.max():g}")
    record = Record("suggest", protocol=f"{seeds} seeds, {more} without files", quick=given.quick)
    record.measure("by CSV", lambda: by_files(table, seeds))
    if more:
        record.measure("learnt anew", lambda: learnt_anew(table, more))


def by_files(table: Reactions, seeds: int) -> dict[str, Figure]:
    print("seed   best by CSV   in a loop   seconds of one core per call: first, median, last")
    csvs, loops, middle = [], [], []
    for seed in range(seeds):
        found, seconds = by_csv(table, seed)
        csvs.append(found)
        loops.append(in_a_loop(table, seed))
        middle.append(float(np.median(seconds)))
        shown = f"{seconds[0]:.2f}, {middle[-1]:.2f}, {seconds[-1]:.2f}"
        print(f"{seed:4d}   {csvs[-1].max():11.2f}   {loops[-1].max():9.2f}   {shown}", flush=True)
    return compare("by CSV", csvs, loops) | {"seconds_per_call": around(middle)}


def learnt_anew(table: Reactions, seeds: int) -> dict[str, Figure]:
    both = [(in_a_loop(table, seed, anew=True), in_a_loop(table, seed)) for seed in range(seeds)]
    return compare("learnt anew", [one for one, _ in both], [other for _, other in both])


if __name__ == "__main__":
    main()
