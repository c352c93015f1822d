"""One optimisation: what a policy was told and believes, as facts in the user's units, and `report`, which draws them.

Every policy on every domain has them; what needs a model is missing before there is one. Names and values are as the
user knows them; `optimisation_figures` draws the facts, `optimisation_page` shows them.
"""

from __future__ import annotations

import copy
import csv
import dataclasses
import io
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec.domains import Choice, Finite, Float, Int
from misspec.domains.parameters import Parameter
from misspec.errors import Array, InvalidInput, StorageError, instance, listed, short, shown
from misspec.files import storage
from misspec.policies import Auto, Conflict, Policy, Recommendation
from misspec.policies.auto import learnt
from misspec.policies.auto.importance import Importance
from misspec.product import distance
from misspec.reports.left_out import LeftOut, left_out
from misspec.search import distinct

MOST_SLICES = 8  # parameters through which slices are drawn, the most important ones
MOST_BARS = 20  # parameters whose importance is drawn
MOST_LEVELS = 12  # values of a column of a list up to which they are drawn one by one
MOST_WHOLE = 25  # whole numbers up to which they are
MOST_OPTIONS = 12  # of a choice, those of the best mean
CURVE = 120  # points of a curve; no grid of a user's has points there
NEAR = 0.2  # distance in the other parameters, relative to their range, at which an observation is pale
BEST = 10  # points in the table
FILES = ("best", "slices", "importance", "parallel", "model")  # pictures, each as png and pdf
REACH = 3.0  # times the range of the central results: farther out is out of the picture


@dataclasses.dataclass(frozen=True, eq=False)
class Slice:
    """Along one parameter through the recommended point.

    x, mean, lower, upper   the model's mean and the policy's band there
    at                      the recommended value
    levels                  whether x are single values, not points of a curve; labels: their names, of a choice
    observed, nearness      where observations lie, and how near they are in the other parameters, 0 to 1
    """

    name: str
    x: Array
    mean: Array
    lower: Array
    upper: Array
    at: float
    levels: bool
    labels: list[str] | None
    log: bool
    observed: Array
    nearness: Array


@dataclasses.dataclass(frozen=True, eq=False)
class Points:
    """Distinct points with results, in order of their first: their values by name, averages, counts, and what the
    model expects there (NaN without one). of: the point of each result."""

    x: Array
    values: list[dict[str, Any]]
    labels: list[str]  # of candidates with names, else ""
    averages: Array
    counts: NDArray[np.intp]
    expected: Array
    contradicted: NDArray[np.bool_]
    of: NDArray[np.intp]


@dataclasses.dataclass(frozen=True, eq=False)
class Optimisation:
    """The facts. best: what is expected now of the best point so far, one per evaluation; elsewhere: which results the
    policy never asked; left_out: the model against the results."""

    title: str
    about: str
    target: str
    minimize: bool
    y: Array
    best: Array
    elsewhere: NDArray[np.bool_]
    sentences: list[str]
    use: Recommendation | None
    importance: dict[str, Importance]
    slices: list[Slice]
    points: Points
    axes: list[Axis]
    conflicts: list[Conflict]
    conflicting: list[str]  # the same points in words
    table: list[list[str]]  # every evaluation, the first row is the head
    left_out: LeftOut | None
    doubtful: list[int]  # rows of results that the others do not predict

    @property
    def expected(self) -> float:
        """Mean at the recommended point, within its band, which its own results may have narrowed."""
        assert self.use is not None
        return float(np.clip(self.use.mean, self.use.lower, self.use.upper))

    @property
    def better(self) -> str:
        return "smaller" if self.minimize else "larger"

    def leading(self, count: int) -> NDArray[np.intp]:
        """The points of which most is expected, or with the best averages where there is no model; best first."""
        by = self.points.averages if self.use is None else self.points.expected
        return np.argsort(by if self.minimize else -by, kind="stable")[:count]

    def vertical(self) -> tuple[float, float]:
        """Room for the results, except for a few that would flatten the others."""
        low, high = extent(self.y)
        low, high = min(low, float(self.best[-1])), max(high, float(self.best[-1]))
        reach = high - low  # of the model's mean, no more than that beyond the results
        means = np.concatenate([each.mean for each in self.slices]) if self.slices else self.best
        low, high = min(low, max(float(means.min()), low - reach)), max(high, min(float(means.max()), high + reach))
        pad = 0.1 * (high - low) or 0.1 * abs(high) or 1.0
        return low - pad, high + pad


