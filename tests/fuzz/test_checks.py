"""The checks of numbers and arrays, which all entries share."""

import numpy as np
from hypothesis import strategies as st

from hostile import attempt, fuzz, hostile, hostile_arrays, hostile_objects
from misspec import errors


@fuzz(600, value=hostile_objects, above=st.sampled_from([None, 0.0, -1e300]))
def test_a_number_is_a_finite_float(value, above):
    found = attempt(lambda: errors.number("x", value, above=above))
    if found is not None:
        assert type(found) is float
        assert abs(found) <= errors.LARGEST
        assert above is None or found > above


@fuzz(300, value=hostile_objects)
def test_a_whole_number_is_an_int(value):
    for found in (attempt(lambda: errors.whole("n", value)), attempt(lambda: errors.seeded(value))):
        assert found is None or (type(found) is int and found >= 0)


@fuzz(300, value=hostile)
def test_words_and_flags(value):
    assert attempt(lambda: errors.one_of("word", value, ("a", "b"))) in (None, "a", "b")
    assert attempt(lambda: errors.flag("flag", value)) in (None, True, False)


@fuzz(800, value=st.one_of(hostile_arrays(3, 2), hostile_objects))
def test_arrays_are_finite_floats_of_what_was_handed_in(value):
    for found in (attempt(lambda: errors.matrix("X", value)), attempt(lambda: errors.vector("y", value))):
        if found is not None:
            assert found.dtype == np.float64
            assert np.isfinite(found).all()
            assert not np.ma.is_masked(value)
            assert not np.iscomplexobj(value)
            assert found.size == np.size(value) or hasattr(value, "to_numpy")
