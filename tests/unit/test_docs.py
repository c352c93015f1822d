"""Code blocks of the README and the docs run, what the docs name exists, and every public name is in the reference."""

import ast
import importlib
import inspect
import re
import sys
import time
import types
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import misspec as ms
from misspec import experiments
from misspec.cli import app
from misspec.testing import CONTRACT

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
ONE_PROGRAM = (
    ROOT / "docs" / "tutorial.md"
)  # whose blocks go on from each other, as it says; elsewhere each stands alone


def blocks(language):
    return [
        pytest.param(block, id=f"{path.name}:{number}", marks=[pytest.mark.botorch] if "botorch" in block else [])
        for path in PAGES
        if path != ONE_PROGRAM
        for number, block in enumerate(found_in(path, language))
    ]


def found_in(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL)


@pytest.mark.parametrize("block", blocks("python"))
def test_code_block_runs(block, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ms.Policy, "clock", staticmethod(time.time))  # as a reader has it; other tests stop it
    script = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", script)  # where what it defines is looked for, as by pickle
    exec(compile(block, "documentation", "exec"), script.__dict__)
    out = capsys.readouterr().out
    assert out
    if "import CONTRACT" in block:
        assert out == f"{len(CONTRACT)} checks passed\n"


def test_the_tutorial_prints_what_it_shows(capsys, tmp_path, monkeypatch):
    """Words as they stand there; numbers may differ a little on other machines. tools/tutorial.py writes them anew."""
    monkeypatch.chdir(tmp_path)
    namespace, parts = {"__name__": "__main__"}, re.split(r"```python\n", ONE_PROGRAM.read_text())[1:]
    assert len(parts) > 8
    for part in parts:
        code, rest = part.split("```", 1)
        exec(compile(code, "tutorial", "exec"), namespace)
        shown = re.match(r"\n\n```text\n(.*?)```", rest, re.DOTALL)
        assert_alike(capsys.readouterr().out, shown[1] if shown else "")
    plt.close("all")
    pictures = re.findall(r"\(images/(tutorial-[\w-]+\.png)\)", ONE_PROGRAM.read_text())
    assert len(pictures) == 2
    for name in pictures:
        drawn, kept = plt.imread(tmp_path / name), plt.imread(ROOT / "docs" / "images" / name)
        assert drawn.shape == kept.shape
        assert np.abs(drawn - kept).mean() < 0.005, f"{name} is not what the tutorial draws: run tools/tutorial.py"


def assert_alike(printed, shown):
    number = r"-?\d+(?:\.\d+)?"
    assert re.sub(number, "#", printed) == re.sub(number, "#", shown)
    a, b = ([float(each) for each in re.findall(number, text)] for text in (printed, shown))
    assert np.allclose(a, b, rtol=0.05, atol=0.02), f"{printed}\n{shown}"


@pytest.mark.parametrize(
    ("change", "passes"), [(("0.44", "0.45"), True), (("0.44", "0.64"), False), (("is", "was"), False)]
)
def test_what_is_alike(change, passes):
    text = "the gap is 0.44 after 200 rounds"
    if passes:
        assert_alike(text.replace(*change), text)
    else:
        with pytest.raises(AssertionError):
            assert_alike(text.replace(*change), text)


@pytest.mark.parametrize("block", blocks("toml"))
def test_experiment_block_is_valid(block):
    assert experiments.parse(block.encode(), "documentation").runs()


def commands(page, files, folder):
    """The lines of a page's shell blocks, with the files that it shows written into the folder."""
    path = ROOT / "docs" / page
    for language, name in files.items():
        assert re.search(rf"`{name}`[^\n]*:\n\n```{language}\n", path.read_text()), (
            f"{page} does not say what {name} is"
        )
        (folder / name).write_text(found_in(path, language)[0])
    return [line for block in found_in(path, "sh") for line in block.splitlines()]


def run(line, *more):
    command, *arguments = line.split()
    assert command == "misspec"
    done = CliRunner().invoke(app, [*arguments, *more])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.usefixtures("undrawn")