@dataclasses.dataclass(frozen=True, eq=False)
class Axis:
    """A parameter as it is drawn. levels: its values one by one, else None; labels: of a choice."""

    name: str
    low: float
    high: float
    log: bool
    levels: Array | None
    labels: list[str] | None

    @property
    def varies(self) -> bool:
        return self.high > self.low if self.levels is None else len(self.levels) > 1

    def curve(self) -> Array:
        """Points at which a slice is computed."""
        if self.levels is not None:
            return self.levels
        unit = np.clip(np.linspace(0.0, 1.0, CURVE), 1e-6, 1.0 - 1e-6)
        if self.log:
            return np.asarray(self.low * (self.high / self.low) ** unit)
        return np.asarray(self.low + unit * (self.high - self.low))


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
    from misspec.reports import matplotlib_backend, optimisation_figures, optimisation_page

    instance("folder", folder, (str, os.PathLike))
    found = facts(policy, title=title, target=target, names=names)
    content: dict[str, bytes] = {"index.html": optimisation_page.page(found).encode()}
    text = io.StringIO()
    csv.writer(text).writerows(found.table)
    content["evaluations.csv"] = text.getvalue().encode()
    with matplotlib_backend.drawing():
        for name, figure in optimisation_figures.draw(found):
            for suffix in matplotlib_backend.SUFFIXES:
                content[f"{name}.{suffix}"] = matplotlib_backend.saved(figure, suffix)
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
    return into / "index.html"


def facts(
    policy: Policy,
    *,
    title: str | None = None,
    target: str | None = None,
    names: Sequence[str] | None = None,
) -> Optimisation:
    """The facts of a report."""
    if not isinstance(policy, Policy):
        raise InvalidInput(
            f"a report is of a policy, got {type(policy).__name__}; ms.reports.of_experiment(folder) draws experiments"
        )
    for name, given in (("title", title), ("target", target)):
        if given is not None:
            instance(name, given, str)
    if not policy.field.fixed:
        raise InvalidInput(
            f"a report is about a whole domain, and on {shown(policy.domain)} what is best depends on the round; "
            "ms.reports.trace_figure(trace) draws a simulated run"
        )
    told = policy.observations
    if not len(told):
        left = "left: all results were compacted" if told.forgotten else "yet: tell the policy a result first"
        raise InvalidInput(f"there is nothing to report {left}")
    domain = policy.domain
    called = _names(domain, names)
    axes = _axes(domain, called)
    if isinstance(policy, Auto) and policy.stale:
        policy = copy.deepcopy(policy)  # a report leaves the policy as it is
        policy.refresh()
    modelled = learnt.modelled(policy)
    use = policy.recommend() if modelled else None
    learns = modelled and hasattr(policy, "summary")
    known = learnt.Facts(policy, called) if learns else None
    importance = known.importance if known else learnt.importance_of(policy, called) if modelled else {}
    shares = [importance[name].share if importance else 0.0 for name in called]
    order = sorted((j for j, axis in enumerate(axes) if axis.varies), key=lambda j: -shares[j])
    slices = [] if use is None else [_slice(policy, use.x, axes[j], j) for j in order[:MOST_SLICES]]
    conflicts = policy.conflicts() if modelled else []
    doubtful = known.suspicious if known else policy.suspicious() if modelled else []
    points = _points(policy, axes, conflicts, modelled=modelled)
    what = target or getattr(domain, "target", None) or "result"
    y, down = told.y, policy.minimize
    best = (np.minimum if down else np.maximum).accumulate(policy.posterior.at(told.x)[0] if modelled else y)
    heading = title or ("Optimisation" if what == "result" else f"Optimisation of {what}")
    count = f"{len(told):,} evaluation{'s' * (len(told) != 1)}"
    if told.forgotten:
        count += f" after {told.forgotten:,} that were compacted and are not shown"
    about = f"{type(policy).__name__}, {count}, {len(axes)} parameter{'s' * (len(axes) > 1)}; "
    return Optimisation(
        heading, about + ("smaller is better" if down else "larger is better"), str(what), down,
        y, best, told.ids < 0, learnt.sentences(known) if known else _sentences(policy, called, use, conflicts), use,
        importance,
        slices, points, [axes[j] for j in order], conflicts,
        [learnt.spelled(domain, each, called) for each in conflicts], _table(policy, axes, str(what), y),
        left_out(policy) if modelled else None, [each.row for each in doubtful],
    )  # fmt: skip


