"""What a query costs at which ms.Auto renews its model, beside one suggestion of Optuna's GPSampler.

    python benchmarks/renewal.py [--dimensions 3 10 20] [--results 50 100 …] [--many]

Same results for both, in one process, one thread each: half of the points uniform, half around the best of those, with
noise. `first` is the query after all results were told at once, `renewing` the one at which a model is renewed that was
learnt from seven eighths of them, `next` the query after it. Seconds of the processor; ratio is renewing/GPSampler.
--many: 200 parameters, without GPSampler.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is imported

import argparse
import math
import time
import warnings

import numpy as np
import optuna

import misspec as ms

RESULTS = (50, 100, 150, 200, 250, 299, 301, 350, 450, 500)
NOISE = 0.05


def results(d: int, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points and results of a function of which five parameters matter, and pairs of them interact."""
    rng = np.random.default_rng([seed, d])

    def f(X: np.ndarray) -> np.ndarray:
        Z = X[:, : min(d, 5)] - 0.3
        return np.asarray(-(Z**2).sum(axis=1) + 0.3 * np.sin(6.0 * Z[:, 0]) * np.cos(4.0 * Z[:, -1]))

    X = rng.random((count, d))
    best = X[np.argsort(-f(X))[: max(1, count // 20)]]
    near = rng.random(count) < 0.5
    about = best[rng.integers(len(best), size=count)] + 0.1 * rng.standard_normal((count, d))
    X[near] = np.clip(about[near], 0.0, 1.0)
    return X, f(X) + NOISE * rng.standard_normal(count)


def seconds_of_auto(X: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """A first query, one that renews, and the next."""
    t, spent = len(y), []

    def timed(policy: ms.Auto) -> ms.policies.Query:
        start = time.process_time()
        query = policy.ask()
        spent.append(time.process_time() - start)
        return query

    cold = ms.Auto(ms.Box([(0.0, 1.0)] * X.shape[1]))
    cold.observe(X, y)
    timed(cold)
    warm = ms.Auto(ms.Box([(0.0, 1.0)] * X.shape[1]))
    before = math.floor(t / (1.0 + 1.0 / 7.0))
    warm.observe(X[:before], y[:before])
    warm.refresh()
    warm.observe(X[before:], y[before:])
    query = timed(warm)
    warm.tell(query, float(y.mean()))
    timed(warm)
    return spent[0], spent[1], spent[2]


def seconds_of_optuna(X: np.ndarray, y: np.ndarray) -> float:
    """A suggestion."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.GPSampler(seed=0, deterministic_objective=False)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    spaces = {f"x{j}": optuna.distributions.FloatDistribution(0.0, 1.0) for j in range(X.shape[1])}
    study.add_trials([
        optuna.create_trial(params=dict(zip(spaces, x, strict=True)), distributions=spaces, value=value)
        for x, value in zip(X.tolist(), y.tolist(), strict=True)
    ])  # fmt: skip
    start = time.process_time()
    trial = study.ask()
    for name in spaces:
        trial.suggest_float(name, 0.0, 1.0)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimensions", type=int, nargs="*", default=[3, 10, 20])
    parser.add_argument("--results", type=int, nargs="*", default=list(RESULTS))
    parser.add_argument("--many", action="store_true", help="200 parameters, without GPSampler")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'d':>4} {'t':>5} {'first':>8} {'renewing':>9} {'next':>8} {'GPSampler':>10} {'ratio':>7}")
    seconds_of_optuna(*results(2, 20))  # imports
    seconds_of_auto(*results(2, 20))
    for d in [200] if args.many else args.dimensions:
        for t in args.results:
            told = results(d, t)
            first, renewing, after = seconds_of_auto(*told)
            peer = math.nan if args.many else seconds_of_optuna(*told)
            print(
                f"{d:>4} {t:>5} {first:>8.2f} {renewing:>9.2f} {after:>8.2f} {peer:>10.2f} {renewing / peer:>7.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
