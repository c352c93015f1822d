"""Figures in README.md and docs are those of benchmarks/results/; how benchmarks keep them."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def modules(monkeypatch, tmp_path):
    """benchmarks/record.py and tools/figures.py, working in a folder of the test."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import figures
    import record

    figures._figures.cache_clear()
    monkeypatch.setattr(record, "source", lambda: "code")  # which takes a second to read
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(record, "QUICK", tmp_path / "quick")
    yield record, figures
    figures._figures.cache_clear()
    for name in ("figures", "record"):
        sys.modules.pop(name)


@pytest.fixture
def page(modules, tmp_path, monkeypatch):
    """A README with two figures in a sentence and three in a table, as measured."""
    record, figures = modules
    kept = {"a.60": record.Figure(-1.04, error=0.52, form="+.1f"), "b": record.Figure(28, of=34)}
    record.Record("speed", protocol="p").put("all", {**kept, "c": record.Figure(2, low=1.5, high=3)})
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text(
        "Misses <!--speed:a.60-->−1.0 ± 0.5<!--/--> less on <!--speed:b-->28 of 34<!--/-->.\n\n"
        "| peer | missed | good | of | note |\n|---|---|---|---|---|\n"
        "| TPE <!--speed:a.60 b a.60~--> | −1.0 ± 0.5 | 28 of 34 | −1.0 | mine |\n"
    )
    monkeypatch.setattr(figures, "written", lambda text, write=figures.written: write(text, record.RESULTS))
    return readme


def test_texts_say_what_was_measured():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "figures.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_results_say_where_they_come_from_and_name_no_machine():
    files = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    assert files
    for path in files:
        text = path.read_text()
        for part in json.loads(text).values():
            wanted = {"date", "commit", "source", "protocol", "versions", "machine"}
            assert wanted <= part["measured"].keys(), path.name
        assert "/home" not in text
        assert "/work" not in text


@pytest.mark.parametrize(
    ("old", "new"), [("1.0 ± 0.5<", "1.1 ± 0.5<"), ("28 of 34 |", "29 of 34 |"), ("| −1.0 |", "| 1 |")]
)
def test_a_text_that_differs_is_found_and_mended(modules, page, capsys, old, new):
    _, figures = modules
    right = page.read_text()
    assert figures.main(["--check"]) == 0
    assert old in right
    page.write_text(right.replace(old, new))
    assert figures.main(["--check"]) == 1
    assert "README.md:" in capsys.readouterr().out
    assert figures.main([]) == 0
    assert page.read_text() == right


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a <!--speed:zz-->1<!--/-->", "has no figure 'zz'"),
        ("a <!--slow:b-->1<!--/-->", "there is no slow.json"),
        ("| a <!--speed:b b b--> | 1 | 2 |", "3 figures for 2 cells"),
        ("<!--speed:b-->28 of 34<!--/--> win", "begin it with a word"),
    ],
)
def test_a_marker_without_a_figure_is_an_error(modules, page, capsys, text, said):
    _, figures = modules
    page.write_text(text)
    assert figures.main(["--check"]) == 1
    assert said in capsys.readouterr().out
    assert figures.main([]) == 1
    assert page.read_text() == text


def test_how_figures_are_written(modules):
    record, _ = modules
    figure = record.Figure
    assert str(figure(-0.034, low=-0.1, high=0.2)) == "−0.03 [−0.10 to 0.20]"
    assert str(figure(1234.0, form=",.0f")) == "1,234"
    assert figure(-1.0, error=0.5, form="+.1f").short() == "−1.0"
    assert str(record.around([3, 1, 2, 10])) == "2.50 [1.00 to 10.00]"


def test_a_part_is_measured_once_per_code_and_protocol(modules):
    record, _ = modules
    played = []

    def part(name, value):
        return lambda: played.append(name) or {name: record.Figure(value)}

    first = record.Record("x", protocol="p")
    first.measure("one", part("a", 1.0))
    with pytest.raises(ZeroDivisionError):
        first.measure("two", lambda: 1 / 0)  # stopped half-way
    again = record.Record("x", protocol="p")
    again.measure("one", part("a", 7.0))
    again.measure("two", part("b", 2.0))
    assert played == ["a", "b"]
    assert {key: figure.value for key, figure in record.figures(again.path).items()} == {"a": 1.0, "b": 2.0}
    record.Record("x", protocol="other").measure("one", part("a", 3.0))
    changed = record.Record("x", protocol="other")
    changed.source = "other code"
    changed.measure("one", part("a", 4.0))
    assert played == ["a", "b", "a", "a"]
    assert record.figures(again.path)["b"].value == 2.0, "other parts stay"


def test_a_file_that_cannot_be_written_stays_as_it_was(modules):
    record, _ = modules
    kept = record.Record("x", protocol="p")
    kept.put("one", {"a": record.Figure(1.0)})
    before = kept.path.read_bytes()
    with pytest.raises(ValueError, match="both have figures called"):
        kept.put("two", {"a": record.Figure(2.0)})
    with pytest.raises(ValueError, match="JSON"):
        kept.put("three", {"n": record.Figure(float("nan"))})
    assert kept.path.read_bytes() == before
    kept.put("four", {"d": record.Figure(4.0)})
    assert set(record.figures(kept.path)) == {"a", "d"}


def test_quick_figures_are_kept_apart(modules):
    record, _ = modules
    record.Record("x", protocol="p", quick=True).put("one", {"a": record.Figure(1.0)})
    assert (record.QUICK / "x.json").exists()
    assert not record.RESULTS.exists()


def test_the_digest_is_of_what_code_does(modules, tmp_path):
    record, _ = modules
    file = tmp_path / "a.py"
    seen = []
    for text in (
        'def f(x):\n    """Says this."""\n    return x + 1\n',
        'def f(x):\n    """Says that."""\n\n    return x + 1  # a comment\n',
        "def f(x):\n    return x + 2\n",
    ):
        file.write_text(text)
        seen.append(record.digest([file]))
    assert seen[0] == seen[1] != seen[2]


def test_the_machine_is_described_without_its_name(modules):
    record, _ = modules
    assert platform.node() not in json.dumps(list(record.machine().values()))
    assert record.machine()["usable"] >= 1


@pytest.mark.slow
def test_a_benchmark_runs_quickly_and_only_once():
    """The Auto of `make bench QUICK=1`: three problems, 30 rounds, beside the peers' runs that are kept."""
    kept = ROOT / "benchmarks" / ".cache" / "quick" / "practical.json"
    kept.unlink(missing_ok=True)
    command = [sys.executable, ROOT / "benchmarks" / "practical.py", "--quick", "--jobs", "1"]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert "less the peer" in first
    assert second.count("measured before") == 2
    assert {"optuna_tpe.30.missed", "aim=earn.optuna_tpe.30.missed"} <= {
        key for part in json.loads(kept.read_text()).values() for key in part["figures"]
    }
