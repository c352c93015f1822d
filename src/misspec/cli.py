"""The command line: parses and prints."""

from __future__ import annotations

import functools
import io
import math
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, Task, TaskID, TextColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

import misspec
from misspec.errors import MisspecError
from misspec.frames import printable

app = typer.Typer(
    name="misspec",
    help="Gaussian-process bandits that keep working when the model is wrong.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
EXTRAS = {"polars": "experiments", "pydantic": "experiments", "matplotlib": "experiments", "plotly": "experiments"}
EXTRAS |= {"optuna": "optuna"}
MOST_BARS = 12  # policies that get a bar of their own
INTERRUPTED = 130
LONGEST = 1500  # characters of an error

Cores = Annotated[int | None, typer.Option(help="Processes to use; all cores by default.", min=1)]
Into = Annotated[Path | None, typer.Option(help="Folder for the results; by default FILE-results beside the file.")]
Allow = Annotated[
    list[str] | None,
    typer.Option(help="A package whose policies and problems (module:Class) the file may import; can be repeated."),
]
Kernel = Annotated[str | None, typer.Option(help="RBF (the default), Matern, DotProduct, … of scikit-learn.")]
Scale = Annotated[float | None, typer.Option(help="The kernel's length scale, 0.2 by default.")]
Nu = Annotated[float | None, typer.Option(help="The smoothness of a Matern kernel, 2.5 by default.")]


class _Console(Console):
    """Prints names as they are, without what would steer the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def main() -> None:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may not know all of Unicode
    app(prog_name="misspec")


def _clean(command: Callable[..., None]) -> Callable[..., None]:
    """Errors are one line and a non-zero exit code; MISSPEC_DEBUG=1 shows where they come from."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (typer.Exit, typer.Abort):
            raise
        except MisspecError as error:
            _fail(str(error))
        except ImportError as error:
            extra = EXTRAS.get((error.name or "").split(".")[0])
            if extra is None:
                raise
            _fail(f"this command needs {error.name}: pip install 'misspec[{extra}]'")
        except KeyboardInterrupt:
            _fail("stopped", INTERRUPTED)
        except MemoryError:
            _fail("not enough memory; take a shorter horizon or fewer candidates")
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read the output has gone
            raise typer.Exit(1) from None
        except OSError as error:  # a disk that is full, a name that is too long
            what = "" if error.filename is None else f"{error.filename}: "
            _fail(f"{what}{error.strerror or error}")
        except Exception as error:
            kind = type(error).__name__
            _fail(f"unexpected {kind}: {error}; this is a defect in misspec; MISSPEC_DEBUG=1 shows where")

    return run


def _fail(message: str, code: int = 1) -> NoReturn:
    if os.environ.get("MISSPEC_DEBUG"):
        traceback.print_exc()
    line = " ".join(message.split())
    line = line if len(line) <= LONGEST else f"{line[:LONGEST]}…"
    console = _Console(stderr=True, soft_wrap=True)
    console.print(Text.assemble(("misspec: ", "bold red"), line))
    raise typer.Exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"misspec {misspec.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Gaussian-process bandits that keep working when the model is wrong."""


# -- experiments -------------------------------------------------------------------------------------------------------


@app.command()
@_clean
def demo(
    into: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("misspec-demo"),
    cores: Cores = None,
) -> None:
    """The main job in a minute: ms.Auto, which needs no constants, beside Optuna and random search; then the paper's
    three algorithms beside GP-UCB, on a model that is wrong by ε."""
    from misspec import experiments
    from misspec.experiments.contest import about

    experiment = experiments.parse(experiments.demo(), "demo.toml")
    console = _console()
    command = ["misspec", "demo", "--into", str(into)] if into != Path("misspec-demo") else ["misspec", "demo"]
    console.print(Text("1. Without constants: reactions tuned while they produce", style="bold"))
    console.print(about())
    again = f"stopped; start again with: {shlex.join(command)}"
    first = _watched(lambda show: experiments.contest_in(into, cores=cores, show=show), lambda _: again)
    _show_contest(first)
    console.print(Text(f"2. With guarantees: {experiment.title}", style="bold"))
    failed = _go(experiments.demo(), into, "demo.toml", cores, None, command)
    _report(into)
    _tell_failed(failed)


@app.command()
@_clean
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

    experiments.allow(allow or ())
    content = experiments.content_of(file)
    if minimize:
        content = experiments.with_minimize(content, str(file))
    folder = into if into is not None else file.with_name(f"{file.stem}-results")
    options = {"--into": into, "--cores": cores, "--dask": dask}
    given = [part for name, value in options.items() if value is not None for part in (name, str(value))]
    permitted = [part for package in allow or () for part in ("--allow", package)]
    given += [*(["--minimize"] if minimize else []), *permitted]
    title = experiments.parse(content, str(file)).title
    if title:
        _console().print(Text(title, style="bold"))
    failed = _go(content, folder, str(file), cores, dask, ["misspec", "run", str(file), *given])
    results = experiments.results(folder)
    if results.runs:
        _show(tables.summary(results))
    console = _console()
    console.print(f"results: {folder}", soft_wrap=True)
    console.print(f"pictures: {shlex.join(['misspec', 'report', str(folder), *permitted])}", soft_wrap=True)
    _tell_failed(failed)


def _tell_failed(failed: dict[Any, str]) -> None:
    if failed:
        first, reason = next(iter(failed.items()))
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        _fail(f"{len(failed)} runs failed: {first}: {reason}{more}")


@app.command()
@_clean
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that `misspec run` or `misspec demo` made.")],
    allow: Allow = None,
) -> None:
    """Draw figures (PNG and PDF), one interactive page (HTML) and tables (CSV) of what is finished."""
    from misspec import experiments

    experiments.allow(allow or ())
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
    return dict(_watched(lambda show: do(show=show), said).failed)


