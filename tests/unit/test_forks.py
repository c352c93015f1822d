"""A process forked off while another thread is inside a call: the call is undone there, and nothing waits for ever."""

import copy
import faulthandler
import gc
import json
import os
import pickle
import sys
import threading
import traceback
import weakref

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec import threads
from misspec.policies.auto.feasible import Outcomes
from misspec.policies.core.evidence import Evidence

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork"),
]
PATIENCE = 60  # seconds after which a child that waits is ended: many times what any of these takes, under load too
DOMAIN = ms.Finite(np.random.default_rng(0).random((12, 2)))
MODEL = ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1)
SPACE = ms.Space({"a": ms.Float(0, 1), "b": ms.Int(0, 5), "c": ms.Choice(["x", "y"])})
MAKE = {
    "gp-ucb": lambda: ms.GPUCB(DOMAIN, MODEL),
    "thompson": lambda: ms.ThompsonSampling(DOMAIN, MODEL),
    "balancing": lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=100),
    "insured": lambda: ms.InsuredUCB(DOMAIN, MODEL),
    "auto": lambda: ms.Auto(SPACE, seed=1),
}


def text(policy):
    return json.dumps(policy.state())


def in_a_child(check):
    """Fork, check there, and say what went wrong; a child that waits for ever says where, and ends."""
    sys.stdout.flush()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        faulthandler.dump_traceback_later(PATIENCE, file=write, exit=True)
        try:
            check()
        except BaseException:
            os.write(write, traceback.format_exc()[-4000:].encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        wrong = said.read()
    _, status = os.waitpid(child, 0)
    assert not wrong, wrong
    assert status == 0, f"ended by signal {status & 127}"


def works(policy, before=None):
    """It is what its events say, and goes on as a policy does that was restored from them."""
    assert before is None or text(policy) == before
    twin = ms.restore(policy.state())
    assert [each.id for each in policy.pending] == [each.id for each in twin.pending]
    assert (policy.asked, policy.t) == (twin.asked, twin.t)
    for each in (policy, twin):
        for query in each.pending:
            each.tell(query, 0.25)
        each.tell(each.ask(), 0.5)
    assert text(policy) == text(twin)
    one, other = policy.recommend(), twin.recommend()
    assert (one.x.tolist(), one.mean, one.lower, one.upper) == (other.x.tolist(), other.mean, other.lower, other.upper)


class Held:
    """A call that a thread makes, and that stops half-way until it is let go."""

    def __init__(self, monkeypatch, step, call, of=Evidence):
        self.inside, self.opened = threading.Event(), threading.Event()
        real, self.thread = getattr(of, step), threading.Thread(target=call)

        def stop(*arguments):
            result = real(*arguments)
            if threading.current_thread() is self.thread:
                self.inside.set()
                assert self.opened.wait(PATIENCE)
            return result

        with monkeypatch.context() as patched:
            patched.setattr(of, step, stop)
            self.thread.start()
            assert self.inside.wait(PATIENCE)

    def let_go(self):
        self.opened.set()
        self.thread.join()


def played(name, rounds=3):
    policy = MAKE[name]()
    for i in range(rounds):
        policy.tell(policy.ask(), 0.1 * i)
    return policy


@pytest.mark.parametrize("step", ["learn", "ask"])
@pytest.mark.parametrize("name", MAKE)
def test_a_call_of_another_thread_is_undone_in_a_child(monkeypatch, name, step):
    policy = played(name, 1)
    query, before = policy.ask(), text(policy)
    held = Held(monkeypatch, step, policy.ask if step == "ask" else lambda: policy.tell(query, 0.7))
    try:
        in_a_child(lambda: works(policy, before))
    finally:
        held.let_go()
    assert text(policy) != before  # here the call went on, and returned
    works(policy)


def test_a_call_that_has_drawn_is_undone_with_what_it_drew(monkeypatch):
    policy = played("thompson")
    before, expected = text(policy), played("thompson").ask()
    held = Held(monkeypatch, "ask", policy.ask)

    def check():
        assert text(policy) == before
        assert np.array_equal(policy.ask().x, expected.x)

    try:
        in_a_child(check)
    finally:
        held.let_go()


def test_a_property_that_another_thread_is_computing_is_computed_again(monkeypatch):
    """`functools.cached_property` of Python 3.11 holds a lock of the whole class meanwhile."""
    policy = played("auto", 6)
    before = text(policy)
    held = Held(monkeypatch, "least", policy.ask, of=Outcomes)  # in `Turn.least`, which every choice reads
    try:
        in_a_child(lambda: works(policy, before))
    finally:
        held.let_go()


def test_a_policy_that_no_thread_was_using_is_left_as_it_is():
    policy = played("gp-ucb")
    posterior = policy.posterior

    def check():
        works(policy)
        assert policy.posterior is posterior

    in_a_child(check)


def test_a_thread_that_forks_inside_its_own_call_goes_on_with_it(monkeypatch):
    policy = played("gp-ucb")
    query = policy.ask()
    real = Evidence.learn

    def forks(*arguments):
        real(*arguments)
        monkeypatch.setattr(Evidence, "learn", real)
        in_a_child(lambda: None)

    monkeypatch.setattr(Evidence, "learn", forks)
    thread = threading.Thread(target=lambda: policy.tell(query, 0.7))
    thread.start()
    thread.join()
    assert policy.t == 4
    works(policy)


@pytest.mark.parametrize(("name", "rounds"), [("gp-ucb", 3), pytest.param("auto", 12, marks=pytest.mark.slow)])
def test_copies_are_mended_too(monkeypatch, name, rounds):
    policy = played(name, rounds)
    copies = [policy, copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))]  # made here
    for each in copies:
        query = each.ask()
        before = text(each)
        held = Held(monkeypatch, "learn", lambda each=each, query=query: each.tell(query, 0.7))
        try:
            in_a_child(lambda each=each, before=before: works(each, before))
        finally:
            held.let_go()


def test_a_child_does_not_write_to_the_journal_of_a_call_under_way(tmp_path, monkeypatch):
    policy = MAKE["gp-ucb"]()
    policy.journal(tmp_path / "a.journal")
    query = policy.ask()
    before, written = text(policy), (tmp_path / "a.journal").read_bytes()
    held = Held(monkeypatch, "learn", lambda: policy.tell(query, 0.7))
    try:
        in_a_child(lambda: works(policy, before))
        assert (tmp_path / "a.journal").read_bytes() == written
    finally:
        held.let_go()
    assert text(ms.load(tmp_path / "a.journal")) == text(policy)


def test_policies_are_still_collected():
    before = len(threads._FORKABLE)
    references = [weakref.ref(played("gp-ucb")) for _ in range(3)]
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
    assert len(threads._FORKABLE) <= before


@pytest.mark.parametrize(
    ("name", "children", "most"),
    [
        ("gp-ucb", 12, 40),
        pytest.param("gp-ucb", 100, 40, marks=pytest.mark.slow),
        pytest.param("auto", 20, 12, marks=pytest.mark.slow),
    ],
)
def test_children_while_another_thread_asks_and_tells(name, children, most):
    playing, done, wrong = [played(name, 6)], threading.Event(), []

    def loop():
        try:
            while not done.is_set():
                policy = playing[0]
                query = policy.ask()
                policy.tell(query, float(np.sin(query.id)))
                if policy.t > most:  # so that a child has not ever more to replay
                    playing[0] = played(name, 6)
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        for _ in range(children):
            in_a_child(lambda: works(playing[0]))
    finally:
        done.set()
        thread.join()
    assert not wrong
