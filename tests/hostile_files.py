"""Files as careless people and broken programs write them, for fuzzing: CSV and TOML."""

import copy
import datetime
import json
import math
import random

from hypothesis import strategies as st

# -- CSV ---------------------------------------------------------------------------------------------------------------

SHEETS = (
    "temperature,solvent,yield\n80,water,1.5\n90,oil,2.5\n80,oil,3\n100,water,4\n",
    "x;y\n1,5;2\n2,5;3\n3,0;4\n",
    "a\tb\tc\n1\t2\t3\n4\t5\t6\n",
    "name,x,result\nfirst,1,2\nsecond,2,\nthird,3,failed\n",
    "a b\n1 2\n3 4\n",
)
HUGE = "[huge]"  # stands for more than a cell may hold
CELLS = ["", " ", "nan", "inf", "-inf", "1e400", "1e308", "1e-320", "0x10", "１２", "1_000", "9" * 4500, "0" * 4500]
CELLS += ["007", "1,5", "1.234,5", "1'000", '"', '""', '"a', "a\nb", '"a\nb"', "\x1b[31m", "é" * 300, "\ufeff", HUGE]
CELLS += ["true", "TRUE", "None", "2020-01-01", "=1+1", "\u202e", "−1", "+", "-", ".", "e5", "1e", "\ud800"]
BROKEN = ["", "\n", "\n\n\n", "\r", "a", "a,b", "1,2\n3,4\n", ",,,\n1,2,3\n", "sep=;\na;b\n1;2\n", "sep=\r\na,b\n1,2\n"]
BROKEN += [
    'sep="\na"b\n1"2\n',
    "a,a\n1,2\n",
    ",\n,\n",
    "\ufeffa,b\n1,2\n",
    "a,b\n1,2,3\n",
    "a,b\n1\n",
    "a,b" * 200 + "\n1,2\n",
]
BROKEN += [
    "a,b\n" + "1,2\n" * 300,
    "\0",
    "a,\0b\n1,2\n",
    '"',
    '"a,b\n1,2\n',
    "," * 5000 + "\n" + "1," * 5000 + "\n",
    " \n \n",
]


@st.composite
def texts(draw):
    """A good file with some of it changed, or a bad one."""
    kind = draw(st.sampled_from(["cells", "cells", "cells", "characters", "lines", "whole", "random"]))
    if kind == "random":
        return draw(st.text(alphabet=st.sampled_from('ab1, ;\t\n\r".é-e\0'), max_size=40))
    if kind == "whole":
        return draw(st.sampled_from(BROKEN))
    text = draw(st.sampled_from(SHEETS))
    rng = random.Random(draw(st.integers(0, 2**32)))
    if kind == "characters":
        for _ in range(rng.randint(1, 4)):
            i = rng.randrange(len(text))
            text = text[:i] + rng.choice(["", text[i] * 2, '"', ",", ";", "\n", "\r", "\0", "é"]) + text[i + 1 :]
        return text
    separator = next(each for each in ",;\t " if each in text)
    lines = [line.split(separator) for line in text.splitlines()]
    if kind == "lines":
        rng.choice([rng.shuffle, lambda rows: rows.pop(0), lambda rows: rows.extend(rows), lambda rows: rows.clear()])(
            lines
        )
    else:
        for _ in range(rng.randint(1, 3)):
            line = rng.choice(lines)
            what, cell = rng.choice(["more", "first", "last", "fewer"]), rng.choice(CELLS)
            if what == "fewer" and line:
                line.pop()
            elif what == "more" or not line:
                line.append(cell)
            else:
                line[0 if what == "first" else -1] = cell
    end = rng.choice(["\n", "\r\n", "\r"])
    return end.join(separator.join(line) for line in lines) + rng.choice(["", end])


def write(path, text, encoding):
    path.write_bytes(text.replace(HUGE, "x" * 140_000).encode(encoding, "surrogatepass"))


ENCODINGS = st.sampled_from(["utf-8"] * 5 + ["utf-8-sig", "utf-16", "utf-16-le"])


# -- TOML --------------------------------------------------------------------------------------------------------------

