"""`ms.until`: when loops stop, what they say, and that they change nothing by looking."""

import dataclasses
import json
import logging

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec import experiments
from misspec.errors import InvalidInput
from misspec.evaluation.loop import Drive
from misspec.evaluation.stopping import EVERY, FEWEST, Until, Watch
from misspec.integrations import suggest as by_hand
from misspec.policies.auto import learnt

BOX = ms.Box([(0, 1)] * 2)
AREA = BOX.grid(12)
GRID = ms.Box([(0, 1)]).grid(30)
MODEL = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
GUARANTEED = {
    "gp": lambda: ms.GPUCB(GRID, MODEL),
    "phased": lambda: ms.PhasedUncertaintySampling(GRID, MODEL, horizon=200),
    "balancing": lambda: ms.RegretBalancing(GRID, MODEL, horizon=200),
}


def hill(x):
    return -((x[0] - 0.3) ** 2) - (x[-1] - 0.6) ** 2


@dataclasses.dataclass(frozen=True)
class At(Until):
    """Stops where it is told to, whatever the policy says."""

    when: tuple[int, ...] = ()

    def why(self, policy):
        return "enough" if policy.t in self.when else None


def at(*when):
    return At(None, 10, 0.1, None, when=when)


def told(n, seed=0, domain=AREA, f=hill):
    policy = ms.Auto(domain, seed=seed)
    for _ in range(n):
        query = policy.ask()
        policy.tell(query, f(query.x))
    return policy


# -- the rule --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gain": 0.0}, "gain must be"),
        ({"gain": float("nan")}, "gain must be"),
        ({"gain": "much"}, "gain must be"),
        ({"within": 0}, "within must be"),
        ({"within": 1001}, "within must be"),
        ({"chance": 0.0}, "chance must be"),
        ({"chance": 1.0}, "chance must be"),
        ({"gap": -1.0}, "gap must be"),
        ({"gap": 0.1, "gain": 0.1}, "gap= is a rule of its own"),
        ({"gap": 0.1, "chance": 0.2}, "gap= is a rule of its own"),
    ],
)
def test_what_is_no_rule(given, said):
    with pytest.raises(InvalidInput, match=said):
        ms.until(**given)


@pytest.mark.parametrize(("now", "before", "stops"), [(0.05, 0.05, True), (0.051, 0.0, False), (0.0, 0.051, False)])
def test_the_chance_must_be_small_twice(monkeypatch, now, before, stops):
    policy, asked = told(20), []

    def chance(policy, gain, within):
        asked.append((policy.t, gain, within))
        return now if policy.t == 20 else before

    monkeypatch.setattr(learnt, "chance", chance)
    reason = ms.until(gain=0.02).reason(policy)
    assert (reason is not None) == stops
    assert asked == [(20, 0.02, 10), (15, 0.02, 10)][: 1 if now > 0.05 else 2]
    if stops:
        assert reason == (
            "stopped after 20 evaluations: the chance that 10 more improve the best by 0.02 or more is 5 % (limit "
            "5 %), and was 5 % 5 results before"
        )


def test_the_earlier_model_is_the_one_of_then():
    policy = ms.Auto(BOX, seed=1, minimize=True)
    for t in range(20):
        query = policy.ask()
        policy.tell(query, -hill(query.x), noise=0.01 if t % 3 else None)
        if t == 3:
            policy.drop(policy.ask())
        if policy.t == 15:
            then = policy.chance(0.01, 7)
    state = json.dumps(policy.state())
    assert learnt.chance(learnt.earlier(policy, 5), 0.01, 7) == then
    assert json.dumps(policy.state()) == state


def test_too_few_results_or_equal_ones_stop_nothing(monkeypatch):
    monkeypatch.setattr(learnt, "chance", lambda *_: 0.0)
    rule = ms.until()
    assert rule.reason(told(FEWEST - 1)) is None
    assert rule.reason(told(FEWEST)).startswith(f"stopped after {FEWEST} evaluations: ")
    assert rule.reason(told(FEWEST, f=lambda _: 1.0)) is None
    unread = ms.Auto(AREA)
    unread.observe(np.random.default_rng(0).random((20, 2)), np.arange(20.0))
    assert rule.reason(unread) is None  # it has no model until it is asked


