"""Policies over several bases, one of which speaks for all; and a ledger of the rounds that these have played."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from misspec import kernels, search
from misspec.encoding import kernel_key
from misspec.errors import Array, InvalidInput, shown, whole
from misspec.model import Model
from misspec.policies.core.field import Field
from misspec.policies.core.hooks import Abilities
from misspec.policies.core.log import Asked
from misspec.policies.core.points import Actions, Candidates, Context, Round
from misspec.policies.ec_gp_ucb import Maximiser
from misspec.policies.enlarged import Banded, Enlarged, keeps_weights
from misspec.theory.bounds import LEAST
from misspec.theory.widths import Width

DOUBLED = 500  # pending rounds that can double a potential: more would overflow, and decide nothing
VARIES = "varies"  # what is kept of an action set once two different ones were seen


@dataclasses.dataclass(frozen=True)
class Elimination:
    """Base `base` was dropped after `round` told observations: its optimistic average `left` fell below `right`."""

    base: int
    round: int
    left: float
    right: float


class Ledger:
    """Rounds by the base that played them (`base` in the details of their queries, and `bound` where there are bounds).

    A round counts once it is told and every round before it is told or dropped: results that were chosen by their
    values count no earlier than others.

    N, J, R    rounds that count, their rewards and their bounds, per base
    h          radius of the elimination test, of the bases for which it is known
    """

    def __init__(self, bases: int) -> None:
        self.N = [0] * bases
        self.J = [0.0] * bases
        self.R = [0.0] * bases
        self.h: dict[int, float] = {}
        self._open: OrderedDict[int, tuple[Asked, float | None]] = OrderedDict()  # rounds that do not count yet
        self._waiting = [0] * bases  # their number
        self._waiting_R = [0.0] * bases

    def __len__(self) -> int:
        """Rounds that do not count yet."""
        return len(self._open)

    def ask(self, asked: Asked) -> None:
        self._open[asked.query.id] = (asked, None)
        self._await(asked, 1)

    def tell(self, asked: Asked, y: float) -> list[tuple[Asked, float]]:
        """Enter a result; return the rounds that can now be counted."""
        self._open[asked.query.id] = (asked, y)
        return self._counted()

    def drop(self, asked: Asked) -> list[tuple[Asked, float]]:
        """Remove a dropped round; return the rounds that can now be counted."""
        self._await(asked, -1)
        del self._open[asked.query.id]
        return self._counted()

    def _counted(self) -> list[tuple[Asked, float]]:
        counted = []
        while self._open:
            id_, (asked, y) = next(iter(self._open.items()))
            if y is None:
                break
            del self._open[id_]
            counted.append((asked, y))
        return counted

    def count(self, asked: Asked, y: float) -> int:
        """Count a round: N, J and R of its base, which is returned."""
        self._await(asked, -1)
        i: int = asked.details["base"]
        self.N[i] += 1
        self.J[i] += y
        self.R[i] += asked.details.get("bound", 0.0)
        self.h.pop(i, None)
        return i

    def fill(self, radius: Callable[[Array], Array]) -> None:
        """h of the bases that have played and whose count has changed."""
        for i, n in enumerate(self.N):
            if n and i not in self.h:
                self.h[i] = float(radius(np.array([n], dtype=np.float64))[0])

    def _await(self, asked: Asked, change: int) -> None:
        i, bound = asked.details["base"], asked.details.get("bound", 0.0)
        self._waiting[i] += change
        self._waiting_R[i] = self._waiting_R[i] + change * bound if self._waiting[i] else 0.0

    def plays(self, i: int) -> int:
        """Rounds of a base, with those that do not count yet."""
        return self.N[i] + self._waiting[i]

    def bound_with_pending(self, i: int) -> float:
        """R of a base, with rounds that do not count yet."""
        return self.R[i] + self._waiting_R[i]


class Learnt:
    """Learnt regret coefficients d̂ and potentials φ of bases whose regret bounds are not known (ED²RB).

    Dann, Gentile & Pacchiano, *Data-driven online model selection with regret guarantees* (AISTATS 2024). With the
    rewards û_j = J_j and the rounds n_j = N_j of base j, after a round of base i

        d̂_i ← max{d_min, √n_i·(max_j [û_j/n_j − h_j] − û_i/n_i − h_i)}      what its regret proves of its coefficient
        φ_i ← clip(d̂_i√n_i; φ_i, 2φ_i)                                      its potential

    and the base with the smallest φ plays. No base is dropped: one that loses is played less and less, and comes back
    if the others turn out worse. `theory.learnt_bound` says what regret is. All in units of the noise σ; d_min is
    `LEAST` of these.
    """

    def __init__(self, bases: int) -> None:
        self.coefficients = [LEAST] * bases
        self.potentials = [LEAST] * bases

    def learn(self, i: int, ledger: Ledger, noise: float) -> None:
        """A round of base i counts from now on; the ledger has h of every base that has played."""
        N, J, h = ledger.N, ledger.J, ledger.h
        root = math.sqrt(N[i])
        best = max(J[j] / N[j] - h[j] for j in h)
        self.coefficients[i] = max(LEAST, root * (best - J[i] / N[i] - h[i]) / noise)
        self.potentials[i] = min(max(self.coefficients[i] * root, self.potentials[i]), 2.0 * self.potentials[i])

    def potential(self, i: int, ledger: Ledger) -> float:
        """φ_i as it will be once pending rounds count, if they leave d̂_i as it is: so that batches are divided."""
        plays, now = ledger.plays(i), self.potentials[i]
        doubled = 2.0 ** min(plays - ledger.N[i], DOUBLED) * now
        return max(now, min(self.coefficients[i] * math.sqrt(plays), doubled))


class ActionSets:
    """Whether rounds offer the same actions: digests of the sets seen, of which more than one means that they vary."""

    def __init__(self, field: Field) -> None:
        self._field = field
        self._seen: set[str] = set()

    @property
    def vary(self) -> bool:
        return len(self._seen) > 1

    def digest(self, actions: Round) -> str:
        """What is kept of an action set; once two different ones were seen, nothing but that they vary."""
        if self.vary:
            return VARIES
        if isinstance(actions, Context):
            return hashlib.sha256(actions.c.tobytes()).hexdigest()[:16]
        if actions is None or actions.are_all(self._field.size):
            return "all"
        points, rows = actions.points, actions.rows
        distinct = search.distinct(points).points if rows is None else np.unique(np.asarray(rows))
        return hashlib.sha256(distinct.tobytes()).hexdigest()[:16]

    def see(self, digest: str) -> bool:
        """Whether this one is new."""
        new = digest not in self._seen
        self._seen.add(digest)
        return new


def check_base(details: Mapping[str, Any], bases: int) -> int:
    """The base of a stored query, which has a digest of its offer too."""
    if not isinstance(details.get("offer"), str):
        raise InvalidInput(f"offer of a stored query must be text, got {shown(details.get('offer'))}")
    return whole("base of a stored query", details.get("base"), at_most=bases - 1)


class OverBases(Banded):
    """A policy whose bands and recommendation are those of one of its bases, and whose rounds count in order."""

    abilities = Abilities(keeps_rounds=True)
    _bases: list[Enlarged]
    _ledger: Ledger

    def _make_bases(
        self, pairs: Sequence[tuple[Model, float]], *, shared: bool, budget: int | None = None, **options: Any
    ) -> list[Enlarged]:
        """A base for each (model, ε̂); one posterior per kernel and ridge (shared), or one per base."""
        groups: dict[Any, list[int]] = {}
        for i, (m, _) in enumerate(pairs):
            groups.setdefault((kernel_key(m.kernel), m.regularization, m.offset) if shared else i, []).append(i)
        bases: dict[int, Enlarged] = {}
        for members in groups.values():
            weights = keeps_weights(options["enlargement"], [pairs[i][1] for i in members], budget)
            posterior = self._evidence.posterior(pairs[members[0]][0], weights=weights, budget=budget)
            for i in members:
                (m, epsilon), delta, flat = pairs[i], self._delta / len(groups), not self.field.fixed
                bases[i] = Enlarged(m, posterior, self._own, epsilon=epsilon, delta=delta, flat=flat, **options)
        return [bases[i] for i in range(len(pairs))]

    @abc.abstractmethod
    def _count(self, asked: Asked, y: float) -> None:
        """A round of a base counts from now on."""

    def on_ask(self, asked: Asked) -> None:
        if not asked.of_others:  # else no base chose it: evidence only, which none of N, J, R and the tests counts
            self._ledger.ask(asked)

    def on_tell(self, asked: Asked, y: float, noise: float | None = None) -> None:  # noqa: ARG002  # none
        super().on_tell(asked, y)
        for counted, value in [] if asked.of_others else self._ledger.tell(asked, y):
            self._count(counted, value)

    def on_drop(self, asked: Asked) -> None:
        super().on_drop(asked)
        for counted, value in [] if asked.of_others else self._ledger.drop(asked):
            self._count(counted, value)

    def _told(self, i: int, decided: Maximiser, *, everywhere: bool) -> tuple[Candidates, int, float, float]:
        """A choice of base i by told data only: what is known of the offer, or of the point alone; the row of the point
        there; its mean, and half of the base's band for f̃."""
        base, c, row, reasons = self._bases[i], decided.known, decided.row, decided.reasons
        if not base.posterior.pending:
            return c, row, reasons["mean"], reasons["multiplier"] * reasons["std"] + reasons["enlargement"]
        offer = decided.offer  # while queries are pending, choices are made by a smaller variance
        if not everywhere:
            only = self.field.place(offer, row).only()
            offer, row = only.offered() if c.flat else only, 0
        c = self.field.look(base.posterior, base.own, offer, pending=False)
        return c, row, float(c.mean[row]), float(base.half(c)[row])


