"""Tables as people have them: CSV files and frames as domains, rows in and out, and errors that name the cell."""

import csv
import datetime
import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec.errors import InvalidInput, StorageError
from misspec.files import frames

MODEL = ms.Model(RBF(0.7), norm_bound=2.0, noise=0.1)
CSV = """id,temperature,solvent,yield
1,20,THF,
2,40.5,DMF,0.7
3,60,THF,0.2
4,60,toluene,
5,60,toluene,
"""


class Column:
    """A column as pandas has it."""

    def __init__(self, cells):
        self.cells = cells

    def tolist(self):
        return list(self.cells)


class Pandas:
    """The little of a pandas frame that is relied on; columns may share a name there."""

    def __init__(self, pairs):
        self.pairs = list(pairs)

    @property
    def columns(self):
        return [name for name, _ in self.pairs]

    def __getitem__(self, name):
        return Column(dict(self.pairs)[name])


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "candidates.csv"
    file.write_text(CSV)
    return file


COLUMNS = {
    "id": [1, 2, 3, 4, 5],
    "temperature": [20.0, 40.5, 60.0, 60.0, 60.0],
    "solvent": ["THF", "DMF", "THF", "toluene", "toluene"],
    "yield": [None, 0.7, 0.2, None, None],
}
NAN = {**COLUMNS, "yield": [float("nan"), 0.7, 0.2, float("nan"), float("nan")]}


@pytest.mark.parametrize(
    "source",
    [
        None,
        pl.DataFrame(COLUMNS),
        Pandas(NAN.items()),
        COLUMNS,
        [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)],
    ],
    ids=["csv", "polars", "pandas", "dict", "rows"],
)
def test_all_sources_give_the_same_domain(source, path):
    domain = ms.Finite.from_table(path if source is None else source, target="yield", ignore=["id"])
    assert len(domain) == 5
    np.testing.assert_array_equal(domain.points, [[20, 0], [40.5, 1], [60, 0], [60, 2], [60, 2]])
    hot = 1 / np.sqrt(2)
    np.testing.assert_allclose(domain.encoded[:2], [[0, hot, 0, 0], [0.5125, 0, hot, 0]])
    assert domain.columns == (("temperature", 0, 1, False), ("solvent", 1, 4, True))
    assert domain.rows[1] == {"id": 2, "temperature": 40.5, "solvent": "DMF", "yield": 0.7}
    assert domain.rows[0]["yield"] is None
    assert domain.observations.indices.tolist() == [1, 2]
    assert domain.observations.y.tolist() == [0.7, 0.2]
    assert domain.parameters == {"temperature": ms.Float(20, 60), "solvent": ms.Choice(["THF", "DMF", "toluene"])}
    assert "2 with a result" in repr(domain)


def test_rows_go_in_and_out(path):
    domain = ms.Finite.from_table(path, target="yield", ignore="id")
    policy = ms.ECGPUCB(domain, MODEL, epsilon=0.1)
    policy.observe(*domain.observations)
    assert policy.t == 2
    query = policy.ask()
    assert query.row == domain.rows[query.index]
    assert query.params is None
    policy.tell(query.row, 0.5)
    policy.observe({"temperature": 20, "solvent": "THF"}, [0.1])
    policy.observe(pl.DataFrame({"solvent": ["DMF", "THF"], "temperature": [40.5 + 1e-9, 60]}), [0.6, 0.3])
    np.testing.assert_array_equal(policy.observations.x[-2:], domain.points[[1, 2]])
    query = policy.ask(actions=[{"temperature": 60, "solvent": "toluene", "id": 5}, domain.rows[0]])
    assert query.index in (4, 0)
    assert query.row == domain.rows[query.index]
    best = policy.recommend()
    assert best.row == domain.rows[best.index]
    with pytest.raises(TypeError, match="cannot be changed"):
        best.row["id"] = 7
    np.testing.assert_array_equal(policy.band(domain.rows).lower, policy.band().lower)


