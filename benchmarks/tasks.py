"""Problems as practitioners meet them, for `practical.py`: full tables of mixed columns, and noisy boxes.

A task knows its noise-free values, its noise (one draw per round, the same for all players), and its range. Tables of
scikit-learn fits are computed once and kept in `benchmarks/.cache`; the reaction table is read from the folder that
MISSPEC_DATA names. All are maximised. `tables.py` has recorded tables with gaps, `spaces.py` mixed spaces.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import itertools
import math
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

CACHE = Path(__file__).with_name(".cache")
REACTIONS = "direct_arylation.csv"  # Shields et al., Nature 590 (2021): 1,728 direct arylation reactions
FEWEST = 5  # random points that everybody who has no first design of his own starts from


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """columns: name → values of a full factorial table, in order (text: choices); bounds: of a box. One of the two."""

    name: str
    values: Callable[[np.ndarray], np.ndarray]  # f* of row numbers (n,), or of points (n, d)
    best: float
    least: float
    noise: np.ndarray | float  # deviations (N, repetitions), or a standard deviation
    columns: dict[str, list[Any]] | None = None
    bounds: list[tuple[float, float]] | None = None

    @property
    def span(self) -> float:
        return self.best - self.least

    @property
    def domain(self) -> Any:
        import misspec as ms

        return ms.Box(self.bounds) if self.bounds else ms.Finite.from_table(self.rows)

    def suggested(self, trial: Any) -> Any:
        """A row number or a point that an Optuna trial chooses."""
        if self.columns is None:
            return np.array([trial.suggest_float(f"x{i}", a, b) for i, (a, b) in enumerate(self.bounds or [])])
        return self.row_of([
            values.index(trial.suggest_categorical(name, values)) if isinstance(values[0], str)
            else trial.suggest_int(name, 0, len(values) - 1)
            for name, values in self.columns.items()
        ])  # fmt: skip

    @property
    def listed(self) -> bool:
        """Whether points are row numbers."""
        return self.columns is not None

    @property
    def rows(self) -> list[dict[str, Any]]:
        assert self.columns is not None
        return [dict(zip(self.columns, each, strict=True)) for each in itertools.product(*self.columns.values())]

    def row_of(self, positions: Sequence[int]) -> int:
        """The row of a combination of values, given by their positions."""
        assert self.columns is not None
        return int(np.ravel_multi_index(list(positions), [len(values) for values in self.columns.values()]))

    def one_hot(self) -> np.ndarray:
        """Text as one-hot columns, numbers scaled to [0, 1]."""
        assert self.columns is not None
        parts = []
        for values in self.columns.values():
            if isinstance(values[0], str):
                parts.append(np.eye(len(values)))
            else:
                parts.append(((np.array(values) - values[0]) / (values[-1] - values[0]))[:, None])
        return np.array([np.concatenate(each) for each in itertools.product(*parts)])

    def draws(self, seed: int, rounds: int) -> np.ndarray:
        rng = np.random.default_rng([seed, 11])
        if isinstance(self.noise, np.ndarray):
            return rng.integers(self.noise.shape[1], size=rounds)
        return self.noise * rng.standard_normal(rounds)

    def observed(self, x: Any, draw: Any) -> float:
        """A result at a row number or a point."""
        if isinstance(self.noise, np.ndarray):
            return float(self.values(np.array([x]))[0] + self.noise[x, draw])
        return float(self.values(np.array([x]))[0] + draw)

    def regret(self, x: Any) -> float:
        """As a share of the range."""
        return (self.best - float(self.values(np.array([x]))[0])) / self.span

    def first(self, seed: int, count: int = FEWEST) -> list[Any]:
        """Random rows or points."""
        rng = np.random.default_rng([seed, 7])
        if self.columns is not None:
            size = math.prod(len(values) for values in self.columns.values())
            return [int(row) for row in rng.choice(size, count, replace=False)]
        low, high = np.array(self.bounds).T
        return list(low + rng.random((count, len(low))) * (high - low))

    def digest(self) -> str:
        """Of everything that results depend on."""
        noise = self.noise.tobytes() if isinstance(self.noise, np.ndarray) else repr(self.noise).encode()
        probe = np.arange(math.prod(map(len, self.columns.values()))) if self.columns else np.array(self.first(0, 64))
        values = np.round(self.values(probe) / self.span, 9)
        shape = repr((self.name, self.columns, self.bounds)).encode()
        return hashlib.sha256(shape + noise + values.tobytes()).hexdigest()[:16]


def table(name: str, columns: dict[str, list[Any]], results: np.ndarray, noise: float | None = None) -> Task:
    """results: (N,) with Gaussian noise, a share of the range, or (N, repetitions), one of which a round replays."""
    values = results if results.ndim == 1 else results.mean(axis=1)
    span = float(np.ptp(values))
    deviations: Any = noise * span if noise is not None else results - values[:, None]
    return Task(name, lambda rows: values[rows], float(values.max()), float(values.min()), deviations, columns)


def box(
    name: str, bounds: list[tuple[float, float]], f: Callable[[np.ndarray], np.ndarray], best: float, noise: float
) -> Task:
    """noise: as a share of the range; the least value is the smallest of 2¹⁶ Sobol' points."""
    from scipy.stats import qmc

    low, high = np.array(bounds).T
    spread = low + qmc.Sobol(len(low), scramble=False).random(65536) * (high - low)
    values = f(spread)
    assert values.max() <= best + 1e-9
    least = float(values.min())
    return Task(name, f, best, least, noise * (best - least), bounds=bounds)


