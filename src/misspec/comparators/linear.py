"""LinUCB and linear Thompson sampling: the field's names for what there is, with a linear kernel."""

from __future__ import annotations

from typing import Unpack

from misspec import kernels
from misspec.domains import Domain, width_of
from misspec.errors import InvalidInput, shown
from misspec.model import Model
from misspec.policies.core.registry import Common, Delayed
from misspec.policies.gp_ucb import GPUCB
from misspec.policies.thompson import ThompsonSampling
from misspec.theory.widths import Width


class LinUCB(GPUCB):
    """GP-UCB with a linear kernel: x_t maximises x·w + multiplier_t·√(xᵀCx), w the ridge regression of the rewards.

    width: "lemma1" is OFUL's (Abbasi-Yadkori, Pál & Szepesvári 2011). A number c is LinUCB as it was first published
    (Li, Chu, Langford & Schapire 2010) with α = c√λ.
    """

    theorem = "Theorem 1"

    def __init__(self, domain: Domain, model: Model, *, width: Width = "lemma1", **settings: Unpack[Delayed]) -> None:
        super().__init__(domain, model, width=width, **settings)
        _linear(self, domain, model)

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
        _linear(self, domain, model)


def _linear(policy: object, domain: Domain, model: Model) -> None:
    if kernels.affine(model.kernel, width_of(domain)) is None:
        raise InvalidInput(
            f"{type(policy).__name__} needs a linear kernel, as DotProduct(sigma_0=0) of scikit-learn is; got "
            f"{shown(model.kernel)}, for which there are GPUCB and ThompsonSampling"
        )
