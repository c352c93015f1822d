"""The field and the active set that suit a domain, and domains to and from their states.

`field_of` alone asks which kind of domain it is. A space without floats and with at most 20,000 members is searched
whole, as a list is.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from misspec.domains import Box, Domain, Finite, Joint, Open, Space, Table
from misspec.domains.parameters import decode_parameter
from misspec.encoding import decode_array, encode_array
from misspec.errors import InvalidInput, StorageError, shown
from misspec.model import Model
from misspec.policies.core.active import Arms, LevelSets
from misspec.policies.core.contextual import JointField, OpenField
from misspec.policies.core.field import BoxField, Field, FiniteField, MembersField, SpaceField
from misspec.theory.own_bands import OwnBands

WHOLE = 20_000  # members of a space without floats up to which all of them are scored
LARGE = 10_000_000  # bytes of points above which a domain is stored as a hash
Active = Arms | LevelSets


def field_of(domain: Any, seed: int, resolution: float) -> Field:
    """The field of a domain. The only place that asks which kind of domain it is."""
    if isinstance(domain, Finite):
        return FiniteField(domain)
    if isinstance(domain, Box):
        return BoxField(domain, seed, resolution)
    if isinstance(domain, Space):
        few = domain.size is not None and domain.size <= WHOLE
        return MembersField(domain) if few else SpaceField(domain, seed, resolution)
    if isinstance(domain, Open):
        return OpenField(domain)
    if isinstance(domain, Joint):
        return JointField(domain, field_of(domain.domain, seed, resolution))
    if hasattr(domain, "field"):
        own: Field = domain.field(seed, resolution)
        return own
    raise InvalidInput(
        f"domain must be a Finite or a Box, got {type(domain).__name__}; or a Space of named parameters: "
        "ms.Finite(points), ms.Box(bounds) or ms.Space(parameters) makes one; ms.Open and ms.Joint are for contexts"
    )


def active_of(
    field: Field, model: Model, own: OwnBands | None, *, seed: int, resolution: float, intersect: bool
) -> Active:
    """The whole domain as a set from which a phased policy eliminates; intersect: by the bands of several episodes."""
    if not field.fixed:
        raise InvalidInput(f"eliminating needs a fixed set, not {shown(field.domain)}; use RegretBalancing")
    if field.listed is None:
        if intersect:
            raise InvalidInput("intersect=True is for finitely many points; leave it out, or take box.cover(n)")
        return LevelSets(field.domain, model, own, seed, resolution)
    return Arms(field.listed, model, own, functools.partial(field.place, field.whole("")))


# -- states ------------------------------------------------------------------------------------------------------------


def state_of(domain: Any) -> dict[str, Any]:
    """A domain as JSON, except large arrays; only the kind of one that is not of this library."""
    kind = _kind(domain)
    if kind in SETTINGS:
        return {"kind": kind, SETTINGS[kind][0]: domain.settings()}
    if kind == Joint.kind:
        return {"kind": kind, "domain": state_of(domain.domain), "contexts": state_of(domain.contexts)}
    if kind != Finite.kind:
        return {"kind": kind}
    stored = {"kind": kind, "names": domain.names, "box": None, "sha256": _digest(domain)}
    if domain.points.nbytes > LARGE:
        return stored
    return {**stored, **domain.settings(), "points": encode_array(domain.points)}


def stored_domain(stored: Any, given: Any) -> Domain:
    """A domain from its state; one that was not stored is the one handed in."""
    kind = stored.get("kind") if isinstance(stored, dict) else None
    if not isinstance(kind, str):
        raise StorageError(f"a stored domain must say its kind, got {shown(stored)}")
    if given is not None and _kind(given) != kind:
        raise StorageError(f"this policy was made on a {kind} domain, got {shown(given)}; leave domain= out")
    if kind in SETTINGS:
        name, make = SETTINGS[kind]
        settings = stored.get(name)
        functions = isinstance(settings, dict) and None in (settings.get("where") or ())
        if functions and given is None:
            raise StorageError(FUNCTIONS)
        domain: Domain = given if functions else make(settings)
        wanted = settings if functions else domain.settings()  # type: ignore[attr-defined]  # of this kind
        if given is not None and given.settings() != wanted:
            raise StorageError(UNLIKE if functions else DIFFERS)
        return domain
    if kind == Joint.kind:
        parts = [stored_domain(stored.get(name), getattr(given, name, None)) for name in ("domain", "contexts")]
        return Joint(*parts)  # type: ignore[arg-type]  # it says what it does not take
    if kind == Finite.kind:
        return _stored_list(stored, given)
    if given is None:
        raise StorageError(f"a domain of kind {kind!r} is not stored; hand it in again: restore(…, domain=…)")
    return given  # type: ignore[no-any-return]  # a domain of its own kind


def _kind(domain: Any) -> str:
    return str(getattr(domain, "kind", type(domain).__name__))


def _stored_space(settings: Any) -> Space:
    try:
        kept = settings if isinstance(settings, dict) else {"parameters": settings, "where": None}
        return Space([(name, decode_parameter(each)) for name, each in kept["parameters"]], where=kept["where"])
    except (InvalidInput, TypeError, ValueError, KeyError) as error:
        raise StorageError(f"a stored space cannot be made: {error}") from None


def _stored_box(settings: Any) -> Box:
    if isinstance(settings, dict):
        return Box(settings.get("bounds", ()), where=settings.get("where"))
    return Box(() if settings is None else settings)


def _stored_open(settings: Any) -> Open:
    if not isinstance(settings, dict) or set(settings) != {"dimension", "radius", "box"}:
        raise StorageError(f"a stored Open domain must have dimension, radius and box, got {shown(settings)}")
    return Open(**settings)


SETTINGS: dict[str, tuple[str, Callable[[Any], Domain]]] = {  # kinds that their settings make: where these are stored
    Box.kind: ("bounds", _stored_box),
    Space.kind: ("parameters", _stored_space),
    Open.kind: ("open", _stored_open),
}
FUNCTIONS = "the domain has rules that are functions, which are not stored; hand it in again: restore(…, domain=…)"
DIFFERS = "this state holds its domain, and the one handed in differs from it; leave domain= out"
UNLIKE = "the domain handed in is not the one that this policy was made with: its points, names, rules or box differ"


def _stored_list(stored: dict[str, Any], given: Any) -> Finite:
    points, digest, names = (stored.get(name) for name in ("points", "sha256", "names"))
    if given is None and points is None:
        raise StorageError("the domain was too large to be stored; hand it in again: load(path, domain=…)")
    domain: Finite = _made_list(stored) if given is None else given
    same = points is None or np.array_equal(domain.points, decode_array("stored points", points))
    if same and _digest(domain) == digest and (given is None or given.names == names):
        return domain
    if given is not None:
        raise StorageError(UNLIKE if points is None else DIFFERS)
    raise StorageError(
        "the stored points are not those that the policy was made with: they were edited, or the domain encodes its "
        "points in a way of its own; hand it in again: domain=…"
    )


def _made_list(stored: dict[str, Any]) -> Finite:
    names, table, bounds, space = (stored.get(name) for name in ("names", "table", "box", "space"))
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise StorageError(f"stored names must be a list of text, got {shown(names)}")
    if table is not None:
        try:
            where = table.get("where")
            if where is not None and None in where:
                raise StorageError(FUNCTIONS)
            names = table["names"] if where is not None else names  # of all rows
            return Table(dict(table["columns"]), table["target"], table["ignore"], names, where=where)
        except (InvalidInput, TypeError, ValueError, KeyError) as error:
            raise StorageError(f"a stored table cannot be made: {error}") from None
    box = Box(bounds) if bounds is not None else None if space is None else _stored_space(space)
    return Finite(decode_array("stored points", stored.get("points")), names, box=box)


def _digest(domain: Finite) -> str:
    return hashlib.sha256(domain.points.tobytes() + domain.encoded.tobytes()).hexdigest()
