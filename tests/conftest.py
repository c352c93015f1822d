import signal

from hypothesis import settings

from misspec import Policy

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("repeatable")
Policy.clock = staticmethod(lambda: 0.0)  # states of policies that were played alike are equal

# In the background a shell has interrupts ignored, and so would the processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
