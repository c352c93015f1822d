"""Whatever is wrong with an observation, the posterior is left as it was."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct

import misspec as ms
from misspec.errors import InvalidInput, MisspecError


def snapshot(posterior):
    probe = np.array([[0.1, 0.2], [0.7, 0.3]])
    return [
        posterior.t,
        posterior.distinct,
        posterior.rank,
        posterior.log_det,
        posterior.pending,
        *(a.copy() for a in (posterior.mean, posterior.variance, posterior.pending_variance)),
        *posterior.at(probe),
    ]


def check_unchanged(before, posterior):
    for old, new in zip(before, snapshot(posterior), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.fixture(params=[False, True], ids=["plain", "weights"])
def posterior(request):
    rng = np.random.default_rng(0)
    tracked = ms.Tracked(ms.Model(RBF(0.2), 1.0, 0.1), ms.Finite(rng.random((20, 2))), weights=request.param)
    tracked.observe_index([0, 1, 2, 1], [0.1, 0.2, 0.3, 0.4])
    tracked.hallucinate_index([5])
    return tracked


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.observe_index(0, np.nan), "observations must be finite, got nan"),
        (lambda p: p.observe_index(0, np.inf), "observations must be finite, got inf"),
        (lambda p: p.observe_index([3, 4], [1.0, np.nan]), "got nan at position 1"),
        (lambda p: p.observe_index([3, 4], [1.0]), "2 numbers in a list"),
        (lambda p: p.observe_index([3, 99], [1.0, 2.0]), "got 99 at position 1"),
        (lambda p: p.observe_index(-1, 1.0), "got -1 at position 0"),
        (lambda p: p.observe_index(1.5, 1.0), "whole numbers in a list, got 1.5"),
        (lambda p: p.observe_index(0, "high"), "observations must be numbers, got 'high'"),
        (lambda p: p.observe([[0.5, np.nan]], [1.0]), r"points must be finite, got nan at position \(0, 1\)"),
        (lambda p: p.observe([[0.5, 0.5], [np.inf, 0]], [1.0, 2.0]), r"got inf at position \(1, 0\)"),
        (lambda p: p.observe([[0.5]], [1.0]), r"2 column\(s\), one per dimension"),
        (lambda p: p.observe([0.5, 0.5], [1.0]), r"shape \(n, d\), got \(2,\)"),
        (lambda p: p.observe([[0.5, 0.5]], [[1.0]]), "ravel"),
        (lambda p: p.observe([[0.5, 0.5]], [1.0, 2.0]), "must be one number"),
        (lambda p: p.hallucinate([[0.5, np.nan]]), "points must be finite"),
        (lambda p: p.hallucinate_index(20), "got 20 at position 0"),
        (lambda p: p.fulfil_index(5, np.nan), "observation must be finite"),
        (lambda p: p.fulfil_index(6, 1.0), "only a point that is hallucinated"),
        (lambda p: p.release([[0.3, 0.3]]), "only a point that is hallucinated"),
        (lambda p: p.at([[np.nan, 0.0]]), "points must be finite"),
        (lambda p: p.at([[1.0, 2.0, 3.0]]), r"2 column\(s\)"),
        (lambda p: p.weights_at([[1.0]]), r"2 column\(s\)"),
    ],
)
def test_refused_without_a_trace(posterior, call, message):
    before = snapshot(posterior)
    with pytest.raises(InvalidInput, match=message) as caught:
        call(posterior)
    assert isinstance(caught.value, MisspecError)
    assert isinstance(caught.value, ValueError)
    check_unchanged(before, posterior)


def test_points_where_the_kernel_is_too_large():
    domain = ms.Finite(np.random.default_rng(0).random((20, 2)) / 2)
    posterior = ms.Tracked(ms.Model(DotProduct(sigma_0=0), 1.0, 0.1), domain)
    before = snapshot(posterior)
    with pytest.raises(InvalidInput, match="at most 1 on the points observed"):
        posterior.observe([[0.5, 0.5], [3.0, 3.0]], [1.0, 2.0])
    check_unchanged(before, posterior)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize(("points", "fail_at"), [([7], 1), ([7, 8, 9], 1), ([7, 8, 9], 2)])
def test_a_kernel_that_fails_later(weights, points, fail_at):
    """Kernel values go bad at a call that tries the columns of new points: no later one sees a new point."""

    class Moody:
        left = 10**9

        def __call__(self, X, Z):
            self.left -= 1
            return RBF(0.2)(X, Z) * (np.nan if self.left == 0 else 1.0)

        def diag(self, X):
            return np.ones(len(X))

    kernel = Moody()
    posterior = ms.Tracked(
        ms.Model(kernel, 1.0, 0.1), ms.Finite(np.random.default_rng(0).random((20, 2))), weights=weights
    )
    posterior.observe_index([0, 1], [1.0, 2.0])
    before = snapshot(posterior)
    kernel.left = fail_at
    with pytest.raises(InvalidInput, match="not finite"):
        posterior.observe_index(points, [3.0 + i for i in range(len(points))])
    kernel.left = 10**9
    check_unchanged(before, posterior)


def test_a_kernel_that_is_not_semidefinite_is_found_out():
    class Indefinite:
        """Fine where it is sampled, wrong at one candidate."""

        def __call__(self, X, Z):
            K = RBF(0.2)(X, Z)
            odd = (X[:, :1] > 0.9) != (Z[:, 0] > 0.9)
            return np.where(odd, 1.0, K)

        def diag(self, X):
            return np.ones(len(X))

    X = np.linspace(0, 1, 30)[:, None]
    posterior = ms.Tracked(ms.Model(Indefinite(), 1.0, 0.1), ms.Finite(X), check=False)
    with pytest.raises(ms.MisspecError, match="not positive semidefinite"):
        for i in range(30):
            posterior.observe_index(i, 0.0)
