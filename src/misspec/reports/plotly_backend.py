"""Figures for the page: a panel of marks as JSON for Plotly."""

from __future__ import annotations

import base64
import dataclasses
import html
from typing import Any

import numpy as np

from misspec.reports import picture
from misspec.reports.picture import as_grid

Json = dict[str, Any]
WIDER, LARGER = 1.4, 1.5  # pixels of lines and of symbols per point of print
SYMBOLS = {"tick": "line-ns", "dash": "line-ew", "ring": "circle"}  # those that Plotly calls otherwise
PALE = "rgba(255,255,255,0.75)"  # over what is faded
COUNTS = {"range": [0, 1], "domain": [0, 0.16], "showticklabels": False, "ticks": ""}  # the axis of bars below a panel
POWERS = {"exponentformat": "power", "nticks": 4}  # a small logarithmic axis has room for powers of ten
LAYOUT: Json = {
    "font": {"family": "system-ui, sans-serif", "size": 12},
    "plot_bgcolor": "white",
    "paper_bgcolor": "white",
    "hoverlabel": {"namelength": -1},
    "template": "none",
    "bargap": 0,
    "barmode": "overlay",
}
AXIS: Json = {"gridcolor": "#eee", "zeroline": False, "linecolor": "#bbb", "ticks": "outside", "tickcolor": "#bbb"}


def figure_json(panel: picture.Panel, height: int, **options: Any) -> Json:
    """A panel without frames; options as in `animated`."""
    return animated(panel, height, **options)[0]


def animated(
    panel: picture.Panel, height: int, *, legend: bool = True, small: bool = False, margin: Json | None = None
) -> tuple[Json, list[Json]]:
    """A figure, checked by Plotly, and what the slider sets in it: attributes of traces, one row per look.

    small: with little room around it; margin: other room.
    """
    import plotly.graph_objects as go

    shown = [mark for mark in panel.marks if mark.on != "print"]
    changes: dict[str, dict[int, Any]] = {}
    drawn = [trace for mark in shown for trace in _traces(mark)]
    traces = [_packed(trace, number, changes) for number, trace in enumerate(drawn)]
    room = {"l": 55, "r": 15, "t": 15, "b": 45}
    room = {"l": 38, "r": 8, "t": 6, "b": 40 if panel.x.title else 28} if small else room
    layout: Json = LAYOUT | {
        "height": height,
        "showlegend": legend,
        "margin": room | (margin or {}),
        "hovermode": "x" if panel.together else "closest",
        "shapes": [_shape(mark) for mark in shown if isinstance(mark, picture.Rule)],
        "annotations": [_annotation(mark) for mark in shown if isinstance(mark, picture.Note)],
        "xaxis": _axis(panel.x) | (POWERS if small and panel.x.log else {}),
        "yaxis": _axis(dataclasses.replace(panel.y, title="") if small else panel.y),
    }
    if any(isinstance(mark, picture.Counts) for mark in shown):
        layout["xaxis"]["anchor"], layout["yaxis"]["domain"], layout["yaxis2"] = "y2", [0.2, 1], AXIS | COUNTS
    made = go.Figure({"data": traces, "layout": layout}).to_dict()
    frames = []
    for attribute, rows in changes.items():
        shape = {"shape": list(next(iter(rows.values())).shape[1:])} if attribute == "z" else {}
        parts = [packed(values.reshape(len(values), -1), rows=True) for values in rows.values()]
        frames.append({"attribute": attribute, "traces": list(rows), "packed": parts, **shape})
    return {"data": made["data"], "layout": made["layout"]}, frames


def escaped(name: str) -> str:
    """A name as Plotly should print it: Plotly reads a little HTML, and formulas between dollars."""
    return html.escape(name, quote=False).replace("$", "&#36;").replace("\n", "<br>")


