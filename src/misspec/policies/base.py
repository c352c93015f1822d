"""What every policy has: ask, tell, drop, observe, bands, a recommendation, and a state that continues to the bit.

A policy is the list of its events. Its state is its settings, those events and its random state; restoring replays the
events through the same operations on the posterior, without choosing again. What a step decided (a Query) is kept
apart from what the next step needs.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from misspec import kernels, storage
from misspec.domains import Box, Domain, Finite
from misspec.errors import Array, InvalidInput, StorageError, matrix, vector, whole
from misspec.model import Model
from misspec.policies.encoding import decode_model, encode_model
from misspec.posterior import Posterior

VERSION = 1
LARGE = 10_000_000  # bytes of points above which a domain is stored as a hash


class Band(NamedTuple):
    """Lower and upper ends for f*."""

    lower: Array
    upper: Array


@dataclasses.dataclass(frozen=True, eq=False)
class Query:
    """A point to evaluate, and why it was chosen.

    id         what `tell` and `drop` know it by
    x, name    the point in user units, and its name on a Finite domain with names
    index      of the candidate on a Finite domain, else None
    position   row of the actions that were handed in, else None
    mean, std, multiplier, enlargement, upper   what the choice was made by; upper is the end that was maximised
    details    what is particular to the policy (phased: episode; balancing: base)
    """

    id: int
    x: Array
    index: int | None = None
    position: int | None = None
    name: str | None = None
    mean: float = 0.0
    std: float = 0.0
    multiplier: float = 0.0
    enlargement: float = 0.0
    upper: float = 0.0
    details: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False)
class Recommendation:
    """The maximiser of the lower band for f*.

    lower, upper   its band for f*; mean is the model's, which a grounded band may exclude
    gap            the largest upper band minus `lower`: a bound on its regret, to stop by
    guaranteed     whether all that holds with probability 1 − δ, *provided that* the truth lies within the policy's ε
                   of the model's class (ε = 0 for GP-UCB and phased): no numeric width, no fitted model, and nothing
                   observed so far that disproves it (`conflicts`)
    """

    x: Array
    index: int | None
    name: str | None
    mean: float
    lower: float
    upper: float
    gap: float
    guaranteed: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Conflict:
    """A point whose own band does not meet the model's: the misspecification is at least `epsilon` there."""

    x: Array
    index: int | None
    gap: float
    epsilon: float


@dataclasses.dataclass(frozen=True, eq=False)
class Actions:
    """What a round offers: rows of the domain, or points that may never have been seen before."""

    points: Array  # user units
    encoded: Array
    indices: NDArray[np.intp] | None


