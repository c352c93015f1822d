"""Problems with rules, mixtures and parameters that exist only sometimes, for `constrained.py` and `conditional.py`.

A problem knows its noise-free values, its noise (one draw per round, the same for all tools) and its range. All are
maximised. A point that breaks a rule, and one where the evaluation crashes, has the value NaN and the regret 1.

Mixtures are emulators on the whole simplex: a Gaussian process through the means of the table that MISSPEC_DATA has,
its hyperparameters fixed below (they were fitted once), its noise the deviation of the readings from it.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tables

Params = dict[str, tuple[Any, ...]]  # ("float", low, high, log), ("int", low, high) or ("choice", options)
Point = dict[str, Any]
Columns = dict[str, np.ndarray]

SLACK = 1e-6  # of a rule's right-hand side: tools that end on a border miss it by rounding
TRACE = 1e-3  # of the total: smaller shares count as zero
FAILED = math.nan


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Shares that sum to `total`, of which at most `at_most` are not zero."""

    names: tuple[str, ...]
    total: float
    at_most: int | None = None


@dataclasses.dataclass(frozen=True)
class Linear:
    """Σ weights[name]·x[name] ≤ most, as tools want it that take no text; on_log: of the logarithms of x."""

    weights: dict[str, float]
    most: float
    on_log: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """value: of a legal point; rules: texts; linear: the same, one each, for tools that take no others.

    when: by parameter, the values of others with which it exists, a value or a list each.
    """

    name: str
    params: Params
    value: Callable[[Point], float]
    best: float
    least: float
    noise: float
    rounds: int
    rules: tuple[str, ...] = ()
    linear: tuple[Linear, ...] = ()
    mixture: Mixture | None = None
    when: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    replayed: int = 0  # so many recorded splits, of which `value` shows one at a time: noise without a normal draw
    checked: int = 64  # points whose values go into the digest
    listed = False

    @property
    def span(self) -> float:
        return self.best - self.least

    # -- points ----------------------------------------------------------------------------------------------

    def exists(self, name: str, x: Point) -> bool:
        """Whether a parameter exists at a point whose earlier ones are chosen."""
        conditions = self.when.get(name, {})
        return all(other in x and x[other] in _listed(values) for other, values in conditions.items())

    def drawn(self, rng: np.random.Generator) -> Point:
        """A legal point, uniformly."""
        while True:
            x = self._anywhere(rng)
            if self.legal(x):
                return x

    def _anywhere(self, rng: np.random.Generator) -> Point:
        x: Point = {} if self.mixture is None else _blend(self.mixture, rng)
        for name, (kind, *rest) in self.params.items():
            if not self.exists(name, x):
                continue
            if kind == "float":
                low, high = (math.log(each) if rest[2] else each for each in rest[:2])
                drawn = float(rng.uniform(low, high))
                x[name] = math.exp(drawn) if rest[2] else drawn
            elif kind == "int":
                x[name] = int(rng.integers(rest[0], rest[1] + 1))
            else:
                x[name] = rest[0][int(rng.integers(len(rest[0])))]
        return x

    def grid(self, rng: np.random.Generator, count: int, step: float) -> np.ndarray:
        """Distinct legal points on a grid, one row each, of a problem that has only floats."""
        low, high = np.array([bounds[1:3] for bounds in self.params.values()]).T
        found = np.empty((0, len(low)))
        while len(found) < count:
            X = np.round((low + (high - low) * rng.random((50_000, len(low)))) / step) * step
            x = dict(zip(self.params, X.T, strict=True))
            X = X[np.all([_excess(rule, x) <= 0 for rule in self.rules], axis=0)]
            found = np.unique(np.concatenate([found, X]), axis=0)
        return np.asarray(np.round(rng.permutation(found)[:count], 9))

    def legal(self, x: Point) -> bool:
        """Whether a point keeps to the rules and the mixture, but for rounding."""
        if self.mixture is not None:
            shares = np.array([x[name] for name in self.mixture.names]) / self.mixture.total
            several = (shares > TRACE).sum() > (self.mixture.at_most or len(shares))
            if abs(shares.sum() - 1.0) > TRACE or shares.min() < -SLACK or several:
                return False
        return all(bool(_excess(rule, x) <= SLACK) for rule in self.rules)

    # -- what evaluations give -------------------------------------------------------------------------------

    def truth(self, x: Point) -> float:
        return self.value(self._cleaned(x)) if self.legal(x) else FAILED

    def _cleaned(self, x: Point) -> Point:
        """Traces are zero, and shares sum to one."""
        if self.mixture is None:
            return x
        shares = np.array([x[name] for name in self.mixture.names]) / self.mixture.total
        shares = np.where(shares > TRACE, shares, 0.0)
        return x | dict(zip(self.mixture.names, shares / shares.sum(), strict=True))

    def draws(self, seed: int, rounds: int) -> np.ndarray:
        rng = np.random.default_rng([seed, 11])
        return rng.integers(self.replayed, size=rounds) if self.replayed else rng.standard_normal(rounds)

    def observed(self, x: Point, draw: Any) -> float:
        if self.replayed:
            return float(self.value(x, int(draw)))  # type: ignore[call-arg]
        return self.truth(x) + self.noise * float(draw)

    def regret(self, x: Point) -> float:
        value = self.truth(x)
        return (self.best - value) / self.span if math.isfinite(value) else 1.0

    @functools.cached_property
    def _digest(self) -> str:
        rng = np.random.default_rng(7)
        values = np.round([self.truth(self.drawn(rng)) for _ in range(self.checked)], 9)
        said = repr((self.name, self.params, self.rules, self.mixture, self.when, round(self.best, 9)))
        scale = repr((round(self.least, 9), round(self.noise, 9), self.rounds))
        return hashlib.sha256((said + scale).encode() + values.tobytes()).hexdigest()[:16]

    def digest(self) -> str:
        return self._digest


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]


