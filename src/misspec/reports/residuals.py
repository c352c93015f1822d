"""What a class of functions leaves unexplained, in one picture."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from misspec.errors import InvalidInput, shown
from misspec.reports.matplotlib_backend import drawing, figure
from misspec.reports.picture import Axis, Band, Mark, Panel, Points, Rule
from misspec.reports.style import COLOURS, MISSED
from misspec.truth import Diagnosis

MOST_DRAWN = 2000  # points: more are a cloud


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
        marks.append(Band(ends, -np.full(2, epsilon), np.full(2, epsilon), alpha=0.12, label=f"ε ≥ {epsilon:.3g}"))
    for chosen, colour, label in ((~missed, COLOURS[0], "explained within its radius"), (missed, MISSED, "not")):
        if chosen.any():
            low, high = r[chosen] - radius[chosen], r[chosen] + radius[chosen]
            marks.append(Points(x[chosen], r[chosen], low=low, high=high, colour=colour, label=label))
    best = max(diagnosis.certificates, key=lambda proof: proof.epsilon)
    title = f"{best.kind}: {best.sentence}" if epsilon > 0 else "the data do not contradict the model"
    with drawing():
        axes = Axis("nearest function of the class"), Axis("observed less that")
        return figure([[Panel(marks, *axes)]], title, width=9.0, heights=3.6)
