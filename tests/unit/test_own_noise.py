"""Results with noises of their own count as often as these say: in posteriors, bands, certificates and files."""

import dataclasses
import math

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

import misspec as ms
from misspec.errors import InvalidInput
from misspec.hyperparameters import Data, Hyperposterior
from misspec.theory.own_bands import OwnBands, own_radius, weighted_radius

RNG = np.random.default_rng(0)
X = RNG.random((40, 2))
LIST, BOX = ms.Finite(X), ms.Box([(0, 1), (0, 1)])
MODEL = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1, offset=0.3)
DOT = ConstantKernel(0.2) * DotProduct(0.5)
LINEAR = ms.Model(DOT, norm_bound=2.0, noise=0.1)
MAKE = {
    "ec": lambda: ms.ECGPUCB(LIST, MODEL, epsilon=0.1),
    "paper": lambda: ms.ECGPUCB(LIST, MODEL, epsilon=0.1, enlargement="paper"),
    "box": lambda: ms.GPUCB(BOX, MODEL),
    "insured": lambda: ms.InsuredUCB(LIST, MODEL),
    "thompson": lambda: ms.ThompsonSampling(LIST, MODEL),
    "uniform": lambda: ms.UniformSampling(LIST, MODEL, minimize=True),
    "linear": lambda: ms.GPUCB(ms.Open(2, 1.5), LINEAR),
}


def played(policy, rounds=50, seed=1):
    """Noises of 10 % to 1000 %, every fifth result without, some queries left pending. The results, x, y and σ_s."""
    rng, told, batch = np.random.default_rng(seed), [], []
    for t in range(rounds):
        offered = {} if policy.field.fixed else {"actions": rng.random((5, 2))}
        query = policy.ask(**offered)
        batch.append(query)
        if t % 7 == 3:
            continue
        query = batch.pop(int(rng.integers(len(batch))))
        own = 0.1 * 10 ** rng.uniform(-1, 1) if t % 5 else None
        y = float(np.sin(5 * query.x[0]) + (own or 0.1) * rng.standard_normal())
        policy.tell(query, y, noise=own)
        told.append((*query.x, y, own or 0.1))
    return np.array(told)


def dense(model, told, at, sign=1.0):
    """Mean and standard deviation by K + λ·diag(σ_s²/σ²), and log det of the weighted matrix."""
    Z, y, s = told[:, :2], sign * told[:, 2], told[:, 3]
    offset, ridge = sign * model.offset, model.regularization * (s / model.noise) ** 2
    K = model.kernel(Z, Z.copy()) + np.diag(ridge)
    k = model.kernel(at, Z)
    mean = offset + k @ np.linalg.solve(K, y - offset)
    variance = model.kernel.diag(at) - np.einsum("ij,ji->i", k, np.linalg.solve(K, k.T))
    return sign * mean, np.sqrt(np.maximum(variance, 0)), np.linalg.slogdet(K)[1] - np.log(ridge).sum()


@pytest.mark.parametrize("name", MAKE)
def test_the_posterior_is_that_of_a_dense_solve(name):
    policy = MAKE[name]()
    told = played(policy)
    mean, std, log_det = dense(policy.model_as_given, told, X)
    found = policy.posterior.at(X)
    np.testing.assert_allclose(found[0], mean, atol=1e-8)
    np.testing.assert_allclose(found[1], std, atol=1e-8)
    inner = policy.posterior_in_use
    assert inner.log_det == pytest.approx(log_det, abs=1e-6)
    assert inner.mass == pytest.approx(((0.1 / told[:, 3]) ** 2).sum())
    assert np.nanmax(policy.observations.noise) == pytest.approx(told[:, 3].max())
    told, here = inner.counts > 0, inner.look(policy.domain.encode(X))
    W = inner.weights_at(X)[:, told]
    np.testing.assert_allclose((W**2 / inner.counts[told]).sum(axis=1), here.norm2() ** 2, atol=1e-8)
    np.testing.assert_allclose(np.abs(W).sum(axis=1), here.norm1(), atol=1e-8)


