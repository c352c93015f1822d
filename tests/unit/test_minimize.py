"""Smaller is better: inside, −y is maximised; everything that people see is in their own sign."""

import copy
import csv
import json
import pickle

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF
from typer.testing import CliRunner

import misspec as ms
from files import head
from misspec import experiments as ex
from misspec.cli import app
from misspec.errors import InvalidInput
from misspec.reports import bands, style, tables
from misspec.reports.optimisation import Optimisation

FILE = (
    head(25, 1, [0.2], grid=9)
    + """
[[problems]]
misfit = "ripple"
wavelength = 0.3
[[policies]]
kind = "ECGPUCB"
[[policies]]
kind = "PhasedUncertaintySampling"
"""
)
LOSSES = '''
import numpy as np
import misspec as ms

def losses(domain, model, seed):
    """A loss around 5 that is smallest at the right end."""
    return ms.problems.from_values(domain, model, model.offset + 1 - 2 * domain.points[:, 0], name="losses")
'''
OWN = (
    head(25, 1, [], grid=9).replace("noise = 0.1", "noise = 0.1\noffset = 5.0")
    + """
[[problems]]
kind = "minimize_losses:losses"
[[policies]]
kind = "ECGPUCB"
"""
)


def done(text, folder):
    progress = ex.go(text.encode(), folder, cores=1)
    assert not progress.failed
    return ex.results(folder).runs


def test_a_problem_upside_down():
    problem = ms.problems.misspecified(
        ms.Box([(0, 1)]).grid(9), ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1, offset=3.0), epsilon=0.1
    )
    loss = ms.problems.negated(problem)
    np.testing.assert_array_equal(loss.values, -problem.values)
    np.testing.assert_array_equal(loss.in_class, -problem.in_class)
    assert loss.model.offset == -3.0
    assert loss.minimize
    assert loss.best == problem.best == problem.values.argmax()
    assert loss.sampler.at(2, 0.5) == -0.5
    again = ms.problems.negated(loss)
    assert again.sampler is problem.sampler
    np.testing.assert_array_equal(again.values, problem.values)


def test_runs_that_maximise_keep_their_keys_and_those_that_minimise_have_others():
    up, down = (ex.parse(f"{first}{FILE}".encode(), "f.toml").runs() for first in ("", "minimize = true\n"))
    assert [run.key for run in up] == ["639c024d06615eddce1d", "34bb9e82ad92417908f4"]  # they find finished runs
    assert not {run.key for run in up} & {run.key for run in down}
    said = ex.parse(f"minimize = false\n{FILE}".encode(), "f.toml").runs()
    assert [run.key for run in said] == [run.key for run in up]
    own = ex.parse(FILE.replace("[[problems]]", "[[problems]]\nminimize = true").encode(), "f.toml").runs()
    assert [run.key for run in own] == [run.key for run in down]


def test_misspecs_own_problems_are_played_as_ever_and_shown_upside_down(tmp_path):
    for up, down in zip(done(FILE, tmp_path / "up"), done("minimize = true\n" + FILE, tmp_path / "down"), strict=True):
        np.testing.assert_array_equal(up.regret, down.regret)
        assert (down.regret >= 0).all()
        for name in ("y", "mean", "upper"):
            np.testing.assert_array_equal(up.table[name].to_numpy(), -down.table[name].to_numpy())
        assert down.facts["best"] == min(down.facts["truth"]) == -up.facts["best"]
        assert down.looks["covered"].to_list() == up.looks["covered"].to_list()
        last = {name: np.array(down.looks[name].to_list()[-1]) for name in ("band_lower", "band_mean", "band_upper")}
        assert (last["band_lower"] <= last["band_upper"]).all()
        np.testing.assert_array_equal(last["band_lower"], -np.array(up.looks["band_upper"].to_list()[-1]))
        assert tables.best_first(down)[0] == np.argmin(down.facts["truth"])
        assert not up.minimize
        assert down.minimize


