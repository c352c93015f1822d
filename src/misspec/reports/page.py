"""Self-contained pages: Plotly inside, no network, every name escaped; what is large is compressed."""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Iterable
from importlib import resources
from typing import Any

import numpy as np
import polars as pl
from plotly.offline import get_plotlyjs

from misspec.errors import Array
from misspec.experiments.contest import Contest
from misspec.experiments.store import Results, version
from misspec.markup import table
from misspec.policies.auto import learnt
from misspec.reports import bands, figures, optimisation_figures, plotly_backend, tables
from misspec.reports.left_out import sentence
from misspec.reports.optimisation import BEST, MOST_SLICES, Optimisation
from misspec.reports.plotly_backend import Json
from misspec.reports.style import MISSED, Stroke, labels, strokes
from misspec.reports.tables import Group
from misspec.reports.theorems import Allowed, Bound
from misspec.search import distinct

HEADS = {
    "policy": "",
    "loss of the recommendation": "regret of what is recommended after the last round",
    "bands held": "share of the runs whose band held all of the truth whenever it was looked at",
    "late regret": "true regret per round over the last tenth of the rounds",
    "regret": "true regret per round, mean over the seeds ± standard error",
    "compared": "how much more regret than the policy with –, over the same seeds ± a 95 % interval (paired t)",
    "proved ε": "how wrong the model must be at least, by what a run observed; the largest over the seeds",
}


def page(results: Results, summary: pl.DataFrame, allowed: Allowed, first: Contest | None = None) -> str:
    """The page as HTML; summary and allowed are what `tables.summary` and `theorems.all_bounds` find.

    first: what the page begins with, in the demo.
    """
    experiment, style, problems = results.experiment, strokes(results.experiment), tables.by_problem(results)
    index: list[Json] = []
    data: list[Json] = []
    for problem, groups in problems.items():
        label, compared = labels(groups), figures.against_epsilon(groups, style)
        index.append({"name": problem, "epsilons": []})
        for epsilon, group in groups.items():
            index[-1]["epsilons"].append((f"ε = {label[epsilon]}", len(data), epsilon))
            mine = summary.filter((pl.col("problem") == problem) & (pl.col("epsilon") == epsilon))
            content = _group(group, style, mine, allowed[problem, epsilon])
            content["figures"]["epsilon"] = compared and plotly_backend.figure_json(compared, 420)
            data.append(content)
    scripts = {"index": index} | {f"group-{number}": content for number, content in enumerate(data)}
    if first is not None:
        scripts["contest-data"] = plotly_backend.figure_json(figures.contest(first), 380)
    title, seeds = experiment.title or results.path.resolve().name, len(experiment.all_seeds)
    missing, trusting = results.of - len(results.runs), tables.trusting(results.runs)
    taken = f"Take the model as right, so that with a misfit their bands need not hold f*: {trusting}."
    about = (
        f"{len(results.runs)} runs{f' ({missing} of {results.of} still missing)' if missing else ''}: {len(style)} "
        f"policies, {len(problems)} problem{'s' * (len(problems) > 1)}, {seeds} seed{'s' * (seeds > 1)}, "
        f"{experiment.horizon:,} rounds each"
    )
    return _filled(
        "page",
        title if first is None else "misspec demo",
        [_compressed("plotly", get_plotlyjs()), *(_compressed(name, _script(each)) for name, each in scripts.items())],
        first="" if first is None else section(first),
        title=html.escape(title if first is None else f"With guarantees: {title}"),
        about=html.escape(about),
        trusting=f"<p>{html.escape(taken)}</p>" if trusting else "",
        notes="".join(f"<p>{html.escape(line)}</p>" for line in experiment.notes.splitlines() if line.strip()),
    )


def _group(group: Group, style: dict[str, Stroke], summary: pl.DataFrame, allowed: dict[str, list[Bound]]) -> Json:
    """A problem at an ε: its figures, its cards, its table."""
    drawn: Json = figures.on_page(group, style, allowed)
    pictured = [runs[0] for runs in group.values() if runs[0].pictured]
    cards = bands.cards(pictured, style)
    return {
        "figures": drawn,
        "bounds": [i for i, trace in enumerate(drawn["regret"]["data"]) if trace.get("visible") is False],
        "cards": cards,
        "rounds": pictured[0].looks["round"].to_list() if cards else [],
        "table": table(HEADS, [_row(row, style[row["policy"]]) for row in summary.iter_rows(named=True)]),
        "keys": bands.keys(pictured[0]) if cards else "",
    }


def _row(row: Json, stroke: Stroke) -> list[str]:
    line = "dashed" if stroke.dash != "solid" else "solid"
    return [
        f'<i style="border-color:{stroke.colour};border-top-style:{line}"></i>{html.escape(row["policy"])}',
        f"{row['recommended_regret']:.4f}",
        f"{100 * row['covered']:.0f} %" if row["claims"] else "–",
        f"{row['late']:.4f}",
        f"{row['regret']:.4f}" + ("" if row["error"] is None else f" ± {row['error']:.4f}"),
        tables.difference(row),
        f"{row['proved']:.3f}" if row["proved"] > 0 else "–",
    ]


