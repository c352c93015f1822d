"""One simulation in one picture: what it cost, how often the best action was played, who played."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from misspec.errors import Array, InvalidInput
from misspec.reports.figures import base_marks
from misspec.reports.matplotlib_backend import drawing, figure
from misspec.reports.picture import Axis, Line, Mark, Note, Panel, Rule
from misspec.reports.style import COLOURS, TRUTH
from misspec.reports.tables import thinned
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
    gone = _gone(trace) if names else []
    heights = [INCHES["regret"]]
    heights += [INCHES["share"]] if trace.offers is not None else []
    heights += [ROWS + ROW * len(names)] if names else []
    x = thinned(len(trace), most=2000)
    eliminations: list[Mark] = [Rule(when, dash="dot", width=0.8, colour=TRUTH, alpha=0.6) for _, when in gone]
    rounds = Axis("round", range=(0, len(trace) + 1))

    def by_round(values: Array, y: Axis) -> Panel:
        return Panel([Line(x, values[x - 1], colour=COLOURS[0]), *eliminations], rounds, y)

    panels = [by_round(trace.cumulative_regret, Axis("cumulative regret", zero=True))]
    if trace.offers is not None:
        panels.append(by_round(trace.best_share, Axis("share of the\nbest action so far", range=(0, 1.02))))
    if names:
        y = Axis("base that\nplayed", range=(len(names) - 0.5, -0.5), ticks=range(len(names)), labels=names, grid=False)
        marks = [*eliminations, *base_marks(np.asarray(trace.base), gone, COLOURS[0])]
        panels.append(Panel([*marks, *(_eliminated(base, when, len(trace)) for base, when in gone)], rounds, y))
    with drawing():
        title = f"{trace.policy} on {trace.problem}, seed {trace.seed}"
        rows = [[panel] for panel in panels]
        return figure(rows, title, legend=False, width=8.0, heights=heights, sharex=True)


def _names(trace: Trace, bases: Sequence[str] | None) -> list[str]:
    """Names of the bases of a balancing policy; none for others."""
    if trace.base is None:
        if bases is not None:
            raise InvalidInput(f"bases are those of a balancing policy, and {trace.policy} has none; leave them out")
        return []
    hats = trace.facts["epsilons"]
    if bases is None:
        return [f"{i}: ε̂ = {hat:.2g}" for i, hat in enumerate(hats)]
    if len(bases) != len(hats):
        raise InvalidInput(f"bases must be a name for each of the {len(hats)} bases, got {len(bases)}")
    return list(bases)


def _eliminated(base: int, when: int, rounds: int) -> Note:
    left = when > 0.6 * rounds  # where there is more room
    shift, align = ((-9.0, 0.0), "right") if left else ((9.0, 0.0), "left")
    return Note(when, base, f"eliminated after {when:,} rounds", shift, align, framed=True)


def _gone(trace: Trace) -> list[tuple[int, int]]:
    """Bases that were eliminated in this trace, and after which of its rounds."""
    found = [(gone.base, gone.round - trace.facts["before"]) for gone in trace.facts["eliminated"]]
    return [(base, when) for base, when in found if when >= 1]  # earlier ones were before this trace
