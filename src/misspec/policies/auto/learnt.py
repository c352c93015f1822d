"""What a policy has learnt: which parameters matter, what further results would bring, and both in sentences.

*Importance.* The total index of parameter j is the share of the variance of the posterior mean m that is left when all
other parameters are fixed; by Jansen's estimator, with A and B two samples of points and A_j the first with column j of
the second,

    T_j = E (m(A) − m(A_j))² / (2 Var m),       reported as T_j / Σ_i T_i

*Gain.* Of n further results y at points S, in the model's units: what the best posterior mean among points with results
is expected to rise by, the noise of the results included,

    E max_{x known or in S} E[f(x) | y] − max_{x known} E f(x)

where beliefs are a mixture of Gaussians, which y reweights. S is chosen greedily on joint samples of f, and all n are
asked at once: who looks at results in between gains a little more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from misspec import kernels
from misspec.domains import Choice
from misspec.errors import Array
from misspec.policies.auto.mixture import Mixture, improvement
from misspec.policies.core.answers import Conflict, Recommendation, Suspicion
from misspec.policies.core.field import Field
from misspec.policies.core.points import Actions
from misspec.posterior import Posterior
from misspec.search import distinct

DRAWN, FEWEST = 256, 64  # points of a sample for importance
WORK = 4e8  # of importance: points times distinct results squared, about; beyond that samples are smaller
WORLDS = 256  # simulated, per belief
ROUNDING = 1e-9  # of means, relative to the largest
JITTER = 1e-9  # relative to the largest variance
MINOR = 0.05  # importance below which a parameter hardly matters
WORTH_NOISE, WORTH_SPREAD = 0.25, 0.01  # of the noise and of the spread of results: a gain below is not worth it
KNOWN, PROMISING = 30, 100  # best known and most promising points among which further results are imagined
NOTHING = 5e-4  # of the noise or the spread of results: a gain that is none
DOUBTFUL = "Doubtful:"  # how the sentence begins
COUNTED = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def names_of(domain: Any) -> list[str]:
    """The names of a domain's parameters, one per coordinate."""
    named = [each.name for each in getattr(domain, "columns", ())]
    return named if len(named) == domain.dimension else [f"x{i}" for i in range(domain.dimension)]


def modelled(policy: Any) -> bool:
    """Whether the policy has a model: one that learns it has none before there are results."""
    return getattr(policy, "_states", True) is not None


# -- importance --------------------------------------------------------------------------------------------------------


def importance(posterior: Any, field: Field) -> dict[str, float]:
    """T_j / Σ T_i by the name of the parameter; 0 for all where the mean is the same everywhere."""
    names = names_of(field.domain)
    rng = np.random.default_rng(0)
    parts = len(getattr(posterior, "posteriors", [posterior]))
    work = (len(names) + 1) * (posterior.t + 1) * (posterior.t + 40 * len(names)) * parts
    count = int(np.clip(WORK / work, FEWEST, DRAWN))
    A, B = _drawn(field, count, rng), _drawn(field, count, rng)
    mean = posterior.at(A)[0]
    size = float(np.abs(mean).max()) or 1.0  # whose square may be no float
    effects = np.zeros(len(names))
    for j in range(len(names)):
        changed = A.copy()
        changed[:, j] = B[:, j]
        if (changed != A).any():
            effects[j] = float(np.mean((mean / size - posterior.at(changed)[0] / size) ** 2))
    total = effects.sum()
    shares = effects / total if total > ROUNDING**2 else np.zeros(len(names))
    return dict(zip(names, shares.tolist(), strict=True))


def _drawn(field: Field, count: int, rng: np.random.Generator) -> Array:
    """Uniform points of the domain."""
    offers = [field.draw(rng) for _ in range(count)]
    return np.array([each.points[rng.integers(len(each.points))] for each in offers])


# -- gain --------------------------------------------------------------------------------------------------------------


class Belief(NamedTuple):
    """f at m points is N(mean, covariance), results have this noise; in the model's units."""

    mean: Array  # (m,)
    covariance: Array  # (m, m)
    noise: float


