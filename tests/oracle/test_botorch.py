"""BoTorch: the acquisition function against the project's own, dense solves and BoTorch itself; kernels and models."""

import copy
import math
import pickle
import runpy
import sys
import threading

import numpy as np
import pytest

from neighbours import needs_botorch

needs_botorch()
import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.acquisition.objective import ExpectationPosteriorTransform, ScalarizedPosteriorTransform
from botorch.exceptions import InputDataWarning
from botorch.models import MixedSingleTaskGP, ModelListGP, MultiTaskGP, SingleTaskGP, SingleTaskVariationalGP
from botorch.models.deterministic import GenericDeterministicModel
from botorch.models.kernels import CategoricalKernel
from botorch.models.map_saas import EnsembleMapSaasSingleTaskGP
from botorch.models.transforms import Bilog, ChainedOutcomeTransform, Log, Normalize, Standardize, Warp
from botorch.models.transforms.input import InputPerturbation
from botorch.optim import optimize_acqf
from gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.means import ConstantMean, LinearMean
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

import misspec as ms
from misspec import kernels
from misspec.encoding import kernel_key
from misspec.integrations.botorch import EnlargedUpperConfidenceBound, GPyTorchKernel, model_of, multiplier_of
from reference import Dense

pytestmark = pytest.mark.botorch
ENLARGEMENTS = ("exact", "norm2", "paper")
OFFSET, RIDGE, EPSILON = 0.3, 0.01, 0.2
SHAPES = {  # ours and theirs
    "rbf": (RBF([0.2, 0.4]), lambda: RBFKernel(ard_num_dims=2), [0.2, 0.4]),
    "matern52": (Matern([0.3, 0.5], nu=2.5), lambda: MaternKernel(nu=2.5, ard_num_dims=2), [0.3, 0.5]),
}


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def tensor(values, dtype=torch.float64):
    return torch.tensor(np.asarray(values), dtype=dtype)


def told(n=24, d=2, seed=0):
    """Points, a quarter of them told again and some three times, and results."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    X = np.concatenate([X, X[: n // 4], X[:3]])
    return X, np.sin(6 * X[:, 0]) + X[:, -1] + 0.1 * rng.standard_normal(len(X))


def theirs(name):
    _, make, scales = SHAPES[name]
    kernel = make().double()
    kernel.lengthscale = tensor([scales])
    return kernel


def constant(level):
    mean = ConstantMean().double()
    mean.constant = tensor(level)
    return mean


def plain_gp(X, y, kernel, *, ridge=RIDGE, dtype=torch.float64):
    """A model without transforms: the same prior as Model(kernel, offset=OFFSET) has."""
    Y = tensor(y, dtype)[:, None]
    noise = torch.full_like(Y, ridge) if np.ndim(ridge) == 0 else tensor(ridge, dtype)[:, None]
    mean = constant(OFFSET)
    return SingleTaskGP(tensor(X, dtype), Y, noise, covar_module=kernel, mean_module=mean, outcome_transform=None)


def ours(name, width, enlargement, X, y):
    model = ms.Model(SHAPES[name][0], norm_bound=2.0, noise=0.1, regularization=RIDGE, offset=OFFSET)
    policy = ms.ECGPUCB(
        ms.Box([(0, 1)] * X.shape[1]), model, epsilon=EPSILON, enlargement=enlargement, width=width, grounded=False
    )
    policy.observe(X, y)
    return policy


def at(acquisition, X):
    """Its values and gradients at the rows of X."""
    x = tensor(X)[:, None, :].requires_grad_()
    values = acquisition(x)
    values.sum().backward()
    return values.detach().numpy(), x.grad[:, 0, :].numpy()


def weights_by_telling(model, X):
    """∂μ/∂Y in units of the outcome, by telling the model each result one higher: the mean is affine in them."""
    twin = copy.deepcopy(model)
    targets, scale = twin.train_targets.clone(), 1.0
    if hasattr(twin, "outcome_transform"):
        scale = twin.outcome_transform.stdvs[..., 0, 0]
    with torch.no_grad():
        before, columns = twin.posterior(X).mean.squeeze(-1), []
        for i in range(targets.shape[-1]):
            moved = targets.clone()
            moved[..., i] += 1.0 / scale
            twin.set_train_data(targets=moved, strict=False)
            columns.append(twin.posterior(X).mean.squeeze(-1) - before)
    return torch.stack(columns, dim=-1).numpy()


def by_hand(model, X, multiplier, enlargement):
    """The score from BoTorch's own mean and variance, and weights by telling."""
    with torch.no_grad():
        posterior = model.posterior(tensor(X)[:, None, :])
        mean, std = posterior.mean[..., 0, 0].numpy(), posterior.variance[..., 0, 0].sqrt().numpy()
    zeta = weights_by_telling(model, tensor(X)[:, None, :])[..., 0, :]
    n = zeta.shape[-1]
    added = np.abs(zeta).sum(-1) if enlargement == "exact" else math.sqrt(n + 1) * np.sqrt((zeta**2).sum(-1))
    return mean + multiplier * std + EPSILON * added


