"""Every step of every policy against a slow dense transcription."""

import itertools
import math

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from reference import Dense

KERNEL, B, NOISE, RIDGE, DELTA = RBF(0.15), 1.5, 0.2, 0.05, 0.1
MODEL = ms.Model(KERNEL, norm_bound=B, noise=NOISE, regularization=RIDGE, delta=DELTA, offset=0.3)
X = np.random.default_rng(0).random((45, 2))
TRUTH = 0.3 + np.sin(5 * X[:, 0]) * X[:, 1] + 0.2 * np.sign(np.sin(40 * X[:, 1]))


class Oracle:
    """Told data as a list; every quantity by a dense solve."""

    def __init__(self, model=MODEL):
        self.model, self.x, self.y, self.asked = model, [], [], []

    def ask(self, index):
        self.asked.append(index)

    def tell(self, index, y):
        self.x.append(index)
        self.y.append(y)

    def mean_std(self, pending=()):
        if not self.x:
            mean, std = np.full(len(X), self.model.offset), np.ones(len(X))
            weights = np.zeros(len(X))
        else:
            dense = Dense(self.model.kernel, self.model.regularization, X[self.x], np.array(self.y), self.model.offset)
            mean, std, weights = dense.mean(X), np.sqrt(np.maximum(dense.variance(X), 0)), dense.norm1(X)
        if len(pending):
            both = X[[*self.x, *pending]]
            hoped = Dense(self.model.kernel, self.model.regularization, both, np.zeros(len(both)))
            return mean, np.sqrt(np.maximum(hoped.variance(X), 0)), std, weights
        return mean, std, std, weights

    def norm2(self):
        if not self.x:
            return np.zeros(len(X))
        dense = Dense(self.model.kernel, self.model.regularization, X[self.x], np.array(self.y), self.model.offset)
        return dense.norm2(X)

    def log_det(self, extra=()):
        points = X[[*self.x, *extra]]
        if not len(points):
            return 0.0
        K = self.model.kernel(points, points.copy())
        return np.linalg.slogdet(np.eye(len(points)) + K / self.model.regularization)[1]

    def multiplier(self, width, delta):
        m, L = self.model, self.log_det()
        if width == "lemma1":
            return m.noise / math.sqrt(m.regularization) * math.sqrt(2 * math.log(1 / delta) + L) + m.norm_bound
        if width == "mixture":
            return math.sqrt(m.noise**2 / m.regularization * (2 * math.log(1 / delta) + L) + m.norm_bound**2)
        return width * m.scale

    def own(self, delta):
        lower, upper = np.full(len(X), -np.inf), np.full(len(X), np.inf)
        for j, i in enumerate(dict.fromkeys(self.asked or self.x), start=1):
            values = [y for x, y in zip(self.x, self.y, strict=True) if x == i]
            n = len(values)
            if n == 0:
                continue
            radius = NOISE * math.sqrt(2 * math.log(math.pi**2 * n**2 * j * (j + 1) / (3 * delta)) / n)
            lower[i], upper[i] = np.mean(values) - radius, np.mean(values) + radius
        return lower, upper

    def ends(self, width, epsilon, enlargement, own_delta, delta, pending=(), inflate=False, reported=False):
        """(lower, upper) of the band for f*, reported within the class; with pending points only for choosing."""
        mean, std, _, norm1 = self.mean_std(pending)
        factor = self.multiplier(width, delta)
        if inflate:
            factor *= math.exp(0.5 * (self.log_det(pending) - self.log_det()))
        half = factor * std
        if enlargement == "exact":
            half = half + epsilon * norm1
        elif enlargement == "norm2":
            half = half + epsilon * math.sqrt(len(self.x) + 1) * self.norm2()
        elif enlargement == "paper":
            half = half + epsilon * math.sqrt((len(self.x) + 1) / self.model.regularization) * std
        else:
            half = half + enlargement / math.sqrt(self.model.regularization) * std
        lower, upper = mean - half - epsilon, mean + half + epsilon
        if reported:  # k(x,x) = 1
            least, most = self.model.offset - B - epsilon, self.model.offset + B + epsilon
            outside = (lower > most) | (upper < least)
            lower = np.where(outside, least, np.maximum(lower, least))
            upper = np.where(outside, most, np.minimum(upper, most))
        if own_delta is None:
            return lower, upper
        own_lower, own_upper = self.own(own_delta)
        low, high = np.maximum(lower, own_lower), np.minimum(upper, own_upper)
        apart = low > high
        return np.where(apart, own_lower, low), np.where(apart, own_upper, high)


