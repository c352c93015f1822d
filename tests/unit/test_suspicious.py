"""Results that the others do not predict are named; clean ones are not."""

import re

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec.policies.auto.units import block_of
from misspec.policies.core.suspicion import leave_one_out

BOX = ms.Box([(0, 1), (0, 1)])
MODEL = ms.Model(RBF(0.4), norm_bound=3.0, noise=0.1, offset=0.2)


def data(n=20, wrong=None, off=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    y = np.sin(4 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(n)
    if wrong is not None:
        y[wrong] += off
    return X, y


def test_leave_one_out_is_what_the_others_say():
    """By taking out each in turn, repeats among them."""
    X, y = data(9)
    X[4] = X[2]
    mean, variance = leave_one_out(MODEL, X, y)
    for s in range(9):
        keep = np.arange(9) != s
        K = MODEL.kernel(X[keep], X[keep].copy()) + MODEL.regularization * np.eye(8)
        k = MODEL.kernel(X[[s]], X[keep])[0]
        assert mean[s] == pytest.approx(0.2 + k @ np.linalg.solve(K, y[keep] - 0.2), abs=1e-9)
        expected = 3.0**2 * (1 - k @ np.linalg.solve(K, k)) + 0.1**2
        assert variance[s] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("off", [50.0, -1000.0])
@pytest.mark.parametrize("make", [ms.Auto, lambda domain, **s: ms.GPUCB(domain, MODEL, **s)])
def test_a_typing_error_is_named(make, off):
    X, y = data(20, 7, off)
    policy = make(BOX)
    policy.observe(X, y)
    if isinstance(policy, ms.Auto):
        policy.refresh()
    before = policy.state()
    (found,) = policy.suspicious()
    assert policy.state() == before  # reading changes nothing
    assert (found.row, found.id, found.index, found.y) == (7, None, None, y[7])
    assert (found.x == X[7]).all()
    right = y[7] - off
    assert found.lower <= right <= found.upper
    assert found.lower < found.expected < found.upper
    assert found.score > 5


def test_clean_results_are_not():
    for seed in range(4):
        X, y = data(20, seed=seed)
        for policy in (ms.Auto(BOX), ms.GPUCB(BOX, MODEL)):
            policy.observe(X, y)
            if isinstance(policy, ms.Auto):
                policy.refresh()
            assert policy.suspicious() == []
    assert ms.GPUCB(BOX, MODEL).suspicious() == []
    assert ms.Auto(BOX).suspicious() == []


def test_minimising_and_queries_of_its_own():
    policy = ms.Auto(BOX, minimize=True, seed=2)
    for i in range(14):
        query = policy.ask()
        y = float(np.sin(4 * query.x[0]) + query.x[1] ** 2)
        policy.tell(query, -900.0 if i == 10 else y)
    (found,) = policy.suspicious()
    assert found.id == found.row == 10
    assert -3 < found.lower < found.upper < 4
    said = policy.summary().splitlines()
    assert said[0].startswith("Doubtful: evaluation 11 (id 10), -900 at x0 = ")
    assert "; the other results predict" in said[0]  # and it was asked again
    assert said[0].endswith(
        f"Its repeats gave {policy.observations.y[11]:.4g}: almost surely a slip; correct it or leave it out."
    )
    assert not any("Nowhere do the results contradict" in line for line in said)
    policy.retract(found.id)
    policy.drop(found.id)
    policy.refresh()
    assert policy.suspicious() == []
    assert "Doubtful" not in policy.summary()


def test_a_slip_whose_repeat_is_there_needs_no_other():
    X, y = data(20)
    policy = ms.Auto(BOX)
    policy.observe(np.concatenate([X, X[4:5]]), np.append(np.where(np.arange(20) == 4, 457.0, y), y[4]))
    policy.refresh()
    said = policy.summary().splitlines()[0]
    assert said.startswith("Doubtful: evaluation 5,")
    assert said.endswith(f"Its repeat gave {y[4]:.4g}: almost surely a slip; correct it or leave it out.")
    assert "again" not in said


def test_a_result_such_as_there_are_others_is_doubted_later():
    """A cliff, or noise that differs between points, brings such results: 9 standard deviations off is not enough."""
    X, y = data(40)
    best = int(y.argmax())
    for off, named in ((-0.9, []), (-2.0, [best]), (0.9, [best])):
        policy = ms.Auto(BOX)
        policy.observe(X, y + off * (np.arange(40) == best))
        policy.refresh()
        assert [each.row for each in policy.suspicious()] == named


def test_what_the_others_do_not_exclude_is_not_named():
    """A result that was doubted at the last renewal, and has been confirmed since."""
    X, y = data(20, 7, 3.0)
    policy = ms.Auto(ms.Finite(X))
    policy.observe(np.arange(20), y)
    policy.refresh()
    assert policy.doubted == [7]
    assert [each.row for each in policy.suspicious()] == [7]
    for _ in range(2):
        policy.tell(policy.ask(actions=np.array([7])), y[7])
    assert policy.suspicious() == []


def test_two_slips_are_both_named():
    X, y = data(24)
    y[3] += 40.0
    y[15] -= 60.0
    policy = ms.Auto(BOX)
    policy.observe(X, y)
    policy.refresh()
    assert sorted(each.row for each in policy.suspicious()) == [3, 15]


def test_many_results():
    rng = np.random.default_rng(0)
    X = rng.random((1200, 2))
    y = np.sin(4 * X[:, 0]) + 0.1 * rng.standard_normal(1200)
    y[700] += 30.0
    policy = ms.GPUCB(BOX, MODEL)
    policy.observe(X, y)
    assert [each.row for each in policy.suspicious()] == [700]


def test_a_file_names_its_line(tmp_path):
    from misspec.integrations.suggest import suggest

    rng = np.random.default_rng(1)
    rows = [(t, c) for t in range(40, 121, 10) for c in "AB"]
    (tmp_path / "candidates.csv").write_text("temp,cat\n" + "".join(f"{t},{c}\n" for t, c in rows))
    lines = []
    for k, i in enumerate(rng.choice(len(rows), 12, replace=False)):
        y = 60 + 30 * np.exp(-(((rows[i][0] - 90) / 25) ** 2)) + 8 * (rows[i][1] == "B") + rng.standard_normal()
        lines.append(f"{rows[i][0]},{rows[i][1]},{10 * y if k == 5 else y:.1f}\n")
    (tmp_path / "results.csv").write_text("temp,cat,yield\n" + "".join(lines))
    found = suggest(tmp_path / "candidates.csv", tmp_path / "results.csv", "yield", batch=1)
    assert "results.csv, line 7" in found.summary[0]
    assert found.summary[0].startswith("Doubtful: ")


@pytest.mark.parametrize("refreshed", [False, True])
def test_a_slip_among_the_first_results(refreshed):
    policy = ms.Auto(BOX)
    policy.observe(data(6)[0], [68.0, 102.0, 1024.0, 91.0, 108.0, 77.0])
    if refreshed:
        policy.refresh()
    (found,) = policy.suspicious()
    assert (found.row, found.lower, found.upper) == (2, 68.0, 108.0)
    quiet = ms.Auto(BOX)
    quiet.observe(data(6)[0], [68.0, 102.0, 150.0, 91.0, 108.0, 77.0])
    assert quiet.suspicious() == []


def test_corrected_it_is_as_if_it_had_been_right():
    """The samples do not begin where the wrong result had driven them."""
    rng, policy = np.random.default_rng(3), ms.Auto(BOX, seed=1)
    told = []
    for i in range(14):
        query = policy.ask()
        told.append((query, float(np.sin(4 * query.x[0]) + 0.05 * rng.standard_normal())))
        policy.tell(query, 500.0 if i == 4 else told[-1][1])
    assert [each.id for each in policy.suspicious()] == [4]
    assert policy.noise_level < 0.2  # it does not bend the model
    policy.retract(4)
    policy.tell(*told[4])
    assert policy.noise_level < 0.2
    assert policy.recommend().upper - policy.recommend().lower < 1.0
    assert policy.suspicious() == []
    with pytest.raises(ms.InvalidInput, match="data from elsewhere"):
        policy.retract(None)


# -- blocks in another unit --------------------------------------------------------------------------------------------


def yields(n=20, seed=0):
    rng = np.random.default_rng([seed, 8])
    X = rng.random((n, 2))
    return X, 75 + 15 * np.sin(4 * X[:, 0]) + 8 * X[:, 1] + 2 * rng.standard_normal(n), rng


@pytest.mark.parametrize(("factor", "count"), [(0.01, 10), (0.01, 4), (1000.0, 5), (10.0, 3), (0.1, 8)])
def test_a_block_in_another_unit_is_named(factor, count):
    X, y, rng = yields(seed=count)
    block = np.sort(rng.permutation(20)[:count])
    y[block] *= factor
    policy = ms.Auto(BOX)
    policy.observe(X, y)
    policy.refresh()
    found = sorted(policy.suspicious(), key=lambda each: each.row)
    assert [each.row for each in found] == block.tolist() or (count == 10 and len(found) == 10)
    right = factor if found[0].row not in block else 1 / factor  # of two equal halves, the smaller results
    assert all(each.factor == pytest.approx(right) for each in found)
    assert all(each.lower - 15 < each.y * each.factor < each.upper + 15 for each in found if count < 10)
    said = policy.summary().splitlines()
    assert said[0].startswith(f"Doubtful: {count} of 20 results (evaluations {found[0].row + 1}, ")
    assert f"{max(right, 1 / right):g} times too {'small' if right > 1 else 'large'} beside the others" in said[0]
    assert not any("Nowhere do the results contradict" in line for line in said)


def test_good_and_bad_settings_are_not_units():
    """The parameters say which is which."""
    for seed in range(3):
        X, _, rng = yields(24, seed)
        policy = ms.Auto(BOX, seed=seed)
        policy.observe(X, np.where(X[:, 0] > 0.5, 80.0, 0.9) * np.exp(0.2 * rng.standard_normal(24)))
        policy.refresh()
        assert all(each.factor == 1.0 for each in policy.suspicious())


@pytest.mark.parametrize("seed", [3, 8])
def test_heavy_tails_are_not_another_unit(seed):
    """Rescaling makes them likelier, but all results only a little."""
    rng = np.random.default_rng([seed, 3])
    rng.random(90), rng.standard_normal(30)
    X = rng.random((40, 2))
    y = np.exp(3 + 0.3 * np.sin(4 * X[:, 0]) + 0.2 * rng.standard_normal(40))
    y[rng.permutation(40)[:5]] /= 10 * np.exp(0.1 * rng.standard_normal(5))
    y *= np.exp(0.45 * rng.standard_normal(40) * (np.arange(40) % 2))
    assert len(block_of(y).rows) == 5
    policy = ms.Auto(BOX)
    policy.observe(X, y)
    policy.refresh()
    assert all(each.factor == 1.0 for each in policy.suspicious())


def test_where_a_block_lies():
    """By hand: the gap, the factor, the smaller block, and what is no block."""
    y = np.array([80.0, 0.7, 90.0, 60.0, 0.85, 75.0, 70.0, 66.0])
    assert (block_of(y).rows.tolist(), block_of(y).factor) == ([1, 4], 100.0)
    assert block_of(-y).rows.tolist() == [1, 4]
    up = np.array([80.0, 7e4, 90.0, 60.0, 8.5e4, 75.0, 70.0, 66.0])
    assert (block_of(up).rows.tolist(), block_of(up).factor) == ([1, 4], 1e-3)
    assert block_of(y[:7]) is None  # too few
    assert block_of(np.where(y == 80.0, -80.0, y)) is None  # of both signs
    assert block_of(np.where(y < 1, 0.02 * y, y)) is None  # no power of ten up to a thousand
    assert block_of(np.where(y == 0.7, 70.0, y)) is None  # one result is a slip, not a unit
    assert block_of(np.where(y < 1, 40.0 * y, y)) is None  # no gap
    assert block_of(np.array([80.0, 0.1, 90.0, 60.0, 4.0, 75.0, 70.0, 66.0])) is None  # not among the others


def test_a_repeat_on_both_sides_of_the_gap_says_the_factor():
    """By hand: 71 and 720 at one point are a factor of ten, where the medians say 25."""
    y = np.array([10.0, 20.0, 30.0, 22.0, 25.0, 71.0, 720.0, 650.0])
    x = np.arange(8.0)[:, None]
    assert block_of(y, x) is None
    x[6] = x[5]
    assert (block_of(y, x).rows.tolist(), block_of(y, x).factor) == ([6, 7], 0.1)
    assert block_of(np.where(y == 71.0, 24.0, y), x) is None  # the factor of the repeats is 30


@pytest.mark.parametrize("seed", range(4))
def test_a_repeat_shows_another_unit(seed):
    """Every other good result is told last, with a repeat of one that is told before: ten times too large, or right."""
    rng = np.random.default_rng(seed)
    X = rng.random((17, 2))
    y = 8 + 65 * np.exp(-(((X[:, 0] - 0.5) / 0.25) ** 2))
    order = np.argsort(y)
    order = np.setdiff1d(order, order[-7::2]).tolist() + order[-7:-2:2].tolist() + order[-1:].tolist()
    X, y = (np.concatenate([each[order], each[order[:-4]][[y[order[:-4]].argmax()]]]) for each in (X, y))
    y += 0.5 * rng.standard_normal(18)
    for factor in (10.0, 1.0):
        policy = ms.Auto(BOX)
        policy.observe(X, np.where(np.arange(18) >= 13, factor, 1.0) * y)
        policy.refresh()
        found = sorted((each.row, each.factor) for each in policy.suspicious())
        assert found == ([(row, 0.1) for row in range(13, 18)] if factor > 1.0 else [])


# -- files as people send them -----------------------------------------------------------------------------------------


def suggested(tmp_path, rows, results):
    from misspec.integrations.suggest import suggest

    (tmp_path / "candidates.csv").write_text("temp,cat\n" + "".join(f"{t},{c}\n" for t, c in rows))
    (tmp_path / "results.csv").write_text("temp,cat,yield\n" + "".join(f"{t},{c},{y}\n" for t, c, y in results))
    return suggest(tmp_path / "candidates.csv", tmp_path / "results.csv", "yield", batch=1).summary


def reactions(n=14, seed=1):
    rng = np.random.default_rng(seed)
    rows = [(t, c) for t in range(40, 121, 10) for c in "AB"]
    chosen = [rows[i] for i in rng.choice(len(rows), n, replace=False)]
    y = [60 + 30 * np.exp(-(((t - 90) / 25) ** 2)) + 8 * (c == "B") + rng.standard_normal() for t, c in chosen]
    return rows, [(t, c, round(float(each), 1)) for (t, c), each in zip(chosen, y, strict=True)], rng


def test_1024_for_102_4(tmp_path):
    rows, results, _ = reactions()
    t, c, y = results[6]
    results[6] = (t, c, 10 * y)
    said = suggested(tmp_path, rows, results)
    assert said[0].startswith("Doubtful: ")
    assert "results.csv, line 8" in said[0]


def test_rows_and_summary_put_the_best_so_far_at_the_same_number(tmp_path):
    # without a result that is doubted, and with as many digits
    from misspec.integrations.suggest import suggest

    rows, results, _ = reactions()
    for off in (1, 10):
        best = max(range(len(results)), key=lambda i: results[i][2])
        results[best] = (*results[best][:2], round(off * results[best][2], 1))
        suggested(tmp_path, rows, results)
        found = suggest(tmp_path / "candidates.csv", tmp_path / "results.csv", "yield", batch=4)
        (said,) = {put[1] for row in found.rows if (put := re.search(r"put at ([\d.]+\d)", row.reason))}
        assert f"of the best of these {said} is expected" in " ".join(found.summary)


def test_repeats_of_93_9_and_0_94(tmp_path):
    rows, results, _ = reactions()
    t, c, y = results[4]
    results.append((t, c, round(y / 100, 3)))
    said = suggested(tmp_path, rows, results)
    assert said[0].startswith("Doubtful: ")
    assert "results.csv, line 16" in said[0]


def test_half_of_a_file_in_fractions(tmp_path):
    rows, results, rng = reactions()
    half = np.sort(rng.permutation(14)[:7])
    for i in half:
        t, c, y = results[i]
        results[i] = (t, c, round(y / 100, 4))
    said = suggested(tmp_path, rows, results)
    assert said[0].startswith("Doubtful: 7 of 14 results (")
    assert "another unit, 100 times too" in said[0]
    others = sorted(set(range(14)) - set(half.tolist()))
    named = [f"results.csv, lines {', '.join(str(i + 2) for i in rows)})" for rows in (half.tolist(), others)]
    assert named[0] in said[0] or named[1] in said[0]


def test_one_wrong_result_of_75_does_not_move_importances():
    shares = []
    for off in (0.0, -45.0):
        rng = np.random.default_rng(4)
        X = rng.random((75, 3))
        y = 40 + 25 * np.sin(3 * X[:, 0]) + 25 * X[:, 1] ** 2 + 8 * np.cos(4 * X[:, 2]) + 1.5 * rng.standard_normal(75)
        y[33] += off
        policy = ms.Auto(ms.Box([(0, 1)] * 3))
        policy.observe(X, y)
        policy.refresh()
        shares.append([each.share for each in policy.importance().values()])
        assert [each.row for each in policy.suspicious()] == ([33] if off else [])
    np.testing.assert_allclose(shares[0], shares[1], atol=0.1)


@pytest.mark.parametrize("factor", [0.01, 10.0])
def test_a_slip_by_a_factor_among_few_results_is_named(factor):
    # it makes the scale of the model logarithmic, in which it may fit, so that it is looked at by itself
    rows = [{"s": s, "T": t, "L": load} for s in "abcd" for t in (40, 60, 80, 100) for load in (1, 2, 5, 10)]
    table = ms.Finite.from_table(rows)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        i = rng.choice(len(rows), 12, replace=False)
        y = np.array([72 + 4 * "abcd".index(rows[j]["s"]) + rows[j]["T"] / 10 + rows[j]["L"] for j in i])
        y += 1.5 * rng.standard_normal(12)
        for k in (0, 5, 11):
            policy = ms.Auto(table)
            policy.observe(i, np.where(np.arange(12) == k, factor * y, y))
            policy.refresh()
            assert [each.row for each in policy.suspicious()] == [k]
        clean = ms.Auto(table)
        clean.observe(i, y)
        clean.refresh()
        assert clean.suspicious() == []


@pytest.mark.parametrize("seed", [0, 1])
def test_a_repeat_that_disagrees_is_named(seed):
    """One row of twenty again, a hundred times smaller: between them they would pass for a noise in which both fit."""
    rows = [
        {"heat": heat, "dose": dose, "kind": kind}
        for heat in (40, 60, 80, 100, 120)
        for dose in (0.2, 0.4, 0.6, 0.8, 1.0)
        for kind in "ABC"
    ]
    rng = np.random.default_rng(seed)
    picked = rng.permutation(75)[:20]
    bumps = [((rows[i]["heat"] - 85) / 25) ** 2 + ((rows[i]["dose"] - 0.6) / 0.35) ** 2 for i in picked]
    y = 20 + 70 * np.exp(-np.array(bumps)) + np.array([{"A": 0, "B": 8, "C": -6}[rows[i]["kind"]] for i in picked])
    y += 1.5 * rng.standard_normal(20)
    again = int(rng.integers(20))
    policy = ms.Auto(ms.Finite.from_table(rows))
    policy.observe([*picked, picked[again]], [*y, y[again] / 100])
    policy.refresh()
    assert {each.row for each in policy.suspicious()} & {again, 20}
