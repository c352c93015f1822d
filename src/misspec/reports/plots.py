"""Figures for the page, with Plotly: one function per figure, each returns its JSON or None where there is nothing."""

from __future__ import annotations

import base64
import html
from typing import Any

import numpy as np

from misspec.experiments.store import Results
from misspec.reports import tables
from misspec.reports.bounds import Bound
from misspec.reports.style import TRUTH, Stroke
from misspec.reports.tables import Group

Json = dict[str, Any]


def plain(name: str) -> str:
    """A name as Plotly should print it: Plotly reads a little HTML, and formulas between dollars."""
    return html.escape(name, quote=False).replace("$", "&#36;")


def hover(template: str, name: str) -> str:
    """A template with a name beside it, in which Plotly must fill in nothing."""
    shown = plain(name).replace("%{", "%\u200b{")
    return f"{template}<extra>{shown}</extra>"


def packed(values: Any, *, rows: bool = False) -> Json:
    """Numbers as Plotly reads them from text: base64 of 32-bit floats. rows: of a matrix, one frame per row."""
    array = np.ascontiguousarray(values, dtype="<f4")
    found: Json = {"dtype": "f4", "bdata": base64.b64encode(array.tobytes()).decode()}
    return found | {"shape": f"{array.shape[0]}, {array.shape[1]}"} if rows else found


