"""The phased policy's active set D_e on a Finite domain, a list of arms; `level_sets.py` has the one on a box.

Law: an active set only shrinks, and is never empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from misspec.domains import Finite
from misspec.errors import Array, InvalidInput
from misspec.model import Model
from misspec.policies.core.answers import Band
from misspec.policies.core.points import Actions, Place
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
