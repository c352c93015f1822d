"""One picture of one thing: of a simulation, or of what a class of functions leaves unexplained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from misspec.errors import Array, InvalidInput, shown
from misspec.reports import cells
from misspec.reports.figures import base_marks
from misspec.reports.matplotlib_backend import figure
from misspec.reports.picture import Axis, Line, Mark, Note, Panel, Points, Ribbon, Rule
from misspec.reports.style import COLOURS, MISSED, TRUTH
from misspec.reports.tables import thinned
from misspec.simulation import Trace
from misspec.truth import Diagnosis

INCHES = {"regret": 2.4, "share": 2.0, "cells": 3.2}  # heights of panels; that of the bases grows with their number
ROW, ROWS = 0.24, 0.8  # of a base, and of the rest of their panel
MOST_DRAWN = 2000  # points of residuals: more are a cloud


def trace_figure(trace: Trace, bases: Sequence[str] | None = None) -> Figure:
    """A matplotlib Figure of a `simulate`; `figure.savefig("run.png", dpi=150)` writes it.

    Panels, by round: the cumulative regret; where action sets vary, the share of the rounds so far in which the best
    action was played; of a balancing policy, which base played when, with a × where one was eliminated; of domain
    splitting, the cells, over the rounds in one dimension and at the end in two.

    bases: their names; by default each is called by its number and its ε̂, or what it is.
    """
    if not isinstance(trace, Trace):
        raise InvalidInput(f"trace_figure draws a Trace, as simulate returns it, got {type(trace).__name__}")
    names = _names(trace, bases)
    gone = [(each.base, each.round - trace.facts["before"]) for each in trace.facts.get("eliminated", ())]
    gone = [(base, when) for base, when in gone if when >= 1]  # earlier ones were before this trace
    heights = [INCHES["regret"]]
    heights += [INCHES["share"]] if trace.offers is not None else []
    heights += [ROWS + ROW * len(names)] if names else []
    x = thinned(len(trace), most=2000)
    eliminations: list[Mark] = [Rule(when, dash="dot", width=0.8, colour=TRUTH, alpha=0.6) for _, when in gone]
    drawn = [cells.Drawn(each.bounds.tolist(), each.born, each.split) for each in trace.facts.get("cells", [])]
    split = cells.panel(drawn, trace.x, COLOURS[0], before=trace.facts["before"]) if drawn else None
    heights += [INCHES["cells"]] if split else []
    rounds = Axis("round", range=(0, len(trace) + 1))

    def by_round(values: Array, y: Axis) -> Panel:
        return Panel([Line(x, values[x - 1], colour=COLOURS[0]), *eliminations], rounds, y)

    panels = [by_round(trace.cumulative_regret, Axis("cumulative regret", zero=True))]
    if trace.offers is not None:
        panels.append(by_round(trace.best_share, Axis("share of the\nbest action so far", range=(0, 1.02))))
    if names:
        y = Axis("base that\nplayed", range=(len(names) - 0.5, -0.5), ticks=range(len(names)), labels=names, grid=False)
        marks = [*eliminations, *base_marks(np.asarray(trace.base), gone, COLOURS[0])]
        for base, when in gone:
            # on the side that has more room
            shift, align = ((-9.0, 0.0), "right") if when > 0.6 * len(trace) else ((9.0, 0.0), "left")
            marks.append(Note(when, base, f"eliminated after {when:,} rounds", shift, align, framed=True))
        panels.append(Panel(marks, rounds, y))
    panels += [split] if split else []
    title = f"{trace.policy} on {trace.problem}, seed {trace.seed}"
    sharex = not split or trace.x.shape[1] == 1  # two dimensions are drawn as a map
    return figure([[panel] for panel in panels], title, legend=False, width=8.0, heights=heights, sharex=sharex)


def _names(trace: Trace, bases: Sequence[str] | None) -> list[str]:
    """Names of the bases of a balancing policy; none for others."""
    if trace.base is None:
        if bases is not None:
            raise InvalidInput(f"bases are those of a balancing policy, and {trace.policy} has none; leave them out")
        return []
    facts = trace.facts
    told = facts.get("bases") or [f"ε̂ = {hat:.2g}" for hat in facts.get("epsilons", ())]
    if bases is None:
        return [f"{i}: {each}" for i, each in enumerate(told or [f"{n} rounds" for n in facts["counts"]])]
    if len(bases) != len(facts["counts"]):
        raise InvalidInput(f"bases must be a name for each of the {len(facts['counts'])} bases, got {len(bases)}")
    return list(bases)


def residuals_figure(diagnosis: Diagnosis) -> Figure:
    """A matplotlib Figure of a `diagnose`; `figure.savefig("residuals.png", dpi=150)` writes it.

    For every distinct point what was observed less the nearest function of the class, with the radius of its average;
    red where the two do not meet. Shaded: the misspecification that is proved.
    """
    if not isinstance(diagnosis, Diagnosis):
        raise InvalidInput(f"residuals_figure draws a Diagnosis, as diagnose returns it, got {shown(diagnosis)}")
    rows = np.unique(np.linspace(0, len(diagnosis.fitted) - 1, MOST_DRAWN).astype(np.intp))
    x, r, radius = diagnosis.fitted[rows], diagnosis.residuals[rows], diagnosis.radii[rows]
    missed, epsilon = np.abs(r) > radius, diagnosis.epsilon_lower
    marks: list[Mark] = [Rule(0.0, vertical=False, dash="solid", width=0.8)]
    if epsilon > 0:
        ends = np.array([x.min(), x.max()])
        marks.append(Ribbon(ends, -np.full(2, epsilon), np.full(2, epsilon), alpha=0.12, label=f"ε ≥ {epsilon:.3g}"))
    for chosen, colour, label in ((~missed, COLOURS[0], "explained within its radius"), (missed, MISSED, "not")):
        if chosen.any():
            low, high = r[chosen] - radius[chosen], r[chosen] + radius[chosen]
            marks.append(Points(x[chosen], r[chosen], low=low, high=high, colour=colour, label=label))
    best = max(diagnosis.certificates, key=lambda proof: proof.epsilon)
    title = f"{best.kind}: {best.sentence}" if epsilon > 0 else "the data do not contradict the model"
    panel = Panel(marks, Axis("nearest function of the class"), Axis("observed less that"))
    return figure([[panel]], title, width=9.0, heights=3.6)
