"""Figures of an experiment: panels by problem and ε, which print sets side by side and the page shows one at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from misspec.experiments.contest import Contest
from misspec.experiments.store import Finished, Results
from misspec.reports import bands, cells, matplotlib_backend, plotly_backend, tables
from misspec.reports.picture import Axis, Bars, Line, Mark, Note, Panel, Points, Ribbon, Rule
from misspec.reports.plotly_backend import Json
from misspec.reports.style import COLOURS, TRUTH, Stroke, labels, slug, strokes
from misspec.reports.tables import Curve, Group, Groups
from misspec.reports.theorems import Allowed, Bound

COLOUR_OF = dict(zip(("ms.Auto", "Optuna", "random search"), (COLOURS[0], COLOURS[1], COLOURS[6]), strict=True))
MOST_TICKS = 1000  # of a base that played more often, evenly spaced rounds are marked
Style = dict[str, Stroke]


def draw(results: Results, allowed: Allowed) -> Iterator[tuple[str, Figure]]:
    """All figures for print, with the names of their files."""
    taken: set[str] = set()
    style = strokes(results.experiment)
    for problem, groups in tables.by_problem(results).items():
        stem = slug(problem, taken)
        yield from ((f"{kind}-{stem}", made) for kind, made in of_problem(problem, groups, style, allowed) if made)


def of_problem(problem: str, groups: Groups, style: Style, allowed: Allowed) -> Iterator[tuple[str, Figure | None]]:
    """The figures of a problem for print; None where there is nothing to see."""
    label = labels(groups)

    def beside(make: Callable[[float, Group], Panel | None], **axes: Any) -> list[Panel | None]:
        made = {label[epsilon]: make(epsilon, group) for epsilon, group in groups.items()}
        return [dataclasses.replace(panel, title=f"ε = {name}", **axes) for name, panel in made.items() if panel]

    def by_policy(make: Callable[[list[Finished], Stroke], Panel | None]) -> list[list[Panel | None]]:
        rows = []
        for policy in dict.fromkeys(policy for group in groups.values() for policy in group):
            titles = [f"ε = {each}" for each in label.values()]
            titles[0] = f"{policy}\n{titles[0]}"
            made = [make(group[policy], style[policy]) if policy in group else None for group in groups.values()]
            rows.append([panel and dataclasses.replace(panel, title=t) for panel, t in zip(made, titles, strict=True)])
        return rows

    def printed(rows: Sequence[Sequence[Panel | None]], note: str, heights: float, **options: Any) -> Figure | None:
        seen = [row for row in rows if any(row)]
        title = f"{problem}: {note}"
        return matplotlib_backend.figure(seen, title, heights=heights, sharey="row", **options) if seen else None

    seeds = {len(runs) for group in groups.values() for runs in group.values()}
    many = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
    over = f"mean over {many} seeds, shaded: central 80 %" if seeds != {1} else "one seed"
    linear = {"y": Axis("cumulative regret (linear)", zero=True)}
    logs = {"x": Axis("round", log=True), "y": Axis("cumulative regret (log)", log=True)}
    rows = [beside(lambda _, group: regret(group, style), **axes) for axes in (linear, logs)]
    yield "regret", printed(rows, over, 2.8)
    yield "share", printed([beside(lambda _, group: share(group, style))], over, 3.4)
    bounds = beside(lambda epsilon, group: bound(group, style, allowed.get((problem, epsilon), {})))
    yield "bound", printed([bounds], "measured (thin), allowed by theorems (thick), and by the class (grey)", 3.4)
    yield "epsilon", printed([[against_epsilon(groups, style)]], "mean over seeds, shaded: central 80 %", 3.6)
    everything = [run for group in groups.values() for runs in group.values() for run in runs]
    note = " (first seed; dashed: the optimum)" if any(map(_flat, everything)) else ", each seed"
    yield "active", printed(by_policy(_active), f"what is still active after each episode{note}", 2.6, legend=False)
    gone = any(run.facts["eliminated"] for run in everything)
    note = "× eliminated (bold: in this seed)" if gone else "none was eliminated"
    yield "bases", printed(by_policy(_bases), f"which base played when, first seed; {note}", 2.8, legend=False)
    note = "cells of the first seed: over the rounds in one dimension, at the end in two"
    yield "cells", printed(by_policy(_cells), note, 2.8, legend=False)
    trusting = tables.trusting(everything)
    note = f"mean over seeds{f' (bands that take the model as right: {trusting})' if trusting else ''}"
    yield "coverage", printed([beside(lambda _, group: coverage(group, style))], note, 3.2)
    for epsilon, group in groups.items():
        yield f"band-{label[epsilon]}", bands.band_figure(problem, label[epsilon], group, style)


def on_page(group: Group, style: Style, allowed: dict[str, list[Bound]]) -> dict[str, Json | None]:
    """The figures of a problem at an ε for the page; None where there is nothing to see."""
    stacked = bases(group, style)
    rows = len(stacked.y.ticks or ()) if stacked else 0
    made: dict[str, tuple[Panel | None, int, Json]] = {
        "regret": (regret(group, style, allowed), 420, {}),
        "share": (share(group, style), 360, {}),
        "active": (active(group, style), 360, {}),
        "bases": (stacked, max(260, 110 + 24 * rows), {"legend": False, "margin": {"l": 75}}),
        "cells": (cells_of(group, style), 400, {}),
        "coverage": (coverage(group, style), 360, {}),
    }
    return {
        name: plotly_backend.figure_json(panel, height, **options) if panel else None
        for name, (panel, height, options) in made.items()
    }


def curve(found: Curve, label: str, stroke: Stroke, **options: Any) -> list[Mark]:
    """Mean and spread."""
    spread = Ribbon(found.x, found.low, found.high, colour=stroke.colour, alpha=0.12, group=label)
    return [spread, _mean(found, label, stroke, **options)]


def _mean(found: Curve, label: str, stroke: Stroke, **options: Any) -> Line:
    return Line(found.x, found.mean, stroke.dash, colour=stroke.colour, label=label, hover="%{y:.4g}", **options)


def regret(group: Group, style: Style, allowed: dict[str, list[Bound]] | None = None) -> Panel:
    """Cumulative regret by round; what theorems allow is hidden at first."""
    marks = [mark for name, runs in group.items() for mark in curve(tables.regret_curve(runs), name, style[name])]
    for policy, found in (allowed or {}).items():
        marks += _allowed(found, policy, style[policy], hidden=True)
    return Panel(marks, Axis("round"), Axis("cumulative regret", zero=True), together=True)


def bound(group: Group, style: Style, allowed: dict[str, list[Bound]]) -> Panel | None:
    """Regret that theorems allow beside what was measured, and GP-UCB's in any case."""
    if not any(allowed.values()):
        return None
    marks: list[Mark] = []
    for policy, found in allowed.items():
        if found or group[policy][0].run.settings["policy"]["kind"] == "GPUCB":
            marks.append(_mean(tables.regret_curve(group[policy]), policy, style[policy]))
            marks += _allowed(found, policy, style[policy])
    widest = max((each for found in allowed.values() for each in found), key=lambda each: len(each.x))
    marks.append(Line(widest.x, widest.most, "dot", 1.2, colour="#888888", label="2(B + ε)t"))
    return Panel(marks, Axis("round", log=True), Axis("cumulative regret", log=True))


