import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

import misspec as ms
from misspec import problems

DOMAIN = ms.Box([(0, 1)]).grid(100)
MODEL = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1, offset=1.0)


@given(
    seed=st.integers(0, 10_000),
    kernel=st.sampled_from([RBF(0.3), Matern(0.2, nu=0.5), DotProduct(0.5) * 0.8]),
    B=st.floats(0.1, 10),
)
def test_random_members_have_norm_exactly_b(seed, kernel, B):
    model = ms.Model(kernel, norm_bound=B, noise=0.1, offset=1.0)
    f = problems.random_member(DOMAIN, model, seed) - 1.0
    Phi, _ = ms.kernels.features(kernel, DOMAIN.encoded, 1e-14)
    w = np.linalg.lstsq(Phi, f, rcond=1e-9)[0]
    assert np.linalg.norm(w) == pytest.approx(B, rel=1e-3)


@pytest.mark.parametrize("misfit", [name for name in problems.MISFITS if name != "none"])
def test_misfits_reach_epsilon_and_stay_within(misfit):
    for seed in range(10):
        problem = problems.misspecified(DOMAIN, MODEL, 0.3, misfit, seed)
        assert 0.29 <= np.abs(problem.misfit).max() <= 0.3 + 1e-12
        assert problem.epsilon == 0.3
        assert problem.values[problem.best] == problem.values.max()


def test_problems_of_one_seed_share_their_member():
    one = problems.misspecified(DOMAIN, MODEL, 0.1, "random", seed=4)
    other = problems.misspecified(DOMAIN, MODEL, 0.3, "ripple", seed=4)
    np.testing.assert_array_equal(one.in_class, other.in_class)
    again = problems.misspecified(DOMAIN, MODEL, 0.1, "random", seed=4)
    np.testing.assert_array_equal(one.values, again.values)
    assert not np.array_equal(one.in_class, problems.misspecified(DOMAIN, MODEL, 0.1, "random", seed=5).in_class)


def test_shapes_of_the_misfits():
    signs = problems.misspecified(DOMAIN, MODEL, 0.1, "random").misfit
    np.testing.assert_allclose(np.abs(signs), 0.1)
    spikes = problems.misspecified(DOMAIN, MODEL, 0.1, "spikes", wavelength=0.07).misfit
    assert np.sum(np.abs(spikes) > 0.05) == 7
    ripple = problems.misspecified(DOMAIN, MODEL, 0.1, "ripple", wavelength=0.25).misfit
    assert np.sum(np.diff(np.sign(ripple)) != 0) in (7, 8)  # four waves
    bump = problems.misspecified(DOMAIN, MODEL, 0.1, "bump", wavelength=0.02).misfit
    assert np.sum(np.abs(bump) > 0.001) < 20
    none = problems.misspecified(DOMAIN, MODEL, 0.1, "none")
    assert none.epsilon == 0.0
    own = problems.misspecified(DOMAIN, MODEL, 0.2, np.full(100, 0.15))
    np.testing.assert_allclose(own.misfit, 0.15)


@pytest.mark.parametrize(
    "make", [problems.rough_truth, problems.wrong_length_scale, problems.nonstationary], ids=lambda f: f.__name__
)
def test_wrong_models_know_how_wrong_they_are(make):
    problem = make(DOMAIN, MODEL, seed=2)
    best = ms.best_in_class(DOMAIN, MODEL, problem.values)
    assert problem.epsilon == best.epsilon > 0.05
    np.testing.assert_array_equal(problem.in_class, best.values)
    generous = dataclasses.replace(MODEL, norm_bound=200.0)
    assert make(DOMAIN, generous, seed=2).epsilon < problem.epsilon


@pytest.mark.parametrize("seed", range(5))
def test_the_needle_is_half_to_all_of_its_height_away(seed):
    problem = problems.needle(DOMAIN, MODEL, 0.4, seed)
    assert np.sum(problem.values != 1.0) == 1
    assert problem.values.max() == pytest.approx(1.4)
    assert 0.98 * 0.2 <= problem.epsilon <= 0.4 + 1e-6  # half of it on a continuum, a little less on a grid


def test_the_trap_is_what_it_says():
    problem = problems.trap()
    assert len(problem.domain) == 12
    assert problem.epsilon == 0.1
    assert np.abs(problem.misfit).max() == pytest.approx(0.1)
    assert ms.best_in_class(problem.domain, problem.model, problem.in_class).epsilon < 1e-6


def test_svm_digits():
    problem = problems.svm_digits()
    assert len(problem.domain) == 400
    assert 0.98 < problem.values.max() < 1.0
    assert problem.values.min() > 0.05
    assert 0.0 < problem.epsilon < 0.3
    deviations = problem.sampler.deviations
    assert deviations.shape == (400, 30)
    np.testing.assert_allclose(deviations.mean(axis=1), 0.0, atol=1e-12)
    assert np.ptp(deviations, axis=1).max() / 2 <= problem.model.noise  # so that σ covers bounded noise
    c, gamma = problem.domain.points[problem.best]
    assert c > 0
    assert -2 < gamma < 0
    smoother = problems.svm_digits(ms.Model(RBF(0.5), norm_bound=3.0, noise=0.1, offset=0.5))
    assert smoother.epsilon > problem.epsilon


