"""Runs on a Dask cluster, as they come back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from misspec.errors import InvalidInput

PATIENCE = "10s"  # to reach a scheduler
GOODBYE = 5  # seconds to disconnect from it


def outcomes(
    execute: Callable[[Any], Any], todo: list[Any], address: str, cores: int | None, progress: Any
) -> Iterator[Any]:
    """(run, outcome) pairs as they are done. address: of a scheduler, or "local" for a cluster on this machine.

    The workers need misspec installed, in the same version, and nothing else: results travel to the client, which
    writes them. A run that kills its worker again and again is a failed run.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise InvalidInput("a Dask cluster needs the extra dask: pip install 'misspec[dask]'") from None
    if address != "local" and cores is not None:
        raise InvalidInput("a cluster at an address has cores of its own; leave --cores out")
    cluster: Any = None
    client: Any = None
    try:
        if address == "local":
            options = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": logging.CRITICAL}
            cluster = LocalCluster(n_workers=cores, **options)
        client = Client(cluster if cluster is not None else address, timeout=PATIENCE, set_as_default=False)
        _check_versions(client)
    except (OSError, TimeoutError, ValueError) as error:
        _close(client, cluster)
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(
            f"cannot reach a Dask scheduler at {address!r} ({error}); start one with `dask scheduler`, or use "
            "--dask local"
        ) from None
    return _as_they_come(execute, todo, client, cluster, progress)


def _as_they_come(execute: Any, todo: list[Any], client: Any, cluster: Any, progress: Any) -> Iterator[Any]:
    from distributed import KilledWorker, as_completed

    try:
        runs = {future.key: (future, run) for run, future in zip(todo, client.map(execute, todo), strict=True)}
        for future in as_completed([future for future, _ in runs.values()], loop=client.loop):
            _, run = runs.pop(future.key)
            try:
                outcome = future.result()
            except KilledWorker:
                outcome = "its worker was killed again and again (out of memory?)"
            except Exception as error:  # a cluster's errors have no common class
                raise InvalidInput(
                    f"the Dask cluster failed ({type(error).__name__}: {error}); finished runs are kept, and the same "
                    "command goes on from them"
                ) from None
            progress.rounds += run.horizon
            yield run, outcome
            future.release()
    finally:
        _close(client, cluster)


def _check_versions(client: Any) -> None:
    from importlib import metadata

    ours = metadata.version("misspec")
    try:
        found = client.run(metadata.version, "misspec")
    except ImportError:
        raise InvalidInput(f"the Dask workers need misspec {ours}; install it where they run") from None
    for worker, theirs in found.items():
        if theirs != ours:
            raise InvalidInput(f"the Dask worker {worker} has misspec {theirs}, here it is {ours}; install the same")


def _close(client: Any, cluster: Any) -> None:
    for each in (client, cluster):
        if each is not None:
            each.close(timeout=GOODBYE)
