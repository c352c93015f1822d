"""The contract that every policy must pass, importable by third parties.

    from misspec.testing import CONTRACT, Subject

    @pytest.mark.parametrize("check", CONTRACT, ids=lambda c: c.__name__)
    def test_contract(check):
        check(Subject(make=lambda seed: MyPolicy(domain, model, seed=seed), evaluate=f))

Each check makes fresh policies and raises AssertionError where the contract is broken.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from misspec.domains import Finite
from misspec.errors import Array, AwaitingResults, HorizonReached, InvalidInput
from misspec.policies import Band, Policy, Query, load, restore


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is checked.

    make       a fresh policy for a seed, on a Finite domain or a Box
    evaluate   the noise-free value at a point
    actions    whether it takes actions=…, new_points whether these may be points never seen before
    observes   whether it takes data from elsewhere
    kernel     the custom kernel to hand in again when it is restored, if it has one
    """

    make: Callable[[int], Policy]
    evaluate: Callable[[np.ndarray[Any, Any]], float]
    actions: bool = True
    new_points: bool = True
    observes: bool = True
    rounds: int = 40
    kernel: Any = None

    def noisy(self, query: Query) -> float:
        """A result that depends on the query alone, so that twins are told the same."""
        return float(self.evaluate(query.x) + 0.05 * np.random.default_rng([17, query.id]).standard_normal())

    def play(self, policy: Policy, rounds: int, batch: int = 1) -> list[Query]:
        """Ask and tell; returns what was asked."""
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
        assert (query.index is None) == (not isinstance(domain, Finite))
        if isinstance(domain, Finite):
            np.testing.assert_array_equal(query.x, domain.points[query.index])
        assert domain.contains(query.x[None, :]).all()
    assert policy.t >= subject.rounds
    assert not policy.pending


def queries_lie_in_the_action_set(subject: Subject) -> None:
    policy = subject.make(0)
    domain, known = policy.domain, probes(policy)
    finite = isinstance(domain, Finite)
    rng = np.random.default_rng(0)
    if not subject.actions:
        expect(InvalidInput, lambda: policy.ask(actions=np.array([0, 1]) if finite else known[:2]))
        return
    for t in range(subject.rounds):
        rows = rng.choice(len(known), min(7, len(known)), replace=False)
        points = not finite or (t % 2 == 1 and subject.new_points)
        actions = known[rows] * (1 - 0.1 * rng.random((len(rows), 1))) if points else rows
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
        expect(InvalidInput, lambda wrong=wrong: policy.ask(actions=wrong))  # type: ignore[misc]


def same_seed_same_answers(subject: Subject) -> None:
    one, other = subject.make(3), subject.make(3)
    for a, b in zip(subject.play(one, subject.rounds), subject.play(other, subject.rounds), strict=True):
        assert_same(a, b)


def continues_to_the_bit(subject: Subject) -> None:
    """Saved at any moment (before any data, mid-episode, with queries pending), a policy goes on as if nothing was."""
    policy = subject.make(5)
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        for moment in range(12 if isinstance(policy.domain, Finite) else 3):
            twins = [
                restore(json.loads(json.dumps(policy.state())), kernel=subject.kernel),
                _through_file(policy, Path(folder) / f"{moment}.misspec", subject.kernel),
                copy.deepcopy(policy),
            ]
            if subject.kernel is None:
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
                assert twin.state() == reference.state()
            _wander(subject, policy, rng)


def order_of_telling_does_not_matter(subject: Subject) -> None:
    one, other = subject.make(0), subject.make(0)
    for batch in (1, 4, 5):
        first, second = one.ask(batch), other.ask(batch)
        for a, b in zip(first, second, strict=True):
            # on a box a maximiser is found to some digits, on a finite domain exactly
            apart = np.abs(one.domain.encode(a.x[None, :]) - one.domain.encode(b.x[None, :])).max()
            assert apart <= (0.0 if isinstance(one.domain, Finite) else 1e-4)
        for query in first:
            one.tell(query, subject.noisy(query))
        for query in reversed(second):
            other.tell(query.id, subject.noisy(query))
    a_mean, a_std = one.posterior.at(probes(one))
    b_mean, b_std = other.posterior.at(probes(other))
    tolerance = 1e-9 if isinstance(one.domain, Finite) else 1e-3
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
    calls: list[Callable[[], Any]] = [
        lambda: policy.tell(done, 0.2),
        lambda: policy.tell(10_000, 0.2),
        lambda: policy.tell(-1, 0.2),
        lambda: policy.tell("first", 0.2),  # type: ignore[arg-type]
        lambda: policy.tell(None, 0.2),  # type: ignore[arg-type]  # that is the point
        lambda: policy.tell(stranger, 0.2),
        lambda: policy.tell(query, float("nan")),
        lambda: policy.tell(query, float("inf")),
        lambda: policy.tell(query, "high"),
        lambda: policy.tell(query, None),
        lambda: policy.tell([query], [0.1, 0.2]),
        lambda: policy.tell([query, query], [0.1, 0.2]),
        lambda: policy.tell([query, 10_000], [0.1, 0.2]),
        lambda: policy.drop(done),
        lambda: policy.drop(10_000),
        lambda: policy.ask(0),
        lambda: policy.ask(-1),
        lambda: policy.ask(1.5),  # type: ignore[arg-type]
        lambda: policy.observe([10_000], [0.1]),
        lambda: policy.observe([0], [float("nan")]),
        lambda: policy.observe([0, 1], [0.1]),
    ]
    for call in calls:
        expect(InvalidInput, call)
        assert json.dumps(policy.state()) == before
        np.testing.assert_array_equal(band_of(policy).lower, band.lower)


