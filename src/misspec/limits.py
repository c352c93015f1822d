"""Limits on quantities that are measured beside the objective: "impurity < 2"."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec.errors import InvalidInput, listed, number, shown

TEXT = re.compile(r"\s*([^<>=]*[^<>=\s])\s*(<=|>=|<|>)\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*", re.I | re.A)
COMPARED: dict[str, Callable[[Any, float], Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


@dataclasses.dataclass(frozen=True)
class Limit:
    """A limit on a quantity. sign: "<", "<=", ">" or ">="."""

    name: str
    sign: str
    bound: float

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {self.bound:g}"

    @property
    def side(self) -> float:
        """1 where the quantity must lie below the bound, −1 where above."""
        return 1.0 if self.sign[0] == "<" else -1.0

    def holds(self, values: ArrayLike) -> NDArray[np.bool_]:
        """Which values keep the limit; one that is unknown (NaN) breaks none."""
        values = np.asarray(values, dtype=np.float64)
        return np.asarray(COMPARED[self.sign](values, self.bound) | np.isnan(values))


def read_limits(given: Any) -> tuple[Limit, ...]:
    """Limits from text, or a list of several; None for none."""
    texts = [] if given is None else [given] if isinstance(given, str) else listed("limits", given)
    found = [_read(text) for text in texts]
    for name in names_of_limits(found):
        some = [each for each in found if each.name == name]
        ends = {each.side: each for each in some}
        if len(ends) < len(some):
            raise InvalidInput(f"several limits bound {shown(name)} on the same side: keep the strictest one")
        if len(ends) == 2 and ends[1.0].bound <= ends[-1.0].bound:
            raise InvalidInput(
                f"no range is left between {str(ends[-1.0])!r} and {str(ends[1.0])!r}: correct one of them"
            )
    return tuple(found)


def _read(text: Any) -> Limit:
    match = TEXT.fullmatch(text) if isinstance(text, str) and text.isprintable() else None
    if match is None:
        raise InvalidInput(
            f'a limit must be text of a name, <, <=, > or >=, and a number, as in "impurity < 2", got {shown(text)}'
        )
    name, sign, bound = match.groups()
    return Limit(name.strip(), sign, number(f"the bound of limit {shown(text)}", float(bound)))


def names_of_limits(limits: Sequence[Limit]) -> list[str]:
    """The quantities, each once."""
    return list(dict.fromkeys(each.name for each in limits))
