"""Figures for print, with matplotlib: one function per figure, each returns a Figure or None where there is nothing."""

from __future__ import annotations

import contextlib
import math
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from misspec.errors import Array
from misspec.experiments.store import Finished, Results
from misspec.files.frames import printable
from misspec.reports import tables
from misspec.reports.bounds import Allowed
from misspec.reports.style import (
    MEMBER,
    MISSED,
    MOST_ARMS,
    TRUTH,
    TUBE,
    Stroke,
    as_grid,
    labels,
    slug,
    strokes,
    vertical,
)
from misspec.reports.tables import Group

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
    "lines.linewidth": 1.4,
    "pdf.fonttype": 42,  # text in a PDF stays text
}
LETTERS = 12  # of a title, per inch
DASH = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dot": ":",
    "dashdot": "-.",
    "longdash": (0, (8, 3)),
    "longdashdot": (0, (8, 2, 2, 2)),
}


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Everything is drawn and saved inside: the style, and no word about letters that the font does not have."""
    with rc_context(RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def draw(results: Results, allowed: Allowed) -> Iterator[tuple[str, Figure]]:
    """All figures with the names of their files, as they are made; to be `drawing` meanwhile."""
    taken: set[str] = set()
    groups = results.groups()
    for problem in dict.fromkeys(name for name, _ in groups):
        mine = {epsilon: group for (name, epsilon), group in groups.items() if name == problem}
        stem = slug(problem, taken)
        yield from ((f"{kind}-{stem}", made) for kind, made in _of_problem(problem, mine, results, allowed) if made)


def _of_problem(
    problem: str, groups: dict[float, Group], results: Results, allowed: Allowed
) -> Iterator[tuple[str, Figure | None]]:
    style, label = strokes(results.experiment), labels(groups)
    yield "regret", regret(problem, groups, style)
    yield "share", share(problem, groups, style)
    yield "bound", bounds(problem, groups, style, allowed)
    yield "epsilon", against_epsilon(problem, results, style) if len(groups) > 1 else None
    yield "active", active(problem, groups, style)
    yield "bases", bases(problem, groups, style)
    yield "coverage", coverage(problem, groups, style)
    for epsilon, group in groups.items():
        yield f"band-{label[epsilon]}", band(problem, label[epsilon], group, style)


# -- regret ------------------------------------------------------------------------------------------------------------


def regret(problem: str, groups: dict[float, Group], style: dict[str, Stroke]) -> Figure:
    """Cumulative regret by round, mean and spread over the seeds; linear axes above, logarithmic below."""
    figure, axes = panels(2, len(groups), sharey="row")
    label = labels(groups)
    for column, (epsilon, group) in enumerate(groups.items()):
        for policy, runs in group.items():
            curve = tables.regret_curve(runs)
            for ax in axes[:, column]:
                _line(ax, curve.x, curve.mean, style[policy], label=unformatted(policy))
                ax.fill_between(curve.x, curve.low, curve.high, color=style[policy].colour, alpha=0.12, linewidth=0)
        axes[0, column].set_title(f"ε = {label[epsilon]}")
        axes[1, column].set(xscale="log", yscale="log", xlabel="round")
    for ax, scale in zip(axes[:, 0], ("linear", "log"), strict=True):
        ax.set_ylabel(f"cumulative regret ({scale})")
    return finished(figure, f"{problem}: {_over(groups)}", axes)


def share(problem: str, groups: dict[float, Group], style: dict[str, Stroke]) -> Figure | None:
    """How often the best action was played so far, by round; where action sets vary."""
    if not any(each.contextual for group in groups.values() for runs in group.values() for each in runs):
        return None
    figure, axes = panels(1, len(groups), sharey="row", height=3.4)
    label = labels(groups)
    for column, (epsilon, group) in enumerate(groups.items()):
        ax = axes[0, column]
        for policy, runs in group.items():
            curve = tables.share_curve(runs)
            _line(ax, curve.x, curve.mean, style[policy], label=unformatted(policy))
            ax.fill_between(curve.x, curve.low, curve.high, color=style[policy].colour, alpha=0.12, linewidth=0)
        ax.set(xlabel="round", title=f"ε = {label[epsilon]}", ylim=(0, 1.02))
    axes[0, 0].set_ylabel("share of the best action so far")
    return finished(figure, f"{problem}: {_over(groups)}", axes)


def _over(groups: dict[float, Group]) -> str:
    """What a line and its shade are."""
    seeds = {len(runs) for group in groups.values() for runs in group.values()}
    many = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    return f"mean over {many} seeds, shaded: central 80 %" if seeds != {1} else "one seed"


def against_epsilon(problem: str, results: Results, style: dict[str, Stroke]) -> Figure:
    """Regret per round against ε."""
    figure, axes = panels(1, 1, height=3.6)
    ax = axes[0, 0]
    for policy, stroke in style.items():
        curve = tables.epsilon_curve(results, problem, policy)
        if curve is None:
            continue
        _line(ax, curve.x, curve.mean, stroke, label=unformatted(policy), marker="o", markersize=4)
        ax.vlines(curve.x, curve.low, curve.high, color=stroke.colour, alpha=0.5, linewidth=1)
    ax.set(xlabel="ε, how wrong the model is", ylabel="regret per round")
    ax.set_ylim(bottom=0)
    return finished(figure, f"{problem}: mean over seeds, bars: central 80 %", axes)


def bounds(problem: str, groups: dict[float, Group], style: dict[str, Stroke], allowed: Allowed) -> Figure | None:
    """What the theorems allow beside what was measured, logarithmic axes."""
    if not any(name == problem for name, _, _ in allowed):
        return None
    label = labels(groups)
    groups = {e: group for e, group in groups.items() if any((problem, e, policy) in allowed for policy in group)}
    figure, axes = panels(1, len(groups), sharey="row", height=3.4)
    for column, (epsilon, group) in enumerate(groups.items()):
        ax = axes[0, column]
        for policy, runs in group.items():
            found, stroke = allowed.get((problem, epsilon, policy), []), style[policy]
            if not found:
                continue
            curve = tables.regret_curve(runs)
            _line(ax, curve.x, curve.mean, stroke, label=unformatted(policy))
            for each, alpha in zip(found, (0.4, 0.2), strict=False):
                point = {"marker": "D"} if len(each.x) == 1 else {}
                ax.plot(
                    each.x,
                    each.y,
                    color=stroke.colour,
                    linestyle=DASH[stroke.dash],
                    linewidth=2.4,
                    alpha=alpha,
                    **point,
                )
        ax.set(xscale="log", yscale="log", xlabel="round", title=f"ε = {label[epsilon]}")
    axes[0, 0].set_ylabel("cumulative regret")
    note = "thin: measured, thick (diamond): allowed by a theorem, where one covers the policy; never above 2(B + ε)t"
    return finished(figure, f"{problem}: {note}", axes)


# -- bands -------------------------------------------------------------------------------------------------------------


def band(problem: str, epsilon: str, group: Group, style: dict[str, Stroke]) -> Figure | None:
    """The band at the end of the first seed's run beside the truth: curves in one dimension, heat maps in two."""
    runs = {policy: found[0] for policy, found in group.items() if found[0].pictured}
    if not runs:
        return None
    some = next(iter(runs.values()))
    first = some.facts
    title = f"{problem}, ε = {epsilon}, seed {some.run.seed}: after the last round"
    title += " (smaller is better)" if some.minimize else ""
    if first["dimension"] == 1:
        return _band_1d(title, runs, style)
    if first["dimension"] == 2:
        return _band_2d(title, runs)
    return _band_arms(title, runs, style) if first["candidates"] <= MOST_ARMS else None


