"""gain and diagnose: what a model implies, and what data say of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

from rich.table import Column, Table
from typer import Argument, Option

import misspec
from misspec import Box, InvalidInput, Model
from misspec.cli.app import Allow, Kernel, Nu, Repeats, Scale, Terminal, command, number_or_column
from misspec.encoding import KERNELS, make_kernel
from misspec.errors import nearest, number
from misspec.files import storage
from misspec.integrations import table as tables


@command()
def gain(
    file: Annotated[
        Path | None,
        Argument(help="An experiment; its domain, model and horizon replace the options.", metavar="FILE.TOML"),
    ] = None,
    kernel: Kernel = None,
    length_scale: Scale = None,
    nu: Nu = None,
    noise: Annotated[float | None, Option(help="The noise σ, 0.1 by default.", metavar="X")] = None,
    regularization: Annotated[float | None, Option(help="The ridge λ, σ² by default.", metavar="X")] = None,
    dimension: Annotated[
        int | None, Option(help="The dimension of the unit cube, 1 by default.", min=1, max=1000, metavar="N")
    ] = None,
    grid: Annotated[
        int | None,
        Option(help="The number of grid points per dimension; by default the cube is continuous.", min=2, metavar="N"),
    ] = None,
    horizon: Annotated[int | None, Option(help="The number of rounds T, 1000 by default.", min=1, metavar="N")] = None,
    allow: Allow = None,
) -> None:
    """Compute bounds on the maximum information gain γ_T of a kernel, from below and from above."""
    console = Terminal()
    domain: Any
    if file is not None:
        if any(each is not None for each in (kernel, length_scale, nu, noise, regularization, dimension, grid)):
            raise InvalidInput(f"{file} says what the model and the domain are; leave those options out, or the file")
        with misspec.experiments.allow(allow or ()):
            experiment = misspec.experiments.read(file)
            domain, model = experiment.world()
        T = experiment.horizon if horizon is None else horizon
    else:
        sigma = 0.1 if noise is None else noise
        model = Model(_kernel(kernel, length_scale, nu), norm_bound=1.0, noise=sigma, regularization=regularization)  # type: ignore[arg-type]
        cube = Box([(0, 1)] * (dimension or 1))
        domain, T = cube if grid is None else cube.grid(grid), horizon or 1000
    with console.status("computing"):
        found = misspec.information_gain(domain, model, T)
    console.print(f"{model.kernel} on {domain!r}, λ = {model.regularization:.4g}")
    table = Table(*(Column(name, justify="right") for name in ("rounds T", "γ_T at least", "at most")))
    for t in [*(10**k for k in range(1, 12) if 10**k < T), T]:
        table.add_row(f"{t:,}", f"{found.values[t]:.4f}", f"{found.up_to(t):.4f}")
    console.print(table)
    best = min(found.upper_bounds, key=lambda name: found.upper_bounds[name])
    console.print(f"grows as {found.rate}; the upper end at T is the {best} bound")
    if found.approximate:
        console.print(found.approximate.replace("`upper`", "the upper end"))


@command()
def diagnose(
    file: Annotated[Path, Argument(help="A CSV file whose first line names the columns.", metavar="FILE.CSV")],
    target: Annotated[
        str | None, Option(help="The column of observations; by default the last one.", metavar="COLUMN")
    ] = None,
    columns: Annotated[
        list[str] | None,
        Option(help="The columns that describe a point, as in a,b; by default all others.", metavar="COLUMNS"),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        Option(help="Columns that have no influence, such as notes and dates, as in a,b.", metavar="COLUMNS"),
    ] = None,
    norm_bound: Annotated[
        float | None, Option(help="The norm bound B: how large a function you believe in.", metavar="B")
    ] = None,
    noise: Annotated[
        str | None,
        Option(
            help="The standard deviation of the noise, or its column; by default estimated from repeats.",
            metavar="X|COLUMN",
        ),
    ] = None,
    offset: Annotated[
        float | None, Option(help="The value that you expect far from all data; by default the average.", metavar="X")
    ] = None,
    kernel: Kernel = None,
    length_scale: Scale = None,
    nu: Nu = None,
    delta: Annotated[float, Option(help="The probability of error that you accept.", metavar="X")] = 0.1,
    raw: Annotated[
        bool, Option("--raw", help="Take the length scale in units of the columns, not of their ranges.")
    ] = False,
    fixed_design: Annotated[
        bool, Option("--fixed-design", help="Say that all points were chosen before any result was known.")
    ] = False,
    skip: Annotated[bool, Option("--skip", help="Leave out rows with missing or unreadable cells.")] = False,
    repeats: Repeats = False,
    picture: Annotated[
        Path | None,
        Option(help="Draw the residuals into this file (.png or .pdf); needs --norm-bound.", metavar="FILE"),
    ] = None,
) -> None:
    """Prove from a table of observations how wrong a model is at least."""
    console = Terminal()
    shape = _kernel(kernel, length_scale, nu)
    given = number_or_column(noise)
    sigma, column = (None, given) if isinstance(given, str) else (given, None)
    chosen, left_out = ([name.strip() for each in some or () for name in each.split(",")] for some in (columns, ignore))
    with console.status(f"reading {file}"):
        data = tables.read(file, target, chosen or None, ignore=left_out, skip=skip, repeats=repeats, noise=column)
    options: dict[str, Any] = {"norm_bound": norm_bound, "noise": sigma, "offset": offset, "delta": delta, "raw": raw}
    with console.status("certifying") as status:
        made = tables.certify(data, shape, fixed_design=fixed_design, show=status.update, **options)
    n = len(data.observations)
    skipped = f" ({data.skipped} rows left out)" if data.skipped else ""
    console.print(f"{n} observation{'s' * (n > 1)} of {data.target} at {', '.join(data.names)}{skipped}")
    for note in data.notes:
        console.note(note)
    if noise is None:
        console.print(f"noise σ = {made.noise:.4g}, estimated from repeated points (--noise sets it)")
    if column is not None:
        console.print(f"noise of each row as in {column}, {made.noise:.4g} in the median and where there is none")
    if offset is None:
        console.print(f"offset {made.offset:.4g}, the average of {data.target} (--offset sets it)")
    if norm_bound is not None:
        certificate = made.found[norm_bound]
        console.print(f"ε ≥ {certificate.epsilon_lower:.6g}", style="bold")
        console.print(str(certificate), soft_wrap=True)
        for proof in certificate.certificates:
            console.print(f"{proof.kind}: {proof.sentence}", soft_wrap=True)
        if picture is not None:
            from misspec.reports.matplotlib_backend import SUFFIXES, saved

            suffix = picture.suffix.removeprefix(".")
            if suffix not in SUFFIXES:
                raise InvalidInput(f"--picture takes a file that ends with {' or '.join(SUFFIXES)}, got {picture}")
            storage.replace(picture, saved(misspec.reports.residuals_figure(certificate), suffix))
            console.print(f"residuals: {picture}", soft_wrap=True)
        return
    table = Table(*(Column(name, justify="right") for name in ("norm bound B", "wrong by at least ε")), "proved by")
    for B, each in made.found.items():
        best = max(each.certificates, key=lambda proof: proof.epsilon)
        table.add_row(f"{B:g}", f"{each.epsilon_lower:.4g}", best.kind if best.epsilon > 0 else "")
    console.print(table)
    told = int(each.counts.sum())
    if told < n:
        console.print(f"from {told:,} observations, at the {len(each.points)} points with the smallest radii")
    most = f"the noise is at most {made.noise:.4g}" if column is None else f"no noise exceeds what {column} says"
    console.print(f"each line holds with probability {1 - delta:g} if {most}")
    console.print("choose the norm bound that you believe in with --norm-bound")


def _kernel(name: str | None, length_scale: float | None, nu: float | None) -> Any:
    simple = [each for each in KERNELS if each not in ("Sum", "Product", "Exponentiation", "ConstantKernel")]
    chosen, scale, smooth = name or "RBF", 0.2 if length_scale is None else length_scale, 2.5 if nu is None else nu
    if chosen not in simple:
        raise InvalidInput(f"unknown kernel {chosen!r}{nearest(chosen, simple)}")
    number("--length-scale", scale, above=0)
    if smooth != math.inf:  # the smoothest of all
        number("--nu", smooth, above=0)
    options = {"Matern": {"length_scale": scale, "nu": smooth}, "DotProduct": {"sigma_0": 0.0}}
    return make_kernel(chosen, options.get(chosen, {"length_scale": scale}))
