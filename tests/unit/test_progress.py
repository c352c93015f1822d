"""Progress of long work: shown on terminals and in notebooks, and nowhere else; it never changes the work."""

import multiprocessing
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
import types

import joblib
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec import progress
from misspec.experiments import compare

MODEL = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1)
HIDDEN, BACK = "\x1b[?25l", "\x1b[?25h"  # the cursor
SCRIPT = """
import sys, time
import misspec as ms
from misspec import progress
progress.AFTER = {after}
policy = ms.UniformSampling(ms.Finite([[0.0], [1.0]]), ms.Model({kernel}, norm_bound=1.0, noise=0.1))
done = 0
def function(x):
    global done
    done += 1
    time.sleep(0.05)
    if done == {last}:
        {end}
    return 1.0
try:
    ms.optimize(policy, function, 12, progress={progress})
finally:
    print("results:", policy.t)
"""


def on_a_terminal(after=0.2, last=0, end="pass", progress=None, **files):
    """stderr of the script on a terminal, its stdout through a pipe, and how it ended."""
    kernel = "__import__('sklearn.gaussian_process.kernels', fromlist=['RBF']).RBF(0.3)"
    script = SCRIPT.format(after=after, last=last, end=end, progress=progress, kernel=kernel)
    screen, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "PYTHON_COLORS": "0"}  # 3.13 colours tracebacks
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_INTERACTIVE", "TTY_COMPATIBLE"):
        environment.pop(name, None)
    files = {"stderr": theirs, "stdout": subprocess.PIPE} | files
    child = subprocess.Popen([sys.executable, "-c", script], env=environment, text=True, **files)
    os.close(theirs)
    seen = []

    def read():
        try:
            while part := os.read(screen, 4096):
                seen.append(part)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    out, err = child.communicate(timeout=120)
    reader.join(timeout=10)
    os.close(screen)
    return b"".join(seen).decode() + (err or ""), out, child.returncode


def test_a_terminal_gets_a_bar_that_goes_and_nothing_of_it_is_printed():
    seen, out, code = on_a_terminal()
    assert re.search(r"evaluations .* of 12, 0:00 left", seen)
    assert seen.count(HIDDEN) == seen.count(BACK) == 1
    assert seen.endswith("\x1b[1A\x1b[2K")  # up to its line, which is erased
    assert out == "results: 12\n"
    assert code == 0


@pytest.mark.parametrize(
    "case", [{"after": 60}, {"progress": False}, {"stderr": subprocess.PIPE}], ids=["short", "off", "pipe"]
)
def test_short_work_and_what_is_no_terminal_get_none(case):
    assert on_a_terminal(**case) == ("", "results: 12\n", 0)


def test_on_request_a_bar_stays_and_a_pipe_gets_its_last_state():
    seen, _, _ = on_a_terminal(progress=True, after=60)
    assert re.search(r"12 of 12, took 0:0\d", seen)
    seen, out, _ = on_a_terminal(progress=True, after=60, stderr=subprocess.PIPE)
    assert seen.count("12 of 12, took") == 1
    assert "\x1b" not in seen
    assert out == "results: 12\n"


@pytest.mark.parametrize(
    ("end", "said"),
    [("raise OSError('no more')", "OSError: no more"), ("raise KeyboardInterrupt", "KeyboardInterrupt")],
)
def test_errors_and_interrupts_take_the_bar_away(end, said):
    seen, out, code = on_a_terminal(last=9, end=end)
    assert out == "results: 8\n"
    assert code != 0
    shown, after = seen.split(BACK)
    assert "of 12" in shown
    assert said in after
    assert "of 12" not in after


def test_an_interrupt_from_outside_takes_the_bar_away():
    send = f"__import__('os').kill(__import__('os').getpid(), {int(signal.SIGINT)})"
    seen, _, code = on_a_terminal(last=9, end=send)
    assert code in (1, 130, -signal.SIGINT)
    assert seen.count(HIDDEN) == seen.count(BACK) == 1


class Canvas:
    """Records what is drawn."""

    drawn: list = []  # noqa: RUF012  # emptied by the fixture
    closed: list = []  # noqa: RUF012

    def __init__(self, what, **_):
        self.what = what

    def draw(self, done, of, what, _):
        self.drawn.append((what, done, of))

    def close(self, **_):
        self.closed.append(self.what)


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """A terminal that records, and a clock that stands."""
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(progress, "on_terminal", lambda: True)
    monkeypatch.setattr(progress, "_Terminal", Canvas)
    Canvas.drawn, Canvas.closed = [], []
    return clock


def test_it_appears_after_a_second_and_is_drawn_ten_times_a_second(clock):
    with progress.reported(None, "rounds") as report:
        for clock.now in (0.5, 0.99, 1.01, 1.05, 1.09, 1.12, 3.0):
            report(round(100 * clock.now), 300)
    assert Canvas.drawn == [("rounds", 101, 300), ("rounds", 112, 300), ("rounds", 300, 300)]
    assert Canvas.closed == ["rounds"]


