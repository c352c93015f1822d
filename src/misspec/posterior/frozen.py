"""Dictionaries whose features of a point are fixed when it arrives: what a step costs then stops growing, whatever the
kernel.

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
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import blas

from misspec import kernels
from misspec.errors import Array
from misspec.posterior.dictionary import Dictionary, Explained
from misspec.posterior.regression import symmetric_times
from misspec.posterior.table import Table

LEAST = 1e-8  # residual of a point that joins, at least: below, rounding in the pivots would be felt
STEEPNESS = (
    12  # the residual that is asked for is (r/budget)^12: next to nothing at half the budget, all of it in the end
)
CERTAIN = 10.0  # times the error of a residual that it must exceed
MOST_LINEAR = 1024  # features up to which a linear kernel has all of them from the start


class Frozen(Dictionary):
    """A dictionary that fixes features at arrival."""

    def __init__(self, kernel: Any, dimension: int, table: Table) -> None:
        super().__init__(kernel, dimension)
        self._points = table

    def settled(self, place: int) -> None:
        """The point at this place was told, or given up: its features will hardly be asked for again."""


class Linear(Frozen):
    """φ(x) = Mᵀx + m."""

    def __init__(self, kernel: Any, dimension: int, table: Table, affine: kernels.Affine) -> None:
        super().__init__(kernel, dimension, table)
        self._affine = affine
        self._F = np.zeros((0, self.rank))

    @property
    def rank(self) -> int:
        return len(self._affine.m)

    @property
    def table(self) -> Array:
        return self._F[: self._size, : self.rank]

    def row(self, place: int) -> Array:
        return self._F[place, : self.rank]

    def rows(self, places: Sequence[int]) -> Array:
        return self._F[places, : self.rank]

    def features(self, encoded: Array) -> Array:
        return self._affine(encoded)

    def features_with_slopes(self, encoded: Array) -> tuple[Array, Array]:
        return self._affine(encoded), self._affine.slopes(len(encoded))


class Budgeted(Frozen):
    """At most `budget` points, by the rule of this file.

    Features of told points are not kept, since there may be many more of them than of anything else, unless the weights
    are needed at every step (keep): they are computed again where a point is told once more, or weights are read.
    """

    def __init__(self, kernel: Any, dimension: int, table: Table, budget: int, keep: bool) -> None:
        super().__init__(kernel, dimension, table)
        self.budget = budget
        self._keep = keep
        self._reach: list[int] = []  # features that there were when each point arrived
        self.missed: list[float] = []  # √res of each
        self._awaited: dict[int, Array] = {}  # features of points that are not told yet

    def admits(self, new: Explained) -> bool:
        """Whether a point joins that has just arrived."""
        share = self.rank / self.budget
        return share < 1.0 and new.residual > max(LEAST, share**STEEPNESS, CERTAIN * new.error)

    def enter(self, place: int, phi: Array) -> None:
        raise NotImplementedError("a point enters with its residual: `arrive`")

    def arrive(self, place: int, new: Explained) -> None:
        """A new distinct point that does not join."""
        if self._keep:
            self._reserve(place + 1, len(new.phi))
            self._F[place, : len(new.phi)] = new.phi
        else:
            self._awaited[place] = new.phi
        self._reach.append(len(new.phi))
        self.missed.append(math.sqrt(max(new.residual, 0.0) + new.error))
        self._size = place + 1

    def join(self, place: int, x: Array, new: Explained) -> None:
        """The point that has just arrived becomes one of the dictionary's."""
        r, pivot = self.rank, math.sqrt(new.residual)
        L = np.zeros((r + 1, r + 1), order="F")
        L[:r, :r], L[r, :r], L[r, r] = self._L, new.phi, pivot
        self._L, self._Z = L, np.concatenate([self._Z, x[None, :]])
        self._pivot_error = np.append(self._pivot_error, new.error / new.residual)
        self.members.append(place)
        self.arrive(place, Explained(np.append(new.phi, pivot), 0.0, 0.0))

    def settled(self, place: int) -> None:
        self._awaited.pop(place, None)

    def row(self, place: int) -> Array:
        if self._keep:
            return np.asarray(self.table[place])
        known = self._awaited.get(place)
        if known is None:
            return np.asarray(self._computed([place])[0])
        return known if len(known) == self.rank else np.append(known, np.zeros(self.rank - len(known)))

    def rows(self, places: Sequence[int]) -> Array:
        if self._keep:
            return np.asarray(self.table[places])
        if not all(place in self._awaited for place in places):
            return self._computed(places)
        found = np.zeros((len(places), self.rank))
        for i, place in enumerate(places):
            known = self._awaited[place]
            found[i, : len(known)] = known
        return found

    @property
    def table(self) -> Array:
        if not self._keep:
            return self._computed(range(self._size))
        self._reserve(self._size, self.rank)
        return self._F[: self._size, : self.rank]

    def _computed(self, places: Sequence[int]) -> Array:
        """φ as it was at arrival: the first features of a point do not change when others join."""
        Phi = self.features(self._points.points[places])
        reach = np.array([self._reach[place] for place in places])
        return np.asarray(np.where(np.arange(self.rank) < reach[:, None], Phi, 0.0))

    def _reserve(self, rows: int, columns: int) -> None:
        while rows > self._F.shape[0] or columns > self._F.shape[1]:  # it doubles
            super()._reserve(rows, columns)


class Missed:
    """H, ρ and ρ₂ of the told observations: how much of them a budgeted dictionary misses."""

    def __init__(self, rank: int) -> None:
        self._H: Array = np.zeros((rank, rank), order="F")  # upper triangle only
        self.total = 0.0  # ρ
        self.squares = 0.0  # ρ₂

    def extend(self) -> None:
        """One more feature."""
        r = len(self._H)
        H = np.zeros((r + 1, r + 1), order="F")
        H[:r, :r] = self._H
        self._H = H

    def add(self, phi: Array, missed: float) -> None:
        """One observation at φ."""
        if missed == 0.0:
            return
        self.total += missed
        self.squares += missed * missed
        if len(phi):
            self._H = blas.dsyr(missed, phi, a=self._H, overwrite_a=1)

    def add_all(self, Phi: Array, missed: Array) -> None:
        """Many at once."""
        self.total += float(missed.sum())
        self.squares += float(missed @ missed)
        if Phi.shape[1]:
            scaled = np.sqrt(missed)[:, None] * Phi
            self._H = blas.dsyrk(1.0, scaled.T, beta=1.0, c=self._H, overwrite_c=1)

    def times(self, b: Array) -> Array:
        """Hb for each row b."""
        return symmetric_times(self._H, b)


def dictionary_of(
    kernel: Any, dimension: int, table: Table, budget: int | None, *, listed: bool, keep: bool
) -> Dictionary:
    """The dictionary that suits a kernel; listed: a view over candidates is kept, which fixes no features early; keep:
    the features of all points are needed."""
    affine = None if listed else kernels.affine(kernel, dimension)
    if affine is not None and len(affine.m) <= MOST_LINEAR:
        return Linear(kernel, dimension, table, affine)
    return Dictionary(kernel, dimension) if budget is None else Budgeted(kernel, dimension, table, budget, keep)
