"""Where a function is evaluated: in the thread that asks, on threads beside it, or on processes of this machine.

`loop.Drive` hands points to an `Evaluator` and takes results back as they come; `experiments/runner.py` does the same
with runs. Anything with these methods will do: `integrations/dask.py` has one for a cluster.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import pickle
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from misspec.errors import LARGEST, InvalidInput, MisspecError, real, short, shown, too_large

LOG = logging.getLogger("misspec.evaluation")
Job = tuple[int, Any]  # the id of a query, and what the function is called with
Outcome = tuple[int, Any]  # the id, and what the function returned, or the exception that kept it from doing so
TRIES = 3  # evaluations of one point that may end their worker before that counts as a failure of the function
GOODBYE = 5.0  # seconds for processes to end
WAIT = 1.0  # seconds for results, before it is seen whether processes live, or whether there was a Ctrl-C
REMEDY = "call optimize below such a line, or without processes=True"


class Evaluator(Protocol):
    """Evaluates points and hands back what came of them, in any order. Used from one thread, the one that asks."""

    def slots(self) -> int:
        """How many points are worth having in flight now; may change from call to call."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Begin to evaluate these. An id that was handed in is handed back once."""

    def collect(self, *, wait: bool) -> list[Outcome]:
        """What has come back since the last call. wait: until there is something, or time to look at `slots` again."""

    def close(self) -> None:
        """Stop: what has not begun never will, and what comes back later is not heard."""


def evaluate(function: Callable[[Any], Any], x: Any) -> Any:
    """The result, or the exception with a note that says where."""
    try:
        return function(x)
    except BaseException as error:  # it must reach the caller, not end the worker
        error.add_note(f"while the function was evaluated at x = {x}")
        return error


def as_number(result: Any, x: Any) -> float:
    """A result as a float, or InvalidInput."""
    value = real(result, truth=True)  # right or wrong is a result
    if not abs(value) <= LARGEST:
        raise InvalidInput(
            f"the function must return a finite number{too_large(value)}, got {shown(result)} at x = {short(x)}; "
            "on_error='drop' leaves out evaluations that fail"
        )
    return value


def with_limits(result: Any, x: Any) -> tuple[float, dict[Any, Any] | None]:
    """A result as a float, and the values of limited quantities where the function returned (y, {"impurity": 1.3})."""
    if isinstance(result, tuple | list) and len(result) == 2 and isinstance(result[1], Mapping):
        return as_number(result[0], x), dict(result[1])
    return as_number(result, x), None


def ended_workers(times: int, x: Any, how: str) -> MisspecError:
    """What an evaluation that ends its worker again and again has come to."""
    return MisspecError(
        f"the evaluation at x = {x} ended its worker {times} times ({how}; out of memory?): it counts as failed"
    )


class Here:
    """One after another, in the thread that asks."""

    def __init__(self, function: Callable[[Any], Any], slots: int) -> None:
        self._function, self._slots = function, slots
        self._waiting: collections.deque[Job] = collections.deque()

    def slots(self) -> int:
        return self._slots

    def submit(self, jobs: Sequence[Job]) -> None:
        self._waiting.extend(jobs)

    def collect(self, *, wait: bool) -> list[Outcome]:
        if not wait or not self._waiting:
            return []
        id_, x = self._waiting.popleft()
        try:
            return [(id_, self._function(x))]
        except Exception as error:
            return [(id_, error)]

    def close(self) -> None:
        self._waiting.clear()


