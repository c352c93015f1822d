"""A space in a TOML file, for the command line; docs/script.md says what can stand in it.

where = "lr * depth < 0.5"                      # rules: a text, or a list of texts
[parameters]                                    # this line may be left out
lr = { low = 1e-5, high = 0.1, log = true }     # `kind = "float"`, "int" or "choice" says what the values do not
booster = ["tree", "linear"]
depth = { low = 1, high = 12, when = { booster = "tree" } }
blend = { mixture = ["a", "b", "c"], total = 100, at_most = 2 }

`where` holds rules wherever it is a text or a list of texts; a parameter of that name is written as a table.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from typing import Any

from misspec.domains import Choice, Float, Int, Mixture, Space
from misspec.domains.conditions import condition_of
from misspec.errors import InvalidInput, nearest, short, shown
from misspec.files import frames

LONGEST = 600  # characters of what is wrong with a parameter, which may quote a long list
KINDS: dict[str, Any] = {"float": Float, "int": Int, "choice": Choice, "mixture": Mixture}
KEYS = {  # what each kind must have, and what it may have
    "float": (["high", "low"], ["log", "step", "when"]),
    "choice": (["options"], ["when"]),
    "mixture": (["mixture"], ["total", "at_most"]),
}
KEYS["int"] = KEYS["float"]
KNOWN = ("kind", *dict.fromkeys(key for kind in KEYS.values() for keys in kind for key in keys))
ALIASES = {"type": "kind", "min": "low", "max": "high", "choices": "options", "values": "options", "parts": "mixture"}
WHERE = "where"
EXAMPLE = "as in lr = { low = 1e-5, high = 0.1, log = true } or booster = ['tree', 'linear']"


def read(path: str | os.PathLike[str]) -> Space:
    """The space that a file describes; InvalidInput names the parameter that is wrong."""
    try:
        table = tomllib.loads(frames.contents(path).decode())
    except InvalidInput:
        raise
    except (ValueError, RecursionError) as error:  # no UTF-8, no TOML, or an integer of thousands of digits
        raise InvalidInput(f"{path} is not a TOML file: {error}") from None
    below = table.get("parameters", table)
    odd = [name for name in table if name not in ("parameters", WHERE)]
    if not isinstance(below, Mapping) or (below is not table and (odd or not _is_rules(table.get(WHERE, "")))):
        got = short(", ".join(odd)) or shown(table.get(WHERE) if isinstance(below, Mapping) else below)
        raise InvalidInput(f"{path}: beside [parameters] nothing is known but rules ({WHERE}), got {got}; {EXAMPLE}")
    tables = [table] if below is table else [table, below]
    rules = [each for some in tables if _is_rules(some.get(WHERE)) for each in _listed(some[WHERE])]
    given = {name: value for name, value in below.items() if name != WHERE or not _is_rules(value)}
    if not given:
        raise InvalidInput(f"{path} names no parameter; write one per line, {EXAMPLE}")
    parameters: dict[str, Any] = {}
    for name, value in given.items():
        try:
            parameters[name] = _of_table(value) if isinstance(value, Mapping) else Choice(tuple(_listed(value)))
        except InvalidInput as error:
            raise InvalidInput(f"{path}, parameter {shown(name)}: {short(error, LONGEST)}") from None
    try:
        return Space(parameters, where=rules)
    except InvalidInput as error:
        hint = "" if not rules else f" ({WHERE} holds rules; a parameter of that name is {WHERE} = {{ options = […] }})"
        raise InvalidInput(f"{path}: {short(error, LONGEST)}{hint}") from None


def in_words(space: Space) -> list[str]:
    """Each parameter, as a person would say what it can be."""
    found = []
    for name, p in space.parameters.items():
        if isinstance(p, Choice):
            said = " or ".join(map(str, p.options))
        elif p.count == 1:
            said = f"always {p.low:g}"
        else:
            kind = "whole numbers" if isinstance(p, Int) else "numbers"
            step = f" in steps of {p.step:g}" if p.step not in (None, 1) else ""
            said = f"{kind} from {p.low:g} to {p.high:g}{step}{' on a logarithmic scale' * p.log}"
        found.append(f"{name}: {said}{f', where {condition_of(p)}' if p.when else ''}")
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_rules(value: Any) -> bool:
    """Whether it is a text, or a list of texts."""
    return value is not None and all(isinstance(each, str) for each in _listed(value))


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
    likely = next((name for name in ("mixture", "choice") if KEYS[name][0][0] in fields), number)
    kind = str(fields.pop("kind", likely)).lower().removesuffix("eger")
    if kind not in KINDS:
        raise InvalidInput(f"unknown kind {shown(kind)}{nearest(kind, KINDS)}")
    wanted, more = KEYS[kind]
    missing = [name for name in wanted if name not in fields]
    odd = sorted(set(fields) - {*wanted, *more})
    if missing or odd:
        wrong = f"{missing[0]} is missing" if missing else f"and has no {odd[0]}"
        raise InvalidInput(f"{kind} needs {' and '.join(wanted)}, {wrong}; {EXAMPLE}")
    if "mixture" in fields:
        fields["parts"] = fields.pop("mixture")
    return KINDS[kind](**fields)
