"""optimize and suggest: the next evaluations of a user's own."""

from __future__ import annotations

import math
import re
import shlex
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text
from typer import Argument, Option

import misspec
from misspec.cli.app import (
    INTERRUPTED,
    Aim,
    Columns,
    Ignored,
    Limits,
    Names,
    Noise,
    Repeats,
    Seed,
    Smaller,
    Strict,
    Target,
    Terminal,
    Where,
    command,
    fail,
    line_of,
    number_or_column,
)
from misspec.cli.progress import evaluations_shown, learning_shown
from misspec.errors import MisspecError
from misspec.evaluation.stopping import CHANCE, WITHIN
from misspec.integrations import space_file
from misspec.integrations import suggest as by_hand
from misspec.integrations.suggest import sheets
from misspec.integrations.suggest.sheets import cell_of
from misspec.policies.auto.learnt import DOUBTFUL, plain, rounded
from misspec.policies.auto.policy import BAND

ENOUGH = ("hardly worth it", "Stop? Yes")  # in what is said where next to nothing is expected


@command()
def optimize(
    space: Annotated[
        Path, Argument(metavar="SPACE.TOML", help="A file with the parameters: their names, ranges and options.")
    ],
    words: Annotated[
        list[str] | None,
        Argument(metavar="-- COMMAND…", help="The command, with {name} where the value of a parameter goes."),
    ] = None,
    evaluations: Annotated[
        int,
        Option(
            "--evaluations",
            "--trials",
            "--n-trials",
            "-n",
            min=1,
            metavar="N",
            help="How many results there shall be, earlier ones included.",
        ),
    ] = 50,
    jobs: Annotated[int, Option(help="How many evaluations run at once.", min=1, metavar="N")] = 1,
    minimize: Annotated[
        bool, Option("--minimize/--maximize", help="Whether smaller or larger results are better.")
    ] = False,
    json: Annotated[
        str | None,
        Option(
            help="Read the result from this key, as in metrics.loss, of the last JSON object printed.", metavar="KEY"
        ),
    ] = None,
    storage: Annotated[
        str, Option(help="Where results are kept: an Optuna storage URL, journal:///FILE, or a path.", metavar="URL")
    ] = "sqlite:///misspec.db",
    name: Annotated[
        str | None, Option(help="The name of the study; by default that of the file.", metavar="NAME")
    ] = None,
    timeout: Annotated[
        float | None, Option(help="End an evaluation that takes more seconds than this.", metavar="SECONDS")
    ] = None,
    retries: Annotated[int, Option(help="Try a failed evaluation again this often.", min=0, metavar="N")] = 0,
    shell: Annotated[bool, Option("--shell", help="Run the command as a line of the shell.")] = False,
    aim: Aim = "best",
    seed: Annotated[int | None, Option(help="Seed of random choices.", metavar="N")] = None,
    stop: Annotated[bool, Option("--stop", help="Stop earlier if more evaluations are hardly worth it.")] = False,
    gain: Annotated[
        float | None, Option(help="For --stop: the smallest gain that is worth it; by default the noise.", metavar="X")
    ] = None,
    within: Annotated[
        int, Option(help="For --stop: the number of further evaluations to count on.", min=1, metavar="N")
    ] = WITHIN,
    chance: Annotated[
        float, Option(help="For --stop: the chance of that gain that is still too small.", metavar="X")
    ] = CHANCE,
    into: Annotated[
        Path | None, Option(help="Folder for the page; by default NAME-results beside the file.", metavar="FOLDER")
    ] = None,
) -> None:
    """Find the parameters with which a command prints the best number.

    misspec optimize space.toml -- python train.py --lr {lr} --depth {depth}

    The same line continues after any interruption. Run on another machine with the same storage, it helps.
    """
    from misspec.integrations import command as runner
    from misspec.integrations.command.storages import without_password

    words, study, where = words or [], space.stem if name is None else name, without_password(storage)
    options: dict[str, Any] = {"minimize": minimize, "timeout": timeout, "shell": shell, "seed": seed}
    changed: dict[str, Any] = {"jobs": jobs if jobs > 1 else None, "retries": retries or None, "json": json}
    changed |= {"name": name, "into": into, "stop": stop, "gain": gain}
    changed |= {"within": within if within != WITHIN else None, "chance": chance if chance != CHANCE else None}
    changed |= {"storage": where if storage != runner.STORAGE else None, "aim": aim if aim != "best" else None}
    line = f"{line_of('optimize', space, '-n', evaluations, **changed, **options)} {shlex.join(['--', *words])}"
    rule = misspec.until(gain, within, chance) if stop else None
    if rule is None and (gain, within, chance) != (None, WITHIN, CHANCE):
        raise misspec.InvalidInput("--gain, --within and --chance say when to stop: add --stop")
    options |= {"jobs": jobs, "retries": retries, "aim": aim, "key": json, "name": study, "storage": storage}
    options["until"] = rule
    console = Terminal()
    domain = space_file.read(space)
    console.print("\n".join(space_file.in_words(domain)), soft_wrap=True)
    with evaluations_shown(console) as show:
        try:
            found = runner.go(domain, words, evaluations=evaluations, show=show, **options)
        except KeyboardInterrupt:
            done = f"; {show.latest.done} of {evaluations} results are kept" if show.latest else ""
            fail(f"stopped{done} in {where}; go on with: {line}", INTERRUPTED)
    console.print(f"{found.t} results in {where}, study {study}", soft_wrap=True)
    console.print(found.summary(), soft_wrap=True)
    called = re.sub(r"[^\w. -]", "_", study)  # a name of a folder
    folder = into if into is not None else space.with_name(f"{called}-results")
    _draw(console, found, folder, title=study, target=json)
    if show.latest.reason is not None:
        console.print(show.latest.reason, soft_wrap=True)


