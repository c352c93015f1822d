"""Bayesian linear regression on r features, one observation or one more feature at a time.

    C, w       posterior covariance and mean of the coefficients                           (r, r), (r,)
    S, p       Fᵀ diag(n) F/λ and Fᵀ(n∘ȳ)/λ, so that C = (I + S)⁻¹ and w = Cp; λ‖ζ‖₂² = bᵀSb with b = Cφ,
               without cancellation                                                        (r, r), (r,)
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
from misspec.posterior.table import larger

CANCELS = 1e-3  # the least share of λ that an observation leaves to be taken back by a step


class Regression:
    """Bayesian linear regression on r features: prior N(0, I), noise λ; C, w and log det(I + K/λ)."""

    def __init__(self, regularization: float, rank: int = 0) -> None:
        self.regularization = regularization
        self._C: Array = np.eye(rank, order="F")  # upper triangle only
        self._S: Array = np.zeros((rank, rank), order="F")  # upper triangle only
        self._p: Array = np.zeros(rank)
        self.w: Array = np.zeros(rank)
        self.log_det = 0.0

    def gram_times(self, b: Array) -> Array:
        """Sb for each row b, shape (n, r)."""
        return symmetric_times(self._S, b)

    def times(self, phi: Array) -> Array:
        """Cφ for each row φ."""
        return symmetric_times(self._C, phi)

    def root_times(self, z: Array) -> Array:
        """Uᵀz with UᵀU = C: a sample of the coefficients' deviation, for standard normal z."""
        return np.asarray(cholesky(self._C, lower=False, check_finite=False).T @ z)

    def add(self, phi: Array, y: float, precision: float = 1.0) -> tuple[Array, float, float]:
        """Observe y at φ, with noise λ/precision. Returns h = Cφ before, the factor 1/(λ/precision + φᵀCφ), and y
        minus the mean before."""
        h, factor = self.expect(phi, precision)
        if not len(phi):
            return h, factor, y
        surprise = y - float(phi @ self.w)
        self._p += (precision * y / self.regularization) * phi
        self.w += (factor * surprise) * h
        return h, factor, surprise

    def expect(self, phi: Array, precision: float = 1.0) -> tuple[Array, float]:
        """Observe something at φ: C changes, w does not. Returns h = Cφ before, and the factor of `add`."""
        noise = self.regularization / precision
        if not len(phi):
            return phi, 1.0 / noise
        h = blas.dsymv(1.0, self._C, phi)
        seen = float(phi @ h)
        factor = 1.0 / (noise + seen)
        self._C = blas.dsyr(-factor, h, a=self._C, overwrite_a=1)
        self._S = blas.dsyr(1.0 / noise, phi, a=self._S, overwrite_a=1)
        self.log_det += math.log1p(seen / noise)
        return h, factor

    def gather(self, Phi: Array, y: Array, precision: Array | None) -> None:
        """Count y at the rows of Φ in S and p; `renew` takes them into C and w. precision: of each, None for 1."""
        if Phi.shape[1]:
            scaled, y = (Phi, y) if precision is None else (np.sqrt(precision)[:, None] * Phi, precision * y)
            self._S = blas.dsyrk(1.0 / self.regularization, scaled.T, beta=1.0, c=self._S, overwrite_c=1)
            self._p += y @ Phi / self.regularization

    def shift(self, change: Array) -> None:
        """Change p, and w with it: the results observed were others."""
        self._p += change
        self.w += self.times(change[None, :])[0]

    def remove(self, phi: Array) -> tuple[Array, float] | None:
        """Take back what `expect` did. Returns h = Cφ before, and 1/(λ − φᵀCφ); None where that difference cancels, and
        C is recomputed instead."""
        if not len(phi):
            return phi, 1.0 / self.regularization
        h = blas.dsymv(1.0, self._C, phi)
        seen = float(phi @ h)
        self._S = blas.dsyr(-1.0 / self.regularization, phi, a=self._S, overwrite_a=1)
        if seen > (1.0 - CANCELS) * self.regularization:
            self.renew()
            return None
        factor = 1.0 / (self.regularization - seen)
        self._C = blas.dsyr(factor, h, a=self._C, overwrite_a=1)
        self.log_det += math.log1p(-seen / self.regularization)
        return h, factor

    def extend(self) -> None:
        """One more feature, along which nothing that was observed has a component."""
        self._C, self._S = bordered(self._C, 1.0), bordered(self._S)
        self._p, self.w = np.append(self._p, 0.0), np.append(self.w, 0.0)

    def grow(self, F: Array, counts: Array, averages: Array, e: Array) -> None:
        """Border by one feature, along which the distinct points have components e."""
        ne = counts * e / self.regularization
        if not ne.any():
            self.extend()
            return
        r = len(self.w)
        self._p = np.append(self._p, float(ne @ averages))
        v = ne @ F[:, :r]
        self._S = bordered(self._S)
        self._S[:r, r], self._S[r, r] = v, float(ne @ e)
        q = blas.dsymv(1.0, self._C, v) if r else v
        s = max(1.0, 1.0 + float(ne @ e) - float(v @ q))
        kappa = (float(v @ self.w) - float(ne @ averages)) / s
        direction = np.append(q, -1.0)
        self._C = blas.dsyr(1.0 / s, direction, a=bordered(self._C), overwrite_a=1)
        self.w = np.append(self.w, 0.0) + kappa * direction
        self.log_det += math.log(s)

    def refresh(self, F: Array, counts: Array, averages: Array) -> None:
        if not F.shape[1]:
            return
        scaled = F * np.sqrt(counts / self.regularization)[:, None]
        self._S = np.asfortranarray(scaled.T @ scaled)
        self._p = F.T @ (counts * averages) / self.regularization
        self.renew()

    def renew(self) -> None:
        """Recompute C and w from S and p, whose rounding does not build up: what it costs does not depend on t."""
        if not len(self._p):
            return
        A = self._S.copy(order="F")
        A[np.diag_indices_from(A)] += 1.0
        factor = cholesky(A, lower=False, overwrite_a=True, check_finite=False)  # of the upper triangle
        self._C = inverse_of(factor)
        self.w = cho_solve((factor, False), self._p, check_finite=False)
        self.log_det = 2.0 * float(np.log(np.diag(factor)).sum())


