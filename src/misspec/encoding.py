"""Settings, models and kernels as JSON. Kernels are made by name from a fixed list; nothing is evaluated.

*Snapshots* are the state of an object: numbers, arrays, collections of them, and objects of this package in it. Models,
kernels and candidates are not kept: an object that is made in the same way has them. Arrays come back to the bit, and
in the same order of memory, so that what is computed from them does too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import math
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from misspec.errors import Array, InvalidInput, StorageError, nearest, number, shown
from misspec.kernels import Kernel
from misspec.model import Model
from misspec.product import ProductMatern

KERNELS = (
    "RBF",
    "Matern",
    "RationalQuadratic",
    "ExpSineSquared",
    "DotProduct",
    "ConstantKernel",
    "Sum",
    "Product",
    "Exponentiation",
)
OURS = {"ProductMatern": ProductMatern}
NO_JSON = ("inf", "-inf", "nan")  # numbers that standard JSON cannot hold, stored as text
INSIDE = ("k1", "k2", "kernel")  # parameters that are kernels themselves
DEEP = 40  # lists and dicts inside each other, at most
SKIPPED = ("model", "kernel", "domain", "X", "_affine", "_posterior", "_tracked", "_scratch", "_product", "_prior")
OPTIONAL = ("with_pending", "_with_pending")  # attributes that may be None


def make_kernel(name: Any, parameters: Mapping[str, Any], *, bounds: bool = False) -> Any:
    """A kernel by name and parameters; kernels inside it are made already. bounds: accept bounds for fits too."""
    from sklearn.gaussian_process import kernels

    if name not in (*KERNELS, *OURS):
        raise InvalidInput(f"unknown kernel {name!r}{nearest(name, [*KERNELS, *OURS])}")
    cls = OURS[name] if name in OURS else getattr(kernels, name)
    takes = {name for name in inspect.signature(cls).parameters if bounds or not name.endswith("_bounds")}
    for key, value in parameters.items():
        if key not in takes:
            raise InvalidInput(f"{name} has no argument {key!r}{nearest(key, takes)}")
        inside = key in (*INSIDE, "columns") or key.endswith("_bounds")
        if not inside and not _is_positive(key, value):
            raise InvalidInput(f"kernel {name}: {key} must be a number above 0, or a list of them, got {shown(value)}")
    try:
        return cls(**parameters)
    except TypeError as error:
        raise InvalidInput(f"kernel {name}: {error}") from None


def kernel_from_table(table: Any) -> Any:
    """A kernel from a TOML table {name, parameters …}; sums and products have k1 and k2."""
    if not isinstance(table, Mapping) or "name" not in table:
        raise InvalidInput(f"a kernel is a table with a name, as {{ name = 'RBF', length_scale = 0.2 }}; got {table!r}")
    given = {key: value for key, value in table.items() if key != "name"}
    return make_kernel(table["name"], {k: kernel_from_table(v) if k in INSIDE else v for k, v in given.items()})


def _is_positive(key: str, value: Any) -> bool:
    """Whether a parameter is a positive number or a list of them; sigma_0 and additive may be 0, and nu infinite."""
    if isinstance(value, list | tuple | np.ndarray):
        return len(value) > 0 and all(_is_positive(key, entry) for entry in value)
    if not isinstance(value, int | float | np.number):
        return False
    if key == "nu" and value == math.inf:
        return True
    with contextlib.suppress(InvalidInput):
        return number(key, value, at_least=0) > 0 or key in ("sigma_0", "additive")
    return False


def encode_kernel(kernel: Any) -> dict[str, Any]:
    """{"name", "parameters"} for a kernel of ours or scikit-learn's; {"custom": its class} for any other."""
    kind = type(kernel)
    custom = {"custom": f"{kind.__module__}.{kind.__qualname__}"}
    theirs = kind.__module__ == "sklearn.gaussian_process.kernels" and kind.__name__ in KERNELS
    if not theirs and kind is not OURS.get(kind.__name__):
        return custom
    parameters = {name: _encode_parameter(value) for name, value in kernel.get_params(deep=False).items()}
    if any(isinstance(value, dict) and "custom" in value for value in parameters.values()):
        return custom
    return {"name": kind.__name__, "parameters": parameters}


