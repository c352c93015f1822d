"""A policy, a width, a domain and a problem of one's own are first-class citizens."""

import json
import sys
import textwrap

import numpy as np
import polars as pl
import pytest
from sklearn.gaussian_process.kernels import RBF
from typer.testing import CliRunner

import misspec as ms
from files import head, started
from misspec import experiments as ex
from misspec.cli import app
from misspec.errors import InvalidInput, StorageError
from misspec.experiments import construct
from misspec.policies import Decision
from misspec.testing import CONTRACT, Subject

MODEL = ms.Model(RBF(0.2), norm_bound=1.5, noise=0.1, offset=0.2)
DOMAIN = ms.Finite(np.random.default_rng(0).random((40, 2)))


def truth(x):
    return 0.2 + float(np.sin(6 * x[0]) * x[1])


class EpsilonGreedy(ms.Policy):
    """The largest mean, or with probability `explore` a random candidate; `favours` is added to the means."""

    def __init__(self, domain, model, *, explore=0.1, favours=None, seed=0):
        super().__init__(domain, model, seed=seed)
        self.explore, self.favours = explore, np.zeros(self.field.size) if favours is None else np.asarray(favours)
        self._belief = self._evidence.posterior(model)
        self._without.append("greedy choices have no theory")

    def choose(self, actions):
        offer = self.field.whole("EpsilonGreedy") if actions is None else actions
        c = self.field.look(self._belief, None, offer, pending=True)
        bonus = self.favours[offer.rows] if offer.rows is not None else 0.0
        explores = self._rng.random() < self.explore
        row = int(self._rng.integers(len(c.mean)) if explores else (c.mean + bonus).argmax())
        reasons = {
            "mean": float(c.mean[row]),
            "std": float(np.sqrt(c.variance[row])),
            "details": {"explores": explores},
        }
        return Decision(self.field.place(offer, row), None if actions is None else row, reasons)

    @property
    def posterior_in_use(self):
        return self._belief

    def band_at(self, actions):
        c = self.field.look(self._belief, None, actions, pending=False)
        return ms.policies.Band(c.mean - 2 * np.sqrt(c.variance), c.mean + 2 * np.sqrt(c.variance))


class Masked(ms.Finite):
    """Named arms with two columns: those points of a grid for which the mask is true."""

    def __init__(self, rows, columns, mask):
        wanted = np.asarray(mask, dtype=bool)
        pairs = [(r, c) for r in rows for c in columns]
        kept = [pair for pair, inside in zip(pairs, wanted.ravel(), strict=True) if inside]
        super().__init__(np.array(kept, dtype=float), [f"{r}/{c}" for r, c in kept])


MASKED = Masked([0.1, 0.4, 0.7], [0.2, 0.5, 0.8, 0.9], np.arange(12).reshape(3, 4) % 5 != 0)


@pytest.mark.parametrize("check", CONTRACT, ids=lambda c: c.__name__)
@pytest.mark.parametrize("favours", [None, np.linspace(0, 0.1, 40)], ids=["plain", "array setting"])
def test_the_contract_of_a_policy_of_ones_own(check, favours):
    check(Subject(lambda seed: EpsilonGreedy(DOMAIN, MODEL, favours=favours, seed=seed), truth, moments=4))


