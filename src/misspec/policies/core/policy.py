"""The base of every policy: ask, tell, drop, observe, bands, a recommendation, and a state that continues to the bit.

A policy is the list of its events. Its state is its settings, those events and its random state; restoring replays the
events through the same operations on the posterior, without choosing again. That is also how a call that fails half-way
is undone, whatever failed: the policy is rebuilt from the events before it.
"""

from __future__ import annotations

import copy
import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar, Self, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike

from misspec.domains import Domain
from misspec.errors import (
    LARGEST,
    MOST_AT_ONCE,
    AwaitingResults,
    HorizonReached,
    InvalidInput,
    flag,
    number,
    one_of,
    seeded,
    shown,
    vector,
    whole,
)
from misspec.model import Model, a_model
from misspec.policies.core import state, undo
from misspec.policies.core.answers import Query
from misspec.policies.core.evidence import Evidence
from misspec.policies.core.fields import field_of
from misspec.policies.core.given import beside_results, is_empty, limit_values, list_of, meant, noises, round_of
from misspec.policies.core.hooks import LOG
from misspec.policies.core.journal import Journal, attach, compact, compact_due, retract, save
from misspec.policies.core.log import OTHERS, Asked, Log
from misspec.policies.core.points import Place
from misspec.policies.core.readings import Readings
from misspec.policies.core.registry import REGISTRY, settings_of, signature_of
from misspec.theory.own_bands import OwnBands
from misspec.threads import tell_of_forks

FAILED = "repair it, or leave it out (policy.drop(query) for an evaluation that failed)"
Changed = TypeVar("Changed")


