"""Play a policy against a problem that knows its truth: policy × problem → `Trace`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec.errors import (
    MOST_AT_ONCE,
    MOST_ROUNDS,
    Array,
    HorizonReached,
    InvalidInput,
    seeded,
    shown,
    whole,
)
from misspec.evaluation.loop import ask, check_horizon
from misspec.evaluation.stopping import Until, Watch, checked
from misspec.policies import Policy, Query, Recommendation
from misspec.policies.balanced import Learning
from misspec.policies.core.answers import NUMBERS
from misspec.problems import Problem
from misspec.progress import Progress, reported
from misspec.threads import one_thread

STREAMS = (101, 102)  # random streams of noise and action sets; problems of the same seed are drawn from others
JUDGED = (103, 20)  # random stream and number of the action sets on which recommendations are judged where these vary


@dataclasses.dataclass(frozen=True, eq=False)
class Trace:
    """A run, round by round, and its regret. T rounds:

    index, x, y          the candidate played, its point, and the result
    regret               max f* − f*(x_t), the maximum over the round's action set in a contextual problem; of −f* where
                         smaller is better
    in_class_regret      max f̃ − f̃(x_t); summed, the two differ by at most 2εT
    mean, std, multiplier, enlargement, upper   numbers that the choice was made by (see Query); NaN for those that did
                         not enter it (phased: the last three)
    base, episode        the base that played (balancing), the episode (phased); None for other policies
    offers               the action sets, (T, k), or None
    recommended_regret   max f* minus f* at `recommend()` after the last round; where rounds bring vectors, averaged
                         over further action sets
    facts                the policy's facts after the last round: `history` (phased: per episode), `epsilons`, `counts`
                         and `eliminated` (balancing: per base), `conflicts`, `recommendation`; and `before`, the number
                         of results that it had been told before the first round
    """

    policy: str
    problem: str
    seed: int
    epsilon: float
    index: NDArray[np.intp]
    x: Array
    y: Array
    regret: Array
    in_class_regret: Array
    mean: Array
    std: Array
    multiplier: Array
    enlargement: Array
    upper: Array
    base: NDArray[np.intp] | None
    episode: NDArray[np.intp] | None
    offers: NDArray[np.intp] | None
    recommended_regret: float
    facts: dict[str, Any]

    def __len__(self) -> int:
        return len(self.index)

    @property
    def cumulative_regret(self) -> Array:
        """R*_t."""
        return np.cumsum(self.regret)

    @property
    def cumulative_in_class_regret(self) -> Array:
        """R_t."""
        return np.cumsum(self.in_class_regret)

    @property
    def simple_regret(self) -> Array:
        """The smallest regret of any round so far."""
        return np.asarray(np.minimum.accumulate(self.regret))

    @property
    def best_share(self) -> Array:
        """The share of the rounds so far in which the best action was played."""
        return np.cumsum(self.regret <= 0.0) / np.arange(1.0, len(self) + 1.0)

    @property
    def width(self) -> Array:
        """multiplier·σ + enlargement at the point played, half the model's band."""
        return self.multiplier * self.std + self.enlargement

    def __repr__(self) -> str:
        return (
            f"Trace({self.policy} on {self.problem!r}, {len(self)} rounds, seed {self.seed}: "
            f"regret {self.regret.mean():.4g} per round, {late(self.regret):.4g} at the end)"
        )


