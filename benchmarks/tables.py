"""Recorded tables with gaps and replicates, from the folder that MISSPEC_DATA names, for `practical.py`.

Rows are distinct settings. Where a setting was measured several times, a round replays one of its readings, and the
truth is their mean; other tables get Gaussian noise. Peers that need a full grid get the nearest row.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tasks


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """rows: settings by name; readings: those of each row, maximised; noise: a standard deviation beside them, as a
    share of the range. A reading that is not finite failed."""

    name: str
    rows: list[dict[str, Any]]
    readings: list[np.ndarray]
    share: float = 0.0
    listed = True
    columns = None
    bounds = None

    def __post_init__(self) -> None:
        truth = np.array([each.mean() for each in self.readings])
        works = truth[np.isfinite(truth)]
        values = {name: sorted({row[name] for row in self.rows}) for name in self.rows[0]}
        several = [each.var(ddof=1) for each in self.readings if len(each) > 1 and np.isfinite(each).all()]
        set_ = object.__setattr__
        set_(self, "truth", truth)
        set_(self, "best", float(works.max()))
        set_(self, "least", float(works.min()))
        set_(self, "span", float(np.ptp(works)))
        set_(self, "noise", math.hypot(self.share * self.span, math.sqrt(np.mean(several)) if several else 0.0))
        set_(self, "grid", values)
        set_(self, "coded", np.array([[values[name].index(row[name]) for name in values] for row in self.rows], float))

    @property
    def domain(self) -> Any:
        import misspec as ms

        return ms.Finite.from_table(self.rows)

    def nearest(self, positions: list[int]) -> int:
        """The row nearest to a combination of values, given by their positions."""
        apart = np.zeros(len(self.rows))
        for column, (values, place) in enumerate(zip(self.grid.values(), positions, strict=True)):
            away = np.abs(self.coded[:, column] - place)
            apart += (away > 0) if isinstance(values[0], str) else away / max(len(values) - 1, 1)
        return int(apart.argmin())

    def suggested(self, trial: Any) -> int:
        return self.nearest([
            values.index(trial.suggest_categorical(name, values)) if isinstance(values[0], str)
            else trial.suggest_int(name, 0, len(values) - 1)
            for name, values in self.grid.items()
        ])  # fmt: skip

    def one_hot(self) -> np.ndarray:
        parts = []
        for name, values in self.grid.items():
            column = [row[name] for row in self.rows]
            if isinstance(values[0], str):
                parts.append(np.eye(len(values))[[values.index(each) for each in column]])
            else:
                parts.append(((np.array(column) - values[0]) / (values[-1] - values[0]))[:, None])
        return np.concatenate(parts, axis=1)

    def draws(self, seed: int, rounds: int) -> np.ndarray:
        rng = np.random.default_rng([seed, 11])
        return np.column_stack([rng.random(rounds), rng.standard_normal(rounds)])

    def observed(self, x: Any, draw: np.ndarray) -> float:
        readings = self.readings[int(x)]
        return float(readings[int(draw[0] * len(readings))] + self.share * self.span * draw[1])

    def regret(self, x: Any) -> float:
        """As a share of the range; 1 where it fails."""
        value = float(self.truth[int(x)])
        return (self.best - value) / self.span if math.isfinite(value) else 1.0

    def first(self, seed: int, count: int = tasks.FEWEST) -> list[int]:
        rng = np.random.default_rng([seed, 7])
        return [int(row) for row in rng.choice(len(self.rows), min(count, len(self.rows)), replace=False)]

    def digest(self) -> str:
        kept = [self.name.encode(), repr(self.rows).encode(), *(each.tobytes() for each in self.readings)]
        return hashlib.sha256(b"".join([*kept, repr(self.share).encode()])).hexdigest()[:16]


def _read(
    name: str, settings: list[str], results: Callable[[dict[str, str]], list[float]], *, share: float = 0.0
) -> Table | None:
    """A table of a file: the readings of equal settings belong together."""
    path = Path(os.environ.get("MISSPEC_DATA", "")) / f"{name}.csv"
    if not os.environ.get("MISSPEC_DATA") or not path.exists():
        return None
    with path.open(newline="", encoding="utf-8-sig") as file:
        cells = [row for row in csv.DictReader(file) if any(row.values())]
    settings = settings or list(cells[0])[:-1]
    found: dict[tuple[Any, ...], list[float]] = {}
    for row in cells:
        found.setdefault(tuple(float(row[column]) for column in settings), []).extend(results(row))
    rows = [dict(zip(settings, key, strict=True)) for key in found]
    return Table(name, rows, [np.array(each) for each in found.values()], share)


def _last(row: dict[str, str]) -> float:
    return float(list(row.values())[-1])


def agnp() -> Table | None:
    return _read("agnp", [], lambda row: [-_last(row)])


def p3ht() -> Table | None:
    return _read("p3ht", [], lambda row: [math.log(_last(row))])


def perovskite() -> Table | None:
    return _read("perovskite", [], lambda row: [-math.log(_last(row))])


def crossed_barrel() -> Table | None:
    return _read("crossed_barrel", [], lambda row: [_last(row)])


def convolution() -> Table | None:
    """Run times of a GPU kernel; what does not compile or run fails."""
    settings = ["block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "read_only", "use_padding"]

    def results(row: dict[str, str]) -> list[float]:
        if row["status"] != "correct":
            return [math.nan]
        return [-math.log(float(row[f"ms_{i}"])) for i in range(32) if row[f"ms_{i}"]]

    return _read("gpu_convolution", settings, results)


def llvm() -> Table | None:
    return _read("llvm", [], lambda row: [-_last(row)], share=0.02)


def storm() -> Table | None:
    return _read("storm", [], lambda row: [_last(row)], share=0.02)


def apache() -> Table | None:
    return _read("apache", [], lambda row: [-_last(row)], share=0.02)
