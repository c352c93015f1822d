"""What the learner believes: models, kernels, fits, and what is computed of them."""

import numpy as np
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

import misspec as ms
from hostile import attempt, calls, fuzz, hostile, hostile_numbers, hostile_objects, spoilt, works

POINTS = np.linspace(0.0, 1.0, 4)[:, None]
LIST = ms.Finite(POINTS)
BOX = ms.Box([(0, 1)])
MODEL = ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1)
VALUES = [0.1, 0.3, 0.2, 0.0]
SETTINGS = {
    "kernel": RBF(0.3), "norm_bound": 1.0, "noise": 0.1, "regularization": 0.01, "delta": 0.1, "offset": 0.0,
    "scale": 1.0, "fitted": False,
}  # fmt: skip
ENTRIES = {
    "from_data": (
        ms.Model.from_data,
        {
            "points": POINTS, "observations": VALUES, "kernel": RBF(0.3, "fixed"), "delta": 0.1, "domain": BOX,
            "noise": 0.1,
        },
    ),
    "information_gain": (ms.information_gain, {"domain": LIST, "model": MODEL, "horizon": 5}),
    "up_to": (ms.information_gain(LIST, MODEL, 5).up_to, {"t": 3}),
    "at": (ms.information_gain(LIST, MODEL, 5).at, {"t": 8}),
    "best_in_class": (ms.best_in_class, {"domain": LIST, "model": MODEL, "values": VALUES}),
    "profile": (
        ms.misspecification_profile,
        {"domain": LIST, "model": MODEL, "values": VALUES, "norm_bounds": [0.5, 1.0]},
    ),
    "diagnose": (
        ms.diagnose,
        {
            "points": POINTS, "observations": VALUES, "model": MODEL, "domain": BOX, "fixed_design": False,
            "time_order": False,
        },
    ),
    "noise_from_repeats": (ms.noise_from_repeats, {"points": [[0.0]] * 7, "observations": np.arange(7.0)}),
    "ProductMatern": (
        ms.product.ProductMatern,
        {"length_scale": [0.5, 1.0], "columns": [(0, 1), (1, 3)], "additive": 0.1},
    ),
    "product_kernel": (ms.product_kernel, {"domain": BOX, "length_scale": 0.5, "per": "parameter", "additive": 0.0}),
    "Posterior": (
        ms.posterior.Posterior,
        {"model": MODEL, "domain": BOX, "weights": False, "budget": 3, "check": True},
    ),
    "Tracked": (ms.posterior.Tracked, {"model": MODEL, "domain": LIST, "weights": False, "budget": 3, "check": True}),
}  # fmt: skip


def played(model, domain=LIST):
    """A model that was accepted must do for a policy, whatever its constants."""
    policy = ms.ECGPUCB(domain, model, epsilon=0.1)
    for _ in range(2):
        policy.tell(policy.ask(), 0.3)
    band = policy.band()
    assert not np.isnan(band.lower).any()
    assert not np.isnan(band.upper).any()
    return policy.recommend()


def test_every_entry_works():
    works(ENTRIES)
    assert played(ms.Model(**SETTINGS)).index is not None


@fuzz(300, arguments=spoilt(SETTINGS))
def test_a_model_is_refused_or_can_be_played(arguments):
    attempt(lambda: played(ms.Model(**arguments)))


@fuzz(400, call=calls(ENTRIES))
def test_what_is_computed_of_a_model(call):
    function, arguments = call
    attempt(lambda: function(**arguments))


class Odd:
    """A kernel that fails, or returns what is no matrix of numbers, after it has worked for a while."""

    def __init__(self, after, returned, diagonal):
        self.left, self.returned, self.diagonal = after, returned, diagonal

    def __call__(self, X, Z):
        return self._answer(RBF(0.3)(X, Z), self.returned)

    def diag(self, X):
        return self._answer(np.ones(len(X)), self.diagonal)

    def _answer(self, right, instead):
        self.left -= 1
        if self.left >= 0 or instead is right:
            return right
        if isinstance(instead, type) and issubclass(instead, BaseException):
            raise instead("the kernel's own")
        return instead


answers = st.one_of(hostile, st.sampled_from([ZeroDivisionError, KeyError, RuntimeError]))


@fuzz(200, after=st.integers(0, 30), returned=answers, diagonal=answers, grid=st.booleans())
def test_kernels_that_fail_now_or_later(after, returned, diagonal, grid):
    kernel = Odd(after, returned, diagonal)
    policy = attempt(
        lambda: ms.ECGPUCB(LIST if grid else BOX.cover(4), ms.Model(kernel, norm_bound=1.0, noise=0.1), epsilon=0.1)
    )
    for _ in range(3):
        before = None if policy is None else (policy.t, len(policy.pending))
        if policy is not None and attempt(lambda: policy.tell(policy.ask(), 0.3) or True) is None:
            kernel.left = 10**9  # it is repaired, and everything goes on from where it was
            assert policy.t == before[0]
            policy.tell(policy.ask(), 0.3)
            assert policy.t == before[0] + 1
            return


@fuzz(
    200,
    scale=hostile_numbers,
    kind=st.sampled_from([RBF, Matern, ConstantKernel, DotProduct, lambda scale: RBF([1.0, scale])]),
)
def test_kernels_of_odd_parameters(scale, kind):
    attempt(lambda: played(ms.Model(kind(scale), norm_bound=1.0, noise=0.1)))


@fuzz(25, values=st.lists(hostile_numbers, min_size=4, max_size=4), others=hostile_objects)
def test_truths_and_data_of_odd_sizes(values, others):
    attempt(lambda: ms.best_in_class(LIST, MODEL, values))
    attempt(lambda: ms.diagnose(POINTS, values, MODEL))
    attempt(lambda: ms.Model.from_data(POINTS, values, kernel=RBF(0.3, "fixed")))
    attempt(lambda: ms.information_gain(others, MODEL, 3))
    attempt(lambda: ms.information_gain(LIST, others, 3))
