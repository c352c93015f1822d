"""MisspecSearchCV is a search of scikit-learn's, and its policy learns the folds' scores as they are."""

import math
import pickle
import warnings

import joblib
import numpy as np
import pytest
import sklearn
from scipy import sparse, stats
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.exceptions import FitFailedWarning
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold, KFold, RandomizedSearchCV, ShuffleSplit, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.svm import SVC
from sklearn.utils import estimator_checks

import misspec as ms
from misspec.integrations.sklearn import MisspecSearchCV, fold_noise, read_space
from misspec.policies.auto import learnt

X, Y = make_classification(60, 4, random_state=0)


class Known(ClassifierMixin, BaseEstimator):
    """Its score is a function of its parameters, and of the fold."""

    def __init__(self, a=0.0, b=0.0, kind="plain", broken="never"):
        self.a, self.b, self.kind, self.broken = a, b, kind, broken

    def fit(self, X, y):
        if self.broken == "always" or (self.broken == "low" and self.a < 0.5):
            raise ArithmeticError("this part of the space is broken")
        self.classes_, self.n_features_in_ = np.unique(y), X.shape[1]
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])

    def score(self, X, y):  # noqa: ARG002
        return -((self.a - 0.3) ** 2) - (self.b - 0.7) ** 2 - 0.1 * (self.kind != "plain") + X[:, 0].mean()


PLANE = {"a": ms.Float(0, 1), "b": ms.Float(0, 1)}


def searched(space=PLANE, estimator=None, X=X, **options):
    given = {"n_iter": 8, "cv": 3, "random_state": 0, **options}
    return MisspecSearchCV(Known() if estimator is None else estimator, space, **given).fit(X, Y)


# -- the noise of a mean over folds ------------------------------------------------------------------------------------


def noise_by_hand(scores):
    """Number by number, with medians of sorted lists."""

    def median(numbers):
        ordered = sorted(numbers)
        return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2

    n, J = len(scores), len(scores[0])
    of_row = [sum(row) / J for row in scores]
    hard = [median([scores[i][j] - of_row[i] for i in range(n)]) for j in range(J)]
    level = sum(hard) / J
    v = [sum((scores[i][j] - of_row[i] - hard[j] + level) ** 2 for j in range(J)) / (J - 1) for i in range(n)]
    v = [each / (1 - 2 / n + math.pi / (2 * n + math.pi - 2)) for each in v]
    chi2 = {1: 0.45493642311957283, 2: 2 * math.log(2), 4: 3.3566939800333213}[J - 1]  # medians, from tables
    return [math.sqrt((each + median(v) * (J - 1) / chi2) / 2 / J) for each in v]


@pytest.mark.parametrize(("n", "J"), [(3, 2), (4, 5), (13, 3)])
def test_the_noise_is_its_transcription(n, J):
    scores = np.random.default_rng(n).standard_normal((n, J)) * np.linspace(0.1, 2, n)[:, None]
    assert np.allclose(fold_noise(scores), noise_by_hand(scores.tolist()), rtol=1e-12)


def test_what_folds_and_candidates_have_of_their_own_is_no_noise():
    rng, n, J = np.random.default_rng(0), 12, 5
    e = 0.1 * rng.standard_normal((n, J))
    levels, folds = 10 * rng.standard_normal((n, 1)), 5 * rng.standard_normal(J)
    assert np.allclose(fold_noise(levels + folds + e), fold_noise(e), rtol=1e-9)


@pytest.mark.parametrize("J", [2, 3, 5, 10])
@pytest.mark.parametrize("n", [3, 5, 30])
def test_the_variance_of_the_noise_is_hardly_biased(n, J):
    rng = np.random.default_rng(n)
    squares = [np.mean(fold_noise(rng.standard_normal((n, J))) ** 2) for _ in range(3000)]
    error = np.std(squares) / math.sqrt(len(squares))
    assert abs(J * np.mean(squares) - 1.0) < 0.08 + 4.0 * J * error  # four standard errors: 1 in 16,000


