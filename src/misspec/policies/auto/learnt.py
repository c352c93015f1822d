"""What a policy has learnt, in sentences: `importance.py` says which parameters matter, `gain.py` what further results
would bring. Both, and the noise, rest on the `settled` model: learnt from all results at once, from seed 0, so that the
same results say the same, in whatever order they came, in Python, in the shell and on the page. What to use, doubts and
contradictions are those of the policy itself, by the model that it asks with."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec.domains import Choice, rounding
from misspec.errors import Array
from misspec.policies.auto import doubt
from misspec.policies.auto.feasible import EDGE
from misspec.policies.auto.gain import calibrated, gains_of, skewness
from misspec.policies.auto.importance import FIXED, Importance, importance
from misspec.policies.auto.limits import KEPT
from misspec.policies.auto.model import Learner
from misspec.policies.core.answers import Conflict, Recommendation, Suspicion
from misspec.policies.core.fields import field_of
from misspec.policies.core.registry import made
from misspec.search import distinct

LIKELY, UNLIKELY = 0.5, 0.2  # chances from which, and below which, the verdict is plain
WORTH_SPREAD = 0.02  # of the spread of results: a gain below is not worth it, nor is one below the noise
BLIND = 0.8  # noise, in spreads of the results, of a model that explains a third of them or less
NAMED = 3  # points of a contradiction that are named
SHOWN = 12  # digits of numbers that are rounded already
DOUBTFUL = "Doubtful:"  # how the sentence begins
COUNTED = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def names_of(domain: Any) -> list[str]:
    """The names of a domain's parameters, one per coordinate."""
    named = [each.name for each in getattr(domain, "columns", ())]
    return named if len(named) == domain.dimension else [f"x{i}" for i in range(domain.dimension)]


def modelled(policy: Any) -> bool:
    """Whether the policy has a model: one that learns it has none before there are results."""
    return getattr(policy, "_states", True) is not None


# -- numbers ----------------------------------------------------------------------------------------------------------


def settled(policy: Any) -> Any:
    """A copy of an Auto with the settled model, kept until there are other results. Reading changes nothing."""
    told, log = policy.observations, policy.log
    others = (len(policy._outcomes.dropped), log.next_id, *log.pending)
    limited = [(name, each.tobytes()) for name, each in told.limits.items()]
    key = (told.x.tobytes(), told.y.tobytes(), told.noise.tobytes(), limited, others)
    if policy.settled is None or policy.settled[0] != key:
        policy.settled = None  # not to be copied
        other = copy.deepcopy(policy)
        other.field = field_of(policy.domain, 0, 0.0)
        learner = Learner(policy.domain, policy.noise, 0, exact=not policy.repeats)
        other._adopt(renewal(other, learner, None, ()))
        policy.settled = (key, other)
    return policy.settled[1]


def renewal(policy: Any, learner: Learner, states: Array | None, doubted: Sequence[int]) -> dict[str, Any]:
    """Samples of all models of an Auto. states: of the samplers, None for new ones; doubted: rows of results before."""
    found, _ = doubt.learnt(learner, policy.observations, policy.log.sign, states, doubted if policy.doubts else None)
    limits = policy.quantities.learnt(learner, again=states is not None)
    return {**found, "limits": limits} if limits else found


def importance_of(policy: Any, names: Sequence[str] | None = None) -> dict[str, Importance]:
    """Of any policy; names: other ones for the parameters."""
    policy = settled(policy) if hasattr(policy, "settled") else policy
    return importance(policy.posterior_in_use, policy.field, policy.observations.x, names or names_of(policy.domain))


def worth(noise: float, spread: float) -> float:
    """The least gain that is worth further evaluations: less than the noise is none that anybody would notice."""
    return max(noise, WORTH_SPREAD * spread)


def chance(policy: Any, gain: float | None, n: int) -> float:
    """P(what is best becomes better by at least `gain` within n further results), by `gain.py`."""
    least = least_gain(policy) if gain is None else gain
    return calibrated(float(np.mean(gains(policy, n) >= least)), skew_of(policy))


def least_gain(policy: Any) -> float:
    """The least gain that is worth further evaluations of an Auto."""
    return worth(settled(policy).noise_level, spread_of(believed(policy)))


