"""Memory and restart of a service with contexts: a policy that is compacted as it goes, with a journal.

    python benchmarks/service.py [--quick] [--rounds 1000000] [--only LinUCB]

    memory of the process at the end, against that after 10,000 rounds      at most 1.2
    seconds to load the journal and choose                                   under 2
    the journal's megabytes at the end

Rounds bring ten fresh vectors of length 60; linear kernel (LinUCB, GP-UCB, InsuredUCB), or Matérn, budget 200.
One BLAS thread. Each policy plays in a process of its own.
"""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np
from record import Figure, Record, slug
from sklearn.gaussian_process.kernels import DotProduct, Matern

import misspec as ms

DIMENSION, ACTIONS, HISTORY = 60, 10, 2_000
LINEAR = ms.Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1)
SMOOTH = ms.Model(Matern(2.0, nu=2.5), norm_bound=1.0, noise=0.1)
SUBJECTS = {
    "LinUCB": lambda: ms.comparators.LinUCB(ms.Open(DIMENSION), LINEAR),
    "GP-UCB": lambda: ms.GPUCB(ms.Open(DIMENSION), LINEAR),
    "InsuredUCB": lambda: ms.InsuredUCB(ms.Open(DIMENSION), LINEAR),
    "GP-UCB, Matérn, budget 200": lambda: ms.GPUCB(ms.Open(DIMENSION), SMOOTH, budget=200),
}
ROUNDS = dict(zip(SUBJECTS, (1_000_000, 200_000, 200_000, 60_000), strict=True))  # a quarter of an hour together


def resident():
    """Megabytes of this process."""
    text = Path("/proc/self/status").read_text()
    return int(text[text.index("VmRSS:") :].split()[1]) / 1024


def offers(rng):
    A = rng.standard_normal((ACTIONS, DIMENSION))
    return A / np.linalg.norm(A, axis=1)[:, None]


def play(name, rounds, early, path, pipe):
    policy, rng = SUBJECTS[name](), np.random.default_rng(0)
    w = rng.standard_normal(DIMENSION)
    w /= np.linalg.norm(w)
    policy.journal(path)
    policy.compact(max_history=HISTORY)
    before, start = 0.0, time.thread_time()
    for t in range(1, rounds + 1):
        query = policy.ask(actions=offers(rng))
        policy.tell(query, float(query.x @ w + 0.1 * rng.standard_normal()))
        if t == early:
            before = resident()
    pipe.send((before, resident(), time.thread_time() - start, offers(rng)))
    query = policy.ask(actions=pipe.recv())
    pipe.send((query.x, query.upper))


def restart(path, actions, pipe):
    start = time.perf_counter()
    policy = ms.load(path)
    query = policy.ask(actions=actions)
    pipe.send((time.perf_counter() - start, query.x, query.upper, policy.t))


def measured(name, rounds, early, folder):
    path, context = folder / "a.journal", multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    player = context.Process(target=play, args=(name, rounds, early, path, there))
    player.start()
    before, after, seconds, actions = here.recv()
    size = path.stat().st_size / 2**20
    loader = context.Process(target=restart, args=(path, actions, there))
    loader.start()
    loading, x, upper, t = here.recv()
    loader.join()
    here.send(actions)
    same = here.recv()
    player.join()
    assert t == rounds
    equal = np.array_equal(same[0], x) and same[1] == upper
    print(
        f"{name}, {rounds:,} rounds, {1e6 * seconds / rounds:.0f} µs each\n"
        f"  memory after {early:,} rounds {before:.1f} MB, at the end {after:.1f} MB: {after / before:.3f}\n"
        f"  restart {loading:.2f} s, the next choice is the same to the bit: {equal}; journal {size:.2f} MB",
        flush=True,
    )
    if not (after / before <= 1.2 and loading < 2.0 and equal):
        print("  MISSED: at most 1.2 times the memory, less than 2 s to restart, the same choice", flush=True)
    figures = {
        "rounds": Figure(rounds, form=",.0f"),
        "before": Figure(before, form=".0f"),
        "after": Figure(after, form=".0f"),
        "restart": Figure(loading, form=".1f"),
        "journal": Figure(size, form=".1f"),
    }
    return {f"{slug(name)}.{key}": figure for key, figure in figures.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes, to see that it runs")
    parser.add_argument("--rounds", type=int, default=1_000_000)
    parser.add_argument("--only", choices=SUBJECTS)
    given = parser.parse_args()
    early = 5_000 if given.quick else 10_000
    record = Record("service", protocol="the rounds that its figures say", quick=given.quick)
    for name, most in ROUNDS.items():
        rounds = 6_000 if given.quick else min(most, given.rounds)

        def one(name=name, rounds=rounds):
            with tempfile.TemporaryDirectory() as folder:
                return measured(name, rounds, early, Path(folder))

        if given.only in (None, name):
            record.measure(name, one)


if __name__ == "__main__":
    main()
