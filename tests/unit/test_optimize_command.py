"""`misspec optimize`: words, results, processes, and a study that several processes fill, some of which are killed."""

import contextlib
import functools
import io
import json
import math
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from types import SimpleNamespace

import hypothesis.strategies as st
import optuna
import pytest
from hypothesis import example, given, settings
from optuna.trial import TrialState
from typer.testing import CliRunner

import misspec as ms
from cover import covering
from misspec import cli
from misspec.cli import progress
from misspec.integrations import command, space_file
from misspec.integrations.command import processes, runs, shared_study, storages
from misspec.integrations.command import words as words_of
from misspec.integrations.command.shared_study import BEAT, OWNER, PROCESS, RETRY, Shared
from misspec.integrations.optuna.shapes import distributions_of
from misspec.integrations.optuna.trials import AGAIN, History

EXAMPLES = Path(__file__).parents[2] / "examples"
PYTHON = sys.executable
NASTY = [
    "; rm -rf x",
    "$(id)",
    "`id`",
    "a  b",
    "",
    "-n",
    "'",
    '"',
    "\\",
    "{x}",
    "*",
    "$HOME",
    "two\nlines",
    "ü−😀",
    "a;b&c|d>e",
]
SPACE = ms.Space({"x": ms.Float(0.0, 1.0), "k": ms.Int(1, 9)})
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["optuna", "sqlalchemy.orm", "alembic.command", "sklearn.gaussian_process", "scipy.stats"])

