"""MisspecSearchCV beside RandomizedSearchCV and Optuna's TPE, on three pipelines of scikit-learn and its own data.

    python benchmarks/sklearn_search.py [--seeds 5] [--evaluations 40] [--only digits …] [--methods MisspecSearchCV …]

One half of the data is searched on, with the same folds for all, and the best parameters by their mean score on the
folds are fitted to all of it; the other half is the test. A seed makes the split, the folds and all chance. Pipelines
and spaces were chosen before the first run, and not changed since. RandomizedSearchCV draws from the branches of a
conditional space; Optuna's study is defined by run, since OptunaSearchCV has no conditions. Runs are kept in
build/sklearn_search, a file per pipeline and method: what was stopped continues, and files can be filled at the same
time (--only, --methods).
± is one standard error over the seeds.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is imported

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from sklearn import datasets
from sklearn.base import clone, is_classifier
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import KFold, RandomizedSearchCV, StratifiedKFold, cross_val_score, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC

import misspec as ms
from misspec.integrations.sklearn import MisspecSearchCV

KEPT = Path(__file__).parents[1] / "build" / "sklearn_search"
OURS = "MisspecSearchCV"


class Task(NamedTuple):
    """parent: the parameter that others exist with; scoring is larger where better."""

    load: Callable[..., Any]
    pipeline: Any
    space: dict[str, Any]
    parent: str
    scoring: str
    folds: int


FOREST, NEAR = "RandomForestClassifier", "KNeighborsClassifier"
TASKS = {
    "digits": Task(
        datasets.load_digits,
        Pipeline([("scale", MinMaxScaler()), ("pca", PCA(random_state=0)), ("svm", SVC(random_state=0))]),
        {
            "pca__n_components": ms.Int(2, 60),
            "pca__whiten": [False, True],
            "svm__kernel": ["linear", "poly", "rbf"],
            "svm__C": ms.Float(1e-3, 1e3, log=True),
            "svm__gamma": ms.Float(1e-4, 1e1, log=True, when={"svm__kernel": ["poly", "rbf"]}),
            "svm__degree": ms.Int(2, 5, when={"svm__kernel": "poly"}),
        },
        "svm__kernel",
        "accuracy",
        3,
    ),
    "breast cancer": Task(
        datasets.load_breast_cancer,
        Pipeline([("scale", StandardScaler()), ("model", LogisticRegression())]),
        {
            "scale": ["passthrough", StandardScaler(), MinMaxScaler()],
            "model": [
                LogisticRegression(max_iter=500),
                RandomForestClassifier(n_estimators=50, random_state=0),
                KNeighborsClassifier(),
            ],
            "model__C": ms.Float(1e-4, 1e4, log=True, when={"model": "LogisticRegression"}),
            "model__class_weight": ms.Choice([None, "balanced"], when={"model": "LogisticRegression"}),
            "model__max_features": ms.Float(0.05, 1.0, when={"model": FOREST}),
            "model__min_samples_leaf": ms.Int(1, 30, log=True, when={"model": FOREST}),
            "model__n_neighbors": ms.Int(1, 50, log=True, when={"model": NEAR}),
            "model__weights": ms.Choice(["uniform", "distance"], when={"model": NEAR}),
        },
        "model",
        "neg_log_loss",
        5,
    ),
    "diabetes": Task(
        datasets.load_diabetes,
        Pipeline([("scale", StandardScaler()), ("boost", GradientBoostingRegressor(random_state=0))]),
        {
            "boost__n_estimators": ms.Int(10, 200, log=True),
            "boost__learning_rate": ms.Float(1e-3, 1.0, log=True),
            "boost__max_depth": ms.Int(1, 6),
            "boost__subsample": ms.Float(0.3, 1.0),
            "boost__min_samples_leaf": ms.Int(1, 40, log=True),
            "boost__loss": ["squared_error", "huber"],
            "boost__alpha": ms.Float(0.5, 0.99, when={"boost__loss": "huber"}),
        },
        "boost__loss",
        "r2",
        4,
    ),
}


def options_of(each: Any) -> list[Any]:
    return list(each) if isinstance(each, list) else list(each.options)


def word(option: Any) -> Any:
    """An option as conditions name it."""
    return type(option).__name__ if hasattr(option, "get_params") else option


def exists(each: Any, values: dict[str, Any]) -> bool:
    return all(word(values[name]) in some for name, some in getattr(each, "when", ()))


def drawn_from(each: Any) -> Any:
    """As RandomizedSearchCV has it."""
    if isinstance(each, list | ms.Choice):
        return options_of(each)
    if isinstance(each, ms.Int):
        return (
            np.rint(np.geomspace(each.low, each.high, 200)).astype(int).tolist()
            if each.log
            else (stats.randint(each.low, each.high + 1))
        )
    return stats.loguniform(each.low, each.high) if each.log else stats.uniform(each.low, each.high - each.low)


def ours(task: Task, X: Any, y: Any, cv: Any, n: int, seed: int) -> tuple[Any, float]:
    search = MisspecSearchCV(task.pipeline, task.space, n_iter=n, scoring=task.scoring, cv=cv, random_state=seed)
    search.fit(X, y)
    return search.best_estimator_, search.best_score_


def at_random(task: Task, X: Any, y: Any, cv: Any, n: int, seed: int) -> tuple[Any, float]:
    branches = []
    for option in options_of(task.space[task.parent]):
        there = {name: drawn_from(each) for name, each in task.space.items() if exists(each, {task.parent: option})}
        branches.append(there | {task.parent: [option]})
    search = RandomizedSearchCV(task.pipeline, branches, n_iter=n, scoring=task.scoring, cv=cv, random_state=seed)
    search.fit(X, y)
    return search.best_estimator_, search.best_score_


def tpe(task: Task, X: Any, y: Any, cv: Any, n: int, seed: int) -> tuple[Any, float]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    tried = []

    def objective(trial: Any) -> float:
        values: dict[str, Any] = {}
        for name, each in task.space.items():
            if exists(each, values):
                if isinstance(each, list | ms.Choice):
                    options = options_of(each)
                    values[name] = options[trial.suggest_categorical(name, list(range(len(options))))]
                else:
                    suggest = trial.suggest_int if isinstance(each, ms.Int) else trial.suggest_float
                    values[name] = suggest(name, each.low, each.high, log=each.log)
        tried.append(clone(task.pipeline).set_params(**clone(values, safe=False)))
        return float(cross_val_score(tried[-1], X, y, scoring=task.scoring, cv=cv).mean())

    study.optimize(objective, n_trials=n)
    return tried[study.best_trial.number].fit(X, y), study.best_value


METHODS = {OURS: ours, "RandomizedSearchCV": at_random, "Optuna TPE": tpe}


def play(task: Task, method: str, seed: int, n: int) -> dict[str, float]:
    X, y = task.load(return_X_y=True)
    sorts = is_classifier(task.pipeline)
    halves = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=y if sorts else None)
    cv = (StratifiedKFold if sorts else KFold)(task.folds, shuffle=True, random_state=seed)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # logistic regressions that are not through after 500 steps
        best, score = METHODS[method](task, halves[0], halves[2], cv, n, seed)
    seconds = time.process_time() - start
    test = get_scorer(task.scoring)(best, halves[1], halves[3])
    return {"folds": float(score), "test": float(test), "seconds": round(seconds, 2)}


def runs_of(name: str, method: str, seeds: int, n: int) -> list[dict[str, float]]:
    """A run per seed: what is kept, and what is missing of it."""
    path = KEPT / f"{name}, {method}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for seed in range(seeds):
        key = f"{n} evaluations, seed {seed}"
        if key not in kept:
            kept[key] = play(TASKS[name], method, seed, n)
            part = path.with_suffix(".part")
            part.write_text(json.dumps(kept, indent=1))
            part.replace(path)
    return [kept[f"{n} evaluations, seed {seed}"] for seed in range(seeds)]


def difference(ours: list[dict[str, float]], theirs: list[dict[str, float]], what: str) -> tuple[float, str]:
    """The mean of ours minus theirs, and the same in words."""
    d = np.array([a[what] - b[what] for a, b in zip(ours, theirs, strict=True)])
    error = d.std(ddof=1) / np.sqrt(len(d)) if len(d) > 1 else np.nan
    return float(d.mean()), f"{d.mean():+.4f} ± {error:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--only", nargs="*", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
    given = parser.parse_args()
    found = {
        name: {method: runs_of(name, method, given.seeds, given.evaluations) for method in given.methods}
        for name in given.only
    }
    print(f"{given.evaluations} evaluations, {given.seeds} seeds; minus: of MisspecSearchCV the score less this one\n")
    print(
        f"{'pipeline':14s}{'scoring':13s}{'method':19s}{'test':>9s}{'minus':>19s}{'folds':>9s}{'minus':>19s}{'s':>6s}"
    )
    better: dict[str, list[float]] = {}
    for name, runs in found.items():
        for method, each in runs.items():
            columns = ""
            for what in ("test", "folds"):
                columns += f"{np.mean([run[what] for run in each]):9.4f}"
                mean, words = difference(runs[OURS], each, what) if OURS in runs and method != OURS else (0.0, "")
                columns += f"{words:>19s}"
                if what == "test" and words:
                    better.setdefault(method, []).append(mean)
            seconds = np.mean([run["seconds"] for run in each])
            print(f"{name:14s}{TASKS[name].scoring:13s}{method:19s}{columns}{seconds:6.1f}")
    for method, means in better.items():
        wins = sum(mean > 0 for mean in means)
        print(f"than {method} better in the test on {wins} of {len(means)}, by {np.mean(means):+.4f} in the mean")


if __name__ == "__main__":
    main()