def failed_evaluations_can_be_dropped(subject: Subject) -> None:
    policy, twin = subject.make(0), subject.make(0)
    subject.play(policy, 6)
    subject.play(twin, 6)
    asked = policy.ask(2)
    for query in asked:
        policy.drop(query)
        expect(InvalidInput, lambda query=query: policy.tell(query, 0.1))  # type: ignore[misc]
    assert not policy.pending
    assert policy.t == twin.t
    again, expected = policy.ask(), twin.ask()
    if policy._rng.bit_generator.state == twin._rng.bit_generator.state:  # policies that draw have drawn more here
        assert again.index == expected.index  # on a box the search has moved on
    subject.play(policy, 10)


def reads_leave_no_trace(subject: Subject) -> None:
    """Bands, recommendations, conflicts and states may be looked at without changing what comes next."""
    one, other = subject.make(2), subject.make(2)
    for _ in range(20 if isinstance(one.domain, Finite) else 5):
        band_of(one)
        one.recommend()
        _ = (one.conflicts, one.pending, one.information, repr(one), one.state())
        one.posterior.at(probes(one))
        for a, b in zip(subject.play(one, 1), subject.play(other, 1), strict=True):
            assert_same(a, b)


def data_from_elsewhere(subject: Subject) -> None:
    policy = subject.make(0)
    known = probes(policy)
    if not subject.observes:
        expect(InvalidInput, lambda: policy.observe(known[:1], [0.1]))
        return
    policy.observe([0, 1, 0] if isinstance(policy.domain, Finite) else known[[0, 1, 0]], [0.1, 0.2, 0.3])
    policy.observe(known[2:4], [0.1, 0.2])
    assert policy.t == 5
    assert policy.posterior.t == 5
    subject.play(policy, 5)


def recommends_the_best_lower_bound(subject: Subject) -> None:
    policy = subject.make(0)
    subject.play(policy, subject.rounds)
    best, band = policy.recommend(), band_of(policy)
    assert best.gap >= best.upper - best.lower - 1e-12
    assert (band.lower <= band.upper + 1e-12).all()
    if not isinstance(policy.domain, Finite):
        assert best.index is None
        assert policy.domain.contains(best.x[None, :]).all()
        np.testing.assert_allclose(policy.band(best.x[None, :]).lower, best.lower, atol=1e-9)
        if subject.observes:  # the phased policy recommends from its active set
            assert best.lower >= band.lower.max() - 1e-6
            assert best.lower + best.gap >= band.upper.max() - 1e-6
        return
    rows = np.asarray(getattr(policy, "active", range(len(band.lower)))) if not subject.observes else slice(None)
    assert best.index is not None
    assert best.lower == band.lower[best.index] == band.lower[rows].max()


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
    recommends_the_best_lower_bound,
)


def probes(policy: Policy) -> Array:
    """Points to look at: the candidates, or some of a box, in user units."""
    domain = policy.domain
    if isinstance(domain, Finite):
        return domain.points
    return domain.decode(np.random.default_rng(8).random((50, domain.dimension)))


def band_of(policy: Policy) -> Band:
    """The bands on the candidates, or on some points of a box."""
    return policy.band() if isinstance(policy.domain, Finite) else policy.band(probes(policy))


def assert_same(a: Query, b: Query) -> None:
    """Two queries equal to the bit."""
    for field in dataclasses.fields(Query):
        np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name), err_msg=field.name)


def expect(error: type[Exception], call: Callable[[], Any]) -> None:
    """The call raises exactly this kind of error."""
    try:
        call()
    except error:
        return
    raise AssertionError(f"expected {error.__name__}")


def _through_file(policy: Policy, path: Path, kernel: Any) -> Any:
    policy.save(path)
    return load(path, kernel=kernel)


def _continue(subject: Subject, policy: Policy) -> list[Query]:
    """Tell what is pending, then go on for a while."""
    pending = policy.pending
    policy.tell(pending, [subject.noisy(q) for q in pending])
    return [*subject.play(policy, 6), *subject.play(policy, 6, batch=3)]


def _wander(subject: Subject, policy: Policy, rng: np.random.Generator) -> None:
    """Some random asking, telling and dropping, so that the next moment is another one."""
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
