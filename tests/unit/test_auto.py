"""The policy that learns its model: what it believes, its renewals, results of any size, directions, tables."""

import copy
import itertools
import json
import math
import random
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from cover import covering, slowly
from misspec import hyperparameters
from misspec.errors import HorizonReached, InvalidInput, StorageError
from misspec.policies.auto import learnt as learnings
from misspec.policies.auto.average import improvement, upper
from misspec.policies.auto.model import Learner, due
from misspec.policies.auto.rules import is_coarse
from misspec.policies.core.evidence import Evidence
from misspec.policies.core.field import BoxField

FINITE = ms.Finite(np.random.default_rng(0).random((30, 2)))
BOX = ms.Box([(-3.0, 0.7), (10.0, 30.0)])
SPACE = ms.Space({"rate": ms.Float(1e-4, 1e-1, log=True), "depth": ms.Int(1, 9), "kind": ms.Choice(["a", "b", "c"])})
WHOLE = ms.Space({"depth": ms.Int(1, 6), "kind": ms.Choice(["a", None])})
ROWS = {
    "heat": [float(20 * (i % 7)) for i in range(40)],
    "acid": [["citric", "acetic", "none"][i % 3] for i in range(40)],
    "yield": [0.1 * (i % 5) if i % 5 == 2 else None for i in range(40)],
}
TABLE = ms.Finite.from_table(ROWS, target="yield")
DOMAINS = {"finite": FINITE, "box": BOX, "space": SPACE, "whole": WHOLE, "table": TABLE}


def truth(x):
    return float(np.sin(3 * x[0]) + 0.1 * x[1])


def play(policy, rounds, f=truth, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    asked = []
    for _ in range(rounds):
        query = policy.ask()
        policy.tell(query, f(query.x) + noise * rng.standard_normal())
        asked.append(query)
    return asked


def some(domain, n=25, seed=8):
    """Points of a domain in user units."""
    field = ms.Auto(domain).field
    rng = np.random.default_rng(seed)
    return field.whole("").points if field.indexed else np.concatenate([field.draw(rng).points for _ in range(n)])


def renewals(policy):
    return [event[1] for event in policy.log.events if event[0] == "renew"]


# -- what it believes ----------------------------------------------------------------------------------------


def dense(policy, Z):
    """M and S from the samples of the model and all results, by Gaussian process regression from its definition."""
    told = policy.observations
    X, y = policy.domain.encode(told.x), policy.posterior.scaling.to(policy.log.sign * told.y)
    M, S = [], []
    for each in policy.posterior.posteriors:
        model = each.model
        K = model.kernel(X, X) + model.regularization * np.eye(len(X))
        cross = model.kernel(policy.domain.encode(Z), X)
        M.append(model.offset + cross @ np.linalg.solve(K, y - model.offset))
        variance = 1.0 - np.einsum("nm,mn->n", cross, np.linalg.solve(K, cross.T))
        S.append(model.scale * np.sqrt(np.maximum(variance, 0.0)))
    return np.array(M), np.array(S)


@pytest.mark.parametrize(("name", "minimize"), covering(DOMAINS, [False, True]))
def test_it_believes_the_average_of_its_samples(name, minimize):
    """Between renewals too, with some results asked for and some from elsewhere."""
    domain = DOMAINS[name]
    policy = ms.Auto(domain, minimize=minimize, seed=3)
    Z = some(domain)
    policy.observe(Z[:4], [0.3, -0.2, 0.5, 0.1])
    play(policy, 7, lambda x: 0.1 * truth(x), noise=0.05)
    policy.tell(policy.ask(2), [0.2, 0.3])
    policy.ask(2)  # what is pending changes no belief
    policy.observe(Z[2:3], [0.4])
    assert policy.posterior.t == policy.t
    assert len(policy.posterior.posteriors) == 8
    M, S = dense(policy, Z)
    mean, std = M.mean(axis=0), np.sqrt((S**2).mean(axis=0) + M.var(axis=0))
    scaling = policy.posterior.scaling
    sign = -1 if minimize else 1
    found_mean, found_std = policy.posterior.at(Z)
    np.testing.assert_allclose(found_mean, sign * scaling.back(mean), atol=1e-4 * scaling.width)
    ends = scaling.back(mean + std), scaling.back(mean - std)
    np.testing.assert_allclose(found_std, np.abs(ends[0] - ends[1]) / 2, atol=1e-3 * scaling.width)
    if policy.field.indexed:
        np.testing.assert_allclose(policy.posterior.mean, found_mean, atol=1e-6 * scaling.width)
        np.testing.assert_allclose(policy.posterior.std, found_std, atol=1e-5 * scaling.width)
    # bands: two standard deviations around the mean, which own bands hold
    band = policy.band(Z)
    new = [z.tolist() not in policy.observations.x.tolist() for z in Z]
    for end, sign in ((band.lower, -1), (band.upper, 1)):
        expected = policy.log.sign * scaling.back(mean + sign * policy.log.sign * 2 * std)
        np.testing.assert_allclose(end[new], expected[new], atol=1e-3 * scaling.width)
    assert (band.lower < band.upper).all()
    assert policy.information == pytest.approx(np.mean([p.information for p in policy.posteriors]))


@pytest.mark.parametrize("rule", [upper(1.0), upper(-2.0), improvement(0.4)], ids=["upper", "lower", "improvement"])
@pytest.mark.parametrize("pending", [False, True])
def test_the_slope_of_a_search_is_that_of_its_score(rule, pending):
    policy = ms.Auto(BOX)
    play(policy, 9, noise=0.3)
    policy.ask(3)
    policy._evidence.expect()
    search = policy.posterior.search(rule, policy._own, 0, pending=pending)
    U = np.random.default_rng(1).random((20, 2))

    def score(U):
        return search.score(U, BOX.decode(U))

    values, slopes = search.slope(U)
    np.testing.assert_allclose(values, score(U), rtol=1e-8, atol=1e-10)
    h = 1e-5
    for j in range(2):
        numeric = (score(U + h * np.eye(2)[j]) - score(U - h * np.eye(2)[j])) / (2 * h)
        np.testing.assert_allclose(slopes[:, j], numeric, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("rule", [upper(1.5), improvement(0.3), improvement(np.array([0.1, 0.5, -0.2]))])
def test_rules_have_the_derivatives_that_they_say(rule):
    rng = np.random.default_rng(0)
    M, S, h = rng.standard_normal((3, 6)), 0.2 + rng.random((3, 6)), 1e-6
    scored = rule(M, S)
    for k in range(3):
        move = np.zeros((3, 1))
        move[k] = h
        by_mean = (rule(M + move, S).values - rule(M - move, S).values) / (2 * h)
        by_std = (rule(M, S + move).values - rule(M, S - move).values) / (2 * h)
        np.testing.assert_allclose(scored.by_mean[k], by_mean, atol=1e-7)
        np.testing.assert_allclose(scored.by_std[k], by_std, atol=1e-7)


def test_improvement_is_what_it_is_called():
    """ln E max(f − best, 0), f Gaussian of a random sample: by simulation."""
    rng = np.random.default_rng(0)
    M, S = np.array([[0.0], [1.0]]), np.array([[1.0], [0.5]])
    draws = M + S * rng.standard_normal((2, 400_000))
    expected = np.maximum(draws - 0.7, 0).mean()
    assert np.exp(improvement(0.7)(M, S).values[0]) == pytest.approx(expected, rel=0.01)


def test_improvement_tells_hopeless_points_apart():
    """However far below the best: against quadrature in logarithms, and in the order of the means."""
    for gap in (1.0, 5.0, 30.0, 37.0, 40.0, 999.0, 1001.0):
        # ∫ t φ(t + gap) dt over t > 0, without its factor φ(gap)
        expected = quad(lambda t, gap=gap: t * np.exp(-0.5 * t * t - gap * t), 0, min(10, 60 / gap), epsabs=0)[0]
        found = improvement(gap)(np.zeros((1, 1)), np.ones((1, 1))).values[0]
        assert found + 0.5 * gap**2 + 0.5 * np.log(2 * np.pi) == pytest.approx(np.log(expected), rel=1e-6)
    M, S = np.linspace(-5, 5, 21)[None, :], np.full((1, 21), 1e-3)
    for best in (6.0, 1e3, 1e9, -1e3):
        scored = improvement(best)(np.tile(M, (3, 1)), np.tile(S, (3, 1)))
        assert (np.diff(scored.values) > 0).all()
        assert np.isfinite([scored.by_mean, scored.by_std]).all()
        assert (scored.by_mean > 0).all()


# -- renewals ------------------------------------------------------------------------------------------------


def test_a_renewal_is_an_event_of_asking_alone():
    policy = ms.Auto(FINITE)
    play(policy, 4)
    last = policy.ask()
    policy.tell(last, 0.5)
    assert renewals(policy) == []
    policy.observe([0, 1, 2], [0.1, 0.2, 0.3])
    policy.band()
    policy.recommend()
    _ = policy.posterior.at(FINITE.points), policy.state(), repr(policy), copy.deepcopy(policy), policy.conflicts()
    assert renewals(policy) == []
    policy.ask(4)
    assert len(renewals(policy)) == 1
    (renewal,) = renewals(policy)
    assert np.array(renewal["states"]).shape == (8, 4)
    assert np.array(renewal["fitted"]).shape == (8, 3)
    assert renewal["scaling"] == [1.0, policy.posterior.scaling.centre, policy.posterior.scaling.width]
    assert json.loads(json.dumps(renewal)) == renewal
    policy.tell(policy.pending[:2], [0.1, 0.2])
    policy.drop(policy.pending[0])
    assert len(renewals(policy)) == 1


def test_the_model_is_renewed_when_the_data_have_grown_by_a_seventh():
    policy = ms.Auto(FINITE, aim="earn")
    at = []
    for _ in range(40):
        before = len(renewals(policy))
        query = policy.ask()
        if len(renewals(policy)) > before:
            at.append(policy.t)
        policy.tell(query, truth(query.x))
    assert at[0] == 5
    assert at[-1] > 30
    for earlier, later in itertools.pairwise(at):
        assert later == max(earlier + 1, int(np.ceil(earlier * 8 / 7 - 1e-9)))


@pytest.mark.parametrize("name", ["finite", "space", *slowly("box", "whole", "table")])
def test_restoring_replays_renewals_and_samples_nothing(name, monkeypatch, tmp_path):
    domain = DOMAINS[name]
    policy = ms.Auto(domain, seed=2)
    play(policy, 8, noise=0.1)
    policy.ask(2)
    state = json.loads(json.dumps(policy.state()))
    policy.save(tmp_path / "policy.misspec")

    def refuse(*_, **__):
        raise AssertionError("sampled again")

    with monkeypatch.context() as patch:
        patch.setattr(hyperparameters, "renewed", refuse)
        patch.setattr(hyperparameters, "start", refuse)
        patch.setattr(hyperparameters.Hyperposterior, "__call__", refuse)
        twins = [ms.restore(state), ms.load(tmp_path / "policy.misspec"), copy.deepcopy(policy)]
    Z = some(domain)
    for twin in twins:
        assert twin.state() == policy.state()
        np.testing.assert_array_equal(twin.band(Z), policy.band(Z))
        np.testing.assert_array_equal(twin.posterior.at(Z), policy.posterior.at(Z))
    reference = [q.x.tolist() for q in _on(policy)]
    for twin in twins:
        assert [q.x.tolist() for q in _on(twin)] == reference
        assert twin.state() == policy.state()


def _on(policy):
    pending = policy.pending
    policy.tell(pending[::-1], [truth(q.x) for q in pending[::-1]])
    return play(policy, 4)


def test_a_state_is_a_copy():
    policy = ms.Auto(FINITE)
    play(policy, 6)
    state = policy.state()
    before = json.dumps(state)
    for event in state["events"]:
        if event[0] == "renew":
            event[1]["states"][0][0] = 99.0
            event[1].clear()
    assert json.dumps(policy.state()) == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda event: event[1].pop("states"),
        lambda event: event[1].update(states=[]),
        lambda event: event[1]["fitted"].pop(),
        lambda event: event[1].update(scaling=[1.0, 0.0, 1.0, 2.0]),
        lambda event: event.__setitem__(1, "all"),
        lambda event: event.append(3),
        lambda event: event.__setitem__(0, "renewal of a later version"),
    ],
)
def test_spoilt_renewals_are_named(spoil):
    policy = ms.Auto(FINITE)
    play(policy, 6)
    state = json.loads(json.dumps(policy.state()))
    spoil(next(event for event in state["events"] if event[0] == "renew"))
    with pytest.raises(StorageError):
        ms.restore(state)


