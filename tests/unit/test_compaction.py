"""A snapshot stands for the events before it: the policy goes on as it would have, is restored to the bit, and neither
its memory nor its file grows."""

import gc
import json
import logging
import os
import random
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

import misspec as ms
from interrupts import Interrupt
from misspec.files import storage
from misspec.reports import optimisation

D = 4
LINEAR = ms.Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1)
SMOOTH = ms.Model(Matern(1.0, nu=2.5), norm_bound=1.0, noise=0.1)
ON_LIST = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1)
LIST = ms.Finite(np.random.default_rng(0).random((20, 2)))

MAKE = {
    "linucb": lambda: ms.comparators.LinUCB(ms.Open(D), LINEAR),
    "gp-ucb": lambda: ms.GPUCB(ms.Open(D), LINEAR),
    "grounded": lambda: ms.GPUCB(ms.Open(D), LINEAR, grounded=True, inflate=True),
    "insured": lambda: ms.InsuredUCB(ms.Open(D), LINEAR),
    "ec": lambda: ms.ECGPUCB(ms.Open(D), LINEAR, epsilon=0.1),
    "thompson": lambda: ms.ThompsonSampling(ms.Open(D), LINEAR),
    "budget": lambda: ms.GPUCB(ms.Open(D), SMOOTH, budget=20),
    "insured budget": lambda: ms.InsuredUCB(ms.Open(D), SMOOTH, budget=20),
    "turned": lambda: ms.GPUCB(ms.Open(D), LINEAR, grounded=True, minimize=True),
    "list": lambda: ms.GPUCB(LIST, ON_LIST),
    "list ec": lambda: ms.ECGPUCB(LIST, ON_LIST, epsilon=0.1),
    "list insured": lambda: ms.InsuredUCB(LIST, ON_LIST),
    "joint": lambda: ms.GPUCB(ms.Joint(LIST, ms.Box([(0, 1)])), SMOOTH, budget=20),
}
ROUNDED = ("insured", "insured budget")  # sums of what was forgotten are others than those of single results


def offered(name, rng):
    if name.startswith("list"):
        return {}
    if name == "joint":
        return {"context": [rng.random()]}
    A = rng.standard_normal((5, D))
    return {"actions": A / np.linalg.norm(A, axis=1)[:, None]}


def step(policy, name, rng):
    """A round: up to three queries, results in any order, some failures; two or three stay pending."""
    options, n, y, chance = offered(name, rng), 1 + int(rng.integers(3)), rng.standard_normal(6), rng.random()
    policy.ask(n, **options)
    late = policy.pending[int(chance < 0.3) : max(0, len(policy.pending) - 2)]
    policy.tell(late, [0.1 * y[i] + query.x[0] for i, query in enumerate(late)])
    if chance > 0.9:
        policy.drop(policy.pending[-1])


def played(name, rounds=40, seed=1):
    policy, rng = MAKE[name](), np.random.default_rng(seed)
    for _ in range(rounds):
        step(policy, name, rng)
    return policy


def text(policy):
    return json.dumps(policy.state())


def asked(policy, last):
    events = [event[1] for event in policy.log.events if event[0] == "ask"]
    return [(q.id, q.x.tolist(), q.mean, q.std, q.upper) for q in events[-last:]]


# -- laws --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKE)
def test_what_is_compacted_goes_on_as_what_was_restored_from_it(name, tmp_path):
    policy = played(name)
    policy.journal(tmp_path / "a.journal")
    policy.compact(tmp_path / "a.misspec")
    twins = [
        ms.restore(json.loads(text(policy))),
        ms.load(tmp_path / "a.misspec"),
        ms.load(tmp_path / "a.journal"),
    ]
    for each in (policy, *twins):
        rng = np.random.default_rng(7)
        for turn in range(30):
            step(each, name, rng)
            if turn == 15:
                each.compact()
    for twin in (*twins, ms.load(tmp_path / "a.journal")):
        assert text(twin) == text(policy)
    probe = offered(name, np.random.default_rng(0))
    answers = [each.recommend(**probe) for each in (policy, twins[0])]
    one, other = ((each.lower, each.upper, each.x.tolist(), each.caveats) for each in answers)
    assert one == other