@pytest.mark.parametrize("name", MAKE)
def test_restored_it_goes_on_to_the_bit(name, tmp_path):
    policy = MAKE[name]()
    journal = tmp_path / "j.misspec"
    policy.journal(journal)
    played(policy, 20)
    policy.save(tmp_path / "saved.misspec")
    for twin in (ms.restore(policy.state()), ms.load(tmp_path / "saved.misspec"), ms.load(journal)):
        assert twin.state() == policy.state()
        np.testing.assert_array_equal(twin.posterior.at(X)[0], policy.posterior.at(X)[0])
        np.testing.assert_array_equal(twin.observations.noise, policy.observations.noise)
        np.testing.assert_array_equal(twin._evidence.own.table()[3], policy._evidence.own.table()[3])


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("domain", [LIST, BOX, ms.Open(2, 1.5)])
@pytest.mark.parametrize("kernel", [RBF(0.3), Matern(0.5, nu=2.5), DOT])
@pytest.mark.parametrize("budget", [None, 60])
def test_replicates_and_their_averages_are_the_same(kernel, domain, bulk, budget):
    """Singly, or as averages with their standard errors."""
    rng = np.random.default_rng(2)
    model = ms.Model(kernel, norm_bound=2.0, noise=0.1)
    counts = rng.integers(1, 9, size=len(X))
    single = [(x, rng.standard_normal()) for x, n in zip(X, counts, strict=True) for _ in range(n)]
    points, y = np.array([x for x, _ in single]), np.array([value for _, value in single])
    averages = np.array([y[(points == x).all(axis=1)].mean() for x in X])
    one, other = (ms.GPUCB(domain, model, budget=budget) for _ in range(2))
    errors = 0.1 / np.sqrt(counts)
    if bulk:
        one.observe(points, y)
        other.observe(X, averages, noise=errors)
    else:
        for x, value in zip(points, y, strict=True):
            one.observe(x[None, :], [value])
        for x, value, error in zip(X, averages, errors, strict=True):
            other.observe(x[None, :], [value], noise=error)
    grid = np.random.default_rng(5).random((30, 2))
    for a, b in zip(one.posterior.at(grid), other.posterior.at(grid), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)
    assert one.posterior.log_det == pytest.approx(other.posterior.log_det, rel=1e-9)
    assert one.posterior.mass == pytest.approx(other.posterior.mass)
    if not bulk:
        return
    told, once = ms.diagnose(points, y, model), ms.diagnose(X, averages, model, noise=errors)
    np.testing.assert_allclose(told.averages, once.averages)


def test_radii_of_own_bands():
    """j(j+1) for the rank, ρ = 1; where the first result has no noise of its own, later ones with one do not count."""
    assert weighted_radius(0.3, 2.5, 3, 0.1) == pytest.approx(
        0.3 * math.sqrt(3.5 * (2 * math.log(12 / 0.1) + math.log(3.5))) / 2.5
    )
    own = OwnBands(0.2, 0.1, size=5)
    for query, key in enumerate([4, 4, 4, 2, 2, 2]):
        own.ask(key, query)
    own.tell(4, 1.0, 0, precision=4.0)
    own.tell(4, 2.0, 1)
    own.tell(4, 3.0, 2, precision=0.5)
    centre = (4 * 1.0 + 2.0 + 0.5 * 3.0) / 5.5
    radius = weighted_radius(0.2, 5.5, 1, 0.1)
    assert (own.lower[4], own.upper[4]) == pytest.approx((centre - radius, centre + radius))
    own.tell(2, 1.0, 3)
    own.tell(2, 9.0, 4, precision=100.0)
    assert own.upper[2] == pytest.approx(1.0 + own_radius(0.2, 1, 2, 0.1))
    own.tell(2, 2.0, 5)
    assert own.upper[2] == pytest.approx(1.5 + own_radius(0.2, 2, 2, 0.1))
    assert (own.count(2), own.count(4)) == (3, 3)
    twin = OwnBands(0.2, 0.1, size=5)
    twin.observe([4, 4, 4], [1.0, 2.0, 3.0], precision=[4.0, None, 0.5])
    assert twin.upper[4] == pytest.approx(centre + weighted_radius(0.2, 5.5, 5, 0.1))


@pytest.mark.parametrize("fast", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_bands_hold_with_given_noises(fast):
    """f* in the class, δ = 0.2, noises of 10 % to 1000 % that look at earlier results: the share of runs in which a
    band ever misses is at most δ. With 60 runs, 21 misses or more have a probability below 0.005 if it is δ."""
    runs, missed, alarms = 60 if fast else 400, 0, 0
    for seed in range(runs):
        rng = np.random.default_rng([seed, 3])
        points = rng.random((25, 2))
        centres = rng.random((6, 2))
        model = ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1, delta=0.2)
        weights = rng.standard_normal(6)
        weights /= math.sqrt(weights @ model.kernel(centres) @ weights)
        f = model.kernel(points, centres) @ weights
        policy = ms.ECGPUCB(ms.Finite(points), model, epsilon=0.0)
        bad = False
        for _ in range(30):
            query = policy.ask()
            last = policy.observations.y[-1] if policy.t else 0.0
            own = 0.1 * 10 ** (rng.uniform(0, 1) * (1 if last > f[query.index] else -1))
            policy.tell(query, f[query.index] + own * rng.standard_normal(), noise=own)
            low, high = policy.band()
            bad |= bool(((f < low - 1e-9) | (f > high + 1e-9)).any())
        missed += bad
        alarms += bool(policy.conflicts())
    assert missed <= (20 if fast else 0.2 * runs + 3 * math.sqrt(0.16 * runs))
    assert alarms <= (20 if fast else 0.2 * runs + 3 * math.sqrt(0.16 * runs))


