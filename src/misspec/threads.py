"""BLAS on one thread while a policy works.

Sums over several threads are rounded differently from sums over one, so that what a policy answers would depend on how
many there are; and the matrices are so small that threads of their own only slow them down.
"""

from __future__ import annotations

import os
import threading
from typing import Any


class OneThread:
    """A context in which BLAS runs on one thread; in any number of threads at once, nested or not.

    The limit belongs to the process: code of others that runs meanwhile, in other threads, is reached by it too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._libraries: list[Any] | None = None
        self._before: list[tuple[Any, int]] = []  # what is to be set again

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                for library in self._found():
                    n = library.get_num_threads()
                    if n is not None and n > 1:
                        self._before.append((library, n))
                        _set(library, 1)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._lift()

    def _lift(self) -> None:
        while self._before:
            _set(*self._before.pop())

    def forked(self) -> None:
        """In a process that was forked off nobody is inside, whoever was in the one it comes from."""
        self._lock, self._inside = threading.Lock(), 0
        self._lift()

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


one_thread = OneThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=one_thread.forked)
