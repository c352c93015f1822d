"""From files of results to a page: `misspec suggest --report` and `misspec report results.csv`; failures and axes."""

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import misspec as ms
from misspec.integrations import suggest as by_hand
from misspec.reports import matplotlib_backend, optimisation, optimisation_figures, page, style

CANDIDATES = "id,solvent,temperature,catalyst\n" + "".join(
    f"R{i},{solvent},{temperature},{catalyst}\n"
    for i, (solvent, temperature, catalyst) in enumerate(
        (s, t, c) for s in ("water", "ethanol") for t in (40, 60, 80) for c in (0.0001, 0.001, 0.01, 0.1)
    )
)
DONE = {0: "12.5", 3: "17", 5: "failed", 7: "21", 9: "14.5", 11: "failed", 12: "31", 15: "28", 18: "35", 22: ""}
RESULTS = "id,yield\n" + "".join(f"R{i},{y}\n" for i, y in DONE.items())


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "candidates.csv").write_text(CANDIDATES)
    (tmp_path / "results.csv").write_text(RESULTS)
    (tmp_path / "space.toml").write_text("a = { low = 0, high = 1 }\nb = { low = 1e-5, high = 0.1, log = true }\n")
    return tmp_path


@pytest.fixture
def shell(files, monkeypatch):  # noqa: ARG001  # it changes the folder
    from typer.testing import CliRunner

    from misspec.cli import app

    monkeypatch.setenv("COLUMNS", "200")

    def run(*words, code=0):
        found = CliRunner().invoke(app, [str(each) for each in words], prog_name="misspec")
        assert found.exit_code == code, found.output
        return found.stderr if code else found.stdout

    return run


def sentences_of(path):
    text = path.read_text(encoding="utf-8").partition('<ul class="sentences">')[2].partition("</ul>")[0]
    return [re.sub("&#x27;", "'", line) for line in re.findall("<li>(.*?)</li>", text)]


NAMED = ("--names", "id", "--target", "yield")


def test_the_page_of_suggest_names_the_column_and_says_what_the_shell_says(shell, files):
    out = shell("suggest", "candidates.csv", "--results", "results.csv", *NAMED, "--report", "for the boss")
    folder = files / "for the boss"
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert "page: " in out
    assert {"best.png", "slices.png", "evaluations.csv"} <= {path.name for path in folder.iterdir()}
    assert "Optimisation of yield" in text
    assert "<th>yield</th>" in text
    assert '"text":"result"' not in text.replace(" ", "")  # no axis is called so
    assert "7 evaluations with a result, 2 failed" in text
    said = sentences_of(folder / "index.html")
    assert said
    assert all(line in out for line in said)
    assert (folder / "evaluations.csv").read_text().splitlines()[0].endswith(",yield")


def test_a_file_of_results_is_drawn_with_its_candidates_or_alone(shell, files):
    out = shell("report", "results.csv", "--candidates", "candidates.csv", *NAMED)
    known = shell("suggest", "candidates.csv", "--results", "results.csv", *NAMED)
    said = sentences_of(files / "results-report" / "index.html")
    assert len(said) >= 4
    assert all(line in out and line in known for line in said)
    assert "To try next" not in out
    (files / "all.csv").write_text("x,cost\n" + "".join(f"{i},{(i - 6) ** 2 + 0.25 * (i % 3)}\n" for i in range(12)))
    out = shell("report", "all.csv", "--target", "cost", "--minimize", "--into", "there")
    assert "smaller is better" in out
    assert "Optimisation of cost" in (files / "there" / "index.html").read_text()
    assert (files / "results.csv").read_text() == RESULTS  # nothing is written there


REPEATED = "id,solvent,temperature,yield\n" + "".join(
    f"R{i % 9},{('water', 'ethanol', 'toluene')[i % 3]},{40 + 20 * (i % 9 // 3)}{'.0' * (i > 8)},{y}\n"
    for i, y in enumerate((20.1, 31.3, 24.2, 35.4, 457, 39.6, 25.7, 36.5, 29.9, 20.7, 30.8, 24.9, 34.9, 45.0))
)


