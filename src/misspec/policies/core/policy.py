"""What every policy has: ask, tell, drop, observe, bands, a recommendation, and a state that continues to the bit.

A policy is the list of its events. Its state is its settings, those events and its random state; restoring replays the
events through the same operations on the posterior, without choosing again. That is also how a call that fails half-way
is undone, whatever failed: the policy is rebuilt from the events before it.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import logging
import math
import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import kernels
from misspec.domains import Domain
from misspec.errors import (
    LARGEST,
    MOST_AT_ONCE,
    InvalidInput,
    MisspecError,
    NumericalError,
    StorageError,
    flag,
    number,
    one_of,
    seeded,
    shown,
    vector,
    whole,
)
from misspec.model import Model, a_model
from misspec.policies.core import log, state
from misspec.policies.core.answers import Band, Conflict, Decision, Observations, Query, Recommendation, copied
from misspec.policies.core.conflicts import conflicts_of
from misspec.policies.core.evidence import Evidence
from misspec.policies.core.fields import field_of
from misspec.policies.core.journal import Journal, attach
from misspec.policies.core.log import OTHERS, Asked
from misspec.policies.core.points import Actions, Context, Place, Round
from misspec.policies.core.queries import list_of, meant
from misspec.policies.core.registry import REGISTRY, options_of, signature_of
from misspec.posterior import Posterior
from misspec.theory.own_bands import OwnBands
from misspec.theory.widths import Width
from misspec.threads import lock_after_fork, one_thread, tell_of_forks

LOG = logging.getLogger("misspec")
FAILED = "repair it, or leave it out (policy.drop(query) for an evaluation that failed)"
Changed = TypeVar("Changed")


class Policy(abc.ABC):
    """Base of all policies. A new one implements the abstract methods; the smallest to copy is `uniform.py`.

    Every argument of its __init__ but domain and model is a setting, which state() keeps and restore() hands in again.
    All methods can be called from several threads; `posterior` itself is the live object, for one at a time.

    theorem            what bounds its regret as it is set, as `reports` know it; "" for nothing
    takes_actions      whether ask(actions=…) works, takes_points whether these may be points never seen before
    takes_data         whether it takes data from elsewhere
    waits              whether it learns nothing from results before all that were asked earlier are in
    keeps_rounds       whether a result of its own query is more to it than the same from elsewhere: a round, an episode
    limit              evaluations after which it ends, None for no end
    minimize           whether smaller is better
    draws              whether choosing may draw from self._rng
    heeds_failures     whether a dropped query teaches it where evaluations fail; otherwise it is as if never asked
    """

    registry: ClassVar[dict[str, type[Policy]]] = REGISTRY
    theorem: str = ""
    takes_actions: bool = True
    takes_points: bool = True
    takes_data: bool = True
    waits: bool = False
    keeps_rounds: bool = False
    limit: int | None = None
    minimize: bool = False
    draws: bool = True
    heeds_failures: bool = False
    _journal: Journal | None = None  # that of no copy: only the policy that it was attached to writes
    _changing: tuple[Any, ...] | None = None  # what was before the call that is under way
    _fresh: bool = True  # False: its events follow, so that __init__ must not cause any

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        Policy.registry[state.name_of(cls)] = cls

    def __new__(cls, *arguments: Any, **keywords: Any) -> Self:
        policy = super().__new__(cls)
        tell_of_forks(policy)
        with contextlib.suppress(TypeError):  # __init__ will say what is wrong with the arguments
            bound = signature_of(cls).bind(*arguments, **keywords)
            bound.apply_defaults()
            given = {**bound.arguments, **bound.arguments.get(options_of(cls), {})}
            names = [name for name in given if name not in ("domain", "model", options_of(cls))]
            policy._settings = {
                name: _kept(given[name]) for name in names
            }  # copied: mutating the argument later must not change the policy
        return policy

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        seed: int = 0,
        grounded: bool = False,
        parts: int = 1,
        resolution: float | None = None,
        delays: str = "any",
    ) -> None:
        """parts: of δ, those that are spent equally (model widths, own bands, tests).

        delays: "independent" says that when results are told, and in which calls they are observed, does not depend on
        what they are. Otherwise bands are guaranteed only while what is told is a prefix of what was asked, and at most
        one call has brought points that others chose: a set that was chosen by its values is biased.
        """
        self._settings: dict[str, Any]
        self.field = field_of(domain, seed, 0.0 if resolution is None else number("resolution", resolution, at_least=0))
        self.domain, self.model = domain, a_model(model)
        self.t = 0  # told observations
        self._answered = 0  # of these, those that were queries of its own
        self._of_others = 0  # pending queries that others asked
        self._rng = np.random.default_rng(seeded(seed))
        self._asked: OrderedDict[int, Asked] = OrderedDict()  # pending, in the order asked
        self._unexpected: dict[int, Asked] = {}  # of these, those that no posterior counts as pending yet
        self._next_id = 0
        self._batch = 0  # id of the first query of the last call of `ask`
        self._events: list[tuple[Any, ...]] = []
        self._lock = threading.RLock()
        self._broken: tuple[Any, ...] | None = None  # what was before a failed call that is still to be undone
        self._latest = -1  # the latest turn asked among what was told
        self._calls = 0  # of `observe` and `expect`
        self._last_of_others = -1  # OTHERS of the latest such query, which tells their calls apart
        self._delays = one_of("delays", delays, ("any", "independent"))
        self._delta = model.delta / parts
        # policies that do not choose by own bands keep them to find conflicts, with half of δ for these
        self._evidence = Evidence(self.field, model, self._delta if flag("grounded", grounded) else model.delta / 2)
        self.grounded = bool(grounded)
        self._own: OwnBands | None = self._evidence.own if grounded else None
        self._without: list[str] = []  # why nothing is guaranteed, whatever the data
        self._certified: tuple[tuple[int, float], list[Conflict]] | None = None  # conflicts after so many events, for ε

    # -- what a policy implements ------------------------------------------------------------------------------

    @abc.abstractmethod
    def _choose(self, actions: Any) -> Decision:
        """The next query; changes nothing but the random state. actions: what the round offers (`points.Round`); None
        or a Context is the whole domain, from which `field.offer` makes Actions."""

    @abc.abstractmethod
    def _band(self, actions: Actions) -> Band:
        """Bands for f* at the actions; every term included, told data only."""

    @property
    @abc.abstractmethod
    def posterior(self) -> Posterior:
        """The posterior in use: .mean and .std over a Finite domain, .at(X) anywhere."""

    @property
    def epsilon(self) -> float:
        """The misspecification that the bands allow for."""
        return 0.0

    def _mean(self, place: Place) -> float:
        """The model's mean at a place."""
        return float(self.field.look(self.posterior, None, self.field.only(place), pending=False).mean[0])

    def _contenders(self, within: Context | None = None) -> Actions:
        """Points among which the best lower and the largest upper end lie, as far as they are found; within: at this
        context."""
        return self.field.whole("recommend()") if within is None else self.field.spread(within)

    def _admit(self, actions: Actions) -> Actions:
        """What was handed in to choose from or to learn; InvalidInput for what this policy cannot use."""
        return actions

    def _prepare(self) -> None:  # noqa: B027  # optional
        """Before a query is chosen: what changes the policy here it records as an event of its own."""

    def _relive(self, kind: str, *rest: Any) -> None:  # noqa: ARG002  # by default there are none
        """Replay an event of the policy's own."""
        raise StorageError(f"unknown event {kind!r} in a policy's state; was it written by a newer misspec?")

    def _recognise(self, details: Mapping[str, Any]) -> None:  # noqa: B027  # optional
        """InvalidInput where details of a stored query, which this policy will read back, are none that it writes."""

    def _available(self) -> int | None:
        """How many queries can be asked now (None: any number); raises where none can."""
        return None

    def _feeds(self, asked: Asked) -> list[Posterior]:  # noqa: ARG002  # balancing feeds the base that played
        """The posteriors that the result of a query is meant for."""
        return self._evidence.posteriors

    def _remember(self, asked: Asked) -> None:  # noqa: B027  # optional
        """Record that the query was handed out."""

    def _learn(self, asked: Asked, y: float) -> None:
        """Learn the result."""
        self._evidence.learn(asked.query.id, asked.place, y, self._feeds(asked))

    def _forget(self, asked: Asked) -> None:
        """Forget that it was asked."""
        self._evidence.forget(asked.query.id, asked.place, self._feeds(asked))

    def _observe(self, actions: Actions, places: list[Place], y: list[float]) -> None:
        """Learn data from elsewhere."""
        self._evidence.observe(actions.points, places, y)

    def _promise(self, width: Width, *models: Model) -> None:
        """Note why bands of this width and these models hold at no stated level, if they do not."""
        if not isinstance(width, str):
            self.theorem = ""
        if callable(width):
            self._without.append("the width is a function that was handed in: what it guarantees is not known here")
        elif not isinstance(width, str):
            self._without.append("the width is a number, which guarantees nothing")
        if any(model.fitted for model in models):
            self._without.append("the model was fitted to data: its constants are not known before them")

    # -- ask and tell ----------------------------------------------------------------------------------------

    @overload
    def ask(self, n: None = None, *, actions: ArrayLike | None = None, context: Any = None) -> Query: ...
    @overload
    def ask(self, n: int, *, actions: ArrayLike | None = None, context: Any = None) -> list[Query]: ...

    def ask(
        self, n: int | None = None, *, actions: ArrayLike | None = None, context: Any = None
    ) -> Query | list[Query]:
        """The next query, or a list of at most n. actions: 1-d integers are domain indices, 2-d floats are points; on a
        Space or a table, dicts, lists of dicts and frames are points by name; a list of text names candidates.
        context: the round's, on a `Joint` domain; actions are then those of x that are on offer, by default all.

        A failed call changes nothing.
        """
        if n is not None:
            several = isinstance(n, list | tuple | dict | np.ndarray)
            if several or (not self.field.fixed and not isinstance(n, int | np.integer)):
                raise InvalidInput(
                    "ask(n) takes a number of queries; hand in actions or a context by name: ask(actions=…), "
                    "ask(context=…)"
                )
            n = whole("n", n, at_least=1)
        with self._lock:
            self._repair()
            offered = self._round(actions, context)
            available = self._available()
            count = 1 if n is None else n if available is None else min(n, available)
            if count > MOST_AT_ONCE:
                raise InvalidInput(
                    f"at most {MOST_AT_ONCE:,} queries can be asked at once, got {count:,}; ask for fewer"
                )
            self._batch = self._next_id
            batch = self._changed(lambda: [self._ask_one(offered) for _ in range(count)], drawing=self.draws)
            return batch[0] if n is None else batch

    def expect(self, points_or_indices: ArrayLike, *, context: Any = None) -> list[Query]:
        """Evaluations that others have begun: they pend here too, until they are told or dropped.

        Points and contexts as for `observe`. They are evidence, but not rounds of this policy: they count towards no
        horizon. From the second call of `expect` or `observe` on there is a caveat, as `observe` says. A failed call
        changes nothing.
        """
        with self._lock:
            self._repair()
            if not self.takes_actions:
                raise InvalidInput(f"{type(self).__name__} evaluates what it has asked for, and nothing else")
            if points_or_indices is None:
                raise InvalidInput("expect takes points or indices, got None")
            given = self._given(points_or_indices, context).offered()
            self._batch = self._next_id
            last = self._next_id + len(given.points) - 1
            return self._changed(
                lambda: [self._expected(self.field.place(given, row), last) for row in range(len(given.points))],
                drawing=self.draws,
            )

    def _expected(self, place: Place, last: int) -> Query:
        """A query of a point that others chose; last: id of the last query of their call."""
        self._hallucinate()  # as before every query, so that a restored policy goes the same way
        known = self.field.describe(place)
        x = known.pop("x", place.x)
        query = Query(self._next_id, x, place.index, None, place.name, details={OTHERS: last}, **known)
        self._register(query, place)
        return query

    def _round(self, actions: Any, context: Any) -> Round:
        """What a round offers, from what was handed in."""
        if context is None and actions is None:
            return None
        if not self.takes_actions:
            raise InvalidInput(
                f"{type(self).__name__} eliminates from a fixed set and takes no actions; use RegretBalancing"
            )
        if context is not None:
            found = self.field.within(context, actions, self.model)
            return self._admit(found).offered() if isinstance(found, Actions) else found
        return self._admit(self._parse(actions)).offered()

    def _ask_one(self, actions: Round) -> Query:
        self._prepare()
        if self._unexpected:
            self._hallucinate()
        place, position, reasons = self._choose(actions)
        known = self.field.describe(place)
        x = known.pop("x", place.x)  # of a point with a context, the part that is chosen
        query = Query(self._next_id, x, place.index, position, place.name, **reasons, **known)
        self._register(query, place)
        return query

    def _hallucinate(self) -> None:
        """Hallucinate what is pending."""
        for id_ in list(self._unexpected):
            asked = self._unexpected.pop(id_)
            self._evidence.expect(id_, asked.place, self._feeds(asked))

    def _register(self, query: Query, place: Place) -> None:
        asked = Asked(query, place, copied(query.details), len(self._events))
        self._asked[query.id] = self._unexpected[query.id] = asked
        self._next_id = query.id + 1
        if asked.of_others:
            last = asked.details[OTHERS]
            self._of_others += 1
            self._calls += last != self._last_of_others
            self._last_of_others = last
            self._evidence.ask(query.id, place, others=last - query.id)
        else:
            self._evidence.ask(query.id, place)
        self._remember(asked)
        self._events.append(("ask", query))

    def tell(self, query: Any, y: Any) -> None:
        """The result of a query, or results of several, in any order and in parts. A failed call changes nothing.
        Text is not a number; True is 1, and False 0.

        A query is known by itself or its id; on a Space by a dict of its params, on a table by its row, on a domain
        with names by its name: the one that has waited longest, where several are alike. A frame is a list of rows.
        """
        if isinstance(query, Query | int) and type(y) is float and abs(y) <= LARGEST:  # the usual call, by a short cut
            batch, values = [query], [y]
        else:
            batch = list_of(query)
            values = vector("results", y, length=len(batch), remedy=FAILED).tolist()
        with self._lock:
            self._repair()
            known = meant(batch, self._asked, self.field, self._next_id, "told")
            self._changed(lambda: self._tell(known, values))

    def _tell(self, known: list[Asked], values: list[float]) -> None:
        for asked, value in zip(known, values, strict=True):
            self.t += 1
            self._answered += not asked.of_others
            self._learn(asked, value)
            self._latest = max(self._latest, asked.turn)
            self._settle(asked)
            self._events.append(("tell", asked.query.id, value))

    def _settle(self, asked: Asked) -> None:
        """A query that pends no longer."""
        del self._asked[asked.query.id]
        self._of_others -= asked.of_others
        self._unexpected.pop(asked.query.id, None)

    def drop(self, query: Any) -> None:
        """A failed evaluation, or several: forget that it was asked. Known as for `tell`.

        Failing must not depend on what the result would have been, where bands are guaranteed. `Auto` guarantees none,
        and learns where evaluations fail.
        """
        batch = list_of(query)
        with self._lock:
            self._repair()
            known = meant(batch, self._asked, self.field, self._next_id, "dropped")
            self._changed(lambda: self._drop(known))

    def _drop(self, known: list[Asked]) -> None:
        for asked in known:
            self._forget(asked)
            self._settle(asked)
            self._events.append(("drop", asked.query.id))

    def observe(self, points_or_indices: ArrayLike, y: ArrayLike, *, context: Any = None) -> None:
        """Data from elsewhere (a warm start): indices, points, or points by name, as for `ask(actions=…)`.

        On a `Joint` domain, points are rows [x, c]; with context=, x alone, and one context for all or one per row.

        Hand in all that there is, in one call: results chosen by their values bias every band. From the second call
        on, what came first may have been chosen like that, and bands are guaranteed no longer, unless
        delays="independent" says that it was not.
        """
        self._learn_from(points_or_indices, y, context, warn=True)

    def _learn_from(self, points_or_indices: Any, y: Any, context: Any, *, warn: bool = False) -> None:
        """Learn data from elsewhere. warn: say, before anything is learnt, how many lie outside the domain."""
        with self._lock:
            self._repair()
            if not self.takes_data:
                raise InvalidInput(
                    f"{type(self).__name__} forgets all data but its own: it takes no data from elsewhere"
                )
            if _is_empty(points_or_indices) and _is_empty(y):
                return  # a table, or a file of results, that has none yet
            given = self._given(points_or_indices, context)
            values = vector("observations", y, length=len(given.points), remedy=FAILED).tolist()
            places = [self.field.place(given, row) for row in range(len(values))]
            if warn and self.field.edges:
                outside = np.flatnonzero(~self.domain.contains(given.points))
                if len(outside):
                    warnings.warn(
                        f"{len(outside)} of {len(values)} points observed lie outside {shown(self.domain)}, first "
                        f"{shown(given.points[outside[0]].tolist())}; are they in other units?",
                        stacklevel=3,
                    )
            self._changed(lambda: self._take_in(given, places, values))

    def _take_in(self, given: Actions, places: list[Place], values: list[float]) -> None:
        self._observe(given, places, values)
        self._calls += 1
        self._latest = len(self._events)
        self.t += len(values)
        points, *contexts = self.field.stored(given)
        self._events.append(("observe", points, values, *contexts))

    def _given(self, points_or_indices: Any, context: Any) -> Actions:
        """What was handed in, each point with its context."""
        alone = context is None
        return self._admit(
            self._parse(points_or_indices) if alone else self.field.pair(points_or_indices, context, self.model)
        )

    def _parse(self, given: ArrayLike) -> Actions:
        return self.field.parse(given, self.model)

    # -- all or nothing --------------------------------------------------------------------------------------

    def _changed(self, change: Callable[[], Changed], *, drawing: bool = False) -> Changed:
        """All of a change or nothing of it; in the journal, if there is one, before the call returns."""
        before = self._changing = self._mark(drawing=drawing)
        try:
            with one_thread():
                found = change()
            if self._journal is not None:
                self._journal.append(self, before[0])
            self._changing = None
        except np.linalg.LinAlgError as error:
            self._undo(before)
            raise NumericalError(
                f"rounding has made a matrix singular ({error}); a larger regularization (λ) than "
                f"{self.model.regularization:g} helps"
            ) from error
        except BaseException:
            self._undo(before)
            raise
        return found

    def _mark(self, *, drawing: bool = False) -> tuple[Any, ...]:
        random = self._rng.bit_generator.state if drawing else None  # only asking draws
        return len(self._events), random, self.t, self._next_id

    def _undo(self, before: tuple[Any, ...]) -> None:
        """Rebuild the policy from the events before a failed call; if that fails too, the next call tries again."""
        self._broken = before  # one assignment: whatever interrupts what follows, the next call goes on from here
        self._take_back()
        if self._journal is not None:
            self._journal.rewind(before[0])
        with contextlib.suppress(Exception):
            self._repair()
        LOG.warning("a call of %s failed and was undone", type(self).__name__)

    def _take_back(self) -> None:
        if self._broken is not None:
            events, random, self.t, self._next_id = self._broken
            if random is not None:
                self._rng.bit_generator.state = random
            del self._events[events:]
            self._asked = log.pending(self._events, self.field)

    def _repair(self) -> None:
        if self._broken is None:
            return
        self._take_back()
        try:
            twin = self._made(self.domain, self.model, self.settings)
            twin._replay(self._events)
        except Exception as error:
            kind = type(error) if isinstance(error, MisspecError) else NumericalError
            raise kind(
                f"a call failed, and what it left cannot be undone yet: {error}; nothing told is lost, and every call "
                "tries again (is the kernel still failing?)"
            ) from error
        twin._rng.bit_generator.state = self._rng.bit_generator.state
        self.__dict__.update({**twin.__dict__, "_lock": self._lock, "_changing": None})

    def forked(self) -> None:
        """In a process that was forked off: undo the call, if any, that a thread of the other one had begun."""
        lock = self.__dict__.get("_lock")  # None: still being made
        if lock is None or (renewed := lock_after_fork(lock)) is lock:
            return
        self._lock = renewed
        self._broken = self._broken or self._changing or self._mark()  # after a call that only read, too: caches
        self._take_back()

    @classmethod
    def _made(cls, domain: Domain, model: Model | None, settings: dict[str, Any]) -> Self:
        """A policy of this class before all its events; one that learns its model takes none."""
        given = (domain, model) if "model" in signature_of(cls).parameters else (domain,)
        policy: Any = cls.__new__(cls, *given, **settings)
        policy._fresh = False
        policy.__init__(*given, **settings)
        made: Self = policy
        return made

    def _replay(self, events: Iterable[tuple[Any, ...]]) -> None:
        with one_thread():
            for kind, *rest in events:
                if kind == "ask":
                    query = rest[0]
                    if query.id < self._next_id:
                        raise StorageError(f"query {query.id} was asked after query {self._next_id - 1}")
                    if OTHERS in query.details:
                        most = query.id + MOST_AT_ONCE
                        whole(f"{OTHERS} of a stored query", query.details[OTHERS], at_least=query.id, at_most=most)
                    else:
                        self._recognise(query.details)
                    self._hallucinate()
                    self._register(query, self.field.stored_place(query.index, query.x, query.context))
                elif kind == "observe":
                    points, values, *contexts = rest
                    self._learn_from(points, values, contexts[0] if contexts else None)
                elif kind in ("tell", "drop"):
                    (self.tell if kind == "tell" else self.drop)(*rest)
                else:
                    self._relive(kind, *rest)

    # -- reading ---------------------------------------------------------------------------------------------

    def band(self, X: ArrayLike | None = None, *, context: Any = None) -> Band:
        """Bands for f* over a Finite domain, or at the rows of X; every term included, told data only. context: on a
        `Joint` domain, where X has x alone (one for all rows, or one per row)."""
        with self._lock, one_thread():
            self._repair()
            if context is None:
                return self._band(self.field.whole("band() without points") if X is None else self._parse(X))
            if X is not None:
                return self._band(self.field.pair(X, context, self.model))
            everything = self.field.within(context, None, self.model)
            if not isinstance(everything, Actions):
                raise InvalidInput("band(context=…) needs a list of actions; hand in points: band(X, context=…)")
            return self._band(everything)

    def recommend(self, *, actions: ArrayLike | None = None, context: Any = None) -> Recommendation:
        """The maximiser of the lower band for f*, and a gap that bounds its regret; without a list, as far as found.

        actions, context: of these, or for this context, as in `ask`; the gap is then to the best of them.
        """
        with self._lock, one_thread():
            self._repair()
            offered = self._round(actions, context)
            if isinstance(offered, Actions):
                contenders = offered
            else:
                contenders = self._contenders() if offered is None else self._contenders(offered)
            band = self._band(contenders)
            assured, hoped = (-band.upper, -band.lower) if self.minimize else (band.lower, band.upper)
            usable = self._usable(contenders)
            best = int(np.where(usable, assured, -np.inf).argmax())
            place = self.field.place(contenders, best)
            mean = self._mean(place)
            lower, upper = float(band.lower[best]), float(band.upper[best])
            gap, note = float(hoped[usable].max()) - float(assured[best]), ""
            if not lower <= mean <= upper:
                side = "below" if mean < lower else "above"
                note = f"the model's mean {mean:.4g} lies {side} the band: data here, or the class, exclude it"
            elif not self.field.fixed and self._says_nothing(place, lower, upper):
                note = "the band is all that the model's class allows: nothing is known yet of what is best here"
            caveats, known = tuple(self.caveats), self.field.describe(place)
            return Recommendation(
                known.pop("x", place.x), place.index, place.name, mean, lower, upper, gap, not caveats, caveats, note,
                position=None if actions is None else best, **known,
            )  # fmt: skip

    def _usable(self, actions: Actions) -> NDArray[np.bool_]:
        """Which of some actions may be recommended; at least one."""
        return np.ones(len(actions.points), dtype=bool)

    def _says_nothing(self, place: Place, lower: float, upper: float) -> bool:
        """Whether a band is the interval of the class itself."""
        model = self._reported_model
        prior = kernels.diagonal(model.kernel, self.field.only(place).encoded)[0]
        reach = (model.norm_bound * math.sqrt(prior) + self.epsilon) * (1.0 - 1e-9)
        return lower <= model.offset - reach and upper >= model.offset + reach

    @property
    def caveats(self) -> list[str]:
        """Why bands, gap and recommendation are not guaranteed, one sentence each; empty where they are."""
        with self._lock:
            self._repair()
            found = list(self._without)
            if self._out_of_order:
                found.append(
                    "some results were told before others that were asked earlier: until those are told or dropped, "
                    'bands hold only if the order does not depend on the results (delays="independent" says so)'
                )
            if self._in_parts and self.claims:
                found.append(
                    f"points from elsewhere came in {self._calls} calls: bands hold only if what came in which call "
                    'does not depend on the results (delays="independent" says so; or observe all of them in one call)'
                )
            if self.conflicts:
                found.append(f"the data contradict the model by more than ε = {self.epsilon:.4g} (see `conflicts`)")
            return found

    @property
    def _partial(self) -> bool:
        """Whether what is told may have been chosen by its results, so that bands may be biased."""
        return self._out_of_order or self._in_parts

    @property
    def _out_of_order(self) -> bool:
        """Whether results are told that were asked after pending ones."""
        if self._delays == "independent" or self.waits:
            return False
        return bool(self._asked) and next(iter(self._asked.values())).turn < self._latest  # the first was asked first

    @property
    def _in_parts(self) -> bool:
        """Whether more than one call has brought points that others chose."""
        return self._calls > 1 and self._delays != "independent"

    @property
    def guaranteed(self) -> bool:
        """Whether bands hold with probability 1 − δ provided that the truth lies within ε of the model's class."""
        return not self.caveats

    @property
    def claims(self) -> bool:
        """Whether bands are meant to hold at all: a width with a theory behind it, and a model that is not fitted."""
        return not self._without

    @property
    def conflicts(self) -> list[Conflict]:
        """Data that a misspecification of ε cannot explain: empty unless the certified ε exceeds the policy's.

        After 2,000 results they are looked for whenever those have grown by a tenth, in what was told up to then, and
        among the thousand points that are known best: what is found is proved, what is not may still be there.
        """
        with self._lock, one_thread():
            self._repair()
            key = log.milestone(self._events, self.t), self.epsilon
            if self._certified is None or self._certified[0] != key:
                self._certified = key, self._find_conflicts(self._events[: key[0]])
            return list(self._certified[1])

    def _find_conflicts(self, events: Sequence[log.Event]) -> list[Conflict]:
        """Conflicts in the observations of some events."""
        return conflicts_of(self, events)

    @property
    def _reported_model(self) -> Model:
        """The model whose bands are reported."""
        return self.model

    @property
    def pending(self) -> list[Query]:
        """Asked, neither told nor dropped."""
        with self._lock:
            return [asked.query for asked in self._asked.values()]

    @property
    def remaining(self) -> int | None:
        """Queries that can be asked before results are needed, for a policy that hands out episodes; else None."""
        return None

    @property
    def asked(self) -> int:
        """Queries that were asked here and not dropped."""
        with self._lock:
            self._repair()
            return self._answered + len(self._asked) - self._of_others

    @property
    def observations(self) -> Observations:
        """What was told, in that order."""
        with self._lock:
            return log.observations(self._events, self.field, self.model)

    @property
    def information(self) -> float:
        """Realised information of the posterior in use."""
        with self._lock:
            self._repair()
            return self.posterior.information

    @property
    def posteriors(self) -> list[Posterior]:
        """All posteriors that are fed, the one in use among them."""
        return list(self._evidence.posteriors)

    @property
    def settings(self) -> dict[str, Any]:
        """What it was made with, except domain and model."""
        return {name: _kept(value) for name, value in self._settings.items()}

    @property
    def facts(self) -> dict[str, Any]:
        """What is particular to this policy, for traces and pictures."""
        return {}

    @property
    def alive(self) -> NDArray[np.intp] | None:
        """The candidates that are left, for a policy that eliminates; None for others."""
        return None

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self._settings.items() if k not in ("seed", "bases"))
        mark = "" if self.claims else ", without guarantee"
        return f"{type(self).__name__}({self.domain!r}, {shown}; t={self.t}, pending={len(self._asked)}{mark})"

    # -- state -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything needed to continue, JSON-able: settings, events, random state."""
        with self._lock:
            return state.encode(self, {name: values.tolist() for name, values in self.field.arrays().items()})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, atomically."""
        with self._lock:
            state.write(path, state.encode(self, {}), self.field.arrays())

    def journal(self, path: str | os.PathLike[str] | None, *, sync: bool = False) -> None:
        """From now on, append what every call adds to a file before the call returns; None: no longer. `ms.load`
        reads it, and `policy.journal(path)` goes on in it.

        Written without a buffer, it survives the end of the process however that comes; sync: a power cut too, at the
        price of a wait for the disk in every call. A call that cannot be written is undone and raises StorageError.
        One policy at a time writes to a file. Copies of the policy, and processes forked off, do not.
        """
        with self._lock:
            if path is not None:
                self._repair()
            before = self._journal
            self._journal = None if path is None else attach(self, path, sync=flag("sync", sync))
            if before is not None:
                before.close()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            self._repair()
            own = ("_lock", "_journal")
            return copy.deepcopy({name: value for name, value in self.__dict__.items() if name not in own})

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept, _lock=threading.RLock())


def _is_empty(given: Any) -> bool:
    """Whether it is a list, an array or a column with nothing in it."""
    if isinstance(given, np.ndarray):
        return given.size == 0
    return not isinstance(given, str | bytes | Mapping) and hasattr(given, "__len__") and len(given) == 0


def _kept(value: Any) -> Any:
    """A copy of a setting, if it is a list, a mapping or an array."""
    if isinstance(value, list | tuple):
        return type(value)(_kept(each) for each in value) if type(value) in (list, tuple) else value
    if isinstance(value, dict):
        return {key: _kept(each) for key, each in value.items()}
    return value.copy() if isinstance(value, np.ndarray) else value
