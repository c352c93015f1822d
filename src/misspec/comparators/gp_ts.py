"""GP-TS, Thompson sampling with a guarantee (Chowdhury & Gopalan 2017): a comparator, not from the paper."""

from __future__ import annotations

import dataclasses
from typing import Unpack

from misspec.comparators.igp_ucb import with_ridge
from misspec.domains import Domain
from misspec.model import Model
from misspec.policies.core.registry import Common
from misspec.policies.thompson import ThompsonSampling
from misspec.theory import information_gain


class GPTS(ThompsonSampling):
    """x_t maximises f_t ~ GP(μ_{t−1}, v_t²·k_{t−1}), v_t = B + σ√(2(γ_{t−1} + 1 + ln(2/δ))), λ = 1 + 2/T.

    horizon: as for IGPUCB. Its sets D_t, in which samples are maximised, are the candidates themselves; elsewhere the
    samples are those of ThompsonSampling.

    Chowdhury & Gopalan, On kernelized multi-armed bandits (ICML 2017), Algorithm 2.
    """

    def __init__(self, domain: Domain, model: Model, *, horizon: int | None = None, **settings: Unpack[Common]) -> None:
        super().__init__(domain, model, width="improved", **settings)
        self._ends.delta = self._delta / 2.0  # the other half is for the samples
        if horizon is not None and self.field.fixed:
            self._ends.gain = information_gain(domain, model, horizon)
            self.abilities = dataclasses.replace(self.abilities, takes_noise=False)  # γ counts results

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, *, horizon: int, **settings: Unpack[Common]) -> GPTS:
        """With its ridge, 1 + 2/T, and with γ."""
        return cls(domain, with_ridge(model, horizon), horizon=horizon, **settings)
