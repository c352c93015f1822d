"""Search for the misfit within ±ε that hurts a policy most.

A policy's regret jumps with every choice that it makes, so this is plain local search over misfits of full size,
m(x) = ±ε. A move flips the signs of a neighbourhood: a candidate and those that the kernel finds most like it. It
starts from patterns that are known to mislead: one good point raised and those like it lowered, so that the model
undervalues it. All misfits are played in the same worlds (seeds), and the worst is judged in worlds of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from misspec import kernels
from misspec.errors import MOST_AT_ONCE, Array, InvalidInput, callback, instance, seeded, shown, whole
from misspec.policies import Policy
from misspec.problems import Problem
from misspec.progress import Progress
from misspec.simulation import simulate

MakePolicy = Callable[[Problem], Policy]


@dataclasses.dataclass(frozen=True, eq=False)
class Attack:
    """A misfit that hurts, and how much.

    problem   the problem with that misfit
    regret    mean true regret per round, in worlds that the search did not use
    before    mean true regret per round of the original problem, in the same worlds
    path      the largest regret so far after each try of the search; biased upwards by selection
    """

    problem: Problem
    regret: float
    before: float
    path: Array

    def __repr__(self) -> str:
        return f"Attack(regret {self.before:.4g} → {self.regret:.4g} per round, {len(self.path)} misfits tried)"


def worst_misfit(
    make: MakePolicy,
    problem: Problem,
    n: int,
    *,
    tries: int = 200,
    worlds: int = 4,
    seed: int = 0,
    progress: Progress | None = None,
) -> Attack:
    """The worst of `tries` misfits within ± problem.epsilon for the policies that make(problem) returns.

    make       returns a fresh policy for a problem, as in lambda p: ms.GPUCB(p.domain, p.model)
    n          rounds of each run
    worlds     runs per misfit; the result is judged by twice as many
    """
    instance("problem", problem, Problem)
    callback("progress", progress)
    T, tries = whole("n", n, at_least=1), whole("tries", tries, at_least=1)
    worlds = max(1, whole("worlds", worlds, at_most=MOST_AT_ONCE))
    if problem.epsilon <= 0:
        raise InvalidInput("the problem allows no misfit: its epsilon is 0; make it with an epsilon above 0")
    rng = np.random.default_rng([seeded(seed), 6])
    search, judges = (rng.integers(2**31, size=size).tolist() for size in (worlds, 2 * worlds))

    def lost(p: Problem, seeds: list[int]) -> float:
        return float(np.mean([simulate(_fresh(make, p), p, T, s, progress=False).regret.mean() for s in seeds]))

    def harm(signs: Array, seeds: list[int]) -> float:
        return lost(problem.with_misfit(problem.epsilon * signs), seeds)

    X, kernel = problem.domain.encoded, problem.model.kernel
    K = kernels.cross(kernel, X, X)
    diagonal = np.diag(K)
    # for each candidate the indices of all, the most similar first
    nearest = np.argsort(diagonal[:, None] + diagonal[None, :] - 2.0 * K, axis=1, kind="stable")
    starts = _starts(problem, nearest, rng, at_most=max(1, tries // 4))
    scores: list[float] = []
    best, record = starts[0], -np.inf
    for k in range(tries):
        signs = starts[k] if k < len(starts) else _move(best, nearest, rng)
        score = harm(signs, search)
        if score > record:
            best, record = signs, score
        scores.append(record)
        if progress is not None:
            progress(k + 1, tries)
    worst = problem.with_misfit(problem.epsilon * best, f"{problem.name}, adversarial")
    return Attack(worst, harm(best, judges), lost(problem, judges), np.array(scores))


def _fresh(make: MakePolicy, problem: Problem) -> Policy:
    policy = make(problem) if callable(make) and not isinstance(make, type) else None
    if not isinstance(policy, Policy) or policy.t:
        raise InvalidInput(
            "make must be a function that returns a fresh policy for a problem, as in "
            f"lambda p: ms.GPUCB(p.domain, p.model); got {shown(make)}"
            + (", which returns a used one" if policy else "")
        )
    return policy


def _starts(problem: Problem, nearest: np.ndarray, rng: np.random.Generator, at_most: int) -> list[Array]:
    """Signs to start from: those of the problem's misfit, their opposite, then a good candidate raised alone."""
    N = len(problem.domain)
    own = np.where(problem.misfit >= 0, 1.0, -1.0)
    starts = [own, -own]
    for x in np.argsort(-problem.in_class, kind="stable")[: max(1, at_most // 3)]:
        for part in (0.1, 0.3, 1.0):
            signs = np.ones(N) if part < 1.0 else rng.choice([-1.0, 1.0], N)
            signs[nearest[x, : max(2, round(part * N))]] = -1.0
            signs[x] = 1.0
            starts.append(signs)
    return starts[: max(1, at_most)]


def _move(signs: Array, nearest: np.ndarray, rng: np.random.Generator) -> Array:
    """Change the signs of a neighbourhood of random size: flip all of them, or set all to the same sign."""
    N = len(signs)
    size = int(np.exp(rng.uniform(0.0, np.log(max(2.0, N / 4)))))
    where = nearest[rng.integers(N), :size]
    moved = signs.copy()
    moved[where] = -moved[where] if rng.random() < 0.5 else rng.choice([-1.0, 1.0])
    return moved
