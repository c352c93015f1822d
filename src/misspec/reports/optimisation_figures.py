"""Figures of one optimisation: panels, which are printed or put on its page."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from misspec.errors import Array
from misspec.policies import Policy
from misspec.policies.auto import learnt
from misspec.reports import matplotlib_backend, optimisation, plotly_backend
from misspec.reports.optimisation import MOST_BARS, MOST_LEVELS, MOST_SLICES, Optimisation, Slice
from misspec.reports.picture import Axis, Bars, Line, Mark, Note, Panel, Points, Ribbon, Rule
from misspec.reports.plotly_backend import Json
from misspec.reports.style import COLOURS, MISSED, MOST_TICKS, TRUTH, log_ticks, powered
from misspec.threads import one_thread

COLUMNS = 3  # of panels in one figure
MODEL, USED, QUIET, GREY = COLOURS[0], COLOURS[1], "#555555", "#999999"
MOST_NOTED = 3  # results at an edge whose values are written there; all are said under the pointer
SHADES = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")  # viridis: best first


def plot(
    policy: Policy, *, title: str | None = None, target: str | None = None, names: Sequence[str] | None = None
) -> Figure:
    """One matplotlib Figure of an optimisation; `figure.savefig("yield.png", dpi=150)` writes it.

    Panels, as far as there is something to see: the best so far, which parameters matter, the model against the results
    (each predicted by the others), and the model along each parameter through the recommended point. title, target,
    names: as in `of_policy`. The policy stays as it is.
    """
    with one_thread():
        found = Optimisation(policy, title=title, target=target, names=names)
    known = any(not each.unknown for each in found.importance.values())
    panels = [
        dataclasses.replace(panel, title=said)
        for name, panel, said, *_ in _panels(found, 18)
        if panel is not None and name != "parallel" and (name != "importance" or known)
    ]
    panels += [slice_of(found, each) for each in found.slices]
    across = min(COLUMNS, len(panels))
    rows = [panels[i : i + across] for i in range(0, len(panels), across)]
    look: Any = {"width": 4.2 if across > 1 else None, "heights": 2.8 if len(rows) > 1 else 3.8}  # with the legend
    return matplotlib_backend.figure(rows, f"{found.title}: {found.about}", **look)


def figures_in_print(found: Optimisation) -> Iterator[tuple[str, Figure]]:
    """All figures for print, with the names of their files."""
    for name, panel, title, printed, _ in _panels(found, 40):
        if panel is not None:
            yield name, matplotlib_backend.figure([[panel]], f"{found.title}: {title}", **printed)
    if found.slices:
        columns = min(len(found.slices), 3 if len(found.slices) > 4 else 2)
        panels = [slice_of(found, each) for each in found.slices]
        rows = [panels[i : i + columns] for i in range(0, len(panels), columns)]
        more = "" if len(found.axes) <= MOST_SLICES else f", the {MOST_SLICES} parameters that matter most"
        title = f"{found.title}: through the recommended point{more}{_outside(found)}"
        width = 4.2 if columns > 1 else 7.0
        yield "slices", matplotlib_backend.figure(rows, title, width=width, heights=2.7, sharey=True)


def figures_on_page(found: Optimisation) -> Json:
    """All figures for the page: by name, None where there is nothing to see, and the slices."""
    plot = plotly_backend.figure_json
    slices = [plot(slice_of(found, each), 280, legend=False, small=True) for each in found.slices]
    return {
        "figures": {name: panel and plot(panel, **options) for name, panel, _, _, options in _panels(found, 22)},
        "slices": [{"name": each.name, "figure": made} for each, made in zip(found.slices, slices, strict=True)],
    }


def _panels(found: Optimisation, letters: int) -> list[tuple[str, Panel | None, str, Json, Json]]:
    """All but the slices: name, panel, title in print, and options for print and for the page.

    letters: of a parameter's name, at most.
    """
    bars, lines = min(len(found.axes), MOST_BARS), min(len(found.axes), MOST_SLICES) + 1
    title, tall = f"best so far ({found.better} is better){_outside(found)}", {"height": 380}
    bare: Json = {"legend": False}
    aside = "" if found.believed.all() else "; doubtful results do not count"
    return [
        ("best", best(found), title, {"heights": 3.6}, tall),
        ("importance", importances(found, letters), "which parameters matter",
         bare | {"width": 6.5, "heights": 1.1 + 0.28 * bars}, bare | {"height": 90 + 28 * bars, "margin": {"r": 50}}),
        ("parallel", parallel(found), f"every point, dark and thick: the best{aside}",
         bare | {"width": max(6.5, 1.5 * lines), "heights": 4.0}, bare | tall | {"margin": {"l": 30, "r": 60}}),
        ("model", model(found), "the model against the results", {"width": 6.5, "heights": 4.2}, tall),
    ]  # fmt: skip


def best(found: Optimisation) -> Panel:
    """The best so far by evaluation, with all results."""
    t = np.arange(1, len(found.y) + 1)
    elsewhere = found.ids < 0
    if elsewhere.all():
        elsewhere = ~elsewhere  # from nowhere else
    kinds = ((~elsewhere, "results", "circle", 3.5), (elsewhere, "results from before", "diamond", 3.5))
    marks: list[Mark] = [
        Points(t[chosen], found.y[chosen], symbol, size, colour=QUIET, alpha=0.8, label=label,
               hover="evaluation %{x}: %{y:.5g}")
        for kind, label, symbol, size in kinds
        if (chosen := kind & ~_far(found)).any()
    ]  # fmt: skip
    marks += _at_the_edge(found, t.astype(np.float64))
    marks.append(
        Line(t, found.best, width=2.0, step=True, colour=MODEL, label="best so far, as expected now", hover="%{y:.5g}")
    )
    if found.use is not None:
        ends, low, high = (0.5, len(t) + 0.5), found.use.lower, found.use.upper
        expected = float(np.clip(found.use.mean, low, high))  # its own results may have narrowed the range
        said = f"{expected:.5g}, {low:.5g} to {high:.5g}"
        label = "expected of the recommended,\nand its range"
        marks.append(Ribbon(ends, (low, low), (high, high), colour=USED, alpha=0.12, group=label))
        marks.append(Line(ends, (expected, expected), "dash", colour=USED, label=label, text=[said] * 2))
    if len(found.failures):  # between the results before and after, side by side
        after, foot = np.array(found.failures.after), _foot(found)
        rank = np.array([found.failures.after[:i].count(n) + 1 for i, n in enumerate(found.failures.after)])
        x = after + rank / (1 + np.bincount(after)[after])
        where = [f"failed: {_words(values)}" for values in found.failures.values]
        marks.append(Points(x, np.full(len(x), foot), "x", 5.0, colour=MISSED, label=f"failed ({len(x)})", text=where))
    return Panel(marks, Axis("evaluation", whole=True), Axis(found.target, range=found.vertical()))


def _foot(found: Optimisation) -> float:
    """A height just above the lower end of a picture of results, for what has no result."""
    low, high = found.vertical()
    return low + 0.03 * (high - low)


def _far(found: Optimisation) -> NDArray[np.bool_]:
    """Which results have no room in a picture of the others."""
    low, high = found.vertical()
    return np.asarray((found.y < low) | (found.y > high))


def _at_the_edge(found: Optimisation, x: Array) -> list[Mark]:
    """These as triangles at the edge that points to them, their values beside. x: where each result is drawn, NaN for
    those that are not."""
    (low, high), marks = found.vertical(), list[Mark]()
    label = "far outside"
    for beyond, symbol, share in ((found.y > high, "triangle-up", 0.97), (found.y < low, "triangle-down", 0.03)):
        if (chosen := beyond & np.isfinite(x)).any():
            at, height = x[chosen], low + share * (high - low)
            said = [learnt.plain(y) for y in found.y[chosen].tolist()]
            marks.append(Points(at, np.full(len(at), height), symbol, 5.5, colour=MISSED, label=label, text=said))
            beside = list(zip(at.tolist(), said, strict=True))[:MOST_NOTED]
            marks += [Note(where, height, y, (6, 0), size=7.5) for where, y in beside]
            label = ""
    return marks


def _outside(found: Optimisation) -> str:
    """Part of a title that counts the results left out."""
    count = int(_far(found).sum())
    return f"; {count} result{'s' * (count > 1)} far outside" if count else ""


def slice_of(found: Optimisation, each: Slice) -> Panel:
    """The model along a parameter through the recommended point."""
    values = each.labels or [learnt.plain(float(value)) for value in each.x]
    said = [
        f"{value}: expected {mean:.5g}, {low:.5g} to {high:.5g}"
        for value, mean, low, high in zip(values, each.mean, each.lower, each.upper, strict=True)
    ]
    look: Any = {"colour": MODEL, "label": "expected, and band", "text": said}
    if each.levels:
        marks: list[Mark] = [Points(each.x, each.mean, "square", 5.0, low=each.lower, high=each.upper, **look)]
    else:
        marks = [Ribbon(each.x, each.lower, each.upper, colour=MODEL, alpha=0.18), Line(each.x, each.mean, **look)]
    shown = np.isfinite(each.observed) & ~_far(found)
    marks += [
        *_at_the_edge(found, each.observed),
        Points(each.observed[shown], found.y[shown], opacity=0.12 + 0.88 * each.nearness[shown], colour="#333333",
               label="results (pale: far in the others)", hover="%{y:.5g}"),
        Rule(each.at, width=1.2, colour=USED, label="recommended"),
    ]  # fmt: skip
    lost = each.failed[np.isfinite(each.failed)]
    if len(lost):
        marks.append(Points(lost, np.full(len(lost), _foot(found)), "x", 5.0, colour=MISSED, label="failed"))
    x = Axis(log=each.log, whole=each.levels and bool(np.equal(each.x, np.round(each.x)).all()))
    few = each.levels and len(each.x) <= MOST_LEVELS
    if each.log:
        ticks = each.x.tolist() if few and len(each.x) <= MOST_TICKS else log_ticks(float(each.x[0]), float(each.x[-1]))
        x = Axis(log=True, ticks=ticks, labels=list(map(powered, ticks)))
    elif each.labels is not None or few:
        labels = [shortened(value) for value in values]
        turned = max(map(len, labels)) * len(labels) > 36
        ends = None if each.labels is None else (-0.6, len(labels) - 0.4)
        x = Axis(ticks=each.x.tolist(), labels=labels, turned=turned, range=ends)
    share = found.importance.get(each.name)
    title = each.name + ("" if share is None else f" {learnt.share_of(share)}")
    return Panel(marks, x, Axis(found.target, range=found.vertical()), title)


def importances(found: Optimisation, letters: int) -> Panel | None:
    """Importance of each parameter, with its range, or why it is not known yet. letters: of a name, at most."""
    named = {axis.name: found.importance[axis.name] for axis in found.axes if found.importance}
    if len(found.axes) < 2 or not any(each.share for each in named.values()):
        return None
    order = sorted(named, key=lambda name: -named[name].share)[:MOST_BARS]
    shares, low, high = (100 * np.array([named[name][i] for name in order]) for i in range(3))
    known, rows = np.array([not named[name].unknown for name in order]), np.arange(len(order))
    text = [f"{name} {learnt.share_of(named[name])}" for name in order]
    beside = [f" {named[name].unknown}" for name in order]
    marks: list[Mark] = [
        Bars(rows, np.zeros(len(order)), np.where(known, shares, 0.0), 0.65, flat=True, colour=MODEL, alpha=0.55,
             text=text, written=beside, hover="%{hovertext}"),
        *(Line((low[i], high[i]), (i, i), width=2.0) for i in np.flatnonzero(known)),
    ]  # fmt: skip
    right = 1.12 * float(high[known].max(initial=50.0))
    x = Axis("share of the expected variation, %; line: 90 % range", range=(0, right))
    labels = [shortened(name, letters) for name in order]
    return Panel(marks, x, Axis(ticks=rows.tolist(), labels=labels, range=(len(order) - 0.5, -0.5), grid=False))


def parallel(found: Optimisation) -> Panel | None:
    """Every point as a line through its parameters, coloured by the rank of its result."""
    shown, points = found.axes[:MOST_SLICES], found.points
    if len(shown) < 2 or np.isfinite(points.averages).sum() < 2:
        return None
    names = points.names
    low, high = float(np.nanmin(points.averages)), float(np.nanmax(points.averages))
    places = [names.index(axis.name) for axis in shown]
    exist = np.array([[axis.name in points.values[i] for axis in shown] for i in range(len(points.x))])
    columns = [
        np.where(exist[:, k], axis.scaled(points.x[:, j]), np.nan)
        for k, (j, axis) in enumerate(zip(places, shown, strict=True))
    ]
    lines = np.column_stack([*columns, (points.averages - low) / ((high - low) or 1.0), np.full(len(points.x), np.nan)])
    order = found.leading(len(lines))
    order = order[np.isfinite(points.averages[order])]  # of the others nothing is believed
    marks: list[Mark] = []
    for shade, part in zip(SHADES, np.array_split(order, min(len(SHADES), len(order))), strict=False):
        said = [f"{learnt.plain(float(points.averages[i]))}: {_words(points.values[i])}" for i in part]
        at, text = np.tile(np.arange(lines.shape[1]), len(part)), np.repeat(said, lines.shape[1])
        width, alpha = (0.8, 0.7) if marks else (2.0, 1.0)  # the best are thick
        # a line goes on to the next parameter that exists; NaN after the result ends it
        kept = np.column_stack([exist[part], np.ones((len(part), 2), dtype=bool)]).ravel()
        heights, texts = lines[part].ravel()[kept], text[kept].tolist()
        marks.append(Line(at[kept], heights, width=width, alpha=alpha, colour=shade, text=texts))
    notes = [(at, height, text) for at, axis in enumerate(shown) for height, text in ends_of(axis)]
    notes += [(len(shown), 0.0, f"{low:.4g}"), (len(shown), 1.0, f"{high:.4g}")]
    written = [Note(at, height, text, (3, 0), size=8, framed=True) for at, height, text in notes]
    labels = [shortened(name, 18) for name in (*(axis.name for axis in shown), found.target)]
    ticks = range(len(labels))
    rules = [Rule(at, dash="solid", width=0.8, colour=GREY) for at in ticks]
    x = Axis(ticks=ticks, labels=labels, range=(-0.1, len(labels) - 0.7), grid=False, bare=True)
    return Panel([*rules, *marks[::-1], *written], x, Axis(range=(-0.05, 1.05), ticks=(), grid=False, bare=True))


def ends_of(axis: optimisation.Coordinate) -> list[tuple[float, str]]:
    """Labels of a parameter and their heights: options of a choice, else both ends."""
    if axis.labels is None:
        written = powered if axis.log else "{:.4g}".format
        return [(0.0, written(axis.low)), (1.0, written(axis.high))]
    step = max(1, math.ceil(len(axis.labels) / 8))
    return [(float(axis.scaled(i)), shortened(axis.labels[i], 14)) for i in range(0, len(axis.labels), step)]


def shortened(text: str, most: int = 16) -> str:
    """With an ellipsis where it is too long for a picture."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2  # both ends: names that begin alike often end differently
    return text[: most - 1 - end] + "…" + text[-end:]


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {learnt.plain(value)}" for name, value in values.items())


