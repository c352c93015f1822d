"""Domain splitting and prior elimination, decision by decision, against plain transcriptions that share no code with
them."""

import math

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

import misspec as ms

NOISE, DELTA, OFFSET, RIDGE = 0.2, 0.1, 0.3, 0.05


def matern(U, V, scale=0.4):
    r = np.sqrt(3.0) * np.sqrt(((U[:, None, :] - V[None, :, :]) ** 2).sum(axis=2)) / scale
    return (1.0 + r) * np.exp(-r)


def rbf(scale):
    return lambda U, V: np.exp(-0.5 * ((U[:, None, :] - V[None, :, :]) ** 2).sum(axis=2) / scale**2)


def ridge_regression(kernel, X, at, y, ridge=RIDGE, offset=OFFSET):
    """At the rows `at` of X: μ, σ, ‖ζ‖₁ and L after the results (x, y), by one solve."""
    if not y:
        zero = np.zeros(len(at))
        return zero + offset, zero + 1.0, zero, 0.0
    x, values = np.array([each for each, _ in y]), np.array([each for _, each in y])
    K, k = kernel(x, x), kernel(x, X[at])
    zeta = np.linalg.solve(K + ridge * np.eye(len(x)), k)
    std = np.sqrt(np.maximum(1.0 - (zeta * k).sum(axis=0), 0.0))
    log_det = np.linalg.slogdet(np.eye(len(x)) + K / ridge)[1]
    return offset + zeta.T @ (values - offset), std, np.abs(zeta).sum(axis=0), log_det


# -- domain splitting --------------------------------------------------------------------------------------------------


class Splitting:
    """Cells as lists of results and dictionaries of bands; (level, corner) names one."""

    def __init__(self, X, nu, epsilon, B, delta, *, exact, ancestors, elements, lemma1):
        self.X, self.nu, self.epsilon, self.B, self.delta = X, nu, epsilon, B, delta
        self.exact, self.ancestors, self.elements, self.lemma1 = exact, ancestors, elements, lemma1
        self.d = X.shape[1]
        self.results = []
        self.cells = {(0, (0,) * self.d)}
        self.kept = {}  # bands of cells that were split, over their candidates

    def inside(self, cell, points):
        level, corner = cell
        whose = np.minimum(np.floor(points * 2**level), 2**level - 1)
        return np.flatnonzero((whose == np.array(corner)).all(axis=1))

    def of(self, cell):
        rows = set(self.inside(cell, self.X).tolist())
        return [(self.X[i], y) for i, y in self.results if i in rows]

    def band(self, cell):
        """Over its candidates."""
        y, h = self.of(cell), cell[0]
        rows = self.inside(cell, self.X)
        mean, std, zeta, log_det = ridge_regression(matern, self.X, rows, y)
        share = self.delta * 6 / (math.pi * (h + 1)) ** 2 / 2 ** (h * self.d)
        spread = NOISE / math.sqrt(RIDGE)
        if self.lemma1:
            beta = spread * math.sqrt(2 * math.log(1 / share) + log_det) + self.B
        else:
            beta = math.sqrt(spread**2 * (2 * math.log(1 / share) + log_det) + self.B**2)
        paper = self.epsilon * math.sqrt((len(y) + 1) / RIDGE) * std
        half = beta * std + (self.epsilon * zeta if self.exact else paper)
        return mean - half, mean + half

    def ends(self):
        lower, upper = np.full(len(self.X), -np.inf), np.full(len(self.X), np.inf)
        counting = [*(self.kept if self.ancestors != "forgotten" else ()), *self.cells]
        for cell in sorted(counting):  # by level: ancestors first
            rows = self.inside(cell, self.X)
            new = cell in self.cells or self.ancestors == "learning"
            low, high = self.band(cell) if new else self.kept[cell]
            for i, a, b in zip(rows, low, high, strict=True):
                meet = max(lower[i], a) <= min(upper[i], b)
                lower[i], upper[i] = (max(lower[i], a), min(upper[i], b)) if meet else (a, b)
        return lower, upper

    def tell(self, i, y):
        self.results.append((i, y))
        full = True
        while full:
            cell = next(c for c in self.cells if i in self.inside(c, self.X))
            h, n = cell[0], len(self.of(cell))
            side = 2.0**-h
            if self.elements:
                full = n + 1 > side ** (-(self.d + 2 * self.nu) / (self.d + 1))
            else:
                full = n > side ** (-2 * self.nu)
            if full:
                self.kept[cell] = self.band(cell)
                self.cells.remove(cell)
                corners = np.stack(np.meshgrid(*[[0, 1]] * self.d), axis=-1).reshape(-1, self.d)
                self.cells |= {(h + 1, tuple((2 * np.array(cell[1]) + c).tolist())) for c in corners}


