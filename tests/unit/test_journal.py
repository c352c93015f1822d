"""A journal holds a policy after its last call that returned: to the bit, whatever is cut off, killed or full."""

import base64
import copy
import dataclasses
import errno
import json
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
import threading
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, DotProduct

import misspec as ms
from interrupts import Interrupt
from misspec.files import records
from misspec.policies.core import fields, log, state
from misspec.policies.core.answers import NUMBERS, Query

MODEL = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1)
LINEAR = ms.Model(DotProduct(sigma_0=0.0), norm_bound=2.0, noise=0.1)
POINTS = np.random.default_rng(0).random((40, 2))
DOMAIN = ms.Finite(POINTS, names=[f"arm {i}" for i in range(40)])
SPACE = ms.Space({"rate": ms.Float(1e-4, 1.0, log=True), "depth": ms.Int(1, 6), "kind": ms.Choice(["a", "b;\t\n é"])})
MEMBERS = ms.Space({"depth": ms.Int(1, 6), "kind": ms.Choice(["a", "b"])})
ROWS = {"heat": [20.0, 40.0, 60.0] * 4, "base": ["x", "y", "z", "w"] * 3, "yield": [0.1, None, 0.4] + [None] * 9}
JOINT = ms.Joint(ms.Finite(POINTS[:6]), ms.Box([(0, 1)]))
JOINT_BOX = ms.Joint(ms.Box([(0, 1)]), ms.Box([(0, 1)]))


class Diary(ms.UniformSampling):
    """One with events of its own, and text in its details."""

    def __init__(self, domain, model, *, seed=0):
        super().__init__(domain, model, seed=seed)
        self.notes = []

    def prepare(self):
        if self.t % 3 == 0:
            self.on_event("note", {"t": self.t, "text": 'a "quoted"\ttab\nand é'})

    def on_event(self, kind, *rest):
        if kind != "note":
            super().on_event(kind, *rest)
        self.notes.append(rest[0])
        self.log.add("note", rest[0])

    def choose(self, actions):
        choice = super().choose(actions)
        return choice._replace(
            reasons={**choice.reasons, "details": {"why": "a tab\t, a line\n and {braces}", "n": [1, 2]}}
        )


def vectors(rng):
    A = rng.standard_normal((5, 3))
    return {"actions": A / np.linalg.norm(A, axis=1)[:, None]}


MAKE = {
    "gp-ucb": lambda: ms.GPUCB(DOMAIN, MODEL),
    "ec": lambda: ms.ECGPUCB(DOMAIN, MODEL, epsilon=0.1),
    "phased": lambda: ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=60),
    "balancing": lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=100),
    "thompson": lambda: ms.ThompsonSampling(DOMAIN, MODEL),
    "box": lambda: ms.ECGPUCB(ms.Box([(0, 1), (-1, 2)]), MODEL, epsilon=0.1),
    "auto": lambda: ms.Auto(SPACE, seed=1),
    "members": lambda: ms.GPUCB(MEMBERS, MODEL),
    "table": lambda: ms.Auto(ms.Finite.from_table(ROWS, target="yield")),
    "open": lambda: ms.RegretBalancing(ms.Open(3), LINEAR, horizon=100),
    "open thompson": lambda: ms.ThompsonSampling(ms.Open(3), LINEAR),
    "joint": lambda: ms.GPUCB(JOINT, MODEL),
    "joint box": lambda: ms.GPUCB(JOINT_BOX, MODEL),
    "own": lambda: Diary(DOMAIN, MODEL),
}
SLOW = ("auto", "table")
ROUND = {
    "open": vectors,
    "open thompson": vectors,
    "joint": lambda rng: {"context": [rng.random()]},
    "joint box": lambda rng: {"context": [rng.random()]},
}


def hostile(policy, name, rng, calls):
    """Batches, results in parts and in any order, failures, data from elsewhere; yields after every call."""
    for _ in range(calls):
        what = rng.random()
        pending = policy.pending
        if what < 0.5 and pending:
            chosen = [pending[i] for i in rng.permutation(len(pending))[: int(rng.integers(1, 4))]]
            policy.tell(chosen, rng.standard_normal(len(chosen)))
        elif what < 0.6 and pending:
            policy.drop(pending[int(rng.integers(len(pending)))])
        elif what < 0.7 and policy.abilities.takes_data and policy.field.fixed:
            x = policy.field.draw(rng).points[:2]
            policy.observe(x, rng.standard_normal(len(x)))
        else:
            try:
                n = None if rng.random() < 0.5 else int(rng.integers(1, 4))
                policy.ask(n, **ROUND.get(name, lambda _: {})(rng))
            except (ms.AwaitingResults, ms.HorizonReached):
                continue
        yield


def text(policy):
    return json.dumps(policy.state())


