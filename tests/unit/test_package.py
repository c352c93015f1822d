import re
import subprocess
import sys
from pathlib import Path

import misspec as ms


def test_importing_is_light():
    heavy = [
        "sklearn",
        "scipy.stats",
        "scipy.optimize",
        "scipy.spatial",
        "typer",
        "rich",
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


def test_the_kind_of_domain_is_asked_for_in_one_place():
    """Policies go through their field: a new kind of domain is no policy's business."""
    asking = re.compile(
        r"isinstance\([^)]*\b(Finite|Box|Tracked)\b|hasattr\(domain|given\.kind|domain\.kind|[!=]= *\"(Finite|Box)\""
    )
    folder = Path(ms.__file__).parent / "policies"
    lines = [(path.name, line) for path in folder.glob("*.py") for line in path.read_text().splitlines()]
    found = [(name, line.strip()) for name, line in lines if asking.search(line)]
    assert 2 <= len(found) <= 4, found
    assert {name for name, _ in found} == {"field.py"}