def test_a_loss_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "minimize_losses.py").write_text(LOSSES)
    monkeypatch.syspath_prepend(tmp_path)
    with ex.allow("minimize_losses"):
        (up,), (down,) = done(OWN, tmp_path / "up"), done("minimize = true\n" + OWN, tmp_path / "down")
    assert up.facts["truth"] == down.facts["truth"]
    assert up.facts["best"] == max(up.facts["truth"])
    assert down.facts["best"] == min(down.facts["truth"]) == 4.0
    played = [np.bincount(each.table["index"], minlength=9) for each in (up, down)]
    assert played[0][0] > 12  # the left end is the largest
    assert played[1][8] > 12
    truth, y = np.array(down.facts["truth"]), down.table["y"].to_numpy()
    assert np.abs(y - truth[down.table["index"].to_numpy()]).max() < 0.5  # the user's sign
    np.testing.assert_allclose(down.regret, truth[down.table["index"].to_numpy()] - 4.0, atol=1e-12)
    assert down.looks["covered"].min() == 1.0
    assert np.abs(np.array(down.looks["band_mean"].to_list()[-1]) - truth).max() < 0.5
    assert down.facts["recommended_regret"] == 0.0


def test_reports_say_which_way_is_better(tmp_path):
    done("minimize = true\n" + FILE, tmp_path)
    found = ex.results(tmp_path)
    (group,) = found.groups().values()
    figure = bands.band_figure("p", "0.2", group, style.strokes(found.experiment))
    assert "smaller is better" in figure.get_suptitle().replace("\n", " ")
    run = group["ECGPUCB"][0]
    axis = next(ax for ax in figure.axes if ax.get_title(loc="left") == "ECGPUCB")
    drawn = {line.get_label(): line.get_ydata() for line in axis.get_lines()}
    np.testing.assert_array_equal(drawn["f*, the truth"], run.facts["truth"])
    assert "smaller is better" in bands.keys(run)


def test_compare():
    domain, model = ms.Box([(0, 1)]).grid(9), ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1, offset=3.0)
    loss = ms.problems.from_values(domain, model, 3.0 + domain.points[:, 0], minimize=True)
    policies = {"EC": lambda p: ms.ECGPUCB(p.domain, p.model, epsilon=p.epsilon, minimize=p.minimize)}
    down = ex.compare(policies, loss, 20, 1, cores=1)
    assert down["late"][0] < 0.2
    assert down.equals(ex.compare(policies, ms.problems.negated(loss), 20, 1, cores=1))
    with pytest.raises(InvalidInput, match="smaller values of this problem are better"):
        ms.simulate(ms.GPUCB(domain, model), loss, 5)
    with pytest.raises(InvalidInput, match="minimize must be True or False"):
        ms.problems.from_values(domain, model, domain.points[:, 0] + 3.0, minimize="yes")


C = ms.comparators
KINDS = [
    (ms.GPUCB, {}),
    (ms.GPUCB, {"grounded": True, "width": 2.0}),
    (ms.ECGPUCB, {"epsilon": 0.1}),
    (ms.InsuredUCB, {}),
    (ms.RegretBalancing, {"horizon": 30}),
    (ms.PhasedUncertaintySampling, {"horizon": 40}),
    (ms.ThompsonSampling, {}),
    (ms.UniformSampling, {}),
    (C.IGPUCB, {}),
    (C.GPTS, {}),
    (C.LBGPUCB, {"horizon": 30}),
    (C.Corral, {"horizon": 30}),
    (C.DomainSplitting, {"epsilon": 0.1}),
    (C.RIPS, {"horizon": 400}),
    (C.PhasedElimination, {"horizon": 400}),
    (C.CorruptionTolerantGPUCB, {"corruption": 1.0}),
]
GRID = ms.Box([(0, 1)]).grid(25)
TRUTH = np.sin(5 * GRID.points[:, 0]) + 3.0
ABOVE = ms.Model(RBF(0.2), norm_bound=3.0, noise=0.1, offset=3.0)


