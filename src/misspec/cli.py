"""The command line: parses and prints."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn
from rich.table import Table
from rich.text import Text

import misspec
from misspec.errors import MisspecError

app = typer.Typer(
    name="misspec",
    help="Gaussian-process bandits that keep working when the model is wrong.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
EXTRAS = {"polars": "experiments", "pydantic": "experiments", "matplotlib": "experiments", "plotly": "experiments"}
MOST_BARS = 12  # policies that get a bar of their own
INTERRUPTED = 130

Cores = Annotated[int | None, typer.Option(help="Processes to use; all cores by default.", min=1)]
Into = Annotated[Path | None, typer.Option(help="Folder for the results; by default FILE-results beside the file.")]
Kernel = Annotated[str, typer.Option(help="A kernel of scikit-learn: RBF, Matern, DotProduct, …")]
Scale = Annotated[float, typer.Option(help="Its length scale, where it has one.")]
Nu = Annotated[float, typer.Option(help="The smoothness of a Matern kernel.")]


def main() -> None:
    """The entry point."""
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
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # who read the output has gone
            raise typer.Exit(1) from None
        except Exception as error:
            kind = type(error).__name__
            _fail(f"unexpected {kind}: {error}; this is a defect of misspec, MISSPEC_DEBUG=1 shows where")

    return run


def _fail(message: str, code: int = 1) -> NoReturn:
    if os.environ.get("MISSPEC_DEBUG"):
        traceback.print_exc()
    line = " ".join(message.split())
    Console(stderr=True, soft_wrap=True).print(Text.assemble(("misspec: ", "bold red"), line), highlight=False)
    raise typer.Exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"misspec {misspec.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Gaussian-process bandits that keep working when the model is wrong."""


# -- experiments -------------------------------------------------------------------------------------------------------


@app.command()
@_clean
def demo(
    into: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("misspec-demo"),
    cores: Cores = None,
) -> None:
    """The main job in a minute: GP-UCB beside the paper's three algorithms, on a model that is wrong by ε."""
    from misspec import experiments

    experiment = experiments.parse(experiments.demo(), "demo.toml")
    console = _console()
    console.print(Text(experiment.title, style="bold"))
    _go(experiments.demo(), into, "demo.toml", cores, None, "misspec demo")
    _report(into)


@app.command()
@_clean
def run(
    file: Annotated[Path, typer.Argument(help="A TOML file: policies × problems × ε × seeds.")],
    into: Into = None,
    cores: Cores = None,
    dask: Annotated[str | None, typer.Option(help="Address of a Dask scheduler, or `local`.")] = None,
) -> None:
    """Do the runs of an experiment that are not done yet. The same command goes on after any interruption."""
    from misspec import experiments

    content = experiments.content_of(file)
    folder = into if into is not None else file.with_name(f"{file.stem}-results")
    failed = _go(content, folder, str(file), cores, dask, f"misspec run {file}")
    results = experiments.results(folder)
    if results.runs:
        _show(results)
    console = _console()
    console.print(f"results: {folder}", soft_wrap=True, highlight=False)
    console.print(f"pictures: misspec report {folder}", soft_wrap=True, highlight=False)
    if failed:
        first, reason = next(iter(failed.items()))
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        _fail(f"{len(failed)} of {results.of} runs failed: {first}: {reason}{more}")


@app.command()
@_clean
def report(folder: Annotated[Path, typer.Argument(help="A folder that `misspec run` or `misspec demo` made.")]) -> None:
    """Draw figures (PNG and PDF), one interactive page (HTML) and tables (CSV) of what is finished."""
    _report(folder)


def _go(content: bytes, folder: Path, name: str, cores: int | None, dask: str | None, command: str) -> dict[Any, str]:
    """Do the runs with progress bars; what failed, and why."""
    from misspec import experiments

    console = _console()
    latest: Any = None
    try:
        with _bars(console) as bars:
            tasks: dict[str, Any] = {}

            def show(progress: experiments.Progress) -> None:
                nonlocal latest
                if latest is None:
                    for line in progress.damaged:
                        console.print(Text(line, style="yellow"), soft_wrap=True)
                    if progress.before:
                        said = f"{progress.before} of {progress.before + progress.of} runs were done before"
                        console.print(said, highlight=False)
                    if progress.of and len(progress.todo) <= MOST_BARS:
                        for policy, runs in progress.todo.items():
                            tasks[policy] = bars.add_task(Text(policy).markup, total=runs, note="")
                    if progress.of:
                        tasks[""] = bars.add_task("all rounds", total=progress.rounds_of, note="starting")
                latest = progress
                for policy, task in tasks.items():
                    if policy:
                        done = progress.done.get(policy, 0)
                        bars.update(task, completed=done, note=f"{done}/{progress.todo[policy]} runs")
                    else:
                        bars.update(task, completed=progress.rounds)
                        bars.update(task, note=_pace(bars.tasks[task]))

            experiments.go(content, folder, name=name, cores=cores, dask=dask, show=show)
    except KeyboardInterrupt:
        if latest is None:
            _fail("stopped before anything ran", INTERRUPTED)
        done = f"{latest.before + latest.runs} of {latest.before + latest.of}"
        _fail(f"stopped; {done} runs are finished and kept in {folder}; go on with: {command}", INTERRUPTED)
    return dict(latest.failed)


