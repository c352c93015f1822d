import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern, RationalQuadratic

import misspec as ms
from misspec import kernels, search
from misspec.policies.core.field import Search
from misspec.policies.core.points import nearest_point
from verbs import expect

KERNELS = {
    "rbf": RBF(0.3),
    "anisotropic": Matern([0.3, 0.5, 0.4], nu=2.5),
    "rough": Matern(0.4, nu=1.5),
    "general": Matern(0.4, nu=2.1),
    "no gradient": RationalQuadratic(length_scale=0.5),
    "long": RBF(1.0),  # has shadows
    "sum": 0.5 * RBF(0.3) + 0.1 * DotProduct(1.0),
}


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_local_is_the_posterior_with_its_gradient(name, pending, norm):
    rng = np.random.default_rng(0)
    posterior = ms.posterior.Posterior(ms.Model(KERNELS[name], norm_bound=2.0, noise=0.1), ms.Box([(0, 1)] * 3))
    X = rng.random((60, 3))
    X[30:] = np.clip(X[:30] + 1e-4 * rng.standard_normal((30, 3)), 0, 1)
    posterior.observe(X, rng.standard_normal(60))
    expect(posterior, rng.random((3, 3)))
    U = rng.random((5, 3))
    here = posterior.local(U, pending=pending, norm=norm)
    mean, std = posterior.at(U, pending=pending)
    np.testing.assert_allclose(here.mean, mean, atol=1e-10)
    np.testing.assert_allclose(np.sqrt(here.variance), std, atol=1e-9)
    W, n = posterior.weights_at(U)[:, posterior.counts > 0], posterior.counts[posterior.counts > 0]
    expected = np.abs(W).sum(axis=1) if norm == 1 else np.sqrt((W**2 / n).sum(axis=1))
    np.testing.assert_allclose(here.norm, expected, atol=1e-7)
    np.testing.assert_allclose(here.norm, getattr(posterior.look(U), f"norm{norm}")(), rtol=1e-9)
    step = 1e-5
    for part in ("mean", "variance", "norm"):
        moved = [
            [getattr(posterior.local(U + s * step * e, pending=pending, norm=norm), part) for s in (1, -1)]
            for e in np.eye(3)
        ]
        numeric = np.stack([(up - down) / (2 * step) for up, down in moved], axis=1)
        np.testing.assert_allclose(getattr(here, f"d{part}"), numeric, atol=2e-5 * max(1.0, np.abs(numeric).max()))


@pytest.mark.parametrize("name", KERNELS)
def test_values_beside_gradients_are_those_of_the_kernel(name):
    rng = np.random.default_rng(1)
    X, Z = rng.random((4, 3)), rng.random((6, 3))
    values, _ = kernels.cross_with_gradient(KERNELS[name], X, Z)
    np.testing.assert_allclose(values, kernels.cross(KERNELS[name], X, Z), atol=1e-14)


def test_before_any_data_there_is_the_prior():
    posterior = ms.posterior.Posterior(ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1, offset=3.0), ms.Box([(0, 1)] * 2))
    here = posterior.local(np.full((2, 2), 0.5), norm=2)
    np.testing.assert_array_equal(here.mean, 3.0)
    np.testing.assert_array_equal(here.variance, 1.0)
    assert not any(np.any(part) for part in (here.norm, here.dmean, here.dvariance, here.dnorm))


@settings(max_examples=20)
@given(centre=st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_a_quadratic_is_maximised_on_the_cube(centre, seed):
    """The maximum of −|u − c|² in the cube is c clipped to it, whether c lies inside or outside."""
    c, d = np.array(centre), len(centre)
    found = search.polish(
        lambda U: -((U - c) ** 2).sum(axis=1),
        lambda U: (-((U - c) ** 2).sum(axis=1), -2 * (U - c)),
        search.sobol(d, 64, seed),
        region=ms.Box([(0, 1)] * d),
    )
    best = found[(-((found - c) ** 2).sum(axis=1)).argmax()]
    np.testing.assert_allclose(best, np.clip(c, 0, 1), atol=1e-6)
    assert ((found >= 0) & (found <= 1)).all()


def test_starts_are_far_from_each_other():
    points = np.array([[0.5, 0.5], [0.6, 0.5], [0.9, 0.1], [0.2, 0.2]])
    assert search.spread_out(points, np.array([4.0, 3.0, 2.0, -np.inf]), 4) == [0, 2]


def test_sobol_points_depend_on_the_seed_alone():
    np.testing.assert_array_equal(search.sobol(3, 100, 5), search.sobol(3, 128, 5))
    assert not np.array_equal(search.sobol(3, 128, 5), search.sobol(3, 128, 6))
    assert search.sobol(20, 2048, 0).shape == (2048, 20)


# -- policies on a box -------------------------------------------------------------------------------------------------

BOX = ms.Box([(-2.0, 3.0), (10.0, 11.0)])
MODEL = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.05)


