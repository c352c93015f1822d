"""Answers as HTML, for notebooks: sentences and tables in the colours of the page around them, light or dark.

Everything that comes from outside is escaped, and nothing is loaded from elsewhere.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

MOST_COLUMNS = 30  # values of a point that are shown: more are no longer read


def table(heads: Mapping[str, str] | Sequence[str], rows: Iterable[Iterable[str]], kind: str = "") -> str:
    """A table; heads and cells are HTML. heads: with what is shown beside the pointer, or without; kind: its class."""
    tips = (
        [f' title="{html.escape(tip)}"' for tip in heads.values()] if isinstance(heads, Mapping) else [""] * len(heads)
    )
    top = "".join(f"<th{tip}>{head}</th>" for head, tip in zip(heads, tips, strict=True))
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table{kind and f' class={kind!r}'}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def cell(value: Any) -> str:
    """A value as people write it, escaped."""
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return html.escape(text)


def block(title: str, *parts: str) -> str:
    """A title, plain text, above parts that are HTML; a wide table scrolls."""
    return f'<div style="overflow-x: auto"><b>{html.escape(title)}</b>{"".join(parts)}</div>'


def paragraphs(texts: Iterable[str]) -> str:
    """Paragraphs of plain text, without those that are empty."""
    return "".join(f'<p style="margin: 0.4em 0">{html.escape(text)}</p>' for text in texts if text)


def link(page: Path) -> str:
    """The path of a page, which some notebooks can open."""
    return f'<p>The page: <a href="{html.escape(quote(page.as_posix()))}">{html.escape(str(page))}</a></p>'


def picture(png: bytes) -> str:
    return f'<img style="max-width: 100%" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def points(answers: Sequence[Any], beside: Sequence[Mapping[str, Any]], rows: Sequence[str] = ()) -> str:
    """Points of answers, a row each, by the names that the user gave: Queries, Recommendations and the like.

    beside: what else is known of each, in columns at the end. rows: what each of them is
    """
    named = [_named(answer) for answer in answers]
    names = list(dict.fromkeys(name for values in named for name in values))
    known = list(dict.fromkeys(name for values in beside for name in values))
    heads = [html.escape(name) for name in names[:MOST_COLUMNS]]
    heads += [f"… {len(names) - MOST_COLUMNS} more"] if len(names) > MOST_COLUMNS else []
    cells = [[values.get(name) for name in names[:MOST_COLUMNS]] for values in named]
    cells = [
        [*row, None][: len(heads)] + [values.get(name) for name in known]
        for row, values in zip(cells, beside, strict=True)
    ]
    heads += [f"<i>{html.escape(name)}</i>" for name in known]
    if rows:
        heads, cells = ["", *heads], [[name, *row] for name, row in zip(rows, cells, strict=True)]
    return table(heads, (map(cell, row) for row in cells))


def _named(answer: Any) -> dict[str, Any]:
    """The values of a point by name: its parameters, its row, or else its coordinates."""
    given = answer.row if answer.params is None else answer.params
    values = {str(name): value for name, value in given.items()} if given is not None else {}
    if given is None:
        values = {f"x{i}": value for i, value in enumerate(answer.x.tolist())}
    if answer.name is not None:
        values = {"name": answer.name, **values}
    context = getattr(answer, "context", None)
    return values if context is None else values | {f"c{i}": value for i, value in enumerate(context.tolist())}