# writes a line when it starts and one when it ends, so that evaluations can be counted; in between, it pauses, or waits
# until the file "go" says a larger number than that of its trial
SCRIPT = """
import json, os, sys, time
trial, x, k, pause = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
def note(what):
    with open("log", "a") as file:
        file.write(json.dumps([what, trial, os.getppid(), os.getpid()]) + "\\n")
note("start")
if pause == "go":
    while not (os.path.exists("go") and int(open("go").read() or 0) > trial): time.sleep(0.01)
else:
    time.sleep(float(pause))
note("end")
print("result:", x + k)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("space.toml").write_text("x = { low = 0.0, high = 1.0 }\nk = { low = 1, high = 9 }\n")
    Path("script.py").write_text(SCRIPT)
    return tmp_path


def words(pause=0.0):
    return [PYTHON, "-I", "-S", "script.py", "{trial}", "{x}", "{k}", str(pause)]


def shared(url="sqlite:///misspec.db", n=10, space=SPACE, name="s", minimize=False, **more):
    sampler = optuna.samplers.RandomSampler(seed=0)
    return Shared(url, name, space, minimize=minimize, n=n, sampler=sampler, **more)


def trials_of(url="sqlite:///misspec.db", name="s"):
    return optuna.load_study(study_name=name, storage=storages.open_storage(url)).get_trials(deepcopy=False)


def lines():
    return [json.loads(line) for line in Path("log").read_text().splitlines()] if Path("log").exists() else []


def log():
    return [tuple(line[:2]) for line in lines()]


def until(condition, seconds=120.0):
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.01)
    return found


def gone(pid):
    """Whether a process has ended; one that is only listed has."""
    return processes.started(pid) is None


# -- words -------------------------------------------------------------------------------------------------------------


def test_values_stand_where_their_names_stood():
    space = ms.Space(
        {"lr": ms.Float(0, 1), "max depth": ms.Int(1, 9), "on": ms.Choice([True, None]), "t": ms.Choice(["{lr}"])}
    )
    given = [
        PYTHON,
        "--lr={lr}",
        '{"rate": {lr}, "d": {max depth}}',
        "{{lr}}",
        "{other} {} {0}",
        "{on}{t}",
        "{trial}",
        "{params}",
    ]
    params = {"lr": 0.1 + 0.2, "max depth": 7, "on": None, "t": "{lr}"}
    made = command.Command(given, space).filled(params, 12)
    assert made[1:4] == ["--lr=0.30000000000000004", '{"rate": 0.30000000000000004, "d": 7}', "{lr}"]
    assert made[4:7] == ["{other} {} {0}", "None{lr}", "12"]
    assert json.loads(made[7]) == params


def test_a_parameter_may_be_called_trial_or_params():
    space = ms.Space({"trial": ms.Int(1, 9), "params": ms.Int(1, 9)})
    assert command.Command([PYTHON, "{trial}", "{params}"], space).filled({"trial": 3, "params": 4}, 12)[1:] == [
        "3",
        "4",
    ]


@pytest.mark.parametrize(
    ("given", "shell", "said"),
    [
        ([], False, "no command"),
        ([PYTHON, "{x}"], False, "never uses the parameter 'k'; write {k}"),
        ([PYTHON, "{x}", "{{k}}"], False, "never uses the parameter 'k'"),
        (["no-such-program", "{params}"], False, "no command 'no-such-program'"),
        (["echo {x} {k}"], False, "no command 'echo {x} {k}'|--shell"),
        (['echo "{x}" {k}'], True, "{x} is inside of quotes"),
        (["echo '{x}' {k}"], True, "{x} is inside of quotes"),
        (["echo {x} \"'\" '{k}'"], True, "{k} is inside of quotes"),
        (["echo {x} \\{k}"], True, "{k} is inside of quotes"),
        (["cat <<E\n{x}{k}\nE"], True, "values cannot go into '<<', which the shell reads once more"),
        (["echo {x} # {k}"], True, "{k} is in a comment (#)"),
        (["#{x}\necho {k}"], True, "{x} is in a comment (#)"),
        (["echo {x} # it's\necho '{k}'"], True, "{k} is inside of quotes"),
        (['echo {x} "$(echo "{k}")"'], True, "{k} is inside of quotes"),
        (["echo {x} `echo {k}`"], True, "{k} is inside of quotes"),
        (["echo {x} $(( {k} + 1 ))"], True, "values cannot go into '(( ))', which the shell reads once more; hand"),
        (["echo {x}; [[ {k} -eq 1 ]]"], True, "values cannot go into '[[ ]]'"),
        (["echo {x} ${PWD:{k}}"], True, "values cannot go into '${ }'"),
        (["true; eval echo {x} {k}"], True, "values cannot go into 'eval'"),
        (["! eval echo {x} {k}"], True, "which the shell reads once more"),
        (["A=1 \\eval echo {x} {k}"], True, "which the shell reads once more"),
    ],
)
def test_commands_that_cannot_work_are_refused(given, shell, said):
    if given == ["echo {x} {k}"]:
        given = ["echo 1", "{x}", "{k}"]
        said = "needs --shell"
    with pytest.raises(ms.InvalidInput, match=re.escape(said)):
        command.Command(given, SPACE, shell=shell)


def in_shell(line, value):
    """What a line with {a} prints, run by /bin/sh."""
    made = command.Command([line], ms.Space({"a": ms.Choice([value])}), shell=True).filled({"a": value}, 0)
    return subprocess.run(made, capture_output=True, stdin=subprocess.DEVNULL).stdout.decode()


@pytest.mark.parametrize(
    "line",
    [
        "echo '# {{a}}' a#{a} $# # it's {{a}}",
        "f() { echo $# {a}; }; f 1 2",
        'set -- 1 2; echo "$(printf %s {a})" $1',
        'x={a}; echo "$x ${HOME}"/{a}',
        "#!/bin/sh\ntest --eval eval {a} || echo $0 [[:digit:]] {a}",
    ],
)
def test_shell_lines_work_as_they_are_written(line):
    expected = subprocess.run(
        ["/bin/sh", "-c", line.replace("{{a}}", "{_}").replace("{a}", "'p  $q'")], capture_output=True
    )
    assert in_shell(line, "p  $q") == expected.stdout.decode().replace("{_}", "{a}")


PARTS = [
    "'",
    '"',
    "`",
    "\\",
    "#",
    " # ",
    " ",
    "\n",
    ";",
    "$(",
    ")",
    "$((",
    "))",
    "echo ",
    "x=",
    "${x:-",
    "}",
    "it's",
    "$'",
]
PARTS += [
    "<<E\n",
    "\nE\n",
    "|cat",
    "&&",
    "[[ ",
    " -eq 1 ]]",
    "if true; then ",
    "; fi",
    "eval ",
    "case x in x) ",
    ";; esac",
]
PARTS += ["{a}"] * 4 + [
    "{{a}}",
    "$#",
    "a#",
    "f() { ",
    "; }; f",
    "set -- u v;",
    "$[",
    "]",
    "(",
    "\\\n",
    "\r",
    "${#x}",
    "! ",
]
HOSTILE = [
    "a\n{}\n",
    "$({})",
    "`{}`",
    "';{};'",
    '";{};"',
    "a[$({})]",
    "\n{} #",
    "E\n{}\n",
    "\r{}",
    "&{}&",
    "\\\n{}\n",
    "'\n{}\n'",
]


def test_no_line_that_is_taken_runs_a_value():
    """Random lines: each is refused, or its value stays a value."""
    rng, taken = random.Random(1), 0
    for _ in range(400):
        line = "".join(rng.choice(PARTS) for _ in range(rng.randint(1, 9))) + rng.choice(["", " {a}"])
        with contextlib.suppress(ms.InvalidInput):
            in_shell(line, rng.choice(HOSTILE).format("touch ran"))
            taken += 1
        assert not Path("ran").exists(), line
    assert taken > 100


@pytest.mark.parametrize("shell", [False, True])
def test_options_arrive_as_they_are(shell):
    Path("x").write_text("precious")
    Path("show.py").write_text(
        "import sys; open('seen', 'w', encoding='utf-8', newline='').write('\\0'.join(sys.argv[1:]))"
    )
    space = ms.Space({"a": ms.Choice(NASTY), "b": ms.Choice(NASTY)})
    made = command.Command([PYTHON, "-X", "utf8", "show.py", "{a}", "pre{b}post"], space, shell=shell)
    for a, b in zip(NASTY, reversed(NASTY), strict=True):
        ran = processes.run_process(
            made.filled({"a": a, "b": b}, 0), timeout=None, stop=threading.Event(), record=lambda *_: None
        )
        assert (ran.code, ran.out, ran.err) == (0, "", "")
        with open("seen", encoding="utf-8", newline="") as file:  # noqa: PTH123  # line ends as they are
            assert file.read().split("\0") == [a, f"pre{b}post"]
    assert Path("x").read_text() == "precious"


@settings(max_examples=200)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
@example("'\"'\"'")
def test_what_the_shell_reads_is_one_word_whatever_the_value(value):
    assert in_shell("printf '%s|' x{a}x end", value) == f"x{value}x|end|"


# -- results -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("out", "value"),
    [
        ("0.93", 0.93),
        ("epoch 10: loss=0.5, accuracy=0.93\n", 0.93),
        ("1\n2\n-3e-2\nbye\n\n", -0.03),
        ("score: 93.5%.\nsaved to model-2024-01-01.v1.2.3", 93.5),
        ("np.float64(0.25)", 0.25),
        ("accuracy 0.5 in 12.5s, step 10/20", 0.5),
        ("\x1b[32m+.5\x1b[0m", 0.5),
        ("loss \N{MINUS SIGN}1.5", -1.5),
        ("[1, 2, 3]", 3.0),
        ("7.", 7.0),
        ("1,234.5\n0.5", 0.5),
        ("loss=1,accuracy=2, 3,", 3.0),
        ("12s,'0.5','a'", 0.5),
        ("10/20,30/40 5 1/2,3/4", 5.0),
    ],
)
def test_the_last_number_printed(out, value):
    assert words_of.result_of(out, None) == value


@pytest.mark.parametrize(
    ("out", "key", "value"),
    [
        ('{"a": 1}', "a", 1.0),
        ('{"a": 1}\n{"a": 2.5}\n{"event": "done"}\nbye 7', "a", 2.5),
        ('log {"m": {"val": {"loss": -2}}} end', "m.val.loss", -2.0),
        ('{\n  "m": {\n    "a.b": 3\n  }\n}', "m.a.b", 3.0),
        ('{"m.x": 4, "m": {"x": 5}}', "m.x", 4.0),
        ('{"folds": [1, {"s": 6}]}', "folds.1.s", 6.0),
        ('{not json} {"a": "}{", "b": 8}', "b", 8.0),
    ],
)
def test_the_key_of_the_last_object_that_has_it(out, key, value):
    assert words_of.result_of(out, key) == value


@pytest.mark.parametrize(
    ("out", "key", "said"),
    [
        ("", None, "printed nothing"),
        ("done", None, "no number"),
        ("0.5\nloss: nan", None, "result is nan"),
        ("-inf", None, "result is -inf"),
        ("1e999", None, "result is inf"),
        ("score 1,234.5", None, "'1,234.5', which may be one number or several; print the result with a decimal point"),
        ("0,95.", None, "'0,95', which"),
        ("[1,2,3]", None, "'1,2,3', which"),
        ("1'234.5", None, '"1\'234.5", which'),
        ("v1,-2,5", None, "'-2,5', which"),
        ("model7a,3,5 ended", None, "'3,5', which"),
        ("0.5", "a", "no JSON object"),
        ('{"b": 1, "c": 2}', "a", "has 'a'; the last has 'b', 'c'"),
        ('{"a": "0.5"}', "a", 'no number but "0.5"'),
        ('{"a": true}', "a", "no number but true"),
        ('{"a": NaN}', "a", "result is nan"),
        ('{"a": 1' + "0" * 400 + "}", "a", "result is inf"),
        ('{"a": {"b": 1}}', "a.c", "has 'a.c'"),
        ('{"a":' * 5000, "a", "no JSON object"),
    ],
)
def test_what_is_no_result(out, key, said):
    with pytest.raises(command.Failure, match=re.escape(said)):
        words_of.result_of(out, key)


# -- processes ---------------------------------------------------------------------------------------------------------


def run(*given, timeout=None, stop=None, record=lambda *_: None):
    return processes.run_process(given, timeout=timeout, stop=stop or threading.Event(), record=record)


def test_a_process_is_known_by_its_number_and_when_it_started():
    mine = processes.started(os.getpid())
    assert processes.started(os.getpid()) == mine is not None
    child = subprocess.Popen([PYTHON, "-c", ""])
    until(lambda: gone(child.pid))  # listed, not waited for
    child.wait()
    assert processes.host() == processes.host() is not None


def test_a_command_starts_only_once_it_is_on_record():
    def fail(*_):
        raise OSError("the storage is away")

    with pytest.raises(OSError, match="away"):
        run(PYTHON, "-c", "open('ran', 'w')", record=fail)
    assert not Path("ran").exists()
    seen = []
    ran = run(
        PYTHON, "-c", "import os; print(os.getpid(), os.getpgid(0), repr(input()))", record=lambda *a: seen.append(a)
    )
    assert "EOFError" in ran.err  # no input
    ran = run(PYTHON, "-c", "import os; print(os.getpid(), os.getpgid(0))", record=lambda *a: seen.append(a))
    assert ran.out.split() == [str(seen[1][0])] * 2


FAMILY = """
import signal, subprocess, sys, time
{deaf}
grandchild = "import signal, time; {deaf}; print(1, flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", grandchild], stdout=subprocess.PIPE)
child.stdout.read(1)
open("pid", "w").write(str(child.pid))
print("0.5", flush=True)
{then}
"""


@pytest.mark.parametrize("deaf", ["pass", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_a_time_limit_ends_grandchildren_too(deaf, monkeypatch):
    def clock():  # an hour passes once all of them have started
        started = Path("pid").exists() and Path("pid").read_text()
        return time.monotonic() + (4000.0 if started else 0.0)

    monkeypatch.setattr(processes, "PATIENCE", 0.3)
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    Path("family.py").write_text(FAMILY.format(deaf=deaf, then="time.sleep(600)"))
    ran = run(PYTHON, "-I", "-S", "family.py", timeout=3600.0)
    assert ran.code is None
    assert ran.ended == "it took more than 3600 seconds"
    assert ran.out.strip() in ("", "0.5")
    until(lambda: gone(int(Path("pid").read_text())))


def test_what_a_command_leaves_running_is_ended_and_not_waited_for():
    Path("family.py").write_text(FAMILY.format(deaf="pass", then=""))
    ran = run(PYTHON, "-I", "-S", "family.py")
    assert (ran.code, ran.out.strip()) == (0, "0.5")
    until(lambda: gone(int(Path("pid").read_text())))


def test_a_stop_ends_a_command():
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    assert run(PYTHON, "-c", "import time; time.sleep(600)", stop=stop).ended == "stopped"


def test_only_the_very_process_is_ended():
    child = subprocess.Popen([PYTHON, "-c", "import time; time.sleep(600)"], start_new_session=True)
    follower = subprocess.Popen([PYTHON, "-c", "import time; time.sleep(600)"])
    start = processes.started(child.pid)
    assert not processes.end_group(child.pid, start + "0")
    assert not processes.end_group(follower.pid, processes.started(follower.pid))  # of the group of these tests
    assert child.poll() is follower.poll() is None
    assert processes.end_group(child.pid, start)
    assert child.wait() == -signal.SIGKILL
    follower.kill()
    follower.wait()


# -- one process -------------------------------------------------------------------------------------------------------


def test_a_command_is_evaluated_until_there_are_results_enough():
    seen = []
    policy = command.go(SPACE, words(), evaluations=6, jobs=2, name="s", seed=0, minimize=True, show=seen.append)
    assert policy.t == 6
    found = trials_of()
    assert [t.state for t in found] == [TrialState.COMPLETE] * 6
    assert all(t.value == t.params["x"] + t.params["k"] for t in found)
    assert sorted(log()) == sorted((what, t.number) for t in found for what in ("start", "end"))
    assert seen[-1].done == seen[-1].of == 6
    assert seen[-1].best == min(t.value for t in found)
    assert seen[-1].params == min(found, key=lambda t: t.value).params
    assert sorted(p.result.trial for p in seen if p.result) == list(range(6))
    again = command.go(SPACE, words(), evaluations=6, name="s", minimize=True)
    assert again.t == 6
    assert command.go(SPACE, words(), evaluations=8, name="s", minimize=True).t == 8  # more are wanted
    assert len(log()) == 16


def test_a_rule_stops_it_and_the_same_line_says_so_again(monkeypatch):
    monkeypatch.setitem(vars(ms), "reports", types.SimpleNamespace(of_policy=lambda *_, **__: Path("page.html")))
    given = ["space.toml", "-n", "40", "--storage", "study.journal", "--stop", "--chance", "0.9", "--within", "5"]
    code, out, err = invoke(*given, "--", *words())
    assert (code, err) == (0, "")
    last = out.splitlines()[-1]
    assert last.startswith("stopped after 15 evaluations: the chance that 5 more improve the best by ")
    assert "(limit 90 %)" in last
    assert "15 results in study.journal" in out
    assert len(log()) == 30
    again = invoke(*given, "--jobs", "2", "--gain", "0.1", "--", *words())[1]
    assert again.splitlines()[-1].startswith(
        "stopped after 15 evaluations: the chance that 5 more improve the best by 0.1"
    )
    assert len(log()) == 30
    assert invoke("space.toml", "--gain", "1", "--", *words())[::2] == (
        1,
        "misspec: --gain, --within and --chance say when to stop: add --stop\n",
    )


def test_with_jobs_what_is_running_when_the_rule_is_met_counts():
    seen = []
    rule = ms.until(chance=0.9)
    policy = command.go(SPACE, words(), evaluations=40, jobs=3, name="s", seed=0, until=rule, show=seen.append)
    assert 15 <= policy.t <= 17
    assert seen[-1].reason.startswith(f"stopped after {policy.t} evaluations: ")
    assert {t.state for t in trials_of()} == {TrialState.COMPLETE}


def test_it_says_that_nothing_is_left_to_try():
    seen = []
    space = ms.Space({"k": ms.Int(1, 4)})
    line = [PYTHON, "-I", "-S", "-c", "print({k})"]
    policy = command.go(space, line, evaluations=60, name="s", seed=0, show=seen.append)
    assert policy.t < 60
    assert seen[-1].reason == (
        f"stopped after {policy.t} evaluations: everything was tried, and a repeat would teach nothing"
    )


def test_an_evaluation_reads_the_trials_three_times(monkeypatch):
    """After a result, once a trial is made, and when its point is chosen; and a few times at the beginning and end."""
    reads = []
    original = storages._SQLite.get_all_trials
    monkeypatch.setattr(runs, "POLL", 600.0)  # however long an evaluation takes
    monkeypatch.setattr(
        optuna.storages._CachedStorage,
        "get_all_trials",
        lambda self, *given, **more: reads.append(1) or original(self._backend, *given, **more),
    )
    command.go(SPACE, words(), evaluations=8, name="s", seed=0)
    assert len(reads) <= 3 * 8 + 6


def test_json_and_booleans_and_constants():
    Path("script.py").write_text(
        "import sys, json; print(json.dumps({'m': {'v': len(sys.argv[1])}, 'a': sys.argv[1:]}))"
    )
    space = ms.Space({"b": ms.Choice([True, False]), "s": ms.Choice([7])})
    policy = command.go(space, [PYTHON, "script.py", "{b}", "{s}"], evaluations=4, key="m.v", name="s", seed=0)
    assert policy.t == 4
    assert {(t.params["b"], t.value) for t in trials_of()} <= {(True, 4.0), (False, 5.0)}


FAILS = """
import os, sys, time
count = len(os.listdir("tries"))
open(f"tries/{count}", "w")
how = sys.argv[3]
if how == "second" and count % 2: print(0.5)
elif how == "later" and count >= 4: print(0.5)
elif how == "nan": print("nan")
elif how == "slow": time.sleep(600)
elif how == "killed": os.kill(os.getpid(), 9)
else:
    print(0.1, flush=True)
    sys.exit("first line\\nout of memory")