# -- the same as ours --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1.5, "mixture", "lemma1"])
@pytest.mark.parametrize("enlargement", ENLARGEMENTS)
@pytest.mark.parametrize("name", SHAPES)
def test_equals_ours_with_gradients(name, enlargement, width):
    X, y = told()
    policy, gp = ours(name, width, enlargement, X, y), plain_gp(X, y, theirs(name))
    multiplier = policy.ask(actions=X[:1]).multiplier
    if width != 1.5:
        assert multiplier_of(gp, 2.0, noise=0.1, width=width) == pytest.approx(multiplier, rel=1e-9)
    policy.drop(policy.pending[0])
    acquisition = EnlargedUpperConfidenceBound(gp, multiplier, EPSILON, enlargement)

    P = np.concatenate([np.random.default_rng(1).random((60, 2)), X[:6], X[:6] + 1e-4])  # also where results are
    values, gradients = at(acquisition, P)
    search = policy._ends.search(0, pending=False)
    mine, slopes = search.slope(P)
    assert np.abs(values - mine).max() < 1e-6
    assert np.abs(values - search.score(P, P)).max() < 1e-6
    assert np.abs(gradients - slopes).max() < 1e-6 * max(1.0, np.abs(slopes).max())
    assert np.abs(slopes).max() > 1

    for x, value in zip(P[:3], values, strict=False):  # as users see it
        query = policy.ask(actions=x[None, :])
        assert query.upper == pytest.approx(value, abs=1e-6)
        policy.drop(query)


@pytest.mark.parametrize("enlargement", ENLARGEMENTS)
@pytest.mark.parametrize("name", SHAPES)
def test_equals_a_dense_solve_and_differences(name, enlargement):
    X, y = told(seed=2)
    dense = Dense(SHAPES[name][0], RIDGE, X, y, OFFSET)
    P = np.random.default_rng(3).random((40, 2))

    def score(at):
        std = np.sqrt(dense.variance(at))
        root = math.sqrt(len(X) + 1)
        added = {"exact": dense.norm1(at), "norm2": root * dense.norm2(at), "paper": root / math.sqrt(RIDGE) * std}
        return dense.mean(at) + 2.0 * std + EPSILON * added[enlargement]

    acquisition = EnlargedUpperConfidenceBound(plain_gp(X, y, theirs(name)), 2.0, EPSILON, enlargement)
    values, gradients = at(acquisition, P)
    assert np.abs(values - score(P)).max() < 1e-8
    steps = np.eye(2)[:, None, :] * 1e-6
    slopes = (score((P + steps).reshape(-1, 2)) - score((P - steps).reshape(-1, 2))).reshape(2, -1).T / 2e-6
    apart = np.abs(gradients - slopes).max(axis=1)  # a weight that changes its sign within a step makes a kink
    assert np.median(apart) < 1e-6
    assert (apart > 1e-4).sum() <= 1


def test_epsilon_zero_is_gp_ucb():
    X, y = told()
    gp = plain_gp(X, y, theirs("rbf"))
    P = tensor(np.random.default_rng(0).random((9, 1, 2)))
    for maximize in (True, False):
        acquisition = EnlargedUpperConfidenceBound(gp, 1.7, 0.0, maximize=maximize)
        ucb = UpperConfidenceBound(gp, beta=tensor(1.7**2), maximize=maximize)
        assert torch.allclose(acquisition(P), ucb(P), rtol=0, atol=1e-14)


# -- models as people have them ----------------------------------------------------------------------------------------


def raw(n=14, seed=5):
    """Points in their own units and outcomes far from 0 and 1, some points told twice."""
    X, y = told(n, 2, seed)
    return X * [10.0, 300.0] + [-5.0, 100.0], 400.0 + 50.0 * y


MODELS = {
    "standardised": lambda X, Y, V: SingleTaskGP((X + 5) / 405, Y),
    "normalised": lambda X, Y, V: SingleTaskGP(X, Y, input_transform=Normalize(2)),
    "warped": lambda X, Y, V: SingleTaskGP(X, Y, input_transform=warped()),
    "noise given": lambda X, Y, V: SingleTaskGP(X, Y, torch.full_like(Y, 9.0), input_transform=Normalize(2)),
    "noise varies": lambda X, Y, V: SingleTaskGP(X, Y, V, input_transform=Normalize(2)),
    "linear mean": lambda X, Y, V: SingleTaskGP(X, Y, input_transform=Normalize(2), mean_module=sloped()),
    "as it is": lambda X, Y, V: SingleTaskGP(
        X, Y, V, input_transform=Normalize(2), outcome_transform=None, covar_module=scaled(2500.0)
    ),
    "mixed": lambda X, Y, V: MixedSingleTaskGP(
        torch.cat([X[:, :1] / 10, (X[:, 1:] > 200).double()], dim=-1), Y, cat_dims=[1]
    ),
    "several": lambda X, Y, V: EnsembleMapSaasSingleTaskGP(
        X, Y, taus=tensor([0.1, 0.3, 1.0]), num_taus=3, input_transform=Normalize(2)
    ),
}


def warped():
    from botorch.models.transforms import ChainedInputTransform

    warp = Warp(d=2, indices=[0, 1])
    with torch.no_grad():
        warp.concentration0.fill_(1.7)
        warp.concentration1.fill_(0.6)
    return ChainedInputTransform(normalize=Normalize(2), warp=warp)


def sloped():
    mean = LinearMean(2).double()
    with torch.no_grad():
        mean.weights.copy_(tensor([[0.7], [-0.4]]))
        mean.bias.fill_(0.2)
    return mean


def scaled(variance, base=None):
    kernel = ScaleKernel(base or MaternKernel(nu=2.5, ard_num_dims=2)).double()
    kernel.outputscale = tensor(variance)
    return kernel