class Given:
    """Objects that a state cannot hold and the caller hands in again: a kernel, and functions by their setting's name.

    fits   the names of those that the state has a use for
    """

    def __init__(self, kernel: Any = None, **functions: Any) -> None:
        self.kernel, self.functions = kernel, functions
        self.fits: set[str] = set()

    def check(self) -> None:
        """StorageError if something was handed in that the state holds itself and that differs."""
        for name, value in {"kernel": self.kernel, **self.functions}.items():
            if value is not None and name not in self.fits:
                raise StorageError(f"this state holds its {name}, and the one handed in differs: leave {name}= out")


def decode_kernel(stored: Any, given: Given | None = None) -> Any:
    """The kernel that was encoded; a custom one is taken from `given`."""
    given = given or Given()
    if _holds(stored, {"custom": str}):
        name = stored["custom"]
        if given.kernel is None:
            raise StorageError(
                f"the kernel ({name}) is not one of scikit-learn's and was not stored; "
                "hand it in again: restore(state, kernel=…) or load(path, kernel=…)"
            )
        kind = encode_kernel(given.kernel).get("custom", type(given.kernel).__name__)
        if kind.rpartition(".")[2] != name.rpartition(".")[2]:  # its module may have moved
            raise StorageError(f"this policy was made with the kernel {name}, and the one handed in is another: {kind}")
        given.fits.add("kernel")
        return given.kernel
    if not _holds(stored, {"name": str, "parameters": dict}):
        raise StorageError(f"a stored kernel must have a name and parameters, got {shown(stored)}")
    if given.kernel is not None and encode_kernel(given.kernel) == stored:
        given.fits.add("kernel")
    try:
        parameters = {name: _decode_parameter(name, value, given) for name, value in stored["parameters"].items()}
        return make_kernel(stored["name"], parameters, bounds=True)
    except InvalidInput as error:
        raise StorageError(f"a stored kernel cannot be made: {error}") from None


def _holds(stored: Any, kinds: dict[str, type]) -> bool:
    """Whether this is a dict with exactly these keys, and values of these types."""
    return isinstance(stored, dict) and {name: type(value) for name, value in stored.items()} == kinds


def kernel_key(kernel: Any) -> str:
    """A key that equal kernels share: name and parameters, or identity for a custom kernel."""
    stored = encode_kernel(kernel)
    return f"custom {id(kernel)}" if "custom" in stored else json.dumps(stored, sort_keys=True)


def encode_model(model: Model) -> dict[str, Any]:
    fields = {f.name: getattr(model, f.name) for f in dataclasses.fields(model)}
    return {**fields, "kernel": encode_kernel(model.kernel)}


def decode_model(stored: Any, given: Given) -> Model:
    fields = {field.name for field in dataclasses.fields(Model)}
    if not isinstance(stored, dict) or not {"kernel", "norm_bound", "noise"} <= set(stored) <= fields:
        raise StorageError(f"a stored model must have {', '.join(sorted(fields))}; got {shown(stored)}")
    return Model(**{**stored, "kernel": decode_kernel(stored["kernel"], given)})


