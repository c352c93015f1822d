import json
import os
import random
import stat
import time

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from files import started
from misspec.encoding import decode_array, encode_array
from misspec.errors import InvalidInput, StorageError
from misspec.files import storage

POLICY = ms.UniformSampling(ms.Finite([[0.0], [1.0]]), ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1))


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    storage.replace(path, b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        storage.replace(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_new_file_has_the_permissions_of_any_other(tmp_path):
    (tmp_path / "other").write_text("")
    storage.replace(tmp_path / "ours", b"content")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "ours"]


def test_a_file_keeps_its_mode_and_links_are_written_through(tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "a", tmp_path / "link"
    link.symlink_to(target)
    storage.replace(link, b"1")  # of a link that leads to nothing yet, too
    target.chmod(0o640)
    storage.replace(link, b"2")
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert link.read_bytes() == b"2"
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["a"]
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["link", "there"]


@pytest.mark.parametrize("wrong", [None, "", "a\0b", 3, b"a", object(), ["a"], "\ud800"])
def test_what_is_no_name_of_a_file(wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: storage.replace(wrong, b""),
        lambda: POLICY.save(wrong),
        lambda: ms.load(wrong),
        *([] if wrong is None else [lambda: POLICY.journal(wrong)]),
    ):
        with pytest.raises(InvalidInput, match="path of a file must be text or a Path"):
            call()
    assert not list(tmp_path.iterdir())


def test_what_is_no_file_is_neither_written_nor_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    for wrong, message in ((".", "folder"), ("..", "folder"), ("pipe", "no file"), ("loop", "cannot|links")):
        for call in (POLICY.save, POLICY.journal, ms.load):
            with pytest.raises(StorageError, match=rf"{message}|not a journal|symbolic|directory"):
                call(wrong)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["loop", "pipe"]


@pytest.mark.parametrize("length", [120, 240, 255])
def test_every_name_that_the_system_takes_will_do(length, tmp_path):
    for name in ("a" * length, "é" * (length // 2)):
        POLICY.save(tmp_path / name)
        assert ms.load(tmp_path / name).state() == POLICY.state()
        journaled = ms.restore(POLICY.state())
        journaled.journal(tmp_path / ("b" + name[1:]))
        journaled.journal(None)
    assert len(list(tmp_path.iterdir())) == 4
    for call in (POLICY.save, POLICY.journal):
        with pytest.raises(StorageError, match="the name is too long, 256 bytes; choose a shorter one"):
            call(tmp_path / ("a" * 256))


SAVER = """
import sys, time
from misspec.files import storage

def slowly(which):
    for _ in range(100):
        yield bytes([which]) * 10_000
        time.sleep(1e-4)

turn = 0
while True:
    storage.replace(sys.argv[1], slowly(turn % 2))
    print(turn, flush=True)
    turn += 1
"""


def test_kill_9_while_saving_leaves_a_whole_file_and_no_litter(tmp_path):
    path, chance, litter = tmp_path / "a", random.Random(0), 0
    for _ in range(6):
        with started("-c", SAVER, path) as process:
            process.stdout.readline()
            time.sleep(chance.random() * 0.05)
            process.kill()
            process.wait()
        assert path.read_bytes() in (bytes(1_000_000), b"\1" * 1_000_000)  # the old one or the new one
        left = {each.name for each in tmp_path.iterdir()} - {"a"}
        assert len(left) <= 1  # the one before is gone
        litter += len(left)
    assert litter, "nobody was killed while writing: make it write more slowly"
    storage.replace(path, b"")
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_only_litter_of_the_same_file_is_removed(tmp_path):
    path, token = tmp_path / "a", "0123456789ab"
    others = [f".b.{token}.part", f".a.b.{token}.part", ".a.part", f"a.{token}.part"]
    for name in [f".a.{token}.part", *others]:
        (tmp_path / name).touch()
    inside = []

    def content():  # another one writes the same file meanwhile, and finishes first
        yield b"one"
        inside.append({each.name for each in tmp_path.iterdir()} - {*others, "a"})
        storage.replace(path, b"two")
        assert path.read_bytes() == b"two"
        yield b" part"

    storage.replace(path, content())
    assert path.read_bytes() == b"one part"
    assert len(inside[0]) == 1
    assert {each.name for each in tmp_path.iterdir()} == {*others, "a"}


@pytest.mark.parametrize(
    "values", [np.arange(6.0).reshape(2, 3), np.array([1, 2]), np.zeros((0, 3)), np.array([True]), np.float32(np.pi)]
)
def test_arrays_come_back(values):
    stored = json.loads(json.dumps(encode_array(np.asarray(values))))
    found = decode_array("values", stored)
    np.testing.assert_array_equal(found, values)
    assert found.dtype == np.asarray(values).dtype


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "|O"},
        {"dtype": "<U8"},
        {"dtype": "[('a', '<f8')]"},
        {"dtype": "__import__('os').abort()"},
        {"dtype": ""},
        {"shape": [10**12]},
        {"shape": [-1, -1]},
        {"shape": ["2", 3]},
        {"array": "AAAA"},
        {"array": "é"},
        {"array": [1.0]},
        {"more": 1},
    ],
)
def test_arrays_are_what_they_say(change):
    with pytest.raises(StorageError, match="must be an array"):
        decode_array("values", {**encode_array(np.arange(6.0).reshape(2, 3)), **change})


# -- states ------------------------------------------------------------------------------------------------------------

MODEL = ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1)
POINTS = np.arange(8.0).reshape(4, 2) / 8
NAMED = ms.Finite(POINTS, names=list("abcd"))


