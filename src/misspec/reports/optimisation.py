"""One optimisation: what a policy was told and believes, as facts in the user's units, and `report`, which draws them.

Every policy on every domain has them; what needs a model is missing before there is one. Names and values are as the
user knows them; `optimisation_figures` draws the facts, `page` shows them.
"""

from __future__ import annotations

import copy
import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec import markup
from misspec.domains import Choice
from misspec.domains.parameters import Parameter
from misspec.errors import Array, InvalidInput, StorageError, instance, listed, short, shown
from misspec.files import storage
from misspec.policies import Auto, Conflict, Policy, Recommendation
from misspec.policies.auto import learnt
from misspec.policies.auto.limits import KEPT
from misspec.policies.core.log import pending_of
from misspec.product import distance
from misspec.reports.left_out import left_out
from misspec.search import distinct
from misspec.threads import one_thread

MOST_SLICES = 8  # parameters through which slices are drawn, the most important ones
MOST_BARS = 20  # parameters whose importance is drawn
MOST_LEVELS = 12  # values of a column of a list up to which they are drawn one by one
CROWDED = 0.04  # share of an axis between two values below which their labels overlap
MOST_WHOLE = 25  # whole numbers up to which they are
MOST_OPTIONS = 12  # of a choice, those of the best mean
CURVE = 120  # points of a curve; no grid of a user's has points there
NEAR = 0.2  # distance in the other parameters, relative to their range, at which an observation is pale
BEST = 10  # points in the table
FILES = ("best", "slices", "importance", "parallel", "model")  # pictures, each as png and pdf
REACH = 3.0  # results farther than so many times the range of the central 80 % from these are out of the picture


class Coordinate:
    """A parameter as it is drawn. levels: its values one by one, else None; labels: of a choice."""

    def __init__(self, policy: Any, name: str, parameter: Parameter | None, j: int) -> None:
        """parameter: None where coordinates are plain numbers."""
        self.name, self.parameter, self.log = name, parameter, bool(getattr(parameter, "log", False))
        self.labels: list[str] | None = None
        self.levels: Array | None = None
        if isinstance(parameter, Choice):
            self.labels = [learnt.plain(option) for option in parameter.options]
            ends = self.levels = np.arange(float(len(self.labels)))
        elif policy.field.indexed:
            ends = np.unique(policy.domain.points[:, j])
            self.levels = ends if len(ends) <= MOST_LEVELS else None
        elif parameter is None:
            ends = np.array([policy.domain.low[j], policy.domain.high[j]])
        else:
            ends = np.array([parameter.low, parameter.high], dtype=np.float64)
            self.levels = parameter.every() if 1 < (parameter.count or 0) <= MOST_WHOLE else None
        self.low, self.high = float(ends[0]), float(ends[-1])
        if self.levels is not None and self.labels is None and self.low > 0 and len(self.levels) > 2:
            gaps = np.diff(self.levels)
            self.log |= bool(gaps.min() < CROWDED * gaps.sum())  # 0.001, 0.01, 0.1, 1
        self.varies = self.high > self.low if self.levels is None else len(self.levels) > 1

    def curve(self) -> Array:
        """Legal points at which a slice is computed."""
        if self.levels is not None:
            return self.levels
        unit = np.clip(np.linspace(0.0, 1.0, CURVE), 1e-6, 1.0 - 1e-6)
        x = self.low * (self.high / self.low) ** unit if self.log else self.low + unit * (self.high - self.low)
        if self.parameter is None or self.parameter.count is None:
            return np.asarray(x)
        return np.unique(self.parameter.decode(self.parameter.encode(x)))

    def scaled(self, values: Any) -> Array:
        """Coordinates between 0 and 1, as the axis is drawn."""
        values, low, high = (np.log(each) if self.log else each for each in (values, self.low, self.high))
        return np.asarray((values - low) / ((high - low) or 1.0))


