"""Which rule Auto chooses by, and what that rule chooses, from the history and from what its models believe.

The shares of rounds are copied here, so that a change of one is noticed; what is done about failures is not: its
constants are read from the policy, and histories with failures offer one candidate a round, so that only the rule is
chosen."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import norm

import misspec as ms
from misspec.policies.auto import doubt as doubt_module
from misspec.policies.auto import policy as policy_module
from misspec.policies.auto.feasible import RECENT
from misspec.policies.auto.model import models_of
from misspec.policies.core.answers import Observations
from reference import Dense

X = np.random.default_rng(3).random((14, 2))
TRUTH = np.sin(4 * X[:, 0]) + X[:, 1] ** 2
KINDS = ["one", "two", "three", "four", "five", "six"]
ROWS = [{"kind": kind, "dose": dose} for kind in KINDS for dose in (0.0, 1.0, 2.0)]


def due(budget, n):
    """Whether a budget of rounds, a function of their number, allows one more after the n-th."""
    return math.floor(budget(n + 1)) > math.floor(budget(n))


class Beliefs:
    """Means and standard deviations of all candidates, one row per sample of the model, by dense solves. The means are
    kept within the own bands; `hoped` has the standard deviations with what is pending."""

    def __init__(self, policy, pending):
        told, believed = policy.observations, np.setdiff1d(np.arange(policy.t), policy.doubted)
        U, y = policy.domain.encode(told.x), policy.posterior.scaling.to(policy.log.sign * told.y)
        self.all_results = y
        where = policy.domain.indices(told.x)
        self.unsure = [i for i in where[policy.doubted] if i not in where[believed]]
        U, y = U[believed], y[believed]
        Z, models = policy.domain.encoded, [each.model for each in policy.posterior.posteriors]
        own = policy._evidence.own
        M, H = [], []
        for m in models:
            known = Dense(m.kernel, m.regularization, U, y, m.offset)
            both = np.concatenate([U, Z[pending]])
            hoped = Dense(m.kernel, m.regularization, both, np.zeros(len(both)))
            M.append(np.clip(known.mean(Z), own.lower, own.upper))
            H.append(m.scale * np.sqrt(np.maximum(hoped.variance(Z), 0.0)))
        self.M, self.hoped = np.array(M), np.array(H)
        self.noises = np.array([m.noise for m in models])
        self.seen = np.isfinite(own.upper)
        alike = np.mean([m.kernel(Z, Z[pending]) for m in models], axis=0)
        self.alike = (alike > 0.97).any(axis=1)
        self.results = y

    def teaches_less_than(self, share):
        """Where one more result would teach less than this share of its noise, or of the least that matters."""
        return (self.hoped / np.maximum(self.noises, 0.01)[:, None]).mean(axis=0) < share

    def upper(self, multiplier):
        variance = (self.hoped**2).mean(axis=0) + self.M.var(axis=0)
        return self.M.mean(axis=0) + multiplier * np.sqrt(variance)

    def improvement(self, best):
        u = (self.M - np.reshape(best, (-1, 1))) / self.hoped
        return (self.hoped * (norm.pdf(u) + u * norm.cdf(u))).mean(axis=0)


def allowed(b, offer, pending, batch, stay, incumbent=True):
    """Candidates that may be asked: on offer, not pending (of actions: in this batch), not known well enough; without
    the one that is believed to be the best, where it is not to be improved on by itself."""
    new, offered = np.ones(len(b.seen), dtype=bool), np.zeros(len(b.seen), dtype=bool)
    offered[offer if offer is not None else slice(None)] = True
    new[[*pending, *b.unsure] if offer is None else batch] = False
    if offer is not None:
        return offered & new if (offered & new).any() else offered
    spent = b.seen & b.teaches_less_than(0.3)
    out = spent
    if b.noises.mean() < 0.01:
        out = b.seen
    elif spent.any() and stay:
        rivals = ~spent & (b.upper(2.0) > b.M.mean(axis=0)[spent].max())
        out = ~rivals if rivals.any() else np.zeros(len(new), dtype=bool)
    if not incumbent and b.seen.any():
        out = out | (b.seen & (b.M.mean(axis=0) == b.M.mean(axis=0)[b.seen].max()))
    order = (~out & new & ~b.alike, ~out & new, new, np.ones(len(new), dtype=bool))
    return next(some for some in order if some.any())


def untried(policy, there, failed=()):
    """Candidates with an option that none of those with a result or pending had, and at most two of those that failed;
    or with a number that is not as good as the only one."""
    tried = [*there, *failed]
    Z, new = policy.domain.encoded, np.zeros(len(policy.domain), dtype=bool)
    for each in policy.domain.columns:
        column = Z[:, each.start : each.stop]
        if each.choice:
            never = (column[list(there)] == 0.0).all(axis=0) & ((column[list(failed)] > 0).sum(axis=0) < 3)
            new |= (column[:, never] > 0).any(axis=1)
        elif np.ptp(column[tried]) <= 0.1 * np.ptp(column):
            new |= np.abs(column[:, 0] - np.median(column[tried])) > 0.1 * np.ptp(column)
    return new


def decide(policy, history, offer, batch, anywhere=False, asked=0):
    """The rule, the candidates that it may take, and their scores. asked: queries before."""
    told, pending, failed = history
    everything = np.ones(len(policy.domain), dtype=bool)
    if len(told) < 5:
        return "first", everything, np.zeros(len(everything))
    n, b = len(told) + len(pending) + len(failed), Beliefs(policy, pending)
    doubt = min(1.0, policy.samples["unexplained"])
    known = [*np.flatnonzero(b.seen), *pending] if offer is None else offer
    best_means = b.M[:, known].max(axis=1)
    tried = Counter([*told, *pending])
    hopes = {row: max(b.all_results[row], b.M[:, told[row]].mean()) for row in policy.doubted if tried[told[row]] == 1}
    once = [row for row in hopes if hopes[row] > np.mean(best_means) and told[row] not in failed]
    if once and offer is None:
        best = max(once, key=lambda row: hopes[row])
        return "confirm", np.arange(len(everything)) == told[best], np.zeros(len(everything))
    new = untried(policy, [*told, *pending], failed)
    if offer is None and due(lambda n: n / 3, n) and new.any():
        may = allowed(b, offer, pending, batch, False, policy.aim == "earn")
        return "untried", may & new, b.upper(1.0)
    rule, score = "mean and spread", b.upper(1.0)
    quiet = b.noises.mean() < 0.01
    best_result = best_means + np.maximum(b.noises, 0.01)
    if offer is None:
        best_result = max([*b.results, *b.M[:, pending].mean(axis=0)]) + (0.01 if quiet else 0.0)
    if offer is None and policy.aim == "best":
        ending = policy.horizon is not None and asked >= 0.9 * policy.horizon
        may = allowed(b, offer, pending, batch, True, False)
        far = (quiet or due(lambda n: n / 2, n)) and not ending
        score = b.improvement(best_result if far else best_means)
        found = int(np.where(may, score, -np.inf).argmax())
        if quiet and b.upper(2.0)[found] < best_result and not ending:
            return "caution", allowed(b, offer, pending, batch, False, False), b.upper(10.0)
        return "improvement", may, score
    if anywhere:
        rule, score = "improvement", b.improvement(best_result)
    elif pending or due(lambda n: min(0.5, 2.0 * doubt) * n, n):
        rule, score = "improvement", b.improvement(best_means)
    may = allowed(b, offer, pending, batch, True)
    found = int(np.where(may, score, -np.inf).argmax())
    again = b.teaches_less_than(0.3)[found] and found in told
    budget = max(min(6.0, 15.0 * doubt), 1.0 if again else 0.0)
    idle = quiet and b.upper(2.0)[found] < np.mean(best_result)
    if idle or (b.teaches_less_than(0.7)[found] and due(lambda n: budget * math.sqrt(n), n)):
        rule, may = "caution", allowed(b, offer, pending, batch, False)
        score = b.improvement(best_result)
    return rule, may, score


def trust(policy, doubt, change=lambda states, fitted: None):
    """Make the policy take its model to leave this share of the results' variance unexplained, and the model to be of
    all results from the 20th on: sampling another takes time, and beliefs are data here. change: the samples of the
    hyperparameters (logarithms of length scales and λ first; offset and scale)."""
    policy.refresh() if policy.t < 20 else None
    samples = policy.samples
    if samples is None:
        return
    results = policy.t if policy.t >= math.ceil(8 / 7 * samples["results"]) else samples["results"]
    states, fitted = np.array(samples["states"]), np.array(samples["fitted"])
    change(states, fitted)
    model = {"states": states.tolist(), "fitted": fitted.tolist()}
    wanted = {**samples, **model, "unexplained": doubt, "results": results}
    if wanted != samples:
        policy.adopt(wanted)


def play(policy, noise, doubt, offers, truth, change=lambda states, fitted: None, rounds=55):
    """Batches, results that come late and in any order, and evaluations of others, without failures; how often each
    rule was used."""
    rng = np.random.default_rng([int(100 * doubt), offers])
    told, pending, ids, rules, call = [], [], [], Counter(), 0
    while len(told) < rounds and (policy.horizon is None or policy.asked < policy.horizon):
        trust(policy, doubt, change)
        offer = np.sort(rng.choice(len(truth), 5, replace=False)) if offers else None
        batch = []
        for query in policy.ask(3 if call % 5 == 3 else 1, actions=offer):
            rule, may, score = decide(policy, (told, pending, []), offer, batch, asked=sum(rules.values()))
            assert query.details["rule"] == rule
            if rule != "first":
                assert may[query.index]
                assert score[query.index] >= score[may].max() - 1e-6 * (1 + abs(score[may].max()))
            rules[rule] += 1
            batch.append(query.index)
            pending.append(query.index)
            ids.append(query.id)
        if call % 9 == 8:
            (other,) = policy.mark_pending(rng.integers(0, len(truth), 1))
            pending.append(other.index)
            ids.append(other.id)
        while pending and (len(pending) > 4 or rng.random() < 0.9):
            k = int(rng.integers(len(pending)))
            told.append(pending.pop(k))
            policy.tell(ids.pop(k), float(truth[told[-1]] + noise * rng.standard_normal()))
        call += 1
    return rules


@pytest.mark.parametrize("offers", [False, True], ids=["all", "offers"])
@pytest.mark.parametrize(("noise", "doubt"), [(0.6, 1.0), (0.6, 0.3), (0.3, 0.1), (0.15, 0.02), (1e-4, 0.3)])
def test_the_rule_and_its_choice(noise, doubt, offers):
    rules = play(ms.Auto(ms.Finite(X), aim="earn", noise=noise, seed=1), noise, doubt, offers, TRUTH)
    assert rules["first"] >= 5
    if noise < 0.01:  # all is known soon, and what may still improve is looked for
        assert rules["caution"] > 20
        return
    assert rules["improvement"] > 10
    assert rules["mean and spread"] > 1
    assert rules["caution"] > 3 or doubt < 0.1


@pytest.mark.parametrize("horizon", [None, 40])
@pytest.mark.parametrize(("noise", "doubt"), [(0.6, 1.0), (0.15, 0.02), (1e-4, 0.3)])
def test_the_rule_and_its_choice_for_the_best_in_the_end(noise, doubt, horizon):
    rounds = 55 if noise > 0.01 else 10  # without noise it ends when all are tried
    rules = play(ms.Auto(ms.Finite(X), noise=noise, horizon=horizon, seed=1), noise, doubt, False, TRUTH, rounds=rounds)
    assert rules["improvement"] > (rounds // 2 if noise > 0.01 else 0)
    assert set(rules) <= {"first", "confirm", "improvement", "caution"}


def test_where_rounds_bring_their_own_actions_every_evaluation_counts():
    rules = play(ms.Auto(ms.Finite(X), noise=0.6, seed=1), 0.6, 0.3, True, TRUTH)
    assert rules["mean and spread"] > 1


@pytest.mark.usefixtures("unsurprised")
@pytest.mark.parametrize("aim", ["best", "earn"])
def test_options_that_were_never_tried_are(aim):
    """Every third round, until there is none: kinds that the first five evaluations did not have."""
    policy = ms.Auto(ms.Finite.from_table(ROWS), aim=aim, noise=0.1, seed=1)
    rows = [0, 1, 2, 3, 4]  # of the first two kinds
    policy.observe(rows, [0.5, 0.55, 0.6, 1.0, 1.1])
    policy.refresh()
    told, rules = list(rows), []
    for _ in range(16):
        rule, may, score = decide(policy, (told, [], []), None, [])
        query = policy.ask()
        assert query.details["rule"] == rule
        assert may[query.index]
        assert score[query.index] >= score[may].max() - 1e-6 * (1 + abs(score[may].max()))
        policy.tell(query, 0.1 * query.index)
        told.append(query.index)
        rules.append(rule)
        trust(policy, 0.2)
    assert rules.count("untried") >= 3
    assert not untried(policy, told).any()


def test_a_number_that_never_varied_is_varied():
    """Eight results handed in that all have one dose: the next round is one of every third, and asks for another."""
    policy = ms.Auto(ms.Finite.from_table(ROWS), noise=0.1, seed=1)
    policy.observe([0, 3, 6, 9, 12, 15, 0, 3], [0.5, 1.0, 0.0, 0.2, 0.1, 0.3, 0.4, 1.1])
    query = policy.ask()
    assert query.details["rule"] == "untried"
    assert ROWS[query.index]["dose"] != 0.0


@pytest.mark.usefixtures("unsurprised")
def test_points_of_a_batch_do_not_differ_in_trifles():
    """Only the first coordinate matters to the model: of a batch, no two are near each other there."""

    def lopsided(states, _):
        states[:, 0], states[:, 1] = -0.7, 4.0

    domain = ms.Finite(np.column_stack([np.repeat(np.linspace(0, 1, 7), 2), np.tile([0.0, 1.0], 7)]))
    policy = ms.Auto(domain, noise=0.15, seed=1)
    play(policy, 0.15, 0.3, False, np.sin(4 * domain.points[:, 0]), lopsided, rounds=40)
    trust(policy, 0.3, lopsided)
    batch = [domain.points[query.index, 0] for query in policy.ask(4)]
    assert len(set(batch)) == 4


@pytest.fixture
def unsurprised(monkeypatch):
    """Models that are handed in stay, whatever is told."""
    monkeypatch.setattr(policy_module, "SURPRISING", math.inf)


@pytest.mark.usefixtures("unsurprised")
def test_where_half_of_the_samples_believe_in_no_noise():
    """Noise counts as a hundredth of the results' spread at least, sample by sample."""

    def quiet(states, fitted):
        states[::2, 2], states[1::2, 2], fitted[:, 1] = -30.0, -4.0, 1.0

    policy = ms.Auto(ms.Finite(X), aim="earn", seed=1)
    play(policy, 0.1, 0.1, False, TRUTH, quiet)
    noises = [each.model.noise for each in policy.posterior.posteriors]
    assert min(noises) < 0.003
    assert np.mean(noises) > 0.02