def make(name, seed=5):
    X, y = raw(seed=seed)
    variances = tensor(np.random.default_rng(seed).uniform(1.0, 90.0, (len(y), 1)))
    model = MODELS[name](tensor(X), tensor(y)[:, None], variances)
    if name == "several":
        model.covar_module.base_kernel.lengthscale = tensor([[[0.2, 0.5]], [[0.6, 0.3]], [[1.0, 2.0]]])
        model.likelihood.noise = tensor([[0.01], [0.02], [0.1]])
    P = raw(20, seed + 1)[0]
    if name == "standardised":
        P = (P + 5) / 405
    if name == "mixed":
        P = np.stack([P[:, 0] / 10, (P[:, 1] > 250) * 1.0], axis=1)
    return model, P


@pytest.mark.parametrize("enlargement", ["exact", "norm2"])
@pytest.mark.parametrize("name", MODELS)
def test_weights_are_those_of_results_as_told(name, enlargement):
    model, P = make(name)
    values = EnlargedUpperConfidenceBound(model, 1.3, EPSILON, enlargement)(tensor(P)[:, None, :])
    if name == "several":
        with torch.no_grad():
            posterior = model.posterior(tensor(P)[:, None, :])  # (points, 3, 1, 1)
            zeta = weights_by_telling(model, tensor(P)[:, None, :])[..., 0, :]
            added = (
                np.abs(zeta).sum(-1) if enlargement == "exact" else np.sqrt((zeta**2).sum(-1) * (zeta.shape[-1] + 1))
            )
            each = posterior.mean[..., 0, 0] + 1.3 * posterior.variance[..., 0, 0].sqrt() + EPSILON * tensor(added)
        expected = each.mean(-1).numpy()
        assert each.std(-1).max() > 1e-3
    else:
        expected = by_hand(model, P, 1.3, enlargement)
    assert values.shape == (len(P),)
    assert np.abs(values.detach().numpy() - expected).max() < 1e-6


@pytest.mark.parametrize("name", MODELS)
def test_exact_is_the_least(name):
    model, P = make(name)
    ends = [EnlargedUpperConfidenceBound(model, 0.0, 1.0, each)(tensor(P)[:, None, :]) for each in ENLARGEMENTS]
    exact, norm2, paper = (each.detach() for each in ends)
    assert (exact <= norm2 + 1e-9).all()
    assert (exact <= paper + 1e-9).all()
    if name != "noise varies" and name != "as it is":
        assert (norm2 <= paper + 1e-9).all()


@pytest.mark.parametrize("enlargement", ENLARGEMENTS)
@pytest.mark.parametrize("name", ["warped", "noise varies", "several"])
def test_gradients_against_differences(name, enlargement):
    model, P = make(name)
    acquisition = EnlargedUpperConfidenceBound(model, 1.3, EPSILON, enlargement)
    x = tensor(P[:4])[:, None, :].requires_grad_()
    assert torch.autograd.gradcheck(acquisition, (x,), eps=1e-5, atol=1e-4, rtol=1e-4)


def test_paper_does_not_depend_on_units():
    """λ is in units of the outcome squared: the same model in other units has the same enlargement in those."""
    X, y = raw()
    P = tensor(raw(9, 8)[0])[:, None, :]
    found = []
    for unit in (1.0, 1e-3, 1e6):
        gp = SingleTaskGP(tensor(X), unit * tensor(y)[:, None], input_transform=Normalize(2))
        score, mean = (EnlargedUpperConfidenceBound(gp, 0.0, epsilon, "paper")(P) for epsilon in (unit * EPSILON, 0.0))
        found.append((score - mean).detach() / unit)
    noise = gp.likelihood.noise * gp.outcome_transform.stdvs**2 / unit**2
    with torch.no_grad():
        std = gp.posterior(P).variance.sqrt().reshape(-1) / unit
    assert torch.allclose(found[0], EPSILON * torch.sqrt((len(X) + 1) / noise).reshape(()) * std, rtol=1e-6)
    assert torch.allclose(found[1], found[0], rtol=1e-6)
    assert torch.allclose(found[2], found[0], rtol=1e-6)


def test_the_model_as_it_is_now():
    """Weights are kept from call to call, and made anew when the model has changed."""
    X, y = told()
    P = tensor(np.random.default_rng(0).random((5, 1, 2)))
    gp, more = plain_gp(X[:20], y[:20], theirs("rbf")), plain_gp(X, y, theirs("rbf"))
    acquisition = EnlargedUpperConfidenceBound(gp, 2.0, EPSILON)
    first = acquisition(P)
    kept = acquisition._kept
    assert torch.equal(acquisition(P), first)
    assert acquisition._kept is kept
    gp.train()
    gp.covar_module.lengthscale = tensor([[0.5, 0.5]])
    twin = copy.deepcopy(gp)
    after = acquisition(P)
    assert torch.equal(after, EnlargedUpperConfidenceBound(twin, 2.0, EPSILON)(P))
    assert not torch.allclose(after, first)

    grown = plain_gp(X[:20], y[:20], theirs("rbf"))
    grown.posterior(P)
    noise = torch.full((len(X) - 20, 1), RIDGE).double()
    grown = grown.condition_on_observations(tensor(X[20:]), tensor(y[20:])[:, None], noise=noise)
    whole = EnlargedUpperConfidenceBound(more, 2.0, EPSILON)(P)
    assert torch.allclose(EnlargedUpperConfidenceBound(grown, 2.0, EPSILON)(P), whole, atol=1e-7)


