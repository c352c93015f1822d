"""EC-GP-UCB on a posterior that somebody else feeds: the part that ECGPUCB and the bases of balancing share.

upper(x) = μ_{t−1}(x) + multiplier_t·σ_{t−1}(x) + enlargement_t(x)              (Algorithm 1, line 4)
band for f*:  [lower − ε, upper + ε], intersected with the own bands where grounded
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from misspec import confidence, kernels
from misspec.confidence import Grounded, OwnBands
from misspec.domains import Box, Finite
from misspec.errors import Array, InvalidInput, number
from misspec.model import Model
from misspec.policies.base import Actions, Conflict, Query
from misspec.posterior import Posterior
from misspec.tracked import Tracked

ONE_BY_ONE = 4  # points whose exact enlargement is looked at singly before the bounds of many are tightened
CHUNK = 64  # how many of them at first


@dataclasses.dataclass(frozen=True, eq=False)
class Candidates:
    """Points to choose from, with what the posterior and the own bands say of them."""

    mean: Array
    variance: Array  # told and pending where the points are to be chosen from, told alone for bands
    points: Array | None  # user units; None: they are candidates of a Finite domain, the rows below
    rows: NDArray[np.intp] | None  # None: all candidates
    own_lower: Array | None
    own_upper: Array | None


class Learner:
    """One EC-GP-UCB: a model, a misspecification ε, a width and an enlargement, on a given posterior and own bands.

    enlargement: "exact" (ε‖ζ‖₁) or "paper" (ε√t/√λ·σ). corruption: C, which adds C/√λ·σ whatever t.
    """

    def __init__(
        self,
        model: Model,
        posterior: Posterior,
        own: OwnBands | None,
        *,
        epsilon: float,
        width: str | float,
        enlargement: str,
        delta: float,
        corruption: float = 0.0,
        inflate: bool = False,
    ) -> None:
        self.model = model
        self.posterior = posterior
        self.own = own
        self.epsilon = number("epsilon", epsilon, at_least=0)
        self.width = confidence.check_width(width)
        if enlargement not in confidence.ENLARGEMENTS:
            raise InvalidInput(f"enlargement must be one of {', '.join(confidence.ENLARGEMENTS)}, got {enlargement!r}")
        self.enlargement = enlargement
        self.corruption = corruption
        self.delta = delta
        self.inflate = inflate
        self._score: Array = np.empty(0)

    @property
    def exact(self) -> bool:
        """Whether ‖ζ‖₁ is needed."""
        return self.enlargement == "exact" and self.epsilon > 0

    @property
    def multiplier(self) -> float:
        """Of the told observations: what bands are made with."""
        return confidence.multiplier(self.width, self.model, self.posterior.log_det, self.delta)

    def _slope(self) -> float:
        """The enlargement's factor on σ, where it has one."""
        slope = self.corruption / math.sqrt(self.model.regularization)
        paper = self.enlargement == "paper"
        return slope + (confidence.paper_slope(self.epsilon, self.posterior.t + 1, self.model) if paper else 0.0)

    # -- what there is to choose from ------------------------------------------------------------------------

    def candidates(self, actions: Actions | None, *, pending: bool) -> Candidates:
        """All candidates of a Finite domain, or the actions."""
        p, own = self.posterior, self.own
        if actions is None or actions.indices is not None:
            assert isinstance(p, Tracked)
            variance = p.pending_variance if pending else p.variance
            if actions is None:
                low, high = (None, None) if own is None else (own.lower, own.upper)
                return Candidates(p.mean, variance, None, None, low, high)
            rows = actions.indices
            low, high = (None, None) if own is None else (own.lower[rows], own.upper[rows])
            return Candidates(p.mean[rows], variance[rows], None, rows, low, high)
        mean, std = p.at(actions.points, pending=pending)
        low, high = (None, None) if own is None else own.at(keys(p, actions.points))
        return Candidates(mean, std * std, actions.points, None, low, high)

    # -- Algorithm 1, line 4 ---------------------------------------------------------------------------------

    def choose(self, c: Candidates) -> tuple[int, Query]:
        """The maximiser of the upper end; ties go to the lowest. Position among the candidates, and a query's story."""
        inflation = math.exp(self.posterior.pending_information) if self.inflate else 1.0
        multiplier, slope = inflation * self.multiplier, inflation * self._slope()
        score = self._buffer(len(c.mean))
        np.sqrt(c.variance, out=score)
        score *= multiplier + slope
        score += c.mean
        if c.own_upper is not None and self.epsilon:
            score += self.epsilon
        best, norm1 = self._argmax_exact(c, score) if self.exact else (int(self._grounded(c, score).argmax()), 0.0)
        std = math.sqrt(c.variance[best])
        enlargement = self.epsilon * norm1 + slope * std
        upper = float(score[best]) + (self.epsilon * norm1 if self.exact else 0.0)
        if c.own_upper is not None and c.own_lower is not None:
            upper = _capped(upper, float(c.own_lower[best]), float(c.own_upper[best]))
        return best, Query(
            -1,
            np.empty(0),
            mean=float(c.mean[best]),
            std=std,
            multiplier=multiplier,
            enlargement=enlargement,
            upper=upper,
        )

    # -- the model's ends anywhere in a box, before grounding, as the kernel sees points ---------------------------

    def _factor(self, sign: float, pending: bool) -> float:
        """What σ is multiplied by; choosing with pending points may inflate it."""
        inflation = math.exp(self.posterior.pending_information) if self.inflate and pending else 1.0
        return sign * inflation * (self.multiplier + self._slope())

    def score(self, U: Array, sign: float, *, pending: bool) -> Array:
        """μ ± (multiplier·σ + enlargement) at the rows of U: the upper end for sign = 1, the lower for −1."""
        points = cast(Box, self.posterior.domain).decode(U)
        mean, std = self.posterior.at(points, pending=pending)
        score = mean + self._factor(sign, pending) * std
        if self.exact:
            score += sign * self.epsilon * np.abs(self.posterior.weights_at(points)).sum(axis=1)
        return np.asarray(score)

    def slope(self, U: Array, sign: float, *, pending: bool) -> tuple[Array, Array]:
        """The same with gradients."""
        here = self.posterior.local(U, pending=pending, norm1=self.exact)
        values, gradients = here.end(self._factor(sign, pending))
        epsilon = sign * self.epsilon
        return values + epsilon * here.norm1, gradients + epsilon * here.dnorm1

    def _grounded(self, c: Candidates, upper: Array) -> Array:
        """The upper end of the intersection with the own band; the own band's alone where they do not meet."""
        if c.own_upper is None or c.own_lower is None:
            return upper
        return confidence.grounded_upper(upper, c.own_lower, c.own_upper)

    def _argmax_exact(self, c: Candidates, score: Array) -> tuple[int, float]:
        """argmax of the grounded score + ε‖ζ‖₁, looking at ‖ζ‖₁ only where a bound on it lets a point win."""
        p = self.posterior
        kept = p.weights_kept if isinstance(p, Tracked) and c.points is None else None
        if kept is None:
            norm1 = self._norm1(c)
            best = int(self._grounded(c, score + self.epsilon * norm1).argmax())
            return best, float(norm1[best])
        bound = kept.bound if c.rows is None else kept.bound[c.rows]
        optimistic = self._optimistic(c, score, bound)
        known: dict[int, float] = {}
        chunk = CHUNK
        while True:
            best = int(optimistic.argmax())
            if best in known:
                return best, known[best]
            if len(known) % ONE_BY_ONE == ONE_BY_ONE - 1 and len(score) > chunk:  # many could win: tighten many bounds
                rivals = np.argpartition(optimistic, -chunk)[-chunk:]
                rivals = rivals[[i not in known for i in rivals.tolist()]]
                tight = kept.tighten(rivals if c.rows is None else c.rows[rivals])
                optimistic[rivals] = self._optimistic(_part(c, rivals), score[rivals], tight)
                chunk *= 4
                best = int(optimistic.argmax())
                if best in known:
                    return best, known[best]
            known[best] = kept.norm1_at(best if c.rows is None else int(c.rows[best]))
            upper = float(score[best]) + self.epsilon * known[best]
            if c.own_upper is not None and c.own_lower is not None:
                upper = _capped(upper, float(c.own_lower[best]), float(c.own_upper[best]))
            optimistic[best] = upper

    def _optimistic(self, c: Candidates, score: Array, norm1_bound: Array) -> Array:
        """At least the grounded upper end, for any ‖ζ‖₁ up to the bound."""
        upper = score + self.epsilon * norm1_bound
        if c.own_upper is None or c.own_lower is None:
            return np.asarray(upper)
        return confidence.grounded_upper(upper, c.own_lower, c.own_upper, least=score)

    def _norm1(self, c: Candidates) -> Array:
        if c.points is None:
            assert isinstance(self.posterior, Tracked)
            return self.posterior.weights_norm1(c.rows)
        return np.asarray(np.abs(self.posterior.weights_at(c.points)).sum(axis=1))

    def _buffer(self, n: int) -> Array:
        if len(self._score) != n:
            self._score = np.empty(n)
        return self._score

    # -- bands -----------------------------------------------------------------------------------------------

    def half(self, c: Candidates) -> Array:
        """multiplier·σ + enlargement: the model's band for f̃, told data only."""
        std = np.sqrt(c.variance)
        half = (self.multiplier + self._slope()) * std
        return half + confidence.enlargement_exact(self.epsilon, self._norm1(c)) if self.exact else half

    def band(self, c: Candidates) -> Grounded:
        """The band for f*."""
        half = self.half(c) + self.epsilon
        lower, upper = c.mean - half, c.mean + half
        if c.own_lower is None or c.own_upper is None:
            return Grounded(lower, upper, np.zeros(len(lower), dtype=bool))
        return confidence.ground(lower, upper, c.own_lower, c.own_upper)

    def conflicts(self, own: OwnBands, delta: float) -> list[Conflict]:
        """The certificate of the bands, δ for the model's width; `own` may be kept for this alone."""
        factor = confidence.multiplier(self.width, self.model, self.posterior.log_det, delta)
        return find_conflicts(self.posterior, own, self.model, self.epsilon, lambda _, std: factor * std)


