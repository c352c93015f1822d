"""Delayed results and logs: thousands of queries that pend, told in any order or dropped; rows by the ten thousand."""

import copy
import functools
import json

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern

import misspec as ms
from misspec.posterior import Posterior
from misspec.posterior.regression import Regression

N = 3000
LINEAR = ms.Model(DotProduct(sigma_0=0.2), norm_bound=2.0, noise=0.1)
ROUGH = ms.Model(Matern(0.7, nu=2.5), norm_bound=2.0, noise=0.1)
SMOOTH = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1)
ARMS = ms.Finite(np.random.default_rng(0).random((40, 2)))
BOX = ms.Box([(0, 1)] * 2)


FEW = 250  # of the policies that are the same but for how they choose


def sets(d, seed=0):
    """Action sets, some of whose points come again and again."""
    rng = np.random.default_rng(seed)
    known = 0.45 * rng.random((20, d))
    return [np.concatenate([0.45 * rng.random((3, d)), known[rng.integers(0, 20, 1)]]) for _ in range(N)]


OPEN, ON_A_BOX = sets(4), sets(2)
WORLDS = {
    "open, balancing": (lambda: ms.RegretBalancing(ms.Open(4), LINEAR, horizon=N), OPEN, N),
    "arms, balancing": (lambda: ms.RegretBalancing(ARMS, SMOOTH, horizon=N, reward_range=0.5), None, N),
    "box, balancing": (lambda: ms.RegretBalancing(BOX, SMOOTH, horizon=N, budget=20, evidence="own"), ON_A_BOX, N),
    "open, gp-ucb": (lambda: ms.GPUCB(ms.Open(4), LINEAR, grounded=True), OPEN, FEW),
    "open, ec": (lambda: ms.ECGPUCB(ms.Open(4), LINEAR, epsilon=0.1, width=2.0), OPEN, FEW),
    "open, ec, a budget": (lambda: ms.ECGPUCB(ms.Open(4), ROUGH, epsilon=0.1, budget=25), OPEN, FEW),
    "open, balancing, a budget": (lambda: ms.RegretBalancing(ms.Open(4), ROUGH, horizon=N, budget=25), OPEN, FEW),
    "open, thompson, a budget": (lambda: ms.ThompsonSampling(ms.Open(4), ROUGH, budget=25), OPEN, FEW),
    "arms, gp-ucb": (lambda: ms.GPUCB(ARMS, SMOOTH), None, FEW),
    "arms, ec": (lambda: ms.ECGPUCB(ARMS, SMOOTH, epsilon=0.1), None, FEW),
    "arms, balancing, a budget": (lambda: ms.RegretBalancing(ARMS, SMOOTH, horizon=N, budget=10), None, FEW),
    "box, uniform": (lambda: ms.UniformSampling(BOX, SMOOTH), None, FEW),
    "box, gp-ucb": (lambda: ms.GPUCB(BOX, SMOOTH), ON_A_BOX, FEW),
}
Y = np.random.default_rng(1).standard_normal(N)
ORDERS = {
    "reversed": lambda n: range(n - 1, -1, -1),
    "random": lambda n: np.random.default_rng(3).permutation(n).tolist(),
    "best first": lambda n: np.argsort(-Y[:n]).tolist(),
    "odd ones last": lambda n: [*range(0, n, 2), *range(1, n, 2)],
}


def lost(i):
    """Which queries fail, in the tests in which some do: as many as all can be taken back one by one, and more."""
    return i % 8 == 3


@functools.cache
def asked(world):
    """Queries of which none is told."""
    make, offers, n = WORLDS[world]
    policy = make()
    for i in range(n):
        policy.ask(actions=None if offers is None else offers[i])
    return policy


def told(world, order=None, *, drops=False):
    n, policy = WORLDS[world][2], copy.deepcopy(asked(world))
    for i in range(n) if order is None else ORDERS[order](n):
        policy.drop(i) if drops and lost(i) else policy.tell(i, float(Y[i]))
    return policy


@functools.cache
def in_order(world):
    return told(world)


