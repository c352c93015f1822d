"""The model that `Auto` learns: samples of the hyperparameters given all results, and the models they stand for.

A *renewal* is a dict of JSON, which is an event of the policy and which another Auto can adopt:

    states        θ of each sample, as in `hyperparameters.py`
    fitted        offset, scale and norm of each
    scaling       sign (−1 where smaller is better), and centre and width of sign·y
    unexplained   share of the results' variance that the samples miss beyond noise, on average
    results       how many it was learnt from, with those that are doubted
    doubted       [*x, y] of each result that it was not learnt from (`doubt.py`)
    limits        such a dict, without these two, for each quantity that limits are on, by its name (`limits.py`)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from misspec import hyperparameters
from misspec.domains import Domain, a_domain, coordinates
from misspec.errors import Array, InvalidInput, shown
from misspec.hyperparameters import Data, Fitted, Hyperposterior, Scaling
from misspec.model import Model
from misspec.policies.core.answers import Observations, copied
from misspec.product import ProductMatern

FIRST = 5  # results before there is a model: of fewer, hyperparameters are those of the prior
GROWTH = 1 / 7  # by which the results grow before a renewal: then renewals cost about as much as queries
STALE = 2  # times the results of the last renewal: beyond, reports should rest on a newer model
EXACT = 300  # results up to which nothing is saved: beyond, costs that grow as t³ would be felt
SAMPLES, LEAST_SAMPLES = 8, 2  # of the hyperparameters; beyond EXACT results SAMPLES·EXACT/t, since more data know them
CHECKED = 2  # samples by which a result is judged that they were not learnt from
FEATURES = 300  # of a posterior at least, beyond EXACT results; there are 2·EXACT²/t, so that a query costs the same
LISTED = 5000  # candidates up to which posteriors are exact whatever t: a list has so many features at most
ROUNDING = 1e-3  # noise, in widths of the results, where there is none: less makes covariances singular
LARGEST_STATE = 700.0  # θ is a logarithm, and this about that of the largest float


class Learner:
    """What renewals rest on beside the results. noise: σ in units of y, where it is known; seed: of the sampling;
    exact: whether results have no noise."""

    def __init__(self, domain: Domain, noise: float | None, seed: int, *, exact: bool = False) -> None:
        self.domain, self.noise, self.seed, self.exact = domain, noise, seed, exact
        self.columns = columns_of(domain)
        self.reach = reach_of(domain, self.columns)

    def before_data(self) -> Model:
        """What stands for a model before there is one."""
        return Model(ProductMatern(np.ones(len(self.columns)), self.columns), norm_bound=1.0, noise=1.0, fitted=True)

    def renewal(self, told: Observations, sign: float, states: Array | None, samples: int = SAMPLES) -> dict[str, Any]:
        """The samples given these results. sign: −1 where smaller is better; states: θ at the renewal before."""
        t = len(told.y)
        y = sign * told.y
        scaling = Scaling.of(y, self.noise)
        rng = np.random.default_rng([self.seed, t, 1])
        own = None if not len(told.noise) or np.isnan(told.noise).all() else told.noise / scaling.width
        data = Data.of(self.domain.encode(told.x), scaling.to(y), own).part(rng)
        noise = None if self.noise is None else max(self.noise / scaling.width, hyperparameters.LEAST_WIDTH)
        noise = ROUNDING if self.exact and noise is None else noise
        target = Hyperposterior(data, self.columns, self.reach, noise)
        count = min(samples, max(LEAST_SAMPLES, round(SAMPLES * EXACT / t)))
        states = hyperparameters.start(target, count, rng) if states is None else states[:count]
        if own is not None and noise is None:
            size = float(np.mean([target.fitted(theta).scale ** 2 for theta in states]))
            target = dataclasses.replace(target, size=size)
        states = hyperparameters.renewed(target, states, hyperparameters.sweeps(target), rng)
        return {
            "states": states.tolist(),
            "fitted": [list(target.fitted(theta)) for theta in states],
            "scaling": [sign, scaling.centre, scaling.width],
            "unexplained": float(np.mean([target.unexplained(theta) for theta in states])),
            "results": t,
        }


def due(t: int, renewed: int) -> bool:
    """Whether t results are enough for a renewal; renewed: those at the last one."""
    return t >= max(FIRST, math.ceil(renewed * (1.0 + GROWTH)))


def budget_of(t: int, size: int) -> int | None:
    """Features of a posterior of t results at most; None for as many as it takes. size: of a list of candidates."""
    return None if t <= EXACT or 0 < size <= LISTED else max(FEATURES, 2 * EXACT**2 // t)


def checked_samples(samples: Any, domain: Domain) -> dict[str, Any]:
    """A copy of a renewal on this domain; InvalidInput for anything else."""
    try:
        given = [np.array(samples[name]) for name in ("states", "fitted", "scaling", "unexplained")]
        states, fitted, scaling, _ = (each.astype(np.float64) for each in given)
        numbers = [float(samples["unexplained"]), samples["results"]]
        right = all(each.dtype.kind in "if" for each in given) and type(numbers[1]) is int
        right = right and states.ndim == 2 and states.shape[1] == len(columns_of(domain)) + 2
        right = right and fitted.shape == (len(states), 3) and len(states) > 0
        right = right and scaling.shape == (3,) and abs(scaling[0]) == 1.0 and numbers[1] >= 0
        right = right and bool(scaling[2] > 0 and (fitted[:, 1] > 0).all() and (states < LARGEST_STATE).all())
        right = right and all(np.isfinite(each).all() for each in (states, fitted, scaling, numbers))
        right = right and len(models_of(samples, domain)) > 0  # with constants that a Model takes
        doubted = np.array(samples.get("doubted") or np.zeros((0, domain.dimension + 1)), dtype=np.float64)
        right = right and doubted.shape[1:] == (domain.dimension + 1,) and bool(np.isfinite(doubted).all())
        right = right and isinstance(samples.get("doubted", []), list)
        limits = samples.get("limits", {})
        right = right and type(limits) is dict and all(checked_samples(each, domain) for each in limits.values())
    except Exception:  # a foreign object may raise anything
        right = False
    if not right:
        raise InvalidInput(f"expected what `samples` of an Auto on the same domain has, got {shown(samples)}")
    return copied(samples)


def models_of(samples: dict[str, Any], domain: Domain) -> list[Model]:
    """The models of a renewal, in the units of its scaling."""
    columns = columns_of(domain)
    reach = reach_of(domain, columns)
    pairs = zip(np.array(samples["states"]), samples["fitted"], strict=True)
    return [hyperparameters.sampled_model(theta, Fitted(*each), columns, reach) for theta, each in pairs]


def columns_of(domain: Any) -> list[tuple[int, int]]:
    """Which columns of the encoding belong to which parameter."""
    columns = getattr(a_domain(domain), "columns", None) or coordinates(domain.dimension)
    return [(each.start, each.stop) for each in columns]


def reach_of(domain: Domain, columns: Sequence[tuple[int, int]]) -> Array:
    """The widest distance of each parameter, as the kernel sees it: 1, except in lists of points of any scale."""
    probes = domain.probes()
    wide = np.array([float(np.ptp(probes[:, start:stop], axis=0).max()) for start, stop in columns])
    one_hot = np.array([stop - start > 1 for start, stop in columns])
    return np.where(one_hot | (wide <= 0), 1.0, wide)
