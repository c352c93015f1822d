"""Files that are written whole or not at all, and locks.

A file is written under a temporary name in the same folder, flushed to the disk and renamed. What a process that was
killed meanwhile has left there, the next write of the same file removes. Nothing read is ever unpickled or evaluated.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from misspec.errors import FileChanged, InvalidInput, StorageError, shown

LONGEST = 200  # bytes of a file's name that its temporary name repeats
PATIENCE = 10.0  # seconds to wait for a lock: a replacement takes milliseconds, so longer means another program

CHANGED = "{} has changed meanwhile; run the same command again"


def place(path: Any) -> Path:
    """A path that can name a file; InvalidInput for what cannot."""
    try:
        text = os.fspath(path)
        right = isinstance(text, str) and text != "" and b"\0" not in os.fsencode(text)
    except Exception:  # a foreign object may raise anything
        right = False
    if not right:
        raise InvalidInput(f"the path of a file must be text or a Path, not empty and without NUL; got {shown(path)}")
    return Path(text)


def regular(path: str | os.PathLike[str]) -> Path:
    """A path under which there is a file to read; StorageError where there is none, or a folder, a pipe or a device."""
    found = place(path)
    try:
        mode = found.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise StorageError(f"{found} does not exist") from None
    except OSError as error:
        raise StorageError(f"cannot read {found}: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise StorageError(f"{found} is {'a folder' if stat.S_ISDIR(mode) else 'no file'}; name the file to read")
    return found


def parsed(content: bytes | str) -> Any:
    """JSON as this project writes it, without NaN and infinities; ValueError for anything else."""
    try:
        return DECODER.decode(content if isinstance(content, str) else content.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


DECODER = json.JSONDecoder(parse_constant=_no_number)


# -- writing -----------------------------------------------------------------------------------------------------------


def replace(
    path: str | os.PathLike[str],
    content: bytes | Iterable[bytes],
    *,
    new: bool = False,
    tidy: bool = True,
    hold: bool = False,
    instead_of: bytes | None = None,
) -> BinaryIO | None:
    """Write a whole file or nothing. A link is written through, and a file that is there gives its mode to the new one;
    new: StorageError where there is one of that name. tidy: look for what writes that were killed have left, which
    takes the longer the more files there are in the folder. hold: return a handle of the new file, with a lock that was
    never open to others, None where there are no locks. instead_of: the content that is replaced; FileChanged if
    the file holds something else. Calls with it take turns, and it is compared last of all, just before the rename."""
    named = place(path)
    if named.is_relative_to("/dev"):
        raise StorageError(f"cannot write {named}: it is no file; name a file")
    target = named if new else Path(os.path.realpath(named))
    held: BinaryIO | None = None
    try:
        before = _there(target)
        turn = contextlib.nullcontext() if instead_of is None or before is None else _turn(target)
        with turn, _temporary(target, tidy=tidy) as (temporary, stream):
            stream.writelines([content] if isinstance(content, bytes) else content)
            stream.flush()
            if before is not None and hasattr(os, "fchmod"):
                with contextlib.suppress(OSError):  # only root gives files away
                    os.fchown(stream.fileno(), before.st_uid, before.st_gid)
                os.fchmod(stream.fileno(), stat.S_IMODE(before.st_mode))
            os.fsync(stream.fileno())
            if os.name == "nt":  # where an open file keeps its name, and nothing is locked
                stream.close()
            if instead_of is not None and (_there(target) is None or target.read_bytes() != instead_of):
                raise FileChanged(CHANGED.format(named))
            held = _held(stream.fileno()) if hold else None
            if new:
                _put(temporary, target)
            else:
                temporary.replace(target)
        _flush_folder(target.parent)
        return held
    except BaseException as error:
        if held is not None:  # else its lock would keep others out until it is forgotten
            held.close()
        if isinstance(error, OSError):
            raise StorageError(f"cannot write {named}: {_said(error, target)}") from error
        raise


def _there(target: Path) -> os.stat_result | None:
    """Find the file to be replaced; StorageError where it is none."""
    try:
        found = target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "its links lead nowhere")
    if not stat.S_ISREG(found.st_mode):
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "no file"
        raise StorageError(f"cannot write {target}: it is {what}; name a file")
    return found


def _said(error: OSError, target: Path) -> str:
    """Why a file cannot be written, and what to do."""
    if error.errno == errno.ENAMETOOLONG:
        return f"the name is too long, {len(os.fsencode(target.name))} bytes; choose a shorter one"
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{error.strerror}; choose a folder that exists and is writable"
    return error.strerror or str(error)


@contextlib.contextmanager
def _turn(target: Path) -> Iterator[None]:
    """Hold a lock on a file that is about to be replaced.

    Those who wait lock the file that was replaced. They have read it before, so they see that it has changed.
    """
    try:
        handle = os.open(target, os.O_RDWR)  # network file systems lock only what can be written
    except PermissionError:
        handle = os.open(target, os.O_RDONLY)
    try:
        if not _locked(handle, PATIENCE) and os.fstat(handle).st_nlink:
            raise StorageError(f"cannot write {target}: another program has locked it; close it there and try again")
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _temporary(target: Path, *, tidy: bool) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file beside the target, open for writing, that is gone in the end unless it was renamed.

    Who writes holds a lock on it that ends with the process, so that a file without one is litter. A file that has no
    name before it is whole (O_TMPFILE) would leave none at all, but cannot take the place of another without one.
    """
    name, whole = target.name, os.fsencode(target.name)
    if len(whole) > LONGEST:
        name = hashlib.sha256(whole).hexdigest()[:16]
    if tidy:
        _tidy(target.parent, name)
    while True:
        temporary = target.with_name(f".{name}.{secrets.token_hex(6)}.part")
        stream = temporary.open("xb")  # with the permissions that the user's files have
        try:
            if _locked(stream.fileno()):
                yield temporary, stream
                return
        finally:
            stream.close()
            temporary.unlink(missing_ok=True)