def earlier(policy: Any, results: int) -> Any:
    """An Auto that knows what this one knew before its last results, of a whole domain; what failed is known to it."""
    told, other = policy.observations, made(type(policy), policy.domain, None, policy.settings)
    other.doubts, own = policy.doubts, None if np.isnan(told.noise).all() else told.noise[:-results]
    limits = {name: values[:-results] for name, values in told.limits.items()}
    other._learn_from(told.x[:-results], told.y[:-results], None, own, limits or None)
    failed = [place.x for place in policy._outcomes.dropped]
    if failed:
        other.drop(other.mark_pending(np.array(failed)))
    return other


def skew_of(policy: Any) -> float:
    """The skewness of the results, as the settled model sees them."""
    return skewness(settled(policy)._mixture.scaling.to(policy.log.sign * believed(policy)))


def believed(policy: Any) -> Array:
    """The results without those that are doubted."""
    return np.asarray(np.delete(policy.observations.y, settled(policy).doubted))


def gains(policy: Any, n: int) -> Array:
    """Gains of n further results in worlds of the settled model."""
    other = settled(policy)
    known = other._parse(np.concatenate([other._evidence.own.points(), other.recommend().x[None, :]]))
    if other.limits:
        known = known.part(np.flatnonzero(other.usable(known)))
    limits = other.quantities.kept(KEPT)
    return gains_of(other._mixture, other.field, known, other.usable, other.t, n, limits)


# -- sentences ---------------------------------------------------------------------------------------------------------


class Tried(NamedTuple):
    """The best point with results, by the model's mean, which one lucky result hardly moves."""

    mean: float
    average: float  # of its results
    times: int  # how many there are
    x: Array


class Facts:
    """What the sentences say of a policy that learns its model, in the user's units. names: other ones for the
    parameters; called: names of the results, in the order told."""

    def __init__(self, policy: Any, names: Sequence[str] | None = None, called: Sequence[str] | None = None) -> None:
        told, self.domain, self.minimize = policy.observations, policy.domain, policy.minimize
        self.names, self.called, self.not_modelled = names or names_of(policy.domain), called, policy.not_modelled
        # one for each name, None where coordinates are plain numbers
        self.parameters = list((parameters_of(policy.domain) or dict.fromkeys(self.names)).values())
        self.x, self.y, self.distinct = told.x, told.y, len(distinct(told.x).points)
        self.noise, self.given = settled(policy).noise_level, policy.noise is not None
        self.exact, self.own = policy.noise is None and not policy.repeats, bool(np.isfinite(told.noise).any())
        self.use: Recommendation = policy.recommend()
        self.importance = importance_of(policy, self.names)
        self.conflicts: list[Conflict] = policy.conflicts()
        self.chance: float = policy.chance()  # of a gain that is worth it within ten more
        self.suspicious: list[Suspicion] = policy.suspicious()
        self.limits = policy.quantities.counts
        self.failed, self.near = len(policy._outcomes.dropped), policy._outcomes.near(self.use.x)
        self.best = best_tried(policy, [each.row for each in self.suspicious if each.factor == 1.0])


def best_tried(policy: Any, doubted: Sequence[int] = ()) -> Tried:
    """Of a policy with results; by their averages alone where there is no model. doubted: rows that do not count."""
    told = policy.observations
    x, y = (np.delete(each, doubted, axis=0) for each in (told.x, told.y))
    points = distinct(x)
    counts = np.bincount(points.position)
    averages = np.bincount(points.position, y / counts[points.position])
    means = policy.posterior.at(points.points)[0] if modelled(policy) else averages
    worse = means if policy.minimize else -means
    legal = np.ones(len(worse), dtype=bool)
    if getattr(policy.domain, "rules", None) is not None:  # of those that no rule forbids, if there are any
        legal = policy.domain.contains(points.points)
        legal |= not legal.any()
    worse = np.where(legal, worse, np.inf)
    if policy.limits:  # where they are likely to hold, if that is anywhere
        p = policy.probability(points.points)
        worse = np.where(p >= min(EDGE, float(p[legal].max())), worse, np.inf)
    i = int(worse.argmin())
    return Tried(float(means[i]), float(averages[i]), int(counts[i]), points.points[i])


