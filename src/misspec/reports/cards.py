"""The cards of the page: a policy's band, which a slider moves through the rounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from misspec.errors import Array
from misspec.experiments.store import Finished
from misspec.reports import tables
from misspec.reports.plots import Json, figure_of, packed, tinted
from misspec.reports.style import MEMBER, MISSED, MOST_ARMS, TRUTH, TUBE, Stroke, as_grid, vertical

MOST_CURVE = 300  # candidates of a one-dimensional domain that are drawn
MOST_MARKED = 400  # candidates of a two-dimensional one that are marked, the most played


def cards(pictured: list[Finished], style: dict[str, Stroke]) -> list[Json]:
    """One for each policy whose band can be drawn."""
    found = []
    for each in pictured:
        make = _card_maker(each)
        if make is not None:
            figure, frames = make(each, style[each.run.policy])
            found.append({"name": each.run.policy, "figure": figure, "frames": frames})
    return found


def _card_maker(each: Finished) -> Callable[[Finished, Stroke], tuple[Json, list[Json]]] | None:
    if each.facts["dimension"] == 1:
        return card_1d
    if each.facts["dimension"] == 2:
        return _card_2d
    return _card_arms if each.facts["candidates"] <= MOST_ARMS else None


def _counts(each: Finished) -> Array:
    """How often each candidate was played, at every look: (looks, N)."""
    index, N = each.table["index"].to_numpy(), each.facts["candidates"]
    return np.array([np.bincount(index[:t], minlength=N) for t in each.looks["round"].to_list()], dtype=np.float64)


def _bands(each: Finished) -> tuple[Array, Array, Array]:
    """Lower ends, upper ends and means at every look: (looks, N) each."""
    return tuple(np.array(each.looks[name].to_list()) for name in ("band_lower", "band_upper", "band_mean"))  # type: ignore[return-value]


def _alive(each: Finished) -> Array | None:
    """Whether a candidate is active, at every look; None except for phased policies."""
    lists = each.looks["active"].to_list()
    if lists[0] is None:
        return None
    found = np.zeros((len(lists), each.facts["candidates"]))
    for row, alive in zip(found, lists, strict=True):
        row[alive] = 1.0
    return found


def _frames(attribute: str, changes: dict[int, Array]) -> Json:
    """What the slider sets: an attribute of some traces, one row per look."""
    return {"attribute": attribute, "traces": list(changes), "packed": [packed(v, rows=True) for v in changes.values()]}


def card_1d(each: Finished, stroke: Stroke) -> tuple[Json, list[Json]]:
    x = np.array(each.facts["points"])[:, 0]
    order = np.argsort(x, kind="stable")
    parts = np.arange(0, len(x), math.ceil(len(x) / MOST_CURVE))  # of many candidates, neighbours share a place
    chosen = order[parts]
    x = x[chosen]
    f, member = (np.array(each.facts[name])[chosen] for name in ("truth", "in_class"))
    lower, upper, mean = (values[:, chosen] for values in _bands(each))
    counts = np.add.reduceat(_counts(each)[:, order], parts, axis=1)
    alive = _alive(each)
    low, high = vertical(np.array(each.facts["truth"]))

    def line(y: Array, name: str, width: float = 0.0, colour: str = "black", **options: Any) -> Json:
        quiet = {"hoverinfo": "skip"} if not width else {"hovertemplate": "%{y:.3f}<extra>" + name + "</extra>"}
        return {
            "type": "scatter", "mode": "lines", "x": packed(x), "y": packed(y), "name": name,
            "line": {"width": width, "color": colour}, **quiet, **options,
        }  # fmt: skip

    traces = [
        line(member - each.epsilon, "f̃ − ε"),
        line(member + each.epsilon, "f̃ + ε", fill="tonexty", fillcolor=TUBE),
        line(lower[-1], "lower", hoverinfo="skip"),
        line(upper[-1], "upper", fill="tonexty", fillcolor=tinted(stroke.colour, 0.22)),
        line(member, "f̃", 1.2, MEMBER),
        line(f, "f*", 1.0, TRUTH),
        line(mean[-1], "mean", 1.6, stroke.colour) | {"line": {"width": 1.6, "color": stroke.colour, "dash": "dash"}},
        {
            "type": "bar",
            "x": packed(x),
            "y": packed(np.sqrt(counts[-1])),
            "customdata": packed(counts[-1]),
            "marker": {"color": stroke.colour},
            "yaxis": "y2",
            "hovertemplate": "played %{customdata}×<extra></extra>",
        },
    ]
    outside = np.where((f < lower) | (f > upper), f, np.nan)
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "x": packed(x),
            "y": packed(outside[-1]),
            "marker": {"size": 4, "color": MISSED},
            "hovertemplate": "f* outside the band<extra></extra>",
        }
    )
    moving = {2: lower, 3: upper, 6: mean, 7: np.sqrt(counts), 8: outside}
    if alive is not None:
        rug = np.where(np.maximum.reduceat(alive[:, order], parts, axis=1) > 0, low + 0.02 * (high - low), np.nan)
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": packed(x),
                "y": packed(rug[-1]),
                "marker": {"symbol": "line-ns", "size": 10, "line": {"width": 2, "color": "#333"}},
                "hovertemplate": "still active<extra></extra>",
            }
        )
        moving[9] = rug
    figure = figure_of(
        traces,
        showlegend=False,
        height=300,
        hovermode="x",
        bargap=0,
        margin={"l": 38, "r": 8, "t": 6, "b": 28},
        xaxis={
            "anchor": "y2",
            "range": [float(x[0]) - 0.01 * float(np.ptp(x)), float(x[-1]) + 0.01 * float(np.ptp(x))],
        },
        yaxis={"range": [low, high], "domain": [0.2, 1]},
        yaxis2={
            "range": [0, max(1.0, float(np.sqrt(counts.max())))],
            "domain": [0, 0.16],
            "showticklabels": False,
            "ticks": "",
        },
    )
    return figure, [_frames("y", moving), _frames("customdata", {7: counts})]


def _card_2d(each: Finished, stroke: Stroke) -> tuple[Json, list[Json]]:
    points = np.array(each.facts["points"])
    lower, upper, _ = _bands(each)
    width, counts, alive = upper - lower, _counts(each), _alive(each)
    model = each.run.settings["model"]
    top = 2.0 * model["norm_bound"] if model else float(np.quantile(width[0], 0.95)) or 1.0  # the same for all policies
    scale: Json = {"colorscale": "Magma", "zmin": 0.0, "zmax": top}
    bar = {"thickness": 10, "title": {"text": "width", "side": "top"}}
    grid = as_grid(points)
    if grid is not None:
        xs, ys, order = grid
        cells = {"type": "heatmap", "x": packed(xs), "y": packed(ys)}
        shape = [len(ys), len(xs)]
        hover = "%{x:.3g}, %{y:.3g}: width %{z:.3g}<extra></extra>"
        traces: list[Json] = [
            cells | scale | {"z": width[-1][order].reshape(shape).tolist(), "hovertemplate": hover, "colorbar": bar}
        ]
        frames = [_frames("z", {0: width[:, order]}) | {"shape": shape}]
        if alive is not None:
            gone = np.where(alive[:, order] > 0, np.nan, 1.0)
            grey = {"colorscale": [[0, "rgba(255,255,255,0.75)"], [1, "rgba(255,255,255,0.75)"]], "showscale": False}
            start = [[None if np.isnan(v) else v for v in row] for row in gone[-1].reshape(shape).tolist()]
            traces.append(cells | grey | {"z": start, "hoverinfo": "skip"})
            frames[0] = _frames("z", {0: width[:, order], 1: gone}) | {"shape": shape}
    else:
        marker = {
            "size": 6,
            "color": packed(width[-1]),
            "cmin": 0.0,
            "cmax": top,
            "colorscale": "Magma",
            "colorbar": bar,
        }
        hover = "%{x:.3g}, %{y:.3g}: width %{marker.color:.3g}<extra></extra>"
        traces = [
            {"type": "scatter", "mode": "markers", **_xy(points), "marker": marker, "hovertemplate": hover},
        ]
        frames = [_frames("marker.color", {0: width})]
        if alive is not None:
            frames.append(_frames("marker.opacity", {0: np.where(alive > 0, 1.0, 0.15)}))
    often = np.argsort(-counts[-1], kind="stable")[:MOST_MARKED]
    often = often[counts[-1][often] > 0]
    sizes = np.where(counts[:, often] > 0, 4.0 + 14.0 * np.sqrt(counts[:, often] / counts[-1].max()), 0.0)
    ring = {"size": packed(sizes[-1]), "color": "rgba(0,0,0,0)", "line": {"width": 1.5, "color": "#56d4ff"}}
    traces.append({"type": "scatter", "mode": "markers", **_xy(points[often]), "marker": ring, "hoverinfo": "skip"})
    frames.append(_frames("marker.size", {len(traces) - 1: sizes}))
    star = {"symbol": "star", "size": 13, "color": stroke.colour, "line": {"width": 1, "color": "white"}}
    best = points[tables.best_first(each)[:1]]
    traces.append(
        {"type": "scatter", "mode": "markers", **_xy(best), "marker": star, "hovertemplate": "optimum<extra></extra>"}
    )
    margin = {"l": 34, "r": 4, "t": 6, "b": 26}
    figure = figure_of(traces, showlegend=False, height=320, margin=margin, xaxis={}, yaxis={})
    return figure, frames


def _xy(points: Array) -> Json:
    return {"x": packed(points[:, 0]), "y": packed(points[:, 1])}


def _card_arms(each: Finished, stroke: Stroke) -> tuple[Json, list[Json]]:
    f = np.array(each.facts["truth"])
    order = tables.best_first(each)
    place = np.arange(1, len(f) + 1)
    lower, upper, _ = (values[:, order] for values in _bands(each))
    counts, member = _counts(each)[:, order], np.array(each.facts["in_class"])[order]
    traces: list[Json] = [
        {
            "type": "bar", "x": packed(place), "base": packed(lower[-1]), "y": packed((upper - lower)[-1]),
            "width": 0.5, "marker": {"color": tinted(stroke.colour, 0.3)}, "hoverinfo": "skip",
        },
        {
            "type": "scatter", "mode": "markers", "x": packed(place), "y": packed(member),
            "marker": {"symbol": "line-ew", "size": 9, "line": {"width": 1.5, "color": MEMBER}},
            "error_y": {"type": "constant", "value": each.epsilon, "color": MEMBER, "thickness": 1, "width": 3},
            "hovertemplate": "f̃ %{y:.3f}<extra></extra>",
        },
        {
            "type": "scatter", "mode": "markers", "x": packed(place), "y": packed(f[order]),
            "marker": {"size": 6, "color": TRUTH}, "customdata": packed(counts[-1]),
            "hovertemplate": "f* %{y:.3f}, played %{customdata}×<extra></extra>",
        },
    ]  # fmt: skip
    frames = [_frames("base", {0: lower}), _frames("y", {0: upper - lower}), _frames("customdata", {2: counts})]
    figure = figure_of(
        traces,
        showlegend=False,
        height=300,
        margin={"l": 38, "r": 8, "t": 6, "b": 40},
        xaxis={"title": {"text": "candidates, best first"}},
        yaxis={"range": list(vertical(f))},
    )
    return figure, frames


def keys(each: Finished) -> str:
    return ("<span>smaller is better</span>" if each.minimize else "") + _keys(each)


def _keys(each: Finished) -> str:
    if each.facts["dimension"] == 2:
        said = ("colour: width of the band", "rings: points played", "star: the optimum", "faded: eliminated (phased)")
        return "".join(f"<span>{each}</span>" for each in said)
    keys = [(f"background:{TUBE}", "f̃ ± ε"), ("background:#ccd", "band for f*")]
    if each.facts["dimension"] == 1:
        keys = [
            (f"background:{TRUTH};height:2px", "f*, the truth"),
            (f"background:{MISSED};width:6px;height:6px;border-radius:3px", "where it lies outside the band"),
            (f"background:{MEMBER};height:2px", "f̃, best in class"),
            *keys,
            ("border-top:2px dashed #557;height:0", "posterior mean"),
            ("border-bottom:3px solid #333;height:0.4rem", "still active (phased)"),
            ("background:#557;height:0.3rem", "times played, below"),
        ]
    else:
        keys = [(f"background:{TRUTH};width:7px;height:7px;border-radius:4px", "f*, the truth"), *keys]
    return "".join(f'<span><i style="{css}"></i>{name}</span>' for css, name in keys)