def loaded(path, **options):
    """And what was said."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        return ms.load(path, **options), [str(each.message) for each in said if each.category is UserWarning]


# -- to the bit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKE)
def test_a_file_cut_anywhere_is_the_policy_after_the_last_whole_record(name, tmp_path):
    policy, path, rng = MAKE[name](), tmp_path / "a.journal", np.random.default_rng(3)
    policy.journal(path)
    ends, states = [path.stat().st_size], [text(policy)]
    for _ in hostile(policy, name, rng, 22 if name in SLOW else 30):
        size = path.stat().st_size
        assert size > ends[-1]
        ends.append(size)
        states.append(text(policy))
    assert len(states) > 15
    assert len({kind for kind, *_ in policy.log.events}) >= (3 if policy.abilities.takes_data else 2)
    assert name != "auto" or "renew" in {kind for kind, *_ in policy.log.events}
    whole = path.read_bytes()
    few = 2 if name in SLOW else 4
    near = [*ends[-few:], *[end - 1 for end in ends[-few:]]]
    cuts = [*near, *rng.choice(ends, few), *rng.integers(ends[0], ends[-1], 2 * few)]
    for cut in map(int, cuts):
        (tmp_path / "cut").write_bytes(whole[:cut])
        found, said = loaded(tmp_path / "cut")
        last = max(i for i, end in enumerate(ends) if end <= cut)
        assert text(found) == states[last]
        assert bool(said) == (cut != ends[last])
        if said:
            assert str(tmp_path / "cut") in said[0]
            assert f"{cut - ends[last]} bytes" in said[0]
    for cut in map(int, rng.integers(0, ends[0], 6)):  # what it was made with is not to be guessed
        (tmp_path / "cut").write_bytes(whole[:cut])
        with pytest.raises(ms.StorageError, match=r"damaged|not a misspec"):
            ms.load(tmp_path / "cut")

    found, said = loaded(path)
    assert not said
    policy.journal(None)
    found.journal(path)
    for each in (policy, found):
        for _ in hostile(each, name, np.random.default_rng(4), 12):
            pass
    assert text(policy) == text(found) == text(ms.load(path)), "it goes on as the other, and so does its journal"
    probe = {"context": [0.5]} if name.startswith("joint") else ROUND.get(name, lambda _: {})(np.random.default_rng(0))
    if name not in ("phased",):
        one, other = policy.recommend(**probe), found.recommend(**probe)
        assert (one.lower, one.upper, one.x.tolist()) == (other.lower, other.upper, other.x.tolist())


@given(
    seed=st.integers(0, 10**6), first=st.integers(0, 12), name=st.sampled_from(["gp-ucb", "thompson", "own", "open"])
)
@settings(max_examples=25)
def test_a_journal_that_is_begun_late_or_interrupted_is_the_whole(seed, first, name, tmp_path_factory):
    """Attached, detached and attached again at any time, to the same file: what was missed is made up for."""
    policy, path, rng = MAKE[name](), tmp_path_factory.mktemp("a") / "a.journal", np.random.default_rng(seed)
    for _ in hostile(policy, name, rng, first):
        pass
    for _ in range(3):
        policy.journal(path)
        assert text(ms.load(path)) == text(policy)
        for _ in hostile(policy, name, rng, 4):
            assert text(ms.load(path)) == text(policy)
        policy.journal(None)
        for _ in hostile(policy, name, rng, int(rng.integers(3))):
            pass


@pytest.mark.parametrize("write", ["journal", "save"])
def test_events_that_a_file_is_begun_with_are_there_or_it_is_refused(tmp_path, write):
    """A file that has lost some of them is damaged, however clean the cut."""
    policy, path = MAKE["thompson"](), tmp_path / "a.journal"
    for _ in hostile(policy, "thompson", np.random.default_rng(0), 40):
        pass
    getattr(policy, write)(path)
    assert text(ms.load(path)) == text(policy)
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) > 5
    (tmp_path / "cut").write_bytes(b"".join(lines[:-1]))
    with pytest.raises(ms.StorageError, match="events that it was begun with"):
        ms.load(tmp_path / "cut")
    (tmp_path / "cut").write_bytes(b"".join(lines)[:-1])
    with pytest.raises(ms.StorageError, match="events that it was begun with"):
        ms.load(tmp_path / "cut")


def test_all_of_a_query_is_written():
    """A new field of queries has to be written too."""
    derived = {"name", "params", "row"}  # from the place
    stored = {each.name for each in dataclasses.fields(Query)} - derived
    assert stored == {"index", "x", "context", *log.STORED, *NUMBERS}


def test_an_event_of_every_round_is_written_as_json_writes_it():
    """Without its module, which takes several times as long."""
    query = Query(3, np.array([0.1, 2.0]), position=1, upper=float("inf"), details={"a": "é"}, asked_at=1.25)
    by = np.array([np.nan] * 4 + [np.inf])
    plain = {"id": 3, "x": base64.b64encode(query.x.tobytes()).decode(), "position": 1}
    plain |= {"by": base64.b64encode(by.tobytes()).decode(), "asked_at": 1.25, "details": {"a": "é"}}
    for event, content in {("ask", query): ["ask", plain], ("tell", 3, 0.1, 2e-300): ["tell", 3, 0.1, 2e-300]}.items():
        assert log.line(event) == log.ENCODE(content).encode()
    with pytest.raises(ValueError, match="asked at nan"):
        log.line(("ask", dataclasses.replace(query, asked_at=float("nan"))))


def test_a_query_that_was_chosen_by_other_numbers_is_refused():
    policy = ms.GPUCB(ms.Box([(0, 1)]), MODEL)
    policy.ask()
    for name, wrong in {"by": "AAAAAAAAAAA=", "asked_at": "nan", "mean": 0.1}.items():
        state = policy.state()
        state["events"][0][1][name] = wrong
        with pytest.raises(ms.StorageError):
            ms.restore(state)


def test_numbers_of_every_kind_come_back(tmp_path):
    policy, path = ms.GPUCB(ms.Box([(0, 1)]), MODEL), tmp_path / "a.journal"
    policy.journal(path)
    values = [0.0, -0.0, 5e-324, -1.7976931348623157e308, 0.1 + 0.2, 1e22]
    for y in values[:3] + values[4:]:
        policy.tell(policy.ask(), y)
    odd = Query(policy.log.next_id, np.array([0.3]), mean=float("inf"), upper=float("-inf"), details={"k": [None, "é"]})
    policy._register(odd, policy.field.stored_place(None, [0.3]))
    policy.observe([[0.25]], [0.5])
    again = ms.load(path)
    assert [event[2].hex() for event in again.log.events if event[0] == "tell"] == [
        y.hex() for y in values[:3] + values[4:]
    ]
    found = again.pending[0]
    assert (found.mean, found.upper, dict(found.details)) == (odd.mean, odd.upper, dict(odd.details))
    assert np.isnan(found.std)


# -- damage ------------------------------------------------------------------------------------------------------------


def short(tmp_path, name="thompson", calls=12):
    """A short journal, with its states by number of events."""
    policy, path = MAKE[name](), tmp_path / "a.journal"
    policy.journal(path)
    states = {0: text(policy)}
    for _ in hostile(policy, name, np.random.default_rng(5), calls):
        states[len(policy.log.events)] = text(policy)
    policy.journal(None)
    return path, states


def test_no_flipped_byte_goes_unnoticed(tmp_path):
    path, _ = short(tmp_path)
    whole, chance = path.read_bytes(), random.Random(0)
    last = whole[:-1].rfind(b"\n") + 1
    for place in [*chance.sample(range(len(whole)), 250), *range(last - 3, len(whole))]:  # the last record's too
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << chance.randrange(8)
        path.write_bytes(spoilt)
        with pytest.raises(ms.StorageError):
            ms.load(path)


def test_damage_in_the_middle_is_named(tmp_path):
    path, states = short(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    start = sum(map(len, lines[:5]))
    for spoilt in (
        [*lines[:5], b"\0" * len(lines[5]), *lines[6:]],  # a block that never reached the disk
        [*lines[:5], *lines[6:]],  # left out
        [*lines[:5], lines[6], lines[5], *lines[7:]],  # swapped
        [*lines[:5], *lines[4:]],  # twice
        [*lines[:5], lines[5][:-1], *lines[6:]],  # two in one line
        [*lines[:5], b"\n", *lines[5:]],
    ):
        path.write_bytes(b"".join(spoilt))
        with pytest.raises(ms.StorageError, match=rf"record 4, at byte {start}.*first {start} bytes"):
            ms.load(path)
    path.write_bytes(b"".join(spoilt)[:start])  # the remedy that it names
    found, said = loaded(path)
    assert text(found) in states.values()
    assert not said


def test_the_last_two_records_are_not_taken_for_one_that_was_cut_short(tmp_path):
    path, _ = short(tmp_path)
    whole = bytearray(path.read_bytes())
    whole[whole[:-1].rfind(b"\n")] ^= 1
    path.write_bytes(whole)
    with pytest.raises(ms.StorageError, match="was not cut short"):
        ms.load(path)


@pytest.mark.parametrize("zeros", [1, 4096, 100_000])
def test_zeros_that_a_power_cut_leaves_are_dropped(tmp_path, zeros):
    path, states = short(tmp_path)
    whole = path.read_bytes()
    for kept in (len(whole), len(whole) - 7, whole[:-1].rfind(b"\n") + 1):
        path.write_bytes(whole[:kept] + b"\0" * zeros)
        found, said = loaded(path)
        assert text(found) == list(states.values())[-1 if kept == len(whole) else -2]
        assert len(said) == 1


def test_other_files_say_what_they_are(tmp_path):
    path, _ = short(tmp_path)
    whole = path.read_bytes()
    for first in (b"misspec records 4\n", b"misspec journal 1\n", b"PK\x03\x04"):  # the last two: of earlier versions
        path.write_bytes(whole.replace(records.FIRST, first, 1))
        with pytest.raises(ms.StorageError, match="another version of misspec"):
            ms.load(path)
    path.write_bytes(whole)
    header = next(iter(records.Reader(path)))
    (tmp_path / "empty").touch()
    with pytest.raises(ms.StorageError, match="not a misspec file"):
        ms.load(tmp_path / "empty")
    with pytest.raises(ms.StorageError, match="does not exist"):
        ms.load(tmp_path / "none")
    for payloads in ([], [b"[]"], [b"not JSON"], [b'{"random":{},"begun":0}'], [b'{"random":{},"begun":"x"}', b"zz"]):
        (tmp_path / "odd").unlink(missing_ok=True)
        records.create(tmp_path / "odd", payloads, new=True)
        with pytest.raises(ms.StorageError):
            ms.load(tmp_path / "odd")
    for payload in (
        b"zz",
        b"t",
        b"tAAAA",
        b"a",
        b"a A",
        b"[",
        b"[]",
        b'["tell",99,0.5]',
        b"{}\t{",
        b'{"state":3}',
        b"",
    ):
        (tmp_path / "odd").unlink()
        records.create(tmp_path / "odd", [header, payload], new=True)
        with pytest.raises(ms.StorageError):
            ms.load(tmp_path / "odd")


# -- failures ----------------------------------------------------------------------------------------------------------


class Moody:
    """An RBF that fails when it is told to."""

    failing = False

    def __call__(self, X, Z):
        if self.failing:
            Moody.failing = False
            raise RuntimeError("not now")
        return RBF(0.3)(X, Z)

    def diag(self, X):
        return np.ones(len(X))


def test_a_call_that_fails_writes_nothing(tmp_path):
    path, kernel = tmp_path / "a.journal", Moody()
    policy = ms.GPUCB(ms.Box([(0, 1)]), ms.Model(kernel, norm_bound=2.0, noise=0.1))
    policy.journal(path)
    query = policy.ask()
    before, written = text(policy), path.read_bytes()
    for call in (
        lambda: policy.ask(),
        lambda: policy.tell(query, 0.5),
        lambda: policy.observe([[0.1]], [0.5]),
    ):
        Moody.failing = True
        with pytest.raises(ms.InvalidInput, match="not now"):
            call()
        assert (text(policy), path.read_bytes()) == (before, written)
    for call in (
        lambda: policy.tell(query, np.nan),
        lambda: policy.tell(17, 0.5),
        lambda: policy.drop(17),
        lambda: policy.ask(0),
        lambda: policy.observe([[0.1, 0.2]], [0.5]),
    ):
        with pytest.raises(ms.InvalidInput):
            call()
    policy.observe([], [])
    policy.tell([], [])
    assert (text(policy), path.read_bytes()) == (before, written)
    policy.tell(query, 0.5)
    policy.ask()
    assert text(ms.load(path, kernel=kernel)) == text(policy)


class Disk:
    """os.write as a disk that gets full: so many bytes more, and never more than some at a time."""

    def __init__(self, monkeypatch, room, most=10**9):
        self.room, self.most, self.write = room, most, os.write
        monkeypatch.setattr(os, "write", self)

    def __call__(self, handle, content):
        if not os.path.samestat(os.fstat(handle), self.path.stat()):
            return self.write(handle, content)
        taken = min(len(content), self.room, self.most)
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= taken
        return self.write(handle, bytes(content)[:taken])


@pytest.mark.parametrize("sync", [False, True])
def test_a_full_disk_undoes_the_call_and_is_tried_again(tmp_path, monkeypatch, sync):
    path = tmp_path / "a.journal"
    policy, reference = MAKE["thompson"](), MAKE["thompson"]()
    policy.journal(path, sync=sync)
    disk = Disk(monkeypatch, 10**9)
    disk.path, chance, failures = path, random.Random(1), 0
    for _ in range(15):
        batch = reference.ask(2)
        reference.tell(batch, [0.1, 0.2])
        for call in (lambda: policy.ask(2), lambda batch=batch: policy.tell(batch, [0.1, 0.2])):
            before, written = text(policy), path.read_bytes()
            disk.room, disk.most = chance.randrange(150), chance.choice([3, 1000])
            try:
                call()
            except ms.StorageError as error:
                said = str(error)
                failures += 1
            else:
                continue
            assert "No space left on device. The call was undone" in said
            assert (text(policy), path.read_bytes()) == (before, written)
            disk.room = 10**9
            call()
        assert text(policy) == text(reference) == text(ms.load(path))
    assert failures > 10


FULL = """
import resource, sys
from pathlib import Path
import numpy as np
from sklearn.gaussian_process.kernels import RBF
import misspec as ms

