"""A policy that is saved as it goes: every call that adds events appends one record to a file, at a cost that does not
grow with what was there before.

The first record is what `state()` has besides the events, and the number of events that were there when the file was
begun. Each further one is what one call has added, entries with tabs between them:

    t…          a result: base64 of its id (int64) and y (float64), little-endian as all that follows
    a… c… {…}   a query: base64 of id, index and position (int64, −1 for none), NUMBERS and, where there is no index, x
                (float64); base64 of the context, where there is one; details as JSON, where there are any
    […]         any other event, as `state()` has it
    {…}         what has changed in the random state

Decimal digits would take three times as long and twice the bytes.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import struct
import sys
import time
import warnings
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii as quoted
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from misspec.domains import Domain
from misspec.errors import Array, StorageError
from misspec.files import records, storage
from misspec.files.records import Appender, Mark, Reader
from misspec.policies.core import state
from misspec.policies.core.answers import NUMBERS, Query

if TYPE_CHECKING:
    from misspec.policies.core.policy import Policy

LOG = logging.getLogger("misspec.journal")
LOOKING = 2.0  # seconds that others may take to see that a new file is not theirs
MANY = 1000  # events in one record, when a file is begun by a policy that has more
MADE = ("policy", "domain", "model", "settings")  # what must be equal for a policy to go on in a file
TOLD, ASKED = struct.Struct("<qd"), struct.Struct(f"<qqq{len(NUMBERS)}d")
ENCODE = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode

Written = tuple[Mark, int, Mapping[str, Any]]  # up to where a file is written, with how many events, the random state


class Journal:
    """The file that a policy appends to."""

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
            if len(events) == count + 1 and random == before:  # the usual case, by a short cut
                file.append(_entry(events[count]))
            elif len(events) > count or random != before:
                file.append(_record(events[count:], before, random))
        except (OSError, StorageError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise StorageError(
                f"the journal {self.file.path} cannot be written: {reason}. The call was undone, and can be made "
                "again; policy.journal(path) begins or goes on with a file, policy.journal(None) goes on without"
            ) from error
        except (TypeError, ValueError, RecursionError, struct.error) as error:
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

    def close(self) -> None:
        self.file.close()


def attach(policy: Policy, path: str | os.PathLike[str], *, sync: bool) -> Journal:
    """Begin a file with the events of the policy, or go on in one that holds a part of it."""
    place = storage.place(path)
    header = {
        **state.encode_made(policy, {name: values.tolist() for name, values in policy.field.arrays().items()}),
        "begun": len(policy.log.events),
    }
    begun = None
    if not os.path.lexists(place):
        begun = records.create(place, _begin(policy, header))
    file = _opened(policy, place, sync=sync, ours=begun is not None)
    try:
        if begun is not None and file.size() == begun[0]:
            file.mark = begun
            return Journal(file, (begun, header["begun"], header["random"]))
        written = _compared(policy, place, json.loads(ENCODE(header)))
        file.rewind(written[0])
        journal = Journal(file, written)
        journal.append(policy, written[1])
    except OSError as error:
        file.close()
        raise StorageError(f"cannot write to {place}: {error.strerror}") from error
    except BaseException:
        file.close()
        raise
    return journal


def _opened(policy: Policy, place: Path, *, sync: bool, ours: bool) -> Appender:
    """The file, locked. ours: it was made a moment ago; a process that holds it only looks whether it is its own."""
    held, patience = None if policy._journal is None else policy._journal.file, time.monotonic() + LOOKING * ours
    while True:
        try:
            return Appender(place, sync=sync, held=held)
        except StorageError:
            if time.monotonic() >= patience:
                raise
            time.sleep(0.01)


def load(
    path: str | os.PathLike[str], *, kernel: Any = None, domain: Domain | None = None, width: Any = None
) -> Policy:
    """A policy from a file written by save() or journal(); what it does not hold is handed in again, as for restore().

    A last record of a journal that was cut short, as by a power cut, is left out, with a warning.
    """
    if not records.recognised(path):
        return state.load_saved(path, kernel=kernel, domain=domain, width=width)
    source = _Source(path)
    policy = state.made(source.header, kernel=kernel, domain=domain, width=width)
    state.replay(policy, (_event(entry, policy) for entry in source.events()))
    state.draw_on(policy, source.random)
    if source.reader.torn:
        warnings.warn(
            f"the last record of {path} was cut short, and its {source.reader.torn} bytes are left out: "
            f"the policy is as after the {len(policy.log.events)} events before it, and policy.journal(path) goes on",
            UserWarning,
            stacklevel=2,
        )
    return policy


class _Source:
    """A journal that is read: its header, its events one by one, and the random state after those that were read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.reader = Reader(path)
        self._records = iter(self.reader)
        first = next(self._records, None)
        header = None if first is None else self._parsed(first)
        if not isinstance(header, dict) or type(header.get("begun")) is not int or "random" not in header:
            raise StorageError(f"{path} is damaged: the journal's header is not whole; restore it from a copy")
        self.header: dict[str, Any] = header
        self.random: Any = header["random"]

    def _parsed(self, payload: bytes) -> Any:
        try:
            return storage.parsed(payload)
        except ValueError as error:
            raise StorageError(f"{self.reader.path} holds a record that is not JSON ({error})") from error

    def events(self) -> Iterator[bytes]:
        """Their entries."""
        count = 0
        for payload in self._records:
            for entry in payload.split(b"\t"):
                if entry.startswith(b"{"):
                    self.random = _merged(self.random, self._parsed(entry)) if isinstance(self.random, dict) else None
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
    if not records.recognised(path):
        raise StorageError(f"{path} exists and is not a journal; choose another name")
    source = _Source(path)
    if source.header.get("format") != header["format"]:
        raise StorageError(f"{path} was written by another version of misspec; choose another name")
    for part in MADE:
        if source.header.get(part) != header[part]:
            raise StorageError(f"{path} is the journal of another policy: its {part} differs; {remedy}")
    count = 0
    for theirs in source.events():
        if count == len(policy.log.events) or theirs != _entry(policy.log.events[count]):
            raise StorageError(
                f"{path} contains events that this policy does not have, from event {count} on; {remedy}"
            )
        count += 1
    if source.reader.torn:
        LOG.warning("%s: %d bytes of a record that was cut short are cut off", path, source.reader.torn)
    return source.reader.mark, count, source.random


