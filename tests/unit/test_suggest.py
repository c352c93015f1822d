"""The next experiments from CSV files that people edit: what is read, what is suggested, what is written."""

import csv
import io
import itertools
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import misspec as ms
from misspec.cli import app
from misspec.domains.rounding import settable
from misspec.errors import FileChanged, InvalidInput, StorageError
from misspec.files import storage
from misspec.integrations.suggest import sheets, suggest

SOLVENTS = ["DMSO", "toluene", "water, salted"]
HEADER = ["id", "temperature", "solvent", "loading"]
ROWS = [
    [f"A{i:02d}", t, s, c]
    for i, (t, s, c) in enumerate(itertools.product(["60", "80", "100", "120"], SOLVENTS, ["0.5", "1.25"]))
]


def truth(row):
    """Best at 100 degrees in toluene with 1.25."""
    base = {"DMSO": 30.0, "toluene": 60.0, "water, salted": 10.0}[row[2]]
    return round(base - 0.02 * (float(row[1]) - 100) ** 2 + 8 * float(row[3]), 3)


def text(lines, separator=",", newline="\n"):
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=separator, lineterminator=newline).writerows(lines)
    return stream.getvalue()


def lines_of(path, separator=","):
    with Path(path).open(newline="", encoding="utf-8-sig") as file:
        return list(csv.reader(file, delimiter=separator))


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("candidates.csv").write_text(text([HEADER, *ROWS]))


def lab(*entries, columns=HEADER[1:], name="results.csv"):
    """Write results by index: (3, 41.5), (4, ""), (5, "failed")."""
    places = [HEADER.index(column) for column in columns]
    made = [[*columns, "yield"], *([*(ROWS[i][j] for j in places), y] for i, y in entries)]
    Path(name).write_text(text(made))


def told(*indices):
    return [(i, truth(ROWS[i])) for i in indices]


def suggested(**options):
    return suggest("candidates.csv", "results.csv", **{"target": "yield", "names": "id", **options})


def indices(found):
    return [[row[0] for row in ROWS].index(row.values["id"]) for row in found.rows]


@pytest.fixture
def misspec_command(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments, code=0):
        found = CliRunner().invoke(app, ["suggest", *map(str, arguments)], prog_name="misspec")
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        assert found.exit_code == code, found.output
        if code == 1:
            assert found.stderr.startswith("misspec: ")
            assert len(found.stderr.splitlines()) == 1
        return found.stderr if code else found.stdout

    return run


# -- files as people have them -----------------------------------------------------------------------------------------


def test_a_line_that_is_there_twice_counts_once_unless_it_is_a_repeat():
    lab((0, 1.02), (7, 5.31), (9, 1.17), (0, 1.02), (0, 2.08), (7, 5.31))
    found = suggested()
    assert found.told == 4
    assert (
        "Equal lines of results.csv: 5 is 2 again, 7 is 3 again, in every cell; each counts once. If they are repeats "
        "with equal results, say --repeats." in found.notes
    )
    assert 0 not in indices(found)  # nor is it asked for again before that is said
    meant = suggested(repeats=True)
    assert meant.told == 6
    assert not any("Equal lines" in note for note in meant.notes)
    lab(*[(i, i % 2) for i in (0, 1, 2, 3, 4, 0, 1)])  # so coarse that chance makes equal ones
    coarse = suggested()
    assert coarse.told == 7
    assert any("they count as repeats, since other lines share results too" in note for note in coarse.notes)
    lab((0, ""), (0, ""), (7, "failed"), (7, "failed"))  # neither is a result
    assert (suggested().running, suggested().failed) == (2, 2)


def test_where_equal_lines_are_best_others_are_suggested():
    # a source without noise answers the repeats that were suggested with equal lines
    best = max(range(len(ROWS)), key=lambda i: truth(ROWS[i]))
    done = [(i, truth(ROWS[i])) for i in (0, 5, 9, 14, 20, 23) if i != best]
    for times in (1, 2, 3):
        lab(*done, *[(best, truth(ROWS[best]))] * times)
        found = suggested(batch=3)
        assert len(found.rows) == 3
        assert (best in indices(found)) <= (times == 1)
        assert not any("Nothing is left" in note for note in found.notes)


def test_equal_lines_of_candidates_with_results_count_once():
    made = [[*HEADER[1:], "yield"], *([*row[1:], truth(row)] for row in ROWS[:6]), [*ROWS[2][1:], truth(ROWS[2])]]
    Path("both.csv").write_text(text(made))
    found = suggest("both.csv", target="yield")
    assert found.told == 6
    assert any("8 is 4 again, in every cell; each counts once" in note for note in found.notes)
    assert suggest("both.csv", target="yield", repeats=True).told == 7


def odd_columns():
    """Numbers of rows, dates and remarks beside what matters."""
    header = ["run", *HEADER[1:], "done on", "remark"]
    rows = [[i + 1, *row[1:], f"2024-03-{i % 5 + 1:02d}", f"flask {i} was hot"] for i, row in enumerate(ROWS)]
    Path("odd.csv").write_text(text([header, *rows]))


def test_dates_remarks_and_numbers_of_rows_describe_nothing():
    odd_columns()
    lab(*told(*range(0, 24, 2)))
    found = suggest("odd.csv", "results.csv", "yield")
    assert list(found.menu.parameters) == HEADER[1:]
    assert (
        "Columns of odd.csv that are left out: run (numbers of rows), done on (dates), remark (texts that differ from "
        "row to row); --columns takes them in, --names takes one for names." in found.notes
    )
    assert not any(name in found.summary[3] for name in ("run", "done on", "remark"))
    taken = suggest("odd.csv", "results.csv", "yield", columns=["temperature", "solvent"])
    assert list(taken.menu.parameters) == ["temperature", "solvent"]
    assert not any("left out" in note for note in taken.notes)
    with pytest.raises(InvalidInput, match=r"odd.csv has no column 'temp' .*temperature.* \(--columns\)"):
        suggest("odd.csv", "results.csv", "yield", columns=["temp"])
    with pytest.raises(InvalidInput, match="'run' is in --columns, and in --names or --ignore too; take one"):
        suggest("odd.csv", "results.csv", "yield", columns=["run", "temperature"], names="run")


def test_what_is_left_alone_is_not_taken_away():
    """A column of whole numbers that is all there is, and few texts, stay."""
    Path("few.csv").write_text(text([["n"], *([i] for i in range(1, 12))]))
    assert list(suggest("few.csv", "r.csv", "y").menu.parameters) == ["n"]
    Path("few.csv").write_text(text([["kind", "n"], *([f"k{i}", 2 * i] for i in range(5))]))
    assert list(suggest("few.csv", "r.csv", "y").menu.parameters) == ["kind", "n"]


def test_a_results_file_that_does_not_exist_is_said(misspec_command):
    out = misspec_command("candidates.csv", "--results", "resluts.csv", "--target", "yield", "--names", "id")
    assert "resluts.csv does not exist: starting from nothing." in out
    assert not Path("resluts.csv").exists()


