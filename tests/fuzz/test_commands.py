"""Every command over hostile arguments and files: it works, or says in one line why not; never a traceback."""

import contextlib
import shutil
import warnings

import pytest
from hypothesis import strategies as st
from typer.testing import CliRunner

from hostile import fuzz
from hostile_files import EXPERIMENT, SPACE, document, mutated, texts, write
from misspec.cli import app

NUMBERS = [
    "0",
    "1",
    "2",
    "-1",
    "0.1",
    "1e-300",
    "1e200",
    "1e400",
    "nan",
    "inf",
    "-inf",
    "9" * 30,
    "9" * 5000,
    "0x10",
    "",
    "a",
]
WORDS = [
    "",
    "a",
    "x",
    "y",
    "yield",
    "temperature,solvent",
    ",",
    "RBF",
    "Matern",
    "DotProduct",
    "Sum",
    "\x1b[31m",
    "é" * 300,
]
FILES = [
    "file",
    "nothing.csv",
    ".",
    "",
    "folder",
    "a" * 300,
    "/dev/zero",
    "/dev/null",
    "x/y/z.csv",
    "space.toml",
    "\udcff",
]
SMALL = b"""
horizon = 4
seeds = 1
epsilons = [0.1]
[domain]
box = [[0, 1]]
grid = 4
[model]
kernel = { name = "RBF", length_scale = 0.3 }
norm_bound = 2.0
noise = 0.1
[[problems]]
name = "\\u001b[31mred"
[[policies]]
kind = "GPUCB"
"""


@pytest.fixture(scope="module", autouse=True)
def narrow():
    """As in a terminal of this width."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "120")
        yield


def call(*arguments):
    """Run a command; a failure is one line, or a complaint about its usage."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="misspec")
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert "\x1b[31m" not in found.stdout
    assert "defect" not in found.stderr, found.stderr
    assert "Traceback" not in found.output, found.output
    if found.exit_code == 2:
        assert "Usage: misspec" in found.stderr
    elif found.exit_code:
        assert found.exit_code == 1
        assert found.stderr.startswith("misspec: "), found.output
        assert len(found.stderr.splitlines()) == 1, found.stderr
        assert len(found.stderr) < 2000
        assert "\x1b[31m" not in found.stderr
    return found.exit_code


@contextlib.contextmanager
def inside(folder):
    """A folder of its own, emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "folder").mkdir(parents=True)
    with contextlib.chdir(folder):
        yield


def options(known, values):
    """Some of the options, each with some value."""
    some = st.lists(st.tuples(st.sampled_from(known), values), max_size=3)
    return some.map(lambda pairs: [part for pair in pairs for part in pair])


numbers, words, files = st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.sampled_from(FILES)


@fuzz(
    120, given=options(["--noise", "--length-scale", "--nu", "--regularization", "--dimension"], numbers), kernel=words
)
def test_gain(tmp_path, given, kernel):
    with inside(tmp_path / "here"):
        chosen = ["--kernel", kernel] if len(given) % 4 else []
        call("gain", "--grid", 5, "--horizon", 5, *chosen, *given)


@fuzz(60, name=files, content=mutated(EXPERIMENT), horizon=numbers)
def test_gain_of_a_file(tmp_path, name, content, horizon):
    with inside(tmp_path / "here"):
        with open("file", "wb") as file:
            file.write(content)
        call("gain", name, "--horizon", horizon if len(horizon) < 3 else "5")


@fuzz(
    200,
    text=texts(),
    name=st.one_of(st.just("file"), files),
    given=options(["--noise", "--norm-bound", "--offset", "--delta", "--length-scale", "--nu"], numbers),
    which=options(["--target", "--columns", "--ignore", "--kernel"], words),
    flags=st.lists(st.sampled_from(["--raw", "--skip", "--fixed-design"]), max_size=2),
)
def test_diagnose(tmp_path, text, name, given, which, flags):
    with inside(tmp_path / "here") as _:
        write(tmp_path / "here" / "file", text, "utf-8")
        call("diagnose", name, *given, *which, *flags)


@fuzz(
    60,
    text=texts(),
    results=texts(),
    space=mutated(SPACE),
    names=st.tuples(st.sampled_from(["file", "file", "space.toml"]), st.sampled_from(["results", "new.csv", *FILES])),
    given=options(["--noise", "--seed", "--batch"], numbers.filter(lambda each: len(each) < 10)),
    which=options(
        ["--target", "--names", "--ignore", "--out"], st.one_of(words, st.sampled_from(["yield", "y", "result"]))
    ),
    flags=st.lists(st.sampled_from(["--minimize", "--append"]), max_size=2),
)
def test_suggest(tmp_path, text, results, space, names, given, which, flags):
    with inside(tmp_path / "here"):
        here = tmp_path / "here"
        write(here / "file", text, "utf-8")
        write(here / "results", results, "utf-8")
        (here / "space.toml").write_bytes(space)
        call("suggest", names[0], "--results", names[1], *given, *which, *flags)


@fuzz(
    40,
    name=st.one_of(st.just("file"), files),
    content=st.one_of(st.just(SMALL), mutated(EXPERIMENT)),
    given=st.sampled_from([[], ["--minimize"], ["--cores", "0"], ["--cores", "1", "--into", "\x1b[31m"], ["--dask", "garbage"],
                           ["--dask", ""], ["--into", "a" * 300], ["--into", "file/x"], ["--allow", ""]]),
)  # fmt: skip
def test_run_and_report(tmp_path, name, content, given):
    with inside(tmp_path / "here"):
        (tmp_path / "here" / "file").write_bytes(content)
        cores = [] if "--cores" in given or "--dask" in given else ["--cores", "1"]
        call("run", name, "--into", "results", *cores, *given)
        call("report", name)


@fuzz(
    30,
    space=st.one_of(st.just(document({"x": {"low": 0.0, "high": 1.0}})), mutated(SPACE)),
    name=st.one_of(st.just("space.toml"), st.just("space.toml"), files),
    given=st.sampled_from([[], ["--timeout", "nan"], ["--timeout", "-1"], ["--seed", "9" * 30], ["--storage", "x://y"],
                           ["--storage", ""], ["--json", "a.b"], ["--policy", "b"], ["--name", ""], ["--name", "\x1b[31m" * 200],
                           ["--retries", "-1"], ["--into", "a" * 300], ["--jobs", "9" * 30]]),
    words=st.sampled_from([["echo", "{params}"], ["echo", "{x}"], ["false", "{params}"], ["nowhere"], ["echo", "{"], [""]]),
)  # fmt: skip
def test_optimize(tmp_path, space, name, given, words):
    with inside(tmp_path / "here"):
        (tmp_path / "here" / "space.toml").write_bytes(space)
        call("optimize", name, "-n", "1", *given, "--", *words)


def test_commands_that_are_none():
    assert call("nothing") == 2
    assert call("demo", "--cores", "nan") == 2
    assert call("demo", "--into", "/dev/null/x", "--cores", "1") == 1
