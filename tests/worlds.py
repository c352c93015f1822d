"""Playing in tests: every trace obeys |R* − R| ≤ 2εT."""

import numpy as np

import misspec as ms


def play(policy, problem, rounds, seed=0, **options):
    trace = ms.simulate(policy, problem, rounds, seed, **options)
    apart = np.abs(trace.cumulative_regret - trace.cumulative_in_class_regret)
    assert (apart <= 2 * problem.epsilon * np.arange(1, rounds + 1) + 1e-9).all()
    return trace