def sentences(facts: Facts) -> list[str]:
    """One each for what to use, the evaluations, failures, the noise, the parameters, contradictions, and going on."""
    spread = spread_of(np.delete(facts.y, [each.row for each in facts.suspicious if each.factor == 1.0]))
    step = min(facts.noise, spread) or spread or 1.0
    begin = [use(facts.domain, facts.use, names=facts.names), *_limits(facts)]
    where = which(facts.domain, facts.best, facts.use, facts.names)
    begin.append(evaluations(len(facts.y), facts.distinct, facts.best, step, where))
    begin += _failures(facts)
    if spread == 0.0:
        equal = "All results are equal: what matters, how noisy they are and what more of them bring is unknown."
        return [*begin, equal]
    doubts = [_doubt(facts, each) for each in facts.suspicious if each.factor == 1.0]
    doubts += [_unit(facts, block)] if (block := [each for each in facts.suspicious if each.factor != 1.0]) else []
    agree = [contradictions(facts.domain, facts.conflicts, facts.names)] if facts.conflicts or not doubts else []
    if not facts.conflicts and facts.noise > BLIND * spread:
        agree = ["The model takes nearly all that the results differ by for noise: it predicts next to nothing yet."]
    known = [_noise(facts, spread), _parameters(facts.importance), *_beside(facts.not_modelled)]
    return [*doubts, *begin, *known, *agree, _going_on(facts, spread)]


def _limits(facts: Facts) -> list[str]:
    """How likely the limits hold there, and how many results broke each of them."""
    if facts.use.probability is None:
        return []
    each = [
        f"{limit}, broken by {broken} of {known} result{'s' * (known != 1)}"
        if known
        else f"{limit}, of which no result says"
        for limit, broken, known in facts.limits
    ]
    p = facts.use.probability
    sure = "more than 99" if p > 0.99 else "less than 1" if p < 0.01 else f"{100 * p:.0f}"
    begin = "It keeps the limits" if p >= KEPT else "Nowhere are the limits sure to hold; there they do"
    return [f"{begin} with a probability of {sure} % ({'; '.join(each)})."]


def _failures(facts: Facts) -> list[str]:
    """How many evaluations failed, and whether the one to use lies near them."""
    if not facts.failed:
        return []
    said = f"{_counted(facts.failed, 'further evaluation').capitalize()} failed"
    if facts.near is None:
        return [f"{said}."]
    rate, x = facts.near
    where = spelled(facts.domain, _at(facts.domain, facts.use, x), facts.names)
    near = "some of them near what is to be used: by these alone it works with a probability of"
    return [f"{said}, {near} {100 * rate:.0f} %. The nearest is {where}."]


def _unit(facts: Facts, block: Sequence[Suspicion]) -> str:
    """Results that look like another unit."""
    rows = sorted(each.row for each in block)
    called = [f"evaluation {row + 1}" if facts.called is None else facts.called[row] for row in rows]
    parts = [name.rpartition(" ") for name in called]  # "results.csv, line 12": said once, with all numbers
    alike = len({before for before, _, _ in parts}) == 1 < len(parts) and all(each.isdigit() for *_, each in parts)
    shown = f"{parts[0][0]}s {', '.join(each for *_, each in parts)}" if alike else ", ".join(called)
    factor = block[0].factor
    off = f"{factor:g} times too small" if factor > 1 else f"{1 / factor:g} times too large"
    return (
        f"{DOUBTFUL} {len(rows)} of {len(facts.y)} results ({shown}) look as if they were in another unit, {off} "
        "beside the others. Correct them, or leave them out: all that follows rests on them as they are."
    )


