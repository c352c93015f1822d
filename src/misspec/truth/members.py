"""The best member of a model's class for a known truth, and its misspecification as a function of B."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from misspec.domains import Box, Finite, Space, Table
from misspec.errors import Array, InvalidInput, NumericalError, instance, shown, vector
from misspec.files import clutter, frames
from misspec.model import Model, a_model
from misspec.truth.convex import GAP, Program

TRUSTED = 1e-4  # `best_in_class` fails if solution and proof are farther apart than this share of the largest value
SLACK = 1e-6  # members within this factor of the smallest distance count as nearest; the one of least norm is taken


@dataclasses.dataclass(frozen=True, eq=False)
class BestInClass:
    """The member f̃ of the class nearest to f* in the sup norm; if there are several, the one of least norm.

    values    f̃ on the domain
    epsilon   max |f* − f̃|, the misspecification
    norm      ‖f̃ − offset‖ ≤ B
    gap       no member is nearer than epsilon − gap: proved by duality, independently of the solver
    """

    values: Array
    epsilon: float
    norm: float
    gap: float

    def __repr__(self) -> str:
        return f"BestInClass(epsilon={self.epsilon:.6g}, norm={self.norm:.4g}, gap={self.gap:.1g})"


def best_in_class(domain: Finite, model: Model, values: ArrayLike) -> BestInClass:
    """f̃ and ε for the truth `values`, f* on a Finite domain."""
    check_known(domain, model)
    truth = vector("values", values, length=len(domain))
    program = Program(model.kernel, domain.encoded, truth - model.offset, np.zeros(len(truth)))
    nearest = program.interpolant(model.norm_bound) or program.nearest(model.norm_bound)
    if nearest.distance - nearest.proved > TRUSTED * program.scale:
        raise NumericalError(
            f"the nearest member was found only to {nearest.distance - nearest.proved:.1g}; a norm bound that is many "
            "thousand times the values, or a kernel that is not positive semidefinite, can cause that"
        )
    best, room = nearest, SLACK * nearest.distance
    if nearest.distance > GAP * program.scale:
        least = program.least_norm(nearest.distance + room, nearest, min(GAP * program.scale, 0.01 * room))
        best = least if least is not None and least.norm < nearest.norm else nearest
    epsilon = float(np.abs(best.values - program.target).max())
    return BestInClass(best.values + model.offset, epsilon, best.norm, max(0.0, epsilon - nearest.proved))


@dataclasses.dataclass(frozen=True, eq=False)
class Profile:
    """The misspecification ε as a function of the norm bound B. It shows whether a larger class would help."""

    norm_bounds: Array
    epsilons: Array

    def __repr__(self) -> str:
        pairs = zip(self.norm_bounds.tolist(), self.epsilons.tolist(), strict=True)
        return "Profile(" + ", ".join(f"B={B:.3g}: ε={e:.3g}" for B, e in pairs) + ")"


def misspecification_profile(
    domain: Finite, model: Model, values: ArrayLike, norm_bounds: ArrayLike | None = None
) -> Profile:
    """ε for each norm bound; by default from a sixteenth to sixteen times the model's, in factors of two."""
    check_known(domain, model)
    bounds = vector("norm_bounds", model.norm_bound * 2.0 ** np.arange(-4, 5) if norm_bounds is None else norm_bounds)
    models = [dataclasses.replace(model, norm_bound=B) for B in bounds.tolist()]
    return Profile(bounds, np.array([best_in_class(domain, m, values).epsilon for m in models]))


def encoded_by(domain: Any, points: Array) -> Array:
    """The codes of points in user units; InvalidInput for points outside a box, which are in the wrong units."""
    instance("domain", domain, (Finite, Box, Space), "leave it out or make one")
    box = getattr(domain, "box", domain)  # a list's, if it has one
    if box is not None and not box.contains(points).all():
        outside = points[int(np.argmin(box.contains(points)))]
        raise InvalidInput(f"points must lie in {shown(box)}, got {outside}; are they in other units?")
    return np.asarray(domain.encode(points))


def check_known(domain: Any, model: Any) -> None:
    """InvalidInput unless a truth can be known on this domain, and the model works there."""
    instance("domain of a known truth", domain, Finite, "box.grid(n) makes one of a box")
    a_model(model).check(domain)


def of_frame(source: Any, observations: Any) -> tuple[Array, Any, Space]:
    """Points, observations and the space of a frame."""
    frame = frames.read(source)
    target = observations if isinstance(observations, str) else None
    if target is not None:
        frame.column(target)  # says what is wrong
    odd = clutter.untelling({name: cells for name, cells in frame.columns.items() if name != target})
    if odd:
        warnings.warn(clutter.note_left_out(frame.where, odd)[0].partition(";")[0], stacklevel=4)
    table = Table(frame, target, ignore=list(odd))
    space = Space(table.parameters)
    if target is None:
        return table.points, observations, space
    told = table.observations
    return table.points[told.indices], told.y, space
