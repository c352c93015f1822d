"""A diagnosis in sentences, for people."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from misspec.domains import Finite, Space
from misspec.errors import Array
from misspec.model import Model

if TYPE_CHECKING:
    from misspec.truth.certificates import Diagnosis

MODERATE = 10.0  # `diagnose` advises a larger norm bound up to this factor, beyond it another kernel
SAID = {
    "class": "no function of the class passes through all averages within their radii",
    "bands": "the band of the model misses results, or what the class allows",
    "energy": "the functions of the class leave more of the results unexplained than the noise can",
}


def spelled(point: Array, domain: Any) -> str:
    """A point as text, by name where its coordinates have names."""
    space = domain.box if isinstance(domain, Finite) else domain
    if not isinstance(space, Space):
        return np.array2string(point, precision=4, separator=", ")
    texts = {name: f"{x:.6g}" if isinstance(x, float) else str(x) for name, x in space.params(point).items()}
    return ", ".join(f"{name} = {text}" for name, text in texts.items())


def sentence(diagnosis: Diagnosis, model: Model, residual: float, where: str, seen: str, *, own: bool) -> str:
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
