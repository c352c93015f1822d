"""Results that are wrong: ms.Auto beside Optuna's and BoTorch's samplers when some readings are off.

    MISSPEC_DATA=… python benchmarks/corrupted.py [--seeds 3] [--players Auto …] [--kinds clean up50@20 …] [--tasks …]

Kinds: clean; one reading off by ±10, ±50 or ±10⁴ noises in round 4 or 20; heavy (a twentieth of the noises are thirty
times as large); units (every tenth reading is a hundred times too large). Tables with replicates replay one of them per
reading; peers that need a box get the nearest row. Regret is a share of the range, over 40 rounds; recommended is what
each would use in the end. All players see the same draws.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is imported

import argparse
import csv
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import peers
import practical
import tasks
from record import Figure, Record, slug

ROUNDS = 40
KINDS = ["clean", "heavy", "units", *(f"{way}{size}@{at}" for at in (4, 20) for size in (10, 50, "1e4")
         for way in ("up", "down"))]  # fmt: skip
BOXES = [tasks.branin, tasks.hartmann, tasks.needle, tasks.ripple, tasks.levy, tasks.rosenbrock]
TABLES = [tasks.reactions, tasks.svm_digits]
REPLICATED = {  # file: whether smaller is better, and whether its logarithm is taken
    "agnp.csv": (True, False), "crossed_barrel.csv": (False, False), "p3ht.csv": (False, True),
    "perovskite.csv": (True, True),
}  # fmt: skip


class Replicated:
    """A table of distinct points with replicates, one of which a reading replays; maximised."""

    columns = None
    listed = False  # to peers: they get the box
    suggested = tasks.Task.suggested

    def __init__(self, path: Path, *, minimize: bool, logarithm: bool) -> None:
        with path.open(newline="", encoding="utf-8-sig") as file:
            _, *rows = csv.reader(file)
        numbers = np.array([[float(cell) for cell in row] for row in rows if row])
        y = np.log(numbers[:, -1]) if logarithm else numbers[:, -1]
        y = -y if minimize else y
        self.name = path.stem
        self.points, place = np.unique(numbers[:, :-1], axis=0, return_inverse=True)
        self.readings = [y[place.ravel() == row] for row in range(len(self.points))]
        self.truth = np.array([each.mean() for each in self.readings])
        self.best, self.least = float(self.truth.max()), float(self.truth.min())
        self.span = self.best - self.least
        several = [each.var(ddof=1) for each in self.readings if len(each) > 1]
        self.noise = float(np.sqrt(np.mean(several)))
        low, high = self.points.min(axis=0), self.points.max(axis=0)
        self.bounds = list(zip(low.tolist(), high.tolist(), strict=True))
        self._units = np.maximum(high - low, 1e-12)

    def row(self, x: Any) -> int:
        if isinstance(x, int | np.integer):
            return int(x)
        return int((((self.points - x) / self._units) ** 2).sum(axis=1).argmin())

    def draws(self, seed: int, rounds: int) -> np.ndarray:
        return np.random.default_rng([seed, 11]).random(rounds)

    def observed(self, x: Any, draw: float) -> float:
        readings = self.readings[self.row(x)]
        return float(readings[int(draw * len(readings))])

    def regret(self, x: Any) -> float:
        return (self.best - float(self.truth[self.row(x)])) / self.span

    def first(self, seed: int, count: int = tasks.FEWEST) -> list[Any]:
        rng = np.random.default_rng([seed, 7])
        return list(self.points[rng.choice(len(self.points), count, replace=False)])


class Corrupted:
    """A task whose readings are off in some rounds; one run each, since it counts them."""

    def __init__(self, task: Any, kind: str, seed: int) -> None:
        self.task, self.kind, self.count = task, kind, 0
        self.rng = np.random.default_rng([seed, 13])
        self.wrong: list[int] = []  # rounds in which the reading was off
        noise = task.noise
        self.sigma = float(noise.std()) if isinstance(noise, np.ndarray) else float(noise)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def observed(self, x: Any, draw: Any) -> float:
        y, t, kind = self.task.observed(x, draw), self.count, self.kind
        self.count += 1
        if "@" in kind:
            size, at = kind.split("@")
            if t + 1 == int(at):
                self.wrong.append(t)
                y += float(size.replace("up", "+").replace("down", "-")) * self.sigma
        elif kind == "heavy":
            if self.rng.random() < 0.05:
                self.wrong.append(t)
                y += 30.0 * self.sigma * self.rng.standard_normal()
        elif kind == "units" and t % 10 == 9:
            self.wrong.append(t)
            y *= 100.0
        return float(y)


def auto(task: Any, seed: int, rounds: int) -> peers.Run:
    import misspec as ms

    if task.columns is not None:
        domain: Any = ms.Finite.from_table(task.rows)
    else:
        domain = ms.Finite(task.points) if hasattr(task, "points") else ms.Box(task.bounds)
    policy, regrets, seconds = ms.Auto(domain, aim="earn", seed=seed), [], []
    for draw in task.draws(seed, rounds):
        start = time.perf_counter()
        query = policy.ask()
        x: Any = query.x if query.index is None else query.index
        y = task.observed(x, draw)
        policy.tell(query, y)
        seconds.append(time.perf_counter() - start)
        regrets.append(task.regret(x))
    best = policy.recommend()
    named = sorted(each.row for each in policy.suspicious())
    wrong = sorted(task.wrong)
    task.named = (len(set(named) & set(wrong)), len(wrong), len(set(named) - set(wrong)))
    return peers.Run(regrets, {str(rounds): task.regret(best.x if best.index is None else best.index)}, seconds)


def relevance_pursuit(task: Any, seed: int, rounds: int) -> peers.Run:
    """BoTorch's robust model, with LogEI over the best of its means."""
    import torch
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models.robust_relevance_pursuit_model import RobustRelevancePursuitSingleTaskGP
    from botorch.models.transforms import Normalize, Standardize
    from botorch.optim import optimize_acqf, optimize_acqf_discrete
    from gpytorch.mlls import ExactMarginalLogLikelihood

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    everything = torch.tensor(task.one_hot()) if task.columns is not None else None
    bounds = None if everything is not None else torch.tensor(task.bounds).T
    points, y, seconds = task.first(seed), [], []
    for t, draw in enumerate([*task.draws(seed, rounds), None]):
        start = time.perf_counter()
        if t >= len(points) or draw is None:
            X = everything[points] if everything is not None else torch.tensor(np.array(points))
            scale = None if everything is not None else Normalize(d=X.shape[1], bounds=bounds)
            gp = RobustRelevancePursuitSingleTaskGP(
                X, torch.tensor(y)[:, None], input_transform=scale, outcome_transform=Standardize(m=1)
            )
            fit_gpytorch_mll(ExactMarginalLogLikelihood(gp.likelihood, gp), numbers_of_outliers=[0, 1, 2, 4])
            gp.eval()
            means = gp.posterior(X).mean.detach().numpy().ravel()
            if draw is None:
                return peers.Run(
                    [task.regret(x) for x in points], {str(rounds): task.regret(points[int(means.argmax())])}, seconds
                )
            score = LogExpectedImprovement(gp, best_f=float(means.max()))
            if everything is not None:
                chosen, _ = optimize_acqf_discrete(score, q=1, choices=everything)
                points.append(int((everything == chosen).all(dim=1).nonzero()[0]))
            else:
                chosen, _ = optimize_acqf(score, bounds=bounds, q=1, num_restarts=5, raw_samples=256)
                points.append(chosen[0].detach().numpy())
        seconds.append(time.perf_counter() - start)
        y.append(task.observed(points[t], draw))
    raise AssertionError


