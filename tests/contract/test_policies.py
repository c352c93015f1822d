import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

import misspec as ms
from misspec.testing import (
    CONTRACT,
    Subject,
    continues_to_the_bit,
    recommends_the_best_lower_bound,
    refused_calls_change_nothing,
)

MODEL = ms.Model(RBF(0.2), norm_bound=1.5, noise=0.1, offset=0.2)
PRIORS = [ms.Model(RBF(0.6), norm_bound=0.05, noise=0.1, regularization=1.0, offset=0.9), MODEL]
LINEAR = ms.Model(ConstantKernel(0.5) * DotProduct(0.0), norm_bound=1.5, noise=0.1, offset=0.2)
DOMAIN = ms.Finite(np.random.default_rng(0).random((60, 2)), names=[f"arm {i}" for i in range(60)])


def truth(x):
    return 0.2 + float(np.sin(6 * x[0]) * x[1])


POLICIES = {
    "gp-ucb": lambda seed: ms.GPUCB(DOMAIN, MODEL, seed=seed),
    "gp-ucb grounded": lambda seed: ms.GPUCB(DOMAIN, MODEL, grounded=True, seed=seed),
    "gp-ucb in the paper": lambda seed: ms.GPUCB.as_in_paper(DOMAIN, MODEL, seed=seed),
    "gp-ucb numeric": lambda seed: ms.GPUCB(DOMAIN, MODEL, width=2.0, inflate=True, seed=seed),
    "ec": lambda seed: ms.ECGPUCB(DOMAIN, MODEL, epsilon=0.1, seed=seed),
    "ec ungrounded": lambda seed: ms.ECGPUCB(DOMAIN, MODEL, epsilon=0.1, grounded=False, seed=seed),
    "ec in the paper": lambda seed: ms.ECGPUCB.as_in_paper(DOMAIN, MODEL, epsilon=0.1, seed=seed),
    "phased": lambda seed: ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=1000, seed=seed),
    "phased without end": lambda seed: ms.PhasedUncertaintySampling(DOMAIN, MODEL, seed=seed),
    "phased in the paper": lambda seed: ms.PhasedUncertaintySampling.as_in_paper(
        DOMAIN, MODEL, horizon=500, seed=seed
    ),
    "phased, few episodes": lambda seed: ms.PhasedUncertaintySampling(
        DOMAIN, MODEL, horizon=200, schedule="few", seed=seed
    ),
    "phased, four episodes": lambda seed: ms.PhasedUncertaintySampling(
        DOMAIN, MODEL, horizon=150, schedule=4, intersect=True, seed=seed
    ),
    "balancing": lambda seed: ms.RegretBalancing(DOMAIN, MODEL, horizon=200, seed=seed),
    "balancing own": lambda seed: ms.RegretBalancing(DOMAIN, MODEL, horizon=200, evidence="own", seed=seed),
    "balancing ungrounded": lambda seed: ms.RegretBalancing(DOMAIN, MODEL, horizon=200, grounded=False, seed=seed),
    "balancing in the paper": lambda seed: ms.RegretBalancing.as_in_paper(
        DOMAIN, MODEL, horizon=200, gain=9.0, seed=seed
    ),
    "balancing kernels": lambda seed: ms.RegretBalancing(
        DOMAIN, MODEL, horizon=200, seed=seed,
        bases=[
            (ms.Model(ConstantKernel(0.5) * Matern([0.1, 0.3], nu=1.5), norm_bound=2.0, noise=0.1, offset=0.2), 0.1),
            (MODEL, 0.0),
        ],
    ),
    "balancing learnt": lambda seed: ms.RegretBalancing(DOMAIN, MODEL, horizon=200, bounds="learnt", seed=seed),
    "balancing learnt own": lambda seed: ms.RegretBalancing(
        DOMAIN, MODEL, horizon=200, bounds="learnt", evidence="own", seed=seed
    ),
    "insured": lambda seed: ms.InsuredUCB(DOMAIN, MODEL, premium=0.5, seed=seed),
    "thompson": lambda seed: ms.ThompsonSampling(DOMAIN, MODEL, seed=seed),
    "uniform": lambda seed: ms.UniformSampling(DOMAIN, MODEL, seed=seed),
    "balanced": lambda seed: ms.Balanced(
        [
            ms.InsuredUCB(DOMAIN, MODEL), ms.RegretBalancing(DOMAIN, MODEL, horizon=200),
            ms.ThompsonSampling(DOMAIN, MODEL),
        ],
        seed=seed,
    ),
    "balanced own": lambda seed: ms.Balanced(
        [ms.UniformSampling(DOMAIN, MODEL), ms.ECGPUCB(DOMAIN, MODEL, epsilon=0.1)], evidence="own", seed=seed
    ),
    "balanced, one of them phased": lambda seed: ms.Balanced(
        [ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=200), ms.GPUCB(DOMAIN, MODEL, width=2.0)],
        evidence="own", seed=seed,
    ),
    "balanced twice, minimising": lambda seed: ms.Balanced(
        [
            ms.Balanced([ms.GPUCB(DOMAIN, MODEL, minimize=True), ms.ThompsonSampling(DOMAIN, MODEL, minimize=True)]),
            ms.comparators.Corral(DOMAIN, MODEL, horizon=100, minimize=True),
        ],
        seed=seed,
    ),
    "corruption": lambda seed: ms.comparators.CorruptionTolerantGPUCB(DOMAIN, MODEL, corruption=1.0, seed=seed),
    "phased elimination": lambda seed: ms.comparators.PhasedElimination(DOMAIN, LINEAR, horizon=200, seed=seed),
    "phased elimination in the paper": lambda seed: ms.comparators.PhasedElimination.as_in_paper(
        DOMAIN, MODEL, horizon=500, seed=seed
    ),
    "rips": lambda seed: ms.comparators.RIPS(DOMAIN, LINEAR, horizon=200, accuracy=1.0, reward_bound=0.8, seed=seed),
    "rips in the paper": lambda seed: ms.comparators.RIPS.as_in_paper(DOMAIN, MODEL, horizon=500, seed=seed),
    "igp-ucb": lambda seed: ms.comparators.IGPUCB(DOMAIN, MODEL, seed=seed),
    "igp-ucb in its paper": lambda seed: ms.comparators.IGPUCB.as_in_paper(DOMAIN, MODEL, horizon=60, seed=seed),
    "gp-ts in its paper": lambda seed: ms.comparators.GPTS.as_in_paper(DOMAIN, MODEL, horizon=60, seed=seed),
    "lb-gp-ucb": lambda seed: ms.comparators.LBGPUCB(DOMAIN, MODEL, horizon=100, initial=2, seed=seed),
    "lb-gp-ucb in its paper": lambda seed: ms.comparators.LBGPUCB.as_in_paper(DOMAIN, MODEL, horizon=100, seed=seed),
    "corral": lambda seed: ms.comparators.Corral(DOMAIN, MODEL, horizon=100, epsilons=[0.5, 0.1, 0.0], seed=seed),
    "corral shared": lambda seed: ms.comparators.Corral(DOMAIN, MODEL, horizon=100, evidence="shared", seed=seed),
    "corral of one step": lambda seed: ms.comparators.Corral(DOMAIN, MODEL, horizon=100, stochastic=False, seed=seed),
    "splitting": lambda seed: ms.comparators.DomainSplitting(DOMAIN, MODEL, epsilon=0.1, seed=seed),
    "splitting, all learning": lambda seed: ms.comparators.DomainSplitting(
        DOMAIN, MODEL, epsilon=0.1, ancestors="learning", grounded=False, seed=seed
    ),
    "splitting in its paper": lambda seed: ms.comparators.DomainSplitting.as_in_paper(DOMAIN, MODEL, seed=seed),
    "prior elimination": lambda seed: ms.comparators.PriorElimination(DOMAIN, PRIORS, seed=seed),
    "prior elimination in its paper": lambda seed: ms.comparators.PriorElimination.as_in_paper(
        DOMAIN, PRIORS, seed=seed
    ),
    "corral in its paper": lambda seed: ms.comparators.Corral.as_in_paper(DOMAIN, MODEL, horizon=100, seed=seed),
}  # fmt: skip


