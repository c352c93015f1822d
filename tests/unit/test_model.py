import dataclasses
import math

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, DotProduct, WhiteKernel

import misspec as ms
from misspec.errors import InvalidInput


def test_defaults():
    model = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
    assert model.regularization == pytest.approx(0.01)
    assert (model.delta, model.offset, model.scale) == (0.1, 0.0, 1.0)
    assert ms.Model(RBF(0.2), norm_bound=1.0, noise=0.0).regularization == 1e-6
    assert "RBF" in repr(model)
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.noise = 1.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("regularization", v) for v in (0, -1.0, math.nan, math.inf, "a", True)],
        *[("delta", v) for v in (0, 1, -0.1, 1.5, math.nan)],
        *[("noise", v) for v in (-0.1, math.nan, math.inf, None)],
        *[("norm_bound", v) for v in (0, -1, math.inf)],
        *[("scale", v) for v in (0, -1)],
        *[("offset", v) for v in (math.nan, math.inf)],
    ],
)
def test_bad_numbers(name, value):
    arguments = {"norm_bound": 1.0, "noise": 0.1, name: value}
    with pytest.raises(InvalidInput, match=f"{name}.*must be a finite number.*got"):
        ms.Model(RBF(0.2), **arguments)


def sample(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    return X, 40 + 8 * np.sin(5 * X[:, 0]) + 0.5 * rng.standard_normal(n)


def test_fit():
    X, y = sample()
    model = ms.Model.from_data(X, y)
    np.testing.assert_allclose(model.kernel.diag(X), 1.0)
    assert 0.3 < model.noise < 0.8
    assert 30 < model.offset < 50
    assert model.scale > 2
    assert model.norm_bound >= model.scale
    assert model.regularization == pytest.approx((model.noise / model.scale) ** 2)
    # the irrelevant second coordinate is seen as such
    assert model.kernel.length_scale[1] > 3 * model.kernel.length_scale[0]


def test_fit_predicts_as_scikit_learn_does():
    X, y = sample()
    model = ms.Model.from_data(X, y, kernel=RBF(0.5))
    shape = model.scale**2 * model.kernel + WhiteKernel(model.noise**2)
    gp = GaussianProcessRegressor(shape, alpha=1e-12, optimizer=None).fit(X, y - model.offset)
    posterior = ms.posterior.Tracked(model, ms.Finite(X))
    posterior.observe(X, y)
    mean, std = gp.predict(X, return_std=True)
    np.testing.assert_allclose(posterior.mean, mean + model.offset, rtol=1e-5)
    np.testing.assert_allclose((model.scale * posterior.std) ** 2 + model.noise**2, std**2, rtol=1e-4)


def test_fit_of_a_kernel_that_is_not_stationary():
    X, y = sample()
    model = ms.Model.from_data(X, y, kernel=DotProduct(sigma_0=0))
    assert model.kernel.diag(X).max() == pytest.approx(1.0)
    ms.posterior.Tracked(model, ms.Finite(X)).observe(X, y)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.zeros((5, 1)), np.arange(5.0)),
        (np.random.default_rng(0).random((5, 1)), np.ones(5)),
        (np.random.default_rng(0).random((5, 1)), np.ones(4)),
        (np.random.default_rng(0).random((1, 1)), np.ones(1)),
        (np.array([[0.0], [np.nan]]), np.ones(2)),
    ],
)
def test_data_that_cannot_be_fitted(X, y):
    with pytest.raises(InvalidInput):
        ms.Model.from_data(X, y)


def test_kernels_that_cannot_be_fitted():
    class Custom:
        def __call__(self, X, Z):
            return RBF(0.3)(X, Z)

        def diag(self, X):
            return np.ones(len(X))

    with pytest.raises(InvalidInput, match="make the Model by hand"):
        ms.Model.from_data(*sample(), kernel=Custom())


def test_fit_in_the_units_of_a_box():
    box = ms.Box([(0, 100), (0, 1)])
    X, y = sample()
    by_hand = ms.Model.from_data(X, y)
    model = ms.Model.from_data(X * [100, 1], y, domain=box)
    np.testing.assert_allclose(model.kernel.length_scale, by_hand.kernel.length_scale, rtol=1e-3)
    assert model.fitted


def test_a_known_noise_is_kept_by_a_fit():
    rng = np.random.default_rng(0)
    X = rng.random((20, 6))
    y = np.sin(3 * X[:, 0]) + 0.05 * rng.standard_normal(20)
    model = ms.Model.from_data(X, y, noise=0.05)
    assert model.noise == 0.05
    assert model.regularization == pytest.approx((0.05 / model.scale) ** 2)
    with pytest.raises(InvalidInput, match="noise"):
        ms.Model.from_data(X, y, noise=0.0)
