"""Thompson sampling on a box: its samples, its search, its state."""

import json

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, RationalQuadratic

import misspec as ms
from misspec.errors import InvalidInput

SQUARE = ms.Box([(0, 1), (-5, 5)])
MODEL = ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1)
ODD = [(0.1, 0.3), (-1e-3, 1e6 / 3), (1e15, 1e15 + 7), (-np.pi, -1e-300)]


def smooth(x, box):
    """Between 0 and 1, with its only maximum inside the box."""
    u = box.encode(x[None, :])[0]
    return float(np.exp(-2 * ((u - 0.37) ** 2).sum()))


def play(policy, rounds, seed=0, noise=0.05):
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        query = policy.ask()
        policy.tell(query, smooth(query.x, policy.domain) + noise * float(rng.standard_normal()))
    return policy


def exact(policy, X, points, counts, y):
    """Posterior mean (of averages y) and covariance by the textbook formulas, in double precision."""
    model, encode = policy.model, policy.domain.encode
    U, V = encode(X), encode(points)
    A = model.kernel(V, V.copy()) + np.diag(model.regularization / counts)
    k = model.kernel(U, V)
    return k @ np.linalg.solve(A, y), model.kernel(U, U.copy()) - k @ np.linalg.solve(A, k.T)


class UnitVectors:
    """In the place of a random generator: the k-th draw is the k-th unit vector."""

    def __init__(self):
        self.k = -1

    def standard_normal(self, size):
        self.k += 1
        return np.eye(size)[self.k]


def sampled(kernel):
    """A policy with repeated, single and pending points, and X with the exact mean and covariance of a sample there."""
    policy = ms.ThompsonSampling(SQUARE, ms.Model(kernel, norm_bound=1.0, noise=0.1, scale=2.0))
    rng = np.random.default_rng(3)
    points = SQUARE.decode(rng.random((12, 2)))
    y = rng.standard_normal(12)
    policy.observe(np.concatenate([points, points[:4]]), np.concatenate([y, y[:4]]))
    query = policy.ask(actions=points[:1] * 0.5)  # pending: in the covariance, not in the mean
    X = SQUARE.decode(rng.random((8, 2)))
    counts = np.where(np.arange(12) < 4, 2.0, 1.0)
    mean, _ = exact(policy, X, points, counts, y)
    _, covariance = exact(policy, X, np.vstack([points, query.x]), np.append(counts, 1.0), np.append(y, 0.0))
    return policy, X, mean, 2.0**2 * covariance


@pytest.mark.parametrize(
    ("kernel", "missed"), [(RBF(0.3), 1e-8), (Matern(0.4, nu=2.5), 2e-4), (Matern(0.4, nu=1.5), 5e-3)], ids=str
)
def test_samples_have_the_posterior_covariance(kernel, missed):
    """A sample is linear in z: its covariance is the sum over the unit vectors z, without chance."""
    policy, X, _, covariance = sampled(kernel)
    assert 0 <= policy.missed < missed
    vectors = UnitVectors()
    draws = np.array([policy.draw(vectors).values(SQUARE.encode(X)) for _ in range(len(policy.basis.Z))])
    got = 2.0**2 * draws.T @ draws
    assert np.abs(got - covariance).max() < 1e-6 + 2.0**2 * policy.missed


def test_samples_over_many_draws():
    policy, X, mean, covariance = sampled(RBF(0.3))
    draws = np.array([policy.draw().values(SQUARE.encode(X)) for _ in range(4000)])
    samples = policy.posterior.at(X)[0] + 2.0 * draws
    std = np.sqrt(np.diag(covariance))
    # 4,000 samples: a mean is known to 1.6 % of a standard deviation, a correlation or relative variance to 2.3 %;
    # 8 % and 12 % are five standard errors
    np.testing.assert_array_less(np.abs(samples.mean(axis=0) - mean), 0.08 * std)
    np.testing.assert_array_less(np.abs(np.cov(samples.T) - covariance), 0.12 * np.outer(std, std))


def test_slopes_are_those_of_the_values():
    for kernel in (RBF(0.3), Matern(0.3, nu=1.5), RationalQuadratic(0.5), ConstantKernel(0.5) * DotProduct(sigma_0=0)):
        policy = ms.ThompsonSampling(ms.Box([(0, 1)] * 2), ms.Model(kernel, norm_bound=1.0, noise=0.1))
        sample, U = policy.draw(np.random.default_rng(0)), np.random.default_rng(1).random((5, 2))
        values, slopes = sample.slopes(U)
        np.testing.assert_allclose(values, sample.values(U), atol=1e-10)
        for i, h in enumerate(1e-5 * np.eye(2)):
            differences = (sample.values(U + h) - sample.values(U - h)) / 2e-5
            np.testing.assert_allclose(slopes[:, i], differences, atol=1e-5 * max(1.0, np.abs(slopes).max()))


def test_the_query_maximises_its_sample():
    policy = play(ms.ThompsonSampling(SQUARE, MODEL), 5)
    rng = np.random.default_rng()
    rng.bit_generator.state = policy.state()["random"]
    sample = policy.draw(rng)  # the one that it will draw next
    query = policy.ask()
    grid = SQUARE.grid(60)
    values = policy.posterior.at(grid.points)[0] + query.multiplier * sample.values(grid.encoded)
    assert query.upper >= values.max() - 1e-9
    x = query.x[None, :]
    own = policy.posterior.at(x)[0] + query.multiplier * sample.values(SQUARE.encode(x))
    assert query.upper == pytest.approx(float(own[0]), abs=1e-9)
    assert query.mean == pytest.approx(float(policy.posterior.at(x)[0][0]), abs=1e-12)