def _allowed(found: list[Bound], policy: str, stroke: Stroke, *, hidden: bool = False) -> list[Mark]:
    """Bounds, thick; where they are hidden they have entries of their own in the legend, and are capped."""
    marks: list[Mark] = []
    for each, alpha in zip(found, (0.4, 0.2), strict=False):
        y = np.minimum(each.y, each.most) if hidden else each.y
        look: Any = {"colour": stroke.colour, "alpha": alpha, "group": policy, "hidden": hidden, "hover": "%{y:.4g}"}
        look["label"] = f"{each.name} for {policy}" if hidden else ""
        single = len(each.x) == 1
        marks.append(Points(each.x, y, "diamond", 7, **look) if single else Line(each.x, y, stroke.dash, 2.8, **look))
    return marks


def share(group: Group, style: Style) -> Panel | None:
    """Share of best actions so far, by round; where action sets vary."""
    if not any(each.contextual for runs in group.values() for each in runs):
        return None
    marks = [mark for name, runs in group.items() for mark in curve(tables.share_curve(runs), name, style[name])]
    return Panel(marks, Axis("round"), Axis("share of the best action so far", range=(0, 1.02)), together=True)


def against_epsilon(groups: Groups, style: Style) -> Panel | None:
    """Regret per round against ε, of a problem that has more than one."""
    if len(groups) == 1:
        return None
    found = {policy: tables.epsilon_curve(groups, policy) for policy in style}
    marks = [mark for name, each in found.items() if each for mark in curve(each, name, style[name], marked=True)]
    return Panel(marks, Axis("ε, the size of the misfit"), Axis("regret per round", zero=True), together=True)


