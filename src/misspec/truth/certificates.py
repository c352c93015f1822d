"""Certificates from data: proved lower bounds on a model's misspecification."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve

from misspec import kernels, markup, search
from misspec.domains import Domain, Finite
from misspec.errors import Array, InvalidInput, NumericalError, flag, matrix, vector
from misspec.files import frames
from misspec.model import Model
from misspec.theory import own_bands, widths
from misspec.truth.convex import GAP, Program
from misspec.truth.energy import energy
from misspec.truth.members import check_known, encoded_by, of_frame

ROUNDING = 1e-9  # allowance for rounding of a band, in units of the largest value
MOST_WORK = 2e9  # most operations that are spent on the bands of all candidates
MOST_DISTINCT = 2000  # `diagnose` uses all distinct points up to this number
SHARPEST = 400  # of more points it uses this many, so that several norm bounds take less than a minute
PARTS = 3  # certificates that share δ
LEAST_REPEATS = 5  # fewest degrees of freedom for an estimate of the noise


class Certificate(NamedTuple):
    """One proof that ε is at least `epsilon` (0: it proves nothing), at the share `delta` of δ.

    kind       "class", "bands" or "energy", as in `diagnose`
    share      of the results that carry it: 1 where all are equally far off, 1/n where one is
    sentence   what it says, for people
    """

    kind: str
    epsilon: float
    delta: float
    share: float
    sentence: str


@dataclasses.dataclass(frozen=True, eq=False)
class Diagnosis:
    """Facts about a model that data prove, with probability 1 − δ over their noise.

    epsilon_lower   a lower bound on the model's misspecification, the largest of `certificates`; 0 if the data do not
                    contradict it
    certificates    each with a third of δ
    worst_point     the observed point that is hardest to explain
    norm_needed     the smallest norm bound that explains the data without misfit; inf if none was found
    points          the distinct points used (all, or 400 of more than 2,000), in the order of first visits
    averages, counts, radii   the average, number and confidence radius of the observations at each of them
    fitted          the nearest member of the class at them; residuals = averages − fitted
    adaptive        whether the radii hold for points chosen by looking at earlier results
    sentence        a summary for people, with advice
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
    certificates: tuple[Certificate, ...]
    sentence: str

    @property
    def residuals(self) -> Array:
        return self.averages - self.fitted

    def __repr__(self) -> str:
        return f"Diagnosis(epsilon_lower={self.epsilon_lower:.4g}, norm_needed={self.norm_needed:.4g})"

    def __str__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        """For notebooks: the summary, and what each certificate proves."""
        rows = [map(markup.cell, (each.kind, each.epsilon, each.sentence)) for each in self.certificates]
        proofs = markup.table(["certificate", "ε at least", "in words"], rows)
        return markup.block("Diagnosis", markup.paragraphs([self.sentence]), proofs)


def diagnose(
    points: Any,
    observations: Any,
    model: Model,
    *,
    domain: Domain | None = None,
    fixed_design: bool = False,
    time_order: bool = False,
    groups: ArrayLike | None = None,
    noise: ArrayLike | None = None,
) -> Diagnosis:
    """A lower bound on the model's misspecification, from observations gathered in any way.

    It is the largest of three certificates, each with a third of δ. "class": no member passes through all averages
    within their radii. "bands": the posterior's band for f̃ does not meet an own band, or the interval that the class
    allows. "energy": members leave more of the results unexplained than noise can; it needs no repeats.

    By default valid for points chosen by looking at earlier results, and for any order of the rows: radii are those of
    own bands, and every point pays for the last rank, on a list (domain=) for that of its last candidate, as in a
    policy that observes the rows. time_order: rows come in the order in which they were observed, not in one made from
    the results; points seen early then have smaller radii. fixed_design: the points were fixed before any result was
    seen; the radii are then the smaller σ√(2 ln(6u/δ)/n_j) for u distinct points. Observations at equal points (to the
    bit) are averaged. Pass all rows: a selection made by results proves nothing. The noise level σ is taken as known;
    if it is too small, noise looks like misfit.

    Of more than 2,000 distinct points the 400 with the smallest radii are used, as the sentence says; radii hold at all
    points at once, so that is valid. The posterior's band is then computed from these points for a fixed design, from
    the first 400 points in time order, and otherwise not at all.

    Points are taken as the kernel sees them. For a Box or its grid, whose kernels see the unit cube, pass `domain=` and
    points in user units. A data frame, a dict of columns or a list of dicts is read as `misspec diagnose` reads a file:
    observations may name its column of results, numbers are scaled to their range, text is choices, and dates, texts
    that differ from row to row and numbers of rows are left out, with a warning.

    groups: a number per observation, where the points leave something out; only observations of one group are repeats.
    Equal points of different groups are then different arms, which no function of the class can tell apart.
    noise: standard deviations of the observations' own, in the place of σ: one each, NaN for those without.
    """
    options: dict[str, Any] = {
        "fixed_design": fixed_design, "time_order": time_order, "groups": groups, "noise": noise
    }  # fmt: skip
    if domain is None and frames.is_named(points):
        points, observations, domain = of_frame(points, observations)
    return next(diagnoses(points, observations, [model], domain=domain, **options))


