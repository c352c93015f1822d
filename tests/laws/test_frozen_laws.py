"""Laws of posteriors whose features are fixed at arrival, and of the bands that pay for what a budget misses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

import misspec as ms
from verbs import expect, fulfil, release

KERNELS = [
    RBF(0.5),
    Matern(0.7, nu=0.5),
    Matern(0.7, nu=2.5),
    ConstantKernel(0.6) * RBF(0.8) + ConstantKernel(0.3) * DotProduct(sigma_0=0.2),
    DotProduct(sigma_0=0.3),
]
FEW = settings(max_examples=40)


@st.composite
def situations(draw):
    """A model, points (some of them twice), which of them were observed, a budget, and whether there is a list."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d, n, t = draw(st.integers(1, 3)), draw(st.integers(2, 20)), draw(st.integers(1, 40))
    X = 0.9 * rng.random((n, d)) / np.sqrt(d)
    X[n // 2] = X[0]
    model = ms.Model(
        draw(st.sampled_from(KERNELS)),
        norm_bound=draw(st.floats(0.1, 4)),
        noise=0.0,
        regularization=draw(st.sampled_from([1e-3, 0.05, 1.0])),
        offset=draw(st.sampled_from([0.0, -2.0])),
    )
    return model, X, rng.integers(0, n, t), draw(st.integers(1, 12)), draw(st.booleans()), rng


def made(model, X, budget, listed):
    return (
        ms.posterior.Tracked(model, ms.Finite(X), budget=budget)
        if listed
        else ms.posterior.Posterior(model, ms.Open(X.shape[1]), budget=budget)
    )


def told(model, X, index, y, budget, listed):
    posterior = made(model, X, budget, listed)
    for i, value in zip(index, y, strict=True):
        posterior.observe(X[[i]], value)
    return posterior


def seen_and_paid(posterior, X, epsilon, exactly):
    """σ_Z, and what is paid beside it; a linear kernel off a list misses nothing."""
    look = posterior.look(X)
    if look.bias is None:
        norm = look.norm1() if exactly else np.sqrt(posterior.t + 1) * look.norm2()
        return np.sqrt(look.variance), epsilon * norm
    return np.sqrt(np.maximum(look.variance - look.residual, 0.0)), look.bias(epsilon, exactly)


def member(model, X, rng):
    """Values at X of a member of the class whose norm is B."""
    weights = rng.standard_normal(len(X))
    K = model.kernel(X, X.copy())
    norm = np.sqrt(max(float(weights @ K @ weights), 1e-12))
    return model.offset + model.norm_bound * (K @ weights) / norm


@FEW
@given(situations(), st.sampled_from([0.0, 0.05, 1.0]))
def test_exact_below_flat_below_paper(situation, epsilon):
    model, X, index, budget, listed, rng = situation
    posterior = told(model, X, index, rng.standard_normal(len(index)), budget, listed)
    seen, exact = seen_and_paid(posterior, X, epsilon, exactly=True)
    flat = seen_and_paid(posterior, X, epsilon, exactly=False)[1]
    assert (exact <= flat * (1 + 1e-7) + 1e-7).all()
    assert (flat >= epsilon * np.sqrt(posterior.t) * posterior.look(X).norm2() * (1 - 1e-7) - 1e-9).all()
    # ‖ζ‖₂ ≤ σ_Z/√λ, and ‖b‖₂ ≤ ε√t + B√ρ₂
    B, ridge = model.norm_bound, model.regularization
    total = epsilon * np.sqrt(posterior.t + 1) + B * np.sqrt(posterior.missed_squares)
    residual = posterior.look(X).residual
    here = 0.0 if residual is None else B * np.sqrt(residual)
    assert (exact <= here + total / np.sqrt(ridge) * seen * (1 + 1e-7) + 1e-7).all()


@FEW
@given(situations(), st.sampled_from([0.0, 0.3]))
def test_bands_hold_whatever_the_budget_misses(situation, epsilon):
    """Without noise the law has no exceptions: a member of the class of norm B, and a misfit of ±ε at each point."""
    model, X, index, budget, listed, rng = situation
    f = member(model, X, rng)
    misfit = {x.tobytes(): m for x, m in zip(X, epsilon * rng.choice([-1.0, 1.0], len(X)), strict=True)}
    truth = f + [misfit[x.tobytes()] for x in X]
    posterior = told(model, X, index, truth[index], budget, listed)
    mean = posterior.at(X)[0]
    for exactly in (True, False):
        seen, paid = seen_and_paid(posterior, X, epsilon, exactly)
        assert (np.abs(f - mean) <= model.norm_bound * seen * (1 + 1e-6) + paid + 1e-6).all()
    for enlargement in (None, "exact", "norm2", "paper"):
        domain = ms.Finite(X) if listed else ms.Open(X.shape[1])
        policy = ms.ECGPUCB(
            domain, model, epsilon=epsilon, enlargement=enlargement, grounded=False, budget=budget, resolution=None
        )
        policy.observe(X[index], truth[index])
        for band in (policy.band(X), policy.band(list(range(len(X)))) if listed else policy.band(X)):
            assert (band.lower <= truth + 1e-6).all(), enlargement
            assert (truth <= band.upper + 1e-6).all(), enlargement


@FEW
@given(situations())
def test_a_budget_that_misses_nothing_changes_nothing(situation):
    model, X, index, _, listed, rng = situation
    y = model.offset + rng.standard_normal(len(index))
    one, all_of_it = told(model, X, index, y, 500, listed), told(model, X, index, y, None, listed)
    if one.missed_squares > 1e-13:
        return  # of points so near to each other that rounding would be felt, a budget keeps one
    tolerance = 1e-7 + 1e-8 / model.regularization * np.abs(y - model.offset).max()
    np.testing.assert_allclose(one.at(X)[0], all_of_it.at(X)[0], atol=tolerance)
    np.testing.assert_allclose(one.at(X)[1] ** 2, all_of_it.at(X)[1] ** 2, atol=tolerance)
    assert one.log_det == pytest.approx(all_of_it.log_det, rel=1e-5, abs=1e-7)


@FEW
@given(situations())
def test_the_dictionary_only_grows_up_to_the_budget(situation):
    model, X, index, budget, listed, rng = situation
    posterior = made(model, X, budget, listed)
    linear = not listed and isinstance(model.kernel, DotProduct)
    members, missed = [], []
    for i in index:
        if rng.random() < 0.3:
            expect(posterior, X[[i]])
            if rng.random() < 0.5:
                release(posterior, X[[i]])
        posterior.observe(X[[i]], rng.standard_normal())
        base = posterior._base
        if linear:
            assert posterior.rank == X.shape[1] + 1
            continue
        assert posterior.rank == len(base.dictionary.members) <= budget
        assert base.dictionary.members[: len(members)] == members, "none leaves, none is exchanged"
        assert base.missed_of[: len(missed)] == missed, "what is missed of a point is fixed when it arrives"
        members, missed = list(base.dictionary.members), list(base.missed_of)
    if not linear:
        first = posterior.points[members[0]]
        np.testing.assert_array_equal(first, X[index[0]])  # there is nothing to compare it with


@FEW
@given(situations())
def test_the_order_of_telling_what_pends_does_not_matter(situation):
    model, X, index, budget, listed, rng = situation
    y = model.offset + rng.standard_normal(len(index))
    one, other = made(model, X, budget, listed), made(model, X, budget, listed)
    for posterior in (one, other):
        expect(posterior, X[index])
    for k in range(len(index)):
        fulfil(one, X[[index[k]]], y[k])
    for k in rng.permutation(len(index)):
        fulfil(other, X[[index[k]]], y[k])
    assert one.pending == other.pending == 0
    np.testing.assert_allclose(one.at(X)[0], other.at(X)[0], atol=1e-9 * (1 + np.abs(y).max()))
    np.testing.assert_allclose(one.at(X)[1] ** 2, other.at(X)[1] ** 2, atol=1e-9)
    assert one.log_det == pytest.approx(other.log_det, abs=1e-9, rel=1e-9)
    for exactly in (True, False):
        for a, b in zip(*(seen_and_paid(each, X, 0.2, exactly) for each in (one, other)), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-7)


@st.composite
def rounds(draw):
    """A policy that takes actions, made by a function, and the action sets of its rounds."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    model = ms.Model(draw(st.sampled_from(KERNELS)), norm_bound=1.5, noise=0.1, regularization=0.05)
    budget, kind = draw(st.sampled_from([None, 3, 8])), draw(st.integers(0, 3))
    domain = ms.Open(2)

    def make():
        if kind == 0:
            return ms.GPUCB(domain, model, budget=budget, grounded=True)
        if kind == 1:
            return ms.ECGPUCB(domain, model, epsilon=0.2, budget=budget)
        if kind == 2:
            return ms.RegretBalancing(domain, model, horizon=50, budget=budget)
        return ms.RegretBalancing(domain, model, horizon=50, budget=budget, evidence="own", enlargement="exact")

    known = 0.6 * rng.random((6, 2))
    sets = [np.concatenate([0.6 * rng.random((3, 2)), known[rng.integers(0, 6, 2)]]) for _ in range(12)]
    return make, sets, 0.6 * rng.random((7, 2)), rng


@FEW
@given(rounds())
def test_policies_are_told_in_any_order(situation):
    make, sets, X, rng = situation
    y, dropped = rng.standard_normal(len(sets)), set(rng.permutation(len(sets))[:3].tolist())
    policies = [make(), make()]
    for k, policy in enumerate(policies):
        policy.tell([policy.ask(actions=sets[0]), policy.ask(actions=sets[1])], y[:2])
        asked = [policy.ask(actions=each) for each in sets[2:]]
        order = range(len(asked)) if k == 0 else rng.permutation(len(asked))
        for i in order:
            policy.drop(asked[i]) if i in dropped else policy.tell(asked[i], float(y[i + 2]))
    one, other = policies
    for a, b in zip(one.band(X), other.band(X), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    np.testing.assert_allclose(one.posterior.at(X), other.posterior.at(X), atol=1e-9)
    for name in ("counts", "active", "eliminated"):
        assert getattr(one, name, None) == getattr(other, name, None)
    np.testing.assert_allclose(getattr(one, "rewards", 0.0), getattr(other, "rewards", 0.0), atol=1e-12)
    np.testing.assert_allclose(getattr(one, "candidate_bounds", 0.0), getattr(other, "candidate_bounds", 0.0))


@FEW
@given(situations())
def test_what_is_expected_and_released_leaves_all_as_it_was(situation):
    model, X, index, budget, listed, rng = situation
    posterior = told(model, X, index, rng.standard_normal(len(index)), budget, listed)
    mean, std, log_det, t = *posterior.at(X), posterior.log_det, posterior.t
    stays, goes = 0.9 * rng.random((2, 4, X.shape[1])) / np.sqrt(X.shape[1])
    expect(posterior, stays)
    before, gained = posterior.at(X, pending=True)[1], posterior.pending_information
    expect(posterior, goes)
    assert (posterior.at(X, pending=True)[1] <= before + 1e-6).all()
    for x in rng.permutation(goes):
        release(posterior, x[None])
    np.testing.assert_allclose(posterior.at(X, pending=True)[1] ** 2, before**2, atol=1e-9)
    assert posterior.pending_information == pytest.approx(gained, rel=1e-7, abs=1e-8)
    assert posterior.pending == len(stays)
    for x in stays:
        release(posterior, x[None])
    assert posterior.pending == 0
    assert (posterior.log_det, posterior.t) == (log_det, t)
    np.testing.assert_allclose(posterior.at(X)[0], mean, atol=1e-9)
    np.testing.assert_allclose(posterior.at(X)[1] ** 2, std**2, atol=1e-9)
    np.testing.assert_array_equal(posterior.at(X, pending=True), posterior.at(X))
    with pytest.raises(ms.InvalidInput, match="only a point that is pending"):
        release(posterior, stays[:1])


@FEW
@given(situations())
def test_variance_never_rises_with_data(situation):
    model, X, index, budget, listed, rng = situation
    posterior = made(model, X, budget, listed)
    before = posterior.at(X)[1]
    np.testing.assert_allclose(before**2, model.kernel.diag(X), atol=1e-12)
    for i in index:
        posterior.observe(X[[i]], rng.standard_normal())
        std = posterior.at(X)[1]
        assert (std <= before + 1e-6).all()
        before = std


@FEW
@given(situations())
def test_calls_of_any_size_are_the_same(situation):
    model, X, index, budget, listed, rng = situation
    y = model.offset + rng.standard_normal(8 * len(index))
    index = np.tile(index, 8)
    one, parts = told(model, X, index, y, budget, listed), made(model, X, budget, listed)
    cuts = np.sort(rng.integers(0, len(index), 2))
    for some in np.split(np.arange(len(index)), cuts):
        parts.observe(X[index[some]], y[some])
    assert parts.rank == one.rank
    scale = 1 + np.abs(y - model.offset).max()
    np.testing.assert_allclose(parts.at(X)[0], one.at(X)[0], atol=1e-8 * scale)
    np.testing.assert_allclose(parts.at(X)[1] ** 2, one.at(X)[1] ** 2, atol=1e-9)
    assert parts.log_det == pytest.approx(one.log_det, abs=1e-9, rel=1e-8)
    for exactly in (True, False):
        for a, b in zip(*(seen_and_paid(each, X, 0.2, exactly) for each in (one, parts)), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6, rtol=1e-6)
