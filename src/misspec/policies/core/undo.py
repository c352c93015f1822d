"""All or nothing: a call that fails half-way, whatever fails, leaves the policy as it was before.

Before a call changes anything its *mark* is kept: the number of events, and the random state if the call may draw. If
the call fails, the log is cut to that mark, and a twin that is made with the same settings lives through what is left;
its attributes replace those of the policy. Should that fail too, the next call tries again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from misspec.errors import LARGEST, MOST_AT_ONCE, MisspecError, NumericalError, StorageError, whole
from misspec.policies.core import snapshot
from misspec.policies.core.log import OTHERS, Event
from misspec.policies.core.registry import made
from misspec.threads import lock_after_fork, one_thread

if TYPE_CHECKING:
    from misspec.policies.core.policy import Policy

LOG = logging.getLogger("misspec.policies")
Changed = TypeVar("Changed")


class Mark(NamedTuple):
    """Where a policy goes back to."""

    events: int
    random: Any  # None: the call does not draw


def changed(policy: Policy, change: Callable[[], Changed], *, drawing: bool = False) -> Changed:
    """All of a change or nothing of it; in the journal, if there is one, before the call returns."""
    before = policy._changing = _mark(policy, drawing=drawing)
    try:
        with one_thread():
            result = change()
        if policy._journal is not None:
            policy._journal.append(policy, before.events)
        policy._changing = None
    except np.linalg.LinAlgError as error:
        _undo(policy, before)
        raise NumericalError(
            f"rounding has made a matrix singular ({error}); a larger regularization (λ) than "
            f"{policy.model.regularization:g} helps"
        ) from error
    except BaseException:
        _undo(policy, before)
        raise
    return result


def _mark(policy: Policy, *, drawing: bool = False) -> Mark:
    return Mark(len(policy.log.events), policy._rng.bit_generator.state if drawing else None)


def _undo(policy: Policy, before: Mark) -> None:
    """Rebuild the policy as it was at a mark; if that fails too, the next call tries again."""
    policy._broken = before  # one assignment: whatever interrupts what follows, the next call goes on from here
    _take_back(policy)
    if policy._journal is not None:
        policy._journal.rewind(before.events)
    with contextlib.suppress(Exception):
        repair(policy)
    LOG.warning("a call of %s failed and was undone", type(policy).__name__)


def _take_back(policy: Policy) -> None:
    """Cut the log to the mark, and draw from there again."""
    if policy._broken is not None:
        if policy._broken.random is not None:
            policy._rng.bit_generator.state = policy._broken.random
        policy.log.cut(policy._broken.events)


def repair(policy: Policy) -> None:
    """Finish undoing a failed call, if one is left."""
    if policy._broken is None:
        return
    _take_back(policy)
    try:
        twin = rebuilt(policy, policy.log.events)
    except Exception as error:
        kind = type(error) if isinstance(error, MisspecError) else NumericalError
        raise kind(
            f"a call failed, and what it left cannot be undone yet: {error}; nothing told is lost, and every call "
            "tries again (is the kernel still failing?)"
        ) from error
    twin._rng.bit_generator.state = policy._rng.bit_generator.state
    policy.__dict__.update({**twin.__dict__, "_lock": policy._lock, "_changing": None, "_certified": None})


def rebuilt(policy: Policy, events: list[Event]) -> Policy:
    """A policy that was made in the same way, after these events."""
    twin: Policy = made(type(policy), policy.domain, policy.model_as_given, policy.settings)
    replay(twin, events)
    return twin


def forked(policy: Policy) -> None:
    """In a process that was forked off: undo the call, if any, that a thread of the other one had begun."""
    lock = policy.__dict__.get("_lock")  # None: still being made
    if lock is None or (renewed := lock_after_fork(lock)) is lock:
        return
    policy._lock = renewed
    policy._broken = policy._broken or policy._changing or _mark(policy)  # after a call that only read, too: caches
    _take_back(policy)


@contextlib.contextmanager
def _replaying(policy: Policy) -> Iterator[None]:
    policy._replaying = True
    try:
        yield
    finally:
        policy._replaying = False


def replay(policy: Policy, events: Iterable[Event]) -> None:
    """Let a policy live through events; of a list, through those after its last snapshot."""
    if isinstance(events, list):
        first = max((i for i, event in enumerate(events) if event[0] == "snapshot"), default=0)
        policy.log.recall(events[:first])
        events = events[first:]
    history = None
    with one_thread(), _replaying(policy):
        for kind, *rest in events:
            if kind == "ask":
                query = rest[0]
                if query.id < policy.log.next_id:
                    raise StorageError(f"query {query.id} was asked after query {policy.log.next_id - 1}")
                if OTHERS in query.details:
                    most = query.id + MOST_AT_ONCE
                    whole(f"{OTHERS} of a stored query", query.details[OTHERS], at_least=query.id, at_most=most)
                else:
                    policy.check_details(query.details)
                policy._register(query, policy.field.stored_place(query.index, query.x, query.context))
            elif kind == "observe":
                points, values, contexts, noise = (*rest, None, None)[:4]
                policy._learn_from(points, values, contexts, noise)
            elif kind == "tell" and len(rest) > 2:
                policy.tell(rest[0], rest[1], noise=rest[2])
            elif kind == "tell" and rest[0] in policy.log.pending and type(y := rest[1]) is float and abs(y) <= LARGEST:
                asked = policy.log.pending[rest[0]]  # as in `Policy.tell`, by a short cut
                policy.log.tell(asked, y)
                policy.on_tell(asked, policy.log.sign * y)
            elif kind in ("tell", "drop"):
                (policy.tell if kind == "tell" else policy.drop)(*rest)
            elif kind == "snapshot":
                snapshot.resume(policy, *rest)
                history = rest[0]["history"]
            else:
                policy.on_event(kind, *rest)
    if history is not None:  # not before: nothing is compacted meanwhile
        policy._history = whole("history of a snapshot", history, at_least=1)
        policy._due = policy.log.due(history)
