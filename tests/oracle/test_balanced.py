"""Learnt coefficients (ED²RB), from the list of what happened: of RegretBalancing and of Balanced, under batches,
drops, data from elsewhere and results in any order. And the bases of Balanced beside the same policies told by hand."""

import json
import math

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec.policies.bases import Learnt, Ledger

N, NOISE, DELTA, LEAST = 20, 0.2, 0.1, 0.1
X = np.random.default_rng(0).random((N, 2))
TRUTH = np.sin(5 * X[:, 0]) * X[:, 1] + 0.4 * np.sign(np.sin(40 * X[:, 1]))
LOSSES = (1.0, 0.0, 4.0)  # in the rounds of each base, so that rewards tell them apart
DOMAIN = ms.Finite(X)
MODEL = ms.Model(RBF(0.3), norm_bound=1.5, noise=NOISE, delta=DELTA)
ROUGH = ms.Model(RBF(0.1), norm_bound=2.0, noise=0.5 * NOISE, delta=DELTA)


def h(n, bases, delta, spread):
    return spread * math.sqrt((n + 1) * (math.log(n + 1) + 2 * math.log(bases / delta))) / n


def books(log, bases, delta, *, noise=NOISE, reach=None):
    """N, J, d̂, φ after the events of `log`, and the base that plays next.

    ("ask", id, base, offer), ("tell", id, y), ("drop", id); reach: how far rewards can lie apart where offers vary.
    """
    counts, rewards, d, phi = [0] * bases, [0.0] * bases, [LEAST] * bases, [LEAST] * bases
    rounds, offers = [], set()
    for kind, id_, *rest in log:
        if kind == "ask":
            rounds.append([id_, rest[0], None])
            offers.add(rest[1])
            continue
        next(each for each in rounds if each[0] == id_)[2] = rest[0] if kind == "tell" else "dropped"
        while rounds and rounds[0][2] is not None:  # rounds count in the order asked
            _, i, y = rounds.pop(0)
            if y == "dropped":
                continue
            counts[i] += 1
            rewards[i] += y
            spread = math.sqrt(noise**2 + reach**2 / 4) if len(offers) > 1 else noise
            played = [j for j in range(bases) if counts[j]]
            best = max(rewards[j] / counts[j] - h(counts[j], bases, delta, spread) for j in played)
            gap = best - rewards[i] / counts[i] - h(counts[i], bases, delta, spread)
            d[i] = max(LEAST, math.sqrt(counts[i]) * gap / noise)
            phi[i] = float(np.clip(d[i] * math.sqrt(counts[i]), phi[i], 2 * phi[i]))
    expected = list(phi)
    for i in range(bases):  # pending rounds, one by one, as if d̂ stayed
        waiting = sum(base == i and y != "dropped" for _, base, y in rounds)
        for k in range(1, waiting + 1):
            expected[i] = float(np.clip(d[i] * math.sqrt(counts[i] + k), expected[i], 2 * expected[i]))
    return counts, rewards, d, phi, int(np.argmin(expected))


def learnt_of(policy):
    if isinstance(policy, ms.Balanced):
        return policy.counts, policy.rewards, policy.coefficients, policy.potentials
    return policy.counts, policy.rewards, policy.coefficients, policy.candidate_bounds