def encode_value(what: str, value: Any) -> Any:
    """A setting as JSON: numbers, text, lists, arrays, models, kernels; of functions the name only."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise InvalidInput(f"{what} cannot be stored: an array of {value.dtype}; use numbers")
        return encode_array(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if isinstance(value, float | int | str | bool) or value is None:
        return value
    if isinstance(value, tuple | list):
        return [encode_value(what, entry) for entry in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"mapping": {key: encode_value(what, entry) for key, entry in value.items()}}
    if isinstance(value, Model):
        return encode_model(value)
    if isinstance(value, Kernel):
        return {"kernel": encode_kernel(value)}
    if callable(value):
        return {"callable": f"{value.__module__}:{getattr(value, '__qualname__', type(value).__qualname__)}"}
    raise InvalidInput(f"{what} cannot be stored: {type(value).__name__}; use numbers, text, lists or arrays")


def decode_value(name: str, value: Any, given: Given) -> Any:
    """The setting that was encoded; custom kernels and functions are taken from `given`."""
    if isinstance(value, list | tuple):
        return [decode_value(name, entry, given) for entry in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return decode_array(f"setting {name}", value)
    if _holds(value, {"number": str}) and value["number"] in NO_JSON:
        return float(value["number"])
    if _holds(value, {"mapping": dict}):
        return {key: decode_value(name, entry, given) for key, entry in value["mapping"].items()}
    if _holds(value, {"callable": str}):
        if not callable(given.functions.get(name)):
            raise StorageError(
                f"{name} is the function {value['callable']}, which is not stored; hand it in again: "
                f"restore(state, {name}=…)"
            )
        given.fits.add(name)
        return given.functions[name]
    if "norm_bound" in value:
        return decode_model(value, given)
    if set(value) == {"kernel"}:
        return decode_kernel(value["kernel"], given)
    raise StorageError(f"setting {name} is stored in a way that is not known here: {shown(value)}")


def encode_array(values: Array) -> dict[str, Any]:
    """An array of numbers as JSON, exact: base64 of its bytes, little-endian."""
    plain = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    content = b2a_base64(plain.tobytes(), newline=False).decode()
    return {"array": content, "dtype": plain.dtype.str, "shape": list(values.shape)}


def decode_array(what: str, stored: Any) -> Any:
    """The array that was encoded; StorageError where it is none."""
    try:
        if _holds(stored, {"array": str, "dtype": str, "shape": list}):
            kind = np.dtype(stored["dtype"])
            if kind.kind in "biuf":
                content = a2b_base64(stored["array"], strict_mode=True)
                return np.frombuffer(content, kind).astype(kind.newbyteorder("=")).reshape(stored["shape"])
    except (TypeError, ValueError, OverflowError, SyntaxError):
        pass
    raise StorageError(f"{what} must be an array as it is stored, got {shown(stored)}")


def check_plain(what: str, value: Any, depth: int = DEEP) -> None:
    """StorageError unless this is JSON, and not nested deeply."""
    if isinstance(value, list | tuple):
        if not set(map(type, value)) <= {float, int} and depth > 0:
            for each in value:
                check_plain(what, each, depth - 1)
    elif isinstance(value, dict):
        if not set(map(type, value)) <= {str}:
            raise StorageError(f"{what} has names that are no text: {shown(list(value))}")
        check_plain(what, list(value.values()), depth)
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise StorageError(f"{what} must be JSON, got something of type {type(value).__name__}")
    if depth <= 0:
        raise StorageError(f"{what} is nested more than {DEEP} deep")


def _encode_parameter(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float | int | str | bool) or value is None:
        return value if value != float("inf") else "inf"
    if isinstance(value, tuple | list):
        return [_encode_parameter(entry) for entry in value]
    if hasattr(value, "get_params"):
        return encode_kernel(value)
    raise InvalidInput(f"cannot store the kernel parameter {value!r}; use numbers, lists or 'fixed'")


def _decode_parameter(name: str, value: Any, given: Given) -> Any:
    """A parameter of a kernel: another kernel, a word, a number, a pair of bounds, or an array."""
    if isinstance(value, dict):
        return decode_kernel(value, given)
    if not isinstance(value, list):
        return float("inf") if value == "inf" else value
    numbers = [_decode_parameter("", entry, given) for entry in value]
    try:
        values = np.array(numbers)
    except ValueError:
        values = np.array(None)
    if values.dtype.kind not in "iuf":
        raise StorageError(f"{name} of a stored kernel must be numbers, got {shown(value)}")
    return tuple(numbers) if not name or (name.endswith("_bounds") and values.ndim == 1) else values


# -- snapshots ---------------------------------------------------------------------------------------------------------


def kept(value: Any) -> Any:
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
    slots = [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
    return [name for name in slots or vars(value) if name not in SKIPPED]


def restored(stored: Any, now: Any = None, *classes: type) -> Any:
    """The value that was kept. now: that of an object made in the same way, whose objects are changed in place and
    whose types it must have; classes: of objects that may be missing there. StorageError for anything else."""
    found = _restored(stored, now, classes)
    same = type(found) is type(now) or (isinstance(found, int | float) and isinstance(now, int | float))
    if isinstance(found, np.ndarray) and isinstance(now, np.ndarray):
        same = found.dtype == now.dtype and found.ndim == now.ndim
    if not same and now is not None and found is not None:
        raise StorageError(f"a snapshot has {shown(stored)} in the place of a {type(now).__name__}")
    return found


def _restored(stored: Any, now: Any, classes: tuple[type, ...]) -> Any:
    if isinstance(stored, list):
        values = [_restored(each, None, classes) for each in stored]
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
            return {_restored(key, None, classes): _restored(each, None, classes) for key, each in content}
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
        setattr(now, name, restored(each, before, *classes))
    return now


def resume(now: Any, stored: Any, *classes: type) -> None:
    """Let an object go on from what was kept of one that was made in the same way."""
    if restored(stored, now, *classes) is not now:
        raise StorageError(f"a snapshot has nothing for a {type(now).__name__}")
