"""States that version 1 saved still load: with what was told and what pends, and the same numbers."""

import json
from pathlib import Path

import numpy as np
import pytest

import misspec as ms

FOLDER = Path(__file__).parent.parent / "data" / "v1"
FACTS = json.loads((FOLDER / "facts.json").read_text())


@pytest.mark.parametrize("name", FACTS)
def test_a_state_of_version_1_goes_on(name):
    facts, policy = FACTS[name], ms.load(FOLDER / name)
    assert policy.t == facts["t"]
    assert [query.id for query in policy.pending] == facts["pending"]
    unit = np.random.default_rng(8).random((20, 2))
    probes = policy.domain.points if policy.field.size else policy.domain.decode(unit)
    mean, std = policy.posterior.at(probes)
    np.testing.assert_allclose(mean, facts["mean"], atol=1e-9)
    np.testing.assert_allclose(std, facts["std"], atol=1e-9)
    band = policy.band(probes)
    np.testing.assert_allclose(band.lower, facts["lower"], atol=1e-9)
    np.testing.assert_allclose(band.upper, facts["upper"], atol=1e-9)
    np.testing.assert_allclose(policy.ask().x, facts["next"], atol=1e-4)