CASES = {
    "kept": {},
    "the paper's enlargement": {"enlargement": "paper"},
    "learning": {"ancestors": "learning"},
    "forgotten": {"ancestors": "forgotten"},
    "misfit": {"epsilon": 0.0, "smoothness": 1.0},
    "grounded": {"grounded": True},
    "in its paper": None,
}


@pytest.mark.parametrize(("case", "d"), [*((case, 1) for case in CASES), ("kept", 2), ("in its paper", 2)])
def test_domain_splitting(case, d):
    """100 rounds on a grid: every choice maximises the transcription's score, and the cells are the same after each."""
    box, B = ms.Box([(-1.0, 3.0)] * d), 0.5
    domain = box.grid(40 if d == 1 else 8)
    X = domain.encoded
    model = ms.Model(Matern(0.4, nu=1.5), norm_bound=B, noise=NOISE, regularization=RIDGE, delta=DELTA, offset=OFFSET)
    if (settings := CASES[case]) is None:
        policy, settings = ms.comparators.DomainSplitting.as_in_paper(domain, model), {"epsilon": 0.0}
    else:
        settings = {"epsilon": 0.1, "grounded": False, **settings}
        policy = ms.comparators.DomainSplitting(domain, model, **settings)
    printed, grounded = case == "in its paper", case == "grounded"
    epsilon = settings["epsilon"]
    plain = Splitting(
        X, settings.get("smoothness", 1.5), epsilon, B, DELTA / (1 + grounded), elements=printed, lemma1=printed,
        exact=settings.get("enlargement") != "paper", ancestors="forgotten" if printed else settings.get("ancestors"),
    )  # fmt: skip
    rng, deepest = np.random.default_rng(5), 0
    truth = OFFSET + 0.4 * np.sin(5 * X[:, 0]) * np.cos(3 * X[:, -1]) + 0.1 * rng.choice([-1, 1], len(X))
    own, ranks = {}, {}
    for _ in range(100):
        score = plain.ends()[1]
        if grounded:
            score = score + epsilon
            for i, ys in own.items():
                n, j = len(ys), ranks[i]
                r = NOISE * math.sqrt(2 * math.log(math.pi**2 * n**2 * j * (j + 1) / (3 * DELTA / 2)) / n)
                high = np.mean(ys) + r
                score[i] = high if score[i] < np.mean(ys) - r else min(score[i], high)
        query = policy.ask()
        assert score[query.index] >= score.max() - 1e-6
        assert query.upper == pytest.approx(score[query.index], abs=1e-6)
        found = {}
        for cell in policy.cells:
            corner = np.round((cell.bounds[:, 0] + 1.0) / 4.0 * 2**cell.level).astype(int)
            np.testing.assert_allclose(cell.bounds[:, 1] - cell.bounds[:, 0], 4.0 / 2**cell.level)
            found[cell.level, tuple(corner.tolist())] = cell.count
        assert found == {cell: len(plain.of(cell)) for cell in plain.cells}
        deepest = max(deepest, *(cell.level for cell in policy.cells))
        y = float(truth[query.index] + NOISE * rng.standard_normal())
        policy.tell(query, y)
        plain.tell(query.index, y)
        own.setdefault(query.index, []).append(y)
        ranks.setdefault(query.index, len(ranks) + 1)
    assert deepest >= 2
    policy.drop(policy.ask())  # cells are split before a query
    lower, upper = plain.ends()
    if not grounded:
        band, reach = policy.band(), B + epsilon
        np.testing.assert_allclose(band.lower, np.maximum(lower - epsilon, OFFSET - reach), atol=1e-6)
        np.testing.assert_allclose(band.upper, np.minimum(upper + epsilon, OFFSET + reach), atol=1e-6)
    for record in policy.cells:
        y = [(X[i], y) for i, y in plain.results if within(record, -1.0 + 4.0 * X[i])]
        log_det = ridge_regression(matern, X, [0], y)[3]
        assert record.information == pytest.approx(log_det / 2, abs=1e-6)
        assert record.inherited <= record.information + 1e-9
    assert sum(cell.played for cell in [*policy.cells, *policy.splits]) == 100