BOX = ms.Box([(-3.0, 0.7), (0.1, 0.30000000000000004)])
WIDE = ms.Model(RBF(0.4), norm_bound=1.5, noise=0.1, offset=0.2)
ON_A_BOX = {
    "gp-ucb": lambda seed: ms.GPUCB(BOX, WIDE, seed=seed),
    "ec": lambda seed: ms.ECGPUCB(BOX, WIDE, epsilon=0.1, seed=seed),
    "ec in the paper": lambda seed: ms.ECGPUCB.as_in_paper(BOX, WIDE, epsilon=0.1, seed=seed),
    "ec anywhere": lambda seed: ms.ECGPUCB(BOX, WIDE, epsilon=0.1, resolution=None, inflate=True, seed=seed),
    "phased": lambda seed: ms.PhasedUncertaintySampling(BOX, WIDE, horizon=300, seed=seed),
    "phased in the paper": lambda seed: ms.PhasedUncertaintySampling.as_in_paper(BOX, WIDE, seed=seed),
    "phased, few episodes": lambda seed: ms.PhasedUncertaintySampling(
        BOX, WIDE, horizon=100, schedule="few", seed=seed
    ),
    "balancing": lambda seed: ms.RegretBalancing(BOX, WIDE, horizon=200, seed=seed),
    "balancing own": lambda seed: ms.RegretBalancing(BOX, WIDE, horizon=200, evidence="own", seed=seed),
    "insured": lambda seed: ms.InsuredUCB(BOX, WIDE, seed=seed),
    "balanced": lambda seed: ms.Balanced([ms.InsuredUCB(BOX, WIDE), ms.ECGPUCB(BOX, WIDE, epsilon=0.1)], seed=seed),
    "thompson": lambda seed: ms.ThompsonSampling(BOX, WIDE, seed=seed),
    "uniform": lambda seed: ms.UniformSampling(BOX, WIDE, seed=seed),
    "corruption": lambda seed: ms.comparators.CorruptionTolerantGPUCB(BOX, WIDE, corruption=1.0, seed=seed),
    "igp-ucb": lambda seed: ms.comparators.IGPUCB(BOX, WIDE, seed=seed),
    "lb-gp-ucb": lambda seed: ms.comparators.LBGPUCB(BOX, WIDE, horizon=100, initial=2, seed=seed),
    "corral": lambda seed: ms.comparators.Corral(BOX, WIDE, horizon=100, epsilons=[0.1, 0.0], seed=seed),
    "splitting": lambda seed: ms.comparators.DomainSplitting(BOX, WIDE, epsilon=0.1, ancestors="forgotten", seed=seed),
    "prior elimination": lambda seed: ms.comparators.PriorElimination(BOX, [WIDE, MODEL], seed=seed),
}


