"""ms.Auto with limits on a second quantity: violations late in a run, and what is missed of the best that keeps them.

    python benchmarks/limits.py [--only NAME …] [--seeds 10] [--players auto known tpe] [--which seen | left-out]

breaks   share of the domain that breaks the limits
late     share of queries in the second half that break them; where nothing is left to try, there are fewer queries
missed   (best value that keeps them − best such value found)/range of the values that keep them
said     the same of the recommendation; "broken": how many recommendations break the limits; "P": what it says of that
known    the same Auto on a list of what keeps the limits: of a box 1,000 points with the best one among them
tpe      Optuna's TPESampler with constraints_func

Constants of `auto/limits.py` were chosen by the problems "seen"; those "left-out" were looked at once, at the end.
Tables are read from MISSPEC_DATA, and problems on tables that are not there are left out.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is imported

import argparse
import csv
import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import misspec as ms
from misspec.limits import read_limits

DENSE, LISTED = 1 << 15, 1000  # points by which ranges are known, and of which the list of "known" is
DATA = Path(os.environ.get("MISSPEC_DATA", "../shared/data"))
Values = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Problem:
    """f and the limited quantities of a dict of values (of x0, x1, … on a Box); larger is better. noise: of both."""

    name: str
    domain: Any
    limits: Sequence[str]
    value: Callable[[Values], float]
    beside: Callable[[Values], Values]
    noise: float = 0.0
    rounds: int = 60
    seen: bool = True

    def params(self, x: np.ndarray) -> Values:
        if isinstance(self.domain, ms.Finite):
            return dict(self.domain.rows[int(self.domain.indices(x[None, :])[0])])
        if isinstance(self.domain, ms.Space):
            return dict(self.domain.params(x))
        return {f"x{i}": float(v) for i, v in enumerate(x)}

    def keeps(self, v: Values) -> bool:
        found = self.beside(v)
        return all(bool(each.holds(found[each.name])) for each in read_limits(self.limits))

    def world(self) -> tuple[float, float, float, np.ndarray, np.ndarray]:
        """The best value that keeps the limits, the range of such values, the share that breaks them; the rows of
        what keeps them among points, and these."""
        listed = isinstance(self.domain, ms.Finite)
        points = self.domain.points if listed else self.domain.decode(self.domain.spread(DENSE, 0))
        known = [self.params(x) for x in points]
        keeps, values = np.array([self.keeps(v) for v in known]), np.array([self.value(v) for v in known])
        breaks = float(1 - keeps.mean())
        if not listed:  # closer to the best
            rng = np.random.default_rng(0)
            best = points[np.flatnonzero(keeps)[values[keeps].argmax()]]
            for _ in range(20):
                near = self.domain.decode(self.domain.around(self.domain.encode(best[None, :]), rng, 400))
                right = [x for x in near if self.keeps(self.params(x))]
                best = max([best, *right], key=lambda x: self.value(self.params(x)))
            points, keeps = np.concatenate([best[None, :], points]), np.append(True, keeps)
            values = np.append(self.value(self.params(best)), values)
        return float(values[keeps].max()), float(np.ptp(values[keeps])), breaks, np.flatnonzero(keeps), points


# -- problems ---------------------------------------------------------------------------------------------------------


def hill(v: Values, at: Sequence[float], width: float) -> float:
    return float(np.exp(-sum((v[f"x{i}"] - c) ** 2 for i, c in enumerate(at)) / (2 * width**2)))


def waves(v: Values) -> float:
    return float(np.sin(6 * v["x0"]) * np.cos(5 * v["x1"]) + v["x0"] + 0.5 * v["x1"])


def hartmann(v: Values) -> float:
    A = np.array([[10, 3, 17, 3.5], [0.05, 10, 17, 0.1], [3, 3.5, 1.7, 10], [17, 8, 0.05, 10]])
    centres = [[1312, 1696, 5569, 124], [2329, 4135, 8307, 3736], [2348, 1451, 3522, 2883], [4047, 8828, 8732, 5743]]
    P = 1e-4 * np.array(centres)
    x = np.array([v[f"x{i}"] for i in range(4)])
    return float(np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-(A * (x - P) ** 2).sum(axis=1)))


def rows_of(name: str) -> list[dict[str, str]]:
    path = DATA / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8-sig") as lines:
        return list(csv.DictReader(lines))


def table(
    name: str, limit: str, target: str, beside: Callable[[Values], Values], *, sign: float, seen: bool
) -> list[Problem]:
    """A problem whose results are the averages of a table's rows."""
    rows = rows_of(name)
    if not rows:
        return []
    names = [each for each in rows[0] if each != target]
    results: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        results.setdefault(tuple(row[each] for each in names), []).append(sign * float(row[target]))
    columns = {}
    for j, each in enumerate(names):
        cells = [key[j] for key in results]
        try:
            columns[each] = [float(cell) for cell in cells]
        except ValueError:
            columns[each] = cells
    keys = list(zip(*columns.values(), strict=True))
    value = dict(zip(keys, (float(np.mean(y)) for y in results.values()), strict=True))
    domain = ms.Finite.from_table(columns)

    def f(v: Values) -> float:
        return value[tuple(v[each] for each in names)]

    return [Problem(f"{name}, {limit}", domain, [limit], f, beside, seen=seen)]


