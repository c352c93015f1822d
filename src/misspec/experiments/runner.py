"""Does the runs of an experiment that are not done yet: in this process, on many cores, or on a Dask cluster.

Workers compute, one process writes: a run is durable once it is back, and the same command resumes after any stop.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from misspec.errors import MisspecError, whole
from misspec.experiments import construct, store
from misspec.experiments.play import play
from misspec.experiments.schema import Experiment, Run, parse
from misspec.experiments.store import Damaged, Folder, Results

Outcome = bytes | str  # a Parquet file, or why there is none
Outcomes = Iterator[tuple[Any, Any] | None]  # an item and what came of it; None: nothing new, but time to show progress
Job = Callable[[Any, Callable[[int], None], list[str]], Any]  # of an item, a count of rounds done, what may be imported
LOG = logging.getLogger("misspec")
POLL = 0.1  # seconds between looks at the workers' progress
DIED = "its worker process ended unexpectedly (out of memory?); the same command tries this run again"
NO_WORKERS = (
    "worker processes end before they have done anything (a script without `if __name__ == '__main__':`?); finished "
    "runs are kept, and the same command goes on from them: try --cores 1"
)


@dataclasses.dataclass
class Progress:
    """How far a `go` has come: runs and rounds of this call, not of earlier ones."""

    before: int  # runs that were done already
    of: int  # runs to do
    rounds_of: int
    todo: dict[str, int]  # runs to do, by policy
    runs: int = 0
    rounds: int = 0
    done: dict[str, int] = dataclasses.field(default_factory=dict)  # runs done, by policy
    failed: dict[Run, str] = dataclasses.field(default_factory=dict)
    news: list[str] = dataclasses.field(default_factory=list)  # files set aside, and the like


Show = Callable[[Progress], None]


def go(
    content: bytes,
    folder: str | os.PathLike[str],
    *,
    name: str = "experiment",
    cores: int | None = None,
    dask: str | None = None,
    show: Show | None = None,
    allow: Iterable[str] = (),
) -> Progress:
    """Do what is left of the experiment that TOML text describes.

    allow   packages whose policies and problems the file may name, as module:Class

    cores   processes; all cores by default, 1 for this process alone
    dask    address of a scheduler, or "local" for a cluster of `cores` processes on this machine
    name    of the file, for errors; a folder keeps the results of only one
    show    called with the progress, several times a second

    A run that fails stops nothing: the reasons are in `failed`. Whatever ends this, finished runs stay.
    """
    construct.allow(allow)
    experiment = parse(content, name)
    target = Folder(folder)
    with target.locked(content, Path(name).name):
        todo, progress = _todo(experiment, target)
        shown = show or _silent
        with contextlib.closing(_outcomes(todo, progress, cores, dask, shown)) as outcomes:
            shown(progress)
            for outcome in outcomes:
                if outcome is not None:
                    run, content_or_reason = outcome
                    if isinstance(content_or_reason, bytes):
                        target.write(run, content_or_reason)
                    else:
                        progress.failed[run] = content_or_reason
                        progress.rounds_of -= run.horizon
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
    todo: list[Run] = []
    news: list[str] = []
    older = 0
    runs = {run.key: run for run in experiment.runs()}  # the same settings under two names are one run
    files = target.files()
    for run in runs.values():
        try:
            found = target.read(run, files[run.key]) if run.key in files else None
        except Damaged as error:
            aside = target.set_aside(files[run.key])
            news.append(f"{str(error).partition(';')[0]}: set aside as {aside.name}, doing it again")
            found = None
        if found is not None and found.facts["misspec"] != store.version():
            older, found = older + 1, None
        if found is None:
            todo.append(run)
    if older:
        news.append(f"{older} runs were made by another misspec than {store.version()}: doing them again")
    by_policy = dict(collections.Counter(run.policy for run in todo))
    rounds = sum(run.horizon for run in todo)
    return todo, Progress(len(runs) - len(todo), len(todo), rounds, by_policy, news=news)


def _outcomes(todo: list[Run], progress: Progress, cores: int | None, dask: str | None, show: Show) -> Any:
    if dask is None:
        return outcomes(execute, todo, progress, cores, show)
    from misspec.integrations.dask import outcomes as on_dask

    return on_dask(functools.partial(execute, allow=sorted(construct.ALLOWED)), todo, dask, cores, progress)


def outcomes(job: Job, todo: list[Any], progress: Progress, cores: int | None, show: Show) -> Outcomes:
    """What the job makes of each, as it comes, in this process or on many cores; to be closed.

    job   a function of a module, which raises nothing; of an item whose process died, the outcome is the text DIED
    """
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = available if cores is None else whole("cores", cores, at_least=1)
    if processes == 1 or len(todo) <= 1:
        return _here(job, todo, progress, show)
    return _on_cores(job, todo, progress, min(processes, len(todo)))


def execute(run: Run, tick: Callable[[int], None] | None = None, allow: Iterable[str] = ()) -> Outcome:
    """A run's Parquet file, or one line on why there is none."""
    try:
        construct.allow(allow)
        with _ALONE:
            return store.encode(run, play(run.settings, tick))
    except MisspecError as error:
        return str(error)
    except Exception as error:  # a defect in one run is no reason to lose the others
        return f"unexpected {type(error).__name__}: {error}"


