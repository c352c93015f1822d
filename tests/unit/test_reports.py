"""Reports: numbers against a plain computation, figures that exist, a page that needs nothing and escapes names."""

import base64
import dataclasses
import io
import re

import numpy as np
import polars as pl
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct

import misspec as ms
from files import embedded, head
from misspec import experiments as ex
from misspec import reports
from misspec.errors import InvalidInput, StorageError
from misspec.reports import bands, figures, matplotlib_backend, page, picture, plotly_backend, style, tables, theorems

NASTY = "<script>alert(1)</script> & $x$ [red] {y}"
TOML = (
    head(60, 3, [0.0, 0.2], grid=15, title=NASTY)
    + f"""
[[problems]]
name = "{NASTY}"
misfit = "random"

[[problems]]
name = "in two dimensions"
domain = {{ box = [[0, 1], [-1, 1]], grid = 5 }}
misfit = "bump"
epsilons = [0.1]

[[problems]]
name = "scattered"
domain = {{ box = [[0, 1], [-1, 1]], cover = 16 }}
epsilons = [0.1]

[[problems]]
kind = "trap"

[[policies]]
name = "{NASTY}"
kind = "GPUCB"

[[policies]]
kind = "ECGPUCB"

[[policies]]
kind = "ECGPUCB"
name = "told too little"
epsilon = 0.01

[[policies]]
kind = "PhasedUncertaintySampling"

[[policies]]
kind = "PhasedUncertaintySampling"
as_in_paper = true

[[policies]]
kind = "RegretBalancing"
as_in_paper = true

[[policies]]
kind = "UniformSampling"
"""
)


# one problem, three policies, one seed, seven rounds: for what does not look at the numbers
SMALL = TOML.replace("seeds = 3", "seeds = 1").replace("horizon = 60", "horizon = 7")
SMALL = SMALL[: SMALL.index('[[problems]]\nname = "in two')] + SMALL[SMALL.index("[[policies]]") :]
SMALL = SMALL[: SMALL.index('[[policies]]\nkind = "PhasedUncertaintySampling"')]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    progress = ex.go(TOML.encode(), folder, cores=1)
    assert not progress.failed
    return ex.results(folder)


def test_the_summary_is_what_a_plain_computation_gives(results):
    runs = [each for each in results.runs if each.run.policy == "ECGPUCB" and each.run.epsilon == 0.2]
    row = tables.summary(results).filter(
        (pl.col("policy") == "ECGPUCB") & (pl.col("epsilon") == 0.2) & (pl.col("problem") == NASTY)
    )
    assert row.height == 1
    regrets = np.array([each.table["regret"].to_numpy() for each in runs])
    assert regrets.shape == (3, 60)
    assert row["regret"][0] == pytest.approx(regrets.mean())
    assert row["error"][0] == pytest.approx(regrets.mean(axis=1).std(ddof=1) / np.sqrt(3))
    assert row["late"][0] == pytest.approx(regrets[:, -6:].mean())
    by_run = tables.by_run(results)
    assert by_run.height == len(results.runs) == 7 * 5 * 3
    assert by_run["cumulative_regret"].sum() == pytest.approx(sum(each.table["regret"].sum() for each in results.runs))
    assert all((results.path / file).exists() for file in by_run["file"])


def test_curves_start_at_the_first_round_and_end_at_the_last(results):
    group = results.groups()[(NASTY, 0.2)]["ECGPUCB"]
    curve = tables.regret_curve(group)
    sums = np.array([each.table["regret"].to_numpy().cumsum() for each in group])
    assert (curve.x[0], curve.x[-1]) == (1, 60)
    np.testing.assert_allclose(curve.mean, sums.mean(axis=0))
    assert (curve.low <= curve.mean).all()
    assert (curve.mean <= curve.high + 1e-12).all()
    x = tables.thinned(30_000)
    assert (x[0], x[-1]) == (1, 30_000)
    assert len(x) <= 240