def _band_1d(title: str, runs: dict[str, Finished], style: dict[str, Stroke]) -> Figure:
    columns = min(len(runs), 2)
    figure, axes = panels(math.ceil(len(runs) / columns), columns, sharex=True, sharey=True, width=5.2, height=2.3)
    for ax, (policy, each) in zip(axes.flat, runs.items(), strict=False):
        x = np.array(each.facts["points"])[:, 0]
        order = np.argsort(x)
        x, f, member = x[order], np.array(each.facts["truth"])[order], np.array(each.facts["in_class"])[order]
        low, high, mean = (_last(each, name)[order] for name in ("band_lower", "band_upper", "band_mean"))
        colour = style[policy].colour
        ax.fill_between(
            x, member - each.epsilon, member + each.epsilon, color=TUBE, alpha=0.7, linewidth=0, label="f̃ ± ε"
        )
        ax.fill_between(x, low, high, color=colour, alpha=0.22, linewidth=0, label="band for f*")
        ax.plot(x, member, color=MEMBER, linewidth=1, label="f̃, best in class")
        ax.plot(x, f, color=TRUTH, linewidth=0.8, label="f*, the truth")
        ax.plot(x, mean, color=colour, linewidth=1.2, linestyle="--", label="posterior mean")
        out = (f < low) | (f > high)
        ax.plot(x[out], f[out], ".", color=MISSED, markersize=4, label="f* outside the band")
        ax.set_title(unformatted(policy), loc="left")
        _played(ax, each, x=np.array(each.facts["points"])[:, 0], colour=colour)
        _frame(ax, f)
    for ax in axes[-1]:
        ax.set_xlabel("x")
    return finished(figure, f"{title}; ticks below: points played, longer where more often", axes)