def test_the_noise_is_that_of_the_mean_also_beside_wild_candidates():
    rng, n, J, sigma = np.random.default_rng(0), 20, 5, 0.1
    of_means, estimated, in_bad_company, naive = [], [], [], []
    for _ in range(400):
        folds = rng.standard_normal(J)
        scores = folds + sigma * rng.standard_normal((n, J))
        of_means.append(np.var(scores.mean(axis=1), ddof=1))
        estimated.append(np.mean(fold_noise(scores) ** 2))
        naive.append(np.mean(scores.var(axis=1, ddof=1)) / J)
        scores[:5] = 30 * rng.standard_normal((5, J))  # a quarter is wild
        in_bad_company.append(np.mean(fold_noise(scores)[5:] ** 2))
    truth = np.mean(of_means)
    assert truth == pytest.approx(sigma**2 / J, rel=0.05)
    assert 0.9 * truth < np.mean(estimated) < 1.1 * truth
    assert 0.9 * truth < np.mean(in_bad_company) < 1.6 * truth
    assert np.mean(naive) > 50 * truth  # with the folds' own effects in it


def test_there_is_no_noise_where_nothing_is_known_of_it():
    assert np.isnan(fold_noise(np.random.default_rng(0).random((2, 5)))).all()
    assert np.isnan(fold_noise(np.random.default_rng(0).random((9, 1)))).all()
    assert np.isnan(fold_noise(np.full((4, 3), 0.5))).all()  # scores that do not differ are not known to be exact
    one = searched(cv=ShuffleSplit(1, random_state=0))
    assert np.isnan(one.policy_.observations.noise).all()


def test_the_policy_is_told_the_scores_and_their_noise():
    found = searched(n_iter=9)
    told, results = found.policy_.observations, found.cv_results_
    assert np.array_equal(told.y, results["mean_test_score"])
    assert [found.policy_.domain.params(x) for x in told.x] == results["params"]
    assert np.isnan(told.noise).sum() == 0  # the first five come together
    scores = np.column_stack([results[f"split{j}_test_score"] for j in range(3)])
    assert np.allclose(told.noise[-1], noise_by_hand(scores.tolist())[-1], rtol=1e-6)
    assert np.allclose(told.noise[:5], noise_by_hand(scores[:5].tolist()), rtol=1e-6)


def test_no_score_is_doubted():
    """A score far below all others is no typing error, although Auto would doubt such a result."""
    search = searched({"C": stats.loguniform(1e-2, 1e2), "gamma": stats.loguniform(1e-2, 1e1)}, SVC(), n_iter=12)
    policy = search.policy_
    plain = ms.Auto(policy.domain, repeats=False)
    x, y = policy.observations.x, policy.observations.y
    plain.observe(x, y, noise=policy.observations.noise)
    for each in (plain, policy):
        each.observe(x.mean(axis=0)[None, :], [y.min() - 20 * np.ptp(y)])
        each.refresh()
    assert [each.row for each in plain.suspicious()] == [12]
    assert learnt.earlier(policy, 1).doubts is False
    for each in (policy, pickle.loads(pickle.dumps(search)).policy_):
        assert each.suspicious() == []
        assert each.doubted == []
        assert "Doubtful" not in each.summary()
        assert "Results are taken to have no noise but their own (repeats=False)." in each.summary()


def test_all_candidates_have_the_same_folds():
    found = searched(cv=ShuffleSplit(3, test_size=0.3), scoring=lambda estimator, X, y: X[:, 0].sum())
    for j in range(3):
        assert len(set(found.cv_results_[f"split{j}_test_score"])) == 1


# -- as scikit-learn's searches ----------------------------------------------------------------------------------------


def statuses(search):
    return {each["check_name"]: each["status"] for each in estimator_checks.check_estimator(search, on_fail=None)}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(estimator_checks, "estimator_checks_generator"), reason="scikit-learn says one by one")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "name"), [(LogisticRegression(), "C"), (Ridge(), "alpha")])
def test_the_checks_of_estimators_pass_as_for_random_search(estimator, name):
    ours = statuses(MisspecSearchCV(estimator, {name: [0.1, 1.0, 10.0]}, n_iter=2, cv=2, random_state=0))
    theirs = statuses(RandomizedSearchCV(estimator, {name: [0.1, 1.0, 10.0]}, n_iter=2, cv=2, random_state=0))
    assert ours == theirs
    # a column as y is not for a search to warn of: its estimator does, where it minds
    assert {check for check, status in ours.items() if status == "failed"} <= {"check_supervised_y_2d"}
    assert sum(status == "passed" for status in ours.values()) > 30


