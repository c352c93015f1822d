"""Many evaluations at once: threads, processes, and whatever else hands back results in any order."""

import collections
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest
import threadpoolctl
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF

import evaluations
import misspec as ms
from misspec.evaluation import workers
from misspec.evaluation.loop import FAILURES, Drive
from misspec.threads import LIMIT

DOMAIN = ms.Box([(0, 1)]).grid(40)
MODEL = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
MAKE = {
    "uniform": lambda: ms.UniformSampling(DOMAIN, MODEL),
    "gp": lambda: ms.GPUCB(DOMAIN, MODEL),
    "balancing": lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=200),
    "phased": lambda: ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=60),
}
PATIENCE = 90.0  # seconds for what happens at once, or never


class Scripted:
    """An evaluator whose results come back as a script says: which, how many at a time, and what of them."""

    def __init__(self, function=evaluations.smooth, slots=4, order=None, burst=None):
        self.function, self.order = function, order or (lambda running: 0)
        self.burst = burst or (lambda: 1)
        self.width = slots
        self.running, self.handed, self.most, self.closed = {}, [], 0, 0

    def slots(self):
        return self.width

    def submit(self, jobs):
        for id_, x in jobs:
            assert id_ not in self.running
            self.running[id_] = x
            self.handed.append(id_)
        self.most = max(self.most, len(self.running))

    def collect(self, *, wait):
        if not wait:
            return []
        assert self.running, "nothing is left to wait for"
        found = []
        for _ in range(self.burst()):
            if self.running:
                id_ = list(self.running)[self.order(len(self.running)) % len(self.running)]
                found.append((id_, workers.evaluate(self.function, self.running.pop(id_))))
        return found

    def close(self):
        self.closed += 1


def drive(*given, **options):
    return Drive(*given, **options).run()


def told(policy):
    """Ids of the queries that were told, in that order; none of them twice."""
    ids = policy.observations.ids.tolist()
    assert len(set(ids)) == len(ids) == policy.t
    return ids


def true_results(found):
    return np.array_equal(found.y, [evaluations.smooth(x) for x in found.x])


# -- the loop, whatever the order --------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(sorted(MAKE)),
    horizon=st.integers(1, 45),
    slots=st.integers(1, 9),
    in_flight=st.none() | st.integers(1, 9),
)
def test_every_query_is_told_once_whatever_the_order(seed, name, horizon, slots, in_flight):
    rng = random.Random(seed)
    asked, failed = [], collections.Counter()

    def function(x):
        asked.append(x)
        if rng.random() < 0.15 and failed["in a row"] < FAILURES - 2:
            failed["in a row"] += 1
            failed["all"] += 1
            raise RuntimeError("bad luck")
        failed["in a row"] = 0
        return evaluations.smooth(x)

    crew = Scripted(function, slots, rng.randrange, lambda: rng.randint(0, 4))
    policy, seen = MAKE[name](), []
    found = drive(
        policy, lambda: crew, horizon, in_flight=in_flight, on_error="drop", progress=lambda *done: seen.append(done)
    )
    assert policy.pending == []
    assert [crew.closed, len(found), policy.t] == [1, horizon, horizon]
    np.testing.assert_array_equal(found.y, policy.observations.y)
    assert true_results(found)
    assert len(told(policy)) + failed["all"] == len(crew.handed) == len(set(crew.handed))  # none too many, none twice
    assert seen[-1] == (horizon, horizon)
    if in_flight is not None or name != "phased":
        assert crew.most <= (in_flight or slots)


def test_a_whole_episode_is_in_flight_and_the_next_waits_for_it():
    episodes = []

    class Watched(Scripted):
        def collect(self, *, wait):
            if wait:
                episodes.append(len(self.running))
            return super().collect(wait=wait)

    policy = MAKE["phased"]()
    crew = Watched(slots=4, order=lambda n: n - 1)  # the last comes first
    found = drive(policy, lambda: crew, 60)
    assert episodes == [m for size in (1, 2, 4, 8, 16, 29) for m in range(size, 0, -1)]
    assert found.recommendation.index is not None
    alone = MAKE["phased"]()
    ms.optimize(alone, evaluations.smooth, 60)
    assert [e.points.tolist() for e in alone.history] == [e.points.tolist() for e in policy.history]
    with pytest.raises(ms.InvalidInput, match="made for 60"):
        drive(policy, lambda: crew, 1)
    assert crew.closed == 1  # nobody was called for


