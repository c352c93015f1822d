"""How wrong is the model? The best member of its class for a known truth, and certificates from data.

    x_1 … x_N   the points; K their Gram matrix, K_W that of the working set W
    f           values (f* or averages ȳ) minus the offset
    r_j         radii: 0 for a known truth, the averages' confidence radii for data
    g           a member of the class, ‖g‖ ≤ B

    best in class, certificate     minimise s      with  |g(x_j) − f_j| ≤ s + r_j,  ‖g‖ ≤ B
    least norm                     minimise ‖g‖    with  |g(x_j) − f_j| ≤ r_j

Both are convex. Few of the constraints bind at the optimum, so they are exchanged: solve on a working set with
Clarabel, bring in the worst violations all over the domain, drop what is slack, repeat. A member that is optimal for a
working set is a combination of the kernel at its points (the representer theorem), so a problem is as large as its
working set, whatever N and whatever the kernel's rank.

Every number is checked independently of the solver: the distance of the member found is computed on all points, and the
multipliers α ≥ 0, Σα = 1, with signs v_j = ±α_j, prove s ≥ −B√(vᵀKv) − Σ(v_jf_j + α_jr_j) by duality.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import confidence, kernels
from misspec.domains import Box, Domain, Finite, Space
from misspec.errors import SMALLEST, Array, InvalidInput, NumericalError, flag, matrix, shown, vector
from misspec.model import Model, a_model

GAP = 1e-8  # between a solution and its proof at which the exchange ends, in units of the largest value
TRUSTED = 1e-4  # and above which best_in_class has no result
SLACK = 1e-6  # among members within this factor of the smallest distance, the one of least norm is taken
ROUNDS = 60  # of exchange, at most
MODERATE = 10.0  # factor on the norm bound up to which a larger one is advised, rather than another kernel
BLOCKS = 80  # parts of the domain; each brings in its worst violation
INDEPENDENT = 1e-14  # residual above which a point of the working set is a direction of its own
ROUNDED = 1e-9  # what rounding may do to a band, in units of the largest value
MOST_WORK = 2e9  # operations up to which the bands of all candidates of a domain are looked at
LEAST_REPEATS = 5  # observations at points observed before, from which the noise is estimated


# -- a known truth -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class BestInClass:
    """The member f̃ of the class that is nearest to f* in the sup norm; of several, the one of least norm.

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
    program = _Program(model.kernel, domain.encoded, truth - model.offset, np.zeros(len(truth)))
    nearest = program.interpolant(model.norm_bound) or program.nearest(model.norm_bound)
    if nearest.distance - nearest.proved > TRUSTED * program.scale:
        raise NumericalError(
            f"the nearest member was found only to {nearest.distance - nearest.proved:.1g}; a norm bound that is many "
            "thousand times the values, or a kernel that is not positive semidefinite, can cause that"
        )
    best = nearest
    if nearest.distance > GAP * program.scale:
        room = SLACK * nearest.distance
        least = program.least_norm(nearest.distance + room, nearest, min(GAP * program.scale, 0.01 * room))
        best = least if least is not None and least.norm < nearest.norm else nearest
    epsilon = float(np.abs(best.values - program.target).max())
    return BestInClass(best.values + model.offset, epsilon, best.norm, max(0.0, epsilon - nearest.proved))


@dataclasses.dataclass(frozen=True, eq=False)
class Profile:
    """The misspecification ε as a function of the norm bound B: how much a larger class would help."""

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
    given = model.norm_bound * 2.0 ** np.arange(-4, 5) if norm_bounds is None else norm_bounds
    bounds = vector("norm_bounds", given)
    models = [dataclasses.replace(model, norm_bound=B) for B in bounds.tolist()]
    return Profile(bounds, np.array([best_in_class(domain, m, values).epsilon for m in models]))


