"""Policies of others, to compare with: one algorithm per file."""

from misspec.comparators.corral import Corral
from misspec.comparators.corruption import CorruptionTolerantGPUCB
from misspec.comparators.g_optimal import PhasedElimination
from misspec.comparators.gp_ts import GPTS
from misspec.comparators.igp_ucb import IGPUCB
from misspec.comparators.lb_gp_ucb import LBGPUCB
from misspec.comparators.linear import LinearThompson, LinUCB
from misspec.comparators.rips import RIPS

__all__ = [
    "GPTS",
    "IGPUCB",
    "LBGPUCB",
    "RIPS",
    "Corral",
    "CorruptionTolerantGPUCB",
    "LinUCB",
    "LinearThompson",
    "PhasedElimination",
]