def section(found: Contest) -> str:
    """The first part of the page; its figure is drawn into `contest`."""
    (first, *others), heads = found.players, ("", "all batches", f"last {found.late}", "best found")
    rows = [[name, *(f"{value:.1f}" for value in values)] for name, *values in found.rows()]
    said, lines = found.sentences, "".join(f"<li>{html.escape(line)}</li>" for line in found.said)
    return (
        f"<header><h1>Without constants: {first} beside {' and '.join(others)}</h1><p>{html.escape(found.about)}</p>"
        f'</header><section><p class="message"><b>{html.escape(said[0])}</b> {html.escape(said[1])}</p>'
        '<div id="contest"></div>'
        f'<p class="small">Medians over {found.seeds} reactions; shaded: from the first to the third quartile.</p>'
        f'{table(heads, rows, "short")}<p class="small">{html.escape(found.reading)}</p>'
        f"<h2>What ms.Auto knows of the first reaction after {found.evaluations} batches</h2>"
        f"<ul class='sentences'>{lines}</ul></section>"
    )


def policy_page(found: Optimisation) -> str:
    """The page of one optimisation: its figures, the best points and the contradictions as tables."""
    plotly, data = (
        get_plotlyjs().replace("</script", "<\\/script"),
        _script(optimisation_figures.figures_on_page(found)),
    )
    return _filled(
        "optimisation",
        found.title,
        [f"<script>{plotly}</script>", f'<script type="application/json" id="data">{data}</script>'],
        title=html.escape(found.title),
        about=html.escape(found.about),
        sentences="".join(f"<li>{html.escape(line)}</li>" for line in found.sentences),
        better=found.better,
        leading=_leading(found),
        target=html.escape(found.target),
        shown=f", of the {MOST_SLICES} that matter most" if len(found.axes) > MOST_SLICES else "",
        conflicts=_conflicts(found),
        failed=_failed(found),
        key="" if not len(found.failures) else f'<span><b style="color:{MISSED}">×</b> failed</span>',
    )


def _leading(found: Optimisation) -> str:
    """The best points as a table."""
    points, order, step = found.points, found.leading(BEST), 0.01 * float(np.ptp(found.vertical()))

    def rounded(values: Array) -> list[str]:
        return [learnt.rounded(value, step) for value in values[order].tolist()]

    columns = [("", [str(rank + 1) for rank in range(len(order))])]
    columns += [("name", [points.labels[i] for i in order])] if any(points.labels) else []
    none = np.isnan(points.averages[order])
    columns += [(found.target, ["doubtful" if n else y for n, y in zip(none, rounded(points.averages), strict=True)])]
    columns += [(name, [learnt.plain(points.values[i].get(name, "–")) for i in order]) for name in points.names]
    columns += [("expected", rounded(points.expected))] if found.use else []
    columns += [("times", [str(points.counts[i]) for i in order])]
    heads, cells = zip(*columns, strict=True)
    rows = (map(html.escape, row) for row in zip(*cells, strict=True))
    return table([html.escape(head) for head in heads], rows, "ranked")


def _failed(found: Optimisation) -> str:
    """The points of failed evaluations, and how often each failed."""
    if not len(found.failures):
        return ""
    points, first, number = distinct(found.failures.x)
    order, named = np.argsort(first, kind="stable"), any(found.failures.labels)
    rows = [
        [
            *([found.failures.labels[first[i]]] if named else []),
            *(learnt.plain(found.failures.values[first[i]].get(name, "–")) for name in found.points.names),
            str(n),
        ]
        for i, n in zip(order[:BEST], np.bincount(number)[order].tolist(), strict=False)
    ]
    more = f"<p>And {len(points) - BEST} more.</p>" if len(points) > BEST else ""
    heads = [*(["name"] if named else []), *found.points.names, "times"]
    numbers = table(list(map(html.escape, heads)), (map(html.escape, row) for row in rows))
    count = f"{len(found.failures)} evaluation{'s' * (len(found.failures) > 1)}"
    return f'<section><h2>Failed</h2><p>{count} gave no result.</p><div class="scroll">{numbers}</div>{more}</section>'


def _conflicts(found: Optimisation) -> str:
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


def _filled(name: str, head: str, data: Iterable[str], **parts: str) -> str:
    """A kind of page in the frame that all have. data: script elements, which its own script reads."""
    return _asset("frame.html").format(
        head=html.escape(head),
        css=_asset("page.css"),
        body=_asset(f"{name}.html").format(**parts),
        version=html.escape(version()),
        data="\n".join(data),
        js=_asset("draw.js") + _asset(f"{name}.js"),
    )


def _asset(name: str) -> str:
    """A part of a page, which is stored beside this file."""
    return resources.files("misspec.reports").joinpath(name).read_text(encoding="utf-8")


def _compressed(name: str, text: str) -> str:
    """Text for the page's script to inflate: base64 of gzip."""
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return f'<script type="text/plain" id="{name}">{packed}</script>'


def _script(content: Any) -> str:
    """JSON that can stand in a script element."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
