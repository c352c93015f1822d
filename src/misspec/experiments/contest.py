"""Who gets most out of reactions without being told a constant: `ms.Auto`, Optuna where it is installed, chance.

Every batch counts, as in a plant that produces while it is tuned: what is compared is the true yield of all batches,
and that of the best conditions found. Every seed is another reaction. A contest is kept as one file of a folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from misspec.domains import Table
from misspec.encoding import decode_array, encode_array
from misspec.errors import Array, MisspecError, StorageError, whole
from misspec.experiments import store
from misspec.experiments.runner import Progress, Show, outcomes
from misspec.experiments.schema import demo
from misspec.files import records, storage
from misspec.policies import Auto
from misspec.policies.auto import learnt
from misspec.problems import Problem, reaction
from misspec.simulation import STREAMS
from misspec.threads import one_thread

EVALUATIONS, SEEDS = 60, 8
LATE = 10  # batches at the end that are looked at
FILE = "contest.misspec"
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

Play = Generator[int, float, None]  # yields the row of the next batch, and is sent its result


# -- players ---------------------------------------------------------------------------------------------------


def _auto(problem: Problem, seed: int) -> Play:
    policy = Auto(problem.domain, seed=seed)
    while True:
        query = policy.ask()
        policy.tell(query, (yield int(query.index)))  # type: ignore[arg-type]  # it has one on a table


def _optuna(problem: Problem, seed: int) -> Play:
    """Optuna's default sampler, TPE: text is categorical, numbers are whole ones in their order."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    assert isinstance(problem.domain, Table)
    rows = problem.domain.rows
    levels = {name: list(dict.fromkeys(row[name] for row in rows)) for name in rows[0]}
    index = {tuple(row.values()): i for i, row in enumerate(rows)}
    while True:
        trial = study.ask()
        chosen = (
            trial.suggest_categorical(name, values)
            if isinstance(values[0], str)
            else values[trial.suggest_int(name, 0, len(values) - 1)]
            for name, values in levels.items()
        )
        study.tell(trial, (yield index[tuple(chosen)]))


def _random(problem: Problem, seed: int) -> Play:
    for index in np.random.default_rng([seed, 7]).permutation(len(problem.domain)):
        yield int(index)


PLAYERS: dict[str, Callable[[Problem, int], Play]] = {
    "ms.Auto": _auto,
    "Optuna": _optuna,
    "random search": _random,
}


def present() -> list[str]:
    """The players that can play here."""
    return [name for name in PLAYERS if name != "Optuna" or importlib.util.find_spec("optuna") is not None]


# -- what came out ---------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """Medians over the seeds, after the last batch."""

    player: str
    average: float  # true yield of all batches
    late: float  # of the last ones
    found: float  # of the conditions with the best result


@dataclasses.dataclass(frozen=True, eq=False)
class Contest:
    """Every batch of every player.

    truth, y   true yield and result: (players, seeds, batches)
    best       the best yield that is possible, the same in all reactions
    said       what `ms.Auto` has learnt of the first reaction, and what it would try next
    """

    players: list[str]
    truth: Array
    y: Array
    best: float
    about: str
    said: list[str]

    @property
    def seeds(self) -> int:
        return int(self.truth.shape[1])

    @property
    def evaluations(self) -> int:
        return int(self.truth.shape[2])

    @functools.cached_property
    def average(self) -> Array:
        """The average true yield of the batches so far."""
        return np.cumsum(self.truth, axis=2) / np.arange(1, self.evaluations + 1)

    @functools.cached_property
    def found(self) -> Array:
        """The true yield of the conditions whose batch had the best result so far; the first of equal ones."""
        new = self.y > np.concatenate(
            [np.full_like(self.y[..., :1], -np.inf), np.maximum.accumulate(self.y, axis=2)[..., :-1]], axis=2
        )
        last = np.maximum.accumulate(np.where(new, np.arange(self.evaluations), 0), axis=2)
        return np.take_along_axis(self.truth, last, axis=2)

    def rows(self) -> list[Row]:
        """One per player."""
        late = self.truth[..., -self.late :].mean(axis=2)
        ends = [np.median(each, axis=1) for each in (self.average[..., -1], late, self.found[..., -1])]
        return [Row(name, *(float(end[i]) for end in ends)) for i, name in enumerate(self.players)]

    @property
    def late(self) -> int:
        """How many batches at the end are looked at."""
        return min(LATE, self.evaluations)

    @property
    def reading(self) -> str:
        """What the columns are."""
        return READING.format(evaluations=self.evaluations, late=self.late)

    @property
    def sentences(self) -> list[str]:
        """The figures in words: what all batches gave, and what was found."""
        first, *others = self.rows()
        than = " and ".join(f"{_beside(first.average - other.average)} {other.player}" for other in others)
        found = ", ".join(f"{row.found:.0f} % ({row.player})" for row in (first, *others))
        return [
            f"The {self.evaluations} batches of {first.player} gave {first.average:.0f} % on average, {than}.",
            f"The best conditions found truly give {found}, of {self.best:.0f} % that are possible. Medians of "
            f"{self.seeds} reaction{'s' * (self.seeds > 1)}.",
        ]


def _beside(difference: float) -> str:
    points = round(abs(difference))
    if points == 0:
        return "as much as"
    return f"{points} point{'s' * (points > 1)} {'more' if difference > 0 else 'less'} than"


