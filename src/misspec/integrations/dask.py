"""A user's function on a Dask cluster, and the runs of an experiment; results as they come back."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Any

from misspec.errors import InvalidInput, MisspecError
from misspec.evaluation.loop import Drive, Evaluations
from misspec.evaluation.stopping import Until
from misspec.evaluation.workers import TRIES, Job, Outcome, ended_workers
from misspec.policies import Policy
from misspec.progress import Progress, reported

LOG = logging.getLogger("misspec.dask")
PATIENCE = "10s"  # to reach a scheduler
PENDING = "what was told stays told, what was running is pending: optimize with another client goes on from there"
FINISHED = "finished runs are kept, and the same command goes on from them"
GOODBYE = 5  # seconds to disconnect from it
LOOK = 1.0  # seconds between looks at how many workers there are
LONELY = 30.0  # seconds without any worker after which that is said: restarting one takes some seconds


def optimize(
    policy: Policy,
    function: Callable[[Any], float],
    client: Any,
    n: int,
    *,
    in_flight: int | None = None,
    on_error: str = "raise",
    until: Until | None = None,
    progress: Progress | bool | None = None,
    save: str | os.PathLike[str] | None = None,
) -> Evaluations:
    """Maximise a user's function with n evaluations on a Dask cluster, or minimise it if the policy does.

    client      a `distributed.Client`. The workers need what the function needs, and not misspec
    in_flight   queries at once. None: as many as the workers have threads, as these come and go; and of a phased policy
                the whole episode. On a cluster that adapts to its load, say how many are wanted: with one worker it
                would see one task

    function, on_error, until, progress and save are as in `ms.optimize`, and so are stops: what was told stays told,
    futures in flight are cancelled, and queries that were cut short stay pending. Queries that are pending at the
    start, as after ms.load of a policy that was saved in the middle, are evaluated first, and count.

    A dead worker's evaluations are done again by others: by Dask as often as `distributed.scheduler.allowed-failures`
    says, and that up to three times; then the evaluation has failed. The policy stays here; every query is told once.
    """
    Client = _distributed().Client
    if not isinstance(client, Client) or client.asynchronous:
        raise InvalidInput(
            f"client must be a distributed.Client that is not asynchronous, got {client!r}; Client(address) makes one"
        )
    if client.status in ("closing", "closed"):
        raise InvalidInput(f"the client is {client.status}; Client(address) makes another")
    if not callable(function):
        raise InvalidInput(f"function must take a point and return a number, got {type(function).__name__}")
    options: Any = {"in_flight": in_flight, "on_error": on_error, "until": until, "save": save}
    with reported(progress, "evaluations") as report:
        return Drive(policy, lambda: Cluster(function, client), n, progress=report, **options).run()


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise InvalidInput("a Dask cluster needs the extra dask: pip install 'misspec[dask]'") from None
    return distributed


class Cluster:
    """An `Evaluator` of a Dask client: `loop.Drive` hands points to it, and `experiments/runner.py` runs.

    tries   how often a job is handed in, if Dask gives it up because its workers died
    kept    what is said, and to be done, when the cluster itself fails
    """

    def __init__(self, function: Callable[[Any], Any], client: Any, *, tries: int = TRIES, kept: str = PENDING) -> None:
        self._function, self._client, self._tries, self._kept = function, client, tries, kept
        self._futures: dict[int, tuple[Any, Any]] = {}  # by id of the query: its future, and what it evaluates
        self._back: queue.SimpleQueue[tuple[int, Any, Any]] = queue.SimpleQueue()
        self._losses: Counter[int] = Counter()  # of futures, by id
        self._slots = 1
        self._looked = -LOOK
        self._lonely_at = time.monotonic() + LONELY  # from when on it is said that there are no workers
        self._look()

    def _look(self) -> None:
        """Count the workers' threads now and then: asking the scheduler takes a round trip."""
        if time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        try:
            workers = self._client.nthreads()
        except (OSError, TimeoutError) as error:  # CommClosedError is an OSError
            raise self.failed(error) from error
        self._slots = sum(workers.values())
        if workers:
            self._lonely_at = self._looked + LONELY
        elif self._looked > self._lonely_at:
            LOG.warning("the Dask cluster has had no workers for %.0f s; waiting for one", LONELY)
            self._lonely_at = self._looked + LONELY

    def slots(self) -> int:
        self._look()
        return self._slots

    def submit(self, jobs: Sequence[Job]) -> None:
        try:
            # not pure: the same point asked twice is evaluated twice
            futures = self._client.map(self._function, [x for _, x in jobs], pure=False)
        except (OSError, RuntimeError) as error:
            if self._client.status == "running":
                raise
            raise self.failed(error) from error
        for (id_, x), future in zip(jobs, futures, strict=True):
            self._futures[id_] = future, x
            self._client.loop.add_callback(self._follow, id_, future)

    async def _follow(self, id_: int, future: Any) -> None:
        """In the client's thread. Gathering waits for the future, and takes results that are ready at once together;
        where a result was lost with its worker, it waits for it to be computed again."""
        try:
            (result,) = await self._client.gather([future], asynchronous=True)
        except BaseException as error:  # the waiting caller must hear of it
            result = error
        self._back.put((id_, future, result))

    def collect(self, *, wait: bool) -> list[Outcome]:
        found: list[Outcome] = []
        again: list[Job] = []
        try:
            first = [self._back.get(timeout=LOOK)] if wait else []
        except queue.Empty:
            self._look()
            return []
        while first or not self._back.empty():
            id_, future, result = first.pop() if first else self._back.get()
            if id_ not in self._futures or self._futures[id_][0] is not future:
                continue
            _, x = self._futures.pop(id_)
            lost = self._lost(future, result)
            future.release()  # an exception's traceback would keep it for a while, and with it the cluster its result
            if lost:
                self._losses[id_] += 1
                if self._losses[id_] < self._tries:
                    again.append((id_, x))
                    continue
                if self._client.status != "running":
                    raise self.failed(result)
                result = ended_workers(self._losses[id_], x, f"{type(result).__name__}: {result}")
            self._losses.pop(id_, None)
            found.append((id_, result))
        if again:
            LOG.warning("Dask lost %d evaluations with their workers; they are done again", len(again))
            self.submit(again)
        return found

    def _lost(self, future: Any, result: Any) -> bool:
        """Test whether the cluster, and not the function, is why there is no result."""
        if isinstance(result, _distributed().KilledWorker):
            return True
        lost = isinstance(result, BaseException) and future.status != "error"
        if lost and self._client.status not in ("running", "connecting"):
            raise self.failed(result) from None
        return lost

    def failed(self, error: BaseException) -> MisspecError:
        return MisspecError(f"the Dask cluster failed ({type(error).__name__}: {error}); {self._kept}")

    def close(self) -> None:
        futures = [future for future, _ in self._futures.values()]
        self._futures.clear()
        if futures and self._client.status == "running":
            self._client.cancel(futures)


