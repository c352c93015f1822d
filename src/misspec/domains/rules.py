"""Rules between parameters, `where="temperature + pressure < 200"`: texts in a small language, or functions.

    numbers, "text", True, False, None     parameters by name, those that are no plain words in `backticks`
    + − * / **, min, max, abs, log, exp    < ≤ > ≥ == !=, in, not in, and, or, not

A text is parsed by Python's `ast` and evaluated here, node by node on arrays, never by Python. A comparison yields
whether it holds, and by how much, its *margin* (right − left for <), so that searches find legal points and follow the
border. One whose value is not a number, such as a logarithm of −1, does not hold; one about a parameter that does not
exist at a point (`conditions.py`) does. Numbers that differ by rounding are equal.
"""

from __future__ import annotations

import ast
import functools
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec.errors import LARGEST, Array, InvalidInput, listed, nearest, short, shown

LONGEST = 2000  # characters of a rule: the parser's stack is finite
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`([^`]+)`")  # text is left alone
ROUNDING = 16 * np.finfo(np.float64).eps  # of numbers that are equal: 0.1 + 0.2 is 0.3
EXAMPLE = 'a rule says what must hold, as in "temperature + pressure < 200"'
REMEDIES = {  # what people write instead of what rules know
    ast.BinOp: "rules know + - * / ** and, to combine comparisons, the words and, or, not",
    ast.Call: "rules know min, max, abs, log and exp",
    ast.Attribute: "put a name that is not a plain word in backticks: `flow (ml/h)` < 3",
}
SIGNS: dict[type, tuple[str, type]] = {  # how a comparison is written, and its opposite
    ast.Lt: ("<", ast.GtE),
    ast.LtE: ("<=", ast.Gt),
    ast.Gt: (">", ast.LtE),
    ast.GtE: (">=", ast.Lt),
    ast.Eq: ("==", ast.NotEq),
    ast.NotEq: ("!=", ast.Eq),
    ast.In: ("in", ast.NotIn),
    ast.NotIn: ("not in", ast.In),
}
ARITHMETIC: dict[type, Any] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide, ast.Pow: np.power,
    ast.USub: np.negative, ast.UAdd: np.positive,
}  # fmt: skip
FUNCTIONS: dict[str, Any] = {
    "min": lambda *parts: functools.reduce(np.minimum, parts),
    "max": lambda *parts: functools.reduce(np.maximum, parts),
    "abs": np.abs,
    "log": np.log,
    "exp": np.exp,
}


class Values(NamedTuple):
    """Native values of all parameters at n points, and where each exists."""

    columns: Mapping[str, NDArray[Any]]
    there: Mapping[str, NDArray[np.bool_]]
    n: int

    @classmethod
    def of(cls, parameters: Mapping[str, Any], X: Array, there: NDArray[np.bool_]) -> Values:
        columns = {name: compared(p, X[:, i]) for i, (name, p) in enumerate(parameters.items())}
        return cls(columns, {name: there[:, i] for i, name in enumerate(columns)}, len(X))


class Held(NamedTuple):
    """Whether something holds at each point, and by how much: margins below 0 say how far it is from holding."""

    holds: NDArray[np.bool_]
    margin: Array

    @classmethod
    def only(cls, holds: Any) -> Held:
        """Of what holds by no degrees."""
        return cls(holds, np.where(holds, 1.0, -1.0))


class Term(NamedTuple):
    """A number or an option, at each point or everywhere. kind: "number", or "option" for text, True, False and None.
    names: of the parameters in it; constant: as it is written."""

    kind: str
    value: Any
    names: frozenset[str] = frozenset()
    constant: Any = None


class Rules:
    """What must hold of a point. where: a text or a function, or several; parameters: by name.

    A function takes what the user sees of a point (a dict of values by name; on a Box its coordinates) and returns True
    or False. States hold texts; functions are handed in again with the domain.
    """

    def __init__(self, where: Any, parameters: Mapping[str, Any]) -> None:
        given = [where] if isinstance(where, str) or callable(where) else listed("where", where)
        self.texts = [each for each in given if isinstance(each, str)]
        self.functions = [each for each in given if not isinstance(each, str)]
        for each in self.functions:
            if not callable(each):
                raise InvalidInput(f"where must be texts or functions; {EXAMPLE}; got {shown(each)}")
        self.parameters = parameters
        self._parsed = [_Text(text, parameters) for text in self.texts]
        self.equates = any(each.equates for each in self._parsed)  # whether numbers are to be equal

    def __repr__(self) -> str:
        all_of = [*self.texts, *self.functions]
        return repr(all_of[0] if len(all_of) == 1 else all_of)

    def __reduce__(self) -> tuple[Any, ...]:
        return Rules, ([*self.texts, *self.functions], self.parameters)  # a tree that is copied may nest too deeply

    def settings(self) -> list[str | None]:
        """As JSON: None for each function."""
        return [*self.texts, *(None for _ in self.functions)]

    def said(self) -> str:
        """For sentences."""
        return " and ".join([*(shown(each) for each in self.texts), *("the function" for _ in self.functions)])

    def held(self, X: Array, there: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], Array]:
        """Whether all texts hold at the rows of X, and their margins, shape (n, texts). there: which parameters do."""
        values = Values.of(self.parameters, X, there)
        each = [text.held(values) for text in self._parsed]
        holds = np.logical_and.reduce([held.holds for held in each], axis=0) if each else np.ones(len(X), dtype=bool)
        margins = np.array([held.margin for held in each]).reshape(len(each), len(X)).T
        return holds, np.nan_to_num(margins, nan=-LARGEST, posinf=LARGEST, neginf=-LARGEST)

    def allow(self, point: Any) -> bool:
        """Whether all functions hold at a point as users see it."""
        for function in self.functions:
            try:
                held = function(point)
            except Exception as error:
                raise InvalidInput(
                    f"the rule {shown(function)} failed at {shown(point)}: {type(error).__name__}: {short(error)}"
                ) from error
            if not isinstance(held, bool | np.bool_):
                raise InvalidInput(f"a rule must return True or False, {shown(function)} gave {shown(held)}")
            if not held:
                return False
        return True


def compared(parameter: Any, numbers: Array) -> NDArray[Any]:
    """Coordinates as the values that rules compare."""
    options = getattr(parameter, "options", None)
    if options is None:
        return numbers
    if parameter.numeric:
        return np.interp(numbers, np.arange(float(len(options))), np.array(options, dtype=np.float64))
    values = np.empty(len(options), dtype=object)
    values[:] = options
    return np.asarray(values[numbers.astype(np.intp)])


class _Text:
    """One text. It is evaluated node by node; to find what is wrong with it, once without any points."""

    def __init__(self, text: str, parameters: Mapping[str, Any]) -> None:
        self.text, self.parameters = text, parameters
        self.quoted: dict[str, str] = {}  # words that stand for names in backticks
        self.equates = False
        try:
            if len(text) > LONGEST:
                raise self.wrong(f"it has {len(text)} characters, at most {LONGEST} are read; split it into several")
            words = QUOTED.sub(self._word, text).strip()
            self.tree = ast.parse(f"({words})" if words else "", mode="eval").body
            nowhere = np.zeros((0, len(parameters)))
            self.held(Values.of(parameters, nowhere, nowhere.astype(bool)))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if isinstance(error, InvalidInput):
                raise
            hint = "; write == for equal" if re.search(r"[^=<>!]=[^=]", text) else ""
            raise self.wrong(f"it cannot be read{hint or self.unquoted()}") from None

    def unquoted(self) -> str:
        """A hint at a name that needs backticks and has none: one that stands in the text, else any."""
        odd = [name for name in self.parameters if keyword.iskeyword(name) or not name.isidentifier()]
        if not odd or self.quoted:
            return ""
        name = next((each for each in odd if each in self.text), odd[0])
        return (
            f"; put a name that is not a plain word in backticks: `{name}` (in a shell, the rule in single quotes: "
            f"'`{name}` < 1')"
        )

    def wrong(self, what: str) -> InvalidInput:
        return InvalidInput(f"rule {shown(self.text)}: {what}; {EXAMPLE}")

    def _word(self, match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        word = f"_name{len(self.quoted)}_"
        while word in self.text or word in self.parameters:
            word += "_"
        self.quoted[word] = match[1]
        return word

    def piece(self, node: ast.AST) -> str:
        found = ast.unparse(node)
        for word, name in self.quoted.items():
            found = found.replace(word, f"`{name}`")
        return shown(found)

    # -- what is true or false -----------------------------------------------------------------------------------

    def held(self, at: Values) -> Held:
        with np.errstate(all="ignore"):
            return self.truth(self.tree, at, positive=True)

    def truth(self, node: ast.AST, at: Values, *, positive: bool) -> Held:
        """Where a node holds, or its opposite."""
        if isinstance(node, ast.BoolOp):
            parts = [self.truth(each, at, positive=positive) for each in node.values]
            return _combined(parts, every=isinstance(node.op, ast.And) == positive)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.truth(node.operand, at, positive=not positive)
        if isinstance(node, ast.Compare):
            if not all(type(op) in SIGNS for op in node.ops):
                raise self.wrong(f"{self.piece(node)}: rules know <, <=, >, >=, ==, !=, in and not in")
            pairs = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
            parts = [self.comparison(a, op if positive else SIGNS[type(op)][1](), b, at) for a, op, b in pairs]
            return _combined(parts, every=positive)
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            return Held.only(np.full(at.n, node.value == positive))
        if isinstance(node, ast.Name):
            options = getattr(self.parameters.get(self.name(node)), "options", ())
            if options and all(isinstance(each, bool) for each in options):
                return self.comparison(node, ast.Eq(), ast.Constant(positive), at)
        raise self.wrong(f"{self.piece(node)} is neither true nor false; compare it with something")

    def comparison(self, left: ast.AST, op: ast.cmpop, right: ast.AST, at: Values) -> Held:
        sign, a = SIGNS[type(op)][0], self.term(left, at)
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple | ast.Set) or not right.elts:
                raise self.wrong(f"{self.piece(right)} must be a list of values, as in x in ['a', 'b']")
            equal = ast.Eq() if sign == "in" else ast.NotEq()
            return _combined([self.comparison(left, equal, each, at) for each in right.elts], every=sign != "in")
        b = self.term(right, at)
        names = a.names | b.names
        if not names:
            raise self.wrong(f"{self.piece(left)} {sign} {self.piece(right)} is about no parameter")
        if "option" in (a.kind, b.kind):
            if sign not in ("==", "!="):
                raise self.wrong(f"{self.piece(left)} {sign} {self.piece(right)} compares what has no order")
            for one, other in ((a, b), (b, a)):
                self._check_option(one, other)
            held = _of_options(a, b, sign == "==", at.n)
        else:
            self.equates |= sign == "=="
            held = _of_numbers(a.value, b.value, sign, at.n)
        there = np.logical_and.reduce([at.there[name] for name in names])  # elsewhere it holds
        return held if there.all() else Held(held.holds | ~there, np.where(there, held.margin, LARGEST))

    def _check_option(self, side: Term, other: Term) -> None:
        """A constant that is compared with a choice must be one of its options."""
        if len(side.names) != 1 or other.names:
            return
        (name,) = side.names
        p = self.parameters[name]
        if not hasattr(p, "has") or not p.has(other.constant):
            raise self.wrong(f"{name} is {p.expects}, never {shown(other.constant)}")

    # -- numbers and options -------------------------------------------------------------------------------------

    def name(self, node: ast.Name) -> str:
        name = self.quoted.get(node.id, node.id)
        if name not in self.parameters:
            known = [str(each) for p in self.parameters.values() for each in getattr(p, "options", ())]
            said = "; put options in quotes" if name in known else nearest(name, self.parameters)
            raise InvalidInput(f"rule {shown(self.text)}: {shown(name)} is not a parameter{said}")
        return name

    def term(self, node: ast.AST, at: Values) -> Term:
        if isinstance(node, ast.Constant):
            return self._constant(node)
        if isinstance(node, ast.Name):
            name = self.name(node)
            p = self.parameters[name]
            kind = "option" if hasattr(p, "options") and not p.numeric else "number"
            return Term(kind, at.columns[name], frozenset([name]))
        of: Any = None
        if isinstance(node, ast.BinOp):
            inside, of = [node.left, node.right], ARITHMETIC.get(type(node.op))
        elif isinstance(node, ast.UnaryOp):
            inside, of = [node.operand], ARITHMETIC.get(type(node.op))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            inside, of = node.args, FUNCTIONS[node.func.id]
            if node.keywords or (len(inside) < 1 if node.func.id in ("min", "max") else len(inside) != 1):
                raise self.wrong(f"{self.piece(node)} has the wrong number of arguments")
        if of is None:
            remedy = next((said for kind, said in REMEDIES.items() if isinstance(node, kind)), "")
            stands = any(not name.isidentifier() and name in self.text for name in self.parameters)
            remedy = (stands and self.unquoted()) or (remedy and f"; {remedy}")
            raise self.wrong(f"{self.piece(node)} is not known{remedy}")
        parts = [self.term(each, at) for each in inside]
        for each, part in zip(inside, parts, strict=True):
            if part.kind != "number":
                raise self.wrong(f"{self.piece(each)} is not a number")
        return Term("number", of(*(part.value for part in parts)), frozenset().union(*(part.names for part in parts)))

    def _constant(self, node: ast.Constant) -> Term:
        value = node.value
        if isinstance(value, int | float) and not isinstance(value, bool):
            if not abs(value) <= LARGEST:
                raise self.wrong(f"numbers are at most {LARGEST:g} in size")
            return Term("number", np.float64(value), constant=value)  # whose powers overflow to infinity
        if value is None or isinstance(value, str | bool):
            return Term("option", value, constant=value)
        raise self.wrong(f"{self.piece(node)} is not a value of a parameter")


def _of_numbers(a: Any, b: Any, sign: str, n: int) -> Held:
    left, right = (np.broadcast_to(np.asarray(side, dtype=np.float64), n) for side in (a, b))
    apart = left - right
    near = np.abs(apart) <= ROUNDING * np.maximum(np.abs(left), np.abs(right))
    equal = np.where(np.isfinite(apart), near, left == right)
    if sign == "!=":
        return Held(~equal & ~np.isnan(apart), np.abs(apart))
    if sign == "==":
        return Held(equal, -np.abs(apart))
    beyond = left < right if sign[0] == "<" else left > right
    return Held((beyond | equal) if sign[1:] else (beyond & ~equal), -apart if sign[0] == "<" else apart)


def _of_options(a: Term, b: Term, equal: bool, n: int) -> Held:
    sides = (np.array(side.value if side.names else side.constant, dtype=object) for side in (a, b))
    left, right = (np.broadcast_to(side, n).tolist() for side in sides)
    same = [isinstance(x, bool) == isinstance(y, bool) and x == y for x, y in zip(left, right, strict=True)]
    return Held.only(np.array(same, dtype=bool) == equal)


def _combined(parts: Sequence[Held], *, every: bool) -> Held:
    """Where all parts hold, or one of them."""
    if len(parts) == 1:
        return parts[0]
    hold, margin = (np.logical_and, np.minimum) if every else (np.logical_or, np.fmax)
    return Held(hold.reduce([held.holds for held in parts]), margin.reduce([held.margin for held in parts]))