def test_experiments_that_were_run_a_little_differently_are_data():
    """85 degrees where the list has 80: the policy learns the point that was run, as one in Python does."""
    cells = [[*ROWS[i][1:], truth(ROWS[i])] for i in (0, 5, 9, 14, 17)]
    cells[1][0] = "65"
    Path("results.csv").write_text(text([[*HEADER[1:], "yield"], *cells]))
    found = suggested(seed=3)
    assert (
        "results.csv, line 3 is no candidate of candidates.csv, and is learnt from as it is: the nearest is A05, where "
        "temperature is 60, not 65." in found.notes
    )
    policy = ms.Auto(ms.Finite.from_table("candidates.csv", names="id"), seed=3)
    rows = [0, 9, 14, 17]
    policy.observe(np.array(rows), [truth(ROWS[i]) for i in rows])
    point = policy.domain.points[5].copy()
    point[0] = 65.0
    policy.observe(point[None, :], [truth(ROWS[5])])
    queries = policy.ask(5)
    assert indices(found) == [query.index for query in queries]
    assert found.summary == policy.summary().splitlines()
    with pytest.raises(InvalidInput, match=r"line 3: candidates.csv has no candidate like this; the nearest is A05"):
        suggested(strict=True)


def test_a_name_with_another_value_is_what_was_run():
    Path("results.csv").write_text("id,temperature,yield\nA00,85,4\nA01,60,5\nA02,,6\n")
    found = suggested()
    assert (
        "results.csv, line 2, column 'temperature': learnt from as 85, though A00 of candidates.csv has 60."
        in found.notes
    )
    assert found.told == 3
    with pytest.raises(InvalidInput, match=r"got '85', but A00 of candidates.csv has 60"):
        suggested(strict=True)
    Path("results.csv").write_text("id,solvent,yield\nA00,toluene,4\n")  # no slight difference
    with pytest.raises(InvalidInput, match="got 'toluene', but A00"):
        suggested()


def test_between_two_steps_it_counts_as_it_is_with_a_word():
    Path("space.toml").write_text(
        "heat = { low = 20.0, high = 120.0, step = 20.0 }\ntime = { low = 0.0, high = 1.0 }\n"
    )
    Path("results.csv").write_text("heat,time,yield\n85,0.5,3\n")
    found = spaces()
    assert "Learnt from, though it lies between the values that space.toml has: heat in line 2." in found.notes
    assert found.told == 1
    with pytest.raises(InvalidInput, match=r"column 'heat': expected a number, 20.0 plus a multiple of 20.0, got '85'"):
        spaces(strict=True)
    Path("results.csv").write_text("heat,time,yield\n140,0.5,3\n")
    assert "Learnt from, though it lies outside space.toml: heat in line 2." in spaces().notes
    with pytest.raises(
        InvalidInput, match=r"heat in line 2 lies outside space.toml; correct it, or leave --strict out"
    ):
        spaces(strict=True)


# -- what is suggested -------------------------------------------------------------------------------------------------


def test_without_results_the_first_ones_are_spread_out():
    found = suggested()
    assert (found.told, found.running, found.failed, found.best) == (0, 0, 0, None)
    assert len(set(indices(found))) == 5
    assert all(row.rule == "first" and np.isnan(row.mean) for row in found.rows)
    assert found.summary == ["There is no model yet: it takes 5 results, and there are 0."]
    for nothing in ("", "\n\n", "temperature,solvent,loading,yield", "\ufeffid;yield\r\n;\r\n"):
        Path("results.csv").write_text(nothing)
        assert indices(suggested()) == indices(found)


def test_rows_are_those_that_auto_asks_for():
    """Told the same, in code and by files."""
    done = [0, 5, 9, 14, 17, 20, 9]
    lab(*told(*done))
    policy = ms.Auto(ms.Finite.from_table("candidates.csv", names="id"), seed=3)
    policy.observe(np.array(done), [truth(ROWS[i]) for i in done])
    queries = policy.ask(5)
    found = suggested(seed=3, repeats=True)
    assert indices(found) == [query.index for query in queries]
    assert [row.rule for row in found.rows] == [query.details["rule"] for query in queries]
    assert found.summary == policy.summary().splitlines()
    assert found.best == pytest.approx(policy.posterior.mean[done].max())  # the best mean, not the luckiest result
    band = policy.band(np.array([query.index for query in queries]))
    for row, low, high in zip(found.rows, band.lower, band.upper, strict=True):
        assert low - 1e-9 <= row.mean <= high + 1e-9


def test_filling_in_and_running_again_finds_the_best():
    for _ in range(4):
        suggested(batch=4).append()
        filled = [[*row[:-1], row[-1] or truth(row)] for row in lines_of("results.csv")]
        Path("results.csv").write_text(text(filled))
    assert len(filled) == 17
    assert max(float(row[-1]) for row in filled[1:]) == max(map(truth, ROWS))
    assert "worth it" in suggested().summary[-1]


def test_the_same_files_give_the_same_rows_in_every_process():
    lab(*told(1, 6, 11, 12, 19, 21), (4, ""), (8, "failed"))
    command = [sys.executable, "-m", "misspec.cli", "suggest", "candidates.csv", "--results", "results.csv"]
    command += ["--names", "id", "--out", "next.csv"]
    shown = set()
    for threads in ("1", "2"):
        env = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        shown.add(subprocess.run(command, env=env, capture_output=True, check=True).stdout)
        Path("next.csv").rename(f"next{threads}.csv")
    assert len(shown) == 1
    assert Path("next1.csv").read_bytes() == Path("next2.csv").read_bytes()
    assert indices(suggested()) == [
        next(i for i, row in enumerate(ROWS) if row[1:] == line[:3]) for line in lines_of("next1.csv")[1:]
    ]


@pytest.mark.parametrize("done", [(), (2, 7, 13), (0, 5, 9, 14, 17, 20)])
def test_what_is_being_run_is_not_suggested_again(done):
    lab(*told(*done))
    before = indices(suggested())
    lab(*told(*done), *((i, "") for i in before))
    after = suggested()
    assert after.running == 5
    assert len(set(indices(after))) == 5
    assert not set(indices(after)) & set(before)
    lab(*told(*done), *((i, "") for i in range(24) if i not in done))
    assert set(indices(suggested())) <= set(done)  # repeats, at most


def test_fewer_candidates_than_the_batch():
    for done in ([0, 1, 2], [*range(21)]):
        keep = ROWS[: len(done) + 3]
        Path("candidates.csv").write_text(text([HEADER, *keep]))
        lab(*told(*done))
        found = suggested(batch=10, noise=1e-6)
        assert sorted(indices(found)) == list(range(len(done), len(done) + 3))
        assert found.notes == ["Every candidate has a result or is suggested here: nothing else is left to try."]
        lab(*told(*range(len(keep))))
        found = suggested(batch=10, noise=1e-6)
        assert found.rows == []
        assert "is left to try" in found.notes[0]
        found.append()  # nothing
        assert len(lines_of("results.csv")) == 1 + len(keep)