PLAYERS: dict[str, Any] = {
    "Auto": auto,
    **{name: peers.PEERS[name] for name in ("Optuna TPE", "Optuna GP", "BoTorch LogEI")},
    "BoTorch relevance pursuit": relevance_pursuit,
}


def made(only: list[str] | None) -> list[Any]:
    found: list[Any] = [task for make in [*BOXES, *TABLES] if (task := make()) is not None]
    folder = os.environ.get("MISSPEC_DATA")
    for name, (minimize, logarithm) in REPLICATED.items():
        if folder and (path := Path(folder) / name).exists():
            found.append(Replicated(path, minimize=minimize, logarithm=logarithm))
        else:
            print(f"{name} left out: set MISSPEC_DATA to a folder with it")
    return [task for task in found if not only or task.name in only]


_MADE: dict[str, Any] = {}


def played(task: str, player: str, kind: str, seed: int) -> dict[str, Any]:
    if not _MADE:
        _MADE.update({each.name: each for each in made(None)})
    wrapped = Corrupted(_MADE[task], kind, seed)
    peers.REPORTED = (ROUNDS,)
    run = PLAYERS[player](wrapped, seed, ROUNDS)
    return {
        "task": task, "player": player, "kind": kind, "seed": seed, "regret": round(float(sum(run.regrets)), 4),
        "recommended": round(float(run.recommended[str(ROUNDS)]), 4), "named": getattr(wrapped, "named", None),
        "seconds": round(sum(run.seconds), 2),
    }  # fmt: skip