def test_equal_rows_are_arms_of_their_own(path):
    domain = ms.Finite.from_table(path, target="yield", ignore="id")
    assert domain.indices([[60, 2]]).tolist() == [3]
    assert domain.match({"temperature": 60, "solvent": "toluene"})[1].tolist() == [3]
    assert domain.match({"temperature": 60, "solvent": "toluene", "id": 5})[1].tolist() == [4]
    policy = ms.GPUCB(domain, MODEL)
    later, earlier = policy.ask(actions=[4]), policy.ask(actions=[3])
    policy.tell({"temperature": 60, "solvent": "toluene"}, 0.1)  # the one that has waited longest
    assert [query.id for query in policy.pending] == [earlier.id]
    assert later.row["id"] == 5


def test_points_read_back_from_a_file_match_theirs(tmp_path):
    rng = np.random.default_rng(0)
    columns = {"x": rng.random(50) / 3, "big": 1e6 * rng.random(50), "still": [0.1] * 50}
    domain = ms.Finite.from_table({name: list(cells) for name, cells in columns.items()})
    lines = [f"{x:.14g};{big:.14g};{still}" for x, big, still in zip(*columns.values(), strict=True)]
    (tmp_path / "back.csv").write_text("x;big;still\n" + "\n".join(lines))
    frame = frames.read(tmp_path / "back.csv")
    assert domain.match(frame)[1].tolist() == list(range(50))
    points = np.array([[row["x"], row["big"], row["still"]] for row in frame.rows()])
    assert not np.array_equal(points, domain.points)
    assert domain.indices(points).tolist() == list(range(50))
    policy = ms.GPUCB(domain, MODEL)
    policy.observe(points, np.zeros(50))
    assert policy.posterior.distinct == 50
    np.testing.assert_array_equal(policy.observations.x, domain.points)
    assert domain.indices(domain.points + np.array([1e-6, 0, 0])).tolist() == [-1] * 50


def test_choices_are_read_back_from_text(tmp_path):
    space = ms.Space({"size": ms.Choice(["1", "2"]), "on": ms.Choice([True, False])})
    (tmp_path / "done.csv").write_text("size,on\n2,False\n1,True\n")
    np.testing.assert_array_equal(space.points_of(frames.read(tmp_path / "done.csv")), [[1, 1], [0, 0]])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,x\n,y\n", {}, "column 'a', data row 2: expected a value, the cell is empty"),
        ("a,b\n1,x\nNaN,y\n", {}, "column 'a', data row 2: expected a value, the cell is empty"),
        ("a,b\n1,x\n2\n", {}, "column 'b', data row 2: expected a value, the cell is empty"),
        ("a,b\n1,x\nhot,y\n3,z\n", {}, "column 'a', data row 2: expected a finite number, .* got 'hot'"),
        ("a,b\n1,x\ninf,y\n3,z\n", {}, "column 'a', data row 2: expected a finite number, .* got 'inf'"),
        ("a,b\n1,2,3\n", {}, "data row 1: 3 cells for 2 columns"),
        ("a,a\n1,2\n", {}, "two columns of the same name"),
        ("a,b\n", {}, r"got 1 line\(s\)"),
        ("", {}, r"got 0 line\(s\)"),
        ("1,2\n3,4\n", {}, "must start with a line of column names"),
        ("a,y\n1,x\n2,3\n", {"target": "y"}, "column 'y', data row 1: a result must be a finite number, .* got 'x'"),
        ("a,y\n1,Failed\n2,3\n", {"target": "y"}, r"got 'Failed'; leave it empty, and say .* policy\.drop\("),
        ("a,y\n1,2\n", {"target": "z"}, "has no column 'z'"),
        ("solvent,y\nu,2\n", {"ignore": ["solvet"]}, r"no column 'solvet'; did you mean 'solvent'\?"),
        ("a,y\n1,2\n", {"ignore": ["a", "y"]}, "no column left that describes its rows"),
        ("a,y\n1,2\n2,3\n", {"names": ["one"]}, "names must be one per point"),
    ],
)
def test_bad_files_name_row_and_column(text, options, message, tmp_path):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        ms.Finite.from_table(tmp_path / "bad.csv", **options)