SPACE = ms.Space({"rate": ms.Float(1e-4, 1e-1, log=True), "depth": ms.Int(1, 9), "kind": ms.Choice(["a", "b", "c"])})
WHOLE = ms.Space({"depth": ms.Int(1, 6), "size": ms.Int(1, 64, log=True), "kind": ms.Choice(["a", None])})
TABLE = ms.Finite.from_table(
    {
        "heat": [float(20 * (i % 7)) for i in range(40)],
        "acid": [["citric", "acetic", "none"][i % 3] for i in range(40)],
        "note": [None if i % 2 else "tried before" for i in range(40)],
        "yield": [None] * 40,
    },
    target="yield",
    ignore=["note"],
)
FAR = ms.Model(RBF(0.6), norm_bound=1.5, noise=0.1, offset=0.2)


def on(domain):
    return {
        "gp-ucb": lambda seed: ms.GPUCB(domain, FAR, seed=seed),
        "ec": lambda seed: ms.ECGPUCB(domain, FAR, epsilon=0.1, seed=seed),
        "phased": lambda seed: ms.PhasedUncertaintySampling(domain, FAR, horizon=300, seed=seed),
        "balancing": lambda seed: ms.RegretBalancing(domain, FAR, horizon=200, seed=seed),
        "insured": lambda seed: ms.InsuredUCB(domain, FAR, seed=seed),
        "thompson": lambda seed: ms.ThompsonSampling(domain, FAR, seed=seed),
        "uniform": lambda seed: ms.UniformSampling(domain, FAR, seed=seed),
    }


WITH_NAMES = {
    f"{name} on a {kind}": make
    for kind, domain in {"space": SPACE, "whole space": WHOLE, "table": TABLE}.items()
    for name, make in on(domain).items()
}