def hill(x):
    return float(np.exp(-((x[0] - 1) ** 2) - 4 * (x[1] - 10.4) ** 2))


def played(policy, rounds, seed=0):
    rng = np.random.default_rng(seed)
    ms.optimize(policy, lambda x: hill(x) + 0.05 * rng.standard_normal(), rounds)
    return policy


@pytest.mark.parametrize(
    "make",
    [
        lambda: ms.GPUCB(BOX, MODEL),
        lambda: ms.ECGPUCB(BOX, MODEL, epsilon=0.1, grounded=False),
        lambda: ms.ECGPUCB(BOX, MODEL, epsilon=0.1, enlargement="paper", grounded=False),
        lambda: ms.ECGPUCB(BOX, MODEL, epsilon=0.1, enlargement="norm2", grounded=False),
        lambda: ms.comparators.CorruptionTolerantGPUCB(BOX, MODEL, corruption=0.5),
        lambda: ms.ECGPUCB(BOX, MODEL, epsilon=0.3, resolution=None),
        lambda: ms.RegretBalancing(BOX, MODEL, horizon=40, price=1.0, bases=[(MODEL, 0.1)]),
    ],
)
def test_the_choice_beats_a_fine_grid(make):
    """The upper end at the point chosen is at least that anywhere on a grid of 10,000 points."""
    policy = played(make(), 25)
    query = policy.ask()
    upper = policy.band(BOX.grid(100).points).upper  # with ε on top, the same everywhere
    assert policy.band(query.x[None, :]).upper[0] >= upper.max() - 1e-9


@pytest.mark.parametrize(
    ("box", "scale", "epsilon", "rounds"), [(BOX, 0.3, 0.1, 30), (ms.Box([(0, 1)]), 0.3, 0.3, 60), (BOX, 1.0, 0.3, 40)]
)
def test_the_recommendation_beats_a_fine_grid(box, scale, epsilon, rounds):
    """Also where the resolution hides what lies next to observed points from being asked."""
    policy = ms.ECGPUCB(box, ms.Model(RBF(scale), norm_bound=2.0, noise=0.05), epsilon=epsilon)
    ms.optimize(policy, lambda x: float(np.sin(3 * x.sum())), rounds)
    best, band = policy.recommend(), policy.band(box.grid(100 if box is BOX else 5000).points)
    assert best.lower >= band.lower.max() - 1e-6
    assert best.lower + best.gap >= band.upper.max() - 0.01


@pytest.mark.parametrize("scale", [2.0, 50.0])
def test_a_box_that_the_resolution_covers_is_asked_where_it_was(scale):
    """A length scale longer than the box: every point is within the resolution of an observed one in the end."""
    policy = ms.ECGPUCB(ms.Box([(0, 1)]), ms.Model(RBF(scale), norm_bound=1.0, noise=0.05), epsilon=0.3)
    ms.optimize(policy, lambda x: float(x[0]), 30)
    assert policy.t == 30
    assert policy.posterior.distinct < 30
    assert np.isfinite(policy.recommend().gap)


@pytest.mark.filterwarnings("ignore:.*points observed lie outside")
@pytest.mark.parametrize(
    "make",
    [
        lambda: ms.ECGPUCB(BOX, MODEL, epsilon=0.01, width=0.3),
        lambda: ms.RegretBalancing(BOX, MODEL, horizon=50),
        lambda: ms.GPUCB(BOX, MODEL),
        lambda: ms.ThompsonSampling(BOX, MODEL),
    ],
)
def test_data_from_outside_the_box_draw_no_query_there(make):
    policy = make()
    policy.observe([[4.0, 10.5], [4.05, 10.5]], [1.5, 1.4])
    policy.tell(policy.ask(actions=np.array([[3.5, 10.2]])), 1.3)
    for _ in range(3):
        query = policy.ask()
        assert BOX.contains(query.x[None, :]).all()
        policy.tell(query, hill(query.x))
    assert BOX.contains(policy.recommend().x[None, :]).all()


def test_a_kernel_that_fails_at_the_end_of_an_episode_changes_nothing():
    """The tell that ends an episode computes a lot; if that fails, it can be told again."""

    class Moody(RBF):
        failing = False

        def __call__(self, X, Y=None, eval_gradient=False):
            if Moody.failing:
                raise RuntimeError("not now")
            return super().__call__(X, Y, eval_gradient)

    for domain in (BOX, BOX.grid(6)):
        policies = [
            ms.PhasedUncertaintySampling(domain, ms.Model(Moody(0.3), norm_bound=2.0, noise=0.05), horizon=30)
            for _ in range(2)
        ]
        for policy in policies:
            for _ in range(7):
                query = policy.ask()
                if policy is policies[0]:
                    Moody.failing = True
                    try:
                        policy.tell(query, hill(query.x))
                        continue
                    except ms.InvalidInput:
                        assert [q.id for q in policy.pending] == [query.id]
                    finally:
                        Moody.failing = False
                policy.tell(query, hill(query.x))
        one, other = policies
        assert len(one.history) == len(other.history) == 3
        np.testing.assert_array_equal(one.ask().x, other.ask().x)
        np.testing.assert_array_equal(one.recommend().lower, other.recommend().lower)