@pytest.mark.parametrize("make", GUARANTEED.values(), ids=GUARANTEED)
def test_a_gap_stops_what_guarantees_one(make):
    policy = make()
    found = ms.optimize(policy, hill, 200, until=ms.until(gap=1.5))
    gap = policy.recommend().gap
    assert gap <= 1.5
    assert len(found) < 200
    assert found.reason == (
        f"stopped after {policy.t} evaluations: what is recommended is at most {gap:.3g} from the best possible (limit "
        "1.5), with probability 0.9"
    )
    assert ms.until(gap=0.5 * gap).reason(policy) is None
    unsure = ms.GPUCB(GRID, MODEL, width=2.0)
    assert ms.optimize(unsure, hill, 60, until=ms.until(gap=1.5)).reason.endswith("if its bands hold")


@pytest.mark.parametrize(
    ("policy", "rule", "said"),
    [
        (lambda: ms.GPUCB(GRID, MODEL), ms.until(), r"GPUCB says no chance of a gain.*ms\.until\(gap=…\)"),
        (lambda: ms.UniformSampling(GRID, MODEL), ms.until(gain=1.0), r"UniformSampling says no chance"),
        (lambda: ms.Auto(GRID), ms.until(gap=0.1), r"the bands of Auto guarantee no gap: .* ms\.until\(\)"),
        (lambda: ms.Auto(ms.Open(2)), ms.until(), "is about a whole domain"),
        (lambda: ms.Auto(GRID), 0.1, r"until must be .* ms\.until\(\) makes one"),
    ],
)
def test_rules_that_do_not_fit_are_refused_at_once(policy, rule, said):
    def never(_):
        raise AssertionError

    with pytest.raises(InvalidInput, match=said):
        ms.optimize(policy(), never, 20, until=rule)


# -- loops ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("domain", "batch"), [(BOX, 1), (AREA, 4)])
def test_a_run_that_stops_is_the_beginning_of_one_that_does_not(domain, batch, caplog, monkeypatch):
    monkeypatch.setattr(ms.Policy, "clock", staticmethod(lambda: 0.0))
    stopped, through = ms.Auto(domain, seed=0), ms.Auto(domain, seed=0)
    with caplog.at_level(logging.INFO, "misspec.evaluation"):
        found = ms.optimize(stopped, hill, 60, batch=batch, until=ms.until())
    n = len(found)
    assert FEWEST <= n < 60
    assert n % batch == 0
    assert found.reason in caplog.messages
    assert found.reason.startswith(f"stopped after {n} evaluations: the chance that 10 more improve the best by ")
    whole = ms.optimize(through, hill, n, batch=batch)
    assert whole.reason is None
    np.testing.assert_array_equal(found.x, whole.x)
    np.testing.assert_array_equal(found.y, whole.y)
    assert stopped.state() == through.state()


def test_it_is_asked_after_every_fifth_result():
    looked = []

    class Noted(At):
        def why(self, policy):
            looked.append(policy.t)

    ms.optimize(ms.Auto(AREA), hill, 17, until=Noted(None, 10, 0.1, None))
    assert looked == [0, 5, 10, 15]
    looked.clear()
    found = ms.optimize(ms.Auto(AREA), hill, 4, until=ms.until())
    assert (len(found), found.reason) == (4, None)


class InTurn:
    """An evaluator of three slots, whose results come back one by one in the order asked."""

    def __init__(self):
        self.running, self.most = [], 0

    def slots(self):
        return 3

    def submit(self, jobs):
        self.running += jobs
        self.most = max(self.most, len(self.running))

    def collect(self, *, wait):
        if not wait:
            return []
        id_, x = self.running.pop(0)
        return [(id_, hill(x))]

    def close(self):
        assert not self.running, "what was in flight is awaited"