"""


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("code", "exit code 1: out of memory"),
        ("nan", "its result is nan"),
        ("slow", "it took more than 0.2 seconds"),
        ("killed", "ended by SIGKILL"),
    ],
)
def test_a_command_that_only_fails_is_not_run_all_night(how, reason):
    Path("tries").mkdir()
    Path("script.py").write_text(FAILS)
    given = [PYTHON, "-I", "-S", "script.py", "{x}", "{k}", how]
    with pytest.raises(
        ms.InvalidInput, match=re.escape(f"the first 5 evaluations all failed, the last one because: {reason}")
    ):
        command.go(SPACE, given, evaluations=20, name="s", timeout=0.2 if how == "slow" else None)
    found = trials_of()
    assert [t.state for t in found] == [TrialState.FAIL] * 5
    assert all(t.user_attrs["reason"] == reason and AGAIN not in t.system_attrs for t in found)
    if how == "code":
        assert found[0].user_attrs["stderr"] == "first line\nout of memory"


def test_failures_do_not_count_as_results():
    Path("tries").mkdir()
    Path("script.py").write_text(FAILS)
    seen = []
    given = [PYTHON, "-I", "-S", "script.py", "{x}", "{k}", "later"]
    command.go(SPACE, given, evaluations=6, name="s", show=seen.append)
    assert [t.state for t in trials_of()] == [TrialState.FAIL] * 4 + [TrialState.COMPLETE] * 6
    failed = [p.result.reason for p in seen if p.result and p.result.value is None]
    assert failed == ["exit code 1: out of memory"] * 4


def test_a_failure_is_tried_again():
    Path("tries").mkdir()
    Path("script.py").write_text(FAILS)
    given = [PYTHON, "-I", "-S", "script.py", "{x}", "{k}", "second"]
    command.go(SPACE, given, evaluations=5, name="s", retries=1)
    assert [t.state for t in trials_of()] == [TrialState.COMPLETE] * 5
    assert len(list(Path("tries").iterdir())) == 10


def test_an_interruption_gives_back_what_runs():
    def interrupt(progress):
        if progress.running == 2 and len(log()) >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        command.go(SPACE, words(600), evaluations=4, jobs=2, name="s", show=interrupt)
    stopped = trials_of()
    assert [t.state for t in stopped] == [TrialState.FAIL] * 2
    until(lambda: all(gone(line[-1]) for line in lines()))
    command.go(SPACE, words(), evaluations=4, name="s")
    found = trials_of()
    assert [t.params for t in found[2:4]] == [t.params for t in stopped]  # first
    assert [t.state for t in found[2:]] == [TrialState.COMPLETE] * 4


# -- several processes -------------------------------------------------------------------------------------------------


def helper(given, n, url="sqlite:///misspec.db", jobs=1):
    process = FORKS.Process(
        target=command.go, args=(SPACE, given), kwargs={"evaluations": n, "storage": url, "name": "s", "jobs": jobs}
    )
    process.start()
    return process


def one_line_per_result(found):
    """Each result was evaluated exactly once."""
    starts = [trial for what, trial in log() if what == "start"]
    ends = [trial for what, trial in log() if what == "end"]
    for trial in found:
        if trial.state == TrialState.COMPLETE:
            assert starts.count(trial.number) == ends.count(trial.number) == 1
    assert len(starts) == len(set(starts))  # no trial was evaluated twice
    return starts


@pytest.mark.parametrize("url", ["sqlite:///misspec.db", "journal:///study.journal"])
def test_processes_on_one_study_give_exactly_as_many_results(url):
    n = 12
    helpers = [helper(words("go"), n, url, jobs) for jobs in (1, 2, 2)]
    until(lambda: len({line[2] for line in lines()}) == 3)  # all help
    Path("go").write_text(str(10**6))
    for each in helpers:
        each.join()
        assert each.exitcode == 0
    found = trials_of(url)
    assert sum(t.state == TrialState.COMPLETE for t in found) == n
    assert not any(t.state == TrialState.RUNNING for t in found)
    assert sorted(t.number for t in found) == list(range(len(found)))
    assert len(one_line_per_result(found)) == n  # those not needed were not evaluated
    owners = {t.system_attrs[OWNER]["pid"] for t in found if t.state == TrialState.COMPLETE}
    assert owners == {each.pid for each in helpers}


def test_killed_again_and_again():
    """At random moments; each result evaluated once, except what ran at a kill."""
    n, kills, rng = 16, 3, random.Random(3)
    for kill in range(kills):
        Path("go").write_text(str(4 * (kill + 1)))  # it cannot be over before it is killed
        process, before = helper(words("go"), n, jobs=2), len(log())
        until(lambda: len(log()) > before)  # noqa: B023
        time.sleep(0.2 * rng.random())
        process.kill()
        process.join()
    Path("go").write_text(str(10**6))
    last = helper(words("go"), n, jobs=2)
    last.join()
    assert last.exitcode == 0
    found = trials_of()
    assert sum(t.state == TrialState.COMPLETE for t in found) == n
    died = [t for t in found if t.user_attrs.get("reason", "").startswith(shared_study.GONE)]
    assert {t.state for t in found if t not in died} == {TrialState.COMPLETE}
    assert len(died) <= 2 * kills
    started = one_line_per_result(found)
    assert len(started) <= n + len(died)
    retried = {t.system_attrs[RETRY]["of"]: t for t in found if RETRY in t.system_attrs}
    for trial in died:
        if len(trial.params) == 2 and AGAIN in trial.system_attrs:
            then = retried[trial.number]
            while then in died and len(then.params) < 2:  # killed before its parameters were stored
                then = retried[then.number]
            assert then.params == trial.params  # the point was evaluated after all


def test_an_orphan_is_ended_before_its_point_is_evaluated_again():
    process = helper(words(600), 3)
    until(log)
    process.kill()
    process.join()
    orphan = lines()[0][-1]
    assert not gone(orphan)
    here = shared(n=3)
    try:
        trial = here.claim()
        assert gone(orphan)
        dead = trials_of()[0]
        assert dead.state == TrialState.FAIL
        assert dead.user_attrs["reason"] == shared_study.GONE
        assert trial.params == dead.params
        assert trial.number == 1
    finally:
        here.close()


def test_another_process_of_that_number_is_not_ended():
    """The trial's command has ended, and its number is that of another process now."""
    other = subprocess.Popen([PYTHON, "-c", "import time; time.sleep(600)"], start_new_session=True)
    here = shared()
    owner = {"run": "old", "host": processes.host(), "pid": os.getpid(), "start": "1"}
    attributes = {OWNER: owner, PROCESS: {"pid": other.pid, "start": processes.started(other.pid) + "1"}}
    here.study.add_trial(optuna.trial.create_trial(state=TrialState.RUNNING, system_attrs=attributes))
    assert here.reap() == [0]
    assert other.poll() is None
    other.kill()
    other.wait()
    here.close()