@pytest.mark.parametrize("name", [name for name in MAKE if name not in ROUNDED])
def test_decisions_are_those_without_compaction_to_the_bit(name):
    plain, compacted = played(name), played(name)
    compacted.compact()
    rngs = np.random.default_rng(7), np.random.default_rng(7)
    for turn in range(50):
        for each, rng in zip((plain, compacted), rngs, strict=True):
            step(each, name, rng)
        if turn % 20 == 19:
            compacted.compact(max_history=15)
    assert asked(compacted, 5) == asked(plain, 5)
    assert compacted.t == plain.t
    assert compacted.asked == plain.asked
    assert compacted.information == plain.information
    assert [query.id for query in compacted.pending] == [query.id for query in plain.pending]


def test_decisions_of_insured_ucb_differ_by_rounding_alone():
    plain, compacted = played("insured"), played("insured")
    rngs = np.random.default_rng(7), np.random.default_rng(7)
    for turn in range(60):
        for each, rng in zip((plain, compacted), rngs, strict=True):
            step(each, "insured", rng)
        if turn % 10 == 0:
            compacted.compact()
    ours, theirs = asked(compacted, 20), asked(plain, 20)
    assert [each[:2] for each in ours] == [each[:2] for each in theirs]
    np.testing.assert_allclose([each[2:] for each in ours], [each[2:] for each in theirs], rtol=0, atol=1e-12)
    assert compacted.facts == pytest.approx(plain.facts)


# -- what grows, and what does not -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linucb", "insured", "insured budget", "joint"])
def test_neither_memory_nor_file_grows(name, tmp_path):
    policy, rng, path, sizes = MAKE[name](), np.random.default_rng(3), tmp_path / "a.journal", []
    policy.journal(path)
    policy.compact(max_history=40)
    for _ in range(600):
        policy.tell(policy.ask(**offered(name, rng)), rng.standard_normal())
        assert len(policy.log.events) <= 2 * 40 + 4
        sizes.append(path.stat().st_size)
    assert max(sizes[300:]) < 1.2 * max(sizes[:300])
    assert len(policy.observations) >= 20
    assert len(policy.observations) + policy.observations.forgotten == policy.t == 600
    assert len(policy._evidence.own._known) < 100
    assert all(len(each.counts) < 150 for each in policy.posteriors)
    again = ms.load(path)
    assert text(again) == text(policy)
    again.compact()  # all of it, and then by itself as before
    assert len(again.log.events) == 1
    for _ in range(100):
        again.tell(again.ask(**offered(name, rng)), rng.standard_normal())
    assert 40 <= len(again.log.events) <= 2 * 40 + 4


def test_a_loaded_policy_is_compacted_on(tmp_path):
    policy, rng = MAKE["linucb"](), np.random.default_rng(3)
    policy.compact(max_history=10)
    for _ in range(37):
        policy.tell(policy.ask(**offered("linucb", rng)), 0.1)
    policy.save(tmp_path / "a")
    twin = ms.load(tmp_path / "a")
    for each in (policy, twin):
        rng = np.random.default_rng(4)
        for _ in range(40):
            each.tell(each.ask(**offered("linucb", rng)), 0.1)
    assert text(twin) == text(policy)
    assert len(twin.log.events) < 25


def test_a_point_that_comes_back_keeps_its_band_and_others_lose_theirs():
    policy, rng = ms.GPUCB(ms.Open(2), LINEAR, grounded=True), np.random.default_rng(0)
    often = np.array([[0.6, 0.8]])
    for _ in range(20):
        policy.tell(policy.ask(actions=often), 0.5)
        policy.tell(policy.ask(actions=rng.random((1, 2)) / 2), 0.1)
    band = policy.band(often)
    policy.compact()
    np.testing.assert_array_equal(policy.band(often), band)
    assert len(policy._evidence.own) == 1
    query = policy.ask(actions=[[0.1, 0.2]])
    policy.tell(query, 0.1)
    ranks = [own.rank for own in policy._evidence.own._known.values()]
    assert max(ranks) == 22  # no rank is given twice
    assert policy.conflicts() == []


