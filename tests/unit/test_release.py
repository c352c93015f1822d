"""The release: versions that agree, the lowest ones of dependencies, the tool that prepares it, OptunaHub's package."""

import datetime
import importlib.machinery
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import optuna
import pytest
import yaml

from misspec.integrations.optuna import MisspecSampler

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HUB = ROOT / "optunahub"


def pins(name):
    lines = (ROOT / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def test_the_lowest_versions_are_those_that_are_tested():
    extras = PROJECT["optional-dependencies"]
    needs = [
        *PROJECT["dependencies"],
        *(each for name in extras if name not in ("test", "lint", "docs") for each in extras[name]),
    ]
    floors = dict(re.sub(r"\[.*\]", "", each).split(">=") for each in needs)
    assert len(floors) > 10
    lowest, newest = pins("constraints-lowest.txt"), pins("constraints.txt")
    for name, floor in floors.items():
        assert lowest[name].removesuffix(".0").removesuffix(".0") == floor.removesuffix(".0").removesuffix(".0"), name
        assert tuple(map(int, newest[name].split("."))) >= tuple(map(int, lowest[name].split("."))), name


def test_the_address_stands_in_one_form():
    home = PROJECT["urls"]["Homepage"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["repository-code"] == home
    assert cited["url"] == PROJECT["urls"]["Documentation"]
    assert all(PROJECT["urls"][name].startswith(home) for name in ("Changelog", "Issues"))


@pytest.fixture
def tree(tmp_path):
    """The files that a version is written into, and the tool, in a tree of their own."""
    for name in ("tools/release", "src/misspec/__init__.py", "CITATION.cff", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = f"# Changelog\n\n## Unreleased\n\n- New.\n\n## {version_in(tmp_path)}\n\n- First.\n"
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    return tmp_path


def version_in(tree):
    return re.search(r'__version__ = "(.+)"', (tree / "src/misspec/__init__.py").read_text())[1]


def tool(tree, *arguments, code=0):
    done = subprocess.run([sys.executable, tree / "tools/release", *arguments], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def the_tool(tree):
    path = tree / "tools" / "release"
    loader = importlib.machinery.SourceFileLoader("release_tool", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("release_tool", loader))
    loader.exec_module(module)
    return module


def test_files_that_agree_on_a_version_pass(tree):
    version = version_in(tree)
    for said in ((), (version,), (f"v{version}",)):
        assert version in tool(tree, "--check", *said)
    assert tool(tree, "--notes") == "- First.\n"
    assert "not 9.9.9" in tool(tree, "--check", "v9.9.9", code=1)


@pytest.mark.parametrize(
    ("name", "pattern", "text", "said"),
    [
        ("CITATION.cff", r"^version: .*", "version: 9.0.0", "CITATION.cff says 9.0.0"),
        ("CITATION.cff", r"^date-released: .*", "date-released: soon", "must be a date"),
        ("CITATION.cff", r"^date-released: .*\n", "", "0 times"),
        ("CHANGELOG.md", r"^## \d.*", "## 9.0.0", "needs a heading"),
        ("CHANGELOG.md", r"- First\.\n", "", "needs a heading"),
        ("src/misspec/__init__.py", r"^__version__.*", '__version__ = "9.0.0"', "misspec.__version__ is 9.0.0"),
    ],
)
def test_files_that_do_not_agree_are_refused(tree, name, pattern, text, said):
    before = (tree / name).read_text()
    changed, count = re.subn(pattern, text, before, flags=re.MULTILINE)
    assert count == 1
    (tree / name).write_text(changed)
    assert said in tool(tree, "--check", code=1)


def test_a_new_version_is_written_everywhere(tree):
    module, rest = the_tool(tree), (tree / "CITATION.cff").read_text().count("\n")
    module.prepare(tree, "9.1.0", datetime.date(2031, 2, 3))
    assert module.stands(tree) == "9.1.0"
    assert version_in(tree) == "9.1.0"
    cited = yaml.safe_load((tree / "CITATION.cff").read_text())
    assert (cited["version"], str(cited["date-released"])) == ("9.1.0", "2031-02-03")
    assert (tree / "CITATION.cff").read_text().count("\n") == rest
    assert list(module.sections((tree / "CHANGELOG.md").read_text()).items())[:2] == [
        ("Unreleased", ""),
        ("9.1.0", "- New."),
    ]


@pytest.mark.parametrize(
    ("version", "said"), [("9.1", "a version is like"), (None, "already"), ("9.1.0", "nothing below")]
)
def test_a_version_that_cannot_be_released_changes_nothing(tree, version, said):
    module = the_tool(tree)
    if said == "nothing below":
        (tree / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 0.0.1\n\n- First.\n")
    before = {name: (tree / name).read_bytes() for name in module.WRITTEN}
    with pytest.raises(module.Refused, match=said):
        module.prepare(tree, version or version_in(tree), datetime.date(2031, 2, 3))
    assert {name: (tree / name).read_bytes() for name in module.WRITTEN} == before


@pytest.fixture
def hub(monkeypatch):
    """OptunaHub's loader, which takes a package from its folder."""

    def load_module(package):
        assert package == "samplers/misspec"
        where = importlib.util.spec_from_file_location("misspec_hub", HUB / "__init__.py")
        module = importlib.util.module_from_spec(where)
        where.loader.exec_module(module)
        return module

    monkeypatch.setitem(sys.modules, "optunahub", types.SimpleNamespace(load_module=load_module))
    return load_module


def test_the_package_for_optunahub_is_complete(hub):
    _, front, text = (HUB / "README.md").read_text().split("---\n", 2)
    said = yaml.safe_load(front)
    assert set(said) == {"author", "title", "description", "tags", "optuna_versions", "license"}
    assert "sampler" in said["tags"]
    assert said["license"] == "MIT License"
    assert said["optuna_versions"] == [pins(name)["optuna"] for name in ("constraints-lowest.txt", "constraints.txt")]
    for heading in ("Abstract", "Class or Function Names", "Installation", "Example"):
        assert f"\n## {heading}\n" in text
    assert (HUB / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    module = hub(package="samplers/misspec")
    assert module.__all__ == ["MisspecSampler"]
    assert module.MisspecSampler is MisspecSampler
    assert "- MisspecSampler\n" in text


@pytest.mark.usefixtures("hub")
def test_the_examples_for_optunahub_run(capsys):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    (block,) = re.findall(r"```python\n(.*?)```", (HUB / "README.md").read_text(), re.DOTALL)
    for source, trials, good in ((block, 30, 1.0), ((HUB / "example.py").read_text(), 40, 1.5)):
        names = {"__name__": "__main__"}
        exec(compile(source, "example", "exec"), names)
        assert capsys.readouterr().out.strip()
        assert len(names["study"].trials) == trials
        assert isinstance(names["study"].sampler, MisspecSampler)
        assert names["study"].best_value < good
