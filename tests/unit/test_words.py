"""Words that were retired stay out of the source (docs/notation.md)."""

import re
from pathlib import Path

import pytest

import misspec as ms

RETIRED = ["whoever", "somebody", "nobody", "anew", "story", "his"]
FILES = sorted(Path(ms.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("word", RETIRED)
def test_retired_words_stay_out(word):
    pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    lines = [
        f"{path.name}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if pattern.search(line)
    ]
    assert lines == []
