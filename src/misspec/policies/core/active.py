"""The phased policy's active set D_e: on a Finite domain a list of arms, on a box or a space what the level sets of all
complete episodes have in common.

    D_{e+1} = {x ∈ D_e : upper_e(x) ≥ threshold_e},   threshold_e = max over D_e of lower_e       (Algorithm 2, line 9)

Law: an active set only shrinks, and is never empty.

*Level sets.* Each complete episode leaves its bands and its threshold, so that membership of any point can be tested.
The threshold is the best lower end that a search inside D_e finds: one that misses the maximum keeps more, never less.
The point it was found at, the *anchor*, stays in, whatever rounding does, so that no D_e is empty.

Maxima over D_e are sought among known members and by steps from the best of them that never leave the set. Known
members are the anchor, points asked before, and a sample: Sobol' points of the box as long as enough of them are in,
then a random walk (symmetric steps, those that leave are not taken), which leaves the uniform law on D_e invariant.
Sets too small for that are reached through larger ones, {upper ≥ cut} with rising cuts, a tenth of the sample at a
time (subset simulation: Au & Beck, 2001); the product of the fractions that survive estimates the volume.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec import kernels, search
from misspec.domains import Box, Finite, Space
from misspec.errors import Array, InvalidInput
from misspec.model import Model
from misspec.policies.core.answers import Band, frozen
from misspec.policies.core.points import Actions, Place, nearest_point
from misspec.posterior import Posterior, Tracked
from misspec.theory import own_bands, widths
from misspec.theory.own_bands import OwnBands
from misspec.theory.widths import Width


class Spending(NamedTuple):
    """A width, and δ over this many episodes."""

    width: Width
    episodes: int  # E
    delta: float

    def multiplier(self, posterior: Posterior) -> float:
        return widths.multiplier(self.width, posterior.model, posterior.log_det, self.delta / self.episodes)


class ArmBands:
    """μ ± w of a complete episode over all candidates, clipped to own bands where grounded; as if the model were
    right."""

    def __init__(self, posterior: Tracked, half: Array, own: OwnBands | None) -> None:
        self.posterior, self.half, self.own = posterior, half, own
        self.lower, self.upper = posterior.mean - half, posterior.mean + half

    def intersect(self, earlier: ArmBands) -> None:
        """Stay within earlier bands. Where the two do not meet, the model is wrong by more than they allow for, and
        the newest stand alone."""
        self.lower, self.upper = own_bands.ground(earlier.lower, earlier.upper, self.lower, self.upper)

    def keep(self, earlier: ArmBands, active: NDArray[np.intp]) -> None:
        """Leave eliminated candidates the bands of the last episode in which they were active.

        "nonadaptive" unites over the |D_e| active points only: elsewhere its newest bands hold at no stated level.
        """
        lower, upper = earlier.lower.copy(), earlier.upper.copy()
        lower[active], upper[active] = self.lower[active], self.upper[active]
        self.lower, self.upper = lower, upper

    def band(self, actions: Actions, *, reported: bool) -> Band:
        """Lower and upper ends; reported: the model's within what its class allows."""
        p, lower, upper = self.posterior, self.lower, self.upper
        if reported:
            lower, upper = own_bands.within_class(lower, upper, p.model, p.prior)
        if self.own is not None:
            lower, upper = own_bands.clip(lower, upper, self.own.lower, self.own.upper)
        rows = self.posterior.domain.indices(actions.points) if actions.rows is None else actions.rows
        if actions.rows is None and (np.asarray(rows) < 0).any():
            raise InvalidInput("the phased policy has bands on its candidates only; hand in indices or candidates")
        return Band(lower[rows], upper[rows])

    def widths(self, active: Any, points: Any) -> Array:  # noqa: ARG002  # of all that was active
        """Widths that `history` keeps."""
        return np.asarray(self.half[active])


