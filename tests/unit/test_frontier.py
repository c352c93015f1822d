"""Domain splitting and prior elimination: cells under delays, what they refuse, and what they say."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

import misspec as ms
from misspec.errors import InvalidInput

GRID = ms.Box([(0.0, 2.0)]).grid(40)
MODEL = ms.Model(Matern(0.3, nu=1.5), norm_bound=1.0, noise=0.1, offset=0.2)
Splitting, Elimination = ms.comparators.DomainSplitting, ms.comparators.PriorElimination


def truth(x):
    return 0.2 + 0.5 * float(np.sin(3 * x[0]))


def delayed(policy, rounds=25, seed=0):
    """Batches of four, told in parts and any order, some dropped; what was told, in the order asked."""
    rng, told = np.random.default_rng(seed), {}
    for step in range(rounds):
        policy.ask(4)
        waiting = [policy.pending[i] for i in rng.permutation(len(policy.pending))]
        for query in waiting[: rng.integers(1, 7)]:
            if step % 7 == 3:
                policy.drop(query)
            else:
                told[query.id] = (query.index, truth(query.x) + 0.1 * rng.standard_normal())
                policy.tell(query, told[query.id][1])
    return [told[id_] for id_ in sorted(told)]


@pytest.mark.parametrize("ancestors", ["forgotten", "learning"])
def test_what_cells_know_is_what_lies_in_them(ancestors):
    """However results came: in batches, with queries pending while cells were split, or all from elsewhere."""
    settings = {"epsilon": 0.1, "ancestors": ancestors, "grounded": False, "smoothness": 1.0}
    policy, other = made = [Splitting(GRID, MODEL, **settings) for _ in range(2)]
    told = delayed(policy)
    assert len(policy.splits) > 3
    for query in policy.pending:
        policy.drop(query)
    half = len(told) // 2
    other.observe(*zip(*told[:half], strict=True))
    other.drop(other.ask())  # cells are split, and learn the rest
    other.observe(*zip(*told[half:], strict=True))
    for each in made:
        each.drop(each.ask())  # cells are split before a query
    assert [(c.level, c.count, c.bounds.tolist()) for c in policy.cells] == [
        (c.level, c.count, c.bounds.tolist()) for c in other.cells
    ]
    for end, same in zip(policy.band(), other.band(), strict=True):
        np.testing.assert_allclose(end, same, atol=1e-7)
    assert sum(c.count for c in policy.cells) == policy.t == len(told)
    assert sum(c.played for c in [*policy.cells, *policy.splits]) == policy.t
    assert all(c.played == 0 for c in other.cells)
    assert policy.ask().index == other.ask().index


def test_pending_queries_are_where_their_cells_are():
    policy = Splitting(GRID, MODEL, epsilon=0.1, smoothness=1.0)
    delayed(policy)
    policy.ask(3)
    policy.prepare()  # counts what is pending, as before the next query
    leaves = [cell for cell in policy._cells.everything() if not cell.children]
    for cell in leaves:
        inside = [asked for asked in policy.log.pending.values() if policy._cells.leaf(asked.place.code) is cell]
        assert cell.posterior.pending == len(inside)
    assert sum(cell.posterior.pending for cell in leaves) == len(policy.pending) > 3
    assert policy.posterior_in_use.pending == len(policy.pending)


def test_a_kept_band_stays_as_it_was():
    """Ends of a cell never lie outside those that its ancestors had when they were split."""
    policy = Splitting(GRID, MODEL, epsilon=0.1, grounded=False, smoothness=0.7)
    rng = np.random.default_rng(0)
    lower, upper, splits = np.full(40, -np.inf), np.full(40, np.inf), 0
    for _ in range(80):
        before = policy.band()
        query = policy.ask()
        if len(policy.splits) > splits:
            splits = len(policy.splits)
            where = policy.splits[-1].bounds[0]
            rows = (GRID.points[:, 0] >= where[0]) & (GRID.points[:, 0] < where[1])
            lower[rows], upper[rows] = before.lower[rows], before.upper[rows]
        policy.tell(query, truth(query.x) + 0.1 * rng.standard_normal())
        band = policy.band()
        assert (band.upper <= upper + 1e-9).all()
        assert (band.lower >= lower - 1e-9).all()
    assert splits > 3


def test_results_that_come_after_a_split_do_not_change_what_was_kept():
    policy = Splitting(GRID, MODEL, epsilon=0.1)
    batch = policy.ask(6)
    policy.tell(batch[:3], [0.1, 0.2, 0.3])
    policy.ask()
    (root,) = policy.splits
    assert root.count == 3
    policy.tell(batch[3:], [0.3, 0.2, 0.1])
    (kept,) = policy.splits
    assert (kept.count, kept.information) == (root.count, root.information)
    assert sum(cell.count for cell in policy.cells) == 6


def test_a_list_without_a_box_and_points_beyond_it():
    """Cells of the cube around it; what lies beyond its faces belongs to the nearest cell."""
    points = np.random.default_rng(0).uniform(3.0, 5.0, (30, 2))
    policy = Splitting(ms.Finite(points), MODEL, epsilon=0.1)
    policy.observe([[0.0, 0.0]] * 4 + [[9.0, 9.0]] * 4, [0.1] * 8)
    policy.tell(policy.ask(), 0.3)
    policy.ask()
    bounds = np.array([cell.bounds for cell in policy.cells])
    np.testing.assert_allclose(bounds[:, :, 0].min(axis=0), points.min(axis=0))
    np.testing.assert_allclose(bounds[:, :, 1].max(axis=0), points.max(axis=0))
    assert sum(cell.count for cell in policy.cells) == policy.t == 9
    assert sorted(cell.count for cell in policy.cells)[-2:] == [4, 5] or max(c.count for c in policy.cells) >= 4
    assert np.isfinite(policy.band([[0.0, 0.0], [4.0, 4.0]]).upper).all()


def test_a_box_is_split_too():
    policy = Splitting(ms.Box([(0.0, 2.0)]), MODEL, epsilon=0.05)
    for _ in range(25):
        query = policy.ask()
        assert 0.0 <= query.x[0] <= 2.0
        policy.tell(query, truth(query.x))
    assert len(policy.cells) > 2
    best = policy.recommend()
    assert best.lower <= truth(best.x) <= best.upper
    assert best.x[0] == pytest.approx(np.pi / 6, abs=0.15)


@pytest.mark.parametrize("ancestors", ["kept", "learning", "forgotten"])
def test_cells_of_a_box_are_those_of_its_grid(ancestors):
    """The same bands, whether they are kept over a list or computed where one looks."""
    rng = np.random.default_rng(0)
    settings = {"epsilon": 0.1, "grounded": False, "ancestors": ancestors, "smoothness": 1.0}
    listed, box = Splitting(GRID, MODEL, **settings), Splitting(ms.Box([(0.0, 2.0)]), MODEL, **settings)
    for _ in range(5):
        rows = rng.integers(40, size=12)
        y = [truth(GRID.points[i]) + 0.1 * rng.standard_normal() for i in rows]
        listed.observe(rows, y)
        box.observe(GRID.points[rows], y)
        listed.drop(listed.ask())
        box.drop(box.ask(actions=GRID.points))
    assert [cell.count for cell in listed.cells] == [cell.count for cell in box.cells]
    assert len(listed.splits) > 3
    for end, same in zip(listed.band(), box.band(GRID.points), strict=True):
        np.testing.assert_allclose(end, same, atol=1e-7)
    query = box.ask()  # what the search finds is at least as good as the best of the grid
    assert query.upper >= listed.ask().upper - 1e-6


def test_of_many_results_from_elsewhere_cells_are_as_small_as_they_have_to_be():
    policy = Splitting(GRID, MODEL, epsilon=0.1)
    policy.observe([7] * 600, [0.1] * 600)
    policy.ask()
    assert max(cell.level for cell in policy.cells) == 4  # 2^{3·3} = 512 < 600 ≤ 2^{3·4}
    policy = Splitting(GRID, MODEL, epsilon=0.1, smoothness=0.01)
    policy.observe([7] * 50, [0.1] * 50)
    policy.ask()
    assert max(cell.level for cell in policy.cells) == 20  # beyond it nothing is split


@pytest.mark.parametrize(
    ("domain", "settings", "said"),
    [
        (ms.Open(2), {}, "needs a box or a list"),
        (ms.Box([(0, 1)] * 9), {}, "at most 8 dimensions"),
        (GRID, {"smoothness": 0.0}, "smoothness"),
        (GRID, {"ancestors": "gone"}, "ancestors must be one of"),
        (GRID, {"rule": "gone"}, "rule must be one of"),
        (GRID, {"epsilon": -1.0}, "epsilon"),
    ],
)
def test_what_splitting_refuses(domain, settings, said):
    with pytest.raises(InvalidInput, match=said):
        Splitting(domain, MODEL, **settings)


def test_the_kernels_smoothness_is_the_rule():
    def levels(kernel, **settings):
        return Splitting(GRID, ms.Model(kernel, norm_bound=1.0, noise=0.1), **settings).smoothness

    assert levels(Matern(0.3, nu=1.5)) == 1.5
    assert levels(RBF(0.3)) == 2.5
    assert levels(RBF(0.3), smoothness=0.5) == 0.5


def test_the_bound_by_hand():
    """Two cells, one of them played for ten rounds after it had inherited information."""
    model = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1, regularization=0.5, delta=0.1)
    record = ms.comparators.splitting.CellRecord
    cells = [record(np.zeros((2, 2)), 0, 9, 9, 3.0, 0.0, 0, 9), record(np.zeros((2, 2)), 1, 14, 10, 4.0, 1.5, 9, None)]
    found = ms.theory.splitting_bound(model, cells, 2, 0.1, smoothness=1.5, width="lemma1", cap=False)
    C, estimation, misfit = 2 / np.log1p(2.0), 0.0, 0.0
    for h, N, n, gained, gamma in ((0, 9, 9, 3.0, 3.0), (1, 14, 10, 2.5, 4.0)):
        share = 0.05 * 6 / (np.pi * (h + 1)) ** 2 / 4**h
        beta = 0.1 / np.sqrt(0.5) * np.sqrt(2 * np.log(1 / share) + 2 * gamma) + 2.0
        estimation += 2 * beta * np.sqrt(C * gained * n)
        misfit += 2 * 0.1 * np.sqrt(N / 0.5) * np.sqrt(C * gained * n)
    assert found.estimation == pytest.approx(estimation)
    assert found.misfit == pytest.approx(misfit)
    assert found.total == pytest.approx(estimation + misfit + 2 * 0.1 * 19)
    assert found.order == pytest.approx(19 ** (3.5 / 5) + 1.9)
    capped = ms.theory.splitting_bound(model, cells, 2, 5.0, smoothness=1.5, regret="in_class")
    assert capped.total == 2 * 2.0 * 19
    alone = ms.theory.splitting_bound(model, cells, 2, 0.1, smoothness=1.5, width="lemma1", grounded=False, cap=False)
    assert alone.estimation < found.estimation


def test_all_shares_of_cells_sum_to_one():
    shares = [4**h * ms.theory.cell_share(h, 2) for h in range(400)]
    assert 0.998 < sum(shares) < 1.0


# -- prior elimination -------------------------------------------------------------------------------------------------

WRONG = [ms.Model(RBF(0.3), norm_bound=0.05, noise=0.02, regularization=4.0, offset=offset) for offset in (3.0, 2.0)]


def test_where_no_model_is_left_it_says_so_and_goes_on():
    policy = Elimination(GRID, WRONG)
    for _ in range(30):
        query = policy.ask()
        policy.tell(query, truth(query.x))
    assert policy.active == []
    assert [each.base for each in policy.eliminated] == [0, 1]
    assert not policy.recommend().guaranteed
    assert any("none of these models is right" in caveat for caveat in policy.caveats)
    assert query.details["base"] == policy.eliminated[-1].base
    assert ms.restore(policy.state()).caveats == policy.caveats
    last = next(turn for turn, each in enumerate(policy.log.events) if each[0] == "tell")
    policy.retract(policy.log.events[last][1])  # the result that refuted the first one
    assert 0 in policy.active or policy.eliminated[0].round > 0


def test_a_model_may_be_dropped_late_where_results_are():
    """Rounds count in the order asked: nothing is dropped while the first query waits."""
    policy = Elimination(GRID, [WRONG[0], MODEL])
    batch = policy.ask(5)
    policy.tell(batch[1:], [truth(query.x) for query in batch[1:]])
    assert policy.counts == [0, 0]
    query = policy.ask()  # what is told may be a choice by its values: all that the class allows
    assert (query.details["expected"], query.details["bound"]) == (3.0, 0.05)
    policy.drop(query)
    policy.tell(batch[0], truth(batch[0].x))
    assert sum(policy.counts) == 5
    assert policy.active == [1]


def test_bands_reach_over_all_models_that_are_left():
    band = Elimination(GRID, [MODEL, WRONG[0]]).band()
    np.testing.assert_allclose(band.lower, -0.8)
    np.testing.assert_allclose(band.upper, 3.05)


@pytest.mark.parametrize("minimize", [False, True])
def test_models_are_turned_where_smaller_is_better(minimize):
    sign = -1.0 if minimize else 1.0
    models = [each.turned() if minimize else each for each in (WRONG[0], MODEL)]
    policy = Elimination(GRID, models, minimize=minimize)
    for _ in range(20):
        query = policy.ask()
        policy.tell(query, sign * truth(query.x))
    best = policy.recommend()
    assert policy.active == [1]
    assert sign * best.mean == pytest.approx(0.7, abs=0.1)
    assert best.lower <= sign * truth(best.x) <= best.upper


@pytest.mark.parametrize("models", [[], "RBF", [MODEL, 3], None])
def test_models_that_are_none(models):
    with pytest.raises(InvalidInput, match="models must be a list of at least one Model"):
        Elimination(GRID, models)


def test_its_bound_by_hand():
    models = [ms.Model(RBF(0.2), norm_bound=B, noise=0.1, delta=0.1) for B in (1.0, 3.0)]
    found = ms.theory.prior_elimination_bound(models, [50, 0], [4.0, 0.0], 1, cap=False)
    xi = 2 * 0.01 * np.log(2 * 50**2 * np.pi**2 / (3 * 0.05))
    assert found == pytest.approx(2 * (np.sqrt(xi * 50) + 4.0) + 6.0)
    assert ms.theory.prior_elimination_bound(models, [1, 0], [4.0, 0.0], 1) == 6.0


def test_which_model_or_length_scale_played_is_drawn():
    from misspec import reports

    problem = ms.problems.misspecified(GRID, MODEL, seed=0)
    for policy in (Elimination(GRID, [MODEL, WRONG[0]]), ms.comparators.LBGPUCB(GRID, MODEL, horizon=20)):
        assert len(reports.trace_figure(ms.simulate(policy, problem, 20)).axes) == 2


# -- pictures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2])
def test_cells_are_drawn(d):
    """Over the rounds in one dimension; in two those at the end. Every cell is a rectangle, every round a dot."""
    from misspec import reports

    domain = ms.Box([(0.0, 2.0)] * d).grid(40 if d == 1 else 6)
    problem = ms.problems.misspecified(domain, MODEL, epsilon=0.1, seed=0)
    policy = Splitting(domain, MODEL, epsilon=0.1, smoothness=1.0)
    ms.simulate(policy, problem, 10, 0)
    trace = ms.simulate(policy, problem, 30, 1)
    axes = reports.trace_figure(trace).axes[-1]
    dots, outlines = axes.lines
    assert len(dots.get_xdata()) == 30
    x, y = outlines.get_xdata(), outlines.get_ydata()
    drawn = policy.cells if d == 2 else [c for c in [*policy.splits, *policy.cells] if c.split is None or c.split > 10]
    assert np.isnan(x).sum() == len(drawn) > 3
    assert (np.nanmin(x), np.nanmax(x)) == ((0.0, 2.0) if d == 2 else (0.0, 30.0))
    assert (np.nanmin(y), np.nanmax(y)) == (0.0, 2.0)
    if d == 2:
        areas = (np.nanmax(x.reshape(-1, 6), axis=1) - np.nanmin(x.reshape(-1, 6), axis=1)) ** 2
        assert areas.sum() == pytest.approx(4.0)  # they cover the domain
