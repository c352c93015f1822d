"""A folder of results: one Parquet file per run, complete or absent, and the experiment that asked for them.

    DIR/experiment.toml               what was asked for
    DIR/runs/KEY-CHECKSUM.parquet     a run: a row per round; what is known of the run as a whole is in its metadata

A file is named by the digest of its run's settings, so that an edited experiment finds what is still valid, and by that
of its own content, so that damage is seen before anything is read from it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import misspec
from misspec.errors import Array, InvalidInput, StorageError, short
from misspec.experiments.schema import Run, parse
from misspec.files import storage
from misspec.files.frames import contents
from misspec.policies.core.answers import NUMBERS
from misspec.problems import Problem
from misspec.simulation import Trace

FORMAT = 1
EXPERIMENT = "experiment.toml"
BANDS = ("band_lower", "band_upper", "band_mean")
MOST_COORDINATES = 10  # dimensions of a point that are columns of a table


def rounds(trace: Trace) -> pl.DataFrame:
    """A trace as a table, one row per round; x1, x2, … are the point played, in up to ten dimensions."""
    d, T = trace.x.shape[1], len(trace)
    coordinates = {f"x{i + 1}": trace.x[:, i] for i in range(d if d <= MOST_COORDINATES else 0)}
    numbers = {name: getattr(trace, name) for name in ("y", "regret", "in_class_regret", *NUMBERS)}
    parts = {name: getattr(trace, name) for name in ("base", "episode")}
    parts = {name: [None] * T if part is None else part for name, part in parts.items()}
    table = pl.DataFrame({"round": np.arange(1, T + 1), "index": trace.index} | coordinates | numbers | parts)
    return table.with_columns(pl.col("base", "episode").cast(pl.Int64))


def version() -> str:
    """The version of this misspec: another may give other numbers."""
    return misspec.__version__


@dataclasses.dataclass(frozen=True, eq=False)
class Played:
    """A finished run.

    looks   after some rounds: the share of the candidates whose f* the band holds; of a run that is pictured also the
            band and, of a policy that eliminates, what is active
    """

    trace: Trace
    looks: list[dict[str, Any]]
    problem: Problem
    claims: bool  # whether the policy's bands are meant to hold where the truth lies within its own ε of the class
    allows: float  # that ε, at first
    seconds: float


def encode_run(run: Run, played: Played) -> bytes:
    """A finished run as the content of a Parquet file."""
    trace, problem = played.trace, played.problem
    bands = dict.fromkeys(BANDS, pl.List(pl.Float64))
    schema: Any = {"round": pl.Int64, "covered": pl.Float64, **bands, "active": pl.List(pl.Int64)}
    looks = pl.DataFrame(played.looks, schema=schema)
    table = rounds(trace).join(looks, on="round", how="left", maintain_order="left")
    told, recommended = trace.facts, trace.facts["recommendation"]
    facts: dict[str, Any] = {
        "format": FORMAT,
        "misspec": version(),
        "settings": run.settings,
        "problem": problem.name,
        "epsilon": problem.epsilon,
        "candidates": len(problem.domain),
        "dimension": problem.domain.dimension,
        "best": float(problem.values[problem.best]),
        "contextual": problem.offers is not None,
        "recommended": None if recommended.index is None else int(recommended.index),  # None: it depends on the round
        "recommended_regret": trace.recommended_regret,
        "claims": played.claims,
        "allows": played.allows,
        "guaranteed": bool(recommended.guaranteed),
        "proved_epsilon": max((float(c.epsilon) for c in told["conflicts"]), default=0.0),
        "seconds": played.seconds,
        "epsilons": told.get("epsilons"),
        "counts": told.get("counts"),
        "eliminated": [[e.base, e.round] for e in told.get("eliminated", [])],
        "episodes": [[e.length, len(e.active_before), len(e.active_after)] for e in told.get("history", [])],
    }
    if "cells" in told:
        facts["cells"] = [[each.bounds.tolist(), each.born, each.split] for each in told["cells"]]
    if any("active" in look for look in played.looks):
        pictured = {"points": problem.domain.points, "truth": problem.values, "in_class": problem.in_class}
        facts |= {name: values.tolist() for name, values in pictured.items()}
    facts["digest"] = _digest(facts, table)
    buffer = io.BytesIO()
    table.write_parquet(buffer, metadata={"misspec": json.dumps(facts)})
    return buffer.getvalue()


def decode(run: Run, content: bytes) -> tuple[dict[str, Any], pl.DataFrame]:
    """Decode what `encode_run` has written for this run; ValueError for anything else."""
    facts = json.loads(pl.read_parquet_metadata(io.BytesIO(content)).get("misspec", "null"))
    if not isinstance(facts, dict) or type(facts.get("format")) is not int:
        raise ValueError("it does not say what it is")
    if facts["format"] > FORMAT:
        raise StorageError(f"it has format {facts['format']}, newer than {FORMAT}; update misspec")
    if facts.get("settings") != run.settings:
        raise ValueError("it holds another run than its name says")
    table = pl.read_parquet(io.BytesIO(content))
    if facts.pop("digest", "") != _digest(facts, table):
        raise ValueError("its content does not match the checksum inside")
    return facts, table


def _digest(facts: dict[str, Any], table: pl.DataFrame) -> str:
    """Digest of all results of a run: it shows when a file was edited and renamed."""
    said = {name: each for name, each in facts.items() if name not in ("format", "misspec")}
    found = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    for name, column in zip(table.columns, table.get_columns(), strict=True):
        flat = column
        found.update(f"{name} {column.dtype}".encode())
        if isinstance(column.dtype, pl.List):
            found.update(column.list.len().fill_null(0).to_numpy().tobytes() + column.is_null().to_numpy().tobytes())
            flat = column.drop_nulls().explode()
        found.update(flat.is_null().to_numpy().tobytes() + flat.fill_null(0).to_numpy().tobytes())
    return found.hexdigest()


class Finished:
    """A run and what came out.

    facts                     what is known of the run as a whole
    epsilon                   the problem's, given or computed
    regret, in_class_regret   per round
    looks                     the rounds at which the band was looked at, with the bands of a run that is pictured
    table                     everything, a row per round; read again whenever it is asked for
    """

    def __init__(self, run: Run, path: Path, facts: dict[str, Any], table: pl.DataFrame) -> None:
        self.run, self.path, self.facts = run, path, facts
        self.epsilon, self.minimize = float(facts["epsilon"]), bool(run.settings.get("minimize", False))
        self.contextual, self.pictured = bool(facts["contextual"]), "truth" in facts
        self.regret: Array = table["regret"].to_numpy()
        self.in_class_regret: Array = table["in_class_regret"].to_numpy()
        self.looks = table.filter(pl.col("covered").is_not_null()).select("round", "covered", *BANDS, "active")

    @property
    def table(self) -> pl.DataFrame:
        return pl.read_parquet(io.BytesIO(_content(self.path)))


class Damaged(StorageError):
    """A file that is not what was written."""

    def __init__(self, path: Path, why: str) -> None:
        folder = path.parent.parent
        again = shlex.join(["misspec", "run", str(folder / EXPERIMENT), "--into", str(folder)])
        super().__init__(f"{path} is damaged ({why}); `{again}` sets it aside and does that run again")


class Folder:
    """The folder of an experiment's results."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.runs = self.path / "runs"

    @contextlib.contextmanager
    def locked(self, content: bytes, source: str) -> Iterator[None]:
        """Make the folder, keep others out, and write down what was asked for.

        One runner at a time: the lock ends with its process, however that ends, and what killed ones left
        half-written is removed. One experiment per folder: the lock holds the name of its file, which may be edited.
        """
        path, elsewhere = self.path, "choose another folder with --into"
        if (path / EXPERIMENT).exists() and not self.runs.exists():
            raise StorageError(f"{path} has an {EXPERIMENT} that no run has put there; {elsewhere}")
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            handle = (path / ".lock").open("a+", encoding="utf-8")
        except OSError as error:
            writable = "choose one that is writable with --into"
            raise StorageError(f"cannot write to the folder {path}: {error.strerror}; {writable}") from None
        with handle:
            free = True
            with contextlib.suppress(ImportError, OSError):  # where there are no locks; results stay whole without
                free = storage.lock(handle.fileno())
            if not free:
                raise StorageError(f"another `misspec run` works in {path}; wait for it, or {elsewhere}")
            handle.seek(0)
            before = handle.read()
            if before not in ("", source) and source != EXPERIMENT:
                another = f"choose another folder for {source} with --into"
                raise StorageError(f"{path} holds the results of {before}; {another}")
            if not before:
                handle.write(source)
                handle.flush()
            storage.replace(path / EXPERIMENT, content)
            for leftover in [*self.runs.glob(".*.part"), *path.glob(".*.part")]:
                leftover.unlink(missing_ok=True)
            yield

    def files(self) -> dict[str, Path]:
        """Key of a run → its file."""
        return {path.name.partition("-")[0]: path for path in sorted(self.runs.glob("*-*.parquet"))}

    @functools.cached_property
    def _written(self) -> dict[str, Path]:
        """`files()` before the first write, and since then: to list a folder for every run would take ever longer."""
        return self.files()

    def write(self, run: Run, content: bytes) -> None:
        """Durable when this returns, whole or not at all; takes the place of an older result of the same run."""
        path = self.runs / f"{run.key}-{_checksum(content)}.parquet"
        older = self._written.get(run.key, path)
        storage.replace(path, content, tidy=False)  # `locked` has done it
        self._written[run.key] = path
        if older != path:
            older.unlink(missing_ok=True)

    def read(self, run: Run, path: Path) -> Finished:
        """Read the outcome of a run; Damaged if its file is not what was written."""
        content = _content(path)
        try:
            facts, table = decode(run, content)
        except StorageError as error:
            raise StorageError(f"cannot read {path}: {error}") from None
        except MemoryError:
            raise
        except (Exception, pl.exceptions.PanicException) as error:  # polars raises many kinds
            raise Damaged(path, short(error)) from error
        return Finished(run, path, facts, table)

    def set_aside(self, path: Path) -> Path:
        """Rename a damaged file, so that its run is done again."""
        try:
            return path.rename(path.with_suffix(".damaged"))
        except OSError as error:
            raise StorageError(f"{path} is damaged, and cannot be set aside: {error.strerror}; delete it") from None


