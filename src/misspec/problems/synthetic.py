"""Synthetic truths: a member of the class of norm exactly B plus a misfit within ±ε, truths of another class, hard
instances (the needle of the paper's Appendix C, a trap in which GP-UCB stays), and a simulated chemical reaction."""

from __future__ import annotations

import itertools
import json
import math
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from misspec import kernels
from misspec.domains import Finite
from misspec.errors import Array, InvalidInput, number, seeded, shown, vector, whole
from misspec.model import Model
from misspec.problems.base import Problem, around_offset, from_values
from misspec.truth import check_known

CENTRES = 30  # terms of a random member
MISFITS = ("none", "random", "ripple", "spikes", "bump")


def random_member(domain: Finite, model: Model, seed: Any = 0, centres: int = CENTRES) -> Array:
    """offset + Σ a_i k(·, c_i) on the domain, with normal a and candidates c drawn at random, of norm exactly B."""
    check_known(domain, model)
    rng = np.random.default_rng([seeded(part) for part in (seed if isinstance(seed, list) else [seed])])
    X = domain.encoded
    c = X[rng.choice(len(X), min(len(X), whole("centres", centres, at_least=1)), replace=False)]
    return model.offset + kernels.cross(model.kernel, X, c) @ member_coefficients(model, c, rng)


def member_coefficients(model: Model, centres: Array, rng: np.random.Generator) -> Array:
    """Random a for which Σ a_i k(·, c_i) has norm exactly B."""
    a = rng.standard_normal(len(centres))
    norm = math.sqrt(max(0.0, float(a @ kernels.cross(model.kernel, centres, centres) @ a)))
    if norm <= 1e-9:
        raise InvalidInput("the kernel vanishes at the points drawn, so that no member of norm B can be made of them")
    return np.asarray(a * (model.norm_bound / norm))


def misspecified(
    domain: Finite,
    model: Model,
    epsilon: float = 0.1,
    misfit: str | ArrayLike = "random",
    seed: int = 0,
    *,
    wavelength: float = 0.05,
    centres: int = CENTRES,
) -> Problem:
    """A random member of norm exactly B as f̃, plus a misfit within ±ε.

    misfit       "random" (signs), "ripple" (a sine), "spikes" (±ε at a few candidates), "bump" (a Gaussian), "none",
                 or N numbers of your own within ±ε
    wavelength   how fine the misfit is, in units of the domain's extent: the wavelength of a ripple, the standard
                 deviation of a bump, the share of candidates that have a spike
    seed         of the member and of the misfit; problems that differ only in ε or misfit share the member

    f̃ is the planted member and ε bounds its distance; `problem.solved()` has the nearest member, which may be nearer.
    For the misfit that hurts a given policy most, see `misspec.adversary`.
    """
    eps = number("epsilon", epsilon, at_least=0)
    member = random_member(domain, model, [seeded(seed), 1], centres)
    if isinstance(misfit, str):
        m, eps = misfit_of(unit(domain), misfit, eps, wavelength, np.random.default_rng([seed, 2]))
        name = f"{misfit} misfit of {eps:g}" if eps else "no misfit"
    else:
        m, name = vector("misfit", misfit, length=len(domain)), f"given misfit within {eps:g}"
    return Problem(name, domain, model, member + m, member, eps)


def misfit_of(
    U: Array, misfit: str, epsilon: float, wavelength: float, rng: np.random.Generator
) -> tuple[Array, float]:
    """A named misfit at points of the unit cube, and its ε: 0 if it is zero everywhere."""
    if not isinstance(misfit, str) or misfit not in MISFITS:
        hint = "; see misspec.adversary for that" if isinstance(misfit, str) and misfit == "adversarial" else ""
        raise InvalidInput(f"misfit must be one of {', '.join(MISFITS)} or N numbers, got {shown(misfit)}{hint}")
    wavelength, N = number("wavelength", wavelength, above=0), len(U)
    shape = np.zeros(N)  # within [−1, 1]
    if misfit == "random":
        shape = rng.choice([-1.0, 1.0], N)
    elif misfit == "ripple":
        shape = np.sin(2.0 * np.pi * (U.sum(axis=1) / wavelength + rng.random()))
        if N > 2 and np.ptp(shape) < 1.0:
            raise InvalidInput(f"a ripple of wavelength {wavelength:g} falls between the candidates; take another one")
    elif misfit == "spikes":
        chosen = rng.choice(N, min(N, max(1, round(wavelength * N))), replace=False)
        shape[chosen] = rng.choice([-1.0, 1.0], len(chosen))
    elif misfit == "bump":
        centre = U[rng.integers(N)]
        shape = rng.choice([-1.0, 1.0]) * np.exp(-0.5 * ((U - centre) ** 2).sum(axis=1) / wavelength**2)
    return epsilon * shape, epsilon if shape.any() else 0.0