def diagnoses(
    points: ArrayLike,
    observations: ArrayLike,
    models: Sequence[Model],
    *,
    domain: Domain | None = None,
    fixed_design: bool = False,
    time_order: bool = False,
    groups: ArrayLike | None = None,
    noise: ArrayLike | None = None,
) -> Iterator[Diagnosis]:
    """`diagnose` for models that differ in their norm bound only."""
    X = matrix("points", points, rows_at_least=1)
    y = vector("observations", observations, length=len(X))
    adaptive, model = not flag("fixed_design", fixed_design), models[0]
    grouped = X if groups is None else np.column_stack([X, vector("groups", groups, length=len(X))])
    number, first = numbered_points(grouped)
    precision = None if noise is None else model.precision(noise, len(X))
    distinct, repeats = X[first], np.bincount(number)
    encoded = distinct if domain is None else encoded_by(domain, distinct)
    check_known(Finite(encoded[:MOST_DISTINCT]), model)
    u, delta, ordered = len(first), model.delta / PARTS, flag("time_order", time_order)
    everything = Averages.at(encoded, number, y, precision)
    averages, counts = everything.averages, everything.counts
    radii = model.noise * np.sqrt(2.0 * math.log(2.0 * u / delta) / counts)
    if adaptive:
        sizes, which = (counts, slice(None)) if ordered else np.unique(counts, return_inverse=True)
        last = max(u, len(getattr(domain, "points", ())))
        ranks = range(1, u + 1) if ordered else [last] * len(sizes)
        pairs = zip(sizes.tolist(), ranks, strict=True)
        radius = own_bands.own_radius if precision is None else own_bands.weighted_radius
        radii = np.array([radius(model.noise, n, rank, delta) for n, rank in pairs])[which]
    seen = f"{len(y)} observations at {u} distinct points, {int((repeats > 1).sum())} of them repeated"
    used = fed = np.arange(u)  # points compared with the class, and points that the posterior is fed
    if u > MOST_DISTINCT:
        used = _sharpest(radii, SHARPEST)
        fed = used if not adaptive else np.arange(len(used) if ordered else 0)
        seen += f"; of these points the {len(used)} with the smallest radii were used"
    told = everything.part(fed)
    del X, y, grouped, number, first  # there may be millions of rows
    distinct, repeats = distinct[used], repeats[used]
    own = OwnIntervals(encoded[used], averages[used], radii[used])
    probes = None if domain is None else domain.probes()
    also = None if probes is None or len(probes) * len(used) ** 2 > MOST_WORK else probes
    program = Program(model.kernel, own.encoded, own.averages - model.offset, own.radii)
    for model in models:
        nearest = program.nearest(model.norm_bound)
        needed = program.least_norm(0.0, nearest, max(GAP * program.scale, 1e-3 * float(own.radii.min())))
        norms = [nearest.norm] if nearest.distance <= 0.0 else []  # the nearest member is an explanation itself
        norms += [needed.norm] if needed is not None else []
        by_class = nearest.proved if nearest.proved > GAP * program.scale else 0.0
        by_bands, _ = certificate_of_bands(model, own, told, delta=delta, also=also)
        by_energy = energy(model, everything, delta=delta, fixed=not adaptive)
        far, seen_by_bands = np.abs(nearest.values - program.target) - own.radii, by_bands[: len(used)]
        worst = int((seen_by_bands if seen_by_bands.max() > by_class else far).argmax())
        proofs = (
            _certificate("class", by_class, delta, np.repeat(np.maximum(far, 0.0), repeats)),
            _certificate("bands", float(by_bands.max()), delta, np.repeat(seen_by_bands, repeats)),
            _certificate("energy", by_energy.epsilon, delta, everything.averages[by_energy.used] - by_energy.fitted),
        )
        diagnosis = Diagnosis(
            epsilon_lower=max(proof.epsilon for proof in proofs),
            worst_point=distinct[worst],
            norm_needed=min(norms, default=math.inf),
            points=distinct,
            averages=own.averages,
            counts=repeats,
            radii=own.radii,
            fitted=nearest.values + model.offset,
            adaptive=adaptive,
            certificates=proofs,
            sentence="",
        )
        residual, where = float(diagnosis.residuals[worst]), _spelled(distinct[worst], domain)
        said = _sentence(diagnosis, model, residual, where, seen, own=precision is not None)
        yield dataclasses.replace(diagnosis, sentence=said)


