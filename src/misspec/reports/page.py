"""One self-contained page: Plotly inside, no network, every name escaped."""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Callable
from importlib import metadata, resources
from typing import Any

import numpy as np
import polars as pl

from misspec.errors import Array
from misspec.experiments.store import Finished, Results
from misspec.reports import tables
from misspec.reports.bounds import Bound
from misspec.reports.figures import MOST_ARMS, Allowed, as_grid, vertical
from misspec.reports.style import MEMBER, MISSED, TRUTH, TUBE, Stroke, labels, strokes

MOST_CURVE = 300  # candidates of a one-dimensional domain that are drawn
MOST_MARKED = 400  # most often played candidates of a two-dimensional one that are marked
Group = dict[str, list[Finished]]
Json = dict[str, Any]


def page(results: Results, summary: pl.DataFrame, allowed: Allowed) -> str:
    """The page as HTML; summary and allowed are what `tables.summary` and `bounds.all_bounds` find."""
    from plotly.offline import get_plotlyjs

    style, groups = strokes(results.experiment), results.groups()
    problems = list(dict.fromkeys(problem for problem, _ in groups))
    index: list[Json] = [{"name": problem, "epsilons": []} for problem in problems]
    scripts = []
    for number, ((problem, epsilon), group) in enumerate(groups.items()):
        label = labels(each for name, each in groups if name == problem)
        index[problems.index(problem)]["epsilons"].append((f"ε = {label[epsilon]}", number, epsilon))
        mine = summary.filter((pl.col("problem") == problem) & (pl.col("epsilon") == epsilon))
        several = sum(name == problem for name, _ in groups) > 1
        by_epsilon = _epsilon(results, problem, style) if several else None
        here = {policy: allowed.get((problem, epsilon, policy), []) for policy in group}
        scripts.append((f"group-{number}", _group(group, style, mine, by_epsilon, here)))
    title = results.experiment.title or results.path.resolve().name
    seeds = len(results.experiment.all_seeds)
    done = (
        "" if len(results.runs) == results.of else f" ({results.of - len(results.runs)} of {results.of} still missing)"
    )
    about = (
        f"{len(results.runs)} runs{done}: {len(style)} policies, {len(problems)} problem{'s' * (len(problems) > 1)}, "
        f"{seeds} seed{'s' * (seeds > 1)}, {results.experiment.horizon:,} rounds each"
    )
    data = "\n".join(
        f'<script type="application/json" id="{name}">{_script(content)}</script>'
        for name, content in [("index", index), *scripts]
    )
    return _PAGE.format(
        title=html.escape(title),
        about=html.escape(about),
        notes="".join(f"<p>{html.escape(line)}</p>" for line in results.experiment.notes.splitlines() if line.strip()),
        version=html.escape(metadata.version("misspec")),
        css=_asset("page.css"),
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
        data=data,
        js=_asset("page.js"),
    )


def _asset(name: str) -> str:
    return resources.files("misspec.reports").joinpath(name).read_text(encoding="utf-8")