def test_queries_lie_inside_odd_boxes_to_the_bit():
    box = ms.Box(ODD)
    policy = ms.ThompsonSampling(box, ms.Model(RBF(0.7), norm_bound=1.0, noise=0.1))
    rng = np.random.default_rng(0)
    for _ in range(12):
        query = policy.ask()
        assert query.index is None
        assert query.position is None
        assert ((query.x >= box.low) & (query.x <= box.high)).all()
        policy.tell(query, float(rng.standard_normal()))
    assert box.contains(policy.recommend().x[None, :]).all()


@pytest.mark.parametrize("kernel", [RBF(0.3), Matern(0.3, nu=2.5)], ids=str)
def test_state_continues_to_the_bit(kernel):
    policy = ms.ThompsonSampling(SQUARE, ms.Model(kernel, norm_bound=1.0, noise=0.1), width="mixture", seed=5)
    policy.observe(SQUARE.decode(np.random.default_rng(0).random((6, 2))), np.arange(6.0) / 6)
    play(policy, 6)
    batch = policy.ask(4)
    policy.tell(batch[1], 0.3)
    policy.drop(batch[2])
    other = ms.restore(json.loads(json.dumps(policy.state())))
    assert [q.id for q in other.pending] == [q.id for q in policy.pending]
    for _ in range(4):
        one, two = policy.ask(), other.ask()
        np.testing.assert_array_equal(one.x, two.x)
        assert (one.upper, one.mean, one.std) == (two.upper, two.mean, two.std)
        policy.tell(one, 0.1)
        other.tell(two, 0.1)
    np.testing.assert_array_equal(policy.recommend().x, other.recommend().x)


def test_seeds_repeat_and_differ():
    one, same, other = (ms.ThompsonSampling(SQUARE, MODEL, seed=s).ask().x for s in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_batches_are_diverse():
    batch = play(ms.ThompsonSampling(SQUARE, MODEL), 3).ask(6)
    U = SQUARE.encode([q.x for q in batch])
    distances = np.abs(U[:, None] - U[None, :]).max(axis=2)[np.triu_indices(6, 1)]
    assert distances.max() > 0.3
    assert (distances > 0.02).sum() >= 12  # of 15 pairs; samples may agree by chance


def test_pending_points_narrow_the_samples():
    policy = ms.ThompsonSampling(SQUARE, MODEL)
    x = np.array([[0.5, 0.0]])
    policy.ask(20, actions=x)
    draws = [policy.draw().values(SQUARE.encode(x))[0] for _ in range(400)]
    assert np.std(draws) < 0.03  # √(λ/(20 + λ)) = 0.022


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dimension", "kernel", "rounds"), [(2, RBF(0.3), 25), (2, Matern(0.4, nu=2.5), 25), (6, RBF(1.0), 90)], ids=str
)
def test_finds_a_smooth_optimum(dimension, kernel, rounds):
    box = ms.Box([(-2, 7)] * dimension)
    policy = play(ms.ThompsonSampling(box, ms.Model(kernel, norm_bound=2.0, noise=0.05)), rounds)
    found = policy.recommend()
    assert smooth(found.x, box) >= 0.95
    assert found.index is None
    assert found.lower <= found.mean <= found.upper
    assert found.gap >= 0


@pytest.mark.parametrize("kernel", [Matern(0.3, nu=1.5), Matern(0.5, nu=0.5)], ids=str)
def test_rough_kernels_in_six_dimensions(kernel):
    policy = play(ms.ThompsonSampling(ms.Box([(0, 1)] * 6), ms.Model(kernel, norm_bound=1.0, noise=0.1)), 5)
    assert 0.2 < policy.missed <= 1.0  # it says that most is left out
    assert policy.t == 5
    assert policy.domain.contains(policy.recommend().x[None, :]).all()


def test_actions_are_sampled_jointly():
    policy = play(ms.ThompsonSampling(SQUARE, MODEL), 5)
    actions = SQUARE.decode(np.random.default_rng(2).random((30, 2)))
    query = policy.ask(actions=actions)
    assert query.index is None
    np.testing.assert_array_equal(query.x, actions[query.position])
    policy.tell(query, 0.5)
    twins = np.repeat(actions[:1], 3, axis=0)
    assert policy.ask(actions=twins).position == 0  # equal points have equal values: the lowest wins
    outside = policy.ask(actions=SQUARE.high[None, :] + 0.1)
    policy.tell(outside, 0.2)
    assert SQUARE.contains(policy.ask().x[None, :]).all()


def test_what_needs_candidates_says_so():
    policy = ms.ThompsonSampling(SQUARE, MODEL)
    with pytest.raises(InvalidInput, match="Finite"):
        policy.band()
    with pytest.raises(InvalidInput, match="Finite"):
        policy.ask(actions=[0, 1])
    band = policy.band([[0.5, 0.0]])
    assert band.lower[0] < band.upper[0]
    assert ms.ThompsonSampling(SQUARE.grid(5), MODEL).missed < 1e-9
