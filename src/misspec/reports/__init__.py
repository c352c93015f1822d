"""Reports: `of_policy` (one optimisation), `of_experiment` (a folder of runs), `trace_figure` (one simulation)."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from misspec.errors import InvalidInput, StorageError
from misspec.experiments.contest import kept
from misspec.experiments.runner import results as read_results
from misspec.experiments.store import Results
from misspec.files import storage

if TYPE_CHECKING:
    from misspec.reports.optimisation import of_policy
    from misspec.reports.residuals import residuals_figure
    from misspec.reports.trace import trace_figure

__all__ = ["Report", "of_experiment", "of_policy", "residuals_figure", "trace_figure"]
HOMES = {
    "of_policy": "misspec.reports.optimisation",
    "residuals_figure": "misspec.reports.residuals",
    "trace_figure": "misspec.reports.trace",
}


def __getattr__(name: str) -> Any:
    """Parts that draw load when they are first used."""
    if name in HOMES:
        return getattr(importlib.import_module(HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclasses.dataclass(frozen=True)
class Report:
    """The files of a report, and the results that they are about."""

    folder: Path
    page: Path
    figures: list[Path]
    results: Results
    summary: pl.DataFrame


def of_experiment(folder: str | os.PathLike[str], show: Callable[[str], None] | None = None) -> Report:
    """Draw everything about a folder of results into its folder `report`. show: called with the name of each part."""
    from misspec.reports import contest, figures, matplotlib_backend, tables, theorems
    from misspec.reports.page import page

    found = read_results(folder)
    if not found.runs:
        raise InvalidInput(f"no run of {folder} is finished yet; `misspec run` does them")
    target = Path(folder) / "report"
    try:
        target.mkdir(exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {target}: {error.strerror}; make it writable") from None
    said = show or _silent
    said("index.html")
    summary, allowed = tables.summary(found), theorems.all_bounds(found)
    first = kept(folder)
    storage.replace(target / "index.html", page(found, summary, allowed, first).encode())
    storage.replace(target / "summary.csv", summary.write_csv().encode())
    storage.replace(target / "runs.csv", tables.by_run(found).write_csv().encode())
    written = []
    with matplotlib_backend.drawing():
        ahead = [] if first is None else [("contest", contest.figure(first))]
        for name, figure in itertools.chain(ahead, figures.draw(found, allowed)):
            for suffix in matplotlib_backend.SUFFIXES:
                said(f"{name}.{suffix}")
                written.append(target / f"{name}.{suffix}")
                storage.replace(written[-1], matplotlib_backend.saved(figure, suffix))
    for stale in {*target.glob("*.png"), *target.glob("*.pdf")} - set(written):  # of problems that have gone
        stale.unlink()
    return Report(target, target / "index.html", written, found, summary)


def _silent(_: str) -> None:
    """Shows nothing."""
