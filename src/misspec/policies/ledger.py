"""A ledger of the rounds that bases have played: those that count, those that do not yet, and sums over both."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict

from misspec.policies.core.log import Asked


@dataclasses.dataclass(frozen=True)
class Elimination:
    """Base `base` was dropped after `round` told observations: its optimistic average `left` fell below `right`."""

    base: int
    round: int
    left: float
    right: float


class Rounds:
    """A round counts once it is told and every round before it is told or dropped: results that were chosen by their
    values count no earlier than others."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, tuple[Asked, float | None]] = OrderedDict()

    def ask(self, asked: Asked) -> None:
        """A round was asked."""
        self._open[asked.query.id] = (asked, None)

    def tell(self, asked: Asked, y: float) -> list[tuple[Asked, float]]:
        """Enter a result; return the rounds that can now be counted."""
        self._open[asked.query.id] = (asked, y)
        return self._counted()

    def drop(self, asked: Asked) -> list[tuple[Asked, float]]:
        """Remove a dropped round; return the rounds that can now be counted."""
        del self._open[asked.query.id]
        return self._counted()

    def waiting(self) -> list[Asked]:
        """Rounds that do not count yet."""
        return [asked for asked, _ in self._open.values()]

    def _counted(self) -> list[tuple[Asked, float]]:
        counted = []
        while self._open:
            id_, (asked, y) = next(iter(self._open.items()))
            if y is None:
                break
            del self._open[id_]
            counted.append((asked, y))
        return counted


class Ledger(Rounds):
    """Rounds by the base that played them (`base` and `bound` in the details of their queries).

    N, J, R    rounds that count, their rewards and their bounds, per base
    h          radius of the elimination test, of the bases for which it is known
    """

    def __init__(self, bases: int) -> None:
        super().__init__()
        self.N = [0] * bases
        self.J = [0.0] * bases
        self.R = [0.0] * bases
        self.h: dict[int, float] = {}
        self._waiting = [0] * bases  # rounds that do not count yet
        self._waiting_R = [0.0] * bases

    def ask(self, asked: Asked) -> None:
        super().ask(asked)
        self._await(asked, 1)

    def drop(self, asked: Asked) -> list[tuple[Asked, float]]:
        self._await(asked, -1)
        return super().drop(asked)

    def count(self, asked: Asked, y: float) -> int:
        """Count a round: N, J and R of its base, which is returned."""
        self._await(asked, -1)
        i: int = asked.details["base"]
        self.N[i] += 1
        self.J[i] += y
        self.R[i] += asked.details["bound"]
        self.h.pop(i, None)
        return i

    def _await(self, asked: Asked, change: int) -> None:
        i = asked.details["base"]
        self._waiting[i] += change
        self._waiting_R[i] = self._waiting_R[i] + change * asked.details["bound"] if self._waiting[i] else 0.0

    def plays(self, i: int) -> int:
        """Rounds of a base, with those that do not count yet."""
        return self.N[i] + self._waiting[i]

    def bound_with_pending(self, i: int) -> float:
        """R of a base, with rounds that do not count yet."""
        return self.R[i] + self._waiting_R[i]
