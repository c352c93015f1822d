"""The loop "maximise an upper confidence bound, observe", side by side with BoTorch and scikit-learn, in one process.

    python benchmarks/posterior.py [--quick]

All three get the same kernel with fixed hyperparameters, the same candidates, the same observations, and one BLAS
thread. A peer's step at time t is: build its posterior on the t observations and evaluate mean and variance at all
candidates, without an N × N covariance, then take the maximum. BoTorch runs in the fastest of the modes tried
(joint or pointwise; Cholesky, conjugate gradients or LOVE; lazy kernels or not), without gradients.
Our own step at time t is the mean over the steps around t, refreshes included.
"""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import time
import warnings

import gpytorch
import gpytorch.kernels as gk
import numpy as np
import torch
from botorch.models import SingleTaskGP
from record import Figure, Record, around
from scipy.linalg import blas
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern

import misspec as ms

torch.set_num_threads(1)
NOISE, LENGTH, REGULARIZATION = 0.1, 0.2, 0.01
COLUMNS = ("BoTorch ms", "sklearn ms", "BoTorch/ours", "sklearn/ours")
MULTIPLIER = 2.0  # what practitioners use; the same for all three


def truth(X):
    return np.sin(5 * X[:, 0]) * np.cos(4 * X[:, 1])


class Ours:
    """The loop itself, with the three buffers that it reuses."""

    def __init__(self, kernel, N, seed=0, width=MULTIPLIER):
        rng = np.random.default_rng(seed)
        self.X = rng.random((N, 2))
        self.values = truth(self.X)
        self.rng, self.width = rng, width
        self.model = ms.Model(kernel, norm_bound=2.0, noise=NOISE, regularization=REGULARIZATION)
        self.posterior = ms.posterior.Tracked(self.model, ms.Finite(self.X))
        self.score = np.empty(N)
        self.index, self.y = [], []

    def step(self):
        p = self.posterior
        np.sqrt(p.variance, out=self.score)
        self.score *= ms.theory.widths.multiplier(self.width, self.model, p.log_det, self.model.delta)
        self.score += p.mean
        i = int(self.score.argmax())
        y = float(self.values[i] + NOISE * self.rng.standard_normal())
        p.observe_index(i, y)
        self.index.append(i)
        self.y.append(y)

    def run_to(self, t):
        while self.posterior.t < t:
            self.step()

    def timed(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - start) / steps