def _watched(do: Callable[[Callable[[Any], None]], Any], said: Callable[[Any], str]) -> Any:
    """do(show), with progress bars. said: what to say of the progress after a Ctrl-C."""
    from misspec import experiments

    console = _console()
    latest: Any = None
    try:
        with _bars(console) as bars:
            tasks: dict[str, Any] = {}

            def show(progress: experiments.Progress) -> None:
                nonlocal latest
                if latest is None:
                    for line in progress.news:
                        console.print(Text(line, style="yellow"), soft_wrap=True)
                    if progress.before:
                        said = f"{progress.before} of {progress.before + progress.of} runs were done before"
                        console.print(said)
                    if progress.of and len(progress.todo) <= MOST_BARS:
                        for policy, runs in progress.todo.items():
                            tasks[policy] = bars.add_task(policy, total=runs, note="")
                    if progress.of:
                        tasks[""] = bars.add_task("all rounds", total=progress.rounds_of, note="starting")
                latest = progress
                for policy, task in tasks.items():
                    if policy:
                        done, failed = progress.done.get(policy, 0), sum(r.policy == policy for r in progress.failed)
                        note = f"{done}/{progress.todo[policy]} runs" + (f", {failed} failed" if failed else "")
                        bars.update(task, completed=done, note=note)
                    else:
                        bars.update(task, completed=progress.rounds, total=progress.rounds_of)
                        bars.update(task, note=_pace(bars.tasks[task]))

            return do(show)
    except KeyboardInterrupt:
        _fail("stopped before anything ran" if latest is None else said(latest), INTERRUPTED)


def _pace(task: Task) -> str:
    """How fast, and how much longer."""
    if task.finished:
        return "done"
    if not task.speed or task.time_remaining is None:
        return "starting"
    minutes, seconds = divmod(round(task.time_remaining), 60)
    return f"{task.speed:,.0f} per second, {minutes}:{seconds:02d} left"


