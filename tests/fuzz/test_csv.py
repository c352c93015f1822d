"""CSV files as careless people and broken programs write them: read as they are, or refused in one sentence."""

import warnings

import numpy as np
import pytest
from hypothesis import strategies as st

from hostile import attempt, fuzz
from hostile_files import CELLS, ENCODINGS, RULED, document, texts, write
from misspec import Finite
from misspec.files import frames
from misspec.integrations import table
from misspec.integrations.suggest import sheets
from misspec.integrations.suggest.menu import FileLine, OfSpace, OfTable, outcome
from misspec.integrations.suggest.suggesting import FileResults


@fuzz(500, text=texts(), encoding=ENCODINGS)
def test_frames_and_tables(tmp_path, text, encoding):
    path = tmp_path / "candidates.csv"
    write(path, text, encoding)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        frame = attempt(lambda: frames.read(path))
        if frame is not None:
            assert len(frame) >= 1
            assert len({len(cells) for cells in frame.columns.values()}) == 1
        domain = attempt(lambda: Finite.from_table(path))
        named = (
            attempt(lambda: Finite.from_table(path, target=frame.names[-1], ignore=frame.names[0])) if frame else None
        )
    for found in (domain, named):
        if found is not None:
            assert frame is not None
            assert len(found) == len(frame)
            assert np.isfinite(found.encoded).all()
            assert found.indices(found.points).min() >= 0


@fuzz(
    350, text=texts(), encoding=ENCODINGS, skip=st.booleans(), columns=st.sampled_from([None, ["x"], ["temperature"]])
)
def test_what_diagnose_reads(tmp_path, text, encoding, skip, columns):
    path = tmp_path / "data.csv"
    write(path, text, encoding)
    found = attempt(lambda: table.read(path, None, columns, skip=skip))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "_plain", lambda *_: None)  # cell by cell, even where all are plain numbers
        by_cell = attempt(lambda: table.read(path, None, columns, skip=skip))
    for one, other in zip(found or [None], by_cell or [None], strict=True):
        np.testing.assert_array_equal(one, other)
    if found is not None:
        assert len(found.observations) == len(found.points) == len(found.groups)
        assert np.isfinite(found.observations).all()
        lines = sum(bool(line.strip()) for line in text.splitlines())
        assert len(found.observations) + found.skipped <= lines - 1  # nothing is read twice


@fuzz(
    100,
    rows=st.lists(st.tuples(*[st.sampled_from(["0", "1", "2.5", "-3"])] * 3), min_size=1, max_size=30),
    numbers=st.sampled_from([None, 0, 1]),
    repeats=st.booleans(),
)
def test_plain_numbers_are_read_alike_in_one_go_and_cell_by_cell(tmp_path, rows, numbers, repeats):
    counted = [row if numbers is None else (str(numbers + i), *row[1:]) for i, row in enumerate(rows)]
    path = tmp_path / "data.csv"
    path.write_text("\n".join(map(",".join, [("a", "b", "c"), *counted])) + "\n")
    found = attempt(lambda: table.read(path, repeats=repeats))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "_plain", lambda *_: None)
        by_cell = attempt(lambda: table.read(path, repeats=repeats))
    assert (found is None) == (by_cell is None)
    for one, other in zip(found or [], by_cell or [], strict=True):
        np.testing.assert_array_equal(one, other)


@fuzz(350, text=texts(), encoding=ENCODINGS)
def test_files_of_results_are_added_to_without_changing_them(tmp_path, text, encoding):
    path = tmp_path / "results.csv"
    write(path, text, encoding)
    before = path.read_bytes()
    file = attempt(lambda: sheets.File(path))
    if file is None or not file.sheet.header:
        return
    added = attempt(lambda: sheets.append_rows(file, [["1"] * len(file.sheet.header)]) or True)
    if added is None:
        assert path.read_bytes() == before
    else:
        assert path.read_bytes().startswith(before)
        assert len(sheets.File(path).sheet.rows) == len(file.sheet.rows) + 1


@fuzz(200, cell=st.one_of(st.sampled_from(CELLS), st.text(max_size=6)), separator=st.sampled_from(",;\t"))
def test_a_result_is_a_finite_number_or_none(tmp_path, cell, separator):
    found = attempt(lambda: outcome(cell.strip(), FileLine(tmp_path, 2, separator), "yield"))
    if found is not None and found[0] is not None:
        assert np.isfinite(found[0])


def test_many_columns_take_a_moment(tmp_path):
    wide = tmp_path / "wide.csv"
    wide.write_text(",".join(f"c{i}" for i in range(100_000)) + ",\n" + "1," * 100_000 + "\n")
    assert len(frames.read(wide).names) == 100_000
    wide.write_text("," * 100_000 + "a\n" + "," * 100_000 + "1\n")
    assert frames.read(wide).columns == {"a": [1]}


GOOD = [["0.01", "0.011", "9"], ["tree", "linear"], ["", "3", "20", "2.5"], ["", "a", "b"], ["0", "50", "70"]]
GOOD += [["50", "30", "100"], ["0", "20"], ["1", "", "failed"]]


@fuzz(150, cells=st.tuples(*(st.sampled_from(some) | st.sampled_from(CELLS) for some in GOOD)), strict=st.booleans())
def test_results_in_a_space_with_rules_conditions_and_mixtures(tmp_path, cells, strict):
    (tmp_path / "space.toml").write_bytes(document(RULED))
    sheets.write(
        sheets.File(tmp_path / "results.csv"),
        [["lr", "booster", "depth", "kind", "x", "y", "z", "result"], ["0.01", "tree", "2", "", "40", "60", "0", "1"]],
        frames.Style(),
    )
    row = ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
    with (tmp_path / "results.csv").open("a", encoding="utf-8", errors="replace") as file:
        file.write(row + "\n")
    menu = OfSpace(tmp_path / "space.toml", strict=strict)
    found = attempt(lambda: FileResults(sheets.File(tmp_path / "results.csv"), "result", menu))
    for entry in [] if found is None else found.entries:
        x = np.array([entry.key])
        np.testing.assert_array_equal(menu.domain.validate(x), x)  # as policies see it, to the bit
        legal = bool(menu.domain.contains(x)[0])
        assert (menu.outside(entry.key) == []) == legal
        assert legal or not strict
        assert any(word in note for note in found.notes for word in ("Learnt from", "does not count")) or legal


@fuzz(
    80, text=texts(), rule=st.sampled_from(["temperature < 90", "x > 1", "solvent == 'water'", "a + b < 3", "c != 6"])
)
def test_candidates_with_rules(tmp_path, text, rule):
    path = tmp_path / "candidates.csv"
    write(path, text, "utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        whole = attempt(lambda: OfTable(sheets.File(path), "yield", None, ()))
        ruled = attempt(lambda: OfTable(sheets.File(path), "yield", None, (), where=[rule]))
    if ruled is not None:
        assert whole is not None
        rows = [ruled.domain.rows.index(row) for row in whole.domain.rows if row in ruled.domain.rows]
        assert rows == list(range(ruled.size))
        assert len(ruled.entries) == len(whole.entries)
        for one, other in zip(ruled.entries, whole.entries, strict=True):
            np.testing.assert_array_equal(ruled.point(one.key), whole.point(other.key))
