"""Phased elimination with a G-optimal design (Lattimore, Szepesvári & Weisz 2020), which Algorithm 2 generalises."""

from __future__ import annotations

import dataclasses
import math
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from misspec import kernels, theory
from misspec.comparators.elimination import ArmElimination, Estimates
from misspec.domains import Domain
from misspec.errors import Array, number, whole
from misspec.model import Model
from misspec.policies.core.fields import field_of
from misspec.policies.core.registry import Common

ROUNDING = 1e-9  # m·ρ(a) this little above a whole number is that number


class PhasedElimination(ArmElimination):
    """Linear bandits: each phase measures a few arms that span what is active, and eliminates by least squares.

        {a : max_b ⟨θ̂, b − a⟩ ≤ 2σ√((4d/m) ln(1/α))},   θ̂ = G⁻¹ Σ_s a_s y_s,   G = Σ_a u(a) a aᵀ

    Misspecified by an unknown ε it loses O(ε√d T ln T) beside O(σ√(dT ln(kT))) (`theory.phased_elimination_bound`).

    horizon     T, evaluations in all: the source's n
    alpha       α, how likely one bound of one arm may fail; by default δ/(2kE) for k arms and at most E phases, so that
                all bounds hold with probability 1 − δ. The source takes 1/(kT)
    tolerance   variance that the features may miss

    Arms are features φ(x) with φ(x)·φ(z) = k(x, z): those of a linear kernel, which is the source's setting. For other
    kernels d is the number of features that the domain has to within `tolerance`; that is beyond the source, which
    then sees a misfit of at most B√tolerance, and takes d ln ln d rounds before it eliminates for the first time.

    Reference: *Learning with good feature representations in bandits and in RL with a generative model*, Algorithm 1.
    """

    abilities = dataclasses.replace(ArmElimination.abilities, draws=False)

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        horizon: int,
        alpha: float | None = None,
        tolerance: float = 1e-8,
        **settings: Unpack[Common],
    ) -> None:
        super().__init__(domain, model, horizon=horizon, **settings)
        self.tolerance = number("tolerance", tolerance, above=0)
        self.dimension = kernels.pivoted(model.kernel, self._arms.encoded, self.tolerance)[0].shape[1]  # d
        least = theory.phased_elimination_alpha(model, self.horizon, self.dimension, self.field.size)
        self.alpha = least if alpha is None else number("alpha (α)", alpha, above=0, below=1)
        if self.alpha > least:
            self._without.append(f"α = {self.alpha:.3g} is above the {least:.3g} at which all bounds hold together")
        self._m = 0
        self._start()

    @classmethod
    def as_in_paper(
        cls, domain: Domain, model: Model, *, horizon: int, **settings: Unpack[Common]
    ) -> PhasedElimination:
        """Algorithm 1 with the α = 1/(kT) of its theorem, which is about expected regret."""
        k = max(1, field_of(domain, 0, 0.0).size)
        return cls(domain, model, horizon=horizon, alpha=1.0 / (k * whole("horizon", horizon, at_least=1)), **settings)

    # -- Algorithm 1 -------------------------------------------------------------------------------------------

    def _plan(self) -> int:
        self._m = 2 * self._m if self._m else theory.core_set(self.dimension)  # 1, 7   m = 4d ln ln d + 16, then 2m
        encoded = self._arms.encoded[self.active]
        features, pivots = kernels.pivoted(self.model.kernel, encoded, self.tolerance)
        missed = kernels.diagonal(self.model.kernel, encoded) - np.einsum("nr,nr->n", features, features)
        self._missed = self.model.norm_bound * math.sqrt(max(float(missed.max()), 0.0))
        self._Q = np.linalg.qr(features)[0]  # least squares and designs are the same in any basis; in this one, stable
        rho = near_optimal_design(self._Q, pivots)  # 2   g(ρ) ≤ 2d on few arms
        self._u = np.ceil(self._m * rho - ROUNDING).astype(np.intp)  # 3   u(a) = ⌈m ρ(a)⌉
        self._sequence = np.repeat(self.active, self._u)  # 4   each arm u(a) times
        return len(self._sequence)

    def _arm(self, slot: int) -> int:
        return int(self._sequence[slot])

    def _estimate(self, arms: NDArray[np.intp], y: Array) -> Estimates:
        Q, log = self._Q, math.log(1.0 / self.alpha)
        sums = np.bincount(np.searchsorted(self.active, arms), y, minlength=len(Q))
        G = (Q.T * self._u) @ Q
        values = Q @ np.linalg.solve(G, Q.T @ sums)  # 5   θ̂ = G⁻¹ Σ a_s y_s
        norms = np.einsum("nr,rn->n", Q, np.linalg.solve(G, Q.T))  # ‖a‖² in G⁻¹, at most 2d/m
        halves = self.model.noise * np.sqrt(2.0 * norms * log) + self._missed * (1.0 + np.sqrt(len(y) * norms))
        slack = 2.0 * self.model.noise * math.sqrt(4.0 * self.dimension / self._m * log)  # 6   what may stay
        return Estimates(values, halves, slack)


def near_optimal_design(Q: Array, start: NDArray[np.intp]) -> Array:
    """ρ over the n rows of Q, shape (n, d), with g(ρ) = max_a ‖a‖² in (Σ_a ρ(a) a aᵀ)⁻¹ at most 2d, by Frank–Wolfe.

    start: d rows that span the others, which pivots of a factorisation do well. The arm with the largest norm g gets
    the share (g/d − 1)/(g − 1) that raises log det most (Fedorov 1972; Todd 2016): O(d ln ln d) steps, an arm each.
    """
    d = Q.shape[1]
    rho = np.zeros(len(Q))
    if d == 0:  # all that is left has no features
        rho[0] = 1.0
        return rho
    rho[start] = 1.0 / d
    while True:
        norms = np.einsum("nd,dn->n", Q, np.linalg.solve((Q.T * rho) @ Q, Q.T))
        a = int(norms.argmax())
        g = float(norms[a])
        if g <= 2.0 * d + ROUNDING:
            return rho
        share = (g / d - 1.0) / (g - 1.0)
        rho *= 1.0 - share
        rho[a] += share
