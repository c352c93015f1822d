"""Policies to ask and tell: one algorithm per file."""

from misspec.policies.auto import Auto
from misspec.policies.balanced import Balanced
from misspec.policies.balancing import RegretBalancing
from misspec.policies.bases import Elimination
from misspec.policies.core.answers import Band, Conflict, Decision, Observations, Query, Recommendation, Suspicion
from misspec.policies.core.journal import load
from misspec.policies.core.log import Asked
from misspec.policies.core.policy import Policy
from misspec.policies.core.state import restore
from misspec.policies.ec_gp_ucb import ECGPUCB, GPUCB
from misspec.policies.episodes import Episode
from misspec.policies.insured import InsuredUCB
from misspec.policies.phased import PhasedUncertaintySampling
from misspec.policies.thompson import ThompsonSampling
from misspec.policies.uniform import UniformSampling

PLAYABLE = (
    "InsuredUCB",
    "GPUCB",
    "ECGPUCB",
    "PhasedUncertaintySampling",
    "RegretBalancing",
    "ThompsonSampling",
    "UniformSampling",
)  # by name in files

__all__ = ["ECGPUCB", "GPUCB", "PLAYABLE", "Asked", "Auto", "Balanced", "Band", "Conflict", "Decision", "Elimination"]
__all__ += ["Episode", "InsuredUCB", "Observations", "PhasedUncertaintySampling", "Policy", "Query", "Recommendation"]
__all__ += ["RegretBalancing", "Suspicion", "ThompsonSampling", "UniformSampling", "load", "restore"]
