"""`misspec suggest` with rules, mixtures and parameters that exist only sometimes, and with results off the grid."""

import csv
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import misspec as ms
from misspec.cli import app
from misspec.domains.rounding import MOST_DIGITS, settable, settable_point
from misspec.errors import InvalidInput
from misspec.integrations import space_file
from misspec.integrations.suggest import append, suggest

SPACE = """
where = "T + p < 200"
T = { low = 0.0, high = 150.0, step = 5 }
p = { low = 0.0, high = 100.0 }
kind = ["svm", "rf"]
C = { low = 1e-3, high = 1e3, log = true, when = { kind = "svm" } }
n = { options = [10, 20, 40], when = { kind = "rf" } }
blend = { mixture = ["a", "b", "c"], total = 100, at_most = 2 }
"""
HEAD = "T,p,kind,C,n,a,b,c,y\n"
ROWS = "50,20,svm,1,,33.3,66.7,0,1.5\n20,10,svm,0.1,,100,0,0,2\n25,10,rf,,10,0,0,100,failed\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("space.toml").write_text(SPACE)
    Path("results.csv").write_text(HEAD + ROWS)


def rows_of(path="results.csv"):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def spaces(**options):
    return suggest("space.toml", "results.csv", "y", **options)


# -- spaces ------------------------------------------------------------------------------------------------------------


def test_what_is_suggested_keeps_rules_sums_and_conditions():
    space = space_file.read("space.toml")
    for turn in range(3):
        before = len(rows_of())
        append("space.toml", "results.csv", "y", batch=3, seed=turn)
        new = rows_of()[before:]
        assert len(new) == 3
        for row in new:
            assert sum(Decimal(row[part]) for part in "abc") == 100
            assert sum(Decimal(row[part]) > 0 for part in "abc") <= 2
            assert Decimal(row["T"]) + Decimal(row["p"]) < 200
            assert (row["C"] == "", row["n"] == "") == (row["kind"] == "rf", row["kind"] == "svm")
            given = {name: cell if name == "kind" else float(cell) for name, cell in row.items() if cell}
            assert space.contains(given).all()
        text = Path("results.csv").read_text()
        for number in range(3):
            text = text.replace(",\n", f",{turn + number}\n", 1)
        Path("results.csv").write_text(text)
    assert spaces().told == 11


def test_results_that_are_none_of_the_spaces_are_data_with_a_word_each():
    odd = "74,20,rf,,30,50,50,0,2.5\n150,99,rf,3,20,50,40,9,3.5\n150,120,svm,3,,50,50,0,2\n"
    Path("results.csv").write_text(HEAD + ROWS + odd)
    found = spaces()
    for note in [
        "results.csv, line 6, column 'C': does not count, C exists only where kind is svm.",
        "Learnt from, though it lies between the values that space.toml has: T in line 5, n in line 5.",
        "Learnt from, though it is no mixture as space.toml has it (shares sum to 100, at most 2 of them not zero): "
        "line 6.",
        "Learnt from, though it breaks the rule 'T + p < 200' of space.toml: line 6, line 7.",
        "Learnt from, though it lies outside space.toml: p in line 7.",
    ]:
        assert note in found.notes
    assert found.told == 5
    x = np.array([each.key for each in found.file.entries])
    assert x[3].tolist() == [74, 20, 1, 1e-3, 1.5, 50, 50, 0]  # as it was run; what does not exist has its first value
    assert x[4][3] == 1e-3  # whatever the cell says


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("74,20,rf,,20,50,50,0,1", "line 2, column 'T': expected a number, 0.0 plus a multiple of 5.0, got '74'"),
        ("75,20,rf,,30,50,50,0,1", r"line 2, column 'n': expected one of the 3 values in space.toml \(10, 20, 40\)"),
        ("75,20,rf,,20,50,40,0,1", "results.csv: line 2 is no mixture as space.toml has it"),
        ("150,99,rf,,20,50,50,0,1", "results.csv: line 2 breaks the rule 'T . p < 200' of space.toml; correct it, or"),
        ("5,120,rf,,20,50,50,0,1", "results.csv: p in line 2 lies outside space.toml; correct it, or leave --strict"),
    ],
)
def test_the_strict_refuse_them(row, message):
    Path("results.csv").write_text(HEAD + row + "\n")
    assert spaces().told == 1
    with pytest.raises(InvalidInput, match=message):
        spaces(strict=True)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("50,20,svm,,,50,50,0,1", r"column 'C': expected a number above 0 .*, the cell is empty"),
        ("50,20,rf,,,50,50,0,1", r"column 'n': expected one of the 3 values .*, the cell is empty"),
        ("50,20,rf,,20,-1,50,51,1", r"column 'a': expected a share, 0 to 100, got '-1'"),
        ("50,20,rf,,20,50,50,,1", r"column 'c': expected a share, 0 to 100, the cell is empty"),
    ],
)
def test_cells_that_must_have_a_value(row, message):
    Path("results.csv").write_text(HEAD + row + "\n")
    with pytest.raises(InvalidInput, match=message):
        spaces()


