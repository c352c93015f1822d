"""`Auto`, which needs no constants."""

from misspec.policies.auto.policy import Auto

__all__ = [
    "Auto",
]
