"""Files of results that were damaged, under their own name or with a checksum to match: never taken, named by whoever
reads them, and done again by a run."""

import functools
import hashlib
import io
import json
import random
import shutil
import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import strategies as st

from damage import HOW, damaged
from files import head
from hostile import attempt, fuzz
from misspec import experiments as ex
from misspec import reports
from misspec.experiments.store import Damaged, Folder

TOML = (
    head(12, 2, "[0.1]", grid=6)
    + """
[[problems]]
misfit = "random"

[[policies]]
kind = "GPUCB"

[[policies]]
kind = "RegretBalancing"
"""
).encode()


@functools.cache
def finished():
    """The folder of an experiment that is done, the files of its runs, and what is in them."""
    folder = Path(tempfile.mkdtemp())
    ex.go(TOML, folder, cores=1)
    files = {path.name: path.read_bytes() for path in (folder / "runs").iterdir()}
    return folder, files, ex.results(folder).experiment.runs()


@pytest.fixture(scope="module", autouse=True)
def _tidied():
    yield
    shutil.rmtree(finished()[0])
    finished.cache_clear()  # a process may come back to this module


def named(name, content):
    """What a file of this content is called, by whoever gives it a checksum to match."""
    return f"{name.partition('-')[0]}-{hashlib.sha256(content).hexdigest()[:16]}.parquet"


def read(name, content):
    """What is read from a file of this name, None where that is refused."""
    folder, _, runs = finished()
    run = next(run for run in runs if run.key == name.partition("-")[0])
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / name
        path.write_bytes(content)
        found = attempt(lambda: Folder(folder).read(run, path))
        assert path.read_bytes() == content
        return found


def same(found, name):
    """Whether what was read is what was written."""
    _, files, _ = finished()
    before = read(name, files[name])
    facts = [{k: v for k, v in each.facts.items() if k not in ("format", "misspec")} for each in (found, before)]
    return (
        facts[0] == facts[1]
        and (found.regret == before.regret).all()
        and (found.in_class_regret == before.in_class_regret).all()
        and found.looks.equals(before.looks)
    )


places = {"which": st.integers(0, 3), "how": st.sampled_from(["cut", *HOW]), "seed": st.integers(0, 2**40)}


def spoilt(which, how, seed):
    name, content = sorted(finished()[1].items())[which]
    chance = random.Random(seed)
    return name, content[: chance.randrange(len(content))] if how == "cut" else damaged(content, how, chance)


@fuzz(250, **places)
def test_a_damaged_file_is_refused(which, how, seed):
    name, content = spoilt(which, how, seed)
    assert read(name, content) is None or content == finished()[1][name]


@fuzz(250, **places)
def test_a_damaged_file_with_a_checksum_to_match_is_refused(which, how, seed):
    name, content = spoilt(which, how, seed)
    found = read(named(name, content), content)
    assert found is None or same(found, name)  # what nothing reads


def rewritten(content, change):
    """A whole file with another table, or other facts."""
    facts = json.loads(pl.read_parquet_metadata(io.BytesIO(content))["misspec"])
    table, facts = change(pl.read_parquet(io.BytesIO(content)), facts)
    buffer = io.BytesIO()
    table.write_parquet(buffer, metadata={"misspec": facts if isinstance(facts, str) else json.dumps(facts)})
    return buffer.getvalue()


CHANGES = {
    "regret": lambda table, facts: (table.with_columns(pl.col("regret") * 0.5), facts),
    "one number": lambda table, facts: (table.with_columns(pl.col("y").replace(table["y"][3], 0.0)), facts),
    "order": lambda table, facts: (table.reverse(), facts),
    "fewer rounds": lambda table, facts: (table.head(-1), facts),
    "no rounds": lambda table, facts: (table.clear(), facts),
    "twice": lambda table, facts: (pl.concat([table, table]), facts),
    "a column less": lambda table, facts: (table.drop("in_class_regret"), facts),
    "a column more": lambda table, facts: (table.with_columns(odd=pl.lit(1.0)), facts),
    "renamed": lambda table, facts: (table.rename({"regret": "in_class_regret", "in_class_regret": "regret"}), facts),
    "text": lambda table, facts: (table.with_columns(pl.col("regret").cast(pl.String)), facts),
    "nothing": lambda table, facts: (table.with_columns(regret=pl.lit(None, dtype=pl.Float64)), facts),
    "not a number": lambda table, facts: (table.with_columns(regret=pl.lit(float("nan"))), facts),
    "a fact": lambda table, facts: (table, facts | {"epsilon": 0.0}),
    "a fact less": lambda table, facts: (table, {k: v for k, v in facts.items() if k != "best"}),
    "another run": lambda table, facts: (table, facts | {"settings": {}}),
    "no facts": lambda table, _: (table, ""),
    "a list": lambda table, _: (table, "[]"),
    "deep": lambda table, _: (table, "[" * 100_000),
    "no digest, fewer rounds": lambda table, facts: (
        table.head(-1),
        {k: v for k, v in facts.items() if k != "digest"},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_wrong_content_is_named_by_the_report_and_done_again_by_a_run(change, tmp_path):
    folder, files, _ = finished()
    shutil.copytree(folder, tmp_path / "results")
    name = sorted(files)[1]
    content = rewritten(files[name], CHANGES[change])
    (tmp_path / "results" / "runs" / name).unlink()
    victim = tmp_path / "results" / "runs" / named(name, content)
    victim.write_bytes(content)
    for reader in (ex.results, reports.of_experiment):
        with pytest.raises(Damaged, match=rf"{victim.name} is damaged .*misspec run .* sets it aside"):
            reader(tmp_path / "results")
    progress = ex.go(TOML, tmp_path / "results", cores=1)
    assert (progress.of, len(progress.news)) == (1, 1)
    assert victim.name in progress.news[0]
    assert not victim.exists()
    assert victim.with_suffix(".damaged").read_bytes() == content
    assert len(ex.results(tmp_path / "results").runs) == len(files)


def test_files_without_a_checksum_inside_are_refused():
    _, files, _ = finished()
    for name, content in files.items():
        without = rewritten(content, lambda table, facts: (table, {k: v for k, v in facts.items() if k != "digest"}))
        assert read(named(name, without), without) is None


def test_a_file_on_which_polars_panics_is_damaged(monkeypatch):
    def panic(*_):
        raise pl.exceptions.PanicException("called `Option::unwrap()` on a `None` value")

    _, files, _ = finished()
    name, content = sorted(files.items())[0]
    assert read(name, content) is not None
    monkeypatch.setattr(pl, "read_parquet_metadata", panic)  # which is no Exception to Python
    assert read(name, content) is None
