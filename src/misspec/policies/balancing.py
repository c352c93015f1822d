"""Regret bound balancing over EC-GP-UCB bases: contextual, misspecification unknown (the paper's Algorithm 3).

    Algorithm 3                                                    here
    1   M bases with candidates ε̂_i, all active, N_i = 0          __init__
    4   receive D_t                                                ask(actions=D_t)
    5   i_t ∈ argmin over active i of R_i(N_i(t−1))                _play (times the price of caution)
    6   base i_t plays x_t, observes y_t                           _choose, _told
    7   update the base and its count                              _told
    8   update the active set                                      _eliminate

Read with the slips of the paper put right: the test compares averages per round, and only the base that played counts
up (docs/paper.md).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from misspec import confidence, theory
from misspec.domains import Domain, Finite
from misspec.errors import Array, InvalidInput, flag, number, whole
from misspec.information import information_gain
from misspec.model import Model
from misspec.policies.base import Actions, Band, Conflict, Query, check_arguments
from misspec.policies.boxed import RESOLUTION
from misspec.policies.encoding import decode_model, encode_kernel, encode_model
from misspec.policies.learner import Learner
from misspec.policies.upper import Feeding, make_posterior
from misspec.posterior import Posterior


@dataclasses.dataclass(frozen=True)
class Elimination:
    """Base `base` was dropped after `round` told observations: its optimistic average `left` fell below `right`."""

    base: int
    round: int
    left: float
    right: float


class RegretBalancing(Feeding):
    """Plays the active base with the smallest candidate regret bound; drops bases whose bound the rewards refute.

    horizon: T, for the grid of candidates. bounds: "realised" (sums of the bands' widths at the points played) or
    "paper". evidence: "shared" (one posterior for all bases of one kernel) or "own". bases: (Model, ε̂) pairs instead
    of the grid. price: factor on the bound of bases with ε̂ > 0 when choosing who plays. epsilon_max: the largest
    candidate, B by default; the guarantee is for ε up to it. reward_range: how far rewards' expectations can lie
    apart; 2(B + ε̂) by default. gain: an upper bound on γ_T, for bounds="paper" (computed per kernel if not given).
    radius: of the elimination test, "anytime" or "paper". resolution: as for GPUCB.

    To read: `epsilons` (ε̂ per base), `active` (bases still played), `counts`, `rewards`, `candidate_bounds` (N, J, R of
    each base), `eliminated` (base, round, both sides of the failed test). Bands and `recommend().gap` are those of the
    most cautious active base: they hold for any ε up to its ε̂, and are as wide as that; a smaller epsilon_max narrows
    them. The horizon shapes the grid; more rounds than that can be asked for.
    """

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        horizon: int,
        bounds: str = "realised",
        evidence: str = "shared",
        grounded: bool = True,
        bases: Sequence[tuple[Model, float]] | None = None,
        price: float = 8.0,
        epsilon_max: float | None = None,
        reward_range: float | None = None,
        gain: float | None = None,
        width: str | float = "mixture",
        enlargement: str = "exact",
        radius: str = "anytime",
        inflate: bool = False,
        resolution: float | None = RESOLUTION,
        seed: int = 0,
    ) -> None:
        check_arguments(domain, model)
        T = self.horizon = whole("horizon", horizon, at_least=1)
        grounded = flag("grounded", grounded)
        delta = model.delta / (3 if grounded else 2)  # model widths, own bands, elimination test
        _one_of("bounds", bounds, ("realised", "paper"))
        _one_of("evidence", evidence, ("shared", "own"))
        _one_of("radius", radius, ("anytime", "paper"))
        if bounds == "paper" and evidence == "shared":
            raise InvalidInput(
                'bounds="paper" hold for bases that learn alone: use evidence="own" or bounds="realised"'
            )
        price, inflate, width = number("price", price, above=0), flag("inflate", inflate), confidence.check_width(width)
        epsilon_max = None if epsilon_max is None else number("epsilon_max", epsilon_max, above=0)
        reward_range = None if reward_range is None else number("reward_range", reward_range, above=0)
        gain = None if gain is None else number("gain (γ_T)", gain, above=0)
        given = None if bases is None else _pairs(bases)
        settings: dict[str, Any] = {
            "horizon": T, "bounds": bounds, "evidence": evidence, "grounded": grounded, "bases": given,
            "price": price, "epsilon_max": epsilon_max, "reward_range": reward_range, "gain": gain, "width": width,
            "enlargement": enlargement, "radius": radius, "inflate": inflate,
        }  # fmt: skip
        own_delta = delta if grounded else None
        super().__init__(domain, model, seed, own_delta=own_delta, resolution=resolution, **settings)
        self._settings |= {"resolution": resolution}
        self._bounds, self._radius, self._shared = bounds, radius, evidence == "shared"
        self._delta_test = delta
        self._gain: dict[str | int, float] = {}  # γ_T per kernel, for bounds="paper"
        pairs = self._grid(T, gain, epsilon_max) if given is None else given
        self.guaranteed = isinstance(width, str) and not any(m.fitted for m, _ in pairs)
        self.epsilons = [e for _, e in pairs]
        M = len(pairs)
        self._price = [1.0 if e == 0 else price for e in self.epsilons]
        self._ranges = [reward_range or 2.0 * (m.norm_bound + e) for m, e in pairs]
        self._gains = [self._gain_of(m, T, gain) if bounds == "paper" else math.nan for m, _ in pairs]
        self._learners = self._make_learners(pairs, delta, width, enlargement, inflate)
        self.active = list(range(M))  # I_t
        self.counts = [0] * M  # N_i
        self.rewards = [0.0] * M  # J_i
        self.candidate_bounds = [0.0] * M  # R_i of the rounds told
        self.eliminated: list[Elimination] = []
        self._offers: set[str] = set()  # digests of the action sets seen: more than one, and they vary

    @classmethod
    def as_in_paper(
        cls, domain: Domain, model: Model, *, horizon: int, seed: int = 0, **options: Any
    ) -> RegretBalancing:
        """Algorithm 3 with the paper's bases, grid, bounds and radius; options: reward_range, gain, bases."""
        chosen: dict[str, Any] = {
            "bounds": "paper", "evidence": "own", "grounded": False, "price": 1.0, "width": "lemma1",
            "enlargement": "paper", "radius": "paper", **options,
        }  # fmt: skip
        return cls(domain, model, horizon=horizon, seed=seed, **chosen)

    def _grid(self, T: int, gain: float | None, epsilon_max: float | None) -> list[tuple[Model, float]]:
        if self._bounds == "paper":
            g = self._gain_of(self.model, T, gain)
            return [(self.model, e) for e in theory.paper_candidates(T, g)]
        top = self.model.norm_bound if epsilon_max is None else epsilon_max
        halvings = 1 + math.ceil(0.5 * math.log2(T))
        return [*((self.model, top * 2.0 ** (1 - i)) for i in range(1, halvings + 1)), (self.model, 0.0)]

    def _gain_of(self, m: Model, T: int, gain: float | None) -> float:
        key = f"{kernel_key(m.kernel)} {m.regularization}"
        if gain is None and key not in self._gain:
            self._gain[key] = information_gain(self.domain, m, T).upper
        return self._gain[key] if gain is None else gain

    def _make_learners(
        self, pairs: Sequence[tuple[Model, float]], delta: float, width: str | float, enlargement: str, inflate: bool
    ) -> list[Learner]:
        """One posterior per kernel and ridge (shared), or one per base (own)."""
        groups: dict[Any, list[int]] = {}
        for i, (m, _) in enumerate(pairs):
            key = (kernel_key(m.kernel), m.regularization, m.offset)
            groups.setdefault(key if self._shared else i, []).append(i)
        learners: dict[int, Learner] = {}
        for members in groups.values():
            weights = enlargement == "exact" and any(self.epsilons[i] > 0 for i in members)
            posterior = make_posterior(pairs[members[0]][0], self.domain, weights)
            self._feeds.append(posterior)
            for i in members:
                learners[i] = Learner(
                    pairs[i][0], posterior, self._own, epsilon=self.epsilons[i], width=width, enlargement=enlargement,
                    delta=delta / len(groups), inflate=inflate,
                )  # fmt: skip
        return [learners[i] for i in range(len(pairs))]

    # -- Algorithm 3 -----------------------------------------------------------------------------------------

    def _play(self) -> int:
        """Line 5: the active base with the smallest candidate bound, pending rounds counted, ties to the lowest."""
        return min(self.active, key=lambda i: self._price[i] * self._bound(i, pending=True))

    def _choose(self, actions: Actions | None) -> Query:
        i = self._play()
        query = self._choose_by(self._learners[i], actions)
        details = {"base": i, "epsilon": self.epsilons[i], "bound": 0.0, "offer": self._offer(actions)}
        if self._bounds == "realised":
            details["bound"] = self._realised(i, query)
        return dataclasses.replace(query, details=details)

    def _offer(self, actions: Actions | None) -> str:
        """A digest of the action set, to see whether it varies from round to round."""
        if actions is None:
            return "all"
        if actions.indices is None:
            return hashlib.sha256(np.unique(actions.points, axis=0).tobytes()).hexdigest()[:16]
        rows = np.unique(actions.indices)
        whole_domain = isinstance(self.domain, Finite) and len(rows) == len(self.domain)
        return "all" if whole_domain else hashlib.sha256(rows.tobytes()).hexdigest()[:16]

    def _realised(self, i: int, query: Query) -> float:
        """By how much R_i grows when base i plays this point: its band's width before the point is observed."""
        learner = self._learners[i]
        c = learner.candidates(self._parse_actions(_where(query)), pending=False)
        if self._own is None:
            return min(self._ranges[i], 2.0 * float(learner.half(c)[0]) + 2.0 * self.epsilons[i])
        band = learner.band(c)
        return min(self._ranges[i], float(band.upper[0] - band.lower[0]))

    def _asked(self, query: Query) -> None:
        self._offers.add(query.details["offer"])

    def _told(self, query: Query, y: float) -> None:
        i = query.details["base"]
        super()._told(query, y)  # line 6
        self.counts[i] += 1  # line 7
        self.rewards[i] += y
        if self._bounds == "realised":
            self.candidate_bounds[i] += query.details["bound"]
        else:
            self.candidate_bounds[i] = self._bound(i)
        self._eliminate()

    def _eliminate(self) -> None:
        """Line 8: drop i if J_i/N_i + R_i/N_i + h_i < max over j of J_j/N_j − h_j. The maximiser never fails."""
        N, J, R = self.counts, self.rewards, self.candidate_bounds
        played = [i for i in self.active if N[i] > 0]
        radii = self._radius_of(np.array([N[i] for i in played], dtype=np.float64))
        h = dict(zip(played, radii.tolist(), strict=True))
        right = max(J[j] / N[j] - h[j] for j in played) if played else -math.inf
        for i in played:
            left = (J[i] + R[i]) / N[i] + h[i]
            if left < right:
                self.active.remove(i)
                self.eliminated.append(Elimination(i, self.t, left, right))

    def _radius_of(self, n: Array) -> Array:
        """h: how far an average of n rewards may stray; s covers the varying maximum too where action sets vary."""
        s = theory.elimination_spread(self.model.noise, self._ranges, varying=len(self._offers) > 1)
        radius = theory.elimination_radius(n, len(self.epsilons), self._delta_test, s, self._radius)
        return np.asarray(radius)

    def _bound(self, i: int, *, pending: bool = False) -> float:
        """R_i: realised, or min{c₁(B√γ + γ)√n + c₂ε̂√γ·n, range·n}; with the pending rounds, for choosing."""
        waiting = [q for q in self._queries.values() if q.details["base"] == i] if pending else []
        if self._bounds == "realised":
            return self.candidate_bounds[i] + float(sum(q.details["bound"] for q in waiting))
        n, m, delta = self.counts[i] + len(waiting), self._learners[i].model, self._learners[i].delta
        return float(theory.candidate_bound(m, n, self._gains[i], self.epsilons[i], delta, self._ranges[i]))

    # -- what a user sees ------------------------------------------------------------------------------------

    def _feeds_of(self, query: Query) -> list[Posterior]:
        return self._feeds if self._shared else [self._learners[query.details["base"]].posterior]

    @property
    def _reported(self) -> Learner:
        """The active base that allows for the most misspecification (of several kernels: the lowest index of those)."""
        return self._learners[max(self.active, key=lambda i: (self.epsilons[i], -i))]

    @property
    def posterior(self) -> Posterior:
        """Of the most cautious active base, whose bands `band` and `recommend` report."""
        return self._reported.posterior

    def _trusted(self) -> bool:
        """What contradicts the smallest ε̂ is what the other bases are for: only the reported one must hold."""
        return self.guaranteed and not self._conflicts_of(self._reported)

    def band(self, X: ArrayLike | None = None) -> Band:
        if X is None:
            self._needs_finite("band() without points")
        learner = self._reported
        band = learner.band(learner.candidates(None if X is None else self._parse_actions(X), pending=False))
        return Band(band.lower, band.upper)

    @property
    def conflicts(self) -> list[Conflict]:
        """Against the base with the smallest ε̂."""
        return self._conflicts_of(self._learners[min(range(len(self.epsilons)), key=lambda i: self.epsilons[i])])

    def _encoded_settings(self) -> dict[str, Any]:
        bases = self._settings["bases"]
        custom = {
            id(m.kernel) for m in [self.model, *(m for m, _ in bases or [])] if "custom" in encode_kernel(m.kernel)
        }
        if len(custom) > 1:
            raise InvalidInput("bases with several custom kernels cannot be stored; use kernels of scikit-learn")
        stored = None if bases is None else [[encode_model(m), e] for m, e in bases]
        return {**self._settings, "bases": stored}

    @classmethod
    def _decoded_settings(cls, settings: dict[str, Any], kernel: Any) -> dict[str, Any]:
        bases = settings["bases"]
        return {**settings, "bases": None if bases is None else [(decode_model(m, kernel), e) for m, e in bases]}


def kernel_key(kernel: Any) -> str:
    """Equal for kernels that are the same: by name and parameters, or by identity where they are not known."""
    stored = encode_kernel(kernel)
    return f"custom {id(kernel)}" if "custom" in stored else json.dumps(stored, sort_keys=True)


def _pairs(bases: Any) -> list[tuple[Model, float]]:
    try:
        pairs = [(m, number("epsilon of a base", e, at_least=0)) for m, e in bases]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"bases must be a list of (Model, epsilon) pairs: {error}") from None
    if not pairs or not all(isinstance(m, Model) for m, _ in pairs):
        raise InvalidInput("bases must be a list of (Model, epsilon) pairs with at least one in it")
    return pairs


def _where(query: Query) -> ArrayLike:
    return np.array([query.index]) if query.index is not None else query.x[None, :]


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidInput(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