def late(regret: Array) -> float:
    """Regret per round over the last tenth of the rounds."""
    return float(regret[-max(1, len(regret) // 10) :].mean())


def simulate(
    policy: Policy,
    problem: Problem,
    n: int,
    seed: int = 0,
    *,
    batch: int = 1,
    until: Until | None = None,
    progress: Progress | bool | None = None,
) -> Trace:
    """Play n rounds. `seed` determines the world: noise and action sets, the same for every policy.

    All of that is drawn before the first round, so that policies are compared round by round in the same world. A
    policy that has results already continues from them: compare fresh ones. Where nothing is left to try, as on a list
    without noise, the rounds that are left play what is recommended.

    batch      queries asked at a time; a phased policy hands out at most the rest of its episode
    until      stop before n, as in `ms.optimize`; the trace is then shorter, and its `facts["reason"]` says why
    progress   as in `ms.optimize`; a function is called as progress(rounds done, n) after every batch
    """
    T = whole("n", n, at_least=1, at_most=MOST_ROUNDS)
    batch = whole("batch", batch, at_least=1, at_most=MOST_AT_ONCE)
    _check_match(policy, problem)
    check_horizon(policy, T)
    watch = Watch(checked(until, policy), lambda: policy)
    if batch > 1 and problem.offers is not None:
        raise InvalidInput("a contextual problem is played round by round; leave batch at 1")
    noise_rng, offer_rng = (np.random.default_rng([seeded(seed), part]) for part in STREAMS)
    draws = problem.sampler.draw(noise_rng, T)
    offers = None if problem.offers is None else problem.offers.draw(offer_rng, T)
    vectors = None if policy.field.fixed else problem.domain.points  # of the rounds' actions
    asked: list[Query] = []
    ended = False  # whether nothing is left to try
    index = np.empty(T, dtype=np.intp)
    y = np.empty(T)
    with one_thread(), reported(progress, "rounds") as report:
        while len(asked) < T and not (asked and watch.met(policy.t, running=False)):
            t = len(asked)
            offered: Any = None if offers is None else offers[t]
            try:
                if not ended:
                    queries = ask(policy, min(batch, T - t), offered if vectors is None else vectors[offered])
            except HorizonReached:
                if offers is not None or not policy.abilities.takes_actions:
                    raise
                ended = True
            if ended:
                queries = policy.ask(1, actions=np.array([policy.recommend().index]))
            asked.extend(queries)
            for s, query in enumerate(queries, start=t):
                i: Any = query.index if vectors is None else int(offered[query.position])
                index[s], y[s] = i, problem.values[i] + problem.sampler.at(i, draws[s])
            policy.tell(queries, y[t : len(asked)])
            if report is not None:
                report(len(asked), T)
        if isinstance(policy, Learning) and policy.stale:  # what is recommended rests on all results
            policy.refresh()
        recommended, missed = _recommended(policy, problem, seed, vectors)
    index, y = index[: len(asked)], y[: len(asked)]
    reach, sign = slice(None) if offers is None else offers, -1.0 if problem.minimize else 1.0
    goals = [sign * problem.values, sign * problem.in_class]
    regret, in_class_regret = (np.asarray(goal[reach].max(axis=-1) - goal[index]) for goal in goals)
    details = [np.array([q.details.get(name) for q in asked]) for name in ("base", "episode")]
    base, episode = (None if values[0] is None else values for values in details)
    return Trace(
        policy=type(policy).__name__,
        problem=problem.name,
        seed=seed,
        epsilon=problem.epsilon,
        index=index,
        x=problem.domain.points[index],
        y=y,
        regret=regret,
        in_class_regret=in_class_regret,
        **{name: np.array([getattr(q, name) for q in asked]) for name in NUMBERS},
        base=base,
        episode=episode,
        offers=offers,
        recommended_regret=missed,
        facts={
            **policy.facts, "conflicts": policy.conflicts(), "recommendation": recommended,
            "before": policy.t - len(asked), **({"reason": watch.reason} if watch.reason else {}),
        },
    )  # fmt: skip


def _recommended(policy: Policy, problem: Problem, seed: int, vectors: Array | None) -> tuple[Recommendation, float]:
    """The final recommendation and its regret; where rounds bring vectors, the average over some action sets."""
    f = problem.goal
    if vectors is None or problem.offers is None:
        recommended = policy.recommend()
        return recommended, float(f.max() - f[recommended.index])
    missed = []
    for offered in problem.offers.draw(np.random.default_rng([seed, JUDGED[0]]), JUDGED[1]):
        recommended = policy.recommend(actions=vectors[offered])
        missed.append(float(f[offered].max() - f[offered[recommended.position]]))
    return recommended, float(np.mean(missed))


def _check_match(policy: Policy, problem: Problem) -> None:
    if not isinstance(policy, Policy) or not isinstance(problem, Problem):
        raise InvalidInput(
            f"simulate takes a policy and a problem, got {type(policy).__name__} and {type(problem).__name__}"
        )
    if policy.minimize != problem.minimize:
        better = "smaller" if problem.minimize else "larger"
        raise InvalidInput(
            f"{better} values of this problem are better, and the policy goes the other way; make it with "
            "minimize=problem.minimize"
        )
    ours, theirs = policy.field.domain, problem.domain
    if not policy.field.fixed and not hasattr(ours, "contexts"):
        same = problem.offers is not None and ours.dimension == theirs.dimension
    else:
        same = ours is theirs or (
            policy.field.fixed
            and policy.field.indexed
            and np.array_equal(ours.points, theirs.points)
            and np.array_equal(ours.encoded, theirs.encoded)
        )
    if not same:
        differ = "" if repr(ours) != repr(theirs) else " (their points differ, or how the kernel sees them)"
        raise InvalidInput(
            f"the policy's domain, {shown(ours)}, is not the problem's, {shown(theirs)}{differ}; "
            "make the policy with problem.arena and problem.model"
        )
