"""Words that were retired stay out of the source and the docs (docs/notation.md)."""

import ast
import re
from pathlib import Path

import pytest

import misspec as ms

RETIRED = ["whoever", "somebody", "nobody", "anew", "story", "his"]
SOURCE = Path(ms.__file__).parent
ROOT = Path(__file__).parents[2]
FILES = sorted(SOURCE.rglob("*.py"))
PAGES = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "notation.md"]
PAGES += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
# modules whose docstrings were rewritten
REWRITTEN = [
    *(SOURCE / f"{name}.py" for name in ("kernels", "product", "search", "model", "encoding", "threads")),
    *(SOURCE / f"{name}.py" for name in ("adversary", "simulation", "testing")),
    *(path for room in ("theory", "truth", "problems") for path in (SOURCE / room).glob("*.py")),
]


@pytest.mark.parametrize("word", RETIRED)
def test_retired_words_stay_out(word):
    assert lines_with(rf"\b{word}\b", [*FILES, *PAGES]) == []


def test_pend_is_not_a_verb():
    assert lines_with(r"\bpends?\b", [*FILES, *PAGES]) == []


@pytest.mark.parametrize("path", REWRITTEN, ids=lambda path: str(path.relative_to(SOURCE)))
def test_docstrings_say_what_a_thing_is(path):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]
    assert [text for text in texts if text.startswith(("What ", "The same "))] == []


def lines_with(pattern, paths):
    return [
        f"{path.name}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(pattern, line, re.IGNORECASE)
    ]


def test_no_module_is_above_450_lines():
    assert [str(path) for path in FILES if len(path.read_text().splitlines()) > 450] == []


def test_no_class_has_more_than_35_methods():
    classes = [
        node for path in FILES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
    ]
    counts = {node.name: sum(isinstance(part, ast.FunctionDef) for part in node.body) for node in classes}
    assert {name: count for name, count in counts.items() if count > 35} == {}


def test_no_more_public_names_stand_in_several_modules():
    """A ratchet: of those that are left, users call at least one. Give a new one its noun, as in docs/notation.md."""
    modules = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                modules.setdefault(node.name, set()).add(str(path.relative_to(SOURCE)))
    assert len([name for name, places in modules.items() if len(places) > 1]) <= 9


def test_only_the_factory_asks_which_kind_a_domain_is():
    """Arguments are checked by `errors.instance`; what differs between kinds is an attribute of the domain or field."""
    elsewhere = [path for path in FILES if path.name != "fields.py"]
    assert lines_with(r"isinstance\([^)]*\b(?-i:Finite|Box|Space|Open|Joint|Table)\b", elsewhere) == []
