"""GP-UCB (Srinivas et al. 2010), the baseline of the field."""

from __future__ import annotations

from misspec.domains import Domain
from misspec.model import Model
from misspec.policies.boxed import RESOLUTION
from misspec.policies.upper import UpperConfidence


class GPUCB(UpperConfidence):
    """x_t maximises μ_{t−1}(x) + multiplier_t·σ_{t−1}(x).

    width: "mixture", "lemma1", or a number (a multiplier in units of model.scale, without guarantee).
    grounded: use the intersection with the own bands of observed points. inflate: choose
    by upper ends that stay valid while queries pend (`band` always is: it counts told results only).
    resolution: on a box, queries of a grounded policy that come this near to an observed point, in units of the length
    scale, go to the point itself; None or 0 turns that off (see `policies/boxed.py`).
    """

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        width: str | float = "mixture",
        grounded: bool = False,
        inflate: bool = False,
        resolution: float | None = RESOLUTION,
        seed: int = 0,
    ) -> None:
        super().__init__(
            domain,
            model,
            epsilon=0.0,
            enlargement="exact",
            width=width,
            grounded=grounded,
            inflate=inflate,
            resolution=resolution,
            seed=seed,
        )
        self._settings |= {"resolution": resolution}

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, *, seed: int = 0) -> GPUCB:
        """With the multiplier of the paper's Lemma 1, ungrounded."""
        return cls(domain, model, width="lemma1", seed=seed)
