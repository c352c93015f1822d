"""Simulated chemical reactions with a known truth."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from misspec.domains import Finite
from misspec.errors import Array, seeded
from misspec.model import Model
from misspec.problems.base import Problem, around_offset

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