def tinted(colour: str, alpha: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def figure_of(traces: list[Json], **layout: Any) -> Json:
    """A figure, checked by Plotly."""
    import plotly.graph_objects as go

    base: Json = {
        "margin": {"l": 55, "r": 15, "t": 15, "b": 45},
        "font": {"family": "system-ui, sans-serif", "size": 12},
        "plot_bgcolor": "white",
        "paper_bgcolor": "white",
        "hoverlabel": {"namelength": -1},
        "showlegend": True,
        "height": 420,
        "template": "none",
    }
    axis = {"gridcolor": "#eee", "zeroline": False, "linecolor": "#bbb", "ticks": "outside", "tickcolor": "#bbb"}
    for name in [key for key in layout if key.startswith(("xaxis", "yaxis"))]:
        layout[name] = axis | layout[name]
    found = go.Figure({"data": traces, "layout": base | layout}).to_dict()
    return {"data": found["data"], "layout": found["layout"]}


def _curve(curve: tables.Curve, policy: str, stroke: Stroke, **options: Any) -> list[Json]:
    """Mean and spread; a click on the legend hides both."""
    name = plain(policy)
    shared: Json = {"type": "scatter", "legendgroup": name, "name": name, "hoverinfo": "skip", "showlegend": False}
    return [
        shared | {"x": packed(curve.x), "y": packed(curve.low), "mode": "lines", "line": {"width": 0}},
        shared
        | {
            "x": packed(curve.x),
            "y": packed(curve.high),
            "mode": "lines",
            "line": {"width": 0},
            "fill": "tonexty",
            "fillcolor": tinted(stroke.colour, 0.12),
        },
        shared
        | {
            "x": packed(curve.x),
            "y": packed(curve.mean),
            "mode": "lines",
            "line": {"color": stroke.colour, "dash": stroke.dash, "width": 2},
            "showlegend": True,
            "hoverinfo": "all",
            "hovertemplate": hover("%{y:.4g}", policy),
        }
        | options,
    ]


# -- regret and coverage -----------------------------------------------------------------------------------------------


def regret(group: Group, style: dict[str, Stroke], allowed: dict[str, list[Bound]]) -> tuple[Json, list[int]]:
    """The figure, and the numbers of the traces that are bounds."""
    traces = [t for policy, runs in group.items() for t in _curve(tables.regret_curve(runs), policy, style[policy])]
    first = len(traces)
    for policy, found in allowed.items():
        for each, alpha in zip(found, (0.4, 0.2), strict=False):
            name = f"{each.name} for {policy}"
            colour = tinted(style[policy].colour, alpha)
            traces.append(
                {
                    "type": "scatter",
                    "x": packed(each.x),
                    "y": packed(each.y),
                    "mode": "markers" if len(each.x) == 1 else "lines",
                    "marker": {"symbol": "diamond", "size": 11, "color": colour},
                    "line": {"color": colour, "dash": style[policy].dash, "width": 5},
                    "name": plain(name),
                    "hovertemplate": hover("%{y:.4g}", name),
                    "legendgroup": plain(policy),
                    "visible": False,
                }
            )
    figure = figure_of(
        traces,
        hovermode="x",
        xaxis={"title": {"text": "round"}},
        yaxis={"title": {"text": "cumulative regret"}, "rangemode": "tozero"},
    )
    return figure, list(range(first, len(traces)))


def share(group: Group, style: dict[str, Stroke]) -> Json | None:
    """How often the best action was played, by round; where action sets vary."""
    if not any(each.contextual for runs in group.values() for each in runs):
        return None
    traces = [t for policy, runs in group.items() for t in _curve(tables.share_curve(runs), policy, style[policy])]
    return figure_of(
        traces,
        hovermode="x",
        height=360,
        xaxis={"title": {"text": "round"}},
        yaxis={"title": {"text": "share of the best action"}, "range": [0, 1.02]},
    )


def against_epsilon(results: Results, problem: str, style: dict[str, Stroke]) -> Json:
    """Regret per round against ε."""
    traces = [
        trace
        for policy, stroke in style.items()
        if (curve := tables.epsilon_curve(results, problem, policy)) is not None
        for trace in _curve(curve, policy, stroke, mode="lines+markers")
    ]
    return figure_of(
        traces,
        hovermode="x",
        xaxis={"title": {"text": "ε, how wrong the model is"}},
        yaxis={"title": {"text": "regret per round"}, "rangemode": "tozero"},
    )


def coverage(group: Group, style: dict[str, Stroke]) -> Json:
    """How much of f* lies in the band, by round."""
    traces = [
        trace
        for policy, runs in group.items()
        for trace in _curve(tables.coverage_curve(runs), policy, style[policy])[2:]
    ]
    return figure_of(
        traces,
        hovermode="x",
        height=360,
        xaxis={"title": {"text": "round"}, "type": "log"},
        yaxis={"title": {"text": "share of f* inside the band"}},
    )


# -- what the policies did ---------------------------------------------------------------------------------------------


def active(group: Group, style: dict[str, Stroke]) -> Json | None:
    """How much a phased policy has left, episode by episode."""
    traces: list[Json] = []
    for policy, runs in group.items():
        if not any(each.facts["episodes"] for each in runs):
            continue
        shares = [tables.shares_active(each) for each in runs]
        curve = tables.over_seeds(np.arange(len(shares[0])), np.array(shares))
        traces += _curve(curve, policy, style[policy], mode="lines+markers")
    if not traces:
        return None
    xaxis = {"title": {"text": "episodes finished"}, "dtick": 1}
    yaxis = {"title": {"text": "share still active"}, "range": [0, 1.04]}
    return figure_of(traces, height=360, hovermode="x", xaxis=xaxis, yaxis=yaxis)


def bases(group: Group, style: dict[str, Stroke]) -> Json | None:
    """A row of marks per base, under the name of its policy, first seed; × where a base was eliminated."""
    traces: list[Json] = []
    rows: list[str] = []
    names: list[Json] = []
    for policy, runs in group.items():
        each, hats, shared = runs[0], runs[0].facts["epsilons"], {"type": "scatter", "mode": "markers"}
        if not hats:
            continue
        heading = {
            "text": plain(policy),
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": len(rows),
            "showarrow": False,
        }
        names.append(heading | {"font": {"color": style[policy].colour}})
        first = len(rows) + 1
        rows += ["", *(f"ε̂ = {hat:.2g}" for hat in hats)]
        played = first + each.table["base"].to_numpy()
        some = tables.some_of_each(played)
        line = {"width": 1.2, "color": tinted(style[policy].colour, 0.6)}
        played_at = {"x": packed(np.arange(1, len(played) + 1)[some]), "y": packed(played[some])}
        marker = {"symbol": "line-ns", "size": 9, "line": line}
        traces.append(shared | played_at | {"marker": marker, "hovertemplate": hover("round %{x}", policy)})
        if each.facts["eliminated"]:
            base, when = np.array(each.facts["eliminated"]).T
            cross = {"symbol": "x", "size": 11, "color": TRUTH}
            gone = "eliminated in round %{x}<extra></extra>"
            traces.append(
                shared | {"x": packed(when), "y": packed(first + base), "marker": cross, "hovertemplate": gone}
            )
    if not traces:
        return None
    yaxis = {"tickvals": list(range(len(rows))), "ticktext": rows, "range": [len(rows) - 0.5, -0.5]}
    size = {"height": max(260, 110 + 24 * len(rows)), "margin": {"l": 75, "r": 15, "t": 15, "b": 45}}
    xaxis = {"title": {"text": "round"}}
    return figure_of(traces, showlegend=False, annotations=names, xaxis=xaxis, yaxis=yaxis, **size)
