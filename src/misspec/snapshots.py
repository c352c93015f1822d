"""The state of an object as JSON, and back: numbers, arrays, collections of them, and objects of this package in it.

Models, kernels and candidates are not kept: an object that is made in the same way has them. Arrays come back to the
bit, and in the same order of memory, so that what is computed from them does too.
"""

from __future__ import annotations

import dataclasses
from binascii import a2b_base64, b2a_base64
from typing import Any

import numpy as np

from misspec.encoding import NO_JSON, decode_array, encode_array
from misspec.errors import StorageError, shown

SKIPPED = ("model", "kernel", "domain", "X", "_affine", "_posterior", "_tracked", "_scratch", "_product", "_prior")
OPTIONAL = ("with_pending", "_with_pending")  # attributes that may be None


def kept(value: Any) -> Any:
    """A value as JSON."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if np.isfinite(value) else {"number": str(value)}
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.ndarray):
        columns = value.flags.f_contiguous and not value.flags.c_contiguous
        return {"columns": encode_array(value.T)} if columns else {"rows": encode_array(value)}
    if isinstance(value, bytes):
        return {"bytes": b2a_base64(value, newline=False).decode()}
    if isinstance(value, list | tuple):
        return [kept(each) for each in value]
    if isinstance(value, dict):
        return {"dict": [[kept(key), kept(each)] for key, each in value.items()]}
    if isinstance(value, set):
        return {"set": sorted(value)}
    if not type(value).__module__.startswith("misspec."):
        raise TypeError(f"a {type(value).__name__} has no snapshot")
    return {"object": type(value).__name__, "has": {name: kept(getattr(value, name)) for name in _names(value)}}


def _names(value: Any) -> list[str]:
    """The attributes of an object that are kept."""
    slots = [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
    return [name for name in slots or vars(value) if name not in SKIPPED]


def given(stored: Any, now: Any = None, *classes: type) -> Any:
    """The value that was kept. now: that of an object made in the same way, whose objects are changed in place and
    whose types it must have; classes: of objects that may be missing there. StorageError for anything else."""
    found = _given(stored, now, classes)
    same = type(found) is type(now) or (isinstance(found, int | float) and isinstance(now, int | float))
    if isinstance(found, np.ndarray) and isinstance(now, np.ndarray):
        same = found.dtype == now.dtype and found.ndim == now.ndim
    if not same and now is not None and found is not None:
        raise StorageError(f"a snapshot has {shown(stored)} in the place of a {type(now).__name__}")
    return found


def _given(stored: Any, now: Any, classes: tuple[type, ...]) -> Any:
    if isinstance(stored, list):
        values = [_given(each, None, classes) for each in stored]
        return tuple(values) if isinstance(now, tuple) else values
    if not isinstance(stored, dict):
        return stored
    if set(stored) == {"object", "has"}:
        return _object(stored, now, classes)
    if len(stored) == 1:
        (kind, content), *_ = stored.items()
        if kind == "columns":
            return decode_array("an array of a snapshot", content).T
        if kind == "rows":
            return decode_array("an array of a snapshot", content)
        if kind == "number" and content in NO_JSON:
            return float(content)
        if kind == "bytes":
            return a2b_base64(content, strict_mode=True)
        if kind == "dict":
            return {_given(key, None, classes): _given(each, None, classes) for key, each in content}
        if kind == "set":
            return set(content)
    raise StorageError(f"a snapshot holds what is not known here: {shown(stored)}")


def _object(stored: dict[str, Any], now: Any, classes: tuple[type, ...]) -> Any:
    if type(now).__name__ != stored["object"]:
        kinds = [each for each in classes if each.__name__ == stored["object"]]
        if now is not None or not kinds:
            raise StorageError(f"a snapshot has a {shown(stored['object'])} where there is none")
        now = object.__new__(kinds[0])
    elif not set(_names(now)) <= set(stored["has"]) or not all(hasattr(now, name) for name in stored["has"]):
        raise StorageError(f"a snapshot has another {stored['object']}: {shown(sorted(stored['has']))}")
    for name, each in stored["has"].items():
        before = getattr(now, name, None)
        if each is None and before is not None and name not in OPTIONAL:
            raise StorageError(f"a snapshot has nothing in the place of {name}")
        setattr(now, name, given(each, before, *classes))
    return now


def resume(now: Any, stored: Any, *classes: type) -> None:
    """Let an object go on from what was kept of one that was made in the same way."""
    if given(stored, now, *classes) is not now:
        raise StorageError(f"a snapshot has nothing for a {type(now).__name__}")
