"""Own bands from the list of what happened: which rank each point pays for, and which of its results count."""

import math

import numpy as np
import pytest

from misspec.theory.own_bands import OwnBands

NOISE, DELTA, SIZE = 0.3, 0.05, 25


def bands(log, size):
    """(lower, upper) by point, from a log of events:

    ("ask", point, query, others)   others: None, or how many more queries their call has
    ("tell", point, query, y), ("drop", point, query)
    ("observe", points, results)
    """
    rank, results = {}, {}
    for number, (kind, *rest) in enumerate(log):
        if kind == "observe":
            points, ys = rest
            last = len(rank) + len(set(points) - set(rank))
            for point in points:  # a list charges N for each; else all new ones pay for the last of their call
                rank.setdefault(point, size or last)
            for row, (point, y) in enumerate(zip(points, ys, strict=True)):
                results.setdefault(point, {})[number, row] = y
        elif kind == "ask":
            point, query, others = rest
            mine = others is None
            rank.setdefault(point, len(rank) + 1 if mine else size or len(rank) + 1 + others)
            results.setdefault(point, {})[query] = None
        elif kind == "tell":
            results[rest[0]][rest[1]] = rest[2]
        else:
            del results[rest[0]][rest[1]]
    found = {}
    for point, told in results.items():
        ys = list(told.values())
        ys = ys[: ys.index(None)] if None in ys else ys  # in the order asked, up to the first that is pending
        n, j = len(ys), rank[point]
        if n:
            radius = NOISE * math.sqrt(2 * math.log(math.pi**2 * n**2 * j * (j + 1) / (3 * DELTA)) / n)
            found[point] = (sum(ys) / n - radius, sum(ys) / n + radius)
    return found


@pytest.mark.parametrize("size", [SIZE, 0], ids=["list", "elsewhere"])
@pytest.mark.parametrize("seed", range(5))
def test_ranks_and_averages(seed, size):
    rng, own, log, pending, next_id = np.random.default_rng(seed), OwnBands(NOISE, DELTA, size), [], [], 0
    names = list(range(SIZE)) if size else [bytes([i]) for i in range(SIZE)]

    def some(n):
        return [names[i] for i in rng.integers(0, SIZE, n)]

    for _ in range(60):
        what = rng.choice(["ask", "others", "tell", "drop", "observe"], p=[0.35, 0.1, 0.35, 0.1, 0.1])
        if what in ("ask", "others"):
            call = some(1 if what == "ask" else 3)
            for row, point in enumerate(call):
                others = None if what == "ask" else len(call) - 1 - row
                own.ask(point, next_id, others=others)
                log.append(("ask", point, next_id, others))
                pending.append((point, next_id))
                next_id += 1
        elif what == "observe":
            points, ys = some(4), rng.standard_normal(4).tolist()
            own.observe(points, ys)
            log.append(("observe", points, ys))
        elif pending:
            point, query = pending.pop(int(rng.integers(len(pending))))
            if what == "tell":
                y = float(rng.standard_normal())
                own.tell(point, y, query)
                log.append(("tell", point, query, y))
            else:
                own.drop(point, query)
                log.append(("drop", point, query))
        right = bands(log, size)
        assert set(own.keys()) == set(right)
        lower, upper = own.at(names)
        for i, name in enumerate(names):
            assert (lower[i], upper[i]) == pytest.approx(right.get(name, (-math.inf, math.inf)), abs=1e-12)
        if size:
            np.testing.assert_array_equal((own.lower, own.upper), (lower, upper))


def test_two_calls_by_hand():
    """On a list of 25 every point that was observed pays for rank 25; elsewhere 2 points for rank 2, then 3 for 5."""

    def radius(j):
        return NOISE * math.sqrt(2 * math.log(math.pi**2 * j * (j + 1) / (3 * DELTA)))

    for size, ranks in ((SIZE, [25] * 5), (0, [2, 2, 5, 5, 5])):
        own = OwnBands(NOISE, DELTA, size)
        names = [0, 1, 2, 3, 4] if size else [b"0", b"1", b"2", b"3", b"4"]
        own.observe(names[:2], [0.0, 0.0])
        own.observe([*names[2:], names[0]], [0.0] * 4)
        _, upper = own.at(names)
        n2 = NOISE * math.sqrt(math.log(math.pi**2 * 4 * ranks[0] * (ranks[0] + 1) / (3 * DELTA)))
        assert upper == pytest.approx([n2, *(radius(j) for j in ranks[1:])])