def _pace(task: Task) -> str:
    """How fast, and how much longer."""
    if task.finished:
        return "done"
    if not task.speed or task.time_remaining is None:
        return "starting"
    minutes, seconds = divmod(round(task.time_remaining), 60)
    return f"{task.speed:,.0f} a second, {minutes}:{seconds:02d} left"


@contextmanager
def _bars(console: Console) -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=console) as bars:
        yield bars


def _report(folder: Path) -> None:
    from misspec import reports

    console = _console()
    with console.status("drawing") as status:
        made = reports.write(folder, lambda name: status.update(f"drawing {name}"))
    _show(made.results)
    if len(made.results.runs) < made.results.of:
        missing = made.results.of - len(made.results.runs)
        console.print(Text(f"{missing} of {made.results.of} runs are not done yet", style="yellow"))
    console.print(f"figures: {len(made.figures)} in {made.folder}", soft_wrap=True, highlight=False)
    console.print(f"page: {made.page.resolve()}", soft_wrap=True, highlight=False)


def _show(results: Any) -> None:
    """The table of regret."""
    from misspec.reports import tables

    summary = tables.summary(results)
    caption = (
        "regret: true, a round, mean over the seeds ± standard error; late: over the last tenth of the rounds; "
        "recom.: of what is recommended at the end; held: share of the runs whose band held all of f*"
    )
    table = Table(box=box.SIMPLE, pad_edge=False, collapse_padding=True, caption=caption, caption_justify="left")
    problems = summary["problem"].n_unique() > 1
    for name in [*(["problem"] if problems else []), "ε", "policy"]:
        table.add_column(name, overflow="fold")
    for name in ("regret", "±", "late", "recom.", "held"):
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
            f"{row['regret']:.4f}",
            "" if row["error"] is None else f"{row['error']:.4f}",
            f"{row['late']:.4f}",
            f"{row['recommended']:.4f}",
            f"{100 * row['covered']:.0f} %",
        ]
        table.add_row(*(Text(cell) for cell in cells))
        before = here
    _console().print(table)


# -- models ------------------------------------------------------------------------------------------------------------


@app.command()
@_clean
def gain(
    file: Annotated[Path | None, typer.Argument(help="Take domain, model and horizon from an experiment.")] = None,
    kernel: Kernel = "RBF",
    length_scale: Scale = 0.2,
    nu: Nu = 2.5,
    noise: Annotated[float, typer.Option(help="σ; the ridge λ is σ² unless given.")] = 0.1,
    regularization: Annotated[float | None, typer.Option(help="λ.")] = None,
    dimension: Annotated[int, typer.Option(help="Of the unit cube.", min=1)] = 1,
    grid: Annotated[int | None, typer.Option(help="Points per dimension; without, the whole cube.", min=2)] = None,
    horizon: Annotated[int, typer.Option(help="T.", min=1)] = 1000,
) -> None:
    """The maximum information gain γ_T of a kernel on a domain, from below and from above."""
    from misspec import Box, Model, information_gain

    console = _console()
    domain: Any = Box([(0, 1)] * dimension)
    if file is not None:
        from misspec import experiments

        experiment = experiments.read(file)
        domain, model = experiment.world()
        horizon = experiment.horizon
    else:
        model = Model(_kernel(kernel, length_scale, nu), 1.0, noise, regularization)  # type: ignore[arg-type]
        domain = domain if grid is None else domain.grid(grid)
    with console.status("computing"):
        found = information_gain(domain, model, horizon)
    console.print(f"{model.kernel} on {domain!r}, λ = {model.regularization:.4g}", highlight=False, markup=False)
    table = Table()
    for name in ("rounds T", "γ_T at least", "at most"):
        table.add_column(name, justify="right")
    for t in [*(10**k for k in range(1, 12) if 10**k < horizon), horizon]:
        table.add_row(f"{t:,}", f"{found.values[t]:.4f}", f"{found.up_to(t):.4f}")
    console.print(table)
    best = min(found.bounds, key=lambda name: found.bounds[name])
    console.print(f"grows as {found.rate}; the upper end at T is the {best} bound", highlight=False)
    if found.approximate:
        console.print(f"on a box {found.approximate}", highlight=False)


