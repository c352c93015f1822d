"""optimize and suggest: the next evaluations of a user's own."""

from __future__ import annotations

import math
import re
import shlex
import warnings
from pathlib import Path
from typing import Annotated, Any

from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text
from typer import Argument, Option

import misspec
from misspec.cli.app import INTERRUPTED, Aim, Repeats, Terminal, app, fail, line_of, number_or_column, one_line_errors
from misspec.cli.progress import evaluations_shown, learning_shown
from misspec.errors import MisspecError
from misspec.evaluation.stopping import CHANCE, WITHIN
from misspec.integrations import space_file
from misspec.integrations import suggest as by_hand
from misspec.integrations.suggest.sheets import cell_of
from misspec.policies.auto.learnt import DOUBTFUL, plain, rounded
from misspec.policies.auto.policy import BAND


@app.command()
@one_line_errors
def optimize(
    space: Annotated[Path, Argument(metavar="SPACE.TOML", help="The parameters: names, ranges, options.")],
    words: Annotated[list[str], Argument(metavar="-- COMMAND…", help="The command, with {name} where a value goes.")],
    evaluations: Annotated[
        int, Option("--evaluations", "--trials", "--n-trials", "-n", help="Results wanted, all together.", min=1)
    ] = 50,
    jobs: Annotated[int, Option(help="Evaluations at once.", min=1)] = 1,
    minimize: Annotated[bool, Option("--minimize/--maximize", help="Which way is better.")] = False,
    json: Annotated[str | None, Option(help="A key, as in metrics.loss, of the last JSON object printed.")] = None,
    storage: Annotated[
        str, Option(help="Any Optuna storage URL; journal:///FILE, or a path.")
    ] = "sqlite:///misspec.db",
    name: Annotated[str | None, Option(help="Name of the study; the space file's by default.")] = None,
    timeout: Annotated[float | None, Option(help="Seconds that an evaluation may take.")] = None,
    retries: Annotated[int, Option(help="How often a failed evaluation is tried again.", min=0)] = 0,
    shell: Annotated[bool, Option("--shell", help="The command is a line for the shell.")] = False,
    aim: Aim = "best",
    seed: Annotated[int | None, Option(help="Seed of random choices.")] = None,
    stop: Annotated[bool, Option("--stop", help="Stop before, when more evaluations are hardly worth it.")] = False,
    gain: Annotated[float | None, Option(help="For --stop: the least gain that is worth it; else the noise.")] = None,
    within: Annotated[int, Option(help="For --stop: within how many more evaluations.", min=1)] = WITHIN,
    chance: Annotated[float, Option(help="For --stop: up to which chance of that gain.")] = CHANCE,
    into: Annotated[Path | None, Option(help="Folder for the page; by default NAME-results beside the file.")] = None,
) -> None:
    """Find the parameters with which a command prints the best number. The same line goes on after any interruption,
    and helps from another machine that reaches the storage.

    misspec optimize space.toml -- python train.py --lr {lr} --depth {depth}
    """
    from misspec.integrations import command
    from misspec.integrations.command.storages import without_password

    study, where = space.stem if name is None else name, without_password(storage)
    options: dict[str, Any] = {"minimize": minimize, "timeout": timeout, "shell": shell, "seed": seed}
    changed: dict[str, Any] = {"jobs": jobs if jobs > 1 else None, "retries": retries or None, "json": json}
    changed |= {"name": name, "into": into, "stop": stop, "gain": gain}
    changed |= {"within": within if within != WITHIN else None, "chance": chance if chance != CHANCE else None}
    changed |= {"storage": where if storage != command.STORAGE else None, "aim": aim if aim != "best" else None}
    line = f"{line_of('optimize', space, '-n', evaluations, **changed, **options)} {shlex.join(['--', *words])}"
    rule = misspec.until(gain, within, chance) if stop else None
    if rule is None and (gain, within, chance) != (None, WITHIN, CHANCE):
        raise misspec.InvalidInput("--gain, --within and --chance say when to stop: add --stop")
    options |= {"jobs": jobs, "retries": retries, "aim": aim, "key": json, "name": study, "storage": storage}
    options["until"] = rule
    console = Terminal()
    domain = space_file.read(space)
    with evaluations_shown(console) as show:
        try:
            found = command.go(domain, words, evaluations=evaluations, show=show, **options)
        except KeyboardInterrupt:
            done = f"; {show.latest.done} of {evaluations} results are kept" if show.latest else ""
            fail(f"stopped{done} in {where}; go on with: {line}", INTERRUPTED)
    console.print(f"{found.t} results in {where}, study {study}", soft_wrap=True)
    console.print(found.summary(), soft_wrap=True)
    called = re.sub(r"[^\w. -]", "_", study)  # a name of a folder
    folder = into if into is not None else space.with_name(f"{called}-results")
    try:
        with console.status("drawing"):
            page = misspec.reports.of_policy(found, folder, title=study)
        console.print(f"page: {page.resolve()}", soft_wrap=True)
    except ImportError as error:
        console.print(f"for figures and a page of this: pip install 'misspec[experiments]' ({error.name} is missing)")
    except MisspecError as error:
        console.print(f"there is no page: {error}", soft_wrap=True)
    if show.latest.reason is not None:
        console.print(show.latest.reason, soft_wrap=True)


