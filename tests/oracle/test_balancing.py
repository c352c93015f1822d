"""Algorithm 3 and its caution, from the list of what happened: rounds that are pending, told in a hostile order,
dropped, and data from elsewhere between them."""

import math
import zlib

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec.policies.balancing import Caution
from reference import Dense

N, KERNEL, NOISE, RIDGE, DELTA = 24, RBF(0.25), 0.1, 0.02, 0.1
PRICE = 7.3  # where bounds are capped, a price that is a whole number makes ties
MODEL = ms.Model(KERNEL, norm_bound=1.5, noise=NOISE, regularization=RIDGE, delta=DELTA, offset=0.3)
X = np.random.default_rng(0).random((N, 2))
TRUTH = 0.3 + np.sin(5 * X[:, 0]) * X[:, 1] + 0.6 * np.sign(np.sin(40 * X[:, 1]))
GRID = [(MODEL, 0.4), (MODEL, 0.1), (MODEL, 0.0)]
# too smooth for the truth, which own bands prove soon
SMOOTH = [
    (ms.Model(RBF(2.0), norm_bound=0.4, noise=NOISE, regularization=RIDGE, delta=DELTA, offset=0.3), e)
    for e in (0.4, 0.1, 0.0)
]


class Transcription:
    """Every quantity from `log`, the events so far:

    ("ask", id, x, offer, details)   a round of the policy's own
    ("expect", id, x, last)          a query of others; last: id of the last one of their call
    ("tell", id, y), ("drop", id), ("observe", xs, ys)
    """

    def __init__(
        self, bases, *, shared=True, grounded=True, caution="price", price=PRICE, reward_range=None, delays="any"
    ):
        self.models, self.epsilons = zip(*bases, strict=True)
        self.shared, self.grounded, self.caution, self.price, self.delays = shared, grounded, caution, price, delays
        self.part = DELTA / (3 if grounded else 2)
        self.groups = [m.offset for m in self.models] if shared else list(range(len(bases)))
        self.ranges = [reward_range or 2 * (m.norm_bound + e) for m, e in bases]
        self.log = []
        # rounds in which own results said more of the eager choice than the model, or did not meet the base's band
        self.clipped = self.apart = 0

    # -- what is told and what is pending ------------------------------------------------------------------------

    def asked(self, kinds=("ask", "expect")):
        return {event[1]: event for event in self.log if event[0] in kinds}

    def pending(self):
        ended = {event[1] for event in self.log if event[0] in ("tell", "drop")}
        return [event for id_, event in self.asked().items() if id_ not in ended]

    def feeds(self, event, i):
        """Whether base i learns of a query: from those that share its posterior, and from others."""
        return event[0] == "expect" or self.shared or self.groups[event[4]["base"]] == self.groups[i]

    def data(self, i):
        asked, x, y = self.asked(), [], []
        for kind, *rest in self.log:
            if kind == "tell" and self.feeds(asked[rest[0]], i):
                x.append(asked[rest[0]][2])
                y.append(rest[1])
            elif kind == "observe":
                x += rest[0]
                y += rest[1]
        return x, y

    def own(self):
        """Own bands: ranks as asked, or N for what others chose; averages of the told prefix of each point."""
        rank, queue = {}, {}
        for kind, *rest in self.log:
            if kind in ("ask", "expect"):
                rank.setdefault(rest[1], len(rank) + 1 if kind == "ask" else N)
                queue.setdefault(rest[1], {})[rest[0]] = None
            elif kind == "observe":
                for x, y in zip(*rest, strict=True):
                    rank.setdefault(x, N)
                    queue.setdefault(x, {})[object()] = y
            else:
                results = next(each for each in queue.values() if rest[0] in each)
                results[rest[0]] = rest[1] if kind == "tell" else "dropped"
        lower, upper = np.full(N, -np.inf), np.full(N, np.inf)
        for x, results in queue.items():
            left = [y for y in results.values() if y != "dropped"]
            prefix = left[: left.index(None)] if None in left else left
            n, j = len(prefix), rank[x]
            if n:
                radius = NOISE * math.sqrt(2 * math.log(math.pi**2 * n**2 * j * (j + 1) / (3 * self.part)) / n)
                lower[x], upper[x] = np.mean(prefix) - radius, np.mean(prefix) + radius
        return lower, upper

    def partial(self):
        """Whether what is told may have been chosen by its values."""
        if self.delays == "independent":
            return False
        turns = {event[1]: turn for turn, event in enumerate(self.log) if event[0] in ("ask", "expect")}
        calls = {event[3] for event in self.log if event[0] == "expect"}
        observed = [turn for turn, event in enumerate(self.log) if event[0] == "observe"]
        latest = max([turns[event[1]] for event in self.log if event[0] == "tell"] + observed, default=-1)
        return len(calls) + len(observed) > 1 or any(turns[event[1]] < latest for event in self.pending())

    # -- bands ---------------------------------------------------------------------------------------------------

    def beliefs(self, i, *, pending):
        """Mean and half the width of base i at all candidates, by dense solves; pending: for choosing."""
        m, e = self.models[i], self.epsilons[i]
        x, y = self.data(i)
        mean, std, norm1, L = np.full(N, m.offset), np.ones(N), np.zeros(N), 0.0
        if x:
            dense = Dense(m.kernel, m.regularization, X[x], np.array(y), m.offset)
            mean, std, norm1, L = dense.mean(X), np.sqrt(dense.variance(X)), dense.norm1(X), dense.log_det()
        hoped = [event[2] for event in self.pending() if self.feeds(event, i)] if pending else []
        if hoped:
            both = X[[*x, *hoped]]
            std = np.sqrt(Dense(m.kernel, m.regularization, both, np.zeros(len(both))).variance(X))
        delta = self.part / len(set(self.groups))
        multiplier = math.sqrt(m.noise**2 / m.regularization * (2 * math.log(1 / delta) + L) + m.norm_bound**2)
        return mean, multiplier * std + e * norm1

    def ends(self, i, *, pending):
        """Lower and upper ends of base i for f*; the own band alone where it does not meet the model's."""
        mean, half = self.beliefs(i, pending=pending)
        lower, upper = mean - half - self.epsilons[i], mean + half + self.epsilons[i]
        if not self.grounded:
            return lower, upper
        own_lower, own_upper = self.own()
        low, high = np.maximum(lower, own_lower), np.minimum(upper, own_upper)
        return np.where(low > high, own_lower, low), np.where(low > high, own_upper, high)

    # -- Algorithm 3 ---------------------------------------------------------------------------------------------

    def books(self):
        """N, J, R, active bases, eliminations, and what caution has earned."""
        M = len(self.models)
        counts, rewards, R, active, gone = [0] * M, [0.0] * M, [0.0] * M, list(range(M)), []
        rounds, offers, elsewhere, earned, found = {}, set(), 0, 0.0, {}
        for kind, *rest in self.log:
            if kind == "observe":
                elsewhere += len(rest[1])
            elif kind == "ask":
                rounds[rest[0]] = None
                offers.add(tuple(rest[2]))
            elif kind in ("tell", "drop") and self.asked()[rest[0]][0] == "expect":
                elsewhere += kind == "tell"
            elif kind in ("tell", "drop"):
                rounds[rest[0]] = rest[1] if kind == "tell" else "dropped"
            while rounds and (y := next(iter(rounds.values()))) is not None:  # up to the first that is pending
                id_ = next(iter(rounds))
                del rounds[id_]
                if y == "dropped":
                    continue
                _, _, x, _, details = self.asked()[id_]
                i = details["base"]
                counts[i] += 1
                rewards[i] += y
                R[i] += details["bound"]
                if "expected" in details:  # caution played x instead of what was expected to bring so much
                    earned += y - details["expected"]
                    found.setdefault(x, [details["expected"], 0.0])
                elif x in found:
                    expected, before = found[x]
                    found[x][1] = before + y - expected
                    earned += max(found[x][1], 0.0) - max(before, 0.0)
                spread = math.sqrt(NOISE**2 + max(self.ranges) ** 2 / 4) if len(offers) > 1 else NOISE
                h = {j: self.h(counts[j], spread) for j in active if counts[j]}
                right = max(rewards[j] / counts[j] - h[j] for j in h)
                for j in h:
                    left = rewards[j] / counts[j] + R[j] / counts[j] + h[j]
                    if left < right:
                        active.remove(j)
                        gone.append((j, sum(counts) + elsewhere, left, right))
        return counts, rewards, R, active, gone, earned

    def spread(self):
        """s of the test: larger once action sets have varied."""
        vary = len({tuple(event[3]) for event in self.asked(("ask",)).values()}) > 1
        return math.sqrt(NOISE**2 + max(self.ranges) ** 2 / 4) if vary else NOISE

    def h(self, n, spread):
        return spread * math.sqrt((n + 1) * (math.log(n + 1) + 2 * math.log(len(self.models) / self.part))) / n

    def next_base(self):
        """Who plays: the smallest bound, pending rounds included, times the price, among those who may."""
        dropped = {event[1] for event in self.log if event[0] == "drop"}
        rounds = [event[4] for id_, event in self.asked(("ask",)).items() if id_ not in dropped]
        plays = [sum(details["base"] == i for details in rounds) for i in range(len(self.models))]
        bounds = [sum(details["bound"] for details in rounds if details["base"] == i) for i in range(len(self.models))]
        *_, active, _, earned = self.books()
        refuted = any("refuted" in event[4] for event in self.asked(("ask",)).values())
        may = may_play(self.caution, self.epsilons, active, plays, refuted, earned, self.part)
        prices = [1.0 if e == 0 or self.caution == "rounds" else self.price for e in self.epsilons]
        return min(may, key=lambda i: prices[i] * bounds[i]), refuted

    def expected_details(self, query, offer):
        """What the policy should note of this query, from what was known before it."""
        i, refuted = self.next_base()
        lower, upper = self.ends(i, pending=True)
        assert upper[query.index] >= upper[offer].max() - 1e-8  # line 6: base i plays x_t
        lower, upper = self.ends(i, pending=False)
        bound = min(self.ranges[i], float(upper[query.index] - lower[query.index]))
        if self.partial():
            bound = self.ranges[i]
        details = {"base": i, "epsilon": self.epsilons[i], "bound": bound}
        eager = [j for j in self.books()[3] if self.epsilons[j] == 0 and self.groups[j] == self.groups[i]]
        own_lower, own_upper = self.own()
        x, (mean, half) = query.index, self.beliefs(i, pending=False)
        self.apart += bool(max(own_lower[x] - mean[x], mean[x] - own_upper[x]) > half[x] + self.epsilons[i])
        if self.caution == "proof" and self.epsilons[i] == 0 and not refuted and not self.partial():
            mean, half = self.beliefs(i, pending=False)
            apart = (own_lower > mean + half) | (own_upper < mean - half)
            if apart[offer].any():
                details["refuted"] = True
        if self.caution == "proof" and self.epsilons[i] > 0 and eager:
            upper = self.ends(eager[0], pending=True)[1]
            best = offer[int(upper[offer].argmax())]
            if best != query.index:
                mean = self.beliefs(eager[0], pending=True)[0][best]
                details["expected"] = float(np.clip(mean, own_lower[best], own_upper[best]))
                self.clipped += abs(details["expected"] - mean) > 1e-3
        return details


