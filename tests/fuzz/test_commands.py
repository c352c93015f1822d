"""Every command over hostile arguments and files: it works, or says in one line why not; never a traceback."""

import contextlib
import json
import shutil
import warnings

import pytest
from hypothesis import strategies as st
from typer.testing import CliRunner

from hostile import fuzz
from hostile_files import EXPERIMENT, SHEETS, SPACE, document, mutated, texts, write
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
RUN = [["--minimize"], ["--cores", "0"], ["--cores", "1", "--into", "\x1b[31m"], ["--dask", "garbage"], ["--dask", ""]]
RUN += [["--into", "a" * 300], ["--into", "file/x"], ["--allow", ""], ["--cores", "nan"], ["--cores", "9" * 30]]
OPTIMIZE = [["--timeout", "nan"], ["--timeout", "-1"], ["--seed", "9" * 30], ["--storage", "x://y"], ["--storage", ""]]
OPTIMIZE += [["--json", "a.b"], ["--name", ""], ["--name", "\x1b[31m" * 200], ["--retries", "-1"]]
OPTIMIZE += [["--into", "a" * 300], ["--jobs", "9" * 30], ["--minimize"]]
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
        yield folder


def options(known, values):
    """Some of the options, each with some value."""
    some = st.lists(st.tuples(st.sampled_from(known), values), max_size=2)
    return some.map(lambda pairs: [part for pair in pairs for part in pair])


def mostly(good, bad):
    """One of the good values three times out of four."""
    return st.integers(0, 3).flatmap(lambda n: bad if n == 1 else good)


numbers = mostly(st.sampled_from(["0.1", "0.5", "1", "2"]), st.sampled_from(NUMBERS))
words, files = st.sampled_from(WORDS), mostly(st.just("file"), st.sampled_from(FILES))
sheets = mostly(st.sampled_from(SHEETS), texts())


@fuzz(
    120, given=options(["--noise", "--length-scale", "--nu", "--regularization", "--dimension"], numbers), kernel=words
)
def test_gain(tmp_path, given, kernel):
    with inside(tmp_path / "here"):
        chosen = ["--kernel", kernel] if len(given) % 4 else []
        call("gain", "--grid", 5, "--horizon", 5, *chosen, *given)


@fuzz(60, name=files, content=mutated(EXPERIMENT), horizon=numbers)
def test_gain_of_a_file(tmp_path, name, content, horizon):
    with inside(tmp_path / "here") as here:
        (here / "file").write_bytes(content)
        call("gain", name, "--horizon", horizon if len(horizon) < 3 else "5")


@fuzz(
    200,
    text=sheets,
    name=files,
    given=options(["--noise", "--norm-bound", "--offset", "--delta", "--length-scale", "--nu"], numbers),
    which=mostly(st.just([]), options(["--target", "--columns", "--ignore", "--kernel"], words)),
    flags=st.lists(st.sampled_from(["--raw", "--skip", "--fixed-design"]), max_size=2),
)
def test_diagnose(tmp_path, text, name, given, which, flags):
    with inside(tmp_path / "here") as here:
        write(here / "file", text, "utf-8")
        call("diagnose", name, "--noise", "0.5", *given, *which, *flags)


@fuzz(
    60,
    candidates=sheets,
    results=sheets,
    space=mutated(SPACE),
    source=mostly(st.just("file"), st.just("space.toml")),
    name=mostly(st.sampled_from(["results", "new.csv"]), st.sampled_from(FILES)),
    target=mostly(st.sampled_from(["yield", "result", "c"]), words),
    given=options(["--noise", "--seed", "--batch"], mostly(st.sampled_from(["1", "2"]), st.sampled_from(NUMBERS[:10]))),
    which=mostly(st.just([]), options(["--names", "--ignore", "--out"], words)),
    flags=st.lists(st.sampled_from(["--minimize", "--append"]), max_size=2, unique=True),
)
def test_suggest(tmp_path, candidates, results, space, source, name, target, given, which, flags):
    with inside(tmp_path / "here") as here:
        write(here / "file", candidates, "utf-8")
        write(here / "results", results, "utf-8")
        (here / "space.toml").write_bytes(space)
        before = {each: each.read_bytes() for each in here.iterdir() if each.is_file()}
        code = call("suggest", source, "--results", name, "--target", target, *given, *which, *flags)
        for file, content in before.items():  # a file is added to, or left as it was
            assert file.read_bytes() == content if code else file.read_bytes().startswith(content)


@fuzz(
    50,
    name=files,
    content=mostly(st.just(SMALL), mutated(EXPERIMENT)),
    given=st.sampled_from([*RUN, *([] for _ in range(4))]),
)
def test_run(tmp_path, name, content, given):
    with inside(tmp_path / "here") as here:
        (here / "file").write_bytes(content)
        cores = [] if "--cores" in given or "--dask" in given else ["--cores", "1"]
        call("run", name, "--into", "results", *cores, *given)


@fuzz(
    25,
    name=st.one_of(st.sampled_from(FILES), st.text(max_size=20)),
    damage=st.sampled_from(["text", "gone", "empty", "folder"]),
)
def test_report_of_what_is_no_folder_of_results(tmp_path, name, damage):
    with inside(tmp_path / "here") as here:
        (here / "results").mkdir()
        if damage == "folder":
            (here / "results" / "experiment.toml").mkdir()
        elif damage != "gone":
            (here / "results" / "experiment.toml").write_bytes(b"" if damage == "empty" else SMALL)
        assert call("report", name) > 0
        assert call("report", "results") == 1


@fuzz(3, name=st.one_of(st.just("é" * 500), st.text("aé<&>$%{/.\u202e\x1b\0 ", min_size=1, max_size=12)))
def test_names_that_people_would_not_give(tmp_path, name):
    with inside(tmp_path / "here") as here:
        said = json.dumps(name)
        text = SMALL.decode().replace('"\\u001b[31mred"', said)
        (here / "file").write_text(f"title = {said}\n{text}name = {said}\n", encoding="utf-8")
        assert call("run", "file", "--cores", "1", "--into", "results") == 0
        assert call("report", "results") == 0
        assert b"\x1b" not in (here / "results" / "report" / "runs.csv").read_bytes()
        page = (here / "results" / "report" / "index.html").read_text(encoding="utf-8")
        assert page.startswith("<!doctype html>")
        assert not {"\x1b", "\u202e", "\0"} & set(page)


@fuzz(
    30,
    space=mostly(st.just(document({"x": {"low": 0.0, "high": 1.0}})), mutated(SPACE)),
    name=mostly(st.just("space.toml"), st.sampled_from(FILES)),
    given=st.sampled_from([*OPTIMIZE, *([] for _ in range(6))]),
    words=mostly(st.just(["echo", "{x}"]), st.sampled_from([["false", "{params}"], ["nowhere"], ["echo", "{"], [""]])),
)
def test_optimize(tmp_path, space, name, given, words):
    with inside(tmp_path / "here") as here:
        (here / "space.toml").write_bytes(space)
        call("optimize", name, "-n", "1", *given, "--", *words)


def test_commands_that_are_none():
    assert call("nothing") == 2
    assert call("demo", "--cores", "nan") == 2
    assert call("demo", "--into", "/dev/null/x", "--cores", "1") == 1
