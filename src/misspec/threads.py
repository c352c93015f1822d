"""BLAS on one thread while a policy works, and locks in processes that are forked off.

Sums over several threads are rounded differently from sums over one, so that what a policy answers would depend on how
many there are; and the matrices are so small that threads of their own only slow them down.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Any, Protocol


class Forkable(Protocol):
    """An object that must be told that this process was forked off another one."""

    def forked(self) -> None:
        """Called in the new process, which has one thread: whatever the others were doing stays half done."""


_FORKABLE: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def tell_of_forks(what: Forkable) -> None:
    """Call its `forked` in every process that is forked off, as long as it lives."""
    _FORKABLE[id(what)] = what


def lock_after_fork(lock: Any) -> Any:
    """The lock, or a new one if a thread held it that this process does not have."""
    if lock.acquire(blocking=False):  # free, or held by the thread that forked
        lock.release()
        return lock
    return threading.RLock()


def _forked() -> None:
    for reference in _FORKABLE.valuerefs():
        what = reference()
        if what is not None:
            with contextlib.suppress(Exception):  # of one: the others are to be told too
                what.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Limit:
    """One thread for BLAS, as long as anybody holds it; then what was before.

    The limit belongs to the process: code of others that runs meanwhile, in other threads, is reached by it too.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._holders: set[int] = set()
        self._libraries: list[Any] | None = None
        self._before: list[tuple[Any, int]] = []  # what is to be set again

    def hold(self, holder: int) -> None:
        with self._lock:
            if not self._holders:
                for library in self._found():
                    n = library.get_num_threads()
                    if n is not None and n > 1:
                        self._before.append((library, n))
                        _set(library, 1)
            self._holders.add(holder)

    def let_go(self, holder: int) -> None:
        with self._lock:
            self._holders.discard(holder)
            if not self._holders:
                self._lift()

    def forked(self) -> None:
        """After a fork the new process holds no limit, whatever the other one held."""
        self._lock, self._holders = threading.RLock(), set()
        self._lift()

    def _lift(self) -> None:
        while self._before:
            _set(*self._before.pop())

    def _found(self) -> list[Any]:
        """NumPy's BLAS and SciPy's: both are loaded with misspec."""
        if self._libraries is None:
            from threadpoolctl import ThreadpoolController

            controllers = ThreadpoolController().lib_controllers
            self._libraries = [each for each in controllers if each.user_api == "blas"]
        return self._libraries


def _set(library: Any, n: int) -> None:
    if hasattr(library, "clear_controlling_thread"):  # otherwise only the thread that was first could set it
        library.clear_controlling_thread(force=True)
    library.set_num_threads(n)


LIMIT = Limit()
tell_of_forks(LIMIT)


class one_thread:  # noqa: N801  # read as a verb: with one_thread()
    """A context in which BLAS runs on one thread; in any number of threads at once, nested or not.

    An interrupt can keep a context from being left; what it held is let go with the object.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        LIMIT.hold(id(self))

    def __exit__(self, *_: object) -> None:
        LIMIT.let_go(id(self))

    def __del__(self) -> None:
        if id(self) in LIMIT._holders:
            LIMIT.let_go(id(self))
