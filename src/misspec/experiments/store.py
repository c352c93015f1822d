"""A folder of results: one Parquet file per run, complete or absent, and the experiment that asked for them.

    DIR/experiment.toml      what was asked for
    DIR/runs/KEY.parquet     a run: a row per round; what is known of the run as a whole is in the file's metadata

A file is named by the digest of its run's settings, so that an edited experiment finds what is still valid.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from misspec import storage
from misspec.errors import Array, InvalidInput, StorageError
from misspec.experiments.play import Look, Played
from misspec.experiments.spec import Experiment, Run, parse
from misspec.simulate import Trace

FORMAT = 1
EXPERIMENT = "experiment.toml"
_BANDS = ("lower", "upper", "center")


def rounds(trace: Trace) -> pl.DataFrame:
    """A trace as a table, one row per round."""
    table = pl.DataFrame(
        {
            "round": np.arange(1, len(trace) + 1),
            "index": trace.index,
            "y": trace.y,
            "regret": trace.regret,
            "in_class_regret": trace.in_class_regret,
            "mean": trace.mean,
            "std": trace.std,
            "multiplier": trace.multiplier,
            "enlargement": trace.enlargement,
            "upper_end": trace.upper,
            "base": [None] * len(trace) if trace.base is None else trace.base,
            "episode": [None] * len(trace) if trace.episode is None else trace.episode,
        }
    )
    return table.with_columns(pl.col("base", "episode").cast(pl.Int64))


def encode(run: Run, played: Played) -> bytes:
    """A finished run as the content of a Parquet file."""
    trace, problem = played.trace, played.problem
    looks = pl.DataFrame(
        [_row(look) for look in played.looks],
        schema={"round": pl.Int64, "covered": pl.Float64}
        | {name: pl.List(pl.Float64) for name in _BANDS}
        | {"active": pl.List(pl.Int64)},
    )
    table = rounds(trace).join(looks, on="round", how="left", maintain_order="left")
    story = trace.story
    recommended = story["recommendation"]
    facts: dict[str, Any] = {
        "format": FORMAT,
        "settings": run.settings,
        "problem": problem.name,
        "epsilon": problem.epsilon,
        "candidates": len(problem.domain),
        "dimension": problem.domain.dimension,
        "best": float(problem.values.max()),
        "recommended": int(recommended.index),
        "recommended_regret": trace.recommended_regret,
        "guaranteed": bool(recommended.guaranteed),
        "proved_epsilon": max((float(c.epsilon) for c in story["conflicts"]), default=0.0),
        "seconds": played.seconds,
        "epsilons": story.get("epsilons"),
        "counts": story.get("counts"),
        "eliminated": [[e.base, e.round] for e in story.get("eliminated", [])],
        "episodes": [[e.length, len(e.active_before), len(e.active_after)] for e in story.get("history", [])],
    }
    if any(look.lower is not None for look in played.looks):
        facts |= {
            "points": problem.domain.points.tolist(),
            "truth": problem.values.tolist(),
            "in_class": problem.in_class.tolist(),
        }
    buffer = io.BytesIO()
    table.write_parquet(buffer, metadata={"misspec": json.dumps(facts)})
    return buffer.getvalue()


def _row(look: Look) -> dict[str, Any]:
    lists = {"lower": look.lower, "upper": look.upper, "center": look.mean, "active": look.active}
    return {"round": look.round, "covered": look.covered} | {
        name: None if values is None else values.tolist() for name, values in lists.items()
    }


@dataclasses.dataclass(frozen=True, eq=False)
class Finished:
    """A run and what came out: `table` has a row per round, `facts` what is known of the run as a whole."""

    run: Run
    table: pl.DataFrame
    facts: dict[str, Any]

    @property
    def epsilon(self) -> float:
        """The problem's, given or computed."""
        return float(self.facts["epsilon"])

    def column(self, name: str) -> Array:
        return self.table[name].to_numpy()

    @property
    def looks(self) -> pl.DataFrame:
        """The rounds at which the band was looked at."""
        return self.table.filter(pl.col("covered").is_not_null())

    @property
    def pictured(self) -> bool:
        return "truth" in self.facts


