"""Problems that know their truth: synthetic ones, hard ones, and ones from data."""

from misspec.problems.base import Gaussian, Groups, Noise, Offers, Problem, Replayed, Subsets, contextual, from_values
from misspec.problems.hard import needle, trap
from misspec.problems.real import digits_bandit, from_table, svm_digits
from misspec.problems.synthetic import (
    MISFITS,
    misspecified,
    nonstationary,
    random_member,
    rough_truth,
    wrong_kernel,
    wrong_length_scale,
)

PLAYABLE = (
    "misspecified",
    "rough_truth",
    "wrong_length_scale",
    "wrong_kernel",
    "nonstationary",
    "needle",
    "trap",
    "svm_digits",
    "digits_bandit",
)  # by name in files
CONTEXTUAL = ("digits_bandit",)  # those that bring their own action sets

__all__ = [
    "CONTEXTUAL",
    "MISFITS",
    "PLAYABLE",
    "Gaussian",
    "Groups",
    "Noise",
    "Offers",
    "Problem",
    "Replayed",
    "Subsets",
    "contextual",
    "digits_bandit",
    "from_table",
    "from_values",
    "misspecified",
    "needle",
    "nonstationary",
    "random_member",
    "rough_truth",
    "svm_digits",
    "trap",
    "wrong_kernel",
    "wrong_length_scale",
]
