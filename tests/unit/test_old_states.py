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
    # bands are within the class now, and own bands charge a point for its place in the order asked
    reach = policy.epsilon + policy.model.norm_bound
    band = policy.band(probes)
    lower, upper = (np.clip(facts[end], 0.2 - reach, 0.2 + reach) for end in ("lower", "upper"))
    np.testing.assert_allclose(band.lower, lower, atol=0.1 if policy.grounded else 1e-9)
    np.testing.assert_allclose(band.upper, upper, atol=0.1 if policy.grounded else 1e-9)
    if not policy.grounded:
        np.testing.assert_allclose(policy.ask().x, facts["next"], atol=1e-4)