@contextmanager
def _bars(console: Console) -> Iterator[Progress]:
    texts = [TextColumn(each, markup=False) for each in ("{task.description}", "{task.fields[note]}")]
    columns = (texts[0], BarColumn(bar_width=20), texts[1])
    with Progress(*columns, console=console) as bars:
        yield bars


def _report(folder: Path) -> None:
    from misspec import reports

    console = _console()
    with console.status("drawing") as status:
        made = reports.write(folder, lambda name: status.update(f"drawing {name}"))
    _show(made.summary)
    if len(made.results.runs) < made.results.of:
        missing = made.results.of - len(made.results.runs)
        console.print(Text(f"{missing} of {made.results.of} runs are not done yet", style="yellow"))
    if made.results.experiment.notes:
        console.print(made.results.experiment.notes.strip() + "\n")
    console.print(f"figures: {len(made.figures)} in {made.folder}", soft_wrap=True)
    console.print(f"page: {made.page.resolve()}", soft_wrap=True)


def _show_contest(found: Any) -> None:
    """Who got most out of it."""
    console = _console()
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
    """What each policy recommends, whether its band held, and its regret: in the order of what a user gains."""
    caption = (
        "recom. loses: regret of what is recommended at the end; held f*: share of the runs whose band held all of it "
        "(– where none is promised); late: regret per round over the last tenth of the rounds; regret: over all of "
        "them, ± standard error. All are true, means over the seeds"
    )
    table = Table(box=box.SIMPLE, pad_edge=False, collapse_padding=True, caption=caption, caption_justify="left")
    problems = summary["problem"].n_unique() > 1
    for name in [*(["problem"] if problems else []), "ε", "policy"]:
        table.add_column(name, overflow="fold")
    for name in ("recom. loses", "held f*", "late", "regret", "±"):
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
    _console().print(table)


# -- optimisation ------------------------------------------------------------------------------------------------------


@app.command()
@_clean
def optimize(
    space: Annotated[Path, typer.Argument(metavar="SPACE.TOML", help="The parameters: names, ranges, options.")],
    words: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND…", help="The command, with {name} where a value goes.")
    ],
    evaluations: Annotated[
        int, typer.Option("--evaluations", "--trials", "--n-trials", "-n", help="Results wanted, all together.", min=1)
    ] = 50,
    jobs: Annotated[int, typer.Option(help="Evaluations at once.", min=1)] = 1,
    minimize: Annotated[bool, typer.Option("--minimize/--maximize", help="Which way is better.")] = False,
    json: Annotated[
        str | None, typer.Option(help="Read this key, as in metrics.loss, of the last JSON object that is printed.")
    ] = None,
    storage: Annotated[
        str, typer.Option(help="Any Optuna storage URL; journal:///FILE, or the path of a file.")
    ] = "sqlite:///misspec.db",
    name: Annotated[str | None, typer.Option(help="Of the study; the space file's name by default.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds that an evaluation may take.")] = None,
    retries: Annotated[int, typer.Option(help="How often a failed evaluation is tried again.", min=0)] = 0,
    shell: Annotated[bool, typer.Option("--shell", help="The command is a line for the shell.")] = False,
    policy: Annotated[str, typer.Option(help="auto, balancing, ec, phased or gp_ucb.")] = "auto",
    seed: Annotated[int | None, typer.Option(help="Of random choices.")] = None,
    into: Annotated[
        Path | None, typer.Option(help="Folder for the page; by default NAME-results beside the file.")
    ] = None,
) -> None:
    """Find the parameters with which a command prints the best number. The same line goes on after any interruption,
    and helps from another machine that reaches the storage.

    misspec optimize space.toml -- python train.py --lr {lr} --depth {depth}
    """
    from misspec.integrations import command, space_file
    from misspec.integrations.shared_study import shown

    study = space.stem if name is None else name
    options: dict[str, Any] = {"-n": evaluations, "--jobs": jobs if jobs > 1 else None, "--json": json}
    options |= {"--storage": shown(storage) if storage != command.STORAGE else None, "--name": name}
    options |= {"--timeout": timeout, "--retries": retries or None, "--seed": seed, "--into": into}
    options |= {"--policy": policy if policy != "auto" else None}
    given = [part for option, value in options.items() if value is not None for part in (option, str(value))]
    flags = ["--minimize"] * minimize + ["--shell"] * shell
    line = shlex.join(["misspec", "optimize", str(space), *given, *flags, "--", *words])
    console = _console()
    domain = space_file.read(space)
    with _evaluations(console) as show:
        try:
            found = command.go(
                domain,
                words,
                evaluations=evaluations,
                jobs=jobs,
                minimize=minimize,
                key=json,
                storage=storage,
                name=study,
                timeout=timeout,
                retries=retries,
                shell=shell,
                policy=policy,
                seed=seed,
                show=show,
            )
        except KeyboardInterrupt:
            done = f"; {show.latest.done} of {evaluations} results are kept" if show.latest else ""
            _fail(f"stopped{done} in {shown(storage)}; go on with: {line}", INTERRUPTED)
    console.print(f"{found.t} results in {shown(storage)}, study {study}", soft_wrap=True)
    console.print(found.summary(), soft_wrap=True)
    called = "".join(each if each.isalnum() or each in "._- " else "_" for each in study)  # a name of a folder
    folder = into if into is not None else space.with_name(f"{called}-results")
    try:
        with console.status("drawing"):
            page = misspec.report(found, folder, title=study)
        console.print(f"page: {page.resolve()}", soft_wrap=True)
    except ImportError as error:
        console.print(f"for figures and a page of this: pip install 'misspec[experiments]' ({error.name} is missing)")
    except MisspecError as error:
        console.print(f"there is no page: {error}", soft_wrap=True)