def test_what_failed_is_left_empty_and_told_as_the_message_says():
    policy = ms.Auto(ms.Finite.from_table({"a": [1.0, 2.0, 3.0], "y": [1.0, None, 2.0]}, target="y"))
    policy.drop(policy.mark_pending([1]))
    assert policy.t == 2
    assert [place.index for place in policy._outcomes.dropped] == [1]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"a": [1.0, float("nan")]}, "the table, column 'a', data row 2: expected a value"),
        ({"a": [1.0, None]}, "the table, column 'a', data row 2: expected a value"),
        ({"a": [1.0, "x", 2.0]}, "column 'a', data row 2: expected a finite number, .* got 'x'"),
        ({"a": [True, False, 1]}, "column 'a', data row 3: expected True or False, .* got 1"),
        ({"a": [1.0, float("inf")]}, "column 'a', data row 2: expected a finite number"),
        ({"a": [1.0, 10**400]}, "column 'a', data row 2: expected a finite number"),
        ({"a": [1, 2], "b": [1]}, r"equal lengths, got \[1, 2\]"),
        ({"a": []}, "holds no row"),
        ({}, "holds no row"),
        (pl.DataFrame(), "holds no row"),
        (pl.DataFrame({"a": []}), "holds no row"),
        (pl.DataFrame({"a": [1]}).lazy(), "collect"),
        (Pandas([("a", [1]), ("a", [2])]), "two columns of the same name, 'a'"),
        ([{"a": 1}, {"b": 1}], "data row 2 lacks 'a'"),
        ([{"a": 1}, {"a": 1, "b": 1}], "data row 2 has, unlike the first row, 'b'"),
        (3, "expected a CSV file, a data frame"),
        ("nowhere.csv", "nowhere.csv does not exist"),
    ],
)
def test_bad_sources(source, message):
    with pytest.raises(InvalidInput, match=message):
        ms.Finite.from_table(source)


def test_files_as_programs_write_them(tmp_path):
    file = tmp_path / "odd.csv"
    for text in (
        'first name;größe (µm)\n"light; blue";1.5\ndark red;2\n',
        "\ufefffirst name\tgröße (µm)\nlight; blue\t1.5\ndark red\t2\n\n",
        "first name, größe (µm)\r\nlight; blue, 1.5\r\n\r\ndark red, 2\r\n",
    ):
        file.write_bytes(text.encode())
        domain = ms.Finite.from_table(file)
        assert domain.rows == [
            {"first name": "light; blue", "größe (µm)": 1.5},
            {"first name": "dark red", "größe (µm)": 2},
        ], text
    file.write_text("a b\n1 2\n3  4\n")
    assert ms.Finite.from_table(file).points.tolist() == [[1, 2], [3, 4]]
    file.write_text(",x\n0,1\n1,2\n")
    assert ms.Finite.from_table(file, ignore="").points.tolist() == [[1], [2]]  # an index that pandas wrote


def test_names_from_a_column_or_a_list(path):
    domain = ms.Finite.from_table(path, target="yield", names="id")
    assert domain.names == ["1", "2", "3", "4", "5"]
    assert domain.rows[0]["id"] == 1
    policy = ms.GPUCB(domain, MODEL)
    policy.observe(["2", "3"], [0.7, 0.2])
    query = policy.ask(actions=["4", "5"])
    assert query.name in ("4", "5")
    policy.tell(query.name, 0.3)
    assert not policy.pending
    with pytest.raises(InvalidInput, match="no candidate is called '9'"):
        policy.band(["9"])
    with pytest.raises(InvalidInput, match="has no names"):
        ms.GPUCB(ms.Finite([[0.0]]), MODEL).band(["a"])
    again = ms.restore(json.loads(json.dumps(policy.state())))
    assert again.domain.names == domain.names
    assert again.domain.rows == domain.rows


def test_a_table_is_stored_with_what_it_is(path, tmp_path):
    domain = ms.Finite.from_table(path, target="yield", ignore="id")
    policy = ms.ECGPUCB(domain, MODEL, epsilon=0.1)
    policy.observe(*domain.observations)
    waiting = policy.ask()
    policy.save(tmp_path / "state")
    for again in (ms.restore(json.loads(json.dumps(policy.state()))), ms.load(tmp_path / "state")):
        assert again.domain.rows == domain.rows
        assert list(again.domain.rows[0]) == list(domain.rows[0])
        assert (again.domain.target, again.domain.ignored) == ("yield", ["id"])
        np.testing.assert_array_equal(again.domain.encoded, domain.encoded)
        assert again.pending[0].row == waiting.row
        assert '"row"' not in json.dumps(again.state()["events"])
        assert again.ask().row == ms.restore(policy.state()).ask().row
    other = ms.Finite.from_table({**COLUMNS, "temperature": [1, 2, 3, 4, 5]}, target="yield", ignore="id")
    with pytest.raises(StorageError, match="differs from it"):
        ms.restore(policy.state(), domain=other)