def mirrored(make):
    """A policy that maximises y and one that minimises −y, each after 30 results, with their queries."""
    for sign in (1.0, -1.0):
        policy, rng, queries = make(sign), np.random.default_rng(0), []
        for _ in range(30):
            queries.append(policy.ask())
            policy.tell(queries[-1], sign * (TRUTH[queries[-1].index] + 0.1 * rng.standard_normal()))
        yield policy, queries


@pytest.mark.parametrize(("kind", "settings"), KINDS)
def test_every_policy_minimises_as_it_maximises_to_the_bit(kind, settings):
    (up, asked), (down, turned) = mirrored(
        lambda sign: kind(GRID, ABOVE if sign > 0 else ABOVE.turned(), minimize=sign < 0, **settings)
    )
    assert [q.index for q in asked] == [q.index for q in turned]
    np.testing.assert_array_equal([q.mean for q in asked], [-q.mean for q in turned])
    np.testing.assert_array_equal([q.upper for q in asked], [-q.upper for q in turned])
    np.testing.assert_array_equal([q.std for q in asked], [q.std for q in turned])
    np.testing.assert_array_equal(up.observations.y, -down.observations.y)
    np.testing.assert_array_equal(up.band().lower, -down.band().upper)
    np.testing.assert_array_equal(up.band().upper, -down.band().lower)
    best, least = up.recommend(), down.recommend()
    assert (best.index, best.gap, best.tried, best.caveats) == (least.index, least.gap, least.tried, least.caveats)
    assert (best.mean, best.lower, best.upper) == (-least.mean, -least.upper, -least.lower)
    if down.remaining is None:  # else only complete episodes count
        assert least.tried == (down.observations.x == least.x).all(axis=1).sum()
    for one, other in zip(up.posterior.at(GRID.points), down.posterior.at(GRID.points), strict=True):
        np.testing.assert_array_equal(np.abs(one), np.abs(other))
    assert (up.posterior.at(GRID.points)[0] > 0).all()
    assert (down.posterior.at(GRID.points)[0] < 0).all()
    assert [c.epsilon for c in up.conflicts()] == [c.epsilon for c in down.conflicts()]
    assert down.model_as_given == ABOVE.turned()
    again = ms.restore(down.state())
    assert again.minimize
    assert again.recommend().mean == least.mean
    if down.remaining is None:
        assert again.ask().index == down.ask().index == up.ask().index


def test_a_minimising_policy_observes_undoes_and_finds_conflicts():
    up, down = (
        ms.GPUCB(GRID, ABOVE if sign > 0 else ABOVE.turned(), grounded=True, minimize=sign < 0) for sign in (1, -1)
    )
    y = TRUTH.copy()
    y[7] -= 3.0  # what no member of the class does
    for policy, sign in ((up, 1.0), (down, -1.0)):
        policy.observe(np.repeat(np.arange(25), 20), sign * np.repeat(y, 20))
        policy.mark_pending([3])
    assert up.conflicts()
    assert [(c.index, c.gap) for c in up.conflicts()] == [(c.index, c.gap) for c in down.conflicts()]
    for policy in (up, down):
        before = policy.recommend().mean
        (query,) = policy.pending
        with pytest.raises(InvalidInput):
            policy.tell([query, 99], [1.0, 2.0])
        policy.drop(query)
        assert policy.recommend().mean == before


def test_bases_that_are_handed_in_are_in_the_users_sign():
    for sign in (1.0, -1.0):
        model = ABOVE if sign > 0 else ABOVE.turned()
        policy = ms.RegretBalancing(GRID, model, horizon=30, bases=[(model, 0.0), (model, 0.2)], minimize=sign < 0)
        assert [base.model.offset for base in policy._bases] == [3.0, 3.0]
        assert policy.model_as_given.offset == sign * 3.0
        assert ms.restore(policy.state())._bases[1].model.offset == 3.0


