"""What benchmarks measured, in `results/NAME.json`: each figure with its interval, and when, where and on which code.

    record = Record("policies", protocol="N = 10,000", quick=given.quick)
    record.measure("bare", lambda: {"gp_ucb_over_bare": Figure(1.2, low=1.1, high=1.3)})

A part that the file holds for the same code, protocol and versions is not measured again: a run that was stopped goes
on. `tools/figures.py` writes the figures into README.md and docs. Those of quick runs prove nothing: kept apart.
"""

from __future__ import annotations

import ast
import dataclasses
import datetime
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS, QUICK = HERE / "results", HERE / ".cache" / "quick"
ALWAYS = ("numpy", "scipy", "scikit-learn")  # packages whose versions every figure depends on


@dataclasses.dataclass(frozen=True)
class Figure:
    """value, ± error (one standard error) or [low to high] (95 % unless the part says otherwise), or out of so many.

    form: how the numbers are written, as `format` has it."""

    value: float
    error: float | None = None
    low: float | None = None
    high: float | None = None
    of: int | None = None
    form: str = ".2f"

    def __str__(self) -> str:
        if self.of is not None:
            return f"{self.value:g} of {self.of}"
        unsigned = self.form.lstrip("+")
        if self.error is not None:
            return f"{self.short()} ± {self.error:{unsigned}}"
        if self.low is not None and self.high is not None:
            return f"{self.short()} [{self.low:{unsigned}} to {self.high:{unsigned}}]".replace("-", "−")
        return self.short()

    def short(self) -> str:
        """Without its interval."""
        return f"{self.value:{self.form}}".replace("-", "−")


def around(values: Iterable[float], form: str = ".2f") -> Figure:
    """The median of repetitions, with the least and the largest."""
    ordered = sorted(float(value) for value in values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return Figure(median, low=ordered[0], high=ordered[-1], form=form)


def slug(text: str) -> str:
    """A name as keys have it."""
    return re.sub(r"[^\w.√=+]+", "_", text.lower()).strip("_")


class Record:
    """The results file of one benchmark, replaced whole after each part.

    protocol: what the figures depend on beside code, versions and machine; packages: of those beside numpy, scipy and
    scikit-learn. Parts whose names are no longer measured are forgotten by deleting the file."""

    def __init__(self, name: str, *, protocol: str, quick: bool = False, packages: Iterable[str] = ()) -> None:
        self.path = (QUICK if quick else RESULTS) / f"{name}.json"
        self.protocol, self.source = protocol, source()
        self.versions = {"python": platform.python_version()} | {p: metadata.version(p) for p in (*ALWAYS, *packages)}
        self.parts: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}

    def holds(self, part: str) -> bool:
        """Whether a part was measured by this code, protocol and these versions."""
        now = {"source": self.source, "protocol": self.protocol, "versions": self.versions}
        return part in self.parts and now.items() <= self.parts[part]["measured"].items()

    def measure(self, part: str, function: Callable[[], dict[str, Figure]]) -> None:
        """Play a part, unless the file holds it, and keep its figures. Its seconds are those of this call: where single
        runs are kept, an earlier call may have played them."""
        if self.holds(part):
            print(f"{part}: measured before, kept in {self.path.name}", flush=True)
        else:
            load, start = os.getloadavg()[0], time.perf_counter()  # before: what else kept the machine busy
            figures = function()
            self.put(part, figures, load=round(load, 1), seconds=round(time.perf_counter() - start))

    def put(self, part: str, figures: dict[str, Figure], **more: Any) -> None:
        for other, kept in self.parts.items():
            if other != part and (both := figures.keys() & kept["figures"].keys()):
                raise ValueError(f"{self.path.name}: {other!r} and {part!r} both have figures called {sorted(both)}")
        measured = {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), "commit": commit(),
                    "source": self.source, "protocol": self.protocol, "versions": self.versions,
                    "machine": machine(), **more}  # fmt: skip
        kept = {"measured": measured, "figures": {key: _kept(figure) for key, figure in figures.items()}}
        parts = self.parts | {part: kept}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(parts, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        unfinished.replace(self.path)
        self.parts = parts


def figures(path: Path) -> dict[str, Figure]:
    """All figures of a results file."""
    parts = json.loads(path.read_text())
    return {key: Figure(**figure) for part in parts.values() for key, figure in part["figures"].items()}


def _kept(figure: Figure) -> dict[str, Any]:
    """As JSON has it: five significant digits are more than any figure here deserves."""
    fields = {name: value for name, value in dataclasses.asdict(figure).items() if value is not None}
    return {
        name: float(f"{value:.5g}") if name != "of" and not isinstance(value, str) else value
        for name, value in fields.items()
    }


def digest(paths: Iterable[Path]) -> str:
    """Of what Python files do: comments, docstrings and layout leave it as it is."""
    found = hashlib.sha256()
    for path in sorted(paths):
        tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
                ast.get_docstring(node, clean=False) is not None
            ):
                node.body = node.body[1:]
        found.update(path.name.encode() + ast.dump(tree).encode())
    return found.hexdigest()[:12]


def package(without: Iterable[str] = ()) -> list[Path]:
    """The library's source files, except those in folders that do not matter."""
    import misspec

    folder = Path(misspec.__file__).parent
    return [path for path in folder.rglob("*.py") if not set(without) & set(path.relative_to(folder).parts)]


def source() -> str:
    """Of the library, and of the benchmark that runs with all that it has imported from this folder."""
    loaded = {Path(m.__file__).resolve() for m in list(sys.modules.values()) if getattr(m, "__file__", None)}
    return digest(
        [*package(), *(path for path in loaded - {Path(__file__).resolve()} if path.parent == HERE.resolve())]
    )


def commit() -> str:
    """The commit that is checked out; "+" where the source differs from it, "unknown" outside a clone."""
    head, changed = ["rev-parse", "--short=10", "HEAD"], ["status", "--porcelain", "../src", "*.py"]
    try:
        said = [
            subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()
            for words in (head, changed)
        ]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said[0] + "+" * bool(said[1])


def machine() -> dict[str, Any]:
    """Its kind, and nothing that names it."""
    info, models = Path("/proc/cpuinfo"), []
    if info.exists():
        models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    system = f"{platform.system()} {platform.machine()}"
    return {"system": system, "processor": models[0] if models else "unknown", "CPUs": os.cpu_count(), "usable": usable}