def coverage(group: Group, style: Style) -> Panel:
    """Share of f* in the band, by round; lines grow thinner, so that those that coincide all show."""
    marks = [
        _mean(tables.coverage_curve(runs), policy, style[policy], width=1.2 + 2.0 * (1 - i / len(group)))
        for i, (policy, runs) in enumerate(group.items())
    ]
    y = Axis("share of f* inside the band", range=(None, 1.02))
    return Panel(marks, Axis("round", log=True), y, together=True)


def _flat(each: Finished) -> bool:
    return bool(each.pictured and each.facts["dimension"] == 1)


def active(group: Group, style: Style) -> Panel | None:
    """Active sets of phased policies, episode by episode."""
    marks: list[Mark] = []
    for policy, runs in group.items():
        if any(each.facts["episodes"] for each in runs):
            shares = [tables.shares_active(each) for each in runs]
            found = tables.over_seeds(np.arange(len(shares[0])), np.array(shares))
            marks += curve(found, policy, style[policy], marked=True)
    y = Axis("share still active", range=(0, 1.04))
    return Panel(marks, Axis("episodes finished", whole=True), y, together=True) if marks else None


def _active(runs: list[Finished], stroke: Stroke) -> Panel | None:
    """Active set of one policy: where it is, in one dimension, else its size."""
    if not any(each.facts["episodes"] for each in runs):
        return None
    if not _flat(runs[0]):
        shares = [tables.shares_active(each) for each in runs]
        steps = [Line(np.arange(len(s)), s, colour=stroke.colour, alpha=0.5, step=True) for s in shares]
        return Panel(steps, Axis("episode"), Axis("share still active", range=(0, 1.05)))
    each = runs[0]
    x = np.array(each.facts["points"])[:, 0]
    half = 0.5 * (float(np.diff(np.unique(x)).min()) if len(x) > 1 else 1.0)
    after = alive_after(each)
    marks: list[Mark] = [
        Bars(np.full(len(alive), episode), x[alive] - half, x[alive] + half, 0.7, flat=True, colour=stroke.colour)
        for episode, alive in after.items()
    ]
    marks.append(Rule(x[tables.best_first(each)[0]], colour=TRUTH))
    y = Axis("episode", range=(max(after) + 0.6, min(after) - 0.6), whole=True, grid=False)
    return Panel(marks, Axis("x", grid=False), y)


def alive_after(each: Finished) -> dict[int, NDArray[np.intp]]:
    """Episode → the candidates that were active after it, as far as a look was taken between it and the next."""
    kept = each.looks.filter(each.looks["active"].is_not_null())
    ends = np.cumsum([length for length, _, _ in each.facts["episodes"]])
    looks = zip(kept["round"].to_list(), kept["active"].to_list(), strict=True)
    return {int((ends <= t).sum()): np.array(alive, dtype=np.intp) for t, alive in looks}


