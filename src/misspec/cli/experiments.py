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
from misspec import InvalidInput
from misspec.cli.app import (
    Allow,
    Columns,
    Cores,
    Ignored,
    Into,
    Limits,
    Names,
    Noise,
    Repeats,
    Smaller,
    Target,
    Terminal,
    Where,
    command,
    fail,
    line_of,
)
from misspec.cli.optimisation import draw_results
from misspec.cli.progress import watched

OF_FOLDERS = "Options for the folder of an experiment"
SHEETS = (".csv", ".tsv", ".txt")  # how names of such files end


@command()
def demo(
    into: Annotated[Path, Option(help="Folder for the results.", metavar="FOLDER")] = Path("misspec-demo"),
    cores: Cores = None,
) -> None:
    """Show in a minute what misspec does.

    First ms.Auto, which needs no constants, plays beside Optuna and random search.

    Then the paper's three algorithms play beside GP-UCB, with a model that is wrong by ε.
    """
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


@command()
def run(
    file: Annotated[
        Path, Argument(help="A TOML file with policies, problems, values of ε and seeds.", metavar="FILE.TOML")
    ],
    into: Into = None,
    cores: Cores = None,
    dask: Annotated[
        str | None, Option(help="The address of a Dask scheduler, or `local` to start one.", metavar="ADDRESS")
    ] = None,
    minimize: Annotated[
        bool, Option("--minimize", help="Smaller values are better, as `minimize = true` in the file says too.")
    ] = False,
    allow: Allow = None,
) -> None:
    """Do those runs of an experiment that are not done yet. The same command continues after an interruption."""
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


@command()
def report(
    what: Annotated[
        Path,
        Argument(help="A folder that `misspec run` or `misspec demo` made; or a CSV file of results.", metavar="WHAT"),
    ],
    candidates: Annotated[
        Path | None,
        Option(
            help="The candidates that the results are of: a CSV file, or a TOML file with a space; by default the "
            "lines of the results themselves.",
            metavar="FILE",
        ),
    ] = None,
    into: Annotated[
        Path | None,
        Option(help="Folder for the page; by default NAME-report.", metavar="FOLDER"),
    ] = None,
    target: Target = None,
    names: Names = None,
    ignore: Ignored = None,
    columns: Columns = None,
    where: Where = None,
    minimize: Smaller = False,
    noise: Noise = None,
    repeats: Repeats = False,
    limit: Limits = None,
    latex: Annotated[
        bool,
        Option(
            "--latex",
            help="Write the tables for LaTeX too, and the policies' papers for BibTeX.",
            rich_help_panel=OF_FOLDERS,
        ),
    ] = False,
    against: Annotated[
        str | None,
        Option(
            help="The policy that the others are compared with; by default the best.",
            metavar="POLICY",
            rich_help_panel=OF_FOLDERS,
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        Option(
            help="A package whose policies and problems the file may import; repeatable.",
            metavar="NAME",
            rich_help_panel=OF_FOLDERS,
        ),
    ] = None,
) -> None:
    """Draw one page (HTML), figures and tables.

    Of a file of results: what was learnt from them, with the options below.

    Of the folder of an experiment: whatever is finished.
    """
    given: dict[str, Any] = {"names": names, "ignore": ignore, "columns": columns, "where": where, "noise": noise}
    given |= {"target": target, "minimize": minimize, "repeats": repeats, "limits": limit}
    if what.suffix.lower() == ".toml" and not what.is_dir():
        made = "the folder that `misspec run` makes of it, or a CSV file of results"
        raise InvalidInput(f"{what} holds no results; draw {made}")
    if what.is_dir() or not (what.exists() or what.suffix.lower() in SHEETS):
        if any((candidates, into, *given.values())):
            raise InvalidInput(f"{what} is no file of results; leave options for these out, or name such a file")
        with misspec.experiments.allow(allow or ()):
            _report(what, latex=latex, against=against)
    else:
        if allow or latex or against:
            option = "--allow" if allow else "--latex" if latex else "--against"
            raise InvalidInput(f"{option} is for the folder of an experiment, and {what} is none; leave it out")
        draw_results(what, candidates, into, given)


def _go(line: str, content: bytes, folder: Path, **options: Any) -> dict[Any, str]:
    """Do the runs with progress bars; returns what failed, and why. line: what does the rest."""

    def said(progress: Any) -> str:
        done = f"{progress.before + progress.runs} of {progress.before + progress.of}"
        return f"stopped; {done} runs are finished and kept in {folder}; go on with: {line}"

    return dict(watched(lambda show: misspec.experiments.go(content, folder, show=show, **options), said).failed)


def _report(folder: Path, **options: Any) -> None:
    console = Terminal()
    with console.status("drawing") as status:
        made = misspec.reports.of_experiment(folder, lambda name: status.update(f"drawing {name}"), **options)
    _show(made.summary)
    if len(made.results.runs) < made.results.of:
        missing = made.results.of - len(made.results.runs)
        console.note(f"{missing} of {made.results.of} runs are not done yet")
    if made.results.experiment.notes:
        console.print(made.results.experiment.notes.strip() + "\n")
    if options.get("latex"):
        console.print(f"tables: {made.folder / 'tables.tex'}, {made.folder / 'references.bib'}", soft_wrap=True)
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
        "band held all of the truth (– without a theory; of policies that take the model as right it need "
        "not where there is a misfit); late regret: per round over the last tenth of the "
        "rounds; regret: over all of them; compared: how much more regret than the policy with –, over "
        "the same seeds, ± half of the 95 % interval (paired t). All are true, means over the seeds"
    )
    from misspec.reports import tables

    problems = summary["problem"].n_unique() > 1
    numbers = ["loss of the\nrecommen-\ndation", "bands\nheld", "late\nregret", "regret", "compared"]
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
            tables.difference(row, 3),
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