class Eliminating(OverBases):
    """Bases that may have models of their own; those whose regret bound the rewards refute are dropped."""

    abilities = Abilities(keeps_rounds=True, draws=False)
    active: Any  # bases that are left, in ascending order

    def _make_models(self, models: Sequence[Model], width: Width) -> None:
        """One base without misspecification for each of these models, all with the same δ."""
        self._promise(width, *models)
        options: dict[str, Any] = {"epsilon": 0.0, "width": width, "enlargement": None, "delta": self._delta}
        self._bases = [Enlarged(m, self._evidence.posterior(m), None, **options) for m in models]
        self._keep_accounts(models)

    def _keep_accounts(self, models: Sequence[Model]) -> None:
        """Begin with one base for each of these models."""
        self._ledger = Ledger(len(models))
        self.counts, self.rewards, self.candidate_bounds = self._ledger.N, self._ledger.J, self._ledger.R
        self.eliminated: list[Elimination] = []
        own = {kernel_key(model.kernel): model.kernel for model in models}
        self._others = [kernel for key, kernel in own.items() if key != kernel_key(self.model.kernel)]

    def _refuted(self, now: int) -> list[int]:
        """Note each i with J_i/N_i + R_i/N_i + h_i < max over j of J_j/N_j − h_j. The maximiser never fails."""
        N, J, R, h = self._ledger.N, self._ledger.J, self._ledger.R, self._ledger.h
        played = [i for i in self.active if N[i] > 0]
        right = max((J[j] / N[j] - h[j] for j in played), default=-math.inf)
        lefts = {i: (J[i] + R[i]) / N[i] + h[i] for i in played}
        failed = [i for i, left in lefts.items() if left < right]
        for i in failed:
            self.eliminated.append(Elimination(i, now, lefts[i], right))
            self._say("after %d rounds base %d is dropped", now, i)
        return failed

    def admit(self, actions: Actions) -> Actions:
        """Bases may have kernels of their own, each of which has to be at most 1 there."""
        for kernel in self._others:
            kernels.check_bounded(kernel, actions.encoded, "the points handed in, for the kernel of a base")
        return actions
