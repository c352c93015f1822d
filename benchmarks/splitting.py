"""What a misfit costs EC-GP-UCB and domain splitting: how it grows with ε and with γ, and where splitting loses.

    python benchmarks/splitting.py [--dimension 1] [--rounds 3000] [--enlargement exact] [--out file.json]
    python benchmarks/splitting.py --read file.json [file.json …]

Matérn ν = 3/2 on grids, members of norm B = 2, σ = 0.1, four length scales, so that γ_T differs. For each policy and
member a misfit is sought (`misspec.adversary`, at the largest ε and over fewer rounds) and scaled to each ε; the
policies are told ε, and are not grounded, since own bands end what ε costs. The misfit's part of the regret is what it
adds to the regret of the same policy on the same member without it. With 95 % intervals from resampling members:

    cost     the misfit's part per round, divided by ε: a slope in ε at fixed T
    slope    of the cost in √γ_T, over the length scales: above 0 is the factor √γ of Theorem 1, 0 is none
    early    regret without misfit relative to EC-GP-UCB's, by length scale
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.gaussian_process.kernels import Matern

import misspec as ms

SCALES = (0.5, 0.25, 0.12, 0.06)
EPSILONS = (0.0, 0.05, 0.1, 0.2)
EARLY = (100, 300, 1000)
POLICIES = {
    "EC-GP-UCB": lambda d, m, e, x: ms.ECGPUCB(d, m, epsilon=e, enlargement=x, grounded=False),
    "splitting": lambda d, m, e, x: ms.comparators.DomainSplitting(d, m, epsilon=e, enlargement=x, grounded=False),
    "splitting, learning": lambda d, m, e, x: ms.comparators.DomainSplitting(
        d, m, epsilon=e, enlargement=x, grounded=False, ancestors="learning"
    ),
}


def measure(dimension, rounds, members, enlargement, tries, leave_out):
    """Rows: one per policy, length scale, member and ε, with the cumulative regret at some rounds."""
    domain = ms.Box([(0.0, 1.0)] * dimension).grid(100 if dimension == 1 else 15)
    rows, began = [], time.time()
    for scale in SCALES:
        model = ms.Model(Matern(scale, nu=1.5), norm_bound=2.0, noise=0.1)
        gamma = ms.information_gain(domain, model, rounds).upper
        for name, make in POLICIES.items():
            for member in range(0 if name in leave_out else members):
                most = ms.problems.misspecified(domain, model, epsilon=EPSILONS[-1], seed=member)
                found = ms.adversary.worst_misfit(
                    lambda p, make=make: make(p.domain, p.model, p.epsilon, enlargement), most, rounds // 8,
                    tries=tries, worlds=1, seed=member,
                )  # fmt: skip
                shape = found.problem.misfit / EPSILONS[-1]
                for epsilon in EPSILONS:
                    problem = ms.problems.misspecified(
                        domain, model, epsilon=epsilon, misfit=epsilon * shape, seed=member
                    )
                    policy = make(domain, model, epsilon, enlargement)
                    regret = ms.simulate(policy, problem, rounds, seed=member).cumulative_regret
                    at = {t: float(regret[t - 1]) for t in (*EARLY, rounds) if t <= rounds}
                    cells = len(policy.cells) if hasattr(policy, "cells") else 1
                    rows.append([name, scale, gamma, member, epsilon, at, cells])
            print(f"{time.time() - began:5.0f} s  ℓ = {scale:g}, γ_T ≤ {gamma:.0f}  {name}", file=sys.stderr)
    return rows


def parts(rows, name, rounds, epsilon):
    """The misfit's part per round: members × length scales; and γ of these."""
    regret = {(scale, member, eps): at[rounds] for policy, scale, _, member, eps, at, _ in rows if policy == name}
    members = sorted({member for _, member, _ in regret})
    found = [[(regret[s, m, epsilon] - regret[s, m, 0.0]) / rounds for s in SCALES] for m in members]
    return np.array(found), np.array([next(row[2] for row in rows if row[1] == s) for s in SCALES])


def interval(values, statistic, digits=2, draws=2000):
    """A statistic of members, and its 95 % interval by resampling them."""
    rng = np.random.default_rng(0)
    drawn = [statistic(values[rng.integers(len(values), size=len(values))]) for _ in range(draws)]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{statistic(values):6.{digits}f} [{low:.{digits}f} to {high:.{digits}f}]"


def slope_in(gamma):
    return lambda cost: float(np.polyfit(np.sqrt(gamma), cost.mean(axis=0), 1)[0])


def report(rows, rounds):
    played = [name for name in POLICIES if any(row[0] == name for row in rows)]
    for name in played:
        print(f"\n{name}")
        for epsilon in EPSILONS[1:]:
            part, gamma = parts(rows, name, rounds, epsilon)
            costs = "  ".join(interval(part[:, [i]] / epsilon, np.mean) for i in range(len(SCALES)))
            print(
                f"  ε = {epsilon:<5g} cost by ℓ: {costs}   slope in √γ: {interval(part / epsilon, slope_in(gamma), 3)}"
            )
        all_ = np.array([parts(rows, name, rounds, e)[0] for e in EPSILONS[1:]])
        cost = [float(np.polyfit(EPSILONS, [0.0, *all_.mean(axis=1)[:, i]], 1)[0]) for i in range(len(SCALES))]
        print("  slope in ε by ℓ:", "  ".join(f"{each:.2f}" for each in cost), "  γ:", np.round(gamma).astype(int))
    print("\nregret without misfit, relative to EC-GP-UCB's, by ℓ")
    for name in played[1:]:
        for t in [t for t in (*EARLY, rounds) if t <= rounds]:
            ratios = []
            for scale in SCALES:
                regret = {
                    each: [row[5][t] for row in rows if row[:2] == [each, scale] and row[4] == 0.0] for each in played
                }
                ratios.append(interval(np.column_stack([regret[name], regret["EC-GP-UCB"]]), ratio))
            print(f"  {name:20} after {t:5}: {'  '.join(ratios)}")


def ratio(pairs):
    return float(pairs[:, 0].sum() / pairs[:, 1].sum())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimension", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--tries", type=int, default=12)
    parser.add_argument("--enlargement", default="exact", choices=["exact", "paper"])
    parser.add_argument("--leave-out", nargs="*", default=[], choices=list(POLICIES)[1:])
    parser.add_argument("--out")
    parser.add_argument("--read", nargs="*", default=[])
    chosen = parser.parse_args()
    for each in chosen.read:
        found = json.loads(Path(each).read_text())
        print(f"\n== {each}")
        report(
            [[*row[:5], {int(t): lost for t, lost in row[5].items()}, row[6]] for row in found],
            max(map(int, found[0][5])),
        )
    if not chosen.read:
        measured = measure(
            chosen.dimension, chosen.rounds, chosen.members, chosen.enlargement, chosen.tries, chosen.leave_out
        )
        if chosen.out:
            Path(chosen.out).write_text(json.dumps(measured))
        report(measured, chosen.rounds)
