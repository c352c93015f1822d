"""The posterior whose cost stops growing: `Posterior` anywhere, `Tracked` over a fixed candidate set.

A posterior tells its base of observations (`formulas.py`): features of a dictionary that grows (`growing.py`), or
features that are fixed when a point arrives (`fixed.py`). A base has a table of the distinct points, Bayesian linear
regression on their features, and a view over the candidates, of which there may be none.
"""

from misspec.posterior.formulas import Bias, Glance, Local
from misspec.posterior.posterior import Posterior, Tracked
from misspec.posterior.view import Weights

__all__ = ["Bias", "Glance", "Local", "Posterior", "Tracked", "Weights"]
