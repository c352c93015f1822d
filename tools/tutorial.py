"""Runs docs/tutorial.md: what its blocks print goes below each of them, and its pictures into docs/images."""

import contextlib
import io
import os
import re
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "agg")

FOLDER = Path(__file__).parents[1] / "docs"
PAGE = FOLDER / "tutorial.md"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n.*?```\n)?", re.DOTALL)


def main():
    namespace = {"__name__": "__main__"}

    def run(match):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(match[1], str(PAGE), "exec"), namespace)
        printed = f"\n```text\n{out.getvalue()}```\n" if out.getvalue() else ""
        return f"```python\n{match[1]}```\n{printed}"

    text = PAGE.read_text()
    os.chdir(FOLDER / "images")
    PAGE.write_text(BLOCK.sub(run, text))


if __name__ == "__main__":
    main()