# -- data --------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Diagnosis:
    """What data prove about a model, with probability 1 − δ over their noise.

    epsilon_lower   the model is misspecified by at least this; 0 if the data do not contradict it
    worst_point     the observed point that is hardest to explain
    norm_needed     the smallest norm bound that explains the data without misfit (inf if none that can be computed)
    points          the distinct points observed, in the order of first visits, with
    averages, counts, radii   their average observations, how often each was seen, and the radii allowed
    fitted          the nearest member of the class at them; residuals = averages − fitted
    adaptive        whether the radii hold for points chosen by looking at earlier results
    sentence        all this for people, with what to do
    """

    epsilon_lower: float
    worst_point: Array
    norm_needed: float
    points: Array
    averages: Array
    counts: NDArray[np.intp]
    radii: Array
    fitted: Array
    adaptive: bool
    sentence: str

    @property
    def residuals(self) -> Array:
        return self.averages - self.fitted

    def __repr__(self) -> str:
        return f"Diagnosis(epsilon_lower={self.epsilon_lower:.4g}, norm_needed={self.norm_needed:.4g})"

    def __str__(self) -> str:
        return self.sentence


def diagnose(
    points: ArrayLike,
    observations: ArrayLike,
    model: Model,
    *,
    domain: Domain | None = None,
    fixed_design: bool = False,
    time_order: bool = False,
    groups: ArrayLike | None = None,
) -> Diagnosis:
    """How wrong the model is at least, from observations gathered in any way: the larger of two certificates.

    Own bands against the class: no member passes through all averages within their radii. And bands against each other:
    the posterior's band for f̃ does not meet an own band, or what the class allows at all. Each has half of δ.

    Valid for adaptively gathered data: the radii are those of the own bands, which hold at all times and for points
    chosen by looking at earlier results, in whatever order the rows come. time_order: rows come in the order in which
    they were observed, not in one made from the results; points seen early then have somewhat smaller radii.
    fixed_design: the points were fixed before any result was seen; the radii are then σ√(2 ln(4u/δ)/n_j) for u distinct
    points, which are smaller. Observations at equal points (to the bit) are averaged. All rows that there are must be
    handed in: a set chosen by its results proves nothing. The noise level σ is taken as known; if it is too small,
    noise looks like misfit.

    Points are taken as the kernel will see them. For a Box or its grid, whose kernels see the unit cube, hand in
    `domain=` with points in user units.

    groups: a number per observation, where points leave something out; only observations of one group are repeats.
    Equal points of different groups are then different arms, which no function of the class can tell apart.
    """
    X = matrix("points", points, rows_at_least=1)
    y = vector("observations", observations, length=len(X))
    adaptive = not flag("fixed_design", fixed_design)
    place = _places(X if groups is None else np.column_stack([X, vector("groups", groups, length=len(X))]))
    counts = np.bincount(place)
    averages = np.bincount(place, y) / counts
    distinct = X[np.unique(place, return_index=True)[1]]
    encoded = distinct if domain is None else _encode(domain, distinct)
    check_known(Finite(encoded), model)
    u, delta = len(counts), model.delta / 2
    seats = range(1, u + 1) if flag("time_order", time_order) else [u] * u
    radii = (
        np.array([confidence.own_radius(model.noise, int(n), j, delta) for j, n in zip(seats, counts, strict=True)])
        if adaptive
        else model.noise * np.sqrt(2.0 * math.log(2.0 * u / delta) / counts)
    )
    program = _Program(model.kernel, encoded, averages - model.offset, radii)
    nearest = program.nearest(model.norm_bound)
    needed = program.least_norm(0.0, nearest, max(GAP * program.scale, 1e-3 * float(radii.min())))
    norms = [nearest.norm] if nearest.distance <= 0.0 else []  # the nearest member is an explanation itself
    norms += [needed.norm] if needed is not None else []
    by_class = nearest.proved if nearest.proved > GAP * program.scale else 0.0
    own, told = Bands(encoded, averages, radii), Averages(encoded, averages, counts)
    also = None if domain is None else domain.probes()
    also = None if also is None or len(also) * u**2 > MOST_WORK else also
    by_bands, _ = certificate_of_bands(model, own, told, delta=delta, also=also)
    worst = int((np.abs(nearest.values - program.target) - radii).argmax())
    if by_bands[:u].max() > by_class:
        worst = int(by_bands[:u].argmax())
    found = Diagnosis(
        epsilon_lower=float(max(by_class, by_bands.max())),
        worst_point=distinct[worst],
        norm_needed=min(norms, default=math.inf),
        points=distinct,
        averages=averages,
        counts=counts,
        radii=radii,
        fitted=nearest.values + model.offset,
        adaptive=adaptive,
        sentence="",
    )
    sentence = _sentence(found, model, float(found.residuals[worst]), _spelled(found.worst_point, domain))
    return dataclasses.replace(found, sentence=sentence)