@contextlib.contextmanager
def on_dask(job: Callable[[Any], Any], address: str, cores: int | None) -> Iterator[Cluster]:
    """The evaluator of an experiment's runs. address: of a scheduler, or "local" for a cluster on this machine.

    The workers need misspec installed, in the same version, and nothing else: results travel to the client, which
    writes them.
    """
    distributed = _distributed()
    if address != "local" and cores is not None:
        raise InvalidInput("a cluster at an address has cores of its own; leave --cores out")
    with contextlib.ExitStack() as stack:
        cluster: Any = address
        try:
            if address == "local":
                options = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": logging.CRITICAL}
                cluster = distributed.LocalCluster(n_workers=cores, **options)
                stack.callback(cluster.close, timeout=GOODBYE)
            else:
                distributed.comm.get_address_host_port(address)  # of no address: a client would wait for it in `close`
            client = distributed.Client(cluster, timeout=PATIENCE, set_as_default=False)
            stack.callback(client.close, timeout=GOODBYE)
            _check_versions(client)
        except InvalidInput:
            raise
        except (OSError, TimeoutError, ValueError) as error:
            raise InvalidInput(
                f"cannot reach a Dask scheduler at {address!r} ({error}); start one with `dask scheduler`, or use "
                "--dask local"
            ) from None
        try:
            yield Cluster(job, client, tries=1, kept=FINISHED)
        except MisspecError as error:
            raise InvalidInput(str(error)) from None


def _check_versions(client: Any) -> None:
    ours = metadata.version("misspec")
    try:
        found = client.run(metadata.version, "misspec")
    except ImportError:
        raise InvalidInput(f"the Dask workers need misspec {ours}; install it where they run") from None
    for worker, theirs in found.items():
        if theirs != ours:
            raise InvalidInput(f"the Dask worker {worker} has misspec {theirs}, here it is {ours}; install the same")
