"""Optuna's sampler: its arguments, and studies of odd trials."""

import optuna
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from hostile import attempt, fuzz, hostile, hostile_numbers, hostile_objects, spoilt
from misspec.integrations.optuna import MisspecSampler, policy_of, space_of

optuna.logging.set_verbosity(optuna.logging.ERROR)
MODEL = ms.Model(RBF(0.5), norm_bound=1.0, noise=0.1)
SAMPLERS = {
    "auto": {"policy": "auto", "seed": 0, "noise": 0.1},
    "gp_ucb": {"policy": lambda space: ms.GPUCB(space, MODEL), "seed": 0},
    "ec": {"policy": lambda space: ms.ECGPUCB(space, MODEL, epsilon=0.1), "seed": 0},
    "balancing": {"policy": lambda space: ms.RegretBalancing(space, MODEL, horizon=9), "seed": 0},
}
SPACE = {"x": FloatDistribution(0, 1), "n": IntDistribution(1, 5), "k": CategoricalDistribution(("a", "b"))}


def asked(sampler, study, rounds=2):
    """Trials as `study.optimize` makes them."""
    study.sampler = sampler
    for _ in range(rounds):
        trial = study.ask(SPACE)
        assert 0 <= trial.params["x"] <= 1
        study.tell(trial, 0.3)
    return study


def a_study(trials=3):
    study = optuna.create_study(direction="maximize")
    for i in range(trials):
        params = {"x": i / 10, "n": 1 + i % 5, "k": "ab"[i % 2]}
        study.add_trial(create_trial(params=params, distributions=SPACE, value=i * 0.1))
    return study


def test_every_sampler_works():
    for arguments in SAMPLERS.values():
        assert len(asked(MisspecSampler(**arguments), a_study()).trials) == 5


@fuzz(200, name=st.sampled_from(sorted(SAMPLERS)), data=st.data())
def test_a_sampler_is_refused_or_samples(name, data):
    arguments = data.draw(spoilt(SAMPLERS[name]))
    attempt(lambda: asked(MisspecSampler(**arguments), a_study(), 1))


states = st.sampled_from(["complete", "pruned", "failed", "running", "waiting"])
attributes = st.dictionaries(
    st.sampled_from(["misspec:asked", "misspec:again", "fixed_params", "other"]),
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.text(max_size=3),
        st.dictionaries(
            st.sampled_from(["parts", "digest", "text", "x", "params"]), st.integers() | st.text(max_size=3)
        ),
    ),
    max_size=2,
)


@fuzz(
    40,
    values=st.lists(st.tuples(states, st.floats(), attributes), min_size=1, max_size=7),
    policy=st.sampled_from(sorted(SAMPLERS)),
    learnt=st.one_of(st.none(), st.integers(), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)),
)
def test_studies_of_odd_trials(values, policy, learnt):
    """Results of any size, states of any kind, and attributes that somebody else has written."""
    study = a_study()
    for i, (state, value, found) in enumerate(values):
        params = {"x": i / 10, "n": 1, "k": "a"}
        made = {
            "complete": {"state": TrialState.COMPLETE, "value": value if value == value else 0.0},
            "pruned": {"state": TrialState.PRUNED, "intermediate_values": {0: value}},
            "failed": {"state": TrialState.FAIL},
            "running": {"state": TrialState.RUNNING},
            "waiting": {"state": TrialState.WAITING},
        }[state]
        study.add_trial(create_trial(params=params, distributions=SPACE, system_attrs=found, **made))
    if learnt is not None:
        study._storage.set_study_system_attr(study._study_id, "misspec:learnt", learnt)
    attempt(lambda: asked(MisspecSampler(**SAMPLERS[policy]), study, 1))
    attempt(lambda: policy_of(study).recommend())


@fuzz(100, low=hostile_numbers, high=hostile_numbers, choices=st.lists(hostile_objects, max_size=3), given=hostile)
def test_spaces_of_odd_distributions(low, high, choices, given):
    for make in (FloatDistribution, IntDistribution, lambda *_: CategoricalDistribution(choices)):
        try:
            distribution = make(low, high)
        except Exception:  # what Optuna itself refuses
            continue
        attempt(lambda distribution=distribution: space_of({"x": distribution}))
    attempt(lambda: space_of(given))
    attempt(lambda: policy_of(a_study(), given))