def may_play(kind, epsilons, active, plays, refuted, earned, delta):
    """The bases among which the next one is chosen: all active ones, the cautious ones (ε̂ > 0), or the eager ones."""
    t = sum(plays)
    pays = earned > -NOISE * math.sqrt(2 * t * math.log(1 / delta))
    if kind == "price" or (kind == "proof" and refuted and pays):
        return active
    cautious = [i for i in active if epsilons[i] > 0]
    eager = [i for i in active if epsilons[i] == 0]
    if not cautious or not eager:
        return active
    allowed = 1.5 * math.sqrt(t + 1) if kind == "proof" and not refuted else math.sqrt(t + 1)
    return cautious if sum(n for n, e in zip(plays, epsilons, strict=True) if e > 0) < allowed else eager


def drive(policy, log, seed, *, vary, others, steps, hostile):
    """Ask, tell, drop and observe at random, comparing after every event; returns what was seen on the way.

    vary: from which event on rounds offer nine candidates each; 0: all of them throughout."""
    rng, seen = np.random.default_rng(seed), {"pending": 0, "narrow": 0}
    everything = np.arange(N)

    def result(x):
        return float(TRUTH[x] + NOISE * rng.standard_normal())

    def compare():
        counts, rewards, R, active, gone, earned = log.books()
        assert policy.counts == counts
        np.testing.assert_allclose(policy.rewards, rewards, atol=1e-9)
        np.testing.assert_allclose(policy.candidate_bounds, R, atol=1e-6)
        assert policy.active == active
        assert [(e.base, e.round) for e in policy.eliminated] == [each[:2] for each in gone]
        for ours, (*_, left, right) in zip(policy.eliminated, gone, strict=True):
            assert (ours.left, ours.right) == (pytest.approx(left, abs=1e-6), pytest.approx(right, abs=1e-6))
        assert policy.caution.earned == pytest.approx(earned, abs=1e-6)
        for i, h in policy._ledger.h.items():  # those that are kept for the next test
            assert h == pytest.approx(log.h(counts[i], log.spread()), rel=1e-9)

    def ask():
        varies = 0 < vary <= len(log.log) + 1
        offer = np.sort(rng.choice(N, 9, replace=False)) if varies else everything
        query = policy.ask(actions=offer) if varies else policy.ask()
        details = {name: value for name, value in query.details.items() if name != "offer"}
        right = log.expected_details(query, offer)
        assert details == {**right, **{k: pytest.approx(v, abs=1e-6) for k, v in right.items() if k != "base"}}
        seen["pending"] += bool(log.pending())
        seen["narrow"] += bool(log.pending()) and right["bound"] < 0.9 * log.ranges[right["base"]]
        log.log.append(("ask", query.id, query.index, offer.tolist(), {**details, "bound": right["bound"]}))

    def tell(event):
        y = result(event[2])
        policy.tell(event[1], y)
        log.log.append(("tell", event[1], y))

    for _ in range(steps):
        waiting, chance = log.pending(), rng.random()
        if len(waiting) < 2 or (chance < 0.5 and len(waiting) < 6):
            ask()
        elif chance < 0.9:
            # mostly in the order asked, where bands count while others are pending; else the newest or any
            late = hostile and rng.random() < 0.3
            tell(waiting[-1 if rng.random() < 0.5 else int(rng.integers(len(waiting)))] if late else waiting[0])
        elif chance < 0.95 or not others:
            event = waiting[int(rng.integers(len(waiting)))]
            policy.drop(event[1])
            log.log.append(("drop", event[1]))
        elif rng.random() < 0.5:
            xs = rng.integers(0, N, 2).tolist()
            ys = [result(x) for x in xs]
            policy.observe(np.array(xs), ys)
            log.log.append(("observe", xs, ys))
        else:
            queries = policy.mark_pending(rng.integers(0, N, 2))
            log.log += [("expect", each.id, each.index, queries[-1].id) for each in queries]
        compare()
    while log.pending():
        tell(log.pending()[-1 if hostile else 0])
        compare()
    seen["rounds"] = sum(policy.counts)
    return seen


