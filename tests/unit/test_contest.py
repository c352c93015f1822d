"""The demo: reactions that know their truth, who gets most out of them without constants, and the command itself."""

import functools
import importlib
import os
import re
import signal
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import misspec as ms
from files import head, started
from misspec import experiments as ex
from misspec import reports
from misspec.cli import app
from misspec.errors import MisspecError, StorageError
from misspec.experiments import contest
from misspec.reports import plotly_backend
from misspec.reports.figures import contest as panel_of
from misspec.reports.figures import contest_figure as figure
from misspec.reports.page import section

simulated = importlib.import_module("misspec.problems.synthetic")
SMALL = head(30, 2, [0.0, 0.2], grid=12, title="Small") + '[[problems]]\n[[policies]]\nkind = "GPUCB"\n'
NAMES = ["ms.Auto", "Optuna", "random search"]


def of(averages, seeds=3, batches=4, names=NAMES):
    """A contest in which every batch of a player gives the same."""
    truth = np.tile(np.array(averages, dtype=float)[:, None, None], (1, seeds, batches))
    return ex.Contest(list(names), truth, truth + 1.0, 95.0, "About <it>", ["Use a & b."])


# -- the problem ---------------------------------------------------------------------------------------------------


def test_a_reaction_knows_its_truth():
    problem = ms.problems.reaction(solve=False)
    assert len(problem.domain) == 12 * 4 * 4 * 4 * 3 == len(problem.values)
    assert problem.values.max() == pytest.approx(95.0)
    assert problem.values.min() >= 0
    assert problem.domain.rows[problem.best].keys() == simulated.CONDITIONS.keys()
    assert problem.sampler.noise == problem.model.noise == 5.0
    np.testing.assert_array_equal(ms.problems.reaction(solve=False).values, problem.values)
    assert not np.array_equal(ms.problems.reaction(1, solve=False).values, problem.values)  # another reaction


def test_good_conditions_are_rare_in_every_reaction():
    for seed in range(8):
        values = ms.problems.reaction(seed, solve=False).values
        assert np.median(values) < 20
        assert 0 < np.mean(values > 85) < 0.1


def test_yields_are_those_of_the_reactions_equations():
    from scipy.integrate import solve_ivp

    for forward, decay in [(0.3, 0.02), (5.0, 1.0), (0.1, 3.0), (0.7, 0.7)]:
        solved = solve_ivp(
            lambda _, c, k=(forward, decay): [-k[0] * c[0], k[0] * c[0] - k[1] * c[1]], (0, 1), [1.0, 0.0], rtol=1e-9
        )
        found = simulated._intermediate(np.array([forward]), np.array([decay]))
        assert found[0] == pytest.approx(solved.y[1, -1], abs=1e-6)


def test_no_smooth_model_fits_a_reaction():
    problem = ms.problems.reaction(2)
    assert 5.0 < problem.epsilon < ms.problems.reaction(2, solve=False).epsilon
    assert np.abs(problem.misfit).max() <= problem.epsilon + 1e-6


def test_a_reaction_can_be_named_in_a_file(tmp_path):
    text = 'horizon = 5\nseeds = 1\n[[problems]]\nkind = "reaction"\nsolve = false\n[[policies]]\nkind = "GPUCB"\n'
    assert not ex.go(text.encode(), tmp_path, cores=1).failed
    assert len(ex.results(tmp_path).runs) == 1


