"""Regret bound balancing over EC-GP-UCB bases: contextual, misspecification unknown (the paper's Algorithm 3).

Read with the paper's slips put right: the test compares averages per round, and only the base that played counts
up (docs/paper.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from misspec import theory
from misspec.domains import Domain
from misspec.encoding import kernel_key
from misspec.errors import Array, InvalidInput, number, one_of, shown, whole
from misspec.model import Model
from misspec.policies.bases import ActionSets, Eliminating, Learnt, check_base
from misspec.policies.core.answers import Decision
from misspec.policies.core.field import RESOLUTION
from misspec.policies.core.log import Asked
from misspec.policies.core.points import Round
from misspec.policies.core.registry import Delayed
from misspec.policies.ec_gp_ucb import Maximiser, decide
from misspec.policies.enlarged import Enlarged
from misspec.theory import information_gain
from misspec.theory.widths import Width

KINDS = ("price", "rounds", "proof")
SEEKING = 1.5  # times √t: cautious rounds while a proof is sought


class RegretBalancing(Eliminating):
    """Plays the active base with the smallest candidate regret bound; drops bases whose bound the rewards refute.

    horizon: T, for the grid of candidates. bounds: "realised" (sums of the bands' widths at the points played),
    "paper", or "learnt" (ED²RB, `bases.Learnt`: from the rewards alone; every base stays, without price and
    caution). evidence: "shared" (one posterior for all bases of one kernel) or "own". bases: (Model, ε̂) pairs instead
    of the grid. caution: what keeps bases with ε̂ > 0 from playing all the time, "price" (that factor on their bound
    when choosing who plays), "rounds" (together they play √t of them) or "proof" (1.5√t, and once the model is proved
    wrong the price, for as long as caution pays: see `Caution`); None: proof where rounds bring their own actions or
    contexts (and evidence is shared and grounded), else the price. epsilon_max: the largest candidate, B by default;
    the guarantee is for ε up to it.
    reward_range: how far rewards' expectations can lie apart; 2(B + ε̂) by default. gain: an upper bound on γ_T, for
    bounds="paper" (computed per kernel if not given).
    radius: of the elimination test, "anytime" or "paper". budget, resolution, delays: as for GPUCB.

    To read: `epsilons` (ε̂ per base), `active` (bases still played), `counts`, `rewards`, `candidate_bounds` (N, J, R of
    each base, over the rounds told before any pending one; learnt bounds: φ, and d̂ as `coefficients`, in units of the
    noise), `eliminated` (base, round, both sides of the failed test).
    Bands and `recommend().gap` are those of the most cautious active base: they hold for any ε up to its ε̂, and are as
    wide as that; a smaller epsilon_max narrows them. The horizon shapes the grid; more rounds can be asked for.
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
        caution: str | None = None,
        epsilon_max: float | None = None,
        reward_range: float | None = None,
        gain: float | None = None,
        width: Width = "mixture",
        enlargement: str | None = None,
        radius: str = "anytime",
        inflate: bool = False,
        budget: int | None = None,
        resolution: float | None = RESOLUTION,
        **settings: Unpack[Delayed],
    ) -> None:
        # parts of δ: model widths and the elimination test
        super().__init__(domain, model, grounded=grounded, parts=2, resolution=resolution, **settings)
        model = self.model
        T = self.horizon = whole("horizon", horizon, at_least=1)
        self._bounds = one_of("bounds", bounds, ("realised", "paper", "learnt"))
        self._shared = one_of("evidence", evidence, ("shared", "own")) == "shared"
        self._radius = one_of("radius", radius, ("anytime", "paper"))
        if bounds == "paper" and self._shared:
            raise InvalidInput('bounds="paper" are for bases that learn alone: use evidence="own" or bounds="realised"')
        reward_range = None if reward_range is None else number("reward_range", reward_range, above=0)
        gain = None if gain is None else number("gain (γ_T)", gain, above=0)
        self._known_gains: dict[str, float] = {}
        pairs = _pairs(bases, turned=self.minimize) if bases is not None else self._grid(T, gain, epsilon_max)
        self._promise(width, *(m for m, _ in pairs))
        told = (bounds, radius, enlargement, width, price, bases)
        as_in_paper = told == ("paper", "paper", "paper", "lemma1", 1.0, None)
        self.theorem = "Proposition 1" if as_in_paper and not self.grounded else ""
        # 1   M bases with candidates ε̂_i, all active, N_i = 0
        self._keep_accounts([m for m, _ in pairs])
        self.epsilons = [e for _, e in pairs]
        provable = self._shared and self.grounded and bounds == "realised"  # own bands beside one posterior for all
        self._learnt = Learnt(len(pairs)) if bounds == "learnt" else None
        if self._learnt is not None:
            if caution is not None:
                raise InvalidInput('bounds="learnt" know of no caution: the rewards say who plays; leave caution= out')
            self._ledger.R[:] = self._learnt.potentials
            caution, price = "price", 1.0
        if caution is None:
            caution = "price" if self.field.fixed or not provable else "proof"
        self.caution = Caution(caution, price, self.epsilons, model.noise, self._delta)
        if self.caution.kind == "proof" and not provable:
            raise InvalidInput('caution="proof" needs evidence="shared", grounded=True and bounds="realised"')
        self.theorem = "" if self.caution.kind != "price" or budget is not None else self.theorem
        self._ranges = [reward_range or 2.0 * (m.norm_bound + e) for m, e in pairs]
        self.gains = [self._gain_of(m, T, gain) if bounds == "paper" else math.nan for m, _ in pairs]
        options: dict[str, Any] = {"enlargement": enlargement, "width": width, "inflate": inflate}
        self._bases = self._make_bases(pairs, shared=self._shared, budget=budget, **options)
        self.active = list(range(len(pairs)))  # I_t
        self._offers = ActionSets(self.field)

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, *, horizon: int, **options: Any) -> RegretBalancing:
        """Algorithm 3 with the paper's bases, grid, bounds and radius; options: reward_range, gain, bases."""
        chosen: dict[str, Any] = {
            "bounds": "paper", "evidence": "own", "grounded": False, "price": 1.0, "caution": "price",
            "width": "lemma1", "enlargement": "paper", "radius": "paper", **options,
        }  # fmt: skip
        return cls(domain, model, horizon=horizon, **chosen)

    # -- Algorithm 3 -----------------------------------------------------------------------------------------

    def choose(self, actions: Round) -> Decision:
        # 5   i_t ∈ argmin over active i of R_i(N_i(t−1)), times the price of caution; ties to the lowest
        plays = [self._ledger.plays(i) for i in range(len(self._bases))]
        affordable, prices = self.caution.affordable(self.active, plays), self.caution.prices
        i = min(affordable, key=lambda i: prices[i] * self._bound(i, pending=True))
        decided = decide(self._bases[i], self.field, actions, self.log.next_id)  # 6   base i_t plays x_t
        details = {"base": i, "epsilon": self.epsilons[i], **self._realised(i, decided)}
        details["offer"] = self._offers.digest(actions)
        details |= self.caution.noted(i, decided, self._eager(i))
        return decided.decision(self.field, actions, details=details)

    def on_ask(self, asked: Asked) -> None:
        super().on_ask(asked)
        if asked.of_others:
            return
        if self._offers.see(asked.details["offer"]):  # 4   D_t was received
            self._ledger.h.clear()
        if not self._shared:
            self._evidence.restrict(asked.query.id, [self._bases[asked.details["base"]].posterior])
        self.caution.asked(asked.details)

    def _count(self, asked: Asked, y: float) -> None:
        """Rounds count in the order asked, up to the first pending one: a set chosen by its values would be biased."""
        i = self._ledger.count(asked, y)  # 6, 7   y_t is observed; N_i, J_i and R_i
        self._ledger.fill(self.elimination_radius)
        if self._learnt is not None:
            self._learnt.learn(i, self._ledger, self.model.noise)
        if self._bounds != "realised":
            self._ledger.R[i] = self._bound(i)
        self.caution.counted(asked.place.key, asked.details, y)
        if self._learnt is None:  # 8   update the active set
            counted = sum(self.counts) + self.log.t - self.log.answered  # whatever the order of telling
            failed = self._refuted(counted)
            self.active = [i for i in self.active if i not in failed]

    # -- its parts -------------------------------------------------------------------------------------------

    def check_details(self, details: Mapping[str, Any]) -> None:
        check_base(details, len(self._bases))
        for name in ("bound", *({"expected"} & set(details))):
            number(f"{name} of a stored query", details.get(name))

    def _eager(self, i: int) -> Enlarged | None:
        """A base with ε̂ = 0 on the posterior of base i, if there is one."""
        eager = (self._bases[j] for j in self.active if self.epsilons[j] == 0)
        return next((base for base in eager if base.posterior is self._bases[i].posterior), None)

    def _realised(self, i: int, decided: Maximiser) -> dict[str, Any]:
        """`bound`: by how much R_i grows when base i plays this point, its band's width before the point is observed.

        And `refuted`, where own bands prove that ε > 0, by not meeting at an action on offer those of a base with
        ε̂_i = 0.
        """
        if self.log.partial:  # the bands may be biased now
            return {"bound": self._ranges[i]}
        if self._bounds != "realised":
            return {"bound": 0.0}
        looks = self.caution.looks(i)
        c, row, mean, half = self._told(i, decided, everywhere=looks)
        half += self.epsilons[i]
        if c.own is None:
            return {"bound": min(self._ranges[i], 2.0 * half)}
        # grounded, as in `own_bands.ground`
        low, high = (float(end[row]) for end in c.own)
        lower, upper = max(mean - half, low), min(mean + half, high)
        bound = min(self._ranges[i], upper - lower if lower <= upper else high - low)
        if looks:
            reach = self._bases[i].half(c)
            if ((c.own[0] > c.mean + reach) | (c.own[1] < c.mean - reach)).any():
                return {"bound": bound, "refuted": True}
        return {"bound": bound}

    def _bound(self, i: int, *, pending: bool = False) -> float:
        """R_i: realised, or min{c₁(B√γ + γ)√n + c₂ε̂√γ·n, range·n}; with rounds that do not count yet, for choosing."""
        if self._bounds == "realised":
            return self._ledger.bound_with_pending(i) if pending else self._ledger.R[i]
        if self._learnt is not None:
            return self._learnt.potential(i, self._ledger) if pending else self._learnt.potentials[i]
        n, base = self._ledger.plays(i) if pending else self._ledger.N[i], self._bases[i]
        return theory.candidate_bound(base.model, n, self.gains[i], self.epsilons[i], base.delta, self._ranges[i])

    def elimination_radius(self, n: Array) -> Array:
        """h: how far an average of n rewards may stray; covers the varying maximum too where action sets vary."""
        s = theory.elimination_spread(self.model.noise, self._ranges, varying=self._offers.vary)
        return theory.elimination_radius(n, len(self.epsilons), self._delta, s, self._radius)

    def _grid(self, T: int, gain: float | None, epsilon_max: float | None) -> list[tuple[Model, float]]:
        if self._bounds == "paper":
            return [(self.model, e) for e in theory.paper_candidates(T, self._gain_of(self.model, T, gain))]
        top = self.model.norm_bound if epsilon_max is None else number("epsilon_max", epsilon_max, above=0)
        return [(self.model, e) for e in theory.halving_candidates(T, top)]

    def _gain_of(self, m: Model, T: int, gain: float | None) -> float:
        """γ_T, computed once per kernel."""
        if gain is not None:
            return gain
        if not self.field.fixed:
            raise InvalidInput(
                f'bounds="paper" need an upper bound on γ_T, which is computed for fixed domains only, not for '
                f"{shown(self.domain)}; say what it is: gain=…"
            )
        key = f"{kernel_key(m.kernel)} {m.regularization}"
        if key not in self._known_gains:
            self._known_gains[key] = information_gain(self.domain, m, T).upper
        return self._known_gains[key]

    # -- what a user sees ------------------------------------------------------------------------------------

    @property
    def _reported(self) -> Enlarged:
        """The active base that allows for the most misspecification (of several kernels: the lowest index of those)."""
        return self._bases[max(self.active, key=lambda i: (self.epsilons[i], -i))]

    @property
    def coefficients(self) -> list[float]:
        """d̂ of each base in units of the noise, for learnt bounds; else none."""
        return [] if self._learnt is None else list(self._learnt.coefficients)

    @property
    def facts(self) -> dict[str, Any]:
        facts = {"epsilons": list(self.epsilons), "counts": list(self.counts), "eliminated": list(self.eliminated)}
        return facts if self._learnt is None else {**facts, "coefficients": self.coefficients}