# -- tables --------------------------------------------------------------------------------------------------


def reactions() -> Task | None:
    path = Path(os.environ.get("MISSPEC_DATA", "")) / REACTIONS
    if not os.environ.get("MISSPEC_DATA") or not path.exists():
        return None
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name != "yield"]

    def cell(text: str) -> Any:
        try:
            return float(text)
        except ValueError:
            return text

    columns = {name: list(dict.fromkeys(cell(row[name]) for row in rows)) for name in names}
    columns = {name: sorted(v) if not isinstance(v[0], str) else v for name, v in columns.items()}
    yields = {tuple(cell(row[name]) for name in names): float(row["yield"]) for row in rows}
    return table("reactions", columns, np.array([yields[each] for each in itertools.product(*columns.values())]), 0.05)


def svm_digits() -> Task:
    import misspec as ms

    with Path(ms.problems.__file__).with_name("svm_digits.npz").open("rb") as file:
        kept = dict(np.load(file, allow_pickle=False))
    columns = {"log_c": kept["log_c"].tolist(), "log_gamma": kept["log_gamma"].tolist()}
    return table("SVM on digits", columns, (kept["right"] / kept["sizes"]).reshape(-1, len(kept["sizes"])))


def _computed(
    name: str, columns: dict[str, list[Any]], score: Callable[[dict[str, Any], int], float], reps: int
) -> Task:
    import sklearn

    CACHE.mkdir(exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")
    key = hashlib.sha256(repr((name, columns, reps, sklearn.__version__)).encode()).hexdigest()[:12]
    path = CACHE / f"{name.replace(' ', '_')}-{key}.npy"
    if not path.exists():
        from rich.progress import track

        settings = [dict(zip(columns, each, strict=True)) for each in itertools.product(*columns.values())]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = [[score(each, rep) for rep in range(reps)] for each in track(settings, name)]
        part = path.with_suffix(".part.npy")
        np.save(part, np.round(results, 6))
        part.replace(path)
    return table(name, columns, np.load(path, allow_pickle=False))


def _split(load: str, rep: int, share: float = 0.33, most: int | None = None) -> Any:
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    X, y = getattr(datasets, load)(return_X_y=True)
    if most is not None:
        X, y = X[:most], y[:most]
    return train_test_split(X, y, test_size=share, random_state=rep)


def forest() -> Task:
    from sklearn.ensemble import RandomForestClassifier

    columns: dict[str, list[Any]] = {
        "trees": [2, 5, 10, 20], "depth": [1, 2, 3, 5, 8], "features": [1, 2, 4, 8, 13],
        "criterion": ["gini", "entropy"], "bootstrap": ["yes", "no"],
    }  # fmt: skip

    def score(s: dict[str, Any], rep: int) -> float:
        A, B, a, b = _split("load_wine", rep)
        fit = RandomForestClassifier(
            s["trees"], max_depth=s["depth"], max_features=s["features"], criterion=s["criterion"],
            bootstrap=s["bootstrap"] == "yes", random_state=rep,
        )  # fmt: skip
        return float(fit.fit(A, a).score(B, b))

    return _computed("forest on wine", columns, score, 8)


def network() -> Task:
    from sklearn.neural_network import MLPClassifier

    columns: dict[str, list[Any]] = {
        "hidden": [8, 16, 32, 64], "log_rate": [-4.0, -3.0, -2.0, -1.0, 0.0], "log_alpha": [-5.0, -3.0, -1.0, 1.0],
        "activation": ["relu", "tanh", "logistic"], "solver": ["adam", "sgd"],
    }  # fmt: skip

    def score(s: dict[str, Any], rep: int) -> float:
        A, B, a, b = _split("load_digits", rep, 0.5, 600)
        fit = MLPClassifier(
            (s["hidden"],), activation=s["activation"], solver=s["solver"], alpha=10 ** s["log_alpha"],
            learning_rate_init=10 ** s["log_rate"], max_iter=12, random_state=rep,
        )  # fmt: skip
        return float(fit.fit(A / 16.0, a).score(B / 16.0, b))

    return _computed("network on digits", columns, score, 5)


def regression() -> Task:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    columns: dict[str, list[Any]] = {
        "kernel": ["rbf", "linear", "poly", "sigmoid"], "log_c": [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0],
        "log_gamma": [-4.0, -3.0, -2.0, -1.0, 0.0, 1.0], "log_epsilon": [-2.0, -1.0, 0.0, 1.0],
    }  # fmt: skip

    def score(s: dict[str, Any], rep: int) -> float:
        A, B, a, b = _split("load_diabetes", rep, 0.4)
        fit = make_pipeline(StandardScaler(), SVR(
            kernel=s["kernel"], C=10 ** s["log_c"], gamma=10 ** s["log_gamma"], epsilon=10 ** s["log_epsilon"],
            max_iter=3000,
        ))  # fmt: skip
        return max(-1.0, float(fit.fit(A, a).score(B, b)))  # worse than that is a failed fit

    return _computed("SVR on diabetes", columns, score, 6)


def neighbours() -> Task:
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, QuantileTransformer, StandardScaler

    scalers: dict[str, Any] = {
        "none": FunctionTransformer, "standard": StandardScaler, "minmax": MinMaxScaler,
        "quantile": lambda: QuantileTransformer(n_quantiles=50),
    }  # fmt: skip
    columns: dict[str, list[Any]] = {
        "neighbours": [1, 2, 3, 5, 8, 12, 18, 25, 35, 50], "p": [1.0, 1.5, 2.0, 4.0],
        "weights": ["uniform", "distance"], "scaler": list(scalers),
    }  # fmt: skip

    def score(s: dict[str, Any], rep: int) -> float:
        A, B, a, b = _split("load_wine", rep)
        fit = KNeighborsClassifier(s["neighbours"], p=s["p"], weights=s["weights"])
        return float(make_pipeline(scalers[s["scaler"]](), fit).fit(A, a).score(B, b))

    return _computed("neighbours on wine", columns, score, 8)


def boosting() -> Task:
    from sklearn.ensemble import GradientBoostingRegressor

    columns: dict[str, list[Any]] = {
        "log_rate": [-3.0, -2.5, -2.0, -1.5, -1.0, -0.5, 0.0], "trees": [5, 15, 40, 100], "depth": [1, 2, 4, 6],
        "subsample": [0.3, 0.6, 1.0], "loss": ["squared_error", "absolute_error"],
    }  # fmt: skip

    def score(s: dict[str, Any], rep: int) -> float:
        A, B, a, b = _split("load_diabetes", rep, 0.4)
        fit = GradientBoostingRegressor(
            loss=s["loss"], learning_rate=10 ** s["log_rate"], n_estimators=s["trees"], max_depth=s["depth"],
            subsample=s["subsample"], random_state=rep,
        )  # fmt: skip
        return max(-1.0, float(fit.fit(A, a).score(B, b)))

    return _computed("boosting on diabetes", columns, score, 4)


def logistic() -> Task:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler

    scalers: dict[str, Any] = {"none": FunctionTransformer, "standard": StandardScaler, "minmax": MinMaxScaler}
    columns: dict[str, list[Any]] = {
        "log_c": [-5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0], "l1": [0.0, 0.5, 1.0], "scaler": list(scalers),
        "weights": ["equal", "balanced"],
    }  # fmt: skip

    def score(s: dict[str, Any], rep: int) -> float:
        A, B, a, b = _split("load_breast_cancer", rep, 0.4)
        fit = LogisticRegression(
            C=10 ** s["log_c"], l1_ratio=s["l1"], solver="saga", max_iter=60,
            class_weight=None if s["weights"] == "equal" else "balanced", random_state=rep,
        )  # fmt: skip
        return float(make_pipeline(scalers[s["scaler"]](), fit).fit(A, a).score(B, b))

    return _computed("logistic on cancer", columns, score, 4)


def tree() -> Task:
    from sklearn.tree import DecisionTreeClassifier

    columns: dict[str, list[Any]] = {
        "depth": [1, 2, 3, 5, 8, 12, 20], "leaf": [1, 2, 4, 8, 16, 32], "features": [2, 4, 8, 16, 32, 64],
        "criterion": ["gini", "entropy"], "splitter": ["best", "random"],
    }  # fmt: skip

    def score(s: dict[str, Any], rep: int) -> float:
        A, B, a, b = _split("load_digits", rep, 0.5)
        fit = DecisionTreeClassifier(
            max_depth=s["depth"], min_samples_leaf=s["leaf"], max_features=s["features"], criterion=s["criterion"],
            splitter=s["splitter"], random_state=rep,
        )  # fmt: skip
        return float(fit.fit(A, a).score(B, b))

    return _computed("tree on digits", columns, score, 6)


# -- boxes ---------------------------------------------------------------------------------------------------


def branin() -> Task:
    def f(X: np.ndarray) -> np.ndarray:
        x, y = X.T
        bent = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
        return -(bent**2) - 10 * (1 - 1 / (8 * math.pi)) * np.cos(x) - 10

    return box("Branin", [(-5.0, 10.0), (0.0, 15.0)], f, -0.39788735772973816, 0.02)


def hartmann(d: int = 6) -> Task:
    A = np.array(
        [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
    )
    P = 1e-4 * np.array([
        [1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381],
    ])  # fmt: skip

    def f(X: np.ndarray) -> np.ndarray:
        return np.exp(-np.einsum("kd,nkd->nk", A, (X[:, None, :] - P) ** 2)) @ np.array([1.0, 1.2, 3.0, 3.2])

    return box("Hartmann 6", [(0.0, 1.0)] * d, f, 3.32236801141551, 0.02)


def ackley() -> Task:
    def f(X: np.ndarray) -> np.ndarray:
        root = np.sqrt((X**2).mean(axis=1))
        return 20 * np.exp(-0.2 * root) + np.exp(np.cos(2 * math.pi * X).mean(axis=1)) - 20 - math.e

    return box("Ackley 5", [(-5.0, 10.0)] * 5, f, 0.0, 0.02)


def needle() -> Task:
    def f(X: np.ndarray) -> np.ndarray:
        hill = 0.7 * np.exp(-((X - [0.3, 0.35]) ** 2).sum(axis=1) / (2 * 0.25**2))
        return hill + np.exp(-((X - [0.78, 0.7]) ** 2).sum(axis=1) / (2 * 0.06**2))

    # the needle stands on the hill's slope: its top is found by Newton's method on a fine grid
    fine = np.stack(np.meshgrid(*[np.linspace(a - 0.01, a + 0.01, 2001) for a in (0.78, 0.7)]), -1).reshape(-1, 2)
    return box("needle", [(0.0, 1.0)] * 2, f, float(f(fine).max()), 0.05)


def ripple() -> Task:
    def f(X: np.ndarray) -> np.ndarray:
        smooth = np.exp(-((X - [0.6, 0.4]) ** 2).sum(axis=1) / (2 * 0.3**2))
        return smooth + 0.1 * np.cos(35 * (X[:, 0] - 0.62)) * np.cos(35 * (X[:, 1] - 0.44))

    fine = np.stack(np.meshgrid(*[np.linspace(a - 0.05, a + 0.05, 2001) for a in (0.62, 0.42)]), -1).reshape(-1, 2)
    return box("ripple", [(0.0, 1.0)] * 2, f, float(f(fine).max()) + 1e-9, 0.05)


def levy(d: int = 4) -> Task:
    def f(X: np.ndarray) -> np.ndarray:
        w = 1 + (X - 1) / 4
        inner = ((w[:, :-1] - 1) ** 2 * (1 + 10 * np.sin(math.pi * w[:, :-1] + 1) ** 2)).sum(axis=1)
        last = (w[:, -1] - 1) ** 2 * (1 + np.sin(2 * math.pi * w[:, -1]) ** 2)
        return -(np.sin(math.pi * w[:, 0]) ** 2) - inner - last

    return box(f"Levy {d}", [(-10.0, 10.0)] * d, f, 0.0, 0.02)


def rosenbrock() -> Task:
    def f(X: np.ndarray) -> np.ndarray:
        bent = 100 * (X[:, 1:] - X[:, :-1] ** 2) ** 2 + (1 - X[:, :-1]) ** 2
        return -np.log1p(bent.sum(axis=1))

    return box("Rosenbrock 4", [(-2.0, 2.0)] * 4, f, 0.0, 0.02)


def gallagher() -> Task:
    """Forty peaks of different heights and widths in three dimensions; the highest is narrow."""
    rng = np.random.default_rng(41)
    centres, heights = 0.05 + 0.9 * rng.random((40, 3)), np.append(1.0, 0.2 + 0.65 * rng.random(39))
    widths = np.append(0.12, 0.08 + 0.17 * rng.random(39))

    def f(X: np.ndarray) -> np.ndarray:
        squares = ((X[:, None, :] - centres) ** 2).sum(axis=2)
        return (heights * np.exp(-squares / (2 * widths**2))).max(axis=1)

    return box("forty peaks", [(0.0, 1.0)] * 3, f, 1.0, 0.02)


def griewank() -> Task:
    def f(X: np.ndarray) -> np.ndarray:
        waves = np.cos(X / np.sqrt(np.arange(1.0, 4.0))).prod(axis=1)
        return waves - 1.0 - (X**2).sum(axis=1) / 40.0

    return box("Griewank 3", [(-10.0, 8.0)] * 3, f, 0.0, 0.02)


def cosines() -> Task:
    def f(X: np.ndarray) -> np.ndarray:
        return 0.1 * np.cos(5 * math.pi * X).sum(axis=1) - (X**2).sum(axis=1)

    return box("cosine mixture 8", [(-1.0, 0.8)] * 8, f, 0.8, 0.02)


def levy_twelve() -> Task:
    return levy(12)


def ellipsoid() -> Task:
    """Twelve dimensions, of which some matter a hundred times as much as others."""
    weights = 10.0 ** np.linspace(0.0, -2.0, 12)[np.random.default_rng(43).permutation(12)]
    centre = 0.2 + 0.5 * np.random.default_rng(44).random(12)

    def f(X: np.ndarray) -> np.ndarray:
        return -np.sqrt(0.01 + ((X - centre) ** 2) @ weights)

    return box("ellipsoid 12", [(0.0, 1.0)] * 12, f, -0.1, 0.02)


def steps() -> Task:
    """Plateaus, as where a size is rounded to whole units."""

    def f(X: np.ndarray) -> np.ndarray:
        return -(np.floor(8 * np.abs(X - [0.31, 0.64, 0.47])) ** 2).sum(axis=1)

    return box("steps 3", [(0.0, 1.0)] * 3, f, 0.0, 0.02)


def ridge() -> Task:
    """A sharp ridge that is oblique to all axes."""
    along = np.array([0.5, -0.4, 0.6, 0.48])

    def f(X: np.ndarray) -> np.ndarray:
        Z = X - [0.35, 0.6, 0.4, 0.55]
        on = Z @ (along / np.linalg.norm(along))
        off = np.sqrt(np.maximum((Z**2).sum(axis=1) - on**2, 0.0))
        return -(on**2) - 2.0 * off

    return box("ridge 4", [(0.0, 1.0)] * 4, f, 0.0, 0.02)


CHOSEN_BY = [reactions, svm_digits, forest, network, regression, branin, hartmann, ackley, needle, ripple]
CHOSEN_BY += [gallagher, cosines, levy_twelve]
SEEN = [neighbours, boosting, levy, griewank]  # no constant was chosen by them, but they were measured more than once
LEFT_OUT = [logistic, tree, rosenbrock, steps, ridge, ellipsoid]  # measured once, when everything was chosen