class _Evaluations:
    """Shows evaluations as they come in: a bar on a terminal, a line per result elsewhere."""

    def __init__(self, console: Console, bars: Progress) -> None:
        self.latest: Any = None
        self._console, self._bars = console, bars
        self._bar: TaskID | None = None

    def __call__(self, progress: Any) -> None:
        console, result = self._console, progress.result
        if self.latest is None:
            if progress.before:
                console.print(f"{progress.before} of {progress.of} results were there before")
            if console.is_terminal:
                self._bar = self._bars.add_task("results", total=progress.of, note="")
        self.latest = progress
        best = "" if progress.best is None else f"best {progress.best:.6g} at {_params(progress.params)}"
        if result is not None and result.value is None:
            at = _params(result.params)
            console.print(Text(f"trial {result.trial} failed at {at}: {result.reason}", style="yellow"), soft_wrap=True)
        elif result is not None and self._bar is None:
            here = f"{result.value:.6g} at {_params(result.params)}"
            console.print(f"{progress.done}/{progress.of}: {here}; {best}", soft_wrap=True)
        if self._bar is not None:
            left = "" if progress.left is None or progress.done >= progress.of else f"{_clock(progress.left)} left"
            parts = [f"{progress.done}/{progress.of}", f"{progress.running} running", left, best]
            self._bars.update(self._bar, completed=progress.done, note=", ".join(part for part in parts if part))


@contextmanager
def _evaluations(console: Console) -> Iterator[_Evaluations]:
    if console.is_terminal:
        with _bars(console) as bars:
            yield _Evaluations(console, bars)
    else:
        yield _Evaluations(console, Progress(console=console))


def _params(params: dict[str, Any]) -> str:
    return ", ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in params.items())


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


# -- models ------------------------------------------------------------------------------------------------------------


