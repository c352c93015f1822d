"""Contextual problems from a file: run, stored, reported and drawn; what cannot be played is refused first."""

import re

import numpy as np
import polars as pl
import pytest
from matplotlib import rc_context
from sklearn.gaussian_process.kernels import DotProduct
from typer.testing import CliRunner

import misspec as ms
from files import embedded
from misspec import experiments as ex
from misspec.cli import app
from misspec.errors import InvalidInput
from misspec.reports import figures, matplotlib_backend, page, style, tables, theorems

HEAD = """
horizon = 60
seeds = 2
epsilons = [0.0, 0.1]

[model]
kernel = { name = "DotProduct", sigma_0 = 0.0 }
norm_bound = 1.0
noise = 0.1
"""
FRESH = """
[[problems]]
name = "fresh"
kind = "fresh_actions"
dimension = 3
actions = 6
rounds = 80
"""
OTHERS = """
[[problems]]
name = "table"
kind = "sklearn_bandit"
table = "iris"

[[problems]]
name = "trap"
kind = "contextual_trap"
contexts = 3

[[problems]]
name = "needle"
kind = "contextual_needle"
contexts = 3
actions = 4
"""
POLICIES = """
[[policies]]
kind = "LinUCB"

[[policies]]
kind = "LinearThompson"

[[policies]]
kind = "RegretBalancing"

[[policies]]
kind = "ECGPUCB"

[[policies]]
kind = "UniformSampling"
"""
TOML = HEAD + FRESH + OTHERS + POLICIES


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contextual")
    progress = ex.go(TOML.encode(), folder, cores=1)
    assert not progress.failed
    return ex.results(folder)


def refused(text):
    with pytest.raises(InvalidInput) as caught:
        ex.parse(text.encode(), "test.toml")
    return str(caught.value)


# -- runs --------------------------------------------------------------------------------------------------------------


def test_every_run_is_what_simulate_gives_by_hand(results):
    model = ms.Model(DotProduct(sigma_0=0.0), norm_bound=1.0, noise=0.1)
    worlds = {
        "fresh": lambda e, s: ms.problems.fresh_actions(model, 3, 6, e, seed=s, rounds=80),
        "table": lambda e, s: ms.problems.sklearn_bandit("iris"),
        "trap": lambda e, s: ms.problems.contextual_trap(3, seed=s),
        "needle": lambda e, s: ms.problems.contextual_needle(3, 4, seed=s),
    }
    makers = {
        "LinUCB": lambda p, s: ms.comparators.LinUCB(p.arena, p.model, seed=s),
        "LinearThompson": lambda p, s: ms.comparators.LinearThompson(p.arena, p.model, seed=s),
        "RegretBalancing": lambda p, s: ms.RegretBalancing(p.arena, p.model, horizon=60, seed=s),
        "ECGPUCB": lambda p, s: ms.ECGPUCB(p.arena, p.model, epsilon=p.epsilon, seed=s),
        "UniformSampling": lambda p, s: ms.UniformSampling(p.arena, p.model, seed=s),
    }
    assert len(results.runs) == results.of == 5 * (2 + 1 + 1 + 1) * 2
    for each in results.runs:
        run = each.run
        problem = worlds[run.problem](run.epsilon, run.seed)
        trace = ms.simulate(makers[run.policy](problem, run.seed), problem, 60, seed=run.seed)
        np.testing.assert_array_equal(each.regret, trace.regret, err_msg=str(run))
        np.testing.assert_array_equal(each.table["index"], trace.index)
        assert each.facts["recommended_regret"] == trace.recommended_regret
        assert each.contextual
        index = trace.facts["recommendation"].index
        assert each.facts["recommended"] == index
        assert (index is None) == problem.fresh
        assert each.pictured == (run.seed == 0 and not problem.fresh)
        np.testing.assert_array_equal(tables.share_curve([each]).mean, trace.best_share)


