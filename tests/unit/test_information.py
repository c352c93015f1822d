import itertools

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

import misspec as ms
from misspec.errors import InvalidInput


def brute_force(X, kernel, regularization, T):
    """γ_T by trying every multiset."""
    best = 0.0
    for chosen in itertools.combinations_with_replacement(range(len(X)), T):
        K = kernel(X[list(chosen)], X[list(chosen)].copy())
        best = max(best, 0.5 * np.linalg.slogdet(np.eye(T) + K / regularization)[1])
    return best


@pytest.mark.parametrize("kernel", [RBF(0.3), Matern(0.3, nu=0.5), DotProduct(sigma_0=0)], ids=str)
@pytest.mark.parametrize("regularization", [0.01, 1.0])
@pytest.mark.parametrize("T", [1, 2, 5])
def test_brackets_the_true_gain(kernel, regularization, T):
    X = np.random.default_rng(0).random((7, 2)) / np.sqrt(2)
    gain = ms.information_gain(
        ms.Finite(X), ms.Model(kernel, norm_bound=1.0, noise=0.1, regularization=regularization), T
    )
    exact = brute_force(X, kernel, regularization, T)
    assert gain.greedy <= exact + 1e-9
    assert gain.greedy >= (1 - 1 / np.e) * exact - 1e-9
    for name, bound in gain.upper_bounds.items():
        assert bound >= exact - 1e-9, name
    assert gain.upper == max(gain.greedy, min(gain.upper_bounds.values()))
    assert len(gain.path) == T
    assert len(gain.values) == T + 1


def test_greedy_is_the_max_variance_path():
    X = np.random.default_rng(1).random((50, 2))
    model = ms.Model(RBF(0.2), norm_bound=1.0, noise=0.1)
    gain = ms.information_gain(ms.Finite(X), model, 40)
    for k in range(40):
        seen = X[gain.path[:k]]
        A = RBF(0.2)(seen, seen.copy()) + 0.01 * np.eye(k) if k else np.zeros((0, 0))
        cross = RBF(0.2)(X, seen) if k else np.zeros((50, 0))
        variance = 1 - np.einsum("nk,nk->n", cross, np.linalg.solve(A, cross.T).T if k else cross)
        assert variance[gain.path[k]] >= variance.max() - 1e-8
    K = RBF(0.2)(X[gain.path], X[gain.path].copy())
    assert gain.greedy == pytest.approx(0.5 * np.linalg.slogdet(np.eye(40) + K / 0.01)[1], rel=1e-8)


@pytest.mark.parametrize(
    "kernel", [RBF(0.2), Matern(0.2, nu=1.5), ConstantKernel(0.5) * DotProduct(sigma_0=0)], ids=str
)
def test_upper_bound_is_close(kernel):
    gain = ms.information_gain(ms.Box([(0, 1)] * 2).grid(20), ms.Model(kernel, norm_bound=1.0, noise=0.1), 1000)
    assert gain.greedy <= gain.upper <= 1.01 * gain.greedy
    assert gain.upper_bounds["design"] == min(gain.upper_bounds.values())


def test_gain_grows_more_slowly_for_smooth_kernels():
    domain = ms.Box([(0, 1)]).grid(100)
    gains = {
        name: ms.information_gain(domain, ms.Model(k, norm_bound=1.0, noise=0.1), 200)
        for name, k in {"rbf": RBF(0.2), "rough": Matern(0.2, nu=0.5)}.items()
    }
    assert gains["rbf"].upper < 0.5 * gains["rough"].greedy
    assert gains["rbf"].rate == "O((log T)^2)"
    assert "T^0.5" in gains["rough"].rate
    assert "γ_200" in repr(gains["rbf"])


@pytest.mark.parametrize("horizon", [0, -1, 2.5, None])
def test_bad_horizons(horizon):
    with pytest.raises(InvalidInput, match="horizon"):
        ms.information_gain(ms.Finite([[0.0]]), ms.Model(RBF(0.2), norm_bound=1.0, noise=0.1), horizon)


@pytest.mark.parametrize(
    ("bounds", "kernel", "coarse", "fine"),
    [([(-3, 5.1)], RBF(0.2), 15, 400), ([(0, 1), (10, 30)], RBF(0.3), 8, 30), ([(0, 1)], Matern(0.3, nu=1.5), 15, 400)],
    ids=str,
)
def test_a_box_gains_what_its_grids_gain(bounds, kernel, coarse, fine):
    box, model = ms.Box(bounds), ms.Model(kernel, norm_bound=1.0, noise=0.1)
    gain = ms.information_gain(box, model, 200)
    assert gain.greedy <= gain.upper <= 1.02 * gain.greedy
    assert gain.greedy >= ms.information_gain(box.grid(coarse), model, 200).greedy - 1e-3
    grid = ms.information_gain(box.grid(fine), model, 200)
    assert gain.greedy == pytest.approx(grid.greedy, rel=0.01)
    assert gain.upper == pytest.approx(grid.upper, rel=0.02)
    assert gain.upper >= grid.greedy
    assert gain.rate == grid.rate


