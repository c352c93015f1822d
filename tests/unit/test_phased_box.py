"""The phased policy on a box: level sets against a dense transcription, and what every policy promises."""

import json
import math

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

import misspec as ms
from misspec.errors import InvalidInput
from misspec.testing import assert_same
from misspec.theory import own_bands

BOX = ms.Box([(0.1, 0.7), (-1e3 / 3, 1e-3 / 7)])  # bounds that have no exact sums
MODEL = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.02, delta=0.1)
GRID = BOX.grid(81).points


def truth(x, box=BOX):
    u = box.encode(np.atleast_2d(x))
    bumps = np.exp(-8 * ((u - 0.3) ** 2).sum(axis=1)) + 0.5 * np.exp(-20 * ((u - 0.8) ** 2).sum(axis=1))
    return float(bumps[0])


def noisy(query, box=BOX, noise=0.02):
    return truth(query.x, box) + noise * np.random.default_rng([7, query.id]).standard_normal()


def play(policy, rounds, batch=1000, box=BOX):
    while policy.t < rounds:
        queries = policy.ask(min(batch, rounds - policy.t))
        policy.tell(queries, [noisy(q, box) for q in queries])
    return policy


@pytest.fixture(scope="module")
def played():
    return play(ms.PhasedUncertaintySampling(BOX, MODEL, horizon=255, seed=3), 255)


@pytest.fixture(scope="module")
def ungrounded():
    return play(ms.PhasedUncertaintySampling.as_in_paper(BOX, MODEL, horizon=63, seed=4), 63)


def dense(policy, points):
    """Algorithm 2 with dense solves, on the points that the policy asked: per episode lower and upper at `points`."""
    width, grounded = policy.width, policy.grounded
    told = iter(policy.observations.y)
    E = int(math.log2(policy.horizon + 1))
    delta = MODEL.delta / (2 if grounded else 1) / E
    ridge, counts, sums, place = MODEL.regularization, {}, {}, {}
    for episode in policy.history:
        Z = BOX.encode(episode.points)
        y = np.array([next(told) for _ in range(episode.length)])
        for x, value in zip(episode.points, y, strict=True):
            key = tuple(x)
            counts[key], sums[key] = counts.get(key, 0) + 1, sums.get(key, 0.0) + value
            place.setdefault(key, len(place) + 1)
        K, k = MODEL.kernel(Z), MODEL.kernel(BOX.encode(points), Z)
        A = K + ridge * np.eye(len(Z))
        mean = k @ np.linalg.solve(A, y)
        std = np.sqrt(np.maximum(1 - np.einsum("ij,ji->i", k, np.linalg.solve(A, k.T)), 0))
        log_det = np.linalg.slogdet(np.eye(len(Z)) + K / ridge)[1]
        spread = 2 * math.log(1 / delta) + log_det
        multiplier = math.sqrt(spread * MODEL.noise**2 / ridge + MODEL.norm_bound**2)
        if width == "lemma1":
            multiplier = math.sqrt(spread * MODEL.noise**2 / ridge) + MODEL.norm_bound
        lower, upper = mean - multiplier * std, mean + multiplier * std
        if grounded:
            for i, x in enumerate(points):
                if tuple(x) in counts:
                    n = counts[tuple(x)]
                    radius = own_bands.own_radius(MODEL.noise, n, place[tuple(x)], MODEL.delta / 2)
                    own = sums[tuple(x)] / n - radius, sums[tuple(x)] / n + radius
                    lower[i], upper[i] = np.clip(lower[i], *own), np.clip(upper[i], *own)
        yield lower, upper