class Own:
    """A kernel that is not stored."""

    def __call__(self, X, Z):
        return RBF(0.3)(X, Z)

    def diag(self, X):
        return np.ones(len(X))


class Other(Own):
    """And another."""


def two(*_):
    return 2.0


def told(policy):
    policy.tell(policy.ask(), 0.5)
    return policy.state()


def test_a_kernel_that_does_not_fit_is_refused():
    state = told(ms.GPUCB(NAMED, MODEL))
    assert ms.restore(state, kernel=RBF(0.3)).t == 1
    for wrong in (RBF(0.31), Own(), "RBF", 3):
        with pytest.raises(StorageError, match="holds its kernel, and the one handed in differs"):
            ms.restore(state, kernel=wrong)
    state = told(ms.GPUCB(NAMED, ms.Model(Own(), norm_bound=1.0, noise=0.1)))
    assert ms.restore(state, kernel=Own()).t == 1
    for wrong in (Other(), RBF(0.3)):
        with pytest.raises(StorageError, match=r"made with the kernel .*Own, and the one handed in is another"):
            ms.restore(state, kernel=wrong)
    bases = [(MODEL, 0.1), (ms.Model(RBF(0.1), norm_bound=1.0, noise=0.1), 0.0)]
    state = told(ms.RegretBalancing(NAMED, MODEL, horizon=9, bases=bases))
    assert ms.restore(state, kernel=RBF(0.1)).t == 1  # one of those that it holds
    with pytest.raises(StorageError, match="differs"):
        ms.restore(told(ms.Auto(NAMED)), kernel=RBF(0.3))  # it has none


def test_a_width_that_does_not_fit_is_refused():
    with pytest.raises(StorageError, match="holds its width, and the one handed in differs"):
        ms.restore(told(ms.GPUCB(NAMED, MODEL, width=2.0)), width=two)
    with pytest.raises(StorageError, match="holds its width"):
        ms.restore(told(ms.UniformSampling(NAMED, MODEL)), width=3.0)
    assert ms.restore(told(ms.GPUCB(NAMED, MODEL, width=two)), width=two).t == 1


@pytest.mark.parametrize(
    ("domain", "wrong"),
    [
        (NAMED, ms.Finite(POINTS + 0.1, names=list("abcd"))),
        (NAMED, ms.Finite(POINTS, names=list("abce"))),
        (NAMED, ms.Finite(POINTS)),
        (NAMED, ms.Box([(0, 1), (0, 1)])),
        (NAMED, "a list"),
        (ms.Box([(0, 1)]), ms.Box([(0, 2)])),
        (ms.Space({"n": ms.Int(1, 3)}), ms.Space({"n": ms.Int(1, 4)})),
        (ms.Space({"n": ms.Int(1, 3)}), ms.Space({"m": ms.Int(1, 3)})),
    ],
)
def test_a_domain_that_does_not_fit_is_refused(domain, wrong):
    state = told(ms.UniformSampling(domain, MODEL))
    assert ms.restore(state, domain=domain).t == 1
    with pytest.raises(StorageError, match="leave domain= out"):
        ms.restore(state, domain=wrong)


@pytest.mark.parametrize("domain", [NAMED, ms.Finite.from_table({"n": [1.0, 2.0, 4.0], "kind": list("xyx")})])
def test_points_that_were_edited_are_refused(domain):
    state = json.loads(json.dumps(told(ms.UniformSampling(domain, MODEL))))
    points = decode_array("points", state["domain"]["points"])
    points[1, 0] += 0.125
    state["domain"]["points"] = encode_array(points)
    for given in (None, domain):
        with pytest.raises(StorageError, match=r"they were edited|leave domain= out"):
            ms.restore(state, domain=given)
    state["domain"]["points"] = None
    with pytest.raises(StorageError, match="hand it in again"):
        ms.restore(state)
    assert ms.restore(state, domain=domain).t == 1


def test_a_kernel_that_fails_while_events_are_replayed_says_so():
    class Own:
        def __call__(self, *_):
            raise RuntimeError("out of ink")

        def diag(self, X):
            return np.ones(len(X))

    state = told(ms.GPUCB(NAMED, ms.Model(globals()["Own"](), norm_bound=1.0, noise=0.1)))
    with pytest.raises(ms.MisspecError, match="out of ink"):
        ms.restore(state, kernel=Own())


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_is_no_fault_of_the_state_is_passed_on(error, monkeypatch):
    state = told(ms.GPUCB(NAMED, MODEL))

    def stop(*_):
        raise error

    monkeypatch.setattr("misspec.policies.core.undo.replay", stop)
    with pytest.raises(error):
        ms.restore(state)


def test_details_that_cannot_be_saved_are_said(tmp_path):
    policy = ms.GPUCB(NAMED, MODEL)
    policy.log.events.append(("note", object()))
    with pytest.raises(StorageError, match="cannot be saved"):
        policy.save(tmp_path / "a")
    assert not list(tmp_path.iterdir())
