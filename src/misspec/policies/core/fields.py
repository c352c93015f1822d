"""Which field a domain has, and domains from their states: the only place that asks for their kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from misspec.domains import Box, Domain, Finite, Joint, Open, Space
from misspec.errors import InvalidInput, StorageError, shown
from misspec.policies.core.field import DIFFERS, Field
from misspec.policies.core.joint_field import JointField
from misspec.policies.core.listed import FiniteField, MembersField
from misspec.policies.core.open_field import OpenField
from misspec.policies.core.searched import BoxField, OfSpace, SpaceField

WHOLE = 20_000  # members of a space without floats up to which all of them are scored


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
        return JointField(domain, field_of(domain.domain, seed, resolution), field_of(domain.contexts, 0, 0.0))
    if hasattr(domain, "field"):
        own: Field = domain.field(seed, resolution)
        return own
    raise InvalidInput(
        f"domain must be a Finite or a Box, got {type(domain).__name__}; or a Space of named parameters: "
        "ms.Finite(points), ms.Box(bounds) or ms.Space(parameters) makes one; ms.Open and ms.Joint are for contexts"
    )


def stored_domain(stored: Any, given: Domain | None) -> Domain:
    """A domain from its state; one that was not stored is the one handed in."""
    kinds: dict[str, Callable[..., Domain]] = {
        "Finite": FiniteField.restored,
        "Box": BoxField.restored,
        "Space": OfSpace.restored,
        "Open": _open,
        "Joint": _joint,
    }
    kind = stored.get("kind") if isinstance(stored, dict) else None
    if not isinstance(kind, str):
        raise StorageError(f"a stored domain must say its kind, got {shown(stored)}")
    if given is not None and getattr(given, "kind", None) != kind:
        raise StorageError(f"this policy was made on a {kind} domain, got {shown(given)}; leave domain= out")
    if kind in kinds:
        return kinds[kind](stored, given)
    if given is None:
        raise StorageError(f"a domain of kind {kind!r} is not stored; hand it in again: restore(…, domain=…)")
    return given


def _open(stored: dict[str, Any], given: Open | None) -> Open:
    settings = stored.get("open")
    if not isinstance(settings, dict) or set(settings) != {"dimension", "radius", "box"}:
        raise StorageError(f"a stored Open domain must have dimension, radius and box, got {shown(settings)}")
    found = Open(**settings)
    if given is not None and given.settings() != found.settings():
        raise StorageError(DIFFERS)
    return found


def _joint(stored: dict[str, Any], given: Joint | None) -> Joint:
    parts = (None, None) if given is None else (given.domain, given.contexts)
    x, c = (stored_domain(stored.get(name), part) for name, part in zip(("domain", "contexts"), parts, strict=True))
    return Joint(x, c)  # type: ignore[arg-type]  # it says what it does not take
