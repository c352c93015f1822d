"""Progress of long work on a terminal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import Progress, Task, TaskID
from rich.text import Text

from misspec.cli.app import INTERRUPTED, Terminal, fail
from misspec.progress import bars_on, clock

MOST_BARS = 12  # policies that get a bar of their own


def watched(do: Callable[[Callable[[Any], None]], Any], said: Callable[[Any], str]) -> Any:
    """do(show), with progress bars. said: what to say of the progress after a Ctrl-C."""
    console = Terminal()
    latest: Any = None
    try:
        with bars_on(console) as bars:
            tasks: dict[str, Any] = {}

            def show(progress: Any) -> None:
                nonlocal latest
                if latest is None:
                    for line in progress.news:
                        console.note(line)
                    if progress.before:
                        console.print(f"{progress.before} of {progress.before + progress.of} runs were done before")
                    if progress.of and len(progress.todo) <= MOST_BARS:
                        for policy, runs in progress.todo.items():
                            tasks[policy] = bars.add_task(policy, total=runs, note="")
                    if progress.of:
                        tasks[""] = bars.add_task("all rounds", total=progress.rounds_of, note="starting")
                latest = progress
                for policy, task in tasks.items():
                    if policy:
                        done, failed = progress.done.get(policy, 0), sum(r.policy == policy for r in progress.failed)
                        note = f"{done}/{progress.todo[policy]} runs" + (f", {failed} failed" if failed else "")
                        bars.update(task, completed=done, note=note)
                    else:
                        bars.update(task, completed=progress.rounds, total=progress.rounds_of)
                        bars.update(task, note=_pace(bars.tasks[task]))

            return do(show)
    except KeyboardInterrupt:
        fail("stopped before anything ran" if latest is None else said(latest), INTERRUPTED)


def _pace(task: Task) -> str:
    """Speed and remaining time."""
    if task.finished:
        return "done"
    if not task.speed or task.time_remaining is None:
        return "starting"
    return f"{task.speed:,.0f} per second, {clock(task.time_remaining)} left"


class _Evaluations:
    """Shows evaluations as they come in: a bar on a terminal, a line per result elsewhere."""

    def __init__(self, console: Console, bars: Progress) -> None:
        self.latest: Any = None
        self._console, self._bars = console, bars
        self._bar: TaskID | None = None

    def learning(self, message: str) -> None:
        """In the bar, until the next result."""
        if self._bar is not None:
            self._bars.update(self._bar, note=message)

    def __call__(self, progress: Any) -> None:
        console, result = self._console, progress.result
        if self.latest is None:
            if progress.before:
                console.print(f"{progress.before} of {progress.of} results were there before")
            if console.is_terminal:
                self._bar = self._bars.add_task("results", total=progress.of, note="")
        self.latest = progress
        best = "" if progress.best is None else f"best {progress.best:.6g} at {_params(progress.params)}"
        if result is not None and result.value is None:
            said = f"trial {result.trial} failed at {_params(result.params)}: {result.reason}"
            console.print(Text(said, style="yellow"), soft_wrap=True)
        elif result is not None and self._bar is None:
            here = f"{result.value:.6g} at {_params(result.params)}"
            console.print(f"{progress.done}/{progress.of}: {here}; {best}", soft_wrap=True)
        if self._bar is not None:
            left = "" if progress.left is None or progress.done >= progress.of else f"{clock(progress.left)} left"
            parts = [f"{progress.done}/{progress.of}", f"{progress.running} running", left, best]
            self._bars.update(self._bar, completed=progress.done, note=", ".join(filter(None, parts)))


@contextmanager
def evaluations_shown(console: Console) -> Iterator[_Evaluations]:
    bars = bars_on(console)
    show = _Evaluations(console, bars)
    with bars if console.is_terminal else nullcontext(), learning_shown(show.learning):
        yield show


@contextmanager
def learning_shown(show: Callable[[str], None]) -> Iterator[None]:
    """Show how far a model is that takes seconds to learn."""
    log, handler = logging.getLogger("misspec.hyperparameters"), logging.Handler(logging.INFO)
    handler.emit = lambda record: show(record.getMessage())  # type: ignore[method-assign]
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def _params(params: dict[str, Any]) -> str:
    return ", ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in params.items())
