"""Problems that know their truth: f*, a member f̃ of the class near it, their distance, and the noise."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec.domains import Finite, Open
from misspec.errors import MOST, Array, InvalidInput, array, flag, instance, matrix, number, shown, vector, whole
from misspec.model import Model, a_model
from misspec.truth import best_in_class, check_known

ROUNDING = 1e-9  # |f* − f̃| may exceed ε by this share of the largest value


class Sampler(Protocol):
    """Noise that is added to f*. It is drawn before a run, so that policies can be compared round by round."""

    def draw(self, rng: np.random.Generator, rounds: int) -> NDArray[Any]:
        """One draw per round, whatever will be played."""

    def at(self, index: int, draw: Any) -> float:
        """The noise at this candidate, given the round's draw; its mean is zero."""


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """Normal noise of standard deviation σ."""

    noise: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", number("noise (σ)", self.noise, at_least=0))

    def draw(self, rng: np.random.Generator, rounds: int) -> NDArray[Any]:
        return self.noise * rng.standard_normal(rounds)

    def at(self, index: int, draw: Any) -> float:  # noqa: ARG002  # the same at every candidate
        return float(draw)


@dataclasses.dataclass(frozen=True, eq=False)
class Replayed:
    """Noise from a table: each round replays one of the recorded repetitions, whose mean is f*."""

    deviations: Array  # (N, repetitions)

    def __post_init__(self) -> None:
        object.__setattr__(self, "deviations", matrix("deviations", self.deviations, rows_at_least=1))

    def draw(self, rng: np.random.Generator, rounds: int) -> NDArray[Any]:
        return rng.integers(self.deviations.shape[1], size=rounds)

    def at(self, index: int, draw: Any) -> float:
        return float(self.deviations[index, draw])


@dataclasses.dataclass(frozen=True, eq=False)
class Negated:
    """Noise of the opposite sign."""

    sampler: Sampler

    def draw(self, rng: np.random.Generator, rounds: int) -> NDArray[Any]:
        return self.sampler.draw(rng, rounds)

    def at(self, index: int, draw: Any) -> float:
        return -self.sampler.at(index, draw)


class Offers(Protocol):
    """Action sets of a contextual problem, i.i.d. from round to round."""

    def draw(self, rng: np.random.Generator, rounds: int) -> NDArray[np.intp]:
        """Indices of the candidates on offer, one row per round."""


@dataclasses.dataclass(frozen=True)
class Subsets:
    """Each round offers `size` of the `points` candidates, drawn without replacement."""

    points: int
    size: int

    def __post_init__(self) -> None:
        points = whole("points", self.points, at_least=1)
        whole("size", self.size, at_least=1, at_most=points)

    def draw(self, rng: np.random.Generator, rounds: int) -> NDArray[np.intp]:
        return np.array([rng.choice(self.points, self.size, replace=False) for _ in range(rounds)], dtype=np.intp)


@dataclasses.dataclass(frozen=True, eq=False)
class Groups:
    """Each round offers one of several groups of candidates (a context with its actions), drawn with replacement."""

    rows: NDArray[np.intp]  # (groups, actions)

    def __post_init__(self) -> None:
        wanted = "rows must be an array of indices, one group a row"
        rows = array(wanted, self.rows)
        if rows.ndim != 2 or rows.dtype.kind not in "iu" or not rows.size or rows.min() < 0 or rows.max() > MOST:
            raise InvalidInput(f"{wanted}, got {rows.dtype} {rows.shape}")
        object.__setattr__(self, "rows", rows.astype(np.intp))

    def draw(self, rng: np.random.Generator, rounds: int) -> NDArray[np.intp]:
        return np.asarray(self.rows[rng.integers(len(self.rows), size=rounds)])


