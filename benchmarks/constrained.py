"""ms.Auto beside Ax, BayBE and random search on mixtures and under rules.

    MISSPEC_DATA=… python benchmarks/constrained.py [--seeds 10] [--only NAME …]
    MISSPEC_DATA=… python benchmarks/constrained.py --peers [--names BayBE …]  # compute what is missing
    MISSPEC_DATA=… python benchmarks/constrained.py --table [--names NAME]     # what is kept

Same seeds and noise for all. Peers' runs are kept in `constrained_peers.json` beside this file, regret curves only.
Each tool gets a problem in the way that its documentation has for it, at its defaults:

- Ax (`Client`): parameter constraints as text. A mixture leaves its last share out, the others sum to the total at
  most. Ax has no limit on how many are not zero, and no list of rows: it plays neither. Of rules it takes linear
  ones: of x0 and x1, whose product is limited, it gets the logarithms.
- BayBE (`Campaign`): linear constraints, a cardinality constraint, rows of a table as `SearchSpace.from_dataframe`.
  Rules that are not linear only work on rows: it gets 20,000 legal points of a grid. Log scales are the user's to take.
  Where its mixture has more shares than it may, the largest are taken.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is imported

import dataclasses
import logging
import math
import warnings
from pathlib import Path
from typing import Any

import constrained_problems as problems
import constrained_runs as runs
import numpy as np
import tables

KEPT = Path(__file__).with_name("constrained_peers.json")
ROWS, STEP = 20_000, 0.01  # of BayBE's where it needs a list
TRIES = 5  # of Ax in a round whose points break a rule
LEAST = 1e-3  # of a parameter of which Ax gets the logarithm
SLOW_SEEDS, SLOWEST = 5, 3  # of tools that take more than a second of CPU per round, or more than four


def p3ht_rows() -> Any:
    return _renamed(tables.p3ht(), "P3HT, rows")


def perovskite_rows() -> Any:
    return _renamed(tables.perovskite(), "perovskite, rows")


def _renamed(table: tables.Table | None, name: str) -> tables.Table | None:
    return None if table is None else dataclasses.replace(table, name=name)


PROBLEMS = [problems.p3ht, problems.p3ht_few, problems.perovskite, problems.reactor, problems.hartmann_rules,
            p3ht_rows, perovskite_rows]  # fmt: skip


# -- Ax ------------------------------------------------------------------------------------------------------


class Ax:
    def __init__(self, task: Any, seed: int, rounds: int) -> None:  # noqa: ARG002
        from ax.api.client import Client

        _quiet()
        self.task, self.refused = task, 0
        self.logs = {name for each in task.linear if each.on_log for name in each.weights}
        self.client = Client(random_seed=seed)
        rules = [_ax_rule(each) for each in task.linear]
        self.client.configure_experiment(parameters=self._parameters(), parameter_constraints=rules or _ax_total(task))
        self.client.configure_optimization(objective="y")

    def _parameters(self) -> list[Any]:
        from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

        mixture = self.task.mixture
        if mixture is not None:
            return [RangeParameterConfig(name=name, parameter_type="float", bounds=(0.0, mixture.total))
                    for name in mixture.names[:-1]]  # fmt: skip
        made: list[Any] = []
        for name, (kind, *rest) in self.task.params.items():
            if kind == "choice":
                choice = ChoiceParameterConfig(name=name, parameter_type="str", values=list(rest[0]), is_ordered=False)
                made.append(choice)
                continue
            low, high, scale = rest
            if name in self.logs:
                low, high = math.log(max(low, LEAST)), math.log(high)
            scaling = "log" if scale else None
            made.append(RangeParameterConfig(name=name, parameter_type="float", bounds=(low, high), scaling=scaling))
        return made

    def ask(self) -> dict[str, Any]:
        for _ in range(TRIES):
            ((self.trial, x),) = self.client.get_next_trials(max_trials=1).items()
            whole = self._whole(dict(x))
            if self.task.legal(whole):
                return whole
            self.refused += 1
            self.client.mark_trial_failed(self.trial)
        raise RuntimeError(f"Ax breaks the rules of {self.task.name} by more than rounding: {whole}")

    def _whole(self, x: dict[str, Any]) -> dict[str, Any]:
        """With the share that is left out of a mixture, and without logarithms."""
        mixture = self.task.mixture
        if mixture is not None:
            x[mixture.names[-1]] = max(0.0, mixture.total - sum(x.values()))
        return {name: math.exp(value) if name in self.logs else value for name, value in x.items()}

    def tell(self, x: dict[str, Any], y: float) -> None:  # noqa: ARG002
        self.client.complete_trial(self.trial, raw_data={"y": y})

    def recommended(self) -> dict[str, Any]:
        return self._whole(dict(self.client.get_best_parameterization()[0]))


def _ax_rule(rule: problems.Linear) -> str:
    return f"{' + '.join(f'{weight} * {name}' for name, weight in rule.weights.items())} <= {rule.most}"


def _ax_total(task: Any) -> list[str]:
    return [f"{' + '.join(task.mixture.names[:-1])} <= {task.mixture.total}"]


# -- BayBE ---------------------------------------------------------------------------------------------------


class BayBE:
    def __init__(self, task: Any, seed: int, rounds: int) -> None:  # noqa: ARG002
        from baybe import Campaign
        from baybe.objectives import SingleTargetObjective
        from baybe.targets import NumericalTarget
        from baybe.utils.random import set_random_seed

        _quiet()
        set_random_seed(seed)
        self.task, self.rows, self.refused = task, _listed(task, seed), 0
        space = _baybe_space(task) if self.rows is None else _baybe_rows(self.rows)
        self.campaign = Campaign(space, SingleTargetObjective(NumericalTarget(name="y")))

    def ask(self) -> Any:
        self.asked = self.campaign.recommend(batch_size=1)
        x = self._mended(self.asked.iloc[0].to_dict())
        if self.task.listed:
            return int(np.abs(self.rows - self.asked[list(self.rows)].iloc[0]).sum(axis=1).to_numpy().argmin())
        return {name: 10.0**value if _on_log(self.task, name) else value for name, value in x.items()}

    def _mended(self, x: dict[str, Any]) -> dict[str, Any]:
        """A mixture that breaks its own rule, as one would mix it: the largest shares that may be, and their total."""
        if self.task.listed or self.task.mixture is None or self.task.legal(x):
            return x
        self.refused += 1
        mixture = self.task.mixture
        shares = np.maximum([x[name] for name in mixture.names], 0.0)
        shares[np.argsort(-shares)[mixture.at_most or len(shares) :]] = 0.0
        x |= dict(zip(mixture.names, (shares * mixture.total / shares.sum()).tolist(), strict=True))
        self.asked = self.asked.assign(**x)
        return x

    def tell(self, x: Any, y: float) -> None:  # noqa: ARG002
        self.campaign.add_measurements(self.asked.assign(y=y))


def _on_log(task: Any, name: str) -> bool:
    return not task.listed and name in task.params and task.params[name][0] == "float" and task.params[name][3]


def _listed(task: Any, seed: int) -> Any:
    """The rows among which BayBE chooses; None where its constraints can say the problem."""
    import pandas as pd

    if task.listed:
        return pd.DataFrame(task.rows)
    if not any(each.on_log for each in task.linear):
        return None
    found = task.grid(np.random.default_rng([seed, 17]), ROWS, STEP)
    return pd.DataFrame(found, columns=list(task.params))


def _baybe_rows(rows: Any) -> Any:
    """As `SearchSpace.from_dataframe` makes it, which needs minutes for so many rows."""
    from baybe.parameters import NumericalDiscreteParameter
    from baybe.searchspace import SearchSpace
    from baybe.searchspace.discrete import SubspaceDiscrete

    numbers = [NumericalDiscreteParameter(name, sorted(set(rows[name]))) for name in rows]
    return SearchSpace(discrete=SubspaceDiscrete(parameters=numbers, exp_rep=rows))


def _baybe_space(task: Any) -> Any:
    from baybe.constraints import ContinuousCardinalityConstraint, ContinuousLinearConstraint
    from baybe.parameters import CategoricalParameter, NumericalContinuousParameter
    from baybe.searchspace import SearchSpace

    mixture = task.mixture
    if mixture is not None:
        names = list(mixture.names)
        shares = [NumericalContinuousParameter(name, (0.0, mixture.total)) for name in names]
        rules: list[Any] = [ContinuousLinearConstraint(names, "=", [1.0] * len(names), mixture.total)]
        if mixture.at_most:
            rules.append(ContinuousCardinalityConstraint(names, max_cardinality=mixture.at_most))
        return SearchSpace.from_product(shares, rules)
    made: list[Any] = []
    for name, (kind, *rest) in task.params.items():
        if kind == "choice":
            made.append(CategoricalParameter(name, list(rest[0])))
        else:
            low, high = (math.log10(each) if rest[2] else each for each in rest[:2])
            made.append(NumericalContinuousParameter(name, (low, high)))
    rules = [ContinuousLinearConstraint(list(each.weights), "<=", list(each.weights.values()), each.most)
             for each in task.linear]  # fmt: skip
    return SearchSpace.from_product(made, rules)


def _quiet() -> None:
    import torch

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")


TOOLS: dict[str, Any] = {"random": runs.Random, "BayBE": BayBE, "Ax": Ax}


def plays(name: str, task: Any) -> bool:
    return name != "Ax" or not (task.listed or (task.mixture is not None and task.mixture.at_most))


def seeds_of(name: str, task: Any) -> int:
    if name == "BayBE" and task.name in ("reactor", "P3HT, at most 3"):
        return SLOWEST
    return runs.SEEDS if name == "random" else SLOW_SEEDS


def play_misspec(task: Any, seed: int, rounds: int) -> Any:
    return runs.play_misspec(task, seed, rounds)


def versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("ax-platform", "baybe", "botorch", "gpytorch", "torch")}


if __name__ == "__main__":
    runs.main(__doc__, KEPT, PROBLEMS, TOOLS, plays, seeds_of, versions)
