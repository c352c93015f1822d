"""Real storages, shared by processes of which one is killed: every trial told once, none lost, no number twice."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

sys.path.insert(0, str(Path(__file__).parent))

import optuna_worker

from cover import slowly

POSTGRES = os.environ.get("MISSPEC_POSTGRES")  # the URL of a database of its own; `.ci/run` starts one
WANTED = 16


@pytest.fixture(params=["sqlite", *slowly("journal", "postgresql")])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'study.db'}"
    if request.param == "journal":
        return f"journal:{tmp_path / 'study.log'}"
    if POSTGRES is None:
        if os.environ.get("MISSPEC_REQUIRE_POSTGRES"):
            pytest.fail("MISSPEC_POSTGRES must name a database here")
        pytest.skip("MISSPEC_POSTGRES names no database (.ci/run starts one)")
    return POSTGRES


def wait_for(condition, what, seconds=120):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.02)
    return found


def test_four_processes_share_a_study_and_one_is_killed(url, tmp_path):
    storage, name, log = optuna_worker.storage_of(url), f"shared {uuid.uuid4()}", tmp_path / "evaluations.log"
    study = optuna.create_study(study_name=name, storage=storage, direction="maximize")
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

    def start(patience):
        command = [sys.executable, optuna_worker.__file__, url, name, str(WANTED), str(log), str(patience)]
        return subprocess.Popen(command, env=env)

    def lines():
        return [line.split() for line in log.read_text().splitlines()] if log.exists() else []

    victim = start(600)  # in the middle of its trial until it is killed
    workers = [victim]
    try:
        wait_for(lines, "the first evaluation")
        workers += [start(0.01) for _ in range(3)]
        wait_for(lambda: sum(line[0] == "end" for line in lines()) >= 4, "some results")
        os.kill(victim.pid, signal.SIGKILL)
        for worker in workers[1:]:
            assert worker.wait(240) == 0
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    trials = study.get_trials()
    states = Counter(trial.state for trial in trials)
    assert [trial.number for trial in trials] == list(range(len(trials)))
    (killed,) = [int(line[1]) for line in lines() if line[0] == "begin" and int(line[2]) == victim.pid]
    assert [trial.number for trial in trials if trial.state == TrialState.RUNNING] == [killed]
    assert states[TrialState.COMPLETE] == len(trials) - 1 >= WANTED
    begun, ended = (Counter(int(line[1]) for line in lines() if line[0] == kind) for kind in ("begin", "end"))
    assert set(begun.values()) == set(ended.values()) == {1}
    assert set(begun) - set(ended) == {killed}
    told = {int(line[1]): float(line[2]) for line in lines() if line[0] == "end"}
    for trial in trials:
        if trial.number != killed:
            assert trial.value == told[trial.number] == optuna_worker.value(trial.params)
    assert any("misspec:rule" in trial.user_attrs for trial in trials)
    # the point that was lost with its process is known, and may be asked again
    study.tell(killed, state=TrialState.FAIL)
    study.sampler = optuna_worker.MisspecSampler(seed=0)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    optuna.delete_study(study_name=name, storage=storage)