def test_slots_that_come_and_go_are_used():
    crew = Scripted(slots=2)

    def progress(done, _):
        crew.width = 6 if done < 20 else 1

    drive(MAKE["gp"](), lambda: crew, 40, progress=progress)
    assert crew.most == 6
    crew = Scripted(slots=0)  # a cluster that has no workers yet: without a task it would never have any
    assert len(drive(MAKE["gp"](), lambda: crew, 3)) == 3


def test_an_answer_that_comes_twice_is_told_once():
    class Stammering(Scripted):
        def collect(self, *, wait):
            found = super().collect(wait=wait)
            return [*found, *found, *[(id_, -9.0) for id_, _ in found]]

    policy = MAKE["gp"]()
    assert true_results(drive(policy, lambda: Stammering(), 20))
    assert len(told(policy)) == 20


def test_what_comes_back_with_a_failure_is_told_before_it_is_raised():
    class Together(Scripted):
        def collect(self, *, wait):
            if not wait:
                return []
            (one, _), *others = list(self.running.items())[:3]
            return [(one, RuntimeError("broken machine")), *((id_, 0.5) for id_, _ in others)]

    policy = MAKE["gp"]()
    with pytest.raises(RuntimeError, match="broken machine"):
        drive(policy, lambda: Together(), 10)
    assert told(policy) == [1, 2]
    assert [query.id for query in policy.pending] == [3]  # cut short; the one that failed is forgotten


def test_a_stop_while_results_are_told_loses_none_that_came_back():
    """Also those that come back while the run stops."""

    class Burst(Scripted):
        def collect(self, *, wait):
            self.stopping = not wait
            ids = list(self.running) if self.stopping else list(self.running)[:2]
            return [(id_, evaluations.smooth(self.running.pop(id_))) for id_ in ids]

    policy = MAKE["gp"]()
    tell, calls = policy.tell, []

    def interrupted(query, y):
        calls.append(query.id)
        if len(calls) == 4:
            raise KeyboardInterrupt
        tell(query, y)

    policy.tell = interrupted
    with pytest.raises(KeyboardInterrupt):
        drive(policy, lambda: Burst(), 20)
    assert sorted(told(policy)) == list(range(6))
    assert policy.pending == []


def test_a_stop_drops_what_has_failed_meanwhile():
    """Whether it came back before the stop or with it; what was merely stopped stays pending."""

    class Late(Scripted):
        def collect(self, *, wait):
            a, b, c, d = self.running
            if not wait:
                raise OSError("scheduler gone")
            return [(a, 0.5), (b, RuntimeError("broken machine")), (c, KeyboardInterrupt()), (d, "high")]

    policy = MAKE["gp"]()
    tell, calls = policy.tell, []

    def interrupted(query, y):
        calls.append(query.id)
        if len(calls) == 1:
            raise KeyboardInterrupt
        tell(query, y)

    policy.tell = interrupted
    with pytest.raises(KeyboardInterrupt):
        drive(policy, lambda: Late(), 20)
    assert told(policy) == [0]
    assert [query.id for query in policy.pending] == [2]

    class Later(Scripted):
        def collect(self, *, wait):
            if wait:
                raise KeyboardInterrupt
            return [(id_, RuntimeError("broken machine") if id_ % 2 else 0.5) for id_ in self.running][:3]

    policy = MAKE["gp"]()
    with pytest.raises(KeyboardInterrupt):
        drive(policy, lambda: Later(), 20)
    assert sorted(told(policy)) == [0, 2]
    assert [query.id for query in policy.pending] == [3]


