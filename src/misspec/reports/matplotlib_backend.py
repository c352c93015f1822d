"""Figures for print: panels of marks drawn with matplotlib."""

from __future__ import annotations

import contextlib
import io
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from misspec.files.frames import printable
from misspec.reports import picture
from misspec.reports.picture import as_grid, last

RC: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "legend.frameon": False,
    "legend.handlelength": 3.6,  # a dash must be seen as one
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "pdf.fonttype": 42,  # text in a PDF stays text
}
INLINE = 75  # pixels per inch in a notebook, half of what is saved, so that it is sharp on every screen
LETTERS = 12  # of a title, per inch
SUFFIXES = ("png", "pdf")
DASHES: Any = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dot": ":",
    "dashdot": "-.",
    "longdash": (0, (8, 3)),
    "longdashdot": (0, (8, 2, 2, 2)),
}
SYMBOLS = {"circle": "o", "x": "x", "diamond": "D", "square": "s", "star": "*", "tick": "|", "dash": "_"}
SYMBOLS |= {"triangle-up": "^", "triangle-down": "v", "triangle-left": "<", "triangle-right": ">"}


class Drawing(Figure):
    """A figure that a notebook shows by itself, whether or not pyplot is there."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        return saved(self, "png"), {"width": round(INLINE * self.get_figwidth())}


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Figures are made and saved inside: their style, and no warnings about letters that the font does not have."""
    with rc_context(RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def files(figures: Iterable[tuple[str, Figure]], show: Callable[[str], object] = str) -> Iterator[tuple[str, bytes]]:
    """Names and contents of files: every figure as PNG and as PDF. show: called with each name before it is drawn."""
    for name, made in figures:
        for suffix in SUFFIXES:
            show(f"{name}.{suffix}")
            yield f"{name}.{suffix}", saved(made, suffix)


@drawing()
def saved(figure: Figure, suffix: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, dpi=150)
    figure.set_layout_engine("none")  # it was laid out for the first format, and stays so
    return buffer.getvalue()


@drawing()
def figure(
    rows: Sequence[Sequence[picture.Panel | None]],
    title: str,
    *,
    legend: bool = True,
    width: float | None = None,
    heights: float | Sequence[float] = 2.8,
    letters: float = 9.0,
    **shared: Any,
) -> Figure:
    """Rows of panels under a title, with one legend. width, heights: of a panel, in inches; shared: axes."""
    columns = max(map(len, rows))
    tall = [float(height) for height in np.broadcast_to(heights, len(rows))]
    alone = len(rows) == columns == 1  # its legend is beside it
    wide = width or (9.0 if alone else max(3.2, min(5.5, 13.0 / columns)))
    made = Drawing(figsize=(wide * columns, sum(tall)), layout="constrained")
    FigureCanvasAgg(made)
    with rc_context({"font.size": letters, "axes.titlesize": letters}):
        axes = made.subplots(len(rows), columns, squeeze=False, height_ratios=tall, **shared)
        panels = {(i, j): panel for i, row in enumerate(rows) for j, panel in enumerate(row) if panel is not None}
        for (i, j), ax in np.ndenumerate(axes):
            panel, below = panels.get((i, j)), panels.get((i + 1, j))
            if panel is None:
                ax.set_visible(False)
                continue
            for mark in panel.marks:
                if mark.on != "page" and not mark.hidden:
                    _draw(ax, mark)
            ax.set_title(unformatted(panel.title), loc="left")
            ax.tick_params(labelsize=letters, labelbottom=below is None or not shared.get("sharex"))
            _set_axis(ax, "x", panel.x)
            _set_axis(ax, "y", panel.y)
            if j and shared.get("sharey"):
                ax.set_ylabel("")
            if below is not None and below.x.title == panel.x.title:
                ax.set_xlabel("")
        for at, panel in panels.items():  # now: limits that are set early hide what a later panel shares
            for name, axis in (("x", panel.x), ("y", panel.y)):
                if axis.range or (axis.zero and not axis.log):
                    getattr(axes[at], f"set_{name}lim")(*(axis.range or (0.0, None)))
        lines = textwrap.wrap(title, int(LETTERS * made.get_figwidth() * 9.0 / letters))  # names can be long
        left: Any = {"x": 0.01, "ha": "left"} if alone else {}
        made.suptitle(unformatted("\n".join(lines)), fontsize=letters + 1, **left)
    if legend:
        _add_legend(made, axes, aside=alone)
    return made


def _add_legend(made: Figure, axes: Any, *, aside: bool) -> None:
    entries: dict[str, Any] = {}
    for ax in axes.flat:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        per_row = 1 if aside else max(1, int(made.get_figwidth() * 13 / (max(map(len, entries)) + 6)))
        where: Any = "outside right center" if aside else "outside lower center"
        made.legend(list(entries.values()), list(entries), loc=where, ncols=min(per_row, len(entries)))


def unformatted(name: str) -> str:
    """A name with dollar signs is a name, not a formula, and one that starts with _ belongs in a legend too."""
    lines = [printable(line).replace("$", r"\$") for line in name.split("\n")]
    return (" " if name.startswith("_") else "") + "\n".join(lines)


def _set_axis(ax: Any, name: str, axis: picture.Axis) -> None:
    own = getattr(ax, f"{name}axis")
    own.set_label_text(unformatted(axis.title))
    if axis.log:
        getattr(ax, f"set_{name}scale")("log")
    if axis.ticks is not None:
        turned: Any = {"rotation": 30, "ha": "right"} if axis.turned else {}
        own.set_ticks(axis.ticks, list(map(unformatted, axis.labels)), **turned)
        own.set_minor_formatter(NullFormatter())
    elif axis.whole:
        own.get_major_locator().set_params(integer=True)
    if not axis.grid:
        ax.grid(visible=False, axis=name)
    if axis.bare:
        ax.spines[["bottom", "top"] if name == "x" else ["left", "right"]].set_visible(False)


def _draw(ax: Any, mark: picture.Mark) -> None:
    look: dict[str, Any] = {"color": mark.colour, "alpha": mark.alpha, "label": unformatted(mark.label)}
    match mark:
        case picture.Line():
            look |= {"linestyle": DASHES[mark.dash], "linewidth": mark.width}
            look |= {"drawstyle": "steps-post"} if mark.step else {}
            look |= {"marker": "o", "markersize": 4} if mark.marked else {}
            # butt: coinciding lines of different widths all show
            ax.plot(mark.x, last(mark.y), solid_capstyle="butt", **look)
        case picture.Ribbon():
            ax.fill_between(mark.x, last(mark.low), last(mark.high), linewidth=0, **look)
        case picture.Points():
            _draw_points(ax, mark, look)
        case picture.Bars():
            low, long = last(mark.low), last(mark.high) - last(mark.low)
            if mark.flat:
                drawn = ax.barh(mark.x, long, left=low, height=mark.thick, linewidth=0, **look)
            else:
                drawn = ax.bar(mark.x, long, bottom=low, width=mark.thick, linewidth=0, **look)
            if mark.written:
                ax.bar_label(drawn, mark.written, padding=4)
        case picture.Counts():
            counts = last(mark.counts)
            heights = 0.09 * np.sqrt(counts / counts.max())
            seen, below = counts > 0, ax.get_xaxis_transform()
            ax.vlines(mark.x[seen], 0, heights[seen], color=mark.colour, linewidth=1, transform=below)
        case picture.Heat():
            grid, values, (low, high) = as_grid(mark.points), last(mark.values), mark.limits
            look = {"cmap": mark.colours, "vmin": low, "vmax": high}
            if grid is None:
                drawn = ax.scatter(*mark.points.T, c=values, s=8, **look)
            else:
                xs, ys, order = grid
                cells = values[order].reshape(len(ys), len(xs))
                drawn = ax.pcolormesh(xs, ys, cells, shading="nearest", rasterized=True, **look)
            ax.figure.colorbar(drawn, ax=ax, fraction=0.05)
        case picture.Rule():
            across = ax.axvline if mark.vertical else ax.axhline
            across(mark.at, linestyle=DASHES[mark.dash], linewidth=mark.width, **look)
        case picture.Note():
            frame = {"boxstyle": "round,pad=0.15", "facecolor": "white", "alpha": 0.75, "linewidth": 0}
            ax.annotate(
                unformatted(mark.written), (mark.x, mark.y), xytext=mark.shift, textcoords="offset points",
                color=mark.colour, ha=mark.align, va="center", fontsize=mark.size,
                fontweight="bold" if mark.bold else "normal", bbox=frame if mark.framed else None,
            )  # fmt: skip


def _draw_points(ax: Any, mark: picture.Points, look: dict[str, Any]) -> None:
    look |= {"marker": SYMBOLS[mark.symbol], "linestyle": "none", "markersize": mark.size}
    look["markeredgewidth"] = mark.stroke if mark.symbol in ("x", "tick", "dash") else 0.6 * (mark.symbol == "star")
    look |= {"markeredgecolor": "white"} if mark.symbol == "star" else {}
    if mark.low is not None:
        ends = np.maximum([mark.y - mark.low, mark.high - mark.y], 0.0)
        ax.errorbar(mark.x, mark.y, ends, capsize=3, elinewidth=mark.stroke, **look)
    elif mark.opacity is None:
        ax.plot(mark.x, last(mark.y), **look)
    else:
        ax.scatter(mark.x, mark.y, s=mark.size**2, color=mark.colour, alpha=mark.opacity, linewidth=0, zorder=3)
        ax.plot([], [], **look)  # what the legend shows
