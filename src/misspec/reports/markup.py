"""Parts of pages: stored files, data for scripts, tables."""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any


def asset(name: str) -> str:
    """A part of a page, as it is stored beside this file."""
    return resources.files("misspec.reports").joinpath(name).read_text(encoding="utf-8")


def compressed(name: str, text: str) -> str:
    """Text for the page's script to inflate: base64 of gzip."""
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return f'<script type="text/plain" id="{name}">{packed}</script>'


def script(content: Any) -> str:
    """JSON that can stand in a script element."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def table(heads: Mapping[str, str] | Sequence[str], rows: Iterable[Iterable[str]], kind: str = "") -> str:
    """A table; heads and cells are HTML. heads: with what is shown beside the pointer, or without; kind: its class."""
    tips = (
        [f' title="{html.escape(tip)}"' for tip in heads.values()] if isinstance(heads, Mapping) else [""] * len(heads)
    )
    top = "".join(f"<th{tip}>{head}</th>" for head, tip in zip(heads, tips, strict=True))
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table{kind and f' class={kind!r}'}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