def test_results_are_those_of_random_search():
    options = {"n_iter": 6, "cv": 3, "random_state": 0, "return_train_score": True}
    ours = MisspecSearchCV(LogisticRegression(), {"C": stats.loguniform(1e-3, 1e3)}, **options).fit(X, Y)
    theirs = RandomizedSearchCV(LogisticRegression(), {"C": stats.loguniform(1e-3, 1e3)}, **options).fit(X, Y)
    assert set(ours.cv_results_) == set(theirs.cv_results_)
    assert set(vars(ours)) - {"policy_", "space", "policy"} == set(vars(theirs)) - {"param_distributions"}
    assert {key: np.shape(each) for key, each in ours.cv_results_.items()} == {
        key: np.shape(each) for key, each in theirs.cv_results_.items()
    }
    for params, score in zip(ours.cv_results_["params"], ours.cv_results_["mean_test_score"], strict=True):
        again = cross_val_score(LogisticRegression(**params), X, Y, cv=3)
        assert score == pytest.approx(again.mean(), rel=1e-12)
    assert ours.best_index_ == ours.cv_results_["mean_test_score"].argmax()
    assert ours.best_score_ == ours.cv_results_["mean_test_score"].max()
    assert ours.best_params_ == ours.cv_results_["params"][ours.best_index_]
    assert ours.best_estimator_.get_params()["C"] == ours.best_params_["C"]
    assert ours.score(X, Y) == ours.best_estimator_.score(X, Y)
    assert (ours.predict(X) == ours.best_estimator_.predict(X)).all()


def test_it_finds_what_random_search_does_not():
    spaces = {MisspecSearchCV: PLANE, RandomizedSearchCV: {"a": stats.uniform(), "b": stats.uniform()}}
    ours, theirs = (
        np.mean([
            X[:, 0].mean() - search(Known(), space, n_iter=16, cv=KFold(3), random_state=seed).fit(X, Y).best_score_
            for seed in range(4)
        ])
        for search, space in spaces.items()
    )  # fmt: skip
    assert 0.0 <= ours < 0.2 * theirs


def test_it_is_cloned_pickled_and_nested():
    space = {"known__a": ms.Float(0, 1), "known__b": ms.Float(0, 1)}
    search = MisspecSearchCV(make_pipeline(StandardScaler(), Known()), space, n_iter=6, cv=2, random_state=0)
    assert search.get_params()["estimator__known__a"] == 0.0
    fitted = clone(search.set_params(n_iter=7)).fit(X, Y)
    assert len(fitted.cv_results_["params"]) == 7
    copied = pickle.loads(pickle.dumps(fitted))
    assert copied.best_params_ == fitted.best_params_
    assert (copied.predict(X) == fitted.predict(X)).all()
    assert copied.policy_.recommend().params == fitted.policy_.recommend().params
    assert copied.policy_.ask().params == fitted.policy_.ask().params
    inside = Pipeline([("scale", MaxAbsScaler()), ("search", clone(search).set_params(n_iter=3))])
    assert cross_val_score(inside, X, Y, cv=2).shape == (2,)
    assert not hasattr(clone(fitted), "policy_")


def test_the_seed_decides():
    first, again = searched(), searched()
    assert first.cv_results_["params"] == again.cv_results_["params"]
    assert again.fit(X, Y).cv_results_["params"] == first.cv_results_["params"]
    states = [searched(n_iter=2, random_state=np.random.RandomState(3)).cv_results_["params"] for _ in range(2)]
    assert states[0] == states[1] != first.cv_results_["params"][:2]
    assert searched(n_iter=1, random_state=None).best_index_ == 0


def test_sparse_matrices_and_lists():
    found = searched({"C": ms.Float(0.1, 10, log=True)}, LogisticRegression(), X=sparse.csr_array(X), n_iter=2)
    assert found.predict(X.tolist()).shape == (60,)
    listed = MisspecSearchCV(LogisticRegression(), {"C": [0.1, 1]}, n_iter=2, cv=3).fit(X.tolist(), Y.tolist())
    assert listed.best_params_["C"] in (0.1, 1)


