"""A call that fails half-way, whatever fails, changes nothing; and several threads can share a policy."""

import copy
import json
import logging
import pickle
import signal
import sys
import threading

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from cover import covering

POINTS = np.random.default_rng(0).random((60, 2))
DOMAIN, BOX = ms.Finite(POINTS), ms.Box([(0, 1)] * 2)


class Moody:
    """An RBF that fails at its n-th call from now on, once or until it is told otherwise."""

    def __init__(self, error=RuntimeError):
        self.left, self.error, self.calls = None, error, 0

    def __call__(self, X, Z):
        self.calls += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise self.error("not now")
        return RBF(0.3)(X, Z)

    def diag(self, X):
        return np.ones(len(X))

    def __deepcopy__(self, memo):
        return self


MAKE = {
    "gp-ucb": lambda d, m: ms.GPUCB(d, m, grounded=True),
    "ec": lambda d, m: ms.ECGPUCB(d, m, epsilon=0.1),
    "phased": lambda d, m: ms.PhasedUncertaintySampling(d, m, horizon=200),
    "balancing": lambda d, m: ms.RegretBalancing(d, m, horizon=100),
    "balancing own": lambda d, m: ms.RegretBalancing(d, m, horizon=100, evidence="own"),
    "thompson": lambda d, m: ms.ThompsonSampling(d, m),
}


def started(name, domain, kernel):
    policy = MAKE[name](domain, ms.Model(kernel, norm_bound=2.0, noise=0.1))
    rng = np.random.default_rng(1)
    for _ in range(7):
        query = policy.ask()
        policy.tell(query, float(np.sin(5 * query.x[0]) + 0.1 * rng.standard_normal()))
    return policy


def answers(policy):
    probes = POINTS[:20] if not isinstance(policy, ms.PhasedUncertaintySampling) else policy.domain.points
    band = policy.band(probes)
    counts = getattr(policy, "counts", None)
    return json.dumps(policy.state()), band.lower.tolist(), band.upper.tolist(), policy.t, policy.posterior.t, counts


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("name", MAKE)
def test_a_kernel_that_fails_at_any_of_its_calls_leaves_no_trace(name, error):
    """Every call of the kernel inside every kind of call is made to fail in turn."""
    kernel = Moody(error)
    policy = started(name, DOMAIN, kernel)
    batch = policy.ask(3)
    fresh = [i for i in range(60) if i not in {q.index for q in batch}][:4]
    calls = {
        "tell": lambda p: p.tell(batch, [0.1, 0.2, 0.3]),
        "ask": lambda p: p.ask(3),
        "drop": lambda p: p.drop(batch[1]),
    }
    if policy.abilities.takes_data:
        calls["observe"] = lambda p: p.observe(fresh, [0.1, 0.2, 0.3, 0.4])
    failures = 0
    for call in calls.values():
        before, n = answers(policy), 0
        while n < 60:
            twin = copy.deepcopy(policy)
            kernel.left = n
            try:
                call(twin)
            except (ms.InvalidInput, KeyboardInterrupt):
                failures += 1
                kernel.left = None
                assert answers(twin) == before
                assert [q.id for q in twin.pending] == [q.id for q in policy.pending]
                again, expected = copy.deepcopy(policy), twin
                call(again)
                call(expected)
                assert answers(again) == answers(expected), "a retry is as if nothing had failed"
                n += 1 if n < 12 else 7
                continue
            except ms.AwaitingResults:
                pass
            kernel.left = None
            break
    assert failures > 3


