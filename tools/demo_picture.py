"""Draws the picture of the README: the demo's contest without constants, with more seeds than the demo has time for.

python tools/demo_picture.py docs/images/demo.png [--seeds 32]      some minutes on two cores; needs Optuna
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path

from matplotlib import rc_context

from misspec.experiments import contest_in
from misspec.files import storage
from misspec.reports.figures import contest_figure
from misspec.reports.matplotlib_backend import RC


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=32)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = contest_in(folder, seeds=given.seeds)
    if "Optuna" not in found.players:
        parser.error("the picture has Optuna in it: pip install 'misspec[optuna]'")
    with rc_context(RC):
        buffer = io.BytesIO()
        contest_figure(found).savefig(buffer, format="png", dpi=200)
    storage.replace(given.file, buffer.getvalue())
    print(*found.sentences, sep="\n")
    print(*found.rows(), sep="\n")


if __name__ == "__main__":
    main()