def test_where_results_vary_repeats_are_suggested():
    lab(*told(*range(24)))
    found = suggested(batch=3, noise=20.0)
    assert len(found.rows) == 3
    for row, i in zip(found.rows, indices(found), strict=True):
        assert f"a repeat ({truth(ROWS[i]):.4g} so far), to tell luck from quality" in row.reason.replace("A r", "a r")


def test_a_repeat_without_a_chance_is_not_for_luck():
    lab(*told(*range(24)))
    hopeless = 0
    for row in suggested(batch=24, noise=3.0).rows:
        none = "hardly a chance" in row.reason
        assert ("to tell luck from quality" in row.reason) == (not none and row.rule != "caution")
        assert row.reason.endswith(" so far), since nothing else promises more.") == none
        hopeless += none
    assert hopeless > 3


@pytest.mark.parametrize("y", [(3.0,), (3.0,) * 7, (0.0,) * 5])
def test_one_result_and_equal_results(y):
    lab(*enumerate(y))
    found = suggested()
    assert found.told == len(y)
    assert found.best == y[0]
    assert len(set(indices(found)) - set(range(len(y)))) == 5


def test_minimize_is_maximize_of_the_opposite():
    lab(*told(0, 5, 9, 14, 17, 20))
    larger = suggested()
    lab(*((i, -y) for i, y in told(0, 5, 9, 14, 17, 20)))
    smaller = suggested(minimize=True)
    assert indices(smaller) == indices(larger)
    assert smaller.best == -larger.best
    np.testing.assert_allclose([-row.mean for row in smaller.rows], [row.mean for row in larger.rows])
    # with the same chances to beat the best result
    assert [a.reason.split(" best ")[0] for a in smaller.rows] == [b.reason.split(" best ")[0] for b in larger.rows]
    assert any(" % to beat" in row.reason for row in smaller.rows)
    assert indices(suggested()) != indices(larger)


def test_what_failed_twice_is_avoided_and_once_is_not():
    done = told(0, 5, 9, 14, 17, 20)
    lab(*done)
    wanted = indices(suggested(batch=1))[0]
    lab(*done, (wanted, "failed"))
    once = suggested(batch=24)
    assert once.failed == 1
    assert wanted in indices(once)
    lab(*done, (wanted, "failed"), (wanted, " FAILED "))
    assert wanted not in indices(suggested(batch=24))


def test_before_there_is_a_model_what_failed_comes_last():
    lab((3, "failed"), (4, "failed"), (4, "failed"), *((i, "") for i in range(5, 23)), (0, 1.5), (1, 2.5))
    found = suggested(batch=10)
    assert indices(found) == [2, 23, 3] or indices(found) == [23, 2, 3]
    assert found.notes == ["3 of the 10 asked for: nothing is left to try but what failed twice."]


def test_fewer_than_asked_for_are_counted_and_what_failed_once_is_not_said_to_have_failed_twice():
    failed = [(i, "failed") for i in range(6)]
    lab(*failed, *told(*range(8, 22)))
    found = suggested(batch=24)
    left = set(range(24)) - {i for i, _ in told(*range(8, 22))} - set(indices(found))
    assert left, "all were suggested: nothing to say"
    (note,) = found.notes
    assert note.startswith(f"{len(found.rows)} of the 24 asked for: nothing is left to try but what ")
    assert "twice" not in note
    assert ("what failed" in note) == ("failed" in note)


def test_repeats_are_several_lines():
    lab((0, 1.0), (0, 2.0), (7, 5.0), (0, 3.0), (9, 1.0))
    found = suggested()
    assert found.told == 5
    assert "This rests on five evaluations at three points; of the best of these" in found.summary[1]


def test_reasons_are_words_with_numbers():
    lab(*told(0, 6, 12, 18, 1))  # DMSO only
    found = suggested(batch=6)
    kinds = {
        "untried": "The most promising of what was never tried: ",
        "improvement": "The best complement to the others: ",
        "mean and spread": "The most promising of all: ",
        "caution": "In case the model is wrong",
    }
    assert found.rows[0].rule == "untried"
    assert re.search(r": a chance of \d+ % to beat the best so far, which is put at 3\d", found.rows[0].reason)
    for row in found.rows:
        assert row.reason.startswith(kinds[row.rule])
    alone = suggested(batch=1, columns=["temperature", "loading"])  # no options
    assert alone.rows[0].reason.startswith("The largest improvement is expected here: ")
    for row in found.rows:
        assert ("never tried: solvent" in row.reason) == (row.values["solvent"] != "DMSO")
    assert all(row.called == row.values["id"] for row in found.rows)
    assert suggest("candidates.csv", "results.csv", ignore=["id"]).rows[0].called.startswith("data row ")


def test_candidates_can_hold_results_themselves():
    made = [[*HEADER, "yield"], *([*row, ""] for row in ROWS)]
    for i, y in told(0, 5, 9, 14):
        made[i + 1][-1] = y
    made[21][-1] = "failed"
    Path("both.csv").write_text(text(made))
    alone = suggest("both.csv", target="yield", names="id")
    assert (alone.told, alone.running, alone.failed) == (4, 0, 1)
    assert not set(indices(alone)) & {0, 5, 9, 14}
    lab(*told(17, 9), (3, ""))
    more = suggest("both.csv", "results.csv", "yield", names="id")
    assert (more.told, more.running, more.failed) == (6, 1, 1)
    alone.save("next.csv")
    assert lines_of("next.csv")[0] == [*HEADER, "yield"]
    assert {row[-1] for row in lines_of("next.csv")[1:]} == {""}
    with pytest.raises(InvalidInput, match="no file of results to append to"):
        alone.append()
    with pytest.raises(InvalidInput, match="cannot be the file of results too"):
        suggest("both.csv", "both.csv", "yield")


def test_the_target_is_what_candidates_do_not_have():
    lab(*told(0, 5, 9))
    found = suggested(target=None)
    assert found.target == "yield"
    assert "'yield' is taken for the results" in found.notes[0]
    rows = lines_of("results.csv")
    Path("results.csv").write_text(text([[*row, "x"] for row in rows]))
    with pytest.raises(InvalidInput, match=r"say which column of results.csv holds the results.* \(yield, x\)"):
        suggested(target=None)
    Path("results.csv").unlink()
    with pytest.raises(InvalidInput, match="say which column holds the results, or will"):
        suggested(target=None)


# -- how lines are read ------------------------------------------------------------------------------------------------

FOUND = [(0, 41.5), (5, 12.25), (9, None), (14, 7.0), (5, 13.0)]


def plain_lines(columns=(1, 2, 3)):
    cells = ["" if y is None else str(y) for _, y in FOUND]
    return [
        [*(HEADER[j] for j in columns), "yield"],
        *([*(ROWS[i][j] for j in columns), cell] for (i, _), cell in zip(FOUND, cells, strict=True)),
    ]


def commas(lines):
    return [[re.sub(r"^(-?\d+)\.(\d+)$", r"\1,\2", cell) for cell in line] for line in lines]


