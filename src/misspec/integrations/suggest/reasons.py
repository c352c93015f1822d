"""Reasons for suggested experiments, for people who know experiments and no Gaussian process."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from misspec.domains import Choice
from misspec.integrations.suggest.menu import Key, Menu
from misspec.policies.auto import Auto
from misspec.policies.auto.learnt import existing, plain, rounded
from misspec.policies.core.answers import Query

SHOWN = 4  # results of a repeat that are listed
LIKELY, EVEN, HARDLY = 0.6, 0.4, 0.02  # chances to beat the best so far, in words


class Proposal(NamedTuple):
    """An experiment to do next.

    values      by column: its parameters, its name, and whatever else the file of candidates says of it
    called      what people call it: its name, or its row among the candidates; "" in a space
    mean, std   what is expected of it, from results alone, and its standard deviation; NaN before there is a model
    rule        what it was chosen by, as in `Query.details`
    reason      the same in words
    """

    values: dict[str, Any]
    called: str
    mean: float
    std: float
    rule: str
    reason: str


class Reasons(NamedTuple):
    """Writer of the reasons for queries."""

    policy: Auto
    menu: Menu
    seen: Mapping[Key, list[float]]
    running: Sequence[Key]
    best: float | None
    step: float  # a difference that its digits show: as in the summary, which has it too

    def of(self, query: Query, key: Key, others: bool) -> Proposal:
        """key: the experiment that it comes to; others: whether it is one of several."""
        rule = str(query.details["rule"])
        mean = std = math.nan
        if rule != "first":
            mean, std = (float(each[0]) for each in self.policy.posterior.at(self.menu.point(key)[None, :]))
        said = [
            self._chosen(rule, mean, std, others),
            *self._kept(key),
            *self._again(key, rule, mean, std),
            *self._new(key),
        ]
        words = "; ".join(said)
        values, called = self.menu.values(key), self.menu.called(key)
        return Proposal(values, called, mean, std, rule, f"{words[0].upper()}{words[1:]}.")

    def _chosen(self, rule: str, mean: float, std: float, others: bool) -> str:
        if rule == "first":
            return f"far from the others: the first {self.policy.first} results are spread out, to learn what matters"
        if rule == "confirm":
            return "the others do not predict its result, which would be the best: to confirm it before it is believed"
        if rule == "limits":
            return "nothing is likely to keep the limits yet: here they do most likely"
        if rule == "caution":
            return "in case the model is wrong: it may be better than the model believes"
        assert self.best is not None  # there is no model without results
        chance = self._chance(mean, std)
        odds = "hardly a chance" if chance < HARDLY else f"a chance of {100 * chance:.0f} %"
        odds = f"{odds} to beat" if chance < EVEN else "about even with" if chance < LIKELY else "likely to beat"
        what = "the most promising of all" if rule == "mean and spread" else "the best complement to the others"
        if rule == "untried":
            what = "the most promising of what was never tried"
        elif not others and rule != "mean and spread":
            what = "the largest improvement is expected here"
            if chance < HARDLY:
                what = "little is expected of any experiment, and most of this one"
        return f"{what}: {odds} the best so far, which is put at {rounded(self.best, self.step)}"

    def _chance(self, mean: float, std: float) -> float:
        """That it beats the best so far."""
        best = math.nan if self.best is None else self.best
        ahead = (best - mean if self.policy.minimize else mean - best) / max(std, 1e-300)
        return 0.5 * math.erfc(-ahead / math.sqrt(2.0))

    def _kept(self, key: Key) -> list[str]:
        """How likely the limits hold."""
        if not self.policy.limits or not self.policy.quantities.mixtures:
            return []
        p = float(self.policy.probability(self.menu.point(key)[None, :])[0])
        return [f"keeps the limits with a probability of {100 * p:.0f} %"]

    def _again(self, key: Key, rule: str, mean: float, std: float) -> list[str]:
        y = self.seen.get(key, [])
        why = ", to tell luck from quality"
        if self._chance(mean, std) < HARDLY and rule not in ("confirm", "limits"):
            why = "" if rule == "caution" else ", since nothing else promises more"
        shown = ", ".join(f"{each:.4g}" for each in y[:SHOWN]) + (", …" if len(y) > SHOWN else "")
        return [f"a repeat ({shown} so far){why}"] if y else []

    def _new(self, key: Key) -> list[str]:
        """Options that no experiment had."""
        done = [self.menu.point(each) for each in {*self.seen, *self.running}]
        here = zip(self.menu.parameters.items(), self.menu.point(key), strict=True)
        choices = [(i, name, x) for i, ((name, p), x) in enumerate(here) if isinstance(p, Choice)]
        there = existing(self.menu.domain, np.array(done)) if done else np.ones((0, 0), dtype=bool)
        new = [
            name
            for i, name, x in choices
            if done and not any(other[i] == x and row[i] for other, row in zip(done, there, strict=True))
        ]
        values = self.menu.values(key)
        new = [name for name in new if name in values]  # which exist there
        return [f"never tried: {', '.join(f'{name} = {plain(values[name])}' for name in new)}"] if new else []
