"""The next experiments from CSV files that people edit: `misspec suggest`."""

from misspec.integrations.suggest.reasons import Proposal
from misspec.integrations.suggest.suggesting import Suggestion, append, suggest

__all__ = ["Proposal", "Suggestion", "append", "suggest"]
