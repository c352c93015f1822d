"""One self-contained page: Plotly inside, no network, every name escaped; what is large is compressed."""

from __future__ import annotations

import base64
import gzip
import html
import json
from importlib import resources
from typing import Any

import polars as pl

from misspec.experiments.contest import Contest
from misspec.experiments.store import Results, version
from misspec.reports import bands, contest, figures, plotly_backend
from misspec.reports.plotly_backend import Json
from misspec.reports.style import Stroke, labels, strokes
from misspec.reports.tables import Group
from misspec.reports.theorems import Allowed, Bound


def page(results: Results, summary: pl.DataFrame, allowed: Allowed, first: Contest | None = None) -> str:
    """The page as HTML; summary and allowed are what `tables.summary` and `theorems.all_bounds` find.

    first: what the page begins with, in the demo.
    """
    from plotly.offline import get_plotlyjs

    style, groups = strokes(results.experiment), results.groups()
    problems = list(dict.fromkeys(problem for problem, _ in groups))
    index: list[Json] = [{"name": problem, "epsilons": []} for problem in problems]
    scripts = []
    for number, ((problem, epsilon), group) in enumerate(groups.items()):
        label = labels(each for name, each in groups if name == problem)
        index[problems.index(problem)]["epsilons"].append((f"ε = {label[epsilon]}", number, epsilon))
        mine = summary.filter((pl.col("problem") == problem) & (pl.col("epsilon") == epsilon))
        content = _group(group, style, mine, figures.here(allowed, problem, epsilon, group))
        if len(label) > 1:
            by_epsilon = figures.against_epsilon(results, problem, style)
            content["figures"]["epsilon"] = plotly_backend.figure(by_epsilon, 420)
        scripts.append((f"group-{number}", content))
    if first is not None:
        scripts.append(("contest-data", contest.plot(first)))
    title = results.experiment.title or results.path.resolve().name
    seeds = len(results.experiment.all_seeds)
    done = (
        "" if len(results.runs) == results.of else f" ({results.of - len(results.runs)} of {results.of} still missing)"
    )
    about = (
        f"{len(results.runs)} runs{done}: {len(style)} policies, {len(problems)} problem{'s' * (len(problems) > 1)}, "
        f"{seeds} seed{'s' * (seeds > 1)}, {results.experiment.horizon:,} rounds each"
    )
    data = "\n".join(compressed(name, script(content)) for name, content in [("index", index), *scripts])
    return asset("page.html").format(
        head=html.escape(title if first is None else "misspec demo"),
        first="" if first is None else contest.section(first),
        title=html.escape(title if first is None else f"With guarantees: {title}"),
        about=html.escape(about),
        notes="".join(f"<p>{html.escape(line)}</p>" for line in results.experiment.notes.splitlines() if line.strip()),
        version=html.escape(version()),
        css=asset("page.css"),
        plotly=compressed("plotly", get_plotlyjs()),
        data=data,
        js=asset("draw.js") + asset("page.js"),
    )


def asset(name: str) -> str:
    """A part of a page, as it is stored beside this file."""
    return resources.files("misspec.reports").joinpath(name).read_text(encoding="utf-8")


def compressed(name: str, text: str) -> str:
    """Text for the page's script to inflate: base64 of gzip."""
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return f'<script type="text/plain" id="{name}">{packed}</script>'


def script(content: Any) -> str:
    """JSON that can stand in a script element."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _group(group: Group, style: dict[str, Stroke], summary: pl.DataFrame, allowed: dict[str, list[Bound]]) -> Json:
    """A problem at an ε: its figures, its cards, its table."""
    drawn: Json = figures.on_page(group, style, allowed)
    pictured = [runs[0] for runs in group.values() if runs[0].pictured]
    shown = bands.cards(pictured, style)
    return {
        "figures": drawn,
        "bounds": [i for i, trace in enumerate(drawn["regret"]["data"]) if trace.get("visible") is False],
        "cards": shown,
        "rounds": pictured[0].looks["round"].to_list() if shown else [],
        "table": _table(summary, style),
        "keys": bands.keys(pictured[0]) if shown else "",
    }


def _table(summary: pl.DataFrame, style: dict[str, Stroke]) -> str:
    head = "".join(
        f'<th title="{html.escape(about)}">{name}</th>'
        for name, about in (
            ("policy", ""),
            ("loss of the recommendation", "regret of what is recommended after the last round"),
            ("bands held", "share of the runs whose band held all of the truth whenever it was looked at"),
            ("late regret", "true regret per round over the last tenth of the rounds"),
            ("regret", "true regret per round, mean over the seeds ± standard error"),
            ("proved ε", "how wrong the model must be at least, by what a run observed; the largest over the seeds"),
        )
    )
    rows = []
    for row in summary.iter_rows(named=True):
        stroke = style[row["policy"]]
        line = "dashed" if stroke.dash != "solid" else "solid"
        error = "" if row["error"] is None else f" ± {row['error']:.4f}"
        cells = [
            f'<i style="border-color:{stroke.colour};border-top-style:{line}"></i>{html.escape(row["policy"])}',
            f"{row['recommended_regret']:.4f}",
            f"{100 * row['covered']:.0f} %" if row["claims"] else "–",
            f"{row['late']:.4f}",
            f"{row['regret']:.4f}{error}",
            f"{row['proved']:.3f}" if row["proved"] > 0 else "–",
        ]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
