from misspec.integrations.optuna import MisspecSampler

__all__ = ["MisspecSampler"]
