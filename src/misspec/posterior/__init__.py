"""The posterior whose cost stops growing: `Posterior` anywhere, `Tracked` over a fixed candidate set.

Assembled from parts that are each testable: a table of observed points, a dictionary of independent ones, shadows of
the others, Bayesian linear regression on the dictionary's features, and a view over the candidates; `frozen` has
dictionaries that stop growing.
"""

from misspec.posterior.look import Bias, Glance, Local
from misspec.posterior.posterior import Posterior
from misspec.posterior.tracked import Tracked
from misspec.posterior.weights import Weights

__all__ = ["Bias", "Glance", "Local", "Posterior", "Tracked", "Weights"]
