import json
import math

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

import misspec as ms
from misspec.encoding import decode_kernel, encode_kernel
from misspec.errors import InvalidInput, StorageError
from misspec.policies.core import fields
from misspec.testing import Subject, continues_to_the_bit

MODEL = ms.Model(RBF(0.2), norm_bound=1.5, noise=0.1)
X = np.random.default_rng(0).random((40, 2))
DOMAIN = ms.Finite(X)


class Custom:
    def __call__(self, X, Z):
        return RBF(0.2)(X, Z)

    def diag(self, X):
        return np.ones(len(X))


def told(policy, rounds=20):
    rng = np.random.default_rng(1)
    for _ in range(rounds):
        query = policy.ask()
        policy.tell(query, float(np.sin(5 * query.x[0]) + 0.1 * rng.standard_normal()))
    return policy


@pytest.mark.parametrize("T", [1, 2, 3, 4, 7, 8, 15, 16, 100, 127, 128, 1000])
def test_rounds_of_communication(T):
    policy, rounds, evaluations = ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=T), 0, 0
    while True:
        try:
            batch = policy.ask(10**6)
        except ms.HorizonReached:
            break
        rounds, evaluations = rounds + 1, evaluations + len(batch)
        policy.tell(batch, [float(np.sin(5 * q.x[0])) for q in batch])
    assert evaluations == T
    assert rounds == math.floor(math.log2(T)) + 1


def test_one_batch_in_random_order_equals_one_by_one():
    rng = np.random.default_rng(2)
    one, batch = (ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=500) for _ in range(2))
    while one.t < 500:
        queries = batch.ask(10**6)
        y = {q.id: float(np.sin(5 * q.x[0]) + 0.1 * rng.standard_normal()) for q in queries}
        for query in queries:
            single = one.ask()
            assert single.index == query.index
            one.tell(single, y[query.id])
        shuffled = rng.permutation(queries)
        half = len(shuffled) // 2
        batch.tell(list(shuffled[:half]), [y[q.id] for q in shuffled[:half]])
        batch.tell(list(shuffled[half:]), [y[q.id] for q in shuffled[half:]])
        np.testing.assert_array_equal(one.active, batch.active)
    assert len(one.active) < len(DOMAIN)


def test_phased_waits_and_asks_failures_again():
    policy = ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=100)
    policy.tell(policy.ask(), 0.1)
    assert (policy.episode, policy.remaining) == (2, 2)
    first, second = policy.ask(5)
    with pytest.raises(ms.AwaitingResults, match="2 pending"):
        policy.ask()
    policy.tell(second, 0.1)
    policy.drop(first)
    again = policy.ask()
    assert again.index == first.index
    policy.tell(again, 0.2)
    assert policy.episode == 3
    assert [e.length for e in policy.history] == [1, 2]
    with pytest.raises(InvalidInput, match="takes no actions"):
        policy.ask(actions=[0, 1])
    with pytest.raises(InvalidInput, match="takes no data from elsewhere"):
        policy.observe([0], [0.1])
    with pytest.raises(InvalidInput, match="candidates only"):
        policy.band([[0.123, 0.456]])
    assert policy.band([3, 4]).lower.shape == (2,)


def test_phased_asks_failures_again_in_the_order_of_the_episode():
    policy = ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=100)
    policy.tell(policy.ask(), 0.1)
    policy.tell(policy.ask(2), [0.1, 0.2])
    batch = policy.ask(4)
    for failed in (batch[2], batch[0], batch[3]):
        policy.drop(failed)
    again = policy.ask(4)
    assert [each.index for each in again] == [batch[i].index for i in (0, 2, 3)]
    assert [each.details["slot"] for each in again] == [0, 2, 3]


def test_phased_at_the_horizon():
    policy = ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=3)
    policy.tell(policy.ask(), 0.1)
    first, second = policy.ask(9)
    with pytest.raises(ms.AwaitingResults):
        policy.ask()
    policy.tell([first, second], [0.1, 0.2])
    with pytest.raises(ms.HorizonReached):
        policy.ask()
    assert policy.episode == 2
    assert [e.length for e in policy.history] == [1, 2]


