"""Progress of long work: a bar on a terminal or in a notebook, and elsewhere only where it is asked for."""

from __future__ import annotations

import contextlib
import html
import importlib
import math
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from misspec.errors import InvalidInput, shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars

Progress = Callable[[int, int], None]
AFTER = 1.0  # seconds of work before a bar appears: most work is shorter, and a bar would only flash by
EVERY = 0.1  # seconds between two drawings: more of them take time, and are not seen
_SHOWN = threading.Lock()  # held by the bar that is shown: work inside it, and on other threads, shows none


@contextlib.contextmanager
def reported(progress: Progress | bool | None, what: str) -> Iterator[Progress | None]:
    """What long work calls as progress(done, of): a function that was handed in, a bar, or None.

    True: a bar that stays, also where stderr is no terminal, which gets its last state. False: none. None: a bar while
    the work lasts, from its second second on, if stderr is a terminal or this is a notebook. what: the units of work
    """
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise InvalidInput(f"progress must be a function, True, False or None, got {shown(progress)}")
    if callable(progress):
        yield progress
    elif progress is False or not main_process() or not (progress or in_notebook() or on_terminal()):
        yield None
    else:
        bar = _Bar(what, stays=progress is True)
        try:
            yield bar
        finally:
            bar.close()


def main_process() -> bool:
    """Whether this process was not started by multiprocessing, joblib or Dask to work for another one."""
    return multiprocessing.current_process().name == "MainProcess"


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook; IPython on a terminal has none."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def on_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is no stderr, or it was closed
        return False


class _Bar:
    """Draws itself when it is called, from the second second on: no thread, and nothing of sys, is taken for it."""

    def __init__(self, what: str, *, stays: bool) -> None:
        self.what, self.stays, self.held = what, stays, False
        self.began = time.monotonic()
        self.next = self.began + (0.0 if stays else AFTER)  # when it is drawn again
        self.canvas: _Notebook | _Terminal | None = None
        self.latest = (0, 0)

    def __call__(self, done: int, of: int) -> None:
        self.latest = done, of
        if time.monotonic() >= self.next:
            try:
                self._draw()
            except Exception:  # a terminal that has gone, or a kernel: what is worked on must not end for that
                self.next = math.inf

    def _draw(self) -> None:
        self.next = time.monotonic() + EVERY
        self.held = self.held or _SHOWN.acquire(blocking=False)
        if self.held:
            self.canvas = self.canvas or (_Notebook() if in_notebook() else _Terminal(self.what, stays=self.stays))
            done, of = self.latest
            taken = time.monotonic() - self.began
            left = taken * (of - done) / done if 0 < done < of else None
            time_said = f"took {clock(taken)}" if left is None else f"{clock(left)} left"
            self.canvas.draw(done, of, self.what, f"{done:,} of {of:,}, {time_said}")

    def close(self) -> None:
        try:
            with contextlib.suppress(Exception):  # as above
                if self.canvas is not None:
                    try:
                        if self.stays and self.next < math.inf:
                            self._draw()
                    finally:
                        self.canvas.close(stays=self.stays)  # which shows the cursor again
        finally:
            if self.held:
                _SHOWN.release()


class _Notebook:
    """An output of a cell, which needs no widgets."""

    def __init__(self) -> None:
        self._display = importlib.import_module("IPython.display")
        self._handle = self._display.display(self._display.HTML(""), display_id=True)

    def draw(self, done: int, of: int, what: str, note: str) -> None:
        bar = f'<progress value="{done}" max="{of}"></progress>'
        self._handle.update(self._display.HTML(f"<div>{html.escape(what)} {bar} {html.escape(note)}</div>"))

    def close(self, *, stays: bool) -> None:
        if not stays:
            self._handle.update(self._display.HTML(""))


class _Terminal:
    """A line on stderr. What the user prints is left alone, so that it goes where it should."""

    def __init__(self, what: str, *, stays: bool) -> None:
        from rich.console import Console

        options = {"auto_refresh": False, "redirect_stdout": False, "redirect_stderr": False, "transient": not stays}
        self._bars = bars_on(Console(stderr=True), **options)
        self._task = self._bars.add_task(what, note="")
        self._bars.start()

    def draw(self, done: int, of: int, what: str, note: str) -> None:
        self._bars.update(self._task, completed=done, total=of, description=what, note=note, refresh=True)

    def close(self, *, stays: bool) -> None:  # noqa: ARG002  # it was made to stay, or not
        self._bars.stop()


def bars_on(console: Console, **options: Any) -> Bars:
    """Bars of rich, each with its description and a note of its own, both plain text."""
    from rich.progress import BarColumn, Progress, TextColumn

    texts = [TextColumn(each, markup=False) for each in ("{task.description}", "{task.fields[note]}")]
    return Progress(texts[0], BarColumn(bar_width=20), texts[1], console=console, **options)


def clock(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