@pytest.mark.usefixtures("unsurprised")
def test_where_the_model_is_too_smooth():
    """Own results are not talked away: means stay within own bands, which the samples' means leave."""

    def smooth(states, fitted):
        states[:, :2], states[:, 2], fitted[:, 1] = 2.0, -6.0, 1.0

    policy = ms.Auto(ms.Finite(X), aim="earn", noise=0.1, seed=1)
    play(policy, 0.1, 0.3, False, TRUTH + 0.8 * (-1.0) ** np.arange(len(X)), smooth)
    own, told = policy._evidence.own, policy.posterior.posteriors[0].at(X)[0]
    assert ((told < own.lower - 0.05) | (told > own.upper + 0.05)).sum() > 3


def anywhere(policy, ended, n):
    """Whether, while few of the latest evaluations failed, this round may ask what is not likely to work."""
    success = policy._outcomes.success
    if success is None or not success.explains:
        return False
    latest = sum((1.0 - 1.0 / RECENT) ** age for age, failed in enumerate(reversed(ended)) if failed)
    return min(n + 1, RECENT) / math.sqrt(n + 1) - latest >= 1.0 and due(math.sqrt, n)


@pytest.mark.parametrize("doubt", [0.4, 0.05])
def test_the_rule_where_evaluations_fail(doubt):
    """One candidate a round, of which a part always fails: failures count as rounds, and in some of them any point may
    be asked."""
    rng, noise = np.random.default_rng(int(100 * doubt)), 0.5
    policy = ms.Auto(ms.Finite(X), aim="earn", noise=noise, seed=2)
    fails = X[:, 0] < 0.25
    told, failed, pending, ended, rules, daring = [], [], [], [], Counter(), 0
    while len(ended) < 60:
        trust(policy, doubt)
        i = int(rng.integers(len(X)))
        if fails[i] and rng.random() < 0.6:
            continue
        n = len(told) + len(failed) + len(pending)
        free = len(told) >= 5 and anywhere(policy, ended, n)
        daring += free and not pending
        rule, _, _ = decide(policy, (told, [j for j, _ in pending], failed), np.array([i]), [], free)
        query = policy.ask(actions=np.array([i]))
        assert query.details["rule"] == rule
        rules[rule] += 1
        pending.append((i, query.id))
        while pending and (len(pending) > 3 or rng.random() < 0.7):
            j, id_ = pending.pop(int(rng.integers(len(pending))))
            ended.append(bool(fails[j]))
            if fails[j]:
                policy.drop(id_)
                failed.append(j)
            else:
                policy.tell(id_, float(TRUTH[j] + noise * rng.standard_normal()))
                told.append(j)
    assert len(failed) > 5
    assert daring > 0
    assert set(rules) == {"first", "mean and spread", "improvement", "caution"}


