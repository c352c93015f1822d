"""Bayesian linear regression on r features, one observation or one more feature at a time.

    C, w       posterior covariance and mean of the coefficients                           (r, r), (r,)
    S          Fᵀ diag(n) F/λ, so that C = (I + S)⁻¹; λ‖ζ‖₂² = bᵀSb with b = Cφ, without cancellation  (r, r)
    F          features of the u distinct observed points, with counts n and averages ȳ    (u, r)

When a feature is added, the points observed before may have a component e along it, which their rank-one steps have
missed. Bordering the precision matrix I + Fᵀ diag(n) F/λ with the sufficient statistics puts it right in one more
rank-one step:

    v = Fᵀ(n∘e)/λ,  q = C v,  s = 1 + Σ n e²/λ − v·q,  κ = (v·w − Σ n e ȳ/λ)/s
    C ← [[C + qqᵀ/s, −q/s], [−qᵀ/s, 1/s]],   w ← [w + κq, −κ]

The hot path calls one BLAS only, SciPy's: NumPy brings a second one with threads of its own, and using both is
several times slower than either.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import blas, cho_solve, cholesky, lapack

from misspec.errors import Array


class Regression:
    """Bayesian linear regression on r features: prior N(0, I), noise λ; C, w and log det(I + K/λ)."""

    def __init__(self, regularization: float) -> None:
        self.regularization = regularization
        self._C: Array = np.zeros((0, 0), order="F")  # upper triangle only
        self._S: Array = np.zeros((0, 0), order="F")  # the same
        self.w: Array = np.zeros(0)
        self.log_det = 0.0

    def copy(self) -> Regression:
        twin = Regression(self.regularization)
        twin._C, twin._S = self._C.copy(order="F"), self._S.copy(order="F")
        twin.w, twin.log_det = self.w.copy(), self.log_det
        return twin

    @property
    def gram(self) -> Array:
        """S, both triangles."""
        return np.triu(self._S) + np.triu(self._S, 1).T

    def times(self, phi: Array) -> Array:
        """Cφ for each row φ, shape (n, r)."""
        return np.asarray(blas.dsymm(1.0, self._C, phi.T).T) if phi.size else np.zeros_like(phi)

    def add(self, phi: Array, y: float) -> tuple[Array, float, float]:
        """Observe y at φ. Returns h = Cφ before, the factor 1/(λ + φᵀCφ), and y minus the mean before."""
        if not len(phi):
            return phi, 1.0 / self.regularization, y
        h = blas.dsymv(1.0, self._C, phi)
        seen = float(phi @ h)
        factor = 1.0 / (self.regularization + seen)
        surprise = y - float(phi @ self.w)
        self._C = blas.dsyr(-factor, h, a=self._C, overwrite_a=1)
        self._S = blas.dsyr(1.0 / self.regularization, phi, a=self._S, overwrite_a=1)
        self.w += (factor * surprise) * h
        self.log_det += math.log1p(seen / self.regularization)
        return h, factor, surprise

    def grow(self, F: Array, counts: Array, averages: Array, e: Array) -> None:
        """Border by one feature, along which the distinct points have components e."""
        r = len(self.w)
        C = np.zeros((r + 1, r + 1), order="F")
        C[:r, :r] = self._C
        S = np.zeros((r + 1, r + 1), order="F")
        S[:r, :r] = self._S
        self._S = S
        ne = counts * e / self.regularization
        if not ne.any():
            C[r, r] = 1.0
            self._C, self.w = C, np.append(self.w, 0.0)
            return
        v = ne @ F[:, :r]
        S[:r, r], S[r, r] = v, float(ne @ e)
        q = blas.dsymv(1.0, self._C, v) if r else v
        s = max(1.0, 1.0 + float(ne @ e) - float(v @ q))
        kappa = (float(v @ self.w) - float(ne @ averages)) / s
        direction = np.append(q, -1.0)
        self._C = blas.dsyr(1.0 / s, direction, a=C, overwrite_a=1)
        self.w = np.append(self.w, 0.0) + kappa * direction
        self.log_det += math.log(s)

    def refresh(self, F: Array, counts: Array, averages: Array) -> None:
        """Recompute from sufficient statistics."""
        if not F.shape[1]:
            return
        scaled = F * np.sqrt(counts / self.regularization)[:, None]
        A = scaled.T @ scaled
        self._S = np.asfortranarray(A.copy())
        A[np.diag_indices_from(A)] += 1.0
        factor = cholesky(A, lower=True, overwrite_a=True, check_finite=False)
        inverse, _ = lapack.dtrtri(factor, lower=1)
        self._C = np.asfortranarray(inverse.T @ inverse)
        self.w = cho_solve((factor, True), F.T @ (counts * averages) / self.regularization, check_finite=False)
        self.log_det = 2.0 * float(np.log(np.diag(factor)).sum())