EXPERIMENT = {
    "horizon": 6,
    "seeds": 2,
    "epsilons": [0.0, 0.1],
    "minimize": False,
    "title": "a title",
    "notes": "some notes",
    "domain": {"box": [[0, 1]], "grid": 5},
    "model": {
        "kernel": {"name": "RBF", "length_scale": 0.3},
        "norm_bound": 2.0,
        "noise": 0.1,
        "regularization": 0.1,
        "delta": 0.1,
        "offset": 1.0,
        "scale": 1.0,
    },
    "problems": [
        {"kind": "misspecified", "name": "first", "misfit": "ripple", "wavelength": 0.3, "seed": 1, "actions": 2},
        {"kind": "needle", "height": 0.5, "minimize": True},
        {"kind": "wrong_kernel", "kernel": {"name": "Matern", "nu": 0.5, "length_scale": [0.2]}},
        {"kind": "trap", "domain": {"points": [[0.1], [0.2]]}},
    ],
    "policies": [
        {"kind": "GPUCB", "width": 2.0, "as_in_paper": False, "grounded": True},
        {"kind": "ECGPUCB", "epsilon": "known", "enlargement": "exact"},
        {"kind": "RegretBalancing", "as_in_paper": True, "gain": 3.0, "price": 8.0},
        {"kind": "PhasedUncertaintySampling", "name": "phased", "schedule": "few"},
        {"kind": "InsuredUCB", "premium": 1.0},
        {"kind": "CorruptionTolerantGPUCB", "corruption": 3.0},
    ],
}
VALUES = [
    0,
    1,
    -1,
    2,
    3,
    10**18,
    10**26,
    10**400,
    -(10**400),
    2**63,
    0.5,
    0.0,
    1e-300,
    5e-324,
    1e9,
    1e160,
    1e200,
    1.7e308,
]
VALUES += [
    math.inf,
    -math.inf,
    math.nan,
    True,
    False,
    "",
    "a",
    "known",
    "RBF",
    "inf",
    "\0",
    "\x1b[31m",
    "é" * 300,
    "a" * 500,
]
VALUES += [
    "../../etc/passwd",
    "/",
    "os:system",
    "misspec.cli:main",
    ":",
    "a:",
    "x" * 5000,
    [],
    {},
    [[]],
    [1],
    ["a"],
    [[0, 1]],
]
VALUES += [
    [0, 0.1],
    [[1, 0]],
    [[0, 1]] * 40,
    [math.nan],
    [0] * 2000,
    {"name": "RBF"},
    {"name": "Sum"},
    {"kind": "GPUCB"},
]
VALUES += [{"": ""}, {"name": "Exponentiation", "kernel": {"name": "RBF"}, "exponent": 1e9}, {"name": "DotProduct"}]
VALUES += [{"name": "Sum", "k1": {"name": "RBF"}, "k2": {"name": "Sum", "k1": {"name": "RBF"}, "k2": 3}}]
VALUES += [datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), datetime.time(1)]

SPACE = {
    "lr": {"low": 1e-5, "high": 0.1, "log": True},
    "depth": {"low": 1, "high": 12, "step": 2},
    "dropout": {"kind": "float", "low": 0.0, "high": 0.5, "step": 0.1},
    "booster": ["tree", "linear"],
    "loss": {"options": [1, 2.5, "a", True]},
    "seed": 7,
}
RULED = {
    "where": ["lr * depth < 0.5", "booster == 'tree' or lr > 1e-4"],
    "parameters": {
        "lr": {"low": 1e-5, "high": 0.1, "log": True},
        "booster": ["tree", "linear"],
        "depth": {"low": 1, "high": 12, "when": {"booster": "tree"}},
        "kind": {"options": ["a", "b"], "when": {"booster": ["linear"]}},
        "blend": {"mixture": ["x", "y", "z"], "total": 100, "at_most": 2},
    },
}
NO_TOML = [
    b"",
    b"\0",
    b"\xff\xfe",
    b"a",
    b"a =",
    b"[",
    b"a = 1\na = 2",
    b"\xef\xbb\xbfhorizon = 1",
    b"a = " + b"9" * 5000,
]
NO_TOML += [
    b"a = " + b"[" * 3000 + b"]" * 3000,
    b"[" + b".".join([b"a"] * 3000) + b"]",
    b"a = '''",
    b'a = "\\u0000"',
    b"\r",
]
NO_TOML += [
    b"a = " + b"{b = " * 500 + b"1" + b"}" * 500,
    "é = 1".encode("latin-1"),
    b"[parameters]\n[parameters]",
    b"a = nan",
]


def toml(value):
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value) if not isinstance(value, int) or abs(value) < 10**300 else f"{'-' * (value < 0)}1{'0' * 400}"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {toml(each)}" for name, each in value.items()) + "}"
    return value.isoformat()


def document(table):
    return "".join(f"{json.dumps(name)} = {toml(value)}\n" for name, value in table.items()).encode()


def places(tree, path=()):
    """Where a value can be changed."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place for key, each in items for place in [(*path, key), *places(each, (*path, key))]]


@st.composite
def mutated(draw, good):
    """The bytes of a good document with one to three places changed, removed or added, or of no document."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.sampled_from(NO_TOML))
    table = copy.deepcopy(good)
    if "problems" in table:  # few at a time: trying them takes the time
        for name in ("problems", "policies"):
            table[name] = [draw(st.sampled_from(table[name]))]
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(table)))
        at = table
        for key in path[:-1]:
            at = at[key]
        act = draw(st.sampled_from(["change", "change", "change", "remove", "add"]))
        value = copy.deepcopy(draw(st.one_of(st.sampled_from(VALUES), st.floats(), st.integers(), st.text(max_size=5))))
        if act == "change":
            at[path[-1]] = value
        elif act == "remove":
            del at[path[-1]]
        elif isinstance(at, dict):
            known = [
                "minimize",
                "actions",
                "epsilon",
                "width",
                "bounds",
                "kernel",
                "nu",
                "seed",
                "step",
                "log",
                "misfit",
                "where",
                "when",
                "mixture",
                "at_most",
            ]
            at[draw(st.sampled_from([*known, "", "x", "\x1b]0;"]))] = value
        else:
            at.append(value)
        if not places(table):
            break
    return document(table)
