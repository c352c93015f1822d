"""All or nothing: a call that fails half-way, whatever fails, leaves the policy as it was before.

Before a call changes anything its *mark* is kept: the number of events, and the random state if the call may draw. If
the call fails, the log is cut to that mark, and a twin that is made with the same settings lives through what is left;
its attributes replace those of the policy. Should that fail too, the next call tries again.

A *snapshot* is the event that stands for all before it, where their results are summed up in arrays of bounded size:
the posteriors' arrays, own bands, counts, pending queries and what the policy keeps of its own. Replaying it restores
them to the bit, so that a policy that goes on from it and one that was restored from it are the same. Where rounds
bring their own points (`Open`, and `Joint` on a list), points that were told once are forgotten: their results are in
the sums, and their own bands are dropped. On a list all points stay.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from misspec.encoding import kept, restored
from misspec.errors import (
    MOST_AT_ONCE,
    AwaitingResults,
    HorizonReached,
    InvalidInput,
    MisspecError,
    NumericalError,
    StorageError,
    shown,
    whole,
)
from misspec.policies.core.log import OTHERS, Event, place_of
from misspec.policies.core.registry import made
from misspec.threads import lock_after_fork, one_thread

if TYPE_CHECKING:
    from misspec.policies.core.policy import Policy

LOG = logging.getLogger("misspec.policies")
Changed = TypeVar("Changed")


class Savepoint(NamedTuple):
    """Where a policy goes back to."""

    events: int
    random: Any = None  # None: the call does not draw


def changed(policy: Policy, change: Callable[[], Changed], *, drawing: bool = False) -> Changed:
    """All of a change or nothing of it; in the journal, if there is one, before the call returns."""
    before = Savepoint(len(policy.log.events), policy._rng.bit_generator.state if drawing else None)
    policy._changing = before
    try:
        with one_thread():
            result = change()
        if policy._journal is not None:
            policy._journal.append(policy, before.events)
        policy._changing = None
    except BaseException as error:
        policy._broken = before  # one assignment: whatever interrupts what follows, the next call goes on from here
        _take_back(policy)
        if policy._journal is not None:
            policy._journal.rewind(before.events)
        with contextlib.suppress(Exception):
            repair(policy)
        if not isinstance(error, AwaitingResults | HorizonReached):  # which are answers
            LOG.warning("a call of %s failed and was undone", type(policy).__name__)
        if isinstance(error, np.linalg.LinAlgError):
            raise NumericalError(
                f"rounding has made a matrix singular ({error}); a larger regularization (λ) than "
                f"{policy.model.regularization:g} helps"
            ) from error
        raise
    return result


def _take_back(policy: Policy) -> None:
    """Cut the log to the mark, and draw from there again. Repeatable: if interrupted, the same call completes it."""
    if policy._broken is not None:
        if policy._broken.random is not None:
            policy._rng.bit_generator.state = policy._broken.random
        policy.log = policy.log.after(policy.log.events[: policy._broken.events])


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


def forked(policy: Policy) -> None:
    """In a process that was forked off: undo the call, if any, that a thread of the other one had begun."""
    lock = policy.__dict__.get("_lock")  # None: still being made
    if lock is None or (renewed := lock_after_fork(lock)) is lock:
        return
    policy._lock = renewed
    # after a call that only read, too: caches
    policy._broken = policy._broken or policy._changing or Savepoint(len(policy.log.events))
    _take_back(policy)


def rebuilt(policy: Policy, events: Sequence[Event]) -> Policy:
    """A policy that was made in the same way, after these events, of which it lives through those after a snapshot."""
    twin: Policy = made(type(policy), policy.domain, policy.model_as_given, policy.settings)
    first = max((turn for turn, event in enumerate(events) if event[0] == "snapshot"), default=0)
    twin.log = twin.log.after(events[:first])
    replay(twin, events[first:])
    return twin


def replay(policy: Policy, events: Iterable[Event]) -> None:
    history, log = None, policy.log
    policy._replaying = True  # a policy that fails here is given up
    with one_thread():
        for kind, *rest in events:
            if kind == "ask":
                _ask_again(policy, rest[0])
            elif kind == "tell":
                id_, y, noise, limits = (*rest, None, None)[:4]
                policy.tell(id_, y, noise=noise, limits=limits)
            elif kind == "drop":
                policy.drop(*rest)
            elif kind == "observe":
                policy._learn_from(*(*rest, None, None, None)[:5])
            elif kind == "snapshot":
                _resume(policy, *rest)
                history = rest[0]["history"]
            else:
                policy.on_event(kind, *rest)
    policy._replaying = False
    if history is not None:  # not before: nothing is compacted meanwhile
        policy._history = whole("history of a snapshot", history, at_least=1)
        policy._due = log.forgotten[0] + log.start + history


def _ask_again(policy: Policy, query: Any) -> None:
    if query.id < policy.log.next_id:
        raise StorageError(f"query {query.id} was asked after query {policy.log.next_id - 1}")
    if OTHERS in query.details:
        most = query.id + MOST_AT_ONCE
        whole(f"{OTHERS} of a stored query", query.details[OTHERS], at_least=query.id, at_most=most)
    else:
        policy.check_details(query.details)
    policy._register(query, place_of(query, policy.field))


def snapshot_of(policy: Policy, history: int | None) -> dict[str, Any]:
    """The content of a snapshot; InvalidInput where there is none of bounded size."""
    content: dict[str, Any] = {}
    reason = policy.unsummed()
    if not reason:
        content = policy._evidence.snapshot(forget=not policy.field.size)
        if None in content["posteriors"]:
            reason = "its kernel has no features of bounded number; budget=… bounds them"
    if reason:
        raise InvalidInput(f"{type(policy).__name__} cannot be compacted: {reason}")
    own = {name: kept(getattr(policy, name)) for name in policy.counters}
    content |= {"log": policy.log.snapshot(), "history": history, "counters": own}
    return {**content, "sha256": _digest(content)}


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _resume(policy: Policy, content: Any) -> None:
    """Let a policy go on from a snapshot of one that was made in the same way."""
    parts = {"log", "history", "counters", "own", "posteriors", "layers", "expected", "sha256"}
    if not isinstance(content, dict) or set(content) != parts or set(content["counters"]) != set(policy.counters):
        raise StorageError(f"a snapshot must have {', '.join(sorted(parts))}, got {shown(content)}")
    # its arrays belong together in more ways than could be checked one by one
    if _digest({name: each for name, each in content.items() if name != "sha256"}) != content["sha256"]:
        raise StorageError("a snapshot in this state was edited or damaged; restore the state as it was")
    policy.log.add("snapshot", content)
    policy._evidence.resume(content, policy.log.pending)
    for name, stored in content["counters"].items():
        setattr(policy, name, restored(stored, getattr(policy, name)))