def base_marks(
    played: NDArray[Any], gone: Iterable[tuple[int, int]], colour: str, first: int = 0, policy: str = ""
) -> list[Mark]:
    """Which base played when, a row of ticks for each from `first` on, and an × where one was eliminated."""
    by_base = [np.flatnonzero(played == base) for base in np.unique(played)]
    some = np.sort(np.concatenate([rounds[:: max(1, len(rounds) // MOST_TICKS)] for rounds in by_base]))
    x, y = 1 + some, first + played[some]
    ticks = Points(x, y, "tick", 7, colour=colour, alpha=0.5, group=policy, hover="round %{x}")
    return [ticks, *(_cross(base + first, when) for base, when in gone)]


def _cross(base: int, when: int, stroke: float = 1.6) -> Points:
    return Points([when], [base], "x", 7, stroke=stroke, colour=TRUTH, hover="eliminated in round %{x}")


def _bases(runs: list[Finished], stroke: Stroke) -> Panel | None:
    """Which base of a balancing policy played when (first seed), and when the rewards refuted it (×, every seed)."""
    first, *others = runs
    hats = first.facts["epsilons"]
    if not hats:
        return None
    marks = base_marks(first.table["base"].to_numpy(), first.facts["eliminated"], stroke.colour)
    marks += [_cross(base, when, 0.6) for run in others for base, when in run.facts["eliminated"]]
    y = Axis("ε̂ of the base", range=(len(hats) - 0.5, -0.5), ticks=range(len(hats)), labels=[f"{h:.2g}" for h in hats])
    return Panel(marks, Axis("round"), y)


def _cells(runs: list[Finished], stroke: Stroke) -> Panel | None:
    """The cells of a policy that splits its domain, first seed."""
    first = runs[0]
    if not first.facts.get("cells") or not first.pictured:
        return None
    played = np.array(first.facts["points"])[first.table["index"].to_numpy()]
    return cells.panel([cells.Drawn(*each) for each in first.facts["cells"]], played, stroke.colour)


def cells_of(group: Group, style: Style) -> Panel | None:
    """Those of the first policy that has any."""
    made = ((policy, _cells(runs, style[policy])) for policy, runs in group.items())
    return next((dataclasses.replace(panel, title=policy) for policy, panel in made if panel), None)


def bases(group: Group, style: Style) -> Panel | None:
    """The bases of all policies in rows under each other, first seed."""
    marks: list[Mark] = []
    rows: list[str] = []
    for policy, (first, *_) in group.items():
        if first.facts["epsilons"]:
            marks.append(Note(1, len(rows), policy, (0, 0), colour=style[policy].colour))
            played, gone = first.table["base"].to_numpy(), first.facts["eliminated"]
            marks += base_marks(played, gone, style[policy].colour, len(rows) + 1, policy)
            rows += ["", *(f"ε̂ = {hat:.2g}" for hat in first.facts["epsilons"])]
    y = Axis(range=(len(rows) - 0.5, -0.5), ticks=range(len(rows)), labels=rows)
    return Panel(marks, Axis("round"), y) if marks else None


def contest_figure(found: Contest) -> Figure:
    """The contest without constants for print."""
    title = "Tuned while producing: what all batches gave, without any constants"
    return matplotlib_backend.figure([[contest(found)]], title, legend=False, width=8.0, heights=4.0, letters=12)


def contest(found: Contest) -> Panel:
    """Average true yield so far by batch: medians, and quartiles over the reactions; at the end, what was found."""
    x, rows = np.arange(1, found.evaluations + 1), found.rows()
    marks: list[Mark] = []
    for name, values in zip(found.players, found.average, strict=True):
        low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
        marks.append(Ribbon(x, low, high, colour=COLOUR_OF[name], alpha=0.15, group=name))
        marks.append(Line(x, middle, width=2.0, colour=COLOUR_OF[name], label=name, hover="%{y:.0f} %"))
    for row, height in zip(rows, _apart([row.average for row in rows]), strict=True):
        beside: Any = {"colour": COLOUR_OF[row.player], "on": "print"}
        marks.append(Note(x[-1], height, f"{row.player}: {row.average:.0f} %", (8, 4), size=12, bold=True, **beside))
        marks.append(Note(x[-1], height, f"best found: {row.found:.0f} %", (8, -9), size=10, **beside))
    marks += [
        Rule(found.best, vertical=False, dash="dot", colour=TRUTH),
        Note(1.0, found.best, "best possible", (6, -11), size=11, colour=TRUTH),
    ]
    about = f"batch (median and quartiles of {found.seeds} simulated reactions)"
    y = Axis("average true yield so far, %", range=(0, 100))
    return Panel(marks, Axis(about, range=(1, int(x[-1])), whole=True), y, together=True)


def _apart(heights: list[float], least: float = 13.0) -> list[float]:
    """Heights of labels, moved up where they would cover each other."""
    placed: dict[int, float] = {}
    for i in np.argsort(heights, kind="stable"):
        placed[int(i)] = max([heights[i], *(height + least for height in placed.values())])
    return [placed[i] for i in range(len(heights))]