def _pairs(bases: Any, *, turned: bool) -> list[tuple[Model, float]]:
    """The bases that were handed in; turned: as models of −y."""
    try:
        pairs = [(m, number("epsilon of a base", e, at_least=0)) for m, e in bases]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"bases must be a list of (Model, epsilon) pairs: {error}") from None
    if not pairs or not all(isinstance(m, Model) for m, _ in pairs):
        raise InvalidInput("bases must be a list of (Model, epsilon) pairs with at least one in it")
    return [(m.turned(), e) for m, e in pairs] if turned else pairs


class Caution:
    """Who may play in regret bound balancing: what caution costs, and what it has to show for it.

    Bases with ε̂ > 0 are *cautious*. They look where a wrong model would hide something, which is wasted where the
    model is right. What keeps them from playing all the time:

    price     the bound of a cautious base counts `price` times when the next one to play is chosen
    rounds    together they play √t rounds, whatever their bounds; the eager bases (ε̂ = 0) play the others
    proof     1.5√t rounds, until the own band of a point and the model's for ε = 0 do not meet: with probability
              1 − δ that happens only where the model is wrong. From then on a price, for as long as caution pays;
              √t rounds while it does not

    Caution pays while Σ(y − what the eager base expected of its own choice) over cautious rounds is not below
    −σ√(2t ln(1/δ)), a loss beyond noise. Later results at points found this way count too, whichever base plays
    them, if they improve the sum. A proof rests on bands: with a width that is a number it is a rule of thumb. It is
    one for all bases, whatever their kernels. All this changes only with rounds that are asked and counted.
    """

    def __init__(self, kind: str, price: float, epsilons: Sequence[float], noise: float, delta: float) -> None:
        self.kind = one_of("caution", kind, KINDS)
        price = number("price", price, above=0)
        self.prices = [1.0 if e == 0 or self.kind == "rounds" else price for e in epsilons]
        self._luck = noise * math.sqrt(2.0 * math.log(1.0 / delta))  # σ√(2 ln(1/δ))
        self._cautious = [e > 0 for e in epsilons]
        self.refuted = False  # whether the bands of some point have proved that ε > 0
        self.earned = 0.0
        # points that caution found: what was expected instead, and by how much later results exceed that in all
        self._found: dict[int | bytes, tuple[float, float]] = {}

    def affordable(self, active: list[int], plays: Sequence[int]) -> list[int]:
        """The active bases among which the next one is chosen; plays: rounds that each base has played so far."""
        if self.kind == "price" or (self.kind == "proof" and self.refuted and self._pays(sum(plays))):
            return active
        parts = [[i for i in active if self._cautious[i] == side] for side in (True, False)]
        if not all(parts):
            return active
        spent = sum(n for n, cautious in zip(plays, self._cautious, strict=True) if cautious)
        ration = SEEKING if self.kind == "proof" and not self.refuted else 1.0
        return parts[0] if spent < ration * math.sqrt(sum(plays) + 1) else parts[1]

    def _pays(self, t: int) -> bool:
        return self.earned > -self._luck * math.sqrt(t)

    def looks(self, i: int) -> bool:
        """Whether a round of base i may be a proof."""
        return self.kind == "proof" and not self.refuted and not self._cautious[i]

    def noted(self, i: int, decided: Maximiser, eager: Enlarged | None) -> dict[str, Any]:
        """Details that a cautious round needs when its result comes: what an eager base, on the same
        posterior, expected of its own choice among what was looked at."""
        if self.kind != "proof" or not self._cautious[i] or eager is None:
            return {}
        c = decided.known
        row, _, _ = eager.maximiser(c, eager.scores(c))
        if row == decided.row:
            return {}
        expected = float(c.mean[row])
        if c.own is not None:
            expected = min(max(expected, float(c.own[0][row])), float(c.own[1][row]))
        return {"expected": expected}

    def asked(self, details: Mapping[str, Any]) -> None:
        self.refuted = self.refuted or bool(details.get("refuted", False))

    def counted(self, key: int | bytes, details: Mapping[str, Any], y: float) -> None:
        if "expected" in details:
            self._found.setdefault(key, (details["expected"], 0.0))
            self.earned += y - details["expected"]
        elif key in self._found:
            expected, before = self._found[key]
            after = before + y - expected
            self._found[key] = (expected, after)
            self.earned += max(after, 0.0) - max(before, 0.0)
