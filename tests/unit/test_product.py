"""The product kernel: against a plain transcription, its gradient, its columns, and that it is stored and restored."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import Matern

import misspec as ms
from misspec import kernels
from misspec.encoding import decode_kernel, encode_kernel, kernel_from_table, kernel_key
from misspec.errors import InvalidInput, StorageError
from misspec.product import ProductMatern, product_kernel

SPACE = ms.Space({"rate": ms.Float(1e-4, 1e-1, log=True), "depth": ms.Int(1, 9), "kind": ms.Choice(["a", "b", "c"])})
COLUMNS = [(0, 1), (1, 2), (2, 5)]
KERNELS = [
    ProductMatern([0.4, 0.9, 0.7], COLUMNS),
    ProductMatern([0.4, 0.9, 0.7], COLUMNS, additive=0.3),
    ProductMatern([0.4, 0.9, 0.7], COLUMNS, additive=1.0),
    ProductMatern([0.2, 0.3, 0.5, 0.7, 1.1], additive=0.5),
]


def kappa(r):
    s = np.sqrt(5) * r
    return (1 + s + s**2 / 3) * np.exp(-s)


def transcribed(kernel, x, z):
    """k(x, z) from its definition, one pair of points at a time."""
    factors = [
        kappa(np.sqrt(sum((x[i] - z[i]) ** 2 for i in range(start, stop))) / scale)
        for (start, stop), scale in zip(kernel.columns, kernel.length_scale, strict=True)
    ]
    return (1 - kernel.additive) * np.prod(factors) + kernel.additive * np.mean(factors)


def legal(rng, n):
    """Points of the space as kernels see them."""
    return SPACE.encode(np.concatenate([SPACE.draw(rng) for _ in range(n)]))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_it_is_its_definition(kernel):
    rng = np.random.default_rng(0)
    for X, Z in ((rng.random((6, 5)), rng.random((4, 5))), (legal(rng, 6), legal(rng, 5))):
        expected = [[transcribed(kernel, x, z) for z in Z] for x in X]
        np.testing.assert_allclose(kernel(X, Z), expected, rtol=1e-12)
        np.testing.assert_allclose(kernel.with_gradient(X, Z)[0], expected, rtol=1e-12)
        np.testing.assert_allclose(np.diag(kernel(X, X.copy())), 1.0, rtol=1e-15)
        np.testing.assert_array_equal(kernel.diag(X), np.ones(len(X)))


def test_in_one_dimension_it_is_the_matern_kernel_of_scikit_learn():
    X = np.linspace(-2, 3, 20)[:, None]
    for additive in (0.0, 0.4):
        np.testing.assert_allclose(ProductMatern(0.6, additive=additive)(X, X), Matern(0.6, nu=2.5)(X), atol=1e-14)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_gradients_are_those_of_central_differences(kernel):
    rng = np.random.default_rng(1)
    X, Z, step = rng.random((5, 5)), rng.random((4, 5)), 1e-5
    Z[0] = X[0]  # coinciding
    Z[1, 2:] = X[1, 2:]  # coinciding in one parameter
    slopes = np.empty((len(X), len(Z), 5))
    for j, move in enumerate(step * np.eye(5)):
        slopes[:, :, j] = (kernel(X + move, Z) - kernel(X - move, Z)) / (2 * step)
    values, gradient = kernel.with_gradient(X, Z)
    np.testing.assert_allclose(gradient, slopes, atol=1e-8)
    np.testing.assert_array_equal(gradient[0, 0], np.zeros(5))
    np.testing.assert_allclose(kernels.cross_with_gradient(kernel, X, Z)[1], gradient)
    np.testing.assert_allclose(kernels.cross_with_gradient(kernel, X, Z)[0], values)
    np.testing.assert_array_equal(kernels.diagonal_gradient(kernel, X), np.zeros_like(X))


@pytest.mark.parametrize("additive", [0.0, 0.2])
@pytest.mark.parametrize("far", [30.0, 800.0, 1e5, 1e150])
def test_points_so_far_apart_that_the_kernel_vanishes(far, additive):
    """Nothing is NaN or warned of where exponentials underflow (warnings are errors here)."""
    kernel = ProductMatern([0.01, 1.0], additive=additive)
    X, Z = np.array([[0.0, 0.0], [0.3, 0.1]]), np.array([[far, 0.0], [0.3, 0.1]])
    values, gradient = kernel.with_gradient(X, Z)
    assert np.isfinite(values).all()
    assert np.isfinite(gradient).all()
    np.testing.assert_allclose(kernel(X, Z), values, atol=1e-300)
    assert values[1, 1] == 1.0
    assert values[0, 0] == pytest.approx(additive / 2, abs=1e-12)


@given(st.integers(0, 10**6), st.floats(0, 1), st.floats(-3, 3), st.booleans())
def test_it_is_positive_semidefinite(seed, additive, log_scale, mixed):
    rng = np.random.default_rng(seed)
    X = legal(rng, 25) if mixed else rng.standard_normal((25, 5))
    kernel = ProductMatern(np.exp(log_scale + rng.standard_normal(3)), COLUMNS, additive)
    K = kernel(X, X)
    np.testing.assert_allclose(K, K.T, atol=1e-14)
    assert np.linalg.eigvalsh(K).min() > -1e-12
    assert K.max() <= 1 + 1e-15
    assert K.min() >= 0


def test_a_kernel_for_a_domain():
    kernel = product_kernel(SPACE, 0.4, additive=0.1)
    assert kernel.columns == tuple(COLUMNS)
    np.testing.assert_array_equal(kernel.length_scale, [0.4, 0.4, 0.4])
    assert kernel.additive == 0.1
    options = product_kernel(SPACE, [0.1, 0.2, 0.3, 0.4, 0.5], per="choice")
    assert options.columns == ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5))
    # per parameter all options are equally far; per choice those with long scales are more alike
    X = SPACE.encode([{"rate": 1e-2, "depth": 3, "kind": kind} for kind in "abc"])
    K = kernel(X, X)
    assert K[0, 1] == pytest.approx(K[0, 2]) == pytest.approx(K[1, 2])
    K = options(X, X)
    assert K[0, 1] < K[0, 2] < K[1, 2]
    assert product_kernel(ms.Box([(0, 1), (3, 9)])).columns == ((0, 1), (1, 2))
    table = ms.Finite.from_table({"heat": [1.0, 2.0, 3.0], "acid": ["a", "b", "c"]})
    assert product_kernel(table).columns == ((0, 1), (1, 4))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ProductMatern([0.5, 0.0]), r"length scales must be above 0, got 0"),
        (lambda: ProductMatern([0.5, -1.0]), r"length scales must be above 0, got -1"),
        (lambda: ProductMatern([0.5, np.nan]), r"length_scale must be finite"),
        (lambda: ProductMatern([[0.5]]), r"length_scale must be a list of numbers, got shape \(1, 1\)"),
        (lambda: ProductMatern("long"), r"length_scale must be numbers, got 'long'"),
        (lambda: ProductMatern([]), r"length_scale must hold at least one number"),
        (lambda: ProductMatern([0.5], [(0, 1), (1, 2)]), r"one length scale per parameter, 2 of them, got 1"),
        (lambda: ProductMatern([0.5], [(1, 1)]), r"columns must be pairs \(first, after the last\).*got \(1, 1\)"),
        (lambda: ProductMatern([0.5], [(-1, 1)]), r"columns must be pairs.*got \(-1, 1\)"),
        (lambda: ProductMatern([0.5], [3]), r"columns must be pairs.*got 3"),
        (lambda: ProductMatern([0.5], [("a", "b")]), r"columns must be pairs.*got \('a', 'b'\)"),
        (lambda: ProductMatern([0.5, 1.0], [(0, 2), (1, 3)]), r"columns .* belong to one parameter each"),
        (lambda: ProductMatern([0.5], additive=1.5), r"additive is a share, at most 1, got 1.5"),
        (lambda: ProductMatern([0.5], additive=-0.5), r"additive must be a finite number ≥ 0, got -0.5"),
        (lambda: product_kernel(SPACE, per="option"), r"per must be one of parameter, choice, got 'option'"),
        (lambda: product_kernel(SPACE, [0.5, 0.5]), r"one length scale per parameter, 3 of them, got 2"),
    ],
)  # fmt: skip
def test_errors_say_what_was_expected(make, says):
    with pytest.raises(InvalidInput, match=says):
        make()


def test_a_kernel_of_another_dimension_is_refused_by_the_policy():
    for scales in ([0.5], [0.5] * 3):
        with pytest.raises(InvalidInput, match=rf"for {len(scales)} column.* dimension 2"):
            ms.GPUCB(ms.Box([(0, 1)] * 2), ms.Model(ProductMatern(scales), norm_bound=1.0, noise=0.1))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_it_comes_back_from_json(kernel):
    back = decode_kernel(json.loads(json.dumps(encode_kernel(kernel))), None)
    assert type(back) is ProductMatern
    np.testing.assert_array_equal(back.length_scale, kernel.length_scale)
    assert back.columns == kernel.columns
    assert all(type(end) is int for pair in back.columns for end in pair)
    assert back.additive == kernel.additive
    assert kernel_key(back) == kernel_key(kernel)
    X = np.random.default_rng(2).random((7, 5))
    np.testing.assert_array_equal(back(X, X), kernel(X, X))


def test_it_can_be_written_in_a_file():
    kernel = kernel_from_table({"name": "ProductMatern", "length_scale": [0.5, 0.2], "additive": 0.0})
    assert kernel.columns == ((0, 1), (1, 2))
    with pytest.raises(InvalidInput, match="has no argument 'lengthscale'; did you mean 'length_scale'"):
        kernel_from_table({"name": "ProductMatern", "lengthscale": 0.5})
    with pytest.raises(StorageError, match="one length scale per parameter"):
        parameters = {"length_scale": [0.5], "columns": [[0, 1], [1, 2]]}
        decode_kernel({"name": "ProductMatern", "parameters": parameters}, None)


@pytest.mark.parametrize("domain", [SPACE, SPACE.cover(30)], ids=["space", "its cover"])
def test_a_policy_with_it_continues_to_the_bit(domain, tmp_path):
    model = ms.Model(product_kernel(domain, [0.3, 0.5, 0.8], additive=0.2), norm_bound=2.0, noise=0.1)
    policy = ms.GPUCB(domain, model)
    for t in range(5):
        query = policy.ask()
        policy.tell(query, np.sin(t) + query.params["depth"] / 9 if query.params else np.sin(t))
    policy.ask(2)
    policy.save(tmp_path / "policy.misspec")
    twins = ms.restore(json.loads(json.dumps(policy.state()))), ms.load(tmp_path / "policy.misspec")
    for twin in twins:
        assert twin.state() == policy.state()
        assert twin.model.kernel.columns == tuple(COLUMNS)
    expected = policy.ask()
    for twin in twins:
        found = twin.ask()
        np.testing.assert_array_equal(found.x, expected.x)
        assert (found.mean, found.std) == (expected.mean, expected.std)
        assert twin.state() == policy.state()


def test_it_can_be_copied_and_nobody_changes_it():
    kernel = KERNELS[1]
    with pytest.raises(ValueError, match="read-only"):
        kernel.length_scale[0] = 3.0
    scales = np.array([0.5, 0.5])
    made = ProductMatern(scales)
    scales[0] = 9.0
    assert made.length_scale[0] == 0.5
    assert repr(kernel) == "ProductMatern([0.4, 0.9, 0.7], additive=0.3)"
    assert ProductMatern(**kernel.get_params()).columns == kernel.columns


def test_distances_do_not_depend_on_where_points_lie():
    kernel = ms.product.ProductMatern([1.0], [(0, 2)])
    near, far = (kernel(np.array([[at, 0.0]]), np.array([[at + 1.0, 0.0]]))[0, 0] for at in (0.0, 1e8))
    assert near == far
