"""What callers hand in: actions, points and contexts to choose from or to learn, and pending queries that they mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from misspec.errors import LARGEST, InvalidInput, array, listed, nearest, real, shown, too_large
from misspec.files import frames
from misspec.limits import names_of_limits
from misspec.policies.core.answers import Query
from misspec.policies.core.field import Field
from misspec.policies.core.log import Asked, Log
from misspec.policies.core.points import Actions, Round

if TYPE_CHECKING:
    from misspec.policies.core.hooks import Hooks


def round_of(policy: Hooks, actions: Any, context: Any) -> Round:
    """The actions or context of a round; None for the whole domain."""
    if context is None and actions is None:
        return None
    if not policy.abilities.takes_actions:
        raise InvalidInput(
            f"{type(policy).__name__} eliminates from a fixed set and takes no actions; use RegretBalancing"
        )
    if context is None:
        return policy.admit(policy.field.parse(actions, policy.model)).offered()
    offered = policy.field.within(context, actions, policy.model)
    return policy.admit(offered).offered() if isinstance(offered, Actions) else offered


def noises(policy: Hooks, noise: Any, count: int) -> list[float] | None:
    """The own noises of results, NaN for those without; None where none has one."""
    if noise is None:
        return None
    given = array("noise must be numbers", noise)
    each = np.full(count, given) if given.ndim == 0 else given
    if each.shape != (count,):
        raise InvalidInput(f"noise must be one number, or {count} in a list, got shape {each.shape}")
    try:
        found = [math.nan if one is None else float(one) for one in each.tolist()]
    except (TypeError, ValueError):
        found = None
    if found is None or each.dtype.kind not in "iufO":
        raise InvalidInput(f"noise must be numbers, got {shown(noise)}")
    if all(math.isnan(one) for one in found):
        return None
    wrong = next((one for one in found if one < 0 or one > LARGEST), None)
    if wrong is not None:
        raise InvalidInput(f"a noise must be a standard deviation, 0 or above and finite, got {shown(wrong)}")
    if not policy.abilities.takes_noise:
        raise InvalidInput(f"{type(policy).__name__} takes no noise of single results; Auto, GPUCB and InsuredUCB do")
    policy.model.precision(found, count)  # raises where the model has none
    return found


def limit_values(policy: Hooks, given: Any, count: int) -> dict[str, list[float]]:
    """The values of limited quantities by name, one for each of so many results, NaN where it is unknown; without those
    that are unknown of all."""
    if given is None or (isinstance(given, Mapping) and not given):
        return {}
    names = names_of_limits(policy.limits)
    if not names:
        raise InvalidInput(f"this {type(policy).__name__} has no limits, which only Auto can have: Auto(…, limits=…)")
    if not isinstance(given, Mapping):
        example = f"limits={{{names[0]!r}: 1.3}}, or a list with a number for each of several results"
        raise InvalidInput(f"limits must be values by name, as in {example}; got {shown(given)}")
    unknown = [name for name in given if name not in names]
    if unknown:
        raise InvalidInput(f"there is no limit on {shown(unknown[0])}{nearest(unknown[0], names)}")
    found = {name: _values(name, value, count) for name, value in given.items()}
    return {name: values for name, values in found.items() if not all(map(math.isnan, values))}


def beside_results(policy: Hooks, noise: Any, limits: Any, count: int) -> list[list[Any]]:
    """What the event of each result has beside it: its own noise or None, values of limited quantities; as far as there
    are any."""
    own, values = noises(policy, noise, count) or [math.nan] * count, limit_values(policy, limits, count)
    found: list[list[Any]] = []
    for i, one in enumerate(own):
        known = {name: column[i] for name, column in values.items() if not math.isnan(column[i])}
        found.append([None if math.isnan(one) else one, known] if known else [] if math.isnan(one) else [one])
    return found


def _values(name: str, given: Any, count: int) -> list[float]:
    """Values of a limited quantity, one for each result."""
    several = isinstance(given, list | tuple) or hasattr(given, "to_numpy") or getattr(given, "ndim", 0) > 0
    cells = listed(f"values of {shown(name)}", given) if several else [given]
    if len(cells) != count:
        wanted = "one number" if count == 1 else f"{count} numbers in a list"
        raise InvalidInput(f"values of {shown(name)} must be {wanted}, got {len(cells)}: {shown(given)}")
    values = []
    for cell in cells:
        unknown = cell is None or (isinstance(cell, float | np.floating) and math.isnan(cell))
        value = math.nan if unknown else real(cell, truth=True)
        if not unknown and not abs(value) <= LARGEST:
            raise InvalidInput(
                f"a value of {shown(name)} must be a finite number{too_large(value)}, or None where it is unknown, got "
                f"{shown(cell)}"
            )
        values.append(value)
    return values


def is_empty(given: Any) -> bool:
    """Whether it is a list, an array or a column with nothing in it."""
    if isinstance(given, np.ndarray):
        return given.size == 0
    return not isinstance(given, str | bytes | Mapping) and hasattr(given, "__len__") and len(given) == 0


# -- pending queries ---------------------------------------------------------------------------------------------------


def meant(batch: list[Any], log: Log, field: Field, done: str) -> list[Asked]:
    """The pending queries that a call means; done: what it does to them. InvalidInput where one is meant twice."""
    known: list[Asked] = []
    for query in batch:
        known.append(_meant(query, log, field, known))
    if len({asked.query.id for asked in known}) != len(known):
        raise InvalidInput(f"a query was {done} twice in one call; name each once")
    return known


def _meant(query: Any, log: Log, field: Field, taken: Sequence[Asked]) -> Asked:
    """taken: not these, where several are alike."""
    if isinstance(query, str | Mapping):
        left = [asked for asked in log.pending.values() if all(asked is not other for other in taken)]
        rows = field.find(query, [asked.place for asked in left])
        if not rows:
            raise InvalidInput(f"no pending query is {shown(query)}; see policy.pending, or observe() other results")
        return left[rows[0]]
    key = query.id if isinstance(query, Query) else query
    if not isinstance(key, int | np.integer) or isinstance(key, bool | np.timedelta64):
        raise InvalidInput(f"expected a Query that this policy asked, or its id, got {type(query).__name__}")
    if int(key) not in log.pending:
        raise InvalidInput(f"query {shown(key)} is not pending: {_why_not(int(key), log)}")
    asked = log.pending[int(key)]
    if isinstance(query, Query) and query is not asked.query and not same_point(query, asked.query):
        raise InvalidInput(f"query {key} comes from another policy: its point differs from the one asked here")
    return asked


def _why_not(key: int, log: Log) -> str:
    """Why a query is not pending, and what to do."""
    if not 0 <= key < log.next_id:
        return "this policy never asked it; see policy.pending"
    call = f"policy.observe(points, y{', context=q.context' if hasattr(log.field.domain, 'contexts') else ''})"
    ended = {event[0] for event in log.events if event[0] in ("tell", "drop") and event[1] == key}
    if not ended:
        return f"it was told or dropped before a snapshot; if it was dropped, a result that came late counts by {call}"
    if "drop" in ended:
        return f"it was dropped; a result that came late counts by {call}"
    return f"it was told before; one more result of the same point counts by {call}"


def same_point(one: Query, other: Query) -> bool:
    """Whether two queries are of one point, context included."""
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("x", "context"))


def list_of(queries: Any) -> list[Any]:
    """Several queries, or one."""
    columns = isinstance(queries, Mapping) and any(isinstance(each, list | tuple) for each in queries.values())
    if columns or frames.is_frame(queries):
        return list(frames.read(queries, "the rows").rows())
    if isinstance(queries, np.ndarray):
        return list(np.atleast_1d(queries))
    return list(queries) if isinstance(queries, list | tuple) else [queries]