@pytest.mark.parametrize(("when", "n"), [((5, 7), 7), ((5,), 30), ((5, 15, 17), 17), ((30,), 30)])
def test_what_is_in_flight_comes_in_and_is_asked_about(when, n):
    policy, crew = ms.Auto(AREA), InTurn()
    found = Drive(policy, lambda: crew, 30, until=at(*when)).run()
    assert (len(found), policy.pending, crew.most) == (n, [], 3)
    assert found.reason == (None if n == 30 else f"stopped after {n} evaluations: enough")


def test_there_is_no_reason_where_all_were_played():
    found = Drive(ms.Auto(AREA), InTurn, 27, until=at(25, 27)).run()  # met with two in flight, which are the last
    assert (len(found), found.reason) == (27, None)


def test_what_was_pending_comes_first():
    policy = told(5)
    policy.ask(2)
    found = ms.optimize(policy, hill, 5, workers=1, until=at(5, 7))
    assert (len(found), found.reason) == (2, "stopped after 7 evaluations: enough")


@pytest.mark.parametrize("processes", [False, True])
def test_workers_stop_too(processes):
    from evaluations import smooth  # which lives in a module

    policy = ms.Auto(ms.Box([(0, 1)]))
    found = ms.optimize(policy, smooth, 40, workers=2, processes=processes, until=at(*range(10, 14)))
    assert 10 <= len(found) < 14
    assert policy.pending == []
    assert found.reason == f"stopped after {len(found)} evaluations: enough"


def test_a_run_that_had_stopped_stops_at_once(tmp_path):
    first = ms.optimize(ms.Auto(AREA, seed=0), hill, 60, until=ms.until(), save=tmp_path / "p")
    policy = ms.load(tmp_path / "p")
    again = ms.optimize(policy, hill, 60 - policy.t, until=ms.until(), save=tmp_path / "p")
    assert (len(again), again.best, again.reason) == (0, None, first.reason)
    assert again.recommendation.x.tolist() == first.recommendation.x.tolist()
    without = ms.optimize(policy, hill, 3)
    assert (len(without), without.reason) == (3, None)

    calls = []

    def interrupted(x):
        calls.append(x)
        if len(calls) == 13:
            raise KeyboardInterrupt
        return hill(x)

    with pytest.raises(KeyboardInterrupt):
        ms.optimize(ms.Auto(AREA, seed=0), interrupted, 60, until=ms.until(), save=tmp_path / "q")
    policy = ms.load(tmp_path / "q")
    assert len(policy.pending) == 1  # which is evaluated before the rule is asked
    rest = ms.optimize(policy, hill, 60 - policy.t, until=ms.until(), save=tmp_path / "q")
    assert rest.reason == first.reason
    np.testing.assert_array_equal(policy.observations.x, first.x)


