"""Who may play in regret bound balancing: what caution costs, and what it has to show for it.

Bases with ε̂ > 0 are *cautious*. They look where a wrong model would hide something, which is wasted where the model is
right. What keeps them from playing all the time:

price     the bound of a cautious base counts `price` times when the next one to play is chosen
rounds    together they play √t rounds, whatever their bounds; the eager bases (ε̂ = 0) play the others
proof     1.5√t rounds, until the own band of a point and the model's for ε = 0 do not meet: with probability
          1 − δ that happens only where the model is wrong. From then on a price, for as long as caution pays;
          √t rounds while it does not

Caution pays while Σ(y − what the eager base expected of its own choice) over cautious rounds is not below
−σ√(2t ln(1/δ)), a loss beyond noise. Later results at points found this way count too, whichever base plays them, if
they improve the sum. A proof rests on bands: with a width that is a number it is a rule of thumb. It is one for all
bases, whatever their kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from misspec.errors import number, one_of
from misspec.policies.ec_gp_ucb import Maximiser
from misspec.policies.enlarged import Enlarged

KINDS = ("price", "rounds", "proof")
SEEKING = 1.5  # times √t: cautious rounds while a proof is sought


class Caution:
    """The kind of caution, and what is known of its use. It changes with rounds that are asked and counted only."""

    def __init__(self, kind: str, price: float, epsilons: Sequence[float], noise: float, delta: float) -> None:
        self.kind = one_of("caution", kind, KINDS)
        price = number("price", price, above=0)
        self.prices = [1.0 if e == 0 or self.kind == "rounds" else price for e in epsilons]
        self._luck = noise * math.sqrt(2.0 * math.log(1.0 / delta))  # σ√(2 ln(1/δ))
        self._cautious = [e > 0 for e in epsilons]
        self.refuted = False  # whether the bands of some point have proved that ε > 0
        self.earned = 0.0
        # points that caution found: what was expected instead, and by how much later results exceed that in all
        self._found: dict[int | bytes, tuple[float, float]] = {}

    def affordable(self, active: list[int], plays: Sequence[int]) -> list[int]:
        """The active bases among which the next one is chosen; plays: rounds that each base has played so far."""
        if self.kind == "price" or (self.kind == "proof" and self.refuted and self._pays(sum(plays))):
            return active
        parts = [[i for i in active if self._cautious[i] == side] for side in (True, False)]
        if not all(parts):
            return active
        spent = sum(n for n, cautious in zip(plays, self._cautious, strict=True) if cautious)
        ration = SEEKING if self.kind == "proof" and not self.refuted else 1.0
        return parts[0] if spent < ration * math.sqrt(sum(plays) + 1) else parts[1]

    def _pays(self, t: int) -> bool:
        return self.earned > -self._luck * math.sqrt(t)

    def looks(self, i: int) -> bool:
        """Whether a round of base i may be a proof."""
        return self.kind == "proof" and not self.refuted and not self._cautious[i]

    def noted(self, i: int, decided: Maximiser, eager: Enlarged | None) -> dict[str, Any]:
        """Details that a cautious round needs when its result comes: what an eager base, on the same
        posterior, expected of its own choice among what was looked at."""
        if self.kind != "proof" or not self._cautious[i] or eager is None:
            return {}
        c = decided.known
        row, _, _ = eager.maximiser(c, eager.scores(c))
        if row == decided.row:
            return {}
        expected = float(c.mean[row])
        if c.own is not None:
            expected = min(max(expected, float(c.own[0][row])), float(c.own[1][row]))
        return {"expected": expected}

    def asked(self, details: Mapping[str, Any]) -> None:
        """A round was asked."""
        self.refuted = self.refuted or bool(details.get("refuted", False))

    def counted(self, key: int | bytes, details: Mapping[str, Any], y: float) -> None:
        """The result of a round at a point counts."""
        if "expected" in details:
            self._found.setdefault(key, (details["expected"], 0.0))
            self.earned += y - details["expected"]
        elif key in self._found:
            expected, before = self._found[key]
            after = before + y - expected
            self._found[key] = (expected, after)
            self.earned += max(after, 0.0) - max(before, 0.0)