@command(
    help="Suggest the next experiments: what to try, why, and whether to continue."
    "\n\nFill in the results and run the same command again. Nothing else is kept. In the column of results"
    "\n\n- a number is a result. Several lines of one experiment are repeats, unless every cell is equal (--repeats);"
    "\n\n- an empty cell is an experiment that is being run. It is not suggested again, and others keep away from it;"
    "\n\n- the word failed is an experiment that gave no result. It may be suggested once more. If that fails too, it "
    "is avoided, and so is what is like it. (A yield of zero is a result: write 0.)"
)
def suggest(
    source: Annotated[
        Path, Argument(metavar="FILE", help="A CSV file with one candidate per line, or a TOML file with a space.")
    ],
    results: Annotated[
        Path | None, Option(help="The CSV file of results that you fill in; it need not exist yet.", metavar="FILE")
    ] = None,
    target: Target = None,
    batch: Annotated[int, Option(help="How many experiments to suggest.", min=1, metavar="N")] = 5,
    names: Names = None,
    ignore: Ignored = None,
    columns: Columns = None,
    where: Where = None,
    append: Annotated[
        bool, Option("--append", help="Add the rows to the file of results, for you to fill in.")
    ] = False,
    out: Annotated[
        Path | None, Option(help="Write the rows to a CSV file of their own, for you to fill in.", metavar="FILE")
    ] = None,
    report: Annotated[
        Path | None,
        Option(help="Draw what is known so far into this folder: one page and its figures.", metavar="FOLDER"),
    ] = None,
    minimize: Smaller = False,
    noise: Noise = None,
    strict: Strict = False,
    repeats: Repeats = False,
    aim: Aim = "best",
    limit: Limits = None,
    seed: Seed = 0,
) -> None:
    """The next experiments: what to try, why, and whether going on is worth it."""
    if append and out is not None:
        raise misspec.InvalidInput("--append and --out are two ways to fill in the same results; take one")
    if append and results is None:
        raise misspec.InvalidInput("--append needs the file to append to: --results results.csv")
    console = Terminal()
    status = console.status("thinking")
    with warnings.catch_warnings(record=True) as said, status, learning_shown(status.update):
        warnings.simplefilter("always", UserWarning)
        found = (by_hand.append if append else by_hand.suggest)(
            source, results, target, batch=batch, names=names, ignore=ignore or (), columns=columns or (),
            where=where or (), minimize=minimize, noise=number_or_column(noise), strict=strict, repeats=repeats,
            aim=aim, limits=limit, seed=seed,
        )  # fmt: skip
    if out is not None:
        found.save(out)
    doubts = _show_known(console, found, said, minimize=minimize)
    # first, where next to nothing is expected of the rows
    enough = [line for line in [*found.summary[-1:], found.stop] if any(sign in line for sign in ENOUGH)]
    for line in enough:
        console.print(Text(line, style="bold"))
    if found.rows:
        console.print(Text(f"\nTo try next{', if you go on all the same' * bool(enough)}:", style="bold"))
        _show_rows(console, found)
    _show_summary(console, found, {*doubts, *enough})
    to_fill = " and ".join([found.target, *found.limited])
    added = f"{len(found.rows)} row{'s' * (len(found.rows) != 1)}"
    if append and found.rows:
        console.print(f"{added} added to {results}: fill in {to_fill} and run the same command again")
    elif out is not None:
        console.print(f"{added} written to {out}: fill in {to_fill} and add the lines to the file of results")
    if report is not None:
        _draw(console, found.policy, report, target=found.target)


