"""Optuna's own tests of samplers, for every policy."""

from collections.abc import Callable

import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase

from misspec.integrations.optuna import POLICIES, MisspecSampler


@pytest.mark.parametrize("policy", POLICIES)
class TestMisspecSampler(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self, policy: str) -> Callable[[], BaseSampler]:
        return lambda: MisspecSampler(policy, seed=0)
