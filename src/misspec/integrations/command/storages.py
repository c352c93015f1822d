"""Storages of Optuna by their addresses, opened so that several processes can write."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage, get_storage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from misspec.errors import InvalidInput, StorageError

BUSY = 120.0  # seconds that SQLite waits for others
TRIES = 6  # to open a database whose tables others make at the same time
KINDS = "as in sqlite:///misspec.db, postgresql://user@host/name or journal:///misspec.journal"
DRIVERS = {"psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient"}  # by the module's name, where the package's differs


class _SQLite(RDBStorage):
    """SQLite has no SELECT … FOR UPDATE, by which other databases let only one process change a trial's state. Here
    such a change takes the lock for writing before it looks."""

    def __init__(self, url: str) -> None:
        super().__init__(url, engine_kwargs={"connect_args": {"timeout": BUSY}})
        self._here = threading.local()
        event.listen(self.engine, "begin", self._begin)

    def _begin(self, connection: Any) -> None:
        if getattr(self._here, "alone", False):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        self._here.alone = True
        try:
            return super().set_trial_state_values(trial_id, state, values)
        finally:
            self._here.alone = False


def without_password(url: str) -> str:
    """A URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True) if "://" in url else url
    except (ArgumentError, ValueError):
        return url


def open_storage(url: str) -> BaseStorage:
    """The storage at a URL: a database, or a journal file (`journal:///file`, or the path of a file)."""
    if url.startswith("journal:///") or "://" not in url:
        path = Path(url.removeprefix("journal:///"))
        if url.startswith("journal:///") or not _is_sqlite(path):
            return _journal(path)
        url = f"sqlite:///{path}"
    if url.startswith(("redis:", "rediss:")):
        raise InvalidInput(f"Redis holds no study that is safe to read; take a database or a journal file, {KINDS}")
    if url.startswith("sqlite") and (":memory:" in url or url.rstrip("/") == "sqlite:"):
        raise InvalidInput(f"{url} would keep nothing; name a file, {KINDS}")
    return _database(url)


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError:
        head = b""
    return head.startswith(b"SQLite format 3") or (not head and path.suffix in (".db", ".sqlite", ".sqlite3"))


def _journal(path: Path) -> BaseStorage:
    try:
        if path.exists():
            with path.open("r+b") as file:
                if file.read(1) not in (b"", b"{"):
                    raise InvalidInput(f"{path} is no journal file of Optuna; choose another --storage, {KINDS}")
        return JournalStorage(JournalFileBackend(str(path)))
    except OSError as error:
        raise StorageError(f"cannot open the journal file {path}: {error.strerror}") from None
    except InvalidInput:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} is no journal file of Optuna, or a damaged one: {error}") from None


def _database(url: str) -> BaseStorage:
    name = without_password(url)
    for tried in range(TRIES):
        try:
            if url.startswith("sqlite"):
                return get_storage(_SQLite(url))
            return get_storage(RDBStorage(url, engine_kwargs={"pool_pre_ping": True}))
        except ImportError as error:
            driver = getattr(error.__cause__, "name", None) or "its driver"
            package = DRIVERS.get(driver, driver)
            raise InvalidInput(f"the storage {name} needs {driver}, which is missing: pip install {package}") from None
        except (ArgumentError, KeyError, IndexError) as error:
            raise InvalidInput(f"{name} is no storage URL ({_first_line(error)}); write one {KINDS}") from None
        except (SQLAlchemyError, StorageInternalError, AssertionError, ValueError) as error:
            # Several processes that make the tables at once get in each other's way; then they are there.
            said = "exists" if isinstance(error, AssertionError) else _first_line(error)
            if tried + 1 == TRIES or not any(word in said for word in ("exists", "duplicate", "UNIQUE", "lock")):
                cause = error.orig if isinstance(error, DBAPIError) else error
                raise StorageError(f"cannot open the storage {name}: {_first_line(cause)}") from None
            time.sleep(0.1 + 0.4 * random.Random().random())
        except RuntimeError as error:  # tables of another version of Optuna
            raise StorageError(f"cannot use the storage {name}: {' '.join(str(error).split())}") from None
    raise AssertionError


def _first_line(error: BaseException | None) -> str:
    cause = error.__cause__ if isinstance(error, StorageInternalError) else error
    return (str(cause) or type(cause).__name__).strip().splitlines()[0]


@contextlib.contextmanager
def storage_errors(url: str) -> Iterator[None]:
    """Failures of the storage in one line."""
    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        raise StorageError(
            f"the storage {without_password(url)} failed: {_first_line(error)}; what is in it is kept, and the same "
            "line goes on"
        ) from error