@pytest.mark.parametrize("scoring", [["accuracy", "roc_auc"], lambda est, X, y: {"accuracy": 0.5, "roc_auc": est.C}])
def test_of_several_metrics_that_of_refit_is_optimised(scoring):
    space, options = {"C": ms.Float(0.01, 10)}, {"scoring": scoring, "n_iter": 6, "estimator": LogisticRegression()}
    found = searched(space, refit="roc_auc", **options)
    assert np.array_equal(found.policy_.observations.y, found.cv_results_["mean_test_roc_auc"])
    assert found.best_score_ == found.cv_results_["mean_test_roc_auc"].max()
    for refit in (False, lambda results: 0):
        with pytest.raises(
            ms.InvalidInput, match="refit must name the metric that is optimised, one of accuracy, roc_auc"
        ):
            searched(space, refit=refit, **options)


def test_refit_is_as_in_scikit_learn():
    without = searched(refit=False, n_iter=5)
    assert without.best_index_ == without.cv_results_["mean_test_score"].argmax()
    assert not hasattr(without, "best_estimator_")
    assert not hasattr(without, "predict")
    chosen = searched(refit=lambda results: int(results["rank_test_score"].argmax()), n_iter=5)
    assert chosen.best_params_ == chosen.cv_results_["params"][chosen.cv_results_["mean_test_score"].argmin()]
    assert not hasattr(chosen, "best_score_")


def test_metadata_reaches_fit_and_split():
    groups = np.repeat(np.arange(6), 10)
    grouped = MisspecSearchCV(Known(), PLANE, n_iter=2, cv=GroupKFold(3), random_state=0).fit(X, Y, groups=groups)
    assert grouped.n_splits_ == 3
    weights = np.where(Y == 1, 1.0, 1e-9)
    with sklearn.config_context(enable_metadata_routing=True):
        logistic = LogisticRegression().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        routed = MisspecSearchCV(logistic, {"C": ms.Float(0.1, 10)}, n_iter=2, cv=3, random_state=0)
        assert (routed.fit(X, Y, sample_weight=weights).predict(X) == 1).all()


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error_score", [math.nan, -7.0])
def test_failures_are_failures_and_no_numbers(error_score):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = searched(estimator=Known(broken="low"), error_score=error_score, n_iter=14, return_train_score=True)
    results, policy = found.cv_results_, found.policy_
    failed = np.array([params["a"] < 0.5 for params in results["params"]])
    assert 0 < failed.sum() < 14
    assert np.array_equal(results["mean_test_score"][failed], np.full(failed.sum(), error_score), equal_nan=True)
    assert np.array_equal(results["mean_train_score"][failed], np.full(failed.sum(), error_score), equal_nan=True)
    assert (results["rank_test_score"][failed] > results["rank_test_score"][~failed].max()).all()
    assert found.best_params_["a"] >= 0.5
    assert np.array_equal(policy.observations.y, results["mean_test_score"][~failed])
    assert len(policy.pending) == 0
    assert failed[5:].sum() < 5  # where evaluations fail was learnt
    assert any(
        each.category is FitFailedWarning and "this part of the space is broken" in str(each.message) for each in said
    )
    assert sum("non-finite" in str(each.message) for each in said) == (2 if math.isnan(error_score) else 0)


