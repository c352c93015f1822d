"""One simulation in one picture: what it cost, how often the best action was played, who played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from misspec.errors import Array, InvalidInput
from misspec.reports.figures import drawing, finished, panels, unformatted
from misspec.reports.style import COLOURS, TRUTH
from misspec.reports.tables import some_of_each, thinned
from misspec.simulation import Trace

INCHES = {"regret": 2.4, "share": 2.0}  # heights of panels; that of the bases grows with their number
ROW, ROWS = 0.24, 0.8  # of a base, and of the rest of their panel


def trace_figure(trace: Trace, bases: Sequence[str] | None = None) -> Figure:
    """A matplotlib Figure of a `simulate`; `figure.savefig("run.png", dpi=150)` writes it.

    Panels, by round: the cumulative regret; where action sets vary, the share of the rounds so far in which the best
    action was played; of a balancing policy, which base played when, with a × where one was eliminated.

    bases: their names; by default each is called by its number and its ε̂.
    """
    if not isinstance(trace, Trace):
        raise InvalidInput(f"trace_figure draws a Trace, as simulate returns it, got {type(trace).__name__}")
    names = _names(trace, bases)
    heights = [INCHES["regret"]]
    heights += [INCHES["share"]] if trace.offers is not None else []
    heights += [ROWS + ROW * len(names)] if names else []
    with drawing():
        figure, axes = panels(
            len(heights), 1, width=8.0, height=sum(heights) / len(heights), sharex=True,
            gridspec_kw={"height_ratios": heights},
        )  # fmt: skip
        rows = iter(axes[:, 0])
        x = thinned(len(trace), most=2000)
        _line(next(rows), x, trace.cumulative_regret[x - 1], "cumulative regret")
        if trace.offers is not None:
            ax = next(rows)
            _line(ax, x, trace.best_share[x - 1], "share of the\nbest action so far")
            ax.set_ylim(0, 1.02)
        if names:
            _bases(next(rows), trace, names)
            for when, _ in _gone(trace):
                for ax in axes[:, 0]:
                    ax.axvline(when, color=TRUTH, linewidth=0.8, linestyle=":", alpha=0.6)
        axes[-1, 0].set_xlabel("round")
        axes[-1, 0].set_xlim(0, len(trace) + 1)
        return finished(figure, f"{trace.policy} on {trace.problem}, seed {trace.seed}", axes, legend=False)


def _names(trace: Trace, bases: Sequence[str] | None) -> list[str]:
    """Of the bases of a balancing policy; none for others."""
    if trace.base is None:
        if bases is not None:
            raise InvalidInput(f"bases are those of a balancing policy, and {trace.policy} has none; leave them out")
        return []
    hats = trace.facts["epsilons"]
    if bases is None:
        return [f"{i}: ε̂ = {hat:.2g}" for i, hat in enumerate(hats)]
    if len(bases) != len(hats):
        raise InvalidInput(f"bases must be a name for each of the {len(hats)} bases, got {len(bases)}")
    return [unformatted(name) for name in bases]


def _line(ax: Any, x: NDArray[np.intp], y: Array, label: str) -> None:
    ax.plot(x, y, color=COLOURS[0])
    ax.set_ylabel(label)
    ax.set_ylim(bottom=0)


def _bases(ax: Any, trace: Trace, names: list[str]) -> None:
    played = np.asarray(trace.base)
    some = some_of_each(played, most=1000)
    ax.plot(1 + some, played[some], "|", color=COLOURS[0], markersize=8, alpha=0.5)
    for when, base in _gone(trace):
        ax.plot(when, base, "x", color=TRUTH, markersize=9, markeredgewidth=2)
        left = when > 0.6 * len(trace)  # where there is more room
        ax.annotate(
            f"eliminated after {when:,} rounds", (when, base), xytext=(-9 if left else 9, 0),
            textcoords="offset points", ha="right" if left else "left", va="center",
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "alpha": 0.85, "linewidth": 0},
        )  # fmt: skip
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_ylabel("base that\nplayed")
    ax.grid(visible=False, axis="y")


def _gone(trace: Trace) -> list[tuple[int, int]]:
    """Rounds of this trace after which bases were eliminated, and which."""
    found = [(gone.round - trace.facts["before"], gone.base) for gone in trace.facts["eliminated"]]
    return [(when, base) for when, base in found if when >= 1]  # earlier ones were before this trace
