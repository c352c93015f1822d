"""What users can do is on a list, with a test each (tests/capabilities.toml); and tests of what had none."""

import ast
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import typer
from sklearn.gaussian_process.kernels import RBF
from typer.testing import CliRunner

import misspec as ms
from misspec import cli

TESTS = Path(__file__).parents[1]
LIST = tomllib.loads((TESTS / "capabilities.toml").read_text(encoding="utf-8"))
APP = typer.main.get_command(cli.app)
COMMANDS = {"misspec": APP, **{f"misspec {name}": each for name, each in APP.commands.items()}}


def words_of(part):
    """The names in backticks, each up to what is called or said of it."""
    return {re.split(r"[(.=]", word)[0] for what in LIST[part] for word in re.findall(r"`([^`]+)`", what)}


def test_every_test_of_the_list_exists():
    found = {
        path: names_in(TESTS / path)
        for path in {test.partition("::")[0] for part in LIST.values() for test in part.values()}
    }
    missing = [
        test
        for part in LIST.values()
        for test in part.values()
        if test.partition("::")[2] not in found[test.partition("::")[0]]
    ]
    assert missing == []


def names_in(path):
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_every_public_name_is_on_the_list():
    assert set(ms.__all__) - set().union(*map(words_of, LIST)) == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_on_the_list(command):
    options = [each for each in COMMANDS[command].params if each.param_type_name == "option"]
    assert [each.opts[0] for each in options if not words_of(command) & {*each.opts}] == []
    assert words_of(command) <= {"--help", *(name for each in options for name in each.opts)}


def command(*words, code=0):
    done = CliRunner().invoke(cli.app, list(map(str, words)), prog_name="misspec")
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


def test_the_picture_of_a_diagnosis(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, rng = np.repeat(np.linspace(0, 1, 15), 20), np.random.default_rng(0)
    y = np.sin(6 * x) + 0.4 * (x > 0.5) + 0.1 * rng.standard_normal(len(x))
    Path("a.csv").write_text("x,y\n" + "".join(f"{a!r},{b!r}\n" for a, b in zip(x.tolist(), y.tolist(), strict=True)))
    given = ["diagnose", "a.csv", "--norm-bound", 2, "--noise", 0.1, "--offset", 0, "--kernel", "Matern", "--nu", 2.5]
    given += ["--length-scale", 0.6]
    proved = [
        float(re.search(r"ε ≥ (\S+)", command(*given, "--delta", delta, "--picture", f"{delta}.png"))[1])
        for delta in (0.5, 0.1)
    ]
    assert proved[0] > proved[1] > 0
    assert Path("0.5.png").read_bytes().startswith(b"\x89PNG")
    assert "residuals: a.pdf" in command(*given, "--picture", "a.pdf")
    assert Path("a.pdf").read_bytes().startswith(b"%PDF")
    assert "--picture takes a file that ends with" in command(*given, "--picture", "a.csv", code=1)
    found = ms.diagnose(x[:, None], y, ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1))
    drawn = ms.reports.residuals_figure(found).axes[0].get_legend_handles_labels()[1]
    assert f"ε ≥ {found.epsilon_lower:.3g}" in drawn
    with pytest.raises(ms.InvalidInput):
        ms.reports.residuals_figure(y)


def test_a_classification_table_is_a_bandit():
    X, labels = np.eye(6)[[0, 1, 2, 3, 4, 5]] + 0.1, np.array(["a", "b", "c", "a", "b", "c"])
    problem = ms.problems.classification_bandit(X, labels)
    trace = ms.simulate(ms.comparators.LinUCB(problem.arena, problem.model, width=0.5), problem, 60)
    assert set(np.unique(trace.y)) <= {0.0, 1.0}
    assert trace.y[-20:].mean() > trace.y[:10].mean()
    assert trace.y[-20:].mean() > 0.9


def test_gain_is_that_of_the_model_in_the_options():
    said = command("gain", "--noise", 0.4, "--regularization", 0.5, "--dimension", 2, "--grid", 4, "--horizon", 20)
    model = ms.Model(RBF(0.2), norm_bound=1.0, noise=0.4, regularization=0.5)
    found = ms.information_gain(ms.Box([(0, 1), (0, 1)]).grid(4), model, 20)
    assert "λ = 0.5 " in said
    assert f"20 │ {found.values[20]:.4f} │ {found.upper:.4f} │" in said
    other = command("gain", "--noise", 0.3, "--dimension", 2, "--grid", 4, "--horizon", 20)
    assert "λ = 0.09 " in other


def test_seed_and_noise_of_suggest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("c.csv").write_text("x,z\n" + "".join(f"{i},{j}\n" for i in range(6) for j in range(6)))
    rows = [command("suggest", "c.csv", "--target", "y", "--results", "r.csv", "--seed", seed) for seed in (1, 1, 2)]
    assert rows[0] == rows[1] != rows[2]
    Path("r.csv").write_text("x,z,y\n" + "".join(f"{i},{i * i % 6},{3 * i}\n" for i in range(6)))
    assert "as given" in command("suggest", "c.csv", "--results", "r.csv", "--noise", 0.7)


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("space.toml").write_text("[parameters]\nx = { low = 0.0, high = 1.0 }\n")

    def written(lines):
        Path("go.sh").write_text(lines)
        return ["--", "sh", "go.sh", "{x}"]

    return written


@pytest.mark.parametrize("many", ["--evaluations", "--trials", "--n-trials", "-n"])
def test_options_of_optimize_arrive(script, many):
    words = script("""echo "{\\"a\\": {\\"loss\\": $1}}"\necho $1 >> log\n""")
    given = [
        many,
        3,
        "--json",
        "a.loss",
        "--minimize",
        "--name",
        "mine",
        "--into",
        "here",
        "--seed",
        3,
        "--aim",
        "earn",
    ]
    said = command("optimize", "space.toml", *given, "--storage", "a.journal", *words)
    tried = [float(line) for line in Path("log").read_text().split()]
    assert len(tried) == 3
    assert "3 results in a.journal, study mine" in said
    assert f"{min(tried):.4g}"[:5] in said
    assert Path("here/index.html").exists()
    Path("log").unlink()
    command("optimize", "space.toml", *given, "--storage", "b.journal", *words)
    assert float(Path("log").read_text().split()[0]) == tried[0]
    assert "best" in command("optimize", "space.toml", "--aim", "win", *given[:2], *words, code=1)


def test_a_slow_command_is_ended_and_tried_again(script):
    words = script("echo $1 >> log\nif [ $(wc -l < log) -lt 2 ]; then sleep 60; fi\necho $1\n")
    command("optimize", "space.toml", "-n", 1, "--timeout", 1, "--retries", 1, "--storage", "a.journal", *words)
    first, second = Path("log").read_text().split()
    assert first == second


@pytest.mark.usefixtures("script")
def test_a_line_for_the_shell():
    given = ["--minimize", "--maximize", "--storage", "a.journal", "--shell"]
    said = command("optimize", "space.toml", "-n", 2, *given, "--", "echo {x} | tee -a log")
    assert f"{max(map(float, Path('log').read_text().split())):.4g}"[:5] in said
