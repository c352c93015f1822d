"""Rounds in the order asked: what policies that judge their bases by results count."""

from __future__ import annotations

from collections import OrderedDict

from misspec.policies.base import Asked


class Rounds:
    """A round counts once it is told and every round before it is told or dropped: results that were chosen by their
    values count no earlier than others."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, tuple[Asked, float | None]] = OrderedDict()

    def ask(self, asked: Asked) -> None:
        """A round was asked."""
        self._open[asked.query.id] = (asked, None)

    def tell(self, asked: Asked, y: float) -> list[tuple[Asked, float]]:
        """Its result; which rounds count from now on."""
        self._open[asked.query.id] = (asked, y)
        return self._counted()

    def drop(self, asked: Asked) -> list[tuple[Asked, float]]:
        """It never was; which rounds count from now on."""
        del self._open[asked.query.id]
        return self._counted()

    def waiting(self) -> list[Asked]:
        """Rounds that do not count yet."""
        return [asked for asked, _ in self._open.values()]

    def _counted(self) -> list[tuple[Asked, float]]:
        found = []
        while self._open:
            id_, (asked, y) = next(iter(self._open.items()))
            if y is None:
                break
            del self._open[id_]
            found.append((asked, y))
        return found
