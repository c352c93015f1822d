"""Records what every policy does on every kind of domain, and compares it after a change of the code.

    python tools/traces.py record FILE.json [REGEX]     before a change
    python tools/traces.py compare FILE.json [REGEX]    after it: same decisions, numbers to 1e-10

Queries are single, in batches told in any order, told late, dropped and chosen by others; on lists rounds offer some
rows or new points; results are observed in between, and every policy is restored from its state half-way.
On another machine a search may end elsewhere: record and compare on the same one.
"""

from __future__ import annotations

import copy
import functools
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # with two, the last bits differ

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "unit"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "contract"))
import test_contexts
import test_policies as contract

import misspec as ms

ROUNDS, LEARNING_ROUNDS, CONTEXT_ROUNDS = 160, 50, 60  # a policy that learns its model takes longer per round
LOOK = 10  # rounds between two looks at bands and recommendations: these cost as much as rounds
TOLERANCE = 1e-10
NUMBERS = ("mean", "std", "multiplier", "enlargement", "upper")


def result(query: Any) -> float:
    """A value of the query's point and context with noise of its own."""
    context = 0.0 if query.context is None else float(np.cos(query.context).sum())
    noise = 0.1 * np.random.default_rng([3, query.id]).standard_normal()
    return 0.2 + math.sin(2 * float(query.x[0])) * math.cos(float(query.x[-1])) + 0.2 * context + noise


class Recorder:
    """One policy, driven by a random script that does not depend on what it answers."""

    def __init__(self, make: Callable[[int], Any], rounds: int, offer: Callable[[Any], dict[str, Any]] | None) -> None:
        self.policy, self.rounds, self.offer = make(7), rounds, offer
        self.rng = np.random.default_rng(11)
        self.answers: list[Any] = []
        self.late: list[Any] = []

    def run(self) -> list[Any]:
        asked, restored = 0, False
        while asked < self.rounds:
            kind = str(self.rng.choice(["one", "one", "one", "batch", "late", "drop", "rows", "observe", "others"]))
            wanted = int(self.rng.integers(2, 6)) if kind in ("batch", "drop") else 1
            seed = int(self.rng.integers(1 << 30))
            if kind in ("observe", "others"):
                asked += self.foreign(kind, seed)
                continue
            try:
                queries = self.ask(kind, wanted, seed)
            except ms.HorizonReached:
                break
            asked += len(queries)
            self.tell(kind, queries, seed)
            if not restored and asked > self.rounds // 2:
                self.policy, restored = ms.restore(self.policy.state()), True
                self.late = [q for q in self.policy.pending if q.id in {query.id for query in self.late}]
            if asked % LOOK == 0:
                self.look(seed)
        self.look(0)
        return self.answers

    def ask(self, kind: str, wanted: int, seed: int) -> list[Any]:
        offer = self.offer(np.random.default_rng(seed)) if self.offer else {}
        if self.policy.remaining == 0:
            self.policy.tell(self.late, [result(q) for q in self.late])
            self.late = []
        if kind == "rows" and not self.offer and isinstance(self.policy.domain, ms.Finite):
            offer = {"actions": np.random.default_rng(seed).choice(len(self.policy.domain.points), 7, replace=False)}
        try:
            queries = self.policy.ask(wanted, **offer)
        except ms.InvalidInput as error:  # an episodic policy takes no actions
            self.answers.append(["refused", str(error)])
            queries = self.policy.ask(wanted)
        for q in queries:
            numbers = [float(getattr(q, name)) for name in NUMBERS]
            self.answers.append(["ask", q.index, q.position, q.x.tolist(), numbers, dict(q.details)])
        return list(queries)

    def tell(self, kind: str, queries: list[Any], seed: int) -> None:
        rng = np.random.default_rng(seed)
        if kind == "drop":
            self.policy.drop(queries.pop(int(rng.integers(len(queries)))))
        if kind == "late" and len(self.late) < 6:
            self.late += queries
            return
        ready = [queries[i] for i in rng.permutation(len(queries))]
        if self.late and rng.random() < 0.3:
            ready, self.late = [*self.late, *ready], []
        self.policy.tell(ready, [result(q) for q in ready])

    def foreign(self, kind: str, seed: int) -> int:
        """Results, or queries, that others chose; the number of queries."""
        rng = np.random.default_rng(seed)
        domain = self.policy.domain
        offer = self.offer(rng) if self.offer else {}
        if isinstance(domain, ms.Joint):
            domain = domain.domain
        if isinstance(domain, ms.Open):
            points = offer.pop("actions")[:2]
        elif isinstance(domain, ms.Finite):
            points = rng.choice(len(domain.points), 2, replace=False)
        else:
            cover = domain.decode(domain.spread(64, 0))
            points = cover[rng.choice(len(cover), 2, replace=False)]
        try:
            if kind == "observe":
                self.policy.observe(points, [0.1, 0.4], **offer)
                return 0
            queries = self.policy.mark_pending(points, **offer)
        except ms.MisspecError as error:  # an episodic policy takes no results from elsewhere
            self.answers.append(["refused", type(error).__name__])
            return 0
        self.policy.tell(queries[::-1], [result(q) for q in queries[::-1]])
        return len(queries)

    def look(self, seed: int) -> None:
        policy, offer = self.policy, self.offer(np.random.default_rng(seed)) if self.offer else {}
        if isinstance(policy, ms.Auto) and policy.stale:
            policy = copy.deepcopy(policy)  # a look changes nothing
            policy.refresh()
        best = policy.recommend(**offer)
        X = best.x[None] if self.offer or not isinstance(policy.domain, ms.Finite) else policy.domain.points
        band = policy.band(X, **{name: value for name, value in offer.items() if name == "context"})
        self.answers.append(["band", band.lower.tolist(), band.upper.tolist()])
        self.answers.append(["best", best.index, best.x.tolist(), best.mean, best.lower, best.upper, best.gap])
        conflicts = [[c.x.tolist(), c.gap] for c in policy.conflicts()]
        self.answers.append(["facts", policy.t, policy.asked, len(policy.pending), policy.guaranteed, conflicts])


