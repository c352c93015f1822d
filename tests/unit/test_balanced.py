"""What Balanced takes and refuses, and its bases: directions, tables, contexts, models that are learnt."""

import copy
import json

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct

import misspec as ms
from misspec.theory.bounds import LEAST

DOMAIN = ms.Finite(np.random.default_rng(1).random((25, 2)))
MODEL = ms.Model(RBF(0.3), norm_bound=1.5, noise=0.1)


def truth(x):
    return float(np.sin(5 * x[0]) * x[1])


def play(policy, rounds, seed=0):
    """Queries and results, whose noise depends on the number of the query alone."""
    for _ in range(rounds):
        query = policy.ask()
        noise = np.random.default_rng([seed, query.id]).standard_normal()
        policy.tell(query, truth(query.x) + 0.1 * noise)


def learners(**settings):
    return [ms.Auto(DOMAIN, **settings), ms.InsuredUCB(DOMAIN, MODEL, **settings)]


def used():
    policy = ms.GPUCB(DOMAIN, MODEL)
    policy.ask()
    return policy


def fed():
    policy = ms.GPUCB(DOMAIN, MODEL)
    policy.observe([0], [1.0])
    return policy


OTHER = ms.Finite(np.random.default_rng(2).random((25, 2)))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ms.Balanced([]), "at least one policy"),
        (lambda: ms.Balanced(ms.GPUCB(DOMAIN, MODEL)), "list of at least one policy"),
        (lambda: ms.Balanced([MODEL]), "list of at least one policy"),
        (lambda: ms.Balanced([ms.GPUCB(DOMAIN, MODEL), ms.GPUCB(OTHER, MODEL)]), "on one domain"),
        (lambda: ms.Balanced([ms.GPUCB(DOMAIN, MODEL), ms.GPUCB(DOMAIN, MODEL, minimize=True)]), "same minimize="),
        (lambda: ms.Balanced([used()]), "hand in a new one"),
        (lambda: ms.Balanced([fed()]), "hand in a new one"),
        (lambda: ms.Balanced([ms.PhasedUncertaintySampling(DOMAIN, MODEL)]), 'evidence="own"'),
        (lambda: ms.Balanced(learners(), evidence="none"), "evidence"),
        (lambda: ms.Balanced(learners(), noise=0.0), "noise"),
        (lambda: ms.Balanced(learners(), delta=1.0), "delta"),
        (lambda: ms.Balanced(learners(), reward_range=-1.0), "reward_range"),
        (lambda: ms.RegretBalancing(DOMAIN, MODEL, horizon=9, bounds="learnt", caution="price"), "leave caution= out"),
    ],
)
def test_errors_say_what_to_do(make, says):
    with pytest.raises(ms.InvalidInput, match=says):
        make()


def test_what_cannot_be_done_says_why():
    policy = ms.Balanced([ms.comparators.Corral(DOMAIN, MODEL, horizon=50), ms.GPUCB(DOMAIN, MODEL)])
    play(policy, 8)
    before = json.dumps(policy.state())
    with pytest.raises(ms.InvalidInput, match="Corral has chosen by this result"):
        policy.retract(0)
    with pytest.raises(ms.InvalidInput, match="needs all its events"):
        policy.compact()
    query = policy.ask()
    with pytest.raises(ms.InvalidInput, match="takes no noise of single results"):
        policy.tell(query, 0.1, noise=0.2)
    policy.drop(query)
    phased = ms.Balanced([ms.PhasedUncertaintySampling(DOMAIN, MODEL), ms.GPUCB(DOMAIN, MODEL)], evidence="own")
    play(phased, 5)
    with pytest.raises(ms.InvalidInput, match="takes no data from elsewhere"):
        phased.observe([0], [0.1])
    with pytest.raises(ms.InvalidInput, match="begin again without it"):
        phased.retract(0)
    assert json.loads(before)["events"] == policy.state()["events"][: len(json.loads(before)["events"])]


