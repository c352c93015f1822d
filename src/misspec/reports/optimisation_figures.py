"""One optimisation for print, with matplotlib: one function per figure, each returns a Figure or None."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from misspec.reports.figures import finished, panels, unformatted
from misspec.reports.optimisation import MOST_BARS, MOST_SLICES, Optimisation, Slice, ends_of, scaled, shortened
from misspec.reports.style import COLOURS, MISSED, TRUTH

MODEL, USED = COLOURS[0], COLOURS[1]


def draw(found: Optimisation) -> Iterator[tuple[str, Figure]]:
    """All figures with the names of their files; `figures.drawing` meanwhile."""
    made = {
        "best": best(found),
        "slices": slices(found),
        "importance": importance(found),
        "parallel": parallel(found),
        "model": model(found),
    }
    yield from ((name, figure) for name, figure in made.items() if figure is not None)


def best(found: Optimisation) -> Figure:
    """The best so far by evaluation, with all results."""
    figure, axes = panels(1, 1, height=3.6)
    ax = axes[0, 0]
    t = np.arange(1, len(found.y) + 1)
    ax.plot(t[~found.elsewhere], found.y[~found.elsewhere], ".", color="#777", label="results")
    before = found.elsewhere
    if before.any():
        ax.plot(t[before], found.y[before], "x", color="#777", markersize=5, label="results from before")
    ax.step(t, found.best, where="post", color=MODEL, linewidth=2, label="best so far")
    if found.use is not None:
        ax.axhspan(found.use.lower, found.use.upper, color=USED, alpha=0.12, linewidth=0)
        ax.axhline(found.expected, color=USED, linestyle="--", label="expected of the recommended,\nand its range")
    ax.set(xlabel="evaluation", ylabel=unformatted(found.target), ylim=found.vertical())
    ax.xaxis.get_major_locator().set_params(integer=True)
    return finished(figure, f"{found.title}: best so far ({found.better} is better){_outside(found)}", axes)


def _outside(found: Optimisation) -> str:
    """How many results a picture leaves out, as part of its title."""
    low, high = found.vertical()
    count = int(((found.y < low) | (found.y > high)).sum())
    return f"; {count} result{'s' * (count > 1)} far outside" if count else ""


def slices(found: Optimisation) -> Figure | None:
    """The model along each parameter through the recommended point."""
    if not found.slices:
        return None
    columns = min(len(found.slices), 3 if len(found.slices) > 4 else 2)
    rows = math.ceil(len(found.slices) / columns)
    figure, axes = panels(rows, columns, sharey=True, width=4.2 if columns > 1 else 7.0, height=2.7)
    for ax, each in zip(axes.flat, found.slices, strict=False):
        _slice(ax, each, found)
    for ax in axes[:, 0]:
        ax.set_ylabel(unformatted(found.target))
    more = "" if len(found.axes) <= MOST_SLICES else f", the {MOST_SLICES} parameters that matter most"
    return finished(figure, f"{found.title}: through the recommended point{more}{_outside(found)}", axes)


def _slice(ax: Any, each: Slice, found: Optimisation) -> None:
    colours = np.tile(np.array([0.2, 0.2, 0.2, 1.0]), (len(found.y), 1))
    colours[:, 3] = 0.12 + 0.88 * each.nearness
    ax.scatter(each.observed, found.y, s=14, c=colours, linewidth=0, zorder=3)
    ax.plot([], [], "o", color="#333", markersize=4, label="results (pale: far in the others)")
    if each.levels:
        ends = np.maximum([each.mean - each.lower, each.upper - each.mean], 0.0)
        ax.errorbar(each.x, each.mean, ends, fmt="s", color=MODEL, markersize=5, capsize=3, label="expected, and band")
    else:
        ax.fill_between(each.x, each.lower, each.upper, color=MODEL, alpha=0.18, linewidth=0)
        ax.plot(each.x, each.mean, color=MODEL, label="expected, and band")
    ax.axvline(each.at, color=USED, linestyle="--", linewidth=1.2, label="recommended")
    if each.labels is not None:
        turned = {"rotation": 30, "ha": "right"} if max(map(len, each.labels)) * len(each.labels) > 36 else {}
        ax.set_xticks(each.x, [unformatted(shortened(label)) for label in each.labels], **turned)
        ax.set_xlim(-0.6, len(each.labels) - 0.4)
    elif each.log:
        ax.set_xscale("log")
    elif each.levels and np.equal(each.x, np.round(each.x)).all():
        ax.xaxis.get_major_locator().set_params(integer=True)
    share = found.importance.get(each.name)
    ax.set_title(unformatted(each.name) + ("" if share is None else f" ({100 * share:.0f} %)"), loc="left")
    ax.set_ylim(*found.vertical())


def importance(found: Optimisation) -> Figure | None:
    """How much each parameter matters."""
    if len(found.axes) < 2 or not any(found.importance.values()):
        return None
    order = sorted(found.importance, key=lambda name: -found.importance[name])[:MOST_BARS]
    figure, axes = panels(1, 1, width=6.5, height=1.1 + 0.28 * len(order))
    ax = axes[0, 0]
    places = np.arange(len(order))
    shares = [100 * found.importance[name] for name in order]
    ax.barh(places, shares, color=MODEL, height=0.65)
    for at, share in zip(places, shares, strict=True):
        ax.annotate(f"{share:.0f} %", (share, at), xytext=(4, 0), textcoords="offset points", va="center")
    ax.set_yticks(places, [unformatted(shortened(name, 40)) for name in order])
    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.set_xlim(0, 1.12 * max(shares))
    ax.set_xlabel("share of the variation that the model expects, %")
    ax.grid(visible=False)
    return finished(figure, f"{found.title}: which parameters matter", axes, legend=False)


def parallel(found: Optimisation) -> Figure | None:
    """Every point as a line through its parameters, coloured by its result; the best are thick."""
    shown = found.axes[:MOST_SLICES]
    if len(shown) < 2 or len(found.points.x) < 2:
        return None
    names = list(found.points.values[0])
    figure, axes = panels(1, 1, width=max(6.5, 1.5 * (len(shown) + 1)), height=4.0)
    ax = axes[0, 0]
    columns = [scaled(axis, found.points.x[:, names.index(axis.name)]) for axis in shown]
    low, high = float(found.points.averages.min()), float(found.points.averages.max())
    columns.append((found.points.averages - low) / ((high - low) or 1.0))
    lines = np.array(columns).T
    ranks = np.argsort(np.argsort(found.points.averages * (1 if found.minimize else -1), kind="stable"))
    colours = _colours(ranks)
    for row in np.argsort(-ranks):  # the best on top
        leads = ranks[row] < 5
        ax.plot(lines[row], color=colours[row], linewidth=2.0 if leads else 0.7, alpha=1.0 if leads else 0.5)
    labels = [*(shortened(axis.name, 18) for axis in shown), shortened(found.target, 18)]
    ax.set_xticks(range(len(labels)), [unformatted(label) for label in labels])
    ax.set(xlim=(-0.15, len(labels) - 0.6), ylim=(-0.04, 1.04), yticks=[])
    for at, axis in enumerate(shown):
        ax.axvline(at, color="#999", linewidth=0.8)
        for height, text in ends_of(axis):
            ax.annotate(unformatted(text), (at, height), xytext=(3, 0), textcoords="offset points", fontsize=7,
                        va="center", bbox={"color": "white", "alpha": 0.7, "pad": 0.5, "linewidth": 0})  # fmt: skip
    ax.axvline(len(shown), color="#999", linewidth=0.8)
    for height, value in ((0.0, low), (1.0, high)):
        ax.annotate(f"{value:.4g}", (len(shown), height), xytext=(4, 0), textcoords="offset points", fontsize=7,
                    va="center")  # fmt: skip
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    return finished(figure, f"{found.title}: every point, dark and thick: the best", axes, legend=False)


def _colours(ranks: Any) -> Any:
    from matplotlib import colormaps

    return colormaps["viridis"](0.95 * ranks / max(1, len(ranks) - 1))


def model(found: Optimisation) -> Figure | None:
    """What the model expects at the points with results against these: where it is contradicted."""
    points = found.points
    if found.use is None:
        return None
    figure, axes = panels(1, 1, width=6.5, height=4.2)
    ax = axes[0, 0]
    ends = [float(f(points.expected)) for f in (np.min, np.max)]
    ax.plot(ends, ends, color=TRUTH, linewidth=0.8, label="as expected")
    agree = ~points.contradicted
    ax.plot(points.expected[agree], points.averages[agree], "o", color=MODEL, markersize=4, label="results (averages)")
    if not agree.all():
        ax.plot(points.expected[~agree], points.averages[~agree], "D", color=MISSED, label="contradict the model")
    ax.set(xlabel="expected by the model", ylabel=unformatted(found.target))
    return finished(figure, f"{found.title}: the model against the results", axes)