@app.command(
    help="The next experiments, for someone who runs them by hand: what to try, why, and whether going on is worth it."
    "\n\nFill in the results and run the same command again; nothing else is kept. In the column of results"
    "\n\n- a number is a result, and several lines of the same experiment are repeats, unless every cell is equal "
    "(--repeats);"
    "\n\n- an empty cell is an experiment that is being run: it is not suggested again, and others go around it;"
    "\n\n- the word failed is an experiment that gave no result: it may be suggested once more, and if that fails too, "
    "it is avoided, and so is what is like it. (A yield of zero is a result: write 0.)"
)
@one_line_errors
def suggest(
    source: Annotated[
        Path, Argument(metavar="FILE", help="A CSV file of candidates, one per line; or a TOML file with a space.")
    ],
    results: Annotated[Path | None, Option(help="A CSV file of results that you fill in; need not exist yet.")] = None,
    target: Annotated[str | None, Option(help="The column of results; else the only one that FILE has not.")] = None,
    batch: Annotated[int, Option(help="How many experiments to suggest.", min=1)] = 5,
    names: Annotated[str | None, Option(help="The column that names candidates; results can then go by name.")] = None,
    ignore: Annotated[list[str] | None, Option(help="A column that does not describe candidates; repeatable.")] = None,
    columns: Annotated[
        list[str] | None,
        Option(help="A column that describes candidates, by default all but dates, names; repeatable."),
    ] = None,
    where: Annotated[
        list[str] | None, Option(help='A rule for candidates, as in "temperature + pressure < 200"; repeatable.')
    ] = None,
    append: Annotated[bool, Option("--append", help="Add the rows to the results file, for you to fill in.")] = False,
    out: Annotated[Path | None, Option(help="Write the rows to a CSV file of their own, for you to fill in.")] = None,
    minimize: Annotated[bool, Option("--minimize", help="Smaller results are better.")] = False,
    noise: Annotated[str | None, Option(help="The standard deviation of results, if known; or its column.")] = None,
    strict: Annotated[bool, Option("--strict", help="Refuse results of experiments that FILE does not have.")] = False,
    repeats: Repeats = False,
    aim: Aim = "best",
    limit: Annotated[
        list[str] | None, Option(help='A limit on another column of results, "impurity < 2"; repeatable.')
    ] = None,
    seed: Annotated[int, Option(help="Seed of random choices.", min=0)] = 0,
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
    if found.rows:
        _show_rows(console, found)
    console.print("\n".join(line for line in [*found.summary, found.stop] if line and line not in doubts))
    to_fill = " and ".join([found.target, *found.limited])
    added = f"{len(found.rows)} row{'s' * (len(found.rows) != 1)}"
    if append and found.rows:
        console.print(f"{added} added to {results}: fill in {to_fill} and run the same command again")
    elif out is not None:
        console.print(f"{added} written to {out}: fill in {to_fill} and add the lines to the file of results")


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
