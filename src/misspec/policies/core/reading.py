"""A policy's recommendation, and its caveats: why bands may not hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from misspec import kernels
from misspec.policies.core.answers import Recommendation
from misspec.policies.core.points import Actions, Place

if TYPE_CHECKING:
    from misspec.policies.core.policy import Policy


def recommendation(policy: Policy, contenders: Actions, *, given: bool) -> Recommendation:
    """The maximiser of the lower band among contenders; given: they were handed in, so that positions count."""
    band = policy.band_at(contenders)
    usable = policy.usable(contenders)
    best = int(np.where(usable, band.lower, -np.inf).argmax())
    place = policy.field.place(contenders, best)
    mean = policy.mean_at(place)
    lower, upper = float(band.lower[best]), float(band.upper[best])
    gap, note = float(band.upper[usable].max()) - lower, ""
    says_nothing = not policy.field.fixed and _says_nothing(policy, place, lower, upper)
    if policy.minimize:
        mean, lower, upper = -mean, -upper, -lower
    if not lower <= mean <= upper:
        side = "below" if mean < lower else "above"
        note = f"the model's mean {mean:.4g} lies {side} the band: data here, or the class, exclude it"
    elif says_nothing:
        note = "the band is all that the model's class allows: nothing is known yet of what is best here"
    caveats, known = tuple(policy.caveats), policy.field.describe(place)
    return Recommendation(
        known.pop("x", place.x), place.index, place.name, mean, lower, upper, gap, not caveats, caveats, note,
        tried=policy._evidence.own.count(place.key), position=best if given else None, **known,
    )  # fmt: skip


def _says_nothing(policy: Policy, place: Place, lower: float, upper: float) -> bool:
    """Whether a band is the interval of the class itself."""
    model = policy.reported_model
    prior = kernels.diagonal(model.kernel, policy.field.only(place).encoded)[0]
    reach = (model.norm_bound * math.sqrt(prior) + policy.epsilon) * (1.0 - 1e-9)
    return lower <= model.offset - reach and upper >= model.offset + reach


def caveats_of(policy: Policy) -> list[str]:
    """Why bands, gap and recommendation are not guaranteed, one sentence each."""
    caveats, log = list(policy._without), policy.log
    if log.out_of_order:
        caveats.append(
            "some results were told before others that were asked earlier: until those are told or dropped, "
            'bands hold only if the order does not depend on the results (delays="independent" says so)'
        )
    if log.in_parts and policy.claims:
        caveats.append(
            f"points from elsewhere came in {log.calls} calls: bands hold only if what came in which call "
            'does not depend on the results (delays="independent" says so; or observe all of them in one call)'
        )
    if policy.conflicts():
        caveats.append(f"the data contradict the model by more than ε = {policy.epsilon:.4g} (see `conflicts`)")
    return caveats