# -- doing it ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Game:
    """A player's batches in one seed."""

    policy: str
    seed: int
    evaluations: int

    def __str__(self) -> str:
        return f"{self.policy}, seed {self.seed}"


def play(game: Game, tick: Callable[[int], None]) -> Array | str:
    """True yields, results and rows of the table, (3, batches); or one line on why there are none.

    All players of a seed meet the same noise.
    """
    try:
        with one_thread():
            problem = _problem(game.seed)
            draws = problem.sampler.draw(np.random.default_rng([game.seed, STREAMS[0]]), game.evaluations)
            player = PLAYERS[game.policy](problem, game.seed)
            index, played = next(player), np.empty((3, game.evaluations))
            for t, draw in enumerate(draws):
                value = problem.values[index]
                played[:, t] = value, value + problem.sampler.at(index, draw), index
                tick(1)
                if t + 1 < game.evaluations:
                    index = player.send(float(played[1, t]))
            return played
    except Exception as error:  # the others' libraries may raise anything
        return f"unexpected {type(error).__name__}: {error}"


@functools.lru_cache(maxsize=1)
def _problem(seed: int) -> Problem:
    return reaction(seed, solve=False)


def contest(
    evaluations: int = EVALUATIONS, seeds: int = SEEDS, *, cores: int | None = None, show: Show | None = None
) -> Contest:
    """Play it. cores, show: as for `go`; the same numbers on any number of cores."""
    T, n, names = whole("evaluations", evaluations, at_least=1), whole("seeds", seeds, at_least=1), present()
    games = [Game(name, seed, T) for seed in range(n) for name in names]
    progress = Progress(0, len(games), len(games) * T, dict.fromkeys(names, n))
    played = {}
    with contextlib.closing(outcomes(play, games, progress, show or (lambda _: None), cores)) as coming:
        for game, found in coming:
            if isinstance(found, str):
                raise MisspecError(f"{game}: {found}")
            played[game] = found
            progress.runs += 1
            progress.done[game.policy] = progress.done.get(game.policy, 0) + 1
    every = np.array([[played[Game(name, seed, T)] for seed in range(n)] for name in names])
    problem = _problem(0)
    truth, y, first = every[:, :, 0], every[:, :, 1], every[names.index("ms.Auto"), 0]
    return Contest(names, truth, y, float(problem.values.max()), about(n), _said(problem, first))


def about(seeds: int = SEEDS) -> str:
    """What is played, in words."""
    problem = _problem(0)
    said = ABOUT.format(seeds=seeds, size=len(problem.domain), noise=problem.model.noise)
    return said + (PEER if "Optuna" in present() else "")


def _said(problem: Problem, first: Array) -> list[str]:
    """What an Auto knows that was told these batches."""
    with one_thread():
        policy = Auto(problem.domain)
        policy.observe(first[2].astype(np.intp), first[1])
        following = policy.ask().row or {}
        values = ", ".join(f"{name} = {learnt.plain(value)}" for name, value in following.items())
        return [*policy.summary().splitlines(), f"It would try next: {values}."]


# -- keeping it --------------------------------------------------------------------------------------------------


def contest_in(
    folder: str | os.PathLike[str],
    evaluations: int = EVALUATIONS,
    seeds: int = SEEDS,
    *,
    cores: int | None = None,
    show: Show | None = None,
) -> Contest:
    """The contest that is kept in the folder of the demo; played and kept where there is none that is whole and the
    same."""
    with store.Folder(folder).locked(demo(), "demo.toml"):
        with contextlib.suppress(StorageError):  # a damaged one is played again
            found = kept(folder)
            if found is not None and (found.players, found.seeds, found.evaluations) == (present(), seeds, evaluations):
                return found
        found = contest(evaluations, seeds, cores=cores, show=show)
        document = {"players": found.players, "best": found.best, "about": found.about, "said": found.said}
        document["misspec"] = store.version()
        arrays = {"truth": encode_array(found.truth), "y": encode_array(found.y)}
        records.create(Path(folder) / FILE, [json.dumps({**document, **arrays}, allow_nan=False).encode()], new=False)
        return found


def kept(folder: str | os.PathLike[str]) -> Contest | None:
    """The contest in a folder; None if there is none, or another version of misspec has played it."""
    path = Path(folder) / FILE
    if not path.exists():
        return None
    try:
        lines = list(records.Reader(path))
        document = storage.parsed(lines[0]) if len(lines) == 1 else None
        kinds = {"players": list, "best": float, "about": str, "said": list, "misspec": str, "truth": dict, "y": dict}
        if not isinstance(document, dict) or {name: type(value) for name, value in document.items()} != kinds:
            raise StorageError(f"{path} holds no contest")
        truth, y, players = (
            decode_array("truth", document["truth"]),
            decode_array("y", document["y"]),
            document["players"],
        )
        fits = truth.ndim == 3 and truth.shape == y.shape and len(truth) == len(players)
        if not fits or truth.dtype != np.float64 or y.dtype != np.float64:
            raise StorageError(f"{path} holds no contest")
    except (StorageError, ValueError) as error:
        raise StorageError(f"{error}; `misspec demo` makes it again, or delete it") from None
    if document["misspec"] != store.version():
        return None
    return Contest(players, truth, y, document["best"], document["about"], document["said"])
