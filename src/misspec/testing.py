"""The contract that every policy must pass, importable by third parties.

    from misspec.testing import CONTRACT, Subject

    @pytest.mark.parametrize("check", CONTRACT, ids=lambda c: c.__name__)
    def test_contract(check):
        check(Subject(make=lambda seed: MyPolicy(domain, model, seed=seed), evaluate=f))

Each check makes fresh policies; where the contract is broken it raises AssertionError, or what a call has raised.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import operator
import pickle
import tempfile
import threading
import unittest
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from misspec.errors import Array, AwaitingResults, HorizonReached, InvalidInput
from misspec.policies import Band, Policy, Query, load, restore

THREADS = 8
expect = unittest.TestCase().assertRaises  # of an error, a function and its arguments


@dataclasses.dataclass(frozen=True)
class Subject:
    """A policy to check.

    make       returns a fresh policy for a seed, on any domain that can be asked without actions or contexts
    evaluate   returns the noise-free value at a point
    kernel, width   the custom kernel and width function to hand in again when a policy is restored, if it has any
    moments    how often a policy is saved and continued, each time from another state; 12 on a list, else 3

    Checks skip what the policy says it does not take (actions, new points, data from elsewhere).
    """

    make: Callable[[int], Policy]
    evaluate: Callable[[np.ndarray[Any, Any]], float]
    rounds: int = 40
    kernel: Any = None
    width: Any = None
    moments: int | None = None

    def noisy(self, query: Query) -> float:
        """A result that depends only on the query, so that twins are told the same."""
        return float(self.evaluate(query.x) + 0.05 * np.random.default_rng([17, query.id]).standard_normal())

    def play(self, policy: Policy, rounds: int, batch: int = 1) -> list[Query]:
        """Ask and tell; return the queries."""
        asked: list[Query] = []
        while len(asked) < rounds:
            try:
                queries = policy.ask(batch)
            except AwaitingResults:
                break
            policy.tell(queries, [self.noisy(q) for q in queries])
            asked += queries
        return asked


def queries_lie_in_the_domain(subject: Subject) -> None:
    policy = subject.make(0)
    domain = policy.domain
    for query in subject.play(policy, subject.rounds):
        assert (query.index is None) == (not policy.field.indexed)
        if policy.field.indexed:
            np.testing.assert_array_equal(query.x, probes(policy)[query.index])
        assert domain.contains(query.x[None, :]).all()
    assert policy.t >= subject.rounds
    assert not policy.pending


def queries_lie_in_the_action_set(subject: Subject) -> None:
    policy = subject.make(0)
    domain, known = policy.domain, probes(policy)
    finite = policy.field.indexed
    rng = np.random.default_rng(0)
    if not policy.abilities.takes_actions:
        expect(InvalidInput, policy.ask, actions=np.array([0, 1]) if finite else known[:2])
        return
    for t in range(subject.rounds):
        rows = rng.choice(len(known), min(7, len(known)), replace=False)
        points = not finite or (t % 2 == 1 and policy.abilities.takes_points)
        actions = nearby(policy, known[rows], rng) if points else rows
        query = policy.ask(actions=actions)
        assert query.position is not None
        if points:
            np.testing.assert_array_equal(query.x, actions[query.position])
        else:
            assert query.index == actions[query.position]
        policy.tell(query, subject.noisy(query))
    d = domain.dimension
    nothing, nowhere, odd = np.zeros((0, d)), np.full((1, d), np.nan), np.zeros((2, d + 1))
    for wrong in (np.array([len(known)]), np.array([-1]), np.array([]), nothing, nowhere, odd, np.array([0.5]), 3):
        expect(InvalidInput, policy.ask, actions=wrong)


def same_seed_same_answers(subject: Subject) -> None:
    one, other = subject.make(3), subject.make(3)
    for a, b in zip(subject.play(one, subject.rounds), subject.play(other, subject.rounds), strict=True):
        assert_same(a, b)


def continues_to_the_bit(subject: Subject) -> None:
    """A policy saved at any moment (without data, mid-episode, with queries pending) continues to the bit."""
    policy = subject.make(5)
    rng = np.random.default_rng(1)
    own = {"kernel": subject.kernel, "width": subject.width}
    with tempfile.TemporaryDirectory() as folder:
        journal, file = Path(folder) / "journal", Path(folder) / "file"
        policy.journal(journal)
        for _ in range(subject.moments or (12 if policy.field.indexed else 3)):
            policy.save(file)
            twins = [restore(json.loads(json.dumps(policy.state())), **own), load(file, **own), load(journal, **own)]
            if subject.kernel is None and subject.width is None:
                twins.append(pickle.loads(pickle.dumps(policy)))  # in memory, as joblib does; never from disk
            for twin in twins:
                assert twin.t == policy.t
                assert [q.id for q in twin.pending] == [q.id for q in policy.pending]
            reference = copy.deepcopy(policy)
            goes_on = _continue(subject, reference)
            for twin in twins:
                for a, b in zip(goes_on, _continue(subject, twin), strict=True):
                    assert_same(a, b)
                np.testing.assert_array_equal(band_of(twin).upper, band_of(reference).upper)
                assert _timeless(twin.state()) == _timeless(reference.state())
            _wander(subject, policy, rng)


def order_of_telling_does_not_matter(subject: Subject) -> None:
    one, other = subject.make(0), subject.make(0)
    for batch in (1, 4, 5):
        first, second = one.ask(batch), other.ask(batch)
        for a, b in zip(first, second, strict=True):
            # on a box the search finds a maximiser to some digits, on a list exactly
            apart = np.abs(one.domain.encode(a.x[None, :]) - one.domain.encode(b.x[None, :])).max()
            assert apart <= (0.0 if one.field.indexed else 1e-4)
        for query in first:
            one.tell(query, subject.noisy(query))
        for query in reversed(second):
            other.tell(query.id, subject.noisy(query))
    a_mean, a_std = one.posterior.at(probes(one))
    b_mean, b_std = other.posterior.at(probes(other))
    tolerance = 1e-9 if one.field.indexed else 1e-3
    np.testing.assert_allclose(a_mean, b_mean, atol=tolerance)
    np.testing.assert_allclose(a_std, b_std, atol=tolerance)


def refused_calls_change_nothing(subject: Subject) -> None:
    policy = subject.make(0)
    subject.play(policy, 6)
    done = policy.ask()
    policy.tell(done, 0.1)
    batch = policy.ask(2)
    before, band = json.dumps(policy.state()), band_of(policy)
    query = batch[0]
    stranger = dataclasses.replace(query, x=query.x + 1.0)
    nan, inf = float("nan"), float("inf")
    refused: list[tuple[Callable[..., Any], list[tuple[Any, ...]]]] = [
        (policy.tell, [(unknown, 0.2) for unknown in (done, 10_000, -1, "first", None, stranger)]),
        (policy.tell, [(query, result) for result in (nan, inf, "high", None)]),
        (policy.tell, [(several, [0.1, 0.2]) for several in ([query], [query, query], [query, 10_000])]),
        (policy.drop, [(done,), (10_000,)]),
        (policy.ask, [(0,), (-1,), (1.5,)]),
        (policy.observe, [([10_000], [0.1]), ([0], [nan]), ([0, 1], [0.1])]),
    ]
    for call, arguments in ((call, arguments) for call, several in refused for arguments in several):
        expect(InvalidInput, call, *arguments)
        assert json.dumps(policy.state()) == before
        np.testing.assert_array_equal(band_of(policy).lower, band.lower)


def failed_evaluations_can_be_dropped(subject: Subject) -> None:
    policy, twin = subject.make(0), subject.make(0)
    subject.play(policy, 6)
    subject.play(twin, 6)
    asked = policy.ask(2)
    for query in asked:
        policy.drop(query)
        expect(InvalidInput, policy.tell, query, 0.1)
    assert not policy.pending
    assert policy.t == twin.t
    again, expected = policy.ask(), twin.ask()
    assert policy.domain.contains(again.x[None, :]).all()
    drawn_alike = policy.state()["random"] == twin.state()["random"]  # otherwise this policy has drawn more
    if not policy.abilities.heeds_failures and policy.field.indexed and drawn_alike:
        assert again.index == expected.index
    subject.play(policy, 10)


def reads_leave_no_trace(subject: Subject) -> None:
    """Reading bands, recommendations, conflicts or states does not change what comes next."""
    one, other = subject.make(2), subject.make(2)
    for _ in range(20 if one.field.indexed else 5):
        band_of(one)
        one.recommend()
        _ = (one.conflicts(), one.pending, one.information, repr(one), one.state())
        one.posterior.at(probes(one))
        for a, b in zip(subject.play(one, 1), subject.play(other, 1), strict=True):
            assert_same(a, b)


def data_from_elsewhere(subject: Subject) -> None:
    policy = subject.make(0)
    known = probes(policy)
    if not policy.abilities.takes_data:
        expect(InvalidInput, policy.observe, known[:1], [0.1])
        return
    before = policy.t  # a policy may begin with the results that its domain holds
    policy.observe([0, 1, 0] if policy.field.indexed else known[[0, 1, 0]], [0.1, 0.2, 0.3])
    policy.observe(known[2:4], [0.1, 0.2])
    assert policy.t == policy.posterior.t == before + 5
    subject.play(policy, 5)


def evaluations_of_others_are_pending(subject: Subject) -> None:
    """Evaluations that others have begun are pending, and are told or dropped like the policy's own queries."""
    policy = subject.make(0)
    known = probes(policy)[:3]
    if not policy.abilities.takes_actions:
        expect(InvalidInput, policy.mark_pending, known)
        return
    subject.play(policy, 6)
    before = json.dumps(policy.state())
    expect(InvalidInput, policy.mark_pending, np.full_like(known, np.nan))
    assert json.dumps(policy.state()) == before
    begun = policy.mark_pending(known)
    assert [query.id for query in policy.pending] == [query.id for query in begun]
    np.testing.assert_array_equal([query.x for query in begun], known)
    twin = restore(policy.state(), kernel=subject.kernel, width=subject.width, domain=policy.domain)
    for learner in (policy, twin):
        learner.tell(learner.pending[2], 0.1)
        learner.drop(learner.pending[0])
    assert policy.t == twin.t
    for a, b in zip(_continue(subject, policy), _continue(subject, twin), strict=True):
        assert_same(a, b)