@app.command()
@_clean
def diagnose(
    file: Annotated[Path, typer.Argument(help="A CSV file with a line of column names.")],
    target: Annotated[str | None, typer.Option(help="The column of observations; the last by default.")] = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns of the points, as in a,b; all others by default.")
    ] = None,
    norm_bound: Annotated[float | None, typer.Option(help="B; without, several are tried.")] = None,
    noise: Annotated[float | None, typer.Option(help="σ; without, estimated from repeated points.")] = None,
    offset: Annotated[float | None, typer.Option(help="The prior mean; the target's average by default.")] = None,
    kernel: Kernel = "RBF",
    length_scale: Scale = 0.2,
    nu: Nu = 2.5,
    delta: Annotated[float, typer.Option(help="δ.")] = 0.1,
    raw: Annotated[
        bool, typer.Option("--raw", help="Length scale in the columns' units, not in their ranges.")
    ] = False,
    fixed_design: Annotated[
        bool, typer.Option("--fixed-design", help="The points were fixed before any result was seen.")
    ] = False,
) -> None:
    """How wrong a model is at least, from a table of observations: the certificate and a sentence."""
    import numpy as np

    from misspec import Box, InvalidInput, Model, noise_from_repeats
    from misspec import diagnose as certify
    from misspec.integrations import table as tables

    console = _console()
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    data = tables.read(file, target, chosen)
    X, y = data.points, data.observations
    console.print(f"{len(y)} observations of {data.target} at {', '.join(data.names)}", highlight=False)
    if noise is None:
        try:
            noise = noise_from_repeats(X, y)
        except InvalidInput as error:
            raise InvalidInput(f"{error} (--noise)") from None
        console.print(f"noise σ = {noise:.4g}, estimated from repeated points (--noise sets it)", highlight=False)
    if offset is None:
        offset = float(y.mean())
        console.print(f"offset {offset:.4g}, the average of {data.target} (--offset sets it)", highlight=False)
    if np.ptp(X, axis=0).min() <= 0 and not raw:
        constant = data.names[int(np.ptp(X, axis=0).argmin())]
        raise InvalidInput(f"column {constant!r} never changes; leave it out with --columns, or use --raw")
    cube = None if raw else Box(list(zip(X.min(axis=0).tolist(), X.max(axis=0).tolist(), strict=True)))
    shape = _kernel(kernel, length_scale, nu)
    spread = float(f"{max(float(np.abs(y - offset).max()), 1e-12):.1g}")
    tried = [norm_bound] if norm_bound is not None else [spread * 2**k for k in range(-1, 5)]
    found = {}
    with console.status("certifying"):
        for B in tried:
            model = Model(shape, B, noise, delta=delta, offset=offset)
            found[B] = certify(X, y, model, domain=cube, fixed_design=fixed_design)
    if norm_bound is None:
        table = Table(caption=f"each holds with probability {1 - delta:g}, for its norm bound", caption_justify="left")
        table.add_column("norm bound B", justify="right")
        table.add_column("wrong by at least ε", justify="right")
        for B, each in found.items():
            table.add_row(f"{B:g}", f"{each.epsilon_lower:.4g}")
        console.print(table)
        console.print("choose the norm bound that you believe in with --norm-bound", highlight=False)
    else:
        console.print(f"ε ≥ {found[norm_bound].epsilon_lower:.6g}", style="bold", highlight=False)
        console.print(str(found[norm_bound]), soft_wrap=True, highlight=False)


def _kernel(name: str, length_scale: float, nu: float) -> Any:
    from misspec.errors import InvalidInput, nearest
    from misspec.policies.encoding import KERNELS

    simple = [each for each in KERNELS if each not in ("Sum", "Product", "Exponentiation", "ConstantKernel")]
    if name not in simple:
        raise InvalidInput(f"unknown kernel {name!r}{nearest(name, simple)}")
    from sklearn.gaussian_process import kernels

    if not length_scale > 0:
        raise InvalidInput(f"--length-scale must be above 0, got {length_scale}")
    options = {"Matern": {"length_scale": length_scale, "nu": nu}, "DotProduct": {"sigma_0": 0.0}}
    return getattr(kernels, name)(**options.get(name, {"length_scale": length_scale}))


def _console() -> Console:
    return Console()


if __name__ == "__main__":
    main()
