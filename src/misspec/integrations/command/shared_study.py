"""An Optuna study that several processes fill at once, on one machine or many, and that survives any of them.

Who evaluates a trial is written into it when it is made, in the same transaction. Any process can find trials whose
process is gone: on its own machine by number and starting time of the process, elsewhere because the beat that the
process counts up in the trial stood still for a while, by the looker's own clock. Such a trial fails, and its point
is evaluated again by a new one that says whose place it takes. Trials that name no process belong to other programs and
are left alone.

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
from optuna.distributions import BaseDistribution
from optuna.exceptions import DuplicatedStudyError, StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from misspec.domains import Space
from misspec.errors import InvalidInput
from misspec.integrations.command import processes
from misspec.integrations.command.storages import TRIES, open_storage, without_password
from misspec.integrations.optuna.trials import AGAIN

OWNER = "misspec:owner"  # of a trial: run, host, pid, start
CLAIM = "misspec:claim:"  # and a run, of an enqueued trial: its owner to be, the trial, and how many parameters it had
BEAT = "misspec:beat"  # of a trial: counts up while its process lives
PROCESS = "misspec:process"  # of a trial: pid and start of the command
# AGAIN, of a failed trial: its point is to be evaluated again; how often processes died over it
RETRY = "misspec:retry"  # of a trial: the number of the one whose place it takes, and how often processes died over it
SPACE = "misspec:space"  # of a study
GONE = "the process that evaluated it is gone"
MOST_DEATHS = 3  # of processes over one point; then it is given up

T = TypeVar("T")
_RUNS: set[str] = set()  # of this process, that are going on


class Standing(NamedTuple):
    """State of a study: results, trials under way, the best result and its parameters."""

    done: int
    running: int
    best: float | None
    params: dict[str, Any]


# -- the study ---------------------------------------------------------------------------------------------------------


class Shared:
    """A study and this process's part in it.

    n: results wanted. beat: seconds between beats of this process. grace: seconds that a beat of another machine may
    stand still. lost(number): called when another process has taken a trial of this one away.
    """

    def __init__(
        self,
        url: str,
        name: str,
        space: Space,
        distributions: Mapping[str, BaseDistribution],
        *,
        minimize: bool,
        n: int,
        sampler: optuna.samplers.BaseSampler,
        beat: float = 15.0,
        grace: float = 90.0,
        lost: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.storage = open_storage(url)
        self.distributions = dict(distributions)
        self.n, self.grace = n, grace
        self._run = uuid.uuid4().hex
        _RUNS.add(self._run)
        self._mine: dict[int, int] = {}  # ids of the trials that this process evaluates, by number
        self._seen: dict[int, tuple[Any, float]] = {}  # beats of others, and since when they are what they are
        self._lost, self._closed = lost, threading.Event()
        wanted = StudyDirection.MINIMIZE if minimize else StudyDirection.MAXIMIZE
        try:
            self.study = self._joined(url, name, space, wanted, sampler)
        except BaseException:
            self._let_go()
            raise
        self._id = self.study._study_id
        self._beating = threading.Thread(target=self._keep_beating, args=(beat,), daemon=True)
        self._beating.start()

    def _joined(
        self, url: str, name: str, space: Space, wanted: StudyDirection, sampler: optuna.samplers.BaseSampler
    ) -> optuna.Study:
        """The study of a name, made if there is none; InvalidInput if it is about something else."""
        storage = self.storage
        try:
            storage.get_study_id_from_name(name)
        except KeyError:
            with contextlib.suppress(DuplicatedStudyError):  # another process was quicker
                storage.create_new_study([wanted], name)
        study = optuna.load_study(study_name=name, storage=storage, sampler=sampler)
        where, other = f"study {name!r} in {without_password(url)}", "take another --name"
        if study.directions != [wanted]:
            several, direction = len(study.directions) > 1, study.directions[0].name.lower()
            has = "has several objectives" if several else f"is to {direction}"
            hint = "" if several else f", or say --{direction}"
            raise InvalidInput(f"{where} {has}, and this is to {wanted.name.lower()}; {other}{hint}")
        settings = json.loads(json.dumps(space.settings()))
        kept = storage.get_study_system_attrs(study._study_id).get(SPACE)
        if kept is None:  # new, or made by another program
            for trial in storage.get_all_trials(study._study_id, deepcopy=False):
                if trial.distributions and trial.distributions != self.distributions:
                    raise InvalidInput(f"{where} has trials with other parameters than this space; {other}")
            storage.set_study_system_attr(study._study_id, SPACE, settings)
        elif kept != settings:
            raise InvalidInput(
                f"{where} is about another space: {_difference(kept, settings)}; {other}, or restore the file"
            )
        return study

    def close(self) -> None:
        """Stop beating, and let go of the storage."""
        self._closed.set()
        self._beating.join()
        self._let_go()

    def _let_go(self) -> None:
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

    # -- taking and finishing trials -----------------------------------------------------------------------------------

    def claim(self, trials: Sequence[FrozenTrial] | None = None) -> Trial | None:
        """A trial to evaluate, with its parameters; None if enough are under way. trials: as they were just read."""
        trials = self.trials() if trials is None else trials
        number = self._take(None if self.reap(trials) else trials)
        if number is None or not self._needed(number):
            return None
        try:
            trial = Trial(self.study, self._mine[number])
            for name, distribution in self.distributions.items():
                trial._suggest(name, distribution)
        except UpdateFinishedTrialError:  # this took so long that another machine took it for dead
            del self._mine[number]
            return None
        return trial

    def _take(self, trials: Sequence[FrozenTrial] | None = None) -> int | None:
        """A trial for this process, by number, which others may have made superfluous meanwhile."""
        trials = self.trials() if trials is None else trials
        if sum(t.state == TrialState.COMPLETE or _under_way(t) for t in trials) >= self.n:
            return None
        number = self._waiting(trials)
        return self._make(trials) if number is None else number

    def _needed(self, number: int) -> bool:
        """Test whether a trial of ours is still needed; fail it if it is not."""
        trials = self.study._thread_local.cached_all_trials = self.trials()  # as Study.ask does, for the sampler
        here = next(t for t in trials if t.number == number)
        retry, deaths = here.system_attrs.get(RETRY), None
        of = _of(retry)
        twins = [t.number for t in trials if of is not None and _of(t.system_attrs.get(RETRY)) == of]
        results = sum(t.state == TrialState.COMPLETE for t in trials)
        before = sum(t.number < number and (_under_way(t) or t.state == TrialState.WAITING) for t in trials)
        if twins and twins[0] < number:
            why = f"not needed: trial {twins[0]} evaluates the same point again"
        elif results + before >= self.n:
            why = f"not needed: {self.n} are done or under way"
            deaths = None if of is None else _deaths(retry)  # it still is to be evaluated, should more be wanted
        else:
            return True
        self.fail(number, why, deaths=deaths)
        return False

    def record(self, number: int, pid: int, start: str | None) -> None:
        """The command that evaluates a trial."""
        self.storage.set_trial_system_attr(self._mine[number], PROCESS, {"pid": pid, "start": start})

    def finish(self, number: int, value: float) -> bool:
        """Tell a result; False if the trial was taken away meanwhile."""
        told = False
        with contextlib.suppress(UpdateFinishedTrialError):
            told = _patiently(lambda: self.study.tell(number, value, skip_if_finished=True)).value == value
        self._mine.pop(number, None)
        return told

    def fail(self, number: int, reason: str, stderr: str = "", deaths: int | None = None) -> bool:
        """Tell a failure. deaths: how often processes died over the point, if it is to be evaluated again."""
        told = self._fail(self._mine[number], reason, stderr, deaths)
        self._mine.pop(number, None)
        return told

    def give_up(self, number: int, reason: str) -> bool:
        """Give a trial back: it fails, and another process evaluates its point again."""
        retry = self.storage.get_trial(self._mine[number]).system_attrs.get(RETRY)
        return self.fail(number, reason, deaths=_deaths(retry))

    @property
    def mine(self) -> list[int]:
        return list(self._mine)

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
                    self._mine[trial.number] = trial_id
                    self.storage.set_trial_system_attr(trial_id, OWNER, owner)
                    return trial.number
                self.storage.set_trial_system_attr(trial_id, key, None)
            except UpdateFinishedTrialError:
                self._mine.pop(trial.number, None)
        return None

    def _make(self, trials: Sequence[FrozenTrial]) -> int:
        """A new trial: for a point that is to be evaluated again, or for one that the sampler chooses."""
        attributes: dict[str, Any] = {OWNER: self._owner(), BEAT: 0}
        replaced = {_of(t.system_attrs.get(RETRY)) for t in trials}
        for trial in trials:
            again = trial.system_attrs.get(AGAIN)
            if trial.state != TrialState.FAIL or again is None or trial.number in replaced:
                continue
            attributes[RETRY] = {"of": trial.number, "deaths": _deaths(again)}
            whole = set(self.distributions) <= set(trial.params)  # else it died while its point was chosen
            attributes["fixed_params"] = trial.params if whole else trial.system_attrs.get("fixed_params", {})
            break
        template = optuna.trial.create_trial(state=TrialState.RUNNING, system_attrs=attributes)
        trial_id = self.storage.create_new_trial(self._id, template_trial=template)
        number = self.storage.get_trial(trial_id).number
        self._mine[number] = trial_id
        return number

    def _owner(self) -> dict[str, Any]:
        pid = os.getpid()
        return {"run": self._run, "host": processes.host(), "pid": pid, "start": processes.started(pid)}

    def _fail(self, trial_id: int, reason: str, stderr: str = "", deaths: int | None = None) -> bool:
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

    # -- life and death ------------------------------------------------------------------------------------------------

    def reap(self, trials: Sequence[FrozenTrial] | None = None) -> list[int]:
        """Fail the trials whose process is gone, so that their points are evaluated again; their numbers. A command of
        theirs that still runs on this machine is ended first."""
        found = []
        for trial in self.trials() if trials is None else trials:
            if _under_way(trial) and trial.number not in self._mine and self._gone(trial):
                owner, command = trial.system_attrs.get(OWNER), trial.system_attrs.get(PROCESS)
                if owner is not None and _here(owner) and _named(command):
                    processes.end_group(command["pid"], command["start"])
                deaths = _deaths(trial.system_attrs.get(RETRY)) + (command is not None)
                reason, again = GONE, deaths < MOST_DEATHS
                if not again:
                    reason += f", {deaths} times now; the point is given up"
                if self._fail(trial._trial_id, reason, deaths=deaths if again else None):
                    found.append(trial.number)
        return found

    def _gone(self, trial: FrozenTrial) -> bool:
        owner, claims = trial.system_attrs.get(OWNER), _claims(trial)
        if owner is not None:
            if _here(owner) and owner.get("run") != self._run:
                return not _lives(owner)
        elif any(_here(each) and _lives(each) for each in claims):
            return False  # it takes back its claim soon, or names itself
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
            for number, trial_id in tuple(self._mine.items()):
                # Whatever fails here may be well again at the next beat (and if the storage stays away, telling will
                # fail): were there no more beats, other machines would take all trials away.
                with contextlib.suppress(Exception):
                    try:
                        self.storage.set_trial_system_attr(trial_id, BEAT, count)
                    except UpdateFinishedTrialError:
                        if number in self._mine:
                            self._lost(number)


def _difference(kept: Any, now: list[Any]) -> str:
    """The first parameter that differs."""
    with contextlib.suppress(TypeError, ValueError):
        before, after = dict(kept), dict(now)
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
    found = (value for key, value in sorted(trial.system_attrs.items()) if key.startswith(CLAIM))
    return [each for each in found if isinstance(each, dict) and (each.get("trial"), each.get("params")) == mark]


def _lives(process: Mapping[str, Any]) -> bool:
    """Test whether a run of this host goes on."""
    over = process["pid"] == os.getpid() and process.get("run") not in _RUNS
    return not over and processes.alive(process["pid"], process["start"])


def _named(process: Any) -> TypeGuard[Mapping[str, Any]]:
    return (
        isinstance(process, dict)
        and type(process.get("pid")) is int
        and process["pid"] > 1
        and isinstance(process.get("start"), str)
    )


def _here(owner: Mapping[str, Any]) -> bool:
    """Test whether the process is of this host, so that its number says whether it lives."""
    host = processes.host()
    return host is not None and owner.get("host") == host and _named(owner)


def _deaths(kept: Any) -> int:
    count = kept.get("deaths") if isinstance(kept, dict) else 0
    return count if isinstance(count, int) else MOST_DEATHS


def _of(retry: Any) -> int | None:
    number = retry.get("of") if isinstance(retry, dict) else None
    return number if isinstance(number, int) else None


def _patiently(write: Callable[[], T]) -> T:
    """A result took long to get: if the storage is away for a moment, try again."""
    for tried in range(TRIES):
        try:
            return write()
        except StorageInternalError:
            if tried + 1 == TRIES:
                raise
            time.sleep(0.5 * 2.0**tried)
    raise AssertionError