def test_kernels_that_look_alike_do_not_share_a_posterior():
    near = ms.Model(RBF(0.2004), norm_bound=1.5, noise=0.1)
    policy = ms.RegretBalancing(DOMAIN, MODEL, horizon=10, bases=[(MODEL, 0.0), (near, 0.0)])
    assert len(policy.posteriors) == 2
    assert len(ms.restore(policy.state()).posteriors) == 2
    twins = [(ms.Model(Custom(), norm_bound=1.5, noise=0.1), 0.0), (ms.Model(Custom(), norm_bound=1.5, noise=0.1), 0.0)]
    with pytest.raises(InvalidInput, match="several custom kernels"):
        ms.RegretBalancing(DOMAIN, MODEL, horizon=10, bases=twins).state()


def test_gains_are_those_of_the_bases():
    rough = ms.Model(Matern(0.02, nu=0.5), norm_bound=1.5, noise=0.1)
    policy = ms.RegretBalancing.as_in_paper(DOMAIN, MODEL, horizon=50, bases=[(MODEL, 0.1), (rough, 0.1)])
    assert policy.gains[1] > 1.2 * policy.gains[0]


def test_the_same_actions_every_round_do_not_vary():
    same, other = (ms.RegretBalancing(DOMAIN, MODEL, horizon=10) for _ in range(2))
    for t in range(3):
        for policy, actions in ((same, [1, 5, 7]), (other, [1, 5, 7 + t])):
            query = policy.ask(actions=actions)
            policy.tell(query, 0.1)
    assert same.elimination_radius(3) == ms.RegretBalancing(DOMAIN, MODEL, horizon=10).elimination_radius(3)
    assert other.elimination_radius(3) > 5 * same.elimination_radius(3)


def test_queries_are_copies_and_states_too():
    policy = ms.GPUCB(ms.Box([(0, 1)] * 2), MODEL)
    query = policy.ask(actions=np.random.default_rng(0).random((1000, 2)))
    assert query.x.base.nbytes == 16, "two coordinates, not the whole action set"
    with pytest.raises(ValueError, match="read-only"):
        query.x[:] = 0.5
    policy.tell(query, 0.1)
    state = policy.state()
    state["settings"]["width"] = 99.0
    state["events"][1][2] = 99.0
    assert policy.state()["settings"]["width"] == "mixture"
    assert policy.state()["events"][1][2] == 0.1


def test_states_are_json_whatever_numbers_were_handed_in():
    policy = ms.RegretBalancing(
        DOMAIN, MODEL, horizon=np.int64(50), width=np.float32(2), price=np.float32(2), inflate=np.bool_(True)
    )
    assert json.loads(json.dumps(policy.state()))["settings"]["horizon"] == 50
    json.dumps(ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=np.int64(50), width=np.float32(2)).state())


