"""EC-GP-UCB: enlarged confidence bounds for a known misspecification (the paper's Algorithm 1).

Algorithm 1                                                    here
2  μ_0 = 0, σ_0² = k(x,x)                                      Tracked.__init__ (plus the model's offset)
4  x_t ∈ argmax μ*_{t−1}(x) + (β_t + ε√t/√λ)·σ_{t−1}(x)        Learner.choose, enlargement="paper", width="lemma1"
5  observe y*_t                                                tell
6  update μ*_t, σ_t                                            Tracked.observe_index
"""

from __future__ import annotations

from misspec.domains import Domain
from misspec.model import Model
from misspec.policies.boxed import RESOLUTION
from misspec.policies.upper import UpperConfidence


class ECGPUCB(UpperConfidence):
    """x_t maximises μ_{t−1}(x) + multiplier_t·σ_{t−1}(x) + enlargement_t(x); grounded, the upper end of the band.

    epsilon: ε, the sup-norm distance of the truth from the class; 0 makes it GP-UCB.
    enlargement: "exact" (ε‖ζ(x)‖₁, the largest bias that any misfit within ±ε can cause) or "paper" (ε√t/√λ·σ(x)).
    On points never seen before the exact one costs O(t) a point, since every observed point has a weight.
    width, grounded, inflate, resolution: as for GPUCB.
    """

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        epsilon: float,
        enlargement: str = "exact",
        width: str | float = "mixture",
        grounded: bool = True,
        inflate: bool = False,
        resolution: float | None = RESOLUTION,
        seed: int = 0,
    ) -> None:
        super().__init__(
            domain,
            model,
            epsilon=epsilon,
            enlargement=enlargement,
            width=width,
            grounded=grounded,
            inflate=inflate,
            resolution=resolution,
            seed=seed,
        )
        self._settings |= {"epsilon": float(epsilon), "enlargement": enlargement, "resolution": resolution}

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, *, epsilon: float, seed: int = 0) -> ECGPUCB:
        """Algorithm 1 to the letter: Lemma 1's multiplier, the enlargement ε√t/√λ·σ, ungrounded."""
        return cls(domain, model, epsilon=epsilon, enlargement="paper", width="lemma1", grounded=False, seed=seed)
