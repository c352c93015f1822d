"""misspec: Gaussian-process bandits that keep working when the model is wrong."""

import importlib
import logging
from typing import Any

from misspec import adversary, confidence, problems, theory
from misspec.contexts import Joint, Open
from misspec.domains import Box, Finite, Space
from misspec.errors import AwaitingResults, HorizonReached, InvalidInput, MisspecError, NumericalError, StorageError
from misspec.information import InformationGain, information_gain
from misspec.model import Model
from misspec.parameters import Choice, Float, Int
from misspec.policies import (
    ECGPUCB,
    GPTS,
    GPUCB,
    IGPUCB,
    LBGPUCB,
    RIPS,
    Auto,
    Band,
    Conflict,
    Corral,
    CorruptionTolerantGPUCB,
    Elimination,
    Episode,
    InsuredUCB,
    LinearThompson,
    LinUCB,
    Observations,
    PhasedElimination,
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
from misspec.product import ProductMatern, product_kernel
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
    "GPTS",
    "GPUCB",
    "IGPUCB",
    "LBGPUCB",
    "RIPS",
    "Auto",
    "AwaitingResults",
    "Band",
    "BestInClass",
    "Box",
    "Choice",
    "Conflict",
    "Corral",
    "CorruptionTolerantGPUCB",
    "Diagnosis",
    "Elimination",
    "Episode",
    "Evaluations",
    "Finite",
    "Float",
    "HorizonReached",
    "InformationGain",
    "InsuredUCB",
    "Int",
    "InvalidInput",
    "Joint",
    "LinUCB",
    "LinearThompson",
    "MisspecError",
    "Model",
    "NumericalError",
    "Observations",
    "Open",
    "PhasedElimination",
    "PhasedUncertaintySampling",
    "Policy",
    "Posterior",
    "Problem",
    "ProductMatern",
    "Profile",
    "Query",
    "Recommendation",
    "RegretBalancing",
    "Space",
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
    "product_kernel",
    "restore",
    "simulate",
    "theory",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """`experiments`, `reports` and `report` need an extra, and load when they are first used."""
    if name in ("experiments", "reports"):
        return importlib.import_module(f"misspec.{name}")
    if name == "report":
        try:
            return importlib.import_module("misspec.reports.optimisation").report
        except ModuleNotFoundError as error:
            missing = f"ms.report draws, and needs {error.name}: pip install 'misspec[experiments]'"
            raise ModuleNotFoundError(missing, name=error.name) from error
    raise AttributeError(f"module 'misspec' has no attribute {name!r}")