def test_a_kernel_that_stays_broken_can_be_waited_for():
    """While it fails nothing can be chosen, but what pends and the state are there; afterwards all is as before."""

    class Broken(Moody):
        broken = False

        def __call__(self, X, Z):
            if self.broken:
                raise RuntimeError("gone")
            return super().__call__(X, Z)

    kernel = Broken()
    policy = started("ec", DOMAIN, kernel)
    query = policy.ask()
    before = answers(policy)
    kernel.broken = True
    fresh = next(i for i in range(60) if policy.posterior.rows[i] < 0)
    for error, says in ((ms.InvalidInput, "gone"), (ms.InvalidInput, "cannot be undone yet: .*gone.*every call tries")):
        with pytest.raises(error, match=says):
            policy.observe([fresh], [0.1])
        assert [q.id for q in policy.pending] == [query.id]
        assert json.dumps(policy.state()) == before[0]
        assert policy.t == before[3]
    kernel.broken = False
    assert answers(policy) == before


def test_a_batch_that_fails_in_a_later_posterior_counts_nowhere():
    kernel = Moody()
    policy = started("balancing own", BOX, kernel)
    before = [p.t for p in policy.posteriors]
    for left in range(40):
        kernel.left = left
        try:
            policy.observe(np.array([[0.123, 0.456], [0.777, 0.888]]), [0.5, 0.6])
        except ms.InvalidInput:
            assert [p.t for p in policy.posteriors] == before
            continue
        finally:
            kernel.left = None
        break
    assert [p.t for p in policy.posteriors] == [t + 2 for t in before]
    twin = ms.restore(policy.state(), kernel=kernel)
    np.testing.assert_array_equal(twin.band(POINTS).lower, policy.band(POINTS).lower)


@pytest.mark.parametrize(("name", "kind"), covering(["gp-ucb", "ec", "balancing", "balancing own"], ["arms", "box"]))
def test_sixteen_threads(name, kind):
    domain = DOMAIN if kind == "arms" else BOX
    policy = MAKE[name](domain, ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1))
    failures, told = [], []
    rounds = 12 if domain is DOMAIN else 2

    def work(number):
        rng = np.random.default_rng(number)
        try:
            for turn in range(rounds):
                batch = policy.ask(2) if turn % 3 == 0 else [policy.ask()]
                policy.band(POINTS[:4])
                _ = policy.pending, policy.observations, policy.information, policy.state(), repr(policy)
                if turn % 4 == 3:
                    policy.drop(batch.pop())
                if turn % 5 == 2:
                    policy.observe(POINTS[rng.integers(60, size=2)], rng.random(2))
                    told.append(2)
                policy.tell(batch, rng.random(len(batch)))
                told.append(len(batch))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert policy.t == sum(told) == len(policy.observations.y)
    assert not policy.pending
    np.testing.assert_array_equal(ms.restore(policy.state()).band(POINTS).upper, policy.band(POINTS).upper)


def test_observations_are_what_was_told_in_order():
    policy = ms.GPUCB(DOMAIN, ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1))
    assert policy.observations.x.shape == (0, 2)
    batch = policy.ask(3)
    policy.tell(batch[2], 0.3)
    policy.observe([5, 7], [0.5, 0.7])
    policy.drop(batch[0])
    policy.tell(batch[1], 0.2)
    found = policy.observations
    np.testing.assert_array_equal(found.y, [0.3, 0.5, 0.7, 0.2])
    np.testing.assert_array_equal(found.ids, [2, -1, -1, 1])
    np.testing.assert_array_equal(found.x, np.array([batch[2].x, POINTS[5], POINTS[7], batch[1].x]))


def test_an_interrupt_while_undoing_changes_nothing_either():
    """A second Ctrl-C, in the middle of taking a call back."""

    class Interrupting(logging.Handler):
        def emit(self, record):  # noqa: ARG002
            raise KeyboardInterrupt

    class Failing(ms.GPUCB):
        def on_tell(self, asked, y):
            super().on_tell(asked, y)
            if y == 0.3:
                raise ZeroDivisionError

    policy, handler = Failing(DOMAIN, ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1), grounded=True), Interrupting()
    batch = policy.ask(3)
    before = answers(policy)
    logging.getLogger("misspec").addHandler(handler)
    try:
        with pytest.raises((KeyboardInterrupt, ZeroDivisionError)):
            policy.tell(batch, [0.1, 0.2, 0.3])
    finally:
        logging.getLogger("misspec").removeHandler(handler)
    assert answers(policy) == before
    policy.tell(batch, [0.1, 0.2, 0.25])
    assert policy.t == 3


