"""The instances of `regret.py`, from benign to hostile: a list that is the same whenever it is made.

Every instance is a recipe, `problem(**recipe)`: numbers and names, so that a run is a function of its settings. σ is a
share of the range of f* (of f̃ where the misfit is sought, which is known before). Every third instance of a family is
held out: looked at once, when all choices are made. Misfits that `ms.adversary` has found stand in
regret_adversaries.json, with what the search reached.

    python benchmarks/regret_worlds.py      lists them
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

import misspec as ms
from misspec.problems import Gaussian, Problem

ADVERSARIES = Path(__file__).with_name("regret_adversaries.json")
WELL, MISFIT, ADVERSARIAL, RECOMMENDED = "well specified", "misfit", "adversarial", "sought against the recommended"
NORM_BOUND = 2.0
LENGTH_SCALES = {1: 0.15, 2: 0.3, 3: 0.45, 4: 0.6, 5: 0.8, 6: 1.0}  # by dimension; Matérn's are half as long again
STARTS = 3  # functions f̃ from which the search for a misfit starts


@dataclasses.dataclass(frozen=True)
class Instance:
    """One problem and how long it is played. against: the policy that its misfit is sought against, if any."""

    name: str
    family: str
    group: str
    horizon: int
    recipe: dict[str, Any]  # for `problem`
    against: str = ""
    held_out: bool = False

    @property
    def contextual(self) -> bool:
        return self.recipe["world"] in CONTEXTUAL

    @property
    def linear(self) -> bool:
        return self.recipe["covariance"] == "linear"

    @property
    def dimension(self) -> int:
        return int(self.recipe["dimension"])


# -- the list ----------------------------------------------------------------------------------------------------------
# kernel, dimension, candidates, T, σ as a share of the range, and what is particular to the family

WELL_SPECIFIED = [
    ("RBF", 1, 200, 3_000, 0.1),
    ("RBF", 1, 100, 200, 0.05),
    ("Matérn", 1, 60, 30_000, 0.2),
    ("RBF", 2, 256, 3_000, 0.05),
    ("Matérn", 2, 128, 200, 0.5),
    ("Matérn", 2, 256, 1_000, 0.1),
    ("RBF", 3, 128, 1_000, 0.03),
    ("Matérn", 4, 128, 1_000, 0.1),
    ("RBF", 3, 256, 3_000, 0.2),
    ("RBF", 5, 256, 1_000, 0.03),
    ("RBF", 6, 256, 3_000, 0.1),
    ("Matérn", 6, 256, 1_000, 0.05),
]
RIPPLES = [  # ε, wavelength
    ("RBF", 1, 200, 3_000, 0.1, 0.2, 0.08),
    ("RBF", 4, 256, 200, 0.05, 0.1, 0.5),
    ("Matérn", 2, 256, 1_000, 0.1, 0.2, 0.3),
]
SPIKES = [  # ε, share of the candidates
    ("RBF", 1, 60, 30_000, 0.2, 0.3, 0.1),
    ("Matérn", 2, 256, 3_000, 0.05, 0.3, 0.05),
    ("RBF", 3, 256, 200, 0.1, 0.2, 0.05),
]
SIGNS = [  # ε
    ("RBF", 2, 256, 3_000, 0.1, 0.1),
    ("Matérn", 1, 100, 1_000, 0.5, 0.2),
    ("RBF", 6, 256, 200, 0.2, 0.2),
]
LENGTHS = [  # the truth's length scale in units of the model's
    ("RBF", 1, 100, 3_000, 0.1, 0.4),
    ("Matérn", 3, 128, 200, 0.05, 0.33),
    ("RBF", 2, 256, 1_000, 0.1, 2.5),
]
NOISES = [  # the model's σ in units of the truth's
    ("RBF", 1, 200, 3_000, 0.05, 3.0),
    ("Matérn", 5, 128, 200, 0.1, 0.5),
    ("RBF", 2, 128, 1_000, 0.3, 0.33),
]
CONTEXTS = [  # world, kernel, dimension, candidates, T, σ, ε
    ("subsets", "RBF", 2, 256, 3_000, 0.1, 0.0),
    ("fresh", "linear", 5, 20, 3_000, 0.1, 0.2),
    ("fresh", "linear", 4, 10, 200, 0.05, 0.0),
]
TABLES = [  # table, kernel, dimension, candidates, T, σ
    ("svm_digits", "RBF", 2, 400, 3_000, 0.05),
    ("digits", "linear", 250, 17_970, 1_000, 0.1),
    ("diabetes", "RBF", 10, 442, 1_000, 0.2),
]
TRAPS = [  # world, kernel, dimension, candidates, T, σ
    ("trap", "linear", 3, 12, 30_000, 0.05),
    ("contextual trap", "linear", 4, 40, 3_000, 0.1),
    ("needle", "RBF", 1, 60, 3_000, 0.1),
    ("contextual needle", "linear", 4, 50, 1_000, 0.1),
]
SOUGHT = {  # kernel, dimension, candidates, T, σ, ε
    "GP-UCB": [
        ("linear", 3, 12, 30_000, 0.05, 0.1),
        ("linear", 3, 12, 3_000, 0.05, 0.2),
        ("RBF", 1, 40, 3_000, 0.05, 0.2),
        ("RBF", 1, 80, 1_000, 0.1, 0.1),
        ("RBF", 2, 64, 3_000, 0.05, 0.2),
        ("linear", 3, 12, 1_000, 0.1, 0.3),
        ("Matérn", 1, 60, 3_000, 0.05, 0.2),
        ("Matérn", 3, 64, 1_000, 0.2, 0.3),
    ],
    "grounded GP-UCB": [
        ("linear", 3, 12, 12_000, 0.05, 0.1),
        ("RBF", 1, 40, 12_000, 0.05, 0.1),
        ("linear", 3, 12, 12_000, 0.1, 0.1),
        ("linear", 3, 12, 30_000, 0.05, 0.2),
        ("RBF", 2, 64, 12_000, 0.05, 0.2),
        ("RBF", 1, 40, 12_000, 0.1, 0.2),
        ("Matérn", 1, 60, 12_000, 0.05, 0.2),
        ("RBF", 1, 80, 30_000, 0.05, 0.3),
        ("linear", 3, 12, 12_000, 0.1, 0.3),
        ("RBF", 3, 64, 12_000, 0.05, 0.3),
        ("Matérn", 2, 64, 12_000, 0.1, 0.3),
        ("RBF", 2, 64, 12_000, 0.1, 0.1),
    ],
    "balancing price 8": [
        ("linear", 3, 12, 3_000, 0.05, 0.1),
        ("RBF", 1, 40, 3_000, 0.05, 0.2),
        ("RBF", 2, 64, 1_000, 0.1, 0.3),
        ("Matérn", 1, 60, 3_000, 0.05, 0.2),
    ],
    "phased": [
        ("linear", 3, 12, 3_000, 0.05, 0.2),
        ("RBF", 1, 40, 1_000, 0.1, 0.2),
        ("Matérn", 2, 64, 3_000, 0.05, 0.3),
    ],
}
AGAINST_RECOMMENDED = [
    ("linear", 3, 12, 3_000, 0.05, 0.1),
    ("RBF", 1, 40, 3_000, 0.05, 0.2),
    ("RBF", 2, 64, 3_000, 0.1, 0.3),
    ("Matérn", 2, 64, 3_000, 0.05, 0.2),
]
WORLD = ("covariance", "dimension", "candidates", "horizon", "sigma")  # what all rows have


@functools.cache
def instances() -> tuple[Instance, ...]:
    """All of them, those sought against the recommended policy last."""
    made: list[Instance] = []

    def add(family: str, group: str, rows: list[Any], names: tuple[str, ...], against: str = "", **more: Any) -> None:
        for k, row in enumerate(rows):
            recipe = {**more, **dict(zip(names, row, strict=True)), "draw": 1 + len(made)}  # the committed seed
            horizon = recipe.pop("horizon")
            belongs = WELL if family == "contextual" and not recipe["size"] else group
            made.append(Instance(f"{family} ({k + 1})", family, belongs, horizon, recipe, against, k % 3 == 2))

    fixed = {"world": "fixed"}
    add("well specified", WELL, WELL_SPECIFIED, WORLD, **fixed, misfit="none")
    add("ripples", MISFIT, RIPPLES, (*WORLD, "size", "width"), **fixed, misfit="ripple")
    add("spikes", MISFIT, SPIKES, (*WORLD, "size", "width"), **fixed, misfit="spikes")
    add("random signs", MISFIT, SIGNS, (*WORLD, "size"), **fixed, misfit="random")
    add("wrong length scale", MISFIT, LENGTHS, (*WORLD, "factor"), world="length scale")
    add("wrong noise", MISFIT, NOISES, (*WORLD, "told"), **fixed, misfit="none")
    add("contextual", MISFIT, CONTEXTS, ("world", *WORLD, "size"), misfit="random")
    add("tables", MISFIT, TABLES, ("world", *WORLD))
    add("traps", ADVERSARIAL, TRAPS, ("world", *WORLD))
    for policy, rows in SOUGHT.items():
        add(f"against {policy}", ADVERSARIAL, rows, (*WORLD, "size"), policy, **fixed, misfit="sought")
    add(
        "against the recommended", RECOMMENDED, AGAINST_RECOMMENDED, (*WORLD, "size"), "recommended", **fixed,
        misfit="sought",
    )  # fmt: skip
    return tuple(made)


FRESH = {"fresh": 1_000, "third": 2_000, "fourth": 3_000}  # added to the seeds of the held-out third, part by part


@functools.cache
def fresh(part: str = "fresh") -> tuple[Instance, ...]:
    """The held-out third once more with other seeds, for a look at what was mended after the one before."""
    return tuple(
        dataclasses.replace(
            each, name=f"{part} {each.name}", recipe={**each.recipe, "draw": each.recipe["draw"] + FRESH[part]}
        )
        for each in instances()
        if each.held_out and each.group != RECOMMENDED
    )


def everything() -> tuple[Instance, ...]:
    """The instances of all parts."""
    return instances() + tuple(each for part in FRESH for each in fresh(part))


# -- a problem from its recipe -----------------------------------------------------------------------------------------

CONTEXTUAL = ("subsets", "fresh", "digits", "contextual trap", "contextual needle")


def problem(
    world: str,
    covariance: str,
    dimension: int,
    candidates: int,
    sigma: float,
    draw: int,
    misfit: str = "none",
    size: float = 0.0,
    width: float = 0.05,
    factor: float = 1.0,
    told: float = 1.0,
    start: int = 0,
    signs: str = "",
) -> Problem:
    """The problem that a recipe describes.

    covariance    RBF, Matérn or linear: `_model` says more
    size, width   ε of the misfit, and its width as for `misspecified`
    factor        the truth's length scale in units of the model's
    told          the σ of the model in units of the truth's
    misfit        as for `misspecified`, or "sought": random signs until a search has found others
    start, signs  which f̃, and the misfit in units of ε as + and -: what the search has found
    """
    model, sought = _model(covariance, dimension), misfit == "sought"
    if world in ("fixed", "subsets"):
        domain, kind = _domain(covariance, dimension, candidates, draw), "random" if sought else misfit
        if covariance == "linear":  # as in the trap: with a ridge of 1 single arms move the model little
            model = dataclasses.replace(model, regularization=1.0)
        found = ms.problems.misspecified(domain, model, size, kind, 100 * draw + start, wavelength=width)
        if signs:
            found = found.with_misfit([size if sign == "+" else -size for sign in signs], "found by search")
        if world == "subsets":
            found = ms.problems.contextual(found, 20)
    elif world == "length scale":
        domain = _domain(covariance, dimension, candidates, draw)
        found = ms.problems.wrong_length_scale(domain, model, draw, factor=factor)
    elif world == "fresh":
        found = ms.problems.fresh_actions(model, dimension, candidates, size, misfit, draw, rounds=3_000)
    elif world == "needle":
        found = ms.problems.needle(_domain(covariance, dimension, candidates, draw), model, 0.5, draw)
    else:
        found = _named(world, draw)
    return _noisy(found, sigma, told, over=found.in_class if sought else found.values)


@functools.wraps(problem)
def contextual_problem(**recipe: Any) -> Problem:
    """The same for worlds that bring their own action sets, which an experiment has to know beforehand."""
    return problem(**recipe)


contextual_problem.contextual = True  # type: ignore[attr-defined]


def _domain(covariance: str, dimension: int, candidates: int, draw: int) -> ms.Finite:
    """Arms in the unit ball for linear kernels; else a grid in one dimension and Sobol' points in more."""
    if covariance == "linear":
        X = np.random.default_rng([draw, 21]).standard_normal((candidates, dimension))
        radii = np.random.default_rng([draw, 22]).random((candidates, 1)) ** (1.0 / dimension)
        return ms.Finite(X * radii / np.linalg.norm(X, axis=1, keepdims=True))
    box = ms.Box([(0.0, 1.0)] * dimension)
    return box.grid(candidates) if dimension == 1 else box.cover(candidates, draw)


