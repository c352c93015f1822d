"""LB-GP-UCB: length scale balancing (Ziomek, Adachi & Osborne 2024), a comparator, not from the paper.

Read as follows, from the paper and its authors' program: candidates are spaced so that γ grows by e from one to the
next; the test has 2βσ, as its proof needs (the program has βσ), and its ξ covers both sides at half of δ; where the
length scale is not the model's own, the norm may be larger by what a candidate above the true one can cost.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Unpack

from misspec import kernels, theory
from misspec.comparators.variants import with_ridge
from misspec.domains import Domain
from misspec.errors import InvalidInput, flag, number, whole
from misspec.model import Model
from misspec.policies.bases import Eliminating
from misspec.policies.core.answers import Decision
from misspec.policies.core.log import Asked
from misspec.policies.core.points import Round
from misspec.policies.core.registry import Common, Delayed
from misspec.policies.ec_gp_ucb import decide
from misspec.policies.enlarged import Enlarged
from misspec.theory.widths import Width

MOST_LENGTH_SCALES = 1000


class LBGPUCB(Eliminating):
    """GP-UCB with ever shorter length scales on the same data; plays the one whose regret bound would be the smallest,
    and rejects those whose bound the rewards refute.

    θ_i = θ_0·e^{−i/q}, θ_0 the model's length scale, an upper bound on the true θ*; q = d, for Matérn kernels d + 2ν.
    Candidate i may play once θ_i > θ_0/g(t), g(t) = max(e^{initial/q}, t^growth). It needs ‖f‖_θ* ≤ B for some
    θ* ≤ θ_0: the longest θ_i ≤ θ* then has ‖f‖_{θ_i} ≤ B·e^{d/2q}, the norm bound of all i > 0.

    horizon: T, for the number of candidates; more rounds can be asked for. width, delays: as for GPUCB.

    To read: `length_scales` (θ_i/θ_0), `active`, `counts`, `rewards`, `candidate_bounds` (N, J and Σ2βσ of each, over
    the rounds told before any pending one), `eliminated`. Bands and `recommend()` are those of the longest candidate
    that is left: the model's own, until results refute it.
    """

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        horizon: int,
        growth: float = 0.5,
        initial: int = 5,
        width: Width = "mixture",
        **settings: Unpack[Delayed],
    ) -> None:
        super().__init__(domain, model, parts=2, **settings)  # of δ: the widths, the test
        model = self.model
        self.horizon = whole("horizon", horizon, at_least=1)
        self._growth = number("growth", growth, above=0)
        self._initial = whole("initial", initial, at_least=1)
        self._d, self._nu = domain.dimension, kernels.smoothness(model.kernel)
        self._q = self._d + (2.0 * self._nu if math.isfinite(self._nu) else 0.0)
        M = self._added(self.horizon)
        if M > MOST_LENGTH_SCALES:
            most = f"{MOST_LENGTH_SCALES:,} at most can be played"
            raise InvalidInput(f"growth and initial would make {M:,} length scales, {most}; take smaller ones")
        self.length_scales = [math.exp(-i / self._q) for i in range(M)]
        self._scale = kernels.length_scale(model.kernel)
        reach = model.norm_bound * math.exp(0.5 * self._d / self._q)
        shorter = [kernels.with_length_scales_times(model.kernel, factor) for factor in self.length_scales[1:]]
        models = [model, *(dataclasses.replace(model, kernel=k, norm_bound=reach) for k in shorter)]
        self._make_models(models, width)
        self._varies = False  # whether rounds have brought actions or contexts of their own

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, *, horizon: int, **settings: Unpack[Common]) -> LBGPUCB:
        """With the widths of Chowdhury & Gopalan and their ridge, 1 + 2/T; g as in the authors' experiments."""
        return cls(domain, with_ridge(model, horizon), horizon=horizon, width="improved", **settings)

    # -- the algorithm ---------------------------------------------------------------------------------------

    def choose(self, actions: Round) -> Decision:
        # θ_t ∈ argmin of R_θ(|S_θ| + 1) over the candidates so far, ties to the longest; then x_t maximises its μ + βσ
        i = min(self.active, key=lambda i: self.suspected_bound(i, self._ledger.plays(i) + 1))
        decided = decide(self._bases[i], self.field, actions, self.log.next_id)
        # 2βσ there, by told data only; the whole range where what is told may be biased
        half = self._bases[i].model.norm_bound if self.log.partial else self._told(i, decided, everywhere=False)[3]
        details = {"base": i, "bound": 2.0 * half, "varies": actions is not None}
        return decided.decision(self.field, actions, details=details)

    def suspected_bound(self, i: int, n: int) -> float:
        """R_θ(n) = √(n·γ)(√γ + B) up to a factor that all share, γ = θ^{−q}·ln^{d+1}n, the rate of information gain;
        for Matérn kernels θ^{−q}·n^{d/q}·ln^{2ν/q}n."""
        d, q, log = self._d, self._q, math.log(n)
        rate = log ** (d + 1) if math.isinf(self._nu) else n ** (d / q) * log ** (2.0 * self._nu / q)
        gamma = (self._scale * self.length_scales[i]) ** -q * rate
        return math.sqrt(n * gamma) * (math.sqrt(gamma) + self.model.norm_bound)

    def _count(self, asked: Asked, y: float) -> None:
        """Reject θ if J/N + (Σ2βσ)/N + √(ξ/N) < max over θ′ of J′/N′ − √(ξ/N′), ξ = 2s²ln(Mπ²t²/(3δ))."""
        self._ledger.count(asked, y)
        t = sum(self.counts)
        ranges = [2.0 * base.model.norm_bound for base in self._bases]
        s = theory.elimination_spread(self.model.noise, ranges, varying=self._varies)
        xi = 2.0 * s**2 * math.log(self._added(t) * math.pi**2 * t**2 / (3.0 * self._delta))
        self._ledger.h = {i: math.sqrt(xi / n) for i, n in enumerate(self.counts) if n}
        self._refuted(t)

    # -- its parts -------------------------------------------------------------------------------------------

    def _added(self, t: int) -> int:
        """Candidates up to round t: those with θ_i > θ_0/g(t)."""
        return max(self._initial, math.ceil(self._q * self._growth * math.log(min(max(t, 1), self.horizon))))

    @property
    def active(self) -> list[int]:
        """The candidates so far that are not rejected."""
        rejected = {each.base for each in self.eliminated}
        t = sum(self.counts) + len(self._ledger) + 1
        return [i for i in range(self._added(t)) if i not in rejected]

    def check_details(self, details: Mapping[str, Any]) -> None:
        whole("base of a stored query", details.get("base"), at_most=len(self._bases) - 1)
        number("bound of a stored query", details.get("bound"))
        flag("varies of a stored query", details.get("varies"))

    def on_ask(self, asked: Asked) -> None:
        super().on_ask(asked)
        self._varies = self._varies or (not asked.of_others and asked.details["varies"])

    # -- what a user sees ------------------------------------------------------------------------------------

    @property
    def _reported(self) -> Enlarged:
        """The longest length scale that is left."""
        return self._bases[self.active[0]]

    @property
    def facts(self) -> dict[str, Any]:
        return {"counts": list(self.counts), "eliminated": list(self.eliminated)}