class Slice:
    """Along one parameter through the recommended point.

    x, mean, lower, upper   the model's mean and the policy's band there
    at                      the recommended value
    levels                  whether x are single values, not points of a curve; labels: their names, of a choice
    observed, nearness      where observations lie, and how near they are in the other parameters, 0 to 1
    failed                  where evaluations failed
    """

    def __init__(self, policy: Any, point: Array, axis: Coordinate, j: int, failures: Array) -> None:
        domain = policy.domain

        def line(x: Array) -> Array:
            points = np.tile(point, (len(x), 1))
            if hasattr(domain, "changed"):
                middle = domain.values(np.full((1, domain.dimension), 0.5))  # of what exists with some options only
                return np.asarray(domain.changed(np.where(domain.there(points), points, middle), j, x))
            points[:, j] = x
            return points

        self.name, self.log, self.labels, self.levels = axis.name, axis.log, axis.labels, axis.levels is not None
        told, x = policy.observations.x, axis.curve()
        self.observed, self.failed = (
            np.where(learnt.existing(domain, X)[:, j], X[:, j], np.nan) for X in (told, failures)
        )
        self.at, self.nearness = float(point[j]), _nearness(domain, told, point, j)
        try:
            band = policy.band(line(x))
        except InvalidInput:  # a phased policy on a list has bands at its candidates only
            if not policy.field.indexed:
                raise
            others = np.delete(domain.points, j, axis=1) == np.delete(point, j)
            x = np.unique(domain.points[others.all(axis=1), j])
            self.levels, band = len(x) <= MOST_LEVELS, policy.band(line(x))
        mean, rows = policy.posterior.at(line(x))[0], np.arange(len(x))
        if getattr(domain, "rules", None) is not None:  # the curve is interrupted where rules forbid it
            points = line(x)  # of a table, its rules alone
            legal = getattr(domain, "legal", lambda X: domain.rules.held(X, np.ones(X.shape, dtype=bool))[0])
            mean = np.where(legal(points), mean, np.nan)
            band = band._replace(**{end: np.where(np.isnan(mean), np.nan, getattr(band, end)) for end in band._fields})
        if self.labels is not None and len(x) > MOST_OPTIONS:
            best = np.argsort(mean if policy.minimize else -mean, kind="stable")[:MOST_OPTIONS]
            rows = np.union1d(best, np.flatnonzero(x == self.at))
        self.x, self.mean, self.lower, self.upper = x[rows], mean[rows], band.lower[rows], band.upper[rows]
        if self.labels is not None:  # options are drawn at their positions
            options, self.x = self.x, np.arange(float(len(rows)))
            self.labels = [self.labels[int(option)] for option in options]
            self.observed, self.failed = (
                np.where(np.isin(at, options), np.searchsorted(options, at), np.nan)
                for at in (self.observed, self.failed)
            )
            self.at = float(np.searchsorted(options, self.at))


class DrawnPoints:
    """Distinct points with results, in order of their first.

    names          of all parameters
    values         by name, of those that exist there
    labels         of candidates with names, else ""
    averages       of their results, doubtful ones left aside; NaN where no other is there
    expected       by the model; NaN without one
    contradicted   whether its results contradict the model
    of             the point of each result
    """

    def __init__(
        self, policy: Any, names: Sequence[str], conflicts: Sequence[Conflict], believed: NDArray[np.bool_], *,
        modelled: bool,
    ) -> None:  # fmt: skip
        told, domain = policy.observations, policy.domain
        unique, first, number = distinct(told.x)
        order = np.argsort(first, kind="stable")
        self.x, self.counts, self.of = unique[order], np.bincount(number)[order], np.argsort(order)[number]
        sums, counts = (np.bincount(number, each * believed)[order] for each in (told.y, np.ones(len(told))))
        self.averages = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
        self.expected = policy.posterior.at(self.x)[0] if modelled else np.full(len(self.x), np.nan)
        against = {each.x.tobytes() for each in conflicts}
        self.contradicted = np.array([each.tobytes() in against for each in self.x], dtype=bool)
        self.names, self.values = list(names), _by_name(domain, self.x, names)
        self.labels = _labels(policy, self.x)


