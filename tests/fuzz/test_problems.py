"""Problems, bounds, loops and reports: everything that takes a policy, a problem or numbers of the theory."""

import numpy as np
import pytest
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, DotProduct

import misspec as ms
from hostile import attempt, calls, fuzz, hostile, hostile_numbers, hostile_objects, works
from misspec import experiments, problems, theory
from misspec.problems import bandits
from misspec.reports import optimisation
from misspec.theory import bounds, information


@pytest.fixture(autouse=True, scope="module")
def small_limits():
    """What is too much is refused at any size: millions of rounds show no more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "MOST_ROUNDS", 1000)
        patch.setattr(information, "MOST_STEPS", 1000)
        patch.setattr(bandits, "MOST_NUMBERS", 10_000)
        patch.setattr(bandits, "MOST_CONTEXTS", 10)
        yield


LIST = ms.Finite(np.linspace(0.0, 1.0, 5)[:, None])
MODEL = ms.Model(RBF(0.3), norm_bound=1.0, noise=0.1)
PROBLEM = problems.misspecified(LIST, MODEL)
TABLE = {"a": [1.0, 2.0, 3.0], "b": ["u", "v", "u"], "y": [0.1, 0.5, 0.3]}
GAIN = ms.information_gain(LIST, MODEL, 20)


def a_policy():
    return ms.GPUCB(LIST, MODEL)


PROBLEMS = {
    "Problem": (
        ms.problems.Problem,
        {
            "name": "p", "domain": LIST, "model": MODEL, "values": np.zeros(5), "in_class": np.zeros(5), "epsilon": 0.0,
            "sampler": problems.Gaussian(0.1), "offers": problems.Groups([[0, 1], [2, 3]]), "fresh": False,
        },
    ),
    "misspecified": (
        problems.misspecified,
        {
            "domain": LIST, "model": MODEL, "epsilon": 0.1,
            "misfit": "spikes", "seed": 0, "wavelength": 0.1, "centres": 3,
        },
    ),
    "from_values": (
        problems.from_values,
        {"domain": LIST, "model": MODEL, "values": np.arange(5) / 9, "sampler": None, "offers": None, "name": "v"},
    ),
    "contextual": (problems.contextual, {"problem": PROBLEM, "actions": 2}),
    "needle": (problems.needle, {"domain": LIST, "model": MODEL, "height": 0.5, "seed": 0}),
    "nonstationary": (problems.nonstationary, {"domain": LIST, "model": MODEL, "seed": 0, "size": 1.0}),
    "wrong_kernel": (
        problems.wrong_kernel,
        {"domain": LIST, "model": MODEL, "kernel": RBF(0.1), "seed": 0, "size": 1.0, "name": "w"},
    ),
    "rough_truth": (problems.rough_truth, {"domain": LIST, "model": MODEL, "seed": 0, "length_scale": 0.2}),
    "wrong_length_scale": (problems.wrong_length_scale, {"domain": LIST, "model": MODEL, "seed": 0, "factor": 0.5}),
    "fresh_actions": (
        problems.fresh_actions,
        {
            "model": ms.Model(DotProduct(0), norm_bound=1.0, noise=0.1), "dimension": 2, "actions": 3, "epsilon": 0.1,
            "misfit": "random", "seed": 0, "rounds": 4, "shape": "ball", "wavelength": 0.1,
        },
    ),
    "contextual_trap": (problems.contextual_trap, {"contexts": 2, "seed": 0, "noise": 0.1}),
    "contextual_needle": (
        problems.contextual_needle,
        {"contexts": 2, "actions": 3, "seed": 0, "height": 0.8, "noise": 0.1},
    ),
    "classification_bandit": (
        problems.classification_bandit,
        {
            "X": [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], "y": ["a", "b", "a"], "components": 1, "model": None,
            "solve": False, "name": "c",
        },
    ),
    "from_table": (
        problems.from_table,
        {"source": TABLE, "target": "y", "ignore": (), "model": None, "noise": 0.1, "name": None},
    ),
    "with_misfit": (PROBLEM.with_misfit, {"misfit": np.zeros(5), "name": "m"}),
    "random_member": (problems.random_member, {"domain": LIST, "model": MODEL, "seed": 0, "centres": 3}),
    "Gaussian": (problems.Gaussian, {"noise": 0.1}),
    "Groups": (problems.Groups, {"rows": [[0, 1]]}),
    "Fresh": (problems.Fresh, {"rows": [[0, 1]]}),
    "Subsets": (problems.Subsets, {"points": 5, "size": 2}),
    "Replayed": (problems.Replayed, {"deviations": np.zeros((5, 2))}),
    "images": (problems.digits_bandit, {"images": 10, "components": 2, "solve": False}),
    "table": (problems.sklearn_bandit, {"table": "iris", "components": 2, "solve": False}),
    "svm_digits": (problems.svm_digits, {"model": MODEL}),
}  # fmt: skip


def played(problem):
    """What is made must do for a few rounds."""
    if not isinstance(problem, ms.problems.Problem):
        return problem
    assert repr(problem)
    if len(problem.domain) > 100:
        return problem
    trace = ms.simulate(ms.UniformSampling(problem.arena, problem.model), problem, 2)
    assert np.isfinite(trace.regret).all()
    return trace


def test_every_problem_works():
    works({name: each for name, each in PROBLEMS.items() if name != "svm_digits"})


@fuzz(500, call=calls({name: each for name, each in PROBLEMS.items() if name not in ("svm_digits", "images")}))
def test_a_problem_is_refused_or_can_be_played(call):
    function, arguments = call
    attempt(lambda: played(function(**arguments)))


@fuzz(12, images=hostile_objects, model=hostile_objects)
def test_problems_that_take_longer(images, model):
    attempt(lambda: problems.digits_bandit(images, solve=False))
    attempt(lambda: problems.svm_digits(model))


BOUNDS = {
    "ec": (
        theory.ec_gp_ucb_bound,
        {"model": MODEL, "horizon": 20, "gain": 3.0, "epsilon": 0.1, "regret": "true", "grounded_points": 5},
    ),
    "ec over time": (theory.ec_gp_ucb_bound, {"model": MODEL, "horizon": [5, 20], "gain": GAIN, "epsilon": 0.1}),
    "phased": (
        theory.phased_bound,
        {
            "model": MODEL, "horizon": 20, "gain": GAIN, "epsilon": 0.1, "width": "nonadaptive", "points": 5,
            "constants": "tight", "regret": "true", "schedule": "few",
        },
    ),
    "phased as in the paper": (
        theory.phased_bound,
        {"model": MODEL, "horizon": 20, "gain": 3.0, "constants": "paper", "schedule": "doubling"},
    ),
    "balancing": (
        theory.balancing_bound,
        {"model": MODEL, "horizon": 20, "gain": 3.0, "epsilon": 0.1, "reward_range": 1.0, "varying": False},
    ),
    "insured": (theory.insured_bound, {"model": MODEL, "horizon": 50, "points": 5, "epsilon": 0.1, "premium": 1.0}),
    "needle": (theory.needle_lower_bound, {"horizon": 20, "points": 5, "height": 0.5}),
    "elimination": (
        theory.phased_elimination_bound,
        {"model": MODEL, "horizon": 50, "dimension": 2, "points": 5, "epsilon": 0.1, "alpha": 0.01, "regret": "true"},
    ),
    "rips": (
        theory.rips_bound,
        {
            "model": MODEL, "horizon": 50, "dimension": 2, "points": 5, "epsilon": 0.1, "accuracy": 0.1,
            "reward_bound": 1.0, "regret": "true",
        },
    ),
    "igp": (theory.igp_ucb_bound, {"model": MODEL, "horizon": 20, "gain": 3.0}),
    "ts": (theory.gp_ts_bound, {"model": MODEL, "horizon": 20, "gain": 3.0, "points": 5}),
    "core_set": (theory.core_set, {"dimension": 3}),
    "tests_allowed": (theory.tests_allowed, {"t": 30}),
    "alpha": (theory.phased_elimination_alpha, {"model": MODEL, "horizon": 50, "dimension": 2, "points": 5}),
    "lengths": (theory.episode_lengths, {"horizon": 20, "schedule": 3}),
    "complete": (theory.complete_episodes, {"horizon": 20, "lengths": [1, 2, 4]}),
    "paper_candidates": (theory.paper_candidates, {"horizon": 20, "gain": 3.0}),
    "halving_candidates": (theory.halving_candidates, {"horizon": 20, "largest": 1.0}),
    "rips_log": (theory.rips_log, {"model": MODEL, "points": 5, "phase": 1}),
    "rips_length": (
        theory.rips_length,
        {"model": MODEL, "value": 1.0, "accuracy": 0.1, "log": 1.0, "reward_bound": 1.0},
    ),
}  # fmt: skip


def test_every_bound_works():
    works(BOUNDS)


@fuzz(600, call=calls(BOUNDS))
def test_bounds_are_numbers(call):
    function, arguments = call
    found = attempt(lambda: function(**arguments))
    if found is not None and not isinstance(found, list):
        assert not np.isnan(found).any()


LOOPS = {
    "simulate": (
        ms.simulate,
        {"policy": "fresh", "problem": PROBLEM, "n": 3, "seed": 0, "batch": 2, "progress": None},
    ),
    "optimize": (
        ms.optimize,
        {
            "policy": "fresh", "function": lambda x: 0.3, "n": 3, "batch": 2, "workers": None, "processes": False,
            "on_error": "raise", "progress": None,
        },
    ),
    "workers": (ms.optimize, {"policy": "fresh", "function": lambda x: 0.3, "n": 3, "workers": 2}),
    "compare": (
        experiments.compare,
        {"policies": {"GP": lambda p: ms.GPUCB(p.domain, p.model)}, "problems": [PROBLEM], "n": 2, "seeds": 1,
         "progress": None, "cores": 1},
    ),
    "worst_misfit": (
        ms.adversary.worst_misfit,
        {
            "make": lambda p: ms.UniformSampling(p.domain, p.model), "problem": PROBLEM, "n": 2, "tries": 2,
            "worlds": 1, "seed": 0, "progress": None,
        },
    ),
}  # fmt: skip


def run(function, arguments):
    """With a policy of its own, where the entry takes one; progress and functions are the caller's, and may fail."""
    given = {
        name: a_policy() if isinstance(each, str) and each == "fresh" else each for name, each in arguments.items()
    }
    try:
        return function(**given)
    except ms.MisspecError:
        if isinstance(given.get("policy"), ms.Policy):
            assert not given["policy"].pending or "workers" in given
        raise


