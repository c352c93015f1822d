"""Policies: how they are made, and what they are asked, told and shown."""

import functools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sklearn.gaussian_process.kernels import RBF, DotProduct

import misspec as ms
from hostile import REPEATABLE, attempt, cases, fuzz, hostile, hostile_arrays, hostile_numbers, hostile_objects, spoilt
from misspec.experiments.construct import POLICIES
from misspec.policies.core import policy as base
from misspec.policies.core.registry import signature_of
from misspec.theory import information


@pytest.fixture(autouse=True, scope="module")
def small_limits():
    """What is too much is refused at any size: thousands of queries show no more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "MOST_AT_ONCE", 5)
        patch.setattr(information, "MOST_STEPS", 1000)
        yield


LIST = ms.Finite(np.linspace(0.0, 1.0, 4)[:, None] @ np.ones((1, 2)) * 0.7, names=["a", "b", "c", "d"])
BOX = ms.Box([(0, 1), (-5, 5)])
SPACE = ms.Space({"rate": ms.Float(1e-3, 1.0, log=True), "kind": ms.Choice(["a", "b"])})
MEMBERS = ms.Space({"depth": ms.Int(1, 3), "kind": ms.Choice(["a", "b"])})
TABLE = ms.Finite.from_table({"t": [1.0, 2.0, 3.0], "s": ["a", "b", "a"], "y": [0.1, None, None]}, target="y")
OPEN = ms.Open(2)
JOINT = ms.Joint(LIST, ms.Box([(0, 1)]))
SEARCHED = ms.Joint(BOX, ms.Finite([[0.0], [1.0]], names=["u", "v"]))
DOMAINS = {
    "list": LIST, "box": BOX, "space": SPACE, "members": MEMBERS, "table": TABLE, "open": OPEN, "joint": JOINT,
    "searched": SEARCHED,
}  # fmt: skip
MODEL = ms.Model(RBF(0.5), norm_bound=1.0, noise=0.1)
LINEAR = ms.Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1)
EXTRA = {
    "ECGPUCB": {"epsilon": 0.1}, "RegretBalancing": {"horizon": 20}, "CorruptionTolerantGPUCB": {"corruption": 0.5},
    "PhasedElimination": {"horizon": 20}, "RIPS": {"horizon": 20}, "LBGPUCB": {"horizon": 20},
    "Corral": {"horizon": 20}, "PriorElimination": {"models": [MODEL, MODEL]},
}  # fmt: skip
LINEAR_ONES = ("LinUCB", "LinearThompson", "PhasedElimination", "RIPS")
CLASSES = {**POLICIES, "Auto": ms.Auto}
NAMES = list(CLASSES)


@functools.cache
def arguments_of(name):
    """All arguments of a policy's, at their defaults, with what has none."""
    cls = CLASSES[name]
    defaults = {
        each.name: each.default
        for each in signature_of(cls).parameters.values()
        if each.default is not each.empty and each.kind is not each.VAR_KEYWORD
    }
    one = {"model": LINEAR if name in LINEAR_ONES else MODEL} if "model" in signature_of(cls).parameters else {}
    given = {"domain": LIST, **one}
    return {**defaults, **given, **EXTRA.get(name, {})}


def played(policy, rounds=2):
    for _ in range(rounds):
        policy.tell(policy.ask(), 0.3)
    assert policy.recommend().x is not None
    return policy


def test_every_policy_works_as_it_is_fuzzed():
    for name in NAMES:
        assert played(CLASSES[name](**arguments_of(name))).t == 2


@fuzz(700, name=st.sampled_from(NAMES), data=st.data())
def test_a_policy_is_refused_or_plays(name, data):
    arguments = data.draw(spoilt(arguments_of(name)))
    attempt(lambda: played(CLASSES[name](**arguments)))


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("name", NAMES)
def test_every_policy_on_every_domain(name, domain):
    """It plays there, or says that it does not."""
    arguments = {**arguments_of(name), "domain": DOMAINS[domain]}
    policy = attempt(lambda: CLASSES[name](**arguments))
    if policy is not None and policy.field.fixed:
        attempt(lambda: played(policy))