class Threads:
    """At most n at once, on threads of this process.

    A thread cannot be stopped: after `close` what is being evaluated goes on, unheard, and the process does not wait
    for it to end.
    """

    def __init__(self, function: Callable[[Any], Any], n: int) -> None:
        self._function, self._n = function, n
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._running = 0

    def slots(self) -> int:
        return self._n

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._running += 1
            self._jobs.put(job)
        while len(self._threads) < min(self._n, self._running):
            thread = threading.Thread(target=self._work, name=f"misspec-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._done.put((job[0], evaluate(self._function, job[1])))

    def collect(self, *, wait: bool) -> list[Outcome]:
        found: list[Outcome] = []
        with contextlib.suppress(queue.Empty):
            # not for ever: a Ctrl-C just before a thread blocks does not wake it
            found += [self._done.get(timeout=WAIT)] if wait and self._running else []
            while True:
                found.append(self._done.get_nowait())
        self._running -= len(found)
        return found

    def close(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._jobs.get_nowait()
        for _ in self._threads:
            self._jobs.put(None)
        if not self._running:
            for thread in self._threads:
                thread.join()


class Processes:
    """At most n at once, on processes of this machine, which are restarted when they die.

    tries         evaluations of one point that may end their process before it counts as failed
    remedy        what to do where no process can be started
    environment   variables that the processes get in addition
    heard         gets what a function says while it is at work, which is then called as function(x, say)

    Every process has a pipe of its own and one evaluation at a time, so that it is known which evaluation ended with
    it: that one is tried again, and the others never notice.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        n: int,
        *,
        tries: int = TRIES,
        remedy: str = REMEDY,
        environment: Mapping[str, str] | None = None,
        heard: Callable[[Any], None] | None = None,
    ) -> None:
        try:
            self._function = pickle.dumps(function)
        except Exception as error:  # what cannot be pickled says so in many ways
            raise InvalidInput(
                f"a function for processes is sent to them, and this one cannot be ({error}); define it at the top of "
                "a module, or leave processes=True out"
            ) from None
        self._n, self._tries, self._remedy, self._heard = n, tries, remedy, heard
        self._environment = environment or {}
        self._context = multiprocessing.get_context("spawn")  # forked copies of threaded libraries can hang
        self._waiting: collections.deque[Job] = collections.deque()
        self._idle: list[_Process] = []
        self._busy: dict[Any, _Process] = {}  # by connection
        self._deaths: collections.Counter[int] = collections.Counter()  # by id of the query
        self._unborn = 0  # processes in a row that ended before they could do anything: no evaluation is to blame

    def slots(self) -> int:
        return self._n

    def submit(self, jobs: Sequence[Job]) -> None:
        self._waiting.extend(jobs)
        self._give()

    def _give(self) -> None:
        while self._waiting and (self._idle or len(self._busy) < self._n):
            if self._idle:
                process = self._idle.pop()
            else:
                with _inherited(self._environment):
                    process = _Process(self._context, self._function, self._heard is not None)
            if process.give(self._waiting[0]):
                self._busy[process.connection] = process
                self._waiting.popleft()
            else:  # it died while it had nothing to do
                process.end()

    def collect(self, *, wait: bool) -> list[Outcome]:
        found: list[Outcome] = []
        while self._busy and not found:
            ready = set(multiprocessing.connection.wait(list(self._busy), timeout=WAIT if wait else 0))
            # a child that a dead worker has forked may keep its pipe open
            ready |= {each.connection for each in self._busy.values() if not each.process.is_alive()}
            for connection in [each for each in self._busy if each in ready]:
                process = self._busy.pop(connection)
                try:
                    found += self._hear(process)
                except BaseException:
                    process.end()
                    raise
            self._give()
            if not wait:
                break
        return found

    def _hear(self, process: _Process) -> list[Outcome]:
        """What it has sent, if only just before its end."""
        id_ = process.job[0]
        try:
            if not process.connection.poll():
                return self._died(process)
            kind, answer = process.connection.recv()
        except (EOFError, OSError):
            return self._died(process)
        if kind in ("ready", "said"):
            process.ready, self._unborn = True, 0
            self._busy[process.connection] = process
            if kind == "said" and self._heard is not None:
                self._heard(answer)
            return []
        if kind == "unreadable":
            raise InvalidInput(
                f"the worker processes cannot read the function ({answer}); define it at the top of a module that they "
                "can import, or leave processes=True out"
            )
        self._idle.append(process)
        self._deaths.pop(id_, None)
        return [(id_, answer)]

    def _died(self, process: _Process) -> list[Outcome]:
        code = process.end()
        id_, x = process.job
        LOG.warning("a worker process ended with exit code %s while it evaluated x = %s", code, x)
        if not process.ready:
            self._unborn += 1
            if self._unborn > max(self._n, TRIES):
                raise MisspecError(
                    "worker processes end before they have done anything (a script without "
                    f"`if __name__ == '__main__':`?); {self._remedy}"
                )
        else:
            self._deaths[id_] += 1
        if self._deaths[id_] < self._tries:
            self._waiting.appendleft(process.job)
            return []
        return [(id_, ended_workers(self._deaths.pop(id_), x, f"the last with exit code {code}"))]

    def close(self) -> None:
        self._waiting.clear()
        for process in self._idle:
            with contextlib.suppress(ConnectionError):
                process.connection.send(None)  # it ends by itself
        for process in self._busy.values():
            process.process.terminate()
        for process in [*self._idle, *self._busy.values()]:
            process.process.join(GOODBYE)
            process.end()
        self._idle.clear()
        self._busy.clear()


class _Process:
    """A process that evaluates one point after another; it shares nothing with others."""

    job: Job
    ready = False  # whether it has read the function

    def __init__(self, context: Any, function: bytes, says: bool) -> None:
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, function, says))
        self.process.start()
        theirs.close()  # so that reading fails once the process has ended

    def give(self, job: Job) -> bool:
        """Whether it could be given a point."""
        if self.ready and not self.process.is_alive():
            return False
        self.job = job
        try:
            self.connection.send(job)
        except ConnectionError:
            return not self.ready  # one that never began is noticed when its answer is read
        return True

    def end(self) -> int | None:
        """Kill it, whatever it is doing; its exit code."""
        self.process.kill()
        self.process.join()
        self.connection.close()
        code: int | None = self.process.exitcode
        return code


@contextlib.contextmanager
def _inherited(environment: Mapping[str, str]) -> Iterator[None]:
    """A process started meanwhile gets these variables, and ignores Ctrl-C until it can end in silence."""
    main = threading.current_thread() is threading.main_thread()  # only it may set what a signal does
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
    before = {name: os.environ[name] for name in environment if name in os.environ}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name in environment:
            del os.environ[name]
        os.environ.update(before)
        if main:
            signal.signal(signal.SIGINT, handler or signal.SIG_DFL)


def _work(connection: Any, content: bytes, says: bool) -> None:
    """In a process: evaluate what comes, and end with the parent, even if the parent is killed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, ConnectionError, KeyboardInterrupt):  # the reader of the answers is gone
        if not says:  # a Ctrl-C in the terminal stops a user's function too; a run is stopped by the parent
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            function = pickle.loads(content)  # of the parent, through a pipe
        except Exception as error:
            connection.send(("unreadable", f"{type(error).__name__}: {error}"))
            return

        def call(x: Any) -> Any:
            return function(x, lambda news: connection.send(("said", news))) if says else function(x)

        connection.send(("ready", None))
        while (job := connection.recv()) is not None:
            connection.send(("done", _portable(evaluate(call, job[1]), job[1], measured=not says)))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _portable(result: Any, x: Any, *, measured: bool) -> Any:
    """What survives the way to another process: a result, as a number where it was measured, or an exception."""
    if isinstance(result, KeyboardInterrupt):
        raise result
    if not isinstance(result, BaseException):
        try:
            found = with_limits(result, x) if measured else (result, None)
        except InvalidInput as error:
            return error
        return found[0] if found[1] is None else found
    told = "".join(traceback.format_exception(result))
    result.add_note(f"\nIn the worker process:\n{told}")
    try:
        pickle.loads(pickle.dumps(result))
    except Exception:  # an exception that cannot travel is told instead
        return MisspecError(f"the function failed at x = {x}:\n{told}")
    return result
