"""Means and variances of all samples of the model with their gradients: what climbing asks for, some fifty times.

The numbers are those of `Posterior.local`, sample by sample and to the bit. The samples differ in length scales and
additive shares alone, and were fed the same points: distances are taken once, and profiles of all samples in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from misspec.errors import Array
from misspec.posterior.formulas import Local
from misspec.posterior.posterior import Posterior
from misspec.product import ROOT5


class Kernels:
    """The `ProductMatern` kernels of all samples between new points and the same known ones."""

    def __init__(self, kernels: Sequence[Any], known: Array) -> None:
        columns = kernels[0].columns
        self._order = np.array([i for start, stop in columns for i in range(start, stop)])
        self._widths = np.array([stop - start for start, stop in columns])
        self._first = np.cumsum(self._widths) - self._widths
        self._known = known.T[self._order, None, :]
        scales = np.array([kernel.length_scale for kernel in kernels])[:, :, None, None]
        self._rates, self._steepness = ROOT5 / scales, -(5.0 / 3.0) / scales**2
        self._additive = np.array([kernel.additive for kernel in kernels])[:, None, None]

    def __call__(self, U: Array) -> tuple[Array, Array]:
        """Values and gradients by the new points, shapes (K, n, m) and (K, d, n, m): as `ProductMatern.with_gradient`
        has them, of which each line is repeated here."""
        a, d = self._additive, len(self._widths)
        differences = U.T[self._order, :, None] - self._known
        s = np.sqrt(np.add.reduceat(differences * differences, self._first, axis=0)) * self._rates
        polynomial, decay = (s / 3.0 + 1.0) * s + 1.0, np.exp(-s)
        profiles = polynomial * decay
        product = profiles.prod(axis=1)
        slope = (s + 1.0) * self._steepness
        slope *= ((1.0 - a) * product)[:, None] / polynomial + (a / d)[:, None] * decay
        gradient = np.empty((len(s), *differences.shape))
        gradient[:, self._order] = np.repeat(slope, self._widths, axis=1) * differences
        return (1.0 - a) * product + (a / d) * profiles.sum(axis=1), gradient


class Climbing:
    """The slopes of posteriors that were fed the same, as they are now."""

    def __init__(self, posteriors: Sequence[Posterior], *, pending: bool) -> None:
        bases: list[Any] = [p._base for p in posteriors]
        needed = [(base.dictionary.members, base.shadows.rows) for base in bases]
        used = sorted({row for pair in needed for rows in pair for row in rows})
        self._kernels = Kernels([p.model.kernel for p in posteriors], posteriors[0].points[used])
        self._samples = [
            (base, [np.searchsorted(used, rows) for rows in pair], base.shadowed(pending))
            for base, pair in zip(bases, needed, strict=True)
        ]
        self._pending = pending

    def __call__(self, U: Array) -> Local:
        """Of K samples at n points of dimension d: shapes (K, n) and (K, n, d)."""
        found = []
        for (base, parts, shadowed), values, gradients in zip(self._samples, *self._kernels(U), strict=True):
            near = [(values.take(part, axis=1), gradients.take(part, axis=2).transpose(1, 2, 0)) for part in parts]
            found.append(base.local(U, pending=self._pending, near=near, shadowed=shadowed))
        return Local(*(np.array(each) for each in zip(*found, strict=True)))