def agree(one, other, tolerance=1e-9):
    assert (one.t, len(one.pending)) == (other.t, len(other.pending))
    X = 0.45 * np.random.default_rng(4).random((12, one.domain.dimension))
    X = np.concatenate([X, one.observations.x[:8]])
    for a, b in zip(one.posterior.at(X), other.posterior.at(X), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance)
    for a, b in zip(one.band(X), other.band(X), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance)
    assert one.posterior.log_det == pytest.approx(other.posterior.log_det, rel=tolerance)
    for name in ("counts", "active"):
        assert getattr(one, name, None) == getattr(other, name, None)
    for name in ("rewards", "candidate_bounds"):
        np.testing.assert_allclose(getattr(one, name, 0.0), getattr(other, name, 0.0), rtol=tolerance, atol=tolerance)
    gone = [[(e.base, e.round) for e in getattr(each, "eliminated", [])] for each in (one, other)]
    assert gone[0] == gone[1]
    for a, b in zip(getattr(one, "eliminated", []), getattr(other, "eliminated", []), strict=True):
        assert (a.left, a.right) == (pytest.approx(b.left), pytest.approx(b.right))


@pytest.mark.parametrize("world", WORLDS)
def test_what_pends_in_thousands(world):
    policy, n = asked(world), WORLDS[world][2]
    assert len(policy.pending) == policy.asked == n
    assert [q.id for q in policy.pending] == list(range(n))
    assert policy.t == policy.posterior.t == 0
    assert policy.posterior.log_det == 0.0
    assert policy.guaranteed == policy.claims  # nothing is told, and nothing told out of order


@pytest.mark.parametrize("world", WORLDS)
def test_the_order_of_telling_does_not_matter(world):
    one = in_order(world)
    assert one.t == WORLDS[world][2]
    agree(one, told(world, "random"))


@pytest.mark.parametrize("order", ["reversed", "best first", "odd ones last"])
@pytest.mark.parametrize("world", [world for world, (_, _, n) in WORLDS.items() if n == FEW])
def test_nor_does_an_order_that_somebody_chose(world, order):
    agree(in_order(world), told(world, order))


@pytest.mark.parametrize("world", [world for world in WORLDS if world not in ("arms, balancing", "box, balancing")])
def test_some_are_dropped_on_the_way(world):
    one, other, n = told(world, drops=True), told(world, "reversed", drops=True), WORLDS[world][2]
    assert one.t == n - sum(lost(i) for i in range(n))
    agree(one, other)
    for policy in (one, other):
        assert not policy._evidence._expected
        for posterior in policy.posteriors:
            assert posterior.pending == 0
            assert posterior.pending_information == 0.0


@pytest.mark.parametrize("world", ["open, balancing, a budget", "arms, balancing, a budget"])
def test_balancing_counts_the_told_prefix_alone(world):
    """Eliminations go by it: what was told beyond the first that pends has no say yet."""
    policy, n = copy.deepcopy(asked(world)), WORLDS[world][2]
    for i in range(n - 1, 0, -1):
        policy.tell(i, float(Y[i]))
    assert sum(policy.counts) == 0
    assert policy.eliminated == []
    assert any("told before others" in caveat for caveat in policy.caveats)
    policy.tell(0, float(Y[0]))
    assert sum(policy.counts) == n
    assert not any("told before others" in caveat for caveat in policy.caveats)
    agree(in_order(world), policy)


def test_eliminations_are_the_same_whatever_the_order():
    """Of two bases one is refuted by its rewards: in the same round, by the same sides."""
    model, rng = ms.Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1), np.random.default_rng(5)
    good = ms.Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1, offset=0.7)

    def make():
        return ms.RegretBalancing(
            ms.Open(2),
            model,
            horizon=600,
            bases=[(model, 0.0), (good, 0.4)],
            reward_range=0.3,
            caution="price",
            price=1.0,
        )

    offers, policies = [0.7 * rng.random((5, 2)) for _ in range(600)], [make(), make(), make()]
    for policy in policies:
        for offer in offers:
            policy.ask(actions=offer)
    noise = 0.05 * rng.standard_normal(600)
    y = [float(q.details["base"]) + noise[q.id] for q in policies[0].pending]
    for policy, order in zip(policies, (range(600), range(599, -1, -1), rng.permutation(600)), strict=True):
        for i in order:
            policy.tell(int(i), y[i])
    assert [e.base for e in policies[0].eliminated] == [0]
    assert policies[0].eliminated == policies[1].eliminated == policies[2].eliminated
    assert policies[0].counts == policies[1].counts == policies[2].counts


