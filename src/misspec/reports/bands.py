"""A policy's band beside the truth: at the end for print, and through the rounds on the page's cards."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from misspec.errors import Array
from misspec.experiments.store import BANDS, Finished
from misspec.reports import matplotlib_backend, plotly_backend, tables
from misspec.reports.picture import Axis, Bars, Counts, Heat, Line, Mark, Note, Panel, Points, Ribbon
from misspec.reports.plotly_backend import Json
from misspec.reports.style import MEMBER, MISSED, TRUTH, TUBE, Stroke
from misspec.reports.tables import Group

MOST_ARMS = 60  # candidates of more than two dimensions that are still drawn one by one
MOST_CURVE = 300  # candidates of a one-dimensional domain that the page draws
MOST_MARKED = 400  # candidates of a two-dimensional one that the page marks, the most played
BEST = "#d62728"  # the optimum in print


def band_figure(problem: str, epsilon: str, group: Group, style: dict[str, Stroke]) -> Figure | None:
    """The bands at the end of the first seed's runs: curves in one dimension, heat maps in two."""
    runs = [found[0] for found in group.values() if _drawable(found[0])]
    if not runs:
        return None
    first = runs[0]
    title = f"{problem}, ε = {epsilon}, seed {first.run.seed}: after the last round"
    title += " (smaller is better)" if first.minimize else ""
    if first.facts["dimension"] == 2:
        rows, title = _maps(runs), f"{title} (star: the optimum)"
        size: Any = {"legend": False, "width": 3.3, "heights": 2.7}
    else:
        panels = [_panel(each, style[each.run.policy]) for each in runs]
        rows, size = [panels[i : i + 2] for i in range(0, len(panels), 2)], {"width": 5.2, "heights": 2.3}
        title += "; ticks below: points played, longer where more often" if first.facts["dimension"] == 1 else ""
    return matplotlib_backend.figure(rows, title, sharex=True, sharey=True, **size)


def cards(pictured: list[Finished], style: dict[str, Stroke]) -> list[Json]:
    """One for each policy whose band can be drawn."""
    found = []
    for each in filter(_drawable, pictured):
        panel = _panel(each, style[each.run.policy], MOST_CURVE)
        made, frames = plotly_backend.animated(panel, 300, legend=False, small=True)
        found.append({"name": each.run.policy, "figure": made, "frames": frames})
    return found


def _drawable(each: Finished) -> bool:
    return bool(each.pictured and (each.facts["dimension"] <= 2 or each.facts["candidates"] <= MOST_ARMS))


def _panel(each: Finished, stroke: Stroke, most: int | None = None) -> Panel:
    if each.facts["dimension"] == 1:
        return curves(each, stroke, most)
    return _heat_map(each, stroke) if each.facts["dimension"] == 2 else _arms(each, stroke)


class _Looks:
    """A run as arrays, with a row for each look and a column for each candidate.

    counts   plays up to the look
    alive    whether the candidate is active; None except for phased policies
    room     ends of the picture, with room for the truth; wide bands run out of it
    """

    def __init__(self, each: Finished) -> None:
        N, rounds, lists = each.facts["candidates"], each.looks["round"].to_list(), each.looks["active"].to_list()
        self.points, self.f, self.member = (np.array(each.facts[name]) for name in ("points", "truth", "in_class"))
        self.lower, self.upper, self.mean = (np.array(each.looks[name].to_list()) for name in BANDS)
        index = each.table["index"].to_numpy()
        self.counts = np.array([np.bincount(index[:t], minlength=N) for t in rounds], dtype=np.float64)
        self.alive = None if lists[0] is None else np.array([np.isin(np.arange(N), alive) for alive in lists])
        extent = float(np.ptp(self.f)) or 1.0
        self.room = float(self.f.min()) - 0.8 * extent, float(self.f.max()) + 0.6 * extent

    def star(self, each: Finished, colour: str) -> Points:
        best = self.points[tables.best_first(each)[:1]]
        return Points(best[:, 0], best[:, 1], "star", 9, colour=colour, label="optimum", hover=" ")


def curves(each: Finished, stroke: Stroke, most: int | None = None) -> Panel:
    """The band over one dimension. most: candidates drawn; of more, neighbours share a column."""
    looks = _Looks(each)
    x = looks.points[:, 0]
    order = np.argsort(x, kind="stable")
    parts = np.arange(0, len(x), math.ceil(len(x) / (most or len(x))))
    chosen = order[parts]
    x, f, member = x[chosen], looks.f[chosen], looks.member[chosen]
    lower, upper, mean = (values[:, chosen] for values in (looks.lower, looks.upper, looks.mean))
    low, high = looks.room
    hover, colour = "%{y:.3f}", stroke.colour
    outside = np.where((f < lower) | (f > upper), f, np.nan)
    marks: list[Mark] = [
        Ribbon(x, member - each.epsilon, member + each.epsilon, colour=TUBE, alpha=0.8, label="f̃ ± ε"),
        Ribbon(x, lower, upper, colour=colour, alpha=0.22, label="band for f*"),
        Line(x, member, width=1.0, colour=MEMBER, label="f̃, best in class", hover=hover),
        Line(x, f, width=0.8, colour=TRUTH, label="f*, the truth", hover=hover),
        Line(x, mean, "dash", 1.2, colour=colour, label="posterior mean", hover=hover),
        Counts(x, np.add.reduceat(looks.counts[:, order], parts, axis=1), colour=colour),
        Points(x, outside, size=2.5, colour=MISSED, label="f* outside the band", hover=hover),
    ]
    if looks.alive is not None:
        alive = np.logical_or.reduceat(looks.alive[:, order], parts, axis=1)
        rug = np.where(alive, low + 0.02 * (high - low), np.nan)
        marks.append(Points(x, rug, "tick", 6.5, colour="#333333", label="still active", hover=" ", on="page"))
    pad = 0.01 * float(np.ptp(x))
    ends = (float(x[0]) - pad, float(x[-1]) + pad) if pad else None
    return Panel(marks, Axis("x", range=ends), Axis(range=(low, high)), each.run.policy, together=True)