def expected_gain(
    mixture: Mixture, field: Field, known: Actions, usable: Callable[[Actions], NDArray[np.bool_]], turn: int, n: int
) -> float:
    """The gain of n further results in the user's units, among the points of the largest expected improvement and the
    best known ones. known: points with results; usable: which actions may be recommended; turn: of the search."""
    means = mixture.look(field, None, known, pending=False).M.mean(axis=0)
    score = improvement(float(means.max()))
    offer = field.spread()
    if not field.size:
        offer = offer + field.offer(lambda: mixture.search(score, None, turn, pending=False))
    offer = offer.part(np.flatnonzero(usable(offer)))
    beliefs = mixture.look(field, None, offer, pending=False)
    scores = score(beliefs.M, beliefs.S).values
    points = np.concatenate([
        known.points[np.argsort(-means, kind="stable")[:KNOWN]],
        offer.points[np.argsort(-scores, kind="stable")[:PROMISING]],
    ])  # fmt: skip
    points = distinct(points).points
    keys = {x.tobytes() for x in known.points}
    seen = np.array([x.tobytes() in keys for x in points])
    encoded = field.domain.encode(points)
    jointly = [belief(posterior, points, encoded) for posterior in mixture.posteriors]
    best = float(np.mean([each.mean for each in jointly], axis=0)[seen].max())
    now, then = (float(mixture.back(z)) for z in (best, best + gain(jointly, seen, n)))
    return abs(then - now)


def belief(posterior: Posterior, points: Array, encoded: Array) -> Belief:
    """What a posterior says of points jointly: k(x, z) − W(x)·k(U, z), from told results only."""
    kernel, scale = posterior.model.kernel, posterior.model.scale
    explained = posterior.weights_at(points) @ kernels.cross(kernel, posterior.points, encoded)
    covariance = kernels.cross(kernel, encoded, encoded) - explained
    return Belief(posterior.at(points)[0], scale**2 * 0.5 * (covariance + covariance.T), posterior.model.noise)


def gain(beliefs: Sequence[Belief], known: NDArray[np.bool_], n: int, seed: int = 0) -> float:
    """E max after n further results less the maximum now, in the model's units. known: points with results."""
    rng = np.random.default_rng([seed, n])
    means = np.mean([each.mean for each in beliefs], axis=0)
    best = int(np.where(known, means, -np.inf).argmax())
    asked = _chosen(beliefs, best, n, rng)
    eligible = np.flatnonzero(known | np.isin(np.arange(len(means)), asked))
    results = np.concatenate([_results(each, asked, rng) for each in beliefs])
    after = _means_after(beliefs, asked, eligible, results)
    # the expectation of the best one's mean does not change: subtracting it, not `means[best]`, takes out its chance
    return float(np.mean(after.max(axis=1) - after[:, np.flatnonzero(eligible == best)[0]]))


