"""ms.Auto beside Optuna's TPE, SMAC and random search where parameters exist only sometimes, crashes included.

    python benchmarks/conditional.py [--seeds 10] [--only NAME …]
    python benchmarks/conditional.py --peers [--names SMAC …]     # compute what is missing of the peers' runs
    python benchmarks/conditional.py --table [--names NAME]       # what is kept; differences of NAME to the others

Same seeds and noise for all. Peers' runs are kept in `conditional_peers.json` beside this file. Peers as their defaults
have them: TPE with `multivariate=True, group=True` and without; SMAC's HyperparameterOptimizationFacade, told that
results are deterministic, which saves it the repetitions of its best setting. An evaluation that crashes is FAIL to
Optuna and CRASHED to SMAC, at the worst cost so far. Optuna's TPE does not learn from what is FAIL, and so runs into
the same again: a second TPE is told the worst result so far instead, as one who notices would do.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is imported

import logging
import math
import tempfile
import warnings
from pathlib import Path
from typing import Any

import constrained_problems as problems
import constrained_runs as runs

KEPT = Path(__file__).with_name("conditional_peers.json")
PROBLEMS = [problems.classifier, problems.branches, problems.crashes]


class TPE:
    """crashes_count: they are told as the worst result so far; otherwise Optuna's TPE does not learn from them."""

    def __init__(self, task: Any, seed: int, rounds: int, crashes_count: bool = False, **settings: Any) -> None:  # noqa: ARG002
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore")
        self.task = task
        self.study = optuna.create_study(
            direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, **settings)
        )
        self.crashes_count, self.worst = crashes_count, math.inf
        self.failed = optuna.trial.TrialState.FAIL

    def ask(self) -> dict[str, Any]:
        self.trial = self.study.ask()
        x: dict[str, Any] = {}
        for name, (kind, *rest) in self.task.params.items():
            if not self.task.exists(name, x):
                continue
            if kind == "float":
                x[name] = self.trial.suggest_float(name, rest[0], rest[1], log=rest[2])
            elif kind == "int":
                x[name] = self.trial.suggest_int(name, *rest)
            else:
                x[name] = self.trial.suggest_categorical(name, list(rest[0]))
        return x

    def tell(self, x: dict[str, Any], y: float) -> None:  # noqa: ARG002
        if math.isfinite(y):
            self.worst = min(self.worst, y)
            self.study.tell(self.trial, y)
        elif self.crashes_count and math.isfinite(self.worst):
            self.study.tell(self.trial, self.worst)
        else:
            self.study.tell(self.trial, state=self.failed)


def grouped(task: Any, seed: int, rounds: int) -> TPE:
    return TPE(task, seed, rounds, multivariate=True, group=True)


def counting(task: Any, seed: int, rounds: int) -> TPE:
    return TPE(task, seed, rounds, crashes_count=True, multivariate=True, group=True)


class SMAC:
    def __init__(self, task: Any, seed: int, rounds: int) -> None:
        from smac import HyperparameterOptimizationFacade, Scenario

        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        self.folder = tempfile.TemporaryDirectory()
        scenario = Scenario(_config_space(task, seed), deterministic=True, n_trials=rounds, seed=seed,
                            output_directory=Path(self.folder.name))  # fmt: skip
        self.smac = HyperparameterOptimizationFacade(scenario, _never_called, overwrite=True, logging_level=False)
        self.worst = 0.0

    def ask(self) -> dict[str, Any]:
        self.trial = self.smac.ask()
        return dict(self.trial.config)

    def tell(self, x: dict[str, Any], y: float) -> None:  # noqa: ARG002
        from smac.runhistory.dataclasses import TrialValue
        from smac.runhistory.enumerations import StatusType

        worked = math.isfinite(y)
        self.worst = max(self.worst, -y) if worked else self.worst
        status = StatusType.SUCCESS if worked else StatusType.CRASHED
        self.smac.tell(self.trial, TrialValue(cost=-y if worked else self.worst, status=status), save=False)


def _never_called(config: Any, seed: int = 0) -> float:
    raise NotImplementedError


def _config_space(task: Any, seed: int) -> Any:
    import ConfigSpace

    space, made = ConfigSpace.ConfigurationSpace(seed=seed), {}
    for name, (kind, *rest) in task.params.items():
        if kind == "float":
            made[name] = ConfigSpace.Float(name, (rest[0], rest[1]), log=rest[2])
        else:
            made[name] = (
                ConfigSpace.Integer(name, tuple(rest))
                if kind == "int"
                else ConfigSpace.Categorical(name, list(rest[0]))
            )
    space.add(list(made.values()))
    for name, conditions in task.when.items():
        parts = [
            ConfigSpace.InCondition(made[name], made[other], values if isinstance(values, list) else [values])
            for other, values in conditions.items()
        ]
        space.add(parts[0] if len(parts) == 1 else ConfigSpace.AndConjunction(*parts))
    return space


COUNTING = "Optuna TPE, group, crashes worst"
TOOLS: dict[str, Any] = {
    "Optuna TPE, multivariate group": grouped,
    COUNTING: counting,
    "Optuna TPE": TPE,
    "random": runs.Random,
    "SMAC": SMAC,
}


def plays(name: str, task: Any) -> bool:
    return name != COUNTING or task.name == "crashes"


def seeds_of(name: str, task: Any) -> int:  # noqa: ARG001
    return runs.SEEDS


def play_misspec(task: Any, seed: int, rounds: int) -> Any:
    return runs.play_misspec(task, seed, rounds)


def versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("optuna", "smac", "ConfigSpace", "scikit-learn")}


if __name__ == "__main__":
    runs.main(__doc__, KEPT, PROBLEMS, TOOLS, plays, seeds_of, versions)