STYLES = {
    "plain": text(plain_lines()).encode(),
    "mark": b"\xef\xbb\xbf" + text(plain_lines(), newline="\r\n").encode(),
    "semicolons": text(plain_lines(), ";", "\r\n").encode(),
    "decimal commas": text(commas(plain_lines()), ";", "\r\n").encode(),
    "tabs, UTF-16": b"\xff\xfe" + text(commas(plain_lines()), "\t", "\r\n").encode("utf-16-le"),
    "big end": b"\xfe\xff" + text(plain_lines(), "\t").encode("utf-16-be"),
    "Windows": text([[*line, "°"] for line in plain_lines()]).encode("cp1252"),
    "old Macintosh": text(plain_lines(), newline="\r").encode(),
    "hint": b"sep=;\r\n" + text(plain_lines(), ";", "\r\n").encode(),
    "trailing": text([[*line, "", ""] for line in plain_lines()], ";").encode(),
    "blank lines": b"\n\n" + text(plain_lines()).replace("\n", "\n\n ,,\n").encode(),
    "no last newline": text(plain_lines()).encode().rstrip(),
    "quotes": re.sub(r"(?m)^(\d+),", r'"\1" ,', text(plain_lines())).encode(),
    "blanks": text([[f" {cell} " for cell in line] for line in plain_lines()]).encode(),
    "order": text([line[::-1] for line in plain_lines()]).encode(),
    "extra": text([[f"note {i}", *line, 'he said "x"\nand left'] for i, line in enumerate(plain_lines())]).encode(),
    "remark": text([*plain_lines()[:3], ["", "", "", ""], *plain_lines()[3:]]).encode(),
    "names only": text(plain_lines((0,))).encode(),
    "names too": text(plain_lines((0, 3, 1))).encode(),
    "long numbers": text(plain_lines()).replace("60,", "60.000,").replace("1.25\n", "1.25E0\n").encode(),
}


@pytest.mark.parametrize("style", STYLES)
def test_files_as_people_have_them(style):
    Path("results.csv").write_bytes(STYLES["plain"])
    expected = suggested()
    Path("results.csv").write_bytes(STYLES[style])
    found = suggested()
    assert [(each.key, each.y) for each in found.file.entries] == FOUND
    assert [row.values for row in found.rows] == [row.values for row in expected.rows]
    found.append()
    after = Path("results.csv").read_bytes()
    assert after.startswith(STYLES[style])
    again = suggested()
    assert [(each.key, each.y) for each in again.file.entries] == [*FOUND, *((i, None) for i in indices(found))]
    if b"\r\n" in after:
        assert after.count(b"\r\n") == after.count(b"\n")


def test_candidates_in_the_style_of_spreadsheets():
    expected = suggested()
    as_found = [HEADER, *ROWS]
    Path("candidates.csv").write_bytes(b"\xef\xbb\xbf" + text(commas(as_found), ";", "\r\n").encode())
    found = suggested()
    assert indices(found) == indices(expected)
    assert [row.values for row in found.rows] == [row.values for row in expected.rows]
    found.append()  # a new file is like the file of candidates
    assert (
        Path("results.csv").read_bytes()
        == b"\xef\xbb\xbf"
        + text(commas([[*HEADER, "yield"], *([*ROWS[i], ""] for i in indices(found))]), ";", "\r\n").encode()
    )


def test_columns_beside_are_filled_in_where_candidates_know_them():
    Path("candidates.csv").write_text(text([[*HEADER, "price"], *([*row, f"{i} EUR"] for i, row in enumerate(ROWS))]))
    Path("results.csv").write_text("who,price,id,yield\n")
    found = suggested(ignore=["price"])
    assert found.notes == ["Columns of results.csv that are left alone: who, price."]
    found.append()
    assert lines_of("results.csv")[1:] == [["", f"{i} EUR", ROWS[i][0], ""] for i in indices(found)]


def test_rows_that_nothing_tells_apart_are_one():
    """Without that, the second would be suggested for ever, and its results be those of the first."""
    Path("candidates.csv").write_text("x,kind,y\n1,a,2\n2,b,\n1.0,a,3\n3,a,\n2,b,5\n")
    found = suggest("candidates.csv", "results.csv", "y")
    assert [(each.key, each.y) for each in found.menu.entries] == [(0, 2.0), (0, 3.0), (1, 5.0)]
    assert [row.called for row in found.rows] == ["data row 4"]
    assert found.menu.size == 3


def test_names_are_text():
    Path("candidates.csv").write_text("id,x\n007,1\n7,2\n08,3\n")
    Path("results.csv").write_text("id,y\n7,1.5\n007,2.5\n")
    found = suggest("candidates.csv", "results.csv", names="id")
    assert [each.key for each in found.file.entries] == [1, 0]
    found.append()
    assert lines_of("results.csv")[-1] == ["08", ""]


WRONG = [
    ("temperature,solvent,loading,yield\n60,DMSO,0.5,1\n60,DMSO,1.25,7 %\n",
     "results.csv, line 3, column 'yield': expected a number, 'failed' for .* got '7 %'"),
    ("temperature,solvent,loading,yield\n\n\n60,DMSO,1.25,nan\n", "line 4, column 'yield': .* got 'nan'"),
    ("temperature,solvent,loading,yield\n60,DMSO,1.25,inf\n", "line 2, column 'yield': .* got 'inf'"),
    ('temperature,solvent,loading,yield\n60,DMSO,1.25,"7,5"\n', "line 2, column 'yield': .* got '7,5'"),
    ("temperature,solvent,loading,yield\n60,DMSO,1.25,7,5\n", "line 2: 5 cells for 4 columns; .* a decimal comma"),
    ("temperature,solvent,loading,yield\n60,DMS0,1.25,7\n",
     r"line 2, column 'solvent': expected one of the 3 values in candidates.csv \(DMSO, toluene, water, salted\), got "
     r"'DMS0'; did you mean 'DMSO'\?"),
    ("temperature,solvent,loading,yield\n60,,1.25,7\n", "line 2, column 'solvent': .*, the cell is empty"),
    ("temperature,solvent,loading,yield\nhot,DMSO,1.25,7\n",
     "line 2, column 'temperature': expected a number, got 'hot'"),
    ("temperature,solvent,loading,yield\n,DMSO,1.25,7\n", "column 'temperature': expected a number, the cell is empty"),
    ("temperature,solvent,loading,yield\n81,DMSO,1.25,7\n",
     "line 2: candidates.csv has no candidate like this; the nearest is A07, where temperature is 80, not 81"),
    ("id,yield\nA01,3\nB01,4\n",
     r"line 3, column 'id': candidates.csv has no candidate 'B01'; did you mean 'A01'\?"),
    ("id,temperature,yield\nA01,100,4\n", "line 2, column 'temperature': got '100', but A01 of candidates.csv has 60"),
    ("temperature,solvents,loading,yield\n60,DMSO,1.25,7\n",
     r"no column 'solvent' of candidates.csv; did you mean 'solvents'\?"),
    ("temperature,solvent,loading,Yield\n60,DMSO,1.25,7\n", r"has no column 'yield'; did you mean 'Yield'\?"),
    ("temperature,solvent,solvent,yield\n60,DMSO,1.25,7\n", "two columns of the same name"),
    ("1,2,3\n", "must start with a line of column names"),
    ("id,yield\n,3\n", "line 2, column 'id': expected what says which candidate it is, the cell is empty"),
    ("temperature,solvent,loading,yield\n,,,3\n", "line 2, column 'temperature': expected .*, the cell is empty"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), WRONG)
