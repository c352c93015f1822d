"""Ties go to the lowest index, also between candidates that are equal to the bit."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

import misspec as ms

MODEL = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1)
PLAIN = {
    "gp-ucb": lambda domain: ms.GPUCB(domain, MODEL, width=2.0),
    "matern": lambda domain: ms.GPUCB(domain, ms.Model(Matern(0.3, nu=2.5), norm_bound=2.0, noise=0.1)),
    "linear": lambda domain: ms.GPUCB(domain, ms.Model(DotProduct(sigma_0=0), norm_bound=2.0, noise=0.1)),
    "budget": lambda domain: ms.GPUCB(domain, MODEL, budget=5),
    "exact": lambda domain: ms.ECGPUCB(domain, MODEL, epsilon=0.2, enlargement="exact", grounded=False),
    "norm2": lambda domain: ms.ECGPUCB(domain, MODEL, epsilon=0.2, enlargement="norm2", grounded=False),
    "paper": lambda domain: ms.ECGPUCB.as_in_paper(domain, MODEL, epsilon=0.2),
    "thompson": lambda domain: ms.ThompsonSampling(domain, MODEL),
    "phased": lambda domain: ms.PhasedUncertaintySampling.as_in_paper(domain, MODEL, horizon=60),
}
GROUNDED = {
    "grounded": lambda domain: ms.GPUCB(domain, MODEL, width=2.0, grounded=True),
    "exact": lambda domain: ms.ECGPUCB(domain, MODEL, epsilon=0.2),
    "balancing": lambda domain: ms.RegretBalancing(domain, MODEL, horizon=60),
    "insured": lambda domain: ms.InsuredUCB(domain, MODEL),
    "auto": lambda domain: ms.Auto(domain),
}


def played(make, seed, rounds):
    """A policy on candidates of which every third is a copy of another, and the queries that it made."""
    rng = np.random.default_rng(seed)
    points = rng.random((40, 2)) / 2
    points = points[rng.permutation(np.concatenate([np.arange(40), rng.integers(0, 40, 20)]))]
    first = [int(np.flatnonzero((points == x).all(axis=1))[0]) for x in points]
    policy, queries = make(ms.Finite(points)), []
    for _ in range(rounds):
        query = policy.ask()
        queries.append(query.index)
        policy.tell(query, float(np.sin(8 * query.x[0]) + 0.1 * rng.standard_normal()))
    return np.array(first), queries


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", PLAIN)
def test_of_equal_candidates_the_lowest_is_asked(name, seed):
    first, queries = played(PLAIN[name], seed, 50)
    np.testing.assert_array_equal(first[queries], queries)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", GROUNDED)
def test_of_equal_candidates_without_results_the_lowest_is_asked(name, seed):
    """What was observed at one of them is evidence about that one: then they are no longer equal."""
    first, queries = played(GROUNDED[name], seed, 40)
    seen, fresh = set(), 0
    for index in queries:
        if index not in seen:
            unseen = [i for i in np.flatnonzero(first == first[index]).tolist() if i not in seen]
            if name != "auto" or len(seen) >= 5:  # its first points are drawn
                assert index == unseen[0]
                fresh += len(unseen) > 1
        seen.add(index)
    assert fresh


@pytest.mark.parametrize("kind", ["gp-ucb", "thompson", "insured"])
def test_of_equal_actions_the_first_is_chosen(kind):
    rng = np.random.default_rng(0)
    model = ms.Model(DotProduct(sigma_0=0), norm_bound=2.0, noise=0.1)
    makes = {"gp-ucb": ms.GPUCB, "thompson": ms.ThompsonSampling, "insured": ms.InsuredUCB}
    policy = makes[kind](ms.Open(5), model)
    for _ in range(60):
        actions = rng.random((7, 5))[rng.integers(0, 7, 23)] / 3
        query = policy.ask(actions=actions)
        assert query.position == int(np.flatnonzero((actions == query.x).all(axis=1))[0])
        policy.tell(query, float(query.x.sum() + 0.1 * rng.standard_normal()))