def test_bounds_are_those_of_the_theory_and_only_where_it_speaks(results):
    groups = results.groups()
    domain, model = ms.Box([(0, 1)]).grid(15), ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
    gain = ms.information_gain(domain, model, 60)
    wrong, right = groups[(NASTY, 0.2)], groups[(NASTY, 0.0)]
    ((_, x, y, most),) = theorems.bounds(wrong["ECGPUCB"])
    np.testing.assert_allclose(most, 2.0 * (2.0 + 0.2) * x)
    np.testing.assert_allclose(
        y, ms.theory.ec_gp_ucb_bound(model, x.astype(int), gain, 0.2, grounded_points=15, cap=False)
    )
    (_, x, tight, _), (_, _, loose, _) = theorems.bounds(wrong["PhasedUncertaintySampling(as_in_paper=True)"])
    np.testing.assert_allclose(tight, ms.theory.phased_bound(model, x.astype(int), gain, 0.2, cap=False))
    np.testing.assert_allclose(
        loose, ms.theory.phased_bound(model, x.astype(int), gain, 0.2, constants="paper", cap=False)
    )
    ((_, x, y, _),) = theorems.bounds(wrong["RegretBalancing(as_in_paper=True)"])
    assert (x.tolist(), y.tolist()) == ([60], [ms.theory.balancing_bound(model, 60, gain, 0.2, cap=False)])
    assert theorems.bounds(right[NASTY])
    for policy in (NASTY, "told too little", "PhasedUncertaintySampling", "UniformSampling"):
        assert not theorems.bounds(wrong[policy])


def test_the_bound_of_few_episodes_is_that_of_the_schedule(tmp_path):
    policies = "".join(
        f'[[policies]]\nkind = "PhasedUncertaintySampling"\nname = "{name}"\ngrounded = false\nschedule = {schedule}\n'
        for name, schedule in (("few", '"few"'), ("three", "3"))
    )
    text = TOML.replace("seeds = 3", "seeds = 1")
    text = text[: text.index('[[problems]]\nname = "in two')] + policies
    assert not ex.go(text.encode(), tmp_path, cores=1).failed
    group = ex.results(tmp_path).groups()[(NASTY, 0.2)]
    gain = ms.information_gain(ms.Box([(0, 1)]).grid(15), ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1), 60)
    for name, schedule, lengths in (("few", "few", [8, 22, 30]), ("three", 3, [6, 20, 34])):
        assert [length for length, _, _ in group[name][0].facts["episodes"]] == lengths
        ((_, x, y, _),) = theorems.bounds(group[name])
        options = {"width": "nonadaptive", "points": 15, "schedule": schedule, "cap": False}
        expected = ms.theory.phased_bound(
            ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1), x.astype(int), gain, 0.2, **options
        )
        np.testing.assert_allclose(y, expected)
        assert max(figures.alive_after(group[name][0])) == 3
    with pytest.raises(InvalidInput, match="at most the horizon"):
        ex.go(text.replace("schedule = 3", "schedule = 61").encode(), tmp_path, cores=1)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_figures_and_tables_are_written(results, monkeypatch, every):
    """Every one is drawn, or one of each kind."""
    real, said, kinds = matplotlib_backend.saved, [], {}

    def saved(figure, suffix):
        kind = (said[-1].split("-")[0].split(".")[0], suffix)
        if every or kind not in kinds:
            kinds[kind] = real(figure, suffix)
        return kinds[kind]

    monkeypatch.setattr(matplotlib_backend, "saved", saved)
    report = reports.of_experiment(results.path, said.append)
    assert pl.read_csv(report.folder / "runs.csv").height == len(results.runs)
    assert pl.read_csv(report.folder / "summary.csv").height == 7 * 5
    names = {path.stem for path in report.figures}
    for kind in ("regret", "bound", "active", "bases", "coverage", "epsilon", "band"):
        assert any(name.startswith(kind) for name in names), kind
    assert {path.suffix for path in report.figures} == {".png", ".pdf"}
    assert len(report.figures) == 2 * len(names)
    for path in report.figures:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG" if path.suffix == ".png" else b"%PDF")
        assert len(content) > 5000
    assert all(re.fullmatch(r"[a-z0-9.-]+", name) for name in names)