def test_single_precision():
    """The mean and σ are BoTorch's, in the model's precision; the weights are solved for in double precision."""
    X, y = told(60)
    P = np.random.default_rng(0).random((50, 2))
    exact = EnlargedUpperConfidenceBound(plain_gp(X, y, theirs("matern52")), 2.0, EPSILON)(tensor(P)[:, None, :])
    with pytest.warns(InputDataWarning, match="double precision"):
        single = plain_gp(X, y, theirs("matern52").float(), dtype=torch.float32)
    values = EnlargedUpperConfidenceBound(single, 2.0, EPSILON)(tensor(P, torch.float32)[:, None, :])
    assert values.dtype == torch.float32
    assert (values.double() - exact).abs().max() < 2e-4
    enlarged, plain = (
        EnlargedUpperConfidenceBound(single, 0.0, e)(tensor(P, torch.float32)[:, None, :]).double() for e in (1.0, 0.0)
    )
    dense = Dense(SHAPES["matern52"][0], RIDGE, X, y, OFFSET)
    assert np.abs((enlarged - plain).detach().numpy() - dense.norm1(P)).max() < 1e-4
    belief = model_of(single)  # k(x,x) ≤ 1 in double precision too
    belief.check(ms.Finite(P))


# -- inside BoTorch ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("enlargement", ENLARGEMENTS)
def test_optimize_acqf_finds_the_maximum(enlargement):
    X, y = told(12)
    gp = plain_gp(X, y, theirs("matern52"))
    side = np.linspace(0, 1, 101)
    grid = tensor(np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 1, 2))
    bounds = tensor([[0.0, 0.0], [1.0, 1.0]])
    for maximize in (True, False):
        acquisition = EnlargedUpperConfidenceBound(gp, 1.0, EPSILON, enlargement, maximize=maximize)
        torch.manual_seed(0)
        best, value = optimize_acqf(acquisition, bounds, q=1, num_restarts=8, raw_samples=128)
        with torch.no_grad():
            values = acquisition(grid)
        assert value >= values.max() - 1e-9
        assert value < values.max() + 0.02
        assert (best - grid[values.argmax()]).abs().max() < 0.02
        assert best.shape == (1, 2)

    fixed, value = optimize_acqf(acquisition, bounds, q=1, num_restarts=4, raw_samples=64, fixed_features={1: 0.25})
    line = grid[(grid[:, 0, 1] - 0.25).abs() < 1e-9]
    assert fixed[0, 1] == 0.25
    assert value >= acquisition(line).max() - 1e-9


def test_minimising_is_maximising_what_is_turned_over():
    X, y = told()
    P = tensor(np.random.default_rng(0).random((9, 1, 2)))
    up = plain_gp(X, y, theirs("rbf"))
    down = plain_gp(X, 2 * OFFSET - y, theirs("rbf"))
    turned = ScalarizedPosteriorTransform(tensor([-1.0]))
    tripled = ScalarizedPosteriorTransform(tensor([-3.0]), offset=5.0)
    for enlargement in ENLARGEMENTS:
        least = EnlargedUpperConfidenceBound(up, 2.0, EPSILON, enlargement, maximize=False)(P)
        mirrored = EnlargedUpperConfidenceBound(down, 2.0, EPSILON, enlargement)(P) - 2 * OFFSET
        assert torch.allclose(least, mirrored, atol=1e-8)
        assert torch.allclose(least, EnlargedUpperConfidenceBound(up, 2.0, EPSILON, enlargement, turned)(P))
        times3 = EnlargedUpperConfidenceBound(up, 2.0, EPSILON, enlargement, tripled)(P)
        assert torch.allclose(times3, 3 * least + 5.0)


@pytest.mark.parametrize("enlargement", ENLARGEMENTS)
def test_shapes(enlargement):
    X, y = told()
    rng = np.random.default_rng(0)
    acquisition = EnlargedUpperConfidenceBound(plain_gp(X, y, theirs("rbf")), 2.0, EPSILON, enlargement)
    P = tensor(rng.random((3, 4, 1, 2)))
    values = acquisition(P)
    assert values.shape == (3, 4)
    assert torch.allclose(acquisition(P.reshape(12, 1, 2)).reshape(3, 4), values, atol=1e-12)
    assert torch.allclose(acquisition(P[0, 0]), values[0, :1], atol=1e-12)
    with pytest.raises(AssertionError, match="q=1"):
        acquisition(tensor(rng.random((3, 2, 2))))

    # a batch of models: each as if alone
    data = [told(seed=s) for s in range(3)]
    many = SingleTaskGP(
        tensor([X for X, _ in data]), tensor([y for _, y in data])[..., None], covar_module=theirs("rbf")
    )
    P = tensor(rng.random((5, 3, 1, 2)))
    together = EnlargedUpperConfidenceBound(many, 2.0, EPSILON, enlargement)(P)
    assert together.shape == (5, 3)
    for b, (X, y) in enumerate(data):
        one = SingleTaskGP(tensor(X), tensor(y)[:, None], covar_module=theirs("rbf"))
        one.likelihood.noise = many.likelihood.noise[b]
        alone = EnlargedUpperConfidenceBound(one, 2.0, EPSILON, enlargement)(P[:, b])
        assert torch.allclose(together[:, b], alone, atol=1e-8)