def _script(content: Any) -> str:
    """JSON that can stand in a script element."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def plain(name: str) -> str:
    """A name as Plotly shall print it: it reads a little HTML."""
    return html.escape(name, quote=False)


def _hover(template: str, name: str) -> str:
    """A template with a name beside it, in which Plotly shall fill in nothing."""
    return f"{template}<extra>{plain(name)}</extra>".replace(plain(name), plain(name).replace("%{", "%\u200b{"))


def packed(values: Any, *, rows: bool = False) -> Json:
    """Numbers as Plotly reads them from text: base64 of 32-bit floats. rows: of a matrix, one frame a row."""
    array = np.ascontiguousarray(values, dtype="<f4")
    found: Json = {"dtype": "f4", "bdata": base64.b64encode(array.tobytes()).decode()}
    return found | {"shape": f"{array.shape[0]}, {array.shape[1]}"} if rows else found


def tinted(colour: str, alpha: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


# -- a problem at an ε -------------------------------------------------------------------------------------------------


def _group(
    group: Group,
    style: dict[str, Stroke],
    summary: pl.DataFrame,
    by_epsilon: Json | None,
    allowed: dict[str, list[Bound]],
) -> Json:
    regret, bounds = _regret(group, style, allowed)
    cards = _cards(group, style)
    return {
        "figures": {
            "regret": regret,
            "epsilon": by_epsilon,
            "active": _active(group, style),
            "bases": _bases(group, style),
            "coverage": _coverage(group, style),
        },
        "bounds": bounds,
        "cards": cards,
        "rounds": _pictured(group)[0].looks["round"].to_list() if cards else [],
        "table": _table(summary, style),
        "keys": _keys(_pictured(group)[0]) if cards else "",
    }


def _pictured(group: Group) -> list[Finished]:
    return [runs[0] for runs in group.values() if runs[0].pictured]


def _figure(traces: list[Json], **layout: Any) -> Json:
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


def _curve(curve: tables.Curve, policy: str, look: Stroke, **options: Any) -> list[Json]:
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
            "fillcolor": tinted(look.colour, 0.12),
        },
        shared
        | {
            "x": packed(curve.x),
            "y": packed(curve.mean),
            "mode": "lines",
            "line": {"color": look.colour, "dash": look.dash, "width": 2},
            "showlegend": True,
            "hoverinfo": "all",
            "hovertemplate": _hover("%{y:.4g}", policy),
        }
        | options,
    ]


def _regret(group: Group, style: dict[str, Stroke], allowed: dict[str, list[Bound]]) -> tuple[Json, list[int]]:
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
                    "hovertemplate": _hover("%{y:.4g}", name),
                    "legendgroup": plain(policy),
                    "visible": False,
                }
            )
    figure = _figure(
        traces,
        hovermode="x",
        xaxis={"title": {"text": "round"}},
        yaxis={"title": {"text": "cumulative regret"}, "rangemode": "tozero"},
    )
    return figure, list(range(first, len(traces)))


def _epsilon(results: Results, problem: str, style: dict[str, Stroke]) -> Json:
    traces = [
        trace
        for policy, look in style.items()
        if (curve := tables.epsilon_curve(results, problem, policy)) is not None
        for trace in _curve(curve, policy, look, mode="lines+markers")
    ]
    return _figure(
        traces,
        hovermode="x",
        xaxis={"title": {"text": "ε, how wrong the model is"}},
        yaxis={"title": {"text": "regret a round"}, "rangemode": "tozero"},
    )


def _coverage(group: Group, style: dict[str, Stroke]) -> Json:
    traces = [
        trace
        for policy, runs in group.items()
        for trace in _curve(tables.coverage_curve(runs), policy, style[policy])[2:]
    ]
    return _figure(
        traces,
        hovermode="x",
        height=360,
        xaxis={"title": {"text": "round"}, "type": "log"},
        yaxis={"title": {"text": "share of f* inside the band"}},
    )


# -- bands, round by round ---------------------------------------------------------------------------------------------


def _cards(group: Group, style: dict[str, Stroke]) -> list[Json]:
    found = []
    for each in _pictured(group):
        make = _card_maker(each)
        if make is not None:
            figure, frames = make(each, style[each.run.policy])
            found.append({"name": each.run.policy, "figure": figure, "frames": frames})
    return found


def _card_maker(each: Finished) -> Callable[[Finished, Stroke], tuple[Json, list[Json]]] | None:
    if each.facts["dimension"] == 1:
        return _card_1d
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
    """Whether a candidate is active, at every look; None but for phased policies."""
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


def _card_1d(each: Finished, look: Stroke) -> tuple[Json, list[Json]]:
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
        line(upper[-1], "upper", fill="tonexty", fillcolor=tinted(look.colour, 0.22)),
        line(member, "f̃", 1.2, MEMBER),
        line(f, "f*", 1.0, TRUTH),
        line(mean[-1], "mean", 1.6, look.colour) | {"line": {"width": 1.6, "color": look.colour, "dash": "dash"}},
        {
            "type": "bar",
            "x": packed(x),
            "y": packed(np.sqrt(counts[-1])),
            "customdata": packed(counts[-1]),
            "marker": {"color": look.colour},
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
    figure = _figure(
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


def _card_2d(each: Finished, look: Stroke) -> tuple[Json, list[Json]]:
    points = np.array(each.facts["points"])
    lower, upper, _ = _bands(each)
    width, counts, alive = upper - lower, _counts(each), _alive(each)
    f = np.array(each.facts["truth"])
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
    star = {"symbol": "star", "size": 13, "color": look.colour, "line": {"width": 1, "color": "white"}}
    best = points[[f.argmax()]]
    traces.append(
        {"type": "scatter", "mode": "markers", **_xy(best), "marker": star, "hovertemplate": "optimum<extra></extra>"}
    )
    margin = {"l": 34, "r": 4, "t": 6, "b": 26}
    figure = _figure(traces, showlegend=False, height=320, margin=margin, xaxis={}, yaxis={})
    return figure, frames


def _xy(points: Array) -> Json:
    return {"x": packed(points[:, 0]), "y": packed(points[:, 1])}


def _card_arms(each: Finished, look: Stroke) -> tuple[Json, list[Json]]:
    f = np.array(each.facts["truth"])
    order = np.argsort(-f, kind="stable")
    place = np.arange(1, len(f) + 1)
    lower, upper, _ = (values[:, order] for values in _bands(each))
    counts, member = _counts(each)[:, order], np.array(each.facts["in_class"])[order]
    traces: list[Json] = [
        {
            "type": "bar", "x": packed(place), "base": packed(lower[-1]), "y": packed((upper - lower)[-1]),
            "width": 0.5, "marker": {"color": tinted(look.colour, 0.3)}, "hoverinfo": "skip",
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
    figure = _figure(
        traces,
        showlegend=False,
        height=300,
        margin={"l": 38, "r": 8, "t": 6, "b": 40},
        xaxis={"title": {"text": "candidates, best first"}},
        yaxis={"range": list(vertical(f))},
    )
    return figure, frames


# -- what the policies did ---------------------------------------------------------------------------------------------


def _active(group: Group, style: dict[str, Stroke]) -> Json | None:
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
    return _figure(traces, height=360, hovermode="x", xaxis=xaxis, yaxis=yaxis)


def _bases(group: Group, style: dict[str, Stroke]) -> Json | None:
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
        some = _some_of_each(played)
        line = {"width": 1.2, "color": tinted(style[policy].colour, 0.6)}
        played_at = {"x": packed(np.arange(1, len(played) + 1)[some]), "y": packed(played[some])}
        marker = {"symbol": "line-ns", "size": 9, "line": line}
        traces.append(shared | played_at | {"marker": marker, "hovertemplate": _hover("round %{x}", policy)})
        if each.facts["eliminated"]:
            bases, when = np.array(each.facts["eliminated"]).T
            cross = {"symbol": "x", "size": 11, "color": TRUTH}
            hover = "eliminated in round %{x}<extra></extra>"
            traces.append(
                shared | {"x": packed(when), "y": packed(first + bases), "marker": cross, "hovertemplate": hover}
            )
    if not traces:
        return None
    yaxis = {"tickvals": list(range(len(rows))), "ticktext": rows, "range": [len(rows) - 0.5, -0.5]}
    size = {"height": max(260, 110 + 24 * len(rows)), "margin": {"l": 75, "r": 15, "t": 15, "b": 45}}
    xaxis = {"title": {"text": "round"}}
    return _figure(traces, showlegend=False, annotations=names, xaxis=xaxis, yaxis=yaxis, **size)


def _some_of_each(played: Array, most: int = 400) -> Array:
    """Rounds to mark: of a base that played more often than a screen has room for, evenly spaced ones."""
    chosen = []
    for base in np.unique(played):
        rounds = np.flatnonzero(played == base)
        chosen.append(rounds[:: max(1, len(rounds) // most)])
    return np.sort(np.concatenate(chosen))


# -- HTML --------------------------------------------------------------------------------------------------------------


def _table(summary: pl.DataFrame, style: dict[str, Stroke]) -> str:
    head = "".join(
        f'<th title="{html.escape(about)}">{name}</th>'
        for name, about in (
            ("policy", ""),
            ("regret a round", "true regret, mean over the seeds ± standard error"),
            ("at the end", "over the last tenth of the rounds"),
            ("recommended", "regret of what is recommended after the last round"),
            ("band held f*", "share of the runs whose band held all of f* whenever it was looked at"),
            ("proved ε", "how wrong the model must be at least, by what a run observed; the largest over the seeds"),
        )
    )
    rows = []
    for row in summary.iter_rows(named=True):
        look = style[row["policy"]]
        line = "dashed" if look.dash != "solid" else "solid"
        error = "" if row["error"] is None else f" ± {row['error']:.4f}"
        cells = [
            f'<i style="border-color:{look.colour};border-top-style:{line}"></i>{html.escape(row["policy"])}',
            f"{row['regret']:.4f}{error}",
            f"{row['late']:.4f}",
            f"{row['recommended_regret']:.4f}",
            f"{100 * row['covered']:.0f} %" if row["claims"] else "–",
            f"{row['proved']:.3f}" if row["proved"] > 0 else "–",
        ]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


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


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{css}</style>
</head>
<body>
<header><h1>{title}</h1><p>{about}</p>{notes}</header>
<nav><label>problem <select id="problem"></select></label> <label>misfit <select id="choice"></select></label></nav>
<section><h2>Regret by round</h2>
<p>Mean over the seeds; shaded: the central 80 % of them. A click on a name hides its line.</p>
<div class="controls"><button id="scale" aria-pressed="false">logarithmic axes</button>
<button id="bounds" aria-pressed="false">what the theorems allow</button></div>
<p class="small" id="about-bounds" hidden>Thick lines (a diamond at the end for balancing): bounds of the theorems that
cover a policy here, never above the 2(B + ε) a round that any policy pays at most.</p>
<div id="regret"></div></section>
<section><div id="table" class="scroll"></div>
<p class="small">At the end: over the last tenth of the rounds. Recommended: regret of what is recommended after the
last round. Band held f*: share of the runs whose band held all of f* whenever it was looked at (– for bands that
promise nothing). Proved ε: how wrong the model must be at least, by what a run observed; the largest over the
seeds.</p>
</section>
<section id="bands"><h2>The band, round by round</h2>
<div id="keys" class="keys"></div>
<div class="slider"><button id="play">▶ play</button>
<input id="slider" type="range" min="0" value="0" step="1" aria-label="round"><output id="round"></output></div>
<div id="cards" class="cards"></div></section>
<section><h2>Against how wrong the model is</h2><div id="epsilon"></div></section>
<section><h2>What is still active, episode by episode</h2><div id="active"></div></section>
<section><h2>Which base played when</h2><p>First seed; a × marks an elimination.</p><div id="bases"></div></section>
<section><h2>Coverage</h2>
<p>Bands of GP-UCB and of phased policies take the model as right: with a misfit they need not hold f*.</p>
<div id="coverage"></div></section>
<footer>Made by misspec {version}; works without a network.</footer>
<script>{plotly}</script>
{data}
<script>
{js}</script>
</body>
</html>
"""
