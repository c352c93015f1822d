"""misspec: Gaussian-process bandits that keep working when the model is wrong."""

import logging

from misspec import confidence
from misspec.domains import Box, Finite
from misspec.errors import AwaitingResults, HorizonReached, InvalidInput, MisspecError
from misspec.information import information_gain
from misspec.model import Model
from misspec.posterior import Posterior
from misspec.tracked import Tracked

__version__ = "0.1.0"
__all__ = [
    "AwaitingResults",
    "Box",
    "Finite",
    "HorizonReached",
    "InvalidInput",
    "MisspecError",
    "Model",
    "Posterior",
    "Tracked",
    "__version__",
    "confidence",
    "information_gain",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())