def test_results_that_arrive_after_a_renewal_count_once():
    """Queries pend while the model is renewed; told or dropped later, they are in every sample once."""
    policy = ms.Auto(BOX)
    batch = policy.ask(7)
    policy.tell(batch[:5], [truth(q.x) for q in batch[:5]])
    late = policy.ask(2)  # a renewal, with four pending from here on
    assert len(renewals(policy)) == 1
    assert all(posterior.pending == 3 for posterior in policy.posteriors)
    policy.tell([late[1], batch[6]], [truth(late[1].x), truth(batch[6].x)])
    policy.drop(batch[5])
    policy.tell(late[0], truth(late[0].x))
    assert policy.t == policy.posterior.t == 8
    assert all(posterior.t == 8 and posterior.pending == 0 for posterior in policy.posteriors)
    Z = some(BOX)
    M, _ = dense(policy, Z)
    scaling = policy.posterior.scaling
    np.testing.assert_allclose(policy.posterior.at(Z)[0], scaling.back(M.mean(axis=0)), atol=1e-4 * scaling.width)
    # and own bands have each result once
    counts = policy._evidence.own.table()[2]
    assert counts.sum() == 8


def test_a_failed_renewal_changes_nothing(monkeypatch):
    policy = ms.Auto(TABLE)
    play(policy, 3)
    while not due(policy.t, policy._renewed):  # then the next query renews the model
        play(policy, 1)
    before, band = json.dumps(policy.state()), policy.band()
    with monkeypatch.context() as patch:
        patch.setattr(hyperparameters, "sampled_model", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            policy.ask()
    twin = ms.restore(json.loads(before))
    assert json.dumps(policy.state()) == before
    np.testing.assert_array_equal(policy.band(), band)
    np.testing.assert_array_equal(policy.ask().x, twin.ask().x)


def test_reading_leaves_no_trace_once_there_is_a_model():
    for domain in (BOX, WHOLE):
        one, other = ms.Auto(domain), ms.Auto(domain)
        play(one, 6)
        play(other, 6)
        for _ in range(3):
            one.recommend()
            one.band(some(domain))
            _ = one.posterior.at(some(domain)), one.information, repr(one), one.state()
            np.testing.assert_array_equal(play(one, 1)[0].x, play(other, 1)[0].x)
        assert one.state() == other.state()


# -- asked for or observed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_results_from_elsewhere_make_the_same_first_model(seed):
    """The first model depends on the results alone, whoever asked for them; so does what is chosen from a list."""
    asked, observed = ms.Auto(FINITE, seed=seed), ms.Auto(FINITE, seed=seed)
    play(asked, 5, noise=0.1, seed=seed)
    observed.observe(asked.observations.x, asked.observations.y)
    one, other = asked.ask(), observed.ask()
    assert one.index == other.index
    assert (one.mean, one.std) == (other.mean, other.std)
    assert renewals(asked) == renewals(observed)
    np.testing.assert_array_equal(asked.band(), observed.band())


def test_results_from_elsewhere_teach_as_much_as_those_asked_for():
    """Later models of the two are other samples of the same distribution: they agree about what is where."""
    asked, observed = ms.Auto(FINITE), ms.Auto(FINITE)
    play(asked, 24, noise=0.05)
    observed.observe(asked.observations.x, asked.observations.y)
    one, other = asked.ask(10), observed.ask(10)
    assert [q.details["rule"] for q in one].count("first") == [q.details["rule"] for q in other].count("first") == 0
    (a, a_std), (b, b_std) = asked.posterior.at(FINITE.points), observed.posterior.at(FINITE.points)
    assert np.corrcoef(a, b)[0, 1] > 0.97
    assert (np.abs(a - b) < 2 * (a_std + b_std)).all()
    values = np.array([truth(x) for x in FINITE.points])
    assert asked.recommend().mean == pytest.approx(observed.recommend().mean, abs=0.1 * np.ptp(values))
    assert max(truth(q.x) for q in other) >= max(truth(q.x) for q in one) - 0.1 * np.ptp(values)


def test_the_order_of_results_from_elsewhere_does_not_matter():
    x, y = FINITE.points[:12], [truth(x) for x in FINITE.points[:12]]
    one, other = ms.Auto(FINITE), ms.Auto(FINITE)
    one.observe(x, y)
    for i in reversed(range(12)):
        other.observe([i], [y[i]])
    assert one.ask().index == other.ask().index
    np.testing.assert_allclose(one.band().upper, other.band().upper, atol=1e-6)


# -- results of any kind ---------------------------------------------------------------------------------------

VALUES = {
    "equal": lambda t, v: 0.3,
    "zero": lambda t, v: 0.0,
    "equal and large": lambda t, v: 1e12,
    "1e12": lambda t, v: 1e12 * v,
    "1e12 and a little": lambda t, v: 1e12 + v,
    "1e149": lambda t, v: 1e149 * v,
    "1e-12": lambda t, v: 1e-12 * v,
    "1e-300": lambda t, v: 1e-300 * v,
    "the least floats": lambda t, v: 5e-324 * (t % 2),
    "an outlier above": lambda t, v: 1e12 if t == 6 else v,
    "an outlier below": lambda t, v: -1e12 if t == 2 else v,
    "of all sizes": lambda t, v: (-1.0) ** t * 10.0 ** (13 * t),
    "one largest above": lambda t, v: 1e150 if t == 1 else v,
    "one largest below": lambda t, v: -1e150 if t == 7 else 1e-140 * v,
    "the largest": lambda t, v: np.sign(v) * 1e150,
}
SETTINGS = {"plain": {}, "noise": {"noise": 0.1}, "little noise": {"noise": 1e-9}, "minimising": {"minimize": True}}


@pytest.mark.parametrize(("name", "settings"), covering(VALUES, SETTINGS))
def test_results_of_any_kind(name, settings):
    """No error, no warning (which is an error here), and what is believed is finite."""
    policy = ms.Auto(FINITE, **SETTINGS[settings])
    value = VALUES[name]
    for t in range(11):
        query = policy.ask()
        assert np.isnan(query.mean) or np.isfinite([query.mean, query.std]).all()
        policy.tell(query, value(t, truth(query.x)))
        if t > 3:
            band = policy.band()
            assert np.isfinite(band).all()
            assert (band.lower <= band.upper).all()
            assert np.isfinite([policy.posterior.mean, policy.posterior.std]).all()
    found = policy.recommend()
    assert np.isfinite([found.mean, found.lower, found.upper]).all()
    assert found.gap >= 0
    assert all(each.gap >= 0 for each in policy.conflicts())
    twin = ms.restore(json.loads(json.dumps(policy.state(), allow_nan=False)))
    np.testing.assert_array_equal(twin.band(), policy.band())


@pytest.mark.parametrize("name", ["equal", "1e149", "an outlier above", "the largest"])
def test_results_of_any_kind_on_a_space(name):
    policy = ms.Auto(SPACE)
    for t in range(8):
        query = policy.ask()
        policy.tell(query, VALUES[name](t, query.params["depth"] - 5.0))
        assert np.isfinite(policy.band(some(SPACE))).all()


@pytest.mark.parametrize("y", [np.finfo(float).min, 1e300, -1e151, np.inf, np.nan])
def test_sentinels_for_failures_are_no_results(y):
    policy = ms.Auto(FINITE)
    query = policy.ask()
    before = json.dumps(policy.state())
    for call in (lambda: policy.tell(query, y), lambda: policy.tell([query], [y]), lambda: policy.observe([0], [y])):
        with pytest.raises(ms.InvalidInput, match=r"drop\(query\)"):
            call()
    assert json.dumps(policy.state()) == before


@pytest.mark.parametrize("domain", [ms.Box([(0, 1)]), ms.Finite(np.linspace(0, 1, 8)[:, None])])
@pytest.mark.parametrize("noise", [1e-3, 1e-6])
def test_one_result_far_out_is_no_reason_to_expect_far_more(domain, noise):
    """500 σ off, where results count logarithmically: what is believed stays within some twenty times as far."""
    X = np.linspace(0, 1, 8)[:, None]
    y = 3 * noise * np.sin(6 * X[:, 0])
    y[2] += 500 * noise
    policy = ms.Auto(domain, noise=noise)
    policy.observe(X, y)
    policy.refresh()
    most = 25 * 500 * noise
    found, band = policy.recommend(), policy.band(X)
    assert max(found.gap, found.upper, float(np.abs(band).max())) < most


@pytest.mark.parametrize("outlier", [1e12, -1e12])
def test_one_outlier_spoils_nothing(outlier):
    """With one result that is as bad as can be, the best of the others is still found."""
    sign = -1 if outlier > 0 else 1
    policy = ms.Auto(ms.Finite(np.linspace(0, 1, 30)[:, None]), minimize=outlier > 0)
    policy.observe([3], [outlier])
    play(policy, 16, lambda x: -sign * (x[0] - 0.7) ** 2)
    assert policy.recommend().x[0] == pytest.approx(0.7, abs=0.06)


def test_units_change_nothing():
    """The same results in other units (powers of two, to the bit): the same queries."""
    asked = []
    for factor in (1.0, 2.0**40, 2.0**-40):
        policy = ms.Auto(BOX)
        asked.append([q.x.tolist() for q in play(policy, 10, lambda x, factor=factor: factor * truth(x))])
    assert asked[0] == asked[1] == asked[2]


@pytest.mark.parametrize("settings", SETTINGS)
def test_where_nothing_is_to_be_found_it_does_not_stay(settings):
    """A constant without noise, on 30 arms: after 40 rounds no arm was asked more than a fourth of them."""
    policy = ms.Auto(FINITE, aim="earn", **SETTINGS[settings])
    counts = np.bincount([q.index for q in play(policy, 40, lambda x: 0.7)], minlength=30)
    assert counts.max() <= 10
    assert np.count_nonzero(counts) >= 10


def test_the_first_points_are_spread_out():
    for domain in (BOX, SPACE, FINITE):
        X = np.array([domain.encode(q.x[None, :])[0] for q in ms.Auto(domain).ask(5)])
        distances = np.linalg.norm(X[:, None] - X[None], axis=2)[np.triu_indices(5, 1)]
        assert distances.min() > 0.2
    policy = ms.Auto(BOX)
    batch = policy.ask(5)
    assert [q.details["rule"] for q in batch] == ["first"] * 5
    assert policy.band(some(BOX)).upper.shape == (25,)  # there are bands before there is a model


# -- noise ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.05, 0.4])
def test_a_noise_that_is_handed_in_is_used(noise):
    policy = ms.Auto(FINITE, noise=noise)
    play(policy, 12, noise=noise)
    width = policy.posterior.scaling.width
    for posterior in policy.posteriors:
        assert posterior.model.noise * width == pytest.approx(noise)


def test_repeated_points_teach_the_noise():
    rng = np.random.default_rng(0)
    for noise in (0.02, 0.5):
        policy = ms.Auto(FINITE)
        rows = np.repeat(np.arange(8), 6)
        policy.observe(rows, [truth(FINITE.points[i]) + noise * rng.standard_normal() for i in rows])
        policy.ask()
        learnt = [p.model.noise * policy.posterior.scaling.width for p in policy.posteriors]
        assert noise / 1.6 < np.median(learnt) < noise * 1.6


# -- the other direction ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["finite", "box", "space"])
def test_minimising_mirrors_maximising_to_the_bit(name):
    domain = DOMAINS[name]
    high, low = ms.Auto(domain, seed=4), ms.Auto(domain, minimize=True, seed=4)
    assert low.minimize
    assert not high.minimize
    Z = some(domain)
    for policy, sign in ((high, 1), (low, -1)):
        policy.observe(Z[:2], [sign * 0.2, sign * 0.1])
    for _ in range(5):
        one, other = high.ask(2), low.ask(2)
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a.x, b.x)
            np.testing.assert_array_equal([a.mean, a.std], [-b.mean, b.std])
        high.tell(one, [truth(q.x) for q in one])
        low.tell(other, [-truth(q.x) for q in other])
    a, b = high.band(Z), low.band(Z)
    np.testing.assert_array_equal(a.lower, -b.upper)
    np.testing.assert_array_equal(a.upper, -b.lower)
    (mean, std), (mirrored, other) = high.posterior.at(Z), low.posterior.at(Z)
    np.testing.assert_array_equal(mean, -mirrored)
    np.testing.assert_array_equal(std, other)
    best, least = high.recommend(), low.recommend()
    np.testing.assert_array_equal(best.x, least.x)
    assert (best.mean, best.lower, best.upper, best.gap) == (-least.mean, -least.upper, -least.lower, least.gap)
    np.testing.assert_array_equal(high.observations.y, -low.observations.y)
    assert ms.restore(json.loads(json.dumps(low.state()))).minimize