@pytest.mark.parametrize("name", ["played", "ungrounded"])
def test_level_sets_match_a_dense_transcription(name, request):
    policy = request.getfixturevalue(name)
    asked = np.concatenate([episode.points for episode in policy.history])
    points = np.unique(np.concatenate([GRID, asked]), axis=0)
    sets, active = policy.active_set, np.ones(len(points), dtype=bool)
    assert len(sets.levels) == len(policy.history)
    for e, (lower, upper) in enumerate(dense(policy, points)):
        level = sets.levels[e]
        assert level.threshold >= lower[active].max() - 1e-4, "the search found what a grid finds"
        assert sets.contains(level.anchor[None, :], levels=e)[0], "inside the set that was searched"
        doubtful = np.abs(upper - level.threshold) < 1e-6
        active &= upper >= level.threshold
        np.testing.assert_array_equal(sets.contains(points, levels=e + 1)[~doubtful], active[~doubtful])
        band = level.bands.at(points)
        np.testing.assert_allclose(band.lower, lower, atol=1e-5)
        np.testing.assert_allclose(band.upper, upper, atol=1e-5)
    assert 0 < active.mean() < 0.7, "something was eliminated"


def test_the_set_is_never_empty_and_its_volume_is_about_right(played):
    fine = BOX.grid(201).points
    assert played.volume == played.history[-1].active_after
    for e, episode in enumerate(played.history):
        inner = played.active_set.contains(fine, levels=e + 1).mean()
        assert episode.active_after <= episode.active_before
        assert episode.active_after == pytest.approx(inner, rel=0.1, abs=0.005)
        assert played.active_set.contains(played.active_set.levels[e].anchor[None, :], levels=e + 1)[0]
        assert episode.points.shape == (episode.length, 2)
        assert episode.widths.shape == (episode.length,)
    assert played.history[0].active_before == 1.0
    assert played.active_set.contains(played.active).all()
    assert BOX.contains(played.active).all()


def test_tiny_sets():
    """Hardly any noise: what is left is far smaller than Sobol' points can hit, and its volume is still known."""
    box = ms.Box([(0, 1)] * 2)
    model = ms.Model(RBF(0.5), norm_bound=2.0, noise=1e-3)
    policy = ms.PhasedUncertaintySampling(box, model, seed=1)
    while policy.t < 63:
        queries = policy.ask(100)
        policy.tell(queries, [truth(q.x, box) for q in queries])
    members = policy.active
    assert policy.active_set.contains(members).all()
    assert policy.volume < 0.02
    low, high = members.min(axis=0) - 0.02, members.max(axis=0) + 0.02
    around = ms.Box(np.stack([np.maximum(low, 0), np.minimum(high, 1)], axis=1))
    volume = policy.active_set.contains(around.grid(201).points).mean() * np.prod(around.high - around.low)
    assert policy.volume == pytest.approx(volume, rel=0.3)


def test_queries_are_the_most_uncertain_members(played):
    """Within what a fine grid finds; the resolution may give up to half of the variance away."""
    for policy, worth in ((played, 0.5), (ms.PhasedUncertaintySampling(BOX, MODEL, resolution=None, seed=2), 1.0)):
        play(policy, 31)
        for e, episode in enumerate(policy.history[:5]):
            inside = GRID[policy.active_set.contains(GRID, levels=e)]
            posterior = ms.posterior.Posterior(MODEL, BOX)
            for x in episode.points:
                best = posterior.at(inside)[1].max() ** 2
                assert posterior.at(x[None, :])[1][0] ** 2 >= 0.97 * worth * best - 1e-9
                posterior.observe(x[None, :], [0.0])


@pytest.mark.parametrize("bounds", [[(0.1, 0.3)], [(-1 / 3, 1e-9), (1e6 / 7, 1e6 / 3)], [(1.1, 1.1 + 1e-12)]])
def test_queries_lie_in_the_box_to_the_bit(bounds):
    box = ms.Box(bounds)
    policy = play(ms.PhasedUncertaintySampling(box, MODEL, horizon=31), 31, box=box)
    points = np.concatenate([episode.points for episode in policy.history])
    assert box.contains(points).all()
    best = policy.recommend()
    assert best.index is None
    assert box.contains(best.x[None, :]).all()