def test_the_policies_handed_in_stay_as_they_are():
    bases = learners()
    policy = ms.Balanced(bases)
    play(policy, 8)
    assert [each.t for each in bases] == [0, 0]
    assert [each.t for each in policy.policies] == [8, 8]


def test_bases_that_are_waiting_are_passed_over():
    """A phased base hands out its episode and waits; the other goes on, and where none can, the call says so."""
    phased, other = ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=7), ms.UniformSampling(DOMAIN, MODEL)
    policy = ms.Balanced([phased, other], evidence="own")
    asked = policy.ask(12)
    assert len(asked) == 12
    assert sum(query.details["base"] == 0 for query in asked) == 1  # its first episode
    alone = ms.Balanced([phased, ms.PhasedUncertaintySampling(DOMAIN, MODEL, horizon=3)], evidence="own")
    assert alone.limit == 10
    assert len(alone.ask(5)) == 2
    with pytest.raises(ms.AwaitingResults):
        alone.ask()
    alone.tell(alone.pending, [0.1, 0.2])
    while alone.t < 10:
        queries = alone.ask(4)
        alone.tell(queries, [0.1] * len(queries))
    with pytest.raises(ms.HorizonReached):
        alone.ask()


def test_minimising_is_maximising_turned_around():
    up = ms.Balanced([ms.InsuredUCB(DOMAIN, MODEL), ms.GPUCB(DOMAIN, MODEL, width=2.0)])
    down = ms.Balanced([ms.InsuredUCB(DOMAIN, MODEL, minimize=True), ms.GPUCB(DOMAIN, MODEL, width=2.0, minimize=True)])
    for _ in range(25):
        a, b = up.ask(), down.ask()
        assert a.index == b.index
        assert a.details == b.details
        up.tell(a, truth(a.x))
        down.tell(b, -truth(b.x))
    assert up.rewards == down.rewards
    np.testing.assert_array_equal(up.band().lower, -down.band().upper)


def test_one_that_learns_its_model_keeps_it_when_restored():
    policy = ms.Balanced(learners(), seed=4)
    play(policy, 20)
    assert any(event[0] == "base" for event in policy.log.events)
    twin = ms.restore(json.loads(json.dumps(policy.state())))
    assert twin.policies[0].samples == policy.policies[0].samples
    assert twin.policies[0].state()["events"] == policy.policies[0].state()["events"]
    for each in (twin, copy.deepcopy(policy)):
        play(each, 6, seed=1)
    play(policy, 6, seed=1)
    assert [q.index for _, q in zip(range(3), policy.ask(3), strict=True)] == [q.index for q in twin.ask(3)]


def test_a_result_is_taken_back_from_every_base():
    policy = ms.Balanced(learners())
    play(policy, 12)
    wrong = policy.ask()
    policy.tell(wrong, 1000.0)
    play(policy, 3)
    policy.retract(wrong)
    assert [each.t for each in policy.policies] == [15, 15]
    assert all(wrong.id in each.log.pending for each in policy.policies)
    assert policy.policies[0].samples["results"] == 15  # learnt again at once
    assert max(policy.rewards) < 20.0
    policy.tell(wrong, 0.2)
    assert sum(policy.counts) == 16


def test_results_of_a_table_are_data_from_elsewhere_to_all():
    table = ms.Finite.from_table(
        {"heat": [float(i) for i in range(30)], "yield": [0.1 * i if i < 8 else None for i in range(30)]},
        target="yield",
    )
    policy = ms.Balanced([ms.Auto(table), ms.InsuredUCB(table, MODEL)])
    assert [policy.t, *(each.t for each in policy.policies)] == [8, 8, 8]
    assert policy.counts == [0, 0]
    query = policy.ask()
    policy.tell(query, 0.5)
    assert sum(policy.counts) == 1
    twin = ms.restore(policy.state())
    assert twin.t == policy.t == 9