def model(found: Optimisation) -> Panel | None:
    """Each result as the others predict it, with its band, against the result."""
    points, each = found.points, found.left_out
    if each is None:
        return None
    y, which = found.y[each.rows], points.of[each.rows]
    low, high = ends = found.vertical()
    marks: list[Mark] = [Line(ends, ends, width=0.8, colour=TRUTH, label="as predicted")]
    at = np.clip(y, low + 0.03 * (high - low), high - 0.03 * (high - low))
    said = [f"{_words(points.values[i])}: got {value:.5g}" for i, value in zip(which, y.tolist(), strict=True)]
    doubted = points.contradicted[which] | np.isin(each.rows, found.doubtful)
    kinds = (
        (~doubted & (y >= low) & (y <= high), "circle", MODEL, "predicted by the others, 95 %"),
        (doubted & (y >= low) & (y <= high), "diamond", MISSED, "doubtful, or contradict the model"),
        (y < low, "triangle-left", MISSED, "far outside"),
        (y > high, "triangle-right", MISSED, "far outside"),
    )
    marks += [
        Points(at[chosen], each.mean[chosen], symbol, 4.5, low=each.lower[chosen], high=each.upper[chosen],
               colour=colour, alpha=0.9, label=label, text=[said[i] for i in np.flatnonzero(chosen)],
               hover="%{text}; predicted %{y:.5g}")
        for chosen, symbol, colour, label in kinds
        if chosen.any()
    ]  # fmt: skip
    return Panel(marks, Axis(found.target, range=(low, high)), Axis("predicted by the others"))