class OwnIntervals(NamedTuple):
    """Own bands: points as the kernel sees them, averages and radii."""

    encoded: Array
    averages: Array
    radii: Array


class Averages(NamedTuple):
    """Observations at distinct points as the kernel sees them: averages, how often each point counts (Σ of precisions),
    squares around the averages, and the numbers of results."""

    encoded: Array
    averages: Array
    counts: Array
    within: Array
    results: Array

    @classmethod
    def of(cls, encoded: Array, y: Array, precision: Array | None = None) -> Averages:
        """From single observations; precision: of each, None for 1."""
        number, first = numbered_points(encoded)
        return cls.at(encoded[first], number, y, precision)

    @classmethod
    def at(cls, encoded: Array, number: NDArray[np.intp], y: Array, precision: Array | None) -> Averages:
        """From observations at numbered points."""
        by = np.ones(len(y)) if precision is None else precision
        counts = _sums(number, by)
        averages = np.bincount(number, by * y) / np.where(counts > 0, counts, 1.0)
        within = _sums(number, by * (y - averages[number]) ** 2)
        return cls(encoded, averages, counts, within, _sums(number, np.ones(len(y))))

    def part(self, rows: NDArray[np.intp]) -> Averages:
        return Averages(*(column[rows] for column in self))


def _sums(number: NDArray[np.intp], values: Array) -> Array:
    return np.asarray(np.bincount(number, values), dtype=np.float64)


def _certificate(kind: str, epsilon: float, delta: float, distances: Array) -> Certificate:
    """distances: how far each result is off; their squares say how many carry the proof."""
    squares = distances**2
    total = float(squares.sum())
    share = total**2 / (len(squares) * float((squares**2).sum())) if epsilon > 0 and total > 0 else 0.0
    proved = f"ε ≥ {epsilon:.3g}: {SAID[kind]}" if epsilon > 0 else "proves nothing"
    carried = f" (carried by {100 * share:.0f} % of the results)" if share else ""
    return Certificate(kind, float(epsilon), delta, share, proved + carried)


