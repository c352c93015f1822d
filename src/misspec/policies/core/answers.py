"""Answers of policies: frozen values that nothing is read back from."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec import markup
from misspec.errors import Array
from misspec.policies.core.points import Place

NUMBERS = ("mean", "std", "multiplier", "enlargement", "upper")  # of a query: what its choice was made by


class Band(NamedTuple):
    """Lower and upper ends for f*."""

    lower: Array
    upper: Array


@dataclasses.dataclass(frozen=True, eq=False)
class Observations:
    """Results, in the order told: all of them, unless some are forgotten.

    x, y        points in user units, shape (n, d), and results
    ids         of the queries; -1 for data from elsewhere
    forgotten   results before these, of which only sums are left (`policy.compact`)
    noise       their own standard deviations, NaN for those without
    limits      values of limited quantities by name, NaN where they are unknown
    """

    x: Array
    y: Array
    ids: NDArray[np.intp]
    forgotten: int = 0
    noise: Array = dataclasses.field(default_factory=lambda: np.zeros(0))
    limits: Mapping[str, Array] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.y)


@dataclasses.dataclass(frozen=True, eq=False)
class Query:
    """A point to evaluate, and why it was chosen; nothing of it can be changed.

    id         what `tell` and `drop` know it by
    x, name    the point in user units, and its name on a Finite domain with names
    index      of the candidate on a Finite domain, else None
    position   row of the actions that were handed in, else None
    mean, std, multiplier, enlargement, upper   what the choice was made by; upper is the end that was maximised, and
               what did not enter the choice is NaN. With a budget std is what the dictionary sees, and the enlargement
               has what it misses, unless the width is a number
    details    what is particular to the policy (phased: episode; balancing: base)
    params     on a Space, the native values by name, else None
    row        on a table, the row as it was read, else None
    context    the context that it is for, where there is one
    asked_at   when it was asked, in seconds as time.time() counts them; no choice depends on it
    """

    id: int
    x: Array
    index: int | None = None
    position: int | None = None
    name: str | None = None
    mean: float = math.nan
    std: float = math.nan
    multiplier: float = math.nan
    enlargement: float = math.nan
    upper: float = math.nan
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    params: Mapping[str, Any] | None = None
    row: Mapping[str, Any] | None = None
    context: Array | None = None
    asked_at: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", frozen(self.x))
        if self.context is not None:
            object.__setattr__(self, "context", frozen(self.context))
        _freeze_names(self)
        object.__setattr__(self, "details", Named(copied(self.details)))

    @property
    def whole(self) -> Array:
        """x, or [x, c] where there is a context."""
        return self.x if self.context is None else np.concatenate([self.x, self.context])

    def __deepcopy__(self, memo: Any) -> Query:
        return self

    def _repr_html_(self) -> str:
        """For notebooks: the point, and what is expected there."""
        spread = "" if math.isnan(self.std) else f" ± {self.std:.4g}"
        end = "" if math.isnan(self.upper) else f", at best {self.upper:.4g}"
        said = [] if math.isnan(self.mean) else [f"Expected {self.mean:.4g}{spread}{end}."]
        return markup.block(f"Query {self.id}", markup.points([self], [{}]), markup.paragraphs(said))

    def __reduce__(self) -> tuple[Any, ...]:
        return Query, tuple(getattr(self, field.name) for field in dataclasses.fields(self))


class Named(dict[str, Any]):
    """Immutable values by name: a dict for reading, unpacking and json."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("what a policy answers cannot be changed; dict(…) makes a copy")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return Named, (dict(self),)


def _freeze_names(answer: Any) -> None:
    for name in ("params", "row"):
        if getattr(answer, name) is not None:
            object.__setattr__(answer, name, Named(getattr(answer, name)))


def copied(details: Mapping[str, Any]) -> dict[str, Any]:
    """A copy, all the way down."""
    if not details:
        return {}
    flat = all(isinstance(value, int | float | str) for value in details.values())
    return dict(details) if flat else copy.deepcopy(dict(details))