WAYS = [
    ("grid", GRID, {}, {}),
    ("grid, action sets that vary", GRID, {}, {"vary": 1}),
    ("grid, own evidence", GRID, {"evidence": "own"}, {}),
    ("grid, ungrounded", GRID, {"grounded": False}, {}),
    ("grid, ungrounded, own evidence, others", GRID, {"grounded": False, "evidence": "own"}, {"others": True}),
    ("grid, others", GRID, {}, {"others": True}),
    ("grid, others, delays that say nothing", GRID, {"delays": "independent"}, {"others": True}),
    ("delays that say nothing", GRID, {"delays": "independent"}, {}),
    ("a range that refutes bases", GRID, {"reward_range": 0.15}, {}),
    ("a range that refutes bases, action sets that vary", GRID, {"reward_range": 0.15}, {"vary": 1}),
    ("a range that refutes bases, action sets that vary later", GRID, {"reward_range": 0.15}, {"vary": 12}),
    ("a range that refutes bases, others", GRID, {"reward_range": 0.15}, {"others": True}),
    ("rounds", GRID, {"caution": "rounds"}, {"vary": 1}),
    ("proof", SMOOTH, {"caution": "proof", "price": 1.3, "delays": "independent"}, {"vary": 1, "others": True}),
    ("proof, in order", SMOOTH, {"caution": "proof", "price": 1.3}, {"vary": 1, "hostile": False, "steps": 150}),
]


