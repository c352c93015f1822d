"""A sampler for Optuna: `MisspecSampler`; `policy_of(study)` is an Auto that has learnt its trials."""

from misspec.integrations.optuna.sampler import MisspecSampler
from misspec.integrations.optuna.spaces import distributions_of, space_of
from misspec.integrations.optuna.trials import policy_of

__all__ = ["MisspecSampler", "distributions_of", "policy_of", "space_of"]