def times_of(function, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return np.array(times)


def called(kernel):
    return type(kernel).__name__.lower()


def botorch_step(kernel, X, train, y):
    """BoTorch's own posterior, each candidate a batch of one, so that no N × N matrix arises: its fastest mode here."""
    base = gk.MaternKernel(nu=kernel.nu) if isinstance(kernel, Matern) else gk.RBFKernel()
    base = base.double()
    base.lengthscale = LENGTH
    X, train, y = (torch.from_numpy(np.ascontiguousarray(a)) for a in (X, train, y))
    noise = torch.full((len(y), 1), REGULARIZATION, dtype=torch.double)

    def step():
        with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # inputs not standardised: the hyperparameters are given
            model = SingleTaskGP(train, y[:, None], noise, covar_module=base, outcome_transform=None)
            model.mean_module.constant.fill_(0.0)
            posterior = model.posterior(X[:, None, :])
            mean = posterior.mean[:, 0, 0]
            return int((mean + MULTIPLIER * posterior.variance[:, 0, 0].sqrt()).argmax()), mean

    return step


def sklearn_step(kernel, X, train, y):
    def step():
        gp = GaussianProcessRegressor(kernel, alpha=REGULARIZATION, optimizer=None).fit(train, y)
        mean, std = gp.predict(X, return_std=True)
        return int((mean + MULTIPLIER * std).argmax()), mean

    return step


def side_by_side(kernel, N, times, repeats):
    ours, figures = Ours(kernel, N), {}
    print(f"\n{kernel}, N = {N}, λ = {REGULARIZATION}, multiplier {MULTIPLIER}")
    print(f"{'t':>7} {'r':>5} {'ours µs':>9}", *(f"{name:>13}" for name in COLUMNS))
    for t in times:
        ours.run_to(t)
        train, y = ours.X[ours.index], np.array(ours.y)
        botorch, scikit = (peer(kernel, ours.X, train, y) for peer in (botorch_step, sklearn_step))
        for peer in (botorch, scikit):  # the same posterior, or the comparison means nothing
            difference = np.abs(np.asarray(peer()[1]) - ours.posterior.mean).max()
            assert difference < 1e-5, (peer, difference)
        a, b = times_of(botorch, repeats), times_of(scikit, repeats)
        fast = np.array([ours.timed(max(50, min(200, t))) for _ in range(repeats)])
        ratios = {"botorch": around(a / fast, ".0f"), "sklearn": around(b / fast, ".0f")}
        figures |= {f"{called(kernel)}.{t}.{peer}": figure for peer, figure in ratios.items()}
        print(
            f"{t:>7} {ours.posterior.rank:>5} {min(fast) * 1e6:>9.0f} {min(a) * 1e3:>13.1f} {min(b) * 1e3:>13.1f} "
            f"{ratios['botorch']!s:>18} {ratios['sklearn']!s:>18}"
        )
    return figures


def flat(kernel, late):
    """A step late against a step at t = 1,000: alternately timed twins, so that the machine's mood cancels."""
    early, old = Ours(kernel, 2500), Ours(kernel, 2500)
    early.run_to(1000)
    old.run_to(late)
    ratios = []
    for _ in range(5):
        twin = Ours(kernel, 2500)
        twin.run_to(1000)
        ratios.append(old.timed(600) / twin.timed(600))
    print(
        f"{kernel}: a step at t = {late:,} (r = {old.posterior.rank}) takes {around(ratios)} times "
        f"a step at t = 1,000 (r = {early.posterior.rank})"
    )
    return {f"{called(kernel)}.late": around(ratios)}


def bare(kernel, N, t=600):
    """A whole step against one matrix–vector product with a matrix as large, in the same layout."""
    ours = Ours(kernel, N)
    ours.run_to(t)
    Phi = np.random.default_rng(0).standard_normal((ours.posterior.rank, N))  # as large as what a step reads
    h, out = np.random.default_rng(0).random(len(Phi)), np.empty(N)
    ratios = []
    for _ in range(5):
        steps = ours.timed(40)
        Phi = np.random.default_rng(0).standard_normal((ours.posterior.rank, N))  # as large as what a step reads
        h = np.resize(h, len(Phi))
        product = min(
            times_of(lambda Phi=Phi, h=h: [blas.dgemv(1.0, Phi.T, h, y=out, overwrite_y=1) for _ in range(10)], 4)
        )
        ratios.append(steps / (product / 10))
    print(f"{kernel}: N = {N:,}, r = {len(Phi)}: a step takes {around(ratios)} times one bare product")
    return {f"{called(kernel)}.bare": around(ratios)}


def with_theory(kernel):
    theory = Ours(kernel, 2500, width="mixture")  # explores far more than the multiplier 2
    theory.run_to(1000)
    rank, micro = theory.posterior.rank, around(1e6 * theory.timed(200) for _ in range(3))
    print(f"{kernel} with the theory's multiplier: r = {rank} at t = 1,000, {micro} µs a step")
    return {f"{called(kernel)}.theory.rank": Figure(rank, form=".0f"), f"{called(kernel)}.theory.micro": micro}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes, to see that it runs")
    quick = parser.parse_args().quick
    repeats, times = (1, (10, 100)) if quick else (3, (10, 100, 1000))
    late, N = (5_000, 20_000) if quick else (100_000, 100_000)
    record = Record("posterior", protocol="quick" if quick else "whole", quick=quick, packages=("botorch", "torch"))
    for kernel in (RBF(LENGTH), Matern(LENGTH, nu=2.5)):
        record.measure(f"{called(kernel)}: side by side", lambda k=kernel: side_by_side(k, 2500, times, repeats))
        if called(kernel) == "rbf":
            record.measure(f"{called(kernel)}: late", lambda k=kernel: flat(k, late))
        record.measure(f"{called(kernel)}: bare", lambda k=kernel: bare(k, N))
        record.measure(f"{called(kernel)}: theory", lambda k=kernel: with_theory(k))


if __name__ == "__main__":
    main()