class Missed:
    """H, ρ and ρ₂ of the told observations: how much of them a budgeted dictionary misses, `fixed.py`."""

    def __init__(self, rank: int = 0) -> None:
        self._H: Array = np.zeros((rank, rank), order="F")  # upper triangle only
        self.total = 0.0  # ρ
        self.squares = 0.0  # ρ₂

    def extend(self) -> None:
        self._H = bordered(self._H)

    def add(self, Phi: Array, missed: Array, precision: Array | None) -> None:
        """Observations at the rows of Φ."""
        weighted = missed if precision is None else precision * missed
        self.total += float(weighted.sum())
        self.squares += float(weighted @ missed)
        if Phi.shape[1]:
            scaled = np.sqrt(weighted)[:, None] * Phi
            self._H = blas.dsyrk(1.0, scaled.T, beta=1.0, c=self._H, overwrite_c=1)

    def times(self, b: Array) -> Array:
        """Hb for each row b."""
        return symmetric_times(self._H, b)


def bordered(A: Array, diagonal: float = 0.0, more: int = 1) -> Array:
    """A with so many more rows and columns, zero except on the diagonal."""
    r = len(A)
    wider = larger(A, r + more, r + more, order="F")
    if diagonal:
        wider[range(r, r + more), range(r, r + more)] = diagonal
    return wider


def inverse_of(factor: Array) -> Array:
    """(UᵀU)⁻¹ of an upper triangular factor U."""
    inverse, _ = lapack.dtrtri(factor, lower=0)
    return np.asfortranarray(inverse @ inverse.T)


def symmetric_times(A: Array, rows: Array) -> Array:
    """A times each row, of a symmetric A whose upper triangle is given, shape (n, r)."""
    return np.asarray(blas.dsymm(1.0, A, rows.T).T) if rows.size else np.zeros_like(rows)