@pytest.mark.parametrize("enlargement", ENLARGEMENTS)
def test_fully_bayesian(enlargement, monkeypatch):
    """Samples of hyperparameters are a batch of exact GPs; their scores are averaged."""
    from botorch.models import fully_bayesian

    # JAX, which BoTorch 0.17 brought, is needed to draw samples only
    monkeypatch.setattr(fully_bayesian, "_check_jax_available", lambda: None, raising=False)
    monkeypatch.setattr(fully_bayesian, "jnp", np, raising=False)
    X, y = told()
    y = (y - y.mean()) / y.std(ddof=1)
    model = fully_bayesian.SaasFullyBayesianSingleTaskGP(tensor(X), tensor(y)[:, None])
    scales, noises, variances = tensor([[[0.2, 0.4]], [[0.5, 0.3]]]), tensor([[0.01], [0.03]]), tensor([1.5, 0.7])
    samples = {"lengthscale": scales, "outputscale": variances, "mean": tensor([0.1, -0.2]), "noise": noises[:, 0]}
    model.load_mcmc_samples({**samples, "kernel_tausq": tensor([1.0, 1.0])})
    P = tensor(np.random.default_rng(0).random((7, 1, 2)))
    expected = []
    for i in range(2):
        kernel = scaled(float(variances[i]), MaternKernel(nu=2.5, ard_num_dims=2))
        kernel.base_kernel.lengthscale = scales[i]
        noise = torch.full((len(y), 1), float(noises[i])).double()
        mean = constant(float(samples["mean"][i]))
        one = SingleTaskGP(
            tensor(X), tensor(y)[:, None], noise, covar_module=kernel, mean_module=mean, outcome_transform=None
        )
        expected.append(EnlargedUpperConfidenceBound(one, 2.0, EPSILON, enlargement)(P))
    found = EnlargedUpperConfidenceBound(model, 2.0, EPSILON, enlargement)(P)
    assert torch.allclose(found, sum(expected) / 2, atol=1e-7)


def test_models_without_weights():
    X, y = told()
    points, Y = tensor(X), tensor(y)[:, None]
    P = tensor(np.random.default_rng(0).random((7, 1, 2)))
    variational = SingleTaskVariationalGP(points, (Y - Y.mean()) / Y.std(), inducing_points=8)
    for enlargement in ("exact", "norm2"):
        with pytest.raises(ms.InvalidInput, match='SingleTaskVariationalGP has none: use enlargement="paper" with'):
            EnlargedUpperConfidenceBound(variational, 2.0, EPSILON, enlargement)
    for given in ({}, {"regularization": 0.01}, {"observations": 30}):
        with pytest.raises(ms.InvalidInput, match=r"needs regularization=.*observations="):
            EnlargedUpperConfidenceBound(variational, 2.0, EPSILON, "paper", **given)
    found = EnlargedUpperConfidenceBound(variational, 2.0, EPSILON, "paper", regularization=0.04, observations=24)(P)
    posterior = variational.posterior(P)
    std = posterior.variance.sqrt().reshape(-1)
    assert torch.allclose(found, posterior.mean.reshape(-1) + (2.0 + EPSILON * 5.0 / 0.2) * std)
    EnlargedUpperConfidenceBound(variational, 2.0, 0.0)(P)  # without ε no weights are needed

    function = GenericDeterministicModel(lambda x: x.sum(-1, keepdim=True))
    with pytest.raises(ms.InvalidInput, match="GenericDeterministicModel has none"):
        EnlargedUpperConfidenceBound(function, 2.0, EPSILON)

    one = ModelListGP(plain_gp(X, y, theirs("rbf")))  # a list of one is the one
    alone = EnlargedUpperConfidenceBound(one.models[0], 2.0, EPSILON)(P)
    assert torch.allclose(EnlargedUpperConfidenceBound(one, 2.0, EPSILON)(P), alone)


def test_what_is_refused():
    X, y = told()
    points, Y = tensor(X), tensor(y)[:, None]
    gp = plain_gp(X, y, theirs("rbf"))
    two = SingleTaskGP(points, torch.cat([Y, -Y], dim=-1))
    turned = ScalarizedPosteriorTransform(tensor([1.0, 1.0]))
    for arguments in ({}, {"posterior_transform": turned}):
        with pytest.raises(ms.InvalidInput, match="one output, got 2 outputs"):
            EnlargedUpperConfidenceBound(two, 2.0, EPSILON, **arguments)
    with pytest.raises(ms.InvalidInput, match="one output, got RBFKernel"):
        EnlargedUpperConfidenceBound(theirs("rbf"), 2.0, EPSILON)
    for transform in (Log(), Bilog(), ChainedOutcomeTransform(log=Log(), standardize=Standardize(1))):
        positive = SingleTaskGP(points, Y.exp(), outcome_transform=transform, covar_module=theirs("rbf"))
        with pytest.raises(ms.InvalidInput, match=f"nothing else, got {type(transform).__name__}"):
            EnlargedUpperConfidenceBound(positive, 2.0, EPSILON, "paper")
    twice = ChainedOutcomeTransform(first=Standardize(1), second=Standardize(1))
    EnlargedUpperConfidenceBound(SingleTaskGP(points, Y, outcome_transform=twice), 2.0, EPSILON)(points[:, None, :])
    with pytest.raises(ms.InvalidInput, match="must be a ScalarizedPosteriorTransform"):
        EnlargedUpperConfidenceBound(gp, 2.0, EPSILON, posterior_transform=ExpectationPosteriorTransform(2))
    tasks = MultiTaskGP(
        torch.cat([points, (points[:, :1] > 0.5).double()], dim=-1), Y, task_feature=2, output_tasks=[0]
    )
    with pytest.raises(ms.InvalidInput, match="MultiTaskGP has none"):
        EnlargedUpperConfidenceBound(tasks, 2.0, EPSILON)
    shaken = SingleTaskGP(points, Y, input_transform=InputPerturbation(tensor([[0.0, 0.0], [0.1, 0.1]])))
    with pytest.raises((ms.InvalidInput, RuntimeError)):
        EnlargedUpperConfidenceBound(shaken, 2.0, EPSILON)(points[:1])
    wrong = {
        "multiplier must be": {"multiplier": -1.0},
        "epsilon must be": {"epsilon": math.nan},
        "enlargement must be one of exact, norm2, paper": {"enlargement": "norm1"},
        "maximize must be": {"maximize": "yes"},
        'are for enlargement="paper"': {"regularization": 0.1},
        r"regularization \(λ\) must be": {"regularization": 0.0, "enlargement": "paper"},
        "observations must be": {"observations": 2.5, "enlargement": "paper"},
    }
    for message, arguments in wrong.items():
        with pytest.raises(ms.InvalidInput, match=message):
            EnlargedUpperConfidenceBound(gp, **{"multiplier": 1.0, "epsilon": 0.1, **arguments})