def extent(values: Array) -> tuple[float, float]:
    """From the smallest to the largest, without those that lie far from the central 80 %."""
    low, high = np.quantile(values, (0.1, 0.9)).tolist()
    reach = REACH * (high - low)
    if reach <= 0:
        return float(values.min()), float(values.max())
    return max(float(values.min()), low - reach), min(float(values.max()), high + reach)


def scaled(axis: Axis, values: Any) -> Array:
    """Coordinates of a parameter between 0 and 1, as the axis is drawn."""
    ends = np.array([axis.low, axis.high])
    if axis.log:
        values, ends = np.log(values), np.log(ends)
    return np.asarray((values - ends[0]) / ((ends[1] - ends[0]) or 1.0))


def ends_of(axis: Axis) -> list[tuple[float, str]]:
    """Labels of an axis and their positions: options of a choice, else both ends."""
    if axis.labels is not None:
        step = max(1, math.ceil(len(axis.labels) / 8))
        shown = range(0, len(axis.labels), step)
        return [(float(scaled(axis, float(i))), shortened(axis.labels[i], 14)) for i in shown]
    return [(0.0, f"{axis.low:.4g}"), (1.0, f"{axis.high:.4g}")]


def shortened(text: str, most: int = 16) -> str:
    """With an ellipsis where it is too long for a picture."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2  # both ends: names that begin alike often end differently
    return text[: most - 1 - end] + "…" + text[-end:]


def _names(domain: Any, given: Sequence[str] | None) -> list[str]:
    if given is None:
        return learnt.names_of(domain)
    names = [given] if isinstance(given, str) else [str(name) for name in listed("names", given)]
    if len(names) != domain.dimension or len(set(names)) != len(names):
        raise InvalidInput(
            f"names must be {domain.dimension} different ones, one per parameter, "
            f"got {short(', '.join(map(repr, names)))}"
        )
    return names


def _axes(domain: Any, names: Sequence[str]) -> list[Axis]:
    """One for each coordinate."""
    parameters: Sequence[Parameter | None] = list((learnt.parameters_of(domain) or {}).values())
    parameters = parameters or [None] * len(names)
    return [_axis(domain, name, each, j) for j, (name, each) in enumerate(zip(names, parameters, strict=True))]


def _axis(domain: Any, name: str, parameter: Parameter | None, j: int) -> Axis:
    if isinstance(parameter, Choice):
        count = len(parameter.options)
        labels = [learnt.plain(option) for option in parameter.options]
        return Axis(name, 0.0, count - 1.0, False, np.arange(float(count)), labels)
    log = isinstance(parameter, Float | Int) and parameter.log
    if isinstance(domain, Finite):
        column = np.unique(domain.points[:, j])
        low, high = float(column[0]), float(column[-1])
        return Axis(name, low, high, log, column if len(column) <= MOST_LEVELS else None, None)
    if isinstance(parameter, Float | Int):
        low, high = float(parameter.low), float(parameter.high)
    else:
        low, high = (float(each[j]) for each in (domain.low, domain.high))
    few = parameter is not None and parameter.count is not None and 1 < parameter.count <= MOST_WHOLE
    levels = parameter.every() if parameter is not None and few else None
    return Axis(name, low, high, log, levels, None)


def _slice(policy: Any, at: Array, axis: Axis, j: int) -> Slice:
    x = axis.curve()
    if axis.levels is None:
        x = _legal(policy.domain, j, x)
    X = np.repeat(at[None, :], len(x), axis=0)
    X[:, j] = x
    levels = axis.levels is not None
    try:
        band = policy.band(X)
    except InvalidInput:  # a phased policy on a list has bands at its candidates only
        if not isinstance(policy.domain, Finite):
            raise
        X = _on_the_line(policy.domain.points, at, j)
        x, levels, band = X[:, j], len(X) <= MOST_LEVELS, policy.band(X)
    mean = policy.posterior.at(X)[0]
    kept = np.arange(len(x))
    if axis.labels is not None and len(x) > MOST_OPTIONS:
        kept = np.argsort(mean if policy.minimize else -mean, kind="stable")[:MOST_OPTIONS]
        kept = np.union1d(kept, np.flatnonzero(x == at[j]))
    told = policy.observations
    labels = None if axis.labels is None else [axis.labels[int(x[i])] for i in kept]
    observed, here = told.x[:, j], float(at[j])
    if labels is not None:  # positions in the picture
        position = {float(x[i]): float(n) for n, i in enumerate(kept)}
        observed = np.array([position.get(float(value), np.nan) for value in observed])
        x, here = np.arange(float(len(kept))), position[here]
    else:
        x = x[kept]
    return Slice(
        axis.name, x, mean[kept], band.lower[kept], band.upper[kept], here, levels, labels,
        axis.log, observed, _nearness(policy.domain, told.x, at, j),
    )  # fmt: skip


def _on_the_line(points: Array, at: Array, j: int) -> Array:
    """The candidates that differ from a point in one coordinate only, in its order."""
    others = np.delete(points, j, axis=1) == np.delete(at, j)
    return distinct(points[others.all(axis=1)]).points


def _legal(domain: Any, j: int, x: Array) -> Array:
    """The nearest legal numbers, where only some are."""
    parameters = list((learnt.parameters_of(domain) or {}).values())
    if not parameters or parameters[j].count is None:
        return x
    return np.unique(parameters[j].decode(parameters[j].encode(x)))


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


def _points(policy: Any, axes: Sequence[Axis], conflicts: Sequence[Conflict], *, modelled: bool) -> Points:
    told, domain = policy.observations, policy.domain
    unique, first, number = distinct(told.x)
    order = np.argsort(first, kind="stable")
    counts = np.bincount(number)[order]
    averages = np.bincount(number, told.y)[order] / counts
    x = unique[order]
    expected = policy.posterior.at(x)[0] if modelled else np.full(len(x), np.nan)
    against = {each.x.tobytes() for each in conflicts}
    contradicted = np.array([each.tobytes() in against for each in x], dtype=bool)
    labels = [""] * len(x)
    if isinstance(domain, Finite) and domain.names is not None:
        labels = [domain.names[i] if i >= 0 else "" for i in domain.indices(x).tolist()]
    values = [dict(zip([a.name for a in axes], learnt.values_of(domain, each), strict=True)) for each in x]
    return Points(x, values, labels, averages, counts, expected, contradicted, np.argsort(order)[number])


def _sentences(
    policy: Any, names: Sequence[str], use: Recommendation | None, conflicts: Sequence[Conflict]
) -> list[str]:
    if use is None:
        return str(policy.summary()).splitlines()
    told = policy.observations
    sure = f"with probability {100 * (1 - policy.model.delta):.0f} %" if use.guaranteed else "not guaranteed"
    step = 0.1 * (learnt.spread_of(told.y) or 1.0)
    return [
        learnt.use(policy.domain, use, sure, names),
        learnt.evaluations(len(told), len(distinct(told.x).points), learnt.best_tried(policy), step),
        learnt.contradictions(policy.domain, conflicts, names),
    ]


def _table(policy: Any, axes: Sequence[Axis], target: str, results: Array) -> list[list[str]]:
    """Every evaluation in order; numbers to the bit."""
    told, domain = policy.observations, policy.domain
    rows = [["evaluation", "query", *(axis.name for axis in axes), target]]
    for number, (x, y, query) in enumerate(zip(told.x, results.tolist(), told.ids.tolist(), strict=True), 1):
        values = [str(value) for value in learnt.values_of(domain, x)]
        rows.append([str(number), "" if query < 0 else str(query), *values, repr(y)])
    return rows
