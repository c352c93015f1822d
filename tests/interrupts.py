"""Ctrl-C at a given line of the code under test."""

import sys


class Interrupt:
    """Ctrl-C at the n-th line that is run in some files, and again some lines later."""

    def __init__(self, *after, files):
        self.after, self.files = list(after), files

    def __call__(self, frame, event, _):
        if frame.f_code.co_filename.endswith(self.files):
            if event == "line" and self.after:
                self.after[0] -= 1
                if self.after[0] < 0:
                    self.after.pop(0)
                    raise KeyboardInterrupt
            return self
        return None

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self)

    def __exit__(self, *_):
        sys.settrace(self.before)
