"""Style, the same in print and on the page: a colour for the algorithm, dashes for the paper's form of it."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from misspec.experiments.schema import Experiment

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#8a4fbf", "#c79a00", "#56b4e9", "#7f7f7f", "#cc5599")  # told apart by most
DASHES = ("solid", "dot", "dashdot", "longdash")
IN_PAPER = ("dash", "longdashdot")  # the dashes of policies as in the paper
TRUTH, MEMBER, TUBE, MISSED = "#111111", "#8c510a", "#e5d5b5", "#e31a1c"


class Stroke(NamedTuple):
    """A colour, and a dash as Plotly calls it."""

    colour: str
    dash: str


def strokes(experiment: Experiment) -> dict[str, Stroke]:
    """By the policy's name, all different as long as there are enough of them."""
    kinds = list(dict.fromkeys(policy.kind for policy in experiment.policies))
    found: dict[str, Stroke] = {}
    for policy in experiment.policies:
        first, dashes = kinds.index(policy.kind) % len(COLOURS), IN_PAPER if policy.as_in_paper else DASHES
        choices = [Stroke(colour, dash) for colour in (*COLOURS[first:], *COLOURS[:first]) for dash in dashes]
        found[policy.name] = next((each for each in choices if each not in found.values()), choices[0])
    return found


def labels(epsilons: Collection[float]) -> dict[float, str]:
    """ε in as few digits as tell them apart."""
    values = set(epsilons)
    digits = next(n for n in range(3, 18) if len({f"{value:.{n}g}" for value in values}) == len(values))
    return {value: f"{value:.{digits}g}" for value in epsilons}


def slug(name: str, taken: set[str]) -> str:
    """A file name for any name, different from those taken."""
    base = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")[:60] or "unnamed"
    others = (f"{base}-{number}" for number in itertools.count(2))
    taken.add(result := next(each for each in itertools.chain([base], others) if each not in taken))
    return result


MOST_TICKS = 6  # of a logarithmic axis: more of them overlap on a small picture
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def log_ticks(low: float, high: float) -> list[float]:
    """At most MOST_TICKS round numbers between the ends of a logarithmic axis, and at least two if there are any."""
    first, last = math.floor(math.log10(low)), math.floor(math.log10(high * 1.001))
    every = math.ceil((last - first + 1) / MOST_TICKS)
    steps: list[tuple[Sequence[float], int]] = [
        ((1.0,), every),
        ((1.0, 3.0), 1),
        ((1.0, 2.0, 5.0), 1),
        (range(1, 10), 1),
    ]
    found: list[float] = []
    for digits, step in steps:
        powers = range(first + -first % step, last + 1, step)
        ticks = [float(f"{digit:g}e{power}") for power in powers for digit in digits]
        inside = [tick for tick in ticks if low * (1 - 1e-3) <= tick <= high * (1 + 1e-3)]
        if len(found) < 3 and len(inside) <= max(MOST_TICKS, len(found)):
            found = inside
    return found or [low, high]


def powered(value: float) -> str:
    """A number as people write it, with a power of ten where it is very small or large: 0.05, 10⁻⁵, 2·10⁶."""
    if 1e-3 <= value < 1e5:
        return f"{value:g}"
    digits, _, power = f"{value:.3e}".partition("e")
    raised = f"10{str(int(power)).translate(SUPERSCRIPTS)}"
    return raised if float(digits) == 1.0 else f"{float(digits):g}·{raised}"
