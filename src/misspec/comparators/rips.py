"""RIPS, the robust inverse propensity score estimator (Camilleri, Katz-Samuels & Jamieson 2021), for regret."""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from misspec import kernels
from misspec.comparators.elimination import ArmElimination, Estimates
from misspec.domains import Domain
from misspec.errors import Array, number
from misspec.model import Model
from misspec.policies.core.registry import Common
from misspec.theory.comparators import RIPS_SLACK, rips_length, rips_log

STEPS, ENOUGH = 1000, RIPS_SLACK  # of a design: steps at most, and how near to the best its value must be
TINY = 1e-100  # stands in for the deviation of an arm without features, whose estimates are all 0
AT_ONCE = 2_000_000  # numbers that Catoni's estimator works on at once


class RIPS(ArmElimination):
    """Elimination in an RKHS: a phase draws arms from a design λ, and values them by a robust mean (Catoni's).

        λ ∈ argmin max_x ‖φ(x)‖² in A⁻¹,   A = Σ_x λ_x φ(x)φ(x)ᵀ + γI,   f the value that it reaches
        W(x) = Catoni's mean over the phase of ⟨φ(x), A⁻¹φ(x_s)⟩ y_s

    τ_ℓ rounds, as many as bring W to within ε_ℓ + B√(γf) of the truth, ε_ℓ being halved from phase to phase; then
    {x : max W − W(x) ≤ 2(ε_ℓ + B√(γf))} stays. A misfit of ε, which it need not know, shifts W by at most ε√f more.
    No rounding of the design is needed, so that τ may be far below the number of features (`theory.rips_bound`).

    horizon        T, evaluations in all; γ = 1/T
    accuracy       ε_1; half of `reward_bound` by default, which for rewards within ±1 is the source's ε_ℓ = 2^−ℓ
    reward_bound   on |f* − offset|, which the variance of W grows with, beside the noise; B√max k(x,x) by default,
                   to which a large misfit is added by hand

    This reading of the source: V and X are what is active, W is used as it is (not projected on a linear function),
    λ maximises log det A, whose value is at most the effective dimension tr(A⁻¹Σλφφᵀ), up to a tenth; and
    c₀, c₁ are those of Catoni's estimator: with s² the second moment, it errs by at most s√(2 ln(1/p)/(τ − 2 ln(1/p))).

    Reference: *High-dimensional experimental design and kernel bandits*, Algorithms 1 and 2.
    """

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        horizon: int,
        accuracy: float | None = None,
        reward_bound: float | None = None,
        **settings: Unpack[Common],
    ) -> None:
        super().__init__(domain, model, horizon=horizon, **settings)
        reach = model.norm_bound * math.sqrt(float(self._prior.max()))
        self.reward_bound = reach if reward_bound is None else number("reward_bound", reward_bound, above=0)
        self.accuracy = self.reward_bound / 2.0 if accuracy is None else number("accuracy", accuracy, above=0)
        self._features, missed = kernels.features(model.kernel, self._arms.encoded)
        self._missed = model.norm_bound * math.sqrt(float(missed.max()))  # a misfit too, of rounding
        self._start()

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, *, horizon: int, **settings: Unpack[Common]) -> RIPS:
        """With ε_ℓ = 2^−ℓ."""
        return cls(domain, model, horizon=horizon, accuracy=0.5, **settings)

    # -- Algorithm 2 -------------------------------------------------------------------------------------------

    def _plan(self) -> int:
        phi = self._features[self.active]
        share, self._inverse, self._norms = design(phi, 1.0 / self.horizon)  # λ_ℓ, A⁻¹, ‖φ(x)‖² in A⁻¹
        self._cumulated = np.cumsum(share) / share.sum()
        self._log = rips_log(self.model, self.field.size, self.episode)  # ln(1/p_ℓ)
        self._epsilon = self.accuracy * 2.0 ** (1 - self.episode)  # ε_ℓ
        self._f = float(self._norms.max())
        return rips_length(self.model, self._f, self._epsilon, self._log, self.reward_bound)  # τ_ℓ

    def _arm(self, slot: int) -> int:  # noqa: ARG002  # Algorithm 1: x_1, …, x_τ independent, from λ
        return int(self.active[np.searchsorted(self._cumulated, self._rng.random(), side="right")])

    def _estimate(self, arms: NDArray[np.intp], y: Array) -> Estimates:
        moment = self.reward_bound**2 + self.model.noise**2
        s = np.sqrt(moment * self._norms)  # root of the second moment of ⟨φ(x), A⁻¹φ(x_s)⟩ y_s
        dual, phi = self._features[arms] @ self._inverse, self._features[self.active]
        W, rows = np.empty(len(phi)), max(1, AT_ONCE // len(y))
        for i in range(0, len(phi), rows):
            part = slice(i, i + rows)
            W[part] = catoni((phi[part] @ dual.T) * y, s[part], self._log)
        spread = math.sqrt(2.0 * self._log / (len(y) - 2.0 * self._log))
        bias = self.model.norm_bound / math.sqrt(self.horizon)  # B√γ
        halves = s * spread + (bias + self._missed) * np.sqrt(self._norms) + self._missed
        return Estimates(W, halves, 2.0 * (self._epsilon + bias * math.sqrt(self._f)))


def design(phi: Array, gamma: float) -> tuple[Array, Array, Array]:
    """λ over the rows of Φ that maximises log det A, A = Φᵀ diag(λ) Φ + γI; with A⁻¹, and ‖φ‖² in A⁻¹.

    Multiplicative steps λ ∝ λ‖φ‖², each of which raises it, until max ‖φ‖² ≤ 1.1·Σ λ‖φ‖²; at the maximum they are equal
    on what has weight, and no norm is larger.
    """
    share = np.full(len(phi), 1.0 / len(phi))
    for step in range(STEPS):
        inverse = np.linalg.inv((phi.T * share) @ phi + gamma * np.eye(phi.shape[1]))
        norms = np.einsum("nr,rs,ns->n", phi, inverse, phi, optimize=True)
        value = float(share @ norms)
        if norms.max() <= ENOUGH * value or step == STEPS - 1:  # what is returned belongs together
            break
        share = share * norms / value
    return share, inverse, norms


def catoni(Z: Array, s: Array, log: float) -> Array:
    """Catoni's mean of the rows of Z: the m with Σ ψ(a(Z − m)) = 0, ψ(z) = sign(z) ln(1 + |z| + z²/2).

    s: at least their standard deviations; log: ln(1/p). a is the one that makes the bound of `RIPS` hold. As ψ' ≤ 1 the
    steps m ← m + mean ψ(a(Z − m))/a never overshoot, and ψ' is nearly 1 unless a row is short or wild.
    """
    n = Z.shape[1]
    a = np.sqrt(2.0 * log / (n * (1.0 + 2.0 * log / (n - 2.0 * log)))) / np.maximum(s, TINY)
    m = Z.mean(axis=1)
    for _ in range(STEPS):
        z = (Z - m[:, None]) * a[:, None]
        size = np.abs(z)
        step = (np.sign(z) * np.log1p(size + 0.5 * size * size)).mean(axis=1) / a
        m = m + step
        if (np.abs(step) <= 1e-12 * s).all():
            break
    return np.asarray(m)
