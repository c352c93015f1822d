"""misspec: Gaussian-process bandits that keep working when the model is wrong."""

import importlib
import logging
from typing import Any

from misspec import adversary, comparators, problems, theory
from misspec.domains import Box, Choice, Finite, Float, Int, Joint, Open, Space
from misspec.errors import AwaitingResults, HorizonReached, InvalidInput, MisspecError, NumericalError, StorageError
from misspec.evaluation.loop import Evaluations, optimize
from misspec.model import Model
from misspec.policies import (
    ECGPUCB,
    GPUCB,
    Auto,
    Band,
    Conflict,
    Elimination,
    Episode,
    InsuredUCB,
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
from misspec.product import ProductMatern, product_kernel
from misspec.simulation import Trace, simulate
from misspec.theory import InformationGain, information_gain
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
    "Auto",
    "AwaitingResults",
    "Band",
    "BestInClass",
    "Box",
    "Choice",
    "Conflict",
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
    "MisspecError",
    "Model",
    "NumericalError",
    "Observations",
    "Open",
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
    "comparators",
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