def test_wrong_cells_are_named_in_one_line(misspec_command, content, message):
    Path("results.csv").write_text(content)
    options = ["candidates.csv", "--results", "results.csv", "--target", "yield", "--names", "id", "--append"]
    assert re.search(message, misspec_command(*options, "--strict", code=1))
    assert Path("results.csv").read_text() == content


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nowhere.csv", "--target", "y", "--results", "r.csv"], "nowhere.csv does not exist"),
        (["nowhere.toml", "--target", "y", "--results", "r.csv"], "nowhere.toml does not exist"),
        (["candidates.csv", "--target", "y"], r"candidates.csv has no column 'y'.*--results results.csv"),
        (["candidates.csv", "--results", "r.csv"], "say which column holds the results"),
        (["candidates.csv", "--results", "r.csv", "--target", "y", "--names", "ids"], "did you mean 'id'.*--names"),
        (["candidates.csv", "--results", "r.csv", "--target", "y", "--ignore", "x"], "no column 'x'.*--ignore"),
        (["candidates.csv", "--results", "r.csv", "--target", "id", "--names", "id"], "can be no other column"),
        (["candidates.csv", "--results", "r.csv", "--target", "y", "--names", "solvent"],
         "line 3, column 'solvent': expected a name of its own, 'DMSO' is the name of line 2 too"),
        (["candidates.csv", "--results", "candidates.csv", "--target", "y"], "cannot be the file of results too"),
        (["candidates.csv", "--target", "y", "--append"], "--append needs the file"),
        (["candidates.csv", "--results", "r.csv", "--target", "y", "--append", "--out", "n.csv"], "take one"),
        (["candidates.csv", "--results", "r.csv", "--target", "y", "--out", "candidates.csv"], "to another file"),
        (["candidates.csv", "--results", "r.csv", "--target", "y", "--out", "no/next.csv"], "cannot write"),
        (["candidates.csv", "--results", "r.csv", "--target", "y", "--noise", "0"], "noise must be"),
        (["binary.csv", "--results", "r.csv", "--target", "y"], "is not a CSV file"),
        (["head.csv", "--results", "r.csv", "--target", "y"], "a line per candidate"),
        (["gap.csv", "--results", "r.csv", "--target", "y"],
         r"column 'note', data row 1: .* --ignore 'note'; .* --target"),
        (["one.csv", "--results", "r.csv", "--target", "y"], "no column left that describes its candidates; y do not"),
        (["space.toml", "--results", "r.csv", "--target", "heat"], "'heat' is a parameter of space.toml"),
        (["space.toml", "--results", "r.csv", "--target", "y", "--names", "heat"],
         "leave --names, --ignore and --columns out"),
        (["space.toml", "--target", "y"], "space.toml has no column 'y'.*--results results.csv"),
    ],
)  # fmt: skip
def test_wrong_options_are_one_line(misspec_command, options, message):
    Path("binary.csv").write_bytes(b"PK\x03\x04\x00\x00\x81\x8d")
    Path("head.csv").write_text("a,b\n")
    Path("gap.csv").write_text("a,note\n1,\n2,x\n")
    Path("one.csv").write_text("y\n1\n")
    Path("space.toml").write_text("heat = { low = 1, high = 5 }\n")
    before = sorted(Path().iterdir())
    assert re.search(message, misspec_command(*options, code=1))
    assert sorted(Path().iterdir()) == before


# -- what is written ---------------------------------------------------------------------------------------------------

cells = st.text(st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    notes=st.lists(cells, min_size=1, max_size=4),
    separator=st.sampled_from(",;\t"),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    mark=st.booleans(),
    cut=st.booleans(),
    rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=3),
)
def test_bytes_stay_and_rows_are_read_back(tmp_path_factory, notes, separator, newline, mark, cut, rows):
    """Whatever stands in a file, adding to it either changes nothing, or appends what is read back as it was."""
    path = tmp_path_factory.mktemp("append") / "r.csv"
    content = text([["a", "note", "y", ""], *(["1", note, "2", ""] for note in notes)], separator, newline)
    content = (b"\xef\xbb\xbf" if mark else b"") + (content.rstrip() if cut else content).encode()
    path.write_bytes(content)
    file = sheets.File(path)
    if file.sheet.header != ["a", "note", "y"]:
        return  # a first cell of the data can look like a separator that is none
    added = [["x", *row] for row in rows]
    try:
        sheets.append_rows(file, added)
    except InvalidInput:
        assert path.read_bytes() == content
        assert '"' in "".join(notes)  # the file ends inside quotes, as far as a reader can tell
        return
    after = sheets.File(path)
    assert path.read_bytes().startswith(content)
    assert after.sheet.rows[: len(file.sheet.rows)] == file.sheet.rows
    got = [[*(cell.strip() for cell in row), "", "", ""][:3] for row in after.sheet.rows[len(file.sheet.rows) :]]
    assert got == [[cell.strip() for cell in row] for row in added]


def test_appending_is_whole_or_nothing(monkeypatch):
    lab(*told(0, 5, 9))
    content = Path("results.csv").read_bytes()
    Path("results.csv").chmod(0o640)
    Path("link.csv").symlink_to("results.csv")
    found = suggest("candidates.csv", "link.csv", "yield", names="id")

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(storage.os, "fsync", full)
        with pytest.raises(StorageError, match="No space left"):
            found.append()
    assert Path("results.csv").read_bytes() == content
    assert sorted(map(str, Path().iterdir())) == ["candidates.csv", "link.csv", "results.csv"]
    found.append()
    assert Path("link.csv").is_symlink()
    assert Path("results.csv").stat().st_mode & 0o777 == 0o640
    assert len(lines_of("results.csv")) == 4 + 5
    with pytest.raises(InvalidInput, match="has changed meanwhile; run the same command again"):
        found.append()
    assert len(lines_of("results.csv")) == 4 + 5


def in_between(monkeypatch, act):
    """Do something once, when the new content is written and the file is about to be replaced."""
    flush, rest = os.fsync, [act]

    def flushed(handle):
        flush(handle)
        if rest:
            rest.pop()()

    monkeypatch.setattr(storage.os, "fsync", flushed)


def test_a_spreadsheet_that_saves_in_between_loses_nothing(monkeypatch, misspec_command):
    lab(*told(0, 5, 9))
    found = suggested()
    in_between(monkeypatch, lambda: lab(*told(0, 5, 9, 11)))
    with pytest.raises(FileChanged, match=r"results.csv has changed meanwhile; run the same command again"):
        found.append()
    assert [row[-1] for row in lines_of("results.csv")[1:]] == [str(y) for _, y in told(0, 5, 9, 11)]
    in_between(monkeypatch, lambda: lab(*told(0, 5, 9, 11, 12)))
    options = ["--results", "results.csv", "--target", "yield", "--names", "id", "--batch", "2", "--append"]
    said = misspec_command("candidates.csv", *options)
    assert "5 results of yield" in said  # it started again, from what was saved
    assert [row[-1] for row in lines_of("results.csv")[1:]] == [*(str(y) for _, y in told(0, 5, 9, 11, 12)), "", ""]
    in_between(monkeypatch, Path("results.csv").unlink)
    with pytest.raises(FileChanged, match="has changed meanwhile"):
        suggested().append()
    assert sorted(map(str, Path().iterdir())) == ["candidates.csv"]


