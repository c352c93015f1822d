"""Kernels: the protocol, its checks, and gradients in x.

    k(x, z)     kernel(X, Z)[i, j], X of shape (n, d) and Z of shape (m, d)
    k(x, x)     kernel.diag(X)[i]; at most 1 on the domain
    ∂k/∂x       gradient(kernel, X, Z)[i, j, :]

Any object with `__call__(X, Z)` and `diag(X)` is a kernel, so all of scikit-learn's are. Those are recognised by the
name of their class, without importing scikit-learn.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from misspec.errors import LARGEST, Array, InvalidInput, MisspecError, floats, short, shown

SLACK = 1e-9  # k(x,x) may exceed 1 by this much, for rounding
SAMPLE = 48  # points on which `check` tries a kernel: their Gram matrix takes milliseconds


@runtime_checkable
class Kernel(Protocol):
    """A positive semidefinite function of two points."""

    def __call__(self, X: Array, Z: Array, /) -> Array: ...

    def diag(self, X: Array, /) -> Array: ...


def cross(kernel: Kernel, X: Array, Z: Array) -> Array:
    """k(X, Z), shape (n, m), checked to be finite."""
    values = _evaluated(kernel, kernel, X, Z)
    if values.shape != (len(X), len(Z)):
        raise InvalidInput(
            f"kernel(X, Z) must return shape {(len(X), len(Z))}, got {values.shape} from {shown(kernel)}"
        )
    if not np.abs(values).max(initial=0.0) <= LARGEST:
        raise InvalidInput(
            f"kernel {shown(kernel)} returned values that are not finite, or too large; repair it or its parameters"
        )
    return values


def diagonal(kernel: Kernel, X: Array) -> Array:
    """k(x, x) for each row of X, checked to be finite and not negative."""
    values = _evaluated(kernel, kernel.diag, X)
    if values.shape != (len(X),):
        raise InvalidInput(f"kernel.diag(X) must return shape {(len(X),)}, got {values.shape} from {shown(kernel)}")
    if not values.max(initial=0.0) <= LARGEST or values.min(initial=0.0) < 0:
        raise InvalidInput(f"kernel {shown(kernel)} must have a finite diagonal k(x,x) ≥ 0; repair the kernel")
    return values


def _evaluated(kernel: Kernel, function: Any, *points: Array) -> Array:
    """Call the kernel; InvalidInput if it fails or returns anything but real numbers."""
    try:
        return floats("a kernel must return numbers", function(*points))
    except (MisspecError, MemoryError):
        raise
    except Exception as error:
        raise InvalidInput(
            f"kernel {shown(kernel)} failed on points of dimension {points[0].shape[1]} ({type(error).__name__}: "
            f"{short(error)}); the length scales of an anisotropic kernel must match the dimension"
        ) from error


def check_bounded(kernel: Kernel, X: Array, what: str = "the domain") -> Array:
    """k(x, x) for each row of X; InvalidInput with the two remedies unless all are at most 1."""
    values = diagonal(kernel, X)
    largest = float(values.max(initial=0.0))
    if largest > 1 + SLACK:
        raise InvalidInput(
            f"k(x,x) must be at most 1 on {what}, the largest is {largest:.6g} at x = {X[int(values.argmax())]}. "
            f"Either scale the inputs or the kernel (ConstantKernel({1 / largest:.3g}) * kernel), "
            f"and then scale norm_bound by {math.sqrt(largest):.3g}, since the norm of the same f grows by that"
        )
    return values


def within_one(kernel: Any, X: Array) -> bool:
    """Whether X is finite, of allowed size, and has k(x,x) ≤ 1: `check_bounded` as a quick yes or no."""
    if _is(kernel, "DotProduct"):  # NaN and infinity are not at most 1 either
        return bool(np.einsum("nd,nd->n", X, X).max() + kernel.sigma_0**2 <= 1 + SLACK)
    return bool(np.abs(X).max() <= LARGEST and diagonal(kernel, X).max() <= 1 + SLACK)


def check(kernel: Any, X: Array) -> None:
    """Try the kernel on a sample of X: right shapes, finite, symmetric, diag as promised, positive semidefinite."""
    if not isinstance(kernel, Kernel):
        raise InvalidInput(f"a kernel has __call__(X, Z) and diag(X), like scikit-learn's; got {type(kernel).__name__}")
    rows = np.unique(np.linspace(0, len(X) - 1, SAMPLE).astype(int))
    sample = X[rows]
    K, reverse = cross(kernel, sample, sample.copy()), cross(kernel, sample[::-1], sample)
    diag = diagonal(kernel, sample)
    scale = max(1.0, float(np.abs(K).max()))
    if np.abs(reverse[::-1] - K.T).max() > 1e-8 * scale or np.abs(K - K.T).max() > 1e-8 * scale:
        raise InvalidInput(f"kernel {shown(kernel)} is not symmetric: k(x,z) differs from k(z,x); repair the kernel")
    if np.abs(np.diag(K) - diag).max() > 1e-8 * scale:
        raise InvalidInput(
            f"kernel {shown(kernel)} has k(x,x) different from diag(x); "
            "if it has a WhiteKernel part, drop it: noise belongs in Model(noise=…)"
        )
    if float(np.linalg.eigvalsh((K + K.T) / 2)[0]) < -1e-7 * scale * len(sample):
        raise InvalidInput(f"kernel {shown(kernel)} is not positive semidefinite on the domain; choose another kernel")


def gradient(kernel: Kernel, X: Array, Z: Array) -> Array:
    """∂k(x, z)/∂x, shape (n, m, d): analytic for the common kernels of scikit-learn, central differences otherwise."""
    return cross_with_gradient(kernel, X, Z)[1]


def cross_with_gradient(kernel: Any, X: Array, Z: Array) -> tuple[Array, Array]:
    """k(X, Z) and ∂k(x, z)/∂x, shapes (n, m) and (n, m, d); for RBF and Matérn kernels in one pass."""
    if hasattr(kernel, "with_gradient"):
        values, slopes = kernel.with_gradient(X, Z)
        return np.asarray(values), np.asarray(slopes)
    if _is(kernel, "Sum", "Product"):
        (K1, dK1), (K2, dK2) = (cross_with_gradient(part, X, Z) for part in (kernel.k1, kernel.k2))
        if _is(kernel, "Sum"):
            return K1 + K2, dK1 + dK2
        return K1 * K2, dK1 * K2[:, :, None] + dK2 * K1[:, :, None]
    if _is(kernel, "RBF", "Matern"):
        scale, nu = np.asarray(kernel.length_scale, dtype=np.float64), float(getattr(kernel, "nu", math.inf))
        scaled = (X[:, None, :] - Z[None, :, :]) / scale
        r = np.sqrt(np.einsum("nmd,nmd->nm", scaled, scaled))
        values, slope = _matern(r, nu)
        scaled *= slope[:, :, None]
        return cross(kernel, X, Z) if values is None else values, scaled / scale
    K, shape = cross(kernel, X, Z), (len(X), len(Z), X.shape[1])
    if _is(kernel, "ConstantKernel"):
        return K, np.zeros(shape)
    if _is(kernel, "DotProduct"):
        return K, np.broadcast_to(Z[None, :, :], shape).copy()
    return K, _differences(lambda P: cross(kernel, P, Z), X)


def _matern(r: Array, nu: float) -> tuple[Array | None, Array]:
    """k(r) of the Matérn kernel of smoothness ν in the scaled distance r, None if it has no closed form, and k′(r)/r;
    ν = ∞ is the squared exponential.

    From d/ds [s^ν K_ν(s)] = −s^ν K_{ν−1}(s), s = √(2ν) r. At r = 0 a kernel with ν ≤ ½ has a kink; 0 is returned there.
    """
    if nu == math.inf:
        values = np.exp(-0.5 * r * r)
        return values, -values
    s = math.sqrt(2 * nu) * r
    decay = np.exp(-s)
    if nu == 0.5:
        return decay, np.where(r > 0, -decay / np.where(r > 0, r, 1.0), 0.0)
    if nu == 1.5:
        return (1.0 + s) * decay, -3.0 * decay
    if nu == 2.5:
        return (1.0 + s + s * s / 3.0) * decay, -(5.0 / 3.0) * (1.0 + s) * decay
    from scipy.special import gamma, kv

    inside = np.maximum(s, 1e-8)
    slope = -(2.0 ** (1 - nu) / gamma(nu)) * 2 * nu * inside ** (nu - 1) * kv(nu - 1, inside)
    return None, np.where(s > 0, slope, slope if nu > 1 else 0.0)


def diagonal_gradient(kernel: Any, X: Array) -> Array:
    """∂k(x, x)/∂x, shape (n, d)."""
    constant = _is(kernel, "RBF", "Matern", "ConstantKernel", "RationalQuadratic")
    if constant or getattr(kernel, "stationary", False):
        return np.zeros_like(X)
    if _is(kernel, "Sum", "Product"):
        first, second = diagonal_gradient(kernel.k1, X), diagonal_gradient(kernel.k2, X)
        if _is(kernel, "Sum"):
            return first + second
        return first * diagonal(kernel.k2, X)[:, None] + second * diagonal(kernel.k1, X)[:, None]
    if _is(kernel, "DotProduct"):
        return 2.0 * X
    return _differences(lambda P: diagonal(kernel, P)[:, None], X)[:, 0, :]


def _differences(function: Any, X: Array, step: float = 1e-5) -> Array:
    """Central differences in one batch: function maps (n·2d, d) points to (n·2d, m) values."""
    n, d = X.shape
    h = step * np.maximum(1.0, np.abs(X))
    moves = np.eye(d)[None, :, :] * h[:, :, None]  # (n, d, d): one coordinate moved at a time
    high, low = (X[:, None, :] + moves).reshape(-1, d), (X[:, None, :] - moves).reshape(-1, d)
    values = function(np.concatenate([high, low]))
    slopes = (values[: n * d] - values[n * d :]).reshape(n, d, -1) / (2 * h[:, :, None])
    return cast(Array, np.ascontiguousarray(np.swapaxes(slopes, 1, 2)))


def _is(kernel: Any, *names: str) -> bool:
    """Whether this is scikit-learn's kernel of one of these names, and not a subclass, which may compute anything."""
    kind = type(kernel)
    return kind.__module__ == "sklearn.gaussian_process.kernels" and kind.__name__ in names


