"""A user's function on a Dask cluster: two worker processes of this machine, and one in threads of this process."""

import contextlib
import os
import signal
import threading

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from sklearn.gaussian_process.kernels import RBF

import evaluations
import misspec as ms
from misspec.integrations.dask import Cluster, optimize

DOMAIN = ms.Box([(0, 1)]).grid(40)
MODEL = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
OPTIONS = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 60}


@contextlib.contextmanager
def two_workers():
    """Its scheduler gives up on a task after one death, so that it is ours to try again."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=2, **OPTIONS) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client():
    with two_workers() as client:
        yield client


@pytest.fixture
def mortal():
    """For a test that kills: Dask does not always start others in the place of the dead, and who comes next waits."""
    with two_workers() as client:
        yield client
        with contextlib.suppress(TimeoutError):  # Dask fails to close while a worker is being started again
            client.wait_for_workers(2, timeout=20)


@pytest.fixture
def here():
    with (
        LocalCluster(n_workers=1, processes=False, **OPTIONS) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def phased(horizon=63):
    return ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=horizon)


def told_once(policy, results):
    ids = policy.observations.ids.tolist()
    return len(set(ids)) == len(ids) == policy.t == results and not policy.pending


def true_results(found):
    return np.array_equal(found.y, [evaluations.smooth(x) for x in found.x])


def test_nothing_is_lost_with_killed_workers(mortal, tmp_path):
    """kill -9 in the middle of evaluations and, of whatever a worker is doing, from outside."""
    policy, killed = phased(), []

    def progress(done, _):
        if done >= 40 and not killed:
            killed.extend(mortal.run(os.getpid).values())
            os.kill(killed[0], signal.SIGKILL)

    found = optimize(policy, evaluations.Deadly(tmp_path, 0.97, 1), mortal, 63, progress=progress)
    assert killed
    assert list(tmp_path.iterdir()), "no evaluation killed its worker"
    assert true_results(found)
    assert told_once(policy, 63)
    assert [episode.length for episode in policy.history] == [1, 2, 4, 8, 16, 32]


def test_an_evaluation_that_always_kills_its_worker_fails(mortal, tmp_path):
    policy = ms.UniformSampling(ms.Finite([[0.95]]), MODEL)
    with pytest.raises(ms.MisspecError, match=r"x = \[0.95\] ended its worker 3 times \(KilledWorker"):
        optimize(policy, evaluations.Deadly(tmp_path, 0.9, 99), mortal, 5, in_flight=1, on_error="raise")
    assert len(list(tmp_path.iterdir())) == 3
    assert told_once(policy, 0)


def test_a_point_asked_twice_is_evaluated_twice(client):
    found = optimize(ms.UniformSampling(ms.Finite([[0.5]]), MODEL), evaluations.chance, client, 20)
    assert len(set(found.y.tolist())) == 20


def test_a_stop_cancels_what_runs_and_is_continued(client, tmp_path):
    file, policy = tmp_path / "policy", phased()

    def progress(done, _):
        if done >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        optimize(policy, evaluations.smooth, client, 63, progress=progress, save=file)
    assert not [state for state in client.futures.values() if state.status == "pending"]
    loaded = ms.load(file)
    assert loaded.t == policy.t < 63
    assert [query.id for query in loaded.pending] == [query.id for query in policy.pending] != []
    optimize(loaded, evaluations.smooth, client, 63 - loaded.t)
    assert told_once(loaded, 63)


def test_it_stops_when_more_is_hardly_worth_it(client):
    policy = ms.GPUCB(DOMAIN, MODEL)
    found = optimize(policy, evaluations.smooth, client, 300, until=ms.until(gap=1.0))
    assert len(found) < 300
    assert told_once(policy, len(found))
    assert found.reason.startswith(f"stopped after {len(found)} evaluations: what is recommended is at most ")


def test_errors_of_the_function_are_raised_or_dropped(client):
    policy = ms.GPUCB(DOMAIN, MODEL)
    with pytest.raises(ZeroDivisionError, match="broken machine"):
        optimize(policy, evaluations.broken, client, 5, in_flight=1)
    with pytest.raises(ms.InvalidInput, match="finite number, got None"):
        optimize(policy, evaluations.nothing, client, 30, in_flight=1, on_error="drop")  # always: that is no bad luck
    assert told_once(policy, 0)


def test_parameters_reach_the_function_and_threads_of_this_process_are_left_alone(here):
    space = ms.Space({"lr": ms.Float(0.1, 1.0), "kind": ms.Choice(["a", "b"])})

    def function(given):
        assert type(given) is dict
        assert set(given) == {"lr", "kind"}
        return given["lr"] + (given["kind"] == "a")

    found = optimize(ms.Auto(space), function, here, 6)
    np.testing.assert_allclose(found.y, found.x[:, 0] + (found.x[:, 1] == 0))


def test_a_cluster_that_goes_away_is_a_message_and_what_was_told_stays(here):
    policy = ms.GPUCB(DOMAIN, MODEL)
    closing = threading.Thread(target=here.cluster.close)

    def progress(done, _):
        if done == 5:
            closing.start()

    with pytest.raises(ms.MisspecError, match="the Dask cluster failed"):
        optimize(policy, evaluations.smooth, here, 10**6, progress=progress)
    closing.join()
    assert policy.t >= 5
    assert len(policy.pending) <= 1


def test_workers_that_come_and_go_are_counted(client, monkeypatch):
    monkeypatch.setattr("misspec.integrations.dask.LOOK", 0.0)
    crew = Cluster(evaluations.smooth, client)
    assert crew.slots() == 2
    monkeypatch.setattr(client, "nthreads", lambda: {"tcp://one": 4, "tcp://two": 3})
    assert crew.slots() == 7


def test_what_is_no_client_is_refused():
    for client in (None, "tcp://127.0.0.1:8786"):
        with pytest.raises(ms.InvalidInput, match=r"distributed\.Client"):
            optimize(phased(), evaluations.smooth, client, 3)


def test_a_client_that_is_closed_is_refused(client):
    other = Client(client.scheduler.address, set_as_default=False)
    other.close()
    policy = ms.GPUCB(ms.Box([(0, 1)]).grid(5), ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1))
    with pytest.raises(ms.InvalidInput, match="the client is closed"):
        optimize(policy, float, other, 3)
