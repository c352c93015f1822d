"""What a whole ask and tell costs, as ratios within one run.

    python benchmarks/policies.py [--quick]

    GP-UCB against the bare posterior step: rank-one update, score, argmax                       at most 1.5
    EC-GP-UCB with the exact enlargement against GP-UCB, 100 distinct points                     at most 4
    balancing with shared evidence against one EC-GP-UCB, few bases and many                     at most 1.5
    contextual rounds with 50 fresh actions, late against early                                  at most 1.5

One BLAS thread. Whatever is compared is timed in turns, so that the machine's mood cancels.
"""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import copy
import time

import numpy as np
from record import Record, around
from sklearn.gaussian_process.kernels import RBF

import misspec as ms

NOISE = 0.1


def truth(X):
    return np.sin(5 * X[:, 0]) * np.cos(4 * X[:, 1])


class Loop:
    """A policy on N random points of the unit square."""

    def __init__(self, make, domain, seed=0):
        self.policy = make(domain, ms.Model(RBF(0.2), norm_bound=2.0, noise=NOISE))
        self.values = truth(domain.points)
        self.rng = np.random.default_rng(seed)

    def step(self):
        query = self.policy.ask()
        self.policy.tell(query, float(self.values[query.index] + NOISE * self.rng.standard_normal()))


class Bare:
    """The same loop by hand."""

    def __init__(self, domain, seed=0):
        self.model = ms.Model(RBF(0.2), norm_bound=2.0, noise=NOISE)
        self.posterior = ms.posterior.Tracked(self.model, domain)
        self.values, self.score = truth(domain.points), np.empty(len(domain))
        self.rng = np.random.default_rng(seed)

    def step(self):
        p = self.posterior
        np.sqrt(p.variance, out=self.score)
        self.score *= ms.theory.widths.multiplier("mixture", self.model, p.log_det, self.model.delta)
        self.score += p.mean
        i = int(self.score.argmax())
        p.observe_index(i, float(self.values[i] + NOISE * self.rng.standard_normal()))


def seconds(loop, steps):
    start = time.perf_counter()
    for _ in range(steps):
        loop.step()
    return (time.perf_counter() - start) / steps


def ratio(slow, fast, steps=60, turns=9):
    """Of slow's time to fast's, over turns."""
    return around(seconds(slow, steps) / seconds(fast, steps) for _ in range(turns))


def warmed(loop, steps):
    for _ in range(steps):
        loop.step()
    return loop


def short_ratio(slow, fast, steps=30, turns=15):
    """The same from copies of one state each, so that neither wanders off to new points."""
    times = [[seconds(copy.deepcopy(loop), steps) for loop in (slow, fast)] for _ in range(turns)]
    return around(a / b for a, b in times)


def hundred_distinct(loop, limit=4000):
    """Run until 100 distinct points were observed (or for a while, where a policy has found what it wants before)."""
    while loop.policy.posterior.distinct < 100 and loop.policy.t < limit:
        loop.step()
    return loop


class Contextual:
    """Rounds of 50 actions that were never seen before, on a Box."""

    def __init__(self, make):
        self.policy = make(ms.Box([(0, 1), (0, 1)]), ms.Model(RBF(0.5), norm_bound=2.0, noise=NOISE))
        self.rng = np.random.default_rng(0)

    def step(self):
        actions = self.rng.random((50, 2))
        query = self.policy.ask(actions=actions)
        self.policy.tell(query, float(truth(query.x[None, :])[0] + NOISE * self.rng.standard_normal()))


def bare_step(domain):
    gp, bare = warmed(Loop(ms.GPUCB, domain), 500), warmed(Bare(domain), 500)
    figure = ratio(gp, bare)
    print(f"GP-UCB / bare step: {figure}  (N = {len(domain):,}, r = {bare.posterior.rank})")
    return {"gp_ucb": figure}


def exact(epsilon, width="mixture"):
    return lambda d, m: ms.ECGPUCB(d, m, epsilon=epsilon, width=width)


def enlarged(domain):
    """Like is compared with like: with the multiplier 2 and a small ε both have found what they want and repeat points;
    with the theory's multiplier both visit a new point in almost every round."""
    figures = {}
    for epsilon, width in ((0.005, 2.0), (0.02, 2.0), (0.1, "mixture")):
        gp = hundred_distinct(Loop(lambda d, m, w=width: ms.GPUCB(d, m, width=w), domain))
        ec = hundred_distinct(Loop(exact(epsilon, width), domain))
        figure, p = short_ratio(ec, gp), ec.policy.posterior
        print(f"EC-GP-UCB exact / GP-UCB: {figure}  (ε = {epsilon}, width {width}, {p.distinct} points, t = {p.t})")
        figures[f"exact.{width}.{epsilon}"] = figure
    return figures


def balanced(domain):
    figures = {}
    for horizon in (10, 1_000, 100_000):
        ec = hundred_distinct(Loop(exact(0.1), domain))
        many = hundred_distinct(Loop(lambda d, m, h=horizon: ms.RegretBalancing(d, m, horizon=h), domain))
        figure, M = short_ratio(many, ec), len(many.policy.epsilons)
        print(f"balancing / EC-GP-UCB: {figure}  ({M} bases, t = {many.policy.t})")
        figures[f"balancing.{M}_bases"] = figure
    return figures


CONTEXTUAL = {
    "GP-UCB": ms.GPUCB,
    "EC-GP-UCB, paper's enlargement": lambda d, m: ms.ECGPUCB(d, m, epsilon=0.1, enlargement="paper"),
    "EC-GP-UCB, exact enlargement (grows with t)": exact(0.1),
}


def contextual(quick):
    figures = {}
    for (name, make), key in zip(CONTEXTUAL.items(), ("gp_ucb", "paper", "exact"), strict=True):
        late = warmed(Contextual(make), 1_000 if quick else 2_000 if "exact" in name else 10_000)
        at = late.policy.t
        early = [warmed(Contextual(make), 500) for _ in range(5)]
        figure = around(seconds(late, 100) / seconds(e, 100) for e in early)
        print(f"contextual {name}: a round at t = {at:,} / at t = 500: {figure}")
        figures[f"contextual.{key}"] = figure
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes, to see that it runs")
    quick = parser.parse_args().quick
    N = 2_000 if quick else 10_000
    domain = ms.Finite(np.random.default_rng(0).random((N, 2)))
    record = Record("policies", protocol=f"N = {N}", quick=quick)
    record.measure("bare step", lambda: bare_step(domain))
    record.measure("enlarged", lambda: enlarged(domain))
    record.measure("balanced", lambda: balanced(domain))
    record.measure("contextual", lambda: contextual(quick))


if __name__ == "__main__":
    main()