class Bands(NamedTuple):
    """Own bands: points as the kernel sees them, averages and radii."""

    encoded: Array
    averages: Array
    radii: Array


class Averages(NamedTuple):
    """Observations at distinct points as the kernel sees them: their averages and counts."""

    encoded: Array
    averages: Array
    counts: NDArray[np.intp]

    @classmethod
    def of(cls, encoded: Array, y: Array) -> Averages:
        """From single observations."""
        place = _places(encoded)
        counts = np.bincount(place)
        first = np.unique(place, return_index=True)[1]
        return cls(encoded[first], np.bincount(place, y) / np.maximum(counts, 1), counts)


def certificate_of_bands(
    model: Model, own: Bands, told: Averages, *, delta: float, also: Array | None = None
) -> tuple[Array, Array]:
    """For each point, the misspecification proved by bands that do not meet there, and by how much ε moves them.

    The posterior of what is told puts f̃(x) into μ ± (multiplier·σ + ε‖ζ‖₁), uniformly over x and whatever the choice of
    points. Where that does not meet the own band of x, or what the class allows at all, ε is at least

        dist/(1 + ‖ζ(x)‖₁ − 2W_x(x))     against the own band, W_x the point's own weight
        dist/‖ζ(x)‖₁                     against offset ± B√k(x,x)

    with the distances at ε = 0. Points are those of the own bands, and then others where only the class is compared.
    """
    from scipy.linalg import cho_factor, cho_solve

    if not len(told.counts):
        return np.zeros(len(own.averages) + (0 if also is None else len(also))), np.ones(1)
    X = own.encoded if also is None else np.concatenate([own.encoded, also])
    ridge = model.regularization / told.counts
    K, k = (kernels.cross(model.kernel, told.encoded, Z) for Z in (told.encoded, X))
    try:
        factor = cho_factor(K + np.diag(ridge), lower=True)
    except np.linalg.LinAlgError as error:
        raise NumericalError(
            f"regularization (λ = {model.regularization:g}) is lost in rounding beside the kernel: {error}; raise it"
        ) from error
    log_det = 2.0 * float(np.log(np.diag(factor[0])).sum()) - float(np.log(ridge).sum())
    W = cho_solve(factor, k)  # column j: the weights at X_j
    mean, norm1, prior = (told.averages - model.offset) @ W, np.abs(W).sum(axis=0), kernels.diagonal(model.kernel, X)
    std = np.sqrt(np.maximum(prior - np.einsum("ij,ij->j", k, W), 0.0))
    rounding = ROUNDED * max(1.0, float(np.abs(told.averages - model.offset).max()))
    half = confidence.mixture(model, log_det, delta) * std + rounding
    proved = (np.abs(mean) - model.norm_bound * np.sqrt(prior) - half) / np.maximum(norm1, ROUNDED)
    reach = norm1.copy()
    seats: dict[bytes, list[int]] = {}
    for i, x in enumerate(told.encoded):
        seats.setdefault(x.tobytes(), []).append(i)
    for j, x in enumerate(own.encoded):
        # of several arms at a point (`groups`) each has a misfit of its own: the smallest weight proves the least
        weight = min((W[i, j] for i in seats.get(x.tobytes(), [])), default=0.0)
        moved = max(1.0 + norm1[j] - 2.0 * weight, ROUNDED)
        by_own = (abs(own.averages[j] - model.offset - mean[j]) - own.radii[j] - half[j]) / moved
        if by_own > proved[j]:
            proved[j], reach[j] = by_own, moved
    return np.maximum(proved, 0.0), reach