def _model(covariance: str, dimension: int) -> ms.Model:
    if covariance == "linear":
        return ms.Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1)
    scale = LENGTH_SCALES.get(dimension, 1.0)
    return ms.Model(
        RBF(scale) if covariance == "RBF" else Matern(1.5 * scale, nu=2.5), norm_bound=NORM_BOUND, noise=0.1
    )


def _named(world: str, draw: int) -> Problem:
    if world == "trap":
        return ms.problems.trap()
    if world == "contextual trap":
        return ms.problems.contextual_trap(seed=draw)
    if world == "contextual needle":
        return ms.problems.contextual_needle(seed=draw)
    if world == "svm_digits":
        return ms.problems.svm_digits()
    if world == "digits":
        return ms.problems.sklearn_bandit("digits")
    return _diabetes()


def _diabetes() -> Problem:
    """Which of 442 patients fares worst: ten measurements, the progression of the disease after a year."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    table = {f"x{i}": column.tolist() for i, column in enumerate(X.T)} | {"y": ((y - y.min()) / np.ptp(y)).tolist()}
    return ms.problems.from_table(table, "y", noise=0.2, name="diabetes")


def _noisy(found: Problem, share: float, told: float, over: Any) -> Problem:
    """With Gaussian noise of that share of the range, of which the model is told `told` times as much."""
    sigma = share * float(np.ptp(over))
    ridge = found.model.regularization if found.model.regularization != found.model.noise**2 else None
    model = dataclasses.replace(found.model, noise=told * sigma, regularization=ridge)  # type: ignore[arg-type]
    return dataclasses.replace(found, model=model, sampler=Gaussian(sigma))


# -- what searches have found ------------------------------------------------------------------------------------------


def found() -> dict[str, dict[str, Any]]:
    """By instance: start, signs, and what the search reached."""
    return json.loads(ADVERSARIES.read_text(encoding="utf-8"))["found"] if ADVERSARIES.exists() else {}


def recipes() -> dict[str, dict[str, Any]]:
    """By instance, ready to be played: those whose misfit is still to be sought are left out."""
    known, ready = found(), {}
    for each in everything():
        if not each.against:
            ready[each.name] = each.recipe
        elif each.name in known:
            ready[each.name] = each.recipe | {key: known[each.name][key] for key in ("start", "signs")}
    return ready


def main() -> None:
    """Lists the instances."""
    for each in instances():
        r = each.recipe
        mark = "held out" if each.held_out else ""
        print(f"{each.name:28} {each.group:15} {r['covariance']:7} d={r['dimension']:<4} N={r['candidates']:<6} "
              f"T={each.horizon:<6,} σ={r['sigma']:<5} {mark}")  # fmt: skip
    for what in ("group", "horizon"):
        print(dict(collections.Counter(getattr(each, what) for each in instances())))


if __name__ == "__main__":
    main()
