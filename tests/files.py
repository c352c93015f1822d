"""What tests of experiments share: the head of a file, and processes that end with their test."""

import base64
import contextlib
import gzip
import json
import os
import re
import signal
import subprocess
import sys


def head(horizon, seeds, epsilons, *, box="[[0, 1]]", grid=20, title=""):
    """Everything of an experiment's file but its problems and policies."""
    named = f'title = "{title}"\n' if title else ""
    return f"""{named}horizon = {horizon}
seeds = {seeds}
epsilons = {epsilons}

[domain]
box = {box}
grid = {grid}

[model]
kernel = {{ name = "RBF", length_scale = 0.2 }}
norm_bound = 2.0
noise = 0.1
"""


def embedded(page):
    """What a page of results carries, by name."""
    found = re.findall(r'<script type="text/plain" id="([^"]+)">(.*?)</script>', page, re.DOTALL)
    texts = {name: gzip.decompress(base64.b64decode(content)).decode() for name, content in found}
    assert "Plotly" in texts.pop("plotly")
    return {name: json.loads(text) for name, text in texts.items()}


@contextlib.contextmanager
def started(*line, **options):
    """A process in a group of its own that listens to Ctrl-C, whatever this one does; its group ends with the block."""
    process = subprocess.Popen(
        [sys.executable, *map(str, line)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a parent under nohup ignores it
        **options,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