class Arms:
    """D_e of a Finite domain: the indices of the candidates that are left. Ties go to the lowest.

    bands     of the last complete episode; the prior's before the first
    members   the active ones; on a box, a sample of points in user units
    """

    bands: ArmBands

    def __init__(self, domain: Finite, model: Model, own: OwnBands | None, place: Callable[[int], Place]) -> None:
        self.domain, self.model, self.own, self.place = domain, model, own, place
        self.members: NDArray[np.intp] = np.arange(len(domain))

    @property
    def volume(self) -> float:
        """The share of the domain that is active, an estimate where it is a sample."""
        return len(self.members) / len(self.domain)

    @property
    def extent(self) -> NDArray[np.intp]:
        """D_e as `history` keeps it."""
        return self.members

    def check_width(self, width: Width | None) -> Width:
        """The default for None; InvalidInput for widths that this set cannot have."""
        return "nonadaptive" if width is None else widths.check_width(width, also=["nonadaptive"])

    def begin(self, multiplier: float) -> None:
        """Before the first episode: the prior's bands."""
        posterior = Tracked(self.model, self.domain)
        self.bands = ArmBands(posterior, multiplier * posterior.std, self.own)

    def design(self) -> Tracked:
        """A posterior without data, to which the points of an episode are told without values."""
        return Tracked(self.model, self.domain, check=False)

    def most_uncertain(self, design: Tracked, slot: int) -> Place:  # noqa: ARG002  # nothing is drawn
        """Line 5: the member with the largest variance."""
        return self.place(int(self.members[design.variance[self.members].argmax()]))

    def take(self, design: Tracked, place: Place) -> None:
        """Line 6: the member is part of the design."""
        design.add(place.code, self.model.offset)

    def points(self, places: Sequence[Place]) -> NDArray[np.intp]:
        """An episode's points as `history` keeps them."""
        return np.array([place.key for place in places])

    def conclude(self, design: Tracked, places: Sequence[Place], y: Array, spending: Spending, intersect: bool) -> None:
        """Line 8: μ and w of this episode alone; intersect: they stay within those of the episodes before."""
        seats = design.rows[self.points(places)]
        design.retell(np.bincount(seats, y) / np.bincount(seats))
        jointly = spending.width == "nonadaptive"
        if jointly:
            half = widths.nonadaptive(
                self.model, design.variance, design.weights_norm2(),
                points=len(self.members), episodes=spending.episodes, delta=spending.delta,
            )  # fmt: skip
        else:
            half = spending.multiplier(design) * design.std
        before, self.bands = self.bands, ArmBands(design, half, self.own)
        if intersect:
            self.bands.intersect(before)
        if jointly:
            self.bands.keep(before, self.members)

    def eliminate(self) -> None:
        """Line 9: keep what has an upper end of at least the best lower end."""
        D = self.members
        lower, upper = self.bands.band(self.contenders(), reported=False)
        self.members = D[upper >= lower.max()]

    def contenders(self) -> Actions:
        """Members among which the best lower and the largest upper end lie: all of them."""
        return Actions(self.domain.points[self.members], self.domain.encoded[self.members], self.members)


# -- boxes and spaces --------------------------------------------------------------------------------------------------


SAMPLE = 2048  # points of the sample when it is new
ENOUGH = 512  # survivors below which the sample is drawn again
MANY = 16384  # Sobol' points that it is made of if enough of them will survive
SHARE, CUTS = 0.1, 24  # least share of a sample that the next cut keeps, and the largest number of cuts
WORTH = 0.5  # share of the largest variance that a member asked before must have to be asked again
WALK = 16  # steps of the random walk
STARTS, STEPS, TRIES = 6, 10, 8  # of the ascent: a step is the best of 8 tries along the slope and 8 around

Inside = Callable[[Array], NDArray[np.bool_]]


@dataclasses.dataclass(frozen=True, eq=False)
class BoxBands:
    """μ ± multiplier·σ anywhere in a box, clipped to the own bands of observed points; as if the model were right."""

    posterior: Posterior
    multiplier: float
    own: OwnBands | None

    def band(self, actions: Actions, *, reported: bool) -> Band:
        prior = kernels.diagonal(self.posterior.model.kernel, actions.encoded) if reported else None
        return self.at(actions.points, prior)

    def widths(self, active: Any, points: Any) -> Array:  # noqa: ARG002  # at the points asked
        return self.multiplier * self.posterior.at(points)[1]

    def at(self, X: Array, prior: Array | None = None) -> Band:
        """Lower and upper ends at the rows of X, user units; with k(x,x), within what the class allows."""
        mean, std = self.posterior.at(X)
        half = self.multiplier * std
        lower, upper = mean - half, mean + half
        if prior is not None:
            lower, upper = own_bands.within_class(lower, upper, self.posterior.model, prior)
        if self.own is not None:
            lower, upper = own_bands.clip(lower, upper, *self.own.at([x.tobytes() for x in X]))
        return Band(lower, upper)

    def slope(self, U: Array, sign: float) -> tuple[Array, Array]:
        """The model's upper (sign = 1) or lower end (−1) and its gradient, in the unit cube."""
        return self.posterior.local(U).end(sign * self.multiplier)


@dataclasses.dataclass(frozen=True, eq=False)
class Level:
    """The level set of a complete episode: {x : upper(x) ≥ threshold}, and the anchor that attains the threshold."""

    bands: BoxBands
    threshold: float
    anchor: Array

    def margin(self, X: Array) -> Array:
        """How far the upper end lies above the threshold: negative outside."""
        return self.bands.at(X).upper - self.threshold


