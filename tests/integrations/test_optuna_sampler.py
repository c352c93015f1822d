"""Optuna's own tests of samplers: all of them for Auto, the basic ones for the policies of the theory.

These differ in how a point is chosen, not in how parameters, trials and studies are read.
"""

from collections.abc import Callable

import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase

from misspec.integrations.optuna import MisspecSampler


class TestAuto(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: MisspecSampler(seed=0)


@pytest.mark.parametrize("policy", ["balancing", "phased"])  # one with rounds of its own, one with episodes
class TestPoliciesOfTheTheory(BasicSamplerTestCase):
    @pytest.fixture
    def sampler(self, policy: str) -> Callable[[], BaseSampler]:
        return lambda: MisspecSampler(policy, seed=0)
