"""How policies look, the same in every picture: a colour for the algorithm, dashes for the paper's form of it."""

from __future__ import annotations

import dataclasses
import re

from misspec.experiments.spec import Experiment

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#8a4fbf", "#c79a00", "#56b4e9", "#7f7f7f", "#cc5599")  # told apart by most
DASHES = ("solid", "dot", "dashdot", "longdash")
TRUTH, MEMBER, TUBE = "#111111", "#8c510a", "#e5d5b5"


@dataclasses.dataclass(frozen=True)
class Stroke:
    """A colour, and a dash as Plotly calls it."""

    colour: str
    dash: str


def strokes(experiment: Experiment) -> dict[str, Stroke]:
    """By the policy's name."""
    kinds = list(dict.fromkeys(policy.kind for policy in experiment.policies))
    found: dict[str, Stroke] = {}
    variants: dict[str, int] = {}
    for policy in experiment.policies:
        colour = COLOURS[kinds.index(policy.kind) % len(COLOURS)]
        if policy.as_in_paper:
            found[policy.name] = Stroke(colour, "dash")
        else:
            found[policy.name] = Stroke(colour, DASHES[variants.get(policy.kind, 0) % len(DASHES)])
            variants[policy.kind] = variants.get(policy.kind, 0) + 1
    return found


def slug(name: str, taken: set[str]) -> str:
    """A file name for any name, different from those taken."""
    base = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "unnamed"
    base, number = base[:60], 2
    result = base
    while result in taken:
        result, number = f"{base}-{number}", number + 1
    taken.add(result)
    return result
