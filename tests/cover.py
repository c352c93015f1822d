"""Which cases of a product of parameters the fast tests run."""

import itertools

import pytest


def slowly(*values):
    """Values whose cases are slow tests."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def covering(*lists):
    """All combinations, for `pytest.mark.parametrize`: the diagonal, where each value occurs, and the rest as slow."""
    places = [list(each) for each in lists]
    longest = max(map(len, places))
    diagonal = {tuple(i % len(each) for each in places) for i in range(longest)}
    return [
        pytest.param(
            *(each[i] for each, i in zip(places, at, strict=True)), marks=[] if at in diagonal else pytest.mark.slow
        )
        for at in itertools.product(*(range(len(each)) for each in places))
    ]