# -- the contest ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_numbers_on_any_number_of_cores_and_the_same_noise_for_all(tmp_path):
    seen = []
    one = ex.contest_in(tmp_path / "one", 7, 2, cores=1, show=lambda p: seen.append((p.rounds, p.runs)))
    two = ex.contest_in(tmp_path / "two", 7, 2, cores=2)
    assert one.players == NAMES
    np.testing.assert_array_equal(one.truth, two.truth)
    np.testing.assert_array_equal(one.y, two.y)
    assert one.said == two.said
    noise = one.y - one.truth
    np.testing.assert_allclose(noise, np.broadcast_to(noise[0], noise.shape), atol=1e-9)
    assert noise[0].std() > 1.0
    assert not np.allclose(noise[0, 0], noise[0, 1])  # another seed has other noise
    values = [ms.problems.reaction(seed, solve=False).values for seed in (0, 1)]
    for seed in (0, 1):
        assert np.abs(one.truth[:, seed, :, None] - values[seed]).min(axis=-1).max() < 1e-9
    assert seen[0] == (0, 0)
    assert seen[-1] == (2 * 3 * 7, 6)
    assert one.said[0].startswith("Use ligand = ")
    assert one.said[-1].startswith("It would try next: ligand = ")


def test_optuna_as_a_policy_is_a_study_of_optunas():
    """The same batches as in a study in which text is categorical, and numbers are whole ones in their order."""
    import optuna

    from misspec.integrations.optuna.peer import TPE

    problem = ms.problems.reaction(solve=False)
    trace = ms.simulate(TPE(problem.domain, problem.model, seed=3), problem, 30)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=3))
    conditions = simulated.CONDITIONS
    for index, y in zip(trace.index, trace.y, strict=True):
        trial = study.ask()
        row = {
            name: trial.suggest_categorical(name, values)
            if isinstance(values[0], str)
            else values[trial.suggest_int(name, 0, len(values) - 1)]
            for name, values in conditions.items()
        }
        assert problem.domain.rows[index] == row
        study.tell(trial, y)


def test_what_is_found_is_the_truth_at_the_best_result_so_far():
    truth = np.array([[[10.0, 50.0, 40.0, 90.0]]])
    y = np.array([[[10.0, 20.0, 45.0, 45.0]]])  # the last only equals the best: the first of the two stands
    found = ex.Contest(["ms.Auto"], truth, y, 95.0, "", [])
    np.testing.assert_array_equal(found.found[0, 0], [10, 50, 40, 40])
    np.testing.assert_allclose(found.average[0, 0], [10, 30, 100 / 3, 47.5])
    assert found.rows() == [("ms.Auto", 47.5, 47.5, 40.0)]


def test_the_sentences_say_what_the_figures_say():
    message, found = of([40, 30, 20]).sentences
    assert message == (
        "The 4 batches of ms.Auto gave 40 % on average, 10 points more than Optuna and 20 points more than random "
        "search."
    )
    assert found == (
        "The best conditions found truly give 40 % (ms.Auto), 30 % (Optuna), 20 % (random search), of 95 % that are "
        "possible. Medians of 3 reactions."
    )
    message, _ = of([40, 41, 40.2]).sentences
    assert "1 point less than Optuna and as much as random search." in message


def test_it_works_without_optuna(tmp_path, monkeypatch):
    monkeypatch.setattr(contest.importlib.util, "find_spec", lambda name: None)
    found = ex.contest_in(tmp_path, 6, 1, cores=1)
    assert found.players == ["ms.Auto", "random search"]
    assert "Optuna" not in found.about + " ".join(found.sentences) + section(found)
    assert figure(found).axes[0].texts


