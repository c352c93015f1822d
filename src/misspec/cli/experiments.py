"""demo, run and report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from rich import box
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text
from typer import Argument, Option

import misspec
from misspec.cli.app import Allow, Cores, Into, Terminal, app, fail, line_of, one_line_errors
from misspec.cli.progress import watched


@app.command()
@one_line_errors
def demo(
    into: Annotated[Path, Option(help="Folder for the results.")] = Path("misspec-demo"),
    cores: Cores = None,
) -> None:
    """The main job in a minute: ms.Auto, which needs no constants, beside Optuna and random search; then the paper's
    three algorithms beside GP-UCB, on a model that is wrong by ε."""
    experiments = misspec.experiments
    experiment = experiments.parse(experiments.demo(), "demo.toml")
    console = Terminal()
    line = line_of("demo", into=None if into == Path("misspec-demo") else into)
    console.print(Text("1. Without constants: reactions tuned while they produce", style="bold"))
    console.print(experiments.contest.about())
    again = f"stopped; finished runs are kept in {into}; go on with: {line}"
    _show_contest(watched(lambda show: experiments.contest_in(into, cores=cores, show=show), lambda _: again))
    console.print(Text(f"2. With guarantees: {experiment.title}", style="bold"))
    failed = _go(line, experiments.demo(), into, name="demo.toml", cores=cores)
    _report(into)
    _tell_failed(failed)


@app.command()
@one_line_errors
def run(
    file: Annotated[Path, Argument(help="A TOML file: policies × problems × ε × seeds.")],
    into: Into = None,
    cores: Cores = None,
    dask: Annotated[str | None, Option(help="Address of a Dask scheduler, or `local`.")] = None,
    minimize: Annotated[bool, Option("--minimize", help="Smaller is better, as minimize = true in the file.")] = False,
    allow: Allow = None,
) -> None:
    """Do the runs of an experiment that are not done yet. The same command goes on after any interruption."""
    from misspec.reports import tables

    experiments = misspec.experiments
    content = experiments.content_of(file)
    folder = into if into is not None else file.with_name(f"{file.stem}-results")
    console = Terminal()
    with experiments.allow(allow or ()):
        if minimize:
            content = experiments.with_minimize(content, str(file))
        title = experiments.parse(content, str(file)).title
        if title:
            console.print(Text(title, style="bold"))
        line = line_of("run", file, into=into, cores=cores, dask=dask, minimize=minimize, allow=allow)
        failed = _go(line, content, folder, name=str(file), cores=cores, dask=dask)
        results = experiments.results(folder)
    if results.runs:
        _show(tables.summary(results))
    console.print(f"results: {folder}", soft_wrap=True)
    console.print(f"pictures: {line_of('report', folder, allow=allow)}", soft_wrap=True)
    _tell_failed(failed)


def _tell_failed(failed: dict[Any, str]) -> None:
    if failed:
        first, reason = next(iter(failed.items()))
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        fail(f"{len(failed)} runs failed: {first}: {reason}{more}")


@app.command()
@one_line_errors
def report(
    folder: Annotated[Path, Argument(help="A folder that `misspec run` or `misspec demo` made.")],
    allow: Allow = None,
) -> None:
    """Draw figures (PNG and PDF), one interactive page (HTML) and tables (CSV) of what is finished."""
    with misspec.experiments.allow(allow or ()):
        _report(folder)


def _go(line: str, content: bytes, folder: Path, **options: Any) -> dict[Any, str]:
    """Do the runs with progress bars; returns what failed, and why. line: what does the rest."""

    def said(progress: Any) -> str:
        done = f"{progress.before + progress.runs} of {progress.before + progress.of}"
        return f"stopped; {done} runs are finished and kept in {folder}; go on with: {line}"

    return dict(watched(lambda show: misspec.experiments.go(content, folder, show=show, **options), said).failed)


def _report(folder: Path) -> None:
    console = Terminal()
    with console.status("drawing") as status:
        made = misspec.reports.of_experiment(folder, lambda name: status.update(f"drawing {name}"))
    _show(made.summary)
    if len(made.results.runs) < made.results.of:
        missing = made.results.of - len(made.results.runs)
        console.note(f"{missing} of {made.results.of} runs are not done yet")
    if made.results.experiment.notes:
        console.print(made.results.experiment.notes.strip() + "\n")
    console.print(f"figures: {len(made.figures)} in {made.folder}", soft_wrap=True)
    console.print(f"page: {made.page.resolve()}", soft_wrap=True)


def _show_contest(found: Any) -> None:
    """Print the table and the sentences of the demo's first part."""
    console = Terminal()
    table = _table(found.reading, [""], ["all batches", f"last {found.late}", "best found"])
    for player, *values in found.rows():
        table.add_row(player, *(f"{value:.1f}" for value in values))
    console.print(table)
    message, more = found.sentences
    console.print(Text(message, style="bold"))
    console.print(more)
    console.print(f"What ms.Auto knows of the first reaction after {found.evaluations} batches:")
    for line in found.said:
        console.print(Padding(line, (0, 0, 0, 2)))
    console.print()


def _show(summary: Any) -> None:
    """Print for each policy the loss of its recommendation, whether its bands held, and its regret."""
    caption = (
        "Loss of the recommendation: regret of what is recommended at the end; bands held: share of the runs whose "
        "band held all of the truth (– where none is promised); late regret: per round over the last tenth of the "
        "rounds; regret: over all of them, ± standard error. All are true, means over the seeds"
    )
    problems = summary["problem"].n_unique() > 1
    numbers = ["loss of the\nrecommendation", "bands\nheld", "late\nregret", "regret", "±"]
    table = _table(caption, [*(["problem"] if problems else []), "ε", "policy"], numbers)
    before: Any = None
    for row in summary.iter_rows(named=True):
        here = (row["problem"], row["epsilon"])
        if before not in (None, here):
            table.add_section()
        cells = [
            *([row["problem"] if here != before else ""] if problems else []),
            f"{row['epsilon']:.3g}" if here != before else "",
            row["policy"],
            f"{row['recommended_regret']:.4f}",
            f"{100 * row['covered']:.0f} %" if row["claims"] else "–",
            f"{row['late']:.4f}",
            f"{row['regret']:.4f}",
            "" if row["error"] is None else f"{row['error']:.4f}",
        ]
        table.add_row(*(Text(cell) for cell in cells))
        before = here
    Terminal().print(table)


def _table(caption: str, names: list[str], numbers: list[str]) -> Table:
    columns = [Column(name, overflow="fold") for name in names]
    columns += [Column(name, justify="right", no_wrap=True) for name in numbers]
    return Table(
        *columns, box=box.SIMPLE, pad_edge=False, collapse_padding=True, caption=caption, caption_justify="left"
    )
