"""Any command as the black box: `misspec optimize space.toml -- python train.py --lr {lr} --depth {depth}`.

The command gets the parameters as arguments, as they are, and prints its result. What was evaluated is in an Optuna
study (`shared_study`), so that the same line goes on after any interruption, and helps from another machine.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import Trial

from misspec.domains import Space
from misspec.errors import InvalidInput, number, whole
from misspec.evaluation.stopping import Until, Watch
from misspec.integrations.command import processes
from misspec.integrations.command.shared_study import Shared
from misspec.integrations.command.storages import storage_errors
from misspec.integrations.command.words import Command, Failure, last_lines, result_of
from misspec.integrations.optuna import MisspecSampler, policy_of
from misspec.policies import Auto

STORAGE = "sqlite:///misspec.db"
EVALUATIONS = 50
HOPELESS = 5  # failures, without a single result, after which it is the command that is wrong
ALL_TRIED = "stopped after {} evaluations: everything was tried, and a repeat would teach nothing"
POLL = 0.5  # seconds between looks at what others do


class Result(NamedTuple):
    """The outcome of a trial of this process: a value, or the reason for a failure."""

    trial: int
    value: float | None
    params: dict[str, Any]
    reason: str | None


class Progress(NamedTuple):
    """Progress of all processes. before: results when this one started; left: seconds, None if unknown."""

    done: int
    of: int
    before: int
    running: int
    best: float | None
    params: dict[str, Any]
    left: float | None
    result: Result | None  # that just came in
    reason: str | None = None  # why there will be no more, where that is not `of`


def go(
    space: Space,
    words: Sequence[str],
    *,
    evaluations: int = EVALUATIONS,
    jobs: int = 1,
    minimize: bool = False,
    key: str | None = None,
    storage: str = STORAGE,
    name: str = "misspec",
    timeout: float | None = None,
    retries: int = 0,
    shell: bool = False,
    aim: str = "best",
    seed: int | None = None,
    until: Until | None = None,
    show: Callable[[Progress], None] = lambda _: None,
    grace: float = 90.0,
) -> Auto:
    """Evaluate a command until a study has so many results; the policy that was told all of them.

    A command that fails (an exit code other than 0, no finite result, too long) is run again up to `retries` times;
    then its trial fails, with the reason, and does not count. Interrupted, what runs is ended and left for the next
    time. until: stop before that; of all that share a study, each asks its own. grace: see `Shared`.
    """
    if os.name != "posix":
        raise InvalidInput("this needs process groups, as Linux and macOS have them; on Windows, use WSL")
    whole("--evaluations", evaluations, at_least=1)
    whole("--jobs", jobs, at_least=1)
    whole("--retries", retries, at_least=0)
    if timeout is not None:
        number("--timeout", timeout, above=0)
    command = Command(words, space, shell=shell)
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # it logs every trial; the command line has its own words
    with storage_errors(storage), _heeding():
        sampler = MisspecSampler(seed=seed, aim=aim, space=space)
        shared = Shared(storage, name, space, minimize=minimize, n=evaluations, sampler=sampler, grace=grace)

        def evaluate(trial: Trial) -> float:
            """Run the command until it has a result."""
            filled, stop = command.filled(trial.params, trial.number), shared.mine[trial.number].stop
            for attempt in range(retries + 1):
                record = functools.partial(shared.record, trial.number)
                ran = processes.run_process(filled, timeout=timeout, stop=stop, record=record)
                try:
                    return _result(ran, key)
                except Failure as failure:
                    if attempt == retries or stop.is_set():
                        times = f" ({retries + 1} times)" if attempt else ""
                        raise Failure(failure.reason + times, last_lines(ran.err)) from None
            raise AssertionError

        with contextlib.closing(shared):
            _fill(shared, evaluate, jobs, show, sampler, Watch(until, lambda: sampler.policy_for(shared.study)))
            return policy_of(shared.study, space)


def _fill(
    shared: Shared,
    evaluate: Callable[[Trial], float],
    jobs: int,
    show: Callable[[Progress], None],
    sampler: MisspecSampler,
    watch: Watch,
) -> None:
    """Evaluate until the study has its results, more are hardly worth it, or nothing is left to try."""
    running: dict[Future[float], Trial] = {}
    before, began, failures = shared.standing().done, time.monotonic(), 0
    result: Result | None = None
    with ThreadPoolExecutor(jobs) as threads:
        try:
            while True:
                trials = shared.trials()
                now = shared.standing(trials)
                gained = now.done - before
                left = (shared.n - now.done) * (time.monotonic() - began) / gained if gained > 0 else None
                wanted = now.done < shared.n
                reason = watch.reason if wanted and watch.met(now.done, running=bool(running)) else None
                reason = ALL_TRIED.format(now.done) if wanted and sampler.ended else reason
                show(Progress(now.done, shared.n, before, now.running, now.best, now.params, left, result, reason))
                _check_hope(failures, now.done, shared.n, result)
                if not wanted or (reason is not None and not running):
                    return
                most = jobs if reason is None else 0
                while len(running) < most and not sampler.ended and (trial := shared.claim(trials)) is not None:
                    running[threads.submit(evaluate, trial)] = trial
                    trials = shared.trials() if len(running) < jobs else []  # with the one that is under way now
                result = None
                if not running:
                    time.sleep(POLL)
                elif done := wait(running, POLL, FIRST_COMPLETED).done:
                    ended = done.pop()
                    result = _tell(shared, running[ended], ended)
                    del running[ended]
                    failures += result is not None and result.value is None
        finally:
            try:
                _give_up(shared, running)
            finally:  # interrupted again: no thread may wait for its command to end by itself
                _stop(shared)


def _result(ran: processes.Running, key: str | None) -> float:
    """The number that a command printed; Failure if it did not end well."""
    if ran.ended is not None:
        raise Failure(ran.ended)
    if ran.code:
        signals = {-each.value: f"ended by {each.name}" for each in signal.Signals}
        ending = signals.get(ran.code, f"exit code {ran.code}" if ran.code > 0 else f"ended by signal {-ran.code}")
        complaint = last_lines(ran.err).rpartition("\n")[2]
        raise Failure(ending + (f": {complaint}" if complaint else ""))
    return result_of(ran.out, key)


def _tell(shared: Shared, trial: Trial, ended: Future[float]) -> Result | None:
    """Tell the study the outcome; None if another process had taken the trial."""
    value: float | None = None
    reason: str | None = None
    try:
        value = ended.result()
        told = shared.finish(trial.number, value)
    except Failure as failure:
        reason = failure.reason
        told = shared.fail(trial.number, reason, failure.stderr)
    except UpdateFinishedTrialError:
        told = shared.fail(trial.number, "taken away")  # forgets it
    return Result(trial.number, value, dict(trial.params), reason) if told else None


def _check_hope(failures: int, done: int, n: int, last: Result | None) -> None:
    """InvalidInput where failures say that it is the command that is wrong; last: the result that just came in."""
    if failures >= HOPELESS and (done == 0 or failures >= n) and last is not None and last.reason is not None:
        many = f"{failures} evaluations failed, as many as there should be results"
        said = many if done else f"the first {failures} evaluations all failed"
        raise InvalidInput(f"{said}, the last one because: {last.reason}; repair the command and run this line again")


def _give_up(shared: Shared, running: Mapping[Future[float], Trial]) -> None:
    """End what runs; its points come first the next time."""
    _stop(shared)
    wait(running)
    values = {trial.number: ended.result() for ended, trial in running.items() if ended.exception() is None}
    for trial in list(shared.mine):
        if trial in values:  # it ended just in time
            shared.finish(trial, values[trial])
        else:
            shared.fail(trial, "stopped before it had a result", again=True)


def _stop(shared: Shared) -> None:
    for mine in list(shared.mine.values()):
        mine.stop.set()


@contextlib.contextmanager
def _heeding() -> Iterator[None]:
    """Being asked to end, by a scheduler or a closed terminal, is an interruption like Ctrl-C."""
    main = threading.current_thread() is threading.main_thread()  # only there can signals be handled
    asked = [each for each in (signal.SIGTERM, signal.SIGHUP) if main and signal.getsignal(each) is signal.SIG_DFL]
    for each in asked:
        signal.signal(each, signal.default_int_handler)  # raises KeyboardInterrupt
    try:
        yield
    finally:
        for each in asked:
            signal.signal(each, signal.SIG_DFL)
