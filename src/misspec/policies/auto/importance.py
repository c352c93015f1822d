"""How much each parameter matters, and how sure that is.

The total index of parameter j is the share of the variance of a function f that is left when all other parameters are
fixed; by Jansen's estimator, with A and B two samples of points and A_j the first with column j of the second,

    T_j(f) = E (f(A) − f(A_j))² / (2 Var f),       the share of j is s_j(f) = T_j / Σ_i T_i

f is not known: it is drawn, jointly at all these points, from each sample of the model. Reported are the mean of the
shares and the range of the middle 90 % of them. Draws are at few of the points, and corrected by what these few make of
the mean m: s_j(f; few) − s_j(m; few) + s_j(m; as many as all, with replacement), which has the error of the sample too.
What never varied stays as it was: shares are those of the others. Where rules forbid A_j, the pair does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from misspec.errors import Array
from misspec.policies.auto.gain import belief, sampled
from misspec.policies.core.field import Field
from misspec.posterior import Posterior
from misspec.search import distinct

DRAWN, FEWEST = 256, 64  # points of a sample
WORK = 4e8  # points times distinct results squared, about; beyond that samples are smaller
JOINTLY, FEW = 400, 8  # points at which f is drawn at once, about, and of a sample at least
DRAWS = 16  # of f, per sample of the model
ROUNDING = 1e-9  # of values, relative to the largest
ENDS = (0.05, 0.95)  # of the range
MINOR = 0.05  # a parameter whose range ends below hardly matters
PER_PARAMETER = 3  # points with results, from which importance is known at all
HALF = 0.5  # a range from below MINOR to above says nothing; one with a higher lower end names what matters
FIXED = "one value only"  # of a parameter that cannot vary: there is nothing to be known


class Importance(NamedTuple):
    """The share of a parameter, and its range (90 %); unknown: why nothing can be said yet, else empty."""

    share: float
    lower: float
    upper: float
    unknown: str = ""

    @property
    def matters(self) -> bool | None:
        """None where that is not known yet; False only where the upper end is small."""
        return None if self.unknown else self.upper >= MINOR


def importance(posterior: Any, field: Field, x: Array, names: Sequence[str]) -> dict[str, Importance]:
    """By the name of the parameter; posterior: of a policy, or a mixture; x: points with results."""
    varied = np.ptp(x, axis=0) > 0
    shares, can_vary = _shares(posterior, field, np.where(varied, np.nan, x[0]))
    mean, (low, high) = shares.mean(axis=0), np.quantile(shares, ENDS, axis=0)
    few = len(distinct(x).points) < PER_PARAMETER * int(can_vary.sum())
    found = {}
    for j, name in enumerate(names):
        if not varied[j]:
            found[name] = Importance(0.0, 0.0, 1.0, "never varied") if can_vary[j] else Importance(0.0, 0.0, 0.0, FIXED)
            continue
        vague = low[j] < MINOR and high[j] > HALF
        why = "too few results" if few else "anything is possible" if vague else ""
        found[name] = Importance(float(mean[j]), float(low[j]), float(high[j]), why)
    return found


def _shares(posterior: Any, field: Field, still: Array) -> tuple[Array, Any]:
    """Shares of draws of f, one per row, and which parameters can vary at all. still: values of those that never did,
    NaN for the others."""
    rng, d = np.random.default_rng(0), len(still)
    parts = getattr(posterior, "posteriors", [posterior])
    work = (d + 1) * (posterior.t + 1) * (posterior.t + 40 * d) * len(parts)
    count = int(np.clip(WORK / work, FEWEST, DRAWN))
    A, B = _drawn(field, count, rng), _drawn(field, count, rng)
    can_vary = (A != B).any(axis=0)
    A, B = (np.where(np.isnan(still), each, still) for each in (A, B))
    stacked, counts = _exchanged(field.domain, A, B)
    few = min(count, max(FEW, JOINTLY // (d + 1)))
    some = stacked[:, :few].reshape(-1, d)
    encoded, out, none = field.domain.encode(some), ~counts, ~counts[:, :few]
    rows = []
    for each in parts:
        means = np.reshape(each.at(stacked.reshape(-1, d))[0], (d + 1, count))
        means[out] = np.nan
        whole = np.array([_indices(means[:, rng.integers(count, size=count)]) for _ in range(DRAWS)])
        rows.append(whole)
        if isinstance(each, Posterior):  # others say nothing of points jointly
            f = sampled(belief(each, some, encoded), rng, DRAWS)
            drawn = np.array([_indices(np.where(none, np.nan, one.reshape(d + 1, few))) for one in f])
            rows[-1] = np.clip(drawn + whole - _indices(means[:, :few]), 0.0, 1.0)
    return np.concatenate(rows), can_vary


def _exchanged(domain: Any, A: Array, B: Array) -> tuple[Array, Any]:
    """A, and A_j for each parameter, shape (d + 1, n, d); and which of these points count: those that keep the rules.
    Where a parameter does not exist in one of the samples it has the value of the other, in case that A_j has it."""
    d = A.shape[1]
    stacked, counts = np.repeat(A[None], d + 1, axis=0), np.ones((d + 1, len(A)), dtype=bool)
    changed = getattr(domain, "changed", None)
    if changed is None:
        for j in range(d):
            stacked[j + 1, :, j] = B[:, j]
        return stacked, counts
    A = np.where(domain.there(A), A, B)
    for j in range(d):
        stacked[j + 1] = domain.validate(changed(A, j, B[:, j]))
        counts[j + 1] = domain.contains(stacked[j + 1])
        if not counts[j + 1].any():  # what never varied lies outside
            counts[j + 1] = domain.legal(stacked[j + 1])
    return stacked, counts


def _indices(values: Array) -> Array:
    """Shares, from f(A) in the first row and f(A_j) in the others, NaN where that does not count; 0 for all where f is
    the same everywhere."""
    values = values / (float(np.nanmax(np.abs(values))) or 1.0)  # whose square may be no float
    squares = (values[0] - values[1:]) ** 2
    effects = np.nan_to_num(squares).sum(axis=1) / np.maximum(np.isfinite(squares).sum(axis=1), 1)
    total = effects.sum()
    return np.asarray(effects / total if total > ROUNDING**2 else np.zeros(len(effects)))


def _drawn(field: Field, count: int, rng: np.random.Generator) -> Array:
    """Uniform points of the domain."""
    offers = [field.draw(rng) for _ in range(count)]
    return np.array([each.points[rng.integers(len(each.points))] for each in offers])
