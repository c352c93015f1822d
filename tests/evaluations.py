"""Functions that worker processes evaluate: they import this module by name."""

import os
import pathlib
import random
import signal
import sys
import time


def smooth(x):
    return 1.0 - (float(x[0]) - 0.3) ** 2


def chance(_):
    return random.SystemRandom().random()


class Untold(Exception):
    """An exception that cannot be made again from its arguments: pickle fails."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def untold(_):
    raise Untold("broken", "lost")


def broken(_):
    raise ZeroDivisionError("broken machine")


def leaves(_):
    sys.exit(3)


def nothing(_):
    return None


class Deadly:
    """Kills its process at points above `above`, `times` times at each: the marks are files in a folder."""

    def __init__(self, folder, above, times):
        self.folder, self.above, self.times = str(folder), above, times

    def __call__(self, x):
        if float(x[0]) > self.above:
            for number in range(self.times):
                try:
                    mark = pathlib.Path(self.folder, f"{float(x[0])!r}-{number}")
                    mark.touch(exist_ok=False)
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
        return smooth(x)


class Forking:
    """Leaves a child behind and kills its process, the first time above `above`; the child's id is the name of a
    file."""

    def __init__(self, folder, above=0.0):
        self.folder, self.above = str(folder), above

    def __call__(self, x):
        if float(x[0]) > self.above and not any(pathlib.Path(self.folder).iterdir()):
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            pathlib.Path(self.folder, str(child)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return smooth(x)


class Lasting:
    """Says which process it runs in, and takes for ever."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self, _):
        pathlib.Path(self.folder, str(os.getpid())).touch()
        time.sleep(600)
