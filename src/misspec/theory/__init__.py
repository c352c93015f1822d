"""The theory as numbers: confidence widths, own bands, information gain, regret bounds."""

from misspec.theory.bounds import (
    Schedule,
    balancing_bound,
    candidate_bound,
    check_schedule,
    complete_episodes,
    ec_gp_ucb_bound,
    elimination_radius,
    elimination_spread,
    episode_lengths,
    halving_candidates,
    insured_bound,
    learnt_bound,
    needle_lower_bound,
    paper_candidates,
    phased_bound,
    tests_allowed,
)
from misspec.theory.comparators import (
    SplittingBound,
    cell_limit,
    cell_share,
    core_set,
    gp_ts_bound,
    igp_ucb_bound,
    noise_sum,
    phased_elimination_alpha,
    phased_elimination_bound,
    prior_elimination_bound,
    rips_bound,
    rips_length,
    rips_log,
    splitting_bound,
)
from misspec.theory.information import InformationGain, information_gain

__all__ = ["InformationGain", "Schedule", "SplittingBound", "balancing_bound", "candidate_bound", "cell_limit"]
__all__ += ["cell_share", "check_schedule", "complete_episodes", "core_set", "ec_gp_ucb_bound", "elimination_radius"]
__all__ += ["elimination_spread", "episode_lengths", "gp_ts_bound", "halving_candidates", "igp_ucb_bound"]
__all__ += ["information_gain", "insured_bound", "learnt_bound", "needle_lower_bound", "noise_sum", "paper_candidates"]
__all__ += ["phased_bound", "phased_elimination_alpha", "phased_elimination_bound", "prior_elimination_bound"]
__all__ += ["rips_bound", "rips_length", "rips_log", "splitting_bound", "tests_allowed"]
