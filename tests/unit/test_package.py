import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import misspec as ms

ROOT = Path(__file__).parents[2]


def test_importing_is_light():
    heavy = [
        "sklearn",
        "scipy.stats",
        "scipy.optimize",
        "scipy.spatial",
        "typer",
        "rich",
        "IPython",
        "matplotlib",
        "clarabel",
        "torch",
        "polars",
    ]
    code = f"import sys, misspec; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_exist():
    for name in ms.__all__:
        assert getattr(ms, name) is not None


def test_the_version_stands_in_one_place():
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in described["project"]
    assert described["project"]["dynamic"] == ["version"]
    assert described["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "misspec.__version__"}}
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == ms.__version__
    released = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == ms.__version__


def test_supported_pythons_are_those_that_ci_runs():
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = [each.split()[-1] for each in described["classifiers"] if re.search(r":: 3\.\d+$", each)]
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    assert jobs["ci"]["strategy"]["matrix"]["python"] == said
    assert described["requires-python"] == f">={said[0]}"


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_workflows_and_templates_parse(path):
    content = yaml.safe_load(path.read_text())
    assert content["name"]
    if path.parent.name == "workflows":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        for job in content["jobs"].values():
            for command in filter(None, (step.get("run") for step in job["steps"])):
                first, *rest = command.split()
                if first == "make":
                    assert rest[0] in targets, command
                elif first != "gh":  # GitHub's own tool
                    assert (ROOT / first).stat().st_mode & 0o100, command
    else:
        assert [part["id"] for part in content["body"]][-1] in ("state", "version")


def test_what_is_no_module_is_in_the_wheel():
    """CI installs the wheel and looks; here the patterns must cover every file, so that nobody waits for CI."""
    source = ROOT / "src" / "misspec"
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["misspec"]
    covered = {path for pattern in patterns for path in source.glob(pattern)}
    files = {path for path in source.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert files == covered


def test_the_kind_of_domain_is_asked_for_in_one_place():
    """Policies go through their field: a new kind of domain is no policy's business."""
    asking = re.compile(
        r"isinstance\([^)]*\b(Finite|Box|Tracked)\b|hasattr\(domain|given\.kind|domain\.kind|[!=]= *\"(Finite|Box)\""
    )
    package = Path(ms.__file__).parent
    paths = [path for folder in ("policies", "comparators") for path in (package / folder).rglob("*.py")]
    lines = [(path.name, line) for path in paths for line in path.read_text().splitlines()]
    found = [(name, line.strip()) for name, line in lines if asking.search(line)]
    assert 2 <= len(found) <= 4, found
    assert {name for name, _ in found} == {"fields.py"}
