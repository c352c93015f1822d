"""Running experiments: 200 runs (4 policies × 5 ε × 10 seeds, N = 1,000, T = 5,000) beside the sum of their own times.

Prints wall time / (sum of the runs' own times / cores); the target is at most 1.2. --quick: 40 shorter runs.
"""

import argparse
import os
import tempfile
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"

from record import Figure, Record

from misspec import experiments

TOML = """
horizon = {horizon}
seeds = {seeds}
epsilons = {epsilons}

[domain]
box = [[0, 1]]
grid = {points}

[model]
kernel = {{ name = "RBF", length_scale = 0.2 }}
norm_bound = 2.0
noise = 0.1

[[problems]]
misfit = "ripple"

[[policies]]
kind = "GPUCB"

[[policies]]
kind = "ECGPUCB"

[[policies]]
kind = "PhasedUncertaintySampling"

[[policies]]
kind = "RegretBalancing"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    size = {"horizon": 5000, "seeds": 10, "epsilons": [0.0, 0.05, 0.1, 0.2, 0.4], "points": 1000}
    if options.quick:
        size |= {"horizon": 1500, "seeds": 5, "epsilons": [0.0, 0.2]}
    protocol = ", ".join(f"{name} = {value}" for name, value in size.items())
    record = Record("experiments", protocol=f"{protocol}, {options.cores} cores", quick=options.quick)
    record.measure("wall", lambda: wall_time(TOML.format(**size).encode(), options.cores))


def wall_time(content: bytes, cores: int) -> dict[str, Figure]:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        progress = experiments.go(content, folder, cores=cores)
        wall = time.perf_counter() - start
        runs = experiments.results(folder).runs
    assert len(runs) == progress.of, progress.failed
    own = sum(each.facts["seconds"] for each in runs)
    print(f"{len(runs)} runs on {cores} cores: {wall:.1f} s, their own time {own:.1f} s in all")
    print(f"wall / (own / cores) = {wall / (own / cores):.3f} (target at most 1.2)")
    return {"wall": Figure(wall / (own / cores))}


if __name__ == "__main__":
    main()