def test_a_recommendation_is_judged_on_further_action_sets(results):
    """By hand: the average over sets of what is missed of the best of each."""
    problem = ms.problems.fresh_actions(
        ms.Model(DotProduct(sigma_0=0.0), norm_bound=1.0, noise=0.1), 3, 6, 0.1, seed=0, rounds=80
    )
    policy = ms.comparators.LinUCB(problem.arena, problem.model, seed=0)
    ms.simulate(policy, problem, 60, seed=0)
    missed = []
    for offered in problem.offers.draw(np.random.default_rng([0, 103]), 20):
        best = policy.recommend(actions=problem.domain.points[offered]).position
        missed.append(problem.values[offered].max() - problem.values[offered[best]])
    (each,) = [r for r in results.groups()[("fresh", 0.1)]["LinUCB"] if r.run.seed == 0]
    assert each.facts["recommended_regret"] == pytest.approx(np.mean(missed), abs=1e-15)
    row = tables.summary(results).filter(
        (pl.col("problem") == "fresh") & (pl.col("epsilon") == 0.1) & (pl.col("policy") == "LinUCB")
    )
    both = [r.facts["recommended_regret"] for r in results.groups()[("fresh", 0.1)]["LinUCB"]]
    assert row["recommended_regret"][0] == pytest.approx(np.mean(both))


@pytest.mark.usefixtures("undrawn")
def test_a_file_can_be_run_and_reported_from_the_command_line(tmp_path):
    file = tmp_path / "small.toml"
    small = HEAD.replace("seeds = 2", "seeds = 1").replace("horizon = 60", "horizon = 8").replace("[0.0, 0.1]", "[0.1]")
    file.write_text(small + FRESH + '[[policies]]\nkind = "LinearThompson"\n')
    for line in (["run", str(file), "--cores", "1"], ["report", str(tmp_path / "small-results")]):
        done = CliRunner().invoke(app, line)
        assert done.exit_code == 0, done.output
        assert "LinearThompson" in done.output
    report = tmp_path / "small-results" / "report"
    assert (report / "share-fresh.png").exists()
    gain = CliRunner().invoke(app, ["gain", str(file)])
    assert gain.exit_code == 1
    assert "where rounds bring the points" in " ".join(gain.output.split())


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [FRESH, *("[[problems]]" + part for part in OTHERS.split("[[problems]]")[1:])])
def test_a_policy_that_takes_no_actions_is_refused(problem):
    name = re.search('name = "(.*)"', problem)[1]
    said = refused(HEAD + problem + '[[policies]]\nkind = "PhasedUncertaintySampling"\n')
    assert f"PhasedUncertaintySampling plays no contextual problem, and {name} is one" in said


def test_linear_policies_are_refused_on_other_kernels_and_only_there():
    rbf = HEAD.replace('"DotProduct", sigma_0 = 0.0', '"RBF", length_scale = 1.0') + FRESH
    for kind in ("LinUCB", "LinearThompson"):
        policy = f'[[policies]]\nkind = "{kind}"\n'
        assert f"policies[0] ({kind}): {kind} needs a linear kernel" in refused(rbf + policy)
        assert f"policies[0] ({kind}) (on fresh): {kind} needs a linear kernel" in refused(rbf + OTHERS + policy)
    assert ex.parse((rbf + '[[policies]]\nkind = "GPUCB"\nbudget = 5\n').encode(), "t").runs()


def test_what_a_problem_cannot_be_is_said_before_the_first_run():
    policy = '[[policies]]\nkind = "LinUCB"\n'
    assert "dimension" in refused(HEAD + FRESH.replace("dimension = 3\n", "") + policy)
    assert "rounds must be" in refused(HEAD + FRESH.replace("rounds = 80", "rounds = 0") + policy)
    assert "leave actions out" in refused(HEAD + '[[problems]]\nkind = "sklearn_bandit"\nactions = 3\n' + policy)
    assert "needs a model" in refused(HEAD[: HEAD.index("[model]")] + FRESH + policy)
    paper = '[[policies]]\nkind = "RegretBalancing"\nas_in_paper = true\n'
    assert "gain=" in refused(HEAD + FRESH + paper)
    assert ex.parse((HEAD + FRESH + paper + "gain = 20.0\n").encode(), "t").runs()


def test_a_long_problem_is_tried_on_few_rounds(monkeypatch):
    made = []
    real = ms.problems.fresh_actions

    def counted(model, dimension, actions=20, epsilon=0.0, misfit="random", seed=0, *, rounds=5000):
        made.append(rounds)
        return real(model, dimension, actions, epsilon, misfit, seed, rounds=rounds)

    monkeypatch.setitem(ex.construct.PROBLEMS, "fresh_actions", counted)
    ex.parse((HEAD + FRESH.replace("rounds = 80", "") + POLICIES).encode(), "t")
    assert made == [12]


# -- pictures ----------------------------------------------------------------------------------------------------------