def recommends_the_best_lower_bound(subject: Subject) -> None:
    policy = subject.make(0)
    subject.play(policy, subject.rounds)
    best, band = policy.recommend(), band_of(policy)
    assert best.gap >= best.upper - best.lower - 1e-12
    assert (band.lower <= band.upper + 1e-12).all()
    assert best.lower <= best.upper
    # turned around for a policy that minimises, so that larger is better
    lower, upper = (-band.upper, -band.lower) if policy.minimize else (band.lower, band.upper)
    best_lower = -best.upper if policy.minimize else best.lower
    if not policy.field.indexed:
        assert best.index is None
        assert policy.domain.contains(best.x[None, :]).all()
        there = policy.band(best.x[None, :])
        np.testing.assert_allclose([there.lower[0], there.upper[0]], [best.lower, best.upper], atol=1e-9)
        if policy.abilities.takes_data:  # a policy that eliminates recommends from its active set
            assert best_lower >= lower.max() - 1e-6
            assert best_lower + best.gap >= upper.max() - 1e-6
        return
    rows = slice(None) if policy.abilities.takes_data else np.asarray(getattr(policy, "active", range(len(lower))))
    assert best.index is not None
    assert best_lower == lower[best.index] == lower[rows].max()


def answers_cannot_be_changed(subject: Subject) -> None:
    """Writing into a query is refused, and the policy does not read it back."""
    policy = subject.make(0)
    subject.play(policy, 4)
    query = policy.ask()
    expect(AttributeError, setattr, query, "mean", 3.0)
    expect(ValueError, operator.setitem, query.x, 0, 3.0)
    expect(TypeError, operator.setitem, query.details, "base", 0)
    expect(ValueError, setattr, query.x.flags, "writeable", True)


