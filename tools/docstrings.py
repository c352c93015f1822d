"""For the reference: docstrings list names in aligned columns, which Markdown would run together.

    name     what it is,
             on as many lines as it takes
    other    …

becomes a list of definitions. Names such as __init__, which Markdown would print in bold, are set as code. All else
stays as it is.
"""

import re

import griffe

ENTRY = re.compile(r"^([\w*][\w.*, ]*?) {2,}(\S.*)$")
SPECIAL = re.compile(r"(?<!`)\b__(\w+?)__\b")


def listed(text: str) -> str:
    """The text with its aligned lists as Markdown definitions."""
    lines: list[str] = []
    column = 0  # where the meanings of the list that we are in begin; 0: in none
    for line in SPECIAL.sub(r"`__\1__`", text).splitlines():
        entry = ENTRY.match(line)
        if entry:
            names = ", ".join(f"`{name.strip()}`" for name in entry[1].split(","))
            lines += ["", names, f":   {entry[2]}"]
            column = entry.start(2)
        elif column and line.strip() and len(line) - len(line.lstrip()) >= min(column, 4):
            lines.append(f"    {line.strip()}")
        else:
            if column and line.strip():
                lines.append("")
            column = 0
            lines.append(line)
    return "\n".join(lines)


class Listed(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            obj.docstring.value = listed(obj.docstring.value)