def _blend(mixture: Mixture, rng: np.random.Generator) -> Point:
    """Uniformly on the simplex, or on a face of it that is drawn first."""
    names = list(mixture.names)
    present = rng.permutation(len(names))[: mixture.at_most or len(names)]
    shares = np.zeros(len(names))
    shares[present] = rng.dirichlet(np.ones(len(present)))
    return dict(zip(names, (mixture.total * shares).tolist(), strict=True))


def _excess(rule: str, x: Point) -> Any:
    """By how much "f(x) < number" is broken, as a share of the number."""
    left, right = rule.replace("<=", "<").split("<")
    most = float(right)
    return (_code(left)(x) - most) / abs(most)


@functools.cache
def _code(text: str) -> Callable[[Point], Any]:
    """Sums and products of parameters and numbers: the rules of this file, of no one else."""

    def meaning(node: ast.AST, x: Point) -> Any:
        if isinstance(node, ast.BinOp):
            a, b = meaning(node.left, x), meaning(node.right, x)
            return a + b if isinstance(node.op, ast.Add) else a * b
        return x[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)

    tree = ast.parse(text.strip(), mode="eval").body
    return lambda x: meaning(tree, x)


def _ranged(problem: Problem) -> Problem:
    """The least value is that of many random points, of which none is above the best."""
    rng = np.random.default_rng(1)
    values = np.array([problem.truth(problem.drawn(rng)) for _ in range(2000)])
    values = values[np.isfinite(values)]
    assert values.max() <= problem.best + 1e-9, (problem.name, values.max(), problem.best)
    least = float(values.min())
    return dataclasses.replace(problem, least=least, noise=problem.noise * (problem.best - least))