def certificate_of_bands(
    model: Model, own: OwnIntervals, told: Averages, *, delta: float, also: Array | None = None
) -> tuple[Array, Array]:
    """The misspecification proved by bands that do not meet, per point, and the factor by which ε moves them together.

    The posterior puts f̃(x) into μ ± (multiplier·σ + ε‖ζ‖₁), uniformly over x and however points were chosen. Where that
    does not meet the own band of x, or the interval that the class allows, ε is at least

        dist/(1 + ‖ζ(x)‖₁ − 2W_x(x))     against the own band, W_x the point's own weight
        dist/‖ζ(x)‖₁                     against offset ± B√k(x,x)

    with the distances at ε = 0. also: further points, where only the class is compared.
    """
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
    rounding = ROUNDING * max(1.0, float(np.abs(told.averages - model.offset).max()))
    half = widths.mixture(model, log_det, delta) * std + rounding
    proved = (np.abs(mean) - model.norm_bound * np.sqrt(prior) - half) / np.maximum(norm1, ROUNDING)
    reach = norm1.copy()
    arms = collections.defaultdict(list)
    for i, x in enumerate(told.encoded):
        arms[x.tobytes()].append(i)
    for j, x in enumerate(own.encoded):
        # of several arms at a point (`groups`) each has a misfit of its own: the smallest weight proves the least
        weight = min((W[i, j] for i in arms[x.tobytes()]), default=0.0)
        moved = max(1.0 + norm1[j] - 2.0 * weight, ROUNDING)
        by_own = (abs(own.averages[j] - model.offset - mean[j]) - own.radii[j] - half[j]) / moved
        if by_own > proved[j]:
            proved[j], reach[j] = by_own, moved
    return np.maximum(proved, 0.0), reach


def certified_conflicts(
    model: Model, own: OwnIntervals, told: Averages, *, delta: float, epsilon: float, also: Array | None = None
) -> list[tuple[int, float, float, str]]:
    """Points at which observations prove more misspecification than ε: (position, gap, proved ε, kind) for each.

    The certificates of `diagnose`, each at δ; own radii hold at δ too. The position of energy is len(own) + len(also)
    + j, where j is the told point that is farthest off.
    """
    proved, reach = certificate_of_bands(model, own, told, delta=delta, also=also)
    apart = np.flatnonzero(proved > epsilon).tolist()
    conflicts = {i: (float((proved[i] - epsilon) * reach[i]), float(proved[i]), "bands") for i in apart}
    program = Program(model.kernel, own.encoded, own.averages - model.offset, own.radii)
    if not program.explained(model.norm_bound, epsilon):
        with contextlib.suppress(NumericalError):  # a solver that finds nothing proves nothing
            nearest = program.nearest(model.norm_bound)
            if nearest.proved > epsilon + GAP * program.scale:
                worst = int((np.abs(nearest.values - program.target) - own.radii).argmax())
                gap, implied, kind = conflicts.get(worst, (0.0, 0.0, "class"))
                kind = kind if implied > nearest.proved else "class"
                conflicts[worst] = (max(gap, nearest.proved - epsilon), max(implied, nearest.proved), kind)
    found = energy(model, told, delta=delta)
    if found.epsilon > epsilon:
        off = np.abs(told.averages[found.used] - found.fitted)
        position = len(own.averages) + (0 if also is None else len(also)) + int(found.used[off.argmax()])
        conflicts[position] = (found.epsilon - epsilon, found.epsilon, "energy")
    return [(i, float(gap), float(implied), kind) for i, (gap, implied, kind) in sorted(conflicts.items())]


def noise_from_repeats(points: ArrayLike, observations: ArrayLike) -> float:
    """σ as the pooled standard deviation of observations at equal points (to the bit), whatever f* is there.

    An estimate, not a bound: certificates made with it are only as good as it is. Needs five repetitions in all.
    """
    X = matrix("points", points, rows_at_least=1)
    told = Averages.of(X, vector("observations", observations, length=len(X)))
    freedom = len(X) - len(told.counts)
    if freedom < LEAST_REPEATS:
        raise InvalidInput(
            f"an estimate of the noise needs at least {LEAST_REPEATS} observations at points that were observed "
            f"before, got {freedom}; say what the noise is instead, or repeat some points"
        )
    return math.sqrt(float(told.within.sum()) / freedom)