def unit(domain: Finite) -> Array:
    """The candidates scaled to [0, 1] in each dimension."""
    X = domain.encoded
    low, extent = X.min(axis=0), np.ptp(X, axis=0)
    return np.asarray((X - low) / np.where(extent > 0, extent, 1.0))


# -- truths of another class; ε comes from best_in_class ---------------------------------------------------------------


def wrong_kernel(
    domain: Finite, model: Model, kernel: Any, seed: int = 0, *, size: float = 1.0, name: str = "wrong kernel"
) -> Problem:
    """A random member of another kernel's class, at most `size` away from the model's offset."""
    check_known(domain, model)
    other = Model(kernel, norm_bound=1.0, noise=model.noise)
    shape = random_member(domain, other, [seeded(seed), 3])
    size = number("size", size, above=0)
    return from_values(domain, model, model.offset + shape * (size / np.abs(shape).max()), name=name)


def rough_truth(domain: Finite, model: Model, seed: int = 0, *, length_scale: float = 0.2) -> Problem:
    """A Matérn ½ truth, which has kinks, for any smooth model."""
    from sklearn.gaussian_process.kernels import Matern

    return wrong_kernel(domain, model, Matern(length_scale, nu=0.5), seed, name="Matérn ½ truth")


def wrong_length_scale(domain: Finite, model: Model, seed: int = 0, *, factor: float = 0.25) -> Problem:
    """A truth whose length scale is `factor` times the model's."""
    check_known(domain, model)
    kernel = model.kernel
    if not hasattr(kernel, "length_scale") or not hasattr(kernel, "clone_with_theta"):
        raise InvalidInput(f"wrong_length_scale needs a scikit-learn kernel with a length_scale, got {shown(kernel)}")
    from sklearn.base import clone

    scale = np.asarray(kernel.length_scale) * number("factor", factor, above=0)
    changed = clone(kernel).set_params(length_scale=scale if scale.ndim else float(scale))
    return wrong_kernel(domain, model, changed, seed, name=f"length scale {factor:g} of the model's")


def nonstationary(domain: Finite, model: Model, seed: int = 0, *, size: float = 1.0) -> Problem:
    """A truth that varies slowly at one end of the domain and fast at the other: a sine of a warped coordinate."""
    check_known(domain, model)
    rng = np.random.default_rng([seeded(seed), 4])
    U = unit(domain)
    phase, along = 2.0 * np.pi * rng.random(), U.mean(axis=1)
    wave = np.sin(phase + 2.0 * np.pi * (0.5 * along + 6.0 * along**4))
    tilt = rng.uniform(-0.5, 0.5) * (U[:, 0] - 0.5)
    values = model.offset + number("size", size, above=0) * (0.8 * wave + tilt)
    return from_values(domain, model, values, name="non-stationary truth")


# -- hard instances ----------------------------------------------------------------------------------------------------


def needle(domain: Finite, model: Model, height: float = 0.5, seed: int = 0) -> Problem:
    """f* = offset, except at one candidate drawn at random, where it is h = `height` more.

    On a continuum its ε lies in [h/2, h]. On a grid it can be less: where candidates are so far apart that the kernel
    does not link them, a needle is a member of the class, and ε = 0.

    No policy can find the needle except by trying: on N candidates the expected regret is at least
    `theory.needle_lower_bound`, h per round while T is small against N.
    """
    check_known(domain, model)
    h = number("height", height, above=0)
    values = np.full(len(domain), model.offset)
    values[np.random.default_rng([seeded(seed), 5]).integers(len(domain))] += h
    return from_values(domain, model, values, name=f"needle of height {h:g}")


def trap() -> Problem:
    """Twelve arms, a linear kernel, ε = 0.1: GP-UCB and EC-GP-UCB stay about 2ε below the optimum on many seeds.

    Measured: GP-UCB on half of 40 seeds over 30,000 rounds, EC-GP-UCB as in the paper on 4 of 4. The phased policy and
    grounded policies do not.
    """
    from sklearn.gaussian_process.kernels import DotProduct

    data = json.loads(resources.files("misspec.problems").joinpath("trap.json").read_text(encoding="utf-8"))
    points = np.array(data["points"])
    constants = {name: data[name] for name in ("norm_bound", "noise", "regularization")}
    model = Model(DotProduct(sigma_0=0), **constants, delta=0.1)
    in_class = points @ np.array(data["theta"])
    return Problem("trap", Finite(points), model, in_class + data["misfit"], in_class, data["epsilon"])


