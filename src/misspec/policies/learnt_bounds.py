"""Learnt regret coefficients: balancing bases whose regret bounds are not known (ED²RB).

Dann, Gentile & Pacchiano, *Data-driven online model selection with regret guarantees* (AISTATS 2024). With û_j = J_j
the rewards and n_j = N_j the rounds of base j, after a round of base i

    d̂_i ← max{d_min, √n_i·(max_j [û_j/n_j − h_j] − û_i/n_i − h_i)}          what its regret proves of its coefficient
    φ_i ← clip(d̂_i√n_i; φ_i, 2φ_i)                                          its potential

and the base with the smallest φ plays. No base is dropped: one that loses is played less and less, and comes back if
the others turn out worse. `theory.learnt_bound` says what regret is.
"""

from __future__ import annotations

import math

from misspec.policies.bases import Ledger
from misspec.theory.balancing import LEAST

DOUBLED = 500  # pending rounds that can double a potential: more would overflow, and decide nothing


class Learnt:
    """d̂ (`coefficients`) and φ (`potentials`) of each base, in units of the noise σ; d_min is `LEAST` of these."""

    def __init__(self, bases: int) -> None:
        self.coefficients = [LEAST] * bases
        self.potentials = [LEAST] * bases

    def learn(self, i: int, ledger: Ledger, noise: float) -> None:
        """A round of base i counts from now on; the ledger has h of every base that has played."""
        N, J, h = ledger.N, ledger.J, ledger.h
        root = math.sqrt(N[i])
        best = max(J[j] / N[j] - h[j] for j in h)
        self.coefficients[i] = max(LEAST, root * (best - J[i] / N[i] - h[i]) / noise)
        self.potentials[i] = min(max(self.coefficients[i] * root, self.potentials[i]), 2.0 * self.potentials[i])

    def potential(self, i: int, ledger: Ledger) -> float:
        """φ_i as it will be once pending rounds count, if they leave d̂_i as it is: so that batches are divided."""
        plays, now = ledger.plays(i), self.potentials[i]
        doubled = 2.0 ** min(plays - ledger.N[i], DOUBLED) * now
        return max(now, min(self.coefficients[i] * math.sqrt(plays), doubled))
