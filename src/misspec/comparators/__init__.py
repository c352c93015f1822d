"""Policies of others, to compare with: one algorithm per file; those that differ from ours in a constant in one."""

from misspec.comparators.corral import Corral
from misspec.comparators.g_optimal import PhasedElimination
from misspec.comparators.lb_gp_ucb import LBGPUCB
from misspec.comparators.prior_elimination import PriorElimination
from misspec.comparators.rips import RIPS
from misspec.comparators.splitting import DomainSplitting
from misspec.comparators.variants import GPTS, IGPUCB, CorruptionTolerantGPUCB, LinearThompson, LinUCB

__all__ = ["GPTS", "IGPUCB", "LBGPUCB", "RIPS", "Corral", "CorruptionTolerantGPUCB", "LinUCB", "LinearThompson"]
__all__ += ["DomainSplitting", "PhasedElimination", "PriorElimination"]
