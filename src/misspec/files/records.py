"""Files that grow: records that are appended one by one and survive the death of the process that writes them.

The first line names the format and its version. Every record is a line, and the first of them is a header

    checksum length payload

with the length of the payload in bytes, and as checksum the CRC-32 of all payloads up to this one, in eight hexadecimal
digits: no record can be changed, left out or moved unseen. A payload has no line feed in it (JSON has none).

A write that is cut short leaves the beginning of one line at the end, and perhaps zeros after it, which readers leave
out and say so. Any other damage is refused, to the last line too. One writer at a time holds a lock that the system
releases with its process.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from misspec.errors import StorageError
from misspec.files import storage
from misspec.threads import tell_of_forks

NAME = b"misspec "
FIRST = NAME + b"records 3\n"
HEAD = rb"[0-9a-f]{8} "
# of a record: its beginning, however short
BEGUN = re.compile(rb"[0-9a-f]{0,8}|" + HEAD + rb"\d{0,16}|" + HEAD + rb"(?P<length>\d{1,16}) (?P<payload>[^\n]*)")

Mark = tuple[int, int]  # up to where a file is whole: its bytes, and the checksum of its last record
BEGIN: Mark = (len(FIRST), 0)
WHILE_SAVED = 1.0  # seconds to wait for a lock: others may just be saving there, which is short; a journal stays locked
TAKEN = (
    "another policy, here or in another process, writes to {}: end it or detach it there (policy.journal(None)), or "
    "choose another name"
)


def frame(payload: bytes, before: int) -> tuple[bytes, int]:
    """The line of a record after one with the checksum `before`, and its own checksum."""
    checksum = zlib.crc32(payload, before)
    return b"%08x %d %s\n" % (checksum, len(payload), payload), checksum


def create(
    path: str | os.PathLike[str], payloads: Iterable[bytes], *, new: bool, hold: bool = False
) -> tuple[Mark, BinaryIO | None]:
    """Write a file with these records, whole or not at all; new: StorageError where there is one already. The end of
    the file, and what `storage.replace` returns."""
    end, checksum = BEGIN

    def lines() -> Iterator[bytes]:
        nonlocal end, checksum
        yield FIRST
        for payload in payloads:
            line, checksum = frame(payload, checksum)
            end += len(line)
            yield line

    held = storage.replace(path, lines(), new=new, hold=hold)
    return (end, checksum), held


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[None]:
    """Inside, whatever has this name may be replaced; StorageError for a file of others, or one that is a journal of
    another policy."""
    there = False
    with contextlib.suppress(OSError):  # the name is too long
        there = path.is_file()
    if not there:  # nothing is there, or what `storage.replace` refuses
        yield
        return
    try:
        # network file systems lock only what can be written
        stream = path.open("r+b" if os.access(path, os.W_OK) else "rb")
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}; choose another name") from error
    with stream:
        if stream.read(len(NAME)) not in (b"", NAME):
            raise StorageError(f"{path} exists and is no file of misspec; choose another name, or delete it first")
        free = True
        with contextlib.suppress(ImportError, OSError):  # where there are no locks
            free = storage.lock(stream.fileno(), WHILE_SAVED)
        if not free:
            raise StorageError(TAKEN.format(path))
        yield


class Reader:
    """The payloads of a file, in order, none of them kept.

    mark, records   up to where it was read, and how many there were
    torn            bytes after the last whole record, known at the end: of one that was cut short
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = storage.regular(path)
        self.mark = BEGIN
        self.records = 0
        self.torn = 0

    def __iter__(self) -> Iterator[bytes]:
        end, checksum = BEGIN
        try:
            with self.path.open("rb") as stream:
                first = stream.readline()
                if first.startswith((NAME, b"PK")) and first != FIRST:
                    raise StorageError(
                        f"{self.path} is damaged, or of another version of misspec, which alone reads it"
                    )
                if first != FIRST:
                    raise StorageError(f"{self.path} is not a misspec file or is damaged; restore it from a copy")
                for line in stream:
                    payload = line[line.find(b" ", 9) + 1 : -1]
                    expected, after = frame(payload, checksum)
                    if line != expected:
                        self._check_torn(line, checksum, more=bool(stream.read(1)))
                        self.torn = len(line)
                        return
                    end, checksum = end + len(line), after
                    self.mark = end, checksum
                    self.records += 1
                    yield payload
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error.strerror}") from error

    def _check_torn(self, line: bytes, before: int, *, more: bool) -> None:
        """StorageError unless what does not match is the beginning of a record, with nothing after it but zeros, of
        which a power cut leaves many; before: the checksum of the record before it."""
        part = BEGUN.fullmatch(line.rstrip(b"\0"))
        cut = part is not None and (
            part["payload"] is None
            or len(part["payload"]) < int(part["length"])
            or frame(part["payload"], before)[0] == part[0] + b"\n"  # only the line feed is missing
        )
        if more or not cut:
            raise StorageError(
                f"{self.path} is damaged: record {self.records}, at byte {self.mark[0]}, does not match its "
                "checksum, and was not cut short; restore the file from a copy, or keep its first "
                f"{self.mark[0]} bytes, which are whole, to go on from there"
            )