def _played(ax: Any, each: Finished, *, x: Array, colour: str) -> None:
    """How often each candidate was played, as ticks at the bottom; on a square root scale."""
    counts = np.bincount(each.table["index"], minlength=len(x))
    seen = counts > 0
    ax.vlines(
        x[seen],
        0,
        0.09 * np.sqrt(counts[seen] / counts.max()),
        color=colour,
        linewidth=1,
        transform=ax.get_xaxis_transform(),
    )


def _band_2d(title: str, runs: dict[str, Finished]) -> Figure:
    figure, axes = panels(len(runs) + 1, 3, width=3.3, height=2.7, sharex=True, sharey=True)
    facts = next(iter(runs.values())).facts
    points, f, member = (np.array(facts[name]) for name in ("points", "truth", "in_class"))
    low, high, best = float(f.min()), float(f.max()), tables.best_first(next(iter(runs.values())))[0]
    for ax, (what, values, limits) in zip(
        axes[0],
        (
            ("f*, the truth", f, (low, high)),
            ("f̃, best in class", member, (low, high)),
            ("misfit f* − f̃", f - member, None),
        ),
        strict=True,
    ):
        _heat(figure, ax, points, values, limits, what, colours="RdBu_r" if limits is None else "viridis")
        ax.plot(*points[best], marker="*", color="#d62728", markersize=9, markeredgecolor="white")
    for row, (policy, each) in zip(axes[1:], runs.items(), strict=True):
        lower, upper, mean = (_last(each, name) for name in ("band_lower", "band_upper", "band_mean"))
        counts = np.bincount(each.table["index"], minlength=len(points))
        _heat(figure, row[0], points, mean, (low, high), f"{unformatted(policy)}\nmean")
        _heat(figure, row[1], points, upper - lower, None, "width of the band", colours="magma")
        _heat(figure, row[2], points, np.log10(1 + counts), None, "log₁₀(1 + times played)", colours="Greys")
        for ax in row:
            ax.plot(*points[best], marker="*", color="#d62728", markersize=9, markeredgecolor="white")
    return finished(figure, f"{title} (star: the optimum)", axes, legend=False)


def _heat(
    figure: Figure, ax: Any, points: Array, values: Array, limits: Any, title: str, colours: str = "viridis"
) -> None:
    if limits is None:
        limits = (float(values.min()), float(values.max()))
        if colours == "RdBu_r":
            limits = (-float(np.abs(values).max()) or -1.0, float(np.abs(values).max()) or 1.0)
    grid = as_grid(points)
    if grid is not None:
        xs, ys, order = grid
        cells = values[order].reshape(len(ys), len(xs))
        low, high = limits
        drawn = ax.pcolormesh(xs, ys, cells, cmap=colours, vmin=low, vmax=high, shading="nearest", rasterized=True)
    else:
        drawn = ax.scatter(*points.T, c=values, cmap=colours, vmin=limits[0], vmax=limits[1], s=8)
    ax.grid(visible=False)
    ax.set_title(title, loc="left")
    figure.colorbar(drawn, ax=ax, fraction=0.05)


