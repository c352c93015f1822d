"""What `practical.py` compares with, as their tutorials and defaults set them up. Each plays a task for some rounds.

A run is (regrets per round as shares of the range, {rounds: regret of what is recommended then}, seconds of asking).
Random points first: 5 for BoTorch; Optuna's samplers have first points of their own (10 of each).
"""

from __future__ import annotations

import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from tasks import Task

REPORTED = (60, 100)


class Run(NamedTuple):
    regrets: list[float]
    recommended: dict[str, float]
    seconds: list[float]


def random(task: Task, seed: int, rounds: int) -> Run:
    """Uniform rows without replacement, or points; recommends the best result."""
    points, y, draws = task.first(seed + 1000, rounds), [], task.draws(seed, rounds)
    for x, draw in zip(points, draws, strict=True):
        y.append(task.observed(x, draw))
    best = {str(T): task.regret(points[int(np.argmax(y[:T]))]) for T in REPORTED if rounds >= T}
    return Run([task.regret(x) for x in points], best, [0.0] * rounds)


def optuna(sampler: str) -> Any:
    """TPESampler or GPSampler: text is categorical, columns of numbers are whole numbers in their order."""

    def play(task: Task, seed: int, rounds: int) -> Run:
        import optuna as library

        library.logging.set_verbosity(library.logging.ERROR)
        warnings.simplefilter("ignore")
        study = library.create_study(direction="maximize", sampler=getattr(library.samplers, sampler)(seed=seed))
        draws, points, y, seconds = task.draws(seed, rounds), [], [], []
        for draw in draws:
            start = time.perf_counter()
            trial = study.ask()
            x: Any
            if task.columns is not None:
                x = task.row_of([
                    values.index(trial.suggest_categorical(name, values)) if isinstance(values[0], str)
                    else trial.suggest_int(name, 0, len(values) - 1)
                    for name, values in task.columns.items()
                ])  # fmt: skip
            else:
                x = np.array([trial.suggest_float(f"x{i}", a, b) for i, (a, b) in enumerate(task.bounds or [])])
            seconds.append(time.perf_counter() - start)
            points.append(x)
            y.append(task.observed(x, draw))
            study.tell(trial, y[-1])
        best = {str(T): task.regret(points[int(np.argmax(y[:T]))]) for T in REPORTED if rounds >= T}
        return Run([task.regret(x) for x in points], best, seconds)

    return play


def botorch(rule: str) -> Any:
    """SingleTaskGP on one-hot columns, fitted anew in every round; "ucb" (β = 4) or "logei"."""

    def play(task: Task, seed: int, rounds: int) -> Run:
        import torch
        from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from botorch.models.transforms import Normalize, Standardize
        from botorch.optim import optimize_acqf, optimize_acqf_discrete
        from gpytorch.mlls import ExactMarginalLogLikelihood

        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        torch.set_default_dtype(torch.float64)
        draws, points, y, seconds = task.draws(seed, rounds), task.first(seed), [], []
        everything = torch.tensor(task.one_hot()) if task.columns is not None else None
        bounds = None if everything is not None else torch.tensor(task.bounds).T
        recommended: dict[str, float] = {}

        def model() -> Any:
            X = everything[points] if everything is not None else torch.tensor(np.array(points))
            scale = None if everything is not None else Normalize(d=X.shape[1], bounds=bounds)
            Y = torch.tensor(y)[:, None]
            gp = SingleTaskGP(X, Y, input_transform=scale, outcome_transform=Standardize(m=1))
            fit_gpytorch_mll(ExactMarginalLogLikelihood(gp.likelihood, gp))
            return gp, X

        for t in range(rounds):
            start = time.perf_counter()
            if t >= len(points):
                gp, X = model()
                best = max(y)
                f = UpperConfidenceBound(gp, beta=4.0) if rule == "ucb" else LogExpectedImprovement(gp, best_f=best)
                if everything is not None:
                    chosen, _ = optimize_acqf_discrete(f, q=1, choices=everything)
                    points.append(int((everything == chosen).all(dim=1).nonzero()[0]))
                else:
                    chosen, _ = optimize_acqf(f, bounds=bounds, q=1, num_restarts=10, raw_samples=512)
                    points.append(chosen[0].detach().numpy())
            seconds.append(time.perf_counter() - start)
            y.append(task.observed(points[t], draws[t]))
            if t + 1 in REPORTED:
                gp, X = model()
                mean = gp.posterior(X).mean.detach().numpy().ravel()
                recommended[str(t + 1)] = task.regret(points[int(mean.argmax())])
        return Run([task.regret(x) for x in points[:rounds]], recommended, seconds)

    return play


PEERS: dict[str, Any] = {
    "random": random,
    "Optuna TPE": optuna("TPESampler"),
    "Optuna GP": optuna("GPSampler"),
    "BoTorch UCB": botorch("ucb"),
    "BoTorch LogEI": botorch("logei"),
}
QUICK = ("random", "Optuna TPE")  # the others take a minute or more per run


def versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("optuna", "botorch", "gpytorch", "torch")}