class AtFunction:
    """Ctrl-C at the beginning of every function that a call runs through, one function per call; where: in these files.

    Not in those that clean up, where Python itself leaves an error out.
    """

    def __init__(self, where):
        self.where, self.done, self.raised = where, set(), None

    def __call__(self, frame, event, _):
        code = frame.f_code
        fresh = self.where in code.co_filename and code not in self.done and code.co_name not in ("__del__", "__exit__")
        if event == "call" and self.raised is None and fresh:
            self.done.add(code)
            self.raised = code
            raise KeyboardInterrupt

    def interrupted(self, call):
        """The exception that a call ends with, and the function in which it was interrupted."""
        self.raised, before = None, sys.gettrace()
        sys.settrace(self)
        try:
            call()
        except BaseException as error:
            return error, self.raised
        finally:
            sys.settrace(before)
        return None, self.raised


@pytest.mark.parametrize("where", ["_internal.py", pytest.param("/numpy/", marks=pytest.mark.slow)])
def test_an_interrupt_in_any_function_comes_out_as_one(where):
    """Also in functions that NumPy calls from C, where it may make another error of it."""
    policy = ms.Auto(ms.Space({"a": ms.Float(0, 1), "b": ms.Int(0, 5), "c": ms.Choice(["x", "y"])}))
    for i in range(6):
        policy.tell(policy.ask(), float(np.sin(i)))
    trace, told = AtFunction(where), 0
    while told < 2:
        before = json.dumps(policy.state())
        if policy.pending:
            error, function = trace.interrupted(lambda: policy.tell(policy.pending[0], 0.5))
        else:
            error, function = trace.interrupted(policy.ask)
        if function is None:
            assert error is None
            told += not policy.pending
        else:
            assert isinstance(error, KeyboardInterrupt), (function, error)
            assert json.dumps(policy.state()) == before


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")
def test_a_storm_of_interrupts_brings_nothing_else():
    """At times that the machine chooses: whichever they are, nothing but the interrupt comes out."""
    rng = np.random.default_rng(0)
    policy = ms.Auto(ms.Space({"a": ms.Float(0, 1), "b": ms.Int(0, 5), "c": ms.Choice(["x", "y"])}))
    for i in range(6):
        policy.tell(policy.ask(), float(np.sin(i)))

    def interrupt(*_):
        raise KeyboardInterrupt

    before, interrupted = signal.signal(signal.SIGALRM, interrupt), 0
    try:
        for _ in range(150):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 10.0 ** rng.uniform(-4, -0.5))  # 0.1 to 300 ms
                    policy.tell(policy.pending[0], 0.5) if policy.pending else policy.ask()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 15
    twin = ms.restore(policy.state())
    for each in (policy, twin):
        for query in each.pending:
            each.tell(query, 0.5)
        each.ask()
    assert json.dumps(policy.state()) == json.dumps(twin.state())


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["events"][0][1].update(index=999),
        lambda s: s["events"].append(["tell", 77, 0.1]),
        lambda s: s["events"].append(["tell", 0]),
        lambda s: s["events"][0][1].update(details={}),
    ],
)
def test_states_that_make_no_sense_are_storage_errors(change):
    policy = ms.RegretBalancing(DOMAIN, ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1), horizon=20)
    policy.tell(policy.ask(), 0.1)
    state = json.loads(json.dumps(policy.state()))
    change(state)
    with pytest.raises(ms.StorageError):
        ms.restore(state)


def test_pickles_are_whole_while_others_tell():
    policy = ms.GPUCB(DOMAIN, ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1))
    failures = []

    def work():
        try:
            for i in range(40):
                policy.observe([i], [0.1])
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(10):
        twin = pickle.loads(pickle.dumps(policy))
        assert twin.t == len(twin.observations)
        twin.recommend()
    thread.join()
    assert not failures
