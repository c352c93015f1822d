"""GP-UCB (Srinivas et al. 2010), the baseline of the field."""

from __future__ import annotations

from misspec.domains import Domain
from misspec.model import Model
from misspec.policies.core.field import RESOLUTION
from misspec.policies.ec_gp_ucb import UpperConfidence
from misspec.theory.widths import Width


class GPUCB(UpperConfidence):
    """x_t maximises μ_{t−1}(x) + multiplier_t·σ_{t−1}(x).

    width: "mixture", "lemma1", a number (a multiplier in units of model.scale, without guarantee), or a function of
    the model, L = log det(I + K/λ) and δ that returns the multiplier (its guarantee is up to you).
    grounded: use the intersection with the own bands of observed points. inflate: choose
    by upper ends that stay valid while queries are pending (`band` always does: it counts told results only).
    budget: features of the posterior at most, for kernels that have many (Matérn, or any in many dimensions): what a
    round costs then stops growing, and the bands pay for what is missed (`posterior/fixed.py`).
    resolution: on a box, queries of a grounded policy that come this near to an observed point, in units of the length
    scale, go to the point itself; None or 0 turns that off (see `policies/field.py`).
    delays: "independent" says that when results are told does not depend on their values; without that, bands are
    guaranteed only while what is told is a prefix of what was asked.
    """

    theorem = "Theorem 1"

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        width: Width = "mixture",
        grounded: bool = False,
        inflate: bool = False,
        budget: int | None = None,
        resolution: float | None = RESOLUTION,
        delays: str = "any",
        seed: int = 0,
    ) -> None:
        super().__init__(
            domain,
            model,
            width=width,
            grounded=grounded,
            inflate=inflate,
            budget=budget,
            resolution=resolution,
            delays=delays,
            seed=seed,
        )

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, *, seed: int = 0) -> GPUCB:
        """With the multiplier of the paper's Lemma 1, ungrounded."""
        return cls(domain, model, width="lemma1", seed=seed)