def test_the_design_of_a_box_has_the_value_that_is_stated():
    box, kernel = ms.Box([(0.1, 0.3), (-7, 1e3)]), Matern(0.3, nu=2.5)
    gain = ms.information_gain(box, ms.Model(kernel, norm_bound=1.0, noise=0.1, offset=3.0), 120)
    assert gain.path.shape == (120, 2)
    assert box.contains(gain.path).all()
    U = box.encode(gain.path)
    for k in (1, 50, 120):
        exact = 0.5 * np.linalg.slogdet(np.eye(k) + kernel(U[:k], U[:k].copy()) / 0.01)[1]
        assert gain.values[k] == pytest.approx(exact, rel=1e-6)
    assert gain.greedy == gain.values[-1]


def test_gain_of_a_box_grows_with_the_horizon():
    box, model = ms.Box([(0, 1)] * 2), ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1)
    short, long = (ms.information_gain(box, model, T) for T in (20, 400))
    assert short.greedy < long.greedy
    assert short.upper < long.upper
    np.testing.assert_array_equal(short.path, long.path[:20])  # a longer design begins as a shorter one
    assert (np.diff(long.values) >= 0).all()
    assert long.up_to(20) >= short.greedy
    assert (np.diff(long.up_to(np.arange(401))) >= 0).all()
    assert long.up_to(400) == long.upper


def test_a_box_says_what_is_approximate():
    box, model = ms.Box([(0, 1)]), ms.Model(RBF(0.2), norm_bound=1.0, noise=0.1)
    on_box, on_grid = ms.information_gain(box, model, 10), ms.information_gain(box.grid(50), model, 10)
    assert "Sobol' points" in on_box.approximate
    assert "fall short" in on_box.approximate
    assert "≲" in repr(on_box)
    assert on_grid.approximate == ""
    assert on_grid.missed == 0.0
    assert "≲" not in repr(on_grid)


def test_the_upper_bound_of_a_box_counts_what_its_points_cannot_see():
    """A rough kernel over many rounds: a grid finer than the cover gains more than the cover can."""
    box, model, T = ms.Box([(0, 1)]), ms.Model(Matern(0.02, nu=0.5), norm_bound=1.0, noise=0.1), 1000
    gain = ms.information_gain(box, model, T)
    finer = np.linspace(0, 1, T)[:, None]
    design = 0.5 * np.linalg.slogdet(np.eye(T) + model.kernel(finer, finer.copy()) / model.regularization)[1]
    assert gain.upper - gain.missed < design <= gain.upper
    assert gain.up_to(T) >= design
    assert (gain.up_to(np.arange(T + 1)) >= gain.values - 1e-9).all()


def test_rough_kernels_in_six_dimensions_stay_below_the_trivial_bound():
    gain = ms.information_gain(ms.Box([(0, 1)] * 6), ms.Model(Matern(0.3, nu=1.5), norm_bound=1.0, noise=0.1), 50)
    assert gain.greedy <= gain.upper <= 0.5 * 50 * np.log1p(1 / 0.01) + 1e-9


def test_other_domains_are_refused():
    with pytest.raises(InvalidInput, match="Finite, Box or Space"):
        ms.information_gain([[0.0]], ms.Model(RBF(0.2), norm_bound=1.0, noise=0.1), 10)


def test_a_kernel_that_is_zero_everywhere():
    gain = ms.information_gain(
        ms.Finite(np.zeros((2, 1))), ms.Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1), 5
    )
    assert gain.greedy == gain.upper == 0.0


@pytest.mark.parametrize("t", [2.5, -1, 6, [1, 7], [], "3", None, [True], 10**400])
def test_rounds_of_a_gain_are_whole_and_within_it(t):
    gain = ms.information_gain(ms.Finite([[0.0], [1.0]]), ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1), 5)
    with pytest.raises(InvalidInput):
        gain.up_to(t)
    if t != 6:
        with pytest.raises(InvalidInput):
            gain.at(t)


@pytest.mark.parametrize("wrong", [None, 3, "a", [[0.0]], ms.Model, ms.Finite])
def test_wrong_types_are_named(wrong):
    domain, model = ms.Finite([[0.0], [1.0]]), ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1)
    with pytest.raises(InvalidInput, match="domain must be"):
        ms.information_gain(wrong, model, 5)
    with pytest.raises(InvalidInput, match="model must be a Model"):
        ms.information_gain(domain, wrong, 5)


def test_a_ridge_so_large_that_rounds_are_lost_beside_it():
    found = ms.information_gain(ms.Box([(0, 1)]).grid(5), ms.Model(RBF(0.2), norm_bound=1.0, noise=1e24), 5)
    assert 0.0 <= found.greedy <= found.upper <= 1e-40