def test_it_finds_the_least():
    policy = ms.Auto(ms.Finite(np.linspace(0, 1, 40)[:, None]), minimize=True)
    play(policy, 20, lambda x: (x[0] - 0.3) ** 2)
    assert policy.recommend().x[0] == pytest.approx(0.3, abs=0.06)
    assert policy.recommend().lower <= 0.001


# -- horizons ------------------------------------------------------------------------------------------------


def test_it_ends_at_its_horizon():
    policy = ms.Auto(FINITE, horizon=8)
    assert policy.limit == 8
    play(policy, 3)
    batch = policy.ask(20)
    assert len(batch) == 5
    with pytest.raises(HorizonReached, match="all 8 evaluations of the horizon are asked; see recommend"):
        policy.ask()
    policy.drop(batch[0])
    again = policy.ask(3)
    assert len(again) == 1
    policy.tell([*batch[1:], *again], [truth(q.x) for q in [*batch[1:], *again]])
    twin = ms.restore(json.loads(json.dumps(policy.state())))
    for each in (policy, twin):
        with pytest.raises(HorizonReached):
            each.ask(2)
        assert each.recommend().index is not None
    policy.observe([0], [0.3])
    with pytest.raises(HorizonReached):
        policy.ask()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"horizon": 0}, "horizon must be a whole number ≥ 1"),
        ({"horizon": 2.5}, "horizon must be a whole number"),
        ({"noise": 0}, "noise must be a finite number > 0"),
        ({"noise": float("nan")}, "noise must be a finite number"),
        ({"minimize": 1}, "minimize must be True or False"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)  # fmt: skip