@pytest.mark.parametrize("second", [OSError("scheduler gone"), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["collect", "save", "close"])
def test_a_second_failure_at_the_end_hides_no_error_and_loses_nothing(tmp_path, monkeypatch, caplog, where, second):
    class Failing(Scripted):
        def collect(self, *, wait):
            if where == "collect" and not wait:
                raise second
            return super().collect(wait=wait)

        def close(self):
            super().close()
            if where == "close":
                raise second

    def function(x):
        if len(crew.handed) == 7:
            raise ValueError("the user's error")
        return evaluations.smooth(x)

    policy, file, crew = MAKE["gp"](), tmp_path / "policy", Failing(function, slots=1)
    if where == "save":
        save = policy.save
        monkeypatch.setattr(policy, "save", lambda path: fail() if crew.most and len(crew.handed) == 7 else save(path))

    def fail():
        raise second

    with pytest.raises(ValueError, match="the user's error") as caught:
        drive(policy, lambda: crew, 20, save=file)
    assert crew.closed == 1
    assert policy.t == 6
    assert where == "save" or ms.load(file).t == 6
    noted = "".join(getattr(caught.value, "__notes__", []))
    assert (type(second).__name__ in noted) == (type(second).__name__ in caplog.text)
    assert type(second).__name__ in noted or (where == "collect" and isinstance(second, Exception))


def test_a_run_that_is_through_is_not_spoilt_by_its_workers(tmp_path, caplog):
    class Failing(Scripted):
        def close(self):
            raise second

    second = OSError("scheduler gone")
    assert len(drive(MAKE["gp"](), lambda: Failing(), 5, save=tmp_path / "policy")) == 5
    assert "scheduler gone" in caplog.text
    second = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        drive(MAKE["gp"](), lambda: Failing(), 6, save=tmp_path / "policy")
    assert ms.load(tmp_path / "policy").t == 6


def test_blas_is_limited_while_the_policy_works_and_not_in_the_function():
    def threads(*_):
        return max(library.get_num_threads() for library in LIMIT._blas())

    seen, policy = [], MAKE["gp"]()
    choose = policy.choose
    policy.choose = lambda actions: seen.append(threads()) or choose(actions)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        assert drive(policy, lambda: Scripted(lambda x: float(threads())), 3).y.tolist() == [2.0, 2.0, 2.0]
    assert set(seen) == {1}


# -- stops and going on ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKE)
def test_a_policy_saved_in_the_middle_goes_on_with_what_pends(tmp_path, name):
    policy = MAKE[name]()

    def progress(done, _):
        if done == 20:
            policy.save(tmp_path / "middle")
        elif done > 20:
            raise KeyboardInterrupt  # the rest of this run is lost

    with pytest.raises(KeyboardInterrupt):
        drive(policy, lambda: Scripted(slots=5, order=lambda n: n // 2), 50, progress=progress)
    assert policy.pending  # cut short, not failed
    loaded = ms.load(tmp_path / "middle")
    waiting = [query.id for query in loaded.pending]
    assert len(waiting) >= 4
    assert loaded.t == 20
    crew = Scripted(slots=5)
    found = drive(loaded, lambda: crew, 50 - loaded.t)
    assert crew.handed[: len(waiting)] == waiting
    assert len(found) == 30
    assert true_results(found)
    assert len(told(loaded)) == 50
    assert loaded.pending == []


def test_of_more_pending_queries_than_the_horizon_the_rest_stays():
    policy = MAKE["phased"]()
    policy.tell(policy.ask(), 0.5)
    policy.tell(policy.ask(2), [0.5, 0.6])
    batch = policy.ask(4)
    found = drive(policy, lambda: Scripted(), 3)
    assert [len(found), policy.t] == [3, 6]
    assert [query.id for query in policy.pending] == [batch[3].id]
    assert len(drive(policy, lambda: Scripted(), 54)) == 54  # its horizon is 60


def test_queries_with_a_context_are_not_for_this_loop():
    policy = ms.GPUCB(ms.Joint(ms.Box([(0, 1)]), ms.Box([(0, 1)])), MODEL)
    policy.ask(context=[0.5])
    with pytest.raises(ms.InvalidInput, match="context are pending"):
        drive(policy, lambda: Scripted(), 3)


def test_one_after_another_with_a_file_can_be_continued(tmp_path):
    file, calls = tmp_path / "policy", []

    def function(x):
        calls.append(float(x[0]))
        if len(calls) == 7:
            raise KeyboardInterrupt
        return evaluations.smooth(x)

    policy = MAKE["gp"]()
    with pytest.raises(KeyboardInterrupt):
        ms.optimize(policy, function, 20, batch=4, save=file)
    loaded = ms.load(file)
    assert loaded.t == 6
    assert [query.id for query in loaded.pending] == [6, 7]
    ms.optimize(loaded, function, 14, save=file)
    assert calls[7] == calls[6]  # the one that was cut short
    assert ms.load(file).t == 20


def test_saving_takes_a_small_share_of_the_time(tmp_path, monkeypatch):
    clock = [100.0]
    module = sys.modules["misspec.evaluation.loop"]
    monkeypatch.setattr(module, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    policy, saved = MAKE["gp"](), []

    def save(path):
        assert path == tmp_path / "policy"
        saved.append(policy.t)
        clock[0] += 1.0  # a second

    policy.save = save

    def function(x):
        clock[0] += 0.5
        return evaluations.smooth(x)

    drive(policy, lambda: Scripted(function, slots=1), 90, save=tmp_path / "policy")
    assert saved == [1, 41, 81, 90]  # twenty seconds between two, and at the end


KILLED = """
import os, signal, sys, threading
import evaluations, misspec as ms
from sklearn.gaussian_process.kernels import RBF

simulate = sys.modules["misspec.evaluation.loop"]
simulate.SAVED, simulate.SAVING = 0.0, 1e9  # after every result
calls = threading.Semaphore(14)

def function(x):
    if not calls.acquire(blocking=False):
        os.kill(os.getpid(), signal.SIGKILL)
    return evaluations.smooth(x)

model = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
policy = ms.PhasedUncertaintySampling(ms.Box([(0, 1)]).grid(40), model, horizon=60)
ms.optimize(policy, function, 40, workers=3, save=sys.argv[1])
"""


def test_a_run_that_was_killed_goes_on_from_its_file(tmp_path):
    file = tmp_path / "policy"
    done = run(["-c", KILLED, str(file)])
    assert done.returncode == -signal.SIGKILL, done.stderr
    policy = ms.load(file)
    assert 7 <= policy.t <= 14  # the first three episodes were told before the one in which it was killed
    ms.optimize(policy, evaluations.smooth, 40 - policy.t, workers=3, save=file)
    again = ms.load(file)
    assert len(told(again)) == 40
    assert len(ms.optimize(again, evaluations.smooth, 20, workers=2)) == 20


def environment():
    here = str(pathlib.Path(evaluations.__file__).parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))}


def run(arguments):
    line = [sys.executable, *arguments]
    return subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=60, check=False)


# -- threads -----------------------------------------------------------------------------------------------------------


def test_threads_evaluate_n_at_once_and_the_policy_stays_in_one():
    together = threading.Barrier(3, timeout=PATIENCE)
    busy, most, lock, callers = [0], [0], threading.Lock(), set()

    def function(x):
        with lock:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
        together.wait()  # until three are here
        with lock:
            busy[0] -= 1
        assert threading.current_thread() is not threading.main_thread()
        return evaluations.smooth(x)

    policy = MAKE["gp"]()
    for method in ("ask", "tell"):
        call = getattr(policy, method)
        setattr(policy, method, lambda *a, call=call, **k: callers.add(threading.get_ident()) or call(*a, **k))
    found = ms.optimize(policy, function, 30, workers=3)
    assert most == [3]
    assert callers == {threading.get_ident()}
    assert true_results(found)
    assert len(told(policy)) == 30
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("misspec-")]


