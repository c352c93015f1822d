"""What it costs to save after every call, as ratios within one run.

    python benchmarks/journal.py [--quick] [--rounds 100000]

    what a journal adds to ask and tell, against the tells alone          at most 1
    loading it, against playing it                                        at most 1
    what it adds late in the run, against early                           about 1

GP-UCB and balancing, on 200 points of the unit square (RBF) and on rounds of ten vectors (linear, d = 8). A policy with
and one without a journal play the same rounds in turns of a hundred, so that the machine's mood cancels; what is added
is the median of the differences. Seconds are of this thread, user and system: nothing here waits for the disk except
the save. One BLAS thread.
"""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from record import Figure, Record
from sklearn.gaussian_process.kernels import RBF, DotProduct

import misspec as ms

TURN = 100  # rounds
ms.Policy.clock = staticmethod(lambda: 1767225600.123)  # when a query was asked is in the state: those compared agree
LIST = ms.Finite(np.random.default_rng(0).random((200, 2))), ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
OPEN = ms.Open(8), ms.Model(DotProduct(sigma_0=0.0), norm_bound=2.0, noise=0.1)


def subjects(rounds):
    return {
        "GP-UCB, list": lambda: ms.GPUCB(*LIST),
        "balancing, list": lambda: ms.RegretBalancing(*LIST, horizon=rounds),
        "GP-UCB, vectors": lambda: ms.GPUCB(*OPEN),
        "balancing, vectors": lambda: ms.RegretBalancing(*OPEN, horizon=rounds),
    }


class Player:
    """A policy, its world, and the seconds of each turn: of its asks and of its tells."""

    def __init__(self, policy):
        self.policy, self.rng = policy, np.random.default_rng(0)
        self.asks, self.tells = [], []

    def turn(self):
        asks = tells = 0.0
        for _ in range(TURN):
            actions = None
            if not self.policy.field.fixed:
                actions = self.rng.standard_normal((10, 8))
                actions /= np.linalg.norm(actions, axis=1)[:, None]
            noise = 0.1 * self.rng.standard_normal()
            start = time.thread_time()
            query = self.policy.ask(actions=actions)
            asks += time.thread_time() - start
            y = float(np.sin(5.0 * query.x[0]) + noise)
            start = time.thread_time()
            self.policy.tell(query, y)
            tells += time.thread_time() - start
        self.asks.append(asks)
        self.tells.append(tells)


def seconds(function):
    start = time.thread_time()
    result = function()
    return result, time.thread_time() - start


def measured(make, rounds, folder):
    path = folder / "a.journal"
    plain, journaled = Player(make()), Player(make())
    journaled.policy.journal(path)
    for turn in range(rounds // TURN):
        for player in (plain, journaled) if turn % 2 else (journaled, plain):
            player.turn()
    journaled.policy.journal(None)
    size = path.stat().st_size
    loaded, loading = seconds(lambda: ms.load(path))
    _, attaching = seconds(lambda: loaded.journal(path))
    _, saving = seconds(lambda: plain.policy.save(folder / "a.misspec"))
    _, restoring = seconds(lambda: ms.load(folder / "a.misspec"))
    assert loaded.state() == plain.policy.state() == journaled.policy.state()
    micro = 1e6 / TURN
    asks, tells = (micro * np.median(each) for each in (plain.asks, plain.tells))
    by_ask, by_tell = (
        micro * (np.array(with_) - np.array(without))
        for with_, without in ((journaled.asks, plain.asks), (journaled.tells, plain.tells))
    )
    added = np.median(by_ask) + np.median(by_tell)
    tenth = max(1, len(by_ask) // 10)
    both = by_ask + by_tell
    play = sum(plain.asks) + sum(plain.tells)
    print(
        f"  per round: ask {asks:.1f} µs, tell {tells:.1f} µs; the journal adds {np.median(by_ask):.1f} to ask, "
        f"{np.median(by_tell):.1f} to tell\n"
        f"  added / tells: {added / tells:.2f} (to tell alone: {np.median(by_tell) / tells:.2f}); late / early: "
        f"{np.median(both[-tenth:]) / np.median(both[:tenth]):.2f}; {size / rounds:.0f} bytes per round\n"
        f"  load / play: {loading / play:.2f} ({loading:.1f} s / {play:.1f} s); to go on in it {attaching:.1f} s\n"
        f"  one save at the end: {saving:.2f} s, {saving * 1e6 / added:,.0f} times what one round adds; loading that / "
        f"play: {restoring / play:.2f}",
        flush=True,
    )
    return {
        "added": Figure(added / tells),
        "late": Figure(np.median(both[-tenth:]) / np.median(both[:tenth])),
        "load": Figure(loading / play),
        "bytes": Figure(size / rounds, form=".0f"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes, to see that it runs")
    parser.add_argument("--rounds", type=int, default=100_000)
    given = parser.parse_args()
    rounds = 2_000 if given.quick else given.rounds
    record = Record("journal", protocol=f"{rounds} rounds", quick=given.quick)
    for name, make in subjects(rounds).items():

        def one(name=name, make=make):
            print(f"{name}, {rounds:,} rounds", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                figures = measured(make, rounds, Path(folder))
            return {f"{name.lower().replace(', ', '.')}.{key}": figure for key, figure in figures.items()}

        record.measure(name, one)


if __name__ == "__main__":
    main()