@app.command()
@_clean
def gain(
    file: Annotated[Path | None, typer.Argument(help="An experiment whose domain, model and horizon to take.")] = None,
    kernel: Kernel = None,
    length_scale: Scale = None,
    nu: Nu = None,
    noise: Annotated[float | None, typer.Option(help="Noise level σ, 0.1 by default.")] = None,
    regularization: Annotated[float | None, typer.Option(help="The ridge λ, σ² by default.")] = None,
    dimension: Annotated[int | None, typer.Option(help="Of the unit cube, 1 by default.", min=1, max=1000)] = None,
    grid: Annotated[int | None, typer.Option(help="Points per dimension; without, the whole cube.", min=2)] = None,
    horizon: Annotated[int | None, typer.Option(help="Number of rounds T, 1000 by default.", min=1)] = None,
) -> None:
    """The maximum information gain γ_T of a kernel on a domain, from below and from above."""
    from misspec import Box, InvalidInput, Model, information_gain

    console = _console()
    domain: Any
    if file is not None:
        from misspec import experiments

        if any(each is not None for each in (kernel, length_scale, nu, noise, regularization, dimension, grid)):
            raise InvalidInput(f"{file} says what the model and the domain are; leave those options out, or the file")
        experiment = experiments.read(file)
        domain, model = experiment.world()
        T = experiment.horizon if horizon is None else horizon
    else:
        sigma = 0.1 if noise is None else noise
        model = Model(_kernel(kernel, length_scale, nu), 1.0, sigma, regularization)  # type: ignore[arg-type]
        cube = Box([(0, 1)] * (dimension or 1))
        domain, T = cube if grid is None else cube.grid(grid), horizon or 1000
    with console.status("computing"):
        found = information_gain(domain, model, T)
    console.print(f"{model.kernel} on {domain!r}, λ = {model.regularization:.4g}")
    table = Table()
    for name in ("rounds T", "γ_T at least", "at most"):
        table.add_column(name, justify="right")
    for t in [*(10**k for k in range(1, 12) if 10**k < T), T]:
        table.add_row(f"{t:,}", f"{found.values[t]:.4f}", f"{found.up_to(t):.4f}")
    console.print(table)
    best = min(found.bounds, key=lambda name: found.bounds[name])
    console.print(f"grows as {found.rate}; the upper end at T is the {best} bound")
    if found.approximate:
        console.print(found.approximate.replace("`upper`", "the upper end"))


