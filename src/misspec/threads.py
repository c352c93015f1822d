"""BLAS on one thread while a policy works.

Sums over several threads are rounded differently from sums over one, so that what a policy answers would depend on how
many there are; and the matrices are so small that threads of their own only slow them down.
"""

from __future__ import annotations

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
            self._inside += 1
            if self._inside == 1:
                for library in self._found():
                    n = library.get_num_threads()
                    if n is not None and n > 1:
                        self._before.append((library, n))
                        _set(library, 1)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
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


one_thread = OneThread()