def test_a_title_stays_within_its_figure(results):
    """A problem without a name of its own is called by its settings."""
    groups = {e: group for (p, e), group in results.groups().items() if p == "table"}
    long = "sklearn_bandit(" + "a_long_argument=1, " * 8 + ")"
    figure = next(
        made
        for kind, made in figures.of_problem(long, groups, style.strokes(results.experiment), {})
        if kind == "share"
    )
    figure.canvas.draw()
    (title,) = [text for text in figure.texts if "sklearn_bandit" in text.get_text()]
    extent = title.get_window_extent()
    assert extent.x0 >= 0
    assert extent.x1 <= figure.bbox.x1


def test_the_share_of_the_best_action_is_what_a_plain_count_gives(results):
    group = results.groups()[("trap", next(e for p, e in results.groups() if p == "trap"))]["ECGPUCB"]
    curve = tables.share_curve(group)
    counted = [
        [sum(1 for r in each.table["regret"].to_list()[:t] if r <= 0) / t for t in range(1, 61)] for each in group
    ]
    np.testing.assert_allclose(curve.mean, np.mean(counted, axis=0))
    assert (curve.low >= 0).all()
    assert (curve.high <= 1).all()
    assert curve.mean[-1] > 0.5  # it learns


def test_shares_are_drawn_for_contextual_problems_only(results, tmp_path):
    groups = {e: group for (p, e), group in results.groups().items() if p == "fresh"}
    strokes = style.strokes(results.experiment)
    drawn = next(made for kind, made in figures.of_problem("fresh", groups, strokes, {}) if kind == "share")
    assert [len(ax.lines) for ax in drawn.axes] == [5, 5]
    on_page = figures.on_page(groups[0.1], strokes, {})["share"]
    assert sum(trace.get("showlegend", True) for trace in on_page["data"]) == 5
    plain = HEAD + '[domain]\nbox = [[0, 1]]\ngrid = 4\n[[problems]]\nmisfit = "random"\n[[policies]]\nkind = "GPUCB"\n'
    ex.go(plain.replace("horizon = 60", "horizon = 5").encode(), tmp_path, cores=1)
    found = ex.results(tmp_path)
    (key, group), *_ = found.groups().items()
    strokes = style.strokes(found.experiment)
    assert dict(figures.of_problem(key[0], {key[1]: group}, strokes, {}))["share"] is None
    assert figures.on_page(group, strokes, {})["share"] is None


def test_the_page_has_figures_but_no_bands_where_rounds_bring_vectors(results):
    text = page.page(results, tables.summary(results), theorems.all_bounds(results))
    parsed = embedded(text)
    names = [(problem["name"], number) for problem in parsed["index"] for _, number, _ in problem["epsilons"]]
    for name, number in names:
        group = parsed[f"group-{number}"]
        assert group["figures"]["share"]["data"], name
        assert group["figures"]["bases"]["data"], name
        assert len(group["cards"]) == (5 if name in ("trap", "needle") else 0)


def test_a_theorem_is_drawn_for_linear_kernels_and_new_vectors(results, monkeypatch):
    groups = results.groups()
    ((name, x, y, _),) = theorems.bounds(groups[("fresh", 0.0)]["LinUCB"])
    problem = ms.problems.fresh_actions(
        ms.Model(DotProduct(sigma_0=0.0), norm_bound=1.0, noise=0.1), 3, 6, 0.0, seed=0, rounds=80
    )
    gain = ms.information_gain(problem.domain, problem.model, 60)
    assert name == "Theorem 1"
    np.testing.assert_allclose(y, ms.theory.ec_gp_ucb_bound(problem.model, x.astype(int), gain, 0.0, cap=False))
    assert not theorems.bounds(groups[("fresh", 0.1)]["LinUCB"])  # the model is wrong there
    assert not theorems.bounds(groups[("fresh", 0.0)]["ECGPUCB"])  # own bands are about one action set
    monkeypatch.setattr(theorems, "MOST_WORK", 1.0)
    assert not theorems.bounds(groups[("fresh", 0.0)]["LinUCB"])


def test_every_figure_is_made(results):
    with rc_context(matplotlib_backend.RC):
        names = {name for name, _ in figures.draw(results, theorems.all_bounds(results))}
    for problem in ("fresh", "table", "trap", "needle"):
        assert {f"{kind}-{problem}" for kind in ("regret", "share", "bases", "coverage")} <= names
    assert "bound-fresh" in names
    pictured = {name.rpartition("-")[2] for name in names if name.startswith("band-")}
    assert pictured == {"trap", "needle"}  # there is no list to draw bands over where rounds bring vectors
