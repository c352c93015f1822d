"""A model: the learner's assumptions about f and its noise."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from misspec import kernels
from misspec.domains import Domain, a_domain
from misspec.errors import Array, InvalidInput, flag, floats, instance, matrix, number, shown, vector

LEAST_PRECISE = 1e-100  # of the model's noise to that of a result: below, squares vanish
MOST_PRECISE = 1000.0  # times as precise as the model's noise a result can be: beyond, rounding would be felt
LEAST_REGULARIZATION = 1e-6  # default λ where the noise is next to none: keeps kernel matrices well conditioned
SMALLEST_REGULARIZATION = 1e-12  # smallest λ accepted: below it, rounding of kernel values matters
SMALLEST_CONSTANT, LARGEST_CONSTANT = 1e-50, 1e50  # sizes accepted: squares and ratios must not overflow


@dataclasses.dataclass(frozen=True)
class Model:
    """The hypothesis class {f : ‖f − offset‖_k ≤ B} with σ-sub-Gaussian noise.

    kernel           k, positive semidefinite with k(x,x) ≤ 1
    norm_bound       B, in units of y
    noise            σ, in units of y
    regularization   λ, the ridge; None means σ² or 1e-6, whichever is larger
    delta            δ, a policy's total probability of failure
    offset           prior mean, in units of y
    scale            prior standard deviation in units of y; only numeric widths use it
    fitted           whether the model was fitted to data (`from_data`): its bands then hold at no stated level
    """

    kernel: Any
    _: dataclasses.KW_ONLY
    norm_bound: float
    noise: float
    regularization: float = None  # type: ignore[assignment]  # None is replaced by σ² below
    delta: float = 0.1
    offset: float = 0.0
    scale: float = 1.0
    fitted: bool = False

    def turned(self) -> Model:
        """The model of −y."""
        return dataclasses.replace(self, offset=0.0 - self.offset)

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, kernels.Kernel) or isinstance(self.kernel, type):
            raise InvalidInput(
                f"kernel must have __call__(X, Z) and diag(X), as scikit-learn's RBF(0.2) has; got {shown(self.kernel)}"
            )
        noise = number("noise (σ)", self.noise, at_least=0)
        ridge = max(noise**2, LEAST_REGULARIZATION) if self.regularization is None else self.regularization
        checked = {
            "norm_bound": number("norm_bound (B)", self.norm_bound, above=0),
            "noise": noise,
            "regularization": number("regularization (λ)", ridge, above=0),
            "delta": number("delta (δ)", self.delta, above=0, below=1),
            "offset": number("offset", self.offset),
            "scale": number("scale", self.scale, above=0),
            "fitted": flag("fitted", self.fitted),
        }
        if checked["regularization"] < SMALLEST_REGULARIZATION:
            raise InvalidInput(
                f"regularization (λ) must be at least {SMALLEST_REGULARIZATION:g}, so that rounding of kernel values "
                f"is small beside it, got {ridge:g}"
            )
        for name, value in checked.items():
            if abs(value) > LARGEST_CONSTANT or (0 < value < SMALLEST_CONSTANT and name not in ("offset", "delta")):
                raise InvalidInput(
                    f"{name} must lie between {SMALLEST_CONSTANT:g} and {LARGEST_CONSTANT:g} in size, got {value:g}; "
                    "take other units"
                )
            object.__setattr__(self, name, value)  # frozen: set once, here

    def precision(self, noise: ArrayLike, count: int = 1) -> Array:
        """σ²/σ_s² of results whose own standard deviations these are (one, or one each; NaN: that of the model): how
        often each counts, at most a million times. Overstating a noise does no harm."""
        own = floats("noise must be numbers", noise)
        if own.shape not in ((), (1,), (count,)):
            raise InvalidInput(f"noise must be one number, or {count} in a list, got shape {own.shape}")
        if (own < 0).any() or np.isinf(own).any():
            raise InvalidInput(f"a noise must be a standard deviation, 0 or above and finite, got {shown(noise)}")
        if not self.noise > 0:
            raise InvalidInput(
                "a noise of its own needs a model whose noise is above 0: a result is weighted by their ratio"
            )
        own = np.broadcast_to(np.maximum(own, self.noise / MOST_PRECISE), (count,))
        return np.where(np.isnan(own), 1.0, np.maximum(self.noise / own, LEAST_PRECISE) ** 2)

    def check(self, domain: Domain) -> None:
        """InvalidInput unless the kernel works on the domain and k(x,x) ≤ 1 there."""
        probes = a_domain(domain).probes()
        kernels.check(self.kernel, probes)
        if getattr(domain, "bounded", True):  # otherwise points are checked as they arrive
            kernels.check_bounded(self.kernel, probes)

    @classmethod
    def from_data(
        cls,
        points: ArrayLike,
        observations: ArrayLike,
        kernel: Any = None,
        delta: float = 0.1,
        *,
        domain: Domain | None = None,
        noise: float | None = None,
    ) -> Model:
        """Fit kernel hyperparameters, offset and noise by maximum likelihood with scikit-learn.

        kernel: the shape to fit, without amplitude or noise; an anisotropic Matérn 5/2 by default. The fitted kernel
        has k(x,x) = 1 on the points (at most 1 if it is not stationary); the amplitude goes into `scale` and
        `norm_bound`, and `regularization` is (noise/scale)². `norm_bound` is the larger of `scale` and the norm of the
        fitted mean.

        Points are taken as the kernel sees them. For a Box or its grid, whose kernels see the unit cube, pass
        `domain=` and points in user units. noise: σ, if it is known; otherwise it is fitted too, to at least a
        thousandth of the scale, and with few points in many dimensions it can come out far too small.

        The price: every width of this library takes B, σ and k as known before the data. Here the data choose them, so
        a policy that then sees the same data (`observe`) has bands that hold at no stated level: the fit has seen the
        noise, ‖f‖ may exceed `norm_bound`, and the kernel may be wrong. Fitting on data that the policy never sees
        restores the independence, but B and k may still be wrong. The model is marked `fitted`, and policies then
        guarantee nothing. Own bands rest on σ alone: they hold if it was given.
        """
        from sklearn.base import clone
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        X = matrix("points", points if domain is None else a_domain(domain).encode(points), rows_at_least=2)
        y = vector("observations", observations, length=len(X))
        spread = np.ptp(X, axis=0)
        if not (y.std() > SMALLEST_CONSTANT and spread.max() > SMALLEST_CONSTANT):
            raise InvalidInput("a fit needs observations and points that vary; got constant ones")
        if kernel is None:
            reach = np.where(spread > 0, spread, spread.max())
            kernel = Matern(0.3 * reach, length_scale_bounds=list(zip(0.02 * reach, 10 * reach, strict=True)), nu=2.5)
        kernels.check(kernel, X)
        if not hasattr(kernel, "hyperparameters"):
            raise InvalidInput(
                f"only scikit-learn's kernels can be fitted, got {shown(kernel)}; make the Model by hand"
            )
        values = kernel.get_params()
        zeros = [h.name for h in kernel.hyperparameters if not h.fixed and not np.all(values[h.name])]
        # fits run over logarithms: a parameter that is 0 stays 0
        kernel = clone(kernel).set_params(**{f"{name}_bounds": "fixed" for name in zeros})
        unit = float(y.std())
        known = None if noise is None else number("noise (σ)", noise, above=0)
        white = WhiteKernel(0.05, (1e-6, 10.0)) if known is None else WhiteKernel((known / unit) ** 2, "fixed")
        shape = ConstantKernel(1.0, (1e-3, 1e3)) * kernel + white
        offset = float(y.mean())
        for _ in range(2):  # the fit needs an offset and the offset a fit; two rounds are enough
            fit = GaussianProcessRegressor(shape, alpha=1e-10, n_restarts_optimizer=3, random_state=0)
            with warnings.catch_warnings():
                # scikit-learn warns of a hyperparameter at its bound, but the user did not choose the bounds
                warnings.simplefilter("ignore", ConvergenceWarning)
                fit.fit(X, (y - offset) / unit)
            ones = np.linalg.solve(fit.L_, np.ones(len(y)))
            offset = float(ones @ np.linalg.solve(fit.L_, y) / (ones @ ones))  # generalised least squares
            shape = fit.kernel_
        amplitude, fitted = fit.kernel_.k1.k1.constant_value, fit.kernel_.k1.k2
        largest = float(kernels.diagonal(fitted, X).max())
        if not math.isclose(largest, 1.0, rel_tol=1e-12):  # not stationary, or with an amplitude of its own
            amplitude, fitted = amplitude * largest, ConstantKernel(1.0 / largest) * fitted
        scale = unit * math.sqrt(amplitude)
        noise = known or max(unit * math.sqrt(fit.kernel_.k2.noise_level), 1e-3 * scale)
        ridge = (noise / scale) ** 2
        return cls(
            fitted,
            norm_bound=max(scale, norm_of_fit(fitted, X, y - offset, ridge)),
            noise=noise,
            delta=delta,
            offset=offset,
            scale=scale,
            fitted=True,
            regularization=max(ridge, LEAST_REGULARIZATION),
        )


def norm_of_fit(kernel: Any, X: Array, y: Array, ridge: float) -> float:
    """The RKHS norm of the kernel ridge regression of y on X."""
    K = kernels.cross(kernel, X, X)
    coefficients = np.linalg.solve(K + ridge * np.eye(len(X)), y)
    return math.sqrt(max(0.0, float(coefficients @ K @ coefficients)))


def a_model(given: Any) -> Model:
    """A Model, or InvalidInput."""
    model: Model = instance("model", given, Model, "ms.Model(kernel, …) makes one")
    return model