def packed(values: Any, *, rows: bool = False) -> Json:
    """Numbers as Plotly reads them from text: base64 of floats. rows: of a matrix, one frame per row, in 32 bits."""
    exact = np.ascontiguousarray(values, dtype="<f8")
    with np.errstate(over="ignore"):
        array = exact.astype("<f4")
    finite = np.isfinite(exact)
    lost = np.abs(array[finite].astype("<f8") - exact[finite]).max(initial=0.0)
    if not rows and lost > 1e-5 * (np.ptp(exact[finite]) if finite.any() else 0.0):
        array = exact
    shape = {"shape": ", ".join(map(str, array.shape))} if array.ndim > 1 else {}
    return {"dtype": array.dtype.str[1:], "bdata": base64.b64encode(array.tobytes()).decode(), **shape}


def tinted(mark: picture.Mark) -> str:
    red, green, blue = (int(mark.colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{mark.alpha})"


def _line(mark: picture.Line | picture.Rule) -> Json:
    return {"color": tinted(mark), "dash": mark.dash, "width": WIDER * mark.width}


def _packed(trace: Json, number: int, changes: dict[str, dict[int, Any]], prefix: str = "") -> Json:
    """A trace whose arrays are packed; those that have a row per look are noted in changes, and end with the last."""
    found: Json = {}
    for key, value in trace.items():
        name = prefix + key
        if isinstance(value, dict):
            value = _packed(value, number, changes, f"{name}.")
        elif isinstance(value, np.ndarray):
            if value.ndim > 1 + (key == "z"):
                changes.setdefault(name, {})[number] = value
                value = value[-1]
            value = packed(value)
        found[key] = value
    return found


def _axis(axis: picture.Axis) -> Json:
    found = AXIS | ({"title": {"text": escaped(axis.title)}} if axis.title else {})
    if axis.log:
        found["type"] = "log"
    if axis.ticks is not None:
        labels = list(map(escaped, axis.labels))
        found |= {"tickvals": list(map(float, axis.ticks)), "ticktext": labels, "automargin": True}
        found |= {"tickangle": 40, "ticklabeloverflow": "allow"} if axis.turned else {}
    elif axis.whole:
        found["tickformat"] = ",d"
    if axis.range is not None:
        found |= {"range": list(axis.range)} | ({"autorange": "min"} if axis.range[0] is None else {})
    elif axis.zero:
        found["rangemode"] = "tozero"
    found |= {"ticks": "", "showline": False} if axis.bare else {}
    return found | {"showgrid": axis.grid}


def _shape(mark: picture.Rule) -> Json:
    across, along = ("x", "y") if mark.vertical else ("y", "x")
    ends = {f"{across}0": mark.at, f"{across}1": mark.at, f"{along}ref": "paper", f"{along}0": 0, f"{along}1": 1}
    return {"type": "line", **ends, "line": _line(mark), "layer": "below" if mark.dash == "solid" else "above"}


def _annotation(mark: picture.Note) -> Json:
    back = {"bgcolor": PALE} if mark.framed else {}
    font = {"size": 1.35 * mark.size, "color": mark.colour}
    where = {"x": mark.x, "y": mark.y, "xanchor": mark.align, "xshift": mark.shift[0], "yshift": mark.shift[1]}
    return {"text": escaped(mark.written), "showarrow": False, "font": font, **where, **back}


def _trace(mark: picture.Mark, **options: Any) -> Json:
    """Settings of every trace: a name, its entry in the legend, and the text under the pointer."""
    name = escaped(mark.label)
    found: Json = {
        "type": "scatter", "name": name, "legendgroup": escaped(mark.group or mark.label), "showlegend": bool(name)
    }  # fmt: skip
    found |= {"visible": False} if mark.hidden else {}
    found |= {"text": [escaped(text) for text in mark.text]} if mark.text else {}
    template = mark.hover or "%{text}" * bool(mark.text)
    said = name.replace("%{", "%\u200b{")  # in a name Plotly must fill in nothing
    found |= {"hovertemplate": f"{template}<extra>{said}</extra>"} if template else {"hoverinfo": "skip"}
    return found | options


def _traces(mark: picture.Mark) -> list[Json]:
    """None for a mark that is a shape or an annotation."""
    match mark:
        case picture.Line():
            line = _line(mark) | ({"shape": "hv"} if mark.step else {})
            mode = "lines+markers" if mark.marked else "lines"
            return [_trace(mark, mode=mode, x=np.asarray(mark.x), y=np.asarray(mark.y), line=line)]
        case picture.Ribbon():
            edge = {"mode": "lines", "x": np.asarray(mark.x), "line": {"width": 0}, "showlegend": False}
            filled = {"fill": "tonexty", "fillcolor": tinted(mark)}
            low, high = np.asarray(mark.low), np.asarray(mark.high)
            return [_trace(mark, **edge, y=low), _trace(mark, **edge, y=high, **filled)]
        case picture.Points():
            return [_points(mark)]
        case picture.Bars():
            long, at = ("x", "y") if mark.flat else ("y", "x")
            bars = {"type": "bar", at: np.asarray(mark.x), "base": mark.low, long: mark.high - mark.low}
            bars |= {"width": mark.thick, "marker": {"color": tinted(mark)}, "orientation": "h" if mark.flat else "v"}
            if mark.written:
                bars |= {"text": list(mark.written), "textposition": "outside", "cliponaxis": False}
                bars |= {"hovertext": [escaped(text) for text in mark.text]}
            return [_trace(mark, **bars)]
        case picture.Counts():
            heights = np.sqrt(mark.counts) / max(1.0, float(np.sqrt(mark.counts.max())))
            bars = {"type": "bar", "x": mark.x, "y": heights, "customdata": mark.counts, "yaxis": "y2"}
            bars |= {"marker": {"color": mark.colour}, "hovertemplate": "played %{customdata}×<extra></extra>"}
            return [_trace(mark, **bars)]
        case picture.Heat():
            return _heat(mark)
    return []


def _points(mark: picture.Points) -> Json:
    marker: Json = {"symbol": SYMBOLS.get(mark.symbol, mark.symbol), "size": LARGER * mark.size}
    if mark.symbol in SYMBOLS:
        marker |= {"color": "rgba(0,0,0,0)", "line": {"width": WIDER * mark.stroke, "color": tinted(mark)}}
    else:
        marker |= {"color": mark.colour, "opacity": mark.alpha if mark.opacity is None else mark.opacity}
        marker |= {"line": {"width": 1, "color": "white"}} if mark.symbol == "star" else {}
    ends: Json = {}
    if mark.low is not None:
        ends = {"array": np.maximum(mark.high - mark.y, 0.0), "arrayminus": np.maximum(mark.y - mark.low, 0.0)}
        ends |= {"type": "data", "symmetric": False, "color": mark.colour, "thickness": mark.stroke, "width": 4}
    return _trace(mark, mode="markers", x=np.asarray(mark.x), y=np.asarray(mark.y), marker=marker, error_y=ends)


def _heat(mark: picture.Heat) -> list[Json]:
    scale: Json = {
        "colorscale": mark.colours,
        "colorbar": {"thickness": 10, "title": {"text": mark.label, "side": "top"}},
    }
    low, high = mark.limits
    said = "%{x:.3g}, %{y:.3g}: " + mark.label
    grid = as_grid(mark.points)
    if grid is None:
        marker = {"size": 6, "color": mark.values, "cmin": low, "cmax": high, **scale}
        marker |= {} if mark.faded is None else {"opacity": np.where(mark.faded, 0.15, 1.0)}
        x, y = mark.points.T
        said += " %{marker.color:.3g}<extra></extra>"
        return [_trace(mark) | {"mode": "markers", "x": x, "y": y, "marker": marker, "hovertemplate": said}]
    xs, ys, order = grid
    shape = (-1, len(ys), len(xs))
    cells = {"type": "heatmap", "x": xs, "y": ys}
    scale |= {"zmin": low, "zmax": high, "hovertemplate": said + " %{z:.3g}<extra></extra>"}
    found: list[Json] = [cells | scale | {"z": mark.values[:, order].reshape(shape)}]
    if mark.faded is not None:
        over = np.where(mark.faded[:, order], 1.0, np.nan).reshape(shape)
        found.append(cells | {"z": over, "colorscale": [[0, PALE], [1, PALE]], "showscale": False, "hoverinfo": "skip"})
    return found
