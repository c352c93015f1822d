"""misspec: Gaussian-process bandits that keep working when the model is wrong."""

import importlib
import logging
from types import ModuleType

from misspec import adversary, confidence, problems, theory
from misspec.domains import Box, Finite
from misspec.errors import AwaitingResults, HorizonReached, InvalidInput, MisspecError, NumericalError, StorageError
from misspec.information import InformationGain, information_gain
from misspec.model import Model
from misspec.policies import (
    ECGPUCB,
    GPUCB,
    Band,
    Conflict,
    CorruptionTolerantGPUCB,
    Elimination,
    Episode,
    Observations,
    PhasedUncertaintySampling,
    Policy,
    Query,
    Recommendation,
    RegretBalancing,
    ThompsonSampling,
    UniformSampling,
    load,
    restore,
)
from misspec.posterior import Posterior, Tracked
from misspec.problems import Problem
from misspec.simulate import Evaluations, Trace, optimize, simulate
from misspec.truth import (
    BestInClass,
    Diagnosis,
    Profile,
    best_in_class,
    diagnose,
    misspecification_profile,
    noise_from_repeats,
)

__version__ = "0.1.0"
__all__ = [
    "ECGPUCB",
    "GPUCB",
    "AwaitingResults",
    "Band",
    "BestInClass",
    "Box",
    "Conflict",
    "CorruptionTolerantGPUCB",
    "Diagnosis",
    "Elimination",
    "Episode",
    "Evaluations",
    "Finite",
    "HorizonReached",
    "InformationGain",
    "InvalidInput",
    "MisspecError",
    "Model",
    "NumericalError",
    "Observations",
    "PhasedUncertaintySampling",
    "Policy",
    "Posterior",
    "Problem",
    "Profile",
    "Query",
    "Recommendation",
    "RegretBalancing",
    "StorageError",
    "ThompsonSampling",
    "Trace",
    "Tracked",
    "UniformSampling",
    "__version__",
    "adversary",
    "best_in_class",
    "confidence",
    "diagnose",
    "information_gain",
    "load",
    "misspecification_profile",
    "noise_from_repeats",
    "optimize",
    "problems",
    "restore",
    "simulate",
    "theory",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> ModuleType:
    """`misspec.experiments` and `misspec.reports` need an extra, and load when they are first used."""
    if name in ("experiments", "reports"):
        return importlib.import_module(f"misspec.{name}")
    raise AttributeError(f"module 'misspec' has no attribute {name!r}")