def test_rows_filled_in_between_are_not_overwritten(monkeypatch):
    found = suggested()
    found.save("next.csv")
    filled = [*lines_of("next.csv")[:1], *([*row[:-1], "5.5"] for row in lines_of("next.csv")[1:])]
    in_between(monkeypatch, lambda: Path("next.csv").write_text(text(filled)))
    with pytest.raises(FileChanged, match=r"next.csv has changed meanwhile"):
        found.save("next.csv")
    assert lines_of("next.csv") == filled


def test_a_second_append_waits_for_the_first(monkeypatch):
    lab(*told(0, 5, 9))
    before, first, second = Path("results.csv").read_bytes(), suggested(), suggested()
    said = []

    def late():
        try:
            second.append()
        except FileChanged as error:
            said.append(str(error))

    other = threading.Thread(target=late)

    def meanwhile():
        other.start()
        other.join(0.2)
        assert Path("results.csv").read_bytes() == before

    in_between(monkeypatch, meanwhile)
    first.append()
    other.join()
    assert said == ["results.csv has changed meanwhile; run the same command again"]
    assert len(lines_of("results.csv")) == 4 + 5
    assert sorted(map(str, Path().iterdir())) == ["candidates.csv", "results.csv"]


def test_a_lock_that_does_not_end_is_named(monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    lab(*told(0, 5, 9))
    before, found = Path("results.csv").read_bytes(), suggested()
    monkeypatch.setattr(storage, "PATIENCE", 0.05)
    with Path("results.csv").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="another program has locked it; close it there and try again"):
            found.append()
    assert Path("results.csv").read_bytes() == before
    found.append()


APPENDING = """
import sys, time
from misspec.integrations.suggest import append
for start in map(float, sys.argv[1:]):
    time.sleep(max(0.0, start - time.time()))
    found = append("candidates.csv", "results.csv", "yield", names="id", batch=1)
    print(len(found.rows))
"""


@pytest.mark.slow
@pytest.mark.parametrize("there", [True, False])
def test_processes_that_append_at_once_lose_no_row(there):
    """Ten pairs, each pair at the same moment: the first makes the file, if it is not there."""
    if there:
        lab()
    begin = time.time() + 8.0  # both have imported everything by then
    starts = [str(begin + 1.5 * i) for i in range(10)]
    pair = [subprocess.Popen([sys.executable, "-c", APPENDING, *starts], stdout=subprocess.PIPE) for _ in range(2)]
    added = [each.communicate()[0].split() for each in pair]
    assert [each.returncode for each in pair] == [0, 0]
    assert sum(len(each) for each in added) == 20
    rows = lines_of("results.csv")[1:]
    assert len(rows) == len({tuple(row) for row in rows}) == 20
    assert sorted(map(str, Path().iterdir())) == ["candidates.csv", "results.csv"]


def test_a_new_file_is_not_overwritten_by_surprise():
    found = suggested()
    lab(*told(0, 5, 9))
    content = Path("results.csv").read_bytes()
    with pytest.raises(InvalidInput, match="has changed meanwhile"):
        found.append()
    assert Path("results.csv").read_bytes() == content


def test_a_quote_that_ends_nowhere_is_found():
    content = 'temperature,solvent,loading,note,yield\n60,DMSO,0.5,,3\n60,DMSO,1.25,"open,4\n'
    Path("results.csv").write_text(content)
    with pytest.raises(InvalidInput, match="does a quote end nowhere"):
        suggested().append()
    assert Path("results.csv").read_text() == content


def test_letters_that_an_encoding_lacks_are_named():
    Path("candidates.csv").write_text("id,kind\nA,β\nB,γ\n")
    Path("results.csv").write_bytes("kind,yield,°\n".encode("cp1252"))
    found = suggest("candidates.csv", "results.csv", "yield", names="id")
    assert found.notes[0] == "results.csv is not in UTF-8, and is read as Windows-1252."
    with pytest.raises(InvalidInput, match=r"is in cp1252, which has no '[βγ]'; save it as CSV in UTF-8"):
        found.append()


