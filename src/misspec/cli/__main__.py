"""`python -m misspec.cli`."""

from misspec.cli import main

main()
