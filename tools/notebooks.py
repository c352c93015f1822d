"""Runs the notebooks of docs/notebooks, which are stored without outputs, and makes pages of them (a hook of MkDocs).

So what a page shows is what the code of this version says, and nothing of a machine is stored.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from nbclient import NotebookClient

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

SECONDS = 600  # for a cell


def run(path: Path) -> Any:
    """The notebook with its outputs, after all its cells ran in a folder of their own."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        options = {"resources": resources, "extra_arguments": ["--log-level=ERROR"]}
        NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", **options).execute()
    return notebook


def page(path: Path) -> str:
    """A notebook that ran, as Markdown."""
    parts = []
    for cell in run(path).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            printed = "".join(output.text for output in cell.outputs if output.output_type == "stream")
            others = [output for output in cell.outputs if output.output_type != "stream"]
            parts += [f"```python\n{cell.source}\n```", _text(printed), *map(_shown, others)]
    parts.insert(1, f"[This page as a notebook]({path.name})")
    return "\n\n".join(filter(None, parts)) + "\n"


def _shown(output: Any) -> str:
    data = output.get("data", {})
    if "text/html" in data:  # in one line: an empty one would end it; files that it links to were those of a run
        line = re.sub(r'<a href="(?!https?:)[^"]*">(.*?)</a>', r"\1", "".join(data["text/html"].splitlines()))
        return line and f"<div>{line}</div>"
    if "image/png" in data:
        return f'<img alt="" src="data:image/png;base64,{"".join(data["image/png"].split())}">'
    return _text(data.get("text/plain", ""))


def _text(text: str) -> str:
    return text and f"```text\n{text.strip()}\n```"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Each notebook gets a page beside it."""
    from mkdocs.structure.files import File

    for file in [each for each in files if each.src_uri.endswith(".ipynb")]:
        made = page(Path(str(file.abs_src_path)))
        files.append(File.generated(config, file.src_uri.removesuffix(".ipynb") + ".md", content=made))
    return files
