"""The command line: what it prints, its exit codes, and errors of one line."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import misspec
from files import head
from misspec.cli import app

SMALL = (
    head(30, 2, [0.2], grid=12)
    + """
[[problems]]
[[policies]]
kind = "GPUCB"
name = "[red]base[/red]"
[[policies]]
kind = "ECGPUCB"
"""
)


@pytest.fixture
def misspec_command(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments, code=0):
        found = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="misspec")
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        assert found.exit_code == code, found.output
        if code == 1:
            assert found.stderr.startswith("misspec: ")
            assert len(found.stderr.splitlines()) == 1
        return found.stderr if code else found.stdout

    return run


def table(path, rows=400, misfit=0.5, columns=("x", "y")):
    rng = np.random.default_rng(3)
    x = rng.integers(0, 20, rows) / 10
    y = 5 + np.sin(3 * x) + misfit * np.where(np.round(10 * x) % 2, 1, -1) + 0.1 * rng.standard_normal(rows)
    lines = [",".join(columns), *(f"{a},{b:.6f}" for a, b in zip(x, y, strict=True))]
    path.write_text("\n".join(lines) + "\n")


def test_version_help_and_completion(misspec_command):
    assert misspec_command("--version") == f"misspec {misspec.__version__}\n"
    for name in ("demo", "run", "report", "gain", "diagnose"):
        assert name in misspec_command("--help")
        assert "Usage" in misspec_command(name, "--help")
    assert "No such command 'rnu'" in misspec_command("rnu", code=2)


def test_completion_in_a_shell():
    shown = subprocess.run(
        [sys.executable, "-m", "misspec.cli"],
        env={**os.environ, "_MISSPEC_COMPLETE": "complete_bash", "COMP_WORDS": "misspec d", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(shown.stdout.split()) == {"demo", "diagnose"}


def test_run_then_report(misspec_command, tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    out = misspec_command("run", "small.toml", "--cores", 1)
    assert "[red]base[/red]" in out
    assert "pictures: misspec report small-results" in out
    out = misspec_command("run", "small.toml", "--cores", 1)
    assert "4 of 4 runs were done before" in out
    out = misspec_command("report", "small-results")
    assert "index.html" in out
    assert (tmp_path / "small-results" / "report" / "index.html").exists()


def test_a_failed_run_is_told_at_the_end(misspec_command, tmp_path, monkeypatch):
    def unlucky(*_, **__):
        raise misspec.InvalidInput("no luck")

    monkeypatch.setattr("misspec.experiments.runner.play", unlucky)
    (tmp_path / "small.toml").write_text(SMALL)
    err = misspec_command("run", "small.toml", "--cores", 1, code=1)
    assert "4 runs failed: [red]base[/red] on misspecified, ε = 0.2, seed 0: no luck (and 3 more)" in err


def test_errors_of_run_and_report_are_one_line(misspec_command, tmp_path):
    assert "nothing.toml does not exist" in misspec_command("run", "nothing.toml", code=1)
    (tmp_path / "bad.toml").write_text(SMALL.replace('"GPUCB"', '"GPUBC"'))
    err = misspec_command("run", "bad.toml", code=1)
    assert "bad.toml: policies[0]: unknown policy 'GPUBC'; did you mean 'GPUCB'?" in err
    (tmp_path / "broken.toml").write_text("horizon = = 3")
    assert "broken.toml is not valid TOML" in misspec_command("run", "broken.toml", code=1)
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "file").write_text("")
    err = misspec_command("run", "small.toml", "--into", "file/there", code=1)
    assert "cannot write to the folder file/there: Not a directory; choose one that is writable with --into" in err
    assert "holds no experiment.toml" in misspec_command("report", tmp_path, code=1)
    misspec_command("run", "small.toml", "--cores", 1)
    victim = sorted((tmp_path / "small-results" / "runs").glob("*.parquet"))[0]
    victim.write_bytes(victim.read_bytes()[:-100])
    err = misspec_command("report", "small-results", code=1)
    assert f"{victim.name} is damaged" in err
    assert "sets it aside and does that run again" in err
    out = misspec_command("run", "small.toml", "--cores", 1)
    assert "doing it again" in out.replace("\n", " ")


def test_a_folder_without_permission(misspec_command, tmp_path, monkeypatch):
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "locked").mkdir(mode=0o500)
    if os.geteuid() == 0:  # who may write everywhere

        def refuse(self, *_, **__):
            raise PermissionError(13, "Permission denied", str(self))

        monkeypatch.setattr(Path, "mkdir", refuse)
    err = misspec_command("run", "small.toml", "--into", "locked/results", code=1)
    assert "cannot write to the folder locked/results: Permission denied; choose one that is writable" in err


def test_gain(misspec_command, tmp_path):
    out = misspec_command("gain", "--grid", 30, "--horizon", 500)
    assert "RBF(length_scale=0.2) on Finite(30 points in 1 dimension), λ = 0.01" in out
    rows = [
        [float(c.replace(",", "")) for c in line.strip("│ \n").split("│")] for line in out.splitlines() if "│" in line
    ]
    assert [row[0] for row in rows] == [10, 100, 500]
    assert all(low <= high for _, low, high in rows)
    domain = misspec.Box([(0, 1)]).grid(30)
    from sklearn.gaussian_process.kernels import RBF

    found = misspec.information_gain(domain, misspec.Model(RBF(0.2), 1.0, 0.1), 500)
    assert rows[-1][1:] == [pytest.approx(found.greedy, abs=1e-4), pytest.approx(found.upper, abs=1e-4)]
    (tmp_path / "small.toml").write_text(SMALL)
    assert "Finite(12 points in 1 dimension)" in misspec_command("gain", "small.toml")
    assert "leave those options out" in misspec_command("gain", "small.toml", "--length-scale", 0.3, code=1)
    assert "did you mean 'Matern'?" in misspec_command("gain", "--kernel", "Maten", code=1)
    assert "--length-scale must be a finite number > 0" in misspec_command("gain", "--length-scale", 0, code=1)


def test_diagnose(misspec_command, tmp_path):
    table(tmp_path / "wrong.csv")
    out = misspec_command("diagnose", "wrong.csv", "--norm-bound", 3, "--noise", 0.1)
    certified = float(out.split("ε ≥ ")[1].split()[0])
    assert 0.2 < certified <= 0.5
    assert "wrong by at least" in out
    out = misspec_command("diagnose", "wrong.csv")
    assert float(out.split("noise σ = ")[1].split(",")[0]) == pytest.approx(0.1, rel=0.1)
    assert "estimated from repeated points" in out
    assert "--norm-bound" in out
    assert "if the noise is at most" in out
    rows = "".join(f"{i % 4};{i % 4 + i % 3}\n" for i in range(40))
    (tmp_path / "gap.csv").write_text(f"[/b]; y\n{rows}3;\n;4\n")
    assert "40 observations of y at [/b] (2 rows left out)" in misspec_command("diagnose", "gap.csv", "--skip")
    table(tmp_path / "right.csv", misfit=0.0)
    out = misspec_command("diagnose", "right.csv", "--norm-bound", 4, "--noise", 0.1, "--fixed-design")
    assert "ε ≥ 0\n" in out


def test_errors_of_diagnose_are_one_line(misspec_command, tmp_path):
    assert "nothing.csv does not exist" in misspec_command("diagnose", "nothing.csv", code=1)
    table(tmp_path / "data.csv", columns=("temperature", "yield"))
    err = misspec_command("diagnose", "data.csv", "--target", "yeild", code=1)
    assert "has no column 'yeild'; did you mean 'yield'?" in err
    (tmp_path / "gap.csv").write_text("x,y\n1,2\n3,\n")
    assert "column 'y', data row 2: expected a finite number, got ''" in misspec_command("diagnose", "gap.csv", code=1)
    (tmp_path / "head.csv").write_text("1,2\n3,4\n")
    assert "must start with a line of column names" in misspec_command("diagnose", "head.csv", code=1)
    (tmp_path / "few.csv").write_text("x,y\n1,2\n3,4\n")
    assert "(--noise)" in misspec_command("diagnose", "few.csv", code=1)
    (tmp_path / "twofold.csv").write_text("x,y\n" + "1,2\n3,4\n5,5\n" * 4)
    assert "the noise would be 0 (rows exported twice?)" in misspec_command("diagnose", "twofold.csv", code=1)
    assert "delta" in misspec_command("diagnose", "few.csv", "--noise", 1, "--delta", 2, code=1)
    (tmp_path / "none.csv").write_text("x,y\n1,\n3,\n")
    assert "no row of numbers" in misspec_command("diagnose", "none.csv", "--skip", code=1)
    (tmp_path / "flat.csv").write_text("x,z,y\n1,1,2\n1,3,4\n")
    assert "column 'x' never changes" in misspec_command("diagnose", "flat.csv", "--noise", 1, code=1)
    (tmp_path / "twice.csv").write_text("x,x\n1,1\n")
    assert "two columns of the same name" in misspec_command("diagnose", "twice.csv", code=1)
    (tmp_path / "one.csv").write_text("x\n1\n")
    assert "at least two columns" in misspec_command("diagnose", "one.csv", code=1)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x01")
    assert "is not a CSV file in UTF-8" in misspec_command("diagnose", "binary.csv", code=1)


def test_a_missing_extra_is_named(tmp_path):
    without = "import sys; sys.modules['polars'] = None; from misspec.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", without, "report", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "misspec: this command needs polars: pip install 'misspec[experiments]'\n"


def test_a_defect_is_one_line_and_can_be_looked_into(misspec_command, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(misspec, "information_gain", broken)
    assert "unexpected ZeroDivisionError: oh" in misspec_command("gain", code=1)
    monkeypatch.setenv("MISSPEC_DEBUG", "1")
    shown = CliRunner().invoke(app, ["gain"])
    assert "Traceback" in shown.stderr
