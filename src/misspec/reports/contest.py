"""The contest without constants, as a picture in print and on the demo's page."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from misspec.experiments.contest import Contest
from misspec.reports import matplotlib_backend, plotly_backend
from misspec.reports.picture import Axis, Band, Line, Mark, Note, Panel, Rule
from misspec.reports.plotly_backend import Json
from misspec.reports.style import COLOURS, TRUTH

QUARTILES = (0.25, 0.5, 0.75)
COLOUR = dict(zip(("ms.Auto", "Optuna", "random search"), (COLOURS[0], COLOURS[1], COLOURS[6]), strict=True))
TITLE = "Tuned while producing: what all batches gave, without any constants"


def figure(found: Contest) -> Figure:
    """For print."""
    return matplotlib_backend.figure([[_panel(found)]], TITLE, legend=False, width=8.0, heights=4.0, letters=12)


def plot(found: Contest) -> Json:
    """For the page."""
    return plotly_backend.figure(_panel(found), 380)


def _panel(found: Contest) -> Panel:
    """Average true yield so far by batch: medians, and quartiles over the reactions; at the end, what was found."""
    x, rows = np.arange(1, found.evaluations + 1), found.rows()
    marks: list[Mark] = []
    for name, values in zip(found.players, found.average, strict=True):
        low, middle, high = np.quantile(values, QUARTILES, axis=0)
        marks.append(Band(x, low, high, colour=COLOUR[name], alpha=0.15, group=name))
        marks.append(Line(x, middle, width=2.0, colour=COLOUR[name], label=name, hover="%{y:.0f} %"))
    for row, height in zip(rows, _apart([row.average for row in rows]), strict=True):
        beside: Any = {"colour": COLOUR[row.player], "on": "print"}
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