def test_digits_bandit():
    problem = problems.digits_bandit(50, solve=False)
    assert problem.domain.points.shape == (500, 26)
    assert problem.values.sum() == 50  # one right class an image
    offers = problem.offers.draw(np.random.default_rng(0), 1000)
    assert offers.shape == (1000, 10)
    np.testing.assert_array_equal(problem.values[offers].sum(axis=1), 1.0)
    image = problem.domain.points[offers[0]]
    np.testing.assert_array_equal(image[:, :16], np.tile(image[0, :16], (10, 1)))
    np.testing.assert_array_equal(image[:, 16:], np.eye(10))
    solved = problems.digits_bandit(20)
    assert solved.epsilon < 0.9
    np.testing.assert_array_equal(solved.values, problem.values[:200])


def test_contextual_problems_offer_distinct_candidates():
    problem = problems.contextual(problems.misspecified(DOMAIN, MODEL, 0.1), 7)
    offers = problem.offers.draw(np.random.default_rng(0), 200)
    assert offers.shape == (200, 7)
    assert all(len(set(row)) == 7 for row in offers.tolist())
    assert np.bincount(offers.ravel(), minlength=100).min() > 0
    assert "contextual" in repr(problem)


def test_noise_is_drawn_once_for_all_policies():
    gaussian = problems.Gaussian(0.5)
    draws = gaussian.draw(np.random.default_rng(0), 10_000)
    assert np.std(draws) == pytest.approx(0.5, rel=0.05)
    assert gaussian.at(3, draws[0]) == gaussian.at(9, draws[0]) == draws[0]
    table = problems.Replayed(np.array([[-1.0, 1.0], [-2.0, 2.0]]))
    draws = table.draw(np.random.default_rng(0), 100)
    assert set(draws.tolist()) == {0, 1}
    assert [table.at(1, k) for k in (0, 1)] == [-2.0, 2.0]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: problems.misspecified(DOMAIN, MODEL, 0.1, "wave"), "random, ripple"),
        (lambda: problems.misspecified(DOMAIN, MODEL, 0.1, "adversarial"), "misspec.adversary"),
        (lambda: problems.misspecified(DOMAIN, MODEL, 0.1, np.full(100, 0.2)), "more than the epsilon"),
        (lambda: problems.misspecified(ms.Box([(0, 1)]), MODEL, 0.1), "box.grid"),
        (lambda: problems.misspecified(DOMAIN, MODEL, -0.1), "epsilon"),
        (lambda: problems.misspecified(ms.Box([(0, 1)]).grid(21), MODEL, 0.1, "ripple"), "falls between"),
        (lambda: problems.misspecified(DOMAIN, ms.Model(4.0 * RBF(0.2), norm_bound=1.0, noise=0.1), 0.1), "at most 1"),
        (lambda: problems.needle(ms.Box([(0, 1)]), MODEL), "box.grid"),
        (lambda: problems.nonstationary(DOMAIN, RBF(0.2)), "must be a Model"),
        (lambda: problems.contextual(problems.trap(), 13), "at most the 12"),
        (lambda: problems.contextual(problems.contextual(problems.trap(), 5), 3), "already"),
        (lambda: problems.Groups([0, 1]), "one group a row"),
        (lambda: problems.digits_bandit(5), "images"),
        (lambda: problems.digits_bandit(2000), "1797 images"),
        (
            lambda: problems.wrong_length_scale(DOMAIN, ms.Model(DotProduct(0), norm_bound=1, noise=1), 0),
            "length_scale",
        ),
        (lambda: ms.problems.Problem("p", DOMAIN, MODEL, np.zeros(100), np.ones(100), 0.5), "1 apart"),
        (lambda: ms.problems.Problem("p", DOMAIN, "model", np.zeros(100), np.ones(100), 0.5), "must be a Model"),
        (lambda: problems.misspecified(DOMAIN, MODEL, 0.1).with_misfit(np.full(100, 0.2)), "more than the epsilon"),
    ],
)
def test_errors_say_what_to_do(call, says):
    with pytest.raises(ms.InvalidInput, match=says):
        call()


WRONG = {
    "sampler": lambda: ms.problems.Problem("p", DOMAIN, MODEL, np.ones(100), np.ones(100), 0.0, sampler={}),
    "offers": lambda: ms.problems.Problem("p", DOMAIN, MODEL, np.ones(100), np.ones(100), 0.0, offers=3),
    "groups": lambda: ms.problems.Problem(
        "p", DOMAIN, MODEL, np.ones(100), np.ones(100), 0.0, offers=problems.Groups([[0, 100]])
    ),
    "deviations": lambda: ms.problems.Problem(
        "p", DOMAIN, MODEL, np.ones(100), np.ones(100), 0.0, sampler=problems.Replayed(np.zeros((3, 2)))
    ),
    "name": lambda: ms.problems.Problem(3, DOMAIN, MODEL, np.ones(100), np.ones(100), 0.0),
    "fresh": lambda: ms.problems.Problem("p", DOMAIN, MODEL, np.ones(100), np.ones(100), 0.0, fresh="no"),
    "problem": lambda: problems.contextual(MODEL, 2),
    "model": lambda: problems.fresh_actions(DOMAIN, 2),
    "misfit": lambda: problems.misspecified(DOMAIN, MODEL, misfit=np.array(["ripple", "bump"])),
    "subsets": lambda: problems.Subsets(3, 4),
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_parts_that_do_not_fit_are_refused(make):
    with pytest.raises(ms.InvalidInput):
        make()