class Policy:
    """Base of all policies. A new one implements the hooks below; the smallest to copy is `gp_ucb.py`."""

    registry: ClassVar[dict[str, type[Policy]]] = {}
    guaranteed = True

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        Policy.registry[cls.__name__] = cls

    def __init__(self, domain: Domain, model: Model, seed: int, **settings: Any) -> None:
        check_arguments(domain, model)
        self.domain = domain
        self.model = model
        self.t = 0  # told observations
        self._settings = {"seed": whole("seed", seed), **settings}
        self._rng = np.random.default_rng(seed)
        self._queries: dict[int, Query] = {}  # pending
        self._next_id = 0
        self._events: list[tuple[Any, ...]] = []

    # -- hooks -----------------------------------------------------------------------------------------------

    def _available(self, actions: Actions | None) -> int | None:
        """How many queries can be asked now (None: any number); raises where none can."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """What asking does to the posterior before the choice: nothing that depends on the choice."""

    def _choose(self, actions: Actions | None) -> Query:
        """The next query (its id is set by the caller); changes nothing but the random state."""
        raise NotImplementedError

    def _asked(self, query: Query) -> None:
        """Record that the query was handed out."""

    def _told(self, query: Query, y: float) -> None:
        """Learn the result."""
        raise NotImplementedError

    def _dropped(self, query: Query) -> None:
        """Forget that it was asked."""

    def _observed(self, points: Array, indices: NDArray[np.intp] | None, y: Array) -> None:
        """Learn data from elsewhere (points in user units)."""
        raise NotImplementedError

    @property
    def posterior(self) -> Posterior:
        """The posterior in use: .mean and .std over a Finite domain, .at(X) anywhere."""
        raise NotImplementedError

    def band(self, X: ArrayLike | None = None) -> Band:
        """Bands for f* over a Finite domain, or at the rows of X; every term included, told data only."""
        raise NotImplementedError

    @property
    def conflicts(self) -> list[Conflict]:
        """Points whose own band does not meet the model's, with the misspecification that this proves."""
        raise NotImplementedError

    # -- ask and tell ----------------------------------------------------------------------------------------

    def ask(self, n: int | None = None, *, actions: ArrayLike | None = None) -> Any:
        """The next query, or a list of at most n. actions: 1-d integers are domain indices, 2-d floats are points."""
        if n is not None and np.ndim(n) > 0:
            raise InvalidInput("ask(n) takes a number of queries; hand in actions by name: ask(actions=…)")
        if n is not None:
            whole("n", n, at_least=1)
        offered = None if actions is None else self._parse_actions(actions)
        available = self._available(offered)
        count = 1 if n is None else n if available is None else min(n, available)
        batch: list[Query] = []
        try:
            for _ in range(count):
                batch.append(self._ask_one(offered))
        except Exception:
            for query in batch:
                self.drop(query)
            raise
        return batch[0] if n is None else batch

    def _ask_one(self, actions: Actions | None) -> Query:
        self._prepare()
        query = self._choose(actions)
        object.__setattr__(query, "id", self._next_id)
        self._register(query)
        return query

    def _register(self, query: Query) -> None:
        self._queries[query.id] = query
        self._next_id = query.id + 1
        self._asked(query)
        self._events.append(("ask", query))

    def tell(self, query: Query | int | Sequence[Query | int], y: Any) -> None:
        """The result of a query, or results of several, in any order and in parts. A failed call changes nothing."""
        batch = list(query) if isinstance(query, list | tuple | np.ndarray) else [query]
        values = vector("results", y, length=len(batch))
        known = [self._pending_query(q) for q in batch]
        if len({q.id for q in known}) != len(known):
            raise InvalidInput("a query was told twice in one call; tell each once")
        for each, value in zip(known, values.tolist(), strict=True):
            self.t += 1
            try:
                self._told(each, value)
            except Exception:
                self.t -= 1
                raise
            del self._queries[each.id]
            self._events.append(("tell", each.id, value))

    def drop(self, query: Query | int) -> None:
        """A failed evaluation: forget that it was asked."""
        known = self._pending_query(query)
        self._dropped(known)
        del self._queries[known.id]
        self._events.append(("drop", known.id))

    def observe(self, points_or_indices: ArrayLike, y: ArrayLike) -> None:
        """Data from elsewhere (a warm start): 1-d integers are domain indices, 2-d floats are points."""
        given = self._parse_actions(points_or_indices)
        values = vector("observations", y, length=len(given.points))
        self._observed(given.points, given.indices, values)
        self.t += len(values)
        stored = given.points if given.indices is None else given.indices
        self._events.append(("observe", stored.tolist(), values.tolist()))

    @property
    def pending(self) -> list[Query]:
        """Asked, neither told nor dropped."""
        return list(self._queries.values())

    @property
    def information(self) -> float:
        """Realised information of the posterior in use."""
        return self.posterior.information

    def recommend(self) -> Recommendation:
        """The maximiser of the lower band for f*, and a gap that bounds its regret."""
        self._needs_finite("recommend()")
        band = self.band()
        best = int(band.lower.argmax())
        mean = float(cast(Any, self.posterior).mean[best])
        return self._recommendation(best, mean, band, float(band.upper.max() - band.lower[best]))

    def _recommendation(self, best: int, mean: float, band: Band, gap: float) -> Recommendation:
        lower, upper = float(band.lower[best]), float(band.upper[best])
        x, name = self._candidate(best)
        return Recommendation(x, best, name, mean, lower, upper, gap, self._trusted())

    def _trusted(self) -> bool:
        """Whether what is recommended holds as far as the theory and the data can say."""
        return self.guaranteed and not self.conflicts

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self._settings.items() if k not in ("seed", "bases"))
        mark = "" if self.guaranteed else ", without guarantee"
        return f"{type(self).__name__}({self.domain!r}, {shown}; t={self.t}, pending={len(self._queries)}{mark})"

    # -- parts that policies share ---------------------------------------------------------------------------

    def _parse_actions(self, actions: ArrayLike) -> Actions:
        try:
            raw: Any = actions.to_numpy() if hasattr(actions, "to_numpy") else np.asarray(actions)
        except ValueError as error:
            raise InvalidInput(f"expected domain indices or points, one a row: {error}") from None
        if raw.ndim == 1 and raw.size and np.issubdtype(raw.dtype, np.integer):
            if not isinstance(self.domain, Finite):
                raise InvalidInput(f"indices need a Finite domain, this is {self.domain!r}; hand in points, one a row")
            indices = self.domain.validate_indices(raw)
            return Actions(self.domain.points[indices], self.domain.encoded[indices], indices)
        if raw.size == 0:
            raise InvalidInput("there is nothing to choose from or to learn: no indices or points were handed in")
        if raw.dtype == bool:
            raise InvalidInput(
                "expected domain indices or points, got True and False; np.flatnonzero(mask) gives indices"
            )
        if raw.ndim != 2:
            raise InvalidInput(
                "expected domain indices (1-d integers) or points (2-d, one a row, as in [[0.1, 0.2]]), "
                f"got {raw.dtype} of shape {raw.shape}"
            )
        points = matrix("points", raw, columns=self.domain.dimension, rows_at_least=1)
        encoded = self.domain.encode(points)
        kernels.check_bounded(self.model.kernel, encoded, "the points handed in")
        return Actions(points, encoded, None)

    def _needs_finite(self, what: str) -> Finite:
        if not isinstance(self.domain, Finite):
            raise InvalidInput(f"{what} needs a Finite domain, this is {self.domain!r}; hand in points, or box.grid(n)")
        return self.domain

    def _candidate(self, index: int) -> tuple[Array, str | None]:
        domain = cast(Finite, self.domain)
        return domain.points[index], None if domain.names is None else domain.names[index]

    def _pending_query(self, query: Any) -> Query:
        key = query.id if isinstance(query, Query) else query
        if not isinstance(key, int | np.integer) or isinstance(key, bool):
            raise InvalidInput(f"expected a Query that this policy asked, or its id, got {type(query).__name__}")
        if not isinstance(key, int | np.integer) or isinstance(key, bool) or int(key) not in self._queries:
            known = isinstance(key, int | np.integer) and 0 <= int(key) < self._next_id
            reason = "it was told or dropped before" if known else "this policy never asked it"
            raise InvalidInput(f"query {key!r} is not pending: {reason}; see policy.pending")
        found = self._queries[int(key)]
        if isinstance(query, Query) and not np.array_equal(query.x, found.x):
            raise InvalidInput(f"query {key} comes from another policy: its point differs from the one asked here")
        return found

    # -- state -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything needed to continue, JSON-able: settings, events, random state."""
        return self._state(self.domain.points.tolist() if isinstance(self.domain, Finite) else None)

    def _state(self, points: Any) -> dict[str, Any]:
        domain: dict[str, Any]
        if isinstance(self.domain, Finite):
            domain = {
                "kind": "Finite",
                "names": self.domain.names,
                "box": None if self.domain.box is None else self.domain.box.bounds,
                "sha256": _digest(self.domain),
            }
            if self.domain.points.nbytes <= LARGE:
                domain["points"] = points
        else:
            domain = {"kind": "Box", "bounds": self.domain.bounds}
        return {
            "format": VERSION,
            "policy": type(self).__name__,
            "domain": domain,
            "model": encode_model(self.model),
            "settings": copy.deepcopy(self._encoded_settings()),
            "events": [_encode_event(event) for event in self._events],
            "random": self._rng.bit_generator.state,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, atomically."""
        small = isinstance(self.domain, Finite) and self.domain.points.nbytes <= LARGE
        arrays = {"points": cast(Finite, self.domain).points} if small else {}
        storage.write(path, "policy", VERSION, self._state(None), arrays)

    def _encoded_settings(self) -> dict[str, Any]:
        return self._settings

    @classmethod
    def _decoded_settings(cls, settings: dict[str, Any], kernel: Any) -> dict[str, Any]:  # noqa: ARG003  # for subclasses
        return settings

    def _replay(self, events: list[list[Any]]) -> None:
        for kind, *rest in events:
            if kind == "ask":
                self._prepare()
                self._register(_decode_query(rest[0], self.domain))
            elif kind == "tell":
                self.tell(rest[0], rest[1])
            elif kind == "drop":
                self.drop(rest[0])
            elif kind == "observe":
                given = np.asarray(rest[0])
                self.observe(given, rest[1])
            else:
                raise StorageError(f"unknown event {kind!r} in a policy's state; was it written by a newer misspec?")


def check_arguments(domain: Any, model: Any) -> None:
    """InvalidInput unless these are a domain and a model."""
    if not isinstance(domain, Finite | Box):
        raise InvalidInput(
            f"domain must be a Finite or a Box, got {type(domain).__name__}; "
            "ms.Finite(points) or ms.Box(bounds) makes one"
        )
    if not isinstance(model, Model):
        raise InvalidInput(f"model must be a Model, got {type(model).__name__}; ms.Model(kernel, …) makes one")


def restore(state: dict[str, Any], *, kernel: Any = None, domain: Domain | None = None) -> Any:
    """A policy from its state(). A custom kernel and a domain above 10 MB are not in it: hand them in again."""
    if not isinstance(state, dict):
        raise StorageError(f"expected the dictionary that state() returns, got {type(state).__name__}")
    try:
        if state["format"] > VERSION:
            raise StorageError(f"this state has format {state['format']}, newer than {VERSION}; update misspec")
        cls = Policy.registry[state["policy"]]
        model = decode_model(state["model"], kernel)
        settings = cls._decoded_settings(state["settings"], kernel)
        events, random = state["events"], state["random"]
        policy = cast(Any, cls)(_decode_domain(state["domain"], domain), model, **settings)
    except KeyError as error:
        raise StorageError(f"not a policy's state, or of a policy that is not imported: {error} is missing") from None
    policy._replay(events)
    policy._rng.bit_generator.state = random
    return policy


def load(path: str | os.PathLike[str], *, kernel: Any = None, domain: Domain | None = None) -> Any:
    """A policy from a file written by save(); a custom kernel and a domain above 10 MB must be handed in again."""
    state, _, arrays = storage.read(path, "policy", VERSION)
    if "points" in arrays:
        state["domain"]["points"] = arrays["points"]
    return restore(state, kernel=kernel, domain=domain)


def _digest(domain: Finite) -> str:
    return hashlib.sha256(domain.points.tobytes() + domain.encoded.tobytes()).hexdigest()


def _decode_domain(stored: dict[str, Any], given: Domain | None) -> Domain:
    if stored["kind"] == "Box":
        return Box(stored["bounds"])
    if stored.get("points") is not None:
        box = None if stored["box"] is None else Box(stored["box"])
        found = Finite(stored["points"], stored["names"], box=box)
        if given is not None and (not isinstance(given, Finite) or _digest(given) != stored["sha256"]):
            raise StorageError("this state holds its domain, and the one handed in differs from it; leave domain= out")
        return found
    if not isinstance(given, Finite):
        raise StorageError("the domain was too large to be stored; hand it in again: load(path, domain=…)")
    if _digest(given) != stored["sha256"]:
        raise StorageError(
            "the domain handed in is not the one that this policy was made with: its points differ, or its box does"
        )
    return given


def _encode_event(event: tuple[Any, ...]) -> list[Any]:
    if event[0] != "ask":
        return copy.deepcopy(list(event))
    query = event[1]
    fields = {f.name: getattr(query, f.name) for f in dataclasses.fields(query) if f.name not in ("x", "name")}
    if query.index is None:
        fields["x"] = query.x.tolist()
    return ["ask", copy.deepcopy(fields)]


def _decode_query(fields: dict[str, Any], domain: Domain) -> Query:
    x, name = fields.get("x"), None
    if fields["index"] is not None:
        finite = cast(Finite, domain)
        x = finite.points[fields["index"]]
        name = None if finite.names is None else finite.names[fields["index"]]
    return Query(**{**fields, "x": np.asarray(x, dtype=np.float64), "name": name})