def tell(runs: list[dict[str, Any]]) -> dict[str, Figure]:
    """By kind and player: regret over clean, the worst and mean of what is recommended, and what was named."""
    figures = {}
    clean = {(run["task"], run["player"], run["seed"]): run["regret"] for run in runs if run["kind"] == "clean"}
    print(f"\n{'kind':9}{'player':27}{'runs':>5}{'regret':>8}{'/ clean':>9}{'recomm.':>9}{'worst':>8}  named")
    for kind in dict.fromkeys(run["kind"] for run in runs):
        for player in dict.fromkeys(run["player"] for run in runs):
            some = [run for run in runs if run["kind"] == kind and run["player"] == player]
            if not some:
                continue
            ratios = [run["regret"] / c for run in some if (c := clean.get((run["task"], player, run["seed"])))]
            missed = [run["recommended"] for run in some]
            key = slug(f"{player}.{kind}")
            if len(ratios) > 1:
                spread = float(np.std(ratios, ddof=1) / np.sqrt(len(ratios)))
                figures[f"{key}.regret"] = Figure(float(np.mean(ratios)), error=spread)
            figures[f"{key}.recommended"] = Figure(100 * float(np.mean(missed)), form=".1f")
            named = [run["named"] for run in some if run["named"]]
            said = ""
            if named:
                right, wrong, false = np.sum(named, axis=0).tolist()
                alarms = sum(each[2] > 0 for each in named)
                said = f"{right} of {wrong}; others named in {alarms} of {len(named)} runs ({false})"
            print(
                f"{kind:9}{player:27}{len(some):>5}{np.mean([run['regret'] for run in some]):>8.2f}"
                f"{np.mean(ratios) if ratios else np.nan:>9.3f}{np.mean(missed):>9.4f}{max(missed):>8.4f}  {said}"
            )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--players", nargs="*", default=list(PLAYERS), choices=list(PLAYERS))
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--tasks", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--bench", action="store_true", help="only Auto, and its figures into results/corrupted.json")
    parser.add_argument("--quick", action="store_true", help="with --bench: two problems, one seed")
    parser.add_argument("--to", type=Path, help="a file of JSON lines that runs are added to, and read from")
    given = parser.parse_args()
    if given.bench:
        given.players, given.to = ["Auto"], tasks.CACHE / f"corrupted-{practical.code_digest()}.jsonl"
        if given.quick:
            given.tasks, given.seeds, given.kinds = ["Branin", "ripple"], 1, ["clean", "up50@20"]
        protocol = f"{given.seeds} seeds, {ROUNDS} rounds, kinds {', '.join(given.kinds)}"
        Record("corrupted", protocol=protocol, quick=given.quick).measure("Auto", lambda: play(given))
    else:
        play(given)


def play(given: argparse.Namespace) -> dict[str, Figure]:
    """Plays what is missing, and tells of all."""
    from joblib import Parallel, delayed

    known = [json.loads(line) for line in given.to.read_text().splitlines()] if given.to and given.to.exists() else []
    keys = {(run["task"], run["player"], run["kind"], run["seed"]) for run in known}
    jobs = [
        (task.name, player, kind, seed)
        for seed in range(given.first, given.first + given.seeds) for kind in given.kinds for player in given.players
        for task in made(given.tasks)
    ]  # fmt: skip
    wanted = set(jobs)
    left = [job for job in jobs if job not in keys]
    start = time.perf_counter()
    for done, run in enumerate(
        Parallel(n_jobs=given.jobs, return_as="generator_unordered")(delayed(played)(*job) for job in left)
    ):
        known.append(run)
        if given.to:
            with given.to.open("a") as file:
                file.write(json.dumps(run) + "\n")
        rest = (time.perf_counter() - start) / (done + 1) * (len(left) - done - 1)
        print(f"{done + 1}/{len(left)} {run} ({rest:.0f} s left)", file=sys.stderr, flush=True)
    return tell([run for run in known if (run["task"], run["player"], run["kind"], run["seed"]) in wanted])


if __name__ == "__main__":
    main()
