"""The file of a policy: a header, and then its events. `save` writes it whole; a journal is saved as it goes, each call
that adds events appends one record, at a cost that does not grow with what was there before.

The header is what `state()` has besides the events, with a digest of it but for the random state, and the number of
events that were there when the file was begun: a file that has fewer was cut short. Each further record is what one
call has added, with tabs between: events (`events.py`), and what has changed in the random state.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from misspec.domains import Domain
from misspec.errors import InvalidInput, MisspecError, StorageError
from misspec.files import records, storage
from misspec.files.records import Appender, Mark, Reader
from misspec.policies.core import state, undo
from misspec.policies.core.answers import Query
from misspec.policies.core.given import same_point
from misspec.policies.core.log import ENCODE, Event, decoded, line

if TYPE_CHECKING:
    from misspec.policies.core.policy import Policy

LOG = logging.getLogger("misspec.journal")
MADE = ("policy", "domain", "model", "settings")  # what must be equal for a policy to go on in a file

Written = tuple[Mark, int, Mapping[str, Any]]  # up to where a file is written, with how many events, the random state


class Journal:
    def __init__(self, file: Appender, written: Written) -> None:
        self.file = file
        self._now = self._before = written  # a call that is undone takes back one record

    def append(self, policy: Policy, start: int) -> None:
        """Write the events that a call has added to the first `start` ones; StorageError where that fails."""
        file = self.file
        if file.handle is None:  # this process was forked off the one that writes
            return
        try:
            mark, count, before = self._now
            if count != start or mark != file.mark:  # a call was undone, but for the file
                self._cut(start)
                _, count, before = self._now
            events = policy.log.events
            random = policy._rng.bit_generator.state if policy.abilities.draws else before
            entries = list(map(line, events[count:]))
            if random is not before and random != before:
                new = {name: part for name, part in random.items() if name not in before or before[name] != part}
                entries.append(ENCODE(new).encode())
            if entries:
                file.append(b"\t".join(entries))
        except (OSError, StorageError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise StorageError(
                f"the journal {self.file.path} cannot be written: {reason}. The call was undone, and can be made "
                "again; policy.journal(path) begins or goes on with a file, policy.journal(None) goes on without"
            ) from error
        except (TypeError, ValueError, RecursionError) as error:
            raise StorageError(
                f"what this call adds cannot be written to the journal {self.file.path}: {error}. The call was undone; "
                "details of queries and events of a policy's own are numbers, text, lists and dicts"
            ) from error
        self._before = self._now  # in this order: an interrupt between the two takes back nothing that was done
        self._now = file.mark, len(events), random

    def rewind(self, start: int) -> None:
        """Cut off what an undone call has written; where that fails now, the next call does it."""
        with contextlib.suppress(OSError, StorageError):
            self._cut(start)

    def _cut(self, start: int) -> None:
        if self._now[1] > start:
            self._now = self._before
        self.file.rewind(self._now[0])


def save(policy: Policy, path: str | os.PathLike[str]) -> None:
    """Write the whole file of a policy, atomically; its own journal has all of it, and is brought to the disk. A file
    of others, or one that another policy writes to, is refused."""
    place, journal = storage.place(path), policy._journal
    if journal is not None and journal.file.is_at(place):
        journal.file.flush()
        return
    with state.storable(), records.replacing(place):
        records.create(place, _begin(_header(policy), policy.log.events), new=False)


def compact(policy: Policy, history: int | None, *, everything: bool) -> None:
    """Replace events by a snapshot, in the journal too: everything so far, or what is before the last snapshot."""
    kept = [] if everything else policy.log.events[max(policy.log.start - 1, 0) :]
    _rewrite(policy, [*kept, ("snapshot", undo.snapshot_of(policy, history))], "compacted")


def retract(policy: Policy, id_: int, query: Query | None = None) -> None:
    """Take the result of a query out of the events, in the journal too: the query is pending again. query: as it was
    handed in, to be compared with the one that was asked."""
    events = policy.log.events
    if query is not None and not all(same_point(query, e[1]) for e in events if e[0] == "ask" and e[1].id == id_):
        raise InvalidInput(f"query {id_} comes from another policy: its point differs from the one asked here")
    turn = max((turn for turn, event in enumerate(events) if event[:2] == ("tell", id_)), default=None)
    if turn is None:
        state = "pending: drop it" if id_ in policy.log.pending else "not told here, or its result was compacted"
        raise InvalidInput(f"query {id_} has no result that can be taken back: it is {state}")
    if policy.abilities.waits:
        raise InvalidInput(f"{type(policy).__name__} has built its episodes on this result; begin again without it")
    if any(event[0] == "snapshot" for event in events[turn:]):
        raise InvalidInput(f"the result of query {id_} was compacted, and can no longer be told from the others")
    left = [*events[:turn], *filter(None, map(policy.after_retraction, events[turn + 1 :]))]
    undo.rebuilt(policy, left)  # it fails here, if it fails, and nothing was changed
    _rewrite(policy, left, f"the result of query {id_} is taken back")


def _rewrite(policy: Policy, events: list[Event], what: str) -> None:
    """Replace the events of a policy, in the journal too.

    The file is replaced by one that is locked already; the policy is then rebuilt from the events, as after a call
    that failed, so that it is what `load` makes of the file.
    """
    log, journal = policy.log.after(events), policy._journal
    if journal is not None and journal.file.handle is not None:
        header = {**_header(policy), "begun": len(events)}
        file = journal.file.replaced(_begin(header, events))
        journal = Journal(file, (file.mark, len(events), header["random"]))
        LOG.info("%s: %s; %d events", file.path, what, len(events))
    # one assignment: whatever interrupts what follows, the next call goes on from here, and the old file is closed
    policy.__dict__.update(log=log, _journal=journal, _broken=undo.Savepoint(len(events)))
    undo.repair(policy)


def compact_due(policy: Policy) -> None:
    """Compact a policy from time to time; where that fails, go on and try again later."""
    assert policy._history is not None
    policy._due = policy.log.turn + policy._history
    try:
        compact(policy, policy._history, everything=False)
    except MisspecError as error:
        LOG.warning("a policy goes on without being compacted: %s", error)


def attach(policy: Policy, path: str | os.PathLike[str], *, sync: bool) -> Journal:
    """Begin a file with the events of the policy, or go on in one that holds a part of it."""
    place, header = storage.place(path), _header(policy)
    if not os.path.lexists(place):
        file = Appender.begun(place, _begin(header, policy.log.events), sync=sync)
        LOG.info("%s: begun with %d events", place, header["begun"])
        return Journal(file, (file.mark, header["begun"], header["random"]))
    file = Appender(place, sync=sync, held=None if policy._journal is None else policy._journal.file.handle)
    try:
        written = _compared(policy, place, header)
        file.rewind(written[0])
        journal = Journal(file, written)
        journal.append(policy, written[1])
    except OSError as error:
        file.close()
        raise StorageError(f"cannot write to {place}: {error.strerror}") from error
    except BaseException:
        file.close()
        raise
    LOG.info("%s: opened, and goes on after %d events", place, written[1])
    return journal


def load(
    path: str | os.PathLike[str], *, kernel: Any = None, domain: Domain | None = None, width: Any = None
) -> Policy:
    """A policy from a file written by save() or journal(); what it does not hold is handed in again, as for restore().

    A last record of a journal that was cut short, as by a power cut, is left out, with a warning.
    """
    source = _Source(path)
    policy = state.policy_of_state(source.header, kernel=kernel, domain=domain, width=width)
    state.replay_stored(policy, (decoded(source.parsed(entry), policy.field) for entry in source.events()))
    state.draw_on(policy, source.random)
    if source.reader.torn:
        said = (
            f"the last record of {path} was cut short, and its {source.reader.torn} bytes are left out: "
            f"the policy is as after the {len(policy.log.events)} events before it, and policy.journal(path) goes on"
        )
        LOG.info("recovered: %s", said)
        warnings.warn(said, UserWarning, stacklevel=2)
    return policy


class _Source:
    """A file that is read: its header, its events one by one, and the random state after those that were read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.reader = Reader(path)
        self._records = iter(self.reader)
        first = next(self._records, None)
        header: Any = None if first is None else self.parsed(first)
        whole = isinstance(header, dict) and type(header.get("begun")) is int and "random" in header
        if not whole or header.get("digest") != _digest(header):
            raise StorageError(f"{path} is damaged: its header is not whole, or no policy's; restore it from a copy")
        self.header: dict[str, Any] = header
        self.random: Any = header["random"]

    def parsed(self, payload: bytes) -> Any:
        try:
            return storage.parsed(payload)
        except ValueError as error:
            raise StorageError(f"{self.reader.path} holds a record that is not JSON ({error})") from error

    def events(self) -> Iterator[bytes]:
        count = 0
        for payload in self._records:
            for entry in payload.split(b"\t"):
                if entry.startswith(b"{"):
                    self.random = {**self.random, **self.parsed(entry)} if isinstance(self.random, dict) else None
                else:
                    count += 1
                    yield entry
        if count < self.header["begun"]:
            raise StorageError(
                f"{self.reader.path} is damaged: {count} of the {self.header['begun']} events that it was begun with "
                "are left; restore it from a copy"
            )