def threads_can_share_a_policy(subject: Subject) -> None:
    """Several threads may ask, tell, drop and read: nothing is lost or told twice, and no call fails."""
    policy = subject.make(1)
    known, before = probes(policy), policy.t
    together = threading.Barrier(THREADS)

    def work(number: int) -> int:
        together.wait()
        told = 0
        for turn in range(3):
            policy.band(known[:3] if not policy.field.indexed else [0, 1])
            with contextlib.suppress(AwaitingResults, HorizonReached):
                query = policy.ask()
                _ = (policy.pending, policy.information, policy.observations, repr(policy))
                if (number, turn) == (0, 1):
                    policy.drop(query)
                else:
                    policy.tell(query, subject.noisy(query))
                    told += 1
        return told

    with ThreadPoolExecutor(THREADS) as pool:
        told = sum(pool.map(work, range(THREADS)))  # raises what a thread raised
    assert policy.t == before + told == len(policy.observations.y)
    assert not policy.pending
    twin = restore(policy.state(), kernel=subject.kernel, width=subject.width)
    np.testing.assert_array_equal(band_of(twin).lower, band_of(policy).lower)


CONTRACT = (
    queries_lie_in_the_domain,
    queries_lie_in_the_action_set,
    same_seed_same_answers,
    continues_to_the_bit,
    order_of_telling_does_not_matter,
    refused_calls_change_nothing,
    failed_evaluations_can_be_dropped,
    reads_leave_no_trace,
    data_from_elsewhere,
    evaluations_of_others_are_pending,
    recommends_the_best_lower_bound,
    answers_cannot_be_changed,
    threads_can_share_a_policy,
)