# -- mixtures ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Emulator:
    """The mean of a GP with a Matérn kernel on the shares, in units of the table's standard deviation."""

    amplitude: float
    scales: tuple[float, ...]
    nugget: float
    rough: bool  # ν = 3/2; or 5/2

    def fit(self, X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        centre, spread = y.mean(), y.std()
        K = self._kernel(X, X) + self.nugget * np.eye(len(X))
        weights = np.linalg.solve(K, (y - centre) / spread)
        return lambda Z: centre + spread * (self._kernel(np.atleast_2d(Z), X) @ weights)

    def _kernel(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        scaled = (A[:, None, :] - B[None, :, :]) / np.array(self.scales)
        r = math.sqrt(3.0 if self.rough else 5.0) * np.sqrt((scaled**2).sum(axis=-1))
        return self.amplitude * (1.0 + r if self.rough else 1.0 + r + r**2 / 3.0) * np.exp(-r)


def _highest(f: Callable[[np.ndarray], np.ndarray], d: int, at_most: int) -> float:
    """The largest value on the simplex: of many random points, the best of each face are climbed from."""
    from scipy.optimize import minimize

    rng, found = np.random.default_rng(3), -math.inf
    for face in itertools.combinations(range(d), at_most):
        Z = np.zeros((20000, d))
        Z[:, face] = rng.dirichlet(np.full(at_most, 0.6), len(Z))
        values = np.concatenate([f(part) for part in np.split(Z, 20)])
        for start in Z[np.argsort(-values)[:10]][:, face]:

            def loss(z: np.ndarray, face: Any = face) -> float:
                full = np.zeros(d)
                full[list(face)] = z
                return -float(f(full)[0])

            rule = {"type": "eq", "fun": lambda z: z.sum() - 1.0}
            end = minimize(loss, start, bounds=[(0.0, 1.0)] * at_most, constraints=rule, options={"ftol": 1e-12})
            ended = np.clip(end.x, 0.0, 1.0)
            found = max(found, float(values.max()), -loss(ended / ended.sum()))
    return found


def _mixture(table: tables.Table | None, name: str, mixture: Mixture, emulator: Emulator) -> Problem | None:
    if table is None:
        return None
    shares = np.array([list(row.values()) for row in table.rows])
    X = shares / shares.sum(axis=1, keepdims=True)
    f = emulator.fit(X, table.truth)
    readings = np.concatenate(table.readings)
    residuals = readings - np.repeat(f(X), [len(each) for each in table.readings])
    d = len(mixture.names)
    best = _highest(f, d, mixture.at_most or d) + 1e-6

    def value(x: Point) -> float:
        return float(f(np.array([x[name] for name in mixture.names]))[0])

    task = Problem(name, {}, value, best, 0.0, 0.0, 40, mixture=mixture)
    return dataclasses.replace(_ranged(task), noise=float(residuals.std()))


POLYMERS = ("P3HT", "D1", "D2", "D6", "D8")
CATIONS = ("Cs", "FA", "MA")


def p3ht() -> Problem | None:
    """Logarithm of the conductivity of a blend of a polymer and four dopants."""
    return _p3ht("P3HT", Mixture(POLYMERS, 100.0))


def p3ht_few() -> Problem | None:
    """The same, of which at most three are used."""
    return _p3ht("P3HT, at most 3", Mixture(POLYMERS, 100.0, 3))


def _p3ht(name: str, mixture: Mixture) -> Problem | None:
    return _mixture(tables.p3ht(), name, mixture, Emulator(0.9, (10.0, 0.45, 10.0, 3.4, 0.1), 0.13, rough=True))


def perovskite() -> Problem | None:
    """Logarithm of the instability of a mixture of three cations, less of which is better."""
    mixture = Mixture(CATIONS, 1.0)
    return _mixture(tables.perovskite(), "perovskite", mixture, Emulator(2.5, (0.3, 10.0, 0.85), 0.38, rough=False))


# -- rules ---------------------------------------------------------------------------------------------------

CATALYSTS = {  # frequency factors and activation energies (K) of A → B and B → C, and the order in pressure
    "Pd": (6.0e4, 5200.0, 6.0e5, 6600.0, 0.75),
    "Pt": (2.0e3, 4100.0, 2.5e4, 5700.0, 0.60),
    "Ni": (2.0e5, 5900.0, 8.0e4, 6000.0, 0.90),
    "Ru": (6.0e3, 4700.0, 6.0e3, 5200.0, 0.70),
}


def _yield(temperature: Any, pressure: Any, time: Any, catalyst: str) -> Any:
    """Of B in A → B → C, in per cent (temperature in °C, pressure in bar, time in hours)."""
    factor, energy, factor_2, energy_2, order = CATALYSTS[catalyst]
    kelvin = np.asarray(temperature) + 273.15
    k = factor * np.exp(-energy / kelvin) * (np.asarray(pressure) / 10.0) ** order
    l = factor_2 * np.exp(-energy_2 / kelvin) * (np.asarray(pressure) / 10.0) ** 0.1  # noqa: E741
    l = np.where(np.abs(l - k) < 1e-9 * k, k * (1.0 + 1e-6), l)  # noqa: E741
    return 100.0 * k / (l - k) * (np.exp(-k * np.asarray(time)) - np.exp(-l * np.asarray(time)))


HOUR = 1.5  # per cent of yield that an hour in the reactor costs


def _earned(temperature: Any, pressure: Any, time: Any, catalyst: str) -> Any:
    return _yield(temperature, pressure, time, catalyst) - HOUR * np.asarray(time)


def reactor() -> Problem:
    """Heat and pressure both help, and the vessel bears only so much of the two together."""

    def value(x: Point) -> float:
        return float(_earned(x["temperature"], x["pressure"], x["time"], x["catalyst"]))

    params: Params = {"temperature": ("float", 20.0, 150.0, False), "pressure": ("float", 1.0, 80.0, False),
                      "time": ("float", 0.5, 24.0, True), "catalyst": ("choice", list(CATALYSTS))}  # fmt: skip
    linear = (Linear({"temperature": 1.0, "pressure": 2.0}, 200.0),)
    task = Problem("reactor", params, value, _reactor_best(), 0.0, 0.02, 60,
                   rules=("temperature + 2*pressure < 200",), linear=linear)  # fmt: skip
    return _ranged(task)


def _reactor_best() -> float:
    from scipy.optimize import minimize

    t, p, h = np.meshgrid(np.linspace(20, 150, 131), np.linspace(1, 80, 80), np.geomspace(0.5, 24, 60), indexing="ij")
    kept, found = t + 2 * p <= 200, -math.inf
    for name in CATALYSTS:
        values = np.where(kept, _earned(t, p, h, name), -math.inf)
        for place in np.argsort(-values, axis=None)[:5]:
            start = np.array([each.flat[place] for each in (t, p, h)])
            rule = {"type": "ineq", "fun": lambda z: 200.0 - z[0] - 2.0 * z[1]}
            end = minimize(lambda z, name=name: -float(_earned(*z, name)), start, constraints=rule,
                           bounds=[(20, 150), (1, 80), (0.5, 24)], options={"ftol": 1e-12})  # fmt: skip
            found = max(found, float(values.max()), -float(end.fun) if rule["fun"](end.x) > -1e-6 else -math.inf)
    return found + 1e-4


def hartmann_rules() -> Problem:
    """Hartmann's function in six dimensions; two rules, one of them not linear, leave 2 % of the box."""
    from tasks import hartmann

    f = hartmann().values
    names = [f"x{i}" for i in range(6)]
    rules = ("x0*x1 < 0.025", "x2 + x3 + x4 <= 1.0")

    def value(x: Point) -> float:
        return float(f(np.array([[x[name] for name in names]]))[0])

    params: Params = dict.fromkeys(names, ("float", 0.0, 1.0, False))
    linear = (
        Linear({"x2": 1.0, "x3": 1.0, "x4": 1.0}, 1.0),
        Linear({"x0": 1.0, "x1": 1.0}, math.log(0.025), on_log=True),
    )
    return _ranged(Problem("Hartmann 6 with rules", params, value, _hartmann_best(f), 0.0, 0.02, 60,
                           rules=rules, linear=linear))  # fmt: skip


def _hartmann_best(f: Callable[[np.ndarray], np.ndarray]) -> float:
    from scipy.optimize import minimize

    rng = np.random.default_rng(3)
    X = rng.random((400000, 6))
    X = X[(X[:, 0] * X[:, 1] < 0.025) & (X[:, 2:5].sum(axis=1) <= 1.0)]
    values = f(X)
    rules = [
        {"type": "ineq", "fun": lambda z: 0.025 - z[0] * z[1]},
        {"type": "ineq", "fun": lambda z: 1.0 - z[2:5].sum()},
    ]
    ends = [minimize(lambda z: -float(f(z[None])[0]), X[place], bounds=[(0, 1)] * 6, constraints=rules,
                     options={"ftol": 1e-12}) for place in np.argsort(-values)[:40]]  # fmt: skip
    return max(-float(end.fun) for end in ends if min(rule["fun"](end.x) for rule in rules) > -1e-7) + 1e-4


# -- parameters that exist only sometimes --------------------------------------------------------------------


def classifier() -> Problem:
    """A scikit-learn pipeline on noisy digits with a choice of three models; each round shows one of six splits.

    The truth is the mean of the six; the best of it is not known, and stands a little above all that was found.
    """
    params: Params = {
        "scaling": ("choice", ["none", "standard", "pca"]), "components": ("int", 2, 40),
        "model": ("choice", ["svm", "forest", "neighbours"]),
        "C": ("float", 1e-3, 1e3, True), "kernel": ("choice", ["linear", "rbf", "poly"]),
        "gamma": ("float", 1e-5, 10.0, True), "degree": ("int", 2, 5),
        "depth": ("int", 1, 15), "features": ("float", 0.02, 1.0, True), "leaf": ("int", 1, 20),
        "k": ("int", 1, 40), "weights": ("choice", ["uniform", "distance"]),
    }  # fmt: skip
    svm, forest, neighbours = {"model": "svm"}, {"model": "forest"}, {"model": "neighbours"}
    when = {"components": {"scaling": "pca"}, "C": svm, "kernel": svm, "gamma": svm | {"kernel": "rbf"},
            "degree": svm | {"kernel": "poly"}, "depth": forest, "features": forest, "leaf": forest,
            "k": neighbours, "weights": neighbours}  # fmt: skip
    return Problem("classifier", params, _accuracy, BEST_ACCURACY, 0.1, 0.0, 60, when=when, replayed=SPLITS, checked=8)


SPLITS = 6
BEST_ACCURACY = 0.73  # a thousand trials of TPE on the means of all splits end at 0.726


def _accuracy(x: Point, split: int | None = None) -> float:
    """On one split, or the mean of all."""
    key = tuple(sorted(x.items()))
    chosen = range(SPLITS) if split is None else [split]
    return float(np.mean([_scored(key, each) for each in chosen]))


@functools.cache
def _split(number: int) -> tuple[np.ndarray, ...]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng([61, number])
    X = X / 16.0 + 0.4 * np.random.default_rng(60).standard_normal(X.shape)
    order = rng.permutation(len(X))
    return X[order[:200]], X[order[200:600]], y[order[:200]], y[order[200:600]]


@functools.lru_cache(maxsize=100_000)
def _scored(key: tuple[tuple[str, Any], ...], split: int) -> float:
    from sklearn.decomposition import PCA
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    x = dict(key)
    A, B, a, b = _split(split)
    if x["scaling"] != "none":
        scaler = StandardScaler() if x["scaling"] == "standard" else PCA(x["components"], random_state=0)
        A, B = scaler.fit_transform(A), scaler.transform(B)
    if x["model"] == "svm":
        fit: Any = SVC(C=x["C"], kernel=x["kernel"], gamma=x.get("gamma", "scale"), degree=x.get("degree", 3))
    elif x["model"] == "forest":
        fit = RandomForestClassifier(10, max_depth=x["depth"], max_features=x["features"], min_samples_leaf=x["leaf"],
                                     random_state=split)  # fmt: skip
    else:
        fit = KNeighborsClassifier(x["k"], weights=x["weights"])
    return float(fit.fit(A, a).score(B, b))


def branches() -> Problem:
    """A broad hill that looks good early, a rough middle, and a branch within a branch that is best but narrow."""
    params: Params = {
        "method": ("choice", ["hill", "waves", "deep"]),
        "a1": ("float", 0.0, 1.0, False), "a2": ("float", 0.0, 1.0, False),
        "w1": ("float", 0.0, 1.0, False), "w2": ("float", 0.0, 1.0, False), "w3": ("float", 1e-3, 1.0, True),
        "d1": ("float", 0.0, 1.0, False), "d2": ("float", 1e-4, 1.0, True), "mode": ("choice", ["coarse", "fine"]),
        "level": ("int", 1, 10), "f1": ("float", 0.0, 1.0, False), "f2": ("float", 0.0, 1.0, False),
    }  # fmt: skip
    hill, waves, deep = {"method": "hill"}, {"method": "waves"}, {"method": "deep"}
    fine = deep | {"mode": "fine"}
    when = {"a1": hill, "a2": hill, "w1": waves, "w2": waves, "w3": waves, "d1": deep, "d2": deep, "mode": deep,
            "level": deep | {"mode": "coarse"}, "f1": fine, "f2": fine}  # fmt: skip

    def value(x: Point) -> float:
        if x["method"] == "hill":
            return 0.8 * math.exp(-((x["a1"] - 0.35) ** 2 + (x["a2"] - 0.6) ** 2) / 0.32)
        if x["method"] == "waves":
            away = (x["w1"] - 0.6) ** 2 + (x["w2"] - 0.3) ** 2 + (math.log10(x["w3"]) / 3.0 + 0.4) ** 2
            return 0.7 / (1.0 + 3.0 * away) + 0.1 * math.cos(14.0 * (x["w1"] - 0.6)) * math.cos(14.0 * (x["w2"] - 0.3))
        away = (x["d1"] - 0.7) ** 2 + (math.log10(x["d2"]) / 4.0 + 0.7) ** 2
        if x["mode"] == "coarse":
            return 0.7 / (1.0 + 8.0 * away) - 0.006 * (x["level"] - 7) ** 2
        return 1.0 / (1.0 + 8.0 * (away + (x["f1"] - 0.25) ** 2 + (x["f2"] - 0.6) ** 2))

    return _ranged(Problem("branches", params, value, 1.0, 0.0, 0.02, 60, when=when))


def crashes() -> Problem:
    """Settings as of boosting, a loss: in the best branch it runs out of memory just beyond the best settings."""
    params: Params = {
        "booster": ("choice", ["tree", "dart", "linear"]),
        "rate": ("float", 1e-3, 1.0, True), "depth": ("int", 1, 12), "subsample": ("float", 0.3, 1.0, False),
        "drop": ("float", 0.0, 0.5, False), "weighting": ("choice", ["tree", "forest"]),
        "alpha": ("float", 1e-6, 10.0, True), "lambda_": ("float", 1e-6, 10.0, True),
    }  # fmt: skip
    trees, dart, linear = {"booster": ["tree", "dart"]}, {"booster": "dart"}, {"booster": "linear"}
    when = {"rate": trees, "depth": trees, "subsample": {"booster": "tree"}, "drop": dart, "weighting": dart,
            "alpha": linear, "lambda_": linear}  # fmt: skip

    def value(x: Point) -> float:
        if x["booster"] == "linear":
            alpha, penalty = math.log10(x["alpha"]), math.log10(x["lambda_"])
            return FAILED if alpha + penalty < -9.0 else -(0.38 + 0.01 * (alpha + 2) ** 2 + 0.008 * (penalty + 1) ** 2)
        rate, depth = math.log10(x["rate"]), x["depth"]
        if x["booster"] == "tree":
            return -(0.3 + 0.06 * (rate + 1.1) ** 2 + 0.005 * (depth - 5) ** 2 + 0.2 * (x["subsample"] - 0.8) ** 2)
        if rate + 0.2 * depth > 0.95 or (x["weighting"] == "forest" and x["drop"] > 0.3):
            return FAILED
        loss = 0.2 + 0.06 * (rate + 0.7) ** 2 + 0.004 * (depth - 8) ** 2 + 0.7 * (x["drop"] - 0.12) ** 2
        return -(loss + (0.03 if x["weighting"] == "forest" else 0.0))

    return _ranged(Problem("crashes", params, value, -0.2, 0.0, 0.02, 60, when=when))
