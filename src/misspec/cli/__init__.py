"""The command line: parses and prints."""

from misspec.cli import experiments, models, optimisation  # noqa: F401  # they add their commands
from misspec.cli.app import app, main

__all__ = ["app", "main"]
