"""Records what every policy does over 300 rounds or more, and compares it after a change of the code.

    python tools/traces.py record FILE.json [NAME …]     before a change
    python tools/traces.py compare FILE.json [NAME …]    after it: same decisions, numbers to 1e-10

Rounds are single, in batches told in any order, left pending, dropped, contextual (indices and new points), and warm
starts come in between. `--in-order` tells every batch in the order asked: what does not depend on the order of telling.
On another machine a search on a box may end elsewhere: record and compare on the same one.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # with two, the last bits differ

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "contract"))
from test_policies import BOX, DOMAIN, ON_A_BOX, POLICIES, truth

from misspec import HorizonReached

ROUNDS = 320
TOLERANCE = 1e-10
NUMBERS = ("mean", "std", "multiplier", "enlargement", "upper")


def trace(make: Callable[[int], Any], name: str, on_box: bool, in_order: bool) -> list[Any]:
    """What was asked and answered, as JSON."""
    policy, rng = make(7), np.random.default_rng(11)
    phased, thompson = name.startswith("phased"), name.startswith("thompson")
    probes = BOX.decode(np.random.default_rng(8).random((40, 2))) if on_box else DOMAIN.points
    found: list[Any] = []

    def result(query: Any) -> float:
        value = 0.2 + math.sin(2 * query.x[0]) * query.x[1] if on_box else truth(query.x)
        return value + 0.1 * np.random.default_rng([3, query.id]).standard_normal()

    def note(queries: list[Any]) -> None:
        for q in queries:
            numbers = [float(getattr(q, field)) for field in NUMBERS]
            found.append(["ask", q.index, q.position, q.x.tolist(), numbers, q.details.get("base")])

    def look() -> None:
        band, best = policy.band(probes), policy.recommend()
        mean, std = policy.posterior.at(probes)
        found.append(["band", band.lower.tolist(), band.upper.tolist(), mean.tolist(), std.tolist()])
        found.append(["best", best.index, best.x.tolist(), best.mean, best.lower, best.upper, best.gap])
        found.append(["facts", policy.t, policy.information, len(policy.pending)])

    asked = 0
    late: list[Any] = []
    while asked < ROUNDS:
        kind = rng.choice(["one", "one", "one", "batch", "late", "drop", "rows", "points", "observe"])
        wanted, actions = (int(rng.integers(2, 6)) if kind in ("batch", "drop") else 1), None
        rows = rng.choice(len(probes), 7, replace=False)
        moved = probes[rows] * (1 - 0.1 * rng.random((7, 1)))
        shuffled, spare = rng.random(64), rng.random()
        if not phased and kind in ("rows", "points"):
            points = on_box or (kind == "points" and not thompson)
            actions = moved if points else rows
        if not phased and kind == "observe":
            points = moved[:2] if on_box or not thompson else probes[rows[:2]]
            policy.observe(points, [truth(p) if not on_box else 0.2 for p in points])
            continue
        if phased and policy.remaining == 0:
            policy.tell(late, [result(q) for q in late])
            late = []
        try:
            queries = policy.ask(wanted, actions=actions)
        except HorizonReached:  # of a phased policy made for 300
            break
        note(queries)
        asked += len(queries)
        if kind == "drop":
            policy.drop(queries.pop(int(spare * len(queries))))
        if kind == "late" and len(late) < 6:
            late += queries
            continue
        order = np.argsort(shuffled[: len(queries)])
        ready = queries if in_order else [queries[i] for i in order]
        if late and spare < 0.3:
            ready = [*late, *ready]
            late = []
        if in_order and late:  # nothing is told before what was asked before it
            late += ready
            continue
        policy.tell(ready, [result(q) for q in ready])
        if asked % 10 == 0:
            look()
    look()
    return found


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """Where two traces differ by more than the tolerance. A number that is unset was 0 once, and is NaN now."""
    if isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            return [f"{where}: {len(old)} entries, now {len(new)}"]
        pairs = enumerate(zip(old, new, strict=True))
        return [each for i, (a, b) in pairs for each in differences(a, b, f"{where}[{i}]")]
    if isinstance(old, float) and isinstance(new, float | int):
        same = (math.isnan(new) and (math.isnan(old) or old == 0.0)) or abs(old - new) <= TOLERANCE * max(1.0, abs(old))
        return [] if same else [f"{where}: {old!r}, now {new!r}"]
    return [] if old == new else [f"{where}: {old!r}, now {new!r}"]


def main(command: str, path: str, *names: str) -> None:
    in_order = "--in-order" in names
    chosen = {name for name in names if not name.startswith("--")}
    every = {f"{name} on arms": (make, False) for name, make in POLICIES.items()}
    every |= {f"{name} on a box": (make, True) for name, make in ON_A_BOX.items()}
    file = Path(path)
    kept = json.loads(file.read_text()) if file.exists() else {}
    for name, (make, on_box) in every.items():
        if (chosen and name not in chosen) or (command == "compare" and name not in kept):
            continue
        start = time.perf_counter()
        found = json.loads(json.dumps(trace(make, name, on_box, in_order)))
        seconds = time.perf_counter() - start
        if command == "record":
            kept[name] = found
            file.write_text(json.dumps(kept))
            print(f"{name}: recorded {len(found)} answers, {seconds:.1f} s", flush=True)
        else:
            differ = differences(kept[name], found)
            print(f"{name}: {'same' if not differ else f'{len(differ)} differences'}, {seconds:.1f} s", flush=True)
            for line in differ[:4]:
                print("   ", line)


if __name__ == "__main__":
    main(*sys.argv[1:])
