"""Reports of one optimisation: what is written, escaped names, signs, and that a failure leaves nothing."""

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from misspec.errors import InvalidInput, StorageError
from misspec.policies.auto import learnt
from misspec.reports import left_out, optimisation, optimisation_figures, page

NASTY = "<script>alert(1)</script> & $x$ {y}"
MODEL = ms.Model(RBF(0.3), norm_bound=2.0, noise=0.1)
RNG = np.random.default_rng(0)
PICTURES = {f"{name}.{suffix}" for name in optimisation.FILES for suffix in ("png", "pdf")}


def table():
    rows = [{"Name": f"Ansatz {i}", "Temperatur (°C)": T, NASTY: s} for i, (T, s) in enumerate(
        (T, s) for T in (20, 40, 60, 80) for s in ("Säure", "l'eau", NASTY))]  # fmt: skip
    return ms.Finite.from_table(rows, names="Name")


def space():
    whole = {"depth": ms.Int(1, 6), "units": ms.Int(8, 512, log=True), "kind": ms.Choice(["a", "b", NASTY])}
    return ms.Space({"lr": ms.Float(1e-4, 1e-1, log=True), **whole, "fixed": ms.Float(2, 2)})


DOMAINS = {
    "list": lambda: ms.Finite(RNG.random((30, 2))),
    "grid": lambda: ms.Box([(0, 1)]).grid(25),
    "table": table,
    "box": lambda: ms.Box([(0, 1), (-5, 5)]),
    "space": space,
}


def played(policy, t, function=lambda x: float(np.sin(3 * x[0]))):
    for _ in range(t):
        query = policy.ask()
        policy.tell(query, function(query.x) + 0.1 * RNG.standard_normal())
    return policy


def plotted(text):
    """What a page draws."""
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def page_of(policy, **options):
    """As `report` writes it; every picture is made, and none is saved, which takes most of the time."""
    found = optimisation.Optimisation(policy, **options)
    assert dict(optimisation_figures.figures_in_print(found))
    return page.policy_page(found)


VARYING = {"list": 2, "grid": 1, "table": 2, "box": 2, "space": 4}  # parameters