def contradictions(
    model: Model, own: Bands, told: Averages, *, delta: float, epsilon: float, also: Array | None = None
) -> list[tuple[int, float, float]]:
    """Where observations prove more misspecification than ε: point, gap, and what is proved. Empty if they do not.

    The larger of two certificates, as in `diagnose`: own bands against the class, and bands against each other.
    """
    proved, reach = certificate_of_bands(model, own, told, delta=delta, also=also)
    apart = np.flatnonzero(proved > epsilon)
    found = {int(i): (float((proved[i] - epsilon) * reach[i]), float(proved[i])) for i in apart}
    program = _Program(model.kernel, own.encoded, own.averages - model.offset, own.radii)
    if not program.explained(model.norm_bound, epsilon):
        with contextlib.suppress(NumericalError):  # a solver that finds nothing proves nothing
            nearest = program.nearest(model.norm_bound)
            if nearest.proved > epsilon + GAP * program.scale:
                worst = int((np.abs(nearest.values - program.target) - own.radii).argmax())
                gap, implied = found.get(worst, (0.0, 0.0))
                found[worst] = (max(gap, nearest.proved - epsilon), max(implied, nearest.proved))
    return [(i, float(gap), float(implied)) for i, (gap, implied) in sorted(found.items())]


def noise_from_repeats(points: ArrayLike, observations: ArrayLike) -> float:
    """σ as the pooled standard deviation of observations at equal points (to the bit), whatever f* is there.

    An estimate, not a bound: what is proved with it holds as far as it does. Needs five repetitions in all.
    """
    X = matrix("points", points, rows_at_least=1)
    y = vector("observations", observations, length=len(X))
    place = _places(X)
    counts = np.bincount(place)
    freedom = int((counts - 1).sum())
    if freedom < LEAST_REPEATS:
        raise InvalidInput(
            f"an estimate of the noise needs at least {LEAST_REPEATS} observations at points that were observed "
            f"before, got {freedom}; say what the noise is instead, or repeat some points"
        )
    averages = np.bincount(place, y) / counts
    return math.sqrt(float(((y - averages[place]) ** 2).sum()) / freedom)


def _places(X: Array) -> NDArray[np.intp]:
    """Equal rows get equal numbers, in the order of first visits."""
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(row.tobytes(), len(seen)) for row in X], dtype=np.intp)


def _spelled(point: Array, domain: Any) -> str:
    """A point in words: by name, where its coordinates have names."""
    space = domain.box if isinstance(domain, Finite) else domain
    if not isinstance(space, Space):
        return np.array2string(point, precision=4, separator=", ")
    values = space.params(point).items()
    return ", ".join(
        f"{name} = {value:.6g}" if isinstance(value, float) else f"{name} = {value}" for name, value in values
    )


