"""A kernel for mixed parameters: a product over the parameters, one length scale each, and an additive part.

    k(x, z) = (1 − a)·∏_j κ(r_j) + a·(1/d)·Σ_j κ(r_j),      r_j = ‖x_j − z_j‖/ℓ_j,   k(x, x) = 1

x_j are the columns of the encoding that belong to parameter j: one for a number, several for a choice (one-hot/√2, so
that two options are at distance 1). κ is the Matérn profile of smoothness 5/2. The product lets parameters interact,
the sum does not.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from misspec.errors import Array, InvalidInput, listed, number, one_of, shown, vector

ROOT5 = math.sqrt(5.0)


class ProductMatern:
    """k as above, with ℓ = `length_scale`, one per parameter, and a = `additive` in [0, 1].

    columns: for each parameter (start, stop), its columns of the encoding; one column each by default.
    """

    stationary = True  # read by `kernels.diagonal_gradient`: k(x, x) is constant

    def __init__(
        self, length_scale: ArrayLike, columns: Sequence[tuple[int, int]] | None = None, additive: float = 0.0
    ) -> None:
        self.length_scale: Array = vector("length_scale", length_scale)
        if not len(self.length_scale):
            raise InvalidInput("length_scale must hold at least one number, got none")
        if not (self.length_scale > 0).all():
            raise InvalidInput(f"length scales must be above 0, got {self.length_scale.min():g}")
        pairs = [(j, j + 1) for j in range(len(self.length_scale))] if columns is None else listed("columns", columns)
        self.columns = tuple(_pair(pair) for pair in pairs)
        if len(self.columns) != len(self.length_scale):
            raise InvalidInput(
                f"there must be one length scale per parameter, {len(self.columns)} of them, "
                f"got {len(self.length_scale)}"
            )
        owners = [i for start, stop in self.columns for i in range(start, stop)]
        if sorted(owners) != list(range(len(owners))):
            raise InvalidInput(f"columns 0, 1, … of the encoding must belong to one parameter each, got {self.columns}")
        self._order = np.array(owners)  # columns grouped by parameter
        self._sizes = np.array([stop - start for start, stop in self.columns])
        self._first = np.cumsum(self._sizes) - self._sizes
        self.additive = number("additive", additive, at_least=0)
        if self.additive > 1:
            raise InvalidInput(f"additive is a share, at most 1, got {shown(additive)}")
        self.length_scale.flags.writeable = False

    def __repr__(self) -> str:
        scales = ", ".join(f"{scale:.3g}" for scale in self.length_scale)
        return f"ProductMatern([{scales}]{f', additive={self.additive:.3g}' if self.additive else ''})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002  # as scikit-learn's kernels have it
        """The arguments of the constructor."""
        return {"length_scale": self.length_scale, "columns": self.columns, "additive": self.additive}

    def __call__(self, X: Array, Z: Array, /) -> Array:
        self._check(X)
        out, work = np.empty((2, len(X), len(Z)))
        a, product, total = self.additive, np.ones(out.shape), np.zeros(out.shape)
        for at, scale in zip(self.columns, self.length_scale.tolist(), strict=True):
            values = profile(distance(X, Z, at), scale, out=out, work=work)
            product *= values
            if a:
                total += values
        return (1.0 - a) * product + (a / len(self.columns)) * total if a else product

    def diag(self, X: Array, /) -> Array:
        return np.ones(len(X))

    def with_gradient(self, X: Array, Z: Array) -> tuple[Array, Array]:
        """k(X, Z) and ∂k(x, z)/∂x, shapes (n, m) and (n, m, d)."""
        self._check(X)
        (values,), (gradient,) = with_gradients([self], X, Z)
        return values, gradient.transpose(1, 2, 0)

    def _check(self, X: Array) -> None:
        columns = len(self._order)
        if X.shape[1] != columns:
            raise InvalidInput(
                f"{shown(self)} is for {columns} column{'s' * (columns > 1)} of an encoding, got points of "
                f"dimension {X.shape[1]}; product_kernel(domain) makes one for a domain"
            )


def with_gradients(kernels: Sequence[ProductMatern], X: Array, Z: Array) -> tuple[Array, Array]:
    """k(X, Z) and ∂k(x, z)/∂x of K kernels on the same columns in one pass, shapes (K, n, m) and (K, d, n, m)."""
    order, sizes, first = kernels[0]._order, kernels[0]._sizes, kernels[0]._first
    a, d = np.array([kernel.additive for kernel in kernels])[:, None, None], len(sizes)
    scales = np.array([kernel.length_scale for kernel in kernels])[:, :, None, None]
    differences = X.T[order, :, None] - Z.T[order, None, :]  # (columns, n, m)
    s = np.sqrt(np.add.reduceat(differences * differences, first, axis=0)) * (ROOT5 / scales)  # (K, parameters, n, m)
    polynomial, decay = (s / 3.0 + 1.0) * s + 1.0, np.exp(-s)
    profiles = polynomial * decay
    product = profiles.prod(axis=1)
    # κ′(r)/(rκ) times the product, and κ′(r)/r for the sum; dividing by κ itself could underflow
    slope = (s + 1.0) * (-(5.0 / 3.0) / scales**2)
    slope *= ((1.0 - a) * product)[:, None] / polynomial + (a / d)[:, None] * decay
    gradient = np.empty((len(s), *differences.shape))
    gradient[:, order] = np.repeat(slope, sizes, axis=1) * differences
    return (1.0 - a) * product + (a / d) * profiles.sum(axis=1), gradient


def _pair(given: Any) -> tuple[int, int]:
    try:
        start, stop = (operator.index(end) for end in given)
    except (TypeError, ValueError):
        start = stop = 0
    if not 0 <= start < stop:
        raise InvalidInput(
            f"columns must be pairs (first, after the last) of whole numbers, one per parameter, got {shown(given)}"
        )
    return start, stop


def distance(X: Array, Z: Array, at: tuple[int, int]) -> Array:
    """‖x_j − z_j‖ for one parameter, shape (n, m)."""
    start, stop = at
    if stop - start == 1:
        apart = X[:, start : start + 1] - Z[:, start]
        return np.asarray(np.abs(apart, out=apart))
    from scipy.spatial.distance import cdist  # slow to import, and not always needed

    return np.asarray(cdist(X[:, start:stop], Z[:, start:stop]))


def profile(r: Array, scale: float, *, out: Array | None = None, work: Array | None = None) -> Array:
    """κ(r/scale). out, work: arrays of the same shape to write into."""
    s = np.multiply(r, ROOT5 / scale, out=work)
    values = np.multiply(s, 1.0 / 3.0, out=out)
    values += 1.0
    values *= s
    values += 1.0
    np.negative(s, out=s)
    values *= np.exp(s, out=s)
    return values


def product_kernel(
    domain: Any, length_scale: ArrayLike = 0.5, *, per: str = "parameter", additive: float = 0.0
) -> ProductMatern:
    """A ProductMatern for a domain.

    per: "parameter" (one length scale per parameter, so all options of a choice are equally far apart) or "choice"
    (also one per option, so that options can be more or less alike). length_scale: one for all, or one for each.
    """
    one_of("per", per, ("parameter", "choice"))
    if not hasattr(domain, "columns"):
        raise InvalidInput(f"domain must be a Finite, a Box or a Space, got {type(domain).__name__}")
    pairs = [(columns.start, columns.stop) for columns in domain.columns]
    if per == "choice":
        pairs = [(i, i + 1) for start, stop in pairs for i in range(start, stop)]
    scales = vector("length_scale", length_scale)
    return ProductMatern(np.repeat(scales, len(pairs)) if len(scales) == 1 else scales, pairs, additive)
