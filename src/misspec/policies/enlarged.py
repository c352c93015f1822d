"""Enlarged confidence bounds on a posterior owned by the caller: what EC-GP-UCB and the bases of balancing share.

ends for f̃:    μ_{t−1}(x) ± (multiplier_t·σ_{t−1}(x) + enlargement_t(x))
band for f*:   ends ∓ ε, intersected with the own bands where grounded

With a budget for the dictionary, σ is what the dictionary sees and the enlargement also pays for what it misses
(`posterior/fixed.py`). A width that is a number guarantees nothing, and there is nothing to pay for: σ is then all of
the variance.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from misspec.errors import Array, InvalidInput, flag, number, shown
from misspec.model import Model
from misspec.policies.core.answers import Band
from misspec.policies.core.field import Field, Search
from misspec.policies.core.points import Actions, Candidates, Context
from misspec.policies.core.policy import Policy
from misspec.posterior import Posterior
from misspec.posterior.formulas import Glance
from misspec.theory import InformationGain, own_bands, widths
from misspec.theory.own_bands import OwnBands
from misspec.theory.widths import Width

ONE_BY_ONE = 4  # points whose exact enlargement is looked at singly before the bounds of many are tightened
CHUNK = 64  # how many of them at first


@dataclasses.dataclass(eq=False)
class Enlarged:
    """A model, a misspecification ε, a width and an enlargement, on a given posterior and own bands.

    enlargement: "exact" (ε‖ζ‖₁), "norm2" (ε√t‖ζ‖₂), "paper" (ε√t/√λ·σ), or None: exact, except at points that a round
    has brought, where all of them come with rounds (`flat`) and with a budget: there it is norm2, whose cost does not
    grow. corruption: C, which adds C/√λ·σ whatever t. own: the own bands that ground the band, None for none.
    `gain`, where it is set, stands in for the realised information in the multiplier: γ_{t−1} for L/2.
    """

    model: Model
    posterior: Posterior
    own: OwnBands | None
    _: dataclasses.KW_ONLY
    epsilon: float
    width: Width
    enlargement: str | None
    delta: float
    corruption: float = 0.0
    inflate: bool = False
    flat: bool = False
    gain: InformationGain | None = None

    def __post_init__(self) -> None:
        self.epsilon = number("epsilon", self.epsilon, at_least=0)
        self.width = widths.check_width(self.width)
        check_enlargement(self.enlargement)
        flag("inflate", self.inflate)
        budgeted = self.posterior.budget is not None
        self.flat = self.flat or budgeted
        self._pays = budgeted and not isinstance(self.width, float)  # for what a budget misses

    # -- its terms -------------------------------------------------------------------------------------------

    @property
    def multiplier(self) -> float:
        """β_t for the told observations, with which bands are made (`theory/widths.py`)."""
        log_det = self.posterior.log_det if self.gain is None else 2.0 * self.gain.at(self.posterior.t)
        return widths.multiplier(self.width, self.model, log_det, self.delta)

    @property
    def slope(self) -> float:
        """The enlargement's factor on σ, where it has one: ε√t/√λ of the paper's, C/√λ of corruption."""
        slope = self.corruption / math.sqrt(self.model.regularization)
        if self.enlargement != "paper":
            return slope
        if self._pays:  # ‖b‖₂ ≤ ε√t + B√ρ₂ in the place of ε√t
            slope += self.model.norm_bound * math.sqrt(self.posterior.missed_squares / self.model.regularization)
        return slope + widths.paper_slope(self.epsilon, self.posterior.mass + 1, self.model)

    @property
    def inflation(self) -> float:
        """Factor that keeps β_t valid while queries are pending, if that is wanted."""
        return math.exp(self.posterior.pending_information) if self.inflate else 1.0

    def norm(self, *, flat: bool = False) -> int:
        """1 or 2 where the enlargement needs ‖ζ‖₁ or ‖ζ‖₂, else 0; flat: at points that a round has brought."""
        if self.enlargement is None:
            return 2 if self.flat or flat else 1
        return {"exact": 1, "norm2": 2, "paper": 0}[self.enlargement]

    def exact(self, *, flat: bool = False) -> bool:
        """Whether ‖ζ‖₁ is needed."""
        return self.epsilon > 0 and self.norm(flat=flat) == 1

    def std(self, c: Candidates | Glance) -> Array:
        """σ, of which the multiplier is a multiple."""
        if self._pays and c.residual is not None:
            return np.sqrt(np.maximum(c.variance - c.residual, 0.0))
        return np.sqrt(c.variance)

    def _added(self, c: Candidates | Glance, *, flat: bool = False) -> Array | float:
        """The enlargement, except for what is a factor on σ (`slope`)."""
        norm = self.norm(flat=flat)
        if self._pays and c.bias is not None and c.residual is not None:
            return c.bias(self.epsilon, norm == 1) if norm else self.model.norm_bound * np.sqrt(c.residual)
        if self.epsilon == 0 or not norm:
            return 0.0
        if norm == 1:
            return widths.enlargement_exact(self.epsilon, c.norm1())
        return widths.enlargement_norm2(self.epsilon, self.posterior.mass + 1, c.norm2())

    # -- choosing --------------------------------------------------------------------------------------------

    def scores(self, c: Candidates) -> Array:
        """μ + (multiplier + slope)·σ, inflated while queries are pending if that is wanted."""
        return np.asarray(c.mean + self.inflation * (self.multiplier + self.slope) * self.std(c))

    def maximiser(self, c: Candidates, score: Array) -> tuple[int, float, float]:
        """The candidate with the largest upper end, what was added to its score (of `scores`), and the end: the
        enlargement where that is not a factor on σ, and grounding. Ties go to the lowest."""
        if c.own is not None and self.epsilon:
            score = score + self.epsilon  # own bands are about f*
        if c.kept is not None and self.exact(flat=c.flat):
            return self._maximiser_kept(c, score)
        added = self._added(c, flat=c.flat)
        upper = self._grounded(c, score + added)
        best = int(upper.argmax())
        return best, float(added[best]) if isinstance(added, np.ndarray) else added, float(upper[best])

    def _maximiser_kept(self, c: Candidates, score: Array) -> tuple[int, float, float]:
        """`maximiser`, looking at ‖ζ‖₁ only where a bound on it lets a point win."""
        assert c.kept is not None
        optimistic = self._grounded(c, score + self.epsilon * c.kept.bound[c.rows], least=score)
        known: dict[int, float] = {}
        chunk, tightened = CHUNK, False
        while (best := int(optimistic.argmax())) not in known:
            if len(known) % ONE_BY_ONE == ONE_BY_ONE - 1 and len(score) > chunk and not tightened:
                rivals = np.argpartition(optimistic, -chunk)[-chunk:]  # many could win: tighten many bounds
                rivals = rivals[[i not in known for i in rivals.tolist()]]
                tight = score[rivals] + self.epsilon * c.kept.tighten(c.row(rivals))
                optimistic[rivals] = self._grounded(c.part(rivals), tight, least=score[rivals])
                chunk, tightened = 4 * chunk, True
                continue
            tightened = False
            known[best] = c.kept.norm1_at(int(c.row(best)))
            upper = float(score[best]) + self.epsilon * known[best]
            if c.own is not None:
                low, high = (float(end[best]) for end in c.own)
                upper = high if upper < low else min(upper, high)
            optimistic[best] = upper
        return best, self.epsilon * known[best], float(optimistic[best])

    def _grounded(self, c: Candidates, upper: Array, least: Array | None = None) -> Array:
        """The upper end of the intersection with the own band; the own band's alone where they do not meet."""
        return upper if c.own is None else own_bands.grounded_upper(upper, *c.own, least=least)

    def search(self, turn: int, sign: float = 1.0, *, pending: bool = True) -> Search:
        """The search for the largest upper (sign = 1) or lower end (−1) over a domain without a list of candidates."""
        factor = sign * (self.inflation if pending else 1.0) * (self.multiplier + self.slope)
        posterior, missed, pays = self.posterior, sign * self.model.norm_bound, self._pays
        norm = self.norm() if pays or self.epsilon > 0 else 0
        # with a budget `local` has the whole bias; else a norm, to be multiplied
        epsilon = self.epsilon if pays else None
        added = sign if pays else sign * self.epsilon * (math.sqrt(posterior.mass + 1) if norm == 2 else 1.0)

        def score(U: Array, _: Array) -> Array:
            here = posterior.look(U, pending=pending)
            return np.asarray(here.mean + factor * self.std(here) + sign * self._added(here))

        def slope(U: Array) -> tuple[Array, Array]:
            here = posterior.local(U, pending=pending, norm=norm, epsilon=epsilon)
            values, gradients = here.end_within(factor, missed) if pays else here.end(factor)
            return values + added * here.norm, gradients + added * here.dnorm

        # points next to an observed one are not asked, but count among what could be better
        return Search(posterior, self.own, score, slope, turn, snap=pending)

    # -- bands -----------------------------------------------------------------------------------------------

    def half(self, c: Candidates) -> Array:
        """multiplier·σ + enlargement: the model's band for f̃, told data only."""
        return np.asarray((self.multiplier + self.slope) * self.std(c) + self._added(c, flat=c.flat))

    def band(self, c: Candidates) -> Band:
        """The band for f*: the model's within what its class allows, then grounded."""
        half = self.half(c) + self.epsilon
        lower, upper = own_bands.within_class(c.mean - half, c.mean + half, self.model, c.prior(), self.epsilon)
        return Band(lower, upper) if c.own is None else Band(*own_bands.ground(lower, upper, *c.own))