class Failures:
    """Where evaluations failed (queries that were dropped), once for each time.

    values   by name, of those parameters that exist there
    labels   of candidates with names, else ""
    after    results told before, of those that are shown
    """

    def __init__(self, policy: Any, names: Sequence[str]) -> None:
        asked: dict[int, Array] = {}
        x: list[Array] = []
        self.after: list[int] = []
        told = 0
        for kind, *rest in policy.log.events:
            if kind == "ask":
                asked[rest[0].id] = rest[0].x
            elif kind == "snapshot":
                asked |= {each.query.id: each.query.x for each in pending_of(rest[0], policy.field)}
            elif kind == "drop":
                x.append(asked[rest[0]])
                self.after.append(told)
            told += 1 if kind == "tell" else len(rest[1]) if kind == "observe" else 0
        self.x: Array = np.reshape(x, (len(x), policy.domain.dimension))
        self.values, self.labels = _by_name(policy.domain, self.x, names), _labels(policy, self.x)

    def __len__(self) -> int:
        return len(self.after)


def _labels(policy: Any, X: Array) -> list[str]:
    """The names of candidates, "" for points without one."""
    if not policy.field.indexed or policy.domain.names is None:
        return [""] * len(X)
    return [policy.domain.names[i] if i >= 0 else "" for i in policy.domain.indices(X).tolist()]


def _by_name(domain: Any, X: Array, names: Sequence[str]) -> list[dict[str, Any]]:
    """The values of points by name, of those parameters that exist there."""
    rows = zip(X, learnt.existing(domain, X), strict=True)
    return [
        {name: value for name, value, exists in zip(names, learnt.values_of(domain, x), there, strict=True) if exists}
        for x, there in rows
    ]