# -- a simulated chemical reaction -------------------------------------------------------------------------------------


BEST = 95.0  # yield in % of the best conditions
NOISE = 5.0  # standard deviation of a repeated experiment, in percentage points
GAS = 8.314e-3  # the gas constant, kJ/(mol K)
REFERENCE = 363.15  # temperature in K at which the rates are drawn
CONDITIONS: dict[str, list[Any]] = {
    "ligand": [f"L{i}" for i in range(1, 13)],
    "base": ["K2CO3", "Cs2CO3", "KOAc", "K3PO4"],
    "solvent": ["DMF", "toluene", "dioxane", "butanol"],
    "temperature": [60, 80, 100, 120],  # °C
    "concentration": [0.05, 0.1, 0.2],  # mol/L
}


def reaction(seed: int = 0, model: Model | None = None, *, solve: bool = True) -> Problem:
    """Find the conditions of a catalytic reaction with the best yield in %: 2,304 combinations of ligand, base,
    solvent, temperature and concentration; a result varies by a standard deviation of 5 points.

    A → P → by-products overnight, with Arrhenius rates whose constants are drawn at random: another seed is another
    reaction. The ligand matters most. No smooth model fits exactly: some ligands decompose above a certain temperature,
    some do not tolerate a base, and every pair of ligand and solvent interacts. The best conditions yield 95 %; half of
    all yield less than about 10 %.

    model: by default an RBF on the encoding of the columns, which knows none of this. solve: find f̃ and ε by
    `best_in_class`, which takes seconds; otherwise f̃ is the model's offset and ε its distance to the truth.
    """
    from sklearn.gaussian_process.kernels import RBF

    positions = np.array(list(np.ndindex(*map(len, CONDITIONS.values()))))
    values = _yields(positions, np.random.default_rng([seeded(seed), 5]))
    rows = [dict(zip(CONDITIONS, levels, strict=True)) for levels in itertools.product(*CONDITIONS.values())]
    if model is None:
        model = Model(RBF(1.0), norm_bound=150.0, noise=NOISE, offset=20.0)
    return around_offset("reaction", Finite.from_table(rows), model, values, solve=solve)


def _yields(positions: Array, rng: np.random.Generator) -> Array:
    """The true yields of conditions, given by the positions of their levels."""
    ligand, base, solvent, heat, strength = positions.T
    ligands, bases, solvents = (len(CONDITIONS[name]) for name in ("ligand", "base", "solvent"))
    kelvin = np.array(CONDITIONS["temperature"])[heat] + 273.15
    warmth = (1.0 / REFERENCE - 1.0 / kelvin) / GAS
    concentration = np.array(CONDITIONS["concentration"])[strength] / 0.1
    # logarithms of rates per night at 90 °C and 0.1 mol/L
    forward = (
        -1.5
        + 1.3 * rng.standard_normal(ligands)[ligand]
        + 0.6 * rng.standard_normal(bases)[base]
        + 0.6 * rng.standard_normal(solvents)[solvent]
        + 0.4 * rng.standard_normal((ligands, solvents))[ligand, solvent]
        + 60.0 * warmth
        + 0.5 * np.log(concentration)
    )
    decay = -2.5 + 0.5 * rng.standard_normal(solvents)[solvent] + 90.0 * warmth + 0.3 * np.log(concentration)
    stable = rng.choice([90.0, 110.0, math.inf], ligands)  # °C up to which a ligand is stable
    tolerates = rng.random((ligands, bases)) > 0.1  # one pair in ten is incompatible
    alive = (kelvin - 273.15 <= stable[ligand]) & tolerates[ligand, base]
    yields = _intermediate(np.exp(forward) * np.where(alive, 1.0, 0.1), np.exp(decay))
    return np.asarray(BEST * yields / yields.max())


def _intermediate(forward: Array, decay: Array) -> Array:
    """P after unit time of A → P → by-products, from A = 1: k₁ (e^(−k₁) − e^(−k₂)) / (k₂ − k₁)."""
    apart = decay - forward
    near = np.abs(apart) < 1e-9
    return forward * np.exp(-forward) * np.where(near, 1.0, -np.expm1(-apart) / np.where(near, 1.0, apart))
