"""Features of a whole domain, on which a sample of the posterior is a function: what Thompson sampling draws with.

ψ(x) = L_Z⁻¹k_Z(x), Z well-spread points of the domain;  f = ψ·w with w ~ N(0, I) has k up to what Z misses
"""

from __future__ import annotations

from typing import cast

import numpy as np
from scipy.linalg import solve_triangular

from misspec import kernels
from misspec.domains import Box, Finite, Space
from misspec.errors import Array
from misspec.model import Model
from misspec.policies.core.points import Actions
from misspec.search import distinct

FEATURES = 400  # at most, on a box
COVER = 2048  # points of the box that they are chosen from
CHECK = 2048  # others, to measure what they miss


class ArmBasis:
    """ψ over all candidates, ΨΨᵀ = K up to 1e-10. missed: the largest k(x,x) − ‖ψ(x)‖² found."""

    def __init__(self, domain: Finite, model: Model) -> None:
        self._Psi, residual = kernels.features(model.kernel, domain.encoded)
        self.missed = float(residual.max())
        self._row = {x.tobytes(): i for i, x in reversed(list(enumerate(domain.encoded)))}
        self._first = domain.first_alike

    def features(self, encoded: Array) -> Array:
        """ψ at points as the kernel sees them, shape (n, R)."""
        return self._Psi[[self._row[x.tobytes()] for x in encoded]]

    def sample(self, w: Array) -> ArmSample:
        """ψ·w."""
        values = self._Psi @ w
        return ArmSample(values if self._first is None else values[self._first])  # whatever the rounding


class ArmSample:
    """ψ·w, known at the candidates."""

    def __init__(self, over_all: Array) -> None:
        self._values = over_all

    def at(self, actions: Actions) -> Array:
        """At actions."""
        assert actions.rows is not None  # other points are refused
        return self._values[actions.rows]


class BoxBasis:
    """At most 400 pivots of a cover, all of them legal points."""

    def __init__(self, box: Box | Space, model: Model) -> None:
        self._kernel = model.kernel
        X = box.spread(COVER, [0])
        Phi, pivots = kernels.pivoted(self._kernel, X, 1e-10, FEATURES)
        self.Z, self.L = X[pivots], np.ascontiguousarray(Phi[pivots])
        others = box.uniform(CHECK, [1])
        self.missed = max(self._missed(X), self._missed(others))

    def _missed(self, U: Array) -> float:
        psi = self.features(U)
        return max(0.0, float((kernels.diagonal(self._kernel, U) - np.einsum("nr,nr->n", psi, psi)).max()))

    def features(self, encoded: Array) -> Array:
        if not len(encoded):
            return np.zeros((0, len(self.Z)))
        return cast(Array, solve_triangular(self.L, kernels.cross(self._kernel, self.Z, encoded), lower=True).T)

    def sample(self, w: Array) -> BoxSample:
        return BoxSample(self._kernel, self.Z, solve_triangular(self.L, w, lower=True, trans="T"))


class BoxSample:
    """k_Z(x)·a with a = L_Z⁻ᵀw."""

    def __init__(self, kernel: kernels.Kernel, Z: Array, a: Array) -> None:
        self._kernel, self._Z, self._a = kernel, Z, a

    def at(self, actions: Actions) -> Array:
        values = self.values(actions.encoded)
        found = distinct(actions.encoded)
        return values[found.first[found.position]]  # equal points have equal values, whatever the rounding

    def values(self, U: Array) -> Array:
        """At points as the kernel sees them."""
        return np.asarray(kernels.cross(self._kernel, U, self._Z) @ self._a)

    def slopes(self, U: Array) -> tuple[Array, Array]:
        """The same with gradients, shapes (n,) and (n, d)."""
        values, slopes = kernels.cross_with_gradient(self._kernel, U, self._Z)
        return values @ self._a, np.einsum("nrd,r->nd", slopes, self._a)


Basis = ArmBasis | BoxBasis
Sample = ArmSample | BoxSample