# -- what pends costs nothing ------------------------------------------------------------------------------------------


class Counting:
    """A Matérn kernel that counts the values that it computes."""

    def __init__(self):
        self.values = 0

    def __call__(self, X, Z):
        self.values += len(X) * len(Z)
        return Matern(0.7, nu=2.5)(X, Z)

    def diag(self, X):
        self.values += len(X)
        return np.ones(len(X))

    def __deepcopy__(self, memo):
        return self


@pytest.fixture
def steps(monkeypatch):
    """How many observations regressions were given, or had taken back, one by one."""
    count = {"made": 0, "taken back": 0, "recomputed": 0}

    def counted(name, key):
        method = getattr(Regression, name)

        @functools.wraps(method)
        def wrapper(self, *args):
            count[key] += 1
            return method(self, *args)

        monkeypatch.setattr(Regression, name, wrapper)

    counted("expect", "made")
    counted("remove", "taken back")
    counted("renew", "recomputed")
    return count


@pytest.mark.parametrize(
    "make",
    [
        lambda k: ms.GPUCB(ms.Open(4), ms.Model(k, norm_bound=2.0, noise=0.1), budget=12),
        lambda k: ms.ECGPUCB(ms.Open(4), ms.Model(k, norm_bound=2.0, noise=0.1), epsilon=0.1, budget=12),
        lambda k: ms.RegretBalancing(ms.Open(4), ms.Model(k, norm_bound=2.0, noise=0.1), horizon=N, budget=12),
        lambda k: ms.ThompsonSampling(ms.Open(4), ms.Model(k, norm_bound=2.0, noise=0.1), budget=12),
        lambda k: ms.GPUCB(BOX, ms.Model(k, norm_bound=2.0, noise=0.1), budget=12),
    ],
    ids=["gp-ucb", "ec", "balancing", "thompson", "gp-ucb on a box"],
)
def test_an_ask_computes_as_much_whatever_pends(make, steps):
    kernel = Counting()
    policy = make(kernel)
    offers = OPEN if policy.domain.dimension == 4 else ON_A_BOX

    def cost(rounds, call):
        kernel.values, before = 0, dict(steps)
        for i in rounds:
            call(i)
        return kernel.values, steps["made"] - before["made"]

    for i in range(200):  # the dictionary fills
        policy.ask(actions=offers[i])
    rank = policy.posterior.rank
    early = cost(range(200, 240), lambda i: policy.ask(actions=offers[i]))
    for i in range(240, 1500):
        policy.ask(actions=offers[i])
    late = cost(range(1500, 1540), lambda i: policy.ask(actions=offers[i]))
    if policy.posterior.rank == rank:
        assert late[0] <= early[0] + 12 * 40, "values of the kernel"
    assert late[1] == early[1] <= 41, "one hallucination each"
    tells = cost(range(40), lambda i: policy.tell(i, 0.1))
    assert tells[1] <= 41, "one step each"
    more = cost(range(1539, 1300, -1), lambda i: policy.tell(i, 0.1))
    assert more[1] <= 245
    assert steps["recomputed"] <= 3


def test_drops_cost_a_step_each_and_now_and_then_all_of_what_is_left(steps):
    policy = ms.GPUCB(ms.Open(4), LINEAR)
    for i in range(1000):
        policy.ask(actions=OPEN[i])
    before = steps["made"]
    for i in range(0, 1000, 2):
        policy.drop(i)
    assert steps["taken back"] >= 490
    assert steps["made"] - before <= 2 * 1000  # anew after every 256


