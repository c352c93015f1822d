"""The theory as numbers: confidence widths, own bands, information gain, regret bounds."""

from misspec.theory.balancing import (
    candidate_bound,
    elimination_radius,
    elimination_spread,
    halving_candidates,
    paper_candidates,
)
from misspec.theory.bounds import (
    balancing_bound,
    ec_gp_ucb_bound,
    insured_bound,
    learnt_bound,
    needle_lower_bound,
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
from misspec.theory.episodes import Schedule, check_schedule, complete_episodes, episode_lengths
from misspec.theory.information import InformationGain, information_gain

__all__ = ["InformationGain", "Schedule", "balancing_bound", "candidate_bound", "check_schedule", "complete_episodes"]
__all__ += ["core_set", "ec_gp_ucb_bound", "elimination_radius", "elimination_spread", "episode_lengths", "gp_ts_bound"]
__all__ += ["halving_candidates", "igp_ucb_bound", "information_gain", "insured_bound", "learnt_bound"]
__all__ += ["needle_lower_bound"]
__all__ += ["paper_candidates", "phased_bound", "phased_elimination_alpha", "phased_elimination_bound", "rips_bound"]
__all__ += [
    "SplittingBound",
    "cell_limit",
    "cell_share",
    "noise_sum",
    "prior_elimination_bound",
    "rips_length",
    "rips_log",
    "splitting_bound",
    "tests_allowed",
]