@pytest.mark.parametrize("check", CONTRACT, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", ["gp-ucb", "ec", "phased", "balancing", "greedy"])
def test_the_contract_on_a_domain_of_ones_own(check, name):
    make = {
        "gp-ucb": lambda seed: ms.GPUCB(MASKED, MODEL, seed=seed),
        "ec": lambda seed: ms.ECGPUCB(MASKED, MODEL, epsilon=0.1, seed=seed),
        "phased": lambda seed: ms.PhasedUncertaintySampling(MASKED, MODEL, horizon=500, seed=seed),
        "balancing": lambda seed: ms.RegretBalancing(MASKED, MODEL, horizon=100, seed=seed),
        "greedy": lambda seed: EpsilonGreedy(MASKED, MODEL, seed=seed),
    }[name]
    check(Subject(make, truth, moments=4))


def test_a_masked_grid_has_names():
    assert len(MASKED) == 9
    query = ms.GPUCB(MASKED, MODEL).ask()
    assert query.name == f"{query.x[0]}/{query.x[1]}"


def test_what_is_missing_is_named_when_the_class_is_instantiated():
    class Half(ms.Policy):
        def choose(self, actions):
            return actions

    with pytest.raises(TypeError, match=r"band_at.*posterior"):
        Half(DOMAIN, MODEL)


def test_settings_come_from_the_signature():
    policy = EpsilonGreedy(DOMAIN, MODEL, explore=0.5)
    assert policy.settings == {"explore": 0.5, "favours": None, "seed": 0}
    array = EpsilonGreedy(DOMAIN, MODEL, favours=np.arange(40.0))
    again = ms.restore(json.loads(json.dumps(array.state())))
    np.testing.assert_array_equal(again.favours, np.arange(40.0))
    with pytest.raises(InvalidInput, match="setting explore cannot be stored: object"):
        EpsilonGreedy(DOMAIN, MODEL, explore=object()).state()


def test_a_class_with_the_name_of_ours_replaces_nothing():
    state = ms.GPUCB(DOMAIN, MODEL).state()

    class GPUCB(EpsilonGreedy):
        """Somebody's own."""

    assert type(ms.restore(state)) is ms.GPUCB
    mine = GPUCB(DOMAIN, MODEL, explore=0.3)
    assert type(ms.restore(mine.state())) is GPUCB
    other = {**mine.state(), "policy": "elsewhere.rules:GPUCB"}
    with pytest.raises(StorageError, match=r"elsewhere.rules:GPUCB, which is not imported; import elsewhere.rules"):
        ms.restore(other)
    assert "elsewhere" not in sys.modules


def narrow(model, log_det, delta):
    return 0.3 * model.norm_bound * np.sqrt(2 * np.log(1 / delta) + log_det)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: ms.GPUCB(DOMAIN, MODEL, width=narrow, seed=seed),
        lambda seed: ms.ECGPUCB(DOMAIN, MODEL, epsilon=0.1, width=narrow, seed=seed),
        lambda seed: ms.RegretBalancing(DOMAIN, MODEL, horizon=100, width=narrow, seed=seed),
        lambda seed: ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=500, width=narrow, seed=seed),
    ],
)
def test_a_width_that_is_a_function(make):
    policy = make(0)
    query = policy.ask()
    policy.tell(query, 0.1)
    assert "a function" in policy.caveats[0]
    assert policy.state()["settings"]["width"] == {"callable": f"{narrow.__module__}:narrow"}
    with pytest.raises(StorageError, match=r"hand it in again: restore\(state, width=…\)"):
        ms.restore(policy.state())
    for check in CONTRACT:
        check(Subject(make, truth, rounds=15, width=narrow, moments=3))


def test_what_a_width_function_returns_is_checked():
    policy = ms.GPUCB(DOMAIN, MODEL, width=lambda model, log_det, delta: "wide")
    with pytest.raises(InvalidInput, match="what the width function returns must be a finite number"):
        policy.ask()


MODULE = '''
import os
import numpy as np
import misspec as ms
from misspec.policies import Decision


class Quantile(ms.GPUCB):
    """GP-UCB with a multiplier of its own."""

    def __init__(self, domain, model, *, quantile=1.0, seed=0):
        super().__init__(domain, model, width=quantile, seed=seed)


class Deadly(ms.GPUCB):
    """Kills its process in one of its runs."""

    def choose(self, actions):
        if self.t == 20 and self.settings["seed"] == 1:
            os._exit(1)
        return super().choose(actions)


def steps(domain, model, *, height=0.2, seed=0):
    rng = np.random.default_rng(seed)
    values = height * np.sign(np.sin(20 * domain.points[:, 0] + rng.random()))
    return ms.problems.from_values(domain, model, values, name="steps")
'''
FILE = (
    head(60, 2, [0.1], grid=15)
    + """
[[problems]]
misfit = "random"

[[problems]]
kind = "my_rules:steps"
height = 0.3

[[policies]]
kind = "GPUCB"

[[policies]]
kind = "my_rules:Quantile"
quantile = 1.5
"""
)