def test_fitted_models_guarantee_nothing():
    fitted = ms.Model.from_data(X, np.sin(5 * X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(40))
    assert not told(ms.GPUCB(DOMAIN, fitted)).recommend().guaranteed


def test_thompson_takes_data_at_its_candidates_only():
    policy = ms.ThompsonSampling(DOMAIN, MODEL)
    policy.observe(X[:2], [0.1, 0.2])
    with pytest.raises(InvalidInput, match="no other points"):
        policy.observe(X[:1] + 0.01, [0.1])


def test_a_failure_inside_a_call_changes_nothing():
    """A kernel that fails when a new point is entered: nothing is told, nothing is pending."""

    class Moody(Custom):
        broken = False

        def __call__(self, X, Z):
            return super().__call__(X, Z) * (np.nan if self.broken else 1.0)

    kernel = Moody()
    policy = told(ms.GPUCB(DOMAIN, ms.Model(kernel, norm_bound=1.5, noise=0.1), grounded=True), 3)
    query = policy.ask()
    before = json.dumps(policy.state())
    kernel.broken = True
    for call in (lambda: policy.tell(query, 0.1), lambda: policy.ask(3)):
        with pytest.raises(InvalidInput, match="not finite"):
            call()
    kernel.broken = False
    assert json.dumps(policy.state()) == before
    assert [q.id for q in policy.pending] == [query.id]
    policy.tell(query, 0.1)


def test_names_are_shown():
    domain = ms.Finite(X[:3], names=["a", "b", "c"])
    policy = ms.GPUCB(domain, MODEL)
    query = policy.ask()
    assert query.name == domain.names[query.index]
    policy.tell(query, 1.0)
    assert policy.recommend().name == "a"
    assert ms.restore(policy.state()).ask().name in domain.names


def test_custom_kernels_are_handed_in_again():
    make = lambda seed: ms.GPUCB(DOMAIN, ms.Model(Custom(), norm_bound=1.5, noise=0.1), seed=seed)  # noqa: E731
    policy = told(make(0))
    with pytest.raises(StorageError, match=r"hand it in again: restore\(state, kernel=…\)"):
        ms.restore(policy.state())
    assert ms.restore(policy.state(), kernel=Custom()).ask().index == policy.ask().index
    continues_to_the_bit(Subject(make, lambda x: float(np.sin(5 * x[0])), kernel=Custom()))


def test_large_domains_are_handed_in_again(tmp_path, monkeypatch):
    monkeypatch.setattr(fields, "LARGE", 100)
    policy = told(ms.GPUCB(DOMAIN, MODEL))
    policy.save(tmp_path / "p")
    assert (tmp_path / "p").stat().st_size < 10_000
    with pytest.raises(StorageError, match="hand it in again"):
        ms.load(tmp_path / "p")
    with pytest.raises(StorageError, match="not the one that this policy was made with"):
        ms.load(tmp_path / "p", domain=ms.Finite(X + 1))
    assert ms.load(tmp_path / "p", domain=ms.Finite(X)).ask().index == policy.ask().index


@pytest.mark.parametrize(
    "kernel",
    [
        RBF(0.3, "fixed"),
        Matern([0.1, 0.2], nu=1.5),
        Matern(0.1, [(0.01, 1.0)], nu=math.inf),
        ConstantKernel(0.2) * RBF([0.1, 0.4], (1e-3, 1.0)) + 0.5 * DotProduct(sigma_0=0),
        RBF(np.float64(0.3)) ** 2,
        RBF(0.2, (1e-5, math.inf)),
        RBF([0.2, 0.3], np.array([[1e-5, math.inf], [1e-5, 2.0]])),
    ],
    ids=str,
)
def test_kernels_by_name_and_parameters(kernel):
    again = decode_kernel(json.loads(json.dumps(encode_kernel(kernel), allow_nan=False)), None)
    np.testing.assert_array_equal(again.bounds, kernel.bounds)
    assert repr(again) == repr(kernel)
    np.testing.assert_array_equal(again(X, X.copy()), kernel(X, X.copy()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(format=99), "another version"),
        (lambda s: s.update(format=2), "another version"),
        (lambda s: s.update(policy="Oracle"), "not imported"),
        (lambda s: s.pop("events"), "missing"),
        (lambda s: s["events"].append(["explode"]), "unknown event"),
        (lambda s: s["settings"].update(depth=3), "no setting 'depth'"),
        (lambda s: s["model"]["kernel"].update(name="__import__"), "unknown kernel"),
        (lambda s: s["model"]["kernel"]["parameters"].update(evil=1), "no argument 'evil'"),
    ],
)
def test_states_that_cannot_be_restored(change, message):
    state = json.loads(json.dumps(told(ms.GPUCB(DOMAIN, MODEL), 3).state()))
    change(state)
    with pytest.raises(StorageError, match=message):
        ms.restore(state)


