"""Answers in notebooks, the figure of a policy, and the notebooks of the docs, which run in a kernel."""

import html.parser
import importlib.util
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec import markup

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
MODEL = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1)
EVIL = "<script>alert('1')</script>"
VOID = {"img", "progress"}


class Reader(html.parser.HTMLParser):
    """Rows of cells, and all text; every element that is opened is closed, in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.text, self.names, self.attributes = [], [], "", [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if {"th", "td"} & set(self.open):
            self.rows[-1][-1] += data


def read(answer):
    found = Reader(answer._repr_html_())
    assert set(found.names) <= {"div", "b", "i", "p", "a", "img", "table", "thead", "tbody", "tr", "th", "td"}
    for name, value in found.attributes:
        assert not name.startswith("on")
        assert name not in ("src", "href") or not re.match(r"(https?:)?//|javascript:", value)  # nothing from elsewhere
        assert name != "style" or not re.search("color|background|url", value)  # light or dark, as around it
    return found


def hostile(**options):
    return ms.Space({EVIL: ms.Float(0, 1), "depth": ms.Int(1, 5), "kind": ms.Choice(["<b>", "&amp;"])}, **options)


def tuned(n=8, **options):
    policy = ms.Auto(hostile(), seed=0, **options)
    return policy, ms.optimize(policy, lambda p: p["depth"] + 10 * p[EVIL], n)


def test_a_query_shows_the_values_of_the_user():
    policy, _ = tuned()
    query = policy.ask()
    heads, values = read(query).rows
    assert heads == [EVIL, "depth", "kind"]
    assert values == [f"{query.params[EVIL]:.6g}", str(query.params["depth"]), query.params["kind"]]
    assert f"Expected {query.mean:.4g} ± {query.std:.4g}" in read(query).text
    assert EVIL not in query._repr_html_()
    assert isinstance(policy.ask(3), list)


def test_what_is_not_known_of_a_query_is_not_said():
    first = ms.Auto(ms.Box([(0, 1), (2, 3)])).ask()
    found = read(first)
    assert found.rows == [["x0", "x1"], [f"{x:.6g}" for x in first.x]]
    assert "nan" not in found.text.lower()
    assert "Expected" not in found.text


def test_rows_names_and_contexts_are_shown():
    table = ms.Finite.from_table({"solvent": ["<i>water</i>", "ether"], "T": [20, 40]})
    assert read(ms.Auto(table).ask()).rows[0] == ["solvent", "T"]
    named = ms.GPUCB(ms.Finite([[0.0], [1.0]], names=[EVIL, "b"]), MODEL)
    assert read(named.ask()).rows == [["name", "x0"], [EVIL, "0"]]
    joint = ms.Auto(ms.Joint(ms.Box([(0, 1)]), ms.Box([(0, 1)])))
    heads, values = read(joint.ask(context=[0.25])).rows
    assert heads == ["x0", "c0"]
    assert values[1] == "0.25"


def test_of_many_coordinates_some_are_shown():
    found = read(ms.Auto(ms.Box([(0, 1)] * 50)).ask())
    assert [len(row) for row in found.rows] == [31, 31]
    assert found.rows[0][-1] == "… 20 more"


@pytest.mark.parametrize("minimize", [False, True])
def test_a_recommendation_is_in_the_sign_of_the_user(minimize):
    policy = ms.GPUCB(ms.Finite([[0.0], [1.0]]), MODEL, minimize=minimize)
    policy.observe([0, 1], [1.5, 0.5])
    found, said = read(policy.recommend()), policy.recommend()
    (row,) = found.rows[1:]
    assert row[0] == ("1" if minimize else "0")
    assert row[1:] == [f"{said.mean:.4g}", f"{said.lower:.4g} to {said.upper:.4g}", "1"]
    assert float(row[1]) > 0
    query = policy.ask()
    assert f"Expected {query.mean:.4g}" in read(query).text
    assert f"at best {query.upper:.4g}" in read(query).text


def test_a_recommendation_says_how_sure_it_is():
    policy = ms.GPUCB(ms.Finite([[0.0], [1.0]]), MODEL)
    policy.tell(policy.ask(), 0.5)
    assert policy.recommend().guaranteed
    assert "Guaranteed, provided that" in read(policy.recommend()).text
    fitted = ms.GPUCB(ms.Finite([[0.0], [1.0]]), MODEL, width=2.0)
    assert "No guarantee (the width is a number" in read(fitted.recommend()).text
    assert "It was not tried yet" in read(fitted.recommend()).text


def test_evaluations_show_what_is_recommended_and_what_was_best():
    _, found = tuned(minimize=True)
    shown = read(found)
    heads, use, best = shown.rows
    assert heads[:4] == ["", EVIL, "depth", "kind"]
    assert (use[0], best[0]) == ("recommended", "best tried")
    assert best[heads.index("average")] == f"{found.best.mean:.4g}"
    assert best[heads.index(EVIL)] == f"{found.best.params[EVIL]:.6g}"
    assert use[heads.index("expected")] == f"{found.recommendation.mean:.4g}"
    assert shown.text.startswith("8 evaluations")
    assert read(found.best).rows[0] == [EVIL, "depth", "kind", "average", "results there"]


def test_evaluations_say_why_they_ended_and_whether_limits_hold():
    ended = ms.optimize(ms.Auto(ms.Finite([[0.0], [1.0]]), repeats=False), lambda x: float(x[0]), 5)
    assert ended.reason[1:] in read(ended).text
    limited = ms.Auto(ms.Box([(0, 1)]), limits="impurity < 2")
    found = ms.optimize(limited, lambda x: (float(x[0]), {"impurity": 1.0}), 6)
    heads, use, best = read(found).rows
    column = heads.index("keeps the limits")
    assert best[column] == "yes"
    assert use[column].endswith(" %")
    nothing = ms.optimize(ms.GPUCB(ms.Finite([[0.0], [1.0]]), MODEL), lambda x: 0.0, 0)
    assert [row[0] for row in read(nothing).rows] == ["", "recommended"]


def test_a_diagnosis_shows_its_certificates():
    X = np.linspace(0, 1, 40)[:, None]
    found = ms.diagnose(X, 3.0 * np.sign(X[:, 0] - 0.5), MODEL)
    assert found.epsilon_lower > 0
    shown = read(found)
    assert found.sentence in shown.text
    assert [row[0] for row in shown.rows[1:]] == [each.kind for each in found.certificates]
    assert [float(row[1]) for row in shown.rows[1:]] == pytest.approx(
        [each.epsilon for each in found.certificates], rel=1e-5
    )


def test_reports_show_where_they_are_and_a_picture(tmp_path):
    policy, _ = tuned()
    page = ms.reports.of_policy(policy, tmp_path / "<b>&")
    assert isinstance(page, Path)
    assert page == tmp_path / "<b>&" / "index.html"
    assert pickle.loads(pickle.dumps(page)) == page
    shown = read(page)
    assert str(page) in shown.text
    assert dict(shown.attributes)["src"].startswith("data:image/png;base64,iVBOR")
    beside = page.with_name("slices.png")
    assert getattr(beside, "_repr_html_", lambda: None)() is None  # another file, which is no page
    (tmp_path / "<b>&" / "best.png").unlink()
    assert page._repr_html_() is None


TOML = f"""
horizon = 6
seeds = 2
epsilons = [0.1]
domain = {{ box = [[0, 1]], grid = 5 }}
model = {{ kernel = {{ name = "RBF", length_scale = 0.2 }}, norm_bound = 2.0, noise = 0.1 }}
problems = [{{ name = "{EVIL}", kind = "misspecified" }}]
policies = [{{ name = "<b>", kind = "GPUCB" }}]
"""


@pytest.mark.usefixtures("undrawn")
def test_reports_of_experiments_show_their_summary(tmp_path):
    ms.experiments.go(TOML.encode(), tmp_path, cores=1)
    report = ms.reports.of_experiment(tmp_path)
    shown = read(report)
    assert shown.rows[1][:4] == [EVIL, "0.1", "<b>", "2"]
    assert str(report.page) in shown.text


def test_tables_that_are_wide_scroll_and_cells_are_escaped():
    shown = Reader(markup.block(EVIL, markup.table([markup.cell(EVIL)], [[markup.cell(EVIL)]])))
    assert shown.rows == [[EVIL], [EVIL]]
    assert "script" not in shown.names
    assert [markup.cell(value) for value in (None, 1.0, 1, 0.123456789, "a<b")] == ["", "1", "1", "0.123457", "a&lt;b"]


# -- the figure of a policy -------------------------------------------------------------------------------------------

LIST = ms.Finite(np.linspace(0, 1, 12)[:, None])
BASES = {
    "list": lambda: ms.GPUCB(LIST, MODEL),
    "phased": lambda: ms.PhasedUncertaintySampling(LIST, MODEL, horizon=60),
    "balancing": lambda: ms.RegretBalancing(LIST, MODEL, horizon=60, minimize=True),
    "insured": lambda: ms.InsuredUCB(ms.Box([(0, 1)]), MODEL),
    "thompson": lambda: ms.ThompsonSampling(LIST, MODEL),
    "uniform": lambda: ms.UniformSampling(ms.Box([(0, 1)]), MODEL),
    "balanced": lambda: ms.Balanced([ms.GPUCB(LIST, MODEL), ms.Auto(LIST)]),
    "auto": lambda: ms.Auto(ms.Box([(0, 1)]), minimize=True),
}


def titles(figure):
    return [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()]


@pytest.mark.parametrize("name", BASES)
def test_every_policy_has_a_figure(name):
    policy = BASES[name]()
    ms.optimize(policy, lambda x: float(np.sin(6 * x[0])), 8)
    before = policy.state()
    figure = policy.plot()
    better = "smaller" if policy.minimize else "larger"
    assert titles(figure)[:2] == [f"best so far ({better} is better)", "the model against the results"]
    assert titles(figure)[2].startswith("x0")
    assert f"{better} is better" in figure.get_suptitle()
    assert plt.get_fignums() == []
    data, metadata = figure._repr_png_()
    assert data.startswith(b"\x89PNG")
    assert metadata["width"] == round(75 * figure.get_figwidth())
    assert policy.state() == before


def test_a_figure_has_the_names_of_the_user_and_a_panel_for_each_parameter():
    policy = ms.Auto(hostile(), minimize=True, limits="impurity < 2", seed=0)

    def function(p):
        if p["depth"] == 5:
            raise ValueError("it failed")
        return p["depth"] + 10 * p[EVIL], {"impurity": 3.0 * (p[EVIL] < 0.3)}

    ms.optimize(policy, function, 14, on_error="drop")
    figure = policy.plot(target="$cost$")
    assert {each.split(" ")[0] for each in titles(figure)[-3:]} == {EVIL, "depth", "kind"}
    best = figure.axes[0]
    assert best.get_ylabel() == r"\$cost\$"
    told = policy.observations
    line = next(each.get_ydata() for each in best.get_lines() if each.get_label().startswith("best so far"))
    kept = policy.probability(told.x) >= 0.8
    assert not kept.all()
    means = policy.posterior.at(told.x)[0]
    np.testing.assert_allclose(line[-1], means[kept].min())
    assert figure._repr_png_()[0].startswith(b"\x89PNG")


def test_before_there_is_a_model_the_results_are_drawn():
    policy = ms.Auto(ms.Box([(0, 1), (0, 5)]))
    policy.observe([[0.1, 0.2], [0.3, 4.0]], [1.0, 2.0])
    assert titles(policy.plot()) == ["best so far (larger is better)"]


def test_a_figure_of_nothing_is_refused():
    with pytest.raises(ms.InvalidInput, match="nothing to report yet: tell the policy a result first"):
        ms.Auto(ms.Box([(0, 1)])).plot()
    with pytest.raises(ms.InvalidInput, match="depends on the round"):
        ms.Auto(ms.Joint(ms.Box([(0, 1)]), ms.Box([(0, 1)]))).plot()


@pytest.mark.parametrize("missing", ["matplotlib", "polars"])
def test_a_missing_package_is_named_with_its_extra(missing):
    code = f"""
