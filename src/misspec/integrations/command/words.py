"""A command with parameters in it, and the number that it prints."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from misspec.domains import Choice, Space
from misspec.errors import InvalidInput, shown

LINES, LENGTH = 20, 4000  # of stderr that are kept of a failure

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]?(?:nan|inf|infinity)", re.IGNORECASE)
SEPARATORS = re.compile(r"(?:[\s=:;|%\"(){}\[\]<>]|(?<!\d)[,']|[,'](?!\d))+")
GROUPS = re.compile(r"[,']")  # between digits: of thousands, or before decimals, or of a list: ambiguous
# what a shell reads once more, with values put in: a line with eval or a here-document; arithmetic, [[ ]] and ${ }
REREAD = re.compile(r"<<|(?:^|[;&|({!\n]|\b(?:then|do|else)\s)\s*(?:\w+=\S*\s+)*\\?(?:eval|let)\b")
EVALUATED = re.compile(r"\(\(.*\)\)|\[\[\s.*\]\]|\$\[.*\]|\$\{[^}]*", re.DOTALL)
AROUND = {"((": "(( ))", "[[": "[[ ]]", "$[": "$[ ]", "${": "${ }"}
BETWEEN_WORDS = " \t\n;&|()<>"
COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Failure(Exception):
    """Why an evaluation has no result, and the end of what it complained about."""

    def __init__(self, reason: str, stderr: str = "") -> None:
        super().__init__(reason)
        self.reason, self.stderr = reason, stderr


class Command:
    """The words of a command with {name} where a value goes; other braces are the user's own, and {{name}} is {name}.

    A parameter that does not exist at a point is an empty word, or an empty part of one. {params} is a JSON object of
    those that do, {trial} the number of the trial. shell: the words are a line for /bin/sh, in which
    each value is one word or a part of it, whatever it holds.
    """

    def __init__(self, words: Sequence[str], space: Space, *, shell: bool = False) -> None:
        if not any(word.strip() for word in words[:1]):
            raise InvalidInput("there is no command; write it after --, as in: -- python train.py --lr {lr}")
        self.shell, self.names = shell, space.names
        self.words = [" ".join(words)] if shell else list(words)
        more = [name for name in ("params", "trial") if name not in self.names]
        known = "|".join(re.escape(name) for name in sorted([*self.names, *more], key=len, reverse=True))
        self._slots = re.compile(r"\{\{(" + known + r")\}\}|\{(" + known + r")\}")
        used = {match[2] for word in self.words for match in self._slots.finditer(word)}
        unused = [name for name in self.names if name not in used]
        if unused and not ("params" in used and "params" in more):
            raise InvalidInput(
                f"the command never uses the parameter {shown(unused[0])}; write {{{unused[0]}}} where its value goes "
                "({params} is a JSON object of all), or take it out of the file"
            )
        for name, each in space.parameters.items():
            if isinstance(each, Choice) and any("\0" in str(option) for option in each.options):
                said = "has an option with a null character, which no argument can hold"
                raise InvalidInput(f"parameter {shown(name)} {said}")
        if shell:
            self._check_shell(self.words[0])
        elif not self._slots.search(words[0]) and shutil.which(words[0]) is None:
            hint = "; a line for the shell needs --shell" if " " in words[0].strip() else ""
            raise InvalidInput(f"there is no command {shown(words[0])} here{hint}")

    def filled(self, params: Mapping[str, Any], trial: int) -> list[str]:
        """The words with values in their places."""
        values = {"params": json.dumps(dict(params)), "trial": str(trial)}
        given = {name: params.get(name, "") for name in self.names}
        values |= {name: repr(float(x)) if isinstance(x, float) else str(x) for name, x in given.items()}
        if not self.shell:
            return [self._put(values, word) for word in self.words]
        # the shell never parses a value: values are its arguments, kept in variables that stand in the line
        used = sorted({match[2] for match in self._slots.finditer(self.words[0]) if match[2]})
        kept = "".join(f"misspec_{i}=${{{i}}}; " for i in range(1, len(used) + 1))
        line = self._put({name: f'"$misspec_{i}"' for i, name in enumerate(used, start=1)}, self.words[0])
        return ["/bin/sh", "-c", f"{kept}shift {len(used)}; {line}", "/bin/sh", *(values[name] for name in used)]

    def _put(self, values: Mapping[str, str], word: str) -> str:
        return self._slots.sub(lambda match: values[match[2]] if match[2] else f"{{{match[1]}}}", word)

    def _check_shell(self, line: str) -> None:
        """InvalidInput where a {name} would not be one whole word to the shell: in quotes, comments, arithmetic."""
        slots = {match.start(): match[2] for match in self._slots.finditer(line) if match[2]}
        reread = REREAD.search(line) if slots else None
        among = [each for each in EVALUATED.finditer(line) if any(each.start() <= p < each.end() for p in slots)]
        if reread is not None or among:
            where = reread[0].lstrip(";&|({ \t\n") if reread is not None else AROUND[among[0][0][:2]]
            raise InvalidInput(
                f"values cannot go into {shown(where)}, which the shell reads once more; hand them to a command as "
                "arguments, or put this into a script that takes arguments"
            )
        inside, escaped = [""], False  # innermost last: a quote, "#" in a comment, ")" in "$( )"; "" outside of all
        for at, character in enumerate(line):
            if at in slots and (inside[-1] not in ("", ")") or escaped):
                where = "in a comment (#)" if inside[-1] == "#" else "inside of quotes"
                raise InvalidInput(
                    f"{{{slots[at]}}} is {where}, where the shell does not take it for a word of its own; write it "
                    "outside: values are quoted already"
                )
            if escaped:
                escaped = False
            elif inside[-1] == "#":
                inside = inside[:-1] if character == "\n" else inside
            elif character == "\\" and inside[-1] != "'":
                escaped = True
            elif inside[-1] != "'" and line.startswith("$(", at):
                inside.append(")")
            elif character == inside[-1]:
                inside.pop()
            elif inside[-1] in ("", ")"):
                begins = character == "#" and (at == 0 or line[at - 1] in BETWEEN_WORDS)
                inside += [character] if begins or character in "'\"`" else []


def result_of(out: str, key: str | None) -> float:
    """The last number printed, or the value of a key, a.b.c, in the last JSON object that has it; Failure if none."""
    text = COLOURS.sub("", out).replace("\N{MINUS SIGN}", "-")
    value = _last_number(text) if key is None else _keyed(text, key)
    if not math.isfinite(value):
        raise Failure(f"its result is {value}")
    return value


def _last_number(text: str) -> float:
    for line in reversed(text.splitlines()):
        for word in reversed(SEPARATORS.split(line)):
            word = word.removesuffix(".")
            if NUMBER.fullmatch(word):
                return float(word)
            if any(NUMBER.fullmatch(part) for part in GROUPS.split(word)):
                raise Failure(
                    f"it printed {shown(word)}, which may be one number or several; print the result with a decimal "
                    "point and no other marks, such as 1234.5, or as JSON and say --json KEY"
                )
    raise Failure("it printed no number" if text.strip() else "it printed nothing")


def _keyed(text: str, key: str) -> float:
    objects, values = list(_objects(text)), []
    for each in objects:
        with contextlib.suppress(LookupError):
            values.append(_look_up(each, key))
    if not objects:
        raise Failure("it printed no JSON object")
    if not values:
        has = ", ".join(repr(name) for name in list(objects[-1])[:10]) or "nothing"
        raise Failure(f"no JSON object that it printed has {shown(key)}; the last has {has}")
    value = values[-1]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Failure(f"{shown(key)} is no number but {json.dumps(value)[:80]}")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, in order, not those inside of others."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield found
        at = text.find("{", end)


def _look_up(tree: Any, path: str) -> Any:
    """The value at a.b.c; a name may itself have dots in it, and a number counts into a list."""
    if isinstance(tree, list):
        tree = {str(i): each for i, each in enumerate(tree)}
    if isinstance(tree, dict):
        if path in tree:
            return tree[path]
        for dot in re.finditer(r"\.", path):
            if path[: dot.start()] in tree:
                with contextlib.suppress(LookupError):
                    return _look_up(tree[path[: dot.start()]], path[dot.end() :])
    raise LookupError(path)


def last_lines(text: str) -> str:
    return "\n".join(COLOURS.sub("", text).strip().splitlines()[-LINES:])[-LENGTH:]
