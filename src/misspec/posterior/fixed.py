"""Features that are fixed when a point arrives: what a step costs then stops growing, whatever the kernel.

`Linear`     linear kernels: φ is known from the start, and nothing is missed
`Budgeted`   at most `budget` points; what a later one has beyond their span is missed, and what is missed is known:

    res_j      k(x_j,x_j) − ‖φ_j‖² when x_j arrives; φ_j has no component along features that come later
    H          Σ_s √res_s φ_sφ_sᵀ over the told observations                                     (r, r)
    ρ, ρ₂      Σ_s √res_s and Σ_s res_s

A member g of norm B is its projection on the span, plus at most B√res(x) at x: to the regression on the projection's
features that is a misfit of b_s = ε + B√res_s at x_s, beside the ε that was there before. With b(x) = Cφ(x), by Cauchy
and Schwarz, the bias that it causes at x is at most

    Σ_s |ζ_s(x)| b_s  ≤  √(Σ_s b_s) · √(Σ_s b_s ζ_s(x)²)  =  √(εt + Bρ) · √(ε‖ζ(x)‖₂² + B·b(x)ᵀHb(x)/λ²)

A point joins by a rule that looks at points alone, in the order of their arrival, and never leaves: a choice that
looked at what comes later would depend on the noise.
"""

from __future__ import annotations

import math

import numpy as np

from misspec import kernels
from misspec.errors import Array
from misspec.model import Model
from misspec.posterior.dictionary import Explained
from misspec.posterior.formulas import FeatureBase
from misspec.posterior.growing import FromDictionary
from misspec.posterior.table import Table
from misspec.posterior.view import View

LEAST = 1e-8  # residual of a point that joins, at least: below, rounding in the pivots would be felt
STEEPNESS = 12  # the residual asked for is (r/budget)^12: next to nothing at half the budget, all of it in the end
CERTAIN = 10.0  # times the error of a residual that it must exceed


class Fixed(FeatureBase):
    """Features that do not change: S and p are all that the regressions need."""

    def _renew(self) -> None:
        self.told.renew()
        if self.with_pending is not None:
            self.with_pending.renew()

    def forget(self) -> bool:
        """All but those that are pending, or features: nothing else is read again, except by ‖ζ‖₁."""
        if not self.view.listed:
            self._keep_rows(sorted({*self.table.pending, *self._members()}))
        return True

    def _members(self) -> list[int]:
        """Rows of points that are features."""
        return []

    def _keep_rows(self, rows: list[int]) -> None:
        self.table.keep(rows)
        if len(self._F.all):  # else features are computed where they are needed
            self._F.replace(self._F.all[rows])

    def add_all(self, rows: list[int], values: Array, precision: Array | None) -> None:
        """Count them in S and p too."""
        Phi = self.rows(rows)
        super().add_all(rows, values, precision)
        self.told.gather(Phi, values, precision)
        if self.with_pending is not None:
            self.with_pending.gather(Phi, np.zeros(len(values)), precision)
        self._missed(rows, Phi, precision)

    def _missed(self, rows: list[int], Phi: Array, precision: Array | None) -> None:
        """Count what is missed at told points."""


class Linear(Fixed):
    """φ(x) = Mᵀx + m."""

    def __init__(self, model: Model, table: Table, view: View, affine: kernels.Affine) -> None:
        super().__init__(model, table, view, len(affine.m))
        self._affine = affine

    def features(self, encoded: Array) -> Array:
        return self._affine(encoded)

    def features_with_slopes(self, encoded: Array) -> tuple[Array, Array]:
        return self._affine(encoded), self._affine.slopes(len(encoded))

    def enter(self, keys: list[bytes], new: Array) -> None:
        for key, x, phi in zip(keys, new, self.features(new), strict=True):
            self.table.enter(key, x)
            self._F.append(phi)


