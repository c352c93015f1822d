"""A told result that was wrong is taken back: as if it had not been told."""

import json
import threading

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct

import misspec as ms

DOMAIN = ms.Box([(0, 1)]).grid(15)
MODEL = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
MAKE = {
    "GP-UCB": lambda: ms.GPUCB(DOMAIN, MODEL, grounded=True),
    "EC-GP-UCB": lambda: ms.ECGPUCB(DOMAIN, MODEL, epsilon=0.1),
    "insured": lambda: ms.InsuredUCB(DOMAIN, MODEL),
    "balancing": lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=40),
    "Thompson": lambda: ms.ThompsonSampling(DOMAIN, MODEL),
    "minimising": lambda: ms.GPUCB(DOMAIN, MODEL, minimize=True),
    "Auto": lambda: ms.Auto(DOMAIN),
}


def played(policy, rounds=12, wrong=5):
    rng, queries = np.random.default_rng(0), []
    for i in range(rounds):
        queries.append(policy.ask())
        y = float(np.sin(5 * queries[-1].x[0]) + 0.1 * rng.standard_normal())
        policy.tell(queries[-1], 1024.0 if i == wrong else y)
    return queries


@pytest.mark.parametrize("name", MAKE)
def test_it_is_as_if_the_result_had_not_been_told(name, tmp_path):
    policy = MAKE[name]()
    policy.journal(tmp_path / "journal")
    queries = played(policy)
    expected = policy.state()["events"]
    expected = [event for event in expected if event[:2] != ["tell", 5]]
    policy.retract(queries[5])
    assert policy.t == 11
    assert [q.id for q in policy.pending] == [5]
    found = policy.state()["events"]
    if name != "Auto":  # whose samples are due for a renewal
        assert found == expected
    for twin in (ms.restore(json.loads(json.dumps(policy.state()))), ms.load(tmp_path / "journal")):
        np.testing.assert_array_equal(twin.band().upper, policy.band().upper)
        assert [q.id for q in twin.pending] == [5]
        assert twin.ask().index == ms.restore(policy.state()).ask().index
    policy.tell(queries[5], 0.5)
    assert policy.t == 12
    assert abs(policy.recommend().mean) < 5
    assert policy.observations.y.max() < 5
    policy.retract(5)  # by its id, and again
    policy.drop(5)
    assert policy.pending == []
    assert ms.load(tmp_path / "journal").t == 11


def test_auto_forgets_what_it_learnt_from_it():
    policy = ms.Auto(DOMAIN)
    queries = played(policy)
    assert not policy.stale
    policy.retract(queries[5])
    assert policy.samples["results"] == 11  # learnt again at once
    assert not policy.stale
    assert policy.noise_level < 1.0


def test_what_cannot_be_taken_back():
    policy = ms.GPUCB(DOMAIN, MODEL)
    query = policy.ask()
    with pytest.raises(ms.InvalidInput, match="query 0 has no result that can be taken back: it is pending: drop it"):
        policy.retract(query)
    with pytest.raises(ms.InvalidInput, match="query 7 has no result"):
        policy.retract(7)
    with pytest.raises(ms.InvalidInput, match="a query to retract"):
        policy.retract("first")
    phased = ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=7)
    phased.tell(phased.ask(), 0.3)
    with pytest.raises(ms.InvalidInput, match="has built its episodes on this result"):
        phased.retract(0)
    assert phased.t == 1
    linear = ms.comparators.LinUCB(ms.Open(2), ms.Model(DotProduct(sigma_0=0.0), norm_bound=1.0, noise=0.1))
    for _ in range(4):
        linear.tell(linear.ask(actions=np.eye(2)), 0.3)
    linear.compact()
    with pytest.raises(ms.InvalidInput, match="compacted"):
        linear.retract(2)
    linear.tell(linear.ask(actions=np.eye(2)), 0.3)
    linear.retract(4)
    assert linear.t == 4


def test_a_kernel_that_fails_meanwhile_changes_nothing(monkeypatch):
    policy = ms.GPUCB(DOMAIN, MODEL)
    played(policy)
    before, band = policy.state(), policy.band()
    with monkeypatch.context() as patch:
        patch.setattr(RBF, "__call__", lambda *_: 1 / 0)
        with pytest.raises(ms.MisspecError):
            policy.retract(5)
    assert policy.state() == before
    np.testing.assert_array_equal(policy.band().upper, band.upper)
    policy.retract(5)
    assert policy.t == 11


def test_two_threads_take_back_what_each_has_told():
    policy = ms.GPUCB(DOMAIN, MODEL)

    def work():
        for _ in range(6):
            query = policy.ask()
            policy.tell(query, 9.0)
            policy.retract(query)
            policy.tell(query, 0.1)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert policy.t == 12
    assert (policy.observations.y == 0.1).all()


def test_all_results_can_be_taken_back():
    policy = ms.Auto(ms.Box([(0, 1)]))
    for t in range(6):
        policy.tell(policy.ask(), float(t))
    policy.ask()
    for id_ in range(6):
        policy.retract(id_)
    assert policy.t == 0
    assert len(policy.pending) == 7
    policy.ask()
    assert "there is no model yet" in policy.recommend().caveats[0]


def test_a_query_of_another_policy_takes_nothing_back():
    one, other = ms.UniformSampling(DOMAIN, MODEL, seed=0), ms.UniformSampling(DOMAIN, MODEL, seed=1)
    mine, theirs = one.ask(), other.ask()
    assert mine.index != theirs.index
    one.tell(mine, 0.1)
    with pytest.raises(ms.InvalidInput, match="query 0 comes from another policy"):
        one.retract(theirs)
    assert one.t == 1


def test_corral_refuses_what_it_has_chosen_by():
    policy = ms.comparators.Corral(DOMAIN, MODEL, horizon=30)
    for t in range(8):
        policy.tell(policy.ask(), 0.1 * t)
    with pytest.raises(ms.InvalidInput, match="Corral has chosen by this result since then"):
        policy.retract(3)
    policy.retract(7)  # the last
    assert policy.t == 7