def probes(policy: Policy) -> Array:
    """The candidates, or some points of the domain, in user units."""
    if policy.field.indexed:
        return policy.field.whole("probes").points
    rng = np.random.default_rng(8)
    return np.concatenate([policy.field.draw(rng).points for _ in range(50)])


def nearby(policy: Policy, points: Array, rng: np.random.Generator) -> Array:
    """The points moved a little; unchanged where the domain refuses that (integers, choices)."""
    moved = points * (1 - 0.1 * rng.random((len(points), 1)))
    try:
        policy.domain.validate(moved)
    except InvalidInput:
        return points
    return moved


def band_of(policy: Policy) -> Band:
    """The band on the candidates, or on some points of the domain."""
    return policy.band() if policy.field.indexed else policy.band(probes(policy))


def assert_same(a: Query, b: Query) -> None:
    """Compare all but the time of day, which no choice depends on."""
    for field in dataclasses.fields(Query):
        if field.name == "asked_at":
            continue
        np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name), err_msg=field.name)


def _timeless(state: dict[str, Any]) -> dict[str, Any]:
    """A state without the times at which queries were asked."""
    for kind, *rest in state["events"]:
        if kind == "ask":
            rest[0].pop("asked_at", None)
    return state


def _continue(subject: Subject, policy: Policy) -> list[Query]:
    """Tell all pending queries, then play some more rounds."""
    pending = policy.pending
    policy.tell(pending, [subject.noisy(q) for q in pending])
    return [*subject.play(policy, 4), *subject.play(policy, 3, batch=3)]


def _wander(subject: Subject, policy: Policy, rng: np.random.Generator) -> None:
    """Ask, tell and drop at random, so that the next moment is a different one."""
    for _ in range(3):
        try:
            batch = policy.ask(int(rng.integers(1, 4)))
        except (AwaitingResults, HorizonReached):
            batch = []
        if len(batch) > 1 and rng.random() < 0.3:
            policy.drop(batch.pop())
        known = policy.pending
        for query in known[: max(1, len(known) - int(rng.integers(0, 3)))]:
            policy.tell(query, subject.noisy(query))
