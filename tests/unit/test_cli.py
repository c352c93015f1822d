"""The command line: what it prints, its exit codes, and errors of one line."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF
from typer.testing import CliRunner

import misspec
from cover import slowly
from files import head
from misspec.cli import app
from misspec.integrations import table as tables
from misspec.truth import certificates

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


@pytest.mark.usefixtures("undrawn")
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

    found = misspec.information_gain(domain, misspec.Model(RBF(0.2), norm_bound=1.0, noise=0.1), 500)
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
    said = misspec_command("diagnose", "twofold.csv", "--repeats", code=1)
    assert "the noise would be 0 (rows exported twice?)" in said
    assert "delta" in misspec_command("diagnose", "few.csv", "--noise", 1, "--delta", 2, code=1)
    (tmp_path / "none.csv").write_text("x,y\n1,\n3,\n")
    assert "no row of numbers" in misspec_command("diagnose", "none.csv", "--skip", code=1)
    (tmp_path / "flat.csv").write_text("x,z,y\n1,1,2\n1,3,4\n")
    assert "column 'x' never changes" in misspec_command("diagnose", "flat.csv", "--noise", 1, code=1)
    (tmp_path / "twice.csv").write_text("x,x\n1,1\n")
    assert "two columns of the same name" in misspec_command("diagnose", "twice.csv", code=1)
    (tmp_path / "one.csv").write_text("x\n1\n")
    assert "at least two columns" in misspec_command("diagnose", "one.csv", code=1)
    (tmp_path / "binary.csv").write_bytes(b"PK\x03\x04\x00\x00\x81\x8d")
    assert "binary.csv is not a CSV file; save the table as CSV" in misspec_command("diagnose", "binary.csv", code=1)
    (tmp_path / "wide.csv").write_text(",".join(f"x{i}" for i in range(6000)) + "\n" + ",".join(["1"] * 6000) + "\n")
    said = "wide.csv has 5,999 columns of points, and 5,000 are the most that can be certified; choose"
    assert said in misspec_command("diagnose", "wide.csv", code=1)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_diagnose_reads_what_suggest_reads(misspec_command, tmp_path, encoding):
    lines = "".join(f"{i % 4};{'für' if i % 2 else 'wörk'};{i % 3},5\n" for i in range(40))
    (tmp_path / "é.csv").write_bytes(("°C;art;größe\n" + lines).encode(encoding))
    said = misspec_command("diagnose", "é.csv", "--norm-bound", 1)
    assert "40 observations of größe at °C, art" in said
    assert ("é.csv is not in UTF-8, and is read as Windows-1252." in said) == (encoding == "cp1252")


PLAIN = "a,b,c,y\n" + "".join(f"{i % 4}.5,{i % 3},{i % 2},{i}e-1\n" for i in range(30))


@pytest.mark.parametrize(
    ("content", "large"),
    [
        (PLAIN, True),
        (PLAIN.replace("\n", "\r\n").rstrip(), True),
        (PLAIN.replace(",", ";").replace(".", ","), True),
        (PLAIN.replace(",", "\t").replace("2.5", '"2.5"'), True),
        (PLAIN.replace("\n", "\n\n").replace(",", " , "), False),  # its second line is empty
        (PLAIN.replace("3.5", "03.5"), False),  # codes
        (PLAIN.replace("3.5", "high"), False),
        (PLAIN.replace("3.5", ""), False),
        (PLAIN.replace("3.5", "nan"), False),
        (PLAIN.replace("3.5", "1e200"), False),
        (PLAIN.replace("3.5", "1_000"), False),
        (PLAIN.replace(",", " "), False),
        ("sep=,\n" + PLAIN, False),
        (PLAIN + "1,2,3,4,5\n", False),
        (PLAIN + "1,2,3\n", False),
    ],
)
@pytest.mark.parametrize("columns", [None, ["a", "b"]])
def test_plain_numbers_are_read_in_one_go_as_they_are_cell_by_cell(tmp_path, monkeypatch, content, large, columns):
    (tmp_path / "t.csv").write_bytes(content.encode())
    assert (tables._plain(content.encode(), "t.csv") is not None) == large

    def read():
        try:
            return tables.read(tmp_path / "t.csv", columns=columns, ignore=["c"] if columns is None else [], skip=True)
        except misspec.InvalidInput as error:
            return [str(error)]

    found = read()
    with monkeypatch.context() as patch:
        patch.setattr(tables, "_plain", lambda *_: None)
        for one, other in zip(found, read(), strict=True):
            np.testing.assert_array_equal(one, other)
    monkeypatch.setattr(tables, "MOST_TEXT", 0)
    if not large:
        assert "MB are read if all cells are plain numbers" in read()[0]


def test_a_part_of_many_points_is_named(misspec_command, tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "MOST_DISTINCT", 20)
    monkeypatch.setattr(certificates, "SHARPEST", 10)
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i % 30},{i % 7}\n" for i in range(75)))
    said = misspec_command("diagnose", "t.csv", "--noise", 1)
    assert "from 30 observations, at the 10 points with the smallest radii" in said


def test_pipes_with_a_name_are_refused_and_those_of_a_shell_are_read(misspec_command, tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for command in (["diagnose"], ["run"], ["gain"], ["suggest", "--target", "y"]):
        said = misspec_command(*command, "pipe.csv", code=1)
        assert "pipe.csv is a pipe; name a file, or hand it in as /dev/stdin" in said
    (tmp_path / "c.csv").write_text("a\n1\n2\n")
    said = misspec_command("suggest", "c.csv", "--results", "pipe.csv", "--target", "y", code=1)
    assert "pipe.csv is a pipe" in said
    done = subprocess.run(
        [sys.executable, "-m", "misspec.cli", "diagnose", "/dev/stdin", "--norm-bound", "1"],
        input=PLAIN, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "30 observations of y at a, b, c" in done.stdout, done.stderr


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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("horizon = 30", f"horizon = {10**26}", "horizon: input should be less than or equal to 100000000"),
        ("length_scale = 0.2", f"length_scale = 1{'0' * 400}", "model.kernel.length_scale must be a finite number"),
        ("length_scale = 0.2", "length_scale = inf", "model.kernel.length_scale must be a finite number, got inf"),
        ("length_scale = 0.2", f"length_scale = {'9' * 5000}", "is not valid TOML: Exceeds the limit"),
        ("noise = 0.1", "noise = 1e200", "model.noise must be a finite number, at most 1e+150 in size"),
        ('kind = "ECGPUCB"', 'kind = "RegretBalancing"\nas_in_paper = true\ngain = 1e-300', "policies[1] (Regret"),
        ('kind = "ECGPUCB"', 'kind = "GPUCB"\nwidth = inf', "policies[1].width must be a finite number, got inf"),
        ('kind = "ECGPUCB"', 'kind = "GPUCB"\nwidth = 2020-01-01', "policies[1].width must be a number, a word"),
        ("seeds = 2", "seeds = 10000000000", "these are 2e+10 runs, more than 1,000,000; take fewer seeds"),
        ("epsilons = [0.2]", f"epsilons = {[[]] * 1}", "epsilons[0]: input should be a valid number"),
        ("grid = 12", f"grid = {'[' * 60}{']' * 60}", "nests tables too deeply"),
        ("grid = 12", f"grid = {'[' * 3000}{']' * 3000}", "too deep"),
    ],
)  # fmt: skip
def test_hostile_numbers_in_a_file_are_one_line(misspec_command, tmp_path, old, new, message):
    assert old in SMALL
    (tmp_path / "hostile.toml").write_text(SMALL.replace(old, new))
    found = misspec_command("run", "hostile.toml", "--cores", 1, code=1)
    assert message in found or (message == "too deep" and "TOML" in found)
    assert "defect" not in found


def test_many_seeds_take_no_time_of_their_own(tmp_path):
    import time

    from misspec import experiments

    many = experiments.parse(SMALL.replace("seeds = 2", "seeds = 100000").encode(), "many.toml")
    start = time.process_time()
    runs = many.runs()
    assert len(runs) == 200_000
    assert time.process_time() - start < 20
    assert sum(run.settings["pictured"] for run in runs) == 2
    folder = experiments.Folder(tmp_path)
    folder.runs.mkdir()
    listed = 0

    def count():
        nonlocal listed
        listed += 1
        return {}

    folder.files = count
    for run in runs[:5]:
        folder.write(run, b"result")
    assert listed == 1  # not once for every run


def test_options_that_are_no_numbers(misspec_command, tmp_path):
    table(tmp_path / "data.csv")
    for option in ("--noise", "--length-scale", "--regularization"):
        for value in ("nan", "inf", "1e400"):
            assert "must be a finite number" in misspec_command("gain", option, value, code=1)
    for option in ("--noise", "--norm-bound", "--offset", "--delta", "--length-scale", "--nu"):
        for value in ("nan", "inf", "-inf"):
            if (option, value) != ("--nu", "inf"):  # the smoothest of all
                assert "must be a finite number" in misspec_command("diagnose", "data.csv", option, value, code=1)
    misspec_command("gain", "--horizon", "9" * 30, code=1)
    misspec_command("gain", "--dimension", "9" * 30, code=2)


@pytest.mark.parametrize("address", ["garbage", *slowly("tcp://", "")])
def test_a_dask_address_that_is_none_is_said_and_nothing_is_left_behind(tmp_path, address):
    (tmp_path / "small.toml").write_text(SMALL)
    done = subprocess.run(
        [sys.executable, "-m", "misspec.cli", "run", "small.toml", "--dask", address],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"cannot reach a Dask scheduler at {address!r}" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_names_do_not_steer_the_terminal(misspec_command, tmp_path):
    evil = "\x1b[31mred\x1b[0m\x07\u202e"
    (tmp_path / "evil.csv").write_text(f"x{evil},y\n" + "".join(f"{i % 4},{i % 3}\n" for i in range(40)))
    out = misspec_command("diagnose", "evil.csv", "--norm-bound", 1)
    assert "x�[31mred" in out
    assert not set(evil[:1] + evil[-2:]) & set(out)
    assert "\x1b" not in misspec_command("diagnose", "evil.csv", "--target", evil, code=1)
    assert "\x1b" not in misspec_command("diagnose", f"{evil}.csv", code=1)
    (tmp_path / "evil.toml").write_text(SMALL.replace("[red]base[/red]", "\\u001b[31mbase"))
    assert "�[31mbase" in misspec_command("run", "evil.toml", "--cores", 1)
    found = misspec.experiments.results("evil-results")
    assert {each.run.policy for each in found.runs} == {"�[31mbase", "ECGPUCB"}


def test_letters_that_a_terminal_does_not_have_are_replaced(tmp_path):
    (tmp_path / "é.csv").write_text("x,y\n" + "".join(f"{i % 4},{i % 3}\n" for i in range(40)))
    done = subprocess.run(
        [sys.executable, "-m", "misspec.cli", "diagnose", "é.csv"],
        cwd=tmp_path, capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"noise ? = " in done.stdout


def test_files_that_are_none(misspec_command, tmp_path):
    for name in ("/dev/zero", "/dev/null"):
        for command in ("diagnose", "run", "gain", "suggest"):
            more = ["--target", "y"] if command == "suggest" else []
            assert f"{name} is a device; name a file" in misspec_command(command, name, *more, code=1)
    assert "cannot read .: Is a directory" in misspec_command("diagnose", ".", code=1)
    assert "File name too long" in misspec_command("run", "a" * 300, code=1)
    assert "File name too long" in misspec_command("report", "a" * 300, code=1)
    (tmp_path / "small.toml").write_text(SMALL)
    assert "File name too long" in misspec_command("run", "small.toml", "--into", "a" * 300, code=1)
    with pytest.raises(misspec.InvalidInput, match="cannot be the name of a file"):
        misspec.Finite.from_table("a\0b")


COLUMNS = ("temperature", "solvent", "batch", "yield")
ROWS = [
    (80, "water", 1, 5.1),
    (80, "water", 1, 5.3),
    (80, "water", 2, 7.0),
    (80, "water", 2, 7.2),
    (90, "water", 1, 6.0),
]
ROWS += [(90, "water", 1, 6.2), (90, "oil", 1, 3.0), (90, "oil", 1, 3.1), (80, "oil", 2, 2.0), (80, "oil", 2, 2.1)]
ROWS += [(80, "oil", 2, 2.2)]


def reactions(path, separator=",", decimal="."):
    lines = [separator.join(str(cell).replace(".", decimal) for cell in row) for row in [COLUMNS, *ROWS]]
    path.write_text("\n".join(lines) + "\n")


def test_diagnose_reads_text_as_choices_and_names_columns(misspec_command, tmp_path):
    reactions(tmp_path / "table.csv")
    out = misspec_command("diagnose", "table.csv", "--norm-bound", 3)
    assert "Hardest to explain is temperature = 80, solvent = water, batch = 2, observed" in out
    reactions(tmp_path / "commas.csv", ";", ",")
    assert misspec_command("diagnose", "commas.csv", "--norm-bound", 3) == out
    domain = misspec.Finite.from_table(tmp_path / "table.csv", target="yield")
    y = domain.observations.y
    model = misspec.Model(
        RBF(0.2), norm_bound=3.0, noise=misspec.noise_from_repeats(domain.points, y), offset=float(y.mean())
    )
    found = misspec.diagnose(domain.points, y, model, domain=domain.box)
    assert f"ε ≥ {found.epsilon_lower:.6g}\n" in out
    raw = misspec_command("diagnose", "table.csv", "--norm-bound", 3, "--raw", "--length-scale", 10)
    assert "temperature = 80, solvent = water" in raw


def test_rows_that_differ_in_a_column_left_out_are_no_repeats(misspec_command, tmp_path):
    reactions(tmp_path / "table.csv")
    whole = misspec_command("diagnose", "table.csv")
    part = misspec_command("diagnose", "table.csv", "--columns", "temperature,solvent")
    assert "noise σ = 0.119," in whole
    assert "noise σ = 0.119," in part  # not what the batches differ by
    assert "differ in batch: they are taken for 1 more point, not for repeats" in part
    ignored = misspec_command("diagnose", "table.csv", "--columns", "temperature,solvent", "--ignore", "batch")
    assert "noise σ = 0.7265," in ignored
    assert "not for repeats" not in ignored
    assert misspec_command("diagnose", "table.csv", "--ignore", "batch") == ignored
    numbered = tmp_path / "numbered.csv"
    numbered.write_text("run,x,y\n" + "".join(f"{i},{i % 4},{i % 3}\n" for i in range(40)))
    err = misspec_command("diagnose", "numbered.csv", "--columns", "x", code=1)
    assert "got 0; say what the noise is instead, or repeat some points; rows that differ in run are no repeats" in err
    assert "observations of y at x" in misspec_command("diagnose", "numbered.csv", "--ignore", "run")
    assert "must name different columns" in misspec_command("diagnose", "table.csv", "--columns", "batch,batch", code=1)


def test_cells_that_are_too_many_are_not_dropped(misspec_command, tmp_path):
    (tmp_path / "comma.csv").write_text("x,y\n1,5,2,5\n2,5,3,5\n")
    err = misspec_command("diagnose", "comma.csv", "--noise", 1, code=1)
    assert "data row 1: 4 cells for 2 columns; is there a separator in a cell?" in err


def test_errors_do_not_flood_the_terminal(misspec_command, tmp_path):
    (tmp_path / "long.toml").write_text(SMALL.replace("grid = 12", f"grid = {[0] * 2000}"))
    found = misspec_command("run", "long.toml", code=1)
    assert "grid takes one number or 1" in found
    assert len(found) < 1000


def some_table(tmp_path, name="lab.csv"):
    """A step in temperature and a solvent, with a number and a date per row; each point twice."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(32):
        t, s = 20 + 10 * (i % 8), ["water", "oil"][i // 8 % 2]
        rows.append([i + 1, f"2024-01-{i + 1:02d}", t, s, round(3.0 * (t > 50) + 0.1 * rng.standard_normal(), 4)])
    head = "run,day,temperature,solvent,yield\n"
    (tmp_path / name).write_text(head + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return rows


def test_diagnose_leaves_out_what_describes_nothing(misspec_command, tmp_path):
    some_table(tmp_path)
    out = misspec_command("diagnose", "lab.csv", "--norm-bound", 3)
    assert "32 observations of yield at temperature, solvent" in out
    assert "Columns of lab.csv that are left out: run (numbers of rows), day (dates); --columns takes them in." in out
    assert "noise σ = 0.0" in out  # by repeats, which the numbers of rows would hide
    named = misspec_command("diagnose", "lab.csv", "--norm-bound", 3, "--columns", "temperature,solvent,run", code=1)
    assert "--noise" in named


def test_rows_that_were_exported_twice_count_once(misspec_command, tmp_path):
    rows = some_table(tmp_path)
    once = misspec_command("diagnose", "lab.csv", "--norm-bound", 3)
    again = ",".join(map(str, rows[4]))
    with (tmp_path / "lab.csv").open("a") as file:
        file.write(f"{again}\n{again}\n")
    out = misspec_command(
        "diagnose", "lab.csv", "--norm-bound", 3, "--columns", "temperature,solvent", "--ignore", "run,day"
    )
    assert "32 observations" in out
    assert "34 is 6 again, 35 is 6 again, in every cell; each counts once" in out
    assert out.splitlines()[-4:] == once.splitlines()[-4:]
    assert "34 observations" in misspec_command(
        "diagnose", "lab.csv", "--norm-bound", 3, "--columns", "temperature,solvent", "--ignore", "run,day", "--repeats"
    )


@pytest.mark.parametrize("kind", ["dict", "rows", "pandas", "polars"])
def test_diagnose_of_a_frame_is_that_of_the_file(misspec_command, tmp_path, kind):
    rows = some_table(tmp_path)
    said = misspec_command("diagnose", "lab.csv", "--norm-bound", 3, "--noise", 0.1, "--offset", 1.5)
    names = ["run", "day", "temperature", "solvent", "yield"]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    if kind in ("pandas", "polars"):
        frame = pytest.importorskip(kind).DataFrame(columns)
    else:
        frame = columns if kind == "dict" else [dict(zip(names, row, strict=True)) for row in rows]
    model = misspec.Model(RBF(0.2), norm_bound=3.0, noise=0.1, offset=1.5)
    with pytest.warns(UserWarning, match=r"left out: run \(numbers of rows\), day \(dates\)"):
        found = misspec.diagnose(frame, "yield", model)
    assert f"ε ≥ {found.epsilon_lower:.6g}" in said
    assert found.epsilon_lower > 0
    less = {name: column for name, column in columns.items() if name in ("temperature", "solvent")}
    same = misspec.diagnose(less, columns["yield"], model)
    assert same.epsilon_lower == found.epsilon_lower
    with pytest.raises(misspec.InvalidInput, match="no column 'yeild'"):
        misspec.diagnose(frame, "yeild", model)
