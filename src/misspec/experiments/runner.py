"""Does the runs of an experiment that are not done yet: in this process, on many cores, or on a Dask cluster.

Workers compute, one process writes: a run is durable as soon as it is back, and the same command goes on after any end.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from misspec.errors import InvalidInput, MisspecError, StorageError, whole
from misspec.experiments import store
from misspec.experiments.play import play
from misspec.experiments.spec import Experiment, Run, parse
from misspec.experiments.store import Folder, Results

Outcome = bytes | str  # a Parquet file, or why there is none
Outcomes = Iterator[tuple[Run, Outcome] | None]  # None: nothing new, but time to show progress
POLL = 0.1  # seconds between looks at the workers' progress


@dataclasses.dataclass
class Progress:
    """How far a `go` is: runs and rounds of this call, not of those before it."""

    before: int  # runs that were done already
    of: int  # runs to do
    rounds_of: int
    todo: dict[str, int]  # runs to do, by policy
    runs: int = 0
    rounds: int = 0
    done: dict[str, int] = dataclasses.field(default_factory=dict)  # runs done, by policy
    failed: dict[Run, str] = dataclasses.field(default_factory=dict)
    damaged: list[str] = dataclasses.field(default_factory=list)


Show = Callable[[Progress], None]


def go(
    content: bytes,
    folder: str | os.PathLike[str],
    *,
    name: str = "experiment",
    cores: int | None = None,
    dask: str | None = None,
    show: Show | None = None,
) -> Progress:
    """Do what is left of the experiment that TOML text describes.

    cores   processes; all that there are by default, 1 for this process alone
    dask    address of a scheduler, or "local" for a cluster of this machine's cores
    show    called with the progress, several times a second

    A run that fails stops nothing: the reasons are in `failed`. Whatever ends this, finished runs stay.
    """
    experiment = parse(content, name)
    target = Folder(folder)
    with target.locked():
        target.note(content)
        todo, progress = _todo(experiment, target)
        shown = show or _silent
        shown(progress)
        with contextlib.closing(_outcomes(todo, progress, cores, dask, shown)) as outcomes:
            for outcome in outcomes:
                if outcome is not None:
                    run, content_or_reason = outcome
                    if isinstance(content_or_reason, bytes):
                        target.write(run, content_or_reason)
                    else:
                        progress.failed[run] = content_or_reason
                    progress.runs += 1
                    progress.done[run.policy] = progress.done.get(run.policy, 0) + 1
                shown(progress)
    return progress


def _silent(_: Progress) -> None:
    """Shows nothing."""


def results(folder: str | os.PathLike[str]) -> Results:
    """What is finished in a folder."""
    return Folder(folder).results()


def _todo(experiment: Experiment, target: Folder) -> tuple[list[Run], Progress]:
    todo, damaged = [], []
    runs = {run.key: run for run in experiment.runs()}  # the same settings under two names are one run
    for run in runs.values():
        try:
            if target.read(run) is None:
                todo.append(run)
        except StorageError as error:
            damaged.append(f"{error.args[0].split(';')[0]}: set aside as {target.set_aside(run).name}, doing it again")
            todo.append(run)
    by_policy = dict(collections.Counter(run.policy for run in todo))
    rounds = sum(run.horizon for run in todo)
    return todo, Progress(len(runs) - len(todo), len(todo), rounds, by_policy, damaged=damaged)


def _outcomes(todo: list[Run], progress: Progress, cores: int | None, dask: str | None, show: Show) -> Any:
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = available if cores is None else whole("cores", cores, at_least=1)
    if dask is not None:
        from misspec.integrations.dask import outcomes

        return outcomes(execute, todo, dask, progress)
    if processes == 1 or len(todo) <= 1:
        return _here(todo, progress, show)
    return _on_cores(todo, progress, min(processes, len(todo)))


def execute(run: Run, tick: Callable[[int], None] | None = None) -> Outcome:
    """A run's Parquet file, or one line on why there is none."""
    try:
        return store.encode(run, play(run.settings, tick))
    except MisspecError as error:
        return str(error)
    except Exception as error:  # a defect in one run is no reason to lose the others
        return f"unexpected {type(error).__name__}: {error}"


# -- in this process ---------------------------------------------------------------------------------------------------


def _here(todo: list[Run], progress: Progress, show: Show) -> Outcomes:
    def tick(rounds: int) -> None:
        progress.rounds += rounds
        show(progress)

    for run in todo:
        yield run, execute(run, tick)


# -- on many cores -----------------------------------------------------------------------------------------------------


def _on_cores(todo: list[Run], progress: Progress, processes: int) -> Outcomes:
    context = multiprocessing.get_context("spawn")  # forked copies of threaded libraries can hang
    counter = context.Value("q", 0)
    pool = concurrent.futures.ProcessPoolExecutor(processes, context, initializer=_start, initargs=(counter,))
    try:
        with _for_workers():
            waiting = {pool.submit(_counted, run): run for run in todo}
        while waiting:
            done, _ = concurrent.futures.wait(waiting, timeout=POLL, return_when=concurrent.futures.FIRST_COMPLETED)
            progress.rounds = counter.value
            yield None
            for future in done:
                yield waiting.pop(future), future.result()
    except concurrent.futures.process.BrokenProcessPool:
        raise InvalidInput(
            "a worker process ended unexpectedly (out of memory?); finished runs are kept, and the same command goes "
            "on from them: try --cores 1"
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in list((pool._processes or {}).values()):  # no public way to stop what is running
            worker.terminate()


@contextlib.contextmanager
def _for_workers() -> Iterator[None]:
    """What processes started meanwhile inherit: one thread for each library, and no ear for Ctrl-C."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
    before = {name: os.environ.get(name) for name in names}
    here = threading.current_thread() is threading.main_thread()  # only it may say what a signal does
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if here else None
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        if here:
            signal.signal(signal.SIGINT, handler)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_counter: Any = None


def _start(counter: Any) -> None:
    """In a worker: end with the parent, even if that is killed."""
    global _counter
    _counter = counter
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _counted(run: Run) -> Outcome:
    def tick(rounds: int) -> None:
        with _counter.get_lock():
            _counter.value += rounds

    return execute(run, tick)