def test_a_fold_that_fails_makes_a_failure_of_its_candidate():
    def scorer(estimator, X, y):
        if estimator.a > 0.5 and X[0, 0] == folds[1][0, 0]:
            raise ArithmeticError("one fold")
        return estimator.score(X, y)

    folds = [X[test] for _, test in KFold(3).split(X)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = searched(scoring=scorer, cv=KFold(3))
    means = found.cv_results_["mean_test_score"]
    assert 0 < np.isnan(means).sum() < 8
    assert np.array_equal(found.policy_.observations.y, means[~np.isnan(means)])


def test_a_candidate_of_which_a_part_fails_is_no_number():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = searched(estimator=Known(broken="low"), error_score=-7.0, n_iter=5)  # together: no batch fails whole
    means = found.cv_results_["mean_test_score"]
    assert 0 < (means == -7.0).sum() < 5
    assert np.array_equal(found.policy_.observations.y, means[means != -7.0])


def test_infinite_scores_are_failures():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = searched(scoring=lambda est, X, y: -math.inf if est.a < 0.5 else est.score(X, y))
    finite = np.isfinite(found.cv_results_["mean_test_score"])
    assert 0 < finite.sum() < 8
    assert found.policy_.t == finite.sum()


@pytest.mark.filterwarnings("ignore")
def test_where_all_fits_fail_the_error_is_that_of_scikit_learn():
    with pytest.raises(ValueError, match=r"All the 3 fits failed(.|\n)*this part of the space is broken"):
        searched(estimator=Known(broken="always"), n_iter=6)
    with pytest.raises(ArithmeticError, match="this part of the space is broken"):
        searched(estimator=Known(broken="always"), error_score="raise")
    with pytest.raises(ValueError, match="Invalid parameter 'c'"):
        searched({"c": ms.Float(0, 1)})


# -- spaces ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (stats.uniform(0.5, 9.5), ms.Float(0.5, 10)),
        (stats.uniform, ms.Float(0, 1)),
        (stats.loguniform(1e-4, 1e2), ms.Float(1e-4, 1e2, log=True)),
        (stats.randint(1, 5), ms.Int(1, 4)),
        (stats.randint(3, 4), ms.Int(3, 3)),
        (stats.beta(2, 5), ms.Float(0, 1)),
        (stats.norm(3, 2), ms.Float(*stats.norm(3, 2).ppf([0.01, 0.99]))),
        (stats.expon(scale=100), ms.Float(*stats.expon(scale=100).ppf([0.01, 0.99]), log=True)),
        (stats.geom(0.01), ms.Int(1, 459, log=True)),
        (stats.rv_discrete(values=([1, 10, 100], [0.2, 0.3, 0.5])), ms.Choice([1, 10, 100])),
        (stats.rv_discrete(values=([1, 10, 100], [0.2, 0.3, 0.5]))(loc=3), ms.Choice([4, 13, 103])),
        ([1, "a", None], ms.Choice([1, "a", None])),
        (np.array([0.1, 0.2]), ms.Choice([0.1, 0.2])),
        (ms.Int(1, 9, log=True), ms.Int(1, 9, log=True)),
    ],
)
def test_what_a_parameter_is(given, expected):
    assert read_space({"p": given})[0].parameters["p"] == expected


@pytest.mark.parametrize("given", [1.0, "auto", stats.loguniform, {"low": 0}, object(), None])
def test_what_is_no_parameter_is_said(given):
    with pytest.raises(ms.InvalidInput, match=r"parameter 'p' must be an ms\.Float, ms\.Int or ms\.Choice, a list"):
        searched({"p": given})


def test_estimators_are_options_by_the_names_of_their_classes():
    space = {
        "scale": [StandardScaler(), MaxAbsScaler(), "passthrough"],
        "model": [LogisticRegression(), SVC()],
        "model__C": stats.loguniform(1e-2, 1e2),
        "model__gamma": ms.Float(1e-3, 1e1, log=True, when={"model": "SVC"}),
    }
    pipeline = Pipeline([("scale", "passthrough"), ("model", SVC())])
    found = searched(space, pipeline, n_iter=12)
    svm = np.array([isinstance(params["model"], SVC) for params in found.cv_results_["params"]])
    assert 0 < svm.sum() < 12
    assert np.array_equal(found.cv_results_["param_model__gamma"].mask, ~svm)
    assert {type(params["scale"]) for params in found.cv_results_["params"]} <= {StandardScaler, MaxAbsScaler, str}
    assert found.policy_.domain.parameters["scale"].options == ("StandardScaler", "MaxAbsScaler", "passthrough")
    assert type(found.best_estimator_["model"]) is type(found.best_params_["model"])


def test_options_of_one_name_are_told_apart():
    options = [(1, 2), SVC(C=1), SVC(C=2), "SVC", math.nan]
    space, objects = read_space({"p": options})
    names = space.parameters["p"].options
    assert names == ("(1, 2)", "1: SVC", "2: SVC", "SVC", "nan")
    assert [objects["p", name] for name in names] == options