@app.command()
@_clean
def diagnose(
    file: Annotated[Path, typer.Argument(help="A CSV file with a line of column names.")],
    target: Annotated[str | None, typer.Option(help="The column of observations; the last by default.")] = None,
    columns: Annotated[
        list[str] | None, typer.Option(help="Columns of the points, as in a,b; all others by default.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Columns that have no influence, such as a note or a date, as in a,b.")
    ] = None,
    norm_bound: Annotated[
        float | None, typer.Option(help="B: how large a function you believe in, at least its largest deviation.")
    ] = None,
    noise: Annotated[
        float | None, typer.Option(help="Standard deviation of the noise; without, estimated from repeated points.")
    ] = None,
    offset: Annotated[
        float | None, typer.Option(help="What you expect far from all data; the target's average by default.")
    ] = None,
    kernel: Kernel = None,
    length_scale: Scale = None,
    nu: Nu = None,
    delta: Annotated[float, typer.Option(help="The probability of error that you accept.")] = 0.1,
    raw: Annotated[
        bool, typer.Option("--raw", help="Length scale in the columns' units, not in their ranges.")
    ] = False,
    fixed_design: Annotated[
        bool, typer.Option("--fixed-design", help="The points were fixed before any result was seen.")
    ] = False,
    skip: Annotated[bool, typer.Option("--skip", help="Leave out rows with missing or unreadable cells.")] = False,
) -> None:
    """How wrong a model is at least, from a table of observations: the certificate and a sentence."""
    from misspec import InvalidInput
    from misspec.integrations import table as tables

    console = _console()
    shape = _kernel(kernel, length_scale, nu)
    chosen, left_out = (
        [name.strip() for each in some for name in each.split(",")] for some in (columns or [], ignore or [])
    )
    data = tables.read(file, target, chosen if columns else None, ignore=left_out, skip=skip)
    options: dict[str, Any] = {"noise": noise, "offset": offset, "delta": delta, "raw": raw}
    try:
        with console.status("certifying"):
            made = tables.certify(data, shape, norm_bound=norm_bound, fixed_design=fixed_design, **options)
    except InvalidInput as error:
        raise InvalidInput(f"{error} (--noise)" if "the noise" in str(error) and noise is None else error) from None
    n = len(data.observations)
    skipped = f" ({data.skipped} rows left out)" if data.skipped else ""
    console.print(f"{n} observation{'s' * (n > 1)} of {data.target} at {', '.join(data.names)}{skipped}")
    for note in data.notes:
        console.print(Text(note, style="yellow"), soft_wrap=True)
    if noise is None:
        console.print(f"noise σ = {made.noise:.4g}, estimated from repeated points (--noise sets it)")
    if offset is None:
        console.print(f"offset {made.offset:.4g}, the average of {data.target} (--offset sets it)")
    if norm_bound is not None:
        certificate = made.found[norm_bound]
        console.print(f"ε ≥ {certificate.epsilon_lower:.6g}", style="bold")
        console.print(str(certificate), soft_wrap=True)
        return
    table = Table()
    table.add_column("norm bound B", justify="right")
    table.add_column("wrong by at least ε", justify="right")
    for B, each in made.found.items():
        table.add_row(f"{B:g}", f"{each.epsilon_lower:.4g}")
    console.print(table)
    console.print(f"each line holds with probability {1 - delta:g} if the noise is at most {made.noise:.4g}")
    console.print("choose the norm bound that you believe in with --norm-bound")


# -- by hand -----------------------------------------------------------------------------------------------------------