class Banded(Policy):
    """A policy whose bands and recommendation are those of one `Enlarged`."""

    @property
    @abc.abstractmethod
    def _reported(self) -> Enlarged:
        """Whose bands `band` and `recommend` report."""

    @property
    def reported_model(self) -> Model:
        return self._reported.model

    @property
    def posterior_in_use(self) -> Posterior:
        """Of the base whose bands are reported."""
        return self._reported.posterior

    @property
    def epsilon(self) -> float:
        """The ε̂ of that base: what bands and recommendation allow for."""
        return self._reported.epsilon

    def band_at(self, actions: Actions) -> Band:
        base = self._reported
        return base.band(self.field.look(base.posterior, base.own, actions, pending=False))

    def contenders(self, within: Context | None = None) -> Actions:
        return contenders(self.field, self._reported.search, self.log.next_id, within)


def contenders(field: Field, search: Callable[..., Search], turn: int, within: Context | None = None) -> Actions:
    """Candidates for `recommend`: the maximisers of both ends that the search found, and a cover, since what a search
    finds the class may cap. search: as `Enlarged.search`; within: at this context."""
    if field.size:
        return field.spread()

    def end(sign: float) -> Actions:
        return field.offer(lambda: search(turn, sign, pending=False), within)

    return end(-1.0) + end(1.0) + field.spread(within)


def check_enlargement(enlargement: object) -> str | None:
    """A known name or None, or InvalidInput."""
    if enlargement is None or (isinstance(enlargement, str) and enlargement in widths.ENLARGEMENTS):
        return enlargement
    raise InvalidInput(
        f"enlargement must be one of {', '.join(widths.ENLARGEMENTS)}, or None, got {shown(enlargement)}"
    )


def keeps_weights(enlargement: str | None, epsilons: Sequence[float], budget: int | None) -> bool:
    """Whether ‖ζ‖₁ is needed at every step; with a budget only for those who name it."""
    named = check_enlargement(enlargement) == "exact"
    return named if budget is not None else (named or enlargement is None) and any(epsilon > 0 for epsilon in epsilons)
