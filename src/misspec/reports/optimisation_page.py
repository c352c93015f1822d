"""One optimisation as a page, with Plotly: one function per figure, each returns its JSON or None."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import numpy as np

from misspec.experiments.store import version
from misspec.policies.auto import learnt
from misspec.reports.optimisation import BEST, MOST_BARS, MOST_SLICES, Optimisation, Slice, ends_of, scaled, shortened
from misspec.reports.page import asset, script
from misspec.reports.plots import Json, figure_of, hover, packed, plain, tinted
from misspec.reports.style import COLOURS, MISSED, TRUTH

MODEL, USED, QUIET = COLOURS[0], COLOURS[1], "#555"
SHADES = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")  # viridis: best first


def page(found: Optimisation) -> str:
    """The page as HTML."""
    from plotly.offline import get_plotlyjs

    figures = {
        "best": best(found),
        "importance": importance(found),
        "parallel": parallel(found),
        "model": model(found),
    }
    slices = [{"name": each.name, "figure": slice_of(found, each)} for each in found.slices]
    return asset("optimisation.html").format(
        title=html.escape(found.title),
        about=html.escape(found.about),
        sentences="".join(f"<li>{html.escape(line)}</li>" for line in found.sentences),
        better=found.better,
        leading=leading(found),
        shown=f", of the {MOST_SLICES} that matter most" if len(found.axes) > MOST_SLICES else "",
        conflicts=conflicts(found),
        version=html.escape(version()),
        css=asset("page.css"),
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
        data=f'<script type="application/json" id="data">{script({"figures": figures, "slices": slices})}</script>',
        js=asset("draw.js") + asset("optimisation.js"),
    )


def best(found: Optimisation) -> Json:
    """The best so far by evaluation, with all results."""
    t = np.arange(1, len(found.y) + 1)
    traces: list[Json] = []
    for chosen, name, symbol in (
        (~found.elsewhere, "results", "circle"),
        (found.elsewhere, "results from before", "x"),
    ):
        if chosen.any():
            traces.append({
                "type": "scatter", "mode": "markers", "x": packed(t[chosen]), "y": packed(found.y[chosen]),
                "name": name, "marker": {"size": 6, "color": QUIET, "symbol": symbol, "opacity": 0.7},
                "hovertemplate": "evaluation %{x}: %{y:.5g}<extra></extra>",
            })  # fmt: skip
    line = {"color": MODEL, "width": 2.5, "shape": "hv"}
    traces.append({
        "type": "scatter", "mode": "lines", "x": packed(t), "y": packed(found.best), "name": "best so far",
        "line": line, "hovertemplate": "best so far: %{y:.5g}<extra></extra>",
    })  # fmt: skip
    shapes: list[Json] = []
    if found.use is not None:
        ends = {"x": packed([1, len(t)]), "type": "scatter", "mode": "lines"}
        said = f"{found.expected:.5g}, {found.use.lower:.5g} to {found.use.upper:.5g}"
        traces.append(
            ends
            | {"y": packed([found.expected] * 2), "name": "expected of the recommended,<br>and its range"}
            | {"line": {"color": USED, "dash": "dash"}, "hovertemplate": f"recommended: {said}<extra></extra>"}
        )
        band = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": found.use.lower, "y1": found.use.upper}
        shapes.append(band | {"fillcolor": tinted(USED, 0.12), "line": {"width": 0}, "layer": "below"})
    return figure_of(
        traces, height=380, shapes=shapes, xaxis={"title": {"text": "evaluation"}, "tickformat": ",d"},
        yaxis={"title": {"text": plain(found.target)}, "range": list(found.vertical())},
    )  # fmt: skip


def slice_of(found: Optimisation, each: Slice) -> Json:
    """The model along a parameter through the recommended point."""
    traces: list[Json] = []
    shown = np.isfinite(each.observed)
    values = each.labels or [learnt.plain(float(value)) for value in each.x]
    said = [
        f"{plain(value)}: expected {mean:.5g}, {low:.5g} to {high:.5g}"
        for value, mean, low, high in zip(values, each.mean, each.lower, each.upper, strict=True)
    ]
    told = {"text": said, "hovertemplate": "%{text}<extra></extra>"}
    if each.levels:
        ends = np.maximum([each.upper - each.mean, each.mean - each.lower], 0.0)
        bars = {"type": "data", "symmetric": False, "array": packed(ends[0]), "arrayminus": packed(ends[1])}
        traces.append(
            {"type": "scatter", "mode": "markers", "x": packed(each.x), "y": packed(each.mean), **told}
            | {"marker": {"symbol": "square", "size": 9, "color": MODEL}}
            | {"error_y": bars | {"color": MODEL, "thickness": 1.5, "width": 5}}
        )
    else:
        edge = {"type": "scatter", "mode": "lines", "x": each.x.tolist(), "line": {"width": 0}, "hoverinfo": "skip"}
        traces += [
            edge | {"y": packed(each.lower)},
            edge | {"y": packed(each.upper), "fill": "tonexty", "fillcolor": tinted(MODEL, 0.18)},
            edge | {"y": packed(each.mean), "line": {"width": 2, "color": MODEL}, **told},
        ]
    traces.append({
        "type": "scatter", "mode": "markers", "x": each.observed[shown].tolist(), "y": packed(found.y[shown]),
        "marker": {"size": 6, "color": TRUTH, "opacity": packed(0.1 + 0.8 * each.nearness[shown])},
        "hovertemplate": "result %{y:.5g}<extra></extra>",
    })  # fmt: skip
    axis: Json = {}
    if each.log:
        decades = np.log10(each.x[-1] / each.x[0])
        axis = {"type": "log", "exponentformat": "power"} | ({"dtick": 1} if decades >= 2 else {})
    if each.labels is not None:
        text = [shortened(label) for label in each.labels]
        axis = {"tickvals": each.x.tolist(), "ticktext": [plain(label) for label in text]}
        axis |= {"range": [-0.6, len(text) - 0.4], "ticklabeloverflow": "allow", "automargin": True}
        axis |= {"tickangle": 40} if max(map(len, text)) * len(text) > 36 else {}
    elif each.levels and len(each.x) <= 12 and not each.log:
        axis = {"tickvals": each.x.tolist()}
    line = {"type": "line", "x0": each.at, "x1": each.at, "yref": "paper", "y0": 0, "y1": 1}
    return figure_of(
        traces, showlegend=False, height=280, margin={"l": 48, "r": 10, "t": 8, "b": 40}, xaxis=axis,
        yaxis={"range": list(found.vertical())},
        shapes=[line | {"line": {"color": USED, "dash": "dash", "width": 1.5}}],
    )  # fmt: skip


def importance(found: Optimisation) -> Json | None:
    """How much each parameter matters."""
    if len(found.axes) < 2 or not any(found.importance.values()):
        return None
    order = sorted(found.importance, key=lambda name: -found.importance[name])[:MOST_BARS]
    shares = [100 * found.importance[name] for name in order]
    bars = {
        "type": "bar", "orientation": "h", "x": packed(shares), "y": list(range(len(order))),
        "text": [f"{share:.0f} %" for share in shares], "textposition": "outside", "cliponaxis": False,
        "marker": {"color": MODEL}, "hovertext": [plain(name) for name in order],
        "hovertemplate": "%{hovertext}: %{x:.1f} %<extra></extra>",
    }  # fmt: skip
    names = [plain(shortened(name, 22)) for name in order]
    widest = max(len(shortened(name, 22)) for name in order)
    return figure_of(
        [bars], showlegend=False, height=90 + 28 * len(order), bargap=0.35,
        margin={"l": 20 + 7 * widest, "r": 50, "t": 8, "b": 45},
        xaxis={"title": {"text": "share, %"}, "rangemode": "tozero"},
        yaxis={"tickvals": list(range(len(order))), "ticktext": names, "range": [len(order) - 0.5, -0.5]},
    )  # fmt: skip


def parallel(found: Optimisation) -> Json | None:
    """Every point as a line through its parameters, coloured by the rank of its result."""
    shown, points = found.axes[:MOST_SLICES], found.points
    if len(shown) < 2 or len(points.x) < 2:
        return None
    names = list(points.values[0])
    low, high = float(points.averages.min()), float(points.averages.max())
    columns = [scaled(axis, points.x[:, names.index(axis.name)]) for axis in shown]
    lines = np.array([*columns, (points.averages - low) / ((high - low) or 1.0)]).T
    order = found.leading(len(lines))
    traces = []
    for shade, part in enumerate(np.array_split(order, min(len(SHADES), len(order)))):
        rows = np.column_stack([lines[part], np.full(len(part), np.nan)])  # NaN ends a line
        said = [f"{learnt.plain(float(points.averages[i]))}: {plain(_words(points.values[i]))}" for i in part]
        traces.append({
            "type": "scatter", "mode": "lines", "x": packed(np.tile(np.arange(rows.shape[1]), len(part))),
            "y": packed(rows.ravel()), "line": {"color": SHADES[shade], "width": 2.5 if shade == 0 else 1.0},
            "text": [text for text in said for _ in range(rows.shape[1])],
            "hovertemplate": "%{text}<extra></extra>",
        })  # fmt: skip
    notes = [(at, height, text) for at, axis in enumerate(shown) for height, text in ends_of(axis)]
    notes += [(len(shown), 0.0, f"{low:.4g}"), (len(shown), 1.0, f"{high:.4g}")]
    ticks = [plain(shortened(name, 22)) for name in (*(axis.name for axis in shown), found.target)]
    return figure_of(
        traces[::-1], showlegend=False, height=380, margin={"l": 30, "r": 60, "t": 15, "b": 45},
        annotations=[
            {"x": at, "y": height, "text": plain(text), "showarrow": False, "xanchor": "left", "xshift": 3,
             "bgcolor": "rgba(255,255,255,0.75)", "font": {"size": 11}}
            for at, height, text in notes
        ],
        xaxis={"tickvals": list(range(len(ticks))), "ticktext": ticks, "gridcolor": "#999", "showline": False,
               "range": [-0.1, len(ticks) - 0.7]},
        yaxis={"visible": False, "range": [-0.05, 1.05]},
    )  # fmt: skip


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {learnt.plain(value)}" for name, value in values.items())


def model(found: Optimisation) -> Json | None:
    """What the model expects at the points with results, against these."""
    points = found.points
    if found.use is None:
        return None
    ends = [float(points.expected.min()), float(points.expected.max())]
    traces: list[Json] = [
        {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "name": "as expected", "hoverinfo": "skip",
         "line": {"color": TRUTH, "width": 1}},
    ]  # fmt: skip
    for chosen, name, colour, symbol in (
        (~points.contradicted, "results (averages)", MODEL, "circle"),
        (points.contradicted, "contradict the model", MISSED, "diamond"),
    ):
        if chosen.any():
            traces.append({
                "type": "scatter", "mode": "markers", "x": packed(points.expected[chosen]),
                "y": packed(points.averages[chosen]), "name": name,
                "marker": {"color": colour, "symbol": symbol, "size": 7, "opacity": 0.8},
                "text": [plain(_words(points.values[i])) for i in np.flatnonzero(chosen)],
                "hovertemplate": hover("%{text}<br>expected %{x:.5g}, got %{y:.5g}", ""),
            })  # fmt: skip
    return figure_of(
        traces, height=380, xaxis={"title": {"text": "expected by the model"}},
        yaxis={"title": {"text": plain(found.target)}},
    )  # fmt: skip


def leading(found: Optimisation) -> str:
    """The best points as a table."""
    points = found.points
    named = any(points.labels)
    names = list(points.values[0])
    head = ["", *(["name"] if named else []), found.target, *names, *(["expected"] if found.use else []), "times"]
    step = 0.01 * float(np.ptp(found.vertical()))
    rows = []
    for rank, i in enumerate(found.leading(BEST), 1):
        cells = [f"{rank}", *([points.labels[i]] if named else []), learnt.rounded(float(points.averages[i]), step)]
        cells += [learnt.plain(value) for value in points.values[i].values()]
        cells += [learnt.rounded(float(points.expected[i]), step)] if found.use else []
        cells += [f"{points.counts[i]}"]
        rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    return f"<table class='ranked'><thead><tr>{top}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def conflicts(found: Optimisation) -> str:
    """Where the model is contradicted, as a table."""
    if found.use is None:
        return ""
    if not found.conflicts:
        return "<p>Nowhere do the results contradict the model.</p>"
    order = np.argsort([-each.gap for each in found.conflicts], kind="stable")[:BEST]
    rows = "".join(
        f"<tr><td>{html.escape(found.conflicting[i])}</td><td>{found.conflicts[i].gap:.3g}</td></tr>" for i in order
    )
    more = f"<p>And {len(found.conflicts) - BEST} more.</p>" if len(found.conflicts) > BEST else ""
    head = "<tr><th>where</th><th>by how much</th></tr>"
    return f'<div class="scroll"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>{more}'