def rank(kernel: Any, dimension: int) -> int | None:
    """The number of features of a kernel that is known to have finitely many (linear ones), else None."""
    if _is(kernel, "DotProduct"):
        return dimension + (float(kernel.sigma_0) != 0.0)
    if _is(kernel, "ConstantKernel"):
        return 1
    if _is(kernel, "Sum", "Product"):
        first, second = rank(kernel.k1, dimension), rank(kernel.k2, dimension)
        if first is not None and second is not None:
            return first + second if _is(kernel, "Sum") else first * second
    return None


class Affine(NamedTuple):
    """Features φ(x) = Mᵀx + m of a linear kernel, k(x, z) = φ(x)·φ(z). M = None means φ(x) = x."""

    M: Array | None  # (d, r)
    m: Array  # (r,)

    def __call__(self, X: Array) -> Array:
        """φ at the rows of X, shape (n, r)."""
        return X if self.M is None else X @ self.M + self.m

    def slopes(self, n: int) -> Array:
        """∂φ/∂x at n points, shape (r, n, d)."""
        M = np.eye(len(self.m)) if self.M is None else self.M
        return np.ascontiguousarray(np.broadcast_to(M.T[:, None, :], (M.shape[1], n, M.shape[0])))


def affine(kernel: Any, dimension: int) -> Affine | None:
    """The features of a linear kernel (DotProduct, constants, their sums and multiples); None for any other."""
    if _is(kernel, "DotProduct"):
        origin = float(kernel.sigma_0)
        if origin == 0.0:
            return Affine(None, np.zeros(dimension))
        return Affine(np.eye(dimension, dimension + 1), origin * np.eye(dimension + 1)[dimension])
    if _is(kernel, "ConstantKernel"):
        return Affine(np.zeros((dimension, 1)), np.full(1, math.sqrt(kernel.constant_value)))
    if _is(kernel, "Sum", "Product"):
        parts = [part for part in (affine(kernel.k1, dimension), affine(kernel.k2, dimension)) if part is not None]
        if len(parts) < 2:
            return None
        full = [(np.eye(dimension) if part.M is None else part.M, part.m) for part in parts]
        if _is(kernel, "Sum"):
            return Affine(np.concatenate([M for M, _ in full], axis=1), np.concatenate([m for _, m in full]))
        for (M, m), (constant, factor) in (full, full[::-1]):
            if constant.shape[1] == 1 and not constant.any():
                return Affine(M * factor[0], m * factor[0])
    return None


