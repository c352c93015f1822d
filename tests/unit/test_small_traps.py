"""What trips up new users: nothing to evaluate, a NaN, help in fragments, extras that are missing, idle parameters."""

import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import misspec as ms
from misspec.cli import app
from misspec.integrations import space_file

COMMANDS = ["demo", "run", "report", "gain", "diagnose", "optimize", "suggest"]
SPACE = {"x": ms.Float(0, 1), "y": ms.Float(0, 1)}


# -- optimize(…, 0) ----------------------------------------------------------------------------------------------------


def policies():
    space, box = ms.Space(SPACE), ms.Box([(0, 1)])
    model = ms.Model(ms.product_kernel(box), norm_bound=2.0, noise=0.1)
    return {
        "auto": ms.Auto(space),
        "limits": ms.Auto(space, limits="impurity < 2"),
        "gp": ms.GPUCB(box, model),
        "phased": ms.PhasedUncertaintySampling(box.grid(9), model, horizon=20),
        "balancing": ms.RegretBalancing(box.grid(9), model, horizon=20),
        "balanced": ms.Balanced([ms.Auto(space), ms.Auto(space, aim="earn")]),
    }


@pytest.mark.parametrize("options", [{}, {"workers": 2}, {"until": "rule"}, {"batch": 3}], ids=str)
@pytest.mark.parametrize("kind", policies())
def test_nothing_to_evaluate_returns_what_is_known(kind, options):
    policy = policies()[kind]
    if options.get("until"):
        options = {"until": ms.until()} if isinstance(policy, ms.Auto) else {}  # the rule reads its model
    before = policy.state()
    found = ms.optimize(policy, None.__class__, 0, **options)  # which is never called
    assert policy.state() == before
    assert len(found) == 0
    assert found.best is None
    assert found.x.shape == (0, policy.domain.dimension)
    assert found.recommendation.tried == 0
    assert bool(policy.domain.contains(found.recommendation.x[None, :])[0])
    if isinstance(policy, ms.Auto):
        assert not found.recommendation.guaranteed


def test_nothing_to_evaluate_after_results_recommends_from_them():
    policy = ms.Auto(ms.Space(SPACE))
    ms.optimize(policy, lambda at: -((at["x"] - 0.5) ** 2), 7)
    again = ms.optimize(policy, lambda _: 1 / 0, 0)
    np.testing.assert_array_equal(again.recommendation.x, policy.recommend().x)
    assert len(again) == 0


# -- errors that say what to do ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [float("nan"), float("inf"), None, "0.5"])
@pytest.mark.parametrize("workers", [None, 2])
def test_a_result_that_is_none_names_the_way_out(result, workers):
    policy = ms.Auto(ms.Space(SPACE))
    with pytest.raises(ms.InvalidInput, match="on_error='drop'") as error:
        ms.optimize(policy, lambda _: result, 3, workers=workers)
    assert "finite number" in str(error.value)
    once = iter([result, 0.1, 0.2, 0.3])
    assert ms.optimize(ms.Auto(ms.Space(SPACE)), lambda _: next(once), 3, on_error="drop").y.tolist() == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    ("missing", "module", "extra"),
    [
        ("optuna", "misspec.integrations.optuna", "optuna"),
        ("optuna", "misspec.integrations.command", "optuna"),
        ("polars", "misspec.experiments", "experiments"),
        ("pydantic", "misspec.experiments", "experiments"),
        ("polars", "misspec.reports", "experiments"),
        ("torch", "misspec.integrations.botorch", "botorch"),
    ],
)
def test_imports_name_the_extra(missing, module, extra):
    code = f"import sys; sys.modules[{missing!r}] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert f"pip install 'misspec[{extra}]'" in last
    assert module in last
    assert missing in last


def test_importing_misspec_and_its_shell_stays_light():
    heavy = ["sklearn", "scipy.stats", "polars", "matplotlib", "plotly", "typer", "optuna", "pydantic"]
    code = f"import sys, misspec; print([each for each in {heavy} if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- parameters that do not exist --------------------------------------------------------------------------------------