# -- kernels -----------------------------------------------------------------------------------------------------------


def length(kernel, scales):
    kernel = kernel.double()
    kernel.lengthscale = tensor(scales)
    return kernel


PAIRS = {
    "rbf": (RBF(0.2), lambda: length(RBFKernel(), 0.2)),
    "rbf ard": (RBF([0.2, 0.5, 3.0]), lambda: length(RBFKernel(ard_num_dims=3), [[0.2, 0.5, 3.0]])),
    "matern12": (Matern(0.3, nu=0.5), lambda: length(MaternKernel(nu=0.5), 0.3)),
    "matern32": (Matern(0.3, nu=1.5), lambda: length(MaternKernel(nu=1.5), 0.3)),
    "matern52": (Matern([0.3, 1.0, 2.0], nu=2.5), lambda: length(MaternKernel(2.5, ard_num_dims=3), [[0.3, 1.0, 2.0]])),
    "scaled": (ConstantKernel(0.4) * RBF(0.2), lambda: scaled(0.4, length(RBFKernel(), 0.2))),
    "sum": (
        ConstantKernel(0.4) * RBF(0.2) + ConstantKernel(0.3) * Matern(0.5, nu=1.5),
        lambda: scaled(0.4, length(RBFKernel(), 0.2)) + scaled(0.3, length(MaternKernel(1.5), 0.5)),
    ),
    "linear": (ConstantKernel(0.01) * DotProduct(0.0), lambda: linear(0.01)),
}


def linear(variance):
    kernel = LinearKernel().double()
    kernel.variance = tensor(variance)
    return kernel


@pytest.mark.parametrize("far", [0.0, 1000.0])
@pytest.mark.parametrize("name", PAIRS)
def test_kernels_are_those_of_scikit_learn(name, far):
    """Also far from the origin, where squared distances cancel, and next to each other and at the same point."""
    ours, make = PAIRS[name]
    if name == "linear" and far:
        return
    rng = np.random.default_rng(0)
    X, Z = far + rng.random((40, 3)), far + rng.random((30, 3))
    Z[:5], Z[5:10] = X[:5], X[5:10] + 1e-7
    kernel = GPyTorchKernel(make())
    assert np.abs(kernel(X, Z) - ours(X, Z)).max() < 1e-12
    assert np.array_equal(kernel(Z, X), kernel(X, Z).T)
    assert np.abs(kernel(X, X) - ours(X)).max() < 1e-12
    if name != "linear":
        assert np.abs(kernel.diag(X) - ours.diag(X)).max() < 1e-14
        assert kernel.stationary
        assert np.abs(np.diag(kernel(X, X)) - kernel.diag(X)).max() < 1e-14
    values, slopes = kernel.with_gradient(X, Z)
    assert np.abs(values - ours(X, Z)).max() < 1e-12
    expected = kernels.cross_with_gradient(ours, X, Z)[1]
    assert np.abs(slopes - expected).max() < 1e-9 * max(1.0, np.abs(expected).max())
    assert np.abs(kernels.cross_with_gradient(kernel, X[:1], X[:1])[1]).max() < (0.02 if name == "linear" else 1e-12)
    assert kernel(X, Z[:0]).shape == (40, 0)
    assert kernel.with_gradient(X[:0], Z)[1].shape == (0, 30, 3)


def test_kernels_without_a_twin():
    """Gradients against differences; k(x,x) that varies; dimensions that are chosen; choices, which have no slopes."""
    rng = np.random.default_rng(0)
    X, Z = 0.1 + rng.random((12, 3)), 0.1 + rng.random((9, 3))
    polynomial = PolynomialKernel(power=2).double()
    chosen = length(RBFKernel(active_dims=[0, 2], ard_num_dims=2), [[0.3, 0.5]])
    for kernel in (
        GPyTorchKernel(polynomial, amplitude=20.0),
        GPyTorchKernel(chosen),
        GPyTorchKernel(scaled(0.5, chosen) + scaled(0.25, length(RQKernel(), 0.7))),
        GPyTorchKernel(length(PeriodicKernel(), 0.7)),
        GPyTorchKernel(length(RBFKernel(), 0.4), transform=lambda x: torch.sqrt(x)),
    ):
        kernels.check(kernel, X)
        values, slopes = kernels.cross_with_gradient(kernel, X, Z)
        assert np.abs(values - kernel(X, Z)).max() < 1e-12
        assert np.abs(slopes - kernels._differences(lambda P, k=kernel: k(P, Z), X)).max() < 1e-6
        bare = kernels._differences(lambda P, k=kernel: k.diag(P)[:, None], X)[:, 0, :]
        assert np.abs(kernels.diagonal_gradient(kernel, X) - bare).max() < 1e-6
    assert not GPyTorchKernel(polynomial).stationary
    options = GPyTorchKernel(CategoricalKernel().double())
    assert not options.with_gradient(np.round(X), np.round(Z))[1].any()