def _begin(policy: Policy, header: dict[str, Any]) -> Iterator[bytes]:
    yield ENCODE(header).encode()
    for start in range(0, len(policy.log.events), MANY):
        yield _record(policy.log.events[start : start + MANY], {}, {})


def _record(events: Sequence[tuple[Any, ...]], before: Mapping[str, Any], after: Mapping[str, Any]) -> bytes:
    entries = [_entry(event) for event in events]
    if after != before:
        entries.append(ENCODE(_changed(before, after)).encode())
    return b"\t".join(entries)


def _entry(event: tuple[Any, ...]) -> bytes:
    kind = event[0]
    if kind == "tell":
        return b"t" + b2a_base64(TOLD.pack(event[1], event[2]), newline=False)
    if kind != "ask":
        return ENCODE(state.encode_event(event)).encode()
    q: Query = event[1]
    index, position, details, context = q.index, q.position, q.details, q.context
    numbers = ASKED.pack(
        q.id, -1 if index is None else index, -1 if position is None else position,
        q.mean, q.std, q.multiplier, q.enlargement, q.upper,
    )  # fmt: skip
    if index is None:
        numbers += _doubles(q.x)
    entry = b"a" + b2a_base64(numbers, newline=False)
    if details or context is not None:
        c = b"" if context is None else b2a_base64(_doubles(context), newline=False)
        entry += b" %s %s" % (c, _details(details))
    return entry


def _details(details: Mapping[str, Any]) -> bytes:
    """As JSON: what the encoder does, in half the time for a few numbers and words."""
    parts = []
    for name, value in details.items():
        kind = type(value)
        if kind is int or (kind is float and isfinite(value)):
            parts.append(f"{quoted(name)}:{value!r}")
        elif kind is str:
            parts.append(f"{quoted(name)}:{quoted(value)}")
        else:
            return ENCODE(dict(details)).encode()
    return f"{{{','.join(parts)}}}".encode() if parts else b""


def _event(entry: bytes, policy: Policy) -> tuple[Any, ...]:
    """Read what `_entry` has written."""
    if entry.startswith(b"t"):
        return "tell", *TOLD.unpack(a2b_base64(entry[1:], strict_mode=True))
    if not entry.startswith(b"a"):
        return state.decode_event(storage.parsed(entry), policy)
    first, context, details = (*entry.split(b" ", 2), b"", b"")[:3]
    content = a2b_base64(first[1:], strict_mode=True)
    id_, index, position, *numbers = ASKED.unpack_from(content)
    fields = dict(zip(NUMBERS, numbers, strict=True), id=id_, position=None if position < 0 else position)
    if details:
        fields["details"] = storage.parsed(details)
    if index >= 0 and len(content) > ASKED.size:
        raise StorageError("a query of a candidate, and with a point beside it")
    x = None if index >= 0 else np.frombuffer(content, "<f8", offset=ASKED.size)
    c = np.frombuffer(a2b_base64(context, strict_mode=True), "<f8") if context else None
    return "ask", state.decode_query(policy, None if index < 0 else index, x, c, fields)


def _doubles(x: Array) -> bytes:
    return x.tobytes() if sys.byteorder == "little" else x.byteswap().tobytes()


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that differ, in dicts of dicts."""
    return {
        name: _changed(before[name], value) if isinstance(value, dict) and isinstance(before.get(name), dict) else value
        for name, value in after.items()
        if name not in before or before[name] != value
    }


def _merged(before: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `_changed`."""
    merged = dict(before)
    for name, value in changed.items():
        inside = isinstance(value, dict) and isinstance(before.get(name), dict)
        merged[name] = _merged(before[name], value) if inside else value
    return merged