def test_what_json_does_not_know_is_kept_as_text_where_it_is_left_out():
    import datetime

    day = datetime.date(2026, 7, 26)
    domain = ms.Finite.from_table({"x": [1, 2], "day": [day, None]}, ignore="day")
    assert domain.rows[0] == {"x": 1, "day": "2026-07-26"}
    with pytest.raises(InvalidInput, match="column 'day', data row 1: expected a finite number or text, got"):
        ms.Finite.from_table({"x": [1, 2], "day": [day, day]})


def test_decimals_and_numbers_of_numpy_are_numbers():
    from decimal import Decimal

    rows = [{"x": Decimal("1.5"), "n": np.int64(2)}, {"x": Decimal("2.5"), "n": np.int64(3)}]
    for source in (rows, pl.DataFrame({"x": [Decimal("1.5"), Decimal("2.5")], "n": [2, 3]})):
        domain = ms.Finite.from_table(source)
        assert domain.rows == [{"x": 1.5, "n": 2}, {"x": 2.5, "n": 3}]
        assert type(domain.rows[0]["n"]) is int


def test_a_table_without_results_yet_can_be_observed():
    domain = ms.Finite.from_table({"x": [1, 2, 3], "y": [None] * 3}, target="y")
    policy = ms.GPUCB(domain, MODEL)
    policy.observe(*domain.observations)
    assert policy.t == 0
    assert not ms.Finite.from_table({"x": [1, 2]}).observations.y.size


def test_a_refused_row_changes_nothing(path):
    policy = ms.GPUCB(ms.Finite.from_table(path, target="yield", ignore="id"), MODEL)
    policy.ask()
    before = json.dumps(policy.state())
    for given, message in (
        ({"temperature": 60, "solvent": "water"}, "must be one of 'THF', 'DMF', 'toluene', got 'water'"),
        ({"temperature": 60}, "must have a value of 'solvent'"),
        ({"tempereture": 60, "solvent": "THF"}, r"no column 'tempereture'; did you mean 'temperature'\?"),
        ({"temperature": "hot", "solvent": "THF"}, "must be a number, got 'hot'"),
        (np.array([[60, 1.5]]), "parameter 'solvent' must be one of"),
    ):
        for call in (lambda g: policy.observe(g, [1.0]), lambda g: policy.ask(actions=g), lambda g: policy.band(g)):
            with pytest.raises(InvalidInput, match=message):
                call(given)
            assert json.dumps(policy.state()) == before


def test_problems_from_tables(tmp_path):
    rng = np.random.default_rng(0)
    table = {"a": rng.random(60).tolist(), "b": rng.choice(["u", "v"], 60).tolist(), "note": ["x"] * 60}
    table["y"] = [2 * a + (b == "v") for a, b in zip(table["a"], table["b"], strict=True)]
    problem = ms.problems.from_table(table, "y", ignore="note")
    np.testing.assert_array_equal(problem.values, table["y"])
    assert problem.model.noise == pytest.approx(0.05 * np.ptp(table["y"]))
    assert problem.model.offset == pytest.approx(np.mean(table["y"]))
    assert problem.domain.rows[problem.best]["b"] == "v"
    trace = ms.simulate(ms.GPUCB(problem.domain, problem.model, width=1.0), problem, 25)
    assert trace.regret[-5:].mean() < trace.regret[:5].mean()
    pl.DataFrame(table).write_csv(tmp_path / "reactions.csv")
    read = ms.problems.from_table(tmp_path / "reactions.csv", "y", ignore="note", model=MODEL, noise=0.0)
    assert read.name == "reactions"
    assert read.sampler.noise == 0.0
    table["y"][3] = None
    with pytest.raises(InvalidInput, match="data row 4 has none"):
        ms.problems.from_table(table, "y")
    with pytest.raises(InvalidInput, match="nothing to find"):
        ms.problems.from_table({"a": [1, 2], "y": [1, 1]}, "y")