def test_commands_of_the_page_on_experiments_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    doing, drawing, gain = commands("experiments.md", {"toml": "ripple.toml"}, tmp_path)
    run(doing, "--cores", "1")
    run(drawing)
    assert "γ" in run(gain)
    page = (tmp_path / "ripple-results" / "report" / "index.html").read_text()
    assert "A ripple that a smooth model cannot explain" in page


def test_commands_of_the_page_on_constants_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    several, one = commands("constants.md", {"csv": "oven.csv"}, tmp_path)
    run(several)
    assert "wrong by at least" in run(one)


def test_commands_of_the_page_on_scripts_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (line,) = commands("script.md", {"py": "train.py", "ini": "space.toml"}, tmp_path)
    run(line.replace("python", sys.executable))
    assert (tmp_path / "space-results" / "index.html").exists()


def test_commands_of_the_page_on_tables_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line, *drawing = commands("table.md", {"csv": "candidates.csv"}, tmp_path)
    run(line)
    results = tmp_path / "results.csv"
    assert results.read_text().count("\n") == 4
    head, *rows = results.read_text().splitlines()
    results.write_text("\n".join([head, *(f"{row}{31 + i}" for i, row in enumerate(rows))]) + "\n")
    for each in drawing:
        run(each)
    for folder in ("picture", "results-report"):
        assert "Optimisation of yield" in (tmp_path / folder / "index.html").read_text()


def test_pictures_and_pages_that_are_linked_exist():
    for path in PAGES:
        for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
        for target in re.findall(r"`((?:docs|examples|benchmarks|src|tests|tools)/[\w./-]+\.\w+)`", path.read_text()):
            assert (ROOT / target).exists(), f"{path.name}: {target}"


def test_links_between_pages_lead_somewhere():
    for path in PAGES:
        prose = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)", prose):
            page = path.parent / target if target else path
            if page.parent.name == "notebooks":  # its page is made of it when the site is built
                page = page.with_suffix(".ipynb")
            assert page.exists(), f"{path.name}: {target}"
            if anchor and page.suffix == ".md" and "reference" not in page.parts:
                heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
                assert anchor in [re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", h).strip().lower()) for h in heads], (
                    f"{path.name}: {target}#{anchor}"
                )


def test_the_readme_is_short():
    seen = re.sub(r"<!--.*?-->", "", (ROOT / "README.md").read_text())
    assert len([word for word in seen.split() if re.search(r"\w", word)]) < 900


def test_every_page_is_in_the_menu():
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = re.findall(r"[\w/-]+\.md", str(menu))
    pages = [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "docs").rglob("*.ipynb"),
    ]  # tools/notebooks.py makes pages of these
    assert sorted(listed) == sorted(str(path.relative_to(ROOT / "docs").with_suffix(".md")) for path in pages)


def test_every_public_name_is_in_the_reference():
    text = "\n".join(path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md"))
    documented = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    assert len(documented) == len(set(documented))
    assert {f"misspec.{name}" for name in ms.__all__ if name != "__version__"} <= set(documented)
    for name in documented:
        assert docstring(name), f"{name} has no docstring"


def docstring(name):
    if name == "misspec.integrations.botorch":  # read, for BoTorch may be missing
        return ast.get_docstring(ast.parse((ROOT / "src" / f"{name.replace('.', '/')}.py").read_text()))
    found = ms
    for part in name.split(".")[1:]:
        found = getattr(found, part, None) or importlib.import_module(f"{found.__name__}.{part}")
    return inspect.getdoc(found)


@pytest.mark.parametrize(
    "neighbour", ["optuna", "sklearn", "botorch", "dask", "suggest", "command", "space_file", "table"]
)
def test_neighbours_are_in_the_reference(neighbour):
    assert f"\n::: misspec.integrations.{neighbour}\n" in (ROOT / "docs" / "reference" / "integrations.md").read_text()


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