def test_results_in_a_file_of_suggestions_are_not_lost():
    found = suggested()
    found.save("next.csv")
    found.save("next.csv")  # nobody has filled it in
    rows = lines_of("next.csv")
    filled = [rows[0], *([*row[:-1], "5.5"] for row in rows[1:])]
    Path("next.csv").write_text(text(filled))
    with pytest.raises(InvalidInput, match=r"next.csv holds 5 result\(s\) that are not among the results yet"):
        suggested().save("next.csv")
    Path("results.csv").write_text(text(filled))
    suggested().save("next.csv")
    assert lines_of("next.csv") != filled
    Path("other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInput, match=r"other.csv exists, and holds no rows to try"):
        suggested().save("other.csv")
    with pytest.raises(InvalidInput, match="to another file"):
        suggested().save("results.csv")


# -- spaces ------------------------------------------------------------------------------------------------------------

SPACE = """
heat = { low = 60, high = 120 }
loading = { low = 0.001, high = 0.1, log = true }
time = { low = 0.0, high = 24.0 }
grid = { low = 0.0, high = 1.0, step = 0.1 }
stirred = [true, false]
parts = [1.0, 2.5]
pressure = 1
"""


def spaces(batch=5, **options):
    return suggest("space.toml", "results.csv", "yield", batch=batch, **options)


def worth(row):
    return round(50 - abs(float(row[0]) - 90) - (float(row[2]) - 9) ** 2 / 10 + 5 * (row[4] in ("True", "TRUE")), 2)


def test_a_space_needs_no_candidates():
    Path("space.toml").write_text(SPACE)
    for _ in range(2):
        before = lines_of("results.csv") if Path("results.csv").exists() else []
        spaces(4).append()
        rows = lines_of("results.csv")
        assert rows[0] == ["heat", "loading", "time", "grid", "stirred", "parts", "pressure", "yield"]
        assert rows[: len(before)] == before
        for row in rows[1:]:
            assert 60 <= int(row[0]) <= 120
            assert float(f"{float(row[1]):.4g}") == float(row[1])
            assert 0.001 <= float(row[1]) <= 0.1
            assert round(float(row[2]), 2) == float(row[2])
            assert round(10 * float(row[3]), 9) in range(11)
            assert row[4:7] in [[a, b, "1"] for a in ("True", "False") for b in ("1", "2.5")]
        Path("results.csv").write_text(text([rows[0], *([*row[:-1], worth(row)] for row in rows[1:])]))
    found = spaces(2)
    assert found.told == 8
    assert not {tuple(row.values.values()) for row in found.rows} & {each.key for each in found.file.entries}
    # a spreadsheet has opened and saved it, without the column that never changes
    spread = [[*row[:6], row[7]] for row in lines_of("results.csv")]
    spread = [[{"True": "TRUE", "False": "FALSE"}.get(cell, cell) for cell in row] for row in spread]
    Path("results.csv").write_bytes(b"\xef\xbb\xbf" + text(commas(spread), ";", "\r\n").encode())
    again = spaces(2)
    assert [row.values for row in again.rows] == [row.values for row in found.rows]
    again.append()
    assert len(lines_of("results.csv", ";")) == 1 + 8 + 2
    assert "." not in Path("results.csv").read_text()


def test_wrong_cells_of_a_space():
    Path("space.toml").write_text(SPACE)
    head = "heat,loading,time,grid,stirred,parts,yield\n"
    for cells, message in [
        ("60.5,0.01,1,0.1,true,1,3", "line 2, column 'heat': expected a whole number, got '60.5'"),
        ("60,-1,1,0.1,true,1,3", "column 'loading': expected a number above 0"),
        ("60,0.01,1,0.15,true,1,3", "column 'grid': expected a number, 0.0 plus a multiple of 0.1, got '0.15'"),
        (
            "60,0.01,1,0.1,ja,1,3",
            r"column 'stirred': expected one of the 2 values in space.toml \(True, False\), got 'ja'",
        ),
        ("60,0.01,1,0.1,true,2,3", r"column 'parts': expected one of the 2 values in space.toml \(1.0, 2.5\), got '2'"),
    ]:
        Path("results.csv").write_text(head + cells + "\n")
        with pytest.raises(InvalidInput, match=message):
            spaces(strict=True)
    Path("results.csv").write_text(head.replace("grid,", "") + "60,0.01,1,true,1,3\n")
    with pytest.raises(InvalidInput, match=r"results.csv has no column 'grid' of space.toml"):
        spaces()
    lines = [f"{40 + 10 * i},0.01,{i},0.5,true,1,{i}\n" for i in range(8)]
    Path("results.csv").write_text(head + "".join(lines))
    found = spaces(2)
    assert found.notes == ["Learnt from, though it lies outside space.toml: heat in line 2, heat in line 3."]
    assert all(60 <= row.values["heat"] <= 120 for row in found.rows)


def test_a_small_space_is_used_up():
    Path("space.toml").write_text('kind = ["a", "b"]\nheat = { low = 1, high = 3 }\n')
    first = spaces(10)
    assert len(first.rows) == 6
    assert first.notes[1:] == [
        "Every point of the space has a result or is suggested here: nothing else is left to try."
    ]
    first.append()
    assert spaces().rows == []
    rows = lines_of("results.csv")
    Path("results.csv").write_text(text([rows[0], *([*row[:-1], i] for i, row in enumerate(rows[1:]))]))
    assert spaces(noise=1e-6).rows == []


LINE = "x = { low = 0.0, high = 1.0 }\n"


def line_of(*entries):
    Path("results.csv").write_text(text([["x", "yield"], *entries]))


def values_of(found, name="x"):
    return [row.values[name] for row in found.rows]


def test_where_numbers_vary_by_degrees_something_is_always_left():
    """Though the best lies in a corner that has a result, and what is asked for next to it is rounded to it."""
    Path("space.toml").write_text(LINE)
    for _ in range(6):
        found = spaces(3)
        assert not any("nothing is left" in note or "Nothing" in note for note in found.notes)
        assert len(set(values_of(found))) == 3
        found.append()
        Path("results.csv").write_text(
            text([row if row[-1] else [row[0], -float(row[0])] for row in lines_of("results.csv")])
        )
    assert len(lines_of("results.csv")) == 1 + 18
    xs = [0.637, 0.028, 0.338, 0.935, 0.124, 0.486, 0.0, 0.05, 0.101, 0.0, 0.05, 0.1]
    line_of(*([x, -x] for x in xs))
    found = spaces(3, noise=1e-6)
    assert len(set(values_of(found)) - set(xs)) == 3
    assert [row.values for row in spaces(3, noise=1e-6).rows] == [row.values for row in found.rows]
    # nor is what is being run, or failed twice, all that there is
    for y in ([""], ["failed", "failed"]):
        line_of(*([x, -x] for x in xs[1:6]), *([0.0, each] for each in y))
        found = spaces(3, noise=1e-6)
        assert found.notes == []
        assert len(set(values_of(found)) - set(xs[:7])) == 3


@pytest.mark.parametrize("done", [0, 3, 6])
def test_where_all_that_can_be_set_is_taken_there_are_finer_numbers(monkeypatch, done):
    """Here 0 and 1 alone; with results, without a model, and before there are any."""
    monkeypatch.setattr("misspec.integrations.suggest.menu.DIGITS", 1)
    Path("space.toml").write_text(LINE)
    line_of([0, ""], [1, ""], *([i / 5, i * 0.1] for i in range(done)))
    found = spaces(4, noise=1e-6)
    assert found.notes == []
    assert len(set(values_of(found)) - {0.0, 1.0}) == 4
    assert not set(values_of(found)) & {i / 5 for i in range(done)}
    line_of(*([x, y] for x in (0, 1) for y in ("failed", "failed")), [0.5, 1.0])
    assert len(set(values_of(spaces(4))) - {0.0, 0.5, 1.0}) == 4


def test_what_failed_twice_is_not_said_to_have_a_result():
    Path("candidates.csv").write_text(text([HEADER, *ROWS[:7]]))
    lab(*told(*range(6)), (6, "failed"), (6, "failed"))
    found = suggested(noise=1e-6)
    assert found.rows == []
    assert found.notes == ["Nothing is left to try but what failed twice."]


@pytest.mark.parametrize(("low", "high", "log"), [(1.0, 1.00001, True), (1e-150, 1e150, True), (-1e-3, 1e-3, False)])
def test_numbers_of_every_range_can_be_told_apart(low, high, log):
    p = ms.Float(low, high, log=log)
    xs = [settable(p, float(x)) for x in p.from_unit(np.linspace(0.0, 1.0, 201))]
    assert len(set(xs)) == 201
    assert min(xs) >= low
    assert max(xs) <= high
    assert np.signbit(settable(ms.Float(-1.0, 1.0), -1e-9)) == 0


# -- the command line --------------------------------------------------------------------------------------------------


def test_what_is_shown(misspec_command):
    lab(*told(0, 5, 9, 14, 17, 20), (3, ""), (4, "failed"))
    out = misspec_command("candidates.csv", "--results", "results.csv", "--names", "id", "--append", "--batch", 3)
    assert out.startswith("6 results of yield, 1 being run, 1 failed; 24 candidates; larger is better\n")
    assert "'yield' is taken for the results" in out
    assert re.search(r" 1\. +A\d\d +\d+ +\S.* ± ", out)
    assert "the best so far, which is put at " in out
    assert "expected yield (95 %)" in out
    assert re.search(r"ten more evaluations .*worth it", out.replace("\n", " "))
    assert out.endswith("3 rows added to results.csv: fill in yield and run the same command again\n")
    assert len(lines_of("results.csv")) == 9 + 3
    out = misspec_command("candidates.csv", "--results", "results.csv", "--names", "id", "--minimize", "--batch", 1)
    assert out.startswith("6 results of yield, 4 being run, 1 failed; 24 candidates; smaller is better\n")
    assert len(lines_of("results.csv")) == 9 + 3


def test_wide_rows_are_whole_and_names_are_printed_as_they_are(misspec_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    long = ["[red]" + 30 * letter + "[/red]" + 50 * letter for letter in "abcd"]
    Path("long.csv").write_text(text([["molecule", "x"], *([each, i] for i, each in enumerate(long))]))
    out = misspec_command("long.csv", "--results", "r.csv", "--target", "y", "--batch", 4)
    whole = re.sub(r"\s", "", out)
    for each in long:
        assert each in whole
    assert "1. candidate" in out


def test_a_column_that_teaches_nothing_is_said(misspec_command):
    out = misspec_command("candidates.csv", "--results", "results.csv", "--target", "yield", "--out", "next.csv")
    assert "Columns of candidates.csv that are left out: id (texts that differ from row to row)" in " ".join(
        out.split()
    )
    assert "--columns takes them in, --names takes one for names" in " ".join(out.split())
    assert "5 rows written to next.csv" in out


def test_help_says_what_cells_mean(misspec_command):
    out = " ".join(misspec_command("--help").split())
    assert "an empty cell is an experiment that is being run" in out
    assert "the word failed is an experiment that gave no result" in out


@pytest.mark.skipif(
    not (Path(os.environ.get("MISSPEC_DATA", "/nowhere")) / "direct_arylation.csv").exists(),
    reason="MISSPEC_DATA names no folder with direct_arylation.csv (Shields et al., Nature 590, 2021)",
)
def test_ten_rounds_of_reactions_by_csv_alone(misspec_command):
    """`benchmarks/suggest.py` compares with a loop; here one run must be better than chance."""
    table = lines_of(Path(os.environ["MISSPEC_DATA"]) / "direct_arylation.csv")
    known = {tuple(row[:-1]): row[-1] for row in table}
    Path("candidates.csv").write_text(text([row[:-1] for row in table]))
    options = ["candidates.csv", "--results", "results.csv", "--batch", 5, "--target", "yield", "--append", "--seed", 1]
    for _ in range(10):
        misspec_command(*options)
        Path("results.csv").write_text(text([[*row[:-1], known[tuple(row[:-1])]] for row in lines_of("results.csv")]))
    yields = [float(row[-1]) for row in lines_of("results.csv")[1:]]
    assert len(yields) == 50
    assert np.mean(yields) > 1.5 * np.mean([float(y) for y in list(known.values())[1:]])


def test_where_every_experiment_counts_it_is_said_so():
    lab(*told(*range(0, len(ROWS), 2), 1))
    rules = [suggested(batch=1, aim=aim).rows[0].rule for aim in ("earn", "best")]
    assert rules == ["mean and spread", "improvement"]
    done = CliRunner().invoke(app, ["suggest", "candidates.csv", "--results", "results.csv", "--aim", "win"])
    assert done.exit_code != 0


def test_a_limit_on_another_column(tmp_path):
    """Its values are learnt, may be missing, and are said; rows to try leave it empty."""
    files = tmp_path / "candidates.csv", tmp_path / "results.csv"
    files[0].write_text(text([HEADER, *ROWS]))
    impurity = lambda row: float(row[1]) / 50 + (row[2] == "DMSO")  # noqa: E731
    told = [[row[0], truth(row), impurity(row) if i % 4 else ""] for i, row in enumerate(ROWS[::2])]
    files[1].write_text(text([["id", "yield", "impurity"], *told]))
    words = [
        "suggest",
        *files[:1],
        "--results",
        files[1],
        "--names",
        "id",
        "--target",
        "yield",
        "--limit",
        "impurity < 1.7",
    ]
    done = CliRunner().invoke(app, [*map(str, words), "--batch", "2", "--append"])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    broken = sum(each[2] != "" and each[2] >= 1.7 for each in told)
    assert f"(impurity < 1.7, broken by {broken} of 9 results)" in said
    assert "keeps the limits with a probability of" in said
    assert "fill in yield and impurity" in said
    assert "left alone" not in said
    rows = lines_of(files[1])[-2:]
    assert [row[1:] for row in rows] == [["", ""], ["", ""]]
    named = {row[0]: row for row in ROWS}
    assert all(row[0] not in {each[0] for each in told} for row in rows)
    assert any(impurity(named[row[0]]) < 1.7 for row in rows)
    found = suggest(files[0], files[1], "yield", names="id", limits=["impurity < 1.7", "impurity > 0"])
    assert found.limited == ("impurity",)
    assert "; keeps the limits with a probability of" in found.rows[0].reason
    free = suggest(files[0], files[1], "yield", names="id", ignore=[])
    assert any("left alone: impurity" in note for note in free.notes)


def test_a_limit_in_the_file_of_candidates_and_in_a_space(tmp_path):
    table, space = tmp_path / "t.csv", tmp_path / "s.toml"
    table.write_text(
        "a,b,y,c\n" + "".join(f"{i},{i % 3},{i if i < 8 else ''},{i / 4 if i < 6 else ''}\n" for i in range(12))
    )
    found = suggest(table, target="y", limits="c <= 1")
    assert list(found.menu.parameters) == ["a", "b"]
    assert found.told == 8
    assert "c <= 1, broken by 1 of 6 results" in " ".join(found.summary)
    found.save(tmp_path / "next.csv")
    assert lines_of(tmp_path / "next.csv")[0] == ["a", "b", "y", "c"]
    assert all(line[2:] == ["", ""] for line in lines_of(tmp_path / "next.csv")[1:])
    space.write_text("[a]\nlow = 0.0\nhigh = 1.0\n")
    begun = suggest(space, tmp_path / "new.csv", "y", limits="c < 1")
    begun.append()
    assert lines_of(tmp_path / "new.csv")[0] == ["a", "y", "c"]
    for limits, files, options, wanted in [
        ("a < 1", (space, tmp_path / "new.csv", "y"), {}, "'a' is a parameter of .*s.toml; the limit must be another"),
        ("y < 1", (space, tmp_path / "new.csv", "y"), {}, "'y' holds the results .--target., and can have no limit"),
        ("d < 1", (space, tmp_path / "new.csv", "y"), {}, "has no column 'd'.*--limit"),
        ("a < 1", (table,), {"target": "y", "columns": ["a"]}, "'a' has a limit .--limit., and can be no other column"),
        ("c << 1", (table,), {"target": "y"}, "a limit must be text of a name"),
    ]:
        with pytest.raises(InvalidInput, match=wanted):
            suggest(*files, limits=limits, **options)
    table.write_text("a,y,c\n1,2,x\n2,,\n")
    with pytest.raises(
        InvalidInput, match=r"line 2, column 'c': expected a number, or an empty cell.*got 'x' \(--limit\)"
    ):
        suggest(table, target="y", limits="c < 1")