class LevelSets:
    """D_e of a box, the intersection of level sets; the same for the same seed and history. Points are in user units.

    resolution: queries this near to a member asked before, in the kernel's metric, go to that member if its variance
    is about as large; 0 turns it off.
    """

    bands: BoxBands

    def __init__(self, box: Box | Space, model: Model, own: OwnBands | None, seed: int, resolution: float) -> None:
        self.box, self.model, self.own, self.seed, self.resolution = box, model, own, seed, resolution
        self.levels: list[Level] = []
        self.volume = 1.0  # estimated share of the box that is active
        self.sample: Array = box.decode(box.uniform(SAMPLE, [seed, 0]))
        self._asked: dict[bytes, Array] = {}  # members asked so far, in any episode

    def check_width(self, width: Width | None) -> Width:
        if width == "nonadaptive":
            raise InvalidInput('width "nonadaptive" is for finitely many points; take "mixture", or box.cover(n)')
        return "mixture" if width is None else widths.check_width(width)

    def begin(self, multiplier: float) -> None:
        self.bands = BoxBands(Posterior(self.model, self.box), multiplier, self.own)

    @property
    def extent(self) -> float:
        return self.volume

    # -- who is in -------------------------------------------------------------------------------------------

    def contains(self, X: Array, *, levels: int | None = None) -> NDArray[np.bool_]:
        """Which rows of X are active, or were when there were only that many levels."""
        kept = self.box.legal(X)
        for level in self.levels[:levels]:
            rows = np.flatnonzero(kept)
            if len(rows):
                kept[rows] = level.margin(X[rows]) >= 0
            kept |= (level.anchor == X).all(axis=1)
        return kept

    @property
    def members(self) -> NDArray[Any]:
        """Known members: the anchor, the points asked, the sample."""
        anchor = [level.anchor for level in self.levels[-1:]]
        known = {x.tobytes(): x for x in [*anchor, *self._asked.values(), *self.sample]}
        return np.array(list(known.values()))

    def take(self, design: Tracked, place: Place) -> None:
        design.add(place.code, self.model.offset)
        self._asked.setdefault(place.x.tobytes(), place.x)

    def points(self, places: Sequence[Place]) -> Array:
        return np.array([place.x for place in places])

    def conclude(self, design: Tracked, places: Sequence[Place], y: Array, spending: Spending, intersect: bool) -> None:  # noqa: ARG002  # refused
        # the design's candidates are of no use: the episode's posterior is one for the whole box
        posterior = Posterior(self.model, design.domain.box or self.box, check=False)
        posterior.observe(self.points(places), y)
        self.bands = BoxBands(posterior, spending.multiplier(posterior), self.own)

    # -- Algorithm 2, line 9 ---------------------------------------------------------------------------------

    def eliminate(self) -> None:
        """D_{e+1} from D_e and the bands of episode e."""
        # with the own bands as they are now
        then = dataclasses.replace(self.bands, own=None if self.own is None else self.own.copy())
        rng = self._rng(1)
        anchor, threshold = self.best(then, -1.0, rng)
        level = Level(then, threshold, anchor)
        margin = level.margin(self.sample)
        for _ in range(CUTS):
            if np.mean(margin >= 0) >= SHARE:
                break
            cut = min(0.0, float(np.quantile(margin, 1.0 - SHARE)))
            self.volume *= float(np.mean(margin >= cut))
            self.sample = self._walk(self.sample[margin >= cut], rng, lambda X: level.margin(X) >= cut)  # noqa: B023
            margin = level.margin(self.sample)
        kept = self.sample[margin >= 0]
        self.volume *= max(len(kept), 0.5) / len(self.sample)
        self.sample = kept if len(kept) >= ENOUGH else self._renewed(kept, level, rng)
        self.levels.append(level)
        if self._asked:
            active = self.contains(np.array(list(self._asked.values())))
            self._asked = {k: x for (k, x), is_in in zip(self._asked.items(), active.tolist(), strict=True) if is_in}

    def _renewed(self, kept: Array, level: Level, rng: np.random.Generator) -> Array:
        """A new sample of D_{e+1}, when few of the old one are left."""
        if self.volume * MANY >= ENOUGH:
            spread = self.box.decode(self.box.uniform(MANY, [self.seed, len(self.levels) + 1]))
            inside = spread[level.margin(spread) >= 0]
            inside = inside[self.contains(inside)]
            if len(inside) > len(kept):
                self.volume = min(self.volume, len(inside) / len(spread))
                return inside
        return self._walk(kept if len(kept) else level.anchor[None, :], rng, lambda X: level.margin(X) >= 0)

    def _walk(self, seeds: Array, rng: np.random.Generator, inside: Inside) -> Array:
        """Points of D_e that are `inside`, by a random walk from such points; where steps fail, points repeat."""
        U = self.box.encode(seeds)
        spread = np.where(U.std(axis=0) > 0, U.std(axis=0), 0.1)
        X = np.resize(seeds, (SAMPLE, self.box.dimension))
        for _ in range(WALK):
            U = self.box.encode(X)
            steps = 10.0 ** -rng.uniform(0.0, 2.5, (SAMPLE, 1)) * spread * rng.standard_normal(U.shape)
            U, inside_box = self.box.moved(U, steps, rng)
            tried = np.flatnonzero(inside_box)
            V = self.box.decode(U[tried])
            stay = inside(V)
            stay[stay] = self.contains(V[stay])
            X[tried[stay]] = V[stay]
        return X

    # -- maxima over D_e -------------------------------------------------------------------------------------

    def design(self) -> Tracked:
        """A posterior without data that keeps its variance over the known members."""
        return Tracked(self.model, Finite(self.members, box=self.box), check=False)

    def contenders(self) -> Actions:
        points = np.array([self.best(self.bands, sign)[0] for sign in (-1.0, 1.0)])
        return Actions(points, self.box.encode(points), None)

    def most_uncertain(self, design: Tracked, slot: int) -> Place:
        """The member with the largest variance, or one asked before within the resolution of it.

        Not one that this episode knows much better already: no variance exceeds 1/WORTH of that of the point taken, and
        the bounds that rest on the greedy choice hold up to that factor. Else the widths would stop shrinking at the
        multiplier times the resolution.
        """

        def slope(U: Array) -> Array:
            return design.local(U).dvariance

        starts = self._starts(design.domain.points, design.variance)
        x, std = self._ascend(starts, lambda X: design.at(X)[1], slope, self._rng(2, slot))
        if self.resolution and self._asked:
            known = np.array(list(self._asked.values()))
            U, Z = self.box.encode(x[None, :]), self.box.encode(known)
            place, distance = nearest_point(self.model, U, Z, self.box.apart(U, Z))
            z = known[place[0]]
            if distance[0] <= self.resolution and design.at(z[None, :])[1][0] ** 2 >= WORTH * std**2:
                x = z
        x = frozen(x.copy())
        return Place(x, None, None, x.tobytes(), self.box.encode(x[None, :]))

    def best(self, bands: BoxBands, sign: float, rng: np.random.Generator | None = None) -> tuple[Array, float]:
        """The largest upper (sign = 1) or lower end (−1) over D_e as far as it is found, and where."""

        def score(X: Array) -> Array:
            band = bands.at(X)
            return band.upper if sign > 0 else band.lower

        members = self.members
        starts = self._starts(members, score(members))
        U = search.climb(lambda U: bands.slope(U, sign), self.box.encode(starts), 40, 1e6, region=self.box)
        summits = self.box.decode(U)
        starts = np.concatenate([starts, summits[self.contains(summits)]])
        return self._ascend(starts, score, lambda U: bands.slope(U, sign)[1], self._rng(3) if rng is None else rng)

    def _starts(self, points: Array, values: Array) -> Array:
        return points[search.spread_out(self.box.encode(points), values, STARTS)]

    def _ascend(
        self, X: Array, score: Callable[[Array], Array], slope: Callable[[Array], Array], rng: np.random.Generator
    ) -> tuple[Array, float]:
        """The best that steps along the slope, and random ones to follow the set's edge, find without leaving D_e."""
        n = len(X)
        values = score(X)
        sizes = 0.2 * 4.0 ** -np.arange(TRIES)[:, None]
        for _ in range(STEPS):
            U = self.box.encode(X)[:, None, :]
            gradients = np.where(self.box.free, slope(U[:, 0, :]), 0.0)
            largest = np.abs(gradients).max(axis=1, keepdims=True)
            along = U + sizes * (gradients / np.where(largest > 0, largest, 1.0))[:, None, :]
            about = self.box.around(U[:, 0, :], rng, TRIES, finest=4.0).reshape(along.shape)
            both = np.clip(np.concatenate([along, about], axis=1), 0.0, 1.0)
            tries = self.box.decode(both.reshape(-1, both.shape[2]))
            found = score(tries)
            better = np.flatnonzero(found > np.repeat(values, 2 * TRIES))
            inside = better[self.contains(tries[better])]
            if not len(inside):
                break
            reached = np.full(len(found), -np.inf)
            reached[inside] = found[inside]
            best = reached.reshape(n, -1).argmax(axis=1) + np.arange(n) * 2 * TRIES
            X = np.where((reached[best] > values)[:, None], tries[best], X)
            values = np.maximum(values, reached[best])
        row = int(values.argmax())
        return X[row], float(values[row])

    def _rng(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, len(self.levels), *purpose])
