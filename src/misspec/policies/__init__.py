"""Policies to ask and tell: one algorithm per file."""

from misspec.policies.answers import Band, Choice, Conflict, Observations, Query, Recommendation
from misspec.policies.auto import Auto
from misspec.policies.balancing import Elimination, RegretBalancing
from misspec.policies.base import Asked, Policy, signature_of
from misspec.policies.corral import Corral
from misspec.policies.corruption import CorruptionTolerantGPUCB
from misspec.policies.ec_gp_ucb import ECGPUCB
from misspec.policies.g_optimal import PhasedElimination
from misspec.policies.gp_ts import GPTS
from misspec.policies.gp_ucb import GPUCB
from misspec.policies.igp_ucb import IGPUCB
from misspec.policies.insured import InsuredUCB
from misspec.policies.journal import load
from misspec.policies.lb_gp_ucb import LBGPUCB
from misspec.policies.linear import LinearThompson, LinUCB
from misspec.policies.phased import Episode, PhasedUncertaintySampling
from misspec.policies.rips import RIPS
from misspec.policies.state import restore
from misspec.policies.thompson import ThompsonSampling
from misspec.policies.uniform import UniformSampling

PLAYABLE = (
    "InsuredUCB",
    "GPUCB",
    "ECGPUCB",
    "PhasedUncertaintySampling",
    "RegretBalancing",
    "CorruptionTolerantGPUCB",
    "ThompsonSampling",
    "UniformSampling",
    "LinUCB",
    "LinearThompson",
    "PhasedElimination",
    "RIPS",
    "IGPUCB",
    "GPTS",
    "LBGPUCB",
    "Corral",
)  # by name in files

__all__ = [
    "ECGPUCB",
    "GPTS",
    "GPUCB",
    "IGPUCB",
    "LBGPUCB",
    "PLAYABLE",
    "RIPS",
    "Asked",
    "Auto",
    "Band",
    "Choice",
    "Conflict",
    "Corral",
    "CorruptionTolerantGPUCB",
    "Elimination",
    "Episode",
    "InsuredUCB",
    "LinUCB",
    "LinearThompson",
    "Observations",
    "PhasedElimination",
    "PhasedUncertaintySampling",
    "Policy",
    "Query",
    "Recommendation",
    "RegretBalancing",
    "ThompsonSampling",
    "UniformSampling",
    "load",
    "restore",
    "signature_of",
]
