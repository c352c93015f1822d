"""Does the runs of an experiment that are not done yet: in this process, on many cores, or on a Dask cluster.

Workers compute, one process writes: a run is durable once it is back, and the same command resumes after any stop.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from misspec.errors import MisspecError, whole
from misspec.evaluation.workers import Evaluator, Here, Processes
from misspec.experiments import construct, store
from misspec.experiments.play import play
from misspec.experiments.schema import Experiment, Run, parse
from misspec.experiments.store import Damaged, Folder, Results
from misspec.integrations.dask import FINISHED, on_dask

Tick = Callable[[int], None]  # told of rounds that were done
# runs are short of cores, not of threads: a library with threads of its own would only slow the others down
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
DIED = "its worker process ended unexpectedly (out of memory?); the same command tries this run again"
KILLED = "its worker was killed again and again (out of memory?)"


@dataclasses.dataclass
class Progress:
    """Progress of a `go`: runs and rounds of this call, not of earlier ones."""

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
    target, show = Folder(folder), show or (lambda _: None)
    with construct.allow(allow):
        experiment = parse(content, name)
        job = functools.partial(execute, allow=sorted(construct.allowed()))
        with target.locked(content, Path(name).name):
            todo, progress = _todo(experiment, target)

            def tick(rounds: int) -> None:
                progress.rounds += rounds
                show(progress)

            with _on_cores(job, cores, len(todo), tick) if dask is None else on_dask(job, dask, cores) as pool:
                show(progress)
                pool.submit(list(enumerate(todo)))
                while progress.runs < progress.of:
                    for number, outcome in pool.collect(wait=True):
                        run = todo[number]
                        if isinstance(outcome, bytes):
                            target.write(run, outcome)
                            progress.rounds += 0 if dask is None else run.horizon  # whose workers do not report them
                        else:
                            progress.failed[run] = _reason(outcome, DIED if dask is None else KILLED)
                            progress.rounds_of -= run.horizon
                        progress.runs += 1
                        progress.done[run.policy] = progress.done.get(run.policy, 0) + 1
                    show(progress)
    return progress


def _reason(outcome: str | Exception, died: str) -> str:
    """Why a run has no result: what it says itself, or that its worker died; raises what is no run's fault."""
    if isinstance(outcome, Exception) and not isinstance(outcome, MisspecError):
        raise MisspecError(f"a worker failed ({type(outcome).__name__}: {outcome}); {FINISHED}")
    return outcome if isinstance(outcome, str) else died


def results(folder: str | os.PathLike[str]) -> Results:
    """The finished runs of a folder."""
    return Folder(folder).results()


def _todo(experiment: Experiment, target: Folder) -> tuple[list[Run], Progress]:
    news: list[str] = []
    older = 0
    todo = {run.key: run for run in experiment.runs()}  # the same settings under two names are one run
    runs, files = len(todo), target.files()
    for key in [key for key in todo if key in files]:
        try:
            if target.read(todo[key], files[key]).facts["misspec"] == store.version():
                del todo[key]
            else:
                older += 1
        except Damaged as error:
            aside = target.set_aside(files[key])
            news.append(f"{str(error).partition(';')[0]}: set aside as {aside.name}, doing it again")
    if older:
        news.append(f"{older} runs were made by another misspec than {store.version()}: doing them again")
    by_policy = dict(collections.Counter(run.policy for run in todo.values()))
    rounds = sum(run.horizon for run in todo.values())
    return list(todo.values()), Progress(runs - len(todo), len(todo), rounds, by_policy, news=news)


@contextlib.contextmanager
def _on_cores(job: Callable[..., Any], cores: int | None, runs: int, tick: Tick) -> Iterator[Evaluator]:
    """Worker processes of this machine, or this process alone where one is enough."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    n = min(available if cores is None else whole("cores", cores, at_least=1), runs)
    remedy = f"{FINISHED}: try --cores 1"
    pool: Evaluator = (
        Processes(job, n, tries=1, remedy=remedy, environment=ONE_THREAD, heard=tick)
        if n > 1
        else Here(lambda run: job(run, tick), 1)
    )
    with contextlib.closing(pool):
        yield pool


def execute(run: Run, tick: Tick | None = None, allow: Iterable[str] = ()) -> bytes | str:
    """A run's Parquet file, or one line on why there is none."""
    try:
        with _ALONE, construct.allow(allow):
            return store.encode(run, play(run.settings, tick))
    except MisspecError as error:
        return str(error)
    except Exception as error:  # a defect in one run is no reason to lose the others
        return f"unexpected {type(error).__name__}: {error}"


# a run sets the number of BLAS threads, which belongs to the process: a Dask worker with several threads takes turns
_ALONE = threading.Lock()
