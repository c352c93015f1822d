"""Means and variances of all samples of the model with their gradients: what climbing asks for, some fifty times.

The numbers are those of `Posterior.local`, sample by sample and to the bit. The samples differ in length scales and
additive shares alone, and were fed the same points: distances are taken once, and profiles of all samples in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec.errors import Array
from misspec.posterior.look import nonnegative
from misspec.posterior.posterior import Posterior
from misspec.product import ROOT5


class Slopes(NamedTuple):
    """Of K samples at n points of dimension d."""

    mean: Array  # (K, n)
    variance: Array  # (K, n)
    dmean: Array  # (K, n, d)
    dvariance: Array  # (K, n, d)


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


class _Sample(NamedTuple):
    """What one posterior brings: its dictionary and regressions, and its shadows with F, α and n/λ."""

    dictionary: Any
    told: Any
    chosen_by: Any  # the regression whose variance counts
    offset: float
    members: NDArray[np.intp]  # columns of the known points
    shadows: NDArray[np.intp]
    F: Array
    alpha: Array
    ratio: Array


class Climbing:
    """The slopes of posteriors that were fed the same, as they are now."""

    def __init__(self, posteriors: Sequence[Posterior], *, pending: bool) -> None:
        bases: list[Any] = [p._base for p in posteriors]
        rows = [(base.dictionary.members, base.shadows.rows) for base in bases]
        used = sorted({row for pair in rows for some in pair for row in some})
        column = {row: j for j, row in enumerate(used)}
        self._kernels = Kernels([p.model.kernel for p in posteriors], posteriors[0].points[used])
        self._samples = []
        for p, base, (members, shadows) in zip(posteriors, bases, rows, strict=True):
            at, beside = (np.array([column[row] for row in some], dtype=np.intp) for some in (members, shadows))
            F, alpha, ratio = np.zeros((0, p.rank)), np.zeros(0), np.zeros(0)
            if shadows:
                F, alpha, ratio = base.rows(shadows), base.alpha(), base.shadow_ratio(pending)
            chosen_by = base.regression(pending)
            self._samples.append(
                _Sample(base.dictionary, base.told, chosen_by, p.model.offset, at, beside, F, alpha, ratio)
            )

    def __call__(self, U: Array) -> Slopes:
        values, gradients = self._kernels(U)
        found = [
            (_with_shadows if len(each.shadows) else _by_adjoints)(each, K, dK)
            for each, K, dK in zip(self._samples, values, gradients, strict=True)
        ]
        mean, variance, dmean, dvariance = (np.array(parts) for parts in zip(*found, strict=True))
        return Slopes(mean, nonnegative(variance), dmean, dvariance)


def _by_adjoints(p: _Sample, K: Array, dK: Array) -> tuple[Array, ...]:
    n, slopes = len(K), dK.take(p.members, axis=2).transpose(1, 2, 0)
    phi = p.dictionary.forward(K.take(p.members, axis=1))
    b = p.chosen_by.times(phi)
    adjoints = p.dictionary.backward(np.concatenate([phi, b, p.told.w[None, :]]))
    residual = 1.0 - np.einsum("nr,nr->n", phi, phi)
    dresidual = -2.0 * np.einsum("nr,nrd->nd", adjoints[:n], slopes)
    dseen = np.einsum("nr,nrd->nd", adjoints[n : 2 * n], slopes)
    mean, dmean = phi @ p.told.w + p.offset, np.einsum("r,nrd->nd", adjoints[2 * n], slopes)
    return mean, residual + np.einsum("nr,nr->n", phi, b), dmean, dresidual + 2.0 * dseen


def _with_shadows(p: _Sample, K: Array, dK: Array) -> tuple[Array, ...]:
    (d, n, _), r, F = dK.shape, len(p.members), p.F
    both = np.concatenate([K[None], dK]).take(p.members, axis=2)  # (d + 1, n, r)
    solved = p.dictionary.forward(both.transpose(1, 0, 2).reshape(n * (d + 1), r)).T.reshape(r, n, d + 1)
    phi, dphi = np.ascontiguousarray(solved[:, :, 0].T), np.ascontiguousarray(solved[:, :, 1:])
    e = K.take(p.shadows, axis=1) - phi @ F.T
    de = dK.take(p.shadows, axis=2).transpose(1, 2, 0) - np.einsum("sr,rnd->nsd", F, dphi)
    mean = phi @ p.told.w + p.offset + e @ p.alpha
    dmean = (p.told.w @ dphi.reshape(r, n * d)).reshape(n, d) + np.einsum("s,nsd->nd", p.alpha, de)
    v = phi - (e * p.ratio) @ F
    dv = dphi - np.einsum("sr,s,nsd->rnd", F, p.ratio, de)
    b = p.chosen_by.times(v)
    variance = 1.0 - np.einsum("nr,nr->n", phi, phi) + np.einsum("nr,nr->n", v, b) - (e * e) @ p.ratio
    dvariance = -2.0 * np.einsum("nr,rnd->nd", phi, dphi) + 2.0 * np.einsum("nr,rnd->nd", b, dv)
    return mean, variance, dmean, dvariance - 2.0 * np.einsum("ns,nsd->nd", e * p.ratio, de)