@fuzz(200, entry=st.sampled_from(["paper", "bases", "epsilons", "price"]), value=hostile, data=st.data())
def test_settings_that_are_lists(entry, value, data):
    if entry == "paper":
        name = data.draw(st.sampled_from([each for each in NAMES if hasattr(CLASSES[each], "as_in_paper")]))
        cls = CLASSES[name]
        arguments = {"horizon": 20, "epsilon": 0.1, **arguments_of(name), "seed": 0}
        known = {each: arguments[each] for each in ("domain", "model", "models", "seed") if each in arguments}
        takes = cls.as_in_paper.__code__.co_varnames
        known |= {each: arguments[each] for each in ("horizon", "epsilon") if each in takes}
        known[data.draw(st.sampled_from(sorted(known)))] = value
        attempt(lambda: played(cls.as_in_paper(**known)))
    elif entry == "bases":
        pairs = data.draw(st.lists(st.tuples(st.one_of(st.just(MODEL), hostile_objects), hostile_numbers), max_size=3))
        attempt(lambda: played(ms.RegretBalancing(LIST, MODEL, horizon=20, bases=pairs)))
    elif entry == "epsilons":
        several = data.draw(st.lists(hostile_numbers, max_size=3))
        attempt(lambda: played(ms.comparators.Corral(LIST, MODEL, horizon=20, epsilons=several)))
    else:
        attempt(lambda: played(ms.RegretBalancing(LIST, MODEL, horizon=20, price=value, width=value)))


# -- calls: a refused one changes nothing ------------------------------------------------------------------------------

POLICIES = {
    "GPUCB": lambda domain: ms.GPUCB(domain, MODEL),
    "ECGPUCB": lambda domain: ms.ECGPUCB(domain, MODEL, epsilon=0.1),
    "InsuredUCB": lambda domain: ms.InsuredUCB(domain, MODEL),
    "Thompson": lambda domain: ms.ThompsonSampling(domain, MODEL),
    "phased": lambda domain: ms.PhasedUncertaintySampling(domain, MODEL, horizon=40),
    "balancing": lambda domain: ms.RegretBalancing(domain, MODEL, horizon=40, gain=3.0),
    "Corral": lambda domain: ms.comparators.Corral(domain, MODEL, horizon=40),
    "Auto": lambda domain: ms.Auto(domain),
}
ROUND = {"open": {"actions": [[0.1, 0.2], [0.3, 0.4]]}, "joint": {"context": [0.5]}, "searched": {"context": "v"}}


@functools.cache
def begun(policy, domain):
    """The state of a policy with a few results, and one query that waits."""
    made = attempt(lambda: POLICIES[policy](DOMAINS[domain]))
    if made is None:
        return None
    for _ in range(6 if policy == "Auto" and domain in ("list", "table") else 2):
        made.tell(made.ask(**ROUND.get(domain, {})), 0.3)
    made.ask(**ROUND.get(domain, {}))
    return made.state()


PAIRS = [(p, d) for p in POLICIES for d in DOMAINS if begun(p, d) is not None]

values = st.one_of(hostile_objects, hostile_arrays(3, 2), hostile_arrays(2, 3), st.integers(-1, 5))
whats = st.one_of(
    values,
    st.lists(hostile_objects, max_size=3),
    st.sampled_from(["a", "d", {"rate": 0.1, "kind": "a"}, [{"depth": 2, "kind": "b"}], {"t": 1.0, "s": "a"}, [0, 1]]),
    st.fixed_dictionaries({"rate": hostile_objects, "kind": hostile_objects}),
    st.fixed_dictionaries({"t": hostile_objects, "s": hostile_objects}),
)
results = st.one_of(values, st.lists(hostile_numbers, max_size=3))


