"""Reports: `of_policy` (one optimisation), `of_experiment` (a folder of runs), `trace_figure` (one simulation)."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from misspec import markup
from misspec.errors import InvalidInput, StorageError, extra
from misspec.files import storage

with extra("experiments", "misspec.reports"):
    import polars as pl

    from misspec.experiments.construct import allow as experiments_may_name
    from misspec.experiments.contest import kept_contest
    from misspec.experiments.runner import results as read_results
    from misspec.experiments.store import Results

if TYPE_CHECKING:
    from misspec.reports.optimisation import of_policy
    from misspec.reports.optimisation_figures import plot
    from misspec.reports.single import residuals_figure, trace_figure

__all__ = ["Report", "of_experiment", "of_policy", "plot", "residuals_figure", "trace_figure"]
HOMES = {
    "of_policy": "optimisation",
    "plot": "optimisation_figures",
    "residuals_figure": "single",
    "trace_figure": "single",
}


def __getattr__(name: str) -> Any:
    """Parts that draw load when they are first used."""
    if name in HOMES:
        with extra("experiments", f"ms.reports.{name}"):
            return getattr(importlib.import_module(f"{__name__}.{HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclasses.dataclass(frozen=True)
class Report:
    """The files of a report, and the results that they are about."""

    folder: Path
    page: Path
    figures: list[Path]
    results: Results
    summary: pl.DataFrame

    def _repr_html_(self) -> str:
        """For notebooks: the summary, and where the page is."""
        heads = {
            "problem": "problem",
            "epsilon": "ε",
            "policy": "policy",
            "seeds": "seeds",
            "regret": "regret per round",
        }
        heads |= {"error": "±", "recommended_regret": "loss of the recommendation"}
        rows = self.summary.select(*heads).iter_rows()
        numbers = markup.table([*heads.values()], (map(markup.cell, row) for row in rows))
        return markup.block(f"{len(self.results.runs)} runs", numbers, markup.link(self.page))


def of_experiment(
    folder: str | os.PathLike[str],
    show: Callable[[str], object] | None = None,
    *,
    against: str | None = None,
    latex: bool = False,
    allow: str | Iterable[str] = (),
) -> Report:
    """Draw everything about a folder of results into its folder `report`. show: called with the name of each part.

    against: the policy that the others are compared with, by default the best. latex: write the tables for LaTeX too
    (`tables.tex`), and the papers of the policies for BibTeX (`references.bib`). allow: packages whose policies and
    problems the experiment may name.
    """
    with experiments_may_name(allow):
        return _of_experiment(folder, show, against=against, latex=latex)


def _of_experiment(
    folder: str | os.PathLike[str], show: Callable[[str], object] | None, *, against: str | None, latex: bool
) -> Report:
    from misspec.reports import figures, matplotlib_backend, page, tables, theorems
    from misspec.reports import latex as writer

    found = read_results(folder)
    if not found.runs:
        raise InvalidInput(f"no run of {folder} is finished yet; `misspec run` does them")
    summary = tables.summary(found, against)
    target = Path(folder) / "report"
    try:
        target.mkdir(exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {target}: {error.strerror}; make it writable") from None
    allowed, first = theorems.all_bounds(found), kept_contest(folder)
    show = show or str  # which shows nothing
    show("index.html")
    storage.replace(target / "index.html", page.page(found, summary, allowed, first).encode())
    storage.replace(target / "summary.csv", summary.write_csv().encode())
    storage.replace(target / "runs.csv", tables.by_run(found).write_csv().encode())
    if latex:
        storage.replace(target / "tables.tex", writer.in_latex(found, against).encode())
        storage.replace(target / "references.bib", writer.references(found).encode())
    ahead, written = [] if first is None else [("contest", figures.contest_figure(first))], []
    for name, content in matplotlib_backend.files(itertools.chain(ahead, figures.draw(found, allowed)), show):
        written.append(target / name)
        storage.replace(written[-1], content)
    for stale in {*target.glob("*.png"), *target.glob("*.pdf")} - set(written):  # of problems that have gone
        stale.unlink()
    return Report(target, target / "index.html", written, found, summary)
