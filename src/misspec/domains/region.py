"""What a box and a space share: rules, and legal points for searches.

A search sees points as the kernel does, and all that it gets here are legal. Where rules leave much of the region,
draws that break them are thrown away; where they leave little, points come from a random walk that starts at legal
points found when the region was made, by many draws and, if need be, by climbing towards where the rules hold.

Climbs move in the columns that are `free`. A region can bound them at each point (`reach`), and put the points that
they move to back onto itself (`on`, with the gradient `pulled` back), as the shares of a mixture need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from misspec import search
from misspec.domains.base import MOST_NUMBERS
from misspec.domains.rules import Rules
from misspec.errors import Array, InvalidInput, seeded, shown, whole

KEPT = 512  # legal points that walks start from
DRAWN, DRAWN_BY_FUNCTIONS = 2**17, 2**12  # points drawn to find them: a text takes 0.1 µs at each, a function 10 µs
AT_ONCE = 2**15  # of them in one array
FEW, EXPLORED = 64, 60  # known legal points below which walks look for more, and the most walks
RARE = 1 / 32  # share of legal points below which covers come from a walk
WALK = 12  # steps of a walk
NEAR, ROUNDS, TRIED = 32, 200, 16  # points that climb towards the rules, for how many rounds, tries of each in a round
UNKNOWN = 1e100  # a margin beyond stands for what cannot be computed, or for what does not exist
ATTEMPTS = 64  # draws at once for one uniform point


class Region(ABC):
    """A domain that is searched. Points X are in user units, and U as the kernel sees them."""

    rules: Rules | None = None
    free: NDArray[np.bool_]  # the columns that can be climbed
    groups: Sequence[tuple[Any, list[int]]] = ()  # mixtures, and the positions of their shares
    _units: int  # dimensions of the unit cube that points are drawn from

    # -- what a kind of region says of itself ----------------------------------------------------------------------

    @property
    @abstractmethod
    def dimension(self) -> int: ...

    @abstractmethod
    def encode(self, points: Any) -> Array: ...

    @abstractmethod
    def decode(self, codes: Any) -> Array: ...

    @abstractmethod
    def from_unit(self, unit: Array) -> Array:
        """Points that are legal but for the rules, uniform where the unit cube's are."""

    def _coded(self, unit: Array, *, distinct: bool = False) -> Array:
        """Points of the unit cube as the kernel sees them."""
        X = self.from_unit(unit)
        return self.encode(search.distinct(X).points if distinct else X)

    def as_seen(self, x: Array) -> Any:
        """A point as rules that are functions take it."""
        return self.params(x)  # type: ignore[attr-defined]  # of a space; a box has its own

    def values(self, unit: Array) -> Array:
        """Values of all coordinates, whether they exist together or not."""
        return self.from_unit(unit)

    def changed(self, X: Array, j: int, values: Any) -> Array:
        """The points with other values of one coordinate, and of those that follow: the other shares of a mixture."""
        found = X.copy()
        found[:, j] = values
        for mixture, at in self.groups:
            if j in at:
                found[:, at] = mixture.changed(X[:, at], at.index(j), found[:, j])
        return found

    def there(self, X: Array) -> NDArray[np.bool_]:
        """Which coordinates exist at which points."""
        return np.ones(X.shape, dtype=bool)

    @abstractmethod
    def _stepped(self, U: Array, steps: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        """The rows after these steps, and which are still inside, but for the rules."""

    @abstractmethod
    def _near(self, U: Array, rng: np.random.Generator, count: int, finest: float) -> Array:
        """For each row `count` points around it, legal but for the rules."""

    def _others(self, U: Array) -> tuple[Array, NDArray[np.intp]]:
        """Points with something changed that cannot be climbed, and the row of each."""
        return U[:0], np.zeros(0, dtype=np.intp)

    def every(self) -> Array | None:
        """All points but for the rules, where they can be listed."""
        return None

    def reach(self, U: Array) -> tuple[Array, Array]:
        """The bounds of each free column for climbs from these points."""
        return np.zeros((len(U), int(self.free.sum()))), np.ones((len(U), int(self.free.sum())))

    def on(self, V: Array) -> Array:
        """Points of the region for what a climb has moved to."""
        return V

    def pulled(self, V: Array, gradients: Array) -> Array:  # noqa: ARG002  # nothing moves
        """Gradients by V of what has these gradients at on(V)."""
        return gradients

    # -- rules -----------------------------------------------------------------------------------------------------

    def legal(self, X: Array) -> NDArray[np.bool_]:
        """At which points the rules hold."""
        if self.rules is None:
            return np.ones(len(X), dtype=bool)
        holds, _ = self.rules.held(X, self.there(X))
        if self.rules.functions:
            rows = np.flatnonzero(holds)
            holds[rows] = [self.rules.allow(self.as_seen(x)) for x in X[rows]]
        return holds

    def margins(self, U: Array) -> Array:
        """By how much the texts hold, shape (n, texts), in units of how much that varies."""
        assert self.rules is not None
        X = self.decode(U)
        return np.asarray(self.rules.held(X, self.there(X))[1] / self._sizes)

    def _rule(self, where: Any, parameters: Any) -> None:
        """Take rules, and find legal points; InvalidInput where there is none."""
        if where is None:
            return
        self.rules = Rules(where, parameters)
        if not self.rules.settings():
            self.rules = None
            return
        listed, most = self.every(), DRAWN_BY_FUNCTIONS if self.rules.functions else DRAWN
        if listed is not None and len(listed) > most:
            listed = None
        found, missed, margins, tried = [np.zeros((0, self.dimension))], [], [], 0
        while not tried or (listed is None and tried < most and sum(map(len, found)) < KEPT):
            X = self._drawn(tried) if listed is None else listed
            legal = self.legal(X)
            found.append(X[legal])
            missed.append(X[~legal])
            margins.append(self.rules.held(missed[-1], self.there(missed[-1]))[1])
            tried += len(X)
        legal_points, rng = np.concatenate(found), np.random.default_rng(0)
        some = rng.choice(len(legal_points), min(KEPT, len(legal_points)), replace=False)
        self.known: Array = legal_points[np.sort(some)]
        self.share = len(legal_points) / tried  # of points that are legal: exact where they are listed
        by = np.concatenate(margins)
        sizes = [float(np.median(part)) if len(part) else 1.0 for m in np.abs(by).T for part in [m[m < UNKNOWN]]]
        self._sizes: Array = np.array([size or 1.0 for size in sizes])  # of the margins of each text
        if not len(self.known):
            points, nearest = np.concatenate(missed), np.argsort(self._lacking(by), kind="stable")[:NEAR]
            self.known = points[nearest] if listed is not None else self._approached(points[nearest])
            if not self.legal(self.known[:1])[0]:
                raise self._impossible(self.known[0])
        if listed is not None or len(legal_points) >= FEW:
            return
        if self.rules.equates:
            raise InvalidInput(
                f"{self.rules.said()} held at {len(legal_points)} of {tried:,} points: an equality of numbers leaves "
                "next to nothing; leave out the parameter that follows from the others, and for shares of a total take "
                "ms.Mixture"
            )
        self._explore(rng)

    def _drawn(self, tried: int) -> Array:
        """More points to try, all over the region; its faces come first."""
        if not tried:
            return self.from_unit(search.cover_with_faces(self._units, 1024, [0]))
        return self.from_unit(search.sobol(self._units, min(max(1024, tried), AT_ONCE), [tried]))

    def _explore(self, rng: np.random.Generator) -> None:
        """Walk from the few legal points that are known to others, until these spread no further."""
        assert self.rules is not None
        rounds, walkers = (EXPLORED, KEPT) if not self.rules.functions else (EXPLORED // 8, KEPT // 8)
        reach, still = 0.0, 0
        for _ in range(rounds):
            self.known = search.distinct(np.concatenate([self.known, self._walked(walkers, rng)])).points
            self.known = self.known[np.sort(rng.choice(len(self.known), min(KEPT, len(self.known)), replace=False))]
            before, reach = reach, float(np.ptp(self.encode(self.known), axis=0).sum())
            still = still + 1 if reach < 1.02 * before else 0
            if still > 2:
                return

    def _lacking(self, margins: Array) -> Array:
        """How far points are from legal."""
        return np.asarray(np.maximum(-margins / self._sizes, 0.0).sum(axis=1))

    def _approached(self, X: Array) -> Array:
        """Points nearer to where the rules hold, the nearest first; as soon as some are legal, these."""
        assert self.rules is not None
        rng = np.random.default_rng(0)
        for _ in range(ROUNDS):
            tries = self.decode(self._near(self.encode(X), rng, TRIED, 6.0))
            X = search.distinct(np.concatenate([X, tries])).points
            holds, margins = self.rules.held(X, self.there(X))
            if holds.any() and len(legal := X[self.legal(X)]):
                return legal
            X = X[np.argsort(self._lacking(margins), kind="stable")[:NEAR]]
        return X

    def _impossible(self, x: Array) -> InvalidInput:
        assert self.rules is not None
        said, point = self.rules.said(), self.as_seen(x)
        if self.rules.functions and self.rules.held(x[None, :], self.there(x[None, :]))[0][0]:
            return InvalidInput(f"no point was found at which {said} holds; {shown(point)} is one at which it does not")
        lacking = -self.rules.held(x[None, :], self.there(x[None, :]))[1][0]
        worst = int(lacking.argmax())
        return InvalidInput(
            f"no point was found at which {said} holds; nearest is {shown(point)}, where "
            f"{shown(self.rules.texts[worst])} fails by {lacking[worst]:g}; widen the bounds or relax the rule"
        )

    # -- points for searches ---------------------------------------------------------------------------------------

    def _legal_from(self, cover: Callable[[int, int, Any], Array], count: int, seed: Any) -> Array:
        """About `count` legal points: those of a cover of the unit cube, where they are not rare, and of a walk."""
        X, rng = np.zeros((0, self.dimension)), np.random.default_rng([*np.atleast_1d(seed).tolist(), 7])
        if self.share >= RARE:
            X = self.from_unit(cover(self._units, int(count / self.share), seed))
            X = search.distinct(X[self.legal(X)]).points
        if len(X) > count:
            return self.encode(X[np.sort(rng.choice(len(X), count, replace=False))])
        return self.encode(np.concatenate([X, self._walked(count - len(X), rng)]))

    def _walked(self, count: int, rng: np.random.Generator) -> Array:
        """Legal points by a random walk from known ones."""
        K = self.encode(self.known)
        U, spread = K[rng.integers(len(K), size=count)], np.maximum(K.std(axis=0), 0.05)
        for turn in range(WALK):
            sizes = 10.0 ** -rng.uniform(0.0, 2.5, (len(U), 1))
            steps = sizes * spread * rng.standard_normal(U.shape)
            if turn % 2:  # along the differences of two known points: a thin region is followed lengthwise
                pairs = K[rng.integers(len(K), size=(2, len(U)))]
                steps = 4.0 * sizes * (pairs[0] - pairs[1])
            V, inside = self.moved(U, steps, rng)
            U[inside] = V[inside]
        return self.decode(U)

    def spread(self, count: int, seed: Any) -> Array:
        """About `count` points all over the region and its ends."""
        if self.rules is None:
            return self._coded(search.cover_with_faces(self._units, count, seed), distinct=True)
        return self._legal_from(search.cover_with_faces, count, seed)

    def uniform(self, count: int, seed: Any) -> Array:
        """Uniform points, on the scales of the parameters; those without floats may repeat."""
        if self.rules is None:
            return self._coded(search.sobol(self._units, count, seed))
        return self._legal_from(search.sobol, count, seed)

    def draw(self, rng: np.random.Generator) -> Array:
        """A uniform point, in user units, shape (1, d)."""
        if self.rules is None:
            return self.from_unit(rng.random((1, self._units)))
        if self.share >= RARE:
            X = self.from_unit(rng.random((ATTEMPTS, self._units)))
            legal = np.flatnonzero(self.legal(X))
            if len(legal):
                return X[legal[:1]]
        return self._walked(1, rng)

    def around(self, U: Array, rng: np.random.Generator, count: int, *, finest: float = search.FINEST) -> Array:
        """For each row `count` points around it; the row itself for those that would be illegal."""
        V = self._near(U, rng, count, finest)
        if self.rules is None:
            return V
        return np.where(self.legal(self.decode(V))[:, None], V, np.repeat(U, count, axis=0))

    def moved(self, U: Array, steps: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        """The rows after these steps, and which of them are still legal."""
        V, inside = self._stepped(U, steps, rng)
        if self.rules is not None:
            rows = np.flatnonzero(inside)
            inside[rows] = self.legal(self.decode(V[rows]))
        return V, inside

    def neighbours(self, U: Array) -> tuple[Array, NDArray[np.intp]]:
        """Legal points with something changed that cannot be climbed, and the row of each."""
        V, rows = self._others(U)
        if self.rules is None or not len(V):
            return V, rows
        legal = self.legal(self.decode(V))
        return V[legal], rows[legal]

    def covered(self, n: int, seed: int) -> Array:
        """About n points in user units, for a list of candidates."""
        n = whole("n", n, at_least=1, at_most=MOST_NUMBERS // self.dimension)
        return self.decode(self.uniform(n, seeded(seed)))