class Policy(Readings):
    """Base of all policies. A new one implements the abstract methods; the smallest to copy is `uniform.py`.

    Every argument of its __init__ but domain and model is a setting, which state() keeps and restore() hands in again.
    All methods can be called from several threads; `posterior` itself is the live object, for one at a time.
    """

    registry: ClassVar[dict[str, type[Policy]]] = REGISTRY
    clock: ClassVar[Callable[[], float]] = staticmethod(time.time)  # of `Query.asked_at`
    _journal: Journal | None = None  # that of no copy: only the policy that it was attached to writes
    _changing: undo.Savepoint | None = None  # where the call that is under way began
    _fresh: bool = True  # False while restoring: __init__ must not record events
    _history: int | None = None  # events that are kept at least, where it is compacted from time to time
    _due: float = math.inf  # the turn in which it is compacted next

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        Policy.registry[state.name_of(cls)] = cls
        cls.__signature__ = signature_of(cls)  # type: ignore[attr-defined]  # for help(): all settings

    def __new__(cls, *arguments: Any, **keywords: Any) -> Self:
        policy = super().__new__(cls)
        tell_of_forks(policy)
        if arguments or keywords:  # a copy is made without
            policy._settings = settings_of(cls, arguments, keywords)
        return policy

    def __init__(
        self,
        domain: Domain,
        model: Model,
        *,
        grounded: bool = False,
        parts: int = 1,
        resolution: float | None = None,
        delays: str = "any",
        minimize: bool = False,
        seed: int = 0,
    ) -> None:
        """parts: of δ, spent equally, on model widths and tests; own bands are one more where grounded. Others:
        `registry.py`.

        Unless delays are independent, bands are guaranteed only while what is told is a prefix of what was asked, and
        at most one call has brought points that others chose: a set that was chosen by its values is biased.
        """
        self._settings: dict[str, Any]
        self.field = field_of(domain, seed, 0.0 if resolution is None else number("resolution", resolution, at_least=0))
        self.minimize = flag("minimize", minimize)
        self.domain, self.model = domain, a_model(model).turned() if minimize else a_model(model)
        independent = one_of("delays", delays, ("any", "independent")) == "independent"
        sign = -1.0 if minimize else 1.0
        self.log = Log(self.field, independent=independent or self.abilities.waits, sign=sign)
        self._rng = np.random.default_rng(seeded(seed))
        self._batch = 0  # id of the first query of the last call of `ask`
        self._lock = threading.RLock()
        self._broken: undo.Savepoint | None = None  # where a failed call that is still to be undone began
        self.grounded = flag("grounded", grounded)
        self._delta = model.delta / (parts + self.grounded)
        # policies that do not choose by own bands keep them for conflicts, which have shares of δ of their own
        own_delta = self._delta if grounded else model.delta / 2
        self._evidence = Evidence(self.field, model, own_delta, expects=not self.abilities.waits)
        self._own: OwnBands | None = self._evidence.own if grounded else None
        self._without: list[str] = []  # why nothing is guaranteed, whatever the data

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
        several = isinstance(n, list | tuple | dict | np.ndarray)
        if several or not (self.field.fixed or n is None or isinstance(n, int | np.integer)):
            raise InvalidInput(
                "ask(n) takes a number of queries; hand in actions or a context by name: ask(actions=…), ask(context=…)"
            )
        n = None if n is None else whole("n", n, at_least=1)
        with self._held():
            offered = round_of(self, actions, context)
            available = self.available()
            count = 1 if n is None else n if available is None else min(n, available)
            if count > MOST_AT_ONCE:
                raise InvalidInput(f"at most {MOST_AT_ONCE:,} queries can be asked at once, got {count:,}: ask fewer")

            def hand_out() -> Query:
                self.prepare()
                self._evidence.expect()
                return self._hand_out(*self.choose(offered))

            batch = self._asked(hand_out for _ in range(count))
            LOG.debug("%s: asked %s", type(self).__name__, [query.id for query in batch])
            return batch[0] if n is None else batch

    def mark_pending(self, points_or_indices: ArrayLike, *, context: Any = None) -> list[Query]:
        """Evaluations that others have begun: they are pending here too, until they are told or dropped.

        Points and contexts as for `observe`. They are evidence, but not rounds of this policy: they count towards no
        horizon. From the second call of this or `observe` on there is a caveat, as `observe` says. A failed call
        changes nothing.
        """
        with self._held():
            if not self.abilities.takes_actions:
                raise InvalidInput(f"{type(self).__name__} evaluates what it has asked for, and nothing else")
            if points_or_indices is None:
                raise InvalidInput("mark_pending takes points or indices, got None")
            given = self.admit(self.field.parse(points_or_indices, self.model, context)).offered()
            details = {OTHERS: self.log.next_id + len(given.points) - 1}  # the last query of this call
            places = [self.field.place(given, row) for row in range(len(given.points))]
            return self._asked(partial(self._hand_out, place, None, {"details": details}) for place in places)

    def _asked(self, queries: Iterable[Callable[[], Query]]) -> list[Query]:
        """The queries of one call."""
        self._batch = self.log.next_id

        def all_there_are() -> list[Query]:
            batch: list[Query] = []
            for hand_out in queries:
                try:
                    batch.append(hand_out())
                except (AwaitingResults, HorizonReached):  # this call may have learnt that fewer are left
                    if not batch:
                        raise
                    break
            return batch

        return self._changed(all_there_are, drawing=self.abilities.draws)

    def _hand_out(self, place: Place, position: int | None, reasons: dict[str, Any]) -> Query:
        known = self.field.describe(place)
        x = known.pop("x", place.x)  # of a point with a context, the part that is chosen
        if self.minimize:
            reasons = {**reasons, **{name: -reasons[name] for name in ("mean", "upper") if name in reasons}}
        now = round(float(type(self).clock()), 3)
        query = Query(self.log.next_id, x, place.index, position, place.name, **reasons, **known, asked_at=now)
        self._register(query, place)
        return query

    def _register(self, query: Query, place: Place) -> None:
        self._evidence.expect()  # before every query, chosen or not: a restored policy goes the same way
        self.log.add("ask", query, place=place)
        asked = self.log.pending[query.id]
        self._evidence.ask(query.id, place, asked.details[OTHERS] - query.id if asked.of_others else None)
        self.on_ask(asked)

    def tell(self, query: Any, y: Any, *, noise: Any = None, limits: Any = None) -> None:
        """The result of a query, or results of several, in any order and in parts. A failed call changes nothing.
        Text is not a number; True is 1, and False 0.

        noise: a standard deviation of its own, one for all or one each (NaN: none), known before the result: the error
        of an average of replicates, or of a better instrument. It replaces the model's; for `Auto` it comes on top.
        limits: values of the quantities that `Auto` has limits on, by name, {"impurity": 1.3}; a list for each name
        where there are several results. One that is not known is left out, None or NaN.

        A query is known by itself or its id; on a Space by a dict of its params, on a table by its row, on a domain
        with names by its name: the one that has waited longest, where several are alike. A frame is a list of rows.
        """
        if isinstance(query, Query | int) and type(y) is float and abs(y) <= LARGEST and noise is None:
            batch, values = [query], [y]  # as usual
        else:
            batch = list_of(query)
            found = vector("results", y, remedy=FAILED)
            if len(found) != len(batch):
                wanted = "one number" if len(batch) == 1 else f"{len(batch)} numbers in a list"
                raise InvalidInput(f"results must be {wanted}, one for each query, got {len(found)}")
            values = found.tolist()
        with self._held():
            known = meant(batch, self.log, self.field, "told")
            beside = beside_results(self, noise, limits, len(values))

            def learn() -> None:
                for asked, value, rest in zip(known, values, beside, strict=True):
                    self._learn(asked, value, *rest)

            self._changed(learn)
            if not self._replaying:
                LOG.debug("%s: told %s", type(self).__name__, [asked.query.id for asked in known])

    def _learn(self, asked: Asked, value: float, *beside: Any) -> None:
        """beside: its own noise; and values of limited quantities, where the noise may be None."""
        self.log.add("tell", asked.query.id, value, *beside)
        self.on_tell(asked, self.log.sign * value, *beside[:1])
        for limits in beside[1:]:
            self.on_limits([asked.place], {name: [each] for name, each in limits.items()})

    def drop(self, query: Any) -> None:
        """A failed evaluation, or several: forget that it was asked. Known as for `tell`.

        Failing must not depend on what the result would have been, where bands are guaranteed. `Auto` guarantees none,
        and learns where evaluations fail.
        """
        batch = list_of(query)
        with self._held():
            known = meant(batch, self.log, self.field, "dropped")

            def forget() -> None:
                for asked in known:
                    self.log.add("drop", asked.query.id)
                    self.on_drop(asked)

            self._changed(forget)

    def retract(self, query: Any) -> None:
        """Take a told result back, known by its query or id: the query is pending again, as if it had not been told.

        Tell the right result, or drop it. Queries that were chosen since then stay. The policy is rebuilt, and so is
        its journal, which takes as long as loading it. Phased policies refuse. A failed call changes nothing.
        """
        with self._held():
            id_ = query.id if isinstance(query, Query) else query
            if id_ is None:
                raise InvalidInput("data from elsewhere (observe) cannot be taken back; make a policy without them")
            retract(self, whole("a query to retract (or its id)", id_), query if isinstance(query, Query) else None)

    def observe(
        self, points_or_indices: ArrayLike, y: ArrayLike, *, noise: Any = None, limits: Any = None, context: Any = None
    ) -> None:
        """Data from elsewhere (a warm start): indices, points, or points by name, as for `ask(actions=…)`. noise and
        limits: as for `tell`.

        On a `Joint` domain, points are rows [x, c]; with context=, x alone, and one context for all or one per row.

        Hand in all that there is, in one call: results chosen by their values bias every band. From the second call
        on, what came first may have been chosen like that, and bands are guaranteed no longer, unless
        delays="independent" says that it was not.
        """
        self._learn_from(points_or_indices, y, context, noise, limits, warn=True)

    def _learn_from(
        self, points_or_indices: Any, y: Any, context: Any, noise: Any = None, limits: Any = None, *, warn: bool = False
    ) -> None:
        """Learn data from elsewhere. warn: say, before anything is learnt, how many lie outside the domain."""
        with self._held():
            if not self.abilities.takes_data:
                raise InvalidInput(f"{type(self).__name__} forgets data but its own: it takes no data from elsewhere")
            if is_empty(points_or_indices) and is_empty(y):
                return  # a table, or a file of results, that has none yet
            given = self.admit(self.field.parse(points_or_indices, self.model, context))
            values = vector("observations", y, length=len(given.points), remedy=FAILED).tolist()
            own, beside = noises(self, noise, len(values)), limit_values(self, limits, len(values))
            places = [self.field.place(given, row) for row in range(len(values))]
            if warn and self.field.fixed and not self.field.indexed:
                outside = np.flatnonzero(~self.domain.contains(given.points))
                if len(outside):
                    first = places[int(outside[0])]
                    point = self.field.describe(first).get("params", first.x.tolist())
                    warnings.warn(
                        f"{len(outside)} of {len(values)} points observed lie outside {shown(self.domain)}, first "
                        f"{shown(point)}; if bounds, grids and rules do not say why, are they in other units?",
                        stacklevel=3,
                    )

            def learn() -> None:
                points, *contexts = given.stored(indexed=self.field.indexed)
                parts = [*contexts, *[None] * (1 - len(contexts)), own, beside or None]
                while parts and parts[-1] is None:
                    parts.pop()
                self.log.add("observe", points, values, *parts)
                signed = [self.log.sign * value for value in values]
                self.on_observe(given, places, signed, *([] if own is None else [own]))
                if beside:
                    self.on_limits(places, beside)

            self._changed(learn)

    def _changed(self, change: Callable[[], Changed], *, drawing: bool = False) -> Changed:
        """All of a change or nothing of it."""
        result = undo.changed(self, change, drawing=drawing)
        if self.log.turn >= self._due:
            compact_due(self)
        return result

    forked = undo.forked

    # -- state -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything needed to continue, JSON-able: settings, events, random state."""
        with self._lock:
            return state.encode(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to a file, atomically. `ms.load` reads it, and `journal(path)` can go on in it. It replaces
        an older file of misspec, but no other, and none that is another policy's journal: these raise StorageError."""
        with self._held():
            save(self, path)

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
                before.file.close()

    def compact(self, path: str | os.PathLike[str] | None = None, *, max_history: int | None = None) -> None:
        """Replace all events so far by a snapshot of what was learnt from them, in the journal too, so that memory and
        the time of a restart stop growing. InvalidInput for a policy whose events have no summary of bounded size.

        max_history: keep at least so many of the latest events for reports, and do this again from time to time, by
        itself, also after the policy is loaded. path: save it there too.

        It goes on as it would have: to the bit for GP-UCB, LinUCB and EC-GP-UCB, and up to rounding for InsuredUCB.
        Where rounds bring their own points, one that was told once is new when it comes back: its own band is dropped.
        `observations` and reports have what is left, and say how many results came before; `conflicts` go by own bands.
        """
        with self._held():
            history = self._history if max_history is None else whole("max_history", max_history, at_least=1)
            compact(self, history, everything=max_history is None)
            if path is not None:
                save(self, path)

    def __getstate__(self) -> dict[str, Any]:
        with self._held():
            own = ("_lock", "_journal")
            return copy.deepcopy({name: value for name, value in self.__dict__.items() if name not in own})

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept, _lock=threading.RLock())
