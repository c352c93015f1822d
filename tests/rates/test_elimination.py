"""What phased elimination and RIPS promise, measured. Seeds are fixed; error probabilities are stated."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import DotProduct, Matern

import misspec as ms
from worlds import play


def circle(points, dimension, seed=0):
    """Unit vectors: for a linear kernel, k(x,x) = 1."""
    X = np.random.default_rng(seed).standard_normal((points, dimension))
    return ms.Finite(X / np.linalg.norm(X, axis=1, keepdims=True))


def slope(x, y):
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def regrets(make, domain, model, rounds, seeds, epsilon=0.0):
    """Traces of runs with random misfit."""
    problems = [ms.problems.misspecified(domain, model, epsilon, "random", seed) for seed in range(seeds)]
    return [play(make(domain, model, rounds), p, rounds, seed) for seed, p in enumerate(problems)]


BOTH = pytest.mark.parametrize("kind", [ms.comparators.PhasedElimination, ms.comparators.RIPS])
BOUNDS = {
    ms.comparators.PhasedElimination: ms.theory.phased_elimination_bound,
    ms.comparators.RIPS: ms.theory.rips_bound,
}


@pytest.mark.slow
@BOTH
def test_regret_stays_below_its_bound(kind):
    """18 runs with and without misfit. A bound may fail with probability δ = 0.1 in each; none does. B is large so that
    the bounds say more than that regret is at most 2B per round."""
    domain, T = circle(20, 2), 2047
    model = ms.Model(DotProduct(0.0), norm_bound=20.0, noise=0.3)
    for run in range(18):
        epsilon = [0.0, 0.05, 0.2][run % 3]
        problem = ms.problems.misspecified(domain, model, epsilon, "random" if epsilon else "none", seed=run)
        bound = BOUNDS[kind](model, T, 2, 20, epsilon)
        trace = play(kind(domain, model, horizon=T), problem, T, run)
        assert trace.regret.sum() <= bound
        assert trace.in_class_regret.sum() <= BOUNDS[kind](model, T, 2, 20, epsilon, regret="in_class")
        assert bound < 0.8 * 2 * model.norm_bound * T


@pytest.mark.slow
def test_rips_needs_neither_as_many_rounds_as_features_nor_light_tails():
    """87 rounds and 120 features, Student noise with three degrees of freedom, and a misfit: estimates lie within
    their bands, widened by ε√f, in all but δ of 200 runs. Were the true failure rate 0.05, more than 20 failures would
    have probability 1e-3."""
    X = np.random.default_rng(0).random((120, 2))
    domain, B, epsilon, missed = ms.Finite(X), 1.0, 0.2, 0
    model = ms.Model(Matern(1.0, nu=0.5), norm_bound=B, noise=0.3)
    for run in range(200):
        problem = ms.problems.misspecified(domain, model, epsilon, "random", seed=run)
        policy = ms.comparators.RIPS(domain, model, horizon=200, accuracy=3.0, reward_bound=B + epsilon, seed=run)
        f, queries = policy._f, policy.ask(1000)
        assert len(queries) == 87
        noise = np.random.default_rng(run).standard_t(3, len(queries)) * model.noise / np.sqrt(3)
        policy.tell(queries, problem.values[[query.index for query in queries]] + noise)
        apart = np.abs(policy._values - problem.in_class)  # W, which users see within the class only
        missed += bool((apart > policy.history[0].widths + epsilon * np.sqrt(f)).any())
    assert missed <= model.delta * 200


def test_a_misfit_shifts_what_phased_elimination_believes_by_the_root_of_d():
    """The source's reason for ε√d. A phase is least squares on its design, so that the most that a misfit within ±ε can
    do to an arm is ε‖w‖₁, w its weights on the results: at most 2ε√d anywhere, and growing as √d where the best arm of
    a random member lies. No chance but in the choice of 10 × 4 domains."""
    dimensions, model, shifts = np.array([2, 4, 8, 16]), ms.Model(DotProduct(0.0), norm_bound=1.0, noise=0.1), []
    for d in dimensions.tolist():
        mean = []
        for seed in range(10):
            domain = circle(500, d, seed)
            rows = [query.index for query in ms.comparators.PhasedElimination(domain, model, horizon=2000).ask(2000)]
            shift = np.abs(domain.points @ np.linalg.pinv(domain.points[rows])).sum(axis=1)
            assert shift.max() <= 2 * np.sqrt(d)
            mean.append(shift[int((domain.points @ np.random.default_rng(seed).standard_normal(d)).argmax())])
        shifts.append(np.mean(mean))
    assert 0.4 <= slope(dimensions, shifts) <= 0.6


MODEL = ms.Model(DotProduct(0.0), norm_bound=1.0, noise=0.3)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "steepest"), [(ms.comparators.PhasedElimination, 0.6), (ms.comparators.RIPS, 0.75)])
def test_regret_grows_as_the_root_of_the_horizon(kind, steepest):
    """Without misfit. The bounds, with their logarithms, have slopes of 0.54 and 0.65 over these horizons, and 0.45 and
    0.67 were measured: phases of RIPS quadruple, so that it matters where the last one ends."""
    horizons = 2 ** np.array([11, 13, 15])
    lost = [
        np.mean(
            [t.regret.sum() for t in regrets(lambda d, m, T: kind(d, m, horizon=T), circle(200, 4), MODEL, int(T), 3)]
        )
        for T in horizons
    ]
    assert slope(horizons, lost) <= steepest


@pytest.mark.slow
def test_phased_elimination_hardly_minds_how_many_arms_there_are():
    """From 100 to 4,000 arms on a circle the bound grows by √(ln k), a sixth; without features it would be √40."""
    lost = []
    for k in (100, 4000):
        traces = regrets(
            lambda d, m, T: ms.comparators.PhasedElimination(d, m, horizon=T), circle(k, 2), MODEL, 2047, 8
        )
        lost.append(np.mean([trace.regret.sum() for trace in traces]))
    assert lost[1] <= 1.35 * lost[0]
