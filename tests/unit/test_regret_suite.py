"""The suite of `benchmarks/regret.py`: its instances are what they promise to be, and it runs, stops and goes on."""

import argparse
import collections
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
WELL, MISFIT, ADVERSARIAL, APART = "well specified", "misfit", "adversarial", "sought against the recommended"


@pytest.fixture
def regret(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # which benchmarks set
        monkeypatch.setenv(name, "1")
    import regret

    return regret


def test_instances_are_those_promised(regret):
    all_of_them = regret.worlds.instances()
    regret.worlds.instances.cache_clear()
    assert regret.worlds.instances() == all_of_them
    assert len({each.name for each in all_of_them}) == len(all_of_them)
    assert len({each.recipe["draw"] for each in all_of_them}) == len(all_of_them)

    common = [each for each in all_of_them if each.group != APART]
    groups = collections.Counter(each.group for each in common)
    assert set(groups) == {WELL, MISFIT, ADVERSARIAL}
    assert 55 <= len(common) <= 66
    assert abs(groups[ADVERSARIAL] - len(common) / 2) <= 2
    assert len(all_of_them) - len(common) == 4

    horizons = collections.Counter(each.horizon for each in common)
    assert set(horizons) == {200, 1_000, 3_000, 12_000, 30_000}
    assert horizons[30_000] == 6
    against = collections.Counter(each.against for each in all_of_them if each.against)
    assert against == {"GP-UCB": 8, "grounded GP-UCB": 12, "balancing price 8": 4, "phased": 3, "recommended": 4}
    assert {each.recipe["dimension"] for each in all_of_them if each.family == "well specified"} == {1, 2, 3, 4, 5, 6}
    assert {each.recipe["covariance"] for each in all_of_them} == {"RBF", "Matérn", "linear"}

    for family in {each.family for each in all_of_them}:
        held_out = [each.held_out for each in all_of_them if each.family == family]
        assert held_out == [k % 3 == 2 for k in range(len(held_out))]


def test_problems_know_their_misspecification_and_their_noise(regret):
    worlds = regret.worlds
    known = worlds.recipes()
    for each in worlds.everything():
        problem = worlds.problem(**known.get(each.name, each.recipe))
        span = np.ptp(problem.values)
        assert np.abs(problem.misfit).max() <= problem.epsilon + 1e-9
        assert 0.03 - 1e-9 <= problem.sampler.noise / span <= 0.5 + 1e-9
        told = each.recipe.get("told", 1.0)
        assert problem.model.noise == pytest.approx(told * problem.sampler.noise)
        assert (problem.offers is not None) == each.contextual
        if each.group == WELL:
            assert problem.epsilon == 0
        if each.against:
            assert np.abs(problem.misfit) == pytest.approx(problem.epsilon)
    assert not set(worlds.found()) - {each.name for each in worlds.everything() if each.against}


def test_who_is_told_epsilon(regret):
    assert [name for name in regret.POLICIES if regret.told(name)] == ["EC-GP-UCB told ε"]


def test_best_in_hindsight_is_floored_and_not_told_epsilon(regret):
    outcome = regret.Outcome([], seeds=2)
    outcome.policies, outcome.rivals = ["GP-UCB", "b", "told"], np.array([True, True, False])
    outcome.regret = np.array([[[0.2, 0.4], [0.1, 0.1], [0.01, 0.01]], [[0.0, 0.0], [0.002, 0.004], [np.nan, np.nan]]])
    assert outcome.to_best(outcome.regret)[0] == pytest.approx([3.0, 1.0, 0.1])
    assert outcome.to_best(outcome.regret)[1][:2] == pytest.approx(
        [1.0, 3.0]
    )  # nobody is asked for less than the floor
    geometric, worst, around, around_worst = outcome.summary([0, 1], outcome.to_best)
    assert geometric[:2] == pytest.approx([np.sqrt(3.0), np.sqrt(3.0)])
    assert worst == pytest.approx([3.0, 3.0, 0.1])
    assert (around[0] <= geometric).all()
    assert (geometric <= around[1]).all()
    assert (around_worst[1] >= worst - 1e-12).all()


def test_it_runs_reports_and_goes_on(regret, tmp_path, capsys):
    given = argparse.Namespace(out=tmp_path, rounds=12, seeds=2)
    chosen = [each for each in regret.worlds.instances() if each.name in ("well specified (2)", "traps (2)")]
    parts, names = regret.parts_of(chosen, given), ["GP-UCB", "uniform", "phased"]
    regret.play(parts, names, cores=1)
    regret.report(regret.Outcome(parts, given.seeds), tmp_path, "development")
    text = (tmp_path / "report-development.md").read_text()
    assert "| well specified (2) | RBF | 1 | 12 |" in text
    assert "| traps (2) | linear | 4 | 12 |" in text
    assert (tmp_path / "regret-development.png").stat().st_size > 10_000
    regret.play(parts, names, cores=1)
    assert "12: 0 runs, 6 before" in capsys.readouterr().out
    regret.forget(parts, ["uniform"])
    outcome = regret.Outcome(parts, given.seeds)
    assert outcome.done == 4 + 2  # phased plays no contextual instance
