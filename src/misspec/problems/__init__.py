"""Problems that know their truth: synthetic ones, hard ones, and ones from data."""

from misspec.problems.bandits import classification_bandit, contextual_needle, contextual_trap, fresh_actions
from misspec.problems.base import (
    Fresh,
    Gaussian,
    Groups,
    Offers,
    Problem,
    Replayed,
    Sampler,
    Subsets,
    contextual,
    from_values,
    negated,
)
from misspec.problems.real import digits_bandit, from_table, sklearn_bandit, svm_digits
from misspec.problems.synthetic import (
    MISFITS,
    misspecified,
    needle,
    nonstationary,
    random_member,
    reaction,
    rough_truth,
    trap,
    wrong_kernel,
    wrong_length_scale,
)

# problems that bring their own action sets
CONTEXTUAL = ("digits_bandit", "fresh_actions", "contextual_trap", "contextual_needle", "sklearn_bandit")
SYNTHETIC = ("misspecified", "rough_truth", "wrong_length_scale", "wrong_kernel", "nonstationary")
# problems that experiment files can name
PLAYABLE = (*SYNTHETIC, "needle", "trap", "svm_digits", "reaction", *CONTEXTUAL)

__all__ = ["CONTEXTUAL", "MISFITS", "PLAYABLE"]
__all__ += ["Fresh", "Gaussian", "Groups", "Offers", "Problem", "Replayed", "Sampler", "Subsets"]
__all__ += ["misspecified", "nonstationary", "random_member", "rough_truth", "wrong_kernel", "wrong_length_scale"]
__all__ += ["from_table", "from_values", "needle", "negated", "reaction", "svm_digits", "trap"]
__all__ += ["classification_bandit", "contextual", "contextual_needle", "contextual_trap", "digits_bandit"]
__all__ += ["fresh_actions", "sklearn_bandit"]
