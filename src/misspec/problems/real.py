"""Problems from data, which determine ε: tuning a classifier, classification as a contextual bandit, any table."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from misspec.domains import Box, Finite, Table
from misspec.errors import InvalidInput, number, one_of, shown, whole
from misspec.model import LEAST_REGULARIZATION, Model, norm_of_fit
from misspec.problems.bandits import classification_bandit
from misspec.problems.base import Gaussian, Groups, Problem, Replayed, around_offset, from_values


def svm_digits(model: Model | None = None) -> Problem:
    """Tune an SVM on scikit-learn's digits: log₁₀C in [−2, 3], log₁₀γ in [−4, 1], on a grid of 20 × 20.

    An observation is the accuracy on one held-out fold; f* is the mean over 30 of them (ten times three-fold
    cross-validation). The table was computed once, by tools/svm_table.py. model: by default an RBF of length scale 0.2
    in the unit square; σ is half the largest range of a cell's accuracies, since bounded noise is σ-sub-Gaussian.
    """
    from sklearn.gaussian_process.kernels import RBF

    with resources.files("misspec.problems").joinpath("svm_digits.npz").open("rb") as file:
        table = dict(np.load(file, allow_pickle=False))
    accuracies = (table["right"] / table["sizes"]).reshape(-1, len(table["sizes"]))
    axes = (table["log_c"], table["log_gamma"])
    domain = Box([(float(axis[0]), float(axis[-1])) for axis in axes]).grid([len(axis) for axis in axes])
    values = accuracies.mean(axis=1)
    if model is None:
        noise = float(np.ptp(accuracies, axis=1).max()) / 2.0
        model = Model(RBF(0.2), norm_bound=3.0, noise=math.ceil(1000 * noise) / 1000, offset=0.5)
    return from_values(domain, model, values, sampler=Replayed(accuracies - values[:, None]), name="SVM on digits")


def digits_bandit(images: int = 500, *, components: int = 16, solve: bool = True) -> Problem:
    """Classify scikit-learn's digits by trial and error: each round shows an image and offers ten classes; the reward
    is 1 for the right one and 0 otherwise, without noise.

    A point is the image's first `components` principal components, scaled to unit mean square, beside a one-hot code of
    the class; the kernel is an RBF on both. images: how many of the 1,797 to use. solve: find f̃ and ε by
    `best_in_class`, a few seconds for 500 images, a minute for all; otherwise f̃ is the offset and ε = 0.9.

    Policies with the theory's widths only explore here for thousands of rounds; those with width=0.5 learn.
    """
    from sklearn.datasets import load_digits
    from sklearn.gaussian_process.kernels import RBF

    n, d = whole("images", images, at_least=10), whole("components", components, at_least=1)
    pixels, labels = load_digits(return_X_y=True)
    if n > len(pixels) or d > pixels.shape[1]:
        raise InvalidInput(f"there are {len(pixels)} images of {pixels.shape[1]} pixels, got {images} and {components}")
    left, singular, _ = np.linalg.svd(pixels[:n] - pixels[:n].mean(axis=0), full_matrices=False)
    features = left[:, :d] * singular[:d]
    features /= np.sqrt((features**2).sum(axis=1).mean())
    # one row per image and class, the classes of an image next to each other
    domain = Finite(np.hstack([np.repeat(features, 10, axis=0), np.tile(np.eye(10), (n, 1))]))
    values = (np.tile(np.arange(10), n) == np.repeat(labels[:n], 10)).astype(np.float64)
    model = Model(RBF(0.7), norm_bound=4.0, noise=0.1, regularization=0.1, offset=0.1)
    offers = Groups(np.arange(len(values)).reshape(n, 10))
    return around_offset("digits as a bandit", domain, model, values, solve=solve, sampler=Gaussian(0.0), offers=offers)


def sklearn_bandit(table: str = "digits", *, components: int | None = None, solve: bool = False) -> Problem:
    """A classification table of scikit-learn ("digits", "wine", "breast_cancer" or "iris") as a bandit: see
    `classification_bandit`."""
    from sklearn import datasets

    load = getattr(datasets, f"load_{one_of('table', table, ('digits', 'wine', 'breast_cancer', 'iris'))}")
    X, y = load(return_X_y=True)
    return classification_bandit(X, y, components=components, solve=solve, name=f"{table} as a linear bandit")


def from_table(
    source: Any,
    target: str,
    ignore: str | Sequence[str] = (),
    model: Model | None = None,
    *,
    noise: float | None = None,
    name: str | None = None,
) -> Problem:
    """A table with a result in every row as a problem: f* is the target, and f̃ and ε come from `best_in_class`.

    source, target, ignore: as for `Finite.from_table`.
    noise: σ of the Gaussian noise added to f*, 5 % of the target's range by default.
    model: by default an RBF of length scale ½√d on the encoding of d columns (numbers in [0, 1], options 1 apart);
    offset is the target's mean, and B the norm of a ridge fit, or the target's standard deviation if that is larger.
    This model has seen the results, as no learner has: it is for comparisons.
    """
    from sklearn.gaussian_process.kernels import RBF

    domain = Table(source, target, ignore)
    values = domain.observations.y
    if len(values) < len(domain):
        missing = next(i for i, row in enumerate(domain.rows) if row[target] is None)
        raise InvalidInput(
            f"every row needs a result in {shown(target)}, data row {missing + 1} has none "
            f"({len(domain) - len(values)} such row(s) in all); leave them out"
        )
    spread = float(np.ptp(values))
    if spread <= 0:
        raise InvalidInput(f"the results in {shown(target)} are all {values[0]:g}: there is nothing to find")
    sigma = 0.05 * spread if noise is None else number("noise (σ)", noise, at_least=0)
    if model is None:
        kernel, offset, scale = RBF(0.5 * math.sqrt(domain.dimension)), float(values.mean()), float(values.std())
        norm = norm_of_fit(kernel, domain.encoded, values - offset, max((sigma / scale) ** 2, LEAST_REGULARIZATION))
        model = Model(kernel, norm_bound=max(scale, norm), noise=sigma, offset=offset)
    title = name or (Path(source).stem if isinstance(source, str | os.PathLike) else "a table")
    hidden = Table([{**row, target: None} for row in domain.rows], target, ignore)  # no learner may see the results
    return from_values(hidden, model, values, sampler=Gaussian(sigma), name=title)