def mass(v: Values) -> Values:
    """Of a crossed barrel: n struts, hollow, twisted by theta."""
    r, t = v["r"], v["t"]
    return {"mass": v["n"] * (r**2 - (r - t) ** 2 if t < r else r**2) * (1 + (v["theta"] / 200) ** 2)}


def silver(v: Values) -> Values:
    return {"silver": 0.01 * v["QAgNO3(%)"] * v["Qtot(uL/min)"]}


def cost(v: Values) -> Values:
    """Of a reaction: longer names are larger molecules; heat and concentration cost too."""
    material = 0.02 * len(v["ligand"]) + 0.03 * len(v["base"]) + 3 * v["concentration"]
    return {"cost": material + 0.01 * (v["temperature"] - 90)}


MIXED = ms.Space({
    "kind": ms.Choice(("a", "b", "c")),
    "rate": ms.Float(1e-3, 1.0, log=True),
    "load": ms.Float(0, 1),
})  # fmt: skip


def mixed(v: Values) -> float:
    best = {"a": -1.0, "b": -1.6, "c": -0.8}[v["kind"]]
    return {"a": 0.2, "b": 0.5, "c": 0.7}[v["kind"]] - (np.log10(v["rate"]) - best) ** 2 / 2 + v["load"]


def mixed_beside(v: Values) -> Values:
    heat = {"a": 0.1, "b": 0.3, "c": 0.6}[v["kind"]] + 0.8 * v["load"] ** 2 + 0.2 * np.log10(v["rate"])
    return {"heat": heat, "life": 100 * np.exp(-2 * v["load"] - v["rate"])}


def problems() -> list[Problem]:
    return [
        Problem("2-d, on the border", ms.Box([(0, 1)] * 2), ["c < 0.7"], waves,
                lambda v: {"c": v["x0"] ** 2 + 0.5 * np.sin(2 * v["x1"])}, noise=0.02),
        Problem("2-d, 5 % keep it", ms.Box([(0, 1)] * 2), ["c >= 0.75"], waves,
                lambda v: {"c": hill(v, (0.3, 0.8), 0.17)}),
        Problem("4-d, on the border", ms.Box([(0, 1)] * 4), ["c <= 0"], hartmann,
                lambda v: {"c": sum(v[f"x{i}"] for i in range(4)) + 0.5 * np.sin(6 * v["x0"]) - 1.2}, noise=0.02),
        *table("crossed_barrel", "mass < 25", "toughness", mass, sign=1.0, seen=True),
        Problem("options, two limits", MIXED, ["heat < 0.6", "life > 30"], mixed, mixed_beside, noise=0.01, seen=False),
        Problem("6-d, far from the best", ms.Box([(0, 1)] * 6), ["c < 1"],
                lambda v: hill(v, [0.9, 0.1, 0.6, 0.6, 0.6, 0.3], 0.5),
                lambda v: {"c": 4 * sum((v[f"x{i}"] - 0.35) ** 2 for i in (0, 1, 2)) + v["x3"]},
                noise=0.01, seen=False),
        *table("agnp", "silver < 60", "loss", silver, sign=-1.0, seen=False),
        *table("direct_arylation", "cost < 2.1", "yield", cost, sign=1.0, seen=False),
    ]  # fmt: skip