@pytest.mark.parametrize("budget", [None, 6])
def test_nothing_is_kept_of_what_was_told_or_dropped(budget):
    model = ROUGH if budget else LINEAR
    policy = ms.ECGPUCB(ms.Open(4), model, epsilon=0.1, budget=budget)
    for i in range(60):
        policy.ask(actions=OPEN[i])
    for i in np.random.default_rng(0).permutation(60).tolist():
        policy.drop(i) if i % 3 else policy.tell(i, 0.1)
    assert not policy.pending
    assert not policy._evidence._asked
    assert not policy._evidence._expected
    assert policy.posterior.pending == 0
    assert policy.posterior._base.with_pending is None
    assert not getattr(policy.posterior._base, "_awaited", {}), "features of what was given up"


def test_an_arm_that_pends_a_thousand_times():
    """Its results wait for those asked before: no result costs a walk along all of them."""

    class Watched(list):
        looked = 0

        def __iter__(self):
            for each in super().__iter__():
                Watched.looked += 1
                yield each

    own = ms.theory.own_bands.OwnBands(0.1, 0.1, 1)
    n = 1500
    for query in range(n):
        own.ask(0, query)
    waiting = own._known[0].uncounted
    if isinstance(waiting, list):
        own._known[0].uncounted = Watched(waiting)
    for query in range(n - 1, -1, -1):
        own.tell(0, 0.5, query)
    assert own.lower[0] > 0.4
    assert Watched.looked <= 20 * n


@pytest.mark.parametrize("world", ["open, balancing", "open, ec, a budget", "arms, gp-ucb", "box, uniform"])
def test_a_policy_with_thousands_pending_is_restored_to_the_bit(world):
    policy = copy.deepcopy(asked(world))
    for i in ORDERS["random"](WORLDS[world][2])[:300]:
        policy.drop(i) if i % 5 == 0 else policy.tell(i, float(Y[i]))
    twin = ms.restore(json.loads(json.dumps(policy.state())))
    assert [q.id for q in twin.pending] == [q.id for q in policy.pending]
    X = policy.observations.x[:6]
    for a, b in zip(twin.band(X), policy.band(X), strict=True):
        np.testing.assert_array_equal(a, b)
    offer = {} if WORLDS[world][1] is None else {"actions": WORLDS[world][1][0]}
    a, b = twin.ask(**offer), policy.ask(**offer)
    np.testing.assert_array_equal(a.x, b.x)
    assert (a.mean, a.std, a.upper) == (b.mean, b.std, b.upper)


def test_taking_back_at_the_least_ridge():
    """λ = 1e-6, which is what no noise at all means: one hallucination leaves a millionth of the variance."""
    rng = np.random.default_rng(0)
    for kernel, budget in ((DotProduct(sigma_0=0), None), (RBF(2.0), 8), (RBF(2.0), None)):
        posterior = Posterior(ms.Model(kernel, norm_bound=1.0, noise=0.0), ms.Open(3), budget=budget)
        posterior.expect(np.array([[0.0, 0.0, 1.0]]))
        X = np.eye(3)
        before = posterior.at(X, pending=True)[1] ** 2
        for _ in range(100):
            x = rng.standard_normal((1, 3))
            x /= np.linalg.norm(x)
            posterior.expect(x)
            posterior.release(x)
            np.testing.assert_allclose(posterior.at(X, pending=True)[1] ** 2, before, atol=1e-6)


# -- logs --------------------------------------------------------------------------------------------------------------


