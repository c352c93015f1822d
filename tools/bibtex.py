"""Writes src/misspec/reports/papers.bib from CITATION.cff, the entries for `misspec report DIR --latex`."""

import re
import unicodedata
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
INTO = ROOT / "src" / "misspec" / "reports" / "papers.bib"
HEAD = "% Written by tools/bibtex.py from CITATION.cff\n"
ACCENTS = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"'}
SMALL = ("a", "an", "on", "the")  # words that a key does not end with


def accented(text):
    """Letters with accents as commands, so that every bibliography style prints them."""
    found = re.sub(
        "(\\w)([\u0300-\u0308])",
        lambda match: f"{{\\{ACCENTS[match[2]]}{match[1]}}}",
        unicodedata.normalize("NFD", text),
    )
    found.encode("ascii")  # fails where a letter is not known here
    return found.replace("&", r"\&")


def key_of(work):
    name = unicodedata.normalize("NFD", work["authors"][0]["family-names"])
    words = re.findall(r"\w+", work["title"].lower())
    return re.sub(r"[^a-z]", "", name.lower()) + str(work["year"]) + next(w for w in words if w not in SMALL)


def entry(work):
    authors = " and ".join(f"{each['family-names']}, {each['given-names']}" for each in work["authors"])
    article = work["type"] == "article"
    fields = {"title": f"{{{work['title']}}}", "author": authors}
    fields |= {"journal": work["journal"]} if article else {"booktitle": work["collection-title"]}
    fields |= {name: str(work[name]) for name in ("volume", "year") if name in work}
    lines = [f"  {name} = {{{accented(value)}}}," for name, value in fields.items()]
    return "\n".join([f"@{'article' if article else 'inproceedings'}{{{key_of(work)},", *lines, "}\n"])


def content():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    return "\n".join([HEAD, *map(entry, [cited["preferred-citation"], *cited["references"]])])


if __name__ == "__main__":
    INTO.write_text(content(), encoding="ascii")