def features(kernel: Kernel, X: Array, tolerance: float = 1e-10) -> tuple[Array, Array]:
    """Φ of shape (N, r) with ΦΦᵀ ≈ k(X, X), and the residuals k(x,x) − ‖Φ(x)‖² ≤ tolerance."""
    Phi, _ = pivoted(kernel, X, tolerance)
    return Phi, np.maximum(diagonal(kernel, X) - np.einsum("nr,nr->n", Phi, Phi), 0.0)


def pivoted(kernel: Kernel, X: Array, tolerance: float, most: int | None = None) -> tuple[Array, NDArray[np.intp]]:
    """Φ of shape (N, r) with ΦΦᵀ ≈ k(X, X), and the r pivots: Φ[pivots] is lower triangular. most: the largest r.

    A Cholesky factorisation with complete pivoting, stopped at the tolerance: by LAPACK while the whole matrix fits in
    some hundred megabytes, otherwise column by column.
    """
    N = len(X)
    most = N if most is None else min(N, most)
    if N <= 4000:
        from scipy.linalg import lapack

        factor, pivots, r, _ = lapack.dpstrf(cross(kernel, X, X), lower=1, tol=tolerance)
        order, r = np.argsort(pivots - 1), min(r, most)
        return np.tril(factor)[:, :r][order], (pivots[:r] - 1).astype(np.intp)
    rows, residual = np.empty((64, N)), diagonal(kernel, X).copy()
    chosen: list[int] = []
    while len(chosen) < most and residual.max() > tolerance:
        i, r = int(residual.argmax()), len(chosen)
        if r == len(rows):
            rows = np.concatenate([rows, np.empty_like(rows)])
        rows[r] = (cross(kernel, X[i : i + 1], X)[0] - rows[:r, i] @ rows[:r]) / math.sqrt(residual[i])
        residual -= rows[r] * rows[r]
        chosen.append(i)
    return np.ascontiguousarray(rows[: len(chosen)].T), np.array(chosen, dtype=np.intp)