def _chosen(beliefs: Sequence[Belief], best: int, n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """n points, greedily: each adds most to E max f beyond the best one's f; again in this order if there are fewer."""
    F = np.concatenate([_sampled(each.mean, each.covariance, rng) for each in beliefs])
    reached, least = F[:, best].copy(), 1e-12 * (1e-300 + float(np.std(F)))
    chosen: list[int] = []
    while len(chosen) < n:
        added = np.maximum(F - reached[:, None], 0.0).mean(axis=0)
        j = int(added.argmax())
        if added[j] <= least:
            break
        chosen.append(j)
        np.maximum(reached, F[:, j], out=reached)
    return np.resize(np.array(chosen or [best], dtype=np.intp), n)


def _sampled(mean: Array, covariance: Array, rng: np.random.Generator) -> Array:
    """WORLDS joint samples, one per row."""
    return np.asarray(mean + rng.standard_normal((WORLDS, len(mean))) @ _root(covariance).T)


def _results(each: Belief, asked: NDArray[np.intp], rng: np.random.Generator) -> Array:
    f = _sampled(each.mean[asked], each.covariance[np.ix_(asked, asked)], rng)
    return np.asarray(f + each.noise * rng.standard_normal(f.shape))


def _root(covariance: Array) -> Array:
    """L with LLᵀ the covariance, rounding and equal points allowed for."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _means_after(
    beliefs: Sequence[Belief], asked: NDArray[np.intp], eligible: NDArray[np.intp], results: Array
) -> Array:
    """The mixture's mean at the eligible points, given results at the asked ones: one row per row of results."""
    means, logs = [], []
    for each in beliefs:
        A = each.covariance[np.ix_(asked, asked)]
        floor = JITTER * float(np.diag(each.covariance).max()) + 1e-300
        L = np.linalg.cholesky(A + (each.noise**2 + floor) * np.eye(len(asked)))
        surprise = (results - each.mean[asked]).T
        whitened = solve_triangular(L, surprise, lower=True, check_finite=False)
        logs.append(-0.5 * np.einsum("sw,sw->w", whitened, whitened) - np.log(np.diag(L)).sum())
        weights = cho_solve((L, True), each.covariance[np.ix_(asked, eligible)], check_finite=False)
        means.append(each.mean[eligible] + surprise.T @ weights)
    shares = np.exp(np.array(logs) - np.max(logs, axis=0))
    shares /= shares.sum(axis=0)
    return np.asarray(np.einsum("kw,kwe->we", shares, np.array(means)))


# -- sentences ---------------------------------------------------------------------------------------------------------


class Facts(NamedTuple):
    """What the sentences say, in the user's units."""

    use: Recommendation
    domain: Any
    names: Sequence[str]  # of the parameters
    parameters: Sequence[Any]  # one each, None where coordinates are plain numbers
    x: Array  # where results are
    y: Array  # all results
    distinct: int  # points among them
    noise: float
    given: bool  # whether the noise was
    importance: dict[str, float]
    conflicts: list[Conflict]
    gain: float  # of ten more
    minimize: bool
    suspicious: list[Suspicion]
    called: Sequence[str] | None = None  # results, in the order told


def facts(policy: Any, names: Sequence[str] | None = None, called: Sequence[str] | None = None) -> Facts:
    """Of a policy that learns its model; names: other ones for the parameters; called: names of the results."""
    names, told = names or names_of(policy.domain), policy.observations
    return Facts(
        policy.recommend(), policy.domain, names, list((parameters_of(policy.domain) or dict.fromkeys(names)).values()),
        told.x, told.y, len(distinct(told.x).points), policy.noise_level,
        policy.noise is not None, dict(zip(names, policy.importance().values(), strict=True)), policy.conflicts(),
        policy.expected_gain(10), policy.minimize, policy.suspicious(), called,
    )  # fmt: skip


def sentences(facts: Facts) -> list[str]:
    """One each for what to use, the evaluations, the noise, the parameters, the contradictions, and going on."""
    spread = spread_of(facts.y)
    step = min(facts.noise, spread) or spread or 1.0
    begin = [
        use(facts.domain, facts.use, names=facts.names),
        evaluations(facts.y, facts.distinct, minimize=facts.minimize, step=step),
    ]
    if spread == 0.0:
        return [
            *begin,
            "All results are equal: what matters, how noisy they are and what more of them bring is unknown.",
        ]
    doubts = [_doubt(facts, each) for each in facts.suspicious]
    agree = [contradictions(facts.domain, facts.conflicts, facts.names)] if facts.conflicts or not doubts else []
    return [
        *doubts,
        *begin,
        _noise(facts, spread),
        _parameters(facts.importance),
        *agree,
        _going_on(facts, spread),
    ]


def _doubt(facts: Facts, each: Suspicion) -> str:
    """A result that the others do not predict, and what would settle it."""
    called = f"evaluation {each.row + 1}" if facts.called is None else facts.called[each.row]
    step = each.upper - each.lower
    low, high = rounded(each.lower, step), rounded(each.upper, step)
    better = (each.y < each.expected) if facts.minimize else (each.y > each.expected)
    peak = ", or a narrow optimum" if better else ""
    return (
        f"{DOUBTFUL} {called}, {plain(each.y)} at {spelled(facts.domain, each, facts.names)}; the other results "
        f"predict {low} to {high}. A slip{peak}: evaluate it again, correct it, or leave it out."
    )


def spread_of(y: Array) -> float:
    """The standard deviation of results, however large they are."""
    size = float(np.abs(y).max(initial=0.0))
    return size * float(np.std(y / size)) if np.ptp(0.5 * y) > 0 else 0.0


def use(domain: Any, found: Recommendation, sure: str = "95 %", names: Sequence[str] | None = None) -> str:
    """What to use, and what to expect of it; sure: how sure its range is."""
    step = found.upper - found.lower
    mean, low, high = (rounded(value, step) for value in (found.mean, found.lower, found.upper))
    what = f"Use {spelled(domain, found, names)}"
    if found.lower <= found.mean <= found.upper:
        return f"{what}: expected {mean}, between {low} and {high} ({sure})."
    return f"{what}: between {low} and {high} ({sure}), by its own results; the model alone would expect {mean}."


def spelled(domain: Any, at: Any, names: Sequence[str] | None = None) -> str:
    """A point by its name, or by its parameters: of a Recommendation, a Query or a Conflict."""
    values = zip(names or names_of(domain), values_of(domain, at.x), strict=True)
    shown = ", ".join(f"{name} = {plain(value)}" for name, value in values)
    called = getattr(domain, "names", None)
    name = called[at.index] if at.index is not None and called is not None else None
    return shown if name is None else f"{name} ({shown})"


def values_of(domain: Any, x: Array) -> list[Any]:
    """The native values of a point, one per parameter, whatever the domain."""
    parameters = parameters_of(domain)
    numbers = np.asarray(x).tolist()
    if parameters is None:
        return list(numbers)
    return [each.value(number) for each, number in zip(parameters.values(), numbers, strict=True)]


def parameters_of(domain: Any) -> Mapping[str, Any] | None:
    """Those of a space, a table, or a list of members of a space; None where coordinates are plain numbers."""
    found = getattr(domain, "parameters", None) or getattr(getattr(domain, "box", None), "parameters", None)
    return None if found is None else dict(found)


def plain(value: Any) -> str:
    """A value as people write it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def rounded(value: float, step: float) -> str:
    """A number with as many digits as a difference of `step` needs, two significant ones."""
    if not math.isfinite(value) or not math.isfinite(step) or step <= 0:
        return f"{value:.4g}"
    if abs(value) >= 1e7:  # all digits that tell it from others, where a float has them
        digits = 2 + math.floor(math.log10(abs(value))) - math.floor(math.log10(step))
        return f"{value:.{min(max(4, digits), 15)}g}"
    digits = 1 - math.floor(math.log10(step))
    return f"{value:.{digits}f}" if 0 <= digits <= 5 else f"{value:.0f}" if digits < 0 else f"{value:.4g}"


def _counted(count: int, what: str) -> str:
    number = COUNTED[count] if count < len(COUNTED) else f"{count:,}"
    return f"{number} {what}{'s' * (count != 1)}"


def evaluations(y: Array, distinct: int, *, minimize: bool, step: float) -> str:
    """How many there were, and the best of them."""
    best = rounded(float(y.min() if minimize else y.max()), step)
    said = f"This rests on {_counted(len(y), 'evaluation')} at {_counted(distinct, 'point')}"
    return f"{said}; the {'smallest' if minimize else 'largest'} result was {best}."


def _noise(facts: Facts, spread: float) -> str:
    repeats = len(facts.y) - facts.distinct
    share = f", {100 * facts.noise / spread:.2g} % of the spread of all results" if spread > 0 else ""
    source = (
        "as given"
        if facts.given
        else f"learnt, with {_counted(repeats, 'repeat')} to learn it from"
        if repeats
        else "learnt without a single repeat, so it may be far off"
    )
    return f"The same evaluation again would differ by about ±{rounded(facts.noise, facts.noise)}{share} ({source})."


def _parameters(importance: Mapping[str, float]) -> str:
    order = sorted(importance, key=lambda name: -importance[name])
    if not order or importance[order[0]] == 0.0:
        return "No parameter is seen to matter yet."
    matter = [f"{name} ({100 * importance[name]:.0f} %)" for name in order if importance[name] >= MINOR]
    rest = [name for name in order if importance[name] < MINOR]
    said = f"What matters: {', '.join(matter)}."
    return f"{said} What hardly matters: {', '.join(rest)}." if rest else said


def contradictions(
    domain: Any, conflicts: Sequence[Conflict], names: Sequence[str] | None = None, most: int = 3
) -> str:
    """Where the data say something else than the model."""
    if not conflicts:
        return "Nowhere do the results contradict the model."
    worst = sorted(conflicts, key=lambda each: -each.gap)
    where = "; ".join(f"{spelled(domain, each, names)} (by {each.gap:.2g})" for each in worst[:most])
    more = f"; and {len(worst) - most} more" if len(worst) > most else ""
    return f"Results contradict the model at {_counted(len(worst), 'point')}: {where}{more}. Trust the results there."


def worth(gain: float, noise: float, spread: float) -> bool:
    """Whether ten more evaluations are worth it: neither the noise nor the spread of results dwarfs their gain."""
    return gain > 0 and gain >= max(WORTH_NOISE * noise, WORTH_SPREAD * spread)


def _untried(facts: Facts) -> str:
    """What the verdict rests on without a single result."""
    new = [
        f"{missing} of {len(each.options)} options of {name}"
        for name, each, column in zip(facts.names, facts.parameters, facts.x.T, strict=True)
        if isinstance(each, Choice) and (missing := len(each.options) - len(np.unique(column)))
    ]
    return f", if the model is right about what was never tried: {', '.join(new)}" if new else ""


def _going_on(facts: Facts, spread: float) -> str:
    if facts.gain <= NOTHING * max(facts.noise, spread):
        return f"Ten more evaluations are not expected to improve the best: hardly worth it{_untried(facts)}."
    verdict = "worth it" if worth(facts.gain, facts.noise, spread) else f"hardly worth it{_untried(facts)}"
    shares = [f"{facts.gain / facts.noise:.2g} times the noise"] if facts.noise > 0 else []
    shares += [f"{100 * facts.gain / spread:.2g} % of the spread of all results"] if spread > 0 else []
    beside = f" ({', '.join(shares)})" if shares else ""
    expected = f"expected, if the model is right, to improve the best by {facts.gain:.2g}"
    return f"Ten more evaluations are {expected}{beside}: {verdict}."
