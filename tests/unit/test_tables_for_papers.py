"""Experiments' tables: paired comparisons against SciPy, LaTeX that compiles, and the papers of the policies."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats
from typer.testing import CliRunner

import misspec as ms
from files import head
from misspec import experiments as ex
from misspec.cli import app
from misspec.errors import InvalidInput
from misspec.experiments import construct
from misspec.reports import latex, tables

ROOT = Path(__file__).parents[2]
HOSTILE = r"100% \of_$x^2$ {ε ≤ 0.1} #1 & ~a~ \"ß\" 中"
TOML = (
    head(40, 4, [0.0, 0.2], grid=12)
    + f"""
[[problems]]
name = '{HOSTILE}'
misfit = "random"

[[problems]]
name = "second"
epsilons = [0.1]

[[policies]]
name = '{HOSTILE}'
kind = "GPUCB"

[[policies]]
kind = "ECGPUCB"

[[policies]]
kind = "UniformSampling"

[[policies]]
kind = "RegretBalancing"
bounds = "learnt"
"""
)
PARTS = [(HOSTILE, 0.0), (HOSTILE, 0.2), ("second", 0.1)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    assert not ex.go(TOML.encode(), folder, cores=1).failed
    return ex.results(folder)


def regrets(results, problem, epsilon):
    """Regret per round by policy, seeds in order, from the tables of the runs."""
    found = {}
    for each in results.runs:
        if each.run.problem == problem and each.run.epsilon == epsilon:
            found.setdefault(each.run.policy, {})[each.run.seed] = each.table["regret"].mean()
    return {policy: np.array([y for _, y in sorted(by_seed.items())]) for policy, by_seed in found.items()}


@pytest.mark.parametrize("against", [None, "UniformSampling"])
def test_differences_and_intervals_are_those_of_scipy(results, against):
    summary = tables.summary(results, against)
    for problem, epsilon in PARTS:
        found = regrets(results, problem, epsilon)
        other = against or min(found, key=lambda policy: found[policy].mean())
        for policy, y in found.items():
            row = summary.filter(
                (pl.col("problem") == problem) & (pl.col("epsilon") == epsilon) & (pl.col("policy") == policy)
            ).row(0, named=True)
            assert row["against"] == (None if policy == other else other)
            if policy == other:
                assert row["difference"] is row["difference_low"] is row["difference_high"] is None
                assert tables.difference(row) == "–"
                continue
            expected = stats.ttest_rel(y, found[other]).confidence_interval(0.95)
            assert row["difference"] == pytest.approx((y - found[other]).mean())
            assert (row["difference_low"], row["difference_high"]) == pytest.approx((expected.low, expected.high))
            assert tables.difference(row).startswith(f"{row['difference']:+.4f} ± ")


def test_means_of_the_latex_are_with_intervals_of_scipy(results):
    for part in PARTS:
        for y in regrets(results, *part).values():
            found, one = tables.mean_interval(y), stats.ttest_1samp(y, 0.0).confidence_interval(0.95)
            assert found == pytest.approx((y.mean(), one.low, one.high))


def test_only_seeds_that_both_have_are_compared(results):
    runs = results.groups()["second", 0.1]
    a, b = runs["ECGPUCB"], runs["UniformSampling"]
    some = tables.paired(a[1:], b[:3])  # seeds 1, 2
    x, y = ([each.regret.mean() for each in each_of[1:3]] for each_of in (a, b))
    assert some.mean == pytest.approx(np.mean(x) - np.mean(y))
    expected = stats.ttest_rel(x, y).confidence_interval(0.95)
    assert (some.low, some.high) == pytest.approx((expected.low, expected.high))
    assert tables.paired(a[:1], b[1:]) is None
    single = tables.paired(a[:1], b[:1])
    assert single == (pytest.approx(a[0].regret.mean() - b[0].regret.mean()), None, None)
    assert tables.difference(dict(zip(tables.DIFFERENCES, single, strict=True))) == f"{single.mean:+.4f}"
    assert tables.mean_interval([3.0, 3.0]) == (3.0, 3.0, 3.0)


def test_another_policy_to_compare_with_must_be_there(results):
    with pytest.raises(InvalidInput, match=r"no policy 'ECGPUBC' to compare with; did you mean 'ECGPUCB'\?"):
        tables.summary(results, "ECGPUBC")


# -- LaTeX -------------------------------------------------------------------------------------------------------------


def balanced(text):
    """Whether braces and environments end in the order in which they begin."""
    plain = re.sub(r"(?m)(?<!\\)%.*$", "", text)
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", plain):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
    open_ones = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", plain):
        if kind == "begin":
            open_ones.append(name)
        else:
            assert open_ones.pop() == name
    assert not open_ones
    assert len(re.findall(r"(?<!\\)\$", plain)) % 2 == 0
    return plain


def test_the_tables_are_whole_and_names_are_escaped(results):
    text = latex.in_latex(results)
    plain = balanced(text)
    assert plain.isascii() or set(re.sub(r"[\x00-\x7f]", "", plain)) == {"ß"}
    assert r"100\% \textbackslash{}of\_\$x\textasciicircum{}2\$ \{$\varepsilon$ $\leq$ 0.1\} \#1 \& " in plain
    assert plain.count(r"\begin{tabular}{lrrr}") == plain.count(r"\toprule") == plain.count(r"\bottomrule") == 2
    assert len(set(re.findall(r"\\label\{(.*?)\}", plain))) == 2
    lines = [line for line in plain.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert all(len(re.findall(r"(?<!\\)&", line)) == 3 for line in lines)
    assert len(lines) == 2 + 3 * 4


def number(cell):
    """The mean of a cell."""
    return float(re.search(r"[-+]?[\d.]+", cell.replace(r"\mathbf", ""))[0])


@pytest.mark.parametrize("against", [None, "UniformSampling"])
def test_bold_is_the_smallest_and_numbers_are_those_of_the_runs(results, against):
    text = latex.in_latex(results, against).partition("second")[2]
    rows = [line.rstrip("\\ ").split(" & ") for line in text.splitlines() if " & " in line and "Policy" not in line]
    found = regrets(results, "second", 0.1)
    names = ["ECGPUCB", "UniformSampling", "RegretBalancing"]
    assert [next((n for n in names if n in row[0]), HOSTILE) for row in rows[-4:]] == [HOSTILE, *names]
    means = [y.mean() for y in found.values()]
    for row, mean in zip(rows[-4:], means, strict=True):
        assert number(row[1]) == pytest.approx(mean, rel=0.1, abs=0.01)
        assert (r"\mathbf" in row[1]) == (mean == min(means))
        assert r"\pm" in row[1]
    assert [row[2] for row in rows[-4:]].count("--") == 1
    assert any(r"\mathbf" in row[3] for row in rows[-4:])


def test_every_letter_and_the_beginnings_of_lines_compile(tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("there is no pdflatex here (Debian: texlive-latex-recommended)")
    names = ["[2] a", "*b", *map(chr, [*range(32, 0x180), *range(0x370, 0x400)])]
    rows = "".join(f"{latex.escaped_latex(name)} & x \\\\\n" for name in names)
    (tmp_path / "rows.tex").write_text(
        "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\usepackage{longtable}\n\\begin{document}\n"
        f"\\begin{{longtable}}{{ll}}\n{rows}\\end{{longtable}}\n\\end{{document}}\n"
    )
    words = ["pdflatex", "-draftmode", "-halt-on-error", "-interaction=nonstopmode", "rows"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_it_compiles(results, tmp_path):
    if shutil.which("pdflatex") is None or shutil.which("bibtex") is None:
        pytest.skip("there is no pdflatex here (Debian: texlive-latex-recommended)")
    made = ms.reports.of_experiment(results.path, latex=True)
    for name in ("tables.tex", "references.bib"):
        shutil.copy(made.folder / name, tmp_path)
    (tmp_path / "paper.tex").write_text(
        "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\usepackage{booktabs}\n\\begin{document}\n"
        "\\input{tables}\\nocite{*}\\bibliographystyle{plain}\\bibliography{references}\n\\end{document}\n"
    )
    for line in ("pdflatex", "bibtex", "pdflatex", "pdflatex"):
        words = [line, *(["-halt-on-error", "-interaction=nonstopmode"] if line == "pdflatex" else []), "paper"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
        assert done.returncode == 0, done.stdout[-2000:]
    assert "undefined" not in done.stdout
    assert (tmp_path / "paper.pdf").stat().st_size > 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ε̂_2", None),
        ("λ = Λ", r"$\lambda$ = $\Lambda$"),
        ("x₁²", r"x$_1$$^2$"),
        ("a\tb", "a b"),
        ("中", "?"),
        ("−1 × 2", r"$-$1 $\times$ 2"),
        ("Öl", "Öl"),
        ("\\end{table}", r"\textbackslash{}end\{table\}"),
        ("Αο Σσ ς", r"Ao $\Sigma$$\sigma$ ?"),
        ("[a] *b ?`", r"{[}a{]} {*}b ?\textasciigrave{}"),
        ("Ħł", "?ł"),
    ],
)
def test_letters(text, expected):
    found = latex.escaped_latex(text)
    balanced(found)
    assert expected is None or found == expected


# -- papers ------------------------------------------------------------------------------------------------------------


def bibtex_of(text):
    return dict(re.findall(r"(?ms)^@\w+\{([^,]+),\n(.*?)^\}", text))


def test_the_papers_are_those_of_the_citation_file():
    spec = importlib.util.spec_from_file_location("bibtex", ROOT / "tools" / "bibtex.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.INTO.read_text(encoding="ascii") == tool.content(), "run python tools/bibtex.py"


def test_every_policy_of_a_file_has_its_paper():
    known = bibtex_of((ROOT / "src/misspec/reports/papers.bib").read_text(encoding="ascii"))
    assert set(latex.PAPERS) == set(construct.POLICIES)
    keys = {key for some in latex.PAPERS.values() for key in some.split(",") if some}
    assert keys <= {*known, latex.THIS}
    assert all(re.search(r"(?m)^  year = \{\d{4}\},$", entry) for entry in known.values())


def test_what_was_played_is_cited_and_nothing_else(results):
    entries = bibtex_of(latex.references(results))
    cited = {key for some in re.findall(r"\\cite\{(.*?)\}", latex.in_latex(results)) for key in some.split(",")}
    assert cited == {"srinivas2010gaussian", "bogunovic2021misspecified", "dann2024data"}
    assert set(entries) == cited | {latex.THIS}
    assert ms.__version__ in entries[latex.THIS]
    assert "Srinivas, Niranjan and Krause, Andreas" in entries["srinivas2010gaussian"]


def test_the_files_are_written_where_they_are_wanted(results):
    made = ms.reports.of_experiment(results.path, against="UniformSampling", latex=True)
    assert (made.folder / "tables.tex").read_text() == latex.in_latex(results, "UniformSampling")
    assert (made.folder / "references.bib").read_text() == latex.references(results)
    kept = pl.read_csv(made.folder / "summary.csv")
    assert set(kept["against"].drop_nulls()) == {"UniformSampling"}


@pytest.mark.usefixtures("undrawn")
def test_the_shell_writes_them(results, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    words = ["report", str(results.path), "--against", "UniformSampling", "--latex"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "tables.tex" in done.stdout
    assert "references.bib" in done.stdout
    row = tables.summary(results, "UniformSampling").filter(pl.col("policy") == "ECGPUCB").row(0, named=True)
    assert tables.difference(row, 3) in done.stdout
    missing = CliRunner().invoke(app, ["report", str(results.path), "--against", "x"])
    assert missing.exit_code == 1
    assert "no policy 'x' to compare with" in missing.stderr