# -- results that are doubted ------------------------------------------------------------------------------------------


def predicted_by(learner, renewal, told, rows, i, sign):
    """Mean and standard deviation of result i given some rows, averaged over the models of a renewal, by dense solves;
    in the models' units."""
    _, centre, width = renewal["scaling"]
    z = doubt_module.Scaling(centre, width).to(sign * told.y)
    U, means, variances = learner.domain.encode(told.x), [], []
    for m in models_of(renewal, learner.domain):
        known = Dense(m.kernel, m.regularization, U[rows], z[rows], m.offset)
        means.append(known.mean(U[[i]])[0])
        variances.append(m.scale**2 * max(known.variance(U[[i]])[0], 0.0) + m.noise**2)
    return np.mean(means), math.sqrt(np.mean(variances) + np.var(means)), z[i]


def doubts(learner, told, sign, states, before):
    """The rows that a renewal leaves out, as `doubt.py` says in words."""

    def learn(out, **samples):
        rows = [i for i in range(len(told.y)) if i not in out]
        part = Observations(told.x[rows], told.y[rows], told.ids[rows], 0, told.noise[rows])
        return learner.renewal(part, sign, start[0], **samples)

    def far(renewal, out, i):
        rows = [j for j in range(len(told.y)) if j not in out and j != i]
        mean, std, _ = predicted_by(learner, renewal, told, rows, i, sign)
        low, middle, high = doubt_module.Scaling(*renewal["scaling"][1:]).back([mean - std, mean, mean + std])
        seen = min(told.y[rows]) <= told.y[i] <= max(told.y[rows])
        return abs(sign * told.y[i] - middle) / (0.5 * (high - low)) / (2.5 if seen else 1.0)

    start, out = [states], set(before)
    renewal = learn(out)
    again = {i for i in out if far(renewal, out, i) <= 5.0}
    if again:
        out -= again
        renewal = learn(out)
    while len(out) < max(2, len(told.y) // 8):
        rows = [i for i in range(len(told.y)) if i not in out]
        scores = []
        for i in rows:
            mean, std, z = predicted_by(learner, renewal, told, [j for j in rows if j != i], i, sign)
            scores.append(abs(z - mean) / std)
        usual = max(np.median(scores) / 0.6745, 0.1)
        suspects = [rows[k] for k in np.argsort(-np.array(scores), kind="stable")[:3] if scores[k] / usual > 4.0]
        start[0] = np.array(renewal["states"])
        checked = {i: far(learn({*out, i}, samples=2), {*out, i}, i) for i in suspects}
        start[0] = states
        if not checked or max(checked.values()) <= 5.0:
            return sorted(out)
        worst = max(checked, key=checked.get)
        without = learn({*out, worst})
        if far(without, {*out, worst}, worst) <= 5.0:
            return sorted(out)
        out.add(worst)
        renewal = without
    return sorted(out)


@pytest.mark.parametrize("case", range(6))
def test_which_results_are_doubted(case):
    """One, two or no slips, one that was doubted before, and one that was doubted and is confirmed."""
    rng = np.random.default_rng(case)
    n, sign = 16 + 2 * case, -1.0 if case % 2 else 1.0
    points = rng.random((n, 2))
    y = np.sin(4 * points[:, 0]) + points[:, 1] ** 2 + 0.05 * rng.standard_normal(n)
    before = []
    if case in (1, 2, 3):
        y[3] += 4.0
    if case in (2, 3):
        y[9] -= 30.0
    if case == 3:
        before = [9]
    if case == 4:
        points[7], before = points[3], [3]
        y[[3, 7]] = 6.0
    policy = ms.Auto(ms.Box([(0, 1), (0, 1)]), seed=case, minimize=case % 2 == 1)
    policy.observe(points, y)
    learner, told = policy._learner, policy.observations
    states = np.array(learner.renewal(told, sign, None)["states"])
    _, found = doubt_module.learnt(learner, told, sign, states, before)
    assert found == doubts(learner, told, sign, states, before)
    assert found == [[], [3], [3, 9], [3, 9], [], []][case]
