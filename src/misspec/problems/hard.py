"""Hard instances: the needle of the paper's Appendix C, and a trap in which GP-UCB stays."""

from __future__ import annotations

import json
from importlib import resources

import numpy as np

from misspec.domains import Finite
from misspec.errors import number, seeded
from misspec.model import Model
from misspec.problems.base import Problem, from_values
from misspec.truth import check_known


def needle(domain: Finite, model: Model, height: float = 0.5, seed: int = 0) -> Problem:
    """f* = offset, except at one candidate drawn at random, where it is h = `height` more.

    On a continuum its ε lies in [h/2, h]. On a grid it can be less: where candidates are so far apart that the kernel
    does not link them, a needle is a member of the class, and ε = 0.

    No policy can find the needle except by trying: on N candidates the expected regret is at least
    `theory.needle_lower_bound`, h per round while T is small against N.
    """
    check_known(domain, model)
    h = number("height", height, above=0)
    values = np.full(len(domain), model.offset)
    values[np.random.default_rng([seeded(seed), 5]).integers(len(domain))] += h
    return from_values(domain, model, values, name=f"needle of height {h:g}")


def trap() -> Problem:
    """Twelve arms, a linear kernel, ε = 0.1: GP-UCB and EC-GP-UCB stay about 2ε below the optimum on many seeds.

    Measured: GP-UCB on half of 40 seeds over 30,000 rounds, EC-GP-UCB as in the paper on 4 of 4. The phased policy and
    grounded policies do not.
    """
    from sklearn.gaussian_process.kernels import DotProduct

    data = json.loads(resources.files("misspec.problems").joinpath("trap.json").read_text(encoding="utf-8"))
    points = np.array(data["points"])
    constants = {name: data[name] for name in ("norm_bound", "noise", "regularization")}
    model = Model(DotProduct(sigma_0=0), **constants, delta=0.1)
    in_class = points @ np.array(data["theta"])
    return Problem("trap", Finite(points), model, in_class + data["misfit"], in_class, data["epsilon"])