def test_rules_of_a_space_stand_in_its_file():
    with pytest.raises(InvalidInput, match=r"space.toml has its rules in it: write where = \['T < 3'\] above"):
        spaces(where=["T < 3"])


def test_the_summary_names_what_exists_and_keeps_the_rules():
    more = "".join(f"{5 * i},{100 - i},rf,,20,{10 * i},{100 - 10 * i},0,{i}\n" for i in range(8))
    Path("results.csv").write_text(HEAD + more)
    said = next(line for line in spaces().summary if line.startswith("Use"))
    values = dict(part.split(" = ") for part in said.removeprefix("Use ").partition(":")[0].split(", "))
    assert set(values) == {"T", "p", "kind", "n", "a", "b", "c"}
    assert Decimal(values["T"]) + Decimal(values["p"]) < 200
    assert sum(Decimal(values[part]) for part in "abc") == 100


def test_a_small_space_with_a_rule_is_listed_and_exhausted():
    Path("small.toml").write_text('x = [1, 2, 3]\ny = { low = 1, high = 3 }\nwhere = "x + y <= 3"\n')
    found = suggest("small.toml", "none.csv", "z", batch=9)
    assert sorted(list(row.values.values()) for row in found.rows) == [[1, 1], [1, 2], [2, 1]]
    assert found.notes[-1].startswith("Every point of the space has a result or is suggested here")


# -- rounding ----------------------------------------------------------------------------------------------------------


def test_rounding_is_the_nearest_where_nothing_forbids_it():
    space = ms.Space({"x": ms.Float(0, 100), "y": ms.Float(1e-3, 1, log=True), "k": ms.Int(1, 9)})
    x = np.array([33.3333, 0.0123456, 4.0])
    assert settable_point(space, x) == tuple(
        settable(p, each) for p, each in zip(space.parameters.values(), x.tolist(), strict=True)
    )
    assert settable_point(space, x) == (33.3, 0.01235, 4.0)


def test_rounding_keeps_rules_and_takes_more_digits_where_it_must():
    down = ms.Space({"x": ms.Float(0, 100), "y": ms.Float(0, 100)}, where="x + y < 100")
    assert settable_point(down, np.array([50.04, 49.959])) == (50.0, 49.9)  # of x down, or y, the one that is nearer
    narrow = ms.Space({"x": ms.Float(0, 100)}, where=["x > 33.331", "x < 33.339"])
    assert settable_point(narrow, np.array([33.3333])) == (33.333,)
    never = ms.Space({"x": ms.Float(0, 100)}, where=lambda point: point["x"] < 1 or point["x"] == 100 / 3)
    assert settable_point(never, np.array([100 / 3])) == (100 / 3,)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), total=st.sampled_from([1.0, 100.0, 12.5, 0.3]), most=st.integers(1, 5))
def test_rounded_points_are_legal_and_blends_sum_up_exactly(seed, total, most):
    rng = np.random.default_rng(seed)
    limit = total * rng.uniform(0.4, 1.5)
    space = ms.Space(
        {
            "blend": ms.Mixture(list("abcde"), total=total, at_most=most),
            "x": ms.Float(0.0, total),
            "y": ms.Float(1e-4, 1.0, log=True),
        },
        where=[f"a + x <= {limit!r}", "x * y < 0.5"],
    )
    for _ in range(5):
        x = space.draw(rng)[0]
        found = settable_point(space, x)
        assert space.contains(np.array([found])).all()
        assert sum(Decimal(repr(each)) for each in found[:5]) == Decimal(repr(total))
        assert np.abs(np.array(found) - x)[5:].max() < 10.0 ** (1 - 3) * max(total, 1.0)
        assert settable_point(space, np.array(found), MOST_DIGITS) == found  # which has nothing left to be rounded


