"""IGP-UCB, the improved GP-UCB of Chowdhury & Gopalan (2017): a comparator, not from the paper."""

from __future__ import annotations

import dataclasses
from typing import Unpack

from misspec.domains import Domain
from misspec.errors import whole
from misspec.model import Model, a_model
from misspec.policies.core.registry import Common, Delayed
from misspec.policies.ec_gp_ucb import UpperConfidence
from misspec.theory import information_gain


class IGPUCB(UpperConfidence):
    """x_t maximises μ_{t−1}(x) + β_t·σ_{t−1}(x), β_t = B + σ√(2(γ_{t−1} + 1 + ln(1/δ))), λ = 1 + 2/T.

    horizon: T, up to which `information_gain` bounds γ_{t−1}; None, and where rounds bring their own points: the
    realised information in its place, which is never larger and serves as well. The ridge is the model's; with λ < 1,
    σ/√λ takes the place of σ. delays: as for GPUCB.

    Chowdhury & Gopalan, On kernelized multi-armed bandits (ICML 2017), Algorithm 1.
    """

    theorem = "Chowdhury & Gopalan"

    def __init__(
        self, domain: Domain, model: Model, *, horizon: int | None = None, **settings: Unpack[Delayed]
    ) -> None:
        super().__init__(domain, model, width="improved", **settings)
        if horizon is not None and self.field.fixed:
            self._ends.gain = information_gain(domain, model, horizon)
            self.abilities = dataclasses.replace(self.abilities, takes_noise=False)  # γ counts results

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, *, horizon: int, **settings: Unpack[Common]) -> IGPUCB:
        """With its ridge, 1 + 2/T, and with γ."""
        return cls(domain, with_ridge(model, horizon), horizon=horizon, **settings)


def with_ridge(model: Model, horizon: int) -> Model:
    """The model with λ = 1 + 2/T."""
    return dataclasses.replace(a_model(model), regularization=1.0 + 2.0 / whole("horizon", horizon, at_least=1))
