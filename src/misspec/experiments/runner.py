"""Does the runs of an experiment that are not done yet: in this process, on many cores, or on a Dask cluster.

Workers compute, one process writes: a run is durable once it is back, and the same command resumes after any stop.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from misspec.errors import MisspecError, whole
from misspec.evaluation.workers import Evaluator, Here, Processes
from misspec.experiments import construct, store
from misspec.experiments.schema import Experiment, Run, parse
from misspec.experiments.store import BANDS, Damaged, Folder, Played, Results
from misspec.integrations.dask import FINISHED, on_dask
from misspec.policies import Policy
from misspec.problems import Problem
from misspec.simulation import simulate
from misspec.threads import one_thread

Tick = Callable[[int], None]  # told of rounds that were done
# runs are short of cores, not of threads: a library with threads of its own would only slow the others down
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
DIED = "its worker process ended unexpectedly (out of memory?); the same command tries this run again"
KILLED = "its worker was killed again and again (out of memory?)"
LOOKS = 24  # rounds at which bands are looked at
SOME = 500  # vectors at which bands are looked at, where rounds bring vectors
MOST_PICTURED = 2500  # candidates: no bands are kept of larger domains


class Progress:
    """Progress of a `go`: runs and rounds of this call, not of earlier ones.

    before     runs that were done already
    todo       runs to do, by policy; done: those of them that are done
    news       files set aside, and the like
    """

    def __init__(self, before: int, todo: list[Run], news: list[str]) -> None:
        self.before, self.of, self.news = before, len(todo), news
        self.todo = Counter(run.policy for run in todo)
        self.done: Counter[str] = Counter()
        self.rounds_of, self.runs, self.rounds = sum(run.horizon for run in todo), 0, 0
        self.failed: dict[Run, str] = {}


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
                        progress.done[run.policy] += 1
                    show(progress)
    return progress


def _reason(outcome: str | Exception, died: str) -> str:
    """Why a run has no result: what it says itself, or that its worker died; raises what is no run's fault."""
    if isinstance(outcome, Exception) and not isinstance(outcome, MisspecError):
        raise MisspecError(f"a worker failed ({type(outcome).__name__}: {outcome}); {FINISHED}")
    return outcome if isinstance(outcome, str) else died


def results(folder: str | os.PathLike[str], *, allow: str | Iterable[str] = ()) -> Results:
    """The finished runs of a folder. allow: packages whose policies and problems its file may name."""
    with construct.allow(allow):
        return Results(folder)


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
    return list(todo.values()), Progress(runs - len(todo), list(todo.values()), news)


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
            return store.encode_run(run, play(run.settings, tick))
    except MisspecError as error:
        return str(error)
    except Exception as error:  # a defect in one run is no reason to lose the others
        return f"unexpected {type(error).__name__}: {error}"


# a run sets the number of BLAS threads, which belongs to the process: a Dask worker with several threads takes turns
_ALONE = threading.Lock()


def play(settings: dict[str, Any], progress: Callable[[int], None] | None = None) -> Played:
    """Play a run. progress: called with the rounds done since the last call."""
    start = time.perf_counter()
    with one_thread():
        problem = construct.problem_of(settings)
        horizon = settings["horizon"]
        policy = construct.make_policy(
            settings["policy"], problem.arena, problem.model, problem.epsilon, horizon, settings["seed"],
            minimize=problem.minimize,
        )  # fmt: skip
        allows = policy.epsilon
        keep = settings["pictured"] and len(problem.domain) <= MOST_PICTURED and not problem.fresh
        rounds = set(np.geomspace(1, horizon, LOOKS).round().astype(int).tolist())  # evenly spaced in log t
        looks, last = [], 0

        def after(done: int, of: int) -> None:
            nonlocal last
            if done in rounds:
                looks.append(_look(policy, problem, done, keep))
            if progress is not None and (done - last >= 100 or done == of):
                progress(done - last)
                last = done

        trace = simulate(policy, problem, horizon, settings["seed"], progress=after)
    return Played(trace, looks, problem, policy.claims, allows, time.perf_counter() - start)


def _look(policy: Policy, problem: Problem, t: int, keep: bool) -> dict[str, Any]:
    f = problem.values
    if problem.fresh:  # the vectors of some rounds stand for all
        some = np.unique(np.linspace(0, len(f) - 1, SOME).astype(np.intp))
        band, f = policy.band(problem.domain.points[some]), f[some]
    else:
        band = policy.band()
    look = {"round": t, "covered": float(((band.lower <= f) & (f <= band.upper)).mean())}
    if not keep:
        return look
    mean, alive = policy.posterior.at(problem.domain.points)[0], policy.alive
    bands = dict(zip(BANDS, (band.lower.tolist(), band.upper.tolist(), mean.tolist()), strict=True))
    return look | bands | {"active": None if alive is None else alive.tolist()}
