"""What knowing the truth costs.

    python benchmarks/truth.py [--quick]

    best_in_class on N = 5,000 candidates, against one solve by Clarabel with all 2N constraints at once on the
    low-rank features of the domain; seconds are printed beside the ratio. The misfit decides how many constraints bind:
    few for a smooth one, hundreds for random signs
    a simulated round against a bare ask and tell: what the loop, the noise and the records add       at most 1.3

One BLAS thread.
"""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import time

import clarabel
import numpy as np
from record import Figure, Record, around
from scipy import sparse
from sklearn.gaussian_process.kernels import RBF, Matern

import misspec as ms
from misspec import kernels


def all_at_once(kernel, X, values, bound):
    """One second-order cone program with every constraint in it."""
    Phi, _ = kernels.features(kernel, X, 1e-10)
    n, r = Phi.shape
    ones, cone = np.ones((n, 1)), np.vstack([np.zeros((1, r + 1)), -np.eye(r, r + 1)])
    A = sparse.csc_matrix(np.vstack([np.hstack([Phi, -ones]), np.hstack([-Phi, -ones]), cone]))
    b = np.concatenate([values, -values, [bound], np.zeros(r)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(2 * n), clarabel.SecondOrderConeT(r + 1)]
    empty = sparse.csc_matrix((r + 1, r + 1))
    return clarabel.DefaultSolver(empty, np.eye(r + 1)[r], A, b, cones, settings).solve().obj_val


def best_in_class(N, kernel, misfit, compare):
    domain = ms.Finite(np.random.default_rng(0).random((N, 2)))
    problem = ms.problems.misspecified(domain, ms.Model(kernel, norm_bound=2.0, noise=0.1), 0.1, misfit, wavelength=0.1)
    started = time.perf_counter()
    best = ms.best_in_class(domain, problem.model, problem.values)
    ours = time.perf_counter() - started
    figures = {"seconds": Figure(ours, form=".1f")}
    line = f"best_in_class, N = {N:,}, {kernel}, {misfit:6s}: {ours:5.1f} s"
    line += f", epsilon {best.epsilon:.6f}, gap {best.gap:.0e}"
    if compare:
        started = time.perf_counter()
        other = all_at_once(kernel, domain.points, problem.values, 2.0)
        figures["at_once"] = Figure((time.perf_counter() - started) / ours, form=".0f")
        line += f"; all constraints at once {other:.6f}, {figures['at_once']} times as long"
    print(line, flush=True)
    return {f"best.{type(kernel).__name__.lower()}.{misfit}.{key}": figure for key, figure in figures.items()}


def simulated_round(rounds):
    domain, model = ms.Box([(0, 1)]).grid(200), ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
    problem = ms.problems.misspecified(domain, model, 0.1, "ripple")
    makers = {
        "GP-UCB": lambda: ms.GPUCB(domain, model),
        "EC-GP-UCB": lambda: ms.ECGPUCB(domain, model, epsilon=0.1),
        "phased": lambda: ms.PhasedUncertaintySampling(domain, model, horizon=rounds),
        "balancing": lambda: ms.RegretBalancing(domain, model, horizon=rounds),
    }
    figures = {}
    for name, make in makers.items():
        simulated, bare = [], []
        for seed in range(3):
            started = time.perf_counter()
            ms.simulate(make(), problem, rounds, seed)
            simulated.append(time.perf_counter() - started)
            policy = make()
            noise = 0.1 * np.random.default_rng([seed, 1]).standard_normal(rounds)  # the same world
            started = time.perf_counter()
            for t in range(rounds):
                query = policy.ask()
                policy.tell(query, problem.values[query.index] + noise[t])
            bare.append(time.perf_counter() - started)
        rate, ratio = rounds / min(simulated), around(a / b for a, b in zip(simulated, bare, strict=True))
        print(f"simulate, {name:9s}: {rate:6,.0f} rounds a second, {ratio} times the bare loop")
        figures[f"simulate.{name.lower().replace('-', '_')}"] = ratio
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    N = 1000 if quick else 5000
    record = Record("truth", protocol=f"N = {N}", quick=quick, packages=("clarabel",))
    smooth, rough = RBF(0.2), Matern(0.3, nu=2.5)
    for kernel, misfit in ((smooth, "ripple"), (smooth, "bump"), (smooth, "random"), (rough, "ripple")):
        compare = kernel is smooth and misfit == "ripple"
        record.measure(f"{kernel}, {misfit}", lambda k=kernel, m=misfit, c=compare: best_in_class(N, k, m, compare=c))
    record.measure("simulated round", lambda: simulated_round(1000 if quick else 5000))
