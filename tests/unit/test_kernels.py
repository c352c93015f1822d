import numpy as np
import pytest
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

import misspec as ms
from misspec import kernels
from misspec.errors import InvalidInput

ANALYTIC = [
    RBF(0.4),
    RBF([0.4, 0.7, 1.1]),
    Matern(0.4, nu=0.5),
    Matern(0.4, nu=1.5),
    Matern([0.4, 0.7, 1.1], nu=2.5),
    Matern(0.4, nu=0.8),
    Matern(0.4, nu=3.7),
    Matern(0.4, nu=np.inf),
    DotProduct(sigma_0=0),
    ConstantKernel(0.3) * RBF(0.4) + DotProduct(sigma_0=0.5),
    RBF(0.4) * Matern([0.4, 0.7, 1.1], nu=1.5),
]


class Custom:
    """A kernel of no library: k(x, z) = exp(−‖x − z‖₁)."""

    def __call__(self, X, Z):
        return np.exp(-np.abs(X[:, None, :] - Z[None, :, :]).sum(axis=2))

    def diag(self, X):
        return np.ones(len(X))

    def __repr__(self):
        return "Custom()"


def numerical(kernel, X, Z, step=1e-6):
    slopes = np.empty((len(X), len(Z), X.shape[1]))
    for j in range(X.shape[1]):
        move = np.zeros(X.shape[1])
        move[j] = step
        slopes[:, :, j] = (kernel(X + move, Z) - kernel(X - move, Z)) / (2 * step)
    return slopes


def gradient(kernel, X, Z):
    return kernels.cross_with_gradient(kernel, X, Z)[1]


@pytest.mark.parametrize("kernel", ANALYTIC, ids=str)
def test_gradient(kernel):
    rng = np.random.default_rng(0)
    X, Z = rng.random((5, 3)), rng.random((4, 3))
    np.testing.assert_allclose(gradient(kernel, X, Z), numerical(kernel, X, Z), atol=1e-7)
    diag = numerical(lambda P, _: kernel.diag(P)[:, None], X, Z[:1])[:, 0]
    np.testing.assert_allclose(kernels.diagonal_gradient(kernel, X), diag, atol=1e-7)


@pytest.mark.parametrize("kernel", [Custom(), RationalQuadratic(0.4), ExpSineSquared(1.0, 0.7) + RBF(0.4)], ids=str)
def test_gradient_by_differences(kernel):
    rng = np.random.default_rng(0)
    X, Z = rng.random((5, 3)), rng.random((4, 3))
    np.testing.assert_allclose(gradient(kernel, X, Z), numerical(kernel, X, Z), atol=1e-6)


def test_gradient_at_the_point_itself():
    X = np.zeros((1, 2))
    for kernel in (RBF(0.3), Matern(0.3, nu=0.5), Matern(0.3, nu=0.8), Matern(0.3, nu=1.5), Matern(0.3, nu=1.9)):
        np.testing.assert_array_equal(gradient(kernel, X, X), np.zeros((1, 1, 2)))


def test_subclasses_are_not_mistaken_for_their_parents():
    class Odd(RBF):
        def __call__(self, X, Y=None, eval_gradient=False):
            return 0.5 * super().__call__(X, Y, eval_gradient)

        def diag(self, X):
            return 0.5 * super().diag(X)

    X, Z = np.random.default_rng(0).random((3, 2)), np.random.default_rng(1).random((4, 2))
    np.testing.assert_allclose(gradient(Odd(0.3), X, Z), 0.5 * gradient(RBF(0.3), X, Z), atol=1e-8)


@pytest.mark.parametrize("N", [300, 4100])
def test_features_reproduce_the_gram_matrix(N):
    X = np.random.default_rng(0).random((N, 1))
    Phi, residual = kernels.features(RBF(0.2), X)
    assert Phi.shape[1] < 40
    assert residual.max() <= 1e-10
    rows = slice(0, N, 7)
    np.testing.assert_allclose(Phi[rows] @ Phi[rows].T, RBF(0.2)(X[rows], X[rows].copy()), atol=1e-9)