def test_functions_that_fail_and_rules_that_are_interrupted(monkeypatch):
    def often(x):
        if x[0] > 0.5:
            raise ValueError
        return hill(x)

    found = ms.optimize(ms.Auto(AREA), often, 12, on_error="drop", until=at(10))
    assert (len(found), found.reason) == (10, "stopped after 10 evaluations: enough")

    policy = ms.Auto(AREA, seed=0)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(learnt, "chance", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ms.optimize(policy, hill, 60, until=ms.until())
    monkeypatch.undo()
    assert (policy.t, policy.pending) == (15, [])
    undisturbed = ms.Auto(AREA, seed=0)
    ms.optimize(undisturbed, hill, 15)
    assert policy.ask().x.tolist() == undisturbed.ask().x.tolist()


def test_nothing_is_evaluated_where_nothing_is_wanted():
    for policy in (ms.Auto(AREA), ms.GPUCB(GRID, MODEL)):
        found = ms.optimize(policy, hill, 0)
        assert (len(found), found.best, found.reason) == (0, None, None)
        assert found.x.shape == (0, policy.domain.dimension)
        assert "0 results" in repr(found)


def test_a_watch_forgets_a_reason_that_no_longer_holds():
    policy = told(5)
    watch = Watch(at(5), lambda: policy)
    assert watch.met(5, running=True)
    policy.observe([[0.5, 0.5]], [0.0])
    assert watch.met(6, running=True)  # not asked while something runs
    assert not watch.met(6, running=False)
    assert watch.reason is None
    assert not Watch(None, lambda: policy).met(5, running=False)
    assert not Watch(at(5), lambda: None).met(5, running=False)
    assert EVERY == 5


# -- simulations -------------------------------------------------------------------------------------------------------


class Noise:
    """Of a standard deviation that may be zero."""

    def __init__(self, std):
        self.std = std

    def draw(self, rng, n):
        return self.std * rng.standard_normal(n)

    def at(self, index, draw):  # noqa: ARG002  # the same at every candidate
        return draw


def problem(n=8, noise=0.0):
    domain = ms.Finite(np.random.default_rng(1).random((n, 2)))
    values = np.array([hill(x) for x in domain.points])
    return ms.problems.Problem("list", domain, MODEL, values, values, 0.0, sampler=Noise(noise))


def test_a_trace_is_shorter_where_it_stops():
    known = problem(40, 0.05)
    trace = ms.simulate(ms.Auto(known.domain), known, 30, until=at(10))
    whole = ms.simulate(ms.Auto(known.domain), known, 30)
    assert (len(trace), trace.facts["reason"]) == (10, "stopped after 10 evaluations: enough")
    assert "reason" not in whole.facts
    for name in ("index", "y", "regret", "mean"):
        np.testing.assert_array_equal(getattr(trace, name), getattr(whole, name)[:10])


@pytest.mark.parametrize("aim", ["best", "earn"])
def test_where_nothing_is_left_to_try_the_best_is_played(aim):
    known = problem()
    trace = ms.simulate(ms.Auto(known.domain, repeats=False, aim=aim), known, 20, batch=3)
    assert len(trace) == 20
    assert sorted(trace.index[:8]) == list(range(8))
    assert trace.regret[8:].tolist() == [0.0] * 12
    assert trace.recommended_regret == 0.0
    table = experiments.compare({"auto": lambda p: ms.Auto(p.domain, repeats=False, aim=aim)}, known, 12, 2, cores=1)
    assert [len(curve) for curve in table["curve"]] == [12, 12]


# -- files of results --------------------------------------------------------------------------------------------------


def test_suggest_says_whether_to_stop(tmp_path):
    rows = [(a / 6, b / 6) for a in range(7) for b in range(7)]
    candidates, results = tmp_path / "candidates.csv", tmp_path / "results.csv"
    candidates.write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in rows))
    order = np.random.default_rng(0).permutation(len(rows)).tolist()

    def said(n, f=hill):
        results.write_text("a,b,y\n" + "".join(f"{rows[i][0]},{rows[i][1]},{f(rows[i])}\n" for i in order[:n]))
        return by_hand.suggest(candidates, results, "y", batch=2)

    assert said(4).stop == ""
    assert said(8).stop == "Stop? Not yet: that takes a chance of at most 5 % twice, 5 results apart."
    late = said(40)
    assert late.stop.startswith("Stop? Yes: the chance that 10 more improve the best by ")
    assert len(late.rows) == 2
    everything = said(49)
    assert everything.rows == []
    assert everything.stop == "Stop? Yes: nothing is left to try."
    assert everything.notes == ["Every candidate has a result: nothing is left to try."]


def test_without_failures_the_rest_is_suggested_not_called_a_failure(tmp_path):
    """Coarse results without noise: the model would repeat one that it knows."""
    candidates, results = tmp_path / "candidates.csv", tmp_path / "results.csv"
    candidates.write_text("a\n" + "".join(f"{a}\n" for a in range(30)))
    order = np.random.default_rng(0).permutation(30).tolist()
    results.write_text("a,y\n" + "".join(f"{a},{-abs(a - 15)}\n" for a in order[:26]))
    found = by_hand.suggest(candidates, results, "y", batch=5)
    assert {row.values["a"] for row in found.rows} == set(order[26:])
    assert found.notes == ["Every candidate has a result or is suggested here: nothing else is left to try."]