def _tidy(folder: Path, name: str) -> None:
    """Remove temporary files of this name that no process writes any more."""
    ours = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{12}}\.part")
    with contextlib.suppress(OSError):  # litter is no reason not to write
        for path in folder.iterdir():
            if ours.fullmatch(path.name):
                with contextlib.suppress(OSError, ImportError):
                    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
                    try:
                        if lock(handle):
                            path.unlink()  # while it is locked, so that a process that has just made it notices
                    finally:
                        os.close(handle)


def lock(handle: int, patience: float = 0.0) -> bool:
    """Lock an open file until it is closed; False where another process holds the lock for longer than `patience`
    seconds. ImportError where the system has no such locks, OSError where its file system has none."""
    import fcntl

    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)


def _locked(handle: int, patience: float = 0.0) -> bool:
    """Lock a file, where there are locks; False where that fails, or the file has lost its name meanwhile (a new one
    may be taken for litter)."""
    try:
        return lock(handle, patience) and os.fstat(handle).st_nlink > 0
    except (ImportError, OSError):
        return True


def _held(handle: int) -> BinaryIO | None:
    """Another handle of a file, to append to; it shares the lock, until it is closed or forgotten."""
    try:
        import fcntl
    except ImportError:
        return None
    fcntl.fcntl(handle, fcntl.F_SETFL, os.O_APPEND)
    return os.fdopen(os.dup(handle), "ab", buffering=0)


def _put(temporary: Path, target: Path) -> None:
    """Give a file its name, unless another has it."""
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise
        if isinstance(error, FileExistsError) or target.exists():
            raise StorageError(f"{target} exists already; choose another name") from None
        temporary.replace(target)  # on a file system without links


def _flush_folder(folder: Path) -> None:
    """The new name survives a power cut too, where the system can ensure that."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