ROWS, FEWER = 20_000, 4000
LOGS = {
    "open": (lambda: ms.ECGPUCB(ms.Open(4), LINEAR, epsilon=0.1, grounded=False), 4, ROWS),
    "open, a budget": (lambda: ms.ECGPUCB(ms.Open(4), ROUGH, epsilon=0.1, budget=15, grounded=False), 4, ROWS),
    "arms": (lambda: ms.ECGPUCB(ARMS, SMOOTH, epsilon=0.1), None, ROWS),
    "open, grounded": (lambda: ms.GPUCB(ms.Open(4), LINEAR, grounded=True), 4, FEWER),
    "balancing": (lambda: ms.RegretBalancing(ms.Open(4), ROUGH, horizon=100, budget=15), 4, FEWER),
    "arms, a budget": (lambda: ms.GPUCB(ARMS, SMOOTH, budget=12), None, FEWER),
    "joint": (lambda: ms.GPUCB(ms.Joint(ARMS, ms.Box([(0, 1)])), SMOOTH, budget=12), 0, FEWER),
}


@functools.cache
def log(d):
    rng = np.random.default_rng(6)
    if d is None:
        return rng.integers(0, 40, ROWS), rng.standard_normal(ROWS)
    if d == 0:
        return np.column_stack([ARMS.points[rng.integers(0, 40, ROWS)], rng.random(ROWS)]), rng.standard_normal(ROWS)
    X = 0.45 * rng.random((ROWS, d))
    X[::3] = X[rng.integers(0, 500, len(X[::3]))]
    return X, X.sum(axis=1) + 0.1 * rng.standard_normal(ROWS)