UPPER = {
    "gp-ucb": (lambda d: ms.GPUCB(d, MODEL), "mixture", 0.0, "exact", False),
    "gp-ucb in the paper": (lambda d: ms.GPUCB.as_in_paper(d, MODEL), "lemma1", 0.0, "exact", False),
    "gp-ucb grounded": (lambda d: ms.GPUCB(d, MODEL, grounded=True), "mixture", 0.0, "exact", True),
    "gp-ucb numeric": (lambda d: ms.GPUCB(d, MODEL, width=2.0), 2.0, 0.0, "exact", False),
    "ec": (lambda d: ms.ECGPUCB(d, MODEL, epsilon=0.2), "mixture", 0.2, "exact", True),
    "ec ungrounded": (lambda d: ms.ECGPUCB(d, MODEL, epsilon=0.2, grounded=False), "mixture", 0.2, "exact", False),
    "ec numeric": (lambda d: ms.ECGPUCB(d, MODEL, epsilon=0.2, width=0.7), 0.7, 0.2, "exact", True),
    "ec norm2": (lambda d: ms.ECGPUCB(d, MODEL, epsilon=0.2, enlargement="norm2"), "mixture", 0.2, "norm2", True),
    "ec in the paper": (lambda d: ms.ECGPUCB.as_in_paper(d, MODEL, epsilon=0.2), "lemma1", 0.2, "paper", False),
    "ec paper grounded": (
        lambda d: ms.ECGPUCB(d, MODEL, epsilon=0.05, enlargement="paper"), "mixture", 0.05, "paper", True,
    ),
    "corruption": (
        lambda d: ms.comparators.CorruptionTolerantGPUCB(d, MODEL, corruption=0.5), "lemma1", 0.0, 0.5, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", UPPER)
def test_upper_confidence(name, batch):
    make, width, epsilon, enlargement, grounded = UPPER[name]
    policy, oracle, rng = make(ms.Finite(X)), Oracle(), np.random.default_rng(1)
    delta = DELTA / 2 if grounded else DELTA
    own = delta if grounded else None
    for step in range(90 if batch == 1 else 40):
        actions = rng.choice(len(X), 12, replace=False) if step % 5 == 4 else None
        asked = []
        for _ in range(batch):
            query = policy.ask() if actions is None else policy.ask(actions=actions)
            _, upper = oracle.ends(width, epsilon, enlargement, own, delta, pending=[q.index for q in asked])
            offered = np.arange(len(X)) if actions is None else actions
            assert query.index in offered
            assert upper[query.index] >= upper[offered].max() - 1e-8
            if epsilon == 0 or grounded:
                assert query.upper == pytest.approx(upper[query.index], abs=1e-8)
            else:
                assert query.upper == pytest.approx(upper[query.index] - epsilon, abs=1e-8)
            _, alone = oracle.ends(width, epsilon, enlargement, None, delta, pending=[q.index for q in asked])
            parts = query.mean + query.multiplier * query.std + query.enlargement
            assert parts == pytest.approx(alone[query.index] - epsilon, abs=1e-7)
            asked.append(query)
            oracle.ask(query.index)
        order = rng.permutation(batch)
        for k in order:
            y = float(TRUTH[asked[k].index] + NOISE * rng.standard_normal())
            policy.tell(asked[k], y)
            oracle.tell(asked[k].index, y)
        if step % 10 == 0:
            lower, upper = oracle.ends(width, epsilon, enlargement, own, delta, reported=True)
            np.testing.assert_allclose(policy.band().lower, lower, atol=1e-8)
            np.testing.assert_allclose(policy.band().upper, upper, atol=1e-8)
            best = policy.recommend()
            assert lower[best.index] >= lower.max() - 1e-8
            assert best.gap == pytest.approx(upper.max() - lower.max(), abs=1e-8)


def test_inflated_multiplier():
    policy, oracle = ms.GPUCB(ms.Finite(X), MODEL, inflate=True), Oracle()
    pending = []
    for _ in range(12):
        query = policy.ask()
        _, upper = oracle.ends("mixture", 0.0, "exact", None, DELTA, pending=pending, inflate=True)
        assert upper[query.index] >= upper.max() - 1e-8
        pending.append(query.index)


def test_new_points_as_actions():
    """Points never seen before, on a Finite domain and on a Box: the same choices as a dense solve."""
    rng = np.random.default_rng(2)
    for domain in (ms.Finite(X), ms.Box([(0, 1), (0, 1)])):
        for make, epsilon, enlargement in (
            (lambda d: ms.GPUCB(d, MODEL), 0.0, "exact"),
            (
                lambda d: ms.ECGPUCB(d, MODEL, epsilon=0.2, grounded=False),
                0.2,
                "norm2",
            ),  # None: flat cost on new points
            (lambda d: ms.ECGPUCB(d, MODEL, epsilon=0.2, grounded=False, enlargement="exact"), 0.2, "exact"),
            (lambda d: ms.ECGPUCB(d, MODEL, epsilon=0.2, grounded=False, enlargement="norm2"), 0.2, "norm2"),
            (lambda d: ms.ECGPUCB(d, MODEL, epsilon=0.2, grounded=False, enlargement="paper"), 0.2, "paper"),
        ):
            policy, seen, values = make(domain), [], []
            for t in range(25):
                actions = rng.random((10, 2))
                query = policy.ask(actions=actions)
                np.testing.assert_array_equal(query.x, actions[query.position])
                assert query.index is None
                if seen:
                    dense = Dense(KERNEL, RIDGE, np.array(seen), np.array(values), MODEL.offset)
                    std = np.sqrt(dense.variance(actions))
                    L = dense.log_det()
                    score = dense.mean(actions) + math.sqrt(NOISE**2 / RIDGE * (2 * math.log(10) + L) + B**2) * std
                    bonus = {
                        "exact": dense.norm1(actions),
                        "norm2": math.sqrt(t + 1) * dense.norm2(actions),
                        "paper": math.sqrt((t + 1) / RIDGE) * std,
                    }[enlargement]
                    score += epsilon * bonus
                    assert query.enlargement == pytest.approx(epsilon * bonus[query.position], abs=1e-6)
                    assert score[query.position] >= score.max() - 1e-7
                seen.append(query.x)
                values.append(float(np.sin(5 * query.x[0]) + NOISE * rng.standard_normal()))
                policy.tell(query, values[-1])


def planned(schedule, T):
    """Episode lengths after Li & Scarlett (2022); those of a given number in proportion, so that they add up to T."""
    if schedule == "few":
        found = [math.ceil(math.sqrt(T))]
        while sum(found) < T:
            found.append(math.ceil(math.sqrt(T * found[-1])))
        return found
    powers = [T ** ((1 - 0.5**e) / (1 - 0.5**schedule)) for e in range(1, schedule + 1)]
    ends = [math.ceil(T * sum(powers[:e]) / sum(powers) - 1e-9) for e in range(schedule + 1)]
    return [after - before for before, after in itertools.pairwise(ends)]


def phased_oracle(width, grounded, horizon, tell, schedule=None, intersect=False):
    """A plain transcription of Algorithm 2, read as docs/paper.md does: of each episode the points, the active set and
    the reported band, in which an eliminated candidate keeps what its last episode said where that unites over D_e."""
    delta = DELTA / 2 if grounded else DELTA
    E = None if horizon is None else int(math.log2(horizon + 1))
    lengths = {}
    if schedule is not None:
        lengths = dict(enumerate(planned(schedule, horizon), start=1))
        E = len(lengths) - (sum(lengths.values()) > horizon)
    active, everything, used, e, common = np.arange(len(X)), [], 0, 1, None
    told = np.full((2, len(X)), MODEL.offset) + np.array([[-B], [B]])  # lower and upper ends that are reported
    while horizon is None or used < horizon:
        full = lengths.get(e, 2 ** (e - 1))
        length = full if horizon is None else min(full, horizon - used)
        points = []
        for _ in range(length):
            variance = Dense(KERNEL, RIDGE, X[points], np.zeros(len(points))).variance(X) if points else np.ones(len(X))
            points.append(int(active[variance[active].argmax()]))
        y = tell(points)
        used += length
        everything += list(zip(points, y, strict=True))
        if length == full:
            dense = Dense(KERNEL, RIDGE, X[points], np.array(y), MODEL.offset)
            mean, variance = dense.mean(X), dense.variance(X)
            part, episodes = (delta, E) if horizon is not None else (6 * delta / (math.pi * e) ** 2, 1)
            if width == "nonadaptive":
                bias = B * np.sqrt(np.maximum(variance - RIDGE * dense.norm2(X) ** 2, 0))
                w = bias + NOISE * dense.norm2(X) * math.sqrt(2 * math.log(2 * len(active) * episodes / part))
            else:
                L = dense.log_det()
                spread = NOISE / math.sqrt(RIDGE) * math.sqrt(2 * math.log(episodes / part) + L)
                w = (spread + B) * np.sqrt(np.maximum(variance, 0))
            lower, upper = mean - w, mean + w
            if intersect and common is not None:
                for i in range(len(X)):
                    low, high = max(lower[i], common[0][i]), min(upper[i], common[1][i])
                    if low <= high:
                        lower[i], upper[i] = low, high
            common = lower.copy(), upper.copy()
            for i in active if width == "nonadaptive" else range(len(X)):
                told[:, i] = lower[i], upper[i]
            if grounded:
                book = Oracle()
                for i, value in everything:
                    book.tell(i, value)
                low, high = book.own(delta)
                lower, upper = np.clip(lower, low, high), np.clip(upper, low, high)
            active = active[upper[active] >= lower[active].max()]
        allowed = MODEL.offset - B, MODEL.offset + B
        band = np.array([allowed if low > allowed[1] or high < allowed[0] else np.clip([low, high], *allowed)
                         for low, high in told.T]).T  # fmt: skip
        if grounded:
            book = Oracle()
            for i, value in everything:
                book.tell(i, value)
            band = np.clip(band, *book.own(delta))
        yield points, active, band
        e += 1


def follow(policy, oracle_of, episodes):
    """Every point and every active set as the oracle has them; something is eliminated, and the horizon ends it."""
    noise = np.random.default_rng(3)

    def tell(points):
        batch = policy.ask(10_000)
        assert [q.index for q in batch] == points
        y = [float(TRUTH[i] + NOISE * noise.standard_normal()) for i in points]
        policy.tell(batch, y)
        return y

    shrunk, oracle = False, oracle_of(tell)
    for _ in range(episodes):
        points, active, band = next(oracle)
        np.testing.assert_array_equal(policy.active, active)
        np.testing.assert_allclose(policy.band(), band, atol=1e-8)
        shrunk = shrunk or len(active) < len(X)
        np.testing.assert_array_equal(policy.history[-1].active_after, active)
        if len(points) == policy.history[-1].length:
            np.testing.assert_array_equal(policy.history[-1].points, points)
    assert shrunk
    if policy.horizon is not None:
        assert policy.t == policy.horizon
        with pytest.raises(ms.HorizonReached):
            policy.ask()
        assert policy.recommend().index in policy.active


@pytest.mark.parametrize("horizon", [300, 255, None])
@pytest.mark.parametrize(("width", "grounded"), [("nonadaptive", True), ("nonadaptive", False), ("lemma1", False)])
def test_phased(width, grounded, horizon):
    domain, episodes = ms.Finite(X), 9 if horizon == 300 else 8
    if width == "lemma1":  # wide: it takes more rounds until anything is eliminated
        horizon, episodes = None if horizon is None else 8 * horizon + 7, episodes + 3
        policy = ms.PhasedUncertaintySampling.as_in_paper(domain, MODEL, horizon=horizon)
    else:
        policy = ms.PhasedUncertaintySampling(domain, MODEL, horizon=horizon, width=width, grounded=grounded)
    follow(policy, lambda tell: phased_oracle(width, grounded, horizon, tell), episodes)


@pytest.mark.parametrize(
    ("schedule", "lengths"),
    [("few", [18, 74, 149, 59]), (3, [18, 86, 196]), (5, [7, 31, 62, 91, 109]), (1, [300])],
)
@pytest.mark.parametrize(("width", "grounded"), [("nonadaptive", True), ("nonadaptive", False)])
def test_phased_with_few_episodes(width, grounded, schedule, lengths):
    policy = ms.PhasedUncertaintySampling(
        ms.Finite(X), MODEL, horizon=300, schedule=schedule, width=width, grounded=grounded
    )
    follow(policy, lambda tell: phased_oracle(width, grounded, 300, tell, schedule), len(lengths))
    assert [e.length for e in policy.history] == lengths


@pytest.mark.parametrize("horizon", [300, None])
@pytest.mark.parametrize("grounded", [True, False])
def test_phased_with_intersected_bands(grounded, horizon):
    policy, plain = (
        ms.PhasedUncertaintySampling(ms.Finite(X), MODEL, horizon=horizon, grounded=grounded, intersect=intersect)
        for intersect in (True, False)
    )
    episodes = 9 if horizon else 8
    follow(policy, lambda tell: phased_oracle("nonadaptive", grounded, horizon, tell, None, True), episodes)
    follow(plain, lambda tell: phased_oracle("nonadaptive", grounded, horizon, tell), episodes)
    assert not np.array_equal(policy.band(), plain.band())


def test_the_first_episode_has_no_bands_before_it_to_be_intersected_with():
    """A result far outside the class: what the class allows is not an episode, and eliminates nothing."""
    both = [
        ms.PhasedUncertaintySampling(ms.Finite(X), MODEL, grounded=False, intersect=intersect)
        for intersect in (False, True)
    ]
    for policy in both:
        policy.tell(policy.ask(), 4.0)
    np.testing.assert_array_equal(both[0].active, both[1].active)
    assert 1 < len(both[0].active) < len(X)


@pytest.mark.parametrize("schedule", ["few", 4])
def test_phased_with_few_episodes_and_wide_bands(schedule):
    policy = ms.PhasedUncertaintySampling(
        ms.Finite(X), MODEL, horizon=1000, schedule=schedule, width="lemma1", grounded=False
    )
    follow(policy, lambda tell: phased_oracle("lemma1", False, 1000, tell, schedule), 4)


def balancing_oracle(settings, steps, rng):
    """A plain transcription of Algorithm 3, read as docs/paper.md does, driving the policy beside it."""
    policy, epsilons, models, shared, grounded, bounds, price, radius, gain, vary = settings
    M = len(epsilons)
    part = DELTA / (3 if grounded else 2)
    delta = part if shared else part / M
    books = [Oracle(m) for m in models]
    everything = Oracle()
    N, J, R, active = [0] * M, [0.0] * M, [0.0] * M, list(range(M))
    width, enlargement = ("lemma1", "paper") if bounds == "paper" else ("mixture", "exact")
    for _ in range(steps):
        actions = rng.choice(len(X), 15, replace=False) if vary else np.arange(len(X))
        cost = [(1.0 if epsilons[i] == 0 else price) * R[i] for i in active]
        i = active[int(np.argmin(cost))]
        book = everything if shared else books[i]
        book = Oracle(models[i]) if shared else book
        if shared:
            book.x, book.y = everything.x, everything.y
        lower, upper = book.ends(width, epsilons[i], enlargement, None, delta)
        half = (upper - lower) / 2
        if grounded:
            own_lower, own_upper = everything.own(part)
            low, high = np.maximum(lower, own_lower), np.minimum(upper, own_upper)
            lower, upper = np.where(low > high, own_lower, low), np.where(low > high, own_upper, high)
        query = policy.ask(actions=actions) if vary else policy.ask()
        x = query.index
        assert query.details["base"] == i
        assert upper[x] >= upper[actions].max() - 1e-8
        y = float(TRUTH[x] + NOISE * rng.standard_normal())
        policy.tell(query, y)
        top = 2 * (models[i].norm_bound + epsilons[i])
        N[i] += 1
        J[i] += y
        if bounds == "realised":
            R[i] += min(top, float(upper[x] - lower[x]) if grounded else 2 * float(half[x]))
        else:
            ridge, b = models[i].regularization, models[i].norm_bound
            c1 = (
                2
                * math.sqrt(2 * ridge + 1)
                * max(1, NOISE / math.sqrt(ridge) * math.sqrt(2 + 2 * math.log(1 / delta) / gain))
            )
            c2 = 2 * math.sqrt(2 + 1 / ridge) + 2 / math.sqrt(gain)
            R[i] = c1 * (b * math.sqrt(gain) + gain) * math.sqrt(N[i]) + c2 * epsilons[i] * math.sqrt(gain) * N[i]
            R[i] = min(R[i], top * N[i])
        everything.tell(x, y)
        if not shared:
            books[i].tell(x, y)
        largest = max(2 * (m.norm_bound + e) for m, e in zip(models, epsilons, strict=True))
        s = math.sqrt(NOISE**2 + largest**2 / 4) if vary else NOISE
        h = [0.0] * M
        for j in range(M):
            if N[j] and radius == "paper":
                h[j] = 2.2 * s * math.sqrt(math.log(M * max(1, math.log(N[j])) / part) / N[j])
            elif N[j]:
                h[j] = s * math.sqrt((N[j] + 1) * (math.log(N[j] + 1) + 2 * math.log(M / part))) / N[j]
        right = max(J[j] / N[j] - h[j] for j in active if N[j])
        active = [j for j in active if not N[j] or (J[j] + R[j]) / N[j] + h[j] >= right]
        assert policy.active == active
        assert policy.counts == N
        np.testing.assert_allclose(policy.candidate_bounds, R, atol=1e-7)
        np.testing.assert_allclose(policy.rewards, J, atol=1e-9)
    return N


@pytest.mark.parametrize("vary", [False, True])
@pytest.mark.parametrize(("shared", "grounded"), [(True, True), (True, False), (False, True), (False, False)])
def test_balancing_realised(shared, grounded, vary):
    evidence = "shared" if shared else "own"
    policy = ms.RegretBalancing(ms.Finite(X), MODEL, horizon=64, evidence=evidence, grounded=grounded)
    epsilons = [B * 2.0**-i for i in range(4)] + [0.0]
    assert policy.epsilons == pytest.approx(epsilons)
    settings = (policy, epsilons, [MODEL] * 5, shared, grounded, "realised", 8.0, "anytime", None, vary)
    N = balancing_oracle(settings, 70, np.random.default_rng(4))
    assert min(N) > 0


@pytest.mark.parametrize("vary", [False, True])
def test_balancing_as_in_the_paper(vary):
    gain = 3.0
    policy = ms.RegretBalancing.as_in_paper(ms.Finite(X), MODEL, horizon=2000, gain=gain)
    M = math.ceil(1 + 0.5 * math.log2(2000 / gain**2))
    epsilons = [2.0 ** (1 - i) / math.sqrt(gain) for i in range(1, M + 1)]
    assert policy.epsilons == pytest.approx(epsilons)
    settings = (policy, epsilons, [MODEL] * M, False, False, "paper", 1.0, "paper", gain, vary)
    balancing_oracle(settings, 60, np.random.default_rng(5))


def test_balancing_over_kernels():
    """Bases with models of their own: those with the same kernel share a posterior, the others have one each."""
    other = ms.Model(RBF(0.05), norm_bound=3.0, noise=NOISE, regularization=RIDGE, delta=DELTA, offset=0.3)
    bases = [(MODEL, 0.2), (other, 0.0), (MODEL, 0.0)]
    policy = ms.RegretBalancing(ms.Finite(X), MODEL, horizon=100, bases=bases)
    assert len(policy.posteriors) == 2
    rng = np.random.default_rng(6)
    for _ in range(40):
        query = policy.ask()
        policy.tell(query, float(TRUTH[query.index] + NOISE * rng.standard_normal()))
    assert all(p.t == 40 for p in policy.posteriors)
    assert sum(policy.counts) == 40


def test_candidate_bounds_count_pending_rounds_for_choosing_only():
    policy = ms.RegretBalancing(ms.Finite(X), MODEL, horizon=64)
    batch = policy.ask(5)
    assert [q.details["base"] for q in batch] == [0, 1, 2, 3, 4]  # every base plays once, lowest index first
    assert policy.candidate_bounds == [0.0] * 5
    policy.drop(batch[1])
    assert policy.ask().details["base"] == 1


def test_posterior_samples_have_the_posterior_covariance():
    policy = ms.ThompsonSampling(ms.Finite(X), MODEL)
    rng = np.random.default_rng(7)
    for _ in range(30):
        query = policy.ask()
        policy.tell(query, float(TRUTH[query.index] + NOISE * rng.standard_normal()))
    everything = policy.field.whole("all")
    samples = policy.posterior.mean + np.array([policy.draw().at(everything) for _ in range(4000)])
    # 4,000 samples: a standard deviation is known to 1.1 %, so 6 % is more than five of its standard errors
    np.testing.assert_allclose(samples.std(axis=0), policy.posterior.std, rtol=0.06, atol=1e-3)
    np.testing.assert_allclose(samples.mean(axis=0), policy.posterior.mean, atol=5 * policy.posterior.std.max() / 60)


@pytest.mark.parametrize("grounded", [False, True])
def test_epsilon_zero_is_gp_ucb(grounded):
    domain, rng = ms.Finite(X), np.random.default_rng(8)
    one = ms.GPUCB(domain, MODEL, grounded=grounded)
    other = ms.ECGPUCB(domain, MODEL, epsilon=0.0, grounded=grounded)
    for _ in range(200):
        a, b = one.ask(), other.ask()
        assert (a.index, a.upper, a.mean, a.std) == (b.index, b.upper, b.mean, b.std)
        y = float(TRUTH[a.index] + NOISE * rng.standard_normal())
        one.tell(a, y)
        other.tell(b, y)
    np.testing.assert_array_equal(one.band().upper, other.band().upper)
