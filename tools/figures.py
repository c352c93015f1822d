"""Write the figures of `benchmarks/results/` into README.md and docs, or check that they stand there.

    python tools/figures.py            # writes
    python tools/figures.py --check    # fails, and shows the lines, where text and file differ

A text says where a figure goes by a comment that readers do not see: `<!--NAME:KEY-->1.2 ± 0.1<!--/-->`, with the
figure KEY of `NAME.json`, and `KEY~` for its value without the interval. In a row of a table `<!--NAME:KEY KEY-->` is
in a cell, and the cells that follow it have the figures in this order ("–" stands for itself). `NAME:PART@date` is when
a part was measured.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import record  # noqa: E402

INLINE = re.compile(r"(<!--([\w-]+):(\S+?)-->)([^<]*)<!--/-->")
ROW = re.compile(r"<!--([\w-]+):([^>]+?)--> *\|")


@cache
def _figures(path: Path) -> dict[str, record.Figure]:
    if not path.exists():
        raise LookupError(f"there is no {path.name} in {path.parent.name}/; `make bench` writes it")
    return record.figures(path)


def text_of(name: str, key: str, results: Path = record.RESULTS) -> str:
    """A figure as texts have it."""
    if key == "–":
        return key
    path = results / f"{name}.json"
    found = _figures(path)
    if key.endswith("@date"):
        return str(json.loads(path.read_text())[key.removesuffix("@date")]["measured"]["date"])
    figure = found.get(key.removesuffix("~"))
    if figure is None:
        raise LookupError(f"{path.name} has no figure {key!r}; it has {', '.join(sorted(found))}")
    return figure.short() if key.endswith("~") else str(figure)


def written(text: str, results: Path = record.RESULTS) -> str:
    """The text with the figures of the files."""
    lines = INLINE.sub(lambda m: f"{m[1]}{text_of(m[2], m[3], results)}<!--/-->", text).split("\n")
    for at, line in enumerate(lines):
        if line.lstrip().startswith("<!--") and INLINE.search(line):
            raise LookupError(f"a line that begins with a marker is raw HTML to Markdown; begin it with a word: {line}")
        if line.startswith("|") and (marker := ROW.search(line)):
            keys, cells = marker[2].split(), line[marker.end() :].split("|")
            if len(keys) >= len(cells):
                raise LookupError(f"{len(keys)} figures for {len(cells) - 1} cells: {line}")
            cells[: len(keys)] = [f" {text_of(marker[1], key, results)} " for key in keys]
            lines[at] = line[: marker.end()] + "|".join(cells)
    return "\n".join(lines)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main(arguments: list[str]) -> int:
    wrong = 0
    for path in pages():
        text, where = path.read_text(), path.relative_to(ROOT)
        try:
            new = written(text)
        except LookupError as error:
            print(f"{where}: {error.args[0]}")
            return 1
        if "--check" not in arguments:
            if new != text:
                path.write_text(new)
                print(f"{where}: written")
            continue
        for number, (old, line) in enumerate(zip(text.split("\n"), new.split("\n"), strict=True), 1):
            if old != line:
                wrong += 1
                print(f"{where}:{number} differs from benchmarks/results:\n  has {old}\n  not {line}")
    if wrong:
        print("`python tools/figures.py` writes what was measured")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