@pytest.fixture
def my_rules(tmp_path, monkeypatch):
    (tmp_path / "my_rules.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("my_rules", None)


@pytest.mark.usefixtures("my_rules", "undrawn")
def test_files_import_only_what_is_allowed():
    with pytest.raises(InvalidInput, match=r"my_rules:steps is code of yours: .* --allow my_rules"):
        ex.go(FILE.encode(), "here", cores=1)
    assert "my_rules" not in sys.modules
    progress = ex.go(FILE.encode(), "here", cores=1, allow=["my_rules"])
    assert not progress.failed
    with pytest.raises(InvalidInput, match=r"--allow my_rules"):  # allowed to that call alone
        ex.results("here")
    with pytest.raises(InvalidInput, match=r'in Python allow=\["my_rules"\]'):
        ms.reports.of_experiment("here")
    found = ex.results("here", allow=["my_rules"])
    assert ms.reports.of_experiment("here", allow="my_rules").page.exists()
    assert len(found.runs) == found.of == 8
    assert {each.run.policy for each in found.runs} == {"GPUCB", "my_rules:Quantile(quantile=1.5)"}
    ex.go(FILE.encode(), "two cores", cores=2, allow=["my_rules"])
    with ex.allow("my_rules"):
        for one, other in zip(found.runs, ex.results("two cores").runs, strict=True):
            np.testing.assert_array_equal(one.regret, other.regret)
    wrong = FILE.replace("my_rules:Quantile", "my_rules:Median")
    with pytest.raises(InvalidInput, match="my_rules has no 'Median'"):
        ex.go(wrong.encode(), "wrong", cores=1, allow=["my_rules"])
    with pytest.raises(InvalidInput, match=r"must be a class derived from misspec.Policy"):
        ex.go(FILE.replace("my_rules:Quantile", "my_rules:steps").encode(), "wrong", cores=1, allow=["my_rules"])


def test_an_own_policy_is_told_what_the_problem_knows_only_where_the_file_or_its_signature_says_so(my_rules):
    """What it merely passes on to its base, with **settings, it is not told; above all not ε and εT at once."""
    more = """
    from misspec.policies.ec_gp_ucb import UpperConfidence

    class Open(UpperConfidence):
        def __init__(self, domain, model, *, explore=0.1, **settings):
            super().__init__(domain, model, **settings)

    class Named(Open):
        def __init__(self, domain, model, *, epsilon=0.0, **settings):
            super().__init__(domain, model, epsilon=epsilon, **settings)
    """
    (my_rules / "my_rules.py").write_text(textwrap.dedent(more))

    def told(kind, **said):
        table = {"kind": f"my_rules:{kind}", "name": "", "as_in_paper": False} | said
        with ex.allow("my_rules"):
            policy = construct.make_policy(table, DOMAIN, MODEL, 0.2, 50, seed=3)
        assert policy.settings["seed"] == 3
        return policy.settings["epsilon"], policy.settings["corruption"]

    assert told("Open") == (0.0, 0.0)
    assert told("Open", epsilon="known") == (0.2, 0.0)
    assert told("Open", corruption="known") == (0.0, 0.2 * 50)
    assert told("Open", epsilon=0.7) == (0.7, 0.0)
    assert told("Named") == (0.2, 0.0)
    assert told("Named", epsilon=0.7) == (0.7, 0.0)


@pytest.mark.usefixtures("undrawn")
def test_the_command_line_reaches_the_workers(my_rules):
    (my_rules / "mine.toml").write_text(FILE)
    refused = CliRunner().invoke(app, ["run", "mine.toml", "--cores", "2"])
    assert refused.exit_code == 1
    assert "--allow my_rules" in refused.stderr
    gain = CliRunner().invoke(app, ["gain", "mine.toml", "--allow", "my_rules"])
    assert gain.exit_code == 0, gain.stderr
    with started("-m", "misspec.cli", "run", "mine.toml", "--allow", "my_rules", cwd=my_rules) as process:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert "misspec report mine-results --allow my_rules" in out
    reported = CliRunner().invoke(app, ["report", "mine-results", "--allow", "my_rules"])
    assert reported.exit_code == 0, reported.output
    assert (my_rules / "mine-results" / "report" / "index.html").exists()


@pytest.mark.usefixtures("my_rules")
def test_a_dead_worker_is_one_failed_run():
    """The others are done, by workers that take its place; the same command tries that run again."""
    file = FILE.replace('kind = "GPUCB"', 'kind = "my_rules:Deadly"').replace("seeds = 2", "seeds = 4")
    progress = ex.go(file.encode(), "deadly", cores=2, allow=["my_rules"])
    assert progress.runs == 16
    assert [(run.policy, run.seed) for run in progress.failed] == [("my_rules:Deadly", 1)] * 2
    assert all("its worker process ended unexpectedly" in reason for reason in progress.failed.values())
    with ex.allow("my_rules"):
        assert len(ex.results("deadly").runs) == 14
    assert ex.go(file.encode(), "deadly", cores=2, allow=["my_rules"]).of == 2


def test_comparisons_keep_curves_and_can_be_told_apart():
    problems = [ms.problems.misspecified(DOMAIN, MODEL, 0.1, "random", seed) for seed in (0, 1)]
    policies = {
        "GP": lambda p: ms.GPUCB(p.domain, p.model),
        "greedy": lambda p: EpsilonGreedy(p.domain, p.model, explore=0.2),
    }
    found = ex.compare(policies, problems, 40, seeds=[3, 5], cores=2)
    alone = ex.compare(policies, problems, 40, seeds=[3, 5], cores=1)
    assert found.equals(alone)
    assert found.select("problem", "policy", "seed").is_unique().all()
    assert found["curve"].list.len().to_list() == [40] * 8
    np.testing.assert_allclose(found["curve"].list.mean(), found["regret"])
    assert found.filter(pl.col("policy") == "GP")["problem"].unique().len() == 2


class Scaled(Masked):
    """The same, in other coordinates for the kernel."""

    def encode(self, points):
        return super().encode(points) / 2.0


@pytest.mark.parametrize("check", CONTRACT, ids=lambda c: c.__name__)
def test_a_list_that_encodes_its_points_itself(check):
    domain = Scaled([0.1, 0.4, 0.7], [0.2, 0.5, 0.8, 0.9], np.arange(12).reshape(3, 4) % 5 != 0)
    np.testing.assert_array_equal(domain.encoded, domain.points / 2)
    if check.__name__ not in (
        "continues_to_the_bit",
        "threads_can_share_a_policy",
    ):  # these restore it without its domain
        check(Subject(lambda seed: ms.ECGPUCB(domain, MODEL, epsilon=0.1, seed=seed), truth, moments=4))
    policy = ms.ECGPUCB(domain, MODEL, epsilon=0.1)
    policy.observe([0, 3], [0.1, 0.2])
    with pytest.raises(StorageError, match="encodes its points in a way of its own; hand it in again"):
        ms.restore(policy.state())
    again = ms.restore(policy.state(), domain=domain)
    np.testing.assert_array_equal(again.band().lower, policy.band().lower)


class Passing(ms.ECGPUCB):
    """Hands its settings on."""

    def __init__(self, domain, model, **options):
        super().__init__(domain, model, **options)


class Bare(ms.Policy):
    """Has no __init__ of its own."""

    def choose(self, actions):
        offer = self.field.draw(self._rng) if actions is None else actions
        row = int(self._rng.integers(len(offer.points)))
        return Decision(self.field.place(offer, row), None if actions is None else row, {})

    @property
    def posterior_in_use(self):
        return self.posteriors[0] if self.posteriors else self._evidence.posterior(self.model)

    def band_at(self, actions):
        return ms.policies.Band(np.full(len(actions.points), -2.0), np.full(len(actions.points), 2.0))


def test_settings_that_are_handed_on_and_classes_without_an_init():
    policy = Passing(DOMAIN, MODEL, epsilon=0.1, seed=3)
    assert policy.settings.items() >= {"epsilon": 0.1, "seed": 3, "minimize": False}.items()
    policy.observe([1], [0.2])
    again = ms.restore(policy.state())
    assert again.epsilon == 0.1
    np.testing.assert_array_equal(again.band().upper, policy.band().upper)
    assert ms.restore(Bare(DOMAIN, MODEL, seed=4).state()).settings["seed"] == 4


def test_settings_belong_to_the_policy():
    bases = [(MODEL, 0.2), (MODEL, 0.0)]
    policy = ms.RegretBalancing(DOMAIN, MODEL, horizon=10, bases=bases)
    for _ in range(4):
        policy.tell(policy.ask(), 0.1)
    bases.pop()
    assert ms.restore(policy.state()).epsilons == [0.2, 0.0]
    favours = np.zeros(40)
    greedy = EpsilonGreedy(DOMAIN, MODEL, favours=favours)
    favours[0] = 9.0
    greedy.settings["favours"][1] = 9.0
    np.testing.assert_array_equal(ms.restore(greedy.state()).favours, np.zeros(40))


def test_arrays_with_nan_and_infinity_are_settings_too(tmp_path):
    odd = np.append(np.zeros(38), [np.nan, np.inf])
    EpsilonGreedy(DOMAIN, MODEL, favours=odd).save(tmp_path / "odd")
    np.testing.assert_array_equal(ms.load(tmp_path / "odd").favours, odd)
    with pytest.raises(InvalidInput, match="setting favours cannot be stored: an array of"):
        EpsilonGreedy(DOMAIN, MODEL, favours=np.array(["a"] * 40)).state()


def test_details_are_copies_all_the_way_down():
    class Listing(EpsilonGreedy):
        learnt: list = []  # noqa: RUF012  # of this test alone

        def choose(self, actions):
            choice = super().choose(actions)
            return choice._replace(reasons={**choice.reasons, "details": {"w": [1.0]}})

        def on_tell(self, asked, y):
            self.learnt.append(list(asked.details["w"]))
            super().on_tell(asked, y)

    policy = Listing(DOMAIN, MODEL)
    query = policy.ask()
    query.details["w"].append(99.0)
    policy.tell(query, 0.1)
    assert Listing.learnt == [[1.0]]
    assert ms.policies.Query(0, np.array([1, 2])).x.tolist() == [1.0, 2.0]


@pytest.mark.usefixtures("my_rules")
def test_what_an_allowed_module_merely_imports_is_not_allowed(tmp_path):
    wanted = tmp_path / "pwned"
    file = FILE.replace(
        'kind = "my_rules:steps"\nheight = 0.3', f'kind = "my_rules:os.system"\ncommand = "touch {wanted}"'
    )
    assert "os.system" in file
    for kind in ("my_rules:os.system", "my_rules:os", "my_rules:np"):
        with pytest.raises(
            InvalidInput, match=r"has no 'os.system'|not defined in a package that --allow names|must be"
        ):
            ex.go(file.replace("my_rules:os.system", kind).encode(), "evil", cores=1, allow="my_rules")
    assert not wanted.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("my_rules")
def test_every_run_may_kill_its_worker():
    file = FILE.replace('kind = "GPUCB"', 'kind = "my_rules:Deadly"').replace("seeds = 2", "seeds = [1]")
    file = file[: file.index('[[problems]]\nkind = "my_rules:steps"')] + file[file.index("[[policies]]") :]
    file = file[: file.index('[[policies]]\nkind = "my_rules:Quantile"')]
    file = file.replace("epsilons = [0.1]", "epsilons = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25]")
    progress = ex.go(file.encode(), "all dead", cores=2, allow=["my_rules"])
    assert progress.runs == len(progress.failed) == 6
