"""Domain splitting: posteriors of their own on ever smaller cells (a comparator, not from the paper).

After π-GP-UCB (Janz, Burt & González, Bandit optimisation of functions in the Matérn kernel RKHS, AISTATS 2020), with
the paper's enlargement per cell, which is the form in which Maran & Szepesvári (arXiv 2605.05967) free ε of the factor
√γ. Of the latter only abstract and first page were read: how δ is shared, what ancestors do and the bound are ours.

1   cells = {D}, whose side is 1
2   for t = 1, 2, …
3       play x_t ∈ argmax of the least, over x's cell A and its ancestors, of μ^A + β^A·σ^A + ε‖ζ^A‖₁   `choose`
4       observe y_t, and update μ^A and σ^A                                                    `Evidence.learn`
5       if N_A > ρ_A^{−2ν}: halve A in every direction, and divide its results                    `_split_full`

Why: in a cell Σ_t 2ε√(N_A/λ)·σ^A(x_t) ≤ 2εN_A√(Cγ_A/λ), and by line 5 γ_A is polylogarithmic; of one posterior it is
γ_T.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

from misspec import kernels
from misspec.comparators.cells import Cell, CellRecord, Cells
from misspec.domains import Domain
from misspec.errors import Array, number, one_of
from misspec.model import Model
from misspec.policies.core.answers import Band, Decision
from misspec.policies.core.field import RESOLUTION, Search
from misspec.policies.core.hooks import Abilities
from misspec.policies.core.log import Asked
from misspec.policies.core.points import Actions, Context, Place, Round, first_alike
from misspec.policies.core.policy import Policy
from misspec.policies.core.registry import Delayed
from misspec.policies.ec_gp_ucb import decision
from misspec.policies.enlarged import contenders, keeps_weights
from misspec.posterior import Posterior
from misspec.theory import cell_limit, own_bands
from misspec.theory.widths import Width

DEEPEST = 20  # level of the smallest cells, with sides of a millionth: beyond it rounding would decide who is inside
SMOOTH = 2.5  # ν for kernels smoother than any Matérn kernel, for which any rule serves; that of `ProductMatern`


class DomainSplitting(Policy):
    """EC-GP-UCB on cells, which are halved in every direction once more than ρ_A^{−2ν} results lie in them.

    On a box or a list, whose cells are those of its box, or else of the cube around it. With rough kernels it loses
    less than ECGPUCB; with smooth ones up to three times as much, since cells throw data away, unless
    ancestors="learning" (docs/which-policy.md).

    epsilon, enlargement, grounded, width, resolution, delays: as for ECGPUCB. smoothness: ν; None: the kernel's, if it
    is a Matérn kernel, else 5/2. δ is shared by all cells that can ever exist, so that all their bands hold at once.
    ancestors: cells that were split keep the bands that they had then ("kept"), or go on learning, so that no more is
    lost to ECGPUCB than by sharing δ ("learning"), or do not count ("forgotten"). Where the bands of a cell and of its
    ancestors do not meet, its own stands. rule: "information", or "elements", which is that of π-GP-UCB,
    N_A + 1 > ρ_A^{−(d + 2ν)/(d + 1)}.

    Cells are split before the next query. To read: `cells` (those not split) and `splits` (the others, in the order of
    splitting), a `CellRecord` each.
    `posterior` is that of all results, to be looked at. `theory.splitting_bound` bounds the regret by its cells.
    """

    abilities = Abilities(draws=False)

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        epsilon: float = 0.0,
        enlargement: str | None = None,
        grounded: bool = True,
        smoothness: float | None = None,
        ancestors: str = "kept",
        rule: str = "information",
        width: Width = "mixture",
        resolution: float | None = RESOLUTION,
        **settings: Unpack[Delayed],
    ) -> None:
        super().__init__(domain, model, grounded=grounded, resolution=resolution, **settings)
        model = self.model
        self._epsilon = number("epsilon", epsilon, at_least=0)
        self._rule = one_of("rule", rule, ("information", "elements"))
        known = kernels.smoothness(model.kernel)
        known = known if math.isfinite(known) else SMOOTH
        self.smoothness = known if smoothness is None else number("smoothness (ν)", smoothness, above=0)
        one_of("ancestors", ancestors, ("kept", "learning", "forgotten"))
        weights = ancestors == "learning" and keeps_weights(enlargement, [self._epsilon], None)
        self._whole = self._evidence.posterior(model, weights=weights)
        self._cells = Cells(
            self.field, model, self._whole, ancestors=ancestors, delta=self._delta,
            epsilon=self._epsilon, width=width, enlargement=enlargement,
        )  # fmt: skip
        self._full: list[Cell] = []  # cells to be split
        self._promise(width, model)

    @classmethod
    def as_in_paper(cls, domain: Domain, model: Model, **settings: Unpack[Delayed]) -> DomainSplitting:
        """π-GP-UCB: ε = 0, its rule, and cells alone. The multiplier is that of Lemma 1; δ is shared as above."""
        return cls(domain, model, width="lemma1", grounded=False, ancestors="forgotten", rule="elements", **settings)

    # -- the algorithm ---------------------------------------------------------------------------------------

    def choose(self, actions: Round) -> Decision:
        offer = self.field.offer(lambda: self._search(self.log.next_id), actions)
        upper = self._cells.ends_at(offer, pending=True)[1]
        if self._own is not None:
            upper = own_bands.grounded_upper(upper + self._epsilon, *self._own_at(offer))
        row = first_alike(offer, int(upper.argmax()))  # 3
        cell, here = self._cells.look(self.field.place(offer, row), pending=True)
        multiplier, std = cell.ends.multiplier, float(cell.ends.std(here)[0])
        reasons = {"mean": float(here.mean[0]), "std": std, "multiplier": multiplier, "upper": float(upper[row])}
        reasons["enlargement"] = float(cell.ends.half(here)[0]) - multiplier * std
        return decision(self.field, actions, offer, row, **reasons, details={"level": cell.level})

    def prepare(self) -> None:
        self._evidence.expect()  # as before every query that is replayed
        self._split_full()

    def _split_full(self, *, but: int = -1) -> None:
        """Line 5, before a query, so that the order of telling makes no difference. Pending queries (`but` the one that
        is being asked) go to the cells that they then lie in."""
        while self._full:
            cell = min(self._full, key=lambda cell: (cell.level, cell.corner.tolist()))
            self._full.remove(cell)
            pending = [each for each in self.log.pending.values() if each.query.id != but]
            waiting = [asked for asked in pending if self._cells.leaf(asked.place.code) is cell]
            self._cells.split(cell, self.log.t)
            for asked in waiting:
                part, gone = self._cells.leaf(asked.place.code), cell.posterior if cell.frozen else None
                self._evidence.redirect(asked.query.id, asked.place, part.posterior, gone)
            self._full += [part for part in cell.children if self._is_full(part)]
            self._say("after %d results a cell of level %d is split", self.log.t, cell.level)

    def _is_full(self, cell: Cell) -> bool:
        limit = cell_limit(cell.level, self.smoothness, self._cells.dimension, self._rule)
        return cell.level < DEEPEST and len(cell.results) > limit

    # -- its parts -------------------------------------------------------------------------------------------

    def _learners(self, place: Place) -> list[Posterior]:
        """Posteriors for which something at this place changes, beside that of all results."""
        learners = self._cells.learners(self._cells.leaf(place.code))
        for cell in learners:
            cell.changes += 1
        return [cell.posterior for cell in learners if cell.posterior is not self._whole]

    def _note(self, place: Place, y: float) -> None:
        """A result that the posteriors know."""
        cell = self._cells.leaf(place.code)
        cell.results.append((place.code, y))
        if self._is_full(cell) and cell not in self._full:
            self._full.append(cell)

    def on_ask(self, asked: Asked) -> None:
        self._split_full(but=asked.query.id)
        self._evidence.restrict(asked.query.id, [self._whole, *self._learners(asked.place)])

    def on_tell(self, asked: Asked, y: float, noise: float | None = None) -> None:
        super().on_tell(asked, y, noise)  # 4
        self._learners(asked.place)
        self._cells.leaf(asked.place.code).played += not asked.of_others
        self._note(asked.place, y)

    def on_drop(self, asked: Asked) -> None:
        super().on_drop(asked)
        self._learners(asked.place)

    def on_observe(self, actions: Actions, places: list[Place], y: list[float], noise: Any = None) -> None:
        super().on_observe(actions, places, y, noise)
        for place, value in zip(places, y, strict=True):
            for posterior in self._learners(place):
                posterior.add(place.code, value)
            self._note(place, value)

    def _search(self, turn: int, sign: float = 1.0, *, pending: bool = True) -> Search:
        return self._cells.search(self._whole, self._own, turn, sign, pending=pending)

    def _own_at(self, actions: Actions) -> tuple[Array, Array]:
        own, rows = self._evidence.own, actions.rows
        return own.at(self.field.keys(actions)) if rows is None else (own.lower[rows], own.upper[rows])

    # -- what a user sees ------------------------------------------------------------------------------------

    @property
    def cells(self) -> list[CellRecord]:
        with self._held():
            return [self._cells.record(cell) for cell in self._cells.everything() if not cell.children]

    @property
    def splits(self) -> list[CellRecord]:
        with self._held():
            return [self._cells.record(cell) for cell in self._cells.splits]

    @property
    def epsilon(self) -> float:
        return self._epsilon

    @property
    def posterior_in_use(self) -> Posterior:
        return self._whole

    def band_at(self, actions: Actions) -> Band:
        lower, upper = self._cells.ends_at(actions, pending=False)
        prior, epsilon = kernels.diagonal(self.model.kernel, actions.encoded), self._epsilon
        ends = own_bands.within_class(lower - epsilon, upper + epsilon, self.model, prior, epsilon)
        return Band(*(ends if self._own is None else own_bands.ground(*ends, *self._own_at(actions))))

    def contenders(self, within: Context | None = None) -> Actions:
        return contenders(self.field, self._search, self.log.next_id, within)

    def mean_at(self, place: Place) -> float:
        return float(self._cells.look(place, pending=False)[1].mean[0])

    @property
    def facts(self) -> dict[str, Any]:
        return {"cells": [*self.splits, *self.cells]}