def test_errors_say_what_was_expected(settings, says):
    with pytest.raises(InvalidInput, match=says):
        ms.Auto(FINITE, **settings)
    with pytest.raises(InvalidInput, match="domain must be a Finite or a Box"):
        ms.Auto([[0.1], [0.2]])


# -- tables --------------------------------------------------------------------------------------------------


def test_a_table_with_results_begins_with_them(tmp_path, monkeypatch):
    policy = ms.Auto(TABLE)
    given = [(i, y) for i, y in enumerate(ROWS["yield"]) if y is not None]
    assert policy.t == policy.posterior.t == len(given) == 8
    np.testing.assert_array_equal(policy.observations.y, [y for _, y in given])
    query = policy.ask()
    assert query.details["rule"] != "first"  # eight results are enough for a model
    assert query.row.keys() == ROWS.keys()
    query_mean = query.mean
    policy.tell(query, query_mean)
    policy.save(tmp_path / "policy.misspec")
    updated = ms.Finite.from_table({**ROWS, "yield": [0.5] * 40}, target="yield")
    twins = [
        ms.restore(json.loads(json.dumps(policy.state()))),
        ms.restore(policy.state(), domain=updated),  # what it was told is in its state
        ms.load(tmp_path / "policy.misspec"),
        copy.deepcopy(policy),
    ]
    with monkeypatch.context() as patch:  # nor does a call that is undone count them twice
        for step in ("learn", "forget"):
            patch.setattr(Evidence, step, lambda *_: 1 / 0)
        query = policy.ask()
        with pytest.raises(ZeroDivisionError):
            policy.tell(query, 0.4)
    policy.drop(query)
    for twin in [*twins, policy]:
        assert twin.t == twin.posterior.t == 9
        np.testing.assert_array_equal(twin.observations.y, [*(y for _, y in given), query_mean])
        np.testing.assert_array_equal(twin.band(), twins[0].band())
    assert ms.Auto(ms.Finite.from_table({**ROWS, "yield": [None] * 40}, target="yield")).t == 0
    assert len(ms.Auto(TABLE, horizon=3).ask(5)) == 3  # results from elsewhere do not count towards the horizon


# -- actions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [0, 7])
def test_it_chooses_from_what_is_offered(rounds):
    for domain in (FINITE, TABLE):
        policy = ms.Auto(domain)
        play(policy, rounds)
        query = policy.ask(actions=[3, 5, 9])
        assert query.index in (3, 5, 9)
        assert query.index == [3, 5, 9][query.position]
    policy = ms.Auto(BOX)
    play(policy, rounds)
    points = some(BOX)[:4]
    batch = policy.ask(3, actions=points)
    for query in batch:
        np.testing.assert_array_equal(query.x, points[query.position])
    policy.tell(batch, [0.1, 0.2, 0.3])
    with pytest.raises(InvalidInput, match="indices need a Finite domain"):
        policy.ask(actions=[0, 1])
    for domain in (SPACE, WHOLE):
        policy = ms.Auto(domain)
        play(policy, rounds)
        dicts = [domain.params(x) for x in some(domain)[:4]]
        query = policy.ask(actions=dicts)
        assert query.params == dicts[query.position]
        policy.tell(dict(query.params), 0.4)
        assert not policy.pending
    policy = ms.Auto(TABLE)
    play(policy, rounds)
    query = policy.ask(actions=[{"heat": 20.0, "acid": "acetic"}, {"heat": 120.0, "acid": "none"}])
    assert (query.row["heat"], query.row["acid"]) in ((20.0, "acetic"), (120.0, "none"))
    query = policy.ask(actions=[{"heat": 33.0, "acid": "acetic"}])  # no row of the table
    assert query.index is None
    policy.tell(query, 0.2)
    with pytest.raises(InvalidInput):
        policy.ask(actions=[{"heat": 20.0, "acid": "sulphuric"}])


def test_among_actions_it_takes_the_better_one():
    """However sure it is that neither is the best of all."""
    for rounds in (14, 15):
        policy = ms.Auto(ms.Finite(np.linspace(0, 1, 40)[:, None]))
        play(policy, rounds, lambda x: x[0])
        assert policy.ask(actions=[2, 36]).index == 36


# -- domains of one's own --------------------------------------------------------------------------------------


