"""Whatever the space, the rules and the policy: every query keeps them, and so does every recommendation."""

import numpy as np
import pytest

import misspec as ms
from misspec.errors import AwaitingResults, HorizonReached, InvalidInput
from misspec.policies import UniformSampling
from misspec.search import climb

POLICIES = {
    "uniform": lambda space, model: UniformSampling(space, model),
    "auto": lambda space, model: ms.Auto(space, seed=1),
    "earning": lambda space, model: ms.Auto(space, aim="earn", seed=1),
    "gp-ucb": lambda space, model: ms.GPUCB(space, model, width=2.0),
    "ec-gp-ucb": lambda space, model: ms.ECGPUCB(space, model, epsilon=0.1),
    "insured": lambda space, model: ms.InsuredUCB(space, model),
    "balancing": lambda space, model: ms.RegretBalancing(space, model, horizon=2000),
    "phased": lambda space, model: ms.PhasedUncertaintySampling(space, model, horizon=2000),
    "thompson": lambda space, model: ms.ThompsonSampling(space, model),
}


def some_space(rng):
    """A space of random parameters with random rules, which leave half of it to a thousandth."""
    parameters, numbers = {}, []
    for i in range(rng.integers(2, 6)):
        name = f"p{i}"
        kind = rng.integers(5)
        choices = [n for n, p in parameters.items() if isinstance(p, ms.Choice)]
        when = {str(rng.choice(choices)): "b"} if choices and rng.random() < 0.4 else {}
        if kind == 0:
            parameters[name] = ms.Choice(["a", "b", "c"][: rng.integers(2, 4)], when=when)
        elif kind == 1:
            parameters[name] = ms.Int(1, int(rng.integers(2, 40)), when=when)
        elif kind == 2 and i == 0:
            parts = [f"s{j}" for j in range(rng.integers(2, 6))]
            parameters[name] = ms.Mixture(parts, at_most=int(rng.integers(2, len(parts) + 1)))
            numbers += [(part, 1.0) for part in parts]
        else:
            parameters[name] = ms.Float(1e-2, 1.0, log=bool(rng.random() < 0.5), when=when)
        if isinstance(parameters[name], ms.Int | ms.Float):
            numbers.append((name, float(parameters[name].high)))
    free = ms.Space(parameters)
    rules = []
    for _ in range(rng.integers(1, 3) if numbers else 0):
        chosen = [numbers[i] for i in rng.choice(len(numbers), min(len(numbers), 3), replace=False)]
        sign = rng.choice(["+", "-", "*"])
        side = f" {sign} ".join(f"{rng.uniform(0.5, 2):.2f} * {name} / {high:g}" for name, high in chosen)
        drawn = free.decode(free.uniform(4096, [int(rng.integers(1000))]))
        values = ms.domains.rules.Rules(f"{side} > 0", free.parameters).held(drawn, free.there(drawn))[1][:, 0]
        share = 10.0 ** rng.uniform(-3, -0.3)
        rules.append(f"{side} > {np.quantile(values[values < 1e100], 1 - share) if (values < 1e100).any() else 0:.9g}")
    try:
        return ms.Space(parameters, where=rules)
    except InvalidInput:  # two rules that exclude each other
        return ms.Space(parameters, where=rules[:1])


def queries_of(policy, space, n, rng):
    """Ask and tell n queries in batches, results in any order, some dropped; how many were asked."""
    asked = 0
    while asked < n:
        try:
            batch = policy.ask(min(int(rng.integers(1, 9)), n - asked))
        except (AwaitingResults, HorizonReached):
            break
        batch = batch if isinstance(batch, list) else [batch]
        points = np.array([query.x for query in batch])
        assert space.contains(points).all(), (space, policy, points[~space.contains(points)])
        for query in batch:
            assert {name: value for name, value in query.params.items() if value is not None} == query.params
        asked += len(batch)
        for i in rng.permutation(len(batch)):
            if rng.random() < 0.05:
                policy.drop(batch[i])
            else:
                value = np.sin(5 * space.encode(points[i : i + 1]).sum())
                policy.tell(batch[i], float(value + 0.1 * rng.standard_normal()))
    if policy.t:
        assert space.contains(policy.recommend().x[None, :])[0], (space, policy)
    return asked


def legal_everywhere(seed, drawn, others):
    """Queries of every policy on one random space; how many there were."""
    rng = np.random.default_rng(seed)
    space = some_space(rng)
    model = ms.Model(ms.product_kernel(space, 0.4), norm_bound=2.0, noise=0.1)
    outside = [np.array([p.high if hasattr(p, "high") else 0.0 for p in space.parameters.values()])]
    total = 0
    for name, make in POLICIES.items():
        policy = make(space, model)
        if policy.abilities.takes_data and name != "uniform" and rng.random() < 0.5:
            policy._learn_from(np.array(outside), [9.0], None)  # the best result of all, and it may break the rules
        total += queries_of(policy, space, drawn if name == "uniform" else others, rng)
    return total


@pytest.mark.parametrize("seed", range(2))
def test_queries_are_legal(seed):
    assert legal_everywhere(seed, 60, 4) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 104))
def test_many_queries_are_legal(seed):
    assert legal_everywhere(seed, 600, 20) >= 600


def points_of_searches(seed):
    """Points of every kind of search on one random space, all of them legal; how many there were."""
    rng = np.random.default_rng(seed)
    space = some_space(rng)
    U = space.uniform(400, [seed])
    V, inside = space.moved(U, 0.1 * rng.standard_normal(U.shape), rng)
    w = rng.standard_normal(U.shape[1])
    made = {
        "uniform": U,
        "spread": space.spread(400, [seed]),
        "around": space.around(U[:60], rng, 12),
        "neighbours": space.neighbours(U[:20])[0],
        "moved": V[inside],
        "climbed": climb(
            lambda Z: (np.sin(3 * Z @ w), 3 * np.cos(3 * Z @ w)[:, None] * w), U[:8], 30, 1e6, region=space
        ),
    }
    found = {name: space.decode(codes) for name, codes in made.items() if len(codes)}
    found["drawn"] = np.concatenate([space.draw(rng) for _ in range(20)])
    for name, X in found.items():
        assert space.contains(X).all(), (name, space, X[~space.contains(X)])
    return sum(map(len, found.values()))


@pytest.mark.parametrize("seed", range(5))
def test_searches_make_legal_points(seed):
    assert points_of_searches(seed) > 100


@pytest.mark.slow
def test_a_hundred_thousand_points_of_searches_are_legal():
    assert sum(points_of_searches(seed) for seed in range(7000, 7060)) > 100_000