def _band_arms(title: str, runs: dict[str, Finished], style: dict[str, Stroke]) -> Figure:
    figure, axes = panels(math.ceil(len(runs) / 2), min(len(runs), 2), sharex=True, sharey=True, width=5.2, height=2.3)
    for ax, (policy, each) in zip(axes.flat, runs.items(), strict=False):
        f = np.array(each.facts["truth"])
        order = tables.best_first(each)
        place = np.arange(1, len(f) + 1)
        low, high = _last(each, "band_lower")[order], _last(each, "band_upper")[order]
        member = np.array(each.facts["in_class"])[order]
        ax.vlines(place, low, high, color=style[policy].colour, linewidth=4, alpha=0.35, label="band for f*")
        ax.vlines(place, member - each.epsilon, member + each.epsilon, color=MEMBER, linewidth=1, label="f̃ ± ε")
        ax.plot(place, f[order], "o", color=TRUTH, markersize=3, label="f*, the truth")
        counts = np.bincount(each.table["index"], minlength=len(f))[order]
        for at, n in zip(place, counts, strict=True):
            ax.annotate(f"{n}" if n else "", (at, 0.03), xycoords=("data", "axes fraction"), ha="center", fontsize=6)
        ax.set_title(unformatted(policy), loc="left")
        _frame(ax, f)
    for ax in axes[-1]:
        ax.set_xlabel("candidates, best first; below: times played")
    return finished(figure, title, axes)


# -- what the policies did ---------------------------------------------------------------------------------------------


def active(problem: str, groups: dict[float, Group], style: dict[str, Stroke]) -> Figure | None:
    """What a phased policy has left, episode by episode: where, in one dimension, and how much."""
    found = [
        (epsilon, policy, runs)
        for epsilon, group in groups.items()
        for policy, runs in group.items()
        if any(each.facts["episodes"] for each in runs)
    ]
    if not found:
        return None
    policies = list(dict.fromkeys(policy for _, policy, _ in found))
    figure, axes = panels(len(policies), len(groups), sharex=True, sharey="row", height=2.6)
    epsilons, label = list(groups), labels(groups)
    note = ""
    for epsilon, policy, runs in found:
        ax, first = axes[policies.index(policy), epsilons.index(epsilon)], runs[0]
        flat = first.pictured and first.facts["dimension"] == 1
        (_active_map if flat else _active_share)(ax, runs, style[policy])
        note = " (first seed; dashed: the optimum)" if flat else ", each seed"
        ax.set_title(
            f"{unformatted(policy)}\nε = {label[epsilon]}" if epsilon == epsilons[0] else f"ε = {label[epsilon]}",
            loc="left",
        )
        ax.set_xlabel("x" if flat else "episode")
        ax.set_ylabel("episode" if flat else "share still active")
    return finished(figure, f"{problem}: what is still active after each episode{note}", axes, legend=False)


def _active_map(ax: Any, runs: list[Finished], stroke: Stroke) -> None:
    each = runs[0]
    x = np.array(each.facts["points"])[:, 0]
    for episode, alive in alive_after(each).items():
        step = float(np.diff(np.unique(x)).min()) if len(x) > 1 else 1.0
        left = x[alive] - step / 2
        ax.broken_barh([(at, step) for at in left], (episode - 0.35, 0.7), color=stroke.colour, linewidth=0.4)
    ax.axvline(x[tables.best_first(each)[0]], color=TRUTH, linewidth=1, linestyle="--")
    ax.yaxis.set_inverted(True)  # of an axis that the row shares
    ax.grid(visible=False)


def _active_share(ax: Any, runs: list[Finished], stroke: Stroke) -> None:
    for each in runs:
        after = tables.shares_active(each)
        ax.step(np.arange(len(after)), after, where="post", color=stroke.colour, alpha=0.5)
    ax.set_ylim(0, 1.05)


def alive_after(each: Finished) -> dict[int, Any]:
    """Episode → the candidates that were active after it, as far as a look was taken between it and the next."""
    kept = each.looks.filter(each.looks["active"].is_not_null())
    ends = np.cumsum([length for length, _, _ in each.facts["episodes"]])
    found: dict[int, Any] = {}
    for t, alive in zip(kept["round"].to_list(), kept["active"].to_list(), strict=True):
        found[int((ends <= t).sum())] = np.array(alive, dtype=np.intp)
    return found


