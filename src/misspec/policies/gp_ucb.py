"""GP-UCB (Srinivas et al. 2010), the baseline of the field."""

from __future__ import annotations

from typing import Unpack

from misspec.domains import Domain
from misspec.model import Model
from misspec.policies.core.registry import UCB, Common
from misspec.policies.ec_gp_ucb import UpperConfidence


class GPUCB(UpperConfidence):
    """x_t maximises μ_{t−1}(x) + multiplier_t·σ_{t−1}(x).

    width: "mixture", "lemma1", a number (a multiplier in units of model.scale, without guarantee), or a function of
    the model, L = log det(I + K/λ) and δ that returns the multiplier (its guarantee is up to you).
    grounded: use the intersection with the own bands of observed points. inflate, budget, resolution, delays, minimize,
    seed: `policies/core/registry.py` says what each does.
    """

    theorem = "Theorem 1"

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        grounded: bool = False,
        **settings: Unpack[UCB],
    ) -> None:
        super().__init__(domain, model, grounded=grounded, **settings)

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, **settings: Unpack[Common]) -> GPUCB:
        """With the multiplier of the paper's Lemma 1, ungrounded."""
        return cls(domain, model, width="lemma1", **settings)