def test_one_slow_evaluation_holds_up_no_other():
    free, first = threading.Event(), threading.Lock()
    slow = []

    def function(x):
        if first.acquire(blocking=False):
            slow.append(float(x[0]))
            assert free.wait(PATIENCE)
        return evaluations.smooth(x)

    found = ms.optimize(
        MAKE["gp"](), function, 25, workers=2, progress=lambda done, of: free.set() if done == of - 1 else None
    )
    assert found.x[-1] == slow  # all others were told before it


@pytest.mark.parametrize("result", [float("nan"), None, "high", np.array([1.0, 2.0])])
def test_results_that_are_not_numbers_are_failures(result):
    policy = MAKE["gp"]()
    with pytest.raises(ms.InvalidInput, match=r"finite number, got .* at x ="):
        ms.optimize(policy, lambda x: result, 3, workers=1)
    assert policy.pending == []
    assert policy.t == 0


def test_failures_are_dropped_and_ten_in_a_row_raise():
    policy, count, lock = MAKE["gp"](), [0], threading.Lock()

    def function(x):
        with lock:
            count[0] += 1
            here = count[0]
        if here % 3 == 0:
            raise RuntimeError("broken machine")
        return float("nan") if here % 7 == 0 else evaluations.smooth(x)

    found = ms.optimize(policy, function, 20, workers=3, on_error="drop")
    assert len(found) == 20
    assert true_results(found)
    calls = []
    with pytest.raises(ZeroDivisionError):
        ms.optimize(policy, lambda x: calls.append(x) or 1 / 0, 5, workers=1, on_error="drop")
    assert len(calls) == FAILURES
    assert policy.t == 20


