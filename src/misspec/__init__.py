"""misspec: Gaussian-process bandits that keep working when the model is wrong."""

import logging

from misspec import confidence
from misspec.domains import Box, Finite
from misspec.errors import AwaitingResults, HorizonReached, InvalidInput, MisspecError, NumericalError, StorageError
from misspec.information import information_gain
from misspec.model import Model
from misspec.policies import (
    ECGPUCB,
    GPUCB,
    Band,
    Conflict,
    CorruptionTolerantGPUCB,
    PhasedUncertaintySampling,
    Policy,
    Query,
    Recommendation,
    RegretBalancing,
    ThompsonSampling,
    load,
    restore,
)
from misspec.posterior import Posterior
from misspec.tracked import Tracked

__version__ = "0.1.0"
__all__ = [
    "ECGPUCB",
    "GPUCB",
    "AwaitingResults",
    "Band",
    "Box",
    "Conflict",
    "CorruptionTolerantGPUCB",
    "Finite",
    "HorizonReached",
    "InvalidInput",
    "MisspecError",
    "Model",
    "NumericalError",
    "PhasedUncertaintySampling",
    "Policy",
    "Posterior",
    "Query",
    "Recommendation",
    "RegretBalancing",
    "StorageError",
    "ThompsonSampling",
    "Tracked",
    "__version__",
    "confidence",
    "information_gain",
    "load",
    "restore",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())