def test_the_energy_certificate_counts_by_weights():
    """A square wave is certified from precise results, and not from the same ones called imprecise."""
    rng = np.random.default_rng(0)
    Z = rng.random((150, 1))
    truth = 0.3 * np.sign(np.sin(40 * Z[:, 0]))
    model = ms.Model(RBF(0.3), norm_bound=1.0, noise=0.3)
    y = truth + 0.03 * rng.standard_normal(150)
    loose, tight = ms.diagnose(Z, y, model), ms.diagnose(Z, y, model, noise=0.03)
    assert 0.2 < tight.epsilon_lower <= 0.3
    assert loose.epsilon_lower < 0.1
    assert ms.diagnose(Z, y, dataclasses.replace(model, noise=0.03, regularization=9e-4)).certificates[
        2
    ].epsilon == pytest.approx(tight.certificates[2].epsilon, rel=0.2)


def test_what_is_refused():
    policy = ms.GPUCB(LIST, MODEL)
    query = policy.ask()
    before = policy.state()
    for noise, says in [(-0.1, "0 or above"), ([0.1, 0.2], "one number, or 1"), ("x", "numbers"), (math.inf, "finite")]:
        with pytest.raises(InvalidInput, match=says):
            policy.tell(query, 0.5, noise=noise)
    assert policy.state() == before
    silent = ms.GPUCB(LIST, ms.Model(RBF(0.3), norm_bound=1.0, noise=0.0))
    with pytest.raises(InvalidInput, match="noise is above 0"):
        silent.observe([0], [1.0], noise=0.1)
    balancing = ms.RegretBalancing(LIST, MODEL, horizon=20)
    with pytest.raises(InvalidInput, match="takes no noise of single results"):
        balancing.tell(balancing.ask(), 0.5, noise=0.1)
    policy.tell(query, 0.5, noise=math.nan)  # as if there were none
    assert math.isnan(policy.observations.noise[0])
    assert policy.log.events[-1] == ("tell", 0, 0.5)
    policy.observe([1], [0.2], noise=0.0)  # as precise as it can be
    assert policy.posterior.counts[-1] == pytest.approx(1e6)


# -- Auto ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [None, 0.2])
def test_the_likelihood_of_hyperparameters_with_own_noises(known):
    """Against the dense matrix of single results, up to a constant: s² integrated out, or σ/√λ."""
    rng = np.random.default_rng(4)
    points = rng.random((6, 2))[[0, 1, 2, 3, 4, 5, 0, 0, 3, 5, 5]]
    y, g = rng.standard_normal(11), np.array([0.1, np.nan, 0.4, 0.4, np.nan, 0.2, 0.1, 0.5, 0.4, np.nan, np.nan])
    size = 1.7
    target = Hyperposterior(Data.of(points, y, g), [(0, 1), (1, 2)], np.ones(2), known, size)
    assert target.data.total == 11
    assert len(target.data.averages) == 8  # (point, g)

    def direct(theta):
        from misspec.product import ProductMatern

        lam = math.exp(theta[2])
        s2 = size if known is None else known**2 / lam
        kernel = ProductMatern(np.exp(theta[:2]), [(0, 1), (1, 2)], 1 / (1 + math.exp(-theta[3])))
        A = kernel(points, points) + np.diag(lam + np.nan_to_num(g) ** 2 / s2) + np.ones((11, 11))
        Q, log_det = y @ np.linalg.solve(A, y), np.linalg.slogdet(A)[1]
        z = (theta - target.centre) / target.spread
        value = -0.5 * z @ z - 0.5 * log_det
        if known is None:
            return value - (1 + 11 / 2) * math.log(1 + Q / 2)
        return value - (1 + 11 / 2) * math.log(s2) - (1 + Q / 2) / s2

    thetas = [target.centre + 0.5 * target.spread * rng.standard_normal(4) for _ in range(5)]
    differences = [target(theta) - direct(theta) for theta in thetas]
    np.testing.assert_allclose(differences, differences[0], atol=1e-4)  # the jitter of 1e-8