@pytest.mark.parametrize("name", LOGS)
def test_a_log_in_one_call_or_in_parts(name):
    make, d, n = LOGS[name]
    X, y = (each[:n] for each in log(d))
    whole, parts = make(), make()
    whole.observe(X, y)
    for start, end in ((0, 1), (1, 4), (4, 250), (250, 2000), (2000, 2256), (2256, n - 10), (n - 10, n)):
        parts.observe(X[start:end], y[start:end])
    assert whole.t == parts.t == whole.posterior.t == len(whole.observations) == n
    points = X[:15] if d is not None else ARMS.points
    for a, b in zip(whole.posterior.at(points), parts.posterior.at(points), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    for a, b in zip(whole.band(points), parts.band(points), strict=True):
        # all points new in one call are charged the place of the last of them
        np.testing.assert_allclose(a, b, atol=0.3 if whole.grounded else 1e-9)
    assert whole.posterior.log_det == pytest.approx(parts.posterior.log_det, rel=1e-9)
    assert whole.posterior.rank == parts.posterior.rank


def test_a_log_while_queries_pend():
    """What pends goes on pending, in the variance for choosing as before."""
    X, y = log(4)
    for make in (lambda: ms.GPUCB(ms.Open(4), LINEAR), lambda: ms.GPUCB(ms.Open(4), ROUGH, budget=15)):
        early, late = make(), make()
        for i in range(30):
            early.ask(actions=OPEN[i][:1])
            late.ask(actions=OPEN[i][:1])
        early.ask(actions=OPEN[31][:1])  # all before it are hallucinated now
        late.ask(actions=OPEN[31][:1])
        early.observe(X[:3000], y[:3000])
        for start in range(0, 3000, 200):
            late.observe(X[start : start + 200], y[start : start + 200])
        for policy in (early, late):
            assert len(policy.pending) == 31
            assert policy.t == 3000
        a, b = early.ask(actions=OPEN[40]), late.ask(actions=OPEN[40])
        np.testing.assert_array_equal(a.x, b.x)
        assert (a.mean, a.std) == (pytest.approx(b.mean, abs=1e-9), pytest.approx(b.std, abs=1e-9))
        for i in range(31):
            early.tell(i, 0.1)
            late.tell(30 - i, 0.1)
        np.testing.assert_allclose(early.posterior.at(X[:9]), late.posterior.at(X[:9]), atol=1e-9)


def test_a_log_is_restored_to_the_bit():
    X, y = log(4)
    for make in (LOGS["open, grounded"][0], LOGS["open, a budget"][0]):
        policy = make()
        policy.observe(X[:2500], y[:2500])
        policy.ask(actions=OPEN[0])
        twin = ms.restore(json.loads(json.dumps(policy.state())))
        for a, b in zip(twin.band(X[:9]), policy.band(X[:9]), strict=True):
            np.testing.assert_array_equal(a, b)
        a, b = twin.ask(actions=OPEN[1]), policy.ask(actions=OPEN[1])
        np.testing.assert_array_equal(a.x, b.x)
        assert a.upper == b.upper


@pytest.mark.parametrize("bad", ["a long row", "NaN", "one result too few"])
def test_a_log_that_is_refused_changes_nothing(bad):
    X, y = (each[:3000].copy() for each in log(4))
    policy = ms.GPUCB(ms.Open(4), LINEAR, grounded=True)
    policy.observe(X[:10], y[:10])
    policy.ask(actions=OPEN[0])
    before, band = json.dumps(policy.state()), policy.band(X[:20])
    if bad == "a long row":
        X[2900] = 3.0
    elif bad == "NaN":
        y[2900] = np.nan
    else:
        y = y[:-1]
    with pytest.raises(ms.InvalidInput):
        policy.observe(X, y)
    assert json.dumps(policy.state()) == before
    for a, b in zip(policy.band(X[:20]), band, strict=True):
        np.testing.assert_array_equal(a, b)
    assert policy.posterior.t == 10


def test_queries_know_when_they_were_asked(tmp_path, monkeypatch):
    """In the answers, in states and in files; so what is older than an hour is dropped in one line."""
    seconds = iter([1000.0, 1000.1254, 9000.0])
    monkeypatch.setattr(ms.Policy, "clock", staticmethod(lambda: next(seconds)))
    policy = ms.GPUCB(ms.Finite(np.linspace(0, 1, 9)[:, None]), ms.Model(RBF(0.2), norm_bound=1.0, noise=0.1))
    policy.journal(tmp_path / "journal")
    first, second, third = policy.ask(), *policy.mark_pending([3]), policy.ask()
    assert [q.asked_at for q in (first, second, third)] == [1000.0, 1000.125, 9000.0]
    policy.save(tmp_path / "file")
    for twin in (ms.restore(policy.state()), ms.load(tmp_path / "file"), ms.load(tmp_path / "journal")):
        assert [q.asked_at for q in twin.pending] == [1000.0, 1000.125, 9000.0]
    policy.drop([q for q in policy.pending if q.asked_at < 9000.0 - 3600])
    assert [q.id for q in policy.pending] == [third.id]
    with pytest.raises(ms.InvalidInput, match=r"it was dropped; a result that came late counts by policy\.observe"):
        policy.tell(first, 0.3)
    policy.tell(third, 0.3)
    with pytest.raises(ms.InvalidInput, match="it was told before; one more result of the same point"):
        policy.tell(third, 0.3)


def test_what_happens_is_logged(caplog):
    domain = ms.Finite(np.linspace(0, 1, 9)[:, None])
    model = ms.Model(RBF(0.2), norm_bound=1.0, noise=0.1)
    policy = ms.GPUCB(domain, model)
    with caplog.at_level("DEBUG", logger="misspec"):
        policy.tell(policy.ask(2), [0.1, 0.2])
        assert [record.message for record in caplog.records] == ["GPUCB: asked [0, 1]", "GPUCB: told [0, 1]"]
        caplog.clear()
        ms.restore(policy.state())  # what happened before is not said again
        policy.observe(np.repeat([3, 4], 50), np.repeat([5.0, -5.0], 50))
        assert not caplog.records
        policy.conflicts()
        assert "GPUCB: the results contradict the model at" in caplog.records[0].message
    phased = ms.PhasedUncertaintySampling(domain, model, horizon=7)
    auto = ms.Auto(domain)
    with caplog.at_level("INFO", logger="misspec.policies"):
        caplog.clear()
        ms.optimize(phased, lambda x: float(x[0]), 7)
        assert [r.message.split(" eliminates")[0] for r in caplog.records][-1] == (
            "PhasedUncertaintySampling: episode 3 of 4 results"
        )
        caplog.clear()
        ms.optimize(auto, lambda x: float(x[0]), 7)
        assert any(r.message.startswith("Auto: the model is renewed from 5 results") for r in caplog.records)