@app.command(
    help="The next experiments, for someone who runs them by hand: what to try, why, and whether going on is worth it."
    "\n\nFill in the results and run the same command again; nothing else is kept. In the column of results"
    "\n\n- a number is a result, and several lines of the same experiment are repeats;"
    "\n\n- an empty cell is an experiment that is being run: it is not suggested again, and others go around it;"
    "\n\n- the word failed is an experiment that gave no result: it may be suggested once more, and if that fails too, "
    "it is avoided, and so is what is like it. (A yield of zero is a result: write 0.)"
)
@_clean
def suggest(
    source: Annotated[
        Path,
        typer.Argument(
            help="A CSV file of candidates, one per line; or a TOML file that describes a space.", metavar="FILE"
        ),
    ],
    results: Annotated[
        Path | None, typer.Option(help="A CSV file of results, as you fill it in; it need not exist yet.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The column of results; by default the only one that FILE does not have.")
    ] = None,
    batch: Annotated[int, typer.Option(help="How many experiments to suggest.", min=1)] = 5,
    names: Annotated[
        str | None, typer.Option(help="The column of candidates that names them; results can then go by name.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A column of candidates that does not describe them; can be repeated.")
    ] = None,
    append: Annotated[
        bool, typer.Option("--append", help="Add the suggested rows to the results file, for you to fill in.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write the suggested rows to a CSV file of their own, for you to fill in.")
    ] = None,
    minimize: Annotated[bool, typer.Option("--minimize", help="Smaller results are better.")] = False,
    noise: Annotated[
        float | None,
        typer.Option(help="By how much the same experiment varies (standard deviation), if you know it."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Another number makes other choices where chance decides.", min=0)] = 0,
) -> None:
    """The next experiments: what to try, why, and whether going on is worth it."""
    import warnings

    from misspec import InvalidInput
    from misspec.integrations import suggest as by_hand
    from misspec.integrations.menu import by_options

    if append and out is not None:
        raise InvalidInput("--append and --out are two ways to fill in the same results; take one")
    if append and results is None:
        raise InvalidInput("--append needs the file to append to: --results results.csv")
    console = _console()
    with warnings.catch_warnings(record=True) as said, console.status("thinking"):
        warnings.simplefilter("always", UserWarning)
        found = by_hand.suggest(
            source, results, target, batch=batch, names=names, ignore=ignore or (), minimize=minimize, noise=noise,
            seed=seed,
        )  # fmt: skip
    if append:
        found.append()
    elif out is not None:
        found.save(out)
    counted = [f"{found.told} result{'s' * (found.told != 1)} of {found.target}"]
    counted += [f"{n} {what}" for n, what in ((found.running, "being run"), (found.failed, "failed")) if n]
    among = [] if found.menu.size is None else [f"{found.menu.size:,} candidates"]
    better = "smaller is better" if minimize else "larger is better"
    console.print("; ".join([", ".join(counted), *among, better]), style="bold")
    for note in [*(by_options(str(each.message)) for each in said), *found.notes]:
        console.print(Text(note, style="yellow"))
    if found.rows:
        _show_rows(console, found)
    console.print("\n".join(found.summary))
    added = f"{len(found.rows)} row{'s' * (len(found.rows) != 1)}"
    if append and found.rows:
        console.print(f"{added} added to {results}: fill in {found.target} and run the same command again")
    elif out is not None:
        console.print(f"{added} written to {out}: fill in {found.target} and add the lines to the file of results")


def _show_rows(console: Console, found: Any) -> None:
    """What to try and why: a table where it fits, else one row below the other."""
    from misspec.policies.learnt import plain, rounded

    called = ["candidate"] if found.rows[0].called else []
    heads = ["", *called, *found.menu.parameters, f"expected {found.target}"]
    lines = []
    for number, row in enumerate(found.rows, start=1):
        expected = "–" if math.isnan(row.std) else f"{rounded(row.mean, row.std)} ± {rounded(row.std, row.std)}"
        values = [plain(row.values[name]) for name in found.menu.parameters]
        lines.append([f"{number}.", *([row.called] if called else []), *values, expected])
    widths = [max(len(line[i]) for line in [heads, *lines]) for i in range(len(heads))]
    fits = sum(widths) + 3 * len(widths) <= console.width
    console.print()
    grid = Table.grid(padding=(0, 1))
    if fits:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in heads:
            table.add_column(Text(name), no_wrap=True, justify="right" if name == heads[-1] else "left")
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
        for line, row in zip(lines, found.rows, strict=True):
            parts = [f"{name.ljust(left)}  {cell}" for name, cell in zip(heads[1:], line[1:], strict=True)]
            for i, part in enumerate([*parts, row.reason]):
                # a long name of a molecule is folded, not cut off
                grid.add_row(Text(line[0] if i == 0 else "", style="bold"), Text(part, overflow="fold"))
    console.print(grid)
    console.print()


def _kernel(name: str | None, length_scale: float | None, nu: float | None) -> Any:
    from misspec.encoding import KERNELS, make_kernel
    from misspec.errors import InvalidInput, nearest, number

    simple = [each for each in KERNELS if each not in ("Sum", "Product", "Exponentiation", "ConstantKernel")]
    chosen, scale, smooth = name or "RBF", 0.2 if length_scale is None else length_scale, 2.5 if nu is None else nu
    if chosen not in simple:
        raise InvalidInput(f"unknown kernel {chosen!r}{nearest(chosen, simple)}")
    number("--length-scale", scale, above=0)
    if smooth != math.inf:  # the smoothest of all
        number("--nu", smooth, above=0)
    options = {"Matern": {"length_scale": scale, "nu": smooth}, "DotProduct": {"sigma_0": 0.0}}
    return make_kernel(chosen, options.get(chosen, {"length_scale": scale}))


def _console() -> Console:
    return _Console()


if __name__ == "__main__":
    main()
