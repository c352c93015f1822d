"""Domains of contextual problems: rounds that bring their own actions, and the joint setting f(x, c).

`Open`    every round brings vectors, most of which were never seen before; the kernel sees them as they are
`Joint`   a domain of actions x and a space of contexts c: a round brings c, and x is chosen. Points are rows [x, c],
          and the kernel sees the code of x followed by that of c
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec.domains.base import MOST_CORNERS, PROBES, coordinates, width_of, without_names
from misspec.domains.box import Box
from misspec.domains.finite import Finite
from misspec.domains.parameters import Columns
from misspec.domains.space import Space
from misspec.errors import Array, InvalidInput, array, floats, instance, matrix, number, shown, whole
from misspec.files import frames

FAR = 16  # of the longest codes of either part, on which a kernel is checked together
MOST_DIMENSIONS = 100_000  # of points that rounds bring
SLACK = 1e-9  # rounding allowed beyond a radius or the faces of a box


class Open:
    """Points of d dimensions that rounds bring along: `policy.ask(actions=A)`, A of shape (n, d).

    radius: no point is longer than that. box: (low, high) pairs within which all points lie, or a Box. Both are only
    checked: kernels see points as they are. Without them, k(x,x) ≤ 1 is checked whenever points are handed in.
    """

    kind = "Open"  # as it is stored

    def __init__(self, dimension: int, radius: float | None = None, box: ArrayLike | Box | None = None) -> None:
        self.dimension = whole("dimension", dimension, at_least=1, at_most=MOST_DIMENSIONS)
        self.radius = None if radius is None else number("radius", radius, above=0)
        if getattr(box, "rules", None) is not None:
            raise InvalidInput("an Open domain takes what rounds bring and has no rules; hand in a box without where=")
        self.box: Box | None = None if box is None else Box(box.bounds if hasattr(box, "bounds") else box)
        if self.box is not None and self.box.dimension != self.dimension:
            raise InvalidInput(
                f"box must have {self.dimension} (low, high) pair(s), one per dimension, got {self.box.dimension}"
            )

    def __repr__(self) -> str:
        limits = {"radius": self.radius, "box": self.box and self.box.bounds}
        return f"Open({self.dimension}{''.join(f', {k}={v!r}' for k, v in limits.items() if v is not None)})"

    @property
    def bounded(self) -> bool:
        """Whether it is known how far points lie from the origin."""
        return self.radius is not None or self.box is not None

    @property
    def columns(self) -> tuple[Columns, ...]:
        """Which columns of the encoding belong to which coordinate."""
        return coordinates(self.dimension)

    def settings(self) -> dict[str, Any]:
        """What makes it, as JSON."""
        box = None if self.box is None else [list(pair) for pair in self.box.bounds]
        return {"dimension": self.dimension, "radius": self.radius, "box": box}

    def validate(self, points: ArrayLike) -> Array:
        """Points as floats of the right dimension, within the radius and the box where there are any."""
        found = matrix("points", without_names(points, self), columns=self.dimension)
        if self.bounded and len(found):
            inside = self.inside(found)
            if not inside.all():
                row = int(inside.argmin())
                raise InvalidInput(
                    f"points must lie in {shown(self)}, row {row} does not: {found[row]}; scale the points"
                )
        return found

    def inside(self, points: Array) -> NDArray[np.bool_]:
        """For each point, whether it lies within the radius and the box."""
        inside = np.ones(len(points), dtype=bool)
        if self.radius is not None:
            inside &= np.einsum("nd,nd->n", points, points) <= (self.radius * (1 + SLACK)) ** 2
        if self.box is not None:
            inside &= self.box.contains(points, SLACK)
        return inside

    def contains(self, points: ArrayLike, slack: float = SLACK) -> NDArray[np.bool_]:  # noqa: ARG002  # always
        """For each point, whether a round could bring it."""
        return self.inside(matrix("points", points, columns=self.dimension))

    def encode(self, points: ArrayLike) -> Array:
        """What the kernel sees: the points as they are."""
        return self.validate(points)

    def probes(self) -> Array:
        """Points on which a kernel is checked: of the box, or of a ball, its sphere included."""
        box = self.box
        if box is None:
            rng = np.random.default_rng(0)
            directions = rng.standard_normal((PROBES, self.dimension))
            directions /= np.linalg.norm(directions, axis=1, keepdims=True)
            lengths = np.append(np.ones(PROBES // 2), rng.random(PROBES - PROBES // 2) ** (1.0 / self.dimension))
            return np.asarray(directions * lengths[:, None] * (self.radius or 1.0))
        if self.dimension <= MOST_CORNERS:
            corners = np.array(list(itertools.product(*box.bounds)))
        else:
            corners = np.where(np.abs(box.low) > np.abs(box.high), box.low, box.high)[None, :]
        points = np.concatenate([box.decode(box.uniform(PROBES, [0])), corners])
        if self.radius is None:
            return points
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        return np.asarray(points * np.minimum(1.0, self.radius / np.maximum(lengths, self.radius)))


class Joint:
    """Actions x of a domain (Finite, Box or Space) together with contexts c (Box, Space, Finite or Open).

    `policy.ask(context=c)` chooses x for a context, `recommend(context=c)` and `band(X, context=c)` answer for one. A
    query has x and, beside it, `context`; what is known of a point by itself belongs to (x, c). Whole points, as in
    `observe` and `posterior.at`, are rows [x, c] in user units.
    """

    kind = "Joint"  # as it is stored

    def __init__(self, domain: Finite | Box | Space, contexts: Box | Space | Finite | Open) -> None:
        self.domain: Finite | Box | Space = instance("domain", domain, (Finite, Box, Space))
        kinds, hint = (Box, Space, Finite, Open), "ms.Open(3) takes any three numbers"
        self.contexts: Box | Space | Finite | Open = instance("contexts", contexts, kinds, hint)

    def __repr__(self) -> str:
        return f"Joint({self.domain!r}, {self.contexts!r})"

    @property
    def dimension(self) -> int:
        return self.domain.dimension + self.contexts.dimension

    @property
    def bounded(self) -> bool:
        """Whether it is known how far points lie from the origin."""
        return getattr(self.contexts, "bounded", True)

    @property
    def columns(self) -> tuple[Columns, ...]:
        """Which columns of the encoding belong to which coordinate."""
        start, theirs = width_of(self.domain), self.contexts.columns
        return self.domain.columns + tuple(c._replace(start=c.start + start, stop=c.stop + start) for c in theirs)

    def context(self, given: Any) -> Array:
        """A context as handed in (numbers; by name on a Space; an index on a list), as numbers, shape (1, d_c)."""
        if given is None:
            raise InvalidInput(
                f"this domain has contexts, and the round's is missing: ask(context=c), c in {shown(self.contexts)}"
            )
        contexts: Any = self.contexts
        if hasattr(contexts, "named") and isinstance(given, str | int | np.integer) and not isinstance(given, bool):
            rows = contexts.named([given]) if isinstance(given, str) else contexts.validate_indices(given)
            return np.asarray(contexts.points[rows])
        if not frames.is_named(given):
            given = floats(f"a context must be {contexts.dimension} number(s)", given).reshape(1, -1)
            if given.shape[1] != contexts.dimension:
                raise InvalidInput(f"a context must be {contexts.dimension} number(s), got {given.shape[1]}")
        found: Array = contexts.validate(given)
        if found.shape != (1, contexts.dimension):
            raise InvalidInput(f"one context is expected, of {contexts.dimension} number(s), got {len(found)} of them")
        if not contexts.contains(found, SLACK).all():
            raise InvalidInput(
                f"a context must be one of {shown(contexts)}, got {found[0].tolist()}; wider contexts take it, and "
                "ms.Open(…) takes any"
            )
        return found

    def split(self, given: Any, n: int) -> list[Any]:
        """Contexts one by one, for n points; empty if a single one is given."""
        if frames.is_frame(given):
            return list(frames.read(given, "the contexts").rows())
        if isinstance(given, list | tuple) and len(given) and frames.is_named(given):
            return list(given)
        if isinstance(given, str | int | np.integer) or frames.is_named(given):
            return []
        if hasattr(self.contexts, "named") and isinstance(given, list | tuple):
            named = [isinstance(each, str) or (isinstance(each, int) and not isinstance(each, bool)) for each in given]
            if named and all(named):
                return list(given)  # by name or index
        found = array("contexts must be rows of numbers, all equally long", given)
        each = n > 1 and self.contexts.dimension == 1 and found.shape == (n,)  # one number each
        return list(found) if found.ndim >= 2 or each else []

    def _parts(self, points: ArrayLike) -> tuple[Array, Array]:
        """x and c of whole points [x, c]."""
        rows = matrix("points [x, c]", points, columns=self.dimension)
        return rows[:, : self.domain.dimension], rows[:, self.domain.dimension :]

    def validate(self, points: ArrayLike) -> Array:
        """Whole points [x, c] as floats of the right dimension."""
        x, c = self._parts(points)
        return np.concatenate([self.domain.validate(x), self.contexts.validate(c)], axis=1)

    def encode(self, points: ArrayLike) -> Array:
        """What the kernel sees: the code of x and that of c."""
        x, c = self._parts(points)
        return np.concatenate([self.domain.encode(x), self.contexts.encode(c)], axis=1)

    def contains(self, points: ArrayLike) -> NDArray[np.bool_]:
        """For each whole point, whether x lies in the domain and c among the contexts."""
        x, c = self._parts(points)
        return np.asarray(self.domain.contains(x) & self.contexts.contains(c))

    def probes(self) -> Array:
        """Encoded points on which a kernel is checked: probes of both, paired."""
        ours, theirs = self.domain.probes(), self.contexts.probes()
        n = max(len(ours), len(theirs))
        rows = np.concatenate([ours[np.arange(n) % len(ours)], theirs[(7 * np.arange(n)) % len(theirs)]], axis=1)
        # where kernels that grow are largest: the longest codes of both together
        far = [part[np.argsort(-np.einsum("nd,nd->n", part, part), kind="stable")[:FAR]] for part in (ours, theirs)]
        a, b = (each.ravel() for each in np.meshgrid(np.arange(len(far[0])), np.arange(len(far[1]))))
        return np.concatenate([rows, np.concatenate([far[0][a], far[1][b]], axis=1)])