def test_what_is_no_longer_there_is_said():
    policy = played("linucb")
    results = policy.t
    policy.compact()
    assert policy.observations.forgotten == results
    assert len(policy.observations) == 0
    last = policy.pending[0]
    policy.tell(last, 0.25)
    assert policy.observations.ids.tolist() == [last.id]
    np.testing.assert_array_equal(policy.observations.x, [last.x])


def test_a_report_says_what_it_leaves_out():
    policy = played("list")
    results = policy.t
    policy.compact()
    with pytest.raises(ms.InvalidInput, match="all results were compacted"):
        optimisation.Optimisation(policy)
    policy.tell(policy.pending, [0.1] * len(policy.pending))
    assert f"after {results:,} that were compacted" in optimisation.Optimisation(policy).about


class Mine(ms.GPUCB):
    """A policy that says nothing of snapshots."""


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: ms.Auto(ms.Box([(0, 1)])), "needs all its events"),
        (lambda: ms.PhasedUncertaintySampling(LIST, ON_LIST, horizon=20), "needs all its events"),
        (lambda: ms.RegretBalancing(ms.Open(D), LINEAR, horizon=20), "needs all its events"),
        (lambda: ms.GPUCB(ms.Box([(0, 1)]), ON_LIST), "searched for"),
        (lambda: ms.GPUCB(ms.Joint(ms.Box([(0, 1)]), ms.Box([(0, 1)])), SMOOTH, budget=9), "searched for"),
        (lambda: ms.GPUCB(ms.Open(D), SMOOTH), "budget="),
        (lambda: ms.ECGPUCB(ms.Open(D), LINEAR, epsilon=0.1, enlargement="exact"), "norm2"),
        (lambda: Mine(ms.Open(D), LINEAR), "override unsummed"),
    ],
)
def test_what_has_no_summary_says_why(make, reason):
    policy = make()
    before = text(policy)
    with pytest.raises(ms.InvalidInput, match=rf"cannot be compacted: .*{reason}"):
        policy.compact()
    assert text(policy) == before


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_call_that_fails_after_a_snapshot_is_undone(monkeypatch):
    policy = played("insured")
    policy.compact()
    step(policy, "insured", np.random.default_rng(5))
    before = text(policy)

    def fail(*_, **__):
        raise RuntimeError("not now")

    with monkeypatch.context() as patched:
        patched.setattr(policy.layered, "learn", fail)
        with pytest.raises(RuntimeError, match="not now"):
            policy.tell(policy.pending, [0.1] * len(policy.pending))
    assert text(policy) == before
    twin = ms.restore(policy.state())
    for each in (policy, twin):
        step(each, "insured", np.random.default_rng(6))
    assert text(policy) == text(twin)


def test_a_full_disk_leaves_policy_and_file_as_they_were(tmp_path, monkeypatch, caplog):
    policy, path, rng = played("linucb"), tmp_path / "a.journal", np.random.default_rng(2)
    policy.journal(path)
    before, written = text(policy), path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(ms.StorageError, match="No space left"):
            policy.compact()
        assert (text(policy), path.read_bytes()) == (before, written)
    policy.compact(max_history=5)
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        for _ in range(4):
            policy.tell(policy.ask(**offered("linucb", rng)), 0.1)
        assert "goes on without being compacted" in caplog.text
    for _ in range(20):
        policy.tell(policy.ask(**offered("linucb", rng)), 0.1)
    assert len(policy.log.events) < 15
    assert text(ms.load(path)) == text(policy)
    assert [each.name for each in tmp_path.iterdir()] == ["a.journal"]


def test_a_file_that_others_have_replaced_is_left_to_them(tmp_path):
    policy, path = played("linucb"), tmp_path / "a.journal"
    policy.journal(path)
    path.unlink()
    path.write_text("mine")
    before = text(policy)
    with pytest.raises(ms.StorageError, match="renamed, deleted or replaced"):
        policy.compact()
    assert path.read_text() == "mine"
    assert text(policy) == before


def test_the_new_file_is_locked(tmp_path):
    policy, path = played("linucb"), tmp_path / "a.journal"
    policy.journal(path)
    for _ in range(2):
        policy.compact()
        with pytest.raises(ms.StorageError, match="another policy"):
            ms.load(path).journal(path)
    policy.tell(policy.pending[0], 0.5)
    policy.journal(None)
    other = ms.load(path)
    other.journal(path)
    assert text(other) == text(policy)