def _seeded(make: Callable[..., Any], domain: Any, seed: int) -> Any:
    return make(domain, seed=seed)


def subjects() -> Iterator[tuple[str, Recorder]]:
    for name, make in contract.POLICIES.items():
        yield f"{name} on arms", Recorder(make, ROUNDS, None)
    for name, make in contract.ON_A_BOX.items():
        yield f"{name} on a box", Recorder(make, ROUNDS // 2, None)
    for name, make in contract.WITH_NAMES.items():
        yield name, Recorder(make, ROUNDS // 2, None)
    for name, make in contract.LEARNING.items():
        yield name, Recorder(make, LEARNING_ROUNDS, None)
    for world in test_contexts.FEW:
        domain, offer = test_contexts.WORLDS[world]
        for name, of in {**test_contexts.POLICIES, "auto": ms.Auto}.items():
            try:
                of(domain, seed=7)
            except ms.MisspecError:  # this policy needs a list that is the same in all rounds
                continue
            rounds = LEARNING_ROUNDS if name == "auto" else CONTEXT_ROUNDS
            yield f"{name} on {world}", Recorder(functools.partial(_seeded, of, domain), rounds, offer)


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """Where two traces differ by more than the tolerance."""
    if isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            return [f"{where}: {len(old)} entries, now {len(new)}"]
        pairs = enumerate(zip(old, new, strict=True))
        return [line for i, (a, b) in pairs for line in differences(a, b, f"{where}[{i}]")]
    if isinstance(old, float) and isinstance(new, float | int):
        same = old == new or abs(old - new) <= TOLERANCE * max(1.0, abs(old)) or (math.isnan(old) and math.isnan(new))
        return [] if same else [f"{where}: {old!r}, now {new!r}"]
    return [] if old == new else [f"{where}: {old!r}, now {new!r}"]


def main(command: str, path: str, pattern: str = "") -> None:
    file = Path(path)
    kept = json.loads(file.read_text()) if file.exists() else {}
    changed = 0
    for name, recorder in subjects():
        if not re.search(pattern, name) or (command == "compare" and name not in kept):
            continue
        start = time.perf_counter()
        answers = json.loads(json.dumps(recorder.run(), default=float))
        seconds = time.perf_counter() - start
        if command == "record":
            kept[name] = answers
            print(f"{name}: recorded {len(answers)} answers, {seconds:.1f} s", flush=True)
            continue
        differ = differences(kept[name], answers)
        changed += bool(differ)
        if differ:
            print(f"{name}: {len(differ)} differences, {seconds:.1f} s", flush=True)
        for line in differ[:4]:
            print("   ", line)
    if command == "record":
        file.write_text(json.dumps(kept))
    else:
        print(f"{changed} policies differ")
    sys.exit(1 if changed else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