@pytest.mark.skipif(
    not (Path(os.environ.get("MISSPEC_DATA", "/nowhere")) / "direct_arylation.csv").exists(),
    reason="MISSPEC_DATA names no folder with direct_arylation.csv (Shields et al., Nature 590, 2021)",
)
def test_a_table_of_real_reactions():
    path = Path(os.environ["MISSPEC_DATA"]) / "direct_arylation.csv"
    domain = ms.Finite.from_table(path, ignore="yield")
    assert len(domain) == 1728
    assert [(each.name, each.stop - each.start) for each in domain.columns] == [
        ("base", 4), ("ligand", 12), ("solvent", 4), ("concentration", 1), ("temperature", 1),
    ]  # fmt: skip
    problem = ms.problems.from_table(path, target="yield")
    assert problem.values.max() == 100.0
    policy = ms.Auto(domain, seed=1)
    for query in policy.ask(5):
        policy.tell(query.row, problem.values[query.index])
    query = policy.ask()
    assert query.row["ligand"] == domain.rows[query.index]["ligand"]
    assert policy.t == 5


def test_rows_of_text_match(tmp_path):
    """As `csv.DictReader` has them: every cell is text."""
    path = tmp_path / "rows.csv"
    path.write_text("name,heat,acid,on,yield\na,20,citric,True,\nb,40.5,none,False,\nc,60,citric,True,\n")
    domain = ms.Finite.from_table(path, target="yield", ignore=["name"])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_array_equal(domain.indices(rows), [0, 1, 2])
    frame = pl.DataFrame({"heat": [40.5, 20], "acid": ["none", "citric"], "on": [False, True]})
    np.testing.assert_array_equal(domain.match(frame)[1], [1, 0])
    policy = ms.Auto(domain)
    with pytest.raises(InvalidInput, match="observations must be numbers, got '1', which is text"):
        policy.observe(rows, ["1", "2", "3.5"])  # cells of a table are read as written, results are numbers
    policy.observe(rows, [1.0, 2.0, 3.5])
    assert policy.observations.y.tolist() == [1.0, 2.0, 3.5]
    with pytest.raises(InvalidInput, match=r"column 'heat'.*must be"):
        domain.indices([{**rows[0], "heat": "warm"}])


def test_codes_keep_their_zeros(tmp_path):
    path = tmp_path / "codes.csv"
    path.write_text("code,mixed,x\n007,1a,0.5\n7,2,0\n008,3b,1\n")
    domain = ms.Finite.from_table(path)
    assert [row["code"] for row in domain.rows] == ["007", "7", "008"]
    assert [row["mixed"] for row in domain.rows] == ["1a", "2", "3b"]
    assert [row["x"] for row in domain.rows] == [0.5, 0, 1]


def test_columns_without_a_name(tmp_path):
    path = tmp_path / "index.csv"
    path.write_text(",a,y\n0,1,\n1,2,\n")
    with pytest.raises(InvalidInput, match="column 1 has no name"):
        ms.Finite.from_table(path, target="y")
    path.write_text("a,y,\n1,,\n2,3,\n")
    assert ms.Finite.from_table(path, target="y").rows == [{"a": 1, "y": None}, {"a": 2, "y": 3}]


def test_columns_that_look_wrong_are_said():
    with pytest.warns(UserWarning, match="numbers as text"):
        ms.Finite.from_table({"heat": ["90", "105"], "x": [1, 2]})
    with pytest.warns(UserWarning, match=r"differs in every row.*ignore=\['note'\]"):
        ms.Finite.from_table({"note": [f"n{i}" for i in range(30)], "x": list(range(30))})


def test_left_out_dates_tell_equal_rows_apart():
    days = [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]
    domain = ms.Finite.from_table({"x": [1.0, 1.0], "day": days}, ignore=["day"])
    assert domain.match([{"x": 1.0, "day": days[1]}])[1].tolist() == [1]


