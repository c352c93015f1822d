"""Whatever is wrong with an observation, the posterior is left as it was."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
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
    tracked = ms.posterior.Tracked(
        ms.Model(RBF(0.2), norm_bound=1.0, noise=0.1), ms.Finite(rng.random((20, 2))), weights=request.param
    )
    tracked.observe_index([0, 1, 2, 1], [0.1, 0.2, 0.3, 0.4])
    tracked.expect(tracked.domain.encoded[[5]])
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
        (lambda p: p.observe_index(20, 1.0), "got 20 at position 0"),
        (lambda p: p.add(p.domain.encoded[[6]], 1.0, expected=True), "only a point that is pending"),
        (lambda p: p.release(np.array([[0.3, 0.3]])), "only a point that is pending"),
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
    posterior = ms.posterior.Tracked(ms.Model(DotProduct(sigma_0=0), norm_bound=1.0, noise=0.1), domain)
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
    posterior = ms.posterior.Tracked(
        ms.Model(kernel, norm_bound=1.0, noise=0.1),
        ms.Finite(np.random.default_rng(0).random((20, 2))),
        weights=weights,
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
    posterior = ms.posterior.Tracked(ms.Model(Indefinite(), norm_bound=1.0, noise=0.1), ms.Finite(X), check=False)
    with pytest.raises(ms.MisspecError, match="not positive semidefinite"):
        for i in range(30):
            posterior.observe_index(i, 0.0)


# -- arrays that only look like numbers ---------------------------------------------------------------------------

HIDDEN = np.ma.array([0.1, 1e6, 0.3], mask=[0, 1, 0])
NO_NUMBERS = {
    "masked": HIDDEN,
    "masked one by one": list(HIDDEN),
    "masked in a list": [0.1, np.ma.masked, 0.3],
    "complex": np.array([0.1, 0.2j, 0.3]),
    "complex in a list": [0.1, 0.2j, 0.3],
    "dates": np.array(["2020-01-01"] * 3, dtype="datetime64[D]"),
    "durations": np.array([1, 2, 3], dtype="timedelta64[s]"),
    "masked whole numbers": np.ma.array([0, 1, 2], mask=[0, 1, 0]),
    "huge": [0.1, 10**400, 0.3],
}


@pytest.mark.filterwarnings("ignore:Warning. converting a masked element")
@pytest.mark.parametrize("values", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_what_is_masked_or_no_number_is_not_learnt(values):
    domain, model = ms.Finite([[0.0], [0.5], [1.0]]), ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1)
    policy = ms.GPUCB(domain, model)
    batch = policy.ask(3)
    before = policy.state()
    calls = [
        lambda: policy.observe([0, 1, 2], values),
        lambda: policy.tell(batch, values),
        lambda: ms.diagnose(domain.points, values, model),
        lambda: ms.best_in_class(domain, model, values),
        lambda: ms.Model.from_data(domain.points, values),
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match=r"masked|complex|dates|durations|records|finite|convert|too large"):
            call()
    assert policy.state() == before


@pytest.mark.parametrize("values", [each for name, each in NO_NUMBERS.items() if name != "masked in a list"])
def test_what_is_masked_or_no_number_is_no_point_and_no_index(values):
    policy = ms.GPUCB(ms.Finite([[0.0], [0.5], [1.0]]), ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1))
    column = [[each] for each in values] if isinstance(values, list) else values[:, None]
    for call in (
        lambda: ms.Finite(column),
        lambda: ms.Box(column),
        lambda: policy.observe(values, [0.1, 0.2, 0.3]),
        lambda: policy.observe(column, [0.1, 0.2, 0.3]),
        lambda: policy.ask(actions=values),
        lambda: policy.ask(actions=column),
        lambda: policy.band(column),
        lambda: policy.domain.validate_indices(values),
    ):
        with pytest.raises(InvalidInput):
            call()
    assert policy.t == 0
    assert policy.pending == []


def test_an_array_with_a_mask_that_hides_nothing_is_one():
    policy = ms.GPUCB(ms.Finite([[0.0], [1.0]]), ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1))
    policy.observe(np.ma.array([0, 1]), np.ma.array([0.1, 0.2], mask=[0, 0]))
    assert policy.observations.y.tolist() == [0.1, 0.2]


def test_a_refusal_quotes_at_most_a_few_lines():
    for value in (10**5000, "x" * 10**6, [0] * 10**6, np.zeros((1000, 3), dtype=str)):
        with pytest.raises(InvalidInput) as caught:
            ms.Model(RBF(0.3), norm_bound=value, noise=0.1)
        assert len(str(caught.value)) < 500


TEXT = {
    "text": "3",
    "bytes": b"3",
    "bytes that can change": bytearray(b"3"),
    "nothing written": "",
    "NumPy's text": np.str_("3"),
    "a list": ["3"],
    "a list of bytes": [b"3"],
    "an array": np.array(["3"]),
    "an array of bytes": np.array([b"3"]),
    "an array of one text": np.array("3"),
    "an array of objects": np.array(["3"], dtype=object),
    "a column": pl.Series(["3"]),
}


@pytest.mark.parametrize("y", TEXT.values(), ids=TEXT)
def test_text_is_not_a_number(y):
    policy = ms.GPUCB(ms.Finite([[0.0], [1.0]]), ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1))
    query = policy.ask()
    for call in (
        lambda: policy.tell(query, y),
        lambda: policy.tell([query], y),
        lambda: policy.observe([0], y),
        lambda: policy.posterior.observe([[0.0]], y),
        lambda: ms.diagnose([[0.0]], y, policy.model),
    ):
        with pytest.raises(InvalidInput, match=r"must be numbers, got .*'3?'\)?, which is text; make"):
            call()
    for call in (
        lambda: ms.optimize(policy, lambda x: y, 1),
        lambda: ms.Model(RBF(0.3), norm_bound=1.0, noise=y),
        lambda: ms.Float(0, y),
        lambda: ms.ECGPUCB(policy.domain, policy.model, epsilon=y),
    ):
        with pytest.raises(InvalidInput, match="finite number"):
            call()
    assert policy.t == 0
    assert [each.id for each in policy.pending] == [query.id]


def test_text_among_numbers_is_named():
    policy = ms.GPUCB(ms.Finite([[0.0], [1.0]]), ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1))
    batch = policy.ask(2)
    with pytest.raises(InvalidInput, match=r"^results must be numbers, got '0\.5 V', which is text; make"):
        policy.tell(batch, np.array([0.1, "0.5 V"], dtype=object))
    with pytest.raises(InvalidInput, match="which is text"):
        policy.tell(batch, [0.1, "0.5"])


@pytest.mark.parametrize("y", [Decimal("0.5"), Fraction(1, 2), np.float32(0.5), [Decimal("0.5")], pl.Series([0.5])])
def test_numbers_of_other_kinds_are_numbers(y):
    policy = ms.GPUCB(ms.Finite([[0.0], [1.0]]), ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1))
    policy.tell(policy.ask(), y)
    assert policy.observations.y.tolist() == [0.5]


@pytest.mark.parametrize("y", [True, np.True_, [True], np.array([True])])
def test_right_and_wrong_are_results_and_no_constants(y):
    policy = ms.GPUCB(ms.Finite([[0.0], [1.0]]), ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1))
    policy.tell(policy.ask(), y)
    assert policy.observations.y.tolist() == [1.0]
    with pytest.raises(InvalidInput, match=r"noise .* must be a finite number"):
        ms.Model(RBF(0.3), norm_bound=1.0, noise=y)


SIZES = r"at most 1e\+150 in size"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda v: ms.Box([(-v, v)]), rf"^bounds of a Box must be {SIZES}.*; choose the range"),
        (lambda v: ms.Joint(ms.Box([(0, v)]), ms.Open(2)), rf"^bounds of a Box must be {SIZES}.*; choose the range"),
        (lambda v: ms.Finite([[0.0], [v]]), rf"^points of a Finite domain must be {SIZES}.*position \(1, 0\); repair"),
        (lambda v: ms.Float(0, v), f"^high of a Float must be a finite number, {SIZES}"),
        (lambda v: ms.Int(0, v), r"^high of an Int must be a whole number, at most 2\^53 in size"),
        (lambda v: ms.Open(2, radius=v), f"^radius must be a finite number > 0, {SIZES}"),
        (lambda v: ms.Model(RBF(0.3), norm_bound=v, noise=0.1), f"^norm_bound .* must be a finite number > 0, {SIZES}"),
        (lambda v: ms.Finite.from_table({"a": [0.0, v]}), f"column 'a', data row 2: expected .*, {SIZES}"),
        (lambda v: ms.Finite.from_table({"a": [0.0, 1.0], "y": [0.0, v]}, target="y"), f"a result must .*, {SIZES}"),
        (lambda v: ms.Auto(ms.Space({"a": ms.Float(0, 1)})).ask(actions=[{"a": v}]), f"'a', data row 1 .*, {SIZES}"),
        (lambda v: ms.Auto(ms.Box([(0, 1)])).ask(actions=[[v]]), f"^points must be {SIZES}"),
        (lambda v: ms.Auto(ms.Box([(0, 1)])).observe([[0.5]], [v]), f"^observations must be {SIZES}"),
    ],
)
def test_a_number_that_is_too_large_is_named_by_what_it_is(make, said):
    with pytest.raises(InvalidInput, match=said) as caught:
        make(1e300)
    assert ("drop" in str(caught.value)) == said.startswith("^observations")  # that is for results
    policy = ms.Auto(ms.Box([(0, 1)]))
    with pytest.raises(InvalidInput, match=rf"^results must be {SIZES}.*policy\.drop\(query\)"):
        policy.tell(policy.ask(), 1e300)


@pytest.mark.parametrize("y", [np.finfo(float).min, 1e151, -1e300])
def test_results_whose_squares_are_no_numbers_are_refused_everywhere(y):
    domain = ms.Finite([[0.0], [1.0]])
    policy = ms.GPUCB(domain, ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1))
    query = policy.ask()
    for call in (
        lambda: policy.tell(query, y),
        lambda: policy.tell(query, np.float64(y)),
        lambda: policy.tell([query], [y]),
        lambda: policy.observe([0], [y]),
        lambda: ms.optimize(policy, lambda x: y, 1),
        lambda: ms.diagnose([[0.0]], [y], policy.model),
    ):
        with pytest.raises(InvalidInput, match=r"at most 1e\+150 in size"):
            call()
    assert policy.t == 0
    assert [each.id for each in policy.pending] == [query.id]


# -- numbers that are too large to be meant ------------------------------------------------------------------------


def test_what_is_too_much_is_refused_at_once():
    domain, model = ms.Finite([[0.0], [1.0]]), ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1)
    problem, box = ms.problems.misspecified(domain, model), ms.Box([(0, 1)] * 3)
    policy = ms.GPUCB(domain, model)
    for call in (
        lambda: policy.ask(10**18),
        lambda: policy.ask(100_001),
        lambda: ms.simulate(policy, problem, 10**9),
        lambda: ms.simulate(policy, problem, 10, batch=10**9),
        lambda: ms.optimize(policy, lambda x: 0.0, 10**6, batch=10**6),
        lambda: ms.optimize(policy, lambda x: 0.0, 10, workers=10**9),
        lambda: ms.information_gain(domain, model, 10**12),
        lambda: ms.comparators.IGPUCB(domain, model, horizon=10**12),
        lambda: ms.comparators.LBGPUCB(domain, model, horizon=10, initial=10**6),
        lambda: ms.comparators.LBGPUCB(domain, model, horizon=10, growth=1e100),
        lambda: ms.problems.fresh_actions(model, 2, 10**9),
        lambda: ms.problems.fresh_actions(model, 2, rounds=10**12),
        lambda: ms.problems.contextual_needle(10**9),
        lambda: ms.problems.contextual(problem, 10**9),
        lambda: ms.theory.balancing_bound(model, 10**12, 1.0),
        lambda: box.grid(10**6),
        lambda: box.cover(10**12),
        lambda: ms.Space({"a": ms.Float(0, 1)}).cover(10**12),
        lambda: ms.Space({"a": ms.Int(0, 10**12)}).members(),
    ):
        with pytest.raises(InvalidInput, match=r"≤|at most|too large|too many"):
            call()
    assert policy.pending == []
    phased = ms.PhasedUncertaintySampling(domain, model, horizon=7)
    assert len(phased.ask(10**9)) == 1  # where a policy has a limit of its own, that holds


LIST, MODEL = ms.Finite([[0.0]]), ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1)
CONSTANTS = {
    "norm_bound": lambda value: ms.Model(RBF(0.3), norm_bound=value, noise=0.1),
    "regularization": lambda value: ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1, regularization=value),
    "scale": lambda value: ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1, scale=value),
    "candidates": lambda value: ms.theory.paper_candidates(10, value),
    "bound": lambda value: ms.theory.ec_gp_ucb_bound(MODEL, 10, value),
    "gain": lambda value: ms.RegretBalancing(LIST, MODEL, horizon=10, bounds="paper", evidence="own", gain=value),
    "radius": lambda value: ms.Open(2, radius=value),
}


@pytest.mark.parametrize("value", [10**400, 1e200, 1e-300, 5e-324, -1, True, "a", [1], np.array([0.1, 0.2])], ids=str)
@pytest.mark.parametrize("make", CONSTANTS.values(), ids=CONSTANTS)
def test_constants_of_odd_sizes_are_refused(make, value):
    with pytest.raises(InvalidInput):
        make(value)


@pytest.mark.parametrize("value", ["no", 0, 1, None, np.array([True, False])])
def test_whether_a_model_was_fitted_is_said_by_true_or_false(value):
    with pytest.raises(InvalidInput, match="fitted must be True or False"):
        ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1, fitted=value)


@pytest.mark.parametrize("name", ["noise", "norm_bound", "scale", "offset", "regularization"])
def test_constants_of_a_model_are_of_sizes_that_can_be_computed_with(name):
    constants = {"norm_bound": 1.0, "noise": 0.1}
    with pytest.raises(InvalidInput, match="take other units"):
        ms.Model(RBF(0.3), **{**constants, name: 1e60})
    small = 1e-12 if name == "regularization" else 1e-40  # rounding of kernel values must be small beside λ
    policy = ms.ECGPUCB(LIST, ms.Model(RBF(0.3), **{**constants, name: small}), epsilon=0.1)
    policy.tell(policy.ask(), 0.3)
    assert np.isfinite(policy.band()).all()


def test_messages_name_what_was_counted_and_what_was_misspelt():
    model, box = ms.Model(RBF(0.5), norm_bound=1.0, noise=0.1), ms.Box([(0, 1)])
    policy = ms.GPUCB(ms.Finite([[0.0], [0.5]]), model)
    with pytest.raises(InvalidInput, match="results must be one number, one for each query, got 2"):
        policy.tell([policy.ask()], [0.1, 0.2])
    with pytest.raises(InvalidInput, match=r"a context must be 1 number\(s\), got 2"):
        ms.GPUCB(ms.Joint(box, box), model).ask(context=[0.3, 0.2])
    with pytest.raises(TypeError, match="ECGPUCB has no argument 'eps'; did you mean 'epsilon'"):
        ms.ECGPUCB(box, model, eps=0.1)
