import runpy
from pathlib import Path

import pytest

EXAMPLES = {
    "quickstart": "regret a round",
    "box": "the best is 0.992",
    "contextual": "regret a round",
    "diagnose": "wrong by at least 0.1",
    "digits": "accuracy by round",
    "experiment": "report/index.html",
}
FOLDER = Path(__file__).parents[2] / "examples"


def test_every_example_is_run():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(name, capsys):
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert EXAMPLES[name] in capsys.readouterr().out