def test_continues_to_the_bit():
    policy = ms.PhasedUncertaintySampling(BOX, MODEL, horizon=60, seed=5)
    rng = np.random.default_rng(0)
    moments = 0
    while policy.t < 60:
        if policy.remaining:
            policy.ask(int(rng.integers(1, 9)))
        if policy.pending and rng.random() < 0.15:
            policy.drop(policy.pending[int(rng.integers(len(policy.pending)))])
        if policy.pending and rng.random() < 0.2:
            twin = ms.restore(json.loads(json.dumps(policy.state())))
            moments += 1
            assert json.dumps(twin.state()) == json.dumps(policy.state())
            np.testing.assert_array_equal(twin.active, policy.active)
            assert (twin.volume, twin.remaining) == (policy.volume, policy.remaining)
            for a, b in zip(twin.pending, policy.pending, strict=True):
                assert_same(a, b)
            np.testing.assert_array_equal(twin.band(GRID[::97]).lower, policy.band(GRID[::97]).lower)
            policy.recommend()  # reads leave no trace
            if policy.remaining:
                for a, b in zip(twin.ask(3), policy.ask(3), strict=True):
                    assert_same(a, b)
            policy = twin
        for query in policy.pending[: int(rng.integers(0, 9))]:
            policy.tell(query, noisy(query))
    assert moments > 2
    twin = ms.restore(policy.state())
    one, other = twin.recommend(), policy.recommend()
    np.testing.assert_array_equal(one.x, other.x)
    assert (one.lower, one.gap) == (other.lower, other.gap)
    with pytest.raises(ms.HorizonReached):
        policy.ask()


def test_reads_leave_no_trace():
    one, other = (ms.PhasedUncertaintySampling(BOX, MODEL, seed=6) for _ in range(2))
    for _ in range(15):
        a = one.ask()
        one.band(GRID[:5])
        one.recommend()
        _ = (one.conflicts(), one.volume, one.active, one.information, repr(one), one.state())
        assert_same(a, b := other.ask())
        one.tell(a, noisy(a))
        other.tell(b, noisy(b))


def test_a_batch_equals_one_by_one_in_any_order():
    one, batch = (ms.PhasedUncertaintySampling(BOX, MODEL, horizon=40, seed=7) for _ in range(2))
    rng = np.random.default_rng(1)
    while batch.t < 40:
        queries = batch.ask(10**6)
        assert len(queries) == min(2 ** (batch.episode - 1), 40 - batch.t)
        for query in queries:
            single = one.ask()
            np.testing.assert_array_equal(single.x, query.x)
            one.tell(single, noisy(single))
        for query in rng.permutation(queries):
            batch.tell(query, noisy(query))
    assert one.volume == batch.volume
    np.testing.assert_array_equal(one.recommend().x, batch.recommend().x)


def test_dropped_queries_are_asked_again():
    policy, twin = (play(ms.PhasedUncertaintySampling(BOX, MODEL, horizon=31), 7) for _ in range(2))
    queries = policy.ask(8)
    with pytest.raises(ms.AwaitingResults):
        policy.ask()
    policy.drop(queries[5])
    policy.drop(queries[2])
    assert policy.remaining == 2
    again = policy.ask(8)
    for new, old in zip(again, (queries[2], queries[5]), strict=True):
        np.testing.assert_array_equal(new.x, old.x)
        assert new.details == old.details
    values = {q.details["slot"]: noisy(q) for q in queries}
    policy.tell(policy.pending, [values[q.details["slot"]] for q in policy.pending])
    twin.tell(asked := twin.ask(8), [values[q.details["slot"]] for q in asked])
    np.testing.assert_array_equal(policy.ask().x, twin.ask().x)