def test_lines_of_one_name_are_repeats_if_their_settings_are_equal(shell, files):
    (files / "again.csv").write_text(REPEATED)
    known = by_hand.suggest("again.csv", None, "yield", names="id", batch=0)
    assert known.menu.size == 9
    assert known.told == 14
    assert np.bincount(known.policy.domain.indices(known.policy.observations.x)).tolist() == [2] * 5 + [1] * 4
    (files / "again.csv").write_text(REPEATED + "R2,toluene,60,30\n")
    error = shell("report", "again.csv", *NAMED, code=1)
    assert "line 16, column 'id': expected a name of its own, 'R2' is the name of line 4 too" in error
    assert "with another temperature" in error


def test_a_label_that_goes_with_the_settings_is_left_out_though_lines_are_repeats(files):
    (files / "again.csv").write_text(REPEATED)
    known = by_hand.suggest("again.csv", None, "yield", batch=0)
    assert list(known.menu.parameters) == ["solvent", "temperature"]
    assert any("left out: id (" in note for note in known.notes)
    assert known.menu.size == 9
    (files / "again.csv").write_text(REPEATED.replace("R8", "R7"))  # it does not say all: it may be a setting
    assert "id" in by_hand.suggest("again.csv", None, "yield", batch=0).menu.parameters