class Optimisation:
    """The facts.

    limits      values of limited quantities by name
    ids         of the queries, negative for results from elsewhere
    best        what is expected now of the best point so far, one per evaluation; with limits, of those that are likely
                to keep them, and NaN before the first
    use         the recommendation, None before there is a model
    axes        the parameters that vary, the most important first
    conflicts   the worst first: where, and the gap
    failures    where evaluations failed
    left_out    the model against the results; doubtful: rows of results that the others do not predict
    believed    which results the model rests on: those that look like slips are in no average
    """

    def __init__(
        self, policy: Policy, *, title: str | None = None, target: str | None = None, names: Sequence[str] | None = None
    ) -> None:
        """As for `of_policy`."""
        if not isinstance(policy, Policy):
            hint = "ms.reports.of_experiment(folder) draws experiments"
            raise InvalidInput(f"a report is of a policy, got {type(policy).__name__}; {hint}")
        for name, given in (("title", title), ("target", target)):
            if given is not None:
                instance(name, given, str)
        domain, told = policy.domain, policy.observations
        if not policy.field.fixed:
            raise InvalidInput(
                f"a report is about a whole domain, and on {shown(domain)} what is best depends on the round; "
                "ms.reports.trace_figure(trace) draws a simulated run"
            )
        if not len(told):
            left = "left: all results were compacted" if told.forgotten else "yet: tell the policy a result first"
            raise InvalidInput(f"there is nothing to report {left}")
        called = _names(domain, names)
        if isinstance(policy, Auto) and policy.stale:
            policy = copy.deepcopy(policy)  # a report leaves the policy as it is
            policy.refresh()
        modelled = learnt.modelled(policy)
        conflicts = sorted(policy.conflicts() if modelled else [], key=lambda each: -each.gap)
        self.minimize, self.y, self.ids, self.limits = policy.minimize, told.y, told.ids, told.limits
        self.better = "smaller" if self.minimize else "larger"
        self.target = str(target or getattr(domain, "target", None) or "result")
        self.title = title or ("Optimisation" if self.target == "result" else f"Optimisation of {self.target}")
        self.use = policy.recommend() if modelled else None
        if modelled and hasattr(policy, "summary"):
            known = learnt.Facts(policy, called)
            self.importance, doubtful, self.sentences = known.importance, known.suspicious, learnt.sentences(known)
        else:
            self.importance = learnt.importance_of(policy, called) if modelled else {}
            doubtful = policy.suspicious() if modelled else []
            self.sentences = _sentences(policy, called, self.use, conflicts)
        self.doubtful = [each.row for each in doubtful]
        self.believed = np.ones(len(told), dtype=bool)
        if isinstance(policy, Auto):
            self.believed[[each.row for each in doubtful if each.factor == 1.0]] = False
        best = np.fmin if self.minimize else np.fmax
        expected = np.where(self.believed, policy.posterior.at(told.x)[0] if modelled else told.y, np.nan)
        if modelled and isinstance(policy, Auto) and policy.limits:
            keeps = policy.probability(told.x) >= KEPT
            expected = np.where(keeps | ~keeps.any(), expected, np.nan)
        self.best: Array = best.accumulate(expected)
        parameters = (learnt.parameters_of(domain) or dict.fromkeys(called)).values()
        axes = [Coordinate(policy, name, p, j) for j, (name, p) in enumerate(zip(called, parameters, strict=True))]
        shares = [self.importance[name].share if self.importance else 0.0 for name in called]
        order = sorted((j for j, axis in enumerate(axes) if axis.varies), key=lambda j: -shares[j])
        self.axes = [axes[j] for j in order]
        drawn = [] if self.use is None else [j for j in order if learnt.existing(domain, self.use.x[None, :])[0, j]]
        self.failures = failures = Failures(policy, called)
        self.slices = [
            Slice(policy, self.use.x, axes[j], j, failures.x) for j in drawn[:MOST_SLICES] if self.use is not None
        ]
        self.points = DrawnPoints(policy, called, conflicts, self.believed, modelled=modelled)
        self.conflicts = [(learnt.spelled(domain, each, called), each.gap) for each in conflicts]
        self.left_out = left_out(policy) if modelled else None
        after = f" after {told.forgotten:,} that were compacted and are not shown" if told.forgotten else ""
        lost = f", {len(self.failures):,} failed" if len(self.failures) else ""
        self.about = (
            f"{len(told):,} evaluation{'s' * (len(told) != 1)} with a result{after}{lost}; "
            f"{len(axes)} parameter{'s' * (len(axes) > 1)}, by {type(policy).__name__}; {self.better} is better"
        )

    def leading(self, count: int) -> NDArray[np.intp]:
        """The points of which most is expected, or with the best averages where there is no model; best first."""
        by = self.points.averages if self.use is None else self.points.expected
        return np.argsort(by if self.minimize else -by, kind="stable")[:count]

    def vertical(self) -> tuple[float, float]:
        """Room for the results, except for doubtful ones and a few that would flatten the others."""
        low, high, a, b = np.quantile(self.y[self.believed], (0.0, 1.0, 0.1, 0.9)).tolist()
        if b > a:
            low, high = max(low, a - REACH * (b - a)), min(high, b + REACH * (b - a))
        low, high = min(low, float(self.best[-1])), max(high, float(self.best[-1]))
        reach = high - low  # of the model's mean, no more than that beyond the results
        means = np.concatenate([each.mean for each in self.slices]) if self.slices else self.best
        least, most = float(np.nanmin(means)), float(np.nanmax(means))
        low, high = min(low, max(least, low - reach)), max(high, min(most, high + reach))
        pad = 0.1 * (high - low) or 0.1 * abs(high) or 1.0
        return low - pad, high + pad


class Page(type(Path())):  # type: ignore[misc]  # the class of paths on this system
    """The path of a page, which a notebook shows with the picture of the best so far."""

    def _repr_html_(self) -> str | None:
        best = self.parent / "best.png"
        if self.name != "index.html" or not best.is_file():  # paths made of this one are of its class
            return None
        return markup.block("Report", markup.link(self), markup.picture(best.read_bytes()))


