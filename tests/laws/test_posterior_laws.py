"""Laws of the posterior, the widths and the information, over random designs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

import misspec as ms
from misspec.errors import InvalidInput
from misspec.posterior import Tracked
from misspec.theory import own_bands, widths
from verbs import expect, fulfil, release

KERNELS = [RBF(0.3), Matern(0.3, nu=0.5), Matern(0.3, nu=2.5), DotProduct(sigma_0=0)]


@st.composite
def situations(draw):
    """A model, candidates in the unit square (scaled so that k(x,x) ≤ 1) and observations that repeat points."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    N = draw(st.integers(2, 25))
    T = draw(st.integers(1, 60))
    X = rng.random((N, 2)) / np.sqrt(2)
    model = ms.Model(
        draw(st.sampled_from(KERNELS)),
        norm_bound=draw(st.floats(0.1, 5)),
        noise=draw(st.floats(0.01, 1)),
        regularization=draw(st.sampled_from([1e-3, 0.02, 1.0, 10.0])),
        offset=draw(st.sampled_from([0.0, -3.0])),
    )
    index = rng.integers(0, N, T)
    return model, X, index, model.offset + rng.standard_normal(T), rng


def told(model, X, index, y, **options):
    posterior = ms.posterior.Tracked(model, ms.Finite(X), **options)
    for i, value in zip(index, y, strict=True):
        posterior.observe_index(int(i), float(value))
    return posterior


@given(situations(), st.booleans())
def test_variance_never_rises_with_data(situation, weights):
    model, X, index, y, _ = situation
    posterior = ms.posterior.Tracked(model, ms.Finite(X), weights=weights)
    before = posterior.variance.copy()
    for i, value in zip(index, y, strict=True):
        posterior.observe_index(int(i), float(value))
        assert (posterior.variance <= before + 1e-12).all()
        assert posterior.variance.min() >= 0
        before = posterior.variance.copy()


@given(situations())
def test_order_does_not_matter(situation):
    model, X, index, y, rng = situation
    shuffled = rng.permutation(len(index))
    one, other = told(model, X, index, y), told(model, X, index[shuffled], y[shuffled])
    tolerance = 1e-9 + 4e-9 / model.regularization * np.abs(y - model.offset).max()
    np.testing.assert_allclose(one.mean, other.mean, atol=tolerance, rtol=0)
    np.testing.assert_allclose(one.variance, other.variance, atol=tolerance, rtol=0)
    assert one.log_det == pytest.approx(other.log_det, rel=1e-6, abs=1e-9)


@given(situations())
def test_batches_equal_single_steps(situation):
    model, X, index, y, _ = situation
    one, batch = told(model, X, index, y), ms.posterior.Tracked(model, ms.Finite(X))
    batch.observe_index(index, y)
    tolerance = 1e-9 + 4e-9 / model.regularization * np.abs(y - model.offset).max()
    np.testing.assert_allclose(one.mean, batch.mean, atol=tolerance, rtol=0)
    np.testing.assert_allclose(one.variance, batch.variance, atol=tolerance, rtol=0)


@given(situations())
def test_realised_information_is_the_log_determinant(situation):
    model, X, index, y, _ = situation
    K = model.kernel(X[index], X[index].copy())
    exact = 0.5 * np.linalg.slogdet(np.eye(len(index)) + K / model.regularization)[1]
    posterior = ms.posterior.Tracked(model, ms.Finite(X))
    summed = 0.0
    for i, value in zip(index, y, strict=True):
        summed += 0.5 * np.log1p(posterior.variance[i] / model.regularization)
        posterior.observe_index(int(i), float(value))
    assert posterior.information == pytest.approx(exact, rel=1e-6, abs=1e-8)
    assert summed == pytest.approx(exact, rel=1e-6, abs=1e-8)


