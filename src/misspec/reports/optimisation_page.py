"""One optimisation as a page: its figures, the best points and the contradictions as tables."""

from __future__ import annotations

import html

import numpy as np

from misspec.experiments.store import version
from misspec.policies.auto import learnt
from misspec.reports import optimisation_figures
from misspec.reports.left_out import sentence
from misspec.reports.markup import asset, script, table
from misspec.reports.optimisation import BEST, MOST_SLICES, Optimisation


def page(found: Optimisation) -> str:
    """The page as HTML."""
    from plotly.offline import get_plotlyjs

    figures = script(optimisation_figures.on_page(found))
    return asset("optimisation.html").format(
        title=html.escape(found.title),
        about=html.escape(found.about),
        sentences="".join(f"<li>{html.escape(line)}</li>" for line in found.sentences),
        better=found.better,
        leading=leading(found),
        target=html.escape(found.target),
        shown=f", of the {MOST_SLICES} that matter most" if len(found.axes) > MOST_SLICES else "",
        conflicts=conflicts(found),
        version=html.escape(version()),
        css=asset("page.css"),
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
        data=f'<script type="application/json" id="data">{figures}</script>',
        js=asset("draw.js") + asset("optimisation.js"),
    )


def leading(found: Optimisation) -> str:
    """The best points as a table."""
    points, named, step = found.points, any(found.points.labels), 0.01 * float(np.ptp(found.vertical()))
    head = [
        "",
        *(["name"] if named else []),
        found.target,
        *points.values[0],
        *(["expected"] if found.use else []),
        "times",
    ]
    rows = []
    for rank, i in enumerate(found.leading(BEST), 1):
        cells = [f"{rank}", *([points.labels[i]] if named else []), learnt.rounded(float(points.averages[i]), step)]
        cells += [learnt.plain(value) for value in points.values[i].values()]
        cells += [learnt.rounded(float(points.expected[i]), step)] if found.use else []
        rows.append([*map(html.escape, cells), f"{points.counts[i]}"])
    return table(list(map(html.escape, head)), rows, "ranked")


def conflicts(found: Optimisation) -> str:
    """How often the bands hold, doubtful results, and a table of the points that contradict the model."""
    if found.use is None:
        return ""
    said = "" if found.left_out is None else f"<p>{html.escape(sentence(found.left_out))}</p>"
    if found.doubtful:
        rows = ", ".join(str(row + 1) for row in found.doubtful)
        said += f"<p>Doubtful: evaluation{'s' * (len(found.doubtful) > 1)} {rows}, which the others do not predict.</p>"
    if not found.conflicts:
        return said if found.doubtful else f"{said}<p>Nowhere do the results contradict the model.</p>"
    worst = [(html.escape(where), f"{gap:.3g}") for where, gap in found.conflicts[:BEST]]
    more = f"<p>And {len(found.conflicts) - BEST} more.</p>" if len(found.conflicts) > BEST else ""
    return f'{said}<div class="scroll">{table(["where", "by how much"], worst)}</div>{more}'