def test_contexts():
    domain = ms.Joint(ms.Finite(np.linspace(0, 1, 6)[:, None]), ms.Open(1, radius=1.0))
    model = ms.Model(DotProduct(0.1) * 0.4, norm_bound=1.0, noise=0.1)
    policy = ms.Balanced([ms.InsuredUCB(domain, model), ms.RegretBalancing(domain, model, horizon=40)])
    rng = np.random.default_rng(0)
    for _ in range(20):
        query = policy.ask(context=[float(rng.uniform(-0.5, 0.5))])
        policy.tell(query, float(query.x[0] * query.context[0]))
    assert policy.comparison_radius(np.array([9.0]))[0] > 2 * ms.theory.elimination_radius(9.0, 2, 0.1, 0.1, "anytime")
    assert policy.recommend(context=[0.3]).context is not None
    assert ms.restore(json.loads(json.dumps(policy.state()))).counts == policy.counts


def test_noise_is_the_largest_that_is_given_or_what_is_learnt():
    rough = ms.Model(RBF(0.3), norm_bound=1.0, noise=0.3)
    assert ms.Balanced([ms.GPUCB(DOMAIN, MODEL), ms.GPUCB(DOMAIN, rough)]).noise_level == 0.3
    assert ms.Balanced(learners()).noise_level == 0.1
    assert ms.Balanced(learners(), noise=0.7).noise_level == 0.7
    assert ms.Balanced([ms.Auto(DOMAIN, noise=0.2), ms.Auto(DOMAIN)]).noise_level == 0.2
    inner = ms.Balanced([ms.Auto(DOMAIN), ms.Auto(DOMAIN, aim="earn")])
    policy = ms.Balanced([inner, ms.Auto(DOMAIN)])
    assert policy.noise_level == 1.0
    first = [policy.ask() for _ in range(2)]
    policy.tell(first, [0.0, 4.0])
    assert policy.noise_level == 2.0  # of the results, as long as there is no model
    play(policy, 10)
    levels = [policy.policies[1].noise_level, *(each.noise_level for each in policy.policies[0].policies)]
    assert policy.noise_level == max(levels)


def test_what_is_read_is_of_the_base_that_has_played_most():
    policy = ms.Balanced(learners(), seed=2)
    play(policy, 30)
    speaker = policy.policies[policy.leader]
    assert policy.counts[policy.leader] == max(policy.counts)
    found = policy.recommend()
    assert (found.index, found.lower) == (speaker.recommend().index, speaker.recommend().lower)
    assert not found.guaranteed
    assert any("the rewards chose the base" in each for each in found.caveats)
    assert set(speaker.caveats) <= set(policy.caveats)
    assert policy.epsilon == speaker.epsilon
    assert repr(policy).startswith("Balanced([Auto, InsuredUCB] on Finite")
    assert min(policy.potentials) >= LEAST
    assert policy.facts["bases"] == ["Auto", "InsuredUCB"]
    assert policy.facts["coefficients"] == policy.coefficients


def test_doubtful_results_are_named_by_their_rows_here():
    """With evidence of its own a base has some of the results only; rows are those of the balanced policy."""
    policy = ms.Balanced([ms.UniformSampling(DOMAIN, MODEL), ms.InsuredUCB(DOMAIN, MODEL)], evidence="own")
    play(policy, 40)
    known = policy.policies[policy.leader].observations.ids
    wrong = next(q for q in iter(policy.ask, None) if q.details["base"] == policy.leader)
    policy.drop([q for q in policy.pending if q.id != wrong.id] or [])
    policy.tell(wrong, 90.0)
    found = policy.suspicious()
    assert found
    assert policy.observations.y[found[0].row] == 90.0
    assert len(known) < 40


