"""The posterior of y, read from that of −y."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from misspec.errors import Array


class Turned:
    """A posterior of −y, in the sign of y: means are turned, and all else is as it was."""

    def __init__(self, posterior: Any) -> None:
        self.inner = posterior

    def __getattr__(self, name: str) -> Any:
        if "inner" not in self.__dict__:  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def mean(self) -> Array:
        """μ over the candidates of a list."""
        return np.asarray(-self.inner.mean)

    @property
    def averages(self) -> Array:
        """The average observation of each distinct point."""
        return np.asarray(-self.inner.averages)

    def at(self, X: ArrayLike, *, pending: bool = False) -> tuple[Array, Array]:
        """Mean and standard deviation at the rows of X (user units)."""
        mean, std = self.inner.at(X, pending=pending)
        return -mean, std

    def __repr__(self) -> str:
        return f"{self.inner!r}, of −y"