def find_conflicts(
    posterior: Posterior, own: OwnBands, model: Model, epsilon: float, width: Callable[[Array, Array], Array]
) -> list[Conflict]:
    """Observed points whose own band disproves a misspecification of ε, and what it proves instead.

    Either it does not meet μ ± (width(x, σ) + ε(1 + ‖ζ‖₁ − 2W_x(x))), or it lies outside all that the class allows for,
    offset ± (B√k(x,x) + ε).
    """
    domain = posterior.domain
    seen = own.keys()
    if not seen:
        return []
    points = np.array([np.frombuffer(k) if isinstance(k, bytes) else cast(Finite, domain).points[k] for k in seen])
    mean, std = posterior.at(points)
    W = posterior.weights_at(points)
    places = [posterior.place_of(x) for x in points]
    own_weight = np.array([W[row, place] if place is not None else 0.0 for row, place in enumerate(places)])
    norm1 = np.abs(W).sum(axis=1)
    half = width(points, std) + epsilon * (1.0 + norm1 - 2.0 * own_weight)
    ball = model.norm_bound * np.sqrt(kernels.diagonal(model.kernel, domain.encode(points))) + epsilon
    low, high = own.at(seen)
    found = []
    for i, key in enumerate(seen):
        gap = max(low[i] - mean[i] - half[i], mean[i] - half[i] - high[i])
        outside = max(low[i] - model.offset - ball[i], model.offset - ball[i] - high[i])
        if max(gap, outside) > 0:
            implied = confidence.implied_epsilon(epsilon, max(0.0, float(gap)), float(norm1[i]), float(own_weight[i]))
            implied = max(implied, epsilon + float(outside))
            found.append(Conflict(points[i], key if isinstance(key, int) else None, float(max(gap, outside)), implied))
    return found


def keys(posterior: Posterior, points: Array) -> list[int | bytes]:
    """What own bands are kept by: the candidate's index where the point is one to the bit, else its coordinates."""
    domain = posterior.domain
    if isinstance(domain, Finite):
        return [int(i) if i >= 0 else x.tobytes() for i, x in zip(domain.indices(points), points, strict=True)]
    return [x.tobytes() for x in points]


def _part(c: Candidates, rows: NDArray[np.intp]) -> Candidates:
    low, high = (None, None) if c.own_lower is None or c.own_upper is None else (c.own_lower[rows], c.own_upper[rows])
    return Candidates(c.mean[rows], c.variance[rows], None, rows if c.rows is None else c.rows[rows], low, high)


def _capped(upper: float, own_lower: float, own_upper: float) -> float:
    return own_upper if upper < own_lower else min(upper, own_upper)
