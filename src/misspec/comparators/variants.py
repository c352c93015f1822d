"""Policies of others that differ from ours in a constant, or in the kernel, and are known by a name of their own.

Bogunovic, Krause & Scarlett, Corruption-tolerant Gaussian process bandit optimization (AISTATS 2020), with which the
paper compares. Chowdhury & Gopalan, On kernelized multi-armed bandits (ICML 2017), Algorithms 1 and 2.
"""

from __future__ import annotations

import dataclasses
from typing import Unpack

from misspec import kernels
from misspec.domains import Domain, width_of
from misspec.errors import InvalidInput, number, shown, whole
from misspec.model import Model, a_model
from misspec.policies.core.registry import Common, Delayed
from misspec.policies.ec_gp_ucb import GPUCB, UpperConfidence
from misspec.policies.thompson import ThompsonSampling
from misspec.theory import information_gain
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


class IGPUCB(UpperConfidence):
    """x_t maximises μ_{t−1}(x) + β_t·σ_{t−1}(x), β_t = B + σ√(2(γ_{t−1} + 1 + ln(1/δ))), λ = 1 + 2/T.

    horizon: T, up to which `information_gain` bounds γ_{t−1}; None, and where rounds bring their own points: the
    realised information in its place, which is never larger and serves as well. The ridge is the model's; with λ < 1,
    σ/√λ takes the place of σ. delays: as for GPUCB.
    """

    theorem = "Chowdhury & Gopalan"

    def __init__(
        self, domain: Domain, model: Model, *, horizon: int | None = None, **settings: Unpack[Delayed]
    ) -> None:
        super().__init__(domain, model, width="improved", **settings)
        _know_gain(self, horizon)

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, *, horizon: int, **settings: Unpack[Common]) -> IGPUCB:
        """With its ridge, 1 + 2/T, and with γ."""
        return cls(domain, with_ridge(model, horizon), horizon=horizon, **settings)


class GPTS(ThompsonSampling):
    """x_t maximises f_t ~ GP(μ_{t−1}, v_t²·k_{t−1}), v_t = B + σ√(2(γ_{t−1} + 1 + ln(2/δ))), λ = 1 + 2/T.

    horizon: as for IGPUCB. Its sets D_t, in which samples are maximised, are the candidates themselves; elsewhere the
    samples are those of ThompsonSampling.
    """

    def __init__(self, domain: Domain, model: Model, *, horizon: int | None = None, **settings: Unpack[Common]) -> None:
        super().__init__(domain, model, width="improved", **settings)
        self._ends.delta = self._delta / 2.0  # the other half is for the samples
        _know_gain(self, horizon)

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, *, horizon: int, **settings: Unpack[Common]) -> GPTS:
        """With its ridge, 1 + 2/T, and with γ."""
        return cls(domain, with_ridge(model, horizon), horizon=horizon, **settings)


def _know_gain(policy: UpperConfidence, horizon: int | None) -> None:
    """Take γ in the place of the realised information, on a fixed domain."""
    if horizon is not None and policy.field.fixed:
        policy._ends.gain = information_gain(policy.domain, policy.model, horizon)
        policy.abilities = dataclasses.replace(policy.abilities, takes_noise=False)  # γ counts results


def with_ridge(model: Model, horizon: int) -> Model:
    """The model with λ = 1 + 2/T."""
    return dataclasses.replace(a_model(model), regularization=1.0 + 2.0 / whole("horizon", horizon, at_least=1))


class LinUCB(GPUCB):
    """GP-UCB with a linear kernel: x_t maximises x·w + multiplier_t·√(xᵀCx), w the ridge regression of the rewards.

    width: "lemma1" is OFUL's (Abbasi-Yadkori, Pál & Szepesvári 2011). A number c is LinUCB as it was first published
    (Li, Chu, Langford & Schapire 2010) with α = c√λ.
    """

    theorem = "Theorem 1"

    def __init__(self, domain: Domain, model: Model, *, width: Width = "lemma1", **settings: Unpack[Delayed]) -> None:
        super().__init__(domain, model, width=width, **settings)
        _check_linear(self)

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, **settings: Unpack[Common]) -> LinUCB:
        """OFUL."""
        return cls(domain, model, **settings)


class LinearThompson(ThompsonSampling):
    """Thompson sampling with a linear kernel: x_t maximises x·θ, θ a sample of the posterior of the coefficients.

    width: a factor on the sample's deviation, 1 for plain posterior samples; "lemma1" widens them, as those do who
    prove a bound (Agrawal & Goyal 2013, with another factor).
    """

    def __init__(self, domain: Domain, model: Model, *, width: Width = 1.0, **settings: Unpack[Common]) -> None:
        super().__init__(domain, model, width=width, **settings)
        _check_linear(self)


def _check_linear(policy: UpperConfidence) -> None:
    if kernels.affine(policy.model.kernel, width_of(policy.domain)) is None:
        raise InvalidInput(
            f"{type(policy).__name__} needs a linear kernel, as DotProduct(sigma_0=0) of scikit-learn is; got "
            f"{shown(policy.model.kernel)}, for which there are GPUCB and ThompsonSampling"
        )
