"""A space in a TOML file, for the command line; docs/script.md says what can stand in it.

[parameters]                                    # this line may be left out
lr = { low = 1e-5, high = 0.1, log = true }     # `kind = "float"`, "int" or "choice" says what the values do not
booster = ["tree", "linear"]
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from typing import Any

from misspec.domains import Choice, Float, Int, Space
from misspec.errors import InvalidInput, nearest, short, shown
from misspec.files import frames

LONGEST = 600  # characters of what is wrong with a parameter, which may quote a long list
KINDS = {"float": Float, "int": Int, "choice": Choice}
KNOWN = ("kind", "low", "high", "log", "step", "options")
ALIASES = {"type": "kind", "min": "low", "max": "high", "choices": "options", "values": "options"}
EXAMPLE = "as in lr = { low = 1e-5, high = 0.1, log = true } or booster = ['tree', 'linear']"


def read(path: str | os.PathLike[str]) -> Space:
    """The space that a file describes; InvalidInput names the parameter that is wrong."""
    try:
        table = tomllib.loads(frames.contents(path).decode())
    except InvalidInput:
        raise
    except (ValueError, RecursionError) as error:  # no UTF-8, no TOML, or an integer of thousands of digits
        raise InvalidInput(f"{path} is not a TOML file: {error}") from None
    given = table.get("parameters", table)
    if not isinstance(given, Mapping) or (given is not table and len(table) > 1):
        got = short(", ".join(name for name in table if name != "parameters")) or shown(given)
        raise InvalidInput(f"{path}: beside [parameters] nothing is known, got {got}; {EXAMPLE}")
    if not given:
        raise InvalidInput(f"{path} names no parameter; write one per line, {EXAMPLE}")
    parameters: dict[str, Any] = {}
    for name, value in given.items():
        options = tuple(value) if isinstance(value, list) else (value,)
        try:
            parameters[name] = _of_table(value) if isinstance(value, Mapping) else Choice(options)
        except InvalidInput as error:
            raise InvalidInput(f"{path}, parameter {shown(name)}: {short(error, LONGEST)}") from None
    return Space(parameters)


def _of_table(table: Mapping[str, Any]) -> Any:
    fields: dict[str, Any] = {}
    for key, value in table.items():
        name = ALIASES.get(key, key)
        if name not in KNOWN:
            raise InvalidInput(f"unknown key {shown(key)}{nearest(key, KNOWN)}")
        if name in fields:
            raise InvalidInput(f"{shown(key)} says the same as another key; leave one of them out")
        fields[name] = value
    ends = [fields[name] for name in ("low", "high", "step") if name in fields]
    number = "int" if ends and all(type(end) is int for end in ends) else "float"
    kind = str(fields.pop("kind", "choice" if "options" in fields else number)).lower().removesuffix("eger")
    if kind not in KINDS:
        raise InvalidInput(f"unknown kind {shown(kind)}{nearest(kind, KINDS)}")
    wanted, more = (["options"], []) if kind == "choice" else (["high", "low"], ["log", "step"])
    missing = [name for name in wanted if name not in fields]
    odd = sorted(set(fields) - {*wanted, *more})
    if missing or odd:
        wrong = f"{missing[0]} is missing" if missing else f"and has no {odd[0]}"
        raise InvalidInput(f"{kind} needs {' and '.join(wanted)}, {wrong}; {EXAMPLE}")
    return KINDS[kind](**fields)