def bowl(x):
    return 2.0 + float((x[0] - 0.25) ** 2)


def test_optimize_and_report(tmp_path):
    model = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.05, offset=2.0)
    policy = ms.GPUCB(ms.Box([(0, 1)]).grid(21), model, width=2.0, minimize=True)
    found = ms.optimize(policy, bowl, 12)
    assert found.y.min() >= 2.0
    assert found.recommendation.lower <= found.recommendation.mean <= found.recommendation.upper
    assert abs(float(found.recommendation.x[0]) - 0.25) < 0.11
    assert abs(found.recommendation.mean - 2.0) < 0.1
    assert policy.observations.y.min() >= 2.0  # as it was told
    assert found.best.mean == found.y.min()
    assert found.best.x[0] == found.x[found.y.argmin()][0]
    assert found.best.tried == (found.x == found.best.x).sum()
    shown = Optimisation(policy)
    np.testing.assert_array_equal(shown.y, found.y)
    assert (np.diff(shown.best) <= 0).all()
    assert shown.minimize
    assert shown.about.endswith("smaller is better")
    assert "of the best of these 2" in " ".join(shown.sentences)
    assert all((each.lower <= each.upper).all() and (each.upper > 0).all() for each in shown.slices)
    assert shown.points.averages.min() >= 2.0
    ms.reports.of_policy(policy, tmp_path / "report")
    with (tmp_path / "report" / "evaluations.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert [float(row[-1]) for row in rows[1:]] == found.y.tolist()
    more = ms.optimize(policy, bowl, 3)
    assert policy.t == 15
    assert more.recommendation.mean > 0


def test_the_best_is_that_of_the_largest_average():
    results = iter([5.0, 1.0, 4.0, 4.0, 0.0, 0.0])
    rows = iter([0, 1, 2, 2, 0, 1])

    class Fixed(ms.UniformSampling):
        def choose(self, actions):
            chosen = super().choose(actions)
            row = next(rows)
            return chosen._replace(place=self.field.place(self.field.whole("all"), row))

    model = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.05)
    found = ms.optimize(Fixed(ms.Finite([[0.0], [0.5], [1.0]]), model), lambda x: next(results), 6)
    assert (found.best.index, found.best.mean, found.best.tried) == (2, 4.0, 2)
    assert found.best.x.tolist() == [1.0]


def test_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.toml").write_text(FILE)

    def call(*arguments):
        return CliRunner().invoke(app, [*arguments], prog_name="misspec")

    assert call("run", "file.toml", "--cores", "1", "--minimize").exit_code == 0
    assert all(each.minimize for each in ex.results("file-results").runs)
    assert json.loads(json.dumps(ex.results("file-results").runs[0].facts["settings"]["minimize"])) is True
    (tmp_path / "no.toml").write_text("minimize = false\n" + FILE)
    refused = call("run", "no.toml", "--cores", "1", "--minimize")
    assert refused.exit_code == 1
    assert "no.toml says minimize = false; change that line" in refused.stderr
    (tmp_path / "yes.toml").write_text("minimize = true\n" + FILE)
    assert call("run", "yes.toml", "--cores", "1", "--minimize").exit_code == 0
    (tmp_path / "odd.toml").write_text('minimize = "no"\n' + FILE)
    assert "minimize: input should be a valid boolean, got 'no'" in call("run", "odd.toml").stderr


def test_the_posterior_of_a_minimiser_can_be_copied():
    policy = ms.GPUCB(GRID, ABOVE, minimize=True)
    policy.observe([3], [2.0])
    for twin in (copy.deepcopy(policy.posterior), pickle.loads(pickle.dumps(policy.posterior))):
        np.testing.assert_array_equal(twin.mean, policy.posterior.mean)