@st.composite
def requests(draw):
    """A call of a policy: its name, and its arguments."""
    call = draw(st.sampled_from(["ask", "tell", "drop", "mark_pending", "observe", "recommend", "band"]))
    if call == "ask":
        chosen = draw(st.sets(st.sampled_from(["n", "actions", "context"]), min_size=1))
        return call, {name: draw(hostile_objects if name == "n" else whats) for name in sorted(chosen)}
    if call in ("tell", "drop"):
        known = {"query": draw(st.one_of(whats, st.just(2), st.just(6)))}
        return call, {**known, "y": draw(results)} if call == "tell" else known
    if call in ("mark_pending", "observe"):
        known = {"points_or_indices": draw(whats)} | ({"y": draw(results)} if call == "observe" else {})
        return call, {**known, "context": draw(whats)} if draw(st.booleans()) else known
    names = {"recommend": ["actions", "context"], "band": ["X", "context"]}[call]
    return call, {name: draw(whats) for name in names if draw(st.booleans())}


def same(one, other):
    return json.dumps(one) == json.dumps(other)


@fuzz(900, pair=st.sampled_from(PAIRS), request=requests())
def test_a_refused_call_changes_nothing(pair, request):
    policy = ms.restore(begun(*pair))
    call, arguments = request
    before = policy.state()
    if attempt(lambda: getattr(policy, call)(**arguments) or True) is None or call in ("recommend", "band"):
        assert same(before, policy.state())
    pending = policy.pending
    assert (len(pending) >= 1) or call in ("tell", "drop")
    policy.tell(pending, np.full(len(pending), 0.2))  # and it goes on
    more = attempt(lambda: policy.ask(**ROUND.get(pair[1], {})))
    assert more is not None or policy.t > 3


@fuzz(60, name=st.sampled_from(["importance", "chance", "adopt", "posterior.at"]), value=hostile)
def test_what_only_auto_has(name, value):
    policy = ms.restore(begun("Auto", "list"))
    before = policy.state()
    calls = {
        "importance": lambda: policy.importance(),
        "chance": lambda: policy.chance(value),
        "adopt": lambda: policy.adopt(value),
        "posterior.at": lambda: policy.posterior.at(value),
    }
    attempt(calls[name])
    assert same(before, policy.state())


@fuzz(20, y=st.lists(hostile_numbers, min_size=6, max_size=9), minimize=st.booleans())
def test_auto_learns_results_of_any_size(y, minimize):
    policy = ms.Auto(LIST, minimize=minimize)
    told = 0
    for each in y:
        query = policy.ask()
        if attempt(lambda query=query, each=each: policy.tell(query, each) or True):
            told += 1
        else:
            policy.drop(query)
    assert policy.t == told
    band = policy.band()
    assert np.isfinite(band.lower).all()
    assert np.isfinite(band.upper).all()
    assert np.isfinite(policy.recommend().mean)


# -- whole lives -------------------------------------------------------------------------------------------------------


class Life(RuleBasedStateMachine):
    """Calls of any kind in any order; a twin that is restored now and then stays the same."""

    @initialize(pair=st.sampled_from(PAIRS))
    def begin(self, pair):
        self.round = ROUND.get(pair[1], {})
        self.policy = ms.restore(begun(*pair))

    @rule(n=st.integers(1, 3))
    def ask(self, n):
        attempt(lambda: self.policy.ask(n, **self.round))

    @rule(y=st.floats(-2, 2), last=st.booleans())
    @precondition(lambda self: self.policy.pending)
    def tell(self, y, last):
        t = self.policy.t
        self.policy.tell(self.policy.pending[-1 if last else 0], y)
        assert self.policy.t == t + 1

    @rule()
    @precondition(lambda self: len(self.policy.pending) > 1)
    def drop(self):
        self.policy.drop(self.policy.pending[-1])

    @rule(request=requests())
    def hostile(self, request):
        call, arguments = request
        before = self.policy.state()
        if attempt(lambda: getattr(self.policy, call)(**arguments) or True) is None:
            assert same(before, self.policy.state())

    @rule()
    def restore(self):
        stored = self.policy.state()
        self.policy = ms.restore(json.loads(json.dumps(stored)))
        assert same(stored, self.policy.state())

    @invariant()
    def answers(self):
        if hasattr(self, "policy"):
            found = attempt(lambda: self.policy.recommend(**self.round))
            assert found is None or np.isfinite([found.lower, found.upper]).all()


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=cases(20),
    stateful_step_count=10,
    deadline=None,
    derandomize=REPEATABLE,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
