"""A user's function that takes 50 ms, on eight Dask workers: how near to the ideal time, and what a dead worker costs.

A phased run of 255 evaluations has episodes of 1, 2, 4, …, 128, and eight workers need at least Σ_e ⌈m_e/8⌉ · 50 ms
for them; the target is at most 1.5 times that. Others keep eight in flight, and need at least ⌈T/8⌉ · 50 ms, and what
their own asking and telling takes. The same phased run with one worker killed (kill -9): every query is told once.
"""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # of the workers as well
    os.environ[name] = "1"

import argparse
import math
import signal
import time

from record import Figure, Record, around
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec.integrations import dask

WORKERS, SECONDS = 8, 0.05
DOMAIN = ms.Box([(0, 1)]).grid(200)
MODEL = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)


def function(x):
    """Sleeps, and is smooth."""
    from math import sin
    from time import sleep

    sleep(SECONDS)
    return sin(3.0 * float(x[0]))


def make(name, horizon):
    if name == "phased":
        return ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=horizon)
    return ms.Auto(DOMAIN) if name == "auto" else ms.GPUCB(DOMAIN, MODEL)


def ideal(name, horizon):
    """Seconds that eight workers need at least."""
    if name != "phased":
        return math.ceil(horizon / WORKERS) * SECONDS
    episodes = [min(2**e, horizon + 1 - 2**e) for e in range(horizon.bit_length())]
    return sum(math.ceil(m / WORKERS) for m in episodes) * SECONDS


def timed(call, total):
    """The same call, whose seconds are added up."""

    def measured(*arguments, **keywords):
        start = time.perf_counter()
        try:
            return call(*arguments, **keywords)
        finally:
            total[0] += time.perf_counter() - start

    return measured


def play(name, horizon, client, progress=None):
    """Seconds of a run, and of these the policy's own."""
    policy = make(name, horizon)
    own = [0.0]
    policy.ask, policy.tell = timed(policy.ask, own), timed(policy.tell, own)
    start = time.perf_counter()
    dask.optimize(policy, function, client, horizon, progress=progress)
    wall = time.perf_counter() - start
    ids = policy.observations.ids.tolist()
    assert sorted(ids) == list(range(horizon)), "a query was lost or told twice"
    assert policy.pending == []
    return wall, own[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run each, to see that it runs")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    runs = 1 if options.quick else options.runs
    Record("dask_phased", protocol=f"{runs} runs", quick=options.quick, packages=("distributed",)).measure(
        "all", lambda: measured(runs)
    )


def measured(runs: int) -> dict[str, Figure]:
    from distributed import Client, LocalCluster

    figures = {}
    cluster = LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0", silence_logs=50)
    with cluster, Client(cluster, set_as_default=False) as client:
        client.map(math.sqrt, range(100), pure=False)  # connections, imports
        client.gather(client.map(function, [[0.5]] * 3 * WORKERS, pure=False))
        for name, horizon in (("phased", 255), ("gp_ucb", 255), ("auto", 104)):
            times = [play(name, horizon, client) for _ in range(runs)]
            wall, own = sorted(times)[len(times) // 2]
            least = ideal(name, horizon)
            print(
                f"{name}, {horizon} evaluations: {wall:.2f} s, the policy's own {own:.2f} s, ideal {least:.2f} s: "
                f"ratio {wall / least:.2f}" + (" (target at most 1.5)" if name == "phased" else "")
            )
            figures[name] = around(wall / least for wall, _ in times)
        killed = []

        def kill(done, _):
            if done >= 150 and not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        wall, _ = play("phased", 255, client, kill)
        print(f"phased with a worker killed after 150 of 255: {wall:.2f} s, every query told once: {len(killed) == 1}")
    return figures | {"killed": Figure(wall / ideal("phased", 255))}


if __name__ == "__main__":
    main()