@given(situations(), st.floats(0, 2))
def test_exact_enlargement_below_the_papers(situation, epsilon):
    model, X, index, y, _ = situation
    posterior = told(model, X, index, y, weights=True)
    exact = widths.enlargement_exact(epsilon, posterior.weights_norm1())
    paper = widths.paper_slope(epsilon, posterior.t, model) * posterior.std  # Lemma 2 needs only √(t − 1)
    assert (exact <= paper * (1 + 1e-7) + 1e-7).all()
    between = widths.enlargement_norm2(epsilon, posterior.t, posterior.weights_norm2())
    assert (exact <= between * (1 + 1e-7) + 1e-7).all()
    assert (between <= paper * (1 + 1e-7) + 1e-7).all()
    # and it is attained: some misfit within ±ε moves the mean by that much
    worst = int(posterior.weights_norm1().argmax())
    column = posterior.weights[worst] if posterior.distinct == len(posterior.counts) else None
    assert column is not None
    moved = told(model, X, index, y + epsilon * np.sign(column)[posterior.rows[index]], weights=True)
    assert abs(moved.mean[worst] - posterior.mean[worst]) == pytest.approx(exact[worst], rel=1e-6, abs=1e-7)


@given(situations())
def test_norms_of_the_weights(situation):
    model, X, index, y, _ = situation
    posterior = told(model, X, index, y, weights=True)
    W = posterior.weights
    np.testing.assert_allclose(W @ (posterior.averages - model.offset) + model.offset, posterior.mean, atol=1e-8)
    np.testing.assert_allclose(posterior.weights_norm1(), np.abs(W).sum(axis=1), rtol=1e-12)
    bound = 2e-9 / model.regularization
    np.testing.assert_allclose(posterior.weights_norm2() ** 2, (W**2 / posterior.counts).sum(axis=1), atol=bound + 1e-9)
    np.testing.assert_allclose(posterior.weights_at(X), W, atol=10 * bound + 1e-8)


@given(situations(), st.floats(1e-6, 0.999))
def test_mixture_below_lemma1(situation, delta):
    model, X, index, y, _ = situation
    log_det = told(model, X, index, y).log_det
    low, high = (widths.multiplier(name, model, log_det, delta) for name in ("mixture", "lemma1"))
    assert model.norm_bound <= low <= high * (1 + 1e-12)


@given(situations(), st.booleans(), st.data())
def test_hallucinations_come_and_go(situation, weights, data):
    model, X, index, y, rng = situation
    posterior = told(model, X, index, y, weights=weights)
    mean, variance = posterior.mean.copy(), posterior.variance.copy()
    pending = rng.integers(0, len(X), data.draw(st.integers(1, 6)))
    expect(posterior, X[pending])
    tolerance = 1e-8 + 2e-8 / model.regularization
    np.testing.assert_allclose(posterior.mean, mean, atol=tolerance)  # growth may add what √tolerance had hidden
    np.testing.assert_allclose(posterior.variance, variance, atol=tolerance)
    # as if those points had been observed
    other = told(model, X, np.concatenate([index, pending]), np.concatenate([y, y[:1].repeat(len(pending))]))
    np.testing.assert_allclose(posterior.pending_variance, other.variance, atol=tolerance)
    gained = other.information - posterior.information
    assert posterior.pending_information == pytest.approx(gained, rel=1e-5, abs=1e-6)
    np.testing.assert_allclose(posterior.at(X, pending=True)[1] ** 2, other.variance, atol=10 * tolerance)
    # one is released, the others are told
    release(posterior, X[[pending[0]]])
    for i in pending[1:]:
        fulfil(posterior, X[[i]], float(y[0]))
    assert posterior.pending == 0
    np.testing.assert_array_equal(posterior.pending_variance, posterior.variance)
    final = told(model, X, np.concatenate([index, pending[1:]]), np.concatenate([y, y[:1].repeat(len(pending) - 1)]))
    scale = 1 + np.abs(y - model.offset).max()
    np.testing.assert_allclose(posterior.mean, final.mean, atol=tolerance * scale)
    np.testing.assert_allclose(posterior.variance, final.variance, atol=tolerance)
    with pytest.raises(InvalidInput, match="only a point that is pending"):
        fulfil(posterior, X[[pending[0]]], 0.0)