import sys
sys.modules[{missing!r}] = None
import misspec as ms
policy = ms.Auto(ms.Box([(0, 1)]))
policy.observe([[0.5]], [1.0])
try:
    policy.plot()
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(rf"ms\.reports\S* needs {missing}\S*: pip install 'misspec\[experiments\]'\n", done.stdout)


# -- the notebooks of the docs ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools" / "notebooks.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_notebooks_are_stored_without_outputs():
    assert len(NOTEBOOKS) == 2
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        nbformat.validate(notebook)
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.filterwarnings("default")  # of what runs kernels
def test_tuning_a_model_runs_and_beats_the_defaults(tool):
    text = tool.page(ROOT / "docs" / "notebooks" / "tune-a-model.ipynb")
    tuned, default = (float(re.search(rf"{name}: +([\d.]+)", text)[1]) for name in ("tuned", "default"))
    assert tuned < default
    assert "<b>25 evaluations</b>" in text
    assert '<img alt="" src="data:image/png;base64,iVBOR' in text  # though pyplot was never imported
    assert "<progress" not in text  # it has gone


@pytest.mark.filterwarnings("default")
def test_a_table_of_experiments_runs_to_the_picture(tool):
    text = tool.page(ROOT / "docs" / "notebooks" / "a-table-of-experiments.ipynb")
    assert len(re.findall(r"query 24: got \d\.\d, and the other results predict", text)) == 1
    assert "```text\n[]\n```" in text  # once it was corrected
    assert "<td>Pd</td><td>84</td><td>0.3</td>" in text
    assert "<b>Report</b>" in text
    assert "<a href" not in text  # to files of the run
    assert text.count("data:image/png;base64,") == 2


@pytest.mark.filterwarnings("default")
def test_a_kernel_shows_bars_and_figures(tool, tmp_path):
    cells = [
        "import misspec as ms\npolicy = ms.Auto(ms.Box([(0, 1)]))",
        "found = ms.optimize(policy, lambda x: float(x[0]), 6, progress=True)",
        "from misspec import progress\nprogress.AFTER = 600\nfound = ms.optimize(policy, lambda x: float(x[0]), 1)",
        "policy.plot()",
        "import matplotlib.pyplot as plt\nprint(plt.get_fignums())\npolicy.plot()",
    ]
    path = tmp_path / "cells.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), path)
    _, bar, short, alone, beside = (cell.outputs for cell in tool.run(path).cells)
    (shown,) = bar
    assert '<progress value="6" max="6"></progress> 6 of 6, took' in shown.data["text/html"]
    assert short == []
    assert [set(output.data) for output in alone] == [{"image/png", "text/plain"}]
    assert beside[0].text == "[]\n"
    assert ["image/png" in output.data for output in beside[1:]] == [True]
