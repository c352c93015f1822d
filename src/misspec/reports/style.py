"""Style, the same in print and on the page: a colour for the algorithm, dashes for the paper's form of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection
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