def test_a_problem_from_a_table_hides_its_results():
    problem = ms.problems.from_table({"x": [0.0, 1.0, 2.0, 3.0], "y": [1.0, 3.0, 2.0, 0.0]}, "y")
    policy = ms.Auto(problem.domain)
    assert policy.t == 0
    assert policy.ask().row["y"] is None
    with pytest.raises(InvalidInput, match="the policy goes the other way"):
        ms.simulate(ms.Auto(problem.domain, minimize=True), problem, 3)


# -- rules -------------------------------------------------------------------------------------------------------------

RULED = {
    "solvent": ["water", "water", "oil", "oil", "oil"],
    "T": [60.0, 90.0, 60.0, 90.0, 120.0],
    "p": [150.0, 100.0, 100.0, 150.0, 70.0],
    "y": [1.0, None, 3.0, 4.0, None],
}
RULE = "T + p < 200"


def test_rows_that_break_a_rule_are_no_candidates_and_their_results_are_data():
    whole, ruled = (ms.Finite.from_table(RULED, target="y", **each) for each in ({}, {"where": RULE}))
    assert ruled.source_rows.tolist() == [1, 2, 4]
    assert ruled.rows == [whole.rows[i] for i in (1, 2, 4)]
    np.testing.assert_array_equal(ruled.encoded, whole.encoded[[1, 2, 4]])  # on the scales of all rows
    assert (ruled.observations.indices.tolist(), ruled.observations.y.tolist()) == ([1], [3.0])
    np.testing.assert_array_equal(ruled.outside_observations.points, whole.points[[0, 3]])
    assert ruled.outside_observations.y.tolist() == [1.0, 4.0]
    policy = ms.Auto(ruled, noise=0.1)
    assert sorted(policy.observations.y) == [1.0, 3.0, 4.0]
    policy.observe([{"solvent": "water", "T": 60, "p": 150}], [1.1])  # by its values, as before
    assert {policy.ask().index for _ in range(9)} <= {0, 1, 2}
    assert policy.recommend().index in (0, 1, 2)
    assert whole.source_rows.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("names", [None, ["a", "b", "c", "d", "e"]])
def test_a_table_with_rules_is_restored_to_the_bit(names):
    domain = ms.Finite.from_table(RULED, target="y", where=[RULE, "solvent == 'oil' or T > 60"], names=names)
    policy = ms.Auto(domain, noise=0.1)
    policy.tell(policy.ask(), 2.0)
    again = ms.restore(json.loads(json.dumps(policy.state())))
    assert again.state() == policy.state()
    assert again.domain.rules.texts == domain.rules.texts
    assert again.domain.names == domain.names
    assert again.domain.outside_observations.y.tolist() == [1.0, 4.0]
    assert again.ask().index == policy.ask().index
    ms.restore(policy.state(), domain=domain)
    with pytest.raises(ms.StorageError, match="differs"):
        ms.restore(policy.state(), domain=ms.Finite.from_table(RULED, target="y", names=names))


def test_rules_of_a_table_that_are_functions_are_handed_in_again():
    def cheap(row):  # sees columns that are left out, too
        return row["note"] != "dear"

    source = {**RULED, "note": ["dear", "", "", "dear", ""]}
    domain = ms.Finite.from_table(source, target="y", ignore="note", where=cheap)
    assert domain.source_rows.tolist() == [1, 2, 4]
    state = ms.Auto(domain, noise=0.1).state()
    with pytest.raises(ms.StorageError, match="rules that are functions, which are not stored; hand it in again"):
        ms.restore(state)
    assert ms.restore(state, domain=domain).state() == state


def test_wrong_rules_of_a_table():
    for where, message in [
        ("T + q < 200", "'q' is not a parameter; did you mean|'q' is not a parameter"),
        ("T < 0", "no row of the table keeps 'T < 0'; nearest is {'solvent': 'water', 'T': 60.0, .*; relax the rule"),
        (lambda row: row["z"] > 1, "the rule .* failed at .*: KeyError"),
        (lambda row: False, "no row of the table keeps the function; relax the rule"),
        (3, "where must be"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            ms.Finite.from_table(RULED, target="y", where=where)