FILES = ("journal.py", "records.py", "storage.py", "undo.py", "log.py")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_an_interrupt_at_any_line_loses_nothing(tmp_path):
    interrupted = 0
    for n in range(0, 10_000, 5):
        path, policy, rng = tmp_path / f"{n}.journal", ms.GPUCB(ms.Open(D), LINEAR), np.random.default_rng(0)
        policy.journal(path)
        for _ in range(2):
            policy.tell(policy.ask(**offered("gp-ucb", rng)), 0.1)
        query = policy.ask(**offered("gp-ucb", rng))
        try:
            with Interrupt(n, files=FILES):
                policy.compact()
        except KeyboardInterrupt:
            interrupted += 1
        else:
            break
        try:
            policy.tell(query, 0.3)
        except ms.StorageError:  # between the renaming and the next lines: the file has all
            policy = ms.load(path)
            gc.collect()  # with the lock of what was interrupted
            policy.journal(path)
            policy.tell(query, 0.3)
        assert text(ms.load(path)) == text(policy)
        assert policy.t == 3
    assert interrupted > 30


def test_no_flipped_byte_of_a_compacted_file_goes_unnoticed(tmp_path):
    policy, path = played("linucb"), tmp_path / "a"
    policy.compact()
    step(policy, "linucb", np.random.default_rng(5))
    policy.save(path)
    whole, chance = path.read_bytes(), random.Random(0)
    for place in chance.sample(range(len(whole)), 100):
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << chance.randrange(8)
        path.write_bytes(spoilt)
        with pytest.raises(ms.StorageError):
            ms.load(path)
    for cut in chance.sample(range(len(whole)), 30):
        path.write_bytes(whole[:cut])
        with pytest.raises(ms.StorageError):
            ms.load(path)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content.pop("log"),
        lambda content: content.update(own=None),
        lambda content: content.update(posteriors=[]),
        lambda content: content.update(counters={"t": 1}),
        lambda content: content.update(history="all"),
        lambda content: content["log"].update(t=-5),
        lambda content: content["log"].update(pending=[[1, {"id": 3}]]),
        lambda content: content["posteriors"][0]["has"].pop("told"),
        lambda content: content["posteriors"][0]["has"].update(told={"object": "Policy", "has": {}}),
        lambda content: content["posteriors"][0]["has"]["told"]["has"].update(w=3.0),
        lambda content: content["posteriors"][0]["has"]["told"]["has"].update(w={"rows": {"array": "AAAA"}}),
        lambda content: content["log"].update(t=content["log"]["t"] + 1),  # each part is right, but not together
    ],
)
def test_spoilt_snapshots_are_refused(spoil):
    policy = played("linucb")
    policy.compact(max_history=5)
    state = json.loads(text(policy))
    spoil(next(event for event in state["events"] if event[0] == "snapshot")[1])
    with pytest.raises(ms.StorageError):
        ms.restore(state)


def test_opened_recovered_and_compacted_are_logged(tmp_path, caplog):
    path, policy = tmp_path / "a.journal", played("linucb")
    with caplog.at_level(logging.INFO, "misspec.journal"):
        policy.journal(path)
        policy.compact()
        policy.journal(None)
        with path.open("ab") as stream:
            stream.write(b"1234abcd 77 [")
        with pytest.warns(UserWarning, match="cut short"):
            again = ms.load(path)
        again.journal(path)
    said = [record.getMessage() for record in caplog.records if record.name == "misspec.journal"]
    for word in ("begun", "compacted", "recovered", "opened"):
        assert any(word in each for each in said), (word, said)


# -- kill -9 -----------------------------------------------------------------------------------------------------------

SERVICE = """
import sys
import numpy as np
from sklearn.gaussian_process.kernels import DotProduct
import misspec as ms

policy = ms.comparators.LinUCB(ms.Open(4), ms.Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1))
policy.journal(sys.argv[1])
policy.compact(max_history=6)
rng = np.random.default_rng(0)
while True:
    policy.tell(policy.ask(actions=rng.random((5, 4)) / 2), float(policy.t))
    sys.stdout.write(".")
    sys.stdout.flush()
    if policy.t % 7 == 0:
        policy.save(sys.argv[2])
        sys.stdout.write("s")
        sys.stdout.flush()
"""