def test_rules_and_conditions_of_a_space_hold():
    space = ms.Space(
        {
            "kind": ms.Choice(["plain", "other"]),
            "a": ms.Float(0, 1),
            "b": ms.Float(0, 1, when={"kind": "plain"}),
        },
        where="a < 0.4",
    )
    found = searched(space, n_iter=10)
    assert all(params["a"] < 0.4 for params in found.cv_results_["params"])
    other = [params["kind"] == "other" for params in found.cv_results_["params"]]
    assert np.array_equal(found.cv_results_["param_b"].mask, other)
    assert 0 < sum(other) < 10


def test_no_candidate_comes_twice_and_the_end_is_said():
    with pytest.warns(UserWarning, match="6 candidates are evaluated, not n_iter=9"):
        found = searched({"a": [0.1, 0.2, 0.9], "kind": ["plain", "other"]}, n_iter=9)
    assert len({tuple(params.items()) for params in found.cv_results_["params"]}) == 6
    assert found.best_params_ == {"a": 0.2, "kind": "plain"}


# -- policies, batches -------------------------------------------------------------------------------------------------


class Noted(ms.UniformSampling):
    def ask(self, n=None, **more):
        batches.append(n)
        return super().ask(n, **more)


batches = []


@pytest.mark.parametrize(("jobs", "expected"), [(1, [5, 1, 1, 1]), (7, [5, 3]), (4, [5, 2, 1])])
def test_as_many_at_once_as_jobs_are_busy(jobs, expected):
    batches.clear()
    with joblib.parallel_backend("threading"):
        found = searched(policy=lambda space: Noted(space, ms.Model(RBF(1.0), norm_bound=1.0, noise=0.1)), n_jobs=jobs)
    assert batches == expected
    assert len(found.cv_results_["params"]) == 8


def test_a_policy_of_ones_own():
    model = ms.Model(RBF(0.5), norm_bound=2.0, noise=0.1)
    found = searched(policy=lambda space: ms.ECGPUCB(space, model, epsilon=0.1))
    assert isinstance(found.policy_, ms.ECGPUCB)
    assert np.array_equal(found.policy_.observations.y, found.cv_results_["mean_test_score"])
    waits = searched(policy=lambda space: ms.PhasedUncertaintySampling(space, model, horizon=7), n_iter=7)
    assert len(waits.cv_results_["params"]) == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "best"}, 'policy must be "auto" or a function'),
        ({"policy": lambda space: space}, "what policy= makes must be a Policy"),
        ({"policy": lambda space: ms.Auto(ms.Box([(0, 1)]))}, "on the given space"),
        ({"policy": lambda space: ms.Auto(space, minimize=True)}, "minimize=False"),
        ({"n_iter": 0}, "n_iter must be a whole number ≥ 1"),
        ({"n_iter": 2.5}, "n_iter must be a whole number ≥ 1"),
        ({"space": [PLANE]}, "space must be a Space, got list; or hand in a dict"),
        ({"space": {}}, "parameter"),
        ({"space": {"a": []}}, "at least one option"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_fitted(options, message):
    with pytest.raises(ms.InvalidInput, match=message):
        searched(estimator=Known(broken="always"), error_score="raise", **options)


def test_a_policy_that_has_ended_is_no_search():
    def ended(space):
        policy = ms.Auto(space, horizon=1)
        policy.ask()
        return policy

    with pytest.raises(ms.HorizonReached):
        searched(policy=ended)


def test_a_first_batch_that_fails_whole_is_in_the_results():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = searched(estimator=Flaky(), n_iter=7, refit="b", scoring={"a": "accuracy", "b": "accuracy"})
    Flaky.fits = 0
    assert np.isnan(found.cv_results_["mean_test_a"]).tolist() == [True] * 5 + [False] * 2
    assert np.isnan(found.cv_results_["mean_fit_time"]).tolist() == [True] * 5 + [False] * 2
    assert found.best_index_ >= 5


class Flaky(Known):
    """Its first fits fail: as many as the first candidates have folds."""

    fits = 0

    def fit(self, X, y):
        Flaky.fits += 1
        if Flaky.fits <= 15:
            raise ArithmeticError("not yet")
        return super().fit(X, y)