def test_every_loop_works():
    for function, arguments in LOOPS.values():
        run(function, arguments)


small = st.one_of(
    hostile.filter(lambda each: not (isinstance(each, int | np.integer) and abs(each) > 3)), st.just(2**60)
)


@fuzz(200, call=calls(LOOPS, small))
def test_loops_refuse_or_run(call):
    function, arguments = call
    attempt(lambda: run(function, arguments))


@fuzz(150, result=st.one_of(hostile, hostile_numbers), on_error=st.sampled_from(["raise", "drop"]))
def test_a_function_may_return_anything(result, on_error):
    policy = a_policy()
    attempt(lambda: ms.optimize(policy, lambda x: result, 2, on_error=on_error))
    assert not policy.pending


REPORTED = a_policy()
for _ in range(3):
    REPORTED.tell(REPORTED.ask(), 0.3)


@fuzz(60, argument=st.sampled_from(["policy", "title", "target", "names"]), value=hostile_objects)
def test_facts_of_a_report(argument, value):
    """What a report says, without the pictures, which take seconds."""
    arguments = {"policy": REPORTED, "title": "t", "target": "y", "names": ["x"]}
    attempt(lambda: optimisation.Optimisation(**{**arguments, argument: value}))
    if not isinstance(value, str):
        attempt(lambda: ms.reports.of_policy(REPORTED, value))


@pytest.mark.parametrize("argument", ["n", "batch"])
def test_numbers_that_are_too_large_are_refused_at_once(argument):
    with pytest.raises(ms.InvalidInput, match=rf"^{argument} must be"):
        ms.simulate(a_policy(), PROBLEM, **{"n": 200_000, argument: 10**15})