class Budgeted(FromDictionary, Fixed):
    """At most `budget` points, by the rule of this file.

    Features of told points are not kept, since there may be many more of them than of anything else, unless the weights
    are needed at every step (keep): they are computed again where a point is told once more, or weights are read.
    """

    def __init__(self, model: Model, table: Table, view: View, budget: int, *, keep: bool) -> None:
        super().__init__(model, table, view)
        self.budget: int = budget
        self.missed_of: list[float] = []  # √res of each distinct point
        self._arrived: list[int] = []  # features that there were when each point arrived
        self._keep = keep
        self._awaited: dict[int, Array] = {}  # features of points that are not told yet

    def missed_rows(self) -> Array:
        return np.array(self.missed_of)

    def enter(self, keys: list[bytes], new: Array) -> None:
        """In the order of arrival: each is explained by those that joined before, and joins if that is too little."""
        dictionary, view = self.dictionary, self.view
        Phi = self.features(new)
        residual = self.residual(new, Phi)
        K = kernels.cross(self.kernel, new, new) if len(new) > 1 else np.zeros((1, 1))
        if len(new) > 1:
            view.try_columns(new)
        for i, (key, x) in enumerate(zip(keys, new, strict=True)):
            explained = Explained(Phi[i], float(residual[i]), dictionary.error_of(Phi[i]))
            share = self.rank / self.budget
            joins = share < 1.0 and explained.residual > max(LEAST, share**STEEPNESS, CERTAIN * explained.error)
            at_candidates = view.columns(x[None, :], math.inf) if joins else np.zeros(0)
            row = self.table.enter(key, x)  # nothing is changed before this line
            view.enter(row, x, at_candidates)
            if not joins:
                self._arrive(row, explained.phi, math.sqrt(max(explained.residual, 0.0) + explained.error))
                continue
            view.grow(row, explained, at_candidates, dictionary.members)
            dictionary.append(row, x, explained)
            self._F.widen()
            self._arrive(row, np.append(explained.phi, math.sqrt(explained.residual)), 0.0)
            for part in (self.told, self.with_pending, self.missed):
                if part is not None:
                    part.extend()
            if i + 1 < len(new):  # what of the others lies along the new feature
                e = (K[i, i + 1 :] - Phi[i + 1 :] @ explained.phi) / math.sqrt(explained.residual)
                residual[i + 1 :] -= e * e
                Phi = np.column_stack([Phi, np.append(np.zeros(i + 1), e)])

    def _arrive(self, row: int, phi: Array, missed: float) -> None:
        if self._keep:
            self._F.append(phi)
        else:
            self._awaited[row] = phi
        self._arrived.append(len(phi))
        self.missed_of.append(missed)

    def _members(self) -> list[int]:
        return self.dictionary.members

    def _keep_rows(self, rows: list[int]) -> None:
        super()._keep_rows(rows)
        number = {row: new for new, row in enumerate(rows)}
        self.missed_of = [self.missed_of[row] for row in rows]
        self._arrived = [self._arrived[row] for row in rows]
        self._awaited = {number[row]: phi for row, phi in self._awaited.items() if row in number}
        self.dictionary.members = [number[row] for row in self.dictionary.members]
        self.view.candidate_of = [-1] * len(rows)

    def settle(self, row: int) -> None:
        self._awaited.pop(row, None)

    def row(self, row: int) -> Array:
        if self._keep:
            return super().row(row)
        known = self._awaited.get(row)
        if known is None:
            return np.asarray(self._computed([row])[0])
        return known if len(known) == self.rank else np.append(known, np.zeros(self.rank - len(known)))

    def rows(self, rows: list[int]) -> Array:
        if self._keep:
            return super().rows(rows)
        if not all(row in self._awaited for row in rows):
            return self._computed(rows)
        return np.array([self.row(row) for row in rows]).reshape(len(rows), self.rank)

    @property
    def all_rows(self) -> Array:
        return super().all_rows if self._keep else self._computed(list(range(len(self.table))))

    def _computed(self, rows: list[int]) -> Array:
        """φ as it was at arrival: the first features of a point do not change when others join."""
        Phi = self.features(self.table.points[rows])
        arrived = np.array([self._arrived[row] for row in rows])
        return np.asarray(np.where(np.arange(self.rank) < arrived[:, None], Phi, 0.0))

    def _was_told(self, row: int, value: float, surprise: float, precision: float) -> None:  # noqa: ARG002
        if self.missed_of[row]:
            self._missed([row], self.row(row)[None, :], np.array([precision]))
        self.settle(row)

    def _missed(self, rows: list[int], Phi: Array, precision: Array | None) -> None:
        self.missed.add(Phi, np.array([self.missed_of[row] for row in rows]), precision)
        for row in rows:
            self.settle(row)