def test_an_exception_reaches_the_caller_and_the_others_stay_pending():
    policy, wait = MAKE["gp"](), threading.Event()
    everyone = threading.Barrier(3, timeout=PATIENCE)
    bad = []

    def function(x):
        if everyone.wait() == 0:
            bad.append(float(x[0]))
            raise RuntimeError("broken machine")
        assert wait.wait(PATIENCE)
        return evaluations.smooth(x)

    with pytest.raises(RuntimeError, match="broken machine") as caught:
        ms.optimize(policy, function, 10, workers=3)
    assert f"at x = [{bad[0]:.8g}" in caught.value.__notes__[0]
    cut = policy.pending
    assert len(cut) == 2
    assert policy.t == 0
    wait.set()
    ms.optimize(policy, evaluations.smooth, 10, workers=3)
    assert set(told(policy)) >= {query.id for query in cut}
    assert policy.t == 10


def test_ctrl_c_stops_while_evaluations_run():
    """A real signal, while the thread that asks waits for results."""
    free = threading.Event()
    count, lock = [0], threading.Lock()

    def function(x):
        with lock:
            count[0] += 1
            here = count[0]
        if here == 5:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        if here >= 5:
            free.wait(PATIENCE)
        return evaluations.smooth(x)

    policy = MAKE["gp"]()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ms.optimize(policy, function, 50, workers=2)
    assert time.monotonic() - start < PATIENCE / 2  # it did not wait for them
    assert policy.t <= 4
    assert len(policy.pending) in (1, 2)
    left = policy.pending
    free.set()
    ms.optimize(policy, evaluations.smooth, 10, workers=2)
    assert {query.id for query in left} <= set(told(policy))


def test_a_function_that_exits_stops_the_run():
    policy = MAKE["gp"]()
    with pytest.raises(SystemExit):
        ms.optimize(policy, evaluations.leaves, 5, workers=2, on_error="drop")
    assert policy.t == 0
    assert policy.pending