def test_a_player_that_fails_is_one_line(tmp_path, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(ms.UniformSampling, "choose", broken)
    with pytest.raises(MisspecError, match=r"random search.*seed 0.*: unexpected ZeroDivisionError: oh$"):
        ex.contest_in(tmp_path, 6, 1, cores=1)
    assert contest.kept_contest(tmp_path) is None  # not all of it


def test_the_picture_and_the_page_show_every_player():
    found = of([60, 59, 20])
    texts = [each.get_text() for each in figure(found).axes[0].texts]
    assert texts[:2] == ["ms.Auto: 60 %", "best found: 60 %"]
    heights = [each.xy[1] for each in figure(found).axes[0].texts[:6:2]]
    assert min(np.abs(np.diff(np.sort(heights)))) > 5  # none covers another
    assert [trace["name"] for trace in plotly_backend.figure_json(panel_of(found), 380)["data"][2::3]] == NAMES
    text = section(found)
    assert "About &lt;it&gt;" in text
    assert "Use a &amp; b." in text
    assert re.findall(r"<td>(.*?)</td>", text)[:4] == ["ms.Auto", "60.0", "60.0", "60.0"]


# -- kept in a folder ----------------------------------------------------------------------------------------------


def test_it_is_kept_and_not_played_twice(tmp_path, monkeypatch):
    first = ex.contest_in(tmp_path / "d", 6, 1, cores=1)
    seen = []
    again = ex.contest_in(tmp_path / "d", 6, 1, cores=1, show=lambda p: seen.append((p.before, p.of)))
    assert set(seen) == {(3, 0)}
    np.testing.assert_array_equal(again.truth, first.truth)
    np.testing.assert_array_equal(again.y, first.y)
    assert (again.players, again.best, again.about, again.said) == (first.players, 95.0, first.about, first.said)
    file = next((tmp_path / "d" / contest.FOLDER / "runs").glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(StorageError, match="sets it aside and does that run again"):
        contest.kept_contest(tmp_path / "d")
    assert ex.contest_in(tmp_path / "d", 6, 1, cores=1).said == first.said
    monkeypatch.setattr(contest.store, "version", lambda: "another")
    assert contest.kept_contest(tmp_path / "d") is None


def test_the_folder_of_another_experiment_is_left_alone(tmp_path):
    ex.go(SMALL.encode(), tmp_path, cores=1, name="mine.toml")
    with pytest.raises(StorageError, match=r"holds the results of mine\.toml"):
        ex.contest_in(tmp_path)
    assert not (tmp_path / contest.FOLDER).exists()


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("undrawn")
def test_the_demo(tmp_path, monkeypatch):
    """Both parts in the order of the story, then one page with both; a second time nothing is done again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(ex, "demo", SMALL.encode)
    monkeypatch.setattr(contest, "demo", SMALL.encode)
    monkeypatch.setattr(ex, "contest_in", functools.partial(ex.contest_in, evaluations=6, seeds=2))
    done = CliRunner().invoke(app, ["demo", "--cores", "1"], prog_name="misspec")
    assert done.exit_code == 0, done.output
    order = ("1. Without constants", "best found", "The 6 batches of ms.Auto gave", "It would try next: ligand = ",
             "2. With guarantees: Small", "bands held")  # fmt: skip
    places = [done.stdout.index(each) for each in order]
    assert places == sorted(places)
    above, line = re.search(r"(.*)\n(.*policy.*held.*)\n", done.stdout).groups()
    assert re.split(r"\s{2,}", above.strip()) == ["recommen-", "bands", "late"]
    assert re.split(r"\s{2,}", line.strip()) == ["ε", "policy", "dation", "held", "regret", "regret", "compared"]
    text = (tmp_path / "misspec-demo" / "report" / "index.html").read_text(encoding="utf-8")
    assert text.index("Without constants: ms.Auto beside Optuna and random search") < text.index(
        "With guarantees: Small"
    )
    assert (tmp_path / "misspec-demo" / "report" / "contest.png").exists()
    again = CliRunner().invoke(app, ["demo", "--cores", "1"], prog_name="misspec")
    assert "6 of 6 runs were done before" in again.stdout
    assert "4 of 4 runs were done before" in again.stdout
    assert "contest-data" in reports.of_experiment("misspec-demo").page.read_text(encoding="utf-8")


def test_ctrl_c_in_the_first_part_is_one_line(tmp_path):
    with started("-m", "misspec.cli", "demo", "--into", "my demo", "--cores", 2, cwd=tmp_path) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "my demo" / contest.FOLDER / "experiment.toml").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    (line,) = err.splitlines()
    assert re.fullmatch(r"misspec: stopped; .*go on with: misspec demo --into 'my demo'", line)