def _sentence(found: Diagnosis, model: Model, residual: float, where: str) -> str:
    u, repeated = len(found.points), int((found.counts > 1).sum())
    seen = f"{int(found.counts.sum())} observations at {u} distinct points, {repeated} of them repeated"
    if found.epsilon_lower <= 0.0:
        passes = f"a function of norm {found.norm_needed:.3g} (the model allows {model.norm_bound:g}) passes"
        if found.norm_needed > model.norm_bound:  # between what is proved and what was found
            passes = "as far as can be computed a function of the class passes"
        return (
            f"The data do not contradict the model: {passes} within the noise of every point. That is no proof that "
            f"the model is right: {seen}; more at the same points make the test sharper."
        )
    how = (
        "also if the points were chosen by looking at results" if found.adaptive else "if the points were fixed before"
    )
    doubt = f"if the noise is at most {model.noise:g}" + (" and although the model was fitted" if model.fitted else "")
    side = "above" if residual > 0 else "below"
    return (
        f"The model is wrong by at least {found.epsilon_lower:.3g} with probability at least {1 - model.delta:g} "
        f"({how}, {doubt}; {seen}). Hardest to explain is {where}, observed {abs(residual):.3g} {side} the nearest "
        f"function of the class. {_suspicion(found, model)}Either allow for it, ECGPUCB with an epsilon above "
        f"{found.epsilon_lower:.3g} (or RegretBalancing, which needs none), or change the model: "
        f"{_remedy(found, model)}."
    )


def _remedy(found: Diagnosis, model: Model) -> str:
    needed = found.norm_needed
    if not math.isfinite(needed):
        return "no norm bound that can be computed explains the data with this kernel, take another"
    if needed <= MODERATE * model.norm_bound:
        return f"a norm bound of {needed:.3g} instead of {model.norm_bound:g} would explain all of it"
    return f"a rougher kernel or a shorter length scale (this one would need a norm bound of {needed:.2g})"


def _suspicion(found: Diagnosis, model: Model) -> str:
    """Mistakes of set-up that look like misfit."""
    level = float(np.average(found.averages, weights=found.counts))
    if abs(level - model.offset) > model.norm_bound:
        return f"The observations average {level:.3g} but the model's offset is {model.offset:g}: set it first. "
    return ""


def _encode(domain: Any, points: Array) -> Array:
    """Points in user units as the kernel sees them; those outside a box are a mistake in units."""
    if not isinstance(domain, Finite | Box | Space):
        raise InvalidInput(f"domain must be a Finite or a Box, got {type(domain).__name__}; leave it out or make one")
    box = domain.box if isinstance(domain, Finite) else domain
    if box is not None and not box.contains(points).all():
        outside = points[int(np.argmin(box.contains(points)))]
        raise InvalidInput(f"points must lie in {shown(box)}, got {outside}; are they in other units?")
    return domain.encode(points)


def check_known(domain: Any, model: Any) -> None:
    """InvalidInput unless a truth can be known on this domain, and the model works there."""
    if not isinstance(domain, Finite):
        given = shown(domain) if isinstance(domain, Box | Space) else type(domain).__name__
        raise InvalidInput(f"a known truth needs a Finite domain, got {given}; box.grid(n) makes one of a box")
    a_model(model).check(domain)


# -- the convex programs -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class _Member:
    """A member g: its values, its norm, max(|g − f| − r), a proved lower bound on the least such, its working set."""

    values: Array
    norm: float
    distance: float
    proved: float
    rows: NDArray[np.intp]