def test_a_trial_of_another_machine_is_dead_when_its_beat_stands_still(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(shared_study, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep))
    monkeypatch.setattr(processes, "host", lambda: "there")
    there = shared(n=2)
    trial = there.claim()
    there.record(
        trial.number, os.getpid(), processes.started(os.getpid())
    )  # a number of this machine means another there
    monkeypatch.setattr(processes, "host", lambda: "here")
    monkeypatch.setattr(processes, "end_group", lambda *_: pytest.fail("of another machine"))
    here = shared(n=2, grace=90.0)
    for beat in range(5):
        there.storage.set_trial_system_attr(trial._trial_id, BEAT, beat)
        clock[0] += 89.0
        assert here.reap() == []
        clock[0] += 89.0
        assert here.reap() == []  # it has not stood still for so long
    clock[0] += 2.0
    assert here.reap() == [0]
    assert not there.finish(0, 1.0)  # too late: only one of the two counts
    assert here.claim().params == trial.params
    here.close()
    there.close()
    assert [t.state for t in trials_of()] == [TrialState.FAIL, TrialState.RUNNING]


def test_a_process_that_lost_its_trial_is_told_by_its_next_beat():
    here = shared(beat=0.01)
    trial = here.claim()
    here._fail(trial._trial_id, "by another", "", None)
    assert here.mine[trial.number].stop.wait(120)
    assert not here.fail(trial.number, "too late")
    here.close()