class Results:
    """The finished runs of an experiment's folder; `of` is the number of runs that it asks for."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        folder = Folder(path)
        self.path, asked = folder.path, folder.path / EXPERIMENT
        if not asked.exists():
            hint = "hand in a folder that `misspec run` or `misspec demo` has made"
            raise InvalidInput(f"{self.path} holds no {EXPERIMENT}; {hint}")
        self.experiment = parse(contents(asked), str(asked))
        runs, files = self.experiment.runs(), folder.files()
        self.runs = [folder.read(run, files[run.key]) for run in runs if run.key in files]
        self.of = len(runs)

    def groups(self) -> dict[tuple[str, float], dict[str, list[Finished]]]:
        """By problem and ε (of problems that compute theirs, the mean over seeds), then by policy, seeds in order."""
        found: dict[tuple[str, float | None], dict[str, list[Finished]]] = {}
        for each in self.runs:
            found.setdefault((each.run.problem, each.run.epsilon), {}).setdefault(each.run.policy, []).append(each)

        def mean(by_policy: dict[str, list[Finished]]) -> float:
            return float(np.mean([each.epsilon for runs in by_policy.values() for each in runs]))

        return {(problem, mean(each) if eps is None else eps): each for (problem, eps), each in found.items()}

    def __repr__(self) -> str:
        return f"Results({str(self.path)!r}, {len(self.runs)} of {self.of} runs)"


def _content(path: Path) -> bytes:
    """Content of a run's file; Damaged where it does not match its name."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from None
    if path.stem.partition("-")[2] != _checksum(content):
        raise Damaged(path, "its content does not match the checksum in its name")
    return content


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
