"""Runs on a Dask cluster, as they come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from misspec.errors import InvalidInput

PATIENCE = "10s"  # to reach a scheduler


def outcomes(execute: Callable[[Any], Any], todo: list[Any], address: str, progress: Any) -> Iterator[Any]:
    """(run, outcome) pairs as they are done. address: of a scheduler, or "local" for a cluster on this machine.

    The workers need misspec installed, nothing else: results travel to the client, which writes them.
    """
    try:
        from distributed import Client, LocalCluster, as_completed
    except ImportError:
        raise InvalidInput("a Dask cluster needs the extra dask: pip install 'misspec[dask]'") from None
    cluster: Any = None
    try:
        if address == "local":
            cluster = LocalCluster(threads_per_worker=1, dashboard_address=None)
        client = Client(cluster if cluster is not None else address, timeout=PATIENCE, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        if cluster is not None:
            cluster.close()
        raise InvalidInput(
            f"cannot reach a Dask scheduler at {address!r} ({error}); start one with `dask scheduler`, or use "
            "--dask local"
        ) from None
    try:
        runs = {future.key: (future, run) for run, future in zip(todo, client.map(execute, todo), strict=True)}
        for future in as_completed([future for future, _ in runs.values()], loop=client.loop):
            _, run = runs.pop(future.key)
            progress.rounds += run.horizon
            yield run, future.result()
            future.release()
    finally:
        client.close()
        if cluster is not None:
            cluster.close()