def frozen(x: Array) -> Array:
    """A read-only array of these numbers."""
    values = x if isinstance(x, np.ndarray) and x.dtype == np.float64 else np.asarray(x, dtype=np.float64)
    return values if not values.flags.writeable else np.frombuffer(values.tobytes()).reshape(values.shape)


@dataclasses.dataclass(frozen=True, eq=False)
class Recommendation:
    """The maximiser of the lower band for f*; where smaller is better, the minimiser of the upper one.

    lower, upper   its band for f*
    mean           the model's; where the band excludes it, `note` says so
    gap            the largest upper band minus `lower` (or the like, minimising): a bound on its regret, to stop by
    guaranteed     whether lower, upper and gap hold with probability 1 − δ *provided that* the truth lies within the
                   policy's ε of the model's class (ε = 0 for GP-UCB and phased, the largest active ε̂ for balancing)
    caveats        if not, why not, one sentence each
    note           what else is worth knowing, such as that a grounded band excludes the model's mean; else empty
    tried          how many results there are at this very point; 0 for a point that was never evaluated
    probability    of keeping all limits there, as the policy has learnt them; None without limits
    params, row    the point by name on a Space, or as a row of a table; else None
    context        the context that it is for, where there is one
    position       row of the actions that were handed in, else None
    """

    x: Array
    index: int | None
    name: str | None
    mean: float
    lower: float
    upper: float
    gap: float
    guaranteed: bool
    caveats: tuple[str, ...] = ()
    note: str = ""
    tried: int = 0
    params: Mapping[str, Any] | None = None
    row: Mapping[str, Any] | None = None
    context: Array | None = None
    position: int | None = None
    probability: float | None = None

    def __post_init__(self) -> None:
        _freeze_names(self)

    def _repr_html_(self) -> str:
        """For notebooks: the point, what to expect of it, and how sure that is."""
        return markup.block("Recommended", markup.points([self], [self._columns()]), markup.paragraphs(self._said()))

    def _columns(self) -> dict[str, Any]:
        """What is known of its value, as columns of a table."""
        known = {"expected": f"{self.mean:.4g}", "range": f"{self.lower:.4g} to {self.upper:.4g}"}
        p = self.probability
        keeps = {} if p is None else {"keeps the limits": "more than 99 %" if p > 0.99 else f"{100 * p:.0f} %"}
        return {**known, **keeps, "results there": self.tried}

    def _said(self) -> list[str]:
        """How sure all this is, in sentences."""
        sure = "Guaranteed, provided that the truth lies within the policy's ε of the model's class."
        why = "; ".join(self.caveats)
        return [
            "" if self.tried else "It was not tried yet: try it before you rely on it.",
            f"The best is better by {self.gap:.4g} at most. {sure}" if self.guaranteed else f"No guarantee ({why}).",
            self.note and f"{self.note[0].upper()}{self.note[1:]}.",
        ]


@dataclasses.dataclass(frozen=True, eq=False)
class Conflict:
    """Data that a misspecification of the policy's ε cannot explain.

    x, index   the point that is hardest to explain
    gap        by how much bands that should meet there lie apart
    epsilon    the misspecification is at least this
    kind       the proof: "class", "bands" or "energy", as in `truth.Certificate`; "learnt" for Auto, which proves none
    """

    x: Array
    index: int | None
    gap: float
    epsilon: float
    kind: str = "learnt"


@dataclasses.dataclass(frozen=True, eq=False)
class Suspicion:
    """A result that the others do not predict.

    row                its row in `policy.observations`
    id                 of its query; None for data from elsewhere
    x, index           the point
    y                  the result; expected, lower, upper: what the others predict of it, and a range of 95 %
    score              how far off it is, in standard deviations
    factor             what would bring it among the others: 10, 100, 1000 or their inverses, where several results look
                       like another unit; else 1
    """

    row: int
    id: int | None
    x: Array
    index: int | None
    y: float
    expected: float
    lower: float
    upper: float
    score: float
    factor: float = 1.0


class Decision(NamedTuple):
    """A policy's choice: the place, its row among the actions handed in, and the reasons (fields of Query)."""

    place: Place
    position: int | None
    reasons: dict[str, Any]
