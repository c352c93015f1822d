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
from misspec.product import with_gradients


class Climbing:
    """The slopes of posteriors that were fed the same, as they are now."""

    def __init__(self, posteriors: Sequence[Posterior], *, pending: bool) -> None:
        bases: list[Any] = [p._base for p in posteriors]
        needed = [(base.dictionary.members, base.shadows.rows) for base in bases]
        used = sorted({row for pair in needed for rows in pair for row in rows})
        self._kernels, self._known = [p.model.kernel for p in posteriors], posteriors[0].points[used]
        self._samples = [
            (base, [np.searchsorted(used, rows) for rows in pair], base.shadowed(pending))
            for base, pair in zip(bases, needed, strict=True)
        ]
        self._pending = pending

    def __call__(self, U: Array) -> Local:
        """Of K samples at n points of dimension d: shapes (K, n) and (K, n, d)."""
        found, everywhere = [], with_gradients(self._kernels, U, self._known)
        for (base, parts, shadowed), values, gradients in zip(self._samples, *everywhere, strict=True):
            near = [(values.take(part, axis=1), gradients.take(part, axis=2).transpose(1, 2, 0)) for part in parts]
            found.append(base.local(U, pending=self._pending, known=(*near, shadowed)))
        return Local(*(np.array(each) for each in zip(*found, strict=True)))