@pytest.mark.parametrize("workers", [None, 2])
def test_auto_hands_parameters_and_rows_to_the_function(workers):
    space = ms.Space({"lr": ms.Float(1e-5, 1e-1, log=True), "depth": ms.Int(1, 12), "kind": ms.Choice(["a", "b"])})
    seen = []

    def function(given):
        seen.append(given)
        return given["depth"] + (given["kind"] == "a")

    found = ms.optimize(ms.Auto(space), function, 8, workers=workers)
    assert all(type(each) is dict and set(each) == {"lr", "depth", "kind"} for each in seen)
    assert found.recommendation.params is not None
    assert found.index is None
    table = ms.Finite.from_table({"solvent": ["water", "ethanol", "toluene"] * 2, "heat": [1, 2, 3, 4, 5, 6]})
    found = ms.optimize(ms.Auto(table), lambda row: row["heat"] + len(row["solvent"]), 6, workers=workers)
    assert found.recommendation.row["heat"] >= 5
    np.testing.assert_array_equal(found.x, table.points[found.index])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"workers": 0}, "workers must be"),
        ({"workers": 2, "batch": 4}, "leave batch at 1"),
        ({"processes": True}, "needs workers=n"),
        ({"workers": 2, "on_error": "ignore"}, "raise, drop"),
        ({"workers": 2, "processes": True, "function": lambda x: 1.0}, "top of a module"),
        ({"workers": 2, "function": 3}, "a policy and a function"),
        ({"workers": 2, "policy": DOMAIN}, "a policy and a function"),
        ({"workers": 2, "n": -1}, "n must be"),
        ({"workers": 2, "save": "/nowhere/at/all", "n": 3}, "cannot write"),
    ],
)
def test_errors_say_what_to_do(options, says):
    given = {"policy": MAKE["gp"](), "function": evaluations.smooth, "n": 5, **options}
    with pytest.raises(ms.MisspecError, match=says):
        ms.optimize(given.pop("policy"), given.pop("function"), given.pop("n"), **given)


# -- processes ---------------------------------------------------------------------------------------------------------


def test_processes_that_are_killed_lose_nothing(tmp_path):
    """kill -9 in the middle of an evaluation, once at each of the upper points."""
    policy = MAKE["phased"]()
    found = ms.optimize(policy, evaluations.Deadly(tmp_path, above=0.9, times=1), 15, workers=2, processes=True)
    assert len(list(tmp_path.iterdir())) >= 1, "no process was killed"
    assert true_results(found)
    assert len(told(policy)) == 15


def test_an_evaluation_that_always_kills_its_process_fails(tmp_path):
    domain = ms.Finite([[0.2], [0.95]])
    policy = ms.UniformSampling(domain, MODEL, seed=1)
    function = evaluations.Deadly(tmp_path, above=0.9, times=99)
    with pytest.raises(ms.MisspecError, match=r"x = \[0.95\] ended its worker 3 times .*exit code -9"):
        ms.optimize(policy, function, 8, workers=1, processes=True)
    assert len(list(tmp_path.iterdir())) == workers.TRIES
    assert {x for (x,) in policy.observations.x.tolist()} <= {0.2}


def test_a_dead_process_is_noticed_though_a_child_of_it_keeps_its_pipe_open(tmp_path):
    crew = workers.Processes(evaluations.Forking(tmp_path), 1)
    try:
        crew.submit([(0, [0.3])])
        assert crew.collect(wait=True) == [(0, 1.0)]
    finally:
        crew.close()
        (child,) = [int(each.name) for each in tmp_path.iterdir()]
        os.kill(child, signal.SIGKILL)


def test_results_of_others_do_not_hide_a_dead_process(tmp_path):
    """Whose pipe a child of it keeps open: they come without a pause."""
    crew = workers.Processes(evaluations.Forking(tmp_path, above=0.5), 2)
    try:
        crew.submit([(0, [0.8]), (1, [0.3])])
        count, found, end = 1, [], time.monotonic() + PATIENCE / 3
        while 0 not in found and time.monotonic() < end:
            found = [id_ for id_, _ in crew.collect(wait=True)]
            count += 1
            crew.submit([(count, [0.3])])
        assert 0 in found
    finally:
        crew.close()
        for each in tmp_path.iterdir():
            os.kill(int(each.name), signal.SIGKILL)


