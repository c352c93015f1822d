"""Mixed spaces of floats, integers and choices, for `practical.py`: functions whose best value is known."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tasks


@dataclasses.dataclass(frozen=True, eq=False)
class Mixed:
    """params: as `ms.Space` has them, ("float", low, high, log), ("int", low, high) or ("choice", options)."""

    name: str
    params: dict[str, tuple[Any, ...]]
    value: Callable[[dict[str, Any]], float]
    best: float
    least: float
    share: float = 0.02
    listed = False
    columns = None
    bounds = None

    @property
    def span(self) -> float:
        return self.best - self.least

    @property
    def noise(self) -> float:
        return self.share * self.span

    @property
    def domain(self) -> Any:
        import misspec as ms

        made: dict[str, Any] = {}
        for name, (kind, *rest) in self.params.items():
            if kind == "float":
                made[name] = ms.Float(rest[0], rest[1], log=rest[2])
            else:
                made[name] = ms.Int(*rest) if kind == "int" else ms.Choice(list(rest[0]))
        return ms.Space(made)

    def suggested(self, trial: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, (kind, *rest) in self.params.items():
            if kind == "float":
                found[name] = trial.suggest_float(name, rest[0], rest[1], log=rest[2])
            elif kind == "int":
                found[name] = trial.suggest_int(name, *rest)
            else:
                found[name] = trial.suggest_categorical(name, list(rest[0]))
        return found

    def draws(self, seed: int, rounds: int) -> np.ndarray:
        return self.noise * np.random.default_rng([seed, 11]).standard_normal(rounds)

    def observed(self, x: dict[str, Any], draw: float) -> float:
        return self.value(x) + float(draw)

    def regret(self, x: dict[str, Any]) -> float:
        return (self.best - self.value(x)) / self.span

    def first(self, seed: int, count: int = tasks.FEWEST) -> list[dict[str, Any]]:
        rng = np.random.default_rng([seed, 7])
        return [self._drawn(rng) for _ in range(count)]

    def _drawn(self, rng: np.random.Generator) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, (kind, *rest) in self.params.items():
            if kind == "float":
                low, high = (math.log(each) if rest[2] else each for each in rest[:2])
                drawn = float(rng.uniform(low, high))
                found[name] = math.exp(drawn) if rest[2] else drawn
            elif kind == "int":
                found[name] = int(rng.integers(rest[0], rest[1] + 1))
            else:
                found[name] = rest[0][int(rng.integers(len(rest[0])))]
        return found

    def digest(self) -> str:
        values = np.round([self.value(x) for x in self.first(0, 64)], 9)
        return hashlib.sha256(repr((self.name, self.params, self.share)).encode() + values.tobytes()).hexdigest()[:16]


def _mixed(name: str, params: dict[str, tuple[Any, ...]], value: Callable[[dict[str, Any]], float], best: float) -> Any:
    """best: of the values; the least is that of many random points."""
    task = Mixed(name, params, value, best, 0.0)
    values = [value(x) for x in task.first(1, 20000)]
    assert max(values) <= best + 1e-9
    return dataclasses.replace(task, least=float(np.min(values)))


def solvents() -> Any:
    """Two choices of many options, most of them poor, beside temperature and concentration."""
    rng = np.random.default_rng(51)
    ligands, solvents = [f"L{i}" for i in range(10)], [f"S{i}" for i in range(6)]
    L, S, joint = rng.normal(0, 0.5, 10), rng.normal(0, 0.4, 6), rng.normal(0, 0.25, (10, 6))
    heat = 0.2 + 0.6 * rng.random(10)

    def value(x: dict[str, Any]) -> float:
        i, j = int(x["ligand"][1:]), int(x["solvent"][1:])
        t = (x["temperature"] - 40.0) / 100.0
        c = math.log(x["concentration"] / 0.05) / math.log(40.0)
        shape = -2.0 * (t - heat[i]) ** 2 - 0.8 * (c - 0.6) ** 2 - 0.6 * t * c
        return float(L[i] + S[j] + joint[i, j] + shape)

    t, c = np.meshgrid(np.linspace(0, 1, 801), np.linspace(0, 1, 801), indexing="ij")
    tops = [L[i] + (S + joint[i]).max()
            + (-2.0 * (t - heat[i]) ** 2 - 0.8 * (c - 0.6) ** 2 - 0.6 * t * c).max() for i in range(10)]  # fmt: skip
    params = {"ligand": ("choice", ligands), "solvent": ("choice", solvents),
              "temperature": ("float", 40.0, 140.0, False), "concentration": ("float", 0.05, 2.0, True)}  # fmt: skip
    return _mixed("ligands and solvents", params, value, float(max(tops)) + 1e-5)


def learner() -> Any:
    """A loss as tuners meet it: log scales, integers, an option that changes what is best, a cliff."""

    def value(x: dict[str, Any]) -> float:
        rate, decay, depth, width = math.log10(x["rate"]), math.log10(x["decay"]), x["depth"], math.log2(x["width"])
        ideal = {"adam": -2.7, "sgd": -1.2, "rmsprop": -3.1}[x["optimizer"]]
        loss = (
            0.35 * (rate - ideal) ** 2 + 0.05 * (decay + 4.2) ** 2 + 0.04 * (depth - 5) ** 2 + 0.03 * (width - 7.3) ** 2
        )
        loss += {"adam": 0.0, "sgd": 0.04, "rmsprop": 0.1}[x["optimizer"]] + (0.0 if x["norm"] == "layer" else 0.08)
        if rate > ideal + 0.9:  # it diverges
            loss += 0.8
        return -math.log1p(loss)

    params = {"rate": ("float", 1e-5, 1.0, True), "decay": ("float", 1e-7, 1e-1, True), "depth": ("int", 1, 12),
              "width": ("int", 8, 1024), "optimizer": ("choice", ["adam", "sgd", "rmsprop"]),
              "norm": ("choice", ["none", "layer"])}  # fmt: skip
    return _mixed("a learner", params, value, -math.log1p(0.03 * (math.log2(158) - 7.3) ** 2) + 1e-9)


def pipeline() -> Any:
    """Six switches and three numbers, two of which matter with some switches only."""
    rng = np.random.default_rng(53)
    gain, pairs = rng.normal(0, 0.4, 6), np.triu(rng.normal(0, 0.3, (6, 6)), 1)
    names = [f"s{i}" for i in range(6)]

    def parts(on: np.ndarray, a: Any, b: Any, c: Any) -> Any:
        return gain @ on + on @ pairs @ on - 0.05 * (a - 6) ** 2 * on[0] - 2.0 * (b - 0.7) ** 2 * on[1] - (c - 0.3) ** 2

    def value(x: dict[str, Any]) -> float:
        return float(parts(np.array([x[name] == "on" for name in names], float), x["a"], x["b"], x["c"]))

    tops = [parts(np.array([(mask >> i) & 1 for i in range(6)], float), 6, 0.7, 0.3) for mask in range(64)]
    params: dict[str, tuple[Any, ...]] = {name: ("choice", ["off", "on"]) for name in names}
    params |= {"a": ("int", 1, 12), "b": ("float", 0.0, 1.0, False), "c": ("float", 0.0, 1.0, False)}
    return _mixed("six switches", params, value, float(max(tops)))