SQUARE = ms.Box([(0, 1)] * 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ms.GPUCB(X, MODEL), "domain must be a Finite or a Box, got ndarray"),
        (lambda: ms.GPUCB(DOMAIN, RBF(0.2)), "model must be a Model, got RBF"),
        (lambda: ms.GPUCB(DOMAIN, MODEL, width="beta"), "width must be one of lemma1, mixture, .*got 'beta'"),
        (lambda: ms.GPUCB(DOMAIN, MODEL, width=-1.0), "width must be a finite number > 0, got -1.0"),
        (lambda: ms.GPUCB(DOMAIN, MODEL, grounded="yes"), "grounded must be True or False, got 'yes'"),
        (lambda: ms.GPUCB(DOMAIN, MODEL, inflate=2), "inflate must be True or False, got 2"),
        (lambda: ms.GPUCB(DOMAIN, MODEL, seed=-1), "seed must be a whole number ≥ 0, got -1"),
        (lambda: ms.ECGPUCB(DOMAIN, MODEL, epsilon=-0.1), "epsilon must be a finite number ≥ 0, got -0.1"),
        (lambda: ms.ECGPUCB(DOMAIN, MODEL, epsilon=math.nan), "epsilon must be a finite number ≥ 0, got nan"),
        (lambda: ms.ECGPUCB(DOMAIN, MODEL, epsilon="much"), "epsilon must be a finite number ≥ 0, got 'much'"),
        (
            lambda: ms.ECGPUCB(DOMAIN, MODEL, epsilon=0.1, enlargement="huge"),
            "one of exact, norm2, paper, or None, got",
        ),
        (lambda: ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=0), "horizon must be a whole number ≥ 1, got 0"),
        (lambda: ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=1.5), "horizon must be a whole number ≥ 1"),
        (lambda: ms.PhasedUncertaintySampling(SQUARE, MODEL, width="nonadaptive"), "finitely many points"),
        (lambda: ms.PhasedUncertaintySampling(SQUARE, MODEL, intersect=True), "intersect=True is for finitely many"),
        (lambda: ms.PhasedUncertaintySampling(DOMAIN, MODEL, intersect=1), "intersect must be True or False"),
        (lambda: ms.PhasedUncertaintySampling(DOMAIN, MODEL, schedule="few"), "say how many: horizon=T"),
        (lambda: ms.PhasedUncertaintySampling(DOMAIN, MODEL, schedule=4), "say how many: horizon=T"),
        (lambda: ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=9, schedule=10), "at most the horizon"),
        (lambda: ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=9, schedule="some"), "doubling, few, got 'some'"),
        (lambda: ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=9, schedule=0), "a whole number ≥ 1, got 0"),
        (lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=10, bounds="none"), "bounds must be one of realised, paper"),
        (lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=10, bounds="paper"), 'use evidence="own"'),
        (lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=10, evidence="half"), "evidence must be one of shared, own"),
        (lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=10, bases=[]), "with at least one in it"),
        (lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=10, bases=[(RBF(0.2), 0.1)]), r"\(Model, epsilon\) pairs"),
        (lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=10, bases=[MODEL]), r"\(Model, epsilon\) pairs: "),
        (lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=10, bases=[(MODEL, 0.1, 3)]), "pairs: too many values"),
        (lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=10, price=0.0), "price must be a finite number > 0"),
        (lambda: ms.ECGPUCB(DOMAIN, MODEL, epsilon=0.1, enlargement=3.0), "one of exact, norm2, paper, or None, got 3"),
        (lambda: ms.GPUCB(DOMAIN, MODEL).ask(actions=[[0.1, 0.2], [0.3]]), "indices or points, one per row"),
        (
            lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=10, epsilon_max=-1.0),
            "epsilon_max must be a finite number",
        ),
        (lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=10, reward_range=0.0), "reward_range must be a finite"),
        (lambda: ms.comparators.CorruptionTolerantGPUCB(DOMAIN, MODEL, corruption=-1.0), r"corruption \(C\) must be"),
        (lambda: ms.GPUCB(SQUARE, MODEL).band(), r"band\(\) without points needs a Finite domain"),
        (lambda: ms.GPUCB(DOMAIN, MODEL, resolution=-0.1), "resolution must be a finite number ≥ 0, got -0.1"),
        (lambda: ms.GPUCB(SQUARE, MODEL).ask(actions=[0, 1]), "indices need a Finite domain"),
        (lambda: ms.ThompsonSampling(DOMAIN, MODEL).ask(actions=X[:2] + 0.01), "samples on its candidates"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_numeric_widths_say_that_they_guarantee_nothing():
    policy = told(ms.ECGPUCB(DOMAIN, MODEL, epsilon=0.1, width=2.0))
    assert not policy.guaranteed
    assert not policy.recommend().guaranteed
    assert "without guarantee" in repr(policy)
    assert told(ms.ECGPUCB(DOMAIN, MODEL, epsilon=0.5)).recommend().guaranteed


def test_contextual_on_a_box():
    policy = ms.ECGPUCB(ms.Box([(0, 10), (-1, 1)]), MODEL, epsilon=0.1)
    rng = np.random.default_rng(3)
    for _ in range(30):
        actions = np.stack([10 * rng.random(5), rng.random(5)], axis=1)
        query = policy.ask(actions=actions)
        np.testing.assert_array_equal(query.x, actions[query.position])
        policy.tell(query, float(np.sin(query.x[0] / 2)))
    assert policy.band([[5.0, 0.5]]).lower.shape == (1,)
    assert ms.restore(policy.state()).ask(actions=actions).position == policy.ask(actions=actions).position


def test_conflicts_prove_misspecification():
    """A truth that jumps between neighbours: the own bands leave the model's, and what they prove is true."""
    points = np.linspace(0, 1, 12)[:, None]
    truth = np.where(np.arange(12) % 2 == 0, 0.5, -0.5)
    policy = ms.GPUCB(ms.Finite(points), ms.Model(RBF(0.5), norm_bound=1.0, noise=0.1), grounded=True)
    rng = np.random.default_rng(4)
    policy.observe(np.tile(np.arange(12), 200), np.tile(truth, 200) + 0.1 * rng.standard_normal(2400))
    assert policy.conflicts()
    for conflict in policy.conflicts():
        assert 0 < conflict.epsilon <= 0.5
        assert conflict.gap > 0
    assert max(c.epsilon for c in policy.conflicts()) > 0.2
    well = told(ms.GPUCB(DOMAIN, ms.Model(RBF(0.2), norm_bound=5.0, noise=0.1), grounded=True), 200)
    assert not well.conflicts()


@pytest.mark.parametrize(
    "make",
    [
        lambda d, m: ms.GPUCB(d, m),
        lambda d, m: ms.GPUCB(d, m, grounded=True),
        lambda d, m: ms.ECGPUCB(d, m, epsilon=0.1),
        lambda d, m: ms.ECGPUCB.as_in_paper(d, m, epsilon=0.1),
        lambda d, m: ms.RegretBalancing(d, m, horizon=60),
        lambda d, m: ms.PhasedUncertaintySampling(d, m, horizon=60),
        lambda d, m: ms.ThompsonSampling(d, m),
    ],
)
def test_a_forgotten_offset_is_noticed(make):
    """Values around 1,000 under a model that allows for 3: every policy reports it and takes its guarantee back."""
    domain = ms.Finite(np.linspace(0, 1, 30)[:, None])
    policy = make(domain, ms.Model(RBF(0.3), norm_bound=3.0, noise=0.1))
    rng = np.random.default_rng(0)
    for _ in range(60):
        query = policy.ask()
        policy.tell(query, 1000 + float(np.sin(5 * query.x[0]) + 0.1 * rng.standard_normal()))
    assert max(c.epsilon for c in policy.conflicts()) > 900
    assert not policy.recommend().guaranteed


@pytest.mark.parametrize("grounded", [False, True])
def test_conflicts_prove_what_a_diagnosis_proves(grounded):
    """Own bands and the model's band have half of δ each, also where the policy does not choose by own bands."""
    domain, model = ms.Box([(0, 1)]).grid(12), ms.Model(RBF(0.5), norm_bound=0.5, noise=0.1)
    policy, rng = ms.GPUCB(domain, model, grounded=grounded), np.random.default_rng(5)
    for _ in range(30):
        query = policy.ask(actions=[0, 3, 6, 9])
        policy.tell(query, 1.5 * (-1) ** query.index + 0.1 * rng.standard_normal())
    rows = policy.observations
    found = ms.diagnose(rows.x, rows.y, model, domain=domain, time_order=True)
    assert found.epsilon_lower > 0.1
    assert max(each.epsilon for each in policy.conflicts()) == pytest.approx(found.epsilon_lower, rel=1e-6)


def test_what_is_handed_in_again_must_agree():
    state = told(ms.GPUCB(DOMAIN, MODEL), 3).state()
    assert ms.restore(state, domain=DOMAIN, kernel=RBF(0.2)).t == 3
    with pytest.raises(StorageError, match="leave domain= out"):
        ms.restore(state, domain=ms.Finite(X + 1))
    with pytest.raises(StorageError, match="leave kernel= out"):
        ms.restore(state, kernel=Matern(0.5))
    with pytest.raises(StorageError, match="got str"):
        ms.restore("state")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.ask(X), r"ask\(actions=…\)"),
        (lambda p: p.ask(actions=[]), "nothing to choose from"),
        (lambda p: p.ask(actions=np.arange(40) > 3), "np.flatnonzero"),
        (lambda p: p.ask(actions=[0.1, 0.2]), r"as in \[\[0.1, 0.2\]\]"),
        (lambda p: p.ask(actions=[0, 1, 99]), "got 99 at position 2"),
        (lambda p: p.tell(X[0], [1.0, 2.0]), "expected a Query that this policy asked, or its id"),
        (lambda p: p.tell(p.ask(2), [[1.0], [2.0]]), "ravel"),
        (lambda p: p.tell(p.ask(), float("nan")), r"policy.drop\(query\)"),
        (lambda p: ms.Box((0, 1)), r"as in Box\(\[\(0, 1\), \(-5, 5\)\]\)"),
        (lambda p: ms.Box([(0, 1)] * 6).grid(100), "too large"),
    ],
)
def test_messages_say_what_to_do(call, message):
    with pytest.raises(InvalidInput, match=message):
        call(ms.GPUCB(DOMAIN, MODEL))
