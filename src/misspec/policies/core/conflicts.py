"""Conflicts: data that a misspecification of ε cannot explain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from misspec.policies.core import log
from misspec.policies.core.answers import Conflict
from misspec.policies.core.points import Actions
from misspec.truth import certificates

if TYPE_CHECKING:
    from misspec.policies.core.hooks import Hooks


def conflicts_of(policy: Hooks, events: Sequence[log.Event]) -> list[Conflict]:
    """The `certified_conflicts` in the observations of some events, each certificate with its share of δ."""
    field, model, own = policy.field, policy.model, policy._evidence.own
    delta = model.delta / certificates.PARTS
    if len(events) < len(policy.log.events):
        own = log.own_bands(events, field, model, own, policy.log.sign)
    points, averages, _, radii = own.table(delta)
    if not len(points):
        return []
    keys = own.keys()
    if len(points) > log.CERTIFIED:  # own bands hold for all points at once, so for those that are chosen by them
        best = np.sort(np.argsort(radii, kind="stable")[: log.CERTIFIED])
        points, averages, radii, keys = points[best], averages[best], radii[best], [keys[i] for i in best]
    doubtful = _doubtful(policy, len(points))
    prefix, y, noise = log.told_prefix(events, field, model, policy.log.sign, one_call=policy.log.in_parts)
    encoded = field.domain.encode(prefix)
    told = certificates.Averages.of(encoded, y, None if np.isnan(noise).all() else model.precision(noise, len(y)))
    found = certificates.certified_conflicts(
        policy.reported_model,
        certificates.OwnIntervals(policy.domain.encode(points), averages, radii),
        told,
        delta=delta,
        epsilon=policy.epsilon,
        also=doubtful.encoded,
    )
    first = certificates.numbered_points(encoded)[1]  # rows of `prefix`, one per point of `told`
    where = np.concatenate([points, doubtful.points, prefix[first]])
    rows = np.arange(len(doubtful.points)).tolist() if field.size else [b""] * len(doubtful.points)
    keys = [*keys, *rows, *(field.keys(field.parse(prefix[first], model)) if len(first) else [])]
    return [
        Conflict(where[i], key if isinstance(key := keys[i], int) and field.indexed else None, gap, implied, kind)
        for i, gap, implied, kind in found
    ]


def _doubtful(policy: Hooks, seen: int) -> Actions:
    """Where the model's band is compared with what its class allows: candidates or a cover, unless too many."""
    cover = policy.field.spread()
    few = len(cover.points) * seen**2 <= certificates.MOST_WORK
    return cover if few else Actions(cover.points[:0], cover.encoded[:0], np.zeros(0, dtype=np.intp))