def bases(problem: str, groups: dict[float, Group], style: dict[str, Stroke]) -> Figure | None:
    """Which base of a balancing policy played when (first seed), and when the rewards refuted it (×, every seed)."""
    found = {
        (policy, epsilon): runs
        for epsilon, group in groups.items()
        for policy, runs in group.items()
        if runs[0].facts["epsilons"]
    }
    if not found:
        return None
    policies, epsilons = list(dict.fromkeys(policy for policy, _ in found)), list(groups)
    label = labels(groups)
    figure, axes = panels(len(policies), len(groups), height=2.8, sharey="row")
    for (policy, epsilon), runs in found.items():
        ax, each = axes[policies.index(policy), epsilons.index(epsilon)], runs[0]
        played, hats = each.table["base"].to_numpy(), each.facts["epsilons"]
        ax.plot(np.arange(1, len(played) + 1), played, "|", color=style[policy].colour, markersize=7, alpha=0.5)
        for run in runs:
            for base, when in run.facts["eliminated"]:
                ax.plot(when, base, "x", color=TRUTH, markersize=7, markeredgewidth=1.6 if run is each else 0.6)
        ax.set_yticks(range(len(hats)), [f"{hat:.2g}" for hat in hats])
        ax.set_ylim(len(hats) - 0.5, -0.5)
        ax.set_title(
            f"{unformatted(policy)}\nε = {label[epsilon]}" if epsilon == epsilons[0] else f"ε = {label[epsilon]}",
            loc="left",
        )
        ax.set_xlabel("round")
        if epsilon == epsilons[0]:
            ax.set_ylabel("ε̂ of the base")
    gone = any(run.facts["eliminated"] for runs in found.values() for run in runs)
    note = "; × eliminated (bold: in this seed)" if gone else "; none was eliminated"
    return finished(figure, f"{problem}: which base played when, first seed{note}", axes, legend=False)


def coverage(problem: str, groups: dict[float, Group], style: dict[str, Stroke]) -> Figure:
    """How much of f* lies in the band, by round."""
    figure, axes = panels(1, len(groups), sharey="row", height=3.2)
    label = labels(groups)
    for column, (epsilon, group) in enumerate(groups.items()):
        ax = axes[0, column]
        for policy, runs in group.items():
            curve = tables.coverage_curve(runs)
            width = 1.2 + 2.0 * (1 - list(group).index(policy) / len(group))  # so that coinciding lines all show
            _line(
                ax,
                curve.x,
                curve.mean,
                style[policy],
                label=unformatted(policy),
                linewidth=width,
                solid_capstyle="butt",
            )
        ax.set(xscale="log", xlabel="round", title=f"ε = {label[epsilon]}")
    axes[0, 0].set_ylabel("share of f* inside the band")
    axes[0, 0].set_ylim(top=1.02)
    return finished(
        figure,
        f"{problem}: mean over seeds (bands of GP-UCB, LinUCB and phased policies take the model as right)",
        axes,
    )


# -- small parts -------------------------------------------------------------------------------------------------------


def panels(rows: int, columns: int, *, width: float | None = None, height: float = 2.8, **shared: Any) -> Any:
    """A figure and its axes."""
    alone = rows == columns == 1  # needs room for the legend beside it
    wide = width or (9.0 if alone else max(3.2, min(5.5, 13.0 / columns)))
    figure = Figure(figsize=(wide * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def _line(ax: Any, x: Array, y: Array, stroke: Stroke, **options: Any) -> None:
    ax.plot(x, y, color=stroke.colour, linestyle=DASH[stroke.dash], **options)


def _frame(ax: Any, f: Array) -> None:
    ax.set_ylim(*vertical(f))


def _last(each: Finished, name: str) -> Array:
    return np.array(each.looks[name].to_list()[-1])


def finished(figure: Figure, title: str, axes: Any, *, legend: bool = True) -> Figure:
    """With its title and one legend for all axes."""
    aside = legend and axes.size == 1  # one picture has its legend beside it, and its title at the left of that
    lines = textwrap.wrap(title, int(LETTERS * figure.get_figwidth()))  # names of problems can be long
    figure.suptitle(unformatted("\n".join(lines)), fontsize=10, **({"x": 0.01, "ha": "left"} if aside else {}))
    for ax in axes.flat:
        if not ax.has_data():
            ax.set_visible(False)
    entries: dict[str, Any] = {}
    for ax in axes.flat:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if legend and entries:
        widest = max(len(label) for label in entries)
        per_row = 1 if aside else max(1, int(figure.get_figwidth() * 13 / (widest + 6)))
        place: Any = "outside right center" if aside else "outside lower center"
        figure.legend(list(entries.values()), list(entries), loc=place, ncols=min(per_row, len(entries)))
    return figure


def unformatted(name: str) -> str:
    """A name with dollar signs is a name, not a formula, and one that starts with _ belongs in a legend too."""
    return (" " if name.startswith("_") else "") + printable(name).replace("$", r"\$")