def _compared(policy: Policy, path: Path, header: dict[str, Any]) -> Written:
    """Up to where a file holds the events of the policy; StorageError where it holds anything else."""
    remedy = "go on from it: policy = ms.load(path); policy.journal(path); or choose another name"
    source = _Source(path)
    if source.header["digest"] != header["digest"]:
        parts = [part for part in MADE if source.header.get(part) != storage.parsed(ENCODE(header[part]))]
        part = parts[0] if parts else "format"
        raise StorageError(f"{path} is the journal of another policy: its {part} differs; {remedy}")
    count = 0
    for theirs in source.events():
        if count == len(policy.log.events) or theirs != line(policy.log.events[count]):
            raise StorageError(f"{path} holds events that this policy does not have, from event {count} on; {remedy}")
        count += 1
    if source.reader.torn:
        LOG.warning("%s: %d bytes of a record that was cut short are cut off", path, source.reader.torn)
    return source.reader.mark, count, source.random


def _header(policy: Policy) -> dict[str, Any]:
    made = state.encode_made(policy)
    return {"digest": _digest(made), **made, "begun": len(policy.log.events)}


def _digest(header: Mapping[str, Any]) -> str:
    made = [header.get(part) for part in ("format", *MADE)]
    return hashlib.sha256(ENCODE(made).encode()).hexdigest()


def _begin(header: dict[str, Any], events: Sequence[Event]) -> Iterator[bytes]:
    """The records of a file that is written whole."""
    yield ENCODE(header).encode()
    yield from map(line, events)
