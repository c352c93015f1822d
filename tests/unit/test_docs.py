"""Code blocks of the README and the docs run, and what the docs name exists."""

import importlib
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from misspec import experiments
from misspec.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language):
    return [
        pytest.param(block, id=f"{path.name}:{number}")
        for path in PAGES
        for number, block in enumerate(re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL))
    ]


@pytest.mark.parametrize("block", blocks("python"))
def test_code_block_runs(block, capsys, tmp_path, monkeypatch):
    if "botorch" in block:
        pytest.importorskip("botorch", reason="BoTorch is not installed; the extra `botorch` brings it")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "documentation", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


@pytest.mark.parametrize("block", blocks("toml"))
def test_experiment_block_is_valid(block):
    assert experiments.parse(block.encode(), "documentation").runs()


def test_commands_of_the_page_on_experiments_run(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "experiments.md").read_text()
    for language, name in (("toml", "ripple.toml"), ("csv", "oven.csv")):
        assert f"`{name}`:" in text
        (tmp_path / name).write_text(re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)[1])
    monkeypatch.chdir(tmp_path)
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert len(lines) == 5
    for line in lines:
        command, *arguments = line.split()
        assert command == "misspec"
        done = CliRunner().invoke(app, [*arguments, *(["--cores", "1"] if arguments[0] == "run" else [])])
        assert done.exit_code == 0, done.output
    assert "wrong by at least" in done.output
    page = (tmp_path / "ripple-results" / "report" / "index.html").read_text()
    assert "A ripple that a smooth model cannot explain" in page


def test_commands_of_the_page_on_tools_run(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "tools.md").read_text()
    for language, name in (("py", "train.py"), ("ini", "space.toml"), ("csv", "candidates.csv")):
        assert f"`{name}`" in text
        (tmp_path / name).write_text(re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)[1])
    monkeypatch.chdir(tmp_path)
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert [line.split()[:2] for line in lines] == [["misspec", "optimize"], ["misspec", "suggest"]]
    for line in lines:
        done = CliRunner().invoke(app, line.replace("python", sys.executable).split()[1:])
        assert done.exit_code == 0, done.output
    assert (tmp_path / "space-results" / "index.html").exists()
    assert (tmp_path / "results.csv").read_text().count("\n") == 4


def test_pictures_and_pages_that_are_linked_exist():
    for path in PAGES:
        for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
        for target in re.findall(r"`((?:docs|examples|benchmarks|tests|tools)/[\w./-]+\.\w+)`", path.read_text()):
            assert (ROOT / target).exists(), f"{path.name}: {target}"


def test_what_the_map_of_the_paper_names_exists():
    text = (ROOT / "docs" / "paper.md").read_text()
    named = re.findall(r"`((?:\w+/)?\w+)\.py: (\w+)((?:\.\w+)*)", text)
    assert len(named) > 20
    for module, name, rest in named:
        found = getattr(importlib.import_module(f"misspec.{module.replace('/', '.')}"), name)
        for part in filter(None, rest.split(".")):
            assert hasattr(found, part) or part in found.__dataclass_fields__, f"{module}: {name}{rest}"
    for module in re.findall(r"`((?:\w+/)?\w+\.py)`", text):
        assert (ROOT / "src" / "misspec" / module).exists() or (ROOT / module).exists(), module
    for number in range(1, 31):
        assert re.search(rf"\({number}\)", text), f"equation ({number}) is not in the map"