def of_policy(
    policy: Policy,
    folder: str | os.PathLike[str],
    *,
    title: str | None = None,
    target: str | None = None,
    names: Sequence[str] | None = None,
) -> Path:
    """Pictures of one optimisation in a folder, and one page of them, whose path comes back: `index.html`.

    title: of the page. target: what the results are called, by default the table's target, or "result". names: of the
    parameters, where coordinates have none. Beside the page, every picture as PNG and PDF, and `evaluations.csv`.
    Nothing is written if anything fails, and the policy stays as it is.
    """
    from misspec.reports import matplotlib_backend, optimisation_figures, page

    instance("folder", folder, (str, os.PathLike))
    with one_thread():
        found = Optimisation(policy, title=title, target=target, names=names)
    content = {"index.html": page.policy_page(found).encode(), "evaluations.csv": _csv(found)}
    content |= matplotlib_backend.files(optimisation_figures.figures_in_print(found))
    into = Path(folder)
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {into}: {error.strerror}; choose another") from None
    for name, written in content.items():
        storage.replace(into / name, written)
    pictures = {f"{name}.{suffix}" for name in FILES for suffix in matplotlib_backend.SUFFIXES}
    for stale in pictures - set(content):  # of a former report
        (into / stale).unlink(missing_ok=True)
    return Page(into / "index.html")


def _names(domain: Any, given: Sequence[str] | None) -> list[str]:
    if given is None:
        return learnt.names_of(domain)
    names = [given] if isinstance(given, str) else [str(name) for name in listed("names", given)]
    if len(names) != domain.dimension or len(set(names)) != len(names):
        got = short(", ".join(map(repr, names)))
        raise InvalidInput(f"names must be {domain.dimension} different ones, one per parameter, got {got}")
    return names


def _nearness(domain: Any, X: Array, at: Array, j: int) -> Array:
    """Closeness of observations to the line of a slice: 1 on it, 0 far away in the other parameters."""
    pairs = [(each.start, each.stop) for each in getattr(domain, "columns", ())]
    if len(pairs) != domain.dimension or len(pairs) == 1:
        return np.ones(len(X))
    squares = np.stack([distance(domain.encode(X), domain.encode(at[None, :]), each)[:, 0] for each in pairs]) ** 2
    probes = domain.probes()
    reach = np.array([float(np.ptp(probes[:, a:b], axis=0).max()) if b - a == 1 else 1.0 for a, b in pairs])
    squares /= (np.where(reach > 0, reach, 1.0) ** 2)[:, None]
    others = np.delete(squares, j, axis=0).mean(axis=0)
    return np.asarray(np.exp(-0.5 * others / NEAR**2))


def _sentences(
    policy: Any, names: Sequence[str], use: Recommendation | None, conflicts: Sequence[Conflict]
) -> list[str]:
    if use is None:
        return str(policy.summary()).splitlines()
    told = policy.observations
    sure = f"with probability {100 * (1 - policy.model.delta):.0f} %" if use.guaranteed else "not guaranteed"
    step, best = 0.1 * (learnt.spread_of(told.y) or 1.0), learnt.best_tried(policy)
    return [
        learnt.use(policy.domain, use, sure, names),
        learnt.evaluations(
            len(told), len(distinct(told.x).points), best, step, learnt.which(policy.domain, best, use, names)
        ),
        learnt.contradictions(policy.domain, conflicts, names),
    ]


def _csv(found: Optimisation) -> bytes:
    """Every evaluation in order; numbers to the bit."""
    points, text = found.points, io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["evaluation", "query", *points.names, found.target, *found.limits])
    for number, (of, query, y) in enumerate(zip(points.of, found.ids, found.y.tolist(), strict=True), 1):
        cells = [str(points.values[of].get(name, "")) for name in points.names]
        beside = [repr(each) if each == each else "" for each in (v[number - 1].item() for v in found.limits.values())]
        writer.writerow([number, "" if query < 0 else query, *cells, repr(y), *beside])
    return text.getvalue().encode()