def _doubt(facts: Facts, each: Suspicion) -> str:
    """A result that the others do not predict, and what would settle it."""
    number = f"evaluation {each.row + 1}" + ("" if each.id is None else f" (id {each.id})")
    called = number if facts.called is None else facts.called[each.row]
    step = each.upper - each.lower
    low, high = rounded(each.lower, step), rounded(each.upper, step)
    better = (each.y < each.expected) if facts.minimize else (each.y > each.expected)
    peak = ", or a narrow optimum" if better else ""
    doubted = [other.row for other in facts.suspicious]
    again = np.delete(facts.y, doubted)[(np.delete(facts.x, doubted, axis=0) == each.x).all(axis=1)].tolist()
    advice = f"A slip{peak}: evaluate it again, correct it, or leave it out."
    if again:
        gave = f"repeat{'s' * (len(again) > 1)} gave {' and '.join(list(dict.fromkeys(map(plain, again)))[:NAMED])}"
        advice = f"Its {gave}: almost surely a slip; correct it or leave it out."
    return (
        f"{DOUBTFUL} {called}, {plain(each.y)} at {spelled(facts.domain, each, facts.names)}; the other results "
        f"predict {low} to {high}. {advice}"
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
        new = "" if found.tried else " It was not tried yet: try it before you rely on it."
        return f"{what}: expected {mean}, between {low} and {high} ({sure}).{new}"
    return f"{what}: between {low} and {high} ({sure}), by its own results; the model alone would expect {mean}."


def spelled(domain: Any, at: Any, names: Sequence[str] | None = None) -> str:
    """A point by its name, or by its parameters that exist there: of a Recommendation, a Query or a Conflict."""
    x, digits, there = at.x, rounding.DIGITS, existing(domain, at.x[None, :])[0].tolist()
    ruled = getattr(domain, "rules", None) is not None and getattr(domain, "params", None) is not None
    if ruled and domain.contains(x[None, :])[0]:
        x, digits = np.array(rounding.settable_point(domain, x)), SHOWN  # what is shown keeps the rules too
    values = zip(names or names_of(domain), values_of(domain, x), there, strict=True)
    shown = ", ".join(f"{name} = {plain(value, digits)}" for name, value, exists in values if exists)
    called = getattr(domain, "names", None)
    name = called[at.index] if at.index is not None and called is not None else None
    return shown if name is None else f"{name} ({shown})"


def existing(domain: Any, X: Array) -> NDArray[np.bool_]:
    """Which parameters exist at which points, whatever the domain."""
    there = getattr(getattr(domain, "box", None) or domain, "there", None)
    return np.ones(X.shape, dtype=bool) if there is None else np.asarray(there(X))


def values_of(domain: Any, x: Array) -> list[Any]:
    """The native values of a point, one per parameter, whatever the domain; "" for one that does not exist there."""
    parameters, numbers = parameters_of(domain), np.asarray(x).tolist()
    if parameters is None:
        return list(numbers)
    values = zip(parameters.values(), numbers, existing(domain, np.reshape(x, (1, -1)))[0].tolist(), strict=True)
    return [each.value(number) if exists else "" for each, number, exists in values]


def parameters_of(domain: Any) -> Mapping[str, Any] | None:
    """Those of a space, a table, or a list of members of a space; None where coordinates are plain numbers."""
    found = getattr(domain, "parameters", None) or getattr(getattr(domain, "box", None), "parameters", None)
    return None if found is None else dict(found)


def plain(value: Any, digits: int = rounding.DIGITS) -> str:
    """A value as people write it."""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


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


def which(domain: Any, best: Tried, used: Recommendation, names: Sequence[str] | None = None) -> str:
    """Say which point is the best of those with results, beside the one that is recommended."""
    if np.array_equal(best.x, used.x):
        return "it is the one to use"
    return f"it is {spelled(domain, _at(domain, used, best.x), names)}"


def _at(domain: Any, used: Recommendation, x: Array) -> Recommendation:
    """Another point than the one that is recommended, to be spelled."""
    index = None if used.index is None else int(domain.indices(x[None, :])[0])
    return dataclasses.replace(used, x=x, index=None if index == -1 else index)


def evaluations(count: int, distinct: int, best: Tried, step: float, where: str) -> str:
    """How many there were, and the best point among them. where: `which` it is."""
    found = "its result was" if best.times == 1 else f"its {_counted(best.times, 'result')} averaged"
    return (
        f"This rests on {_counted(count, 'evaluation')} at {_counted(distinct, 'point')}; of the best of these "
        f"{rounded(best.mean, step)} is expected ({found} {rounded(best.average, step)}); {where}."
    )


def _noise(facts: Facts, spread: float) -> str:
    if facts.exact:
        return f"Results are taken to have no noise{' but their own' * facts.own} (repeats=False)."
    repeats = len(facts.y) - facts.distinct
    share = f", {100 * facts.noise / spread:.2g} % of the spread of all results" if spread > 0 else ""
    source = "learnt without a single repeat, so it may be far off"
    if facts.given:
        source = "as given"
    elif facts.not_modelled:
        source = f"learnt, with what differs in {' and '.join(facts.not_modelled)}"
    elif repeats:
        source = f"learnt, with {_counted(repeats, 'repeat')} to learn it from"
    return f"The same evaluation again would differ by about ±{rounded(facts.noise, facts.noise)}{share} ({source})."


def _beside(names: Sequence[str]) -> list[str]:
    """What results differ in, and the model knows nothing of."""
    said = f"Not modelled: {', '.join(names)}, which not all results have alike"
    return [f"{said}; what differs in {'these' if len(names) > 1 else 'it'} counts as noise."] if names else []


def _parameters(found: Mapping[str, Importance]) -> str:
    order = sorted(found, key=lambda name: -found[name].share)
    unknown: dict[str, list[str]] = {}
    for name in order:
        if found[name].unknown not in ("", FIXED):
            unknown.setdefault(found[name].unknown, []).append(name)
    matter = [f"{name} {share_of(found[name])}" for name in order if found[name].matters]
    hardly = [name for name in order if found[name].matters is False]
    if not any(each.share for each in found.values()):
        return "No parameter is seen to matter yet."
    if not matter and len(unknown) == 1:
        return f"Which parameters matter is not known yet: {next(iter(unknown))}."
    first = bool(found[order[0]].unknown)  # what may well matter most is said first
    said = [f"What matters{' beside' * first}: {', '.join(matter)}."] if matter else []
    said += [f"What hardly matters: {', '.join(hardly)}."] if hardly else []
    why = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in unknown.items())
    said.insert(0 if first else len(said), f"Not known yet: {why}." if why else "")
    return " ".join(filter(None, said))


