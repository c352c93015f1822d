"""Policies to ask and tell: one algorithm per file."""

from misspec.policies.balancing import Elimination, RegretBalancing
from misspec.policies.base import Band, Conflict, Policy, Query, Recommendation, load, restore
from misspec.policies.corruption import CorruptionTolerantGPUCB
from misspec.policies.ec_gp_ucb import ECGPUCB
from misspec.policies.gp_ucb import GPUCB
from misspec.policies.phased import Episode, PhasedUncertaintySampling
from misspec.policies.thompson import ThompsonSampling
from misspec.policies.uniform import UniformSampling

__all__ = [
    "ECGPUCB",
    "GPUCB",
    "Band",
    "Conflict",
    "CorruptionTolerantGPUCB",
    "Elimination",
    "Episode",
    "PhasedUncertaintySampling",
    "Policy",
    "Query",
    "Recommendation",
    "RegretBalancing",
    "ThompsonSampling",
    "UniformSampling",
    "load",
    "restore",
]