def test_widths_of_fixed_designs_at_arbitrary_points():
    """The nonadaptive width anywhere in a box, against a dense solve."""
    rng = np.random.default_rng(3)
    X, U = rng.random((30, 2)), rng.random((7, 2))
    posterior = ms.posterior.Posterior(MODEL, ms.Box([(0, 1)] * 2))
    posterior.observe(X, np.zeros(30))
    norms = np.sqrt((posterior.weights_at(U) ** 2 / posterior.counts).sum(axis=1))
    width = ms.theory.widths.nonadaptive(MODEL, posterior.at(U)[1] ** 2, norms, points=7, episodes=5, delta=0.1)
    k, ridge = MODEL.kernel(X, U), MODEL.regularization
    zeta = np.linalg.solve(MODEL.kernel(X) + ridge * np.eye(30), k)
    variance, norm2 = 1 - np.einsum("ij,ij->j", k, zeta), np.linalg.norm(zeta, axis=0)
    bias = MODEL.norm_bound * np.sqrt(variance - ridge * norm2**2)
    np.testing.assert_allclose(width, bias + MODEL.noise * norm2 * np.sqrt(2 * np.log(2 * 7 * 5 / 0.1)), rtol=1e-5)


def test_grounded_queries_near_an_observed_point_go_to_it():
    together = played(ms.ECGPUCB(BOX, MODEL, epsilon=0.05, width=1.0), 80)
    apart = played(ms.ECGPUCB(BOX, MODEL, epsilon=0.05, width=1.0, resolution=None), 80)
    assert together.posterior.distinct < 0.8 * apart.posterior.distinct
    U = together.posterior.points
    K = MODEL.kernel(U)
    distance = np.sqrt(np.maximum(2 - 2 * K, 0)) + 10 * np.eye(len(U))
    assert distance.min() > 0.05


def test_resolution_is_measured_by_the_kernel():
    known = np.array([[0.2, 0.2], [0.8, 0.8]])
    place, distance = nearest_point(MODEL, np.array([[0.21, 0.2], [0.5, 0.81]]), known)
    assert place.tolist() == [0, 1]
    assert distance[0] == pytest.approx(0.01 / 0.3, rel=1e-2)  # about |x − z|/length scale
    assert distance[1] == pytest.approx(np.sqrt(2 - 2 * np.exp(-0.5 * (0.3**2 + 0.01**2) / 0.3**2)))


def test_offers_hold_every_observed_point():
    policy = played(ms.ECGPUCB(BOX, MODEL, epsilon=0.1), 10)
    observed = policy.observations.x

    def slope(U):
        return np.zeros(len(U)), np.zeros(U.shape)

    own = ms.theory.own_bands.OwnBands(MODEL.noise, 0.1)
    for x in observed:
        own.observe([x.tobytes()], [0.0], [x])
    wanted = Search(policy.posterior, own, lambda U, points: np.zeros(len(U)), slope, turn=5)
    offer = policy.field.offer(lambda: wanted).points
    assert all((offer == x).all(axis=1).any() for x in observed)
    assert BOX.contains(offer).all()


@pytest.mark.parametrize("bounds", [[(0.1, 0.30000000000000004)], [(-1e-3, 1e3), (1e6, 1e6 + 1)], [(-7.3, -7.1)] * 20])
def test_queries_lie_in_odd_boxes_to_the_bit(bounds):
    box = ms.Box(bounds)
    model = ms.Model(RBF(0.5 * len(bounds) ** 0.5), norm_bound=2.0, noise=0.1)
    policy = ms.ECGPUCB(box, model, epsilon=0.1, width=1.0)
    for t in range(8):
        query = policy.ask()
        assert ((query.x >= box.low) & (query.x <= box.high)).all()
        policy.tell(query, float(np.sin(t)))
    best = policy.recommend()
    assert box.contains(best.x[None, :]).all()


def test_a_batch_on_a_box_is_diverse():
    policy = played(ms.GPUCB(BOX, MODEL), 15)
    batch = policy.ask(6)
    U = BOX.encode(np.array([q.x for q in batch]))
    apart = np.abs(U[:, None] - U[None]).max(axis=2) + np.eye(6)
    assert apart.min() > 0.02