def test_beats_go_on_whatever_fails():
    here = shared(beat=0.01)
    taken, away, kept = here.claim(), here.claim(), here.claim()
    call, told = here.storage.set_trial_system_attr, []

    def write(trial_id, *given):
        told.append(trial_id)
        if trial_id == away._trial_id:
            raise OSError("the storage is away")
        call(trial_id, *given)

    here.storage.set_trial_system_attr = write
    here._fail(taken._trial_id, "by another", "", None)
    until(lambda: told.count(taken._trial_id) > 1 < told.count(away._trial_id))  # at every beat, until let go of
    seen = here.storage.get_trial(kept._trial_id).system_attrs[BEAT]
    until(lambda: here.storage.get_trial(kept._trial_id).system_attrs[BEAT] > seen)
    assert [here.mine[each.number].stop.is_set() for each in (taken, away, kept)] == [True, False, False]
    here.close()


def test_trials_of_other_programs_are_left_alone():
    here = shared(n=3, grace=0.0)
    theirs = here.study.ask()
    theirs.suggest_float("x", 0, 1)
    bare = here.study.ask()
    assert here.reap() == here.reap() == []
    here.close()
    command.go(SPACE, words(), evaluations=3, name="s")
    found = trials_of()
    assert [found[t.number].state for t in (theirs, bare)] == [TrialState.RUNNING] * 2
    assert sum(t.state == TrialState.COMPLETE for t in found) == 3


def test_what_is_enqueued_comes_first():
    here = shared(n=3)
    here.study.enqueue_trial({"x": 0.25, "k": 3})
    here.study.enqueue_trial({"k": 4})
    first, second = here.claim(), here.claim()
    assert first.params == {"x": 0.25, "k": 3}
    assert second.params["k"] == 4
    assert here.reap() == []
    here.close()
    other = shared(n=3)  # nothing goes on in this process that owns them
    assert other.reap() == [0, 1]
    assert other.claim().params == first.params
    other.close()


def test_who_comes_second_does_not_become_the_owner():
    one, other = shared(), shared()
    one.study.enqueue_trial({"x": 0.5, "k": 3})
    seen = other.trials()  # it waits
    trial = one.claim()
    assert other._waiting(seen) is None
    assert other.standing().running == 1
    other.close()
    third = shared(grace=0.0)
    assert third.reap() == third.reap() == []
    assert one.finish(trial.number, 1.0)
    assert third.trials()[0].system_attrs[OWNER]["run"] == one._run
    one.close()
    third.close()


class At:
    """Something happens just before a storage's next call of a kind."""

    def __init__(self, storage, name, when, what):
        self.call, self.when, self.what = getattr(storage, name), when, what
        setattr(storage, name, self)

    def __call__(self, *given):
        if self.what is not None and self.when in given:
            what, self.what = self.what, None
            what()
        return self.call(*given)


def test_what_another_program_takes_just_before_us_is_its_own():
    here = shared(n=1, grace=0.0)
    here.study.enqueue_trial({"x": 0.5, "k": 3})
    other = optuna.load_study(study_name="s", storage=storages.open_storage("sqlite:///misspec.db"))
    At(here.storage, "set_trial_state_values", TrialState.RUNNING, other.ask)
    assert here.claim().number == 1
    assert here.reap() == here.reap() == []
    here.finish(1, 1.0)
    assert here.standing()[:2] == (1, 0)
    here.close()
    later = shared(n=2, grace=0.0)
    assert later.reap() == later.reap() == []
    assert later.claim().number == 2
    later.close()
    assert trials_of()[0].state == TrialState.RUNNING


class Died(BaseException):
    """In the middle of it."""


def die():
    raise Died


def left(before):
    """A study with an enqueued trial, at which a process died before a call of its storage."""
    here = shared(n=1)
    here.study.enqueue_trial({"x": 0.25, "k": 3})
    At(here.storage, *before, die)
    with pytest.raises(Died):
        here.claim()
    here.close()


TAKES, NAMES = ("set_trial_state_values", TrialState.RUNNING), ("set_trial_system_attr", OWNER)


def test_a_process_that_died_before_it_named_itself(monkeypatch):
    clock = [0.0]
    left(NAMES)
    monkeypatch.setattr(shared_study, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep))
    here = shared(n=1, grace=90.0)
    assert here.trials()[0].state == TrialState.RUNNING
    assert OWNER not in here.trials()[0].system_attrs
    assert here.claim() is None  # perhaps it only is slow
    clock[0] += 89.0
    assert here.claim() is None
    clock[0] += 2.0
    assert here.claim().params == {"x": 0.25, "k": 3}
    assert here.trials()[0].user_attrs["reason"] == shared_study.GONE
    here.close()