def test_finds_the_optimum(played):
    optimum = max(truth(x) for x in GRID)
    best = played.recommend()
    assert truth(best.x) >= 0.95 * optimum
    assert best.guaranteed
    assert best.lower <= truth(best.x) <= best.upper
    assert optimum - truth(best.x) <= best.gap
    inside = GRID[played.active_set.contains(GRID)]
    assert best.lower >= played.band(inside).lower.max() - 1e-4
    assert best.lower + best.gap >= played.band(inside).upper.max() - 1e-3
    assert played.active_set.contains(best.x[None, :])[0]
    band = played.band(best.x[None, :])
    np.testing.assert_allclose([best.lower, best.upper], [band.lower[0], band.upper[0]], rtol=1e-12)


def test_resolution_makes_points_fewer():
    model = ms.Model(RBF(0.4), norm_bound=2.0, noise=0.3)
    distinct = []
    for resolution in (None, 0.05, 0.2):
        policy = play(ms.PhasedUncertaintySampling(BOX, model, resolution=resolution, seed=8), 63)
        points = np.concatenate([episode.points for episode in policy.history])
        distinct.append(len(np.unique(points, axis=0)))
        assert ms.restore(policy.state()).settings["resolution"] == resolution
    assert distinct[0] > distinct[1] > distinct[2]
    assert distinct[2] < 0.75 * distinct[0]


@pytest.mark.parametrize("kernel", [RBF(0.7), Matern(1.0, nu=2.5)])
def test_six_dimensions(kernel):
    box = ms.Box([(-1, 2)] * 6)
    policy = ms.PhasedUncertaintySampling(box, ms.Model(kernel, norm_bound=2.0, noise=0.01), width=1.0, horizon=63)
    assert not policy.guaranteed
    play(policy, 63, box=box)
    assert policy.volume < 1.0
    assert policy.active_set.contains(policy.active).all()
    assert box.contains(policy.recommend().x[None, :]).all()


def test_a_forgotten_offset_is_noticed():
    policy = ms.PhasedUncertaintySampling(ms.Box([(0, 1)]), ms.Model(RBF(0.3), norm_bound=3.0, noise=0.1), horizon=31)
    while policy.t < 31:
        query = policy.ask()
        policy.tell(query, 1000 + math.sin(5 * query.x[0]))
    assert policy.conflicts()
    assert all(conflict.index is None for conflict in policy.conflicts())
    assert not policy.recommend().guaranteed
    assert policy.volume > 0


def test_arguments():
    make = ms.PhasedUncertaintySampling
    assert make(BOX, MODEL).width == "mixture"
    assert make(BOX.grid(5), MODEL).width == "nonadaptive"
    assert make(BOX.grid(5), MODEL).volume == make(BOX, MODEL).volume == 1.0
    assert make.as_in_paper(BOX, MODEL).width == "lemma1"
    for bad in (
        lambda: make(BOX, MODEL, width="nonadaptive"),
        lambda: make(BOX, MODEL, width="wide"),
        lambda: make(BOX, MODEL, resolution=-1),
        lambda: make(BOX, MODEL).band(),
        lambda: make(BOX, MODEL).band([0, 1]),
        lambda: make(BOX, MODEL).ask(actions=[[0.2, 0.0]]),
        lambda: make(BOX, MODEL).observe([[0.2, 0.0]], [1.0]),
    ):
        with pytest.raises(InvalidInput):
            bad()
    with pytest.raises(InvalidInput, match=r"mixture.*box\.cover"):
        make(BOX, MODEL, width="nonadaptive")


def test_before_and_after_the_first_result():
    policy = ms.PhasedUncertaintySampling(BOX, ms.Model(RBF(0.3), norm_bound=2.0, noise=0.02, offset=5.0), horizon=2)
    np.testing.assert_allclose(policy.band(GRID[:3]), [[3.0] * 3, [7.0] * 3])
    assert policy.recommend().gap == pytest.approx(4.0)
    assert not policy.conflicts()
    policy.tell(policy.ask(), 5.5)
    policy.tell(policy.ask(), 5.4)  # a truncated episode eliminates nothing
    assert len(policy.active_set.levels) == 1
    assert policy.history[1].active_before == policy.history[1].active_after
    with pytest.raises(ms.HorizonReached):
        policy.ask()