# -- tables ------------------------------------------------------------------------------------------------------------

CANDIDATES = """id,solvent,T,p
R1,water,60,150
R2,water,90,100
R3,ethanol,60,100
R4,ethanol,75,100
R5,toluene,60,100
R6,toluene,90,150
R7,toluene,110,100
R8,ethanol,50,100
"""


@pytest.mark.parametrize("names", [None, "id"])
def test_rows_of_a_table_that_break_a_rule_are_data_and_no_candidates(names):
    Path("candidates.csv").write_text(CANDIDATES)
    Path("r.csv").write_text("id,solvent,T,p,y\nR1,water,60,150,3\nR2,water,90,100,5\nR6,toluene,90,150,\n")
    options = {"names": names, "ignore": () if names else ["id"], "batch": 9}
    found = suggest("candidates.csv", "r.csv", "y", where=["T + p < 200"], **options)
    assert (found.told, found.running) == (2, 1)
    assert {row.values["id"] for row in found.rows} == {"R3", "R4", "R5", "R8"}  # R2 has a result
    assert "Not suggested, as they break 'T + p < 200': 3 of 8 candidates of candidates.csv." in found.notes
    rule = "breaks the rule 'T + p < 200', which holds for candidates.csv"
    assert f"Learnt from, though it {rule}: line 2, line 4." in found.notes
    assert all(int(row.values["T"]) + int(row.values["p"]) < 200 for row in found.rows)
    with pytest.raises(InvalidInput, match=r"r.csv: line 2 breaks the rule"):
        suggest("candidates.csv", "r.csv", "y", where=["T + p < 200"], strict=True, **options)


def test_results_in_the_file_of_candidates_count_where_a_rule_forbids_them():
    lines = CANDIDATES.splitlines()
    Path("candidates.csv").write_text(
        "\n".join([lines[0] + ",y", lines[1] + ",9", *(f"{each}," for each in lines[2:])])
    )
    found = suggest("candidates.csv", target="y", ignore=["id"], where=["T + p < 200"], batch=9)
    assert found.told == 1
    assert len(found.rows) == 5
    assert "R1" not in {row.values["id"] for row in found.rows}


def test_wrong_rules_of_a_table():
    Path("candidates.csv").write_text(CANDIDATES)
    for rule, message in [
        ("T + q < 200", "rule 'T . q < 200': 'q' is not a parameter"),
        ("T < 0", "no row of candidates.csv keeps 'T < 0'; nearest is {'id': 'R8', .*; relax the rule"),
        ("T <", "rule 'T <': it cannot be read"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            suggest("candidates.csv", "none.csv", "y", names="id", where=[rule])


def test_the_command_takes_rules():
    Path("candidates.csv").write_text(CANDIDATES)
    line = ["suggest", "candidates.csv", "--results", "r.csv", "--target", "y", "--names", "id", "--batch", "9"]
    ran = CliRunner().invoke(app, [*line, "--where", "T + p < 200", "--where", "solvent != 'ethanol'", "--append"])
    assert ran.exit_code == 0, ran.output
    assert [row["id"] for row in rows_of("r.csv")] in (["R2", "R5"], ["R5", "R2"])
    ran = CliRunner().invoke(app, ["suggest", "space.toml", "--results", "results.csv", "--target", "y"])
    assert "–" in ran.output


def test_a_name_that_needs_backticks_is_named_with_them():
    for text in ("flow (ml/h) < 1", "flow (ml/h) <", "T + flow (ml/h) < 3"):
        with pytest.raises(InvalidInput) as said:
            ms.Space({"T": ms.Float(0, 1), "yes no": ms.Float(0, 1), "flow (ml/h)": ms.Float(0, 1)}, where=text)
        assert "backticks: `flow (ml/h)` (in a shell, the rule in single quotes: '`flow (ml/h)` < 1')" in str(
            said.value
        )
    with pytest.raises(InvalidInput) as said:
        ms.Space({"T": ms.Float(0, 1)}, where="sin(T) < 1")
    assert "backticks" not in str(said.value)
    assert "rules know min" in str(said.value)
