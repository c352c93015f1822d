"""The loop for a user's function: `optimize`, and `Drive` for any `Evaluator`."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import markup
from misspec.errors import (
    MOST_AT_ONCE,
    Array,
    AwaitingResults,
    HorizonReached,
    InvalidInput,
    callback,
    flag,
    one_of,
    whole,
)
from misspec.evaluation.stopping import Until, Watch, checked
from misspec.evaluation.workers import LOG, Evaluator, Here, Outcome, Processes, Threads, with_limits
from misspec.policies import Auto, Policy, Query, Recommendation
from misspec.policies.auto.limits import KEPT
from misspec.policies.balanced import Learning
from misspec.progress import Progress, reported
from misspec.search import Distinct, distinct

MOST_WORKERS = 10_000  # threads or processes
FAILURES = 10  # of a user's function in a row, after which on_error="drop" gives up
SAVED, SAVING = 3.0, 0.05  # seconds between saves at least, and the share of the time that they may take


@dataclasses.dataclass(frozen=True, eq=False)
class Best:
    """The best point that was evaluated, by the average of its results.

    x, index, name, params, row   the point, as in a Query
    mean, tried                   the average of its results, and their number
    keeps                         whether the averages of all quantities that limits are on keep them, or are likely to
                                  where one has no value; None without limits
    """

    x: Array
    index: int | None
    name: str | None
    params: Mapping[str, Any] | None
    row: Mapping[str, Any] | None
    mean: float
    tried: int
    keeps: bool | None = None

    def _repr_html_(self) -> str:
        """For notebooks: the point and its average."""
        return markup.block("Best tried", markup.points([self], [self._columns()]))

    def _columns(self) -> dict[str, Any]:
        """What is known of its value, as columns of a table."""
        keeps = {} if self.keeps is None else {"keeps the limits": "yes" if self.keeps else "no"}
        return {"average": f"{self.mean:.4g}", **keeps, "results there": self.tried}


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluations:
    """The evaluations of `optimize`.

    index, x, y      candidates (None where there is no list), points and results, in the order told
    recommendation   the point that the policy recommends, from all its results; `tried` of them at that very point
    best             the best point that was evaluated here, by the average of its results; with limits, of those that
                     keep them, and where none does the one that is most likely to; None where there is none
    limits           values of limited quantities by name, one for each y, NaN where they are unknown
    reason           why there are fewer than n, in a sentence: `until` was met, or nothing is left to try; else None
    """

    index: NDArray[np.intp] | None
    x: Array
    y: Array
    recommendation: Recommendation
    best: Best | None
    limits: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    reason: str | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        found = self.recommendation
        named = found.row if found.params is None else found.params
        use = found.x if named is None else dict(named)
        return f"Evaluations({len(self)} results; recommends {use}, {found.lower:.4g} to {found.upper:.4g})"

    def _repr_html_(self) -> str:
        """For notebooks: what is recommended, and the best that was evaluated."""
        shown = {"recommended": self.recommendation} | ({} if self.best is None else {"best tried": self.best})
        found = markup.points([*shown.values()], [each._columns() for each in shown.values()], [*shown])
        why = "" if self.reason is None else f"{self.reason[0].upper()}{self.reason[1:]}."
        said = markup.paragraphs([why, *self.recommendation._said()])
        return markup.block(f"{len(self):,} evaluation{'s' * (len(self) != 1)}", found, said)


def _best(told: list[Query], y: Array, limits: Mapping[str, Array], policy: Policy) -> Best | None:
    """The best mean of what was evaluated, without results that the policy doubts."""
    if not told:
        return None
    doubted = policy.observations.ids[list(getattr(policy, "doubted", []))]
    kept = [i for i, query in enumerate(told) if query.id not in doubted] or list(range(len(told)))
    told, y = [told[i] for i in kept], y[kept]
    points = distinct(np.array([query.x for query in told]))
    counts = np.bincount(points.position)
    means = np.asarray(np.bincount(points.position, y / counts[points.position]), dtype=np.float64)
    worse = means if policy.minimize else -means
    keeps = None
    if isinstance(policy, Auto) and policy.limits:
        p = policy.probability(points.points)
        keeps = _kept(policy, points, {name: column[kept] for name, column in limits.items()}, p)
        worse = np.where(keeps, worse, np.inf) if keeps.any() else -p
    row = int(worse.argmin())
    q = told[int(points.first[row])]
    found = None if keeps is None else bool(keeps[row])
    return Best(q.x, q.index, q.name, q.params, q.row, float(means[row]), int(counts[row]), found)


def _kept(policy: Auto, points: Distinct, limits: Mapping[str, Array], p: Array) -> NDArray[np.bool_]:
    """Which points keep the limits by the averages of their values; where one has none, which are likely to (p)."""
    keeps = np.ones(len(points.points), dtype=bool)
    for limit in policy.limits:
        c = limits.get(limit.name, np.full(len(points.position), np.nan))
        known = ~np.isnan(c)
        counts = np.bincount(points.position[known], minlength=len(keeps))
        sums = np.bincount(points.position[known], c[known], minlength=len(keeps))
        keeps &= np.where(counts > 0, limit.holds(sums / np.maximum(counts, 1)), p >= KEPT)
    return keeps


def optimize(
    policy: Policy,
    function: Callable[[Any], Any],
    n: int,
    *,
    batch: int = 1,
    workers: int | None = None,
    processes: bool = False,
    on_error: str = "raise",
    until: Until | None = None,
    progress: Progress | bool | None = None,
    save: str | os.PathLike[str] | None = None,
) -> Evaluations:
    """Maximise a user's function with n evaluations, or minimise it if the policy was made with minimize=True.

    function    of a dict of parameters on a Space, of a row as a dict on a table, else of a point (1-d array). It
                returns a number; where Auto has limits, (y, {"impurity": 1.3})
    batch       queries asked at a time, where they are evaluated one after another
    workers     keep so many evaluations in flight, on threads of this process: results are told as they come, and the
                next query is asked as a slot becomes free. None: one after another, in this thread
    processes   on worker processes instead, started by spawn: the function is pickled, so it lives in a module, and a
                script calls optimize below `if __name__ == "__main__":`. An evaluation that ends its process (kill -9,
                out of memory) is tried again, three times in all; then it has failed
    on_error    "raise": an exception in the function reaches the caller, and so does a result that is not a finite
                number; the policy keeps everything learnt so far, and optimize(policy, function, n - policy.t)
                continues. "drop": a failed evaluation is forgotten, and the policy is asked again; ten failures in a
                row raise all the same
    until       stop before n, when more are hardly worth it: `ms.until()`. It is asked at the start, if there are
                results, and then after every fifth. What is in flight when it is met is awaited and told, and it is
                asked again; the result has the `reason`
    progress    None: a bar on a terminal or in a notebook while it lasts, if that is more than a second. True: a bar
                that stays; False: none. A function is called as progress(evaluations done, n) after every batch; with
                workers, as results are told
    save        a file for the policy: written atomically as results are told, every few seconds, and at the end,
                whatever ends it. optimize(ms.load(file), function, n - policy.t, …) continues

    Without workers and save nothing is left pending, whatever happens, and what was pending before is not touched. With
    either a stop can be continued, also from a policy that was saved in the middle and whose process was killed:
    queries that are pending at the start are evaluated first, and count; after a stop, by an exception or Ctrl-C, a
    query that was merely cut short stays pending, and only one that failed is dropped. Worker threads cannot be
    stopped: their evaluations go on, and their results are lost.

    BLAS runs on one thread while the policy asks and learns, and as it likes in the function. With worker threads the
    function meets that limit too, while the policy is at work: it belongs to the process.
    """
    batch = whole("batch", batch, at_least=1, at_most=MOST_AT_ONCE)
    slots = None if workers is None else whole("workers", workers, at_least=1, at_most=MOST_WORKERS)
    if slots is not None and batch > 1:
        raise InvalidInput("workers ask as slots become free, not in batches: leave batch at 1")
    if flag("processes", processes) and slots is None:
        raise InvalidInput("processes=True needs workers=n, the number of processes")
    if not callable(function):
        raise InvalidInput(f"optimize takes a policy and a function, got {type(function).__name__} for the function")

    def start() -> Evaluator:
        if slots is None:
            return Here(function, batch)
        return Processes(function, slots) if processes else Threads(function, slots)

    resumable = slots is not None or save is not None
    options: Any = {"on_error": on_error, "until": until, "save": save, "resumable": resumable}
    with reported(progress, "evaluations") as report:
        return Drive(policy, start, n, in_turn=slots is None, progress=report, **options).run()


@dataclasses.dataclass(eq=False)
class Drive:
    """The loop of `optimize`, for whatever evaluates points: `run` runs it, once.

    start       makes the evaluator, once all arguments are checked
    in_flight   queries at once; None for as many as the evaluator has slots, and for a policy that hands out whole
                episodes, everything that it hands out
    in_turn     ask again only when all that was asked is back
    resumable   evaluate first what is pending at the start; leave pending what a stop cuts short. See `optimize`

    The policy is asked and told from this thread alone.
    """

    policy: Policy
    start: Callable[[], Evaluator]
    n: int
    _: dataclasses.KW_ONLY
    in_flight: int | None = None
    on_error: str = "raise"
    until: Until | None = None
    progress: Progress | None = None
    save: str | os.PathLike[str] | None = None
    in_turn: bool = False
    resumable: bool = True

    def __post_init__(self) -> None:
        self.n = whole("n", self.n)
        if self.in_flight is not None:
            whole("in_flight", self.in_flight, at_least=1)
        one_of("on_error", self.on_error, ("raise", "drop"))
        callback("progress", self.progress)
        if not isinstance(self.policy, Policy):
            raise InvalidInput(f"optimize takes a policy and a function, got {type(self.policy).__name__}")
        self.watch = Watch(checked(self.until, self.policy), lambda: self.policy)
        self.before = self.policy.pending[: self.n] if self.resumable else []  # and not yet in flight
        if any(query.context is not None for query in self.before):
            raise InvalidInput("queries with a context are pending, which optimize cannot play: tell or drop them")
        check_horizon(self.policy, self.n - len(self.before))
        self.running: dict[int, Query] = {}
        self.back: collections.deque[Outcome] = collections.deque()  # and not yet told
        self.told: list[Query] = []
        self.y: list[float] = []
        self.failures = 0  # in a row
        self.next_save = 0.0  # on the clock
        self.evaluator = self.start()

    def run(self) -> Evaluations:
        wanted = self.n
        try:
            while len(self.y) < self.n:
                enough = not self.before and self.watch.met(self.policy.t, running=bool(self.running))
                if enough and not self.running:
                    break
                more = not enough and self._fill()
                if len(self.y) < self.n:
                    self._hear(self.evaluator.collect(wait=not more))
            if isinstance(self.policy, Learning) and self.policy.stale:  # what is recommended rests on all results
                self.policy.refresh()
        except BaseException as error:
            self._end(error)
            raise
        self._end(None)
        listed = [q.index for q in self.told if q.index is not None]
        index = np.array(listed, dtype=np.intp) if self.policy.field.indexed else None
        x, y = np.array([q.x for q in self.told]).reshape(-1, self.policy.domain.dimension), np.array(self.y)
        reason, limits = self.watch.reason if len(y) < wanted else None, self._limits()
        if reason is not None:
            LOG.info("%s", reason)
        best = _best(self.told, y, limits, self.policy)
        return Evaluations(index, x, y, self.policy.recommend(), best, limits, reason)

    def _limits(self) -> dict[str, Array]:
        """The values of limited quantities of what was told here."""
        told = self.policy.observations
        row_of = {id_: row for row, id_ in enumerate(told.ids.tolist())}
        return {name: column[[row_of[q.id] for q in self.told]] for name, column in told.limits.items()}

    def _end(self, error: BaseException | None) -> None:
        """Whatever becomes of one of the last steps, the others are taken, and the error that ended the run stays the
        one to be raised. A run that is through is not spoilt by workers that cannot be closed."""
        steps: list[tuple[str, Callable[[], None]]] = [("closing the workers", self.evaluator.close)]
        if self.save is not None:
            steps.insert(0, ("saving the policy", self._save))
        if error is not None:
            steps.insert(0, ("hearing what had come back", self._stop))
        first = error
        for what, step in steps:
            try:
                step()
            except BaseException as another:  # a second Ctrl-C among them
                LOG.warning("%s failed at the end of a run: %s: %s", what, type(another).__name__, another)
                if first is not None:
                    first.add_note(f"{what} failed too: {type(another).__name__}: {another}")
                elif step != self.evaluator.close or not isinstance(another, Exception):
                    first = another
        if error is None and first is not None:
            raise first

    def _fill(self) -> bool:
        """Hand out what there is room for; whether there is room for more."""
        if self.in_turn and self.running:
            return False
        left, busy = self.n - len(self.y) - len(self.running), len(self.running)
        slots = self.in_flight or max(1, self.evaluator.slots())
        whole_episode = self.in_flight is None and self.policy.remaining is not None and not self.in_turn
        room = left if whole_episode else min(left, slots - busy)
        if room <= 0:
            return False
        # of an episode as many again as are in flight: they are evaluated while others are chosen
        n = min(room, max(slots, busy))
        queries, self.before = self.before[:n], self.before[n:]
        queries = queries or self._ask(n)
        if not queries:
            return False
        self.running.update((query.id, query) for query in queries)
        self.evaluator.submit([(query.id, _argument(query)) for query in queries])
        return len(queries) < room

    def _ask(self, n: int) -> list[Query]:
        alone = not self.running and (self.policy.remaining is not None or not self.y)
        try:
            return ask(self.policy, n) if alone else self.policy.ask(n)
        except (AwaitingResults, HorizonReached) as error:  # there is more when what runs is back, or this is the end
            if not self.running:
                self.n, self.watch.reason = len(self.y), f"stopped after {self.policy.t} evaluations: {error}"
            return []

    def _hear(self, outcomes: list[Outcome]) -> None:
        """Tell what came back; a failure is raised when all the rest was told."""
        error: BaseException | None = None
        self.back.extend(outcomes)
        while self.back:
            id_, outcome = self.back[0]
            if id_ in self.running:  # otherwise it was told before
                failure = self._tell(self.running[id_], outcome)
                if failure is None:
                    self.failures = 0
                elif isinstance(failure, Exception):
                    self.failures += 1
                    self.policy.drop(id_)
                    if self.on_error == "raise" or self.failures >= FAILURES:
                        error = error or failure
                else:  # KeyboardInterrupt, SystemExit: no failure of the function but a stop
                    error = failure
                del self.running[id_]
            self.back.popleft()
        if error is not None:
            raise error
        if outcomes and self.save is not None and time.monotonic() >= self.next_save:
            self._save()
        if outcomes and self.progress is not None and not (self.in_turn and self.running):
            self.progress(len(self.y), self.n)

    def _tell(self, query: Query, outcome: Any) -> BaseException | None:
        """Why there is no result, if there is none."""
        if isinstance(outcome, BaseException):
            return outcome
        try:
            value, limits = with_limits(outcome, _argument(query))
            self.policy.tell(query, value, **({} if limits is None else {"limits": limits}))
        except InvalidInput as error:
            return error
        self.told.append(query)
        self.y.append(value)
        return None

    def _stop(self) -> None:
        """What has come back meanwhile is told, or dropped if it has failed, as in `_hear`; what was cut short stays
        pending, for another run to go on with."""
        left = {query.id: query for query in self.policy.pending if query.id in self.running}
        if not self.resumable:
            self.policy.drop(list(left.values()))
            return
        try:
            with contextlib.suppress(Exception):  # the error that stopped the run is the one to be raised
                self.back.extend(self.evaluator.collect(wait=False))
        finally:
            for id_, outcome in self.back:
                with contextlib.suppress(Exception):
                    query = left.pop(id_)  # KeyError: it came twice
                    if isinstance(self._tell(query, outcome), Exception):
                        self.policy.drop(query)

    def _save(self) -> None:
        """Save the policy. A file has all events, so the next time is put off by how long that took."""
        assert self.save is not None
        start = time.monotonic()
        self.policy.save(self.save)
        end = time.monotonic()
        self.next_save = end + max(SAVED, (end - start) / SAVING)


def _argument(query: Query) -> Any:
    named = query.row if query.params is None else query.params
    return query.x if named is None else dict(named)


def check_horizon(policy: Policy, rounds: int) -> None:
    """Some policies end: better said before the first evaluation than after the last."""
    if policy.limit is not None and policy.asked + rounds > policy.limit:
        raise InvalidInput(
            f"the policy was made for {policy.limit} evaluations and {policy.asked} were asked already: {rounds} "
            "more are too many; make it with a longer horizon, or with horizon=None"
        )


def ask(policy: Policy, n: int, actions: ArrayLike | None = None) -> list[Query]:
    try:
        return policy.ask(n, actions=actions)
    except AwaitingResults as error:
        raise InvalidInput(f"the policy has queries pending from before; tell or drop them first: {error}") from None
