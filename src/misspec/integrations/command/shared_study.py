"""An Optuna study that several processes fill at once, on one machine or many, and that survives any of them.

Who evaluates a trial is written into it when it is made, in the same transaction. Any process can find trials whose
process is gone: on its own machine by number and starting time of the process, elsewhere because the beat that the
process counts up in the trial stood still for a while, by the looker's own clock. Such a trial fails, and its point
is evaluated again by a new one that says whose place it takes. Trials that name no process belong to other programs and
are left alone. (Optuna's own heartbeats are for `Study.optimize` and databases, and cannot tell at once that a process
of this machine is gone.)

An enqueued trial belongs to the process that sets it RUNNING. A process that tries writes a claim into the trial first,
under a key of its own, and removes it if another was quicker; the one that succeeds then names itself. So a trial that
runs and names no owner was taken by one of those that tried, or by another program. It counts as ours while there is
such a claim, and is taken for dead once all who tried are and nothing has happened to it for a while.

Exactly n results: a trial is needed if the results there are and the trials under way before it, by number, are fewer
than n. Of more than n that finish, the last by number would have seen all others under way or finished.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard, TypeVar

import optuna
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from misspec.domains import Space
from misspec.errors import InvalidInput
from misspec.integrations.command import processes
from misspec.integrations.command.storages import open_storage, without_password
from misspec.integrations.optuna.shapes import distributions_of
from misspec.integrations.optuna.trials import AGAIN, Axes

OWNER = "misspec:owner"  # of a trial: run, host, pid, start
CLAIM = "misspec:claim:"  # and a run, of an enqueued trial: its owner to be, the trial, and how many parameters it had
BEAT = "misspec:beat"  # of a trial: counts up while its process lives
PROCESS = "misspec:process"  # of a trial: pid and start of the command
# AGAIN, of a failed trial: its point is to be evaluated again; how often processes died over it
RETRY = "misspec:retry"  # of a trial: the number of the one whose place it takes, and how often processes died over it
SPACE = "misspec:space"  # of a study
GONE = "the process that evaluated it is gone"
MOST_DEATHS = 3  # of processes over one point; then it is given up
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds between attempts to tell an outcome

T = TypeVar("T")
_RUNS: set[str] = set()  # of this process, that are going on


class Standing(NamedTuple):
    """State of a study: results, trials under way, the best result and its parameters."""

    done: int
    running: int
    best: float | None
    params: dict[str, Any]


class Mine(NamedTuple):
    """A trial that this process evaluates. deaths: of processes over its point before. stop: set when it must end,
    as when another process has taken it."""

    trial_id: int
    deaths: int
    stop: threading.Event


class Shared:
    """A study and this process's part in it: `mine`, the trials that it evaluates, by number.

    n: results wanted. beat: seconds between beats of this process. grace: seconds that a beat of another machine may
    stand still.
    """

    def __init__(
        self,
        url: str,
        name: str,
        space: Space,
        *,
        minimize: bool,
        n: int,
        sampler: optuna.samplers.BaseSampler,
        beat: float = 15.0,
        grace: float = 90.0,
    ) -> None:
        self.storage = open_storage(url)
        self.axes = Axes(distributions_of(space), space)
        self.n, self.grace = n, grace
        self.mine: dict[int, Mine] = {}
        self._seen: dict[int, tuple[str, float]] = {}  # beats of others, and since when they are what they are
        self._closed = threading.Event()
        self._run = uuid.uuid4().hex
        _RUNS.add(self._run)
        self._beating = threading.Thread(target=self._keep_beating, args=(beat,), daemon=True)
        try:
            self.study = self._joined(name, f"study {name!r} in {without_password(url)}", space, minimize, sampler)
            self._id = self.study._study_id
            self._beating.start()
        except BaseException:
            self.close()
            raise

    def _joined(
        self, name: str, where: str, space: Space, minimize: bool, sampler: optuna.samplers.BaseSampler
    ) -> optuna.Study:
        """The study of a name, made if there is none; InvalidInput if it is about something else."""
        storage, other = self.storage, "take another --name"
        wanted = StudyDirection.MINIMIZE if minimize else StudyDirection.MAXIMIZE
        options: Any = {"storage": storage, "sampler": sampler, "load_if_exists": True}
        study = optuna.create_study(study_name=name, directions=[wanted], **options)
        if study.directions != [wanted]:
            several, direction = len(study.directions) > 1, study.directions[0].name.lower()
            has = "has several objectives" if several else f"is to {direction}"
            hint = "" if several else f", or say --{direction}"
            raise InvalidInput(f"{where} {has}, and this is to {wanted.name.lower()}; {other}{hint}")
        settings = json.loads(json.dumps(space.settings()))
        kept = storage.get_study_system_attrs(study._study_id).get(SPACE)
        if kept is None:  # new, or made by another program
            trials = storage.get_all_trials(study._study_id, deepcopy=False)
            if not all(self._fits(t) for t in trials if t.distributions):
                raise InvalidInput(f"{where} has trials with other parameters than this space; {other}")
            storage.set_study_system_attr(study._study_id, SPACE, settings)
        elif kept != settings:
            changed = _difference(kept, settings)
            raise InvalidInput(f"{where} is about another space: {changed}; {other}, or restore the file")
        return study

    def _fits(self, trial: FrozenTrial) -> bool:
        """Test whether a trial has the parameters of the space that exist at its point, and no others."""
        x, ours = self.axes.point(trial.params), self.axes.distributions
        there = trial.distributions.items()
        return x is not None and dict(there) == {name: ours[name] for name in self.axes.stored(x)}

    def close(self) -> None:
        """Stop beating, and let go of the storage."""
        self._closed.set()
        if self._beating.is_alive():
            self._beating.join()
        _RUNS.discard(self._run)
        backend = getattr(self.storage, "_backend", None)
        if isinstance(backend, RDBStorage):
            backend.remove_session()
            backend.engine.dispose()

    def trials(self) -> list[FrozenTrial]:
        return self.storage.get_all_trials(self._id, deepcopy=False)

    def standing(self, trials: Sequence[FrozenTrial] | None = None) -> Standing:
        trials = self.trials() if trials is None else trials
        results = [t for t in trials if t.state == TrialState.COMPLETE and t.value is not None]
        sign = -1.0 if self.study.direction == StudyDirection.MINIMIZE else 1.0
        best = max(results, key=lambda t: sign * (t.value or 0.0), default=None)
        value, params = (None, {}) if best is None else (best.value, dict(best.params))
        return Standing(len(results), sum(_under_way(t) for t in trials), value, params)

    def claim(self, trials: Sequence[FrozenTrial] | None = None) -> Trial | None:
        """A trial to evaluate, with its parameters; None if enough are under way. trials: as they were just read."""
        trials = self.trials() if trials is None else trials
        number = self._take(None if self.reap(trials) else trials)
        if number is None or not self._needed(number):
            return None
        try:
            trial = Trial(self.study, self.mine[number].trial_id)
            for name in self.axes.space.conditions.order:
                if self.axes.exists(name, trial.params):
                    trial._suggest(name, self.axes.distributions[name])
        except UpdateFinishedTrialError:  # this took so long that another machine took it for dead
            del self.mine[number]
            return None
        return trial

    def _take(self, trials: Sequence[FrozenTrial] | None = None) -> int | None:
        """A trial for this process, by number, which others may have made superfluous meanwhile."""
        trials = self.trials() if trials is None else trials
        if sum(t.state == TrialState.COMPLETE or _under_way(t) for t in trials) >= self.n:
            return None
        number = self._waiting(trials)
        return self._make(trials) if number is None else number

    def _waiting(self, trials: Sequence[FrozenTrial]) -> int | None:
        """The first trial that someone enqueued. Only who makes it run names itself its owner."""
        owner, key = self._owner(), CLAIM + self._run
        for trial in trials:
            if trial.state != TrialState.WAITING:
                continue
            trial_id, claim = trial._trial_id, {"trial": trial.number, "params": len(trial.params), **owner}
            try:
                self.storage.set_trial_system_attr(trial_id, key, claim)
                if self.storage.set_trial_state_values(trial_id, TrialState.RUNNING):
                    self.mine[trial.number] = Mine(trial_id, _deaths(trial, RETRY), threading.Event())
                    self.storage.set_trial_system_attr(trial_id, OWNER, owner)
                    return trial.number
                self.storage.set_trial_system_attr(trial_id, key, None)
            except UpdateFinishedTrialError:
                self.mine.pop(trial.number, None)
        return None

    def _make(self, trials: Sequence[FrozenTrial]) -> int:
        """A new trial: for a point that is to be evaluated again, or for one that the sampler chooses."""
        attributes: dict[str, Any] = {OWNER: self._owner(), BEAT: 0}
        replaced, deaths = {_of(t) for t in trials}, 0
        failed = [t for t in trials if t.state == TrialState.FAIL and t.system_attrs.get(AGAIN) is not None]
        trial = next((t for t in failed if t.number not in replaced), None)
        if trial is not None:
            deaths = _deaths(trial, AGAIN)
            attributes[RETRY] = {"of": trial.number, "deaths": deaths}
            whole = self.axes.point(trial.params) is not None  # else it died while its point was chosen
            attributes["fixed_params"] = trial.params if whole else trial.system_attrs.get("fixed_params", {})
        template = optuna.trial.create_trial(state=TrialState.RUNNING, system_attrs=attributes)
        trial_id = self.storage.create_new_trial(self._id, template_trial=template)
        number = self.storage.get_trial(trial_id).number
        self.mine[number] = Mine(trial_id, deaths, threading.Event())
        return number

    def _needed(self, number: int) -> bool:
        """Test whether a trial of ours is still needed; fail it if it is not."""
        trials = self.study._thread_local.cached_all_trials = self.trials()  # as Study.ask does, for the sampler
        of = next(_of(t) for t in trials if t.number == number)
        twin = next((t.number for t in trials if of is not None and _of(t) == of), number)
        results = sum(t.state == TrialState.COMPLETE for t in trials)
        before = sum(t.number < number and (_under_way(t) or t.state == TrialState.WAITING) for t in trials)
        if twin == number and results + before < self.n:
            return True
        if twin < number:
            self.fail(number, f"not needed: trial {twin} evaluates the same point again")
        else:  # the point of another still is to be evaluated, should more be wanted
            self.fail(number, f"not needed: {self.n} are done or under way", again=of is not None)
        return False

    def _owner(self) -> dict[str, Any]:
        pid = os.getpid()
        return {"run": self._run, "host": processes.host(), "pid": pid, "start": processes.started(pid)}

    def record(self, number: int, pid: int, start: str | None) -> None:
        """The command that evaluates a trial."""
        self.storage.set_trial_system_attr(self.mine[number].trial_id, PROCESS, {"pid": pid, "start": start})

    def finish(self, number: int, value: float) -> bool:
        """Tell a result; False if the trial was taken away meanwhile."""
        told = None
        with contextlib.suppress(UpdateFinishedTrialError):
            told = _patiently(lambda: self.study.tell(number, value, skip_if_finished=True))
        del self.mine[number]
        return told is not None and told.value == value

    def fail(self, number: int, reason: str, stderr: str = "", *, again: bool = False) -> bool:
        """Tell a failure; False if the trial was taken away meanwhile. again: another is to evaluate its point."""
        trial_id, deaths, _ = self.mine[number]
        told = self._fail(trial_id, reason, stderr, deaths if again else None)
        del self.mine[number]
        return told

    def _fail(self, trial_id: int, reason: str, stderr: str, deaths: int | None) -> bool:
        """deaths: how often processes died over the point, if it is to be evaluated again."""

        def write() -> None:
            self.storage.set_trial_user_attr(trial_id, "reason", reason)
            if stderr:
                self.storage.set_trial_user_attr(trial_id, "stderr", stderr)
            if deaths is not None:
                self.storage.set_trial_system_attr(trial_id, AGAIN, {"deaths": deaths})
            self.storage.set_trial_state_values(trial_id, TrialState.FAIL)

        try:
            _patiently(write)
        except UpdateFinishedTrialError:
            return False
        return True

    def reap(self, trials: Sequence[FrozenTrial] | None = None) -> list[int]:
        """Fail the trials whose process is gone, so that their points are evaluated again; their numbers. A command of
        theirs that still runs on this machine is ended first."""
        reaped = []
        for trial in self.trials() if trials is None else trials:
            if _under_way(trial) and trial.number not in self.mine and self._gone(trial):
                command = trial.system_attrs.get(PROCESS)
                if _lives(trial.system_attrs.get(OWNER)) is False and _named(command):
                    processes.end_group(command["pid"], command["start"])
                deaths = _deaths(trial, RETRY) + (command is not None)
                again = deaths < MOST_DEATHS
                reason = GONE if again else f"{GONE}, {deaths} times now; the point is given up"
                if self._fail(trial._trial_id, reason, "", deaths if again else None):
                    reaped.append(trial.number)
        return reaped

    def _gone(self, trial: FrozenTrial) -> bool:
        owner, claims = trial.system_attrs.get(OWNER), _claims(trial)
        lives = [_lives(each) for each in (claims if owner is None else [owner])]
        if True in lives:  # who only has a claim takes it back soon, or names itself
            return False
        if owner is not None and False in lives:
            return True
        # It is of another machine; or only the dead have claimed it, but another program may have it and go on soon.
        now, mark = time.monotonic(), json.dumps([owner, trial.system_attrs.get(BEAT), claims])
        before, since = self._seen.get(trial.number, (None, now))
        if before != mark:
            self._seen[trial.number] = (mark, now)
            return False
        return now - since > self.grace

    def _keep_beating(self, every: float) -> None:
        count = 0
        while not self._closed.wait(every):
            count += 1
            for trial_id, _, stop in tuple(self.mine.values()):
                try:
                    self.storage.set_trial_system_attr(trial_id, BEAT, count)
                except UpdateFinishedTrialError:
                    stop.set()
                except Exception:
                    # It may be well again at the next beat (and if the storage stays away, telling will fail): were
                    # there no more beats, other machines would take all trials away.
                    continue


def _difference(kept: Any, now: Any) -> str:
    """The first parameter that differs, or the rules."""
    with contextlib.suppress(TypeError, ValueError, KeyError):
        parts = [each if isinstance(each, dict) else {"parameters": each, "where": []} for each in (kept, now)]
        if parts[0]["where"] != parts[1]["where"] and parts[0]["parameters"] == parts[1]["parameters"]:
            return f"its rules were {json.dumps(parts[0]['where'])} and are {json.dumps(parts[1]['where'])}"
        before, after = (dict(each["parameters"]) for each in parts)
        for name in [*after, *before]:
            if name not in before or name not in after:
                return f"{name!r} is {'new' if name in after else 'missing'}"
            if before[name] != after[name]:
                return f"{name!r} was {json.dumps(before[name])} and is {json.dumps(after[name])}"
    return "the order of parameters differs"


def _under_way(trial: FrozenTrial) -> bool:
    """Test whether a process of ours evaluates it, or did until it died."""
    if trial.state != TrialState.RUNNING:
        return False
    owner = trial.system_attrs.get(OWNER)
    return bool(_claims(trial)) if owner is None else isinstance(owner, dict)


def _claims(trial: FrozenTrial) -> list[dict[str, Any]]:
    """Claims of processes that may have taken a trial without an owner. They would name themselves before they choose
    parameters: if it got some, another program has it. Claims do not hold for copies of a trial, as Optuna makes."""
    mark = trial.number, len(trial.params)
    claims = (value for key, value in sorted(trial.system_attrs.items()) if key.startswith(CLAIM))
    return [each for each in claims if isinstance(each, dict) and (each.get("trial"), each.get("params")) == mark]


def _lives(owner: Any) -> bool | None:
    """Test whether a run goes on; None where its number does not say so: it is of another host, or someone's own."""
    host = processes.host()
    if host is None or not _named(owner) or owner.get("host") != host:
        return None
    over = owner["pid"] == os.getpid() and owner.get("run") not in _RUNS
    return not over and processes.started(owner["pid"]) == owner["start"]


def _named(process: Any) -> TypeGuard[Mapping[str, Any]]:
    """Test whether it is a process by number and starting time; attributes may be anyone's."""
    pid, start = (process.get("pid"), process.get("start")) if isinstance(process, dict) else (None, None)
    return type(pid) is int and pid > 1 and isinstance(start, str)


def _deaths(trial: FrozenTrial, key: str) -> int:
    """Count the processes that died over its point; AGAIN and RETRY say so."""
    kept = trial.system_attrs.get(key)
    count = kept.get("deaths") if isinstance(kept, dict) else 0
    return count if isinstance(count, int) else MOST_DEATHS


def _of(trial: FrozenTrial) -> int | None:
    """The number of the trial whose place it takes."""
    retry = trial.system_attrs.get(RETRY)
    number = retry.get("of") if isinstance(retry, dict) else None
    return number if isinstance(number, int) else None


def _patiently(write: Callable[[], T]) -> T:
    """A result took long to get: if the storage is away for a moment, try again."""
    for pause in PAUSES:
        with contextlib.suppress(StorageInternalError):
            return write()
        time.sleep(pause)
    return write()
