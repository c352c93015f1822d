"""Parameters that exist only with certain options of others: when={"booster": "linear"}, also nested.

One that does not exist at a point has its first value in x, whatever was handed in, so that equal points are equal to
the bit; a number has the middle of its range as its code, and a choice zeros. Kernels then compare such a parameter
only where both points have it, and take a middle distance where one has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec.errors import Array, InvalidInput, nearest, shown

When = Any  # as handed in, a dict; as kept, pairs (name of another parameter, the options with which this one exists)
MIDDLE = 0.5  # code of a number that does not exist: no point that has it is farther than half of the range


def native(value: Any) -> Any:
    """A scalar of NumPy as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def conditions(given: Any) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """`when` as it is kept; InvalidInput for what is not a dict of options by name."""
    try:
        pairs = list(given.items() if isinstance(given, Mapping) else given)
        kept = [(name, tuple(some) if isinstance(some, list | tuple) else (some,)) for name, some in pairs]
        found = tuple((name, tuple(native(option) for option in some)) for name, some in kept)
        hash(found)
    except (TypeError, ValueError):
        found = (("", ()),)
    if not all(isinstance(name, str) and some for name, some in found) or len(dict(found)) < len(found):
        example = 'when must be options of other parameters by name, as in when={"booster": "linear"}'
        raise InvalidInput(f"{example}, got {shown(given)}")
    return found


def condition_of(parameter: Any) -> str:
    """Where a parameter exists, in words."""
    return " and ".join(f"{name} is {' or '.join(map(str, some))}" for name, some in parameter.when)


class Conditions:
    """Which parameters of a space exist at which points. parameters: of the space, by name."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        places = {name: i for i, name in enumerate(parameters)}
        self._parameters = list(parameters.values())
        self._needs: list[tuple[int, int, Array]] = []  # (parameter, parent, numbers of the parent), parents first
        self.order: list[str] = []  # all names, parents before what depends on them
        left = {name: p for name, p in parameters.items() if not p.when or self._check(name, p, parameters)}
        while left:
            for name, p in left.items():
                if all(parent in self.order for parent, _ in p.when):
                    self.order.append(name)
                    for parent, some in p.when:
                        numbers = np.array([parameters[parent].number(each, "") for each in some])
                        self._needs.append((places[name], places[parent], numbers))
            before, left = len(left), {name: p for name, p in left.items() if name not in self.order}
            if len(left) == before:
                raise InvalidInput(f"the conditions of {', '.join(map(shown, left))} go round in a circle; drop one")
        self.first: Array = np.array([0.0 if hasattr(p, "options") else p.low for p in parameters.values()])
        self.conditional = frozenset(i for i, _, _ in self._needs)  # positions of parameters that can be absent

    @staticmethod
    def _check(name: str, parameter: Any, parameters: Mapping[str, Any]) -> bool:
        """InvalidInput for conditions on what is not there, or cannot be."""
        for parent, some in parameter.when:
            where = f"parameter {shown(name)}: when={{{shown(parent)}: …}}"
            if parent not in parameters:
                raise InvalidInput(f"{where} names no parameter of the space{nearest(parent, parameters)}")
            p = parameters[parent]
            if p.count is None:
                raise InvalidInput(f"{where} must name a Choice or an Int, got {shown(p)}; a rule compares numbers")
            for option in some:
                number = np.array([p.number(option, f"{where}: an option")])
                if not p.inside(number)[0]:
                    raise InvalidInput(f"{where}: {shown(option)} is none of its values, {p.expects}")
        return True

    def there(self, X: Array) -> NDArray[np.bool_]:
        """Which parameters exist at which points, shape (n, d)."""
        there = np.ones(X.shape, dtype=bool)
        for i, parent, numbers in self._needs:
            p, here = self._parameters[parent], X[:, parent]
            off = ~p.inside(here)
            if off.any():  # a result between two values of the parent is of the nearer one
                here = np.where(off, p.decode(p.encode(np.where(p.wrong(here), self.first[parent], here))), here)
            there[:, i] &= there[:, parent] & np.isin(here, numbers)
        return there

    def settled(self, X: Array) -> Array:
        """The points, with the first value of what does not exist there."""
        return np.where(self.there(X), X, self.first) if self.conditional else X