def test_kernels_in_parts(monkeypatch):
    from misspec.integrations import botorch

    rng = np.random.default_rng(0)
    X, Z = rng.random((70, 3)), rng.random((50, 3))
    kernel = GPyTorchKernel(length(MaternKernel(2.5), 0.4))
    whole, slopes = kernel(X, Z), kernel.with_gradient(X, Z)[1]
    monkeypatch.setattr(botorch, "MOST_NUMBERS", 500)
    assert np.array_equal(kernel(X, Z), whole)
    assert np.array_equal(kernel.with_gradient(X, Z)[1], slopes)


def test_a_kernel_is_kept_as_it_was():
    """Training goes on elsewhere; no graph is kept, nothing global changes, and two kernels are never one."""
    X = np.random.default_rng(0).random((5, 2))
    inner = length(RBFKernel(), 0.2)
    kernel = GPyTorchKernel(inner)
    before = kernel(X, X)
    inner.lengthscale = 3.0
    assert np.array_equal(kernel(X, X), before)
    assert not any(parameter.requires_grad for parameter in kernel._kernel.parameters())
    assert inner.raw_lengthscale.requires_grad
    twin = GPyTorchKernel(length(RBFKernel(), 0.2))
    assert kernel_key(kernel) == kernel_key(kernel)
    assert kernel_key(twin) != kernel_key(kernel)
    for other in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert np.array_equal(other(X, X), before)
        assert np.array_equal(other.with_gradient(X, X)[1], kernel.with_gradient(X, X)[1])
    X.flags.writeable = False
    with torch.no_grad():
        assert np.array_equal(kernel(X, X), before)
        assert np.abs(kernel.with_gradient(X, X)[1]).max() > 0
        assert not torch.is_grad_enabled()
    assert repr(GPyTorchKernel(scaled(2.0, RBFKernel()), amplitude=2.0)) == (
        "GPyTorchKernel(ScaleKernel(RBFKernel), amplitude=2)"
    )


def test_kernels_from_many_threads():
    """GPyTorch's settings are global, and its kernels change while they are evaluated."""
    from gpytorch import settings

    rng = np.random.default_rng(0)
    X, Z = rng.random((4, 3)), rng.random((5, 3))
    kernel = GPyTorchKernel(length(RBFKernel(active_dims=[0, 2], ard_num_dims=2), [[0.3, 0.5]]))
    values, (_, slopes) = kernel(X, Z), kernel.with_gradient(X, Z)
    start, wrong = threading.Barrier(4), []

    def work():
        start.wait()
        try:
            for _ in range(100):
                if not (np.array_equal(kernel(X, Z), values) and np.array_equal(kernel.with_gradient(X, Z)[1], slopes)):
                    wrong.append("values")
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(often)
    assert not wrong
    assert settings.lazily_evaluate_kernels.on()


def test_refused_kernels():
    domain = ms.Box([(0, 1)] * 2)
    large = GPyTorchKernel(scaled(4.0, length(RBFKernel(), 0.3)))
    with pytest.raises(ms.InvalidInput, match=r"has 4 at x = .*amplitude=4\) and multiply norm_bound by 2,"):
        ms.GPUCB(domain, ms.Model(large, norm_bound=1.0, noise=0.1))
    ms.GPUCB(domain, ms.Model(GPyTorchKernel(scaled(4.0), amplitude=4.0), norm_bound=2.0, noise=0.1))
    with pytest.raises(ms.InvalidInput, match=r"must be a kernel of GPyTorch.*got RBF"):
        GPyTorchKernel(RBF(0.2))
    with pytest.raises(ms.InvalidInput, match=r"no batch shape, got \(3,\)"):
        GPyTorchKernel(RBFKernel(batch_shape=torch.Size([3])))
    with pytest.raises(ms.InvalidInput, match="amplitude must be"):
        GPyTorchKernel(RBFKernel(), amplitude=0.0)
    with pytest.raises(ms.InvalidInput, match="length scales of an anisotropic kernel must match"):
        ms.GPUCB(domain, ms.Model(GPyTorchKernel(RBFKernel(ard_num_dims=3)), norm_bound=1.0, noise=0.1))
    doubled = GPyTorchKernel(RBFKernel(), transform=lambda x: torch.cat([x, x]))
    with pytest.raises(ms.InvalidInput, match="one point of one"):
        doubled(np.ones((2, 2)), np.ones((3, 2)))


@pytest.mark.parametrize("domain", [ms.Box([(0, 1), (-3, 4)]), ms.Box([(0, 1), (-3, 4)]).grid(9)])
def test_a_policy_chooses_the_same(domain, tmp_path):
    """As with scikit-learn's kernel; copied; saved, loaded and going on to the bit."""
    twins = Matern([0.4, 0.3], nu=2.5), GPyTorchKernel(length(MaternKernel(2.5, ard_num_dims=2), [[0.4, 0.3]]))
    policies = [ms.ECGPUCB(domain, ms.Model(k, norm_bound=2.0, noise=0.1), epsilon=0.1, width=2.0) for k in twins]
    rng = np.random.default_rng(0)

    def play(policies, rounds):
        for _ in range(rounds):
            queries = [policy.ask() for policy in policies]
            y = math.sin(3 * queries[0].x.sum()) + 0.1 * rng.standard_normal()
            for policy, query in zip(policies, queries, strict=True):
                assert np.abs(query.x - queries[0].x).max() < 1e-3
                assert query.upper == pytest.approx(queries[0].upper, abs=1e-6)
                policy.tell(query, y)

    play(policies, 8)
    policies[1].save(tmp_path / "policy.misspec")
    with pytest.raises(ms.StorageError, match="hand it in again"):
        ms.load(tmp_path / "policy.misspec")
    loaded = ms.load(tmp_path / "policy.misspec", kernel=twins[1])
    clone = copy.deepcopy(policies[1])
    play([policies[1], loaded, clone], 3)
    assert loaded.state() == policies[1].state()
    assert np.array_equal(loaded.recommend().x, policies[1].recommend().x)