# a run sets the number of BLAS threads, which belongs to the process: a Dask worker with several threads takes turns
_ALONE = threading.Lock()


# -- in this process ---------------------------------------------------------------------------------------------------


def _here(job: Job, todo: list[Any], progress: Progress, show: Show) -> Outcomes:
    def tick(rounds: int) -> None:
        progress.rounds += rounds
        show(progress)

    for run in todo:
        yield run, job(run, tick, sorted(construct.ALLOWED))


# -- on many cores -----------------------------------------------------------------------------------------------------


class _Worker:
    """A process that plays one run after another; nothing of it is shared with other workers."""

    used = False  # whether it has begun

    def __init__(self, context: Any, job: Job) -> None:
        self.rounds = context.RawValue("q", 0)
        self.connection, theirs = context.Pipe()
        allowed = sorted(construct.ALLOWED)
        self.process = context.Process(target=_work, args=(job, theirs, self.rounds, allowed), daemon=True)
        self.process.start()
        theirs.close()  # so that reading fails once the process has ended

    def give(self, run: Any) -> None:
        self.run = run
        with contextlib.suppress(ConnectionError):  # a worker that is gone is noticed when its answer is read
            self.connection.send(run)

    def end(self) -> None:
        """Kill it at once, whatever it is doing."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def _on_cores(job: Job, todo: list[Any], progress: Progress, processes: int) -> Outcomes:
    context = multiprocessing.get_context("spawn")  # forked copies of threaded libraries can hang
    waiting = collections.deque(todo)
    workers: list[_Worker] = []
    rounds = 0  # of workers that are gone
    unused = 0  # workers in a row that ended before they finished anything: then the run is not to blame

    def start() -> _Worker:
        with _for_workers():
            worker = _Worker(context, job)
        workers.append(worker)
        return worker

    try:
        busy = {}
        for worker in [start() for _ in range(processes)]:
            worker.give(waiting.popleft())
            busy[worker.connection] = worker
        while busy:
            ready = multiprocessing.connection.wait(list(busy), timeout=POLL)
            progress.rounds = rounds + sum(worker.rounds.value for worker in workers)
            yield None
            for connection in ready:
                worker = busy.pop(connection)
                run = worker.run
                try:
                    outcome = worker.connection.recv()
                    if outcome is None:  # it has begun
                        worker.used, unused, busy[connection] = True, 0, worker
                        continue
                except (EOFError, ConnectionError):
                    outcome, unused = DIED, unused + (not worker.used)
                    LOG.warning("the worker of %s died with exit code %s", run, worker.process.exitcode)
                    if unused > processes:
                        raise MisspecError(NO_WORKERS) from None
                    rounds += worker.rounds.value
                    workers.remove(worker)
                    worker.end()
                    if waiting:
                        worker = start()
                if waiting:
                    worker.give(waiting.popleft())
                    busy[worker.connection] = worker
                yield run, outcome
    finally:
        for worker in workers:
            worker.end()


@contextlib.contextmanager
def _for_workers() -> Iterator[None]:
    """What processes started meanwhile inherit: one thread per library, and Ctrl-C ignored."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
    before = {name: os.environ.get(name) for name in names}
    here = threading.current_thread() is threading.main_thread()  # only it may set what a signal does
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


def _work(job: Job, connection: Any, rounds: Any, allowed: list[str]) -> None:
    """In a worker: play what comes, and end with the parent, even if the parent is killed."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    def tick(more: int) -> None:
        rounds.value += more

    threading.Thread(target=watch, daemon=True).start()
    with contextlib.suppress(EOFError, ConnectionError):  # the reader of the answers is gone
        connection.send(None)
        while True:
            connection.send(job(connection.recv(), tick, allowed))
