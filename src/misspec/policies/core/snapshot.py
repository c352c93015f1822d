"""A snapshot: the event that stands for all before it, where their results are summed up in arrays of bounded size.

It holds the posteriors' arrays, own bands, counts, pending queries and what the policy keeps of its own. Replaying it
restores them to the bit, so that a policy that goes on from it and one that was restored from it are the same.

Where rounds bring their own points (`Open`, and `Joint` on a list), points that were told once are forgotten: their
results are in the sums, and their own bands are dropped. On a list all points stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from misspec import snapshots
from misspec.errors import InvalidInput, StorageError, shown

if TYPE_CHECKING:
    from misspec.policies.core.policy import Policy


def taken(policy: Policy, history: int | None) -> dict[str, Any]:
    """The snapshot of a policy; InvalidInput where it has none."""
    reason = policy.unsummed()
    content = {}
    if not reason:
        content = policy._evidence.snapshot(forget=not policy.field.size)
        if None in content["posteriors"]:
            reason = "its kernel has no features of bounded number; budget=… bounds them"
    if reason:
        raise InvalidInput(f"{type(policy).__name__} cannot be compacted: {reason}")
    own = {name: snapshots.kept(getattr(policy, name)) for name in policy.counters}
    return {"log": policy.log.snapshot(), "history": history, "counters": own, **content}


def resume(policy: Policy, content: Any) -> None:
    """Let a policy go on from a snapshot of one that was made in the same way."""
    parts = {"log", "history", "counters", "own", "posteriors", "layers", "expected"}
    if not isinstance(content, dict) or set(content) != parts or set(content["counters"]) != set(policy.counters):
        raise StorageError(f"a snapshot must have {', '.join(sorted(parts))}, got {shown(content)}")
    policy.log.resume(content)
    policy._evidence.resume(content, policy.log.pending)
    for name, stored in content["counters"].items():
        setattr(policy, name, snapshots.given(stored, getattr(policy, name)))