def test_auto_takes_given_noises_beside_what_it_learns():
    rng = np.random.default_rng(1)
    points = rng.random((24, 2))
    f = np.sin(4 * points[:, 0]) + points[:, 1]
    own = np.where(np.arange(24) % 2, 2.0, np.nan)
    y = f + 0.05 * rng.standard_normal(24) + np.nan_to_num(own) * rng.standard_normal(24)
    knows, thinks = ms.Auto(BOX, seed=3), ms.Auto(BOX, seed=3)
    knows.observe(points, y, noise=own)
    thinks.observe(points, y)
    errors = []
    for policy in (knows, thinks):
        policy.refresh()
        errors.append(float(np.abs(policy.posterior.at(points)[0] - f).mean()))
        twin = ms.restore(policy.state())
        np.testing.assert_array_equal(twin.posterior.at(points)[0], policy.posterior.at(points)[0])
    assert errors[0] < 0.6 * errors[1]
    assert knows.noise_level < 0.4 < thinks.noise_level
    query = knows.ask()
    knows.tell(query, 1.0, noise=0.5)
    total = [each.model.noise**2 + (0.5 / knows._mixture.scaling.width) ** 2 for each in knows.posteriors]
    counts = [each.counts[-1] for each in knows.posteriors]
    np.testing.assert_allclose(
        counts, [each.model.noise**2 / v for each, v in zip(knows.posteriors, total, strict=True)]
    )
    assert knows.suspicious() == []


def test_suspicious_results_are_judged_by_their_own_noise():
    policy = ms.GPUCB(BOX, MODEL)
    rng = np.random.default_rng(3)
    points = rng.random((20, 2))
    y = 0.3 + 0.5 * np.sin(3 * points[:, 0]) + 0.1 * rng.standard_normal(20)
    y[4] += 30.0
    own = np.full(20, np.nan)
    own[4] = 20.0
    policy.observe(points, y, noise=own)
    assert policy.suspicious() == []
    plain = ms.GPUCB(BOX, MODEL)
    plain.observe(points, y)
    assert [each.row for each in plain.suspicious()] == [4]


# -- files -----------------------------------------------------------------------------------------------------------


def test_a_column_of_noises_in_a_file_of_results(tmp_path):
    from misspec.integrations.suggest import suggest

    (tmp_path / "candidates.csv").write_text("heat\n" + "".join(f"{t}\n" for t in range(40, 121, 2)))
    lines = [f"{t},{50 + 0.3 * t},\n" for t in range(40, 121, 8)] + ["60,500,300\n"]
    results = tmp_path / "results.csv"
    results.write_text("heat,yield,error\n" + "".join(lines))
    found = suggest(tmp_path / "candidates.csv", results, "yield", noise="error", batch=1)
    assert found.best < 100  # 500 ± 300 says little
    assert not found.summary[0].startswith("Doubtful")
    assert not any("left alone" in note for note in found.notes)
    plain = suggest(tmp_path / "candidates.csv", results, "yield", batch=1)
    assert any("left alone: error" in note for note in plain.notes)
    assert "results.csv, line 13" in plain.summary[0]
    for column, says in [("eror", "did you mean|has no column 'eror'"), ("heat", "column of the experiments")]:
        with pytest.raises(InvalidInput, match=says):
            suggest(tmp_path / "candidates.csv", results, "yield", noise=column)
    results.write_text("heat,yield,error\n40,1,-2\n")
    with pytest.raises(InvalidInput, match="line 2, column 'error': expected a standard deviation, 0 or above"):
        suggest(tmp_path / "candidates.csv", results, "yield", noise="error")


def test_a_column_of_noises_is_certified_with(tmp_path):
    from typer.testing import CliRunner

    from misspec.cli import app
    from misspec.integrations import table

    rng = np.random.default_rng(0)
    x = rng.random(80)
    y, own = 0.4 * np.sign(np.sin(30 * x)), np.where(np.arange(80) % 2, 0.02, 0.5)
    y = y + own * rng.standard_normal(80)
    path = tmp_path / "data.csv"
    path.write_text(
        "x,y,se\n"
        + "".join(f"{a},{b},{c if i % 4 else ''}\n" for i, (a, b, c) in enumerate(zip(x, y, own, strict=True)))
    )
    data = table.read(path, "y", noise="se")
    assert data.names == ["x"]
    assert np.isnan(data.noise).sum() == 20
    made = table.certify(data, RBF(0.3), norm_bound=1.0)
    assert made.noise == 0.02
    direct = ms.diagnose(data.points, y, ms.Model(RBF(0.3), norm_bound=1.0, noise=0.02, offset=float(y.mean())),
                         noise=data.noise, domain=ms.Box([(x.min(), x.max())]))  # fmt: skip
    assert made.found[1.0].epsilon_lower == pytest.approx(direct.epsilon_lower)
    said = CliRunner().invoke(app, ["diagnose", str(path), "--target", "y", "--noise", "se", "--norm-bound", "1"])
    assert said.exit_code == 0
    assert "noise of each row as in se, 0.02 in the median" in said.output
    path.write_text("x,y,se\n0,1,0.1\n1,2,oh\n")
    with pytest.raises(InvalidInput, match="expected a standard deviation"):
        table.read(path, "y", noise="se")
