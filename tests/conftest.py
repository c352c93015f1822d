import signal

import pytest
from hypothesis import settings

from misspec import Policy
from neighbours import needs_botorch

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("repeatable")
Policy.clock = staticmethod(lambda: 0.0)  # states of policies that were played alike are equal


def pytest_runtest_setup(item):
    if item.get_closest_marker("botorch"):
        needs_botorch()


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are made but not drawn, which takes most of the time of a report: for tests that do not look at them."""
    from misspec.reports import matplotlib_backend

    monkeypatch.setattr(matplotlib_backend, "saved", lambda figure, suffix: b"")


# In the background a shell has interrupts ignored, and so would the processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
