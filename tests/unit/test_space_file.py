"""Spaces in TOML files."""

import pytest

import misspec as ms
from misspec.errors import InvalidInput
from misspec.integrations import space_file


def written(tmp_path, text):
    path = tmp_path / "space.toml"
    path.write_text(text, encoding="utf-8")
    return path


EVERYTHING = """
lr = { low = 1e-5, high = 0.1, log = true }
depth = { low = 1, high = 12 }
units = { low = 16, high = 64, step = 16 }
dropout = { low = 0, high = 0.5, step = 0.1 }
whole = { kind = "float", low = 0, high = 1 }
booster = ["tree", "; rm -rf x", 3, true]
fixed = 7
"""
MEANT = ms.Space({
    "lr": ms.Float(1e-5, 0.1, log=True),
    "depth": ms.Int(1, 12),
    "units": ms.Int(16, 64, step=16),
    "dropout": ms.Float(0, 0.5, step=0.1),
    "whole": ms.Float(0, 1),
    "booster": ms.Choice(["tree", "; rm -rf x", 3, True]),
    "fixed": ms.Choice([7]),
})  # fmt: skip


@pytest.mark.parametrize("head", ["", "[parameters]\n"])
def test_every_kind_of_parameter(tmp_path, head):
    assert space_file.read(written(tmp_path, head + EVERYTHING)).settings() == MEANT.settings()


def test_other_words_for_the_same(tmp_path):
    text = """
    [lr]
    type = "Float"
    min = 1e-5
    max = 0.1
    [depth]
    kind = "integer"
    low = 1
    high = 3
    [booster]
    kind = "Choice"
    choices = ["a", "b"]
    """
    space = ms.Space({"lr": ms.Float(1e-5, 0.1), "depth": ms.Int(1, 3), "booster": ms.Choice(["a", "b"])})
    assert space_file.read(written(tmp_path, text)).settings() == space.settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no parameter"),
        ("a = ", "is not a TOML file"),
        ("a = { low = 1 }", r"parameter 'a': int needs high and low, high is missing"),
        ("a = { low = 2, high = 1 }", "parameter 'a': an Int needs low ≤ high"),
        ("a = { low = 0.0, high = 1, options = [1] }", "parameter 'a': choice needs options, and has no high"),
        ("a = { low = 0.0, high = 1, hgih = 2 }", "unknown key 'hgih'; did you mean 'high'"),
        ("a = { low = 0.0, min = 0.0, high = 1 }", "says the same as another key"),
        ('a = { kind = "real", low = 0.0, high = 1 }', "unknown kind 'real'"),
        ("a = []", "parameter 'a': a Choice needs at least one option"),
        ("a = [[1]]", "parameter 'a': options of a Choice must be text"),
        ("b = 3\n[parameters]\na = [1, 2]", "beside \\[parameters\\] nothing is known but rules \\(where\\), got b"),
        ("parameters = 3", "nothing is known"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
    with pytest.raises(InvalidInput, match=message):
        space_file.read(written(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InvalidInput, match="does not exist"):
        space_file.read(tmp_path / "none.toml")
    with pytest.raises(InvalidInput, match="cannot read"):
        space_file.read(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"a = ['\xe4']")
    with pytest.raises(InvalidInput, match="not a TOML file"):
        space_file.read(tmp_path / "latin.toml")


RULES = """
where = ["lr * depth < 0.5", "booster == 'tree' or lr > 1e-4"]
[parameters]
lr = { low = 1e-5, high = 0.1, log = true }
booster = ["tree", "linear"]
depth = { low = 1, high = 12, when = { booster = "tree" } }
kind = { options = ["a", "b"], when = { booster = ["linear"] } }
blend = { mixture = ["x", "y", "z"], total = 100, at_most = 2 }
"""


def test_rules_conditions_and_mixtures(tmp_path):
    meant = ms.Space(
        {
            "lr": ms.Float(1e-5, 0.1, log=True),
            "booster": ms.Choice(["tree", "linear"]),
            "depth": ms.Int(1, 12, when={"booster": "tree"}),
            "kind": ms.Choice(["a", "b"], when={"booster": "linear"}),
            "blend": ms.Mixture(["x", "y", "z"], total=100, at_most=2),
        },
        where=["lr * depth < 0.5", "booster == 'tree' or lr > 1e-4"],
    )
    assert space_file.read(written(tmp_path, RULES)).settings() == meant.settings()
    above = RULES.replace("[parameters]\n", "").replace("mixture =", "parts =")
    assert space_file.read(written(tmp_path, above)).settings() == meant.settings()
    first, *others = RULES.strip().splitlines()
    below = "\n".join([*others, first])  # as a key of [parameters], to TOML
    assert space_file.read(written(tmp_path, below)).settings() == meant.settings()


def test_a_parameter_called_where_is_a_table(tmp_path):
    space = space_file.read(written(tmp_path, 'where = { options = ["lab", "home"] }\n'))
    assert space.settings() == ms.Space({"where": ms.Choice(["lab", "home"])}).settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a = [1, 2]\nwhere = "b < 2"', "rule 'b < 2': 'b' is not a parameter"),
        ('a = [1, 2]\nwhere = ["lab", "home"]', r"a parameter of that name is where = \{ options = "),
        ('a = [1, 2]\nwhere = "a > 2"', "no point was found at which 'a > 2' holds; nearest is {'a': 2}"),
        ("where = 3\n[parameters]\na = [1, 2]", r"nothing is known but rules \(where\), got 3"),
        ("a = { low = 0, high = 1, when = 3 }", "parameter 'a': when must be options of other parameters by name"),
        ("a = { low = 0, high = 1, when = { b = 1 } }", "parameter 'a': when={'b': …} names no parameter"),
        ("b = [1, 2]\na = { low = 0, high = 1, when = { b = 3 } }", "parameter 'a': when={'b': …}: an option must be"),
        ("m = { mixture = ['a'] }", "parameter 'm': a Mixture takes at least two names of parts"),
        ("m = { mixture = ['a', 'b'], low = 1 }", "parameter 'm': mixture needs mixture, and has no low"),
        ("m = { mixture = ['a', 'b'] }\na = [1, 2]", "parameters of a Space must have different names, got 'a' twice"),
    ],
)
def test_what_is_wrong_with_rules_conditions_and_mixtures_is_named(tmp_path, text, message):
    with pytest.raises(InvalidInput, match=message):
        space_file.read(written(tmp_path, text))
