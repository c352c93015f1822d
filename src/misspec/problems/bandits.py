"""Contextual problems: new action sets in every round, a trap and a needle for linear models, and classification
tables as bandits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import kernels
from misspec.domains import Finite
from misspec.domains.base import MOST_NUMBERS
from misspec.errors import Array, InvalidInput, array, matrix, number, one_of, seeded, shown, whole
from misspec.model import Model, a_model
from misspec.problems.base import Fresh, Gaussian, Groups, Problem, around_offset, from_values
from misspec.problems.synthetic import CENTRES, member_coefficients, misfit_of, unit

COMPONENTS = 24  # default limit on the principal components of a table: vectors have as many entries, times the classes
MOST_CONTEXTS = 10_000  # largest number of contexts, and of actions: `best_in_class` is solved over all of them
RIDGE = 0.1  # λ of the default model, in units of the mean squared length of a context


def fresh_actions(
    model: Model,
    dimension: int,
    actions: int = 20,
    epsilon: float = 0.0,
    misfit: str = "random",
    seed: int = 0,
    *,
    rounds: int = 5000,
    shape: str = "ball",
    wavelength: float = 0.05,
) -> Problem:
    """Every round brings `actions` vectors that were never seen before, i.i.d.: the setting of the paper's Algorithm 3.

    f̃ is a random member of norm exactly B (for a linear kernel θ·x with ‖θ‖ = B); misfit and wavelength are as for
    `misspecified`. shape: vectors are uniform in the unit "ball" or the unit "cube". rounds: the number of rounds with
    new vectors; then they come again, in another order. Play it on `problem.arena`, an `Open` domain.
    """
    sizes = {"dimension": dimension, "actions": actions, "rounds": rounds}
    d, k, T = (whole(name, value, at_least=1) for name, value in sizes.items())
    a_model(model)
    if T * k * d > MOST_NUMBERS:
        raise InvalidInput(f"{T:,} rounds of {k:,} actions in {d:,} dimensions are too many to draw; take fewer")
    eps, ball = number("epsilon", epsilon, at_least=0), one_of("shape", shape, ("ball", "cube")) == "ball"
    rng = np.random.default_rng([seeded(seed), 11])
    domain = Finite(_ball(rng, T * k, d) if ball else rng.random((T * k, d)))
    centres = _ball(rng, CENTRES, d) if ball else rng.random((CENTRES, d))
    member = _member(model, centres, domain.points, rng)
    m, eps = misfit_of(unit(domain), misfit, eps, wavelength, np.random.default_rng([seed, 12]))
    name = f"{k} new actions per round, " + (f"{misfit} misfit of {eps:g}" if eps else "no misfit")
    rows = np.arange(T * k).reshape(T, k)
    return Problem(name, domain, model, member + m, member, eps, offers=Fresh(rows), fresh=True)


def _ball(rng: np.random.Generator, n: int, d: int) -> Array:
    X = rng.standard_normal((n, d))
    return np.asarray(X * (rng.random((n, 1)) ** (1.0 / d) / np.linalg.norm(X, axis=1, keepdims=True)))


def _member(model: Model, centres: Array, X: Array, rng: np.random.Generator) -> Array:
    """offset + Σ a_i k(·, c_i) of norm exactly B."""
    a = member_coefficients(model, centres, rng)
    affine = kernels.affine(model.kernel, X.shape[1])
    if affine is not None:  # Σ a_i φ(c_i) is one vector
        return model.offset + affine(X) @ (a @ affine(centres))
    parts = np.array_split(X, max(1, len(X) // 10_000))
    return model.offset + np.concatenate([kernels.cross(model.kernel, part, centres) @ a for part in parts])


def contextual_trap(contexts: int = 10, seed: int = 0, *, noise: float = 0.1) -> Problem:
    """Contexts that come back, with four actions each, one of which is far better than any linear function allows.

    The vectors of a context: a long one along the first axis, worth 0.1, a short one along the same axis, worth 0.525,
    and two in between, worth less. Every linear function that fits these rates the long one above the short one: a
    learner that trusts its linear model (LinUCB) keeps to the long one and loses about 0.3 per round for ever. ε comes
    from `best_in_class` and is about 0.36.
    """
    n = whole("contexts", contexts, at_least=1, at_most=MOST_CONTEXTS)
    rng = np.random.default_rng([seeded(seed), 13])
    d = 4
    along, worth = np.array([0.9, 0.35, 0.6, 0.5]), np.array([0.1, 0.525, 0.0, 0.05])
    points = 0.2 * rng.uniform(-1.0, 1.0, (n, 4, d)) / math.sqrt(d - 1)  # distinguishes contexts
    points[:, :, 0] = along
    values = np.tile(worth, n) + 0.02 * rng.uniform(-1.0, 1.0, 4 * n)
    order = np.concatenate([4 * c + rng.permutation(4) for c in range(n)])  # an action's row must not give it away
    return _linear(points.reshape(4 * n, d)[order], values[order], noise, 4, "contextual trap")


def contextual_needle(
    contexts: int = 10, actions: int = 5, seed: int = 0, *, height: float = 0.8, noise: float = 0.1
) -> Problem:
    """In every context one action is worth `height` and the others nothing, whatever their vectors.

    Vectors are i.i.d. of unit length, and the needle is drawn at random: a linear learner has nothing to learn and
    loses in every round, while one that remembers results finds each needle by trying.
    """
    n = whole("contexts", contexts, at_least=1, at_most=MOST_CONTEXTS)
    k = whole("actions", actions, at_least=2, at_most=MOST_CONTEXTS)
    h = number("height", height, above=0)
    rng = np.random.default_rng([seeded(seed), 14])
    points = rng.standard_normal((n * k, 4))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    values = np.zeros(n * k)
    values[np.arange(n) * k + rng.integers(k, size=n)] = h
    return _linear(points, values, noise, k, f"contextual needle of height {h:g}")


def _linear(points: Array, values: Array, noise: float, actions: int, name: str) -> Problem:
    """A truth under a linear model; each context has so many actions, next to each other in the list."""
    from sklearn.gaussian_process.kernels import DotProduct

    model = Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=number("noise (σ)", noise, at_least=0))
    offers = Groups(np.arange(len(points)).reshape(-1, actions))
    return from_values(Finite(points), model, values, offers=offers, name=name)


def classification_bandit(
    X: ArrayLike,
    y: ArrayLike,
    *,
    components: int | None = None,
    model: Model | None = None,
    solve: bool = False,
    name: str = "classification as a bandit",
) -> Problem:
    """A classification table by trial and error: a round shows a row and offers all classes; the reward is 1 for the
    right one and 0 otherwise, without noise.

    X: (n, p) numbers. y: n labels of at least two kinds. components: the number of principal components of the
    standardised columns that a learner sees, by default all but at most 24. An action is the row's components and a 1,
    scaled to at most unit length, in the block of its class, so that a linear function has separate coefficients for
    each class ("disjoint" LinUCB). model: by default linear, with the chance of a random guess as offset. solve: find
    f̃ and ε by `best_in_class`, which can take minutes; otherwise f̃ is the offset and ε its distance to the truth.

    Play it on `problem.arena`, an `Open` domain, or on `problem.domain`, where candidates have indices.
    """
    from sklearn.gaussian_process.kernels import DotProduct

    rows = matrix("X", X, rows_at_least=2)
    labels = array("y must be one label per row of X", y)
    if labels.shape != (len(rows),):
        raise InvalidInput(f"y must be one label per row of X, {len(rows)} of them, got shape {labels.shape}")
    classes, codes = _coded(labels)
    K, n = len(classes), len(rows)
    if K < 2:
        raise InvalidInput(f"y must hold at least two classes, got only {shown(classes[0])}")
    seen = _components(rows, components)
    seen = np.concatenate([seen, np.full((n, 1), math.sqrt(float((seen**2).sum(axis=1).mean())))], axis=1)
    seen /= np.linalg.norm(seen, axis=1).max()
    p = seen.shape[1]
    points = np.zeros((n, K, K, p))  # row, action, block
    points[:, np.arange(K), np.arange(K)] = seen[:, None, :]
    values = (np.tile(np.arange(K), n) == np.repeat(codes, K)).astype(np.float64)
    if model is None:
        ridge = RIDGE * float((seen**2).sum(axis=1).mean())
        model = Model(DotProduct(sigma_0=0), norm_bound=5.0, noise=0.05, regularization=ridge, offset=1.0 / K)
    return around_offset(
        name, Finite(points.reshape(n * K, K * p)), model, values, solve=solve,
        sampler=Gaussian(0.0), offers=Groups(np.arange(n * K).reshape(n, K)), fresh=True,
    )  # fmt: skip


def _coded(labels: NDArray[Any]) -> tuple[list[Any], NDArray[np.intp]]:
    """The classes, and the position of each label among them."""
    if labels.dtype == np.float64 and not np.isfinite(labels).all():
        raise InvalidInput("labels must not be missing; leave those rows out")
    try:
        classes, codes = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise InvalidInput(f"labels must be of one kind, numbers or text: {error}") from None
    return classes.tolist(), codes.ravel()


def _components(rows: Array, components: int | None) -> Array:
    """Principal components of the standardised columns, without constant ones."""
    spread = rows.std(axis=0)
    varying = spread > 1e-12 * np.maximum(1.0, np.abs(rows).max(axis=0))
    if not varying.any():
        raise InvalidInput("the columns of X are constant: rows cannot be told apart")
    Z = (rows[:, varying] - rows[:, varying].mean(axis=0)) / spread[varying]
    most = min(Z.shape)
    wanted = min(most, COMPONENTS) if components is None else whole("components", components, at_least=1)
    if wanted > most:
        raise InvalidInput(f"components must be at most {most}, the rank that X can have, got {components}")
    left, singular, _ = np.linalg.svd(Z, full_matrices=False)
    return np.asarray(left[:, :wanted] * singular[:wanted])
