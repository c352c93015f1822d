"""Files that survive: a zip of one JSON document and .npy arrays, versioned, with checksums, written atomically.

Nothing read from disk is ever unpickled or evaluated. A file is complete or absent: it is written under a temporary
name in the same folder, flushed to the disk and renamed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec.errors import StorageError

FORMAT = 1  # of the container; what is inside carries a version of its own
MANIFEST = "manifest.json"
DOCUMENT = "document.json"
EPOCH = (1980, 1, 1, 0, 0, 0)  # equal contents give equal files


def replace(path: str | os.PathLike[str], content: bytes | Iterable[bytes], *, new: bool = False) -> None:
    """Write a whole file or nothing. new: StorageError where there is one of that name."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    try:
        # a new file with the permissions that the user's files have
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise StorageError(
            f"cannot write {target}: {error.strerror}; choose a folder that exists and is writable"
        ) from error
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.writelines([content] if isinstance(content, bytes) else content)
            stream.flush()
            os.fsync(stream.fileno())
        if new:
            _put(temporary, target)
        else:
            temporary.replace(target)
        _flush_folder(target.parent)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _put(temporary: Path, target: Path) -> None:
    """Give a file its name, unless another has it."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise StorageError(f"{target} exists already; choose another name") from None
    except OSError:  # a file system without links
        if target.exists():
            raise StorageError(f"{target} exists already; choose another name") from None
        temporary.replace(target)


def _flush_folder(folder: Path) -> None:
    """The new name survives a power cut too, where the system can ensure that."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    document: Any,
    arrays: Mapping[str, NDArray[Any]] | None = None,
) -> None:
    """Save a JSON-able document and named arrays."""
    members = {DOCUMENT: json.dumps(document, allow_nan=False, sort_keys=True).encode()}
    for name, values in (arrays or {}).items():
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.asarray(values), allow_pickle=False)
        members[f"{name}.npy"] = buffer.getvalue()
    manifest = {
        "format": FORMAT,
        "kind": kind,
        "version": version,
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
    }
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, content in {MANIFEST: json.dumps(manifest).encode(), **members}.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), content, compress_type=zipfile.ZIP_DEFLATED)
    replace(path, whole.getvalue())


def read(path: str | os.PathLike[str], kind: str, newest: int) -> tuple[Any, int, dict[str, NDArray[Any]]]:
    """The document, its version and the arrays of a file written by `write` for the same kind."""
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read(MANIFEST))
            if manifest["format"] > FORMAT:
                raise StorageError(
                    f"{path} uses container format {manifest['format']}, newer than {FORMAT}; update misspec"
                )
            members = {name: archive.read(name) for name in manifest["sha256"]}
        found, version = str(manifest["kind"]), int(manifest["version"])
        for name, digest in manifest["sha256"].items():
            if hashlib.sha256(members[name]).hexdigest() != digest:
                raise StorageError(f"{path} is damaged: {name} does not match its checksum; restore it from a copy")
    except FileNotFoundError:
        raise StorageError(f"{path} does not exist") from None
    except StorageError:
        raise
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise StorageError(f"{path} is not a misspec file or is damaged ({error}); restore it from a copy") from error
    if found != kind:
        raise StorageError(f"{path} holds a {found}, expected a {kind}")
    if version > newest:
        raise StorageError(
            f"{path} was written by a newer misspec ({kind} version {version} > {newest}); update misspec"
        )
    document = json.loads(members.pop(DOCUMENT))
    arrays = {
        name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        for name, content in members.items()
    }
    return document, version, arrays
