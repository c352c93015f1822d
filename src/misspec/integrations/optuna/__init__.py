"""A sampler for Optuna: `MisspecSampler`; `UntilCallback` stops a study; `policy_of(study)` is an Auto that has learnt
its trials."""

from misspec.errors import extra

with extra("optuna", "misspec.integrations.optuna"):
    from misspec.integrations.optuna.sampler import MisspecSampler
    from misspec.integrations.optuna.shapes import distributions_of, space_of
    from misspec.integrations.optuna.stopping import UntilCallback
    from misspec.integrations.optuna.trials import policy_of

__all__ = ["MisspecSampler", "UntilCallback", "distributions_of", "policy_of", "space_of"]
