"""Any command as the black box: `misspec optimize`."""

from misspec.errors import extra

with extra("optuna", "misspec.integrations.command"):
    from misspec.integrations.command.runs import EVALUATIONS, STORAGE, Progress, Result, go
    from misspec.integrations.command.words import Command, Failure

__all__ = ["EVALUATIONS", "STORAGE", "Command", "Failure", "Progress", "Result", "go"]