def draw_results(file: Path, candidates: Path | None, into: Path | None, options: dict[str, Any]) -> None:
    """Print what is known from a file of results, and draw it. options: of `suggest`."""
    options["noise"] = number_or_column(options["noise"])
    options |= {name: options[name] or () for name in ("ignore", "columns", "where")}
    files = (file, None) if candidates is None else (candidates, file)
    if not file.exists():
        raise misspec.InvalidInput(f"{file} does not exist")
    if not sheets.File(file).sheet.rows:
        raise misspec.InvalidInput(
            f"{file} is empty: there is nothing to report yet; it must hold column names and a line per result"
        )
    console = Terminal()
    with warnings.catch_warnings(record=True) as said, console.status("thinking"):
        warnings.simplefilter("always", UserWarning)
        found = by_hand.suggest(*files, batch=0, **options)
    doubts = _show_known(console, found, said, minimize=options["minimize"])
    _show_summary(console, found, doubts)
    _draw(console, found.policy, into or file.with_name(f"{file.stem}-report"), target=found.target, optional=False)


def _draw(console: Console, policy: Any, folder: Path, *, optional: bool = True, **options: Any) -> None:
    """Draw a policy into a folder. optional: whether it is no error if that cannot be."""
    try:
        with console.status("drawing"):
            page = misspec.reports.of_policy(policy, folder, **options)
        console.print(f"page: {page.resolve()}", soft_wrap=True)
    except ImportError as error:
        if not optional:
            raise
        console.print(f"for figures and a page of this: pip install 'misspec[experiments]' ({error.name} is missing)")
    except MisspecError as error:
        if not optional:
            raise
        console.print(f"there is no page: {error}", soft_wrap=True)


def _show_known(console: Console, found: Any, said: Any, *, minimize: bool) -> list[str]:
    """Print how much is known, notes and doubts; returns the doubts. said: warnings."""
    counted = [f"{found.told} result{'s' * (found.told != 1)} of {found.target}"]
    counted += [f"{n} {what}" for n, what in ((found.running, "being run"), (found.failed, "failed")) if n]
    among = [] if found.menu.size is None else [f"{found.menu.size:,} candidates"]
    better = "smaller is better" if minimize else "larger is better"
    console.print("; ".join([", ".join(counted), *among, better]), style="bold")
    for note in [*(str(each.message) for each in said), *found.notes]:
        console.print(Text(note, style="yellow"))
    doubts = [line for line in found.summary if line.startswith(DOUBTFUL)]
    for line in doubts:
        console.print(Text(line, style="bold yellow"))
    if found.rows and any("another unit" not in line for line in doubts):
        hint = "If it was a slip, correct it: until then it teaches nothing, and the rows below do without it."
        console.print(Text(hint, style="yellow"))
    return doubts


def _show_summary(console: Console, found: Any, said: Collection[str]) -> None:
    """Print what was learnt, without what was said before."""
    lines = [line for line in [*found.summary, found.stop] if line and line not in said]
    if found.rows and lines:
        console.print(Text("If you stop here:", style="bold"))
    console.print("\n".join(lines))


def _show_rows(console: Console, found: Any) -> None:
    """Print the experiments and their reasons: a table where it fits, else one row below the other."""
    called = ["candidate"] if found.rows[0].called else []
    heads = ["", *called, *found.menu.parameters, f"expected {found.target} (95 %)"]
    lines = []
    written = cell_of if found.menu.size is None else plain  # points of a space are rounded already
    for i, row in enumerate(found.rows, start=1):
        reach = BAND * row.std
        expected = "–" if math.isnan(reach) else f"{rounded(row.mean, reach)} ± {rounded(reach, reach)}"
        values = [written(row.values[name]) if name in row.values else "–" for name in found.menu.parameters]
        lines.append([f"{i}.", *([row.called] if called else []), *values, expected])
    widths = [max(map(len, cells)) + 3 for cells in zip(heads, *lines, strict=True)]
    console.print()
    grid = Table.grid(padding=(0, 1))
    if sum(widths) <= console.width:
        columns = [Column(Text(name), no_wrap=True) for name in heads]
        columns[-1].justify = "right"
        table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
        for line in lines:
            table.add_row(*map(Text, line))
        console.print(table)
        alike: dict[str, list[str]] = {}
        for line, row in zip(lines, found.rows, strict=True):
            alike.setdefault(row.reason, []).append(line[0])
        for reason, numbers in alike.items():
            grid.add_row(Text(" ".join(numbers), style="bold"), Text(reason))
    else:
        left = max(map(len, heads))
        for (number, *cells), row in zip(lines, found.rows, strict=True):
            parts = [f"{name.ljust(left)}  {cell}" for name, cell in zip(heads[1:], cells, strict=True)]
            text = "\n".join([*parts, row.reason])
            grid.add_row(Text(number, style="bold"), Text(text, overflow="fold"))  # a long name is folded, not cut off
    console.print(grid)
    console.print()