def test_of_nested_work_one_bar_is_shown(clock):
    with progress.reported(True, "outer") as outer:
        outer(1, 3)
        with progress.reported(True, "inner") as inner:
            inner(1, 2)
        clock.now += 1
        outer(2, 3)
    with progress.reported(True, "next") as report:  # the first one has let go
        report(1, 1)
    assert {what for what, *_ in Canvas.drawn} == {"outer", "next"}


@pytest.mark.usefixtures("clock")
def test_threads_show_one_bar_and_all_do_their_work():
    together = threading.Barrier(3)

    def work(x):
        together.wait(timeout=30)
        return float(x[0])

    def run(found, i):
        policy = ms.UniformSampling(ms.Box([(0, 1)]), MODEL, seed=i)
        found[i] = len(ms.optimize(policy, work, 6, progress=True))

    found = {}
    threads = [threading.Thread(target=run, args=(found, i)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: 6, 1: 6, 2: 6}
    assert Canvas.closed
    assert not progress._SHOWN.locked()


@pytest.mark.usefixtures("clock")
def test_a_screen_that_fails_does_not_end_the_work(monkeypatch):
    def broken(*_):
        raise OSError("the terminal has gone")

    monkeypatch.setattr(Canvas, "draw", broken)
    assert len(ms.optimize(ms.UniformSampling(ms.Box([(0, 1)]), MODEL), lambda x: 1.0, 5, progress=True)) == 5
    assert Canvas.closed == ["evaluations"]  # so that the cursor is seen again
    assert not progress._SHOWN.locked()


@pytest.mark.usefixtures("clock")
def test_simulations_and_comparisons_show_theirs_and_their_parts_none():
    problem = ms.problems.misspecified(ms.Finite(np.linspace(0, 1, 5)[:, None]), MODEL, epsilon=0.1)
    ms.simulate(ms.UniformSampling(problem.domain, MODEL), problem, 7, progress=True)
    assert Canvas.drawn[-1] == ("rounds", 7, 7)
    Canvas.drawn.clear()
    compare({"uniform": lambda p: ms.UniformSampling(p.domain, p.model)}, problem, 7, 3, progress=True, cores=1)
    assert {what for what, *_ in Canvas.drawn} == {"runs"}
    assert Canvas.drawn[-1] == ("runs", 3, 3)


@pytest.mark.usefixtures("clock")
def test_a_function_is_called_and_no_bar_is_made():
    told = []
    ms.optimize(ms.UniformSampling(ms.Box([(0, 1)]), MODEL), lambda x: 1.0, 3, progress=lambda *now: told.append(now))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert Canvas.drawn == []


@pytest.mark.parametrize("given", [3, "yes", 0, [True]])
def test_other_values_are_refused_before_the_first_evaluation(given):
    policy = ms.UniformSampling(ms.Box([(0, 1)]), MODEL)
    with pytest.raises(ms.InvalidInput, match="progress must be a function, True, False or None"):
        ms.optimize(policy, lambda x: 1.0, 3, progress=given)
    assert policy.asked == 0


def test_workers_show_none(monkeypatch):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(progress.main_process) is False
    assert joblib.Parallel(2)(joblib.delayed(progress.main_process)() for _ in range(2)) == [False, False]
    assert progress.main_process()
    monkeypatch.setattr(progress, "on_terminal", lambda: True)
    monkeypatch.setattr(progress, "main_process", lambda: False)
    with progress.reported(True, "rounds") as report:
        assert report is None


def test_a_missing_or_closed_stderr_is_no_terminal(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stderr", None)
    assert not progress.on_terminal()
    with (tmp_path / "log").open("w") as file:
        monkeypatch.setattr(sys, "stderr", file)
    assert not progress.on_terminal()


def test_a_notebook_gets_an_output_that_is_updated_and_emptied(monkeypatch):
    shown = []
    handle = types.SimpleNamespace(update=shown.append)
    display = types.ModuleType("IPython.display")
    display.HTML, display.display = str, lambda content, display_id: shown.append(content) or handle
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(progress, "AFTER", 0.0)
    policy = ms.UniformSampling(ms.Box([(0, 1)]), MODEL)
    ms.optimize(policy, lambda x: time.sleep(0.11) or 1.0, 2)
    assert re.fullmatch(r'<div>evaluations <progress value="1" max="2"></progress> 1 of 2, .* left</div>', shown[1])
    assert shown[0] == shown[-1] == ""
    ipython.get_ipython = lambda: types.SimpleNamespace()  # IPython on a terminal
    assert not progress.in_notebook()
    ipython.get_ipython = lambda: None  # imported by something else
    assert not progress.in_notebook()


def test_times_are_short():
    assert [progress.clock(seconds) for seconds in (0.4, 75, 3675)] == ["0:00", "1:15", "1:01:15"]
