"""demo, run and report."""

from __future__ import annotations

import functools
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from misspec.cli.app import Allow, Cores, Into, app, fail, one_line_errors, terminal
from misspec.cli.progress import watched

# -- experiments -------------------------------------------------------------------------------------------------------


@app.command()
@one_line_errors
def demo(
    into: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("misspec-demo"),
    cores: Cores = None,
) -> None:
    """The main job in a minute: ms.Auto, which needs no constants, beside Optuna and random search; then the paper's
    three algorithms beside GP-UCB, on a model that is wrong by ε."""
    from misspec import experiments
    from misspec.experiments.contest import about

    experiment = experiments.parse(experiments.demo(), "demo.toml")
    console = terminal()
    command = ["misspec", "demo", "--into", str(into)] if into != Path("misspec-demo") else ["misspec", "demo"]
    console.print(Text("1. Without constants: reactions tuned while they produce", style="bold"))
    console.print(about())
    again = f"stopped; finished runs are kept in {into}; go on with: {shlex.join(command)}"
    first = watched(lambda show: experiments.contest_in(into, cores=cores, show=show), lambda _: again)
    _show_contest(first)
    console.print(Text(f"2. With guarantees: {experiment.title}", style="bold"))
    failed = _go(experiments.demo(), into, "demo.toml", cores, None, command)
    _report(into)
    _tell_failed(failed)


@app.command()
@one_line_errors
def run(
    file: Annotated[Path, typer.Argument(help="A TOML file: policies × problems × ε × seeds.")],
    into: Into = None,
    cores: Cores = None,
    dask: Annotated[str | None, typer.Option(help="Address of a Dask scheduler, or `local`.")] = None,
    minimize: Annotated[
        bool, typer.Option("--minimize", help="Smaller is better, as if the file said minimize = true.")
    ] = False,
    allow: Allow = None,
) -> None:
    """Do the runs of an experiment that are not done yet. The same command goes on after any interruption."""
    from misspec import experiments
    from misspec.reports import tables

    content = experiments.content_of(file)
    folder = into if into is not None else file.with_name(f"{file.stem}-results")
    options = {"--into": into, "--cores": cores, "--dask": dask}
    given = [part for name, value in options.items() if value is not None for part in (name, str(value))]
    permitted = [part for package in allow or () for part in ("--allow", package)]
    given += [*(["--minimize"] if minimize else []), *permitted]
    console = terminal()
    with experiments.allow(allow or ()):
        if minimize:
            content = experiments.with_minimize(content, str(file))
        title = experiments.parse(content, str(file)).title
        if title:
            console.print(Text(title, style="bold"))
        failed = _go(content, folder, str(file), cores, dask, ["misspec", "run", str(file), *given])
        results = experiments.results(folder)
    if results.runs:
        _show(tables.summary(results))
    console.print(f"results: {folder}", soft_wrap=True)
    console.print(f"pictures: {shlex.join(['misspec', 'report', str(folder), *permitted])}", soft_wrap=True)
    _tell_failed(failed)


def _tell_failed(failed: dict[Any, str]) -> None:
    if failed:
        first, reason = next(iter(failed.items()))
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        fail(f"{len(failed)} runs failed: {first}: {reason}{more}")


@app.command()
@one_line_errors
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that `misspec run` or `misspec demo` made.")],
    allow: Allow = None,
) -> None:
    """Draw figures (PNG and PDF), one interactive page (HTML) and tables (CSV) of what is finished."""
    from misspec import experiments

    with experiments.allow(allow or ()):
        _report(folder)


def _go(
    content: bytes, folder: Path, name: str, cores: int | None, dask: str | None, command: list[str]
) -> dict[Any, str]:
    """Do the runs with progress bars; returns what failed, and why."""
    from misspec import experiments

    def said(progress: experiments.Progress) -> str:
        done = f"{progress.before + progress.runs} of {progress.before + progress.of}"
        return f"stopped; {done} runs are finished and kept in {folder}; go on with: {shlex.join(command)}"

    do = functools.partial(experiments.go, content, folder, name=name, cores=cores, dask=dask)
    return dict(watched(lambda show: do(show=show), said).failed)


def _report(folder: Path) -> None:
    from misspec import reports

    console = terminal()
    with console.status("drawing") as status:
        made = reports.of_experiment(folder, lambda name: status.update(f"drawing {name}"))
    _show(made.summary)
    if len(made.results.runs) < made.results.of:
        missing = made.results.of - len(made.results.runs)
        console.print(Text(f"{missing} of {made.results.of} runs are not done yet", style="yellow"))
    if made.results.experiment.notes:
        console.print(made.results.experiment.notes.strip() + "\n")
    console.print(f"figures: {len(made.figures)} in {made.folder}", soft_wrap=True)
    console.print(f"page: {made.page.resolve()}", soft_wrap=True)


def _show_contest(found: Any) -> None:
    """Print the table and the sentences of the demo's first part."""
    console = terminal()
    table = Table(box=box.SIMPLE, pad_edge=False, collapse_padding=True, caption=found.reading, caption_justify="left")
    table.add_column("")
    for name in ("all batches", f"last {found.late}", "best found"):
        table.add_column(name, justify="right")
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
    table = Table(box=box.SIMPLE, pad_edge=False, collapse_padding=True, caption=caption, caption_justify="left")
    problems = summary["problem"].n_unique() > 1
    for name in [*(["problem"] if problems else []), "ε", "policy"]:
        table.add_column(name, overflow="fold")
    for name in ("loss of the\nrecommendation", "bands\nheld", "late\nregret", "regret", "±"):
        table.add_column(name, justify="right", no_wrap=True)
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
    terminal().print(table)