def test_options_of_a_file_of_results_arrive(shell, files):
    rows = [f"R{i},{20 + 3 * i % 7 + 0.137 * i:.3f},{i % 3},0.5" for i in (0, 2, 4, 6, 8, 13, 17, 23)]
    (files / "more.csv").write_text("\n".join(["id,yield,impurity,error", *rows, rows[0], ""]))
    words = ("report", "more.csv", "--candidates", "candidates.csv", *NAMED)
    assert "9 results of yield" in shell(*words, "--repeats")
    assert "8 results of yield" in shell(*words)
    assert "Not suggested, as they break" in shell(*words, "--where", "temperature < 80")
    assert "keeps the limits" in shell(*words, "--limit", "impurity < 2").replace("It keep", "it keep")
    assert "(as given)" in shell(*words, "--noise", "0.7")
    assert "Columns of more.csv that are left alone: impurity." in shell(*words, "--noise", "error")
    drawn = {
        option: (shell(*words, *option.split()), (files / "more-report" / "index.html").read_text())[1]
        for option in ("--ignore catalyst", "--columns solvent --columns temperature", "--minimize")
    }
    assert "3 parameters" in drawn["--minimize"]
    assert "smaller is better" in drawn["--minimize"]
    assert all("2 parameters" in text for option, text in drawn.items() if option != "--minimize")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("report", "nothing.csv"), "nothing.csv does not exist"),
        (("report", "results.csv", "--candidates", "nothing.csv"), "nothing.csv does not exist"),
        (("report", "results.csv", "--latex"), "--latex is for the folder of an experiment"),
        (("report", "results.csv", "--against", "EC"), "--against is for the folder"),
        (("report", "results.csv", "--allow", "mine"), "--allow is for the folder"),
        (("report", ".", "--target", "yield"), "is no file of results"),
        (("report", "space.toml"), "space.toml holds no results; draw the folder that `misspec run` makes"),
        (("report", "results.csv", "--candidates", "candidates.csv", "--target", "yiel"), "did you mean 'yield'"),
        (("suggest", "nothing.csv", "--results", "results.csv"), "nothing.csv does not exist"),  # before the target
        (("suggest", "nothing.csv"), "nothing.csv does not exist"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(shell, files, words, message):
    before = sorted(files.iterdir())
    error = shell(*words, code=1)
    assert message in error
    assert len(error.splitlines()) == 1
    assert sorted(files.iterdir()) == before


def test_without_a_result_there_is_no_page_and_the_rows_come_all_the_same(shell, files):
    out = shell("suggest", "candidates.csv", "--results", "new.csv", *NAMED, "--report", "there")
    assert "there is no page" in out
    assert "To try next" in out
    assert not (files / "there").exists()
    for content, words in itertools.product(("", "id,yield\n"), ((), NAMED, ("--candidates", "candidates.csv"))):
        (files / "empty.csv").write_text(content)
        error = shell("report", "empty.csv", *words, code=1)
        assert "empty.csv is empty: there is nothing to report yet" in error


@pytest.mark.usefixtures("files")
def test_the_policy_of_a_suggestion_knows_the_files_and_has_asked_nothing():
    found = by_hand.suggest("candidates.csv", "results.csv", "yield", names="id", batch=2)
    told = found.policy.observations
    assert sorted(told.y.tolist()) == sorted(float(y) for y in DONE.values() if y not in ("", "failed"))
    assert [query.name for query in found.policy.pending] == ["R22"]
    assert found.policy.summary().splitlines()[0] == found.summary[0]
    none = by_hand.suggest("candidates.csv", "results.csv", "yield", names="id", batch=0)
    assert none.rows == []
    assert none.summary == found.summary
    assert none.stop == found.stop


def test_what_is_said_does_not_depend_on_how_many_are_suggested(files):
    rows = [f"0,{10 ** -(1 + 0.5 * i):.3g},{i % 4 + 0.1 * i}" for i in range(9)]
    (files / "two.csv").write_text("a,b,y\n" + "\n".join(rows) + "\n")
    one, more = (by_hand.suggest("space.toml", "two.csv", "y", batch=n) for n in (1, 4))
    assert one.summary == more.summary
    assert one.rows[0].values == more.rows[0].values


# -- failures ----------------------------------------------------------------------------------------------------------


def by_turns(policy, ends):
    """Tell ("y") or drop ("x") queries in this order; the points that were dropped, and after how many results."""
    lost, told = [], 0
    for end in ends:
        query = policy.ask()
        if end == "x":
            policy.drop(query)
            lost.append((query.x.tolist(), told))
        else:
            policy.tell(query, float(np.sin(query.x.sum())))
            told += 1
    return lost


@pytest.mark.parametrize("kind", ["auto", "gp"])
def test_failures_are_where_and_when_they_were(kind):
    box = ms.Box([(0, 1), (2, 3)])
    model = ms.Model(ms.product_kernel(box), norm_bound=2.0, noise=0.1)
    policy = ms.Auto(box) if kind == "auto" else ms.GPUCB(box, model)
    lost = by_turns(policy, "yyxyyxxyyyx")
    left = policy.ask()  # pending: no failure
    found = optimisation.Optimisation(policy)
    assert found.failures.x.tolist() == [x for x, _ in lost]
    assert found.failures.after == [after for _, after in lost] == [2, 4, 4, 7]
    assert left.x.tolist() not in found.failures.x.tolist()
    assert "7 evaluations with a result, 4 failed" in found.about
    for drawn in found.slices:
        j = ["x0", "x1"].index(drawn.name)
        np.testing.assert_array_equal(drawn.failed, found.failures.x[:, j])
    marks = [each for each in optimisation_figures.best(found).marks if each.label.startswith("failed")]
    assert [each.label for each in marks] == ["failed (4)"]
    x = np.sort(marks[0].x)
    assert ((x > [2, 4, 4, 7]) & (x < [3, 5, 5, 8])).all()
    assert len(set(x.tolist())) == 4
    low, high = found.vertical()
    assert (marks[0].y > low).all()
    assert (marks[0].y < high).all()
    text = page.policy_page(found)
    assert "<h2>Failed</h2><p>4 evaluations gave no result.</p>" in text


def test_without_failures_the_page_says_nothing_of_them():
    policy = ms.Auto(ms.Box([(0, 1)]))
    by_turns(policy, "yyyyyy")
    found = optimisation.Optimisation(policy)
    text = page.policy_page(found)
    assert "<h2>Failed" not in text
    assert "failed" not in found.about
    assert not [each for each in optimisation_figures.best(found).marks if each.label.startswith("failed")]


@pytest.mark.usefixtures("files")
def test_failures_of_a_table_have_names_and_those_of_conditions_only_what_exists():
    found = by_hand.suggest("candidates.csv", "results.csv", "yield", names="id", batch=0)
    report = optimisation.Optimisation(found.policy, target="yield")
    assert sorted(report.failures.labels) == ["R11", "R5"]
    assert "<td>R11</td>" in page.policy_page(report).partition("<h2>Failed</h2>")[2].partition("</section>")[0]
    space = ms.Space({"kind": ms.Choice(["a", "b"]), "depth": ms.Int(1, 5, when={"kind": "b"}), "x": ms.Float(0, 1)})
    policy = ms.Auto(space)
    policy.observe([{"kind": "ab"[i % 2], "x": i / 7} | ({"depth": 3} if i % 2 else {}) for i in range(7)], range(7))
    policy.drop(policy.mark_pending([{"kind": "a", "x": 0.5}]))
    report = optimisation.Optimisation(policy)
    assert report.failures.values == [{"kind": "a", "x": 0.5}]
    for drawn in report.slices:
        assert np.isnan(drawn.failed).all() == (drawn.name == "depth")


def test_failures_before_a_snapshot_are_forgotten_with_its_results():
    box = ms.Box([(0, 1)]).grid(9)
    policy = ms.GPUCB(box, ms.Model(ms.product_kernel(box), norm_bound=2.0, noise=0.1))
    by_turns(policy, "yxyy")
    policy.compact()
    query = policy.ask()
    policy.compact()  # the query is pending in the snapshot
    policy.drop(query)
    policy.tell(policy.ask(), 0.5)
    found = optimisation.Optimisation(policy)
    assert len(found.y) == len(policy.observations.y)
    assert found.failures.x.tolist()[-1] == query.x.tolist()
    assert found.failures.after[-1] == len(found.y) - 1


# -- logarithmic axes --------------------------------------------------------------------------------------------------

SUPER = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def read_back(label):
    """The number that a label stands for."""
    found = re.fullmatch(r"(?:([\d.]+)·)?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", label)
    return float(found[1] or 1) * 10.0 ** int(found[2].translate(SUPER)) if found else float(label)


@given(st.floats(-12, 12), st.floats(0.02, 16))
def test_ticks_of_logarithmic_axes_are_few_round_and_inside(start, decades):
    low, high = 10.0**start, 10.0 ** (start + decades)
    ticks = style.log_ticks(low, high)
    assert ticks == sorted(set(ticks))
    assert 1 <= len(ticks) <= style.MOST_TICKS
    assert all(0.998 * low <= tick <= 1.002 * high for tick in ticks)
    if decades >= 1.0:
        assert len(ticks) >= 2
        assert all(float(f"{tick:.0e}") == tick for tick in ticks)  # one digit, and a power of ten
    assert all(read_back(style.powered(tick)) == pytest.approx(tick, rel=2e-3) for tick in ticks)


def test_labels_as_people_write_them():
    said = {0.001: "0.001", 0.05: "0.05", 1e-4: "10⁻⁴", 2e-5: "2·10⁻⁵", 1.0: "1", 20000.0: "20000", 1e12: "10¹²"}
    assert {value: style.powered(value) for value in said} == said


def labels_drawn(panel):
    figure = matplotlib_backend.figure([[panel]], "t", legend=False, width=4.2, heights=2.7)
    figure.canvas.draw()
    axis = figure.axes[0].xaxis
    shown = [each for each in axis.get_ticklabels() + axis.get_minorticklabels() if each.get_text()]
    low, high = figure.axes[0].get_xlim()
    at = [*axis.get_ticklocs(), *axis.get_ticklocs(minor=True)]
    shown = [each for each, x in zip(shown, at, strict=False) if low <= x <= high]
    return [(each.get_text(), each.get_window_extent()) for each in shown]


@pytest.mark.parametrize(("low", "high"), [(1e-5, 1e-1), (0.02, 0.09), (1.0, 1e9), (3e-4, 2e-3)])
def test_no_labels_overlap_on_a_small_picture(low, high):
    policy = ms.Auto(ms.Space({"rate": ms.Float(low, high, log=True)}))
    x = np.geomspace(low, high, 8)
    policy.observe(x[:, None], np.sin(np.log(x)))
    found = optimisation.Optimisation(policy)
    drawn = labels_drawn(optimisation_figures.slice_of(found, found.slices[0]))
    assert len(drawn) >= 2
    assert all(low * 0.99 <= read_back(text) <= high * 1.01 for text, _ in drawn)
    boxes = sorted((box.x0, box.x1) for _, box in drawn)
    assert all(right < left for (_, right), (left, _) in itertools.pairwise(boxes))


@pytest.mark.usefixtures("files")
def test_levels_of_a_table_over_decades_are_apart():
    found = by_hand.suggest("candidates.csv", "results.csv", "yield", names="id", batch=0)
    report = optimisation.Optimisation(found.policy, target="yield")
    drawn = {each.name: each for each in report.slices}
    assert drawn["catalyst"].log
    assert not drawn["temperature"].log
    labels = labels_drawn(optimisation_figures.slice_of(report, drawn["catalyst"]))
    assert [text for text, _ in labels] == ["10⁻⁴", "0.001", "0.01", "0.1"]
    at = np.log([1e-4, 1e-3, 1e-2, 1e-1])
    expected = (at - at[0]) / (at[-1] - at[0])
    axis = next(each for each in report.axes if each.name == "catalyst")
    np.testing.assert_allclose(axis.scaled(np.exp(at)), expected, atol=1e-12)
    assert math.isclose(optimisation_figures.slice_of(report, drawn["catalyst"]).x.ticks[0], 1e-4)


# -- what a new user reads ---------------------------------------------------------------------------------------------


def test_where_hardly_anything_is_expected_it_is_said_before_the_rows(shell, files):
    (files / "few.csv").write_text("x\n" + "".join(f"{x}\n" for x in range(8)))
    rows = "".join(f"{i % 8},{10 - (i % 8 - 3) ** 2 + 0.1 * math.sin(7 * i)}\n" for i in range(32))
    (files / "much.csv").write_text("x,y\n" + rows)
    out = shell("suggest", "few.csv", "--results", "much.csv", "--target", "y")
    assert "hardly worth it" in out.partition("To try next, if you go on all the same")[0]
    assert "hardly worth it" not in out.partition("If you stop here")[2]
    out = shell("suggest", "candidates.csv", "--results", "results.csv", *NAMED)
    assert "worth it" in out.partition("If you stop here")[2] or "hardly worth it" in out.partition("To try next")[0]


def test_the_best_so_far_is_named_beside_what_to_use():
    space = ms.Space({"x": ms.Float(0, 1), "y": ms.Float(0, 1)})
    policy = ms.Auto(space)
    rng = np.random.default_rng(0)
    X = rng.random((12, 2))
    y = -((X - 0.4) ** 2).sum(axis=1) + 0.01 * rng.standard_normal(12)
    policy.observe(X, y)
    policy.refresh()
    use, rests = policy.recommend(), policy.summary().splitlines()[1]
    best = X[policy.posterior.at(X)[0].argmax()]
    if np.array_equal(best, use.x):
        assert rests.endswith("; it is the one to use.")
    else:
        assert f"it is x = {best[0]:.4g}, y = {best[1]:.4g}." in rests


def test_zero_and_one_are_said_to_be_whole_numbers(shell, files):
    out = shell("suggest", "space.toml", "--results", "new.csv", "--target", "y")
    assert "a of space.toml is 0 or 1" in out
    (files / "ends.toml").write_text("a = { low = 0.0, high = 1.0 }\nb = { low = 0, high = 9 }\n")
    assert "whole numbers" not in shell("suggest", "ends.toml", "--results", "new.csv", "--target", "y")


# -- slips -------------------------------------------------------------------------------------------------------------


def drawn_with_slip(*, again, minimize=False):
    """A line of results with one slip in it, at 0.5, which may have been repeated."""
    X, sign = np.linspace(0, 1, 15)[:, None], -1.0 if minimize else 1.0
    y = sign * (10 * X[:, 0] + 0.1 * np.sin(40 * X[:, 0]))
    y[7] = sign * 457.0
    policy = ms.Auto(ms.Box([(0, 1)]), minimize=minimize)
    policy.observe(np.concatenate([X, X[7:8]]) if again else X, np.append(y, sign * 5.1) if again else y)
    policy.refresh()
    return policy, optimisation.Optimisation(policy)


@pytest.mark.parametrize("minimize", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_slip_stands_at_the_edge_of_pictures_that_fit_the_others(again, minimize):
    policy, found = drawn_with_slip(again=again, minimize=minimize)
    assert found.doubtful == [7]
    low, high = found.vertical()
    assert high - low < 30
    panels = [optimisation_figures.best(found), optimisation_figures.slice_of(found, found.slices[0])]
    for panel, at in zip(panels, (8, 0.5), strict=True):
        assert panel.y.range == (low, high)
        (edge,) = [each for each in panel.marks if each.label == "far outside"]
        assert edge.symbol == ("triangle-down" if minimize else "triangle-up")
        assert np.asarray(edge.x).tolist() == [at]
        assert low < edge.y[0] < high
        assert edge.text == ["-457" if minimize else "457"]
        results = [each for each in panel.marks if each.label.startswith("results")]
        assert all(low <= y <= high for each in results for y in np.asarray(each.y).tolist())
    beside = optimisation_figures.model(found)
    assert beside.x.range == (low, high)
    assert any(each.label == "far outside" for each in beside.marks)
    for panel in (*panels, beside):
        traces = optimisation_figures.plotly_backend.figure_json(panel, 300)["data"]
        assert any(str(each.get("marker", {}).get("symbol")).startswith("triangle") for each in traces)
        assert matplotlib_backend.saved(matplotlib_backend.figure([[panel]], "slip"), "png")
    assert "457" not in str(policy.recommend().mean)


@pytest.mark.parametrize("again", [False, True])
def test_a_slip_is_in_no_average_and_no_best_so_far(again):
    _, found = drawn_with_slip(again=again)
    average = found.points.averages[found.points.of[7]]
    assert average == 5.1 if again else math.isnan(average)
    table = page._leading(found)
    assert "231" not in table
    assert "457" not in table
    assert found.best[7] == found.best[6]  # a slip is no step up
    two = ms.Auto(ms.Box([(0, 1), (0, 1)]))
    X = np.random.default_rng(0).random((16, 2))
    two.observe(X, np.where(np.arange(16) == 5, 457.0, X.sum(axis=1)))
    two.refresh()
    drawn = optimisation_figures.parallel(optimisation.Optimisation(two))
    written = {each.written for each in drawn.marks if hasattr(each, "written")}
    assert "457" not in written
    assert f"{np.delete(X.sum(axis=1), 5).max():.4g}" in written


def test_lines_reach_the_results_though_parameters_do_not_exist():
    space = ms.Space({"kind": ms.Choice(["a", "b"]), "x": ms.Float(0, 1, when={"kind": "a"}), "z": ms.Float(0, 1)})
    policy = ms.Auto(space)
    for i in range(12):
        query = policy.ask()
        policy.tell(query, query.params["z"] + 0.01 * i)
    found = optimisation.Optimisation(policy)
    panel = optimisation_figures.parallel(found)
    lines = [each for each in panel.marks if isinstance(each, optimisation_figures.Line)]
    reached = 0
    for each in lines:
        parts = np.split(np.asarray(each.y), np.flatnonzero(np.isnan(each.y)) + 1)
        places = np.split(np.asarray(each.x), np.flatnonzero(np.isnan(each.y)) + 1)
        for x, y in zip(places, parts, strict=True):
            if len(x):
                assert np.isfinite(y[:-1]).all()  # one line, without a gap
                assert x[-2] == len(found.axes)  # up to the result
                reached += 1
    assert reached == len(found.points.x)
    assert any(len(values) < len(space.names) for values in found.points.values)
