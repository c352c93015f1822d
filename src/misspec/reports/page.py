"""One self-contained page: Plotly inside, no network, every name escaped; what is large is compressed."""

from __future__ import annotations

import html

import polars as pl

from misspec.experiments.contest import Contest
from misspec.experiments.store import Results, version
from misspec.reports import bands, contest, figures, plotly_backend, tables
from misspec.reports.markup import asset, compressed, script, table
from misspec.reports.plotly_backend import Json
from misspec.reports.style import Stroke, labels, strokes
from misspec.reports.tables import Group
from misspec.reports.theorems import Allowed, Bound

HEADS = {
    "policy": "",
    "loss of the recommendation": "regret of what is recommended after the last round",
    "bands held": "share of the runs whose band held all of the truth whenever it was looked at",
    "late regret": "true regret per round over the last tenth of the rounds",
    "regret": "true regret per round, mean over the seeds ± standard error",
    "proved ε": "how wrong the model must be at least, by what a run observed; the largest over the seeds",
}


def page(results: Results, summary: pl.DataFrame, allowed: Allowed, first: Contest | None = None) -> str:
    """The page as HTML; summary and allowed are what `tables.summary` and `theorems.all_bounds` find.

    first: what the page begins with, in the demo.
    """
    from plotly.offline import get_plotlyjs

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
            content["figures"]["epsilon"] = compared and plotly_backend.figure(compared, 420)
            data.append(content)
    scripts = {"index": index} | {f"group-{number}": content for number, content in enumerate(data)}
    if first is not None:
        scripts["contest-data"] = contest.plot(first)
    title, seeds = experiment.title or results.path.resolve().name, len(experiment.all_seeds)
    missing = results.of - len(results.runs)
    about = (
        f"{len(results.runs)} runs{f' ({missing} of {results.of} still missing)' if missing else ''}: {len(style)} "
        f"policies, {len(problems)} problem{'s' * (len(problems) > 1)}, {seeds} seed{'s' * (seeds > 1)}, "
        f"{experiment.horizon:,} rounds each"
    )
    return asset("page.html").format(
        head=html.escape(title if first is None else "misspec demo"),
        first="" if first is None else contest.section(first),
        title=html.escape(title if first is None else f"With guarantees: {title}"),
        about=html.escape(about),
        notes="".join(f"<p>{html.escape(line)}</p>" for line in experiment.notes.splitlines() if line.strip()),
        version=html.escape(version()),
        css=asset("page.css"),
        plotly=compressed("plotly", get_plotlyjs()),
        data="\n".join(compressed(name, script(content)) for name, content in scripts.items()),
        js=asset("draw.js") + asset("page.js"),
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
        f"{row['proved']:.3f}" if row["proved"] > 0 else "–",
    ]