def numbered_points(X: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The number of each row's point, in the order of first visits; and the rows of the first visits."""
    _, first, position = search.distinct(X)
    visits, number = np.unique(first[position], return_inverse=True)
    return number, visits


def _sharpest(radii: Array, count: int) -> NDArray[np.intp]:
    """The `count` points with the smallest radii; ties are spread evenly over the visits."""
    last = np.partition(radii, count - 1)[count - 1]
    smaller, equal = np.flatnonzero(radii < last), np.flatnonzero(radii == last)
    spread = np.linspace(0, len(equal) - 1, count - len(smaller)).astype(np.intp)
    return np.sort(np.concatenate([smaller, equal[spread]]))


# -- in sentences ------------------------------------------------------------------------------------------------------


MODERATE = 10.0  # `diagnose` advises a larger norm bound up to this factor, beyond it another kernel
SAID = {
    "class": "no function of the class passes through all averages within their radii",
    "bands": "the band of the model misses results, or what the class allows",
    "energy": "the functions of the class leave more of the results unexplained than the noise can",
}


def _spelled(point: Array, domain: Any) -> str:
    """A point as text, by name where its coordinates have names."""
    params = getattr(getattr(domain, "box", domain), "params", None)
    if params is None:
        return np.array2string(point, precision=4, separator=", ")
    texts = {name: f"{x:.6g}" if isinstance(x, float) else str(x) for name, x in params(point).items()}
    return ", ".join(f"{name} = {text}" for name, text in texts.items())


def _sentence(diagnosis: Diagnosis, model: Model, residual: float, where: str, seen: str, *, own: bool) -> str:
    """own: results have noises of their own."""
    if diagnosis.epsilon_lower <= 0.0:
        passes = f"a function of norm {diagnosis.norm_needed:.3g} (the model allows {model.norm_bound:g}) passes"
        if diagnosis.norm_needed > model.norm_bound:  # between what is proved and what was found
            passes = "as far as can be computed a function of the class passes"
        return (
            f"The data do not contradict the model: {passes} within the noise of every point. That does not prove that "
            f"the model is right: {seen}; more at the same points make the test sharper."
        )
    adaptive = "also if the points were chosen by looking at results"
    how = adaptive if diagnosis.adaptive else "if the points were fixed before"
    doubt = "if no noise exceeds what is given" if own else f"if the noise is at most {model.noise:g}"
    doubt += " and although the model was fitted" if model.fitted else ""
    side = "above" if residual > 0 else "below"
    best = max(diagnosis.certificates, key=lambda proof: proof.epsilon)
    return (
        f"The model is wrong by at least {diagnosis.epsilon_lower:.3g} with probability at least {1 - model.delta:g} "
        f"({how}, {doubt}; {seen}): {SAID[best.kind]}. Hardest to explain is {where}, observed {abs(residual):.3g} "
        f"{side} the nearest function of the class. {_suspicion(diagnosis, model)}Either allow for it, ECGPUCB with an "
        f"epsilon above {diagnosis.epsilon_lower:.3g} (or RegretBalancing, which needs none), or change the model: "
        f"{_remedy(diagnosis, model)}, or a larger noise, if that is possible."
    )


def _remedy(diagnosis: Diagnosis, model: Model) -> str:
    needed = diagnosis.norm_needed
    if needed <= model.norm_bound:  # each result alone can be explained, all of them together cannot
        return "a rougher kernel or a shorter length scale"
    if not math.isfinite(needed):
        return "no norm bound that can be computed explains the data with this kernel, take another"
    if needed <= MODERATE * model.norm_bound:
        alone = "as much as each point by itself needs; all of them together may need more"
        return f"a norm bound of {needed:.3g} instead of {model.norm_bound:g} ({alone})"
    return f"a rougher kernel or a shorter length scale (this one would need a norm bound of at least {needed:.2g})"


def _suspicion(diagnosis: Diagnosis, model: Model) -> str:
    """A warning of a wrong offset, which looks like misfit."""
    level = float(np.average(diagnosis.averages, weights=diagnosis.counts))
    if abs(level - model.offset) > model.norm_bound:
        return f"The observations average {level:.3g} but the model's offset is {model.offset:g}: set it first. "
    return ""