def test_a_process_that_lives_is_not_dead_before_it_named_itself():
    one, other = shared(n=1), shared(n=1, grace=0.0)
    one.study.enqueue_trial({"x": 0.25, "k": 3})
    reaped = []
    At(one.storage, *NAMES, lambda: reaped.extend([*other.reap(), *other.reap(), other.claim()]))
    trial = one.claim()
    assert reaped == [None]  # nothing reaped, and nothing more is needed
    assert one.finish(trial.number, 1.0)
    one.close()
    other.close()


def test_another_program_goes_on_with_what_the_dead_would_have_taken():
    left(TAKES)
    here = shared(n=1, grace=0.0)
    copy = here.trials()[0]
    other = optuna.load_study(study_name="s", storage=storages.open_storage("sqlite:///misspec.db"))
    other.ask().suggest_float("x", 0.0, 1.0)
    other.add_trial(optuna.trial.create_trial(state=TrialState.WAITING, system_attrs=copy.system_attrs))
    other.ask()
    assert here.reap() == here.reap() == []
    assert here.claim().number == 2
    here.close()
    assert [t.state for t in trials_of()] == [TrialState.RUNNING] * 3


@pytest.mark.parametrize(
    ("url", "before"), covering(["sqlite:///misspec.db", "journal:///study.journal"], [TAKES, NAMES])
)
def test_killed_while_it_took_what_is_enqueued(url, before):
    name, when = before
    script = f"""
import os, signal, optuna, misspec as ms
from misspec.integrations.command.shared_study import Shared
space = ms.Space({{"x": ms.Float(0.0, 1.0), "k": ms.Int(1, 9)}})
sampler = optuna.samplers.RandomSampler()
here = Shared({url!r}, "s", space, minimize=False, n=2, sampler=sampler)
here.study.enqueue_trial({{"x": 0.25, "k": 3}})
call = here.storage.{name}
def kill(*given):
    if {int(when) if isinstance(when, TrialState) else when!r} in given:
        os.kill(os.getpid(), signal.SIGKILL)
    return call(*given)
here.storage.{name} = kill
here.claim()
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(ms.__file__).parents[1])}
    assert subprocess.run([PYTHON, "-c", script], env=environment, check=False).returncode == -signal.SIGKILL
    command.go(SPACE, words(), evaluations=2, storage=url, name="s", grace=0.1)
    found = trials_of(url)
    assert sum(t.state == TrialState.COMPLETE for t in found) == 2
    assert [t.params for t in found if t.state == TrialState.COMPLETE].count({"x": 0.25, "k": 3}) == 1
    assert not any(t.state == TrialState.RUNNING for t in found)


def test_a_point_that_kills_its_process_is_given_up():
    here = shared(n=3)
    point = None
    for death in range(1, shared_study.MOST_DEATHS + 1):
        trial = here.claim()
        assert point in (None, trial.params)
        point = trial.params
        here.record(trial.number, 2**22 + 1, "0")
        here.close()
        here = shared(n=3)
        assert here.reap() == [trial.number]
        again = trials_of()[-1].system_attrs.get(AGAIN)
        assert again == ({"deaths": death} if death < shared_study.MOST_DEATHS else None)
    assert "given up" in trials_of()[-1].user_attrs["reason"]
    here.claim()
    assert RETRY not in trials_of()[-1].system_attrs  # whatever is chosen now is not because of that point
    here.close()


def test_the_sampler_does_not_hold_a_stop_against_a_point():
    here = shared()
    for _ in range(3):
        here.fail(here.claim().number, "stopped", again=True)
    assert len({str(t.params) for t in trials_of()}) == 1  # the same point, three times
    assert History(here.study, here.axes).trials == []
    here.fail(here.claim().number, "its own fault")
    assert [each.failed for each in History(here.study, here.axes).trials] == [True]
    here.close()


def test_two_that_would_evaluate_the_same_point_again():
    one, other = shared(n=9), shared(n=9)
    trial = one.claim()
    one.fail(trial.number, "stopped", again=True)
    seen = one.trials()
    first, second = one._make(seen), other._make(seen)  # both found it at once
    assert [one._needed(first), other._needed(second)] == [True, False]
    assert trials_of()[second].user_attrs["reason"] == "not needed: trial 1 evaluates the same point again"
    one.close()
    other.close()


class Interrupted(optuna.storages.InMemoryStorage):
    """Others do something just before a trial is taken, or is given its owner; or whoever does that dies."""

    def __init__(self):
        super().__init__()
        self.between = []

    def set_trial_state_values(self, trial_id, state, values=None):
        if state == TrialState.RUNNING and self.between:
            self.between.pop(0)()
        return super().set_trial_state_values(trial_id, state, values)

    def set_trial_system_attr(self, trial_id, key, value):
        if key == OWNER and self.between:
            self.between.pop(0)()
        super().set_trial_system_attr(trial_id, key, value)


STEPS = st.tuples(st.integers(0, 2), st.sampled_from("tttncfdwgo"), st.integers(0, 5))


@settings(max_examples=100)
@given(st.lists(st.tuples(STEPS, st.lists(st.one_of(st.none(), STEPS), max_size=2)), max_size=80), st.integers(1, 4))
def test_in_any_order_never_more_results_than_wanted_and_in_the_end_all(steps, n):
    """Three workers take trials, look whether they are needed, finish, fail, die and give back, in any order, also in
    the middle of taking one. Another program takes trials too, and keeps them."""
    storage, others, at_work = Interrupted(), [], []
    opened, shared_study.open_storage = shared_study.open_storage, lambda _: storage
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        workers = [shared("memory", n=n, grace=0.0) for _ in range(3)]
        taken, under_way = [[] for _ in workers], [[] for _ in workers]

        def check(w):
            number = taken[w].pop(0)
            if workers[w]._needed(number):
                under_way[w].append(number)

        def replace(w):
            workers[w].close()
            workers[w], taken[w], under_way[w] = shared("memory", n=n, grace=0.0), [], []

        def step(w, what, pick):
            if w in at_work:  # it does one thing at a time
                return
            worker, mine = workers[w], under_way[w]
            if what == "t":
                at_work.append(w)
                try:
                    worker.reap()
                    number = worker._take()
                    if number is not None:
                        taken[w].append(number)
                except Died:
                    replace(w)
                finally:
                    at_work.remove(w)
            elif what == "o":
                trial = worker.study.ask()
                trial.suggest_float("x", 0.0, 1.0)
                others.append(trial.number)
            elif what == "n" and taken[w]:
                check(w)
            elif what == "w":
                worker.study.enqueue_trial({"x": 0.5})
            elif what == "d":  # dies; another one comes
                replace(w)
            elif mine and what in "cfg":
                number = mine.pop(pick % len(mine))
                {
                    "c": lambda: worker.finish(number, 1.0),
                    "f": lambda: worker.fail(number, "no"),
                    "g": lambda: worker.fail(number, "stopped", again=True),
                }[what]()

        for each, between in steps:
            storage.between = [die if inner is None else functools.partial(step, *inner) for inner in between]
            with contextlib.suppress(Died):  # the other program, which then has the trial or not
                step(*each)
            assert workers[0].standing().done <= n
        storage.between = []
        for _ in range(200):
            for w in range(3):
                step(w, "t", 0)
                while taken[w]:
                    check(w)
                step(w, "c", 0)
        assert workers[0].standing()[:2] == (n, 0)
        assert {workers[0].trials()[number].state for number in others} <= {TrialState.RUNNING}
        for worker in workers:
            worker.close()
    finally:
        shared_study.open_storage = opened
        optuna.logging.set_verbosity(level)


@pytest.mark.parametrize("state", [TrialState.FAIL, TrialState.RUNNING])
def test_only_one_of_many_changes_a_state(state):
    """On SQLite too, which has no row locks."""
    first = shared()
    for _ in range(15):
        first.study.enqueue_trial({})
    ids = [t._trial_id for t in first.trials()]
    opened = [storages.open_storage("sqlite:///misspec.db") for _ in range(4)]
    barrier, won = threading.Barrier(4), []

    def try_all(storage):
        for each in ids:
            barrier.wait()
            with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
                if storage.set_trial_state_values(each, state):
                    won.append(each)

    threads = [threading.Thread(target=try_all, args=(storage,)) for storage in opened]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == ids
    first.close()


def test_many_open_a_new_storage_at_once():
    failed = []

    def make():
        try:
            shared().close()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_study_about_something_else_is_refused():
    shared().close()
    with pytest.raises(
        ms.InvalidInput, match=r"study 's' in sqlite:///misspec.db is to maximize, .* --name, or say --maximize"
    ):
        shared(minimize=True)
    other = ms.Space({"x": ms.Float(0.0, 2.0), "k": ms.Int(1, 9)})
    with pytest.raises(ms.InvalidInput, match=r"another space: 'x' was .* take another --name"):
        shared(space=other)
    with pytest.raises(ms.InvalidInput, match="'z' is new"):
        shared(space=ms.Space({"x": ms.Float(0.0, 1.0), "k": ms.Int(1, 9), "z": ms.Int(1, 2)}))
    shared(space=other, name="other").close()


def test_a_study_of_another_program_is_joined_if_it_is_about_the_same():
    study = optuna.create_study(study_name="s", storage="sqlite:///misspec.db", direction="maximize")
    study.tell(study.ask(distributions_of(SPACE)), 1.0)
    shared().close()
    study = optuna.create_study(study_name="t", storage="sqlite:///misspec.db", direction="maximize")
    study.tell(study.ask({"q": optuna.distributions.IntDistribution(1, 2)}), 1.0)
    with pytest.raises(ms.InvalidInput, match="trials with other parameters"):
        shared(name="t")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense://x", "nonsense://x is no storage URL"),
        ("sqlite:///missing/folder.db", "cannot open the storage sqlite:///missing/folder.db: unable to open"),
        ("sqlite:///space.toml", "cannot open the storage sqlite:///space.toml: file is not a database"),
        ("sqlite:///:memory:", "would keep nothing"),
        ("sqlite://", "would keep nothing"),
        ("redis://localhost", "Redis"),
        ("mysql+aiosqlite2://x", "is no storage URL"),
        ("postgresql+pg8000://me:secret@localhost/base", "needs pg8000, which is missing: pip install pg8000"),
        ("postgresql://me:secret@localhost:1/base", "postgresql://me:***@localhost:1/base"),
        ("space.toml", "space.toml is no journal file"),
        ("journal:///missing/study.journal", "cannot open the journal file missing/study.journal"),
        ("sqlite:///{lr}.db", "no storage URL"),
    ],
)
def test_storages_that_cannot_be_opened_are_one_line(url, said):
    with pytest.raises((ms.InvalidInput, ms.StorageError)) as caught:
        storages.open_storage(url)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_path_is_a_journal_or_a_database_by_what_is_in_it():
    for url, file in (("a.db", "a.db"), ("b.log", "b.log"), ("sqlite:///c", "c")):
        shared(url).close()
        assert Path(file).exists()
    assert isinstance(storages.open_storage("b.log"), optuna.storages.JournalStorage)
    assert not isinstance(storages.open_storage("c"), optuna.storages.JournalStorage)
    assert len(trials_of("sqlite:///a.db")) == 0


# -- the command line --------------------------------------------------------------------------------------------------


def start(*options, given=None):
    line = [PYTHON, "-m", "misspec.cli", "optimize", "space.toml", *options, "--", *(given or words())]
    here = str(Path(ms.__file__).parents[1])  # the tests run elsewhere, and a relative PYTHONPATH would not lead there
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONPATH": here}
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def test_stopped_and_gone_on_with_on_the_command_line(folder):
    Path("go").write_text("3")
    process = start("-n", "7", "--storage", "study.journal", given=words("go"))
    until(lambda: ("start", 3) in log())
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130, err
    found = trials_of("study.journal", "space")
    assert not any(t.state == TrialState.RUNNING for t in found)
    done = sum(t.state == TrialState.COMPLETE for t in found)
    assert done == 3
    assert (
        f"stopped; {done} of 7 results are kept in study.journal; go on with: misspec optimize space.toml -n 7" in err
    )
    assert out.count("/7: ") == done
    Path("go").write_text(str(10**6))
    code, out, err = invoke("space.toml", "-n", "7", "--storage", "study.journal", "--", *words("go"))
    assert (code, err) == (0, "")
    assert f"{done} of 7 results were there before" in out
    assert "7 results in study.journal, study space" in out
    assert "contradict" in out  # the summary
    assert (folder / "space-results" / "index.html").stat().st_size > 10_000
    assert len([t for t in trials_of("study.journal", "space") if t.state == TrialState.COMPLETE]) == 7


def invoke(*given):
    found = CliRunner().invoke(cli.app, ["optimize", *given])
    return found.exit_code, found.stdout, found.stderr


def test_the_command_line_says_what_is_wrong():
    assert invoke("none.toml", "--", PYTHON)[::2] == (1, "misspec: none.toml does not exist\n")
    code, _, err = invoke("space.toml", "--", PYTHON, "{x}")
    assert code == 1
    assert "never uses the parameter 'k'" in err
    code, _, err = invoke("space.toml", "--storage", "nonsense://x", "--", *words())
    assert code == 1
    assert err.count("\n") == 1
    assert invoke("space.toml")[::2] == (
        1,
        "misspec: there is no command; write it after --, as in: -- python train.py --lr {lr}\n",
    )
    assert not Path("log").exists()


def test_without_the_extras_it_says_how_to_get_them(monkeypatch):
    def missing(*_, **__):
        raise ModuleNotFoundError("matplotlib", name="matplotlib")

    monkeypatch.setitem(vars(ms), "reports", types.SimpleNamespace(of_policy=missing))
    code, out, err = invoke("space.toml", "-n", "2", "--", *words())
    assert (code, err) == (0, "")
    assert "pip install 'misspec[experiments]'" in out
    import misspec.integrations

    for name in [name for name in sys.modules if re.match(r"misspec\.integrations\.(command|optuna)\b", name)]:
        monkeypatch.delitem(sys.modules, name)
    for folder in ("command", "optuna"):
        monkeypatch.delattr(misspec.integrations, folder)
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert invoke("space.toml", "--", *words())[::2] == (
        1,
        "misspec: this command needs optuna: pip install 'misspec[optuna]'\n",
    )


def test_a_failure_is_one_line_and_a_terminal_has_a_bar():
    from rich.console import Console

    screen = Console(force_terminal=True, width=150, markup=False, highlight=False, record=True, file=io.StringIO())
    with progress.evaluations_shown(screen) as show:
        base = command.Progress(3, 9, 3, 2, 0.5, {"x": 0.123456, "k": 2}, 75.0, None)
        show(base)
        show(base._replace(result=command.Result(7, None, {"x": 0.1, "k": 1}, "exit code 1: no luck")))
        show(base._replace(done=4, left=5025.0))
        text = screen.export_text()
        assert "3 of 9 results were there before" in text
        assert "trial 7 failed at x=0.1, k=1: exit code 1: no luck" in text
        note = show._bars.tasks[0].fields["note"]
    assert note == "4/9, 2 running, 1:23:45 left, best 0.5 at x=0.1235, k=2"


# -- the real thing ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_training_script_killed_five_times():
    """scikit-learn, four mixed parameters, 40 evaluations, 2 jobs."""
    Path("space.toml").write_text((EXAMPLES / "space.toml").read_text())
    names = [f"--{name}={{{name}}}" for name in space_file.read("space.toml").names]
    given = [PYTHON, str(EXAMPLES / "train.py"), *names, "--log=train.log", "--trial={trial}"]
    rng = random.Random(1)

    def lines():
        return Path("train.log").read_text().splitlines() if Path("train.log").exists() else []

    for _ in range(5):
        before = len(lines())
        process = start("-n", "40", "--jobs", "2", given=given)
        until(lambda: len(lines()) > before or process.poll() is not None, 120)  # noqa: B023
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2.0 * rng.random())
        process.kill()
        process.communicate()
    process = start("-n", "40", "--jobs", "2", given=given)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert "40 results in" in out
    found = trials_of(name="space")
    results = {t.number: t for t in found if t.state == TrialState.COMPLETE}
    died = {t.number for t in found if t.user_attrs.get("reason", "").startswith(shared_study.GONE)}
    assert len(results) == 40
    assert set(results) | died == {t.number for t in found}
    for what in ("start", "end"):
        told = [json.loads(line)["trial"] for line in lines() if json.loads(line)["what"] == what]
        assert len(told) == len(set(told))
        assert set(results) <= set(told) <= set(results) | died
    assert 1 <= len(died) <= 10
    assert all(math.isfinite(t.value) for t in results.values())


# -- rules, mixtures, and parameters that exist only sometimes -------------------------------------------------------

WITH_RULES = """
where = "x + k < 6"
x = { low = 0.0, high = 1.0 }
k = { low = 1, high = 9 }
kind = ["svm", "rf"]
C = { low = 1e-3, high = 1e3, log = true, when = { kind = "svm" } }
n = { low = 1, high = 5, when = { kind = "rf" } }
blend = { mixture = ["a", "b", "c"], at_most = 2 }
"""
CHECKED = """
import json, sys
x, k, kind, C, n, a, b, c, params = sys.argv[1:]
given = json.loads(params)
assert (C == "", n == "") == ("C" not in given, "n" not in given) == (kind == "rf", kind == "svm")
assert float(x) + int(k) < 6 and abs(float(a) + float(b) + float(c) - 1) < 1e-9 and "0.0" in (a, b, c)
print(float(x) + int(k) + float(a))
"""
PLACES = ["x", "k", "kind", "C", "n", "a", "b", "c", "params"]


def test_what_does_not_exist_is_an_empty_word():
    space = ms.Space({"kind": ms.Choice(["svm", "rf"]), "C": ms.Float(0, 1, when={"kind": "svm"})})
    command = words_of.Command([PYTHON, "{kind}", "--C", "{C}", "C={C}", "{params}"], space)
    assert command.filled({"kind": "rf"}, 0)[1:] == ["rf", "--C", "", "C=", '{"kind": "rf"}']
    shell = words_of.Command(["echo {kind} {C} end"], space, shell=True).filled({"kind": "rf"}, 0)
    assert subprocess.run(shell, capture_output=True, check=True, text=True).stdout == "rf  end\n"


@pytest.mark.parametrize("url", ["sqlite:///misspec.db", "journal:///misspec.journal"])
def test_a_space_with_rules_mixtures_and_conditions_is_evaluated_and_continued(url):
    Path("space.toml").write_text(WITH_RULES)
    Path("checked.py").write_text(CHECKED)
    space = space_file.read("space.toml")
    line = [PYTHON, "-I", "-S", "checked.py", *(f"{{{name}}}" for name in PLACES)]
    policy = command.go(space, line, evaluations=4, storage=url, name="s", seed=0)
    assert policy.t == 4
    policy = command.go(space, line, evaluations=7, jobs=2, storage=url, name="s", seed=0)
    done = [t for t in trials_of(url) if t.state == TrialState.COMPLETE]
    assert (policy.t, len(done), policy.not_modelled) == (7, 7, ())
    assert all(space.contains(t.params).all() for t in done)
    assert all(("C" in t.params) == (t.params["kind"] == "svm") for t in done)
    assert space.contains(policy.recommend().params).all()
    page = ms.reports.of_policy(policy, "page")
    assert "–" in page.read_text()
    for old, new, said in [
        ("high = 1.0", "high = 2.0", "'x' was .* and is"),
        ("< 6", "< 5", r'its rules were \["x . k < 6"\] and are \["x . k < 5"\]'),
    ]:
        Path("space.toml").write_text(WITH_RULES.replace(old, new))
        with pytest.raises(ms.InvalidInput, match=f"study 's' in .* is about another space: {said}"):
            command.go(space_file.read("space.toml"), line, evaluations=7, storage=url, name="s")


def test_a_point_of_a_conditional_space_is_evaluated_again_as_it_was():
    space = ms.Space({"kind": ms.Choice(["svm", "rf"]), "C": ms.Float(0, 1, when={"kind": "svm"}), "x": ms.Int(1, 9)})
    here = shared(space=space)
    points = []
    for _ in range(4):
        trial = here.claim()
        points.append(trial.params)
        here.fail(trial.number, "stopped", again=True)
        assert here.claim().params == points[-1]
        here.finish(max(here.mine), 1.0)
    assert {"C" in each for each in points} == {True, False}
    here.close()
