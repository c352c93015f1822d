"""The only loop: a policy against a problem that knows its truth, or against a user's function."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec.contexts import Open
from misspec.domains import Finite
from misspec.errors import Array, AwaitingResults, InvalidInput, whole
from misspec.policies import Policy, Query, Recommendation
from misspec.problems import Problem

Progress = Callable[[int, int], None]
_NUMBERS = ("mean", "std", "multiplier", "enlargement", "upper")  # what a query knows of its choice
STREAMS = (101, 102)  # of noise and action sets: not those that problems of the same seed are drawn from
JUDGED = (103, 20)  # stream and number of the action sets on which recommendations are judged where these vary
FAILURES = 10  # of a user's function in a row, after which on_error="drop" gives up


@dataclasses.dataclass(frozen=True, eq=False)
class Trace:
    """What happened, round by round, and what it cost. T rounds:

    index, x, y          the candidate played, its point, and what was observed
    regret               max f* − f*(x_t), the maximum over the round's action set in a contextual problem
    in_class_regret      the same for f̃; summed, the two differ by at most 2εT
    mean, std, multiplier, enlargement, upper   what each choice was made by (see Query); NaN for what did
                         not enter the choice (phased: the last three)
    base, episode        who played (balancing) and in which episode (phased); None for other policies
    offers               the action sets, (T, k), or None
    recommended_regret   max f* minus f* at `recommend()` after the last round; where rounds bring vectors, on average
                         over further action sets
    story                the policy's own, after the last round: `history` (phased: per episode), `epsilons`, `counts`
                         and `eliminated` (balancing: per base), `conflicts`, `recommendation`; `before`, the results
                         that it was told before the first

    and computed from these: cumulative_regret, cumulative_in_class_regret, simple_regret (smallest so far), width
    (multiplier·σ + enlargement), best_share (of the rounds so far, those in which the best action was played).
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
    story: dict[str, Any]

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
        late = self.regret[-max(1, len(self) // 10) :].mean()
        return (
            f"Trace({self.policy} on {self.problem!r}, {len(self)} rounds, seed {self.seed}: "
            f"regret {self.regret.mean():.4g} per round, {late:.4g} at the end)"
        )


def simulate(
    policy: Policy, problem: Problem, horizon: int, seed: int = 0, *, batch: int = 1, progress: Progress | None = None
) -> Trace:
    """Play `horizon` rounds; `seed` is the world's: noise and action sets, the same for every policy.

    A policy that has learnt something before goes on from there: compare fresh ones.

    batch      queries asked at a time; a phased policy hands out at most the rest of its episode
    progress   called as progress(rounds done, horizon) after every batch

    BLAS runs on one thread meanwhile: the matrices are small, and threads would only wait for each other.
    """
    T = whole("horizon", horizon, at_least=1)
    batch = whole("batch", batch, at_least=1)
    _check_match(policy, problem)
    _check_horizon(policy, T)
    if batch > 1 and problem.offers is not None:
        raise InvalidInput("a contextual problem is played round by round; leave batch at 1")
    noise_rng, offer_rng = (np.random.default_rng([whole("seed", seed), part]) for part in STREAMS)
    draws = problem.noise.draw(noise_rng, T)
    offers = None if problem.offers is None else problem.offers.draw(offer_rng, T)
    vectors = None if isinstance(policy.domain, Finite) else problem.domain.points  # what the rounds bring
    values, noise = problem.values, problem.noise
    asked: list[Query] = []
    index = np.empty(T, dtype=np.intp)
    y = np.empty(T)
    with _controller().limit(limits=1):
        while len(asked) < T:
            t = len(asked)
            offered = None if offers is None else offers[t]
            actions: Any = offered if offered is None or vectors is None else vectors[offered]
            queries = _ask(policy, min(batch, T - t), actions)
            asked.extend(queries)
            for s, query in enumerate(queries, start=t):
                i = int(query.index if offered is None or vectors is None else offered[query.position])  # type: ignore[arg-type]
                index[s], y[s] = i, values[i] + noise.at(i, draws[s])
            policy.tell(queries, y[t : len(asked)])
            if progress is not None:
                progress(len(asked), T)
        recommended, missed = _recommended(policy, problem, seed, vectors)
    return _trace(policy, problem, seed, asked, index, y, offers, recommended, missed)


def _recommended(policy: Policy, problem: Problem, seed: int, vectors: Array | None) -> tuple[Recommendation, float]:
    """What the policy recommends in the end, and its regret: where rounds bring vectors, the average over some sets."""
    f = problem.values
    if vectors is None or problem.offers is None:
        recommended = policy.recommend()
        return recommended, float(f.max() - f[recommended.index])
    missed = []
    for offered in problem.offers.draw(np.random.default_rng([seed, JUDGED[0]]), JUDGED[1]):
        recommended = policy.recommend(actions=vectors[offered])
        missed.append(float(f[offered].max() - f[offered[recommended.position]]))
    return recommended, float(np.mean(missed))


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluations:
    """What `optimize` did: points, results, and the recommendation at the end."""

    index: NDArray[np.intp] | None
    x: Array
    y: Array
    best: Recommendation

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        named = self.best.row if self.best.params is None else self.best.params
        best = self.best.x if named is None else dict(named)
        return f"Evaluations({len(self)} results; recommends {best}, {self.best.lower:.4g} to {self.best.upper:.4g})"


def optimize(
    policy: Policy,
    function: Callable[[Any], float],
    horizon: int,
    *,
    batch: int = 1,
    on_error: str = "raise",
    progress: Progress | None = None,
) -> Evaluations:
    """Maximise a user's function with `horizon` evaluations (or minimise it, if that is what the policy does).

    function   of a dict of parameters on a Space, of a row as a dict on a table, else of a point (1-d array)
    on_error   "raise": an exception in the function reaches the caller, and so does a result that is not a finite
               number; the policy keeps everything learnt so far, nothing is left pending, and
               optimize(policy, function, horizon - policy.t) continues. "drop": a failed evaluation is forgotten, and
               the policy is asked again; ten failures in a row raise all the same
    progress   called as progress(evaluations done, horizon) after every batch
    """
    T, batch = whole("horizon", horizon, at_least=1), whole("batch", batch, at_least=1)
    if on_error not in ("raise", "drop"):
        raise InvalidInput(f"on_error must be raise or drop, got {on_error!r}")
    if not isinstance(policy, Policy) or not callable(function):
        raise InvalidInput(
            f"optimize takes a policy and a function, got {type(policy).__name__} and {type(function).__name__}"
        )
    _check_horizon(policy, T)
    asked: list[Query] = []
    y: list[float] = []
    failures = 0  # in a row
    one_thread = _controller().limit  # for the policy; the function may use as many as it likes
    while len(y) < T:
        with one_thread(limits=1):
            waiting = _ask(policy, min(batch, T - len(y)), None)
        try:
            while waiting:
                try:
                    value = _evaluate(function, waiting[0])
                except Exception:
                    failures += 1
                    if on_error == "raise" or failures == FAILURES:
                        raise
                    policy.drop(waiting.pop(0))
                    continue
                with one_thread(limits=1):
                    policy.tell(waiting[0], value)
                asked.append(waiting.pop(0))
                y.append(value)
                failures = 0
        except BaseException:
            for query in waiting:
                policy.drop(query)
            raise
        if progress is not None:
            progress(len(y), T)
    listed = [q.index for q in asked if q.index is not None]
    index = np.array(listed, dtype=np.intp) if len(listed) == len(asked) else None
    return Evaluations(index, np.array([q.x for q in asked]), np.array(y), policy.recommend())


def _evaluate(function: Callable[[Any], float], query: Query) -> float:
    named = query.row if query.params is None else query.params
    x: Any = query.x if named is None else dict(named)
    result = function(x)
    try:
        value = float(result)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise InvalidInput(f"the function must return a finite number, got {result!r} at x = {x}")
    return value


def _check_horizon(policy: Policy, rounds: int) -> None:
    """Some policies end: better said before the first evaluation than after the last."""
    if policy.limit is not None:
        asked = policy.asked
        if asked + rounds > policy.limit:
            raise InvalidInput(
                f"the policy was made for {policy.limit} evaluations and {asked} were asked already: {rounds} "
                "more are too many; make it with a longer horizon, or with horizon=None"
            )


def _ask(policy: Policy, n: int, actions: NDArray[np.intp] | None) -> list[Query]:
    try:
        return [policy.ask()] if n == 1 and actions is None else policy.ask(n, actions=actions)
    except AwaitingResults as error:
        raise InvalidInput(f"the policy has queries pending from before; tell or drop them first: {error}") from None


def _check_match(policy: Policy, problem: Problem) -> None:
    if not isinstance(policy, Policy) or not isinstance(problem, Problem):
        raise InvalidInput(
            f"simulate takes a policy and a problem, got {type(policy).__name__} and {type(problem).__name__}"
        )
    if policy.minimize:
        raise InvalidInput("problems are maximised, and this policy minimises; make it with minimize=False")
    ours, theirs = policy.domain, problem.domain
    if isinstance(ours, Open):
        same = problem.offers is not None and ours.dimension == theirs.dimension
    else:
        same = isinstance(ours, Finite) and (ours is theirs or _same(ours, theirs))
    if not same:
        differ = "" if repr(ours) != repr(theirs) else " (their points differ, or how the kernel sees them)"
        raise InvalidInput(
            f"the policy's domain, {ours!r}, is not the problem's, {theirs!r}{differ}; "
            "make the policy with problem.arena and problem.model"
        )


def _same(one: Finite, other: Finite) -> bool:
    """Whether users and kernels see the same points."""
    return np.array_equal(one.points, other.points) and np.array_equal(one.encoded, other.encoded)


def _controller() -> Any:
    """Controls the threads that BLAS libraries use."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _trace(
    policy: Policy,
    problem: Problem,
    seed: int,
    asked: list[Query],
    index: NDArray[np.intp],
    y: Array,
    offers: NDArray[np.intp] | None,
    recommended: Recommendation,
    missed: float,
) -> Trace:
    reach = slice(None) if offers is None else offers

    def regret(f: Array) -> Array:
        return np.asarray(f[reach].max(axis=-1) - f[index])

    def detail(name: str) -> NDArray[np.intp] | None:
        return np.array([q.details[name] for q in asked]) if name in asked[0].details else None

    numbers = {name: np.array([getattr(q, name) for q in asked]) for name in _NUMBERS}
    return Trace(
        policy=type(policy).__name__,
        problem=problem.name,
        seed=seed,
        epsilon=problem.epsilon,
        index=index,
        x=problem.domain.points[index],
        y=y,
        regret=regret(problem.values),
        in_class_regret=regret(problem.in_class),
        **numbers,
        base=detail("base"),
        episode=detail("episode"),
        offers=offers,
        recommended_regret=missed,
        story={
            **policy.story, "conflicts": policy.conflicts, "recommendation": recommended,
            "before": policy.t - len(asked),
        },
    )  # fmt: skip
