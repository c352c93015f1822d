"""Models and kernels as JSON: scikit-learn's kernels by name and parameters, from a fixed list, never evaluated."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from misspec.errors import InvalidInput, StorageError
from misspec.model import Model

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


def encode_kernel(kernel: Any) -> dict[str, Any]:
    """{"name", "parameters"} for a kernel of scikit-learn; {"custom": its class} for any other."""
    kind = type(kernel)
    if kind.__module__ != "sklearn.gaussian_process.kernels" or kind.__name__ not in KERNELS:
        return {"custom": f"{kind.__module__}.{kind.__qualname__}"}
    parameters = {name: _encode(value) for name, value in kernel.get_params(deep=False).items()}
    if any(isinstance(value, dict) and "custom" in value for value in parameters.values()):
        return {"custom": f"{kind.__module__}.{kind.__qualname__}"}
    return {"name": kind.__name__, "parameters": parameters}


def decode_kernel(stored: dict[str, Any], given: Any) -> Any:
    """The kernel again; a custom one is what was handed in."""
    if "custom" in stored:
        if given is None:
            raise StorageError(
                f"the kernel ({stored['custom']}) is not one of scikit-learn's and was not stored; "
                "hand it in again: restore(state, kernel=…) or load(path, kernel=…)"
            )
        return given
    if (
        given is not None
        and encode_kernel(given) not in (stored, *_parts(stored))
        and "custom" not in encode_kernel(given)
    ):
        raise StorageError("this state holds its kernel, and the one handed in differs from it; leave kernel= out")
    if stored["name"] not in KERNELS:
        raise StorageError(f"unknown kernel {stored['name']!r} in a policy's state")
    from sklearn.gaussian_process import kernels

    parameters = {name: _decode(name, value, given) for name, value in stored["parameters"].items()}
    try:
        return getattr(kernels, stored["name"])(**parameters)
    except TypeError as error:
        raise StorageError(f"kernel {stored['name']} does not take the parameters stored: {error}") from None


def _parts(stored: dict[str, Any]) -> list[dict[str, Any]]:
    """The kernels inside a sum or product."""
    inside = [value for value in stored["parameters"].values() if isinstance(value, dict) and "parameters" in value]
    return [*inside, *(part for each in inside for part in _parts(each))]


def encode_model(model: Model) -> dict[str, Any]:
    fields = {f.name: getattr(model, f.name) for f in dataclasses.fields(model)}
    return {**fields, "kernel": encode_kernel(model.kernel)}


def decode_model(stored: dict[str, Any], kernel: Any) -> Model:
    return Model(**{**stored, "kernel": decode_kernel(stored["kernel"], kernel)})


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float | int | str | bool) or value is None:
        return value if value != float("inf") else "inf"
    if isinstance(value, tuple | list):
        return [_encode(each) for each in value]
    if hasattr(value, "get_params"):
        return encode_kernel(value)
    raise InvalidInput(f"cannot store the kernel parameter {value!r}; use numbers, lists or 'fixed'")


def _decode(name: str, value: Any, given: Any) -> Any:
    if isinstance(value, dict):
        return decode_kernel(value, given)
    if isinstance(value, list):
        pair = name.endswith("_bounds") and not isinstance(value[0], list)
        numbers = [_decode("", each, given) for each in value]
        return tuple(numbers) if pair or not name else np.array(numbers)
    return float("inf") if value == "inf" else value
