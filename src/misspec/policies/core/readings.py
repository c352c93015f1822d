"""Everything that can be read of a policy: bands, a recommendation, caveats, conflicts, observations."""

from __future__ import annotations

import contextlib
import importlib
import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from misspec import kernels
from misspec.errors import InvalidInput
from misspec.model import Model
from misspec.policies.core import undo
from misspec.policies.core.answers import Band, Conflict, Observations, Query, Recommendation, Suspicion
from misspec.policies.core.given import round_of
from misspec.policies.core.hooks import Hooks
from misspec.policies.core.log import milestone, observations
from misspec.policies.core.points import Actions, Place, Round
from misspec.policies.core.registry import copied_setting
from misspec.posterior.posterior import Turned
from misspec.threads import one_thread

if TYPE_CHECKING:
    from misspec.policies.core.policy import Policy


class Readings(Hooks):
    """Answers of a policy, in your sign, from told results only. Reading changes nothing."""

    _lock: threading.RLock
    _settings: dict[str, Any]
    _certified: tuple[tuple[int, float], list[Conflict]] | None = None  # conflicts after so many events, for ε

    def band(self, X: ArrayLike | None = None, *, context: Any = None) -> Band:
        """Bands for f* over a Finite domain, or at the rows of X; every term included, told data only. context: on a
        `Joint` domain, where X has x alone (one for all rows, or one per row)."""
        with self._held():
            points: Round
            if X is not None:
                points = self.field.parse(X, self.model, context)
            elif context is not None:
                points = self.field.within(context, None, self.model)
            else:
                points = self.field.whole("band() without points")
            if not isinstance(points, Actions):
                raise InvalidInput("band(context=…) needs a list of actions; hand in points: band(X, context=…)")
            band = self.band_at(points)
            return Band(-band.upper, -band.lower) if self.minimize else band

    def recommend(self, *, actions: ArrayLike | None = None, context: Any = None) -> Recommendation:
        """The maximiser of the lower band for f*, and a gap that bounds its regret; without a list, as far as found.

        actions, context: of these, or for this context, as in `ask`; the gap is then to the best of them.
        """
        with self._held():
            offered = round_of(self, actions, context)
            contenders = offered if isinstance(offered, Actions) else self.contenders(offered)
            band, usable = self.band_at(contenders), self.usable(contenders)
            best = int(np.where(usable, band.lower, -np.inf).argmax())
            place = self.field.place(contenders, best)
            mean, lower, upper = self.mean_at(place), float(band.lower[best]), float(band.upper[best])
            gap, note = float(band.upper[usable].max()) - lower, ""
            says_nothing = not self.field.fixed and self._says_nothing(place, lower, upper)
            if self.minimize:
                mean, lower, upper = -mean, -upper, -lower
            if not lower <= mean <= upper:
                side = "below" if mean < lower else "above"
                note = f"the model's mean {mean:.4g} lies {side} the band: data here, or the class, exclude it"
            elif says_nothing:
                note = "the band is all that the model's class allows: nothing is known yet of what is best here"
            caveats, known = tuple(self.caveats), self.field.describe(place)
            return Recommendation(
                known.pop("x", place.x), place.index, place.name, mean, lower, upper, gap, not caveats, caveats, note,
                tried=self._evidence.own.count(place.key), position=best if actions is not None else None, **known,
            )  # fmt: skip

    def _says_nothing(self, place: Place, lower: float, upper: float) -> bool:
        """Whether a band is the interval of the class itself."""
        model = self.reported_model
        prior = kernels.diagonal(model.kernel, place.code)[0]
        reach = (model.norm_bound * math.sqrt(prior) + self.epsilon) * (1.0 - 1e-9)
        return lower <= model.offset - reach and upper >= model.offset + reach

    @property
    def posterior(self) -> Any:
        """The posterior in use: .mean and .std over a Finite domain, .at(X) anywhere, in your sign."""
        return Turned(self.posterior_in_use) if self.minimize else self.posterior_in_use

    @property
    def model_as_given(self) -> Model:
        """The model in your sign; `model` is that of what is maximised."""
        return self.model.turned() if self.minimize else self.model

    @property
    def caveats(self) -> list[str]:
        """Why bands, gap and recommendation are not guaranteed, one sentence each; empty where they are."""
        with self._held():
            caveats = list(self._without)
            if self.log.out_of_order:
                caveats.append(
                    "some results were told before others that were asked earlier: until those are told or dropped, "
                    'bands hold only if the order does not depend on the results (delays="independent" says so)'
                )
            if self.log.in_parts and self.claims:
                caveats.append(
                    f"points from elsewhere came in {self.log.calls} calls: bands hold only if what came in which call "
                    'does not depend on the results (delays="independent" says so; or observe all of them in one call)'
                )
            if self.conflicts():
                caveats.append(f"the data contradict the model by more than ε = {self.epsilon:.4g} (see `conflicts`)")
            return caveats

    @property
    def guaranteed(self) -> bool:
        """Whether bands hold with probability 1 − δ provided that the truth lies within ε of the model's class."""
        return not self.caveats

    @property
    def claims(self) -> bool:
        """Whether bands are meant to hold at all: a width with a theory behind it, and a model that is not fitted."""
        return not self._without

    def conflicts(self) -> list[Conflict]:
        """Data that a misspecification of ε cannot explain: empty unless the certified ε exceeds the policy's.

        After 2,000 results they are looked for whenever those have grown by a tenth, in what was told up to then, and
        among the thousand points that are known best: what is found is proved, what is not may still be there.
        """
        with self._held():
            key = milestone(self.log.events, self.t), self.epsilon
            if self._certified is None or self._certified[0] != key:
                found = self.find_conflicts(self.log.events[: key[0]])
                self._certified = key, found
                if found:
                    most = max(conflict.epsilon for conflict in found)
                    self._say("the results contradict the model at %d points, by ε ≥ %.4g", len(found), most)
            return list(self._certified[1])

    def suspicious(self) -> list[Suspicion]:
        """Results that the others do not predict, those farthest off first: typing errors, other units, evaluations
        that went wrong; or a narrow optimum, which looks the same. To settle it, evaluate again; to correct it,
        `retract` and tell."""
        with self._held():
            told, sign = self.observations, self.log.sign
            found = []
            for row, each in self.find_suspicious(told).items():
                x, id_, mean = told.x[row], int(told.ids[row]), sign * each.mean
                index = self.field.place(self._parse(x[None, :]), 0).index
                ends = mean - 2.0 * each.std, mean + 2.0 * each.std
                query = None if id_ < 0 else id_
                found.append(Suspicion(row, query, x, index, float(told.y[row]), mean, *ends, each.score, each.factor))
            return sorted(found, key=lambda each: -each.score)

    def plot(self, **options: Any) -> Any:
        """One matplotlib Figure: the best so far, which parameters matter, the model against the results, and the model
        along each parameter. options: as for `ms.reports.plot`, which draws it and needs the extra `experiments`."""
        package: Any = importlib.import_module("misspec")  # reports know policies, so here they are called by name
        return package.reports.plot(self, **options)

    @property
    def t(self) -> int:
        """Told observations."""
        return self.log.t

    @property
    def pending(self) -> list[Query]:
        """Asked, neither told nor dropped."""
        with self._lock, one_thread():
            return [asked.query for asked in self.log.pending.values()]

    @property
    def asked(self) -> int:
        """Queries that were asked here and not dropped."""
        with self._held():
            return self.log.asked

    @property
    def observations(self) -> Observations:
        """All results, in the order told; after `compact` those that are left."""
        with self._lock, one_thread():
            return observations(self.log.events, self.field, self.model, self.log.forgotten[1])

    @property
    def information(self) -> float:
        """Realised information of the posterior in use."""
        with self._held():
            return self.posterior_in_use.information

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that it was made with, except domain and model."""
        return {name: copied_setting(value) for name, value in self._settings.items()}

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self._settings.items() if k not in ("seed", "bases"))
        mark = "" if self.claims else ", without guarantee"
        return f"{type(self).__name__}({self.domain!r}, {shown}; t={self.t}, pending={len(self.log.pending)}{mark})"

    def _parse(self, given: ArrayLike) -> Actions:
        return self.field.parse(given, self.model)

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """The policy for this thread alone, after a failed call, if one is left, was undone; BLAS on one thread."""
        with self._lock, one_thread():
            self._repair()
            yield

    def _repair(self) -> None:
        undo.repair(cast("Policy", self))
