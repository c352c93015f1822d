"""The demo's first part: reactions tuned without constants by `ms.Auto`, Optuna where it is installed, and chance.

Every batch counts, as in a plant that produces while it is tuned: what is compared is the true yield of all batches,
and that of the best conditions found. Every seed is another reaction. It is an experiment in a folder of the demo's.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from misspec.errors import Array, MisspecError
from misspec.experiments import construct, store
from misspec.experiments.runner import Show, go, results
from misspec.experiments.schema import demo
from misspec.policies import Auto
from misspec.policies.auto import learnt
from misspec.problems import Problem, reaction
from misspec.threads import one_thread

EVALUATIONS, SEEDS = 60, 8
LATE = 10  # batches at the end that are looked at
FOLDER = "reactions"
TOML = """title = "Reactions tuned while they produce, without constants"
horizon = {evaluations}
seeds = {seeds}
problems = [{{ kind = "reaction", solve = false }}]
policies = [{policies}]
"""
TPE = "misspec.integrations.optuna.peer"
PLAYERS = {
    "ms.Auto": 'kind = "Auto", aim = "earn"',
    "Optuna": f'kind = "{TPE}:TPE"',
    "random search": 'kind = "UniformSampling"',
}
ABOUT = (
    "{seeds} simulated reactions, drawn at random: 12 ligands, 4 bases, 4 solvents, temperature and concentration, "
    "{size:,} combinations. Some ligands do not bear the heat, some not the base, and in every solvent they behave "
    "differently: no smooth model fits. The yield of a batch varies by ±{noise:g} points, and every batch counts, as "
    "in a plant that produces while it is tuned. All are told only the table and the yields so far."
)
PEER = " Optuna chooses by its default sampler, TPE."
READING = (
    "All are true yields in %, without the noise, medians over the reactions. All batches: the average of all "
    "{evaluations}; last {late}: of those at the end; best found: of the conditions whose batch had the best result."
)


def present() -> list[str]:
    """The players that can play here."""
    return [name for name in PLAYERS if name != "Optuna" or importlib.util.find_spec("optuna") is not None]


class Row(NamedTuple):
    """Medians over the seeds, after the last batch."""

    player: str
    average: float  # true yield of all batches
    late: float  # of the last ones
    found: float  # of the conditions with the best result


class Contest:
    """Every batch of every player.

    truth, y   true yield and result: (players, seeds, batches)
    average    true yield of the batches so far
    found      true yield of the conditions whose batch had the best result so far; the first of equal ones
    best       the best yield that is possible, the same in all reactions
    said       what `ms.Auto` has learnt of the first reaction, and what it would try next
    late       number of batches at the end that are looked at
    reading    what the columns mean
    """

    def __init__(self, players: list[str], truth: Array, y: Array, best: float, about: str, said: list[str]) -> None:
        self.players, self.truth, self.y, self.best, self.about, self.said = players, truth, y, best, about, said
        _, self.seeds, self.evaluations = truth.shape
        self.late = min(LATE, self.evaluations)
        self.reading = READING.format(evaluations=self.evaluations, late=self.late)
        self.average = np.cumsum(truth, axis=2) / np.arange(1, self.evaluations + 1)
        new = np.diff(np.maximum.accumulate(y, axis=2), axis=2, prepend=-np.inf) > 0
        last = np.maximum.accumulate(np.where(new, np.arange(self.evaluations), 0), axis=2)
        self.found = np.take_along_axis(truth, last, axis=2)

    def rows(self) -> list[Row]:
        """One per player."""
        late = self.truth[..., -self.late :].mean(axis=2)
        ends = np.median([self.average[..., -1], late, self.found[..., -1]], axis=2)
        return [Row(name, *values) for name, values in zip(self.players, ends.T.tolist(), strict=True)]

    @property
    def sentences(self) -> list[str]:
        """The figures in words: what all batches gave, and what was found."""
        first, *others = self.rows()

        def beside(difference: float) -> str:
            points = round(abs(difference))
            more = f"{points} point{'s' * (points > 1)} {'more' if difference > 0 else 'less'} than"
            return more if points else "as much as"

        than = " and ".join(f"{beside(first.average - other.average)} {other.player}" for other in others)
        found = ", ".join(f"{row.found:.0f} % ({row.player})" for row in (first, *others))
        return [
            f"The {self.evaluations} batches of {first.player} gave {first.average:.0f} % on average, {than}.",
            f"The best conditions found truly give {found}, of {self.best:.0f} % that are possible. Medians of "
            f"{self.seeds} reaction{'s' * (self.seeds > 1)}.",
        ]


def contest_in(
    folder: str | os.PathLike[str],
    evaluations: int = EVALUATIONS,
    seeds: int = SEEDS,
    *,
    cores: int | None = None,
    show: Show | None = None,
) -> Contest:
    """Play what is left of the contest in a folder of the demo's. cores, show: as for `go`."""
    players = ", ".join(f'{{ name = "{name}", {PLAYERS[name]} }}' for name in present())
    content = TOML.format(evaluations=evaluations, seeds=seeds, policies=players).encode()
    with store.Folder(folder).locked(demo(), "demo.toml"):
        made = go(content, Path(folder) / FOLDER, name="reactions.toml", cores=cores, show=show, allow=[TPE])
    for run, reason in made.failed.items():
        raise MisspecError(f"{run}: {reason}")
    found = kept_contest(folder)
    assert found is not None  # it has just been played
    return found


def kept_contest(folder: str | os.PathLike[str]) -> Contest | None:
    """The contest in a folder; None if there is none, not all of it, or another version of misspec has played it."""
    path = Path(folder) / FOLDER
    if not path.exists():
        return None
    with construct.allow([TPE]):
        found = results(path)
    if len(found.runs) < found.of or any(run.facts["misspec"] != store.version() for run in found.runs):
        return None
    (players,) = found.groups().values()
    best = float(found.runs[0].facts["best"])
    truth = np.array([[best - run.regret for run in runs] for runs in players.values()])
    y = np.array([[run.table["y"].to_numpy() for run in runs] for runs in players.values()])
    first = players["ms.Auto"][0].table
    said = _said(first["index"].to_numpy(), first["y"].to_numpy())
    return Contest(list(players), truth, y, best, about(truth.shape[1], list(players)), said)


@functools.cache
def _first() -> Problem:
    return reaction(0, solve=False)


def about(seeds: int = SEEDS, players: list[str] | None = None) -> str:
    """Description of the problems, for people."""
    said = ABOUT.format(seeds=seeds, size=len(_first().domain), noise=_first().model.noise)
    return said + (PEER if "Optuna" in (players or present()) else "")


def _said(indices: Array, y: Array) -> list[str]:
    """Summary of an Auto that was told these batches of the first reaction."""
    with one_thread():
        policy = Auto(_first().domain, aim="earn")
        policy.observe(indices, y)
        following = policy.ask().row or {}
        values = ", ".join(f"{name} = {learnt.plain(value)}" for name, value in following.items())
        return [*policy.summary().splitlines(), f"It would try next: {values}."]