class Folder:
    """Where an experiment's results are."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.runs = self.path / "runs"

    def note(self, content: bytes) -> None:
        """Write down what was asked for."""
        storage.replace(self.path / EXPERIMENT, content)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, and keep others out: one runner at a time. The lock ends with its process, however that
        ends; what killed ones have left half-written goes."""
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            handle = (self.path / ".lock").open("w")
        except OSError as error:
            raise StorageError(
                f"cannot write to the folder {self.path}: {error.strerror}; choose one that is writable with --into"
            ) from None
        with handle:
            try:
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # no such locks on this system; results stay whole without them
                pass
            except OSError:
                raise StorageError(
                    f"another `misspec run` works in {self.path}; wait for it, or choose another folder with --into"
                ) from None
            for leftover in [*self.runs.glob(".*.part"), *self.path.glob(".*.part")]:
                leftover.unlink(missing_ok=True)
            yield

    def experiment(self) -> Experiment:
        path = self.path / EXPERIMENT
        try:
            return parse(path.read_bytes(), str(path))
        except (FileNotFoundError, NotADirectoryError):
            raise InvalidInput(
                f"{self.path} holds no {EXPERIMENT}; hand in a folder that `misspec run` or `misspec demo` has made"
            ) from None
        except OSError as error:
            raise InvalidInput(f"cannot read {path}: {error.strerror}") from None

    def file(self, run: Run) -> Path:
        return self.runs / f"{run.key}.parquet"

    def write(self, run: Run, content: bytes) -> None:
        """Durable when this returns, whole or not at all."""
        storage.replace(self.file(run), content)

    def read(self, run: Run) -> Finished | None:
        """What came out of a run, None if it is not done; StorageError if its file is damaged."""
        path = self.file(run)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror}") from None
        try:
            facts = json.loads(pl.read_parquet_metadata(io.BytesIO(content))["misspec"])
            table = pl.read_parquet(io.BytesIO(content))
            newest, rows = int(facts["format"]), table.height
        except (pl.exceptions.PolarsError, OSError, KeyError, ValueError, TypeError) as error:
            short = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise StorageError(
                f"{path} is damaged ({short}); `misspec run {self.path / EXPERIMENT} --into {self.path}` "
                "sets it aside and does that run again"
            ) from None
        if newest > FORMAT:
            raise StorageError(f"{path} has format {newest}, newer than {FORMAT}; update misspec")
        if facts["settings"] != run.settings or rows != run.horizon:
            raise StorageError(f"{path} holds another run than its name says; delete it and run again")
        return Finished(run, table, facts)

    def set_aside(self, run: Run) -> Path:
        """Rename a damaged file, so that its run is done again."""
        path = self.file(run)
        aside = path.with_suffix(".damaged")
        path.replace(aside)
        return aside

    def results(self) -> Results:
        """All that is finished."""
        experiment = self.experiment()
        runs = experiment.runs()
        found = [finished for run in runs if (finished := self.read(run)) is not None]
        return Results(self.path, experiment, found, len(runs))


@dataclasses.dataclass(frozen=True, eq=False)
class Results:
    """What an experiment has found so far; `of` is the number of runs that it asks for."""

    path: Path
    experiment: Experiment
    runs: list[Finished]
    of: int

    def groups(self) -> dict[tuple[str, float], dict[str, list[Finished]]]:
        """By problem and ε (of problems that compute theirs, the mean over seeds), then by policy, seeds in order."""
        found: dict[tuple[str, float | None], dict[str, list[Finished]]] = {}
        for each in self.runs:
            found.setdefault((each.run.problem, each.run.epsilon), {}).setdefault(each.run.policy, []).append(each)
        return {
            (problem, eps if eps is not None else _mean_epsilon(by_policy)): by_policy
            for (problem, eps), by_policy in found.items()
        }

    def __repr__(self) -> str:
        return f"Results({str(self.path)!r}, {len(self.runs)} of {self.of} runs)"


def _mean_epsilon(by_policy: dict[str, list[Finished]]) -> float:
    return float(np.mean([each.epsilon for runs in by_policy.values() for each in runs]))