def test_a_state_that_was_edited_is_refused():
    policy = ms.Balanced(learners())
    play(policy, 16)  # until Auto has learnt its model
    state = json.loads(json.dumps(policy.state()))

    def edited(change):
        wrong = copy.deepcopy(state)
        change(wrong)
        with pytest.raises(ms.StorageError):
            ms.restore(wrong)

    turn = next(i for i, event in enumerate(state["events"]) if event[0] == "base")
    edited(lambda s: s["events"][turn].__setitem__(1, 7))
    edited(lambda s: s["events"][turn].__setitem__(2, "unknown"))
    edited(lambda s: s["events"][0][1]["details"].__setitem__("base", 2))
    edited(lambda s: s["events"][0][1]["details"].__setitem__("own", 3))
    edited(lambda s: s["events"][0][1]["details"].pop("offer"))
    edited(lambda s: s["settings"]["policies"]["policies"][0].__setitem__("policy", "Nothing"))
    edited(lambda s: s["settings"]["policies"]["policies"][1].pop("model"))
    edited(lambda s: s["settings"]["policies"].__setitem__("policies", 3))
    edited(lambda s: s["settings"]["policies"].__setitem__("policies", [3]))
    edited(lambda s: s["settings"]["policies"].__setitem__("policies", []))


def test_a_kernel_of_a_users_own_is_handed_in_again():
    class Own(RBF):
        pass

    model = ms.Model(Own(0.3), norm_bound=1.5, noise=0.1)
    policy = ms.Balanced([ms.Auto(DOMAIN), ms.GPUCB(DOMAIN, model)])
    play(policy, 4)
    with pytest.raises(ms.StorageError, match="hand it in again"):
        ms.restore(policy.state())
    assert ms.restore(policy.state(), kernel=Own(0.3)).counts == policy.counts
    with pytest.raises(ms.InvalidInput, match="several custom kernels"):
        ms.Balanced([ms.GPUCB(DOMAIN, model), ms.GPUCB(DOMAIN, ms.Model(Own(0.2), norm_bound=1.0, noise=0.1))]).state()


def test_a_picture_of_its_trace_names_the_bases():
    problem = ms.problems.from_values(DOMAIN, MODEL, np.array([truth(x) for x in DOMAIN.points]))
    trace = ms.simulate(ms.Balanced(learners()), problem, 6)
    figure = ms.reports.trace_figure(trace)
    labels = [text.get_text() for axes in figure.axes for text in axes.get_yticklabels()]
    assert "0: Auto" in labels
    assert "1: InsuredUCB" in labels


@pytest.mark.parametrize("hook", ["choose", "on_ask", "on_tell"])
def test_a_call_that_fails_in_a_base_is_undone(hook, monkeypatch):
    """Whatever the other bases have done in it: the policy goes on as one in which nothing failed."""
    policy, twin = (ms.Balanced(learners(), seed=1) for _ in range(2))
    play(policy, 9)
    play(twin, 9)
    asked, before = (policy.ask(), twin.ask()), json.dumps(policy.state())
    with monkeypatch.context() as patched:
        for base in policy.policies:
            patched.setattr(base, hook, lambda *_: 1 / 0)
            if hook == "on_tell":
                break
        with pytest.raises(ZeroDivisionError):
            policy.tell(asked[0], 0.3) if hook == "on_tell" else policy.ask(2)
    assert json.dumps(policy.state()) == before
    policy.tell(asked[0], 0.3)
    twin.tell(asked[1], 0.3)
    play(policy, 4)
    play(twin, 4)
    for ours, theirs in zip(policy.ask(4), twin.ask(4), strict=True):
        assert (ours.index, ours.details) == (theirs.index, theirs.details)


def test_a_journal_goes_on_with_what_the_bases_have_learnt(tmp_path):
    policy = ms.Balanced(learners(), seed=1)
    policy.journal(tmp_path / "journal")
    play(policy, 14)
    twin = ms.load(tmp_path / "journal")
    policy.journal(None)
    twin.journal(tmp_path / "journal")
    play(policy, 5)
    play(twin, 5)
    assert policy.counts == twin.counts
    np.testing.assert_array_equal(policy.band().lower, twin.band().lower)
    twin.journal(None)
    with pytest.raises(ms.StorageError, match="its settings differs"):
        ms.Balanced([*learners(), ms.GPUCB(DOMAIN, MODEL)], seed=1).journal(tmp_path / "journal")
