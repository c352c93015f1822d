"""When to stop: `ms.until`, and how loops heed it.

A policy that learns its model says how likely further evaluations are to improve the best (`Auto.chance`), one whose
bands hold how far its recommendation can be from the best possible (`recommend().gap`). Whether that is enough is a
function of the results alone: a run that was stopped and is started again stops at once, `misspec suggest` says what
`ms.optimize` does, and processes that share a study agree. Looking changes nothing in the policy: a run that stops is
the beginning of the run that would not have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from misspec.errors import InvalidInput, instance, number, whole
from misspec.policies import Policy
from misspec.policies.auto import learnt
from misspec.policies.auto.policy import MOST_IMAGINED

# Results between two looks. A chance costs as much as two or three queries of Auto, so every fifth evaluation is cheap;
# a loop that stops is at most four evaluations late, and the defaults were chosen with looks at every fifth.
EVERY = 5
FEWEST = 15  # results: the models of five and ten say little of a function, and the rule was chosen without them
WITHIN, CHANCE = 10, 0.05  # by benchmarks/stopping.py


@dataclasses.dataclass(frozen=True)
class Until:
    """When a policy has done enough: made by `ms.until`, which says what the fields mean."""

    gain: float | None
    within: int
    chance: float
    gap: float | None

    def check(self, policy: Policy) -> None:
        """InvalidInput where the rule does not fit the policy."""
        name, learns = type(policy).__name__, hasattr(policy, "chance")
        if not policy.field.fixed:
            raise InvalidInput("until= is about a whole domain, and here it depends on the round: leave it out")
        if self.gap is None and not learns:
            raise InvalidInput(
                f"{name} says no chance of a gain, as ms.Auto does: stop it by the gap of its recommendation, "
                "ms.until(gap=…)"
            )
        if self.gap is not None and learns:
            raise InvalidInput(
                f"the bands of {name} guarantee no gap: stop it by the chance of a gain, ms.until() or "
                "ms.until(gain=…, within=…, chance=…)"
            )

    def reason(self, policy: Policy) -> str | None:
        """Why to stop now, in one sentence with its numbers; None while going on is worth it, or not known."""
        why = self.why(policy)
        return why and f"stopped after {policy.t} evaluations: {why}"

    def why(self, policy: Policy) -> str | None:
        """The numbers of `reason`."""
        with policy._held():
            return self._by_chance(policy) if self.gap is None else self._by_gap(policy, self.gap)

    def _by_chance(self, policy: Any) -> str | None:
        """Twice in a row: one small chance is often followed by larger ones (`benchmarks/stopping.py`). Where all
        results are equal nothing is known."""
        if not learnt.modelled(policy) or policy.t < FEWEST or not learnt.spread_of(policy.observations.y):
            return None
        now = policy.chance(self.gain, self.within)
        if now > self.chance:
            return None
        before = learnt.chance(learnt.earlier(policy, EVERY), self.gain, self.within)
        if before > self.chance:
            return None
        least = learnt.least_gain(policy) if self.gain is None else self.gain
        return (
            f"the chance that {self.within} more improve the best by {least:.2g} or more is {100 * now:.2g} % (limit "
            f"{100 * self.chance:.3g} %), and was {100 * before:.2g} % {EVERY} results before"
        )

    def _by_gap(self, policy: Policy, limit: float) -> str | None:
        found = policy.recommend()
        if not policy.t or found.gap > limit:
            return None
        sure = f"with probability {1 - policy.model.delta:.4g}" if found.guaranteed else "if its bands hold"
        return f"what is recommended is at most {found.gap:.3g} from the best possible (limit {limit:.3g}), {sure}"


def until(
    gain: float | None = None, within: int = WITHIN, chance: float = CHANCE, *, gap: float | None = None
) -> Until:
    """When to stop, for `until=` of `ms.optimize` and others.

    Of `ms.Auto`: when `chance(gain, within)` was at most `chance` twice in a row, five results apart. gain: in your
    units; by default what is worth it, the noise, or 2 % of the spread of the results if that is more. within: further
    evaluations.

    Of policies whose bands hold: when `recommend().gap` is at most `gap`.
    """
    if gap is not None:
        if (gain, within, chance) != (None, WITHIN, CHANCE):
            raise InvalidInput(
                "gap= is a rule of its own, for policies whose bands hold: leave gain, within and chance"
            )
        return Until(None, within, chance, number("gap", gap, above=0))
    least = None if gain is None else number("gain", gain, above=0)
    whole("within", within, at_least=1, at_most=MOST_IMAGINED)
    return Until(least, within, number("chance", chance, above=0, below=1), None)


def checked(rule: Any, policy: Policy) -> Until | None:
    """The until= of a loop; InvalidInput for what is no rule, or not one for this policy."""
    if rule is not None:
        instance("until", rule, Until, "ms.until() makes one").check(policy)
    return rule  # type: ignore[no-any-return]


class Watch:
    """Looks after every few results whether a loop should stop.

    read    the policy as it stands, None where there is none yet
    reason  why to stop; None to go on

    What is being evaluated when the rule is met may change it: the loop asks for no more, tells what comes back, and
    then looks again.
    """

    def __init__(self, until: Until | None, read: Callable[[], Policy | None]) -> None:
        self.until, self.read = until, read
        self.looked: int | None = None  # results at the last look
        self.reason: str | None = None

    def met(self, results: int, *, running: bool) -> bool:
        """Whether to ask for no more."""
        if self.until is None or results == self.looked:
            return self.reason is not None
        again = self.reason is not None and not running
        if again or self.looked is None or results // EVERY > self.looked // EVERY:
            policy = self.read()
            self.looked, self.reason = results, None if policy is None else self.until.reason(policy)
        return self.reason is not None