def test_a_result_that_was_sent_just_before_the_end_is_used(monkeypatch):
    crew = workers.Processes(evaluations.smooth, 1)
    try:
        crew.submit([(0, [0.3])])
        (process,) = crew._busy.values()
        assert process.connection.poll(PATIENCE)
        assert process.connection.recv()[0] == "ready"
        process.ready = True
        assert process.connection.poll(PATIENCE)  # the result
        os.kill(process.process.pid, signal.SIGKILL)
        process.process.join()
        module, first = workers.multiprocessing.connection, [[]]
        wait = module.wait  # the result comes just after this
        monkeypatch.setattr(module, "wait", lambda *args, **how: first.pop() if first else wait(*args, **how))
        assert crew.collect(wait=False) == [(0, 1.0)]
        assert not first
        crew.submit([(1, [0.3])])
        assert crew.collect(wait=True) == [(1, 1.0)]
        assert not crew._deaths  # nothing is held against the second
    finally:
        crew.close()


def test_processes_hand_back_what_went_wrong_and_live_on():
    crew = workers.Processes(evaluations.untold, 1)
    try:
        crew.submit([(0, 0.5)])
        ((id_, error),) = crew.collect(wait=True)
        assert id_ == 0
        assert type(error) is ms.MisspecError
        assert "broken and lost" in str(error)
        (process,) = crew._idle
        os.kill(process.process.pid, signal.SIGKILL)  # while it has nothing to do
        process.process.join()
        crew.submit([(1, 0.5)])
        ((id_, error),) = crew.collect(wait=True)
        assert id_ == 1
        assert "broken and lost" in str(error)
        assert crew.collect(wait=False) == []
    finally:
        crew.close()


def test_exceptions_of_processes_are_those_of_the_function():
    policy = MAKE["gp"]()
    with pytest.raises(ZeroDivisionError, match="broken machine") as caught:
        ms.optimize(policy, evaluations.broken, 3, workers=1, processes=True)
    assert "evaluations.py" in "".join(caught.value.__notes__)  # where it happened
    with pytest.raises(ms.InvalidInput, match="finite number, got None"):
        ms.optimize(policy, evaluations.nothing, 3, workers=1, processes=True)
    assert policy.pending == []


def test_a_function_that_processes_cannot_find_is_refused():
    module = types.ModuleType("only_here")
    exec("def function(x): return 1.0", module.__dict__)
    sys.modules["only_here"] = module
    try:
        policy = MAKE["gp"]()
        with pytest.raises(ms.InvalidInput, match="cannot read the function"):
            ms.optimize(policy, module.function, 3, workers=1, processes=True)
        assert len(policy.pending) == 1
    finally:
        del sys.modules["only_here"]


def test_a_script_without_a_guard_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import evaluations, misspec as ms\n"
        "ms.optimize(ms.Auto(ms.Box([(0, 1)])), evaluations.smooth, 3, workers=1, processes=True)\n"
    )
    done = run([str(script)])
    assert done.returncode == 1
    assert "script without `if __name__" in done.stderr.splitlines()[-1]


ABANDONED = """
import sys
import evaluations, misspec as ms
from sklearn.gaussian_process.kernels import RBF

if __name__ == "__main__":
    policy = ms.GPUCB(ms.Box([(0, 1)]).grid(9), ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1))
    ms.optimize(policy, evaluations.Lasting(sys.argv[1]), 3, workers=2, processes=True)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_processes_end_with_whoever_started_them(tmp_path, how):
    script, marks = tmp_path / "script.py", tmp_path / "marks"
    script.write_text(ABANDONED)
    marks.mkdir()
    with subprocess.Popen(
        [sys.executable, str(script), str(marks)], env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            pids = until(lambda: (found := [int(each.name) for each in marks.iterdir()]) and len(found) == 2 and found)
            process.send_signal(how)
            _, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()  # or leaving this block waits for it for ever, where it has not ended
    assert process.returncode == -how
    assert how == signal.SIGKILL or err.splitlines()[-1] == "KeyboardInterrupt"
    until(lambda: not any(alive(pid) for pid in pids))


def alive(pid):
    """Whether a process runs; one that ended and that nobody has asked about does not."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def until(condition):
    end = time.monotonic() + PATIENCE
    while not (result := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return result
