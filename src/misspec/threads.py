"""BLAS on one thread while a policy works, and locks after a fork.

Sums over several threads are rounded differently from sums over one, so a policy's answers would depend on the number
of threads; and its matrices are so small that threads only slow them down.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

_FORKABLE: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def tell_of_forks(what: Any) -> None:
    """Call the object's `forked()` in every forked child, as long as the object lives. A child has one thread: whatever
    others were doing stays half done."""
    _FORKABLE[id(what)] = what


def lock_after_fork(lock: Any) -> Any:
    """The lock, or a new one if it was held by a thread that the child does not have."""
    if lock.acquire(blocking=False):  # free, or held by the thread that forked
        lock.release()
        return lock
    return threading.RLock()


if TYPE_CHECKING:
    once = functools.cached_property
else:

    class once(functools.cached_property):  # noqa: N801  # a decorator
        """Without the lock that Python 3.11 has in it: other threads do not wait, nor do forked children, for ever."""

        lock = property(lambda _: contextlib.nullcontext(), lambda *_: None)


def _tell_of_fork() -> None:
    for what in list(_FORKABLE.values()):
        with contextlib.suppress(Exception):  # the others must still be told
            what.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell_of_fork)


class ThreadLimit:
    """Limits BLAS to one thread while it is held; then restores the number of threads.

    The limit belongs to the process, so it also slows other code that runs on other threads meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._holders: set[int] = set()
        self._before: list[tuple[Any, int]] = []  # libraries and their numbers of threads, to be restored

    def hold(self, holder: int) -> None:
        with self._lock:
            if not self._holders:
                for library in self._blas():
                    n = library.get_num_threads()
                    if n is not None and n > 1:
                        self._before.append((library, n))
                        _set_threads(library, 1)
            self._holders.add(holder)

    def let_go(self, holder: int) -> None:
        with self._lock:
            self._holders.discard(holder)
            if not self._holders:
                self._lift()

    def forked(self) -> None:
        """After a fork the child holds no limit, whatever the parent held."""
        self._lock, self._holders = threading.RLock(), set()
        self._lift()

    def _lift(self) -> None:
        while self._before:
            _set_threads(*self._before.pop())

    @staticmethod
    @functools.cache
    def _blas() -> list[Any]:
        """NumPy's BLAS and SciPy's: both are loaded with misspec."""
        from threadpoolctl import ThreadpoolController

        return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


def _set_threads(library: Any, n: int) -> None:
    if hasattr(library, "clear_controlling_thread"):  # otherwise only the first thread that set it could change it
        library.clear_controlling_thread(force=True)
    library.set_num_threads(n)


LIMIT = ThreadLimit()
tell_of_forks(LIMIT)


class one_thread:  # noqa: N801  # read as a verb: with one_thread()
    """A context in which BLAS runs on one thread; may be nested, and entered by several threads at once.

    If an interrupt prevents `__exit__`, the limit is released when the object is deleted.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        LIMIT.hold(id(self))

    def __exit__(self, *_: object) -> None:
        LIMIT.let_go(id(self))

    def __del__(self) -> None:
        if id(self) in LIMIT._holders:
            LIMIT.let_go(id(self))