# -- models ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["finite", "box", "grid", "unit"])
def test_model_of_has_the_same_posterior(kind):
    X, y = raw(20)
    box = ms.Box([(-5, 5), (100, 400)])
    points = box.encode(X) if kind == "unit" else X
    transform = None if kind == "unit" else Normalize(2)
    gp = SingleTaskGP(
        tensor(points),
        tensor(y)[:, None],
        input_transform=transform,
        covar_module=scaled(1.7),
        mean_module=constant(0.4),
    )
    gp.likelihood.noise = 0.02
    P = raw(30, 7)[0]
    domain = {"finite": ms.Finite(P), "grid": box.grid(5)}.get(kind, box)
    model = model_of(gp, domain=None if kind in ("finite", "unit") else domain)
    assert model.fitted
    stdv, mean = float(gp.outcome_transform.stdvs), float(gp.outcome_transform.means)
    assert model.scale == pytest.approx(stdv * math.sqrt(1.7))
    assert model.noise == pytest.approx(stdv * math.sqrt(0.02))
    assert model.regularization == pytest.approx((model.noise / model.scale) ** 2)
    assert model.offset == pytest.approx(mean + 0.4 * stdv)

    at_points = box.encode(P) if kind == "unit" else P
    with torch.no_grad():
        K = gp.covar_module(gp.transform_inputs(tensor(at_points))).to_dense().numpy()
    encoded = domain.encode(P)
    assert np.abs(1.7 * model.kernel(encoded, encoded) - K).max() < 1e-12

    if kind == "grid":  # results are told at candidates only
        return
    where = ms.Finite(np.concatenate([P, X])) if kind == "finite" else box
    policy = ms.ECGPUCB(where, model, epsilon=3.0, grounded=False)
    policy.observe(X, y)
    with torch.no_grad():
        posterior = gp.posterior(tensor(at_points))
    means, stds = policy.posterior.at(P)
    assert np.abs(means - posterior.mean[:, 0].numpy()).max() < 1e-6 * stdv
    assert np.abs(model.scale * stds - posterior.variance[:, 0].sqrt().numpy()).max() < 1e-6 * stdv

    query = policy.ask(actions=P[:1])
    multiplier = multiplier_of(gp, model.norm_bound)
    assert multiplier * model.scale == pytest.approx(query.multiplier, rel=1e-9)
    assert multiplier_of(gp, 5.0, width=1.7) == pytest.approx(1.7)
    for enlargement in ENLARGEMENTS:
        there = ms.ECGPUCB(where, model, epsilon=3.0, grounded=False, enlargement=enlargement)
        there.observe(X, y)
        acquisition = EnlargedUpperConfidenceBound(gp, multiplier, 3.0, enlargement)
        upper = there.ask(actions=P[:1]).upper
        assert acquisition(tensor(at_points[:1])).item() == pytest.approx(upper, abs=1e-6 * stdv)


def test_norm_of_a_fit_is_that_of_from_data():
    """The same kernel, noise and offset: the norm of the fitted mean, by the coefficients of the mean."""
    X, y = raw(20)
    gp = SingleTaskGP(tensor(X), tensor(y)[:, None], input_transform=Normalize(2), covar_module=scaled(1.7))
    gp.likelihood.noise = 0.02
    model = model_of(gp)
    K = model.kernel(X, X)
    coefficients = np.linalg.solve(K + model.regularization * np.eye(len(X)), y - model.offset)
    assert model.norm_bound == pytest.approx(max(model.scale, math.sqrt(coefficients @ K @ coefficients)), rel=1e-8)
    known = model_of(gp, 7.0, noise=1.0, delta=0.2)
    assert (known.norm_bound, known.noise, known.delta) == (7.0, 1.0, 0.2)
    assert known.regularization == model.regularization  # the posterior stays the model's


def test_models_that_have_no_model():
    X, y = raw()
    points, Y = tensor(X), tensor(y)[:, None]
    transform = Normalize(2)
    with pytest.raises(ms.InvalidInput, match="one noise for all results, got variances from"):
        model_of(make("noise varies")[0])
    with pytest.raises(ms.InvalidInput, match="constant prior mean, got LinearMean"):
        model_of(make("linear mean")[0])
    with pytest.raises(ms.InvalidInput, match=r"must be a SingleTaskGP with one output.*EnsembleMapSaas"):
        model_of(make("several")[0])
    with pytest.raises(ms.InvalidInput, match="must be a SingleTaskGP with one output"):
        multiplier_of(SingleTaskGP(points, torch.cat([Y, Y], dim=-1), input_transform=transform), 1.0)
    with pytest.raises(ms.InvalidInput, match=r"domain must be a Box.*got Space.*leave domain out"):
        model_of(make("normalised")[0], domain=ms.Space({"a": ms.Float(0, 1), "b": ms.Int(1, 3)}))
    with pytest.raises(ms.InvalidInput, match=r"norm_bound \(B\)"):
        multiplier_of(make("normalised")[0], -1.0)


def test_without_botorch(monkeypatch):
    from misspec.integrations import botorch

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'misspec\[botorch\]'"):
        runpy.run_path(botorch.__file__)