# -- players ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Run:
    """broke: of each query; missed and said as above; p: what was said of the recommendation."""

    broke: list[bool]
    missed: float
    said: float
    p: float
    seconds: float

    @property
    def late(self) -> float:
        return float(np.mean(self.broke[len(self.broke) // 2 :]))


def auto(problem: Problem, world: Any, seed: int, domain: Any = None) -> Run:
    """One run of Auto; domain: a list of what keeps the limits, and none then."""
    best, width = world[:2]
    limits = None if domain is not None else list(problem.limits)
    policy = ms.Auto(problem.domain if domain is None else domain, limits=limits, seed=seed)
    rng, size = np.random.default_rng([seed, 99]), problem.noise * width
    broke, found, began = [], -np.inf, time.process_time()
    for _ in range(problem.rounds):
        try:
            query = policy.ask()
        except ms.HorizonReached:  # nothing is left that may keep the limits
            break
        v = problem.params(query.x)
        y = problem.value(v)
        broke.append(not problem.keeps(v))
        found = found if broke[-1] else max(found, y)
        beside = {name: c + problem.noise * rng.standard_normal() for name, c in problem.beside(v).items()}
        policy.tell(query, y + size * rng.standard_normal(), limits=None if limits is None else beside)
    seconds = (time.process_time() - began) / problem.rounds
    policy.refresh()
    use = policy.recommend()
    v = problem.params(use.x)
    said = (best - problem.value(v)) / width if problem.keeps(v) else np.inf
    return Run(broke, (best - found) / width, said, use.probability or np.nan, seconds)


def known(problem: Problem, world: Any, seed: int) -> Run:
    """Auto that is offered what keeps the limits."""
    rows, points = world[3:]
    if isinstance(problem.domain, ms.Finite):
        kept = [problem.domain.rows[row] for row in rows]
    elif isinstance(problem.domain, ms.Space):
        kept = [problem.params(x) for x in points[rows][:LISTED]]
    else:
        return auto(problem, world, seed, ms.Finite(points[rows][:LISTED], box=problem.domain))
    listed = ms.Finite.from_table({name: [row[name] for row in kept] for name in kept[0]})
    return auto(dataclasses.replace(problem, domain=listed), world, seed, listed)


def tpe(problem: Problem, world: Any, seed: int) -> Run:
    """Optuna's TPESampler with constraints; of a table, the nearest row counts."""
    import optuna

    from misspec.integrations.optuna import distributions_of

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    best, width = world[:2]
    limits = read_limits(problem.limits)
    sampler = optuna.samplers.TPESampler(
        seed=seed, multivariate=True, constraints_func=lambda trial: trial.user_attrs["c"]
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    rng, broke, found = np.random.default_rng([seed, 99]), [], -np.inf
    domain, listed = problem.domain, isinstance(problem.domain, ms.Finite)
    if listed:
        space = ms.Space(domain.parameters)
    else:
        boxed = {f"x{i}": ms.Float(*pair) for i, pair in enumerate(getattr(domain, "bounds", ()))}
        space = domain if isinstance(domain, ms.Space) else ms.Space(boxed)
    began = time.process_time()
    for _ in range(problem.rounds):
        trial = study.ask(distributions_of(space))
        v = dict(trial.params)
        if listed:
            x = domain.encode(space.validate([v]))
            v = problem.params(domain.points[int(((domain.encoded - x) ** 2).sum(axis=1).argmin())])
        y, beside = problem.value(v), problem.beside(v)
        broke.append(not problem.keeps(v))
        found = found if broke[-1] else max(found, y)
        noise = problem.noise * rng.standard_normal(len(limits))
        trial.set_user_attr(
            "c", [limit.side * (beside[limit.name] + e - limit.bound) for limit, e in zip(limits, noise, strict=True)]
        )
        study.tell(trial, y + problem.noise * width * rng.standard_normal())
    return Run(broke, (best - found) / width, np.nan, np.nan, (time.process_time() - began) / problem.rounds)


PLAYERS: dict[str, Callable[[Problem, Any, int], Run]] = {"auto": auto, "known": known, "tpe": tpe}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--players", nargs="*", default=list(PLAYERS), choices=list(PLAYERS))
    parser.add_argument("--which", default="seen", choices=["seen", "left-out"])
    given = parser.parse_args()
    heads = f"{'late':>6}{'all':>6}{'missed':>8}{'worst':>8}{'said':>8}{'broken':>7}{'P':>6}{'ms/ask':>8}"
    print(f"{'problem':28}{'breaks':>7} {'player':7}{heads}")
    for problem in problems():
        if problem.seen != (given.which == "seen") or (given.only and problem.name not in given.only):
            continue
        world = problem.world()
        for name in given.players:
            runs = [PLAYERS[name](problem, world, seed) for seed in range(given.seeds)]
            missed, said = np.array([r.missed for r in runs]), np.array([r.said for r in runs])
            right = said[np.isfinite(said)]
            print(
                f"{problem.name:28}{world[2]:7.2f} {name:7}{np.mean([r.late for r in runs]):6.2f}"
                f"{np.mean([np.mean(r.broke) for r in runs]):6.2f}{missed.mean():8.3f}{missed.max():8.3f}"
                f"{right.mean() if len(right) else np.nan:8.3f}{int(np.isinf(said).sum()):7d}"
                f"{np.mean([r.p for r in runs]):6.2f}{1e3 * np.mean([r.seconds for r in runs]):8.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