def test_anything_with_call_and_diag_is_a_kernel():
    X = np.random.default_rng(0).random((30, 2))
    posterior = ms.posterior.Tracked(ms.Model(Custom(), norm_bound=1.0, noise=0.1), ms.Finite(X))
    posterior.observe_index([0, 1, 0], [1.0, 2.0, 3.0])
    K = Custom()(X[[0, 1, 0]], X[[0, 1, 0]]) + 0.01 * np.eye(3)
    np.testing.assert_allclose(posterior.mean, Custom()(X, X[[0, 1, 0]]) @ np.linalg.solve(K, [1, 2, 3]), atol=1e-9)


def fails(values=None, diag=None):
    class Broken(Custom):
        def __call__(self, X, Z):
            K = super().__call__(X, Z)
            return K if values is None else values(K, X, Z)

        def diag(self, X):
            return super().diag(X) if diag is None else diag(X)

    return Broken()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (2.0 * RBF(0.2), r"largest is 2.*scale the inputs or the kernel \(ConstantKernel\(0.5\).*norm_bound by 1.41"),
        (DotProduct(sigma_0=1), "k.x,x. must be at most 1"),
        (RBF([0.1, 0.2, 0.3]), "length scales .* must match the dimension"),
        (RBF(0.2) + WhiteKernel(0.1), "noise belongs in Model"),
        (fails(lambda K, X, Z: K * np.nan), "not finite"),
        (fails(lambda K, X, Z: K + 0.1 * X[:, :1]), "not symmetric"),
        (fails(lambda K, X, Z: K[:, :1]), "must return shape"),
        (fails(diag=lambda X: 0.5 * np.ones(len(X))), "different from diag"),
        (fails(diag=lambda X: -np.ones(len(X))), "finite diagonal"),
        (fails(diag=lambda X: np.full(len(X), np.inf)), "finite diagonal"),
        (fails(lambda K, X, Z: 1.0 - np.abs(X[:, None, 0] - Z[None, :, 0]) * 5), "not positive semidefinite"),
        (fails(lambda K, X, Z: 1 / 0), "ZeroDivisionError"),
    ],
)
def test_unusable_kernels(kernel, message):
    domain = ms.Finite(np.random.default_rng(0).random((20, 2)))
    with pytest.raises(InvalidInput, match=message):
        ms.posterior.Tracked(ms.Model(kernel, norm_bound=1.0, noise=0.1), domain)


def test_boxes_are_checked_at_their_corners():
    box = ms.Box([(-1, 1), (-1, 1)])
    ms.posterior.Posterior(ms.Model(0.5 * DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1), box)
    with pytest.raises(InvalidInput, match="largest is 2 "):
        ms.posterior.Posterior(ms.Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1), box)


@pytest.mark.parametrize("kernel", [None, "rbf", RBF, 3])
def test_things_that_are_no_kernels(kernel):
    with pytest.raises(InvalidInput, match="kernel must have"):
        ms.Model(kernel, norm_bound=1.0, noise=0.1)


ODD = {
    "raises": lambda X, Z: 1 / 0,
    "nothing": lambda X, Z: None,
    "NaN": lambda X, Z: np.full((len(X), len(Z)), np.nan),
    "too few": lambda X, Z: np.ones(len(X)),
    "complex": lambda X, Z: np.ones((len(X), len(Z)), dtype=complex),
    "text": lambda X, Z: np.full((len(X), len(Z)), "a"),
    "too large": lambda X, Z: np.full((len(X), len(Z)), 1e200),
}


@pytest.mark.parametrize("returned", ODD.values(), ids=ODD)
def test_a_kernel_that_goes_wrong_is_an_error_of_ours_and_changes_nothing(returned):
    class Odd(RBF):
        wrong = False

        def __call__(self, X, Z=None, eval_gradient=False):
            return returned(X, X if Z is None else Z) if Odd.wrong else super().__call__(X, Z, eval_gradient)

    model = ms.Model(Odd(0.3), norm_bound=1.0, noise=0.1)
    policy = ms.ECGPUCB(ms.Box([(0, 1)]), model, epsilon=0.1)
    policy.tell(policy.ask(), 0.3)
    query, Odd.wrong = policy.ask(), True
    before = policy.state()
    with pytest.raises(ms.MisspecError):
        policy.ask()
    with pytest.raises(ms.MisspecError):
        ms.ECGPUCB(ms.Box([(0, 1)]), model, epsilon=0.1)
    Odd.wrong = False
    assert policy.state() == before
    policy.tell(query, 0.2)
    assert policy.t == 2