def test_the_page_needs_no_network_and_escapes_names(results):
    text = page.page(results, tables.summary(results), theorems.all_bounds(results))
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=['\"](?!data:)", text.split("<script>")[0])
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; $x$ [red] {y}" in text
    assert len(text) < 6e6
    parsed = embedded(text)
    assert list(parsed) == ["index", *(f"group-{i}" for i in range(5))]
    assert parsed["index"][0]["name"] == NASTY
    assert [len(problem["epsilons"]) for problem in parsed["index"]] == [2, 1, 1, 1]
    heads = ["policy", "loss of the recommendation", "bands held", "late regret", "regret", "compared", "proved ε"]
    for i in range(5):
        assert len(parsed[f"group-{i}"]["cards"]) == 7
        assert re.findall(r"<th title[^>]*>(.*?)</th>", parsed[f"group-{i}"]["table"]) == heads
    first = next(tables.summary(results).iter_rows(named=True))
    cells = re.findall(r"<td>(.*?)</td>", parsed["group-0"]["table"])[1:5]
    assert [cells[0], cells[2]] == [f"{first[name]:.4f}" for name in ("recommended_regret", "late")]
    assert cells[3].startswith(f"{first['regret']:.4f} ± ")


def test_numbers_survive_the_packing():
    values = np.arange(6.0).reshape(2, 3) / 7
    np.testing.assert_allclose(unpacked(plotly_backend.packed(values, rows=True)), values, rtol=1e-6)


def test_strokes_tell_policies_apart(results):
    found = style.strokes(results.experiment)
    assert len(set(found.values())) == len(found)
    assert found["RegretBalancing(as_in_paper=True)"].dash == "dash"


def test_names_of_files_are_safe_and_different():
    taken: set[str] = set()
    found = [style.slug(name, taken) for name in ("a/b", "a b", "../..", "", "ε", "x" * 500)]
    assert len(set(found)) == len(found)
    assert all(re.fullmatch(r"[a-z0-9.-]+", name) and not name.startswith(".") and len(name) < 80 for name in found)


@pytest.mark.usefixtures("undrawn")
def test_a_report_of_part_of_the_runs_says_what_is_missing(tmp_path):
    ex.go(SMALL.encode(), tmp_path, cores=1)
    for each in ex.results(tmp_path).runs:  # a policy of which nothing is finished
        if each.run.policy == "ECGPUCB":
            each.path.unlink()
    made = reports.of_experiment(tmp_path)
    assert (len(made.results.runs), made.results.of) == (4, 6)
    assert "2 of 6 still missing" in made.page.read_text()
    for path in (tmp_path / "runs").glob("*.parquet"):
        path.unlink()
    with pytest.raises(InvalidInput, match=r"no run of .* is finished yet; `misspec run` does them"):
        reports.of_experiment(tmp_path)


def test_a_report_that_cannot_be_written(tmp_path):
    ex.go(SMALL.encode(), tmp_path, cores=1)
    (tmp_path / "report").write_text("in the way")
    with pytest.raises(StorageError, match=r"cannot make the folder .*report"):
        reports.of_experiment(tmp_path)


@pytest.mark.usefixtures("undrawn")
def test_figures_of_problems_that_have_gone_go_too(tmp_path):
    ex.go(SMALL.encode(), tmp_path, cores=1)
    reports.of_experiment(tmp_path)
    (tmp_path / "report" / "notes.txt").write_text("mine")
    ex.go(SMALL.replace(f'name = "{NASTY}"\nmisfit', 'name = "renamed"\nmisfit').encode(), tmp_path, cores=1)
    made = reports.of_experiment(tmp_path)
    others = {"index.html", "summary.csv", "runs.csv", "notes.txt"}
    assert {path.name for path in made.folder.iterdir()} == {path.name for path in made.figures} | others
    assert any("renamed" in path.name for path in made.figures)


def test_epsilons_are_told_apart():
    assert style.labels([0.0, 0.1, 0.25]) == {0.0: "0", 0.1: "0.1", 0.25: "0.25"}
    assert style.labels([0.1001, 0.1002]) == {0.1001: "0.1001", 0.1002: "0.1002"}


def test_many_candidates_lose_no_play(tmp_path):
    many = SMALL.replace("grid = 15", "grid = 700").replace("horizon = 7", "horizon = 60")
    many = f'{many}[[policies]]\nkind = "PhasedUncertaintySampling"'
    ex.go(many.encode(), tmp_path, cores=1)
    each = ex.results(tmp_path).runs[-1]
    panel = bands.curves(each, style.Stroke("#000000", "solid"), bands.MOST_CURVE)
    figure, frames = plotly_backend.animated(panel, 300)
    counts = unpacked(frames[1]["packed"][0])
    assert counts.shape[1] <= bands.MOST_CURVE
    np.testing.assert_array_equal(counts.sum(axis=1), each.looks["round"].to_numpy())
    assert len(figure["data"]) == 10


# -- one simulation ----------------------------------------------------------------------------------------------------


def peak(contexts=40, actions=5):
    """A peak at x = c: no linear function of [x, c] says where it is."""
    c, x = np.random.default_rng(0).random(contexts), np.linspace(0, 1, actions)
    points = np.array([[a, b] for b in c for a in x])
    values = np.exp(-8 * (points[:, 0] - points[:, 1]) ** 2)
    offers = ms.problems.Groups(np.arange(len(points)).reshape(contexts, actions))
    half = np.full(len(points), 0.5)
    model = ms.Model(RBF(0.3), norm_bound=2.5, noise=0.1)
    return ms.problems.Problem("$peak$", ms.Finite(points), model, values, half, 0.6, offers=offers, fresh=True)


def balanced(problem, horizon=2000):
    linear = ms.Model(ConstantKernel(1 / 3) * DotProduct(1.0), norm_bound=3.0, noise=0.1)
    bases = [(linear, 0.0), (problem.model, 0.0)]
    return ms.RegretBalancing(problem.arena, problem.model, horizon=horizon, bases=bases, reward_range=1.0)


def test_a_base_that_rewards_refute_is_seen_to_go():
    problem = peak(400, 10)
    trace = ms.simulate(balanced(problem), problem, 2000)
    (gone,) = trace.facts["eliminated"]
    assert gone.base == 0  # the linear one
    assert 100 < gone.round < 1500
    assert not (trace.base[gone.round :] == 0).any()
    assert trace.regret[gone.round :].mean() < 0.2 * trace.regret[: gone.round].mean()
    figure = reports.trace_figure(trace, bases=["linear", "smooth"])
    regret, share, bases = figure.axes
    np.testing.assert_allclose(regret.lines[0].get_ydata()[-1], trace.regret.sum())
    np.testing.assert_allclose(share.lines[0].get_ydata()[-1], (trace.regret <= 0).mean())
    (cross,) = [line for line in bases.lines if line.get_marker() == "x"]
    assert (cross.get_xdata()[0], cross.get_ydata()[0]) == (gone.round, 0)
    assert [text.get_text() for text in bases.texts] == [f"eliminated after {gone.round} rounds"]
    assert [tick.get_text() for tick in bases.get_yticklabels()] == ["linear", "smooth"]
    (marks,) = [line for line in bases.lines if line.get_marker() == "|"]
    np.testing.assert_array_equal(trace.base[np.asarray(marks.get_xdata()) - 1], marks.get_ydata())
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")  # a name with dollars is no formula
    assert buffer.getvalue().startswith(b"\x89PNG")


def test_a_trace_shows_what_there_is():
    problem = peak()
    contextual = ms.simulate(ms.GPUCB(problem.arena, problem.model), problem, 15)
    assert len(reports.trace_figure(contextual).axes) == 2
    fixed = ms.problems.trap()
    assert len(reports.trace_figure(ms.simulate(ms.GPUCB(fixed.domain, fixed.model), fixed, 1)).axes) == 1
    balancing = ms.simulate(ms.RegretBalancing(fixed.domain, fixed.model, horizon=20), fixed, 20)
    assert len(reports.trace_figure(balancing).axes) == 2
    for trace, names, says in (
        (contextual, ["a"], "GPUCB has none"),
        (balancing, ["a"], "a name for each of the"),
        ("trace", None, "got str"),
    ):
        with pytest.raises(InvalidInput, match=says):
            reports.trace_figure(trace, bases=names)


def test_eliminations_are_drawn_where_this_trace_has_them():
    """A policy that was told results before counts those, and a trace does not."""
    problem = peak(400, 10)
    policy = balanced(problem)
    rng = np.random.default_rng(1)
    policy.observe(problem.domain.points[rng.integers(4000, size=7)], np.full(7, 0.5))
    trace = ms.simulate(policy, problem, 1500)
    (gone,) = trace.facts["eliminated"]
    assert trace.facts["before"] == 7
    bases = reports.trace_figure(trace).axes[2]
    (cross,) = [line for line in bases.lines if line.get_marker() == "x"]
    assert cross.get_xdata()[0] == gone.round - 7
    assert np.flatnonzero(trace.base == 0).max() < gone.round - 7
    later = ms.simulate(policy, problem, 30, seed=1)  # it goes on: what was before is not drawn again
    assert not [line for line in reports.trace_figure(later).axes[2].lines if line.get_marker() == "x"]


def unpacked(spec):
    shape = [int(each) for each in spec["shape"].split(",")]
    return np.frombuffer(base64.b64decode(spec["bdata"]), dtype="<f4").reshape(shape)


def test_panels_that_share_an_axis_show_all_of_it():
    """The limits of the first panel do not cut off what the others have."""
    x = np.arange(1.0, 5.0)
    panels = [picture.Panel([picture.Line(x, height * x)], y=picture.Axis("y", zero=True)) for height in (1.0, 100.0)]
    logs = [dataclasses.replace(each, y=picture.Axis("y", log=True)) for each in panels]
    with matplotlib_backend.drawing():
        made = matplotlib_backend.figure([panels, logs], "t", sharey="row")
    assert all(ax.get_ylim()[1] >= 400.0 for ax in made.axes)
    assert [ax.get_ylim()[0] for ax in made.axes[:2]] == [0.0, 0.0]


def test_the_figure_of_bounds_tells_theorems_apart(results):
    group = results.groups()[(NASTY, 0.2)]
    allowed = theorems.all_bounds(results)[(NASTY, 0.2)]
    strokes = style.strokes(results.experiment)
    marks = figures.bound(group, strokes, allowed).marks
    bounds = [mark.y for mark in marks if isinstance(mark, picture.Line) and mark.width == 2.8]
    (most,) = [mark.y for mark in marks if mark.label == "2(B + ε)t"]
    assert any((bound > most).any() for bound in bounds)  # not all of them the same line at the top
    assert len({tuple(bound) for bound in bounds}) == len(bounds) >= 3
    hidden = [mark for mark in figures.regret(group, strokes, allowed).marks if mark.hidden]
    assert hidden
    assert all((np.asarray(mark.y) <= 4.4 * np.asarray(mark.x) + 1e-9).all() for mark in hidden)


@pytest.mark.usefixtures("undrawn")
def test_the_report_names_those_that_take_the_model_as_right_and_no_others(tmp_path):
    kinds = ("GPUCB", "ECGPUCB", "InsuredUCB", "IGPUCB", "PriorElimination", "RegretBalancing")
    policies = "".join(f'\n[[policies]]\nkind = "{kind}"\n' for kind in kinds)
    text = head(8, 1, [0.0, 0.2], grid=6) + '\n[[problems]]\nmisfit = "random"\n' + policies
    assert not ex.go(text.encode(), tmp_path / "r", cores=1).failed
    found = ex.results(tmp_path / "r")
    assert tables.trusting(found.runs) == "GPUCB, InsuredUCB, IGPUCB, PriorElimination"
    with pytest.raises(
        InvalidInput, match=r"no policy 'Regret' .*did you mean 'RegretBalancing'\?.*'GPUCB', 'ECGPUCB'"
    ):
        tables.summary(found, "Regret")
    assert f"{tables.trusting(found.runs)}." in reports.of_experiment(tmp_path / "r").page.read_text()
