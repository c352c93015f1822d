"""Every example runs, and what it computes is right; what it prints are its own words."""

import re
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


def quickstart(found, _):
    truth = found["truth"]
    reached = {name: truth[policy.recommend().index] / truth.max() for name, policy in found["policies"].items()}
    assert len(reached) == 4
    for name, share in reached.items():
        assert share > 0.9 or name.startswith("GP-UCB"), name
    assert 0.15 < found["problem"].epsilon < 0.25


def box(found, _):
    assert found["policy"].t == 16 + 32 + 20
    assert found["branin"](found["best"].x) > 0.95  # of 0.992
    assert found["box"].contains(found["best"].x[None, :]).all()


def contextual(found, _):
    assert found["policy"].t == 1000
    assert found["lost"] < 0.35 * found["lost_at_random"]
    assert abs(found["best"].x[0] - 0.3) < 0.11


def recommender(found, _):
    policy, clicks, at_random = found["policy"], found["clicks"], found["at_random"]
    assert clicks[-1000:].mean() > 2 * at_random[-1000:].mean()
    told = policy.observations.ids
    assert 0.85 * len(clicks) < policy.t == len(told)  # one in ten never answers, and a crash costs some
    assert 0 < (told < 0).sum() < 100  # what was asked after the last save before the crash
    assert 0 < len(policy.pending) < 100  # those who never answer are given up


def diagnose(found, _):
    assert 0.05 < found["found"].epsilon_lower <= found["true"].epsilon
    assert f"at least {found['found'].epsilon_lower:.3g}" in str(found["found"])


def digits(_, out):
    lines = [re.findall(r"\d\.\d\d", line) for line in out.splitlines()[1:]]
    balancing, cautious, uniform = (float(numbers[-1]) for numbers in lines)
    assert balancing > 0.8
    assert 0.05 < uniform < 0.2
    assert cautious < balancing


def experiment(found, out):
    assert len(found["results"].runs) == found["results"].of == 27
    page = Path(out.split("page:")[1].strip())
    assert page.stat().st_size > 100_000
    table = {(row["epsilon"], row["policy"]): row["regret"] for row in found["regret"].to_dicts()}
    assert table[0.2, "known"] < table[0.2, "GP-UCB"]


def botorch_enlarged(found, _):
    assert len(found["Y"]) == 20
    assert found["branin"](found["best"]) > -5  # points at random have −40 and less
    assert found["policy"].t == 24
    assert found["box"].contains(found["answer"].x[None, :]).all()


def train(found, out):
    assert out == f"accuracy: {found['accuracy']:.4f}\n"
    assert found["accuracy"] > 0.9


def pipeline(found, out):
    assert found["accuracy"] > 0.9
    assert f"in the test {found['accuracy']:.3f}" in out


CHECKS = {"quickstart": quickstart, "box": box, "contextual": contextual, "diagnose": diagnose, "digits": digits}
CHECKS |= {"experiment": experiment, "recommender": recommender, "botorch_enlarged": botorch_enlarged}
CHECKS |= {"train": train, "pipeline": pipeline}


def test_every_example_is_run():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(CHECKS)


FULL_SIZE = ("digits", "experiment")


MARKS = {**dict.fromkeys(FULL_SIZE, pytest.mark.slow), "botorch_enlarged": pytest.mark.botorch}


@pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS.get(n, ())) for n in CHECKS])
def test_example(name, capsys):
    found = runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert out.strip(), "an example shows something"
    CHECKS[name](found, out)
