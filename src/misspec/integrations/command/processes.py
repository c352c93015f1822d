"""Processes of this machine: which one it is, whether it still runs, and the commands that it starts.

A process is known by its number and the time at which it started: numbers are given again, both together are not.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from misspec.errors import InvalidInput

PATIENCE = 3.0  # seconds between asking a command to end and ending it
TAIL = 2**20  # bytes at the end of an output that are looked at
# The command starts once its number is on record; if the process that records it dies before, it never starts. Its
# number and starting time stay when it takes over.
GATE = (
    "import os,sys\n"
    "if not os.read(0, 1): sys.exit()\n"
    "os.dup2(os.open(os.devnull, os.O_RDONLY), 0)\n"
    "try: os.execvp(sys.argv[1], sys.argv[1:])\n"
    "except OSError as error: sys.exit(f'{sys.argv[1]}: {error.strerror}')\n"
)


class Running(NamedTuple):
    """The outcome of a command: its exit code (None: it was ended, and why), and the ends of its output."""

    code: int | None
    ended: str | None
    out: str
    err: str


@functools.cache
def host() -> str | None:
    """Scope in which process numbers are unique: host, boot, user and namespace; None where that is unknown."""
    boot = _read("/proc/sys/kernel/random/boot_id") or _say("sysctl", "-n", "kern.bootsessionuuid")
    if not boot or started(os.getpid()) is None:
        return None
    try:
        names = str(Path("/proc/self/ns/pid").readlink())  # a container's processes have numbers of their own
    except OSError:
        names = ""
    return "/".join((socket.gethostname(), boot, str(os.getuid()), names))


def started(pid: int) -> str | None:
    """Starting time of a process, in the system's words; None if there is none, or it has ended and is only listed."""
    if not Path("/proc/self/stat").exists():
        found = (_say("ps", "-o", "state=,lstart=", "-p", str(pid)) or "").split(maxsplit=1)
        return found[1] if len(found) == 2 and found[0][:1] != "Z" else None
    fields = (_read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()  # a name may have blanks and brackets in it
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else None


def end_group(pid: int, start: str) -> bool:
    """End the process group that this process leads, if it still does; whether there was one."""
    with contextlib.suppress(OSError):
        if started(pid) == start and os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
            return True
    return False


def run_process(
    words: Sequence[str], *, timeout: float | None, stop: threading.Event, record: Callable[[int, str | None], None]
) -> Running:
    """Run a command in a process group of its own, with no input, until it ends, takes too long, or is to stop.

    record(pid, start) is called before it starts. What it leaves running in its group is ended with it.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        gated = [sys.executable, "-I", "-S", "-c", GATE, *words]
        try:
            process = subprocess.Popen(gated, stdin=subprocess.PIPE, stdout=out, stderr=err, start_new_session=True)
        except OSError as error:
            raise InvalidInput(f"cannot start a process: {error.strerror}") from None
        assert process.stdin is not None
        try:
            record(process.pid, started(process.pid))
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(b".")
            ended = _wait(process, timeout, stop)
        except BaseException:
            if process.returncode is None:
                _end(process, 0.0)
            raise
        finally:
            process.stdin.close()
        code = None if ended else process.returncode
        return Running(code, ended, _tail(out), _tail(err))


def _wait(process: subprocess.Popen[bytes], timeout: float | None, stop: threading.Event) -> str | None:
    """Until it has ended; why it was made to, if it was."""
    limit = math.inf if timeout is None else time.monotonic() + timeout
    pause = 0.002
    while not _exited(process):
        if stop.is_set() or time.monotonic() > limit:
            why = "stopped" if stop.is_set() else f"it took more than {timeout:g} seconds"
            _end(process, PATIENCE)
            return why
        stop.wait(min(pause, max(0.0, limit - time.monotonic())))
        pause = min(0.05, 1.5 * pause)
    _end(process, 0.0)  # only what it left behind
    return None


def _end(process: subprocess.Popen[bytes], patience: float) -> None:
    """End the whole group: asked first if there is patience, then made to. Its leader is waited for last, since its
    number belongs to the group as long as it is listed."""
    if patience > 0:
        _signal(process.pid, signal.SIGTERM)
        limit = time.monotonic() + patience
        while not _exited(process) and time.monotonic() < limit:
            time.sleep(0.01)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says so of groups that are only listed
        os.killpg(group, number)


def _exited(process: subprocess.Popen[bytes]) -> bool:
    """Test whether it has exited, leaving it listed where the system can."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL))
    return file.read(TAIL).decode("utf-8", "replace")


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _say(*words: str) -> str | None:
    """Output of a command of the system; None if there is no such command."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None
