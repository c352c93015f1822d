"""Any command as the black box: `misspec optimize space.toml -- python train.py --lr {lr} --depth {depth}`.

The command gets the parameters as arguments, as they are, and prints its result. What was evaluated is in an Optuna
study (`shared_study`), so that the same line goes on after any interruption, and helps from another machine.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import optuna

from misspec.domains import Space
from misspec.errors import InvalidInput, number, whole
from misspec.integrations.command import processes
from misspec.integrations.command.shared_study import Shared
from misspec.integrations.command.storages import storage_errors
from misspec.integrations.command.words import Command, Failure, last_lines, result_of
from misspec.integrations.optuna import MisspecSampler, distributions_of, policy_of
from misspec.policies import Auto

STORAGE = "sqlite:///misspec.db"
EVALUATIONS = 50
HOPELESS = 5  # failures, without a single result, after which it is the command that is wrong
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


# -- one evaluation ----------------------------------------------------------------------------------------------------


class _Evaluation(threading.Thread):
    """A trial that is being evaluated. stop: to be given up at once."""

    def __init__(self, trial: Any, work: Callable[[_Evaluation], float], ended: queue.Queue[_Evaluation]) -> None:
        super().__init__(daemon=True)
        self.number, self.params = int(trial.number), dict(trial.params)
        self.stop = threading.Event()
        self.value: float | None = None
        self.error: Exception | None = None
        self._work, self._ended = work, ended

    def run(self) -> None:
        try:
            self.value = self._work(self)
        except Exception as error:  # told by the main thread
            self.error = error
        self._ended.put(self)


# -- the loop ----------------------------------------------------------------------------------------------------------


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
    seed: int | None = None,
    show: Callable[[Progress], None] = lambda _: None,
    beat: float = 15.0,
    grace: float = 90.0,
) -> Auto:
    """Evaluate a command until a study has so many results; the policy that was told all of them.

    A command that fails (an exit code other than 0, no finite result, too long) is run again up to `retries` times;
    then its trial fails, with the reason, and does not count. Interrupted, what runs is ended and left for the next
    time. beat and grace: see `Shared`.
    """
    if os.name != "posix":
        raise InvalidInput("this needs process groups, as Linux and macOS have them; on Windows, use WSL")
    whole("--evaluations", evaluations, at_least=1)
    whole("--jobs", jobs, at_least=1)
    whole("--retries", retries, at_least=0)
    if timeout is not None:
        number("--timeout", timeout, above=0)
    command = Command(words, space, shell=shell)
    running: dict[int, _Evaluation] = {}

    def lost(trial: int) -> None:
        evaluation = running.get(trial)  # it may end at any moment
        if evaluation is not None:
            evaluation.stop.set()

    with _quietly(), storage_errors(storage), _heeding():
        shared = Shared(
            storage,
            name,
            space,
            distributions_of(space),
            minimize=minimize,
            n=evaluations,
            sampler=MisspecSampler(seed=seed),
            beat=beat,
            grace=grace,
            lost=lost,
        )

        def work(evaluation: _Evaluation) -> float:
            return _evaluate(evaluation, shared, command, key=key, timeout=timeout, retries=retries)

        try:
            _fill(shared, work, running, jobs=jobs, show=show)
            return policy_of(shared.study, space)
        finally:
            shared.close()


def _fill(
    shared: Shared,
    work: Callable[[_Evaluation], float],
    running: dict[int, _Evaluation],
    *,
    jobs: int,
    show: Callable[[Progress], None],
) -> None:
    """Evaluate until the study has its results."""
    ended: queue.Queue[_Evaluation] = queue.Queue()
    before, began, failures = shared.standing().done, time.monotonic(), 0
    result: Result | None = None
    try:
        while True:
            trials = shared.trials()
            now = shared.standing(trials)
            gained = now.done - before
            left = (shared.n - now.done) * (time.monotonic() - began) / gained if gained > 0 else None
            show(Progress(now.done, shared.n, before, now.running, now.best, now.params, left, result))
            _check_hope(failures, now.done, shared.n, result)
            if now.done >= shared.n:
                return
            while len(running) < jobs and (trial := shared.claim(trials)) is not None:
                running[trial.number] = evaluation = _Evaluation(trial, work, ended)
                evaluation.start()
                trials = shared.trials() if len(running) < jobs else []  # with the one that is under way now
            result = None
            with contextlib.suppress(queue.Empty):
                evaluation = ended.get(timeout=POLL)
                result = _tell(shared, evaluation)
                del running[evaluation.number]
                failures += result is not None and result.value is None
    finally:
        _give_up(shared, running)


def _evaluate(
    evaluation: _Evaluation, shared: Shared, command: Command, *, key: str | None, timeout: float | None, retries: int
) -> float:
    """In a thread of its own: run the command until it has a result."""
    words = command.filled(evaluation.params, evaluation.number)
    for attempt in range(retries + 1):
        ran = processes.run(
            words,
            timeout=timeout,
            stop=evaluation.stop,
            record=lambda pid, start: shared.record(evaluation.number, pid, start),
        )
        try:
            if ran.ended is not None:
                raise Failure(ran.ended)
            if ran.code:
                complaint = last_lines(ran.err).rpartition("\n")[2]
                raise Failure(_ending(ran.code) + (f": {complaint}" if complaint else ""))
            return result_of(ran.out, key)
        except Failure as failure:
            if attempt == retries or evaluation.stop.is_set():
                times = f" ({retries + 1} times)" if attempt else ""
                raise Failure(failure.reason + times, last_lines(ran.err)) from None
    raise AssertionError


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"ended by {signal.Signals(-code).name}"
    return f"ended by signal {-code}"


def _tell(shared: Shared, evaluation: _Evaluation) -> Result | None:
    """Tell the study the outcome; None if another process had taken the trial."""
    trial, params, error = evaluation.number, evaluation.params, evaluation.error
    if error is None:
        assert evaluation.value is not None
        told = shared.finish(trial, evaluation.value)
        return Result(trial, evaluation.value, params, None) if told else None
    if isinstance(error, Failure):
        told = shared.fail(trial, error.reason, error.stderr)
        return Result(trial, None, params, error.reason) if told else None
    if isinstance(error, optuna.exceptions.UpdateFinishedTrialError):
        shared.fail(trial, "taken away")  # forgets it
        return None
    raise error


def _check_hope(failures: int, done: int, n: int, last: Result | None) -> None:
    """InvalidInput where failures say that it is the command that is wrong; last: the result that just came in."""
    if failures < HOPELESS or last is None or last.reason is None:
        return
    if done == 0:
        said = f"the first {failures} evaluations all failed"
    elif failures >= n:
        said = f"{failures} evaluations failed, as many as there should be results"
    else:
        return
    raise InvalidInput(f"{said}, the last one because: {last.reason}; repair the command and run this line again")


def _give_up(shared: Shared, running: Mapping[int, _Evaluation]) -> None:
    """End what runs; its points come first the next time."""
    for evaluation in running.values():
        evaluation.stop.set()
    for evaluation in running.values():
        evaluation.join()
    for trial in shared.mine:
        evaluation_ = running.get(trial)
        if evaluation_ is not None and evaluation_.value is not None:  # it ended just in time
            shared.finish(trial, evaluation_.value)
        else:
            shared.give_up(trial, "stopped before it had a result")


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Optuna logs every trial; the command line has its own words."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)


@contextlib.contextmanager
def _heeding() -> Iterator[None]:
    """Being asked to end, by a scheduler or a closed terminal, is an interruption like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    asked = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for each in asked:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        for each in asked:
            signal.signal(each, signal.SIG_DFL)