class Appender:
    """A file of records that this process alone appends to. All it writes is at once with the system, which keeps it
    whatever happens to the process; with sync also on the disk, which keeps it when the power fails.

    mark     up to where it is whole
    handle   of the open file; None once it is closed
    """

    def __init__(
        self, path: str | os.PathLike[str], *, sync: bool, held: int | None = None, stream: BinaryIO | None = None
    ) -> None:
        """held: a handle that may be of this file, and then shares its lock. stream: the file, open and locked."""
        self.path = Path(path)
        self._name = str(self.path.absolute())  # to look under, whatever folder the process changes to
        self.sync = sync
        self.mark = BEGIN
        self._loose = False  # whether bytes after the mark are ours to cut off
        self._foreign = False  # whether others have written to it
        self.handle: int | None = self._opened(held, stream)
        try:
            found = os.fstat(self.handle)
            self._identity = found.st_dev, found.st_ino
            tell_of_forks(self)
        except BaseException:
            os.close(self.handle)
            raise

    def _opened(self, held: int | None, stream: BinaryIO | None) -> int:
        try:
            if stream is not None:
                with stream:  # whose lock the other handle shares
                    self._lock(stream.fileno())  # again: where there are no locks, this says so
                    self.handle = os.dup(stream.fileno())  # at once: an interrupt after it lets go of the lock
                    return self.handle
            if held is not None:
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(held), self.path.stat()):
                        return os.dup(held)
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0))
            try:
                self._lock(handle)
                if not os.path.samestat(os.fstat(handle), self.path.stat()):
                    raise StorageError(f"{self.path} was replaced while it was opened; try again")
            except BaseException:
                os.close(handle)
                raise
        except OSError as error:
            raise StorageError(f"cannot write to {self.path}: {error.strerror}") from error
        return handle

    def _lock(self, handle: int) -> None:
        try:
            free = storage.lock(handle)
        except ImportError:  # no such locks on this system
            return
        except OSError as error:
            raise StorageError(
                f"{self.path} cannot be locked ({error.strerror}), and two writers would spoil it; choose a folder "
                "whose file system has locks"
            ) from error
        if not free:
            raise StorageError(TAKEN.format(self.path))

    @classmethod
    def begun(
        cls, path: str | os.PathLike[str], payloads: Iterable[bytes], *, sync: bool, new: bool = True
    ) -> Appender:
        """A file with these records, locked before others can open it; new: StorageError where there is one already."""
        mark, stream = create(path, payloads, new=new, hold=True)
        file = cls(path, sync=sync, stream=stream)
        file.mark = mark
        return file

    def replaced(self, payloads: Iterable[bytes]) -> Appender:
        """Another file with these records in the place of this one, which is left to be closed. Nothing is changed if
        that fails, or others have changed this one."""
        self.rewind(self.mark)
        twin = Appender.begun(self._name, payloads, sync=self.sync, new=False)
        twin.path = self.path
        return twin

    def is_at(self, path: Path) -> bool:
        """Whether this is the file under a name."""
        with contextlib.suppress(OSError):
            return self.handle is not None and os.path.samestat(os.fstat(self.handle), path.stat())
        return False

    def flush(self) -> None:
        """Bring to the disk what was written; StorageError where that fails."""
        assert self.handle is not None
        try:
            os.fsync(self.handle)
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {error.strerror}") from error

    def append(self, payload: bytes) -> None:
        """One more record. OSError or StorageError where that fails; what is left of it is cut off by `rewind`."""
        handle, (end, checksum) = self.handle, self.mark
        assert handle is not None
        self._settle(handle)
        line, checksum = frame(payload, checksum)
        self._loose = True
        written = os.write(handle, line)
        while written < len(line):
            written += os.write(handle, line[written:])
        if self.sync:
            os.fsync(handle)
        self.mark = end + written, checksum
        self._loose = False

    def rewind(self, mark: Mark) -> None:
        """Cut off what was appended after a mark; where that fails, the next `append` does it."""
        # first: whatever interrupts what follows, the next call goes on from here
        self._loose = self._loose or mark != self.mark
        self.mark = mark
        if self.handle is not None:
            self._settle(self.handle)

    def _settle(self, handle: int) -> None:
        """The file ends at the mark, under its name; StorageError where it does not, or others have changed it. What
        others do is seen in the next call: looking costs no more than writing."""
        end = self.mark[0]
        try:
            found: os.stat_result | None = os.stat(self._name)  # noqa: PTH116  # faster than a Path's, in every call
        except PermissionError:  # a process that has given up its rights may still write to what it has open
            found = os.fstat(handle)
        except (FileNotFoundError, NotADirectoryError):
            found = None
        if found is None or not found.st_nlink or (found.st_dev, found.st_ino) != self._identity:
            raise StorageError(
                f"{self.path} was renamed, deleted or replaced: put it back, or go on where it is now: "
                "policy.journal(its new name)"
            )
        if found.st_size < end or (found.st_size > end and not self._loose):
            self._foreign = True
        if self._foreign:
            raise StorageError(f"{self.path} was changed by others")
        if found.st_size > end:
            os.ftruncate(handle, end)
            if self.sync:
                os.fsync(handle)
        self._loose = False

    def close(self) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            os.close(handle)

    def forked(self) -> None:
        """A process that is forked off appends to nothing, and holds no lock."""
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "handle"):  # it was opened
            self.close()
