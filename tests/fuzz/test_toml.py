"""TOML files with hostile values: experiments and spaces are what they say, or refused in one sentence."""

import json

import numpy as np
from hypothesis import strategies as st

import misspec as ms
from hostile import attempt, fuzz
from hostile_files import EXPERIMENT, RULED, SPACE, document, mutated
from misspec import experiments as ex
from misspec.domains.rounding import settable_point
from misspec.integrations import space_file


def test_the_good_ones_are_good(tmp_path):
    for problem in EXPERIMENT["problems"][:3]:
        for policy in EXPERIMENT["policies"]:
            table = EXPERIMENT | {"problems": [problem | {"actions": None}], "policies": [policy]}
            table["problems"][0].pop("actions")
            assert ex.parse(document(table | {"epsilons": [0.1]}), "good.toml").runs()
    (tmp_path / "space.toml").write_bytes(document(SPACE))
    assert space_file.read(tmp_path / "space.toml").names == list(SPACE)
    (tmp_path / "space.toml").write_bytes(document(RULED))
    assert space_file.read(tmp_path / "space.toml").rules.texts == RULED["where"]


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


@fuzz(150, content=mutated(RULED))
def test_spaces_with_rules_conditions_and_mixtures(tmp_path, content):
    path = tmp_path / "space.toml"
    path.write_bytes(content)
    found = attempt(lambda: space_file.read(path))
    if found is not None:
        points = found.decode(found.spread(8, 0))
        assert found.contains(points).all()
        assert set(found.params(points[0])) <= set(found.names)
        assert found.contains(found.params(points[0])).all()
        for digits in (2, 4):
            assert found.contains(np.array([settable_point(found, x, digits) for x in points])).all()


WORDS = [
    "where",
    "T",
    "p",
    "<",
    ">",
    "==",
    "200",
    "(",
    ")",
    "+",
    "-",
    "*",
    "/",
    "**",
    "and",
    "or",
    "not",
    "in",
    "[",
    "]",
]
WORDS += [
    "kind",
    "'a'",
    '"b"',
    "`",
    ",",
    ".",
    "min",
    "log",
    "__import__",
    "1e400",
    "lambda",
    ":=",
    "if",
    "else",
    "\x00",
]
GROUND = ms.Space({"T": ms.Float(0, 150), "p": ms.Int(0, 100), "kind": ms.Choice(["a", "b"])})


@fuzz(300, words=st.lists(st.sampled_from(WORDS), max_size=9), space=st.sampled_from(["", " "]))
def test_rules_that_no_grammar_has(words, space):
    rule = space.join(words)
    found = attempt(lambda: ms.Space(GROUND.parameters, where=rule))
    if found is not None:
        assert found.contains(found.decode(found.spread(8, 0))).all()
    table = {"T": [10.0, 120.0, 70.0], "p": [5, 90, 30], "kind": ["a", "b", "b"], "y": [1.0, None, 2.0]}
    listed = attempt(lambda: ms.Finite.from_table(table, target="y", where=rule))
    if listed is not None:
        told = len(listed.observations.y) + len(listed.outside_observations.y)
        assert (told, 1 <= len(listed) <= 3) == (2, True)
