import subprocess
import sys

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
