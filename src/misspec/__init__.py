"""misspec: Gaussian-process bandits that keep working when the model is wrong."""

import importlib
import logging
from typing import Any

from misspec import adversary, comparators, problems, theory
from misspec.domains import Box, Choice, Finite, Float, Int, Joint, Mixture, Open, Space
from misspec.errors import AwaitingResults, HorizonReached, InvalidInput, MisspecError, NumericalError, StorageError
from misspec.errors import extra as _extra
from misspec.evaluation.loop import optimize
from misspec.evaluation.stopping import until
from misspec.model import Model
from misspec.policies import (
    ECGPUCB,
    GPUCB,
    Auto,
    Balanced,
    InsuredUCB,
    PhasedUncertaintySampling,
    Policy,
    RegretBalancing,
    ThompsonSampling,
    UniformSampling,
    load,
    restore,
)
from misspec.product import product_kernel
from misspec.simulation import simulate
from misspec.theory import information_gain
from misspec.truth import best_in_class, diagnose, misspecification_profile, noise_from_repeats

__version__ = "0.1.0"
__all__ = ["Box", "Choice", "Finite", "Float", "Int", "Joint", "Mixture", "Model", "Open", "Space", "product_kernel"]
__all__ += ["ECGPUCB", "GPUCB", "Auto", "Balanced", "InsuredUCB", "PhasedUncertaintySampling", "Policy"]
__all__ += ["RegretBalancing", "ThompsonSampling", "UniformSampling", "load", "optimize", "restore", "simulate"]
__all__ += ["until"]
__all__ += ["best_in_class", "diagnose", "information_gain", "misspecification_profile", "noise_from_repeats"]
__all__ += ["AwaitingResults", "HorizonReached", "InvalidInput", "MisspecError", "NumericalError", "StorageError"]
__all__ += ["__version__", "adversary", "comparators", "problems", "theory"]

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """`experiments` and `reports` need an extra, and load when they are first used."""
    if name in ("experiments", "reports"):
        with _extra("experiments", f"ms.{name}"):
            return importlib.import_module(f"misspec.{name}")
    raise AttributeError(f"module 'misspec' has no attribute {name!r}")