def _heat_map(each: Finished, stroke: Stroke) -> Panel:
    """The width of the band over two dimensions, rings where it was played, what is eliminated faded."""
    looks, model = _Looks(each), each.run.settings["model"]
    points, counts, alive, width = looks.points, looks.counts, looks.alive, looks.upper - looks.lower
    top = 2.0 * model["norm_bound"] if model else float(np.quantile(width[0], 0.95)) or 1.0  # the same for all policies
    often = np.argsort(-counts[-1], kind="stable")[:MOST_MARKED]
    often = often[counts[-1][often] > 0]
    sizes = np.where(counts[:, often] > 0, 2.7 + 9.3 * np.sqrt(counts[:, often] / counts[-1].max()), 0.0)
    rings = Points(points[often, 0], points[often, 1], "ring", sizes, colour="#56d4ff")
    heat = Heat(points, width, "magma", (0.0, top), None if alive is None else ~alive, label="width")
    return Panel([heat, rings, looks.star(each, stroke.colour)])


def _maps(runs: list[Finished]) -> list[list[Panel]]:
    """Two dimensions in print: the truth in the first row, then a row for each policy."""
    first = _Looks(runs[0])
    f, member, star = first.f, first.member, first.star(runs[0], BEST)
    most, extent = float(np.abs(f - member).max()) or 1.0, (float(f.min()), float(f.max()))

    def panel(values: Array, colours: str, title: str, limits: tuple[float, float] | None = None) -> Panel:
        heat = Heat(first.points, values, colours, limits or (float(values.min()), float(values.max())))
        return Panel([heat, star], Axis(grid=False), Axis(grid=False), title)

    rows = [[
        panel(f, "viridis", "f*, the truth"),
        panel(member, "viridis", "f̃, best in class", extent),
        panel(f - member, "RdBu_r", "misfit f* − f̃", (-most, most)),
    ]]  # fmt: skip
    for each in runs:
        looks = _Looks(each)
        rows.append([
            panel(looks.mean[-1], "viridis", f"{each.run.policy}\nmean", extent),
            panel(looks.upper[-1] - looks.lower[-1], "magma", "width of the band"),
            panel(np.log10(1 + looks.counts[-1]), "Greys", "log₁₀(1 + times played)"),
        ])  # fmt: skip
    return rows


def _arms(each: Finished, stroke: Stroke) -> Panel:
    """The bands of candidates one by one, best first."""
    looks, order = _Looks(each), tables.best_first(each)
    x, f, member, (low, high) = np.arange(1, len(order) + 1), looks.f[order], looks.member[order], looks.room
    lower, upper, counts = (values[:, order] for values in (looks.lower, looks.upper, looks.counts))
    marks: list[Mark] = [
        Bars(x, lower, upper, 0.5, colour=stroke.colour, alpha=0.3, label="band for f*"),
        Points(x, member, "dash", 6, stroke=1.0, low=member - each.epsilon, high=member + each.epsilon, colour=MEMBER,
               label="f̃ ± ε", hover="%{y:.3f}"),
        Points(x, f, size=3.5, colour=TRUTH, label="f*, the truth", hover="%{y:.3f}"),
        Counts(x, counts, colour=stroke.colour, on="page"),
    ]  # fmt: skip
    marks += [
        Note(at, low + 0.05 * (high - low), f"{n:.0f}", (0, 0), "center", 6, on="print")
        for at, n in zip(x.tolist(), counts[-1], strict=True)
        if n
    ]
    return Panel(marks, Axis("candidates, best first; below: times played"), Axis(range=(low, high)), each.run.policy)


def keys(each: Finished) -> str:
    """Key of the cards, in HTML."""
    plain, dot = "width:0;margin:0", "width:7px;height:7px;border-radius:4px"
    found = [(plain, "smaller is better")] if each.minimize else []
    if each.facts["dimension"] == 2:
        said = ("colour: width of the band", "rings: points played", "star: the optimum", "faded: eliminated (phased)")
        found += [(plain, text) for text in said]
    else:
        curve, flat = (f"background:{MEMBER};height:2px", "f̃, best in class"), each.facts["dimension"] == 1
        found += [(f"background:{TRUTH};{'height:2px' if flat else dot}", "f*, the truth")]
        found += [(f"background:{MISSED};{dot}", "where it lies outside the band")] if flat else []
        found += [curve, (f"background:{TUBE}", "f̃ ± ε"), ("background:#ccd", "band for f*")]
        found += [("border-top:2px dashed #557;height:0", "posterior mean")] if flat else []
        found += [("border-bottom:3px solid #333;height:0.4rem", "still active (phased)")] if flat else []
        found += [("background:#557;height:0.3rem", "times played, below")]
    return "".join(f"<span><i style='{css}'></i>{name}</span>" for css, name in found)
