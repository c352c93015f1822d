"""Tests of what a bare `make test` does not install."""

import importlib.util
import os

import pytest


def needs_botorch():
    """Skip without BoTorch, which brings gigabytes; where MISSPEC_REQUIRE_BOTORCH is set, fail instead."""
    if importlib.util.find_spec("botorch") is None:
        if os.environ.get("MISSPEC_REQUIRE_BOTORCH"):
            pytest.fail("these tests must not skip here, and there is no BoTorch: install the extra `botorch`")
        pytest.skip("BoTorch is not installed; `make test-botorch` installs it", allow_module_level=True)