def within(record, x):
    return bool(((record.bounds[:, 0] <= x) & ((x < record.bounds[:, 1]) | (record.bounds[:, 1] == 3.0))).all())


# -- prior elimination -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("printed", [False, True])
@pytest.mark.parametrize(
    ("norms", "offsets"), [((0.05, 0.1, 1.0), (2.5, 1.8, OFFSET)), ((0.02, 0.02, 0.02), (OFFSET,) * 3)]
)
def test_prior_elimination(norms, offsets, printed):
    """Classes that are too small are dropped; in the second case all of them."""
    X, scales, P = np.random.default_rng(0).random((45, 2)), (0.6, 0.4, 0.15), 3
    noise, ridge = 0.02, 4.0  # for which little is believed of a result, so that predictions can fail for long
    models = [
        ms.Model(RBF(scale), norm_bound=B, noise=noise, regularization=ridge, delta=DELTA, offset=offset)
        for scale, B, offset in zip(scales, norms, offsets, strict=True)
    ]
    make = ms.comparators.PriorElimination.as_in_paper if printed else ms.comparators.PriorElimination
    policy = make(ms.Finite(X), models)
    rng, results, left, dropped = np.random.default_rng(1), [], [0, 1, 2], []
    truth = OFFSET + 0.6 + 0.3 * np.sin(5 * X[:, 0]) * X[:, 1]
    counts, sums, widths = np.zeros(P, int), np.zeros(P), np.zeros(P)
    for _ in range(150):
        known, uppers = {}, {}
        for p in left or dropped[-1:]:
            mean, std, _, log_det = ridge_regression(rbf(scales[p]), X, np.arange(len(X)), results, ridge, offsets[p])
            spread = noise / math.sqrt(ridge)
            beta = (
                spread * math.sqrt(2 * math.log(2 / DELTA) + log_det) + norms[p]
                if printed
                else math.sqrt(spread**2 * (2 * math.log(2 / DELTA) + log_det) + norms[p] ** 2)
            )
            known[p], uppers[p] = (mean, beta * std), (mean + beta * std).max()
        query = policy.ask()
        p = query.details["base"]
        assert uppers[p] >= max(uppers.values()) - 1e-7
        i, (mean, half) = query.index, known[p]
        assert (mean + half)[i] >= uppers[p] - 1e-7
        y = float(truth[i] + noise * rng.standard_normal())
        policy.tell(query, y)
        results.append((X[i], y))
        counts[p] += 1
        sums[p] += y - mean[i]
        widths[p] += half[i]
        xi = 2 * noise**2 * math.log(P * counts[p] ** 2 * math.pi**2 / (3 * DELTA / 2))
        if p in left and abs(sums[p]) > math.sqrt(xi * counts[p]) + widths[p]:
            left.remove(p)
            dropped.append(p)
        assert policy.active == left
        assert [each.base for each in policy.eliminated] == dropped
        np.testing.assert_allclose(policy.residuals, sums, atol=1e-6)
        np.testing.assert_allclose(policy.candidate_bounds, widths, atol=1e-6)
    assert dropped
    assert bool(left) == (norms[2] == 1.0)
    assert any("none of these models" in caveat for caveat in policy.caveats) == (not left)
    bands = []
    for p in left or dropped[-1:]:
        mean, std, _, log_det = ridge_regression(rbf(scales[p]), X, np.arange(len(X)), results, ridge, offsets[p])
        beta = ms.theory.widths.multiplier("lemma1" if printed else "mixture", models[p], log_det, DELTA / 2)
        least, most = offsets[p] - norms[p], offsets[p] + norms[p]
        lower, upper = mean - beta * std, mean + beta * std
        low, high = np.maximum(lower, least), np.minimum(upper, most)
        apart = low > high
        bands.append((np.where(apart, least, low), np.where(apart, most, high)))
    np.testing.assert_allclose(policy.band().lower, np.min([low for low, _ in bands], axis=0), atol=1e-6)
    np.testing.assert_allclose(policy.band().upper, np.max([high for _, high in bands], axis=0), atol=1e-6)