class Plain:
    """A box that does not say which columns belong to which parameter."""

    kind = "Plain"

    def __init__(self, box):
        self.inner = box

    def __getattr__(self, name):
        if name in ("columns", "inner"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def field(self, seed, resolution):
        return BoxField(self, seed, resolution)


def test_a_domain_without_columns_has_one_per_dimension():
    one, other = ms.Auto(Plain(BOX)), ms.Auto(BOX)
    assert one.columns == other.columns == [(0, 1), (1, 2)]
    for a, b in zip(play(one, 7), play(other, 7), strict=True):
        np.testing.assert_array_equal(a.x, b.x)


def test_lists_of_points_of_any_scale():
    """Length scales are relative to the reach of each coordinate: a factor in one of them changes nothing."""
    factors = np.array([2.0**20, 2.0**-20])
    one, other = ms.Auto(FINITE), ms.Auto(ms.Finite(FINITE.points * factors))
    for _ in range(9):
        a, b = one.ask(), other.ask()
        assert a.index == b.index
        for policy, query in ((one, a), (other, b)):
            policy.tell(query, truth(FINITE.points[query.index]))
    constant = ms.Auto(ms.Finite(np.stack([np.linspace(0, 1, 20), np.full(20, 3.0)], axis=1)))
    play(constant, 7)
    assert np.isfinite(constant.band()).all()
    play(ms.Auto(ms.Finite([[1.0, 2.0]]), aim="earn"), 7)


def test_it_says_what_it_is():
    policy = ms.Auto(FINITE, horizon=20)
    play(policy, 6)
    assert repr(policy).startswith("Auto(Finite(30 points in 2 dimensions), aim='best', minimize=False, noise=None")
    assert repr(policy.posterior) == "ModelAverage(8 samples of the model, t=6)"
    assert not policy.guaranteed
    assert any("learnt from the data" in each for each in policy.caveats)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.recommend()


# -- evaluations that fail -------------------------------------------------------------------------------------


def test_a_failure_keeps_away_for_a_while_and_by_chance_not_for_ever():
    """What failed is not asked at once; if it was by chance it is tried again, and its result counts."""
    policy = ms.Auto(FINITE, aim="earn")
    play(policy, 8)
    while (first := policy.ask()).x.tolist() in policy.observations.x.tolist():  # no result there would help it
        policy.tell(first, truth(first.x))
    policy.drop(first)
    twin = ms.restore(json.loads(json.dumps(policy.state())))
    assert policy.ask().index == twin.ask().index != first.index
    assert first.index in [query.index for query in play(policy, 30)]


def late_failures(policy, works, value, rounds):
    """Play; the share of failures in the last third."""
    failed = []
    for _ in range(rounds):
        query = policy.ask()
        failed.append(not works(query.x))
        policy.drop(query) if failed[-1] else policy.tell(query, value(query.x))
    return float(np.mean(failed[-(rounds // 3) :]))


@pytest.mark.slow
@pytest.mark.parametrize(("aim", "late"), [("earn", 0.15), ("best", 0.2)])
@pytest.mark.parametrize("name", ["half-space, best beyond", "oblique, best at the edge"])
def test_few_late_queries_fail_and_the_best_that_works_is_found(name, aim, late, monkeypatch):
    """Two fixed runs of `benchmarks/failures.py`; on the half-space 0.52 failed late while failures taught nothing. For
    the best in the end 0.17, 0.05, 0.07, 0.10, 0.12 and 0.12 do on the six problems there."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # which benchmarks set
        monkeypatch.setenv(variable, "1")
    import failures

    problem = next(each for each in failures.PROBLEMS if each.name == name)
    world = problem.world()
    runs = [failures.auto(problem, world, seed, aim=aim) for seed in range(2)]
    assert np.mean([run.late for run in runs]) <= late
    assert np.mean([run.missed for run in runs]) <= 0.02  # 0.000 where it is known in advance what works
    assert max(run.said for run in runs) <= 0.05


def test_without_noise_rounds_go_to_what_may_still_improve():
    """The best value is known to many digits soon: the other hill is found, rather than more of them."""
    policy = ms.Auto(ms.Box([(0, 1)]))
    f = lambda x: float(np.exp(-200 * (x[0] - 0.2) ** 2) + 1.5 * np.exp(-800 * (x[0] - 0.83) ** 2))  # noqa: E731
    asked = [query.x[0] for query in play(policy, 30, f)]
    assert len(np.unique(np.round(asked, 3))) > 20
    assert max(f([x]) for x in asked) > 1.4


@pytest.mark.parametrize("seed", range(3))
def test_failures_teach_where_evaluations_work(seed):
    """A ball around the best values fails: few late queries do (0.73, 0.33 and 0.53 while failures taught nothing)."""
    domain = ms.Finite(np.random.default_rng(1).random((200, 3)), box=ms.Box([(0, 1)] * 3))
    policy = ms.Auto(domain, aim="earn", seed=seed)
    value = lambda x: float(np.exp(-3 * ((x - [0.5, 0.5, 0.4]) ** 2).sum()))  # noqa: E731
    works = lambda x: ((x - 0.5) ** 2).sum() > 0.16  # noqa: E731
    assert late_failures(policy, works, value, 45) <= 0.2
    best = max(value(x) for x in domain.points if works(x))
    told = policy.recommend()
    assert works(told.x)
    assert value(told.x) > best - 0.07  # of 0.69
    assert works(policy.ask(4)[0].x)
    twin = ms.restore(json.loads(json.dumps(policy.state())))
    np.testing.assert_array_equal(policy.ask().x, twin.ask().x)
    np.testing.assert_array_equal(policy.recommend().x, twin.recommend().x)


def test_a_batch_does_not_walk_into_what_fails():
    policy = ms.Auto(ms.Finite(np.linspace(0, 1, 60)[:, None]))
    late_failures(policy, lambda x: x[0] > 0.4, lambda x: float(1 - x[0]), 20)
    assert sum(query.x[0] <= 0.4 for query in policy.ask(6)) <= 2


def test_where_everything_has_failed_it_spreads_out():
    """Twenty failures and no result: no two next to each other; and then it goes to where the first success was."""
    policy = ms.Auto(BOX)
    asked = []
    for _ in range(20):
        query = policy.ask()
        asked.append(policy.domain.encode([query.x])[0])
        policy.drop(query)
    apart = np.linalg.norm(np.array(asked)[:, None] - np.array(asked)[None], axis=2) + np.eye(20)
    assert apart.min() > 0.07
    first = policy.ask()
    policy.tell(first, 1.0)
    near = [np.linalg.norm(policy.domain.encode([q.x])[0] - policy.domain.encode([first.x])[0]) for q in policy.ask(3)]
    assert np.mean(near) < 0.4


def test_without_failures_none_is_looked_for(monkeypatch):
    monkeypatch.setattr("misspec.policies.auto.feasible.Feasible", lambda *_: 1 / 0)
    policy = ms.Auto(BOX)
    play(policy, 8)
    assert policy.recommend() is not None


@pytest.mark.parametrize("domain", [BOX, ms.Space({"a": ms.Float(-3, 0.7), "b": ms.Int(0, 8)})], ids=["box", "space"])
def test_where_evaluations_always_fail_it_does_not_stay(domain):
    """The best values lie where every evaluation fails: what is best outside is found, in 25 results."""
    policy, failures, best = ms.Auto(domain), 0, -3.0
    while policy.t < 25:
        query = policy.ask()
        if query.x[0] > 0.0:
            policy.drop(query)
            failures += 1
        else:
            policy.tell(query, float(query.x[0]))
            best = max(best, query.x[0])
        assert failures <= 40
    assert best > -0.1


def test_failures_by_chance_keep_nothing_away():
    """A tenth of all evaluations fail, wherever they are: the best candidates still get their results."""
    late = []
    for seed in range(3):
        policy = ms.Auto(ms.Finite(np.linspace(0, 1, 12)[:, None]), aim="earn")
        rng, told = np.random.default_rng(seed), []
        while policy.t < 60:
            query = policy.ask()
            if rng.random() < 0.1:
                policy.drop(query)
            else:
                policy.tell(query, float(query.x[0]) + 0.3 * rng.standard_normal())
                told.append(query.index)
        late += told[-30:]
    assert np.mean(late) > 9.3


def test_it_stays_with_the_best_where_nothing_else_is_left_to_try():
    """Few candidates, much noise, many rounds: those that are known to be worse are not asked instead."""
    policy = ms.Auto(ms.Finite(np.linspace(0, 1, 12)[:, None]), aim="earn")
    asked = [q.index for q in play(policy, 70, lambda x: x[0], noise=0.3)]
    assert np.mean(asked[-30:]) > 9.5
    assert np.ptp(asked[-30:]) > 0  # some rounds are for caution


def test_on_offer_alone_a_failing_point_is_asked_again():
    policy = ms.Auto(FINITE)
    play(policy, 6)
    for _ in range(3):
        policy.drop(policy.ask(actions=[4]))
    assert policy.ask(actions=[4]).index == 4
    assert policy.ask(actions=[4, 5]).index == 5


# -- batches ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DOMAINS)
def test_a_batch_is_not_spent_on_one_point(name):
    """No point twice in a batch, before there is a model and after, whatever leads by far."""
    domain = DOMAINS[name]
    policy = ms.Auto(domain)
    for count in (7, 12):  # WHOLE has twelve members
        batch = policy.ask(count)
        assert len({query.x.tobytes() for query in batch}) == count
        policy.tell(batch, [10.0 if i == 0 else 0.1 * truth(q.x) for i, q in enumerate(batch)])


def test_a_batch_on_a_box_spreads():
    policy = ms.Auto(ms.Box([(0.0, 1.0)] * 3))
    first = policy.ask(20)
    policy.tell(first, [float(np.sin(3 * q.x).sum()) for q in first])
    X = np.array([q.x for q in policy.ask(10)])
    distances = np.linalg.norm(X[:, None] - X[None], axis=2)[np.triu_indices(10, 1)]
    assert np.median(distances) > 0.05


def test_among_actions_only_a_batch_is_of_different_ones():
    """The best of a round's actions is the best although it pends from another round, whose result comes late."""
    policy = ms.Auto(ms.Finite(np.linspace(0, 1, 12)[:, None]))
    play(policy, 14, lambda x: x[0])
    late = [policy.ask(actions=[1, 2, 11]).index for _ in range(3)]
    assert late == [11, 11, 11]
    assert len({query.index for query in policy.ask(3, actions=[1, 2, 11])}) == 3


def test_a_batch_that_is_larger_than_the_domain():
    policy = ms.Auto(ms.Finite([[0.0], [1.0]]))
    assert len(policy.ask(6)) == 6
    policy.tell(policy.pending, [0.1, 0.2, 0.1, 0.3, 0.1, 0.2])
    assert {q.index for q in policy.ask(5)} == {0, 1}


# -- what is read ----------------------------------------------------------------------------------------------


def test_equal_rows_keep_evidence_of_their_own():
    """Two arms with the same coordinates: the model cannot tell them apart, their own results can."""
    table = {"x": [1.0, 1.0, 2.0, 3.0, 4.0, 5.0], "lot": list("ABABAB"), "y": [None] * 6}
    policy = ms.Auto(ms.Finite.from_table(table, target="y", ignore=["lot"]), noise=0.5)
    policy.observe([0, 0, 0, 1, 1, 1, 2, 3, 4, 5], [0, 0, 0, 10, 10, 10, 1.0, 1.2, 0.9, 1.1])
    policy.ask()
    assert sorted(policy._evidence.own.keys()) == [0, 1, 2, 3, 4, 5]
    assert policy.recommend().row["lot"] == "B"


def test_what_is_read_rests_on_what_was_told():
    """Many results at once, after a model of a few: summary, band and recommendation are of all of them."""
    x = np.linspace(0, 1, 60)[:, None]
    policy = ms.Auto(ms.Finite(x))
    for _ in range(6):
        policy.tell(policy.ask(), 0.0)
    query = policy.ask()
    policy.observe(np.arange(60), 1000 * np.sin(5 * x[:, 0]))
    assert policy.stale
    before = policy.state()
    policy.recommend()  # by the model that stands
    assert policy.state() == before
    policy.refresh()
    assert not policy.stale
    state = policy.state()
    assert abs(policy.recommend().x[0] - np.pi / 10) < 0.05
    assert policy.recommend().mean == pytest.approx(1000, abs=100)
    assert policy.state() == state
    twin = ms.restore(json.loads(json.dumps(state)))
    policy.tell(query, 0.0)
    twin.tell(query.id, 0.0)
    for _ in range(3):
        assert policy.ask().index == twin.ask().index
    assert policy.state() == twin.state()


def test_a_model_is_made_once_for_readers_and_the_next_query(monkeypatch):
    made = []
    renewal = Learner.renewal
    monkeypatch.setattr(Learner, "renewal", lambda *given, **more: made.append(more) or renewal(*given, **more))
    policy = ms.Auto(FINITE)
    policy.observe(np.arange(12), [truth(x) for x in FINITE.points[:12]])
    assert policy.summary() == "There is no model of the 12 results yet: ask() or refresh() learns it."
    assert "refresh()" in policy.recommend().caveats[0]
    with pytest.raises(InvalidInput, match=r"needs a model, and so refresh\(\), or ask\(\)"):
        policy.importance()
    assert not made
    policy.refresh()
    policy.recommend()
    policy.band()
    policy.summary()
    policy.ask()
    policy.summary()
    # one to choose by and one that sentences rest on, again after a query; samples=2 is for results that look odd
    assert len([more for more in made if not more]) == 3


def test_what_always_fails_is_not_recommended():
    x = np.linspace(0, 1, 21)[:, None]
    policy = ms.Auto(ms.Finite(x))
    while policy.t < 15:
        query = policy.ask()
        if 0.6 < query.x[0] < 0.9:
            policy.drop(query)
        else:
            policy.tell(query, float(query.x[0] if query.x[0] < 0.9 else -1.0))
    assert not 0.6 < policy.recommend().x[0] < 0.9
    best = policy.recommend(actions=[4, 15, 8, 14])  # of which 0.75 and 0.7 always fail
    assert best.position == 2
    assert best.index == 8
    assert policy.recommend(actions=[15]).position == 0


@pytest.mark.parametrize("size", [1.0, 1e100, 1e149])
def test_it_tells_what_it_learnt_of_results_of_any_size(size):
    policy = ms.Auto(FINITE)
    play(policy, 9, lambda x: 0.5 * size * (x[0] - x[1]))
    assert "matter" in policy.summary()
    assert sum(each.share for each in policy.importance().values()) == pytest.approx(1.0, abs=0.05)


def test_of_equal_results_it_says_that_nothing_is_known():
    for value in (0.0, 1e12):
        policy = ms.Auto(FINITE)
        play(policy, 9, lambda x, value=value: value)
        assert "All results are equal" in policy.summary()
        assert "worth it" not in policy.summary()


def test_small_differences_of_large_results_count():
    x = np.linspace(0, 1, 40)[:, None]
    policy = ms.Auto(ms.Finite(x))
    play(policy, 20, lambda x: 1e12 + np.sin(6 * x[0]))
    assert policy.recommend().x[0] == pytest.approx(np.pi / 12, abs=0.08)
    assert policy.band().upper.max() - policy.band().lower.min() < 100


def test_without_a_model_it_says_so():
    policy = ms.Auto(FINITE)
    assert "there is no model yet" in policy.recommend().caveats[0]
    play(policy, 6)
    assert "there is no model yet" not in "".join(policy.recommend().caveats)
    with pytest.raises(TypeError, match="Auto too many positional arguments; it takes domain, aim, minimize, noise"):
        ms.Auto(FINITE, policy.model)


# -- the best in the end -----------------------------------------------------------------------------------------------


SIX = ms.Finite(np.random.default_rng(3).random((6, 2)))


def test_without_repeats_no_point_is_asked_twice_and_there_is_an_end():
    policy = ms.Auto(SIX, repeats=False)
    assert sorted(query.index for query in play(policy, 6)) == list(range(6))
    before = policy.state()
    with pytest.raises(ms.HorizonReached, match="every candidate was tried"):
        policy.ask()
    assert policy.state() == before
    assert policy.ask(actions=[2]).index == 2  # where others say what is on offer, it is


@pytest.mark.parametrize("aim", ["best", "earn"])
def test_a_batch_without_repeats_ends_with_the_candidates(aim):
    policy = ms.Auto(SIX, repeats=False, aim=aim)
    play(policy, 4)
    batch = policy.ask(5)
    assert len(batch) == 2
    policy.drop(batch[0])  # by chance, perhaps: tried once more
    again = policy.ask()
    assert again.index == batch[0].index
    policy.drop(again)
    with pytest.raises(ms.AwaitingResults, match="tried or is pending: tell or drop the pending ones"):
        policy.ask()
    policy.drop(batch[1])  # which is free again
    last = policy.ask()
    assert last.index == batch[1].index
    policy.tell(last, truth(last.x))
    with pytest.raises(ms.HorizonReached):
        policy.ask()


def test_results_that_may_be_coarse_do_not_end_it():
    """Zeros and ones, of which the first are all zero: noise may hide behind equal results."""
    chance = random.Random(0)
    policy = ms.Auto(ms.Finite(np.arange(6.0)[:, None]))
    assert len(play(policy, 40, lambda x: float(chance.random() < 0.05 + 0.05 * x[0]))) == 40


def test_a_symmetric_function_is_not_coarse():
    """Equal results at different points, but others are near each other, by more than rounding errors."""
    grid = ms.Box([(0, 1), (0, 1)]).grid(6)
    policy = ms.Auto(grid)
    bowl = lambda x: -((x[0] - 0.4) ** 2) - (x[1] - 0.6) ** 2 + 0.02 * x[0] * x[1]  # noqa: E731
    assert len({bowl(x) for x in grid.points}) < len(grid.points)
    assert len(ms.optimize(policy, bowl, 100)) < 60
    told = types.SimpleNamespace(told=[types.SimpleNamespace(key=i) for i in range(4)], y=[0.1 + 0.2, 0.3, 0.3, 0.4])
    assert is_coarse(told)  # 0.30000000000000004
    told.y[0] = 0.3001
    assert not is_coarse(told)


def test_noises_of_their_own_do_not_end_it():
    policy, rng = ms.Auto(SIX, noise=1e-6), np.random.default_rng(1)
    for _ in range(20):
        query = policy.ask()
        policy.tell(query, truth(query.x) + 0.5 * rng.standard_normal(), noise=0.5)
    assert policy.t == 20


def test_a_batch_is_shorter_where_its_renewal_finds_that_repeats_are_of_no_use():
    """The model is learnt within the call; what is left is asked, rather than nothing."""
    for seed in range(4):
        policy = ms.Auto(ms.Finite(np.random.default_rng(seed).random((9, 2))), seed=seed)
        asked = []
        while True:
            try:
                batch = policy.ask(6)
            except ms.HorizonReached:
                break
            policy.tell(batch, [float(query.x[0] + np.sin(7 * query.x[1])) for query in batch])
            asked += [query.index for query in batch]
        assert set(asked) == set(range(9))


def test_a_loop_that_has_nothing_to_ask_says_so():
    policy = ms.Auto(SIX, repeats=False)
    play(policy, 6)
    found = ms.optimize(policy, truth, 3)
    assert (len(found), found.best, found.x.shape, found.index.shape) == (0, None, (0, 2), (0,))
    assert found.reason == (
        "stopped after 6 evaluations: every candidate was tried, and a repeat would teach nothing; see recommend()"
    )


def test_without_repeats_a_failure_comes_before_what_is_known():
    policy = ms.Auto(SIX, repeats=False)
    batch = policy.ask(6)
    policy.drop(batch[0])
    policy.tell(batch[1:], [truth(query.x) for query in batch[1:]])
    assert [query.index for query in policy.ask(4)] == [batch[0].index]


@pytest.mark.parametrize("settings", [{"repeats": False}, {}], ids=["no repeats", "learnt"])
def test_where_a_part_always_fails_it_ends_all_the_same(settings):
    """Of twenty candidates eight fail whenever they are tried: none of them more than twice."""
    policy, failed = ms.Auto(ms.Finite(np.linspace(0, 1, 20)[:, None]), seed=1, **settings), []
    with pytest.raises(ms.HorizonReached):
        for _ in range(60):
            query = policy.ask()
            if query.x[0] > 0.6:
                policy.drop(query)
                failed.append(query.index)
            else:
                policy.tell(query, float(np.sin(7 * query.x[0]) + query.x[0]))
    assert np.bincount(failed).max() == 2


def test_for_the_best_in_the_end_contenders_are_compared_rather_than_what_is_known_to_be_worse():
    values = np.array([1.0, 0.9, 0.95, *[0.0] * 9])
    policy = ms.Auto(ms.Finite(np.eye(12)), noise=0.3)
    asked = [q.index for q in play(policy, 100, lambda x: float(values[np.argmax(x)]), noise=0.3)]
    assert np.mean(np.array(asked[50:]) < 3) > 0.4


def test_without_repeats_results_are_exact():
    policy = ms.Auto(SIX, repeats=False)
    play(policy, 6)
    best = policy.recommend()
    assert best.index == int(np.argmax([truth(x) for x in SIX.points]))
    assert best.upper - best.lower < 0.05
    assert "Results are taken to have no noise (repeats=False)." in policy.summary()


def test_the_known_best_is_not_asked_to_improve_on_itself():
    """Of a noisy list, one at a time: the same point is not asked three times in a row."""
    domain = ms.Finite(np.random.default_rng(5).random((40, 2)))
    asked = [query.index for query in play(ms.Auto(domain, seed=3), 40, noise=0.1)]
    assert max(len(list(run)) for _, run in itertools.groupby(asked)) <= 2


def test_the_loop_ends_quietly_when_all_was_tried():
    found = ms.optimize(ms.Auto(SIX, repeats=False), lambda x: truth(x), 20)
    assert len(found.y) == 6


def test_without_noise_it_learns_that_repeats_are_of_no_use():
    """Six values of a function without noise: all are tried within ten rounds, and then it ends."""
    policy, asked = ms.Auto(SIX), []
    with pytest.raises(ms.HorizonReached):
        for _ in range(40):
            asked += [query.index for query in play(policy, 1, lambda x: x[0] + np.sin(7 * x[1]))]
    assert set(asked[:10]) == set(range(6))
    forever = ms.Auto(SIX, aim="earn")
    assert len(play(forever, 40)) == 40


def test_on_a_box_without_repeats_no_point_is_asked_twice():
    policy = ms.Auto(ms.Box([(0, 1)]), repeats=False)
    asked = [query.x.tobytes() for query in play(policy, 25, lambda x: -((x[0] - 0.3) ** 2))]
    assert len(set(asked)) == 25


@pytest.mark.parametrize(
    ("settings", "domain", "first"),
    [
        ({}, ms.Box([(0, 1)] * 2), 5),
        ({}, ms.Box([(0, 1)] * 12), 12),
        ({"horizon": 40}, ms.Box([(0, 1)] * 12), 10),
        ({"aim": "earn"}, ms.Box([(0, 1)] * 12), 5),
        ({"first": 9}, ms.Box([(0, 1)]), 9),
        ({"first": 2}, ms.Box([(0, 1)]), 5),
        ({}, ms.Finite(np.random.default_rng(0).random((28, 8))), 7),
    ],
)
def test_the_first_design_fits_the_problem(settings, domain, first):
    """Results from elsewhere count; a model takes five."""
    policy = ms.Auto(domain, **settings)
    policy.observe(domain.points[:2] if hasattr(domain, "points") else np.full((2, domain.dimension), 0.5), [0.0, 1.0])
    rules = [query.details["rule"] for query in play(policy, first, lambda x: float(x.sum()), noise=0.1)]
    assert rules[: first - 2] == ["first"] * (first - 2)
    assert "first" not in rules[first - 2 :]


@pytest.mark.parametrize("given", [{"aim": "win"}, {"first": 0}, {"repeats": "no"}])
def test_what_auto_refuses(given):
    with pytest.raises(ms.InvalidInput):
        ms.Auto(BOX, **given)


def test_several_are_dropped_at_once():
    policy = ms.Auto(SPACE)
    batch = policy.ask(4)
    with pytest.raises(InvalidInput, match="dropped twice"):
        policy.drop([batch[0], batch[0].id])
    policy.drop([batch[0], batch[1].id, dict(batch[2].params)])
    assert [q.id for q in policy.pending] == [batch[3].id]


def test_what_was_never_tried_qualifies_the_verdict():
    space = ms.Space({"x": ms.Float(0, 1), "kind": ms.Choice(["a", "b", "c", "d"])})
    policy = ms.Auto(space)
    rows = [{"x": x, "kind": kind} for x in np.linspace(0, 1, 8) for kind in "ab"]
    policy.observe(rows, [1.0 + 1e-3 * (r["kind"] == "a") * r["x"] for r in rows])
    policy.refresh()
    said = policy.summary()
    assert ("2 of 4 options of kind" in said) == (": worth it" not in said)
    assert policy.chance(10.0) < policy.chance(1e-4)


# -- what several share ------------------------------------------------------------------------------------------------


def taught(n=8, seed=0):
    policy = ms.Auto(SHARED, seed=seed)
    rng = np.random.default_rng(5)
    X = np.concatenate([SHARED.draw(rng) for _ in range(n)])
    policy.observe(X, np.sin(3 * X[:, 0]) + X[:, 1])
    return policy


SHARED = ms.Space({"a": ms.Float(0, 1), "n": ms.Int(1, 5)})


def test_a_model_that_another_has_learnt_can_be_adopted():
    one, other = taught(), taught(seed=7)
    assert one.samples is None
    one.refresh()
    samples = one.samples
    assert samples["results"] == 8
    assert json.loads(json.dumps(samples)) == samples
    other.adopt(samples)
    assert other.samples == samples
    X = SHARED.draw(np.random.default_rng(1))
    np.testing.assert_array_equal(one.posterior.at(X), other.posterior.at(X))
    before = len(other.log.events)
    other.refresh()  # not due: as many results as it was learnt from
    assert len(other.log.events) == before
    other.observe([[0.5, 2.0], [0.6, 2.0]], [0.1, 0.2])
    other.refresh()
    assert other.samples["results"] == 10
    twin = ms.restore(other.state())
    np.testing.assert_array_equal(twin.posterior.at(X), other.posterior.at(X))
    assert twin.ask().params == other.ask().params


def test_what_is_no_model_is_refused_and_changes_nothing():
    policy = taught()
    policy.refresh()
    good, state = policy.samples, policy.state()
    bad = [
        None, {}, [], {**good, "states": [[0.0]]}, {**good, "states": good["states"][:1]}, {**good, "results": -1},
        {**good, "scaling": [1.0, 0.0, 0.0]}, {**good, "fitted": [[math.nan] * 3] * len(good["states"])},
        {**good, "states": (1e9 * np.ones_like(good["states"])).tolist()}, {**good, "unexplained": "much"},
    ]  # fmt: skip
    for each in bad:
        with pytest.raises(InvalidInput, match="expected what `samples`"):
            policy.adopt(each)
    for each in ({**good, "results": 9}, {**good, "scaling": [-1.0, *good["scaling"][1:]]}):
        with pytest.raises(InvalidInput, match="the other direction"):
            policy.adopt(each)
    assert policy.state() == state


def test_evaluations_of_others_count_towards_no_horizon():
    policy = ms.Auto(SHARED, horizon=3)
    begun = policy.mark_pending([[0.1, 1.0], [0.2, 2.0], [0.3, 3.0]])
    policy.tell(begun[0], 0.5)
    policy.drop(begun[1])
    assert policy.asked == 0
    assert len(policy.ask(5)) == 3
    with pytest.raises(HorizonReached):
        policy.ask()
    twin = ms.restore(policy.state())
    assert twin.asked == policy.asked == 3
    assert len(twin.pending) == 4
    with pytest.raises(InvalidInput, match="got None"):
        policy.mark_pending(None)


def test_others_have_contexts_too():
    joint = ms.Joint(ms.Finite([[0.0], [0.5], [1.0]]), ms.Box([(0, 1)]))
    for policy in (
        ms.Auto(joint),
        ms.RegretBalancing(joint, ms.Model(RBF(0.5), norm_bound=1.0, noise=0.1), horizon=50),
    ):
        with pytest.raises(InvalidInput, match="got None"):
            policy.mark_pending(None, context=[0.3])
        begun = policy.mark_pending([0, 2], context=[[0.3], [0.4]])
        assert [query.index for query in begun] == [0, 2]
        assert [query.position for query in begun] == [None, None]
        np.testing.assert_array_equal([query.context for query in begun], [[0.3], [0.4]])
        policy.tell(begun, [0.1, 0.2])
        assert policy.t == 2


def test_many_results_are_told_by_features_and_the_model_stays_right():
    """Beyond 300 results posteriors have at most 300 features: means stay near those of the exact ones."""
    rng = np.random.default_rng(3)
    space = ms.Space({name: ms.Float(0, 1) for name in "abc"})
    X = rng.random((600, 3))
    f = np.sin(4 * X[:, 0]) * X[:, 1] + 0.3 * X[:, 2]
    policy = ms.Auto(space, seed=0)
    policy.observe(X, f + 0.05 * rng.standard_normal(600))
    policy.refresh()
    assert len(policy.posterior.posteriors) == 4
    assert all(each.rank <= 300 for each in policy.posterior.posteriors)
    probe = rng.random((300, 3))
    truth = np.sin(4 * probe[:, 0]) * probe[:, 1] + 0.3 * probe[:, 2]
    mean, std = policy.posterior.at(probe)
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.03
    assert (np.abs(mean - truth) < 4 * std + 0.01).mean() > 0.97
    best = X[f.argmax()]
    assert abs(policy.posterior.at(best[None, :])[0][0] - f.max()) < 0.05
    query = policy.ask()
    assert np.sin(4 * query.x[0]) * query.x[1] + 0.3 * query.x[2] > 1.15  # of 1.3 at most
    assert ms.restore(policy.state()).ask().params == policy.ask().params


def test_before_there_is_a_model_the_best_result_is_recommended():
    policy = ms.Auto(ms.Finite(np.linspace(0, 1, 11)[:, None]), minimize=True)
    policy.observe([0, 3, 3, 10], [10.0, 90.0, -60.0, 20.0])  # 15 on average at 3
    found = policy.recommend()
    assert found.index == 0
    assert found.lower < found.mean < found.upper
    assert found.mean == pytest.approx(10.0)
    box = ms.Auto(ms.Box([(0, 1)]), seed=0)
    for y in (937.1, 1090.0, 914.0):
        query = box.ask()
        box.tell(query, y)
    told = box.observations
    assert box.recommend().x == told.x[1]
    assert box.recommend().mean == pytest.approx(1090.0)
    assert box.recommend(actions=told.x[[0, 2]]).position == 0


def test_the_posterior_that_is_read_knows_all_results():
    X = np.linspace(0, 1, 30)[:, None]
    policy = ms.Auto(ms.Box([(0, 1)]), seed=0)
    policy.observe(X, 1000 + 100 * np.sin(6 * X[:, 0]))
    policy.refresh()
    mean, std = policy.posterior.at([[0.26]])
    assert abs(mean[0] - 1100) < 1
    assert std[0] < 2
    state = policy.state()
    assert policy.posterior is policy.posterior  # made once
    assert policy.state() == state


@pytest.mark.filterwarnings("ignore:.*observed lie outside")
def test_what_a_rule_forbids_is_data_and_no_standard():
    """The best results lie where no query may go: they teach the model, and what can be asked is not held to them."""

    def value(x, y):
        return -((x - 0.9) ** 2) - (y - 0.9) ** 2

    space = ms.Space({"x": ms.Float(0, 1), "y": ms.Float(0, 1)}, where="x + y <= 1")
    policy = ms.Auto(space, seed=0)
    forbidden = np.array([[0.9, 0.9], [0.8, 0.9], [0.95, 0.8], [0.7, 0.8]])
    policy.observe(forbidden, [value(*x) for x in forbidden])
    for _ in range(16):
        query = policy.ask()
        policy.tell(query, value(*query.x))
    told = policy.observations
    legal = space.contains(told.x)
    assert legal.sum() == 16
    assert told.y[legal].max() > -0.32 - 1e-4  # at (0.5, 0.5)
    assert learnings.best_tried(policy).mean < -0.31  # of what is allowed