TRIED = ms.Finite.from_table(
    {
        "heat": [float(20 * (i % 7)) for i in range(40)],
        "acid": [["citric", "acetic", "none"][i % 3] for i in range(40)],
        "note": [None if i % 2 else "tried before" for i in range(40)],
        "yield": [0.1 * (i % 5) if i < 7 else None for i in range(40)],
    },
    target="yield",
    ignore=["note"],
)
LEARNING = {  # its model: rounds are dear
    "auto": lambda seed: ms.Auto(DOMAIN, seed=seed),
    "auto minimising": lambda seed: ms.Auto(DOMAIN, minimize=True, seed=seed),
    "balanced autos, minimising": lambda seed: ms.Balanced(
        [ms.Auto(DOMAIN, minimize=True), ms.Auto(DOMAIN, aim="earn", minimize=True)], seed=seed
    ),
    "auto balanced on a table with results": lambda seed: ms.Balanced(
        [ms.Auto(TRIED, horizon=60), ms.InsuredUCB(TRIED, FAR), ms.RegretBalancing(TRIED, FAR, horizon=60)], seed=seed
    ),
    "auto on a table with results": lambda seed: ms.Auto(TRIED, horizon=90, seed=seed),
    "auto on a whole space": lambda seed: ms.Auto(WHOLE, noise=0.05, seed=seed),
    "auto on a box": lambda seed: ms.Auto(BOX, horizon=90, minimize=True, seed=seed),
    "auto on a space": lambda seed: ms.Auto(SPACE, seed=seed),
}


# The whole contract once per mechanism and kind of domain; variants that share both, a short form of it.
IN_FULL = {
    "arms": (
        "gp-ucb", "ec", "phased", "balancing", "insured", "thompson", "uniform", "corruption", "phased elimination",
        "lb-gp-ucb", "corral", "splitting", "prior elimination", "balanced",
    ),
    "box": ("ec", "phased", "balancing", "thompson"),
    "names": (
        "ec on a space", "balancing on a space", "thompson on a space", "phased on a whole space", "ec on a table",
    ),
    "learning": ("auto", "auto on a space", "balanced autos, minimising"),
}  # fmt: skip
LONG = {  # of which a contributor's `make test` plays only other variants
    ("box", "splitting"), ("box", "prior elimination"), ("learning", "balanced autos, minimising"),
    ("learning", "auto balanced on a table with results"),
}  # fmt: skip
SHORT = (continues_to_the_bit, refused_calls_change_nothing, recommends_the_best_lower_bound)


def cases(kind, policies):
    """(name, check) for all policies of a kind."""
    return [
        pytest.param(name, check, id=f"{name}-{check.__name__}", marks=[pytest.mark.slow] * ((kind, name) in LONG))
        for name in policies
        for check in (CONTRACT if name in IN_FULL[kind] else SHORT)
    ]


def moments(kind, name, most):
    """How often a policy is saved and continued: of a variant, twice."""
    return most if name in IN_FULL[kind] else 2


@pytest.mark.parametrize(("name", "check"), cases("arms", POLICIES))
def test_contract(name, check):
    check(Subject(POLICIES[name], truth, moments=moments("arms", name, 8)))


@pytest.mark.parametrize(("name", "check"), cases("box", ON_A_BOX))
def test_contract_on_a_box(name, check):
    made = moments("box", name, None)
    check(Subject(ON_A_BOX[name], lambda x: 0.2 + float(np.sin(2 * x[0]) * x[1]), rounds=15, moments=made))


@pytest.mark.parametrize(("name", "check"), cases("names", WITH_NAMES))
def test_contract_with_names(name, check):
    def evaluate(x):
        return 0.2 + 0.1 * float(np.sin(x[0] + x[1]) + (x[-1] == 1))

    check(Subject(WITH_NAMES[name], evaluate, rounds=10, moments=moments("names", name, 3)))


@pytest.mark.parametrize(("name", "check"), cases("learning", LEARNING))
def test_contract_of_a_policy_that_learns_its_model(name, check):
    made = moments("learning", name, 2)
    check(Subject(LEARNING[name], lambda x: 0.2 + float(np.sin(2 * x[0]) * np.cos(x[-1])), rounds=12, moments=made))


def test_every_name_in_full_is_a_policy():
    for kind, policies in (("arms", POLICIES), ("box", ON_A_BOX), ("names", WITH_NAMES), ("learning", LEARNING)):
        assert set(IN_FULL[kind]) <= set(policies)
