"""PE-GP-UCB: several models, dropped when their own predictions fail (a comparator, not from the paper).

Ziomek, Adachi & Osborne, Time-varying Gaussian process bandits with unknown prior (AISTATS 2025).

1   for t = 1, 2, …
2       play (x_t, p_t) that maximises μ^p + β^p·σ^p over points and models p that are left         `choose`
3       observe y_t; r_t = y_t − μ^{p_t}(x_t), S^p the rounds that p has played                     `_count`
4       drop p_t if |Σ_{S^p} r| > √(ξ|S^p|) + Σ_{S^p} β^pσ^p, ξ = 2σ²·ln(P|S^p|²π²/(3δ))

Half of δ is for the bands and half for ξ. A model whose class holds the truth fails line 4 only if its band fails, with
probability δ/2, or the noise of its rounds sums to more than √(ξn) for some n, Σ_n 2e^{−ξ/2σ²} = δ/(2P). All P sums
are needed for the bound (`theory.prior_elimination_bound`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from misspec import theory
from misspec.domains import Domain
from misspec.errors import InvalidInput, number, shown, whole
from misspec.model import Model
from misspec.policies.bases import Eliminating, Elimination
from misspec.policies.core.answers import Band, Decision
from misspec.policies.core.log import Asked
from misspec.policies.core.points import Actions, Context, Round
from misspec.policies.core.registry import Delayed
from misspec.policies.ec_gp_ucb import decide
from misspec.policies.enlarged import Enlarged, contenders
from misspec.theory.widths import Width

NONE_LEFT = "none of these models is right: the predictions of each were refuted; the one that lasted longest goes on"


class PriorElimination(Eliminating):
    """GP-UCB with several models on the same data: the most optimistic one plays, until its predictions fail.

    models: a list of models, or one; δ is the first one's. Where all were dropped, the last one goes on playing,
    without any guarantee, and a caveat says so. width, delays: as for GPUCB.

    To read: `active` (models that are left), `counts`, `candidate_bounds` and `residuals` (|S|, Σβσ and Σr of each,
    over the rounds told before any pending one), `eliminated` (left: what |Σr| may be; right: what it was). Bands reach
    from the lowest to the highest end of the models that are left, so they hold if one of the models is right;
    `posterior` is that of the first of them.
    """

    def __init__(
        self,
        domain: Domain,
        models: Sequence[Model] | Model,
        *,
        width: Width = "mixture",
        **settings: Unpack[Delayed],
    ) -> None:
        given = [models] if isinstance(models, Model) else models
        if not isinstance(given, list | tuple) or not given or not all(isinstance(each, Model) for each in given):
            raise InvalidInput(f"models must be a list of at least one Model, got {shown(models)}")
        super().__init__(domain, given[0], parts=2, **settings)  # of δ: the widths, the test
        turned = [model.turned() if self.minimize else model for model in given]
        self._make_models(turned, width)
        self.residuals = [0.0] * len(turned)
        self.active = list(range(len(turned)))

    @classmethod
    def as_in_paper(
        cls, domain: Domain, models: Sequence[Model] | Model, **settings: Unpack[Delayed]
    ) -> PriorElimination:
        """With Lemma 1's multiplier. The β of the source is for functions drawn from a model; here they have a norm."""
        return cls(domain, models, width="lemma1", **settings)

    # -- the algorithm ---------------------------------------------------------------------------------------

    def choose(self, actions: Round) -> Decision:
        choices = {p: decide(self._bases[p], self.field, actions, self.log.next_id) for p in self._playing}
        p = max(choices, key=lambda p: (choices[p].reasons["upper"], -p))  # 2
        # μ and βσ by told data only; all that the class allows where what is told may be biased
        model = self._bases[p].model
        partial = self.log.partial
        mean, half = (model.offset, model.norm_bound) if partial else self._told(p, choices[p], everywhere=False)[2:]
        details = {"base": p, "expected": mean, "bound": half}
        return choices[p].decision(self.field, actions, details=details)

    def _count(self, asked: Asked, y: float) -> None:
        p = self._ledger.count(asked, y)
        self.residuals[p] += y - asked.details["expected"]  # 3
        if p not in self.active:
            return
        noise, n, P = self._bases[p].model.noise, self.counts[p], len(self._bases)
        allowed = theory.noise_sum(noise, n, P, self._delta) + self.candidate_bounds[p]
        if abs(self.residuals[p]) > allowed:  # 4
            self.active.remove(p)
            self.eliminated.append(Elimination(p, sum(self.counts), allowed, abs(self.residuals[p])))
            self._say("after %d rounds model %d is dropped", sum(self.counts), p)
            if not self.active:
                self._without.append(NONE_LEFT)

    # -- its parts -------------------------------------------------------------------------------------------

    @property
    def _playing(self) -> list[int]:
        """The models that are left; where there are none, the last that was."""
        return self.active or [self.eliminated[-1].base]

    def check_details(self, details: Mapping[str, Any]) -> None:
        whole("base of a stored query", details.get("base"), at_most=len(self._bases) - 1)
        for name in ("bound", "expected"):
            number(f"{name} of a stored query", details.get(name))

    # -- what a user sees ------------------------------------------------------------------------------------

    @property
    def _reported(self) -> Enlarged:
        return self._bases[self._playing[0]]

    def band_at(self, actions: Actions) -> Band:
        bases = [self._bases[p] for p in self._playing]
        bands = [base.band(self.field.look(base.posterior, None, actions, pending=False)) for base in bases]
        return Band(np.min([band.lower for band in bands], axis=0), np.max([band.upper for band in bands], axis=0))

    def contenders(self, within: Context | None = None) -> Actions:
        found = super().contenders(within)
        for p in [] if self.field.size else self._playing[1:]:
            found = found + contenders(self.field, self._bases[p].search, self.log.next_id, within)
        return found

    @property
    def facts(self) -> dict[str, Any]:
        epsilons = [0.0] * len(self._bases)
        return {"epsilons": epsilons, "counts": list(self.counts), "eliminated": list(self.eliminated)}
