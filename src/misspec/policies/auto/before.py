"""What Auto does without its model, and before it takes one: how many first evaluations there are, which candidates are
left where each is tried once, bands that rest on results alone, and which samples it can adopt."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from misspec.errors import InvalidInput, shown
from misspec.hyperparameters import LARGEST_FLOAT
from misspec.policies.auto.feasible import Outcomes
from misspec.policies.auto.model import FIRST, checked_samples
from misspec.policies.auto.rules import is_coarse, is_quiet
from misspec.policies.core.answers import Band
from misspec.policies.core.field import Field
from misspec.policies.core.points import Actions

if TYPE_CHECKING:
    from misspec.policies.auto.policy import Auto

PER_PARAMETER = 1  # first points for each parameter, where only the best counts: with 2, best missed at 60 was larger
HOPELESS = 0.05  # probability of keeping the limits below which a candidate is not tried for want of others
UNKNOWN = 4.0  # half-width, in ranges of the results, of the band of an unseen point before there is a model


def first_design(policy: Auto) -> int:
    """Evaluations before the model chooses, where it is not said how many."""
    most = [each // 4 for each in (policy.horizon, policy.field.size) if each]
    return FIRST if policy.aim == "earn" else max(FIRST, min([PER_PARAMETER * len(policy.columns), *most]))


def untried(policy: Auto) -> NDArray[np.intp] | None:
    """The candidates without an evaluation that may keep the limits; None where a second one at a point would teach
    something.

    Where the noise is learnt, it may hide behind results that are coarse."""
    size, outcomes = policy.field.size, policy._outcomes
    if not size or (policy.repeats and (policy.aim == "earn" or policy._states is None)):
        return None
    coarse = policy.noise is None and is_coarse(outcomes)
    own = not np.isnan(policy.observations.noise).all()  # some results have noises of their own
    if policy.repeats and (coarse or own or not is_quiet(policy._mixture)):
        return None
    failed = Counter(place.key for place in outcomes.dropped)  # what failed once may have failed by chance
    tried = {place.key for place in (*outcomes.told, *(each.place for each in policy.log.pending.values()))}
    tried |= {key for key, times in failed.items() if times > 1}
    new = np.array([row for row in range(size) if row not in tried], dtype=np.intp)
    holding = policy.quantities.holding
    if holding is None or not len(new):
        return new
    return new[np.exp(holding.at(policy.field, policy.field.whole("").part(new))) >= HOPELESS]


def band_before(outcomes: Outcomes, field: Field, actions: Actions) -> Band:
    """Before there is a model: results say something of their own points, and nothing of others."""
    y = np.array(outcomes.y)
    size = float(np.abs(y).max()) or 1.0  # sums of results may exceed the largest float
    y = y / size
    results: dict[Any, list[float]] = {}
    for place, value in zip(outcomes.told, y.tolist(), strict=True):
        results.setdefault(place.key, []).append(value)
    spread, most = float(np.ptp(y)) or 0.5, LARGEST_FLOAT / size
    keys = field.keys(actions)
    middle = np.array([float(np.mean(results.get(key, y))) for key in keys])
    reach = np.array([spread if key in results else UNKNOWN * spread for key in keys])
    return Band(*(np.clip(middle + sign * reach, -most, most) * size for sign in (-1.0, 1.0)))


def adoptable(policy: Auto, samples: Any) -> dict[str, Any]:
    """A copy of samples that can be adopted now; InvalidInput for others."""
    checked = checked_samples(samples, policy.domain)
    limited = {name: len(values) for name, values in policy.quantities.values.items()}
    for name, each in checked.get("limits", {}).items():
        if each["scaling"][0] != 1.0 or each["results"] > limited.get(name, -1):
            raise InvalidInput(
                f"these samples were learnt from {each['results']} values of {shown(name)}, which are not told "
                "here; make the policy with the same limits, and observe the results first"
            )
    if checked["scaling"][0] != policy.log.sign or checked["results"] > policy.t:
        raise InvalidInput(
            f"these samples were learnt from {checked['results']} results, of which {policy.t} are told here, or "
            "for the other direction (minimize=…); observe the results first"
        )
    return checked


def why_none(policy: Auto) -> str:
    """Why there is no model."""
    if policy.t < FIRST:
        return f"there is no model yet: it takes {FIRST} results, and there are {policy.t}"
    return f"there is no model of the {policy.t} results yet: ask() or refresh() learns it"
