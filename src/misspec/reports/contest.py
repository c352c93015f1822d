"""The contest without constants: the picture in print, and the first part of the demo's page."""

from __future__ import annotations

import html
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from misspec.errors import Array
from misspec.experiments.contest import Contest
from misspec.reports.figures import panels
from misspec.reports.plots import Json, figure_of, hover, packed, plain, tinted
from misspec.reports.style import COLOURS, TRUTH

QUARTILES = (0.25, 0.5, 0.75)
COLOUR = dict(zip(("ms.Auto", "Optuna", "random search"), (COLOURS[0], COLOURS[1], COLOURS[6]), strict=True))
YIELD = "average true yield so far, %"


def _curves(found: Contest) -> dict[str, Array]:
    """By player: quartiles over the seeds of the average yield so far, (3, batches)."""
    return {
        name: np.quantile(values, QUARTILES, axis=0) for name, values in zip(found.players, found.average, strict=True)
    }


def figure(found: Contest) -> Figure:
    """Average true yield so far by batch: medians, and quartiles over the reactions; at the end, what was found."""
    made: Figure
    made, axes = panels(1, 1, width=8.0, height=4.0)
    ax, x, rows = axes[0, 0], np.arange(1, found.evaluations + 1), found.rows()
    for name, (low, middle, high) in _curves(found).items():
        ax.plot(x, middle, color=COLOUR[name], linewidth=2.4)
        ax.fill_between(x, low, high, color=COLOUR[name], alpha=0.15, linewidth=0)
    for row, height in zip(rows, _apart([row.average for row in rows]), strict=True):
        beside: Any = {"xy": (x[-1], height), "textcoords": "offset points", "color": COLOUR[row.player]}
        ax.annotate(f"{row.player}: {row.average:.0f} %", xytext=(8, 0), fontsize=12, fontweight="bold", **beside)
        ax.annotate(f"best found: {row.found:.0f} %", xytext=(8, -13), fontsize=10, **beside)
    ax.axhline(found.best, color=TRUTH, linewidth=1.0, linestyle=":")
    ax.annotate("best possible", (x[0], found.best), xytext=(6, -5), textcoords="offset points", va="top", fontsize=11)
    ax.set(xlim=(1, x[-1]), ylim=(0, 100))
    ax.set_xlabel(f"batch (median and quartiles of {found.seeds} simulated reactions)", fontsize=12)
    ax.set_ylabel(YIELD, fontsize=12)
    ax.tick_params(labelsize=11)
    made.suptitle("Tuned while producing: what all batches gave, without any constants", x=0.01, ha="left", fontsize=14)
    return made


def _apart(heights: list[float], least: float = 13.0) -> list[float]:
    """Heights of labels, moved up where they would cover each other."""
    placed: dict[int, float] = {}
    for i in np.argsort(heights, kind="stable"):
        placed[int(i)] = max([heights[i], *(height + least for height in placed.values())])
    return [placed[i] for i in range(len(heights))]


def plot(found: Contest) -> Json:
    """The same for the page."""
    x = np.arange(1, found.evaluations + 1)
    traces: list[Json] = []
    for name, (low, middle, high) in _curves(found).items():
        shared: Json = {"type": "scatter", "mode": "lines", "x": packed(x), "legendgroup": name, "name": plain(name)}
        edge = shared | {"line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        line = {"line": {"color": COLOUR[name], "width": 2.5}, "hovertemplate": hover("%{y:.0f} %", name)}
        traces += [
            edge | {"y": packed(low)},
            edge | {"y": packed(high), "fill": "tonexty", "fillcolor": tinted(COLOUR[name], 0.15)},
            shared | {"y": packed(middle), **line},
        ]
    rule: Json = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": found.best, "y1": found.best}
    note: Json = {"xref": "paper", "x": 0.01, "y": found.best, "text": "best possible", "showarrow": False}
    return figure_of(
        traces, hovermode="x", height=380,
        shapes=[rule | {"line": {"color": TRUTH, "width": 1, "dash": "dot"}}],
        annotations=[note | {"xanchor": "left", "yanchor": "top"}],
        xaxis={"title": {"text": "batch"}}, yaxis={"title": {"text": YIELD}, "range": [0, 100]},
    )  # fmt: skip


def section(found: Contest) -> str:
    """The first part of the page; its figure is drawn into `contest`."""
    heads = ("", "all batches", f"last {found.late}", "best found")
    rows = [[name, *(f"{value:.1f}" for value in values)] for name, *values in found.rows()]
    said, learnt = found.sentences, "".join(f"<li>{html.escape(line)}</li>" for line in found.said)
    return (
        f"<header><h1>Without constants: {html.escape(_names(found.players))}</h1><p>{html.escape(found.about)}</p>"
        f'</header><section><p class="message"><b>{html.escape(said[0])}</b> {html.escape(said[1])}</p>'
        '<div id="contest"></div>'
        f'<p class="small">Medians over {found.seeds} reactions; shaded: from the first to the third quartile.</p>'
        f'{_table(heads, rows)}<p class="small">{html.escape(found.reading)}</p>'
        f"<h2>What ms.Auto knows of the first reaction after {found.evaluations} batches</h2>"
        f"<ul class='sentences'>{learnt}</ul></section>"
    )


def _names(names: list[str]) -> str:
    first, *others = names
    return f"{first} beside {' and '.join(others)}"


def _table(heads: tuple[str, ...], rows: list[list[Any]]) -> str:
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table class='short'><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