@dataclasses.dataclass(frozen=True, eq=False)
class Fresh(Groups):
    """Each round offers a group that was not offered before, in random order, until all were; then they start over."""

    def draw(self, rng: np.random.Generator, rounds: int) -> NDArray[np.intp]:
        turns = -(-rounds // len(self.rows))
        order = np.concatenate([rng.permutation(len(self.rows)) for _ in range(turns)])
        return np.asarray(self.rows[order[:rounds]])


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A Finite domain, the model that the learner is told, and the truth that it is not.

    values     f* on the domain
    in_class   f̃ on the domain, a member of the class
    epsilon    a bound on |f* − f̃|
    sampler    draws the noise; Gaussian(model.noise) by default
    offers     draws the action sets of a contextual problem
    fresh      whether a round hands policies the vectors of its actions, most of them new, rather than indices
    minimize   whether smaller is better
    """

    name: str
    domain: Finite
    model: Model
    values: Array
    in_class: Array
    epsilon: float
    sampler: Sampler = None  # type: ignore[assignment]  # None is replaced below
    offers: Offers | None = None
    fresh: bool = False
    minimize: bool = False

    def __post_init__(self) -> None:
        check_known(self.domain, self.model)
        values = vector("values", self.values, length=len(self.domain))
        in_class = vector("in_class", self.in_class, length=len(self.domain))
        epsilon = number("epsilon", self.epsilon, at_least=0)
        instance("name", self.name, str)
        if flag("fresh", self.fresh) and self.offers is None:
            raise InvalidInput("a problem whose rounds bring vectors needs offers=… that say which")
        flag("minimize", self.minimize)
        self._check_draws()
        apart = float(np.abs(values - in_class).max())
        if apart > epsilon + ROUNDING * max(1.0, float(np.abs(values).max())):
            raise InvalidInput(f"values and in_class lie {apart:g} apart, more than the epsilon of {epsilon:g}")
        values.flags.writeable = in_class.flags.writeable = False
        sampler = Gaussian(self.model.noise) if self.sampler is None else self.sampler
        for name, value in {"values": values, "in_class": in_class, "epsilon": epsilon, "sampler": sampler}.items():
            object.__setattr__(self, name, value)  # frozen: set once, here

    def _check_draws(self) -> None:
        """InvalidInput unless noise and action sets can be drawn for these candidates."""
        for name, source, methods in (("sampler", self.sampler, ("draw", "at")), ("offers", self.offers, ("draw",))):
            if source is not None and not all(callable(getattr(source, method, None)) for method in methods):
                needed = " and ".join(f"{method}(…)" for method in methods)
                raise InvalidInput(f"{name} must be None or have {needed}, got {shown(source)}; see misspec.problems")
        N, offers = len(self.domain), self.offers
        known = int(offers.rows.max()) + 1 if isinstance(offers, Groups) else getattr(offers, "points", N)
        recorded = len(self.sampler.deviations) if isinstance(self.sampler, Replayed) else N
        if known > N or recorded != N:
            raise InvalidInput(f"offers and noise must be for the {N} candidates, got {known} and {recorded}")

    @property
    def arena(self) -> Finite | Open:
        """The domain to make policies on: `domain`, or an Open one where rounds bring vectors."""
        return Open(self.domain.dimension) if self.fresh else self.domain

    @property
    def misfit(self) -> Array:
        """m = f* − f̃."""
        return self.values - self.in_class

    @property
    def best(self) -> int:
        """The index of the best value of f*."""
        return int(self.goal.argmax())

    @property
    def goal(self) -> Array:
        """f*, or −f* where smaller is better."""
        return -self.values if self.minimize else self.values

    def with_misfit(self, misfit: ArrayLike, name: str | None = None) -> Problem:
        """This problem with another misfit, within its ± ε."""
        m = vector("misfit", misfit, length=len(self.domain))
        return dataclasses.replace(self, values=self.in_class + m, name=self.name if name is None else name)

    def solved(self) -> Problem:
        """This problem with f̃ and ε from `best_in_class`, which makes ε as small as possible."""
        best = best_in_class(self.domain, self.model, self.values)
        return dataclasses.replace(self, in_class=best.values, epsilon=best.epsilon)

    def __repr__(self) -> str:
        kind = "" if self.offers is None else ", contextual"
        return f"Problem({self.name!r}, {self.domain!r}, epsilon={self.epsilon:.4g}{kind})"


def from_values(
    domain: Finite,
    model: Model,
    values: ArrayLike,
    *,
    sampler: Sampler | None = None,
    offers: Offers | None = None,
    minimize: bool = False,
    name: str = "given values",
) -> Problem:
    """A problem with any truth; f̃ and ε come from `best_in_class`. offers: as in Groups([[0, 1, 2], [3, 4, 5]])."""
    best = best_in_class(domain, model, values)
    given: Any = {"values": values, "sampler": sampler, "offers": offers, "minimize": minimize}
    return Problem(name, domain, model, in_class=best.values, epsilon=best.epsilon, **given)


def around_offset(name: str, domain: Finite, model: Model, values: Array, *, solve: bool, **given: Any) -> Problem:
    """A problem whose f̃ is the offset, and ε its distance to the truth. solve: both from `best_in_class` instead."""
    constant = np.full(len(values), a_model(model).offset)
    problem = Problem(name, domain, model, values, constant, float(np.abs(values - constant).max()), **given)
    return problem.solved() if flag("solve", solve) else problem


def negated(problem: Problem) -> Problem:
    """The problem upside down: −f*, −f̃, −offset and −noise, where now the other direction is better."""
    sampler = problem.sampler.sampler if isinstance(problem.sampler, Negated) else Negated(problem.sampler)
    return dataclasses.replace(
        problem, model=problem.model.turned(), values=0.0 - problem.values, in_class=0.0 - problem.in_class,
        sampler=sampler, minimize=not problem.minimize,
    )  # fmt: skip


def contextual(problem: Problem, actions: int) -> Problem:
    """A contextual problem of it: each round offers `actions` of the candidates, drawn i.i.d."""
    k = whole("actions", actions, at_least=1)
    instance("problem", problem, Problem)
    if problem.offers is not None:
        raise InvalidInput(f"{shown(problem)} is contextual already; start from a problem without action sets")
    if k > len(problem.domain):
        raise InvalidInput(f"actions must be at most the {len(problem.domain)} candidates, got {k}")
    name = f"{problem.name}, {k} actions per round"
    return dataclasses.replace(problem, name=name, offers=Subsets(len(problem.domain), k))
