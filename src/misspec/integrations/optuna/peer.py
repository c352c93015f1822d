"""Optuna's default sampler as a policy on a table: what the demo compares `ms.Auto` with."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from misspec.domains import Domain, Table
from misspec.errors import instance
from misspec.model import Model
from misspec.policies import Asked, Decision, UniformSampling


class TPE(UniformSampling):
    """x_t is chosen by Optuna's TPESampler: text is categorical, numbers are whole ones in their order. Bands and
    recommendation are those of the model, which the sampler does not see. It plays to the end and cannot be restored.
    """

    def __init__(self, domain: Domain, model: Model, *, seed: int = 0) -> None:
        super().__init__(domain, model, seed=seed)
        rows = instance("domain", domain, Table, "Finite.from_table makes one").rows
        levels = {name: list(dict.fromkeys(row[name] for row in rows)) for name in rows[0]}
        words = {name for name, values in levels.items() if isinstance(values[0], str)}
        self._distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values) if name in words else IntDistribution(0, len(values) - 1)
            for name, values in levels.items()
        }
        self._index = {
            tuple(row[name] if name in words else levels[name].index(row[name]) for name in levels): i
            for i, row in enumerate(rows)
        }
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))

    def choose(self, actions: Any) -> Decision:  # noqa: ARG002  # always the whole table
        trial = self._study.ask(self._distributions)
        row = self._index[tuple(trial.params[name] for name in self._distributions)]
        place = self.field.place(self.field.whole("TPE"), row)
        return Decision(place, None, {"details": {"trial": trial.number}})

    def on_tell(self, asked: Asked, y: float, noise: float | None = None) -> None:  # noqa: ARG002  # none
        super().on_tell(asked, y)
        self._study.tell(asked.details["trial"], y)
