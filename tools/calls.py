"""Counts the Python calls inside the package that one `ask` and one `tell` of an Auto make, and times them.

    python tools/calls.py            the counts, by module where -v is given
    python tools/calls.py -v

The space has three parameters, of which all kinds are one, and the model stands: neither call renews it.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import misspec as ms

PACKAGE = str(Path(ms.__file__).parent)
RESULTS = 30  # told before: eight samples of the model, exact posteriors
REPEATS = 12  # rounds that are timed; the fastest counts, since others may use the machine


def calls(work: Callable[[], Any]) -> Counter[str]:
    """Python calls of functions of the package while `work` runs, by file and name."""
    found: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            found[f"{code.co_filename.removeprefix(PACKAGE + os.sep)}: {code.co_qualname}"] += 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def value(query: ms.policies.Query) -> float:
    """A result, without noise."""
    params: Any = query.params
    return math.sin(3 * params["a"]) + 0.1 * params["n"] + (0.3 if params["kind"] == "two" else 0.0)


def main(*options: str) -> None:
    space = ms.Space({"a": ms.Float(0, 1), "n": ms.Int(1, 12), "kind": ms.Choice(["one", "two", "three"])})
    policy = ms.Auto(space, noise=0.1, seed=1)
    for _ in range(RESULTS):
        query = policy.ask()
        policy.tell(query, value(query))
    policy.refresh()
    query = policy.ask()
    counts = {"tell": calls(lambda: policy.tell(query, value(query))), "ask": calls(policy.ask)}
    for name, found in counts.items():
        print(f"{name}: {found.total():,} calls in {len({key.split(':')[0] for key in found})} modules")
        for key, count in found.most_common(40) if "-v" in options else ():
            print(f"    {count:6,}  {key}")
    policy.drop(policy.pending)
    asking, telling = [], []
    for _ in range(REPEATS):
        samples, start = policy.samples, time.perf_counter()
        query = policy.ask()
        asked = time.perf_counter()
        policy.tell(query, value(query))
        if policy.samples == samples:  # a round that renewed the model is another matter
            asking.append(asked - start)
            telling.append(time.perf_counter() - asked)
    print(f"seconds: ask {min(asking):.4f}, tell {min(telling):.5f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
