"""Any command as the black box: `misspec optimize space.toml -- python train.py --lr {lr} --depth {depth}`.

The command gets the parameters as arguments, as they are, and prints its result. What was evaluated is in an Optuna
study (`shared_study`), so that the same line goes on after any interruption, and helps from another machine.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import optuna

from misspec.domains import Space
from misspec.errors import InvalidInput, number, shown, whole
from misspec.integrations import processes
from misspec.integrations.optuna import MisspecSampler, distributions_of, policy_of
from misspec.integrations.shared_study import Shared, storage_errors
from misspec.parameters import Choice
from misspec.policies import Auto

STORAGE = "sqlite:///misspec.db"
EVALUATIONS = 50
HOPELESS = 5  # failures, without a single result, after which it is the command that is wrong
POLL = 0.5  # seconds between looks at what others do
LINES, LENGTH = 20, 4000  # of stderr that are kept of a failure

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]?(?:nan|inf|infinity)", re.IGNORECASE)
SEPARATORS = re.compile(r"(?:[\s=:;|%\"(){}\[\]<>]|(?<!\d)[,']|[,'](?!\d))+")
GROUPS = re.compile(r"[,']")  # between digits: of thousands, or before decimals, or of a list; nobody knows
COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Result(NamedTuple):
    """What became of a trial of this process: a value, or why there is none."""

    trial: int
    value: float | None
    params: dict[str, Any]
    reason: str | None


class Progress(NamedTuple):
    """How far it is, of all processes. before: results when this one started; left: seconds, None if nobody knows."""

    done: int
    of: int
    before: int
    running: int
    best: float | None
    params: dict[str, Any]
    left: float | None
    result: Result | None  # that just came in


class Failure(Exception):
    """Why an evaluation has no result, and the end of what it complained about."""

    def __init__(self, reason: str, stderr: str = "") -> None:
        super().__init__(reason)
        self.reason, self.stderr = reason, stderr


# -- the command's words -----------------------------------------------------------------------------------------------


class Command:
    """The words of a command with {name} where a value goes; other braces are the user's own, and {{name}} is {name}.

    {params} is a JSON object of all, {trial} the number of the trial. shell: the words are a line for /bin/sh, in which
    values are quoted.
    """

    def __init__(self, words: Sequence[str], space: Space, *, shell: bool = False) -> None:
        if not words:
            raise InvalidInput("there is no command; write it after --, as in: -- python train.py --lr {lr}")
        self.shell, self.names = shell, space.names
        self.words = [" ".join(words)] if shell else list(words)
        more = [name for name in ("params", "trial") if name not in self.names]
        known = "|".join(re.escape(name) for name in sorted([*self.names, *more], key=len, reverse=True))
        self._slots = re.compile(r"\{\{(" + known + r")\}\}|\{(" + known + r")\}")
        used = {match[2] for word in self.words for match in self._slots.finditer(word)}
        unused = [name for name in self.names if name not in used]
        if unused and not ("params" in used and "params" in more):
            raise InvalidInput(
                f"the command never uses the parameter {shown(unused[0])}; write {{{unused[0]}}} where its value goes "
                "({params} is a JSON object of all), or take it out of the file"
            )
        for name, parameter in space.parameters.items():
            if isinstance(parameter, Choice) and any("\0" in str(option) for option in parameter.options):
                raise InvalidInput(
                    f"parameter {shown(name)} has an option with a null character, which no argument can hold"
                )
        if shell:
            self._check_quotes(self.words[0])
        elif not self._slots.search(words[0]) and shutil.which(words[0]) is None:
            hint = "; a line for the shell needs --shell" if " " in words[0].strip() else ""
            raise InvalidInput(f"there is no command {shown(words[0])} here{hint}")

    def filled(self, params: Mapping[str, Any], trial: int) -> list[str]:
        """The words with values in their places."""
        values = {"params": json.dumps(dict(params)), "trial": str(trial)}
        values |= {name: written(params[name]) for name in self.names}

        def value(match: re.Match[str]) -> str:
            if match[1] is not None:
                return f"{{{match[1]}}}"
            return shlex.quote(values[match[2]]) if self.shell else values[match[2]]

        words = [self._slots.sub(value, word) for word in self.words]
        return ["/bin/sh", "-c", *words] if self.shell else words

    def _check_quotes(self, line: str) -> None:
        """Values are quoted for where nothing else is: inside of quotes, the shell would read them."""
        slots = {match.start(): match[2] for match in self._slots.finditer(line) if match[2]}
        if "<<" in line and slots:
            raise InvalidInput("values cannot go into a here-document (<<) of the shell; hand them over as arguments")
        inside, escaped = "", False
        for place, character in enumerate(line):
            if place in slots and (inside or escaped):
                raise InvalidInput(
                    f"{{{slots[place]}}} is inside of quotes, where the shell would read its value; write it outside: "
                    "values are quoted already"
                )
            if escaped:
                escaped = False
            elif character == "\\" and inside != "'":
                escaped = True
            elif inside:
                inside = "" if character == inside else inside
            elif character in "'\"`":
                inside = character


def written(value: Any) -> str:
    """A value as an argument."""
    return repr(float(value)) if isinstance(value, float) else str(value)


# -- what the command printed ------------------------------------------------------------------------------------------


def result_of(out: str, key: str | None) -> float:
    """The last number printed, or the value of a key, a.b.c, in the last JSON object that has it; Failure if none."""
    text = COLOURS.sub("", out).replace("\N{MINUS SIGN}", "-")
    value = _last_number(text) if key is None else _keyed(text, key)
    if not math.isfinite(value):
        raise Failure(f"its result is {value}")
    return value


def _last_number(text: str) -> float:
    for line in reversed(text.splitlines()):
        for word in reversed(SEPARATORS.split(line)):
            word = word.removesuffix(".")
            if NUMBER.fullmatch(word):
                return float(word)
            if any(NUMBER.fullmatch(part) for part in GROUPS.split(word)):
                raise Failure(
                    f"it printed {shown(word)}, which may be one number or several; print the result with a decimal "
                    "point and no other marks, such as 1234.5, or as JSON and say --json KEY"
                )
    raise Failure("it printed no number" if text.strip() else "it printed nothing")


def _keyed(text: str, key: str) -> float:
    last: dict[str, Any] | None = None
    found: list[Any] = []
    for each in _objects(text):
        last = each
        with contextlib.suppress(LookupError):
            found = [_look_up(each, key)]
    if last is None:
        raise Failure("it printed no JSON object")
    if not found:
        has = ", ".join(repr(name) for name in list(last)[:10]) or "nothing"
        raise Failure(f"no JSON object that it printed has {shown(key)}; the last has {has}")
    if isinstance(found[0], bool) or not isinstance(found[0], int | float):
        raise Failure(f"{shown(key)} is no number but {json.dumps(found[0])[:80]}")
    try:
        return float(found[0])
    except OverflowError:
        return math.inf


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, in order, not those inside of others."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield found
        at = text.find("{", end)


def _look_up(tree: Any, path: str) -> Any:
    """The value at a.b.c; a name may itself have dots in it, and a number counts into a list."""
    if isinstance(tree, dict) and path in tree:
        return tree[path]
    parts = path.split(".")
    for count in range(1, len(parts)):
        name, rest = ".".join(parts[:count]), ".".join(parts[count:])
        if isinstance(tree, dict) and name in tree:
            with contextlib.suppress(LookupError):
                return _look_up(tree[name], rest)
    if isinstance(tree, list) and parts[0].isascii() and parts[0].isdigit():
        inner = tree[int(parts[0])]
        return inner if len(parts) == 1 else _look_up(inner, ".".join(parts[1:]))
    raise LookupError(path)


def _last_lines(text: str) -> str:
    return "\n".join(COLOURS.sub("", text).strip().splitlines()[-LINES:])[-LENGTH:]


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
    policy: str = "auto",
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
            sampler=MisspecSampler(policy, n_trials=evaluations, seed=seed),
            beat=beat,
            grace=grace,
            lost=lost,
        )
        try:
            _fill(shared, command, running, jobs=jobs, key=key, timeout=timeout, retries=retries, show=show)
            return policy_of(shared.study, space)
        finally:
            shared.close()


def _fill(
    shared: Shared,
    command: Command,
    running: dict[int, _Evaluation],
    *,
    jobs: int,
    key: str | None,
    timeout: float | None,
    retries: int,
    show: Callable[[Progress], None],
) -> None:
    """Until the study has its results."""
    ended: queue.Queue[_Evaluation] = queue.Queue()
    before, began, failures = shared.standing().done, time.monotonic(), 0

    def work(evaluation: _Evaluation) -> float:
        return _evaluate(evaluation, shared, command, key=key, timeout=timeout, retries=retries)

    def progress(result: Result | None = None) -> Progress:
        found = shared.standing()
        gained, of = found.done - before, shared.n
        left = (of - found.done) * (time.monotonic() - began) / gained if gained > 0 else None
        return Progress(found.done, of, before, found.running, found.best, found.params, left, result)

    try:
        show(progress())
        while True:
            while len(running) < jobs and (trial := shared.claim()) is not None:
                running[trial.number] = evaluation = _Evaluation(trial, work, ended)
                evaluation.start()
            now = progress()
            show(now)
            if now.done >= now.of:
                return
            with contextlib.suppress(queue.Empty):
                evaluation = ended.get(timeout=POLL)
                result = _tell(shared, evaluation)
                del running[evaluation.number]
                if result is not None:
                    failures += result.value is None
                    now = progress(result)
                    show(now)
                    _check_hope(failures, now)
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
                complaint = _last_lines(ran.err).rpartition("\n")[2]
                raise Failure(_ending(ran.code) + (f": {complaint}" if complaint else ""))
            return result_of(ran.out, key)
        except Failure as failure:
            if attempt == retries or evaluation.stop.is_set():
                times = f" ({retries + 1} times)" if attempt else ""
                raise Failure(failure.reason + times, _last_lines(ran.err)) from None
    raise AssertionError


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"ended by {signal.Signals(-code).name}"
    return f"ended by signal {-code}"


def _tell(shared: Shared, evaluation: _Evaluation) -> Result | None:
    """What came of it, to the study; None if another process had taken the trial."""
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


def _check_hope(failures: int, now: Progress) -> None:
    if failures < HOPELESS or now.result is None or now.result.reason is None:
        return
    if now.done == 0:
        said = f"the first {failures} evaluations all failed"
    elif failures >= now.of:
        said = f"{failures} evaluations failed, as many as there should be results"
    else:
        return
    raise InvalidInput(f"{said}, the last one because: {now.result.reason}; repair the command and run this line again")


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
