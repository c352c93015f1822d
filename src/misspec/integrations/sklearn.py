"""scikit-learn: `MisspecSearchCV`, a search of hyperparameters in the place of RandomizedSearchCV or GridSearchCV.

s_ij     score of candidate i on fold j:  s_ij = μ_i + b_j + e_ij                                          (n, J)
b_j      how hard fold j is, for all candidates alike: it cancels where two of them are compared
e_ij     what is left, of variance σ_i²; the mean over the folds has σ_i²/J of it
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import joblib
import numpy as np
from scipy import stats
from sklearn.base import is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import check_random_state

from misspec.domains import Choice, Float, Int, Mixture, Space
from misspec.errors import LARGEST, Array, AwaitingResults, HorizonReached, InvalidInput, instance, shown, whole
from misspec.policies import Auto, Policy, Query
from misspec.threads import one_thread

TOGETHER = 5  # candidates at first: what Auto asks before its model anyway, and enough to tell folds from candidates
FEWEST = 3  # candidates that tell the spread of one from that of the others
QUANTILES = (0.01, 0.99)  # ends of a distribution without any: what lies beyond is one candidate in fifty


class MisspecSearchCV(BaseSearchCV):  # type: ignore[misc]  # untyped
    """Search hyperparameters with a policy, by cross-validation, as RandomizedSearchCV does at random.

    estimator      any estimator or pipeline
    space          an `ms.Space`, with rules and conditions, or a dict by name of `ms.Float`, `ms.Int`, `ms.Choice`, of
                   lists of options, or of distributions of scipy.stats
    n_iter         candidates that are evaluated
    policy         "auto": ms.Auto, or a function that makes a policy on the space, such as
                   lambda space: ms.GPUCB(space, model); it maximises
    random_state   of the policy "auto"

    All else is as in RandomizedSearchCV: scoring, n_jobs, refit, cv, verbose, pre_dispatch, error_score,
    return_train_score; attributes after `fit` too, and `policy_`, the policy with all that it has learnt. Of several
    metrics, refit= names the one that is optimised. All candidates have the same folds. As many are chosen at once as
    n_jobs keeps busy.

    A list is a choice; what no `ms.Choice` can hold, such as estimators, goes by the name of its class, or as it is
    written, in `when=` and in the policy. A distribution gives its ends (its 1 % and 99 % quantiles, where it has none)
    and its scale, logarithmic if its median is nearer to the middle there; whole numbers stay whole. A parameter that
    does not exist at a candidate is not set, and masked in cv_results_.

    Each score is told with a noise of its own: the standard error of its mean over the folds once the effect that a
    fold has on all candidates is taken out, since hard folds are hard for all and do not tell candidates apart. Its
    variance is half the candidate's own and half the median of all, from three candidates and two folds on.

    A candidate with a fit that fails, or with a score that is not finite, is a failure to the policy, whatever
    error_score puts into cv_results_.
    """

    def __init__(
        self,
        estimator: Any,
        space: Any,
        *,
        n_iter: int = 30,
        policy: str | Callable[[Space], Policy] = "auto",
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: Any = "2*n_jobs",
        random_state: Any = None,
        error_score: Any = np.nan,
        return_train_score: bool = False,
    ) -> None:
        self.space, self.n_iter, self.policy, self.random_state = space, n_iter, policy, random_state
        super().__init__(
            estimator, scoring=scoring, n_jobs=n_jobs, refit=refit, cv=cv, verbose=verbose, pre_dispatch=pre_dispatch,
            error_score=error_score, return_train_score=return_train_score,
        )  # fmt: skip

    def _run_search(self, evaluate_candidates: Callable[..., dict[str, Any]]) -> None:
        n_iter = whole("n_iter", self.n_iter, at_least=1)
        if isinstance(self.scoring, list | tuple | Mapping):
            self._metric(self.scoring)
        space, objects = read_space(self.space)
        self.policy_ = self._made(space)
        cv = getattr(self, "_checked_cv_orig", self.cv)  # which scikit-learn 1.5 does not keep
        splits, jobs = _Splits(cv, is_classifier(self.estimator)), joblib.effective_n_jobs(self.n_jobs)
        candidates: list[dict[str, Any]] = []
        fits: list[Any] = []  # as many per candidate as there are folds; None where none of a batch worked
        scores: list[list[float]] = []  # on the folds, of candidates that worked
        results: dict[str, Any] = {}
        failure: Exception | None = None
        while len(candidates) < n_iter:
            n = min(n_iter - len(candidates), math.ceil(jobs / splits.folds) if candidates else TOGETHER)
            try:
                with one_thread():
                    queries = self.policy_.ask(n)
            except (AwaitingResults, HorizonReached) as end:
                if not candidates:
                    raise
                warnings.warn(f"{len(candidates)} candidates are evaluated, not n_iter={n_iter}: {end}", stacklevel=3)
                break
            given = [{name: objects.get((name, x), x) for name, x in dict(q.params or {}).items()} for q in queries]
            try:
                results = evaluate_candidates(given, cv=splits)
                new = results["fits"][-len(given) * splits.folds :]
            except ValueError as error:  # for scikit-learn the end, since it expects all candidates in one call
                if self.error_score == "raise" or "fits failed" not in str(error):
                    raise
                warnings.warn(str(error), FitFailedWarning, stacklevel=3)
                new, failure = [None] * (len(given) * splits.folds), error
            candidates += given
            fits += new
            with one_thread():
                self._tell(queries, [new[i : i + splits.folds] for i in range(0, len(new), splits.folds)], scores)
        if failure is not None and not results:
            raise failure
        failed = _failed(next(each for each in fits if each is not None), self.error_score)
        results.clear()  # the very dict that `fit` goes on with
        fits = [failed if each is None else each for each in fits]
        results |= super()._format_results(candidates, splits.folds, fits)

    def _format_results(self, *given: Any) -> dict[str, Any]:
        """Fits as they are: `_run_search` formats all of them in the end, with those that scikit-learn left out."""
        return {"fits": given[2]}

    def _tell(self, queries: list[Query], fits: list[list[Any]], scores: list[list[float]]) -> None:
        """Tell what came of these queries, and add to the scores."""
        worked: list[Query] = []
        for query, each in zip(queries, fits, strict=True):
            found = [math.nan if fit is None or fit["fit_error"] else fit["test_scores"] for fit in each]
            row = [float(one[self._metric(one)] if isinstance(one, Mapping) else one) for one in found]
            if all(abs(score) <= LARGEST for score in row):
                worked.append(query)
                scores.append(row)
            else:
                self.policy_.drop(query)
        if worked:
            told = np.array(scores)
            own = fold_noise(told)[-len(worked) :] if self.policy_.abilities.takes_noise else None
            self.policy_.tell(worked, told[-len(worked) :].mean(axis=1), noise=own)

    def _metric(self, names: Iterable[str]) -> str:
        """Which of several metrics is optimised."""
        if not isinstance(self.refit, str) or self.refit not in names:
            known = ", ".join(map(str, names))
            raise InvalidInput(f"refit must name the metric that is optimised, one of {known}; got {shown(self.refit)}")
        return self.refit

    def _made(self, space: Space) -> Policy:
        """Make the policy."""
        if isinstance(self.policy, str) and self.policy == "auto":
            # on the same folds a second result would be the first again
            auto = Auto(space, repeats=False, seed=int(check_random_state(self.random_state).randint(2**31 - 1)))
            auto.doubts = False
            return auto
        if not callable(self.policy):
            raise InvalidInput(
                'policy must be "auto" or a function that makes a policy on a Space, such as '
                f"lambda space: ms.GPUCB(space, model), got {shown(self.policy)}"
            )
        policy: Policy = instance("what policy= makes", self.policy(space), Policy)
        if getattr(policy.domain, "parameters", None) != space.parameters:
            raise InvalidInput(f"policy= must make a policy on the given space, got one on {shown(policy.domain)}")
        if policy.minimize:
            raise InvalidInput("scores are maximised, and the policy minimizes: make it with minimize=False")
        return policy


class _Splits:
    """The splits of a splitter, made once, so that candidates have the same folds also where these are random."""

    def __init__(self, cv: Any, classifier: bool) -> None:
        self._cv, self._classifier = cv, classifier
        self._made: Any = None

    def split(self, X: Any, y: Any, **more: Any) -> Any:
        if self._made is None:
            self._made = list(check_cv(self._cv, y, classifier=self._classifier).split(X, y, **more))
        return self._made

    @property
    def folds(self) -> int:
        return len(self._made)


def _failed(fit: Mapping[str, Any], score: Any) -> dict[str, Any]:
    """A fit that failed, in the form of one that did not, with this score; how long it took is not known."""
    scores = dict.fromkeys(fit["test_scores"], score) if isinstance(fit["test_scores"], Mapping) else score
    blank = {"test_scores": scores, "train_scores": scores, "fit_time": math.nan, "score_time": math.nan}
    return {name: blank.get(name, value) for name, value in fit.items()}


def fold_noise(scores: Array) -> Array:
    """The standard deviation of each candidate's mean over folds, √((v_i + v)/2J), NaN where it is unknown.

    scores: s_ij, shape (n, J). b_j is the median of s_ij − s_i. over the candidates, v_i the variance of what is left
    of a candidate, with J − 1 degrees of freedom, and v the median of the v_i. With so few degrees of freedom v_i alone
    would be far off, and with means for medians one bad candidate, whose scores are wild, would make all uncertain.

    Normal scores of one variance keep 1 − 2/n + π/(2n + π − 2) of it when the medians of n are taken out (a candidate's
    share in a median is 1/n, the variance of a median about π/(2n + π − 2)), and the median of v_i is that of
    χ²/(J − 1): divided by both, the noise is at most 8 % off in variance.
    """
    n, J = scores.shape
    if n < FEWEST or J < 2:
        return np.full(n, np.nan)
    left = scores - scores.mean(axis=1, keepdims=True)
    folds = np.median(left, axis=0)
    kept = 1.0 - 2.0 / n + math.pi / (2 * n + math.pi - 2.0)
    v = ((left - (folds - folds.mean())) ** 2).sum(axis=1) / (J - 1) / kept
    typical = np.median(v) * (J - 1) / stats.chi2.median(J - 1)
    noise = np.sqrt((v + typical) / (2 * J))
    return np.where(noise > 0.0, noise, np.nan)


# -- the space ---------------------------------------------------------------------------------------------------------


def read_space(given: Any) -> tuple[Space, dict[tuple[str, Any], Any]]:
    """The space, and by name and option what no `ms.Choice` can hold."""
    if not isinstance(given, Mapping):
        return instance("space", given, Space, "or hand in a dict of parameters by name"), {}
    parameters: dict[str, Any] = {}
    objects: dict[tuple[str, Any], Any] = {}
    for name, each in given.items():
        if isinstance(each, list | tuple | np.ndarray):
            options = list(each)
            parameters[name] = Choice(tuple(_names(options)))
            pairs = zip(parameters[name].options, options, strict=True)
            objects |= {(name, key): option for key, option in pairs if isinstance(key, str)}
        else:
            parameters[name] = each if isinstance(each, Float | Int | Choice | Mixture) else _range(name, each)
    return Space(parameters), objects


def _names(options: list[Any]) -> list[Any]:
    """The options as a `ms.Choice` has them: themselves, or names of those that it cannot hold."""
    names: list[Any] = []
    for option in options:
        try:
            names += Choice((option,)).options
        except InvalidInput:
            names.append(type(option).__name__ if hasattr(option, "get_params") else shown(option))
    return [
        f"{i}: {name}" if name is not options[i] and names.count(name) > 1 else name for i, name in enumerate(names)
    ]


def _range(name: str, given: Any) -> Float | Int | Choice:
    """The parameter that a distribution of scipy.stats stands for."""
    try:
        dist = getattr(given, "dist", given)
        if hasattr(dist, "xk"):
            return Choice(tuple((dist.xk + (given.support()[0] - dist.xk[0])).tolist()))  # moved by loc=
        ends = [float(end) for end in given.support()]
        low, high = ends if np.isfinite(ends).all() else [float(end) for end in given.ppf(QUANTILES)]
        middle = float(np.mean(given.ppf((0.5 - 1e-9, 0.5 + 1e-9))))  # of two numbers, where both are medians
        log = 0.0 < low < high and abs(math.log(middle / low) / math.log(high / low) - 0.5) < abs(
            (middle - low) / (high - low) - 0.5
        )
        if isinstance(dist, stats.rv_discrete):
            return Int(round(low), round(high), log=log)
        return Float(low, high, log=log)
    except (AttributeError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InvalidInput(
            f"parameter {shown(name)} must be an ms.Float, ms.Int or ms.Choice, a list of options, or a distribution "
            f"of scipy.stats with its arguments, such as loguniform(1e-3, 1e2) or randint(1, 9); got {shown(given)}"
        ) from error