class _Program:
    """The constraints |g(x_j) − f_j| ≤ s + r_j. Row 2j is the upper one, g − f ≤ s + r, row 2j + 1 the lower."""

    def __init__(self, kernel: Any, X: Array, target: Array, radii: Array) -> None:
        self.kernel, self.X, self.target, self.radii = kernel, X, target, radii
        largest = float(np.abs(target).max())
        self.scale = largest if largest >= SMALLEST else 1.0
        self.size = float(kernels.diagonal(kernel, X).max()) or 1.0  # of k(x,x): tolerances are relative to it
        centres = np.unique(np.linspace(0, len(X) - 1, min(len(X), BLOCKS)).astype(np.intp))
        block = kernels.cross(kernel, X, X[centres]).argmax(axis=1)
        order = np.argsort(block, kind="stable")
        self._blocks = np.split(order, np.flatnonzero(np.diff(block[order])) + 1)
        self._start = np.unique(self._worst(np.concatenate([-target, target]) - np.tile(radii, 2)))

    def interpolant(self, norm_bound: float) -> _Member | None:
        """f itself, if it is a member: then nothing has to be solved."""
        Phi, _ = kernels.pivoted(self.kernel, self.X, INDEPENDENT * self.size, most=1000)
        w = np.linalg.lstsq(Phi, self.target, rcond=None)[0]
        norm = float(np.linalg.norm(w))
        values = Phi @ (w * min(1.0, norm_bound / max(norm, 1e-300)))
        distance = float(np.abs(values - self.target).max())
        none = np.empty(0, dtype=np.intp)
        return _Member(values, min(norm, norm_bound), distance, 0.0, none) if distance <= GAP * self.scale else None

    def explained(self, norm_bound: float, slack: float) -> bool:
        """Whether a ridge regression is a member within r + slack of all values: then nothing has to be solved."""
        from scipy.linalg import LinAlgError, solve

        K = kernels.cross(self.kernel, self.X, self.X)
        for factor in (1.0, 0.1, 10.0, 0.01):
            ridge = factor * (self.radii / norm_bound) ** 2 + 1e-9 * self.size
            try:
                alpha = solve(K + np.diag(ridge), self.target, assume_a="pos", check_finite=False)
            except LinAlgError:
                continue
            values = K @ alpha
            fits = bool((np.abs(values - self.target) <= self.radii + slack).all())
            if fits and float(alpha @ values) <= norm_bound**2:
                return True
        return False

    def nearest(self, norm_bound: float) -> _Member:
        """The member of norm at most B whose largest excess over the radii is smallest."""
        best: _Member | None = None
        rows, proved = self._start, -math.inf
        for _ in range(ROUNDS):
            i, side = self._read(rows)
            try:
                values, norm, multipliers = self._solve(rows, self.radii[i], norm_bound)
            except NumericalError:
                if best is None:
                    raise
                break  # what was proved before stands
            factor = min(1.0, norm_bound / max(norm, 1e-300))  # the solver may exceed the bound by a rounding error
            excess = self._excess(values * factor)
            alpha = np.maximum(multipliers, 0.0)
            alpha = alpha / alpha.sum()
            v = alpha * side
            bound = self._proved(i, v, norm_bound)
            if best is None or excess.max() < best.distance:
                best = _Member(values * factor, norm * factor, float(excess.max()), bound, rows)
            rising, proved = bound > proved + GAP * self.scale, max(proved, bound)
            new = self._violated(excess, proved + GAP * self.scale, rows)
            if best.distance <= proved + GAP * self.scale or not len(new):
                break
            if rising:  # dropping is safe while the bound rises: no working set comes back
                slack = float(excess[self._flat(rows)].max()) - excess[self._flat(rows)]
                rows = rows[(multipliers > 1e-9) | (slack < 0.1 * self.scale)]
            rows = np.union1d(rows, new)
        assert best is not None
        return dataclasses.replace(best, proved=proved)

    def _proved(self, i: NDArray[np.intp], v: Array, norm_bound: float) -> float:
        """−B√(vᵀKv) − Σ(v_jf_j + |v_j|r_j), less what rounding can have done to it: a lower bound on every distance."""
        rounding = (8.0 + math.sqrt(len(i))) * np.finfo(float).eps
        square = max(0.0, float(v @ kernels.cross(self.kernel, self.X[i], self.X[i]) @ v)) + rounding * self.size
        linear = float(v @ self.target[i] + np.abs(v) @ self.radii[i])
        return -norm_bound * math.sqrt(square) - linear - rounding * (self.scale + float(self.radii[i].max()))

    def least_norm(self, slack: float, start: _Member, tolerance: float) -> _Member | None:
        """The member of least norm, of any size, with |g − f| ≤ r + slack; None if there is none to be found."""
        rows, limits = start.rows, self.radii + slack
        for _ in range(ROUNDS):
            i, _ = self._read(rows)
            try:
                values, norm, _ = self._solve(rows, limits[i], None)
            except NumericalError:
                return None
            excess = self._excess(values)
            if excess.max() <= slack + tolerance:
                return _Member(values, norm, float(excess.max()), -math.inf, rows)
            new = self._violated(excess, slack + 0.5 * tolerance, rows)
            if not len(new):
                break
            rows = np.union1d(rows, new)
        return None

    def _read(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], Array]:
        """Points and sides of rows: side·(g − f) ≤ s + r."""
        return rows // 2, np.where(rows % 2 == 0, 1.0, -1.0)

    def _flat(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Places of rows in an array of all upper, then all lower constraints."""
        return np.asarray(rows // 2 + len(self.X) * (rows % 2))

    def _excess(self, values: Array) -> Array:
        error = values - self.target
        return np.concatenate([error - self.radii, -error - self.radii])

    def _violated(self, excess: Array, level: float, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Rows to bring in: all that are violated if these are few, else the worst of each block."""
        flat = np.flatnonzero(excess > level)
        if len(flat) > max(2 * BLOCKS, len(rows) // 2):
            worst = self._worst(excess)
            return np.setdiff1d(worst[excess[self._flat(worst)] > level], rows)
        N = len(self.X)
        return np.setdiff1d(2 * (flat % N) + flat // N, rows)

    def _worst(self, excess: Array) -> NDArray[np.intp]:
        """The row of largest excess in each block, above and below."""
        upper, lower = np.split(excess, 2)
        above = [2 * int(block[upper[block].argmax()]) for block in self._blocks]
        below = [2 * int(block[lower[block].argmax()]) + 1 for block in self._blocks]
        return np.array([*above, *below], dtype=np.intp)

    def _solve(self, rows: NDArray[np.intp], limits: Array, norm_bound: float | None) -> tuple[Array, float, Array]:
        """On a working set: with a bound, minimise s, else ½‖w‖². The member on all points, its norm, multipliers."""
        import clarabel
        from scipy import linalg, sparse

        i, side = self._read(rows)
        distinct, where = np.unique(i, return_inverse=True)
        Phi, pivots = kernels.pivoted(self.kernel, self.X[distinct], INDEPENDENT * self.size)
        n, r, root = len(rows), Phi.shape[1], math.sqrt(self.size)
        A = side[:, None] * Phi[where] / root
        b = (side * self.target[i] + limits) / self.scale
        settings = clarabel.DefaultSettings()
        settings.verbose, settings.max_threads = False, 1
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
        # features of smooth kernels span seven orders of magnitude: the default regularisation would swamp small ones
        settings.static_regularization_constant, settings.iterative_refinement_max_iter = 1e-12, 50
        if norm_bound is None:
            problem = (sparse.identity(r, format="csc"), np.zeros(r), sparse.csc_matrix(A), b)
            cones = [clarabel.NonnegativeConeT(n)]
        else:
            cone = np.vstack([np.zeros((1, r + 1)), -np.eye(r, r + 1)])
            A = np.vstack([np.hstack([A, -np.ones((n, 1))]), cone])
            b = np.concatenate([b, [norm_bound * root / self.scale], np.zeros(r)])
            problem = (sparse.csc_matrix((r + 1, r + 1)), np.eye(r + 1)[r], sparse.csc_matrix(A), b)
            cones = [clarabel.NonnegativeConeT(n), clarabel.SecondOrderConeT(r + 1)]
        solution = clarabel.DefaultSolver(*problem, cones, settings).solve()
        status = str(solution.status)
        if status not in ("Solved", "AlmostSolved", "InsufficientProgress", "MaxIterations"):
            raise NumericalError(
                f"the convex program ended with {status}; rescale the values and the norm bound to the order of one"
            )
        w = np.array(solution.x)[:r] * (self.scale / root)
        weights = linalg.solve_triangular(Phi[pivots], w, lower=True, trans="T") if r else w
        values = kernels.cross(self.kernel, self.X, self.X[distinct[pivots]]) @ weights
        return values, float(np.linalg.norm(w)), np.array(solution.z)[:n]
