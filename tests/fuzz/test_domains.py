"""Where actions come from: parameters, spaces, boxes, lists, tables, contexts, and the points handed to them."""

import numpy as np
import polars
import pytest
from hypothesis import strategies as st

import misspec as ms
from hostile import (
    attempt,
    calls,
    fuzz,
    hostile,
    hostile_arrays,
    hostile_numbers,
    hostile_objects,
    hostile_words,
    works,
)
from misspec.domains import box, space


@pytest.fixture(autouse=True, scope="module")
def small_limits():
    """What is too large is refused at any size: gigabytes show no more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box, "MOST_NUMBERS", 10_000)
        patch.setattr(space, "MOST_NUMBERS", 10_000)
        yield


COLUMNS = {"temperature": [1.0, 2.0, 3.0], "solvent": ["a", "b", "a"], "yield": [0.1, None, 0.3]}
BOX = ms.Box([(0, 1), (-5, 5)])
SPACE = ms.Space({"lr": ms.Float(1e-5, 1e-1, log=True), "depth": ms.Int(1, 3), "booster": ms.Choice(["a", "b"])})
TABLE = ms.Finite.from_table(COLUMNS, target="yield")
LIST = ms.Finite([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], names=["a", "b", "c"])
OPEN = ms.Open(2, radius=2.0)
DOMAINS = {
    "finite": LIST, "grid": BOX.grid(2), "table": TABLE, "box": BOX, "space": SPACE, "members": SPACE.cover(4),
    "open": OPEN, "joint": ms.Joint(BOX, ms.Box([(0, 1)])),
    "joint list": ms.Joint(LIST, ms.Finite([[0.0], [1.0]], ["u", "v"])),
}  # fmt: skip

MAKERS = {
    "Float": (ms.Float, {"low": 0.1, "high": 1.0, "log": False, "step": 0.1}),
    "Float on a log scale": (ms.Float, {"low": 0.1, "high": 1.0, "log": True}),
    "Int": (ms.Int, {"low": 1, "high": 9, "log": False, "step": 2}),
    "Choice": (ms.Choice, {"options": ["a", 1, True, None]}),
    "Box": (ms.Box, {"bounds": [(0, 1), (-5, 5)]}),
    "Space": (ms.Space, {"parameters": {"a": ms.Float(0, 1)}}),
    "Finite": (ms.Finite, {"points": [[0.0], [1.0]], "names": ["a", "b"], "box": ms.Box([(0, 1)])}),
    "Open": (ms.Open, {"dimension": 2, "radius": 1.0, "box": [(0, 1), (0, 1)]}),
    "Joint": (ms.Joint, {"domain": BOX, "contexts": OPEN}),
    "table": (
        ms.Finite.from_table,
        {"source": COLUMNS, "target": "yield", "ignore": ["solvent"], "names": ["u", "v", "w"]},
    ),
    "table with rules": (ms.Finite.from_table, {"source": COLUMNS, "target": "yield", "where": "temperature < 3"}),
    "frame": (ms.Finite.from_table, {"source": polars.DataFrame(COLUMNS), "target": "yield", "ignore": ()}),
    "grid": (BOX.grid, {"n": 3}),
    "grid of sizes": (BOX.grid, {"n": [2, 3]}),
    "cover of a box": (BOX.cover, {"n": 4, "seed": 0}),
    "cover of a space": (SPACE.cover, {"n": 4, "seed": 0}),
}


def used(domain):
    """What a policy does with a domain first."""
    if hasattr(domain, "probes"):
        probes = domain.probes()
        assert np.isfinite(probes).all()
        assert repr(domain)
    elif hasattr(domain, "from_unit"):
        numbers = domain.from_unit(np.array([0.0, 0.3, 1.0]))
        assert domain.inside(numbers).all()
        assert np.isfinite(domain.encode(numbers)).all()
        assert repr(domain)
    return domain


def test_every_entry_works():
    works(MAKERS)


@fuzz(600, call=calls(MAKERS))
def test_what_is_made_can_be_used(call):
    function, arguments = call
    attempt(lambda: used(function(**arguments)))


entries = st.one_of(hostile_numbers, st.lists(hostile_objects, max_size=3), hostile_words)


@fuzz(200, options=st.lists(hostile_objects, max_size=4), pairs=st.lists(st.tuples(entries, entries), max_size=3))
def test_lists_of_odd_entries(options, pairs):
    attempt(lambda: used(ms.Choice(options)))
    attempt(lambda: used(ms.Box(pairs)))
    attempt(lambda: used(ms.Space(pairs)))
    attempt(lambda: used(ms.Space([(f"p{i}", ms.Float(*pair)) for i, pair in enumerate(pairs)])))
    attempt(lambda: used(ms.Space([(f"p{i}", ms.Int(*pair)) for i, pair in enumerate(pairs)])))


names = st.one_of(st.sampled_from(["temperature", "solvent", "yield", ""]), st.text(max_size=4), hostile_objects)
cells = st.lists(hostile_objects, min_size=1, max_size=3)


@pytest.mark.filterwarnings("ignore:column")  # of numbers as text, of notes
@fuzz(250, columns=st.dictionaries(st.text(max_size=4), cells, max_size=3), target=names, wide=st.booleans())
def test_tables_of_odd_cells(columns, target, wide):
    source = {**COLUMNS, **columns} if wide else columns
    for each in (source, [dict(zip(source, row, strict=False)) for row in zip(*source.values(), strict=False)]):
        attempt(lambda source=each: used(ms.Finite.from_table(source, target=target)))


points = st.one_of(
    hostile_arrays(3, 2),
    hostile_arrays(3, 3),
    hostile_objects,
    st.fixed_dictionaries({"lr": hostile_objects, "depth": hostile_objects, "booster": hostile_objects}),
    st.fixed_dictionaries({"temperature": hostile_objects, "solvent": hostile_objects}),
    st.lists(hostile_objects, max_size=3),
)


@fuzz(400, domain=st.sampled_from(sorted(DOMAINS)), given=points)
def test_points_are_taken_or_refused(domain, given):
    domain = DOMAINS[domain]
    for ask in (
        "validate",
        "encode",
        "contains",
        "indices",
        "validate_indices",
        "named",
        "params",
        "decode",
        "context",
    ):
        if hasattr(domain, ask):
            found = attempt(lambda ask=ask: getattr(domain, ask)(given))
            if found is not None and ask in ("validate", "encode", "decode", "context"):
                assert np.isfinite(found).all()
                assert not np.ma.is_masked(given)
                assert not np.iscomplexobj(given)


@fuzz(60, given=hostile)
def test_lists_with_an_encoding_of_a_box(given):
    attempt(lambda: used(ms.Finite(given, box=BOX)))
    attempt(lambda: used(ms.Finite([[0.0, 0.0]], box=given)))
    attempt(lambda: used(ms.Finite([[0.0], [1.0]], names=given)))