def branches():
    return ms.Space({
        "model": ms.Choice(["svm", "forest"]),
        "depth": ms.Int(1, 20, when={"model": "forest"}),
        "rate": ms.Float(0.5, 2, when={"model": "svm"}),
    })  # fmt: skip


def test_a_value_that_does_not_count_is_warned_of():
    policy = ms.Auto(branches())
    with pytest.warns(UserWarning, match="the value of 'depth' in row 1 does not count: depth exists only where model"):
        policy.observe([{"model": "forest", "depth": 7}, {"model": "svm", "depth": 7, "rate": 1.0}], [0.9, 0.8])
    assert policy.observations.x[1].tolist() == [0.0, 1.0, 1.0]
    with pytest.warns(UserWarning, match="nor do 1 more such values"):
        policy.ask(actions=[{"model": "svm", "depth": 7, "rate": 1.0}, {"model": "forest", "depth": 3, "rate": 1.0}])


def test_what_is_left_out_empty_or_an_array_is_not_warned_of():
    policy = ms.Auto(branches())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.observe([{"model": "svm", "rate": 1.0}, {"model": "forest", "depth": 3, "rate": None}], [1.0, 2.0])
        policy.observe(np.array([[0.0, 9.0, 1.5]]), [1.0])  # x has a number for every parameter
        query = policy.ask()
        policy.observe([dict(query.params)], [0.5])
    assert policy.t == 4  # all of them are data


# -- the shell ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words, code=0):
        found = CliRunner().invoke(app, list(words), prog_name="misspec")
        assert found.exit_code == code, found.output
        return found.stderr if code else found.stdout

    return run


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_plain(shell, command):
    text = shell(*([command] if command else []), "--help")
    assert not re.search(r"<\w[\w ]*>|\[\[|list\[", text), text  # names of Python's types
    assert "Usage: misspec" in text


def test_every_option_is_a_sentence_and_says_what_it_takes():
    group = typer.main.get_command(app)
    assert set(group.commands) == set(COMMANDS)
    for name, command in group.commands.items():
        said = [command.help.strip().split("\n\n")[0], *(each.help for each in command.params if each.name != "help")]
        for text in said:
            assert text[0].isupper(), (name, text)
            assert text.rstrip(")").endswith("."), (name, text)
            assert len(text) <= 160, (name, text)
        assert "\n" not in said[0].strip() or len(said[0]) < 120
        for each in command.params:
            flag = getattr(each, "is_flag", False)
            assert flag or each.metavar, (name, each.name)


@pytest.mark.parametrize("words", [(), ("--",), ("--", ""), ("--", " "), ("--shell", "--", "")])
def test_a_command_without_words_is_said(shell, tmp_path, words):
    (tmp_path / "space.toml").write_text("a = { low = 0.0, high = 1.0 }\n")
    assert "there is no command; write it after --" in shell("optimize", "space.toml", *words, code=1)
    assert not (tmp_path / "misspec.db").exists()


def test_optimize_says_what_its_parameters_are(shell, tmp_path):
    pytest.importorskip("optuna")
    (tmp_path / "space.toml").write_text(
        "a = { low = 0, high = 1 }\nb = { low = 1e-3, high = 1.0, log = true }\n"
        'c = ["x", "y"]\nd = { low = 0, high = 8, step = 2, when = { c = "x" } }\ne = { low = 3, high = 3 }\n'
    )
    out = shell("optimize", "space.toml", "-n", "1", "--", "echo", "{params}", "1.5")
    assert out.splitlines()[:5] == [
        "a: whole numbers from 0 to 1",
        "b: numbers from 0.001 to 1 on a logarithmic scale",
        "c: x or y",
        "d: whole numbers from 0 to 8 in steps of 2, where c is x",
        "e: always 3",
    ]


def test_parameters_in_words_are_those_of_the_space():
    space = ms.Space({"b": ms.Float(0, 1, step=0.25), "m": ms.Choice(["p", 2, True])})
    assert space_file.in_words(space) == ["b: numbers from 0 to 1 in steps of 0.25", "m: p or 2 or True"]