@given(situations())
def test_refresh_changes_nothing_but_rounding(situation):
    model, X, index, y, _ = situation
    posterior = told(model, X, index, y)
    mean, variance, log_det = posterior.mean.copy(), posterior.variance.copy(), posterior.log_det
    posterior._base.refresh()
    tolerance = 1e-10 + 1e-10 / model.regularization * (1 + np.abs(y).max())
    np.testing.assert_allclose(posterior.mean, mean, atol=tolerance)
    np.testing.assert_allclose(posterior.variance, variance, atol=tolerance)
    assert posterior.log_det == pytest.approx(log_det, rel=1e-7, abs=1e-9)


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.floats(1e-6, 0.99))
def test_own_radius_shrinks_with_observations(n, place, delta):
    here = own_bands.own_radius(0.3, n, place, delta)
    assert 0 < own_bands.own_radius(0.3, n + 1, place, delta) < here < own_bands.own_radius(0.3, n, place + 1, delta)


MIDDLES, HALVES = st.floats(-3, 3), st.floats(0, 2)


@given(st.lists(st.tuples(MIDDLES, MIDDLES, HALVES, HALVES | st.just(np.inf)), min_size=1, max_size=20))
def test_intersections(bands):
    middle, own, w, v = np.array(bands).T
    lower, upper = own_bands.ground(middle - w, middle + w, own - v, own + v)
    apart = np.maximum(middle - w, own - v) > np.minimum(middle + w, own + v)
    assert (lower <= upper).all()
    assert (upper - lower <= 2 * np.where(apart, v, np.minimum(w, v)) + 1e-12).all()
    assert (lower[~apart] >= (middle - w)[~apart]).all()
    assert (upper[~apart] <= (middle + w)[~apart]).all()
    np.testing.assert_array_equal(lower[apart], (own - v)[apart])
    np.testing.assert_array_equal(upper[apart], (own + v)[apart])
    low, high = own_bands.clip(middle - w, middle + w, own - v, own + v)
    assert (low <= high).all()
    assert (high - low <= 2 * w + 1e-12).all()
    assert ((low >= own - v) & (high <= own + v)).all()


@pytest.mark.parametrize("regularization", [1e-4, 1.0, 1e8])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_norm_of_the_weights_does_not_cancel(kernel, regularization):
    """Also where λ is so large that all of ‖ζ‖₂ is in digits that a difference loses."""
    rng = np.random.default_rng(0)
    X, Z = 0.7 * rng.random((40, 2)), 0.7 * rng.random((9, 2))
    model = ms.Model(kernel, norm_bound=1.0, noise=0.1, regularization=regularization)
    posterior = ms.posterior.Posterior(model, ms.Finite(Z))
    posterior.observe(X, rng.standard_normal(40))
    expected = np.linalg.norm(np.linalg.solve(kernel(X, X) + regularization * np.eye(40), kernel(X, Z)), axis=0)
    np.testing.assert_allclose(posterior.look(Z).norm2(), expected, rtol=1e-4)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("kernel", [RBF(0.3), Matern(0.5, nu=2.5), DotProduct(0.5)], ids=str)
def test_many_points_at_once_are_as_good_as_one_by_one(kernel, weights):
    """The dictionary is then chosen among all of them: the same posterior as by dense solves."""
    rng = np.random.default_rng(0)
    domain = ms.Finite(0.5 * rng.random((80, 2)))
    model = ms.Model(kernel, norm_bound=1.0, noise=0.1, regularization=0.01)
    X, y = 0.5 * rng.random((150, 2)), rng.standard_normal(150)
    X[100:] = domain.points[rng.integers(80, size=50)]
    once, slowly = (Tracked(model, domain, weights=weights) for _ in range(2))
    once.observe(X, y)
    for x, value in zip(X, y, strict=True):
        slowly.observe(x[None, :], [value])
    K = kernel(X, X) + 0.01 * np.eye(150)
    cross = kernel(domain.points, X)
    np.testing.assert_allclose(once.mean, cross @ np.linalg.solve(K, y), atol=1e-6)
    np.testing.assert_allclose(once.mean, slowly.mean, atol=1e-6)
    np.testing.assert_allclose(once.variance, slowly.variance, atol=1e-6)
    assert once.log_det == pytest.approx(slowly.log_det, abs=1e-5)
    np.testing.assert_allclose(once.weights_norm1(), slowly.weights_norm1(), atol=1e-5)
    more = 0.5 * rng.random((60, 2))
    for each in (once, slowly):
        each.observe(more, np.zeros(60))
    np.testing.assert_allclose(once.mean, slowly.mean, atol=1e-6)