# -- length scales -----------------------------------------------------------------------------------------------------


def with_length_scales_times(kernel: Any, factor: float) -> Any:
    """The kernel, which has `get_params`, with all its length scales multiplied by `factor`."""
    given = kernel.get_params(deep=False)
    parts = {name: value for name, value in given.items() if hasattr(value, "get_params")}
    changed = {name: with_length_scales_times(part, factor) for name, part in parts.items()}
    if "length_scale" in given:
        changed["length_scale"] = np.multiply(given["length_scale"], factor).tolist()
    return type(kernel)(**{**given, **changed})


def length_scale(kernel: Any) -> float:
    """The kernel's length scale; the geometric mean if it has several."""
    scales = [np.ravel(value) for value in _inside(kernel, "length_scale")]
    if not scales:
        raise InvalidInput(
            f"expected a kernel with a length scale, as RBF(0.2) of scikit-learn has; got {shown(kernel)}. "
            "Use GPUCB or LinUCB for this kernel"
        )
    return float(np.exp(np.log(np.concatenate(scales)).mean()))


def smoothness(kernel: Any) -> float:
    """The smallest ν of the Matérn kernels inside; ∞ if there are none."""
    return min((float(value) for value in _inside(kernel, "nu")), default=math.inf)


def _inside(kernel: Any, name: str) -> list[Any]:
    """The values of a parameter in all parts of a kernel."""
    known = kernel.get_params() if hasattr(kernel, "get_params") else {}
    return [value for key, value in known.items() if key.split("__")[-1] == name]
