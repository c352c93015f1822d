"""An experiment from a TOML file: run it on all cores, read the results as tables, draw the report."""

import tempfile
from pathlib import Path

import polars as pl

import misspec as ms

TOML = b"""
title = "How much does it cost not to know how wrong the model is?"
horizon = 500
seeds = 3
epsilons = [0.0, 0.1, 0.2]

[domain]
box = [[0, 1]]
grid = 100

[model]
kernel = { name = "RBF", length_scale = 0.2 }
norm_bound = 2.0
noise = 0.1

[[problems]]
misfit = "ripple"
wavelength = 0.03

[[policies]]
name = "GP-UCB"
kind = "GPUCB"

[[policies]]
name = "known"
kind = "ECGPUCB"

[[policies]]
name = "unknown"
kind = "RegretBalancing"
"""

if __name__ == "__main__":  # worker processes import this file
    folder = Path(tempfile.mkdtemp()) / "results"
    ms.experiments.go(TOML, folder)
    results = ms.experiments.results(folder)
    regret = pl.DataFrame(
        [{"epsilon": r.epsilon, "policy": r.run.policy, "regret": r.table["regret"].mean()} for r in results.runs]
    )
    print("regret per round, mean over the seeds, by ε")
    print(
        regret.group_by("epsilon", "policy")
        .agg(pl.col("regret").mean())
        .pivot("policy", index="epsilon")
        .sort("epsilon")
    )
    print("page:", ms.reports.of_experiment(folder).page)
