"""TOML files with hostile values: experiments and spaces are what they say, or refused in one sentence."""

import json

from hostile import attempt, fuzz
from hostile_files import EXPERIMENT, SPACE, document, mutated
from misspec import experiments as ex
from misspec.integrations import space_file


def test_the_good_ones_are_good(tmp_path):
    for problem in EXPERIMENT["problems"][:3]:
        for policy in EXPERIMENT["policies"]:
            table = EXPERIMENT | {"problems": [problem | {"actions": None}], "policies": [policy]}
            table["problems"][0].pop("actions")
            assert ex.parse(document(table | {"epsilons": [0.1]}), "good.toml").runs()
    (tmp_path / "space.toml").write_bytes(document(SPACE))
    assert space_file.read(tmp_path / "space.toml").names == list(SPACE)


@fuzz(550, content=mutated(EXPERIMENT))
def test_experiments(content):
    found = attempt(lambda: ex.parse(content, "file.toml"))
    if found is None:
        return
    runs = found.runs() if len(found.all_seeds) < 100 else []
    for run in runs[:3]:
        assert json.loads(json.dumps(run.settings, allow_nan=False)) == run.settings  # what is checked is what is run
        assert len(run.key) == 20
        assert str(run).isprintable()


@fuzz(350, content=mutated(SPACE))
def test_spaces(tmp_path, content):
    path = tmp_path / "space.toml"
    path.write_bytes(content)
    found = attempt(lambda: space_file.read(path))
    if found is not None:
        points = found.decode(found.spread(8, 0))
        assert found.contains(points).all()
        assert set(found.params(points[0])) == set(found.names)