@pytest.mark.parametrize("kind", DOMAINS)
@pytest.mark.parametrize("make", [ms.Auto, ms.GPUCB])
def test_every_domain_can_be_drawn(kind, make):
    domain = DOMAINS[kind]()
    model = () if make is ms.Auto else (ms.Model(ms.product_kernel(domain), norm_bound=2.0, noise=0.1),)
    policy = played(make(domain, *model), 7)
    before = policy.state()
    text = page_of(policy)
    assert policy.state() == before
    assert "<script>alert(1)" not in text
    assert len(text.encode()) < 6e6
    found = plotted(text)
    assert len(found["slices"]) == VARYING[kind]
    alone = VARYING[kind] == 1  # nothing to compare
    assert {name for name, figure in found["figures"].items() if figure} == {
        "best", "model", *([] if alone else ["importance", "parallel"])
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["table", "space"])
def test_everything_is_written(kind, tmp_path):
    policy = played(ms.Auto(DOMAINS[kind]()), 6)
    page = ms.reports.of_policy(policy, tmp_path / "new" / "folder")
    assert page == tmp_path / "new" / "folder" / "index.html"
    assert {path.name for path in page.parent.iterdir()} == PICTURES | {"index.html", "evaluations.csv"}
    for path in page.parent.glob("*.p*"):
        assert path.read_bytes().startswith(b"\x89PNG" if path.suffix == ".png" else b"%PDF")
    with (page.parent / "evaluations.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["result"]) for row in rows] == policy.observations.y.tolist()
    if kind == "table":
        assert {row[NASTY] for row in rows} <= {"Säure", "l'eau", NASTY}


def test_a_table_keeps_its_words():
    text = page_of(played(ms.Auto(table()), 8, lambda x: x[0] / 20), target="Ausbeute")
    assert "Temperatur (°C)" in text
    assert "Ansatz" in text.partition("<tbody>")[2]
    assert "<th>Ausbeute</th>" in text
    assert "Optimisation of Ausbeute" in text
    assert "Use Ansatz " in text


def test_slices_are_the_model_along_a_line():
    policy = played(ms.Auto(space()), 9)
    found = optimisation.Optimisation(policy)
    use = policy.recommend()
    slices = {each.name: each for each in found.slices}
    assert set(slices) == {"lr", "depth", "units", "kind"}
    assert slices["lr"].log
    assert not slices["lr"].levels
    assert slices["depth"].x.tolist() == [1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(slices["units"].x, np.round(slices["units"].x))
    assert slices["kind"].labels == ["a", "b", NASTY]
    depth = slices["depth"]
    X = np.repeat(use.x[None, :], 6, axis=0)
    X[:, 1] = depth.x
    np.testing.assert_allclose(depth.mean, policy.posterior.at(X)[0])
    np.testing.assert_allclose(depth.lower, policy.band(X).lower)
    assert depth.at == use.x[1]
    here = np.all(np.delete(policy.observations.x, 1, axis=1) == np.delete(use.x, 1), axis=1)
    assert (depth.nearness[here] == 1.0).all()
    assert ((depth.nearness >= 0) & (depth.nearness <= 1)).all()


def test_a_policy_with_bands_at_its_candidates_only():
    domain = table()
    model = ms.Model(ms.product_kernel(domain), norm_bound=2.0, noise=0.1)
    policy = played(ms.PhasedUncertaintySampling(domain, model, horizon=20), 8)
    slices = {each.name: each for each in optimisation.Optimisation(policy).slices}
    assert slices["Temperatur (°C)"].x.tolist() == [20, 40, 60, 80]
    assert slices[NASTY].labels == ["Säure", "l'eau", NASTY]
    page_of(policy)


def test_smaller_is_better_where_it_is():
    policy = ms.Auto(ms.Box([(0, 1)]), minimize=True)
    policy.observe(np.linspace(0, 1, 8)[:, None], [5.0, 4.0, 6.0, 3.0, 3.5, 2.0, 7.0, 8.0])
    found = optimisation.Optimisation(policy)
    policy.refresh()
    mean = policy.posterior.at(policy.observations.x)[0]
    np.testing.assert_allclose(found.best, np.minimum.accumulate(mean))  # not of the luckiest results
    np.testing.assert_array_equal(found.leading(8), np.argsort(mean, kind="stable"))
    assert (found.ids < 0).all()
    assert found.about.endswith("smaller is better")
    assert found.use is not None
    assert found.use.mean < 4


def test_outliers_leave_room_for_the_rest():
    policy = ms.Auto(ms.Box([(0, 1)]), minimize=True)
    policy.observe(np.linspace(0, 1, 12)[:, None], [1e12, *np.linspace(1, 2, 11)])
    low, high = optimisation.Optimisation(policy).vertical()
    assert low <= 1.0
    assert high < 1e6


def test_before_there_is_a_model_results_are_drawn_alone():
    text = page_of(played(ms.Auto(ms.Box([(0, 1), (0, 1)])), 3))
    assert "There is no model yet" in text
    found = plotted(text)
    assert found["slices"] == []
    assert found["figures"]["model"] is None
    assert found["figures"]["best"]


def test_names_and_title():
    policy = played(ms.Auto(ms.Box([(0, 1), (0, 1)])), 6)
    text = page_of(policy, title=NASTY, names=["pressure", "flow"])
    assert "Use pressure = " in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; $x$ {y}" in text
    with pytest.raises(InvalidInput, match="names must be 2 different ones, one per parameter, got 'a'"):
        optimisation.Optimisation(policy, names=["a"])


def test_others_say_what_to_use_too():
    found = optimisation.Optimisation(played(ms.GPUCB(ms.Box([(0, 1)]).grid(9), MODEL, width=2.0), 6))
    assert found.sentences[0].startswith("Use x0 = ")
    assert "(not guaranteed)" in found.sentences[0]
    assert found.sentences[2] == "Nowhere do the results contradict the model."


def test_a_contradicted_model_is_marked():
    policy = ms.GPUCB(ms.Box([(0, 1)]).grid(11), ms.Model(RBF(0.5), norm_bound=1.0, noise=0.05))
    y = np.zeros(11)
    y[5] = 3.0
    policy.observe(np.repeat(np.arange(11), 5), np.repeat(y, 5))
    found = optimisation.Optimisation(policy)
    assert found.points.contradicted[5]
    assert "Results contradict the model at" in found.sentences[2]


def test_the_model_is_drawn_against_results_that_it_has_not_seen():
    """Every result predicted by a posterior of the others, one by one."""
    rng = np.random.default_rng(0)
    X = rng.random((9, 2))
    y = X[:, 0] + 0.1 * rng.standard_normal(9)
    domain = ms.Box([(0, 1), (0, 1)])
    model = ms.Model(RBF(0.5), norm_bound=2.0, noise=0.1, scale=2.0)
    policy = ms.GPUCB(domain, model, minimize=True)
    policy.observe(X, y)
    found = left_out.left_out(policy)
    for i in range(9):
        posterior = ms.posterior.Posterior(model, domain)
        posterior.observe(np.delete(X, i, axis=0), np.delete(y, i))
        mean, std = (float(each[0]) for each in posterior.at(X[[i]]))
        reach = 1.959964 * np.hypot(2.0 * std, 0.1)
        np.testing.assert_allclose(
            [found.mean[i], found.lower[i], found.upper[i]], [mean, mean - reach, mean + reach], atol=1e-6
        )
    reach = (found.upper - found.lower) / 2 / 1.959964
    for share, ends in zip(found.inside, (0.674490, 1.281552, 1.959964), strict=True):
        assert share == np.mean(np.abs(y - found.mean) <= ends * reach)


def test_a_result_far_off_is_outside_of_what_the_others_predict():
    x = np.linspace(0, 1, 20)
    y = np.sin(5 * x) + 0.02 * np.random.default_rng(0).standard_normal(20)
    y[7] += 4.0
    policy = ms.Auto(ms.Box([(0, 1)]))
    policy.observe(x[:, None], y)
    found = optimisation.Optimisation(policy)
    assert found.left_out.upper[7] < y[7]
    assert found.doubtful == [7]
    text = page_of(policy)
    assert "Doubtful: evaluation 8, which the others do not predict." in text
    assert "Nowhere do the results contradict" not in text
    assert "the bands of 50, 80 and 95 % hold" in text


def shares(n, *inside):
    return left_out.sentence(left_out.LeftOut(np.arange(n), *[np.zeros(n)] * 3, inside))


def test_the_sentence_says_whether_bands_hold():
    assert shares(100, 0.5, 0.8, 0.95).endswith("hold 50 %, 80 % and 95 % of the 100 results, as they should.")
    assert "too narrow" in shares(100, 0.3, 0.6, 0.8)
    assert "too narrow" in shares(100, 0.7, 0.85, 0.8)  # heavy tails: what is promised at 95 % counts
    assert "wider than they need be" in shares(100, 0.8, 0.97, 1.0)
    assert "too few to tell" in shares(5, 0.0, 0.2, 0.4)


def test_bars_slices_and_sentences_have_one_importance():
    policy = played(ms.Auto(space()), 16)
    found = optimisation.Optimisation(policy)
    assert found.importance == policy.importance()
    order = [each.name for each in found.slices]
    assert order == sorted(order, key=lambda name: -found.importance[name].share)
    panel = optimisation_figures.importances(found, 40)
    assert found.importance["fixed"].unknown == "one value only"
    for name, each in [pair for pair in found.importance.items() if pair[0] != "fixed"]:
        at = panel.y.labels.index(name)
        assert panel.marks[0].high[at] == (0.0 if each.unknown else pytest.approx(100 * each.share))
        assert panel.marks[0].written[at].strip() == each.unknown
        assert learnt.share_of(each) in panel.marks[0].text[at]
        (card,) = [one for one in found.slices if one.name == name]
        assert learnt.share_of(each) in optimisation_figures.slice_of(found, card).title


def test_nothing_is_written_where_it_fails(tmp_path, monkeypatch):
    empty = ms.Auto(ms.Box([(0, 1)]))
    with pytest.raises(InvalidInput, match="there is nothing to report yet: tell the policy a result first"):
        ms.reports.of_policy(empty, tmp_path / "a")
    with pytest.raises(InvalidInput, match="a report is of a policy, got str"):
        ms.reports.of_policy("policy", tmp_path / "a")
    policy = played(ms.GPUCB(ms.Box([(0, 1)]).grid(9), MODEL), 3)

    def fail(_):
        raise RuntimeError("no ink")

    monkeypatch.setattr("misspec.reports.optimisation_figures.model", fail)
    with pytest.raises(RuntimeError, match="no ink"):
        ms.reports.of_policy(policy, tmp_path / "a")
    assert not (tmp_path / "a").exists()
    monkeypatch.undo()
    (tmp_path / "a").write_text("in the way")
    with pytest.raises(StorageError, match="cannot make the folder"):
        ms.reports.of_policy(policy, tmp_path / "a")


def test_another_report_replaces_its_own_files_only(tmp_path):
    for name in ("parallel.png", "index.html", "mine.png"):
        (tmp_path / name).write_text("old")
    ms.reports.of_policy(played(ms.GPUCB(ms.Box([(0, 1)]), MODEL), 2), tmp_path)
    assert (tmp_path / "mine.png").read_text() == "old"
    assert not (tmp_path / "parallel.png").exists()
    assert "<!doctype html>" in (tmp_path / "index.html").read_text()


def test_without_the_extra_it_says_what_to_install():
    code = (
        "import sys; sys.modules['matplotlib'] = sys.modules['polars'] = None\n"
        "import misspec as ms\n"
        "try: ms.reports\nexcept ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'misspec[experiments]'" in done.stdout


def test_a_report_of_a_space_with_steps(tmp_path):
    space = ms.Space(
        {"x": ms.Float(0.3, 1.0, step=0.1), "n": ms.Int(0, 900, step=3), "z": ms.Float(0, 1), "one": ms.Int(3, 3)}
    )
    policy = ms.Auto(space, seed=0)
    for _ in range(7):
        query = policy.ask()
        policy.tell(query, query.params["x"] - abs(query.params["z"] - 0.5))
    page = ms.reports.of_policy(policy, tmp_path / "report")
    assert page.stat().st_size > 10_000