path = Path(sys.argv[1])
policy = ms.GPUCB(ms.Finite(np.random.default_rng(0).random((40, 2))), ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1))
policy.journal(path)
query = policy.ask()
before, size = policy.state(), path.stat().st_size
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, most))
try:
    policy.tell(query, 0.5)
except ms.StorageError as error:
    assert "File too large. The call was undone" in str(error), error
else:
    raise AssertionError("it was written")
assert (policy.state(), path.stat().st_size) == (before, size)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
policy.tell(query, 0.5)
assert ms.load(path).state() == policy.state()
"""


@pytest.mark.skipif(os.name != "posix", reason="this system has no such limits")
def test_a_real_limit_that_cuts_a_write_short(tmp_path):
    """The system itself writes twenty bytes of a record, and refuses the rest."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "a.journal")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_cut_off_is_cut_off_later(tmp_path, monkeypatch):
    path, policy = tmp_path / "a.journal", MAKE["gp-ucb"]()
    policy.journal(path)
    query = policy.ask()
    disk = Disk(monkeypatch, 5)
    disk.path = path

    def broken(*_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as worse:
        worse.setattr(os, "ftruncate", broken)
        for _ in range(2):
            with pytest.raises(ms.StorageError, match=r"cannot be written: (No space|Input/output)"):
                policy.tell(query, 0.5)
    found, said = loaded(path)
    assert text(found) == text(policy)
    assert said  # there are five bytes of it
    disk.room = 10**9
    policy.tell(query, 0.5)
    assert text(ms.load(path)) == text(policy)


def test_a_disk_that_does_not_take_it_when_it_is_to_be_safe_from_power_cuts(tmp_path, monkeypatch):
    path, policy = tmp_path / "a.journal", MAKE["gp-ucb"]()
    policy.journal(path, sync=True)
    flushed = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", flushed.append)
        query = policy.ask()
    assert len(flushed) == 1
    before, written = text(policy), path.read_bytes()

    def broken(_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken)
        with pytest.raises(ms.StorageError, match="Input/output"):
            policy.tell(query, 0.5)
    assert (text(policy), path.read_bytes()) == (before, written)
    policy.tell(query, 0.5)
    assert text(ms.load(path)) == text(policy)


def test_a_file_that_is_gone_is_noticed(tmp_path):
    path, policy = tmp_path / "a.journal", MAKE["gp-ucb"]()
    policy.journal(path)
    policy.tell(policy.ask(), 0.1)
    path.unlink()
    before = text(policy)
    with pytest.raises(ms.StorageError, match=r"deleted.*policy.journal\(path\)"):
        policy.ask()
    assert text(policy) == before
    policy.journal(path)
    assert text(ms.load(path)) == before
    policy.tell(policy.ask(), 0.2)
    assert text(ms.load(path)) == text(policy)


def in_another_place(path):
    path.rename(path.with_suffix(".old"))
    return path.with_suffix(".old")


def in_a_folder_that_is_renamed(path):
    path.parent.rename(path.parent.with_name("moved"))
    return path.parent.with_name("moved") / path.name


def under_another_file(path):
    moved = in_another_place(path)
    path.write_bytes(moved.read_bytes())
    return moved


def under_a_link_to_another_file(path):
    moved = in_another_place(path)
    other = path.with_suffix(".copy")
    other.write_bytes(moved.read_bytes())
    path.symlink_to(other)
    return moved


def under_another_of_its_names(path):
    moved = path.with_suffix(".old")
    moved.hardlink_to(path)
    path.unlink()
    return moved


MOVES = [
    in_another_place,
    in_a_folder_that_is_renamed,
    under_another_file,
    under_a_link_to_another_file,
    under_another_of_its_names,
]


@pytest.mark.skipif(os.name != "posix", reason="an open file cannot be renamed")
@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
def test_a_file_that_is_renamed_is_noticed_in_the_next_call(tmp_path, move):
    path = tmp_path / "folder" / "a.journal"
    path.parent.mkdir()
    policy = MAKE["gp-ucb"]()
    policy.journal(path)
    policy.tell(policy.ask(), 0.1)
    query = policy.ask()
    before, written = text(policy), path.read_bytes()
    moved = move(path)
    for _ in range(3):
        with pytest.raises(ms.StorageError, match=r"renamed, deleted or replaced.*undone"):
            policy.tell(query, 0.2)
        assert (text(policy), moved.read_bytes()) == (before, written)
    assert not path.exists() or path.read_bytes() == written  # what came in its place is not touched
    policy.journal(moved)
    policy.tell(query, 0.2)
    assert text(ms.load(moved)) == text(policy)


@pytest.mark.skipif(os.name != "posix", reason="an open file cannot be renamed")
def test_a_file_that_is_put_back_is_gone_on_with(tmp_path):
    path, policy = tmp_path / "a.journal", MAKE["gp-ucb"]()
    policy.journal(path)
    query = policy.ask()
    moved = in_another_place(path)
    with pytest.raises(ms.StorageError, match="renamed"):
        policy.tell(query, 0.2)
    moved.rename(path)
    policy.tell(query, 0.2)
    assert text(ms.load(path)) == text(policy)


@pytest.mark.skipif(os.name != "posix", reason="an open file cannot be renamed")
def test_what_others_append_to_a_renamed_file_is_not_cut_off(tmp_path):
    path, policy = tmp_path / "a.journal", MAKE["gp-ucb"]()
    policy.journal(path)
    query = policy.ask()
    moved = in_another_place(path)
    with pytest.raises(ms.StorageError, match="renamed"):
        policy.tell(query, 0.2)
    with moved.open("ab") as stream:
        stream.write(b"mine\n")
    moved.rename(path)
    with pytest.raises(ms.StorageError, match="changed by others"):
        policy.tell(query, 0.2)
    assert path.read_bytes().endswith(b"mine\n")


def test_a_journal_by_a_relative_name_stays_where_it_is(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    policy = MAKE["gp-ucb"]()
    policy.journal("a.journal")
    monkeypatch.chdir(tmp_path / "elsewhere")
    policy.tell(policy.ask(), 0.1)
    assert text(ms.load(tmp_path / "a.journal")) == text(policy)


@pytest.mark.parametrize("left", [0, 1, 60, -1])
def test_a_truncation_is_noticed_in_the_very_next_call(tmp_path, monkeypatch, left):
    monkeypatch.setattr("time.monotonic", lambda: 0.0)  # however soon that is
    path, policy = tmp_path / "a.journal", MAKE["gp-ucb"]()
    policy.journal(path)
    query = policy.ask()
    before = text(policy)
    os.truncate(path, left if left >= 0 else path.stat().st_size - 1)
    with pytest.raises(ms.StorageError, match="changed by others"):
        policy.tell(query, 0.1)
    assert text(policy) == before


@pytest.mark.parametrize("how", ["longer", "shorter", "shorter by less than a record"])
def test_a_file_that_others_change_is_left_to_them(tmp_path, how):
    path, policy = tmp_path / "a.journal", MAKE["gp-ucb"]()
    policy.journal(path)
    policy.tell(policy.ask(), 0.1)
    query, whole = policy.ask(), path.read_bytes()
    before = text(policy)
    if how == "longer":
        with path.open("ab") as stream:
            stream.write(b"mine\n")
    else:
        os.truncate(path, len(whole) - (3 if "less" in how else 200))
    for _ in range(3):
        with pytest.raises(ms.StorageError, match="changed by others"):
            policy.tell(query, 0.1)
        assert text(policy) == before
    if how == "longer":
        assert path.read_bytes().startswith(whole + b"mine\n")
    policy.journal(tmp_path / "b.journal")
    policy.tell(query, 0.1)
    assert text(ms.load(tmp_path / "b.journal")) == text(policy)


def test_details_that_are_no_json_are_refused_and_said(tmp_path):
    class Careless(ms.UniformSampling):
        what = None

        def choose(self, actions):
            return super().choose(actions)._replace(reasons={"details": {"what": self.what}})

    policy, path = Careless(DOMAIN, MODEL), tmp_path / "a.journal"
    policy.journal(path)
    before, written = text(policy), path.read_bytes()
    for policy.what in (object(), np.int64(3), float("nan")):
        with pytest.raises(ms.StorageError, match=r"cannot be written to the journal.*undone.*details of queries"):
            policy.ask()
        assert (text(policy), path.read_bytes()) == (before, written)
    policy.what = 3
    policy.ask()
    assert text(ms.load(path)) == text(policy)
    del ms.Policy.registry[state.name_of(Careless)]


FILES = ("journal.py", "records.py", "policy.py", "undo.py", "log.py")


@pytest.mark.parametrize("again", [None, 0, 3, 11])
def test_an_interrupt_at_any_line_leaves_policy_and_file_as_one(tmp_path, again):
    """Whatever was interrupted, and if its undoing was too: after the next call both hold the same."""
    path = tmp_path / "a.journal"
    policy = ms.GPUCB(ms.Finite(POINTS[:5]), MODEL)
    policy.journal(path)
    policy.tell(policy.ask(), 0.3)
    interrupted = 0
    for n in range(0, 400, 1 if again is None else 3):
        query = policy.ask()
        try:
            with Interrupt(n, *([] if again is None else [again]), files=FILES):
                policy.tell(query, 0.1)
        except KeyboardInterrupt:
            interrupted += 1
        else:
            break
        policy.drop(policy.pending) if policy.pending else None
        policy.ask()
        assert text(ms.load(path)) == text(policy)
        policy.drop(policy.pending)
    assert interrupted > 20
    assert text(ms.load(path)) == text(policy)


# -- one writer --------------------------------------------------------------------------------------------------------


def test_two_policies_do_not_write_to_one_file(tmp_path):
    path, policy = tmp_path / "a.journal", MAKE["gp-ucb"]()
    policy.journal(path)
    policy.tell(policy.ask(), 0.1)
    other, before = ms.load(path), path.read_bytes()
    with pytest.raises(ms.StorageError, match="another policy, here or in another process, writes to"):
        other.journal(path)
    code = f"import misspec as ms; ms.load({str(path)!r}).journal({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "another policy, here or in another process" in done.stderr
    assert path.read_bytes() == before
    other.ask()  # it has none, and goes on
    assert path.read_bytes() == before
    policy.journal(None)
    del other
    other = ms.load(path)
    other.journal(path)
    other.ask()
    policy.ask()
    assert text(ms.load(path)) == text(other)
    del other  # with its lock
    ms.load(path).journal(path)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_have_no_journal(tmp_path, copied):
    path, policy = tmp_path / "a.journal", MAKE["gp-ucb"]()
    policy.journal(path)
    policy.tell(policy.ask(), 0.1)
    before = path.read_bytes()
    twin, restored = copied(policy), ms.restore(policy.state())
    for each in (twin, restored):
        each.tell(each.ask(), 0.2)
    assert path.read_bytes() == before
    with pytest.raises(ms.StorageError, match="another policy"):
        twin.journal(path)
    twin.journal(tmp_path / "b.journal")
    policy.ask()
    assert text(ms.load(path)) == text(policy)
    assert text(ms.load(tmp_path / "b.journal")) == text(twin)


def _in_a_child(policy, path, queue):
    before = path.read_bytes()
    policy.tell(policy.ask(), 0.7)
    refused = False
    try:
        policy.journal(path)
    except ms.StorageError:
        refused = True
    queue.put((path.read_bytes() == before, refused))
    queue.get()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # forking with threads: hypothesis may have some
def test_a_forked_process_neither_writes_nor_holds_the_lock(tmp_path):
    path, policy = tmp_path / "a.journal", MAKE["gp-ucb"]()
    policy.journal(path)
    policy.tell(policy.ask(), 0.1)
    context = multiprocessing.get_context("fork")
    queue, back = context.Queue(), context.Queue()

    class Both:
        put, get = queue.put, back.get

    child = context.Process(target=_in_a_child, args=(policy, path, Both))
    child.start()
    assert queue.get(timeout=30) == (True, True)
    policy.ask()
    policy.journal(None)
    ms.load(path).journal(path)  # while the child lives
    back.put(None)
    child.join(30)
    assert text(ms.load(path)) == text(policy)


# -- going on ----------------------------------------------------------------------------------------------------------


def test_what_is_there_is_never_overwritten(tmp_path):
    path, policy = tmp_path / "a.journal", MAKE["gp-ucb"]()
    policy.journal(path)
    policy.tell(policy.ask(), 0.1)
    policy.journal(None)
    before = path.read_bytes()
    others = {
        "its settings differs": ms.GPUCB(DOMAIN, MODEL, seed=1),
        "its policy differs": ms.UniformSampling(DOMAIN, MODEL),
        "its model differs": ms.GPUCB(DOMAIN, dataclasses.replace(MODEL, norm_bound=3.0)),
        "its domain differs": ms.GPUCB(ms.Finite(POINTS), MODEL),
        "does not have, from event 0 on": ms.GPUCB(DOMAIN, MODEL),
    }
    different = ms.GPUCB(DOMAIN, MODEL)
    different.tell(different.ask(), 0.2)
    for message, other in {**others, "does not have, from event 1 on": different}.items():
        with pytest.raises(ms.StorageError, match=rf"{message}.*ms.load\(path\)"):
            other.journal(path)
        other.ask()
    assert path.read_bytes() == before
    saved, note = tmp_path / "saved", tmp_path / "note.txt"
    policy.save(saved)
    note.write_text("mine")
    for occupied in (note, tmp_path):
        with pytest.raises(ms.StorageError, match=r"not a misspec file|cannot write"):
            policy.journal(occupied)
    assert note.read_text() == "mine"
    policy.journal(saved)  # which is a journal like any other
    policy.ask()
    assert text(ms.load(saved)) == text(policy)
    policy.journal(None)
    with pytest.raises(ms.StorageError, match="folder that exists"):
        policy.journal(tmp_path / "none" / "a")
    with pytest.raises(ms.InvalidInput, match="sync must be True or False"):
        policy.journal(tmp_path / "b", sync="yes")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.journal", "note.txt", "saved"]


def test_a_refused_file_leaves_the_one_that_is_written(tmp_path):
    path, policy = tmp_path / "a.journal", MAKE["gp-ucb"]()
    policy.journal(path)
    (tmp_path / "note").write_text("mine")
    with pytest.raises(ms.StorageError, match="not a misspec file"):
        policy.journal(tmp_path / "note")
    query = policy.ask()
    policy.journal(path)  # again, which changes nothing
    policy.journal(path, sync=True)
    policy.tell(query, 0.1)
    assert text(ms.load(path)) == text(policy)
    policy.journal(tmp_path / "b.journal")
    before = path.read_bytes()
    policy.ask()
    assert path.read_bytes() == before
    assert text(ms.load(tmp_path / "b.journal")) == text(policy)


def test_what_was_cut_short_is_cut_off_before_going_on(tmp_path):
    path, _ = short(tmp_path, "own")
    with path.open("ab") as stream:
        stream.write(b"1234abcd 77 tAAA")
    policy, said = loaded(path)
    assert len(said) == 1
    policy.journal(path)
    policy.drop(policy.ask())
    found, said = loaded(path)
    assert not said
    assert text(found) == text(policy)


def test_two_that_begin_the_same_file_at_once(tmp_path):
    path, barrier, outcomes = tmp_path / "a.journal", threading.Barrier(6), []
    policies = [ms.GPUCB(DOMAIN, MODEL, seed=seed) for seed in range(6)]

    def begin(policy):
        barrier.wait()
        try:
            policy.journal(path)
        except ms.StorageError:
            outcomes.append(None)
        else:
            outcomes.append(policy)

    threads = [threading.Thread(target=begin, args=(policy,)) for policy in policies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [each for each in outcomes if each is not None]
    for policy in policies:
        policy.ask()
    assert text(ms.load(path)) == text(winner)
    assert [each.name for each in tmp_path.iterdir()] == ["a.journal"]


def test_several_threads_share_a_policy_and_its_journal(tmp_path):
    policy, path = MAKE["thompson"](), tmp_path / "a.journal"
    policy.journal(path)
    failures = []

    def work(seed):
        rng = np.random.default_rng(seed)
        try:
            for _ in range(15):
                query = policy.ask()
                policy.drop(query) if rng.random() < 0.2 else policy.tell(query, rng.random())
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert text(ms.load(path)) == text(policy)
    assert len(path.read_bytes().splitlines()) == 2 + 120


def test_what_is_not_in_the_file_is_handed_in_again(tmp_path, monkeypatch):
    monkeypatch.setattr(fields, "LARGE", 100)
    path, kernel, domain = tmp_path / "a.journal", Moody(), ms.Finite(POINTS)
    policy = ms.GPUCB(domain, ms.Model(kernel, norm_bound=2.0, noise=0.1), width=_two)
    policy.journal(path)
    policy.tell(policy.ask(), 0.1)
    assert path.stat().st_size < 3000
    options = {"kernel": kernel, "domain": domain, "width": _two}
    for missing in options:
        with pytest.raises(ms.StorageError, match="hand"):
            ms.load(path, **{name: each for name, each in options.items() if name != missing})
    with pytest.raises(ms.StorageError, match="domain"):
        ms.load(path, **{**options, "domain": ms.Finite(POINTS[::-1])})
    found = ms.load(path, **options)
    assert text(found) == text(policy)
    policy.journal(None)
    found.journal(path)
    found.ask()
    assert text(ms.load(path, **options)) == text(found)


def _two(*_):
    return 2.0


# -- kill -9 -----------------------------------------------------------------------------------------------------------

PLAYER = """
import sys
import numpy as np
from sklearn.gaussian_process.kernels import RBF
import misspec as ms

ms.Policy.clock = staticmethod(lambda: 0.0)

def play(policy, rounds):
    for _ in range(rounds):
        query = policy.ask()
        yield
        policy.tell(query, float(np.sin(5 * query.x[0]) + 0.1 * np.cos(97 * policy.t)))
        yield

def make():
    ms.Policy.clock = staticmethod(lambda: 0.0)
    model = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1)
    return ms.ThompsonSampling(ms.Finite(np.random.default_rng(0).random((40, 2))), model)

if __name__ == "__main__":
    policy = make()
    policy.journal(sys.argv[1])
    for _ in play(policy, 10**6):
        sys.stdout.write(".")
        sys.stdout.flush()
"""


@pytest.mark.parametrize("calls", [1, 20, 151])
def test_kill_9_loses_no_call_that_has_returned(tmp_path, calls):
    script, path = tmp_path / "player.py", tmp_path / "a.journal"
    script.write_text(PLAYER)
    player = subprocess.Popen([sys.executable, str(script), str(path)], stdout=subprocess.PIPE)
    try:
        returned = len(player.stdout.read(calls))
    finally:
        player.kill()
    returned += len(player.stdout.read())
    player.stdout.close()
    player.wait()
    found, _ = loaded(path)
    assert returned <= len(found.log.events) <= returned + 1
    scope = {"__name__": "player"}
    exec(compile(PLAYER, str(script), "exec"), scope)
    reference = scope["make"]()
    play = scope["play"](reference, 10**6)
    while len(reference.log.events) < len(found.log.events):
        next(play)
    assert text(found) == text(reference)
    found.journal(path)  # the lock has ended with its process
    found.drop(found.pending) if found.pending else None
    reference.drop(reference.pending) if reference.pending else None
    assert [found.ask().index for _ in range(3)] == [reference.ask().index for _ in range(3)]
    assert text(ms.load(path)) == text(found) == text(reference)


# -- cost --------------------------------------------------------------------------------------------------------------


def test_one_write_per_call_whatever_was_there_before(tmp_path, monkeypatch):
    policy, path, written = MAKE["gp-ucb"](), tmp_path / "a.journal", []
    write = os.write
    policy.journal(path)
    monkeypatch.setattr(os, "write", lambda handle, content: written.append(len(content)) or write(handle, content))
    for i in range(300):
        policy.tell(policy.ask(), np.sin(i))
    assert len(written) == 600
    early, late = written[:100], written[-100:]
    assert max(late) <= max(early) + 8
    assert sum(written) < 300 * 250


def test_loading_needs_no_more_memory_than_the_policy_that_is_loaded(tmp_path):
    path, policy = tmp_path / "a.journal", ms.GPUCB(ms.Open(3), LINEAR)
    policy.journal(path)
    rng = np.random.default_rng(0)
    for _ in range(1500):
        policy.tell(policy.ask(**vectors(rng)), rng.standard_normal())
    ms.load(path)  # what is imported once
    tracemalloc.start()
    found = ms.load(path)
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.t == 1500
    assert peak < 1.1 * now


def test_what_others_evaluate_and_what_others_have_learnt_is_written_too(tmp_path):
    teacher = ms.Auto(SPACE, seed=2)
    policy = ms.Auto(SPACE, seed=1)
    policy.journal(tmp_path / "auto.journal")
    for each in (teacher, policy):
        for i in range(6):
            point = {"rate": 10.0 ** -(i % 4), "depth": 1 + i, "kind": "a"}
            each.tell(each.mark_pending([point]), 0.1 * i)
    teacher.refresh()
    policy.adopt(teacher.samples)
    (begun,) = policy.mark_pending([{"rate": 0.5, "depth": 2, "kind": "a"}])
    twin = ms.load(tmp_path / "auto.journal")
    assert [query.id for query in twin.pending] == [begun.id]
    assert twin.samples == policy.samples == teacher.samples
    assert json.dumps(twin.state()) == json.dumps(policy.state())
    assert twin.ask().params == policy.ask().params


def test_save_replaces_no_file_of_others_and_no_journal_of_another_policy(tmp_path):
    one, other = ms.Auto(ms.Box([(0, 1)])), ms.Auto(ms.Box([(0, 1)]), seed=1)
    journal, table, empty, linked = (tmp_path / name for name in ("live.journal", "precious.csv", "empty", "link"))
    one.journal(journal)
    table.write_text("a,b\n1,2\n")
    empty.touch()
    linked.symlink_to(table)
    for path, said in ((journal, "another policy.*detach it there"), (table, "no file of misspec; choose another")):
        before = path.read_bytes()
        with pytest.raises(ms.errors.StorageError, match=said):
            other.save(path)
        assert path.read_bytes() == before
    with pytest.raises(ms.errors.StorageError, match="no file of misspec"):
        other.save(linked)
    other.save(empty)
    one.tell(one.ask(), 0.3)  # its journal is whole
    assert ms.load(journal).t == 1
    one.save(journal)  # its own
    one.journal(None)
    other.save(journal)  # now it is an older file of misspec
    assert ms.load(journal).t == ms.load(empty).t == 0
