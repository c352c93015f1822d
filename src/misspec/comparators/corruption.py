"""The corruption-tolerant GP-UCB of Bogunovic, Krause & Scarlett (2020), which the paper compares against."""

from __future__ import annotations

from typing import Unpack

from misspec.domains import Domain
from misspec.errors import number
from misspec.model import Model
from misspec.policies.core.registry import Common
from misspec.policies.ec_gp_ucb import UpperConfidence
from misspec.theory.widths import Width


class CorruptionTolerantGPUCB(UpperConfidence):
    """x_t maximises μ_{t−1}(x) + (multiplier_t + C/√λ)·σ_{t−1}(x), C the total corruption.

    A misspecification of ε over T rounds is a corruption of C = εT. budget: as for GPUCB.
    """

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        corruption: float,
        width: Width = "lemma1",
        inflate: bool = False,
        budget: int | None = None,
        **settings: Unpack[Common],
    ) -> None:
        total = number("corruption (C)", corruption, at_least=0)
        super().__init__(domain, model, corruption=total, width=width, inflate=inflate, budget=budget, **settings)