def share_of(each: Importance) -> str:
    """A share and its range, which is nothing where it is not known."""
    if each.unknown:
        return "(not known yet)"
    share, low, high = (f"{100 * part:.0f}" for part in each[:3])
    return f"{share} %" if low == high else f"{share} % ({low} to {high} %)"


def contradictions(domain: Any, conflicts: Sequence[Conflict], names: Sequence[str] | None = None) -> str:
    """Where the data say something else than the model."""
    if not conflicts:
        return "Nowhere do the results contradict the model."
    worst = sorted(conflicts, key=lambda each: -each.gap)
    where = "; ".join(f"{spelled(domain, each, names)} (by {each.gap:.2g})" for each in worst[:NAMED])
    more = f"; and {len(worst) - NAMED} more" if len(worst) > NAMED else ""
    return f"Results contradict the model at {_counted(len(worst), 'point')}: {where}{more}. Trust the results there."


def _untried(facts: Facts) -> str:
    """What the verdict rests on without a single result."""
    new = [
        f"{missing} of {len(each.options)} options of {name}"
        for name, each, column in zip(facts.names, facts.parameters, facts.x.T, strict=True)
        if isinstance(each, Choice) and (missing := len(each.options) - len(np.unique(column)))
    ]
    return f", if the model is right about what was never tried: {', '.join(new)}" if new else ""


def verdict(chance: float) -> str:
    """Whether to go on; between yes and no lies a third, so that no small change turns one into the other."""
    return "worth it" if chance >= LIKELY else "perhaps worth it" if chance >= UNLIKELY else "hardly worth it"


def percent(chance: float) -> str:
    """A chance in steps of 5 %: no finer ones were measured."""
    near = 5 * round(20 * chance)
    return "less than 5 %" if near < 5 else "more than 95 %" if near > 95 else f"about {near} %"


def _going_on(facts: Facts, spread: float) -> str:
    least = worth(facts.noise, spread)
    beside = "the noise" if facts.noise >= WORTH_SPREAD * spread else f"{100 * WORTH_SPREAD:.0f} % of the spread"
    untried = _untried(facts) if facts.chance < LIKELY else ""
    return (
        f"The chance that ten more evaluations improve the best by at least {least:.2g} ({beside}) is "
        f"{percent(facts.chance)}: {verdict(facts.chance)}{untried}."
    )
