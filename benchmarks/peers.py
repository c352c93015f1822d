"""What `practical.py` compares with, as their tutorials and defaults set them up. Each plays a task for some rounds.

A run is (regrets per round as shares of the range, {rounds: regret of what is recommended then}, seconds of asking).
Random points first: 5 for BoTorch; Optuna's samplers have first points of their own (10 of each).
"""

from __future__ import annotations

import time
import warnings
from typing import Any, NamedTuple

import numpy as np

Task = Any  # of tasks.py, tables.py or spaces.py
REPORTED, ROUNDS = (30, 60, 100), 100


class Run(NamedTuple):
    regrets: list[float]
    recommended: dict[str, float]
    seconds: list[float]


def random(task: Task, seed: int, rounds: int) -> Run:
    """Uniform rows without replacement, or points; recommends the best result."""
    points, y, draws = task.first(seed + 1000, rounds), [], task.draws(seed, rounds)
    points = (points * rounds)[:rounds]  # a list of fewer rows again and again
    for x, draw in zip(points, draws, strict=True):
        y.append(task.observed(x, draw))
    return Run([task.regret(x) for x in points], _luckiest(task, points, y), [0.0] * rounds)


def _luckiest(task: Task, points: list[Any], y: list[float]) -> dict[str, float]:
    """The regret of the best result, after so many rounds; results that failed are none."""
    values = np.where(np.isfinite(y), y, -np.inf)
    return {str(T): task.regret(points[int(values[:T].argmax())]) for T in REPORTED if len(y) >= T}


def optuna(sampler: str, **settings: Any) -> Any:
    """A sampler of Optuna: text is categorical, columns of numbers are whole numbers in their order."""

    def play(task: Task, seed: int, rounds: int) -> Run:
        import optuna as library

        library.logging.set_verbosity(library.logging.ERROR)
        warnings.simplefilter("ignore")
        study = library.create_study(
            direction="maximize", sampler=getattr(library.samplers, sampler)(seed=seed, **settings)
        )
        draws, points, y, seconds = task.draws(seed, rounds), [], [], []
        for draw in draws:
            start = time.perf_counter()
            trial = study.ask()
            x = task.suggested(trial)
            seconds.append(time.perf_counter() - start)
            points.append(x)
            y.append(task.observed(x, draw))
            if np.isfinite(y[-1]):
                study.tell(trial, y[-1])
            else:
                study.tell(trial, state=library.trial.TrialState.FAIL)
        return Run([task.regret(x) for x in points], _luckiest(task, points, y), seconds)

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
        everything = torch.tensor(task.one_hot()) if task.listed else None
        bounds = None if everything is not None else torch.tensor(task.bounds).T
        recommended: dict[str, float] = {}

        def model() -> Any:
            X = everything[points] if everything is not None else torch.tensor(np.array(points))
            known = torch.tensor(y)  # what failed counts as the worst
            known = torch.where(known.isnan(), known[~known.isnan()].min(), known)
            scale = None if everything is not None else Normalize(d=X.shape[1], bounds=bounds)
            Y = known[:, None]
            gp = SingleTaskGP(X, Y, input_transform=scale, outcome_transform=Standardize(m=1))
            fit_gpytorch_mll(ExactMarginalLogLikelihood(gp.likelihood, gp))
            return gp, X

        for t in range(rounds):
            start = time.perf_counter()
            if t >= len(points):
                gp, X = model()
                best = float(np.nanmax(y))
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
                mean = np.where(np.isfinite(y), gp.posterior(X).mean.detach().numpy().ravel(), -np.inf)
                recommended[str(t + 1)] = task.regret(points[int(mean.argmax())])
        return Run([task.regret(x) for x in points[:rounds]], recommended, seconds)

    return play


class Asked:
    """A trial that notes which parameters a task suggests, or gives them the values that a tool has chosen."""

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        self.values, self.params = values, {}

    def _suggest(self, name: str, kind: str, domain: Any, log: bool = False) -> Any:
        self.params[name] = (kind, domain, log)
        return domain[0] if self.values is None else self.values[name]

    def suggest_float(self, name: str, low: float, high: float, log: bool = False) -> Any:
        return self._suggest(name, "float", (low, high), log)

    def suggest_int(self, name: str, low: int, high: int) -> Any:
        return self._suggest(name, "int", (low, high))

    def suggest_categorical(self, name: str, options: list[str]) -> Any:
        return self._suggest(name, "str", options)


def ax(task: Task, seed: int, rounds: int) -> Run:
    """Ax's `Client` at its defaults, with the parameters that Optuna's samplers get."""
    import logging

    import torch
    from ax.api.client import Client
    from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    space = Asked()
    task.suggested(space)
    client = Client(random_seed=seed)
    client.configure_experiment(parameters=[
        ChoiceParameterConfig(name=name, parameter_type="str", values=list(domain), is_ordered=False) if kind == "str"
        else RangeParameterConfig(name=name, parameter_type=kind, bounds=domain, scaling="log" if log else None)
        for name, (kind, domain, log) in space.params.items()
    ])  # fmt: skip
    client.configure_optimization(objective="y")
    regrets, seconds, recommended = [], [], {}
    for draw in task.draws(seed, ROUNDS)[:rounds]:  # the first rounds of what the others see
        start = time.process_time()
        ((number, values),) = client.get_next_trials(max_trials=1).items()
        seconds.append(time.process_time() - start)
        x = task.suggested(Asked(dict(values)))
        y = task.observed(x, draw)
        regrets.append(task.regret(x))
        if np.isfinite(y):
            client.complete_trial(number, raw_data={"y": float(y)})
        else:
            client.mark_trial_failed(number)
        if len(regrets) in REPORTED:
            best = client.get_best_parameterization()[0]
            recommended[str(len(regrets))] = task.regret(task.suggested(Asked(dict(best))))
    return Run(regrets, recommended, seconds)


PEERS: dict[str, Any] = {
    "random": random,
    "Optuna TPE": optuna("TPESampler"),  # of Optuna 5, whose default is multivariate
    "Optuna CMA-ES": optuna("CmaEsSampler"),
    "Optuna GP": optuna("GPSampler"),
    "BoTorch UCB": botorch("ucb"),
    "BoTorch LogEI": botorch("logei"),
    "Ax": ax,
}
QUICK = ("random", "Optuna TPE", "Optuna CMA-ES")  # others take half a minute per run
AX_ROUNDS, AX_SEEDS = 30, 2  # Ax takes seconds per suggestion: two tables, two boxes and two mixed spaces, chosen
AX_TASKS = ("reactions", "SVM on digits", "Hartmann 6", "Levy 4", "ligands and solvents", "a learner")  # unseen


def plays(name: str, task: Task) -> bool:
    """Whether a peer takes the task: BoTorch's here has lists and boxes, CMA-ES no list whose rows have gaps."""
    if name == "Ax":
        return task.name in AX_TASKS
    if name.startswith("BoTorch"):
        return bool(task.listed or task.bounds)
    return name != "Optuna CMA-ES" or bool(task.bounds)


def versions(*packages: str) -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("optuna", "botorch", "gpytorch", "torch", *packages)}