def drive(policy, bases, delta, seed, *, vary=0, hostile=True, steps=120, reach=None, watch=lambda *_: None):
    """Ask, tell, drop and observe at random, and compare after every event; returns the largest coefficient seen.

    vary: from which event on rounds offer six candidates each; 0: all of them throughout."""
    rng, log, open_ = np.random.default_rng(seed), [], []
    before, largest = [LEAST] * bases, LEAST
    for _ in range(steps):
        chance = rng.random()
        if len(open_) < 2 or (chance < 0.5 and len(open_) < 6):
            varies = 0 < vary <= len(log) + 1
            offer = np.sort(rng.choice(N, 6, replace=False)) if varies else np.arange(N)
            *_, expected = books(log, bases, delta, reach=reach)
            query = policy.ask(actions=offer) if varies else policy.ask()
            assert query.details["base"] == expected
            log.append(("ask", query.id, expected, tuple(offer.tolist())))
            open_.append(query)
            watch("ask", query)
        elif chance < 0.93:
            query = open_.pop(int(rng.integers(len(open_))) if hostile else 0)
            y = float(TRUTH[query.index] + NOISE * rng.standard_normal())
            y -= LOSSES[query.details["base"]]
            policy.tell(query, y)
            log.append(("tell", query.id, y))
            watch("tell", query, y)
        elif chance < 0.97 or not hostile:
            query = open_.pop(int(rng.integers(len(open_))))
            policy.drop(query)
            log.append(("drop", query.id))
            watch("drop", query)
        else:
            i, y = int(rng.integers(N)), float(rng.standard_normal())
            policy.observe([i], [y])
            watch("observe", i, y)
        *right, _ = books(log, bases, delta, reach=reach)
        for ours, theirs in zip(learnt_of(policy), right, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        d, phi = right[2:]
        largest = max(largest, *d)
        assert all(old <= new for old, new in zip(before, phi, strict=True))
        assert hostile or all(new <= 2 * old for old, new in zip(before, phi, strict=True))  # one round at a time
        before = phi
    return largest


@pytest.mark.parametrize("seed", range(3))
def test_coefficients_rise_and_fall_and_potentials_do_not(seed):
    """Whoever plays, and whatever comes: results that change their mean make coefficients fall."""
    rng, ledger, learnt = np.random.default_rng(seed), Ledger(3), Learnt(3)
    d, phi, fallen = [LEAST] * 3, [LEAST] * 3, 0
    for t in range(200):
        i = int(rng.integers(3))
        ledger.N[i] += 1
        ledger.J[i] += float(rng.normal(3.0 * np.sin(0.02 * t + i), 0.5))
        ledger.h = {j: h(n, 3, DELTA, 0.5) for j, n in enumerate(ledger.N) if n}
        learnt.learn(i, ledger, 0.5)
        best = max(ledger.J[j] / ledger.N[j] - ledger.h[j] for j in ledger.h)
        now = max(LEAST, math.sqrt(ledger.N[i]) * (best - ledger.J[i] / ledger.N[i] - ledger.h[i]) / 0.5)
        fallen += now * math.sqrt(ledger.N[i]) < phi[i]
        d[i], phi[i] = now, float(np.clip(now * math.sqrt(ledger.N[i]), phi[i], 2 * phi[i]))
        assert learnt.coefficients == pytest.approx(d, rel=1e-9)
        assert learnt.potentials == pytest.approx(phi, rel=1e-9)
    assert fallen > 5


GRID = [(MODEL, 0.6), (MODEL, 0.2), (MODEL, 0.0)]
WAYS = {"grid": {}, "own": {"evidence": "own"}, "ungrounded": {"grounded": False}, "later": {}}


@pytest.mark.parametrize("way", WAYS)
def test_regret_balancing_learns_what_the_transcription_learns(way):
    policy = ms.RegretBalancing(DOMAIN, MODEL, horizon=100, bounds="learnt", bases=GRID, **WAYS[way])
    share = DELTA / (2 if way == "ungrounded" else 3)
    vary = 40 if way == "later" else 0
    assert drive(policy, 3, share, 5, vary=vary, reach=2 * (MODEL.norm_bound + 0.6)) > 10 * LEAST
    assert min(policy.counts) > 0
    assert policy.active == [0, 1, 2]
    assert not policy.eliminated


def team(**settings):
    return [
        ms.InsuredUCB(DOMAIN, MODEL, **settings),
        ms.RegretBalancing(DOMAIN, MODEL, horizon=100, **settings),
        ms.ECGPUCB(DOMAIN, ROUGH, epsilon=0.3, **settings),
    ]


@pytest.mark.parametrize("evidence", ["shared", "own"])
@pytest.mark.parametrize("vary", [0, 1, 40])
def test_balanced_learns_what_the_transcription_learns(evidence, vary):
    policy = ms.Balanced(team(), evidence=evidence, delta=0.07)
    reach = max(2 * (each.model.norm_bound + each.epsilon) for each in policy.policies)
    largest = drive(policy, 3, 0.07, 7, vary=vary, reach=reach)
    assert min(policy.counts) > 0
    assert vary == 1 or largest > 10 * LEAST


@pytest.mark.parametrize("vary", [1, 9, 12, 15])
def test_a_known_range_and_noise_replace_those_of_the_bases(vary):
    policy = ms.Balanced(team(), noise=NOISE, reward_range=0.9)
    drive(policy, 3, 0.1, 8, vary=vary, steps=60, reach=0.9)


def numbers(details):
    return [(name, value) for name, value in details.items() if isinstance(value, float | int)]


class Beside:
    """The same policies, driven through what users call: own rounds are asked, those of the others marked as begun."""

    def __init__(self, policies, *, shared):
        self.policies, self.shared, self.known = policies, shared, [{} for _ in policies]

    def __call__(self, kind, what, y=None):
        for i, policy in enumerate(self.policies):
            if kind == "observe":
                policy.observe([what], [y])
            elif kind == "ask" and what.details["base"] == i:
                own = policy.ask()
                assert own.index == what.index
                noted = {name: pytest.approx(value, rel=1e-12) for name, value in numbers(what.details["own"])}
                assert numbers(own.details) == list(noted.items())
                assert (own.mean, own.std) == pytest.approx((what.mean, what.std), rel=1e-12)
                self.known[i][what.id] = own
            elif kind == "ask" and self.shared:
                [self.known[i][what.id]] = policy.mark_pending([what.index])
            elif kind == "tell" and what.id in self.known[i]:
                policy.tell(self.known[i][what.id], y)
            elif kind == "drop" and what.id in self.known[i]:
                policy.drop(self.known[i][what.id])


@pytest.mark.parametrize("evidence", ["shared", "own"])
def test_every_base_goes_on_as_it_would_by_itself(evidence):
    """With queries pending, dropped and told in any order."""
    policy = ms.Balanced(team(delays="independent"), evidence=evidence)
    beside = Beside(team(delays="independent"), shared=evidence == "shared")
    drive(policy, 3, 0.1, 11, steps=80, watch=beside)
    for ours, theirs in zip(policy.policies, beside.policies, strict=True):
        np.testing.assert_allclose(ours.band().upper, theirs.band().upper, rtol=1e-12)
        assert ours.t == theirs.t
    best = int(np.argmax(policy.counts))
    assert policy.leader == best
    np.testing.assert_allclose(policy.band().lower, beside.policies[best].band().lower, rtol=1e-12)
    assert policy.recommend().index == beside.policies[best].recommend().index


def test_rounds_of_another_base_are_no_data_of_unknown_order():
    """They were chosen in turn: no caveat, and R of balancing grows by the width of a band, not by the range."""
    policy = ms.Balanced(team())
    beside = Beside(team(delays="independent"), shared=True)
    log = []

    def watch(*event):
        beside(*event)
        log.append(event)

    rng = np.random.default_rng(2)
    for _ in range(40):
        query = policy.ask()
        watch("ask", query)
        y = float(TRUTH[query.index] + NOISE * rng.standard_normal())
        policy.tell(query, y)
        watch("tell", query, y)
    assert not any(each.log.partial for each in policy.policies)
    policy.observe([0], [0.1])
    assert not any(each.log.partial for each in policy.policies)
    policy.observe([1], [0.1])
    assert all(each.log.partial for each in policy.policies)
    twin = ms.restore(json.loads(json.dumps(policy.state())))
    assert all(each.log.partial for each in twin.policies)
    first, second = policy.ask(2)
    policy.tell(second, 0.0)
    assert all(each.log.out_of_order for each in policy.policies)
    policy.tell(first, 0.0)


def test_one_policy_balanced_is_that_policy():
    alone, balanced = ms.InsuredUCB(DOMAIN, MODEL), ms.Balanced([ms.InsuredUCB(DOMAIN, MODEL)])
    assert balanced.claims
    for t in range(30):
        ours, theirs = balanced.ask(), alone.ask()
        assert ours.index == theirs.index
        y = float(TRUTH[ours.index] + 0.1 * math.sin(17 * t))
        balanced.tell(ours, y)
        alone.tell(theirs, y)
    assert balanced.recommend().caveats == alone.recommend().caveats
    assert [c.epsilon for c in balanced.conflicts()] == [c.epsilon for c in alone.conflicts()]


def test_the_better_base_leads_and_every_base_is_played():
    """Uniform sampling loses 1 per round to a base that knows: of 400 rounds it plays a few, first or second."""
    values = np.zeros(N)
    values[4] = 1.0
    problem = ms.problems.from_values(DOMAIN, MODEL, values)
    for flip in (1, -1):
        bases = [ms.UniformSampling(DOMAIN, MODEL), ms.GPUCB(DOMAIN, MODEL, width=2.0, grounded=True)][::flip]
        policy = ms.Balanced(bases, seed=3)
        trace = ms.simulate(policy, problem, 400, seed=1)
        uniform = bases.index(next(each for each in bases if isinstance(each, ms.UniformSampling)))
        assert policy.leader != uniform
        assert 2 <= policy.counts[uniform] <= 40
        assert trace.facts["counts"] == policy.counts
        assert trace.base.tolist().count(uniform) == policy.counts[uniform]


def test_the_radius_covers_the_maximum_of_every_base_once_offers_vary():
    policy = ms.Balanced(team(), reward_range=0.9)
    for actions in [None] * 8 + [[0, 1, 2]]:
        query = policy.ask(actions=actions)
        policy.tell(query, float(TRUTH[query.index]))
    assert min(policy.counts) > 0
    spread = math.hypot(NOISE, 0.45)
    expected = [h(n, 3, 0.1, spread) for n in policy.counts]
    assert [policy._ledger.h[i] for i in range(3)] == pytest.approx(expected)