@pytest.mark.parametrize(("name", "bases", "options", "world"), WAYS, ids=[way[0] for way in WAYS])
def test_every_event_is_counted_as_the_transcription_counts_it(name, bases, options, world):
    options = {"caution": "price", "price": PRICE, **options}
    policy = ms.RegretBalancing(ms.Finite(X), bases[0][0], horizon=64, bases=bases, **options)
    log = Transcription(bases, shared=options.pop("evidence", "shared") == "shared", **options)
    settings = {"vary": 0, "others": False, "steps": 110, "hostile": True, **world}
    seen = drive(policy, log, zlib.crc32(name.encode()), **settings)
    assert seen["pending"] > 20
    if options.get("delays") == "independent" or not settings["hostile"]:
        assert seen["narrow"] > 5  # R_i of rounds asked while others were pending, from bands that say something
    if "reward_range" in options:
        assert policy.eliminated
    if options["caution"] == "proof":
        assert policy.caution.refuted
        assert log.clipped > 0
        assert log.apart > 2


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["price", "rounds", "proof"])
def test_who_may_play_is_a_function_of_the_log(kind, seed):
    """Caution by itself, over rounds of which many do not pay: price, rounds and proof, against `may_play`."""
    rng, epsilons, delta = np.random.default_rng([seed, 5]), [0.5, 0.25, 0.0, 0.0], 0.03
    caution = Caution(kind, PRICE, epsilons, NOISE, delta)
    active, plays, found, earned, refuted, outcomes = [0, 1, 2, 3], [0] * 4, {}, 0.0, False, set()
    for t in range(300):
        assert caution.refuted == refuted
        may = may_play(kind, epsilons, active, plays, refuted, earned, delta)
        assert caution.affordable(active, plays) == may
        outcomes.add((refuted, may == active, epsilons[may[0]] > 0))
        i = int(rng.choice(may))
        details = {"refuted": True} if t == 100 else {}
        assert caution.looks(i) == (kind == "proof" and not refuted and epsilons[i] == 0)
        caution.asked(details)
        refuted = refuted or bool(details)
        # after the proof caution first loses, by chance and more, then wins
        x, y = int(rng.integers(12)), float(rng.normal(-0.3 if t < 200 else 0.3, 0.3))
        if epsilons[i] > 0 and rng.random() < 0.8:
            expected = float(rng.normal(0.0, 0.1))
            details = {"expected": expected}
            earned += y - expected
            found.setdefault(x, [expected, 0.0])
        else:
            details = {}
            if x in found:
                expected, before = found[x]
                found[x][1] = before + y - expected
                earned += max(found[x][1], 0.0) - max(before, 0.0)
        caution.counted(x, details, y)
        assert caution.earned == pytest.approx(earned, abs=1e-9)
        plays[i] += 1
    if kind == "proof":  # sought, then found and paying, then found and not paying, both sides of the budget each time
        assert outcomes >= {(False, False, True), (False, False, False), (True, True, True), (True, False, False)}