def check_kills(tmp_path, moments):
    chance = random.Random(moments)
    for moment in range(moments):
        journal, saved = tmp_path / f"{moment}.journal", tmp_path / f"{moment}.misspec"
        player = subprocess.Popen([sys.executable, "-c", SERVICE, str(journal), str(saved)], stdout=subprocess.PIPE)
        try:
            said = player.stdout.read(20)
            time.sleep(0.05 * chance.random())
        finally:
            player.kill()
        said += player.stdout.read()
        player.stdout.close()
        player.wait()
        told = said.count(b".")
        policy = ms.load(journal)
        assert told <= policy.t <= told + 1
        results = policy.observations
        assert results.y.tolist() == [float(t) for t in range(results.forgotten, policy.t)]
        assert ms.load(saved).t >= 7 * said.count(b"s")
        policy.journal(journal)  # the lock has ended with its process
        policy.compact()
        policy.drop(policy.pending)
        assert text(ms.load(journal)) == text(policy)


@pytest.mark.skipif(os.name != "posix", reason="processes are killed in another way")
def test_kill_9_at_any_moment_loses_nothing_told(tmp_path):
    check_kills(tmp_path, 10)


@pytest.mark.slow
def test_kill_9_at_200_moments_loses_nothing_told(tmp_path):
    check_kills(tmp_path, 200)


def test_a_journal_by_a_relative_name_stays_where_it_is(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    policy = played("linucb")
    policy.journal("a.journal")
    monkeypatch.chdir(tmp_path / "elsewhere")
    for _ in range(2):
        policy.compact()
        policy.tell(policy.pending[0], 0.5)
    assert text(ms.load(tmp_path / "a.journal")) == text(policy)


def test_litter_of_killed_compactions_is_removed(tmp_path):
    policy, path = played("linucb"), tmp_path / "a.journal"
    policy.journal(path)
    (tmp_path / ".a.journal.0123456789ab.part").touch()
    policy.compact()
    assert [each.name for each in tmp_path.iterdir()] == ["a.journal"]
    assert storage.regular(path) == path


def test_conflicts_are_looked_for_again_after_compaction():
    policy, often = ms.GPUCB(ms.Open(2), LINEAR), np.array([[0.6, 0.8]])
    policy.tell(policy.ask(actions=often), 0.1)
    assert policy.conflicts() == []  # after two events
    policy.compact()
    query = policy.ask(actions=often)
    assert len(policy.log.events) == 2
    policy.tell(query, 50.0)
    policy.compact()
    policy.ask(actions=often)
    assert len(policy.log.events) == 2
    assert len(policy.conflicts()) == len(ms.restore(policy.state()).conflicts())


def test_a_late_answer_is_not_said_to_have_been_told_when_that_was_compacted():
    policy = ms.GPUCB(ms.Finite(np.linspace(0, 1, 5)[:, None]), ms.Model(RBF(0.2), norm_bound=1.0, noise=0.1))
    dropped, told, late = policy.ask(3)
    policy.drop(dropped)
    policy.tell(told, 0.1)
    policy.compact()
    policy.tell(late, 0.2)
    for query in (dropped, told):
        with pytest.raises(ms.InvalidInput, match=r"was told or dropped before a snapshot; .* policy\.observe"):
            policy.tell(query, 0.1)
    with pytest.raises(ms.InvalidInput, match="was told before; one more"):
        policy.tell(late, 0.1)


def test_where_points_have_contexts_the_error_says_how_a_late_answer_is_observed():
    domain = ms.Joint(ms.Box([(0, 1)]), ms.Box([(0, 1)]))
    policy = ms.ECGPUCB(domain, ms.Model(RBF(0.5), norm_bound=1.0, noise=0.1), epsilon=0.1)
    query = policy.ask(context=0.3)
    policy.drop(query)
    with pytest.raises(ms.InvalidInput, match=r"policy\.observe\(points, y, context=q\.context\)"):
        policy.tell(query, 0.1)
    policy.observe([query.x], [0.1], context=query.context)
    assert policy.t == 1
